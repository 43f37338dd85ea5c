/*
 * Memory of one rank of a pipeline device: parameter states by ZeRO stage,
 * the high-water mark of activations over the schedule's list, the largest
 * transient, and what is there beside tensors.
 *
 *   states per parameter, n ranks share a gradient:
 *     weights 2 (fp32: 4) / n from ZeRO-3 on, gradients (their dtype) / n
 *     from ZeRO-2 on, AdamW 12 (fp32: 8) / n from ZeRO-1 on; other optimizers
 *     and types of states: sim/model/optimizer.h
 *   (Rajbhandari et al., "ZeRO", SC 2020, figure 1); of what is frozen under
 *   adapters the weights alone, as they are stored
 *
 * less what lies in the host's memory (offload.c).
 * A micro-batch is held from its F to its W or BW: a schedule that splits the
 * backward pass frees at W. Left out: allocator reserve, fragmentation.
 */
#include "sim/step/step_int.h"

#include <math.h>

double mw_vstage_activation_bytes(const struct mw_step_price *p,
                                  const int n_units[MW_UNIT_COUNT])
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    double sum = 0;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        sum += n_units[unit] * p->size[unit].activation_bytes;
    }
    if (p->layout->pp > 1 && habit->pp_kept + habit->pp_sent > 0) {
        bool sends = n_units[MW_UNIT_HEAD] == 0;
        int wide = 1 + (p->layout->mtp_ahead > 0) * p->scenario->model.n_mtp;
        double in = sends ? 1 : wide;
        double out = sends ? (n_units[MW_UNIT_MTP] > 0 ? wide : 1) : 0;

        sum += ((in + out) * habit->pp_kept + out * habit->pp_sent) *
               mw_boundary_bytes(&p->work);
    }
    return sum;
}

double mw_schedule_high_water(const struct mw_schedule *s, int d,
                              const double *act)
{
    double held = 0, most = 0;

    for (uint32_t i = s->first[d]; i < s->first[d + 1]; i++) {
        const struct mw_slot *slot = &s->slot[i];
        double bytes =
            act[s->virtual_stage[d * s->n_chunks + slot->chunk]] / s->n_parts;

        if (slot->pass == MW_PASS_F) {
            held += bytes;
            most = fmax(most, held);
        }
        if (slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW ||
            s->is_forward_only) {
            held -= bytes;
        }
    }
    return most;
}

/* Communicators a rank has buffers for. */
static int n_communicators(const struct mw_layout *layout)
{
    return (layout->tp > 1) + (layout->cp > 1) + (layout->pp > 1) +
           (layout->dp > 1) + (layout->ep > 1);
}

/* Beside what the allocator holds. */
static double overhead_bytes(const struct mw_step_price *p)
{
    double context = p->ctx->stack.memory.context_bytes;

    return (context > 0 ? context : p->ctx->device_context_bytes) +
           n_communicators(p->layout) * p->ctx->comm_buffer_bytes;
}

/* ---- moments ---------------------------------------------------------------
 */
struct moment {
    double bytes; /* beside states, buffers and activations in flight */
    const char *name;
    double embedding_bytes; /* of them, only because of the embedding's */
    double update_bytes;    /* more than them, at the optimizer's step */
};

double mw_step_unit_bytes(const struct mw_step_price *p, enum mw_step_unit unit)
{
    return mw_unit_dense_bytes(p, &p->size[unit]) +
           mw_unit_expert_bytes(p, &p->size[unit]) +
           mw_step_copy_bytes(p, unit);
}

static double unit_bytes(const struct mw_step_price *p, int unit)
{
    return mw_step_unit_bytes(p, (enum mw_step_unit)unit);
}

/* Are the weights the master itself? */
static bool shards_master(const struct mw_step_price *p)
{
    return p->ctx->stack.memory.shards_master > 0 &&
           p->optimizer.main != MW_MAIN_NONE;
}

/* Are layers' weights gathered (or cast from the master) for each pass? */
static bool is_gathered(const struct mw_step_price *p)
{
    return (p->layout->zero == 3 && p->layout->reshard) || shards_master(p);
}

/* Gathered weights of a unit, and of the layers that are gathered ahead. */
static double gathered_bytes(const struct mw_step_price *p,
                             const int n_units[MW_UNIT_COUNT], int unit)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    bool is_root =
        !mw_unit_is_layer((enum mw_step_unit)unit) && habit->fsdp_root > 0;
    double layer = 0;

    if (is_gathered(p) && mw_layout_wraps(p->layout)) {
        return mw_fsdp_gathered_bytes(p, n_units, (enum mw_step_unit)unit,
                                      habit->fsdp_root > 0);
    }
    if (!is_gathered(p) || is_root) {
        return 0;
    }
    for (int next = 0; next < p->n_kinds; next++) {
        bool is_again = mw_unit_is_layer((enum mw_step_unit)next) &&
                        !mw_unit_is_kept((enum mw_step_unit)next);

        layer = is_again && n_units[next] > 0 ? fmax(layer, unit_bytes(p, next))
                                              : layer;
    }
    return unit_bytes(p, unit) + (habit->fsdp_units - 1) * layer;
}

