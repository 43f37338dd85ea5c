/* Expert traffic: expectations by hand, imbalance, node limit, times against
 * published DeepEP figures. */
#include "mw_test.h"

#include "sim/coll/moe_fit.h"

#include <stdio.h>
#include <string.h>

/* 4 experts on 2 ranks, top 2, uniform: a token misses a rank with
 * C(2,2) / C(4,2) = 1/6, so it goes to 2 * 5/6 = 5/3 ranks. */
static void copies_by_hand(void **state)
{
    (void)state;
    struct mw_moe_traffic t = {
        .n_experts = 4, .top_k = 2, .n_ranks = 2, .ranks_per_node = 1};
    struct mw_moe_load l;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_moe_load(&t, &l, &err), MW_OK);
    mw_assert_near(l.copies_per_token, 5.0 / 3, 1e-12, 0);
    mw_assert_near(l.nodes_per_token, 5.0 / 3, 1e-12, 0);
    mw_assert_near(l.max_over_mean, 1, 1e-12, 0);
    mw_moe_load_release(&l);
}

/* Zipf a = 1 over 4 experts on 2 ranks: 1 + 1/2 of 25/12 on rank 0. */
static void zipf_by_hand(void **state)
{
    (void)state;
    struct mw_moe_traffic t = {.n_experts = 4,
                               .top_k = 1,
                               .n_ranks = 2,
                               .ranks_per_node = 2,
                               .routing = MW_MOE_ZIPF,
                               .exponent = 1};
    struct mw_moe_load l;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_moe_load(&t, &l, &err), MW_OK);
    mw_assert_near(l.max_over_mean, 2 * 1.5 / (25.0 / 12), 1e-12, 0);
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += l.p[i];
    }
    mw_assert_near(sum, 1, 1e-12, 0);
    mw_moe_load_release(&l);
}

static void node_limit_caps_the_nodes(void **state)
{
    (void)state;
    struct mw_moe_traffic t = {
        .n_experts = 256, .top_k = 8, .n_ranks = 64, .ranks_per_node = 8};
    struct mw_moe_load l;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_moe_load(&t, &l, &err), MW_OK);
    /* 8 (1 - C(224, 8) / C(256, 8)) = 5.29 of 8 nodes. */
    mw_assert_near(l.nodes_per_token, 5.29, .01, 0);
    mw_moe_load_release(&l);
    t.n_nodes_max = 4;
    assert_int_equal(mw_moe_load(&t, &l, &err), MW_OK);
    mw_assert_near(l.nodes_per_token, 4, 1e-12, 0);
    mw_moe_load_release(&l);
}

static void wrong_traffic_is_refused(void **state)
{
    (void)state;
    struct mw_moe_traffic bad[] = {
        {.n_experts = 6, .top_k = 2, .n_ranks = 4, .ranks_per_node = 4},
        {.n_experts = 8, .top_k = 9, .n_ranks = 4, .ranks_per_node = 4},
        {.n_experts = 8, .top_k = 2, .n_ranks = 4, .ranks_per_node = 3},
        {.n_experts = 8,
         .top_k = 2,
         .n_ranks = 4,
         .ranks_per_node = 4,
         .routing = MW_MOE_HISTOGRAM}};
    for (size_t i = 0; i < 4; i++) {
        struct mw_moe_load l;
        struct mw_err err = {.status = MW_OK};
        assert_int_equal(mw_moe_load(&bad[i], &l, &err), MW_EINPUT);
    }
}

/* DeepEP's README, low latency, 128 tokens, hidden 7168, top 8, H800: EP 8 77
 * and 114 us. H100 8 GPUs here: alpha 10.4 us + 7.6 MB / 285 GB/s. */
static void times_are_near_published_ones(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_moe_table *table = NULL;
    const struct mw_system *sys = NULL;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_moe_table_load(db, &table, &err), MW_OK);
    assert_int_equal(mw_hwdb_system(db, "dgx-h100", &sys, &err), MW_OK);
    struct mw_moe_traffic t = {
        .n_experts = 256, .top_k = 8, .n_ranks = 16, .ranks_per_node = 8};
    struct mw_moe_query q = {.kernel = MW_MOE_LOW_LATENCY,
                             .tokens_per_rank = 128,
                             .hidden = 7168,
                             .dispatch_bytes = 1.03125,
                             .combine_bytes = 2};
    struct mw_moe_time time;
    assert_int_equal(mw_moe_predict(table, sys, &t, &q, &time, &err), MW_OK);
    mw_assert_near(time.dispatch_s, 102.1e-6, .05, 0); /* H100, 2 nodes */
    mw_assert_near(time.combine_s, 186.2e-6, .05, 0);
    mw_assert_near(time.imbalance_s, 0, 0, 1e-12);
    t.routing = MW_MOE_ZIPF;
    t.exponent = .5;
    assert_int_equal(mw_moe_predict(table, sys, &t, &q, &time, &err), MW_OK);
    assert_true(time.imbalance_s > 0);
    mw_assert_near(time.dispatch_s + time.combine_s - time.imbalance_s,
                   time.balanced_dispatch_s + time.balanced_combine_s, 1e-12,
                   0);
    mw_moe_table_free(table);
    mw_hwdb_free(db);
}

