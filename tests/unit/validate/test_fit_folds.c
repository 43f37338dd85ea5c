/* Folds: equal parts, whole units, by the seed alone. */
#include "mw_test.h"

#include "hwdb/fit/fit_folds.h"

#include <string.h>

enum { N = 100 };

static void test_rows(void **state)
{
    size_t unit[N], fold[N], again[N], other[N], count[3] = {0};

    (void)state;
    for (size_t i = 0; i < N; i++) {
        unit[i] = i;
    }
    mw_fit_folds(unit, N, 3, 1, fold);
    mw_fit_folds(unit, N, 3, 1, again);
    mw_fit_folds(unit, N, 3, 2, other);
    for (size_t i = 0; i < N; i++) {
        assert_true(fold[i] < 3);
        count[fold[i]]++;
    }
    assert_int_equal(count[0], 34);
    assert_int_equal(count[1], 33);
    assert_int_equal(count[2], 33);
    assert_memory_equal(fold, again, sizeof fold);
    assert_memory_not_equal(fold, other, sizeof fold);
}

/* Ten units of ten rows each, interleaved: five in each of two folds. */
static void test_units(void **state)
{
    size_t unit[N], fold[N], in_first = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        unit[i] = i % 10;
    }
    mw_fit_folds(unit, N, 2, 7, fold);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(fold[i], fold[i % 10]);
        in_first += fold[i] == 0;
    }
    assert_int_equal(in_first, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_units)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
