/* `meshwright sim SCENARIO`: one training step, explained. */
#include "cli/choose.h"
#include "cli/verb_sim_view.h"
#include "cli/world.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *scenario, *plan, *trace, *csv, *stack;
    bool is_explained, has_ledger, has_sensitivity;
    long long jitter, seed; /* draws, 0: none; -1: the workload's seed */
    struct mw_sim_unfold unfold;
    struct mw_sim_job_args job;
};

enum {
    OPT_PLAN = 0x2000,
    OPT_TRACE,
    OPT_CSV,
    OPT_EXPLAIN,
    OPT_STACK,
    OPT_LEDGER,
    OPT_SENSITIVITY,
    OPT_JITTER,
    OPT_SEED,
    OPT_UNFOLD,
    OPT_SLOW
};

static const struct argp_option options[] = {
    {"plan", OPT_PLAN, "PLAN", 0,
     "Simulate this plan (default: the scenario's layout, else plan first)", 0},
    {"trace", OPT_TRACE, "FILE", 0,
     "Write the timeline as a Chrome trace (opens in Perfetto)", 0},
    {"csv", OPT_CSV, "FILE", 0, "Write the timeline as CSV, one span a row", 0},
    {"explain", OPT_EXPLAIN, NULL, 0,
     "Print how every time came about: stage, unit, operator, bound, formula, "
     "source",
     0},
    {"stack", OPT_STACK, "NAME", 0,
     "Training software whose habits are priced: megatron-core, torch-fsdp, "
     "... (default: that of limits: framework; megatron-core with any)",
     0},
    {"ledger", OPT_LEDGER, NULL, 0,
     "Print what a rank of each stage communicates, by dimension and "
     "collective",
     0},
    {"sensitivity", OPT_SENSITIVITY, NULL, 0,
     "Print the share of the step that goes with each resource", 0},
    {"jitter", OPT_JITTER, "N", 0,
     "Draw the ranks' speeds N times and print how the step time varies", 0},
    {"unfold", OPT_UNFOLD, NULL, 0,
     "Simulate every rank, not one of each stage, and print the step beside it",
     0},
    {"slow", OPT_SLOW, "RANK=FACTOR,...", 0,
     "With every rank simulated, these take so many times as long for what "
     "they "
     "compute",
     0},
    {"seed", OPT_SEED, "N", 0, "Seed of --jitter (default: the workload's)", 0},
    {0}};

static const char doc[] =
    "Simulates one training step of a plan: step time, rates, where the time "
    "goes, memory of every pipeline stage.\v"
    "Examples:\n"
    "  meshwright sim scenarios/gpt3-175b-64xdgx-a100.yaml\n"
    "  meshwright sim scenarios/llama3-8b-2xdgx-h100.yaml --plan plan.yaml "
    "--trace t.json\n"
    "  meshwright sim scenarios/gpt3-175b-64xdgx-a100.yaml --tokens 300B\n\n"
    "Model TFLOP/s count the useful work: forward once, backward twice, no "
    "recomputation; attention in full, or causal where the workload says so. "
    "Hardware TFLOP/s add the recomputed operators. MFU is model FLOP/s over "
    "the peak of the workload's dtype, HFU hardware FLOP/s. Exposed time: what "
    "a rank computes, "
    "else what it waits for, else bubble; averaged over the stages it sums to "
    "the step time.\n"
    "Stacks (--stack): plain, plain-fa2, megatron-core, megatron-core-lm, "
    "megatron-core-nemo, megatron-core-nemo-graphs, megatron-core-serial, "
    "megatron-2021, megatron-2021-async, megatron-2021-composed, "
    "megatron-deepspeed, megatron-deepspeed-bf16, megatron-deepspeed-zero0, "
    "megatron-deepspeed-zero3, "
    "megatron-deepspeed-zero3-sync, "
    "deepspeed, torch-fsdp, torchtitan, torchtitan-async, torchtitan-eager, "
    "torchtitan-2024, torchtitan-async-2024, galvatron, litgpt, torchtune, "
    "zero-bubble, nanotron, internevo, internevo-fsdp, jax, jax-paxml; "
    "docs/accuracy.md has "
    "their figures.\n"
    "Exit status: 0 simulated (whether or not it fits in memory); 2 usage; 3 "
    "bad input file.";

