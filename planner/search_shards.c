/* Parts of a search read from their files and joined: see search_shards.h. The
 * keys of a layout are read by the one table that plans are read by. */
#include "planner/search_shards.h"

#include "base/yaml.h"
#include "planner/search_int.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { N_SHARDS_MAX = 1 << 20 };

/* ---- reading ---------------------------------------------------------------
 */
struct raw_part {
    int64_t format, shard, shards, top;
    const char *question;
    double usable_bytes;
    struct mw_node *searches;
};
struct raw_search {
    int64_t domain_nodes, enumerated, evaluated, simulated;
    bool complete, layers_proved;
    double gap, wall_time_s;
    struct mw_node *reasons, *plans;
};
#define INT_KEY(of, member, low)                                               \
    {                                                                          \
        .key = #member, .type = MW_F_INT,                                      \
        .offset = offsetof(struct of, member), .required = true, .min = (low), \
        .max = 9e18                                                            \
    }
#define ANY_KEY(of, member, kind)                                              \
    {                                                                          \
        .key = #member, .type = (kind), .offset = offsetof(struct of, member), \
        .required = true                                                       \
    }
static const struct mw_field part_fields[] = {
    INT_KEY(raw_part, format, 1),
    INT_KEY(raw_part, shard, 1),
    INT_KEY(raw_part, shards, 1),
    INT_KEY(raw_part, top, 1),
    ANY_KEY(raw_part, question, MW_F_STR),
    ANY_KEY(raw_part, usable_bytes, MW_F_NUM),
    ANY_KEY(raw_part, searches, MW_F_NODE),
    MW_FIELD_END};
static const struct mw_field search_fields[] = {
    INT_KEY(raw_search, domain_nodes, 0),
    INT_KEY(raw_search, enumerated, 0),
    INT_KEY(raw_search, evaluated, 0),
    INT_KEY(raw_search, simulated, 0),
    ANY_KEY(raw_search, complete, MW_F_BOOL),
    ANY_KEY(raw_search, layers_proved, MW_F_BOOL),
    ANY_KEY(raw_search, gap, MW_F_NUM),
    ANY_KEY(raw_search, wall_time_s, MW_F_NUM),
    ANY_KEY(raw_search, reasons, MW_F_NODE),
    ANY_KEY(raw_search, plans, MW_F_NODE),
    MW_FIELD_END};

struct raw_reason {
    const char *rule, *nearest;
    int64_t count;
    double miss;
};
#define R_AT(member) offsetof(struct raw_reason, member)
static const struct mw_field reason_fields[] = {
    {.key = "rule", .type = MW_F_STR, .offset = R_AT(rule), .required = true},
    {.key = "nearest", .type = MW_F_STR, .offset = R_AT(nearest)},
    {.key = "count",
     .type = MW_F_INT,
     .offset = R_AT(count),
     .required = true,
     .max = 9e18},
    {.key = "miss", .type = MW_F_NUM, .offset = R_AT(miss), .required = true},
    MW_FIELD_END};

struct raw_plan {
    int64_t id;
    double bound_s, step_time_s, peak_bytes, mfu;
    struct mw_int_list layers;
    struct mw_layout layout;
};
#define C_NUM(member)                                                          \
    {                                                                          \
        .key = #member, .type = MW_F_NUM,                                      \
        .offset = offsetof(struct raw_plan, member), .required = true,         \
        .max = 1e300                                                           \
    }
static const struct mw_field plan_fields[] = {
    {.key = "id",
     .type = MW_F_INT,
     .offset = offsetof(struct raw_plan, id),
     .required = true,
     .max = 9e18},
    C_NUM(bound_s),
    C_NUM(step_time_s),
    C_NUM(peak_bytes),
    C_NUM(mfu),
    {.key = "layers",
     .type = MW_F_INT_LIST,
     .offset = offsetof(struct raw_plan, layers),
     .required = true,
     .max = 1 << 20},
    {.key = "layout",
     .type = MW_F_MAP,
     .offset = offsetof(struct raw_plan, layout),
     .sub = mw_layout_fields,
     .required = true},
    MW_FIELD_END};

