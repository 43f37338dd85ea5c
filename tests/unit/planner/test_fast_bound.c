/*
 * The bounds of sim/step/fast.h against the simulator: never above it, for
 * every kind of schedule, ZeRO stage, order and partition; equal where theory
 * says so.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "sim/plan/plan.h"
#include "sim/step/fast.h"

#include <math.h>
#include <string.h>

/* A sample where every access is checked. */
#if defined(__SANITIZE_ADDRESS__)
enum { DRAWS = 25 };
#else
enum { DRAWS = 75 };
#endif

static void simulate(const struct world *w, const struct mw_layout *layout,
                     const int *layers, double *time_s, double *peak_bytes)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_err err = {0};

    if (mw_plan_make(&w->scenario, layout, layers, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(
        mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &step, &err),
        MW_OK);
    *time_s = step.step_time_s;
    *peak_bytes = step.peak_bytes;
    mw_step_result_release(&step);
    mw_plan_release(&plan);
}

/* What is rarely other than its default, where its rules allow it. */
static void add_rare(struct mw_layout *l, uint64_t seed)
{
    uint64_t r = mw_rand_u64(5, 1, seed);

    if (l->zero == 0) {
        l->grad_compression = MW_COMPRESS_ONEBIT;
    } else if (r % 2 == 0) {
        l->grad_compression =
            l->zero == 3 ? MW_COMPRESS_ZEROPP : MW_COMPRESS_NONE;
        l->offload_optimizer = 0.5;
        l->offload_weights = r / 2 % 2 == 0 ? 1 : 0.25;
        l->offload_nvme = (enum mw_offload_nvme)(r / 4 % 4);
    }
}

static void check_never_above(const char *file, const char *stack, int n_draws,
                              bool has_rare)
{
    struct world w;
    struct mw_err err = {0};
    int n_exact = 0;

    open_world(&w, file, 0);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, stack, &err), MW_OK);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    for (int i = 0; i < n_draws; i++) {
        struct mw_layout layout;
        struct mw_fast_bound bound;
        double time_s, peak_bytes, least_bytes;

        assert_true(draw_layout(&w, (uint64_t)i, &layout));
        if (has_rare) {
            add_rare(&layout, (uint64_t)i);
        }
        assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, &err), MW_OK);
        assert_int_equal(
            mw_fast_peak_bytes(f, &layout, NULL, &least_bytes, &err), MW_OK);
        simulate(&w, &layout, NULL, &time_s, &peak_bytes);
        if (bound.time_s > time_s * (1 + 1e-9)) {
            fail_msg("%s tp %d pp %d vpp %d dp %d zero %d: bound %.9g > %.9g",
                     layout.schedule, layout.tp, layout.pp, layout.vpp,
                     layout.dp, layout.zero, bound.time_s, time_s);
        }
        mw_assert_near(bound.time_s, bound.work_s + bound.tail_s + bound.way_s,
                       1e-12, 0);
        assert_true(bound.least_bytes <= least_bytes * (1 + 1e-12));
        if (least_bytes > peak_bytes * (1 + 1e-12)) {
            fail_msg("%s tp %d pp %d vpp %d dp %d: %.9g > %.9g bytes",
                     layout.schedule, layout.tp, layout.pp, layout.vpp,
                     layout.dp, least_bytes, peak_bytes);
        }
        if (layout.vpp == 1 && strcmp(layout.schedule, "chimera") != 0 &&
            strcmp(layout.schedule, "dualpipe") != 0) {
            mw_assert_near(least_bytes, peak_bytes, 1e-12, 0);
            n_exact++;
        }
    }
    assert_true(n_exact > n_draws / 4);
    mw_fast_free(f);
    close_world(&w);
}

static void test_never_above_dense(void **state)
{
    (void)state;
    static const char *const stacks[] = {"plain", "megatron-core",
                                         "megatron-2021", "torchtitan"};

    for (int i = 0; i < 4; i++) {
        check_never_above("gpt3-175b-8xdgx-a100.yaml", stacks[i], DRAWS, false);
        check_never_above("llama3-8b-2xdgx-h100.yaml", stacks[i], DRAWS, false);
    }
}

static void test_never_above_rare(void **state)
{
    (void)state;
    check_never_above("gpt3-175b-8xdgx-a100.yaml", "deepspeed", DRAWS, true);
    check_never_above("llama3-8b-2xdgx-h100.yaml", "megatron-core", DRAWS,
                      true);
}

/* 32 layers on 34 stages: embedding and head alone on the first and the last,
 * whose memory is only theirs. */
static void test_ends_without_layers(void **state)
{
    (void)state;
    struct world w;
    struct mw_fast_bound bound;
    struct mw_layout layout;
    double time_s, peak_bytes, least_bytes;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 17);
    w.scenario.cluster.n_nodes = 17;
    w.scenario.cluster.gpus_per_node = 8;
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    mw_layout_default(&layout);
    layout.tp = 2;
    layout.dp = 2;
    for (int vpp = 1; vpp <= 2; vpp++) {
        layout.pp = 34 / vpp;
        layout.dp = 2 * vpp;
        layout.vpp = vpp;
        layout.schedule = vpp > 1 ? "interleaved-1f1b" : "1f1b";
        w.scenario.workload.global_batch = 17 * 16;
        assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, NULL), MW_OK);
        assert_int_equal(
            mw_fast_peak_bytes(f, &layout, NULL, &least_bytes, NULL), MW_OK);
        simulate(&w, &layout, NULL, &time_s, &peak_bytes);
        assert_true(bound.time_s <= time_s * (1 + 1e-9));
        assert_true(bound.time_s > 0.9 * time_s);
        assert_true(least_bytes <= peak_bytes * (1 + 1e-12));
    }
    mw_fast_free(f);
    close_world(&w);
}

