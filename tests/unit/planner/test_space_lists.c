/*
 * Lists of the limits against one search for each value: of two values the plan
 * is the faster one's, its layout has one of them, and every layout that a list
 * allows is among those enumerated. Ranges and single values stand for lists.
 */
#include "planner_world.h"

#include "planner/planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void open_text(struct world *w, const char *text)
{
    if (w->db) {
        reparse_world(w, text);
    } else {
        parse_world(w, text);
    }
}

static void open_limits(struct world *w, bool has_experts, const char *limits)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\n"
             "model: {preset: %s}\n"
             "cluster: {system: dgx-h100, nodes: 1}\n"
             "workload: {seq: 16384, global_batch: 8}\n"
             "limits: {vpp: [1, 2]%s%s}\n",
             has_experts ? "mixtral-8x7b, layers: 8" : "llama3-8b, layers: 9",
             *limits ? ", " : "", limits);
    open_text(w, text);
}

struct found {
    double best_s; /* infinite: no plan */
    double peak_bytes;
    uint64_t evaluated;
    bool is_proved;
    struct mw_layout layout;
    char order[32];
};

/* One search, where key is not NULL with it fixed. */
static struct found find(const struct world *w, const char *key,
                         const char *value, bool may_offload)
{
    struct mw_search_opts opts;
    struct mw_search_result r;
    struct found f = {.best_s = HUGE_VAL};

    mw_search_opts_default(&opts);
    opts.is_quiet = true;
    opts.jobs = 1;
    opts.top = 1;
    opts.offload_optimizer = may_offload ? 1 : -1;
    if (key) {
        assert_int_equal(mw_search_fix(&opts, key, value, NULL), MW_OK);
    }
    enum mw_status status = mw_search(&w->scenario, &w->ctx, &opts, &r, NULL);

    assert_true(status == MW_OK || status == MW_ENO);
    f.evaluated = r.evaluated;
    f.is_proved = r.proved_optimal;
    if (status == MW_OK) {
        f.best_s = r.plans[0].step_time_s;
        f.layout = r.plans[0].layout;
        f.peak_bytes = r.plans[0].peak_bytes;
        snprintf(f.order, sizeof f.order, "%s", f.layout.order);
    }
    mw_search_result_release(&r);
    return f;
}

static const struct {
    const char *key, *a, *b;
    bool has_experts, may_offload;
} rows[] = {{"tp", "2", "8", false, false},
            {"cp", "2", "4", false, false},
            {"micro_batch", "1", "2", false, false},
            {"etp", "1", "2", true, false},
            {"vpp_group", "2", "4", false, false},
            {"zero", "2", "3", false, false},
            {"main_params_dtype", "fp16", "none", false, false},
            {"exp_avg_dtype", "fp32", "bf16", false, false},
            {"exp_avg_sq_dtype", "bf16", "fp8", false, false},
            {"sp", "false", "true", false, false},
            {"schedule", "zb-v", "zb-h1", false, false},
            {"schedule", "hanayo", "gpipe", false, false},
            {"recompute", "selective", "full", false, false},
            {"recompute_layers", "1", "3", false, false},
            {"order", "pp-tp-cp-dp", "dp-tp-cp-pp", false, false},
            {"cp_form", "ring", "pass_q", false, false},
            {"dp_shard", "2", "4", false, false},
            {"reshard", "false", "true", false, false},
            {"offload_nvme", "none", "optimizer", false, true}};

/* Fixed values are words of --fix, where true is 1. */
static const char *fixed(const char *key, const char *value)
{
    bool is_number = strcmp(key, "sp") == 0 || strcmp(key, "reshard") == 0;

    return !is_number ? value : strcmp(value, "true") == 0 ? "1" : "0";
}

/* Dimensions that give the listed one a meaning, so that it has one in each
 * layout, as it has where it is fixed. */
