/*
 * Reading scenarios (docs/scenario.md): binder tables, defaults, and the hash
 * that ties a plan to the scenario it answers.
 *
 * The hash is FNV-1a 64 over "key value" of every row of the tables of model,
 * cluster, workload and limits, in table order, after defaults: comments,
 * spelling of units, the name, the objective and the layout do not change it.
 */
#include "sim/model/scenario.h"

#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>
#include <string.h>

enum { FORMAT = 1 };

const struct mw_field mw_cluster_fields[] = {
    {.key = "system",
     .type = MW_F_STR,
     .offset = offsetof(struct mw_cluster, system),
     .required = true,
     .doc = "system of the hardware database, for example dgx-h100"},
    {.key = "nodes",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, n_nodes),
     .required = true,
     .min = 1,
     .max = 1 << 20,
     .doc = "number of nodes"},
    {.key = "gpus_per_node",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, gpus_per_node),
     .min = 1,
     .max = 1 << 10,
     .doc = "devices used on each node; the system's own number if absent"},
    MW_FIELD_END};

/* The workload as written: booleans stand as words. */
enum attention { ATTENTION_FLASH, ATTENTION_UNFUSED };
enum flops { FLOPS_FULL, FLOPS_CAUSAL };
enum optimizer { OPTIMIZER_ADAMW };

static const struct mw_enum attention_enums[] = {
    {"flash", ATTENTION_FLASH}, {"unfused", ATTENTION_UNFUSED}, {NULL, 0}};
static const struct mw_enum flops_enums[] = {
    {"full", FLOPS_FULL}, {"causal", FLOPS_CAUSAL}, {NULL, 0}};
static const struct mw_enum optimizer_enums[] = {{"adamw", OPTIMIZER_ADAMW},
                                                 {NULL, 0}};
static const struct mw_enum objective_enums[] = {
    {"step_time", MW_OBJ_STEP_TIME}, {"memory", MW_OBJ_MEMORY}, {NULL, 0}};

struct raw_workload {
    int64_t seq, global_batch, seed;
    int dtype, grad_dtype, attention, flops, optimizer;
    bool has_dropout;
};

#define W_AT(member) offsetof(struct raw_workload, member)
static const struct mw_field workload_fields[] = {
    {.key = "seq",
     .type = MW_F_INT,
     .offset = W_AT(seq),
     .required = true,
     .min = 1,
     .max = 1 << 24,
     .doc = "tokens of a sequence"},
    {.key = "global_batch",
     .type = MW_F_INT,
     .offset = W_AT(global_batch),
     .required = true,
     .min = 1,
     .max = 1 << 24,
     .doc = "sequences of a step, over all replicas"},
    {.key = "dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(dtype),
     .enums = mw_dtype_enums,
     .doc = "type of compute and parameters"},
    {.key = "grad_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(grad_dtype),
     .enums = mw_dtype_enums,
     .doc = "type that gradients accumulate and are reduced in"},
    {.key = "attention",
     .type = MW_F_ENUM,
     .offset = W_AT(attention),
     .enums = attention_enums,
     .doc = "attention kernel"},
    {.key = "dropout",
     .type = MW_F_BOOL,
     .offset = W_AT(has_dropout),
     .doc = "dropout in use: its masks are kept"},
    {.key = "flops",
     .type = MW_F_ENUM,
     .offset = W_AT(flops),
     .enums = flops_enums,
     .doc = "how model FLOPs count attention"},
    {.key = "optimizer",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer),
     .enums = optimizer_enums,
     .doc = "optimizer"},
    {.key = "seed",
     .type = MW_F_INT,
     .offset = W_AT(seed),
     .min = 0,
     .max = 9007199254740992.0, /* 2^53 */
     .doc = "seed of initial weights and data"},
    MW_FIELD_END};

#define L_AT(member) offsetof(struct mw_limits, member)
#define LIST_ROW(k, member, text)                                              \
    {                                                                          \
        .key = k, .type = MW_F_INT_LIST, .offset = L_AT(member), .min = 1,     \
        .max = MW_WAYS_MAX, .doc = text                                        \
    }
