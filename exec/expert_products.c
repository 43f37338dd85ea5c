/*
 * The products of the own experts of a mixture on rows in the order of experts
 * (experts.c): of all of them in one call of the device's table, or, where they
 * have adapters (linear.c), one after the other.
 *
 *   forward   h1 = in W1^T; g = act(h1); out = g W2^T
 *   backward  dg = dy W2; dh1 = act'(dg); dx = dh1 W1
 *   weight    dW2 = dy^T g, dW1 = dh1^T in
 */
#include "exec/exec_int.h"

int mw_expert_fc1_width(const struct mw_dims *d)
{
    return d->is_gated ? 2 * d->moe_ffn : d->moe_ffn;
}

/* One own expert's rows and matrices. */
struct expert {
    int rows;
    size_t first; /* row in expert order */
    struct mw_linear fc1, fc2;
    struct mw_product one, two;
};

static struct expert expert_at(const struct mw_moe_fwd *f, int i)
{
    return (struct expert){.rows = f->host_first[i + 1] - f->host_first[i],
                           .first = (size_t)f->host_first[i]};
}

static struct mw_tensor tensor_at(const struct mw_exec *ex,
                                  const struct mw_tensor *all, int i, size_t n)
{
    size_t at = (size_t)i * n;
    return (struct mw_tensor){all->w ? mw_dev_at(ex->dev, all->w, at) : NULL,
                              all->g ? all->g + at : NULL};
}

static struct mw_linear linear_at(const struct mw_exec *ex,
                                  const struct mw_linear *all, int i, int n,
                                  int k)
{
    size_t rank = (size_t)ex->dims.lora_rank * (size_t)all->n_outer;
    return (struct mw_linear){
        .weight = tensor_at(ex, &all->weight, i, (size_t)n * (size_t)k),
        .lora_a = tensor_at(ex, &all->lora_a, i, rank * (size_t)k),
        .lora_b = tensor_at(ex, &all->lora_b, i,
                            (size_t)ex->dims.lora_rank * (size_t)n),
        .n_outer = all->n_outer};
}

/* The two products of expert i, with its matrices and its rows of what adapters
 * keep. */
static void bind_expert(const struct mw_exec *ex, const struct mw_block *b,
                        const struct mw_block_fwd *f,
                        const struct mw_block_bwd *k, int i, struct expert *e)
{
    const struct mw_dims *d = &ex->dims;
    int w1 = mw_expert_fc1_width(d);
    size_t at = e->first * (size_t)d->lora_rank;
    size_t at_1 = at * (size_t)b->experts_1.n_outer;
    e->fc1 = linear_at(ex, &b->experts_1, i, w1, d->hidden);
    e->fc2 = linear_at(ex, &b->experts_2, i, d->hidden, d->moe_ffn);
    e->one = (struct mw_product){
        .linear = &e->fc1, .rows = e->rows, .n = w1, .k = d->hidden};
    e->two = (struct mw_product){
        .linear = &e->fc2, .rows = e->rows, .n = d->hidden, .k = d->moe_ffn};
    if (e->fc1.lora_a.w) {
        e->one.ha = mw_dev_at(ex->dev, f->ha[MW_LINEAR_EXPERT_1], at_1);
        e->two.ha = mw_dev_at(ex->dev, f->ha[MW_LINEAR_EXPERT_2], at);
    }
    if (e->fc1.lora_a.w && k) {
        e->one.dha = mw_dev_at(ex->dev, k->dha[MW_LINEAR_EXPERT_1], at_1);
        e->two.dha = mw_dev_at(ex->dev, k->dha[MW_LINEAR_EXPERT_2], at);
    }
}

static void *rows_at(const struct mw_exec *ex, const void *p, size_t row,
                     int width)
{
    return mw_dev_at(ex->dev, p, row * (size_t)width);
}

/* All own experts at once. */
static struct mw_dev_groups groups(const struct mw_exec *ex,
                                   const struct mw_moe_fwd *f, int n, int k)
{
    return (struct mw_dev_groups){.n_groups = ex->dims.n_local,
                                  .n = n,
                                  .k = k,
                                  .first = f->first,
                                  .host_first = f->host_first};
}

static void run_groups(struct mw_exec *ex, const struct mw_block *b,
                       const struct mw_moe_fwd *f, void *out)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_dev_groups one =
        groups(ex, f, mw_expert_fc1_width(d), d->hidden);
    const struct mw_dev_groups two = groups(ex, f, d->hidden, d->moe_ffn);
    int rows = f->host_first[d->n_local];
    if (rows == 0) {
        return;
    }
    ops->experts->groups_fwd(ex->dev, &one, f->h1, f->in,
                             b->experts_1.weight.w);
    ops->act_fwd(ex->dev, d->is_gated, f->g, f->h1, rows, d->moe_ffn);
    ops->experts->groups_fwd(ex->dev, &two, out, f->g, b->experts_2.weight.w);
}

