/*
 * GELU (tanh form) and SwiGLU with their gradients.
 *
 *   gelu'(x) = 0.5 (1 + t) + 0.5 x (1 - t^2) c (1 + 3 a x^2)
 *   with t = tanh(c (x + a x^3)), c = sqrt(2/pi), a = 0.044715
 *   silu'(z) = s (1 + z (1 - s)),  s = 1 / (1 + exp(-z))
 */
#include "kernels/kernels.h"
#include "kernels/fast_math_int.h"

static const float gelu_c = 0.797884561f; /* sqrt(2 / pi) */
static const float gelu_a = 0.044715f;

void mw_k_gelu_fwd(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float t = mw_fast_tanh(gelu_c * (v + gelu_a * v * v * v));
        y[i] = 0.5f * v * (1.0f + t);
    }
}

void mw_k_gelu_bwd(float *dx, const float *dy, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float v = x[i];
        float t = mw_fast_tanh(gelu_c * (v + gelu_a * v * v * v));
        float slope = 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * gelu_c *
                                              (1.0f + 3.0f * gelu_a * v * v);
        dx[i] = dy[i] * slope;
    }
}

void mw_k_swiglu_fwd(float *y, const float *x, int rows, int f)
{
    size_t w = (size_t)f;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *gate = x + 2 * r * w, *up = gate + w;
        for (size_t i = 0; i < w; i++) {
            float s = 1.0f / (1.0f + mw_fast_exp(-gate[i]));
            y[r * w + i] = gate[i] * s * up[i];
        }
    }
}

void mw_k_swiglu_bwd(float *dx, const float *dy, const float *x, int rows,
                     int f)
{
    size_t w = (size_t)f;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *gate = x + 2 * r * w, *up = gate + w, *d = dy + r * w;
        float *dgate = dx + 2 * r * w, *dup = dgate + w;
        for (size_t i = 0; i < w; i++) {
            float s = 1.0f / (1.0f + mw_fast_exp(-gate[i]));
            float slope = s * (1.0f + gate[i] * (1.0f - s));
            float di = d[i], gi = gate[i];
            dgate[i] = di * up[i] * slope;
            dup[i] = di * gi * s;
        }
    }
}
