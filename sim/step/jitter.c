/*
 * Variation across ranks, drawn.
 *
 *   pace(rank r, pass i) = 1 + spread c (sqrt(v) z_r + sqrt(1 - v) z_ri)
 *
 * with standard normal z: z_r stays with a device for the whole step, z_ri is
 * drawn for each pass; v is the stack's `persistent`. The constant `spread` was
 * fitted for 1 + spread sqrt(2 ln n), the limit of the expected slowest of n;
 * c = sqrt(2 ln n) / E[max of n] makes the slowest of all n ranks as slow as
 * that on average.
 *
 * A pass of a stage takes its work times the greatest pace of the ranks that
 * synchronise inside it: those of tp and cp, of an expert's group, and with
 * ZeRO-2 and -3 all replicas. They are a class, and classes meet after their
 * last pass, when gradients are reduced. As the step is made of sums and
 * maxima, it is the longest of the steps that each class would take alone; a
 * class whose greatest pace times the even step is no longer than another's
 * step is not simulated.
 *
 * Left out: spread of collectives themselves and of the optimizer; steps that
 * follow one another on the same devices.
 */
#include "sim/step/jitter.h"

#include "base/log.h"
#include "base/rand.h"
#include "base/stats.h"
#include "sim/step/tasks_int.h"

#include <math.h>
#include <stdlib.h>

double mw_jitter_normal_max(int n)
{
    /* Integral of x d(F(x)^n), Simpson over [-9, 9]. */
    const int steps = 3600;
    const double low = -9, width = 18.0 / steps;
    double sum = 0;

    for (int i = 0; i <= steps; i++) {
        double x = low + width * i;
        double below = .5 * erfc(-x / sqrt(2));
        double density = exp(-x * x / 2) / sqrt(2 * acos(-1));
        double weight = i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2;

        sum += weight * x * n * density * pow(below, n - 1);
    }
    return sum * width / 3;
}

struct draws {
    const struct mw_step_frame *frame;
    const struct mw_plan *plan;
    struct mw_timeline *names; /* the graphs intern theirs there */
    int n_ranks, n_classes, n_slots;
    double spread, kept, fresh; /* spread x c; sqrt(v), sqrt(1 - v) */
    uint64_t seed;
    int *order;         /* [n_ranks] ranks by class, then stage */
    size_t *first;      /* [n_classes * pp + 1] where a pair's begin */
    double *persistent; /* [n_ranks] z_r of the draw, in that order */
    double *pace;       /* [n_slots] of one class */
    struct pace_of_class {
        double most;
        int i_class;
    } * fastest; /* [n_classes] slowest first */
    double even_s;
    uint64_t n_graphs;
};

/* Replicas that wait for each other inside passes. */
static int replicas_together(const struct mw_layout *l)
{
    int inside = l->tp * l->cp, experts = l->ep * l->etp;
    int n = experts > inside ? (experts + inside - 1) / inside : 1;

    return l->zero >= 2 || l->dp % n != 0 ? l->dp : n;
}

static int class_of(const struct mw_layout *l, int rank)
{
    return mw_layout_coord(l, rank).dp / replicas_together(l);
}

/* Counting sort of the ranks by (class, stage). */
static void sort_ranks(struct draws *d)
{
    const struct mw_layout *l = &d->plan->layout;
    size_t n_pairs = (size_t)d->n_classes * (size_t)l->pp;

    for (int r = 0; r < d->n_ranks; r++) {
        d->first[class_of(l, r) * l->pp + mw_layout_coord(l, r).pp + 1]++;
    }
    for (size_t i = 0; i < n_pairs; i++) {
        d->first[i + 1] += d->first[i];
    }
    for (int r = d->n_ranks - 1; r >= 0; r--) {
        size_t pair =
            (size_t)(class_of(l, r) * l->pp + mw_layout_coord(l, r).pp);

        d->order[--d->first[pair + 1]] = r;
    }
    /* Each first[pair + 1] is now where the pair begins. */
    for (size_t i = 0; i < n_pairs; i++) {
        d->first[i] = d->first[i + 1];
    }
    d->first[n_pairs] = (size_t)d->n_ranks;
}

