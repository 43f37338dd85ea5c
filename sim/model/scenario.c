/*
 * Reading scenario files (docs/scenario.md). What needs a place in the file to
 * point at is checked here: the format, the length of sequences, the layout's
 * rules (rules.c) and its layers. Schedules and systems are other folders'
 * names and checked where those are known.
 */
#include "sim/model/scenario_int.h"

#include <stddef.h>
#include <string.h>

enum { FORMAT = 1 };

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
     .max = 1 << 20,
     .doc = "layers of each virtual stage, in the order of the model"},
    MW_FIELD_END};

#define S_AT(member) offsetof(struct mw_raw_scenario, member)
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
     .sub = mw_workload_fields,
     .required = true,
     .doc = "the work of a step"},
    {.key = "limits",
     .type = MW_F_MAP,
     .offset = S_AT(limits),
     .sub = mw_limits_fields,
     .doc = "what a plan may use"},
    {.key = "objective",
     .type = MW_F_NODE,
     .offset = S_AT(objective),
     .doc = "what the planner makes small, one after the other"},
    {.key = "layout",
     .type = MW_F_NODE,
     .offset = S_AT(layout),
     .doc = "a layout to simulate without planning"},
    MW_FIELD_END};

/* ---- layout ----------------------------------------------------------------
 */
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
    node = mw_scenario_key_node(node, "layers");
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
    if (mw_layers_pass_mtp(&raw->layers, &raw->layout)) {
        return mw_node_fail(node, err,
                            "mtp_ahead 1 leaves the last virtual stage to the "
                            "head: 0 layers there");
    }
    if (mw_layers_idle_stage(&raw->layers, &raw->layout) >= 0) {
        return mw_node_fail(node, err,
                            "virtual stage %d has nothing to do; at least one "
                            "layer, or 0 for the first (embedding) and the "
                            "last (head)",
                            mw_layers_idle_stage(&raw->layers, &raw->layout));
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
                        cluster->domains.n > 0
                            ? 0
                            : cluster->n_nodes * cluster->gpus_per_node,
                        &rule, &why) != MW_OK) {
        return mw_node_fail(
            mw_scenario_key_node(node, mw_layout_rule_key(rule)), err, "%s",
            why.text);
    }
    if (mw_layout_check_nodes(&raw.layout, cluster, &why) != MW_OK) {
        return mw_node_fail(mw_scenario_key_node(node, "nodes"), err, "%s",
                            why.text);
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

/* Words about adapters mean something only where there are adapters. */
static enum mw_status check_lora(struct mw_node *root,
                                 const struct mw_raw_workload *w,
                                 struct mw_err *err)
{
    struct mw_node *node = mw_node_get(root, "workload");

    if (w->lora_rank > 0) {
        return MW_OK;
    }
    if (w->has_lora_targets) {
        return mw_node_fail(mw_node_get(node, "lora_targets"), err,
                            "lora_targets without adapters; give lora_rank, "
                            "for example 16, or leave it out");
    }
    if (w->base_dtype != MW_BASE_SAME) {
        return mw_node_fail(mw_node_get(node, "base_dtype"), err,
                            "base_dtype stores weights that do not learn, but "
                            "without lora_rank all do; give lora_rank, for "
                            "example 16");
    }
    return MW_OK;
}

/* Types of states that the optimizer has not would do nothing. */
static enum mw_status check_states(struct mw_node *root,
                                   const struct mw_workload *w,
                                   struct mw_err *err)
{
    const struct mw_optimizer *o = &w->optimizer;
    struct mw_node *node = mw_node_get(root, "workload");
    const char *name = mw_optimizer_name(o->kind);

    if (o->main != MW_MAIN_FP32 &&
        (w->dtype == MW_FP32 || w->dtype == MW_TF32)) {
        return mw_node_fail(mw_scenario_key_node(node, "main_params_dtype"),
                            err,
                            "with dtype %s the weights are their own main "
                            "copy; leave main_params_dtype out",
                            mw_dtype_name(w->dtype));
    }
    if (o->exp_avg != MW_FP32 && !mw_optimizer_has_exp_avg(o)) {
        return mw_node_fail(mw_scenario_key_node(node, "exp_avg_dtype"), err,
                            "optimizer %s has no first moment of a type to "
                            "choose; leave exp_avg_dtype out",
                            name);
    }
    if (o->exp_avg_sq != MW_FP32 && !mw_optimizer_has_exp_avg_sq(o)) {
        return mw_node_fail(mw_scenario_key_node(node, "exp_avg_sq_dtype"), err,
                            "optimizer %s has no second moment of a type to "
                            "choose; leave exp_avg_sq_dtype out",
                            name);
    }
    return MW_OK;
}

static enum mw_status check_documents(struct mw_node *root,
                                      const struct mw_workload *w,
                                      struct mw_err *err)
{
    struct mw_node *node =
        mw_node_get(mw_node_get(root, "workload"), "doc_tokens");

    if (w->doc_tokens > w->seq) {
        return mw_node_fail(node, err,
                            "documents of %lld tokens are longer than the "
                            "sequences of %lld they are packed into",
                            (long long)w->doc_tokens, (long long)w->seq);
    }
    if (w->doc_tokens > 0 && !w->is_flash) {
        return mw_node_fail(node, err,
                            "doc_tokens needs attention: flash; unfused "
                            "products work on the whole square");
    }
    return MW_OK;
}

/* A set that repeats nothing is no choice of selective recomputation. */
static enum mw_status check_sets(struct mw_node *root,
                                 const struct mw_limits *limits,
                                 struct mw_err *err)
{
    for (size_t i = 0; i < limits->recompute_modules.n; i++) {
        if (limits->recompute_modules.v[i] == 0) {
            struct mw_node *list =
                mw_node_get(mw_node_get(root, "limits"), "recompute_modules");

            return mw_node_fail(mw_node_item(list, i), err,
                                "an empty set of recompute_modules repeats "
                                "nothing, as recompute: none does; name "
                                "modules, for example [core_attn]");
        }
    }
    return MW_OK;
}

static enum mw_status check_parts(struct mw_node *root,
                                  const struct mw_limits *limits,
                                  struct mw_err *err)
{
    const struct {
        const char *key;
        size_t n;
    } lists[] = {{"offload_optimizer", limits->offload_optimizer.n},
                 {"offload_weights", limits->offload_weights.n},
                 {"offload_activations", limits->offload_activations.n}};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].n > MW_PARTS_MAX) {
            return mw_node_fail(
                mw_node_get(mw_node_get(root, "limits"), lists[i].key), err,
                "'%s' lists %zu parts; at most %d are enumerated", lists[i].key,
                lists[i].n, MW_PARTS_MAX);
        }
    }
    return MW_OK;
}

