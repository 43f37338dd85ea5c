/*
 * What a pass hides of its own collectives, and what it takes longer for it
 * (contend.c): first those that the other product of a backward pass stands
 * beside, then the rest of the pass, which no two collectives use twice.
 *
 * Where a stack cuts products and the collectives of tensor parallelism into a
 * part for each of the n ranks (Transformer Engine's user buffers; PyTorch's
 * asynchronous tensor parallelism: Wang et al., ASPLOS 2023, section 5), one of
 * them has nothing beside it, the last to be reduced or the first gathered, so
 * that 1 - 1/n is what can be hidden; and n products of m / n rows take longer
 * than one of m by what the table of products says. Reductions of input
 * gradients run beside the weight gradient whole.
 */
#include "sim/step/hide.h"

#include <math.h>
#include <string.h>

bool mw_step_is_async(const struct mw_op *op)
{
    return op->kind == MW_OP_COLL && op->dim == MW_DIM_TP &&
           (op->pass == MW_PASS_W ||
            (op->pass == MW_PASS_B && op->coll != MW_ALL_GATHER));
}

static bool is_chunked(const struct mw_step_price *p)
{
    const struct mw_stack *stack = &p->ctx->stack;

    return stack->chunks_tp && p->layout->sp && p->layout->tp > 1 &&
           mw_step_overlap(p, MW_OVERLAP_TP, stack->overlap_tp) > 0;
}

/* Is it the product that a TP collective is cut together with? */
static bool has_partner(const struct mw_ops *ops, const struct mw_op *product)
{
    for (size_t i = 0; i < ops->n; i++) {
        const struct mw_op *op = &ops->v[i];

        if (op->kind == MW_OP_COLL && op->dim == MW_DIM_TP &&
            !mw_step_is_async(op) && strcmp(op->name, product->name) == 0) {
            return true;
        }
    }
    return false;
}

double mw_step_chunks_s(const struct mw_step_price *p, enum mw_step_unit unit,
                        const struct mw_ops *ops)
{
    int n = p->layout->tp;
    double more_s = 0;

    if (!is_chunked(p) || !mw_unit_is_layer(unit)) {
        return 0;
    }
    for (size_t i = 0; i < ops->n; i++) {
        struct mw_op part = ops->v[i];

        if (part.kind != MW_OP_GEMM || part.pass == MW_PASS_W || part.m < n ||
            !has_partner(ops, &part)) {
            continue;
        }
        double whole_s = mw_cost_op(p->ctx, &part, NULL).time_s;

        /* Each part reads the weights. */
        double weight_bytes =
            (double)part.n * (double)part.k * mw_dtype_bytes(part.dtype);

        part.bytes = (part.bytes - weight_bytes) / n + weight_bytes;
        part.m /= n;
        part.flops /= n;
        part.model_flops /= n;
        part.cast_elements /= n;
        more_s += fmax(0, n * mw_cost_op(p->ctx, &part, NULL).time_s - whole_s);
    }
    return more_s;
}

/* Part of a layer's collectives that the stack hides behind the pass's own
 * work. */
static double overlap_of(const struct mw_step_price *p, enum mw_lane lane)
{
    const struct mw_stack *stack = &p->ctx->stack;

    switch (lane) {
    case MW_LANE_TP:
        return mw_step_overlap(p, MW_OVERLAP_TP, stack->overlap_tp) *
               (is_chunked(p) ? 1 - 1.0 / p->layout->tp : 1);
    case MW_LANE_CP:
        return stack->overlap_cp;
    case MW_LANE_EP:
        return mw_step_overlap(p, MW_OVERLAP_EP, stack->overlap_ep);
    case MW_LANE_COMPUTE:
    case MW_LANE_DP:
    case MW_LANE_OFFLOAD:
    case MW_LANE_HOST:
    case MW_LANE_COUNT:
        break;
    }
    return 0;
}

static double matrix_part(const struct mw_phase_cost *c)
{
    double all_s = c->s[MW_LANE_COMPUTE];

    return all_s > 0 ? fmin(c->matrix_s / all_s, 1) : 0;
}

/* Exchanges of a ring have had their windows. */
void mw_step_hide(struct mw_step_price *p, enum mw_step_unit unit,
                  const struct mw_beside_s beside[MW_PHASE_COUNT])
{
    struct mw_phase_cost *cost = p->cost[unit].phase;
    double slowed_s[MW_PHASE_COUNT] = {0};

    for (int i = 0; i < MW_PHASE_COUNT; i++) {
        double shared_s =
            mw_step_hide_beside(p, unit, (enum mw_phase)i, beside);
        double window_s = fmax(0, cost[i].s[MW_LANE_COMPUTE] - shared_s);

        if (cost[i].async_s > 0) {
            enum mw_phase other = i == MW_PHASE_B ? MW_PHASE_W : MW_PHASE_B;
            struct mw_overlapped at =
                mw_step_beside(cost[i].async_s,
                               mw_step_overlap(p, MW_OVERLAP_TP,
                                               p->ctx->stack.overlap_tp_back),
                               cost[other].s[MW_LANE_COMPUTE],
                               mw_step_growth(p, &cost[i].load[MW_LANE_TP],
                                              matrix_part(&cost[other])));

            mw_step_move_behind(p, unit, (enum mw_phase)i, MW_LANE_TP, other,
                                at.hidden_s);
            slowed_s[other] += at.slowed_s;
        }
        for (int lane = MW_LANE_TP; lane <= MW_LANE_EP; lane++) {
            struct mw_overlapped at = mw_step_beside(
                cost[i].s[lane], overlap_of(p, (enum mw_lane)lane), window_s,
                mw_step_growth(p, &cost[i].load[lane], matrix_part(&cost[i])));

            mw_step_move_behind(p, unit, (enum mw_phase)i, (enum mw_lane)lane,
                                (enum mw_phase)i, at.hidden_s);
            window_s -= at.hidden_s - at.slowed_s;
            slowed_s[i] += at.slowed_s;
        }
        cost[i].s[MW_LANE_CP] += cost[i].ring_s;
    }
    for (int i = 0; i < MW_PHASE_COUNT; i++) {
        cost[i].s[MW_LANE_COMPUTE] += slowed_s[i];
        cost[i].slowed_s += slowed_s[i];
    }
}
