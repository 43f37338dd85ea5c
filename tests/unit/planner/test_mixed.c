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
    int kind, gpus;
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

static double brute(const struct way *way, size_t n, int m, double change_s,
                    int max_kinds)
{
    double best = HUGE_VAL;

    for (size_t a = 0; a < n; a++) {
        for (size_t b = 0; b < n; b++) {
            bool is_same = way[a].kind == way[b].kind;

            if ((is_same && way[a].gpus + way[b].gpus > 8) ||
                (!is_same && max_kinds == 1)) {
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

static void check(const char *memory, int max_kinds)
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
             N_LAYERS, memory);
    parse_world(&w, text);
    w.scenario.limits.node_kinds = max_kinds;
    mw_search_opts_default(&opts);
    opts.pp = 2;
    opts.dp = 1;
    opts.micro_batch = 1;
    size_t n = price_ways(&w, "dgx-a100", 0, way);

    n += price_ways(&w, "dgx-h100", 1, way + n);
    enum mw_status status = mw_mixed_find(&w.scenario, w.db, "plain", systems,
                                          2, &opts, NULL, m, NULL);
    double free_of_changes = brute(way, n, 16, 0, max_kinds);

    if (isinf(free_of_changes)) {
        assert_int_equal(status, MW_ENO);
    } else {
        bool changes = m->stage[0].kind != m->stage[1].kind;
        double sum = m->stage[0].time_s + m->stage[1].time_s;
        double c = (m->answer.value_s - 15 * m->answer.slowest_s - sum) / 2;

        assert_int_equal(status, MW_OK);
        assert_true(m->is_proved);
        assert_true(!changes || max_kinds != 1);
        assert_true(changes ? c > 0 : fabs(c) < 1e-9);
        mw_assert_near(m->answer.value_s,
                       changes ? brute(way, n, 16, c, max_kinds)
                               : free_of_changes,
                       1e-9, 0);
    }
    mw_free(m);
    close_world(&w);
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    check("80GiB", 0);
    check("80GiB", 1);
    check("30GiB", 0);
    check("30GiB", 1);
    check("16GiB", 0);
    check("16GiB", 1);
    check("2GiB", 0); /* nothing fits */
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
        cmocka_unit_test(test_unknown_system),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
