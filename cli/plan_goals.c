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
struct deadline {
    const struct mw_plan_args *a;
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
};

static bool ends_in_time(const struct deadline *d, int n_nodes,
                         double step_time_s)
{
    struct mw_cost_ctx part = *d->ctx; /* sizes alone matter here */
    struct mw_sim_job job;

    part.n_nodes = n_nodes;
    return mw_sim_job_make(&d->a->job, d->scenario, &part, step_time_s, &job,
                           NULL) == MW_OK &&
           job.job.wall_s <= d->a->within_s;
}

/* The whole job grows with the step, so halving finds the longest that ends in
 * time (failures included); 0: none. */
static double max_step_s(const void *deadline, int n_nodes)
{
    enum { HALVINGS = 60 };
    const struct deadline *d = deadline;
    double low = 0, high = d->a->within_s;

    for (int i = 0; i < HALVINGS; i++) {
        double mid = low + (high - low) / 2;

        *(ends_in_time(d, n_nodes, mid) ? &low : &high) = mid;
    }
    return low;
}

enum mw_status mw_plan_goals(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_goals_result *out, struct mw_err *err)
{
    struct deadline deadline = {a, scenario, ctx};
    struct mw_goals_ask ask = {.objective = a->objective,
                               .prices = mw_plan_prices(a, ctx),
                               .max_step_s =
                                   a->within_s > 0 ? max_step_s : NULL,
                               .deadline = &deadline};

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
    printf("%d numbers of nodes, %d searches", g->n_counts, g->n_searches);
    if (a->within_s > 0) {
        printf("; %.4g tokens within %.1f days", a->job.tokens,
               a->within_s / day_s);
    }
    printf("; the plans are for %d node%s.\n", g->n_nodes,
           g->n_nodes == 1 ? "" : "s");
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
    mw_json_set_int(o, "searches", g->n_searches);
    mw_json_set_bool(o, "proved_optimal", g->is_proved);
    if (a->within_s > 0) {
        mw_json_set_real(o, "within_s", a->within_s);
    }
    return o;
}
