/*
 * Ways to the experts as a choice: the best of all is the best of each, limits
 * list them, kernels go where they have code for sizes and device.
 */
#include "planner_world.h"

#include "planner/planner.h"
#include "planner/rules.h"

#include <stdio.h>
#include <string.h>

static void open_experts(struct world *w, const char *system, int nodes,
                         int hidden, const char *limits)
{
    char text[1024];

    snprintf(text, sizeof text,
             "format: 1\n"
             "model: {hidden: %d, layers: 4, heads: 4, ffn: 4096, vocab: "
             "32768, moe: {experts: 48, top_k: 2, ffn: 1024, shared: 1, "
             "shared_ffn: 1024}}\n"
             "cluster: {system: %s, nodes: %d}\n"
             "workload: {seq: 4096, global_batch: 192}\n"
             "limits: {micro_batch: [1]%s}\n",
             hidden, system, nodes, limits);
    parse_world(w, text);
}

static struct mw_search_result searched(const struct world *w, int dispatcher,
                                        unsigned free, int ep)
{
    struct mw_search_result r;
    struct mw_search_opts opts;
    struct mw_err err = {0};

    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.jobs = 1;
    opts.top = 3;
    opts.tp = opts.pp = opts.cp = 1;
    opts.ep = ep;
    opts.zero = 1;
    opts.recompute = MW_RECOMPUTE_NONE;
    opts.dispatcher = dispatcher;
    opts.free = free;
    enum mw_status status = mw_search(&w->scenario, &w->ctx, &opts, &r, &err);

    assert_int_equal(status, r.n_plans > 0 ? MW_OK : MW_ENO);
    return r;
}

static double best_s(const struct world *w, int dispatcher, unsigned free,
                     int ep, enum mw_dispatcher *out)
{
    struct mw_search_result r = searched(w, dispatcher, free, ep);

    assert_true(r.n_plans > 0);
    double s = r.plans[0].step_time_s;

    *out = r.plans[0].layout.dispatcher;
    mw_search_result_release(&r);
    return s;
}

static void test_best_of_each(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 2; nodes++) {
        enum mw_dispatcher how, best = MW_DISPATCH_STACK;
        double least = 1e9;
        struct world w;

        open_experts(&w, "dgx-h100", nodes, 2048, "");
        for (int fixed = MW_DISPATCH_ALLTOALL; fixed <= MW_DISPATCH_HYBRIDEP;
             fixed++) {
            double s = best_s(&w, fixed, 0, 8 * nodes, &how);

            assert_int_equal(how, fixed);
            if (fixed == MW_DISPATCH_HYBRIDEP) {
                continue; /* no row prices its kernels: not among the free */
            }
            best = s < least ? how : best;
            least = s < least ? s : least;
        }
        mw_assert_near(best_s(&w, -1, MW_FREE_DISPATCHER, 8 * nodes, &how),
                       least, 1e-12, 0);
        assert_int_equal(how, best);
        best_s(&w, -1, 0, 8 * nodes, &how);
        assert_int_equal(how, MW_DISPATCH_STACK);
        best_s(&w, -1, MW_FREE_ALL, 1, &how); /* nothing is sent */
        assert_int_equal(how, MW_DISPATCH_STACK);
        close_world(&w);
    }
}

static void test_limits(void **state)
{
    enum mw_dispatcher how;
    struct world w;

    (void)state;
    open_experts(&w, "dgx-h100", 1, 2048,
                 ", dispatcher: [alltoall, allgather]");
    struct mw_search_result r = searched(&w, -1, 0, 8);

    assert_true(r.n_plans >= 2);
    for (size_t i = 0; i < r.n_plans; i++) {
        how = r.plans[i].layout.dispatcher;
        assert_true(how == MW_DISPATCH_ALLTOALL ||
                    how == MW_DISPATCH_ALLGATHER);
    }
    mw_search_result_release(&r);
    r = searched(&w, MW_DISPATCH_DEEPEP, 0, 8);
    assert_int_equal(r.n_plans, 0);
    mw_search_result_release(&r);
    close_world(&w);
}

/* Shared experts beside exchanges: never slower, so free they are there; with
 * all-to-alls alone. */
static void test_shared(void **state)
{
    struct world w;

    (void)state;
    open_experts(&w, "dgx-h100", 1, 2048, ", dispatcher: [alltoall]");
    struct mw_search_result r = searched(&w, -1, MW_FREE_SHARED_OVERLAP, 8);

    assert_true(r.plans[0].layout.overlap_shared_experts);
    mw_search_result_release(&r);
    r = searched(&w, -1, 0, 8);
    assert_false(r.plans[0].layout.overlap_shared_experts);
    mw_search_result_release(&r);
    close_world(&w);
    open_experts(&w, "dgx-h100", 1, 2048,
                 ", dispatcher: [alltoall, deepep], "
                 "overlap_shared_experts: [true]");
    r = searched(&w, -1, 0, 8);
    assert_true(r.n_plans >= 2);
    for (size_t i = 0; i < r.n_plans; i++) {
        const struct mw_layout *l = &r.plans[i].layout;

        assert_int_equal(l->overlap_shared_experts,
                         l->dispatcher == MW_DISPATCH_ALLTOALL);
    }
    mw_search_result_release(&r);
    close_world(&w);
}

/* What kernels refuse, and the rule that says so. */
static void test_kernels(void **state)
{
    static const struct {
        const char *system;
        int nodes, hidden, ep;
        enum mw_dispatcher how;
        const char *rule;
    } cases[] = {
        {"dgx-h100", 2, 2048, 16, MW_DISPATCH_DEEPEP, NULL},
        {"dgx-h100", 6, 2048, 12, MW_DISPATCH_DEEPEP, "deepep_ranks"},
        {"dgx-h100", 6, 2048, 12, MW_DISPATCH_HYBRIDEP, NULL},
        {"dgx-h100", 1, 2052, 8, MW_DISPATCH_DEEPEP, "deepep_hidden"},
        {"dgx-h100", 1, 2052, 8, MW_DISPATCH_HYBRIDEP, "hybridep_hidden"},
        {"dgx-a100", 1, 2048, 8, MW_DISPATCH_DEEPEP, NULL},
        {"dgx-a100", 2, 2048, 16, MW_DISPATCH_DEEPEP, "deepep_gpu"},
        {"dgx-a100", 1, 2048, 8, MW_DISPATCH_HYBRIDEP, "hybridep_gpu"},
        {"dgx-1v", 1, 2048, 8, MW_DISPATCH_DEEPEP, "deepep_gpu"},
        {"dgx-1v", 1, 2048, 8, MW_DISPATCH_ALLGATHER, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_layout l;
        struct world w;

        open_experts(&w, cases[i].system, cases[i].nodes, cases[i].hidden, "");
        mw_layout_default(&l);
        l.dp = 8 * cases[i].nodes;
        l.ep = cases[i].ep;
        l.dispatcher = cases[i].how;
        struct mw_rule_set *set = mw_rule_set_new(&w.scenario, &w.ctx);
        const struct mw_rule *rule = mw_rule_broken(set, &l);

        if (cases[i].rule == NULL) {
            assert_null(rule);
        } else {
            assert_non_null(rule);
            assert_string_equal(rule->id, cases[i].rule);
        }
        mw_rule_set_free(set);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_of_each),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_kernels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
