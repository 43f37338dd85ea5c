/*
 * Pairing passes and finding the first that deviates: see deviation.h.
 *
 * A collective has no pass written on it, only micro-batch and virtual stage;
 * it goes to the pass of these that it is nearest to in time (it may lie before
 * the first compute span, as a gather of sequence parallelism does, or after
 * the last); between two that it touches, to the first, since a simulator puts
 * the collectives of a pass behind its compute.
 */
#include "exec/compare/deviation.h"

#include <math.h>
#include <stdlib.h>

/* ---- passes of a rank ------------------------------------------------------
 */
static bool is_compute(const struct mw_span *s)
{
    return s->stream == MW_STREAM_COMPUTE && s->kind != MW_SPAN_BUBBLE;
}

static bool is_backward(int kind)
{
    return kind == MW_SPAN_B || kind == MW_SPAN_W || kind == MW_SPAN_RECOMPUTE;
}

/* Two compute spans of one pass: nothing else was computed in between. Layer by
 * layer or all at once, what is recomputed, B and W in a row are one. */
static bool continues(const struct mw_timeline_pass *p, const struct mw_span *s)
{
    return p->microbatch == s->microbatch && p->stage == s->stage &&
           (p->kind == s->kind ||
            (is_backward(p->kind) && is_backward(s->kind)));
}

static void add_compute(struct mw_timeline_passes *out, const struct mw_span *s)
{
    struct mw_timeline_pass *last = out->n > 0 ? &out->v[out->n - 1] : NULL;

    if (last != NULL && continues(last, s)) {
        last->end_ps = s->end_ps;
        last->kind = s->kind == MW_SPAN_B ? s->kind : last->kind;
        return;
    }
    const struct mw_timeline_pass fresh = {.rank = s->rank,
                                           .microbatch = s->microbatch,
                                           .stage = s->stage,
                                           .kind = s->kind,
                                           .start_ps = s->start_ps,
                                           .end_ps = s->end_ps};

    mw_array_push(out, fresh);
}

/* Time between a span and a pass; 0 where they touch or overlap. */
static mw_time gap_ps(const struct mw_timeline_pass *p, const struct mw_span *s)
{
    if (s->start_ps > p->end_ps) {
        return s->start_ps - p->end_ps;
    }
    return s->end_ps < p->start_ps ? p->start_ps - s->end_ps : 0;
}

static struct mw_timeline_pass *nearest(struct mw_timeline_passes *passes,
                                        size_t n_compute,
                                        const struct mw_span *s)
{
    struct mw_timeline_pass *best = NULL;

    for (size_t i = 0; i < n_compute; i++) {
        struct mw_timeline_pass *p = &passes->v[i];

        if (p->microbatch == s->microbatch && p->stage == s->stage &&
            (best == NULL || gap_ps(p, s) < gap_ps(best, s))) {
            best = p;
        }
    }
    return best;
}

static bool is_compute_between(const struct mw_timeline_passes *p,
                               size_t n_compute, mw_time from_ps, mw_time to_ps)
{
    for (size_t i = 0; i < n_compute; i++) {
        if (p->v[i].start_ps >= from_ps && p->v[i].end_ps <= to_ps) {
            return true;
        }
    }
    return false;
}

/* A collective of no pass: an item of its kind, with those that follow before
 * anything is computed. */
static void add_once(struct mw_timeline_passes *out, size_t n_compute,
                     const struct mw_span *s)
{
    for (size_t i = n_compute; i < out->n; i++) {
        if (out->v[i].kind == s->kind &&
            !is_compute_between(out, n_compute, out->v[i].end_ps,
                                s->start_ps)) {
            out->v[i].end_ps = s->end_ps;
            return;
        }
    }
    const struct mw_timeline_pass fresh = {.rank = s->rank,
                                           .microbatch = -1,
                                           .stage = -1,
                                           .kind = s->kind,
                                           .start_ps = s->start_ps,
                                           .end_ps = s->end_ps};

    mw_array_push(out, fresh);
}

