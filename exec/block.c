/*
 * One transformer block in three passes.
 *
 *   forward   n1 = norm(x); qkv = n1 Wqkv^T + b; [rotary]; att = attention
 *             mid = x + AR(att Wp^T) + bp
 *             n2 = norm(mid); h1 = n2 W1^T + b1; g = act(h1)
 *             y = mid + AR(g W2^T) + b2
 *   backward  dg = dy W2; dh1 = act'(dg); dn2 = AR(dh1 W1)
 *             dmid = dy + norm'(dn2)
 *             datt = dmid Wp; dqkv = attention'(datt); dn1 = AR(dqkv Wqkv)
 *             dx = dmid + norm'(dn1)
 *   weight    dW = dY^T X of the four linear layers, biases, norms
 *
 * AR is an all-reduce over the TP group (Megatron-LM's f and g, Shoeybi et
 * al., 2019, section 3): Wqkv and W1 are split by output rows, Wp and W2 by
 * input columns, norms and the biases of Wp and W2 are whole on every rank.
 */
#include "exec/exec_int.h"

static struct mw_dev_norm norm_arg(const struct mw_exec *ex,
                                   const struct mw_norm_tensors *t,
                                   const void *x, float *mean, float *rstd)
{
    return (struct mw_dev_norm){.kind = ex->dims.norm,
                                .x = x,
                                .gamma = t->gamma.w,
                                .beta = t->beta.w,
                                .mean = mean,
                                .rstd = rstd,
                                .rows = ex->dims.rows,
                                .width = ex->dims.hidden};
}

/* Where k and v begin and how far apart rows lie, for activations or their
 * gradients: inside the fused buffer, or in the one of keys and values. */
struct qkv_view {
    void *q, *k, *v;
    int ld_q, ld_kv;
};

static struct qkv_view view_qkv(const struct mw_exec *ex, void *q, void *kv)
{
    const struct mw_dims *d = &ex->dims;
    int width = d->q_width + d->kv_width;
    size_t half = (size_t)d->kv_width / 2;
    if (d->is_fused_qkv) {
        void *k = mw_dev_at(ex->dev, q, (size_t)d->q_width);
        return (struct qkv_view){q, k, mw_dev_at(ex->dev, k, half), width,
                                 width};
    }
    return (struct qkv_view){q, kv, mw_dev_at(ex->dev, kv, half), d->q_width,
                             d->kv_width};
}

static struct mw_dev_attention attention_arg(const struct mw_exec *ex,
                                             const struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    struct qkv_view v = view_qkv(ex, f->q, f->kv);
    return (struct mw_dev_attention){.n_seqs = d->n_seqs,
                                     .seq = d->seq,
                                     .n_heads = d->n_heads,
                                     .n_kv_heads = d->n_kv_heads,
                                     .head_dim = d->head_dim,
                                     .ld_q = v.ld_q,
                                     .ld_kv = v.ld_kv,
                                     .q = v.q,
                                     .k = v.k,
                                     .v = v.v,
                                     .out = f->att,
                                     .lse = f->lse,
                                     .scratch = ex->scratch};
}

static void rotate(struct mw_exec *ex, void *q, void *kv, int sign)
{
    const struct mw_dims *d = &ex->dims;
    if (!d->has_rotary) {
        return;
    }
    struct qkv_view v = view_qkv(ex, q, kv);
    ex->dev->ops->rotary(ex->dev, v.q, d->rows, v.ld_q, d->seq, d->n_heads,
                         d->head_dim, sign);
    ex->dev->ops->rotary(ex->dev, v.k, d->rows, v.ld_kv, d->seq, d->n_kv_heads,
                         d->head_dim, sign);
}

/* Columns of the first projection's output. */
static int first_width(const struct mw_dims *d)
{
    return d->is_fused_qkv ? d->q_width + d->kv_width : d->q_width;
}

static int fc1_width(const struct mw_dims *d)
{
    return d->is_gated ? 2 * d->ffn : d->ffn;
}

