/* Replay pieces that the checks and the planner's parts share. */
#ifndef MW_SIM_PIPE_REPLAY_INT_H
#define MW_SIM_PIPE_REPLAY_INT_H

#include "sim/pipe/schedule_int.h"

/*
 * High-water mark of a device in micro-batch x chunk units: F takes 1 when it
 * starts, B frees 1 - w_share, W frees w_share (BW all) when they end.
 */
double mw_pipe_peak(const struct mw_schedule *s, int device, double w_share);

#endif
