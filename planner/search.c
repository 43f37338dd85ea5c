/*
 * Filter, bound, simulate, rank.
 *
 * The bound: on any schedule stage k cannot begin before the first micro-batch
 * has gone forward through the stages before it, and then has m micro-batches
 * of F, B and W to do (compute and blocking TP collectives, the prices that
 * the simulation uses):
 *     t >= max_k ( sum_{j<k} f_j + m (f_k + b_k + w_k) )
 * Candidates are simulated best estimate first, in rounds of ROUND, until the
 * bounds of all the others exceed the best time found.
 */
#include "planner/search_int.h"

#include "base/log.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUND = 16, SIMULATED_MAX = 512 };

/* ---- filter and bound ------------------------------------------------------
 */

static double usable_bytes(const struct search *s)
{
    const struct mw_limits *limits = &s->scenario->limits;
    double capacity = limits->memory_bytes > 0 ? limits->memory_bytes
                                               : s->ctx->gpu->mem_bytes;
    return capacity * limits->memory_fraction;
}

static void reject_memory(struct search *s, const struct mw_candidate *c)
{
    char layout[MW_PLAN_TEXT_MAX], text[2 * MW_PLAN_TEXT_MAX];
    char needs[MW_FMT_MAX], may[MW_FMT_MAX];
    snprintf(text, sizeof text, "%s needs %s of %s usable",
             mw_layout_text(&c->layout, layout),
             mw_fmt_bytes(c->peak_bytes, needs),
             mw_fmt_bytes(s->usable_bytes, may));
    text[MW_PLAN_TEXT_MAX - 1] = '\0';
    mw_reason_add(s->result, "memory", c->peak_bytes / s->usable_bytes, text);
}

/* Sum of the layer costs of stage k, embedding and head on the ends. */
static struct mw_layer_cost stage_cost(const struct search *s,
                                       const struct mw_candidate *c, int k,
                                       int first_layer)
{
    struct mw_layer_cost sum = {0, 0, 0}, one;
    for (int l = first_layer; l < first_layer + c->layers[k]; l++) {
        if (l == first_layer || s->is_mixed) {
            mw_step_layer_cost(s->scenario, &c->layout, s->ctx, l, &one);
        }
        sum.f_s += one.f_s;
        sum.b_s += one.b_s;
        sum.w_s += one.w_s;
    }
    if (k == 0) {
        mw_step_embedding_cost(s->scenario, &c->layout, s->ctx, &one);
        sum.f_s += one.f_s;
        sum.b_s += one.b_s;
        sum.w_s += one.w_s;
    }
    if (k == c->layout.pp * c->layout.vpp - 1) {
        mw_step_head_cost(s->scenario, &c->layout, s->ctx, &one);
        sum.f_s += one.f_s;
        sum.b_s += one.b_s;
        sum.w_s += one.w_s;
    }
    return sum;
}

/* With chunks (vpp > 1) only the sum over all stages is used: placement is
 * the schedule's. */
static double time_bound(const struct search *s, const struct mw_candidate *c)
{
    int m = mw_microbatches(&c->layout, &s->scenario->workload);
    int n = c->layout.pp * c->layout.vpp;
    double bound = 0, before = 0, total = 0;
    for (int k = 0, layer = 0; k < n; layer += c->layers[k], k++) {
        struct mw_layer_cost cost = stage_cost(s, c, k, layer);
        double work = cost.f_s + cost.b_s + cost.w_s;
        bound = fmax(bound, before + m * work);
        before += cost.f_s;
        total += m * work;
    }
    return c->layout.vpp > 1 ? total / c->layout.pp : bound;
}

