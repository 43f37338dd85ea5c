/*
 * Executes a plan for some steps and reports: losses, times on both clocks,
 * memory, verification, a timeline. What `meshwright-exec run` does.
 */
#ifndef MW_EXEC_DRIVE_H
#define MW_EXEC_DRIVE_H

#include "base/json.h"
#include "exec/comm.h"
#include "exec/verify.h"

enum mw_run_clock { MW_CLOCK_VIRTUAL, MW_CLOCK_WALL };

struct mw_drive_opts {
    const char *plan;        /* file */
    const char *backend;     /* "host" */
    const char *hwdb;        /* overlay folder or NULL */
    const char *trace;       /* timeline file or NULL */
    enum mw_run_clock clock; /* of the timeline */
    int steps;               /* the first MW_VERIFY_STEPS (fewer when steps are
                                              few) warm up and are not timed */
    int warmup;              /* fewer warm-up steps than that; 0: those */
    bool verify;
    const char *beats; /* heartbeat file or NULL */
    /* Checkpoints: read before the first step, or NULL; written after every
     * so many steps and after the last, or NULL. */
    const char *resume, *checkpoint;
    const char *text; /* file of training data; NULL: the sample */
    const char *base; /* frozen weights of adapters: a checkpoint; or NULL */
    int checkpoint_every; /* 0: after the last step alone */
    struct mw_slow slow;
};

struct mw_drive_result {
    int n_ranks, steps, warmup;
    int first_step;                   /* steps done before: of the checkpoint */
    double *loss;                     /* [steps] */
    double step_time_s, step_time_cv; /* wall: median, spread */
    double virtual_step_time_s, virtual_cv; /* replay of lower quartiles */
    double predicted_step_time_s;           /* of the plan; NaN: none */
    bool is_verified;
    struct mw_verdict verdict;
    /* [n_ranks], rank 0 only: all memory; what F keeps by the model's table,
     * measured and predicted; what F keeps with statistics, token numbers,
     * outputs under way and padding. */
    double *peak_bytes, *activation_peak_bytes, *predicted_activation_bytes,
        *kept_peak_bytes;
    double *host_peak_bytes; /* the device's memory on the host (offload) */
    double *driver_bytes; /* more in use at the end than before the run, as the
                             device's driver counts; 0 where it has none */
    struct mw_traffic *traffic; /* [n_ranks], rank 0 only: of a step */
    char plan_hash[17];
    char mode[16]; /* "dedicated" or "oversubscribed" */
    struct mw_arena arena;
};

/* Collective over world. The result is whole on rank 0. Verification that
 * fails is MW_ENO with a message, and the result is filled. */
enum mw_status mw_drive_run(const struct mw_drive_opts *opts,
                            struct mw_comm *world, struct mw_drive_result *out,
                            struct mw_err *err);
void mw_drive_result_release(struct mw_drive_result *r);
/* The object that `run --json` prints. */
json_t *mw_drive_json(const struct mw_drive_opts *opts,
                      const struct mw_drive_result *r);

#endif
