/*
 * Two linear layers with an activation between them over the TP group: the MLP
 * of a dense block, or the expert that every token passes. The first is split
 * by output rows, the second by input columns (Shoeybi et al., 2019, section
 * 3), so one sum over the group ends each direction:
 *
 *   forward   h1 = x W1^T + b1; g = act(h1); sum over tp of g W2^T
 *   backward  dg = dy W2; dh1 = act'(dg); dx = sum over tp of dh1 W1
 *   weight    dW2 = dy^T g, dW1 = dh1^T x
 */
#include "exec/exec_int.h"

static int width_1(const struct mw_exec *ex, const struct mw_pair *p)
{
    return ex->dims.is_gated ? 2 * p->ffn : p->ffn;
}

enum mw_status mw_pair_forward(struct mw_exec *ex, const struct mw_pair *p,
                               const void *x, void **out)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const void *all;
    MW_TRY(mw_region_enter(ex, p->in, x, ex->full, &all));
    ops->linear_fwd(ex->dev, p->h1, all, p->fc1->weight.w, p->fc1->bias.w,
                    d->rows, width_1(ex, p), d->hidden);
    ops->act_fwd(ex->dev, d->is_gated, p->g, p->h1, d->rows, p->ffn);
    ops->linear_fwd(ex->dev, ex->tmp, p->g, p->fc2->weight.w, NULL, d->rows,
                    d->hidden, p->ffn);
    return mw_region_leave(ex, p->out, ex->tmp, out);
}

enum mw_status mw_pair_backward(struct mw_exec *ex, const struct mw_pair *p,
                                const void *dy, void *dx)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const void *all;
    MW_TRY(mw_region_enter(ex, p->out, dy, p->dy_full, &all));
    ops->linear_bwd_input(ex->dev, ex->tmp, all, p->fc2->weight.w, d->rows,
                          d->hidden, p->ffn);
    ops->act_bwd(ex->dev, d->is_gated, p->dh1, ex->tmp, p->h1, d->rows, p->ffn);
    ops->linear_bwd_input(ex->dev, d->is_sp ? ex->full : dx, p->dh1,
                          p->fc1->weight.w, d->rows, width_1(ex, p), d->hidden);
    return mw_region_sum_gradient(ex, p->in, dx);
}

enum mw_status mw_pair_weight(struct mw_exec *ex, const struct mw_pair *p,
                              const void *x, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const void *all;
    ops->linear_bwd_weight(ex->dev, p->fc2->weight.g, p->fc2->bias.g,
                           d->is_sp ? p->dy_full : dy, p->g, d->rows, d->hidden,
                           p->ffn);
    MW_TRY(mw_region_enter(ex, p->in, x, ex->full, &all));
    ops->linear_bwd_weight(ex->dev, p->fc1->weight.g, p->fc1->bias.g, p->dh1,
                           all, d->rows, width_1(ex, p), d->hidden);
    return MW_OK;
}
