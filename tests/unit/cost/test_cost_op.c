/*
 * Operators: roofline by hand, tiles and waves, the measured table (exact,
 * interpolated, out of reach), the in-situ factor, explanations.
 */
#include "mw_test.h"

#include "sim/cost/cost.h"

#include <math.h>
#include <string.h>

/* 100 TFLOP/s at 80 %, 1 TB/s at 50 %: 80 TFLOP/s and 500 GB/s. */
static struct mw_gpu gpu_of(void)
{
    struct mw_gpu gpu = {.slug = "test", .source = "made up"};

    for (int d = 0; d < MW_HW_DTYPES; d++) {
        gpu.peak_flops[d] = 100e12;
        gpu.gemm_efficiency[d] = 0.8;
        gpu.gemm_efficiency_source[d] = "made up";
    }
    gpu.mem_bw_Bps = 1e12;
    gpu.mem_efficiency = 0.5;
    return gpu;
}

static struct mw_cost_ctx ctx_of(const struct mw_gpu *gpu)
{
    struct mw_cost_ctx ctx = {.gpu = gpu,
                              .insitu_factor = 1,
                              .gemm_unaligned = 1,
                              .head_unaligned = 1,
                              .fp8_row_share = 1,
                              .flash_efficiency = {0.5, 0.25},
                              .stack = {.elementwise = 1,
                                        .attention = 1,
                                        .attention_back = 1,
                                        .grouped = 1}};

    for (int d = 0; d < MW_DTYPE_COUNT; d++) {
        ctx.sustained[d] = 1;
    }
    return ctx;
}

static struct mw_op gemm(int64_t m, int64_t n, int64_t k)
{
    struct mw_op op = {.kind = MW_OP_GEMM,
                       .name = "g",
                       .m = m,
                       .n = n,
                       .k = k,
                       .batch = 1,
                       .dtype = MW_BF16};

    op.flops = 2.0 * (double)m * (double)n * (double)k;
    op.bytes = 2.0 * (double)(m * n + n * k + m * k);
    return op;
}

/* A clock of 0.8 makes products 1.25 times as long and leaves memory alone; a
 * stack that reaches half of the stream rate doubles element-wise work. */
static void test_clock_and_stack(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op product = gemm(4096, 4096, 4096);
    struct mw_op add = {.kind = MW_OP_ADD,
                        .name = "add",
                        .m = 1000,
                        .n = 1000,
                        .dtype = MW_BF16,
                        .bytes = 6e6};

    (void)state;
    ctx.sustained[MW_BF16] = 0.8;
    ctx.stack.elementwise = 2;
    mw_assert_near(mw_cost_op(&ctx, &product, NULL).time_s,
                   137438953472.0 / 64e12, 1e-12, 0);
    product = gemm(1, 4096, 4096); /* memory-bound */
    mw_assert_near(mw_cost_op(&ctx, &product, NULL).time_s,
                   product.bytes / 500e9, 1e-12, 0);
    /* 6 MB at 500 GB/s: 12 us, twice */
    mw_assert_near(mw_cost_op(&ctx, &add, NULL).time_s, 24e-6, 1e-12, 0);
}

/* A power limit of 0.6: products that reach the best rate take 1 / 0.6 as long,
 * attention at half of it is not slowed (0.5 < 0.6), its backward pass at a
 * quarter neither; 0 is no limit. */
