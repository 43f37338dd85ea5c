/*
 * CSV: the dialect, line numbers, what is refused, rows bound to structs.
 */
#include "base/csv.h"
#include "base/mem.h"
#include "mw_test.h"

#include <string.h>

struct fixture {
    struct mw_arena arena;
    struct mw_csv csv;
    struct mw_err err;
};

static int setup(void **state)
{
    struct fixture *x = mw_calloc(1, sizeof *x);
    mw_arena_init(&x->arena);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    mw_arena_release(&x->arena);
    mw_free(x);
    return 0;
}

static enum mw_status parse(struct fixture *x, const char *text)
{
    mw_err_clear(&x->err);
    return mw_csv_parse("t.csv", text, strlen(text), &x->arena, &x->csv,
                        &x->err);
}

static void header_rows_and_columns(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(parse(x, "name,x\na,1\nb,2.5\n"), MW_OK);
    assert_int_equal(x->csv.n_cols, 2);
    assert_int_equal(x->csv.n_rows, 2);
    assert_int_equal(mw_csv_col(&x->csv, "x"), 1);
    assert_int_equal(mw_csv_col(&x->csv, "y"), -1);
    assert_string_equal(mw_csv_str(&x->csv, 1, 0), "b");
    assert_string_equal(mw_csv_str(&x->csv, 1, -1), "");
    assert_string_equal(x->csv.file, "t.csv");
}

/* Comments, blank lines, quoted newlines and CRLF all count as lines. */
static void rows_know_their_line(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(parse(x, "# about\n#\n\nname,note\n"
                              "a,\"two\nlines, \"\"quoted\"\"\n\nthree\"\n"
                              "\n   \n"
                              "#b,2\r\nc,3"),
                     MW_OK);
    assert_int_equal(x->csv.n_rows, 3);
    assert_int_equal(x->csv.line[0], 5);
    assert_string_equal(x->csv.cell[1], "two\nlines, \"quoted\"\n\nthree");
    assert_int_equal(x->csv.line[1], 11);
    assert_string_equal(x->csv.cell[2], "#b"); /* after the header: data */
    assert_int_equal(x->csv.line[2], 12);
    assert_string_equal(x->csv.cell[5], "3");
}

static void bom_crlf_and_spaces(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(parse(x, "\xef\xbb\xbf"
                              "a, b \r\n 1 ,\" 2 \"\r\n,\r\n"),
                     MW_OK);
    assert_string_equal(x->csv.header[0], "a");
    assert_string_equal(x->csv.header[1], "b");
    assert_string_equal(x->csv.cell[0], "1");
    assert_string_equal(x->csv.cell[1], " 2 ");
    assert_int_equal(x->csv.n_rows, 2);
    assert_true(mw_csv_empty(&x->csv, 1, 0));
    assert_true(mw_csv_empty(&x->csv, 1, 1));
    assert_true(mw_csv_empty(&x->csv, 0, -1));
}

static void bad_tables_are_refused(void **state)
{
    struct fixture *x = *state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "t.csv: is empty"},
        {"\xef\xbb\xbf", "t.csv: is empty"},
        {"\n# only\n", "t.csv: is empty; a header row is needed"},
        {"a,b,c,d,e\n1,2,3\n", "t.csv:2: row has 3 cells but the header has 5"},
        {"a\n1,2\n", "t.csv:2: row has 2 cells but the header has 1"},
        {"a,b\n1,2\n1\n1,2,3\n",
         "t.csv:3: row has 1 cells but the header has 2\n"
         "t.csv:4: row has 3 cells but the header has 2"},
        {"a,b\n1,\"x\ny\n",
         "t.csv:2: a quote of the row that begins here is not closed"},
        {"a,b\n1,\xc3\xa4\"x\n",
         "t.csv:2:4: misplaced quote; a cell with quotes is written "
         "\"like \"\"this\"\"\""},
        {"a,b\n\"x\"y,1\n",
         "t.csv:2:4: misplaced quote; a cell with quotes is written "
         "\"like \"\"this\"\"\""},
        {"a,b\r1,2\n", "t.csv:1:4: carriage return without a line feed; lines "
                       "end in LF or CR LF"},
        {"a,b,a\n", "t.csv:1: column 'a' is in the header twice"},
        {"#\na,,b\n1,2,3\n", "t.csv:2: column 2 of the header has no name"},
        {"a\n\xff\n", "t.csv: is not text (line 2 is not valid UTF-8)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse(x, rows[i].text), MW_EINPUT);
        assert_string_equal(x->err.text, rows[i].message);
    }
    assert_int_equal(
        mw_csv_parse("t.csv", "a\0b\n", 4, &x->arena, &x->csv, NULL),
        MW_EINPUT);
    assert_int_equal(mw_csv_load("/nonexistent.csv", &x->arena, &x->csv, NULL),
                     MW_EINPUT);
}

