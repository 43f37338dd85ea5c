/*
 * Counter-based random numbers: fixed values, moments, independence.
 */
#include "base/rand.h"
#include "mw_test.h"

#include <math.h>

/* Worked out with an independent program from the paper's figures; the
 * generator behind it gives the well-known first outputs e220a8397b1dcdaf,
 * 6e789e6aa1b965f4 for state 0. */
static void values_never_change(void **state)
{
    (void)state;
    assert_true(mw_rand_u64(0, 0, 0) == UINT64_C(0x238275bc38fcbe91));
    assert_true(mw_rand_u64(0, 0, 1) == UINT64_C(0xf89a2566b5822c54));
    assert_true(mw_rand_u64(1, 2, 3) == UINT64_C(0x8568f7c4e53b5a35));
    assert_true(mw_rand_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) ==
                UINT64_C(0x179f01f0d2fba97a));
    assert_true(mw_rand_u64(42, 7, 1000000) == UINT64_C(0x901c12e1a8da8a47));
}

static void unit_is_in_0_1_with_53_bits(void **state)
{
    (void)state;
    assert_true(mw_rand_unit(0, 0, 0) ==
                (double)(UINT64_C(0x238275bc38fcbe91) >> 11) / 0x1p53);
    for (uint64_t i = 0; i < 10000; i++) {
        double u = mw_rand_unit(3, 1, i);
        assert_true(u >= 0 && u < 1);
    }
}

/* Mean 1/2 and variance 1/12; with n = 100000 the standard error of the mean
 * is 0.0009, of the variance about 0.0002: five of them are allowed. */
static void unit_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = mw_rand_unit(11, 5, i);
        sum += u;
        squares += u * u;
    }
    double mean = sum / N;
    mw_assert_near(mean, 0.5, 0, 0.0046);
    mw_assert_near(squares / N - mean * mean, 1.0 / 12, 0, 0.0012);
}

/* Standard errors for n = 100000: mean 0.0032, variance 0.0045, kurtosis
 * 0.0155. */
static void normal_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    double m1 = 0, m2 = 0, m4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = mw_rand_normal(11, 5, i);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m4 += x * x * x * x;
    }
    mw_assert_near(m1 / N, 0, 0, 0.016);
    mw_assert_near(m2 / N, 1, 0, 0.023);
    mw_assert_near(m4 / N, 3, 0, 0.16);
}

/* Box-Muller on the two units of the index, computed here again. */
static void normal_is_box_muller(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        double u = 1 - mw_rand_unit(1, 2, 2 * i);
        double v = mw_rand_unit(1, 2, 2 * i + 1);
        double r = sqrt(-2 * log(u)), a = 2 * acos(-1.0) * v;
        mw_assert_near(mw_rand_normal(1, 2, i), r * cos(a), 1e-12, 1e-14);
    }
}

/* Correlation of two streams, two seeds, two neighbours: standard error
 * 1/sqrt(n) = 0.0032. */
static void streams_seeds_and_indices_are_independent(void **state)
{
    (void)state;
    enum { N = 100000 };
    double by_stream = 0, by_seed = 0, by_index = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = mw_rand_unit(1, 1, i) - 0.5;
        by_stream += u * (mw_rand_unit(1, 2, i) - 0.5);
        by_seed += u * (mw_rand_unit(2, 1, i) - 0.5);
        by_index += u * (mw_rand_unit(1, 1, i + 1) - 0.5);
    }
    mw_assert_near(12 * by_stream / N, 0, 0, 0.016);
    mw_assert_near(12 * by_seed / N, 0, 0, 0.016);
    mw_assert_near(12 * by_index / N, 0, 0, 0.016);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_never_change),
        cmocka_unit_test(unit_is_in_0_1_with_53_bits),
        cmocka_unit_test(unit_moments),
        cmocka_unit_test(normal_moments),
        cmocka_unit_test(normal_is_box_muller),
        cmocka_unit_test(streams_seeds_and_indices_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
