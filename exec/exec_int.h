/*
 * Inside of the executor: one rank's state, and the passes over a block and
 * over the two ends of the model.
 *
 *   struct mw_exec     job, communicators, device, recorder, flat buffers
 *   struct mw_chunk    a virtual stage: blocks, and the ends if it has them
 *   struct mw_fwd      what F keeps of one micro-batch until W
 *   struct mw_bwd      what B keeps of one micro-batch until W
 *
 * B keeps the gradient at the output of every linear layer and norm; W later
 * makes dW = dY^T X from it, so the passes are separate functions and BW is B,
 * send, W.
 */
#ifndef MW_EXEC_EXEC_INT_H
#define MW_EXEC_EXEC_INT_H

#include "exec/comm.h"
#include "exec/dev.h"
#include "exec/job.h"
#include "exec/record.h"
#include "exec/shards.h"

/* Sizes of this rank, all that the passes need. */
struct mw_dims {
    int rows;        /* tokens of a micro-batch inside the TP regions */
    int own_rows;    /* outside of them: with sp, rows / tp */
    int n_seqs, seq; /* seq: whole; n_cp ranks have a part each */
    int doc;         /* tokens that attention stays inside of; seq: all */
    int n_cp;
    int n_parts; /* passes over a micro-batch, a part of its sequences each */
    int hidden, ffn;                   /* ffn of this rank */
    int n_heads, n_kv_heads, head_dim; /* of this rank */
    int vocab, first_token;            /* of this rank */
    int q_width, kv_width; /* columns of q, and of k and v together */
    bool is_fused_qkv;     /* one GEMM [q | k | v], else q and [k | v] */
    bool is_gated, has_rotary, has_position;
    enum mw_norm norm;
    int n_experts, top_k, moe_ffn; /* 0: none */
    int n_local, moe_rows;         /* own experts; rows that may come to them */
    int n_sources;                 /* ranks that rows come from: ep etp */
    int shared_ffn;                /* of this rank */
    bool has_shared_gate;
    bool is_sp;                  /* sequence parallel, tp > 1 */
    enum mw_recompute recompute; /* what B computes again ... */
    bool keeps_layers;           /* ... of some layers, not of others */
    bool is_dealt;       /* context parallel with all-to-alls of heads */
    int lora_rank;       /* of adapters, beside which all is frozen; 0: none */
    bool adapts_mlp;     /* not attention's linear layers alone */
    bool keeps_repeated; /* full recomputation with W apart from B: what
                            B repeated stays until W */
};

/* A tensor's weights and gradient; both NULL where the model has none. */
struct mw_tensor {
    void *w;
    float *g;
};
/* A linear layer of n_outer equal parts (q, k and v; gate and up). With
 * adapters (linear.c) the rest is frozen: has no gradient. */
struct mw_linear {
    struct mw_tensor weight, bias;
    struct mw_tensor lora_a, lora_b;
    int n_outer;
};
/* Those of a block that may have adapters; fc1 and fc2 are the dense MLP's or
 * the shared expert's. */
enum mw_linear_id {
    MW_LINEAR_Q,
    MW_LINEAR_KV,
    MW_LINEAR_PROJ,
    MW_LINEAR_FC1,
    MW_LINEAR_FC2,
    MW_LINEAR_EXPERT_1,
    MW_LINEAR_EXPERT_2,
    MW_LINEARS
};
struct mw_norm_tensors {
    struct mw_tensor gamma, beta;
};
struct mw_block {
    int layer;
    bool is_moe; /* its second half: router and own experts, else fc1, fc2 */
    struct mw_tensor router, shared_gate;
    struct mw_linear experts_1, experts_2; /* of all own experts */
    struct mw_linear shared_1, shared_2;
    struct mw_norm_tensors norm1, norm2;
    struct mw_linear q;  /* the fused [q | k | v] when is_fused_qkv */
    struct mw_linear kv; /* else unused */
    struct mw_linear proj, fc1, fc2;
};
struct mw_chunk {
    int virtual_stage, n_layers;
    bool has_embedding, has_head;
    struct mw_block *blocks;
    struct mw_tensor embedding, position; /* first virtual stage */
    struct mw_norm_tensors final_norm;    /* last */
    struct mw_tensor head;
};

