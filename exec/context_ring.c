/*
 * Context parallelism in a ring (Liu et al., Ring Attention, 2023; zigzag as in
 * Zhu's ring-flash-attention): n steps, in step s the keys and values of rank
 * c = r - s are here. Each rank has two pieces of a sequence, an early and a
 * late one, and every step is half a square of work:
 *
 *   c = r   all own queries, causal over the own keys (the early piece comes
 *           before the late one, so the two are one causal sequence)
 *   c < r   all own queries over c's early piece; its late one is later
 *   c > r   the late queries over both pieces of c; all is later than the
 *           early ones
 *
 * Forward adds up parts of the softmax by their logs of sums. Backward passes
 * the same blocks, and with each the gradient at it: every rank adds its part,
 * and after n steps it is at home. Blocks move between steps: communication is
 * not hidden behind the core, as the simulator prices it on a CPU.
 */
#include "exec/context_int.h"

/* Of ex->cp_mem. */
enum { KV, KV_NEXT, DKV, DKV_NEXT, OUT, LSE };
enum { TAG_KV, TAG_DKV };

/* ---- one step ------------------------------------------------------------ */
struct mw_meeting mw_context_meet(const struct mw_exec *ex, int queries,
                                  int keys)
{
    int len = ex->cp_set.piece;
    if (keys == queries) {
        return (struct mw_meeting){0, 2 * len, 2 * len, 0};
    }
    if (keys < queries) {
        return (struct mw_meeting){0, 2 * len, len, len};
    }
    return (struct mw_meeting){len, len, 2 * len, 2 * len};
}

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
    one.ld_kv = d->kv_width;
    one.q = mw_context_row(ex, a->q, row, a->ld_q);
    one.k = mw_context_row(ex, ex->cp_mem[KV], in_rank, d->kv_width);
    one.v = mw_dev_at(ex->dev, one.k, half);
    one.out = mw_context_row(ex, a->out, row, d->q_width);
    one.lse = a->lse + row;
    if (a->dout) {
        one.dout = mw_context_row(ex, a->dout, row, d->q_width);
        one.dq = mw_context_row(ex, a->dq, row, a->ld_q);
        one.dk = mw_context_row(ex, ex->cp_mem[DKV], in_rank, d->kv_width);
        one.dv = mw_dev_at(ex->dev, one.dk, half);
    }
    return one;
}

static void merge(struct mw_exec *ex, const struct mw_dev_attention *whole,
                  const struct mw_dev_attention *part, int rows)
{
    const struct mw_cp_set *d = &ex->cp_set;
    const struct mw_dev_merge m = {.rows = rows,
                                   .n_heads = d->n_heads,
                                   .head_dim = ex->dims.head_dim,
                                   .ld_lse = d->rows,
                                   .out = whole->out,
                                   .lse = whole->lse,
                                   .part = part->out,
                                   .part_lse = part->lse};
    ex->dev->ops->attention_merge(ex->dev, &m);
}

static void step_forward(struct mw_exec *ex, const struct mw_dev_attention *a,
                         int step)
{
    const struct mw_meeting m =
        mw_context_meet(ex, ex->cp_set.index, mw_context_visitor(ex, step));
    const struct mw_dev_queries own = {
        .first = m.first, .n = m.n_queries, .ld_lse = ex->cp_set.rows};
    struct mw_dev_attention into = *a;
    if (step > 0) {
        into.out = ex->cp_mem[OUT];
        into.lse = ex->cp_mem[LSE];
    }
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        const struct mw_dev_attention one = arguments(ex, &into, &m, s);
        const struct mw_dev_attention whole = arguments(ex, a, &m, s);
        ex->dev->ops->attention_part_fwd(ex->dev, &one, &own);
        if (step > 0) {
            merge(ex, &whole, &one, m.n_queries);
        }
    }
}

