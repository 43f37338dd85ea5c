/*
 * Recomputation by stage as a plan: two programs of two options, the fewest
 * counts that fit, the event form. With the layers given no stage gets faster
 * by recomputing more, so the fewest are best; stages are independent there, so
 * that one count for all of them, from 0 on, finds each stage's.
 */
#include "planner/stage_plan.h"

#include "planner/rules.h"
#include "sim/step/fast.h"

#include <string.h>

struct builder {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_candidate *from;
    const struct mw_split_problem *problem;
    struct mw_arena *arena;
    struct mw_fast *fast;
    struct mw_rule_set *rules;
    int n; /* stages */
    double *bytes;
    int64_t *trial;
    struct mw_split_stage *stage;
    struct mw_stage_plan *out;
};

/* Sets counts[] to the fewest layers that fit; false where not even all do. */
static bool count_layers(struct builder *b, struct mw_layout layout,
                         const int *layers, int64_t *counts)
{
    int left = b->n, most = 0;

    for (int k = 0; k < b->n; k++) {
        counts[k] = -1;
        most = layers[k] > most ? layers[k] : most;
    }
    layout.stage_recompute_layers =
        (struct mw_int_list){b->trial, (size_t)b->n};
    for (int c = 0; c <= most && left > 0; c++) {
        for (int k = 0; k < b->n; k++) {
            b->trial[k] = c < layers[k] ? c : layers[k];
        }
        if (mw_fast_stage_bytes(b->fast, &layout, layers, b->bytes, NULL) !=
            MW_OK) {
            return false;
        }
        for (int k = 0; k < b->n; k++) {
            if (counts[k] < 0 && b->bytes[k] <= b->problem->limit_bytes) {
                counts[k] = b->trial[k];
                left--;
            }
        }
    }
    return left == 0;
}

/* Counts that are alike are said without a list. */
static void put_counts(struct mw_layout *l, const int *layers,
                       const int64_t *counts, int n)
{
    bool is_one = true, is_all = true, is_none = true;

    for (int k = 0; k < n; k++) {
        is_one = is_one && counts[k] == counts[0];
        is_all = is_all && counts[k] == layers[k];
        is_none = is_none && counts[k] == 0;
    }
    if (is_none) {
        l->recompute = MW_RECOMPUTE_NONE;
        l->recompute_modules = 0;
    } else if (is_one && !is_all) {
        l->recompute_layers = (int)counts[0];
    } else if (!is_all) {
        l->stage_recompute_layers = (struct mw_int_list){counts, (size_t)n};
    }
}

static enum mw_status simulate(const struct builder *b, struct mw_candidate *c,
                               struct mw_err *err)
{
    struct mw_plan plan;
    enum mw_status status =
        mw_plan_make(b->scenario, &c->layout, c->layers, &plan, err);

    if (status != MW_OK) {
        return status;
    }
    status = mw_candidate_simulate(b->scenario, &plan, b->ctx, c, err);
    mw_plan_release(&plan);
    return status;
}

/* What the framework has against it, or NULL. */
static const char *refusal_of(const struct builder *b,
                              const struct mw_candidate *c)
{
    const struct mw_rule *rule = mw_rule_broken(b->rules, &c->layout);
    bool is_even = true;

    for (int k = 1; k < b->n; k++) {
        is_even = is_even && c->layers[k] == c->layers[0];
    }
    if (rule == NULL) {
        return is_even || mw_rule_set_allows_uneven(b->rules)
                   ? NULL
                   : "its stages have equally many layers";
    }
    struct mw_str text = {NULL, 0, 0};

    mw_rule_explain(b->rules, rule, &c->layout, &text);
    const char *out = mw_arena_strdup(b->arena, text.s != NULL ? text.s : "");

    mw_str_release(&text);
    return out;
}

static void keep(struct builder *b, const struct mw_candidate *c)
{
    struct mw_stage_plan *out = b->out;
    const char *refusal = refusal_of(b, c);

    if (refusal == NULL &&
        (!out->is_found || c->step_time_s < out->candidate.step_time_s)) {
        out->is_found = true;
        out->candidate = *c;
    } else if (refusal != NULL &&
               (out->refusal == NULL || c->step_time_s < out->refused_s)) {
        out->refusal = refusal;
        out->refused_s = c->step_time_s;
    }
}

