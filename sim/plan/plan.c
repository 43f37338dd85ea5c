/*
 * Plans in memory: made from a layout, hashed, released.
 *
 * The hash covers what decides how the plan runs (layout, layers per virtual
 * stage, every slot of the schedule) and nothing else: names, files and
 * predicted figures may change without a timeline losing its plan.
 */
#include "sim/plan/plan_int.h"

#include "base/file.h"

#include <string.h>

int mw_plan_even_share(int n_layers, int n_virtual, int k)
{
    int spare = n_virtual - n_layers; /* stages without a layer: ends */

    return spare > 0 ? k < n_virtual - 1 && (spare < 2 || k > 0)
                     : n_layers / n_virtual + (k < n_layers % n_virtual);
}

void mw_plan_even_layers(int n_layers, int n_virtual, int *out)
{
    for (int k = 0; k < n_virtual; k++) {
        out[k] = mw_plan_even_share(n_layers, n_virtual, k);
    }
}

int mw_plan_even_share_of(const struct mw_model *model,
                          const struct mw_layout *layout, int k)
{
    int n = layout->pp * layout->vpp, before = n - 2; /* stages */

    if (layout->mtp_ahead == 0) {
        return mw_plan_even_share(model->n_layers, n, k);
    }
    int beside = (model->n_layers + model->n_mtp) / (n - 1) - model->n_mtp;
    int left = model->n_layers - (beside > 0 ? beside : 0);

    if (k >= before) {
        return k == before ? model->n_layers - left : 0;
    }
    return left < before ? k > 0 : mw_plan_even_share(left, before, k);
}

void mw_plan_even_of(const struct mw_model *model,
                     const struct mw_layout *layout, int *out)
{
    for (int k = 0; k < layout->pp * layout->vpp; k++) {
        out[k] = mw_plan_even_share_of(model, layout, k);
    }
}

bool mw_plan_is_even(const struct mw_plan *plan)
{
    for (int k = 1; k < plan->n_virtual; k++) {
        if (plan->layers[k] != plan->layers[0]) {
            return false;
        }
    }
    return true;
}

static void copy_list(struct mw_arena *arena, struct mw_int_list *list)
{
    if (list->n > 0) {
        int64_t *v = mw_arena_alloc(arena, list->n, sizeof *v);

        memcpy(v, list->v, list->n * sizeof *v);
        list->v = v;
    }
}

enum mw_status mw_plan_check_recomputed(const struct mw_plan *plan,
                                        struct mw_err *err)
{
    const struct mw_int_list *list = &plan->layout.stage_recompute_layers;

    for (int k = 0; k < plan->n_virtual && list->n > 0; k++) {
        if (list->v[k] > plan->layers[k]) {
            return mw_fail(err, MW_EINPUT,
                           "stage_recompute_layers asks for %lld layers of "
                           "virtual stage %d, which has %d",
                           (long long)list->v[k], k, plan->layers[k]);
        }
    }
    return MW_OK;
}

struct mw_layout mw_plan_copy_layout(struct mw_arena *arena,
                                     const struct mw_layout *layout)
{
    struct mw_layout copy = *layout;

    copy.schedule = mw_arena_strdup(arena, layout->schedule);
    copy.order = mw_arena_strdup(arena, layout->order);
    copy_list(arena, &copy.nodes);
    copy_list(arena, &copy.stage_recompute_layers);
    return copy;
}

/* Chunks of a device: a bidirectional schedule holds one of each route
 * whatever vpp says; other kinds hold vpp. */
static int chunks_of(const struct mw_layout *layout)
{
    const struct mw_sched_kind *kind = mw_schedule_kind_find(layout->schedule);

    if (kind != NULL && kind->min_chunks > layout->vpp) {
        return kind->min_chunks;
    }
    return layout->vpp;
}

enum mw_status mw_plan_make_schedule(struct mw_plan *plan, struct mw_err *err)
{
    const struct mw_layout *layout = &plan->layout;
    struct mw_sched_args args = {.n_stages = layout->pp,
                                 .n_microbatches = plan->n_microbatches,
                                 .n_chunks = chunks_of(layout),
                                 .n_parts =
                                     plan->n_parts > 0 ? plan->n_parts : 1,
                                 .group = layout->vpp_group};
    enum mw_status status =
        mw_schedule_make(layout->schedule, &args, &plan->schedule, err);

    if (status != MW_OK) {
        return status;
    }
    if (plan->n_parts > 0 && plan->schedule.n_parts != plan->n_parts) {
        status =
            mw_fail(err, MW_EUSAGE, "schedule %s has %d parts, not %d",
                    layout->schedule, plan->schedule.n_parts, plan->n_parts);
        mw_schedule_release(&plan->schedule);
        return status;
    }
    if (plan->schedule.route_len != plan->n_virtual) {
        status = mw_fail(err, MW_EUSAGE, "schedule %s needs vpp %d, not %d",
                         layout->schedule,
                         plan->schedule.route_len / layout->pp, layout->vpp);
        mw_schedule_release(&plan->schedule);
    }
    return status;
}

