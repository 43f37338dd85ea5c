/* `meshwright compare SIMULATED MEASURED`: predicted against measured. */
#include "cli/cli.h"

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
};

enum { OPT_PLOT = 0x2000, OPT_MAX_ERROR, OPT_FORCE };

static const struct argp_option options[] = {
    {"plot", OPT_PLOT, "FILE", 0,
     "Draw both timelines on one time axis: FILE.svg, FILE.png, or - for the "
     "terminal",
     0},
    {"max-error", OPT_MAX_ERROR, "X", 0,
     "Exit with status 1 when the step time is off by more than this fraction "
     "(0.15 is 15 %)",
     0},
    {"force", OPT_FORCE, NULL, 0,
     "Compare timelines of different plans, or two of one side", 0},
    {0}};

static const char doc[] =
    "Compares a simulated timeline with a measured one of the same plan: step "
    "time, exposed time by kind of work, by stage, and by both.\v"
    "Examples:\n"
    "  meshwright compare out/simulated.json out/measured.json\n"
    "  meshwright compare out/simulated.json out/measured.json --plot "
    "out/compare.svg --max-error 0.15\n\n"
    "Timelines are Chrome traces or CSV as written by sim and run. The error "
    "is simulated / measured - 1. The report says which clock was measured: "
    "the virtual clock (CPU time of the threads plus modelled communication) "
    "tests compute, order and bubbles, not communication.\n"
    "Exit status: 0 compared; 1 past --max-error; 2 usage; 3 bad input file "
    "(timelines of different plans among them); 4 gnuplot is missing.";

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
        if (a->n_files < 2) {
            argp_error(state, "which two timelines? SIMULATED and MEASURED");
        }
        if (a->cli.json && a->plot && strcmp(a->plot, "-") == 0) {
            argp_error(state, "--json and --plot - both want stdout");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
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
                                     .args_doc = "SIMULATED MEASURED",
                                     .doc = doc,
                                     .children = children};
    struct args a = {0};
    struct mw_err err = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status status = run(&a, &err);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
