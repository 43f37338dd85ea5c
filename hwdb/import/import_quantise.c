/*
 * Taking the quantisation of activations out of low-precision products.
 *
 * An inference engine's FP8 or FP4 linear layer first quantises its m x k
 * input: a pass over m k elements that does not depend on n. Training
 * quantises a tensor once for two products and caches its weights, so that
 * the pass must not be in the time of a product. It shows in the times: over
 * the shapes of a set
 *
 *   t = a m n k + (q m k + o m n) / bandwidth + c
 *
 * fitted to relative errors with all terms >= 0 has q = 7.4 to 9 bytes and c =
 * 9 to 15 us for FP8 on Hopper and Blackwell, 3.2 to 7 bytes for FP8 in
 * blocks, 4.2 to 4.6 for NVFP4, and q <= 0.6, c about 3 us for bf16, which
 * quantises nothing. What q and c exceed those of bf16 by is taken off; a row
 * of which that is more than half is dropped.
 */
#include "hwdb/import/import_int.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N_TERMS = 4, FIT_ROWS = 2048 };
static const double most_off = 0.5;

/* Solves the normal equations of the chosen terms; false when singular. */
static bool solve(double a[N_TERMS][N_TERMS + 1], size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t pivot = i;
        for (size_t r = i; r < n; r++) {
            pivot = fabs(a[r][i]) > fabs(a[pivot][i]) ? r : pivot;
        }
        for (size_t c = 0; c <= n; c++) {
            double keep = a[i][c];
            a[i][c] = a[pivot][c];
            a[pivot][c] = keep;
        }
        if (!(fabs(a[i][i]) > 0)) {
            return false;
        }
        for (size_t r = 0; r < n; r++) {
            double f = r == i ? 0 : a[r][i] / a[i][i];
            for (size_t c = 0; c <= n; c++) {
                a[r][c] -= f * a[i][c];
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = a[i][n] / a[i][i];
    }
    return true;
}

/* Terms of one row over its time: the fit wants their sum to be 1. */
static void terms_of(const struct mw_sample *s, double x[N_TERMS])
{
    double bw = s->gpu->mem_bw_Bps * s->gpu->mem_efficiency;
    double m = (double)s->m, n = (double)s->n, k = (double)s->k;
    x[0] = m * n * k / s->time_s * 1e-15;
    x[1] = m * k / bw / s->time_s;
    x[2] = m * n / bw / s->time_s;
    x[3] = 1e-6 / s->time_s;
}

static double residual(const struct mw_sample *v, size_t n,
                       const double coef[N_TERMS])
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double x[N_TERMS], e = -1;
        if (v[i].m < FIT_ROWS) {
            continue;
        }
        terms_of(&v[i], x);
        for (size_t t = 0; t < N_TERMS; t++) {
            e += coef[t] * x[t];
        }
        sum += e * e;
    }
    return sum;
}

/* Least squares over the terms of `mask`; false unless all are >= 0. */
static bool fit_terms(const struct mw_sample *v, size_t n, unsigned mask,
                      double coef[N_TERMS])
{
    double a[N_TERMS][N_TERMS + 1] = {{0}}, found[N_TERMS] = {0};
    size_t at[N_TERMS], n_terms = 0;
    for (size_t t = 0; t < N_TERMS; t++) {
        coef[t] = 0;
        if (mask >> t & 1) {
            at[n_terms++] = t;
        }
    }
    for (size_t i = 0; i < n; i++) {
        double x[N_TERMS];
        if (v[i].m < FIT_ROWS) {
            continue;
        }
        terms_of(&v[i], x);
        for (size_t r = 0; r < n_terms; r++) {
            for (size_t c = 0; c < n_terms; c++) {
                a[r][c] += x[at[r]] * x[at[c]];
            }
            a[r][n_terms] += x[at[r]];
        }
    }
    if (!solve(a, n_terms, found)) {
        return false;
    }
    for (size_t r = 0; r < n_terms; r++) {
        if (!(found[r] >= 0)) {
            return false;
        }
        coef[at[r]] = found[r];
    }
    return true;
}

/* Non-negative least squares: the best of the 15 choices of terms. */
static bool fit(const struct mw_sample *v, size_t n, double out[N_TERMS])
{
    double best = DBL_MAX;
    for (unsigned mask = 1; mask < 1u << N_TERMS; mask++) {
        double coef[N_TERMS];
        if (!fit_terms(v, n, mask, coef)) {
            continue;
        }
        double sum = residual(v, n, coef);
        if (sum < best) {
            best = sum;
            memcpy(out, coef, sizeof coef);
        }
    }
    return best < DBL_MAX;
}

static size_t end_of_set(const struct mw_samples *s, size_t first)
{
    size_t end = first + 1;
    while (end < s->n && mw_import_is_same_set(&s->v[first], &s->v[end])) {
        end++;
    }
    return end;
}

/* Bytes and start of the same device's bf16 products. */
static void fit_control(const struct mw_samples *s, const struct mw_gpu *gpu,
                        double out[N_TERMS])
{
    memset(out, 0, N_TERMS * sizeof *out);
    for (size_t i = 0, end; i < s->n; i = end) {
        end = end_of_set(s, i);
        if (s->v[i].gpu == gpu && strcmp(s->v[i].op, "gemm") == 0 &&
            strcmp(s->v[i].dtype, "bf16") == 0) {
            fit(&s->v[i], end - i, out);
        }
    }
}

static void take_off(struct mw_import *in, size_t first, size_t end)
{
    struct mw_samples *s = &in->samples;
    const struct mw_gpu *gpu = s->v[first].gpu;
    double own[N_TERMS], control[N_TERMS];
    double bw = gpu->mem_bw_Bps * gpu->mem_efficiency;
    if (!fit(&s->v[first], end - first, own)) {
        return;
    }
    fit_control(s, gpu, control);
    struct mw_import_quantise q = {
        .first = s->v[first],
        .bytes_per_element = fmax(own[1] - control[1], 0),
        .start_s = fmax(own[3] - control[3], 0) * 1e-6};
    for (size_t i = first; i < end; i++) {
        double off_s =
            q.bytes_per_element * (double)s->v[i].m * (double)s->v[i].k / bw +
            q.start_s;
        bool is_most = off_s > most_off * s->v[i].time_s;
        q.n_dropped += is_most;
        s->v[i].time_s = is_most ? 0 : s->v[i].time_s - off_s;
    }
    q.n = end - first;
    mw_array_push(&in->quantise, q);
}

void mw_import_take_quantise_off(struct mw_import *in)
{
    struct mw_samples *s = &in->samples;
    size_t n = 0;
    for (size_t i = 0, end; i < s->n; i = end) {
        end = end_of_set(s, i);
        if (s->v[i].source == MW_SRC_AIC_TRTLLM_QUANTISE) {
            take_off(in, i, end);
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].time_s > 0) {
            s->v[n++] = s->v[i];
        }
    }
    s->n = n;
}