/* How routers spread tokens; counts are part of the scenario's hash. */
static enum mw_status read_experts(struct mw_node *root, const char *path,
                                   const struct mw_raw_workload *w,
                                   struct mw_scenario *out, struct mw_err *err)
{
    struct mw_node *node = mw_node_get(root, "workload");
    const char *key = w->capacity_factor > 0     ? "capacity_factor"
                      : w->expert_imbalance > 1  ? "expert_imbalance"
                      : w->router_counts != NULL ? "router_counts"
                                                 : NULL;

    if (w->pads_to_capacity && !(w->capacity_factor > 0)) {
        return mw_node_fail(mw_scenario_key_node(node, "pad_to_capacity"), err,
                            "pad_to_capacity without a capacity; give "
                            "capacity_factor, for example 1.25");
    }
    if (key != NULL && out->model.moe.n_experts == 0) {
        return mw_node_fail(mw_scenario_key_node(node, key), err,
                            "%s needs a model with experts", key);
    }
    if (w->router_counts == NULL) {
        return MW_OK;
    }
    if (w->expert_imbalance > 1) {
        return mw_node_fail(mw_scenario_key_node(node, "expert_imbalance"), err,
                            "router_counts says how experts are loaded; leave "
                            "expert_imbalance out");
    }
    enum mw_status st = mw_router_counts_read(
        w->router_counts, folder_of(path, &out->arena), &out->model,
        w->global_batch, &out->arena, &out->router, err);

    if (st == MW_OK) {
        out->hash = mw_router_counts_hash(out->hash, &out->router, &out->model);
    }
    return st;
}

