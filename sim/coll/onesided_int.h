/* Private to MSCCL++ plans. */
#ifndef MW_SIM_COLL_ONESIDED_INT_H
#define MW_SIM_COLL_ONESIDED_INT_H

#include "sim/coll/onesided.h"

enum oneside_kind {
    ONE_NOP,    /* nop, flush */
    ONE_MOVE,   /* copy put get pws pwsf, packets */
    ONE_REDUCE, /* sum of the sources into every destination */
    ONE_SIGNAL,
    ONE_WAIT,
    ONE_BARRIER
};
struct oneside_ref {
    int32_t rank, buf, index, size;
};
struct oneside_op {
    uint8_t kind;
    bool signals;     /* pws, pwsf */
    bool waits_data;  /* reads packets */
    const char *name; /* as in the file */
    int n_src, n_dst, n_counters;
    struct oneside_ref *src, *dst;
    int *counter; /* to raise (signal) or to take from (wait) */
    int barrier, n_blocks;
};
struct oneside_block {
    int n_ops;
    struct oneside_op *op;
};
struct oneside_rank {
    int n_blocks, n_barriers;
    struct oneside_block *block;
};
struct mw_oneside {
    struct mw_arena arena;
    struct mw_prog shape; /* ranks with buffers, no lanes */
    struct oneside_rank *rank;
    int n_counters;
    int *counter_init, *counter_rank; /* who waits on it */
    int *counter_peer;                /* who raises it; itself: a semaphore */
};

#endif
