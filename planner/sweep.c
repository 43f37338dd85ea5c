/*
 * Grids and their points. A point is a copy of the scenario with some values
 * replaced; its hash covers what was replaced, so a row is known by what it
 * answers and not by its place in some grid.
 */
#include "planner/sweep.h"

#include "base/file.h"
#include "planner/domains.h"
#include "planner/sweep_int.h"
#include "sim/cost/domain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct mw_enum mw_sweep_key_enums[] = {
    {"nodes", MW_SWEEP_NODES},
    {"system", MW_SWEEP_SYSTEM},
    {"model", MW_SWEEP_MODEL},
    {"seq", MW_SWEEP_SEQ},
    {"global_batch", MW_SWEEP_BATCH},
    {"net", MW_SWEEP_NET},
    {"gpus_per_node", MW_SWEEP_PER_NODE},
    {"nics", MW_SWEEP_NICS},
    {NULL, 0}};

static const char *key_name(enum mw_sweep_key key)
{
    const struct mw_enum *e = mw_sweep_key_enums;

    while (e->value != (int)key) {
        e++;
    }
    return e->name;
}

/* ---- grids -----------------------------------------------------------------
 */
static bool is_number_key(enum mw_sweep_key key)
{
    return key == MW_SWEEP_NODES || key == MW_SWEEP_SEQ ||
           key == MW_SWEEP_BATCH || key == MW_SWEEP_PER_NODE ||
           key == MW_SWEEP_NICS;
}

static enum mw_status check_value(const struct mw_sweep_axis *axis,
                                  const char *name, const char *value,
                                  struct mw_err *err)
{
    int64_t number = 0;
    double factor = 0;

    if (is_number_key(axis->key) &&
        (mw_int_parse(value, &number, NULL) != MW_OK || number < 1 ||
         number > 1 << 24)) {
        return mw_fail(err, MW_EUSAGE,
                       "--vary: %s is '%s'; it must be an integer in "
                       "1..16777216",
                       name, value);
    }
    if (axis->key == MW_SWEEP_NET &&
        (mw_double_parse(value, &factor, NULL) != MW_OK || !(factor > 0) ||
         factor > 1e3)) {
        return mw_fail(err, MW_EUSAGE,
                       "--vary: net is '%s'; it is a factor on the bandwidth "
                       "between nodes, for example 0.5",
                       value);
    }
    if (value[0] == '\0') {
        return mw_fail(err, MW_EUSAGE, "--vary: %s has an empty value", name);
    }
    return MW_OK;
}

static enum mw_status add_values(struct mw_sweep_axis *axis, const char *name,
                                 const char *text, struct mw_err *err)
{
    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");

        if (axis->n == MW_SWEEP_VALUES_MAX || len >= MW_SWEEP_TEXT_MAX) {
            return mw_fail(err, MW_EUSAGE,
                           "--vary: %s has more than %d values, or one longer "
                           "than %d characters",
                           name, MW_SWEEP_VALUES_MAX, MW_SWEEP_TEXT_MAX - 1);
        }
        memcpy(axis->value[axis->n], at, len);
        axis->value[axis->n][len] = '\0';
        enum mw_status status =
            check_value(axis, name, axis->value[axis->n], err);

        if (status != MW_OK) {
            return status;
        }
        axis->n++;
        at += len;
        if (*at == '\0') {
            return MW_OK;
        }
    }
}

enum mw_status mw_sweep_grid_add(struct mw_sweep_grid *grid, const char *text,
                                 struct mw_err *err)
{
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : strlen(text);
    const struct mw_enum *e = mw_sweep_key_enums;

    while (e->name &&
           (strlen(e->name) != len || strncmp(e->name, text, len) != 0)) {
        e++;
    }
    if (!e->name || !equals) {
        return mw_fail(
            err, MW_EUSAGE,
            "--vary: '%s' is not KEY=VALUE,... with a key of nodes, "
            "system, model, seq, global_batch, net, gpus_per_node, nics",
            text);
    }
    for (int i = 0; i < grid->n_axes; i++) {
        if ((int)grid->axis[i]->key == e->value) {
            return mw_fail(err, MW_EUSAGE, "--vary: %s is given twice",
                           e->name);
        }
    }
    struct mw_sweep_axis *axis = mw_calloc(1, sizeof *axis);

