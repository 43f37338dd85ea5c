/* `meshwright compare SIMULATED MEASURED`, `compare --set DIR`: predicted
 * against measured. */
#include "cli/cli.h"
#include "cli/compare_set.h"

#include "exec/compare/compare.h"
#include "plots/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *file[2]; /* simulated, measured */
    int n_files;
    const char *plot;
    double max_error;
    bool has_max_error, is_forced;
    struct mw_compare_set_args set;
};

enum {
    OPT_PLOT = 0x2000,
    OPT_MAX_ERROR,
    OPT_FORCE,
    OPT_SET,
    OPT_STEPS,
    OPT_SLOW,
    OPT_REUSE,
    OPT_CHECK,
    OPT_HTML,
    OPT_COMM,
    OPT_CLOCK,
    OPT_MAX_RANKS
};

static const struct argp_option options[] = {
    {"plot", OPT_PLOT, "FILE", 0,
     "Draw both timelines on one time axis: FILE.svg, FILE.png, or - for the "
     "terminal",
     0},
    {"max-error", OPT_MAX_ERROR, "X", 0,
     "Exit with status 1 when the step time (with --set: the mean) is off by "
     "more than this fraction (0.15 is 15 %)",
     0},
    {"force", OPT_FORCE, NULL, 0,
     "Compare timelines of different plans, or two of one side", 0},
    {NULL, 0, NULL, 0, "A set of plans:", 1},
    {"set", OPT_SET, "DIR", 0,
     "Simulate and run every plan (*.yaml) of this folder on this machine", 1},
    {"output", 'o', "DIR", 0,
     "Where calibrations, timelines and results go; needed with --set", 1},
    {"steps", OPT_STEPS, "N", 0,
     "Training steps of each run, of which the first 3 warm up (default 8)", 1},
    {"comm", OPT_COMM, "NAME", 0,
     "mpi (default), or local: the ranks of a run are threads of one process, "
     "as in run",
     1},
    {"clock", OPT_CLOCK, "CLOCK", 0,
     "virtual (default), or wall: what the machine took; give it no more ranks "
     "than it has idle cores",
     1},
    {"max-ranks", OPT_MAX_RANKS, "N", 0, "Leave out plans of more ranks", 1},
    {"reuse", OPT_REUSE, NULL, 0,
     "Take runs of the same plans that an earlier set left in -o", 1},
    {"html", OPT_HTML, "FILE", 0, "Write all of it as one page with pictures",
     1},
    {"check", OPT_CHECK, NULL, 0,
     "Exit with status 1 unless the mean error is within 8 %, at most one plan "
     "in twenty is off by more than 15 %, and 95 % of the pairs are ordered "
     "right",
     1},
    {"slow", OPT_SLOW, "KIND=FACTOR", 0,
     "Test aid: make a kind of operator slower in every run, as in run", 1},
    {0}};

static const char doc[] =
    "Compares a simulated timeline with a measured one of the same plan: step "
    "time, exposed time by kind of work, by stage, and by both, and the first "
    "pass where they part. With --set: all plans of a folder, predicted and "
    "measured, how large the errors are and whether the order is right.\v"
    "Examples:\n"
    "  meshwright compare out/simulated.json out/measured.json\n"
    "  meshwright compare out/simulated.json out/measured.json --plot "
    "out/compare.svg --max-error 0.15\n"
    "  meshwright compare --set scenarios/matrix -o out/matrix --html "
    "out/matrix.html --check\n\n"
    "Timelines are Chrome traces or CSV as written by sim and run. The error "
    "is simulated / measured - 1. The report says which clock was measured: "
    "the virtual clock (CPU time of the threads plus modelled communication) "
    "tests compute, order and bubbles, not communication.\n"
    "A set is run on the virtual clock unless --clock says otherwise. Without "
    "--hwdb each scenario of it is "
    "calibrated first, into -o; a plan that the calibration was fitted to is "
    "refused. Pairs count when both are plans of one scenario whose measured "
    "times differ by more than 10 % and by three times their spread.\n"
    "Exit status: 0 compared; 1 past --max-error, or --check failed; 2 usage; "
    "3 bad input file (timelines of different plans among them); 4 gnuplot or "
    "Open MPI is missing; 5 a run failed.";

static double parse_max_error(struct argp_state *state, const char *text)
{
    double v = -1;
    if (mw_double_parse(text, &v, NULL) != MW_OK || v < 0) {
        argp_error(state,
                   "--max-error: '%s' is not a fraction; for example 0.15",
                   text);
    }
    return v;
}

static error_t check(const struct args *a, struct argp_state *state)
{
    bool is_set = a->set.opts.dir != NULL;
    if (is_set && (a->n_files > 0 || a->plot || a->is_forced)) {
        argp_error(state, "--set runs plans; it takes no timelines, --plot or "
                          "--force");
    }
    if (is_set && a->set.opts.out == NULL) {
        argp_error(state, "--set: -o DIR, where do timelines go?");
    }
    if (!is_set &&
        (a->set.opts.out || a->set.html || a->set.is_checked ||
         a->set.opts.slow || a->set.opts.steps || a->set.opts.is_reused ||
         a->set.opts.is_wall || a->set.opts.max_ranks)) {
        argp_error(state, "-o, --html, --check, --slow, --steps, --reuse, "
                          "--clock and --max-ranks go with --set");
    }
    if (!is_set && a->n_files < 2) {
        argp_error(state, "which two timelines? SIMULATED and MEASURED");
    }
    mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
    return 0;
}

