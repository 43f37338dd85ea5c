/*
 * A device: memory, the operators of a training step, its clock. One small
 * table of functions, so that the interpreter does not know what it runs on
 * ("host" here; "cuda" is a module loaded at run time).
 *
 * Tensors are row-major. `void *` is an activation or a weight in the
 * device's element type (float on the host); `float *` is always float32:
 * statistics, gradients that accumulate, master weights. All operators are
 * enqueued in order on one stream of the device; on the host they have ended
 * when the call returns. They cannot fail: a device reports errors at `sync`.
 */
#ifndef MW_EXEC_DEV_H
#define MW_EXEC_DEV_H

#include "base/err.h"
#include "kernels/kernels.h"
#include "sim/model/model.h"

#include <stddef.h>
#include <stdint.h>

struct mw_dev_ops;
struct mw_comm;

/* A kind of operator that takes `factor` times as long as it should: the test
 * aid behind --slow. */
struct mw_slow {
    double factor[MW_OP_KIND_COUNT]; /* 0 and 1: as fast as it is */
};

struct mw_dev {
    const struct mw_dev_ops *ops;
    size_t elem_bytes; /* of an activation element */
    size_t used_bytes; /* allocated now */
    size_t peak_bytes; /* and at most */
    size_t host_bytes; /* of them apart: in the host's memory, for the device */
    size_t host_peak_bytes;
    struct mw_slow slow;
};

/* Norms: mean is unused and beta NULL for RMSNorm. */
struct mw_dev_norm {
    enum mw_norm kind;
    const void *x, *gamma, *beta;
    float *mean, *rstd;
    int rows, width;
};

/* Attention: see kernels/kernels.h for shapes and strides. */
struct mw_dev_attention {
    int n_seqs, seq, n_heads, n_kv_heads, head_dim, ld_q, ld_kv;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const void *dout; /* backward */
    void *dq, *dk, *dv;
    void *scratch; /* attention_scratch() bytes */
};

/* Queries and keys that are parts of a sequence: see struct mw_k_queries. */
struct mw_dev_queries {
    int first, n, ld_lse;
    bool adds_dq;
    const float *dots; /* backward: of attention_dots, or NULL */
};
/* Two parts of a softmax become one: see struct mw_k_merge. */
struct mw_dev_merge {
    int rows, n_heads, head_dim, ld_lse;
    void *out;
    float *lse;
    const void *part;
    const float *part_lse;
};

/* Rows of `bytes` each, ld bytes apart. */
struct mw_dev_rows {
    void *p;
    size_t ld;
};

/* Tokens looked up in, or scored against, a shard of the vocabulary that
 * begins at `first`. */
struct mw_dev_vocab {
    const int32_t *token; /* on the device */
    int rows, width, first, n_local;
};

struct mw_dev_xent {
    const float *logits; /* [rows][n_local] */
    float *max, *sum, *target;
    const int32_t *label;
    int rows, first, n_local;
};

struct mw_dev_adamw {
    float lr, beta1, beta2, eps, decay;
    int step; /* 1, 2, ... for bias correction */
};

/* Linear layers of n_groups experts with [n][k] weights one after the other:
 * group i has rows first[i] .. first[i + 1] - 1. The host knows them too. */
struct mw_dev_groups {
    int n_groups, n, k;
    const int32_t *first, *host_first; /* [n_groups + 1] */
};

/* Mixtures of experts: as mw_k_route_fwd and so on (kernels/kernels.h). All
 * arrays are the device's, but for host_first. */
struct mw_dev_expert_ops {
    void (*route_fwd)(struct mw_dev *dev, float *p, int32_t *choice,
                      float *weight, int rows, int n, int k);
    void (*route_bwd)(struct mw_dev *dev, void *dlogits, const float *dweight,
                      const float *p, const int32_t *choice,
                      const float *weight, const float *aux, int rows, int n,
                      int k);
    /* Choices in the order of experts; rows that arrive in it as well. */
    void (*sort)(struct mw_dev *dev, const struct mw_k_sort *a);
    void (*order)(struct mw_dev *dev, const struct mw_k_order *a);
    void (*groups_fwd)(struct mw_dev *dev, const struct mw_dev_groups *g,
                       void *y, const void *x, const void *w);
    void (*groups_bwd_input)(struct mw_dev *dev, const struct mw_dev_groups *g,
                             void *dx, const void *dy, const void *w);
    void (*groups_bwd_weight)(struct mw_dev *dev, const struct mw_dev_groups *g,
                              float *dw, const void *dy, const void *x);
    void (*gather)(struct mw_dev *dev, void *dst, const void *src,
                   const int32_t *from, int rows, int width);
    void (*combine)(struct mw_dev *dev, void *y, const void *x,
                    const int32_t *place, const float *weight,
                    const void *residual, int rows, int k, int width);
    void (*combine_bwd)(struct mw_dev *dev, void *dx, float *dweight,
                        const void *dy, const void *x, const int32_t *place,
                        const float *weight, int rows, int k, int width);
    /* y += sigmoid(logit[r]) x[r]; dx = sigmoid dy, dlogit from dy . x. */
    void (*gate_fwd)(struct mw_dev *dev, void *y, const void *x,
                     const float *logit, int rows, int width);
    void (*gate_bwd)(struct mw_dev *dev, void *dx, void *dlogit, const void *dy,
                     const void *x, const float *logit, int rows, int width);
};
extern const struct mw_dev_expert_ops mw_dev_host_experts;

