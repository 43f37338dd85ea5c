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
 * node pipeline       min(1, L / (S o))   S nodes of a leaf send to another
 * leaf
 *
 * Sharers are whole, rounded up. Left out: spine collisions; what several kinds
 * of traffic do to one another on a leaf.
 */
#ifndef MW_SIM_COST_LEAF_H
#define MW_SIM_COST_LEAF_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

/* Has the cluster leaves that carry less than their NICs? */
bool mw_leaf_matters(const struct mw_cluster *cluster);
/* The part of the NICs' rate of a group, from how it lies on leaves (`leaf`:
 * the same communicator with a leaf's ranks for a node's). */
double mw_leaf_part(const struct mw_cluster *cluster,
                    const struct mw_group *group, const struct mw_group *leaf,
                    bool is_all_to_all);
/* The same of a transfer between two stages; gpus_per_node as in cost.h. */
double mw_leaf_stage_part(const struct mw_cluster *cluster,
                          const struct mw_layout *layout, int from, int to,
                          int gpus_per_node);
/* Sharers that take as much from a group as `part` does. */
int mw_leaf_sharers(int nic_sharers, double part);

#endif
