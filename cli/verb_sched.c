/* `meshwright sched`: one pipeline schedule: order, bubble, memory, Gantt; all
 * schedules compared; bubble against memory. */
#include "cli/sched.h"

#include "base/file.h"
#include "base/units.h"
#include "sim/pipe/torch_csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    OPT_KIND = 0x2000,
    OPT_STAGES,
    OPT_MICROBATCHES,
    OPT_CHUNKS,
    OPT_PARTS,
    OPT_TIMES,
    OPT_STAGE_TIMES,
    OPT_GROUP,
    OPT_OPTIMIZER,
    OPT_BLOCKING,
    OPT_LIMIT,
    OPT_MODEL,
    OPT_W_SHARE,
    OPT_OBJECTIVE,
    OPT_EFFORT,
    OPT_EXACT,
    OPT_LP,
    OPT_ORDER,
    OPT_COMPARE,
    OPT_SWEEP,
    OPT_PLOT,
    OPT_FROM,
    OPT_TO,
    OPT_BYTES,
    OPT_BOUNDARY
};

/* clang-format off */
static const struct argp_option options[] = {
    {"kind", OPT_KIND, "NAME", 0,
     "The schedule: a generator's name (--kind list prints them), zb-auto or "
     "zbv-auto", 1},
    {"stages", OPT_STAGES, "P", 0, "Devices of the pipeline", 1},
    {"microbatches", OPT_MICROBATCHES, "M", 0, "Micro-batches of a step", 1},
    {"chunks", OPT_CHUNKS, "V", 0,
     "Virtual stages per device (default: the least of the kind)", 1},
    {"parts", OPT_PARTS, "Q", 0, "Sequence parts of seq1f1b (default 2)", 1},
    {"group", OPT_GROUP, "N", 0,
     "Micro-batches that go through a chunk before the next (interleaved-1f1b, "
     "interleaved-zb; default: as many as stages)", 1},
    {"times", OPT_TIMES, "F,B,W[,COMM]", 0,
     "Seconds of a forward, input-gradient and weight-gradient pass of one "
     "chunk, and of a transfer (default 1,1,1,0)", 2},
    {"stage-times", OPT_STAGE_TIMES, "FILE", 0,
     "CSV with stage,f_s,b_s,w_s and optionally chunk, opt_s: times that "
     "differ between stages", 2},
    {"optimizer", OPT_OPTIMIZER, "S", 0,
     "Seconds of the optimizer step after a stage's last pass", 2},
    {"blocking-sends", OPT_BLOCKING, NULL, 0,
     "A stage waits for each of its sends (Megatron-LM without overlapped "
     "point-to-point communication)", 2},
    {"memory-limit", OPT_LIMIT, "X", 0,
     "Activations of one micro-batch on one stage that a device holds", 3},
    {"memory-model", OPT_MODEL, "NAME", 0,
     "all_at_W (default): B frees nothing; paper: W holds 32/74 of an "
     "activation, B frees the rest", 3},
    {"w-share", OPT_W_SHARE, "X", 0,
     "Instead: the part of an activation, 0 to 1, that only W frees", 3},
    {"objective", OPT_OBJECTIVE, "NAME", 0,
     "makespan (default), or span: the longest stage, which counts when the "
     "optimizer step is staggered and validated afterwards", 3},
    {"effort", OPT_EFFORT, "X", 0,
     "Local search of the automatic kinds in millions of passes (default 60; "
     "about 5 ns each)", 3},
    {"exact", OPT_EXACT, "SECONDS", 0,
     "Let GLPK prove or improve a small automatic schedule", 3},
    {"write-lp", OPT_LP, "FILE", 0,
     "Write the order of zb-auto's passes as an integer program (CPLEX LP form) "
     "for another solver", 3},
    {"activation-bytes", OPT_BYTES, "N", 0,
     "Size of an activation of one chunk, for peaks in bytes", 4},
    {"boundary-bytes", OPT_BOUNDARY, "N", 0,
     "Size of a transfer between stages, for the traffic", 4},
    {"order", OPT_ORDER, NULL, 0, "Print the list of every device", 5},
    {"plot", OPT_PLOT, "FILE", 0,
     "Gantt chart: FILE.svg, FILE.png, or - in the terminal", 5},
    {"compare", OPT_COMPARE, NULL, 0,
     "All schedules; times are of a whole stage and divided among its chunks", 5},
    {"sweep", OPT_SWEEP, "FROM:TO:STEP", 0,
     "Memory limits for zb-auto and zbv-auto: bubble against memory", 5},
    {"from-csv", OPT_FROM, "FILE", 0,
     "Take the order from a torch.distributed.pipelining CSV file", 6},
    {"to-csv", OPT_TO, "FILE", 0, "Write the order as such a file (- : stdout)", 6},
    {0}};
