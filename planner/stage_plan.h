/*
 * Recomputation by stage as a plan. A layout says one kind of recomputation
 * and how many layers of each stage it is for (stage_recompute_layers), so the
 * program over stages is solved once with none and selective, once with none
 * and full. Its layers, and those of the plan it starts from, then get the
 * fewest recomputed layers with which each stage fits by the simulator's own
 * memory, and are simulated. The program's three options mixed in one stage
 * are left out: no layout says them.
 */
#ifndef MW_PLANNER_STAGE_PLAN_H
#define MW_PLANNER_STAGE_PLAN_H

#include "planner/planner.h"
#include "planner/stage_split.h"

struct mw_stage_plan {
    /* The fastest that fits and that limits: framework can run; its layers and
     * counts are in the arena given. */
    bool is_found;
    struct mw_candidate candidate;
    /* A faster one that the framework cannot run, and why; NULL: none. */
    const char *refusal;
    double refused_s;
};

/* from: a simulated plan with one chunk a device; problem: of its stages
 * (mw_stage_options_find), whose first run is the model's layers. MW_OK with
 * nothing found where nothing fits. */
enum mw_status mw_stage_plan_find(
    const struct mw_scenario *scenario, const struct mw_cost_ctx *ctx,
    const struct mw_candidate *from, const struct mw_split_problem *problem,
    struct mw_arena *arena, struct mw_stage_plan *out, struct mw_err *err);

#endif
