/*
 * References of the kernels in double precision, straight from the formulas,
 * and what the kernel tests share: reproducible data, comparison, and a
 * directional finite difference of a double function.
 */
#ifndef MW_TESTS_K_REFERENCE_H
#define MW_TESTS_K_REFERENCE_H

#include "mw_test.h"

#include <stddef.h>
#include <stdint.h>

/* n values in [-1, 1), the i-th from (stream, i). */
void ref_fill(float *x, size_t n, uint64_t stream);
/* max |a - b| <= tol * max(1, max |b|), else the test fails. */
void ref_assert_close(const float *a, const double *b, size_t n, double tol,
                      const char *what);

/*
 * A scalar function of a float vector evaluated in double; the analytic
 * gradient is compared with central differences element by element at
 * `n_probes` places.
 */
typedef double (*ref_fn)(const double *x, void *arg);
void ref_assert_gradient(ref_fn fn, void *arg, const float *x, size_t n,
                         const float *gradient, double tol, const char *what);

/* Double references. */
void ref_layernorm(double *y, const double *x, const double *gamma,
                   const double *beta, int rows, int width, double eps);
void ref_rmsnorm(double *y, const double *x, const double *gamma, int rows,
                 int width, double eps);
double ref_gelu(double x);
double ref_silu(double x);
/* q [rows][nh d], k and v [rows][nkv d], each contiguous. */
void ref_attention(double *out, const double *q, const double *k,
                   const double *v, int n_seqs, int seq, int nh, int nkv,
                   int d);

#endif
