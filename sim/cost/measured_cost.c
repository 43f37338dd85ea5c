/*
 * Shipped measurements as a rung of the ladder: hwdb/measured.h carries the
 * utilisation of measured shapes over to others. The rates there are those of
 * short benchmarks; training runs at the sustained clock, which slows the
 * arithmetic and leaves the memory alone, and within the power limit.
 *
 * Element-wise operators are not looked up: what was measured are the fused
 * kernels of inference engines, and training stacks differ in what they fuse
 * (sim/cost/stack.c).
 */
#include "sim/cost/cost_int.h"

#include <math.h>
#include <string.h>

static const char *const op_names[MW_MEASURED_OP_COUNT] = {
    "gemm", "gemm_block", "grouped_gemm", "attention"};

static enum mw_status index_one(struct mw_cost_ctx *ctx, int op, int dtype,
                                struct mw_err *err)
{
    struct mw_measured_set *set = &ctx->measured[op][dtype];
    const char *type = mw_dtype_name((enum mw_dtype)dtype);
    enum mw_status status = mw_hwdb_measured(
        ctx->db, ctx->gpu->slug, op_names[op], type, &set->table, err);

    for (int pass = 0; status == MW_OK && set->table.n > 0 && pass < MW_PASS_BW;
         pass++) {
        status = mw_hwdb_kernel_rates(ctx->db, ctx->gpu, op_names[op],
                                      mw_pass_name((enum mw_pass)pass), type,
                                      &set->rates[pass], err);
        set->rates[pass].flops_per_s *= ctx->sustained[dtype];
        if (op == MW_MEASURED_ATTENTION && pass != MW_PASS_F) {
            set->rates[pass].flops_per_s *= ctx->flash_back_of_arch;
        }
    }
    return status;
}

enum mw_status mw_measured_index(struct mw_cost_ctx *ctx, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    if (ctx->gpu->is_cpu) {
        return MW_OK;
    }
    for (int op = 0; op < MW_MEASURED_OP_COUNT; op++) {
        for (int dtype = 0; dtype < MW_DTYPE_COUNT && status == MW_OK;
             dtype++) {
            status = index_one(ctx, op, dtype, err);
        }
    }
    return status;
}

/* A product per expert of the rank, in one launch or in several. */
static bool is_experts(const struct mw_op *op)
{
    return op->batch > 1 && strncmp(op->name, "expert_", 7) == 0;
}

static enum mw_measured_op measured_op_of(const struct mw_cost_ctx *ctx,
                                          const struct mw_op *op)
{
    if (op->kind == MW_OP_ATTENTION) {
        return MW_MEASURED_ATTENTION;
    }
    if (is_experts(op) &&
        ctx->measured[MW_MEASURED_GROUPED][op->dtype].table.n > 0) {
        return MW_MEASURED_GROUPED;
    }
    if (op->dtype == MW_FP8 && op->scaling == MW_SCALE_BLOCK &&
        ctx->measured[MW_MEASURED_GEMM_BLOCK][op->dtype].table.n > 0) {
        return MW_MEASURED_GEMM_BLOCK;
    }
    return MW_MEASURED_GEMM;
}

bool mw_measured_price(const struct mw_cost_ctx *ctx, const struct mw_op *op,
                       struct mw_cost *out, const char **out_source)
{
    enum mw_measured_op which = measured_op_of(ctx, op);
    const struct mw_measured_set *set = &ctx->measured[which][op->dtype];
    struct mw_kernel_shape shape = {(double)op->m, (double)op->n, (double)op->k,
                                    op->batch > 0 ? (double)op->batch : 1};
    struct mw_kernel_near near;
    double time_s;

    if ((op->kind != MW_OP_GEMM && op->kind != MW_OP_ATTENTION) ||
        set->table.n == 0 ||
        !mw_kernel_time(&set->table, &set->rates[op->pass], &shape,
                        mw_op_tile_flops(op), op->bytes, &time_s, &near)) {
        return false;
    }
    time_s /= which == MW_MEASURED_ATTENTION
                  ? (op->pass == MW_PASS_F ? ctx->stack.attention
                                           : ctx->stack.attention_back)
              : is_experts(op) && which != MW_MEASURED_GROUPED
                  ? ctx->stack.grouped
                  : 1;
    time_s = fmax(time_s, op->flops / mw_cost_limit_flops(ctx, op->dtype));
    *out = (struct mw_cost){time_s, MW_RUNG_UTILISATION};
    *out_source = near.point->source;
    return true;
}
