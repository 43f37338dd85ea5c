/*
 * Plans: made from a layout, written, read again; what the hash covers; how a
 * plan finds its scenario.
 */
#include "mw_test.h"

#include "base/file.h"
#include "plan_fixture.h"

#include <stdlib.h>
#include <string.h>

static void test_even_partition_and_first_layers(void **state)
{
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_layout l = fixture_layout();

    (void)state;
    fixture_scenario(&s);
    l.pp = 4;
    l.dp = 1;
    l.tp = 2;
    fixture_make(&s, &l, NULL, &plan);
    /* 10 layers over 4 stages: 3 3 2 2 */
    assert_int_equal(plan.n_virtual, 4);
    assert_int_equal(plan.layers[0], 3);
    assert_int_equal(plan.layers[1], 3);
    assert_int_equal(plan.layers[2], 2);
    assert_int_equal(plan.layers[3], 2);
    assert_int_equal(mw_plan_first_layer(&plan, 3), 8);
    /* batch 16 over dp 1 x micro-batch 2 */
    assert_int_equal(plan.n_microbatches, 8);
    assert_int_equal(plan.schedule.n_stages, 4);
    mw_plan_release(&plan);
    mw_scenario_release(&s);
}

/* 10 layers: the head alone on an 11th stage, the embedding on a 12th. */
static void test_ends_without_layers(void **state)
{
    (void)state;
    int layers[12];
    struct mw_int_list list = {0};
    struct mw_layout plain;

    mw_layout_default(&plain);

    mw_plan_even_layers(10, 11, layers);
    assert_int_equal(layers[0], 1);
    assert_int_equal(layers[10], 0);
    mw_plan_even_layers(10, 12, layers);
    for (int k = 0; k < 12; k++) {
        assert_int_equal(layers[k], k > 0 && k < 11);
        assert_int_equal(layers[k], mw_plan_even_share(10, 12, k));
    }
    int64_t v[4] = {0, 5, 5, 0};

    list.v = v;
    list.n = 4;
    assert_int_equal(mw_layers_idle_stage(&list, &plain), -1);
    v[2] = 0;
    assert_int_equal(mw_layers_idle_stage(&list, &plain), 2);
    v[0] = 0;
    list.n = 1;
    assert_int_equal(mw_layers_idle_stage(&list, &plain), 0);
}

static void test_layers_given(void **state)
{
    static const int good[] = {6, 4}, bad[] = {6, 5};
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_err err = {0};
    struct mw_layout l = fixture_layout();

    (void)state;
    fixture_scenario(&s);
    fixture_make(&s, &l, good, &plan);
    assert_int_equal(plan.layers[0], 6);
    mw_plan_release(&plan);
    assert_int_equal(mw_plan_make(&s, &l, bad, &plan, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "sum to 11 but the model has 10"));
    mw_scenario_release(&s);
}

