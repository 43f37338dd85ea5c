/*
 * Tables for people: alignment, nothing cut, no invisible characters.
 */
#include "base/table.h"
#include "mw_test.h"

#include <string.h>

static void assert_printed(struct mw_table *t, const char *text)
{
    char got[4096] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    mw_table_print(t, f);
    rewind(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    got[n] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static void columns_are_aligned(void **state)
{
    (void)state;
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "name", false);
    mw_table_col(t, "GB/s", true);
    mw_table_col(t, "note", false);
    mw_table_row(t);
    mw_table_cell(t, "%s", "ring");
    mw_table_cell(t, "%d", 12345);
    mw_table_cell(t, "%s", "");
    mw_table_row(t);
    mw_table_cell(t, "%s", "double tree");
    mw_table_cell(t, "%.1f", 7.25);
    mw_table_cell(t, "%s", "a b");
    assert_printed(t, "name          GB/s  note\n"
                      "ring         12345\n"
                      "double tree    7.2  a b\n");
    mw_table_free(t);
}

/* Two bytes, one column, whatever the locale of the program. */
static void utf8_counts_by_characters(void **state)
{
    (void)state;
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "\xc3\xa4\xc2\xb5", false);
    mw_table_col(t, "x", true);
    mw_table_row(t);
    mw_table_cell(t, "%s", "abc");
    mw_table_cell(t, "%d", 1);
    assert_printed(t, "\xc3\xa4\xc2\xb5   x\nabc  1\n");
    mw_table_free(t);
}

static void long_cells_are_not_cut(void **state)
{
    (void)state;
    char word[401], line[1000];
    memset(word, 'w', 400);
    word[400] = '\0';
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "x", true);
    mw_table_row(t);
    mw_table_cell(t, "%s", word);
    snprintf(line, sizeof line, "%400s\n%s\n", "x", word);
    assert_printed(t, line);
    mw_table_free(t);
}

static void missing_cells_are_empty(void **state)
{
    (void)state;
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "a", false);
    mw_table_col(t, "b", false);
    mw_table_row(t);
    mw_table_cell(t, "1");
    assert_printed(t, "a  b\n1\n");
    mw_table_free(t);
    mw_table_free(NULL);
}

/* libsmartcols prints no header over nothing; callers say "none" themselves. */
static void table_without_rows_is_empty(void **state)
{
    (void)state;
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "a", false);
    mw_table_col(t, "b", false);
    assert_printed(t, "");
    mw_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(utf8_counts_by_characters),
        cmocka_unit_test(long_cells_are_not_cut),
        cmocka_unit_test(missing_cells_are_empty),
        cmocka_unit_test(table_without_rows_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
