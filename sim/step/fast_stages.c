/*
 * Stages on leaves of several sizes, in the fast form: each stage's passes and
 * tail under its own groups, whose prices are remembered as all are.
 */
#include "sim/step/fast_int.h"

void mw_fast_sum_by_stage(struct mw_fast *f, const struct mw_layout *layout,
                          const int *device_of,
                          const int (*units)[MW_UNIT_COUNT],
                          const bool *is_twin, struct mw_tail *tail)
{
    size_t pp = (size_t)layout->pp;
    int n = layout->pp * layout->vpp;
    struct mw_step_groups *of = mw_calloc(pp, sizeof *of);

    mw_step_stage_groups(&f->frame.price, layout, of);
    for (int d = 0; d < layout->pp; d++) {
        const struct mw_step_price *p = mw_fast_price_under(f, &of[d]);

        for (int k = 0; k < n; k++) {
            if (device_of[k] == d) {
                mw_vstage_sum(p, &f->frame.vstage[k]);
            }
        }
        mw_tail_of(p, d, units[d], is_twin[d], &tail[d]);
    }
    f->summed = NULL; /* the next layout's stages are summed anew */
    f->n_summed = 0;
    mw_fast_price_of(f, layout);
    mw_free(of);
}
