/*
 * Measures this machine into an overlay of the hardware database:
 *
 *   kernels.csv   operators of the scenario's model, thread CPU time
 *   curves.csv    collectives and transfers, 2 .. ranks of the cluster
 *   router.csv    with experts: tokens that each gets when training begins
 *   gpus.csv      the device with its measured peak
 *   machine.csv   processor, BLAS, MPI, mode, date, in-situ factor
 *   insitu-plan.yaml, insitu-run.json, insitu-measured.json
 *                 the plan that was run for the factors, and its run
 *
 * An in-situ factor is what a part of a real step (F, B, W, the update) takes
 * over the sum of its kernels timed in loops: cold caches, mostly. The run is
 * of a plan of its own (gpipe over two stages, one micro-batch size) in
 * processes of its own; what is compared later is another plan. The factors
 * belong to a mode: ranks that share cores also share caches.
 */
#ifndef MW_EXEC_CALIBRATE_H
#define MW_EXEC_CALIBRATE_H

#include "base/err.h"
#include "sim/cost/cost.h"

#include <stdbool.h>

struct mw_calibrate_opts {
    const char *scenario; /* NULL: the shipped gpt-small-this-machine */
    const char *dir;      /* made if missing; files are replaced */
    bool is_quiet;        /* no progress on stderr */
};

struct mw_calibrate_result {
    int n_ranks;
    char mode[16];
    char cpu[256], blas_core[256], mpi[256];
    double insitu_factor;                   /* of all parts together */
    double insitu_of[MW_INSITU_COUNT];      /* by part; 0: no such work */
    double insitu_measured_s, insitu_hot_s; /* step: run, and with factor 1 */
    double insitu_error; /* the step simulated with the factors / run - 1 */
    char insitu_layout[64];
    double gemm_flops_per_s; /* best of the measured GEMMs */
    double wall_time_s;
};

enum mw_status mw_calibrate_host(const struct mw_calibrate_opts *opts,
                                 struct mw_calibrate_result *out,
                                 struct mw_err *err);

#endif
