/*
 * A timeline: spans of work per rank and stream, written alike by the
 * simulator and by the executor, so that comparing them is subtraction.
 */
#ifndef MW_SIM_ENGINE_TIMELINE_H
#define MW_SIM_ENGINE_TIMELINE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Streams of a rank. */
enum mw_stream_kind {
    MW_STREAM_COMPUTE,
    MW_STREAM_TP,
    MW_STREAM_CP,
    MW_STREAM_EP,
    MW_STREAM_PP,
    MW_STREAM_DP,
    MW_STREAM_OFFLOAD,
    MW_STREAM_HOST,
    MW_STREAM_COUNT
};
const char *mw_stream_name(enum mw_stream_kind stream); /* "compute" "tp" */
/* By name, any case; -1 when there is none. */
int mw_stream_find(const char *name);

/* Kinds of work that step times are broken down by. */
enum mw_span_kind {
    MW_SPAN_F, /* forward compute of a micro-batch */
    MW_SPAN_B, /* input gradient (with recomputation's own kind below) */
    MW_SPAN_W, /* weight gradient */
    MW_SPAN_RECOMPUTE,
    MW_SPAN_TP, /* tensor-parallel collective */
    MW_SPAN_CP,
    MW_SPAN_EP,
    MW_SPAN_PP, /* transfer between stages */
    MW_SPAN_DP, /* gradient reduction, parameter gather */
    MW_SPAN_OPTIMIZER,
    MW_SPAN_OFFLOAD,
    MW_SPAN_HOST,
    MW_SPAN_BUBBLE, /* derived: nothing to do */
    MW_SPAN_KIND_COUNT
};
const char *mw_span_kind_name(enum mw_span_kind kind); /* "F" "tp" "bubble" */
/* By name, any case; -1 when there is none. */
int mw_span_kind_find(const char *name);

struct mw_span {
    mw_time start_ps, end_ps;
    double flops;
    double bytes;
    int32_t rank;       /* global rank, or the class representative's */
    int32_t microbatch; /* -1: none */
    int32_t stage;      /* virtual stage, -1: none */
    uint16_t stream;    /* enum mw_stream_kind */
    uint16_t kind;      /* enum mw_span_kind */
    uint32_t name;      /* index into names */
};
static_assert(sizeof(struct mw_span) <= 64, "a span fits a cache line");

struct mw_timeline {
    struct {
        struct mw_span *v;
        size_t n, cap;
    } spans;
    struct {
        char **v;
        size_t n, cap;
    } names; /* interned */
    struct {
        uint32_t *v; /* open addressing: index into names + 1, 0 is free */
        size_t n, cap;
    } name_slots;       /* private: finds a name */
    int n_ranks;        /* of the job; at least the largest rank + 1 */
    bool is_measured;   /* executor, else simulator */
    char clock[16];     /* "simulated" "wall" "virtual" */
    char plan_hash[17]; /* of the plan that was run or simulated */
    double step_time_s;
};
void mw_timeline_init(struct mw_timeline *t);
void mw_timeline_release(struct mw_timeline *t);
/* Index of a name, interning it. */
uint32_t mw_timeline_name(struct mw_timeline *t, const char *name);
/* Most ranks of a timeline: tables by rank stay small whatever a file says. */
enum { MW_TIMELINE_RANKS_MAX = 1 << 22 };
/* Copies the span; raises n_ranks to its rank + 1. The span must be right:
 * 0 <= start <= end, known stream, kind and name, finite flops and bytes. */
void mw_timeline_add(struct mw_timeline *t, const struct mw_span *span);
/* step_time_s in picoseconds (nearest), or the end of the last span when it is
 * not set: the window that breakdowns and pictures show. */
mw_time mw_timeline_window_ps(const struct mw_timeline *t);
/* Orders spans by (rank, stream, start, insertion). */
void mw_timeline_sort(struct mw_timeline *t);
/* No overlap on one stream of one rank, end >= start. NULL when right, else
 * a message in buf. Sorts. */
const char *mw_timeline_check(struct mw_timeline *t, char *buf, size_t len);

/*
 * Exposed seconds by kind: at each moment of [0, step time] a rank is in one
 * state: computing (kind of its compute span), else waiting on the
 * communication that is under way on it (TP before CP, EP, PP, DP, OFFLOAD,
 * HOST), else bubble. Averaged over the ranks that have spans (a folded
 * timeline has one rank for each class of equal ones); sums to step_time_s
 * within rounding (1e-12 of it). Spans outside the window are cut off. out has
 * MW_SPAN_KIND_COUNT entries. Sorts. O(spans).
 */
void mw_timeline_breakdown(struct mw_timeline *t, double *out);
/* The same in picoseconds for one rank's n sorted spans between two moments;
 * out_ps has MW_SPAN_KIND_COUNT entries and sums to to_ps - from_ps. */
void mw_timeline_exposed(const struct mw_span *spans, size_t n, mw_time from_ps,
                         mw_time to_ps, mw_time *out_ps);
/* The same for one rank; a rank without spans is all bubble. */
void mw_timeline_breakdown_rank(struct mw_timeline *t, int rank, double *out);
/* The same averaged over the ranks of one pipeline stage (position), as
 * mw_timeline_stages gives it; zeros when there is none. */
void mw_timeline_breakdown_stage(struct mw_timeline *t, int stage, double *out);

/*
 * Pipeline position of each rank that has spans: the smallest virtual stage it
 * works on, -1 when its spans have none. Entries ascend by rank. Sorts. The
 * array is the caller's (mw_array_release).
 */
struct mw_rank_stage {
    int32_t rank, stage;
    size_t first, n; /* its spans in the sorted timeline */
};
struct mw_rank_stages {
    struct mw_rank_stage *v;
    size_t n, cap;
};
void mw_timeline_stages(struct mw_timeline *t, struct mw_rank_stages *out);

/*
 * Chrome trace JSON (opens in Perfetto), streamed span by span: pid = rank,
 * tid = stream, ts/dur in microseconds, args {mb, stage, kind, bytes, flops};
 * `format: 1`, clock, plan hash and step time under "otherData". CSV: one
 * span a row with a header. Both are read back by mw_timeline_load (either,
 * by content); times survive the round trip to the picosecond. Path "-" is
 * stdout. Spans leave in the order they are in. docs/timeline.md has both
 * formats.
 */
enum { MW_TIMELINE_FORMAT = 1, MW_TIMELINE_SIZE_MAX = 256 << 20 };
enum mw_status mw_timeline_write_chrome(const struct mw_timeline *t,
                                        const char *path, struct mw_err *err);
enum mw_status mw_timeline_write_csv(const struct mw_timeline *t,
                                     const char *path, struct mw_err *err);
/* The same onto a stream, whose errors are the caller's to check. */
void mw_timeline_put_chrome(const struct mw_timeline *t, FILE *f);
void mw_timeline_put_csv(const struct mw_timeline *t, FILE *f);
/*
 * Fills *out (released by the caller) only on success. MW_EINPUT with
 * FILE:LINE:COLUMN: not JSON, not a timeline of ours, a newer format, values
 * out of range, spans that overlap on one stream.
 */
enum mw_status mw_timeline_load(const char *path, struct mw_timeline *out,
                                struct mw_err *err);
/* The same from memory (UTF-8, a NUL behind len); name stands for the file in
 * messages. */
enum mw_status mw_timeline_parse(const char *name, const char *text, size_t len,
                                 struct mw_timeline *out, struct mw_err *err);

#endif
