/*
 * One chunk per device: F/B orders "w_i forwards, then B and F in turn", the
 * w_i from the last stage up by budget, and a portfolio of targets for the W
 * insertion, the lower bound first.
 *
 * Warm-up by budget: B of the first micro-batch reaches stage i at A; the
 * forwards that end by then are free; one more delays B (and so all stages
 * above), which pays only when waiting would cost more idle time than the
 * target leaves. Counts fall by at least `step` from stage to stage.
 */
#include "sim/pipe/zb_int.h"

#include <string.h>

enum warm_mode { WARM_BUDGET, WARM_FLOOR, WARM_CEIL, WARM_TWICE, WARM_ONCE };

struct rows {
    struct mw_zb *z;
    struct mw_zb_run *r;
    struct mw_zb_best *best;
    struct mw_zb_order fb, full;
    mw_time *f_end; /* [p][kmax]: ends of forwards when only forwards run */
    int kmax;
    int *w; /* [p] */
};

/* Forwards alone: F_k of stage i. */
static void forward_ends(struct rows *x)
{
    const struct mw_zb *z = x->z;
    int i, k;

    for (i = 0; i < z->p; i++) {
        mw_time t = 0;

        for (k = 0; k < x->kmax; k++) {
            mw_time ready =
                i == 0
                    ? 0
                    : x->f_end[(size_t)(i - 1) * (size_t)x->kmax + (size_t)k] +
                          z->comm;

            t = (ready > t ? ready : t) + z->f[i];
            x->f_end[(size_t)i * (size_t)x->kmax + (size_t)k] = t;
        }
    }
}

static mw_time spare(const struct mw_zb *z, int i, mw_time target)
{
    return target == MW_ZB_NEVER
               ? target
               : target - z->work[i] - (z->is_span ? 0 : z->head[i]);
}

static void warm_by_time(struct rows *x, enum warm_mode mode, mw_time target)
{
    const struct mw_zb *z = x->z;
    mw_time arrival = 0;
    int i;

    for (i = z->p - 1; i >= 0; i--) {
        const mw_time *end = x->f_end + (size_t)i * (size_t)x->kmax;
        int most = z->k_max[i] < z->m ? z->k_max[i] : z->m, q = 1;

        while (q < most && end[q] <= arrival) {
            q++;
        }
        if (q < most && mode != WARM_FLOOR && end[q - 1] < arrival &&
            (mode == WARM_CEIL || arrival - end[q - 1] > spare(z, i, target))) {
            q++;
        }
        x->w[i] = q;
        arrival =
            (end[q - 1] > arrival ? end[q - 1] : arrival) + z->b[i] + z->comm;
    }
}

static void warm_up(struct rows *x, enum warm_mode mode, mw_time target,
                    int step)
{
    const struct mw_zb *z = x->z;
    int i, most = z->m;

    if (mode == WARM_TWICE || mode == WARM_ONCE) {
        for (i = 0; i < z->p; i++) {
            x->w[i] = mode == WARM_TWICE ? 2 * (z->p - 1 - i) + 1 : z->p - i;
        }
    } else {
        warm_by_time(x, mode, target);
    }
    for (i = 0; i < z->p; i++) {
        most = z->k_max[i] < most ? z->k_max[i] : most;
        x->w[i] = x->w[i] < most ? x->w[i] : most;
        x->w[i] = x->w[i] > 1 ? x->w[i] : 1;
        most = x->w[i] - step;
    }
}

void mw_zb_rows_order(const struct mw_zb *z, const int *w,
                      struct mw_zb_order *fb)
{
    int i, k;

    for (i = 0; i < z->p; i++) {
        uint8_t *c = mw_zb_list(fb, i);
        int n = w[i] < z->m ? w[i] : z->m;

        memset(c, MW_ZB_F, (size_t)n);
        c += n;
        for (k = n; k < z->m; k++) {
            *c++ = MW_ZB_B;
            *c++ = MW_ZB_F;
        }
        memset(c, MW_ZB_B, (size_t)n);
        fb->n[i] = 2 * z->m;
    }
}

bool mw_zb_try(struct mw_zb *z, struct mw_zb_run *r,
               const struct mw_zb_order *fb, const struct mw_zb_rule *rule,
               struct mw_zb_best *best, const char *who)
{
    mw_time v = mw_zb_insert(z, r, fb, rule, best->value, NULL);

