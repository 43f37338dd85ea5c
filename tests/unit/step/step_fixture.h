/* Scenarios and contexts that the tests of a step share. */
#ifndef MW_TESTS_UNIT_STEP_FIXTURE_H
#define MW_TESTS_UNIT_STEP_FIXTURE_H

#include "sim/step/step.h"

#include <stdio.h>
#include <string.h>

/* GPT of 16 layers in the given precision, unfused attention, tied head. */
static inline void step_scenario(struct mw_scenario *out, const char *system,
                                 int nodes, int batch, const char *dtype)
{
    struct mw_err err = {0};
    char text[1024];

    snprintf(text, sizeof text,
             "format: 1\nname: t\n"
             "model: {hidden: 1024, layers: 16, heads: 16, ffn: 4096, "
             "vocab: 32768, max_seq: 512, gated: false, norm: layer, position: "
             "learned, "
             "tied: true}\n"
             "cluster: {system: %s, nodes: %d}\n"
             "workload: {seq: 512, global_batch: %d, dtype: %s, "
             "attention: unfused}\n",
             system, nodes, batch, dtype);
    if (mw_scenario_parse("t.yaml", text, strlen(text), out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static inline struct mw_hwdb *step_hwdb(void)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return db;
}

static inline void step_ctx(struct mw_cost_ctx *out, const struct mw_hwdb *db,
                            const struct mw_scenario *s)
{
    struct mw_err err = {0};

    if (mw_cost_ctx_init(out, db, s->cluster.system, s->cluster.n_nodes,
                         s->cluster.gpus_per_node, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static inline void step_plan(struct mw_plan *out, const struct mw_scenario *s,
                             const struct mw_layout *l)
{
    struct mw_err err = {0};

    if (mw_plan_make(s, l, NULL, out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static inline void step_simulate(struct mw_step_result *out,
                                 const struct mw_scenario *s,
                                 const struct mw_layout *l,
                                 const struct mw_cost_ctx *ctx,
                                 struct mw_timeline *timeline)
{
    struct mw_step_opts opts = {.timeline = timeline};
    struct mw_plan plan;
    struct mw_err err = {0};

    step_plan(&plan, s, l);
    if (mw_step_simulate(s, &plan, ctx, &opts, out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_plan_release(&plan);
}

#endif