const struct mw_field mw_limits_fields[] = {
    {.key = "memory",
     .type = MW_F_QTY,
     .kind = MW_Q_BYTES,
     .offset = L_AT(memory_bytes),
     .min = 1,
     .max = 1e18,
     .doc = "memory of a rank; the device's if absent"},
    {.key = "memory_fraction",
     .type = MW_F_NUM,
     .offset = L_AT(memory_fraction),
     .min = 0.01,
     .max = 1,
     .doc = "part of it that a plan may use"},
    LIST_ROW("tp", tp, "tensor parallel ways to consider"),
    LIST_ROW("pp", pp, "pipeline stages to consider"),
    LIST_ROW("dp", dp, "data parallel ways to consider"),
    LIST_ROW("micro_batch", micro_batch, "micro-batch sizes to consider"),
    LIST_ROW("cp", cp, "context parallel ways to consider"),
    LIST_ROW("ep", ep, "expert parallel ways to consider"),
    LIST_ROW("vpp", vpp, "chunks per stage to consider"),
    {.key = "max_tp",
     .type = MW_F_INT32,
     .offset = L_AT(max_tp),
     .min = 1,
     .max = MW_WAYS_MAX,
     .doc = "largest tp; the GPUs of a node if absent"},
    MW_FIELD_END};

/* A layout with the layers of each virtual stage beside it. */
struct raw_layout {
    struct mw_layout layout;
    struct mw_int_list layers;
};
static const struct mw_field raw_layout_fields[] = {
    MW_LAYOUT_FIELD_ROWS(offsetof(struct raw_layout, layout)),
    {.key = "layers",
     .type = MW_F_INT_LIST,
     .offset = offsetof(struct raw_layout, layers),
     .min = 1,
     .max = 1 << 20,
     .doc = "layers of each virtual stage, in the order of the model"},
    MW_FIELD_END};

/* The file as written. */
struct raw_scenario {
    int64_t format;
    const char *name;
    struct mw_node *model, *layout;
    struct mw_cluster cluster;
    struct raw_workload workload;
    struct mw_limits limits;
    int objective;
};

#define S_AT(member) offsetof(struct raw_scenario, member)
static const struct mw_field scenario_fields[] = {
    {.key = "format",
     .type = MW_F_INT,
     .offset = S_AT(format),
     .required = true,
     .min = 1,
     .max = 1e9,
     .doc = "version of the file format: 1"},
    {.key = "name",
     .type = MW_F_STR,
     .offset = S_AT(name),
     .doc = "name to print"},
    {.key = "model",
     .type = MW_F_NODE,
     .offset = S_AT(model),
     .required = true,
     .doc = "the transformer"},
    {.key = "cluster",
     .type = MW_F_MAP,
     .offset = S_AT(cluster),
     .sub = mw_cluster_fields,
     .required = true,
     .doc = "the machines"},
    {.key = "workload",
     .type = MW_F_MAP,
     .offset = S_AT(workload),
     .sub = workload_fields,
     .required = true,
     .doc = "the work of a step"},
    {.key = "limits",
     .type = MW_F_MAP,
     .offset = S_AT(limits),
     .sub = mw_limits_fields,
     .doc = "what a plan may use"},
    {.key = "objective",
     .type = MW_F_ENUM,
     .offset = S_AT(objective),
     .enums = objective_enums,
     .doc = "what the planner makes small"},
    {.key = "layout",
     .type = MW_F_NODE,
     .offset = S_AT(layout),
     .doc = "a layout to simulate without planning"},
    MW_FIELD_END};

/* ---- defaults and conversions ----------------------------------------------
 */
void mw_limits_default(struct mw_limits *limits)
{
    *limits = (struct mw_limits){.memory_fraction = 0.92};
}

static const struct raw_workload workload_default = {
    .dtype = MW_BF16,
    .grad_dtype = MW_FP32,
    .attention = ATTENTION_FLASH,
    .flops = FLOPS_FULL,
    .optimizer = OPTIMIZER_ADAMW,
    .seed = 1234};

static struct mw_workload workload_of(const struct raw_workload *raw)
{
    return (struct mw_workload){.seq = raw->seq,
                                .global_batch = raw->global_batch,
                                .dtype = (enum mw_dtype)raw->dtype,
                                .grad_dtype = (enum mw_dtype)raw->grad_dtype,
                                .is_flash = raw->attention == ATTENTION_FLASH,
                                .has_dropout = raw->has_dropout,
                                .causal_flops = raw->flops == FLOPS_CAUSAL,
                                .optimizer =
                                    optimizer_enums[raw->optimizer].name,
                                .seed = (uint64_t)raw->seed};
}