static void test_power_limit(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op product = gemm(4096, 4096, 4096);
    struct mw_op attn = {.kind = MW_OP_ATTENTION,
                         .name = "attn",
                         .m = 4096,
                         .n = 4096,
                         .k = 128,
                         .batch = 32,
                         .dtype = MW_BF16,
                         .flops = 1e12,
                         .bytes = 1e6};

    (void)state;
    double free_s = mw_cost_op(&ctx, &product, NULL).time_s;
    double attn_s = mw_cost_op(&ctx, &attn, NULL).time_s;
    ctx.power_limit[MW_BF16] = 0.6;
    mw_assert_near(mw_cost_op(&ctx, &product, NULL).time_s, free_s / 0.6, 1e-12,
                   0);
    mw_assert_near(mw_cost_op(&ctx, &attn, NULL).time_s, attn_s, 0, 0);
    ctx.power_limit[MW_BF16] = 0.4;
    mw_assert_near(mw_cost_op(&ctx, &attn, NULL).time_s, attn_s * 0.5 / 0.4,
                   1e-12, 0);
    /* What a slower clock leaves below the limit. */
    ctx.power_limit[MW_BF16] = 0.9;
    ctx.sustained[MW_BF16] = 0.8;
    mw_assert_near(mw_cost_op(&ctx, &product, NULL).time_s, free_s / 0.8, 1e-12,
                   0);
}

/* On the database's B200, a shape that is a row of the table and runs at 1563
 * TFLOP/s there takes its FLOPs at the limit; a small one takes the row's time
 * and attention of 16 heads keeps its own. */
static void test_power_limit_of_b200(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_cost_ctx ctx;
    struct mw_err err = {0};
    struct mw_op big = gemm(4096, 10240, 8192), small = gemm(1024, 1024, 1024);
    struct mw_op attn = {.kind = MW_OP_ATTENTION,
                         .name = "attn",
                         .m = 4096,
                         .n = 4096,
                         .k = 128,
                         .batch = 16,
                         .dtype = MW_BF16,
                         .flops = 2.0 * 4096 * 4096 * 128 * 16};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "dgx-b200", 1, 0, &err), MW_OK);
    double limit = ctx.gpu->peak_flops[MW_BF16] *
                   ctx.gpu->gemm_efficiency[MW_BF16] * ctx.power_limit[MW_BF16];

    assert_true(limit > 800e12 && limit < 1300e12);
    mw_assert_near(mw_cost_op(&ctx, &big, NULL).time_s, big.flops / limit,
                   1e-12, 0);
    assert_true(mw_cost_op(&ctx, &small, NULL).time_s >
                1.5 * small.flops / limit);
    double with_s = mw_cost_op(&ctx, &attn, NULL).time_s;
    ctx.power_limit[MW_BF16] = 0;
    mw_assert_near(mw_cost_op(&ctx, &attn, NULL).time_s, with_s, 0, 0);
    assert_true(mw_cost_op(&ctx, &big, NULL).time_s < 0.8 * big.flops / limit);
    mw_hwdb_free(db);
}

/* Rows of 50257 elements begin anywhere: half the rate, whichever pass has them
 * where; 50256 of bf16 are 6282 times 16 bytes. A scale for a row of FP8 takes
 * a fifth off. */
