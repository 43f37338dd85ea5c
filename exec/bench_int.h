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
    /* What a step keeps between passes, cold when it is used again: read, and
     * written or added to. What the operator before has just written: read, and
     * written for the next one. */
    struct mw_pool kept, kept_out, fresh, fresh_out;
    int32_t *token;
    int32_t *row, *choice; /* of experts: where rows go, who was chosen */
    bool is_coming;        /* which half of a permutation is next */
    float *state; /* of the optimizer: weights, gradients, two moments */
    int64_t n_state;
    MW_ARRAY(struct mw_bench_op) ops;
};

/* Calls the operator once through the device table, on fresh operands. */
void mw_bench_call(struct mw_bench *b, const struct mw_bench_op *item);

/* Attention over part of a sequence (item->op.n keys, fewer queries) on the
 * operands of `a`, which are laid out as for whole sequences of op.m. */
void mw_bench_context(struct mw_bench *b, const struct mw_bench_op *item,
                      const struct mw_dev_attention *a);

/* Mixtures of experts: room for tokens, a router, half a permutation. */
void mw_bench_experts_open(struct mw_bench *b, int64_t tokens);
void mw_bench_experts_close(struct mw_bench *b);
void mw_bench_router(struct mw_bench *b, const struct mw_op *op);
void mw_bench_permute(struct mw_bench *b, const struct mw_op *op);

/* Elements of a matrix. */
static inline size_t mw_area(int64_t rows, int64_t cols)
{
    return (size_t)(rows * cols);
}

#endif