/* Layers of each stage under one kind of recomputation. */
static void try_layers(struct builder *b, enum mw_recompute kind,
                       const int *layers, int mtp_ahead)
{
    struct mw_candidate c = *b->from;
    int64_t *counts = mw_arena_alloc(b->arena, (size_t)b->n, sizeof *counts);

    c.layers = mw_arena_alloc(b->arena, (size_t)b->n, sizeof *c.layers);
    memcpy(c.layers, layers, (size_t)b->n * sizeof *layers);
    c.layout.recompute = kind;
    c.layout.recompute_layers = 0;
    c.layout.mtp_ahead = mtp_ahead;
    if (kind != MW_RECOMPUTE_SELECTIVE) {
        c.layout.recompute_modules = 0;
    }
    if (!count_layers(b, c.layout, layers, counts)) {
        return;
    }
    put_counts(&c.layout, layers, counts, b->n);
    if (simulate(b, &c, NULL) == MW_OK &&
        c.peak_bytes <= b->problem->limit_bytes &&
        !(c.host_bytes > b->ctx->system->host_mem_bytes)) {
        keep(b, &c);
    }
}

/* The program with no other option than this kind, or none. */
static void try_kind(struct builder *b, enum mw_recompute kind)
{
    struct mw_split_problem p = *b->problem;
    struct mw_split_answer answer;
    int *layers = mw_arena_alloc(b->arena, (size_t)b->n, sizeof *layers);
    int other =
        kind == MW_RECOMPUTE_FULL ? MW_RECOMPUTE_SELECTIVE : MW_RECOMPUTE_FULL;

    for (int run = 0; run < p.n_runs; run++) {
        p.run[run].time_s[other] = p.run[run].time_s[MW_RECOMPUTE_NONE];
        p.run[run].held_bytes[other] = p.run[run].held_bytes[MW_RECOMPUTE_NONE];
    }
    if (mw_stage_split_dp(&p, b->stage, &answer, NULL) == MW_OK) {
        int ahead = 0;

        for (int k = 0; k < b->n; k++) {
            layers[k] = 0;
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                layers[k] += b->stage[k].n[0][r];
                ahead +=
                    p.n_runs > 1 && k == b->n - 2 ? b->stage[k].n[1][r] : 0;
            }
        }
        try_layers(b, kind, layers, ahead);
    }
    try_layers(b, kind, b->from->layers, b->from->layout.mtp_ahead);
}

enum mw_status mw_stage_plan_find(const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  const struct mw_candidate *from,
                                  const struct mw_split_problem *problem,
                                  struct mw_arena *arena,
                                  struct mw_stage_plan *out, struct mw_err *err)
{
    size_t n = (size_t)from->layout.pp;
    struct builder b = {.scenario = scenario,
                        .ctx = ctx,
                        .from = from,
                        .problem = problem,
                        .arena = arena,
                        .fast = mw_fast_new(scenario, ctx),
                        .rules = mw_rule_set_new(scenario, ctx),
                        .n = (int)n,
                        .out = out};

    *out = (struct mw_stage_plan){.is_found = false};
    b.bytes = mw_arena_alloc(arena, n, sizeof *b.bytes);
    b.trial = mw_arena_alloc(arena, n, sizeof *b.trial);
    b.stage = mw_arena_alloc(arena, n, sizeof *b.stage);
    enum mw_status status = mw_fast_check(scenario, ctx, err);

    if (status == MW_OK) {
        try_kind(&b, MW_RECOMPUTE_SELECTIVE);
        try_kind(&b, MW_RECOMPUTE_FULL);
    }
    if (out->is_found && out->refused_s >= out->candidate.step_time_s) {
        out->refusal = NULL;
    }
    mw_rule_set_free(b.rules);
    mw_fast_free(b.fast);
    return status;
}
