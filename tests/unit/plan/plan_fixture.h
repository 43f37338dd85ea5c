/* A small scenario that the tests of plans share: 10 layers, 8 ranks. */
#ifndef MW_TESTS_UNIT_PLAN_FIXTURE_H
#define MW_TESTS_UNIT_PLAN_FIXTURE_H

#include "sim/plan/plan.h"

#include <string.h>

static const char fixture_text[] = "format: 1\n"
                                   "name: small\n"
                                   "model: {hidden: 64, layers: 10, "
                                   "heads: 4, ffn: 256, vocab: 512}\n"
                                   "cluster: {system: dgx-a100, nodes: 1}\n"
                                   "workload: {seq: 128, global_batch: 16}\n";

static inline void fixture_scenario(struct mw_scenario *out)
{
    struct mw_err err = {0};

    if (mw_scenario_parse("small.yaml", fixture_text, strlen(fixture_text), out,
                          &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* tp 2, pp 2, dp 2, micro-batch 2: four micro-batches. */
static inline struct mw_layout fixture_layout(void)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = l.pp = l.dp = 2;
    l.micro_batch = 2;
    return l;
}

static inline void fixture_make(const struct mw_scenario *s,
                                const struct mw_layout *l, const int *layers,
                                struct mw_plan *out)
{
    struct mw_err err = {0};

    if (mw_plan_make(s, l, layers, out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

#endif