/* ---- activations -------------------------------------------------------- */
/* A mixture of experts (experts.c says which order is which). */
struct mw_moe_fwd {
    float *probs;            /* [own rows][experts] */
    int32_t *choice, *place; /* [own rows][top k] */
    float *weight;
    int32_t *from;              /* source order */
    int64_t *leaving, *arrived; /* rows by expert; by source and own expert */
    /* Where each own expert's rows begin, and the end; all three apart on the
     * host. */
    int32_t *first;
    int64_t *host_leaving, *host_arrived;
    int32_t *host_first;
    void *shared_h1, *shared_g, *shared_out;
    float *shared_logit;
    int32_t *order, *home;
    float *aux;        /* [experts] */
    void *in, *h1, *g; /* expert order */
    void *out;         /* source order */
};
struct mw_moe_bwd {
    void *dy, *dh1; /* expert order */
    float *dweight;
    void *dlogits;
    void *shared_dy, *shared_dy_full, *shared_dh1, *shared_dlogit;
};

struct mw_block_fwd {
    void *x; /* input: the previous block's output */
    void *n1, *q, *kv, *att, *mid, *n2, *h1, *g;
    float *mean1, *rstd1, *lse, *mean2, *rstd2;
    /* Where CP deals out heads: whole sequences of the own heads. */
    void *head_q, *head_k, *head_v, *head_out;
    void *ha[MW_LINEARS]; /* adapters: [n_outer][rows][rank] */
    struct mw_moe_fwd moe;
};
struct mw_block_bwd {
    void *dn1, *dq, *dkv, *dmid, *dn2, *dh1;
    void *dy_full, *dmid_full; /* with sp: gathered by B, read by W */
    void *dha[MW_LINEARS];     /* gradients at ha */
    struct mw_moe_bwd moe;
};
struct mw_fwd {
    void *mem;
    size_t bytes;
    size_t table_bytes;          /* the part that sim/model's table counts */
    size_t expert_bytes;         /* of table_bytes: as many as rows arrived */
    int chunk, microbatch;       /* -1: free */
    struct mw_block_fwd *blocks; /* [n_layers] */
    void **x;                    /* [n_layers + 1]: inputs, last the output */
    int32_t *token, *label;      /* ends only */
    void *nf;                    /* head */
    float *logits;
    float *mean, *rstd, *max, *sum, *target;
    struct mw_send sent; /* of the output */
    struct mw_fwd *next; /* in the chunk's pool */
};
struct mw_bwd {
    void *mem;
    size_t bytes;
    int chunk, microbatch;
    struct mw_block_bwd *blocks;
    struct mw_block_fwd *repeated; /* [n_layers] when keeps_repeated */
    void **dx;                     /* [n_layers + 1]: gradients at x */
    void *dnf;
    void *dlogits;       /* NULL: in the place of the logits */
    struct mw_send sent; /* of dx[0] */
    struct mw_bwd *next;
};

/* What AdamW keeps (states.c): the first n_host of n elements in the host's
 * memory, the rest on the device. */
enum mw_state { MW_STATE_M, MW_STATE_V, MW_STATE_MASTER, MW_STATES };
struct mw_states {
    size_t n, n_host;
    float *device[MW_STATES], *host[MW_STATES]; /* NULL: none there */
    float *piece[2]; /* pinned: gradients and weights on their way */
};

/* Keys and values, and their gradients, of whole sequences of a micro-batch
 * that runs in parts (parts.c). */
struct mw_seq_store {
    void *mem;
    size_t bytes;
    int microbatch; /* -1: free */
    struct mw_seq_store *next;
};

