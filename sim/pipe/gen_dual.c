/*
 * Bidirectional and dual schedules.
 *
 * DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1; deepseek-ai/DualPipe,
 * dualpipe.py) feeds micro-batches from both ends; DualPipeV ("cut in half",
 * dualpipev.py) does the same on a V of two chunks. Both are eight steps of the
 * same form, with h ranks from the end to the middle and rank r counted from
 * the end, "0" the chunk nearer to the input, "1" the other:
 *
 *   1  F0             x 2(h-r-1)        5  BW1 [F1|BW0]   x (h-r-1)
 *   2  F0 F1          x (r+1)           6  B1 B0          x (r+1)
 *   3  B1 W F1        x (h-r-1)         7  W B0           x (h-r-1)
 *   4  [F0|BW1] [F1|BW0] x (n-2h+r+1)   8  W              x (r+1)
 *
 * [x|y] overlap; on the innermost rank the first [F0|BW1] does not. W is the
 * oldest outstanding one; step 6 turns to split backwards half way.
 *
 * Chimera (Li and Hoefler, SC 2021): two 1F1B-like pipelines in opposite
 * directions merged in one slot grid, units of p micro-batches concatenated.
 */
#include "sim/pipe/schedule_int.h"

struct dual {
    struct mw_sched_build b;
    int d;
    int chunk[2];     /* local chunk that phase 0 and 1 stand for */
    int base[2];      /* first item of the phase */
    int nf[2], nb[2]; /* forwards and backwards pushed */
    struct {
        struct mw_slot *v;
        size_t n, cap;
    } pending; /* weight gradients, oldest first */
    size_t n_done;
};

static void push_f(struct dual *z, int phase)
{
    mw_sched_push(&z->b, z->d, MW_PASS_F, z->base[phase] + z->nf[phase]++,
                  z->chunk[phase]);
}

static void push_b(struct dual *z, int phase, bool is_split)
{
    int item = z->base[phase] + z->nb[phase]++;
    struct mw_slot w = {item, (int16_t)z->chunk[phase], MW_PASS_W, 0};

    mw_sched_push(&z->b, z->d, is_split ? MW_PASS_B : MW_PASS_BW, item,
                  z->chunk[phase]);
    if (is_split) {
        mw_array_push(&z->pending, w);
    }
}

static void push_w(struct dual *z)
{
    struct mw_slot w = z->pending.v[z->n_done++];

    mw_sched_push(&z->b, z->d, MW_PASS_W, w.microbatch, w.chunk);
}

/* Forward of one phase over the backward of the other. */
static void push_pair(struct dual *z, int phase, bool is_overlapped)
{
    push_f(z, phase);
    if (is_overlapped) {
        mw_sched_pair(&z->b, z->d);
    }
    push_b(z, 1 - phase, false);
}

static void push_drain(struct dual *z, int h, int r)
{
    bool is_split = false;
    int i;

    for (i = 0; i < r + 1; i++) {
        is_split |= i == (r + 1) / 2 && r % 2 == 1;
        push_b(z, 1, is_split);
        is_split |= i == (r + 1) / 2 && r % 2 == 0;
        push_b(z, 0, is_split);
    }
    for (i = 0; i < h - r - 1; i++) {
        push_w(z);
        push_b(z, 0, true);
    }
    while (z->n_done < z->pending.n) {
        push_w(z);
    }
}

static void push_steps(struct dual *z, int h, int r, int n)
{
    int i;

    for (i = 0; i < 2 * (h - r - 1); i++) {
        push_f(z, 0);
    }
    for (i = 0; i < r + 1; i++) {
        push_f(z, 0);
        push_f(z, 1);
    }
    for (i = 0; i < h - r - 1; i++) {
        push_b(z, 1, true);
        push_w(z);
        push_f(z, 1);
    }
    for (i = 0; i < n - 2 * h + r + 1; i++) {
        push_pair(z, 0, i > 0 || r < h - 1);
        push_pair(z, 1, true);
    }
    for (i = 0; i < h - r - 1; i++) {
        push_b(z, 1, false);
        push_pair(z, 1, true);
    }
    push_drain(z, h, r);
}

