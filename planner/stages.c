/*
 * The partition problem of one candidate: layer and end-stage costs from the
 * simulator's prices, memory per stage from its memory model.
 *
 * Memory of a stage is linear in its layers (weights, states and the
 * activations of the micro-batches in flight), so two evaluations, with n_k
 * and with n_k - 1 layers on every stage, give slope and intercept.
 */
#include "planner/search_int.h"

#include <string.h>

int *mw_search_even_layers(struct search *s, const struct mw_layout *layout)
{
    int n = layout->pp * layout->vpp;
    int *layers = mw_arena_alloc(&s->result->arena, (size_t)n, sizeof *layers);
    for (int k = 0; k < n; k++) {
        layers[k] = s->scenario->model.n_layers / n +
                    (k < s->scenario->model.n_layers % n);
    }
    return layers;
}

/* Total bytes per stage for given layers; false when there is no plan. */
static bool stage_bytes(const struct search *s, const struct mw_candidate *c,
                        const int *layers, double *out)
{
    struct mw_plan plan;
    if (mw_plan_make(s->scenario, &c->layout, c->layers, &plan, NULL) !=
        MW_OK) {
        return false;
    }
    memcpy(plan.layers, layers, (size_t)plan.n_virtual * sizeof *layers);
    struct mw_step_opts opts = {.memory_only = true};
    struct mw_step_result step;
    bool is_done = mw_step_simulate(s->scenario, &plan, s->ctx, &opts, &step,
                                    NULL) == MW_OK;
    if (is_done) {
        for (int k = 0; k < c->layout.pp; k++) {
            out[k] = step.memory[k].total_bytes;
        }
        mw_step_result_release(&step);
    }
    mw_plan_release(&plan);
    return is_done;
}

/* Slope and intercept of memory in layers, per stage. */
static bool memory_rows(const struct search *s, const struct mw_candidate *c,
                        double *slope, double *fixed)
{
    int n = c->layout.pp;
    double *less_bytes = mw_calloc((size_t)n, sizeof *less_bytes);
    int *less = mw_calloc((size_t)n, sizeof *less);
    for (int k = 0; k < n; k++) {
        less[k] = c->layers[k] - 1;
    }
    bool is_done = stage_bytes(s, c, c->layers, fixed) &&
                   stage_bytes(s, c, less, less_bytes);
    for (int k = 0; k < n && is_done; k++) {
        slope[k] = fixed[k] - less_bytes[k];
        fixed[k] -= slope[k] * c->layers[k];
    }
    mw_free(less);
    mw_free(less_bytes);
    return is_done;
}

static double total(const struct mw_layer_cost *cost)
{
    return cost->f_s + cost->b_s + cost->w_s;
}

/* Is moving one layer able to help: by time, or to make it fit? */
static bool is_worth_it(const struct mw_partition_problem *p, const int *layers,
                        bool is_too_large)
{
    double slowest = 0, average = 0;
    for (int k = 0; k < p->n_stages; k++) {
        double t = layers[k] * p->layer_s + p->extra_s[k];
        slowest = t > slowest ? t : slowest;
        average += t / p->n_stages;
    }
    return is_too_large || slowest - average > 0.5 * p->layer_s;
}

bool mw_search_partition(struct search *s, struct mw_candidate *c)
{
    int n = c->layout.pp;
    if (n < 2 || c->layout.vpp > 1 || s->is_mixed ||
        s->scenario->model.n_layers <= n) {
        return false;
    }
    struct mw_layer_cost layer, embedding, head;
    mw_step_layer_cost(s->scenario, &c->layout, s->ctx, 0, &layer);
    mw_step_embedding_cost(s->scenario, &c->layout, s->ctx, &embedding);
    mw_step_head_cost(s->scenario, &c->layout, s->ctx, &head);
    double *extra = mw_calloc((size_t)n * 3, sizeof *extra);
    double *slope = extra + n, *fixed = slope + n;
    extra[0] = total(&embedding);
    extra[n - 1] = total(&head);
    struct mw_partition_problem problem = {.n_stages = n,
                                           .n_layers =
                                               s->scenario->model.n_layers,
                                           .layer_s = total(&layer),
                                           .extra_s = extra,
                                           .layer_bytes = slope,
                                           .fixed_bytes = fixed,
                                           .limit_bytes = s->usable_bytes};
    int *layers = mw_arena_alloc(&s->result->arena, (size_t)n, sizeof *layers);
    bool is_changed =
        is_worth_it(&problem, c->layers, c->peak_bytes > s->usable_bytes) &&
        memory_rows(s, c, slope, fixed) &&
        mw_partition_solve(&problem, layers, NULL) == MW_OK &&
        memcmp(layers, c->layers, (size_t)n * sizeof *layers) != 0;
    if (is_changed) {
        c->layers = layers;
    }
    mw_free(extra);
    return is_changed;
}
