/*
 * What a rank did in a step: a list of events (compute segments, collectives,
 * sends, receives), the same in every step, with the times of each step. Two
 * clocks are kept: the wall, and the device's own busy time (thread CPU time
 * on the host), from which the virtual clock is replayed afterwards
 * (replay_clock.h), so that the step itself carries no clock messages.
 */
#ifndef MW_EXEC_RECORD_H
#define MW_EXEC_RECORD_H

#include "base/mem.h"
#include "exec/dev.h"
#include "exec/heartbeat.h"
#include "sim/engine/timeline.h"
#include "sim/model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_rec_type { MW_REC_COMPUTE, MW_REC_COLL, MW_REC_SEND, MW_REC_RECV };

struct mw_rec_event {
    enum mw_rec_type type;
    enum mw_span_kind span;
    const char *name; /* static */
    int microbatch, stage;
    double bytes;    /* communication: whole buffer */
    enum mw_dim dim; /* whose group */
    bool is_expert;  /* MW_DIM_DP: the ranks that have the same experts */
    bool is_routed;  /* compute: as long as rows came to this rank's experts */
    bool is_dealt;   /* MW_DIM_CP: those that deal out heads to each other */
    bool is_copy;    /* MW_DIM_DP: those that own the same share (dp_shard) */
    enum mw_coll_op coll;
    int peer, tag; /* sends and receives: world rank, message tag */
};

/* Times of one event in one step. */
struct mw_rec_time {
    int64_t busy_ns;          /* compute: device time used */
    int64_t rows;             /* of a routed segment */
    int64_t begin_ns, end_ns; /* wall, monotonic clock */
};

struct mw_rec {
    struct mw_dev *dev;
    struct mw_beat
        *beat;     /* signs of life, also while is_on is false; or NULL */
    bool is_on;    /* off during warm-up and verification */
    int n_steps;   /* recorded so far */
    size_t cursor; /* next event of the step under way */
    MW_ARRAY(struct mw_rec_event) events;
    MW_ARRAY(struct mw_rec_time) times; /* [n_steps][events.n] */
    struct mw_rec_event label;          /* of the open compute segment */
    bool is_open;
    int64_t open_busy_ns, open_wall_ns, open_rows;
};

/* Messages of a step by dimension and collective: how many, and the bytes of
 * all of them (whole buffers; what is sent, of transfers between stages). */
struct mw_traffic {
    double count[MW_DIM_COUNT][MW_COLL_OP_COUNT];
    double bytes[MW_DIM_COUNT][MW_COLL_OP_COUNT];
};
/* Of the first recorded step. */
void mw_rec_traffic(const struct mw_rec *rec, struct mw_traffic *out);

void mw_rec_init(struct mw_rec *rec, struct mw_dev *dev);
void mw_rec_release(struct mw_rec *rec);
void mw_rec_step_begin(struct mw_rec *rec);
void mw_rec_step_end(struct mw_rec *rec);
/* Ends the open compute segment, if any, and opens one. */
void mw_rec_work(struct mw_rec *rec, enum mw_span_kind span, const char *name,
                 int microbatch, int stage);
/* The open segment goes on as one of its own, routed, with so many rows; and
 * after it as before. */
void mw_rec_routed_begin(struct mw_rec *rec, int64_t rows);
void mw_rec_routed_end(struct mw_rec *rec);
/* Between steps: waiting for the other ranks. */
void mw_rec_rest(struct mw_rec *rec, const char *name);
/* Ends the open segment. */
void mw_rec_idle(struct mw_rec *rec);
/* Around a communication: ends the open segment, notes the event, and opens
 * a segment with the same label again if one was open. */
int64_t mw_rec_comm_begin(struct mw_rec *rec);
void mw_rec_comm_end(struct mw_rec *rec, int64_t begin_ns,
                     const struct mw_rec_event *event);
/* Times of event i in recorded step s. */
const struct mw_rec_time *mw_rec_time(const struct mw_rec *rec, int step,
                                      size_t i);

#endif
