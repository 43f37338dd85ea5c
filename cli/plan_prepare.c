/*
 * What `plan` is asked, options and scenario together: the objective, the
 * margin of memory, and what cannot go together once the scenario is known.
 */
#include "cli/plan_say.h"

#include "base/units.h"
#include "planner/front.h"

/* Time and memory of every way to cut the racks make one front, whose plans are
 * for clusters of their own. */
static enum mw_status widen_front(struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  struct mw_err *err)
{
    if (a->search.rank_by != MW_RANK_PARETO ||
        scenario->cluster.domains.n <= 1) {
        return MW_OK;
    }
    if (a->part || a->n_merges > 0 || a->out || a->is_why || a->is_robust ||
        a->is_staged || a->lp) {
        return mw_fail(err, MW_EUSAGE,
                       "--pareto over several domain_nodes lists plans of "
                       "several clusters: no -o, --shard, --merge, --why, "
                       "--robust or --stage-recompute; name one in cluster: "
                       "domain_nodes");
    }
    a->front = MW_FRONT_TIME | MW_FRONT_MEMORY;
    return MW_OK;
}

/* The objective: the option's or the scenario's; what a single search cannot
 * rank by takes several. */
static void take_objective(struct mw_plan_args *a,
                           const struct mw_scenario *scenario)
{
    if (a->search.rank_by != MW_RANK_TIME) {
        return; /* --pareto */
    }
    if (a->objective.n == 0) {
        a->objective = scenario->objective;
    }
    bool is_memory = mw_objective_is(&a->objective, MW_GOAL_MEMORY);

    a->has_goals =
        a->within_s > 0 || a->cap_usd > 0 ||
        !(is_memory || mw_objective_is(&a->objective, MW_GOAL_STEP_TIME));
    a->search.rank_by =
        is_memory && !a->has_goals ? MW_RANK_MEMORY : MW_RANK_TIME;
}

static bool is_ranking(const struct mw_plan_args *a)
{
    return !a->experts && !a->front && !a->mixed && !a->why_not;
}

/* Choosing spare nodes weighs whole jobs, which need to know how long. */
static enum mw_status check_spares(const struct mw_plan_args *a,
                                   struct mw_err *err)
{
    if (!(a->job.tokens > 0)) {
        return mw_fail(err, MW_EUSAGE,
                       "limits: spare_nodes is a choice by the time of the "
                       "whole job: --tokens N says how long it is");
    }
    if (a->has_goals || a->search.rank_by != MW_RANK_TIME || a->part ||
        a->n_merges > 0) {
        return mw_fail(err, MW_EUSAGE,
                       "limits: spare_nodes is a choice by the time of the "
                       "whole job: not with another objective, --pareto, "
                       "--within, --cap, --shard or --merge");
    }
    return MW_OK;
}

/* A margin in bytes is a fraction of the rank's memory. */
static enum mw_status take_margin(const struct mw_plan_args *a,
                                  const struct mw_cost_ctx *ctx,
                                  struct mw_limits *limits, struct mw_err *err)
{
    double capacity =
        limits->memory_bytes > 0 ? limits->memory_bytes : ctx->gpu->mem_bytes;
    char text[MW_FMT_MAX];

    if (!(a->margin_bytes >= 0)) {
        return MW_OK;
    }
    if (!(a->margin_bytes < capacity)) {
        return mw_fail(err, MW_EUSAGE, "--memory-margin: a rank has only %s",
                       mw_fmt_bytes(capacity, text));
    }
    limits->has_memory_fraction = true;
    limits->memory_fraction = 1 - a->margin_bytes / capacity;
    return MW_OK;
}

enum mw_status mw_plan_prepare(struct mw_plan_args *a,
                               struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               struct mw_err *err)
{
    enum mw_status status = take_margin(a, ctx, &scenario->limits, err);

    if (status == MW_OK) {
        status = mw_plan_check_why(a, scenario, ctx, err);
    }
    take_objective(a, scenario);
    if (status == MW_OK) {
        status = widen_front(a, scenario, err);
    }
    if (status == MW_OK && a->has_goals && (a->part || a->n_merges > 0)) {
        status = mw_fail(err, MW_EUSAGE,
                         "--shard and --merge are of one search: objective "
                         "step_time or memory (--objective)");
    }
    if (status == MW_OK && scenario->limits.spare_nodes.n > 0 &&
        is_ranking(a)) {
        status = check_spares(a, err);
    }
    if (a->search.top == 0) {
        a->search.top = (int)a->top;
    }
    a->is_staged = a->is_staged || a->lp; /* its program is what is written */
    return status;
}
