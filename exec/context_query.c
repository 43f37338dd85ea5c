/*
 * Context parallelism with queries passed round a ring (Yang et al., Context
 * Parallelism for Scalable Million-Token Inference, 2024, section 3.3): keys
 * and values stay where they are, and n blocks of queries pass by, zigzag as in
 * context_ring.c.
 *
 *   forward    in step s the queries of rank c = r - s are here and meet the
 * own keys; an all-to-all then brings each rank the n partial outputs of its
 * queries, with their logs of sums, which it merges backward   (the paper
 * serves only: the same turned round) queries pass by with the gradient of
 * their output, the log of their sum and D = rowsum(dO O); gradients of keys
 * and values add up at home, that of the queries goes along and is home after n
 * moves
 *
 * On the host alone: a GPU's kernel makes D itself from an output that is not
 * here.
 */
#include "exec/context_int.h"

/* Of ex->cp_mem: own keys and values; the block at hand; gradients; partial
 * outputs and logs of sums made here, and those that came. */
enum { KV, BLOCK, BLOCK_NEXT, DKV, DQ, DQ_NEXT, PART, PART_BACK };
enum { TAG_Q, TAG_DQ };

static size_t q_elems(const struct mw_exec *ex)
{
    return (size_t)ex->cp_set.rows * (size_t)ex->cp_set.q_width;
}

/* A number for each row and head. */
static size_t row_elems(const struct mw_exec *ex)
{
    return (size_t)ex->cp_set.rows * (size_t)ex->cp_set.n_heads;
}

static size_t part_elems(const struct mw_exec *ex)
{
    return q_elems(ex) + row_elems(ex);
}

/* Queries, gradient of the output, logs of sums, D. */
static size_t block_elems(const struct mw_exec *ex)
{
    return 2 * q_elems(ex) + 2 * row_elems(ex);
}

static void copy_q(struct mw_exec *ex, void *block, const void *q, int ld,
                   bool is_out)
{
    size_t el = ex->dev->elem_bytes, width = (size_t)ex->cp_set.q_width;
    struct mw_dev_rows own = {(void *)(uintptr_t)q, (size_t)ld * el};
    struct mw_dev_rows packed = {block, width * el};
    ex->dev->ops->copy_rows(ex->dev, is_out ? own : packed,
                            is_out ? packed : own, ex->cp_set.rows, width * el);
}

/* Sequence s: the visitor's queries that meet own keys, and these. */
static struct mw_dev_attention arguments(const struct mw_exec *ex,
                                         const struct mw_dev_attention *a,
                                         const struct mw_meeting *m, int s)
{
    const struct mw_cp_set *d = &ex->cp_set;
    int in_rank = s * 2 * d->piece, row = in_rank + m->row;
    size_t half = (size_t)d->kv_width / 2;
    struct mw_dev_attention one = *a;
    one.n_seqs = 1;
    one.seq = m->n_keys;
    one.ld_q = d->q_width;
    one.ld_kv = d->kv_width;
    one.q = mw_context_row(ex, ex->cp_mem[BLOCK], row, d->q_width);
    one.k = mw_context_row(ex, ex->cp_mem[KV], in_rank, d->kv_width);
    one.v = mw_dev_at(ex->dev, one.k, half);
    return one;
}

/* ---- forward --------------------------------------------------------------
 */
static float *part_of(const struct mw_exec *ex, int which, int set)
{
    return (float *)ex->cp_mem[which] + (size_t)set * part_elems(ex);
}

static void step_forward(struct mw_exec *ex, const struct mw_dev_attention *a,
                         int step)
{
    int visitor = mw_context_visitor(ex, step);
    const struct mw_meeting m = mw_context_meet(ex, visitor, ex->cp_set.index);
    const struct mw_dev_queries own = {
        .first = m.first, .n = m.n_queries, .ld_lse = ex->cp_set.rows};
    float *part = part_of(ex, PART, visitor);
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        struct mw_dev_attention one = arguments(ex, a, &m, s);
        int row = s * 2 * ex->cp_set.piece + m.row;
        one.out = mw_context_row(ex, part, row, ex->cp_set.q_width);
        one.lse = part + q_elems(ex) + row;
        ex->dev->ops->attention_part_fwd(ex->dev, &one, &own);
    }
}

