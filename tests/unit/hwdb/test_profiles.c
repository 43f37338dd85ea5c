/*
 * Software profiles: which row wins, how versions compare, what the shipped
 * table says of well-known frameworks, and which rows are refused.
 */
#include "mw_test.h"

#include "hwdb/profile.h"
#include "hwdb_loaded.h"
#include "hwdb_overlay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct mw_profile profile(const struct mw_hwdb *db,
                                 const char *framework, const char *version,
                                 const char *family)
{
    struct mw_err err = {0};
    struct mw_profile p;
    if (mw_hwdb_profile(db, framework, version, family, &p, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return p;
}

static void test_versions_compare_by_number(void **state)
{
    (void)state;
    assert_true(mw_profile_version_cmp("24.07", "24.12") < 0);
    assert_true(mw_profile_version_cmp("24.12", "25.2") < 0);
    assert_true(mw_profile_version_cmp("2021-01", "2021.1") == 0);
    assert_true(mw_profile_version_cmp("v0.9", "0.10") < 0);
    assert_true(mw_profile_version_cmp("0.20.0", "0.20") == 0);
    assert_true(mw_profile_version_cmp("26.04.01", "26.04") > 0);
    assert_true(mw_profile_version_cmp("25.04.rc2", "25.04") > 0);
    assert_true(mw_profile_version_cmp("", "0") == 0);
}

static void test_every_framework_has_every_field(void **state)
{
    const char *name;
    size_t n = 0;
    for (; (name = mw_hwdb_profile_framework(*state, n)) != NULL; n++) {
        struct mw_profile p = profile(*state, name, NULL, NULL);
        for (int f = 0; f < MW_PROFILE_FIELDS; f++) {
            const struct mw_profile_cell *c = &p.cell[f];
            assert_non_null(c->value);
            assert_true(*c->source != '\0' && *c->value != '\0');
            assert_non_null(strchr("HML", *c->confidence));
            assert_true(strcmp(c->framework, name) == 0 ||
                        strcmp(c->framework, "any") == 0);
        }
    }
    assert_true(n >= 10);
    assert_string_equal(mw_hwdb_profile_framework(*state, 0), "any");
}

/* Megatron of 2021: two products and a softmax, activations recomputed
 * (arXiv:2104.04473); a year later the attention core alone
 * (arXiv:2205.05198); today's Megatron Core a fused kernel. */
static void test_megatron_through_the_years(void **state)
{
    struct mw_profile p = profile(*state, "Megatron-LM", "2021-01", "gpt");
    assert_true(mw_profile_is(&p, MW_PROFILE_ATTENTION, "unfused"));
    assert_true(mw_profile_is(&p, MW_PROFILE_RECOMPUTE, "full"));
    assert_true(mw_profile_has(&p, MW_PROFILE_FUSIONS, "softmax"));
    assert_false(mw_profile_has(&p, MW_PROFILE_FUSIONS, "swiglu"));
    assert_true(mw_profile_is(&p, MW_PROFILE_OVERLAP_GRAD_REDUCE, "no"));
    p = profile(*state, "megatron-lm", "2019.10", NULL);
    assert_false(mw_profile_has(&p, MW_PROFILE_FUSIONS, "softmax"));
    p = profile(*state, "megatron-lm", "2022.05", NULL);
    assert_true(mw_profile_is(&p, MW_PROFILE_RECOMPUTE, "selective"));
    /* After the last range the general default answers. */
    p = profile(*state, "megatron-lm", "2024.01", NULL);
    assert_string_equal(p.cell[MW_PROFILE_ATTENTION].framework, "any");
    p = profile(*state, "megatron-core", "0.8.0", NULL);
    assert_true(mw_profile_is(&p, MW_PROFILE_ATTENTION, "flash"));
    assert_true(mw_profile_is(&p, MW_PROFILE_OVERLAP_P2P, "interleaved"));
    /* max(40e6, 1e6 x ranks) parameters */
    assert_true(mw_profile_number(&p, MW_PROFILE_BUCKET) == 40e6);
    assert_true(mw_profile_number(&p, MW_PROFILE_BUCKET_PER_RANK) == 1e6);
}

static void test_family_goes_before_all_families(void **state)
{
    struct mw_profile dense = profile(*state, "megatron-core", "", "llama");
    struct mw_profile moe = profile(*state, "megatron-core", "", "MoE");
    assert_true(mw_profile_is(&dense, MW_PROFILE_COMM_SMS, "nccl"));
    assert_true(mw_profile_number(&moe, MW_PROFILE_COMM_SMS_EP) == 20);
    assert_true(mw_profile_number(&moe, MW_PROFILE_COMM_SMS_TP_GATHER) == 1);
    assert_true(mw_profile_number(&moe, MW_PROFILE_COMM_SMS_TP_REDUCE) == 16);
    assert_true(mw_profile_has(&moe, MW_PROFILE_FUSIONS, "permute"));
    assert_false(mw_profile_has(&dense, MW_PROFILE_FUSIONS, "permute"));
}

static void test_numbers_and_words(void **state)
{
    struct mw_profile p = profile(*state, "torchtitan", "0.2.2", NULL);
    assert_true(mw_profile_is(&p, MW_PROFILE_BUCKET, "block"));
    assert_true(isnan(mw_profile_number(&p, MW_PROFILE_BUCKET)));
    p = profile(*state, "deepspeed", NULL, NULL);
    assert_true(mw_profile_number(&p, MW_PROFILE_BUCKET) == 5e8);
    assert_true(mw_profile_number(&p, MW_PROFILE_FSDP_PREFETCH) == 1);
    assert_string_equal(mw_profile_field_name(MW_PROFILE_COMM_SMS), "comm_sms");
}

static void test_unknown_framework(void **state)
{
    struct mw_err err = {0};
    struct mw_profile p = {.cell = {{.value = "kept"}}};
    assert_int_equal(
        mw_hwdb_profile(*state, "megatron-cor", NULL, NULL, &p, &err),
        MW_EINPUT);
    assert_non_null(strstr(err.text, "did you mean 'megatron-core'"));
    assert_string_equal(p.cell[0].value, "kept");
}

#define PROFILES                                                               \
    "framework,from_version,to_version,family,field,value,confidence,source\n"

static void test_an_overlay_adds_and_replaces(void **state)
{
    (void)state;
    struct mw_hwdb *db;
    struct mw_err err = {0};
    if (overlay_load("profiles.csv",
                     PROFILES "ours,,2,,attention,unfused,H,our notes\n"
                              "ours,2,,,attention,flash,H,our notes\n"
                              "deepspeed,,,,bucket_elements,7,H,our notes\n",
                     &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    struct mw_profile p = profile(db, "ours", "1.9", NULL);
    assert_true(mw_profile_is(&p, MW_PROFILE_ATTENTION, "unfused"));
    p = profile(db, "ours", "2.0", NULL);
    assert_true(mw_profile_is(&p, MW_PROFILE_ATTENTION, "flash"));
    p = profile(db, "ours", NULL, NULL); /* the newest */
    assert_true(mw_profile_is(&p, MW_PROFILE_ATTENTION, "flash"));
    p = profile(db, "deepspeed", NULL, NULL);
    assert_true(mw_profile_number(&p, MW_PROFILE_BUCKET) == 7);
    assert_string_equal(p.cell[MW_PROFILE_BUCKET].source, "our notes");
    mw_hwdb_free(db);
}

static void test_wrong_rows(void **state)
{
    (void)state;
    static const struct wrong cases[] = {
        {"field",
         "profiles.csv",
         PROFILES "ours,,,,atention,flash,H,notes\n",
         2,
         "field",
         {"no field 'atention'", NULL}},
        {"value",
         "profiles.csv",
         PROFILES "ours,,,,attention,fast,H,notes\n",
         2,
         "value",
         {"'fast' is not one of flash;unfused", NULL}},
        {"number",
         "profiles.csv",
         PROFILES "ours,,,,comm_sms,-2,H,notes\n",
         2,
         "value",
         {"# a number", NULL}},
        {"two values",
         "profiles.csv",
         PROFILES "ours,,,,recompute,none;full,H,notes\n",
         2,
         "value",
         {"'none;full' is not one of", NULL}},
        {"range",
         "profiles.csv",
         PROFILES "ours,2.1,2.0,,attention,flash,H,notes\n",
         2,
         "to_version",
         {"'2.0' is not after '2.1'", NULL}},
        {"overlap",
         "profiles.csv",
         PROFILES "ours,1,3,,attention,flash,H,notes\n"
                  "ours,2,,,attention,unfused,H,notes\n",
         3,
         "from_version",
         {"line 2 already", NULL}},
        {"source",
         "profiles.csv",
         PROFILES "ours,,,,attention,flash,H,?\n",
         2,
         "source",
         {"is no source", NULL}}};
    overlay_check_wrong(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_compare_by_number),
        cmocka_unit_test(test_every_framework_has_every_field),
        cmocka_unit_test(test_megatron_through_the_years),
        cmocka_unit_test(test_family_goes_before_all_families),
        cmocka_unit_test(test_numbers_and_words),
        cmocka_unit_test(test_unknown_framework),
        cmocka_unit_test(test_an_overlay_adds_and_replaces),
        cmocka_unit_test(test_wrong_rows)};
    return cmocka_run_group_tests(tests, hwdb_loaded_setup,
                                  hwdb_loaded_teardown);
}