struct mw_dev_ops {
    const char *name;
    enum mw_status (*open)(int local_rank, struct mw_dev **out,
                           struct mw_err *err);
    void (*close)(struct mw_dev *dev);
    /* A communicator among the ranks of `host` that takes buffers of this
     * device, with messages between the ranks in `peers` (symmetric); free it
     * before the device. NULL: `host` takes them itself. */
    enum mw_status (*wrap_comm)(struct mw_dev *dev, struct mw_comm *host,
                                const int *peers, int n_peers,
                                struct mw_comm **out, struct mw_err *err);

    /* Zeroed memory of the device; counted in used_bytes. */
    void *(*alloc)(struct mw_dev *dev, size_t bytes);
    void (*free)(struct mw_dev *dev, void *p, size_t bytes);
    /* The same of the host, pinned where a device copies from it; counted in
     * host_bytes. */
    void *(*alloc_host)(struct mw_dev *dev, size_t bytes);
    void (*free_host)(struct mw_dev *dev, void *p, size_t bytes);
    void (*zero)(struct mw_dev *dev, void *p, size_t bytes);
    void (*copy)(struct mw_dev *dev, void *dst, const void *src, size_t bytes);
    /* n rows of `bytes`. */
    void (*copy_rows)(struct mw_dev *dev, struct mw_dev_rows dst,
                      struct mw_dev_rows src, int n, size_t bytes);
    void (*to_device)(struct mw_dev *dev, void *dst, const void *src,
                      size_t bytes);
    void (*to_host)(struct mw_dev *dev, void *dst, const void *src,
                    size_t bytes);
    /* Bytes of the device in use as its driver counts, by all that run on it.
     * NULL: nobody counts. */
    size_t (*driver_bytes)(struct mw_dev *dev);
    /* Ends what was enqueued. */
    enum mw_status (*sync)(struct mw_dev *dev, struct mw_err *err);
    /* Nanoseconds of work done so far by this rank's device: differences are
     * the durations of compute segments. Thread CPU time on the host. */
    int64_t (*busy_ns)(struct mw_dev *dev);

