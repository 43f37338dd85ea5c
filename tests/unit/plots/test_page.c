/* Pages: text is escaped, nothing comes from elsewhere, the same input gives
 * the same bytes, pictures without a file of their own. */
#include "mw_test.h"

#include "plots/page.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add(struct mw_timeline *t, int rank, enum mw_span_kind kind,
                int microbatch, mw_time start_ps, mw_time end_ps)
{
    const struct mw_span s = {.rank = rank,
                              .stage = rank,
                              .microbatch = microbatch,
                              .stream = MW_STREAM_COMPUTE,
                              .kind = (uint16_t)kind,
                              .start_ps = start_ps,
                              .end_ps = end_ps,
                              .name = mw_timeline_name(t, "x")};

    mw_timeline_add(t, &s);
}

static void fill(struct mw_page *page)
{
    static const char *const columns[] = {"name", ">value"};
    static const char *const rows[] = {"stage 0", "stage 1"};
    static const char *const parts[] = {"weights", "a <b>"};
    static const char *const colours[] = {"#2f6fd0", "#c2481a"};
    static const double bytes[] = {1e9, 2e9, 3e9, 0};
    const struct mw_page_point points[] = {{1e-3, 1.1e-3, "one", 0},
                                           {5e-3, 4e-3, "two & three", 1},
                                           {0, 1, "not drawn", 2}};
    const struct mw_page_bars bars = {.rows = rows,
                                      .n_rows = 2,
                                      .parts = parts,
                                      .colours = colours,
                                      .n_parts = 2,
                                      .value = bytes,
                                      .format = MW_PLOT_BYTES,
                                      .limit = 4e9};
    struct mw_timeline t;

    mw_timeline_init(&t);
    add(&t, 0, MW_SPAN_F, 0, 0, 400000000);
    add(&t, 1, MW_SPAN_F, 0, 400000000, 800000000);
    add(&t, 1, MW_SPAN_B, 0, 800000000, 1000000000);
    const struct mw_plot_panel panel = {&t, "predicted <1>"};

    mw_page_begin(page, "Title \"of\" <page> & 'more'");
    mw_page_heading(page, "Head");
    mw_page_text(page, "%d < %s", 3, "a&b");
    mw_page_verbatim(page, "  two\n    lines");
    mw_page_table_begin(page, columns, 2);
    mw_page_table_row(page);
    mw_page_table_cell(page, "%s", "x");
    mw_page_table_cell(page, "%.1f", 1.5);
    mw_page_table_end(page);
    mw_page_fold_begin(page, "more");
    mw_page_gantt(page, &panel, 1);
    mw_page_fold_end(page);
    mw_page_scatter(page, "measured", "predicted", 0.15, points, 3);
    mw_page_bars(page, &bars);
    mw_timeline_release(&t);
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
        n++;
    }
    return n;
}

static void test_escaped_and_whole(void **state)
{
    (void)state;
    struct mw_page page = {0};

    fill(&page);
    const char *text = page.html.s;

    assert_non_null(strstr(text, "Title &quot;of&quot; &lt;page&gt; &amp; "
                                 "&#39;more&#39;"));
    assert_non_null(strstr(text, "<p>3 &lt; a&amp;b</p>"));
    assert_non_null(strstr(text, "two &amp; three"));
    assert_non_null(strstr(text, "predicted &lt;1&gt;"));
    assert_non_null(strstr(text, "a &lt;b&gt;"));
    assert_null(strstr(text, "not drawn"));
    assert_int_equal(count(text, "<svg"), 3);
    assert_int_equal(count(text, "</svg>"), 3);
    assert_int_equal(count(text, "<details>"), count(text, "</details>"));
    assert_int_equal(count(text, "<table"), count(text, "</table>"));
    /* Nothing from elsewhere: the namespace of SVG is the only address. */
    assert_int_equal(count(text, "http"), 3);
    assert_int_equal(count(text, "<script"), 0);
    assert_int_equal(count(text, "nan"), 0);
    mw_page_release(&page);
}

static void test_same_bytes(void **state)
{
    (void)state;
    struct mw_page a = {0}, b = {0};

    fill(&a);
    fill(&b);
    assert_int_equal(a.html.n, b.html.n);
    assert_memory_equal(a.html.s, b.html.s, a.html.n);
    mw_page_release(&a);
    mw_page_release(&b);
}

/* Boxes lie where their times say: the second half of a step of 1 ms. */
static void test_geometry(void **state)
{
    (void)state;
    struct mw_page page = {0};
    struct mw_timeline t;

    mw_timeline_init(&t);
    t.step_time_s = 1e-3;
    add(&t, 0, MW_SPAN_F, 0, 500000000, 1000000000);
    const struct mw_plot_panel panel = {&t, "x"};

    mw_page_gantt(&page, &panel, 1);
    /* 1200 px less 80 and 16: half of 1104 from 80 + 552 on. */
    assert_non_null(strstr(page.html.s, "<rect x=\"632.00\""));
    assert_non_null(strstr(page.html.s, "width=\"551.20\""));
    mw_timeline_release(&t);
    mw_page_release(&page);
}

static void test_nothing_to_draw(void **state)
{
    (void)state;
    struct mw_page page = {0};
    struct mw_timeline t;
    const struct mw_plot_panel panel = {&t, "x"};

    mw_timeline_init(&t);
    mw_page_gantt(&page, &panel, 1);
    mw_page_scatter(&page, "x", "y", 0.1, NULL, 0);
    assert_int_equal(count(page.html.s, "nothing to draw"), 2);
    mw_timeline_release(&t);
    mw_page_release(&page);
}

static void test_saved(void **state)
{
    (void)state;
    struct mw_page page = {0};
    struct mw_err err = {0};
    char path[] = "page-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    fill(&page);
    assert_int_equal(mw_page_save(&page, path, &err), MW_OK);
    assert_null(page.html.s);
    assert_int_equal(unlink(path), 0);
    fill(&page);
    assert_int_equal(mw_page_save(&page, "no/such/folder/p.html", &err),
                     MW_EINPUT);
    assert_null(page.html.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escaped_and_whole),
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_geometry),
        cmocka_unit_test(test_nothing_to_draw), cmocka_unit_test(test_saved)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