static void test_alignment_and_scaling(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op f = gemm(4096, 50257, 4096), b = gemm(4096, 4096, 50257);
    struct mw_op w = gemm(50257, 4096, 4096), good = gemm(4096, 50256, 4096);

    (void)state;
    ctx.gemm_unaligned = 0.5;
    ctx.head_unaligned = 0.25;
    ctx.fp8_row_share = 0.8;
    b.pass = MW_PASS_B;
    w.pass = MW_PASS_W;
    double odd_s = 2.0 * 4096 * 4096 * 50257 / 40e12;
    mw_assert_near(mw_cost_op(&ctx, &f, NULL).time_s, odd_s, 1e-12, 0);
    mw_assert_near(mw_cost_op(&ctx, &b, NULL).time_s, odd_s, 1e-12, 0);
    mw_assert_near(mw_cost_op(&ctx, &w, NULL).time_s, odd_s, 1e-12, 0);
    w.pass = MW_PASS_F; /* many rows, all of 4096 */
    mw_assert_near(mw_cost_op(&ctx, &w, NULL).time_s, odd_s / 2, 1e-12, 0);
    /* products of 8 heads of 108 elements: a quarter; of 104: whole */
    struct mw_op odd_heads = gemm(4096, 4096, 108), heads = odd_heads;
    odd_heads.batch = heads.batch = 8;
    heads.k = 104;
    odd_heads.flops *= 8;
    heads.flops *= 8 * 104.0 / 108;
    mw_assert_near(mw_cost_op(&ctx, &odd_heads, NULL).time_s,
                   odd_heads.flops / 20e12, 1e-12, 0);
    mw_assert_near(mw_cost_op(&ctx, &heads, NULL).time_s, heads.flops / 80e12,
                   1e-12, 0);
    double good_s = mw_cost_op(&ctx, &good, NULL).time_s;
    mw_assert_near(good_s, good.flops / 80e12, 1e-12, 0);
    good.dtype = MW_FP8; /* 16 elements to 16 bytes: 50256 = 16 x 3141 */
    good.scaling = MW_SCALE_ROW;
    mw_assert_near(mw_cost_op(&ctx, &good, NULL).time_s, good_s / 0.8, 1e-12,
                   0);
    /* 1e6 elements at 4 bytes of traffic, 500 GB/s: 8 us more. */
    good.scaling = MW_SCALE_MX;
    good.cast_elements = 1e6;
    ctx.fp8_bytes[MW_SCALE_MX] = 4;
    mw_assert_near(mw_cost_op(&ctx, &good, NULL).time_s, good_s + 8e-6, 1e-12,
                   0);
}

/* sqrt(2 ln 8) = 2.0393; one rank waits for nobody. */
static void test_stragglers(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);

    (void)state;
    ctx.stack.straggler = 0.01;
    mw_assert_near(mw_cost_straggler_factor(&ctx, 1), 1, 0, 0);
    mw_assert_near(mw_cost_straggler_factor(&ctx, 8), 1.020393, 1e-6, 0);
}

/* Eight devices on two sockets: five ranks cannot be on one. Bound processes,
 * one socket, or a database that does not say: no factor. */
static void test_hosts_on_two_sockets(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_system system = {.gpus_per_node = 8, .n_sockets = 2};

    (void)state;
    ctx.system = &system;
    ctx.stack.host_sockets = 1.25;
    for (int tp = 1; tp <= 16; tp++) {
        mw_assert_near(mw_cost_host_factor(&ctx, tp), tp > 4 ? 1.25 : 1, 0, 0);
    }
    ctx.stack.binds = true;
    mw_assert_near(mw_cost_host_factor(&ctx, 8), 1, 0, 0);
    ctx.stack.binds = false;
    for (system.n_sockets = 0; system.n_sockets < 2; system.n_sockets++) {
        mw_assert_near(mw_cost_host_factor(&ctx, 8), 1, 0, 0);
    }
}

/* Rows NAME.STACK before NAME; nothing on a CPU; unknown names refused. */
static void test_stacks_of_the_database(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_cost_ctx ctx;
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "dgx-a100", 1, 0, &err), MW_OK);
    assert_string_equal(ctx.stack.name, "plain");
    mw_assert_near(ctx.stack.overlap_reduce, 0, 0, 0);
    for (size_t i = 0; mw_stack_name(i) != NULL; i++) {
        assert_int_equal(mw_cost_ctx_set_stack(&ctx, mw_stack_name(i), &err),
                         MW_OK);
        assert_true(ctx.stack.host_op_s > 0); /* graphs are a matter of scope */
        assert_true(ctx.stack.host_op_s < 1e-3);
        assert_true(ctx.stack.elementwise > 0.8 && ctx.stack.overlap_tp >= 0);
        assert_true(ctx.stack.overlap_tp_back >= 0 &&
                    ctx.stack.overlap_tp_back < 1);
        assert_true(strlen(mw_stack_text(i)) >= 8);
    }
    assert_int_equal(mw_cost_ctx_set_stack(&ctx, "Megatron-Core", &err), MW_OK);
    assert_true(ctx.stack.overlap_reduce > 0.5);
    assert_int_equal(mw_cost_ctx_set_stack(&ctx, "megaton", &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "'megaton'"));
    mw_err_clear(&err);
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "this-machine", 1, 1, &err),
                     MW_OK);
    assert_int_equal(mw_cost_ctx_set_stack(&ctx, "megatron-2021", &err), MW_OK);
    mw_assert_near(ctx.stack.host_op_s, 0, 0, 0);
    mw_assert_near(ctx.stack.elementwise, 1, 0, 0);
    mw_assert_near(ctx.sustained[MW_FP32], 1, 0, 0);
    mw_hwdb_free(db);
}

