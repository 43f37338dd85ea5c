/*
 * Communication between ranks: one small table of functions, so that the
 * interpreter does not know what carries the bytes: "mpi", "local" (threads of
 * one process), "nccl" (in the module of the CUDA device).
 *
 * Buffers are the device's. Collectives are in place and blocking; sends are
 * not (the buffer is untouched until `wait`), receives are. Counts are
 * elements. Every member of a communicator makes the same calls in the same
 * order. A library's error comes back as MW_EBACKEND in its own words.
 */
#ifndef MW_EXEC_COMM_H
#define MW_EXEC_COMM_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mw_elem { MW_ELEM_F32, MW_ELEM_F64, MW_ELEM_I64, MW_ELEM_BF16 };
enum mw_reduce { MW_REDUCE_SUM, MW_REDUCE_MAX };

struct mw_comm_ops;

/* A communicator: a set of ranks, and ours among them. */
struct mw_comm {
    const struct mw_comm_ops *ops;
    int rank, size;
    /* Of a world: which of its machine's devices this rank takes; 0 where all
     * ranks share one. */
    int device;
};

static inline size_t mw_elem_bytes(enum mw_elem elem)
{
    return elem == MW_ELEM_BF16 ? 2 : elem == MW_ELEM_F32 ? 4 : 8;
}

/* A send under way; zero: none. */
struct mw_send {
    void *handle;
};

struct mw_comm_ops {
    const char *name;
    /* Those of `parent` that give the same color, ordered by key. */
    enum mw_status (*split)(struct mw_comm *parent, int color, int key,
                            struct mw_comm **out, struct mw_err *err);
    void (*free)(struct mw_comm *comm);
    enum mw_status (*all_reduce)(struct mw_comm *comm, void *buf, size_t n,
                                 enum mw_elem elem, enum mw_reduce op,
                                 struct mw_err *err);
    /* buf holds size blocks of n; ours is filled before, all after. */
    enum mw_status (*all_gather)(struct mw_comm *comm, void *buf, size_t n,
                                 enum mw_elem elem, struct mw_err *err);
    /* buf holds size blocks of n; our block is the sum afterwards, the others
     * are undefined. */
    enum mw_status (*reduce_scatter)(struct mw_comm *comm, void *buf, size_t n,
                                     enum mw_elem elem, struct mw_err *err);
    /* Block r of `from`, n elements, goes to rank r; block r of `to` comes from
     * it. */
    enum mw_status (*all_to_all)(struct mw_comm *comm, const void *from,
                                 void *to, size_t n, enum mw_elem elem,
                                 struct mw_err *err);
    /* Block r of `from`, n_from[r] elements, goes to rank r; block r of `to`,
     * n_to[r], comes from it. Blocks follow each other. NULL: not there. */
    enum mw_status (*all_to_all_v)(struct mw_comm *comm, const void *from,
                                   const size_t *n_from, void *to,
                                   const size_t *n_to, enum mw_elem elem,
                                   struct mw_err *err);
    /* As all_gather and reduce_scatter, with blocks of n[r] for rank r. NULL:
     * not there. */
    enum mw_status (*all_gather_v)(struct mw_comm *comm, void *buf,
                                   const size_t *n, enum mw_elem elem,
                                   struct mw_err *err);
    enum mw_status (*reduce_scatter_v)(struct mw_comm *comm, void *buf,
                                       const size_t *n, enum mw_elem elem,
                                       struct mw_err *err);
    enum mw_status (*send)(struct mw_comm *comm, const void *buf, size_t n,
                           enum mw_elem elem, int peer, int tag,
                           struct mw_send *out, struct mw_err *err);
    enum mw_status (*recv)(struct mw_comm *comm, void *buf, size_t n,
                           enum mw_elem elem, int peer, int tag,
                           struct mw_err *err);
    /* Ends a send and clears it; nothing to do for a zero one. */
    enum mw_status (*wait)(struct mw_comm *comm, struct mw_send *send,
                           struct mw_err *err);
    /* Has the send ended? Then it is cleared. NULL: wait never blocks. */
    bool (*test)(struct mw_comm *comm, struct mw_send *send);
    enum mw_status (*barrier)(struct mw_comm *comm, struct mw_err *err);
    /* Bytes of rank `root` to all: small control data. */
    enum mw_status (*broadcast)(struct mw_comm *comm, void *buf, size_t bytes,
                                int root, struct mw_err *err);
    /* All members' `bytes` to root, in rank order; out is NULL elsewhere. */
    enum mw_status (*gather)(struct mw_comm *comm, const void *buf,
                             size_t bytes, void *out, int root,
                             struct mw_err *err);
};

/* The world of this MPI job; free it with ops->free. */
enum mw_status mw_comm_mpi_world(struct mw_comm **out, struct mw_err *err);

/*
 * `fn` once for each of n ranks, in n threads of this process of which one runs
 * at a time, each with its end of one world of communicators "local". Returns
 * when all have returned; MW_EFAILED when a thread could not be made (the
 * others' waits then fail). The worlds are freed here.
 */
typedef void (*mw_local_fn)(struct mw_comm *world, void *arg);
enum mw_status mw_comm_local_run(int n_ranks, mw_local_fn fn, void *arg,
                                 struct mw_err *err);
/* This rank gives up: the others' waits fail with its words (MW_EBACKEND). */
void mw_comm_local_abort(struct mw_comm *comm, const struct mw_err *reason);

#endif