    if (v < best->value) {
        mw_zb_insert(z, r, fb, rule, best->value, &best->order);
        best->value = v;
        best->found_by = who;
    }
    return best->value <= best->bound;
}

static mw_time scaled(mw_time t, double by)
{
    return t + (mw_time)((double)t * by);
}

/* All ways to fill for one target and one set of warm-up counts. */
static bool try_fills(struct rows *x, mw_time target, mw_time tail)
{
    int k;

    for (k = 3; k >= 0; k--) {
        struct mw_zb_rule rule = {target,       tail,  (k & 1) != 0,
                                  (k & 2) != 0, false, false};

        if (mw_zb_try(x->z, x->r, &x->fb, &rule, x->best, "greedy")) {
            return true;
        }
        if (target == MW_ZB_NEVER && tail == MW_ZB_NEVER) {
            break; /* never delays: the flags do not matter */
        }
    }
    return false;
}

static bool try_target(struct rows *x, enum warm_mode mode, int step,
                       mw_time target)
{
    warm_up(x, mode, target, step);
    mw_zb_rows_order(x->z, x->w, &x->fb);
    return try_fills(x, target, target);
}

/*
 * Little memory, K < p: the K micro-batches in flight are spread evenly over
 * the way down and back, so stage i holds the part that is below it.
 */
static bool try_even(struct rows *x)
{
    const struct mw_zb *z = x->z;
    mw_time whole = mw_zb_path(z, 0);
    int i, k, most = z->k_max[0] < z->m ? z->k_max[0] : z->m;

    for (k = 0; k <= 8; k++) {
        int last = most;

        for (i = 0; i < z->p; i++) {
            double share = (double)mw_zb_path(z, i) / (double)whole;
            int w = (int)(share * most + 0.125 * k);

            w = w < 1 ? 1 : w;
            x->w[i] = last = w < last ? w : last;
        }
        mw_zb_rows_order(z, x->w, &x->fb);
        if (try_fills(x, x->best->bound, x->best->bound) ||
            try_fills(x, 0, 0) || try_fills(x, MW_ZB_NEVER, MW_ZB_NEVER)) {
            return true;
        }
    }
    return false;
}

/* Rows that keep the stages' idle times level, then insertion into their F/B
 * order. */