static void add_collective(struct mw_timeline_passes *out, size_t n_compute,
                           const struct mw_span *s)
{
    struct mw_timeline_pass *p =
        s->microbatch >= 0 ? nearest(out, n_compute, s) : NULL;

    if (p == NULL) {
        add_once(out, n_compute, s);
        return;
    }
    p->start_ps = s->start_ps < p->start_ps ? s->start_ps : p->start_ps;
    p->end_ps = s->end_ps > p->end_ps ? s->end_ps : p->end_ps;
}

static int by_start(const void *a, const void *b)
{
    const struct mw_timeline_pass *x = a, *y = b;

    if (x->start_ps != y->start_ps) {
        return x->start_ps < y->start_ps ? -1 : 1;
    }
    return (x->end_ps > y->end_ps) - (x->end_ps < y->end_ps);
}

static bool is_same_key(const struct mw_timeline_pass *a,
                        const struct mw_timeline_pass *b)
{
    return a->kind == b->kind && a->microbatch == b->microbatch &&
           a->stage == b->stage;
}

static int by_key(const void *a, const void *b)
{
    const struct mw_timeline_pass *x = a, *y = b;

    if (x->kind != y->kind) {
        return x->kind < y->kind ? -1 : 1;
    }
    if (x->microbatch != y->microbatch) {
        return x->microbatch < y->microbatch ? -1 : 1;
    }
    if (x->stage != y->stage) {
        return x->stage < y->stage ? -1 : 1;
    }
    /* Once per step: the last is the first, as an executor may do more at the
     * beginning (zeroing) than a simulator shows. */
    return x->microbatch < 0 ? -by_start(a, b) : by_start(a, b);
}

static int by_key_and_part(const void *a, const void *b)
{
    const struct mw_timeline_pass *x = a, *y = b;

    if (is_same_key(x, y)) {
        return (x->part > y->part) - (x->part < y->part);
    }
    return by_key(a, b);
}

static void number_parts(struct mw_timeline_passes *p)
{
    qsort(p->v, p->n, sizeof *p->v, by_key);
    for (size_t i = 1; i < p->n; i++) {
        if (is_same_key(&p->v[i - 1], &p->v[i])) {
            p->v[i].part = (uint16_t)(p->v[i - 1].part + 1);
        }
    }
    qsort(p->v, p->n, sizeof *p->v, by_start);
}

void mw_timeline_passes_of(struct mw_timeline *t, int rank,
                           struct mw_timeline_passes *out)
{
    size_t first = 0, end;

    mw_timeline_sort(t);
    mw_array_clear(out);
    while (first < t->spans.n && t->spans.v[first].rank < rank) {
        first++;
    }
    for (end = first; end < t->spans.n && t->spans.v[end].rank == rank; end++) {
        if (is_compute(&t->spans.v[end])) {
            add_compute(out, &t->spans.v[end]);
        }
    }
    size_t n_compute = out->n;

    for (size_t i = first; i < end; i++) {
        const struct mw_span *s = &t->spans.v[i];

        if (!is_compute(s) && s->kind != MW_SPAN_BUBBLE &&
            s->kind != MW_SPAN_PP) {
            add_collective(out, n_compute, s);
        }
    }
    if (out->n > 0) {
        number_parts(out);
    }
}

/* ---- pairs -----------------------------------------------------------------
 */
struct pairs {
    struct mw_timeline_passes simulated,
        measured; /* by start; by key and part */
    size_t n_unpaired;
};

static const struct mw_timeline_pass *
find(const struct mw_timeline_passes *sorted,
     const struct mw_timeline_pass *key)
{
    return sorted->n > 0 ? bsearch(key, sorted->v, sorted->n, sizeof *key,
                                   by_key_and_part)
                         : NULL;
}

static double seconds(mw_time ps)
{
    return (double)ps * 1e-12;
}

