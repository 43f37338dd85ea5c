/*
 * The solver of the fit on problems whose answer is known: a straight line, a
 * prior alone, an outlier that Huber's weight tames, a singular system.
 */
#include "mw_test.h"

#include "hwdb/fit/fit_solve.h"

#include <math.h>

/* r = x0 + x1 t - y at x = 0 for y = 2 + 3 t, small: one step is exact. */
static void test_line(void **state)
{
    const double r[] = {-0.02, -0.05, -0.08};
    const double jacobian[] = {1, 0, 1, 1, 1, 2};
    const double weight[] = {1, 1, 1}, x[] = {0, 0}, sd[] = {1e6, 1e6};
    double step[2];

    (void)state;
    assert_true(mw_fit_step(3, 2, r, jacobian, weight, x, x, sd, step));
    mw_assert_near(step[0], 0.02, 1e-6, 0);
    mw_assert_near(step[1], 0.03, 1e-6, 0);
}

/* A row of weight 0 does not count; then the prior has its way. A datum as
 * strong as the prior meets it half-way. */
static void test_prior(void **state)
{
    const double r[] = {0.01}, jacobian[] = {1}, x[] = {0.5}, prior[] = {0.5},
                 sd[] = {1}, none[] = {0}, one[] = {1}, far[] = {0.2};
    double step[1];

    (void)state;
    assert_true(mw_fit_step(1, 1, r, jacobian, none, x, far, sd, step));
    mw_assert_near(step[0], -0.3, 1e-12, 0);
    assert_true(mw_fit_step(1, 1, r, jacobian, one, x, prior, sd, step));
    mw_assert_near(step[0], -0.005, 1e-12, 0);
}

/* One datum, x0 + x1 = 0.08, both as loose: 0.04 each. With x0 at most 0.01 the
 * rest is x1's, not its half. A bound that nothing meets changes nothing; one
 * that lies behind x brings x back to it. */
static void test_bounds(void **state)
{
    const double r[] = {-0.08}, jacobian[] = {1, 1}, weight[] = {1};
    const double x[] = {0, 0}, sd[] = {1e3, 1e3};
    const double low[] = {-1, -1}, wide[] = {1, 1}, narrow[] = {0.01, 1};
    const double behind[] = {-0.02, 1};
    struct mw_fit_problem q = {1, 2, r, jacobian, weight, x, x, sd, low, wide};
    double step[2];

    (void)state;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0.04, 1e-6, 0);
    mw_assert_near(step[1], 0.04, 1e-6, 0);
    q.high = narrow;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0.01, 1e-6, 0);
    mw_assert_near(step[1], 0.07, 1e-5, 0);
    q.high = behind;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], -0.02, 1e-6, 0);
    mw_assert_near(step[1], 0.1, 1e-5, 0);
}

/* Nine rows at 0 and one at 10 for a constant: its weight is 0.08 / 10. */
static void test_outlier(void **state)
{
    double r[10] = {0}, jacobian[10], weight[10], step[1];
    const double x[] = {0}, sd[] = {1e6};

    (void)state;
    for (int i = 0; i < 10; i++) {
        jacobian[i] = weight[i] = 1;
    }
    r[9] = 10;
    assert_true(mw_fit_step(10, 1, r, jacobian, weight, x, x, sd, step));
    mw_assert_near(step[0], -0.08 / 9.008, 1e-9, 0);
    mw_assert_near(mw_fit_loss(10, 1, r, weight, x, x, sd), 0.08 * (20 - 0.08),
                   1e-12, 0);
}

/* Two equal columns and no prior to speak of. */
static void test_singular(void **state)
{
    const double r[] = {1}, jacobian[] = {1, 1}, weight[] = {1}, x[] = {0, 0},
                 none[] = {1e200, 1e200};
    double step[2];

    (void)state;
    assert_false(mw_fit_step(1, 2, r, jacobian, weight, x, x, none, step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line), cmocka_unit_test(test_prior),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_singular)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
