/*
 * Context parallelism by gathering: keys and values of all ranks before the
 * core, put in the order of the sequence, so that each own piece attends to
 * what comes before its end. The backward pass gathers them again (they are not
 * kept) and reduce-scatters their gradients (Llama 3 does the same: Grattafiori
 * et al., 2024, section 3.3.2).
 */
#include "exec/context_int.h"

/* Of ex->cp_mem: keys and values of all ranks, rank by rank; in the order of
 * sequences; their gradients. */
enum { BLOCKS, KV, DKV };

/* Blocks of ranks into the order of sequences, or back. */
static void reorder(struct mw_exec *ex, void *ordered, bool is_back)
{
    const struct mw_cp_set *d = &ex->cp_set;
    int len = d->piece;
    size_t bytes = (size_t)len * (size_t)d->kv_width * ex->dev->elem_bytes;
    for (int c = 0; c < d->n_sets; c++) {
        for (int p = 0; p < 2 * ex->dims.n_seqs; p++) {
            int row = c * d->rows + p * len;
            int place =
                p / 2 * ex->dims.seq + mw_context_set_first(ex, c, p % 2);
            void *a = mw_context_row(ex, ex->cp_mem[BLOCKS], row, d->kv_width);
            void *b = mw_context_row(ex, ordered, place, d->kv_width);
            ex->dev->ops->copy(ex->dev, is_back ? a : b, is_back ? b : a,
                               bytes);
        }
    }
}

static enum mw_status cp_collective(struct mw_exec *ex, enum mw_coll_op coll)
{
    struct mw_comm *cp = ex->cp_ring;
    size_t n = (size_t)ex->cp_set.rows * (size_t)ex->cp_set.kv_width;
    const struct mw_rec_event e =
        mw_context_event(ex, "cp_kv", coll, n * (size_t)ex->cp_set.n_sets);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        coll == MW_ALL_GATHER
            ? cp->ops->all_gather(cp, ex->cp_mem[BLOCKS], n, ex->elem, ex->err)
            : cp->ops->reduce_scatter(cp, ex->cp_mem[BLOCKS], n, ex->elem,
                                      ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

static void *own_block(const struct mw_exec *ex)
{
    const struct mw_cp_set *d = &ex->cp_set;
    return mw_context_row(ex, ex->cp_mem[BLOCKS], d->index * d->rows,
                          d->kv_width);
}

static enum mw_status gather(struct mw_exec *ex,
                             const struct mw_dev_attention *a)
{
    mw_context_pack(ex, own_block(ex), a->k, a->v, a->ld_kv, false);
    MW_TRY(cp_collective(ex, MW_ALL_GATHER));
    reorder(ex, ex->cp_mem[KV], false);
    return MW_OK;
}

/* Piece p of sequence s: own queries, and keys of the whole sequence. */
static struct mw_dev_attention
piece(const struct mw_exec *ex, const struct mw_dev_attention *a, int s, int p)
{
    const struct mw_cp_set *d = &ex->cp_set;
    int row = (2 * s + p) * d->piece, seq = ex->dims.seq;
    int key = s * seq, ld_out = d->q_width;
    struct mw_dev_attention one = *a;
    size_t half = (size_t)d->kv_width / 2;
    one.n_seqs = 1;
    one.seq = seq;
    one.ld_kv = d->kv_width;
    one.q = mw_context_row(ex, a->q, row, a->ld_q);
    one.k = mw_context_row(ex, ex->cp_mem[KV], key, d->kv_width);
    one.v = mw_dev_at(ex->dev, one.k, half);
    one.out = mw_context_row(ex, a->out, row, ld_out);
    one.lse = a->lse + row;
    if (a->dout) {
        one.dout = mw_context_row(ex, a->dout, row, ld_out);
        one.dq = mw_context_row(ex, a->dq, row, a->ld_q);
        one.dk = mw_context_row(ex, ex->cp_mem[DKV], key, d->kv_width);
        one.dv = mw_dev_at(ex->dev, one.dk, half);
    }
    return one;
}

static void each_piece(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    for (int i = 0; i < 2 * ex->dims.n_seqs; i++) {
        const struct mw_dev_attention one = piece(ex, a, i / 2, i % 2);
        const struct mw_dev_queries own = {
            .first = mw_context_set_first(ex, ex->cp_set.index, i % 2),
            .n = ex->cp_set.piece,
            .ld_lse = ex->cp_set.rows};
        if (a->dout) {
            ops->attention_part_bwd(ex->dev, &one, &own);
        } else {
            ops->attention_part_fwd(ex->dev, &one, &own);
        }
    }
}

enum mw_status mw_gather_forward(struct mw_exec *ex,
                                 const struct mw_dev_attention *a)
{
    MW_TRY(gather(ex, a));
    each_piece(ex, a);
    return MW_OK;
}

/* Selective recomputation has gathered a moment ago. */
enum mw_status mw_gather_backward(struct mw_exec *ex,
                                  const struct mw_block_fwd *f,
                                  const struct mw_dev_attention *a)
{
    if (!mw_core_is_repeated(ex, f)) {
        MW_TRY(gather(ex, a));
    }
    ex->dev->ops->zero(ex->dev, ex->cp_mem[DKV], ex->cp_bytes[DKV]);
    each_piece(ex, a);
    reorder(ex, ex->cp_mem[DKV], true);
    MW_TRY(cp_collective(ex, MW_REDUCE_SCATTER));
    mw_context_pack(ex, own_block(ex), a->dk, a->dv, a->ld_kv, true);
    return MW_OK;
}

void mw_gather_open(struct mw_exec *ex)
{
    const struct mw_cp_set *d = &ex->cp_set;
    size_t n = (size_t)d->rows * (size_t)d->n_sets * (size_t)d->kv_width;
    for (int i = BLOCKS; i <= DKV; i++) {
        mw_context_alloc(ex, i, n);
    }
}
