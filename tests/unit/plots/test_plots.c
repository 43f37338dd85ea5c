/*
 * Pictures: what the data file holds (hand-checked boxes), the text chart
 * character by character, same input same bytes, gnuplot missing or failing.
 * Parts that need gnuplot are passed over when it is not installed.
 */
#include "mw_test.h"

#include "base/file.h"
#include "plots/plot.h"
#include "plots/plot_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(struct mw_timeline *t, int rank, int stage, int stream,
                int kind, mw_time start_us, mw_time end_us)
{
    struct mw_span s = {.rank = rank,
                        .stage = stage,
                        .microbatch = stage < 0 ? -1 : 0,
                        .stream = (uint16_t)stream,
                        .kind = (uint16_t)kind,
                        .start_ps = start_us * 1000000,
                        .end_ps = end_us * 1000000,
                        .name = mw_timeline_name(t, "x")};
    mw_timeline_add(t, &s);
}

/* Two stages, 96 us (one microsecond a column of the text chart). */
static void make(struct mw_timeline *t)
{
    mw_timeline_init(t);
    t->step_time_s = 96e-6;
    add(t, 0, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 20);
    add(t, 0, 0, MW_STREAM_PP, MW_SPAN_PP, 20, 24);
    add(t, 0, 0, MW_STREAM_COMPUTE, MW_SPAN_B, 64, 96);
    add(t, 4, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 24, 44);
    add(t, 4, 1, MW_STREAM_COMPUTE, MW_SPAN_W, 44, 64);
    add(t, 5, 1, MW_STREAM_COMPUTE, MW_SPAN_W, 0, 96); /* not the lowest rank */
}

static char *slurp(const char *path)
{
    char *text;
    size_t len;
    struct mw_err err = {.status = MW_OK};
    if (mw_file_read(path, 1 << 22, &text, &len, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return text;
}

/* Whether a gnuplot runs here. */
static bool has_gnuplot(void)
{
    FILE *out = tmpfile();
    enum mw_status status = mw_gnuplot_run("", 0, out, NULL);
    fclose(out);
    return status == MW_OK;
}

/* PATH without any program, until restore_path. */
static char *empty_path(void)
{
    const char *path = getenv("PATH");
    char *old = mw_strdup(path ? path : "");
    mkdir("empty", 0777);
    setenv("PATH", "empty", 1);
    return old;
}

static void restore_path(char *old)
{
    setenv("PATH", old, 1);
    mw_free(old);
    rmdir("empty");
}

static void gantt(const char *path, enum mw_status want, const char *needle)
{
    struct mw_timeline t;
    make(&t);
    struct mw_plot_panel panels[] = {{&t, "predicted"}, {&t, "measured"}};
    struct mw_err err = {.status = MW_OK};
    enum mw_status got = mw_plot_gantt("it's a title", panels, 2, path, &err);
    if (got != want || (needle && !strstr(err.text, needle))) {
        fail_msg("status %d, '%s'", (int)got, err.text);
    }
    mw_timeline_release(&t);
}

static void test_gnuplot_missing(void **state)
{
    (void)state;
    char *old = empty_path();
    unlink("absent.dat");
    gantt("absent.svg", MW_EMISSING,
          "gnuplot is not installed; the data file is absent.dat");
    assert_int_equal(mw_status_exit(MW_EMISSING), 4);
    assert_true(mw_file_exists("absent.dat"));
    assert_false(mw_file_exists("absent.svg"));
    unlink("meshwright-plot.dat");
    gantt("-", MW_EMISSING, "the data file is meshwright-plot.dat");
    assert_true(mw_file_exists("meshwright-plot.dat"));
    restore_path(old);
    unlink("absent.dat");
    unlink("meshwright-plot.dat");
}

/*
 * With PP as the only communication stream the compute lane of a row is its
 * part from 0.06 to 0.72 and the PP lane from 0.74 to 0.912; the first row
 * begins below the title, at 0.62.
 */
static void test_data_file(void **state)
{
    (void)state;
    char *old = empty_path();
    gantt("d.svg", MW_EMISSING, NULL);
    restore_path(old);
    char *text = slurp("d.dat");
    static const char *const lines[] = {
        "# format: 1\n",
        "# it's a title\n",
        "# panel 0 predicted: 96.00 us\n",
        "\n0 96 0.6400 1.6000\n",          /* the track of the first row */
        "\n0 20 0.6800 1.3400 0 0 0 0\n",  /* F of stage 0 */
        "\n24 44 1.6800 2.3400 0 4 1 0\n", /* F of stage 1: rank 4 */
        "\n20 24 1.3600 1.5320 0 0 0 0\n", /* its transfer */
        "\n64 96 3.5500 4.2100 1 0 0 0\n", /* B, second panel */
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(text, lines[i])) {
            fail_msg("no '%s' in\n%s", lines[i], text);
        }
    }
    assert_null(strstr(text, " 5 1 0\n")); /* rank 5 has no row */
    mw_free(text);
    unlink("d.dat");
}

static void test_same_bytes(void **state)
{
    (void)state;
    if (!has_gnuplot()) {
        skip();
    }
    gantt("one.svg", MW_OK, NULL);
    gantt("two.svg", MW_OK, NULL);
    char *one = slurp("one.svg"), *two = slurp("two.svg");
    assert_string_equal(one, two);
    assert_non_null(strstr(one, "<svg"));
    assert_non_null(strstr(one, "it's a title"));
    assert_non_null(strstr(one, "stage 1"));
    assert_non_null(strstr(one, "predicted: 96.00 us"));
    assert_non_null(strstr(one, "F forward"));
    assert_non_null(strstr(one, "bubble"));
    mw_free(one);
    mw_free(two);
    gantt("one.png", MW_OK, NULL);
    FILE *f = fopen("one.png", "rb");
    assert_non_null(f);
    unsigned char head[4] = {0};
    assert_int_equal(fread(head, 1, 4, f), 4);
    assert_memory_equal(head, "\x89PNG", 4);
    fclose(f);
    unlink("one.svg");
    unlink("two.svg");
    unlink("one.png");
    unlink("one.dat");
    unlink("two.dat");
}

/* The chart as a user sees it: stdout goes to a file for the while. */
static void test_text(void **state)
{
    (void)state;
    if (!has_gnuplot()) {
        skip();
    }
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    FILE *f = tmpfile();
    dup2(fileno(f), STDOUT_FILENO);
    gantt("-", MW_OK, NULL);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    char text[8192] = "";
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    /* 20 F, 4 p, 40 idle, 32 B; and 24 idle, 20 F, 20 W, 32 idle. */
    static const char *const lines[] = {
        ("stage 0 FFFFFFFFFFFFFFFFFFFFpppp"
         "........................................"
         "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB\n"),
        ("stage 1 ........................FFFFFFFFFFFFFFFFFFFF"
         "WWWWWWWWWWWWWWWWWWWW................................\n"),
        "predicted: 96.00 us\n",
        "F forward  B input grad  W weight grad  p PP  . bubble\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(text, lines[i])) {
            fail_msg("no '%s' in\n%s", lines[i], text);
        }
    }
    assert_null(strstr(text, " \n"));
    assert_null(strstr(text, "\n\n"));
    assert_null(strchr(text, '\f'));
}

