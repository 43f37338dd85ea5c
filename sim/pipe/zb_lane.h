/*
 * The inner loop shared by evaluation and W insertion: when may a pass start,
 * and what happens when it ends. A pass's micro-batch is the count of its kind
 * so far, so an input has arrived when the neighbour's count is larger.
 */
#ifndef MW_SIM_PIPE_ZB_LANE_H
#define MW_SIM_PIPE_ZB_LANE_H

#include "sim/pipe/zb_int.h"

/* A device in a run. */
struct mw_zb_lane {
    mw_time t;    /* free from */
    mw_time idle; /* since its first pass */
    int64_t memory;
    int at;         /* next code of its list */
    int n_queued;   /* B passes so far, in the queue of W */
    int n_drained;  /* W passes so far */
    int n_forwards; /* F passes so far, all chunks */
};

void mw_zb_run_reset(const struct mw_zb *z, struct mw_zb_run *r);
mw_time mw_zb_objective(const struct mw_zb *z, const struct mw_zb_run *r);

/* Arrival of the next pass of this type of (device, chunk) i; -1: unknown. */
static inline mw_time mw_zb_ready(const struct mw_zb *z,
                                  const struct mw_zb_run *r, int i, int type)
{
    int k = z->vs[i], j, n;
    mw_time t;

    if (type == MW_ZB_F) {
        if (k == 0) {
            return 0;
        }
        n = r->n_f[i];
        j = z->dev[k - 1] * z->v + z->chunk[k - 1];
        if (r->n_f[j] <= n) {
            return -1;
        }
        t = r->f_end[(size_t)(k - 1) * (size_t)z->m + (size_t)n];
        return z->dev[k - 1] == z->dev[k] ? t : t + z->comm;
    }
    if (type == MW_ZB_W) {
        n = r->n_w[i];
        return r->n_b[i] > n ? r->b_end[(size_t)k * (size_t)z->m + (size_t)n]
                             : -1;
    }
    n = r->n_b[i];
    if (r->n_f[i] <= n) {
        return -1;
    }
    if (k == z->n_virtual - 1) {
        return r->f_end[(size_t)k * (size_t)z->m + (size_t)n];
    }
    j = z->dev[k + 1] * z->v + z->chunk[k + 1];
    if (r->n_b[j] <= n) {
        return -1;
    }
    t = r->b_end[(size_t)(k + 1) * (size_t)z->m + (size_t)n];
    return z->dev[k + 1] == z->dev[k] ? t : t + z->comm;
}

static inline void mw_zb_wake(struct mw_zb_run *r, int d)
{
    if (!r->is_stacked[d]) {
        r->is_stacked[d] = true;
        r->stack[r->n_stacked++] = d;
    }
}

/* The pass starts at lane.t: moves the lane to its end, counts it, wakes the
 * device that may wait for it. */
static inline void mw_zb_finish(const struct mw_zb *z, struct mw_zb_run *r,
                                int d, int c, int type)
{
    struct mw_zb_lane *l = &r->lane[d];
    int i = d * z->v + c, k = z->vs[i];

    if (type == MW_ZB_F) {
        l->t += z->f[i];
        r->f_end[(size_t)k * (size_t)z->m + (size_t)r->n_f[i]++] = l->t;
        if (k + 1 < z->n_virtual && z->dev[k + 1] != d) {
            mw_zb_wake(r, z->dev[k + 1]);
        }
    } else if (type == MW_ZB_B) {
        l->t += z->b[i];
        r->b_end[(size_t)k * (size_t)z->m + (size_t)r->n_b[i]++] = l->t;
        if (k > 0 && z->dev[k - 1] != d) {
            mw_zb_wake(r, z->dev[k - 1]);
        }
    } else {
        l->t += z->w[i];
        r->n_w[i]++;
    }
}

#endif
