/*
 * Published configurations (scenarios/published, with their sources): legal
 * under their framework's rules, within memory, predicted as measured, no
 * better than our best; rank orders against brute force.
 */
#include "planner_world.h"

#include "planner/published.h"
#include "planner/why.h"
#include "sim/plan/plan.h"
#include "sim/coll/coll_library.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Legal under the framework's rules, within the device's memory, and as fast as
 * was measured: to 10 %, or 20 % where the table says why it is more. */
static void test_published_layouts(void **state)
{
    (void)state;
    struct mw_published_rows rows;
    struct mw_hwdb *db;
    struct mw_err err = {0};
    int n_off = 0;

    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    mw_coll_library_lend(db);
    if (mw_published_load(MW_SCENARIOS "/published", &rows, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(rows.n >= 15);
    for (size_t i = 0; i < rows.n; i++) {
        const struct mw_published *row = &rows.v[i];
        struct mw_published_case c;

        if (mw_published_open(db, MW_SCENARIOS "/published", row, &c, &err) !=
            MW_OK) {
            fail_msg("%s: %s", row->scenario, err.text);
        }
        if (c.broken) {
            fail_msg("%s: %s: %s", row->scenario, c.broken, c.broken_text);
        }
        if (!c.fits) {
            fail_msg("%s needs %.1f GiB", row->scenario,
                     c.needed_bytes / (1 << 30));
        }
        if (!(fabs(c.error) <= (*row->off ? 0.2 : 0.1))) {
            fail_msg("%s: predicted %.4g, measured %.4g", row->scenario,
                     c.predicted, row->value);
        }
        n_off += fabs(c.error) > 0.1;
        mw_published_close(&c);
    }
    assert_int_equal(n_off, 0);
    mw_published_release(&rows);
    mw_hwdb_free(db);
}

/* The best under the features of then is no slower than the published layout
 * where that fits, and the terms sum to the difference. */
static void test_best_of_then(void **state)
{
    (void)state;
    struct mw_published_rows rows;
    struct mw_hwdb *db;
    int n = 0;

    assert_int_equal(mw_hwdb_load(NULL, &db, NULL), MW_OK);
    mw_coll_library_lend(db);
    assert_int_equal(mw_published_load(MW_SCENARIOS "/published", &rows, NULL),
                     MW_OK);
    for (size_t i = 0; i < rows.n; i++) {
        struct mw_published_case c;
        struct mw_search_result r;
        struct mw_comparison gap;
        double sum = 0;

        if (*rows.v[i].fits_with) {
            continue;
        }
        assert_int_equal(mw_published_open(db, MW_SCENARIOS "/published",
                                           &rows.v[i], &c, NULL),
                         MW_OK);
        c.then.is_quiet = true;
        c.then.top = 1;
        assert_int_equal(mw_search(&c.scenario, &c.ctx, &c.then, &r, NULL),
                         MW_OK);
        assert_true(r.proved_optimal);
        assert_true(r.plans[0].step_time_s <=
                    c.published.step_time_s * (1 + 1e-12));
        assert_int_equal(mw_plans_compare(&c.scenario, &c.ctx, &r.plans[0],
                                          &c.published, &gap, NULL),
                         MW_OK);
        for (int k = 0; k < gap.n_time; k++) {
            sum += gap.time[k].other - gap.time[k].best;
        }
        mw_assert_near(sum, gap.other_s - gap.best_s, 1e-6, 1e-9);
        n++;
        mw_search_result_release(&r);
        mw_published_close(&c);
    }
    assert_true(n >= 11);
    mw_published_release(&rows);
    mw_hwdb_free(db);
}

/* ---- placement -------------------------------------------------------------
 */
static double simulate(const struct world *w, const struct mw_layout *layout)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_err err = {0};

    if (mw_plan_make(&w->scenario, layout, NULL, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(
        mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &step, &err),
        MW_OK);
    double time_s = step.step_time_s;

    mw_step_result_release(&step);
    mw_plan_release(&plan);
    return time_s;
}

/* All 24 orders by hand, the layout otherwise fixed. */
static void check_orders(const struct world *w, struct mw_search_opts opts)
{
    static const char dim[4][3] = {"tp", "cp", "dp", "pp"};
    struct mw_search_result r;
    double best = HUGE_VAL, worst = 0;

    opts.is_quiet = opts.is_full = true;
    opts.top = 1;
    opts.micro_batch = 1;
    opts.schedule = "1f1b";
    opts.vpp = 1;
    assert_int_equal(mw_search(&w->scenario, &w->ctx, &opts, &r, NULL), MW_OK);
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            for (int c = 0; c < 4; c++) {
                char order[32];
                struct mw_layout l = r.plans[0].layout;

                if (a == b || a == c || b == c) {
                    continue;
                }
                snprintf(order, sizeof order, "%s-%s-%s-%s", dim[a], dim[b],
                         dim[c], dim[6 - a - b - c]);
                l.order = order;
                double t = simulate(w, &l);

                best = fmin(best, t);
                worst = fmax(worst, t);
            }
        }
    }
    assert_true(worst > best * 1.001); /* the order matters here */
    assert_true(r.plans[0].step_time_s <= best * (1 + 1e-12));
    mw_search_result_release(&r);
}

