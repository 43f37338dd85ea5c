/*
 * The activation high-water mark that the model's table predicts for a rank.
 */
#ifndef MW_EXEC_PREDICT_H
#define MW_EXEC_PREDICT_H

#include "exec/job.h"

/* Bytes that a rank of pipeline stage `stage` holds at most between F and W,
 * by mw_layer_activation_bytes and its kin (sim/model), attention fused, no
 * dropout: what the executor runs. A whole number for fp32. */
double mw_job_activation_peak(const struct mw_job *job, int stage);

#endif
