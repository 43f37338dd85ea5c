/*
 * Choosing how many nodes of the allocation stand by (limits: `spare_nodes: [0,
 * 1, 2]`): the more, the fewer train and the longer a step; the fewer, the
 * longer the job waits for nodes out of repair. One search each; with the
 * number of nodes fixed the whole job's time grows with the step alone, so each
 * choice's best is its fastest plan, and the choice whose job ends first is the
 * answer. It is proved where every search is.
 */
#ifndef MW_PLANNER_SPARES_H
#define MW_PLANNER_SPARES_H

#include "planner/planner.h"

struct mw_spare_choice {
    int n_spares, n_nodes;          /* that train */
    double step_time_s;             /* of its best plan; 0: none is feasible */
    const struct mw_layout *layout; /* the plan's, while the job is weighed */
    double wall_s,
        goodput; /* of the whole job; wall_s HUGE_VAL: it never ends */
    bool is_proved;
};
struct mw_spares {
    int n, best; /* choices; which of them the result is of */
    struct mw_spare_choice choice[MW_SPARES_MAX];
    struct mw_scenario scenario; /* of the best: shares the given one's arena */
    struct mw_cost_ctx ctx;
    bool is_proved; /* the best of all choices */
};
/* Sets wall_s and goodput of the job on the scenario's nodes at a step. */
typedef enum mw_status (*mw_spares_job_fn)(const void *arg,
                                           const struct mw_scenario *scenario,
                                           const struct mw_cost_ctx *ctx,
                                           struct mw_spare_choice *choice,
                                           struct mw_err *err);

/*
 * Searches under each of scenario->limits.spare_nodes; ctx is the scenario's
 * under any of them. *result is the best choice's, released by the caller in
 * any case (as mw_search's). Errors are mw_search's and job's: MW_ENO where no
 * choice has a plan (result: of the first).
 */
enum mw_status mw_spares_search(
    const struct mw_scenario *scenario, const struct mw_cost_ctx *ctx,
    const struct mw_search_opts *opts, mw_spares_job_fn job, const void *arg,
    struct mw_spares *out, struct mw_search_result *result, struct mw_err *err);

#endif
