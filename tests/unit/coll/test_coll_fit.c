/*
 * The corrections of the collective model: what they are without and with
 * evidence, leaving groups out by one inverse against solving again, harness
 * overheads, network plugins, versions.
 */
#include "mw_test.h"

#include "sim/coll/coll_fit.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

static struct mw_coll_world *world_of(const struct mw_hwdb *db,
                                      const char *system)
{
    struct mw_coll_world *w = NULL;
    struct mw_err err = {0};
    if (mw_coll_world_new(db, system, NULL, &w, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return w;
}

static struct mw_coll_query all_reduce(double bytes, int nodes)
{
    return (struct mw_coll_query){.op = MW_ALL_REDUCE,
                                  .bytes = bytes,
                                  .n_nodes = nodes,
                                  .ranks_per_node = 8};
}

static struct mw_coll_answer
ask(struct mw_coll_world *w, enum mw_coll_model model, struct mw_coll_query q)
{
    struct mw_coll_answer a;
    struct mw_err err = {0};
    if (mw_coll_predict(w, model, &q, &a, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return a;
}

/* Without evidence the fit is the model itself (test_coll_pipe.c). */
static void test_no_evidence(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-h100");
    struct mw_coll_fit none = {.knot = {NULL, 0, 0}};
    mw_coll_world_set_fit(w, &none);
    for (double bytes = 8; bytes < 1e10; bytes *= 3) {
        struct mw_coll_query q = all_reduce(floor(bytes), 2);
        struct mw_coll_answer a = ask(w, MW_COLL_FIT, q);
        assert_true(a.ratio == 1);
        assert_true(a.time_s == mw_coll_base(w, &q, &a, q.bytes).time_s);
    }
    mw_coll_world_free(w);
}

/* One knot: log ratio = y k / (k + campaign + noise) at the knot, less the
 * further away. */
static void test_one_knot(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-h100");
    struct mw_coll_query q = all_reduce(1 << 20, 1);
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, q);
    struct mw_coll_fit one = {.knot = {NULL, 0, 0}}, out;
    struct mw_coll_knot k;
    struct coll_feature f;
    mw_coll_keys(w, &q, &a, &k);
    snprintf(k.campaign, sizeof k.campaign, "a");
    k.ratio = 1.5;
    mw_array_push(&one.knot, k);
    struct mw_coll_learn *l = mw_coll_learn_fit(&one);
    mw_coll_learn_table(l, MW_COLL_BY_UNIT, NULL, &out);
    mw_coll_world_set_fit(w, &out);
    coll_feature_of(&k, &f);
    double own = coll_kernel(&f, &f);
    double all = own + coll_kernel_campaign(&f, &f) + coll_kernel_noise(&f);
    mw_assert_near(log(ask(w, MW_COLL_FIT, q).ratio), log(1.5) * own / all,
                   1e-9, 0);
    q.bytes *= 256;
    double far = ask(w, MW_COLL_FIT, q).ratio;
    assert_true(far > 1 && log(far) < .5 * log(1.5) * own / all);
    mw_coll_learn_free(l);
    mw_coll_fit_release(&one);
    mw_coll_fit_release(&out);
    mw_coll_world_free(w);
}

/* Every other point of the shipped table, so that it is quick. */
static void thin(const struct mw_coll_fit *all, const char *without,
                 struct mw_coll_fit *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < all->knot.n; i += 17) {
        if (!without || strcmp(all->knot.v[i].campaign, without) != 0) {
            mw_array_push(&out->knot, all->knot.v[i]);
        }
    }
}

/* Leaving a campaign out by the one inverse = solving without it. */
static void test_left_out(void **state)
{
    struct mw_coll_fit all = {.knot = {NULL, 0, 0}}, some, less;
    struct mw_coll_fit quick, again;
    struct mw_err err = {0};
    assert_int_equal(mw_coll_fit_load(*state, &all, &err), MW_OK);
    assert_true(all.knot.n > 1000);
    const char *name = all.knot.v[all.knot.n / 2].campaign;
    thin(&all, NULL, &some);
    thin(&all, name, &less);
    assert_true(less.knot.n < some.knot.n);
    struct mw_coll_learn *a = mw_coll_learn_fit(&some);
    struct mw_coll_learn *b = mw_coll_learn_fit(&less);
    mw_coll_learn_table(a, MW_COLL_BY_UNIT, name, &quick);
    mw_coll_learn_table(b, MW_COLL_BY_UNIT, NULL, &again);
    assert_int_equal(quick.knot.n, again.knot.n);
    for (size_t i = 0; i < quick.knot.n; i++) {
        mw_assert_near(quick.knot.v[i].weight, again.knot.v[i].weight, 1e-6,
                       1e-6);
    }
    mw_coll_learn_free(a);
    mw_coll_learn_free(b);
    mw_coll_fit_release(&all);
    mw_coll_fit_release(&some);
    mw_coll_fit_release(&less);
    mw_coll_fit_release(&quick);
    mw_coll_fit_release(&again);
}

/* Solving the shipped knots again gives the shipped weights. */
static void test_table_is_solved(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-h100");
    double sum = 0, big = 0;
    for (size_t i = 0; i < w->fit.knot.n; i += 101) {
        const struct coll_feature *f = &w->features[i];
        double y = 0;
        for (size_t j = 0; j < w->fit.knot.n; j++) {
            const struct coll_feature *g = &w->features[j];
            y += w->fit.knot.v[j].weight *
                 (coll_kernel(f, g) + coll_kernel_campaign(f, g) +
                  (i == j ? coll_kernel_noise(f) : 0));
        }
        double d = fabs(y - log(w->fit.knot.v[i].ratio));
        sum += d;
        big = fmax(big, d);
    }
    assert_true(big < 2e-3); /* figures are printed to 5 and 6 digits */
    assert_true(sum > 0);
    mw_coll_world_free(w);
}

/* Between powers of two the log of the correction is a line. */
static void test_between_octaves(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-a100");
    double low = ask(w, MW_COLL_FIT, all_reduce(1 << 26, 1)).ratio;
    double high = ask(w, MW_COLL_FIT, all_reduce(1 << 27, 1)).ratio;
    double mid = ask(w, MW_COLL_FIT, all_reduce(floor(exp2(26.5)), 1)).ratio;
    mw_assert_near(mid, sqrt(low * high), 1e-6, 0);
    mw_coll_world_free(w);
}

/* A harness adds its overhead; a profiler's kernel lasts at least as long. */
static void test_harness(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-h100");
    struct mw_coll_query q = all_reduce(4096, 1);
    double plain_s = ask(w, MW_COLL_FIT, q).time_s;
    double torch_s = mw_coll_fit_overhead_s(&w->fit, MW_HARNESS_TORCH);
    double wait_s = mw_coll_fit_overhead_s(&w->fit, MW_HARNESS_PROFILER);
    assert_true(torch_s > 5e-6 && torch_s < 50e-6);
    q.harness = MW_HARNESS_TORCH;
    mw_assert_near(ask(w, MW_COLL_FIT, q).time_s, plain_s + torch_s, 1e-12, 0);
    q.harness = MW_HARNESS_PROFILER;
    mw_assert_near(ask(w, MW_COLL_FIT, q).time_s, wait_s, 1e-12, 0);
    q.bytes = 1e9;
    mw_assert_near(ask(w, MW_COLL_FIT, q).overhead_s, 0, 0, 1e-12);
    enum mw_coll_harness h = MW_HARNESS_TORCH;
    assert_false(mw_coll_harness_find("slurm", &h));
    assert_int_equal(h, MW_HARNESS_TESTS);
    assert_true(mw_coll_harness_find("Profiler", &h));
    mw_coll_world_free(w);
}

/* EFA v1 leaves NCCL only Simple and 20 us a hop, twice for the flush; NCCL's
 * own model does not know. Tree over two nodes: 8.4 + 2 (7 x 4 + 14 + 40). */
static void test_plugin(void **state)
{
    struct mw_coll_world *w = world_of(*state, "aws-p4d");
    struct mw_coll_fit none = {.knot = {NULL, 0, 0}};
    mw_coll_world_set_fit(w, &none);
    struct mw_coll_query q = all_reduce(64, 2);
    struct mw_coll_answer fit = ask(w, MW_COLL_FIT, q);
    struct mw_coll_answer own = ask(w, MW_COLL_NCCL, q);
    assert_int_equal(fit.proto, MW_NCCL_SIMPLE);
    assert_int_equal(own.proto, MW_NCCL_LL);
    mw_assert_near(fit.time_s, 172.4e-6, 1e-3, 0);
    q.n_nodes = 1;
    mw_assert_near(ask(w, MW_COLL_FIT, q).time_s,
                   ask(w, MW_COLL_NCCL, q).time_s, 1e-6, 0);
    mw_coll_world_free(w);
}

/* p5 has 32 NICs of 100 Gb/s, which its plugin shows as 8 of 400. */
static void test_rails(void **state)
{
    struct mw_coll_world *p5 = world_of(*state, "aws-p5");
    struct mw_coll_world *dgx = world_of(*state, "dgx-h100");
    struct mw_coll_query q = all_reduce(1 << 30, 2);
    mw_assert_near(ask(p5, MW_COLL_NCCL, q).time_s,
                   ask(dgx, MW_COLL_NCCL, q).time_s, 0.05, 0);
    mw_coll_world_free(p5);
    mw_coll_world_free(dgx);
}

static void test_versions(void **state)
{
    enum mw_nccl_version v = MW_NCCL_2_28;
    (void)state;
    assert_true(mw_nccl_version_find("2.28.9+cuda13.1", &v));
    assert_true(mw_nccl_version_find("2.30", &v));
    assert_int_equal(v, MW_NCCL_2_30);
    assert_false(mw_nccl_version_find("2.3", &v));
    assert_int_equal(v, MW_NCCL_2_28);
    assert_false(mw_nccl_version_find("2.23.4", &v));
    assert_int_equal(v, MW_NCCL_2_26);
    assert_false(mw_nccl_version_find("", &v));
    assert_true(mw_nccl_env_known("NCCL_ALGO=ring"));
    assert_false(mw_nccl_env_known("NCCL_ALGOS=ring"));
}

/* Classes: inside a domain; a network and scale that the table has, without
 * the row's own campaign; ones that it has not. */
static void test_classes(void **state)
{
    static const struct {
        const char *system, *unit;
        int nodes;
        enum mw_coll_class want;
    } cases[] = {
        {"dgx-h100", "mine", 1, MW_COLL_INSIDE},
        {"dgx-h100", "mine", 2, MW_COLL_NET_SEEN},
        {"dgx-h100", "mine", 64, MW_COLL_NET_UNSEEN},
        {"aws-p5", "mine", 2, MW_COLL_NET_SEEN},
        {"aws-p5", "nccl_h100_2node16_aws_p5_efa", 2, MW_COLL_NET_UNSEEN},
        {"aws-p3dn", "mine", 2, MW_COLL_NET_UNSEEN}};
    enum { N = sizeof cases / sizeof cases[0] };
    struct mw_coll_rows rows = {{NULL, 0, 0}, {NULL, 0, 0}};
    struct mw_coll_fit fit = {.knot = {NULL, 0, 0}};
    enum mw_coll_class got[N];
    assert_int_equal(mw_coll_fit_load(*state, &fit, NULL), MW_OK);
    for (size_t i = 0; i < N; i++) {
        struct mw_coll_row r;
        memset(&r, 0, sizeof r);
        snprintf(r.system, sizeof r.system, "%s", cases[i].system);
        snprintf(r.unit, sizeof r.unit, "%s", cases[i].unit);
        r.query = all_reduce(1 << 20, cases[i].nodes);
        r.time_s = 1e-4;
        mw_array_push(&rows.row, r);
    }
    struct mw_coll_atlas *atlas = mw_coll_atlas_new(*state, NULL);
    mw_coll_classify(atlas, &rows, &fit, MW_COLL_BY_UNIT, got);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(got[i], cases[i].want);
    }
    mw_coll_atlas_free(atlas);
    mw_coll_fit_release(&fit);
    mw_coll_rows_release(&rows);
}

/* The rules of the engines' sources, at their thresholds. */
static void test_engine_rules(void **state)
{
    (void)state;
    static const struct {
        enum mw_coll_engine engine;
        int n;
        double bytes;
        enum mw_engine_kernel want;
    } cases[] = {{MW_ENGINE_VLLM, 2, 8388607, MW_KERNEL_ONE_SHOT},
                 {MW_ENGINE_VLLM, 2, 8388608, MW_KERNEL_NCCL},
                 {MW_ENGINE_VLLM, 4, 524287, MW_KERNEL_ONE_SHOT},
                 {MW_ENGINE_SGLANG, 4, 524288, MW_KERNEL_TWO_SHOT},
                 {MW_ENGINE_SGLANG, 8, 262143, MW_KERNEL_ONE_SHOT},
                 {MW_ENGINE_VLLM, 8, 262144, MW_KERNEL_TWO_SHOT},
                 {MW_ENGINE_VLLM, 16, 1024, MW_KERNEL_NCCL},
                 {MW_ENGINE_TRTLLM, 2, 15e6, MW_KERNEL_ONE_SHOT},
                 {MW_ENGINE_TRTLLM, 4, 1e6, MW_KERNEL_NCCL},
                 {MW_ENGINE_TRTLLM, 8, 499999, MW_KERNEL_ONE_SHOT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mw_engine_kernel_of(cases[i].engine, cases[i].n,
                                             cases[i].bytes, true),
                         cases[i].want);
    }
    assert_int_equal(mw_engine_kernel_of(MW_ENGINE_VLLM, 2, 1024, false),
                     MW_KERNEL_NCCL);
    /* 8 ranks: one shot reads 7 S, two shots 2 x 7/8 S */
    mw_assert_near(mw_engine_read_bytes(MW_KERNEL_ONE_SHOT, 8, 8), 56, 0, 0);
    mw_assert_near(mw_engine_read_bytes(MW_KERNEL_TWO_SHOT, 8, 8), 14, 0, 0);
}

/* Made-up times come back: 4 us + 3 S / 300 GB/s, an eager floor of 20 us. */
static void test_engine_fit(void **state)
{
    (void)state;
    struct mw_engine_sample s[40];
    struct mw_engine_row row, mean;
    memset(s, 0, sizeof s);
    for (int i = 0; i < 40; i++) {
        bool is_eager = i % 2 == 1;
        double bytes = exp2(8 + i / 4.0);
        double t = 4e-6 + 3 * bytes / 300e9;
        s[i] = (struct mw_engine_sample){.engine = MW_ENGINE_VLLM,
                                         .is_eager = is_eager,
                                         .has_nvlink = true,
                                         .n_ranks = 4,
                                         .bytes = bytes,
                                         .time_s = is_eager ? 20e-6 : t,
                                         .memory_Bps = 3e12};
        snprintf(s[i].cls, sizeof s[i].cls, "hopper.nvswitch");
    }
    assert_true(mw_engine_fit(s, 40, false, "hopper.nvswitch", &row));
    mw_assert_near(row.one_alpha_s, 4e-6, 1e-6, 0);
    mw_assert_near(row.one_Bps, 300e9, 1e-6, 0);
    mw_assert_near(row.launch_s, 20e-6, 1e-12, 0);
    assert_true(row.two_Bps == 0);
    assert_false(mw_engine_fit(s, 40, true, "hopper.nvswitch", &row));
    assert_true(mw_engine_row_find(&row, 1, false, "volta.cube", &mean));
    mw_assert_near(mean.one_alpha_s, 4e-6, 1e-6, 0);
    assert_false(mean.is_fitted);
    assert_false(mw_engine_row_find(&row, 1, false, "ada.pcie", &mean));
}

/* The verb's answer: shots below the limit, NCCL's time above, more eagerly. */
static void test_engine_answer(void **state)
{
    struct mw_coll_world *w = world_of(*state, "dgx-h200");
    struct mw_coll_query q = all_reduce(65536, 1);
    double nccl_s = ask(w, MW_COLL_FIT, q).time_s;
    q.engine = MW_ENGINE_VLLM;
    struct mw_coll_answer graph = ask(w, MW_COLL_FIT, q);
    assert_string_equal(graph.kernel, "one_shot");
    assert_true(graph.time_s < .6 * nccl_s);
    q.is_eager = true;
    assert_true(ask(w, MW_COLL_FIT, q).time_s > 2 * graph.time_s);
    q.is_eager = false;
    q.bytes = 1 << 30;
    struct mw_coll_query plain = q;
    plain.engine = MW_ENGINE_NONE;
    assert_null(ask(w, MW_COLL_FIT, q).kernel);
    mw_assert_near(ask(w, MW_COLL_FIT, q).time_s,
                   ask(w, MW_COLL_FIT, plain).time_s, 1e-12, 0);
    mw_coll_world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_evidence),
                                       cmocka_unit_test(test_one_knot),
                                       cmocka_unit_test(test_left_out),
                                       cmocka_unit_test(test_table_is_solved),
                                       cmocka_unit_test(test_between_octaves),
                                       cmocka_unit_test(test_harness),
                                       cmocka_unit_test(test_plugin),
                                       cmocka_unit_test(test_rails),
                                       cmocka_unit_test(test_versions),
                                       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_engine_rules),
                                       cmocka_unit_test(test_engine_fit),
                                       cmocka_unit_test(test_engine_answer)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
