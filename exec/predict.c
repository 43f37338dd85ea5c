/*
 * What sim/model says that a rank's passes keep: the bytes of its table for
 * each virtual stage, held from F to W (or BW), over the stage's own list.
 * The executor's slabs are laid out from the same sizes; a run reports both.
 */
#include "exec/predict.h"

static double stage_bytes(const struct mw_job *job, const struct mw_work *work,
                          int k)
{
    int first = mw_job_first_layer(job, k);
    int n = mw_layout_recomputed(&job->layout, k, job->layers[k]);
    struct mw_layout plain = job->layout;
    struct mw_work kept = *work;
    plain.recompute = MW_RECOMPUTE_NONE;
    kept.layout = &plain;
    double sum = 0.0;
    for (int i = 0; i < job->layers[k]; i++) {
        sum += mw_layer_activation_bytes(i >= n ? &kept : work, first + i);
    }
    if (k == 0) {
        sum += mw_embedding_activation_bytes(work);
    }
    return k == job->n_virtual - 1 ? sum + mw_head_activation_bytes(work) : sum;
}

double mw_job_activation_peak(const struct mw_job *job, int stage)
{
    const struct mw_schedule *s = job->schedule;
    const struct mw_workload *w = job->workload;
    const struct mw_work work = {.model = job->model,
                                 .layout = &job->layout,
                                 .seq = w->seq,
                                 .dtype = w->dtype,
                                 .is_flash = true,
                                 .grad_dtype = w->grad_dtype,
                                 .lora_rank = w->lora_rank,
                                 .lora_targets = w->lora_targets,
                                 .base_dtype = w->base_dtype,
                                 .doc_tokens = w->doc_tokens};
    double held = 0.0, peak = 0.0;
    for (uint32_t i = s->first[stage]; i < s->first[stage + 1]; i++) {
        const struct mw_slot *slot = &s->slot[i];
        int k = s->virtual_stage[stage * s->n_chunks + slot->chunk];
        if (slot->pass == MW_PASS_F) {
            held += stage_bytes(job, &work, k) / s->n_parts;
            peak = held > peak ? held : peak;
        } else if (slot->pass == MW_PASS_W || slot->pass == MW_PASS_BW) {
            held -= stage_bytes(job, &work, k) / s->n_parts;
        }
    }
    return peak;
}
