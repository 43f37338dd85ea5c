/*
 * A split problem from the simulator's prices. Memory of a stage is linear in
 * its layers and in the micro-batches held: two stages that hold different
 * numbers give the weights of a layer and the activations of each option.
 *
 * Multi-token prediction is a run of one layer that may lie with the head or a
 * stage ahead of it: the two layouts differ by it on the last two stages, which
 * hold different numbers of micro-batches, so that these differences part its
 * weights from its activations.
 */
#include "planner/stage_options.h"

#include "sim/step/fast.h"

#include <string.h>

struct builder {
    struct mw_fast *fast;
    struct mw_layout layout;
    struct mw_split_problem *p;
    double *slope, *fixed, *held, *extra, *ahead;
};

static bool has_mtp(const struct builder *b)
{
    return b->p->n_runs > 1;
}

/* The run of it; fixed[] becomes that of stages without it. */
static enum mw_status price_mtp(struct builder *b, int option, double mtp_s,
                                struct mw_err *err)
{
    struct mw_split_run *run = &b->p->run[1];
    int last = b->layout.pp - 1;
    double more = b->held[last - 1] - b->held[last];

    b->layout.mtp_ahead = 1;
    enum mw_status status =
        mw_fast_memory_rows(b->fast, &b->layout, b->slope, b->ahead, err);

    if (status != MW_OK) {
        return status;
    }
    double with_head = b->fixed[last] - b->ahead[last];
    double before = b->ahead[last - 1] - b->fixed[last - 1];

    run->time_s[option] = mtp_s;
    run->held_bytes[option] =
        more > 0 ? (before - with_head) / more : with_head / b->held[last];
    run->layer_bytes = with_head - b->held[last] * run->held_bytes[option];
    b->fixed[last] = b->ahead[last];
    return MW_OK;
}

static enum mw_status price_option(struct builder *b, int option,
                                   struct mw_err *err)
{
    struct mw_split_run *run = &b->p->run[0];
    struct mw_fast_units units;
    int last = b->layout.pp - 1;
    enum mw_status status;

    b->layout.recompute = (enum mw_recompute)option;
    b->layout.mtp_ahead = has_mtp(b);
    mw_fast_units_of(b->fast, &b->layout, &units);
    b->layout.mtp_ahead = 0;
    run->time_s[option] = units.layer_s;
    b->extra[0] = units.embedding_s;
    b->extra[last] = units.head_s;
    status = mw_fast_memory_rows(b->fast, &b->layout, b->slope, b->fixed, err);
    if (status == MW_OK && b->held[0] > b->held[last]) {
        run->held_bytes[option] =
            (b->slope[0] - b->slope[last]) / (b->held[0] - b->held[last]);
        run->layer_bytes =
            b->slope[last] - b->held[last] * run->held_bytes[option];
    } else if (status == MW_OK) { /* all hold the same: no need to part them */
        run->held_bytes[option] = b->slope[0] / b->held[0];
        run->layer_bytes = 0;
    }
    return status == MW_OK && has_mtp(b)
               ? price_mtp(b, option, units.mtp_s, err)
               : status;
}

static enum mw_status build(struct builder *b, struct mw_err *err)
{
    enum mw_status status = mw_fast_held(b->fast, &b->layout, b->held, err);

    for (int r = 0; r < MW_SPLIT_OPTIONS && status == MW_OK; r++) {
        status = price_option(b, r, err);
    }
    return status;
}

/* The objective of the candidate's own layers, one option for all. */
static double uniform_value(const struct builder *b,
                            const struct mw_candidate *c)
{
    int n = c->layout.pp;
    struct mw_split_stage *stage = mw_calloc((size_t)n, sizeof *stage);

    for (int i = 0; i < n; i++) {
        stage[i].time_s =
            b->extra[i] +
            c->layers[i] * b->p->run[0].time_s[(int)c->layout.recompute];
        if (has_mtp(b) && i == n - 1 - c->layout.mtp_ahead) {
            stage[i].time_s += b->p->run[1].time_s[(int)c->layout.recompute];
        }
    }
    double value = mw_stage_split_value(b->p, stage);

    mw_free(stage);
    return value;
}