    axis->key = (enum mw_sweep_key)e->value;
    enum mw_status status = add_values(axis, e->name, equals + 1, err);

    if (status != MW_OK) {
        mw_free(axis);
        return status;
    }
    grid->axis[grid->n_axes++] = axis;
    if (mw_sweep_points(grid) > MW_SWEEP_POINTS_MAX) {
        return mw_fail(err, MW_EUSAGE, "--vary: more than %d points",
                       MW_SWEEP_POINTS_MAX);
    }
    return MW_OK;
}

void mw_sweep_grid_release(struct mw_sweep_grid *grid)
{
    for (int i = 0; i < grid->n_axes; i++) {
        mw_free(grid->axis[i]);
    }
    grid->n_axes = 0;
}

size_t mw_sweep_points(const struct mw_sweep_grid *grid)
{
    size_t n = 1;

    for (int i = 0; i < grid->n_axes; i++) {
        n *= (size_t)grid->axis[i]->n;
    }
    return n;
}

/* ---- points ----------------------------------------------------------------
 */
struct point {
    struct mw_scenario scenario; /* shares the arena of the original */
    double net;
    int gpus_per_node; /* varied; 0: the scenario's or the system's */
    int nics;          /* the same */
    struct mw_cost_ctx ctx;
};

static enum mw_status set_value(struct point *p, enum mw_sweep_key key,
                                const char *value, struct mw_err *err)
{
    int64_t number = 0;

    if (is_number_key(key)) {
        mw_int_parse(value, &number, NULL);
    }
    switch (key) {
    case MW_SWEEP_NODES:
        if (number <= p->scenario.cluster.spare_nodes) {
            return mw_fail(err, MW_EINPUT,
                           "nodes=%s: %d stand by, which leaves none", value,
                           p->scenario.cluster.spare_nodes);
        }
        p->scenario.cluster.n_nodes =
            (int)number - p->scenario.cluster.spare_nodes;
        break;
    case MW_SWEEP_SYSTEM:
        p->scenario.cluster.system = value;
        p->scenario.cluster.gpus_per_node = 0;
        break;
    case MW_SWEEP_MODEL:
        return mw_model_preset(value, &p->scenario.model, err);
    case MW_SWEEP_SEQ:
        p->scenario.workload.seq = number;
        break;
    case MW_SWEEP_BATCH:
        p->scenario.workload.global_batch = number;
        break;
    case MW_SWEEP_NET:
        mw_double_parse(value, &p->net, NULL);
        break;
    case MW_SWEEP_PER_NODE:
        p->gpus_per_node = (int)number;
        break;
    case MW_SWEEP_NICS:
        p->nics = (int)number;
        break;
    case MW_SWEEP_KEY_COUNT:
        break;
    }
    return MW_OK;
}

/* Fewer or more NICs at their rate: what leaves a node goes with their number.
 */
static enum mw_status set_nics(struct point *p, struct mw_err *err)
{
    int of_system = p->ctx.system->n_nics;

    if (of_system == 0) {
        return mw_fail(err, MW_EINPUT,
                       "nics=%d: %s has no network between nodes", p->nics,
                       p->ctx.system->slug);
    }
    p->ctx.domain_net_Bps *= (double)p->nics / of_system;
    p->ctx.net_speed *= (double)p->nics / of_system;
    return MW_OK;
}

static void grow_batch(struct point *p, const struct mw_scenario *from)
{
    int64_t per = from->workload.global_batch, n = from->cluster.n_nodes;
    int64_t scaled = per * p->scenario.cluster.n_nodes / n;

    p->scenario.workload.global_batch = scaled > 0 ? scaled : 1;
}

