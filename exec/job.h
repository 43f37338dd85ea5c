/*
 * What a set of ranks is to execute: model, work and layout, the layers of
 * each virtual stage, the schedule to walk. Made from a plan, or from a plan
 * folded onto one rank: the reference of --verify.
 */
#ifndef MW_EXEC_JOB_H
#define MW_EXEC_JOB_H

#include "sim/plan/plan.h"

struct mw_job {
    const struct mw_model *model;
    const struct mw_workload *workload;
    struct mw_layout layout;
    int n_virtual;
    const int *layers; /* [n_virtual] */
    int n_microbatches;
    const struct mw_schedule *schedule;
    const char *text; /* training data, of the caller; NULL: the sample */
    size_t text_bytes;
};

/* Borrows from both. */
void mw_job_from_plan(struct mw_job *job, const struct mw_scenario *scenario,
                      const struct mw_plan *plan);

/* The stage that holds the same virtual stages as `stage`, each on the other
 * route: itself when there is one route, or in the middle of an odd number. */
int mw_job_twin_stage(const struct mw_job *job, int stage);
/* Does a stage hold a virtual stage on both routes? */
bool mw_job_is_own_twin(const struct mw_job *job, int stage);

/*
 * Can the executor run this on `backend`? If not, MW_EINPUT naming what it
 * lacks and what to change ("the executor does not run cp 2 ..."), with the key
 * that asks for it.
 */
enum mw_status mw_job_check(const struct mw_job *job, const char *backend,
                            struct mw_err *err);

/* Puts file, line and column in front of such a message: of the plan where its
 * layout or schedule is to blame, else of the scenario. */
void mw_job_blame(const char *plan_file, const struct mw_scenario *scenario,
                  struct mw_err *err);

/* First layer of virtual stage k. */
int mw_job_first_layer(const struct mw_job *job, int virtual_stage);

/*
 * The same work on one rank: all layers, dp * n_microbatches micro-batches in
 * one list. Weight gradients are added in the order in which the plan's own
 * lists run them, so that a pipeline's gradients equal the reference's to the
 * bit. Two routes stay two: each adds to gradients of its own, and the two sums
 * are added at the end of a step, as the two holders' are. Parts of sequences
 * become whole ones. Release the schedule with mw_schedule_release.
 */
enum mw_status mw_job_fold(const struct mw_job *job, int *layers_storage,
                           struct mw_schedule *schedule, struct mw_job *out,
                           struct mw_err *err);

#endif
