/*
 * What came out of a fit, for people and for the database: docs/accuracy.md
 * from its template, and model_error.csv.
 */
#ifndef MW_HWDB_FIT_FIT_REPORT_H
#define MW_HWDB_FIT_FIT_REPORT_H

#include "hwdb/fit/fit_step.h"

#include <stdio.h>

/* To stdout: constants with their priors, and the errors. */
void mw_fit_print(const struct mw_fit *f);
/* Errors by file, fitted and left out. */
void mw_fit_print_errors(const struct mw_fit *f);
/* To stdout: every row with both errors and the exposed seconds by kind, as
 * predicted with the constants that were there before the fit. */
void mw_fit_print_rows(const struct mw_fit *f);
/*
 * Copies the template to `path`; the lines @ERRORS@, @WORST@, @CONSTANTS@,
 * @STRONG@, @FILLED@ and @SKIPPED@ become tables, and so do @MEMORY@, @FITS@
 * and
 * @MEMORY_CONSTANTS@ if memory was fitted.
 */
enum mw_status mw_fit_write_doc(const struct mw_fit *f, const char *template,
                                const char *path, struct mw_err *err);
/* A table of MFU over GPUs: measured, and predicted with the fitted constants,
 * of rows whose layout is a rule's (MW_FILL_STRONG_SCALING). */
void mw_fit_doc_strong(const struct mw_fit *f, FILE *out);
/* Predicted against measured step times, left out, one series a file;
 * path.svg, .png or "-". */
enum mw_status mw_fit_plot(const struct mw_fit *f, const char *path,
                           struct mw_err *err);
/* CSV: group, rows, p50, p90, p99 and bias of left-out errors, of memory
 * too. */
enum mw_status mw_fit_write_errors(const struct mw_fit *f, const char *path,
                                   struct mw_err *err);

#endif
