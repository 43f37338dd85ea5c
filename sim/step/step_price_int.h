/*
 * Private to sim/step: what one unit of a step costs and occupies.
 *
 *   unit     one dense layer, one MoE layer, the embedding, the head
 *   phase    forward, recomputed forward, input gradient, weight gradient
 *   lane     what the rank does meanwhile: compute, or a blocking collective
 *            of one dimension
 */
#ifndef MW_SIM_STEP_STEP_PRICE_INT_H
#define MW_SIM_STEP_STEP_PRICE_INT_H

#include "sim/step/contend.h"
#include "sim/step/router_load.h"
#include "sim/step/step.h"
#include "sim/step/unit_kinds.h"

enum mw_phase {
    MW_PHASE_F,
    MW_PHASE_R,
    MW_PHASE_B,
    MW_PHASE_W,
    MW_PHASE_COUNT
};
enum mw_lane {
    MW_LANE_COMPUTE,
    MW_LANE_TP,
    MW_LANE_CP,
    MW_LANE_EP,
    MW_LANE_DP,      /* parameters gathered, gradients scattered (ZeRO-2, -3) */
    MW_LANE_OFFLOAD, /* to and from the host's memory */
    MW_LANE_HOST,    /* the device waits for the host to issue work */
    MW_LANE_COUNT
};

/* Wires that the traffic of a rank shares, each with two directions. */
enum mw_wire_kind {
    MW_WIRE_NIC,  /* its part of the node's NICs */
    MW_WIRE_LINK, /* its links inside the scale-up domain */
    MW_WIRE_KINDS
};
/* Seconds for which a phase of a unit fills a wire, while its lane is busy;
 * what compute hides stands in the compute lane. */
struct mw_step_wires {
    double s[MW_UNIT_COUNT][MW_PHASE_COUNT][MW_LANE_COUNT][MW_WIRE_KINDS];
};

struct mw_phase_cost {
    double s[MW_LANE_COUNT];
    double matrix_s; /* of compute: products and attention, alone */
    double slowed_s; /* of compute: longer beside the unit's own collectives */
    struct mw_comm_load load[MW_LANE_COUNT];
    double bytes[MW_LANE_COUNT]; /* compute: device memory; else messages */
    double async_s; /* collectives in it that the other product of a backward
                       pass may hide */
    double ring_s;  /* exchanges of a ring, as far as they show */
    double host_s;  /* to issue the phase */
    double flops;   /* performed on this rank */
    double counted_flops; /* the same by the workload's convention: the full
                             square of attention, or its causal half */
};
struct mw_unit_cost {
    struct mw_phase_cost phase[MW_PHASE_COUNT];
};
/* What a unit occupies on one rank. */
struct mw_unit_size {
    double dense_params, expert_params;   /* that learn */
    double dense_tensors, expert_tensors; /* how many those are */
    double shared_params; /* of the dense: the same on every TP rank */
    /* Weights under adapters, as they are stored; and the largest matrix of
     * them in the compute type, while 4 bits are spread. */
    double frozen_dense_bytes, frozen_expert_bytes, spread_bytes;
    double activation_bytes; /* kept from the forward to the backward pass */
    double transient_bytes;  /* more at the worst moment of its backward pass */
    const char *transient_at; /* what that moment is called */
    double loss_bytes;   /* of the head: more at the loss, before its product's
                            gradient */
    double module_bytes; /* of the head, where multi-token prediction lies with
                            it: more at a module's worst moment, heads gone;
                            what it is called, NULL: no modules */
    const char *module_at;
    /* Of the optimizer, beyond what it has of each element of a large matrix;
     * and how long Muon's products take, of the longest matrix among them. */
    double dense_state_bytes, expert_state_bytes;
    double dense_muon_s, expert_muon_s, longest_muon_s;
    double dummy_params; /* one linear weight of each shape */
    double twin_dummies; /* of an MoE layer: those that a dense layer has too */
};

/* Devices that hold the matrix of the embedding; none where one does. */
struct mw_holders {
    int n, device[4];
};

struct mw_step_price {
    const struct mw_scenario *scenario;
    const struct mw_layout *layout;
    const struct mw_cost_ctx *ctx;
    struct mw_work work;
    struct mw_group group[MW_DIM_COUNT]; /* cp: of those with the same heads */
    struct mw_group cp_inner_group;
    /* Ranks that reduce a gradient together; under ZeRO those that share it
     * out, and those that hold the same share of it (one without dp_shard). */
    struct mw_group grad_group, expert_group, replica_group;
    double number_s[2]; /* one number added up by a replica, by all ranks */
    int n_copies; /* of the model in the pipeline: two routes hold it twice, and
               both holders of a stage share its gradients */
    /* ZeRO-2 and 3 in a pipeline: the head, or modules ahead of it, gather and
     * scatter a copy of the embedding of their own. */
    bool has_tied_copy;
    struct mw_holders holders;    /* set when devices are known */
    struct mw_router_load router; /* of the layout: 1 where nothing is known */
    int n_kinds;  /* of units: without KEPT ones and MTP, without MTP, or all */
    int layer[2]; /* a dense and an MoE layer of the model; -1: none */
    int local[2]; /* with a window where others of the kind have none, or -1 */
    struct mw_optimizer optimizer; /* with the layout's types of states */
    double weight_bytes, grad_bytes, optimizer_bytes; /* per parameter */
    double update_bytes; /* read and written per parameter in its update */
    bool has_main;       /* low-precision weights with a copy beside them */
    struct mw_unit_cost cost[MW_UNIT_COUNT];
    struct mw_unit_size size[MW_UNIT_COUNT];
    double fetch_s, flush_s; /* first gather, last scatter of a pass (ZeRO) */
    uint64_t rung_count[MW_RUNG_COUNT];
    struct mw_step_wires *wires; /* NULL: not wanted */
};

