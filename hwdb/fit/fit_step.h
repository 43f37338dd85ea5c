/*
 * The constants of the step model as parameters, and measured rows as data.
 */
#ifndef MW_HWDB_FIT_FIT_STEP_H
#define MW_HWDB_FIT_FIT_STEP_H

#include "hwdb/fit/fit_param.h"
#include "sim/validate/validate.h"

extern const struct mw_fit_param mw_fit_params[];
size_t mw_fit_param_count(void);

struct mw_tensor_fit; /* tensor_fit.h */

struct mw_fit {
    struct mw_hwdb *db;
    struct mw_validate *v;
    size_t p;         /* parameters */
    size_t n;         /* rows that can be predicted */
    size_t *row;      /* [n] index into v->rows */
    double *weight;   /* [n] each file weighs the same */
    double *r;        /* [n] log(predicted / measured) */
    double *jacobian; /* [n * p] */
    double *x;        /* [p] logs of the constants */
    double *left_out; /* [n] residual with the row's cell left out */
    const struct mw_tensor_fit *memory; /* NULL: reports have no memory */
};
enum mw_status mw_fit_init(struct mw_fit *f, struct mw_hwdb *db,
                           struct mw_validate *v, struct mw_err *err);
void mw_fit_release(struct mw_fit *f);
/* Iterates to the minimum. */
void mw_fit_run(struct mw_fit *f);
/* The fit's result, as it is printed and written. */
struct mw_fitted mw_fit_result(const struct mw_fit *f);
/* Fills left_out: for each cell the linearised fit without it, then a true
 * prediction of its rows with those constants. */
void mw_fit_leave_out(struct mw_fit *f);
/* The same with a random part of the rows out at a time, or of the cells
 * (fit_folds.h): how well rows are met that are like those of the fit. */
void mw_fit_leave_folds(struct mw_fit *f, size_t folds, uint64_t seed,
                        bool whole_cells);

#endif
