/*
 * The two ends of the model: embeddings before the first block; final norm,
 * head and loss after the last. Both are split over the vocabulary in the TP
 * group (Shoeybi et al., 2019, section 3): each rank looks up its own tokens
 * and the group adds; the loss reduces one maximum, one target logit and one
 * sum per token.
 */
#include "exec/exec_int.h"

static struct mw_dev_vocab vocab_arg(const struct mw_exec *ex,
                                     const struct mw_fwd *f)
{
    return (struct mw_dev_vocab){.token = f->token,
                                 .rows = ex->dims.rows,
                                 .width = ex->dims.hidden,
                                 .first = ex->dims.first_token,
                                 .n_local = ex->dims.vocab};
}

/* The own rows begin somewhere in a sequence, and may go on in the next. */
static void add_positions(struct mw_exec *ex, const struct mw_chunk *c, void *x)
{
    const struct mw_dims *d = &ex->dims;
    int first = d->is_sp ? ex->tp->rank * d->own_rows : 0;
    for (int done = 0; done < d->own_rows;) {
        struct mw_run run = mw_run_at(ex, first + done);
        int n = run.n < d->own_rows - done ? run.n : d->own_rows - done;
        size_t skip = (size_t)done * (size_t)d->hidden;
        size_t place = (size_t)run.position * (size_t)d->hidden;
        ex->dev->ops->position_fwd(ex->dev, mw_dev_at(ex->dev, x, skip),
                                   mw_dev_at(ex->dev, c->position.w, place), n,
                                   d->hidden, d->seq);
        done += n;
    }
}

/* dx has all rows of the TP group. */
static void position_gradients(struct mw_exec *ex, const struct mw_chunk *c,
                               const void *dx)
{
    const struct mw_dims *d = &ex->dims;
    for (int row = 0; row < d->rows;) {
        struct mw_run run = mw_run_at(ex, row);
        size_t skip = (size_t)row * (size_t)d->hidden;
        ex->dev->ops->position_bwd(
            ex->dev, c->position.g + (size_t)run.position * (size_t)d->hidden,
            mw_dev_at(ex->dev, dx, skip), run.n, d->hidden, d->seq);
        row += run.n;
    }
}

enum mw_status mw_embedding_forward(struct mw_exec *ex,
                                    const struct mw_chunk *c, struct mw_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    struct mw_dev_vocab a = vocab_arg(ex, f);
    void *full = d->is_sp ? ex->full : f->x[0], *sum;
    ex->dev->ops->embedding_fwd(ex->dev, &a, full, c->embedding.w);
    MW_TRY(mw_region_leave(ex, "embed", full, &sum));
    if (d->is_sp) {
        ex->dev->ops->copy(ex->dev, f->x[0], sum,
                           (size_t)d->own_rows * (size_t)d->hidden *
                               ex->dev->elem_bytes);
    }
    if (d->has_position) {
        add_positions(ex, c, f->x[0]);
    }
    return MW_OK;
}

enum mw_status mw_embedding_weight(struct mw_exec *ex, const struct mw_chunk *c,
                                   const struct mw_fwd *f,
                                   const struct mw_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    struct mw_dev_vocab a = vocab_arg(ex, f);
    const void *dx;
    if (!c->embedding.g) {
        return MW_OK; /* frozen */
    }
    MW_TRY(mw_region_enter(ex, "embed", b->dx[0], ex->full, &dx));
    ex->dev->ops->embedding_bwd(ex->dev, &a, c->embedding.g, dx);
    if (d->has_position) {
        position_gradients(ex, c, dx);
    }
    return MW_OK;
}

/* ---- head --------------------------------------------------------------- */
static struct mw_dev_norm final_norm_arg(const struct mw_exec *ex,
                                         const struct mw_chunk *c,
                                         const struct mw_fwd *f)
{
    return (struct mw_dev_norm){.kind = ex->dims.norm,
                                .x = f->x[c->n_layers],
                                .gamma = c->final_norm.gamma.w,
                                .beta = c->final_norm.beta.w,
                                .mean = f->mean,
                                .rstd = f->rstd,
                                .rows = ex->dims.own_rows,
                                .width = ex->dims.hidden};
}

