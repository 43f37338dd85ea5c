/*
 * `meshwright coll --experts N`: dispatch and combine of a layer of experts,
 * an all-to-all-v whose sizes follow from the routing: what each rank takes,
 * how long both phases last, and how much of that is lost to imbalance.
 */
#include "cli/coll_experts.h"
#include "cli/expert_loads.h"

#include "base/table.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    OPT_EXPERTS = 0x2180,
    OPT_TOP_K,
    OPT_TOKENS,
    OPT_HIDDEN,
    OPT_ROUTING,
    OPT_EXPONENT,
    OPT_RANGE,
    OPT_NODE_LIMIT,
    OPT_KERNEL,
    OPT_SMS,
    OPT_DISPATCH,
    OPT_SHUFFLE
};

static const struct argp_option options[] = {
    {"experts", OPT_EXPERTS, "N", 0,
     "Routed experts of the layer, spread over all ranks; with --op "
     "moe_dispatch, moe_combine or neither (both)",
     0},
    {"top-k", OPT_TOP_K, "K", 0, "Experts of a token (default 8)", 0},
    {"tokens", OPT_TOKENS, "T", 0, "Tokens of a rank (default 4096)", 0},
    {"hidden", OPT_HIDDEN, "H", 0, "Elements of a token (default 7168)", 0},
    {"routing", OPT_ROUTING, "R", 0,
     "uniform (default), zipf, power_law, or a file with a column `load` and a "
     "row for every expert",
     0},
    {"exponent", OPT_EXPONENT, "A", 0,
     "Of zipf (default 1) and power_law (default 1.2)", 0},
    {"range", OPT_RANGE, "LOW,HIGH", 0, "Weights of power_law (default 1,100)",
     0},
    {"node-limit", OPT_NODE_LIMIT, "L", 0,
     "A token visits at most L nodes (DeepSeek-V3: 4; default: no limit)", 0},
    {"kernel", OPT_KERNEL, "K", 0,
     "normal (default) or low_latency of DeepEP; two_sided or one_sided of "
     "TensorRT-LLM",
     0},
    {"sms", OPT_SMS, "N", 0, "SMs of the normal kernel (default 24)", 0},
    {"dispatch-dtype", OPT_DISPATCH, "T", 0,
     "fp8 with scales (default) or bf16; combine is bf16", 0},
    {"shuffle", OPT_SHUFFLE, "SEED", 0, "Lay the experts out in a random order",
     0},
    {0}};

static double number(const char *option, const char *text, double low,
                     double high, struct argp_state *state)
{
    double v = 0;
    if (mw_double_parse(text, &v, NULL) != MW_OK || v < low || v > high) {
        argp_error(state, "%s: '%s' is not a number from %g to %g", option,
                   text, low, high);
    }
    return v;
}

static int count(const char *option, const char *text, long long low,
                 long long high, struct argp_state *state)
{
    long long v = 0;
    struct mw_err err = {0};
    if (mw_cli_int(option, text, low, high, &v, &err) != MW_OK) {
        argp_error(state, "%s", err.text);
    }
    return (int)v;
}

static void routing_of(struct coll_experts *e, const char *text)
{
    static const struct {
        const char *name;
        enum mw_moe_routing routing;
    } known[] = {{"uniform", MW_MOE_UNIFORM},
                 {"zipf", MW_MOE_ZIPF},
                 {"power_law", MW_MOE_POWER_LAW}};
    e->loads_path = text;
    e->traffic.routing = MW_MOE_HISTOGRAM;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(text, known[i].name) == 0) {
            e->loads_path = NULL;
            e->traffic.routing = known[i].routing;
        }
    }
}

static void range_of(struct coll_experts *e, const char *text,
                     struct argp_state *state)
{
    char *end = NULL;
    e->traffic.low = strtod(text, &end);
    bool ok = end != text && *end == ',';
    const char *second = ok ? end + 1 : end;
    e->traffic.high = strtod(second, &end);
    ok = ok && end != second && *end == '\0';
    if (!ok || !(e->traffic.low > 0) || !(e->traffic.high > e->traffic.low) ||
        !isfinite(e->traffic.high)) {
        argp_error(state,
                   "--range: '%s' is not LOW,HIGH above zero; for "
                   "example 1,100",
                   text);
    }
}

static void kernel_of(struct coll_experts *e, const char *text,
                      struct argp_state *state)
{
    if (!mw_moe_kernel_find(text, &e->query.kernel)) {
        argp_error(state,
                   "--kernel: '%s'; normal, low_latency, two_sided or "
                   "one_sided",
                   text);
    }
}

