/*
 * Which nodes of the allocation hold which ranks, where leaf switches hold
 * several numbers of nodes (scenario: `leaves: [10, 6]`): so which pipeline
 * stages and replicas sit under which leaf, and which nodes stand by.
 *
 * Nodes of a leaf are alike, so an order of nodes is a list of leaves, one a
 * slot (a node's worth of ranks, neighbours in rank order); leaves of the same
 * size are alike too. Nodes that share scale-up links are one unit: a slot
 * holds a whole domain of a rack, the last one perhaps the first nodes of one,
 * and what a rack's domains leave stands by in any order. What an order decides
 * are marks: how many share the NICs in each kind of group (sim/step/fast.h).
 * An order that another matches or beats in all marks is not faster, so the
 * others alone are simulated. Proofs:
 *
 *   bound    no order is faster than the step without leaves
 *   all      every order was looked at, where there are at most MW_ORDERS_MAX
 *   gap      else: exchanges of stages, replicas and nodes until none helps in
 *            the fast form, from several orders of the leaves; time_s / bound_s
 *            says how far from the best it can be
 */
#ifndef MW_PLANNER_NODE_ORDER_H
#define MW_PLANNER_NODE_ORDER_H

#include "sim/plan/plan.h"
#include "sim/step/fast.h"

enum { MW_ORDERS_MAX = 20000 };

struct mw_node_order {
    int64_t *nodes;     /* [n_nodes] of layout.nodes, the caller's */
    double time_s;      /* event form */
    double allocated_s; /* of the allocation's own order */
    double bound_s;     /* of the step without leaves */
    bool is_proved;
    uint64_t n_orders, n_priced; /* looked at; simulated */
};

/*
 * The fastest order of nodes for a plan on a cluster of uneven leaves: fills
 * *out, whose nodes must have room for the cluster's n_nodes, and lets the
 * plan's layout.nodes point to them. Ties go to the first found, the
 * allocation's own order before others. Errors are mw_step_simulate's.
 */
enum mw_status mw_node_order_choose(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx,
                                    struct mw_plan *plan,
                                    struct mw_node_order *out,
                                    struct mw_err *err);
/* Is there anything to choose? */
bool mw_node_order_is_open(const struct mw_scenario *scenario);
/* Different orders of the scenario's nodes, at most limit + 1; so many nodes
 * share scale-up links and go together. */
uint64_t mw_node_order_count(const struct mw_cluster *cluster, int unit_nodes,
                             uint64_t limit);
/* The scenario as if leaves did not matter: no order of nodes is slower. */
struct mw_scenario mw_node_order_bare(const struct mw_scenario *scenario);

#endif