enum mw_status mw_exec_tp_reduce(struct mw_exec *ex, const char *name,
                                 void *buf, size_t n, enum mw_reduce op)
{
    if (ex->tp->size == 1) {
        return MW_OK;
    }
    const struct mw_rec_event event = {.type = MW_REC_COLL,
                                       .span = MW_SPAN_TP,
                                       .name = name,
                                       .microbatch = ex->rec->label.microbatch,
                                       .stage = ex->rec->label.stage,
                                       .bytes = (double)n * sizeof(float),
                                       .dim = MW_DIM_TP,
                                       .coll = MW_ALL_REDUCE};
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ex->tp->ops->all_reduce(ex->tp, buf, n, MW_ELEM_F32, op, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &event);
    return st;
}

static enum mw_status reduce_hidden(struct mw_exec *ex, const char *name,
                                    void *buf)
{
    size_t n = (size_t)ex->dims.rows * (size_t)ex->dims.hidden;
    return mw_exec_tp_reduce(ex, name, buf, n, MW_REDUCE_SUM);
}

/* ---- forward ------------------------------------------------------------ */
static enum mw_status attention_forward(struct mw_exec *ex,
                                        const struct mw_block *b,
                                        struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_dev_norm norm = norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    ops->norm_fwd(ex->dev, &norm, f->n1);
    ops->linear_fwd(ex->dev, f->q, f->n1, b->q.weight.w, b->q.bias.w, d->rows,
                    first_width(d), d->hidden);
    if (!d->is_fused_qkv) {
        ops->linear_fwd(ex->dev, f->kv, f->n1, b->kv.weight.w, b->kv.bias.w,
                        d->rows, d->kv_width, d->hidden);
    }
    rotate(ex, f->q, f->kv, 1);
    struct mw_dev_attention a = attention_arg(ex, f);
    ops->attention_fwd(ex->dev, &a);
    ops->linear_fwd(ex->dev, ex->tmp, f->att, b->proj.weight.w, NULL, d->rows,
                    d->hidden, d->q_width);
    MW_TRY(reduce_hidden(ex, "proj", ex->tmp));
    ops->add(ex->dev, f->mid, ex->tmp, b->proj.bias.w, f->x, d->rows,
             d->hidden);
    return MW_OK;
}

static enum mw_status mlp_forward(struct mw_exec *ex, const struct mw_block *b,
                                  struct mw_block_fwd *f, void *y)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_dev_norm norm =
        norm_arg(ex, &b->norm2, f->mid, f->mean2, f->rstd2);
    ops->norm_fwd(ex->dev, &norm, f->n2);
    ops->linear_fwd(ex->dev, f->h1, f->n2, b->fc1.weight.w, b->fc1.bias.w,
                    d->rows, fc1_width(d), d->hidden);
    ops->act_fwd(ex->dev, d->is_gated, f->g, f->h1, d->rows, d->ffn);
    ops->linear_fwd(ex->dev, ex->tmp, f->g, b->fc2.weight.w, NULL, d->rows,
                    d->hidden, d->ffn);
    MW_TRY(reduce_hidden(ex, "fc2", ex->tmp));
    ops->add(ex->dev, y, ex->tmp, b->fc2.bias.w, f->mid, d->rows, d->hidden);
    return MW_OK;
}

enum mw_status mw_block_forward(struct mw_exec *ex, const struct mw_block *b,
                                struct mw_block_fwd *f, void *y)
{
    MW_TRY(attention_forward(ex, b, f));
    return mlp_forward(ex, b, f, y);
}

/* ---- backward ----------------------------------------------------------- */
/* dx = dy + norm'(dn) with x, the norm's input. */
static void norm_backward(struct mw_exec *ex, const struct mw_dev_norm *norm,
                          void *dx, const void *dn, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    ex->dev->ops->norm_bwd_input(ex->dev, norm, dx, dn);
    ex->dev->ops->add(ex->dev, dx, dx, NULL, dy, d->rows, d->hidden);
}

