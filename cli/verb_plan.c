/* `meshwright plan SCENARIO -o PLAN`: search, rank, explain, write. */
#include "cli/cli.h"
#include "cli/world.h"

#include "base/file.h"
#include "base/log.h"
#include "cli/choose.h"
#include "cli/plan_say.h"
#include "cli/plan_view.h"
#include "planner/front.h"
#include "planner/sweep.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPT_FIX = 0x2000,
    OPT_JOBS,
    OPT_TIME_LIMIT,
    OPT_TOP,
    OPT_ORDER,
    OPT_SPACE,
    OPT_FREE,
    OPT_WHY,
    OPT_WHY_NOT,
    OPT_PARETO,
    OPT_MARGIN,
    OPT_ROBUST,
    OPT_STAGES,
    OPT_LP,
    OPT_MIXED,
    OPT_WITHIN,
    OPT_EXPERTS,
    OPT_REDUNDANT,
    OPT_STACK,
    OPT_OBJECTIVE,
    OPT_SHARD,
    OPT_PART,
    OPT_MERGE,
    OPT_CAP
};

static const struct argp_option options[] = {
    {"output", 'o', "PLAN", 0, "Write the best plan to this file", 0},
    {"fix", OPT_FIX, "KEY=VALUE,...", 0,
     "Pin dimensions: tp cp pp dp ep etp vpp micro_batch zero sp recompute "
     "schedule order cp_form cp_inner dp_shard reshard dtype grad_dtype "
     "state_dtype grad_compression recompute_layers "
     "recompute_modules overlap_off (names joined by +) bucket_size cuda_graph "
     "dispatcher overlap_shared_experts fsdp_unit fsdp_prefetch "
     "mtp_ahead vpp_group main_params_dtype exp_avg_dtype exp_avg_sq_dtype "
     "offload_optimizer offload_weights offload_activations offload_nvme",
     0},
    {"space", OPT_SPACE, "default|full", 0,
     "How much is free: full adds rank orders, expert tp, sp off, all "
     "micro-batches",
     0},
    {"free", OPT_FREE, "DIM,...", 0,
     "Also enumerate: cp_form (gathers, ring, all-to-all), dp_shard (ZeRO "
     "within "
     "groups of replicas), reshard (ZeRO-3 that keeps gathered weights), "
     "offload, recompute_layers (so many of each stage), "
     "recompute_modules (sets of them, selectively), overlap_off (transfers "
     "that nothing hides), bucket_size (2.5 to 640 million gradients at once), "
     "fsdp_unit (1 to 8 layers that ZeRO-3 gathers at once, or a stage), "
     "fsdp_prefetch (none, one or two of them ahead), "
     "dispatcher (ways to the experts), overlap_shared_experts, "
     "mtp_ahead (multi-token prediction a stage before the head), "
     "vpp_group (micro-batches that a chunk takes in turn), "
     "cp_inner "
     "(all-to-alls inside a ring); or all of these; by name alone: dtype "
     "(FP8), "
     "grad_dtype (fp32, 16 bits), state_dtype (sets of types of optimizer "
     "states), grad_compression. Lists in the scenario's "
     "limits do the same",
     0},
    {"why", OPT_WHY, "KEY=VALUE,...", OPTION_ARG_OPTIONAL,
     "Compare the best with the best that has these values, or with the "
     "scenario's own layout (--why=layout), term by term (default: with the "
     "runner-up)",
     0},
    {"why-not", OPT_WHY_NOT, "KEY=VALUE,...", 0,
     "Say what speaks against layouts with these values, and what nearest "
     "change would make them possible",
     0},
    {"pareto", OPT_PARETO, "time,memory,gpus,cost,energy", 0,
     "All plans that no other beats in any of those named; with gpus, cost "
     "(dollars a token) or energy over all numbers of nodes that divide the "
     "scenario's",
     0},
    {"objective", OPT_OBJECTIVE, "GOAL,...", 0,
     "Instead of the scenario's objective: step_time, tokens_per_s_per_gpu, "
     "cost_per_token, energy_per_token, gpus, memory, in order, each perhaps "
     "with 'within 2 %'; all but step_time and memory over all numbers of "
     "nodes that divide the scenario's",
     0},
    {"within", OPT_WITHIN, "DAYS", 0,
     "With --tokens: only plans under which the whole job ends within so many "
     "days; with --pareto ...,gpus the fewest GPUs that do",
     0},
    {"cap", OPT_CAP, "USD", 0,
     "With --tokens: only plans under which the whole job costs no more, on "
     "any "
     "number of nodes that divides the scenario's",
     0},
    {"memory-margin", OPT_MARGIN, "BYTES", 0,
     "Memory of a rank to leave free, e.g. 6GiB (default: the scenario's "
     "limits: memory_fraction, else what our memory error asks for)",
     0},
    {"stack", OPT_STACK, "NAME", 0,
     "Training software whose habits are priced, as in sim (default: that of "
     "limits: framework)",
     0},
    {"robust", OPT_ROBUST, NULL, 0,
     "Simulate the ranked plans again with another network, a slow node, more "
     "spread between ranks, a slower host, mark those whose rank changes, and "
     "say which our own p90 error does not tell from the fastest",
     0},
    {"stage-recompute", OPT_STAGES, NULL, 0,
     "Choose recomputation for each layer of each stage of the best plan (one "
     "chunk a device), say what it would gain and what of it is a plan; -o "
     "writes that where it is faster",
     0},
    {"write-lp", OPT_LP, "FILE", 0,
     "Write the integer program (CPLEX LP form) of --stage-recompute, of "
     "--experts, or of --mixed (of the best split)",
     0},
    {"mixed", OPT_MIXED, "SYSTEM=NODES,...", 0,
     "Instead: split the model's pipeline over nodes of these systems (system, "
     "tp, ep, recomputation, offload of the optimizer and layers of each "
     "stage); "
     "the cluster is not used",
     0},
    {"experts", OPT_EXPERTS, "LOADS.csv", 0,
     "Instead: place the model's experts on the ep ranks (--fix ep=N, else the "
     "scenario's layout) so that the busiest has the least to do; the file has "
     "a column load, one row an expert",
     0},
    {"redundant", OPT_REDUNDANT, "N", 0,
     "With --experts: so many copies beside one of each (default 0)", 0},
    {"shard", OPT_SHARD, "I/N|auto", 0,
     "Search only every N-th part of the space, from the I-th; auto: as Slurm "
     "or Open MPI say; needs --part",
     0},
    {"part", OPT_PART, "FILE", 0,
     "Write what a shard found and counted to this file, for --merge", 0},
    {"merge", OPT_MERGE, "FILE", 0,
     "Take this shard's part and search nothing; give it again for each", 0},
    {"jobs", OPT_JOBS, "N", 0, "Threads (default: one per core)", 0},
    {"time-limit", OPT_TIME_LIMIT, "TIME", 0,
     "Stop simulating after this time, e.g. 30s (default: none)", 0},
    {"top", OPT_TOP, "N", 0, "Rows of the ranked table (default 10)", 0},
    {"order", OPT_ORDER, NULL, 0,
     "Write every stage's list of passes into the plan, to edit by hand", 0},
    {0}};

