/*
 * Figures of a step: breakdown sums, FLOPs conserved, monotone in the
 * machine, the same twice, errors.
 */
#include "two_node_bench.h"

#include "step_units.h"

#include <math.h>

/* tp 2 (sp), pp 2, dp 4: something of every kind. */
static struct mw_layout mixed(void)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = l.pp = 2;
    l.sp = true;
    l.dp = 4;
    l.zero = 1;
    l.recompute = MW_RECOMPUTE_FULL;
    return l;
}

static void test_breakdown_sums_to_the_step(void **state)
{
    static const char *const kinds[] = {
        "1f1b", "gpipe", "zb-h1", "zb-h2", "interleaved-1f1b", "zb-v"};
    struct bench *b = *state;
    struct mw_layout l = mixed();

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct mw_step_result r;
        double sum = 0;

        l.schedule = kinds[i];
        l.vpp = i >= 4 ? 2 : 1;
        step_simulate(&r, &b->scenario, &l, &b->ctx, NULL);
        for (int kind = 0; kind < MW_SPAN_KIND_COUNT; kind++) {
            assert_true(r.breakdown_s[kind] >= 0);
            sum += r.breakdown_s[kind];
        }
        mw_assert_near(sum, r.step_time_s, 1e-12, 0);
        assert_true(r.breakdown_s[MW_SPAN_RECOMPUTE] > 0);
        assert_true(r.breakdown_s[MW_SPAN_TP] > 0);
        assert_true(r.breakdown_s[MW_SPAN_DP] > 0);
        assert_true(r.breakdown_s[MW_SPAN_OPTIMIZER] > 0);
        mw_step_result_release(&r);
    }
}

/* Unfused attention and no recomputation: what the spans of the stages
 * compute, times the ranks they stand for, is Megatron's count of the step. */
static void test_flops_are_conserved(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_timeline t;
    struct mw_step_result r;
    double flops = 0;

    l.recompute = MW_RECOMPUTE_NONE;
    mw_timeline_init(&t);
    step_simulate(&r, &b->scenario, &l, &b->ctx, &t);
    for (size_t i = 0; i < t.spans.n; i++) {
        flops += t.spans.v[i].flops;
    }
    mw_assert_near(flops * l.tp * l.dp, r.model_flops, 1e-9, 0);
    mw_assert_near(r.hardware_flops, r.model_flops, 1e-12, 0);
    mw_assert_near(r.model_tflops_per_gpu * 1e12 * r.step_time_s * 16,
                   r.model_flops, 1e-12, 0);
    mw_assert_near(r.mfu, r.model_tflops_per_gpu / 312, 1e-12, 0);
    mw_assert_near(r.tokens_per_s_per_gpu * r.step_time_s * 16, 64 * 512, 1e-12,
                   0);
    mw_timeline_release(&t);
    mw_step_result_release(&r);
}

/* Full recomputation repeats the layers: 2 x tokens x their matrices and
 * attention. By hand for hidden h = 1024, s = 512, l = 16:
 * 24 s h^2 (1 + s / 6h) l = 24 x 512 x 2^20 x (1 + 1/12) x 16 a sequence. */
static void test_recomputation_in_hardware_flops(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_step_result r;

    step_simulate(&r, &b->scenario, &l, &b->ctx, NULL);
    mw_assert_near(r.hardware_flops - r.model_flops,
                   64 * 24.0 * 512 * 1048576 * (1 + 1.0 / 12) * 16, 1e-9, 0);
    mw_step_result_release(&r);
}

static void test_timeline_is_whole(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_timeline t;
    struct mw_step_result r;
    char text[256];

    mw_timeline_init(&t);
    step_simulate(&r, &b->scenario, &l, &b->ctx, &t);
    assert_null(mw_timeline_check(&t, text, sizeof text));
    assert_int_equal(t.n_ranks, 16);
    mw_assert_near(t.step_time_s, r.step_time_s, 0, 0);
    assert_int_equal(strlen(t.plan_hash), 16);
    for (size_t i = 0; i < t.spans.n; i++) {
        /* one rank of each stage, the first of its 8 */
        assert_true(t.spans.v[i].rank == 0 || t.spans.v[i].rank == 8);
    }
    mw_timeline_release(&t);
    mw_step_result_release(&r);
}

