/*
 * The pricing context: the system and device of a cluster, the constants that
 * pricing needs, and an index of the measured kernels by operator, pass and
 * dtype, made once so that the hot path compares integers only.
 *
 * On a CPU (`is_cpu`) there is no launch cost and no tile or wave
 * quantisation: a BLAS's rate is flat above small sizes, and `calibrate`
 * measures the shapes that matter. The in-situ factor (a real step over hot
 * loops of the same kernels) is a measurement of one machine and stands in
 * its overlay's machine.csv.
 */
#include "sim/cost/cost_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

const char *mw_rung_name(enum mw_rung rung)
{
    static const char *const names[MW_RUNG_COUNT] = {
        [MW_RUNG_EXACT] = "exact row",
        [MW_RUNG_TABLE] = "interpolated in the table",
        [MW_RUNG_UTILISATION] = "utilisation of measured neighbours",
        [MW_RUNG_ROOFLINE] = "roofline",
        [MW_RUNG_CURVE] = "measured curve",
        [MW_RUNG_BEYOND] = "beyond measured sizes",
        [MW_RUNG_COLL_MODEL] = "model of the collective",
        [MW_RUNG_ALPHA_BETA] = "alpha-beta"};

    return (unsigned)rung < MW_RUNG_COUNT ? names[rung] : "?";
}

static enum mw_status read_constant(const struct mw_hwdb *db, const char *name,
                                    double *out, struct mw_err *err)
{
    const struct mw_constant *constant;
    enum mw_status status = mw_hwdb_constant(db, name, &constant, err);

    if (status == MW_OK) {
        *out = constant->value;
    }
    return status;
}

/* Names of constants are in lower case, with dashes. */
static char key_char(char c)
{
    return c == ' ' ? '-' : (char)tolower((unsigned char)c);
}

/* "name.arch" (arch in lower case) if there is such a row, else "name". */
static enum mw_status arch_constant(const struct mw_hwdb *db, const char *name,
                                    const char *arch, double *out,
                                    struct mw_err *err)
{
    char key[96];
    int n = snprintf(key, sizeof key, "%s.%s", name, arch);

    for (int i = 0; i < n && i < (int)sizeof key; i++) {
        key[i] = key_char(key[i]);
    }
    if (read_constant(db, key, out, NULL) == MW_OK) {
        return MW_OK;
    }
    return read_constant(db, name, out, err);
}

static enum mw_status read_constants(struct mw_cost_ctx *ctx,
                                     struct mw_err *err)
{
    const char *arch = ctx->gpu->arch != NULL ? ctx->gpu->arch : "";
    const struct {
        const char *name;
        double *out;
        bool on_cpu;
    } wanted[] = {
        {"flash_efficiency_forward", &ctx->flash_efficiency[0], true},
        {"flash_efficiency_backward", &ctx->flash_efficiency[1], true},
        {"kernel_launch_s", &ctx->kernel_launch_s, false},
        {"gemm_tile_m", &ctx->gemm_tile_m, false},
        {"gemm_tile_n", &ctx->gemm_tile_n, false},
        {"gemm_k_half", &ctx->gemm_k_half, false},
        {"gemm_unaligned_share", &ctx->gemm_unaligned, false},
        {"head_unaligned_share", &ctx->head_unaligned, false},
        {"device_context_bytes", &ctx->device_context_bytes, false},
        {"comm_buffer_bytes", &ctx->comm_buffer_bytes, false}};

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        enum mw_status status = MW_OK;

        if (!ctx->gpu->is_cpu || wanted[i].on_cpu) {
            status = arch_constant(ctx->db, wanted[i].name, arch, wanted[i].out,
                                   err);
        }
        if (status != MW_OK) {
            return status;
        }
    }
    return MW_OK;
}

/* NAME.GPU.DTYPE, .GPU, .ARCH.DTYPE, .ARCH, and `otherwise`. */
static double device_figure(const struct mw_cost_ctx *ctx, const char *name,
                            enum mw_dtype dtype, double otherwise)
{
    const char *arch = ctx->gpu->arch != NULL ? ctx->gpu->arch : "";
    const char *owners[] = {ctx->gpu->slug, arch};
    double value = otherwise;
    bool is_known = ctx->gpu->is_cpu;

    for (int i = 0; i < 4 && !is_known; i++) {
        char key[96];
        int n = snprintf(key, sizeof key, "%s.%s%s%s", name, owners[i / 2],
                         i % 2 == 0 ? "." : "",
                         i % 2 == 0 ? mw_dtype_name(dtype) : "");

        for (int j = 0; j < n && j < (int)sizeof key; j++) {
            key[j] = key_char(key[j]);
        }
        is_known = read_constant(ctx->db, key, &value, NULL) == MW_OK;
    }
    return value;
}

