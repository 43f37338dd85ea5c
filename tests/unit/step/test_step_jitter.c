/*
 * Variation across ranks, drawn: nothing without a spread, to the picosecond;
 * the mean that the factor of fast and event form means; what draws do that a
 * factor does not: quantiles, replicas that meet only at the end, passes that
 * average.
 */
#include "mw_test.h"

#include "sim/step/jitter.h"
#include "step_fixture.h"

#include <math.h>

struct world {
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_layout layout;
    struct mw_hwdb *db;
};

static void world_init(struct world *w, int tp, int pp, int zero)
{
    step_scenario(&w->scenario, "dgx-a100", 4, 64, "bf16");
    w->db = step_hwdb();
    step_ctx(&w->ctx, w->db, &w->scenario);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, "megatron-core", NULL),
                     MW_OK);
    mw_layout_default(&w->layout);
    w->layout.tp = tp;
    w->layout.pp = pp;
    w->layout.dp = 32 / (tp * pp);
    w->layout.zero = zero;
}

static void world_release(struct world *w)
{
    mw_scenario_release(&w->scenario);
    mw_hwdb_free(w->db);
}

static struct mw_jitter draw(struct world *w, int n, uint64_t seed)
{
    struct mw_jitter out;
    struct mw_plan plan;
    struct mw_err err = {0};

    step_plan(&plan, &w->scenario, &w->layout);
    if (mw_step_jitter(&w->scenario, &plan, &w->ctx, n, seed, &out, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_plan_release(&plan);
    return out;
}

/* E[max]: 0, 1 / sqrt(pi), 3 / (2 sqrt(pi)) for one, two, three (David and
 * Nagaraja, Order Statistics, 2003, section 3.2); 2.50759 for a hundred
 * (Tippett, Biometrika 17, 1925). */
static void test_expected_maximum(void **state)
{
    (void)state;
    mw_assert_near(mw_jitter_normal_max(1), 0, 0, 1e-9);
    mw_assert_near(mw_jitter_normal_max(2), 0.5641895835, 1e-8, 0);
    mw_assert_near(mw_jitter_normal_max(3), 0.8462843753, 1e-8, 0);
    mw_assert_near(mw_jitter_normal_max(100), 2.50759, 1e-5, 0);
}

static void test_no_spread_is_the_event_form(void **state)
{
    static const int ways[][3] = {{1, 1, 0}, {2, 4, 1}, {4, 2, 2}, {8, 4, 0}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct world w;
        struct mw_step_result r;

        world_init(&w, ways[i][0], ways[i][1], ways[i][2]);
        w.ctx.stack.straggler = 0;
        w.ctx.stack.persistent = 0.5;
        step_simulate(&r, &w.scenario, &w.layout, &w.ctx, NULL);
        struct mw_jitter j = draw(&w, 3, 7);

        assert_memory_equal(&j.least_s, &r.step_time_s, sizeof(double));
        assert_memory_equal(&j.most_s, &r.step_time_s, sizeof(double));
        assert_memory_equal(&j.expected_s, &r.step_time_s, sizeof(double));
        assert_memory_equal(&j.even_s, &r.step_time_s, sizeof(double));
        mw_step_result_release(&r);
        world_release(&w);
    }
}

/* Mean over draws against the fast form, every ZeRO stage, spreads that stacks
 * have, and more passes to draw for. */
static void test_mean_is_the_expectation(void **state)
{
    static const int ways[][3] = {{1, 1, 1}, {2, 4, 1}, {4, 2, 2},
                                  {1, 8, 0}, {8, 1, 3}, {2, 2, 0}};
    double worst = 0;

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct world w;
        double fast_s;

        world_init(&w, ways[i][0], ways[i][1], ways[i][2]);
        w.ctx.stack.straggler = i % 2 == 0 ? 0.03 : 0.005;
        assert_int_equal(mw_step_estimate(&w.scenario, &w.layout, NULL, &w.ctx,
                                          &fast_s, NULL, NULL),
                         MW_OK);
        struct mw_jitter j = draw(&w, 60, 1);

        mw_assert_near(j.mean_s, fast_s, 0.03, 0);
        mw_assert_near(j.mean_s, j.expected_s, 0.015, 0);
        assert_true(j.mean_s > j.even_s);
        assert_true(j.least_s < j.p10_s && j.p10_s < j.mean_s);
        assert_true(j.mean_s < j.p90_s && j.p90_s < j.most_s);
        double error = fabs(j.mean_s / fast_s - 1);

        worst = error > worst ? error : worst;
        world_release(&w);
    }
    print_message("mean of draws against the fast form: %.2f %%\n",
                  100 * worst);
}

/* One stage, all alike: every draw is the even step and the slowest rank's
 * excess over its compute, so the mean excess is the factor's. */
static void test_one_stage_by_hand(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 1, 1, 0);
    w.ctx.stack.straggler = 0.02;
    struct mw_jitter j = draw(&w, 2000, 3);

    mw_assert_near(j.mean_s - j.even_s, j.expected_s - j.even_s, 0.02, 0);
    /* p90 of the greatest of 32: F^-1(0.9^(1/32)) = 2.7177, of which the mean
     * is 2.0697. */
    mw_assert_near((j.p90_s - j.even_s) / (j.mean_s - j.even_s),
                   2.7177 / 2.0697, 0.03, 0);
    world_release(&w);
}

static void test_draws_are_the_seed_s(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, 2, 4, 1);
    w.ctx.stack.straggler = 0.02;
    w.ctx.stack.persistent = 0.7;
    struct mw_jitter a = draw(&w, 5, 11), b = draw(&w, 5, 11);
    struct mw_jitter c = draw(&w, 5, 12);

    assert_memory_equal(&a.mean_s, &b.mean_s, sizeof(double));
    assert_memory_equal(&a.p90_s, &b.p90_s, sizeof(double));
    assert_true(a.mean_s != c.mean_s);
    world_release(&w);
}

/* What is drawn anew for each pass averages over the passes of replicas that
 * meet at the end: less on the mean, and less apart. Where everybody meets in
 * each pass (ZeRO-2) the mean stays. */
static void test_fresh_draws_average(void **state)
{
    struct world w;

    (void)state;
    for (int zero = 1; zero <= 2; zero++) {
        world_init(&w, 1, 1, zero);
        w.ctx.stack.straggler = 0.05;
        struct mw_jitter kept = draw(&w, 200, 5);

        w.ctx.stack.persistent = 0;
        w.layout.micro_batch = 1;
        struct mw_jitter fresh = draw(&w, 200, 5);

        assert_true(fresh.most_s - fresh.least_s <
                    0.9 * (kept.most_s - kept.least_s));
        if (zero == 2) {
            mw_assert_near(fresh.mean_s - fresh.even_s,
                           kept.mean_s - kept.even_s, 0.05, 0);
        } else {
            assert_true(fresh.mean_s - fresh.even_s <
                        0.85 * (kept.mean_s - kept.even_s));
        }
        world_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expected_maximum),
        cmocka_unit_test(test_no_spread_is_the_event_form),
        cmocka_unit_test(test_mean_is_the_expectation),
        cmocka_unit_test(test_one_stage_by_hand),
        cmocka_unit_test(test_draws_are_the_seed_s),
        cmocka_unit_test(test_fresh_draws_average),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
