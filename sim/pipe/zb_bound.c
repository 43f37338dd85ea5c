/*
 * Lower bounds on the objective for one chunk per device, all in integers. For
 * stage i: path_i = F_i + sum_{j>i} (F_j + B_j + 2c), the least time from the
 * start of a forward on i to the start of its B there; K_i the activations that
 * fit.
 *
 *  head     between the first F and the first B only F run, at most K_i:
 *           head_i = max(0, path_i - K_i F_i) of idle time
 *  tail     between the last F and its B only B and W run. When the last F
 *           starts, memory forces b B and x(b) W to be over:
 *           x(b) = ceil((m mem_F - limit - b mem_B) / mem_W)
 *           idle_i(b) = max(0, path_i - F_i - (m-1-b) B_i - (m-1-x) W_i)
 *           the windows are disjoint when b >= 1, else they may overlap:
 *           tailhead_i = min over b of  b ? head_i + idle_i(b)
 *                                        : max(head_i, idle_i(0))
 *  pair     i <= j: the first F walks to j, j does all its F and B and what W
 *           memory forces, the last B walks back, W on i
 *  chain    whole warm-up counts: for a target T a stage may lose T - work_i;
 *           from the last stage up, the window from first F to first B is
 * either what the path needs or one more F (which the stages above must wait
 * for); the least T for which no stage loses too much cycle    with K
 * activations micro-batch k + K starts after k has come back
 *
 * For the makespan a stage first waits head = sum_{k<i} (F_k + c), and the last
 * B walks back to stage 0.
 *
 * For a V: work + head window (only forwards run before the first backward,
 * at most as many as fit), and the pair bound over the chunks' own chains.
 */
#include "sim/pipe/zb_int.h"

#include <string.h>

static mw_time max_t(mw_time a, mw_time b)
{
    return a > b ? a : b;
}

/* Per stage: path, head, and of the tail the least over b. */
struct bounds {
    const struct mw_zb *z;
    mw_time *path, *head, *tailhead, *middle;
    mw_time *after; /* tail idle that cannot overlap with the head window */
    mw_time best;
    const char *by;
};

static void raise(struct bounds *x, mw_time v, const char *by)
{
    if (v > x->best) {
        x->best = v;
        x->by = by;
    }
}

static int k_of(const struct mw_zb *z, int i)
{
    return z->k_max[i] < z->m ? z->k_max[i] : z->m;
}

/* W passes over when the last F starts with b B passes over; -1: impossible. */
static int64_t forced_w(const struct mw_zb *z, int i, int64_t b)
{
    int64_t over = z->m * z->mem_f - z->limit[i] - b * z->mem_b;
    int64_t n;

    if (over <= 0) {
        return 0;
    }
    if (z->mem_w == 0) {
        return -1;
    }
    n = (over + z->mem_w - 1) / z->mem_w;
    return n <= b ? n : -1;
}

/* tailhead_i, and the middle part of the pair bound of j = i. */
static void tail(struct bounds *x, int i)
{
    const struct mw_zb *z = x->z;
    int64_t b;

    x->tailhead[i] = x->middle[i] = x->after[i] = MW_ZB_NEVER;
    for (b = 0; b < z->m; b++) {
        int64_t n = forced_w(z, i, b);
        mw_time idle, gap, both;

        if (n < 0) {
            continue;
        }
        gap = x->path[i] - z->f[i] - (z->m - 1 - b) * z->b[i];
        idle = max_t(0, gap - (z->m - 1 - n) * z->w[i]);
        both = b >= 1 ? x->head[i] + idle : max_t(x->head[i], idle);
        x->tailhead[i] = both < x->tailhead[i] ? both : x->tailhead[i];
        idle = b >= 1 ? idle : 0;
        x->after[i] = idle < x->after[i] ? idle : x->after[i];
        gap = max_t(0, gap);
        both =
            n * z->w[i] + (b >= 1 ? x->head[i] + gap : max_t(x->head[i], gap));
        x->middle[i] = both < x->middle[i] ? both : x->middle[i];
    }
    x->middle[i] += z->m * (z->f[i] + z->b[i]);
}

mw_time mw_zb_path(const struct mw_zb *z, int i)
{
    mw_time t = z->f[i];
    int j;

    for (j = i + 1; j < z->p; j++) {
        t += z->f[j] + z->b[j] + 2 * z->comm;
    }
    return t;
}

static void stage_bounds(struct bounds *x)
{
    const struct mw_zb *z = x->z;
    mw_time rest = 0;
    int i;

    for (i = z->p - 1; i >= 0; i--) {
        x->path[i] = z->f[i] + rest;
        rest += z->f[i] + z->b[i] + 2 * z->comm;
        x->head[i] = max_t(0, x->path[i] - k_of(z, i) * z->f[i]);
        tail(x, i);
        raise(x, z->work[i] + x->tailhead[i] + (z->is_span ? 0 : z->head[i]),
              "tail-head");
    }
}

