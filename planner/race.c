/*
 * Simulates candidates, least bound first, in rounds of MW_ROUND on several
 * threads, until the bounds of all the others exceed the time of the last of
 * the best that are asked for (Pareto: until each is dominated). The best are
 * then proved so: every other was simulated or cannot be better.
 */
#include "planner/search_int.h"

#include "base/log.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

double mw_race_score(const struct search *s, double time_s, double peak_bytes)
{
    return s->opts->rank_by == MW_RANK_MEMORY ? peak_bytes : time_s;
}

static double score_of(const struct search *s, const struct mw_candidate *c)
{
    return mw_race_score(s, c->step_time_s, c->peak_bytes);
}

bool mw_race_is_beyond(const struct search *s, double time_s, double peak_bytes)
{
    return (s->opts->max_step_s > 0 && time_s > s->opts->max_step_s) ||
           (s->opts->max_peak_bytes > 0 &&
            peak_bytes > s->opts->max_peak_bytes);
}

bool mw_race_is_beaten(const struct search *s, double bound_s,
                       double peak_bytes)
{
    double least_s = bound_s * (1 - 1e-9);

    if (s->opts->rank_by == MW_RANK_PARETO) {
        for (size_t i = 0; i < s->done.n; i++) {
            const struct mw_candidate *c = &s->done.v[i];

            if (c->step_time_s <= least_s &&
                c->peak_bytes <= peak_bytes * (1 - 1e-9)) {
                return true;
            }
        }
        return false;
    }
    return s->done.n >= (size_t)s->top &&
           mw_race_score(s, least_s, peak_bytes * (1 - 1e-9)) >=
               score_of(s, &s->done.v[s->top - 1]);
}

bool mw_race_is_over_host(const struct search *s, double node_bytes)
{
    return node_bytes > s->ctx->system->host_mem_bytes; /* NaN: not known */
}

bool mw_search_is_asked_to_stop(const struct search *s)
{
    return s->opts->stop && *s->opts->stop;
}

bool mw_search_is_late(const struct search *s, double grace_s)
{
    return s->opts->time_limit_s > 0 &&
           1e-9 * (double)(mw_clock_wall_ns() - s->start_ns) >
               s->opts->time_limit_s + grace_s;
}

bool mw_search_is_over(struct search *s)
{
    if (mw_search_is_asked_to_stop(s) || mw_search_is_late(s, 0)) {
        s->is_cut_short = true;
    }
    return s->is_cut_short;
}

/* ---- one round -------------------------------------------------------------
 */
struct pool {
    struct search *s;
    struct mw_candidate *v;
    struct mw_err *errs;
    bool *is_left; /* the round ended before it */
    size_t n;
    atomic_size_t next;
    atomic_bool has_plan;
};

/* A round is ended by an interrupt, and where it takes long by a time limit. */
static bool is_pressed(const struct search *s)
{
    static const double grace_s = 0.5;

    return mw_search_is_asked_to_stop(s) || mw_search_is_late(s, grace_s);
}

/* What the ranks of a node offload, all as much as the fullest. */
static double host_bytes_of(const struct mw_cost_ctx *ctx,
                            const struct mw_step_result *step)
{
    double most = 0;

    for (int d = 0; d < step->n_stages; d++) {
        most = fmax(most, step->memory[d].host_bytes);
    }
    return most * ctx->gpus_per_node;
}

enum mw_status mw_candidate_simulate(const struct mw_scenario *scenario,
                                     const struct mw_plan *plan,
                                     const struct mw_cost_ctx *ctx,
                                     struct mw_candidate *c, struct mw_err *err)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    enum mw_status status =
        mw_step_simulate(scenario, plan, ctx, &opts, &step, err);

    if (status == MW_OK) {
        c->step_time_s = step.step_time_s;
        c->peak_bytes = step.peak_bytes;
        c->mfu = step.mfu;
        c->host_bytes = host_bytes_of(ctx, &step);
        c->is_simulated = true;
        mw_step_result_release(&step);
    }
    return status;
}

/* Chooses the order of nodes, unless the plan is beaten under any. */
static enum mw_status place(const struct search *s, struct mw_plan *plan,
                            struct mw_candidate *c, struct mw_err *err)
{
    struct mw_node_order order = {.nodes = c->nodes};
    enum mw_status status =
        mw_candidate_simulate(&s->bare, plan, s->ctx, c, err);

    c->bare_s = c->step_time_s;
    if (status != MW_OK || mw_race_is_beaten(s, c->bare_s, c->peak_bytes)) {
        c->is_simulated = false;
        return status;
    }
    status = mw_node_order_choose(s->scenario, s->ctx, plan, &order, err);
    c->layout.nodes = plan->layout.nodes;
    c->allocated_s = order.allocated_s;
    c->is_order_proved = order.is_proved;
    return status;
}

static void simulate_one(const struct search *s, struct mw_candidate *c,
                         struct mw_err *err)
{
    struct mw_plan plan;
    enum mw_status status =
        mw_plan_make(s->scenario, &c->layout, c->layers, &plan, err);

