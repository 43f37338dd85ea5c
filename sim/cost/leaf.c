/* Parts of the NICs' rate that leaf switches leave: see leaf.h. */
#include "sim/cost/leaf.h"

#include <math.h>

struct mw_leaf_even mw_leaf_even_of(const struct mw_cluster *c)
{
    int d = c->domain_nodes, rack = c->rack_nodes, n = c->leaf_nodes;

    if (d > 0 && rack > 0 && n % rack == 0) {
        n = n / rack * (rack / d) * d;
    }
    return (struct mw_leaf_even){
        n, n > 0 ? c->oversubscription * n / c->leaf_nodes : 1};
}

bool mw_leaf_matters(const struct mw_cluster *c)
{
    return c->leaf_nodes > 0 && c->oversubscription > 1 &&
           mw_leaf_even_of(c).nodes < c->n_nodes;
}

int mw_leaf_of_node(const struct mw_cluster *c, int64_t node)
{
    int leaf = 0;

    if (c->leaves.n == 0) {
        return (int)(node / c->leaf_nodes);
    }
    while ((size_t)leaf + 1 < c->leaves.n && node >= c->leaves.v[leaf]) {
        node -= c->leaves.v[leaf++];
    }
    return leaf;
}

/* Domains of a rack are cut alike under every leaf. */
static bool is_alike(const struct mw_cluster *c)
{
    int d = c->domain_nodes, rack = c->rack_nodes, n = c->leaf_nodes;

    return d == 0 || c->leaves.n > 0 || n % rack == 0 ||
           (rack % d == 0 && n % d == 0);
}

enum mw_status mw_leaf_check_units(const struct mw_cluster *c, int unit_nodes,
                                   struct mw_err *err)
{
    const char *key = c->leaves.n > 0 ? "leaves" : "leaf_nodes";

    if (!(c->oversubscription > 1) ||
        (c->leaves.n == 0 && (c->leaf_nodes == 0 || c->domain_nodes == 0))) {
        return MW_OK;
    }
    if (!is_alike(c)) {
        return mw_fail_key(err, MW_EINPUT, "cluster", key,
                           "leaves of %d nodes hold different parts of racks "
                           "of %d whose domains are %d; a multiple of the "
                           "rack, or leaves, those under each",
                           c->leaf_nodes, c->rack_nodes, c->domain_nodes);
    }
    for (int slot = 0; slot < c->n_nodes; slot++) {
        int first = mw_cluster_slot_node(c, slot / unit_nodes * unit_nodes);
        int node = mw_cluster_slot_node(c, slot);

        if (mw_leaf_of_node(c, first) != mw_leaf_of_node(c, node)) {
            return mw_fail_key(err, MW_EINPUT, "cluster", key,
                               "nodes %d and %d share scale-up links but are "
                               "under two leaf switches; a domain's NICs are "
                               "priced under one: let leaves end where domains "
                               "of %d nodes do, or cut the racks otherwise "
                               "(domain_nodes)",
                               first, node, unit_nodes);
        }
    }
    return MW_OK;
}

double mw_leaf_part(const struct mw_cluster *c, const struct mw_group *g,
                    const struct mw_group *leaf, bool is_all_to_all)
{
    double over = mw_leaf_even_of(c).oversubscription, n = g->n_ranks;

    if (!mw_leaf_matters(c) || g->n_nodes <= 1 || leaf->n_nodes <= 1) {
        return 1;
    }
    if (is_all_to_all) {
        return fmin(1, (n - g->ranks_per_node) /
                           ((n - leaf->ranks_per_node) * over));
    }
    return fmin(1, leaf->ranks_per_node / (g->ranks_per_node * over));
}

double mw_leaf_stage_part(const struct mw_cluster *c,
                          const struct mw_layout *layout, int from, int to,
                          int gpus_per_node, int unit_ranks)
{
    struct mw_leaf_even leaf = mw_leaf_even_of(c);
    int leaf_ranks = leaf.nodes * gpus_per_node;

    if (!mw_leaf_matters(c) ||
        !mw_cost_stages_cross(layout, from, to, leaf_ranks)) {
        return 1;
    }
    double senders = (double)mw_cost_pp_sharers(layout, leaf_ranks) /
                     mw_cost_pp_sharers(layout, unit_ranks);
    double units = (double)leaf_ranks / unit_ranks;

    return fmin(1, units / (senders * leaf.oversubscription));
}

int mw_leaf_sharers(int nic_sharers, double part)
{
    return (int)ceil(nic_sharers / part - 1e-9);
}
