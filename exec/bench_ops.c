/*
 * One call of each kind of operator, as the executor makes it: same entry of
 * the device table, same layout of operands. Operands come from the pool that
 * says how a step finds them, kept or fresh; what is written, from another than
 * what is read, so that values stay in range however often the loop goes round.
 */
#include "exec/bench_int.h"

#include <string.h>

static void call_gemm(struct mw_bench *b, const struct mw_op *op)
{
    const struct mw_model *model = &b->scenario->model;
    const struct mw_dev_ops *d = b->dev->ops;
    int m = (int)op->m, n = (int)op->n, k = (int)op->k;
    /* Row-parallel layers add their bias after the reduction. */
    bool is_row = strcmp(op->name, "proj") == 0 || strcmp(op->name, "fc2") == 0;
    bool has_bias = model->bias_mlp && strcmp(op->name, "head") != 0 &&
                    strcmp(op->name, "router") != 0 &&
                    strncmp(op->name, "expert_", 7) != 0 &&
                    strncmp(op->name, "lora_", 5) != 0;
    float *bias =
        has_bias ? mw_pool_next(&b->kept, mw_area(m > n ? m : n, 1)) : NULL;
    if (op->pass == MW_PASS_F) {
        d->linear_fwd(b->dev, mw_pool_next(&b->kept_out, mw_area(m, n)),
                      mw_pool_next(&b->fresh, mw_area(m, k)),
                      mw_pool_next(&b->kept, mw_area(n, k)),
                      is_row ? NULL : bias, m, n, k);
    } else if (op->pass == MW_PASS_B) {
        /* dX[m, n] = dY[m, k] W[k, n] */
        d->linear_bwd_input(b->dev, mw_pool_next(&b->fresh_out, mw_area(m, n)),
                            mw_pool_next(&b->fresh, mw_area(m, k)),
                            mw_pool_next(&b->kept, mw_area(k, n)), m, k, n);
    } else {
        /* dW[m, n] += dY[k, m]^T X[k, n] */
        float *db = has_bias ? mw_pool_next(&b->kept_out, mw_area(m, 1)) : NULL;
        d->linear_bwd_weight(b->dev, mw_pool_next(&b->kept_out, mw_area(m, n)),
                             db, mw_pool_next(&b->kept, mw_area(k, m)),
                             mw_pool_next(&b->kept, mw_area(k, n)), k, m, n);
    }
}

static void call_attention(struct mw_bench *b, const struct mw_bench_op *item)
{
    const struct mw_op *op = &item->op;
    int heads = (int)op->batch / item->n_seqs;
    int kv = (int)op->kv_batch / item->n_seqs, dim = (int)op->k;
    bool is_fused = heads == kv, is_forward = op->pass == MW_PASS_F;
    int ld_q = is_fused ? 3 * heads * dim : heads * dim;
    int ld_kv = is_fused ? ld_q : 2 * kv * dim;
    size_t rows = (size_t)op->m * (size_t)item->n_seqs;
    size_t n_out = rows * mw_area(heads, dim), n_lse = rows * (size_t)heads;
    struct mw_pool *saved = is_forward ? &b->kept_out : &b->kept;
    struct mw_pool *given = is_forward ? &b->fresh : &b->kept;
    float *q = mw_pool_next(given, rows * (size_t)ld_q);
    float *k =
        is_fused ? q + heads * dim : mw_pool_next(given, rows * (size_t)ld_kv);
    struct mw_dev_attention a = {.n_seqs = item->n_seqs,
                                 .seq = (int)op->m,
                                 .n_heads = heads,
                                 .n_kv_heads = kv,
                                 .head_dim = dim,
                                 .ld_q = ld_q,
                                 .ld_kv = ld_kv,
                                 .q = q,
                                 .k = k,
                                 .v = k + kv * dim,
                                 .out = mw_pool_next(saved, n_out),
                                 .lse = mw_pool_next(saved, n_lse)};
    struct mw_dev_attention whole = a;
    bool is_part = op->n > op->m;
    whole.seq = (int)op->n;
    size_t scratch =
        b->dev->ops->attention_scratch(is_part ? &whole : &a) / sizeof(float);
    a.scratch = mw_pool_next(&b->fresh_out, scratch);
    if (is_forward) {
        if (is_part) {
            mw_bench_context(b, item, &a);
        } else {
            b->dev->ops->attention_fwd(b->dev, &a);
        }
        return;
    }
    float *dq = mw_pool_next(&b->fresh_out, rows * (size_t)ld_q);
    float *dk = is_fused ? dq + heads * dim
                         : mw_pool_next(&b->fresh_out, rows * (size_t)ld_kv);
    a.dout = mw_pool_next(&b->fresh, n_out);
    a.dq = dq;
    a.dk = dk;
    a.dv = dk + kv * dim;
    if (is_part) {
        mw_bench_context(b, item, &a);
    } else {
        b->dev->ops->attention_bwd(b->dev, &a);
    }
}

