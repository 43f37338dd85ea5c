/*
 * Tokens behind an all-to-all of NCCL. What comes of several ranks lies by
 * rank; a copy puts it into the order of the rank's experts, and another one
 * puts their outputs back (Megatron-LM, core/transformer/moe/
 * token_dispatcher.py, MoEAlltoAllTokenDispatcher). Kernels that send by
 * themselves (DeepEP, HybridEP) write to where the token belongs; of tokens
 * that were gathered each rank takes its own in order.
 *
 * Left out: one expert a rank, which needs no order; our executor on a CPU,
 * whose calibration has the copies.
 */
#include "sim/step/step_int.h"

static bool sorts(const struct mw_step_price *p)
{
    return p->layout->dispatcher == MW_DISPATCH_STACK
               ? p->ctx->stack.sorts
               : p->layout->dispatcher == MW_DISPATCH_ALLTOALL &&
                     !p->ctx->gpu->is_cpu;
}

double mw_step_sort_bytes(const struct mw_step_price *p, const struct mw_op *op)
{
    const struct mw_moe *moe = &p->scenario->model.moe;
    double copies = moe->top_k;

    if (op->kind != MW_OP_PERMUTE || !sorts(p) || p->layout->ep == 1 ||
        moe->n_experts == p->layout->ep) {
        return 0;
    }
    /* The permutation's own bytes are a token and its copies. */
    return 2 * op->bytes * copies / (copies + 1);
}
