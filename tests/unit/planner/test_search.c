/* The search against brute force: simulate every legal layout that fits, and
 * the search's first plan must be as fast; its counts must add up; the number
 * of threads must not matter. */
#include "mw_test.h"

#include "planner/space.h"

#include <math.h>
#include <string.h>

struct world {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

static void open_world(struct world *w, const char *file, int n_nodes)
{
    char path[512];
    struct mw_err err = {0};
    snprintf(path, sizeof path, "%s/%s", MW_SCENARIOS, file);
    assert_int_equal(mw_hwdb_load(NULL, &w->db, &err), MW_OK);
    assert_int_equal(mw_scenario_load(path, &w->scenario, &err), MW_OK);
    const struct mw_cluster *c = &w->scenario.cluster;
    assert_int_equal(mw_cost_ctx_init(&w->ctx, w->db, c->system,
                                      n_nodes ? n_nodes : c->n_nodes,
                                      c->gpus_per_node, &err),
                     MW_OK);
}

static void close_world(struct world *w)
{
    mw_scenario_release(&w->scenario);
    mw_hwdb_free(w->db);
}

static struct mw_search_opts quiet_opts(void)
{
    struct mw_search_opts opts;
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    return opts;
}

/* Fastest simulated time over every legal layout that fits, even partitions:
 * an upper bound of the optimum, equal to it with one stage. */
static double brute_force(struct world *w, const struct mw_search_opts *opts)
{
    struct mw_search_result scratch = {0};
    mw_arena_init(&scratch.arena);
    struct mw_candidates all = {0};
    mw_space_enumerate(&w->scenario, &w->ctx, opts, &scratch, &all);
    double best = HUGE_VAL;
    for (size_t i = 0; i < all.n; i++) {
        struct mw_plan plan;
        struct mw_step_opts step_opts = {0};
        struct mw_step_result step;
        struct mw_err err = {0};
        assert_int_equal(
            mw_plan_make(&w->scenario, &all.v[i].layout, NULL, &plan, &err),
            MW_OK);
        assert_int_equal(mw_step_simulate(&w->scenario, &plan, &w->ctx,
                                          &step_opts, &step, &err),
                         MW_OK);
        if (step.fits) {
            best = fmin(best, step.step_time_s);
        }
        mw_step_result_release(&step);
        mw_plan_release(&plan);
    }
    mw_array_release(&all);
    mw_arena_release(&scratch.arena);
    return best;
}

static void check_counts(const struct mw_search_result *r)
{
    uint64_t dropped = 0;
    for (int i = 0; i < r->n_reasons; i++) {
        dropped += r->reasons[i].count;
        assert_true(r->reasons[i].nearest[0] != '\0');
    }
    assert_int_equal(r->enumerated, dropped + r->n_plans);
    assert_int_equal(r->simulated, r->n_plans);
}

static void test_best_of_all(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    struct mw_err err = {0};
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err), MW_OK);
    check_counts(&r);
    assert_true(r.proved_optimal);
    double best = brute_force(&w, &opts);
    assert_true(r.plans[0].step_time_s <= best * (1 + 1e-12));
    for (size_t i = 0; i < r.n_plans; i++) {
        assert_true(r.plans[i].bound_s <= r.plans[i].step_time_s * (1 + 1e-9));
        assert_true(i == 0 ||
                    r.plans[i - 1].step_time_s <= r.plans[i].step_time_s);
    }
    mw_search_result_release(&r);
    close_world(&w);
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 0);
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result one, four;
    opts.jobs = 1;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &one, NULL), MW_OK);
    opts.jobs = 4;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &four, NULL), MW_OK);
    check_counts(&one);
    assert_int_equal(one.n_plans, four.n_plans);
    for (size_t i = 0; i < one.n_plans; i++) {
        assert_int_equal(one.plans[i].id, four.plans[i].id);
        assert_true(one.plans[i].step_time_s == four.plans[i].step_time_s);
    }
    mw_search_result_release(&one);
    mw_search_result_release(&four);
    close_world(&w);
}

static void test_no_plan_says_why(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "gpt3-175b-8xdgx-a100.yaml", 1);
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    struct mw_err err = {0};
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err), MW_ENO);
    assert_non_null(strstr(err.text, "fell to memory; nearest: tp 8"));
    check_counts(&r);
    mw_search_result_release(&r);
    opts.tp = 7;
    err = (struct mw_err){0};
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err), MW_ENO);
    assert_non_null(strstr(err.text, "does not divide 8 ranks"));
    mw_search_result_release(&r);
    close_world(&w);
}

static void test_fix(void **state)
{
    (void)state;
    struct mw_search_opts opts = quiet_opts();
    struct mw_err err = {0};
    assert_int_equal(mw_search_fix(&opts, "tp", "4", &err), MW_OK);
    assert_int_equal(opts.tp, 4);
    assert_int_equal(mw_search_fix(&opts, "recompute", "full", &err), MW_OK);
    assert_int_equal(opts.recompute, MW_RECOMPUTE_FULL);
    assert_int_equal(mw_search_fix(&opts, "tp", "0", &err), MW_EUSAGE);
    assert_int_equal(mw_search_fix(&opts, "tp", "2x", NULL), MW_EUSAGE);
    assert_int_equal(mw_search_fix(&opts, "tq", "2", NULL), MW_EUSAGE);
    assert_int_equal(opts.tp, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fix),
        cmocka_unit_test(test_best_of_all),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_no_plan_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