static enum mw_status make_point(const struct mw_scenario *from,
                                 const struct mw_hwdb *db, const char *stack,
                                 const struct mw_sweep_grid *grid, size_t index,
                                 struct point *p, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    p->scenario = *from;
    p->net = 1;
    p->gpus_per_node = p->nics = 0;
    for (int i = grid->n_axes - 1; i >= 0 && status == MW_OK; i--) {
        const struct mw_sweep_axis *axis = grid->axis[i];

        status =
            set_value(p, axis->key, axis->value[index % (size_t)axis->n], err);
        index /= (size_t)axis->n;
    }
    if (p->gpus_per_node > 0) { /* whatever a system axis made of it */
        p->scenario.cluster.gpus_per_node = p->gpus_per_node;
    }
    if (status == MW_OK && grid->is_weak) {
        grow_batch(p, from);
    }
    if (status == MW_OK) {
        struct mw_cluster *c = &p->scenario.cluster;

        status = mw_cost_ctx_init(&p->ctx, db, c->system, c->n_nodes,
                                  c->gpus_per_node, err);
        status = status == MW_OK
                     ? mw_cost_use_domains(&p->ctx, c,
                                           mw_cluster_first_domain(c), err)
                     : status;
    }
    if (status == MW_OK) {
        status = mw_cost_ctx_choose_stack(&p->ctx, stack,
                                          from->limits.framework, err);
    }
    if (status == MW_OK) {
        p->ctx.domain_net_Bps *= p->net;
        p->ctx.net_speed *= p->net;
        p->scenario.cluster.gpus_per_node = p->ctx.gpus_per_node;
    }
    return status == MW_OK && p->nics > 0 ? set_nics(p, err) : status;
}

uint64_t mw_sweep_question(const struct mw_scenario *from,
                           const struct mw_search_opts *o, const char *stack)
{
    char text[512];
    int n = snprintf(
        text, sizeof text,
        "%d %d %d %d %d %d %d %d %d %d %d %d %d %s %s %.40s %d %d %d %g %g %g "
        "%u",
        o->tp, o->cp, o->pp, o->dp, o->ep, o->etp, o->micro_batch, o->zero,
        o->sp, o->recompute, o->vpp, o->is_full, (int)o->rank_by,
        o->schedule ? o->schedule : "-", o->order ? o->order : "-",
        stack ? stack : "framework's", o->cp_form, o->dp_shard, o->reshard,
        o->offload_optimizer, o->offload_weights, o->offload_activations,
        o->free);

    if (o->grad_compression > 0) { /* older questions keep their hashes */
        n += snprintf(text + n, sizeof text - (size_t)n, " compression %d",
                      o->grad_compression);
    }
    if (o->recompute_layers >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " recompute %d",
                      o->recompute_layers);
    }
    if (o->cp_inner > 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " cp_inner %d",
                      o->cp_inner);
    }
    if (o->recompute_modules >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " modules %d",
                      o->recompute_modules);
    }
    if (o->mtp_ahead >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " mtp %d",
                      o->mtp_ahead);
    }
    if (o->cuda_graph >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " graph %d",
                      o->cuda_graph);
    }
    if (o->dispatcher >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " dispatcher %d",
                      o->dispatcher);
    }
    if (o->overlap_shared_experts >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " shared %d",
                      o->overlap_shared_experts);
    }
    if (o->overlap_off >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " overlap %d",
                      o->overlap_off);
    }
    if (o->bucket_size >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " bucket %d",
                      o->bucket_size);
    }
    if (o->fsdp_unit >= 0 || o->fsdp_prefetch >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " units %d %d",
                      o->fsdp_unit, o->fsdp_prefetch);
    }
    if (o->dtype >= 0 || o->grad_dtype >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " types %d %d",
                      o->dtype, o->grad_dtype);
    }
    if (o->offload_nvme > 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " nvme %d",
                      o->offload_nvme);
    }
    return mw_hash64(from->hash, text, (size_t)n);
}

/* The point as a row without an answer. */
static void name_point(const struct point *p, const struct mw_scenario *from,
                       const struct mw_sweep_opts *opts, struct mw_arena *arena,
                       struct mw_sweep_row *row)
{
    const struct mw_scenario *s = &p->scenario;

