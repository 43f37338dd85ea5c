/*
 * One operator on the device: the ladder
 *
 *   exact row -> interpolation in the measured table -> utilisation of
 *   measured neighbours -> roofline
 *
 * Roofline (Williams, Waterman and Patterson, CACM 52(4), 2009):
 *   t = max(flops / (peak * efficiency), bytes / (bandwidth * efficiency))
 *       + kernel launch
 * Efficiencies are rows of the database. For a GEMM the first is multiplied
 * by a shape factor (gemm_shape_factor below); fused attention takes a share
 * of the GEMM rate. Both run at the clock that training sustains, which a
 * benchmark of a second does not show, and no faster than the power limit
 * allows where that is known: what does not use the device's whole rate is not
 * slowed by it. Other operators are bound by memory;
 * their few FLOPs run at the fp32 rate, their bytes at the stack's share of the
 * stream rate. On a CPU everything is scaled by the in-situ factor, of its own
 * part of the step where that is known.
 */
#include "sim/cost/cost_int.h"

#include <math.h>

static enum mw_dtype gemm_dtype(const struct mw_cost_ctx *ctx,
                                enum mw_dtype dtype)
{
    double peak = mw_cost_peak_flops(ctx, dtype);

    /* The dtype whose path it is: the efficiency must be of the same row. */
    for (int d = 0; d < MW_DTYPE_COUNT; d++) {
        if (isnan(ctx->gpu->peak_flops[dtype]) &&
            ctx->gpu->peak_flops[d] == peak) {
            return (enum mw_dtype)d;
        }
    }
    return dtype;
}

double mw_cost_limit_flops(const struct mw_cost_ctx *ctx, enum mw_dtype dtype)
{
    enum mw_dtype path = gemm_dtype(ctx, dtype);
    double share = ctx->power_limit[dtype] > 0 ? ctx->power_limit[dtype]
                                               : (double)INFINITY;

    return ctx->gpu->peak_flops[path] * ctx->gpu->gemm_efficiency[path] * share;
}

/*
 * Tile and wave quantisation and the ramp over the depth:
 *   tiles = batch ceil(m / tm) ceil(n / tn), waves = ceil(tiles / SMs)
 *   factor = batch m n / (waves SMs tm tn) * k / (k + k_half)
 * (NVIDIA, "Matrix Multiplication Background User's Guide", sections 3.1 and
 * 3.2, for tiles and waves.) 1 where the device has no tile constants.
 */
static double gemm_shape_factor(const struct mw_cost_ctx *ctx,
                                const struct mw_op *op)
{
    double m = (double)op->m, n = (double)op->n, k = (double)op->k;
    double batch = op->batch > 0 ? (double)op->batch : 1;
    double tm = ctx->gemm_tile_m, tn = ctx->gemm_tile_n;

    if (!(tm > 0) || !(tn > 0) || ctx->gpu->n_sms <= 0) {
        return 1;
    }
    double sms = ctx->gpu->n_sms;
    double tiles = batch * ceil(m / tm) * ceil(n / tn);
    double waves = ceil(tiles / sms);

    return batch * m * n / (waves * sms * tm * tn) * k / (k + ctx->gemm_k_half);
}

/*
 * Tensor cores load 16 bytes at a time. Rows of an operand or of the result
 * whose length is no multiple of that (an unpadded vocabulary of 50257) take
 * kernels with narrower loads (NVIDIA, "Matrix Multiplication Background
 * User's Guide", section 3.1). Row lengths: n and k; of a weight gradient,
 * whose operands are transposed, m and n. Products of attention, one a head,
 * have whole operands off that grid (heads of 108 elements: only every second
 * begins at a multiple of 16 bytes), which is a share of its own.
 */
static bool is_aligned(const struct mw_op *op)
{
    double row_bytes = 16 / mw_dtype_bytes(op->dtype);
    int64_t step = (int64_t)row_bytes;
    int64_t other = op->pass == MW_PASS_W ? op->m : op->k;

    return op->kind != MW_OP_GEMM || (op->n % step == 0 && other % step == 0);
}