void mw_workload_default(struct mw_workload *workload)
{
    *workload = workload_of(&workload_default);
}

/* ---- hash ------------------------------------------------------------------
 */
static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text != '\0'; text++) {
        char c = (char)tolower((unsigned char)*text);

        h = mw_hash64(h, &c, 1);
    }
    return mw_hash64(h, "", 1);
}

static uint64_t hash_int(uint64_t h, int64_t v)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
    }
    return mw_hash64(h, bytes, sizeof bytes);
}

static uint64_t hash_num(uint64_t h, double v)
{
    int64_t bits;

    static_assert(sizeof bits == sizeof v, "a double has 64 bits");
    memcpy(&bits, &v, sizeof bits);
    return hash_int(h, bits);
}

static uint64_t hash_list(uint64_t h, const struct mw_int_list *list)
{
    h = hash_int(h, (int64_t)list->n);
    for (size_t i = 0; i < list->n; i++) {
        h = hash_int(h, list->v[i]);
    }
    return h;
}

/* Every row of a binder table out of a bound struct. */
static uint64_t hash_fields(uint64_t h, const struct mw_field *fields,
                            const void *base)
{
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        const void *at = (const char *)base + f->offset;

        h = hash_text(h, f->key);
        switch (f->type) {
        case MW_F_STR:
            h = hash_text(h, *(const char *const *)at != NULL
                                 ? *(const char *const *)at
                                 : "");
            break;
        case MW_F_BOOL:
            h = hash_int(h, *(const bool *)at);
            break;
        case MW_F_INT:
            h = hash_int(h, *(const int64_t *)at);
            break;
        case MW_F_INT32:
        case MW_F_ENUM:
            h = hash_int(h, *(const int *)at);
            break;
        case MW_F_NUM:
        case MW_F_QTY:
            h = hash_num(h, *(const double *)at);
            break;
        case MW_F_INT_LIST:
            h = hash_list(h, at);
            break;
        case MW_F_MAP:
            h = hash_fields(h, f->sub, at);
            break;
        case MW_F_NODE:
            break;
        }
    }
    return h;
}

static uint64_t hash_of(const struct raw_scenario *raw,
                        const struct mw_model *model)
{
    uint64_t h = MW_HASH_INIT;

    h = hash_fields(h, mw_model_fields, model);
    h = hash_fields(h, mw_cluster_fields, &raw->cluster);
    h = hash_fields(h, workload_fields, &raw->workload);
    return hash_fields(h, mw_limits_fields, &raw->limits);
}

/* ---- layout ----------------------------------------------------------------
 */
/* The node of a key of the layout, or the layout itself. */
static struct mw_node *layout_node(struct mw_node *layout, const char *key)
{
    struct mw_node *node = key != NULL ? mw_node_get(layout, key) : NULL;

    return node != NULL ? node : layout;
}

static enum mw_status check_layers(struct mw_node *node,
                                   const struct raw_layout *raw,
                                   const struct mw_model *model,
                                   struct mw_err *err)
{
    size_t n_stages = (size_t)raw->layout.pp * (size_t)raw->layout.vpp;
    int64_t sum = 0;

    if (raw->layers.n == 0) {
        return MW_OK;
    }
    node = layout_node(node, "layers");
    if (raw->layers.n != n_stages) {
        return mw_node_fail(
            node, err, "layers has %zu entries but pp %d x vpp %d is %zu",
            raw->layers.n, raw->layout.pp, raw->layout.vpp, n_stages);
    }
    for (size_t i = 0; i < raw->layers.n; i++) {
        sum += raw->layers.v[i];
    }
    if (sum != model->n_layers) {
        return mw_node_fail(node, err,
                            "layers sum to %lld but the model has %d",
                            (long long)sum, model->n_layers);
    }
    return MW_OK;
}

static enum mw_status read_layout(struct mw_node *node, struct mw_scenario *out,
                                  struct mw_err *err)
{
    const struct mw_cluster *cluster = &out->cluster;
    struct raw_layout raw = {0};
    struct mw_err why = {0};
    const char *rule = NULL;
    enum mw_status st;

