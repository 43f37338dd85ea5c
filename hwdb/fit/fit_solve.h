/*
 * Robust least squares with a prior, for few parameters:
 *
 *   minimise  sum_i w_i huber(r_i(x))  +  sum_k (x_k - prior_k)^2 / sd_k^2
 *
 * Where k has a base b, a constant of the same kind in what k is a variant of,
 * both keep the prior that they have alone, but with a correlation: k's term is
 *
 *   (z_k - KIN z_b)^2 / (1 - KIN^2),   z = (x - prior) / sd
 *
 * so that rows which decide b say what to expect of k, and k's rows a little of
 * b (partial pooling; Gelman and Hill, "Data Analysis Using Regression and
 * Multilevel/Hierarchical Models", 2007, chapter 12).
 *
 * Gauss-Newton on the log of each constant; Huber's weight (Huber, "Robust
 * estimation of a location parameter", Annals of Mathematical Statistics 35,
 * 1964) is min(1, DELTA / |r|).
 */
#ifndef MW_HWDB_FIT_FIT_SOLVE_H
#define MW_HWDB_FIT_FIT_SOLVE_H

#include <stdbool.h>
#include <stddef.h>

/* Half of what a constant is off its prior is its family's, half its own. */
#define MW_FIT_KIN 0.5
/* Log ratios beyond this count linearly. */
#define MW_FIT_DELTA 0.08

/*
 * One step: r[n] residuals at x, jacobian[n * p] row by row, weight[n] (0
 * leaves a row out), prior[p], sd[p]. step[p] gets what to add to x. False when
 * the normal equations are singular (a prior with sd > 0 prevents that).
 */
bool mw_fit_step(size_t n, size_t p, const double *r, const double *jacobian,
                 const double *weight, const double *x, const double *prior,
                 const double *sd, double *step);
/* A step that stays within low[p] and high[p]: what would leave them is held at
 * its bound and the others are solved with it there, until none leaves. (To cut
 * a free step would leave the others where they fit what cannot be.) */
struct mw_fit_problem {
    size_t n, p;
    const double *r, *jacobian, *weight, *x, *prior, *sd, *low, *high;
    /* [p] k's base, or p; NULL: none for any. Following bases ends. */
    const size_t *base;
};
bool mw_fit_step_within(const struct mw_fit_problem *q, double *step);
/* The objective at x, where the residuals are r; q's own are not looked at. */
double mw_fit_loss_of(const struct mw_fit_problem *q, const double *r,
                      const double *x);
double mw_fit_loss(size_t n, size_t p, const double *r, const double *weight,
                   const double *x, const double *prior, const double *sd);

#endif
