/*
 * What the parts of mw-gpu-check share: the device under test, a pool of
 * random operands that is walked through (so that caches hold nothing useful,
 * as in a real step; random because zeros draw less power and run faster), a
 * clock, and the files that are written.
 */
#ifndef MW_EXEC_CHECK_INT_H
#define MW_EXEC_CHECK_INT_H

#include "base/json.h"
#include "exec/cuda/cuda_int.h"

#include <stdio.h>

struct mw_check {
    struct mw_dev *dev; /* bfloat16 */
    const char *slug;   /* of the device in kernels.csv */
    bool is_quick;      /* a few small sizes, two samples */
    double limit_s;
    int64_t begin_ns;
    FILE *kernels, *raw;
    json_t *out;
    char *pool, *sums; /* bfloat16 operands; float32 statistics, gradients */
    size_t pool_bytes, pool_at, sums_at;
    int32_t *token; /* MW_CHECK_TOKENS of them, below MW_CHECK_VOCAB */
};

enum { MW_CHECK_TOKENS = 16384, MW_CHECK_VOCAB = 8192 };

struct mw_check_time {
    double s, cv; /* median of the samples of one call, spread */
};

/* An operation that is enqueued on the device's stream. */
typedef void (*mw_check_fn)(struct mw_check *c, const void *arg);

/* Seconds of the stream per call: warm-up, then samples of at least 4 ms. The
 * samples go to raw_samples.csv under the label. */
struct mw_check_time mw_check_measure(struct mw_check *c, const char *label,
                                      mw_check_fn fn, const void *arg);

/* n elements of the next random operand; n floats to write or add to. */
void *mw_check_take(struct mw_check *c, size_t n);
float *mw_check_sums(struct mw_check *c, size_t n);

/* True, and noted in the result, when the time is used up. */
bool mw_check_is_late(struct mw_check *c, const char *what);

/* A row of kernels.csv under the key that sim/cost looks up. */
void mw_check_row(struct mw_check *c, const char *op, const char *pass,
                  const int64_t mnk[3], double time_s);

/* ---- the parts; each adds a key to `out` ----------------------------------
 */
void mw_check_gemm(struct mw_check *c);
void mw_check_kernels(struct mw_check *c);
void mw_check_more(struct mw_check *c);
void mw_check_copies(struct mw_check *c);
void mw_check_layers(struct mw_check *c);

#endif
