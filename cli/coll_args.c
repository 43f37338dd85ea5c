/* The options of `meshwright coll`. */
#include "cli/coll_experts.h"

#include "base/units.h"
#include "base/yaml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    OPT_SYSTEM = 0x2100,
    OPT_NODES,
    OPT_GPUS,
    OPT_OP,
    OPT_DTYPE,
    OPT_MIN,
    OPT_MAX,
    OPT_FACTOR,
    OPT_MODEL,
    OPT_ENV,
    OPT_VERSION,
    OPT_HARNESS,
    OPT_AGAINST,
    OPT_PLOT,
    OPT_CONCURRENT,
    OPT_TOPOLOGY,
    OPT_PROGRAM,
    OPT_WRITE_PROGRAM,
    OPT_CONGESTION,
    OPT_ENGINE
};

static const struct argp_option options[] = {
    {"system", OPT_SYSTEM, "NAME", 0,
     "System of the database (hw list systems)", 0},
    {"nodes", OPT_NODES, "N", 0, "Nodes (default 1)", 0},
    {"gpus-per-node", OPT_GPUS, "G", 0, "GPUs used of each (default: all)", 0},
    {"op", OPT_OP, "OP", 0,
     "all_reduce (default), all_gather, reduce_scatter, all_to_all, broadcast, "
     "reduce, send_recv; moe_dispatch, moe_combine (with --experts)",
     0},
    {"dtype", OPT_DTYPE, "T", 0,
     "fp16 (default), bf16, fp32, fp64, int32, int8, fp8", 0},
    {"min-bytes", OPT_MIN, "SIZE", 0,
     "Smallest message (default 1KiB); 8, 1M (binary, as nccl-tests), 1MiB", 0},
    {"max-bytes", OPT_MAX, "SIZE", 0, "Largest message (default 8GiB)", 0},
    {"factor", OPT_FACTOR, "F", 0, "From one size to the next (default 2)", 0},
    {"model", OPT_MODEL, "M", 0,
     "fit (default): fitted on measurements; nccl: NCCL's own formula; event: "
     "flows over the topology",
     0},
    {"env", OPT_ENV, "NAME=VALUE", 0,
     "Environment of the job: NCCL_ALGO, NCCL_PROTO, NCCL_MIN_NCHANNELS, "
     "NCCL_IB_HCA, ...",
     0},
    {"nccl-version", OPT_VERSION, "V", 0,
     "Version of NCCL (default 2.28.9; 2.30 and 2.26 are known too; another "
     "takes the nearest and says so)",
     0},
    {"harness", OPT_HARNESS, "NAME", 0,
     "What runs it: nccl-tests (default: a process for every GPU), "
     "one-process, torch, profiler; another takes the default and says so",
     0},
    {"engine", OPT_ENGINE, "NAME[-eager]", 0,
     "All-reduce kernels of an inference engine on one node: vllm, sglang, "
     "trtllm; in a graph, or called eagerly",
     0},
    {"against", OPT_AGAINST, "FILE", 0,
     "Compare with the output of nccl-tests in FILE", 0},
    {"concurrent", OPT_CONCURRENT, "LIST", 0,
     "With --model event: other collectives at the same time, OP[:SIZE] "
     "separated by commas; prints what each loses",
     0},
    {"topology", OPT_TOPOLOGY, "WORDS", 0,
     "With --model event or --program: the fabric, for example \"rail, leaf "
     "32, oversub 2\" "
     "(hw topo --help); default one switch",
     0},
    {"congestion", OPT_CONGESTION, "LIST", 0,
     "With --model event: refinements, separated by commas (default none). "
     "incast[=F]: a NIC that k senders share loses F (0.02) for each but one; "
     "buffer[=F]: links between switches carry F (0.7) of an all-to-all",
     0},
    {"program", OPT_PROGRAM, "ALGO|FILE", 0,
     "Run a program message by message: ring, tree, double_binary_tree, "
     "halving_doubling, recursive_doubling, bruck, pairwise, hierarchical, "
     "one_shot, two_shot, nvls, nvlstree, collnetdirect, collnetchain, pat, "
     "or a file, which is checked first: MSCCL XML or, "
     "by .json, an MSCCL++ plan",
     0},
    {"write-program", OPT_WRITE_PROGRAM, "FILE", 0,
     "Write the program: an MSCCL++ plan to FILE.json, else MSCCL XML", 0},
    {"plot", OPT_PLOT, "FILE", 0,
     "Bus bandwidth over size: FILE.svg, FILE.png, or - for the terminal", 0},
    {0}};