static const char *beside(const char *key)
{
    return strcmp(key, "sp") == 0         ? "tp: [2, 4], micro_batch: 1"
           : strcmp(key, "order") == 0    ? "tp: 2, cp: 1, pp: [2, 4]"
           : strcmp(key, "schedule") == 0 ? "pp: 2, micro_batch: 1"
           : strstr(key, "_dtype")        ? "tp: 2, pp: [1, 2], micro_batch: 1"
           : strcmp(key, "vpp_group") == 0
               ? "pp: 2, tp: 2, schedule: interleaved-1f1b, micro_batch: 1"
           : strcmp(key, "cp_form") == 0 ? "cp: [2, 4], micro_batch: 1"
           : strcmp(key, "zero") == 0    ? "dp: [2, 8], micro_batch: 1"
           : strcmp(key, "reshard") == 0 ? "dp: [2, 8], zero: 3, micro_batch: 1"
           : strcmp(key, "dp_shard") == 0
               ? "dp: 8, zero: [1, 2, 3], micro_batch: 1"
           : strcmp(key, "recompute_layers") == 0
               ? "recompute: [selective, full], micro_batch: 1"
               : "pp: {from: 1, to: 8}";
}

static void test_list_is_best_of_its_values(void **state)
{
    (void)state;
    struct world w = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *key = rows[i].key, *other = beside(key);
        bool is_wide = rows[i].may_offload;
        char limits[256];
        struct found a, b, both;

        open_limits(&w, rows[i].has_experts, other);
        a = find(&w, key, fixed(key, rows[i].a), is_wide);
        b = find(&w, key, fixed(key, rows[i].b), is_wide);
        snprintf(limits, sizeof limits, "%s, %s: [%s, %s]", other, key,
                 rows[i].b, rows[i].a);
        open_limits(&w, rows[i].has_experts, limits);
        both = find(&w, NULL, NULL, is_wide);
        if (both.evaluated != a.evaluated + b.evaluated ||
            !mw_near(both.best_s, fmin(a.best_s, b.best_s), 1e-12, 0) ||
            !both.is_proved) {
            fail_msg("%s: %g s of %llu, not %g and %g s of %llu and %llu", key,
                     both.best_s, (unsigned long long)both.evaluated, a.best_s,
                     b.best_s, (unsigned long long)a.evaluated,
                     (unsigned long long)b.evaluated);
        }
    }
    close_world(&w);
}

/* A list has nothing to say of what a layout does not have. */
static void test_lists_without_a_meaning(void **state)
{
    (void)state;
    struct world w = {0};

    open_limits(&w, false,
                "tp: 1, cp: 1, pp: 1, dp: 8, zero: [1, 3], sp: true, schedule: "
                "zb-v, cp_form: ring, offload_nvme: all, etp: 4");
    struct found f = find(&w, NULL, NULL, false);

    assert_true(f.best_s < HUGE_VAL);
    assert_true(f.layout.zero == 1 || f.layout.zero == 3);
    assert_false(f.layout.sp);
    assert_int_equal(f.layout.cp_form, MW_CP_GATHER);
    assert_int_equal(f.layout.offload_nvme, MW_NVME_NONE);
    assert_int_equal(f.layout.etp, 1);

    open_limits(&w, false, "tp: 8, zero: 3, reshard: false, dp_shard: 2");
    f = find(&w, NULL, NULL, false);
    assert_int_equal(f.layout.zero, 0);
    assert_int_equal(f.layout.dp_shard, 0);
    assert_true(f.layout.reshard);
    close_world(&w);
}

/* What is listed is enumerated, though it is not by default: micro-batches past
 * 64, counts of chunks that give no other chunk size. */
static void test_lists_reach_further(void **state)
{
    (void)state;
    struct world w = {0};

    parse_world(&w,
                "format: 1\nmodel: {preset: gpt2, layers: 9}\n"
                "cluster: {system: dgx-h100, nodes: 1}\n"
                "workload: {seq: 64, global_batch: 1024}\n"
                "limits: {micro_batch: 128, pp: 2, vpp: 4, dp: 4, schedule: "
                "interleaved-1f1b}\n");
    struct found f = find(&w, NULL, NULL, false);

    assert_true(f.best_s < HUGE_VAL);
    assert_int_equal(f.layout.micro_batch, 128);
    assert_int_equal(f.layout.vpp, 4);
    close_world(&w);
}

