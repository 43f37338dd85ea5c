/* Statistics of small samples and curves. */
#ifndef MW_BASE_STATS_H
#define MW_BASE_STATS_H

#include <stddef.h>

/* Quantile q in [0, 1] by linear interpolation (R type 7); sorts v. NaN for
 * n = 0. */
double mw_quantile(double *v, size_t n, double q);
/* The same of numbers that ascend. */
double mw_quantile_sorted(const double *v, size_t n, double q);
double mw_median(double *v, size_t n); /* sorts v */
double mw_mean(const double *v, size_t n);
/* Coefficient of variation: standard deviation / mean. */
double mw_cv(const double *v, size_t n);

/*
 * Piecewise log-log interpolation through n points with x ascending and
 * x, y > 0; outside the range the end segment's slope is continued.
 */
double mw_loglog_interp(const double *x, const double *y, size_t n, double at);

#endif
