/*
 * The clusters that a goal or a front over numbers of nodes looks at: every
 * number that divides the scenario's, and where racks can be cut in several
 * ways (cluster.domains) each way of each number that holds a domain. A number
 * of nodes is what is allocated; of a rack its domains train and the rest
 * stands by, paid for like spare nodes.
 */
#ifndef MW_PLANNER_NODE_COUNTS_H
#define MW_PLANNER_NODE_COUNTS_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

struct mw_node_count {
    int n_paid;       /* that train and that stand by */
    int n_nodes;      /* that train */
    int domain_nodes; /* of a rack that are one domain; 0: nothing to choose */
};
struct mw_node_counts {
    struct mw_node_count *v; /* by choice, then by number */
    size_t n, cap;
};

/* is_any: all numbers, else the scenario's own under each choice. ctx is the
 * scenario's under any of them. Release with mw_array_release. */
void mw_node_counts_find(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx, bool is_any,
                         struct mw_node_counts *out);
/* The scenario and its prices on so many nodes; the scenario's arena is shared.
 * Errors are mw_cost_use_domains'. */
enum mw_status mw_node_count_take(const struct mw_node_count *count,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  struct mw_scenario *out_scenario,
                                  struct mw_cost_ctx *out_ctx,
                                  struct mw_err *err);

#endif
