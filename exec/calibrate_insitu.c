/*
 * The in-situ factors: what the operators of a real step take over what they
 * take in loops. One plan is run (GPipe over two stages, the rest replicas) and
 * simulated with all factors 1; each part of the step then has its own,
 *
 *   factor = measured compute of the part / simulated compute of the part
 *
 * parts being F, B, W and the update, mean over ranks. Compute is never hidden,
 * so its exposed time is all of it, and the simulated one is linear in its
 * factor: no fit is needed. The factor of all together stands beside them.
 */
#include "exec/calibrate_int.h"

#include "base/file.h"
#include "exec/launch.h"
#include "sim/step/step.h"

#include <math.h>
#include <stdio.h>

enum { INSITU_STEPS = 6, INSITU_WARMUP = 2 };

static const enum mw_span_kind kinds[MW_INSITU_COUNT] = {
    [MW_INSITU_F] = MW_SPAN_F,
    [MW_INSITU_B] = MW_SPAN_B,
    [MW_INSITU_W] = MW_SPAN_W,
    [MW_INSITU_UPDATE] = MW_SPAN_OPTIMIZER};

/* Two stages if the ranks allow it, the rest replicas, GPipe: an order that
 * the planner takes only when told to. */
static enum mw_status make_plan(struct mw_calibration *c)
{
    struct mw_layout layout;
    int ranks = c->out->n_ranks;
    mw_layout_default(&layout);
    layout.schedule = "gpipe";
    layout.pp = ranks % 2 == 0 && c->scenario.model.n_layers >= 2 ? 2 : 1;
    layout.dp = ranks / layout.pp;
    while (layout.dp > 1 &&
           c->scenario.workload.global_batch % layout.dp != 0) {
        layout.dp--;
    }
    TRY(mw_plan_make(&c->scenario, &layout, NULL, &c->plan, c->err));
    c->has_plan = true;
    snprintf(c->out->insitu_layout, sizeof c->out->insitu_layout,
             "tp 1 pp %d dp %d gpipe", layout.pp, layout.dp);
    return mw_plan_save(&c->plan, mw_calibrate_path(c, "insitu-plan.yaml"),
                        false, c->err);
}

static enum mw_status save_result(struct mw_calibration *c,
                                  const json_t *result)
{
    struct mw_outfile o = {0};
    TRY(mw_outfile_open(&o, mw_calibrate_path(c, "insitu-run.json"), c->err));
    enum mw_status st = mw_json_write(result, o.f, c->err);
    if (st == MW_OK) {
        st = mw_outfile_commit(&o, c->err);
    }
    mw_outfile_abort(&o);
    return st;
}

static enum mw_status run_plan(struct mw_calibration *c, const char *trace)
{
    struct mw_launch launch = {.n_ranks = mw_layout_ranks(&c->plan.layout)};
    json_t *result = NULL;
    const char *args[] = {
        "run",      mw_calibrate_path(c, "insitu-plan.yaml"),
        "--steps",  mw_arena_printf(&c->arena, "%d", INSITU_STEPS),
        "--warmup", mw_arena_printf(&c->arena, "%d", INSITU_WARMUP),
        "--hwdb",   c->opts->dir,
        "--trace",  trace};
    for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
        mw_launch_arg(&launch, args[i]);
    }
    TRY(mw_launch_run(&launch, &result, c->err));
    c->out->insitu_measured_s =
        json_real_value(json_object_get(result, "virtual_step_time_s"));
    enum mw_status st = save_result(c, result);
    json_decref(result);
    return st;
}

static enum mw_status simulate(struct mw_calibration *c,
                               const struct mw_cost_ctx *ctx, double *out_s,
                               double breakdown_s[MW_SPAN_KIND_COUNT])
{
    const struct mw_step_opts opts = {0};
    struct mw_step_result r;
    TRY(mw_step_simulate(&c->scenario, &c->plan, ctx, &opts, &r, c->err));
    *out_s = r.step_time_s;
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        breakdown_s[k] = r.breakdown_s[k];
    }
    mw_step_result_release(&r);
    return MW_OK;
}

static bool is_sane(double factor)
{
    return factor > 0.2 && factor < 20.0;
}

/* Sets the factors from what was measured and what loops say. */
static enum mw_status divide(struct mw_calibration *c, const double *measured_s,
                             const double *loops_s)
{
    struct mw_calibrate_result *r = c->out;
    double sum_measured = 0.0, sum_loops = 0.0;
    for (int i = 0; i < MW_INSITU_COUNT; i++) {
        double loops = loops_s[kinds[i]], measured = measured_s[kinds[i]];
        sum_measured += measured;
        sum_loops += loops;
        r->insitu_of[i] = loops > 0.0 ? measured / loops : 0.0;
        if (loops > 0.0 && !is_sane(r->insitu_of[i])) {
            return mw_fail(c->err, MW_EFAILED,
                           "part %s of a real step takes %.3g times its "
                           "kernels; that is no in-situ factor: the machine "
                           "was too busy, try again",
                           mw_insitu_name((enum mw_insitu)i), r->insitu_of[i]);
        }
    }
    r->insitu_factor = sum_measured / sum_loops;
    return MW_OK;
}

static enum mw_status fit(struct mw_calibration *c, struct mw_cost_ctx *ctx,
                          const double *measured_s)
{
    struct mw_calibrate_result *r = c->out;
    double loops_s[MW_SPAN_KIND_COUNT], again_s;
    TRY(simulate(c, ctx, &r->insitu_hot_s, loops_s));
    TRY(divide(c, measured_s, loops_s));
    for (int i = 0; i < MW_INSITU_COUNT; i++) {
        ctx->insitu_of[i] = r->insitu_of[i];
    }
    TRY(simulate(c, ctx, &again_s, loops_s));
    r->insitu_error = again_s / r->insitu_measured_s - 1.0;
    return MW_OK;
}

/* Prices of the overlay as it is now, all factors 1. */
static enum mw_status fit_with(struct mw_calibration *c, const char *trace)
{
    const struct mw_cluster *k = &c->scenario.cluster;
    double measured_s[MW_SPAN_KIND_COUNT];
    struct mw_timeline timeline;
    struct mw_cost_ctx ctx;
    struct mw_hwdb *db = NULL;
    TRY(mw_timeline_load(trace, &timeline, c->err));
    mw_timeline_breakdown(&timeline, measured_s);
    mw_timeline_release(&timeline);
    TRY(mw_hwdb_load(c->opts->dir, &db, c->err));
    enum mw_status st = mw_cost_ctx_init(&ctx, db, k->system, k->n_nodes,
                                         k->gpus_per_node, c->err);
    if (st == MW_OK) {
        st = fit(c, &ctx, measured_s);
    }
    mw_hwdb_free(db);
    return st;
}

enum mw_status mw_calibrate_factors(struct mw_calibration *c)
{
    const char *trace = mw_calibrate_path(c, "insitu-measured.json");
    TRY(make_plan(c));
    c->out->insitu_factor = 1.0;
    TRY(mw_calibrate_record(c));
    TRY(run_plan(c, trace));
    return fit_with(c, trace);
}
