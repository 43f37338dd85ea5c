/*
 * What lies in the host's memory between uses, and its way there and back.
 *
 *   weights      come up before each pass of their layer (ZeRO-3: the rank's
 *                share, gathered then; Rajbhandari et al., "ZeRO-Infinity", SC
 *                2021, section 5)
 *   activations  of a layer go down after its forward pass and come up before
 *                its backward pass
 *   optimizer    (Ren et al., "ZeRO-Offload", USENIX ATC 2021) gradients go
 *                down: each layer's with its backward pass under ZeRO-2 and -3,
 *                once a step otherwise. The host's processors update, bound by
 *                its memory, while gradients come in and weights go out tile by
 *                tile; the device updates its own part meanwhile
 *
 * What of this lies on the node's drives (offload_nvme; Rajbhandari et al.,
 * section 5.1.2) takes the drives' rate as well as the link's, one after the
 * other for two layers at a time, so the slower counts. The optimizer's states
 * are read and written back each step, and so are the weights that it makes,
 * tile by tile beside the update; drives read and write in turn. Gradients wait
 * in memory.
 *
 * Ways of the two directions are apart and run beside the layer's work: what
 * is longer than that work is exposed. On a CPU nothing is hidden.
 *
 * Left out: the first layer's way of a pass (it is fetched under the pass
 * before), adding gradients up on the host, how
 * much the drives hold.
 */
#include "sim/step/step_int.h"

#include <math.h>

static double weight_share_bytes(const struct mw_step_price *p,
                                 const struct mw_unit_size *size)
{
    double dense = mw_unit_dense_bytes(p, size);
    double expert = mw_unit_expert_bytes(p, size);

    return p->layout->zero < 3 ? dense + expert
                               : mw_step_share(p, dense, expert);
}

/* Gradients of a unit that leave with it. */
static double grad_share_bytes(const struct mw_step_price *p,
                               const struct mw_unit_size *size)
{
    return p->layout->zero < 2
               ? 0
               : p->grad_bytes *
                     mw_step_share(p, size->dense_params, size->expert_params);
}

static double work_s(const struct mw_phase_cost *phase, enum mw_phase first,
                     enum mw_phase last)
{
    double sum = 0;

    for (int i = (int)first; i <= (int)last; i++) {
        for (int lane = 0; lane < MW_LANE_DP; lane++) {
            sum += phase[i].s[lane];
        }
    }
    return sum;
}

static bool on_nvme(const struct mw_step_price *p, enum mw_offload_nvme what)
{
    return ((unsigned)p->layout->offload_nvme & (unsigned)what) != 0;
}

/* read_bytes of what comes up are on drives. */
static void add_way(const struct mw_step_price *p, double up_bytes,
                    double read_bytes, double down_bytes, double window_s,
                    struct mw_phase_cost *out)
{
    bool is_cpu = p->ctx->gpu->is_cpu;
    double bytes = up_bytes + down_bytes;
    double read_s = read_bytes > 0 ? read_bytes / p->ctx->nvme_read_Bps : 0;
    double link_s = fmax(up_bytes, down_bytes) / p->ctx->host_link_Bps;

    out->s[MW_LANE_OFFLOAD] =
        is_cpu ? bytes / p->ctx->host_link_Bps + read_s
               : mw_step_exposed_s(fmax(link_s, read_s), 1, window_s);
    out->bytes[MW_LANE_OFFLOAD] = bytes;
}

void mw_offload_add(struct mw_step_price *p, enum mw_step_unit unit,
                    struct mw_explain *explain)
{
    struct mw_phase_cost *phase = p->cost[unit].phase;
    const struct mw_layout *l = p->layout;
    const struct mw_unit_size *size = &p->size[unit];
    double weights = l->offload_weights * weight_share_bytes(p, size);
    double kept = mw_unit_is_layer(unit)
                      ? l->offload_activations * size->activation_bytes
                      : 0;
    double grads = l->offload_optimizer * grad_share_bytes(p, size);
    double again = l->zero == 3 && !l->reshard ? 0 : weights;

    if (!mw_layout_offloads(l)) {
        return;
    }
    double from_nvme = on_nvme(p, MW_NVME_WEIGHTS) ? 1 : 0;

    add_way(p, weights, from_nvme * weights, kept,
            work_s(phase, MW_PHASE_F, MW_PHASE_F), &phase[MW_PHASE_F]);
    add_way(p, again + kept, from_nvme * again, grads,
            work_s(phase, MW_PHASE_R, MW_PHASE_W), &phase[MW_PHASE_B]);
    mw_explain_child(explain, "to and from the host's memory",
                     phase[MW_PHASE_F].s[MW_LANE_OFFLOAD] +
                         phase[MW_PHASE_B].s[MW_LANE_OFFLOAD],
                     "longer than the layer's own work", NULL);
}

