/*
 * A decoder-only transformer: its shape, parameters, operators, activations.
 *
 * One description serves the simulator (costs), the planner (memory, bounds)
 * and the executor (which allocates from the same parameter table).
 */
#ifndef MW_SIM_MODEL_MODEL_H
#define MW_SIM_MODEL_MODEL_H

#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "sim/model/layout.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_norm { MW_NORM_LAYER, MW_NORM_RMS };
enum mw_position { MW_POS_LEARNED, MW_POS_ROTARY, MW_POS_ALIBI, MW_POS_NONE };
enum mw_activation { MW_ACT_GELU, MW_ACT_SILU, MW_ACT_RELU };

struct mw_moe {
    int n_experts;     /* routed experts; 0: a dense model */
    int top_k;         /* routed experts per token */
    int n_shared;      /* shared experts */
    int ffn;           /* intermediate size of one routed expert */
    int shared_ffn;    /* total intermediate size of the shared experts */
    int first_dense;   /* leading layers with a dense MLP */
    int every;         /* an MoE layer each `every` layers (1: all) */
    bool shared_gate;  /* sigmoid gate on the shared expert (Qwen2-MoE) */
    bool router_bias;  /* expert-bias vector of the router (DeepSeek-V3) */
    bool bias;         /* biases of the routed experts' products (gpt-oss) */
    bool clamp;        /* their gates and ups are clamped before the activation
                          (gpt-oss's swiglu_limit) */
    int node_limit;    /* a token's experts lie on so many nodes at most
                          (group-limited routing); 0: any */
    bool fp8_dispatch; /* tokens and gradients go to the experts in FP8, and
                          come back in the type of activations */
};

/* Multi-head latent attention (DeepSeek-V2, section 2.1). */
struct mw_mla {
    bool on;
    int q_lora, kv_lora, rope_dim, nope_dim, v_dim; /* q_lora 0: no q latent */
};

/* Attention to the last tokens alone, in some layers or in all. */
enum mw_window_form {
    MW_WINDOW_SLIDING, /* the last so many tokens, the query's own among them */
    MW_WINDOW_CHUNKED  /* those of its chunk of so many, up to its own */
};
struct mw_window {
    int tokens;       /* that a query meets at most; 0: all before it */
    int global_every; /* of so many layers the last meets all; 0: none does */
    int first_global; /* leading layers that meet all */
    enum mw_window_form form;
};

struct mw_model {
    const char *name;
    int hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab;
    int max_seq;   /* length of a learned position table */
    bool is_gated; /* SwiGLU / GeGLU: gate and up projections */
    enum mw_norm norm;
    enum mw_position position;
    enum mw_activation act;
    bool tied; /* head shares the embedding matrix */
    bool bias_qkv, bias_proj, bias_mlp, bias_norm, bias_head;
    bool qk_norm;       /* per-head RMSNorm of q and k (Qwen3) */
    bool final_norm;    /* a norm before the head */
    bool sandwich_norm; /* norms after attention and MLP as well */
    bool sinks;         /* a learned logit per head that takes part in each
                           softmax and has no value (gpt-oss) */
    struct mw_window window;
    struct mw_moe moe;
    struct mw_mla mla;
    int n_mtp; /* multi-token-prediction layers (DeepSeek-V3: 1; not counted
                  in the published 671B) */
};

/* From `first_dense` on, each layer whose number from 1 divides by `every`. */
bool mw_model_layer_is_moe(const struct mw_model *model, int layer);
/* How many of the layers before `layer` are mixtures of experts. */
int mw_model_moe_layers(const struct mw_model *model, int layer);
/* Is the attention of a layer (from 0) to a window of tokens? From
 * `first_global` on, each layer whose number from 1 does not divide by
 * `global_every`. False where no model has windows. */
bool mw_model_layer_is_local(const struct mw_model *model, int layer);
/* How many of the layers before `layer` are. */
int mw_model_local_layers(const struct mw_model *model, int layer);
/* Are all layers alike, where attention spans so many tokens (mw_work_span)?
 * Not where some are mixtures of experts, or meet fewer keys. */
bool mw_model_is_uniform(const struct mw_model *model, int64_t span);
/* Pairs of a query and a key not after it that causal attention over `span`
 * tokens keeps within the window; NULL or one of 0 tokens: all of them. */