static const char doc[] =
    "Enumerates layouts of the scenario's model on its cluster, drops those "
    "that break a rule or do not fit, simulates the rest best first, and "
    "writes the fastest as a plan.\v"
    "Examples:\n"
    "  meshwright plan scenarios/llama3-8b-2xdgx-h100.yaml -o plan.yaml\n"
    "  meshwright plan scenarios/gpt-small-this-machine.yaml "
    "--fix tp=2,pp=2,dp=2 -o p.yaml\n"
    "  meshwright plan scenarios/gpt3-175b-8xdgx-a100.yaml "
    "--why=schedule=1f1b\n"
    "  meshwright plan scenarios/gpt3-175b-8xdgx-a100.yaml --objective "
    "'step_time within 2 %, memory'\n"
    "  meshwright plan scenarios/gpt3-175b-8xdgx-a100.yaml --objective gpus "
    "--tokens 1e9 --within 1\n"
    "  meshwright plan SCENARIO --tokens 1T, with limits: {spare_nodes: [0, 1, "
    "2]}: how many nodes stand by, by the time of the whole job\n"
    "  meshwright plan scenarios/gpt3-175b-8xdgx-a100.yaml --why-not "
    "tp=4,pp=2\n"
    "  srun -n 16 meshwright plan SCENARIO --shard auto --part part-%t.yaml; "
    "then meshwright plan SCENARIO --merge part-0.yaml --merge part-1.yaml ... "
    "-o plan.yaml\n\n"
    "\"proved best\" means: of all layouts enumerated, under the simulator's "
    "prices; every other was simulated or has a lower bound above the best.\n"
    "Exit status: 0 a plan was found; 1 no layout is feasible; 2 usage; "
    "3 bad input file.";

