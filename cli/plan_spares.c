/* `plan` with `limits: spare_nodes`: how many nodes stand by, by the time of
 * the whole job. */
#include "cli/plan_say.h"
#include "cli/plan_view.h"

#include "base/table.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>

static const double day_s = 86400;

/* A job that never ends is a choice like another, the last one. */
static enum mw_status whole_job(const void *arg,
                                const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                struct mw_spare_choice *c, struct mw_err *err)
{
    struct mw_sim_job_args args = *(const struct mw_sim_job_args *)arg;
    struct mw_sim_job job;
    struct mw_err why = {0};
    const struct mw_scenario of = mw_sim_job_of(scenario, c->layout);

    args.expected_only = true;
    enum mw_status status =
        mw_sim_job_make(&args, &of, ctx, c->step_time_s, &job, &why);

    if (status == MW_OK) {
        c->wall_s = job.job.wall_s;
        c->goodput = job.job.goodput;
        return MW_OK;
    }
    if (isinf(job.job.wall_s)) {
        return MW_OK;
    }
    if (err) {
        *err = why;
    }
    return status;
}

enum mw_status
mw_plan_spares(const struct mw_plan_args *a, const struct mw_scenario *scenario,
               const struct mw_cost_ctx *ctx, struct mw_spares *out,
               struct mw_search_result *result, struct mw_err *err)
{
    return mw_spares_search(scenario, ctx, &a->search, whole_job, &a->job, out,
                            result, err);
}

static void set_json(const struct mw_spares *s, json_t *json)
{
    json_t *list = json_array();

    for (int i = 0; i < s->n; i++) {
        const struct mw_spare_choice *c = &s->choice[i];
        json_t *o = json_object();

        mw_json_set_int(o, "spare_nodes", c->n_spares);
        mw_json_set_int(o, "nodes", c->n_nodes);
        mw_json_set_bool(o, "feasible", c->step_time_s > 0);
        mw_json_set_real(o, "step_time_s", c->step_time_s);
        mw_json_set_real(o, "goodput", c->goodput);
        if (isfinite(c->wall_s)) {
            mw_json_set_real(o, "time_s", c->wall_s);
        } else {
            mw_json_set(o, "time_s", json_null());
        }
        mw_json_set_bool(o, "proved", c->is_proved);
        json_array_append_new(list, o);
    }
    mw_json_set(json, "spares", list);
    mw_json_set_int(json, "spare_nodes", s->choice[s->best].n_spares);
    mw_json_set_bool(json, "spares_proved", s->is_proved);
}

static void add_row(struct mw_table *t, const struct mw_spares *s, int i)
{
    const struct mw_spare_choice *c = &s->choice[i];
    char time[MW_FMT_MAX];
    bool has_plan = c->step_time_s > 0;

    mw_table_row(t);
    mw_table_cell(t, "%d", c->n_spares);
    mw_table_cell(t, "%d", c->n_nodes);
    mw_table_cell(
        t, "%s", has_plan ? mw_fmt_seconds(c->step_time_s, time) : "none fits");
    if (has_plan && isfinite(c->wall_s)) {
        mw_table_cell(t, "%.2f %%", 100 * c->goodput);
        mw_table_cell(t, "%.2f", c->wall_s / day_s);
    } else {
        mw_table_cell(t, "%s", "");
        mw_table_cell(t, "%s", has_plan ? "never ends" : "");
    }
    mw_table_cell(t, "%s",
                  i != s->best || !has_plan ? ""
                  : s->is_proved            ? "taken, proved best"
                                            : "taken");
}

void mw_plan_view_spares(const struct mw_spares *s, json_t *json, bool is_shown)
{
    static const char *const names[] = {"stand by", "train", "best step",
                                        "goodput",  "days",  ""};

    if (s->n > 0 && json) {
        set_json(s, json);
        return;
    }
    if (s->n == 0 || !is_shown) {
        return;
    }
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i < 5);
    }
    for (int i = 0; i < s->n; i++) {
        add_row(t, s, i);
    }
    printf("\nNodes that stand by:\n");
    mw_table_print(t, stdout);
    mw_table_free(t);
}
