/*
 * JSON: what is written, that it reads back the same, errors with a place.
 */
#include "base/json.h"
#include "base/mem.h"
#include "mw_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_written(const json_t *value, const char *text)
{
    char got[4096] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(mw_json_write(value, f, NULL), MW_OK);
    rewind(f);
    size_t n = fread(got, 1, sizeof got - 1, f);
    got[n] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static void keys_keep_their_order(void **state)
{
    (void)state;
    json_t *o = json_object();
    mw_json_set_int(o, "z", 9007199254740993LL);
    mw_json_set_real(o, "a", 0.5);
    mw_json_set_str(o, "text", "h\xc3\xa4 \"q\"\n");
    mw_json_set_bool(o, "yes", 2);
    mw_json_set_bool(o, "no", 0);
    mw_json_set(o, "list", json_array());
    assert_written(o, "{\n"
                      "  \"z\": 9007199254740993,\n"
                      "  \"a\": 0.5,\n"
                      "  \"text\": \"h\xc3\xa4 \\\"q\\\"\\n\",\n"
                      "  \"yes\": true,\n"
                      "  \"no\": false,\n"
                      "  \"list\": []\n"
                      "}\n");
    json_decref(o);
}

static void what_is_not_finite_is_null(void **state)
{
    (void)state;
    json_t *o = json_object();
    mw_json_set_real(o, "nan", (double)NAN);
    mw_json_set_real(o, "inf", HUGE_VAL);
    mw_json_set_real(o, "minus", -HUGE_VAL);
    mw_json_set_str(o, "none", NULL);
    assert_written(o, "{\n  \"nan\": null,\n  \"inf\": null,\n"
                      "  \"minus\": null,\n  \"none\": null\n}\n");
    json_decref(o);
}

static void reals_read_back_bit_for_bit(void **state)
{
    (void)state;
    static const double values[] = {0.1,    1.0 / 3, 1e-300,   5e-324, 1.7e308,
                                    -0.125, 1e15,    123456.0, 2.5e-7};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        json_t *v = mw_json_real(values[i]);
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        assert_true(strtod(text, NULL) == values[i]);
        free(text);
        json_decref(v);
    }
}

/* A file name may be any bytes; the report about it must still be JSON. */
static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    json_t *o = json_object();
    mw_json_set_str(o, "a", "x\xff\xc3\xa4\xc3");
    assert_string_equal(json_string_value(json_object_get(o, "a")),
                        "x?\xc3\xa4?");
    json_decref(o);
}

static void failed_write_is_reported(void **state)
{
    (void)state;
    struct mw_err err = {0};
    FILE *f = tmpfile();
    FILE *read_only = fdopen(dup(fileno(f)), "r");
    assert_non_null(read_only);
    json_t *o = json_object();
    /* a stream opened for reading takes no byte */
    assert_int_equal(mw_json_write(o, read_only, &err), MW_EFAILED);
    assert_string_equal(err.text, "cannot write JSON output");
    json_decref(o);
    fclose(read_only);
    fclose(f);
}

static enum mw_status load(const char *text, json_t **out, struct mw_err *err)
{
    char name[] = "mw_json_XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
    enum mw_status st = mw_json_load(name, 1 << 20, out, err);
    unlink(name);
    return st;
}

static void assert_load_fails(const char *text, const char *part)
{
    json_t *v = NULL;
    struct mw_err err = {0};
    assert_int_equal(load(text, &v, &err), MW_EINPUT);
    assert_null(v);
    if (strstr(err.text, part) == NULL) {
        fail_msg("'%s' gave '%s'", text, err.text);
    }
}

static void files_are_loaded(void **state)
{
    (void)state;
    json_t *v = NULL;
    assert_int_equal(load("{\"a\": [1, 2.5, null]}", &v, NULL), MW_OK);
    assert_int_equal(json_array_size(json_object_get(v, "a")), 3);
    json_decref(v);
}

static void bad_files_are_placed(void **state)
{
    (void)state;
    assert_load_fails("{\n  \"a\": 1,\n  \"b\": x\n}", ":3:8: ");
    assert_load_fails("{\"\xc3\xa4\": 1, \"\xc3\xa4\": 2}", "duplicate");
    assert_load_fails("", ": is empty");
    assert_load_fails("{\"a\": 1", ":1:");
    assert_load_fails("[1] x", ":1:");
    assert_load_fails("\xff\xfe", "is not text");
    struct mw_str deep = {0};
    for (int i = 0; i < 100000; i++) {
        mw_str_add(&deep, "[");
    }
    assert_load_fails(deep.s, "depth");
    mw_str_release(&deep);
    json_t *v = NULL;
    struct mw_err err = {0};
    assert_int_equal(mw_json_load("/", 9, &v, &err), MW_EINPUT);
    assert_string_equal(err.text, "/: is a directory; a JSON file is needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_keep_their_order),
        cmocka_unit_test(what_is_not_finite_is_null),
        cmocka_unit_test(reals_read_back_bit_for_bit),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
        cmocka_unit_test(failed_write_is_reported),
        cmocka_unit_test(files_are_loaded),
        cmocka_unit_test(bad_files_are_placed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
