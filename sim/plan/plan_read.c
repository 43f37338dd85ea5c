/*
 * Plans in: everything a hand may have changed is checked here, and the
 * message stands at the key that is wrong. Order of checks: format, whose
 * scenario it answers, layout, layers, schedule.
 */
#include "sim/plan/plan_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct schedule_doc {
    int64_t parts; /* 0: the kind's own */
    const char *kind, *placement;
    struct mw_node *order;
};
struct plan_doc {
    int64_t format;
    const char *name, *scenario, *scenario_hash;
    struct mw_layout layout;
    struct mw_int_list layers;
    struct schedule_doc schedule;
    struct mw_predicted predicted;
    bool has_predicted;
};

static const struct mw_field schedule_fields[] = {
    {.key = "kind",
     .type = MW_F_STR,
     .offset = offsetof(struct schedule_doc, kind),
     .required = true,
     .doc = "a generator's name, or custom with an order"},
    {.key = "placement",
     .type = MW_F_STR,
     .offset = offsetof(struct schedule_doc, placement),
     .doc = "of virtual stages with an order: loop, v or bidirectional"},
    {.key = "parts",
     .type = MW_F_INT,
     .offset = offsetof(struct schedule_doc, parts),
     .min = 1,
     .max = 1024,
     .doc = "of a micro-batch's sequences, for seq1f1b or an order"},
    {.key = "order",
     .type = MW_F_NODE,
     .offset = offsetof(struct schedule_doc, order),
     .doc = "one list of passes a stage, in the order in which they run"},
    MW_FIELD_END};

static const struct mw_field predicted_fields[] = {
    {.key = "step_time",
     .type = MW_F_QTY,
     .kind = MW_Q_SECONDS,
     .offset = offsetof(struct mw_predicted, step_time_s),
     .required = true,
     .doc = "seconds of one step"},
    {.key = "peak_memory",
     .type = MW_F_QTY,
     .kind = MW_Q_BYTES,
     .offset = offsetof(struct mw_predicted, peak_bytes),
     .required = true,
     .doc = "bytes on the fullest rank"},
    {.key = "mfu",
     .type = MW_F_NUM,
     .offset = offsetof(struct mw_predicted, mfu),
     .required = true,
     .max = 1,
     .doc = "model FLOPs utilisation, a fraction"},
    MW_FIELD_END};

static const struct mw_field plan_fields[] = {
    {.key = "format",
     .type = MW_F_INT,
     .offset = offsetof(struct plan_doc, format),
     .required = true,
     .min = 1,
     .max = 1e6,
     .doc = "version of the file format"},
    {.key = "name",
     .type = MW_F_STR,
     .offset = offsetof(struct plan_doc, name),
     .doc = "for people"},
    {.key = "scenario",
     .type = MW_F_STR,
     .offset = offsetof(struct plan_doc, scenario),
     .required = true,
     .doc = "file of the scenario, relative to the plan"},
    {.key = "scenario_hash",
     .type = MW_F_STR,
     .offset = offsetof(struct plan_doc, scenario_hash),
     .required = true,
     .doc = "16 hexadecimal digits that `meshwright plan` wrote"},
    {.key = "layout",
     .type = MW_F_MAP,
     .offset = offsetof(struct plan_doc, layout),
     .sub = mw_layout_fields,
     .required = true,
     .doc = "ways of each dimension, as in a scenario"},
    {.key = "layers",
     .type = MW_F_INT_LIST,
     .offset = offsetof(struct plan_doc, layers),
     .max = 1e6,
     .doc = "layers of each virtual stage; left out: even"},
    {.key = "schedule",
     .type = MW_F_MAP,
     .offset = offsetof(struct plan_doc, schedule),
     .sub = schedule_fields,
     .required = true,
     .doc = "which order the passes run in"},
    {.key = "predicted",
     .type = MW_F_MAP,
     .offset = offsetof(struct plan_doc, predicted),
     .sub = predicted_fields,
     .seen_offset = offsetof(struct plan_doc, has_predicted) + 1,
     .doc = "figures of the simulation that made the plan"},
    MW_FIELD_END};

struct reading {
    struct mw_node *root;
    struct plan_doc doc;
    struct mw_plan *plan;
    struct mw_err *err;
};