/* Greatest z of the ranks from..to in pass i_slot of this draw. */
static double slowest_z(const struct draws *d, uint64_t draw, size_t from,
                        size_t to, uint32_t i_slot)
{
    uint64_t stream = 2 * draw + 1;
    double most = -(double)INFINITY;

    for (size_t i = from; i < to; i++) {
        double z = d->kept * d->persistent[i];

        if (d->fresh > 0) {
            uint64_t at = (uint64_t)d->order[i] * (uint64_t)d->n_slots + i_slot;

            z += d->fresh * mw_rand_normal(d->seed, stream, at);
        }
        most = fmax(most, z);
    }
    return most;
}

/* Fills d->pace for a class; returns the greatest. */
static double pace_class(struct draws *d, uint64_t draw, int i_class)
{
    const struct mw_schedule *s = &d->plan->schedule;
    double most = 0;

    for (int stage = 0; stage < s->n_stages; stage++) {
        const size_t *at = &d->first[i_class * s->n_stages + stage];
        double z = 0;

        for (uint32_t i = s->first[stage]; i < s->first[stage + 1]; i++) {
            if (i == s->first[stage] || d->fresh > 0) {
                z = slowest_z(d, draw, at[0], at[1], i);
            }
            d->pace[i] = fmax(0, 1 + d->spread * z);
            most = fmax(most, d->pace[i]);
        }
    }
    return most;
}

static enum mw_status run_class(struct draws *d, double *out_s,
                                struct mw_err *err)
{
    struct mw_step_tasks tasks;
    mw_time end_ps = 0;

    mw_step_tasks_init(&tasks, d->names);
    tasks.slot_pace = d->pace;
    mw_step_tasks_build(&tasks, d->frame, &d->plan->schedule);
    enum mw_status status =
        mw_step_tasks_run(&tasks, false, &end_ps, NULL, err);

    mw_step_tasks_release(&tasks);
    d->n_graphs++;
    *out_s = mw_time_to_s(end_ps);
    return status;
}

static int slower_first(const void *a, const void *b)
{
    const struct pace_of_class *x = a, *y = b;

    if (x->most != y->most) {
        return x->most > y->most ? -1 : 1;
    }
    return (x->i_class > y->i_class) - (x->i_class < y->i_class);
}

static enum mw_status draw_step(struct draws *d, uint64_t draw, double *out_s,
                                struct mw_err *err)
{
    enum mw_status status = MW_OK;
    double longest_s = 0;

    for (int i = 0; i < d->n_ranks; i++) {
        d->persistent[i] =
            mw_rand_normal(d->seed, 2 * draw, (uint64_t)d->order[i]);
    }
    for (int i = 0; i < d->n_classes; i++) {
        d->fastest[i] = (struct pace_of_class){pace_class(d, draw, i), i};
    }
    qsort(d->fastest, (size_t)d->n_classes, sizeof *d->fastest, slower_first);
    for (int i = 0; i < d->n_classes && status == MW_OK; i++) {
        double step_s = 0;

        if (fmax(1, d->fastest[i].most) * d->even_s <= longest_s) {
            break;
        }
        pace_class(d, draw, d->fastest[i].i_class);
        status = run_class(d, &step_s, err);
        longest_s = fmax(longest_s, step_s);
    }
    *out_s = longest_s;
    return status;
}

static enum mw_status draw_all(struct draws *d, struct mw_jitter *out,
                               struct mw_err *err)
{
    size_t n = (size_t)out->n_draws;
    double *step_s = mw_calloc(n, sizeof *step_s), sum = 0;
    enum mw_status status = MW_OK;