static void call_norm(struct mw_bench *b, const struct mw_op *op)
{
    const struct mw_dev_ops *d = b->dev->ops;
    size_t n = mw_area(op->m, op->n), rows = (size_t)op->m;
    bool is_forward = op->pass == MW_PASS_F;
    struct mw_pool *saved = is_forward ? &b->kept_out : &b->kept;
    float *beta = b->scenario->model.bias_norm
                      ? mw_pool_next(&b->kept, (size_t)op->n)
                      : NULL;
    const struct mw_dev_norm a = {
        .kind = b->scenario->model.norm,
        .x = mw_pool_next(is_forward ? &b->fresh : &b->kept, n),
        .gamma = mw_pool_next(&b->kept, (size_t)op->n),
        .beta = beta,
        .mean = mw_pool_next(saved, rows),
        .rstd = mw_pool_next(saved, rows),
        .rows = (int)op->m,
        .width = (int)op->n};
    if (is_forward) {
        d->norm_fwd(b->dev, &a, mw_pool_next(&b->kept_out, n));
    } else if (op->pass == MW_PASS_B) {
        d->norm_bwd_input(b->dev, &a, mw_pool_next(&b->fresh_out, n),
                          mw_pool_next(&b->fresh, n));
    } else {
        float *dbeta = beta ? mw_pool_next(&b->kept_out, (size_t)op->n) : NULL;
        d->norm_bwd_param(b->dev, &a, mw_pool_next(&b->kept_out, (size_t)op->n),
                          dbeta, mw_pool_next(&b->kept, n));
    }
}

static void call_activation(struct mw_bench *b, const struct mw_op *op)
{
    bool is_gated = b->scenario->model.is_gated;
    int rows = (int)op->m, width = (int)op->n;
    size_t n = mw_area(rows, width), n_in = is_gated ? 2 * n : n;
    if (op->pass == MW_PASS_F) {
        b->dev->ops->act_fwd(b->dev, is_gated, mw_pool_next(&b->kept_out, n),
                             mw_pool_next(&b->fresh, n_in), rows, width);
    } else {
        b->dev->ops->act_bwd(b->dev, is_gated,
                             mw_pool_next(&b->fresh_out, n_in),
                             mw_pool_next(&b->fresh, n),
                             mw_pool_next(&b->kept, n_in), rows, width);
    }
}

static void call_embedding(struct mw_bench *b, const struct mw_op *op)
{
    size_t n = mw_area(op->m, op->n);
    const struct mw_dev_vocab a = {.token = b->token,
                                   .rows = (int)op->m,
                                   .width = (int)op->n,
                                   .n_local = b->scenario->model.vocab};
    size_t table = mw_area(b->scenario->model.vocab, op->n);
    if (op->pass == MW_PASS_F) {
        b->dev->ops->embedding_fwd(b->dev, &a, mw_pool_next(&b->fresh_out, n),
                                   mw_pool_next(&b->kept, table));
    } else {
        b->dev->ops->embedding_bwd(b->dev, &a,
                                   mw_pool_next(&b->kept_out, table),
                                   mw_pool_next(&b->kept, n));
    }
}

