/*
 * Memory of one rank of a pipeline device: parameter states by ZeRO stage,
 * the high-water mark of activations over the schedule's list, the largest
 * transient, and what is there beside tensors.
 *
 *   states per parameter, n ranks share a gradient:
 *     weights 2 (fp32: 4) / n from ZeRO-3 on, gradients (their dtype) / n
 *     from ZeRO-2 on, AdamW 12 (fp32: 8) / n from ZeRO-1 on
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
    double sum = 0;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        sum += n_units[unit] * p->size[unit].activation_bytes;
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

static double transient_bytes(const struct mw_step_price *p,
                              const int n_units[MW_UNIT_COUNT])
{
    double most = 0;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        const struct mw_unit_size *size = &p->size[unit];
        double bytes = fmax(size->recompute_bytes, size->transient_bytes);

        if (p->layout->zero == 3 && p->layout->reshard) {
            /* this unit's weights and the next's */
            bytes += 2 * (mw_unit_dense_bytes(p, size) +
                          mw_unit_expert_bytes(p, size));
        }
        bytes += size->spread_bytes;
        if (n_units[unit] > 0) {
            most = fmax(most, bytes);
        }
    }
    return most;
}

/* Also under adapters, where the frozen weights are most of it. What ZeRO-3
 * has gathered and keeps is apart. */
static double weight_bytes(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                           double *out_gathered)
{
    double dense = 0, expert = 0, share;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        dense += n_units[unit] * mw_unit_dense_bytes(p, &p->size[unit]);
        expert += n_units[unit] * mw_unit_expert_bytes(p, &p->size[unit]);
    }
    if (has_tied_twin && n_units[MW_UNIT_HEAD] > 0) {
        dense += mw_step_tied_params(p) * p->weight_bytes +
                 mw_step_tied_frozen_bytes(p);
    }
    *out_gathered = p->layout->reshard ? 0 : dense + expert;
    share = dense / p->grad_group.n_ranks + expert / p->expert_group.n_ranks;
    return p->layout->zero < 3 ? dense + expert : share;
}

void mw_stage_memory_of(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                        double activation_bytes, struct mw_stage_memory *out)
{
    const int zero = p->layout->zero;
    double dense = 0, expert = 0;
    double n = p->grad_group.n_ranks, n_expert = p->expert_group.n_ranks;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        dense += n_units[unit] * p->size[unit].dense_params;
        expert += n_units[unit] * p->size[unit].expert_params;
    }
    if (has_tied_twin && n_units[MW_UNIT_HEAD] > 0) {
        dense += mw_step_tied_params(p);
    }
    double whole = dense + expert, share = dense / n + expert / n_expert;
    double gathered;

    out->weight_bytes = weight_bytes(p, n_units, has_tied_twin, &gathered);
    out->grad_bytes = p->grad_bytes * (zero >= 2 ? share : whole);
    out->optimizer_bytes = p->optimizer_bytes * (zero >= 1 ? share : whole);
    out->activation_bytes = activation_bytes;
    out->temporary_bytes = transient_bytes(p, n_units);
    mw_offload_memory(p, n_units, out);
    out->weight_bytes += gathered;
    out->overhead_bytes =
        p->ctx->device_context_bytes +
        n_communicators(p->layout) * p->ctx->comm_buffer_bytes;
    out->total_bytes = out->weight_bytes + out->grad_bytes +
                       out->optimizer_bytes + out->activation_bytes +
                       out->temporary_bytes + out->overhead_bytes;
}

double mw_step_capacity_bytes(const struct mw_scenario *scenario,
                              const struct mw_cost_ctx *ctx)
{
    return scenario->limits.memory_bytes > 0 ? scenario->limits.memory_bytes
                                             : ctx->gpu->mem_bytes;
}
