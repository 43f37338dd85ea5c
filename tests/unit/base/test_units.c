/*
 * Quantities: what is accepted, what it is in SI, what is refused and how.
 */
#include "base/units.h"
#include "mw_test.h"

#include <math.h>
#include <string.h>

static void quantities_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mw_quantity kind;
        double value;
    } rows[] = {
        {"512B", MW_Q_BYTES, 512},
        {"1 byte", MW_Q_BYTES, 1},
        {"2MB", MW_Q_BYTES, 2e6},
        {"2 KB", MW_Q_BYTES, 2e3},
        {"2kB", MW_Q_BYTES, 2e3},
        {"80GiB", MW_Q_BYTES, 85899345920.0}, /* 80 * 1024^3 */
        {"1.5 TiB", MW_Q_BYTES, 1649267441664.0},
        {"450GB/s", MW_Q_BYTES_PER_S, 450e9},
        {"450 GB/s", MW_Q_BYTES_PER_S, 450e9},
        {"400Gb/s", MW_Q_BYTES_PER_S, 50e9}, /* 400 / 8 */
        {"400 Gbit/s", MW_Q_BYTES_PER_S, 50e9},
        {"400Gbps", MW_Q_BYTES_PER_S, 50e9},
        {"3.35TB/s", MW_Q_BYTES_PER_S, 3.35e12},
        {"1GiB/s", MW_Q_BYTES_PER_S, 1073741824.0},
        {"1.5us", MW_Q_SECONDS, 1.5e-6},
        {"1.5 \xc2\xb5s", MW_Q_SECONDS, 1.5e-6},
        {"1.5\xce\xbcs", MW_Q_SECONDS, 1.5e-6},
        {"3ms", MW_Q_SECONDS, 3e-3},
        {"5ns", MW_Q_SECONDS, 5e-9},
        {"7ps", MW_Q_SECONDS, 7e-12},
        {"2s", MW_Q_SECONDS, 2},
        {"10min", MW_Q_SECONDS, 600},
        {"2h", MW_Q_SECONDS, 7200},
        {"3 TFLOP", MW_Q_FLOPS, 3e12},
        {"3 TFLOPs", MW_Q_FLOPS, 3e12},
        {"989TFLOP/s", MW_Q_FLOPS_PER_S, 989e12},
        {"989 TFLOPS", MW_Q_FLOPS_PER_S, 989e12},
        {"1.979 Pflop/s", MW_Q_FLOPS_PER_S, 1.979e15},
        {"2 TFLOPs/s", MW_Q_FLOPS_PER_S, 2e12},
        {"1.83GHz", MW_Q_HERTZ, 1.83e9},
        {"700W", MW_Q_WATT, 700},
        {"1.2kW", MW_Q_WATT, 1200},
        {"5mW", MW_Q_WATT, 0.005},
        {"1e3 B", MW_Q_BYTES, 1000},
        {".5s", MW_Q_SECONDS, 0.5},
        {"+1.e1s", MW_Q_SECONDS, 10},
        {"0B", MW_Q_BYTES, 0},
        {"-1.25", MW_Q_NONE, -1.25},
        {"42", MW_Q_NONE, 42},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_err err = {0};
        double v = (double)NAN;
        if (mw_quantity_parse(rows[i].text, rows[i].kind, &v, &err) != MW_OK) {
            fail_msg("'%s': %s", rows[i].text, err.text);
        }
        if (!mw_near(v, rows[i].value, 1e-15, 0)) {
            fail_msg("'%s' gave %.17g", rows[i].text, v);
        }
    }
}

