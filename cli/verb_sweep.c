/* `meshwright sweep SCENARIO --vary KEY=VALUES`: the best plan at each point
 * of a grid, as a table, CSV, JSON and curves. */
#include "cli/cli.h"
#include "cli/world.h"

#include "base/log.h"
#include "base/units.h"
#include "cli/sweep_share.h"
#include "cli/sweep_cross.h"
#include "planner/sweep.h"
#include "plots/plot.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MERGES_MAX = 1024 };

struct args {
    struct mw_cli cli;
    const char *scenario, *csv, *plot, *stack, *crossings;
    enum mw_sweep_curve curve;
    const char *merge[MERGES_MAX];
    int n_merges;
    int shard, n_shards;
    bool is_again; /* search points anew that the CSV has */
    struct mw_sweep_money money;
    struct mw_sweep_share share; /* instead of a sweep */
    struct mw_sweep_grid grid;
    struct mw_search_opts search;
};

enum {
    OPT_VARY = 0x2000,
    OPT_FIX,
    OPT_JOBS,
    OPT_TIME_LIMIT,
    OPT_SHARD,
    OPT_MERGE,
    OPT_CSV,
    OPT_PLOT,
    OPT_PRESET,
    OPT_TOKENS,
    OPT_PRICE,
    OPT_WITHIN,
    OPT_SHARE,
    OPT_CAP,
    OPT_KINDS,
    OPT_MINIMISE,
    OPT_LP,
    OPT_STACK,
    OPT_CURVE,
    OPT_CROSSINGS,
    OPT_AGAIN
};

static const struct argp_option options[] = {
    {"vary", OPT_VARY, "KEY=V1,V2,...", 0,
     "An axis of the grid: nodes, system, model (presets), seq, global_batch, "
     "net (factor on the bandwidth between nodes), gpus_per_node (that are "
     "used), nics (of a node, each at its rate); give it again for more axes",
     0},
    {"preset", OPT_PRESET, "strong|weak", 0,
     "weak: the global batch grows with the nodes (default: strong)", 0},
    {"fix", OPT_FIX, "KEY=VALUE,...", 0, "Pin dimensions, as in plan", 0},
    {"csv", OPT_CSV, "FILE", 0,
     "Write the rows here, after every point; points that it already has are "
     "not searched again, and its other points stay",
     0},
    {"crossings", OPT_CROSSINGS, "FILE", 0,
     "Write where series change places, interpolated, and where the best "
     "layout "
     "changes, as CSV (tables say the same; the plot marks the former)",
     0},
    {"again", OPT_AGAIN, NULL, 0, "Search all points anew; the CSV is replaced",
     0},
    {"shard", OPT_SHARD, "I/N|auto", 0,
     "Only every N-th point, from the I-th; auto: as Slurm or Open MPI say", 0},
    {"merge", OPT_MERGE, "FILE", 0,
     "Take rows from this file and search nothing; give it again for more", 0},
    {"plot", OPT_PLOT, "FILE.svg|.png|-", 0,
     "Draw curves over the first axis, a series for each value of the second",
     0},
    {"curve", OPT_CURVE, "rate|efficiency|days|cost", 0,
     "With --plot: tokens per second and GPU (default), the same over that of "
     "the fewest GPUs, time to train on --tokens, its cost at --price",
     0},
    {"tokens", OPT_TOKENS, "N", 0, "Also show the time to train on N tokens",
     0},
    {"within", OPT_WITHIN, "DAYS", 0,
     "With --tokens: the fewest GPUs that end within so many days", 0},
    {"share", OPT_SHARE, "SYSTEM=GPUS,...", 0,
     "Instead of a sweep: choose a row for each scenario of the --merge files, "
     "within these GPUs, so that the last job ends first (--tokens: each)",
     0},
    {"cap", OPT_CAP, "USD", 0,
     "With --share: all jobs together cost no more (--price for all systems, "
     "else the database's lowest on-demand prices); --within is then a "
     "deadline "
     "for each",
     0},
    {"kinds", OPT_KINDS, "K", 0, "With --share: at most so many systems", 0},
    {"minimise", OPT_MINIMISE, "time|cost", 0,
     "With --share: the end of the last job (default), or the money", 0},
    {"write-lp", OPT_LP, "FILE", 0,
     "With --share: write the integer program (CPLEX LP form)", 0},
    {"stack", OPT_STACK, "NAME", 0,
     "Training software whose habits are priced, as in sim (default: that of "
     "limits: framework)",
     0},
    {"price", OPT_PRICE, "USD", 0,
     "Also show the cost, at this price of a GPU hour", 0},
    {"jobs", OPT_JOBS, "N", 0, "Threads (default: one per core)", 0},
    {"time-limit", OPT_TIME_LIMIT, "TIME", 0, "For each point (default: none)",
     0},
    {0}};

