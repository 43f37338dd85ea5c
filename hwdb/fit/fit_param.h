/*
 * What the two fits (of times, fit_step.h; of memory, tensor_fit.h) have in
 * common: parameters that are rows of constants.csv, what a fit made of them,
 * and how that is printed and written back.
 */
#ifndef MW_HWDB_FIT_FIT_PARAM_H
#define MW_HWDB_FIT_FIT_PARAM_H

#include "hwdb/hwdb.h"

#include <stdio.h>

/* A constant to fit: its row in constants.csv, the range it must stay in, and
 * how far from its prior (in e-folds) one expects it. */
struct mw_fit_param {
    const char *name;
    double prior, least, most, sd;
};
/* A log of the constant, within its range. */
double mw_fit_clamp(const struct mw_fit_param *param, double x);
/* Sets the p constants of the database to x, logs. It must be the program's
 * own: its rows change. */
void mw_fit_params_set(struct mw_hwdb *db, const struct mw_fit_param *param,
                       size_t p, const double *x);
/* MW_EINPUT when the database lacks one. */
enum mw_status mw_fit_params_check(const struct mw_hwdb *db,
                                   const struct mw_fit_param *param, size_t p,
                                   struct mw_err *err);

/* A fit that is done. */
struct mw_fitted {
    const struct mw_fit_param *param;
    size_t p;
    const double *x; /* [p] logs of the constants */
    size_t n;
    const double *jacobian; /* [n * p] */
    const double *weight;   /* [n] */
    const char *program;    /* "fit_step" */
    const char *data;       /* "published training steps" */
    const char *datum;      /* "measured step" */
};
/* How much the data say about constant k, over what its prior says. Below 1
 * the prior decides. */
double mw_fitted_grip(const struct mw_fitted *f, size_t k);
/* To stdout, a line each; a table in Markdown. */
void mw_fitted_print(const struct mw_fitted *f);
void mw_fitted_doc(const struct mw_fitted *f, FILE *out);
/*
 * Prints a line of constants.csv, with its end. In a parameter's row value,
 * source and confidence become those of the fit: fitted (M), or, where the
 * prior decides, the prior's (L). False when the row is no parameter's:
 * nothing was printed.
 */
bool mw_fitted_write_line(const struct mw_fitted *f, const char *line,
                          size_t len, FILE *out);

#endif