struct join {
    const struct mw_shard_head *head;
    struct mw_search_result *out;
    int domain_nodes; /* of the searches that are joined */
    int n_shards, top;
    bool *seen; /* [n_shards + 1] */
    bool is_complete;
    double least_left_s; /* least bound of what no shard came to */
    bool is_unknown;     /* some of it has no bound */
    struct {
        struct mw_candidate *v;
        size_t n, cap;
    } plans;
    struct {
        uint64_t *v;
        size_t n, cap;
    } proved;
};

static enum mw_status take_plan(struct join *j, struct mw_node *node,
                                struct mw_err *err)
{
    struct raw_plan raw = {.id = 0};
    enum mw_status status;

    mw_layout_default(&raw.layout);
    status = mw_node_kind(node) == MW_NODE_MAP
                 ? mw_yaml_bind(node, plan_fields, &raw, &j->out->arena, err)
                 : mw_node_fail(node, err, "a plan is a mapping");
    if (status != MW_OK) {
        return status;
    }
    size_t n = (size_t)raw.layout.pp * (size_t)raw.layout.vpp;

    if (raw.layers.n != n) {
        return mw_node_fail(node, err,
                            "%zu numbers of layers for %zu virtual stages",
                            raw.layers.n, n);
    }
    struct mw_candidate c = {.layout = raw.layout,
                             .bound_s = raw.bound_s,
                             .step_time_s = raw.step_time_s,
                             .peak_bytes = raw.peak_bytes,
                             .mfu = raw.mfu,
                             .is_simulated = true,
                             .id = (uint64_t)raw.id};

    c.layers = mw_arena_alloc(&j->out->arena, n, sizeof *c.layers);
    for (size_t k = 0; k < n; k++) {
        c.layers[k] = (int)raw.layers.v[k];
    }
    mw_array_push(&j->plans, c);
    return MW_OK;
}

static enum mw_status take_reason(struct join *j, struct mw_node *node,
                                  struct mw_err *err)
{
    struct mw_search_result *r = j->out;
    struct raw_reason raw = {.nearest = ""};
    enum mw_status status =
        mw_node_kind(node) == MW_NODE_MAP
            ? mw_yaml_bind(node, reason_fields, &raw, &r->arena, err)
            : mw_node_fail(node, err, "a reason is a mapping");
    int i = 0;

    if (status != MW_OK) {
        return status;
    }
    while (i < r->n_reasons && strcmp(r->reasons[i].rule, raw.rule) != 0) {
        i++;
    }
    if (i == MW_REASONS_MAX) {
        return mw_node_fail(node, err, "more than %d reasons", MW_REASONS_MAX);
    }
    struct mw_reason *reason = &r->reasons[i];

    if (i == r->n_reasons) {
        *reason = (struct mw_reason){.rule = raw.rule};
        r->n_reasons++;
    }
    if (reason->count == 0 ||
        (raw.miss > 0 && (reason->miss <= 0 || raw.miss < reason->miss))) {
        reason->miss = raw.miss;
        snprintf(reason->nearest, sizeof reason->nearest, "%s", raw.nearest);
    }
    reason->count += (uint64_t)raw.count;
    return MW_OK;
}

/* Is the part of this question and division, and not there yet? */
static enum mw_status check_part(struct join *j, struct mw_node *root,
                                 const struct raw_part *raw, struct mw_err *err)
{
    char question[20];

    snprintf(question, sizeof question, "%016" PRIx64, j->head->question);
    if (strcmp(raw->question, question) != 0 ||
        raw->usable_bytes < j->head->usable_bytes ||
        raw->usable_bytes > j->head->usable_bytes) {
        return mw_node_fail(mw_node_get(root, "question"), err,
                            "part of a search of another scenario or with "
                            "other options (--fix, --stack, --hwdb); give "
                            "--merge the shards' own");
    }
    if (raw->shards > N_SHARDS_MAX || raw->shard > raw->shards ||
        (j->n_shards > 0 && raw->shards != j->n_shards)) {
        return mw_node_fail(mw_node_get(root, "shards"), err,
                            "shard %lld of %lld beside shards of %d",
                            (long long)raw->shard, (long long)raw->shards,
                            j->n_shards);
    }
    if (j->n_shards == 0) {
        j->n_shards = (int)raw->shards;
        j->seen = mw_calloc((size_t)j->n_shards + 1, sizeof *j->seen);
    }
    if (j->seen[raw->shard]) {
        return mw_node_fail(mw_node_get(root, "shard"), err,
                            "shard %lld is there twice", (long long)raw->shard);
    }
    j->seen[raw->shard] = true;
    return MW_OK;
}

