/*
 * CUDA twins of kernels/kernels.h: launchers that enqueue on a stream.
 *
 * The meaning of each is that of the host kernel of the same name; what
 * differs:
 *   - activations and weights are float32 or bfloat16 (`elem`), arithmetic and
 *     sums are float32; statistics and gradients that accumulate are float32
 *   - `stream` is a cudaStream_t, pointers are device memory
 *   - the result is a cudaError_t as int (0: enqueued); nothing is waited for
 *   - sums run in an order fixed by the shape alone (no atomics), so equal
 *     input gives equal bits, but other bits than the host's
 * The header includes no CUDA header, so plain C code and a stand-in without
 * a GPU can use it.
 */
#ifndef MW_KERNELS_CUDA_KERNELS_H
#define MW_KERNELS_CUDA_KERNELS_H

#include "kernels/kernels.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum mw_k_elem { MW_K_F32, MW_K_BF16 };

/* LayerNorm, or RMSNorm with is_rms (mean is then neither read nor written).
 * beta may be NULL. */
struct mw_k_norm {
    enum mw_k_elem elem;
    int is_rms;
    const void *x, *gamma, *beta;
    float *mean, *rstd;
    int rows, width;
    float eps;
};
int mw_k_norm_fwd_cuda(const struct mw_k_norm *a, void *y, void *stream);
/* dx = residual + d/dx; residual may be NULL or dx. */
int mw_k_norm_bwd_input_cuda(const struct mw_k_norm *a, void *dx,
                             const void *residual, const void *dy,
                             void *stream);
/* Adds; dbeta may be NULL. */
int mw_k_norm_bwd_param_cuda(const struct mw_k_norm *a, float *dgamma,
                             float *dbeta, const void *dy, void *stream);

/* db[n] += column sums of dy[m][n]. */
int mw_k_bias_bwd_cuda(enum mw_k_elem elem, float *db, const void *dy, int m,
                       int n, void *stream);

int mw_k_gelu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, size_t n,
                       void *stream);
int mw_k_gelu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                       const void *x, size_t n, void *stream);
int mw_k_swiglu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, int rows,
                         int f, void *stream);
int mw_k_swiglu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                         const void *x, int rows, int f, void *stream);

/*
 * Causal attention in tiles with online softmax; head_dim at most
 * MW_K_HEAD_DIM_MAX (else cudaErrorInvalidValue). delta is scratch of
 * mw_k_attention_scratch_cuda() floats, used by the backward pass only.
 */
enum { MW_K_HEAD_DIM_MAX = 256 };
struct mw_k_attention_cuda {
    enum mw_k_elem elem;
    struct mw_k_attention shape;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const void *dout;
    void *dq, *dk, *dv;
    float *delta;
};
size_t mw_k_attention_scratch_cuda(const struct mw_k_attention *shape);
int mw_k_attention_fwd_cuda(const struct mw_k_attention_cuda *a, void *stream);
int mw_k_attention_bwd_cuda(const struct mw_k_attention_cuda *a, void *stream);

/* Parts of one sequence (shape.n_seqs 1, shape.seq keys):
 * mw_k_attention_part_fwd and so on. delta has n_heads * own->n floats. */
int mw_k_attention_part_fwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream);
int mw_k_attention_part_bwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream);
int mw_k_attention_merge_cuda(enum mw_k_elem elem, const struct mw_k_merge *m,
                              void *out, float *lse, const void *part,
                              const float *part_lse, void *stream);

/* Row r is at position first + r mod seq. */
struct mw_k_rotary {
    enum mw_k_elem elem;
    int rows, ld, seq, n_heads, head_dim, sign;
    float theta;
    int first;
};
int mw_k_rotary_cuda(const struct mw_k_rotary *a, void *x, void *stream);

/* Tokens of a shard of the vocabulary that begins at `first`. */
struct mw_k_vocab {
    enum mw_k_elem elem;
    const int32_t *token;
    int rows, width, first, n_local;
};
int mw_k_embedding_fwd_cuda(const struct mw_k_vocab *a, void *y, const void *w,
                            void *stream);
int mw_k_embedding_bwd_cuda(const struct mw_k_vocab *a, float *dw,
                            const void *dy, void *stream);
int mw_k_position_fwd_cuda(enum mw_k_elem elem, void *y, const void *w,
                           int rows, int width, int seq, void *stream);
int mw_k_position_bwd_cuda(enum mw_k_elem elem, float *dw, const void *dy,
                           int rows, int width, int seq, void *stream);

