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
            } else if (k == 2) { /* one pipeline's passes, at most */
                assert_true(t > was && t < was * 1.1001);
            } else if (k == 3) {
                assert_true(t > was * 1.01); /* all wait for the slowest */
            }
        }
        assert_int_equal(seen, 2 + 4 + 8 + 16);
    }
    mw_search_result_release(&r);
    close_world(&w);
}

/* The row that prices need: the stack's on the device, of the stack, of its
 * elders, of all; ranks within the error by brute force over both ends of each
 * range. */
static void test_ranks_within_the_error(void **state)
{
    (void)state;
    enum { N = 6 };
    static const double time_s[N] = {1, 1.02, 1.02, 1.09, 1.3, 4};
    struct world w;
    struct mw_candidate plans[N] = {{.step_time_s = 0}};
    struct mw_robust_row rows[N] = {{.changes = false}};

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    const struct mw_model_error *e = mw_robust_error(&w.ctx);
    assert_non_null(e);
    assert_true(e->rows >= MW_MODEL_ERROR_ROWS && e->p90 >= e->p50);
    for (int i = 0; i < N; i++) {
        plans[i].step_time_s = time_s[i];
    }
    mw_robust_rank(e, plans, N, rows);
    for (int i = 0; i < N; i++) {
        int first = N, last = 1;

        for (int high = 0; high < 2; high++) {
            double t = time_s[i] / (high ? 1 - e->p90 : 1 + e->p90);
            int rank = 1;

            for (int j = 0; j < N; j++) { /* the others at the other end */
                double x = time_s[j] / (high ? 1 + e->p90 : 1 - e->p90);

                rank += j != i && (high ? x <= t : x < t);
            }
            first = rank < first ? rank : first;
            last = rank > last ? rank : last;
        }
        assert_int_equal(rows[i].first_rank, first);
        assert_int_equal(rows[i].last_rank, last);
        assert_true(rows[i].is_tied == (time_s[i] - 1 <= e->p90));
    }
    close_world(&w);
}

static void test_errors_by_stack(void **state)
{
    (void)state;
    struct world w;

    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    const struct mw_model_error *all =
        mw_hwdb_model_error(w.db, "unheard-of", "a100-sxm-80");
    const struct mw_model_error *serial =
        mw_hwdb_model_error(w.db, "megatron-core-serial", "b200-sxm");

    assert_string_equal(all->group, "all");
    assert_string_equal(serial->group, "megatron-core-serial, b200-sxm");
    assert_true(all->rows > serial->rows);
    assert_ptr_equal(
        mw_hwdb_model_error(w.db, "megatron-core-serial-of-mine", "b200-sxm"),
        serial);
    assert_string_equal(
        mw_hwdb_model_error(w.db, "megatron-core-serial", "no-device")->group,
        "megatron-core-serial");
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terms_sum_to_the_difference),
        cmocka_unit_test(test_more_nodes_would_help),
        cmocka_unit_test(test_fixed_dimensions_are_freed),
        cmocka_unit_test(test_ranks_under_change),
        cmocka_unit_test(test_ranks_within_the_error),
        cmocka_unit_test(test_errors_by_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
