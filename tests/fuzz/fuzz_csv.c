/*
 * Any bytes as a CSV file: refused with a message, or a table that, written
 * out again, reads back the same.
 */
#include "base/csv.h"
#include "fuzz/fuzz.h"

#include <string.h>

struct row {
    const char *name;
    double x;
    int64_t n;
};

static const struct mw_csv_field fields[] = {
    {.name = "name",
     .type = MW_C_STR,
     .offset = offsetof(struct row, name),
     .required = true},
    {.name = "x",
     .type = MW_C_NUM,
     .offset = offsetof(struct row, x),
     .min = -1e9,
     .max = 1e9},
    {.name = "n", .type = MW_C_INT, .offset = offsetof(struct row, n)},
    {.name = NULL}};

static void write_row(struct mw_str *text, const char *const *cell, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mw_csv_add_cell(text, cell[i], i + 1 == n);
    }
}

static void check_round_trip(const struct mw_csv *csv, struct mw_arena *arena)
{
    struct mw_str text = {0};
    struct mw_err err = {0};
    struct mw_csv again;
    write_row(&text, (const char *const *)csv->header, csv->n_cols);
    for (size_t i = 0; i < csv->n_rows; i++) {
        write_row(&text, (const char *const *)csv->cell + i * csv->n_cols,
                  csv->n_cols);
    }
    enum mw_status st =
        mw_csv_parse("again", text.s, text.n, arena, &again, &err);
    MW_ASSERT(st == MW_OK, "%s", err.text);
    MW_ASSERT(again.n_cols == csv->n_cols && again.n_rows == csv->n_rows,
              "%zu x %zu became %zu x %zu", csv->n_rows, csv->n_cols,
              again.n_rows, again.n_cols);
    for (size_t i = 0; i < csv->n_rows * csv->n_cols; i++) {
        MW_ASSERT(strcmp(again.cell[i], csv->cell[i]) == 0,
                  "cell %zu '%s' became '%s'", i, csv->cell[i], again.cell[i]);
    }
    mw_str_release(&text);
}

static void check_lines(const struct mw_csv *csv)
{
    for (size_t i = 0; i < csv->n_rows; i++) {
        MW_ASSERT(csv->line[i] > (i > 0 ? csv->line[i - 1] : 1),
                  "row %zu is on line %d", i, csv->line[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_arena arena;
    struct mw_err err = {0};
    struct mw_csv csv;
    const char *text = data != NULL ? (const char *)data : "";
    mw_arena_init(&arena);
    enum mw_status st = mw_csv_parse("fuzz", text, size, &arena, &csv, &err);
    if (st == MW_OK) {
        void *rows = NULL;
        check_lines(&csv);
        check_round_trip(&csv, &arena);
        mw_csv_bind(&csv, fields, sizeof(struct row), false, &arena, &rows,
                    &err);
    } else {
        MW_ASSERT(strncmp(err.text, "fuzz:", 5) == 0, "%s", err.text);
    }
    mw_arena_release(&arena);
    return 0;
}
