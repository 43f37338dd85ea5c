/*
 * A small GPT on two DGX A100 as each test's state, and the memory of a layout
 * of it.
 */
#ifndef MW_TESTS_TWO_NODE_BENCH_H
#define MW_TESTS_TWO_NODE_BENCH_H

#include "mw_test.h"

#include "step_fixture.h"

struct bench {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

static inline int setup(void **state)
{
    struct bench *b = mw_calloc(1, sizeof *b);

    b->db = step_hwdb();
    step_scenario(&b->scenario, "dgx-a100", 2, 64, "bf16");
    step_ctx(&b->ctx, b->db, &b->scenario);
    *state = b;
    return 0;
}

static inline int teardown(void **state)
{
    struct bench *b = *state;

    mw_scenario_release(&b->scenario);
    mw_hwdb_free(b->db);
    mw_free(b);
    return 0;
}

static inline struct mw_step_result memory_of(const struct bench *b,
                                              const struct mw_layout *l)
{
    struct mw_step_opts opts = {.memory_only = true};
    struct mw_step_result r;
    struct mw_plan plan;
    struct mw_err err = {0};

    step_plan(&plan, &b->scenario, l);
    if (mw_step_simulate(&b->scenario, &plan, &b->ctx, &opts, &r, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_plan_release(&plan);
    return r;
}

#endif
