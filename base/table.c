/*
 * Tables for people: libsmartcols with colours and cutting off.
 *
 * The table is printed to a string first, then without the spaces that end a
 * line, so that golden files hold no invisible characters. It is never cut to
 * the width of the terminal: the same input gives the same bytes everywhere.
 * libsmartcols asks the locale how wide a character is and escapes what that
 * does not know; the thread has the locale C.UTF-8 while it prints. (Its
 * "noencoding" mode never returns in version 2.38.1.)
 */
#include "base/table.h"

#include "base/err.h"
#include "base/mem.h"

#include <libsmartcols/libsmartcols.h>
#include <locale.h>
#include <stdarg.h>
#include <string.h>

struct mw_table {
    struct libscols_table *t;
    struct libscols_line *row; /* the last; owned by t */
    size_t i_cell;             /* next cell of it */
};

struct mw_table *mw_table_new(void)
{
    struct mw_table *t = mw_calloc(1, sizeof *t);
    t->t = scols_new_table();
    MW_ASSERT(t->t != NULL, "libsmartcols cannot make a table");
    scols_table_enable_colors(t->t, 0);
    scols_table_set_column_separator(t->t, "  ");
    scols_table_set_termforce(t->t, SCOLS_TERMFORCE_NEVER);
    return t;
}

void mw_table_free(struct mw_table *t)
{
    if (t != NULL) {
        scols_unref_table(t->t);
        mw_free(t);
    }
}

void mw_table_col(struct mw_table *t, const char *name, bool right_align)
{
    int flags = right_align ? SCOLS_FL_RIGHT : 0;
    struct libscols_column *c = scols_table_new_column(t->t, name, 0, flags);
    MW_ASSERT(c != NULL, "libsmartcols cannot make column '%s'", name);
}

void mw_table_row(struct mw_table *t)
{
    t->row = scols_table_new_line(t->t, NULL);
    MW_ASSERT(t->row != NULL, "libsmartcols cannot make a row");
    t->i_cell = 0;
}

void mw_table_cell(struct mw_table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    MW_ASSERT(t->row != NULL && t->i_cell < scols_table_get_ncols(t->t),
              "cell %zu '%s' has no column", t->i_cell, text);
    int rc = scols_line_set_data(t->row, t->i_cell++, text);
    MW_ASSERT(rc == 0, "libsmartcols cannot hold a cell: %d", rc);
}

static char *print_to_string(struct mw_table *t)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
    char *text = NULL;
    int rc = scols_print_table_to_string(t->t, &text);
    if (utf8 != (locale_t)0) {
        uselocale(before);
        freelocale(utf8);
    }
    MW_ASSERT(rc == 0, "libsmartcols cannot print a table: %d", rc);
    return text;
}

void mw_table_print(struct mw_table *t, FILE *f)
{
    char *text = print_to_string(t);
    for (char *line = text; line != NULL && *line != '\0';) {
        size_t n = strcspn(line, "\n"), shown = n;
        while (shown > 0 && line[shown - 1] == ' ') {
            shown--;
        }
        fprintf(f, "%.*s\n", (int)shown, line);
        line += n + (line[n] == '\n');
    }
    mw_free(text);
}
