/*
 * Measured step time of a row. Printed, or derived from what is printed:
 *   tokens/s/GPU:  global batch x sequence / (tokens/s x GPUs)
 *   samples/s:     global batch / (samples/s)
 *   TFLOP/s/GPU:   FLOPs of a step / (TFLOP/s x GPUs)
 * with the FLOPs that tflops_def and flops_attention say: "model" counts
 * forward and backward, "hardware" adds the recomputed layers.
 *
 * Measured memory, by what mem_def says it is:
 *   "allocated"       tensors
 *   "nvidia-smi"      what the allocator holds, context and communicators
 *   anything else     what the allocator holds
 */
#include "sim/validate/validate_int.h"

#include <math.h>
#include <stdlib.h>

static double step_flops(const struct mw_case *c,
                         const struct mw_step_result *r)
{
    return mw_text_has(c->row->tflops_def, "hardware") ? r->hardware_flops
                                                       : r->model_flops;
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

bool mw_case_is_oom(const struct mw_measured *r)
{
    return mw_text_has(r->kind, "OOM") ||
           mw_text_has(r->mem_gib_per_gpu, "OOM");
}

void mw_case_memory(const struct mw_case *c, const struct mw_step_result *r,
                    struct mw_case_memory *out)
{
    const struct mw_measured *row = c->row;
    double held = r->reserved_bytes;

    if (mw_text_has(row->mem_def, "allocated")) {
        held = r->allocated_bytes;
    } else if (mw_text_has(row->mem_def, "nvidia-smi")) {
        held += r->peak_bytes - r->allocated_bytes;
    }
    *out = (struct mw_case_memory){
        .measured_bytes = row->mem_gb > 0
                              ? 0x1p30 * row->mem_gb
                              : 0x1p30 * strtod(row->mem_gib_per_gpu, NULL),
        .predicted_bytes = held,
        .is_oom = mw_case_is_oom(row)};
}
