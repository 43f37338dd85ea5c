/*
 * Private to sim/step: a step priced but not yet laid out in time.
 *
 *   unit     one dense layer, one MoE layer, the embedding, the head
 *   phase    forward, recomputed forward, input gradient, weight gradient
 *   lane     what the rank does meanwhile: compute, or a blocking collective
 *            of one dimension
 *
 * A virtual stage is a sum of units, a pass of it a sequence of (phase, lane)
 * times. The event form lays passes on streams, the fast form adds them up;
 * both read the same picoseconds, so they can only differ in the waiting.
 */
#ifndef MW_SIM_STEP_STEP_INT_H
#define MW_SIM_STEP_STEP_INT_H

#include "sim/step/contend.h"
#include "sim/step/router_load.h"
#include "sim/step/step.h"
#include "sim/step/step_once.h"

enum mw_step_unit {
    MW_UNIT_DENSE,
    MW_UNIT_MOE,
    MW_UNIT_EMBEDDING,
    MW_UNIT_HEAD,
    MW_UNIT_DENSE_KEPT, /* the same layers where they are not recomputed, with
                         */
    MW_UNIT_MOE_KEPT,   /* recompute_layers alone */
    MW_UNIT_MTP, /* multi-token prediction, with mtp_ahead alone; else part of
                    the head */
    MW_UNIT_COUNT
};
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
    double loss_bytes; /* of the head: more at the loss, before its product's
                          gradient */
    /* Of the optimizer, beyond what it has of each element of a large matrix;
     * and how long Muon's products take, of the longest matrix among them. */
    double dense_state_bytes, expert_state_bytes;
    double dense_muon_s, expert_muon_s, longest_muon_s;
    double dummy_params; /* one linear weight of each shape */
    double twin_dummies; /* of an MoE layer: those that a dense layer has too */
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
    /* ZeRO-2 and 3 in a pipeline: the head gathers and scatters a copy of the
     * tied embedding of its own. */
    bool has_tied_copy;
    struct mw_router_load router; /* of the layout: 1 where nothing is known */
    int n_kinds;  /* of units: without KEPT ones and MTP, without MTP, or all */
    int layer[2]; /* a dense and an MoE layer of the model; -1: none */
    double weight_bytes, grad_bytes, optimizer_bytes; /* per parameter */
    double update_bytes; /* read and written per parameter in its update */
    bool has_main;       /* low-precision weights with a copy beside them */
    struct mw_unit_cost cost[MW_UNIT_COUNT];
    struct mw_unit_size size[MW_UNIT_COUNT];
    double fetch_s, flush_s; /* first gather, last scatter of a pass (ZeRO) */
    uint64_t rung_count[MW_RUNG_COUNT];
    struct mw_step_wires *wires; /* NULL: not wanted */
};