/* Walks a rank, keeping the best deviation so far. */
static void walk_rank(struct pairs *p, double limit_s, struct mw_deviation *out)
{
    struct mw_deviation d = {.why = MW_DEVIATION_NONE};
    mw_time last_simulated = 0, last_measured = 0;

    for (size_t i = 0; i < p->simulated.n; i++) {
        const struct mw_timeline_pass *s = &p->simulated.v[i];
        const struct mw_timeline_pass *m = find(&p->measured, s);

        if (m == NULL) {
            p->n_unpaired++;
            continue;
        }
        d.simulated = *s;
        d.measured = *m;
        d.own_s =
            seconds(s->end_ps - s->start_ps) - seconds(m->end_ps - m->start_ps);
        d.waiting_s += seconds(s->start_ps - last_simulated) -
                       seconds(m->start_ps - last_measured);
        d.difference_s = seconds(s->end_ps) - seconds(m->end_ps);
        if (fabs(d.difference_s) > limit_s &&
            (out->why == MW_DEVIATION_NONE ||
             m->end_ps < out->measured.end_ps)) {
            *out = d;
            out->why = MW_DEVIATION_SUM; /* judged below */
            return;
        }
        d.by_kind_s[s->kind] += d.own_s;
        last_simulated = s->end_ps;
        last_measured = m->end_ps;
    }
}

static void judge(struct mw_deviation *d)
{
    double before = 0;

    if (d->why == MW_DEVIATION_NONE) {
        return;
    }
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        before += d->by_kind_s[k];
    }
    double sign = d->difference_s < 0 ? -1 : 1;

    d->why = sign * d->own_s >= fmax(sign * before, sign * d->waiting_s)
                 ? MW_DEVIATION_OWN
             : sign * d->waiting_s > sign * before ? MW_DEVIATION_WAIT
                                                   : MW_DEVIATION_SUM;
}

/* ---- what is waited for ----------------------------------------------------
 */
/* The pass that sends what this one needs: F of the stage before, B of the
 * stage behind (or the fused pass); the same micro-batch. */
static bool sends_to(const struct mw_timeline_pass *p,
                     const struct mw_timeline_pass *waiting)
{
    int step = waiting->kind == MW_SPAN_F ? 1 : -1;

    return p->rank != waiting->rank && p->microbatch == waiting->microbatch &&
           p->kind == waiting->kind && p->part == waiting->part &&
           p->stage + step == waiting->stage;
}

static void look_for_peer(const struct pairs *p, struct mw_deviation *d)
{
    for (size_t i = 0; i < p->simulated.n && !d->has_peer; i++) {
        const struct mw_timeline_pass *s = &p->simulated.v[i];
        const struct mw_timeline_pass *m =
            sends_to(s, &d->simulated) ? find(&p->measured, s) : NULL;

        if (m != NULL) {
            d->has_peer = true;
            d->peer = *s;
            d->peer_difference_s = seconds(s->end_ps) - seconds(m->end_ps);
        }
    }
}

/* ---- both timelines --------------------------------------------------------
 */
static void open_pairs(struct mw_timeline *simulated,
                       struct mw_timeline *measured, int rank, struct pairs *p)
{
    mw_timeline_passes_of(simulated, rank, &p->simulated);
    mw_timeline_passes_of(measured, rank, &p->measured);
    if (p->measured.n > 0) {
        qsort(p->measured.v, p->measured.n, sizeof *p->measured.v,
              by_key_and_part);
    }
}

void mw_deviation_find(struct mw_timeline *simulated,
                       struct mw_timeline *measured, double tolerance,
                       struct mw_deviation *out)
{
    double limit_s = tolerance * seconds(mw_timeline_window_ps(measured));
    struct mw_rank_stages ranks = {.v = NULL};
    struct pairs p = {.n_unpaired = 0};

    *out = (struct mw_deviation){.why = MW_DEVIATION_NONE};
    mw_timeline_stages(simulated, &ranks);
    for (size_t i = 0; i < ranks.n; i++) {
        open_pairs(simulated, measured, ranks.v[i].rank, &p);
        if (p.measured.n > 0) {
            walk_rank(&p, limit_s, out);
        }
    }
    judge(out);
    for (size_t i = 0; i < ranks.n && out->why == MW_DEVIATION_WAIT; i++) {
        open_pairs(simulated, measured, ranks.v[i].rank, &p);
        look_for_peer(&p, out);
    }
    out->n_unpaired = p.n_unpaired;
    mw_array_release(&p.simulated);
    mw_array_release(&p.measured);
    mw_array_release(&ranks);
}
