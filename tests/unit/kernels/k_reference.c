/*
 * Double-precision references of the kernels; see k_reference.h. Written for
 * clarity: no blocking, no saved statistics.
 */
#include "k_reference.h"

#include "base/mem.h"
#include "base/rand.h"

#include <math.h>

void ref_fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(2.0 * mw_rand_unit(7, stream, i) - 1.0);
    }
}

void ref_assert_close(const float *a, const double *b, size_t n, double tol,
                      const char *what)
{
    double scale = 1.0;
    for (size_t i = 0; i < n; i++) {
        scale = fmax(scale, fabs(b[i]));
    }
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i] - b[i]) <= tol * scale)) {
            fail_msg("%s[%zu] is %.9g, reference %.9g", what, i, (double)a[i],
                     b[i]);
        }
    }
}

void ref_assert_gradient(ref_fn fn, void *arg, const float *x, size_t n,
                         const float *gradient, double tol, const char *what)
{
    enum { PROBES = 24 };
    const double h = 1e-4;
    double *v = mw_calloc(n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = (double)x[i];
    }
    for (size_t p = 0; p < PROBES; p++) {
        size_t i = mw_rand_u64(11, 0, p) % n;
        double keep = v[i];
        v[i] = keep + h;
        double up = fn(v, arg);
        v[i] = keep - h;
        double down = fn(v, arg);
        v[i] = keep;
        double slope = (up - down) / (2.0 * h);
        if (!mw_near(slope, (double)gradient[i], tol, tol)) {
            fail_msg("%s: gradient[%zu] is %.9g, difference quotient %.9g",
                     what, i, (double)gradient[i], slope);
        }
    }
    mw_free(v);
}

static double mean_of(const double *x, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
    }
    return sum / n;
}

void ref_layernorm(double *y, const double *x, const double *gamma,
                   const double *beta, int rows, int width, double eps)
{
    for (int r = 0; r < rows; r++, x += width, y += width) {
        double mean = mean_of(x, width), var = 0.0;
        for (int i = 0; i < width; i++) {
            var += (x[i] - mean) * (x[i] - mean) / width;
        }
        for (int i = 0; i < width; i++) {
            y[i] = gamma[i] * (x[i] - mean) / sqrt(var + eps) + beta[i];
        }
    }
}

void ref_rmsnorm(double *y, const double *x, const double *gamma, int rows,
                 int width, double eps)
{
    for (int r = 0; r < rows; r++, x += width, y += width) {
        double square = 0.0;
        for (int i = 0; i < width; i++) {
            square += x[i] * x[i] / width;
        }
        for (int i = 0; i < width; i++) {
            y[i] = gamma[i] * x[i] / sqrt(square + eps);
        }
    }
}

double ref_gelu(double x)
{
    return 0.5 * x *
           (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) *
                       (x + 0.044715 * x * x * x)));
}

double ref_silu(double x)
{
    return x / (1.0 + exp(-x));
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* One query row of one head against keys 0 .. last. */
static void attend(double *out, const double *q, const double *k,
                   const double *v, int last, int ld, int d)
{
    double sum = 0.0;
    for (int j = 0; j < d; j++) {
        out[j] = 0.0;
    }
    for (int t = 0; t <= last; t++) {
        double p = exp(dot(q, k + (ptrdiff_t)t * ld, d) / sqrt(d));
        sum += p;
        for (int j = 0; j < d; j++) {
            out[j] += p * v[(ptrdiff_t)t * ld + j];
        }
    }
    for (int j = 0; j < d; j++) {
        out[j] /= sum;
    }
}

void ref_attention(double *out, const double *q, const double *k,
                   const double *v, int n_seqs, int seq, int nh, int nkv, int d)
{
    for (int s = 0; s < n_seqs; s++) {
        for (int h = 0; h < nh; h++) {
            int kv = h / (nh / nkv);
            ptrdiff_t base = (ptrdiff_t)s * seq * nkv * d + kv * d;
            for (int t = 0; t < seq; t++) {
                ptrdiff_t at = ((ptrdiff_t)s * seq + t) * nh * d + h * d;
                attend(out + at, q + at, k + base, v + base, t, nkv * d, d);
            }
        }
    }
}
