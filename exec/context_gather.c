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
    const struct mw_dims *d = &ex->dims;
    int len = mw_context_piece(ex);
    size_t bytes = (size_t)len * (size_t)d->kv_width * ex->dev->elem_bytes;
    for (int c = 0; c < d->n_cp; c++) {
        for (int p = 0; p < 2 * d->n_seqs; p++) {
            int row = c * d->rows + p * len;
            int place = p / 2 * d->seq + mw_context_first(ex, c, p % 2);
            void *a = mw_context_row(ex, ex->cp_mem[BLOCKS], row, d->kv_width);
            void *b = mw_context_row(ex, ordered, place, d->kv_width);
            ex->dev->ops->copy(ex->dev, is_back ? a : b, is_back ? b : a,
                               bytes);
        }
    }
}

static enum mw_status cp_collective(struct mw_exec *ex, enum mw_coll_op coll)
{
    struct mw_comm *cp = ex->cp;
    size_t n = (size_t)ex->dims.rows * (size_t)ex->dims.kv_width;
    const struct mw_rec_event e =
        mw_context_event(ex, "cp_kv", coll, n * (size_t)ex->dims.n_cp);
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
    return mw_context_row(ex, ex->cp_mem[BLOCKS], ex->at.cp * ex->dims.rows,
                          ex->dims.kv_width);
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
    const struct mw_dims *d = &ex->dims;
    int row = s * (d->seq / d->n_cp) + p * mw_context_piece(ex);
    int key = s * d->seq, ld_out = d->q_width;
    struct mw_dev_attention one = *a;
    size_t half = (size_t)d->kv_width / 2;
    one.n_seqs = 1;
    one.seq = d->seq;
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
            .first = mw_context_first(ex, ex->at.cp, i % 2),
            .n = mw_context_piece(ex),
            .ld_lse = ex->dims.rows};
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
    const struct mw_dims *d = &ex->dims;
    size_t n = (size_t)d->rows * (size_t)d->n_cp * (size_t)d->kv_width;
    for (int i = BLOCKS; i <= DKV; i++) {
        mw_context_alloc(ex, i, n);
    }
}
