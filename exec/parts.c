/*
 * Parts of sequences (Seq1F1B: Sun et al., 2024): a micro-batch of q parts,
 * part i holding positions i seq / q and on of each of its sequences. Forward
 * runs the parts in order, backward in reverse.
 *
 *   F i   keys and values of the part go into a store of the whole sequences;
 *         its queries attend to parts 0 .. i
 *   B i   adds to the store's gradients of keys and values of parts 0 .. i;
 *         those of part i are then complete, since B of all parts behind it
 *         has run, and go on through the projections
 *
 * A store lives from F of the first part to B of the first part. A chunk's
 * free stores wait in a pool. Left out: parts together with context
 * parallelism; parts of unequal length.
 */
#include "exec/exec_int.h"

static int part_len(const struct mw_exec *ex)
{
    return ex->dims.seq / ex->dims.n_parts;
}

/* Bytes of keys and values of whole sequences of one layer. */
static size_t layer_bytes(const struct mw_exec *ex)
{
    return (size_t)ex->dims.n_seqs * (size_t)ex->dims.seq *
           (size_t)ex->dims.kv_width * ex->dev->elem_bytes;
}

/* Keys and values of all layers, or behind them their gradients. */
static size_t half_bytes(const struct mw_exec *ex, int chunk)
{
    return layer_bytes(ex) * (size_t)ex->chunks[chunk].n_layers;
}

/* ---- stores ------------------------------------------------------------- */
static struct mw_seq_store *find(const struct mw_exec *ex, int chunk,
                                 int microbatch)
{
    struct mw_seq_store *s = ex->stores[chunk];
    while (s && s->microbatch != microbatch) {
        s = s->next;
    }
    return s;
}

static struct mw_seq_store *take(struct mw_exec *ex, int chunk, int microbatch)
{
    struct mw_seq_store *s = find(ex, chunk, -1);
    if (!s) {
        s = mw_arena_alloc(&ex->arena, 1, sizeof *s);
        s->bytes = 2 * half_bytes(ex, chunk);
        s->mem = ex->dev->ops->alloc(ex->dev, s->bytes);
        s->next = ex->stores[chunk];
        ex->stores[chunk] = s;
    }
    s->microbatch = microbatch;
    return s;
}

void mw_parts_open(struct mw_exec *ex)
{
    ex->stores =
        mw_arena_alloc(&ex->arena, (size_t)ex->n_chunks, sizeof *ex->stores);
}

void mw_parts_close(struct mw_exec *ex)
{
    for (int c = 0; ex->stores && c < ex->n_chunks; c++) {
        for (struct mw_seq_store *s = ex->stores[c]; s; s = s->next) {
            ex->dev->ops->free(ex->dev, s->mem, s->bytes);
        }
    }
}

/* ---- a pass ------------------------------------------------------------- */
void mw_part_begin(struct mw_exec *ex, const struct mw_slot *slot)
{
    int q = ex->dims.n_parts, microbatch = slot->microbatch / q;
    if (q == 1) {
        return;
    }
    ex->part = slot->microbatch % q;
    bool is_first = slot->pass == MW_PASS_F && ex->part == 0;
    ex->store = is_first ? take(ex, slot->chunk, microbatch)
                         : find(ex, slot->chunk, microbatch);
    bool is_backward = slot->pass == MW_PASS_B || slot->pass == MW_PASS_BW;
    if (is_backward && ex->part == q - 1) {
        size_t half = half_bytes(ex, slot->chunk);
        ex->dev->ops->zero(ex->dev, (char *)ex->store->mem + half, half);
    }
}

void mw_part_layer(struct mw_exec *ex, const struct mw_chunk *c, int layer)
{
    if (ex->dims.n_parts > 1) {
        MW_ASSERT(ex->store, "no keys of virtual stage %d", c->virtual_stage);
        char *kv = (char *)ex->store->mem + (size_t)layer * layer_bytes(ex);
        ex->seq_kv = kv;
        ex->seq_dkv = kv + (size_t)c->n_layers * layer_bytes(ex);
    }
}