static long long whole(struct argp_state *state, const char *option,
                       const char *text, long long least)
{
    struct mw_err err = {0};
    long long most = least > 0 ? MW_JITTER_DRAWS_MAX : INT64_MAX, v = 0;

    if (mw_cli_int(option, text, least, most, &v, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
    }
    return v;
}

static void slow(struct argp_state *state, struct mw_sim_unfold *u,
                 const char *text)
{
    struct mw_err err = {0};

    if (mw_sim_unfold_slow(u, text, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        state->child_inputs[1] = a != NULL ? &a->job : NULL;
        return 0;
    case OPT_PLAN:
        a->plan = arg;
        return 0;
    case OPT_TRACE:
        a->trace = arg;
        return 0;
    case OPT_CSV:
        a->csv = arg;
        return 0;
    case OPT_EXPLAIN:
        a->is_explained = true;
        return 0;
    case OPT_STACK:
        a->stack = arg;
        return 0;
    case OPT_LEDGER:
        a->has_ledger = true;
        return 0;
    case OPT_SENSITIVITY:
        a->has_sensitivity = true;
        return 0;
    case OPT_JITTER:
        a->jitter = whole(state, "--jitter", arg, 1);
        return 0;
    case OPT_UNFOLD:
        a->unfold.is_asked = true;
        return 0;
    case OPT_SLOW:
        slow(state, &a->unfold, arg);
        return 0;
    case OPT_SEED:
        a->seed = whole(state, "--seed", arg, 0);
        return 0;
    case ARGP_KEY_END:
        mw_cli_one_stdout(&a->cli, "--trace", a->trace, state);
        mw_cli_one_stdout(&a->cli, "--csv", a->csv, state);
        if (a->seed >= 0 && a->jitter == 0) {
            argp_error(state, "--seed needs --jitter");
        }
        return 0;
    case ARGP_KEY_ARG:
        if (a->scenario != NULL) {
            argp_error(state, "one scenario is simulated at a time");
        }
        a->scenario = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which scenario?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum mw_status write_files(const struct args *a,
                                  const struct mw_timeline *timeline,
                                  struct mw_err *err)
{
    enum mw_status status = MW_OK;

    if (a->trace != NULL) {
        status = mw_timeline_write_chrome(timeline, a->trace, err);
    }
    if (status == MW_OK && a->csv != NULL) {
        status = mw_timeline_write_csv(timeline, a->csv, err);
    }
    return status;
}

static enum mw_status draw(const struct args *a, struct mw_sim_view *view,
                           struct mw_jitter *out, struct mw_err *err)
{
    uint64_t seed =
        a->seed >= 0 ? (uint64_t)a->seed : view->scenario->workload.seed;

    if (a->jitter == 0) {
        return MW_OK;
    }
    view->jitter = out;
    return mw_step_jitter(view->scenario, view->plan, view->ctx, (int)a->jitter,
                          seed, out, err);
}

static enum mw_status unfold(const struct args *a, struct mw_sim_view *view,
                             struct mw_sim_unfold *out, struct mw_err *err)
{
    *out = a->unfold;
    view->unfold = out;
    return out->is_asked ? mw_sim_unfold_run(out, view->scenario, view->plan,
                                             view->ctx, err)
                         : MW_OK;
}

static enum mw_status show(const struct args *a, struct mw_sim_view *view,
                           struct mw_err *err)
{
    struct mw_sim_job job;
    struct mw_jitter jitter;
    struct mw_sim_unfold all;
    enum mw_status status = draw(a, view, &jitter, err);

    status = status == MW_OK ? unfold(a, view, &all, err) : status;
    if (status != MW_OK) {
        return status;
    }
    if (a->job.tokens > 0) {
        const struct mw_scenario of =
            mw_sim_job_of(view->scenario, &view->plan->layout);
        enum mw_status s = mw_sim_job_make(
            &a->job, &of, view->ctx, view->result->step_time_s, &job, err);

        s = s != MW_OK
                ? s
                : mw_sim_job_bound_energy(&job, view->ctx, view->result, err);
        if (s != MW_OK) {
            return s;
        }
        view->job = &job;
    }
    mw_cli_say_stack(view->scenario, a->stack, view->ctx,
                     a->cli.quiet || a->cli.json);
    mw_sim_view_print(view, a->cli.json);
    view->job = NULL;
    view->jitter = NULL;
    view->unfold = NULL;
    return MW_OK;
}

static enum mw_status simulate(const struct args *a, struct mw_sim_view *view,
                               struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_timeline timeline;
    struct mw_step_result result;
    struct mw_explain root = {.name = "step", .count = 1, .arena = &arena};
    double share[MW_RESOURCE_COUNT];
    struct mw_step_opts opts = {
        .timeline = a->trace != NULL || a->csv != NULL ? &timeline : NULL,
        .explain = a->is_explained ? &root : NULL,
        .stages_s =
            mw_calloc((size_t)view->plan->layout.pp, sizeof *opts.stages_s)};

    mw_arena_init(&arena);
    mw_timeline_init(&timeline);
    enum mw_status status =
        mw_cli_blame(view->scenario,
                     mw_step_simulate(view->scenario, view->plan, view->ctx,
                                      &opts, &result, err),
                     err);

    if (status == MW_OK) {
        status = write_files(a, &timeline, err);
        if (status == MW_OK && a->has_sensitivity) {
            status = mw_step_sensitivity(view->scenario, view->plan, view->ctx,
                                         share, err);
        }
        if (status == MW_OK) {
            view->result = &result;
            view->explain = opts.explain;
            view->share = a->has_sensitivity ? share : NULL;
            view->stages_s = opts.stages_s;
            status = show(a, view, err);
        }
        mw_step_result_release(&result);
    }
    mw_free(opts.stages_s);
    view->stages_s = NULL;
    mw_timeline_release(&timeline);
    mw_arena_release(&arena);
    return status;
}

static enum mw_status run(const struct args *a, struct mw_cli_world *world,
                          struct mw_err *err)
{
    struct mw_scenario *scenario = &world->scenario;
    struct mw_cost_ctx ctx;
    struct mw_plan plan;
    enum mw_status status = mw_cli_prices(world, a->stack, &ctx, err);

    if (status != MW_OK) {
        return status;
    }
    scenario->cluster.gpus_per_node = ctx.gpus_per_node;
    status = mw_cli_choose(a->plan, scenario, &ctx, a->cli.quiet, &plan, err);
    if (status == MW_OK) {
        status = mw_cli_use_domains(scenario, &plan, &ctx, err);
        if (status != MW_OK) {
            mw_plan_release(&plan);
        }
    }
    if (status == MW_OK) {
        struct mw_sim_view view = {.scenario = scenario,
                                   .plan = &plan,
                                   .ctx = &ctx,
                                   .has_ledger = a->has_ledger};

        status = simulate(a, &view, err);
        mw_plan_release(&plan);
    }
    return status;
}

int mw_verb_sim(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100},
        {&mw_sim_job_argp, 0, "The whole job:", 50},
        {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "SCENARIO",
                                     .doc = doc,
                                     .children = children};
    struct args a = {.seed = -1};

    mw_sim_job_default(&a.job);
    struct mw_err err = {0};
    struct mw_cli_world world;

    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status status = mw_cli_open(&world, a.cli.hwdb, a.scenario, &err);

    if (status == MW_OK) {
        status = run(&a, &world, &err);
        mw_cli_close(&world);
    }
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