static enum mw_status read_scenario(struct mw_node *root, const char *path,
                                    struct mw_scenario *out, struct mw_err *err)
{
    struct mw_raw_scenario raw = {.workload = mw_raw_workload_default};
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
    out->workload = mw_workload_of(&raw.workload);
    out->limits = raw.limits;
    out->hash = mw_scenario_hash(&raw, &out->model);
    st = read_experts(root, path, &raw.workload, out, err);
    if (st != MW_OK) {
        return st;
    }
    st = mw_objective_read(raw.objective, &out->objective, err);
    st = st != MW_OK ? st : mw_cluster_take(root, &raw, &out->cluster, err);
    st = st != MW_OK ? st : check_seq(root, out, err);
    st = st != MW_OK ? st : check_lora(root, &raw.workload, err);
    st = st != MW_OK ? st : check_states(root, &out->workload, err);
    st = st != MW_OK ? st : check_documents(root, &out->workload, err);
    st = st != MW_OK ? st : check_parts(root, &out->limits, err);
    st = st != MW_OK ? st : check_sets(root, &out->limits, err);
    if (st == MW_OK && raw.layout != NULL) {
        st = read_layout(raw.layout, out, err);
    }
    return st;
}

/* A plan file names the scenario that it is of; a scenario has no such key. */
static enum mw_status refuse_plan(struct mw_node *root, struct mw_err *err)
{
    struct mw_node *of = mw_node_kind(root) == MW_NODE_MAP
                             ? mw_node_get(root, "scenario_hash")
                             : NULL;

    return of == NULL ? MW_OK
                      : mw_node_fail(of, err,
                                     "this is a plan, where a scenario is "
                                     "wanted; give its scenario, and the plan "
                                     "with --plan");
}

/* Reads a parsed document and frees it. */
static enum mw_status read_document(struct mw_yaml *doc, const char *path,
                                    struct mw_scenario *out, struct mw_err *err)
{
    struct mw_scenario s = {0};
    enum mw_status st;

    mw_arena_init(&s.arena);
    st = refuse_plan(mw_yaml_root(doc), err);
    if (st == MW_OK) {
        st = read_scenario(mw_yaml_root(doc), path, &s, err);
    }
    mw_yaml_free(doc);
    if (st != MW_OK) {
        mw_arena_release(&s.arena);
        return st;
    }
    *out = s;
    return MW_OK;
}

enum mw_status mw_scenario_load(const char *path, struct mw_scenario *out,
                                struct mw_err *err)
{
    struct mw_yaml *doc;
    enum mw_status st = mw_yaml_load(path, &doc, err);

    return st != MW_OK ? st : read_document(doc, path, out, err);
}

enum mw_status mw_scenario_parse(const char *name, const char *text, size_t len,
                                 struct mw_scenario *out, struct mw_err *err)
{
    struct mw_yaml *doc;
    enum mw_status st = mw_yaml_parse(name, text, len, &doc, err);

    return st != MW_OK ? st : read_document(doc, name, out, err);
}

/* The message in place of err's, at the key that it is about; false: there is
 * no such place. */
static bool blame_key(struct mw_yaml *doc, struct mw_err *err)
{
    struct mw_node *root = mw_yaml_root(doc), *section;
    struct mw_err placed = {.status = MW_OK};

    section = mw_node_kind(root) == MW_NODE_MAP
                  ? mw_node_get(root, err->section)
                  : NULL;
    if (section == NULL) {
        return false;
    }
    mw_node_fail(mw_scenario_key_node(section, err->key), &placed, "%s",
                 err->text);
    placed.status = err->status;
    *err = placed;
    return true;
}

void mw_file_blame(const char *file, struct mw_err *err)
{
    struct mw_yaml *doc;

    if (err == NULL) {
        return;
    }
    bool has_place = err->section[0] != '\0' && err->n_findings == 1 &&
                     mw_yaml_load(file, &doc, NULL) == MW_OK;

    if (has_place) {
        has_place = blame_key(doc, err);
        mw_yaml_free(doc);
    }
    if (!has_place) {
        mw_err_prefix(err, "%s", file);
    }
}

void mw_scenario_blame(const struct mw_scenario *scenario, struct mw_err *err)
{
    mw_file_blame(scenario->file, err);
}

void mw_scenario_release(struct mw_scenario *scenario)
{
    mw_arena_release(&scenario->arena);
}