/* DeepEP's form, inside a node, top 1: a rank takes what it sends. Dispatch
 * 10 us + bytes / 100 GB/s, combine 20 us + bytes / 50 GB/s. */
static void write_deepep(const char *path, const char *gpu, double slower)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "mode,gpu,gpus,nodes,hidden,tokens_per_rank,topk,experts,"
               "dispatch_us,dispatch_sms,combine_us\n");
    for (int tokens = 1; tokens <= 8192; tokens *= 2) {
        double x = 1e6 * 7168 * tokens;
        fprintf(f, "low_latency,%s,8,1,7168,%d,1,64,%.6f,,%.6f\n", gpu, tokens,
                slower * (10 + MW_MOE_FP8_BYTES * x / 100e9),
                slower * (20 + 2 * x / 50e9));
    }
    fclose(f);
}

static void a_fit_finds_made_up_times(void **state)
{
    const char *path = "test_moe_deepep.csv";
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_moe_samples s = {{NULL, 0, 0}};
    struct mw_moe_table *table = NULL;
    const struct mw_system *sys = NULL;
    struct mw_moe_time t;
    write_deepep(path, "H100-SXM", 1);
    assert_true(mw_moe_is_table(path));
    assert_int_equal(mw_moe_samples_load(path, &s, &err), MW_OK);
    assert_int_equal(s.v.n, 28);
    assert_string_equal(s.v.v[0].unit, "test_moe_deepep/dgx-h100/low_latency");
    assert_int_equal(mw_moe_fit(&s, NULL, NULL, &table, &err), MW_OK);
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_hwdb_system(db, "dgx-h100", &sys, &err), MW_OK);
    struct mw_moe_traffic traffic = {
        .n_experts = 64, .top_k = 1, .n_ranks = 8, .ranks_per_node = 8};
    struct mw_moe_query q = {.kernel = MW_MOE_LOW_LATENCY,
                             .tokens_per_rank = 1000,
                             .hidden = 7168,
                             .dispatch_bytes = MW_MOE_FP8_BYTES,
                             .combine_bytes = 2};
    assert_int_equal(mw_moe_predict(table, sys, &traffic, &q, &t, &err), MW_OK);
    mw_assert_near(t.dispatch_s, 10e-6 + MW_MOE_FP8_BYTES * 7.168e6 / 100e9,
                   .01, 0);
    mw_assert_near(t.combine_s, 20e-6 + 2 * 7.168e6 / 50e9, .01, 0);
    mw_moe_table_free(table);
    mw_array_release(&s.v);
    mw_hwdb_free(db);
    remove(path);
}

/* Two machines of one architecture, one twice as slow: without it, it is
 * predicted as the other, half of what it took. */
static void left_out_is_fitted_without(void **state)
{
    const char *const path[] = {"test_moe_a.csv", "test_moe_b.csv"};
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_coll_validation v;
    write_deepep(path[0], "H100-SXM", 1);
    write_deepep(path[1], "H200-SXM", 2);
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_moe_validate(db, path, 2, true, &v, &err), MW_OK);
    assert_int_equal(v.rows, 56);
    assert_int_equal(v.predicted, 56);
    assert_int_equal(v.n_units, 2);
    mw_assert_near(v.left_out[0].error.median, 1, .02, 0);
    mw_assert_near(v.left_out[1].error.median, .5, .02, 0);
    mw_coll_validation_release(&v);
    mw_hwdb_free(db);
    remove(path[0]);
    remove(path[1]);
}

static void a_wrong_table_is_refused(void **state)
{
    const char *path = "test_moe_bad.csv";
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_moe_samples s = {{NULL, 0, 0}};
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "op,kernel,ep\nalltoall_dispatch,NVLinkTwoSided,4\n");
    fclose(f);
    assert_false(mw_moe_is_table(path));
    assert_int_equal(mw_moe_samples_load(path, &s, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "test_moe_bad.csv:1: "));
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "op,kernel,ep,gpu,hidden,tokens,topk,experts,time_us,moe_dtype,"
               "distribution\n"
               "alltoall_dispatch,NVLinkTwoSided,3,GB200,7168,8,8,256,9,fp8,"
               "balanced\n"
               "alltoall_prepare,NVLinkTwoSided,4,GB200,7168,8,8,256,9,fp8,"
               "balanced\n"
               "alltoall_dispatch,NVLinkOneSided,4,GB200,7168,8,8,256,9,nvfp4,"
               "balanced\n");
    fclose(f);
    assert_int_equal(mw_moe_samples_load(path, &s, &err), MW_OK);
    assert_int_equal(s.v.n, 3);
    assert_non_null(s.v.v[0].why_not); /* 256 experts on 3 ranks */
    assert_non_null(s.v.v[1].why_not);
    assert_null(s.v.v[2].why_not);
    assert_int_equal(s.v.v[2].query.kernel, MW_MOE_ONE_SIDED);
    mw_array_release(&s.v);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_by_hand),
        cmocka_unit_test(zipf_by_hand),
        cmocka_unit_test(node_limit_caps_the_nodes),
        cmocka_unit_test(wrong_traffic_is_refused),
        cmocka_unit_test(times_are_near_published_ones),
        cmocka_unit_test(a_fit_finds_made_up_times),
        cmocka_unit_test(left_out_is_fitted_without),
        cmocka_unit_test(a_wrong_table_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
