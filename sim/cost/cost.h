/*
 * The one place that knows how fast a device or a wire is.
 *
 *   operator x shape x dtype x device -> time, and which rung priced it:
 *   exact row -> interpolation in the measured table -> utilisation carried
 *   over from the neighbouring shapes that were measured -> roofline.
 *
 * Rows of the measured kernel table (hwdb kernels) are keyed
 *   gemm          pass F (x W^T: NT), B (dY W: NN), W (dY^T x: TN); m, n, k
 *   attention     pass F, B;  m = tokens of a sequence, n = heads * sequences,
 *                 k = head_dim; kv = keys where they are not m
 *   norm activation add rotary embedding cross_entropy  pass F, B (W for norm
 *                 and embedding: the parameter gradient); m = rows, n = width
 *   optimizer     pass F; m = parameters, n = 1
 * and curves are keyed by collective name ("all_reduce", ..., "send_recv").
 */
#ifndef MW_SIM_COST_COST_H
#define MW_SIM_COST_COST_H

#include "hwdb/hwdb.h"
#include "hwdb/measured.h"
#include "sim/cost/coll_curve.h"
#include "sim/cost/explain.h"
#include "sim/model/model.h"

enum mw_rung {
    MW_RUNG_EXACT,
    MW_RUNG_TABLE,       /* interpolated between measured shapes */
    MW_RUNG_UTILISATION, /* base time x ratio of measured neighbours */
    MW_RUNG_ROOFLINE,    /* peak rate x efficiency, or bandwidth */
    MW_RUNG_CURVE,       /* measured collective curve */
    MW_RUNG_BEYOND,      /* outside of the sizes that were measured */
    MW_RUNG_COLL_MODEL,  /* modelled collective (sim/coll) */
    MW_RUNG_ALPHA_BETA,
    MW_RUNG_COUNT
};
const char *mw_rung_name(enum mw_rung rung);

struct mw_cost {
    double time_s;
    enum mw_rung rung;
};

/* The measured rows of one (op, pass, dtype) of the device. */
struct mw_kernel_set {
    const struct mw_kernel_row *row;
    size_t n;
};

/*
 * Memory habits of a training stack (stack_memory.c), where they are not those
 * of our own executor. "Bytes" are per element of what the name says, counts
 * are of tensors. x is the hidden state of a rank's tokens.
 */
struct mw_stack_memory {
    double context_bytes; /* of the device's context; 0: device_context_bytes */
    double workspace_bytes; /* of libraries and frameworks, once a rank */
    double param_bytes;     /* more per parameter that learns */
    double update_bytes; /* per parameter that learns, alive at the optimizer's
                            step beside its state, and shared out as that */
    double dummy_bytes;  /* of one weight of each shape: a gradient that only
                            autograd is shown, and kept */
    double head_grad_bytes;  /* of the head's weights, at their gradient */
    double embed_grad_bytes; /* of the embedding's, at their gradient */
    double logit_kept_bytes; /* of logits, from the loss to its gradient */
    double logit_peak_bytes; /* of logits, at the loss's worst moment */
    double logit_tp_bytes;   /* and more of them under tp */
    double grads_factor;     /* gradients alive in a layer's backward pass over
                                those of the walk (sim/model/liveness.c) */
    double kept_factor;      /* what layers keep over the model's table of it */
    double kept_gated;  /* further tensors of a gated MLP's intermediate size */
    double kept_rms;    /* further x of a layer whose norms are RMS */
    double kept_frozen; /* times the inputs of frozen 4-bit products are kept */
    double cp_kept;     /* attention's outputs kept again under cp */
    double tp_kept;     /* further x of a layer under tp */
    double sp_kept;     /* gathered inputs of a layer kept whole under sp */
    double pp_kept;     /* x of a micro-batch kept at a stage's either end */
    double pp_sent;     /* x of a micro-batch kept after it was sent on */
    double sp_buffers;  /* gathered x that stay allocated under sp */
    double moe_kept;    /* copies of routed tokens that a layer keeps: inputs
                           of experts, and (2) their outputs */
    double moe_copies;  /* of them at the end of a layer's forward pass */
    double moe_workspace_bytes; /* of grouped products */
    double fsdp_units;          /* gathered layers at a time (ZeRO-3) */
    double fsdp_grad_bytes; /* of a layer's parameters, before their gradients
                               are scattered (ZeRO-2, -3) */
    double load_whole; /* whole weights beside the shares while they are loaded
                          (ZeRO-3) */
    double fsdp_root;  /* embedding and head gathered for the whole step */
    double reserve_factor; /* held by the caching allocator over allocated */
    double reserve_moving; /* and more, of activations and temporaries: blocks
                              that no later tensor fits into */
    double reserve_pass; /* and more under pp, of what one micro-batch keeps on
                            a stage: between those in flight its tensors leave
                            places that the next one's do not fill */
    double reserve_vocab_bytes; /* and more, of a vocabulary's matrix that the
                                   rank has: its gradient's own segment */
    double reserve_queued; /* and more, as far as the device has room: whole x
                              under sp that a communication stream still holds
                              while the host runs ahead */
    double reserve_param_bytes; /* the same per parameter that learns: blocks
                                   that the optimizer's step alone needs */
    double reserve_shard_bytes; /* and shared out as the optimizer's state */
    double reserve_spread; /* 9 of 10 runs hold at most so much over that */
    double shards_master;  /* not 0: the weights are the fp32 master, from
                              which layers are gathered, or cast */
    double remainders;  /* not 0: of a fp32 master only the bits that its bf16
                           weight lacks are kept */
    double selects_ops; /* not 0: selective recomputation keeps every second
                           product (torchtitan's option "op") */
    double remat_keeps; /* a compiled layer is recomputed but for query, key
                           and value (1), and the projection's output (2) */
    double error; /* p99 of measured over predicted, less 1: the room that a
                     plan leaves */
};
/*
 * What the software adds to the hardware: a training stack's habits, as rows
 * NAME.STACK of the constants (NAME alone: any stack). All zero, and the
 * factors 1, on a CPU: our executor is priced by its calibration.
 */
