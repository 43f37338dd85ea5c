/*
 * One call of attention over part of a sequence, as context parallelism makes
 * it (exec/context.c): own keys and values are packed, those of all ranks put
 * in the order of the sequence, and each of the two pieces of every sequence
 * attends to what comes before its end; backward the same again, then the
 * gradients on the way back. The exchange between ranks is not in it: it has
 * curves of its own. Rank 0's pieces stand for all, since the zigzag gives
 * every rank the same number of pairs.
 */
#include "exec/bench_int.h"

struct parts {
    const struct mw_dev_ops *ops;
    struct mw_dev *dev;
    int n_seqs, seq, len, n_cp; /* a piece has `len` of `seq` tokens */
    int rows;                   /* own, of all sequences */
    size_t width;               /* of keys and values together */
    float *blocks, *ordered;    /* [n_seqs seq][width]; what comes */
    float *back;                /* the same on the way back */
};

static void copy(const struct parts *p, float *to, const float *from, size_t n)
{
    p->ops->copy(p->dev, to, from, n * sizeof *to);
}

/* Own rows into, or out of, their block. */
static void pack(const struct parts *p, const struct mw_dev_attention *a,
                 float *k, float *v, bool is_out)
{
    size_t half = p->width / 2;
    for (int r = 0; r < p->rows; r++) {
        size_t at = (size_t)r * (size_t)a->ld_kv;
        float *b = (is_out ? p->back : p->blocks) + (size_t)r * p->width;
        copy(p, is_out ? k + at : b, is_out ? b : k + at, half);
        copy(p, is_out ? v + at : b + half, is_out ? b + half : v + at, half);
    }
}

/* Blocks of ranks into the order of sequences, or back: each once. */
static void reorder(const struct parts *p, bool is_back)
{
    size_t n = (size_t)p->len * p->width;
    for (int i = 0; i < 2 * p->n_cp * p->n_seqs; i++) {
        float *b = p->ordered + (size_t)i * n;
        if (is_back) {
            copy(p, p->back + (size_t)i * n, b, n);
        } else {
            copy(p, b, p->blocks + (size_t)i * n, n);
        }
    }
}

static void core(const struct parts *p, const struct mw_dev_attention *a,
                 float *dordered)
{
    for (int i = 0; i < 2 * p->n_seqs; i++) {
        int place = i % 2 == 0 ? 0 : 2 * p->n_cp - 1, row = i * p->len;
        size_t key = (size_t)(i / 2 * p->seq) * p->width;
        size_t q_at = (size_t)row * (size_t)a->ld_q;
        size_t out_at = (size_t)row * (size_t)(a->n_heads * a->head_dim);
        const struct mw_dev_queries own = {
            .first = place * p->len, .n = p->len, .ld_lse = p->rows};
        struct mw_dev_attention one = *a;
        one.n_seqs = 1;
        one.seq = p->seq;
        one.ld_kv = (int)p->width;
        one.q = (const float *)a->q + q_at;
        one.k = p->ordered + key;
        one.v = p->ordered + key + p->width / 2;
        one.out = (float *)a->out + out_at;
        one.lse = a->lse + row;
        if (dordered == NULL) {
            p->ops->attention_part_fwd(p->dev, &one, &own);
            continue;
        }
        one.dout = (const float *)a->dout + out_at;
        one.dq = (float *)a->dq + q_at;
        one.dk = dordered + key;
        one.dv = dordered + key + p->width / 2;
        p->ops->attention_part_bwd(p->dev, &one, &own);
    }
}

static struct parts parts_of(struct mw_bench *b, const struct mw_bench_op *item)
{
    const struct mw_op *op = &item->op;
    struct parts p = {.ops = b->dev->ops,
                      .dev = b->dev,
                      .n_seqs = item->n_seqs,
                      .seq = (int)op->n,
                      .len = (int)op->m / 2,
                      .n_cp = (int)(op->n / op->m),
                      .rows = (int)op->m * item->n_seqs,
                      .width = mw_area(2 * op->kv_batch / item->n_seqs, op->k)};
    size_t all = (size_t)(p.n_seqs * p.seq) * p.width;
    /* Others' keys have just come: values in range, as own ones are. */
    p.blocks = mw_pool_next(&b->fresh, all);
    p.ordered = mw_pool_next(&b->fresh_out, all);
    p.back = mw_pool_next(&b->fresh_out, all);
    return p;
}

void mw_bench_context(struct mw_bench *b, const struct mw_bench_op *item,
                      const struct mw_dev_attention *a)
{
    struct parts p = parts_of(b, item);
    bool is_forward = item->op.pass == MW_PASS_F;
    size_t all = (size_t)(p.n_seqs * p.seq) * p.width;
    pack(&p, a, (float *)(uintptr_t)a->k, (float *)(uintptr_t)a->v, false);
    reorder(&p, false);
    if (is_forward) {
        core(&p, a, NULL);
        return;
    }
    float *dordered = mw_pool_next(&b->fresh_out, all);
    p.ops->zero(p.dev, dordered, all * sizeof *dordered);
    core(&p, a, dordered);
    p.ordered = dordered;
    reorder(&p, true);
    pack(&p, a, a->dk, a->dv, true);
}