/* Puts a message that was made without a place at a key of the plan. */
static enum mw_status fail_at(struct reading *r, const char *key,
                              const char *sub_key, const struct mw_err *cause)
{
    struct mw_node *node = mw_node_get(r->root, key);

    if (node != NULL && sub_key != NULL && mw_node_get(node, sub_key) != NULL) {
        node = mw_node_get(node, sub_key);
    }
    return mw_node_fail(node != NULL ? node : r->root, r->err, "%s",
                        cause->text);
}

static enum mw_status check_format(struct reading *r)
{
    if (r->doc.format <= MW_PLAN_FORMAT) {
        return MW_OK;
    }
    return mw_node_fail(mw_node_get(r->root, "format"), r->err,
                        "format %lld is newer than this program; it reads "
                        "format %d",
                        (long long)r->doc.format, MW_PLAN_FORMAT);
}

static enum mw_status check_hash(struct reading *r,
                                 const struct mw_scenario *scenario)
{
    struct mw_node *node = mw_node_get(r->root, "scenario_hash");
    const char *text = r->doc.scenario_hash;
    char *end;

    if (strlen(text) != 16 ||
        strspn(text, "0123456789abcdefABCDEF") != strlen(text)) {
        return mw_node_fail(node, r->err,
                            "'%s' is not a hash; it must be the 16 "
                            "hexadecimal digits that plan wrote, in quotes",
                            text);
    }
    r->plan->scenario_hash = strtoull(text, &end, 16);
    if (r->plan->scenario_hash == scenario->hash) {
        return MW_OK;
    }
    return mw_node_fail(node, r->err,
                        "this plan answers scenario %s with hash %s but '%s' "
                        "has hash %016" PRIx64
                        "; plan again or pass its own scenario",
                        r->doc.scenario, text, scenario->name, scenario->hash);
}

/* 0: the first, or there are none. */
static bool is_choice(const struct mw_int_list *list, int value)
{
    bool is_listed = value == 0;

    for (size_t i = 0; i < list->n; i++) {
        is_listed = is_listed || list->v[i] == value;
    }
    return is_listed;
}

static enum mw_status take_layout(struct reading *r,
                                  const struct mw_scenario *scenario)
{
    struct mw_plan *plan = r->plan;
    struct mw_node *node = mw_node_get(r->root, "layout");
    struct mw_node *in_layout = mw_node_get(node, "schedule");
    struct mw_err cause = {0};
    const char *rule = NULL;
    /* Where the racks' domains or spare nodes are a choice, the plan's decides.
     */
    bool is_open =
        scenario->cluster.domains.n > 0 || scenario->limits.spare_nodes.n > 0;
    int n_ranks =
        is_open ? 0
                : scenario->cluster.n_nodes * scenario->cluster.gpus_per_node;

    if (in_layout != NULL &&
        strcmp(r->doc.layout.schedule, r->doc.schedule.kind) != 0) {
        return mw_node_fail(in_layout, r->err,
                            "layout says schedule %s but schedule says kind "
                            "%s; leave it out of layout",
                            r->doc.layout.schedule, r->doc.schedule.kind);
    }
    plan->layout = r->doc.layout;
    plan->layout.schedule = r->doc.schedule.kind;
    if (mw_layout_check(&plan->layout, &scenario->model, &scenario->workload,
                        n_ranks, &rule, &cause) != MW_OK) {
        return fail_at(r, "layout",
                       rule != NULL ? mw_layout_rule_key(rule) : NULL, &cause);
    }
    struct mw_cluster cluster = scenario->cluster;

    if (scenario->limits.spare_nodes.n > 0) {
        cluster.n_nodes = (int)plan->layout.nodes.n;
        cluster.spare_nodes = scenario->cluster.n_nodes +
                              scenario->cluster.spare_nodes - cluster.n_nodes;
    }
    if (mw_layout_check_nodes(&plan->layout, &cluster, &cause) != MW_OK) {
        return fail_at(r, "layout", "nodes", &cause);
    }
    if (!is_choice(&scenario->cluster.domains, plan->layout.domain_nodes)) {
        return mw_node_fail(mw_node_get(node, "domain_nodes"), r->err,
                            "%d nodes in a domain is none of the scenario's "
                            "choices (cluster: domain_nodes)",
                            plan->layout.domain_nodes);
    }
    plan->n_microbatches = mw_microbatches(&plan->layout, &scenario->workload);
    return MW_OK;
}