    if (status != MW_OK) {
        return;
    }
    if (s->is_placed) {
        status = place(s, &plan, c, err);
    }
    if (status == MW_OK && (!s->is_placed || c->is_simulated)) {
        mw_candidate_simulate(s->scenario, &plan, s->ctx, c, err);
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
        if (atomic_load(&pool->has_plan) && is_pressed(pool->s)) {
            pool->is_left[i] = true;
            continue;
        }
        simulate_one(pool->s, &pool->v[i], &pool->errs[i]);
        if (pool->v[i].is_simulated &&
            pool->v[i].peak_bytes <= pool->s->usable_bytes &&
            !mw_race_is_over_host(pool->s, pool->v[i].host_bytes)) {
            atomic_store(&pool->has_plan, true);
        }
    }
}

/* Results do not depend on the number of threads. */
static enum mw_status simulate_round(struct search *s, struct mw_candidate *v,
                                     size_t n, bool *is_left,
                                     struct mw_err *err)
{
    struct pool pool = {.s = s, .v = v, .is_left = is_left, .n = n};
    pthread_t threads[MW_ROUND];
    int n_threads = 0;
    enum mw_status status = MW_OK;

    pool.errs = mw_calloc(n, sizeof *pool.errs);
    atomic_init(&pool.next, 0);
    atomic_init(&pool.has_plan, s->done.n > 0);
    for (int t = 1; t < s->jobs && t < (int)n; t++) {
        if (pthread_create(&threads[n_threads], NULL, worker, &pool) == 0) {
            n_threads++;
        }
    }
    worker(&pool);
    for (int t = 0; t < n_threads; t++) {
        pthread_join(threads[t], NULL);
    }
    for (size_t i = 0; i < n && status == MW_OK; i++) {
        status = pool.errs[i].status;
        if (status != MW_OK && err) {
            *err = pool.errs[i];
        }
    }
    mw_free(pool.errs);
    return status;
}

/* ---- the race --------------------------------------------------------------
 */