static void read_sustained(struct mw_cost_ctx *ctx)
{
    for (int d = 0; d < MW_DTYPE_COUNT; d++) {
        enum mw_dtype dtype = (enum mw_dtype)d;

        ctx->sustained[d] = device_figure(ctx, "sustained_clock", dtype, 1);
        ctx->power_limit[d] = device_figure(ctx, "power_limit", dtype, 0);
    }
}

/* What an architecture's own row says of attention's backward pass, over the
 * general one: forward passes are measured, backward passes are carried over
 * from them. Traffic of casts. */
static enum mw_status read_narrow_and_flash(struct mw_cost_ctx *ctx,
                                            struct mw_err *err)
{
    double any = 1;
    enum mw_status status =
        read_constant(ctx->db, "flash_efficiency_backward", &any, err);

    ctx->flash_back_of_arch = ctx->flash_efficiency[1] / any;
    if (ctx->gpu->is_cpu || status != MW_OK) {
        return status;
    }
    static const char *const fp8[MW_SCALING_COUNT] = {
        "quantise_bytes.fp8", "quantise_bytes.fp8", "quantise_bytes.fp8-block",
        "quantise_bytes.fp8-mx"};

    for (int i = 0; i < MW_SCALING_COUNT && status == MW_OK; i++) {
        status = read_constant(ctx->db, fp8[i], &ctx->fp8_bytes[i], err);
    }
    if (status == MW_OK) {
        status =
            read_constant(ctx->db, "fp8_row_share", &ctx->fp8_row_share, err);
    }
    ctx->quantise_bytes[MW_FP8] = ctx->fp8_bytes[MW_SCALE_TENSOR];
    return status == MW_OK ? read_constant(ctx->db, "quantise_bytes.fp4",
                                           &ctx->quantise_bytes[MW_FP4], err)
                           : status;
}

const char *mw_insitu_name(enum mw_insitu part)
{
    static const char *const names[] = {"f", "b", "w", "update"};

    return names[part];
}

/* A factor of the calibration record; *out stays when it is not there. */
static enum mw_status read_factor(const struct mw_cost_ctx *ctx,
                                  const char *key, double *out,
                                  struct mw_err *err)
{
    const char *text = mw_hwdb_machine(ctx->db, key);
    double factor;

    if (text == NULL) {
        return MW_OK;
    }
    if (mw_double_parse(text, &factor, NULL) != MW_OK || !(factor > 0) ||
        factor > 1000) {
        const char *dir = mw_hwdb_overlay_dir(ctx->db);

        return mw_fail(err, MW_EINPUT,
                       "%s/machine.csv: %s is '%s'; it must be a number above "
                       "0, for example 1.3",
                       dir != NULL ? dir : ".", key, text);
    }
    *out = factor;
    return MW_OK;
}

static enum mw_status read_insitu(struct mw_cost_ctx *ctx, struct mw_err *err)
{
    ctx->insitu_factor = 1;
    if (!ctx->gpu->is_cpu) {
        return MW_OK;
    }
    enum mw_status status =
        read_factor(ctx, "insitu_factor", &ctx->insitu_factor, err);

    for (int part = 0; part < MW_INSITU_COUNT && status == MW_OK; part++) {
        char key[32];

        snprintf(key, sizeof key, "insitu_factor_%s",
                 mw_insitu_name((enum mw_insitu)part));
        status = read_factor(ctx, key, &ctx->insitu_of[part], err);
    }
    return status;
}

static void index_kernels(struct mw_cost_ctx *ctx)
{
    for (int kind = 0; kind < MW_OP_KIND_COUNT; kind++) {
        for (int pass = 0; pass < MW_PASS_BW; pass++) {
            for (int dtype = 0; dtype < MW_DTYPE_COUNT; dtype++) {
                struct mw_kernel_set *set = &ctx->kernels[kind][pass][dtype];

                set->n = mw_hwdb_kernels(ctx->db, ctx->gpu->slug,
                                         mw_op_kind_name((enum mw_op_kind)kind),
                                         mw_pass_name((enum mw_pass)pass),
                                         mw_dtype_name((enum mw_dtype)dtype),
                                         &set->row);
            }
        }
    }
}