static double product_share(const struct mw_cost_ctx *ctx,
                            const struct mw_op *op)
{
    bool is_row = op->kind == MW_OP_GEMM && op->dtype == MW_FP8 &&
                  op->scaling == MW_SCALE_ROW;
    bool is_of_heads = op->batch > 1 && !op->is_routed;
    double unaligned = is_of_heads ? ctx->head_unaligned : ctx->gemm_unaligned;

    return (is_aligned(op) ? 1 : unaligned) * (is_row ? ctx->fp8_row_share : 1);
}

struct rate {
    double flops; /* FLOP/s reached where compute is the bound */
    const char *formula;
    const char *source;
};

static struct rate compute_rate(const struct mw_cost_ctx *ctx,
                                const struct mw_op *op)
{
    const struct mw_gpu *gpu = ctx->gpu;
    enum mw_dtype dtype = gemm_dtype(ctx, op->dtype);
    double gemm = gpu->peak_flops[dtype] * gpu->gemm_efficiency[dtype] *
                  ctx->sustained[op->dtype];
    double limit = mw_cost_limit_flops(ctx, op->dtype);

    if (op->kind == MW_OP_GEMM) {
        gemm *= product_share(ctx, op) * gemm_shape_factor(ctx, op);
        return (struct rate){fmin(gemm, limit),
                             "2 m n k / (peak x efficiency x tiles and waves)",
                             gpu->gemm_efficiency_source[dtype]};
    }
    if (op->kind == MW_OP_ATTENTION) {
        gemm *= ctx->flash_efficiency[op->pass != MW_PASS_F] *
                (op->pass == MW_PASS_F ? ctx->stack.attention
                                       : ctx->stack.attention_back);
        return (struct rate){
            fmin(gemm, limit),
            "attention FLOPs / (GEMM rate x fused attention efficiency)",
            "constants: flash_efficiency"};
    }
    return (struct rate){gpu->peak_flops[MW_FP32],
                         "bytes / (memory bandwidth x efficiency)",
                         "gpus: memory bandwidth; constants: efficiency"};
}

/* Casting what this product is the first to need in the narrow type:
 * activations forward, the output's gradient backward; the weight gradient
 * takes the transposed copies that were written with them. */
static double quantise_s(const struct mw_cost_ctx *ctx, const struct mw_op *op)
{
    double bytes = op->dtype == MW_FP8 ? ctx->fp8_bytes[op->scaling]
                                       : ctx->quantise_bytes[op->dtype];

    return bytes * op->cast_elements /
           (ctx->gpu->mem_bw_Bps * ctx->gpu->mem_efficiency);
}

static double insitu(const struct mw_cost_ctx *ctx, const struct mw_op *op)
{
    enum mw_insitu part = op->kind == MW_OP_OPTIMIZER ? MW_INSITU_UPDATE
                          : op->pass == MW_PASS_F     ? MW_INSITU_F
                          : op->pass == MW_PASS_B     ? MW_INSITU_B
                                                      : MW_INSITU_W;

    return ctx->insitu_of[part] > 0 ? ctx->insitu_of[part] : ctx->insitu_factor;
}

static bool is_matrix(const struct mw_op *op)
{
    return op->kind == MW_OP_GEMM || op->kind == MW_OP_ATTENTION;
}

/* Time of an operator over that of its bytes at the stream rate: products take
 * what they take, optimizers of long lists of tensors reach the rate. */
static double stack_factor(const struct mw_cost_ctx *ctx,
                           const struct mw_op *op)
{
    bool is_list = op->kind == MW_OP_OPTIMIZER && ctx->stack.tensor_lists;

    return is_matrix(op) || is_list ? 1 : ctx->stack.elementwise;
}

/* Where the device's rates meet: seconds that FLOPs and bytes take there. */
struct roof {
    struct rate rate;
    double compute_s, memory_s;
};