/* ---- options of a set ------------------------------------------------------
 */
static int whole(const char *option, const char *arg, int least,
                 struct argp_state *state)
{
    struct mw_err err = {0};
    long long value = 0;
    if (mw_cli_int(option, arg, least, 1000, &value, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
    }
    return (int)value;
}

/* Is the text the second of the two words it may be? */
static bool is_second(const char *option, const char *arg, const char *first,
                      const char *second, struct argp_state *state)
{
    if (strcmp(arg, first) != 0 && strcmp(arg, second) != 0) {
        argp_error(state, "%s: '%s' is not %s or %s", option, arg, first,
                   second);
    }
    return strcmp(arg, second) == 0;
}

static error_t parse_set(struct args *a, int key, char *arg,
                         struct argp_state *state)
{
    switch (key) {
    case OPT_SET:
        a->set.opts.dir = arg;
        return 0;
    case 'o':
        a->set.opts.out = arg;
        return 0;
    case OPT_STEPS:
        a->set.opts.steps = whole("--steps", arg, 5, state);
        return 0;
    case OPT_MAX_RANKS:
        a->set.opts.max_ranks = whole("--max-ranks", arg, 1, state);
        return 0;
    case OPT_CLOCK:
        a->set.opts.is_wall =
            is_second("--clock", arg, "virtual", "wall", state);
        return 0;
    case OPT_SLOW:
        a->set.opts.slow = arg;
        return 0;
    case OPT_COMM:
        a->set.opts.is_local = is_second("--comm", arg, "mpi", "local", state);
        return 0;
    case OPT_REUSE:
        a->set.opts.is_reused = true;
        return 0;
    case OPT_CHECK:
        a->set.is_checked = true;
        return 0;
    case OPT_HTML:
        a->set.html = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_PLOT:
        if (mw_plot_path_wrong(arg)) {
            argp_error(state, "--plot: '%s': %s", arg, mw_plot_path_wrong(arg));
        }
        a->plot = arg;
        return 0;
    case OPT_MAX_ERROR:
        a->max_error = parse_max_error(state, arg);
        a->has_max_error = true;
        return 0;
    case OPT_FORCE:
        a->is_forced = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n_files == 2) {
            argp_error(state, "two timelines are compared, not more");
        }
        a->file[a->n_files++] = arg;
        return 0;
    case ARGP_KEY_END:
        return check(a, state);
    default:
        return parse_set(a, key, arg, state);
    }
}

static enum mw_status draw(const struct args *a, const struct mw_comparison *c,
                           struct mw_timeline t[2], struct mw_err *err)
{
    char title[MW_COMPARE_HEADLINE_MAX], measured[40];
    snprintf(measured, sizeof measured, "measured (%s clock)", c->clock);
    const struct mw_plot_panel panels[2] = {{&t[0], "predicted"},
                                            {&t[1], measured}};
    return mw_plot_gantt(mw_compare_headline(c, title), panels, 2, a->plot,
                         err);
}

static enum mw_status judge(const struct args *a, const struct mw_comparison *c,
                            struct mw_err *err)
{
    if (!a->has_max_error || fabs(c->error) <= a->max_error) {
        return MW_OK;
    }
    return mw_fail(err, MW_ENO, "the error of %+.1f %% is past %.1f %%",
                   100 * c->error, 100 * a->max_error);
}

static enum mw_status report(const struct args *a,
                             const struct mw_comparison *c,
                             struct mw_timeline t[2], struct mw_err *err)
{
    if (a->cli.json) {
        if (mw_cli_print_json(mw_compare_json(c)) != 0) {
            return mw_fail(err, MW_EFAILED, "cannot write to stdout");
        }
    } else {
        mw_compare_print(c, stdout);
    }
    enum mw_status status = a->plot ? draw(a, c, t, err) : MW_OK;
    return status == MW_OK ? judge(a, c, err) : status;
}

static enum mw_status run(const struct args *a, struct mw_err *err)
{
    struct mw_timeline t[2];
    enum mw_status status = mw_timeline_load(a->file[0], &t[0], err);
    if (status != MW_OK) {
        return status;
    }
    status = mw_timeline_load(a->file[1], &t[1], err);
    if (status == MW_OK) {
        struct mw_comparison c;
        const struct mw_compare_side sides[2] = {{&t[0], a->file[0]},
                                                 {&t[1], a->file[1]}};
        status = mw_compare(&sides[0], &sides[1], a->is_forced, &c, err);
        if (status == MW_OK) {
            status = report(a, &c, t, err);
            mw_comparison_release(&c);
        }
        mw_timeline_release(&t[1]);
    }
    mw_timeline_release(&t[0]);
    return status;
}

int mw_verb_compare(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc =
                                         "SIMULATED MEASURED\n--set DIR -o DIR",
                                     .doc = doc,
                                     .children = children};
    struct args a = {.max_error = -1};
    struct mw_err err = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    a.set.max_error = a.has_max_error ? a.max_error : -1;
    enum mw_status status = a.set.opts.dir
                                ? mw_compare_set_run(&a.set, &a.cli, &err)
                                : run(&a, &err);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