struct mw_k_xent {
    enum mw_k_elem elem;
    const void *logits; /* [rows][n] */
    float *max, *sum, *target;
    const int32_t *label;
    int rows, n, first;
};
int mw_k_xent_max_cuda(const struct mw_k_xent *a, void *stream);
int mw_k_xent_sum_cuda(const struct mw_k_xent *a, void *stream);
/* *out, on the device: the sum of the losses of the rows. */
int mw_k_xent_loss_cuda(double *out, const float *sum, const float *target,
                        int rows, void *stream);
/* dlogits, of type `out`, may be logits if that is theirs. */
int mw_k_xent_bwd_cuda(const struct mw_k_xent *a, enum mw_k_elem out,
                       void *dlogits, float scale, void *stream);

/* ---- mixture of experts: as mw_k_route_fwd and so on ----------------------
 */
int mw_k_route_fwd_cuda(float *p, int32_t *choice, float *weight, int rows,
                        int n, int k, void *stream);
struct mw_k_route_bwd {
    enum mw_k_elem elem; /* of dlogits */
    const float *dweight, *p, *weight, *aux;
    const int32_t *choice;
    int rows, n, k;
};
int mw_k_route_bwd_cuda(const struct mw_k_route_bwd *a, void *dlogits,
                        void *stream);
int mw_k_route_sort_cuda(const struct mw_k_sort *a, void *stream);
int mw_k_route_order_cuda(const struct mw_k_order *a, void *stream);
int mw_k_rows_gather_cuda(enum mw_k_elem elem, void *dst, const void *src,
                          const int32_t *from, int rows, int width,
                          void *stream);
struct mw_k_combine {
    enum mw_k_elem elem;
    const int32_t *place;
    const float *weight; /* NULL: 1 (forward) */
    int rows, k, width;
};
int mw_k_rows_combine_cuda(const struct mw_k_combine *a, void *y, const void *x,
                           const void *residual, void *stream);
int mw_k_rows_combine_bwd_cuda(const struct mw_k_combine *a, void *dx,
                               float *dweight, const void *dy, const void *x,
                               void *stream);
int mw_k_rows_gate_cuda(enum mw_k_elem elem, void *y, const void *x,
                        const float *logit, int rows, int width, void *stream);
struct mw_k_gate_bwd {
    enum mw_k_elem elem; /* of all but the logits */
    void *dx, *dlogit;
    const void *dy, *x;
    const float *logit;
    int rows, width;
};
int mw_k_rows_gate_bwd_cuda(const struct mw_k_gate_bwd *a, void *stream);

/*
 * Products of all experts in one launch, meant for small ones: tiles of 64 x 64
 * on tensor cores (bfloat16) or CUDA cores. `rows` is first[n_groups], or more.
 * Weight gradients are float32 and accumulate.
 */
struct mw_k_groups_cuda {
    enum mw_k_elem elem;
    struct mw_k_groups shape;
    int rows;
};
int mw_k_groups_fwd_cuda(const struct mw_k_groups_cuda *a, void *y,
                         const void *x, const void *w, void *stream);
int mw_k_groups_bwd_input_cuda(const struct mw_k_groups_cuda *a, void *dx,
                               const void *dy, const void *w, void *stream);
int mw_k_groups_bwd_weight_cuda(const struct mw_k_groups_cuda *a, float *dw,
                                const void *dy, const void *x, void *stream);

/* y = x + bias + residual; bias may be NULL, y may be x or residual. */
int mw_k_add_cuda(enum mw_k_elem elem, void *y, const void *x, const void *bias,
                  const void *residual, int rows, int width, void *stream);
/* y += x, rows ld elements apart. */
int mw_k_add_rows_cuda(enum mw_k_elem elem, void *y, size_t ld_y, const void *x,
                       size_t ld_x, int rows, int width, void *stream);
int mw_k_accumulate_cuda(float *y, const float *x, size_t n, void *stream);
/* out = in[0] + in[1] + ..., in this order and in float32, or the largest of
 * each; out may be one of them. At most MW_K_REDUCE_MAX (else
 * cudaErrorInvalidValue). */
enum { MW_K_REDUCE_MAX = 64 };
struct mw_k_reduce {
    enum mw_k_elem elem;
    bool is_max;
    void *out;
    const void *const *in; /* [n_in], on the host */
    int n_in;
    size_t n;
};
int mw_k_reduce_cuda(const struct mw_k_reduce *a, void *stream);
/* w16, where not NULL, receives the new weights in bfloat16. */
int mw_k_adamw_cuda(const struct mw_k_adamw *h, float *w, void *w16,
                    const float *g, float *m, float *v, size_t n, void *stream);
/* Takes the stream for so long. */
int mw_k_spin_cuda(int64_t ns, void *stream);
/* float32 to bfloat16, to nearest, ties to even. */
int mw_k_to_bf16_cuda(void *y, const float *x, size_t n, void *stream);

#ifdef __cplusplus
}
#endif

#endif
