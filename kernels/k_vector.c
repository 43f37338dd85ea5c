/*
 * Element-wise work: residual additions and AdamW,
 *   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
 *   w -= lr (m / c1 / (sqrt(v / c2) + eps) + decay w)
 * (Loshchilov and Hutter, 2019, algorithm 2, with a constant schedule).
 */
#include "kernels/kernels.h"

#include <math.h>

void mw_k_add(float *y, const float *x, const float *bias,
              const float *residual, int rows, int width)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        size_t at = r * w;
        if (bias) {
            for (size_t i = 0; i < w; i++) {
                y[at + i] = (x[at + i] + bias[i]) + residual[at + i];
            }
        } else {
            for (size_t i = 0; i < w; i++) {
                y[at + i] = x[at + i] + residual[at + i];
            }
        }
    }
}

void mw_k_accumulate(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

void mw_k_adamw(const struct mw_k_adamw *h, float *w, const float *g, float *m,
                float *v, size_t n)
{
    float inv1 = 1.0f / h->correct1, inv2 = 1.0f / h->correct2;
    for (size_t i = 0; i < n; i++) {
        float mi = h->beta1 * m[i] + (1.0f - h->beta1) * g[i];
        float vi = h->beta2 * v[i] + (1.0f - h->beta2) * g[i] * g[i];
        float step = mi * inv1 / (sqrtf(vi * inv2) + h->eps);
        m[i] = mi;
        v[i] = vi;
        w[i] -= h->lr * (step + h->decay * w[i]);
    }
}