static enum mw_status take_list(struct join *j, struct mw_node *list,
                                enum mw_status (*take)(struct join *,
                                                       struct mw_node *,
                                                       struct mw_err *),
                                struct mw_err *err)
{
    enum mw_status status = mw_node_kind(list) == MW_NODE_SEQ
                                ? MW_OK
                                : mw_node_fail(list, err, "not a sequence");

    for (size_t i = 0; status == MW_OK && i < mw_node_count(list); i++) {
        status = take(j, mw_node_item(list, i), err);
    }
    return status;
}

/* What one shard found under one way to cut the racks. */
static enum mw_status take_found(struct join *j, const struct raw_search *raw,
                                 struct mw_err *err)
{
    size_t first = j->plans.n;
    enum mw_status status = take_list(j, raw->reasons, take_reason, err);

    if (status == MW_OK) {
        status = take_list(j, raw->plans, take_plan, err);
    }
    if (status != MW_OK) {
        return status;
    }
    j->out->enumerated += (uint64_t)raw->enumerated;
    j->out->evaluated += (uint64_t)raw->evaluated;
    j->out->simulated += (uint64_t)raw->simulated;
    j->out->wall_time_s += raw->wall_time_s;
    j->is_complete = j->is_complete && raw->complete;
    j->is_unknown |= !raw->complete && !(raw->gap > 0);
    if (j->plans.n > first && raw->layers_proved) {
        mw_array_push(&j->proved, j->plans.v[first].id);
    }
    if (j->plans.n > first && raw->gap > 0) {
        j->least_left_s = fmin(j->least_left_s,
                               j->plans.v[first].step_time_s / (1 + raw->gap));
    }
    return MW_OK;
}

/* The search under the join's way to cut the racks, among a file's. */
static enum mw_status take_searches(struct join *j, struct mw_node *list,
                                    struct mw_err *err)
{
    enum mw_status status = mw_node_kind(list) == MW_NODE_SEQ
                                ? MW_OK
                                : mw_node_fail(list, err, "not a sequence");
    bool is_there = false;

    for (size_t i = 0; status == MW_OK && i < mw_node_count(list); i++) {
        struct raw_search raw = {.domain_nodes = 0};
        struct mw_node *item = mw_node_item(list, i);

        status =
            mw_node_kind(item) == MW_NODE_MAP
                ? mw_yaml_bind(item, search_fields, &raw, &j->out->arena, err)
                : mw_node_fail(item, err, "a search is a mapping");
        if (status == MW_OK && raw.domain_nodes == j->domain_nodes) {
            status = take_found(j, &raw, err);
            is_there = true;
        }
    }
    j->is_complete = j->is_complete && is_there;
    return status;
}

static enum mw_status check_format(struct mw_node *root, struct mw_err *err)
{
    struct mw_node *node = mw_node_get(root, "format");
    char now[16];

    snprintf(now, sizeof now, "%d", MW_SHARD_FORMAT);
    return node == NULL || strcmp(mw_node_text(node), now) == 0
               ? MW_OK
               : mw_node_fail(node, err,
                              "format %.20s is not this program's %s; search "
                              "with the program that merges",
                              mw_node_text(node), now);
}

static enum mw_status take_part(struct join *j, struct mw_node *root,
                                struct mw_err *err)
{
    struct raw_part raw = {.format = 0};
    enum mw_status status = check_format(root, err);

    if (status == MW_OK) {
        status = mw_yaml_bind(root, part_fields, &raw, &j->out->arena, err);
    }
    if (status == MW_OK) {
        status = check_part(j, root, &raw, err);
    }
    if (status == MW_OK) {
        j->top = raw.top < j->top ? (int)raw.top : j->top;
        status = take_searches(j, raw.searches, err);
    }
    return status;
}

/* ---- the whole -------------------------------------------------------------
 */
static int compare_values(double x, double y)
{
    return (x > y) - (x < y);
}

