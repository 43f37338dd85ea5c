/*
 * `plan --pareto` over more than time and memory: the plans that no other beats
 * over numbers of nodes, what the whole job takes with each (--tokens), and the
 * fewest GPUs that end in time (--within).
 */
#include "cli/plan_say.h"
#include "cli/plan_view.h"

#include "base/table.h"
#include "planner/front.h"

#include <math.h>
#include <stdio.h>

static const double day_s = 86400;

struct mw_front_prices mw_plan_prices(const struct mw_plan_args *a,
                                      const struct mw_cost_ctx *ctx)
{
    double low = a->job.usd_per_gpu_hour, high = low;
    const struct mw_constant *power = NULL;
    char name[96];

    if (isnan(low) &&
        !mw_hwdb_price(ctx->db, ctx->gpu->slug, "on-demand", &low, &high)) {
        low = (double)NAN;
    }
    snprintf(name, sizeof name, "node_power_w.%s", ctx->system->slug);
    bool has_row = mw_hwdb_constant(ctx->db, name, &power, NULL) == MW_OK &&
                   ctx->gpus_per_node == ctx->system->gpus_per_node;

    return (struct mw_front_prices){
        low, has_row ? power->value : ctx->gpus_per_node * ctx->gpu->tdp_w};
}

/* The whole job of a point; false without --tokens. */
static enum mw_status job_of(const struct mw_plan_args *a,
                             const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             const struct mw_front_point *p,
                             struct mw_sim_job *out, struct mw_err *err)
{
    struct mw_scenario of = mw_sim_job_of(scenario, &p->plan.layout);
    struct mw_cost_ctx part = *ctx;

    of.cluster.n_nodes = part.n_nodes = p->n_nodes;
    of.cluster.spare_nodes = p->n_spares;
    return mw_sim_job_make(&a->job, &of, &part, p->plan.step_time_s, out, err);
}

static void add_row(struct mw_table *t, const struct mw_front_point *p,
                    const struct mw_sim_job *job)
{
    char time[MW_FMT_MAX], peak[MW_FMT_MAX], text[MW_PLAN_TEXT_MAX];

    mw_table_row(t);
    mw_table_cell(t, "%d", p->n_nodes);
    if (p->domain_nodes > 0) {
        mw_table_cell(t, "%d", p->domain_nodes);
    }
    mw_table_cell(t, "%lld", (long long)p->gpus);
    mw_table_cell(t, "%s", mw_fmt_seconds(p->plan.step_time_s, time));
    mw_table_cell(t, "%s", mw_fmt_bytes(p->plan.peak_bytes, peak));
    if (isnan(p->usd_per_token)) {
        mw_table_cell(t, "-");
    } else {
        mw_table_cell(t, "%.3f", 1e9 * p->usd_per_token);
    }
    mw_table_cell(t, "%.2f", 1e9 * p->J_per_token / 3.6e6);
    if (job) {
        mw_table_cell(t, "%.2f", job->job.wall_s / day_s);
    }
    mw_table_cell(t, "%s", mw_layout_text(&p->plan.layout, text));
}

static json_t *point_json(const struct mw_front_point *p,
                          const struct mw_sim_job *job)
{
    json_t *o = mw_plan_view_candidate(&p->plan);

    mw_json_set_int(o, "nodes", p->n_nodes);
    mw_json_set_int(o, "gpus", p->gpus);
    if (p->domain_nodes > 0) {
        mw_json_set_int(o, "domain_nodes", p->domain_nodes);
        mw_json_set_int(o, "spare_nodes", p->n_spares);
    }
    mw_json_set_real(o, "usd_per_token", p->usd_per_token);
    mw_json_set_real(o, "J_per_token", p->J_per_token);
    if (job) {
        mw_json_set(o, "job", mw_sim_job_json(job));
    }
    return o;
}

/* Rows or objects of all points; *out_fewest gets the first in time. */
static enum mw_status show_points(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_front *f, struct mw_table *t,
                                  json_t *list, int64_t *out_fewest,
                                  struct mw_err *err)
{
    enum mw_status status = MW_OK;

