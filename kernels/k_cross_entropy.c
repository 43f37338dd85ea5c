/*
 * Softmax cross-entropy over a vocabulary that may be split (Shoeybi et al.,
 * Megatron-LM, 2019, section 3): maxima and sums of a row are reduced over the
 * shards between the steps.
 *
 *   loss = log(sum_j exp(l_j - max)) - (l_target - max)
 *   dl_j = scale (exp(l_j - max) / sum - [j = target])
 */
#include "kernels/kernels.h"
#include "kernels/fast_math_int.h"

#include <math.h>

void mw_k_xent_max(float *max, const float *logits, int rows, int n)
{
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *l = logits + r * (size_t)n;
        float m = l[0];
        for (int j = 1; j < n; j++) {
            m = l[j] > m ? l[j] : m;
        }
        max[r] = m;
    }
}

void mw_k_xent_sum(float *sum, float *target, const float *logits,
                   const float *max, const int32_t *label, int rows, int n,
                   int first)
{
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *l = logits + r * (size_t)n;
        float lane[4] = {0};
        for (int j = 0; j < n; j++) {
            lane[j & 3] += mw_fast_exp(l[j] - max[r]);
        }
        sum[r] = (lane[0] + lane[1]) + (lane[2] + lane[3]);
        int at = label[r] - first;
        target[r] = at >= 0 && at < n ? l[at] - max[r] : 0.0f;
    }
}

double mw_k_xent_loss(const float *sum, const float *target, int rows)
{
    double loss = 0.0;
    for (int r = 0; r < rows; r++) {
        loss += log((double)sum[r]) - (double)target[r];
    }
    return loss;
}

void mw_k_xent_bwd(float *dlogits, const float *logits, const float *max,
                   const float *sum, const int32_t *label, int rows, int n,
                   int first, float scale)
{
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *l = logits + r * (size_t)n;
        float *d = dlogits + r * (size_t)n;
        float inv = scale / sum[r];
        for (int j = 0; j < n; j++) {
            d[j] = mw_fast_exp(l[j] - max[r]) * inv;
        }
        int at = label[r] - first;
        if (at >= 0 && at < n) {
            d[at] -= scale;
        }
    }
}
