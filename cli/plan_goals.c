/*
 * `plan` with an objective of several goals, or of one that other numbers of
 * nodes may serve better: the search, and what each goal came to.
 */
#include "cli/plan_say.h"
#include "cli/plan_view.h"

#include "base/table.h"

#include <math.h>
#include <stdio.h>

static const double day_s = 86400;

/* ---- a deadline ------------------------------------------------------------
 */
static bool is_allowed(const struct mw_plan_args *a,
                       const struct mw_scenario *scenario,
                       const struct mw_cost_ctx *ctx, double step_time_s)
{
    struct mw_sim_job_args args = a->job;
    struct mw_sim_job job;

    args.expected_only = true;
    return mw_sim_job_make(&args, scenario, ctx, step_time_s, &job, NULL) ==
               MW_OK &&
           (!(a->within_s > 0) || job.job.wall_s <= a->within_s) &&
           (!(a->cap_usd > 0) || job.usd_low <= a->cap_usd);
}

/* The whole job's time and money grow with the step, so halving finds the
 * longest that ends in time (failures included) and within the money, to a
 * millionth of what a job without failures could take; 0: none. */
static double max_step_s(const void *deadline,
                         const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx)
{
    enum { HALVINGS = 20 }; /* each a whole job, failures expected */
    const struct mw_plan_args *a = deadline;
    const struct mw_workload *w = &scenario->workload;
    double n_steps = a->job.tokens / ((double)w->global_batch * (double)w->seq);
    double price = mw_plan_prices(a, ctx).usd_per_gpu_hour / 3600 *
                   ctx->n_nodes * ctx->gpus_per_node;
    double low = 0, high = HUGE_VAL;

    if (a->within_s > 0) {
        high = a->within_s / n_steps;
    }
    if (a->cap_usd > 0) {
        high = fmin(high, a->cap_usd / price / n_steps);
    }
    for (int i = 0; i < HALVINGS; i++) {
        double mid = low + (high - low) / 2;

        *(is_allowed(a, scenario, ctx, mid) ? &low : &high) = mid;
    }
    return low;
}

enum mw_status mw_plan_goals(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_goals_result *out, struct mw_err *err)
{
    struct mw_goals_ask ask = {
        .objective = a->objective,
        .prices = mw_plan_prices(a, ctx),
        .is_any_nodes = a->cap_usd > 0,
        .max_step_s = a->within_s > 0 || a->cap_usd > 0 ? max_step_s : NULL,
        .deadline = a};

    if (a->cap_usd > 0 && !(ask.prices.usd_per_gpu_hour > 0)) {
        return mw_fail(err, MW_EUSAGE,
                       "--cap: the database has no price of %s; --price says "
                       "it",
                       ctx->gpu->slug);
    }
    return mw_goals_search(scenario, ctx, &a->search, &ask, out, err);
}

/* ---- showing ---------------------------------------------------------------
 */
static const char *value_text(enum mw_goal goal, double value,
                              char out[MW_FMT_MAX])
{
    switch (goal) {
    case MW_GOAL_STEP_TIME:
        return mw_fmt_seconds(value, out);
    case MW_GOAL_TOKENS_PER_GPU:
        snprintf(out, MW_FMT_MAX, "%.1f tokens/s", 1 / value);
        return out;
    case MW_GOAL_COST:
        snprintf(out, MW_FMT_MAX, "%.4g USD/10^9", 1e9 * value);
        return out;
    case MW_GOAL_ENERGY:
        snprintf(out, MW_FMT_MAX, "%.4g kWh/10^9", 1e9 * value / 3.6e6);
        return out;
    case MW_GOAL_GPUS:
        snprintf(out, MW_FMT_MAX, "%.0f", value);
        return out;
    case MW_GOAL_MEMORY:
        return mw_fmt_bytes(value, out);
    case MW_GOAL_COUNT:
        break;
    }
    return "";
}

void mw_plan_goals_print(const struct mw_plan_args *a,
                         const struct mw_goals_result *g)
{
    static const char *const names[] = {"goal", "best", "left to the next",
                                        "proved"};
    struct mw_table *t = mw_table_new();
    char value[MW_FMT_MAX], limit[MW_FMT_MAX];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i == 1 || i == 2);
    }
    for (int k = 0; k < g->n; k++) {
        const struct mw_goal_value *v = &g->v[k];

        mw_table_row(t);
        mw_table_cell(t, "%s", mw_goal_name(v->goal));
        mw_table_cell(t, "%s", value_text(v->goal, v->value, value));
        mw_table_cell(t, "%s",
                      k + 1 < g->n ? value_text(v->goal, v->limit, limit) : "");
        mw_table_cell(t, "%s", v->is_proved ? "yes" : "no");
    }
    printf("\n");
    mw_table_print(t, stdout);
    mw_table_free(t);
    bool is_cut = g->scenario.cluster.domains.n > 1;

    printf("%d numbers of nodes%s, %d searches", g->n_counts,
           is_cut ? " and ways to cut the racks" : "", g->n_searches);
    if (a->within_s > 0) {
        printf("; %.4g tokens within %.1f days", a->job.tokens,
               a->within_s / day_s);
    }
    if (a->cap_usd > 0) {
        printf("; %.4g tokens for at most %.4g US dollars", a->job.tokens,
               a->cap_usd);
    }
    printf("; the plans are for %d node%s", g->n_nodes,
           g->n_nodes == 1 ? "" : "s");
    if (is_cut) {
        printf(" in domains of %d", g->scenario.cluster.domain_nodes);
    }
    printf(".\n");
}

json_t *mw_plan_goals_json(const struct mw_plan_args *a,
                           const struct mw_goals_result *g)
{
    json_t *o = json_object(), *list = json_array();

    for (int k = 0; k < g->n; k++) {
        const struct mw_goal_value *v = &g->v[k];
        bool is_rate = v->goal == MW_GOAL_TOKENS_PER_GPU;
        json_t *goal = json_object();

        mw_json_set_str(goal, "goal", mw_goal_name(v->goal));
        mw_json_set_real(goal, "within", v->within);
        mw_json_set_real(goal, "value", is_rate ? 1 / v->value : v->value);
        mw_json_set_real(goal, "limit", is_rate ? 1 / v->limit : v->limit);
        mw_json_set_bool(goal, "proved_optimal", v->is_proved);
        json_array_append_new(list, goal);
    }
    mw_json_set(o, "goals", list);
    mw_json_set_int(o, "nodes", g->n_nodes);
    mw_json_set_int(o, "gpus", (long long)g->n_nodes * g->ctx.gpus_per_node);
    if (g->scenario.cluster.domains.n > 1) {
        mw_json_set_int(o, "domain_nodes", g->scenario.cluster.domain_nodes);
    }
    mw_json_set_int(o, "searches", g->n_searches);
    mw_json_set_bool(o, "proved_optimal", g->is_proved);
    if (a->within_s > 0) {
        mw_json_set_real(o, "within_s", a->within_s);
    }
    if (a->cap_usd > 0) {
        mw_json_set_real(o, "cap_usd", a->cap_usd);
    }
    return o;
}