/* ---- unit_update.c: optimizers that treat tensors each in its own way ------
 */
/* Adds a learning tensor's part to the unit that it belongs to. */
void mw_step_count_update(const struct mw_step_price *p,
                          const struct mw_param *param,
                          struct mw_unit_size *size);
/* Are gradients reduced whole on each rank? Without ZeRO, and for Muon. */
bool mw_step_reduces_whole(const struct mw_step_price *p);
/* Of a stage's rank: state beyond optimizer_bytes of each parameter, and
 * seconds of Muon's products. Under ZeRO whole matrices are dealt out evenly,
 * but no rank has less to do than the longest of them. */
struct mw_step_update {
    double state_bytes, muon_s;
};
struct mw_step_update mw_step_update_of(const struct mw_step_price *p,
                                        const int n_units[MW_UNIT_COUNT],
                                        bool has_tied_twin);

/* ---- graph_scope.c: what CUDA graphs leave to the host --------------------
 */
/* Of the layout, else of the stack; never MW_GRAPH_STACK. */
enum mw_cuda_graph mw_step_graph(const struct mw_step_price *p);
/* Is an operator of a unit inside a graph? */
bool mw_step_is_captured(const struct mw_step_price *p, enum mw_step_unit unit,
                         const struct mw_op *op);
/* Is what sends tokens to a unit's experts, and they, inside one? */
bool mw_step_captures_routing(const struct mw_step_price *p,
                              enum mw_step_unit unit);
/* Host's time for the graphs of a phase of a unit that has so many operators
 * in them. */
double mw_step_graph_s(const struct mw_step_price *p, int n_captured);

/* ---- price.c: what one unit costs ---------------------------------------- */
/* Types of products and gradients, and bytes that follow from them. */
void mw_step_set_types(struct mw_step_price *p, const struct mw_layout *layout);
/* What a stack hides of a transfer, unless the layout switches it off. */
static inline double mw_step_overlap(const struct mw_step_price *p,
                                     enum mw_overlap what, double of_stack)
{
    return (p->layout->overlap_off & (int)what) != 0 ? 0 : of_stack;
}
/* Sets everything but cost. */
void mw_step_price_begin(struct mw_step_price *p,
                         const struct mw_scenario *scenario,
                         const struct mw_layout *layout,
                         const struct mw_cost_ctx *ctx);
/* The same with a load that is known: mw_router_load_of the layout. */
void mw_step_price_begin_under(struct mw_step_price *p,
                               const struct mw_scenario *scenario,
                               const struct mw_layout *layout,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_router_load *load);
/* place.c: how the communicators of a layout lie on nodes and leaves (on leaves
 * of several sizes the slowest of any stage); and the
 * ranks at the same place of two stages, with all those of a stage that share
 * the node's NICs (and leaf's links) when each sends to its own. */
void mw_step_place_groups(struct mw_step_price *p,
                          const struct mw_layout *layout);
/* All communicators of the ranks of a stage. */
struct mw_step_groups {
    struct mw_group dim[MW_DIM_COUNT], cp_inner, grad, expert, replica;
};
/* On leaves of several sizes, those of each stage: out[pp]. */
void mw_step_stage_groups(const struct mw_step_price *p,
                          const struct mw_layout *layout,
                          struct mw_step_groups *out);
/* Lets the price, or another, have these groups; units are then to be priced.
 */
void mw_step_use_groups(struct mw_step_price *p,
                        const struct mw_step_groups *groups);
struct mw_step_groups mw_step_groups_of(const struct mw_step_price *p);
/* Do groups of one kind differ on the leaves? */
bool mw_step_is_uneven(const struct mw_step_price *p);
/* Ranks of pipeline device d that share a gradient, dense or of experts:
 * p->grad_group or expert_group, on leaves of several sizes those of the stage.
 */
struct mw_group mw_step_grad_group(const struct mw_step_price *p,
                                   bool is_expert, int device);
/* Whom an operator that is a collective joins. */
const struct mw_group *mw_step_op_group(const struct mw_step_price *p,
                                        const struct mw_op *op);
