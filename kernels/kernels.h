/*
 * Host kernels of a transformer training step, float32, row-major.
 *
 * Forward, input gradient and parameter gradient are separate functions, so
 * that a schedule may run them apart. Conventions:
 *   rows     tokens of a micro-batch (sequences x length), n_seqs * seq
 *   *_bwd_input    overwrites dx; *_bwd_param and *_bwd_weight add to what is
 *                  there (gradients accumulate over micro-batches)
 * Every sum runs in a fixed order, so equal input gives equal bits. No kernel
 * fails, allocates or keeps state; pointers must not overlap unless said.
 * Sizes are positive ints; products fit size_t. float32 throughout: sums of a
 * row are kept in float32 with 8 or more partial sums where it matters.
 */
#ifndef MW_KERNELS_KERNELS_H
#define MW_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- linear layer: y = x w^T + bias, w is [n][k] ---------------------------
 */
/* y[m][n] = x[m][k] w[n][k]^T + bias[n]; bias may be NULL. */
void mw_k_linear_fwd(float *y, const float *x, const float *w,
                     const float *bias, int m, int n, int k);
/* dx[m][k] = dy[m][n] w[n][k]. */
void mw_k_linear_bwd_input(float *dx, const float *dy, const float *w, int m,
                           int n, int k);
/* dw[n][k] += dy[m][n]^T x[m][k]; db[n] += column sums of dy (NULL: none). */
void mw_k_linear_bwd_weight(float *dw, float *db, const float *dy,
                            const float *x, int m, int n, int k);
/* db[n] += column sums of dy[m][n], rows in ascending order. */
void mw_k_bias_bwd(float *db, const float *dy, int m, int n);

/*
 * The same for n_groups layers, one after the other in w and dw: group i has
 * rows first[i] .. first[i + 1] - 1 of x and y, maybe none.
 */
struct mw_k_groups {
    int n_groups, n, k;
    const int32_t *first; /* [n_groups + 1] */
};
void mw_k_groups_fwd(const struct mw_k_groups *a, float *y, const float *x,
                     const float *w);
void mw_k_groups_bwd_input(const struct mw_k_groups *a, float *dx,
                           const float *dy, const float *w);
void mw_k_groups_bwd_weight(const struct mw_k_groups *a, float *dw,
                            const float *dy, const float *x);

/* ---- normalisation ------------------------------------------------------ */
/*
 * LayerNorm (Ba et al., 2016): y = gamma (x - mean) / sqrt(var + eps) + beta.
 * mean and rstd [rows] are kept for the backward pass. beta may be NULL.
 */
void mw_k_layernorm_fwd(float *y, float *mean, float *rstd, const float *x,
                        const float *gamma, const float *beta, int rows,
                        int width, float eps);
/* dx = residual + d/dx; residual may be NULL or equal to dx. */
void mw_k_layernorm_bwd_input(float *dx, const float *residual, const float *dy,
                              const float *x, const float *gamma,
                              const float *mean, const float *rstd, int rows,
                              int width);
/* dgamma += sum dy xhat, dbeta += sum dy (NULL: none). */
void mw_k_layernorm_bwd_param(float *dgamma, float *dbeta, const float *dy,
                              const float *x, const float *mean,
                              const float *rstd, int rows, int width);
/* RMSNorm (Zhang and Sennrich, 2019): y = gamma x / sqrt(mean(x^2) + eps). */
void mw_k_rmsnorm_fwd(float *y, float *rstd, const float *x, const float *gamma,
                      int rows, int width, float eps);
void mw_k_rmsnorm_bwd_input(float *dx, const float *residual, const float *dy,
                            const float *x, const float *gamma,
                            const float *rstd, int rows, int width);
void mw_k_rmsnorm_bwd_param(float *dgamma, const float *dy, const float *x,
                            const float *rstd, int rows, int width);

/* ---- activations -------------------------------------------------------- */
/* GELU, tanh form (Hendrycks and Gimpel, 2016):
 * 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
void mw_k_gelu_fwd(float *y, const float *x, size_t n);
/* dx = dy gelu'(x); dx may be dy. */
void mw_k_gelu_bwd(float *dx, const float *dy, const float *x, size_t n);
/* SwiGLU (Shazeer, 2020): y[rows][f] = silu(gate) up with x[rows][2 f] =
 * [gate | up], silu(z) = z / (1 + exp(-z)). */
void mw_k_swiglu_fwd(float *y, const float *x, int rows, int f);
void mw_k_swiglu_bwd(float *dx, const float *dy, const float *x, int rows,
                     int f);

