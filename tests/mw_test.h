/*
 * What every unit test includes: cmocka, and comparison of doubles (this
 * cmocka compares floats only).
 */
#ifndef MW_TESTS_MW_TEST_H
#define MW_TESTS_MW_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/units.h"

#define mw_assert_near(a, b, rtol, atol)                                       \
    do {                                                                       \
        double mw_a_ = (a), mw_b_ = (b);                                       \
        if (!mw_near(mw_a_, mw_b_, (rtol), (atol))) {                          \
            fail_msg("%s = %.17g but %s = %.17g", #a, mw_a_, #b, mw_b_);       \
        }                                                                      \
    } while (0)

#endif
