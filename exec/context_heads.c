/*
 * Context parallelism by heads (DeepSpeed Ulysses: Jacobs et al., 2023): an
 * all-to-all turns a part of the tokens of all heads into whole sequences of a
 * part of the heads, so that the core is an ordinary one (with cp_inner into
 * what a set of ranks has of sequences, and the core is a ring's or gather's):
 *
 *   token layout   [own rows][heads]        head layout   [all rows][own heads]
 *
 *   forward   q, k, v to heads -> core -> output to tokens
 *   backward  gradient of the output to heads -> core -> those of q, k, v back
 *
 * Block d of a message has all own rows of the heads of rank d; blocks that
 * arrive are put in the order of sequences piece by piece (zigzag). Kept for
 * the backward pass are q, k, v and the output of the own heads; the output of
 * the own tokens is the next layer's input and kept there. Under selective
 * recomputation q, k, v of the own tokens are kept instead, and all four
 * messages are sent again.
 */
#include "exec/context_int.h"

/* Of ex->cp_mem, behind those of a ring or gather: blocks to send and received;
 * gradients of the own heads; q and kv of the own tokens. */
enum { SEND = 8, RECV, DQ, DK, DV, DOUT, TOKEN_Q, TOKEN_KV };

/* ---- the exchange -------------------------------------------------------- */
/* Rows of the own tokens, `width` elements of each, ld apart. */
struct tokens {
    const void *p;
    int ld, width;
};

/* Own rows into blocks, one for the heads of each rank, or back. */
static void cut(struct mw_exec *ex, const struct tokens *t, bool is_back)
{
    const struct mw_dims *d = &ex->dims;
    size_t el = ex->dev->elem_bytes;
    int n = ex->cp_set.n_deal, part = t->width / n;
    for (int c = 0; c < n; c++) {
        struct mw_dev_rows rows = {
            mw_dev_at(ex->dev, t->p, (size_t)c * (size_t)part),
            (size_t)t->ld * el};
        struct mw_dev_rows block = {
            mw_context_row(ex, ex->cp_mem[is_back ? RECV : SEND], c * d->rows,
                           part),
            (size_t)part * el};
        ex->dev->ops->copy_rows(ex->dev, is_back ? rows : block,
                                is_back ? block : rows, d->rows,
                                (size_t)part * el);
    }
}

/* Blocks of the ranks' tokens into whole sequences, or back. */
static void join(struct mw_exec *ex, void *whole, int part, bool is_back)
{
    const struct mw_dims *d = &ex->dims;
    int len = mw_context_piece(ex), n = ex->cp_set.n_deal;
    size_t bytes = (size_t)len * (size_t)part * ex->dev->elem_bytes;
    void *blocks = ex->cp_mem[is_back ? SEND : RECV];
    for (int c = 0; c < n; c++) {
        for (int p = 0; p < 2 * d->n_seqs; p++) {
            int in_set = p % 2 == 0 ? c : 2 * n - 1 - c;
            int place = (p / 2 * 2 * n + in_set) * len;
            void *a = mw_context_row(ex, blocks, c * d->rows + p * len, part);
            void *b = mw_context_row(ex, whole, place, part);
            ex->dev->ops->copy(ex->dev, is_back ? a : b, is_back ? b : a,
                               bytes);
        }
    }
}