enum { MW_CP_PIECES = 16 };

/* What meets in a ring or gather: a set of neighbours that deal out heads to
 * each other (cp_inner) is one rank of it, with the tokens of all and a part of
 * the heads. */
struct mw_cp_set {
    int n_deal;        /* ranks of a set; 1: no heads are dealt out */
    int n_sets, index; /* sets of the group; the own one's place */
    int piece;         /* tokens of half of what a set has of a sequence */
    int rows;          /* tokens of a set */
    int q_width, kv_width, n_heads; /* of the own heads */
};

struct mw_exec {
    const struct mw_job *job;
    struct mw_coord at;
    struct mw_dims dims;
    struct mw_comm *world; /* of this job; sends and receives */
    struct mw_comm *tp, *cp, *ends;
    struct mw_comm *cp_deal, *cp_ring; /* of cp: the own set; one of each set */
    /* Of experts: other experts, other parts of the same, the same ones. */
    struct mw_comm *ep, *etp, *edp;
    struct mw_comm *dp; /* ranks that share a gradient; with dp_shard, out */
    struct mw_comm *copies; /* those that then have the same share of it */
    struct mw_dev *dev;
    enum mw_elem elem; /* of activations and weights */
    struct mw_rec *rec;
    struct mw_err *err; /* where failures of the passes go */
    struct mw_shards shards;
    /* Flat buffers of shards.n_total elements, or the owned parts of them
     * (layer_units.c). */
    void *w;
    float *g;
    struct mw_states states;
    /* Gradients of the second route where this device is its own twin: one
     * rank, or the middle of an odd number; else NULL. */
    float *g_twin;
    void *unit_w;  /* with ZeRO-3: one layer's units, or without resharding
                      all of them */
    float *unit_g; /* and with ZeRO-2 */
    size_t n_unit, n_unit_w;
    int n_chunks;
    struct mw_chunk *chunks;
    struct mw_fwd **fwd; /* [n_chunks]: pools */
    struct mw_bwd **bwd;
    void *tmp;     /* [rows][max width]: transient */
    void *full;    /* [rows][hidden]: gathered rows, or an output unused */
    void *scratch; /* attention */
    size_t tmp_bytes, full_bytes, scratch_bytes;
    /* What F need not keep where weights are frozen. */
    struct mw_block_fwd lent;
    void *lent_nf, *lent_mem;
    size_t lent_bytes;
    void *lora_tmp[2]; /* [rows][max width] */
    size_t lora_tmp_bytes;
    /* Of one layer: what recomputation brings back for its backward pass. */
    struct mw_block_fwd repeated;
    void *repeated_mem;
    size_t repeated_bytes;
    /* Context parallelism: what its form needs (context_int.h). */
    struct mw_cp_set cp_set;
    void *cp_mem[MW_CP_PIECES];
    size_t cp_bytes[MW_CP_PIECES];
    /* Rows on their way to experts and back. */
    void *moe_near, *moe_far, *moe_out, *moe_dg;
    size_t moe_bytes, moe_dg_bytes;
    float *moe_aux;    /* [experts], on the host */
    double aux_weight; /* of the auxiliary loss */
    /* Parts of sequences: the part, the micro-batch's store and the layer's
     * place in it that the pass under way has to do with. */
    int part;
    struct mw_seq_store **stores, *store; /* [n_chunks]: pools */
    void *seq_kv, *seq_dkv;
    struct mw_arena arena;
    /* Rows by expert of each layer of experts and item of the schedule, from
     * the own rows: [layer][item][expert]; NULL: nobody asks. */
    int64_t *routed;
    double *loss;     /* [items of the schedule], sums over tokens */
    float loss_scale; /* 1 / tokens of the whole step */
    int step;         /* 0, 1, ... */
    /* Slabs of F in use: what the model's table counts, and at most; all. */
    size_t act_bytes, act_peak_bytes;
    size_t kept_bytes, kept_peak_bytes;
};