/* Within a limit the bound is the bound; beyond it the memory alone. */
static void test_within_memory(void **state)
{
    (void)state;
    struct world w;
    struct mw_fast_bound bound, within, beyond;
    struct mw_layout layout;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    mw_layout_default(&layout);
    layout.pp = 4;
    layout.dp = 4;
    assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, NULL), MW_OK);
    assert_int_equal(mw_fast_bound_within(f, &layout, NULL, bound.least_bytes,
                                          &within, NULL),
                     MW_OK);
    assert_int_equal(mw_fast_bound_within(f, &layout, NULL,
                                          0.999 * bound.least_bytes, &beyond,
                                          NULL),
                     MW_OK);
    assert_true(bound.time_s > 0);
    mw_assert_near(within.time_s, bound.time_s, 0, 0);
    mw_assert_near(within.least_bytes, bound.least_bytes, 0, 0);
    mw_assert_near(beyond.least_bytes, bound.least_bytes, 0, 0);
    assert_true(beyond.time_s == 0 && beyond.work_s == 0);
    mw_fast_free(f);
    close_world(&w);
}

/* One device: no waiting at all, so the bound is the time. */
static void test_one_stage_is_exact(void **state)
{
    (void)state;
    struct world w;
    struct mw_fast_bound bound;
    double time_s, peak_bytes;

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    for (int zero = 0; zero <= 3; zero++) {
        struct mw_layout layout;

        mw_layout_default(&layout);
        layout.tp = 4;
        layout.sp = true;
        layout.dp = 4;
        layout.zero = zero;
        assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, NULL), MW_OK);
        simulate(&w, &layout, NULL, &time_s, &peak_bytes);
        mw_assert_near(bound.time_s, time_s, 1e-12, 0);
    }
    mw_fast_free(f);
    close_world(&w);
}

/* Prices are remembered by what they depend on: a second search of the same
 * layouts adds none, and pipeline depth alone adds none inside a node. */
static void test_prices_are_shared(void **state)
{
    (void)state;
    struct world w;
    uint64_t prices[3], shapes;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    for (int round = 0; round < 3; round++) {
        struct mw_layout layout;
        struct mw_fast_bound bound;

        mw_layout_default(&layout);
        layout.tp = 8;
        layout.pp = round == 2 ? 4 : 8;
        layout.dp = round == 2 ? 2 : 1;
        assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, NULL), MW_OK);
        mw_fast_counts(f, &prices[round], &shapes);
    }
    assert_int_equal(prices[0], 1);
    assert_int_equal(prices[1], 1);
    assert_int_equal(prices[2], 1);
    mw_fast_free(f);
    close_world(&w);
}

static void test_memory_rows(void **state)
{
    (void)state;
    struct world w;
    double slope[8], fixed[8], time_s, peak_bytes, most = 0;
    int layers[8] = {13, 12, 12, 12, 12, 12, 12, 11};

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);
    struct mw_layout layout;

    mw_layout_default(&layout);
    layout.tp = 8;
    layout.pp = 8;
    assert_int_equal(mw_fast_memory_rows(f, &layout, slope, fixed, NULL),
                     MW_OK);
    for (int d = 0; d < 8; d++) {
        most = fmax(most, fixed[d] + slope[d] * layers[d]);
    }
    simulate(&w, &layout, layers, &time_s, &peak_bytes);
    mw_assert_near(most, peak_bytes, 1e-12, 0);
    mw_fast_free(f);
    close_world(&w);
}

static void test_impossible_schedule_says_why(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout layout;
    struct mw_fast_bound bound;
    double bytes;
    struct mw_err err = {0};

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    struct mw_fast *f = mw_fast_new(&w.scenario, &w.ctx);

    mw_layout_default(&layout);
    layout.tp = 8;
    layout.pp = 8;
    layout.vpp = 3;
    layout.schedule = "zb-v";
    assert_int_equal(mw_fast_bound(f, &layout, NULL, &bound, &err), MW_EUSAGE);
    assert_non_null(strstr(err.text, "zb-v needs exactly 2 chunks"));
    assert_int_equal(mw_fast_peak_bytes(f, &layout, NULL, &bytes, NULL),
                     MW_EUSAGE);
    mw_fast_free(f);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_above_dense),
        cmocka_unit_test(test_never_above_rare),
        cmocka_unit_test(test_ends_without_layers),
        cmocka_unit_test(test_within_memory),
        cmocka_unit_test(test_one_stage_is_exact),
        cmocka_unit_test(test_prices_are_shared),
        cmocka_unit_test(test_memory_rows),
        cmocka_unit_test(test_impossible_schedule_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