static void test_roofline_by_hand(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = gemm(4096, 4096, 4096);

    (void)state;
    /* 2 x 4096^3 = 137.4 GFLOP / 80 TFLOP/s = 1.718 ms; 100.7 MB / 500 GB/s =
     * 0.2 ms */
    struct mw_cost cost = mw_cost_op(&ctx, &op, NULL);
    mw_assert_near(cost.time_s, 137438953472.0 / 80e12, 1e-12, 0);
    assert_int_equal(cost.rung, MW_RUNG_ROOFLINE);
    op = gemm(1, 4096, 4096); /* 33.6 MB of weights: memory-bound */
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s,
                   2.0 * (4096 + 4096.0 * 4096 + 4096) / 500e9, 1e-12, 0);
    ctx.kernel_launch_s = 5e-6;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s,
                   2.0 * (4096 + 4096.0 * 4096 + 4096) / 500e9 + 5e-6, 1e-12,
                   0);
}

static void test_attention_takes_its_share(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = {.kind = MW_OP_ATTENTION,
                       .name = "attn",
                       .dtype = MW_BF16,
                       .flops = 4e12};

    (void)state;
    /* forward 40 TFLOP/s, backward 20 */
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 0.1, 1e-12, 0);
    op.pass = MW_PASS_B;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 0.2, 1e-12, 0);
}

static void test_tiles_and_waves(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op full = gemm(128 * 10, 128 * 10, 65536); /* 100 tiles */
    struct mw_op one_more = gemm(128 * 101, 128, 65536); /* 101 tiles */

    (void)state;
    gpu.n_sms = 100;
    ctx.gemm_tile_m = ctx.gemm_tile_n = 128;
    mw_assert_near(mw_cost_op(&ctx, &full, NULL).time_s, full.flops / 80e12,
                   1e-12, 0);
    /* the tile too many costs a whole second wave: twice the time of 100 */
    mw_assert_near(mw_cost_op(&ctx, &one_more, NULL).time_s,
                   2 * full.flops / 80e12, 1e-12, 0);
    /* at a depth of k_half the rate is half */
    ctx.gemm_k_half = 65536;
    mw_assert_near(mw_cost_op(&ctx, &full, NULL).time_s, 2 * full.flops / 80e12,
                   1e-12, 0);
}

static void test_narrow_dtype_falls_back(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = gemm(4096, 4096, 4096);

    (void)state;
    gpu.peak_flops[MW_FP8] = (double)NAN;
    gpu.peak_flops[MW_BF16] = 50e12;
    gpu.gemm_efficiency[MW_BF16] = 0.5;
    op.dtype = MW_FP8;
    mw_assert_near(mw_cost_peak_flops(&ctx, MW_FP8), 50e12, 0, 0);
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, op.flops / 25e12, 1e-12,
                   0);
}

static const struct mw_kernel_row gemm_rows[] = {
    {"test", "gemm", "F", "bf16", 64, 64, 64, 0, 1e-6, "row a"},
    {"test", "gemm", "F", "bf16", 128, 64, 64, 0, 1.5e-6, "row b"},
    {"test", "gemm", "F", "bf16", 128, 128, 128, 0, 4e-6, "row c"}};

