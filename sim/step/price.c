/*
 * Prices the operators of one unit (a layer of either kind, the embedding, the
 * head) phase by phase. Collectives inside a pass block it, so a pass is
 * compute plus the collectives of each dimension.
 *
 * ZeRO-2 and -3 (Rajbhandari et al., SC 2020, section 5): the gradients of a
 * layer are scattered, and under ZeRO-3 its parameters gathered, once per
 * micro-batch and pass. On a GPU the neighbour layer's work hides the part that
 * the stack's overlap_fsdp says; what is longer than that work is exposed in
 * the DP lane, and so are the first gather and the last scatter of a pass. On a
 * CPU nothing is hidden. With dp_shard each scatter is followed by an
 * all-reduce of the shares over the replicas (Zhao et al., "PyTorch FSDP", VLDB
 * 2023, section 3.2.2); with reshard false what was gathered forward is there
 * backward; with ZeRO++ both are smaller (zero_colls.c).
 *
 * Exchanges of ring attention (sim/model/ops_attention.c) run while attention
 * computes with the block at hand, for all cores but the last. What a core is
 * too short for is exposed, and so is the exchange after the last core (a
 * block's gradient going home). On a CPU nothing is hidden.
 *
 * Each operator and collective also takes the host some time to issue
 * (sim/cost/stack.c); vstage.c compares that with the device's time.
 */
#include "sim/step/shared_experts.h"

#include <math.h>

static const char *const phase_names[MW_PHASE_COUNT] = {
    "forward", "recomputation", "input gradient", "weight gradient"};
static const char *const unit_names[MW_UNIT_COUNT] = {
    "dense layer",
    "MoE layer",
    "embedding",
    "final norm, head and loss",
    "dense layer, not recomputed",
    "MoE layer, not recomputed",
    "multi-token prediction"};

static enum mw_lane lane_of(enum mw_dim dim)
{
    switch (dim) {
    case MW_DIM_TP:
        return MW_LANE_TP;
    case MW_DIM_CP:
        return MW_LANE_CP;
    case MW_DIM_EP:
    case MW_DIM_ETP:
        return MW_LANE_EP;
    case MW_DIM_PP:
    case MW_DIM_DP:
    case MW_DIM_COUNT:
        break;
    }
    return MW_LANE_DP;
}

/* Part of a layer's collectives that the stack hides behind the pass's own
 * work. */
static double overlap_of(const struct mw_step_price *p, enum mw_lane lane)
{
    const struct mw_stack *stack = &p->ctx->stack;

    switch (lane) {
    case MW_LANE_TP:
        return mw_step_overlap(p, MW_OVERLAP_TP, stack->overlap_tp);
    case MW_LANE_CP:
        return stack->overlap_cp;
    case MW_LANE_EP:
        return stack->overlap_ep;
    case MW_LANE_COMPUTE:
    case MW_LANE_DP:
    case MW_LANE_OFFLOAD:
    case MW_LANE_HOST:
    case MW_LANE_COUNT:
        break;
    }
    return 0;
}

/* The cores of a phase, while exchanges are added: how many windows there are
 * and what is left of each. */
struct ring {
    int n_windows;
    double window_s;
};

/* Exposed time of a ring's exchanges. */
static double ring_exposed_s(const struct mw_op *op, double each_s,
                             struct ring *ring)
{
    int n = mw_op_times(op), hidden = n < ring->n_windows ? n : ring->n_windows;
    double exposed_s;

    exposed_s =
        hidden * fmax(0, each_s - ring->window_s) + (n - hidden) * each_s;
    ring->window_s = fmax(0, ring->window_s - each_s);
    return exposed_s;
}

/* The phase that operators are added to. */
struct phase_at {
    enum mw_step_unit unit;
    enum mw_phase phase;
    struct ring ring;
    struct mw_explain *explain;
    int n_captured; /* operators in CUDA graphs */
    struct mw_beside_s beside;
};

/*
 * Collectives of tensor parallelism that a layer's backward products hide from
 * each other (Megatron-LM, core/tensor_parallel/layers.py): while the weight
 * gradient is computed, the input gradient is reduced; with sequence
 * parallelism the saved input is gathered while the input gradient is computed.
 */
static bool is_async(const struct mw_op *op)
{
    return op->kind == MW_OP_COLL && op->dim == MW_DIM_TP &&
           (op->pass == MW_PASS_W ||
            (op->pass == MW_PASS_B && op->coll != MW_ALL_GATHER));
}