    *row = (struct mw_sweep_row){
        .scenario =
            mw_arena_printf(arena, "%016" PRIx64,
                            mw_sweep_question(from, opts->search, opts->stack)),
        .model = mw_arena_strdup(arena, s->model.name ? s->model.name : ""),
        .system = mw_arena_strdup(arena, p->ctx.system->slug),
        .stack = p->ctx.stack.name,
        .nodes = s->cluster.n_nodes,
        .gpus = (int64_t)p->ctx.n_nodes * p->ctx.gpus_per_node,
        .seq = s->workload.seq,
        .global_batch = s->workload.global_batch,
        .domain_nodes = s->cluster.domains.n > 1 ? s->cluster.domain_nodes : 0,
        .nics = p->nics,
        .net = p->net,
        .recompute = "",
        .schedule = "",
        .order = "",
        .reason = ""};
}

static bool same_point(const struct mw_sweep_row *a,
                       const struct mw_sweep_row *b)
{
    return strcmp(a->scenario, b->scenario) == 0 &&
           strcmp(a->model, b->model) == 0 &&
           strcmp(a->system, b->system) == 0 &&
           strcmp(a->stack, b->stack) == 0 && a->nodes == b->nodes &&
           (b->domain_nodes > 0 || a->gpus == b->gpus) && a->seq == b->seq &&
           a->global_batch == b->global_batch && a->nics == b->nics &&
           mw_near(a->net, b->net, 1e-12, 0);
}

static void fill_plan(const struct point *p, const struct mw_search_result *r,
                      struct mw_arena *arena, struct mw_sweep_row *row)
{
    const struct mw_candidate *c = &r->plans[0];
    const struct mw_layout *l = &c->layout;
    double tokens = (double)p->scenario.workload.global_batch *
                    (double)p->scenario.workload.seq;

    row->is_feasible = 1;
    row->is_proved = r->proved_optimal;
    row->step_time_s = c->step_time_s;
    row->tokens_per_s = tokens / c->step_time_s;
    row->tokens_per_s_per_gpu = row->tokens_per_s / (double)row->gpus;
    row->mfu = c->mfu;
    row->peak_bytes = c->peak_bytes;
    row->gpu_hours_per_ttoken = 1e12 / row->tokens_per_s_per_gpu / 3600;
    row->tp = l->tp;
    row->cp = l->cp;
    row->pp = l->pp;
    row->vpp = l->vpp;
    row->dp = l->dp;
    row->ep = l->ep;
    row->etp = l->etp;
    row->zero = l->zero;
    row->sp = l->sp;
    row->micro_batch = l->micro_batch;
    row->recompute = mw_recompute_name(l->recompute);
    row->schedule = mw_arena_strdup(arena, l->schedule);
    row->order = mw_arena_strdup(arena, l->order);
}

/* Is the key that a failure is about an axis of the sweep? Then no line of the
 * scenario is to blame. */
static bool is_varied(const struct mw_sweep_grid *grid,
                      const struct mw_err *err)
{
    for (int i = 0; i < grid->n_axes; i++) {
        const char *name = key_name(grid->axis[i]->key);

        if (strcmp(err->key, name) == 0 || strcmp(err->section, name) == 0) {
            return true;
        }
    }
    return false;
}

static enum mw_status blame(const struct mw_scenario *scenario,
                            const struct mw_sweep_grid *grid,
                            enum mw_status status, struct mw_err *err)
{
    if (status == MW_EINPUT && err != NULL && is_varied(grid, err)) {
        mw_err_prefix(err, "--vary");
    } else if (status == MW_EINPUT && err != NULL && err->section[0] != '\0') {
        mw_scenario_blame(scenario, err);
    }
    return status;
}

/* Nothing feasible is an answer; only wrong input and interrupts end a sweep.
 */