static enum mw_status check(const struct mw_scenario *s,
                            const struct mw_candidate *c, struct mw_err *err)
{
    const struct mw_sched_kind *kind =
        mw_schedule_kind_find(c->layout.schedule);

    if (c->layout.pp < 2 || c->layout.vpp > 1 || kind->max_chunks > 1) {
        return mw_fail(err, MW_EUSAGE,
                       "recomputation by stage is for pipelines with one chunk "
                       "a device; --fix schedule=1f1b,vpp=1 and pp, for "
                       "example");
    }
    if (!mw_model_is_uniform(
            &s->model, mw_work_span(s->workload.seq, s->workload.doc_tokens))) {
        return mw_fail(err, MW_EUSAGE,
                       "recomputation by stage is for models of alike layers");
    }
    return MW_OK;
}

enum mw_status mw_stage_options_find(const struct mw_scenario *scenario,
                                     const struct mw_cost_ctx *ctx,
                                     const struct mw_candidate *candidate,
                                     const char *lp_path,
                                     struct mw_stage_options *out,
                                     struct mw_err *err)
{
    size_t n = (size_t)candidate->layout.pp;
    enum mw_status status = check(scenario, candidate, err);

    *out = (struct mw_stage_options){.n_stages = (int)n};
    mw_arena_init(&out->arena);
    if (status != MW_OK) {
        return status;
    }
    double *numbers = mw_arena_alloc(&out->arena, 5 * n, sizeof *numbers);
    /* In two stages it has nowhere to go: part of the head. */
    bool is_movable = scenario->model.n_mtp > 0 && n > 2;
    struct mw_split_problem p = {
        .n_runs = 1 + is_movable,
        .run = {{.n_layers = scenario->model.n_layers}, {.n_layers = 1}},
        .may_end_bare = is_movable,
        .n_stages = (int)n,
        .extra_s = numbers,
        .fixed_bytes = numbers + n,
        .in_flight = numbers + 2 * n,
        .limit_bytes = mw_step_usable_bytes(scenario, ctx),
        .n_microbatches =
            mw_microbatches(&candidate->layout, &scenario->workload)};
    struct builder b = {.fast = mw_fast_new(scenario, ctx),
                        .layout = candidate->layout,
                        .p = &p,
                        .extra = numbers,
                        .fixed = numbers + n,
                        .held = numbers + 2 * n,
                        .slope = numbers + 3 * n,
                        .ahead = numbers + 4 * n};

    out->stage = mw_arena_alloc(&out->arena, n, sizeof *out->stage);
    out->limit_bytes = p.limit_bytes;
    out->has_mtp = is_movable;
    status = build(&b, err);
    if (status == MW_OK) {
        status = mw_stage_split_dp(&p, out->stage, &out->answer, err);
        out->uniform_s = uniform_value(&b, candidate);
    }
    if (status == MW_OK) {
        status = mw_stage_plan_find(scenario, ctx, candidate, &p, &out->arena,
                                    &out->plan, err);
    }
    if (status == MW_OK && lp_path) {
        struct mw_split_stage *scratch = mw_calloc(n, sizeof *scratch);
        struct mw_split_answer answer;

        /* The model is what is wanted; a second of solving is enough. */
        status = mw_stage_split_ilp(&p, 1, lp_path, scratch, &answer, err);
        if (status == MW_EBACKEND || status == MW_ENO) {
            mw_err_clear(err);
            status = MW_OK;
        }
        mw_free(scratch);
    }
    mw_fast_free(b.fast);
    return status;
}

void mw_stage_options_release(struct mw_stage_options *o)
{
    mw_arena_release(&o->arena);
}