/* One collective over a flat buffer; one for every tensor; a broadcast by each
 * rank, which owns whole tensors (sim/step/share_colls.c). */
enum mw_share_habit { MW_SHARE_FLAT, MW_SHARE_BY_TENSOR, MW_SHARE_BY_OWNER };

enum { MW_BUCKET_LAYER = -1, MW_SMS_NCCL = -1 };

struct mw_stack {
    const char *name;    /* "megatron-core"; see mw_stack_name */
    double host_op_s;    /* host time to issue one operator */
    double host_coll_s;  /* and one collective */
    double host_moe_s;   /* and the routing of one MoE layer, both ways: sorts,
                            permutations, counts that come back to the host */
    double host_sockets; /* times these where the ranks of tensor parallelism
                            are issued from more than one socket of the node */
    double op_gap_s;     /* device time that one operator takes beside its work:
                            its further kernels and the gaps between them */
    double moe_gap_s;    /* and the routing of one MoE layer, both ways: scores,
                            groups, losses, capacity, by small kernels */
    double coll_gap_s;   /* and a collective: jitter of those who join it */
    double host_step_s;  /* per step: logging, data, synchronisation */
    double straggler;    /* spread between ranks: time x (1 + spread x
                            sqrt(2 ln ranks)) */
    double persistent;   /* part of that spread's variance which a device keeps
                            from pass to pass; the rest is drawn for each pass */
    double elementwise;  /* time of memory-bound operators over their bytes
                            at the stream rate */
    double step_param_bytes; /* traffic per parameter of a step beside the
                                optimizer's and what sim/step/step_once.c has:
                                copies */
    double host_pass_bytes;  /* traffic per parameter whose optimizer is on the
                                host, in its memory, beside the optimizer's */
    double overlap_reduce;   /* part of the gradient reduction that backward
                                work of the last micro-batch can hide */
    double overlap_gather;   /* of the parameter gather, behind forward work */
    double overlap_fsdp;     /* of per-layer gathers and scatters */
    double overlap_tp, overlap_cp, overlap_ep; /* of collectives in a layer */
    double overlap_tp_back; /* of those that a weight gradient hides: the input
                               gradient's reduction, and with sequence
                               parallelism the gather of the saved input */
    double attention; /* rate of its fused attention over the best kernel's */
    double attention_back; /* the same of the backward pass */
    double grouped; /* rate of its experts' products over one batched product */
    bool splits_experts; /* biases and clamps of routed experts are kernels of
                            their own (Megatron-LM, until its fused grouped
                            products) */
    bool sums_in_place;  /* weight gradients' products add to what is
                            there (gradient_accumulation_fusion) */
    /* Multiprocessors that overlapped communication takes, by what it does;
     * MW_SMS_NCCL: as many as NCCL has channels for it. */
    double comm_sms, tp_gather_sms, tp_reduce_sms, ep_sms;
    bool contends;  /* does it take them, and memory bandwidth, from the
                       computation beside it? (sim/step/contend.c) */
    bool chunks_tp; /* products and the TP collectives before or behind them
                       are cut into a part for each rank, so that one runs
                       beside the other (user buffers, asynchronous TP) */
    bool scatters_boundary;    /* TP ranks send a share each between stages and
                                  gather it there (Narayanan et al., SC 2021,
                                  section 4.1) */
    enum mw_share_habit share; /* how ZeRO-1's shares are moved */
    /* Gradients of one reduction, unless the layout says: 0 all, a number of
     * elements, or MW_BUCKET_LAYER; at least bucket_rank times dp. */
    double bucket, bucket_rank;
    double fsdp_prefetch; /* units of ZeRO-3 that it gathers ahead */
    bool copies_bucket;   /* memory.workspace_bytes is one, made whole */
    bool buckets_first;   /* they are the first stage's first chunk's; any other
                             chunk is one, and so are all where nothing hides
                             them (Megatron-LM, core/distributed/
                             distributed_data_parallel.py) */
    bool sends_once; /* a token goes to each node of its experts once (DeepEP,
                        HybridEP), not once per expert */
    bool sorts; /* tokens come by source rank and are copied into the order of
                   the rank's experts, and back */
    bool tensor_lists; /* the optimizer takes all tensors in a few launches */
    bool binds;        /* each process to the socket of its device */
    bool clips;        /* gradients are clipped by the norm of all of them */
    bool clips_above;  /* by a pass where the norm is above the limit alone */
    bool combines;     /* and unscaled by the pass that clips them */
    bool prescales;    /* gradients are divided by the number of replicas where
                          they    lie, before they are summed */
    bool sums_whole;   /* ZeRO-2 and -3: gradients are all-reduced, and a rank
                          keeps its share */
    double reuse_params; /* ZeRO-3: a weight is freed after a pass unless it
                            is used again before so many parameters are
                            (DeepSpeed, stage3_max_reuse_distance); 0: kept
                            from recomputation to the backward pass */
    struct mw_stack_memory memory;
    bool has_graphs; /* whole iterations are captured, unless a layout says
                        otherwise: the host issues nothing */
};