/* With adapters: one after the other. */
static void run_adapted(struct mw_exec *ex, const struct mw_block *b,
                        const struct mw_block_fwd *block, void *out)
{
    const struct mw_moe_fwd *f = &block->moe;
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    int w1 = mw_expert_fc1_width(d);
    for (int i = 0; i < d->n_local; i++) {
        struct expert e = expert_at(f, i);
        void *h1 = rows_at(ex, f->h1, e.first, w1);
        void *g = rows_at(ex, f->g, e.first, d->moe_ffn);
        if (e.rows == 0) {
            continue;
        }
        bind_expert(ex, b, block, NULL, i, &e);
        mw_linear_forward(ex, &e.one, h1,
                          rows_at(ex, f->in, e.first, d->hidden), NULL);
        ops->act_fwd(ex->dev, d->is_gated, g, h1, e.rows, d->moe_ffn);
        mw_linear_forward(ex, &e.two, rows_at(ex, out, e.first, d->hidden), g,
                          NULL);
    }
}

void mw_expert_products_forward(struct mw_exec *ex, const struct mw_block *b,
                                const struct mw_block_fwd *f, void *out)
{
    if (b->experts_1.lora_a.w) {
        run_adapted(ex, b, f, out);
    } else {
        run_groups(ex, b, &f->moe, out);
    }
}

/* ---- backward ----------------------------------------------------------- */
static void run_groups_backward(struct mw_exec *ex, const struct mw_block *b,
                                const struct mw_moe_fwd *f,
                                const struct mw_moe_bwd *k, void *dx)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_dev_groups one =
        groups(ex, f, mw_expert_fc1_width(d), d->hidden);
    const struct mw_dev_groups two = groups(ex, f, d->hidden, d->moe_ffn);
    int rows = f->host_first[d->n_local];
    if (rows == 0) {
        return;
    }
    ops->experts->groups_bwd_input(ex->dev, &two, ex->moe_dg, k->dy,
                                   b->experts_2.weight.w);
    ops->act_bwd(ex->dev, d->is_gated, k->dh1, ex->moe_dg, f->h1, rows,
                 d->moe_ffn);
    ops->experts->groups_bwd_input(ex->dev, &one, dx, k->dh1,
                                   b->experts_1.weight.w);
}

static void run_adapted_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *block,
                                 const struct mw_block_bwd *kept, void *dx)
{
    const struct mw_moe_fwd *f = &block->moe;
    const struct mw_moe_bwd *k = &kept->moe;
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_ops *ops = ex->dev->ops;
    int w1 = mw_expert_fc1_width(d);
    for (int i = 0; i < d->n_local; i++) {
        struct expert e = expert_at(f, i);
        void *dh1 = rows_at(ex, k->dh1, e.first, w1);
        if (e.rows == 0) {
            continue;
        }
        bind_expert(ex, b, block, kept, i, &e);
        mw_linear_backward(ex, &e.two, ex->moe_dg,
                           rows_at(ex, k->dy, e.first, d->hidden));
        ops->act_bwd(ex->dev, d->is_gated, dh1, ex->moe_dg,
                     rows_at(ex, f->h1, e.first, w1), e.rows, d->moe_ffn);
        mw_linear_backward(ex, &e.one, rows_at(ex, dx, e.first, d->hidden),
                           dh1);
    }
}

void mw_expert_products_backward(struct mw_exec *ex, const struct mw_block *b,
                                 const struct mw_block_fwd *f,
                                 const struct mw_block_bwd *k, void *dx)
{
    if (b->experts_1.lora_a.w) {
        run_adapted_backward(ex, b, f, k, dx);
    } else {
        run_groups_backward(ex, b, &f->moe, &k->moe, dx);
    }
}

/* ---- weights --------------------------------------------------------------
 */
static void run_groups_weight(struct mw_exec *ex, const struct mw_block *b,
                              const struct mw_moe_fwd *f,
                              const struct mw_moe_bwd *k)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev_expert_ops *ops = ex->dev->ops->experts;
    const struct mw_dev_groups one =
        groups(ex, f, mw_expert_fc1_width(d), d->hidden);
    const struct mw_dev_groups two = groups(ex, f, d->hidden, d->moe_ffn);
    if (b->experts_1.weight.g && f->host_first[d->n_local] > 0) {
        ops->groups_bwd_weight(ex->dev, &two, b->experts_2.weight.g, k->dy,
                               f->g);
        ops->groups_bwd_weight(ex->dev, &one, b->experts_1.weight.g, k->dh1,
                               f->in);
    }
}

static void run_adapted_weight(struct mw_exec *ex, const struct mw_block *b,
                               const struct mw_block_fwd *f,
                               const struct mw_block_bwd *k)
{
    const struct mw_dims *d = &ex->dims;
    int w1 = mw_expert_fc1_width(d);
    for (int i = 0; i < d->n_local; i++) {
        struct expert e = expert_at(&f->moe, i);
        if (e.rows == 0) {
            continue;
        }
        bind_expert(ex, b, f, k, i, &e);
        mw_linear_weight(ex, &e.two, rows_at(ex, k->moe.dy, e.first, d->hidden),
                         rows_at(ex, f->moe.g, e.first, d->moe_ffn));
        mw_linear_weight(ex, &e.one, rows_at(ex, k->moe.dh1, e.first, w1),
                         rows_at(ex, f->moe.in, e.first, d->hidden));
    }
}

void mw_expert_products_weight(struct mw_exec *ex, const struct mw_block *b,
                               const struct mw_block_fwd *f,
                               const struct mw_block_bwd *k)
{
    if (b->experts_1.lora_a.w) {
        run_adapted_weight(ex, b, f, k);
    } else {
        run_groups_weight(ex, b, &f->moe, &k->moe);
    }
}
