/*
 * The constants of stacks' memory as parameters (rows memory_*.STACK), and
 * measured figures of memory as data.
 */
#ifndef MW_HWDB_FIT_TENSOR_FIT_H
#define MW_HWDB_FIT_TENSOR_FIT_H

#include "hwdb/fit/fit_step.h"

#include <stdio.h>

extern const struct mw_fit_param mw_tensor_params[];
size_t mw_tensor_param_count(void);

/* One figure: memory[k] of a row. */
struct mw_tensor_figure {
    size_t row;
    int k;
    double weight;   /* each file weighs its square root of figures */
    double r;        /* log(predicted / measured) */
    double left_out; /* that with the row's cell left out */
};

struct mw_tensor_fit {
    struct mw_hwdb *db;
    struct mw_validate *v;
    size_t p, n; /* parameters, figures */
    struct mw_tensor_figure *figure;
    double *jacobian; /* [n * p] */
    double *x;        /* [p] logs of the constants */
};
/* MW_EINPUT when the database lacks a parameter. */
enum mw_status mw_tensor_fit_init(struct mw_tensor_fit *f, struct mw_hwdb *db,
                                  struct mw_validate *v, struct mw_err *err);
void mw_tensor_fit_release(struct mw_tensor_fit *f);
/* Iterates to the minimum. The database keeps the constants found, and the
 * rows their predictions with them. */
void mw_tensor_fit_run(struct mw_tensor_fit *f);
/* Fills left_out: for each cell a fit of what its rows' constants are without
 * it, then a true prediction. */
void mw_tensor_fit_leave_out(struct mw_tensor_fit *f);

#endif
