/* Figures of a set, worked out by hand. */
#include "mw_test.h"

#include "exec/compare/set.h"

#include <math.h>
#include <string.h>

static struct mw_set_plan plan(const char *name, const char *scenario,
                               double predicted_s, double measured_s,
                               double spread_s)
{
    struct mw_set_plan p = {.name = name,
                            .scenario = scenario,
                            .layout = "tp 1",
                            .n_ranks = 8,
                            .predicted_s = predicted_s,
                            .measured_s = measured_s,
                            .spread_s = spread_s,
                            .wall_s = 2 * measured_s};

    p.comparison.step = (struct mw_compare_term){.simulated_s = predicted_s,
                                                 .measured_s = measured_s};
    p.comparison.by_kind[MW_SPAN_F] = p.comparison.step;
    return p;
}

/*
 *        predicted  measured  error
 *   a        1.1       1.0    +10 %
 *   b        1.2       1.5    -20 %
 *   c        2.0       2.0      0
 *   d        1.0       2.02   -50.5 %   spread 0.01
 */
static void test_errors(void **state)
{
    (void)state;
    const struct mw_set_plan p[] = {plan("a", "s", 1.1, 1.0, 0),
                                    plan("b", "s", 1.2, 1.5, 0),
                                    plan("c", "s", 2.0, 2.0, 0)};
    struct mw_set_score s;

    mw_set_score(p, 3, &s);
    mw_assert_near(s.mean_error, 0.3 / 3, 1e-12, 0);
    mw_assert_near(s.bias, -0.1 / 3, 1e-12, 0);
    mw_assert_near(s.median_error, 0.1, 1e-12, 0);
    assert_int_equal(s.worst, 1);
    assert_int_equal(s.n_past, 1);
    assert_int_equal(s.n_pairs, 3);
    assert_int_equal(s.n_right, 3);
    mw_assert_near(s.order_rate, 1, 0, 0);
    mw_assert_near(s.kind[MW_SPAN_F].share, 1, 1e-12, 0);
    mw_assert_near(s.kind[MW_SPAN_F].bias, -0.1 / 3, 1e-12, 0);
    mw_assert_near(s.kind[MW_SPAN_F].error, 0.1, 1e-12, 0);
    mw_set_score_release(&s);
}

static void test_pairs(void **state)
{
    (void)state;
    /* c and d are 1 % apart: no pair. d is predicted fastest of all: a-d and
     * b-d are wrong. */
    const struct mw_set_plan p[] = {
        plan("a", "s", 1.1, 1.0, 0), plan("b", "s", 1.2, 1.5, 0),
        plan("c", "s", 2.0, 2.0, 0), plan("d", "s", 1.0, 2.02, 0)};
    struct mw_set_score s;

    mw_set_score(p, 4, &s);
    assert_int_equal(s.n_pairs, 5);
    assert_int_equal(s.n_right, 3);
    assert_int_equal(s.wrong.n, 2);
    assert_int_equal(s.wrong.v[0].a, 0);
    assert_int_equal(s.wrong.v[0].b, 3);
    mw_set_score_release(&s);
}

static void test_spread_and_scenario_rule_pairs_out(void **state)
{
    (void)state;
    /* 0.5 apart; three spreads of the difference are 3 x 0.15 x sqrt 2. */
    struct mw_set_plan p[] = {plan("a", "s", 1.0, 1.0, 0.15),
                              plan("b", "s", 0.9, 1.5, 0.15),
                              plan("c", "t", 0.1, 9.0, 0)};
    struct mw_set_score s;

    mw_set_score(p, 3, &s);
    assert_int_equal(s.n_pairs, 0);
    assert_true(isnan(s.order_rate));
    mw_set_score_release(&s);
    p[0].spread_s = p[1].spread_s = 0.11; /* 0.467 */
    mw_set_score(p, 3, &s);
    assert_int_equal(s.n_pairs, 1);
    assert_int_equal(s.n_right, 0);
    mw_set_score_release(&s);
}

static void fill(struct mw_set_plan *p, int n, int n_far, double far)
{
    for (int i = 0; i < n; i++) {
        double measured = 1.0 + 0.2 * i;
        double error = i < n_far ? far : 0.01;

        p[i] = plan("x", "s", measured * (1 + error), measured, 0);
    }
}

static void test_what_is_asked(void **state)
{
    (void)state;
    struct mw_set_plan p[20];
    struct mw_set_score s;
    char text[MW_SET_TEXT_MAX];

    fill(p, 20, 1, 0.16); /* one in twenty may be past 15 % */
    mw_set_score(p, 20, &s);
    assert_null(mw_set_score_lacks(&s, text));
    mw_set_score_release(&s);
    fill(p, 20, 2, 0.16);
    mw_set_score(p, 20, &s);
    assert_non_null(mw_set_score_lacks(&s, text));
    assert_non_null(strstr(text, "2 of 20 plans"));
    mw_set_score_release(&s);
    fill(p, 20, 20, 0.09);
    mw_set_score(p, 20, &s);
    assert_non_null(mw_set_score_lacks(&s, text));
    assert_non_null(strstr(text, "mean error of 9.0 %"));
    mw_set_score_release(&s);
    fill(p, 20, 1, 10); /* mean 51 %; the order alone is asked about below */
    mw_set_score(p, 20, &s);
    s.mean_error = 0;
    s.n_past = 0;
    assert_true(s.order_rate < 0.95);
    assert_non_null(strstr(mw_set_score_lacks(&s, text), "ordered right"));
    mw_set_score_release(&s);
}

static void test_json_and_tables(void **state)
{
    (void)state;
    const struct mw_set_plan p[] = {plan("a", "s", 1.1, 1.0, 0.01),
                                    plan("b", "s", 1.0, 1.5, 0.01)};
    struct mw_set_score s;
    FILE *f = tmpfile();
    char text[4096] = "";

    assert_non_null(f);
    mw_set_score(p, 2, &s);
    mw_set_print(p, &s, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    assert_non_null(strstr(text, "0 of 1 pairs"));
    assert_non_null(strstr(text, "not: a is faster than b"));
    fclose(f);
    json_t *o = mw_set_json(p, &s);

    assert_int_equal(json_array_size(json_object_get(o, "plans")), 2);
    mw_assert_near(json_real_value(json_object_get(o, "order_rate")), 0, 0, 0);
    json_decref(o);
    mw_set_score_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors), cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_spread_and_scenario_rule_pairs_out),
        cmocka_unit_test(test_what_is_asked),
        cmocka_unit_test(test_json_and_tables)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
