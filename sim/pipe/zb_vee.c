/*
 * Two chunks per device in V placement: base orders, run in real times with
 * passes that have arrived overtaking, then W insertion to a fixed point.
 *
 * Base orders, device i of p, in units of one pass with F = B = W:
 *   ZB-V     the hand-made list (gen_v.c)
 *   blocks   every micro-batch repeats a block with period 6 in which F of the
 *            first chunk, F of the second, B of the second, B of the first
 * start at given times (Qi et al., Pipeline Parallelism with Controllable
 *            Memory, arXiv 2405.15362, building blocks of V-Min and V-Half;
 *            sail-sg/zero-bubble-pipeline-parallelism v_schedule):
 *     V-Min   i,  2p-i-1,  2p+a+i,     4p+a-i-1     a = 2 if 3 | p else 0
 *     V-Half  2i, 3p-i-2,  3p+a+2i-1,  6p+a-i-2     a = 3 if 2 | p else 0
 *     1F1B-V  F 1, BW 2 units, pattern with period 3 in i (worked out from the
 *             authors' v1f1b.py lists): steps between devices of F0 1, F1 1
 * (back), B1 2 2 5, B0 2 5 2 (back); starts congruent to 0, 1, 2, 4 mod 6 on
 *             device 0, the turns as early as that allows
 *   general  F leaves a stage every k units going down and every unit coming
 *            back: start k i, then + (p-1-i) + gap ...
 */
#include "sim/pipe/zb_lane.h"

#include <stdlib.h>
#include <string.h>

struct vee {
    struct mw_zb *z;
    struct mw_zb_run *r;
    struct mw_zb_best *best;
    struct mw_zb_order base, full, fb;
};

/* A pass of the base order while it is being sorted. */
struct when {
    int64_t at;
    uint8_t code;
};

static int by_time(const void *a, const void *b)
{
    const struct when *x = a, *y = b;

    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return (int)x->code - (int)y->code;
}

enum { GENERAL = MW_ZB_1F1B_V + 1 };

/* Least t >= from with t = to modulo 6. */
static int64_t congruent(int64_t from, int64_t to)
{
    return from + ((to - from) % 6 + 6) % 6;
}

/* Steps of the 1F1B-V pattern between devices of class k mod 3 and k + 1. */
static int64_t climbed(const int step[3], int phase, int i)
{
    int64_t sum = (int64_t)(i / 3) * (step[0] + step[1] + step[2]);
    int k;

    for (k = 0; k < i % 3; k++) {
        sum += step[(phase + k) % 3];
    }
    return sum;
}

static void offsets_1f1b_v(int p, int phase, int i, int64_t out[4])
{
    static const int b1[3] = {2, 2, 5}, b0[3] = {2, 5, 2};
    /* Starts modulo 6 on a device of the class, after its F0. */
    static const int f1_at[3] = {1, 5, 3}, b1_at[3] = {2, 3, 4},
                     b0_at[3] = {4, 1, 1};
    int64_t turn = congruent(p, f1_at[phase] - (p - 1));
    int64_t first = congruent(turn + p, b1_at[phase]);
    int64_t way = climbed(b0, phase, p - 1);
    int64_t last = first + climbed(b1, phase, p - 1) + 2;

    out[0] = i;
    out[1] = turn + p - 1 - i;
    out[2] = first + climbed(b1, phase, i);
    out[3] = congruent(last, b0_at[phase] - way) + way - climbed(b0, phase, i);
}

/* Offsets of F0, F1, B1, B0 on device i. */
struct block {
    int kind;                 /* enum mw_zb_block, or GENERAL */
    int down, up, back, home; /* general: delay per stage on each leg */
    int gap;
    int period;
    int phase; /* 1F1B-V: class of device 0 */
};