/* Drives, once a step: states there and back, weights that were made. */
static double optimizer_nvme_s(const struct mw_step_price *p, double on_host)
{
    double read =
        on_nvme(p, MW_NVME_OPTIMIZER) ? on_host * p->optimizer_bytes : 0;
    double written = read;

    if (on_nvme(p, MW_NVME_WEIGHTS)) {
        written += on_host * p->layout->offload_weights * p->weight_bytes;
    }
    return written > 0
               ? read / p->ctx->nvme_read_Bps + written / p->ctx->nvme_write_Bps
               : 0;
}

double mw_offload_optimizer_s(const struct mw_step_price *p, double n)
{
    const struct mw_layout *l = p->layout;
    double on_host = l->offload_optimizer * n, down_s = 0, update_s, up_s;
    double drives_s;

    if (!(on_host > 0)) {
        return 0;
    }
    if (l->zero < 2) {
        down_s = on_host * p->grad_bytes / p->ctx->host_link_Bps;
    }
    update_s = on_host * (p->update_bytes + p->ctx->stack.host_pass_bytes) /
               p->ctx->host_adam_Bps;
    up_s = on_host * (1 - l->offload_weights) * p->weight_bytes /
           p->ctx->host_link_Bps;
    drives_s = optimizer_nvme_s(p, on_host);
    return p->ctx->gpu->is_cpu
               ? down_s + update_s + up_s + drives_s
               : fmax(fmax(update_s, drives_s), fmax(down_s, up_s));
}

/* ---- memory ----------------------------------------------------------------
 */
/* Of the device's kept activations those of layers: all chunks alike. */
static double layers_part(const struct mw_step_price *p,
                          const int n_units[MW_UNIT_COUNT])
{
    double layers = 0, all = 0;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        double bytes = n_units[unit] * p->size[unit].activation_bytes;

        all += bytes;
        layers += mw_unit_is_layer((enum mw_step_unit)unit) ? bytes : 0;
    }
    return all > 0 ? layers / all : 0;
}

/* Two units' worth on its way: the one at work and the next. */
static double staging_bytes(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT])
{
    const struct mw_layout *l = p->layout;
    double most = 0;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        const struct mw_unit_size *size = &p->size[unit];
        double bytes = l->offload_weights * weight_share_bytes(p, size) +
                       l->offload_optimizer * grad_share_bytes(p, size);

        if (mw_unit_is_layer((enum mw_step_unit)unit)) {
            bytes += l->offload_activations * size->activation_bytes;
        }
        most = n_units[unit] > 0 ? fmax(most, 2 * bytes) : most;
    }
    return most;
}

/* What is on drives leaves the host's memory but for two layers' worth of it,
 * the one that is used and the one that is read or written. */
static void move_to_nvme(const struct mw_step_price *p,
                         const int n_units[MW_UNIT_COUNT], double weights,
                         double states, struct mw_stage_memory *m)
{
    double n_layers = 0, moved;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        n_layers +=
            mw_unit_is_layer((enum mw_step_unit)unit) ? n_units[unit] : 0;
    }
    moved = (on_nvme(p, MW_NVME_WEIGHTS) ? weights : 0) +
            (on_nvme(p, MW_NVME_OPTIMIZER) ? states : 0);
    m->nvme_bytes = moved;
    m->host_bytes -= moved * (1 - fmin(1, 2 / fmax(n_layers, 1)));
}

/* Moves what is offloaded from the device's sums to the host's. */
void mw_offload_memory(const struct mw_step_price *p,
                       const int n_units[MW_UNIT_COUNT],
                       struct mw_stage_memory *m)
{
    const struct mw_layout *l = p->layout;
    double weights, states, grads, kept;

    m->host_bytes = m->nvme_bytes = 0;
    if (!mw_layout_offloads(l)) {
        return;
    }
    weights = l->offload_weights * m->weight_bytes;
    states = l->offload_optimizer * m->optimizer_bytes;
    grads = l->offload_optimizer * m->grad_bytes;
    kept =
        l->offload_activations * layers_part(p, n_units) * m->activation_bytes;
    m->host_bytes = weights + states + grads + kept;
    move_to_nvme(p, n_units, weights, states, m);
    m->weight_bytes -= weights;
    m->optimizer_bytes -= states;
    m->grad_bytes -= l->zero >= 2 ? grads : 0;
    m->activation_bytes -= kept;
    m->temporary_bytes += staging_bytes(p, n_units);
}
