/* Scenarios and contexts that the tests of a step share. */
#ifndef MW_TESTS_UNIT_STEP_FIXTURE_H
#define MW_TESTS_UNIT_STEP_FIXTURE_H

#include "sim/step/ledger.h"
#include "sim/step/step.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The scenario of a text as for printf. */
__attribute__((format(printf, 2, 3))) static inline void
step_scenario_of(struct mw_scenario *out, const char *fmt, ...)
{
    struct mw_err err = {0};
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (mw_scenario_parse("t.yaml", text, strlen(text), out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* GPT of 16 layers in the given precision, unfused attention, tied head. */
static inline void step_scenario(struct mw_scenario *out, const char *system,
                                 int nodes, int batch, const char *dtype)
{
    step_scenario_of(out,
                     "format: 1\nname: t\n"
                     "model: {hidden: 1024, layers: 16, heads: 16, ffn: 4096, "
                     "vocab: 32768, max_seq: 512, gated: false, norm: layer, "
                     "position: learned, tied: true}\n"
                     "cluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: 512, global_batch: %d, dtype: %s, "
                     "attention: unfused}\n",
                     system, nodes, batch, dtype);
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

/* A scenario with its prices. */
struct step_world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
};

/* After the scenario is set: database and prices. */
static inline void step_world_price(struct step_world *w)
{
    w->db = step_hwdb();
    step_ctx(&w->ctx, w->db, &w->s);
}

static inline void step_world_close(struct step_world *w)
{
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
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

/* The fast form, which knows no wires shared by two kinds of traffic, gives the
 * event form's time within 3 % and its very peak of memory. The step's time. */
static inline double step_forms_agree(const struct step_world *w,
                                      const struct mw_layout *l)
{
    struct mw_step_result r;
    struct mw_err err = {0};
    double fast_s, peak;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    assert_int_equal(
        mw_step_estimate(&w->s, l, NULL, &w->ctx, &fast_s, &peak, &err), MW_OK);
    mw_assert_near(fast_s, r.step_time_s - r.shared_wires_s, 0.03, 0);
    assert_memory_equal(&peak, &r.peak_bytes, sizeof peak);
    mw_step_result_release(&r);
    return r.step_time_s;
}

/* The first device's ledger of a dimension and collective, as
 * mw_ledger_sum. */
static inline struct mw_ledger_row step_ledger_row(const struct step_world *w,
                                                   const struct mw_layout *l,
                                                   enum mw_dim dim,
                                                   enum mw_coll_op op)
{
    struct mw_ledger ledger = {NULL, 0, 0};
    struct mw_ledger_row row;
    struct mw_plan plan;

    step_plan(&plan, &w->s, l);
    mw_step_ledger(&w->s, &plan, &w->ctx, 0, &ledger);
    row = mw_ledger_sum(&ledger, dim, op);
    mw_array_release(&ledger);
    mw_plan_release(&plan);
    return row;
}

#endif
