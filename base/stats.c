/*
 * Statistics of small samples and curves.
 *
 * Quantiles are type 7 of Hyndman and Fan, "Sample quantiles in statistical
 * packages", The American Statistician 50(4), 1996: h = (n - 1) q, linear
 * between the neighbours of h. The curve is y = y0 (x / x0)^s between two
 * points, s = ln(y1 / y0) / ln(x1 / x0). Weights are left out.
 */
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y)) {
        return isnan(x) - isnan(y); /* NaN last, so that sorting is total */
    }
    return (x > y) - (x < y);
}

double mw_quantile(double *v, size_t n, double q)
{
    if (n > 0) {
        qsort(v, n, sizeof *v, compare_double);
    }
    return mw_quantile_sorted(v, n, q);
}

double mw_quantile_sorted(const double *v, size_t n, double q)
{
    if (n == 0) {
        return (double)NAN;
    }
    double h = (double)(n - 1) * fmin(fmax(q, 0), 1);
    size_t i = (size_t)h;
    if (i + 1 >= n) {
        return v[n - 1];
    }
    return v[i] + (h - (double)i) * (v[i + 1] - v[i]);
}

double mw_median(double *v, size_t n)
{
    return mw_quantile(v, n, 0.5);
}

double mw_mean(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += v[i];
    }
    return n > 0 ? sum / (double)n : (double)NAN;
}

double mw_cv(const double *v, size_t n)
{
    double mean = mw_mean(v, n), sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (v[i] - mean) * (v[i] - mean);
    }
    if (n < 2) {
        return n == 1 ? 0 : (double)NAN;
    }
    return sqrt(sum / (double)(n - 1)) / mean;
}

/* Index i of the segment [x[i], x[i+1]] used for `at`; n >= 2. */
static size_t segment_of(const double *x, size_t n, double at)
{
    size_t lo = 0, hi = n - 1;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (x[mid] <= at) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    return lo;
}

double mw_loglog_interp(const double *x, const double *y, size_t n, double at)
{
    if (n == 0 || !(at > 0)) {
        return (double)NAN;
    }
    if (n == 1) {
        return y[0];
    }
    size_t i = segment_of(x, n, at);
    if (at == x[i]) {
        return y[i]; /* a measured point is answered with what was measured */
    }
    if (at == x[i + 1]) {
        return y[i + 1];
    }
    double slope = log(y[i + 1] / y[i]) / log(x[i + 1] / x[i]);
    return y[i] * pow(at / x[i], slope);
}