static void start_device(struct dual *z, int d)
{
    z->d = d;
    z->nf[0] = z->nf[1] = z->nb[0] = z->nb[1] = 0;
    mw_array_clear(&z->pending);
    z->n_done = 0;
}

enum mw_status mw_gen_dualpipev(const struct mw_sched_args *a,
                                struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {"dualpipev", a->n_stages, a->n_microbatches,
                                   2,           1,           MW_PLACE_V};
    struct dual z = {.chunk = {0, 1}};
    int d;

    if (a->n_microbatches < 2 * a->n_stages) {
        return mw_fail(err, MW_EUSAGE,
                       "dualpipev needs at least 2 micro-batches per stage: %d "
                       "for %d stages, not %d",
                       2 * a->n_stages, a->n_stages, a->n_microbatches);
    }
    mw_sched_begin(&z.b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        start_device(&z, d);
        push_steps(&z, a->n_stages, d, a->n_microbatches);
    }
    mw_array_release(&z.pending);
    mw_sched_end(&z.b, out);
    return MW_OK;
}

enum mw_status mw_gen_dualpipe(const struct mw_sched_args *a,
                               struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {
        "dualpipe", a->n_stages, a->n_microbatches,
        2,          1,           MW_PLACE_BIDIRECTIONAL};
    int d, p = a->n_stages, m = a->n_microbatches;
    struct dual z = {.nf = {0}};

    if (p % 2 != 0 || m % 2 != 0 || m < 2 * p) {
        return mw_fail(err, MW_EUSAGE,
                       "dualpipe needs an even number of stages and an even "
                       "number of micro-batches of at least twice that, not %d "
                       "stages and %d micro-batches",
                       p, m);
    }
    mw_sched_begin(&z.b, &shape);
    for (d = 0; d < p; d++) {
        int far = d >= p / 2; /* the second half enters from the other end */

        start_device(&z, d);
        z.chunk[0] = far;
        z.chunk[1] = 1 - far;
        z.base[0] = far * m / 2;
        z.base[1] = (1 - far) * m / 2;
        push_steps(&z, p / 2, far ? p - 1 - d : d, m / 2);
    }
    mw_array_release(&z.pending);
    mw_sched_end(&z.b, out);
    return MW_OK;
}

/* ---- Chimera ----------------------------------------------------------- */
/*
 * Slot numbers of a unit, one a pass: down micro-batch j on device d forward
 * 2j + d, backward 2j + 2p-1-d; the up pipeline mirrored. d and p-1-d differ in
 * parity (p even), so the two never meet; the next unit is 2p later.
 */
static void push_chimera(struct mw_sched_build *b, int d, int p, int m)
{
    int slot, u, half = m / 2, n_slots = 2 * p * (m / p) + 2 * p;

    for (slot = 0; slot < n_slots; slot++) {
        int r;

        for (r = 0; r < 2; r++) {
            int at = r == 0 ? d : p - 1 - d, pass;

            for (pass = 0; pass < 2; pass++) {
                int x = slot - (pass == 0 ? at : 2 * p - 1 - at);

                if (x < 0 || x % 2 != 0) {
                    continue;
                }
                u = x / (2 * p); /* unit; j runs over p/2 of its p places */
                if (x % (2 * p) / 2 < p / 2 && u < m / p) {
                    mw_sched_push(b, d, pass == 0 ? MW_PASS_F : MW_PASS_BW,
                                  r * half + u * p / 2 + x % (2 * p) / 2, r);
                }
            }
        }
    }
}

enum mw_status mw_gen_chimera(const struct mw_sched_args *a,
                              struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {
        "chimera", a->n_stages, a->n_microbatches,
        2,         1,           MW_PLACE_BIDIRECTIONAL};
    struct mw_sched_build b;
    int d, p = a->n_stages, m = a->n_microbatches;

    if (p % 2 != 0 || m % p != 0) {
        return mw_fail(err, MW_EUSAGE,
                       "chimera needs an even number of stages that divides "
                       "the micro-batches, not %d stages and %d micro-batches",
                       p, m);
    }
    mw_sched_begin(&b, &shape);
    for (d = 0; d < p; d++) {
        push_chimera(&b, d, p, m);
    }
    mw_sched_end(&b, out);
    return MW_OK;
}
