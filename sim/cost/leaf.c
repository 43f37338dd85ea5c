/* Parts of the NICs' rate that leaf switches leave: see leaf.h. */
#include "sim/cost/leaf.h"

#include <math.h>

bool mw_leaf_matters(const struct mw_cluster *c)
{
    return c->leaf_nodes > 0 && c->leaf_nodes < c->n_nodes &&
           c->oversubscription > 1;
}

double mw_leaf_part(const struct mw_cluster *c, const struct mw_group *g,
                    const struct mw_group *leaf, bool is_all_to_all)
{
    double over = c->oversubscription, n = g->n_ranks;

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
                          int gpus_per_node)
{
    int leaf_ranks = c->leaf_nodes * gpus_per_node;

    if (!mw_leaf_matters(c) ||
        !mw_cost_stages_cross(layout, from, to, leaf_ranks)) {
        return 1;
    }
    double senders = (double)mw_cost_pp_sharers(layout, leaf_ranks) /
                     mw_cost_pp_sharers(layout, gpus_per_node);

    return fmin(1, c->leaf_nodes / (senders * c->oversubscription));
}

int mw_leaf_sharers(int nic_sharers, double part)
{
    return (int)ceil(nic_sharers / part - 1e-9);
}