/* A gnuplot that fails: its words come through, no picture is left. */
static void test_gnuplot_fails(void **state)
{
    (void)state;
    if (!has_gnuplot()) {
        skip();
    }
    FILE *out = tmpfile();
    struct mw_err err = {.status = MW_OK};
    static const char script[] = "set nonsense\n";
    assert_int_equal(mw_gnuplot_run(script, strlen(script), out, &err),
                     MW_EFAILED);
    assert_non_null(strstr(err.text, "gnuplot failed with status"));
    fclose(out);
    mkdir("fake", 0777);
    FILE *f = fopen("fake/gnuplot", "w");
    assert_non_null(f);
    fputs("#!/bin/sh\necho half\nkill -9 $$\n", f);
    fclose(f);
    chmod("fake/gnuplot", 0755);
    char *old = empty_path();
    setenv("PATH", "fake", 1);
    gantt("half.svg", MW_EFAILED, "gnuplot was ended by signal 9");
    restore_path(old);
    assert_false(mw_file_exists("half.svg"));
    unlink("half.dat");
    unlink("fake/gnuplot");
    rmdir("fake");
}

static void test_wrong_use(void **state)
{
    (void)state;
    assert_null(mw_plot_path_wrong("-"));
    assert_null(mw_plot_path_wrong("a/b.SVG"));
    assert_null(mw_plot_path_wrong("x.png"));
    assert_non_null(mw_plot_path_wrong(".png"));
    assert_non_null(mw_plot_path_wrong("x.pdf"));
    gantt("x.pdf", MW_EUSAGE, "'x.pdf': a picture is FILE.svg, FILE.png, or -");
    gantt("no/such/dir/x.svg", MW_EINPUT, "no/such/dir/x.dat");
    struct mw_timeline t;
    mw_timeline_init(&t);
    struct mw_plot_panel panel = {&t, "empty"};
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_plot_gantt("t", &panel, 1, "e.svg", &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "nothing to draw"));
    mw_timeline_release(&t);
}

/* Without stages rows are ranks; odd chunks of a stage are blocks of their
 * own. */
