/*
 * Statuses and messages: the text a user sees, its limits, carets.
 */
#include "base/err.h"
#include "mw_test.h"

#include <string.h>

static void message_is_formatted_and_status_returned(void **state)
{
    (void)state;
    struct mw_err err = {0};
    enum mw_status st = mw_fail(&err, MW_EINPUT, "'%s' is %d", "tp", 3);
    assert_int_equal(st, MW_EINPUT);
    assert_int_equal(err.status, MW_EINPUT);
    assert_int_equal(err.n_findings, 1);
    assert_string_equal(err.text, "'tp' is 3");
    assert_int_equal(err.len, strlen(err.text));
}

static void text_of_another_process_keeps_its_lines(void **state)
{
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_fail_text(&err, MW_EINPUT, "a:1:2: wrong\n  x\n  ^"),
                     MW_EINPUT);
    assert_string_equal(err.text, "a:1:2: wrong\n  x\n  ^");
    assert_int_equal(err.n_findings, 1);
    assert_int_equal(mw_fail_text(NULL, MW_ENO, "no"), MW_ENO);
}

static void null_err_only_passes_the_status(void **state)
{
    (void)state;
    struct mw_pos pos = {.file = "f", .line = 1};
    assert_int_equal(mw_fail(NULL, MW_ENO, "x"), MW_ENO);
    assert_int_equal(mw_fail_at(NULL, MW_EUSAGE, &pos, "x"), MW_EUSAGE);
    mw_err_prefix(NULL, "x");
    mw_err_clear(NULL);
}

static void status_is_that_of_the_first_finding(void **state)
{
    (void)state;
    struct mw_err err = {0};
    mw_fail(&err, MW_EMISSING, "first");
    mw_fail(&err, MW_EINPUT, "second");
    assert_int_equal(err.status, MW_EMISSING);
    assert_string_equal(err.text, "first\nsecond");
}

static void position_and_caret(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_pos pos = {.file = "a.yaml",
                         .line = 7,
                         .column = 8,
                         .width = 2,
                         .source_line = "nodes: -3"};
    mw_fail_at(&err, MW_EINPUT, &pos, "'nodes' is -3");
    assert_string_equal(err.text, "a.yaml:7:8: 'nodes' is -3\n"
                                  "    nodes: -3\n"
                                  "           ^~");
}

static void unknown_parts_of_a_position_are_left_out(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_pos pos = {.file = "a.csv", .line = 7};
    mw_fail_at(&err, MW_EINPUT, &pos, "x");
    pos.line = 0;
    mw_fail_at(&err, MW_EINPUT, &pos, "y");
    assert_string_equal(err.text, "a.csv:7: x\na.csv: y");
}

/* The column counts characters: "ä" is two bytes but one column, and a tab
 * counts one because it is shown as a space. */
static void caret_counts_characters(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_pos pos = {.file = "f",
                         .line = 1,
                         .column = 6,
                         .width = 9,
                         .source_line = "\t\xc3\xa4\xc3\xb6: x"};
    mw_fail_at(&err, MW_EINPUT, &pos, "m");
    assert_string_equal(err.text, "f:1:6: m\n"
                                  "     \xc3\xa4\xc3\xb6: x\n"
                                  "         ^");
}

static void long_line_is_cut_around_the_caret(void **state)
{
    (void)state;
    struct mw_err err = {0};
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = '\0';
    line[700] = 'X';
    struct mw_pos pos = {
        .file = "f", .line = 1, .column = 701, .source_line = line};
    mw_fail_at(&err, MW_EINPUT, &pos, "m");
    const char *excerpt = strchr(err.text, '\n') + 1;
    const char *caret = strchr(excerpt, '\n') + 1;
    assert_int_equal(caret - 1 - excerpt, 4 + 3 + 100 + 3);
    assert_memory_equal(excerpt + 4, "...", 3);
    assert_int_equal(excerpt[strlen(caret) - 1], 'X');
    assert_int_equal(caret[strlen(caret) - 1], '^');
}

static void control_characters_are_replaced(void **state)
{
    (void)state;
    struct mw_err err = {0};
    mw_fail(&err, MW_EINPUT, "'%s'", "a\x1b[31m\nb\tc\x7f");
    assert_string_equal(err.text, "'a?[31m b c?'");
}

static void findings_beyond_the_limit_are_counted_not_shown(void **state)
{
    (void)state;
    struct mw_err err = {0};
    for (int i = 0; i < 50; i++) {
        mw_fail(&err, MW_EINPUT, "finding %d", i);
    }
    assert_int_equal(err.n_findings, 50);
    assert_non_null(strstr(err.text, "finding 19\n"));
    assert_null(strstr(err.text, "finding 20"));
    const char *last = strrchr(err.text, '\n');
    assert_string_equal(last, "\nfurther errors are not shown");
}