static void quantities_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mw_quantity kind;
        const char *message;
    } rows[] = {
        {"450", MW_Q_BYTES_PER_S, "'450' needs a unit, for example 450GB/s"},
        {"450Gb", MW_Q_BYTES,
         "'450Gb' is in bits but bytes are meant; did you mean 450GB (56.25GB "
         "is 450Gb)"},
        {"8 Mbit", MW_Q_BYTES,
         "'8 Mbit' is in bits but bytes are meant; did you mean 8MB (1MB is 8 "
         "Mbit)"},
        {"64 bits", MW_Q_BYTES,
         "'64 bits' is in bits but bytes are meant; did you mean 64B (8B is 64 "
         "bits)"},
        {"450GB/s", MW_Q_BYTES,
         "'450GB/s' is a rate in bytes per second but a size in bytes is "
         "meant, for example 80GiB"},
        {"80GB", MW_Q_BYTES_PER_S,
         "'80GB' is a size in bytes but a rate in bytes per second is meant, "
         "for example 450GB/s"},
        {"989TFLOP", MW_Q_FLOPS_PER_S,
         "'989TFLOP' is a number of FLOPs but a rate in FLOP/s is meant, for "
         "example 989TFLOP/s"},
        {"80gib", MW_Q_BYTES,
         "'80gib' has the unit 'gib', where upper and lower case differ; write "
         "it like 80GiB"},
        {"80XB", MW_Q_BYTES,
         "'80XB' has the unknown unit 'XB'; a size in bytes is meant, for "
         "example 80GiB"},
        {"3kis", MW_Q_SECONDS,
         "'3kis' has the unknown unit 'kis'; a time is meant, for example "
         "1.5us"},
        {"-3GB", MW_Q_BYTES,
         "'-3GB' is negative; a size in bytes is 0 or more"},
        {"nan", MW_Q_BYTES,
         "'nan' is not a size in bytes; write for example 80GiB"},
        {"inf s", MW_Q_SECONDS,
         "'inf s' is not a time; write for example 1.5us"},
        {"", MW_Q_SECONDS, "'' is not a time; write for example 1.5us"},
        {"GB", MW_Q_BYTES,
         "'GB' is not a size in bytes; write for example "
         "80GiB"},
        {"1e400B", MW_Q_BYTES, "'1e400' is too large a number"},
        {"1e308EB", MW_Q_BYTES, "'1e308EB' is too large a number"},
        {"80GiB", MW_Q_NONE,
         "'80GiB' has a unit but a pure number is meant, for example 80"},
        {"1,5us", MW_Q_SECONDS,
         "'1,5us' has the unknown unit ',5us'; a time is meant, for example "
         "1.5us"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_err err = {0};
        double v = 7;
        assert_int_equal(
            mw_quantity_parse(rows[i].text, rows[i].kind, &v, &err), MW_EINPUT);
        assert_string_equal(err.text, rows[i].message);
        assert_true(v == 7); /* untouched */
    }
}

static void more_refused_quantities(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0x10B", "1 B ",    " 1B",  "1  B",     "1\tB",    "1B B",  "1..2B",
        "--1B",  "1e+B",    "1_0B", "infinity", "1KiBs",   "1kkB",  "1i B",
        "1/s",   "1GB / s", "1B/S", "1GB/s/s",  "1 GB/ms", "1 GBps"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double v = 7;
        if (mw_quantity_parse(texts[i], MW_Q_BYTES, &v, NULL) == MW_OK ||
            mw_quantity_parse(texts[i], MW_Q_BYTES_PER_S, &v, NULL) == MW_OK) {
            fail_msg("'%s' was accepted as %g", texts[i], v);
        }
    }
}

static void long_words_are_cut_in_messages(void **state)
{
    (void)state;
    struct mw_err err = {0};
    char text[5000];
    double v;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(mw_quantity_parse(text, MW_Q_BYTES, &v, &err), MW_EINPUT);
    assert_true(err.len < 200);
    memset(text, '1', sizeof text - 2);
    text[sizeof text - 2] = 'B';
    assert_int_equal(mw_quantity_parse(text, MW_Q_BYTES, &v, NULL), MW_EINPUT);
    text[1] = 'B';
    assert_int_equal(mw_quantity_parse(text, MW_Q_BYTES, &v, NULL), MW_EINPUT);
}

static void every_example_parses_as_its_kind(void **state)
{
    (void)state;
    for (int k = MW_Q_NONE; k <= MW_Q_WATT; k++) {
        double v = 0;
        const char *example = mw_quantity_example((enum mw_quantity)k);
        assert_int_equal(
            mw_quantity_parse(example, (enum mw_quantity)k, &v, NULL), MW_OK);
        assert_true(v > 0);
    }
    assert_string_equal(mw_quantity_si_unit(MW_Q_BYTES_PER_S), "B/s");
    assert_string_equal(mw_quantity_si_unit(MW_Q_NONE), "");
}