static struct roof roof_of(const struct mw_cost_ctx *ctx,
                           const struct mw_op *op)
{
    const struct mw_gpu *gpu = ctx->gpu;
    struct rate rate = compute_rate(ctx, op);

    return (struct roof){rate,
                         op->flops > 0 ? mw_op_tile_flops(op) / rate.flops : 0,
                         op->bytes / (gpu->mem_bw_Bps * gpu->mem_efficiency) *
                             stack_factor(ctx, op)};
}

static const char *bound_of(const struct mw_cost_ctx *ctx,
                            const struct roof *roof)
{
    double most_s = fmax(roof->compute_s, roof->memory_s);

    return ctx->kernel_launch_s > most_s      ? "latency"
           : roof->memory_s > roof->compute_s ? "memory"
                                              : "compute";
}

static struct mw_cost roofline(const struct mw_cost_ctx *ctx,
                               const struct mw_op *op,
                               struct mw_explain *explain)
{
    const struct mw_gpu *gpu = ctx->gpu;
    struct roof roof = roof_of(ctx, op);
    double time_s = fmax(roof.compute_s, roof.memory_s) + ctx->kernel_launch_s +
                    quantise_s(ctx, op);

    if (explain != NULL) {
        bool is_memory = roof.memory_s > roof.compute_s;

        mw_explain_child(
            explain, op->name, time_s * insitu(ctx, op),
            mw_arena_printf(
                explain->arena,
                "max(%.6g GFLOP / %.5g TFLOP/s, %.6g MB / %.5g GB/s) + "
                "%.3g us: %s",
                op->flops / 1e9, roof.rate.flops / 1e12, op->bytes / 1e6,
                gpu->mem_bw_Bps * gpu->mem_efficiency / 1e9,
                1e6 * ctx->kernel_launch_s,
                is_memory ? "memory" : roof.rate.formula),
            is_memory ? gpu->source : roof.rate.source)
            ->bound = bound_of(ctx, &roof);
    }
    return (struct mw_cost){time_s * insitu(ctx, op), MW_RUNG_ROOFLINE};
}

/* A measured rung: what was asked of it, and the rate that comes out. */
static void explain_rung(struct mw_explain *parent,
                         const struct mw_cost_ctx *ctx, const struct mw_op *op,
                         const struct mw_cost *cost, const char *source)
{
    if (parent == NULL) {
        return;
    }
    struct roof roof = roof_of(ctx, op);
    const char *rate =
        is_matrix(op)
            ? mw_arena_printf(parent->arena, "%.6g GFLOP at %.4g TFLOP/s",
                              op->flops / 1e9, op->flops / cost->time_s / 1e12)
            : mw_arena_printf(parent->arena, "%.6g MB at %.4g GB/s",
                              op->bytes / 1e6, op->bytes / cost->time_s / 1e9);

    mw_explain_child(parent, op->name, cost->time_s,
                     mw_arena_printf(parent->arena, "%s: %s", rate,
                                     mw_rung_name(cost->rung)),
                     source)
        ->bound = bound_of(ctx, &roof);
}

struct mw_cost mw_cost_op(const struct mw_cost_ctx *ctx, const struct mw_op *op,
                          struct mw_explain *explain)
{
    struct mw_cost cost;
    const char *source = NULL;

    MW_ASSERT(op->kind != MW_OP_COLL && op->pass < MW_PASS_BW, "op %s",
              op->name);
    if (mw_kernel_table_price(ctx, op, &cost, &source)) {
        cost.time_s *= insitu(ctx, op);
        cost.time_s *= is_matrix(op) ? 1 / ctx->sustained[op->dtype]
                                     : stack_factor(ctx, op);
    } else if (!mw_measured_price(ctx, op, &cost, &source)) {
        return roofline(ctx, op, explain);
    } else {
        cost.time_s /= product_share(ctx, op);
        cost.time_s += quantise_s(ctx, op);
    }
    explain_rung(explain, ctx, op, &cost, source);
    return cost;
}
