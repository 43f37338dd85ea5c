/*
 * Leaf switches above the nodes: what a communicator gets of their NICs where a
 * leaf's links up carry less than the NICs below (fat tree, Leiserson, IEEE
 * Trans. Comput. 34(10), 1985). Said as groups that share the NICs, so that all
 * prices of collectives can take it: half the rate is twice the sharers.
 *
 * A leaf has L nodes of NIC rate B and links up of L B / o. Of a group whose
 * rings have c nodes on a leaf, L / c such rings pass it, each leaving it once:
 *
 *   ring           min(1, c / o) of the NICs' rate
 *   all-to-all     min(1, (n - r) / ((n - R) o))   of n ranks, r on a node, R
 * on a leaf: (n - R)/(n - 1) of the traffic leaves a leaf and (n - r)/(n - 1) a
 * node pipeline       min(1, L / (S o))   S nodes (or scale-up domains, then L
 * too) of a leaf send to another leaf
 *
 * Sharers are whole, rounded up. Left out: spine collisions; what several kinds
 * of traffic do to one another on a leaf.
 *
 * Leaves of several sizes (`leaves` of the cluster: what a batch system gave),
 * or nodes in another order than theirs, make groups of one kind differ. Then
 * every group of the kind is looked at, and what they send over the links up of
 * leaf l, in NICs, is added to x_l. With n_l nodes the leaf has n_l / o, the
 * allocation's part of its links up:
 *
 *   ring           1 / sharers for each step from one leaf to another
 *   all-to-all     R (n - R) / (sharers r (n - r)) of a group with R ranks
 * there stage to stage 1 / (ranks of a stage on a node) for each rank that
 * sends
 *
 * A group gets min(1, n_l / (o x_l)) of its NICs' rate, at the worst of the
 * leaves that it leaves or enters: what max-min fairness gives those that pass
 * the fullest leaf, and no more than it gives the others.
 */
#ifndef MW_SIM_COST_LEAF_H
#define MW_SIM_COST_LEAF_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

/* Has the cluster leaves that carry less than their NICs? */
bool mw_leaf_matters(const struct mw_cluster *cluster);
/* Alike leaves as ranks see them: of racks cut into domains only the nodes that
 * train, whose NICs share what all of the leaf's have of links up. */
struct mw_leaf_even {
    int nodes;
    double oversubscription;
};
struct mw_leaf_even mw_leaf_even_of(const struct mw_cluster *cluster);
/* Leaf of a node of the allocation, from 0. */
int mw_leaf_of_node(const struct mw_cluster *cluster, int64_t node);
/*
 * Can ranks be placed under the leaves where `unit_nodes` nodes share scale-up
 * links? MW_EINPUT at the scenario's key where leaves part such nodes (their
 * NICs would then be under two), or alike ones hold different numbers of them.
 */
enum mw_status mw_leaf_check_units(const struct mw_cluster *cluster,
                                   int unit_nodes, struct mw_err *err);
/* The part of the NICs' rate of a group, from how it lies on leaves (`leaf`:
 * the same communicator with a leaf's ranks for a node's). */
double mw_leaf_part(const struct mw_cluster *cluster,
                    const struct mw_group *group, const struct mw_group *leaf,
                    bool is_all_to_all);
/* The same of a transfer between two stages; unit_ranks: of a node or scale-up
 * domain. */
double mw_leaf_stage_part(const struct mw_cluster *cluster,
                          const struct mw_layout *layout, int from, int to,
                          int gpus_per_node, int unit_ranks);
/* ---- leaves of several sizes (leaf_uneven.c) ------------------------------
 */
enum mw_leaf_kind {
    MW_LEAF_TP,
    MW_LEAF_CP, /* those with the same heads, where cp_inner is more than 1 */
    MW_LEAF_CP_INNER,
    MW_LEAF_DP,
    MW_LEAF_GRAD,   /* mw_cost_shard_group, dense */
    MW_LEAF_EXPERT, /* the same, of experts */
    MW_LEAF_REPLICA,
    MW_LEAF_ETP,
    MW_LEAF_EP,
    MW_LEAF_KINDS
};
/* What is looked at: ranks on units (nodes or scale-up domains) of unit_ranks,
 * the nodes in the order layout->nodes. */
struct mw_leaf_view {
    const struct mw_cluster *cluster;
    const struct mw_layout *layout;
    int gpus_per_node, unit_ranks;
};
/* Do leaves matter, and groups of one kind differ on them? */
bool mw_leaf_is_uneven(const struct mw_cluster *cluster,
                       const struct mw_layout *layout);
/* Of each stage, the part of the NICs' rate of its slowest group of the kind:
 * out_part[pp]. group: how rank 0's lies on units, its sharers not yet
 * narrowed. O(ranks). */
void mw_leaf_uneven_parts(const struct mw_leaf_view *view,
                          enum mw_leaf_kind kind, const struct mw_group *group,
                          bool is_all_to_all, double *out_part);
/* The same of what one stage sends to another. */
double mw_leaf_uneven_stage_part(const struct mw_leaf_view *view, int from,
                                 int to);

/* Sharers that take as much from a group as `part` does. */
int mw_leaf_sharers(int nic_sharers, double part);

#endif