/* Shipped measurements of one operator and dtype, with the rates that they are
 * relative to, by pass. */
struct mw_measured_set {
    struct mw_kernel_table table; /* n 0: none */
    struct mw_kernel_rates rates[MW_PASS_BW];
};
/* Which of them an operator takes. */
enum mw_measured_op {
    MW_MEASURED_GEMM,
    MW_MEASURED_GEMM_BLOCK, /* FP8 with a scale for a block */
    MW_MEASURED_GROUPED,
    MW_MEASURED_ATTENTION,
    MW_MEASURED_OP_COUNT
};

/* Parts of a step whose operators differ from their loops each in its own way:
 * caches are warm for one and cold for the other. */
enum mw_insitu {
    MW_INSITU_F,
    MW_INSITU_B,
    MW_INSITU_W,
    MW_INSITU_UPDATE,
    MW_INSITU_COUNT
};
const char *mw_insitu_name(enum mw_insitu part); /* "f" "b" "w" "update" */

struct mw_cost_ctx {
    const struct mw_hwdb *db;
    const struct mw_system *system;
    const struct mw_gpu *gpu;
    int n_nodes, gpus_per_node;
    int domain_gpus;       /* that reach one another by the scale-up links: a
                              node, or the racks' 72 where it is larger */
    double domain_net_Bps; /* leaving one domain, one direction */
    double insitu_factor;  /* measured real step / hot loops; 1 when unknown */
    double insitu_of[MW_INSITU_COUNT]; /* the same by part of the step; 0: no
                                          factor of its own */
    double kernel_launch_s; /* per operator on the device; 0 on a CPU */
    /* Shape dependence of a GEMM where nothing was measured: output tiles,
     * and the depth at which half the rate is reached. 0 on a CPU. */
    double gemm_tile_m, gemm_tile_n, gemm_k_half;
    /* Rate of a product whose rows do not begin at multiples of 16 bytes,
     * over that of others; the same of single heads' products, which begin
     * anywhere as well; 1 on a CPU. */
    double gemm_unaligned, head_unaligned;
    double flash_efficiency[2]; /* fused attention / GEMM rate: F, B and W */
    double flash_back_of_arch;  /* the latter over that of any architecture */
    /* Clock under the load of training over that of a short benchmark, by
     * dtype; 1 on a CPU. */
    double sustained[MW_DTYPE_COUNT];
    /* Rate of products that the power limit sustains over the best of a short
     * benchmark: what could run faster does not. 0 where not known. */
    double power_limit[MW_DTYPE_COUNT];
    /* Traffic of casting an operand to FP8 or FP4, per element; 0 for wider
     * types and on a CPU. */
    double quantise_bytes[MW_DTYPE_COUNT];
    double fp8_bytes[MW_SCALING_COUNT]; /* the same for FP8, by scaling */
    double fp8_row_share; /* rate of a product with a scale for a row over one
                             with a scale for the tensor */
    struct mw_stack stack;
    /* Modelled collectives of the system; NULL: latency and bandwidth alone.
     * What the links inside a domain, those between and every latency are
     * times faster than the system's (what-if; 1). */
    struct mw_coll_curves *curves;
    struct mw_coll_library *library; /* which they are of; NULL: none */
    double link_speed, net_speed, latency_speed;
    double device_context_bytes; /* memory beside tensors; 0 on a CPU */
    double comm_buffer_bytes;    /* of one communicator; 0 on a CPU */
    /* Per device while all of a node do the same: copies to or from the host's
     * memory, one direction, and the memory traffic of an Adam step there; NaN
     * when not known. */
    double host_link_Bps, host_adam_Bps;
    double nvme_read_Bps, nvme_write_Bps; /* and its share of the drives */
    /* Indexed once, so that pricing does no look-up by name. */
    struct mw_measured_set measured[MW_MEASURED_OP_COUNT][MW_DTYPE_COUNT];
    struct mw_kernel_set kernels[MW_OP_KIND_COUNT][MW_PASS_BW][MW_DTYPE_COUNT];
};
/*
 * Fills ctx from the database for a cluster; gpus_per_node 0 takes the
 * system's. Unknown names, more GPUs per node than the system has, and a
 * missing constant are MW_EINPUT. Owns nothing; valid as long as db.
 *
 *   mw_cost_ctx_init(&ctx, db, "dgx-a100", 8, 0, &err)
 */