    *out_fewest = 0;
    for (size_t i = 0; i < f->points.n && status == MW_OK; i++) {
        const struct mw_front_point *p = &f->points.v[i];
        struct mw_sim_job job;
        bool has_job = a->job.tokens > 0;

        if (has_job) {
            status = job_of(a, scenario, ctx, p, &job, err);
        }
        if (status != MW_OK) {
            break;
        }
        if (t) {
            add_row(t, p, has_job ? &job : NULL);
        } else {
            json_array_append_new(list, point_json(p, has_job ? &job : NULL));
        }
        if (*out_fewest == 0 && a->within_s > 0 && has_job &&
            job.job.wall_s <= a->within_s) {
            *out_fewest = p->gpus;
        }
    }
    return status;
}

static void print_foot(const struct mw_plan_args *a, const struct mw_front *f,
                       bool is_cut, int64_t fewest)
{
    printf("\n%d numbers of nodes%s searched, %d without a plan; %s.\n",
           f->n_searches, is_cut ? " and ways to cut the racks" : "",
           f->n_infeasible,
           f->is_proved ? "each proved best" : "not all proved");
    if (a->within_s > 0 && fewest > 0) {
        printf("The fewest GPUs that end within %.1f days: %lld.\n",
               a->within_s / day_s, (long long)fewest);
    } else if (a->within_s > 0) {
        printf("None of these ends within %.1f days.\n", a->within_s / day_s);
    }
}

static enum mw_status print_front(const struct mw_plan_args *a,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_front *f, struct mw_err *err)
{
    static const char *const names[] = {"nodes",           "GPUs",
                                        "step time",       "peak memory",
                                        "USD/10^9 tokens", "kWh/10^9 tokens"};
    struct mw_table *t = mw_table_new();
    int64_t fewest;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], true);
        if (i == 0 && scenario->cluster.domains.n > 0) {
            mw_table_col(t, "in a domain", true);
        }
    }
    if (a->job.tokens > 0) {
        mw_table_col(t, "days", true);
    }
    mw_table_col(t, "layout", false);
    enum mw_status status =
        show_points(a, scenario, ctx, f, t, NULL, &fewest, err);

    if (status == MW_OK) {
        printf("%s, batch %lld, priced as %s: plans that no other beats\n\n",
               scenario->name, (long long)scenario->workload.global_batch,
               ctx->stack.name);
        mw_table_print(t, stdout);
        print_foot(a, f, scenario->cluster.domains.n > 1, fewest);
    }
    mw_table_free(t);
    return status;
}

static enum mw_status print_json(const struct mw_plan_args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 const struct mw_front *f, struct mw_err *err)
{
    json_t *o = json_object(), *list = json_array();
    int64_t fewest;
    enum mw_status status =
        show_points(a, scenario, ctx, f, NULL, list, &fewest, err);

    mw_json_set_str(o, "stack", ctx->stack.name);
    mw_json_set_bool(o, "proved_optimal", f->is_proved);
    mw_json_set_int(o, "searches", f->n_searches);
    mw_json_set(o, "front", list);
    if (a->within_s > 0) {
        mw_json_set(o, "fewest_gpus_in_time",
                    fewest > 0 ? json_integer(fewest) : json_null());
    }
    if (status == MW_OK) {
        mw_cli_print_json(o);
    } else {
        json_decref(o);
    }
    return status;
}

int mw_plan_run_front(const struct mw_plan_args *a,
                      const struct mw_scenario *scenario,
                      const struct mw_cost_ctx *ctx)
{
    struct mw_err err = {0};
    struct mw_front f;
    struct mw_front_prices prices = mw_plan_prices(a, ctx);
    enum mw_status status =
        mw_front_find(scenario, ctx, &a->search, a->front, &prices, &f, &err);

    bool is_answer = status == MW_OK || status == MW_ENO || status == MW_EINTR;

    if (is_answer && (a->cli.json || f.points.n > 0)) {
        struct mw_err wrong = {0};
        enum mw_status shown = a->cli.json
                                   ? print_json(a, scenario, ctx, &f, &wrong)
                                   : print_front(a, scenario, ctx, &f, &wrong);

        if (shown != MW_OK) {
            status = shown;
            err = wrong;
        }
    }
    mw_front_release(&f);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
