/*
 * Passes over gradients that a step makes once, behind their reduction, each
 * priced by what it reads and writes over the rate of a stream. Of P parameters
 * on the rank, of which it updates n (all, or under ZeRO its share), gradients
 * of g bytes:
 *
 *   zeroing    writes P g                     before the next backward pass
 *   scaling    reads and writes P g           where the stack divides by the
 *                                             replicas before it sums
 *   unscaling  reads and writes n g           fp16: the loss was multiplied;
 *              finds what is not finite, whose flag all ranks exchange
 *   norm       reads n g                      sum of squares
 *   clipping   reads and writes n g           by the norm of the whole gradient
 *
 * (Megatron-LM, core/optimizer/optimizer.py and clip_grads.py; torch.nn.utils.
 * clip_grad_norm_.) Megatron-LM clips where the norm is above the limit, as in
 * the first steps of a run, which is not priced; torch multiplies every time;
 * DeepSpeed and InternEvo unscale and clip at once (unscale_and_clip_grads).
 * The sum of squares is one number that the ranks which hold different
 * gradients add up: all of them where ZeRO shares gradients out, else those of
 * a replica. That the host waits for it is part of host_step_s. Left out: that
 * the number is not there before the last stage has its gradients.
 */
#include "sim/step/step_int.h"

#include <math.h>

bool mw_step_clips(const struct mw_step_price *p)
{
    switch (p->scenario->workload.clip) {
    case MW_CLIP_STACK:
        break;
    case MW_CLIP_NORM:
        return true;
    case MW_CLIP_NONE:
        return false;
    }
    return p->ctx->stack.clips;
}

/* Ranks whose gradients differ. */
static struct mw_group norm_group(const struct mw_step_price *p,
                                  const struct mw_layout *l, bool is_shared_out)
{
    int per_node = p->ctx->domain_gpus;
    int n = is_shared_out ? mw_layout_ranks(l) : l->tp * l->pp;
    /* Stages of a replica lie on as many nodes as they fill at least. */
    int in_node = n < per_node ? n : per_node;

    return (struct mw_group){n, (n + per_node - 1) / per_node, in_node, 1};
}

void mw_step_place_numbers(struct mw_step_price *p,
                           const struct mw_layout *layout)
{
    for (int i = 0; i < 2; i++) {
        struct mw_group g = norm_group(p, layout, i == 1);

        p->number_s[i] =
            mw_cost_coll(p->ctx, MW_ALL_REDUCE, MW_ONCE_NUMBER_BYTES, &g, NULL)
                .time_s;
    }
}

struct mw_step_once mw_step_once_of(const struct mw_step_price *p, double whole,
                                    double updated)
{
    const struct mw_stack *stack = &p->ctx->stack;
    bool is_scaled = p->work.dtype == MW_FP16;
    bool clips = mw_step_clips(p);
    double g = p->grad_bytes;
    bool is_shared_out = p->layout->zero >= 1;
    struct mw_step_once once = {.group =
                                    norm_group(p, p->layout, is_shared_out)};

    if (!(whole > 0) || p->ctx->gpu->is_cpu) {
        return once;
    }
    once.bytes[MW_ONCE_ZERO] = whole * g;
    if (stack->prescales && p->layout->dp * p->layout->cp > 1) {
        once.bytes[MW_ONCE_SCALE] = 2 * whole * g;
    }
    if (clips) {
        once.bytes[MW_ONCE_UNSCALE] =
            is_scaled && !stack->combines ? 2 * updated * g : 0;
        once.bytes[MW_ONCE_NORM] = updated * g;
        once.bytes[MW_ONCE_CLIP] = stack->clips_above ? 0 : 2 * updated * g;
        once.n_reduces = is_scaled ? 2 : 1;
        once.reduce_s = once.n_reduces * p->number_s[is_shared_out];
    }
    return once;
}

double mw_step_once_bytes(const struct mw_step_once *once)
{
    double sum = 0;

    for (int i = 0; i < MW_ONCE_COUNT; i++) {
        sum += once->bytes[i];
    }
    return sum;
}