enum mw_status mw_cost_ctx_init(struct mw_cost_ctx *ctx,
                                const struct mw_hwdb *db, const char *system,
                                int n_nodes, int gpus_per_node,
                                struct mw_err *err);

/* Takes the collectives of the system that ctx now points to, after a change
 * of its NICs. mw_cost_ctx_init has done it for the database's row. */
void mw_cost_ctx_take_curves(struct mw_cost_ctx *ctx);

/* Replaces the stack ("plain" after init: nothing overlaps). An unknown name
 * is MW_EINPUT. Without effect on a CPU. */
enum mw_status mw_cost_ctx_set_stack(struct mw_cost_ctx *ctx, const char *name,
                                     struct mw_err *err);
/*
 * The stack that prices a framework's plans (enum mw_framework): its own; with
 * any framework megatron-core, what most large runs on GPUs are trained with,
 * and jax on a TPU; plain on a CPU.
 */
const char *mw_stack_of_framework(const struct mw_gpu *gpu, int framework);
/* The stack called name, or if NULL that of the framework. */
enum mw_status mw_cost_ctx_choose_stack(struct mw_cost_ctx *ctx,
                                        const char *name, int framework,
                                        struct mw_err *err);
/* i-th stack, NULL past the end; and whose practice it is. */
const char *mw_stack_name(size_t i);
const char *mw_stack_text(size_t i);
/* 1 + spread x sqrt(2 ln n): the slowest of n ranks over the mean, for normal
 * spread (Cramer, "Mathematical Methods of Statistics", 1946, section 28.6,
 * leading term of the largest of n). */
double mw_cost_straggler_factor(const struct mw_cost_ctx *ctx, int n_ranks);
/* What the host's time grows by when tp ranks issue the same layer: 1 while one
 * socket of the node has so many devices, or where the database does not say,
 * else the stack's host_socket_factor. */
