/*
 * The fast form with remembered prices: estimate.c's closed forms and memory
 * over a frame whose units were priced before (fast_price.c). For searches and
 * sweeps that ask for both figures of many plans.
 */
#include "sim/step/fast_int.h"

#include <math.h>

/* MW_OK with a time that is not a number: only the list tells. */
static enum mw_status in_closed_form(struct mw_fast *f,
                                     const struct mw_layout *layout,
                                     const int *layers, double *out_time_s,
                                     double *out_peak_bytes, struct mw_err *err)
{
    int m = mw_microbatches(layout, &f->scenario->workload);
    enum mw_plain plain = mw_plain_of(layout, m);
    struct mw_step_frame *frame = &f->frame;

    mw_fast_fill_stages(f, mw_fast_price_of(f, layout), layers, true);
    frame->n_devices = layout->pp;
    frame->n_virtual = layout->pp * layout->vpp;
    mw_step_frame_devices(frame, true);
    enum mw_status status = mw_step_frame_check(frame, err);

    if (status == MW_OK) {
        *out_time_s = mw_plain_time_s(frame, plain, m);
        *out_peak_bytes = mw_plain_peak_bytes(frame, plain, m);
    }
    return status;
}

enum mw_status mw_fast_estimate(struct mw_fast *f,
                                const struct mw_layout *layout,
                                const int *layers, double *out_time_s,
                                double *out_peak_bytes, struct mw_err *err)
{
    int m = mw_microbatches(layout, &f->scenario->workload);
    double time_s = (double)NAN, peak_bytes = 0;
    enum mw_status status = mw_step_check_rates(f->scenario, f->ctx, err);

    status =
        status != MW_OK ? status : mw_step_check_features(layout, f->ctx, err);
    if (status == MW_OK && mw_plain_of(layout, m) != MW_PLAIN_NO) {
        status = in_closed_form(f, layout, layers, &time_s, &peak_bytes, err);
    }
    if (status == MW_OK && isnan(time_s)) {
        return mw_step_replay(f->scenario, layout, layers, f->ctx, out_time_s,
                              out_peak_bytes, err);
    }
    if (status == MW_OK && out_time_s != NULL) {
        *out_time_s = time_s;
    }
    if (status == MW_OK && out_peak_bytes != NULL) {
        *out_peak_bytes = peak_bytes;
    }
    return status;
}