static void add_op(struct mw_step_price *p, const struct mw_op *op,
                   struct phase_at *at)
{
    struct mw_phase_cost *out = &p->cost[at->unit].phase[at->phase];
    const struct mw_stack *stack = &p->ctx->stack;
    bool is_coll = op->kind == MW_OP_COLL;
    enum mw_lane lane = is_coll ? lane_of(op->dim) : MW_LANE_COMPUTE;
    int n = mw_op_times(op);
    double coll_bytes = is_coll ? mw_step_coll_bytes(p, op) : 0;
    struct mw_cost cost = is_coll
                              ? mw_step_coll_cost(p, op, at->explain)
                              : mw_step_op_cost(p, op, at->phase, at->explain);
    bool is_causal = p->scenario->workload.causal_flops;

    if (op->kind == MW_OP_ATTENTION && n > 1 && !p->ctx->gpu->is_cpu) {
        at->ring = (struct ring){n - 1, cost.time_s};
    }
    double shown_s = n * cost.time_s;

    mw_step_note_beside(op, shown_s, &at->beside);
    if (op->is_ring) {
        shown_s = ring_exposed_s(op, cost.time_s, &at->ring);
        out->ring_s += shown_s;
    } else {
        out->s[lane] += shown_s;
        out->async_s += is_async(op) ? shown_s : 0;
    }
    if (is_coll && p->wires != NULL) {
        struct mw_wire_load load = {op->coll, coll_bytes,
                                    mw_step_op_group(p, op)};

        mw_wires_add(p, &load, n * cost.time_s - shown_s,
                     p->wires->s[at->unit][at->phase][MW_LANE_COMPUTE]);
        mw_wires_add(p, &load, shown_s, p->wires->s[at->unit][at->phase][lane]);
    }
    double issue_s = 0;

    if (!is_coll) {
        out->s[lane] += n * stack->op_gap_s;
        issue_s = n * stack->host_op_s;
    } else if (mw_step_op_group(p, op)->n_ranks > 1) {
        out->s[lane] += n * (op->is_ring ? 0 : stack->coll_gap_s);
        issue_s = n * stack->host_coll_s;
    }
    if (mw_step_is_captured(p, at->unit, op)) {
        at->n_captured++;
    } else {
        out->host_s += issue_s;
    }
    out->bytes[lane] += n * (is_coll ? coll_bytes : op->bytes);
    out->flops += n * op->flops;
    out->counted_flops +=
        n * op->flops /
        (is_causal || !(op->work_fraction > 0) ? 1 : op->work_fraction);
    p->rung_count[cost.rung]++;
}

/* Exchanges of a ring last: what hides them is known then. */
static void add_ops(struct mw_step_price *p, const struct mw_ops *ops,
                    struct phase_at *at)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < ops->n; i++) {
            if (ops->v[i].is_ring == (pass == 1)) {
                add_op(p, &ops->v[i], at);
            }
        }
    }
}

/* Takes off what is hidden: first by the other product of a backward pass,
 * then by the rest of the pass, which no two collectives use twice. Exchanges
 * of a ring have had their windows. */
static void hide(struct mw_step_price *p, enum mw_step_unit unit,
                 const struct mw_beside_s *beside)
{
    struct mw_phase_cost *cost = p->cost[unit].phase;

    for (int i = 0; i < MW_PHASE_COUNT; i++) {
        double shared_s =
            mw_step_hide_beside(p, unit, (enum mw_phase)i, beside);
        double window_s = fmax(0, cost[i].s[MW_LANE_COMPUTE] - shared_s);

        if (cost[i].async_s > 0) {
            enum mw_phase other = i == MW_PHASE_B ? MW_PHASE_W : MW_PHASE_B;

            mw_step_move_behind(
                p, unit, (enum mw_phase)i, MW_LANE_TP, other,
                cost[i].async_s -
                    mw_step_exposed_s(
                        cost[i].async_s,
                        mw_step_overlap(p, MW_OVERLAP_TP,
                                        p->ctx->stack.overlap_tp_back),
                        cost[other].s[MW_LANE_COMPUTE]));
        }
        for (int lane = MW_LANE_TP; lane <= MW_LANE_EP; lane++) {
            double whole_s = cost[i].s[lane];
            double hidden_s =
                whole_s - mw_step_exposed_s(whole_s,
                                            overlap_of(p, (enum mw_lane)lane),
                                            window_s);

            mw_step_move_behind(p, unit, (enum mw_phase)i, (enum mw_lane)lane,
                                (enum mw_phase)i, hidden_s);
            window_s -= hidden_s;
        }
        cost[i].s[MW_LANE_CP] += cost[i].ring_s;
    }
}

static double blocking_s(const struct mw_phase_cost *c)
{
    double sum = 0;

    for (int lane = 0; lane < MW_LANE_DP; lane++) {
        sum += c->s[lane];
    }
    return sum;
}