double mw_cost_host_factor(const struct mw_cost_ctx *ctx, int tp);

/* One operator on the device (not MW_OP_COLL). explain may be NULL. */
struct mw_cost mw_cost_op(const struct mw_cost_ctx *ctx, const struct mw_op *op,
                          struct mw_explain *explain);
/* An exchange of tokens with experts by kernels made for it, as they were
 * measured; false where they were not. */
bool mw_cost_experts(const struct mw_cost_ctx *ctx,
                     const struct mw_expert_exchange *exchange,
                     struct mw_cost *out, struct mw_explain *explain);
/*
 * A collective of `bytes` (nccl-tests size: the whole buffer) over a group:
 * measured curve if there is one for the system and group size, else the
 * modelled one (ctx->curves), else
 *   t = steps * alpha + wire_bytes / bandwidth        (Thakur et al. 2005)
 * with wire bytes 2 (n-1)/n for all-reduce, (n-1)/n for the others and the
 * slower of the inner link and the group's share of the NICs. A one-rank
 * group costs nothing.
 */
struct mw_cost mw_cost_coll(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                            double bytes, const struct mw_group *group,
                            struct mw_explain *explain);
/* Multiprocessors that NCCL's kernel of such a collective occupies: one block a
 * channel (NVIDIA/nccl src/device/common.h); of transfers and all-to-alls those
 * that the group has for a gather. 0 where no model says. */
double mw_cost_coll_sms(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                        const struct mw_group *group);
/* Part of its time (0 to 1) in which the collective keeps its wire busy: what
 * the time grows with the bytes, d ln t / d ln bytes. The rest is latency. */
double mw_cost_coll_wire_part(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                              double bytes, const struct mw_group *group);
/* A transfer between two neighbouring pipeline stages; `crosses_node` uses
 * the NICs, shared by `sharers` such transfers of a node. */
struct mw_cost mw_cost_p2p(const struct mw_cost_ctx *ctx, double bytes,
                           bool crosses_node, int sharers,
                           struct mw_explain *explain);

/* Peak rate of a dtype on the device; the next wider dtype's when the device
 * has no path for it (FP8 weights on an A100 are computed in FP16). */
double mw_cost_peak_flops(const struct mw_cost_ctx *ctx, enum mw_dtype dtype);

/* How the group of one dimension lies on nodes of gpus_per_node ranks, ranks
 * placed in layout->order. Pass ctx->domain_gpus: what counts as a node for
 * communication is the scale-up domain. */
struct mw_group mw_cost_group(const struct mw_layout *layout, enum mw_dim dim,
                              int gpus_per_node);
/* The cp ranks that deal out heads to each other (cp_inner), and those that
 * hold the same heads of other sets; all of cp without. */
struct mw_group mw_cost_cp_group(const struct mw_layout *layout, bool is_inner,
                                 int gpus_per_node);
/* Does the boundary between pipeline stages s and s + 1 cross nodes? */
bool mw_cost_pp_crosses(const struct mw_layout *layout, int stage,
                        int gpus_per_node);
/* The same for any two stages (interleaved schedules go from last to first). */
bool mw_cost_stages_cross(const struct mw_layout *layout, int stage, int other,
                          int gpus_per_node);
/* Ranks of one pipeline stage on one node: they send at the same time and
 * share its NICs. */
int mw_cost_pp_sharers(const struct mw_layout *layout, int gpus_per_node);
/* The ranks that hold the same gradient: dp and cp together for the dense
 * part, the edp = tp * cp * dp / (etp * ep) of them for experts. */
struct mw_group mw_cost_grad_group(const struct mw_layout *layout,
                                   bool is_expert, int gpus_per_node);
/* Those of them that share out what ZeRO shards: all without dp_shard, else
 * dp_shard neighbours along dp with their cp ranks (HSDP; Zhao et al., "PyTorch
 * FSDP", VLDB 2023, section 3.2.2); and those at the same place of every such
 * group, one rank without dp_shard. */
struct mw_group mw_cost_shard_group(const struct mw_layout *layout,
                                    bool is_expert, int gpus_per_node);
struct mw_group mw_cost_replica_group(const struct mw_layout *layout,
                                      int gpus_per_node);

#endif