static void integers(void **state)
{
    (void)state;
    int64_t v = 7;
    assert_int_equal(mw_int_parse("-9223372036854775808", &v, NULL), MW_OK);
    assert_true(v == INT64_MIN);
    assert_int_equal(mw_int_parse("+9223372036854775807", &v, NULL), MW_OK);
    assert_true(v == INT64_MAX);
    assert_int_equal(mw_int_parse("007", &v, NULL), MW_OK);
    assert_true(v == 7);
    struct mw_err err = {0};
    assert_int_equal(mw_int_parse("9223372036854775808", &v, &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "'9223372036854775808' does not fit in 64 bits");
    static const char *const bad[] = {"",   "-",   "1.0", "1e3", "0x1", " 1",
                                      "1 ", "two", "--1", "1-",  "+-1", "1_0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(mw_int_parse(bad[i], &v, NULL), MW_EINPUT);
        assert_true(v == 7);
    }
}

static void doubles(void **state)
{
    (void)state;
    double v = 7;
    assert_int_equal(mw_double_parse("1.5e-3", &v, NULL), MW_OK);
    assert_true(v == 1.5e-3);
    static const char *const bad[] = {"",      "nan", "inf",  "-inf", "1e999",
                                      "0x1p3", "1,5", "1.5 ", "e5",   "1e",
                                      ".",     "-.",  "1e-",  "1d3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        v = 7;
        assert_int_equal(mw_double_parse(bad[i], &v, NULL), MW_EINPUT);
        assert_true(v == 7);
    }
}

static void forms_for_people(void **state)
{
    (void)state;
    char b[MW_FMT_MAX];
    assert_string_equal(mw_fmt_bytes(0, b), "0 B");
    assert_string_equal(mw_fmt_bytes(512, b), "512 B");
    assert_string_equal(mw_fmt_bytes(1023, b), "1023 B");
    assert_string_equal(mw_fmt_bytes(1024, b), "1.00 KiB");
    /* 12.3 * 2^30 = 13207024435.2 */
    assert_string_equal(mw_fmt_bytes(13207024435.2, b), "12.3 GiB");
    assert_string_equal(mw_fmt_bytes(1023.4 * 0x1p30, b), "1023 GiB");
    assert_string_equal(mw_fmt_bytes(1023.6 * 0x1p30, b), "1.00 TiB");
    assert_string_equal(mw_fmt_bytes(-2048, b), "-2.00 KiB");
    assert_string_equal(mw_fmt_rate(450e9, b), "450 GB/s");
    assert_string_equal(mw_fmt_rate(3.35e12, b), "3.35 TB/s");
    assert_string_equal(mw_fmt_rate(999.6e9, b), "1.00 TB/s");
    assert_string_equal(mw_fmt_rate(9.996e9, b), "10.0 GB/s");
    assert_string_equal(mw_fmt_seconds(1.5e-6, b), "1.500 us");
    assert_string_equal(mw_fmt_seconds(16.423, b), "16.42 s");
    assert_string_equal(mw_fmt_seconds(0.99999, b), "1.000 s");
    assert_string_equal(mw_fmt_seconds(12345, b), "12345 s");
    assert_string_equal(mw_fmt_seconds(0, b), "0 ns");
    assert_string_equal(mw_fmt_flops(989e12, b), "989 TFLOP/s");
    assert_string_equal(mw_fmt_flops((double)NAN, b), "nan");
    assert_string_equal(mw_fmt_flops(HUGE_VAL, b), "inf");
    assert_string_equal(mw_fmt_count(8030261248, b), "8,030,261,248");
    assert_string_equal(mw_fmt_count(0, b), "0");
    assert_string_equal(mw_fmt_count(999, b), "999");
    assert_string_equal(mw_fmt_count(1000, b), "1,000");
    assert_string_equal(mw_fmt_count(UINT64_MAX, b),
                        "18,446,744,073,709,551,615");
}

static void extreme_values_fit_the_buffer(void **state)
{
    (void)state;
    static const double values[] = {-1.7e308, 1.7e308, -5e-324, -999999.5};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char b[MW_FMT_MAX];
        assert_true(strlen(mw_fmt_bytes(values[i], b)) < MW_FMT_MAX - 1);
        assert_true(strlen(mw_fmt_rate(values[i], b)) < MW_FMT_MAX - 1);
        assert_true(strlen(mw_fmt_seconds(values[i], b)) < MW_FMT_MAX - 1);
        assert_true(strlen(mw_fmt_flops(values[i], b)) < MW_FMT_MAX - 1);
    }
}

/* Rounds up, but 1 us is a million picoseconds although 1e-6 is no double. */
static void simulated_time(void **state)
{
    (void)state;
    assert_int_equal(mw_time_from_s(0), 0);
    assert_int_equal(mw_time_from_s(1e-13), 1);
    assert_int_equal(mw_time_from_s(1.0000001e-12), 2);
    for (int64_t us = 1; us < 100000; us += 7) {
        assert_int_equal(mw_time_from_s((double)us * 1e-6), us * 1000000);
        assert_int_equal(mw_time_from_s((double)us / 1e9), us * 1000);
    }
    assert_int_equal(mw_time_from_s(86400), INT64_C(86400000000000000));
    mw_assert_near(mw_time_to_s(1500000), 1.5e-6, 1e-15, 0);
}

static void nearness(void **state)
{
    (void)state;
    assert_true(mw_near(1, 1.0000001, 1e-6, 0));
    assert_false(mw_near(1, 1.00001, 1e-6, 0));
    assert_true(mw_near(0, 1e-9, 0, 1e-8));
    assert_false(mw_near((double)NAN, (double)NAN, 1, 1));
    assert_false(mw_near((double)NAN, 1, 1, 1));
    assert_true(mw_near(HUGE_VAL, HUGE_VAL, 0, 0));
    assert_false(mw_near(HUGE_VAL, 1, 1, 1));
    assert_false(mw_near(HUGE_VAL, -HUGE_VAL, 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_accepted),
        cmocka_unit_test(quantities_refused),
        cmocka_unit_test(more_refused_quantities),
        cmocka_unit_test(long_words_are_cut_in_messages),
        cmocka_unit_test(every_example_parses_as_its_kind),
        cmocka_unit_test(integers),
        cmocka_unit_test(doubles),
        cmocka_unit_test(forms_for_people),
        cmocka_unit_test(extreme_values_fit_the_buffer),
        cmocka_unit_test(simulated_time),
        cmocka_unit_test(nearness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
