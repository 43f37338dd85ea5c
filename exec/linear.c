/*
 * A linear layer, plain or with low-rank adapters (Hu et al., LoRA, 2021):
 *
 *   forward   y = x W^T + b      ha_i = x A_i^T        y_i += ha_i B_i^T
 *   backward  dx = dy W          dha_i = dy_i B_i      dx += dha_i A_i
 *   weight    dW = dy^T x, or    dB_i = dy_i^T ha_i    dA_i = dha_i^T x
 *
 * One pair for each of the layer's parts i (q, k and v of a fused product, gate
 * and up), whose columns of y follow each other. ha is kept from F to W, dha
 * from B to W; without the frozen layer's W there is no need for more. The sum
 * is not scaled (alpha = r) and there is no dropout.
 *
 * In a TP group the input of a column-parallel layer is whole, so A is on every
 * rank and sees the gradients of its own columns of y only: the ranks' dA are
 * added (update.c). Of a row-parallel layer that is B, and partial sums of y
 * leave the region with those of the frozen product.
 */
#include "exec/exec_int.h"

/* ---- one part ------------------------------------------------------------ */
struct part {
    int rows, n, k, rank;
    void *a, *b, *ha, *dha; /* weights and what is kept */
    float *da, *db;
};

static struct part part_at(const struct mw_exec *ex, const struct mw_product *p,
                           int i)
{
    const struct mw_linear *l = p->linear;
    struct part q = {.rows = p->rows,
                     .n = p->n / l->n_outer,
                     .k = p->k,
                     .rank = ex->dims.lora_rank};
    size_t at = (size_t)i * (size_t)q.rank;
    size_t at_a = at * (size_t)q.k, at_b = at * (size_t)q.n;
    size_t at_h = at * (size_t)q.rows;
    q.a = mw_dev_at(ex->dev, l->lora_a.w, at_a);
    q.b = mw_dev_at(ex->dev, l->lora_b.w, at_b);
    q.ha = mw_dev_at(ex->dev, p->ha, at_h);
    q.dha = p->dha ? mw_dev_at(ex->dev, p->dha, at_h) : NULL;
    q.da = l->lora_a.g + at_a;
    q.db = l->lora_b.g + at_b;
    return q;
}

/* Columns of part i in rows of p->n. */
static struct mw_dev_rows columns(const struct mw_exec *ex,
                                  const struct mw_product *p, const void *y,
                                  int i)
{
    size_t n = (size_t)p->n / (size_t)p->linear->n_outer;
    return (struct mw_dev_rows){mw_dev_at(ex->dev, y, (size_t)i * n),
                                (size_t)p->n * ex->dev->elem_bytes};
}

/* The same, one row after another. */
static const void *gathered(struct mw_exec *ex, const struct mw_product *p,
                            const void *dy, int i)
{
    size_t bytes =
        (size_t)p->n / (size_t)p->linear->n_outer * ex->dev->elem_bytes;
    if (p->linear->n_outer == 1) {
        return dy;
    }
    struct mw_dev_rows to = {ex->lora_tmp[0], bytes};
    ex->dev->ops->copy_rows(ex->dev, to, columns(ex, p, dy, i), p->rows, bytes);
    return ex->lora_tmp[0];
}

/* ---- passes -------------------------------------------------------------- */
static void adapters_forward(struct mw_exec *ex, const struct mw_product *p,
                             void *y, const void *x)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    for (int i = 0; i < p->linear->n_outer; i++) {
        struct part q = part_at(ex, p, i);
        struct mw_dev_rows sum = {ex->lora_tmp[0],
                                  (size_t)q.n * ex->dev->elem_bytes};
        ops->linear_fwd(ex->dev, q.ha, x, q.a, NULL, q.rows, q.rank, q.k);
        ops->linear_fwd(ex->dev, sum.p, q.ha, q.b, NULL, q.rows, q.n, q.rank);
        ops->add_rows(ex->dev, columns(ex, p, y, i), sum, q.rows, q.n);
    }
}

void mw_linear_forward(struct mw_exec *ex, const struct mw_product *p, void *y,
                       const void *x, const void *bias)
{
    ex->dev->ops->linear_fwd(ex->dev, y, x, p->linear->weight.w, bias, p->rows,
                             p->n, p->k);
    if (p->linear->lora_a.w) {
        adapters_forward(ex, p, y, x);
    }
}

static void adapters_backward(struct mw_exec *ex, const struct mw_product *p,
                              void *dx, const void *dy)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    for (int i = 0; i < p->linear->n_outer; i++) {
        struct part q = part_at(ex, p, i);
        const void *own = gathered(ex, p, dy, i);
        ops->linear_bwd_input(ex->dev, q.dha, own, q.b, q.rows, q.n, q.rank);
        ops->linear_bwd_input(ex->dev, ex->lora_tmp[1], q.dha, q.a, q.rows,
                              q.rank, q.k);
        ops->add(ex->dev, dx, dx, NULL, ex->lora_tmp[1], q.rows, q.k);
    }
}

void mw_linear_backward(struct mw_exec *ex, const struct mw_product *p,
                        void *dx, const void *dy)
{
    ex->dev->ops->linear_bwd_input(ex->dev, dx, dy, p->linear->weight.w,
                                   p->rows, p->n, p->k);
    if (p->linear->lora_a.w) {
        adapters_backward(ex, p, dx, dy);
    }
}

void mw_linear_weight(struct mw_exec *ex, const struct mw_product *p,
                      const void *dy, const void *x)
{
    const struct mw_linear *l = p->linear;
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (l->weight.g) {
        ops->linear_bwd_weight(ex->dev, l->weight.g,
                               p->bias_dy ? NULL : l->bias.g, dy, x, p->rows,
                               p->n, p->k);
    }
    if (p->bias_dy && l->bias.g) {
        ops->bias_bwd(ex->dev, l->bias.g, p->bias_dy, p->bias_rows, p->n);
    }
    for (int i = 0; l->lora_a.w && i < l->n_outer; i++) {
        struct part q = part_at(ex, p, i);
        ops->linear_bwd_weight(ex->dev, q.db, NULL, gathered(ex, p, dy, i),
                               q.ha, q.rows, q.n, q.rank);
        ops->linear_bwd_weight(ex->dev, q.da, NULL, q.dha, x, q.rows, q.rank,
                               q.k);
    }
}

/* ---- memory -------------------------------------------------------------- */
static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

void mw_linear_open(struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    size_t width = max_size((size_t)d->hidden, (size_t)d->ffn);
    if (d->lora_rank == 0) {
        return;
    }
    width = max_size(width, (size_t)d->q_width);
    width = max_size(width, (size_t)d->shared_ffn);
    width = max_size(width, (size_t)d->moe_ffn);
    ex->lora_tmp_bytes = max_size((size_t)d->rows, (size_t)d->moe_rows) *
                         width * ex->dev->elem_bytes;
    for (int i = 0; i < 2; i++) {
        ex->lora_tmp[i] = ex->dev->ops->alloc(ex->dev, ex->lora_tmp_bytes);
    }
}

void mw_linear_close(struct mw_exec *ex)
{
    for (int i = 0; i < 2 && ex->lora_tmp[i]; i++) {
        ex->dev->ops->free(ex->dev, ex->lora_tmp[i], ex->lora_tmp_bytes);
    }
}