static const char doc[] =
    "Searches the best plan of a scenario at each point of a grid.\v"
    "Examples:\n"
    "  meshwright sweep scenarios/llama3-8b-2xdgx-h100.yaml --vary "
    "nodes=2,4,8,16 --preset weak\n"
    "  meshwright sweep scenarios/gpt3-175b-64xdgx-a100.yaml --vary "
    "nodes=16,32,64 --vary system=dgx-a100,dgx-h100 --csv s.csv "
    "--tokens 300e9 --price 2.5\n"
    "  srun -n 16 meshwright sweep ... --shard auto --csv part-%t.csv; then "
    "--merge part-0.csv --merge part-1.csv ... --csv all.csv\n"
    "  meshwright sweep --share dgx-a100=128,dgx-h100=64 --merge gpt.csv "
    "--merge llama.csv --tokens 1e12\n\n"
    "Exit status: 0 done, also where points have no feasible plan (the table "
    "says why); 1 a merge misses points; 2 usage; 3 bad input file; 130 "
    "interrupted (the CSV has the rows so far).";

/* ---- arguments -------------------------------------------------------------
 */
static enum mw_status number_option(const char *name, const char *text,
                                    double *out, struct mw_err *err)
{
    if (mw_double_parse(text, out, NULL) == MW_OK && *out > 0) {
        return MW_OK;
    }
    return mw_fail(err, MW_EUSAGE, "%s: '%s' is not a positive number", name,
                   text);
}

static enum mw_status fix(struct args *a, const char *text, struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status = mw_cli_pairs("--fix", text, pairs, &n, err);

    for (int i = 0; i < n && status == MW_OK; i++) {
        status = mw_search_fix(&a->search, pairs[i].key, pairs[i].value, err);
        if (status != MW_OK) {
            mw_err_prefix(err, "--fix");
        }
    }
    return status;
}

static enum mw_status preset(struct args *a, const char *text,
                             struct mw_err *err)
{
    a->grid.is_weak = strcmp(text, "weak") == 0;
    return a->grid.is_weak || strcmp(text, "strong") == 0
               ? MW_OK
               : mw_fail(err, MW_EUSAGE,
                         "--preset: '%s' is neither strong nor weak", text);
}

static enum mw_status plot(struct args *a, const char *text, struct mw_err *err)
{
    const char *wrong = mw_plot_path_wrong(text);

    a->plot = text;
    return wrong ? mw_fail(err, MW_EUSAGE, "--plot: '%s': %s", text, wrong)
                 : MW_OK;
}

static enum mw_status curve(struct args *a, const char *text,
                            struct mw_err *err)
{
    for (const struct mw_enum *e = mw_sweep_curve_enums; e->name; e++) {
        if (strcmp(e->name, text) == 0) {
            a->curve = (enum mw_sweep_curve)e->value;
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE,
                   "--curve: '%s' is none of rate, efficiency, days, cost",
                   text);
}

static enum mw_status option(struct args *a, int key, char *arg,
                             struct mw_err *err)
{
    long long value = 0;
    enum mw_status status;

