/* `meshwright plan SCENARIO -o PLAN`: search, rank, explain, write. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/table.h"
#include "planner/planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct args {
    struct mw_cli cli;
    const char *scenario, *out;
    bool is_explicit; /* write the schedule's order into the plan */
    long long top;
    struct mw_search_opts search;
};

enum {
    OPT_FIX = 0x2000,
    OPT_JOBS,
    OPT_TIME_LIMIT,
    OPT_TOP,
    OPT_ORDER,
    OPT_SPACE
};

static const struct argp_option options[] = {
    {"output", 'o', "PLAN", 0, "Write the best plan to this file", 0},
    {"fix", OPT_FIX, "KEY=VALUE,...", 0,
     "Pin dimensions: tp pp dp vpp micro_batch zero sp recompute schedule", 0},
    {"space", OPT_SPACE, "default|full", 0,
     "How much is free: full adds rank orders, expert tp, sp off, all "
     "micro-batches",
     0},
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
    "--fix tp=2,pp=2,dp=2 -o p.yaml\n\n"
    "\"proved best\" means: of all layouts enumerated, under the simulator's "
    "prices; every other was simulated or has a lower bound above the best.\n"
    "Exit status: 0 a plan was found; 1 no layout is feasible; 2 usage; "
    "3 bad input file.";

static enum mw_status apply_fix(struct args *a, const char *text,
                                struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status = mw_cli_pairs("--fix", text, pairs, &n, err);
    for (int i = 0; i < n && status == MW_OK; i++) {
        status = mw_search_fix(&a->search, pairs[i].key, pairs[i].value, err);
    }
    return status;
}

static enum mw_status option(struct args *a, int key, const char *arg,
                             struct mw_err *err)
{
    long long value = 0;
    enum mw_status status = MW_OK;
    if (key == OPT_FIX) {
        return apply_fix(a, arg, err);
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

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;
    struct mw_err err = {0};
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a ? &a->cli : NULL;
        return 0;
    case 'o':
        a->out = arg;
        return 0;
    case OPT_ORDER:
        a->is_explicit = true;
        return 0;
    case OPT_FIX:
    case OPT_SPACE:
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
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which scenario?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- printing
 * ----------------------------------------------------------------- */

static void print_plans(const struct mw_search_result *r, size_t top)
{
    static const char *const names[] = {
        "#",         "tp",       "pp",        "dp",     "mbs", "zero",
        "recompute", "schedule", "step time", "slower", "MFU", "peak memory"};
    struct mw_table *t = mw_table_new();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i != 6 && i != 7);
    }
    for (size_t i = 0; i < r->n_plans && i < top; i++) {
        const struct mw_candidate *c = &r->plans[i];
        char time[MW_FMT_MAX], peak[MW_FMT_MAX];
        mw_table_row(t);
        mw_table_cell(t, "%zu", i + 1);
        mw_table_cell(t, "%d", c->layout.tp);
        mw_table_cell(t, "%d", c->layout.pp);
        mw_table_cell(t, "%d", c->layout.dp);
        mw_table_cell(t, "%d", c->layout.micro_batch);
        mw_table_cell(t, "%d", c->layout.zero);
        mw_table_cell(t, "%s", mw_recompute_name(c->layout.recompute));
        mw_table_cell(t, "%s", c->layout.pp > 1 ? c->layout.schedule : "-");
        mw_table_cell(t, "%s", mw_fmt_seconds(c->step_time_s, time));
        mw_table_cell(t, "%.1f %%",
                      100 * (c->step_time_s / r->plans[0].step_time_s - 1));
        mw_table_cell(t, "%.1f %%", 100 * c->mfu);
        mw_table_cell(t, "%s", mw_fmt_bytes(c->peak_bytes, peak));
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_reasons(const struct mw_search_result *r)
{
    if (r->n_reasons == 0) {
        return;
    }
    printf("\nWhy the others fell out:\n");
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "layouts", true);
    mw_table_col(t, "reason", false);
    mw_table_col(t, "nearest miss", false);
    for (int i = 0; i < r->n_reasons; i++) {
        mw_table_row(t);
        mw_table_cell(t, "%llu", (unsigned long long)r->reasons[i].count);
        mw_table_cell(t, "%s", r->reasons[i].rule);
        mw_table_cell(t, "%s", r->reasons[i].nearest);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_layers(const struct mw_candidate *c)
{
    if (c->layout.pp * c->layout.vpp < 2) {
        return;
    }
    printf("Layers per stage of the best:");
    for (int k = 0; k < c->layout.pp * c->layout.vpp; k++) {
        printf(" %d", c->layers[k]);
    }
    printf("\n");
}

static void print_people(const struct mw_scenario *s,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_search_result *r, size_t top)
{
    printf("%s (%d ranks of %s)\n\n", s->name,
           ctx->n_nodes * ctx->gpus_per_node, ctx->gpu->name);
    print_plans(r, top);
    print_layers(&r->plans[0]);
    print_reasons(r);
    printf("\n%llu layouts enumerated, %llu legal and evaluated, %llu "
           "simulated; the first is %s.\n",
           (unsigned long long)r->enumerated, (unsigned long long)r->evaluated,
           (unsigned long long)r->simulated,
           r->proved_optimal ? "proved best of all enumerated"
                             : "the best simulated, not proved best");
}

static json_t *plan_json(const struct mw_candidate *c)
{
    json_t *o = json_object();
    const struct mw_layout *l = &c->layout;
    const struct {
        const char *key;
        int value;
    } ints[] = {
        {"tp", l->tp},   {"cp", l->cp},   {"pp", l->pp},
        {"vpp", l->vpp}, {"dp", l->dp},   {"zero", l->zero},
        {"ep", l->ep},   {"etp", l->etp}, {"micro_batch", l->micro_batch}};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        mw_json_set_int(o, ints[i].key, ints[i].value);
    }
    mw_json_set_bool(o, "sp", l->sp);
    mw_json_set_str(o, "schedule", l->schedule);
    mw_json_set_str(o, "recompute", mw_recompute_name(l->recompute));
    mw_json_set_real(o, "step_time_s", c->step_time_s);
    mw_json_set_real(o, "peak_bytes", c->peak_bytes);
    mw_json_set_real(o, "mfu", c->mfu);
    json_t *layers = json_array();
    for (int k = 0; k < l->pp * l->vpp; k++) {
        json_array_append_new(layers, json_integer(c->layers[k]));
    }
    mw_json_set(o, "layers", layers);
    return o;
}

static json_t *result_json(const struct mw_search_result *r)
{
    json_t *o = json_object(), *pruned = json_object(), *plans = json_array();
    mw_json_set_int(o, "enumerated", (long long)r->enumerated);
    for (int i = 0; i < r->n_reasons; i++) {
        mw_json_set_int(pruned, r->reasons[i].rule,
                        (long long)r->reasons[i].count);
    }
    mw_json_set(o, "pruned", pruned);
    mw_json_set_int(o, "evaluated", (long long)r->evaluated);
    mw_json_set_int(o, "simulated", (long long)r->simulated);
    mw_json_set_bool(o, "proved_optimal", r->proved_optimal);
    mw_json_set_real(o, "wall_time_s", r->wall_time_s);
    for (size_t i = 0; i < r->n_plans; i++) {
        json_array_append_new(plans, plan_json(&r->plans[i]));
    }
    mw_json_set(o, "plans", plans);
    return o;
}

/* ---- the work
 * -------------------------------------------------------------------- */

static enum mw_status write_best(const struct args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_search_result *r,
                                 struct mw_err *err)
{
    if (!a->out) {
        return MW_OK;
    }
    struct mw_plan plan;
    enum mw_status status =
        mw_candidate_plan(scenario, &r->plans[0], &plan, err);
    if (status == MW_OK) {
        status = mw_plan_save(&plan, a->out, a->is_explicit, err);
        mw_plan_release(&plan);
    }
    return status;
}

static int run(const struct args *a, const struct mw_scenario *scenario,
               const struct mw_cost_ctx *ctx)
{
    struct mw_err err = {0};
    struct mw_search_result result;
    enum mw_status status = mw_search(scenario, ctx, &a->search, &result, &err);
    if (status == MW_OK) {
        status = write_best(a, scenario, &result, &err);
    }
    int exit_status = status == MW_OK ? 0 : mw_cli_fail(&err);
    if (a->cli.json && (status == MW_OK || status == MW_ENO)) {
        mw_cli_print_json(result_json(&result));
    } else if (status == MW_OK) {
        print_people(scenario, ctx, &result, (size_t)a->top);
        if (a->out) {
            printf("Plan written to %s\n", a->out);
        }
    }
    mw_search_result_release(&result);
    return exit_status;
}

int mw_verb_plan(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "SCENARIO",
                                     .doc = doc,
                                     .children = children};
    struct args a = {.top = 10};
    mw_search_opts_default(&a.search);
    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    a.search.is_quiet = a.cli.quiet;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    enum mw_status status = mw_hwdb_load(a.cli.hwdb, &db, &err);
    if (status == MW_OK) {
        status = mw_scenario_load(a.scenario, &scenario, &err);
        if (status == MW_OK) {
            const struct mw_cluster *cl = &scenario.cluster;
            status = mw_cost_ctx_init(&ctx, db, cl->system, cl->n_nodes,
                                      cl->gpus_per_node, &err);
            int exit_status =
                status == MW_OK ? run(&a, &scenario, &ctx) : mw_cli_fail(&err);
            mw_scenario_release(&scenario);
            mw_hwdb_free(db);
            return exit_status;
        }
        mw_hwdb_free(db);
    }
    return mw_cli_fail(&err);
}
