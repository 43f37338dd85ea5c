/*
 * A GPU as a device: cuBLASLt for matrix products, kernels/cuda for the rest,
 * one stream for all, behind the table of dev.h. The module mw_cuda.so exports
 * the tables `mw_dev_cuda`, of float32 elements, and `mw_dev_cuda_bf16`, of
 * bfloat16 (logits, statistics, gradients, moments, masters float32).
 *
 * Time is read from events on the stream: busy_ns waits for what was enqueued
 * and adds the time since the last call, so a segment counts launch gaps but
 * no time outside of it. Left out: CUDA graphs, overlapped streams.
 */
#include "exec/cuda/mw_cuda.h"

#include "exec/cuda/cuda_int.h"

#include <math.h>

static const float norm_eps = 1e-5f;
static const float rotary_theta = 10000.0f;

static struct mw_cuda *self(struct mw_dev *dev)
{
    return (struct mw_cuda *)dev;
}

/* ---- linear
 * --------------------------------------------------------------------- */
static void gemm(struct mw_cuda *c, struct mw_gemm *call)
{
    call->elem = c->elem;
    if (c->fault.status != MW_OK) {
        return;
    }
    mw_cuda_slow_begin(c, MW_OP_GEMM);
    int status = mw_gemm_lt_run(c->gemm, call, c->stream);
    if (status != (int)CUBLAS_STATUS_SUCCESS) {
        mw_fail(&c->fault, MW_EBACKEND,
                "cublasLtMatmul: %s (pass %d, m %d, n %d, k %d)",
                mw_gemm_lt_error(status), (int)call->pass, call->m, call->n,
                call->k);
    }
    mw_cuda_slow_end(c, MW_OP_GEMM);
}

static void cuda_linear_fwd(struct mw_dev *dev, void *y, const void *x,
                            const void *w, const void *bias, int m, int n,
                            int k)
{
    gemm(self(dev), &(struct mw_gemm){.pass = MW_GEMM_FORWARD,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = w,
                                      .b = x,
                                      .bias = bias,
                                      .d = y});
}

static void cuda_linear_fwd_wide(struct mw_dev *dev, float *y, const void *x,
                                 const void *w, int m, int n, int k)
{
    gemm(self(dev), &(struct mw_gemm){.pass = MW_GEMM_FORWARD,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = w,
                                      .b = x,
                                      .is_wide = true,
                                      .d = y});
}

static void cuda_linear_bwd_input(struct mw_dev *dev, void *dx, const void *dy,
                                  const void *w, int m, int n, int k)
{
    gemm(self(dev), &(struct mw_gemm){.pass = MW_GEMM_INPUT,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = w,
                                      .b = dy,
                                      .d = dx});
}

static void cuda_bias_bwd(struct mw_dev *dev, float *db, const void *dy, int m,
                          int n)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_OP(c, MW_OP_GEMM, mw_k_bias_bwd_cuda, c->elem, db, dy, m, n,
               c->stream);
}

static void cuda_linear_bwd_weight(struct mw_dev *dev, float *dw, float *db,
                                   const void *dy, const void *x, int m, int n,
                                   int k)
{
    gemm(self(dev), &(struct mw_gemm){.pass = MW_GEMM_WEIGHT,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a = x,
                                      .b = dy,
                                      .d = dw});
    if (db) {
        cuda_bias_bwd(dev, db, dy, m, n);
    }
}

/* ---- norms
 * ---------------------------------------------------------------------- */
static struct mw_k_norm norm_arg(const struct mw_cuda *c,
                                 const struct mw_dev_norm *a)
{
    return (struct mw_k_norm){.elem = c->elem,
                              .is_rms = a->kind != MW_NORM_LAYER,
                              .x = a->x,
                              .gamma = a->gamma,
                              .beta = a->beta,
                              .mean = a->mean,
                              .rstd = a->rstd,
                              .rows = a->rows,
                              .width = a->width,
                              .eps = norm_eps};
}

static void cuda_norm_fwd(struct mw_dev *dev, const struct mw_dev_norm *a,
                          void *y)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_norm k = norm_arg(c, a);
    MW_CUDA_OP(c, MW_OP_NORM, mw_k_norm_fwd_cuda, &k, y, c->stream);
}

static void cuda_norm_bwd_input(struct mw_dev *dev, const struct mw_dev_norm *a,
                                void *dx, const void *dy)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_norm k = norm_arg(c, a);
    MW_CUDA_OP(c, MW_OP_NORM, mw_k_norm_bwd_input_cuda, &k, dx, NULL, dy,
               c->stream);
}

