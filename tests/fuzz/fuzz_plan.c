/*
 * Plan files: any bytes are either read or refused with a message; what is
 * read is legal for its scenario, runs without a deadlock, and comes back from
 * its own text as the same plan.
 */
#include "fuzz/fuzz.h"

#include "sim/plan/plan.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

static const char scenario_text[] =
    "format: 1\nname: small\n"
    "model: {hidden: 64, layers: 10, heads: 4, ffn: 256, vocab: 512, mtp: 1}\n"
    "cluster: {system: dgx-a100, nodes: 1}\n"
    "workload: {seq: 128, global_batch: 16}\n";

/* The hash that the corpus was written with; the scenario takes it over, so
 * that the corpus does not depend on how scenarios are hashed. */
static const uint64_t corpus_hash = UINT64_C(0x0123456789abcdef);

static void check(const struct mw_plan *plan, const struct mw_scenario *s)
{
    struct mw_err err = {0};
    int sum = 0;

    for (int k = 0; k < plan->n_virtual; k++) {
        sum += plan->layers[k];
    }
    MW_ASSERT(sum == s->model.n_layers, "%d layers", sum);
    MW_ASSERT(mw_layout_check(&plan->layout, &s->model, &s->workload, 0, NULL,
                              &err) == MW_OK,
              "%s", err.text);
    MW_ASSERT(mw_schedule_check(&plan->schedule, &err) == MW_OK, "%s",
              err.text);
}

static void check_text(const struct mw_plan *plan, const struct mw_scenario *s)
{
    struct mw_str text = {NULL, 0, 0};
    struct mw_plan again;
    struct mw_err err = {0};

    mw_plan_text(plan, "fuzz.yaml", true, &text);
    MW_ASSERT(mw_plan_parse("fuzz.yaml", text.s, text.n, s, &again, &err) ==
                  MW_OK,
              "%s", err.text);
    MW_ASSERT(mw_plan_hash(plan) == mw_plan_hash(&again), "another plan");
    mw_str_release(&text);
    mw_plan_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_scenario s;
    struct mw_plan plan;
    struct mw_err err = {0};

    MW_ASSERT(mw_scenario_parse("small.yaml", scenario_text,
                                strlen(scenario_text), &s, &err) == MW_OK,
              "%s", err.text);
    s.hash = corpus_hash;
    if (mw_plan_parse("fuzz.yaml", (const char *)data, size, &s, &plan, &err) ==
        MW_OK) {
        check(&plan, &s);
        check_text(&plan, &s);
        mw_plan_release(&plan);
    } else {
        MW_ASSERT(err.n_findings > 0, "a failure without a message");
    }
    mw_scenario_release(&s);
    return 0;
}
