/* `meshwright report PLAN -o FILE.html`: a plan as one page. */
#include "cli/choose.h"
#include "cli/cli.h"
#include "cli/report_page.h"
#include "cli/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *file, *out, *stack, *measured;
};

enum { OPT_STACK = 0x2000, OPT_MEASURED };

static const struct argp_option options[] = {
    {"output", 'o', "FILE.html", 0, "The page to write", 0},
    {"measured", OPT_MEASURED, "TIMELINE", 0,
     "Lay a timeline that `run` wrote beside the predicted one", 0},
    {"stack", OPT_STACK, "NAME", 0,
     "Training software whose habits are priced, as in sim", 0},
    {0}};

static const char doc[] =
    "Simulates a plan (or a scenario: its layout, else the best that a search "
    "finds) and writes one self-contained page: layout, timeline, where the "
    "time goes, memory, communication, what would help, how every time came "
    "about. Pictures are inline SVG; no gnuplot, no script, nothing from "
    "elsewhere.\v"
    "Examples:\n"
    "  meshwright report plan.yaml -o report.html\n"
    "  meshwright report plan.yaml --measured measured.json -o report.html\n\n"
    "Exit status: 0 written; 1 a scenario without layout has no feasible plan; "
    "2 usage; 3 bad input file, or the page cannot be written.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case OPT_STACK:
        a->stack = arg;
        return 0;
    case OPT_MEASURED:
        a->measured = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (a->file) {
            argp_error(state, "one plan is reported at a time");
        }
        a->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->file) {
            argp_error(state, "which plan?");
        }
        if (!a->out) {
            argp_error(state, "-o: which file? for example report.html");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A timeline of this very plan. */
static enum mw_status load_measured(const struct args *a,
                                    const struct mw_plan *plan,
                                    struct mw_timeline *out, struct mw_err *err)
{
    char hash[17];
    enum mw_status status = mw_timeline_load(a->measured, out, err);
    snprintf(hash, sizeof hash, "%016" PRIx64, mw_plan_hash(plan));
    if (status == MW_OK && strcmp(out->plan_hash, hash) != 0) {
        mw_timeline_release(out);
        return mw_fail(err, MW_EINPUT,
                       "%s: plan hash %s, but %s has %s; give the timeline of "
                       "a run of this plan",
                       a->measured, *out->plan_hash ? out->plan_hash : "none",
                       a->file, hash);
    }
    return status;
}

static enum mw_status write_page(const struct args *a,
                                 const struct mw_report *report,
                                 struct mw_err *err)
{
    struct mw_page page = {.n_pictures = 0};
    mw_report_page(report, &page);
    enum mw_status status = mw_page_save(&page, a->out, err);
    if (status == MW_OK && a->cli.json) {
        json_t *o = json_object();
        mw_json_set_str(o, "page", a->out);
        mw_json_set_real(o, "step_time_s", report->side->result.step_time_s);
        mw_json_set_real(o, "peak_bytes", report->side->result.peak_bytes);
        status = mw_cli_print_json(o) == 0
                     ? MW_OK
                     : mw_fail(err, MW_EFAILED, "cannot write to stdout");
    } else if (status == MW_OK && !a->cli.quiet) {
        printf("Report written to %s\n", a->out);
    }
    return status;
}

/* The explanation is a simulation of its own: a side keeps none. */
static enum mw_status explain(const struct mw_cli_subject *s,
                              struct mw_explain *root, struct mw_err *err)
{
    const struct mw_step_opts opts = {.explain = root, .no_breakdown = true};
    struct mw_step_result result;
    enum mw_status status =
        mw_step_simulate(&s->scenario, &s->plan, &s->ctx, &opts, &result, err);
    if (status == MW_OK) {
        mw_step_result_release(&result);
    }
    return status;
}

static enum mw_status report_side(const struct args *a,
                                  const struct mw_cli_subject *s,
                                  struct mw_diff_side *side, struct mw_err *err)
{
    struct mw_arena arena;
    struct mw_timeline measured;
    double share[MW_RESOURCE_COUNT];
    mw_arena_init(&arena);
    struct mw_explain root = {.name = "step", .count = 1, .arena = &arena};
    struct mw_report report = {a->file, side, &root, share, NULL};
    enum mw_status status = explain(s, &root, err);
    if (status == MW_OK) {
        status =
            mw_step_sensitivity(&s->scenario, &s->plan, &s->ctx, share, err);
    }
    if (status == MW_OK && a->measured) {
        status = load_measured(a, &s->plan, &measured, err);
        report.measured = status == MW_OK ? &measured : NULL;
    }
    if (status == MW_OK) {
        status = write_page(a, &report, err);
    }
    if (report.measured) {
        mw_timeline_release(&measured);
    }
    mw_arena_release(&arena);
    return status;
}

static enum mw_status report_subject(const void *ctx,
                                     const struct mw_cli_subject *s,
                                     struct mw_err *err)
{
    struct mw_diff_side side;
    enum mw_status status = mw_cli_blame(
        &s->scenario,
        mw_diff_side_init(&s->scenario, &s->plan, &s->ctx, &side, err), err);
    if (status == MW_OK) {
        status = report_side(ctx, s, &side, err);
        mw_diff_side_release(&side);
    }
    return status;
}

int mw_verb_report(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "PLAN|SCENARIO",
                                     .doc = doc,
                                     .children = children};
    struct args a = {0};
    struct mw_err err = {0};
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status status =
        mw_cli_with_subject(&a.cli, a.file, a.stack, report_subject, &a, &err);
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