static enum mw_status take_layers(struct reading *r,
                                  const struct mw_model *model)
{
    struct mw_plan *plan = r->plan;
    struct mw_node *node = mw_node_get(r->root, "layers");
    int64_t sum = 0;

    plan->n_virtual = plan->layout.pp * plan->layout.vpp;
    plan->layers =
        mw_arena_alloc(&plan->arena, (size_t)plan->n_virtual, sizeof(int));
    if (node == NULL) {
        mw_plan_even_of(model, &plan->layout, plan->layers);
        return MW_OK;
    }
    if (r->doc.layers.n != (size_t)plan->n_virtual) {
        return mw_node_fail(node, r->err,
                            "%zu entries for %d virtual stages (pp %d x vpp "
                            "%d)",
                            r->doc.layers.n, plan->n_virtual, plan->layout.pp,
                            plan->layout.vpp);
    }
    for (int k = 0; k < plan->n_virtual; k++) {
        plan->layers[k] = (int)r->doc.layers.v[k];
        sum += plan->layers[k];
    }
    if (sum != model->n_layers) {
        return mw_node_fail(node, r->err,
                            "layers sum to %lld but the model has %d",
                            (long long)sum, model->n_layers);
    }
    if (mw_layers_pass_mtp(&r->doc.layers, &plan->layout)) {
        return mw_node_fail(node, r->err,
                            "mtp_ahead 1 leaves the last virtual stage to the "
                            "head: 0 layers there");
    }
    if (mw_layers_idle_stage(&r->doc.layers, &plan->layout) >= 0) {
        return mw_node_fail(
            node, r->err,
            "virtual stage %d has nothing to do; at least one "
            "layer, or 0 for the first (embedding) and the "
            "last (head)",
            mw_layers_idle_stage(&r->doc.layers, &plan->layout));
    }
    return MW_OK;
}

static enum mw_status parse_order(struct reading *r, const char **lists,
                                  const char *placement)
{
    struct mw_plan *plan = r->plan;
    struct mw_node *node = r->doc.schedule.order;
    int n_chunks = plan->layout.vpp;
    struct mw_err cause = {0};

    if (mw_node_kind(node) != MW_NODE_SEQ ||
        mw_node_count(node) != (size_t)plan->layout.pp) {
        return mw_node_fail(node, r->err,
                            "order must be a list of %d strings, one for each "
                            "stage",
                            plan->layout.pp);
    }
    for (int d = 0; d < plan->layout.pp; d++) {
        struct mw_node *item = mw_node_item(node, (size_t)d);

        if (mw_node_kind(item) != MW_NODE_SCALAR) {
            return mw_node_fail(item, r->err,
                                "a stage's order is a string "
                                "such as \"F0 F1 BW0 BW1\"");
        }
        lists[d] = mw_node_text(item);
    }
    if (strcmp(placement, "bidirectional") == 0 && n_chunks < 2) {
        n_chunks = 2;
    }
    if (mw_schedule_parse_parts(lists, plan->layout.pp, plan->n_microbatches,
                                n_chunks, plan->n_parts > 1 ? plan->n_parts : 1,
                                placement, &plan->schedule, &cause) != MW_OK) {
        return fail_at(r, "schedule", "order", &cause);
    }
    if (plan->schedule.route_len != plan->n_virtual) {
        mw_schedule_release(&plan->schedule);
        return mw_node_fail(node, r->err,
                            "placement %s makes %d virtual stages but pp x "
                            "vpp is %d",
                            placement, plan->schedule.route_len,
                            plan->n_virtual);
    }
    plan->has_schedule_order = true;
    return MW_OK;
}

static enum mw_status take_schedule(struct reading *r)
{
    struct mw_plan *plan = r->plan;
    const struct schedule_doc *doc = &r->doc.schedule;
    struct mw_err cause = {0};