static void pair_bounds(struct bounds *x)
{
    const struct mw_zb *z = x->z;
    int i, j;

    for (i = 0; i < (z->is_span ? z->p : 1); i++) {
        mw_time walk = 0;

        for (j = i; j < z->p; j++) {
            raise(x, walk + x->middle[j] + z->w[i], "pair");
            walk += z->f[j] + z->b[j] + 2 * z->comm;
        }
    }
}

static void cycle_bounds(struct bounds *x)
{
    const struct mw_zb *z = x->z;
    int i;

    for (i = 0; i < z->p; i++) {
        int64_t k = k_of(z, i), j = (z->m - 1) / k;

        raise(x,
              (j + 1) * x->path[i] + j * z->b[i] + (z->m - j * k) * z->b[i] +
                  z->w[i] + (z->is_span ? 0 : z->head[i]),
              "cycle");
    }
}

/* Can every stage stay within T? */
static bool chain_fits(const struct bounds *x, mw_time t)
{
    const struct mw_zb *z = x->z;
    mw_time window = z->f[z->p - 1];
    int i;

    for (i = z->p - 2; i >= 0; i--) {
        mw_time need = window + z->f[i] + z->b[i + 1] + 2 * z->comm;
        mw_time spare =
            t - z->work[i] - x->after[i] - (z->is_span ? 0 : z->head[i]);
        int64_t k = k_of(z, i), q = need / z->f[i];

        q = q < k ? q : k;
        if (need - q * z->f[i] <= spare) {
            window = need;
        } else if (q < k) {
            window = (q + 1) * z->f[i];
        } else {
            return false;
        }
    }
    return true;
}

static void chain_bound(struct bounds *x)
{
    mw_time lo = x->best, hi = x->best;

    if (chain_fits(x, lo)) {
        return;
    }
    do {
        hi += hi / 8 + 1;
    } while (!chain_fits(x, hi));
    while (hi - lo > 1) {
        mw_time mid = lo + (hi - lo) / 2;

        if (chain_fits(x, mid)) {
            hi = mid;
        } else {
            lo = mid;
        }
    }
    raise(x, hi, "head-chain");
}

/* ---- V ----------------------------------------------------------------- */
static mw_time edge(const struct mw_zb *z, int k)
{
    return z->dev[k] == z->dev[k + 1] ? 0 : z->comm;
}

static int at(const struct mw_zb *z, int k)
{
    return z->dev[k] * z->v + z->chunk[k];
}

/* Least time from the start of F of virtual stage k to the start of its B. */
static mw_time v_path(const struct mw_zb *z, int k)
{
    mw_time t = z->f[at(z, z->n_virtual - 1)];
    int j;

    for (j = k; j < z->n_virtual - 1; j++) {
        t += z->f[at(z, j)] + z->b[at(z, j + 1)] + 2 * edge(z, j);
    }
    return t;
}

/* Idle time before the first backward of device d, the F of its second chunk
 * coming first: only forwards run, at most as many as memory holds. */
static mw_time v_head(const struct mw_zb *z, int d)
{
    int near = z->vs[d * z->v], far = z->vs[d * z->v + 1], j;
    mw_time walk = 0, longest = max_t(z->f[d * z->v], z->f[d * z->v + 1]);

    for (j = near; j < far; j++) {
        walk += z->f[at(z, j)] + edge(z, j);
    }
    walk += v_path(z, far);
    return max_t(0, walk - z->k_max[d] * longest);
}

static void v_bounds(struct bounds *x)
{
    const struct mw_zb *z = x->z;
    int d, e;

    for (d = 0; d < z->p; d++) {
        x->head[d] = v_head(z, d);
        raise(x, z->work[d] + x->head[d] + (z->is_span ? 0 : z->head[d]),
              "work");
    }
    for (d = 0; d < (z->is_span ? z->p : 1); d++) {
        mw_time walk = 0;

        for (e = d; e < z->p; e++) {
            mw_time fb = 0;
            int c;

            for (c = 0; c < z->v; c++) {
                int i = e * z->v + c;

                fb += z->m * (z->f[i] + z->b[i]);
            }
            raise(x, walk + fb + x->head[e] + z->w[d * z->v], "pair");
            walk += z->f[e * z->v] + z->b[e * z->v] + 2 * z->comm;
        }
    }
}

mw_time mw_zb_bound(const struct mw_zb *z, const char **out_by)
{
    size_t n = (size_t)z->p;
    mw_time *t = mw_calloc(5 * n, sizeof *t);
    struct bounds x = {z, t, t + n, t + 2 * n, t + 3 * n, t + 4 * n, 0, "work"};

    if (z->v == 1) {
        stage_bounds(&x);
        pair_bounds(&x);
        cycle_bounds(&x);
        chain_bound(&x);
    } else if (z->v == 2) {
        v_bounds(&x);
    } else {
        for (int d = 0; d < z->p; d++) {
            raise(&x, z->work[d] + (z->is_span ? 0 : z->head[d]), "work");
        }
    }
    mw_free(t);
    if (out_by != NULL) {
        *out_by = x.by;
    }
    return x.best;
}
