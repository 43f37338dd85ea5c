/*
 * Hand-made zero-bubble schedules, one chunk per device (Qi et al., ICLR 2024).
 *   ZB-H1: w_i = p-1-i warm-up forwards, W trails B by i: memory of 1F1B,
 *          span m t + (p-1)(F+B-W)
 *   ZB-H2: w_i = 2(p-1-i), W trails by 2i: 2p-1 activations, span m t when
 *          F = B = W and m >= 2p-1 (makespan adds (p-1) F)
 */
#include "sim/pipe/schedule_int.h"

static void push_zb(struct mw_sched_build *b, int d, int m, int w, int lag)
{
    int k, nf = w < m ? w : m, nw = 0;

    for (k = 0; k < nf; k++) {
        mw_sched_push(b, d, MW_PASS_F, k, 0);
    }
    for (k = 0; k < m; k++) {
        if (nf < m) {
            mw_sched_push(b, d, MW_PASS_F, nf++, 0);
        }
        mw_sched_push(b, d, MW_PASS_B, k, 0);
        if (k >= lag) {
            mw_sched_push(b, d, MW_PASS_W, nw++, 0);
        }
    }
    for (; nw < m; nw++) {
        mw_sched_push(b, d, MW_PASS_W, nw, 0);
    }
}

static enum mw_status make(const char *name, const struct mw_sched_args *a,
                           int factor, struct mw_schedule *out)
{
    struct mw_sched_shape shape = {name, a->n_stages, a->n_microbatches,
                                   1,    1,           MW_PLACE_LOOP};
    struct mw_sched_build b;
    int d;

    mw_sched_begin(&b, &shape);
    for (d = 0; d < a->n_stages; d++) {
        push_zb(&b, d, a->n_microbatches, factor * (a->n_stages - 1 - d),
                factor * d);
    }
    mw_sched_end(&b, out);
    return MW_OK;
}

enum mw_status mw_gen_zb_h1(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make("zb-h1", a, 1, out);
}

enum mw_status mw_gen_zb_h2(const struct mw_sched_args *a,
                            struct mw_schedule *out, struct mw_err *err)
{
    (void)err;
    return make("zb-h2", a, 2, out);
}