static void cuda_norm_bwd_param(struct mw_dev *dev, const struct mw_dev_norm *a,
                                float *dgamma, float *dbeta, const void *dy)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_norm k = norm_arg(c, a);
    MW_CUDA_OP(c, MW_OP_NORM, mw_k_norm_bwd_param_cuda, &k, dgamma, dbeta, dy,
               c->stream);
}

/* ---- activation, attention, rotary
 * ---------------------------------------------- */
static void cuda_act_fwd(struct mw_dev *dev, bool is_gated, void *y,
                         const void *x, int rows, int width)
{
    struct mw_cuda *c = self(dev);
    if (is_gated) {
        MW_CUDA_OP(c, MW_OP_ACTIVATION, mw_k_swiglu_fwd_cuda, c->elem, y, x,
                   rows, width, c->stream);
    } else {
        MW_CUDA_OP(c, MW_OP_ACTIVATION, mw_k_gelu_fwd_cuda, c->elem, y, x,
                   (size_t)rows * (size_t)width, c->stream);
    }
}

static void cuda_act_bwd(struct mw_dev *dev, bool is_gated, void *dx,
                         const void *dy, const void *x, int rows, int width)
{
    struct mw_cuda *c = self(dev);
    if (is_gated) {
        MW_CUDA_OP(c, MW_OP_ACTIVATION, mw_k_swiglu_bwd_cuda, c->elem, dx, dy,
                   x, rows, width, c->stream);
    } else {
        MW_CUDA_OP(c, MW_OP_ACTIVATION, mw_k_gelu_bwd_cuda, c->elem, dx, dy, x,
                   (size_t)rows * (size_t)width, c->stream);
    }
}

static struct mw_k_attention_cuda
attention_arg(const struct mw_cuda *c, const struct mw_dev_attention *a)
{
    return (struct mw_k_attention_cuda){.elem = c->elem,
                                        .shape = {a->n_seqs, a->seq, a->n_heads,
                                                  a->n_kv_heads, a->head_dim,
                                                  a->ld_q, a->ld_kv},
                                        .q = a->q,
                                        .k = a->k,
                                        .v = a->v,
                                        .out = a->out,
                                        .lse = a->lse,
                                        .dout = a->dout,
                                        .dq = a->dq,
                                        .dk = a->dk,
                                        .dv = a->dv,
                                        .delta = a->scratch};
}

static size_t cuda_attention_scratch(const struct mw_dev_attention *a)
{
    const struct mw_k_attention shape = {a->n_seqs,     a->seq,      a->n_heads,
                                         a->n_kv_heads, a->head_dim, a->ld_q,
                                         a->ld_kv};
    return mw_k_attention_scratch_cuda(&shape) * sizeof(float);
}

static void cuda_attention_fwd(struct mw_dev *dev,
                               const struct mw_dev_attention *a)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_attention_cuda k = attention_arg(c, a);
    MW_CUDA_OP(c, MW_OP_ATTENTION, mw_k_attention_fwd_cuda, &k, c->stream);
}

static void cuda_attention_bwd(struct mw_dev *dev,
                               const struct mw_dev_attention *a)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_attention_cuda k = attention_arg(c, a);
    MW_CUDA_OP(c, MW_OP_ATTENTION, mw_k_attention_bwd_cuda, &k, c->stream);
}

static void cuda_attention_part_fwd(struct mw_dev *dev,
                                    const struct mw_dev_attention *a,
                                    const struct mw_dev_queries *own)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_attention_cuda k = attention_arg(c, a);
    const struct mw_k_queries part = {own->first, own->n, own->ld_lse,
                                      own->adds_dq, NULL};
    MW_CUDA_OP(c, MW_OP_ATTENTION, mw_k_attention_part_fwd_cuda, &k, &part,
               c->stream);
}

static void cuda_attention_part_bwd(struct mw_dev *dev,
                                    const struct mw_dev_attention *a,
                                    const struct mw_dev_queries *own)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_attention_cuda k = attention_arg(c, a);
    const struct mw_k_queries part = {own->first, own->n, own->ld_lse,
                                      own->adds_dq, NULL};
    MW_CUDA_OP(c, MW_OP_ATTENTION, mw_k_attention_part_bwd_cuda, &k, &part,
               c->stream);
}

static void cuda_attention_merge(struct mw_dev *dev,
                                 const struct mw_dev_merge *m)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_merge k = {m->rows, m->n_heads, m->head_dim, m->ld_lse};
    MW_CUDA_OP(c, MW_OP_ATTENTION, mw_k_attention_merge_cuda, c->elem, &k,
               m->out, m->lse, m->part, m->part_lse, c->stream);
}