static struct mw_search_opts fixed(int tp, int pp, int dp)
{
    struct mw_search_opts o;

    mw_search_opts_default(&o);
    o.tp = tp;
    o.pp = pp;
    o.dp = dp;
    o.sp = 1;
    o.cp = 1;
    o.zero = 1;
    o.recompute = MW_RECOMPUTE_FULL;
    return o;
}

static void test_tp_16_over_two_nodes(void **state)
{
    (void)state;
    struct world w;

    parse_world(&w, "format: 1\nmodel: gpt3-175b\n"
                    "cluster: {system: dgx-a100, nodes: 8}\n"
                    "workload: {seq: 2048, global_batch: 16, dtype: fp16}\n"
                    "limits: {max_tp: 16, memory_fraction: 0.92}\n");
    w.scenario.cluster.gpus_per_node = 8;
    check_orders(&w, fixed(16, 2, 2));
    close_world(&w);
}

static void test_dp_inside_and_across_nodes(void **state)
{
    (void)state;
    struct world w;

    parse_world(&w, "format: 1\nmodel: llama3-8b\n"
                    "cluster: {system: dgx-h100, nodes: 4}\n"
                    "workload: {seq: 4096, global_batch: 32, dtype: bf16}\n");
    w.scenario.cluster.gpus_per_node = 8;
    check_orders(&w, fixed(2, 4, 4));
    close_world(&w);
}

/* dp 8 within a leaf of 8 nodes or spread over two, at twice the NICs that the
 * links up carry. */
static void test_dp_and_leafs(void **state)
{
    (void)state;
    struct world w;

    parse_world(&w, "format: 1\nmodel: llama3-8b\n"
                    "cluster: {system: dgx-h100, nodes: 16, leaf_nodes: 8, "
                    "oversubscription: 2}\n"
                    "workload: {seq: 4096, global_batch: 64, dtype: bf16}\n");
    w.scenario.cluster.gpus_per_node = 8;
    check_orders(&w, fixed(4, 4, 8));
    close_world(&w);
}

/* 64 experts' ranks of 72 in a rack, or spread over two. */
static void test_ep_64_and_racks(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts o;

    parse_world(&w, "format: 1\nmodel: deepseek-v3\n"
                    "cluster: {system: gb200-nvl72, nodes: 64}\n"
                    "workload: {seq: 4096, global_batch: 512, dtype: bf16}\n");
    w.scenario.cluster.gpus_per_node = w.ctx.gpus_per_node;
    o = fixed(1, w.ctx.gpus_per_node, 64);
    o.ep = 64;
    o.sp = 0;
    check_orders(&w, o);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_layouts),
        cmocka_unit_test(test_best_of_then),
        cmocka_unit_test(test_tp_16_over_two_nodes),
        cmocka_unit_test(test_dp_inside_and_across_nodes),
        cmocka_unit_test(test_dp_and_leafs),
        cmocka_unit_test(test_ep_64_and_racks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