static int compare_bound(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;

    if (x->bound_s != y->bound_s) {
        return x->bound_s < y->bound_s ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int compare_peak(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;

    if (x->peak_bytes != y->peak_bytes) {
        return x->peak_bytes < y->peak_bytes ? -1 : 1;
    }
    return compare_bound(a, b);
}

static bool same_part(double a, double b)
{
    return !(a < b) && !(a > b);
}

static bool same_list(const struct mw_int_list *a, const struct mw_int_list *b)
{
    return a->n == b->n &&
           (a->n == 0 || memcmp(a->v, b->v, a->n * sizeof *a->v) == 0);
}

static bool same_layout(const struct mw_layout *a, const struct mw_layout *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp &&
           a->vpp == b->vpp && a->dp == b->dp && a->ep == b->ep &&
           a->etp == b->etp && a->sp == b->sp && a->zero == b->zero &&
           a->micro_batch == b->micro_batch && a->recompute == b->recompute &&
           a->recompute_layers == b->recompute_layers &&
           same_list(&a->stage_recompute_layers, &b->stage_recompute_layers) &&
           a->recompute_modules == b->recompute_modules &&
           a->overlap_off == b->overlap_off && a->fsdp_unit == b->fsdp_unit &&
           a->fsdp_prefetch == b->fsdp_prefetch &&
           a->bucket_size == b->bucket_size && a->cuda_graph == b->cuda_graph &&
           a->dispatcher == b->dispatcher &&
           a->overlap_shared_experts == b->overlap_shared_experts &&
           a->mtp_ahead == b->mtp_ahead && a->vpp_group == b->vpp_group &&
           a->main_params == b->main_params && a->exp_avg == b->exp_avg &&
           a->exp_avg_sq == b->exp_avg_sq &&
           strcmp(a->schedule, b->schedule) == 0 &&
           strcmp(a->order, b->order) == 0 && a->cp_form == b->cp_form &&
           a->dp_shard == b->dp_shard && a->reshard == b->reshard &&
           a->grad_compression == b->grad_compression && a->dtype == b->dtype &&
           a->grad_dtype == b->grad_dtype && a->cp_inner == b->cp_inner &&
           a->offload_nvme == b->offload_nvme &&
           same_part(a->offload_optimizer, b->offload_optimizer) &&
           same_part(a->offload_weights, b->offload_weights) &&
           same_part(a->offload_activations, b->offload_activations);
}

/* Was it simulated as a seed? Then it takes its place in the enumeration. */
static bool is_done(struct search *s, const struct mw_candidate *c)
{
    for (size_t i = 0; i < s->done.n; i++) {
        if (s->done.v[i].is_seed &&
            same_layout(&s->done.v[i].layout, &c->layout)) {
            s->done.v[i].id = c->id;
            s->done.v[i].is_seed = false;
            return true;
        }
    }
    return false;
}

static int compare_done(const struct search *s, const struct mw_candidate *a,
                        const struct mw_candidate *b)
{
    double x = score_of(s, a), y = score_of(s, b);

    if (x == y) {
        x = a->step_time_s;
        y = b->step_time_s;
    }
    if (x != y) {
        return x < y ? -1 : 1;
    }
    return a->id < b->id ? -1 : a->id > b->id;
}

static void sift(struct search *s, size_t i)
{
    struct mw_candidate c = s->done.v[i];

    for (; i > 0 && compare_done(s, &c, &s->done.v[i - 1]) < 0; i--) {
        s->done.v[i] = s->done.v[i - 1];
    }
    s->done.v[i] = c;
}

void mw_race_sort(struct search *s)
{
    for (size_t i = 1; i < s->done.n; i++) {
        sift(s, i);
    }
}

static void drop(struct search *s, const char *rule,
                 const struct mw_candidate *c, double needed, double allowed)
{
    mw_tally_add(&s->tally, rule, 1, &c->layout, needed, allowed);
}

/* Takes up to MW_ROUND candidates that are not beaten from s->left. */
static size_t next_round(struct search *s, struct weigher *w, size_t *at,
                         struct mw_candidate *out)
{
    size_t n = 0;

    while (*at < s->left.n && n < MW_ROUND && !(n > 0 && is_pressed(s))) {
        struct mw_candidate *c = &s->left.v[(*at)++];
        enum mw_status status;
        double peak;

        if (is_done(s, c)) {
            continue;
        }
        if (mw_race_is_beaten(s, c->bound_s, c->peak_bytes)) {
            drop(s, "bound", c, c->bound_s, 1);
            continue;
        }
        mw_weigh_layers(w, &c->layout, &peak, &status, NULL);
        size_t n_virtual = (size_t)c->layout.pp * (size_t)c->layout.vpp;

        c->layers =
            mw_arena_alloc(&s->result->arena, n_virtual, sizeof *c->layers);
        memcpy(c->layers, w->layers, n_virtual * sizeof *c->layers);
        if (s->is_placed) {
            c->nodes = mw_arena_alloc(&s->result->arena,
                                      (size_t)s->scenario->cluster.n_nodes,
                                      sizeof *c->nodes);
        }
        out[n++] = *c;
    }
    return n;
}

static void take_round(struct search *s, const struct mw_candidate *v, size_t n,
                       const bool *is_left, struct mw_candidates *left)
{
    for (size_t i = 0; i < n; i++) {
        if (is_left[i]) {
            mw_array_push(left, v[i]);
            continue;
        }
        if (!v[i].is_simulated) { /* beaten under any order of nodes */
            drop(s, "bound", &v[i], v[i].bare_s, 1);
            continue;
        }
        if (v[i].peak_bytes > s->usable_bytes) {
            drop(s, "memory", &v[i], v[i].peak_bytes, s->usable_bytes);
            continue;
        }
        if (v[i].bound_s * (1 - 1e-9) > v[i].step_time_s) {
            mw_log(MW_LOG_WARN, "planner",
                   "the bound %.9g s of a layout exceeds its simulated time "
                   "%.9g s; nothing is proved",
                   v[i].bound_s, v[i].step_time_s);
            s->is_cut_short = true;
        }
        if (mw_race_is_over_host(s, v[i].host_bytes)) {
            drop(s, "host_memory", &v[i], v[i].host_bytes,
                 s->ctx->system->host_mem_bytes);
            continue;
        }
        if (mw_race_is_beyond(s, v[i].step_time_s, v[i].peak_bytes)) {
            drop(s, "objective", &v[i], v[i].step_time_s, 1);
            continue;
        }
        mw_array_push(&s->done, v[i]);
        sift(s, s->done.n - 1);
    }
}

/* Those not simulated, least bound first: what a round left, the others. */
static void keep_left(struct search *s, struct mw_candidates *left, size_t at)
{
    for (; at < s->left.n; at++) {
        mw_array_push(left, s->left.v[at]);
    }
    mw_array_release(&s->left);
    s->left = *left;
}

enum mw_status mw_race(struct search *s, size_t max_simulated,
                       struct mw_err *err)
{
    struct mw_progress progress;
    struct mw_candidate round[MW_ROUND];
    struct mw_candidates left = {.n = 0}; /* of a round that was cut short */
    struct weigher w;
    size_t at = 0, n_run = 0;
    enum mw_status status = MW_OK;

    if (s->left.n == 0) {
        return MW_OK;
    }
    mw_weigher_init(&w, s);
    mw_progress_begin(&progress, "simulated");
    qsort(s->left.v, s->left.n, sizeof *s->left.v,
          s->opts->rank_by == MW_RANK_MEMORY ? compare_peak : compare_bound);
    /* The first round is run in any case: there is always an answer. */
    while (status == MW_OK && n_run < max_simulated &&
           (s->done.n == 0 || !mw_search_is_over(s))) {
        bool is_left[MW_ROUND] = {false};
        size_t n = next_round(s, &w, &at, round);

        if (n == 0) {
            break;
        }
        status = simulate_round(s, round, n, is_left, err);
        n_run += n;
        if (status == MW_OK) {
            take_round(s, round, n, is_left, &left);
        }
        if (!s->opts->is_quiet) {
            mw_progress_update(&progress, at, s->left.n);
        }
    }
    mw_progress_end(&progress);
    mw_weigher_release(&w);
    keep_left(s, &left, at);
    return status;
}