static enum mw_status option(struct mw_plan_args *a, int key, const char *arg,
                             struct mw_err *err)
{
    long long value = 0;
    enum mw_status status = MW_OK;
    if (key == OPT_FIX) {
        return mw_plan_pairs("--fix", arg, &a->search, err);
    }
    if (key == OPT_REDUNDANT) {
        return mw_cli_int("--redundant", arg, 0, 1 << 20, &a->redundant, err);
    }
    if (key == OPT_FREE) {
        return mw_search_free(&a->search, arg, err);
    }
    if (key == OPT_PARETO) {
        status = mw_front_parse(arg, &a->front, err);
        if (status == MW_OK && !mw_front_needs_nodes(a->front)) {
            a->search.rank_by = MW_RANK_PARETO;
            a->front = 0;
        }
        return status;
    }
    if (key == OPT_SHARD) {
        return mw_sweep_shard(arg, &a->search.shard, &a->search.n_shards, err);
    }
    if (key == OPT_MERGE) {
        if (a->n_merges == MW_PLAN_MERGES_MAX) {
            return mw_fail(err, MW_EUSAGE, "--merge: more than %d files",
                           MW_PLAN_MERGES_MAX);
        }
        a->merge[a->n_merges++] = arg;
        return MW_OK;
    }
    if (key == OPT_OBJECTIVE) {
        struct mw_err why = {0};

        status = mw_objective_parse(arg, &a->objective, &why);
        return status == MW_OK
                   ? MW_OK
                   : mw_fail(err, MW_EUSAGE, "--objective: %s", why.text);
    }
    if (key == OPT_CAP) {
        return mw_double_parse(arg, &a->cap_usd, NULL) == MW_OK &&
                       a->cap_usd > 0
                   ? MW_OK
                   : mw_fail(err, MW_EUSAGE, "--cap: '%s' is no sum of dollars",
                             arg);
    }
    if (key == OPT_WITHIN) {
        if (mw_double_parse(arg, &a->within_s, NULL) == MW_OK &&
            a->within_s > 0) {
            a->within_s *= 86400;
            return MW_OK;
        }
        return mw_fail(err, MW_EUSAGE, "--within: '%s' is not a number of days",
                       arg);
    }
    if (key == OPT_MARGIN) {
        if (mw_quantity_parse(arg, MW_Q_BYTES, &a->margin_bytes, NULL) ==
            MW_OK) {
            return MW_OK;
        }
        return mw_fail(err, MW_EUSAGE,
                       "--memory-margin: '%s' is not a size; for example 6GiB",
                       arg);
    }
    if (key == OPT_SPACE) {
        a->search.is_full = strcmp(arg, "full") == 0;
        if (a->search.is_full || strcmp(arg, "default") == 0) {
            return MW_OK;
        }
        return mw_fail(err, MW_EUSAGE,
                       "--space: '%s' is neither default nor full", arg);
    }
    if (key == OPT_TIME_LIMIT) {
        status =
            mw_quantity_parse(arg, MW_Q_SECONDS, &a->search.time_limit_s, NULL);
        if (status == MW_OK && a->search.time_limit_s > 0) {
            return MW_OK;
        }
        return mw_fail(err, MW_EUSAGE,
                       "--time-limit: '%s' is not a positive time; for "
                       "example 30s",
                       arg);
    }
    if (key == OPT_JOBS) {
        status = mw_cli_int("--jobs", arg, 1, 4096, &value, err);
        a->search.jobs = (int)value;
        return status;
    }
    return mw_cli_int("--top", arg, 1, 100000, &a->top, err);
}

/* A shard is a search like another, whose answer is its part. */
static void check_shard(const struct mw_plan_args *a, bool is_other,
                        struct argp_state *state)
{
    bool is_shard = a->search.n_shards > 0;

    if (is_shard != (a->part != NULL)) {
        argp_error(state, "--shard and --part go together");
    }
    if (is_shard && a->n_merges > 0) {
        argp_error(state, "--shard searches and --merge joins; one at a time");
    }
    if ((is_shard || a->n_merges > 0) &&
        (is_other || a->within_s > 0 || a->cap_usd > 0)) {
        argp_error(state, "--shard and --merge are of a ranking of plans: no "
                          "--within, --why-not, --mixed, --experts, --pareto "
                          "over nodes");
    }
    if (is_shard && (a->is_why || a->is_robust || a->is_staged || a->lp)) {
        argp_error(state, "--why, --robust and --stage-recompute ask about the "
                          "best plan: give them to --merge");
    }
}

