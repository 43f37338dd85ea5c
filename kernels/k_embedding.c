/*
 * Token and position embeddings. A vocabulary shard holds rows first ..
 * first + n_local - 1; tokens elsewhere give zero rows, and the sum over the
 * shards (an all-reduce) is the embedding. Gradients are added row by row in
 * ascending order.
 */
#include "kernels/kernels.h"

#include <string.h>

void mw_k_embedding_fwd(float *y, const float *w, const int32_t *token,
                        int rows, int width, int first, int n_local)
{
    size_t n = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        int at = token[r] - first;
        if (at >= 0 && at < n_local) {
            memcpy(y + r * n, w + (size_t)at * n, n * sizeof *y);
        } else {
            memset(y + r * n, 0, n * sizeof *y);
        }
    }
}

void mw_k_embedding_bwd(float *dw, const float *dy, const int32_t *token,
                        int rows, int width, int first, int n_local)
{
    size_t n = (size_t)width;
    for (size_t r = 0; r < (size_t)rows; r++) {
        int at = token[r] - first;
        if (at >= 0 && at < n_local) {
            mw_k_accumulate(dw + (size_t)at * n, dy + r * n, n);
        }
    }
}

void mw_k_position_fwd(float *y, const float *w, int rows, int width, int seq)
{
    size_t n = (size_t)width;
    for (int r = 0; r < rows; r++) {
        mw_k_accumulate(y + (size_t)r * n, w + (size_t)(r % seq) * n, n);
    }
}

void mw_k_position_bwd(float *dw, const float *dy, int rows, int width, int seq)
{
    size_t n = (size_t)width;
    for (int r = 0; r < rows; r++) {
        mw_k_accumulate(dw + (size_t)(r % seq) * n, dy + (size_t)r * n, n);
    }
}
