/*
 * Linear layers on OpenBLAS's sgemm. Weights are stored [out][in], so forward
 * is NT, input gradient NN, weight gradient TN. m, n, k are those of the
 * layer (rows, out, in) in all three.
 */
#include "kernels/kernels.h"

#include <cblas.h>

void mw_k_linear_fwd(float *y, const float *x, const float *w,
                     const float *bias, int m, int n, int k)
{
    float beta = 0.0f;
    if (bias) {
        for (size_t r = 0; r < (size_t)m; r++) {
            for (size_t j = 0; j < (size_t)n; j++) {
                y[r * (size_t)n + j] = bias[j];
            }
        }
        beta = 1.0f;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, x, k, w,
                k, beta, y, n);
}

void mw_k_linear_bwd_input(float *dx, const float *dy, const float *w, int m,
                           int n, int k)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1.0f, dy, n,
                w, k, 0.0f, dx, k);
}

void mw_k_linear_bwd_weight(float *dw, float *db, const float *dy,
                            const float *x, int m, int n, int k)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1.0f, dy, n,
                x, k, 1.0f, dw, k);
    if (db) {
        mw_k_bias_bwd(db, dy, m, n);
    }
}

void mw_k_bias_bwd(float *db, const float *dy, int m, int n)
{
    for (size_t r = 0; r < (size_t)m; r++) {
        for (size_t j = 0; j < (size_t)n; j++) {
            db[j] += dy[r * (size_t)n + j];
        }
    }
}

/* ---- groups --------------------------------------------------------------
 */
static int group_rows(const struct mw_k_groups *a, int i)
{
    return a->first[i + 1] - a->first[i];
}

static size_t row_at(const struct mw_k_groups *a, int i, int width)
{
    return (size_t)a->first[i] * (size_t)width;
}

static size_t weight_at(const struct mw_k_groups *a, int i)
{
    return (size_t)i * (size_t)a->n * (size_t)a->k;
}

void mw_k_groups_fwd(const struct mw_k_groups *a, float *y, const float *x,
                     const float *w)
{
    for (int i = 0; i < a->n_groups; i++) {
        if (group_rows(a, i) > 0) {
            mw_k_linear_fwd(y + row_at(a, i, a->n), x + row_at(a, i, a->k),
                            w + weight_at(a, i), NULL, group_rows(a, i), a->n,
                            a->k);
        }
    }
}

void mw_k_groups_bwd_input(const struct mw_k_groups *a, float *dx,
                           const float *dy, const float *w)
{
    for (int i = 0; i < a->n_groups; i++) {
        if (group_rows(a, i) > 0) {
            mw_k_linear_bwd_input(dx + row_at(a, i, a->k),
                                  dy + row_at(a, i, a->n), w + weight_at(a, i),
                                  group_rows(a, i), a->n, a->k);
        }
    }
}

void mw_k_groups_bwd_weight(const struct mw_k_groups *a, float *dw,
                            const float *dy, const float *x)
{
    for (int i = 0; i < a->n_groups; i++) {
        if (group_rows(a, i) > 0) {
            mw_k_linear_bwd_weight(
                dw + weight_at(a, i), NULL, dy + row_at(a, i, a->n),
                x + row_at(a, i, a->k), group_rows(a, i), a->n, a->k);
        }
    }
}
