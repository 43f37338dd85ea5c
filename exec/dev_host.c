/*
 * The host as a device: kernels/ behind the table of dev.h. Elements are
 * float32, memory is ordinary memory, and time is the CPU time of the calling
 * thread, which a busy machine does not stretch.
 *
 * A slowed kind of operator (mw_slow) burns CPU after each call until the
 * call has taken `factor` times its own time, so both clocks see it.
 */
#include "exec/dev.h"

#include "base/log.h"
#include "base/mem.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

static const float norm_eps = 1e-5f;
static const float rotary_theta = 10000.0f;

/* ---- slowing down ------------------------------------------------------- */
static int64_t slow_begin(const struct mw_dev *dev, enum mw_op_kind kind)
{
    return dev->slow.factor[kind] > 1.0 ? mw_clock_thread_cpu_ns() : 0;
}

static void slow_end(const struct mw_dev *dev, enum mw_op_kind kind,
                     int64_t begin_ns)
{
    if (dev->slow.factor[kind] > 1.0) {
        double took = (double)(mw_clock_thread_cpu_ns() - begin_ns);
        int64_t until = begin_ns + (int64_t)(took * dev->slow.factor[kind]);
        while (mw_clock_thread_cpu_ns() < until) {
        }
    }
}

/* ---- memory ------------------------------------------------------------- */
static enum mw_status host_open(int local_rank, struct mw_dev **out,
                                struct mw_err *err)
{
    (void)local_rank;
    (void)err;
    struct mw_dev *dev = mw_calloc(1, sizeof *dev);
    dev->ops = &mw_dev_host;
    dev->elem_bytes = sizeof(float);
    *out = dev;
    return MW_OK;
}

static void host_close(struct mw_dev *dev)
{
    mw_free(dev);
}

static void *host_alloc(struct mw_dev *dev, size_t bytes)
{
    dev->used_bytes += bytes;
    if (dev->used_bytes > dev->peak_bytes) {
        dev->peak_bytes = dev->used_bytes;
    }
    return mw_calloc(bytes ? bytes : 1, 1);
}

static void host_free(struct mw_dev *dev, void *p, size_t bytes)
{
    dev->used_bytes -= bytes;
    mw_free(p);
}

static void *host_alloc_host(struct mw_dev *dev, size_t bytes)
{
    dev->host_bytes += bytes;
    if (dev->host_bytes > dev->host_peak_bytes) {
        dev->host_peak_bytes = dev->host_bytes;
    }
    return mw_calloc(bytes ? bytes : 1, 1);
}

static void host_free_host(struct mw_dev *dev, void *p, size_t bytes)
{
    dev->host_bytes -= bytes;
    mw_free(p);
}

static void host_zero(struct mw_dev *dev, void *p, size_t bytes)
{
    (void)dev;
    memset(p, 0, bytes);
}

static void host_copy(struct mw_dev *dev, void *dst, const void *src,
                      size_t bytes)
{
    (void)dev;
    memcpy(dst, src, bytes);
}

static void host_copy_rows(struct mw_dev *dev, struct mw_dev_rows dst,
                           struct mw_dev_rows src, int n, size_t bytes)
{
    (void)dev;
    for (size_t i = 0; i < (size_t)n; i++) {
        memcpy((char *)dst.p + i * dst.ld, (const char *)src.p + i * src.ld,
               bytes);
    }
}

static enum mw_status host_sync(struct mw_dev *dev, struct mw_err *err)
{
    (void)dev;
    (void)err;
    return MW_OK;
}

static int64_t host_busy_ns(struct mw_dev *dev)
{
    (void)dev;
    return mw_clock_thread_cpu_ns();
}

/* ---- linear ------------------------------------------------------------- */
static void host_linear_fwd(struct mw_dev *dev, void *y, const void *x,
                            const void *w, const void *bias, int m, int n,
                            int k)
{
    int64_t t = slow_begin(dev, MW_OP_GEMM);
    mw_k_linear_fwd(y, x, w, bias, m, n, k);
    slow_end(dev, MW_OP_GEMM, t);
}

static void host_linear_fwd_wide(struct mw_dev *dev, float *y, const void *x,
                                 const void *w, int m, int n, int k)
{
    host_linear_fwd(dev, y, x, w, NULL, m, n, k);
}

static void host_linear_bwd_input(struct mw_dev *dev, void *dx, const void *dy,
                                  const void *w, int m, int n, int k)
{
    int64_t t = slow_begin(dev, MW_OP_GEMM);
    mw_k_linear_bwd_input(dx, dy, w, m, n, k);
    slow_end(dev, MW_OP_GEMM, t);
}

