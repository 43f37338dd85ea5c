/*
 * Published recipes: which row is a run's, and which rows are refused.
 */
#include "mw_test.h"

#include "hwdb/recipe.h"
#include "hwdb_loaded.h"
#include "hwdb_overlay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* DeepSeek-V3 on B200 in Megatron-Bridge 26.04.01, which asks for another
 * layout than 26.04 did and repeats the dense MLPs for it. */
static const struct mw_recipe_run b200 = {.framework = "megatron-bridge",
                                          .version = "26.04.01",
                                          .model = "deepseek-v3",
                                          .gpu = "b200-sxm",
                                          .dtype = "fp8-mx",
                                          .tp = 1,
                                          .pp = 8,
                                          .cp = 1,
                                          .ep = 32,
                                          .micro_batch = 1};

static void test_a_run_is_found(void **state)
{
    const struct mw_recipe *r = mw_hwdb_recipe(*state, &b200);

    assert_non_null(r);
    assert_string_equal(r->recompute, "mla_up_proj;mlp");
    assert_string_equal(r->cuda_graph, "");
    assert_string_equal(r->dispatcher, "deepep");
    assert_int_equal(r->offload_layers, 0);
    assert_true(isnan(r->capacity_factor));
    assert_non_null(strstr(r->unsaid, "moe_a2a_overlap"));
    assert_non_null(strstr(r->source, "@"));
}

/* Each cell counts. */
static void test_another_run_is_not(void **state)
{
    struct mw_recipe_run r[9];

    for (size_t i = 0; i < 9; i++) {
        r[i] = b200;
    }
    r[0].framework = "dgxc";
    r[1].version = "26.06"; /* the first that it is not of */
    r[2].model = "deepseek-v2";
    r[3].gpu = "b300-sxm";
    r[4].dtype = "fp8";
    r[5].pp = 4;
    r[6].ep = 64;
    r[7].micro_batch = 2;
    r[8].tp = 2;
    for (size_t i = 0; i < 9; i++) {
        assert_null(mw_hwdb_recipe(*state, &r[i]));
    }
}

/* Each shipped row is found as itself from its first version on. */
static void test_every_row_is_found(void **state)
{
    const struct mw_recipe *r;
    size_t n = 0;

    for (; (r = mw_hwdb_recipe_at(*state, n)) != NULL; n++) {
        char model[64];
        struct mw_recipe_run run = {.framework = r->framework,
                                    .version = r->from_version,
                                    .model = model,
                                    .gpu = r->gpu,
                                    .dtype = r->dtype,
                                    .tp = (int)r->tp,
                                    .pp = (int)r->pp,
                                    .cp = (int)r->cp,
                                    .ep = (int)r->ep,
                                    .micro_batch = (int)r->micro_batch};

        snprintf(model, sizeof model, "%.*s", (int)strcspn(r->model, ";"),
                 r->model);
        assert_ptr_equal(mw_hwdb_recipe(*state, &run), r);
    }
    assert_true(n > 60);
}

#define RECIPES                                                                \
    "framework,from_version,to_version,model,gpu,dtype,tp,pp,cp,ep,"           \
    "micro_batch,recompute,recompute_layers,cuda_graph,dispatcher,"            \
    "confidence,source\n"
#define ROW(versions, gpu, dtype, settings)                                    \
    "ours," versions ",m," gpu "," dtype ",1,1,1,8,1," settings ",H,notes\n"

static void test_an_overlay_adds(void **state)
{
    struct mw_hwdb *db;
    struct mw_err err = {0};
    struct mw_recipe_run run = b200;

    (void)state;
    if (overlay_load("recipes.csv",
                     RECIPES ROW("1,2", "h100-sxm", "bf16", "full,3,,"), &db,
                     &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    run = (struct mw_recipe_run){"ours", "1.5", "m", "h100-sxm", "bf16",
                                 1,      1,     1,   8,          1};
    const struct mw_recipe *r = mw_hwdb_recipe(db, &run);

    assert_non_null(r);
    assert_int_equal(r->recompute_layers, 3);
    mw_hwdb_free(db);
}

static void test_wrong_rows(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        {"device",
         "recipes.csv",
         RECIPES ROW("1,", "h1000", "bf16", "none,,,"),
         2,
         "gpu",
         {"no device 'h1000'", NULL}},
        {"versions",
         "recipes.csv",
         RECIPES ROW("2,1", "h100-sxm", "bf16", "none,,,"),
         2,
         "to_version",
         {"'1' is not after '2'", NULL}},
        {"twice",
         "recipes.csv",
         RECIPES ROW("1,3", "h100-sxm", "bf16", "none,,,")
             ROW("2,", "h100-sxm", "bf16", "full,,,"),
         3,
         "model",
         {"line 2 has a recipe of this run", NULL}},
        {"precision",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "mxfp8", "none,,,"),
         2,
         "dtype",
         {"'mxfp8' is not one of bf16;fp8", NULL}},
        {"module",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "bf16", "mlp;moee,,,"),
         2,
         "recompute",
         {"'moee' is not one of core_attn", NULL}},
        {"layers",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "bf16", "none,2,,"),
         2,
         "recompute_layers",
         {"layers are of recompute 'full'", NULL}},
        {"graph",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "bf16", ",,moe,"),
         2,
         "cuda_graph",
         {"'moe' is not one of none;attn", NULL}},
        {"dispatcher",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "bf16", ",,,flex"),
         2,
         "dispatcher",
         {"'flex' is not one of alltoall", NULL}},
        {"nothing",
         "recipes.csv",
         RECIPES ROW("1,", "h100-sxm", "bf16", ",,,"),
         2,
         "recompute",
         {"says nothing", NULL}}};

    overlay_check_wrong(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_is_found),
        cmocka_unit_test(test_another_run_is_not),
        cmocka_unit_test(test_every_row_is_found),
        cmocka_unit_test(test_an_overlay_adds),
        cmocka_unit_test(test_wrong_rows)};

    return cmocka_run_group_tests(tests, hwdb_loaded_setup,
                                  hwdb_loaded_teardown);
}