    switch (key) {
    case OPT_VARY:
        return mw_sweep_grid_add(&a->grid, arg, err);
    case OPT_FIX:
        return fix(a, arg, err);
    case OPT_SHARD:
        return mw_sweep_shard(arg, &a->shard, &a->n_shards, err);
    case OPT_PRESET:
        return preset(a, arg, err);
    case OPT_PLOT:
        return plot(a, arg, err);
    case OPT_CURVE:
        return curve(a, arg, err);
    case OPT_TOKENS:
        return number_option("--tokens", arg, &a->money.tokens, err);
    case OPT_PRICE:
        return number_option("--price", arg, &a->money.usd_per_gpu_hour, err);
    case OPT_STACK:
        a->stack = arg;
        return mw_cli_check_stack(arg, err);
    case OPT_SHARE:
        return mw_sweep_share_parse(arg, &a->share, err);
    case OPT_CAP:
        return mw_sweep_share_cap(arg, &a->share, err);
    case OPT_KINDS:
        return mw_sweep_share_kinds(arg, &a->share, err);
    case OPT_MINIMISE:
        return mw_sweep_share_minimise(arg, &a->share, err);
    case OPT_LP:
        a->share.lp = arg;
        return MW_OK;
    case OPT_WITHIN:
        status = number_option("--within", arg, &a->money.within_s, err);
        a->money.within_s *= 86400;
        return status;
    case OPT_JOBS:
        status = mw_cli_int("--jobs", arg, 1, 4096, &value, err);
        a->search.jobs = (int)value;
        return status;
    case OPT_MERGE:
        if (a->n_merges == MERGES_MAX) {
            return mw_fail(err, MW_EUSAGE, "--merge: more than %d files",
                           MERGES_MAX);
        }
        a->merge[a->n_merges++] = arg;
        return MW_OK;
    default:
        if (mw_quantity_parse(arg, MW_Q_SECONDS, &a->search.time_limit_s,
                              NULL) == MW_OK &&
            a->search.time_limit_s > 0) {
            return MW_OK;
        }
        return mw_fail(err, MW_EUSAGE,
                       "--time-limit: '%s' is not a positive time; for example "
                       "30s",
                       arg);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    struct mw_err err = {0};

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        return 0;
    case OPT_CSV:
        a->csv = arg;
        return 0;
    case OPT_CROSSINGS:
        a->crossings = arg;
        return 0;
    case OPT_AGAIN:
        a->is_again = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->scenario) {
            argp_error(state, "one scenario is swept at a time");
        }
        a->scenario = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->scenario && a->share.n == 0) {
            argp_error(state, "which scenario?");
        }
        mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
        mw_cli_one_stdout(&a->cli, "--csv", a->csv, state);
        mw_cli_one_stdout(&a->cli, "--crossings", a->crossings, state);
        if (a->share.n > 0 && a->n_merges == 0) {
            argp_error(state, "--share needs the rows of --merge files");
        }
        if (a->curve != MW_CURVE_RATE && !a->plot) {
            argp_error(state, "--curve needs --plot");
        }
        if (a->curve >= MW_CURVE_DAYS && !(a->money.tokens > 0)) {
            argp_error(state, "--curve days and cost need --tokens");
        }
        if (a->curve == MW_CURVE_COST && !(a->money.usd_per_gpu_hour > 0)) {
            argp_error(state, "--curve cost needs --price");
        }
        if (a->money.within_s > 0 && !(a->money.tokens > 0)) {
            argp_error(state, "--within needs --tokens");
        }
        return 0;
    default:
        if (key < OPT_VARY || key > OPT_AGAIN) {
            return ARGP_ERR_UNKNOWN;
        }
        if (option(a, key, arg, &err) != MW_OK) {
            argp_error(state, "%s", err.text);
        }
        return 0;
    }
}

/* ---- the work --------------------------------------------------------------
 */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* Progress with what is left by the mean so far, on a terminal only. */
struct pace {
    int64_t start_ns;
    bool is_on;
};

static void on_point(void *arg, size_t done, size_t total)
{
    const struct pace *pace = arg;
    double spent_s = 1e-9 * (double)(mw_clock_wall_ns() - pace->start_ns);
    char left[MW_FMT_MAX];

    if (pace->is_on && done > 0 && done <= total) {
        fprintf(stderr, "\rsweep: %zu of %zu points, about %s left   %s", done,
                total,
                mw_fmt_seconds(spent_s / (double)done * (double)(total - done),
                               left),
                done == total ? "\n" : "");
    }
}

/* Rows of --merge files and of the CSV, that answer this sweep. */
static enum mw_status read_known(const struct args *a, uint64_t question,
                                 struct mw_sweep_rows *known, size_t *n_merged,
                                 struct mw_err *err)
{
    enum mw_status status = MW_OK;

    for (int i = 0; i < a->n_merges && status == MW_OK; i++) {
        status = mw_sweep_read_of(a->merge[i], question, false, known, err);
    }
    *n_merged = known->n;
    if (status == MW_OK && a->csv && !a->is_again &&
        access(a->csv, F_OK) == 0) {
        status = mw_sweep_read_of(a->csv, question, true, known, err);
    }
    return status;
}

