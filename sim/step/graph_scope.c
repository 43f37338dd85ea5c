/*
 * CUDA graphs: what a layout (else the stack) captures is issued by the host as
 * one operator for each phase of a layer; a whole iteration is issued once a
 * step, and the host is never waited for (Megatron-LM
 * megatron/core/transformer/cuda_graphs.py, megatron/core/full_cuda_graph.py).
 * Collectives inside are captured with the rest, those between experts are not:
 * how many tokens go where is known to the host first, unless experts are
 * padded to a capacity and reached by all-to-alls ("moe cuda graph is only
 * supported with drop-padding MoE", "not [...] for flex or allgather token
 * dispatcher", its arguments.py). Left out: memory of the graphs' inputs and
 * pools, gaps between kernels, which a graph makes smaller (op_gap_s is the
 * stack's), and capturing itself, once in a run.
 */
#include "sim/step/step_int.h"

enum mw_cuda_graph mw_step_graph(const struct mw_step_price *p)
{
    return p->layout->cuda_graph != MW_GRAPH_STACK ? p->layout->cuda_graph
           : p->ctx->stack.has_graphs              ? MW_GRAPH_ITERATION
                                                   : MW_GRAPH_NONE;
}

bool mw_step_captures_routing(const struct mw_step_price *p,
                              enum mw_step_unit unit)
{
    enum mw_cuda_graph graph = mw_step_graph(p);
    bool is_fixed = p->scenario->workload.pads_to_capacity &&
                    p->layout->dispatcher != MW_DISPATCH_ALLGATHER &&
                    !mw_step_sends_once(p);

    return graph == MW_GRAPH_ITERATION ||
           (graph == MW_GRAPH_LAYER && mw_unit_is_layer(unit) && is_fixed);
}

bool mw_step_is_captured(const struct mw_step_price *p, enum mw_step_unit unit,
                         const struct mw_op *op)
{
    switch (mw_step_graph(p)) {
    case MW_GRAPH_STACK:
    case MW_GRAPH_NONE:
        return false;
    case MW_GRAPH_ATTN:
        return mw_unit_is_layer(unit) && op->is_attention;
    case MW_GRAPH_LAYER:
        return mw_unit_is_layer(unit) &&
               (op->is_attention || !mw_unit_is_moe(unit) ||
                mw_step_captures_routing(p, unit));
    case MW_GRAPH_ITERATION:
        break;
    }
    return true;
}

double mw_step_graph_s(const struct mw_step_price *p, int n_captured)
{
    return n_captured > 0 && mw_step_graph(p) != MW_GRAPH_ITERATION
               ? p->ctx->stack.host_op_s
               : 0;
}
