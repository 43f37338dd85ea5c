/*
 * Bruck's programs: ceil(log2 n) rounds for any n, at distances 1 2 4 ...
 *
 *   all-gather      round d: everything held so far goes to r - d; rank r then
 *                   holds blocks r, r + 1, ..., r + 2 d - 1
 *   reduce-scatter  the same backwards: from the largest distance, the sums of
 *                   blocks r + d, ... go to r + d
 *   all-to-all      block j travels by the bits of j; each is sent up to log2 n
 *                   times, packed into one message a round
 *
 * and PAT's, with the distances of the all-gather from the largest down and of
 * the reduce-scatter from 1 up: far messages are small. Blocks of a round are
 * not neighbours and are packed into one message. NCCL's limit of its buffers,
 * from which on PAT goes on linearly, is left out.
 *
 * Sources: Bruck et al., IEEE TPDS 8(11), 1997; Jeaugey, "PAT: a new algorithm
 * for all-gather and reduce-scatter operations at scale", arXiv 2506.20252.
 */
#include "sim/coll/prog_int.h"

/* The lane of a round; its first step waits for the last of the one before. */
struct rounds {
    int rank, lane;
    int last_lane, last_step; /* -1: none */
};

static void next_round(struct prog_draft *d, struct rounds *at, int send,
                       int recv)
{
    if (at->lane >= 0) {
        at->last_lane = at->lane;
        at->last_step = (int)d->lane[at->rank].v[at->lane].step.n - 1;
    }
    at->lane = prog_add_lane(d, at->rank, send, recv, 0);
}

static struct mw_prog_step *add(struct prog_draft *d, struct rounds *at,
                                enum mw_prog_kind kind, int src, int dst,
                                int count)
{
    struct mw_prog_step *s =
        prog_add_step(d, at->rank, at->lane, kind, src, dst, count);
    s->dep_lane = at->last_lane;
    s->dep_step = at->last_step;
    at->last_lane = at->last_step = -1;
    return s;
}

static int blocks_at(int dist, int n)
{
    return dist < n - dist ? dist : n - dist;
}

/* Blocks first, first + 1, ... modulo n: two steps where they wrap. */
static void move(struct prog_draft *d, struct rounds *at,
                 enum mw_prog_kind kind, int first, int count)
{
    first = prog_mod(first, d->n);
    int until_wrap = d->n - first;
    int part = count < until_wrap ? count : until_wrap;
    add(d, at, kind, first, first, part);
    if (part < count) {
        add(d, at, kind, 0, 0, count - part);
    }
}

static void gather(struct prog_draft *d, struct rounds *at)
{
    int n = d->n, r = at->rank;
    for (int dist = 1; dist < n; dist *= 2) {
        int count = blocks_at(dist, n);
        next_round(d, at, prog_mod(r - dist, n), prog_mod(r + dist, n));
        move(d, at, MW_STEP_SEND, r, count);
        move(d, at, MW_STEP_RECV, r + dist, count);
    }
}

static void scatter_sums(struct prog_draft *d, struct rounds *at)
{
    int n = d->n, r = at->rank, dist = 1;
    while (2 * dist < n) {
        dist *= 2;
    }
    for (; dist >= 1; dist /= 2) {
        int count = blocks_at(dist, n);
        next_round(d, at, prog_mod(r + dist, n), prog_mod(r - dist, n));
        move(d, at, MW_STEP_SEND, r + dist, count);
        move(d, at, MW_STEP_RECV_REDUCE, r, count);
    }
}

static void copy(struct prog_draft *d, struct rounds *at, int src_buf, int src,
                 int dst_buf, int dst)
{
    struct mw_prog_step *s = add(d, at, MW_STEP_COPY, src, dst, 1);
    s->src_buf = (uint8_t)src_buf;
    s->dst_buf = (uint8_t)dst_buf;
}

