/*
 * The pull reader: times exact from their digits, strings and escapes, number
 * grammar, errors with their column.
 */
#include "mw_test.h"

#include "sim/engine/json_pull_int.h"

#include <string.h>

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int decimals;
        mw_time want_ps; /* -1: refused */
    } cases[] = {
        {"0", 6, 0},
        {"1", 6, 1000000},
        {"0.000001", 6, 1},
        {"12.5", 6, 12500000},
        {"12.3456785", 6, 12345679}, /* nearest beyond the sixth */
        {"12.3456784999", 6, 12345678},
        {"9223372036854.775807", 6, INT64_MAX},
        {"9223372036854.775808", 6, -1},
        {"9223372.036854775807", 12, INT64_MAX},
        {"99999999999999999999", 6, -1},
        {"1e3", 6, 1000000000},
        {"2.5E-6", 6, 3}, /* 2.5 ps, halves away from zero */
        {"1e300", 6, -1},
        {"-0.0", 6, 0},
        {"-1", 6, -1},
        {"-1e-300", 6, -1},
        {"1.", 6, -1},
        {".5", 6, -1},
        {"01", 6, -1},
        {"nan", 6, -1},
        {"", 6, -1},
        {"0.000000000001", 12, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mw_time got_ps = -1;
        const char *wrong = mw_ps_parse(cases[i].text, strlen(cases[i].text),
                                        cases[i].decimals, &got_ps);
        if (got_ps != cases[i].want_ps ||
            (wrong == NULL) != (cases[i].want_ps >= 0)) {
            fail_msg("'%s': %lld ps, %s", cases[i].text, (long long)got_ps,
                     wrong ? wrong : "accepted");
        }
    }
}

static struct mw_jp reader(const char *text, struct mw_err *err)
{
    *err = (struct mw_err){.status = MW_OK};
    return (struct mw_jp){
        .file = "f", .text = text, .len = strlen(text), .err = err};
}

static void test_strings(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"\"", ""},
        {"\"a b\"", "a b"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20ac\"", "A\xc3\xa9\xe2\x82\xac"},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
        {"\"\\ud83dx\"", "\xef\xbf\xbdx"}, /* lone surrogate */
        {"\"\\ud83d\\u0041\"", "\xef\xbf\xbd"
                               "A"},
        {"\"\\u0000\"", "\xef\xbf\xbd"},
    };
    struct mw_err err;
    struct mw_str s = {.s = NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mw_jp jp = reader(cases[i][0], &err);
        assert_true(mw_jp_string(&jp, &s));
        assert_true(mw_jp_end(&jp));
        assert_string_equal(s.s, cases[i][1]);
    }
    static const char *const bad[] = {
        "\"a", "\"\n\"", "\"\\x\"", "\"\\u12", "\"\\u12g4\"", "x", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mw_jp jp = reader(bad[i], &err);
        assert_false(mw_jp_string(&jp, &s));
        assert_int_equal(err.status, MW_EINPUT);
    }
    mw_str_release(&s);
}

static void test_skip(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",   "[]", " [ 1 , -2.5e+3, true,false , null, \"x\" ] ",
        "null", "0",  "{\"a\":{\"b\":[{},[[]]]},\"a\":1}",
    };
    static const char *const bad[] = {
        "",      "{",    "[1,]",       "[1 2]", "{\"a\"}",  "{\"a\":}",
        "{a:1}", "nul",  "NaN",        "-",     "1.e3",     "+1",
        "[1],",  "0x10", "{\"a\":1,}", "]",     "Infinity", "01",
    };
    struct mw_err err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct mw_jp jp = reader(good[i], &err);
        if (!mw_jp_skip(&jp) || !mw_jp_end(&jp)) {
            fail_msg("'%s' refused: %s", good[i], err.text);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mw_jp jp = reader(bad[i], &err);
        if (mw_jp_skip(&jp) && mw_jp_end(&jp)) {
            fail_msg("'%s' accepted", bad[i]);
        }
        assert_int_equal(err.n_findings, 1);
    }
}

static void test_position_and_depth(void **state)
{
    (void)state;
    struct mw_err err;
    struct mw_jp jp = reader("{\n \"a\": 1,\n \"b\": nope}", &err);
    assert_false(mw_jp_skip(&jp) && mw_jp_end(&jp));
    assert_non_null(strstr(err.text, "f:3:7: 'n' where a value should be"));
    char deep[200];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    jp = reader(deep, &err);
    assert_false(mw_jp_skip(&jp));
    assert_non_null(strstr(err.text, "f:1:65: nested deeper than 64 levels"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_position_and_depth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
