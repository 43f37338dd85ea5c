/*
 * One call of what a mixture of experts does beside its products, as
 * exec/experts.c does it: choosing experts, and moving rows to them and back.
 * sim/model lists two permutations a layer and direction, so one call of the
 * benchmark is half of
 *
 *   forward    gather, gather by expert | gather back, weighted sum
 *   backward   its gradient, gather by expert | gather back, sum
 *
 * in turns. Counting sorts and the exchange between ranks are not in it.
 */
#include "exec/bench_int.h"

/* Rows k times over, dealt out by a fixed permutation. */
static void deal(int32_t *index, int n, int n_rows)
{
    for (int i = 0; i < n; i++) {
        index[i] = (int32_t)((int64_t)i * 7919 % n_rows);
    }
}

void mw_bench_experts_open(struct mw_bench *b, int64_t tokens)
{
    const struct mw_moe *moe = &b->scenario->model.moe;
    size_t n = (size_t)tokens * (size_t)(moe->top_k > 0 ? moe->top_k : 1);
    b->row = mw_calloc(n + 1, sizeof *b->row);
    b->choice = mw_calloc(n + 1, sizeof *b->choice);
}

void mw_bench_experts_close(struct mw_bench *b)
{
    mw_free(b->row);
    mw_free(b->choice);
}

void mw_bench_router(struct mw_bench *b, const struct mw_op *op)
{
    const struct mw_dev_expert_ops *e = b->dev->ops->experts;
    int rows = (int)op->m, n = (int)op->n, k = b->scenario->model.moe.top_k;
    size_t all = mw_area(rows, n), chosen = mw_area(rows, k);
    float *p = mw_pool_next(&b->fresh_out, all);
    float *weight = mw_pool_next(&b->kept_out, chosen);
    if (op->pass == MW_PASS_F) {
        b->dev->ops->copy(b->dev, p, mw_pool_next(&b->fresh, all),
                          all * sizeof *p);
        e->route_fwd(b->dev, p, b->choice, weight, rows, n, k);
        return;
    }
    for (size_t i = 0; i < chosen; i++) {
        b->choice[i] = (int32_t)(i % (size_t)n);
    }
    e->route_bwd(b->dev, p, mw_pool_next(&b->fresh, chosen),
                 mw_pool_next(&b->kept, all), b->choice,
                 mw_pool_next(&b->kept, chosen),
                 mw_pool_next(&b->kept, (size_t)n), rows, n, k);
}

/* To the experts: half a permutation pair. */
static void go(struct mw_bench *b, const struct mw_op *op, int k)
{
    const struct mw_dev_expert_ops *e = b->dev->ops->experts;
    int rows = (int)op->m, width = (int)op->n;
    size_t sent = mw_area(rows, k) * (size_t)width;
    float *near = mw_pool_next(&b->fresh_out, sent);
    if (op->pass == MW_PASS_F) {
        deal(b->row, rows * k, rows);
        e->gather(b->dev, near, mw_pool_next(&b->fresh, mw_area(rows, width)),
                  b->row, rows * k, width);
    } else {
        deal(b->row, rows * k, rows * k);
        e->combine_bwd(
            b->dev, near, mw_pool_next(&b->fresh_out, mw_area(rows, k)),
            mw_pool_next(&b->fresh, mw_area(rows, width)),
            mw_pool_next(&b->kept, sent), b->row,
            mw_pool_next(&b->kept, mw_area(rows, k)), rows, k, width);
    }
    deal(b->row, rows * k, rows * k);
    e->gather(b->dev, mw_pool_next(&b->kept_out, sent), near, b->row, rows * k,
              width);
}

/* And back. */
static void come(struct mw_bench *b, const struct mw_op *op, int k)
{
    const struct mw_dev_expert_ops *e = b->dev->ops->experts;
    int rows = (int)op->m, width = (int)op->n;
    size_t sent = mw_area(rows, k) * (size_t)width;
    bool is_forward = op->pass == MW_PASS_F;
    float *far = mw_pool_next(is_forward ? &b->kept_out : &b->fresh_out, sent);
    deal(b->row, rows * k, rows * k);
    e->gather(b->dev, far, mw_pool_next(&b->fresh, sent), b->row, rows * k,
              width);
    e->combine(b->dev, mw_pool_next(&b->fresh_out, mw_area(rows, width)), far,
               b->row,
               is_forward ? mw_pool_next(&b->fresh, mw_area(rows, k)) : NULL,
               is_forward ? mw_pool_next(&b->kept, mw_area(rows, width)) : NULL,
               rows, k, width);
}

void mw_bench_permute(struct mw_bench *b, const struct mw_op *op)
{
    int k = b->scenario->model.moe.top_k;
    b->is_coming = !b->is_coming;
    if (b->is_coming) {
        come(b, op, k);
    } else {
        go(b, op, k);
    }
}
