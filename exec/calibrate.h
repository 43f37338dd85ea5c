/*
 * Measures this machine into an overlay of the hardware database:
 *
 *   kernels.csv   operators of the scenario's model, thread CPU time
 *   curves.csv    collectives and transfers, 2 .. ranks of the cluster
 *   gpus.csv      the device with its measured peak
 *   machine.csv   processor, BLAS, MPI, mode, date, in-situ factor
 *   insitu-plan.yaml, insitu-run.json   the plan that was run for the factor
 *
 * The in-situ factor is what a real step takes over the sum of its kernels
 * timed in loops (cold caches, mostly): the value with which the simulator
 * meets one measured run. That run is of a plan of its own (gpipe over two
 * stages, one micro-batch size) in processes of its own; what is compared
 * later is another plan. The factor belongs to a mode: ranks that share cores
 * also share caches.
 */
#ifndef MW_EXEC_CALIBRATE_H
#define MW_EXEC_CALIBRATE_H

#include "base/err.h"

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
    double insitu_factor;
    double insitu_measured_s, insitu_hot_s; /* step: run, and with factor 1 */
    char insitu_layout[64];
    double gemm_flops_per_s; /* best of the measured GEMMs */
    double wall_time_s;
};

enum mw_status mw_calibrate_host(const struct mw_calibrate_opts *opts,
                                 struct mw_calibrate_result *out,
                                 struct mw_err *err);

#endif
