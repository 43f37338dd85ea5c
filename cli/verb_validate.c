/* `meshwright validate FILE.csv...`: predictions against measurements. */
#include "cli/verb_validate_view.h"
#include "cli/world.h"

#include "base/units.h"
#include "plots/plot.h"
#include "sim/coll/coll_fit.h"
#include "sim/coll/moe_fit.h"

#include <stdio.h>

struct args {
    struct mw_cli cli;
    char **files;
    int n_files;
    const char *model, *id, *plot;
    double max_mape; /* below 0: no gate */
    bool all_rows, is_left_out;
};

enum {
    OPT_MODEL = 0x2000,
    OPT_ID,
    OPT_MAX_MAPE,
    OPT_ROWS,
    OPT_LEFT_OUT,
    OPT_PLOT
};

static const struct argp_option options[] = {
    {"model", OPT_MODEL, "M", 0,
     "Training steps: only rows whose model contains M. Collectives: nccl, fit "
     "(default) or event",
     0},
    {"id", OPT_ID, "PREFIX", 0, "Only rows whose id begins with PREFIX", 0},
    {"max-mape", OPT_MAX_MAPE, "X", 0,
     "Exit 1 when the mean absolute error of times (of memory, where no row "
     "has "
     "a time) is above X, a fraction (0.2)",
     0},
    {"rows", OPT_ROWS, NULL, 0,
     "Print every row, also when there are more than 60", 0},
    {"left-out", OPT_LEFT_OUT, NULL, 0,
     "Collectives: also the errors of corrections fitted without each table in "
     "turn (some 10 s)",
     0},
    {"plot", OPT_PLOT, "FILE", 0,
     "Training steps: draw predicted against measured times, a series a group: "
     "FILE.svg or FILE.png, or - in the terminal, below the tables",
     0},
    {0}};

static const char doc[] =
    "Predicts every row of a table of measured training steps, of measured "
    "memory, or of measured collectives, and prints the errors.\v"
    "Examples:\n"
    "  meshwright validate my-runs.csv\n"
    "  meshwright validate training_megatron_lm.csv --id megatron-a100-2021-04 "
    "--max-mape 0.2\n"
    "  meshwright validate memory_finetune.csv --rows\n"
    "  meshwright validate my-runs.csv --plot my-runs.svg\n"
    "  meshwright validate nccl_h100_2node16.csv --model nccl\n"
    "  meshwright validate nccl_*.csv --left-out\n\n"
    "A cell that is empty is filled by a written rule, counted under "
    "\"filled\"; rows that cannot be expressed are counted under \"skipped\" "
    "with the reason. The columns are in docs/validate.md.\n"
    "Exit status: 0 done; 1 the error is above --max-mape, or no row could be "
    "predicted; 2 usage; 3 bad input file.";

static double max_mape_of(const char *text, struct argp_state *state)
{
    double value = 0;

    if (mw_double_parse(text, &value, NULL) != MW_OK || value < 0) {
        argp_error(state, "--max-mape: '%s' is not a fraction; for example 0.2",
                   text);
    }
    return value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_MODEL:
        a->model = arg;
        return 0;
    case OPT_ID:
        a->id = arg;
        return 0;
    case OPT_MAX_MAPE:
        a->max_mape = max_mape_of(arg, state);
        return 0;
    case OPT_ROWS:
        a->all_rows = true;
        return 0;
    case OPT_LEFT_OUT:
        a->is_left_out = true;
        return 0;
    case OPT_PLOT:
        a->plot = arg;
        return 0;
    case ARGP_KEY_END:
        mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
        return 0;
    case ARGP_KEY_ARGS:
        a->files = state->argv + state->next;
        a->n_files = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file of measurements?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Rows first, then the gate: above it, or nothing predicted, is a "no". */
static enum mw_status judge(const struct args *a,
                            const struct mw_validate_gate *gate,
                            struct mw_err *err)
{
    if (gate->predicted == 0) {
        return mw_fail(err, MW_ENO, "none of %zu rows could be predicted",
                       gate->rows);
    }
    if (a->max_mape >= 0 && gate->mape > a->max_mape) {
        return mw_fail(err, MW_ENO,
                       "the mean absolute error is %.4f, above --max-mape %g",
                       gate->mape, a->max_mape);
    }
    return MW_OK;
}

/* Are the files tables of collectives? All or none of them. */
static enum mw_status kind_of(const struct args *a, bool *out_coll,
                              struct mw_err *err)
{
    int n = 0;
    for (int i = 0; i < a->n_files; i++) {
        n += mw_coll_is_table(a->files[i]) || mw_moe_is_table(a->files[i]);
    }
    if (n != 0 && n != a->n_files) {
        return mw_fail(err, MW_EUSAGE,
                       "training steps and collectives are validated apart; "
                       "%d of %d files are of collectives",
                       n, a->n_files);
    }
    *out_coll = n > 0;
    return MW_OK;
}

static enum mw_status run_steps(const struct args *a, const struct mw_hwdb *db,
                                struct mw_validate_gate *gate,
                                struct mw_err *err)
{
    struct mw_validate v;
    enum mw_status status = MW_OK;

    mw_validate_init(&v, db);
    v.model = a->model;
    v.id_prefix = a->id;
    for (int i = 0; i < a->n_files && status == MW_OK; i++) {
        status = mw_validate_add(&v, a->files[i], err);
    }
    if (status == MW_OK) {
        mw_validate_finish(&v);
        mw_validate_view_print(&v, a->cli.json, a->all_rows);
        *gate = (struct mw_validate_gate){
            v.rows.n, mw_validate_predicted(&v),
            v.overall.rows > 0 ? v.overall.mape : v.memory_overall.mape};
        status = a->plot != NULL ? mw_validate_plot(&v, a->plot, err) : MW_OK;
    }
    mw_validate_release(&v);
    return status;
}

static enum mw_status run(const struct args *a, const struct mw_hwdb *db,
                          struct mw_err *err)
{
    struct mw_validate_gate gate = {0};
    bool is_coll = false;
    const char *wrong = a->plot != NULL ? mw_plot_path_wrong(a->plot) : NULL;
    enum mw_status status = wrong != NULL
                                ? mw_fail(err, MW_EUSAGE, "--plot: %s", wrong)
                                : kind_of(a, &is_coll, err);

    if (status == MW_OK && is_coll && a->plot != NULL) {
        status = mw_fail(err, MW_EUSAGE,
                         "--plot draws training steps; these "
                         "are tables of collectives");
    }
    if (status == MW_OK) {
        const struct mw_validate_coll_opts coll = {
            .files = (const char *const *)a->files,
            .n_files = a->n_files,
            .model_name = a->model,
            .is_left_out = a->is_left_out,
            .is_json = a->cli.json};
        status = is_coll ? mw_validate_coll(db, &coll, &gate, err)
                         : run_steps(a, db, &gate, err);
    }
    return status == MW_OK ? judge(a, &gate, err) : status;
}

int mw_verb_validate(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "FILE.csv...",
                                     .doc = doc,
                                     .children = children};
    struct args a = {.max_mape = -1};
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;

    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return 2;
    }
    enum mw_status status = mw_cli_hwdb(a.cli.hwdb, &db, &err);

    if (status == MW_OK) {
        status = run(&a, db, &err);
        mw_hwdb_free(db);
    }
    return status == MW_OK ? 0 : mw_cli_fail(&err);
}