static void too_many_columns_are_refused(void **state)
{
    struct fixture *x = *state;
    struct mw_str text = {0};
    for (int i = 0; i < 5000; i++) {
        mw_str_addf(&text, "c%d%s", i, i < 4999 ? "," : "\n");
    }
    assert_int_equal(parse(x, text.s), MW_EINPUT);
    assert_string_equal(x->err.text, "t.csv:1: the header has 5000 columns; at "
                                     "most 4096 are possible");
    mw_str_release(&text);
}

/* Reading stops when nothing more would be shown. */
static void many_errors_end_the_reading(void **state)
{
    struct fixture *x = *state;
    struct mw_str text = {0};
    mw_str_add(&text, "a,b\n");
    for (int i = 0; i < 1000; i++) {
        mw_str_add(&text, "1\n");
    }
    assert_int_equal(parse(x, text.s), MW_EINPUT);
    assert_true(x->err.n_findings <= MW_ERR_LINES_MAX + 1);
    mw_str_release(&text);
}

static void numbers_are_whole_finite_cells(void **state)
{
    struct fixture *x = *state;
    double v = 0;
    int64_t n = 0;
    assert_int_equal(parse(x, "a,b\n1.5e3,\n1GB,nan\n1.5,x\n"), MW_OK);
    assert_int_equal(mw_csv_num(&x->csv, 0, 0, &v, NULL), MW_OK);
    mw_assert_near(v, 1500, 0, 0);
    assert_int_equal(mw_csv_num_or(&x->csv, 0, 1, -7, &v, NULL), MW_OK);
    mw_assert_near(v, -7, 0, 0);
    assert_int_equal(mw_csv_num_or(&x->csv, 0, -1, 8, &v, NULL), MW_OK);
    mw_assert_near(v, 8, 0, 0);
    assert_int_equal(mw_csv_int_or(&x->csv, 0, 1, 9, &n, NULL), MW_OK);
    assert_int_equal(n, 9);

    assert_int_equal(mw_csv_num(&x->csv, 0, 1, &v, &x->err), MW_EINPUT);
    assert_int_equal(mw_csv_num(&x->csv, 0, -1, &v, &x->err), MW_EINPUT);
    assert_int_equal(mw_csv_num(&x->csv, 1, 0, &v, &x->err), MW_EINPUT);
    assert_int_equal(mw_csv_num(&x->csv, 1, 1, &v, &x->err), MW_EINPUT);
    assert_int_equal(mw_csv_int_or(&x->csv, 2, 0, 0, &n, &x->err), MW_EINPUT);
    assert_string_equal(
        x->err.text,
        "t.csv:2: column 'b': the cell is empty; a number is needed\n"
        "t.csv:2: a number is needed but its column is missing\n"
        "t.csv:3: column 'a': '1GB' must be a finite number without a unit\n"
        "t.csv:3: column 'b': 'nan' must be a finite number without a unit\n"
        "t.csv:4: column 'a': '1.5' must be an integer");
}

struct row {
    const char *name;
    double x;
    int64_t n;
};

static const struct mw_csv_field row_fields[] = {
    {.name = "name",
     .type = MW_C_STR,
     .offset = offsetof(struct row, name),
     .required = true},
    {.name = "bandwidth",
     .type = MW_C_NUM,
     .offset = offsetof(struct row, x),
     .min = 1,
     .max = 100,
     .absent = -1},
    {.name = "n",
     .type = MW_C_INT,
     .offset = offsetof(struct row, n),
     .absent = 3},
    {.name = NULL}};

static void rows_are_bound(void **state)
{
    struct fixture *x = *state;
    void *out = NULL;
    assert_int_equal(parse(x, "n,name,bandwidth\n5,a,1.5\n,b,\n-2,c,100\n"),
                     MW_OK);
    assert_int_equal(mw_csv_bind(&x->csv, row_fields, sizeof(struct row), true,
                                 &x->arena, &out, NULL),
                     MW_OK);
    const struct row *r = out;
    assert_string_equal(r[0].name, "a");
    mw_assert_near(r[0].x, 1.5, 0, 0);
    assert_int_equal(r[0].n, 5);
    assert_string_equal(r[1].name, "b");
    mw_assert_near(r[1].x, -1, 0, 0);
    assert_int_equal(r[1].n, 3);
    assert_int_equal(r[2].n, -2);
    mw_assert_near(r[2].x, 100, 0, 0);
}