double mw_window_pairs(int64_t span, const struct mw_window *window);
/* Most keys that one query meets: the window, or `span` tokens. */
int64_t mw_window_keys(int64_t span, const struct mw_window *window);
/* Pairs in the square tiles of so many tokens that a fused kernel computes for
 * them, over mw_window_pairs; of what the same is without a window. At least
 * the tiles on the window's edges are computed whole and masked (Dao,
 * arXiv:2307.08691, section 3.1). 1 without a window. */
double mw_window_tile_work(int64_t span, const struct mw_window *window,
                           int tile);
/* Elements per head of a query or key, and of a value (MLA: they differ). */
int mw_model_qk_dim(const struct mw_model *model);
int mw_model_v_dim(const struct mw_model *model);
extern const struct mw_enum mw_norm_enums[], mw_position_enums[],
    mw_activation_enums[], mw_window_form_enums[];
/* Binder table of an explicit `model:` (docs/scenario.md); offset 0 is the
 * start of mw_model. Every field but the name is in it, so that a scenario's
 * hash can walk it. */
extern const struct mw_field mw_model_fields[];

/* ---- where models come from ------------------------------------------- */
/* A named preset ("llama3-8b", "gpt3-175b", ...; any case). Unknown: MW_EINPUT
 * with the nearest name. */
enum mw_status mw_model_preset(const char *name, struct mw_model *out,
                               struct mw_err *err);
/* i-th preset name, NULL past the end: for listings and hints. */
const char *mw_model_preset_name(size_t i);
/* Where its numbers come from, for the same i. */
const char *mw_model_preset_source(size_t i);
/* A Hugging Face config.json. An unknown architecture lists the fields it
 * lacks; one that lacks none is read as a Llama, with a warning in the log.
 * Strings go to the arena. */
enum mw_status mw_model_hf_config(const char *path, struct mw_arena *arena,
                                  struct mw_model *out, struct mw_err *err);
/* The `model:` node of a scenario: a preset's name, {preset: X, <overrides>},
 * {hf_config: PATH relative to the scenario} or explicit fields. */
enum mw_status mw_model_read(struct mw_node *node, const char *base_dir,
                             struct mw_arena *arena, struct mw_model *out,
                             struct mw_err *err);
/* Positive sizes, heads divide by kv heads, and so on. */
enum mw_status mw_model_check(const struct mw_model *model, struct mw_err *err);

/* ---- parameters --------------------------------------------------------- */
enum mw_shard {
    MW_SHARD_NONE,  /* replicated in the TP group */
    MW_SHARD_ROWS,  /* output dimension split (column-parallel linear) */
    MW_SHARD_COLS,  /* input dimension split (row-parallel linear) */
    MW_SHARD_EXPERT /* one tensor per expert: split over EP (and by rows or
                       cols over ETP, see `expert_shard`) */
};

/*
 * One tensor [outer][rows][cols] (outer 3 for fused QKV with equal thirds,
 * 2 for fused gate-up, otherwise 1; vectors have cols = 1). For an expert
 * tensor the shape is that of one expert and n_copies the experts.
 */
struct mw_param {
    const char *name; /* static: "attn.qkv.weight"; no layer index in it */
    int layer;        /* 0..n_layers-1; -1 embedding side, n_layers head side;
                         MTP layers follow at n_layers + 1 ... */
    int64_t outer, rows, cols;
    int64_t n_copies;
    enum mw_shard shard, expert_shard;
    int max_ways; /* the TP split ends there and further ranks hold copies (key
                     and value heads under grouped queries); 0: no end */
    bool is_norm_or_bias; /* no weight decay */
    bool is_mtp;          /* multi-token-prediction: not in published totals */
};
struct mw_params {
    struct mw_param *v;
    size_t n, cap;
};
/* Every tensor in a fixed order: embedding, layers, final norm, head.
 * Release with mw_array_release(). A tied head has no tensor of its own. */
void mw_model_params(const struct mw_model *model, struct mw_params *out);
/* Elements of a parameter: whole, and one rank's shard (tp, ep, etp). */
int64_t mw_param_count(const struct mw_param *p);
int64_t mw_param_shard_count(const struct mw_param *p,
                             const struct mw_layout *layout);
/* The table's row with the sizes that one rank holds (tp, ep, etp). */
struct mw_param mw_param_shard_of(const struct mw_param *p,
                                  const struct mw_layout *layout);
/* Published total (without MTP) and the part active per token (top_k of the
 * routed experts; embedding counted as the literature does: once). */
int64_t mw_model_param_count(const struct mw_model *model);
int64_t mw_model_active_param_count(const struct mw_model *model);

