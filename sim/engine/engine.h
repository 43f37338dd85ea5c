/*
 * Simulated time: an event queue, and task graphs on streams.
 *
 * Event queue: 4-ary heap by (time, sequence number); equal times leave in
 * insertion order, so a run is a function of its input.
 *
 * Task graph: tasks with a duration, each on one stream (a FIFO resource: one
 * task at a time, in the order the tasks were added), starting when their
 * predecessors have ended and their stream is free. A collective that occupies
 * several streams at once is one task with several streams.
 */
#ifndef MW_SIM_ENGINE_ENGINE_H
#define MW_SIM_ENGINE_ENGINE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- event queue -----------------------------------------------------------
 */
struct mw_event {
    mw_time t_ps;
    uint64_t seq;  /* assigned by push */
    uint32_t kind; /* the owner's */
    uint32_t arg;
};
struct mw_evq {
    struct mw_event *v;
    size_t n, cap;
    uint64_t next_seq;
};
void mw_evq_init(struct mw_evq *q);
void mw_evq_release(struct mw_evq *q);
void mw_evq_push(struct mw_evq *q, mw_time t_ps, uint32_t kind, uint32_t arg);
/* Earliest event; false when empty. O(log n). */
bool mw_evq_pop(struct mw_evq *q, struct mw_event *out);
/* The heap property holds (for tests). O(n). */
bool mw_evq_check(const struct mw_evq *q);

/* ---- task graph
 * --------------------------------------------------------------- */
typedef uint32_t mw_task_id;
typedef uint32_t mw_stream_id;

struct mw_graph; /* owns its memory */
struct mw_graph *mw_graph_new(void);
void mw_graph_free(struct mw_graph *g);
/* No tasks, no streams; the memory stays for the next graph. */
void mw_graph_clear(struct mw_graph *g);
mw_stream_id mw_graph_stream(struct mw_graph *g);
/* A task of `duration_ps` on stream; tasks of one stream run in the order
 * they are added. tag is the caller's. Returns ids 0, 1, 2, ... */
mw_task_id mw_graph_task(struct mw_graph *g, mw_stream_id stream,
                         mw_time duration_ps, uint64_t tag);
/* The task also occupies another stream, after the tasks that are on it now:
 * it starts when all its streams are free and keeps each until it ends. */
void mw_graph_also_on(struct mw_graph *g, mw_task_id task, mw_stream_id stream);
/* `after` starts no earlier than `before` ends plus lag_ps (which may be
 * negative). The tasks may be in any order; a cycle is found by the run. */
void mw_graph_dep(struct mw_graph *g, mw_task_id before, mw_task_id after,
                  mw_time lag_ps);
size_t mw_graph_size(const struct mw_graph *g);

/*
 * A wire that several tasks can use at once: a NIC in one direction, a link.
 * A task that runs alone takes `part` of it (0 to 1, time-averaged). Where
 * those that run at a time want more than all of it, each gets at most an equal
 * share and who wants less leaves the rest to the others (max-min fair on each
 * wire); a task on several wires goes at the pace of its slowest. Wires that
 * never are too narrow change nothing, to the picosecond. Dependencies of such
 * a graph may not have negative lags.
 */
typedef uint32_t mw_wire_id;
mw_wire_id mw_graph_wire(struct mw_graph *g);
void mw_graph_use(struct mw_graph *g, mw_task_id task, mw_wire_id wire,
                  double part);

/*
 * Runs; fills start and end (arrays of mw_graph_size(), caller's). Returns
 * MW_EFAILED naming a task on a cycle when it cannot end. *out_end_ps is the
 * end of the last task, *out_events (may be NULL) the events handled: one a
 * task. MW_EFAILED as well when times pass the range of mw_time (106 days).
 * May be called again after more was added. O(tasks + edges).
 *
 *   struct mw_graph *g = mw_graph_new();
 *   mw_stream_id s = mw_graph_stream(g);
 *   mw_task_id a = mw_graph_task(g, s, 100, 0);
 *   mw_task_id b = mw_graph_task(g, s, 50, 1);   runs from 100 to 150
 */
enum mw_status mw_graph_run(struct mw_graph *g, mw_time *start_ps,
                            mw_time *end_ps, mw_time *out_end_ps,
                            uint64_t *out_events, struct mw_err *err);
/* When the last run would have ended had every wire been wide enough. */
mw_time mw_graph_alone_ps(const struct mw_graph *g);
uint64_t mw_graph_tag(const struct mw_graph *g, mw_task_id task);

#endif