/* Gradients of a unit that are not yet scattered. */
static double whole_grad_bytes(const struct mw_step_price *p,
                               const int n_units[MW_UNIT_COUNT], int unit)
{
    if (mw_layout_wraps(p->layout)) {
        return p->ctx->stack.memory.fsdp_grad_bytes *
               mw_fsdp_whole_params(p, n_units, (enum mw_step_unit)unit);
    }
    return p->layout->zero >= 2 || is_gathered(p)
               ? p->ctx->stack.memory.fsdp_grad_bytes *
                     (p->size[unit].dense_params + p->size[unit].expert_params +
                      mw_step_copy_params(p, (enum mw_step_unit)unit))
               : 0;
}

static void take_later(struct moment *most, double bytes, const char *name)
{
    if (bytes > most->bytes) {
        *most = (struct moment){.bytes = bytes, .name = name};
    }
}

/* What one micro-batch keeps on a virtual stage. */
static double pass_bytes(const struct mw_step_price *p,
                         const int n_units[MW_UNIT_COUNT])
{
    return mw_vstage_activation_bytes(p, n_units) / p->layout->vpp;
}

/*
 * The fullest moment of one micro-batch's backward pass, when most of them are
 * in flight. It begins with the head: a layer's comes when what the head kept
 * is gone, the embedding's when the whole pass's activations are.
 */
static struct moment fullest_moment(const struct mw_step_price *p,
                                    const int n_units[MW_UNIT_COUNT])
{
    double pass = pass_bytes(p, n_units);
    double gone[MW_UNIT_COUNT] = {[MW_UNIT_EMBEDDING] = pass};
    struct moment most = {.name = "activations"};
    double embedding = 0;

    if (n_units[MW_UNIT_HEAD] > 0) {
        for (int unit = 0; unit < p->n_kinds; unit++) {
            gone[unit] = mw_unit_is_layer((enum mw_step_unit)unit)
                             ? p->size[MW_UNIT_HEAD].activation_bytes
                             : gone[unit];
        }
        take_later(&most,
                   p->size[MW_UNIT_HEAD].loss_bytes +
                       gathered_bytes(p, n_units, MW_UNIT_HEAD),
                   "loss");
        if (p->size[MW_UNIT_HEAD].module_at != NULL) {
            take_later(&most,
                       p->size[MW_UNIT_HEAD].module_bytes +
                           gathered_bytes(p, n_units, MW_UNIT_HEAD),
                       p->size[MW_UNIT_HEAD].module_at);
        }
    }
    if (n_units[MW_UNIT_MTP] > 0) {
        for (int unit = 0; unit < p->n_kinds; unit++) {
            gone[unit] += mw_unit_is_layer((enum mw_step_unit)unit)
                              ? p->size[MW_UNIT_MTP].activation_bytes
                              : 0;
        }
        gone[MW_UNIT_MTP] = n_units[MW_UNIT_HEAD] > 0
                                ? p->size[MW_UNIT_HEAD].activation_bytes
                                : 0;
    }
    for (int unit = 0; unit < p->n_kinds; unit++) {
        const struct mw_unit_size *size = &p->size[unit];

        if (n_units[unit] == 0) {
            continue;
        }
        double bytes = size->transient_bytes + size->spread_bytes +
                       gathered_bytes(p, n_units, unit) +
                       whole_grad_bytes(p, n_units, unit) - gone[unit];

        if (unit == MW_UNIT_EMBEDDING) {
            embedding = bytes;
        } else {
            take_later(&most, bytes, size->transient_at);
        }
    }
    if (embedding > most.bytes) {
        most.embedding_bytes = embedding - most.bytes;
        most.bytes = embedding;
        most.name = p->size[MW_UNIT_EMBEDDING].transient_at;
    }
    return most;
}

/* ---- a stage ---------------------------------------------------------------
 */
/* Also under adapters, where the frozen weights are most of it. What ZeRO-3
 * has gathered and keeps is apart. */
