/*
 * Reading and predicting published layouts: see published.h. Rates are compared
 * as times: a rate twice as high is half the time.
 */
#include "planner/published.h"

#include "base/csv.h"
#include "planner/space.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------
 */
#define TEXT(member)                                                           \
    {                                                                          \
        .name = #member, .type = MW_C_STR,                                     \
        .offset = offsetof(struct mw_published, member)                        \
    }
static const struct mw_csv_field fields[] = {
    TEXT(scenario),
    TEXT(measure),
    {.name = "value",
     .type = MW_C_NUM,
     .offset = offsetof(struct mw_published, value),
     .required = true},
    TEXT(stack),
    TEXT(features),
    TEXT(fits_with),
    TEXT(off),
    TEXT(source),
    {.name = NULL}};

enum mw_status mw_published_load(const char *dir, struct mw_published_rows *out,
                                 struct mw_err *err)
{
    struct mw_csv csv;
    void *rows = NULL;

    *out = (struct mw_published_rows){.n = 0};
    mw_arena_init(&out->arena);
    enum mw_status status =
        mw_csv_load(mw_arena_printf(&out->arena, "%s/published.csv", dir),
                    &out->arena, &csv, err);

    if (status == MW_OK) {
        status = mw_csv_bind(&csv, fields, sizeof(struct mw_published), false,
                             &out->arena, &rows, err);
    }
    if (status != MW_OK) {
        mw_arena_release(&out->arena);
        return status;
    }
    out->v = rows;
    out->n = csv.n_rows;
    return MW_OK;
}

void mw_published_release(struct mw_published_rows *rows)
{
    mw_arena_release(&rows->arena);
}

/* ---- the scenario's layout -------------------------------------------------
 */
static enum mw_status simulate(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               struct mw_candidate *c,
                               struct mw_step_result *out, struct mw_err *err)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    enum mw_status status =
        mw_plan_make(scenario, &c->layout, c->layers, &plan, err);

    if (status != MW_OK) {
        return status;
    }
    status = mw_step_simulate(scenario, &plan, ctx, &opts, out, err);
    if (status == MW_OK) {
        memcpy(c->layers, plan.layers,
               (size_t)plan.n_virtual * sizeof *c->layers);
        c->step_time_s = c->bound_s = out->step_time_s;
        c->peak_bytes = out->peak_bytes;
        c->mfu = out->mfu;
        c->is_simulated = true;
    }
    mw_plan_release(&plan);
    return status;
}

static void take_layers(const struct mw_scenario *scenario,
                        struct mw_arena *arena, struct mw_candidate *c)
{
    size_t n = (size_t)c->layout.pp * (size_t)c->layout.vpp;
    const struct mw_int_list *list = &scenario->layout_layers;

    c->layers = mw_arena_alloc(arena, n, sizeof *c->layers);
    mw_plan_even_of(&scenario->model, &c->layout, c->layers);
    for (size_t k = 0; k < list->n; k++) {
        c->layers[k] = (int)list->v[k];
    }
}

enum mw_status mw_candidate_of_layout(const struct mw_scenario *scenario,
                                      const struct mw_cost_ctx *ctx,
                                      struct mw_arena *arena,
                                      struct mw_candidate *out,
                                      struct mw_err *err)
{
    struct mw_step_result step;

    if (!scenario->has_layout) {
        return mw_fail(err, MW_EUSAGE, "%s has no layout", scenario->file);
    }
    *out = (struct mw_candidate){.layout = scenario->layout};
    take_layers(scenario, arena, out);
    enum mw_status status = simulate(scenario, ctx, out, &step, err);

    if (status == MW_OK) {
        mw_step_result_release(&step);
    }
    return status;
}

/* ---- a case ----------------------------------------------------------------
 */
/* "a=1,b=2" into the options of a search. */
static enum mw_status fix_all(struct mw_search_opts *opts, const char *text,
                              struct mw_err *err)
{
    char pair[256];
    enum mw_status status = MW_OK;

    while (*text && status == MW_OK) {
        size_t n = strcspn(text, ",");
        char *value;

        snprintf(pair, sizeof pair, "%.*s", (int)n, text);
        value = strchr(pair, '=');
        if (!value) {
            return mw_fail(err, MW_EINPUT, "'%s' is not KEY=VALUE", pair);
        }
        *value = '\0';
        status = mw_search_fix(opts, pair, value + 1, err);
        text += text[n] ? n + 1 : n;
    }
    return status;
}