/* ---- low-rank adapters (lora.c) ------------------------------------------ */
/* Which linear layers carry them: each choice is a part of the one before. */
enum mw_lora_targets { MW_LORA_ALL, MW_LORA_ATTENTION, MW_LORA_QKV };
/* What frozen matrices of the layers are stored in: as other weights, or in
 * 4-bit NormalFloat with doubly quantised scales. */
enum mw_base_dtype { MW_BASE_SAME, MW_BASE_NF4 };

/* What shares a scale of an FP8 operand: the tensor, a row of it (or column),
 * 128 elements and blocks of 128 x 128 (DeepSeek-V3, arXiv:2412.19437, section
 * 3.3.2), or 32 elements with a scale of 8 bits (OCP microscaling, MXFP8). */
enum mw_scaling {
    MW_SCALE_TENSOR,
    MW_SCALE_ROW,
    MW_SCALE_BLOCK,
    MW_SCALE_MX,
    MW_SCALING_COUNT
};
/* How the loss is worked out: as the stack does, a kernel for each line of
 * Megatron-LM's code on fp32 logits, or one kernel that leaves the gradient in
 * the logits' place (Transformer Engine's, flash-attn's). */
enum mw_loss { MW_LOSS_STACK, MW_LOSS_EAGER, MW_LOSS_FUSED };

/* Bytes of one weight then: 4 bits, an 8-bit scale for each 64, an fp32 one for
 * each 256 scales (Dettmers et al., arXiv:2305.14314, section 3). */
#define MW_NF4_BYTES (0.5 + 1.0 / 64 + 4.0 / (64 * 256))
/* Appends the adapters of a parameter table: A [outer][rank][cols] and B
 * [outer][rows][rank] of each chosen tensor, in its order. */
void mw_lora_params(const struct mw_params *base, int rank,
                    enum mw_lora_targets targets, struct mw_params *out);
/* Does QLoRA store it in 4 bits? Matrices of layers; not embedding and head. */
bool mw_param_is_quantised(const struct mw_param *p);
/* As mw_model_flops_per_token, without the weight gradients of what is frozen
 * and with the adapters. */
double mw_lora_flops_per_token(const struct mw_model *model, int64_t seq,
                               bool is_causal_half, int rank,
                               enum mw_lora_targets targets);

/* ---- operators ----------------------------------------------------------- */
enum mw_op_kind {
    MW_OP_GEMM,      /* D[m,n] = A[m,k] B[k,n], `batch` times */
    MW_OP_ATTENTION, /* fused (flash) attention core */
    MW_OP_NORM,
    MW_OP_ROTARY,
    MW_OP_ACTIVATION, /* GELU, SwiGLU, ... with bias */
    MW_OP_ADD,        /* residual, with dropout where used */
    MW_OP_SOFTMAX,    /* scale-mask-softmax of unfused attention */
    MW_OP_EMBEDDING,
    MW_OP_CROSS_ENTROPY,
    MW_OP_ROUTER,  /* top-k gate */
    MW_OP_PERMUTE, /* token dispatch / combine on the device */
    MW_OP_OPTIMIZER,
    MW_OP_COLL, /* a collective of the layout: see coll fields */
    MW_OP_KIND_COUNT
};
const char *mw_op_kind_name(enum mw_op_kind kind); /* "gemm" */

/* Which part of the work: forward, input gradient, weight gradient. */
enum mw_pass { MW_PASS_F, MW_PASS_B, MW_PASS_W, MW_PASS_BW, MW_PASS_COUNT };
const char *mw_pass_name(enum mw_pass pass); /* "F" "B" "W" "BW" */

enum mw_coll_op {
    MW_ALL_REDUCE,
    MW_ALL_GATHER,
    MW_REDUCE_SCATTER,
    MW_ALL_TO_ALL,
    MW_BROADCAST,
    MW_SEND_RECV,
    MW_REDUCE,
    MW_COLL_OP_COUNT
};
const char *mw_coll_op_name(enum mw_coll_op op); /* "all_reduce" */
extern const struct mw_enum mw_coll_op_enums[];

/* The dimension whose group carries a collective. */
enum mw_dim {
    MW_DIM_TP,
    MW_DIM_CP,
    MW_DIM_EP,
    MW_DIM_ETP,
    MW_DIM_PP,
    MW_DIM_DP,
    MW_DIM_COUNT
};
/* "tp"; of MW_DIM_COUNT "all". */
const char *mw_dim_name(enum mw_dim dim);

/* Exchanges with routed experts, of forward tokens and results or of their
 * gradients: the layer's first product of shared experts and what is around it
 * needs no more than the first does, the second no more than the other
 * (Megatron-LM, core/transformer/moe/shared_experts.py). */
