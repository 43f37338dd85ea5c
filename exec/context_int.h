/*
 * Inside of context parallelism: where pieces of sequences are, and the three
 * forms in which ranks attend to each other's tokens.
 *
 *   gather   context_gather.c   keys and values of all ranks before the core
 *   ring     context_ring.c     blocks of them pass by, one a step
 *   pass_q   context_query.c    blocks of queries pass by instead
 *   a2a      context_heads.c    whole sequences of a part of the heads
 *
 * cp_inner is a2a among neighbours around one of the others.
 */
#ifndef MW_EXEC_CONTEXT_INT_H
#define MW_EXEC_CONTEXT_INT_H

#include "exec/exec_int.h"

/* Tokens of a piece: half of what a rank has of a sequence. */
int mw_context_piece(const struct mw_exec *ex);
/* Where piece i (0 or 1) of a CP rank begins in the sequence. */
int mw_context_first(const struct mw_exec *ex, int cp_rank, int i);
/* The same of a set of ranks that deal out heads. */
int mw_context_set_first(const struct mw_exec *ex, int set, int i);
/* The core of what a set has, `a` of its own heads: with the other sets. */
enum mw_status mw_context_set_forward(struct mw_exec *ex,
                                      const struct mw_dev_attention *a);
enum mw_status mw_context_set_backward(struct mw_exec *ex,
                                       const struct mw_block_fwd *f,
                                       const struct mw_dev_attention *a);
static inline void *mw_context_row(const struct mw_exec *ex, const void *p,
                                   int row, int ld)
{
    return mw_dev_at(ex->dev, p, (size_t)row * (size_t)ld);
}
/* Keys and values, rows ld apart, into a packed block [rows][kv_width], or out
 * of it. */
void mw_context_pack(struct mw_exec *ex, void *block, const void *k,
                     const void *v, int ld, bool is_out);
/* A message of the group around `call` is noted as this. */
struct mw_rec_event mw_context_event(const struct mw_exec *ex, const char *name,
                                     enum mw_coll_op coll, size_t n);
/* Piece i of cp_mem, `n` elements. */
void mw_context_alloc(struct mw_exec *ex, int i, size_t n);

void mw_gather_open(struct mw_exec *ex);
enum mw_status mw_gather_forward(struct mw_exec *ex,
                                 const struct mw_dev_attention *a);
enum mw_status mw_gather_backward(struct mw_exec *ex,
                                  const struct mw_block_fwd *f,
                                  const struct mw_dev_attention *a);

/* Queries of one set and keys of another that meet, rows within a sequence; all
 * keys from `first` on are older than the first query. */
struct mw_meeting {
    int row, n_queries, n_keys, first;
};
struct mw_meeting mw_context_meet(const struct mw_exec *ex, int queries,
                                  int keys);
/* Whose block is here in a step of a ring. */
static inline int mw_context_visitor(const struct mw_exec *ex, int step)
{
    int n = ex->cp_set.n_sets;
    return (ex->cp_set.index - step + n) % n;
}
/* n elements of piece `which` of cp_mem go to the next set; those of the one
 * before come, by way of piece which + 1. */
enum mw_status mw_context_pass_on(struct mw_exec *ex, int which, size_t n,
                                  const char *name, int tag);

void mw_query_open(struct mw_exec *ex);
enum mw_status mw_query_forward(struct mw_exec *ex,
                                const struct mw_dev_attention *a);
enum mw_status mw_query_backward(struct mw_exec *ex,
                                 const struct mw_dev_attention *a);

void mw_ring_open(struct mw_exec *ex);
enum mw_status mw_ring_forward(struct mw_exec *ex,
                               const struct mw_dev_attention *a);
enum mw_status mw_ring_backward(struct mw_exec *ex,
                                const struct mw_dev_attention *a);

void mw_heads_open(struct mw_exec *ex);
enum mw_status mw_heads_forward(struct mw_exec *ex,
                                const struct mw_block_fwd *f,
                                const struct mw_dev_attention *a);
enum mw_status mw_heads_backward(struct mw_exec *ex,
                                 const struct mw_block_fwd *f,
                                 const struct mw_dev_attention *a);
/* q and kv of the own tokens stand in memory of all blocks: only the heads'
 * are kept. */
void mw_context_lend_tokens(const struct mw_exec *ex, struct mw_block_fwd *f);

#endif
