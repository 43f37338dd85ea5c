/* Mixed systems against brute force over system, tp, recomputation and layers
 * of both stages of a small model, priced by the same simulator. */
#include "planner_world.h"

#include "planner/mixed.h"
#include "sim/step/fast.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_LAYERS = 6 };

struct way {
    int kind, gpus, recompute;
    double time_s[2][N_LAYERS + 1]; /* by stage and layers; HUGE_VAL: not */
};

/* Every (tp, recomputation) of a system, priced on both stages. */
static size_t price_ways(struct world *w, const char *system, int kind,
                         struct way *out)
{
    struct mw_cost_ctx ctx;
    size_t n_ways = 0;

    assert_int_equal(mw_cost_ctx_init(&ctx, w->db, system, 1, 0, NULL), MW_OK);
    struct mw_fast *f = mw_fast_new(&w->scenario, &ctx);
    double usable = mw_step_usable_bytes(&w->scenario, &ctx);

    for (int tp = 1; tp <= 8; tp *= 2) {
        for (int r = 0; r < 3; r++) {
            struct mw_layout l;
            struct mw_fast_units u;
            double slope[2], fixed[2];

            mw_layout_default(&l);
            l.tp = tp;
            l.sp = tp > 1;
            l.pp = 2;
            l.recompute = (enum mw_recompute)r;
            mw_fast_units_of(f, &l, &u);
            assert_int_equal(mw_fast_memory_rows(f, &l, slope, fixed, NULL),
                             MW_OK);
            struct way *way = &out[n_ways++];

            way->kind = kind;
            way->gpus = tp;
            way->recompute = r;
            for (int i = 0; i < 2; i++) {
                for (int n = 1; n < N_LAYERS; n++) {
                    way->time_s[i][n] =
                        fixed[i] + n * slope[i] <= usable
                            ? n * u.layer_s + (i ? u.head_s : u.embedding_s)
                            : HUGE_VAL;
                }
            }
        }
    }
    mw_fast_free(f);
    return n_ways;
}

/* What the stages may be: so many systems, under a framework alike, and of the
 * ways a limit may leave some. */
struct bounds {
    int max_kinds; /* 0: any */
    bool is_alike;
    int tp, recompute; /* 0, -1: any */
};

static bool may_be(const struct bounds *b, const struct way *x,
                   const struct way *y)
{
    bool is_alike = x->gpus == y->gpus && x->recompute == y->recompute;

    return (x->kind != y->kind || x->gpus + y->gpus <= 8) &&
           (x->kind == y->kind || b->max_kinds != 1) &&
           (is_alike || !b->is_alike) &&
           (b->tp == 0 || (x->gpus == b->tp && y->gpus == b->tp)) &&
           (b->recompute < 0 ||
            (x->recompute == b->recompute && y->recompute == b->recompute));
}

static double brute(const struct way *way, size_t n, int m, double change_s,
                    const struct bounds *bounds)
{
    double best = HUGE_VAL;

    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            bool is_same = way[a].kind == way[b].kind;

            if (!may_be(bounds, &way[a], &way[b])) {
                continue;
            }
            for (int k = 1; k < N_LAYERS; k++) {
                double x = way[a].time_s[0][k];
                double y = way[b].time_s[1][N_LAYERS - k];

                best = fmin(best, (m - 1) * fmax(x, y) + x + y +
                                      (is_same ? 0 : 2 * change_s));
            }
        }
    }
    return best;
}

static void check(const char *limits, struct bounds bounds)
{
    struct world w;
    struct mw_search_opts opts;
    struct mw_mixed_system systems[] = {{"dgx-a100", 1}, {"dgx-h100", 1}};
    struct mw_mixed *m = mw_calloc(1, sizeof *m);
    struct way way[24];
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {preset: llama3-8b, layers: %d}\n"
             "cluster: {system: dgx-a100, nodes: 1}\n"
             "workload: {seq: 4096, global_batch: 16}\n"
             "limits: {memory: %s}\n",
             N_LAYERS, limits);
    parse_world(&w, text);
    w.scenario.limits.node_kinds = bounds.max_kinds;
    mw_search_opts_default(&opts);
    opts.pp = 2;
    opts.dp = 1;
    opts.micro_batch = 1;
    size_t n = price_ways(&w, "dgx-a100", 0, way);

    n += price_ways(&w, "dgx-h100", 1, way + n);
    enum mw_status status = mw_mixed_find(&w.scenario, w.db, "plain", systems,
                                          2, &opts, NULL, m, NULL);
    double free_of_changes = brute(way, n, 16, 0, &bounds);

    if (isinf(free_of_changes)) {
        assert_int_equal(status, MW_ENO);
    } else {
        bool changes = m->stage[0].kind != m->stage[1].kind;
        double sum = m->stage[0].time_s + m->stage[1].time_s;
        double c = (m->answer.value_s - 15 * m->answer.slowest_s - sum) / 2;

        assert_int_equal(status, MW_OK);
        assert_true(m->is_proved);
        assert_true(!changes || bounds.max_kinds != 1);
        assert_true(changes ? c > 0 : fabs(c) < 1e-9);
        mw_assert_near(
            m->answer.value_s,
            changes ? brute(way, n, 16, c, &bounds) : free_of_changes, 1e-9, 0);
    }
    mw_free(m);
    close_world(&w);
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    check("80GiB", (struct bounds){0, false, 0, -1});
    check("80GiB", (struct bounds){1, false, 0, -1});
    check("30GiB", (struct bounds){0, false, 0, -1});
    check("30GiB", (struct bounds){1, false, 0, -1});
    check("16GiB", (struct bounds){0, false, 0, -1});
    check("16GiB", (struct bounds){1, false, 0, -1});
    check("2GiB", (struct bounds){0, false, 0, -1}); /* nothing fits */
}

