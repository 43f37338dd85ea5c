/*
 * Where the time of a step goes: exposed seconds by kind.
 *
 * A rank is in one state at each moment of the window [0, step time]:
 *
 *   compute span under way       -> its kind
 *   else a communication span    -> its kind, first stream in the order
 *                                   TP CP EP PP DP OFFLOAD HOST
 *   else                         -> bubble
 *
 * so communication under compute costs nothing (it is hidden) and the states
 * of a rank sum to the step time exactly, in integer picoseconds. Swept with
 * one cursor a stream from boundary to boundary. Spans marked as bubble are
 * nothing to do, as gaps are. Averages over ranks are sums of exact seconds
 * divided once.
 */
#include "sim/engine/timeline.h"

#include <string.h>

/* The spans of one stream of one rank that lie ahead. */
struct cursor {
    const struct mw_span *at, *end;
};

/* The span under way at t_ps, or NULL; the cursor never goes back. */
static const struct mw_span *under_way(struct cursor *c, mw_time t_ps)
{
    while (c->at < c->end &&
           (c->at->end_ps <= t_ps || c->at->kind == MW_SPAN_BUBBLE)) {
        c->at++;
    }
    return c->at < c->end && c->at->start_ps <= t_ps ? c->at : NULL;
}

/* Splits the rank's sorted spans by stream. */
static void cursors_init(struct cursor *c, const struct mw_span *v, size_t n)
{
    for (int s = 0; s < MW_STREAM_COUNT; s++) {
        c[s].at = v;
        while (n > 0 && v->stream == s) {
            v++;
            n--;
        }
        c[s].end = v;
    }
}

/* The state from t_ps on, and in *out_ps until when at least. */
static int state_at(struct cursor *c, mw_time t_ps, mw_time *out_ps)
{
    int state = MW_SPAN_BUBBLE;
    for (int s = 0; s < MW_STREAM_COUNT; s++) {
        const struct mw_span *now = under_way(&c[s], t_ps);
        if (now && state == MW_SPAN_BUBBLE) {
            state = now->kind;
        }
        if (!now && c[s].at == c[s].end) {
            continue;
        }
        mw_time edge_ps = now ? now->end_ps : c[s].at->start_ps;
        *out_ps = edge_ps < *out_ps ? edge_ps : *out_ps;
    }
    return state;
}

void mw_timeline_exposed(const struct mw_span *spans, size_t n, mw_time from_ps,
                         mw_time to_ps, mw_time *out_ps)
{
    struct cursor c[MW_STREAM_COUNT];
    cursors_init(c, spans, n);
    memset(out_ps, 0, MW_SPAN_KIND_COUNT * sizeof *out_ps);
    for (mw_time t_ps = from_ps; t_ps < to_ps;) {
        mw_time next_ps = to_ps;
        int state = state_at(c, t_ps, &next_ps);
        out_ps[state] += next_ps - t_ps;
        t_ps = next_ps;
    }
}

static void add_rank(const struct mw_timeline *t, size_t first, size_t n,
                     double *out)
{
    mw_time ps[MW_SPAN_KIND_COUNT];
    const struct mw_span *spans = n > 0 ? &t->spans.v[first] : NULL;
    mw_timeline_exposed(spans, n, 0, mw_timeline_window_ps(t), ps);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        out[k] += (double)ps[k] * 1e-12;
    }
}

void mw_timeline_stages(struct mw_timeline *t, struct mw_rank_stages *out)
{
    mw_timeline_sort(t);
    mw_array_clear(out);
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct mw_span *s = &t->spans.v[i];
        if (out->n == 0 || out->v[out->n - 1].rank != s->rank) {
            struct mw_rank_stage fresh = {
                .rank = s->rank, .stage = -1, .first = i};
            mw_array_push(out, fresh);
        }
        struct mw_rank_stage *r = &out->v[out->n - 1];
        r->n++;
        if (s->stage >= 0 && (r->stage < 0 || s->stage < r->stage)) {
            r->stage = s->stage;
        }
    }
}

/* Average over the ranks of a stage, or over all. */
static int average(struct mw_timeline *t, bool all, int stage, double *out)
{
    struct mw_rank_stages ranks = {.v = NULL};
    mw_timeline_stages(t, &ranks);
    memset(out, 0, MW_SPAN_KIND_COUNT * sizeof *out);
    int n = 0;
    for (size_t i = 0; i < ranks.n; i++) {
        if (all || ranks.v[i].stage == stage) {
            add_rank(t, ranks.v[i].first, ranks.v[i].n, out);
            n++;
        }
    }
    for (int k = 0; k < MW_SPAN_KIND_COUNT && n > 0; k++) {
        out[k] /= n;
    }
    mw_array_release(&ranks);
    return n;
}

void mw_timeline_breakdown(struct mw_timeline *t, double *out)
{
    if (average(t, true, 0, out) == 0) {
        add_rank(t, 0, 0, out);
    }
}

void mw_timeline_breakdown_stage(struct mw_timeline *t, int stage, double *out)
{
    average(t, false, stage, out);
}

void mw_timeline_breakdown_rank(struct mw_timeline *t, int rank, double *out)
{
    mw_timeline_sort(t);
    memset(out, 0, MW_SPAN_KIND_COUNT * sizeof *out);
    size_t first = 0, n = 0;
    while (first < t->spans.n && t->spans.v[first].rank < rank) {
        first++;
    }
    while (first + n < t->spans.n && t->spans.v[first + n].rank == rank) {
        n++;
    }
    add_rank(t, first, n, out);
}