static struct mw_dev_xent xent_arg(const struct mw_exec *ex,
                                   const struct mw_fwd *f)
{
    return (struct mw_dev_xent){.logits = f->logits,
                                .max = f->max,
                                .sum = f->sum,
                                .target = f->target,
                                .label = f->label,
                                .rows = ex->dims.rows,
                                .first = ex->dims.first_token,
                                .n_local = ex->dims.vocab};
}

enum mw_status mw_head_forward(struct mw_exec *ex, const struct mw_chunk *c,
                               struct mw_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_dev_norm norm = final_norm_arg(ex, c, f);
    struct mw_dev_xent x = xent_arg(ex, f);
    size_t rows = (size_t)d->rows;
    const void *nf;
    ops->norm_fwd(ex->dev, &norm, f->nf);
    MW_TRY(mw_region_enter(ex, "head", f->nf, ex->full, &nf));
    ops->linear_fwd_wide(ex->dev, f->logits, nf, c->head.w, d->rows, d->vocab,
                         d->hidden);
    ops->xent_max(ex->dev, &x);
    MW_TRY(mw_exec_tp_reduce(ex, "loss_max", f->max, rows, MW_REDUCE_MAX));
    ops->xent_sum(ex->dev, &x);
    MW_TRY(
        mw_exec_tp_reduce(ex, "loss_target", f->target, rows, MW_REDUCE_SUM));
    MW_TRY(mw_exec_tp_reduce(ex, "loss_sum", f->sum, rows, MW_REDUCE_SUM));
    ex->loss[f->microbatch] = ops->xent_loss(ex->dev, &x);
    return MW_OK;
}

/* Logits are float32; their gradient stands in their place, or where elements
 * are smaller in B's slab. */
static void *gradient_of(const struct mw_fwd *f, const struct mw_bwd *b)
{
    return b->dlogits ? b->dlogits : (void *)f->logits;
}

enum mw_status mw_head_backward(struct mw_exec *ex, const struct mw_chunk *c,
                                struct mw_fwd *f, struct mw_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct mw_dev_xent x = xent_arg(ex, f);
    ops->xent_bwd(ex->dev, &x, gradient_of(f, b), ex->loss_scale);
    void *full = d->is_sp ? ex->full : b->dnf, *sum;
    ops->linear_bwd_input(ex->dev, full, gradient_of(f, b), c->head.w, d->rows,
                          d->vocab, d->hidden);
    MW_TRY(mw_region_leave(ex, "head", full, &sum));
    if (d->is_sp) {
        ops->copy(ex->dev, b->dnf, sum,
                  (size_t)d->own_rows * (size_t)d->hidden *
                      ex->dev->elem_bytes);
    }
    struct mw_dev_norm norm = final_norm_arg(ex, c, f);
    ops->norm_bwd_input(ex->dev, &norm, b->dx[c->n_layers], b->dnf);
    return MW_OK;
}

enum mw_status mw_head_weight(struct mw_exec *ex, const struct mw_chunk *c,
                              const struct mw_fwd *f, const struct mw_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    const void *nf;
    if (!c->head.g) {
        return MW_OK; /* frozen */
    }
    MW_TRY(mw_region_enter(ex, "head", f->nf, ex->full, &nf));
    ex->dev->ops->linear_bwd_weight(ex->dev, c->head.g, NULL, gradient_of(f, b),
                                    nf, d->rows, d->vocab, d->hidden);
    struct mw_dev_norm norm = final_norm_arg(ex, c, f);
    ex->dev->ops->norm_bwd_param(ex->dev, &norm, c->final_norm.gamma.g,
                                 c->final_norm.beta.g, b->dnf);
    return MW_OK;
}
