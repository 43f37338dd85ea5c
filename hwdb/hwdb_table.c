/*
 * Reading one table: the shipped file, then the overlay's merged into it by
 * key, then every row bound to its struct.
 *
 * An overlay row whose key is known replaces the cells of the columns that the
 * overlay's header has; other cells keep the shipped values. Any other row is
 * added. An overlay must bring its own source and confidence: a figure never
 * keeps the citation of the figure that it replaces. Every row remembers the
 * file it came from, so that messages name the right one.
 */
#include "hwdb/hwdb_int.h"

#include "base/file.h"
#include "base/yaml.h"

#include <stdlib.h>
#include <string.h>

/* A row's key columns joined and lowered, for sorting. */
struct keyed_row {
    const char *key;
    size_t row;
};

static int keyed_row_cmp(const void *a, const void *b)
{
    const struct keyed_row *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    if (c != 0) {
        return c;
    }
    return x->row < y->row ? -1 : x->row > y->row;
}

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static const char *row_key(const struct mw_csv *csv, const int *cols,
                           size_t row, struct mw_arena *arena)
{
    size_t len = 0, at = 0;
    for (size_t k = 0; k < MW_HW_KEY_MAX && cols[k] >= 0; k++) {
        len += strlen(mw_csv_str(csv, row, cols[k])) + 1;
    }
    char *key = mw_arena_alloc(arena, len + 1, 1);
    for (size_t k = 0; k < MW_HW_KEY_MAX && cols[k] >= 0; k++) {
        for (const char *s = mw_csv_str(csv, row, cols[k]); *s; s++) {
            key[at++] = lower(*s);
        }
        key[at++] = '\n';
    }
    return key;
}

static bool is_needed(const struct mw_hw_desc *desc, const char *name)
{
    for (const struct mw_csv_field *f = desc->fields; f->name; f++) {
        if (strcmp(f->name, name) == 0) {
            return f->required;
        }
    }
    return true;
}

/* Columns of the key, -1 past the last; fails when the file lacks one that is
 * needed. */
static enum mw_status key_cols(const struct mw_hw_desc *desc,
                               const struct mw_csv *csv,
                               int cols[MW_HW_KEY_MAX], struct mw_err *err)
{
    for (size_t k = 0; k < MW_HW_KEY_MAX; k++) {
        cols[k] = desc->key[k] ? mw_csv_col(csv, desc->key[k]) : -1;
        if (desc->key[k] && cols[k] < 0 && is_needed(desc, desc->key[k])) {
            return mw_fail(err, MW_EINPUT, "%s: no column '%s', the key of %s",
                           csv->file, desc->key[k], desc->name);
        }
    }
    return MW_OK;
}

/* Rows sorted by key; a key twice in one file is a finding. */
static enum mw_status keys_sorted(const struct mw_hw_desc *desc,
                                  const struct mw_csv *csv,
                                  struct mw_arena *arena,
                                  struct keyed_row **out, struct mw_err *err)
{
    int cols[MW_HW_KEY_MAX];
    enum mw_status status = key_cols(desc, csv, cols, err);
    if (status != MW_OK) {
        return status;
    }
    struct keyed_row *keys =
        mw_arena_alloc(arena, csv->n_rows + 1, sizeof *keys);
    for (size_t i = 0; i < csv->n_rows; i++) {
        keys[i] = (struct keyed_row){row_key(csv, cols, i, arena), i};
    }
    qsort(keys, csv->n_rows, sizeof *keys, keyed_row_cmp);
    for (size_t i = 1; i < csv->n_rows; i++) {
        if (strcmp(keys[i].key, keys[i - 1].key) == 0) {
            status = mw_csv_fail(csv, keys[i].row, cols[0], err,
                                 "the same key as line %d: one row each",
                                 csv->line[keys[i - 1].row]);
        }
    }
    *out = keys;
    return status;
}

static long find_key(const struct keyed_row *keys, size_t n, const char *key)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(keys[mid].key, key);
        if (c == 0) {
            return (long)keys[mid].row;
        }
        if (c < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return -1;
}

