/*
 * Operators on rows that a router sent: the rank with the most of them is what
 * the others wait for (router_load.h), so a product of m rows takes what one of
 * m f takes, and moves the bytes of as many.
 */
#include "sim/step/step_int.h"

#include <math.h>

/* Bytes of a routed operator that grow with its rows: all, but of a product the
 * experts' weights or their gradients. */
static double row_bytes(const struct mw_op *op)
{
    double el = mw_dtype_bytes(op->dtype), batch = (double)op->batch;

    if (op->kind != MW_OP_GEMM) {
        return op->bytes;
    }
    return op->pass == MW_PASS_W
               ? el * batch * (double)op->k * (double)(op->m + op->n)
               : op->bytes - el * batch * (double)op->n * (double)op->k;
}

/* Of what was routed here, with the busiest rank's rows: the others wait. */
struct mw_cost mw_step_op_cost(const struct mw_step_price *p,
                               const struct mw_op *op, enum mw_phase phase,
                               struct mw_explain *explain)
{
    double load = phase == MW_PHASE_W ? p->router.apart : p->router.synced;
    struct mw_op busiest = *op;
    int64_t *rows = op->kind == MW_OP_GEMM && op->pass == MW_PASS_W
                        ? &busiest.k
                        : &busiest.m;

    busiest.bytes += mw_step_sort_bytes(p, op);
    if (busiest.bytes > op->bytes) {
        return mw_cost_op(p->ctx, &busiest, explain);
    }
    if (!op->is_routed || !(load > 1 || load < 1)) {
        return mw_cost_op(p->ctx, op, explain);
    }
    *rows = (int64_t)llround((double)*rows * load);
    busiest.bytes += (load - 1) * row_bytes(op);
    busiest.flops *= load;
    busiest.cast_elements *= load;
    return mw_cost_op(p->ctx, &busiest, explain);
}