/* The figure in the row's unit, and the time that it stands for. */
static void judge(const struct mw_published *row,
                  const struct mw_step_result *step,
                  struct mw_published_case *c)
{
    if (strcmp(row->measure, "step_s") == 0) {
        c->predicted = step->step_time_s;
        c->error = c->predicted / row->value - 1;
        return;
    }
    c->predicted = strcmp(row->measure, "hardware_tflops") == 0
                       ? step->hardware_tflops_per_gpu
                       : step->model_tflops_per_gpu;
    c->error = row->value / c->predicted - 1;
}

static enum mw_status check_memory(const struct mw_published *row,
                                   struct mw_published_case *c,
                                   struct mw_err *err)
{
    struct mw_search_opts keys;
    struct mw_candidate as = c->published;
    struct mw_step_result step;

    mw_search_opts_default(&keys);
    enum mw_status status = fix_all(&keys, row->fits_with, err);

    if (status != MW_OK) {
        return status;
    }
    as.layout.zero = keys.zero >= 0 ? keys.zero : as.layout.zero;
    as.layout.recompute = keys.recompute >= 0
                              ? (enum mw_recompute)keys.recompute
                              : as.layout.recompute;
    if (as.layout.recompute != MW_RECOMPUTE_SELECTIVE) {
        as.layout.recompute_modules = 0;
    }
    status = simulate(&c->scenario, &c->ctx, &as, &step, err);
    if (status == MW_OK) {
        c->needed_bytes = step.peak_bytes;
        c->fits = step.fits;
        mw_step_result_release(&step);
    }
    return status;
}

static enum mw_status predict(const struct mw_published *row,
                              struct mw_published_case *c, struct mw_err *err)
{
    struct mw_step_result step;
    struct mw_space space;
    struct mw_search_opts free_opts;

    c->published = (struct mw_candidate){.layout = c->scenario.layout};
    take_layers(&c->scenario, &c->scenario.arena, &c->published);
    enum mw_status status =
        simulate(&c->scenario, &c->ctx, &c->published, &step, err);

    if (status != MW_OK) {
        return status;
    }
    judge(row, &step, c);
    mw_step_result_release(&step);
    mw_search_opts_default(&free_opts);
    mw_space_init(&space, &c->scenario, &c->ctx, &free_opts);
    c->broken = mw_space_forbids(&space, &c->published.layout, c->broken_text);
    mw_space_release(&space);
    return check_memory(row, c, err);
}

enum mw_status mw_published_open(const struct mw_hwdb *db, const char *dir,
                                 const struct mw_published *row,
                                 struct mw_published_case *out,
                                 struct mw_err *err)
{
    char path[512];

    *out = (struct mw_published_case){.broken = NULL};
    snprintf(path, sizeof path, "%s/%s.yaml", dir, row->scenario);
    enum mw_status status = mw_scenario_load(path, &out->scenario, err);

    if (status != MW_OK) {
        return status;
    }
    struct mw_cluster *cluster = &out->scenario.cluster;

    status = mw_cost_ctx_init(&out->ctx, db, cluster->system, cluster->n_nodes,
                              cluster->gpus_per_node, err);
    if (status == MW_OK) {
        cluster->gpus_per_node = out->ctx.gpus_per_node;
        status = mw_cost_ctx_set_stack(&out->ctx, row->stack, err);
    }
    if (status == MW_OK && !out->scenario.has_layout) {
        status = mw_fail(err, MW_EINPUT, "%s has no layout", path);
    }
    mw_search_opts_default(&out->then);
    if (status == MW_OK) {
        status = fix_all(&out->then, row->features, err);
    }
    if (status == MW_OK) {
        status = predict(row, out, err);
    }
    if (status != MW_OK) {
        mw_scenario_release(&out->scenario);
    }
    return status;
}

void mw_published_close(struct mw_published_case *c)
{
    mw_scenario_release(&c->scenario);
}

enum mw_status mw_published_today(struct mw_published_case *c,
                                  struct mw_err *err)
{
    struct mw_step_result step;
    enum mw_status status = mw_cost_ctx_choose_stack(
        &c->ctx, NULL, c->scenario.limits.framework, err);

    c->scenario.workload.is_flash = true;
    c->scenario.workload.has_dropout = false;
    mw_search_opts_default(&c->then);
    if (status == MW_OK) {
        status = simulate(&c->scenario, &c->ctx, &c->published, &step, err);
    }
    if (status == MW_OK) {
        mw_step_result_release(&step);
    }
    return status;
}
