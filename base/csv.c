/*
 * CSV input: libcsv in strict mode, fed one line of the file at a time so that
 * every row knows the line on which it begins, also after quoted newlines.
 *
 * Dialect: RFC 4180; LF or CRLF; a UTF-8 byte order mark is skipped; blank
 * lines are ignored; spaces around an unquoted cell are not part of it (as
 * libcsv has it). Before the header, lines that begin with '#' are comments.
 * A CR that ends no line is refused, in quotes as well.
 * Left out: other separators, other encodings.
 */
#include "base/csv.h"

#include "base/file.h"
#include "base/text_int.h"

#include <csv.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 4096 };

struct reader {
    struct mw_arena *arena;
    struct mw_err *err;
    const char *file;
    enum mw_status status;
    int line;          /* being fed */
    int row_line;      /* on which the open row began */
    int header_line;   /* 0: the header has not been read */
    bool is_row_ended; /* a row ended within the line being fed */
    size_t n_cells;    /* of the open row, also those beyond the header's */
    MW_ARRAY(const char *) header;
    MW_ARRAY(const char *) cells;
    MW_ARRAY(int) lines;
};

static struct mw_pos line_pos(const struct reader *r, int line)
{
    return (struct mw_pos){.file = r->file, .line = line};
}

static void on_cell(void *text, size_t len, void *data)
{
    struct reader *r = data;
    r->n_cells++;
    bool is_header = r->header_line == 0;
    if (r->n_cells > (is_header ? COLUMNS_MAX : r->header.n)) {
        return; /* counted for the message at the end of the row */
    }
    const char *cell = "";
    if (len > 0) {
        char *copy = mw_arena_alloc(r->arena, len + 1, 1);
        memcpy(copy, text, len);
        cell = copy;
    }
    if (is_header) {
        mw_array_push(&r->header, cell);
    } else {
        mw_array_push(&r->cells, cell);
    }
}

static void check_header(struct reader *r)
{
    struct mw_pos pos = line_pos(r, r->row_line);
    if (r->n_cells > COLUMNS_MAX) {
        r->status = mw_fail_at(r->err, MW_EINPUT, &pos,
                               "the header has %zu columns; at most %d are "
                               "possible",
                               r->n_cells, (int)COLUMNS_MAX);
        return;
    }
    for (size_t i = 0; i < r->header.n; i++) {
        if (*r->header.v[i] == '\0') {
            r->status =
                mw_fail_at(r->err, MW_EINPUT, &pos,
                           "column %zu of the header has no name", i + 1);
        }
        for (size_t j = 0; j < i; j++) {
            if (*r->header.v[i] != '\0' &&
                strcmp(r->header.v[i], r->header.v[j]) == 0) {
                r->status = mw_fail_at(r->err, MW_EINPUT, &pos,
                                       "column '%s' is in the header twice",
                                       r->header.v[i]);
                return;
            }
        }
    }
}

static void on_row(int end, void *data)
{
    struct reader *r = data;
    (void)end;
    if (r->n_cells == 0) {
        return;
    }
    r->is_row_ended = true;
    if (r->header_line == 0) {
        r->header_line = r->row_line;
        check_header(r);
    } else if (r->n_cells != r->header.n) {
        struct mw_pos pos = line_pos(r, r->row_line);
        r->status = mw_fail_at(r->err, MW_EINPUT, &pos,
                               "row has %zu cells but the header has %zu",
                               r->n_cells, r->header.n);
        size_t kept = r->n_cells < r->header.n ? r->n_cells : r->header.n;
        r->cells.n -= kept;
    } else {
        mw_array_push(&r->lines, r->row_line);
    }
    r->n_cells = 0;
}

/* Characters, not bytes, before the offset. */
static size_t chars_before(const char *line, size_t offset)
{
    size_t n = 0;
    for (size_t i = 0; i < offset; i++) {
        n += ((unsigned char)line[i] & 0xc0u) != 0x80u;
    }
    return n;
}

static enum mw_status fail_quote(struct reader *r, size_t at)
{
    struct mw_pos pos = line_pos(r, r->line);
    pos.column = (int)at + 1;
    return mw_fail_at(r->err, MW_EINPUT, &pos,
                      "misplaced quote; a cell with quotes is written "
                      "\"like \"\"this\"\"\"");
}

/* libcsv ends a row at a lone CR as well; then line numbers would be wrong. */
static enum mw_status check_returns(struct reader *r, const char *line,
                                    size_t n)
{
    const char *cr = memchr(line, '\r', n);
    if (cr == NULL || (cr + 2 == line + n && cr[1] == '\n')) {
        return MW_OK;
    }
    struct mw_pos pos = line_pos(r, r->line);
    pos.column = (int)chars_before(line, (size_t)(cr - line)) + 1;
    return mw_fail_at(r->err, MW_EINPUT, &pos,
                      "carriage return without a line feed; lines end in LF "
                      "or CR LF");
}

/* Whether the whole line is blank, so that no row begins on it. */
static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (line[i] != ' ' && line[i] != '\r' && line[i] != '\n') {
            return false;
        }
    }
    return true;
}