static void test_exact_rows_and_repeats(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = gemm(128, 64, 64);

    (void)state;
    ctx.kernels[MW_OP_GEMM][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){gemm_rows, 3};
    struct mw_cost cost = mw_cost_op(&ctx, &op, NULL);
    mw_assert_near(cost.time_s, 1.5e-6, 1e-12, 0);
    assert_int_equal(cost.rung, MW_RUNG_EXACT);
    op.batch = 6; /* batched: six of this shape */
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 9e-6, 1e-12, 0);
    ctx.insitu_factor = 1.25;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 11.25e-6, 1e-12, 0);
}

/* Part of a sequence is a shape of its own: 32 queries that meet 64 keys are
 * not 32 that meet 32, and cost about half of 64 that meet 64. */
static void test_attention_over_parts(void **state)
{
    static const struct mw_kernel_row rows[] = {
        {"test", "attention", "F", "bf16", 64, 8, 32, 0, 8e-6, "whole"},
        {"test", "attention", "F", "bf16", 32, 8, 32, 0, 2e-6, "short"},
        {"test", "attention", "F", "bf16", 32, 8, 32, 64, 5e-6, "part"}};
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = {.kind = MW_OP_ATTENTION,
                       .name = "attn",
                       .m = 32,
                       .n = 64,
                       .k = 32,
                       .batch = 8,
                       .dtype = MW_BF16};

    (void)state;
    ctx.kernels[MW_OP_ATTENTION][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){rows, 3};
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 5e-6, 1e-12, 0);
    op.n = 32;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 2e-6, 1e-12, 0);
    /* Without a row: pairs of tokens at the rate of the neighbours, which both
     * have the same one. */
    ctx.kernels[MW_OP_ATTENTION][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){rows, 2};
    op.n = 64;
    struct mw_cost cost = mw_cost_op(&ctx, &op, NULL);
    mw_assert_near(cost.time_s, 4e-6, 1e-9, 0);
    assert_int_equal(cost.rung, MW_RUNG_TABLE);
}

/* One factor for each pass and the update; without them the one for all. */
static void test_insitu_factors_by_pass(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = gemm(128, 64, 64);
    struct mw_op update = {.kind = MW_OP_OPTIMIZER,
                           .name = "optimizer",
                           .m = 1000,
                           .n = 1,
                           .bytes = 28e3,
                           .dtype = MW_BF16};

    (void)state;
    double f_s = mw_cost_op(&ctx, &op, NULL).time_s;
    double update_s = mw_cost_op(&ctx, &update, NULL).time_s;

    ctx.insitu_factor = 1.2;
    ctx.insitu_of[MW_INSITU_F] = 1.1;
    ctx.insitu_of[MW_INSITU_UPDATE] = 2;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 1.1 * f_s, 1e-12, 0);
    mw_assert_near(mw_cost_op(&ctx, &update, NULL).time_s, 2 * update_s, 1e-12,
                   0);
    op.pass = MW_PASS_B;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, 1.2 * f_s, 1e-12, 0);
}

static void test_interpolation_between_rows(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op near_b = gemm(129, 64, 64), far = gemm(65536, 65536, 64);

    (void)state;
    ctx.kernels[MW_OP_GEMM][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){gemm_rows, 3};
    /* one part in 128 away from row b: its rate to a thousandth */
    struct mw_cost cost = mw_cost_op(&ctx, &near_b, NULL);
    mw_assert_near(cost.time_s, 1.5e-6 * 129 / 128, 1e-3, 0);
    assert_int_equal(cost.rung, MW_RUNG_TABLE);
    /* equal distance to two rows of equal rate: that rate */
    static const struct mw_kernel_row same[] = {
        {"test", "gemm", "F", "bf16", 100, 100, 100, 0, 1e-3, "x"},
        {"test", "gemm", "F", "bf16", 400, 100, 100, 0, 4e-3, "x"}};
    struct mw_op middle = gemm(200, 100, 100);
    ctx.kernels[MW_OP_GEMM][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){same, 2};
    mw_assert_near(mw_cost_op(&ctx, &middle, NULL).time_s, 2e-3, 1e-12, 0);
    /* twice the largest row: interpolated no more, and that is said */
    struct mw_op larger = gemm(800, 100, 100);
    cost = mw_cost_op(&ctx, &larger, NULL);
    mw_assert_near(cost.time_s, 8e-3, 1e-12, 0);
    assert_int_equal(cost.rung, MW_RUNG_BEYOND);
    /* a thousand times beyond the largest row: the roofline answers */
    assert_int_equal(mw_cost_op(&ctx, &far, NULL).rung, MW_RUNG_ROOFLINE);
}