static int compare_by_time(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;
    int order = compare_values(x->step_time_s, y->step_time_s);

    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

static int compare_by_memory(const void *a, const void *b)
{
    const struct mw_candidate *x = a, *y = b;
    int order = compare_values(x->peak_bytes, y->peak_bytes);

    return order != 0 ? order : compare_by_time(a, b);
}

static void order_plans(struct join *j, enum mw_rank_by rank_by)
{
    struct mw_search_result *r = j->out;
    double least = HUGE_VAL;
    size_t kept = 0;

    if (j->plans.n == 0) {
        return;
    }
    qsort(j->plans.v, j->plans.n, sizeof *j->plans.v,
          rank_by == MW_RANK_MEMORY ? compare_by_memory : compare_by_time);
    for (size_t i = 0; i < j->plans.n; i++) {
        bool is_kept =
            rank_by != MW_RANK_PARETO || j->plans.v[i].peak_bytes < least;

        least = fmin(least, j->plans.v[i].peak_bytes);
        if (is_kept) {
            j->plans.v[kept++] = j->plans.v[i];
        }
    }
    r->plans = mw_arena_alloc(&r->arena, kept, sizeof *r->plans);
    memcpy(r->plans, j->plans.v, kept * sizeof *r->plans);
    r->n_plans = kept;
}

static enum mw_status finish(struct join *j, enum mw_rank_by rank_by,
                             struct mw_err *err)
{
    struct mw_search_result *r = j->out;
    int n_missing = 0, missing = 0;

    for (int i = j->n_shards; i > 0; i--) {
        n_missing += !j->seen[i];
        missing = j->seen[i] ? missing : i;
    }
    order_plans(j, rank_by);
    mw_reasons_sort(r);
    r->is_complete = j->is_complete && n_missing == 0;
    r->proved_optimal = r->is_complete && r->n_plans > 0;
    if (r->proved_optimal) {
        r->n_proved = rank_by == MW_RANK_PARETO || r->n_plans < (size_t)j->top
                          ? (int)r->n_plans
                          : j->top;
    }
    if (r->n_plans > 0 && !r->is_complete && !j->is_unknown && n_missing == 0 &&
        j->least_left_s < HUGE_VAL) {
        r->gap = fmax(0, r->plans[0].step_time_s / j->least_left_s - 1);
    }
    for (size_t i = 0; r->n_plans > 0 && i < j->proved.n; i++) {
        r->layers_proved = r->layers_proved || j->proved.v[i] == r->plans[0].id;
    }
    if (n_missing > 0) {
        return mw_fail(err, MW_ENO,
                       "%d of %d shards are missing, the first is %d/%d",
                       n_missing, j->n_shards, missing, j->n_shards);
    }
    return r->n_plans > 0
               ? MW_OK
               : mw_fail(err, MW_ENO,
                         "no feasible plan among %llu layouts of %d shards",
                         (unsigned long long)r->enumerated, j->n_shards);
}

enum mw_status mw_shards_join(const struct mw_shard_head *head,
                              const char *const *paths, int n_paths,
                              int domain_nodes, enum mw_rank_by rank_by,
                              struct mw_search_result *out, struct mw_err *err)
{
    struct join j = {.head = head,
                     .domain_nodes = domain_nodes,
                     .out = out,
                     .top = head->top,
                     .is_complete = true,
                     .least_left_s = HUGE_VAL};
    enum mw_status status = MW_OK;

    memset(out, 0, sizeof *out);
    mw_arena_init(&out->arena);
    for (int i = 0; i < n_paths && status == MW_OK; i++) {
        struct mw_yaml *doc;

        status = mw_yaml_load(paths[i], &doc, err);
        if (status == MW_OK) {
            struct mw_node *root = mw_yaml_root(doc);

            status = mw_node_kind(root) == MW_NODE_MAP &&
                             mw_node_get(root, "question") != NULL
                         ? take_part(&j, mw_yaml_root(doc), err)
                         : mw_node_fail(mw_yaml_root(doc), err,
                                        "no part of a search; plan --shard "
                                        "--part FILE writes one");
            mw_yaml_free(doc);
        }
    }
    if (status == MW_OK) {
        status = finish(&j, rank_by, err);
    }
    mw_free(j.seen);
    mw_array_release(&j.plans);
    mw_array_release(&j.proved);
    return status;
}
