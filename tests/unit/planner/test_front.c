/*
 * The front over numbers of nodes: against searches made one by one, and by
 * hand for the words of --pareto.
 */
#include "planner_world.h"

#include "planner/front.h"

#include <math.h>

/* Least time for each number of nodes that divides n; HUGE_VAL: none. */
static void best_times(const struct world *w, int n, double *out)
{
    for (int k = 1; k <= n; k++) {
        struct mw_scenario part = w->scenario;
        struct mw_cost_ctx ctx;
        struct mw_search_opts opts;
        struct mw_search_result r;

        out[k] = HUGE_VAL;
        if (n % k != 0) {
            continue;
        }
        part.cluster.n_nodes = k;
        assert_int_equal(mw_cost_ctx_init(&ctx, w->db, w->ctx.system->slug, k,
                                          w->ctx.gpus_per_node, NULL),
                         MW_OK);
        assert_int_equal(mw_cost_ctx_set_stack(&ctx, w->ctx.stack.name, NULL),
                         MW_OK);
        mw_search_opts_default(&opts);
        opts.is_quiet = true;
        opts.top = 1;
        if (mw_search(&part, &ctx, &opts, &r, NULL) == MW_OK) {
            out[k] = r.plans[0].step_time_s;
        }
        mw_search_result_release(&r);
    }
}

static void test_equals_searches(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts opts;
    struct mw_front f;
    const struct mw_front_prices prices = {3, 10000};
    const unsigned by = MW_FRONT_TIME | MW_FRONT_GPUS | MW_FRONT_COST;
    double best[9];
    size_t n = 0;

    parse_world(&w, "format: 1\nmodel: llama3-8b\n"
                    "cluster: {system: dgx-h100, nodes: 8}\n"
                    "workload: {seq: 8192, global_batch: 128}\n"
                    "limits: {memory: 40GiB}\n");
    w.scenario.cluster.gpus_per_node = 8;
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "megatron-core", NULL),
                     MW_OK);
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    assert_int_equal(
        mw_front_find(&w.scenario, &w.ctx, &opts, by, &prices, &f, NULL),
        MW_OK);
    best_times(&w, 8, best);
    assert_int_equal(f.n_searches, 4);
    assert_true(f.is_proved);
    /* Fewer GPUs are a gain of their own: a number of nodes is left out only
     * when fewer nodes are as fast. */
    for (int k = 1; k <= 8; k *= 2) {
        bool is_out = isinf(best[k]);

        for (int less = 1; less < k; less *= 2) {
            is_out = is_out || best[less] <= best[k] * (1 - 1e-12);
        }
        if (is_out) {
            continue;
        }
        assert_true(n < f.points.n);
        const struct mw_front_point *p = &f.points.v[n++];

        assert_int_equal(p->n_nodes, k);
        mw_assert_near(p->plan.step_time_s, best[k], 1e-12, 0);
        mw_assert_near(p->usd_per_token,
                       8 * k * 3.0 / 3600 * best[k] / (128 * 8192), 1e-12, 0);
        mw_assert_near(p->J_per_token, k * 1e4 * best[k] / (128 * 8192), 1e-12,
                       0);
    }
    assert_int_equal(n, f.points.n);
    assert_true(n >= 2);
    mw_front_release(&f);
    close_world(&w);
}

/* Racks that can be cut in two ways: the front of both is what no point of
 * either's own front beats. */
static void front_of(struct world *w, const int64_t *cuts, size_t n,
                     struct mw_front *out)
{
    const struct mw_front_prices prices = {3, 2700};
    struct mw_search_opts opts;

    w->scenario.cluster.domains = (struct mw_int_list){cuts, n};
    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.schedule = "1f1b";
    assert_int_equal(
        mw_front_find(&w->scenario, &w->ctx, &opts,
                      MW_FRONT_TIME | MW_FRONT_MEMORY | MW_FRONT_COST, &prices,
                      out, NULL),
        MW_OK);
}

static bool beats(const struct mw_front_point *a,
                  const struct mw_front_point *b)
{
    double x[] = {a->plan.step_time_s, a->plan.peak_bytes, a->usd_per_token};
    double y[] = {b->plan.step_time_s, b->plan.peak_bytes, b->usd_per_token};
    bool is_better = false;

    for (int i = 0; i < 3; i++) {
        if (x[i] > y[i] * (1 + 1e-12)) {
            return false;
        }
        is_better = is_better || x[i] < y[i] * (1 - 1e-12);
    }
    return is_better;
}

static void test_cut_racks(void **state)
{
    static const int64_t cuts[] = {4, 3};
    struct world w;
    struct mw_front both, one[2];
    size_t n_left = 0;

    (void)state;
    parse_world(&w, "format: 1\nmodel: {preset: llama3-8b, layers: 6}\n"
                    "cluster: {system: gb200-nvl72, gpus_per_node: 1, nodes: "
                    "4, domain_nodes: [4, 3]}\n"
                    "workload: {seq: 2048, global_batch: 12}\n");
    front_of(&w, cuts, 2, &both);
    front_of(&w, cuts, 1, &one[0]);
    front_of(&w, cuts + 1, 1, &one[1]);
    assert_int_equal(both.n_searches, one[0].n_searches + one[1].n_searches);
    for (int c = 0; c < 2; c++) {
        for (size_t i = 0; i < one[c].points.n; i++) {
            const struct mw_front_point *p = &one[c].points.v[i];
            bool is_out = false;

            for (size_t k = 0; k < one[1 - c].points.n; k++) {
                is_out = is_out || beats(&one[1 - c].points.v[k], p);
            }
            n_left += !is_out;
            assert_int_equal(p->domain_nodes, cuts[c]);
            assert_int_equal(p->n_spares, p->domain_nodes == 3);
        }
    }
    assert_int_equal(both.points.n, n_left);
    for (size_t i = 0; i < both.points.n; i++) {
        for (size_t k = 0; k < both.points.n; k++) {
            assert_false(beats(&both.points.v[k], &both.points.v[i]));
        }
    }
    mw_front_release(&both);
    mw_front_release(&one[0]);
    mw_front_release(&one[1]);
    close_world(&w);
}

static void test_words(void **state)
{
    (void)state;
    unsigned by = 0;

    assert_int_equal(mw_front_parse("time,memory", &by, NULL), MW_OK);
    assert_false(mw_front_needs_nodes(by));
    assert_int_equal(mw_front_parse("energy,time", &by, NULL), MW_OK);
    assert_int_equal(by, MW_FRONT_TIME | MW_FRONT_ENERGY);
    assert_true(mw_front_needs_nodes(by));
    assert_int_equal(mw_front_parse("time", &by, NULL), MW_EUSAGE);
    assert_int_equal(mw_front_parse("time,time", &by, NULL), MW_EUSAGE);
    assert_int_equal(mw_front_parse("time,money", &by, NULL), MW_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_searches),
        cmocka_unit_test(test_cut_racks),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