/* ---- attention ---------------------------------------------------------- */
/*
 * Causal attention with grouped queries (MHA when n_kv_heads = n_heads).
 * Rows are tokens, n_seqs * seq of them; q rows hold n_heads heads side by
 * side and lie ld_q floats apart, k and v rows hold n_kv_heads heads, ld_kv
 * apart (both inside one fused buffer, or apart). Query head h reads key head
 * h / (n_heads / n_kv_heads). Scores are scaled by 1 / sqrt(head_dim).
 */
struct mw_k_attention {
    int n_seqs, seq, n_heads, n_kv_heads, head_dim;
    int ld_q, ld_kv;
};
/* What the passes read and write; gradients have the strides of q, k, v. */
struct mw_k_attention_io {
    const float *q, *k, *v;
    float *out;        /* [rows][n_heads head_dim] */
    float *lse;        /* [n_heads][rows]: log of the sum of exponentials of a
                          row: all that backward needs (Dao et al., 2022) */
    const float *dout; /* backward only, like the next three */
    float *dq, *dk, *dv;
    float *scratch;
};
/* Floats of scratch that both passes need. */
size_t mw_k_attention_scratch(const struct mw_k_attention *a);
/* Fills out and lse. */
void mw_k_attention_fwd(const struct mw_k_attention *a,
                        const struct mw_k_attention_io *io);
/* Overwrites dq, dk, dv, recomputing the probabilities. */
void mw_k_attention_bwd(const struct mw_k_attention *a,
                        const struct mw_k_attention_io *io);

/*
 * Queries and keys that are parts of one sequence (a->n_seqs 1, a->seq keys):
 * n queries, of which number i sees the first min(first + i + 1, a->seq) keys.
 * With keys of a whole sequence `first` is the first query's position; with
 * first >= a->seq all see all. q, out, lse, dout and dq begin at the first
 * query; lse is [n_heads][ld_lse]. The backward pass adds to dk and dv, and
 * overwrites dq or adds to it. It takes out and lse of all keys of the sequence
 * (mw_k_attention_merge), so the gradients of parts add up.
 */
struct mw_k_queries {
    int first, n, ld_lse;
    bool adds_dq;
    const float *dots; /* backward: rowsum(dout out), laid out as lse; NULL:
                          made of out, which else is not read */
};
void mw_k_attention_part_fwd(const struct mw_k_attention *a,
                             const struct mw_k_queries *own,
                             const struct mw_k_attention_io *io);
void mw_k_attention_part_bwd(const struct mw_k_attention *a,
                             const struct mw_k_queries *own,
                             const struct mw_k_attention_io *io);

/* rowsum(dout out) of own->n queries into dots [n_heads][own->ld_lse]. */
void mw_k_attention_dots(const struct mw_k_attention *a,
                         const struct mw_k_queries *own,
                         const struct mw_k_attention_io *io, float *dots);

/*
 * Out and lse of the same queries over other keys, added to those of the first
 * ones: lse [n_heads][ld_lse], out [rows][n_heads head_dim].
 */
struct mw_k_merge {
    int rows, n_heads, head_dim, ld_lse;
};
void mw_k_attention_merge(const struct mw_k_merge *m, float *out, float *lse,
                          const float *part, const float *part_lse);

/*
 * Rotary embedding (Su et al., 2021) in place on n_heads heads of head_dim in
 * rows of ld floats; halves are paired (i, i + head_dim/2) as in Llama. The
 * position of row r is r mod seq. sign +1 rotates, -1 is its transpose: the
 * backward pass.
 */
void mw_k_rotary(float *x, int rows, int ld, int seq, int n_heads, int head_dim,
                 float theta, int sign);
/* The same with row r at position first + r. */
void mw_k_rotary_at(float *x, int rows, int ld, int first, int n_heads,
                    int head_dim, float theta, int sign);

/* ---- embedding ---------------------------------------------------------- */
/*
 * y[r] = w[token[r] - first] when the token is in [first, first + n_local),
 * zero otherwise: the shard of a vocabulary-parallel table.
 */
void mw_k_embedding_fwd(float *y, const float *w, const int32_t *token,
                        int rows, int width, int first, int n_local);
void mw_k_embedding_bwd(float *dw, const float *dy, const int32_t *token,
                        int rows, int width, int first, int n_local);