static const char doc[] =
    "Predicts a collective over a range of sizes, in the columns of "
    "nccl-tests, with the algorithm, protocol and channels that NCCL 2.28.9 "
    "chooses.\v"
    "Examples:\n"
    "  meshwright coll --system dgx-h100 --nodes 2 --op all_reduce\n"
    "  meshwright coll --system dgx-h100 --op all_reduce --env "
    "NCCL_ALGO=ring --model nccl\n"
    "  meshwright coll --system dgx-a100 --against my-nccl-tests.log\n"
    "  meshwright coll --system dgx-h100 --nodes 4 --model event --max-bytes "
    "1G "
    "--concurrent all_to_all:256M\n"
    "  meshwright coll --system dgx-h100 --nodes 2 --program hierarchical "
    "--write-program mine.xml\n"
    "  meshwright coll scenario.yaml --op all_gather --json\n"
    "  meshwright coll --system dgx-h100 --nodes 4 --experts 256 --top-k 8 "
    "--routing zipf --node-limit 4\n\n"
    "Sizes are those of nccl-tests: the whole buffer (all_gather, "
    "reduce_scatter, all_to_all: that of all ranks together).\n"
    "Exit status: 0 done; 2 usage; 3 bad input file.";

bool coll_size_parse(const char *text, double *out)
{
    char *end = NULL;
    double v = strtod(text, &end);
    double scale = strcmp(end, "") == 0        ? 1
                   : strcasecmp(end, "K") == 0 ? 1024.0
                   : strcasecmp(end, "M") == 0 ? 1048576.0
                   : strcasecmp(end, "G") == 0 ? 1073741824.0
                                               : 0;
    if (end == text) {
        return false;
    }
    v *= scale;
    if (scale == 0 && mw_quantity_parse(text, MW_Q_BYTES, &v, NULL) != MW_OK) {
        return false;
    }
    *out = v;
    return v >= 1 && v <= 1e15;
}

double coll_next_size(const struct coll_args *a, double bytes)
{
    return fmax(bytes * a->factor, floor(bytes) + 1);
}

static void check_sizes(const struct coll_args *a, struct argp_state *state)
{
    int n = 0;

    for (double bytes = a->min_bytes; bytes <= a->max_bytes;
         bytes = coll_next_size(a, bytes)) {
        if (++n > COLL_SIZES_MAX) {
            argp_error(state,
                       "--factor: %.9g from --min-bytes to --max-bytes is more "
                       "than %d sizes",
                       a->factor, (int)COLL_SIZES_MAX);
            return;
        }
    }
}

/* "8", "64K", "1M", "2G" (binary, as nccl-tests has them), or with a unit. */
static double size_of(const char *option, const char *text,
                      struct argp_state *state)
{
    double v = 0;
    if (!coll_size_parse(text, &v)) {
        argp_error(state,
                   "%s: '%s' is no size from 1 byte to 1 PB; for example 64K "
                   "or 1GiB",
                   option, text);
    }
    return v;
}

static int count_of(const char *option, const char *text, long long max,
                    struct argp_state *state)
{
    long long v = 0;
    struct mw_err err = {0};
    if (mw_cli_int(option, text, 1, max, &v, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
    }
    return (int)v;
}

static void op_of(struct coll_args *a, const char *text,
                  struct argp_state *state)
{
    const char *names[MW_COLL_OP_COUNT];
    const char *want = strcasecmp(text, "alltoall") == 0 ? "all_to_all" : text;
    a->experts.phase = strcasecmp(text, "moe_dispatch") == 0 ? COLL_MOE_DISPATCH
                       : strcasecmp(text, "moe_combine") == 0 ? COLL_MOE_COMBINE
                                                              : COLL_MOE_BOTH;
    if (a->experts.phase != COLL_MOE_BOTH) {
        return;
    }
    for (int i = 0; i < MW_COLL_OP_COUNT; i++) {
        names[i] = mw_coll_op_name((enum mw_coll_op)i);
        if (strcasecmp(want, names[i]) == 0) {
            a->op = (enum mw_coll_op)i;
            a->has_op = true;
            return;
        }
    }
    const char *near = mw_nearest(want, names, MW_COLL_OP_COUNT);
    argp_error(state, "--op: unknown operation '%s'%s%s%s", text,
               near ? "; did you mean '" : "", near ? near : "",
               near ? "'?" : "");
}

static void type_of(struct coll_args *a, const char *text,
                    struct argp_state *state)
{
    static const struct {
        const char *name;
        enum mw_nccl_type type;
        int bytes;
    } types[] = {{"fp16", MW_NCCL_FLOAT16, 2},  {"half", MW_NCCL_FLOAT16, 2},
                 {"bf16", MW_NCCL_FLOAT16, 2},  {"fp32", MW_NCCL_FLOAT32, 4},
                 {"float", MW_NCCL_FLOAT32, 4}, {"fp64", MW_NCCL_FLOAT64, 8},
                 {"int32", MW_NCCL_INT32, 4},   {"int8", MW_NCCL_INT8, 1},
                 {"fp8", MW_NCCL_FLOAT8, 1}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcasecmp(text, types[i].name) == 0) {
            a->type_name = types[i].name;
            a->type = types[i].type;
            a->elem_bytes = types[i].bytes;
            return;
        }
    }
    argp_error(state,
               "--dtype: unknown type '%s'; fp16 bf16 fp32 fp64 int32 int8 fp8",
               text);
}