static enum mw_status mlp_backward(struct mw_exec *ex, const struct mw_block *b,
                                   const struct mw_block_fwd *f,
                                   struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    ops->linear_bwd_input(ex->dev, ex->tmp, dy, b->fc2.weight.w, d->rows,
                          d->hidden, d->ffn);
    ops->act_bwd(ex->dev, d->is_gated, k->dh1, ex->tmp, f->h1, d->rows, d->ffn);
    ops->linear_bwd_input(ex->dev, k->dn2, k->dh1, b->fc1.weight.w, d->rows,
                          fc1_width(d), d->hidden);
    MW_TRY(reduce_hidden(ex, "fc1", k->dn2));
    struct mw_dev_norm norm =
        norm_arg(ex, &b->norm2, f->mid, f->mean2, f->rstd2);
    norm_backward(ex, &norm, k->dmid, k->dn2, dy);
    return MW_OK;
}

static void qkv_backward(struct mw_exec *ex, const struct mw_block *b,
                         struct mw_block_bwd *k)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    ops->linear_bwd_input(ex->dev, k->dn1, k->dq, b->q.weight.w, d->rows,
                          first_width(d), d->hidden);
    if (!d->is_fused_qkv) {
        ops->linear_bwd_input(ex->dev, ex->tmp, k->dkv, b->kv.weight.w, d->rows,
                              d->kv_width, d->hidden);
        ops->add(ex->dev, k->dn1, k->dn1, NULL, ex->tmp, d->rows, d->hidden);
    }
}

static enum mw_status attention_backward(struct mw_exec *ex,
                                         const struct mw_block *b,
                                         const struct mw_block_fwd *f,
                                         struct mw_block_bwd *k, void *dx)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    ops->linear_bwd_input(ex->dev, ex->tmp, k->dmid, b->proj.weight.w, d->rows,
                          d->hidden, d->q_width);
    struct mw_dev_attention a = attention_arg(ex, f);
    struct qkv_view g = view_qkv(ex, k->dq, k->dkv);
    a.dout = ex->tmp;
    a.dq = g.q;
    a.dk = g.k;
    a.dv = g.v;
    ops->attention_bwd(ex->dev, &a);
    rotate(ex, k->dq, k->dkv, -1);
    qkv_backward(ex, b, k);
    MW_TRY(reduce_hidden(ex, "qkv", k->dn1));
    struct mw_dev_norm norm = norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    norm_backward(ex, &norm, dx, k->dn1, k->dmid);
    return MW_OK;
}

enum mw_status mw_block_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 struct mw_block_bwd *k, const void *dy,
                                 void *dx)
{
    MW_TRY(mlp_backward(ex, b, f, k, dy));
    return attention_backward(ex, b, f, k, dx);
}

/* ---- weights ------------------------------------------------------------ */
static void linear_weight(struct mw_exec *ex, const struct mw_linear *l,
                          const void *dy, const void *x, int n, int k)
{
    ex->dev->ops->linear_bwd_weight(ex->dev, l->weight.g, l->bias.g, dy, x,
                                    ex->dims.rows, n, k);
}

void mw_block_weight(struct mw_exec *ex, const struct mw_block *b,
                     const struct mw_block_fwd *f, const struct mw_block_bwd *k,
                     const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    linear_weight(ex, &b->fc2, dy, f->g, d->hidden, d->ffn);
    linear_weight(ex, &b->fc1, k->dh1, f->n2, fc1_width(d), d->hidden);
    struct mw_dev_norm norm2 =
        norm_arg(ex, &b->norm2, f->mid, f->mean2, f->rstd2);
    ops->norm_bwd_param(ex->dev, &norm2, b->norm2.gamma.g, b->norm2.beta.g,
                        k->dn2);
    linear_weight(ex, &b->proj, k->dmid, f->att, d->hidden, d->q_width);
    linear_weight(ex, &b->q, k->dq, f->n1, first_width(d), d->hidden);
    if (!d->is_fused_qkv) {
        linear_weight(ex, &b->kv, k->dkv, f->n1, d->kv_width, d->hidden);
    }
    struct mw_dev_norm norm1 =
        norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    ops->norm_bwd_param(ex->dev, &norm1, b->norm1.gamma.g, b->norm1.beta.g,
                        k->dn1);
}
