/* Inside of the kernel benchmark: its state, and one call of an operator. */
#ifndef MW_EXEC_BENCH_INT_H
#define MW_EXEC_BENCH_INT_H

#include "base/mem.h"
#include "exec/bench.h"
#include "sim/model/scenario.h"

struct mw_bench_op {
    struct mw_op op;
    int n_seqs;
};

struct mw_bench {
    const struct mw_scenario *scenario;
    struct mw_dev *dev;
    struct mw_pool in, out; /* read; written or added to */
    int32_t *token;
    float *state; /* of the optimizer: weights, gradients, two moments */
    int64_t n_state;
    MW_ARRAY(struct mw_bench_op) ops;
};

/* Calls the operator once through the device table, on fresh operands. */
void mw_bench_call(struct mw_bench *b, const struct mw_bench_op *item);

/* Elements of a matrix. */
static inline size_t mw_area(int64_t rows, int64_t cols)
{
    return (size_t)(rows * cols);
}

#endif
