/*
 * Buckets (layout: bucket_size): a unit's gradients are reduced, and with
 * ZeRO-1 its weights gathered, so many elements at a time, as
 * sim/step/buckets.c prices it and the ledger counts it. Of n elements that
 * tensors have,
 *
 *   k = ceil(n / bucket_size)     pieces, equal but for rounding
 *
 * A piece of an all-reduce is consecutive. Under ZeRO-1 a rank owns
 * consecutive elements, so a piece is the same part of each rank's: the parts
 * are laid side by side in a buffer of their own, reduced or gathered there,
 * and laid back. Each element meets the same ranks in the same order as in one
 * message.
 *
 *   unit    |. . a . . .|. . b . . .|          piece 1 of 3, two ranks
 *   buffer  |a b|
 */
#include "exec/exec_int.h"

static size_t ranks_of(const struct mw_exec *ex, const struct mw_unit *u)
{
    return (size_t)mw_unit_group(ex, u)->size;
}

/* No piece is less than an element of each rank. */
static size_t pieces_of(const struct mw_exec *ex, const struct mw_unit *u)
{
    size_t size = (size_t)ex->job->layout.bucket_size;
    size_t n = size > 0 ? (u->n_used + size - 1) / size : 1;
    size_t most = ranks_of(ex, u) > 1 ? u->n / ranks_of(ex, u) : 1;
    return n < 1 ? 1 : n > most ? most : n;
}

/* Piece i of k of n elements. */
static struct mw_piece piece_of(size_t i, size_t k, size_t n)
{
    size_t first = n * i / k;
    return (struct mw_piece){first, n * (i + 1) / k - first, 1.0 / (double)k};
}

/* Between the unit, whose elements begin at `flat`, and the buffer. */
static void lay(struct mw_exec *ex, const struct mw_unit *u,
                const struct mw_piece *piece, size_t elem_bytes, void *buffer,
                void *flat, bool is_back)
{
    size_t own = u->n / ranks_of(ex, u), bytes = piece->n * elem_bytes;
    for (size_t r = 0; r < ranks_of(ex, u); r++) {
        char *in_unit = (char *)flat + (own * r + piece->first) * elem_bytes;
        char *in_buffer = (char *)buffer + r * bytes;
        ex->dev->ops->copy(ex->dev, is_back ? in_unit : in_buffer,
                           is_back ? in_buffer : in_unit, bytes);
    }
}

static enum mw_status share_piece(struct mw_exec *ex, const char *name,
                                  const struct mw_unit *u, bool is_gather,
                                  const struct mw_piece *piece, void *buffer,
                                  void *flat)
{
    size_t own = u->n / ranks_of(ex, u);
    size_t rank = (size_t)mw_unit_group(ex, u)->rank;
    size_t elem_bytes = is_gather ? ex->dev->elem_bytes : sizeof(float);
    lay(ex, u, piece, elem_bytes, buffer, flat, false);
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    MW_TRY(mw_unit_collective(ex, name, u, is_gather, piece, buffer));
    lay(ex, u, piece, elem_bytes, buffer, flat, true);
    return is_gather
               ? MW_OK
               : mw_unit_add_copies(ex, u, piece,
                                    (float *)flat + own * rank + piece->first);
}

/* Reduce-scatter or all-gather of a unit that is split, at flat. */
static enum mw_status share_unit(struct mw_exec *ex, const char *name,
                                 const struct mw_unit *u, bool is_gather,
                                 void *flat)
{
    size_t own = u->n / ranks_of(ex, u), k = pieces_of(ex, u);
    size_t rank = (size_t)mw_unit_group(ex, u)->rank;
    size_t bytes = (own / k + 1) * ranks_of(ex, u) * sizeof(float);
    enum mw_status st = MW_OK;
    if (k == 1) {
        struct mw_piece all = {0, own, 1};
        MW_TRY(mw_unit_collective(ex, name, u, is_gather, &all, flat));
        return is_gather ? MW_OK
                         : mw_unit_add_copies(ex, u, &all,
                                              (float *)flat + own * rank);
    }
    void *buffer = ex->dev->ops->alloc(ex->dev, bytes);
    for (size_t i = 0; i < k && st == MW_OK; i++) {
        struct mw_piece piece = piece_of(i, k, own);
        st = share_piece(ex, name, u, is_gather, &piece, buffer, flat);
    }
    ex->dev->ops->sync(ex->dev, NULL);
    ex->dev->ops->free(ex->dev, buffer, bytes);
    return st;
}

enum mw_status mw_unit_gather(struct mw_exec *ex, const struct mw_unit *u)
{
    return share_unit(ex, "weights", u, true,
                      mw_dev_at(ex->dev, ex->w, u->offset));
}

enum mw_status mw_unit_reduce(struct mw_exec *ex, const struct mw_unit *u)
{
    const char *name = u->is_expert ? "expert gradients" : "gradients";
    size_t k = pieces_of(ex, u);
    if (ex->job->layout.zero > 0) {
        return share_unit(ex, name, u, false, ex->g + u->offset);
    }
    for (size_t i = 0; i < k; i++) {
        struct mw_piece piece = piece_of(i, k, u->n);
        MW_TRY(mw_unit_all_reduce(ex, name, u, &piece));
    }
    return MW_OK;
}