static bool try_level(struct rows *x)
{
    static const enum warm_mode modes[] = {WARM_BUDGET, WARM_FLOOR, WARM_CEIL};
    struct mw_zb_best *best = x->best;
    int mode, step, k;

    for (step = 1; step >= 0; step--) {
        for (mode = 0; mode < 3; mode++) {
            warm_up(x, modes[mode], best->bound, step);
            for (k = 0; k < 4; k++) {
                struct mw_zb_rule rule = {
                    0, 0, (k & 1) != 0, (k & 1) != 0, true, (k & 2) != 0};
                mw_time v =
                    mw_zb_rows(x->z, x->r, x->w, &rule, MW_ZB_NEVER, &x->full);

                if (v == MW_ZB_NEVER) {
                    continue;
                }
                if (v < best->value) {
                    mw_zb_order_copy(&best->order, &x->full, x->z->p);
                    best->value = v;
                    best->found_by = "rows";
                }
                mw_zb_strip(x->z, &x->full, &x->fb);
                if (try_fills(x, best->bound, best->bound) ||
                    try_fills(x, best->value - 1, best->value - 1)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static bool portfolio(struct rows *x)
{
    static const double above[] = {0, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1};
    static const enum warm_mode modes[] = {WARM_BUDGET, WARM_ONCE, WARM_TWICE,
                                           WARM_FLOOR, WARM_CEIL};
    size_t e, i;
    int step;

    if (x->z->k_max[0] < x->z->p && try_even(x)) {
        return true;
    }
    for (e = 0; e < sizeof above / sizeof above[0]; e++) {
        mw_time target = scaled(x->best->bound, above[e]);

        for (step = 0; step < 3; step++) {
            for (i = 0; i < sizeof modes / sizeof modes[0]; i++) {
                if (try_target(x, modes[i], step, target) ||
                    (e > 0 && x->z->effort > x->z->effort_limit / 3)) {
                    return x->best->value <= x->best->bound;
                }
            }
        }
        if (e == 0 && try_level(x)) {
            return true;
        }
    }
    for (step = 0; step < 3; step++) {
        for (i = 0; i < sizeof modes / sizeof modes[0]; i++) {
            if (try_target(x, modes[i], step, 0) ||
                try_target(x, modes[i], step, MW_ZB_NEVER)) {
                return true;
            }
        }
    }
    return false;
}

/* Targets between the bound and the best, apart for head and tail. */
static bool refine(struct rows *x)
{
    enum { STEPS = 6 };
    mw_time lo = x->best->bound, hi = x->best->value;
    int step, a, b;

    for (step = 0; step < 2; step++) {
        for (a = 0; !mw_zb_is_spent(x->z) && a < STEPS; a++) {
            mw_time head = lo + (hi - lo) * a / STEPS;

            warm_up(x, WARM_BUDGET, head, step);
            mw_zb_rows_order(x->z, x->w, &x->fb);
            for (b = 0; b < STEPS; b++) {
                if (try_fills(x, head, lo + (hi - lo) * b / STEPS)) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Targets worth trying while warm-up counts are moved. */
static bool try_counts(struct rows *x)
{
    mw_time lo = x->best->bound, hi = x->best->value - 1;

    mw_zb_rows_order(x->z, x->w, &x->fb);
    return try_fills(x, lo, lo) || try_fills(x, lo, hi) ||
           try_fills(x, hi, hi) || try_fills(x, hi, lo);
}

static bool may_warm(const struct rows *x, int i)
{
    const struct mw_zb *z = x->z;
    int w = x->w[i];

    return w >= 1 && w <= z->m && w <= z->k_max[i] &&
           (i == 0 || w <= x->w[i - 1]) && (i == z->p - 1 || w >= x->w[i + 1]);
}

/* Counts of stages first .. last moved by one, kept when better. */
static bool move_counts(struct rows *x, int first, int last, int by)
{
    mw_time before = x->best->value;
    bool is_legal = true;
    int i;

    for (i = first; i <= last; i++) {
        x->w[i] += by;
    }
    for (i = first; i <= last; i++) {
        is_legal &= may_warm(x, i);
    }
    if (is_legal && try_counts(x)) {
        return true;
    }
    for (i = first; x->best->value == before && i <= last; i++) {
        x->w[i] -= by;
    }
    return false;
}

/* Forwards before the first B in the best order. */
static void counts_of_best(struct rows *x)
{
    int i;

    for (i = 0; i < x->z->p; i++) {
        const uint8_t *c = mw_zb_list(&x->best->order, i);

        for (x->w[i] = 0; c[x->w[i]] == MW_ZB_F; x->w[i]++) {
        }
    }
}

/* Hill climbing over the warm-up counts. */
static bool climb(struct rows *x)
{
    mw_time before;

    do {
        int i;

        before = x->best->value;
        counts_of_best(x);
        for (i = 0; !mw_zb_is_spent(x->z) && i < x->z->p; i++) {
            if (move_counts(x, i, i, 1) || move_counts(x, i, i, -1) ||
                move_counts(x, 0, i, 1) || move_counts(x, 0, i, -1)) {
                return true;
            }
        }
    } while (x->best->value < before);
    return false;
}

void mw_zb_greedy(struct mw_zb *z, struct mw_zb_run *r, struct mw_zb_best *best)
{
    struct rows x = {.z = z, .r = r, .best = best};
    int i;

    for (i = 0; i < z->p; i++) {
        x.kmax = z->k_max[i] > x.kmax ? z->k_max[i] : x.kmax;
    }
    x.kmax = x.kmax < z->m ? x.kmax : z->m;
    x.f_end = mw_calloc((size_t)z->p * (size_t)x.kmax, sizeof *x.f_end);
    x.w = mw_calloc((size_t)z->p, sizeof *x.w);
    mw_zb_order_init(&x.fb, z);
    mw_zb_order_init(&x.full, z);
    forward_ends(&x);
    if (!portfolio(&x) && best->value < MW_ZB_NEVER && !refine(&x)) {
        climb(&x);
    }
    mw_zb_order_release(&x.fb);
    mw_zb_order_release(&x.full);
    mw_free(x.w);
    mw_free(x.f_end);
}