static void dispatch_of(struct coll_experts *e, const char *text,
                        struct argp_state *state)
{
    if (strcasecmp(text, "fp8") == 0) {
        e->query.dispatch_bytes = MW_MOE_FP8_BYTES;
    } else if (strcasecmp(text, "bf16") == 0) {
        e->query.dispatch_bytes = 2;
    } else {
        argp_error(state, "--dispatch-dtype: '%s'; fp8 or bf16", text);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct coll_experts *e = state->input;
    switch (key) {
    case OPT_EXPERTS:
        e->traffic.n_experts = count("--experts", arg, 1, 65536, state);
        return 0;
    case OPT_TOP_K:
        e->traffic.top_k = count("--top-k", arg, 1, 65536, state);
        return 0;
    case OPT_TOKENS:
        e->query.tokens_per_rank = number("--tokens", arg, 1, 1e9, state);
        return 0;
    case OPT_HIDDEN:
        e->query.hidden = count("--hidden", arg, 1, 1000000, state);
        return 0;
    case OPT_ROUTING:
        routing_of(e, arg);
        return 0;
    case OPT_EXPONENT:
        e->traffic.exponent = number("--exponent", arg, 0, 100, state);
        e->has_exponent = true;
        return 0;
    case OPT_RANGE:
        range_of(e, arg, state);
        return 0;
    case OPT_NODE_LIMIT:
        e->traffic.n_nodes_max = count("--node-limit", arg, 1, 100000, state);
        return 0;
    case OPT_KERNEL:
        kernel_of(e, arg, state);
        return 0;
    case OPT_SMS:
        e->query.sms = count("--sms", arg, 1, 1000, state);
        return 0;
    case OPT_DISPATCH:
        dispatch_of(e, arg, state);
        return 0;
    case OPT_SHUFFLE:
        e->traffic.shuffle = true;
        e->traffic.seed =
            (uint64_t)count("--shuffle", arg, 0, 2000000000, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp coll_experts_argp = {.options = options, .parser = parse};

void coll_experts_init(struct coll_experts *e)
{
    *e = (struct coll_experts){.traffic = {.top_k = 8, .low = 1, .high = 100},
                               .query = {.tokens_per_rank = 4096,
                                         .hidden = 7168,
                                         .dispatch_bytes = MW_MOE_FP8_BYTES,
                                         .combine_bytes = 2,
                                         .sms = 24}};
}

static const char *routing_name(const struct coll_experts *e)
{
    static const char *const names[] = {"uniform", "zipf", "power_law",
                                        "histogram"};
    return names[e->traffic.routing];
}

/* Tokens (copies) that a rank takes, and experts' tokens, in both over its
 * own tokens times top-k. */
struct rank_load {
    double copies, expert_tokens;
};

static struct rank_load load_of(const struct coll_experts *e,
                                const struct mw_moe_load *l, int rank)
{
    int per = e->traffic.n_experts / e->traffic.n_ranks;
    double all = e->query.tokens_per_rank * l->n_ranks, p = 0;
    for (int i = rank * per; i < (rank + 1) * per; i++) {
        p += l->p[i];
    }
    return (struct rank_load){all * l->rank_share[rank],
                              all * e->traffic.top_k * p};
}

static void print_people(const struct coll_args *a, const struct mw_system *sys,
                         const struct mw_moe_load *l,
                         const struct mw_moe_time *t)
{
    const struct coll_experts *e = &a->experts;
    bool dispatch = e->phase != COLL_MOE_COMBINE;
    bool combine = e->phase != COLL_MOE_DISPATCH;
    struct mw_table *table = mw_table_new();
    printf("# %d experts, top %d, %s, on %d ranks of %s, %s kernels\n",
           e->traffic.n_experts, e->traffic.top_k, routing_name(e), l->n_ranks,
           sys->name, mw_moe_kernel_name(e->query.kernel));
    mw_table_col(table, "rank", true);
    mw_table_col(table, "node", true);
    mw_table_col(table, "tokens received", true);
    mw_table_col(table, "tokens of its experts", true);
    mw_table_col(table, "over mean", true);
    for (int r = 0; r < l->n_ranks; r++) {
        struct rank_load v = load_of(e, l, r);
        double mean = e->query.tokens_per_rank * e->traffic.top_k;
        mw_table_row(table);
        mw_table_cell(table, "%d", r);
        mw_table_cell(table, "%d", r / e->traffic.ranks_per_node);
        mw_table_cell(table, "%.0f", v.copies);
        mw_table_cell(table, "%.0f", v.expert_tokens);
        mw_table_cell(table, "%.3f", v.expert_tokens / mean);
    }
    mw_table_print(table, stdout);
    mw_table_free(table);
    printf("\na token goes to %.2f ranks on %.2f nodes; the busiest rank has "
           "%.2f times the mean\n",
           l->copies_per_token, l->nodes_per_token, l->max_over_mean);
    if (dispatch) {
        printf("dispatch %.1f us, balanced %.1f us\n", t->dispatch_s * 1e6,
               t->balanced_dispatch_s * 1e6);
    }
    if (combine) {
        printf("combine  %.1f us, balanced %.1f us\n", t->combine_s * 1e6,
               t->balanced_combine_s * 1e6);
    }
    if (dispatch && combine) {
        printf("lost to imbalance %.1f us of %.1f us\n", t->imbalance_s * 1e6,
               (t->dispatch_s + t->combine_s) * 1e6);
    }
    printf("# %s\n", t->source);
}

static int print_json(const struct coll_args *a, const struct mw_system *sys,
                      const struct mw_moe_load *l, const struct mw_moe_time *t)
{
    const struct coll_experts *e = &a->experts;
    json_t *o = json_object(), *ranks = json_array();
    mw_json_set_str(o, "system", sys->slug);
    mw_json_set_str(o, "op",
                    e->phase == COLL_MOE_DISPATCH  ? "moe_dispatch"
                    : e->phase == COLL_MOE_COMBINE ? "moe_combine"
                                                   : "moe");
    mw_json_set_str(o, "kernel", mw_moe_kernel_name(e->query.kernel));
    mw_json_set_str(o, "routing", routing_name(e));
    mw_json_set_int(o, "experts", e->traffic.n_experts);
    mw_json_set_int(o, "top_k", e->traffic.top_k);
    mw_json_set_int(o, "n_ranks", l->n_ranks);
    mw_json_set_int(o, "nodes", l->n_nodes);
    mw_json_set_real(o, "tokens_per_rank", e->query.tokens_per_rank);
    if (e->traffic.shuffle) {
        mw_json_set_int(o, "seed", (long long)e->traffic.seed);
    }
    mw_json_set_real(o, "dispatch_s", t->dispatch_s);
    mw_json_set_real(o, "combine_s", t->combine_s);
    mw_json_set_real(o, "balanced_dispatch_s", t->balanced_dispatch_s);
    mw_json_set_real(o, "balanced_combine_s", t->balanced_combine_s);
    mw_json_set_real(o, "imbalance_s", t->imbalance_s);
    mw_json_set_real(o, "max_over_mean", l->max_over_mean);
    mw_json_set_real(o, "copies_per_token", l->copies_per_token);
    mw_json_set_real(o, "nodes_per_token", l->nodes_per_token);
    for (int r = 0; r < l->n_ranks; r++) {
        struct rank_load v = load_of(e, l, r);
        json_t *rank = json_object();
        mw_json_set_int(rank, "rank", r);
        mw_json_set_int(rank, "node", r / e->traffic.ranks_per_node);
        mw_json_set_real(rank, "tokens_received", v.copies);
        mw_json_set_real(rank, "expert_tokens", v.expert_tokens);
        json_array_append_new(ranks, rank);
    }
    mw_json_set(o, "ranks", ranks);
    mw_json_set_str(o, "source", t->source);
    return mw_cli_print_json(o);
}

enum mw_status coll_experts(struct coll_args *a, const struct mw_hwdb *db,
                            const struct mw_system *system,
                            const struct mw_coll_query *q, int *out_rc,
                            struct mw_err *err)
{
    struct coll_experts *e = &a->experts;
    struct mw_arena arena;
    struct mw_moe_table *table = NULL;
    struct mw_moe_load load;
    struct mw_moe_time t;
    mw_arena_init(&arena);
    e->traffic.n_ranks = q->n_nodes * q->ranks_per_node;
    e->traffic.ranks_per_node = q->ranks_per_node;
    if (!e->has_exponent) {
        e->traffic.exponent = e->traffic.routing == MW_MOE_POWER_LAW ? 1.2 : 1;
    }
    enum mw_status s = MW_OK;
    if (e->loads_path) {
        s = mw_cli_expert_loads(e->loads_path, e->traffic.n_experts, &arena,
                                &e->traffic.histogram, err);
    }
    if (s == MW_OK) {
        s = mw_moe_table_load(db, &table, err);
    }
    if (s == MW_OK) {
        s = mw_moe_predict(table, system, &e->traffic, &e->query, &t, err);
        s = s == MW_EINPUT && !e->loads_path ? MW_EUSAGE : s;
    }
    if (s == MW_OK) {
        s = mw_moe_load(&e->traffic, &load, err);
    }
    if (s == MW_OK) {
        if (a->cli.json) {
            *out_rc = print_json(a, system, &load, &t);
        } else {
            print_people(a, system, &load, &t);
        }
        mw_moe_load_release(&load);
    }
    mw_moe_table_free(table);
    mw_arena_release(&arena);
    return s;
}
