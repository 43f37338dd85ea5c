/* Programs over trees and over pairs at powers of two; see prog_build.c. */
#include "sim/coll/prog_int.h"

#include "sim/coll/nccl.h"

/* ---- trees ---- */

/* Chunks [first, first + count) up a tree and down again; one lane per edge
 * and direction. parent[r] -1: root. */
static void tree_up_down(struct prog_draft *d, const int *parent, int first,
                         int count, bool up, bool down, int channel)
{
    int n = d->n;
    for (int r = 0; r < n; r++) {
        int kids[64], lanes[64], n_kids = 0;
        for (int k = 0; k < n && n_kids < 64; k++) {
            if (parent[k] == r) {
                kids[n_kids++] = k;
            }
        }
        int up_lane = -1;
        for (int i = 0; up && i < n_kids; i++) {
            lanes[i] = prog_add_lane(d, r, -1, kids[i], channel);
            for (int c = 0; c < count; c++) {
                struct mw_prog_step *s = prog_add_step(
                    d, r, lanes[i], MW_STEP_RECV_REDUCE, 0, first + c, 1);
                if (i >
                    0) { /* children in turn: sums of one chunk one by one */
                    s->dep_lane = lanes[i - 1];
                    s->dep_step = c;
                }
            }
        }
        if (up && parent[r] >= 0) {
            up_lane = prog_add_lane(d, r, parent[r], -1, channel);
            for (int c = 0; c < count; c++) {
                struct mw_prog_step *s =
                    prog_add_step(d, r, up_lane, MW_STEP_SEND, first + c, 0, 1);
                if (n_kids > 0) {
                    s->dep_lane = lanes[n_kids - 1];
                    s->dep_step = c;
                }
            }
        }
        int recv_lane = -1;
        if (down && parent[r] >= 0) {
            recv_lane = prog_add_lane(d, r, -1, parent[r], channel);
            for (int c = 0; c < count; c++) {
                struct mw_prog_step *s = prog_add_step(
                    d, r, recv_lane, MW_STEP_RECV, 0, first + c, 1);
                if (up_lane >= 0) {
                    s->dep_lane = up_lane;
                    s->dep_step = c;
                }
            }
        }
        for (int i = 0; down && i < n_kids; i++) {
            int lane = prog_add_lane(d, r, kids[i], -1, channel);
            int wait = recv_lane >= 0 ? recv_lane : up ? lanes[n_kids - 1] : -1;
            for (int c = 0; c < count; c++) {
                struct mw_prog_step *s =
                    prog_add_step(d, r, lane, MW_STEP_SEND, first + c, 0, 1);
                s->dep_lane = wait;
                s->dep_step = wait >= 0 ? c : -1;
            }
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
    tree_up_down(d, parent, 0, d->chunks,
                 op == MW_PROG_ALL_REDUCE || op == MW_PROG_REDUCE,
                 op == MW_PROG_ALL_REDUCE || op == MW_PROG_BROADCAST, 0);
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
        tree_up_down(d, parent, t * half, t ? d->chunks - half : half, true,
                     true, t);
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