void mw_part_end(struct mw_exec *ex, const struct mw_slot *slot)
{
    bool is_backward = slot->pass == MW_PASS_B || slot->pass == MW_PASS_BW;
    if (ex->dims.n_parts > 1 && is_backward && ex->part == 0) {
        ex->store->microbatch = -1;
    }
}

/* ---- attention ---------------------------------------------------------- */
/* Rows of the part into the store of whole sequences, or out of it. */
static void move_rows(struct mw_exec *ex, void *store, void *k, void *v, int ld,
                      bool is_out)
{
    const struct mw_dims *d = &ex->dims;
    size_t half = (size_t)d->kv_width / 2, el = ex->dev->elem_bytes;
    int len = part_len(ex);
    for (int s = 0; s < d->n_seqs; s++) {
        int place = s * d->seq + ex->part * len;
        void *whole =
            mw_dev_at(ex->dev, store, (size_t)place * (size_t)d->kv_width);
        size_t at = (size_t)s * (size_t)len * (size_t)ld;
        for (int i = 0; i < 2; i++) {
            struct mw_dev_rows part = {mw_dev_at(ex->dev, i ? v : k, at),
                                       (size_t)ld * el};
            struct mw_dev_rows in_store = {
                mw_dev_at(ex->dev, whole, i ? half : 0),
                (size_t)d->kv_width * el};
            ex->dev->ops->copy_rows(ex->dev, is_out ? part : in_store,
                                    is_out ? in_store : part, len, half * el);
        }
    }
}

/* Sequence s: the part's queries, keys of the whole sequence. */
static struct mw_dev_attention
one_sequence(const struct mw_exec *ex, const struct mw_dev_attention *a, int s)
{
    const struct mw_dims *d = &ex->dims;
    const struct mw_dev *dev = ex->dev;
    size_t row = (size_t)s * (size_t)part_len(ex);
    size_t key = (size_t)s * (size_t)d->seq * (size_t)d->kv_width;
    size_t half = (size_t)d->kv_width / 2;
    size_t at_q = row * (size_t)a->ld_q, at_out = row * (size_t)d->q_width;
    struct mw_dev_attention one = *a;
    one.n_seqs = 1;
    one.ld_kv = d->kv_width;
    one.q = mw_dev_at(dev, a->q, at_q);
    one.k = mw_dev_at(dev, ex->seq_kv, key);
    one.v = mw_dev_at(dev, one.k, half);
    one.out = mw_dev_at(dev, a->out, at_out);
    one.lse = a->lse + row;
    if (a->dout) {
        one.dout = mw_dev_at(dev, a->dout, at_out);
        one.dq = mw_dev_at(dev, a->dq, at_q);
        one.dk = mw_dev_at(dev, ex->seq_dkv, key);
        one.dv = mw_dev_at(dev, one.dk, half);
    }
    return one;
}

static struct mw_dev_queries own_queries(const struct mw_exec *ex)
{
    return (struct mw_dev_queries){.first = ex->part * part_len(ex),
                                   .n = part_len(ex),
                                   .ld_lse = ex->dims.rows};
}

void mw_part_forward(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    const struct mw_dev_queries own = own_queries(ex);
    move_rows(ex, ex->seq_kv, (void *)(uintptr_t)a->k, (void *)(uintptr_t)a->v,
              a->ld_kv, false);
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        const struct mw_dev_attention one = one_sequence(ex, a, s);
        ex->dev->ops->attention_part_fwd(ex->dev, &one, &own);
    }
}

void mw_part_backward(struct mw_exec *ex, const struct mw_dev_attention *a)
{
    const struct mw_dev_queries own = own_queries(ex);
    for (int s = 0; s < ex->dims.n_seqs; s++) {
        const struct mw_dev_attention one = one_sequence(ex, a, s);
        ex->dev->ops->attention_part_bwd(ex->dev, &one, &own);
    }
    move_rows(ex, ex->seq_dkv, a->dk, a->dv, a->ld_kv, true);
}