    for (size_t i = 0; i < n && status == MW_OK; i++) {
        status = draw_step(d, i, &step_s[i], err);
        sum += step_s[i];
    }
    if (status == MW_OK) {
        out->mean_s = sum / (double)n;
        out->p10_s = mw_quantile(step_s, n, .1);
        out->p90_s = mw_quantile(step_s, n, .9);
        out->least_s = mw_quantile(step_s, n, 0);
        out->most_s = mw_quantile(step_s, n, 1);
        out->n_graphs = d->n_graphs;
    }
    mw_free(step_s);
    return status;
}

static void draws_init(struct draws *d, struct mw_arena *arena,
                       const struct mw_stack *stack)
{
    const struct mw_layout *l = &d->plan->layout;
    const struct mw_schedule *s = &d->plan->schedule;
    size_t n_ranks, n_classes;

    d->n_ranks = mw_layout_ranks(l);
    d->n_classes = l->dp / replicas_together(l);
    d->n_slots = (int)s->first[s->n_stages];
    n_ranks = (size_t)d->n_ranks;
    n_classes = (size_t)d->n_classes;
    d->kept = sqrt(stack->persistent);
    d->fresh = sqrt(1 - stack->persistent);
    d->spread = d->n_ranks > 1
                    ? stack->straggler * sqrt(2 * log((double)d->n_ranks)) /
                          mw_jitter_normal_max(d->n_ranks)
                    : 0;
    d->order = mw_arena_alloc(arena, n_ranks, sizeof *d->order);
    d->first =
        mw_arena_alloc(arena, n_classes * (size_t)l->pp + 1, sizeof *d->first);
    d->persistent = mw_arena_alloc(arena, n_ranks, sizeof *d->persistent);
    d->pace = mw_arena_alloc(arena, (size_t)d->n_slots, sizeof *d->pace);
    d->fastest = mw_arena_alloc(arena, n_classes, sizeof *d->fastest);
    sort_ranks(d);
}

/* The two steps without draws: as predicted, and of even ranks. */
static enum mw_status known_steps(const struct mw_scenario *scenario,
                                  const struct mw_plan *plan,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_cost_ctx *even,
                                  struct mw_jitter *out, struct mw_err *err)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result r;
    enum mw_status status =
        mw_step_simulate(scenario, plan, ctx, &opts, &r, err);

    if (status != MW_OK) {
        return status;
    }
    out->expected_s = r.step_time_s;
    mw_step_result_release(&r);
    status = mw_step_simulate(scenario, plan, even, &opts, &r, err);
    if (status == MW_OK) {
        out->even_s = r.step_time_s;
        mw_step_result_release(&r);
    }
    return status;
}

enum mw_status mw_step_jitter(const struct mw_scenario *scenario,
                              const struct mw_plan *plan,
                              const struct mw_cost_ctx *ctx, int n_draws,
                              uint64_t seed, struct mw_jitter *out,
                              struct mw_err *err)
{
    int64_t begin_ns = mw_clock_wall_ns();
    struct mw_jitter result = {.n_draws = n_draws, .seed = seed};
    struct mw_cost_ctx even = *ctx;
    struct mw_step_frame frame;
    struct mw_timeline names;
    struct mw_arena arena;

    MW_ASSERT(n_draws >= 1 && n_draws <= MW_JITTER_DRAWS_MAX, "%d draws",
              n_draws);
    even.stack.straggler = 0;
    enum mw_status status =
        known_steps(scenario, plan, ctx, &even, &result, err);

    if (status != MW_OK) {
        return status;
    }
    mw_step_frame_init(&frame, scenario, &plan->layout, plan->layers,
                       &plan->schedule, &even, true, NULL);
    mw_timeline_init(&names);
    mw_arena_init(&arena);
    struct draws d = {.frame = &frame,
                      .plan = plan,
                      .names = &names,
                      .seed = seed,
                      .even_s = result.even_s};

    draws_init(&d, &arena, &ctx->stack);
    status = draw_all(&d, &result, err);
    mw_arena_release(&arena);
    mw_timeline_release(&names);
    mw_step_frame_release(&frame);
    result.wall_time_s = (double)(mw_clock_wall_ns() - begin_ns) / 1e9;
    if (status == MW_OK) {
        *out = result;
    }
    return status;
}
