/* `meshwright diff A B`: why one plan is faster than another. */
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/verb_diff_view.h"
#include "cli/world.h"

#include "plots/plot.h"

#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *file[2];
    int n_files;
    const char *stack, *stack_b, *plot;
    bool is_same_layout;
};

enum { OPT_STACK = 0x2000, OPT_STACK_B, OPT_SAME_LAYOUT, OPT_PLOT };

static const struct argp_option options[] = {
    {"stack", OPT_STACK, "NAME", 0,
     "Training software whose habits are priced, as in sim (default: that "
     "of limits: framework)",
     0},
    {"stack-b", OPT_STACK_B, "NAME", 0,
     "The same for B alone: what the software changes", 0},
    {"same-layout", OPT_SAME_LAYOUT, NULL, 0,
     "B, a scenario, takes A's layout and layers: what the machine or the "
     "model "
     "alone changes",
     0},
    {"plot", OPT_PLOT, "FILE", 0,
     "Draw both timelines on one time axis: FILE.svg, FILE.png, or - for the "
     "terminal",
     0},
    {0}};

static const char doc[] =
    "Simulates A and B and says why one is faster: settings that differ, step "
    "time term by term, memory, pipeline stages, communication. Each of A and "
    "B is a plan (with the scenario that it names) or a scenario (with its "
    "layout, else the best that a search finds).\v"
    "Examples:\n"
    "  meshwright diff a.yaml b.yaml\n"
    "  meshwright diff scenarios/gpt3-175b-8xdgx-a100.yaml "
    "scenarios/gpt3-175b-64xdgx-a100.yaml --json\n"
    "  meshwright diff plan.yaml other-cluster.yaml --same-layout\n"
    "  meshwright diff plan.yaml plan.yaml --stack-b megatron-core --plot "
    "d.svg\n\n"
    "Terms are exposed time by kind of work, mean over the stages; their "
    "differences sum to the difference of the step times. Under a term stand "
    "its causes, which sum to it: compute by work of a rank (FLOPs) and pace "
    "(seconds per FLOP); communication by bytes sent, time per byte and the "
    "share that is exposed; the bubble by stages of unequal work and the rest. "
    "Products are split by the logarithmic mean, which leaves nothing over.\n"
    "Exit status: 0 compared; 1 a scenario without layout has no feasible "
    "plan; 2 usage; 3 bad input file; 4 gnuplot is missing.";

static error_t check(const struct args *a, struct argp_state *state)
{
    if (a->n_files < 2) {
        argp_error(state, "which two? A and B are plans or scenarios");
    }
    mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_STACK:
        a->stack = arg;
        return 0;
    case OPT_STACK_B:
        a->stack_b = arg;
        return 0;
    case OPT_SAME_LAYOUT:
        a->is_same_layout = true;
        return 0;
    case OPT_PLOT:
        if (mw_plot_path_wrong(arg)) {
            argp_error(state, "--plot: '%s': %s", arg, mw_plot_path_wrong(arg));
        }
        a->plot = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n_files == 2) {
            argp_error(state, "two are compared, not more");
        }
        a->file[a->n_files++] = arg;
        return 0;
    case ARGP_KEY_END:
        return check(a, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum mw_status draw(const struct args *a, const struct mw_diff_view *v,
                           struct mw_diff_side side[2], struct mw_err *err)
{
    char title[MW_DIFF_HEADLINE_MAX];
    const struct mw_plot_panel panels[2] = {{&side[0].timeline, a->file[0]},
                                            {&side[1].timeline, a->file[1]}};
    return mw_plot_gantt(mw_diff_headline(v, title), panels, 2, a->plot, err);
}

static enum mw_status report(const struct args *a, struct mw_diff_side side[2],
                             struct mw_err *err)
{
    struct mw_diff diff;
    enum mw_status status = MW_OK;
    mw_diff(&side[0], &side[1], &diff);
    const struct mw_diff_view view = {
        {&side[0], &side[1]}, {a->file[0], a->file[1]}, &diff};
    if (!a->cli.json) {
        mw_diff_view_print(&view, stdout);
    } else if (mw_cli_print_json(mw_diff_view_json(&view)) != 0) {
        status = mw_fail(err, MW_EFAILED, "cannot write to stdout");
    }
    if (status == MW_OK && a->plot) {
        status = draw(a, &view, side, err);
    }
    mw_diff_release(&diff);
    return status;
}

static enum mw_status compare(const struct args *a,
                              const struct mw_cli_subject s[2],
                              struct mw_err *err)
{
    struct mw_diff_side side[2];
    enum mw_status status = MW_OK;
    int n = 0;
    for (; n < 2 && status == MW_OK; n++) {
        status = mw_cli_blame(&s[n].scenario,
                              mw_diff_side_init(&s[n].scenario, &s[n].plan,
                                                &s[n].ctx, &side[n], err),
                              err);
    }
    if (status == MW_OK) {
        status = report(a, side, err);
    } else {
        n--;
    }
    while (n-- > 0) {
        mw_diff_side_release(&side[n]);
    }
    return status;
}

static enum mw_status open_b(const struct args *a, const struct mw_hwdb *db,
                             const struct mw_cli_subject *first,
                             struct mw_cli_subject *out, struct mw_err *err)
{
    const char *stack = a->stack_b ? a->stack_b : a->stack;
    return a->is_same_layout ? mw_cli_subject_like(db, a->file[1], stack,
                                                   &first->plan, out, err)
                             : mw_cli_subject_open(db, a->file[1], stack,
                                                   a->cli.quiet, out, err);
}

static enum mw_status run(const struct args *a, struct mw_err *err)
{
    struct mw_hwdb *db = NULL;
    struct mw_cli_subject s[2];
    enum mw_status status = mw_cli_hwdb(a->cli.hwdb, &db, err);
    if (status != MW_OK) {
        return status;
    }
    status =
        mw_cli_subject_open(db, a->file[0], a->stack, a->cli.quiet, &s[0], err);
    if (status == MW_OK) {
        status = open_b(a, db, &s[0], &s[1], err);
        if (status == MW_OK) {
            status = compare(a, s, err);
            mw_cli_subject_close(&s[1]);
        }
        mw_cli_subject_close(&s[0]);
    }
    mw_hwdb_free(db);
    return status;
}

int mw_verb_diff(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "A B",
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
