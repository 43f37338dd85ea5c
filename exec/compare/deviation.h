/*
 * Where two timelines of one plan part, and why.
 *
 * A pass is all that a rank does for one (kind, micro-batch, virtual stage):
 * its compute spans and the collectives inside of it, from the first start to
 * the last end; recomputation, B and W that follow each other are one. What
 * comes once per step (reduction, optimizer) is one item of its kind. Passes of
 * a simulated rank are paired with those of the same rank measured, by key and
 * occurrence. On a rank, in the order of the simulated passes,
 *
 *   end of pass i = sum of durations up to i + sum of gaps before them
 *
 * holds for both sides, so a difference of ends is exactly the sum of the
 * differences of durations, by kind, and of gaps (waiting). The deviation
 * reported is the pass that ends earliest among those whose ends differ by more
 * than a part of the step.
 */
#ifndef MW_EXEC_COMPARE_DEVIATION_H
#define MW_EXEC_COMPARE_DEVIATION_H

#include "base/mem.h"
#include "sim/engine/timeline.h"

#include <stdbool.h>

struct mw_timeline_pass {
    int32_t rank, microbatch, stage; /* -1: once per step */
    uint16_t kind;                   /* of its compute, else of itself */
    uint16_t part;                   /* occurrence of the key */
    mw_time start_ps, end_ps;
};
struct mw_timeline_passes {
    struct mw_timeline_pass *v;
    size_t n, cap;
};
/* The passes of a rank, by start. Sorts the timeline; clears *out first. Spans
 * of transfers between stages belong to no pass: they are waiting. */
void mw_timeline_passes_of(struct mw_timeline *t, int rank,
                           struct mw_timeline_passes *out);

enum mw_deviation_why {
    MW_DEVIATION_NONE, /* never more than the tolerance */
    MW_DEVIATION_OWN,  /* the pass itself has another duration */
    MW_DEVIATION_SUM,  /* passes before it, each a little */
    MW_DEVIATION_WAIT  /* it waits for another rank */
};

struct mw_deviation {
    enum mw_deviation_why why;
    struct mw_timeline_pass simulated, measured;
    double difference_s; /* end simulated - end measured; + is predicted late */
    double own_s;        /* of it by the pass's own duration */
    double by_kind_s[MW_SPAN_KIND_COUNT]; /* by passes before it on the rank */
    double waiting_s;                     /* by gaps on the rank */
    /* why WAIT: the pass on another rank that it waits for, if in both. */
    bool has_peer;
    struct mw_timeline_pass peer;
    double peer_difference_s;
    /* Passes that only one side has: the timelines are not of one order. */
    size_t n_unpaired;
};
/*
 * tolerance is a part of the measured step time: 0.02. Ranks that only one side
 * has are left out (a folded timeline has one for each class of equal ones).
 * O(spans log spans).
 */
void mw_deviation_find(struct mw_timeline *simulated,
                       struct mw_timeline *measured, double tolerance,
                       struct mw_deviation *out);

/* One sentence without a full stop; buf is returned. */
enum { MW_DEVIATION_TEXT_MAX = 512 };
const char *mw_deviation_text(const struct mw_deviation *d,
                              char buf[MW_DEVIATION_TEXT_MAX]);

#endif