/* Column of the table for each column of the overlay. */
static enum mw_status map_cols(const struct mw_hw_desc *desc,
                               const struct mw_csv *base,
                               const struct mw_csv *over, int *map,
                               struct mw_err *err)
{
    enum mw_status status = MW_OK;
    for (size_t c = 0; c < over->n_cols; c++) {
        map[c] = mw_csv_col(base, over->header[c]);
        if (map[c] < 0) {
            const char *near =
                mw_nearest(over->header[c], base->header, base->n_cols);
            status = mw_fail(err, MW_EINPUT, "%s: unknown column '%s'%s%s%s",
                             over->file, over->header[c],
                             near ? "; did you mean '" : "", near ? near : "",
                             near ? "'" : "");
        }
    }
    for (size_t f = 0; desc->fields[f].name; f++) {
        const char *name = desc->fields[f].name;
        bool is_origin = !strcmp(name, "source") || !strcmp(name, "confidence");
        if (is_origin && mw_csv_col(over, name) < 0) {
            status = mw_fail(err, MW_EINPUT,
                             "%s: no column '%s': a figure must say where it "
                             "comes from",
                             over->file, name);
        }
    }
    return status;
}

/* Copies the overlay's cells into row i of the table; the key of a row that was
 * there keeps its spelling (case does not count). */
static void put_row(struct mw_hw_table *t, size_t i, const struct mw_csv *over,
                    size_t row, const int *map, const bool *is_kept)
{
    for (size_t c = 0; c < over->n_cols; c++) {
        if (is_kept != NULL && is_kept[c]) {
            continue;
        }
        t->csv.cell[i * t->csv.n_cols + (size_t)map[c]] =
            over->cell[row * over->n_cols + c];
    }
    t->csv.line[i] = over->line[row];
    t->row_file[i] = over->file;
}

/* A copy of the table with room for `extra` more rows. */
static void grow(struct mw_hw_table *t, size_t extra, struct mw_arena *arena)
{
    size_t n = t->csv.n_rows, cols = t->csv.n_cols;
    const char **cell =
        mw_arena_alloc(arena, (n + extra) * cols + 1, sizeof *cell);
    int *line = mw_arena_alloc(arena, n + extra + 1, sizeof *line);
    const char **file = mw_arena_alloc(arena, n + extra + 1, sizeof *file);
    for (size_t i = 0; i < n * cols; i++) {
        cell[i] = t->csv.cell[i];
    }
    for (size_t i = n * cols; i < (n + extra) * cols; i++) {
        cell[i] = "";
    }
    for (size_t i = 0; i < n; i++) {
        line[i] = t->csv.line[i];
        file[i] = t->row_file ? t->row_file[i] : t->csv.file;
    }
    t->csv.cell = cell;
    t->csv.line = line;
    t->row_file = file;
}

static enum mw_status merge(struct mw_hw_table *t,
                            const struct mw_hw_desc *desc,
                            const struct keyed_row *keys,
                            const struct mw_csv *over, struct mw_arena *arena,
                            struct mw_err *err)
{
    int cols[MW_HW_KEY_MAX];
    struct keyed_row *over_keys;
    int *map = mw_arena_alloc(arena, over->n_cols + 1, sizeof *map);
    enum mw_status status = map_cols(desc, &t->csv, over, map, err);
    if (status == MW_OK) {
        status = key_cols(desc, over, cols, err);
    }
    if (status == MW_OK) {
        status = keys_sorted(desc, over, arena, &over_keys, err);
    }
    if (status != MW_OK) {
        return status;
    }
    bool *is_key = mw_arena_alloc(arena, over->n_cols + 1, sizeof *is_key);
    for (size_t k = 0; k < MW_HW_KEY_MAX && cols[k] >= 0; k++) {
        is_key[cols[k]] = true;
    }
    size_t n_base = t->csv.n_rows;
    grow(t, over->n_rows, arena);
    for (size_t r = 0; r < over->n_rows; r++) {
        long at = find_key(keys, n_base, row_key(over, cols, r, arena));
        size_t i = at >= 0 ? (size_t)at : t->csv.n_rows++;
        put_row(t, i, over, r, map, at >= 0 ? is_key : NULL);
    }
    return MW_OK;
}

