/*
 * Context parallelism: a sequence split over the ranks of the CP group.
 *
 * Causal attention gives late tokens more work, so a sequence is cut into
 * 2 cp pieces and rank c holds pieces c and 2 cp - 1 - c ("zigzag": Brandon
 * et al., Striped Attention, 2023, section 5; Megatron-LM's context
 * parallelism):
 *
 *   cp 2      | 0 | 1 | 2 | 3 |      rank 0: 0 3     rank 1: 1 2
 *
 * Keys and values of all ranks are gathered before the core, put in the order
 * of the sequence, and each own piece attends to what comes before its end.
 * The backward pass gathers them again (they are not kept) and reduce-
 * scatters their gradients (Llama 3 does the same: Grattafiori et al., 2024,
 * section 3.3.2). Left out: the ring and all-to-all forms.
 */
#include "exec/exec_int.h"

/* ---- places ------------------------------------------------------------- */
static int n_pieces(const struct mw_exec *ex)
{
    return ex->dims.n_cp > 1 ? 2 : 1;
}

/* Tokens of a piece. */
static int piece_len(const struct mw_exec *ex)
{
    return ex->dims.seq / (n_pieces(ex) * ex->dims.n_cp);
}

/* Where piece i (0 or 1) of a CP rank begins in the sequence. */
static int piece_first(const struct mw_exec *ex, int cp_rank, int i)
{
    int place = i == 0 ? cp_rank : 2 * ex->dims.n_cp - 1 - cp_rank;
    return place * piece_len(ex);
}

struct mw_run mw_run_at(const struct mw_exec *ex, int row)
{
    int n_parts = ex->dims.n_parts;
    int in_seq = row % (ex->dims.seq / (ex->dims.n_cp * n_parts));
    if (n_parts > 1) {
        int n = ex->dims.seq / n_parts;
        return (struct mw_run){ex->part * n + in_seq, n - in_seq};
    }
    int len = piece_len(ex);
    int first = piece_first(ex, ex->at.cp, in_seq / len);
    return (struct mw_run){first + in_seq % len, len - in_seq % len};
}

/* ---- keys and values ---------------------------------------------------- */
/* Rows of k and v of one rank, [row][kv_width], at `ld`. */
struct kv_rows {
    void *k, *v;
    int ld;
};

static size_t half_bytes(const struct mw_exec *ex)
{
    return (size_t)ex->dims.kv_width / 2 * ex->dev->elem_bytes;
}

static void *row_of(const struct mw_exec *ex, void *p, int row, int ld)
{
    return mw_dev_at(ex->dev, p, (size_t)row * (size_t)ld);
}

/* Own rows into, or out of, a packed block. */
static void pack(struct mw_exec *ex, void *block, const struct kv_rows *kv,
                 bool is_out)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    size_t half = half_bytes(ex);
    for (int r = 0; r < ex->dims.rows; r++) {
        char *b = row_of(ex, block, r, ex->dims.kv_width);
        void *k = row_of(ex, kv->k, r, kv->ld),
             *v = row_of(ex, kv->v, r, kv->ld);
        ops->copy(ex->dev, is_out ? k : b, is_out ? b : k, half);
        ops->copy(ex->dev, is_out ? v : b + half, is_out ? b + half : v, half);
    }
}

/* Blocks of ranks into the order of sequences, or back. */
static void reorder(struct mw_exec *ex, void *blocks, void *ordered,
                    bool is_back)
{
    const struct mw_dims *d = &ex->dims;
    int len = piece_len(ex);
    size_t bytes = (size_t)len * (size_t)d->kv_width * ex->dev->elem_bytes;
    for (int c = 0; c < d->n_cp; c++) {
        for (int p = 0; p < 2 * d->n_seqs; p++) {
            int row = c * d->rows + p * len;
            int place = p / 2 * d->seq + piece_first(ex, c, p % 2);
            void *a = row_of(ex, blocks, row, d->kv_width);
            void *b = row_of(ex, ordered, place, d->kv_width);
            ex->dev->ops->copy(ex->dev, is_back ? a : b, is_back ? b : a,
                               bytes);
        }
    }
}