static void model_of(struct coll_args *a, const char *text,
                     struct argp_state *state)
{
    struct mw_err err = {0};
    if (mw_coll_model_parse(text, &a->model, &err) != MW_OK) {
        argp_error(state, "--model: %s", err.text);
    }
}

/* "vllm", "sglang-eager" */
static void engine_of(struct coll_args *a, const char *text,
                      struct argp_state *state)
{
    static const char eager[] = "-eager";
    char name[32];
    size_t n = strlen(text), m = sizeof eager - 1;
    a->is_eager = n > m && strcmp(text + n - m, eager) == 0;
    n -= a->is_eager ? m : 0;
    snprintf(name, sizeof name, "%.*s", (int)(n < 31 ? n : 31), text);
    if (!mw_coll_engine_find(name, &a->engine)) {
        argp_error(state,
                   "--engine: '%s'; vllm, sglang or trtllm, or NAME-eager",
                   text);
    }
}

static double factor_of(const char *text, struct argp_state *state)
{
    double v = 0;
    if (mw_double_parse(text, &v, NULL) != MW_OK || v <= 1 || v > 1e6) {
        argp_error(state, "--factor: '%s' must be above 1", text);
    }
    return v;
}

/* "incast", "incast=0.05,buffer=0.6" */
static void congestion_of(struct coll_args *a, const char *text,
                          struct argp_state *state)
{
    char *copy = mw_strdup(text), *rest = copy;
    for (char *part = strtok_r(copy, ",", &rest); part;
         part = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(part, '=');
        double v = 0;
        if (value) {
            *value++ = '\0';
        }
        bool is_incast = strcmp(part, "incast") == 0;
        bool is_buffer = strcmp(part, "buffer") == 0;
        bool ok = !value || (mw_double_parse(value, &v, NULL) == MW_OK &&
                             v > 0 && v <= 1);
        if (!ok || (!is_incast && !is_buffer)) {
            argp_error(state,
                       "--congestion: '%s' is not incast[=F] or buffer[=F] "
                       "with F up to 1",
                       text);
        }
        if (is_incast) {
            a->congestion.incast = value ? v : MW_INCAST_LOSS;
        }
        if (is_buffer) {
            a->congestion.alltoall_fabric = value ? v : MW_BUFFER_SHARE;
        }
    }
    mw_free(copy);
}

