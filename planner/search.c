/*
 * The search as a whole: seed, weigh, race, report.
 *
 * Outer items of the space are weighed by several threads, each with its own
 * remembered prices. Survivors and tallies are kept by item and joined in the
 * order of the items, and all are weighed against the times of the seeds, so
 * nothing depends on how threads were scheduled.
 */
#include "planner/search_int.h"

#include "base/log.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEDS_MAX = 96, JOBS_MAX = 64, TOP_DEFAULT = 10, ID_SHIFT = 40 };

/* ---- weighing on several threads -------------------------------------------
 */
struct item {
    struct mw_tally *tally;
    struct mw_candidates out;
};
struct crew {
    struct search *s;
    enum mw_walk walk;
    struct item *item;
    size_t n;
    atomic_size_t next, done;
    atomic_bool is_over;
    struct walk_state state;
};

/* Is an outer item another shard's? Seeds are the same for all. */
static bool is_elsewhere(const struct crew *crew, size_t i)
{
    const struct mw_search_opts *opts = crew->s->opts;

    return crew->walk == MW_WALK_ALL && opts->n_shards > 1 &&
           i % (size_t)opts->n_shards != (size_t)opts->shard - 1;
}

/* Only the calling thread looks at the clock and shows progress. */
static void weigh_items(struct crew *crew, bool is_caller)
{
    struct search *s = crew->s;
    bool is_shown = is_caller && !s->opts->is_quiet;
    struct mw_progress progress;
    struct weigher w;

    mw_weigher_init(&w, s);
    w.walk = &crew->state;
    w.is_seeding = crew->walk == MW_WALK_SEED;
    mw_progress_begin(&progress, "weighed");
    for (;;) {
        bool has_any = s->done.n > 0 || atomic_load(&crew->state.found);

        if (is_caller && crew->walk == MW_WALK_ALL && mw_search_is_over(s) &&
            (has_any || mw_search_is_asked_to_stop(s))) {
            atomic_store(&crew->is_over, true);
        }
        size_t i = atomic_fetch_add(&crew->next, 1);

        if (i >= crew->n || atomic_load(&crew->is_over)) {
            break;
        }
        if (is_elsewhere(crew, i)) {
            atomic_fetch_add(&crew->done, 1);
            continue;
        }
        crew->item[i].tally = mw_calloc(1, sizeof *crew->item[i].tally);
        w.tally = crew->item[i].tally;
        w.out = &crew->item[i].out;
        w.id_base = (uint64_t)i << ID_SHIFT;
        mw_space_walk(&s->space, i, crew->walk, w.tally, mw_weigh, &w);
        atomic_fetch_add(&crew->done, 1);
        if (is_shown) {
            mw_progress_update(&progress, atomic_load(&crew->done), crew->n);
        }
    }
    mw_progress_end(&progress);
    mw_weigher_release(&w);
}

static void *helper(void *crew)
{
    weigh_items(crew, false);
    return NULL;
}

static void join_items(struct crew *crew)
{
    struct search *s = crew->s;

    for (size_t i = 0; i < crew->n; i++) {
        struct item *item = &crew->item[i];

        if (item->tally) {
            mw_tally_merge(&s->tally, item->tally);
        }
        for (size_t k = 0; k < item->out.n; k++) {
            mw_array_push(&s->left, item->out.v[k]);
        }
        mw_free(item->tally);
        mw_array_release(&item->out);
    }
}

static void weigh_space(struct search *s, enum mw_walk walk)
{
    struct crew crew = {.s = s, .walk = walk, .n = s->space.outer.n};
    pthread_t threads[JOBS_MAX];
    int n_threads = 0;

    mw_array_clear(&s->left);
    crew.item = mw_calloc(crew.n ? crew.n : 1, sizeof *crew.item);
    atomic_init(&crew.next, 0);
    atomic_init(&crew.done, 0);
    atomic_init(&crew.is_over, false);
    atomic_init(&crew.state.found, false);
    atomic_init(&crew.state.skipped, false);
    for (int t = 1; t < s->jobs && (size_t)t < crew.n; t++) {
        if (pthread_create(&threads[n_threads], NULL, helper, &crew) == 0) {
            n_threads++;
        }
    }
    weigh_items(&crew, true);
    for (int t = 0; t < n_threads; t++) {
        pthread_join(threads[t], NULL);
    }
    s->is_whole = walk == MW_WALK_ALL && !atomic_load(&crew.is_over) &&
                  !atomic_load(&crew.state.skipped);
    join_items(&crew);
    mw_free(crew.item);
}