static double weight_bytes(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT], int copies,
                           double *out_whole)
{
    double dense = 0, expert = 0, share;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        dense += n_units[unit] * mw_unit_dense_bytes(p, &p->size[unit]);
        expert += n_units[unit] * mw_unit_expert_bytes(p, &p->size[unit]);
    }
    if (copies > 0) {
        dense += copies * (mw_step_tied_params(p) * p->weight_bytes +
                           mw_step_tied_frozen_bytes(p));
    }
    *out_whole = dense + expert;
    share = mw_step_share(p, dense, expert) +
            mw_zero_node_copy_bytes(p, dense, expert);
    return p->layout->zero < 3 ? dense + expert : share;
}

/* What learns: of the rank, and of it by the gradient's group. */
struct learning {
    double whole, share;
};

static struct learning learning_of(const struct mw_step_price *p,
                                   const int n_units[MW_UNIT_COUNT], int copies)
{
    double dense = 0, expert = 0;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        dense += n_units[unit] * p->size[unit].dense_params;
        expert += n_units[unit] * p->size[unit].expert_params;
    }
    if (copies > 0) {
        dense += copies * mw_step_tied_params(p);
    }
    return (struct learning){dense + expert, mw_step_share(p, dense, expert)};
}

static double dummy_params(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT])
{
    double sum = 0;

    for (int unit = 0; unit < p->n_kinds; unit++) {
        sum += n_units[unit] > 0 ? p->size[unit].dummy_params : 0;
    }
    for (int moe = 0; moe < 2; moe++) { /* the same shapes as without it */
        int local = (int)mw_unit_of(moe, true, false);

        if (n_units[local] > 0 && n_units[mw_unit_of(moe, false, false)] > 0) {
            sum -= p->size[local].dummy_params;
        }
    }
    return n_units[MW_UNIT_DENSE] + n_units[MW_UNIT_DENSE_LOCAL] > 0 &&
                   n_units[MW_UNIT_MOE] + n_units[MW_UNIT_MOE_LOCAL] > 0
               ? sum - p->size[MW_UNIT_MOE].twin_dummies
               : sum;
}

/* A hidden state of the rank's tokens, whole and under sp its part. */
static double buffers_of(const struct mw_step_price *p,
                         const int n_units[MW_UNIT_COUNT],
                         const struct learning *n)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    const struct mw_layout *l = p->layout;
    double bytes = habit->workspace_bytes * mw_step_bucket_growth(p) +
                   habit->param_bytes * (l->zero >= 3 ? n->share : n->whole) +
                   habit->dummy_bytes * dummy_params(p, n_units);

    if (n_units[MW_UNIT_MOE] + n_units[MW_UNIT_MOE_LOCAL] > 0) {
        bytes += habit->moe_workspace_bytes;
    }
    if (l->sp && l->tp > 1) {
        bytes += habit->sp_buffers * l->tp * mw_boundary_bytes(&p->work);
    }
    if (is_gathered(p)) {
        bytes +=
            habit->fsdp_root *
            (n_units[MW_UNIT_EMBEDDING] * unit_bytes(p, MW_UNIT_EMBEDDING) +
             n_units[MW_UNIT_HEAD] * unit_bytes(p, MW_UNIT_HEAD));
    }
    return bytes;
}

/* The optimizer's step, when a pass's tensors are gone: copies of gradients and
 * what it works with, on the device. */
static void take_update(const struct mw_step_price *p, const struct learning *n,
                        struct moment *most, struct mw_stage_memory *m)
{
    const struct mw_layout *l = p->layout;
    double bytes = p->ctx->stack.memory.update_bytes *
                   (l->zero >= 1 ? n->share : n->whole) *
                   (1 - l->offload_optimizer);
    double more = bytes - m->activation_bytes - m->temporary_bytes;

    if (more > 0) {
        m->temporary_bytes += more;
        m->moment = "optimizer's step";
        most->update_bytes = more;
    }
}

/* Before training: loading may be fuller than any moment of a step. */
static void take_loading(const struct mw_step_price *p, double whole,
                         struct mw_stage_memory *m)
{
    double step = m->grad_bytes + m->optimizer_bytes + m->activation_bytes +
                  m->temporary_bytes;
    double more = p->ctx->stack.memory.load_whole * whole - step;

    if (p->layout->zero == 3 && more > 0) {
        m->temporary_bytes += more;
        m->moment = "loading";
    }
}

/* Held where there is room, and given back before the device is full (PyTorch,
 * c10/cuda/CUDACachingAllocator.cpp: waits for streams, then frees what is
 * cached, and only then fails). */
static double roomy_bytes(const struct mw_step_price *p,
                          const struct learning *n)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    const struct mw_layout *l = p->layout;
    double queued = l->sp && l->tp > 1 ? habit->reserve_queued * l->tp *
                                             mw_boundary_bytes(&p->work)
                                       : 0;

    return queued + habit->reserve_param_bytes * n->whole +
           habit->reserve_shard_bytes * (l->zero >= 1 ? n->share : n->whole);
}