/* clang-format on */

static const char doc[] =
    "Makes a pipeline schedule, checks it, replays it with real times and "
    "says what it costs.\v"
    "Examples:\n"
    "  meshwright sched --kind zb-v --stages 8 --microbatches 32\n"
    "  meshwright sched --kind zb-auto --stages 8 --microbatches 32 \\\n"
    "      --times 0.0185,0.0181,0.0093,0.0006 --memory-limit 16 "
    "--objective span\n"
    "  meshwright sched --compare --stages 8 --microbatches 32 "
    "--memory-limit 8\n"
    "  meshwright sched --sweep 4:16:1 --stages 8 --microbatches 32 "
    "--plot curve.svg\n"
    "  meshwright sched --kind 1f1b --stages 4 --microbatches 8 --plot -\n"
    "  meshwright sched --kind zb-auto --stages 4 --microbatches 8 "
    "--to-csv order.csv\n\n"
    "Exit status: 0 done; 2 an option is wrong, or the schedule needs other "
    "counts or more memory; 3 a file is wrong; 4 gnuplot is missing.";

static enum mw_status parse_int(const char *option, const char *text, int max,
                                int *out, struct argp_state *state)
{
    struct mw_err err = {0};
    long long v = 0;

    if (mw_cli_int(option, text, 1, max, &v, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
        return MW_EUSAGE;
    }
    *out = (int)v;
    return MW_OK;
}

static void parse_real(const char *option, const char *text, double max,
                       double *out, struct argp_state *state)
{
    double v = 0;

    if (mw_double_parse(text, &v, NULL) != MW_OK || !(v >= 0 && v <= max)) {
        argp_error(state, "%s: '%s' is not a number from 0 to %g", option, text,
                   max);
        return;
    }
    *out = v;
}

/* F,B,W[,COMM] */
static void parse_times(struct mw_sched_ask *a, const char *text,
                        struct argp_state *state)
{
    double *const out[] = {&a->f_s, &a->b_s, &a->w_s, &a->comm_s};
    char token[64];
    size_t n = 0;

    for (const char *at = text;; n++) {
        size_t len = strcspn(at, ",");

        if (n == 4 || len == 0 || len >= sizeof token) {
            argp_error(state, "--times: '%s' is not F,B,W or F,B,W,COMM", text);
            return;
        }
        memcpy(token, at, len);
        token[len] = '\0';
        parse_real("--times", token, 1e4, out[n], state);
        if (at[len] == '\0') {
            break;
        }
        at += len + 1;
    }
    if (n < 2) {
        argp_error(state, "--times: '%s' is not F,B,W or F,B,W,COMM", text);
    }
    if (a->f_s <= 0 || a->b_s + a->w_s <= 0) {
        argp_error(state,
                   "--times: a forward and a backward pass take time; "
                   "'%s' has none for one of them",
                   text);
    }
    a->has_times = true;
}

static void parse_model(struct mw_sched_ask *a, const char *text,
                        struct argp_state *state)
{
    if (strcmp(text, "all_at_W") == 0 || strcmp(text, "paper") == 0) {
        a->is_paper = text[0] == 'p';
    } else {
        argp_error(state, "--memory-model: '%s' is not all_at_W or paper",
                   text);
    }
}

static void parse_objective(struct mw_sched_ask *a, const char *text,
                            struct argp_state *state)
{
    if (strcmp(text, "makespan") == 0) {
        a->objective = MW_OBJECTIVE_MAKESPAN;
    } else if (strcmp(text, "span") == 0) {
        a->objective = MW_OBJECTIVE_SPAN;
    } else {
        argp_error(state, "--objective: '%s' is not makespan or span", text);
    }
}

static void check_ask(const struct mw_sched_ask *a, struct argp_state *state)
{
    int modes = (a->kind != NULL) + (a->from_csv != NULL) + a->compare +
                (a->sweep != NULL);

    if (a->kind != NULL && strcmp(a->kind, "list") == 0) {
        return;
    }
    if ((a->exact_s > 0 || a->lp_file != NULL) &&
        (a->kind == NULL || strcasecmp(a->kind, "zb-auto") != 0)) {
        argp_error(state, "--exact and --write-lp go with --kind zb-auto");
    } else if (a->parts > 0 && a->kind != NULL &&
               strcasecmp(a->kind, "seq1f1b") != 0) {
        argp_error(state, "--parts goes with --kind seq1f1b");
    } else if (a->group > 0 && a->kind != NULL &&
               strncasecmp(a->kind, "interleaved-", 12) != 0) {
        argp_error(state, "--group goes with --kind interleaved-1f1b or "
                          "interleaved-zb");
    } else if (modes != 1) {
        argp_error(state, "which schedule? Give one of --kind NAME, "
                          "--from-csv FILE, --compare, --sweep FROM:TO:STEP");
    } else if (a->from_csv == NULL &&
               (a->stages == 0 || a->microbatches == 0)) {
        argp_error(state, "--stages P and --microbatches M are needed");
    }
}

static error_t parse_output(int key, char *arg, struct mw_sched_ask *a)
{
    switch (key) {
    case OPT_ORDER:
        a->order = true;
        return 0;
    case OPT_COMPARE:
        a->compare = true;
        return 0;
    case OPT_SWEEP:
        a->sweep = arg;
        return 0;
    case OPT_PLOT:
        a->plot = arg;
        return 0;
    case OPT_FROM:
        a->from_csv = arg;
        return 0;
    case OPT_TO:
        a->to_csv = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_costs(int key, char *arg, struct mw_sched_ask *a,
                           struct argp_state *state)
{
    switch (key) {
    case OPT_TIMES:
        parse_times(a, arg, state);
        return 0;
    case OPT_STAGE_TIMES:
        a->stage_times = arg;
        return 0;
    case OPT_OPTIMIZER:
        parse_real("--optimizer", arg, 1e4, &a->opt_s, state);
        return 0;
    case OPT_BLOCKING:
        a->is_blocking = true;
        return 0;
    case OPT_LIMIT:
        parse_real("--memory-limit", arg, 1e9, &a->memory_limit, state);
        if (a->memory_limit <= 0) {
            argp_error(state, "--memory-limit: '%s' is not positive", arg);
        }
        return 0;
    case OPT_MODEL:
        parse_model(a, arg, state);
        return 0;
    case OPT_W_SHARE:
        parse_real("--w-share", arg, 1, &a->w_share, state);
        return 0;
    case OPT_OBJECTIVE:
        parse_objective(a, arg, state);
        return 0;
    case OPT_EFFORT:
        parse_real("--effort", arg, 1e6, &a->effort, state);
        a->effort = a->effort > 0 ? a->effort : -1;
        return 0;
    case OPT_EXACT:
        parse_real("--exact", arg, 3600, &a->exact_s, state);
        return 0;
    case OPT_LP:
        a->lp_file = arg;
        return 0;
    case OPT_BYTES:
        parse_real("--activation-bytes", arg, 1e15, &a->activation_bytes,
                   state);
        return 0;
    case OPT_BOUNDARY:
        parse_real("--boundary-bytes", arg, 1e15, &a->boundary_bytes, state);
        return 0;
    default:
        return parse_output(key, arg, a);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct mw_sched_ask *a = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        return 0;
    case OPT_KIND:
        a->kind = arg;
        return 0;
    case OPT_STAGES:
        return (error_t)(parse_int("--stages", arg, 4096, &a->stages, state) !=
                         MW_OK);
    case OPT_MICROBATCHES:
        return (error_t)(parse_int("--microbatches", arg, 1 << 20,
                                   &a->microbatches, state) != MW_OK);
    case OPT_CHUNKS:
        return (error_t)(parse_int("--chunks", arg, 1024, &a->chunks, state) !=
                         MW_OK);
    case OPT_GROUP:
        return (error_t)(parse_int("--group", arg, 1 << 20, &a->group, state) !=
                         MW_OK);
    case OPT_PARTS:
        return (error_t)(parse_int("--parts", arg, 1024, &a->parts, state) !=
                         MW_OK);
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option", arg);
        return 0;
    case ARGP_KEY_SUCCESS:
        check_ask(a, state);
        mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
        mw_cli_one_stdout(&a->cli, "--to-csv", a->to_csv, state);
        return 0;
    default:
        return a != NULL ? parse_costs(key, arg, a, state) : ARGP_ERR_UNKNOWN;
    }
}

/* ---- running ----------------------------------------------------------- */
static enum mw_status write_csv(const struct mw_sched_ask *a,
                                const struct mw_sched_made *made,
                                struct mw_err *err)
{
    struct mw_str text = {0};
    struct mw_outfile o;
    enum mw_status st = mw_torch_csv_add(&made->s, &text, err);

    if (st == MW_OK) {
        st = mw_outfile_open(&o, a->to_csv, err);
        if (st == MW_OK) {
            fputs(text.s, o.f);
            st = mw_outfile_commit(&o, err);
        }
    }
    mw_str_release(&text);
    return st;
}

static int list_kinds(const struct mw_sched_ask *a)
{
    json_t *list = json_array();

    for (size_t i = 0; mw_schedule_kind(i) != NULL; i++) {
        const struct mw_sched_kind *k = mw_schedule_kind(i);
        json_t *o = json_object();

        mw_json_set_str(o, "kind", k->name);
        mw_json_set_str(o, "what", k->what);
        mw_json_set_str(o, "source", k->source);
        mw_json_set_bool(o, "split", k->is_split);
        mw_json_set_int(o, "min_chunks", k->min_chunks);
        mw_json_set_int(o, "max_chunks", k->max_chunks);
        json_array_append_new(list, o);
        if (!a->cli.json) {
            printf("%-17s %s\n%-17s   %s\n", k->name, k->what, "", k->source);
        }
    }
    if (a->cli.json) {
        json_t *o = json_object();

        mw_json_set(o, "kinds", list);
        return mw_cli_print_json(o);
    }
    json_decref(list);
    return 0;
}

static int show_one(const struct mw_sched_ask *a)
{
    struct mw_sched_made made = {0};
    struct mw_err err = {0};
    int status = 0;

    if (mw_sched_make(a, false, &made, &err) != MW_OK) {
        return mw_cli_fail(&err);
    }
    if (a->cli.json) {
        status = mw_cli_print_json(mw_sched_json(a, &made));
    } else if (a->to_csv == NULL || strcmp(a->to_csv, "-") != 0) {
        mw_sched_print(a, &made);
    }
    if (status == 0 && a->to_csv != NULL &&
        write_csv(a, &made, &err) != MW_OK) {
        status = mw_cli_fail(&err);
    }
    if (status == 0 && a->plot != NULL &&
        mw_sched_plot(&made, a->plot, &err) != MW_OK) {
        status = mw_cli_fail(&err);
    }
    mw_sched_made_release(&made);
    return status;
}

int mw_verb_sched(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options", 100}, {0}};
    static const struct argp argp = {options,  parse, NULL, doc,
                                     children, NULL,  NULL};
    struct mw_sched_ask a = {.w_share = -1};

    if (mw_cli_parse(&argp, argc, argv, &a) != MW_OK) {
        return mw_status_exit(MW_EUSAGE);
    }
    if (a.kind != NULL && strcmp(a.kind, "list") == 0) {
        return list_kinds(&a);
    }
    if (a.compare) {
        return mw_sched_compare(&a);
    }
    return a.sweep != NULL ? mw_sched_sweep(&a) : show_one(&a);
}