    void (*linear_fwd)(struct mw_dev *dev, void *y, const void *x,
                       const void *w, const void *bias, int m, int n, int k);
    /* The same with a float32 y and no bias. */
    void (*linear_fwd_wide)(struct mw_dev *dev, float *y, const void *x,
                            const void *w, int m, int n, int k);
    void (*linear_bwd_input)(struct mw_dev *dev, void *dx, const void *dy,
                             const void *w, int m, int n, int k);
    void (*linear_bwd_weight)(struct mw_dev *dev, float *dw, float *db,
                              const void *dy, const void *x, int m, int n,
                              int k);
    /* db += column sums of dy: the bias of a row-parallel linear layer. */
    void (*bias_bwd)(struct mw_dev *dev, float *db, const void *dy, int m,
                     int n);
    void (*norm_fwd)(struct mw_dev *dev, const struct mw_dev_norm *a, void *y);
    void (*norm_bwd_input)(struct mw_dev *dev, const struct mw_dev_norm *a,
                           void *dx, const void *dy);
    void (*norm_bwd_param)(struct mw_dev *dev, const struct mw_dev_norm *a,
                           float *dgamma, float *dbeta, const void *dy);
    /* GELU (is_gated false; x is [rows][width]) or SwiGLU (x is
     * [rows][2 width]). */
    void (*act_fwd)(struct mw_dev *dev, bool is_gated, void *y, const void *x,
                    int rows, int width);
    void (*act_bwd)(struct mw_dev *dev, bool is_gated, void *dx, const void *dy,
                    const void *x, int rows, int width);
    size_t (*attention_scratch)(const struct mw_dev_attention *a);
    void (*attention_fwd)(struct mw_dev *dev, const struct mw_dev_attention *a);
    void (*attention_bwd)(struct mw_dev *dev, const struct mw_dev_attention *a);
    /* The same for parts of one sequence's queries and keys: q, out, lse, dout,
     * dq begin at the first of the queries, k and v at the first key; bwd adds
     * to dk and dv. NULL where context parallelism is not to be had. */
    void (*attention_part_fwd)(struct mw_dev *dev,
                               const struct mw_dev_attention *a,
                               const struct mw_dev_queries *own);
    void (*attention_part_bwd)(struct mw_dev *dev,
                               const struct mw_dev_attention *a,
                               const struct mw_dev_queries *own);
    void (*attention_merge)(struct mw_dev *dev, const struct mw_dev_merge *m);
    /* rowsum(dout out) of queries as lse; NULL where `dots` is not taken. */
    void (*attention_dots)(struct mw_dev *dev, const struct mw_dev_attention *a,
                           const struct mw_dev_queries *own, float *dots);
    /* In place on n_heads heads of rows ld apart; sign -1 is backward. */
    void (*rotary)(struct mw_dev *dev, void *x, int rows, int ld, int seq,
                   int n_heads, int head_dim, int sign);
    /* The same with positions first, first + 1, ...; NULL as above. */
    void (*rotary_at)(struct mw_dev *dev, void *x, int rows, int ld, int first,
                      int n_heads, int head_dim, int sign);
    void (*embedding_fwd)(struct mw_dev *dev, const struct mw_dev_vocab *a,
                          void *y, const void *w);
    void (*embedding_bwd)(struct mw_dev *dev, const struct mw_dev_vocab *a,
                          float *dw, const void *dy);
    void (*position_fwd)(struct mw_dev *dev, void *y, const void *w, int rows,
                         int width, int seq);
    void (*position_bwd)(struct mw_dev *dev, float *dw, const void *dy,
                         int rows, int width, int seq);
    void (*xent_max)(struct mw_dev *dev, const struct mw_dev_xent *a);
    void (*xent_sum)(struct mw_dev *dev, const struct mw_dev_xent *a);
    /* Sum of the losses of the rows; waits for the device. */
    double (*xent_loss)(struct mw_dev *dev, const struct mw_dev_xent *a);
    /* May overwrite the logits where elements are float32. */
    void (*xent_bwd)(struct mw_dev *dev, const struct mw_dev_xent *a,
                     void *dlogits, float scale);
    /* dst += src, n rows of `width` elements. */
    void (*add_rows)(struct mw_dev *dev, struct mw_dev_rows dst,
                     struct mw_dev_rows src, int n, int width);
    /* y = x + bias + residual; bias may be NULL, y may be x or residual. */
    void (*add)(struct mw_dev *dev, void *y, const void *x, const void *bias,
                const void *residual, int rows, int width);
    void (*accumulate)(struct mw_dev *dev, float *y, const float *x, size_t n);
    /* copy, where not NULL, receives the new weights in the device's type. */
    void (*adamw)(struct mw_dev *dev, const struct mw_dev_adamw *h, float *w,
                  void *copy, const float *g, float *m, float *v, size_t n);
    const struct mw_dev_expert_ops *experts; /* NULL: it has none */
};

extern const struct mw_dev_ops mw_dev_host;

/* AdamW on memory of the host, by the calling thread. */
void mw_adamw_host(const struct mw_dev_adamw *h, float *w, const float *g,
                   float *m, float *v, size_t n);

/*
 * The table of a backend by name, for elements of `dtype` (MW_FP32, or MW_BF16
 * on cuda). "cuda" looks for the module mw_cuda.so
 * beside the program and in the library folder; MW_EMISSING says what lacks.
 */
enum mw_status mw_dev_find(const char *backend, enum mw_dtype dtype,
                           const struct mw_dev_ops **out, struct mw_err *err);

/* Element `n` of an activation or weight buffer. */
static inline void *mw_dev_at(const struct mw_dev *dev, const void *p, size_t n)
{
    return (char *)(uintptr_t)p + n * dev->elem_bytes;
}

/* Group i of products: its rows of x and y, its weight (element weight_elem of
 * them all; NULL where w is). */
struct mw_dev_group {
    int rows;
    void *x, *y, *w;
    size_t weight_elem;
};
static inline struct mw_dev_group mw_dev_group_at(const struct mw_dev *dev,
                                                  const struct mw_dev_groups *g,
                                                  int i, const void *x,
                                                  const void *y, const void *w)
{
    size_t row = (size_t)g->host_first[i], n = (size_t)g->n, k = (size_t)g->k;
    size_t at = (size_t)i * n * k;
    return (struct mw_dev_group){.rows =
                                     g->host_first[i + 1] - g->host_first[i],
                                 .x = mw_dev_at(dev, x, row * k),
                                 .y = mw_dev_at(dev, y, row * n),
                                 .w = w ? mw_dev_at(dev, w, at) : NULL,
                                 .weight_elem = at};
}

/* "gemm=1.3,norm=2" into the table; MW_EUSAGE for a name that is no kind of
 * operator or a factor below 1. */
enum mw_status mw_slow_parse(const char *text, struct mw_slow *out,
                             struct mw_err *err);

#endif