/* One virtual stage, summed. */
struct mw_vstage {
    int n_units[MW_UNIT_COUNT];
    mw_time ps[MW_PHASE_COUNT][MW_LANE_COUNT];
    double bytes[MW_PHASE_COUNT][MW_LANE_COUNT];
    double flops[MW_PHASE_COUNT];
    mw_time f_ps, b_ps, w_ps; /* passes: b holds the recomputation */
    int first;                /* its first layer */
    /* Under mw_layout_wraps, of a forward and a backward pass: seconds of
     * gathers and scatters beyond the work, and the part of all that they are.
     */
    double wrap_s[2], wrap_part[2];
};
/* What comes after the last pass on one device, in this order. */
struct mw_tail {
    mw_time embedding_ps; /* tied embedding: first and last stage */
    mw_time reduce_ps;    /* gradients over dp (and cp) */
    mw_time shared_ps;    /* gradients of what TP ranks share, with sp */
    mw_time optimizer_ps;
    mw_time muon_ps;          /* of it: Muon's products */
    struct mw_step_once once; /* of the optimizer's time */
    double update_bytes;      /* of the same device memory, the update's own */
    mw_time offload_ps; /* what the host's part of the optimizer takes longer */
    mw_time gather_ps;  /* parameters, ZeRO-1 and -2 */
    double reduce_bytes, embedding_bytes, shared_bytes, gather_bytes;
    double reduce_buckets, gather_buckets; /* messages, dense and of experts */
    double hidden_reduce_s, hidden_gather_s; /* behind passes */
    double slowed_reduce_s, slowed_gather_s; /* in their times: what passes
                                                take longer beside them */
    /* What of a wire the reduction and the gather take, hidden or not; 0
     * without p->wires. */
    double reduce_part[MW_WIRE_KINDS], gather_part[MW_WIRE_KINDS];
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
/* place.c: how the communicators of a layout lie on nodes and leaves; and the
 * ranks at the same place of two stages, with all those of a stage that share
 * the node's NICs (and leaf's links) when each sends to its own. */
void mw_step_place_groups(struct mw_step_price *p,
                          const struct mw_layout *layout);
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
int mw_step_unit_kinds(const struct mw_layout *layout);
/* Is it a layer of a kind (not embedding, head or multi-token prediction), and
 * is it of experts? */
bool mw_unit_is_layer(enum mw_step_unit unit);
bool mw_unit_is_moe(enum mw_step_unit unit);
/* Has the model such a unit, and the layout such layers? */
bool mw_step_has_unit(const struct mw_step_price *p, enum mw_step_unit unit);
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

/* ---- zero_colls.c: collectives over parameters and gradients ---------------
 */
enum mw_zero_when { MW_ZERO_FORWARD, MW_ZERO_BACKWARD, MW_ZERO_SCATTER };
struct mw_zero_coll {
    enum mw_zero_when when;
    enum mw_coll_op op;
    double bytes, pieces; /* of all pieces, equal ones */
    struct mw_group group;
};
enum { MW_ZERO_COLLS_MAX = 8 };
struct mw_zero_colls {
    struct mw_zero_coll v[MW_ZERO_COLLS_MAX];
    int n;
};
/* What ZeRO-2 and -3 do for a unit and micro-batch (_many: for so many units of
 * each kind at once), and what reduces gradients
 * once a step under ZeRO-0 and -1 (params: dense, of experts), without the
 * all-reduce over replicas. groups: who shares gradients of the dense part, of
 * experts, with the other copies of the model. */
void mw_zero_unit_colls(const struct mw_step_price *p, enum mw_step_unit unit,
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out);
void mw_zero_many_colls(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT],
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out);
/* ZeRO-3: of a layer's weights, what is gathered a third time, since it was
 * freed between recomputation and the backward pass; 0 to 1. */
double mw_zero_again(const struct mw_step_price *p, enum mw_step_unit unit);
void mw_zero_reduce_colls(const struct mw_step_price *p, const double params[2],
                          const double pieces[2],
                          const struct mw_group groups[2],
                          struct mw_zero_colls *out);
double mw_zero_colls_s(const struct mw_step_price *p,
                       const struct mw_zero_colls *colls,
                       enum mw_zero_when when);
struct mw_pieces {
    double all_s, last_s; /* one piece of each collective */
};
struct mw_pieces mw_zero_colls_pieces(const struct mw_step_price *p,
                                      const struct mw_zero_colls *colls,
                                      enum mw_zero_when when);
/* Of messages to other ranks, as mw_cost_coll counts them. */
double mw_zero_colls_bytes(const struct mw_zero_colls *colls,
                           enum mw_zero_when when);
/* Adds what they take while they run, but for their time. */
void mw_zero_colls_load(const struct mw_step_price *p,
                        const struct mw_zero_colls *colls,
                        enum mw_zero_when when, struct mw_comm_load *load);
/* Device time of compression, 0 without: spreading gathered weights of a unit,
 * packing its gradients; packing the momentum of so many parameters, of which
 * the rank sums a share. Counted as the bytes of the passes over memory. */
double mw_zero_spread_s(const struct mw_step_price *p, enum mw_step_unit unit);
double mw_zero_pack_s(const struct mw_step_price *p, enum mw_step_unit unit);
double mw_onebit_pack_s(const struct mw_step_price *p, double params,
                        double share);
