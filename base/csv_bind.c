/*
 * Cells of a CSV table by column: text, numbers, and whole rows bound to
 * structs by a table of fields.
 */
#include "base/csv.h"

#include "base/units.h"
#include "base/yaml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int mw_csv_col(const struct mw_csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->n_cols; i++) {
        if (strcmp(csv->header[i], name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

const char *mw_csv_str(const struct mw_csv *csv, size_t row, int col)
{
    MW_ASSERT(row < csv->n_rows && (col < 0 || (size_t)col < csv->n_cols),
              "row %zu column %d of %zu x %zu", row, col, csv->n_rows,
              csv->n_cols);
    return col < 0 ? "" : csv->cell[row * csv->n_cols + (size_t)col];
}

bool mw_csv_empty(const struct mw_csv *csv, size_t row, int col)
{
    return *mw_csv_str(csv, row, col) == '\0';
}

enum mw_status mw_csv_fail(const struct mw_csv *csv, size_t row, int col,
                           struct mw_err *err, const char *fmt, ...)
{
    struct mw_pos pos = {.file = csv->file, .line = csv->line[row]};
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (col < 0) {
        return mw_fail_at(err, MW_EINPUT, &pos, "%s", message);
    }
    return mw_fail_at(err, MW_EINPUT, &pos, "column '%s': %s", csv->header[col],
                      message);
}

enum mw_status mw_csv_num_or(const struct mw_csv *csv, size_t row, int col,
                             double absent, double *out, struct mw_err *err)
{
    const char *text = mw_csv_str(csv, row, col);
    if (*text == '\0') {
        *out = absent;
        return MW_OK;
    }
    if (mw_double_parse(text, out, NULL) != MW_OK) {
        return mw_csv_fail(csv, row, col, err,
                           "'%s' must be a finite number without a unit", text);
    }
    return MW_OK;
}

enum mw_status mw_csv_num(const struct mw_csv *csv, size_t row, int col,
                          double *out, struct mw_err *err)
{
    if (mw_csv_empty(csv, row, col)) {
        return mw_csv_fail(csv, row, col, err,
                           col < 0 ? "a number is needed but its column is "
                                     "missing"
                                   : "the cell is empty; a number is needed");
    }
    return mw_csv_num_or(csv, row, col, 0, out, err);
}

enum mw_status mw_csv_int_or(const struct mw_csv *csv, size_t row, int col,
                             int64_t absent, int64_t *out, struct mw_err *err)
{
    const char *text = mw_csv_str(csv, row, col);
    if (*text == '\0') {
        *out = absent;
        return MW_OK;
    }
    if (mw_int_parse(text, out, NULL) != MW_OK) {
        return mw_csv_fail(csv, row, col, err, "'%s' must be an integer", text);
    }
    return MW_OK;
}

/* ---- rows ---------------------------------------------------------- */

static size_t count_fields(const struct mw_csv_field *fields)
{
    size_t n = 0;
    while (fields[n].name != NULL) {
        n++;
    }
    return n;
}

static bool is_known(const struct mw_csv_field *fields, const char *name)
{
    for (; fields->name != NULL; fields++) {
        if (strcmp(fields->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static enum mw_status fail_unknown(const struct mw_csv *csv,
                                   const struct mw_csv_field *fields,
                                   const char *column, struct mw_err *err)
{
    size_t n = count_fields(fields);
    const char **names = mw_calloc(n, sizeof *names);
    struct mw_str all = {0};
    for (size_t i = 0; i < n; i++) {
        names[i] = fields[i].name;
        mw_str_addf(&all, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    const char *near = mw_nearest(column, names, n);
    struct mw_str hint = {0};
    if (near != NULL) {
        mw_str_addf(&hint, " did you mean '%s'?", near);
    }
    mw_fail(err, MW_EINPUT, "%s: unknown column '%.64s';%s known: %s",
            csv->file, column, hint.s != NULL ? hint.s : "",
            all.s != NULL ? all.s : "none");
    mw_str_release(&hint);
    mw_str_release(&all);
    mw_free(names);
    return MW_EINPUT;
}

static enum mw_status check_columns(const struct mw_csv *csv,
                                    const struct mw_csv_field *fields,
                                    bool strict, struct mw_err *err)
{
    enum mw_status st = MW_OK;
    for (const struct mw_csv_field *f = fields; f->name != NULL; f++) {
        if (f->required && mw_csv_col(csv, f->name) < 0) {
            st = mw_fail(err, MW_EINPUT, "%s: column '%s' is missing",
                         csv->file, f->name);
        }
    }
    for (size_t i = 0; strict && i < csv->n_cols; i++) {
        if (!is_known(fields, csv->header[i])) {
            st = fail_unknown(csv, fields, csv->header[i], err);
        }
    }
    return st;
}

static enum mw_status check_range(const struct mw_csv *csv, size_t row, int col,
                                  const struct mw_csv_field *f, double v,
                                  struct mw_err *err)
{
    bool is_checked = f->min != 0 || f->max != 0;
    if (!is_checked || mw_csv_empty(csv, row, col) ||
        (v >= f->min && v <= f->max)) {
        return MW_OK;
    }
    return mw_csv_fail(csv, row, col, err,
                       "%s is out of range; it must be between %.15g and %.15g",
                       mw_csv_str(csv, row, col), f->min, f->max);
}

/* An absent integer is given as a double in the field; saturating keeps a
 * mistaken 1e300 defined. */
static int64_t absent_int(double v)
{
    return v >= 0x1p63    ? INT64_MAX
           : v <= -0x1p63 ? INT64_MIN
           : isnan(v)     ? 0
                          : (int64_t)v;
}

static enum mw_status bind_cell(const struct mw_csv *csv, size_t row,
                                const struct mw_csv_field *f, char *target,
                                struct mw_arena *arena, struct mw_err *err)
{
    int col = mw_csv_col(csv, f->name);
    enum mw_status st;
    if (f->required && mw_csv_empty(csv, row, col)) {
        return mw_csv_fail(csv, row, col, err,
                           "the cell is empty; a value is needed");
    }
    double num = 0;
    int64_t integer = 0;
    const char *text;
    switch (f->type) {
    case MW_C_STR:
        text = mw_arena_strdup(arena, mw_csv_str(csv, row, col));
        memcpy(target + f->offset, &text, sizeof text);
        return MW_OK;
    case MW_C_NUM:
        st = mw_csv_num_or(csv, row, col, f->absent, &num, err);
        memcpy(target + f->offset, &num, sizeof num);
        return st != MW_OK ? st : check_range(csv, row, col, f, num, err);
    case MW_C_INT:
        st = mw_csv_int_or(csv, row, col, absent_int(f->absent), &integer, err);
        memcpy(target + f->offset, &integer, sizeof integer);
        return st != MW_OK
                   ? st
                   : check_range(csv, row, col, f, (double)integer, err);
    }
    return MW_OK;
}

enum mw_status mw_csv_bind(const struct mw_csv *csv,
                           const struct mw_csv_field *fields, size_t size,
                           bool strict, struct mw_arena *arena, void **out_rows,
                           struct mw_err *err)
{
    enum mw_status st = check_columns(csv, fields, strict, err);
    if (st != MW_OK) {
        return st;
    }
    char *rows = mw_arena_alloc(arena, csv->n_rows, size);
    for (size_t i = 0; i < csv->n_rows; i++) {
        for (const struct mw_csv_field *f = fields; f->name != NULL; f++) {
            if (bind_cell(csv, i, f, rows + i * size, arena, err) != MW_OK) {
                st = MW_EINPUT;
            }
        }
        if (st != MW_OK &&
            (err == NULL || err->n_findings >= MW_ERR_LINES_MAX)) {
            break;
        }
    }
    if (st == MW_OK) {
        *out_rows = rows;
    }
    return st;
}