/* Rates that measured kernels are carried over with. */
static void quicken(struct mw_cost_ctx *ctx, double flops, double bytes)
{
    for (int op = 0; op < MW_MEASURED_OP_COUNT; op++) {
        for (int dtype = 0; dtype < MW_DTYPE_COUNT; dtype++) {
            for (int pass = 0; pass < MW_PASS_BW; pass++) {
                struct mw_kernel_rates *rates =
                    &ctx->measured[op][dtype].rates[pass];

                rates->flops_per_s *= flops;
                rates->bytes_per_s *= bytes;
            }
        }
    }
}

static void test_better_machine_is_never_slower(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_step_result before, after;
    struct mw_cost_ctx lean = b->ctx;

    lean.stack.host_op_s = lean.stack.host_coll_s = 0; /* no floor */
    step_simulate(&before, &b->scenario, &l, &lean, NULL);
    for (int what = 0; what < 5; what++) {
        struct mw_cost_ctx ctx = lean;
        struct mw_system system = *ctx.system;
        struct mw_gpu gpu = *ctx.gpu;

        ctx.system = &system;
        ctx.gpu = &gpu;
        system.intra_bw_Bps *= what == 0 ? 2 : 1;
        ctx.domain_net_Bps *= what == 1 ? 2 : 1;
        gpu.mem_bw_Bps *= what == 2 ? 2 : 1;
        gpu.peak_flops[MW_BF16] *= what == 3 ? 2 : 1;
        ctx.kernel_launch_s *= what == 4 ? 0.5 : 1;
        quicken(&ctx, what == 3 ? 2 : 1, what == 2 ? 2 : 1);
        step_simulate(&after, &b->scenario, &l, &ctx, NULL);
        assert_true(after.step_time_s < before.step_time_s);
        mw_step_result_release(&after);
    }
    mw_step_result_release(&before);
}

static void test_same_input_same_result(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_timeline t[2];
    struct mw_step_result r[2];

    for (int i = 0; i < 2; i++) {
        mw_timeline_init(&t[i]);
        step_simulate(&r[i], &b->scenario, &l, &b->ctx, &t[i]);
    }
    assert_memory_equal(&r[0].step_time_s, &r[1].step_time_s, sizeof(double));
    assert_memory_equal(r[0].breakdown_s, r[1].breakdown_s,
                        sizeof r[0].breakdown_s);
    assert_int_equal(t[0].spans.n, t[1].spans.n);
    for (size_t i = 0; i < t[0].spans.n; i++) {
        assert_true(t[0].spans.v[i].start_ps == t[1].spans.v[i].start_ps);
        assert_true(t[0].spans.v[i].end_ps == t[1].spans.v[i].end_ps);
    }
    for (int i = 0; i < 2; i++) {
        mw_timeline_release(&t[i]);
        mw_step_result_release(&r[i]);
    }
}

/* ZeRO-3 moves more than ZeRO-2, that more than ZeRO-1 (per micro-batch, where
 * a slow network shows it), and neither reduces gradients at the end. */
static void test_zero_stages_are_not_ignored(void **state)
{
    struct bench *b = *state;
    struct mw_cost_ctx ctx = b->ctx;
    struct mw_layout l;
    double dp_s[4];

    ctx.domain_net_Bps /= 100;
    mw_layout_default(&l);
    l.dp = 16;
    for (l.zero = 0; l.zero <= 3; l.zero++) {
        struct mw_timeline t;
        struct mw_step_result r;
        bool reduces = false;

        mw_timeline_init(&t);
        step_simulate(&r, &b->scenario, &l, &ctx, &t);
        dp_s[l.zero] = r.breakdown_s[MW_SPAN_DP];
        for (size_t i = 0; i < t.spans.n; i++) {
            reduces |=
                strcmp(t.names.v[t.spans.v[i].name], "reduce gradients") == 0;
        }
        assert_int_equal(reduces, l.zero < 2);
        mw_timeline_release(&t);
        mw_step_result_release(&r);
    }
    assert_true(dp_s[3] > dp_s[2] && dp_s[2] > dp_s[1]);
}

static void test_dtype_without_a_rate(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_scenario s = b->scenario;
    struct mw_step_result r;
    struct mw_plan plan;
    struct mw_err err = {0};

    s.workload.dtype = MW_FP8;
    step_plan(&plan, &s, &l);
    assert_int_equal(mw_step_simulate(&s, &plan, &b->ctx, NULL, &r, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "fp8"));
    mw_plan_release(&plan);
}