static void rotate(struct mw_cuda *c, void *x, int rows, int ld, int first,
                   int seq, int n_heads, int head_dim, int sign)
{
    const struct mw_k_rotary k = {.elem = c->elem,
                                  .first = first,
                                  .rows = rows,
                                  .ld = ld,
                                  .seq = seq,
                                  .n_heads = n_heads,
                                  .head_dim = head_dim,
                                  .sign = sign,
                                  .theta = rotary_theta};
    MW_CUDA_OP(c, MW_OP_ROTARY, mw_k_rotary_cuda, &k, x, c->stream);
}

static void cuda_rotary(struct mw_dev *dev, void *x, int rows, int ld, int seq,
                        int n_heads, int head_dim, int sign)
{
    rotate(self(dev), x, rows, ld, 0, seq, n_heads, head_dim, sign);
}

static void cuda_rotary_at(struct mw_dev *dev, void *x, int rows, int ld,
                           int first, int n_heads, int head_dim, int sign)
{
    rotate(self(dev), x, rows, ld, first, rows, n_heads, head_dim, sign);
}

/* ---- embedding and loss
 * --------------------------------------------------------- */
static struct mw_k_vocab vocab_arg(const struct mw_cuda *c,
                                   const struct mw_dev_vocab *a)
{
    return (struct mw_k_vocab){.elem = c->elem,
                               .token = a->token,
                               .rows = a->rows,
                               .width = a->width,
                               .first = a->first,
                               .n_local = a->n_local};
}

static void cuda_embedding_fwd(struct mw_dev *dev, const struct mw_dev_vocab *a,
                               void *y, const void *w)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_vocab k = vocab_arg(c, a);
    MW_CUDA_OP(c, MW_OP_EMBEDDING, mw_k_embedding_fwd_cuda, &k, y, w,
               c->stream);
}

static void cuda_embedding_bwd(struct mw_dev *dev, const struct mw_dev_vocab *a,
                               float *dw, const void *dy)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_vocab k = vocab_arg(c, a);
    MW_CUDA_OP(c, MW_OP_EMBEDDING, mw_k_embedding_bwd_cuda, &k, dw, dy,
               c->stream);
}

static void cuda_position_fwd(struct mw_dev *dev, void *y, const void *w,
                              int rows, int width, int seq)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_OP(c, MW_OP_EMBEDDING, mw_k_position_fwd_cuda, c->elem, y, w, rows,
               width, seq, c->stream);
}

static void cuda_position_bwd(struct mw_dev *dev, float *dw, const void *dy,
                              int rows, int width, int seq)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_OP(c, MW_OP_EMBEDDING, mw_k_position_bwd_cuda, c->elem, dw, dy,
               rows, width, seq, c->stream);
}

/* Logits are float32 whatever the elements are. */
static struct mw_k_xent xent_arg(const struct mw_dev_xent *a)
{
    return (struct mw_k_xent){.elem = MW_K_F32,
                              .logits = a->logits,
                              .max = a->max,
                              .sum = a->sum,
                              .target = a->target,
                              .label = a->label,
                              .rows = a->rows,
                              .n = a->n_local,
                              .first = a->first};
}

static void cuda_xent_max(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_xent k = xent_arg(a);
    MW_CUDA_OP(c, MW_OP_CROSS_ENTROPY, mw_k_xent_max_cuda, &k, c->stream);
}

static void cuda_xent_sum(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_xent k = xent_arg(a);
    MW_CUDA_OP(c, MW_OP_CROSS_ENTROPY, mw_k_xent_sum_cuda, &k, c->stream);
}

/* After a failure the loss is not a number; sync says what failed. */
static double cuda_xent_loss(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    struct mw_cuda *c = self(dev);
    double loss = (double)NAN;
    MW_CUDA_OP(c, MW_OP_CROSS_ENTROPY, mw_k_xent_loss_cuda, c->loss, a->sum,
               a->target, a->rows, c->stream);
    mw_cuda_to_host(dev, &loss, c->loss, sizeof loss);
    return loss;
}

static void cuda_xent_bwd(struct mw_dev *dev, const struct mw_dev_xent *a,
                          void *dlogits, float scale)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_xent k = xent_arg(a);
    MW_CUDA_OP(c, MW_OP_CROSS_ENTROPY, mw_k_xent_bwd_cuda, &k, c->elem, dlogits,
               scale, c->stream);
}

