/*
 * A point of a sweep: a copy of the scenario with some values replaced, and the
 * machine that they make; and the hash of the question that all points of a
 * sweep answer, by which a resumed one knows its rows.
 */
#include "base/file.h"
#include "planner/sweep_int.h"
#include "sim/cost/domain.h"

#include <inttypes.h>
#include <stdio.h>

static enum mw_status set_value(struct mw_sweep_point *p, enum mw_sweep_key key,
                                const char *value, struct mw_err *err)
{
    int64_t number = 0;

    if (mw_sweep_key_is_number(key)) {
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
static enum mw_status set_nics(struct mw_sweep_point *p, struct mw_err *err)
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

static void grow_batch(struct mw_sweep_point *p, const struct mw_scenario *from)
{
    int64_t per = from->workload.global_batch, n = from->cluster.n_nodes;
    int64_t scaled = per * p->scenario.cluster.n_nodes / n;

    p->scenario.workload.global_batch = scaled > 0 ? scaled : 1;
}

enum mw_status mw_sweep_point_make(const struct mw_scenario *from,
                                   const struct mw_hwdb *db, const char *stack,
                                   const struct mw_sweep_grid *grid,
                                   size_t index, struct mw_sweep_point *p,
                                   struct mw_err *err)
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
                           const struct mw_search_opts *o, const char *stack,
                           const struct mw_hwdb *db)
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
    if (o->vpp_group >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " group %d",
                      o->vpp_group);
    }
    if (o->fsdp_unit >= 0 || o->fsdp_prefetch >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " units %d %d",
                      o->fsdp_unit, o->fsdp_prefetch);
    }
    if (o->dtype >= 0 || o->grad_dtype >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " types %d %d",
                      o->dtype, o->grad_dtype);
    }
    if (o->main_params >= 0 || o->exp_avg >= 0 || o->exp_avg_sq >= 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " states %d %d %d",
                      o->main_params, o->exp_avg, o->exp_avg_sq);
    }
    if (o->offload_nvme > 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " nvme %d",
                      o->offload_nvme);
    }
    if (mw_hwdb_overlay_hash(db) != 0) {
        n += snprintf(text + n, sizeof text - (size_t)n, " hwdb %016" PRIx64,
                      mw_hwdb_overlay_hash(db));
    }
    return mw_hash64(from->hash, text, (size_t)n);
}
