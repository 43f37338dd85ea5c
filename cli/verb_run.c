/* `meshwright run PLAN`: executes a plan on real ranks of this machine. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "exec/launch.h"
#include "sim/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *plan, *backend, *comm, *trace, *clock, *slow, *steps;
    long long ranks;
    double hang_s;
    const char *resume, *base, *text, *checkpoint, *every;
    bool verify, is_print;
};

enum {
    OPT_BACKEND = 0x2000,
    OPT_COMM,
    OPT_RANKS,
    OPT_STEPS,
    OPT_VERIFY,
    OPT_TRACE,
    OPT_CLOCK,
    OPT_SLOW,
    OPT_PRINT,
    OPT_HANG,
    OPT_RESUME,
    OPT_BASE,
    OPT_TEXT,
    OPT_CHECKPOINT,
    OPT_EVERY
};

static const struct argp_option options[] = {
    {"backend", OPT_BACKEND, "NAME", 0, "host (this machine's cores) or cuda",
     0},
    {"comm", OPT_COMM, "NAME", 0,
     "mpi (default: a process for each rank) or local (a thread for each, of "
     "which one runs at a time; host backend)",
     0},
    {"ranks", OPT_RANKS, "N", 0,
     "Ranks; must be the plan's tp x pp x dp, which is the default", 0},
    {"steps", OPT_STEPS, "N", 0,
     "Training steps, of which the first 3 warm up (default 8)", 0},
    {"verify", OPT_VERIFY, NULL, 0,
     "Compare loss and every gradient with a one-rank run", 0},
    {"trace", OPT_TRACE, "FILE", 0,
     "Write the measured timeline (Chrome trace JSON)", 0},
    {"clock", OPT_CLOCK, "CLOCK", 0,
     "Clock of the timeline: virtual (default) or wall", 0},
    {"slow", OPT_SLOW, "KIND=FACTOR", 0,
     "Test aid: make a kind of operator slower, for example gemm=1.3", 0},
    {"checkpoint", OPT_CHECKPOINT, "FILE", 0,
     "Write weights and optimizer state after the last step", 0},
    {"checkpoint-every", OPT_EVERY, "N", 0,
     "With --checkpoint: after every N steps as well", 0},
    {"resume", OPT_RESUME, "FILE", 0,
     "Go on from a checkpoint; the plan may have another layout", 0},
    {"text", OPT_TEXT, "FILE", 0,
     "Train on the bytes of a file, modulo the vocabulary (default: a short "
     "text of the program's own)",
     0},
    {"base", OPT_BASE, "FILE", 0,
     "With adapters (lora_rank): the checkpoint that the frozen weights come "
     "from; else they are drawn from the seed",
     0},
    {"hang-timeout", OPT_HANG, "TIME", 0,
     "Stop when no rank shows a sign of life for so long (default 8s; 0s: "
     "never). A layer of a large model may need more",
     0},
    {"print-launch", OPT_PRINT, NULL, 0,
     "Print the mpirun and srun lines instead of running", 0},
    {0}};

static const char doc[] =
    "Executes a plan: starts one process per rank with mpirun (more ranks than "
    "cores take turns), trains on a text, and measures.\v"
    "Examples:\n"
    "  meshwright run plan.yaml --backend host --verify\n"
    "  meshwright run plan.yaml --backend host --hwdb out/hwdb --trace "
    "measured.json\n\n"
    "Two clocks are kept. The wall, and a virtual clock: CPU time of each "
    "compute segment (lower quartile over steps) plus the communication model "
    "of the database. The virtual clock stays meaningful with more ranks than "
    "cores and on a busy machine; it tests compute, order and bubbles, not "
    "communication.\n\n"
    "--verify holds gradients against a run on one rank: equal to the bit for "
    "pipelines; 1e-5 of a tensor's maximum in the first step for data, 2e-4 "
    "for tensor parallelism and later steps.\n\n"
    "Exit status: 0 done; 1 not verified; 2 usage; 3 bad plan, or a stale "
    "calibration; 4 no Open MPI, GPU or driver; 5 a rank failed.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    struct mw_err err = {0};
    long long steps = 0;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        return 0;
    case OPT_BACKEND:
        a->backend = arg;
        return 0;
    case OPT_COMM:
        a->comm = arg;
        return 0;
    case OPT_RANKS:
        if (mw_cli_int("--ranks", arg, 1, 65536, &a->ranks, &err) != MW_OK) {
            argp_error(state, "%s", err.text);
        }
        return 0;
    case OPT_STEPS:
        if (mw_cli_int("--steps", arg, 1, 100000, &steps, &err) != MW_OK) {
            argp_error(state, "%s", err.text);
        }
        a->steps = arg;
        return 0;
    case OPT_VERIFY:
        a->verify = true;
        return 0;
    case OPT_TRACE:
        a->trace = arg;
        return 0;
    case OPT_CLOCK:
        if (strcmp(arg, "virtual") != 0 && strcmp(arg, "wall") != 0) {
            argp_error(state, "--clock: '%s' is not virtual or wall", arg);
        }
        a->clock = arg;
        return 0;
    case OPT_SLOW:
        a->slow = arg;
        return 0;
    case OPT_RESUME:
        a->resume = arg;
        return 0;
    case OPT_TEXT:
        a->text = arg;
        return 0;
    case OPT_BASE:
        a->base = arg;
        return 0;
    case OPT_CHECKPOINT:
        a->checkpoint = arg;
        return 0;
    case OPT_EVERY:
        if (mw_cli_int("--checkpoint-every", arg, 1, 100000, &steps, &err) !=
            MW_OK) {
            argp_error(state, "%s", err.text);
        }
        a->every = arg;
        return 0;
    case OPT_HANG:
        if (mw_quantity_parse(arg, MW_Q_SECONDS, &a->hang_s, NULL) != MW_OK ||
            a->hang_s < 0.0) {
            argp_error(state,
                       "--hang-timeout: '%s' is not a time; for example 30s",
                       arg);
        }
        return 0;
    case OPT_PRINT:
        a->is_print = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->plan) {
            argp_error(state, "one plan is run at a time");
        }
        a->plan = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which plan?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- before anything is started --------------------------------------------
 */
