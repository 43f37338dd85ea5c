/*
 * Communication curves from logs of nccl-tests: what `calibrate` writes when
 * somebody has run all_reduce_perf and its siblings already. Knows no GPU.
 */
#ifndef MW_EXEC_CALIBRATE_NCCL_H
#define MW_EXEC_CALIBRATE_NCCL_H

#include "base/err.h"

#include <stdbool.h>

struct mw_nccl_import {
    const char *const *logs; /* files; "all_gather=FILE" names the collective
                                of a log whose head is gone */
    int n_logs;
    const char *system; /* of the database, whose curves they become */
    const char *dir;    /* made if missing; its curves.csv is replaced */
    const char *hwdb;   /* overlay that may name the system, or NULL */
    bool is_in_place;   /* take the in-place columns */
};
struct mw_nccl_imported {
    int n_rows, n_curves;
    double bytes_min, bytes_max; /* over all curves */
};
/*
 * Writes DIR/curves.csv: a row for each size of each log (bytes as nccl-tests
 * prints them, microseconds turned into seconds). Sizes of 0 and rows without
 * a time are left out. MW_EUSAGE: unknown system or collective; MW_EINPUT: no
 * table in a log, no line of ranks, wrong results, one key in two logs, fewer
 * than two sizes. The old file stays when it fails.
 */
enum mw_status mw_nccl_import(const struct mw_nccl_import *in,
                              struct mw_nccl_imported *out, struct mw_err *err);

#endif