/* One kind of answer, and no words that it would not hear. */
static void check_set(const struct mw_plan_args *a, struct argp_state *state)
{
    int asked = (a->experts != NULL) + (a->front != 0) + (a->mixed != NULL) +
                (a->why_not != NULL);

    if (asked > 1) {
        argp_error(state, "--experts, --mixed, --why-not and --pareto over "
                          "gpus, cost or energy ask for different things; one "
                          "at a time");
    }
    bool is_pareto = a->front != 0 || a->search.rank_by == MW_RANK_PARETO;

    if (a->cap_usd > 0 && (!(a->job.tokens > 0) || asked > 0 || is_pareto)) {
        argp_error(state, "--cap needs --tokens and a ranking of plans");
    }
    if (a->within_s > 0 && !(a->job.tokens > 0)) {
        argp_error(state, "--within needs --tokens");
    }
    if (a->objective.n > 0 && (asked > 0 || is_pareto)) {
        argp_error(state, "--objective ranks plans; --pareto, --experts, "
                          "--mixed and --why-not do not");
    }
    if (a->within_s > 0 && (a->front == 0 && (asked > 0 || is_pareto))) {
        argp_error(state, "--within goes with a ranking of plans or --pareto "
                          "...,gpus");
    }
    if (asked > 0 && (a->out || a->is_why || a->is_robust || a->is_staged ||
                      a->is_explicit)) {
        argp_error(state,
                   "-o, --order, --why, --robust and --stage-recompute are of "
                   "the best plan of a ranking: not with --experts, --mixed, "
                   "--why-not, or --pareto over gpus, cost or energy");
    }
    check_shard(a, asked > 0, state);
    mw_cli_one_stdout(&a->cli, "-o", a->out, state);
    mw_cli_one_stdout(&a->cli, "--part", a->part, state);
    if (a->redundant > 0 && a->experts == NULL) {
        argp_error(state, "--redundant needs --experts");
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct mw_plan_args *a = state->input;
    struct mw_err err = {0};
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        state->child_inputs[1] = a ? &a->job : NULL;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case OPT_ORDER:
        a->is_explicit = true;
        return 0;
    case OPT_ROBUST:
        a->is_robust = true;
        return 0;
    case OPT_STAGES:
        a->is_staged = true;
        return 0;
    case OPT_STACK:
        a->stack = arg;
        return 0;
    case OPT_MIXED:
        a->mixed = arg;
        return 0;
    case OPT_EXPERTS:
        a->experts = arg;
        return 0;
    case OPT_LP:
        a->lp = arg;
        return 0;
    case OPT_PART:
        a->part = arg;
        return 0;
    case OPT_WHY:
        a->is_why = true;
        a->why = arg;
        return 0;
    case OPT_WHY_NOT:
        a->why_not = arg;
        return 0;
    case OPT_FIX:
    case OPT_WITHIN:
    case OPT_OBJECTIVE:
    case OPT_SHARD:
    case OPT_MERGE:
    case OPT_CAP:
    case OPT_REDUNDANT:
    case OPT_SPACE:
    case OPT_FREE:
    case OPT_PARETO:
    case OPT_MARGIN:
    case OPT_TIME_LIMIT:
    case OPT_JOBS:
    case OPT_TOP:
        if (option(a, key, arg, &err) != MW_OK) {
            argp_error(state, "%s", err.text);
        }
        return 0;
    case ARGP_KEY_ARG:
        if (a->scenario) {
            argp_error(state, "one scenario is planned at a time");
        }
        a->scenario = arg;
        return 0;
    case ARGP_KEY_END:
        check_set(a, state);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which scenario?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the work
 * -------------------------------------------------------------------- */

/* An interrupt ends the search with what it has. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int run_scenario(struct mw_plan_args *a, struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx)
{
    struct mw_err err = {0};
    const char *const outputs[] = {a->out, a->part, a->lp};

    if (mw_plan_prepare(a, scenario, ctx, &err) != MW_OK ||
        mw_cli_check_outputs(outputs, 3, &err) != MW_OK) {
        return mw_cli_fail(&err);
    }
    if (a->experts) {
        return mw_plan_run_experts(a, scenario);
    }
    if (a->front) {
        return mw_plan_run_front(a, scenario, ctx);
    }
    if (a->mixed) {
        return mw_plan_run_mixed(a, scenario, ctx);
    }
    return a->why_not ? mw_plan_run_why_not(a, scenario, ctx)
                      : mw_plan_run(a, scenario, ctx);
}

int mw_verb_plan(int argc, char **argv)
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
    struct mw_plan_args a = {.top = 10, .margin_bytes = -1};
    mw_search_opts_default(&a.search);
    mw_sim_job_default(&a.job);
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    struct sigaction action = {.sa_handler = on_interrupt};

    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    a.search.stop = &interrupted;
    a.search.is_quiet = a.cli.quiet;
    struct mw_err err = {0};
    struct mw_cli_world world;
    struct mw_cost_ctx ctx;
    if (mw_cli_open(&world, a.cli.hwdb, a.scenario, &err) != MW_OK) {
        return mw_cli_fail(&err);
    }
    int exit_status = mw_cli_prices(&world, a.stack, &ctx, &err) == MW_OK
                          ? run_scenario(&a, &world.scenario, &ctx)
                          : mw_cli_fail(&err);
    mw_cli_close(&world);
    return exit_status;
}
