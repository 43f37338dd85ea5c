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
 * The same pieces whatever the form, so positions, losses and positions'
 * gradients do not depend on it.
 *
 * With cp_inner a, a set of a neighbours deals out heads (USP: Fang and Zhao,
 * 2024) and then has a early pieces in a row and a late ones: what one rank of
 * cp / a would have in pieces a times as long, so the ring or gather between
 * sets is that of ranks.
 */
#include "exec/context_int.h"

/* ---- places ------------------------------------------------------------- */
static int n_pieces(const struct mw_exec *ex)
{
    return ex->dims.n_cp > 1 ? 2 : 1;
}

int mw_context_ways(const struct mw_layout *l)
{
    return l->cp_form == MW_CP_A2A ? l->cp : l->cp_inner > 1 ? l->cp_inner : 1;
}

int mw_context_piece(const struct mw_exec *ex)
{
    return ex->dims.seq / (n_pieces(ex) * ex->dims.n_cp);
}

int mw_context_first(const struct mw_exec *ex, int cp_rank, int i)
{
    int place = i == 0 ? cp_rank : 2 * ex->dims.n_cp - 1 - cp_rank;
    return place * mw_context_piece(ex);
}

struct mw_run mw_run_at(const struct mw_exec *ex, int row)
{
    int n_parts = ex->dims.n_parts;
    int in_seq = row % (ex->dims.seq / (ex->dims.n_cp * n_parts));
    if (n_parts > 1) {
        int n = ex->dims.seq / n_parts;
        return (struct mw_run){ex->part * n + in_seq, n - in_seq};
    }
    int len = mw_context_piece(ex);
    int first = mw_context_first(ex, ex->at.cp, in_seq / len);
    return (struct mw_run){first + in_seq % len, len - in_seq % len};
}

static struct mw_cp_set set_of(const struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    int n = mw_context_ways(&ex->job->layout);
    return (struct mw_cp_set){.n_deal = n,
                              .n_sets = d->n_cp / n,
                              .index = ex->at.cp / n,
                              .piece = mw_context_piece(ex) * n,
                              .rows = d->rows * n,
                              .q_width = d->q_width / n,
                              .kv_width = d->kv_width / n,
                              .n_heads = d->n_heads / n};
}

int mw_context_set_first(const struct mw_exec *ex, int set, int i)
{
    const struct mw_cp_set *s = &ex->cp_set;
    return (i == 0 ? set : 2 * s->n_sets - 1 - set) * s->piece;
}

/* ---- what the forms share ----------------------------------------------- */
void mw_context_pack(struct mw_exec *ex, void *block, const void *k,
                     const void *v, int ld, bool is_out)
{
    size_t el = ex->dev->elem_bytes, half = (size_t)ex->cp_set.kv_width / 2;
    for (int i = 0; i < 2; i++) {
        struct mw_dev_rows own = {(void *)(uintptr_t)(i ? v : k),
                                  (size_t)ld * el};
        struct mw_dev_rows packed = {mw_dev_at(ex->dev, block, i ? half : 0),
                                     2 * half * el};
        ex->dev->ops->copy_rows(ex->dev, is_out ? own : packed,
                                is_out ? packed : own, ex->cp_set.rows,
                                half * el);
    }
}

struct mw_rec_event mw_context_event(const struct mw_exec *ex, const char *name,
                                     enum mw_coll_op coll, size_t n)
{
    return (struct mw_rec_event){.type = MW_REC_COLL,
                                 .span = MW_SPAN_CP,
                                 .name = name,
                                 .microbatch = ex->rec->label.microbatch,
                                 .stage = ex->rec->label.stage,
                                 .bytes =
                                     (double)n * (double)ex->dev->elem_bytes,
                                 .dim = MW_DIM_CP,
                                 .coll = coll};
}

void mw_context_alloc(struct mw_exec *ex, int i, size_t n)
{
    ex->cp_bytes[i] = n * ex->dev->elem_bytes;
    ex->cp_mem[i] = ex->dev->ops->alloc(ex->dev, ex->cp_bytes[i]);
}

/* ---- the form ----------------------------------------------------------- */
void mw_context_open(struct mw_exec *ex)
{
    if (ex->dims.n_cp == 1) {
        return;
    }
    ex->cp_set = set_of(ex);
    if (ex->dims.is_dealt) {
        mw_heads_open(ex);
    }
    switch (ex->job->layout.cp_form) {
    case MW_CP_GATHER:
        mw_gather_open(ex);
        break;
    case MW_CP_RING:
        mw_ring_open(ex);
        break;
    case MW_CP_PASSQ:
        mw_query_open(ex);
        break;
    case MW_CP_A2A:
        break;
    }
}

void mw_context_close(struct mw_exec *ex)
{
    for (int i = 0; i < MW_CP_PIECES; i++) {
        if (ex->cp_mem[i]) {
            ex->dev->ops->free(ex->dev, ex->cp_mem[i], ex->cp_bytes[i]);
        }
    }
}

enum mw_status mw_context_set_forward(struct mw_exec *ex,
                                      const struct mw_dev_attention *a)
{
    switch (ex->job->layout.cp_form) {
    case MW_CP_GATHER:
        return mw_gather_forward(ex, a);
    case MW_CP_RING:
        return mw_ring_forward(ex, a);
    case MW_CP_A2A:
        ex->dev->ops->attention_fwd(ex->dev, a);
        break;
    case MW_CP_PASSQ:
        return mw_query_forward(ex, a);
    }
    return MW_OK;
}

enum mw_status mw_context_set_backward(struct mw_exec *ex,
                                       const struct mw_block_fwd *f,
                                       const struct mw_dev_attention *a)
{
    switch (ex->job->layout.cp_form) {
    case MW_CP_GATHER:
        return mw_gather_backward(ex, f, a);
    case MW_CP_RING:
        return mw_ring_backward(ex, a);
    case MW_CP_A2A:
        ex->dev->ops->attention_bwd(ex->dev, a);
        break;
    case MW_CP_PASSQ:
        return mw_query_backward(ex, a);
    }
    return MW_OK;
}

enum mw_status mw_context_forward(struct mw_exec *ex,
                                  const struct mw_block_fwd *f,
                                  const struct mw_dev_attention *a)
{
    return ex->dims.is_dealt ? mw_heads_forward(ex, f, a)
                             : mw_context_set_forward(ex, a);
}

enum mw_status mw_context_backward(struct mw_exec *ex,
                                   const struct mw_block_fwd *f,
                                   const struct mw_dev_attention *a)
{
    return ex->dims.is_dealt ? mw_heads_backward(ex, f, a)
                             : mw_context_set_backward(ex, f, a);
}