/* Limits leave some of the ways; a framework runs stages that are alike, and
 * what its rules allow. */
static void test_limits_and_rules(void **state)
{
    (void)state;
    const int full = MW_RECOMPUTE_FULL, none = MW_RECOMPUTE_NONE;

    check("80GiB, tp: 2", (struct bounds){0, false, 2, -1});
    check("24GiB, recompute: full", (struct bounds){0, false, 0, full});
    check("16GiB, recompute: none, tp: [4]",
          (struct bounds){0, false, 4, none});
    check("16GiB, framework: megatron-core-0.14",
          (struct bounds){0, true, 0, -1});
    check("24GiB, framework: nanotron-0.4, recompute: [none, full]",
          (struct bounds){0, true, 0, -1});
}

static double mixture(struct world *w, int framework, int ep,
                      struct mw_mixed *m)
{
    struct mw_search_opts opts;
    struct mw_mixed_system systems[] = {{"dgx-a100", 1}, {"dgx-h100", 1}};

    mw_search_opts_default(&opts);
    opts.ep = ep;
    opts.pp = 2;
    w->scenario.limits.framework = framework;
    enum mw_status status = mw_mixed_find(&w->scenario, w->db, "megatron-core",
                                          systems, 2, &opts, NULL, m, NULL);

    for (int i = 0; status == MW_OK && i < m->pp; i++) {
        assert_true(ep == 0 || m->stage[i].ep == ep);
        assert_int_equal(m->stage[i].tp * m->dp % m->stage[i].ep, 0);
    }
    return status == MW_OK ? m->answer.value_s : HUGE_VAL;
}

/* Experts in parallel are a choice of the columns: under a framework the best
 * of one for all stages, without one no worse. */
static void test_experts_in_parallel(void **state)
{
    (void)state;
    static const int64_t three[] = {3}, some[] = {2, 4};
    const int megatron = MW_FRAMEWORK_MEGATRON_CORE;
    struct mw_mixed *m = mw_calloc(1, sizeof *m);
    double best = HUGE_VAL, alone = HUGE_VAL;
    struct world w;

    parse_world(&w, "format: 1\nmodel: {preset: mixtral-8x7b, layers: 6}\n"
                    "cluster: {system: dgx-a100, nodes: 1}\n"
                    "workload: {seq: 4096, global_batch: 8}\n");
    for (int ep = 1; ep <= 8; ep *= 2) {
        double value = mixture(&w, megatron, ep, m);

        alone = ep == 1 ? value : alone;
        best = fmin(best, value);
    }
    mw_assert_near(mixture(&w, megatron, 0, m), best, 1e-9, 0);
    assert_true(best < alone);
    assert_true(mixture(&w, MW_FRAMEWORK_ANY, 0, m) <= best * (1 + 1e-9));
    w.scenario.limits.ep = (struct mw_int_list){three, 1};
    assert_true(isinf(mixture(&w, MW_FRAMEWORK_ANY, 0, m)));
    w.scenario.limits.ep = (struct mw_int_list){some, 2};
    assert_true(mixture(&w, MW_FRAMEWORK_ANY, 0, m) < HUGE_VAL);
    assert_in_range(m->stage[0].ep, 2, 4);
    assert_in_range(m->stage[1].ep, 2, 4);
    mw_free(m);
    close_world(&w);
}

/* What no column has is refused. */
static void test_other_fixed_keys(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts;
    struct mw_mixed_system systems[] = {{"dgx-h100", 1}};
    struct mw_mixed *m = mw_calloc(1, sizeof *m);

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    mw_search_opts_default(&opts);
    opts.cp = 2;
    assert_int_equal(mw_mixed_find(&w.scenario, w.db, NULL, systems, 1, &opts,
                                   NULL, m, NULL),
                     MW_EUSAGE);
    mw_free(m);
    close_world(&w);
}

static void test_unknown_system(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts;
    struct mw_mixed_system systems[] = {{"dgx-9000", 1}};
    struct mw_mixed *m = mw_calloc(1, sizeof *m);

    open_world(&w, "llama3-8b-2xdgx-h100.yaml", 0);
    mw_search_opts_default(&opts);
    assert_int_equal(mw_mixed_find(&w.scenario, w.db, NULL, systems, 1, &opts,
                                   NULL, m, NULL),
                     MW_EINPUT);
    mw_free(m);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_limits_and_rules),
        cmocka_unit_test(test_experts_in_parallel),
        cmocka_unit_test(test_other_fixed_keys),
        cmocka_unit_test(test_unknown_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
