/*
 * Spans of all ranks. Every rank packs its own into a flat array; rank 0
 * gathers arrays of the longest length and drops the padding. Sends are not
 * shown: a transfer is a span of the receiver, as in the simulator.
 */
#include "exec/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_CHARS = 32 };

struct packed {
    double start_s, end_s, bytes;
    int32_t rank, microbatch, stage;
    uint16_t stream, kind;
    char name[NAME_MAX_CHARS]; /* empty: padding */
};

enum mw_status mw_trace_wall_moments(const struct mw_exec *ex, int step,
                                     struct mw_moment *out, struct mw_err *err)
{
    const struct mw_rec *rec = ex->rec;
    /* The clock is one for all ranks of a machine. The latest negated begin
     * is the earliest begin. */
    double begin = -1e-9 * (double)mw_rec_time(rec, step, 0)->begin_ns;
    MW_TRY(ex->world->ops->all_reduce(ex->world, &begin, 1, MW_ELEM_F64,
                                      MW_REDUCE_MAX, err));
    for (size_t i = 0; i < rec->events.n; i++) {
        const struct mw_rec_time *t = mw_rec_time(rec, step, i);
        out[i].start_s = 1e-9 * (double)t->begin_ns + begin;
        out[i].end_s = 1e-9 * (double)t->end_ns + begin;
    }
    return MW_OK;
}

static enum mw_stream_kind stream_of(const struct mw_rec_event *e)
{
    if (e->type == MW_REC_COMPUTE) {
        return MW_STREAM_COMPUTE;
    }
    switch (e->span) {
    case MW_SPAN_TP:
        return MW_STREAM_TP;
    case MW_SPAN_DP:
        return MW_STREAM_DP;
    case MW_SPAN_PP:
        return MW_STREAM_PP;
    case MW_SPAN_CP:
        return MW_STREAM_CP;
    case MW_SPAN_EP:
        return MW_STREAM_EP;
    case MW_SPAN_F:
    case MW_SPAN_B:
    case MW_SPAN_W:
    case MW_SPAN_RECOMPUTE:
    case MW_SPAN_OPTIMIZER:
    case MW_SPAN_OFFLOAD:
    case MW_SPAN_HOST:
    case MW_SPAN_BUBBLE:
    case MW_SPAN_KIND_COUNT:
        break;
    }
    return MW_STREAM_COMPUTE;
}

static size_t pack(const struct mw_exec *ex, const struct mw_moment *at,
                   struct packed *out)
{
    size_t n = 0;
    for (size_t i = 0; i < ex->rec->events.n; i++) {
        const struct mw_rec_event *e = &ex->rec->events.v[i];
        if (e->type == MW_REC_SEND) {
            continue;
        }
        struct packed p = {.start_s = fmax(at[i].start_s, 0.0),
                           .end_s = fmax(at[i].end_s, 0.0),
                           .bytes = e->bytes,
                           .rank = ex->world->rank,
                           .microbatch = e->microbatch,
                           .stage = e->stage,
                           .stream = (uint16_t)stream_of(e),
                           .kind = (uint16_t)e->span};
        snprintf(p.name, sizeof p.name, "%s", e->name);
        out[n++] = p;
    }
    return n;
}

static void add_span(struct mw_timeline *t, const struct packed *p)
{
    const struct mw_span span = {.start_ps = mw_time_from_s(p->start_s),
                                 .end_ps = mw_time_from_s(p->end_s),
                                 .bytes = p->bytes,
                                 .rank = p->rank,
                                 .microbatch = p->microbatch,
                                 .stage = p->stage,
                                 .stream = p->stream,
                                 .kind = p->kind,
                                 .name = mw_timeline_name(t, p->name)};
    mw_timeline_add(t, &span);
}

enum mw_status mw_trace_gather(const struct mw_exec *ex,
                               const struct mw_moment *at,
                               struct mw_timeline *t, struct mw_err *err)
{
    struct mw_comm *w = ex->world;
    int64_t n_max = (int64_t)ex->rec->events.n;
    MW_TRY(w->ops->all_reduce(w, &n_max, 1, MW_ELEM_I64, MW_REDUCE_MAX, err));
    size_t room = (size_t)n_max, n_all = room * (size_t)w->size;
    struct packed *mine = mw_calloc(room + 1, sizeof *mine);
    struct packed *all =
        w->rank == 0 ? mw_calloc(n_all + 1, sizeof *all) : NULL;
    pack(ex, at, mine);
    enum mw_status st =
        w->ops->gather(w, mine, room * sizeof *mine, all, 0, err);
    for (size_t i = 0; all && st == MW_OK && i < n_all; i++) {
        if (all[i].name[0] != '\0') {
            add_span(t, &all[i]);
        }
    }
    t->n_ranks = w->size;
    t->is_measured = true;
    mw_free(mine);
    mw_free(all);
    return st;
}
