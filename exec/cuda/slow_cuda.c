/*
 * The test aid --slow on a GPU: an operator of a slowed kind is timed by events
 * around it, and a kernel that waits takes the stream for what is missing to
 * its factor. So a segment's events, hence both clocks, see an operator that
 * is really slower. Timing waits for the stream: steps with --slow have no
 * launches ahead of the device.
 */
#include "exec/cuda/cuda_int.h"

static bool is_slowed(const struct mw_cuda *c, enum mw_op_kind kind)
{
    return c->base.slow.factor[kind] > 1.0;
}

void mw_cuda_slow_begin(struct mw_cuda *c, enum mw_op_kind kind)
{
    if (is_slowed(c, kind)) {
        mw_cuda_wait(c, c->stream, NULL, NULL);
        MW_CUDA_RUN(c, cudaEventRecord, c->slow[0], c->stream);
    }
}

void mw_cuda_slow_end(struct mw_cuda *c, enum mw_op_kind kind)
{
    float ms = 0.0f;
    if (!is_slowed(c, kind)) {
        return;
    }
    MW_CUDA_RUN(c, cudaEventRecord, c->slow[1], c->stream);
    mw_cuda_wait(c, c->stream, NULL, NULL);
    if (MW_CUDA_RUN(c, cudaEventElapsedTime, &ms, c->slow[0], c->slow[1])) {
        double more_ns = 1e6 * (double)ms * (c->base.slow.factor[kind] - 1.0);
        MW_CUDA_RUN(c, mw_k_spin_cuda, (int64_t)more_ns, c->stream);
    }
}