/* What B computes again of layer i of a chunk. */
static inline enum mw_recompute mw_recompute_of(const struct mw_exec *ex,
                                                const struct mw_chunk *c, int i)
{
    bool is_kept = i >= mw_layout_recomputed(&ex->job->layout, c->virtual_stage,
                                             c->n_layers);
    return is_kept ? MW_RECOMPUTE_NONE : ex->dims.recompute;
}
/* Does B compute a block's attention core again, and nothing else? */
static inline bool mw_core_is_repeated(const struct mw_exec *ex,
                                       const struct mw_block_fwd *f)
{
    return ex->dims.recompute == MW_RECOMPUTE_SELECTIVE &&
           f->lse == ex->repeated.lse;
}

/* ---- set-up ------------------------------------------------------------- */
/* Collective over `world`, which has the ranks of the layout. */
enum mw_status mw_exec_open(struct mw_exec *ex, const struct mw_job *job,
                            struct mw_comm *world, struct mw_dev *dev,
                            struct mw_rec *rec, struct mw_err *err);
void mw_exec_close(struct mw_exec *ex);

/* A slab for (chunk, microbatch): taken from the pool or made. */
struct mw_fwd *mw_fwd_take(struct mw_exec *ex, int chunk, int microbatch);
struct mw_fwd *mw_fwd_find(struct mw_exec *ex, int chunk, int microbatch);
/* Given back; its message may still be under way. */
void mw_fwd_give(struct mw_exec *ex, struct mw_fwd *f);
struct mw_bwd *mw_bwd_take(struct mw_exec *ex, int chunk, int microbatch);
struct mw_bwd *mw_bwd_find(struct mw_exec *ex, int chunk, int microbatch);
void mw_bwd_give(struct mw_bwd *b);
/* Waits until every message of the step has ended. */
enum mw_status mw_slabs_settle(struct mw_exec *ex);
/* Counts what arrived at block i's experts. */
void mw_fwd_count_experts(struct mw_exec *ex, struct mw_fwd *f, int i);
void mw_slabs_open(struct mw_exec *ex);
void mw_slabs_free(struct mw_exec *ex);

/* ---- passes ------------------------------------------------------------- */
/* Forward writes y; backward takes dy (the gradient at y), writes dx. */
enum mw_status mw_block_forward(struct mw_exec *ex, const struct mw_block *b,
                                struct mw_block_fwd *f, void *y);
enum mw_status mw_block_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 struct mw_block_bwd *k, const void *dy,
                                 void *dx);
enum mw_status mw_block_weight(struct mw_exec *ex, const struct mw_block *b,
                               const struct mw_block_fwd *f,
                               const struct mw_block_bwd *k, const void *dy);

enum mw_status mw_embedding_forward(struct mw_exec *ex,
                                    const struct mw_chunk *c, struct mw_fwd *f);
enum mw_status mw_embedding_weight(struct mw_exec *ex, const struct mw_chunk *c,
                                   const struct mw_fwd *f,
                                   const struct mw_bwd *b);
/* Sets ex->loss of the item: a micro-batch, or a part of it. */
enum mw_status mw_head_forward(struct mw_exec *ex, const struct mw_chunk *c,
                               struct mw_fwd *f);
enum mw_status mw_head_backward(struct mw_exec *ex, const struct mw_chunk *c,
                                struct mw_fwd *f, struct mw_bwd *b);
enum mw_status mw_head_weight(struct mw_exec *ex, const struct mw_chunk *c,
                              const struct mw_fwd *f, const struct mw_bwd *b);

/* The compute segment under way goes on under another name. */
static inline void mw_exec_relabel(struct mw_exec *ex, enum mw_span_kind span,
                                   const char *name)
{
    mw_rec_work(ex->rec, span, name, ex->rec->label.microbatch,
                ex->rec->label.stage);
}

/* Sum (or maximum) of a float32 buffer over the TP group, recorded. */
enum mw_status mw_exec_tp_reduce(struct mw_exec *ex, const char *name,
                                 void *buf, size_t n, enum mw_reduce op);