static enum mw_status search_point(const struct point *p,
                                   const struct mw_sweep_opts *opts,
                                   struct mw_arena *arena,
                                   struct mw_sweep_row *row, struct mw_err *err)
{
    struct mw_search_result r;
    struct mw_err why = {0};
    struct mw_domains *cut = mw_calloc(1, sizeof *cut);
    bool is_choice = p->scenario.cluster.domains.n > 1;
    enum mw_status status =
        is_choice ? mw_domains_search(&p->scenario, &p->ctx, opts->search, cut,
                                      &r, &why)
                  : mw_search(&p->scenario, &p->ctx, opts->search, &r, &why);

    if (status == MW_OK) {
        if (is_choice) {
            row->domain_nodes = cut->choice[cut->best].domain_nodes;
            row->gpus = cut->choice[cut->best].n_gpus;
        }
        fill_plan(p, &r, arena, row);
        row->is_proved = row->is_proved && (!is_choice || cut->is_proved);
    } else if (status == MW_ENO) {
        row->reason = r.n_reasons > 0
                          ? mw_arena_strdup(arena, r.reasons[0].nearest)
                          : "no layout divides the ranks";
        status = MW_OK;
    } else if (err) {
        *err = why;
    }
    mw_search_result_release(&r);
    mw_free(cut);
    return status;
}

static const struct mw_sweep_row *find_known(const struct mw_sweep_rows *known,
                                             const struct mw_sweep_row *row)
{
    for (size_t i = 0; known && i < known->n; i++) {
        if (same_point(&known->v[i], row)) {
            return &known->v[i];
        }
    }
    return NULL;
}

static size_t shard_size(size_t n, const struct mw_sweep_opts *opts)
{
    size_t of = opts->n_shards > 0 ? (size_t)opts->n_shards : 1;
    size_t at = opts->n_shards > 0 ? (size_t)opts->shard - 1 : 0;

    return at < n ? (n - at + of - 1) / of : 0;
}

enum mw_status mw_sweep_run(const struct mw_scenario *scenario,
                            const struct mw_hwdb *db,
                            const struct mw_sweep_grid *grid,
                            const struct mw_sweep_opts *opts,
                            const struct mw_sweep_rows *known,
                            struct mw_sweep_rows *out, struct mw_err *err)
{
    size_t n = mw_sweep_points(grid), n_missing = 0;
    size_t step = opts->n_shards > 0 ? (size_t)opts->n_shards : 1;
    size_t first = opts->n_shards > 0 ? (size_t)opts->shard - 1 : 0;
    enum mw_status status = MW_OK;
    struct point *p = mw_calloc(1, sizeof *p);

    mw_arena_init(&out->arena);
    for (size_t i = first; i < n && status == MW_OK; i += step) {
        struct mw_sweep_row row;
        const struct mw_sweep_row *old;

        status =
            blame(scenario, grid,
                  make_point(scenario, db, opts->stack, grid, i, p, err), err);
        if (status != MW_OK) {
            break;
        }
        name_point(p, scenario, opts, &out->arena, &row);
        old = find_known(known, &row);
        if (old) {
            mw_sweep_copy(&out->arena, old, &row);
        } else if (opts->is_merge) {
            n_missing++;
            continue;
        } else {
            status = blame(scenario, grid,
                           search_point(p, opts, &out->arena, &row, err), err);
        }
        if (status == MW_OK) {
            mw_array_push(out, row);
            status =
                opts->csv && !old ? mw_sweep_write(out, opts->csv, err) : MW_OK;
        }
        if (opts->on_point) {
            opts->on_point(opts->arg, out->n, shard_size(n, opts));
        }
    }
    mw_free(p);
    if (status == MW_OK && opts->csv) {
        status = mw_sweep_write(out, opts->csv, err);
    }
    if (status == MW_OK && n_missing > 0) {
        status = mw_fail(err, MW_ENO, "%zu of %zu points are in no file",
                         n_missing, n);
    }
    return status;
}

void mw_sweep_rows_release(struct mw_sweep_rows *rows)
{
    mw_array_release(rows);
    mw_arena_release(&rows->arena);
}
