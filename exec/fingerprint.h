/*
 * What a calibration depends on: processor, BLAS and the kernels it chose,
 * MPI, and whether ranks share cores. Recorded in machine.csv of an overlay;
 * an overlay that differs from what runs now is stale and refused.
 */
#ifndef MW_EXEC_FINGERPRINT_H
#define MW_EXEC_FINGERPRINT_H

#include "base/err.h"
#include "base/json.h"
#include "hwdb/hwdb.h"

enum { MW_FINGERPRINT_TEXT = 256 };

struct mw_fingerprint {
    char cpu[MW_FINGERPRINT_TEXT];
    char blas_core[MW_FINGERPRINT_TEXT];
    char blas_config[MW_FINGERPRINT_TEXT];
    char mpi[MW_FINGERPRINT_TEXT];
    int n_cores;
};

void mw_fingerprint_read(struct mw_fingerprint *out);

/* The same as an object: cpu, blas_core, blas_config, mpi, cores. */
json_t *mw_fingerprint_json(void);

/* "dedicated" when every rank has a core of its own, else
 * "oversubscribed". */
const char *mw_fingerprint_mode(int n_ranks);

/*
 * MW_OK when there is no overlay or its record equals this machine and mode;
 * MW_EINPUT naming file, key, both values: recalibrate.
 */
enum mw_status mw_fingerprint_check(const struct mw_hwdb *db, int n_ranks,
                                    struct mw_err *err);

#endif
