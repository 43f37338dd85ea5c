/*
 * exp and tanh in float32, written so that a compiler vectorises loops over
 * them (calls into libm are not). exp: x = n ln 2 + r with |r| <= ln(2)/2,
 * Cody-Waite two-part ln 2, polynomial of degree 7 (Taylor; its error at
 * |r| = 0.3466 is 5e-9), 2^n put together from bits. Relative error against
 * libm's double below 3e-7 over [-87, 88]; outside, the argument is clamped.
 */
#ifndef MW_KERNELS_FAST_MATH_INT_H
#define MW_KERNELS_FAST_MATH_INT_H

#include <stdint.h>
#include <string.h>

static inline float mw_fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    /* Adding 1.5 * 2^23 rounds to the nearest integer in float arithmetic. */
    const float shift = 12582912.0f;
    float n = (x * 1.44269504f + shift) - shift;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* tanh(u) = 1 - 2 / (exp(2u) + 1): absolute error near 1e-7, which is what
 * 1 + tanh needs. */
static inline float mw_fast_tanh(float u)
{
    return 1.0f - 2.0f / (mw_fast_exp(2.0f * u) + 1.0f);
}

#endif
