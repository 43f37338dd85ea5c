/*
 * LayerNorm and RMSNorm.
 *
 * With xhat = (x - mean) rstd and g = dy gamma, over a row of width w:
 *   LayerNorm  dx = rstd (g - mean(g) - xhat mean(g xhat))
 *   RMSNorm    dx = rstd (g - xhat mean(g xhat)),  xhat = x rstd
 * Sums of a row use 8 partial sums: short dependency chains, and a rounding
 * error that grows with width / 8.
 */
#include "kernels/kernels.h"

#include <math.h>

enum { LANES = 8 };

static float lanes_sum(const float lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

static float sum_row(const float *x, size_t n)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        lane[j] += x[i];
    }
    return lanes_sum(lane);
}

/* Sum of (x - c)^2. */
static float sum_squares(const float *x, float c, size_t n)
{
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            float d = x[i + j] - c;
            lane[j] += d * d;
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        float d = x[i] - c;
        lane[j] += d * d;
    }
    return lanes_sum(lane);
}

/* *out_g = sum dy gamma, *out_gx = sum dy gamma xhat. */
static void sum_gradients(const float *dy, const float *x, const float *gamma,
                          float mean, float rstd, size_t n, float *out_g,
                          float *out_gx)
{
    float g_lane[LANES] = {0}, gx_lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            float g = dy[i + j] * gamma[i + j];
            g_lane[j] += g;
            gx_lane[j] += g * ((x[i + j] - mean) * rstd);
        }
    }
    for (size_t j = 0; i < n; i++, j++) {
        float g = dy[i] * gamma[i];
        g_lane[j] += g;
        gx_lane[j] += g * ((x[i] - mean) * rstd);
    }
    *out_g = lanes_sum(g_lane);
    *out_gx = lanes_sum(gx_lane);
}

void mw_k_layernorm_fwd(float *y, float *mean, float *rstd, const float *x,
                        const float *gamma, const float *beta, int rows,
                        int width, float eps)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *xr = x + r * w;
        float *yr = y + r * w;
        float m = sum_row(xr, w) / (float)width;
        float s = 1.0f / sqrtf(sum_squares(xr, m, w) / (float)width + eps);
        for (size_t i = 0; i < w; i++) {
            yr[i] = (xr[i] - m) * s * gamma[i];
        }
        for (size_t i = 0; beta && i < w; i++) {
            yr[i] += beta[i];
        }
        mean[r] = m;
        rstd[r] = s;
    }
}

/* The common part: LayerNorm subtracts mean(g), RMSNorm does not. */
static void bwd_row(float *dx, const float *residual, const float *dy,
                    const float *x, const float *gamma, float mean, float rstd,
                    float g_mean, float gx_mean, size_t w)
{
    for (size_t i = 0; i < w; i++) {
        float xhat = (x[i] - mean) * rstd;
        float d = rstd * (dy[i] * gamma[i] - g_mean - xhat * gx_mean);
        dx[i] = residual ? residual[i] + d : d;
    }
}

void mw_k_layernorm_bwd_input(float *dx, const float *residual, const float *dy,
                              const float *x, const float *gamma,
                              const float *mean, const float *rstd, int rows,
                              int width)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        size_t at = r * w;
        float g, gx;
        sum_gradients(dy + at, x + at, gamma, mean[r], rstd[r], w, &g, &gx);
        bwd_row(dx + at, residual ? residual + at : NULL, dy + at, x + at,
                gamma, mean[r], rstd[r], g / (float)width, gx / (float)width,
                w);
    }
}

void mw_k_layernorm_bwd_param(float *dgamma, float *dbeta, const float *dy,
                              const float *x, const float *mean,
                              const float *rstd, int rows, int width)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *dyr = dy + r * w, *xr = x + r * w;
        for (size_t i = 0; i < w; i++) {
            dgamma[i] += dyr[i] * ((xr[i] - mean[r]) * rstd[r]);
        }
        for (size_t i = 0; dbeta && i < w; i++) {
            dbeta[i] += dyr[i];
        }
    }
}

void mw_k_rmsnorm_fwd(float *y, float *rstd, const float *x, const float *gamma,
                      int rows, int width, float eps)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *xr = x + r * w;
        float s = 1.0f / sqrtf(sum_squares(xr, 0.0f, w) / (float)width + eps);
        for (size_t i = 0; i < w; i++) {
            y[r * w + i] = xr[i] * s * gamma[i];
        }
        rstd[r] = s;
    }
}

void mw_k_rmsnorm_bwd_input(float *dx, const float *residual, const float *dy,
                            const float *x, const float *gamma,
                            const float *rstd, int rows, int width)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        size_t at = r * w;
        float g, gx;
        sum_gradients(dy + at, x + at, gamma, 0.0f, rstd[r], w, &g, &gx);
        bwd_row(dx + at, residual ? residual + at : NULL, dy + at, x + at,
                gamma, 0.0f, rstd[r], 0.0f, gx / (float)width, w);
    }
}

void mw_k_rmsnorm_bwd_param(float *dgamma, const float *dy, const float *x,
                            const float *rstd, int rows, int width)
{
    size_t w = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        const float *dyr = dy + r * w, *xr = x + r * w;
        for (size_t i = 0; i < w; i++) {
            dgamma[i] += dyr[i] * (xr[i] * rstd[r]);
        }
    }
}