enum mw_beside { MW_BESIDE_NONE, MW_BESIDE_DISPATCH, MW_BESIDE_COMBINE };

/*
 * One operator of one pass for one micro-batch on one rank. FLOPs count a
 * multiply-add as 2; bytes are those that must cross the device memory once
 * (inputs read, outputs written); save_bytes is what the forward pass must
 * keep for the backward one (0 under recomputation of that operator).
 */
struct mw_op {
    enum mw_op_kind kind;
    enum mw_pass pass;
    const char *name; /* static: "qkv" "attn" "proj" "fc1" "act" "fc2" ... */
    int64_t m, n, k, batch; /* GEMM; attention: m = q tokens, n = kv tokens,
                               k = head_dim, batch = heads * sequences;
                               grouped GEMM: batch experts of m tokens each;
                               others: m = rows (tokens), n = width */
    int64_t kv_batch;       /* attention: kv heads * sequences */
    int64_t v_dim;          /* attention: elements of a value head (k under
                               MLA, where it differs, is the query's) */
    bool is_causal;         /* attention */
    double flops;           /* performed on this rank: matrix products alone,
                               as SC21 (arXiv:2104.04473, appendix) counts;
                               element-wise work is priced by its bytes */
    double model_flops;     /* counted as useful work (MFU): no recompute, the
                               full square of attention, its backward twice
                               its forward (a flash kernel does 2.5 times) */
    double bytes;
    double cast_elements; /* of the operand that this product is the first to
                             need in its type: under FP8 and FP4 they are cast
                             from bf16, by the rank that made them */
    double save_bytes;
    enum mw_dtype dtype;
    enum mw_scaling scaling; /* of FP8 operands */
    enum mw_coll_op coll;    /* MW_OP_COLL: which, over which group, how much */
    enum mw_dim dim;
    double coll_bytes;    /* nccl-tests "size": the whole buffer, bytes */
    double work_fraction; /* part of the full square that attention does:
                             0.5 + 0.5/s causal, 1 otherwise; with a window of
                             w keys, of the s x w rectangle */
    int64_t window;       /* attention: keys that a query meets at most where
                             a window cuts them; else 0 */
    double tile_work;     /* attention: of what its tiles compute over flops, as
                             mw_window_tile_work; 0 stands for 1 */
    int repeat;   /* it runs so often, one after another, and all figures above
                     are of one of them; 0 stands for 1 */
    bool is_ring; /* MW_OP_COLL: an exchange with the neighbours in the ring,
                     made while attention computes with the last one's data:
                     one less than the attention's repeats can hide */
    bool is_routed; /* of rows that a router sent here: a rank may have more
                       of them than the mean, of which all figures are */
    enum mw_beside beside; /* of shared experts: what may go on meanwhile */
    bool is_attention;     /* of a layer's attention part, not of its MLP */
    bool is_return; /* MW_OP_COLL over ep: results (backward: gradients of what
                       was sent) come back to the ranks of their tokens */
    bool is_inner; /* MW_OP_COLL over cp: among the layout's cp_inner ranks; the
                      others with cp_inner go between such sets */
};
/* How often an operator runs. */
int mw_op_times(const struct mw_op *op);
/* FLOPs with those of what its tiles compute and mask. */
double mw_op_tile_flops(const struct mw_op *op);
struct mw_ops {
    struct mw_op *v;
    size_t n, cap;
};

/* What a rank computes with: sizes after the layout has been applied. */
struct mw_work {
    const struct mw_model *model;
    const struct mw_layout *layout;
    int64_t seq;              /* tokens of one sequence, whole */
    enum mw_dtype dtype;      /* of activations and GEMM inputs */
    bool is_flash;            /* fused attention (no s x s tensor stored) */
    bool has_dropout;         /* masks stored (Megatron of 2021) */
    bool splits_experts;      /* biases and clamps of routed experts are a
                                 kernel for each line of code */
    bool wide_probs;          /* ... with the routers' probabilities in fp32 */
    bool sums_in_place;       /* has_dropout's time: a product adds to the
                                 gradient itself */
    enum mw_dtype grad_dtype; /* that weight gradients accumulate in */
    int lora_rank;            /* adapters alone learn; 0: all weights do */
    enum mw_lora_targets lora_targets;
    enum mw_base_dtype base_dtype;
    int64_t doc_tokens; /* of a document in a packed sequence; 0: seq */
    enum mw_scaling scaling;
    enum mw_loss loss;
    int loss_chunks;    /* parts of the rank's tokens that head and loss take in
                           turn, each with its gradient; 0 or 1: whole */
    double routed_load; /* of what is sized in memory, tensors of rows that a
                           router sent here over the mean's; 0: 1 */
};
/* Tokens that attention spans: a document's, or the sequence's. */
int64_t mw_work_span(int64_t seq, int64_t doc_tokens);

