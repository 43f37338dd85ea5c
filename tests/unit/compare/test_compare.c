/*
 * Predicted against measured on a step worked out by hand, refusals, and what
 * is printed.
 *
 *   simulated, step 100 ps           measured, step 125 ps
 *   rank 0 (stage 0) F 0-40 B 60-100  rank 0 (stage 0) F 0-50 B 75-125
 *          pp 40-50                          pp 50-60
 *   rank 1 (stage 1) F 50-60          rank 1 (stage 1) F 60-70
 *
 * Exposed, average of two ranks, in ps:
 *          simulated            measured
 *   F      (40 + 10) / 2 = 25   (50 + 10) / 2 = 30    difference  -5
 *   B      40 / 2        = 20   50 / 2        = 25                -5
 *   pp     10 / 2        =  5   10 / 2        =  5                 0
 *   bubble (10 + 90) / 2 = 50   (15 + 115) / 2 = 65              -15
 *   step                  100                  125               -25, -20 %
 */
#include "mw_test.h"

#include "exec/compare/compare.h"

#include <math.h>
#include <string.h>

static void add(struct mw_timeline *t, int rank, int stream, int kind,
                mw_time start_ps, mw_time end_ps)
{
    struct mw_span s = {.rank = rank,
                        .stage = rank,
                        .microbatch = 0,
                        .stream = (uint16_t)stream,
                        .kind = (uint16_t)kind,
                        .start_ps = start_ps,
                        .end_ps = end_ps,
                        .name = mw_timeline_name(t, "x")};
    mw_timeline_add(t, &s);
}

struct pair {
    struct mw_timeline simulated, measured;
};

static int setup(void **state)
{
    struct pair *p = mw_calloc(1, sizeof *p);
    struct mw_timeline *s = &p->simulated, *m = &p->measured;
    mw_timeline_init(s);
    mw_timeline_init(m);
    s->step_time_s = 100e-12;
    add(s, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 40);
    add(s, 0, MW_STREAM_PP, MW_SPAN_PP, 40, 50);
    add(s, 0, MW_STREAM_COMPUTE, MW_SPAN_B, 60, 100);
    add(s, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 50, 60);
    m->step_time_s = 125e-12;
    m->is_measured = true;
    snprintf(m->clock, sizeof m->clock, "virtual");
    add(m, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 60, 70);
    add(m, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 50);
    add(m, 0, MW_STREAM_PP, MW_SPAN_PP, 50, 60);
    add(m, 0, MW_STREAM_COMPUTE, MW_SPAN_B, 75, 125);
    snprintf(s->plan_hash, sizeof s->plan_hash, "abc");
    snprintf(m->plan_hash, sizeof m->plan_hash, "abc");
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    mw_timeline_release(&p->simulated);
    mw_timeline_release(&p->measured);
    mw_free(p);
    return 0;
}

static enum mw_status compare_pair(struct mw_timeline *s, struct mw_timeline *m,
                                   bool is_forced, struct mw_comparison *c,
                                   struct mw_err *err)
{
    const struct mw_compare_side simulated = {s, "s.json"},
                                 measured = {m, "m.json"};
    return mw_compare(&simulated, &measured, is_forced, c, err);
}

static void compare(struct pair *p, bool is_forced, struct mw_comparison *c)
{
    struct mw_err err = {.status = MW_OK};
    if (compare_pair(&p->simulated, &p->measured, is_forced, c, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
}

static void assert_term(const struct mw_compare_term *t, double simulated_ps,
                        double measured_ps)
{
    mw_assert_near(t->simulated_s, simulated_ps * 1e-12, 1e-12, 1e-26);
    mw_assert_near(t->measured_s, measured_ps * 1e-12, 1e-12, 1e-26);
}

static void test_by_hand(void **state)
{
    struct mw_comparison c;
    compare(*state, false, &c);
    assert_term(&c.step, 100, 125);
    mw_assert_near(c.error, -0.2, 1e-12, 0);
    assert_term(&c.by_kind[MW_SPAN_F], 25, 30);
    assert_term(&c.by_kind[MW_SPAN_B], 20, 25);
    assert_term(&c.by_kind[MW_SPAN_W], 0, 0);
    assert_term(&c.by_kind[MW_SPAN_PP], 5, 5);
    assert_term(&c.by_kind[MW_SPAN_BUBBLE], 50, 65);
    assert_true(c.is_same_plan);
    assert_string_equal(c.clock, "virtual");
    assert_int_equal(c.stages.n, 2);
    assert_int_equal(c.stages.v[1].stage, 1);
    assert_term(&c.stages.v[0].busy, 90, 110);
    assert_term(&c.stages.v[1].busy, 10, 10);
    assert_term(&c.stages.v[0].by_kind[MW_SPAN_PP], 10, 10);
    assert_term(&c.stages.v[1].by_kind[MW_SPAN_BUBBLE], 90, 115);
    assert_true(isnan(mw_compare_error(&c.by_kind[MW_SPAN_W])));
    mw_comparison_release(&c);
}

/* Conservation: the differences by kind sum to the difference of the step. */
static void test_differences_sum(void **state)
{
    struct mw_comparison c;
    double sum = 0;
    compare(*state, false, &c);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        sum += mw_compare_difference_s(&c.by_kind[k]);
    }
    mw_assert_near(sum, -25e-12, 1e-12, 0);
    mw_comparison_release(&c);
}

/* Against itself every difference is 0. */
static void test_itself(void **state)
{
    struct pair *p = *state;
    struct mw_comparison c;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(compare_pair(&p->measured, &p->measured, true, &c, &err),
                     MW_OK);
    mw_assert_near(c.error, 0, 0, 0);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        mw_assert_near(mw_compare_difference_s(&c.by_kind[k]), 0, 0, 0);
    }
    mw_comparison_release(&c);
}