static enum mw_status check_backend(const struct args *a, struct mw_err *err)
{
    if (!a->backend) {
        return mw_fail(err, MW_EUSAGE, "--backend host or --backend cuda?");
    }
    if (strcmp(a->backend, "host") != 0 && strcmp(a->backend, "cuda") != 0) {
        return mw_fail(err, MW_EUSAGE, "--backend: '%s' is not host or cuda",
                       a->backend);
    }
    if (a->comm && strcmp(a->comm, "mpi") != 0 &&
        strcmp(a->comm, "local") != 0) {
        return mw_fail(err, MW_EUSAGE, "--comm: '%s' is not mpi or local",
                       a->comm);
    }
    return MW_OK;
}

/* Reads the plan, so that a bad one is told without starting anything. */
static enum mw_status check_plan(struct args *a, struct mw_err *err)
{
    struct mw_scenario scenario;
    struct mw_plan plan;
    enum mw_status st = mw_plan_load_own(a->plan, &scenario, &plan, err);
    if (st != MW_OK) {
        return st;
    }
    const struct mw_layout *l = &plan.layout;
    int ranks = mw_layout_ranks(l);
    if (a->ranks && a->ranks != ranks) {
        st = mw_fail(err, MW_EUSAGE,
                     "--ranks: %s needs %d ranks (tp %d x cp %d x pp %d x dp "
                     "%d), not %lld",
                     a->plan, ranks, l->tp, l->cp, l->pp, l->dp, a->ranks);
    }
    a->ranks = ranks;
    mw_plan_release(&plan);
    mw_scenario_release(&scenario);
    return st;
}

static void add_pair(struct mw_launch *launch, const char *option,
                     const char *value)
{
    if (value) {
        mw_launch_arg(launch, option);
        mw_launch_arg(launch, value);
    }
}

static void build(const struct args *a, struct mw_launch *launch)
{
    *launch =
        (struct mw_launch){.n_ranks = (int)a->ranks,
                           .is_local = a->comm && strcmp(a->comm, "local") == 0,
                           .hang_limit_s = a->hang_s};
    mw_launch_arg(launch, "run");
    mw_launch_arg(launch, a->plan);
    add_pair(launch, "--backend", a->backend);
    add_pair(launch, "--comm", a->comm);
    add_pair(launch, "--steps", a->steps);
    add_pair(launch, "--trace", a->trace);
    add_pair(launch, "--clock", a->clock);
    add_pair(launch, "--slow", a->slow);
    add_pair(launch, "--hwdb", a->cli.hwdb);
    add_pair(launch, "--resume", a->resume);
    add_pair(launch, "--base", a->base);
    add_pair(launch, "--text", a->text);
    add_pair(launch, "--checkpoint", a->checkpoint);
    add_pair(launch, "--checkpoint-every", a->every);
    if (a->verify) {
        mw_launch_arg(launch, "--verify");
    }
}