/* Learned positions: y[r] += w[r mod seq], dw[r mod seq] += dy[r]. */
void mw_k_position_fwd(float *y, const float *w, int rows, int width, int seq);
void mw_k_position_bwd(float *dw, const float *dy, int rows, int width,
                       int seq);

/* ---- cross-entropy over a (shard of a) vocabulary ----------------------- */
/*
 * In three steps, so that shards can reduce in between:
 *   max over n -> [all-reduce max] -> sum of exp(l - max), target logit - max
 *   -> [all-reduce sum] -> loss = log(sum) - target, gradient.
 * label[r] - first is the local column of the target, if there.
 */
void mw_k_xent_max(float *max, const float *logits, int rows, int n);
void mw_k_xent_sum(float *sum, float *target, const float *logits,
                   const float *max, const int32_t *label, int rows, int n,
                   int first);
/* Sum of the losses of the rows, in order, in double. */
double mw_k_xent_loss(const float *sum, const float *target, int rows);
/* dlogits = scale (softmax - onehot); may overwrite logits. */
void mw_k_xent_bwd(float *dlogits, const float *logits, const float *max,
                   const float *sum, const int32_t *label, int rows, int n,
                   int first, float scale);

/* ---- mixture of experts ------------------------------------------------- */
/*
 * Router: p[rows][n] holds logits before and probabilities after; choice and
 * weight [rows][k] are the k most probable and their share of each other.
 */
void mw_k_route_fwd(float *p, int32_t *choice, float *weight, int rows, int n,
                    int k);
/* dlogits from the gradient at the weights; aux[n] is added to the gradient at
 * every row's probabilities. */
void mw_k_route_bwd(float *dlogits, const float *dweight, const float *p,
                    const int32_t *choice, const float *weight,
                    const float *aux, int rows, int n, int k);
/*
 * n_sent choices of k a row, sorted by expert and then by row: choice number i
 * comes to place[i], from[place[i]] = i / k is its row; leaving[e] of them are
 * expert e's.
 */
struct mw_k_sort {
    const int32_t *choice; /* [n_sent], below n */
    int n_sent, n, k;
    int32_t *place, *from; /* [n_sent] */
    int64_t *leaving;      /* [n] */
};
void mw_k_route_sort(const struct mw_k_sort *a);
/*
 * Rows that came from n_sources ranks, from each first those of expert 0: row r
 * stands at home[r] in the order of experts (then of sources), whose row t is
 * order[t]; expert e begins at first[e].
 */
struct mw_k_order {
    const int64_t *arrived; /* [n_sources][n_local] */
    int n_sources, n_local;
    int32_t *order, *home, *first; /* first [n_local + 1] */
};
void mw_k_route_order(const struct mw_k_order *a);
/* dst[r] = src[from[r]]. */
void mw_k_rows_gather(float *dst, const float *src, const int32_t *from,
                      int rows, int width);
/* y[r] = residual[r] + sum over j < k of weight[r k + j] x[place[r k + j]];
 * residual NULL: 0, weight NULL: 1. y may be residual. */
void mw_k_rows_combine(float *y, const float *x, const int32_t *place,
                       const float *weight, const float *residual, int rows,
                       int k, int width);
/* y[r] += sigmoid(logit[r]) x[r]. */
void mw_k_rows_gate(float *y, const float *x, const float *logit, int rows,
                    int width);
/* dx[r] = sigmoid dy[r], dlogit = sigmoid (1 - sigmoid) dy[r] . x[r]. */
void mw_k_rows_gate_bwd(float *dx, float *dlogit, const float *dy,
                        const float *x, const float *logit, int rows,
                        int width);
/* dx[place] = weight dy[r], dweight = dy[r] . x[place]. */
void mw_k_rows_combine_bwd(float *dx, float *dweight, const float *dy,
                           const float *x, const int32_t *place,
                           const float *weight, int rows, int k, int width);

/* ---- vectors
 * ----------------------------------------------------------------------------
 */
/* y = x + bias (per column, NULL: none) + residual; y may be x or residual. */
void mw_k_add(float *y, const float *x, const float *bias,
              const float *residual, int rows, int width);
/* y += x. */
void mw_k_accumulate(float *y, const float *x, size_t n);

/* AdamW (Loshchilov and Hutter, 2019), decoupled decay. */
struct mw_k_adamw {
    float lr, beta1, beta2, eps, decay;
    float correct1, correct2; /* 1 - beta1^t, 1 - beta2^t of step t */
};
void mw_k_adamw(const struct mw_k_adamw *h, float *w, const float *g, float *m,
                float *v, size_t n);

#endif