/* ---- the result ------------------------------------------------------------
 */
/* Pareto: drops what another plan beats in time and memory. */
static size_t keep_front(struct mw_candidate *v, size_t n)
{
    size_t kept = 0;
    double least = HUGE_VAL;

    for (size_t i = 0; i < n; i++) { /* by time */
        if (v[i].peak_bytes < least) {
            least = v[i].peak_bytes;
            v[kept++] = v[i];
        }
    }
    return kept;
}

static void count_left(struct search *s)
{
    for (size_t i = 0; i < s->left.n; i++) {
        mw_tally_add(&s->tally, "not_simulated", 1, &s->left.v[i].layout, 0, 0);
    }
}

/* The nodes that train, where some of every rack stand by. */
static struct mw_int_list domain_nodes(struct search *s)
{
    const struct mw_cluster *c = &s->scenario->cluster;
    size_t n = (size_t)c->n_nodes;

    if (c->spare_nodes == 0) {
        return (struct mw_int_list){NULL, 0};
    }
    int64_t *nodes = mw_arena_alloc(&s->result->arena, n, sizeof *nodes);

    for (size_t i = 0; i < n; i++) {
        nodes[i] = mw_cluster_slot_node(c, (int)i);
    }
    return (struct mw_int_list){nodes, n};
}

static void write_plans(struct search *s)
{
    struct mw_search_result *r = s->result;
    size_t n = s->done.n;

    if (n == 0) {
        return;
    }
    if (s->opts->rank_by == MW_RANK_PARETO) {
        n = keep_front(s->done.v, n);
        for (size_t i = n; i < s->done.n; i++) {
            mw_tally_add(&s->tally, "dominated", 1, &s->done.v[0].layout, 0, 0);
        }
    }
    r->plans = mw_arena_alloc(&r->arena, n, sizeof *r->plans);
    memcpy(r->plans, s->done.v, n * sizeof *r->plans);
    r->n_plans = n;
    for (size_t i = 0; i < n; i++) { /* texts of the space go away with it */
        struct mw_layout *l = &r->plans[i].layout;

        l->order = mw_arena_strdup(&r->arena, l->order);
        if (s->scenario->cluster.domain_nodes > 0) {
            l->domain_nodes = s->scenario->cluster.domain_nodes;
            l->nodes = l->nodes.n > 0 ? l->nodes : domain_nodes(s);
        }
    }
}

/* Seeds that the whole space did not bring up again: tallied there as beaten;
 * or the walk was cut short before it came to them. */
static void settle_seeds(struct search *s)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->done.n; i++) {
        struct mw_candidate *c = &s->done.v[i];

        if (c->is_seed && !s->is_cut_short) {
            continue;
        }
        s->tally.enumerated += c->is_seed && s->has_walked;
        s->tally.legal += c->is_seed && s->has_walked;
        s->done.v[kept++] = *c;
    }
    s->done.n = kept;
    mw_race_sort(s);
}

/* A plan whose order of nodes is not proved may be as fast as without leaves:
 * nothing that is slower than that is proved. */
static void settle_orders(struct search *s)
{
    struct mw_search_result *r = s->result;
    size_t n = s->done.n < (size_t)s->top ? s->done.n : (size_t)s->top;

    for (size_t i = 0; i < s->done.n; i++) {
        const struct mw_candidate *c = &s->done.v[i];

        if (!c->is_order_proved && c->bare_s < s->done.v[n - 1].step_time_s) {
            r->proved_optimal = r->is_complete = false;
            r->gap = fmax(r->gap, s->done.v[0].step_time_s / c->bare_s - 1);
        }
    }
}

