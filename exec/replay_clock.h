/*
 * The virtual clock: a recorded step replayed with compute segments as long as
 * the device was busy, and communication as the cost model prices it.
 *
 *   compute     vt += busy time
 *   send        the message carries vt; free for the sender
 *   receive     vt = max(vt, vt of the send + p2p(bytes))
 *   collective  vt = max over the members' vt + cost(bytes, group)
 *
 * (SimGrid's SMPI runs programs in this way: benchmarked compute, modelled
 * communication.) It stays meaningful with more ranks than cores and on a busy
 * machine. It tests compute, order and bubbles; communication is the model's
 * own price on both sides of a comparison and is not tested by it.
 */
#ifndef MW_EXEC_REPLAY_CLOCK_H
#define MW_EXEC_REPLAY_CLOCK_H

#include "exec/exec_int.h"
#include "sim/cost/cost.h"

/* When an event happened: seconds from the begin of the step. For a receive
 * and a collective, start is when the transfer began, not the waiting. */
struct mw_moment {
    double start_s, end_s;
};

/* Seconds that each communication of the recorded step costs in the model
 * (compute events: 0). out has events.n entries. */
void mw_replay_costs(const struct mw_exec *ex, const struct mw_cost_ctx *ctx,
                     double *out);

/*
 * Collective over ex->world. busy_s and cost_s have events.n entries; out
 * (may be NULL) gets as many. *out_step_s is the end of the last rank.
 */
enum mw_status mw_replay(const struct mw_exec *ex, const double *busy_s,
                         const double *cost_s, struct mw_moment *out,
                         double *out_step_s, struct mw_err *err);

/* Busy seconds of each event in one recorded step. */
void mw_replay_busy(const struct mw_rec *rec, int step, double *out);
/*
 * Busy seconds as they usually are: the lower quartile over all recorded steps,
 * since a segment that lost its caches to another process in some of them
 * counts as it ran when left alone. What is as long as rows come to the rank's
 * experts differs from step to step by its nature: it has the lower quartile of
 * a row's time, times the rows of this step.
 */
void mw_replay_usual(const struct mw_rec *rec, int step, double *out);

#endif
