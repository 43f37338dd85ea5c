/*
 * Offload: bytes and times by hand, what hides, what lies where, limits.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "step_fixture.h"

#include <math.h>

/* Llama of 16 layers, 8192 tokens, 1.37e9 parameters. */
static void open_world(struct step_world *w, const char *system, int nodes)
{
    step_scenario_of(
        &w->s,
        "format: 1\nname: t\n"
        "model: {hidden: 2048, layers: 16, heads: 16, ffn: 8192, vocab: "
        "65536}\n"
        "cluster: {system: %s, nodes: %d}\n"
        "workload: {seq: 8192, global_batch: 64}\n",
        system, nodes);
    step_world_price(w);
}

static struct mw_layout layout(int zero)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 8;
    l.zero = zero;
    return l;
}

static struct mw_step_result run(const struct step_world *w,
                                 const struct mw_layout *l)
{
    struct mw_step_result r;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    return r;
}

/* ---- the way ---------------------------------------------------------------
 */
/* Copies as measured, shared by the devices of a switch; C2C at 0.8 of 450. */
static void test_links(void **state)
{
    static const struct {
        const char *system;
        double link_Bps, mem_Bps;
    } rows[] = {{"dgx-h100", 55.4e9, 614.4e9},
                {"dgx-a100", 25e9 / 2, 409.6e9},
                {"dgx-1v", 12.3e9 / 2, 153.6e9},
                {"gb200-nvl72", 1024e9 / 4, 1024e9}};
    const struct mw_constant *efficiency;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct step_world w;

        open_world(&w, rows[i].system, 1);
        mw_assert_near(w.ctx.host_link_Bps, rows[i].link_Bps, 1e-12, 0);
        assert_int_equal(
            mw_hwdb_constant(w.db, "host_adam_efficiency", &efficiency, NULL),
            MW_OK);
        mw_assert_near(w.ctx.host_adam_Bps * w.ctx.gpus_per_node,
                       rows[i].mem_Bps * efficiency->value, 1e-12, 0);
        step_world_close(&w);
    }
}

static void test_unknown_link(void **state)
{
    struct mw_layout l = layout(3);
    struct mw_err err = {0};
    struct mw_plan plan;
    struct mw_step_result r;
    double time_s, bytes;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    w.ctx.host_link_Bps = (double)NAN;
    l.offload_weights = 0.5;
    step_plan(&plan, &w.s, &l);
    assert_int_equal(mw_step_simulate(&w.s, &plan, &w.ctx, NULL, &r, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "host_link_rate.dgx-h100"));
    assert_int_equal(
        mw_step_estimate(&w.s, &l, NULL, &w.ctx, &time_s, &bytes, NULL),
        MW_EINPUT);
    mw_plan_release(&plan);
    step_world_close(&w);
}

/* ---- optimizer -------------------------------------------------------------
 */
/* ZeRO-0: n parameters; 4 bytes down, 30 through the host's memory, 2 up; the
 * longest of them less the device's own part, which here is what it does once a
 * step for any part. */
static void test_optimizer(void **state)
{
    struct mw_layout l = layout(0), off = layout(0);
    struct step_world w;

    (void)state;
    off.offload_optimizer = 1;
    open_world(&w, "dgx-h100", 1);
    struct mw_step_result on = run(&w, &l), host = run(&w, &off);
    double n = on.memory->optimizer_bytes / 12;
    double update_s = n * 30 / w.ctx.host_adam_Bps;
    mw_assert_near(host.breakdown_s[MW_SPAN_OFFLOAD] +
                       host.breakdown_s[MW_SPAN_OPTIMIZER],
                   update_s, 1e-6, 0);
    assert_true(update_s > 4 * n / w.ctx.host_link_Bps);
    /* a stack's own passes over the host's memory */
    w.ctx.stack.host_pass_bytes = 16;
    mw_step_result_release(&host);
    host = run(&w, &off);
    mw_assert_near(host.breakdown_s[MW_SPAN_OFFLOAD] +
                       host.breakdown_s[MW_SPAN_OPTIMIZER],
                   n * 46 / w.ctx.host_adam_Bps, 1e-6, 0);
    w.ctx.stack.host_pass_bytes = 0;
    assert_true(on.breakdown_s[MW_SPAN_OFFLOAD] == 0);
    mw_assert_near(host.memory->optimizer_bytes, 0, 0, 0);
    mw_assert_near(host.memory->host_bytes, (12 + 4) * n, 1e-12, 0);
    assert_true(host.memory->grad_bytes == on.memory->grad_bytes);
    /* a slow link: gradients down are the longest */
    w.ctx.host_link_Bps = 1e9;
    mw_step_result_release(&host);
    host = run(&w, &off);
    mw_assert_near(host.breakdown_s[MW_SPAN_OFFLOAD] +
                       host.breakdown_s[MW_SPAN_OPTIMIZER],
                   4 * n / 1e9, 1e-6, 0);
    mw_step_result_release(&on);
    mw_step_result_release(&host);
    step_world_close(&w);
}

/* In float32 there is no copy of low precision to write: 28 bytes. */
static void test_optimizer_of_float32(void **state)
{
    struct mw_layout l = layout(0), off = layout(0);
    struct step_world w;

    (void)state;
    off.offload_optimizer = 1;
    open_world(&w, "dgx-h100", 1);
    w.s.workload.dtype = MW_FP32;
    struct mw_step_result on = run(&w, &l), host = run(&w, &off);
    double n = on.memory->optimizer_bytes / 8;
    mw_assert_near(host.breakdown_s[MW_SPAN_OFFLOAD] +
                       host.breakdown_s[MW_SPAN_OPTIMIZER],
                   n * 28 / w.ctx.host_adam_Bps, 1e-6, 0);
    mw_step_result_release(&on);
    mw_step_result_release(&host);
    step_world_close(&w);
}