/* ---- vectors
 * --------------------------------------------------------------------- */
static void cuda_add(struct mw_dev *dev, void *y, const void *x,
                     const void *bias, const void *residual, int rows,
                     int width)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_OP(c, MW_OP_ADD, mw_k_add_cuda, c->elem, y, x, bias, residual, rows,
               width, c->stream);
}

static void cuda_add_rows(struct mw_dev *dev, struct mw_dev_rows dst,
                          struct mw_dev_rows src, int n, int width)
{
    struct mw_cuda *c = self(dev);
    size_t el = dev->elem_bytes;
    MW_CUDA_OP(c, MW_OP_ADD, mw_k_add_rows_cuda, c->elem, dst.p, dst.ld / el,
               src.p, src.ld / el, n, width, c->stream);
}

static void cuda_accumulate(struct mw_dev *dev, float *y, const float *x,
                            size_t n)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_OP(c, MW_OP_ADD, mw_k_accumulate_cuda, y, x, n, c->stream);
}

static void cuda_adamw(struct mw_dev *dev, const struct mw_dev_adamw *h,
                       float *w, void *copy, const float *g, float *m, float *v,
                       size_t n)
{
    struct mw_cuda *c = self(dev);
    double c1 = 1.0 - pow((double)h->beta1, h->step);
    double c2 = 1.0 - pow((double)h->beta2, h->step);
    const struct mw_k_adamw k = {.lr = h->lr,
                                 .beta1 = h->beta1,
                                 .beta2 = h->beta2,
                                 .eps = h->eps,
                                 .decay = h->decay,
                                 .correct1 = (float)c1,
                                 .correct2 = (float)c2};
    MW_CUDA_OP(c, MW_OP_OPTIMIZER, mw_k_adamw_cuda, &k, w, copy, g, m, v, n,
               c->stream);
}

#define MW_CUDA_TABLE(table_name, table_open)                                  \
    {                                                                          \
        .name = table_name, .open = table_open, .close = mw_cuda_close,        \
        .wrap_comm = mw_cuda_wrap_comm, .alloc = mw_cuda_alloc,                \
        .free = mw_cuda_release, .zero = mw_cuda_zero, .copy = mw_cuda_copy,   \
        .alloc_host = mw_cuda_alloc_host, .free_host = mw_cuda_free_host,      \
        .copy_rows = mw_cuda_copy_rows, .to_device = mw_cuda_to_device,        \
        .to_host = mw_cuda_to_host, .sync = mw_cuda_sync,                      \
        .busy_ns = mw_cuda_busy_ns, .linear_fwd = cuda_linear_fwd,             \
        .linear_bwd_input = cuda_linear_bwd_input,                             \
        .linear_bwd_weight = cuda_linear_bwd_weight,                           \
        .linear_fwd_wide = cuda_linear_fwd_wide,                               \
        .attention_part_fwd = cuda_attention_part_fwd,                         \
        .attention_part_bwd = cuda_attention_part_bwd,                         \
        .attention_merge = cuda_attention_merge, .rotary_at = cuda_rotary_at,  \
        .add_rows = cuda_add_rows, .bias_bwd = cuda_bias_bwd,                  \
        .norm_fwd = cuda_norm_fwd, .norm_bwd_input = cuda_norm_bwd_input,      \
        .norm_bwd_param = cuda_norm_bwd_param, .act_fwd = cuda_act_fwd,        \
        .act_bwd = cuda_act_bwd, .attention_scratch = cuda_attention_scratch,  \
        .attention_fwd = cuda_attention_fwd,                                   \
        .attention_bwd = cuda_attention_bwd, .rotary = cuda_rotary,            \
        .embedding_fwd = cuda_embedding_fwd,                                   \
        .embedding_bwd = cuda_embedding_bwd,                                   \
        .position_fwd = cuda_position_fwd, .position_bwd = cuda_position_bwd,  \
        .xent_max = cuda_xent_max, .xent_sum = cuda_xent_sum,                  \
        .xent_loss = cuda_xent_loss, .xent_bwd = cuda_xent_bwd,                \
        .add = cuda_add, .accumulate = cuda_accumulate, .adamw = cuda_adamw,   \
        .experts = &mw_dev_cuda_experts, .driver_bytes = mw_cuda_driver_bytes, \
    }

const struct mw_dev_ops mw_dev_cuda = MW_CUDA_TABLE("cuda", mw_cuda_open_f32);
const struct mw_dev_ops mw_dev_cuda_bf16 =
    MW_CUDA_TABLE("cuda-bf16", mw_cuda_open_bf16);
