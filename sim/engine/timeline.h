/*
 * A timeline: spans of work per rank and stream, written alike by the
 * simulator and by the executor, so that comparing them is subtraction.
 */
#ifndef MW_SIM_ENGINE_TIMELINE_H
#define MW_SIM_ENGINE_TIMELINE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"

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

/* Kinds of work that step times are broken down by. */
enum mw_span_kind {
    MW_SPAN_F,      /* forward compute of a micro-batch */
    MW_SPAN_B,      /* input gradient (with recomputation's own kind below) */
    MW_SPAN_W,      /* weight gradient */
    MW_SPAN_RECOMPUTE,
    MW_SPAN_TP,     /* tensor-parallel collective */
    MW_SPAN_CP,
    MW_SPAN_EP,
    MW_SPAN_PP,     /* transfer between stages */
    MW_SPAN_DP,     /* gradient reduction, parameter gather */
    MW_SPAN_OPTIMIZER,
    MW_SPAN_OFFLOAD,
    MW_SPAN_HOST,
    MW_SPAN_BUBBLE, /* derived: nothing to do */
    MW_SPAN_KIND_COUNT
};
const char *mw_span_kind_name(enum mw_span_kind kind); /* "F" "tp" "bubble" */

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
    } names;             /* interned */
    int n_ranks;
    bool is_measured;    /* executor, else simulator */
    char clock[16];      /* "simulated" "wall" "virtual" */
    char plan_hash[17];  /* of the plan that was run or simulated */
    double step_time_s;
};
void mw_timeline_init(struct mw_timeline *t);
void mw_timeline_release(struct mw_timeline *t);
/* Index of a name, interning it. */
uint32_t mw_timeline_name(struct mw_timeline *t, const char *name);
void mw_timeline_add(struct mw_timeline *t, const struct mw_span *span);
/* Orders spans by (rank, stream, start, insertion). */
void mw_timeline_sort(struct mw_timeline *t);
/* No overlap on one stream of one rank, end >= start. NULL when right, else
 * a message in buf. Sorts. */
const char *mw_timeline_check(struct mw_timeline *t, char *buf, size_t len);

/*
 * Exposed seconds by kind: at each moment a rank is in one state: computing
 * (kind of its compute span), else waiting on the communication that is under
 * way on it (TP before CP, EP, PP, DP, OFFLOAD, HOST), else bubble. Averaged
 * over ranks; sums to step_time_s. out has MW_SPAN_KIND_COUNT entries.
 */
void mw_timeline_breakdown(struct mw_timeline *t, double *out);
/* The same for one rank. */
void mw_timeline_breakdown_rank(struct mw_timeline *t, int rank, double *out);

/*
 * Chrome trace JSON (opens in Perfetto), streamed span by span: pid = rank,
 * tid = stream, ts/dur in microseconds, args {mb, stage, kind, bytes, flops};
 * `format: 1`, clock, plan hash and step time under "otherData". CSV: one
 * span a row with a header. Both are read back by mw_timeline_load (either,
 * by content); times survive the round trip to the picosecond.
 */
enum mw_status mw_timeline_write_chrome(const struct mw_timeline *t,
                                        const char *path, struct mw_err *err);
enum mw_status mw_timeline_write_csv(const struct mw_timeline *t,
                                     const char *path, struct mw_err *err);
enum mw_status mw_timeline_load(const char *path, struct mw_timeline *out,
                                struct mw_err *err);

#endif