static enum mw_status take_layers(struct mw_plan *plan,
                                  const struct mw_model *model,
                                  const int *layers, struct mw_err *err)
{
    int64_t sum = 0;

    plan->n_virtual = plan->layout.pp * plan->layout.vpp;
    plan->layers =
        mw_arena_alloc(&plan->arena, (size_t)plan->n_virtual, sizeof(int));
    if (layers == NULL) {
        mw_plan_even_of(model, &plan->layout, plan->layers);
        return MW_OK;
    }
    for (int k = 0; k < plan->n_virtual; k++) {
        if (layers[k] < 0) {
            return mw_fail(err, MW_EINPUT, "virtual stage %d has %d layers", k,
                           layers[k]);
        }
        plan->layers[k] = layers[k];
        sum += layers[k];
    }
    if (sum != model->n_layers) {
        return mw_fail(err, MW_EINPUT,
                       "the layers of %d virtual stages sum to %lld but the "
                       "model has %d",
                       plan->n_virtual, (long long)sum, model->n_layers);
    }
    if (plan->layout.mtp_ahead > 0 && plan->layers[plan->n_virtual - 1] > 0) {
        return mw_fail(err, MW_EINPUT,
                       "mtp_ahead 1 leaves the last virtual stage to the head, "
                       "but it has %d layers",
                       plan->layers[plan->n_virtual - 1]);
    }
    return MW_OK;
}

enum mw_status mw_plan_make(const struct mw_scenario *scenario,
                            const struct mw_layout *layout, const int *layers,
                            struct mw_plan *out, struct mw_err *err)
{
    struct mw_plan plan = {.scenario_hash = scenario->hash};
    int n_ranks = scenario->cluster.n_nodes * scenario->cluster.gpus_per_node;
    const char *rule = NULL;
    enum mw_status status = mw_layout_check(
        layout, &scenario->model, &scenario->workload, n_ranks, &rule, err);

    if (status != MW_OK) {
        mw_err_set_key(err, "layout", mw_layout_rule_key(rule));
        return status;
    }
    mw_arena_init(&plan.arena);
    plan.layout = mw_plan_copy_layout(&plan.arena, layout);
    plan.name = mw_arena_strdup(&plan.arena, scenario->name);
    plan.scenario_file = mw_arena_strdup(
        &plan.arena, scenario->file != NULL ? scenario->file : "");
    plan.n_microbatches = mw_microbatches(layout, &scenario->workload);
    status = take_layers(&plan, &scenario->model, layers, err);
    if (status != MW_OK) {
        mw_err_set_key(err, "layout", "layers");
    } else if ((status = mw_plan_check_recomputed(&plan, err)) != MW_OK) {
        mw_err_set_key(err, "layout", "stage_recompute_layers");
    } else {
        status = mw_plan_make_schedule(&plan, err);
        if (status != MW_OK) {
            mw_err_set_key(err, "layout", "schedule");
        }
    }
    if (status != MW_OK) {
        mw_arena_release(&plan.arena);
        return status;
    }
    *out = plan;
    return MW_OK;
}

void mw_plan_release(struct mw_plan *plan)
{
    mw_schedule_release(&plan->schedule);
    mw_arena_release(&plan->arena);
    memset(plan, 0, sizeof *plan);
}

int mw_plan_first_layer(const struct mw_plan *plan, int virtual_stage)
{
    int first = 0;

    for (int k = 0; k < virtual_stage; k++) {
        first += plan->layers[k];
    }
    return first;
}

/* ---- hash ------------------------------------------------------------------
 */
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

    memcpy(&bits, &v, sizeof bits);
    return hash_int(h, bits);
}

/* Keys that layouts got later count where they differ from their defaults: a
 * timeline of an older plan stays that plan's. */
