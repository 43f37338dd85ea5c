/*
 * Private to sim/step: a schedule on its way to tasks. passes.c walks it,
 * traffic.c says which wires its tasks use.
 */
#ifndef MW_SIM_STEP_WALK_INT_H
#define MW_SIM_STEP_WALK_INT_H

#include "sim/step/tasks_int.h"

#define NO_TASK UINT32_MAX

/* Tasks of one slot: where it begins, where its result is ready to be sent,
 * where it ends; its transfer, if there is one. */
struct slot_tasks {
    mw_task_id first, ready, last, transfer;
};

/* Wires of a device, ways out and in. */
struct ends {
    mw_wire_id out[MW_WIRE_KINDS], in[MW_WIRE_KINDS];
};
/* What the lanes of a virtual stage take of them. */
struct parts {
    double of[MW_PHASE_COUNT][MW_LANE_COUNT][MW_WIRE_KINDS];
};

struct walk {
    struct mw_step_tasks *t;
    const struct mw_step_frame *frame;
    const struct mw_schedule *s;
    bool sends_early;
    struct mw_arena arena;
    mw_stream_id (*stream)[MW_STREAM_COUNT]; /* per device */
    mw_task_id *last;                        /* per device */
    struct slot_tasks *slots;
    uint32_t *f_slot, *b_slot; /* by (device, chunk, item) */
    mw_time *transfer_ps;      /* mw_walk_transfer_at, -1: unknown */
    struct ends *wire;         /* per device; NULL: nothing is shared */
    struct parts *part;        /* per virtual stage */
    double (*transfer_part)[MW_WIRE_KINDS]; /* as transfer_ps */
    mw_task_id *hidden;              /* per device: reduction behind passes */
    uint32_t *hidden_from;           /* the slot that it begins with */
    double twin_part[MW_WIRE_KINDS]; /* of the tied embedding's reduction */
};

/* ---- passes.c ---------------------------------------------------------- */
/* Streams, wires and tables; nothing is walked yet. The frame stays the
 * caller's. Release with mw_walk_release. */
void mw_walk_init(struct walk *w, struct mw_step_tasks *t,
                  const struct mw_step_frame *frame,
                  const struct mw_schedule *s);
void mw_walk_release(struct walk *w);
extern const enum mw_stream_kind mw_walk_stream_of_lane[MW_LANE_COUNT];
/* Device that takes the slot's result, or -1; how long the way takes. */
int mw_walk_receiver(const struct walk *w, int device,
                     const struct mw_slot *slot);
mw_time mw_walk_transfer_ps(struct walk *w, int from, int to, int n_states);
/* Hidden states of a token in the slot's result; the place of such a transfer
 * in transfer_ps and transfer_part, and how many places there are. */
int mw_walk_states(const struct walk *w, int device,
                   const struct mw_slot *slot);
size_t mw_walk_transfer_at(const struct walk *w, int from, int to,
                           int n_states);
size_t mw_walk_transfers(const struct walk *w);
/* Adds a task after the device's last one. */
mw_task_id mw_walk_chain(struct walk *w, int device, mw_time ps,
                         const struct mw_span *span);
/* A span of the device's first rank, of no micro-batch and stage. */
struct mw_span mw_walk_span(const struct walk *w, int device,
                            enum mw_stream_kind stream, enum mw_span_kind kind,
                            const char *name);

/* ---- traffic.c: nothing but mw_traffic_init unless w->wire is there ------ */
/* Makes the wires; adds what is hidden of the parameter gather. */
void mw_traffic_init(struct walk *w);
/* The task takes part of the ways out of `from` and into `to`. */
void mw_traffic_use(struct walk *w, mw_task_id task, int from, int to,
                    const double part[MW_WIRE_KINDS]);
/* The hidden part of the reduction, from the pass on that comes next. */
void mw_traffic_start_hidden(struct walk *w, int device);

#endif