static void call_cross_entropy(struct mw_bench *b, const struct mw_op *op)
{
    const struct mw_dev_ops *d = b->dev->ops;
    size_t rows = (size_t)op->m, n = mw_area(op->m, op->n);
    bool is_forward = op->pass == MW_PASS_F;
    struct mw_pool *saved = is_forward ? &b->fresh_out : &b->fresh;
    const struct mw_dev_xent a = {.logits = mw_pool_next(&b->fresh, n),
                                  .max = mw_pool_next(saved, rows),
                                  .sum = mw_pool_next(saved, rows),
                                  .target = mw_pool_next(&b->fresh_out, rows),
                                  .label = b->token,
                                  .rows = (int)op->m,
                                  .n_local = (int)op->n};
    if (is_forward) {
        d->xent_max(b->dev, &a);
        d->xent_sum(b->dev, &a);
        (void)d->xent_loss(b->dev, &a);
    } else {
        d->xent_bwd(b->dev, &a, mw_pool_next(&b->fresh_out, n), 1e-3f);
    }
}

static void call_add(struct mw_bench *b, const struct mw_op *op)
{
    size_t n = mw_area(op->m, op->n);
    bool has_bias = b->scenario->model.bias_mlp && op->pass == MW_PASS_F;
    bool is_forward = op->pass == MW_PASS_F;
    float *bias = has_bias ? mw_pool_next(&b->kept, (size_t)op->n) : NULL;
    /* The sum forward is the next layer's kept input, and the residual lay
     * untouched while the block ran. */
    b->dev->ops->add(b->dev,
                     mw_pool_next(is_forward ? &b->kept_out : &b->fresh_out, n),
                     mw_pool_next(&b->fresh, n), bias,
                     mw_pool_next(&b->kept, n), (int)op->m, (int)op->n);
}

static void call_rotary(struct mw_bench *b, const struct mw_op *op)
{
    int dim = b->scenario->model.head_dim, heads = (int)op->n / dim;
    b->dev->ops->rotary(b->dev,
                        mw_pool_next(&b->fresh_out, mw_area(op->m, op->n)),
                        (int)op->m, (int)op->n, (int)b->scenario->workload.seq,
                        heads, dim, op->pass == MW_PASS_F ? 1 : -1);
}

/* The gradients are zeroed at the begin of the next step: part of it. */
static void call_optimizer(struct mw_bench *b, const struct mw_op *op)
{
    const struct mw_dev_adamw h = {
        .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .step = 10};
    size_t n = (size_t)op->m, at = (size_t)b->n_state;
    float *g = b->state + at;
    b->dev->ops->adamw(b->dev, &h, b->state, NULL, g, b->state + 2 * at,
                       b->state + 3 * at, n);
    b->dev->ops->zero(b->dev, g, n * sizeof *g);
}

void mw_bench_call(struct mw_bench *b, const struct mw_bench_op *item)
{
    const struct mw_op *op = &item->op;
    switch (op->kind) {
    case MW_OP_GEMM:
        call_gemm(b, op);
        break;
    case MW_OP_ATTENTION:
        call_attention(b, item);
        break;
    case MW_OP_NORM:
        call_norm(b, op);
        break;
    case MW_OP_ROTARY:
        call_rotary(b, op);
        break;
    case MW_OP_ACTIVATION:
        call_activation(b, op);
        break;
    case MW_OP_ADD:
        call_add(b, op);
        break;
    case MW_OP_EMBEDDING:
        call_embedding(b, op);
        break;
    case MW_OP_CROSS_ENTROPY:
        call_cross_entropy(b, op);
        break;
    case MW_OP_OPTIMIZER:
        call_optimizer(b, op);
        break;
    case MW_OP_ROUTER:
        mw_bench_router(b, op);
        break;
    case MW_OP_PERMUTE:
        mw_bench_permute(b, op);
        break;
    case MW_OP_SOFTMAX:
    case MW_OP_COLL:
    case MW_OP_KIND_COUNT:
        break;
    }
}