/* A rack-scale domain joins several nodes; its NICs are those of its nodes. */
static void set_domain(struct mw_cost_ctx *ctx)
{
    const struct mw_system *sys = ctx->system;
    int nodes = sys->gpus_per_node > 0 && sys->scaleup_gpus > sys->gpus_per_node
                    ? sys->scaleup_gpus / sys->gpus_per_node
                    : 1;

    ctx->domain_gpus = nodes * ctx->gpus_per_node;
    ctx->domain_net_Bps = nodes * sys->node_net_bw_Bps;
}

void mw_cost_ctx_take_curves(struct mw_cost_ctx *ctx)
{
    struct mw_coll_library *library =
        (struct mw_coll_library *)mw_hwdb_loan(ctx->db);

    ctx->library = library;
    ctx->curves =
        library != NULL ? library->curves_of(library, ctx->system) : NULL;
}

/* The host's memory is shared by the node's devices. On a CPU both are the
 * device's own memory: a copy reads and writes. */
static void set_host(struct mw_cost_ctx *ctx)
{
    const struct mw_system *sys = ctx->system;
    double efficiency = (double)NAN;

    ctx->nvme_read_Bps = sys->nvme_read_Bps / ctx->gpus_per_node;
    ctx->nvme_write_Bps = sys->nvme_write_Bps / ctx->gpus_per_node;
    if (ctx->gpu->is_cpu) {
        ctx->host_adam_Bps = ctx->gpu->mem_bw_Bps * ctx->gpu->mem_efficiency;
        ctx->host_link_Bps = ctx->host_adam_Bps / 2;
        return;
    }
    read_constant(ctx->db, "host_adam_efficiency", &efficiency, NULL);
    ctx->host_link_Bps = sys->host_link_Bps;
    if (sys->host_mem_Bps / ctx->gpus_per_node < ctx->host_link_Bps) {
        ctx->host_link_Bps = sys->host_mem_Bps / ctx->gpus_per_node;
    }
    ctx->host_adam_Bps = sys->host_mem_Bps * efficiency / ctx->gpus_per_node;
}

enum mw_status mw_cost_ctx_init(struct mw_cost_ctx *ctx,
                                const struct mw_hwdb *db, const char *system,
                                int n_nodes, int gpus_per_node,
                                struct mw_err *err)
{
    struct mw_cost_ctx made = {.db = db,
                               .n_nodes = n_nodes,
                               .gemm_unaligned = 1,
                               .head_unaligned = 1,
                               .fp8_row_share = 1,
                               .link_speed = 1,
                               .net_speed = 1,
                               .latency_speed = 1};
    enum mw_status status = mw_hwdb_system(db, system, &made.system, err);

    if (status != MW_OK) {
        mw_err_set_key(err, "cluster", "system");
        return status;
    }
    made.gpu = made.system->gpu;
    made.gpus_per_node =
        gpus_per_node > 0 ? gpus_per_node : made.system->gpus_per_node;
    if (!made.gpu->is_cpu && made.gpus_per_node > made.system->gpus_per_node) {
        return mw_fail_key(err, MW_EINPUT, "cluster", "gpus_per_node",
                           "gpus_per_node is %d but %s has %d GPUs in a node",
                           gpus_per_node, made.system->slug,
                           made.system->gpus_per_node);
    }
    set_domain(&made);
    mw_cost_ctx_take_curves(&made);
    set_host(&made);
    status = read_constants(&made, err);
    read_sustained(&made);
    if (status == MW_OK) {
        status = read_narrow_and_flash(&made, err);
    }
    if (status == MW_OK) {
        status = mw_measured_index(&made, err);
    }
    if (status == MW_OK) {
        status = mw_cost_ctx_set_stack(&made, mw_stack_name(0), err);
    }
    if (status == MW_OK) {
        status = read_insitu(&made, err);
    }
    if (status == MW_OK) {
        index_kernels(&made);
        *ctx = made;
    }
    return status;
}

double mw_cost_peak_flops(const struct mw_cost_ctx *ctx, enum mw_dtype dtype)
{
    static const enum mw_dtype wider[MW_DTYPE_COUNT] = {
        [MW_FP32] = MW_FP32, [MW_TF32] = MW_FP32, [MW_BF16] = MW_FP16,
        [MW_FP16] = MW_TF32, [MW_FP8] = MW_BF16,  [MW_FP4] = MW_FP8};

    while (isnan(ctx->gpu->peak_flops[dtype]) && dtype != MW_FP32) {
        dtype = wider[dtype];
    }
    return ctx->gpu->peak_flops[dtype];
}