/* Rows of hidden elements into a TP region: *out is `own`, or with sp the
 * gathered rows in `full`. */
enum mw_status mw_region_enter(struct mw_exec *ex, const char *name,
                               const void *own, void *full, const void **out);
/* Partial sums out of it: *out is the sum of all rows, or of the own ones. */
enum mw_status mw_region_leave(struct mw_exec *ex, const char *name, void *full,
                               void **out);
/* Partial sums of gradients at a region's input, in ex->full with sp, else in
 * dn: their sum into dn. */
enum mw_status mw_region_sum_gradient(struct mw_exec *ex, const char *name,
                                      void *dn);

/* ---- a linear layer (linear.c) ------------------------------------------ */
struct mw_product {
    const struct mw_linear *linear;
    int rows, n, k;
    void *ha, *dha; /* of adapters: F keeps, B keeps */
    /* The gradient that the bias learns from, where it is another than the
     * product's: with sp a row-parallel layer's is added to the own rows. */
    const void *bias_dy;
    int bias_rows;
};
/* y = x W^T + bias; dx = dy W; both with what adapters add. */
void mw_linear_forward(struct mw_exec *ex, const struct mw_product *p, void *y,
                       const void *x, const void *bias);
void mw_linear_backward(struct mw_exec *ex, const struct mw_product *p,
                        void *dx, const void *dy);
/* Gradients of what learns. */
void mw_linear_weight(struct mw_exec *ex, const struct mw_product *p,
                      const void *dy, const void *x);
static inline bool mw_linear_learns(const struct mw_linear *l)
{
    return l->weight.g || l->lora_a.w;
}
void mw_linear_open(struct mw_exec *ex);
void mw_linear_close(struct mw_exec *ex);

/* ---- two linear layers and an activation (pair.c) ----------------------- */
struct mw_pair {
    const struct mw_linear *fc1, *fc2;
    const char *in, *out; /* names of the messages into and out of the region */
    int ffn;              /* of this rank */
    void *h1, *g;         /* what F keeps */
    void *dh1, *dy_full;  /* what B keeps */
    void *ha[2], *dha[2]; /* of adapters */
};
/* *out: the sum, all rows or with sp the own ones; the bias of fc2 is not in
 * it. x and dy are what stands outside of the region. */
enum mw_status mw_pair_forward(struct mw_exec *ex, const struct mw_pair *p,
                               const void *x, void **out);
enum mw_status mw_pair_backward(struct mw_exec *ex, const struct mw_pair *p,
                                const void *dy, void *dx);
enum mw_status mw_pair_weight(struct mw_exec *ex, const struct mw_pair *p,
                              const void *x, const void *dy);

/* ---- context parallelism (context.c) ------------------------------------ */
/* Rows of this rank that follow each other in their sequence, the first at
 * `position`. */
struct mw_run {
    int position, n;
};
/* Ranks that deal out heads to each other: all, cp_inner of them, or one. */
int mw_context_ways(const struct mw_layout *l);
struct mw_run mw_run_at(const struct mw_exec *ex, int row);
void mw_context_open(struct mw_exec *ex);
void mw_context_close(struct mw_exec *ex);
/* The core of attention, in the layout's form; also again under selective
 * recomputation. `a` has the own tokens of all heads. */
enum mw_status mw_context_forward(struct mw_exec *ex,
                                  const struct mw_block_fwd *f,
                                  const struct mw_dev_attention *a);
enum mw_status mw_context_backward(struct mw_exec *ex,
                                   const struct mw_block_fwd *f,
                                   const struct mw_dev_attention *a);

/* ---- mixture of experts (experts.c) ------------------------------------- */
enum { MW_EP_MAX = 256 };
void mw_experts_open(struct mw_exec *ex);
void mw_experts_close(struct mw_exec *ex);
/* Products of the own experts (expert_products.c), rows in their order; out, dx
 * [rows][hidden], dh1 is kept in k. */