static void offsets(const struct block *b, int p, int i, int64_t out[4])
{
    int a;

    if (b->kind == MW_ZB_V_MIN) {
        a = p % 3 == 0 ? 2 : 0;
        out[0] = i;
        out[1] = 2 * p - i - 1;
        out[2] = 2 * p + a + i;
        out[3] = 4 * p + a - i - 1;
    } else if (b->kind == MW_ZB_1F1B_V) {
        offsets_1f1b_v(p, b->phase, i, out);
    } else if (b->kind == MW_ZB_V_HALF) {
        a = p % 2 == 0 ? 3 : 0;
        out[0] = 2 * i;
        out[1] = 3 * p - i - 2;
        out[2] = 3 * p + a + 2 * i - 1;
        out[3] = 6 * p + a - i - 2;
    } else {
        int last = p - 1;

        out[0] = b->down * i;
        out[1] = b->down * last + 1 + b->up * (last - i);
        out[2] = b->down * last + 1 + b->up * last + 1 + b->gap + b->back * i;
        out[3] = b->down * last + 1 + b->up * last + 1 + b->gap +
                 b->back * last + 1 + b->home * (last - i);
    }
}

static void block_order(struct vee *x, const struct block *b)
{
    static const uint8_t code[4] = {
        MW_ZB_CODE(MW_ZB_F, 0), MW_ZB_CODE(MW_ZB_F, 1), MW_ZB_CODE(MW_ZB_B, 1),
        MW_ZB_CODE(MW_ZB_B, 0)};
    const struct mw_zb *z = x->z;
    struct when *w = mw_calloc(4 * (size_t)z->m, sizeof *w);
    int d, k, j;

    for (d = 0; d < z->p; d++) {
        int64_t off[4];

        offsets(b, z->p, d, off);
        for (k = 0; k < z->m; k++) {
            for (j = 0; j < 4; j++) {
                w[4 * k + j] =
                    (struct when){off[j] + (int64_t)b->period * k, code[j]};
            }
        }
        qsort(w, 4 * (size_t)z->m, sizeof *w, by_time);
        x->base.n[d] = 0;
        for (k = 0; k < 4 * z->m; k++) {
            mw_zb_add(&x->base, d, w[k].code);
        }
    }
    mw_free(w);
}

static bool insert_at(struct vee *x, mw_time target, mw_time tail,
                      const char *who)
{
    int k;

    for (k = 3; k >= 0; k--) {
        struct mw_zb_rule rule = {.target = target,
                                  .target_tail = tail,
                                  .fill_f = (k & 1) != 0,
                                  .fill_b = (k & 2) != 0};

        if (mw_zb_try(x->z, x->r, &x->fb, &rule, x->best, who)) {
            return true;
        }
    }
    return false;
}

/* W insertion into x->fb: a ladder of targets, then aiming below the best until
 * nothing changes. */
static bool insert_all(struct vee *x, const char *who)
{
    static const double above[] = {0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.08};
    mw_time lo = x->best->bound, before;
    size_t e;

    for (e = 0; e < sizeof above / sizeof above[0]; e++) {
        mw_time t = lo + (mw_time)((double)lo * above[e]);

        if (insert_at(x, t, t, who)) {
            return true;
        }
    }
    if (insert_at(x, MW_ZB_NEVER, MW_ZB_NEVER, who) ||
        insert_at(x, 0, 0, who)) {
        return true;
    }
    if (x->best->value == MW_ZB_NEVER) {
        return false;
    }
    do {
        before = x->best->value;
        for (e = 0; e < 4; e++) {
            mw_time t = lo + (before - lo) * (mw_time)e / 4;

            if (insert_at(x, t, before - 1, who)) {
                return true;
            }
        }
        if (insert_at(x, before - 1, before - 1, who)) {
            return true;
        }
    } while (x->best->value < before && !mw_zb_is_spent(x->z));
    return mw_zb_is_spent(x->z);
}

/* The F and B of a schedule as base order. */
static void base_of(struct vee *x, const struct mw_schedule *s)
{
    uint32_t i;
    int d;

    for (d = 0; d < x->z->p; d++) {
        x->base.n[d] = 0;
        for (i = s->first[d]; i < s->first[d + 1]; i++) {
            int type = s->slot[i].pass == MW_PASS_F ? MW_ZB_F : MW_ZB_B;

            if (s->slot[i].pass != MW_PASS_W) {
                mw_zb_add(&x->base, d, MW_ZB_CODE(type, s->slot[i].chunk));
            }
        }
    }
}

