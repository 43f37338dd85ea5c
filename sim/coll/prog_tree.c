/* Programs over trees and over pairs at powers of two; see prog_build.c. */
#include "sim/coll/prog_int.h"

#include "sim/coll/nccl.h"

/* ---- trees ---- */

struct prog_after prog_stream(struct prog_draft *d, int rank, int send,
                              int recv, int channel, enum mw_prog_kind kind,
                              int first, int count, struct prog_after after)
{
    int lane = prog_add_lane(d, rank, send, recv, channel);
    bool is_switch = rank >= d->n;

    for (int c = 0; c < count; c++) {
        struct mw_prog_step *s =
            prog_add_step(d, rank, lane, kind, first + c, first + c, 1);

        if (is_switch) {
            s->src_buf = s->dst_buf = MW_BUF_SCRATCH;
        }
        if (after.lane >= 0) {
            s->dep_lane = after.lane;
            s->dep_step = after.step + c;
        }
    }
    return (struct prog_after){lane, 0};
}

/* A rank's children in turn, so that the sums of one chunk come one by one;
 * then its parent; then its children again. */
static void add_tree_rank(struct prog_draft *d, const struct prog_tree *t,
                          int rank)
{
    int up = t->parent[rank];
    struct prog_after at = t->ready ? t->ready[rank] : PROG_NOTHING;

    for (int k = 0; t->up && k < d->n; k++) {
        if (t->parent[k] == rank) {
            at = prog_stream(d, rank, -1, k, t->channel, MW_STEP_RECV_REDUCE,
                             t->first, t->count, at);
        }
    }
    if (t->up && up >= 0) {
        at = prog_stream(d, rank, up, -1, t->channel, MW_STEP_SEND, t->first,
                         t->count, at);
    }
    if (t->down && up >= 0) {
        at = prog_stream(d, rank, -1, up, t->channel, MW_STEP_RECV, t->first,
                         t->count, at);
    }
    if (t->done) {
        t->done[rank] = at;
    }
    for (int k = 0; t->down && k < d->n; k++) {
        if (t->parent[k] == rank) {
            prog_stream(d, rank, k, -1, t->channel, MW_STEP_SEND, t->first,
                        t->count, at);
        }
    }
}

void prog_add_tree(struct prog_draft *d, const struct prog_tree *t)
{
    for (int r = 0; r < d->n; r++) {
        if (t->parent[r] != -2) {
            add_tree_rank(d, t, r);
        }
    }
}

/* Binomial tree: parent clears the lowest set bit, relative to the root. */
void prog_build_tree(struct prog_draft *d)
{
    int *parent = mw_arena_alloc(&d->prog->arena, (size_t)d->n, sizeof *parent);
    for (int i = 0; i < d->n; i++) {
        int v = i & (i - 1);
        parent[prog_mod(i + d->spec->root, d->n)] =
            i == 0 ? -1 : prog_mod(v + d->spec->root, d->n);
    }
    enum mw_prog_op op = d->spec->op;
    struct prog_tree t = {
        .parent = parent,
        .count = d->chunks,
        .up = op == MW_PROG_ALL_REDUCE || op == MW_PROG_REDUCE,
        .down = op == MW_PROG_ALL_REDUCE || op == MW_PROG_BROADCAST};
    prog_add_tree(d, &t);
}

void prog_build_double_tree(struct prog_draft *d)
{
    int half = d->chunks / 2;
    for (int t = 0; t < 2; t++) {
        int *parent =
            mw_arena_alloc(&d->prog->arena, (size_t)d->n, sizeof *parent);
        for (int r = 0; r < d->n; r++) {
            struct mw_nccl_tree_node node[2];
            mw_nccl_double_tree(d->n, r, node);
            parent[r] = node[t].up;
        }
        struct prog_tree tree = {.parent = parent,
                                 .first = t * half,
                                 .count = t ? d->chunks - half : half,
                                 .channel = t,
                                 .up = true,
                                 .down = true};
        prog_add_tree(d, &tree);
    }
}

/* ---- powers of two ---- */

static void exchange(struct prog_draft *d, int r, int peer,
                     enum mw_prog_kind kind, int send, int recv, int count)
{
    /* Sums on channel 0, copies on 1: the peers meet again. */
    int lane = prog_add_lane(d, r, peer, peer, kind == MW_STEP_RECV ? 1 : 0);
    int last = lane - 1;
    struct mw_prog_step *s =
        prog_add_step(d, r, lane, MW_STEP_SEND, send, 0, count);
    if (last >= 0) { /* one exchange after the other */
        s->dep_lane = last;
        s->dep_step = (int)d->lane[r].v[last].step.n - 1;
    }
    prog_add_step(d, r, lane, kind, 0, recv, count);
}

void prog_build_halving_doubling(struct prog_draft *d)
{
    int n = d->n;
    enum mw_prog_op op = d->spec->op;
    for (int r = 0; r < n; r++) {
        int lo = 0, width = n;
        for (int bit = n / 2; bit >= 1 && op != MW_PROG_ALL_GATHER; bit /= 2) {
            int peer = r ^ bit, half = width / 2;
            bool upper = (r & bit) != 0;
            exchange(d, r, peer, MW_STEP_RECV_REDUCE, lo + (upper ? 0 : half),
                     lo + (upper ? half : 0), half);
            lo += upper ? half : 0;
            width = half;
        }
        lo = r;
        width = 1;
        for (int bit = 1; bit < n && op != MW_PROG_REDUCE_SCATTER; bit *= 2) {
            int peer = r ^ bit;
            int other = lo ^ bit;
            exchange(d, r, peer, MW_STEP_RECV, lo, other, width);
            lo = lo < other ? lo : other;
            width *= 2;
        }
    }
}

/* All data in every exchange: the peer's sum is added. Received into scratch
 * first, because what is sent must be the old value. */
void prog_build_recursive_doubling(struct prog_draft *d)
{
    int n = d->n;
    if (d->spec->op == MW_PROG_ALL_GATHER) {
        prog_build_halving_doubling(d);
        return;
    }
    for (int r = 0; r < n; r++) {
        int lane = -1, step = -1;
        for (int bit = 1; bit < n; bit *= 2) {
            int l = prog_add_lane(d, r, r ^ bit, r ^ bit, 0);
            struct mw_prog_step *s =
                prog_add_step(d, r, l, MW_STEP_SEND, 0, 0, d->chunks);
            s->dep_lane = lane;
            s->dep_step = step;
            prog_add_step(d, r, l, MW_STEP_RECV_REDUCE, 0, 0, d->chunks);
            lane = l;
            step = 1;
        }
    }
}
