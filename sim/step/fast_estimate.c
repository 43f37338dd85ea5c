/*
 * The fast form with remembered prices: estimate.c's closed forms and memory
 * over a frame whose units were priced before (fast_price.c). For searches and
 * sweeps that ask for both figures of many plans.
 */
#include "sim/step/fast_int.h"

#include <math.h>

/* Each stage by its own groups. */
static void fill_by_stage(struct mw_fast *f, const struct mw_layout *layout,
                          const int *layers)
{
    struct mw_step_frame *frame = &f->frame;
    int *device_of = mw_calloc((size_t)frame->n_virtual, sizeof *device_of);
    bool *is_twin = mw_calloc((size_t)frame->n_devices, sizeof *is_twin);

    mw_fast_fill_stages(f, &frame->price, layers, false);
    mw_step_frame_devices(frame, false);
    for (int k = 0; k < frame->n_virtual; k++) {
        device_of[k] = k % frame->n_devices;
    }
    for (int d = 0; d < frame->n_devices; d++) {
        is_twin[d] = mw_step_frame_is_twin(frame, d);
    }
    mw_fast_sum_by_stage(f, layout, device_of,
                         (const int(*)[MW_UNIT_COUNT])frame->units, is_twin,
                         frame->tail);
    mw_free(device_of);
    mw_free(is_twin);
}

/* MW_OK with a time that is not a number: only the list tells. */
static enum mw_status in_closed_form(struct mw_fast *f,
                                     const struct mw_layout *layout,
                                     const int *layers, double *out_time_s,
                                     double *out_peak_bytes, struct mw_err *err)
{
    int m = mw_microbatches(layout, &f->scenario->workload);
    enum mw_plain plain = mw_plain_of(layout, m);
    struct mw_step_frame *frame = &f->frame;

    const struct mw_step_price *p = mw_fast_price_of(f, layout);

    frame->n_devices = layout->pp;
    frame->n_virtual = layout->pp * layout->vpp;
    if (mw_fast_has_stages(p)) {
        fill_by_stage(f, layout, layers);
    } else {
        mw_fast_fill_stages(f, p, layers, true);
        mw_step_frame_devices(frame, true);
    }
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
