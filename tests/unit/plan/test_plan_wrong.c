/*
 * Plans that a hand has spoilt: each is refused at the line and column of the
 * key that is wrong.
 */
#include "mw_test.h"

#include "plan_fixture.h"

#include <inttypes.h>
#include <stdio.h>

struct spoilt {
    const char *name;
    const char *layout; /* lines after "layout:" */
    const char *rest;   /* layers, schedule, predicted */
    const char *place;  /* ":LINE:COLUMN" */
    const char *says;
};

#define GOOD_LAYOUT "  tp: 2\n  pp: 2\n  dp: 2\n  micro_batch: 4\n"
#define GOOD_REST "layers: [5, 5]\nschedule: {kind: 1f1b}\n"

/* Lines: 1 format 2 name 3 scenario 4 hash 5 layout: 6-9 its keys, 10 layers,
 * 11 schedule. Two micro-batches. */
static const struct spoilt cases[] = {
    {"layers do not sum", GOOD_LAYOUT,
     "layers: [5, 6]\nschedule: {kind: 1f1b}\n", ":10:9",
     "layers sum to 11 but the model has 10"},
    {"an idle stage", "  tp: 1\n  pp: 4\n  dp: 2\n  micro_batch: 4\n",
     "layers: [5, 0, 5, 0]\nschedule: {kind: 1f1b}\n", ":10:9",
     "virtual stage 1 has nothing to do"},
    {"too few entries", GOOD_LAYOUT, "layers: [10]\nschedule: {kind: 1f1b}\n",
     ":10:9", "1 entries for 2 virtual stages"},
    {"tp does not divide the heads",
     "  tp: 3\n  pp: 2\n  dp: 2\n  micro_batch: 4\n", GOOD_REST, ":6:7",
     "tp 3"},
    {"more recomputed layers than a stage has",
     "  tp: 2\n  pp: 2\n  dp: 2\n  micro_batch: 4\n  recompute: full\n"
     "  stage_recompute_layers: [4, 6]\n",
     GOOD_REST, ":11:27", "6 layers of virtual stage 1, which has 5"},
    {"recomputed layers of too few stages",
     "  tp: 2\n  pp: 2\n  dp: 2\n  micro_batch: 4\n  recompute: full\n"
     "  stage_recompute_layers: [4]\n",
     GOOD_REST, ":11:27", "1 entries; one for each of the 2"},
    {"unknown schedule", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule: {kind: 1f1c}\n", ":11:18", "1f1b"},
    {"deadlock", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule:\n  kind: custom\n  order:\n"
     "    - \"F0 BW0 F1 BW1\"\n    - \"F1 BW1 F0 BW0\"\n",
     ":14:5", "stage"},
    {"backward before forward", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule:\n  kind: custom\n  order:\n"
     "    - \"F0 F1 BW0 BW1\"\n    - \"BW0 F0 F1 BW1\"\n",
     ":14:5", "stage 1"},
    {"a micro-batch is missing", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule:\n  kind: custom\n  order:\n"
     "    - \"F0 F1 BW0 BW1\"\n    - \"F0 BW0\"\n",
     ":14:5", "stage 1"},
    {"not a pass", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule:\n  kind: custom\n  order:\n"
     "    - \"F0 F1 X0 BW1\"\n    - \"F0 BW0 F1 BW1\"\n",
     ":14:5", "X0"},
    {"one list for two stages", GOOD_LAYOUT,
     "layers: [5, 5]\nschedule:\n  kind: custom\n  order:\n"
     "    - \"F0 F1 BW0 BW1\"\n",
     ":14:5", "a list of 2 strings"},
    {"schedule named twice", GOOD_LAYOUT "  schedule: gpipe\n",
     "layers: [5, 5]\nschedule: {kind: 1f1b}\n", ":10:13", "gpipe"},
    {"unknown key", GOOD_LAYOUT, GOOD_REST "chedule: 1\n", ":12:1", "chedule"},
    {"time without a unit", GOOD_LAYOUT,
     GOOD_REST "predicted: {step_time: 3, peak_memory: 1GiB, mfu: 0.4}\n",
     ":12:24", "unit"},
    {"MFU above 1", GOOD_LAYOUT,
     GOOD_REST "predicted: {step_time: 3s, peak_memory: 1GiB, mfu: 40}\n",
     ":12:52", "mfu"},
};

static void compose(char *out, size_t len, uint64_t hash, const char *format,
                    const char *layout, const char *rest)
{
    snprintf(out, len,
             "format: %s\nname: p\nscenario: small.yaml\n"
             "scenario_hash: \"%016" PRIx64 "\"\nlayout:\n%s%s",
             format, hash, layout, rest);
}

static void expect(const struct mw_scenario *s, const char *name,
                   const char *text, const char *place, const char *says)
{
    struct mw_plan plan;
    struct mw_err err = {0};
    char where[64];

    if (mw_plan_parse("p.yaml", text, strlen(text), s, &plan, &err) !=
        MW_EINPUT) {
        fail_msg("%s: was taken", name);
    }
    snprintf(where, sizeof where, "p.yaml%s: ", place);
    if (strncmp(err.text, where, strlen(where)) != 0 ||
        strstr(err.text, says) == NULL) {
        fail_msg("%s: not at %s or not about '%s':\n%s", name, where, says,
                 err.text);
    }
}

static void test_each_is_refused_in_its_place(void **state)
{
    struct mw_scenario s;
    char text[2048];

    (void)state;
    fixture_scenario(&s);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        compose(text, sizeof text, s.hash, "1", cases[i].layout, cases[i].rest);
        expect(&s, cases[i].name, text, cases[i].place, cases[i].says);
    }
    mw_scenario_release(&s);
}

static void test_good_one_is_taken(void **state)
{
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_err err = {0};
    char text[2048];

    (void)state;
    fixture_scenario(&s);
    compose(text, sizeof text, s.hash, "1", GOOD_LAYOUT, GOOD_REST);
    if (mw_plan_parse("p.yaml", text, strlen(text), &s, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_plan_release(&plan);
    mw_scenario_release(&s);
}

static void test_other_scenario_and_newer_format(void **state)
{
    struct mw_scenario s;
    char text[2048];

    (void)state;
    fixture_scenario(&s);
    compose(text, sizeof text, s.hash + 1, "1", GOOD_LAYOUT, GOOD_REST);
    expect(&s, "other scenario", text, ":4:16",
           "plan again or pass its own scenario");
    compose(text, sizeof text, s.hash, "2", GOOD_LAYOUT, GOOD_REST);
    expect(&s, "newer format", text, ":1:9", "format 2 is newer");
    mw_scenario_release(&s);
}

static void test_hash_must_be_a_hash(void **state)
{
    static const char text[] =
        "format: 1\nscenario: small.yaml\nscenario_hash: \"12\"\n"
        "layout: {tp: 2, pp: 2, dp: 2, micro_batch: 4}\n" GOOD_REST;
    struct mw_scenario s;

    (void)state;
    fixture_scenario(&s);
    expect(&s, "short hash", text, ":3:16", "16 hexadecimal digits");
    mw_scenario_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_refused_in_its_place),
        cmocka_unit_test(test_good_one_is_taken),
        cmocka_unit_test(test_other_scenario_and_newer_format),
        cmocka_unit_test(test_hash_must_be_a_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