static void zbv_order(struct vee *x)
{
    struct mw_sched_args a = {
        .n_stages = x->z->p, .n_microbatches = x->z->m, .n_chunks = 2};
    struct mw_schedule s;

    mw_gen_zb_v(&a, &s, NULL);
    base_of(x, &s);
    mw_schedule_release(&s);
}

/* The base order run in time, passes overtaking; then insertion. */
static bool advance(struct vee *x, int look, int edge, double patience)
{
    struct mw_zb_list_rule rule = {
        .patience = patience, .base = &x->base, .look = look, .edge = edge};
    mw_time v = mw_zb_list_run(x->z, x->r, &rule, &x->full);

    if (v == MW_ZB_NEVER) {
        return false;
    }
    if (v < x->best->value) {
        mw_zb_order_copy(&x->best->order, &x->full, x->z->p);
        x->best->value = v;
        x->best->found_by = "advance";
    }
    mw_zb_strip(x->z, &x->full, &x->fb);
    return x->best->value <= x->best->bound || insert_all(x, "insertion");
}

static bool try_base(struct vee *x)
{
    static const int look[] = {1, 4, 8, 32, 2};
    int p = x->z->p, edge;
    size_t i;

    mw_zb_order_copy(&x->fb, &x->base, p);
    if (insert_all(x, "insertion")) {
        return true;
    }
    for (i = 0; !mw_zb_is_spent(x->z) && i < sizeof look / sizeof look[0];
         i++) {
        if (advance(x, look[i], INT32_MAX, 1) ||
            advance(x, look[i], INT32_MAX, 0.5)) {
            return true;
        }
        for (edge = p; x->z->is_fused && edge <= 4 * p; edge *= 2) {
            if (advance(x, 3 * look[i], edge, 1)) {
                return true;
            }
        }
    }
    return mw_zb_is_spent(x->z);
}

static void vee_init(struct vee *x, struct mw_zb *z, struct mw_zb_run *r,
                     struct mw_zb_best *best)
{
    x->z = z;
    x->r = r;
    x->best = best;
    mw_zb_order_init(&x->base, z);
    mw_zb_order_init(&x->full, z);
    mw_zb_order_init(&x->fb, z);
}

static void vee_release(struct vee *x)
{
    mw_zb_order_release(&x->base);
    mw_zb_order_release(&x->full);
    mw_zb_order_release(&x->fb);
}

void mw_zb_vee_block(struct mw_zb *z, struct mw_zb_run *r,
                     enum mw_zb_block kind, struct mw_zb_best *best)
{
    struct block b = {.kind = (int)kind, .period = 6};
    bool is_done = false;
    struct vee x;

    vee_init(&x, z, r, best);
    for (; !is_done && b.phase < (kind == MW_ZB_1F1B_V ? 3 : 1); b.phase++) {
        block_order(&x, &b);
        is_done = try_base(&x);
    }
    vee_release(&x);
}

void mw_zb_vee_from(struct mw_zb *z, struct mw_zb_run *r,
                    const struct mw_schedule *s, struct mw_zb_best *best)
{
    struct vee x;

    vee_init(&x, z, r, best);
    base_of(&x, s);
    try_base(&x);
    vee_release(&x);
}

void mw_zb_vee(struct mw_zb *z, struct mw_zb_run *r, struct mw_zb_best *best)
{
    struct vee x;
    bool is_done;
    int kind, k;

    vee_init(&x, z, r, best);
    zbv_order(&x);
    is_done = try_base(&x);
    for (kind = MW_ZB_V_HALF; !is_done && kind >= MW_ZB_V_MIN; kind--) {
        struct block b = {.kind = kind, .period = 6};

        block_order(&x, &b);
        is_done = try_base(&x);
    }
    for (k = 1; !is_done && k <= 5; k++) {
        struct block b = {GENERAL, k, 1, k, 1, 0, 6, 0};

        block_order(&x, &b);
        is_done = try_base(&x);
    }
    vee_release(&x);
}