/* Memory of it: errors that are fed back; the rank's part of its node's copy of
 * so many bytes of weights. */
double mw_onebit_error_bytes(const struct mw_step_price *p, double params,
                             double share);
double mw_zero_node_copy_bytes(const struct mw_step_price *p, double dense,
                               double expert);
bool mw_zero_has_node_copy(const struct mw_step_price *p,
                           const struct mw_group *g);

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

/* ---- fsdp_units.c: units of several layers (mw_layout_wraps) --------------
 */
/* How many units a virtual stage is gathered in, in the order of a forward
 * pass, and what the i-th has. */
int mw_fsdp_units(const struct mw_step_price *p, const struct mw_vstage *v);
void mw_fsdp_unit(const struct mw_step_price *p, const struct mw_vstage *v,
                  int i, int n_units[MW_UNIT_COUNT]);
/* Fills v->wrap_s and wrap_part; the work of units must be priced. */
void mw_fsdp_expose(const struct mw_step_price *p, struct mw_vstage *v);
/* Are two virtual stages gathered alike that have the same units? */
bool mw_fsdp_is_alike(const struct mw_step_price *p);
/* Of a device with so many units, at the fullest moment of the backward pass
 * of a unit of a kind: weights that are gathered, and parameters whose
 * gradients are not yet scattered. `ends_are_root`: the embedding and the head
 * are gathered all the time and counted elsewhere. */
double mw_fsdp_gathered_bytes(const struct mw_step_price *p,
                              const int n_units[MW_UNIT_COUNT],
                              enum mw_step_unit unit, bool ends_are_root);
double mw_fsdp_whole_params(const struct mw_step_price *p,
                            const int n_units[MW_UNIT_COUNT],
                            enum mw_step_unit unit);
/* step_memory.c: whole weights of a unit. */
double mw_step_unit_bytes(const struct mw_step_price *p,
                          enum mw_step_unit unit);

/* ---- vstage.c: virtual stages and tails ---------------------------------- */
/* Units of virtual stage k of n, which starts at layer `first`. */
void mw_vstage_count(const struct mw_step_price *p, int k, int n, int first,
                     int n_layers, int n_units[MW_UNIT_COUNT]);
void mw_vstage_sum(const struct mw_step_price *p, struct mw_vstage *v);
/* What issuing a pass takes longer than doing it: out[phase] of the phases,
 * where recomputation and both gradients are one pass. s: seconds by lane. */
void mw_host_wait(const double host_s[MW_PHASE_COUNT],
                  const double device_s[MW_PHASE_COUNT],
                  double out[MW_PHASE_COUNT]);
/* Parameters of a list of virtual stages on one device are given as units. The
 * holders of a tied embedding are the first and the last device. */
void mw_tail_of(const struct mw_step_price *p, int device,
                const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                struct mw_tail *out);
/* Seconds of ZeRO-1's gather of parameters, and of the reduction before it, as
 * the stack does them: dense and expert parameters of the rank in so many
 * tensors and buckets each, over groups[0] and [1]. */
struct mw_share {
    double params[2], tensors[2];
    double buckets[2]; /* messages: of buckets, or of tensors one by one */
    const struct mw_group *groups;
};
/* What a device sends of its parameters after the last pass. */
struct mw_share mw_share_of(const struct mw_step_price *p, int device,
                            const int n_units[MW_UNIT_COUNT],
                            bool has_tied_twin,
                            const struct mw_group groups[2]);
/* The gather's collectives, and how many of dense (0) or expert (1) parameters.
 */
enum mw_coll_op mw_share_gather_op(const struct mw_step_price *p);
double mw_share_gathers(const struct mw_step_price *p,
                        const struct mw_share *share, int i);
struct mw_pieces mw_share_gather(const struct mw_step_price *p,
                                 const struct mw_share *share);
struct mw_pieces mw_share_reduce(const struct mw_step_price *p,
                                 const struct mw_share *share);

/* ---- buckets.c ------------------------------------------------------------
 */
/* Collectives that reduce so many of a device's gradients, as the layout or
 * else the stack has it: 1 or more. */
