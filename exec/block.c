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
 * With sp, x, n1, mid, n2, y and their gradients are the rank's own rows; AR
 * becomes a reduce-scatter, and rows are gathered before a region (regions.c).
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
                                .rows = ex->dims.own_rows,
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
    return (struct mw_dev_attention){.n_seqs = d->n_seqs * (d->seq / d->doc),
                                     .seq = d->doc,
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

/* Part of a sequence: run by run, each from its position on. */
static void rotate_runs(struct mw_exec *ex, const struct qkv_view *v, int sign)
{
    const struct mw_dims *d = &ex->dims;
    for (int row = 0; row < d->rows;) {
        struct mw_run run = mw_run_at(ex, row);
        void *q = mw_dev_at(ex->dev, v->q, (size_t)row * (size_t)v->ld_q);
        void *k = mw_dev_at(ex->dev, v->k, (size_t)row * (size_t)v->ld_kv);
        ex->dev->ops->rotary_at(ex->dev, q, run.n, v->ld_q, run.position,
                                d->n_heads, d->head_dim, sign);
        ex->dev->ops->rotary_at(ex->dev, k, run.n, v->ld_kv, run.position,
                                d->n_kv_heads, d->head_dim, sign);
        row += run.n;
    }
}

static void rotate(struct mw_exec *ex, void *q, void *kv, int sign)
{
    const struct mw_dims *d = &ex->dims;
    if (!d->has_rotary) {
        return;
    }
    struct qkv_view v = view_qkv(ex, q, kv);
    if (d->n_cp > 1 || d->n_parts > 1) {
        rotate_runs(ex, &v, sign);
        return;
    }
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

static struct mw_pair dense_pair(const struct mw_exec *ex,
                                 const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 const struct mw_block_bwd *k)
{
    struct mw_pair p = {.fc1 = &b->fc1,
                        .fc2 = &b->fc2,
                        .in = "fc1",
                        .out = "fc2",
                        .ffn = ex->dims.ffn,
                        .h1 = f->h1,
                        .g = f->g,
                        .ha = {f->ha[MW_LINEAR_FC1], f->ha[MW_LINEAR_FC2]}};
    if (k) {
        p.dha[0] = k->dha[MW_LINEAR_FC1];
        p.dha[1] = k->dha[MW_LINEAR_FC2];
        p.dh1 = k->dh1;
        p.dy_full = k->dy_full;
    }
    return p;
}

/* A linear layer of attention. */
static struct mw_product product_of(const struct mw_exec *ex,
                                    const struct mw_block *b,
                                    enum mw_linear_id id,
                                    const struct mw_block_fwd *f,
                                    const struct mw_block_bwd *k)
{
    const struct mw_dims *d = &ex->dims;
    struct mw_product p = {.linear = id == MW_LINEAR_KV     ? &b->kv
                                     : id == MW_LINEAR_PROJ ? &b->proj
                                                            : &b->q,
                           .rows = d->rows,
                           .n = id == MW_LINEAR_KV ? d->kv_width
                                                   : first_width(d),
                           .k = d->hidden,
                           .ha = f->ha[id],
                           .dha = k ? k->dha[id] : NULL};
    if (id == MW_LINEAR_PROJ) {
        p.n = d->hidden;
        p.k = d->q_width;
    }
    return p;
}

/* ---- forward ------------------------------------------------------------ */
static enum mw_status core_forward(struct mw_exec *ex,
                                   const struct mw_block_fwd *f,
                                   const struct mw_dev_attention *a)
{
    if (ex->dims.n_cp > 1) {
        return mw_context_forward(ex, f, a);
    }
    if (ex->dims.n_parts > 1) {
        mw_part_forward(ex, a);
    } else {
        ex->dev->ops->attention_fwd(ex->dev, a);
    }
    return MW_OK;
}

static enum mw_status core_backward(struct mw_exec *ex,
                                    const struct mw_block_fwd *f,
                                    const struct mw_dev_attention *a)
{
    if (ex->dims.n_cp > 1) {
        return mw_context_backward(ex, f, a);
    }
    if (ex->dims.n_parts > 1) {
        mw_part_backward(ex, a);
    } else {
        ex->dev->ops->attention_bwd(ex->dev, a);
    }
    return MW_OK;
}

static enum mw_status attention_forward(struct mw_exec *ex,
                                        const struct mw_block *b,
                                        struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_dev_norm norm = norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    const void *n1;
    void *sum;
    ops->norm_fwd(ex->dev, &norm, f->n1);
    MW_TRY(mw_region_enter(ex, "qkv", f->n1, ex->full, &n1));
    const struct mw_product q = product_of(ex, b, MW_LINEAR_Q, f, NULL);
    const struct mw_product kv = product_of(ex, b, MW_LINEAR_KV, f, NULL);
    const struct mw_product proj = product_of(ex, b, MW_LINEAR_PROJ, f, NULL);
    mw_linear_forward(ex, &q, f->q, n1, b->q.bias.w);
    if (!d->is_fused_qkv) {
        mw_linear_forward(ex, &kv, f->kv, n1, b->kv.bias.w);
    }
    rotate(ex, f->q, f->kv, 1);
    struct mw_dev_attention a = attention_arg(ex, f);
    MW_TRY(core_forward(ex, f, &a));
    mw_linear_forward(ex, &proj, ex->tmp, f->att, NULL);
    MW_TRY(mw_region_leave(ex, "proj", ex->tmp, &sum));
    ops->add(ex->dev, f->mid, sum, b->proj.bias.w, f->x, d->own_rows,
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
    void *sum;
    ops->norm_fwd(ex->dev, &norm, f->n2);
    if (b->is_moe) {
        return mw_experts_forward(ex, b, f, y);
    }
    const struct mw_pair p = dense_pair(ex, b, f, NULL);
    MW_TRY(mw_pair_forward(ex, &p, f->n2, &sum));
    ops->add(ex->dev, y, sum, b->fc2.bias.w, f->mid, d->own_rows, d->hidden);
    return MW_OK;
}

enum mw_status mw_block_forward(struct mw_exec *ex, const struct mw_block *b,
                                struct mw_block_fwd *f, void *y)
{
    mw_beat_tick(ex->rec->beat);
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
    ex->dev->ops->add(ex->dev, dx, dx, NULL, dy, d->own_rows, d->hidden);
}

static enum mw_status mlp_backward(struct mw_exec *ex, const struct mw_block *b,
                                   const struct mw_block_fwd *f,
                                   struct mw_block_bwd *k, const void *dy)
{
    const struct mw_pair p = dense_pair(ex, b, f, k);
    MW_TRY(b->is_moe ? mw_experts_backward(ex, b, f, k, dy)
                     : mw_pair_backward(ex, &p, dy, k->dn2));
    struct mw_dev_norm norm =
        norm_arg(ex, &b->norm2, f->mid, f->mean2, f->rstd2);
    norm_backward(ex, &norm, k->dmid, k->dn2, dy);
    return MW_OK;
}

static void qkv_backward(struct mw_exec *ex, const struct mw_block *b,
                         const struct mw_block_fwd *f, struct mw_block_bwd *k)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    void *dn1 = d->is_sp ? ex->full : k->dn1;
    const struct mw_product q = product_of(ex, b, MW_LINEAR_Q, f, k);
    const struct mw_product kv = product_of(ex, b, MW_LINEAR_KV, f, k);
    mw_linear_backward(ex, &q, dn1, k->dq);
    if (!d->is_fused_qkv) {
        mw_linear_backward(ex, &kv, ex->tmp, k->dkv);
        ops->add(ex->dev, dn1, dn1, NULL, ex->tmp, d->rows, d->hidden);
    }
}

static enum mw_status attention_backward(struct mw_exec *ex,
                                         const struct mw_block *b,
                                         const struct mw_block_fwd *f,
                                         struct mw_block_bwd *k, void *dx)
{
    const void *dmid;
    struct mw_dev_attention a = attention_arg(ex, f);
    if (mw_core_is_repeated(ex, f)) {
        mw_exec_relabel(ex, MW_SPAN_RECOMPUTE, "R");
        MW_TRY(core_forward(ex, f, &a));
        mw_exec_relabel(ex, MW_SPAN_B, "B");
    }
    MW_TRY(mw_region_enter(ex, "proj", k->dmid, k->dmid_full, &dmid));
    const struct mw_product proj = product_of(ex, b, MW_LINEAR_PROJ, f, k);
    mw_linear_backward(ex, &proj, ex->tmp, dmid);
    struct qkv_view g = view_qkv(ex, k->dq, k->dkv);
    a.dout = ex->tmp;
    a.dq = g.q;
    a.dk = g.k;
    a.dv = g.v;
    MW_TRY(core_backward(ex, f, &a));
    rotate(ex, k->dq, k->dkv, -1);
    qkv_backward(ex, b, f, k);
    MW_TRY(mw_region_sum_gradient(ex, "qkv", k->dn1));
    struct mw_dev_norm norm = norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    norm_backward(ex, &norm, dx, k->dn1, k->dmid);
    return MW_OK;
}

enum mw_status mw_block_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 struct mw_block_bwd *k, const void *dy,
                                 void *dx)
{
    mw_beat_tick(ex->rec->beat);
    MW_TRY(mlp_backward(ex, b, f, k, dy));
    return attention_backward(ex, b, f, k, dx);
}

/* ---- weights ------------------------------------------------------------ */
static void norm_weight(struct mw_exec *ex, const struct mw_norm_tensors *t,
                        const struct mw_dev_norm *norm, const void *dn)
{
    if (t->gamma.g) {
        ex->dev->ops->norm_bwd_param(ex->dev, norm, t->gamma.g, t->beta.g, dn);
    }
}

enum mw_status mw_block_weight(struct mw_exec *ex, const struct mw_block *b,
                               const struct mw_block_fwd *f,
                               const struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const void *dmid = d->is_sp ? k->dmid_full : k->dmid, *n1;
    mw_beat_tick(ex->rec->beat);
    const struct mw_pair p = dense_pair(ex, b, f, k);
    MW_TRY(b->is_moe ? mw_experts_weight(ex, b, f, k, dy)
                     : mw_pair_weight(ex, &p, f->n2, dy));
    struct mw_dev_norm norm2 =
        norm_arg(ex, &b->norm2, f->mid, f->mean2, f->rstd2);
    norm_weight(ex, &b->norm2, &norm2, k->dn2);
    const struct mw_product q = product_of(ex, b, MW_LINEAR_Q, f, k);
    const struct mw_product kv = product_of(ex, b, MW_LINEAR_KV, f, k);
    struct mw_product proj = product_of(ex, b, MW_LINEAR_PROJ, f, k);
    if (d->is_sp) {
        proj.bias_dy = k->dmid;
        proj.bias_rows = d->own_rows;
    }
    mw_linear_weight(ex, &proj, dmid, f->att);
    MW_TRY(mw_region_enter(ex, "qkv", f->n1, ex->full, &n1));
    mw_linear_weight(ex, &q, k->dq, n1);
    if (!d->is_fused_qkv) {
        mw_linear_weight(ex, &kv, k->dkv, n1);
    }
    struct mw_dev_norm norm1 =
        norm_arg(ex, &b->norm1, f->x, f->mean1, f->rstd1);
    norm_weight(ex, &b->norm1, &norm1, k->dn1);
    return MW_OK;
}