/* Its buffer; less than the operator's where the stack sends a token once to
 * each node that has experts of it; of an uneven router the busiest rank's. */
double mw_step_coll_bytes(const struct mw_step_price *p,
                          const struct mw_op *op);
/* Do kernels send a token once to each node of its experts, and write to where
 * it belongs there? By the layout's dispatcher, or the stack's habit. */
bool mw_step_sends_once(const struct mw_step_price *p);
/* What it takes alone. */
struct mw_cost mw_step_coll_cost(const struct mw_step_price *p,
                                 const struct mw_op *op,
                                 struct mw_explain *explain);
/* Bytes that sorting the routed tokens by expert reads and writes beside a
 * permutation; 0 for other operators and where nothing is sorted. */
double mw_step_sort_bytes(const struct mw_step_price *p,
                          const struct mw_op *op);
/* routed_ops.c: an operator that is no collective, with the busiest rank's rows
 * where a router sent them. */
struct mw_cost mw_step_op_cost(const struct mw_step_price *p,
                               const struct mw_op *op, enum mw_phase phase,
                               struct mw_explain *explain);

struct mw_group mw_step_pair(const struct mw_step_price *p, int from, int to);
/* Fills p->cost of the units the model has. explain may be NULL. */
void mw_step_price_units(struct mw_step_price *p, struct mw_explain *explain);
/* Units that stages of the layout can have: the first so many. */
int mw_step_unit_kinds(const struct mw_step_price *p);
/* Has the model such a unit, and the layout such layers? */
bool mw_step_has_unit(const struct mw_step_price *p, enum mw_step_unit unit);
/* A layer of the model that such a unit is; -1: there is none. */
int mw_step_unit_layer(const struct mw_step_price *p, enum mw_step_unit unit);
/* The unit of a layer of the model, as it is recomputed or kept. */
enum mw_step_unit mw_step_layer_unit(const struct mw_step_price *p, int layer,
                                     bool is_kept);
/* Appends the operators of one phase of a unit, collectives among them. */
void mw_step_unit_ops(const struct mw_step_price *p, enum mw_step_unit unit,
                      enum mw_phase phase, struct mw_ops *out);
/* The layer of the model that its multi-token-prediction modules repeat. */
int mw_step_mtp_layer(const struct mw_step_price *p);
/* What one rank of those that share them has of so many of the dense part's and
 * of the experts'. */
static inline double mw_step_share(const struct mw_step_price *p, double dense,
                                   double expert)
{
    return (dense / p->grad_group.n_ranks + expert / p->expert_group.n_ranks) /
           p->n_copies;
}
/* Gradients of what TP ranks hold whole that a rank has when they are added: of
 * all of it, or from ZeRO-2 on of its share. */
static inline double mw_step_shared_grads(const struct mw_step_price *p,
                                          double shared)
{
    return p->layout->zero >= 2 ? mw_step_share(p, shared, 0) : shared;
}
/* Ranks that share gradients of device d: that group, on two routes over both
 * holders of its stages. The middle of an odd number of devices holds both
 * copies itself. */
struct mw_group mw_step_sharers(const struct mw_step_price *p,
                                struct mw_group group, int d);
/* How many copies of the same parameters device d holds. */
int mw_step_copies_on(const struct mw_step_price *p, int d);
/* Copies in the layout's schedule, by its name. */
int mw_step_copies_of(const struct mw_layout *layout);
/* Does a gradient leave before the weight gradients of its pass are computed?
 * Our executor's do (CPU); not where full recomputation brings back one layer
 * at a time, so that B and W of a fused pass go layer by layer. */
bool mw_step_sends_early(const struct mw_step_price *p, bool has_w_passes);
/* One unit alone. */
void mw_step_price_unit(struct mw_step_price *p, enum mw_step_unit unit,
                        struct mw_explain *explain);

/* One lane of one phase, one collective: more is absurd, and sums of as many
 * as a stage has stay inside mw_time. */
#define MW_STEP_TERM_MAX_S 5e5

/* ---- unit_memory.c: activations and moments, called by mw_step_size_units --
 */
void mw_step_size_memory(struct mw_step_price *p);
/* The unit of a tensor of a model of n_layers; MW_UNIT_COUNT: of none. */
enum mw_step_unit mw_step_unit_of(const struct mw_step_price *p,
                                  const struct mw_param *param, int n_layers);
void mw_step_count_shapes(struct mw_step_price *p,
                          const struct mw_params *params, int n_layers);

/* ---- unit_size.c ------------------------------------------------------------
 */
/* Fills p->size; called by mw_step_price_begin. */
void mw_step_size_units(struct mw_step_price *p);
/* Bytes of a unit's weights on a rank without ZeRO-3: what learns and what is
 * frozen, of the dense part and of the experts. */
double mw_unit_dense_bytes(const struct mw_step_price *p,
                           const struct mw_unit_size *size);
double mw_unit_expert_bytes(const struct mw_step_price *p,
                            const struct mw_unit_size *size);

#endif