static void overlong_message_is_cut_at_a_character(void **state)
{
    (void)state;
    struct mw_err err = {0};
    char text[6001] = "x";
    for (int i = 1; i + 1 < 6000; i += 2) {
        memcpy(text + i, "\xc3\xa4", 2);
    }
    mw_fail(&err, MW_EINPUT, "%s", text);
    assert_true(err.len < 3072);
    assert_string_equal(err.text + err.len - 3, "...");
    /* the byte before the dots ends a two-byte character */
    assert_int_equal((unsigned char)err.text[err.len - 4], 0xa4);
}

static void text_never_overflows(void **state)
{
    (void)state;
    struct mw_err err = {0};
    char text[1000];
    memset(text, 'a', 999);
    text[999] = '\0';
    for (int i = 0; i < 30; i++) {
        mw_fail(&err, MW_EINPUT, "%s", text);
    }
    assert_true(err.len < sizeof err.text);
    assert_int_equal(err.len, strlen(err.text));
    assert_int_equal(err.n_findings, 30);
    for (int i = 0; i < 300; i++) {
        mw_err_prefix(&err, "some context");
    }
    assert_true(err.len < sizeof err.text);
    assert_int_equal(err.len, strlen(err.text));
}

static void prefix_goes_before_the_first_finding(void **state)
{
    (void)state;
    struct mw_err err = {0};
    mw_err_prefix(&err, "nothing to prefix");
    assert_string_equal(err.text, "");
    mw_fail(&err, MW_EINPUT, "a");
    mw_fail(&err, MW_EINPUT, "b");
    mw_err_prefix(&err, "stage %d", 3);
    assert_string_equal(err.text, "stage 3: a\nb");
    mw_err_clear(&err);
    assert_int_equal(err.status, MW_OK);
    assert_int_equal(err.n_findings, 0);
    assert_string_equal(err.text, "");
}

/* The words are copied: a rank that gets the bytes of another's error has none
 * of its strings. */
static void keys_are_copied(void **state)
{
    (void)state;
    char section[] = "cluster", key[] = "system";
    struct mw_err err = {0};
    assert_int_equal(mw_fail_key(&err, MW_EINPUT, section, key, "no %d", 7),
                     MW_EINPUT);
    section[0] = key[0] = 'x';
    assert_string_equal(err.text, "no 7");
    assert_string_equal(err.section, "cluster");
    assert_string_equal(err.key, "system");
    mw_err_set_key(&err, "layout", NULL);
    assert_string_equal(err.section, "layout");
    assert_string_equal(err.key, "");
    mw_err_clear(&err);
    assert_string_equal(err.section, "");
    assert_int_equal(mw_fail_key(NULL, MW_ENO, "a", "b", "c"), MW_ENO);
}

/* The exit statuses that the design lists. */
static void exit_statuses(void **state)
{
    (void)state;
    static const struct {
        enum mw_status status;
        int exit_status;
        const char *name;
    } rows[] = {{MW_OK, 0, "OK"},
                {MW_ENO, 1, "ENO"},
                {MW_EUSAGE, 2, "EUSAGE"},
                {MW_EINPUT, 3, "EINPUT"},
                {MW_EMISSING, 4, "EMISSING"},
                {MW_EFAILED, 5, "EFAILED"},
                {MW_EBACKEND, 5, "EBACKEND"},
                {MW_EINTR, 130, "EINTR"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mw_status_exit(rows[i].status), rows[i].exit_status);
        assert_string_equal(mw_status_name(rows[i].status), rows[i].name);
    }
    assert_string_equal(mw_status_name((enum mw_status) - 99),
                        "unknown status");
    assert_int_equal(mw_status_exit((enum mw_status) - 99), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_is_formatted_and_status_returned),
        cmocka_unit_test(text_of_another_process_keeps_its_lines),
        cmocka_unit_test(null_err_only_passes_the_status),
        cmocka_unit_test(status_is_that_of_the_first_finding),
        cmocka_unit_test(position_and_caret),
        cmocka_unit_test(unknown_parts_of_a_position_are_left_out),
        cmocka_unit_test(caret_counts_characters),
        cmocka_unit_test(long_line_is_cut_around_the_caret),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(findings_beyond_the_limit_are_counted_not_shown),
        cmocka_unit_test(overlong_message_is_cut_at_a_character),
        cmocka_unit_test(text_never_overflows),
        cmocka_unit_test(prefix_goes_before_the_first_finding),
        cmocka_unit_test(keys_are_copied),
        cmocka_unit_test(exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