static void add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                     struct mw_explain *explain)
{
    struct mw_phase_cost *phase = p->cost[unit].phase;
    const struct mw_unit_size *size = &p->size[unit];
    double dense = size->dense_params + mw_step_copy_params(p, unit);
    double overlap = p->ctx->stack.overlap_fsdp;
    bool gathers = (p->layout->overlap_off & MW_OVERLAP_PARAMS) == 0;
    bool scatters = (p->layout->overlap_off & MW_OVERLAP_GRADS) == 0;
    bool wraps = mw_layout_wraps(p->layout);
    double gather_s, again_s, scatter_s, work_f_s = 0, work_b_s = 0;
    const struct mw_group groups[] = {mw_step_sharers(p, p->grad_group, 0),
                                      mw_step_sharers(p, p->expert_group, 0)};
    struct mw_zero_colls colls;

    if (p->layout->zero < 2) {
        return;
    }
    mw_zero_unit_colls(p, unit, groups, &colls);
    scatter_s = mw_zero_colls_s(p, &colls, MW_ZERO_SCATTER) +
                mw_step_replicas_s(p, dense, size->expert_params, 1);
    gather_s = mw_zero_colls_s(p, &colls, MW_ZERO_FORWARD);
    again_s = mw_zero_colls_s(p, &colls, MW_ZERO_BACKWARD);
    phase[MW_PHASE_F].s[MW_LANE_COMPUTE] += mw_zero_spread_s(p, unit);
    phase[MW_PHASE_W].s[MW_LANE_COMPUTE] += mw_zero_pack_s(p, unit);
    if (overlap > 0 && !wraps) {
        work_f_s = blocking_s(&phase[MW_PHASE_F]);
        work_b_s = blocking_s(&phase[MW_PHASE_R]) +
                   blocking_s(&phase[MW_PHASE_B]) +
                   blocking_s(&phase[MW_PHASE_W]);
        p->fetch_s = fmax(p->fetch_s, gathers ? fmin(gather_s, work_f_s) : 0);
        p->flush_s = fmax(p->flush_s, scatters ? fmin(scatter_s, work_b_s) : 0);
    }
    double beside_s = (gathers ? again_s : 0) + (scatters ? scatter_s : 0);

    if (!wraps) { /* else stage by stage (fsdp_units.c) */
        phase[MW_PHASE_F].s[MW_LANE_DP] =
            mw_step_exposed_s(gather_s, gathers ? overlap : 0, work_f_s);
        phase[MW_PHASE_W].s[MW_LANE_DP] =
            mw_step_exposed_s(beside_s, overlap, work_b_s) +
            (again_s + scatter_s - beside_s);
    }
    phase[MW_PHASE_F].bytes[MW_LANE_DP] =
        mw_zero_colls_bytes(&colls, MW_ZERO_FORWARD);
    phase[MW_PHASE_W].bytes[MW_LANE_DP] =
        mw_zero_colls_bytes(&colls, MW_ZERO_BACKWARD) +
        mw_zero_colls_bytes(&colls, MW_ZERO_SCATTER) +
        mw_step_replicas_bytes(p, dense, size->expert_params);
    if (p->wires != NULL) {
        mw_wires_add_zero(p, unit, &colls);
    }
    if (!wraps) {
        mw_explain_child(explain, "ZeRO gather and scatter",
                         phase[MW_PHASE_F].s[MW_LANE_DP] +
                             phase[MW_PHASE_W].s[MW_LANE_DP],
                         "longer than the layer's own work", NULL);
    }
}

static int n_routers(const struct mw_step_price *p, enum mw_step_unit unit)
{
    enum mw_step_unit holder =
        p->layout->mtp_ahead > 0 ? MW_UNIT_MTP : MW_UNIT_HEAD;

    if (unit == holder && p->layer[MW_UNIT_MOE] >= 0) {
        return p->scenario->model.n_mtp;
    }
    return mw_unit_is_moe(unit);
}

void mw_step_price_unit(struct mw_step_price *p, enum mw_step_unit unit,
                        struct mw_explain *explain)
{
    struct mw_ops ops = {NULL, 0, 0};
    struct mw_explain *node = mw_explain_child(
        explain, unit_names[unit], 0, "passes of one micro-batch", NULL);
    struct mw_explain *child[MW_PHASE_COUNT] = {NULL};
    struct mw_beside_s beside[MW_PHASE_COUNT];

    p->cost[unit] = (struct mw_unit_cost){0};
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        struct mw_phase_cost *out = &p->cost[unit].phase[phase];

        mw_array_clear(&ops);
        mw_step_unit_ops(p, unit, (enum mw_phase)phase, &ops);
        if (ops.n > 0) {
            child[phase] = mw_explain_child(
                node, phase_names[phase], 0,
                "sum of operators, less what the stack hides", NULL);
        }
        struct phase_at at = {
            unit, (enum mw_phase)phase, {0, 0}, child[phase], 0, {{0}, {0}}};

