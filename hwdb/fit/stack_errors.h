/* Errors of step times by training stack and device, for model_error.csv. */
#ifndef MW_HWDB_FIT_STACK_ERRORS_H
#define MW_HWDB_FIT_STACK_ERRORS_H

#include "hwdb/fit/fit_step.h"

#include <stdio.h>

/* Rows "stacks,GROUP,rows,p50,p90,p99,bias" of the left-out errors: all rows,
 * those of each stack (NAME has those of NAME-WORD too), and those of each
 * stack on each device ("NAME, SLUG"). */
void mw_fit_write_stack_errors(const struct mw_fit *f, FILE *out);

#endif