static enum mw_status cp_collective(struct mw_exec *ex, enum mw_coll_op coll)
{
    struct mw_comm *cp = ex->cp;
    size_t n = (size_t)ex->dims.rows * (size_t)ex->dims.kv_width;
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_CP,
                                   .name = "cp_kv",
                                   .microbatch = ex->rec->label.microbatch,
                                   .stage = ex->rec->label.stage,
                                   .bytes = (double)n * ex->dims.n_cp *
                                            (double)ex->dev->elem_bytes,
                                   .dim = MW_DIM_CP,
                                   .coll = coll};
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        coll == MW_ALL_GATHER
            ? cp->ops->all_gather(cp, ex->cp_blocks, n, MW_ELEM_F32, ex->err)
            : cp->ops->reduce_scatter(cp, ex->cp_blocks, n, MW_ELEM_F32,
                                      ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

static void *own_block(const struct mw_exec *ex)
{
    return row_of(ex, ex->cp_blocks, ex->at.cp * ex->dims.rows,
                  ex->dims.kv_width);
}

enum mw_status mw_context_gather(struct mw_exec *ex,
                                 const struct mw_dev_attention *a)
{
    const struct kv_rows kv = {(void *)(uintptr_t)a->k, (void *)(uintptr_t)a->v,
                               a->ld_kv};
    pack(ex, own_block(ex), &kv, false);
    MW_TRY(cp_collective(ex, MW_ALL_GATHER));
    reorder(ex, ex->cp_blocks, ex->cp_kv, false);
    return MW_OK;
}

/* ---- the core ----------------------------------------------------------- */
/* Piece p of sequence s: own queries, and keys of the whole sequence. */
static struct mw_dev_attention
piece(const struct mw_exec *ex, const struct mw_dev_attention *a, int s, int p)
{
    const struct mw_dims *d = &ex->dims;
    int row = s * (d->seq / d->n_cp) + p * piece_len(ex), key = s * d->seq;
    int ld_out = d->q_width;
    struct mw_dev_attention one = *a;
    size_t half = (size_t)d->kv_width / 2;
    one.n_seqs = 1;
    one.seq = d->seq;
    one.ld_kv = d->kv_width;
    one.q = row_of(ex, (void *)(uintptr_t)a->q, row, a->ld_q);
    one.k = row_of(ex, ex->cp_kv, key, d->kv_width);
    one.v = mw_dev_at(ex->dev, one.k, half);
    one.out = row_of(ex, a->out, row, ld_out);
    one.lse = a->lse + row;
    if (a->dout) {
        one.dout = row_of(ex, (void *)(uintptr_t)a->dout, row, ld_out);
        one.dq = row_of(ex, a->dq, row, a->ld_q);
        one.dk = row_of(ex, ex->cp_dkv, key, d->kv_width);
        one.dv = mw_dev_at(ex->dev, one.dk, half);
    }
    return one;
}

static void each_piece(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    for (int i = 0; i < 2 * ex->dims.n_seqs; i++) {
        const struct mw_dev_attention one = piece(ex, a, i / 2, i % 2);
        const struct mw_dev_queries own = {piece_first(ex, ex->at.cp, i % 2),
                                           piece_len(ex), ex->dims.rows};
        if (a->dout) {
            ops->attention_part_bwd(ex->dev, &one, &own);
        } else {
            ops->attention_part_fwd(ex->dev, &one, &own);
        }
    }
}

void mw_context_forward(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    each_piece(ex, a);
}

enum mw_status mw_context_backward(struct mw_exec *ex,
                                   const struct mw_dev_attention *a)
{
    const struct kv_rows dkv = {a->dk, a->dv, a->ld_kv};
    ex->dev->ops->zero(ex->dev, ex->cp_dkv, ex->cp_bytes);
    each_piece(ex, a);
    reorder(ex, ex->cp_blocks, ex->cp_dkv, true);
    MW_TRY(cp_collective(ex, MW_REDUCE_SCATTER));
    pack(ex, own_block(ex), &dkv, true);
    return MW_OK;
}

void mw_context_open(struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    if (d->n_cp > 1) {
        ex->cp_bytes = (size_t)d->rows * (size_t)d->n_cp * (size_t)d->kv_width *
                       ex->dev->elem_bytes;
        ex->cp_blocks = ex->dev->ops->alloc(ex->dev, ex->cp_bytes);
        ex->cp_kv = ex->dev->ops->alloc(ex->dev, ex->cp_bytes);
        ex->cp_dkv = ex->dev->ops->alloc(ex->dev, ex->cp_bytes);
    }
}

void mw_context_close(struct mw_exec *ex)
{
    void *const all[] = {ex->cp_blocks, ex->cp_kv, ex->cp_dkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]) {
            ex->dev->ops->free(ex->dev, all[i], ex->cp_bytes);
        }
    }
}
