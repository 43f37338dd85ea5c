/* From a recorded step to a timeline of all ranks, on rank 0. */
#ifndef MW_EXEC_TRACE_H
#define MW_EXEC_TRACE_H

#include "exec/replay_clock.h"
#include "sim/engine/timeline.h"

/* Moments of the recorded events on the wall clock in step `step`, seconds
 * from the earliest begin over all ranks. Collective over ex->world. */
enum mw_status mw_trace_wall_moments(const struct mw_exec *ex, int step,
                                     struct mw_moment *out, struct mw_err *err);

/* Collects spans of all ranks into t on rank 0. Collective. */
enum mw_status mw_trace_gather(const struct mw_exec *ex,
                               const struct mw_moment *at,
                               struct mw_timeline *t, struct mw_err *err);

#endif
