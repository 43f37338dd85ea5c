/* The search against brute force: simulate every legal layout that fits, and
 * the search's first plan must be as fast; its counts must add up; the number
 * of threads must not matter. */
#include "planner_world.h"

#include "planner/search_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct mw_search_opts quiet_opts(void)
{
    struct mw_search_opts opts;
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    return opts;
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

static void test_bounds_hold_and_order(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    struct mw_err err = {0};

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err), MW_OK);
    check_counts(&r);
    assert_true(r.proved_optimal);
    assert_int_equal(r.n_proved, 10);
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
    assert_non_null(strstr(err.text, "tp 7 does not divide 96 attention"));
    mw_search_result_release(&r);
    opts.tp = opts.pp = 4;
    err = (struct mw_err){0};
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err), MW_ENO);
    assert_non_null(strstr(err.text, "but the cluster has 8"));
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
    assert_int_equal(mw_search_fix(&opts, "schedule", "forward-only", NULL),
                     MW_EUSAGE);
    assert_int_equal(mw_search_fix(&opts, "schedule", "zb-h1", NULL), MW_OK);
    assert_string_equal(opts.schedule, "zb-h1");
}

/* ---- lists of sets ---------------------------------------------------------
 */
struct sets {
    uint64_t n, n_listed; /* layouts; those that the lists allow */
    uint64_t n_selective, n_shown;
};

/* mlp alone, or the attention core with the norms; tensor parallelism shown,
 * where there is any. */
static bool is_listed(const struct mw_layout *l)
{
    int modules = mw_layout_modules(l);

    return (l->recompute != MW_RECOMPUTE_SELECTIVE ||
            modules == MW_MODULE_MLP ||
            modules == (MW_MODULE_CORE_ATTN | MW_MODULE_LAYERNORM)) &&
           l->overlap_off == (l->tp > 1 ? MW_OVERLAP_TP : 0);
}

static void count_sets(void *arg, const struct mw_layout *l, uint64_t at)
{
    struct sets *s = arg;

    (void)at;
    s->n++;
    s->n_listed += is_listed(l);
    s->n_selective += l->recompute == MW_RECOMPUTE_SELECTIVE;
    s->n_shown += l->overlap_off != 0;
}

static struct sets walk_sets(const struct world *w,
                             const struct mw_search_opts *opts)
{
    struct mw_space space;
    struct mw_tally *tally = mw_calloc(1, sizeof *tally);
    struct sets s = {0, 0, 0, 0};

    mw_space_init(&space, &w->scenario, &w->ctx, opts);
    for (size_t i = 0; i < space.outer.n; i++) {
        mw_space_walk(&space, i, MW_WALK_ALL, tally, count_sets, &s);
    }
    mw_space_release(&space);
    mw_free(tally);
    return s;
}

/* Lists of the limits give what a filter leaves of the freed dimensions. */
static void test_lists_of_sets(void **state)
{
    static const int64_t modules[] = {MW_MODULE_MLP,
                                      MW_MODULE_CORE_ATTN | MW_MODULE_LAYERNORM,
                                      MW_MODULE_MLP};
    static const int64_t off[] = {MW_OVERLAP_TP};

    (void)state;
    struct world w;
    struct mw_search_opts opts = quiet_opts();

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    opts.free = MW_FREE_RECOMPUTE_MODULES | MW_FREE_OVERLAP;
    struct sets freed = walk_sets(&w, &opts);

    opts.free = 0;
    w.scenario.limits.recompute_modules = (struct mw_int_list){modules, 3};
    w.scenario.limits.overlap_off = (struct mw_int_list){off, 1};
    struct sets listed = walk_sets(&w, &opts);

    assert_int_equal(listed.n, listed.n_listed);
    assert_int_equal(listed.n, freed.n_listed);
    assert_true(listed.n < freed.n);
    assert_true(listed.n_selective > 0 && listed.n_shown > 0 &&
                listed.n_shown < listed.n);
    /* What is asked for beside the list is none of it. */
    opts.overlap_off = MW_OVERLAP_GRADS;
    opts.tp = 2;
    assert_int_equal(walk_sets(&w, &opts).n, 0);
    close_world(&w);
}

/* Layers of DeepSeek-V3 that fit one node only with their states in the host's
 * memory: 12 do, of 16 the states are more than the host has. */
static size_t plans_with_offload(int n_layers, uint64_t *out_n_over)
{
    struct world w;
    struct mw_search_opts opts = quiet_opts();
    struct mw_search_result r;
    char text[256];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {preset: deepseek-v3, layers: %d}\n"
             "cluster: {system: dgx-h100, nodes: 1}\n"
             "workload: {seq: 4096, global_batch: 64}\n",
             n_layers);
    parse_world(&w, text);
    opts.free = MW_FREE_OFFLOAD;
    opts.tp = opts.pp = opts.micro_batch = 1;
    opts.ep = 8;
    mw_search(&w.scenario, &w.ctx, &opts, &r, NULL);
    for (size_t i = 0; i < r.n_plans; i++) {
        struct mw_step_opts step_opts = {.no_breakdown = true};
        struct mw_step_result step;
        struct mw_plan plan;

        assert_int_equal(
            mw_candidate_plan(&w.scenario, &r.plans[i], &plan, NULL), MW_OK);
        assert_int_equal(mw_step_simulate(&w.scenario, &plan, &w.ctx,
                                          &step_opts, &step, NULL),
                         MW_OK);
        assert_true(step.fits);
        mw_step_result_release(&step);
        mw_plan_release(&plan);
    }
    *out_n_over = 0;
    for (int i = 0; i < r.n_reasons; i++) {
        if (strcmp(r.reasons[i].rule, "host_memory") == 0) {
            *out_n_over = r.reasons[i].count;
        }
    }
    size_t n_plans = r.n_plans;

    mw_search_result_release(&r);
    close_world(&w);
    return n_plans;
}

static void test_the_hosts_memory_is_kept_to(void **state)
{
    (void)state;
    uint64_t n_over;

    assert_true(plans_with_offload(12, &n_over) > 0);
    assert_int_equal(plans_with_offload(16, &n_over), 0);
    assert_true(n_over > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fix),
        cmocka_unit_test(test_bounds_hold_and_order),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_no_plan_says_why),
        cmocka_unit_test(test_lists_of_sets),
        cmocka_unit_test(test_the_hosts_memory_is_kept_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
