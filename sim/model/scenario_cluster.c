/*
 * What a scenario's cluster says of its nodes: leaf switches, racks cut into
 * scale-up domains, and which nodes stand by (a number, or choices of the
 * limits, of which the first holds until one is chosen).
 */
#include "sim/model/scenario_int.h"

/* Leaf switches have more NICs than links up only where there are leaves:
 * elsewhere the word would do nothing. */
static enum mw_status check_leaves(struct mw_node *root,
                                   const struct mw_cluster *c,
                                   struct mw_err *err)
{
    struct mw_node *cluster = mw_node_get(root, "cluster");
    int64_t sum = 0;

    if (c->oversubscription > 1 && c->leaf_nodes == 0 && c->leaves.n == 0) {
        return mw_node_fail(
            mw_scenario_key_node(cluster, "oversubscription"), err,
            "oversubscription of leaf switches needs leaf_nodes, the nodes "
            "under one, for example 32, or leaves, those under each");
    }
    if (c->leaf_nodes > 0 && c->leaves.n > 0) {
        return mw_node_fail(mw_scenario_key_node(cluster, "leaves"), err,
                            "leaves says how many nodes are under each leaf "
                            "switch; leave leaf_nodes out");
    }
    for (size_t i = 0; i < c->leaves.n; i++) {
        sum += c->leaves.v[i];
    }
    if (c->leaves.n > 0 && sum != c->n_nodes) {
        return mw_node_fail(mw_scenario_key_node(cluster, "leaves"), err,
                            "leaves sum to %lld but nodes is %d (spare ones "
                            "included)",
                            (long long)sum, c->n_nodes);
    }
    return MW_OK;
}

/* Racks cut into domains say themselves what stands by. */
static enum mw_status check_domains(struct mw_node *root,
                                    const struct mw_cluster *c,
                                    struct mw_err *err)
{
    struct mw_node *cluster = mw_node_get(root, "cluster");

    if (c->domains.n > MW_PARTS_MAX) {
        return mw_node_fail(mw_scenario_key_node(cluster, "domain_nodes"), err,
                            "domain_nodes lists %zu choices; at most %d are "
                            "searched",
                            c->domains.n, MW_PARTS_MAX);
    }
    if (c->domains.n > 0 && c->spare_nodes > 0) {
        return mw_node_fail(mw_scenario_key_node(cluster, "spare_nodes"), err,
                            "with domain_nodes what is left of a rack stands "
                            "by; leave spare_nodes out");
    }
    return MW_OK;
}

/* Until a number of spare nodes is chosen it is the first of the limits. */
static enum mw_status list_spares(struct mw_node *root,
                                  const struct mw_limits *limits,
                                  struct mw_cluster *c, struct mw_err *err)
{
    const struct mw_int_list *list = &limits->spare_nodes;

    if (list->n == 0) {
        return MW_OK;
    }
    struct mw_node *node =
        mw_node_get(mw_node_get(root, "limits"), "spare_nodes");

    if (list->n > MW_SPARES_MAX) {
        return mw_node_fail(node, err,
                            "spare_nodes lists %zu choices; at most %d are "
                            "searched",
                            list->n, MW_SPARES_MAX);
    }
    if (c->spare_nodes > 0 || c->domains.n > 0) {
        return mw_node_fail(node, err,
                            "the cluster's %s says already which nodes stand "
                            "by; one of the two",
                            c->spare_nodes > 0 ? "spare_nodes"
                                               : "domain_nodes");
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->v[i] >= c->n_nodes) {
            return mw_node_fail(node, err,
                                "%lld spare nodes of %d leave none to train "
                                "on; at most %d",
                                (long long)list->v[i], c->n_nodes,
                                c->n_nodes - 1);
        }
    }
    c->spare_nodes = (int)list->v[0];
    return MW_OK;
}

/* Plans use the nodes that do not stand by. */
static enum mw_status take_spares(struct mw_node *root, struct mw_cluster *c,
                                  struct mw_err *err)
{
    if (c->spare_nodes >= c->n_nodes) {
        struct mw_node *cluster = mw_node_get(root, "cluster");

        return mw_node_fail(mw_node_get(cluster, "spare_nodes"), err,
                            "%d spare nodes of %d leave none to train on; at "
                            "most %d",
                            c->spare_nodes, c->n_nodes, c->n_nodes - 1);
    }
    c->n_nodes -= c->spare_nodes;
    return MW_OK;
}

enum mw_status mw_cluster_take(struct mw_node *root,
                               const struct mw_raw_scenario *raw,
                               struct mw_cluster *out, struct mw_err *err)
{
    enum mw_status st = list_spares(root, &raw->limits, out, err);

    st = st != MW_OK ? st : take_spares(root, out, err);
    st = st != MW_OK ? st : check_leaves(root, &raw->cluster, err);
    return st != MW_OK ? st : check_domains(root, &raw->cluster, err);
}
