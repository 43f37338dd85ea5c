/*
 * Gradients reduced in buckets (Li et al., "PyTorch Distributed", VLDB 2020,
 * section 3.2.3; Megatron-LM, core/distributed/param_and_grad_buffer.py). Of P
 * elements in buckets of E, one collective each:
 *
 *   n = ceil(P / E),  t = T(bytes / n),  all = n t       pieces taken as equal
 *
 * The last backward pass, W long, completes the k-th bucket at W k / n, the
 * first layers' last. What follows the pass is the later of the last bucket and
 * of all behind the first:
 *
 *   exposed = max(t, n t - W (1 - 1/n)) = max(all (1 - o), all - o W)
 *   with o = 1 - t / all
 *
 * which is what a stack leaves exposed (mw_step_exposed_s); its own share, of
 * what it could hide, multiplies o. One bucket hides nothing. With collectives
 * over two groups (dense, experts) each has a last bucket, and t is their sum.
 * ZeRO-1's gathers are the same the other way round: the first bucket is waited
 * for.
 *
 * DeepSpeed copies gradients into a bucket, whose memory grows with E.
 * Left out: that buckets end with a tensor; the copies' time.
 */
#include "sim/step/step_int.h"

#include <math.h>

/* Elements of a bucket; 0: no end. */
static double bucket_of(const struct mw_step_price *p, bool is_expert)
{
    const struct mw_stack *stack = &p->ctx->stack;
    double most = 0;

    if (p->layout->bucket_size > 0) {
        return p->layout->bucket_size;
    }
    if (stack->bucket >= 0) {
        return stack->bucket > 0
                   ? fmax(stack->bucket, stack->bucket_rank * p->layout->dp)
                   : 0;
    }
    for (int unit = 0; unit < p->n_kinds; unit++) {
        const struct mw_unit_size *size = &p->size[unit];

        if (mw_unit_is_layer((enum mw_step_unit)unit)) {
            most = fmax(most,
                        is_expert ? size->expert_params : size->dense_params);
        }
    }
    return most;
}

static double pieces(double params, double bucket)
{
    return bucket > 0 && params > bucket ? ceil(params / bucket) : 1;
}

double mw_step_buckets(const struct mw_step_price *p, int device, double params,
                       bool is_expert)
{
    const struct mw_stack *stack = &p->ctx->stack;
    double chunks = p->layout->vpp, bucket = bucket_of(p, is_expert);

    if (!stack->buckets_first) {
        return pieces(params, bucket);
    }
    if (device > 0 ||
        !(mw_step_overlap(p, MW_OVERLAP_GRADS, stack->overlap_reduce) > 0)) {
        return chunks;
    }
    return chunks - 1 + pieces(params / chunks, bucket);
}

double mw_step_bucket_growth(const struct mw_step_price *p)
{
    const struct mw_stack *stack = &p->ctx->stack;

    return stack->copies_bucket && p->layout->bucket_size > 0
               ? p->layout->bucket_size / stack->bucket
               : 1;
}

double mw_step_pieces_overlap(double overlap, const struct mw_pieces *pieces)
{
    return pieces->all_s > 0 ? overlap * (1 - pieces->last_s / pieces->all_s)
                             : overlap;
}
