/*
 * Hanayo (Liu et al., SC 2023): W waves, 2W chunks a device in V placement, so
 * that a micro-batch sweeps to and fro W times; forward and backward of the
 * waves interleave. The paper gives the rule, not a list; here the list comes
 * from running it in time: at most p micro-batches between first forward and
 * last backward of a device ("window"), backward before forward, deeper chunk
 * first, otherwise in order of arrival.
 */
#include "sim/pipe/schedule_int.h"

#include <math.h>

struct wave {
    struct mw_sched_build b;
    int p, m, v;
    int64_t f, bw, comm;    /* durations in ticks */
    int64_t *f_end, *b_end; /* [S * m], -1: not run */
    int *nf, *nb;           /* [p * v]: next micro-batch of each chunk */
    int64_t *free_at;       /* [p] */
};

/* Arrival of the next forward (or backward) of a chunk; -1: not known yet. */
static int64_t arrival(const struct wave *z, int d, int c, bool is_f)
{
    const struct mw_schedule *s = &z->b.s;
    size_t at = (size_t)d * (size_t)z->v + (size_t)c;
    int k = s->virtual_stage[at], i = is_f ? z->nf[at] : z->nb[at];
    int from = is_f ? k - 1 : k + 1;
    size_t cell = (size_t)k * (size_t)z->m + (size_t)i;
    int64_t t;

    if (i == z->m || (is_f && c == 0 && i - z->nb[at] >= z->p)) {
        return -1;
    }
    if (is_f && k == 0) {
        return 0;
    }
    if (!is_f && (z->f_end[cell] < 0 || k == s->route_len - 1)) {
        return z->f_end[cell];
    }
    t = is_f ? z->f_end[cell - (size_t)z->m] : z->b_end[cell + (size_t)z->m];
    return t < 0 || s->device[from] == d ? t : t + z->comm;
}

struct choice {
    int64_t start;
    int d, c;
    bool is_f;
};

/* Best pass of a device: earliest start, then backward, then deeper chunk. */
static bool choose(const struct wave *z, int d, struct choice *best)
{
    bool found = false;
    int c, is_f;

    for (is_f = 0; is_f < 2; is_f++) {
        for (c = z->v - 1; c >= 0; c--) {
            int64_t t = arrival(z, d, c, is_f != 0);

            if (t < 0) {
                continue;
            }
            t = t > z->free_at[d] ? t : z->free_at[d];
            if (!found || t < best->start) {
                *best = (struct choice){t, d, c, is_f != 0};
                found = true;
            }
        }
    }
    return found;
}

static void run_pass(struct wave *z, const struct choice *x)
{
    const struct mw_schedule *s = &z->b.s;
    size_t at = (size_t)x->d * (size_t)z->v + (size_t)x->c;
    int i = x->is_f ? z->nf[at]++ : z->nb[at]++;
    size_t cell = (size_t)s->virtual_stage[at] * (size_t)z->m + (size_t)i;

    z->free_at[x->d] = x->start + (x->is_f ? z->f : z->bw);
    (x->is_f ? z->f_end : z->b_end)[cell] = z->free_at[x->d];
    mw_sched_push(&z->b, x->d, x->is_f ? MW_PASS_F : MW_PASS_BW, i, x->c);
}

/* Times in ticks of a thousandth of F; 1, 2 when no times are given. */
static void set_times(struct wave *z, const struct mw_sched_args *a)
{
    double unit = a->f_s / 1000;

    z->f = 1000;
    z->bw = unit > 0 ? llround((a->b_s + a->w_s) / unit) : 2000;
    z->comm = unit > 0 ? llround(a->comm_s / unit) : 0;
}

static void run_waves(struct wave *z)
{
    for (;;) {
        struct choice best = {0}, x;
        bool found = false;
        int d;

        for (d = 0; d < z->p; d++) {
            if (choose(z, d, &x) && (!found || x.start < best.start)) {
                best = x;
                found = true;
            }
        }
        if (!found) {
            return;
        }
        run_pass(z, &best);
    }
}

enum mw_status mw_gen_wave(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {"hanayo",    a->n_stages, a->n_microbatches,
                                   a->n_chunks, 1,           MW_PLACE_V};
    struct wave z = {
        .p = a->n_stages, .m = a->n_microbatches, .v = a->n_chunks};
    size_t cells, i, n = (size_t)z.p * (size_t)z.v;

    if (z.v % 2 != 0) {
        return mw_fail(err, MW_EUSAGE,
                       "hanayo needs an even number of chunks per stage (two a "
                       "wave), not %d",
                       z.v);
    }
    set_times(&z, a);
    mw_sched_begin(&z.b, &shape);
    cells = n * (size_t)z.m;
    z.f_end = mw_calloc(2 * cells, sizeof *z.f_end);
    z.b_end = z.f_end + cells;
    for (i = 0; i < 2 * cells; i++) {
        z.f_end[i] = -1;
    }
    z.nf = mw_calloc(2 * n, sizeof *z.nf);
    z.nb = z.nf + n;
    z.free_at = mw_calloc((size_t)z.p, sizeof *z.free_at);
    run_waves(&z);
    mw_free(z.f_end);
    mw_free(z.nf);
    mw_free(z.free_at);
    mw_sched_end(&z.b, out);
    return MW_OK;
}
