/*
 * The expert of a mixture that every token passes (DeepSeekMoE: Dai et al.,
 * 2024, section 3.2): an MLP over the TP group beside the routed ones, its
 * output added, or first weighted by the sigmoid of a logit of the token
 * (Qwen2-MoE). A gated output is kept: its product with the incoming gradient
 * is the gradient of the gate.
 */
#include "exec/exec_int.h"

static struct mw_pair shared_pair(const struct mw_exec *ex,
                                  const struct mw_block *b,
                                  const struct mw_block_fwd *f,
                                  const struct mw_block_bwd *k)
{
    struct mw_pair p = {.fc1 = &b->shared_1,
                        .fc2 = &b->shared_2,
                        .in = "shared_fc1",
                        .out = "shared_fc2",
                        .ffn = ex->dims.shared_ffn,
                        .h1 = f->moe.shared_h1,
                        .g = f->moe.shared_g,
                        .ha = {f->ha[MW_LINEAR_FC1], f->ha[MW_LINEAR_FC2]}};
    if (k) {
        p.dha[0] = k->dha[MW_LINEAR_FC1];
        p.dha[1] = k->dha[MW_LINEAR_FC2];
        p.dh1 = k->moe.shared_dh1;
        p.dy_full = k->moe.shared_dy_full;
    }
    return p;
}

enum mw_status mw_shared_forward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f, void *y)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_pair p = shared_pair(ex, b, f, NULL);
    void *sum;
    MW_TRY(mw_pair_forward(ex, &p, f->n2, &sum));
    if (!d->has_shared_gate) {
        ops->add(ex->dev, y, y, NULL, sum, d->own_rows, d->hidden);
        return MW_OK;
    }
    ops->copy(ex->dev, f->moe.shared_out, sum,
              (size_t)d->own_rows * (size_t)d->hidden * ex->dev->elem_bytes);
    ops->linear_fwd_wide(ex->dev, f->moe.shared_logit, f->n2, b->shared_gate.w,
                         d->own_rows, 1, d->hidden);
    ops->experts->gate_fwd(ex->dev, y, f->moe.shared_out, f->moe.shared_logit,
                           d->own_rows, d->hidden);
    return MW_OK;
}

/* The gradient at the MLP's output: dy, or through the gate. */
static const void *through_gate(struct mw_exec *ex,
                                const struct mw_block_fwd *f,
                                struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    if (!d->has_shared_gate) {
        return dy;
    }
    ex->dev->ops->experts->gate_bwd(
        ex->dev, k->moe.shared_dy, k->moe.shared_dlogit, dy, f->moe.shared_out,
        f->moe.shared_logit, d->own_rows, d->hidden);
    return k->moe.shared_dy;
}

static void add_to(struct mw_exec *ex, void *dn2, const void *part)
{
    ex->dev->ops->add(ex->dev, dn2, dn2, NULL, part, ex->dims.own_rows,
                      ex->dims.hidden);
}

enum mw_status mw_shared_backward(struct mw_exec *ex, const struct mw_block *b,
                                  const struct mw_block_fwd *f,
                                  struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_pair p = shared_pair(ex, b, f, k);
    const void *ds = through_gate(ex, f, k, dy);
    if (d->has_shared_gate) {
        ops->linear_bwd_input(ex->dev, ex->tmp, k->moe.shared_dlogit,
                              b->shared_gate.w, d->own_rows, 1, d->hidden);
        add_to(ex, k->dn2, ex->tmp);
    }
    MW_TRY(mw_pair_backward(ex, &p, ds, ex->moe_near));
    add_to(ex, k->dn2, ex->moe_near);
    return MW_OK;
}

enum mw_status mw_shared_weight(struct mw_exec *ex, const struct mw_block *b,
                                const struct mw_block_fwd *f,
                                const struct mw_block_bwd *k, const void *dy)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_pair p = shared_pair(ex, b, f, k);
    if (b->shared_gate.g) {
        ex->dev->ops->linear_bwd_weight(ex->dev, b->shared_gate.g, NULL,
                                        k->moe.shared_dlogit, f->n2,
                                        d->own_rows, 1, d->hidden);
    }
    dy = d->has_shared_gate ? k->moe.shared_dy : dy;
    return mw_pair_weight(ex, &p, f->n2, dy);
}