static void step_backward(struct mw_exec *ex, const struct mw_dev_attention *a,
                          int step)
{
    const struct mw_meeting m =
        mw_context_meet(ex, ex->cp_set.index, mw_context_visitor(ex, step));
    const struct mw_dev_queries own = {.first = m.first,
                                       .n = m.n_queries,
                                       .ld_lse = ex->cp_set.rows,
                                       .adds_dq = step > 0};
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        const struct mw_dev_attention one = arguments(ex, a, &m, s);
        ex->dev->ops->attention_part_bwd(ex->dev, &one, &own);
    }
}

/* ---- the ring ------------------------------------------------------------ */
static int neighbour(const struct mw_exec *ex, int way)
{
    struct mw_coord at = ex->at;
    at.cp = (at.cp + way * ex->cp_set.n_deal + ex->dims.n_cp) % ex->dims.n_cp;
    return mw_layout_rank(&ex->job->layout, at);
}

static size_t block_elems(const struct mw_exec *ex)
{
    return (size_t)ex->cp_set.rows * (size_t)ex->cp_set.kv_width;
}

/* Behind the tags of messages between stages (walk.c). */
static int tag_of(const struct mw_exec *ex, int which)
{
    const struct mw_job *job = ex->job;
    return 2 * job->n_virtual * mw_schedule_items(job->schedule) + which;
}

enum mw_status mw_context_pass_on(struct mw_exec *ex, int which, size_t n,
                                  const char *name, int tag)
{
    struct mw_comm *w = ex->world;
    void **here = &ex->cp_mem[which], **next = &ex->cp_mem[which + 1];
    const struct mw_rec_event e = mw_context_event(ex, name, MW_SEND_RECV, n);
    struct mw_send sent = {NULL};
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st = w->ops->send(w, *here, n, ex->elem, neighbour(ex, 1),
                                     tag_of(ex, tag), &sent, ex->err);
    if (st == MW_OK) {
        st = w->ops->recv(w, *next, n, ex->elem, neighbour(ex, -1),
                          tag_of(ex, tag), ex->err);
    }
    if (st == MW_OK) {
        st = w->ops->wait(w, &sent, ex->err);
    }
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    void *swap = *here;
    *here = *next;
    *next = swap;
    return st;
}

enum mw_status mw_ring_forward(struct mw_exec *ex,
                               const struct mw_dev_attention *a)
{
    int n = ex->cp_set.n_sets;
    mw_context_pack(ex, ex->cp_mem[KV], a->k, a->v, a->ld_kv, false);
    for (int step = 0; step < n; step++) {
        step_forward(ex, a, step);
        if (step + 1 < n) {
            MW_TRY(
                mw_context_pass_on(ex, KV, block_elems(ex), "cp_kv", TAG_KV));
        }
    }
    return MW_OK;
}

enum mw_status mw_ring_backward(struct mw_exec *ex,
                                const struct mw_dev_attention *a)
{
    int n = ex->cp_set.n_sets;
    mw_context_pack(ex, ex->cp_mem[KV], a->k, a->v, a->ld_kv, false);
    ex->dev->ops->zero(ex->dev, ex->cp_mem[DKV], ex->cp_bytes[DKV]);
    for (int step = 0; step < n; step++) {
        step_backward(ex, a, step);
        if (step + 1 < n) {
            MW_TRY(
                mw_context_pass_on(ex, KV, block_elems(ex), "cp_kv", TAG_KV));
        }
        MW_TRY(mw_context_pass_on(ex, DKV, block_elems(ex), "cp_dkv", TAG_DKV));
    }
    mw_context_pack(ex, ex->cp_mem[DKV], a->dk, a->dv, a->ld_kv, true);
    return MW_OK;
}

void mw_ring_open(struct mw_exec *ex)
{
    const struct mw_cp_set *d = &ex->cp_set;
    for (int i = KV; i <= DKV_NEXT; i++) {
        mw_context_alloc(ex, i, block_elems(ex));
    }
    mw_context_alloc(ex, OUT, (size_t)d->rows * (size_t)d->q_width);
    /* float32, whatever the elements are */
    mw_context_alloc(ex, LSE,
                     (size_t)d->rows * (size_t)d->n_heads * sizeof(float) /
                         ex->dev->elem_bytes);
}
