/*
 * The frame of the fitting programs: a database with its model of collectives,
 * measured rows, exit status; and files that are copied line by line.
 */
#ifndef MW_HWDB_FIT_FIT_PROGRAM_H
#define MW_HWDB_FIT_FIT_PROGRAM_H

#include "sim/validate/validate.h"

#include <stdio.h>

typedef enum mw_status (*mw_fit_program_fn)(int argc, char **argv,
                                            struct mw_hwdb *db,
                                            struct mw_validate *v,
                                            struct mw_err *err);
/* Runs a program whose usage is "NAME ARGUMENTS"; its exit status: 0, 2
 * without arguments, 3 when run fails (its message goes to stderr). */
int mw_fit_program(int argc, char **argv, const char *usage,
                   mw_fit_program_fn run);

/* Prints what stands for a line (with its end); len 0: what follows the last
 * one. */
typedef void (*mw_fit_line_fn)(const void *ctx, const char *line, size_t len,
                               FILE *out);
/* Copies a file through fn; `from` and `to` may be the same. Nothing is written
 * on failure. */
enum mw_status mw_fit_copy_lines(const char *from, const char *to,
                                 mw_fit_line_fn fn, const void *ctx,
                                 struct mw_err *err);

#endif