static enum mw_status bring_parts(struct mw_exec *ex)
{
    struct mw_comm *ring = ex->cp_ring;
    size_t n = part_elems(ex);
    const struct mw_rec_event e = mw_context_event(
        ex, "cp_o", MW_ALL_TO_ALL, n * (size_t)ex->cp_set.n_sets);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st = ring->ops->all_to_all(
        ring, ex->cp_mem[PART], ex->cp_mem[PART_BACK], n, ex->elem, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* What the keys of set k gave the own queries. */
static void merge_part(struct mw_exec *ex, const struct mw_dev_attention *a,
                       int k)
{
    const struct mw_cp_set *d = &ex->cp_set;
    const struct mw_meeting m = mw_context_meet(ex, d->index, k);
    float *part = part_of(ex, PART_BACK, k);
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        int row = s * 2 * d->piece + m.row;
        const struct mw_dev_merge one = {
            .rows = m.n_queries,
            .n_heads = d->n_heads,
            .head_dim = ex->dims.head_dim,
            .ld_lse = d->rows,
            .out = mw_context_row(ex, a->out, row, d->q_width),
            .lse = a->lse + row,
            .part = mw_context_row(ex, part, row, d->q_width),
            .part_lse = part + q_elems(ex) + row};
        ex->dev->ops->attention_merge(ex->dev, &one);
    }
}

enum mw_status mw_query_forward(struct mw_exec *ex,
                                const struct mw_dev_attention *a)
{
    const struct mw_cp_set *d = &ex->cp_set;
    const struct mw_dev_ops *ops = ex->dev->ops;
    mw_context_pack(ex, ex->cp_mem[KV], a->k, a->v, a->ld_kv, false);
    copy_q(ex, ex->cp_mem[BLOCK], a->q, a->ld_q, false);
    for (int step = 0; step < d->n_sets; step++) {
        step_forward(ex, a, step);
        if (step + 1 < d->n_sets) {
            MW_TRY(mw_context_pass_on(ex, BLOCK, q_elems(ex), "cp_q", TAG_Q));
        }
    }
    MW_TRY(bring_parts(ex));
    float *own = part_of(ex, PART_BACK, d->index);
    ops->copy(ex->dev, a->out, own, q_elems(ex) * sizeof *own);
    ops->copy(ex->dev, a->lse, own + q_elems(ex), row_elems(ex) * sizeof *own);
    for (int i = 1; i < d->n_sets; i++) {
        merge_part(ex, a, mw_context_visitor(ex, i));
    }
    return MW_OK;
}

/* ---- backward -------------------------------------------------------------
 */
/* Where the parts of the block at hand are. */
struct block {
    float *dout, *lse, *dots;
};

static struct block block_of(const struct mw_exec *ex)
{
    float *q = ex->cp_mem[BLOCK], *dout = q + q_elems(ex);
    float *lse = dout + q_elems(ex);
    return (struct block){dout, lse, lse + row_elems(ex)};
}

static void make_block(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    struct block b = block_of(ex);
    const struct mw_dev_queries own = {.n = ex->cp_set.rows,
                                       .ld_lse = ex->cp_set.rows};
    copy_q(ex, ex->cp_mem[BLOCK], a->q, a->ld_q, false);
    ops->copy(ex->dev, b.dout, a->dout, q_elems(ex) * sizeof(float));
    ops->copy(ex->dev, b.lse, a->lse, row_elems(ex) * sizeof(float));
    ops->attention_dots(ex->dev, a, &own, b.dots);
}

static void step_backward(struct mw_exec *ex, const struct mw_dev_attention *a,
                          int step)
{
    const struct mw_cp_set *d = &ex->cp_set;
    const struct mw_meeting m =
        mw_context_meet(ex, mw_context_visitor(ex, step), d->index);
    struct block b = block_of(ex);
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        struct mw_dev_attention one = arguments(ex, a, &m, s);
        int in_rank = s * 2 * d->piece, row = in_rank + m.row;
        one.out = NULL;
        one.lse = b.lse + row;
        const struct mw_dev_queries own = {.first = m.first,
                                           .n = m.n_queries,
                                           .ld_lse = d->rows,
                                           .adds_dq = true,
                                           .dots = b.dots + row};
        one.dout = mw_context_row(ex, b.dout, row, d->q_width);
        one.dq = mw_context_row(ex, ex->cp_mem[DQ], row, d->q_width);
        one.dk = mw_context_row(ex, ex->cp_mem[DKV], in_rank, d->kv_width);
        one.dv = mw_dev_at(ex->dev, one.dk, (size_t)d->kv_width / 2);
        ex->dev->ops->attention_part_bwd(ex->dev, &one, &own);
    }
}

enum mw_status mw_query_backward(struct mw_exec *ex,
                                 const struct mw_dev_attention *a)
{
    int n = ex->cp_set.n_sets;
    mw_context_pack(ex, ex->cp_mem[KV], a->k, a->v, a->ld_kv, false);
    ex->dev->ops->zero(ex->dev, ex->cp_mem[DKV], ex->cp_bytes[DKV]);
    ex->dev->ops->zero(ex->dev, ex->cp_mem[DQ], ex->cp_bytes[DQ]);
    make_block(ex, a);
    for (int step = 0; step < n; step++) {
        step_backward(ex, a, step);
        if (step + 1 < n) {
            MW_TRY(
                mw_context_pass_on(ex, BLOCK, block_elems(ex), "cp_q", TAG_Q));
        }
        MW_TRY(mw_context_pass_on(ex, DQ, q_elems(ex), "cp_dq", TAG_DQ));
    }
    copy_q(ex, ex->cp_mem[DQ], a->dq, a->ld_q, true);
    mw_context_pack(ex, ex->cp_mem[DKV], a->dk, a->dv, a->ld_kv, true);
    return MW_OK;
}

void mw_query_open(struct mw_exec *ex)
{
    size_t n = (size_t)ex->cp_set.n_sets;
    size_t kv = (size_t)ex->cp_set.rows * (size_t)ex->cp_set.kv_width;
    mw_context_alloc(ex, KV, kv);
    mw_context_alloc(ex, DKV, kv);
    for (int i = 0; i < 2; i++) {
        mw_context_alloc(ex, BLOCK + i, block_elems(ex));
        mw_context_alloc(ex, DQ + i, q_elems(ex));
        mw_context_alloc(ex, PART + i, n * part_elems(ex));
    }
}