/* Rows of --merge files, of as many sweeps as there are jobs. */
static enum mw_status read_jobs(const struct args *a,
                                struct mw_sweep_rows *rows, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    for (int i = 0; i < a->n_merges && status == MW_OK; i++) {
        status = mw_sweep_read(a->merge[i], rows, err);
    }
    return status;
}

static int run(const struct args *a, const struct mw_scenario *scenario,
               const struct mw_hwdb *db)
{
    struct mw_err err = {0};
    struct mw_sweep_rows known = {.n = 0}, rows = {.n = 0};
    struct pace pace = {mw_clock_wall_ns(),
                        !a->cli.quiet && !a->cli.json && isatty(2)};
    struct mw_sweep_opts opts = {.search = &a->search,
                                 .stack = a->stack,
                                 .shard = a->shard,
                                 .n_shards = a->n_shards,
                                 .csv = a->csv,
                                 .is_merge = a->n_merges > 0,
                                 .on_point = on_point,
                                 .arg = &pace};

    mw_arena_init(&known.arena);
    mw_arena_init(&rows.arena);
    enum mw_status status =
        read_known(a, mw_sweep_question(scenario, &a->search, a->stack, db),
                   &known, &opts.n_merged, &err);

    if (status == MW_OK) {
        status =
            mw_sweep_run(scenario, db, &a->grid, &opts, &known, &rows, &err);
    }
    bool is_shown = status == MW_OK || status == MW_ENO || status == MW_EINTR;

    if (is_shown && a->cli.json) {
        mw_cli_print_json(mw_sweep_view_json(&rows, &a->grid, &a->money));
    } else if (is_shown) {
        mw_sweep_view_print(&rows, &a->grid, &a->money);
    }
    if (status == MW_OK && a->crossings) {
        status =
            mw_sweep_cross_csv(&rows, &a->grid, &a->money, a->crossings, &err);
    }
    if (status == MW_OK && a->plot) {
        status = mw_sweep_view_plot(&rows, &a->grid, &a->money, a->curve,
                                    scenario->name, a->plot, &err);
    }
    mw_sweep_rows_release(&known);
    mw_sweep_rows_release(&rows);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}

static int sweep(struct args *a)
{
    struct mw_err err = {0};
    struct mw_cli_world world;
    const char *const outputs[] = {a->csv, a->plot, a->crossings};

    if (mw_cli_check_outputs(outputs, 3, &err) != MW_OK ||
        mw_cli_open(&world, a->cli.hwdb, a->scenario, &err) != MW_OK) {
        return mw_cli_fail(&err);
    }
    int exit_status = run(a, &world.scenario, world.db);
    mw_cli_close(&world);
    return exit_status;
}

/* Jobs on one budget: rows of files alone. */
static int share(const struct args *a)
{
    struct mw_err err = {0};
    struct mw_sweep_rows rows = {.n = 0};
    double tokens = a->money.tokens > 0 ? a->money.tokens : 1e12;
    int exit_status;

    mw_arena_init(&rows.arena);
    exit_status = mw_cli_check_outputs(&a->share.lp, 1, &err) == MW_OK &&
                          read_jobs(a, &rows, &err) == MW_OK
                      ? mw_sweep_share_run(
                            &a->share, &rows, tokens, a->money.usd_per_gpu_hour,
                            a->money.within_s, a->cli.hwdb, a->cli.json)
                      : mw_cli_fail(&err);
    mw_sweep_rows_release(&rows);
    return exit_status;
}

int mw_verb_sweep(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[SCENARIO]",
                                     .doc = doc,
                                     .children = children};
    struct args *a = mw_calloc(1, sizeof *a);
    struct sigaction action = {.sa_handler = on_interrupt};
    int exit_status = 2;

    mw_search_opts_default(&a->search);
    a->search.top = 1;
    a->search.is_quiet = true;
    a->search.stop = &interrupted;
    if (mw_cli_parse(&argp, argc, argv, a) == MW_OK) {
        sigemptyset(&action.sa_mask);
        sigaction(SIGINT, &action, NULL);
        exit_status = a->share.n > 0 ? share(a) : sweep(a);
    }
    mw_sweep_grid_release(&a->grid);
    mw_free(a);
    return exit_status;
}
