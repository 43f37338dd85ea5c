/*
 * ZB-V: two chunks a device in V placement (Qi et al., arXiv 2405.15362; the
 * same list as handcrafted_zb_v.py of sail-sg/zero-bubble and PyTorch's
 * ScheduleZBVZeroBubble). Rank r of p, chunk 0 then chunk 1 of the V:
 *
 *   F0 x (2(p-r)-1)   (F1 F0) x r   (F1 B1 W1) x (p-r)
 *   while forwards are left: [F0] B0 W0 F1 B1 W1
 *   (B0 B1) x r   (B0 W0) x (p-r)   rest of W1   rest of W0
 *
 * generated for max(2p-1, m) micro-batches, those past m dropped. No bubble
 * at F = B = W and m >= 2p-1; peak 2p chunk activations on every device.
 */
#include "sim/pipe/schedule_int.h"

struct zbv {
    struct mw_sched_build b;
    int d, m;
    int n[2][3]; /* [chunk][pass]: next micro-batch */
};

static void push(struct zbv *z, enum mw_pass pass, int chunk)
{
    int k = z->n[chunk][pass]++;

    if (k < z->m) {
        mw_sched_push(&z->b, z->d, pass, k, chunk);
    }
}

static void push_b_w(struct zbv *z, int chunk)
{
    push(z, MW_PASS_B, chunk);
    push(z, MW_PASS_W, chunk);
}

static void push_warm_up(struct zbv *z, int p, int r)
{
    int i;

    for (i = 0; i < 2 * (p - r) - 1; i++) {
        push(z, MW_PASS_F, 0);
    }
    for (i = 0; i < r; i++) {
        push(z, MW_PASS_F, 1);
        push(z, MW_PASS_F, 0);
    }
    for (i = 0; i < p - r; i++) {
        push(z, MW_PASS_F, 1);
        push_b_w(z, 1);
    }
}

static void push_device(struct zbv *z, int p, int n)
{
    int i, r = z->d;

    push_warm_up(z, p, r);
    while (z->n[1][MW_PASS_F] < z->n[0][MW_PASS_F] || z->n[0][MW_PASS_F] < n) {
        if (z->n[0][MW_PASS_F] < n) {
            push(z, MW_PASS_F, 0);
        }
        push_b_w(z, 0);
        push(z, MW_PASS_F, 1);
        push_b_w(z, 1);
    }
    for (i = 0; i < r; i++) {
        push(z, MW_PASS_B, 0);
        push(z, MW_PASS_B, 1);
    }
    for (i = 0; i < p - r; i++) {
        push_b_w(z, 0);
    }
    while (z->n[1][MW_PASS_W] < z->n[1][MW_PASS_B]) {
        push(z, MW_PASS_W, 1);
    }
    while (z->n[0][MW_PASS_W] < z->n[0][MW_PASS_B]) {
        push(z, MW_PASS_W, 0);
    }
}

enum mw_status mw_gen_zb_v(const struct mw_sched_args *a,
                           struct mw_schedule *out, struct mw_err *err)
{
    struct mw_sched_shape shape = {"zb-v", a->n_stages, a->n_microbatches,
                                   2,      1,           MW_PLACE_V};
    int p = a->n_stages, m = a->n_microbatches, d;
    struct zbv z = {.m = m};

    (void)err;
    mw_sched_begin(&z.b, &shape);
    for (d = 0; d < p; d++) {
        int c, i;

        z.d = d;
        for (c = 0; c < 2; c++) {
            for (i = 0; i < 3; i++) {
                z.n[c][i] = 0;
            }
        }
        push_device(&z, p, m > 2 * p - 1 ? m : 2 * p - 1);
    }
    mw_sched_end(&z.b, out);
    return MW_OK;
}