/* What the caching allocator holds for the stage's tensors, at the median: a
 * gradient with a segment of its own is no blocks of others, nor is what the
 * optimizer's step alone needs; that it holds as far as there is room, and at
 * least what is alive. */
static double reserved_bytes(const struct mw_step_price *p,
                             const int n_units[MW_UNIT_COUNT],
                             const struct learning *n,
                             const struct moment *most,
                             const struct mw_stage_memory *m)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    bool has_vocab = n_units[MW_UNIT_EMBEDDING] + n_units[MW_UNIT_HEAD] > 0;
    double vocab = has_vocab && habit->reserve_vocab_bytes > 0
                       ? habit->reserve_vocab_bytes * mw_step_tied_params(p)
                       : 0;
    double own = fmin(most->embedding_bytes, vocab) + most->update_bytes;
    double needed =
        (m->total_bytes - m->overhead_bytes - own) * habit->reserve_factor +
        (m->activation_bytes + m->temporary_bytes - own) *
            habit->reserve_moving +
        (p->layout->pp > 1 && habit->reserve_pass > 0
             ? habit->reserve_pass * pass_bytes(p, n_units)
             : 0) +
        vocab;
    double room = mw_step_capacity_bytes(p->scenario, p->ctx) -
                  m->overhead_bytes - needed;

    return fmax(needed + fmax(0, fmin(room, roomy_bytes(p, n))),
                m->total_bytes - m->overhead_bytes);
}

/* Of fp32 masters, what the weights are themselves. */
static double shared_bytes(const struct mw_step_price *p,
                           const struct learning *n)
{
    const struct mw_stack_memory *habit = &p->ctx->stack.memory;
    int zero = p->layout->zero;

    if (shards_master(p)) {
        return p->weight_bytes * (zero >= 3 ? n->share : n->whole);
    }
    return habit->remainders > 0 && p->optimizer.main == MW_MAIN_FP32
               ? 2 * (zero >= 1 ? n->share : n->whole)
               : 0;
}

void mw_stage_memory_of(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                        double activation_bytes, struct mw_stage_memory *out)
{
    const int zero = p->layout->zero;
    int copies = has_tied_twin ? mw_step_copies_held(p, n_units) : 0;
    struct learning n = learning_of(p, n_units, copies);
    struct moment most = fullest_moment(p, n_units);
    double whole;

    out->weight_bytes = weight_bytes(p, n_units, copies, &whole);
    out->grad_bytes = p->grad_bytes * (zero >= 2 ? n.share : n.whole);
    out->optimizer_bytes = p->optimizer_bytes * (zero >= 1 ? n.share : n.whole);
    out->optimizer_bytes +=
        mw_step_update_of(p, n_units, has_tied_twin).state_bytes;
    if (p->has_main) {
        out->optimizer_bytes -= shared_bytes(p, &n);
    }
    out->optimizer_bytes += mw_onebit_error_bytes(p, n.whole, n.share);
    out->activation_bytes = activation_bytes;
    out->temporary_bytes = most.bytes;
    out->moment = most.name;
    out->buffer_bytes = buffers_of(p, n_units, &n);
    mw_offload_memory(p, n_units, out);
    out->weight_bytes += zero == 3 && !p->layout->reshard ? whole : 0;
    take_update(p, &n, &most, out);
    take_loading(p, whole, out);
    out->overhead_bytes = overhead_bytes(p);
    out->total_bytes = out->weight_bytes + out->grad_bytes +
                       out->optimizer_bytes + out->activation_bytes +
                       out->temporary_bytes + out->buffer_bytes +
                       out->overhead_bytes;
    out->reserved_bytes = reserved_bytes(p, n_units, &n, &most, out);
    out->n_parts = 0;
}

double mw_step_capacity_bytes(const struct mw_scenario *scenario,
                              const struct mw_cost_ctx *ctx)
{
    return scenario->limits.memory_bytes > 0 ? scenario->limits.memory_bytes
                                             : ctx->gpu->mem_bytes;
}

double mw_step_usable_bytes(const struct mw_scenario *scenario,
                            const struct mw_cost_ctx *ctx)
{
    const struct mw_limits *limits = &scenario->limits;
    double capacity = mw_step_capacity_bytes(scenario, ctx);

    return limits->has_memory_fraction || ctx->gpu->is_cpu
               ? capacity * limits->memory_fraction
               : capacity / ((1 + ctx->stack.memory.error) *
                             ctx->stack.memory.reserve_factor);
}
