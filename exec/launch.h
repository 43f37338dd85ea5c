/*
 * Starting ranks: `meshwright run` and `calibrate` start mpirun with
 * meshwright-exec and read back what it reports. Knows no MPI itself.
 */
#ifndef MW_EXEC_LAUNCH_H
#define MW_EXEC_LAUNCH_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <stdbool.h>

enum { MW_LAUNCH_ARGS_MAX = 40 };

struct mw_launch {
    int n_ranks;
    bool is_local;       /* all ranks in one process, without mpirun */
    double hang_limit_s; /* of `run`: seconds without a sign of life from any
                            rank after which all are stopped; 0: no watch */
    const char *args[MW_LAUNCH_ARGS_MAX]; /* of meshwright-exec, NULL ended */
};

/* A program of this installation: beside the running one, or in its libexec
 * folder; NULL: in neither. */
const char *mw_launch_beside(struct mw_arena *arena, const char *name);

/* Appends an argument; asserts that there is room. */
void mw_launch_arg(struct mw_launch *launch, const char *arg);

/*
 * Runs it to its end. *out_result (may be NULL) gets the object that the ranks
 * report, to be dropped by the caller; NULL when there is none. Fails with
 *   MW_EMISSING  meshwright-exec is not there, or mpirun where it is needed
 *   MW_EFAILED   a rank died or hangs: one line naming it
 *   else         what the ranks themselves report
 * Root runs, more ranks than cores and single-threaded BLAS are arranged
 * through mpirun's environment.
 */
enum mw_status mw_launch_run(const struct mw_launch *launch,
                             json_t **out_result, struct mw_err *err);

/*
 * The command line as one would type it, for `--print-launch`: mpirun on this
 * machine, then srun for a cluster. Lines end with '\n'.
 */
enum mw_status mw_launch_print(const struct mw_launch *launch,
                               struct mw_str *out, struct mw_err *err);

#endif