static int compare_estimate(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;
    if (x->estimate_s != y->estimate_s) {
        return x->estimate_s < y->estimate_s ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_time(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;
    if (x->step_time_s != y->step_time_s) {
        return x->step_time_s < y->step_time_s ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Even split, or the integer program's when stages are uneven; memory from
 * the fast form. False when the candidate does not fit. */
static bool admit(struct search *s, struct mw_candidate *c)
{
    c->layers = mw_search_even_layers(s, &c->layout);
    double peak = 0, time = 0;
    struct mw_err err = {0};
    enum mw_status status = mw_step_estimate(s->scenario, &c->layout, c->layers,
                                             s->ctx, &time, &peak, &err);
    if (status != MW_OK) {
        mw_reason_add(s->result, "schedule", 0, err.text);
        return false;
    }
    c->estimate_s = time;
    c->peak_bytes = peak;
    if (mw_search_partition(s, c)) {
        status = mw_step_estimate(s->scenario, &c->layout, c->layers, s->ctx,
                                  &c->estimate_s, &c->peak_bytes, &err);
    }
    if (status != MW_OK || c->peak_bytes > s->usable_bytes) {
        reject_memory(s, c);
        return false;
    }
    c->bound_s = time_bound(s, c);
    return true;
}

static void filter(struct search *s)
{
    struct mw_progress progress;
    mw_progress_begin(&progress, "evaluated");
    size_t kept = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        struct mw_candidate *c = &s->all.v[i];
        c->id = i;
        if (admit(s, c)) {
            s->all.v[kept++] = *c;
        }
        if (!s->opts->is_quiet) {
            mw_progress_update(&progress, i + 1, s->all.n);
        }
    }
    mw_progress_end(&progress);
    s->result->evaluated = s->all.n;
    s->all.n = kept;
    if (kept > 0) {
        qsort(s->all.v, kept, sizeof *s->all.v, compare_estimate);
    }
}

/* ---- simulation
 * -------------------------------------------------------------- */

struct pool {
    struct search *s;
    struct mw_candidate *v;
    struct mw_err *errs;
    size_t n;
    atomic_size_t next;
};

static void simulate_one(struct search *s, struct mw_candidate *c,
                         struct mw_err *err)
{
    struct mw_plan plan;
    if (mw_plan_make(s->scenario, &c->layout, c->layers, &plan, err) != MW_OK) {
        return;
    }
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    if (mw_step_simulate(s->scenario, &plan, s->ctx, &opts, &step, err) ==
        MW_OK) {
        c->step_time_s = step.step_time_s;
        c->peak_bytes = step.peak_bytes;
        c->mfu = step.mfu;
        c->is_simulated = true;
        mw_step_result_release(&step);
    }
    mw_plan_release(&plan);
}

static void *worker(void *arg)
{
    struct pool *pool = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->n) {
            return NULL;
        }
        simulate_one(pool->s, &pool->v[i], &pool->errs[i]);
    }
}

/* Simulates a round on s->jobs threads; results do not depend on them. */
static enum mw_status simulate_round(struct search *s, struct mw_candidate *v,
                                     size_t n, struct mw_err *err)
{
    struct pool pool = {.s = s, .v = v, .n = n};
    pool.errs = mw_calloc(n, sizeof *pool.errs);
    atomic_init(&pool.next, 0);
    pthread_t threads[ROUND];
    int n_threads = 0;
    for (int t = 1; t < s->jobs && t < (int)n; t++) {
        if (pthread_create(&threads[n_threads], NULL, worker, &pool) == 0) {
            n_threads++;
        }
    }
    worker(&pool);
    for (int t = 0; t < n_threads; t++) {
        pthread_join(threads[t], NULL);
    }
    enum mw_status status = MW_OK;
    for (size_t i = 0; i < n && status == MW_OK; i++) {
        if (pool.errs[i].status != MW_OK) {
            *err = pool.errs[i];
            status = err->status;
        }
    }
    mw_free(pool.errs);
    return status;
}

/* Moves up to ROUND candidates that are not bounded away to the front part
 * [done, done + n); counts the others. Returns n. */
static size_t next_round(struct search *s, size_t *at, struct mw_candidate *out)
{
    size_t n = 0;
    while (*at < s->all.n && n < ROUND) {
        struct mw_candidate *c = &s->all.v[(*at)++];
        if (c->bound_s >= s->best_s) {
            char layout[MW_PLAN_TEXT_MAX], text[2 * MW_PLAN_TEXT_MAX];
            char bound[MW_FMT_MAX], best[MW_FMT_MAX];
            snprintf(text, sizeof text,
                     "%s takes at least %s, the best takes %s",
                     mw_layout_text(&c->layout, layout),
                     mw_fmt_seconds(c->bound_s, bound),
                     mw_fmt_seconds(s->best_s, best));
            text[MW_PLAN_TEXT_MAX - 1] = '\0';
            mw_reason_add(s->result, "bound", c->bound_s / s->best_s, text);
        } else {
            out[n++] = *c;
        }
    }
    return n;
}

static bool is_out_of_time(const struct search *s)
{
    double spent_s = 1e-9 * (double)(mw_clock_wall_ns() - s->start_ns);
    return s->opts->time_limit_s > 0 && spent_s > s->opts->time_limit_s;
}

static enum mw_status simulate(struct search *s, struct mw_err *err)
{
    struct mw_progress progress;
    mw_progress_begin(&progress, "simulated");
    struct mw_candidates done = {0};
    struct mw_candidate round[ROUND];
    size_t at = 0;
    enum mw_status status = MW_OK;
    while (status == MW_OK && done.n < SIMULATED_MAX && !is_out_of_time(s)) {
        size_t n = next_round(s, &at, round);
        if (n == 0) {
            break;
        }
        status = simulate_round(s, round, n, err);
        for (size_t i = 0; i < n && status == MW_OK; i++) {
            s->best_s = fmin(s->best_s, round[i].step_time_s);
            mw_array_push(&done, round[i]);
        }
        if (!s->opts->is_quiet) {
            mw_progress_update(&progress, done.n, s->all.n);
        }
    }
    mw_progress_end(&progress);
    s->result->simulated = done.n;
    s->result->proved_optimal = status == MW_OK && at >= s->all.n;
    for (; at < s->all.n; at++) {
        mw_reason_add(s->result, "not_simulated", 0,
                      "left out by the time limit or the cap on simulations");
    }
    if (done.n > 0) {
        qsort(done.v, done.n, sizeof *done.v, compare_time);
        s->result->plans =
            mw_arena_alloc(&s->result->arena, done.n, sizeof *done.v);
        memcpy(s->result->plans, done.v, done.n * sizeof *done.v);
        s->result->n_plans = done.n;
    }
    mw_array_release(&done);
    return status;
}

/* ---- the whole
 * ------------------------------------------------------------------- */

static int compare_reason(const void *a, const void *b)
{
    const struct mw_reason *x = a, *y = b;
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return strcmp(x->rule, y->rule);
}

static enum mw_status say_no(const struct mw_search_result *r,
                             struct mw_err *err)
{
    if (r->n_reasons == 0) {
        return mw_fail(err, MW_ENO,
                       "no feasible plan: no layout divides the ranks");
    }
    mw_fail(err, MW_ENO, "no feasible plan among %llu layouts:",
            (unsigned long long)r->enumerated);
    for (int i = 0; i < r->n_reasons && i < MW_ERR_LINES_MAX - 1; i++) {
        mw_fail(err, MW_ENO, "  %llu fell to %s; nearest: %s",
                (unsigned long long)r->reasons[i].count, r->reasons[i].rule,
                r->reasons[i].nearest);
    }
    return MW_ENO;
}

static int default_jobs(int jobs)
{
    long cores = jobs > 0 ? jobs : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > ROUND ? ROUND : (int)cores;
}

enum mw_status mw_search(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_search_opts *opts,
                         struct mw_search_result *out, struct mw_err *err)
{
    memset(out, 0, sizeof *out);
    mw_arena_init(&out->arena);
    struct search s = {.scenario = scenario,
                       .ctx = ctx,
                       .opts = opts,
                       .result = out,
                       .best_s = HUGE_VAL,
                       .jobs = default_jobs(opts->jobs),
                       .start_ns = mw_clock_wall_ns()};
    for (int l = 1; l < scenario->model.n_layers; l++) {
        s.is_mixed |= mw_model_layer_is_moe(&scenario->model, l) !=
                      mw_model_layer_is_moe(&scenario->model, 0);
    }
    s.usable_bytes = usable_bytes(&s);
    mw_space_enumerate(scenario, ctx, opts, out, &s.all);
    filter(&s);
    enum mw_status status = simulate(&s, err);
    mw_array_release(&s.all);
    qsort(out->reasons, (size_t)out->n_reasons, sizeof *out->reasons,
          compare_reason);
    out->wall_time_s = 1e-9 * (double)(mw_clock_wall_ns() - s.start_ns);
    return status == MW_OK && out->n_plans == 0 ? say_no(out, err) : status;
}

void mw_search_result_release(struct mw_search_result *r)
{
    mw_arena_release(&r->arena);
}

enum mw_status mw_candidate_plan(const struct mw_scenario *scenario,
                                 const struct mw_candidate *candidate,
                                 struct mw_plan *out, struct mw_err *err)
{
    enum mw_status status =
        mw_plan_make(scenario, &candidate->layout, candidate->layers, out, err);
    if (status == MW_OK) {
        out->has_predicted = true;
        out->predicted = (struct mw_predicted){
            candidate->step_time_s, candidate->peak_bytes, candidate->mfu};
    }
    return status;
}