/* Scratch: n blocks under way, n packed to send, n received. */
static void exchange(struct prog_draft *d, struct rounds *at)
{
    int n = d->n, r = at->rank;
    next_round(d, at, -1, -1);
    for (int j = 0; j < n; j++) {
        copy(d, at, MW_BUF_INPUT, prog_mod(r + j, n), MW_BUF_SCRATCH, j);
    }
    for (int dist = 1; dist < n; dist *= 2) {
        int count = 0, k = 0;
        next_round(d, at, prog_mod(r + dist, n), prog_mod(r - dist, n));
        for (int j = 0; j < n; j++) {
            if (j & dist) {
                copy(d, at, MW_BUF_SCRATCH, j, MW_BUF_SCRATCH, n + count++);
            }
        }
        add(d, at, MW_STEP_SEND, n, 0, count)->src_buf = MW_BUF_SCRATCH;
        add(d, at, MW_STEP_RECV, 0, 2 * n, count)->dst_buf = MW_BUF_SCRATCH;
        for (int j = 0; j < n; j++) {
            if (j & dist) {
                copy(d, at, MW_BUF_SCRATCH, 2 * n + k++, MW_BUF_SCRATCH, j);
            }
        }
    }
    next_round(d, at, -1, -1);
    for (int j = 0; j < n; j++) {
        copy(d, at, MW_BUF_SCRATCH, j, MW_BUF_OUTPUT, prog_mod(r - j, n));
    }
}

void prog_build_bruck(struct prog_draft *d)
{
    for (int r = 0; r < d->n; r++) {
        struct rounds at = {
            .rank = r, .lane = -1, .last_lane = -1, .last_step = -1};
        if (d->spec->op == MW_PROG_ALL_GATHER) {
            gather(d, &at);
        } else if (d->spec->op == MW_PROG_REDUCE_SCATTER) {
            scatter_sums(d, &at);
        } else {
            exchange(d, &at);
        }
    }
}

/* ---- PAT ---- */

static int largest_distance(int n)
{
    int dist = 1;

    while (2 * dist < n) {
        dist *= 2;
    }
    return dist;
}

/* One message of the blocks base - s, for s = 0, 2 dist, 4 dist ... with
 * s + dist < n, to or from scratch at `slot`; returns how many there are. */
static int pack(struct prog_draft *d, struct rounds *at, int base, int dist,
                int slot)
{
    int count = 0;

    for (int s = 0; s + dist < d->n; s += 2 * dist) {
        copy(d, at, MW_BUF_OUTPUT, prog_mod(base - s, d->n), MW_BUF_SCRATCH,
             slot + count++);
    }
    return count;
}

static void unpack(struct prog_draft *d, struct rounds *at, int base, int dist,
                   int slot)
{
    bool is_sum = d->spec->op == MW_PROG_REDUCE_SCATTER;

    for (int s = 0; s + dist < d->n; s += 2 * dist) {
        struct mw_prog_step *st =
            add(d, at, is_sum ? MW_STEP_REDUCE : MW_STEP_COPY, slot++,
                prog_mod(base - s, d->n), 1);

        st->src_buf = MW_BUF_SCRATCH;
        st->dst_buf = MW_BUF_OUTPUT;
    }
}

/* A block b has come to b + s for the s that are sums of the distances so far.
 * The reduce-scatter is the same backwards in time. */
static void pat_round(struct prog_draft *d, struct rounds *at, int dist)
{
    int n = d->n, r = at->rank;
    bool is_gather = d->spec->op == MW_PROG_ALL_GATHER;
    int to = prog_mod(is_gather ? r + dist : r - dist, n);
    int from = prog_mod(is_gather ? r - dist : r + dist, n);

    next_round(d, at, to, from);
    int count = pack(d, at, is_gather ? r : r - dist, dist, 0);
    add(d, at, MW_STEP_SEND, 0, 0, count)->src_buf = MW_BUF_SCRATCH;
    add(d, at, MW_STEP_RECV, 0, n, count)->dst_buf = MW_BUF_SCRATCH;
    unpack(d, at, is_gather ? r - dist : r, dist, n);
}

void prog_build_pat(struct prog_draft *d)
{
    int far = largest_distance(d->n);

    for (int r = 0; r < d->n; r++) {
        struct rounds at = {
            .rank = r, .lane = -1, .last_lane = -1, .last_step = -1};

        if (d->spec->op == MW_PROG_ALL_GATHER) {
            for (int dist = far; dist >= 1; dist /= 2) {
                pat_round(d, &at, dist);
            }
        } else {
            for (int dist = 1; dist <= far; dist *= 2) {
                pat_round(d, &at, dist);
            }
        }
    }
}