static enum mw_status exchange(struct mw_exec *ex, const char *name, int width)
{
    struct mw_comm *cp = ex->cp_deal;
    size_t n = (size_t)ex->dims.rows * (size_t)width;
    struct mw_rec_event e = mw_context_event(ex, name, MW_ALL_TO_ALL, n);
    e.is_dealt = true;
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        cp->ops->all_to_all(cp, ex->cp_mem[SEND], ex->cp_mem[RECV],
                            n / (size_t)cp->size, ex->elem, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

static enum mw_status to_heads(struct mw_exec *ex, const char *name,
                               struct tokens t, void *heads)
{
    cut(ex, &t, false);
    MW_TRY(exchange(ex, name, t.width));
    join(ex, heads, t.width / ex->cp_set.n_deal, false);
    return MW_OK;
}

static enum mw_status to_tokens(struct mw_exec *ex, const char *name,
                                void *heads, struct tokens t)
{
    join(ex, heads, t.width / ex->cp_set.n_deal, true);
    MW_TRY(exchange(ex, name, t.width));
    cut(ex, &t, true);
    return MW_OK;
}

/* ---- the core ------------------------------------------------------------ */
static struct mw_dev_attention own_heads(const struct mw_exec *ex,
                                         const struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_cp_set *s = &ex->cp_set;
    return (struct mw_dev_attention){.n_seqs = d->n_seqs * (d->seq / d->doc),
                                     .seq = d->doc,
                                     .n_heads = s->n_heads,
                                     .n_kv_heads = d->n_kv_heads / s->n_deal,
                                     .head_dim = d->head_dim,
                                     .ld_q = s->q_width,
                                     .ld_kv = s->kv_width / 2,
                                     .q = f->head_q,
                                     .k = f->head_k,
                                     .v = f->head_v,
                                     .out = f->head_out,
                                     .lse = f->lse,
                                     .scratch = ex->scratch};
}

enum mw_status mw_heads_forward(struct mw_exec *ex,
                                const struct mw_block_fwd *f,
                                const struct mw_dev_attention *a)
{
    int q = ex->dims.q_width, kv = ex->dims.kv_width / 2;
    const struct mw_dev_attention own = own_heads(ex, f);
    MW_TRY(to_heads(ex, "cp_q", (struct tokens){a->q, a->ld_q, q}, f->head_q));
    MW_TRY(
        to_heads(ex, "cp_k", (struct tokens){a->k, a->ld_kv, kv}, f->head_k));
    MW_TRY(
        to_heads(ex, "cp_v", (struct tokens){a->v, a->ld_kv, kv}, f->head_v));
    MW_TRY(mw_context_set_forward(ex, &own));
    return to_tokens(ex, "cp_o", f->head_out, (struct tokens){a->out, q, q});
}

enum mw_status mw_heads_backward(struct mw_exec *ex,
                                 const struct mw_block_fwd *f,
                                 const struct mw_dev_attention *a)
{
    int q = ex->dims.q_width, kv = ex->dims.kv_width / 2;
    struct mw_dev_attention own = own_heads(ex, f);
    MW_TRY(
        to_heads(ex, "cp_o", (struct tokens){a->dout, q, q}, ex->cp_mem[DOUT]));
    own.dout = ex->cp_mem[DOUT];
    own.dq = ex->cp_mem[DQ];
    own.dk = ex->cp_mem[DK];
    own.dv = ex->cp_mem[DV];
    MW_TRY(mw_context_set_backward(ex, f, &own));
    MW_TRY(to_tokens(ex, "cp_v", own.dv, (struct tokens){a->dv, a->ld_kv, kv}));
    MW_TRY(to_tokens(ex, "cp_k", own.dk, (struct tokens){a->dk, a->ld_kv, kv}));
    return to_tokens(ex, "cp_q", own.dq, (struct tokens){a->dq, a->ld_q, q});
}

/* ---- memory -------------------------------------------------------------- */
void mw_context_lend_tokens(const struct mw_exec *ex, struct mw_block_fwd *f)
{
    f->q = ex->cp_mem[TOKEN_Q];
    f->kv = ex->dims.is_fused_qkv ? NULL : ex->cp_mem[TOKEN_KV];
}

void mw_heads_open(struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    size_t rows = (size_t)d->rows, q = rows * (size_t)d->q_width;
    size_t kv = rows * (size_t)d->kv_width / 2;
    mw_context_alloc(ex, SEND, q > kv ? q : kv);
    mw_context_alloc(ex, RECV, q > kv ? q : kv);
    mw_context_alloc(ex, DQ, q);
    mw_context_alloc(ex, DK, kv);
    mw_context_alloc(ex, DV, kv);
    mw_context_alloc(ex, DOUT, q);
    bool is_lent = d->recompute != MW_RECOMPUTE_SELECTIVE || d->keeps_layers;
    if (is_lent) {
        mw_context_alloc(ex, TOKEN_Q, d->is_fused_qkv ? q + 2 * kv : q);
    }
    if (is_lent && !d->is_fused_qkv) {
        mw_context_alloc(ex, TOKEN_KV, 2 * kv);
    }
}
