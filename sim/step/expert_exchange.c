/*
 * Tokens that go to their experts and results that come back, as the layout's
 * dispatcher or the stack does it. Megatron's descendants send a token once to
 * each node (inside a node: to each rank) that has experts of it, by kernels
 * made for it (DeepEP, HybridEP). Where such kernels were measured (hwdb
 * coll_moe.csv: DeepEP on Hopper inside a node and over 2 to 8, on Blackwell
 * inside a node) an exchange takes what they took, else what an all-to-all of
 * as many bytes takes. With uneven routers it ends when the rank (between
 * nodes, by such kernels, the node) that most tokens go to has them, or has
 * sent them back. Left out: oversubscribed leaves of measured kernels; ranks on
 * one host's cores, whose exchanges share its memory, so that the sum counts
 * and not the busiest.
 */
#include "sim/cost/leaf.h"
#include "sim/step/step_int.h"

#include <math.h>

bool mw_step_sends_once(const struct mw_step_price *p)
{
    switch (p->layout->dispatcher) {
    case MW_DISPATCH_STACK:
        return p->ctx->stack.sends_once;
    case MW_DISPATCH_ALLTOALL:
    case MW_DISPATCH_ALLGATHER:
        return false;
    case MW_DISPATCH_DEEPEP:
    case MW_DISPATCH_HYBRIDEP:
        break;
    }
    return true;
}

/*
 * Of k copies of a token that go to experts spread over N nodes, those that
 * leave it when each node gets it once:
 *   (N-1) (1 - (1 - 1/N)^k)  of  k (N-1) / N
 *
 * With its experts on M < N nodes (group-limited routing), M for N on the
 * left, of which (N-1) / N are other nodes.
 */
static double once_per_node(const struct mw_step_price *p,
                            const struct mw_op *op)
{
    double n = p->group[op->dim].n_nodes, k = p->scenario->model.moe.top_k;
    double limit = p->scenario->model.moe.node_limit;

    if (!mw_step_sends_once(p) || op->coll != MW_ALL_TO_ALL || n <= 1) {
        return 1;
    }
    if (limit > 0) {
        n = fmin(n, limit);
    }
    return n * (1 - pow(1 - 1 / n, k)) / k;
}

static double load_of(const struct mw_step_price *p, const struct mw_op *op)
{
    if (op->dim != MW_DIM_EP || op->coll != MW_ALL_TO_ALL ||
        p->ctx->gpu->is_cpu) {
        return 1;
    }
    return mw_step_sends_once(p) && p->group[MW_DIM_EP].n_nodes > 1
               ? p->router.nodes
               : p->router.synced;
}

double mw_step_coll_bytes(const struct mw_step_price *p, const struct mw_op *op)
{
    return op->coll_bytes * once_per_node(p, op) * load_of(p, op);
}

/* A scale of 4 bytes for 128 elements of FP8 travels along (DeepEP). */
static double with_scales(const struct mw_step_price *p, const struct mw_op *op)
{
    bool is_fp8 = p->scenario->model.moe.fp8_dispatch && !op->is_return;

    return is_fp8 ? 1 + 4.0 / 128 : 1;
}

static bool is_measured(const struct mw_step_price *p, const struct mw_op *op,
                        struct mw_cost *out, struct mw_explain *explain)
{
    const struct mw_moe *moe = &p->scenario->model.moe;

    if (!mw_step_sends_once(p) || op->dim != MW_DIM_EP ||
        op->coll != MW_ALL_TO_ALL || p->group[MW_DIM_EP].n_ranks <= 1 ||
        p->layout->dispatcher == MW_DISPATCH_HYBRIDEP ||
        mw_leaf_matters(&p->scenario->cluster)) {
        return false;
    }
    const struct mw_expert_exchange x = {
        .n_experts = moe->n_experts,
        .top_k = moe->top_k,
        .node_limit = moe->node_limit,
        .token_bytes =
            op->coll_bytes / moe->top_k * with_scales(p, op) * load_of(p, op),
        .is_return = op->is_return,
        .group = p->group[MW_DIM_EP]};

    return mw_cost_experts(p->ctx, &x, out, explain);
}

struct mw_cost mw_step_coll_cost(const struct mw_step_price *p,
                                 const struct mw_op *op,
                                 struct mw_explain *explain)
{
    struct mw_cost cost;

    return is_measured(p, op, &cost, explain)
               ? cost
               : mw_cost_coll(p->ctx, op->coll, mw_step_coll_bytes(p, op),
                              mw_step_op_group(p, op), explain);
}