/* Both update at once: the best part is where they end together, and it beats
 * either alone where the device has a step of its own to do. */
static void test_parts_run_together(void **state)
{
    struct mw_layout l = layout(0);
    struct step_world w;
    double least = HUGE_VAL, none_s = 0, all_s = 0;

    (void)state;
    open_world(&w, "gb200-nvl72", 2);
    w.ctx.host_adam_Bps = 2e12;
    for (int i = 0; i <= 20; i++) {
        l.offload_optimizer = i / 20.0;
        struct mw_step_result r = run(&w, &l);
        none_s = i == 0 ? r.step_time_s : none_s;
        all_s = r.step_time_s;
        least = fmin(least, r.step_time_s);
        mw_step_result_release(&r);
    }
    assert_true(least < none_s && least < all_s);
    step_world_close(&w);
}

/* ---- weights and activations -----------------------------------------------
 */
/* On a fast link all is hidden; on a very slow one weights go up twice a
 * micro-batch (8 of them), kept activations down and up once. */
static void test_streams(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int which = 0; which < 2; which++) {
        struct mw_layout l = layout(0);
        struct mw_step_result plain = run(&w, &l);
        double bytes = which == 0 ? 2 * plain.memory->weight_bytes : 0;

        *(which == 0 ? &l.offload_weights : &l.offload_activations) = 1;
        w.ctx.host_link_Bps = 1e15;
        struct mw_step_result fast = run(&w, &l);
        assert_true(fast.step_time_s == plain.step_time_s);
        if (which == 1) {
            bytes = 2 * (plain.memory->activation_bytes -
                         fast.memory->activation_bytes);
        }
        w.ctx.host_link_Bps = 1e6;
        struct mw_step_result slow = run(&w, &l);
        mw_assert_near(slow.breakdown_s[MW_SPAN_OFFLOAD], 8 * bytes / 1e6, 1e-3,
                       0);
        mw_step_result_release(&plain);
        mw_step_result_release(&fast);
        mw_step_result_release(&slow);
    }
    step_world_close(&w);
}

/* What leaves the device is on the host, a half of it for a half. */
static void test_memory(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    for (int zero = 0; zero <= 3; zero++) {
        struct mw_layout l = layout(zero), half = layout(zero);
        struct mw_step_result all = run(&w, &l), some;

        half.offload_optimizer = half.offload_weights = 0.5;
        half.offload_activations = 0.5;
        some = run(&w, &half);
        const struct mw_stage_memory *a = all.memory, *s = some.memory;
        mw_assert_near(s->weight_bytes, a->weight_bytes / 2, 1e-12, 0);
        mw_assert_near(s->optimizer_bytes, a->optimizer_bytes / 2, 1e-12, 0);
        mw_assert_near(s->grad_bytes, a->grad_bytes / (zero >= 2 ? 2 : 1),
                       1e-12, 0);
        mw_assert_near(s->host_bytes,
                       a->weight_bytes / 2 + a->optimizer_bytes / 2 +
                           a->grad_bytes / 2 +
                           (a->activation_bytes - s->activation_bytes),
                       1e-12, 0);
        assert_true(s->activation_bytes < a->activation_bytes);
        assert_true(s->temporary_bytes > a->temporary_bytes);
        assert_true(some.peak_bytes < all.peak_bytes);
        mw_step_result_release(&all);
        mw_step_result_release(&some);
    }
    step_world_close(&w);
}

/* A host that is too small: the device has room, the plan does not fit. */
static void test_host_is_full(void **state)
{
    struct mw_layout l = layout(0);
    struct mw_system small;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    l.offload_optimizer = 1;
    struct mw_step_result r = run(&w, &l);
    assert_true(r.fits);
    small = *w.ctx.system;
    small.host_mem_bytes = r.memory->host_bytes * 8 - 1;
    w.ctx.system = &small;
    mw_step_result_release(&r);
    r = run(&w, &l);
    assert_false(r.fits);
    small.host_mem_bytes = (double)NAN;
    mw_step_result_release(&r);
    r = run(&w, &l);
    assert_true(r.fits);
    mw_step_result_release(&r);
    step_world_close(&w);
}

/* ---- forms -----------------------------------------------------------------
 */
static void test_forms_agree(void **state)
{
    static const double parts[] = {0, 0.3, 1};
    struct step_world w;
    int n = 0;

    (void)state;
    open_world(&w, "dgx-a100", 4);
    for (uint64_t i = 0; i < 300; i++) {
        struct mw_layout l;

        mw_layout_default(&l);
        l.tp = 1 << mw_rand_u64(12, 1, i) % 3;
        l.pp = 1 << mw_rand_u64(12, 2, i) % 4;
        l.dp = 32 / (l.tp * l.pp);
        l.zero = (int)(mw_rand_u64(12, 3, i) % 4);
        l.recompute = (enum mw_recompute)(mw_rand_u64(12, 4, i) % 3);
        l.offload_optimizer = parts[mw_rand_u64(12, 5, i) % 3];
        l.offload_weights = parts[mw_rand_u64(12, 6, i) % 3];
        l.offload_activations = parts[mw_rand_u64(12, 7, i) % 3];
        if (mw_layout_check(&l, &w.s.model, &w.s.workload, 32, NULL, NULL) !=
            MW_OK) {
            continue;
        }
        step_forms_agree(&w, &l);
        n++;
    }
    assert_true(n > 100);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_unknown_link),
        cmocka_unit_test(test_optimizer),
        cmocka_unit_test(test_optimizer_of_float32),
        cmocka_unit_test(test_parts_run_together),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_host_is_full),
        cmocka_unit_test(test_forms_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