/*
 * Appends the operators of one pass of one transformer layer, in execution
 * order, TP/CP/EP collectives included (Megatron's f and g operators: 1 all-
 * reduce after attention and 1 after the MLP forward, the same backward; with
 * sp an all-gather before and a reduce-scatter after instead; of the CP group
 * what layout->cp_form says).
 * MW_PASS_B and MW_PASS_W are the separate input- and weight-gradient parts;
 * MW_PASS_BW is B followed by W. W also holds the parameter gradients of norms
 * and, with sp, the all-gather of the saved input shards that its GEMMs read.
 * With adapters (work->lora_rank) W holds theirs alone. With recomputation the
 * forward operators to repeat are not in B: ask mw_layer_recompute_ops. An
 * operator that a pass does not need is left out.
 */
void mw_layer_ops(const struct mw_work *work, int layer, enum mw_pass pass,
                  struct mw_ops *out);
/* Forward operators repeated before B under layout->recompute (none: nothing;
 * selective: attention core; full: the whole layer and its collectives). */
void mw_layer_recompute_ops(const struct mw_work *work, int layer,
                            struct mw_ops *out);
/* Embedding look-up (first stage) and final norm + head + loss (last). */
void mw_embedding_ops(const struct mw_work *work, enum mw_pass pass,
                      struct mw_ops *out);
void mw_head_ops(const struct mw_work *work, enum mw_pass pass,
                 struct mw_ops *out);
/* What a multi-token-prediction module does between its look-up
 * (mw_embedding_ops) and its layer: norms and the projection of two hidden
 * states to one; and what that keeps, or kept if it were not recomputed
 * (`whole`). */
void mw_mtp_ops(const struct mw_work *work, enum mw_pass pass,
                struct mw_ops *out);
double mw_mtp_activation_bytes(const struct mw_work *work, bool whole);
/* Is a module recomputed whole, from its norms to the one before its head?
 * Under full recomputation, unless that is of some layers alone (Megatron-LM,
 * core/transformer/multi_token_prediction.py: recompute_method uniform; with
 * block it is skipped). Selective recomputation is its layer's. */
bool mw_mtp_is_again(const struct mw_layout *layout);
/* What is repeated before B, but for the layer's; nothing unless all is. */
void mw_mtp_recompute_ops(const struct mw_work *work, struct mw_ops *out);
/* Bytes sent between stages per micro-batch and rank: the layer's output, or
 * the rank's part of it with sp. */
double mw_boundary_bytes(const struct mw_work *work);

/* Model FLOPs of one step per token by Megatron's formula (SC21 equation 3)
 * generalised: forward 1, backward 2, no recompute; 2 FLOPs per weight of a
 * matrix that the token passes (top_k experts), attention counted full (s^2)
 * or causal (half); no multi-token prediction. */
double mw_model_flops_per_token(const struct mw_model *model, int64_t seq,
                                bool is_causal_half);

/* Weights of matrices that one token meets in a forward pass (top_k experts).
 */
double mw_model_matrix_weights(const struct mw_model *model);

/* ---- memory ----------------------------------------------------------------
 */
/* Bytes that one layer keeps per micro-batch on one rank between forward and
 * backward, under the layout's recompute; and for embedding and head. */
double mw_layer_activation_bytes(const struct mw_work *work, int layer);
/* Bytes that come back for the time of one layer's backward pass when it is
 * recomputed: what the layer would have kept without recomputation, less what
 * it keeps. 0 without recomputation. */
double mw_layer_recompute_bytes(const struct mw_work *work, int layer);
/* The worst moment of one layer's backward pass: bytes beside what the layer
 * keeps (mw_layer_activation_bytes; under full recomputation, what came back as
 * well) and beside gradients of weights, and the operator at whose gradient it
 * is. */
struct mw_layer_peak {
    double bytes;
    const char *at; /* static */
};
void mw_layer_backward_peak(const struct mw_work *work, int layer,
                            struct mw_layer_peak *out);
double mw_embedding_activation_bytes(const struct mw_work *work);
double mw_head_activation_bytes(const struct mw_work *work);

#endif