static void test_memory_bound_rows(void **state)
{
    static const struct mw_kernel_row rows[] = {
        {"test", "norm", "F", "bf16", 10, 100, 0, 0, 2e-6, "floor"},
        {"test", "norm", "F", "bf16", 1000, 100, 0, 0, 20e-6, "large"}};
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = {.kind = MW_OP_NORM,
                       .name = "norm",
                       .m = 100,
                       .n = 100,
                       .dtype = MW_BF16};

    (void)state;
    ctx.kernels[MW_OP_NORM][MW_PASS_F][MW_BF16] =
        (struct mw_kernel_set){rows, 2};
    /* halfway in log(rows x width): sqrt(2 us x 20 us) */
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, sqrt(40) * 1e-6, 1e-12,
                   0);
    /* the same product in another shape costs the same */
    op.m = 10;
    op.n = 1000;
    mw_assert_near(mw_cost_op(&ctx, &op, NULL).time_s, sqrt(40) * 1e-6, 1e-12,
                   0);
}

static void test_faster_device_is_never_slower(void **state)
{
    struct mw_gpu slow = gpu_of(), fast = gpu_of();
    struct mw_cost_ctx a = ctx_of(&slow), b = ctx_of(&fast);

    (void)state;
    fast.mem_bw_Bps *= 2;
    for (int64_t m = 1; m < 10000; m = m * 3 + 1) {
        struct mw_op op = gemm(m, 512, 512);

        assert_true(mw_cost_op(&b, &op, NULL).time_s <=
                    mw_cost_op(&a, &op, NULL).time_s);
    }
}

static void test_explanation_says_what_binds(void **state)
{
    struct mw_gpu gpu = gpu_of();
    struct mw_cost_ctx ctx = ctx_of(&gpu);
    struct mw_op op = gemm(1, 4096, 4096);
    struct mw_arena arena;

    (void)state;
    mw_arena_init(&arena);
    struct mw_explain root = {.name = "root", .count = 1, .arena = &arena};
    struct mw_cost cost = mw_cost_op(&ctx, &op, &root);
    assert_non_null(root.first_child);
    assert_ptr_equal(root.first_child, root.last_child);
    mw_assert_near(root.first_child->value_s, cost.time_s, 0, 0);
    assert_non_null(strstr(root.first_child->formula, "memory"));
    assert_string_equal(root.first_child->source, "made up");
    assert_null(mw_explain_child(NULL, "x", 1, NULL, NULL));
    mw_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_and_stack),
        cmocka_unit_test(test_power_limit),
        cmocka_unit_test(test_power_limit_of_b200),
        cmocka_unit_test(test_stragglers),
        cmocka_unit_test(test_hosts_on_two_sockets),
        cmocka_unit_test(test_alignment_and_scaling),
        cmocka_unit_test(test_stacks_of_the_database),
        cmocka_unit_test(test_roofline_by_hand),
        cmocka_unit_test(test_attention_takes_its_share),
        cmocka_unit_test(test_tiles_and_waves),
        cmocka_unit_test(test_narrow_dtype_falls_back),
        cmocka_unit_test(test_exact_rows_and_repeats),
        cmocka_unit_test(test_attention_over_parts),
        cmocka_unit_test(test_insitu_factors_by_pass),
        cmocka_unit_test(test_interpolation_between_rows),
        cmocka_unit_test(test_memory_bound_rows),
        cmocka_unit_test(test_faster_device_is_never_slower),
        cmocka_unit_test(test_explanation_says_what_binds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
