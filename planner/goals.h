/*
 * A search for several goals in order (sim/model/objective.h): each goal's
 * least value is found under what the goals before it leave, then
 * (1 + within) times that is what the next must keep to. Ties of the last go to
 * the shorter step.
 *
 * Goals that depend on the number of GPUs (tokens per second and GPU, cost,
 * energy, GPUs) are searched over every number of nodes that divides the
 * cluster's, for the same batch; and all goals over every way to cut the racks
 * (node_counts.h). On one number of nodes they are the step time
 * times a constant, so the search's bounds are theirs:
 *
 *   step_time              the bound of time (sim/step/fast.h)
 *   tokens_per_s_per_gpu   tokens / (GPUs x it): gpu_s = GPUs x it / tokens
 *   cost_per_token         price x GPUs (that stand by too) x it / tokens
 *   energy_per_token       power of the nodes x it / tokens
 *   gpus                   the number itself; is there a plan at all?
 *   memory                 peak memory, exact before simulation
 *
 * What is proved: under the simulator's prices, no layout enumerated on any of
 * those numbers of nodes that keeps to the limits before has a smaller value.
 */
#ifndef MW_PLANNER_GOALS_H
#define MW_PLANNER_GOALS_H

#include "planner/front.h"

struct mw_goals_ask {
    struct mw_objective objective;
    struct mw_front_prices prices;
    bool is_any_nodes; /* every number of nodes, whatever the goals */
    /* The longest step on the nodes of scenario and ctx that ends in time and
     * within the money; 0: none is short enough; NULL: any. */
    double (*max_step_s)(const void *deadline,
                         const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx);
    const void *deadline;
};

struct mw_goal_value {
    enum mw_goal goal;
    double within;
    double value; /* the least; gpu_s per token for tokens_per_s_per_gpu */
    double limit; /* what later goals must keep to */
    bool is_proved;
};

struct mw_goals_result {
    struct mw_scenario scenario; /* the asked one on n_nodes; not to release */
    struct mw_cost_ctx ctx;      /* prices of it */
    int n_nodes;                 /* that train */
    struct mw_goal_value v[MW_GOAL_COUNT];
    int n;          /* goals settled; fewer than asked after an interrupt */
    int n_counts;   /* numbers of nodes looked at */
    int n_searches; /* in all */
    bool is_proved; /* all of them, and the ranking */
    /* Plans on n_nodes within the limits of all goals but the last, by the
     * last: memory, else time. */
    struct mw_search_result search;
};

/* MW_ENO when nothing is feasible (err says why on the scenario's own number of
 * nodes), MW_EUSAGE for cost without a price. Release in either case. */
enum mw_status mw_goals_search(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_opts *opts,
                               const struct mw_goals_ask *ask,
                               struct mw_goals_result *out, struct mw_err *err);
void mw_goals_release(struct mw_goals_result *r);

#endif