        add_ops(p, &ops, &at);
        beside[phase] = at.beside;
        out->host_s += mw_step_graph_s(p, at.n_captured);
        if (ops.n > 0 && mw_step_graph(p) != MW_GRAPH_ITERATION) {
            /* F and B and W alike */
            out->host_s += n_routers(p, unit) * p->ctx->stack.host_moe_s / 3;
        }
        out->host_s *= mw_cost_host_factor(p->ctx, p->layout->tp);
        if (ops.n > 0 && phase != MW_PHASE_W) {
            out->s[MW_LANE_COMPUTE] +=
                n_routers(p, unit) * p->ctx->stack.moe_gap_s / 2;
        }
    }
    mw_array_release(&ops);
    hide(p, unit, beside);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        if (child[phase] != NULL) {
            double device_s = blocking_s(&p->cost[unit].phase[phase]);

            mw_step_explain_beside(p, (enum mw_phase)phase, beside,
                                   child[phase]);
            child[phase]->value_s = device_s;
            child[phase]->bound =
                p->cost[unit].phase[phase].host_s > device_s ? "host" : NULL;
        }
    }
    add_zero(p, unit, node);
    mw_offload_add(p, unit, node);
}

void mw_step_price_units(struct mw_step_price *p, struct mw_explain *explain)
{
    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        if (mw_step_has_unit(p, (enum mw_step_unit)unit)) {
            mw_step_price_unit(p, (enum mw_step_unit)unit, explain);
        }
    }
}

int mw_step_copies_of(const struct mw_layout *layout)
{
    const struct mw_sched_kind *kind =
        layout->pp > 1 ? mw_schedule_kind_find(layout->schedule) : NULL;

    return kind != NULL && kind->has_two_routes ? 2 : 1;
}

bool mw_step_sends_early(const struct mw_step_price *p, bool has_w_passes)
{
    return p->ctx->gpu->is_cpu &&
           (p->layout->recompute != MW_RECOMPUTE_FULL || has_w_passes);
}

static void find_layers(struct mw_step_price *p)
{
    const struct mw_model *model = &p->scenario->model;

    p->layer[MW_UNIT_DENSE] = p->layer[MW_UNIT_MOE] = -1;
    for (int i = 0; i < model->n_layers; i++) {
        int *layer = &p->layer[mw_model_layer_is_moe(model, i) ? MW_UNIT_MOE
                                                               : MW_UNIT_DENSE];

        if (*layer < 0) {
            *layer = i;
        }
        if (model->moe.n_experts == 0) {
            return;
        }
    }
}

/* FP8 and FP4 weights are cast from bf16 copies. */
void mw_step_set_types(struct mw_step_price *p, const struct mw_layout *layout)
{
    const struct mw_workload *w = &p->scenario->workload;
    enum mw_dtype dtype = mw_work_dtype(layout, w);
    bool is_fp32 = dtype == MW_FP32 || dtype == MW_TF32;

    p->work.dtype = dtype;
    p->work.grad_dtype = mw_work_grad_dtype(layout, w);
    p->weight_bytes = is_fp32 ? 4 : 2;
    p->grad_bytes = mw_dtype_bytes(p->work.grad_dtype);
    p->optimizer_bytes = mw_optimizer_bytes(&w->optimizer, dtype);
    p->update_bytes = mw_optimizer_traffic_bytes(
        &w->optimizer, dtype, p->grad_bytes, p->weight_bytes);
    p->has_main = mw_optimizer_has_main(&w->optimizer, dtype);
}

void mw_step_price_begin(struct mw_step_price *p,
                         const struct mw_scenario *scenario,
                         const struct mw_layout *layout,
                         const struct mw_cost_ctx *ctx)
{
    const struct mw_workload *w = &scenario->workload;

    *p = (struct mw_step_price){
        .scenario = scenario,
        .layout = layout,
        .n_kinds = mw_step_unit_kinds(layout),
        .ctx = ctx,
        .work = {.model = &scenario->model,
                 .layout = layout,
                 .seq = w->seq,
                 .is_flash = w->is_flash,
                 .has_dropout = w->has_dropout,
                 .sums_in_place = ctx->stack.sums_in_place,
                 .lora_rank = w->lora_rank,
                 .lora_targets = w->lora_targets,
                 .base_dtype = w->base_dtype,
                 .doc_tokens = w->doc_tokens,
                 .scaling = w->scaling,
                 .loss = w->loss,
                 .loss_chunks = w->loss_chunks},
        .n_copies = mw_step_copies_of(layout),
        .has_tied_copy = mw_step_copies_tied(scenario, layout),
        .router = mw_router_load_of(ctx, scenario, layout)};
    mw_step_set_types(p, layout);
    mw_step_place_groups(p, layout);
    find_layers(p);
    mw_step_size_units(p);
}
