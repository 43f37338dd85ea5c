/*
 * Private to sim/step: virtual stages, sums of units; what follows a device's
 * last pass; what crosses from stage to stage; and the memory of a stage.
 *
 * A pass of a virtual stage is a sequence of (phase, lane) times.
 */
#ifndef MW_SIM_STEP_STEP_STAGE_INT_H
#define MW_SIM_STEP_STEP_STAGE_INT_H

#include "sim/step/step_price_int.h"
#include "sim/step/step_once.h"

/* One virtual stage, summed. */
struct mw_vstage {
    int n_units[MW_UNIT_COUNT];
    mw_time ps[MW_PHASE_COUNT][MW_LANE_COUNT];
    double bytes[MW_PHASE_COUNT][MW_LANE_COUNT];
    double flops[MW_PHASE_COUNT];
    mw_time f_ps, b_ps, w_ps;          /* passes: b holds the recomputation */
    int first;                         /* its first layer */
    const struct mw_step_price *price; /* of its device; of a frame alone */
    /* Under mw_layout_wraps, of a forward and a backward pass: seconds of
     * gathers and scatters beyond the work, and the part of all that they are.
     */
    double wrap_s[2], wrap_part[2];
};
/* What comes after the last pass on one device, in this order. */
struct mw_tail {
    mw_time embedding_ps; /* gradient of the embedding, between holders */
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
/* Parameters of a list of virtual stages on one device are given as units; it
 * is one of p->holders (has_tied_twin) or not. */
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

/* ---- shared_embed.c: copies of the embedding's matrix ---------------------
 */
/* Devices of the first virtual stage of a route, of the last one and of the one
 * before it. */
struct mw_ends {
    int first, ahead, last;
};
struct mw_holders mw_step_holders(const struct mw_step_price *p,
                                  const struct mw_ends *ends, int n_routes);
bool mw_step_holds(const struct mw_holders *holders, int device);
/* The ranks that add its gradients up, two or more holders. */
struct mw_group mw_step_holders_group(const struct mw_step_price *p,
                                      const struct mw_holders *holders);
/* Copies on a device that is one of several holders: 0 where the embedding
 * itself is. */
int mw_step_copies_held(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT]);
/* Parameters of a copy, where it learns, and its bytes where it is frozen. */
struct mw_param mw_step_tied_param(const struct mw_step_price *p);
double mw_step_tied_params(const struct mw_step_price *p);
double mw_step_tied_frozen_bytes(const struct mw_step_price *p);
/* What a unit has beside its own tensors under has_tied_copy: the copy of the
 * head or of the modules, as learning parameters and as bytes of weights,
 * frozen ones too; else 0. */
double mw_step_copy_params(const struct mw_step_price *p,
                           enum mw_step_unit unit);
double mw_step_copy_bytes(const struct mw_step_price *p,
                          enum mw_step_unit unit);
/* Gradients that holders add up: all of it, from ZeRO-2 on the rank's share. */
double mw_step_tied_grads(const struct mw_step_price *p);
bool mw_step_copies_tied(const struct mw_scenario *scenario,
                         const struct mw_layout *layout);

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

/* step_memory.c: whole weights of a unit. */
double mw_step_unit_bytes(const struct mw_step_price *p,
                          enum mw_step_unit unit);

#endif
