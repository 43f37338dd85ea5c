/*
 * ZeRO-2 and -3 in a unit (Rajbhandari et al., SC 2020, section 5): the
 * gradients of a layer are scattered, and under ZeRO-3 its parameters gathered,
 * once per micro-batch and pass. On a GPU the neighbour layer's work hides the
 * part that the stack's overlap_fsdp says; what is longer than that work is
 * exposed in the DP lane, and so are the first gather and the last scatter of a
 * pass. On a CPU nothing is hidden. With dp_shard each scatter is followed by
 * an all-reduce of the shares over the replicas (Zhao et al., "PyTorch FSDP",
 * VLDB 2023, section 3.2.2); with reshard false what was gathered forward is
 * there backward; with ZeRO++ both are smaller (zero_colls.c).
 */
#include "sim/step/hide.h"

#include <math.h>

/* What a unit gathers forward and backward, and scatters. */
struct sharded {
    struct mw_zero_colls colls;
    double gather_s, again_s, scatter_s;
    struct mw_comm_load forward, backward;
};

static void fill_sharded(const struct mw_step_price *p, enum mw_step_unit unit,
                         struct sharded *out)
{
    const struct mw_unit_size *size = &p->size[unit];
    double dense = size->dense_params + mw_step_copy_params(p, unit);
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};

    mw_zero_unit_colls(p, unit, groups, &out->colls);
    out->gather_s = mw_zero_colls_s(p, &out->colls, MW_ZERO_FORWARD);
    out->again_s = mw_zero_colls_s(p, &out->colls, MW_ZERO_BACKWARD);
    out->forward = (struct mw_comm_load){.time_s = out->gather_s};
    out->backward = (struct mw_comm_load){
        .time_s =
            out->again_s + mw_zero_colls_s(p, &out->colls, MW_ZERO_SCATTER)};
    out->scatter_s = out->backward.time_s - out->again_s +
                     mw_step_replicas_s(p, dense, size->expert_params, 1);
    mw_zero_colls_load(p, &out->colls, MW_ZERO_FORWARD, &out->forward);
    mw_zero_colls_load(p, &out->colls, MW_ZERO_BACKWARD, &out->backward);
    mw_zero_colls_load(p, &out->colls, MW_ZERO_SCATTER, &out->backward);
}

/* Phases of a unit, and how long they take without what is sharded. */
struct span {
    enum mw_phase first, last;
    double work_s;
};

/* A transfer beside such phases, whose compute it slows. */
static struct mw_overlapped beside_passes(struct mw_step_price *p,
                                          enum mw_step_unit unit,
                                          struct span span, double transfer_s,
                                          double overlap,
                                          const struct mw_comm_load *load)
{
    struct mw_phase_cost *phase = p->cost[unit].phase;
    double compute_s = 0, matrix_s = 0;

    for (int i = (int)span.first; i <= (int)span.last; i++) {
        compute_s += phase[i].s[MW_LANE_COMPUTE];
        matrix_s += phase[i].matrix_s;
    }
    double growth =
        mw_step_work_growth(p, load, span.work_s, compute_s, matrix_s);
    struct mw_overlapped at =
        mw_step_beside(transfer_s, overlap, span.work_s, growth);

    for (int i = (int)span.first; i <= (int)span.last && at.slowed_s > 0; i++) {
        phase[i].s[MW_LANE_COMPUTE] *= 1 + at.slowed_s / compute_s;
    }
    return at;
}

/* Gathers and scatters beside the work of the unit's neighbours, taken to be
 * like it. Returns how much longer that takes. */
static double expose(struct mw_step_price *p, enum mw_step_unit unit,
                     const struct sharded *z)
{
    struct mw_phase_cost *phase = p->cost[unit].phase;
    double overlap = p->ctx->stack.overlap_fsdp;
    bool gathers = (p->layout->overlap_off & MW_OVERLAP_PARAMS) == 0;
    bool scatters = (p->layout->overlap_off & MW_OVERLAP_GRADS) == 0;
    double beside_s =
        (gathers ? z->again_s : 0) + (scatters ? z->scatter_s : 0);
    struct span f = {MW_PHASE_F, MW_PHASE_F, 0},
                b = {MW_PHASE_R, MW_PHASE_W, 0};

    if (overlap > 0) {
        f.work_s = mw_step_blocking_s(&phase[MW_PHASE_F]);
        b.work_s = mw_step_blocking_s(&phase[MW_PHASE_R]) +
                   mw_step_blocking_s(&phase[MW_PHASE_B]) +
                   mw_step_blocking_s(&phase[MW_PHASE_W]);
        p->fetch_s =
            fmax(p->fetch_s, gathers ? fmin(z->gather_s, f.work_s) : 0);
        p->flush_s =
            fmax(p->flush_s, scatters ? fmin(z->scatter_s, b.work_s) : 0);
    }
    struct mw_overlapped forward = beside_passes(
        p, unit, f, z->gather_s, gathers ? overlap : 0, &z->forward);
    struct mw_overlapped backward =
        beside_passes(p, unit, b, beside_s, overlap, &z->backward);

    phase[MW_PHASE_F].s[MW_LANE_DP] = forward.shown_s;
    phase[MW_PHASE_W].s[MW_LANE_DP] =
        backward.shown_s + (z->again_s + z->scatter_s - beside_s);
    return forward.slowed_s + backward.slowed_s;
}

static void explain_exposed(const struct mw_phase_cost phase[MW_PHASE_COUNT],
                            double slowed_s, struct mw_explain *explain)
{
    mw_explain_child(explain, "ZeRO gather and scatter",
                     phase[MW_PHASE_F].s[MW_LANE_DP] +
                         phase[MW_PHASE_W].s[MW_LANE_DP],
                     "longer than the layer's own work", NULL);
    if (slowed_s > 0) {
        mw_explain_child(
            explain, "passes beside gather and scatter", slowed_s,
            "slower while those take multiprocessors and memory bandwidth",
            NULL);
    }
}

void mw_step_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                      struct mw_explain *explain)
{
    struct mw_phase_cost *phase = p->cost[unit].phase;
    const struct mw_unit_size *size = &p->size[unit];
    double dense = size->dense_params + mw_step_copy_params(p, unit);
    bool wraps = mw_layout_wraps(p->layout); /* stage by stage, fsdp_units.c */
    struct sharded z;

    if (p->layout->zero < 2) {
        return;
    }
    fill_sharded(p, unit, &z);
    phase[MW_PHASE_F].s[MW_LANE_COMPUTE] += mw_zero_spread_s(p, unit);
    phase[MW_PHASE_W].s[MW_LANE_COMPUTE] += mw_zero_pack_s(p, unit);
    double slowed_s = wraps ? 0 : expose(p, unit, &z);

    phase[MW_PHASE_F].bytes[MW_LANE_DP] =
        mw_zero_colls_bytes(&z.colls, MW_ZERO_FORWARD);
    phase[MW_PHASE_W].bytes[MW_LANE_DP] =
        mw_zero_colls_bytes(&z.colls, MW_ZERO_BACKWARD) +
        mw_zero_colls_bytes(&z.colls, MW_ZERO_SCATTER) +
        mw_step_replicas_bytes(p, dense, size->expert_params);
    if (p->wires != NULL) {
        mw_wires_add_zero(p, unit, &z.colls);
    }
    if (!wraps) {
        explain_exposed(phase, slowed_s, explain);
    }
}
