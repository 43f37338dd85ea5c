/*
 * What a replayed schedule costs: bubbles by both definitions, memory under
 * either model, traffic between devices, transfers that nothing hides; and
 * checks of a schedule against the way it will be run.
 *
 *   struct mw_pipe_run run;
 *   mw_pipe_replay(&s, &times, &run, &err);
 *   mw_pipe_stats(&s, &times, &run, &opts, &stats);
 */
#ifndef MW_SIM_PIPE_PIPE_STATS_H
#define MW_SIM_PIPE_PIPE_STATS_H

#include "sim/pipe/schedule.h"

struct mw_pipe_stats_opts {
    /* Part of an activation that only W frees; B frees the rest. 1: all. */
    double w_share;
    /* [n_stages * n_chunks] bytes of a micro-batch's activation; NULL: 0. */
    const double *activation_bytes;
    double
        boundary_bytes; /* a transfer between stages, of a whole micro-batch */
};
struct mw_pipe_stage_stats {
    mw_time busy_ps;    /* its passes and its optimizer step */
    mw_time span_ps;    /* first start to last end */
    mw_time exposed_ps; /* waiting while a transfer is under way */
    double peak;        /* activations of a micro-batch on this stage (all its
                           chunks of a route are one) */
    double peak_bytes;
    uint64_t n_sends; /* to other devices */
};
struct mw_pipe_stats {
    /* 1 - busy of the busiest stage / makespan, or / longest stage span: the
     * zero-bubble authors' rate, for a step whose optimizer is validated
     * afterwards. */
    double bubble_makespan, bubble_span;
    mw_time exposed_ps; /* of the stage that waits longest for transfers */
    uint64_t n_sends;
    double sent_bytes; /* all stages */
    int n_stages;
    struct mw_pipe_stage_stats *stage;
};
void mw_pipe_stats(const struct mw_schedule *s,
                   const struct mw_pipe_times *times,
                   const struct mw_pipe_run *run,
                   const struct mw_pipe_stats_opts *opts,
                   struct mw_pipe_stats *out);
void mw_pipe_stats_release(struct mw_pipe_stats *stats);

/*
 * Runs to the end when a send waits until its receiver has taken the data or
 * one of `buffers` places between the two devices is free? 0: blocking sends,
 * each receive just before the pass that needs it (a rendezvous); negative: no
 * limit (non-blocking, what mw_schedule_check checks). MW_EINPUT names the
 * stages that wait for each other.
 */
enum mw_status mw_schedule_check_sends(const struct mw_schedule *s, int buffers,
                                       struct mw_err *err);
/* Least number of such places with which it ends, at most n_microbatches. */
int mw_schedule_send_buffers(const struct mw_schedule *s);

/*
 * No stage ever holds more than limit activations (in micro-batches on one
 * stage; 0: no limit). MW_EINPUT: "stage 2: F7 takes 9 activations, the limit
 * is 8".
 */
enum mw_status mw_schedule_check_memory(const struct mw_schedule *s,
                                        double limit, double w_share,
                                        struct mw_err *err);

/* Chunks of one route on a device: what "one activation" of a stage means. */
static inline int mw_schedule_route_chunks(const struct mw_schedule *s)
{
    return s->n_chunks / s->n_routes;
}

#endif