static uint64_t hash_young_keys(uint64_t h, const struct mw_layout *l)
{
    if (l->recompute_layers > 0) {
        h = hash_int(mw_hash64(h, "recompute_layers", 16), l->recompute_layers);
    }
    for (size_t k = 0; k < l->stage_recompute_layers.n; k++) {
        h = hash_int(k > 0 ? h : mw_hash64(h, "stage_recompute_layers", 22),
                     l->stage_recompute_layers.v[k]);
    }
    if (l->recompute_modules != 0) {
        h = hash_int(mw_hash64(h, "recompute_modules", 17),
                     l->recompute_modules);
    }
    if (l->overlap_off != 0) {
        h = hash_int(mw_hash64(h, "overlap_off", 11), l->overlap_off);
    }
    if (l->domain_nodes > 0) {
        h = hash_int(mw_hash64(h, "domain_nodes", 12), l->domain_nodes);
    }
    for (size_t i = 0; i < l->nodes.n; i++) {
        h = hash_int(i > 0 ? h : mw_hash64(h, "nodes", 5), l->nodes.v[i]);
    }
    if (l->cp_form != MW_CP_GATHER) {
        h = hash_int(mw_hash64(h, "cp_form", 7), (int64_t)l->cp_form);
    }
    if (l->cp_inner > 1) {
        h = hash_int(mw_hash64(h, "cp_inner", 8), l->cp_inner);
    }
    if (l->cuda_graph != MW_GRAPH_STACK) {
        h = hash_int(mw_hash64(h, "cuda_graph", 10), (int)l->cuda_graph);
    }
    if (l->dispatcher != MW_DISPATCH_STACK) {
        h = hash_int(mw_hash64(h, "dispatcher", 10), (int)l->dispatcher);
    }
    if (l->overlap_shared_experts) {
        h = hash_int(mw_hash64(h, "overlap_shared_experts", 22), 1);
    }
    if (l->bucket_size > 0) {
        h = hash_int(mw_hash64(h, "bucket_size", 11), l->bucket_size);
    }
    if (l->vpp_group > 0) {
        h = hash_int(mw_hash64(h, "vpp_group", 9), l->vpp_group);
    }
    if (l->mtp_ahead > 0) {
        h = hash_int(mw_hash64(h, "mtp_ahead", 9), l->mtp_ahead);
    }
    if (l->dp_shard > 0) {
        h = hash_int(mw_hash64(h, "dp_shard", 8), l->dp_shard);
    }
    if (!l->reshard) {
        h = mw_hash64(h, "no reshard", 10);
    }
    if (l->fsdp_unit != 1) {
        h = hash_int(mw_hash64(h, "fsdp_unit", 9), l->fsdp_unit);
    }
    if (l->fsdp_prefetch >= 0) {
        h = hash_int(mw_hash64(h, "fsdp_prefetch", 13), l->fsdp_prefetch);
    }
    if (l->grad_compression != MW_COMPRESS_NONE) {
        h = hash_int(mw_hash64(h, "grad_compression", 16),
                     (int64_t)l->grad_compression);
    }
    if (l->offload_nvme != MW_NVME_NONE) {
        h = hash_int(mw_hash64(h, "offload_nvme", 12),
                     (int64_t)l->offload_nvme);
    }
    if (l->dtype != MW_DTYPE_OF_WORKLOAD) {
        h = hash_int(mw_hash64(h, "dtype", 5), l->dtype);
    }
    if (l->grad_dtype != MW_DTYPE_OF_WORKLOAD) {
        h = hash_int(mw_hash64(h, "grad_dtype", 10), l->grad_dtype);
    }
    if (l->main_params + l->exp_avg + l->exp_avg_sq > 0) {
        h = hash_int(mw_hash64(h, "states", 6), l->main_params);
        h = hash_int(hash_int(h, l->exp_avg), l->exp_avg_sq);
    }
    if (mw_layout_offloads(l)) {
        h = hash_num(mw_hash64(h, "offload", 7), l->offload_optimizer);
        h = hash_num(hash_num(h, l->offload_weights), l->offload_activations);
    }
    return h;
}

static uint64_t hash_layout(uint64_t h, const struct mw_layout *l)
{
    const int v[] = {
        l->tp,   l->sp, l->cp,  l->pp,          l->vpp,           l->dp,
        l->zero, l->ep, l->etp, l->micro_batch, (int)l->recompute};

    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        h = hash_int(h, v[i]);
    }
    h = mw_hash64(h, l->order, strlen(l->order) + 1);
    return hash_young_keys(h, l);
}

static uint64_t hash_schedule(uint64_t h, const struct mw_schedule *s)
{
    h = hash_int(h, s->n_stages);
    h = hash_int(h, s->n_microbatches);
    h = hash_int(h, s->n_chunks);
    h = hash_int(h, (int64_t)s->placement);
    for (int d = 0; d < s->n_stages; d++) {
        h = hash_int(h, (int64_t)(s->first[d + 1] - s->first[d]));
        for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
            h = hash_int(h, s->slot[i].microbatch);
            h = hash_int(h, s->slot[i].chunk);
            h = hash_int(h, s->slot[i].pass * 256 + s->slot[i].flags);
        }
    }
    return h;
}

uint64_t mw_plan_hash(const struct mw_plan *plan)
{
    uint64_t h = hash_layout(MW_HASH_INIT, &plan->layout);

    for (int k = 0; k < plan->n_virtual; k++) {
        h = hash_int(h, plan->layers[k]);
    }
    return hash_schedule(h, &plan->schedule);
}
