/* Comparisons account for the whole difference; changes found are real. */
#include "planner_world.h"

#include "planner/robust.h"
#include "planner/why.h"

#include <string.h>

static struct mw_search_opts quiet_opts(void)
{
    struct mw_search_opts opts;

    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.top = 2;
    return opts;
}

static void test_terms_sum_to_the_difference(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    struct mw_comparison c;
    double best = 0, other = 0, bytes = 0;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, NULL), MW_OK);
    assert_int_equal(mw_plans_compare(&w.scenario, &w.ctx, &r.plans[0],
                                      &r.plans[1], &c, NULL),
                     MW_OK);
    for (int i = 0; i < c.n_time; i++) {
        best += c.time[i].best;
        other += c.time[i].other;
    }
    mw_assert_near(best, r.plans[0].step_time_s, 1e-9, 0);
    mw_assert_near(other, r.plans[1].step_time_s, 1e-9, 0);
    for (int i = 0; i < MW_MEMORY_TERMS; i++) {
        bytes += c.memory[i].best;
    }
    mw_assert_near(bytes, c.best_bytes, 1e-12, 0);
    mw_assert_near(c.best_bytes, r.plans[0].peak_bytes, 1e-12, 0);
    mw_search_result_release(&r);
    close_world(&w);
}

static bool has_change(const struct mw_changes *c, const char *text)
{
    for (int i = 0; i < c->n; i++) {
        if (strstr(c->v[i].what, text)) {
            return true;
        }
    }
    return false;
}

/* 175 billion parameters x 16 bytes / 640 GB: no layout of one node fits. */
static void test_more_nodes_would_help(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_changes *c = mw_calloc(1, sizeof *c);

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 1);
    assert_int_equal(mw_changes_find(&w.scenario, &w.ctx, &opts, c), MW_OK);
    assert_int_equal(c->n, 1);
    assert_true(has_change(c, "nodes instead of 1"));
    assert_true(c->v[0].peak_bytes < w.ctx.gpu->mem_bytes);
    mw_free(c);
    close_world(&w);
}

/* tp 4 x pp 4 x dp 4 without sharding does not fit; any one of tp, pp, dp
 * given up alone leaves a product that does not match, zero given up does. */
static void test_fixed_dimensions_are_freed(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_changes *c = mw_calloc(1, sizeof *c);
    struct mw_search_result r;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    opts.tp = opts.pp = opts.dp = 4;
    opts.zero = 0;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, NULL), MW_ENO);
    mw_search_result_release(&r);
    assert_int_equal(mw_changes_find(&w.scenario, &w.ctx, &opts, c), MW_OK);
    assert_true(has_change(c, "zero other than asked for"));
    assert_false(has_change(c, "tp other"));
    mw_free(c);
    close_world(&w);
}

/* A slower network slows no plan down less than not at all, and by 10 % at
 * most; likewise the others. Ranks are a permutation in each case. */
static void test_ranks_under_change(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    struct mw_robust_row rows[4];

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    opts.top = 4;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, NULL), MW_OK);
    assert_int_equal(mw_robust(&w.scenario, &w.ctx, r.plans, 4, rows, NULL),
                     MW_OK);
    for (int k = 0; k < MW_ROBUST_CASES; k++) {
        int seen = 0;

        for (int i = 0; i < 4; i++) {
            double t = rows[i].step_time_s[k], was = r.plans[i].step_time_s;

            seen |= 1 << rows[i].rank[k];
            assert_true(k == 1 ? t <= was : t >= was);
            if (k < 2) { /* of one part: at most of the whole (1 / 0.9) */
                assert_true(t < was * 1.112 && t > was * 0.89);
            } else if (k == 2) {
                assert_true(t > was * 1.01); /* all wait for the slowest */
            }
        }
        assert_int_equal(seen, 2 + 4 + 8 + 16);
    }
    mw_search_result_release(&r);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terms_sum_to_the_difference),
        cmocka_unit_test(test_more_nodes_would_help),
        cmocka_unit_test(test_fixed_dimensions_are_freed),
        cmocka_unit_test(test_ranks_under_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
