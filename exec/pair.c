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

static struct mw_product first(const struct mw_exec *ex,
                               const struct mw_pair *p)
{
    return (struct mw_product){.linear = p->fc1,
                               .rows = ex->dims.rows,
                               .n = ex->dims.is_gated ? 2 * p->ffn : p->ffn,
                               .k = ex->dims.hidden,
                               .ha = p->ha[0],
                               .dha = p->dha[0]};
}

static struct mw_product second(const struct mw_exec *ex,
                                const struct mw_pair *p)
{
    return (struct mw_product){.linear = p->fc2,
                               .rows = ex->dims.rows,
                               .n = ex->dims.hidden,
                               .k = p->ffn,
                               .ha = p->ha[1],
                               .dha = p->dha[1]};
}

enum mw_status mw_pair_forward(struct mw_exec *ex, const struct mw_pair *p,
                               const void *x, void **out)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_product one = first(ex, p), two = second(ex, p);
    const void *all;
    MW_TRY(mw_region_enter(ex, p->in, x, ex->full, &all));
    mw_linear_forward(ex, &one, p->h1, all, p->fc1->bias.w);
    ops->act_fwd(ex->dev, d->is_gated, p->g, p->h1, d->rows, p->ffn);
    mw_linear_forward(ex, &two, ex->tmp, p->g, NULL);
    return mw_region_leave(ex, p->out, ex->tmp, out);
}

enum mw_status mw_pair_backward(struct mw_exec *ex, const struct mw_pair *p,
                                const void *dy, void *dx)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_product one = first(ex, p), two = second(ex, p);
    const void *all;
    MW_TRY(mw_region_enter(ex, p->out, dy, p->dy_full, &all));
    mw_linear_backward(ex, &two, ex->tmp, all);
    ops->act_bwd(ex->dev, d->is_gated, p->dh1, ex->tmp, p->h1, d->rows, p->ffn);
    mw_linear_backward(ex, &one, d->is_sp ? ex->full : dx, p->dh1);
    return mw_region_sum_gradient(ex, p->in, dx);
}

enum mw_status mw_pair_weight(struct mw_exec *ex, const struct mw_pair *p,
                              const void *x, const void *dy)
{
    const struct mw_product one = first(ex, p);
    struct mw_product two = second(ex, p);
    const void *all;
    if (ex->dims.is_sp) {
        two.bias_dy = dy;
        two.bias_rows = ex->dims.own_rows;
    }
    mw_linear_weight(ex, &two, ex->dims.is_sp ? p->dy_full : dy, p->g);
    if (mw_linear_learns(p->fc1)) {
        MW_TRY(mw_region_enter(ex, p->in, x, ex->full, &all));
        mw_linear_weight(ex, &one, p->dh1, all);
    }
    return MW_OK;
}