    plan->n_parts = (int)doc->parts;
    if (doc->order != NULL) {
        const char **lists = mw_arena_alloc(
            &plan->arena, (size_t)plan->layout.pp, sizeof *lists);
        enum mw_status status = parse_order(
            r, lists, doc->placement != NULL ? doc->placement : "loop");

        if (status != MW_OK) {
            return status;
        }
    } else if (mw_plan_make_schedule(plan, &cause) != MW_OK) {
        return fail_at(r, "schedule", "kind", &cause);
    }
    if (mw_schedule_check(&plan->schedule, &cause) != MW_OK) {
        mw_schedule_release(&plan->schedule);
        return fail_at(r, "schedule", "order", &cause);
    }
    return MW_OK;
}

static enum mw_status read_doc(struct reading *r, const char *path)
{
    mw_layout_default(&r->doc.layout);
    enum mw_status status =
        mw_yaml_bind(r->root, plan_fields, &r->doc, &r->plan->arena, r->err);

    if (status == MW_OK) {
        status = check_format(r);
    }
    if (status == MW_OK) {
        r->plan->file = mw_arena_strdup(&r->plan->arena, path);
        r->plan->scenario_file = r->doc.scenario;
        r->plan->name = r->doc.name != NULL ? r->doc.name : r->doc.scenario;
        r->plan->has_predicted = r->doc.has_predicted;
        r->plan->predicted = r->doc.predicted;
    }
    return status;
}

static enum mw_status take_all(struct reading *r,
                               const struct mw_scenario *scenario)
{
    enum mw_status status = check_hash(r, scenario);

    if (status == MW_OK) {
        status = take_layout(r, scenario);
    }
    if (status == MW_OK) {
        status = take_layers(r, &scenario->model);
    }
    struct mw_err cause = {0};

    if (status == MW_OK && mw_plan_check_recomputed(r->plan, &cause) != MW_OK) {
        status = fail_at(r, "layout", "stage_recompute_layers", &cause);
    }
    if (status == MW_OK) {
        status = take_schedule(r);
    }
    return status;
}

/* Reads a parsed file; scenario NULL: the plan's own, into *own. */
static enum mw_status read_yaml(const char *path, struct mw_yaml *yaml,
                                const struct mw_scenario *scenario,
                                struct mw_scenario *own, struct mw_plan *out,
                                struct mw_err *err)
{
    struct mw_plan plan = {0};
    struct reading r = {.root = mw_yaml_root(yaml), .plan = &plan, .err = err};
    bool has_own = false;

    mw_arena_init(&plan.arena);
    enum mw_status status = read_doc(&r, path);

    if (status == MW_OK && scenario == NULL) {
        status = mw_scenario_load(
            mw_plan_path_resolve(&plan.arena, path, plan.scenario_file), own,
            err);
        has_own = status == MW_OK;
        scenario = own;
    }
    if (status == MW_OK) {
        status = take_all(&r, scenario);
    }
    if (status == MW_OK) {
        *out = plan;
        return MW_OK;
    }
    if (has_own) {
        mw_scenario_release(own);
    }
    mw_arena_release(&plan.arena);
    return status;
}

static enum mw_status load(const char *path, const struct mw_scenario *scenario,
                           struct mw_scenario *own, struct mw_plan *out,
                           struct mw_err *err)
{
    struct mw_yaml *yaml;
    enum mw_status status = mw_yaml_load(path, &yaml, err);

    if (status == MW_OK) {
        status = read_yaml(path, yaml, scenario, own, out, err);
        mw_yaml_free(yaml);
    }
    return status;
}

enum mw_status mw_plan_parse(const char *name, const char *text, size_t len,
                             const struct mw_scenario *scenario,
                             struct mw_plan *out, struct mw_err *err)
{
    struct mw_yaml *yaml;
    enum mw_status status = mw_yaml_parse(name, text, len, &yaml, err);

    if (status == MW_OK) {
        status = read_yaml(name, yaml, scenario, NULL, out, err);
        mw_yaml_free(yaml);
    }
    return status;
}

enum mw_status mw_plan_load_own(const char *path,
                                struct mw_scenario *out_scenario,
                                struct mw_plan *out, struct mw_err *err)
{
    return load(path, NULL, out_scenario, out, err);
}

enum mw_status mw_plan_load(const char *path,
                            const struct mw_scenario *scenario,
                            struct mw_plan *out, struct mw_err *err)
{
    struct mw_scenario own;
    enum mw_status status = load(path, scenario, &own, out, err);

    if (status == MW_OK && scenario == NULL) {
        mw_scenario_release(&own);
    }
    return status;
}
