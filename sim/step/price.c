/*
 * Prices the operators of one unit (a layer of either kind, the embedding, the
 * head) phase by phase. Collectives inside a pass block it, so a pass is
 * compute plus the collectives of each dimension.
 *
 * Exchanges of ring attention (sim/model/ops_attention.c) run while attention
 * computes with the block at hand, for all cores but the last. What a core is
 * too short for is exposed, and so is the exchange after the last core (a
 * block's gradient going home). On a CPU nothing is hidden.
 *
 * Each operator and collective also takes the host some time to issue
 * (sim/cost/stack.c); vstage.c compares that with the device's time.
 */
#include "sim/step/hide.h"

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
    "multi-token prediction",
    "dense layer, window",
    "MoE layer, window",
    "dense layer, window, not recomputed",
    "MoE layer, window, not recomputed"};

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

/* The cores of a phase, while exchanges are added: how many windows there are
 * and what is left of each. */
struct ring {
    int n_windows;
    double window_s;
};

/* A ring's exchanges: what shows of them, and how long they slow the cores. */
static struct mw_overlapped ring_beside(const struct mw_op *op, double each_s,
                                        double growth, struct ring *ring)
{
    int n = mw_op_times(op), in = n < ring->n_windows ? n : ring->n_windows;
    struct mw_overlapped one =
        mw_step_beside(each_s, 1, ring->window_s, growth);

    ring->window_s = fmax(0, ring->window_s - (one.hidden_s - one.slowed_s));
    return (struct mw_overlapped){in * one.shown_s + (n - in) * each_s,
                                  in * one.hidden_s, in * one.slowed_s};
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

/* What a collective takes while it runs; it is priced. */
static struct mw_comm_load load_of(const struct mw_step_price *p,
                                   const struct mw_op *op, double coll_bytes,
                                   double time_s)
{
    struct mw_comm_load load = {.time_s = time_s};

    if (op->kind == MW_OP_COLL) {
        mw_step_load_add(p, op->coll, op->dim, mw_op_times(op) * coll_bytes,
                         mw_step_op_group(p, op), &load);
    }
    return load;
}

/* Exchanges of a ring, beside attention; what shows of them. */
static double add_ring(const struct mw_step_price *p, const struct mw_op *op,
                       double each_s, const struct mw_comm_load *load,
                       struct ring *ring, struct mw_phase_cost *out)
{
    struct mw_overlapped at =
        ring_beside(op, each_s, mw_step_growth(p, load, 1), ring);

    out->ring_s += at.shown_s;
    out->slowed_s += at.slowed_s;
    out->s[MW_LANE_COMPUTE] += at.slowed_s;
    return at.shown_s;
}

static void add_load(struct mw_phase_cost *out, enum mw_lane lane,
                     const struct mw_comm_load *load)
{
    out->load[lane].time_s += load->time_s;
    out->load[lane].bytes += load->bytes;
    out->load[lane].sm_bytes += load->sm_bytes;
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
    struct mw_comm_load load = load_of(p, op, coll_bytes, shown_s);

    if (op->is_ring) {
        shown_s = add_ring(p, op, cost.time_s, &load, &at->ring, out);
    } else {
        add_load(out, lane, &load);
        out->s[lane] += shown_s;
        out->matrix_s +=
            op->kind == MW_OP_GEMM || op->kind == MW_OP_ATTENTION ? shown_s : 0;
        out->async_s += mw_step_is_async(op) ? shown_s : 0;
    }
    if (is_coll && p->wires != NULL) {
        struct mw_wire_load wire = {op->coll, coll_bytes,
                                    mw_step_op_group(p, op)};

        mw_wires_add(p, &wire, n * cost.time_s - shown_s,
                     p->wires->s[at->unit][at->phase][MW_LANE_COMPUTE]);
        mw_wires_add(p, &wire, shown_s, p->wires->s[at->unit][at->phase][lane]);
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

double mw_step_blocking_s(const struct mw_phase_cost *c)
{
    double sum = 0;

    for (int lane = 0; lane < MW_LANE_DP; lane++) {
        sum += c->s[lane];
    }
    return sum;
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

static void add_chunks(const struct mw_step_price *p, enum mw_step_unit unit,
                       const struct mw_ops *ops, struct mw_phase_cost *out,
                       struct mw_explain *explain)
{
    double chunks_s = mw_step_chunks_s(p, unit, ops);

    out->s[MW_LANE_COMPUTE] += chunks_s;
    out->matrix_s += chunks_s;
    if (chunks_s > 0) {
        mw_explain_child(explain, "products in parts", chunks_s,
                         "tp x T(m / tp) - T(m), beside collectives of tp",
                         NULL);
    }
}

static void explain_slowed(double slowed_s, struct mw_explain *explain)
{
    if (slowed_s > 0) {
        mw_explain_child(explain, "slower beside communication", slowed_s,
                         "work done meanwhile x (SMs / (SMs - k), bandwidth / "
                         "what is left of it) - 1",
                         NULL);
    }
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
        add_chunks(p, unit, &ops, out, child[phase]);
        out->host_s += mw_step_graph_s(p, at.n_captured);
        if (ops.n > 0 && !mw_step_captures_routing(p, unit)) {
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
    mw_step_hide(p, unit, beside);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        if (child[phase] != NULL) {
            double device_s = mw_step_blocking_s(&p->cost[unit].phase[phase]);

            explain_slowed(p->cost[unit].phase[phase].slowed_s, child[phase]);
            mw_step_explain_beside(p, (enum mw_phase)phase, beside,
                                   child[phase]);
            child[phase]->value_s = device_s;
            child[phase]->bound =
                p->cost[unit].phase[phase].host_s > device_s ? "host" : NULL;
        }
    }
    mw_step_add_zero(p, unit, node);
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

    int64_t span = mw_work_span(p->work.seq, p->work.doc_tokens);
    bool is_cut = mw_window_keys(span, &model->window) < span;

    p->layer[MW_UNIT_DENSE] = p->layer[MW_UNIT_MOE] = -1;
    p->local[MW_UNIT_DENSE] = p->local[MW_UNIT_MOE] = -1;
    for (int i = 0; i < model->n_layers; i++) {
        bool is_moe = mw_model_layer_is_moe(model, i);
        bool is_local = is_cut && mw_model_layer_is_local(model, i);
        int *layer = is_local ? &p->local[is_moe] : &p->layer[is_moe];

        if (*layer < 0) {
            *layer = i;
        }
        if (model->moe.n_experts == 0 && !is_cut) {
            return;
        }
    }
    for (int kind = 0; kind < 2; kind++) {
        if (p->layer[kind] < 0) {
            p->layer[kind] = p->local[kind];
            p->local[kind] = -1;
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
    p->optimizer = mw_work_optimizer(layout, w);
    p->optimizer_bytes = mw_optimizer_bytes(&p->optimizer, dtype);
    p->update_bytes = mw_optimizer_traffic_bytes(
        &p->optimizer, dtype, p->grad_bytes, p->weight_bytes);
    p->has_main = mw_optimizer_has_main(&p->optimizer, dtype);
}

void mw_step_price_begin(struct mw_step_price *p,
                         const struct mw_scenario *scenario,
                         const struct mw_layout *layout,
                         const struct mw_cost_ctx *ctx)
{
    const struct mw_router_load load = mw_router_load_of(ctx, scenario, layout);

    mw_step_price_begin_under(p, scenario, layout, ctx, &load);
}

void mw_step_price_begin_under(struct mw_step_price *p,
                               const struct mw_scenario *scenario,
                               const struct mw_layout *layout,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_router_load *load)
{
    const struct mw_workload *w = &scenario->workload;

    *p = (struct mw_step_price){
        .scenario = scenario,
        .layout = layout,
        .ctx = ctx,
        .work = {.model = &scenario->model,
                 .layout = layout,
                 .seq = w->seq,
                 .is_flash = w->is_flash,
                 .has_dropout = w->has_dropout,
                 .sums_in_place = ctx->stack.sums_in_place,
                 .splits_experts = ctx->stack.splits_experts,
                 .lora_rank = w->lora_rank,
                 .lora_targets = w->lora_targets,
                 .base_dtype = w->base_dtype,
                 .doc_tokens = w->doc_tokens,
                 .scaling = w->scaling,
                 .loss = w->loss,
                 .loss_chunks = w->loss_chunks},
        .n_copies = mw_step_copies_of(layout),
        .has_tied_copy = mw_step_copies_tied(scenario, layout),
        .router = *load};
    p->work.wide_probs = layout->ep > 1 && mw_step_sends_once(p);
    mw_step_set_types(p, layout);
    mw_step_place_groups(p, layout);
    find_layers(p);
    p->n_kinds = mw_step_unit_kinds(p);
    mw_step_size_units(p);
}