static void host_linear_bwd_weight(struct mw_dev *dev, float *dw, float *db,
                                   const void *dy, const void *x, int m, int n,
                                   int k)
{
    int64_t t = slow_begin(dev, MW_OP_GEMM);
    mw_k_linear_bwd_weight(dw, db, dy, x, m, n, k);
    slow_end(dev, MW_OP_GEMM, t);
}

static void host_bias_bwd(struct mw_dev *dev, float *db, const void *dy, int m,
                          int n)
{
    int64_t t = slow_begin(dev, MW_OP_GEMM);
    mw_k_bias_bwd(db, dy, m, n);
    slow_end(dev, MW_OP_GEMM, t);
}

/* ---- norms -------------------------------------------------------------- */
static void host_norm_fwd(struct mw_dev *dev, const struct mw_dev_norm *a,
                          void *y)
{
    int64_t t = slow_begin(dev, MW_OP_NORM);
    if (a->kind == MW_NORM_LAYER) {
        mw_k_layernorm_fwd(y, a->mean, a->rstd, a->x, a->gamma, a->beta,
                           a->rows, a->width, norm_eps);
    } else {
        mw_k_rmsnorm_fwd(y, a->rstd, a->x, a->gamma, a->rows, a->width,
                         norm_eps);
    }
    slow_end(dev, MW_OP_NORM, t);
}

static void host_norm_bwd_input(struct mw_dev *dev, const struct mw_dev_norm *a,
                                void *dx, const void *dy)
{
    int64_t t = slow_begin(dev, MW_OP_NORM);
    if (a->kind == MW_NORM_LAYER) {
        mw_k_layernorm_bwd_input(dx, NULL, dy, a->x, a->gamma, a->mean, a->rstd,
                                 a->rows, a->width);
    } else {
        mw_k_rmsnorm_bwd_input(dx, NULL, dy, a->x, a->gamma, a->rstd, a->rows,
                               a->width);
    }
    slow_end(dev, MW_OP_NORM, t);
}

static void host_norm_bwd_param(struct mw_dev *dev, const struct mw_dev_norm *a,
                                float *dgamma, float *dbeta, const void *dy)
{
    int64_t t = slow_begin(dev, MW_OP_NORM);
    if (a->kind == MW_NORM_LAYER) {
        mw_k_layernorm_bwd_param(dgamma, dbeta, dy, a->x, a->mean, a->rstd,
                                 a->rows, a->width);
    } else {
        mw_k_rmsnorm_bwd_param(dgamma, dy, a->x, a->rstd, a->rows, a->width);
    }
    slow_end(dev, MW_OP_NORM, t);
}

/* ---- activation, attention, rotary -------------------------------------- */
static void host_act_fwd(struct mw_dev *dev, bool is_gated, void *y,
                         const void *x, int rows, int width)
{
    int64_t t = slow_begin(dev, MW_OP_ACTIVATION);
    if (is_gated) {
        mw_k_swiglu_fwd(y, x, rows, width);
    } else {
        mw_k_gelu_fwd(y, x, (size_t)rows * (size_t)width);
    }
    slow_end(dev, MW_OP_ACTIVATION, t);
}

static void host_act_bwd(struct mw_dev *dev, bool is_gated, void *dx,
                         const void *dy, const void *x, int rows, int width)
{
    int64_t t = slow_begin(dev, MW_OP_ACTIVATION);
    if (is_gated) {
        mw_k_swiglu_bwd(dx, dy, x, rows, width);
    } else {
        mw_k_gelu_bwd(dx, dy, x, (size_t)rows * (size_t)width);
    }
    slow_end(dev, MW_OP_ACTIVATION, t);
}

static struct mw_k_attention attention_shape(const struct mw_dev_attention *a)
{
    return (struct mw_k_attention){a->n_seqs,     a->seq,      a->n_heads,
                                   a->n_kv_heads, a->head_dim, a->ld_q,
                                   a->ld_kv};
}

static struct mw_k_attention_io attention_io(const struct mw_dev_attention *a)
{
    return (struct mw_k_attention_io){a->q,   a->k,      a->v,  a->out,
                                      a->lse, a->dout,   a->dq, a->dk,
                                      a->dv,  a->scratch};
}

static size_t host_attention_scratch(const struct mw_dev_attention *a)
{
    struct mw_k_attention shape = attention_shape(a);
    return mw_k_attention_scratch(&shape) * sizeof(float);
}