int mw_expert_fc1_width(const struct mw_dims *d);
void mw_expert_products_forward(struct mw_exec *ex, const struct mw_block *b,
                                const struct mw_block_fwd *f, void *out);
void mw_expert_products_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 const struct mw_block_bwd *k, void *dx);
void mw_expert_products_weight(struct mw_exec *ex, const struct mw_block *b,
                               const struct mw_block_fwd *f,
                               const struct mw_block_bwd *k);
/* What the host keeps beside a slab. */
void mw_experts_lay_host(struct mw_exec *ex, struct mw_moe_fwd *f);
/* From n2 and mid to y; from dy to dn2; then W. */
enum mw_status mw_experts_forward(struct mw_exec *ex, const struct mw_block *b,
                                  struct mw_block_fwd *f, void *y);
enum mw_status mw_experts_backward(struct mw_exec *ex, const struct mw_block *b,
                                   const struct mw_block_fwd *f,
                                   struct mw_block_bwd *k, const void *dy);
enum mw_status mw_experts_weight(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 const struct mw_block_bwd *k, const void *dy);
/* The expert that sees every row (shared_expert.c): added to y, to dn2. */
enum mw_status mw_shared_forward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f, void *y);
enum mw_status mw_shared_backward(struct mw_exec *ex, const struct mw_block *b,
                                  const struct mw_block_fwd *f,
                                  struct mw_block_bwd *k, const void *dy);
enum mw_status mw_shared_weight(struct mw_exec *ex, const struct mw_block *b,
                                const struct mw_block_fwd *f,
                                const struct mw_block_bwd *k, const void *dy);
/* Bytes of what came to this rank's experts and is kept. */
size_t mw_experts_kept_bytes(const struct mw_exec *ex,
                             const struct mw_moe_fwd *f);

/* ---- parts of sequences (parts.c) --------------------------------------- */
void mw_parts_open(struct mw_exec *ex);
void mw_parts_close(struct mw_exec *ex);
/* Around a pass, and before each layer of it; nothing with whole sequences. */
void mw_part_begin(struct mw_exec *ex, const struct mw_slot *slot);
void mw_part_layer(struct mw_exec *ex, const struct mw_chunk *c, int layer);
void mw_part_end(struct mw_exec *ex, const struct mw_slot *slot);
/* The core of attention for the part under way. */
void mw_part_forward(struct mw_exec *ex, const struct mw_dev_attention *a);
void mw_part_backward(struct mw_exec *ex, const struct mw_dev_attention *a);

/* ---- a step ------------------------------------------------------------- */
/* Walks this stage's list: gradients of the step in g, losses in loss. */
enum mw_status mw_exec_walk(struct mw_exec *ex);
/* Sums tied gradients and, over DP, all gradients (all-reduce, or
 * reduce-scatter with ZeRO-1). */
enum mw_status mw_exec_reduce_gradients(struct mw_exec *ex);
/* AdamW on what this rank owns; gathers weights with ZeRO-1. */
enum mw_status mw_exec_update(struct mw_exec *ex);
/* Mean loss per token of the step just walked, the same on every rank. */
enum mw_status mw_exec_loss(struct mw_exec *ex, double *out);
/* ---- optimizer states (states.c) ----------------------------------------- */
void mw_states_open(struct mw_exec *ex);
void mw_states_close(struct mw_exec *ex);
/* Elements at .. at + n - 1 of one kind, from memory of the host. */
void mw_states_write(struct mw_exec *ex, enum mw_state which, size_t at,
                     const float *src, size_t n);
/* All of one kind: states.n elements. */
void mw_states_read(const struct mw_exec *ex, enum mw_state which, float *dst);
/* AdamW on the weights w with gradients g, whose states begin at `at`. */
void mw_states_update(struct mw_exec *ex, const struct mw_dev_adamw *h,
                      size_t at, void *w, const float *g, size_t n);
