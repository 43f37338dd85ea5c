/*
 * Statistics against numbers worked out by hand.
 */
#include "base/stats.h"
#include "mw_test.h"

#include <math.h>

static void quantiles_are_type_7(void **state)
{
    (void)state;
    /* sorted 1 2 3 4 10; h = 4 q: q = 0.9 gives 3.6 -> 4 + 0.6 * 6 = 7.6 */
    double v[] = {10, 1, 3, 2, 4};
    mw_assert_near(mw_quantile(v, 5, 0.9), 7.6, 1e-15, 0);
    mw_assert_near(mw_quantile(v, 5, 0), 1, 0, 0);
    mw_assert_near(mw_quantile(v, 5, 1), 10, 0, 0);
    mw_assert_near(mw_quantile(v, 5, 0.25), 2, 0, 0);
    mw_assert_near(mw_median(v, 5), 3, 0, 0);
    double even[] = {4, 1, 3, 2};
    mw_assert_near(mw_median(even, 4), 2.5, 0, 0);
    double one[] = {42};
    mw_assert_near(mw_quantile(one, 1, 0.3), 42, 0, 0);
    assert_true(isnan(mw_median(one, 0)));
}

static void quantile_sorts_also_with_nan(void **state)
{
    (void)state;
    double v[] = {3, (double)NAN, 1, 2};
    mw_assert_near(mw_quantile(v, 4, 0), 1, 0, 0);
    mw_assert_near(v[1], 2, 0, 0);
    mw_assert_near(v[2], 3, 0, 0);
    assert_true(isnan(v[3]));
}

static void mean_and_variation(void **state)
{
    (void)state;
    /* mean 5; squared deviations 9 1 1 1 0 0 4 16 sum to 32; s = sqrt(32/7) */
    const double v[] = {2, 4, 4, 4, 5, 5, 7, 9};
    mw_assert_near(mw_mean(v, 8), 5, 1e-15, 0);
    mw_assert_near(mw_cv(v, 8), sqrt(32.0 / 7) / 5, 1e-14, 0);
    mw_assert_near(mw_cv(v, 1), 0, 0, 0);
    assert_true(isnan(mw_mean(v, 0)));
    assert_true(isnan(mw_cv(v, 0)));
}

static void curve_goes_through_its_points(void **state)
{
    (void)state;
    const double x[] = {1, 10, 1000}, y[] = {2, 200, 20};
    for (size_t i = 0; i < 3; i++) {
        assert_true(mw_loglog_interp(x, y, 3, x[i]) == y[i]);
    }
}

/* Slopes: ln 100 / ln 10 = 2, then ln 0.1 / ln 100 = -1/2. */
static void curve_is_a_power_law_between_points(void **state)
{
    (void)state;
    const double x[] = {1, 10, 1000}, y[] = {2, 200, 20};
    mw_assert_near(mw_loglog_interp(x, y, 3, 3), 2 * 9.0, 1e-14, 0);
    mw_assert_near(mw_loglog_interp(x, y, 3, 40), 200 / 2.0, 1e-14, 0);
    /* outside: the end slopes go on */
    mw_assert_near(mw_loglog_interp(x, y, 3, 0.1), 0.02, 1e-14, 0);
    mw_assert_near(mw_loglog_interp(x, y, 3, 100000), 2, 1e-14, 0);
}

static void curve_of_one_or_no_point(void **state)
{
    (void)state;
    const double x[] = {8}, y[] = {3};
    mw_assert_near(mw_loglog_interp(x, y, 1, 99), 3, 0, 0);
    assert_true(isnan(mw_loglog_interp(x, y, 0, 1)));
    assert_true(isnan(mw_loglog_interp(x, y, 1, 0)));
    assert_true(isnan(mw_loglog_interp(x, y, 1, -1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_type_7),
        cmocka_unit_test(quantile_sorts_also_with_nan),
        cmocka_unit_test(mean_and_variation),
        cmocka_unit_test(curve_goes_through_its_points),
        cmocka_unit_test(curve_is_a_power_law_between_points),
        cmocka_unit_test(curve_of_one_or_no_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