/* From 1 to 4 is [1, 2, 3, 4], also in the hash that ties plans to scenarios.
 */
static void test_ranges_are_lists(void **state)
{
    (void)state;
    struct world range = {0}, list = {0};

    open_limits(&range, false, "tp: {from: 1, to: 4}, zero: 1");
    open_limits(&list, false, "tp: [1, 2, 3, 4], zero: [1]");
    struct found a = find(&range, NULL, NULL, false);
    struct found b = find(&list, NULL, NULL, false);

    assert_int_equal(range.scenario.hash, list.scenario.hash);
    assert_int_equal(a.evaluated, b.evaluated);
    mw_assert_near(a.best_s, b.best_s, 0, 0);
    close_world(&range);
    close_world(&list);
}

static struct found find_states(struct world *w, const char *workload,
                                const char *limits)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: {preset: llama3-8b, layers: 8}\n"
             "cluster: {system: dgx-h100, nodes: 1}\n"
             "workload: {seq: 4096, global_batch: 8%s}\n"
             "limits: {micro_batch: 1, tp: 2, dp: 4, zero: 1%s}\n",
             workload, limits);
    open_text(w, text);
    return find(w, NULL, NULL, false);
}

/* Types of states that a layout chooses cost what the workload's do: a bf16
 * first moment of 4 replicas saves half a byte of each of a rank's 1.4e9
 * elements. */
static void test_states_are_the_workloads(void **state)
{
    (void)state;
    struct world w = {0};
    struct found plain = find_states(&w, "", "");
    struct found own = find_states(&w, "", ", exp_avg_dtype: bf16");
    struct found given = find_states(&w, ", exp_avg_dtype: bf16", "");
    struct found all = find_states(&w, "",
                                   ", exp_avg_dtype: bf16, exp_avg_sq_dtype: "
                                   "fp8, main_params_dtype: none");
    struct found all_given =
        find_states(&w,
                    ", exp_avg_dtype: bf16, exp_avg_sq_dtype: fp8, "
                    "main_params_dtype: none",
                    "");
    struct found back =
        find_states(&w, ", exp_avg_dtype: bf16", ", exp_avg_dtype: fp32");

    mw_assert_near(own.best_s, given.best_s, 0, 0);
    mw_assert_near(own.peak_bytes, given.peak_bytes, 0, 0);
    mw_assert_near(all.best_s, all_given.best_s, 0, 0);
    mw_assert_near(all.peak_bytes, all_given.peak_bytes, 0, 0);
    mw_assert_near(back.peak_bytes, plain.peak_bytes, 0, 0);
    mw_assert_near(back.best_s, plain.best_s, 0, 0);
    /* Layers and ends: 8 x 218e6 and 2 x 525e6, halved by tp. */
    mw_assert_near(plain.peak_bytes - own.peak_bytes,
                   (8 * 218.1e6 + 2 * 525.3e6) / 2 * 2 / 4, 0.01, 0);
    assert_true(own.best_s < plain.best_s);
    close_world(&w);
}

static void test_unknown_names(void **state)
{
    (void)state;
    static const char *const limits[] = {
        "schedule: [1f1b, gpip]", "schedule: inference", "order: [tp-cp-pp]"};
    struct mw_search_opts opts;

    mw_search_opts_default(&opts);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct world w = {0};
        struct mw_search_result r;
        struct mw_err err = {0};

        open_limits(&w, false, limits[i]);
        assert_int_equal(mw_search(&w.scenario, &w.ctx, &opts, &r, &err),
                         MW_EINPUT);
        assert_int_equal(err.status, MW_EINPUT);
        mw_search_result_release(&r);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_is_best_of_its_values),
        cmocka_unit_test(test_lists_without_a_meaning),
        cmocka_unit_test(test_lists_reach_further),
        cmocka_unit_test(test_ranges_are_lists),
        cmocka_unit_test(test_states_are_the_workloads),
        cmocka_unit_test(test_unknown_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
