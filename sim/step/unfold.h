/*
 * The step with every rank simulated, which the event form folds: one task
 * graph over all ranks, where collectives join the members of their groups and
 * transfers go from rank to rank. Ranks that are alike give the folded step, to
 * the picosecond; a rank that is slower shows whom it holds up.
 */
#ifndef MW_SIM_STEP_UNFOLD_H
#define MW_SIM_STEP_UNFOLD_H

#include "sim/step/step.h"

struct mw_unfold {
    int n_ranks;
    uint64_t n_tasks;
    double step_time_s;
    double wall_time_s;
};

/*
 * pace[rank]: what a rank's computing and issuing in its passes takes longer
 * (1: as predicted); NULL: all 1. MW_EINPUT when there would be more than
 * MW_UNFOLD_TASKS_MAX tasks; otherwise as mw_step_simulate. About 120 bytes a
 * task.
 *
 *   double *pace = ...; pace[17] = 1.3;
 *   mw_step_unfold(&scenario, &plan, &ctx, pace, &out, &err);
 */
enum { MW_UNFOLD_TASKS_MAX = 50000000 };
enum mw_status mw_step_unfold(const struct mw_scenario *scenario,
                              const struct mw_plan *plan,
                              const struct mw_cost_ctx *ctx, const double *pace,
                              struct mw_unfold *out, struct mw_err *err);

#endif
