/*
 * What came out of a fit of memory: for people, for the database, and tables
 * for docs/accuracy.md and model_error.csv.
 */
#ifndef MW_HWDB_FIT_TENSOR_REPORT_H
#define MW_HWDB_FIT_TENSOR_REPORT_H

#include "hwdb/fit/tensor_fit.h"

/* To stdout: constants with their priors, errors by file, group and kind. */
void mw_tensor_print(const struct mw_tensor_fit *f);
/* To stdout: every figure with both errors. */
void mw_tensor_print_rows(const struct mw_tensor_fit *f);
/* Tables in Markdown: errors; what fits; constants. */
void mw_tensor_doc_errors(const struct mw_tensor_fit *f, FILE *out);
void mw_tensor_doc_fits(const struct mw_tensor_fit *f, FILE *out);
void mw_tensor_doc_constants(const struct mw_tensor_fit *f, FILE *out);
/* Lines file,group,rows,p50,p90,p99,bias of left-out errors; "memory KIND,
 * GROUP" as the group, and one line for all. */
void mw_tensor_write_errors(const struct mw_tensor_fit *f, FILE *out);
/* Prints a line of constants.csv, with the fitted value if it is a parameter's
 * row. False when it is not. */
bool mw_tensor_write_line(const struct mw_tensor_fit *f, const char *line,
                          size_t len, FILE *out);

#endif