double mw_step_buckets(const struct mw_step_price *p, int device, double params,
                       bool is_expert);
/* Memory of a bucket that is copied, over that of the stack's own size; 1 where
 * none is. */
double mw_step_bucket_growth(const struct mw_step_price *p);
/* What can be hidden of a transfer in pieces of which the last, or the first,
 * has nothing beside it; the stack would hide `overlap`. */
double mw_step_pieces_overlap(double overlap, const struct mw_pieces *pieces);

/* Hidden states of a token that virtual stage k hands on: one, and behind
 * multi-token prediction that lies ahead of the head one more a module. */
int mw_step_states(const struct mw_step_price *p, int k);
/* Seconds between two pipeline devices for so many hidden states. */
mw_time mw_step_transfer_ps(const struct mw_step_price *p, int from, int to,
                            int n_states);
/* Parameters of the copy of a tied embedding that the last stage holds, where
 * it learns, and its bytes where it is frozen. */
struct mw_param mw_step_tied_param(const struct mw_step_price *p);
double mw_step_tied_params(const struct mw_step_price *p);
double mw_step_tied_frozen_bytes(const struct mw_step_price *p);
/* What a unit has beside its own tensors under has_tied_copy: the head's copy,
 * as learning parameters and as bytes of weights, frozen ones too; else 0. */
double mw_step_copy_params(const struct mw_step_price *p,
                           enum mw_step_unit unit);
double mw_step_copy_bytes(const struct mw_step_price *p,
                          enum mw_step_unit unit);
/* Gradients that are added between first and last stage: all of it, from
 * ZeRO-2 on the rank's share. */
double mw_step_tied_grads(const struct mw_step_price *p);
bool mw_step_copies_tied(const struct mw_scenario *scenario,
                         const struct mw_layout *layout);

/* All-reduce of the rank's shares of so many gradients over the replicas: time
 * of one of so many pieces; all bytes. */
double mw_step_replicas_s(const struct mw_step_price *p, double dense,
                          double expert, double pieces);
double mw_step_replicas_bytes(const struct mw_step_price *p, double dense,
                              double expert);

/* ---- offload.c ----------------------------------------------------------- */
/* Adds to the unit's cost what its ways to and from the host leave exposed; its
 * work must be priced. Nothing without offload. */
void mw_offload_add(struct mw_step_price *p, enum mw_step_unit unit,
                    struct mw_explain *explain);
/* Seconds of the host's part of the optimizer over the rank's n parameters. */
double mw_offload_optimizer_s(const struct mw_step_price *p, double n);
/* Takes from a stage's memory what lies on the host, adds what is on its way,
 * fills host_bytes. weight_bytes must be those that the rank owns. */
void mw_offload_memory(const struct mw_step_price *p,
                       const int n_units[MW_UNIT_COUNT],
                       struct mw_stage_memory *m);

/* ---- step_memory.c ---------------------------------------------------- */
/* Units of all chunks of a device, and the high-water mark of activations. */
void mw_stage_memory_of(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                        double activation_bytes, struct mw_stage_memory *out);
/* What makes the peak of such a stage: parts that add up to its total. */
void mw_stage_memory_parts(const struct mw_step_price *p,
                           const int n_units[MW_UNIT_COUNT],
                           struct mw_stage_memory *m);
double mw_vstage_activation_bytes(const struct mw_step_price *p,
                                  const int n_units[MW_UNIT_COUNT]);
/* High-water mark over the list of device d; act[k] per virtual stage. */
double mw_schedule_high_water(const struct mw_schedule *s, int d,
                              const double *act);
double mw_step_capacity_bytes(const struct mw_scenario *scenario,
                              const struct mw_cost_ctx *ctx);

