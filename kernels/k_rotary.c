/*
 * Rotary position embedding: pair (i, i + d/2) of a head is rotated by the
 * angle position * theta^(-2i/d), in float32. The backward pass is the
 * rotation by the negative angle (a rotation's transpose is its inverse).
 */
#include "kernels/kernels.h"

#include <math.h>

static void rotate_row(float *x, int n_heads, int head_dim, float position,
                       float theta, float sign)
{
    int half = head_dim / 2;
    for (int i = 0; i < half; i++) {
        float exponent = -2.0f * (float)i / (float)head_dim;
        float angle = position * powf(theta, exponent);
        float c = cosf(angle), s = sign * sinf(angle);
        for (int h = 0; h < n_heads; h++) {
            float *a = x + (size_t)h * (size_t)head_dim + (size_t)i;
            float *b = a + half;
            float u = *a, v = *b;
            *a = u * c - v * s;
            *b = u * s + v * c;
        }
    }
}

void mw_k_rotary(float *x, int rows, int ld, int seq, int n_heads, int head_dim,
                 float theta, int sign)
{
    for (int r = 0; r < rows; r++) {
        rotate_row(x + (size_t)r * (size_t)ld, n_heads, head_dim,
                   (float)(r % seq), theta, (float)sign);
    }
}

void mw_k_rotary_at(float *x, int rows, int ld, int first, int n_heads,
                    int head_dim, float theta, int sign)
{
    for (int r = 0; r < rows; r++) {
        rotate_row(x + (size_t)r * (size_t)ld, n_heads, head_dim,
                   (float)(first + r), theta, (float)sign);
    }
}