/* No network where one is needed, and times beyond reason, are messages. */
static void test_rates_that_are_missing(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();
    struct mw_cost_ctx ctx = b->ctx;
    struct mw_gpu gpu = *ctx.gpu;
    struct mw_err err = {0};
    double time_s;

    ctx.domain_net_Bps = 0;
    assert_int_equal(
        mw_step_estimate(&b->scenario, &l, NULL, &ctx, &time_s, NULL, &err),
        MW_EINPUT);
    assert_non_null(strstr(err.text, "no network"));
    ctx = b->ctx;
    ctx.gpu = &gpu;
    gpu.mem_bw_Bps = 1e-9;
    mw_err_clear(&err);
    assert_int_equal(
        mw_step_estimate(&b->scenario, &l, NULL, &ctx, &time_s, NULL, &err),
        MW_EINPUT);
    assert_non_null(strstr(err.text, "more than 500000 s"));
    l.schedule = "zb-h1"; /* by the list as well */
    mw_err_clear(&err);
    assert_int_equal(
        mw_step_estimate(&b->scenario, &l, NULL, &ctx, &time_s, NULL, &err),
        MW_EINPUT);
}

static void test_layer_costs_add_up(void **state)
{
    struct bench *b = *state;
    struct mw_layout l;
    struct step_unit_s layer, embedding, head;
    struct mw_step_result r;

    /* one device, one micro-batch: the passes are the step but for the tail and
     * for waiting on other replicas */
    struct mw_cost_ctx ctx = b->ctx;

    ctx.stack.straggler = 0;
    mw_layout_default(&l);
    l.dp = 16;
    l.micro_batch = 4;
    layer = step_unit_cost(&b->scenario, &l, &ctx, MW_UNIT_DENSE);
    embedding = step_unit_cost(&b->scenario, &l, &ctx, MW_UNIT_EMBEDDING);
    head = step_unit_cost(&b->scenario, &l, &ctx, MW_UNIT_HEAD);
    step_simulate(&r, &b->scenario, &l, &ctx, NULL);
    mw_assert_near(16 * layer.f_s + embedding.f_s + head.f_s,
                   r.breakdown_s[MW_SPAN_F], 1e-6, 0);
    mw_assert_near(16 * layer.b_s + embedding.b_s + head.b_s,
                   r.breakdown_s[MW_SPAN_B], 1e-6, 0);
    mw_assert_near(16 * layer.w_s + embedding.w_s + head.w_s,
                   r.breakdown_s[MW_SPAN_W], 1e-6, 0);
    mw_step_result_release(&r);
}

/* One reduction of the tied embedding's gradient, seen on both stages at the
 * same time; none where the model is on one stage. */
static void test_tied_gradient_is_on_both_stages(void **state)
{
    struct bench *b = *state;
    struct mw_layout l = mixed();

    for (l.pp = 1; l.pp <= 2; l.pp++) {
        const struct mw_span *seen[2] = {NULL, NULL};
        struct mw_timeline t;
        struct mw_step_result r;
        int n = 0;

        l.dp = 8 / l.pp;
        mw_timeline_init(&t);
        step_simulate(&r, &b->scenario, &l, &b->ctx, &t);
        for (size_t i = 0; i < t.spans.n; i++) {
            if (strcmp(t.names.v[t.spans.v[i].name], "tied gradient") == 0) {
                assert_true(n < 2);
                seen[n++] = &t.spans.v[i];
            }
        }
        assert_int_equal(n, l.pp == 2 ? 2 : 0);
        if (n == 2) {
            assert_true(seen[0]->rank != seen[1]->rank);
            assert_true(seen[0]->start_ps == seen[1]->start_ps);
            assert_true(seen[0]->end_ps == seen[1]->end_ps);
            /* 32768 x 1024 weights over tp 2, gradients of 4 bytes */
            mw_assert_near(seen[0]->bytes, 32768.0 * 1024 / 2 * 4, 1e-12, 0);
        }
        mw_timeline_release(&t);
        mw_step_result_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breakdown_sums_to_the_step),
        cmocka_unit_test(test_flops_are_conserved),
        cmocka_unit_test(test_recomputation_in_hardware_flops),
        cmocka_unit_test(test_timeline_is_whole),
        cmocka_unit_test(test_better_machine_is_never_slower),
        cmocka_unit_test(test_same_input_same_result),
        cmocka_unit_test(test_zero_stages_are_not_ignored),
        cmocka_unit_test(test_dtype_without_a_rate),
        cmocka_unit_test(test_layer_costs_add_up),
        cmocka_unit_test(test_rates_that_are_missing),
        cmocka_unit_test(test_tied_gradient_is_on_both_stages),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