/* ---- frame.c ---------------------------------------------------------- */
/* Everything of a plan that time and memory need, in one arena. */
struct mw_step_frame {
    struct mw_arena arena;
    struct mw_step_price price;
    int n_virtual, n_devices;
    struct mw_vstage *vstage;    /* [n_virtual] */
    struct mw_tail *tail;        /* [n_devices] */
    int (*units)[MW_UNIT_COUNT]; /* [n_devices] */
    int twin_first, twin_last;   /* -1: none */
    struct mw_step_wires wires;  /* with a schedule, on a GPU */
};
/* schedule NULL: virtual stage k on device k mod p. */
void mw_step_frame_init(struct mw_step_frame *f,
                        const struct mw_scenario *scenario,
                        const struct mw_layout *layout, const int *layers,
                        const struct mw_schedule *schedule,
                        const struct mw_cost_ctx *ctx, bool with_time,
                        struct mw_explain *explain);
/* Without a schedule, the stages summed: units, twins and tails of devices. */
void mw_step_frame_devices(struct mw_step_frame *f, bool with_time);
/* MW_EINPUT when a term of the step is beyond MW_STEP_TERM_MAX_S. */
enum mw_status mw_step_frame_check(const struct mw_step_frame *f,
                                   struct mw_err *err);
/* Does device d hold one of the two copies of a tied embedding? */
bool mw_step_frame_is_twin(const struct mw_step_frame *f, int d);
void mw_step_frame_release(struct mw_step_frame *f);

/* ---- step_explain.c --------------------------------------------------- */
/* Hangs the tree of a simulated step under root, whose value is its time;
 * units: the nodes that mw_step_frame_init made, one a kind. */
void mw_step_explain(const struct mw_step_frame *f, const struct mw_schedule *s,
                     const struct mw_explain *units, struct mw_explain *root);

/* ---- step_wires.c: who fills which wire ------------------------------------
 */
struct mw_wire_load {
    enum mw_coll_op op;
    double bytes;
    const struct mw_group *group;
};
/* Adds `time_s` of the collective to the row of a lane: its bandwidth part, on
 * the NICs where the group spans nodes, else on the links. */
void mw_wires_add(const struct mw_step_price *p,
                  const struct mw_wire_load *load, double time_s,
                  double row[MW_WIRE_KINDS]);
/* Gathers and scatters of a sharded unit, of which the DP lanes' seconds are
 * exposed; each on the wire of its own group. */
void mw_wires_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                       const struct mw_zero_colls *colls);
/* Fills reduce_part and gather_part of a device's tail, which has its times. */
void mw_wires_tail(const struct mw_step_price *p, int device,
                   const int n_units[MW_UNIT_COUNT], bool has_tied_twin,
                   struct mw_tail *tail);
/* Part of each wire that a lane of a stage's phase takes. */
void mw_wires_part(const struct mw_step_frame *f, const struct mw_vstage *v,
                   enum mw_phase phase, enum mw_lane lane,
                   double out[MW_WIRE_KINDS]);
/* The same of a transfer between two devices, and of a collective. */
void mw_wires_transfer_part(const struct mw_step_price *p, int from, int to,
                            int n_states, double out[MW_WIRE_KINDS]);
void mw_wires_coll_part(const struct mw_step_price *p,
                        const struct mw_wire_load *load,
                        double out[MW_WIRE_KINDS]);

/* ---- estimate_memory.c: high-water marks without a list ---------------------
 */
/* Kinds whose order is known without making it. */
enum mw_plain { MW_PLAIN_NO, MW_PLAIN_1F1B, MW_PLAIN_GPIPE, MW_PLAIN_LOOP };
enum mw_plain mw_plain_of(const struct mw_layout *layout, int m);
/* Bytes of the fullest rank; m micro-batches. */
double mw_plain_peak_bytes(const struct mw_step_frame *f, enum mw_plain plain,
                           int m);
/* estimate.c: seconds of the step in closed form; NAN where only the list
 * tells. */
double mw_plain_time_s(const struct mw_step_frame *f, enum mw_plain plain,
                       int m);
/* Both figures from the schedule's list; either may be NULL. */
enum mw_status mw_step_replay(const struct mw_scenario *scenario,
                              const struct mw_layout *layout, const int *layers,
                              const struct mw_cost_ctx *ctx, double *out_time_s,
                              double *out_peak_bytes, struct mw_err *err);

#endif