static void host_attention_fwd(struct mw_dev *dev,
                               const struct mw_dev_attention *a)
{
    struct mw_k_attention shape = attention_shape(a);
    struct mw_k_attention_io io = attention_io(a);
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_fwd(&shape, &io);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static void host_attention_bwd(struct mw_dev *dev,
                               const struct mw_dev_attention *a)
{
    struct mw_k_attention shape = attention_shape(a);
    struct mw_k_attention_io io = attention_io(a);
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_bwd(&shape, &io);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static struct mw_k_queries queries_of(const struct mw_dev_queries *own)
{
    return (struct mw_k_queries){own->first, own->n, own->ld_lse, own->adds_dq,
                                 own->dots};
}

static void host_attention_part_fwd(struct mw_dev *dev,
                                    const struct mw_dev_attention *a,
                                    const struct mw_dev_queries *own)
{
    struct mw_k_attention shape = attention_shape(a);
    struct mw_k_attention_io io = attention_io(a);
    const struct mw_k_queries part = queries_of(own);
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_part_fwd(&shape, &part, &io);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static void host_attention_part_bwd(struct mw_dev *dev,
                                    const struct mw_dev_attention *a,
                                    const struct mw_dev_queries *own)
{
    struct mw_k_attention shape = attention_shape(a);
    struct mw_k_attention_io io = attention_io(a);
    const struct mw_k_queries part = queries_of(own);
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_part_bwd(&shape, &part, &io);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static void host_attention_dots(struct mw_dev *dev,
                                const struct mw_dev_attention *a,
                                const struct mw_dev_queries *own, float *dots)
{
    struct mw_k_attention shape = attention_shape(a);
    struct mw_k_attention_io io = attention_io(a);
    const struct mw_k_queries part = queries_of(own);
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_dots(&shape, &part, &io, dots);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static void host_attention_merge(struct mw_dev *dev,
                                 const struct mw_dev_merge *m)
{
    const struct mw_k_merge k = {m->rows, m->n_heads, m->head_dim, m->ld_lse};
    int64_t t = slow_begin(dev, MW_OP_ATTENTION);
    mw_k_attention_merge(&k, m->out, m->lse, m->part, m->part_lse);
    slow_end(dev, MW_OP_ATTENTION, t);
}

static void host_rotary_at(struct mw_dev *dev, void *x, int rows, int ld,
                           int first, int n_heads, int head_dim, int sign)
{
    int64_t t = slow_begin(dev, MW_OP_ROTARY);
    mw_k_rotary_at(x, rows, ld, first, n_heads, head_dim, rotary_theta, sign);
    slow_end(dev, MW_OP_ROTARY, t);
}

static void host_rotary(struct mw_dev *dev, void *x, int rows, int ld, int seq,
                        int n_heads, int head_dim, int sign)
{
    int64_t t = slow_begin(dev, MW_OP_ROTARY);
    mw_k_rotary(x, rows, ld, seq, n_heads, head_dim, rotary_theta, sign);
    slow_end(dev, MW_OP_ROTARY, t);
}

/* ---- embedding and loss ------------------------------------------------- */
static void host_embedding_fwd(struct mw_dev *dev, const struct mw_dev_vocab *a,
                               void *y, const void *w)
{
    int64_t t = slow_begin(dev, MW_OP_EMBEDDING);
    mw_k_embedding_fwd(y, w, a->token, a->rows, a->width, a->first, a->n_local);
    slow_end(dev, MW_OP_EMBEDDING, t);
}

static void host_embedding_bwd(struct mw_dev *dev, const struct mw_dev_vocab *a,
                               float *dw, const void *dy)
{
    int64_t t = slow_begin(dev, MW_OP_EMBEDDING);
    mw_k_embedding_bwd(dw, dy, a->token, a->rows, a->width, a->first,
                       a->n_local);
    slow_end(dev, MW_OP_EMBEDDING, t);
}

static void host_position_fwd(struct mw_dev *dev, void *y, const void *w,
                              int rows, int width, int seq)
{
    int64_t t = slow_begin(dev, MW_OP_EMBEDDING);
    mw_k_position_fwd(y, w, rows, width, seq);
    slow_end(dev, MW_OP_EMBEDDING, t);
}

static void host_position_bwd(struct mw_dev *dev, float *dw, const void *dy,
                              int rows, int width, int seq)
{
    int64_t t = slow_begin(dev, MW_OP_EMBEDDING);
    mw_k_position_bwd(dw, dy, rows, width, seq);
    slow_end(dev, MW_OP_EMBEDDING, t);
}

static void host_xent_max(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    int64_t t = slow_begin(dev, MW_OP_CROSS_ENTROPY);
    mw_k_xent_max(a->max, a->logits, a->rows, a->n_local);
    slow_end(dev, MW_OP_CROSS_ENTROPY, t);
}

static void host_xent_sum(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    int64_t t = slow_begin(dev, MW_OP_CROSS_ENTROPY);
    mw_k_xent_sum(a->sum, a->target, a->logits, a->max, a->label, a->rows,
                  a->n_local, a->first);
    slow_end(dev, MW_OP_CROSS_ENTROPY, t);
}

static double host_xent_loss(struct mw_dev *dev, const struct mw_dev_xent *a)
{
    int64_t t = slow_begin(dev, MW_OP_CROSS_ENTROPY);
    double loss = mw_k_xent_loss(a->sum, a->target, a->rows);
    slow_end(dev, MW_OP_CROSS_ENTROPY, t);
    return loss;
}

static void host_xent_bwd(struct mw_dev *dev, const struct mw_dev_xent *a,
                          void *dlogits, float scale)
{
    int64_t t = slow_begin(dev, MW_OP_CROSS_ENTROPY);
    mw_k_xent_bwd(dlogits, a->logits, a->max, a->sum, a->label, a->rows,
                  a->n_local, a->first, scale);
    slow_end(dev, MW_OP_CROSS_ENTROPY, t);
}

/* ---- vectors ------------------------------------------------------------ */
static void host_add(struct mw_dev *dev, void *y, const void *x,
                     const void *bias, const void *residual, int rows,
                     int width)
{
    int64_t t = slow_begin(dev, MW_OP_ADD);
    mw_k_add(y, x, bias, residual, rows, width);
    slow_end(dev, MW_OP_ADD, t);
}

static void host_add_rows(struct mw_dev *dev, struct mw_dev_rows dst,
                          struct mw_dev_rows src, int n, int width)
{
    int64_t t = slow_begin(dev, MW_OP_ADD);
    for (size_t i = 0; i < (size_t)n; i++) {
        const void *from = (const char *)src.p + i * src.ld;
        void *to = (char *)dst.p + i * dst.ld;

        mw_k_accumulate(to, from, (size_t)width);
    }
    slow_end(dev, MW_OP_ADD, t);
}

static void host_accumulate(struct mw_dev *dev, float *y, const float *x,
                            size_t n)
{
    int64_t t = slow_begin(dev, MW_OP_ADD);
    mw_k_accumulate(y, x, n);
    slow_end(dev, MW_OP_ADD, t);
}

void mw_adamw_host(const struct mw_dev_adamw *h, float *w, const float *g,
                   float *m, float *v, size_t n)
{
    double c1 = 1.0 - pow((double)h->beta1, h->step);
    double c2 = 1.0 - pow((double)h->beta2, h->step);
    const struct mw_k_adamw k = {.lr = h->lr,
                                 .beta1 = h->beta1,
                                 .beta2 = h->beta2,
                                 .eps = h->eps,
                                 .decay = h->decay,
                                 .correct1 = (float)c1,
                                 .correct2 = (float)c2};
    mw_k_adamw(&k, w, g, m, v, n);
}

/* Elements are float32: there is nothing to copy. */
static void host_adamw(struct mw_dev *dev, const struct mw_dev_adamw *h,
                       float *w, void *copy, const float *g, float *m, float *v,
                       size_t n)
{
    int64_t t = slow_begin(dev, MW_OP_OPTIMIZER);
    (void)copy;
    mw_adamw_host(h, w, g, m, v, n);
    slow_end(dev, MW_OP_OPTIMIZER, t);
}

const struct mw_dev_ops mw_dev_host = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .alloc = host_alloc,
    .free = host_free,
    .alloc_host = host_alloc_host,
    .free_host = host_free_host,
    .zero = host_zero,
    .copy = host_copy,
    .copy_rows = host_copy_rows,
    .to_device = host_copy,
    .to_host = host_copy,
    .sync = host_sync,
    .busy_ns = host_busy_ns,
    .linear_fwd = host_linear_fwd,
    .linear_fwd_wide = host_linear_fwd_wide,
    .linear_bwd_input = host_linear_bwd_input,
    .linear_bwd_weight = host_linear_bwd_weight,
    .bias_bwd = host_bias_bwd,
    .norm_fwd = host_norm_fwd,
    .norm_bwd_input = host_norm_bwd_input,
    .norm_bwd_param = host_norm_bwd_param,
    .act_fwd = host_act_fwd,
    .act_bwd = host_act_bwd,
    .attention_scratch = host_attention_scratch,
    .attention_fwd = host_attention_fwd,
    .attention_bwd = host_attention_bwd,
    .experts = &mw_dev_host_experts,
    .attention_part_fwd = host_attention_part_fwd,
    .attention_part_bwd = host_attention_part_bwd,
    .attention_dots = host_attention_dots,
    .attention_merge = host_attention_merge,
    .rotary_at = host_rotary_at,
    .rotary = host_rotary,
    .embedding_fwd = host_embedding_fwd,
    .embedding_bwd = host_embedding_bwd,
    .position_fwd = host_position_fwd,
    .position_bwd = host_position_bwd,
    .xent_max = host_xent_max,
    .xent_sum = host_xent_sum,
    .xent_loss = host_xent_loss,
    .xent_bwd = host_xent_bwd,
    .add = host_add,
    .add_rows = host_add_rows,
    .accumulate = host_accumulate,
    .adamw = host_adamw,
};
