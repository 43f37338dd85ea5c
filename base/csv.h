/*
 * CSV input by header name (libcsv behind it).
 *
 * The whole table is read into an arena: cells are strings. Lines before the
 * header that begin with '#' are comments. Every row must have as many cells
 * as the header; errors carry file:line and the column's name. A number is
 * the whole cell and finite; an empty cell is "absent", not zero.
 */
#ifndef MW_BASE_CSV_H
#define MW_BASE_CSV_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MW_CSV_SIZE_MAX = 256 << 20 };

struct mw_csv {
    const char *file;
    size_t n_cols, n_rows;
    const char **header; /* n_cols names */
    const char **cell;   /* n_rows x n_cols, never NULL */
    int *line;           /* n_rows: line of the file on which a row begins */
};

/* Reads a file into the arena. */
enum mw_status mw_csv_load(const char *path, struct mw_arena *arena,
                           struct mw_csv *out, struct mw_err *err);
enum mw_status mw_csv_parse(const char *name, const char *text, size_t len,
                            struct mw_arena *arena, struct mw_csv *out,
                            struct mw_err *err);
/* Index of a column, or -1. */
int mw_csv_col(const struct mw_csv *csv, const char *name);
/* Cell as text; "" when the column is -1 (absent). */
const char *mw_csv_str(const struct mw_csv *csv, size_t row, int col);
bool mw_csv_empty(const struct mw_csv *csv, size_t row, int col);
/* Cell as a finite number; empty or absent is an error naming row and column
 * unless has a default: *_or return the default for empty cells. */
enum mw_status mw_csv_num(const struct mw_csv *csv, size_t row, int col,
                          double *out, struct mw_err *err);
enum mw_status mw_csv_num_or(const struct mw_csv *csv, size_t row, int col,
                             double absent, double *out, struct mw_err *err);
enum mw_status mw_csv_int_or(const struct mw_csv *csv, size_t row, int col,
                             int64_t absent, int64_t *out, struct mw_err *err);
/* A finding at a row: "FILE:LINE: column 'x': ...". Returns MW_EINPUT. */
enum mw_status mw_csv_fail(const struct mw_csv *csv, size_t row, int col,
                           struct mw_err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- table-driven rows --------------------------------------------- */
enum mw_csv_type { MW_C_STR, MW_C_NUM, MW_C_INT };
struct mw_csv_field {
    const char *name;
    enum mw_csv_type type; /* const char *, double, int64_t at offset */
    size_t offset;
    bool required;   /* column and cell must be there */
    double min, max; /* both 0: unchecked */
    double absent;   /* value of an empty cell (numbers); strings: "" */
};
/*
 * Binds every row to an array of structs of `size` bytes in the arena.
 * Unknown columns are errors when strict. fields ends with {.name = NULL}.
 * Strings are copied to the arena; *out_rows is set on success only.
 */
enum mw_status mw_csv_bind(const struct mw_csv *csv,
                           const struct mw_csv_field *fields, size_t size,
                           bool strict, struct mw_arena *arena, void **out_rows,
                           struct mw_err *err);

/* Writes one cell with RFC 4180 quoting where needed. */
struct mw_str;
void mw_csv_add_cell(struct mw_str *line, const char *text, bool is_last);

#endif