/* n weights from float32 on the host to the device's type. */
void mw_weights_up(struct mw_exec *ex, void *dst, const float *src, size_t n);
/* To nearest, ties to even. */
uint16_t mw_bf16_of(float f);

/* ---- who stores what (layer_units.c)
 * ------------------------------------------ */
/* The flat buffers, by the ZeRO stage from which on they are split. */
enum mw_buffer { MW_BUFFER_STATE = 1, MW_BUFFER_GRAD, MW_BUFFER_WEIGHT };
/* Owned elements: flat positions first .. first + n - 1, the first of them at
 * `stored` of a split buffer. */
struct mw_range {
    size_t first, n, stored;
};
/* Without ZeRO a rank owns everything. */
struct mw_range mw_unit_owned(const struct mw_exec *ex, int unit);
struct mw_range mw_slice_owned(const struct mw_exec *ex,
                               const struct mw_slice *s);
/* Where a range begins in a buffer, and the elements of a buffer. */
size_t mw_stored_at(const struct mw_exec *ex, enum mw_buffer buffer,
                    const struct mw_range *r);
size_t mw_buffer_size(const struct mw_exec *ex, enum mw_buffer buffer);
/* Elements of the largest layer's units. */
size_t mw_units_largest(const struct mw_exec *ex);
/* Ranks that share a unit's gradients. */
struct mw_comm *mw_unit_group(const struct mw_exec *ex,
                              const struct mw_unit *u);
/* Where a unit begins in unit_w. */
size_t mw_unit_place(const struct mw_exec *ex, const struct mw_unit *u);
/* Before F or B of a layer (-1: embedding, n_layers: head): its weights
 * (ZeRO-3). Around W: its gradients (ZeRO-2). After the update: all weights
 * (ZeRO-1 and 2). */
enum mw_status mw_layer_fetch(struct mw_exec *ex, int layer, enum mw_pass pass);
void mw_layer_begin_weight(struct mw_exec *ex, int layer);
enum mw_status mw_layer_end_weight(struct mw_exec *ex, int layer);
enum mw_status mw_units_gather(struct mw_exec *ex);
/* After the last pass, below ZeRO-2: gradients over the groups. */
enum mw_status mw_units_reduce(struct mw_exec *ex);
/* A piece of a unit: elements of it, or of each rank's share of it, and the
 * part of its bytes that is recorded. */
struct mw_piece {
    size_t first, n;
    double part;
};
/* At buf, where the shares of the piece are consecutive: all-gather or
 * reduce-scatter over the unit's group; at g, the own share over the ranks that
 * have the same one; in the unit, an all-reduce. */
enum mw_status mw_unit_collective(struct mw_exec *ex, const char *name,
                                  const struct mw_unit *u, bool is_gather,
                                  const struct mw_piece *piece, void *buf);
enum mw_status mw_unit_add_copies(struct mw_exec *ex, const struct mw_unit *u,
                                  const struct mw_piece *piece, float *g);
enum mw_status mw_unit_all_reduce(struct mw_exec *ex, const char *name,
                                  const struct mw_unit *u,
                                  const struct mw_piece *piece);
/* grad_buckets.c: a unit's gradients, or weights, in the layout's buckets. */
enum mw_status mw_unit_reduce(struct mw_exec *ex, const struct mw_unit *u);
enum mw_status mw_unit_gather(struct mw_exec *ex, const struct mw_unit *u);

/* Tokens and labels of one micro-batch of this replica and step. */
void mw_batch_fill(const struct mw_exec *ex, int microbatch, int32_t *token,
                   int32_t *label);

/* Returns the status up: for calls whose failure ends a pass. */
#define MW_TRY(call)                                                           \
    do {                                                                       \
        enum mw_status mw_try_ = (call);                                       \
        if (mw_try_ != MW_OK) {                                                \
            return mw_try_;                                                    \
        }                                                                      \
    } while (0)

#endif