    mw_layout_default(&raw.layout);
    st = mw_yaml_bind(node, raw_layout_fields, &raw, &out->arena, err);
    if (st != MW_OK) {
        return st;
    }
    if (mw_layout_check(&raw.layout, &out->model, &out->workload,
                        cluster->n_nodes * cluster->gpus_per_node, &rule,
                        &why) != MW_OK) {
        return mw_node_fail(layout_node(node, mw_layout_rule_key(rule)), err,
                            "%s", why.text);
    }
    st = check_layers(node, &raw, &out->model, err);
    if (st == MW_OK) {
        out->has_layout = true;
        out->layout = raw.layout;
        out->layout_layers = raw.layers;
    }
    return st;
}

/* ---- the file --------------------------------------------------------------
 */
/* The folder of a path, "." when it names none. */
static const char *folder_of(const char *path, struct mw_arena *arena)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL) {
        return ".";
    }
    return slash == path
               ? "/"
               : mw_arena_printf(arena, "%.*s", (int)(slash - path), path);
}

/* "DIR/llama.yaml" is called "llama" unless the file names itself. */
static const char *name_of(const char *path, struct mw_arena *arena)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t len =
        dot != NULL && dot > base ? (size_t)(dot - base) : strlen(base);

    return mw_arena_printf(arena, "%.*s", (int)len, base);
}

/* A newer format may have keys that this program does not know: say that
 * before complaining about them. */
static enum mw_status check_format(struct mw_node *root, struct mw_err *err)
{
    struct mw_node *node =
        mw_node_kind(root) == MW_NODE_MAP ? mw_node_get(root, "format") : NULL;
    int64_t format;

    if (node != NULL && mw_node_kind(node) == MW_NODE_SCALAR &&
        mw_int_parse(mw_node_text(node), &format, NULL) == MW_OK &&
        format > FORMAT) {
        return mw_node_fail(node, err,
                            "format %lld is newer than this program reads (%d)",
                            (long long)format, (int)FORMAT);
    }
    return MW_OK;
}

/* A learned position table must be as long as the sequences. */
static enum mw_status check_seq(struct mw_node *root,
                                const struct mw_scenario *scenario,
                                struct mw_err *err)
{
    struct mw_node *node = mw_node_get(mw_node_get(root, "workload"), "seq");

    if (scenario->model.position == MW_POS_LEARNED &&
        scenario->workload.seq > scenario->model.max_seq) {
        return mw_node_fail(node, err,
                            "sequences of %lld tokens are longer than the %d "
                            "learned positions of %s (model: max_seq)",
                            (long long)scenario->workload.seq,
                            scenario->model.max_seq, scenario->model.name);
    }
    return MW_OK;
}

static enum mw_status read_scenario(struct mw_node *root, const char *path,
                                    struct mw_scenario *out, struct mw_err *err)
{
    struct raw_scenario raw = {.workload = workload_default};
    enum mw_status st = check_format(root, err);

    if (st != MW_OK) {
        return st;
    }
    mw_limits_default(&raw.limits);
    st = mw_yaml_bind(root, scenario_fields, &raw, &out->arena, err);
    if (st != MW_OK) {
        return st;
    }
    st = mw_model_read(raw.model, folder_of(path, &out->arena), &out->arena,
                       &out->model, err);
    if (st != MW_OK) {
        return st;
    }
    out->file = mw_arena_strdup(&out->arena, path);
    out->name = raw.name != NULL ? raw.name : name_of(path, &out->arena);
    out->cluster = raw.cluster;
    out->workload = workload_of(&raw.workload);
    out->limits = raw.limits;
    out->objective = raw.objective;
    out->hash = hash_of(&raw, &out->model);
    st = check_seq(root, out, err);
    if (st == MW_OK && raw.layout != NULL) {
        st = read_layout(raw.layout, out, err);
    }
    return st;
}

enum mw_status mw_scenario_load(const char *path, struct mw_scenario *out,
                                struct mw_err *err)
{
    struct mw_scenario s = {0};
    struct mw_yaml *doc;
    enum mw_status st = mw_yaml_load(path, &doc, err);

    if (st != MW_OK) {
        return st;
    }
    mw_arena_init(&s.arena);
    st = read_scenario(mw_yaml_root(doc), path, &s, err);
    mw_yaml_free(doc);
    if (st != MW_OK) {
        mw_arena_release(&s.arena);
        return st;
    }
    *out = s;
    return MW_OK;
}

void mw_scenario_release(struct mw_scenario *scenario)
{
    mw_arena_release(&scenario->arena);
}