/* A stage that only one side has shows with nothing on the other. */
static void test_stages_of_one_side(void **state)
{
    struct pair *p = *state;
    struct mw_comparison c;
    add(&p->measured, 7, MW_STREAM_COMPUTE, MW_SPAN_W, 0, 30);
    add(&p->simulated, 3, MW_STREAM_COMPUTE, MW_SPAN_W, 0, 20);
    compare(p, false, &c);
    assert_int_equal(c.stages.n, 4);
    assert_int_equal(c.stages.v[2].stage, 3);
    assert_term(&c.stages.v[2].busy, 20, 0);
    assert_int_equal(c.stages.v[3].stage, 7);
    assert_term(&c.stages.v[3].by_kind[MW_SPAN_W], 0, 30);
    mw_comparison_release(&c);
}

/* ---- refusals
 * ------------------------------------------------------------------- */
static void expect_refusal(struct mw_timeline *s, struct mw_timeline *m,
                           bool is_forced, const char *needle)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_comparison c = {.error = 42};
    assert_int_equal(compare_pair(s, m, is_forced, &c, &err), MW_EINPUT);
    if (!strstr(err.text, needle)) {
        fail_msg("'%s' lacks '%s'", err.text, needle);
    }
    mw_assert_near(c.error, 42, 0, 0);
}

static void test_refusals(void **state)
{
    struct pair *p = *state;
    struct mw_comparison c;
    expect_refusal(&p->measured, &p->simulated, false,
                   "s.json: is the measured timeline and m.json the simulated");
    expect_refusal(&p->simulated, &p->simulated, false,
                   "m.json: was simulated; a measured timeline goes second");
    expect_refusal(&p->measured, &p->measured, false,
                   "s.json: was measured; a simulated timeline goes first");
    snprintf(p->measured.plan_hash, sizeof p->measured.plan_hash, "xyz");
    expect_refusal(&p->simulated, &p->measured, false,
                   "m.json: plan hash xyz but s.json has abc; compare "
                   "timelines of one plan, or pass --force");
    compare(p, true, &c);
    assert_false(c.is_same_plan);
    mw_comparison_release(&c);
    p->measured.plan_hash[0] = '\0';
    expect_refusal(&p->simulated, &p->measured, false, "plan hash none but");
}

static void test_no_time(void **state)
{
    struct pair *p = *state;
    struct mw_timeline empty;
    mw_timeline_init(&empty);
    expect_refusal(&p->simulated, &empty, true,
                   "m.json: the step took no time");
    mw_timeline_release(&empty);
}

/* ---- what is printed
 * -------------------------------------------------------------- */
static void test_headline(void **state)
{
    (void)state;
    char buf[MW_COMPARE_HEADLINE_MAX];
    struct mw_comparison c = {
        .step = {.simulated_s = 12.34e-3, .measured_s = 12.01e-3},
        .error = 12.34 / 12.01 - 1,
        .clock = "virtual"};
    assert_string_equal(mw_compare_headline(&c, buf),
                        "predicted 12.34 ms, measured 12.01 ms (virtual "
                        "clock), error +2.7 %");
    assert_non_null(strstr(mw_compare_clock_note(&c),
                           "compute, order and bubbles, not communication"));
}

static void test_json(void **state)
{
    struct mw_comparison c;
    compare(*state, false, &c);
    json_t *o = mw_compare_json(&c);
    mw_assert_near(json_real_value(json_object_get(o, "simulated_step_time_s")),
                   100e-12, 1e-12, 0);
    mw_assert_near(json_real_value(json_object_get(o, "measured_step_time_s")),
                   125e-12, 1e-12, 0);
    mw_assert_near(json_real_value(json_object_get(o, "error")), -0.2, 1e-12,
                   0);
    json_t *kinds = json_object_get(o, "by_kind");
    assert_int_equal(json_object_size(kinds), MW_SPAN_KIND_COUNT);
    json_t *bubble = json_object_get(kinds, "bubble");
    mw_assert_near(json_real_value(json_object_get(bubble, "difference_s")),
                   -15e-12, 1e-12, 0);
    json_t *w = json_object_get(kinds, "W");
    assert_true(json_is_null(json_object_get(w, "error")));
    assert_int_equal(json_array_size(json_object_get(o, "by_stage")), 2);
    json_decref(o);
    mw_comparison_release(&c);
}

static void test_tables(void **state)
{
    struct mw_comparison c;
    char text[4096] = "";
    compare(*state, false, &c);
    FILE *f = tmpfile();
    mw_compare_print(&c, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "(virtual clock), error -20.0 %"));
    assert_non_null(strstr(text, "step "));
    assert_non_null(strstr(text, "-20.0 %"));
    assert_null(strstr(text, "optimizer")); /* neither side has any */
    assert_null(strstr(text, "nan"));
    mw_comparison_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_differences_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(test_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stages_of_one_side, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_time, setup, teardown),
        cmocka_unit_test(test_headline),
        cmocka_unit_test_setup_teardown(test_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tables, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
