/*
 * Comparison of two plans, term by term. What would make an impossible wish
 * possible is in changes.c.
 */
#include "planner/why.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- term by term ----------------------------------------------------------
 */
static enum mw_status simulate(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_candidate *c,
                               struct mw_step_result *out, struct mw_err *err)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {0};
    enum mw_status status =
        mw_plan_make(scenario, &c->layout, c->layers, &plan, err);

    if (status == MW_OK) {
        status = mw_step_simulate(scenario, &plan, ctx, &opts, out, err);
        mw_plan_release(&plan);
    }
    return status;
}

static int compare_terms(const void *a, const void *b)
{
    const struct mw_term *x = a, *y = b;
    double dx = fabs(x->other - x->best), dy = fabs(y->other - y->best);

    if (dx != dy) {
        return dx > dy ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static const struct mw_stage_memory *fullest(const struct mw_step_result *r)
{
    const struct mw_stage_memory *most = &r->memory[0];

    for (int k = 1; k < r->n_stages; k++) {
        if (r->memory[k].total_bytes > most->total_bytes) {
            most = &r->memory[k];
        }
    }
    return most;
}

static void fill_memory(const struct mw_step_result *a,
                        const struct mw_step_result *b,
                        struct mw_comparison *out)
{
    const struct mw_stage_memory *x = fullest(a), *y = fullest(b);
    const struct mw_term terms[MW_MEMORY_TERMS] = {
        {"weights", x->weight_bytes, y->weight_bytes},
        {"gradients", x->grad_bytes, y->grad_bytes},
        {"optimizer", x->optimizer_bytes, y->optimizer_bytes},
        {"activations", x->activation_bytes, y->activation_bytes},
        {"temporary", x->temporary_bytes, y->temporary_bytes},
        {"context and buffers", x->overhead_bytes + x->buffer_bytes,
         y->overhead_bytes + y->buffer_bytes}};

    memcpy(out->memory, terms, sizeof terms);
    out->best_bytes = x->total_bytes;
    out->other_bytes = y->total_bytes;
}

static void fill_time(const struct mw_step_result *a,
                      const struct mw_step_result *b, struct mw_comparison *out)
{
    for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
        struct mw_term term = {mw_span_kind_name((enum mw_span_kind)kind),
                               a->breakdown_s[kind], b->breakdown_s[kind]};

        if (term.best > 0 || term.other > 0) {
            out->time[out->n_time++] = term;
        }
    }
    out->best_s = a->step_time_s;
    out->other_s = b->step_time_s;
    qsort(out->time, (size_t)out->n_time, sizeof *out->time, compare_terms);
}

void mw_results_compare(const struct mw_step_result *best,
                        const struct mw_step_result *other,
                        struct mw_comparison *out)
{
    *out = (struct mw_comparison){.n_time = 0};
    fill_time(best, other, out);
    fill_memory(best, other, out);
}

enum mw_status mw_sides_compare(const struct mw_side *best,
                                const struct mw_side *other,
                                struct mw_comparison *out, struct mw_err *err)
{
    struct mw_step_result a, b;
    enum mw_status status =
        simulate(best->scenario, best->ctx, best->plan, &a, err);

    if (status != MW_OK) {
        return status;
    }
    status = simulate(other->scenario, other->ctx, other->plan, &b, err);
    if (status == MW_OK) {
        mw_results_compare(&a, &b, out);
        mw_step_result_release(&b);
    }
    mw_step_result_release(&a);
    return status;
}

enum mw_status mw_plans_compare(const struct mw_scenario *scenario,
                                const struct mw_cost_ctx *ctx,
                                const struct mw_candidate *best,
                                const struct mw_candidate *other,
                                struct mw_comparison *out, struct mw_err *err)
{
    const struct mw_side a = {scenario, ctx, best}, b = {scenario, ctx, other};

    return mw_sides_compare(&a, &b, out, err);
}