static void finish(struct coll_args *a, struct argp_state *state)
{
    bool is_congested =
        a->congestion.incast > 0 || a->congestion.alltoall_fabric > 0;
    if (is_congested && a->model != MW_COLL_EVENT) {
        argp_error(state, "--congestion needs --model event");
    }
    if (a->engine != MW_ENGINE_NONE &&
        (a->model != MW_COLL_FIT || a->op != MW_ALL_REDUCE || a->n_nodes > 1)) {
        argp_error(state, "--engine needs --model fit, --op all_reduce and one "
                          "node");
    }
    if (a->experts.phase != COLL_MOE_BOTH && !a->experts.traffic.n_experts) {
        argp_error(state, "--op moe_dispatch and moe_combine need --experts");
    }
    if (a->experts.traffic.n_experts &&
        (a->has_op || a->program || a->against || a->concurrent || a->plot ||
         a->model != MW_COLL_FIT)) {
        argp_error(state,
                   "--experts goes with --op moe_dispatch or moe_combine, "
                   "--system, --nodes and --gpus-per-node only");
    }
    if (!a->system && !a->scenario) {
        argp_error(state, "which machine? --system NAME, or a scenario");
    }
    if (a->max_bytes < a->min_bytes) {
        argp_error(state, "--max-bytes is below --min-bytes");
    }
    check_sizes(a, state);
    if (a->concurrent && a->model != MW_COLL_EVENT) {
        argp_error(state, "--concurrent needs --model event");
    }
    if (a->topology && a->model != MW_COLL_EVENT && !a->program) {
        argp_error(state, "--topology needs --model event or --program");
    }
    if (a->write_program && !a->program) {
        argp_error(state, "--write-program needs --program");
    }
    if (a->program && (a->against || a->concurrent)) {
        argp_error(state, "--program goes neither with --against nor with "
                          "--concurrent");
    }
}

static error_t parse_option(int key, char *arg, struct coll_args *a,
                            struct argp_state *state)
{
    switch (key) {
    case OPT_SYSTEM:
        a->system = arg;
        return 0;
    case OPT_NODES:
        a->n_nodes = count_of("--nodes", arg, 100000, state);
        return 0;
    case OPT_GPUS:
        a->gpus_per_node = count_of("--gpus-per-node", arg, 1024, state);
        return 0;
    case OPT_OP:
        op_of(a, arg, state);
        return 0;
    case OPT_DTYPE:
        type_of(a, arg, state);
        return 0;
    case OPT_MIN:
        a->min_bytes = size_of("--min-bytes", arg, state);
        return 0;
    case OPT_MAX:
        a->max_bytes = size_of("--max-bytes", arg, state);
        return 0;
    case OPT_FACTOR:
        a->factor = factor_of(arg, state);
        return 0;
    case OPT_MODEL:
        model_of(a, arg, state);
        return 0;
    case OPT_ENV:
        if (a->n_env == COLL_ENV_MAX) {
            argp_error(state, "--env: more than %d", COLL_ENV_MAX);
        }
        a->env[a->n_env++] = arg;
        return 0;
    case OPT_VERSION:
        a->nccl_version = arg;
        return 0;
    case OPT_HARNESS:
        a->harness = arg;
        return 0;
    case OPT_AGAINST:
        a->against = arg;
        return 0;
    case OPT_PLOT:
        a->plot = arg;
        return 0;
    case OPT_CONCURRENT:
        a->concurrent = arg;
        return 0;
    case OPT_TOPOLOGY:
        a->topology = arg;
        return 0;
    case OPT_PROGRAM:
        a->program = arg;
        return 0;
    case OPT_WRITE_PROGRAM:
        a->write_program = arg;
        return 0;
    case OPT_ENGINE:
        engine_of(a, arg, state);
        return 0;
    case OPT_CONGESTION:
        congestion_of(a, arg, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct coll_args *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = a != NULL ? &a->cli : NULL;
        state->child_inputs[1] = a != NULL ? &a->experts : NULL;
        return 0;
    case ARGP_KEY_ARG:
        if (a->scenario) {
            argp_error(state, "one scenario, not '%s' as well", arg);
        }
        a->scenario = arg;
        return 0;
    case ARGP_KEY_END:
        finish(a, state);
        mw_cli_one_stdout(&a->cli, "--plot", a->plot, state);
        return 0;
    default:
        return parse_option(key, arg, a, state);
    }
}

enum mw_status coll_args_read(struct coll_args *a, int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&mw_cli_argp, 0, "Common options:", 100},
        {&coll_experts_argp, 0, "Dispatch and combine of experts:", 50},
        {0}};
    static const struct argp argp = {.options = options,
                                     .parser = parse,
                                     .args_doc = "[SCENARIO]",
                                     .doc = doc,
                                     .children = children};
    *a = (struct coll_args){.op = MW_ALL_REDUCE,
                            .type_name = "fp16",
                            .type = MW_NCCL_FLOAT16,
                            .elem_bytes = 2,
                            .min_bytes = 1024,
                            .max_bytes = 8589934592.0,
                            .factor = 2,
                            .model = MW_COLL_FIT};
    coll_experts_init(&a->experts);
    return mw_cli_parse(&argp, argc, argv, a);
}