/* save -> load -> save gives the same bytes, and the same plan. */
static void check_round_trip_of(struct mw_scenario *scenario,
                                const struct mw_layout *l, bool is_explicit)
{
    struct mw_scenario s = *scenario;
    struct mw_plan plan, again;
    struct mw_err err = {0};
    char *first = NULL, *second = NULL;
    size_t n_first, n_second;

    fixture_make(&s, l, NULL, &plan);
    plan.has_predicted = true;
    plan.predicted = (struct mw_predicted){1.0 / 3, 1e10 / 7, 0.1};
    assert_int_equal(mw_plan_save(&plan, "round.yaml", is_explicit, &err),
                     MW_OK);
    if (mw_plan_load("round.yaml", &s, &again, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(mw_plan_hash(&plan) == mw_plan_hash(&again));
    assert_true(again.has_predicted);
    mw_assert_near(again.predicted.step_time_s, 1.0 / 3, 0, 0);
    assert_int_equal(mw_plan_save(&again, "again.yaml", is_explicit, &err),
                     MW_OK);
    assert_int_equal(
        mw_file_read("round.yaml", 1 << 24, &first, &n_first, &err), MW_OK);
    assert_int_equal(
        mw_file_read("again.yaml", 1 << 24, &second, &n_second, &err), MW_OK);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    mw_free(first);
    mw_free(second);
    remove("round.yaml");
    remove("again.yaml");
    mw_plan_release(&plan);
    mw_plan_release(&again);
}

static void check_round_trip(const struct mw_layout *l, bool is_explicit)
{
    struct mw_scenario s;

    fixture_scenario(&s);
    check_round_trip_of(&s, l, is_explicit);
    mw_scenario_release(&s);
}

static const int64_t counts[][2] = {{5, 1}, {0, 4}};
static const struct mw_int_list by_stage = {counts[0], 2},
                                late = {counts[1], 2};

static void test_round_trip(void **state)
{
    struct mw_layout l = fixture_layout();

    (void)state;
    check_round_trip(&l, false);
    check_round_trip(&l, true);
    l.vpp = 5;
    l.schedule = "interleaved-1f1b";
    check_round_trip(&l, false);
    check_round_trip(&l, true);
    l.vpp = 2;
    l.schedule = "zb-v";
    check_round_trip(&l, true);
    l.vpp = 1;
    l.schedule = "zb-h1";
    l.recompute = MW_RECOMPUTE_FULL;
    l.order = "tp-dp-pp-cp";
    check_round_trip(&l, true);
    l.schedule = "seq1f1b"; /* whose order counts parts */
    check_round_trip(&l, false);
    check_round_trip(&l, true);
    l.schedule = "dualpipe";
    check_round_trip(&l, true);
    l = fixture_layout();
    l.zero = 3;
    l.dp_shard = 1;
    l.reshard = false;
    l.fsdp_unit = 3;
    l.fsdp_prefetch = 0;
    l.cp_form = MW_CP_RING;
    l.offload_optimizer = 1;
    l.offload_weights = 1.0 / 3;
    l.offload_activations = 0.1;
    l.recompute = MW_RECOMPUTE_FULL;
    l.recompute_layers = 2;
    l.offload_nvme = MW_NVME_ALL;
    check_round_trip(&l, false);
    l = fixture_layout();
    l.zero = 3;
    l.fsdp_unit = 0;
    l.fsdp_prefetch = 2;
    l.grad_compression = MW_COMPRESS_ZEROPP;
    l.overlap_off = MW_OVERLAP_GRADS | MW_OVERLAP_PARAMS;
    l.dtype = 1 + MW_FP8;
    l.grad_dtype = 1 + MW_BF16;
    check_round_trip(&l, false);
    l = fixture_layout();
    l.recompute = MW_RECOMPUTE_SELECTIVE;
    l.recompute_modules = MW_MODULE_LAYERNORM | MW_MODULE_MLP;
    check_round_trip(&l, false);
    l.stage_recompute_layers = by_stage;
    check_round_trip(&l, false);
    check_round_trip(&l, true);
}

/* Keys younger than the format change the hash where they say anything. */
static void test_hash_of_young_keys(void **state)
{
    struct mw_scenario s;
    struct mw_plan plan;
    uint64_t hash[20];
    size_t n = 0;

    (void)state;
    fixture_scenario(&s);
    for (int i = 0; i < 20; i++) {
        struct mw_layout l = fixture_layout();

        l.zero = 3;
        l.fsdp_unit = i == 15 ? 0 : i == 16 ? 2 : 1;
        l.fsdp_prefetch = i == 17 ? 0 : -1;
        l.overlap_off = i == 14 ? MW_OVERLAP_TP : 0;
        l.dtype = i == 12 ? 1 + MW_FP8 : MW_DTYPE_OF_WORKLOAD;
        l.grad_dtype = i == 13 ? 1 + MW_BF16 : MW_DTYPE_OF_WORKLOAD;
        l.recompute = MW_RECOMPUTE_SELECTIVE;
        l.recompute_layers = i == 8;
        l.stage_recompute_layers = i == 18   ? by_stage
                                   : i == 19 ? late
                                             : (struct mw_int_list){NULL, 0};
        l.recompute_modules = i == 11 ? MW_MODULE_CORE_ATTN : 0;
        l.cp_form = i == 1 ? MW_CP_RING : i == 2 ? MW_CP_A2A : MW_CP_GATHER;
        l.dp_shard = i == 3;
        l.grad_compression = i == 9 ? MW_COMPRESS_ZEROPP : MW_COMPRESS_NONE;
        l.reshard = i != 4;
        l.offload_optimizer = i == 5 ? 0.5 : 0;
        l.offload_weights = i == 6 || i == 10 ? 0.5 : 0;
        l.offload_nvme = i == 10 ? MW_NVME_WEIGHTS : MW_NVME_NONE;
        l.offload_activations = i == 7 ? 0.5 : 0;
        fixture_make(&s, &l, NULL, &plan);
        hash[n] = mw_plan_hash(&plan);
        for (size_t j = 0; j < n; j++) {
            assert_true(hash[j] != hash[n]);
        }
        n++;
        mw_plan_release(&plan);
    }
    mw_scenario_release(&s);
}

/* Keys of layouts of experts. */
static void test_experts(void **state)
{
    static const char text[] =
        "format: 1\nmodel: {hidden: 64, layers: 10, heads: 4, ffn: 128, vocab: "
        "256, moe: {experts: 4, top_k: 2, ffn: 64, shared: 1, shared_ffn: "
        "64}}\n"
        "cluster: {system: dgx-a100, nodes: 1}\n"
        "workload: {seq: 128, global_batch: 16}\n";
    struct mw_scenario s;
    struct mw_err err = {0};
    uint64_t hash[8];
    size_t n = 0;

    (void)state;
    if (mw_scenario_parse("moe.yaml", text, strlen(text), &s, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    for (int i = 0; i < 6; i++) {
        struct mw_layout l;
        struct mw_plan plan;

        mw_layout_default(&l);
        l.dp = 8;
        l.ep = 4;
        l.dispatcher = i < 5 ? (enum mw_dispatcher)i : MW_DISPATCH_ALLTOALL;
        l.overlap_shared_experts = i == 5;
        check_round_trip_of(&s, &l, false);
        fixture_make(&s, &l, NULL, &plan);
        hash[n] = mw_plan_hash(&plan);
        for (size_t j = 0; j < n; j++) {
            assert_true(hash[j] != hash[n]);
        }
        n++;
        mw_plan_release(&plan);
    }
    mw_scenario_release(&s);
}

static void test_hash_of_cp_inner(void **state)
{
    struct mw_scenario s;
    struct mw_plan plan;
    uint64_t hash[2];

    (void)state;
    fixture_scenario(&s);
    for (int i = 0; i < 2; i++) {
        struct mw_layout l = fixture_layout();

        l.pp = l.dp = 1;
        l.cp = 4;
        l.cp_form = MW_CP_RING;
        l.cp_inner = i + 1;
        check_round_trip(&l, false);
        fixture_make(&s, &l, NULL, &plan);
        hash[i] = mw_plan_hash(&plan);
        mw_plan_release(&plan);
    }
    assert_true(hash[0] != hash[1]);
    mw_scenario_release(&s);
}

static void test_hash_is_of_what_runs(void **state)
{
    static const int uneven[] = {6, 4};
    struct mw_scenario s;
    struct mw_plan a, b;
    struct mw_layout l = fixture_layout();

    (void)state;
    fixture_scenario(&s);
    fixture_make(&s, &l, NULL, &a);
    fixture_make(&s, &l, NULL, &b);
    b.name = "another name";
    b.has_predicted = true;
    b.scenario_file = "elsewhere.yaml";
    assert_true(mw_plan_hash(&a) == mw_plan_hash(&b));
    mw_plan_release(&b);
    fixture_make(&s, &l, uneven, &b);
    assert_true(mw_plan_hash(&a) != mw_plan_hash(&b));
    mw_plan_release(&b);
    l.schedule = "gpipe";
    fixture_make(&s, &l, NULL, &b);
    assert_true(mw_plan_hash(&a) != mw_plan_hash(&b));
    /* the order of the passes alone decides, not the schedule's name */
    mw_plan_release(&b);
    l = fixture_layout();
    fixture_make(&s, &l, NULL, &b);
    b.layout.schedule = "custom";
    assert_true(mw_plan_hash(&a) == mw_plan_hash(&b));
    mw_plan_release(&a);
    mw_plan_release(&b);
    mw_scenario_release(&s);
}

/* A plan in another folder names its scenario relative to itself. */
static void test_plan_finds_its_scenario(void **state)
{
    struct mw_scenario s, own;
    struct mw_plan plan, again;
    struct mw_err err = {0};
    struct mw_layout l = fixture_layout();
    struct mw_outfile out;

    (void)state;
    assert_int_equal(mw_mkdirs("plan_dir/deep", &err), MW_OK);
    assert_int_equal(mw_outfile_open(&out, "plan_scenario.yaml", &err), MW_OK);
    fputs(fixture_text, out.f);
    assert_int_equal(mw_outfile_commit(&out, &err), MW_OK);
    assert_int_equal(mw_scenario_load("./plan_scenario.yaml", &s, &err), MW_OK);
    fixture_make(&s, &l, NULL, &plan);
    assert_int_equal(mw_plan_save(&plan, "plan_dir/deep/p.yaml", false, &err),
                     MW_OK);
    if (mw_plan_load_own("plan_dir/deep/p.yaml", &own, &again, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(again.scenario_file, "../../plan_scenario.yaml");
    assert_true(own.hash == s.hash);
    /* moved up one folder, the way to the scenario is one shorter */
    assert_int_equal(mw_plan_save(&again, "plan_dir/q.yaml", false, &err),
                     MW_OK);
    mw_plan_release(&again);
    mw_scenario_release(&own);
    assert_int_equal(mw_plan_load("plan_dir/q.yaml", NULL, &again, &err),
                     MW_OK);
    assert_string_equal(again.scenario_file, "../plan_scenario.yaml");
    mw_plan_release(&again);
    mw_plan_release(&plan);
    mw_scenario_release(&s);
    remove("plan_dir/deep/p.yaml");
    remove("plan_dir/q.yaml");
    remove("plan_dir/deep");
    remove("plan_dir");
    remove("plan_scenario.yaml");
}

static void test_unwritable_output_leaves_nothing(void **state)
{
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_err err = {0};
    struct mw_layout l = fixture_layout();

    (void)state;
    fixture_scenario(&s);
    fixture_make(&s, &l, NULL, &plan);
    assert_int_equal(mw_plan_save(&plan, "no/such/folder/p.yaml", false, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "no/such/folder/p.yaml"));
    mw_plan_release(&plan);
    mw_scenario_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even_partition_and_first_layers),
        cmocka_unit_test(test_ends_without_layers),
        cmocka_unit_test(test_layers_given),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_hash_of_cp_inner),
        cmocka_unit_test(test_hash_is_of_what_runs),
        cmocka_unit_test(test_hash_of_young_keys),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_plan_finds_its_scenario),
        cmocka_unit_test(test_unwritable_output_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