static void fill_result(struct search *s, enum mw_status status)
{
    struct mw_search_result *r = s->result;

    r->is_complete =
        status == MW_OK && !s->is_cut_short && s->has_walked && s->left.n == 0;
    r->proved_optimal = r->is_complete && s->done.n > 0;
    if (s->is_whole && s->left.n > 0 && s->done.n > 0) {
        double best = s->done.v[0].step_time_s;

        r->gap = fmax(0, best / s->left.v[0].bound_s - 1);
    }
    if (s->is_placed) {
        settle_orders(s);
    }
    r->n_proved = !r->proved_optimal                   ? 0
                  : s->opts->rank_by == MW_RANK_PARETO ? (int)s->done.n
                  : s->done.n < (size_t)s->top         ? (int)s->done.n
                                                       : s->top;
    count_left(s);
    settle_seeds(s);
    r->simulated = s->done.n;
    write_plans(s);
    r->n_proved = r->n_proved > (int)r->n_plans ? (int)r->n_plans : r->n_proved;
    r->enumerated = s->tally.enumerated;
    r->evaluated = s->tally.legal;
    mw_reasons_write(s);
    r->wall_time_s = 1e-9 * (double)(mw_clock_wall_ns() - s->start_ns);
}

static void search_init(struct search *s)
{
    const struct mw_model *model = &s->scenario->model;
    long cores =
        s->opts->jobs > 0 ? s->opts->jobs : sysconf(_SC_NPROCESSORS_ONLN);

    s->jobs = cores < 1 ? 1 : cores > MW_ROUND ? MW_ROUND : (int)cores;
    s->top = s->opts->top > 0 ? s->opts->top : TOP_DEFAULT;
    s->top = s->top > MW_TOP_MAX ? MW_TOP_MAX : s->top;
    int n_moe = mw_model_moe_layers(model, model->n_layers);

    s->is_mixed = n_moe > 0 && n_moe < model->n_layers;
    s->usable_bytes = mw_step_usable_bytes(s->scenario, s->ctx);
    s->is_placed = mw_node_order_is_open(s->scenario);
    if (s->is_placed) {
        s->bare = mw_node_order_bare(s->scenario);
    }
    mw_space_init(&s->space, s->scenario, s->ctx, s->opts);
}

enum mw_status mw_search(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_search_opts *opts,
                         struct mw_search_result *out, struct mw_err *err)
{
    struct search s = {.scenario = scenario,
                       .ctx = ctx,
                       .opts = opts,
                       .result = out,
                       .start_ns = mw_clock_wall_ns()};
    enum mw_status status = mw_fast_check(scenario, ctx, err);

    memset(out, 0, sizeof *out);
    mw_arena_init(&out->arena);
    if (status == MW_OK) {
        status = mw_limits_check_names(scenario, err);
    }
    if (status != MW_OK) {
        return status;
    }
    search_init(&s);
    weigh_space(&s, MW_WALK_SEED);
    status = mw_race(&s, SEEDS_MAX, err);
    if (status == MW_OK && !(s.done.n > 0 && mw_search_is_over(&s))) {
        s.tally = (struct mw_tally){.n = 0}; /* all is walked again */
        s.has_walked = true;
        for (size_t i = 0; i < s.done.n; i++) {
            s.done.v[i].is_seed = true;
        }
        weigh_space(&s, MW_WALK_ALL);
        mw_search_is_over(&s); /* threads may have stopped before the caller */
        status = mw_race(&s, SIZE_MAX, err);
    }
    fill_result(&s, status);
    bool is_stopped = opts->stop && *opts->stop;
    out->layers_proved = status == MW_OK && out->n_plans > 0 && !is_stopped &&
                         mw_weigh_certify(&s, &out->plans[0]);
    if (status == MW_OK && opts->stop && *opts->stop) {
        status =
            mw_fail(err, MW_EINTR,
                    out->n_plans > 0 ? "interrupted; the best so far stands"
                                     : "interrupted; no plan was found so far");
    } else if (status == MW_OK && out->n_plans == 0) {
        status = mw_reasons_say_no(&s, err);
    }
    mw_space_release(&s.space);
    mw_array_release(&s.left);
    mw_array_release(&s.done);
    return status;
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