struct mw_csv mw_hw_table_row(const struct mw_hw_table *t, size_t i)
{
    struct mw_csv one = t->csv;
    one.file = t->row_file[i];
    one.cell += i * one.n_cols;
    one.line += i;
    one.n_rows = 1;
    return one;
}

/* Binds runs of rows that came from one file, so that errors name it. */
static enum mw_status bind(struct mw_hw_table *t, const struct mw_hw_desc *desc,
                           struct mw_arena *arena, struct mw_err *err)
{
    enum mw_status status = MW_OK;
    size_t n = t->csv.n_rows;
    char *rows = mw_arena_alloc(arena, n + 1, desc->row_size);
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && t->row_file[end] == t->row_file[i]) {
            end++;
        }
        struct mw_csv run = mw_hw_table_row(t, i);
        void *part = NULL;
        run.n_rows = end - i;
        enum mw_status s = mw_csv_bind(&run, desc->fields, desc->row_size, true,
                                       arena, &part, err);
        if (s != MW_OK) {
            status = s;
            continue;
        }
        memcpy(rows + i * desc->row_size, part, (end - i) * desc->row_size);
    }
    t->rows = rows;
    return status;
}

/* A table that is not shipped: the header of its fields, no rows. */
static void empty_table(struct mw_csv *csv, const struct mw_hw_desc *desc,
                        const char *path, struct mw_arena *arena)
{
    size_t n = 0;
    while (desc->fields[n].name) {
        n++;
    }
    csv->file = path;
    csv->n_cols = n;
    csv->header = mw_arena_alloc(arena, n, sizeof *csv->header);
    for (size_t i = 0; i < n; i++) {
        csv->header[i] = desc->fields[i].name;
    }
}

/* A shipped table must have every column of its schema, and no row of it may
 * say "as above": rows are merged and sorted. */
static enum mw_status check_header(const struct mw_hw_desc *desc,
                                   const struct mw_csv *csv, struct mw_err *err)
{
    enum mw_status status = MW_OK;
    for (size_t f = 0; desc->fields[f].name; f++) {
        if (mw_csv_col(csv, desc->fields[f].name) < 0) {
            status = mw_fail(err, MW_EINPUT, "%s: no column '%s'", csv->file,
                             desc->fields[f].name);
        }
    }
    return status;
}

enum mw_status mw_hw_table_load(struct mw_hw_table *t,
                                const struct mw_hw_desc *desc,
                                const char *data_dir, const char *overlay_dir,
                                struct mw_arena *arena, struct mw_err *err)
{
    enum mw_status status = MW_OK;
    struct keyed_row *keys;
    char *path = mw_arena_printf(arena, "%s/%s.csv", data_dir, desc->name);
    if (desc->is_shipped || mw_file_exists(path)) {
        status = mw_csv_load(path, arena, &t->csv, err);
    } else {
        empty_table(&t->csv, desc, path, arena);
    }
    if (status == MW_OK) {
        status = check_header(desc, &t->csv, err);
    }
    if (status == MW_OK) {
        status = keys_sorted(desc, &t->csv, arena, &keys, err);
    }
    if (status != MW_OK) {
        return status;
    }
    grow(t, 0, arena);
    path = overlay_dir
               ? mw_arena_printf(arena, "%s/%s.csv", overlay_dir, desc->name)
               : NULL;
    if (path && mw_file_exists(path)) {
        struct mw_csv over;
        status = mw_csv_load(path, arena, &over, err);
        if (status == MW_OK) {
            status = merge(t, desc, keys, &over, arena, err);
        }
    }
    return status == MW_OK ? bind(t, desc, arena, err) : status;
}
