/*
 * Inside of the operator tables: one forward description of a layer, from
 * which every pass and the saved bytes are derived.
 *
 * A step is a forward operator and what its backward pass needs:
 *
 *   GEMM with a weight   B: dX = dY W      W: dW = dY^T X  (1 forward each)
 *   other operators      B: as the kind says (ops.c)
 *   collective           B: its conjugate: f and g of Megatron-LM
 *                        (arXiv:1909.08053, section 3), and the all-gather and
 *                        reduce-scatter of sequence parallelism
 *                        (arXiv:2205.05198, section 4.2.2)
 */
#ifndef MW_SIM_MODEL_OPS_INT_H
#define MW_SIM_MODEL_OPS_INT_H

#include "sim/model/model.h"

/* No collective in this direction. */
enum { NO_COLL = -1 };

struct mw_fstep {
    struct mw_op op;    /* forward; save_bytes without any recomputation */
    int coll_f, coll_b; /* of MW_OP_COLL: enum mw_coll_op or NO_COLL */
    bool has_weight;    /* a GEMM with a weight: it has a W pass */
    bool has_w_gather;  /* its input was saved as a shard: W gathers it over
                           TP, w_gather_bytes whole */
    double w_gather_bytes;
    double gather_share; /* of MW_OP_COLL: bytes of an all-gather over those of
                            the reduction; operands are cast before they are
                            gathered */
    double cast_out_share; /* of the output's gradient, what this rank casts */
    bool coll_in_w;        /* the conjugate belongs to W: no B needs it */
    bool is_core; /* attention core: selective recomputation repeats it */
    double core_save_bytes; /* the part of save_bytes that it then drops (all
                               but q, k, v) */
    int modules; /* beside the core, that it is part of: repeated with them */
    int dropped_with; /* recomputed modules with which the rest of save_bytes is
                         not kept; bits as mw_recompute_module */
    bool is_probs_v;  /* of the two unfused products, the second */
    bool is_frozen;   /* its weights do not learn: no W */
    double bytes_b;   /* of an element-wise B or a backward collective; 0:
                         what its kind says, or as forward */
};
struct mw_fsteps {
    struct mw_fstep *v;
    size_t n, cap;
};

/* Sizes of one rank and micro-batch that all steps share. */
struct mw_sizes {
    const struct mw_work *work;
    const struct mw_model *m;
    double el;          /* bytes of a stored activation element */
    double gemm_el;     /* bytes of a GEMM operand's element */
    enum mw_dtype act;  /* type of element-wise work and messages */
    int64_t tokens;     /* of the TP group: micro_batch * seq / cp */
    int64_t own_tokens; /* of this rank outside TP regions (sp: tokens / tp) */
    int tp;
    bool is_sp; /* sequence parallelism in effect (tp > 1) */
};
struct mw_sizes mw_sizes_of(const struct mw_work *work);

/* Builders; each appends a step and returns it. Valid until the next. */
struct mw_fstep *mw_fstep_add(struct mw_fsteps *steps, const struct mw_sizes *s,
                              enum mw_op_kind kind, const char *name,
                              int64_t rows, int64_t width);
/* A linear layer: D[rows, out] = X[rows, in] W[in, out]; keeps X. */
struct mw_fstep *mw_fstep_linear(struct mw_fsteps *steps,
                                 const struct mw_sizes *s, const char *name,
                                 int64_t rows, int64_t out, int64_t in);
/* An element-wise kind that reads and writes `bytes` and keeps `save`. */
struct mw_fstep *mw_fstep_simple(struct mw_fsteps *steps,
                                 const struct mw_sizes *s, enum mw_op_kind kind,
                                 const char *name, int64_t rows, int64_t width,
                                 double bytes, double save);
/* Ranks of a dimension's group. */
int mw_fstep_ranks(const struct mw_sizes *s, enum mw_dim dim);
/* Collectives; NULL and nothing added when the group has one rank. */
struct mw_fstep *mw_fstep_coll(struct mw_fsteps *steps,
                               const struct mw_sizes *s, const char *name,
                               enum mw_dim dim, int coll_f, int coll_b,
                               double bytes);
/* Entry into a TP region (f, or all-gather with sp) for rows of `width`, and
 * exit from it (g, or reduce-scatter). */
void mw_fstep_tp_enter(struct mw_fsteps *steps, const struct mw_sizes *s,
                       const char *name, int64_t width);
void mw_fstep_tp_exit(struct mw_fsteps *steps, const struct mw_sizes *s,
                      const char *name, int64_t width);
/* Marks a linear layer whose input is gathered over TP with sp. */
void mw_fstep_sharded_input(struct mw_fstep *step, const struct mw_sizes *s,
                            int64_t width);
/* A norm over rows of width; keeps its input. */
void mw_fstep_norm(struct mw_fsteps *steps, const struct mw_sizes *s,
                   const char *name, int64_t rows, int64_t width);

/* Bytes of a GEMM's operands, each once. */
double mw_gemm_bytes(const struct mw_sizes *s, int64_t m, int64_t n, int64_t k,
                     int64_t batch);

/* The forward steps of a layer's two blocks, in execution order. */
void mw_steps_attention(const struct mw_sizes *s, int layer,
                        struct mw_fsteps *out);
void mw_steps_mlp(const struct mw_sizes *s, int layer, struct mw_fsteps *out);

/* What learns are adapters (lora.c); is_layer false: embedding or head, which
 * have none. Replaces the list. */
void mw_steps_freeze(const struct mw_sizes *s, bool is_layer,
                     struct mw_fsteps *steps);

/* What is repeated before a layer's backward pass: nothing, modules, or all but
 * the layer's input. */
enum { MW_AGAIN_NONE = 0, MW_AGAIN_ALL = -1 };
int mw_again_of(const struct mw_layout *layout);
/* Is the step repeated? */
bool mw_fstep_is_again(const struct mw_fstep *step, int again);
/* Tags steps first .. : part of modules, what they keep dropped with them. */
void mw_fsteps_tag(struct mw_fsteps *steps, size_t first, int modules,
                   int dropped_with);

/* Appends the operators of a pass for the steps. */
void mw_steps_emit(const struct mw_sizes *s, const struct mw_fsteps *steps,
                   enum mw_pass pass, int again, struct mw_ops *out);
/* What a step keeps; `is_first` is the layer's input. */
double mw_step_saved_bytes(const struct mw_fstep *step, int again,
                           bool is_first);

#endif