static bool is_too_broken(const struct reader *r)
{
    return r->status != MW_OK &&
           (r->err == NULL || r->err->n_findings >= MW_ERR_LINES_MAX ||
            r->header.n == 0);
}

static enum mw_status feed(struct reader *r, struct csv_parser *parser,
                           const char *text, size_t len)
{
    bool is_row_open = false;
    for (size_t at = 0; at < len && !is_too_broken(r);) {
        const char *line = text + at, *lf = memchr(line, '\n', len - at);
        size_t n = lf != NULL ? (size_t)(lf - line) + 1 : len - at;
        r->line++;
        at += n;
        if (r->header_line == 0 && !is_row_open && line[0] == '#') {
            continue;
        }
        if (check_returns(r, line, n) != MW_OK) {
            return MW_EINPUT;
        }
        if (!is_row_open) {
            r->row_line = r->line;
        }
        r->is_row_ended = false;
        size_t eaten = csv_parse(parser, line, n, on_cell, on_row, r);
        if (eaten != n) {
            return fail_quote(r, chars_before(line, eaten));
        }
        is_row_open = !r->is_row_ended && (is_row_open || !is_blank(line, n));
    }
    return r->status;
}

/* The last row may lack its newline, or its closing quote. */
static enum mw_status finish(struct reader *r, struct csv_parser *parser)
{
    if (csv_fini(parser, on_cell, on_row, r) != 0) {
        struct mw_pos pos = line_pos(r, r->row_line);
        return mw_fail_at(r->err, MW_EINPUT, &pos,
                          "a quote of the row that begins here is not closed");
    }
    if (r->status == MW_OK && r->header_line == 0) {
        return mw_fail(r->err, MW_EINPUT,
                       "%s: is empty; a header row is needed", r->file);
    }
    return r->status;
}

static void detach(struct reader *r, struct mw_csv *out)
{
    size_t n_cols = r->header.n, n_rows = r->lines.n;
    *out = (struct mw_csv){.file = r->file, .n_cols = n_cols, .n_rows = n_rows};
    out->header = mw_arena_alloc(r->arena, n_cols, sizeof *out->header);
    memcpy(out->header, r->header.v, n_cols * sizeof *out->header);
    out->cell = mw_arena_alloc(r->arena, n_rows * n_cols, sizeof *out->cell);
    out->line = mw_arena_alloc(r->arena, n_rows, sizeof *out->line);
    if (n_rows > 0) {
        memcpy(out->cell, r->cells.v, n_rows * n_cols * sizeof *out->cell);
        memcpy(out->line, r->lines.v, n_rows * sizeof *out->line);
    }
}

enum mw_status mw_csv_parse(const char *name, const char *text, size_t len,
                            struct mw_arena *arena, struct mw_csv *out,
                            struct mw_err *err)
{
    enum mw_status st = mw_text_check(name, text, len, err);
    if (st != MW_OK) {
        return st;
    }
    struct reader r = {.arena = arena, .err = err};
    r.file = mw_arena_strdup(arena, name);
    struct csv_parser parser;
    int rc = csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI);
    MW_ASSERT(rc == 0, "csv_init: %d", rc);
    size_t bom = mw_text_bom(text, len);
    st = feed(&r, &parser, text + bom, len - bom);
    if (st == MW_OK) {
        st = finish(&r, &parser);
    }
    csv_free(&parser);
    if (st == MW_OK) {
        detach(&r, out);
    }
    mw_array_release(&r.header);
    mw_array_release(&r.cells);
    mw_array_release(&r.lines);
    return st;
}

enum mw_status mw_csv_load(const char *path, struct mw_arena *arena,
                           struct mw_csv *out, struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status st =
        mw_file_read_as(path, "CSV file", MW_CSV_SIZE_MAX, &text, &len, err);
    if (st == MW_OK) {
        st = mw_csv_parse(path, text, len, arena, out, err);
        mw_free(text);
    }
    return st;
}

void mw_csv_add_cell(struct mw_str *line, const char *text, bool is_last)
{
    size_t n = strlen(text);
    bool is_row_start = line->n == 0 || line->s[line->n - 1] == '\n';
    /* At the beginning of a line an empty cell may make a blank line, '#' a
     * comment and a byte order mark nothing; spaces at the ends are trimmed. */
    bool is_quoted = strpbrk(text, ",\"\r\n") != NULL ||
                     (is_row_start &&
                      (text[0] == '#' || n == 0 || mw_text_bom(text, n) > 0)) ||
                     (n > 0 && (strchr(" \t", text[0]) != NULL ||
                                strchr(" \t", text[n - 1]) != NULL));
    if (is_quoted) {
        mw_str_add(line, "\"");
        for (const char *p = text; *p != '\0'; p++) {
            mw_str_addf(line, *p == '"' ? "\"%c" : "%c", *p);
        }
        mw_str_add(line, "\"");
    } else {
        mw_str_add(line, text);
    }
    mw_str_add(line, is_last ? "\n" : ",");
}