static void test_rows(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t;
    char *old = empty_path();
    mw_timeline_init(&t);
    add(&t, 3, -1, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 10);
    add(&t, 8, -1, MW_STREAM_COMPUTE, MW_SPAN_F, 10, 20);
    struct mw_plot_panel panel = {&t, "p"};
    assert_int_equal(mw_plot_gantt("t", &panel, 1, "r.svg", &err), MW_EMISSING);
    char *text = slurp("r.dat");
    assert_non_null(strstr(text, "\n10 20 1.6800 2.5400 0 8 -1 -1\n"));
    mw_free(text);
    mw_timeline_release(&t);
    /* Interleaved, two devices: rank 0 has virtual stages 0 and 2. */
    mw_timeline_init(&t);
    add(&t, 0, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 10);
    add(&t, 1, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 10, 20);
    add(&t, 0, 2, MW_STREAM_COMPUTE, MW_SPAN_F, 20, 30);
    assert_int_equal(mw_plot_gantt("t", &panel, 1, "r.svg", &err), MW_EMISSING);
    text = slurp("r.dat");
    const char *light = strstr(text, "# F (odd chunks)");
    assert_non_null(light);
    assert_non_null(strstr(light, "\n20 30 0.6800 1.5400 0 0 2 0\n"));
    mw_free(text);
    mw_timeline_release(&t);
    restore_path(old);
    unlink("r.dat");
}

/* Spans that touch and belong together are one box. */
static void test_merging(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t;
    char *old = empty_path();
    mw_timeline_init(&t);
    for (int i = 0; i < 100; i++) {
        add(&t, 0, 0, MW_STREAM_COMPUTE, MW_SPAN_F, i, i + 1);
    }
    add(&t, 0, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 150, 200); /* apart */
    struct mw_plot_panel panel = {&t, "p"};
    assert_int_equal(mw_plot_gantt("t", &panel, 1, "m.svg", &err), MW_EMISSING);
    char *text = slurp("m.dat");
    assert_non_null(strstr(text, "\n0 100 0.6800 1.5400 0 0 0 0\n150 200 "));
    mw_free(text);
    mw_timeline_release(&t);
    restore_path(old);
    unlink("m.dat");
}

/* Tics at points: not at the marked one, nor at 17, which is closer to 16 than
 * a twentieth of four doublings. */
static void test_axis_at_points(void **state)
{
    (void)state;
    const double x[] = {8, 16, 17, 32, 128}, y[] = {5, 4, 3, 2, 1}, mark = 20;
    const struct mw_plot_series s[] = {{"plans", x, y, 5, false},
                                       {"crossing", &mark, y, 1, true}};
    struct mw_plot_axes axes = {.title = "t",
                                .x = {"GPUs", MW_PLOT_NUMBER, true, true},
                                .y = {"rate", MW_PLOT_NUMBER, false, false}};
    if (!has_gnuplot()) {
        skip();
    }
    assert_int_equal(mw_plot_curves(&axes, s, 2, "p.svg", NULL), MW_OK);
    char *text = slurp("p.svg");
    static const char *const tics[] = {">8<", ">16<", ">32<", ">128<"};
    static const char *const none[] = {">17<", ">20<", ">10<", ">100<",
                                       ">1000<"};
    for (size_t i = 0; i < sizeof tics / sizeof tics[0]; i++) {
        assert_non_null(strstr(text, tics[i]));
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_null(strstr(text, none[i]));
    }
    mw_free(text);
    unlink("p.svg");
    unlink("p.dat");
}

static void test_curves(void **state)
{
    (void)state;
    const double x[] = {0, 1024, 2048, (double)NAN, 4096};
    const double y[] = {1, 2, 3, 4, HUGE_VAL};
    const struct mw_plot_series s[] = {{"ring", x, y, 5, false},
                                       {"none", x, y, 1, false}};
    struct mw_plot_axes axes = {
        .title = "all_reduce",
        .x = {"size", MW_PLOT_BYTES, true, false},
        .y = {"busbw", MW_PLOT_BYTES_PER_S, false, false}};
    struct mw_err err = {.status = MW_OK};
    enum mw_status want = has_gnuplot() ? MW_OK : MW_EMISSING;
    assert_int_equal(mw_plot_curves(&axes, s, 2, "c.svg", &err), want);
    char *text = slurp("c.dat");
    /* 0 on a log axis, NaN and infinity are left out. */
    assert_non_null(strstr(text, "# ring: x y\n1024 2\n2048 3\n\n\n"));
    mw_free(text);
    if (want == MW_OK) {
        text = slurp("c.svg");
        assert_non_null(strstr(text, "2 KiB"));
        assert_non_null(strstr(text, "ring"));
        assert_null(strstr(text, "none</text>"));
        mw_free(text);
    }
    assert_int_equal(mw_plot_scatter(&axes, s, 1, "c.svg", &err), want);
    assert_int_equal(mw_plot_curves(&axes, &s[1], 1, "c.svg", &err),
                     MW_EINPUT); /* its only point is at 0 */
    unlink("c.svg");
    unlink("c.dat");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gnuplot_missing),
        cmocka_unit_test(test_data_file),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_gnuplot_fails),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_curves),
        cmocka_unit_test(test_axis_at_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