static enum mw_status print_launch(const struct mw_launch *launch,
                                   struct mw_err *err)
{
    struct mw_str text = {0};
    enum mw_status st = mw_launch_print(launch, &text, err);
    if (st == MW_OK) {
        fputs(text.s, stdout);
    }
    mw_str_release(&text);
    return st;
}

/* ---- for people --------------------------------------------------------- */
static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static double item(const json_t *o, const char *key, size_t i)
{
    return json_number_value(json_array_get(json_object_get(o, key), i));
}

static void print_times(const json_t *o)
{
    char text[MW_FMT_MAX];
    double predicted = real(o, "predicted_step_time_s");
    double virtual_s = real(o, "virtual_step_time_s");
    printf("  step time  %s on the wall (median, spread %.1f %%)\n",
           mw_fmt_seconds(real(o, "step_time_s"), text),
           100.0 * real(o, "step_time_cv"));
    printf("             %s on the virtual clock (spread %.1f %%)\n",
           mw_fmt_seconds(virtual_s, text), 100.0 * real(o, "virtual_cv"));
    if (isfinite(predicted)) {
        printf("  predicted  %s by the plan: %+.1f %% of the virtual clock\n",
               mw_fmt_seconds(predicted, text),
               100.0 * (predicted / virtual_s - 1.0));
    }
}

/* Of the rank that keeps most, and whether the model knew it. */
static void print_activations(const struct args *a, const json_t *o)
{
    char text[MW_FMT_MAX], other[MW_FMT_MAX];
    size_t most = 0, n_equal = 0;
    for (size_t r = 0; r < (size_t)a->ranks; r++) {
        double kept = item(o, "activation_peak_bytes", r);
        most = kept > item(o, "activation_peak_bytes", most) ? r : most;
        n_equal += kept == item(o, "predicted_activation_bytes", r);
    }
    printf("  kept       %s of activations on rank %zu, predicted %s; equal "
           "on %zu of %lld ranks\n",
           mw_fmt_bytes(item(o, "activation_peak_bytes", most), text), most,
           mw_fmt_bytes(item(o, "predicted_activation_bytes", most), other),
           n_equal, a->ranks);
}

static void print_people(const struct args *a, const json_t *o)
{
    char text[MW_FMT_MAX];
    size_t n = json_array_size(json_object_get(o, "loss")), fullest = 0;
    for (size_t r = 1; r < (size_t)a->ranks; r++) {
        if (item(o, "peak_bytes", r) > item(o, "peak_bytes", fullest)) {
            fullest = r;
        }
    }
    printf("%s on %lld ranks, %s\n", a->plan, a->ranks,
           json_string_value(json_object_get(o, "mode")));
    print_times(o);
    printf("  loss       %.4f in the first step, %.4f in step %zu\n",
           item(o, "loss", 0), item(o, "loss", n - 1), n);
    printf("  memory     %s on rank %zu, the fullest\n",
           mw_fmt_bytes(item(o, "peak_bytes", fullest), text), fullest);
    print_activations(a, o);
    if (a->verify) {
        bool is_right = json_is_true(json_object_get(o, "verified"));
        printf("  verified   %s; largest gradient error %.2g of a tensor's "
               "maximum\n",
               is_right ? "yes" : "NO", real(o, "max_gradient_error"));
    }
}

static int show(const struct args *a, json_t *result, enum mw_status st,
                const struct mw_err *err)
{
    int status = mw_status_exit(st);
    if (result && a->cli.json) {
        int printed = mw_cli_print_json(json_incref(result));
        status = status ? status : printed;
    } else if (result) {
        print_people(a, result);
    }
    return st == MW_OK ? status : mw_cli_fail(err);
}

int mw_verb_run(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options", 100}, {0}};
    static const struct argp argp = {options,  parse, "PLAN", doc,
                                     children, NULL,  NULL};
    struct args a = {.steps = "8", .hang_s = 8.0};
    struct mw_err err = {0};
    struct mw_launch launch;
    json_t *result = NULL;
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status st = check_backend(&a, &err);
    if (st == MW_OK) {
        st = check_plan(&a, &err);
    }
    if (st != MW_OK) {
        return mw_cli_fail(&err);
    }
    build(&a, &launch);
    if (a.is_print) {
        st = print_launch(&launch, &err);
        return st == MW_OK ? 0 : mw_cli_fail(&err);
    }
    st = mw_launch_run(&launch, &result, &err);
    int status = show(&a, result, st, &err);
    json_decref(result);
    return status;
}
