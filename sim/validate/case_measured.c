/*
 * Measured step time of a row. Printed, or derived from what is printed:
 *   tokens/s/GPU:  global batch x sequence / (tokens/s x GPUs)
 *   samples/s:     global batch / (samples/s)
 *   TFLOP/s/GPU:   FLOPs of a step / (TFLOP/s x GPUs)
 * with the FLOPs that tflops_def and flops_attention say: "model" counts
 * forward and backward, "hardware" adds the recomputed layers.
 */
#include "sim/validate/validate_int.h"

static double step_flops(const struct mw_case *c,
                         const struct mw_step_result *r)
{
    return mw_text_has(c->row->tflops_def, "hardware") ? r->hardware_flops
                                                       : r->model_flops;
}

bool mw_case_has_time(const struct mw_measured *row)
{
    return row->step_time_s > 0 || row->tokens_per_s_per_gpu > 0 ||
           row->samples_per_s > 0 || row->tflops_per_gpu > 0;
}

double mw_case_measured_s(struct mw_case *c, const struct mw_step_result *r)
{
    const struct mw_measured *row = c->row;

    if (row->step_time_s > 0) {
        return row->step_time_s;
    }
    mw_case_fill(c, MW_FILL_STEP_TIME);
    if (row->tokens_per_s_per_gpu > 0) {
        return row->global_batch * row->seq /
               (row->tokens_per_s_per_gpu * row->gpus);
    }
    if (row->samples_per_s > 0) {
        return row->global_batch / row->samples_per_s;
    }
    if (row->tflops_per_gpu > 0) {
        return step_flops(c, r) / (row->tflops_per_gpu * 1e12 * row->gpus);
    }
    return 0;
}
