/*
 * Plans that no other beats, over numbers of nodes as well: time of a step,
 * GPUs, money and energy per token, memory of a rank. On one cluster money and
 * energy go with time; fewer nodes are slower and may be cheaper.
 */
#ifndef MW_PLANNER_FRONT_H
#define MW_PLANNER_FRONT_H

#include "planner/planner.h"

/* What is minimised; a set of these bits. */
enum mw_front_by {
    MW_FRONT_TIME = 1,
    MW_FRONT_MEMORY = 2,
    MW_FRONT_GPUS = 4,
    MW_FRONT_COST = 8,
    MW_FRONT_ENERGY = 16
};
/* "time,gpus,cost" to a set; MW_EUSAGE names the words. */
enum mw_status mw_front_parse(const char *text, unsigned *out_by,
                              struct mw_err *err);
/* Does the set ask for other numbers of nodes? */
bool mw_front_needs_nodes(unsigned by);

struct mw_front_point {
    int n_nodes;      /* that train */
    int n_spares;     /* that stand by and are paid for */
    int domain_nodes; /* how the racks are cut; 0: nothing to choose */
    int64_t gpus;
    struct mw_candidate plan; /* layers in the front's arena */
    double usd_per_token;     /* NaN: no price */
    double J_per_token;
};
struct mw_front {
    struct mw_arena arena;
    struct {
        struct mw_front_point *v;
        size_t n, cap;
    } points;         /* by GPUs, then time */
    int n_searches;   /* numbers of nodes and ways to cut racks tried */
    int n_infeasible; /* of them */
    bool is_proved;   /* every search was */
};
struct mw_front_prices {
    double usd_per_gpu_hour; /* NaN: no price */
    double node_power_w;
};
/*
 * Searches every number of nodes that divides the scenario's (its own where
 * only time and memory are asked for), under every way to cut the racks, with
 * the scenario's batch, under the same stack as ctx. MW_ENO when nothing is
 * feasible, MW_EUSAGE for cost without a price, MW_EINTR with the front of what
 * was found so far; release in any case.
 */
enum mw_status mw_front_find(const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             const struct mw_search_opts *opts, unsigned by,
                             const struct mw_front_prices *prices,
                             struct mw_front *out, struct mw_err *err);
void mw_front_release(struct mw_front *front);

#endif