static void optional_columns_may_lack(void **state)
{
    struct fixture *x = *state;
    void *out = NULL;
    assert_int_equal(parse(x, "name,other\na,z\n"), MW_OK);
    assert_int_equal(mw_csv_bind(&x->csv, row_fields, sizeof(struct row), false,
                                 &x->arena, &out, NULL),
                     MW_OK);
    const struct row *r = out;
    mw_assert_near(r[0].x, -1, 0, 0);
    assert_int_equal(r[0].n, 3);
}

static void bad_rows_are_all_found(void **state)
{
    struct fixture *x = *state;
    void *out = NULL;
    assert_int_equal(parse(x, "name,bandwidth\n,7\na,101\nb,x\n"), MW_OK);
    assert_int_equal(mw_csv_bind(&x->csv, row_fields, sizeof(struct row), true,
                                 &x->arena, &out, &x->err),
                     MW_EINPUT);
    assert_null(out);
    assert_string_equal(
        x->err.text,
        "t.csv:2: column 'name': the cell is empty; a value is needed\n"
        "t.csv:3: column 'bandwidth': 101 is out of range; it must be between "
        "1 and 100\n"
        "t.csv:4: column 'bandwidth': 'x' must be a finite number without a "
        "unit");
}

static void wrong_columns_are_named(void **state)
{
    struct fixture *x = *state;
    void *out = NULL;
    assert_int_equal(parse(x, "bandwith,zzz\n1,2\n"), MW_OK);
    assert_int_equal(mw_csv_bind(&x->csv, row_fields, sizeof(struct row), true,
                                 &x->arena, &out, &x->err),
                     MW_EINPUT);
    assert_string_equal(x->err.text,
                        "t.csv: column 'name' is missing\n"
                        "t.csv: unknown column 'bandwith'; did you mean "
                        "'bandwidth'? known: name, bandwidth, n\n"
                        "t.csv: unknown column 'zzz'; known: name, bandwidth, "
                        "n");
}

/* Whatever is written comes back, also alone in its row. */
static void written_cells_come_back(void **state)
{
    struct fixture *x = *state;
    static const char *const cells[] = {
        "plain", "",           "\xef\xbb\xbf", "\xc3\xa4\xc2\xb5",
        "a,b",   "say \"hi\"", "two\nlines",   " spaced ",
        "#hash", "\"",         "1.5",          "\r\n",
        "\tx",   "\xc3\xa4"};
    enum { N = sizeof cells / sizeof cells[0] };
    struct mw_str one = {0}, many = {0};
    mw_str_add(&one, "h\n");
    for (size_t i = 0; i < N; i++) {
        mw_str_addf(&many, "c%zu%s", i, i + 1 < N ? "," : "\n");
        mw_csv_add_cell(&one, cells[i], true);
    }
    for (size_t i = 0; i < N; i++) {
        mw_csv_add_cell(&many, cells[i], i + 1 == N);
    }
    assert_int_equal(parse(x, one.s), MW_OK);
    assert_int_equal(x->csv.n_rows, N);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(x->csv.cell[i], cells[i]);
    }
    assert_int_equal(parse(x, many.s), MW_OK);
    assert_int_equal(x->csv.n_rows, 1);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(x->csv.cell[i], cells[i]);
    }
    mw_str_release(&one);
    mw_str_release(&many);
}

static void simple_cells_are_not_quoted(void **state)
{
    (void)state;
    struct mw_str line = {0};
    mw_csv_add_cell(&line, "a b", false);
    mw_csv_add_cell(&line, "", false);
    mw_csv_add_cell(&line, "1.5", true);
    assert_string_equal(line.s, "a b,,1.5\n");
    mw_str_release(&line);
}

#define CSV_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CSV_TEST(header_rows_and_columns),
        CSV_TEST(rows_know_their_line),
        CSV_TEST(bom_crlf_and_spaces),
        CSV_TEST(bad_tables_are_refused),
        CSV_TEST(too_many_columns_are_refused),
        CSV_TEST(many_errors_end_the_reading),
        CSV_TEST(numbers_are_whole_finite_cells),
        CSV_TEST(rows_are_bound),
        CSV_TEST(optional_columns_may_lack),
        CSV_TEST(bad_rows_are_all_found),
        CSV_TEST(wrong_columns_are_named),
        CSV_TEST(written_cells_come_back),
        CSV_TEST(simple_cells_are_not_quoted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
