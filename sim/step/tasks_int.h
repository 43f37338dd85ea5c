/* Private to sim/step: the task graph of a step and its spans. */
#ifndef MW_SIM_STEP_TASKS_INT_H
#define MW_SIM_STEP_TASKS_INT_H

#include "sim/engine/engine.h"
#include "sim/step/step_int.h"

struct mw_step_tasks {
    struct mw_graph *graph;
    struct {
        struct mw_span *v; /* one a task: all but the times */
        size_t n, cap;
    } spans;
    struct mw_timeline *timeline; /* where names are interned */
    mw_task_id held_task; /* gradient of the embedding's holders, on all of
                             them; UINT32_MAX: none */
    int n_held;
    int32_t held_rank[4];    /* [n_held], the task's own first */
    bool no_sharing;         /* every task has its wires to itself */
    const double *slot_pace; /* per slot of the schedule: what its computing and
                                issuing take longer; NULL: nothing */
};

/* timeline is the caller's and gets the spans when the graph has run. */
void mw_step_tasks_init(struct mw_step_tasks *t, struct mw_timeline *timeline);
void mw_step_tasks_release(struct mw_step_tasks *t);
void mw_step_tasks_build(struct mw_step_tasks *t,
                         const struct mw_step_frame *frame,
                         const struct mw_schedule *schedule);
/* Runs the graph; with_spans moves the spans with their times to the
 * timeline. MW_EFAILED when the schedule deadlocks. */
enum mw_status mw_step_tasks_run(struct mw_step_tasks *t, bool with_spans,
                                 mw_time *out_end_ps, uint64_t *out_events,
                                 struct mw_err *err);

#endif
