/* Replay pieces that the checks and the planner's parts share. */
#ifndef MW_SIM_PIPE_REPLAY_INT_H
#define MW_SIM_PIPE_REPLAY_INT_H

#include "sim/pipe/schedule_int.h"

/*
 * High-water mark of a device in micro-batch x chunk units: F takes 1 when it
 * starts, B frees 1 - w_share, W frees w_share (BW all) when they end.
 */
double mw_pipe_peak(const struct mw_schedule *s, int device, double w_share);
/* The same in bytes: chunk c's activation of a micro-batch is bytes[c]. */
double mw_pipe_peak_weighted(const struct mw_schedule *s, int device,
                             double w_share, const double *bytes);
/* What a pass adds to the activations held: F 1, BW -1, B -(1 - w_share), ...
 */
double mw_pipe_held(const struct mw_slot *slot, double w_share);

#endif
