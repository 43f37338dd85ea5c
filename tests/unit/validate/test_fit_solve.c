/*
 * The solver of the fit on problems whose answer is known: a straight line, a
 * prior alone, an outlier that Huber's weight tames, a singular system.
 */
#include "mw_test.h"

#include "hwdb/fit/fit_base.h"
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
    struct mw_fit_problem q = {1, 2,  r,   jacobian, weight, x,
                               x, sd, low, wide,     NULL};
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

/*
 * Four constants. Data say -2 of the first, whose prior is -3, and nothing of
 * the others. The second is a variant of the first with a prior of -1 and half
 * its sd, the third one of the second with -1.5: the first is one sd up, so the
 * second goes up half of its own, to -0.75, and the third half of what the
 * second did, to -1.375. The fourth, nobody's variant, keeps its prior. A
 * variant that data decide stays where they have it, and its own variant goes
 * by it: half of the 0.4.
 */
static void test_variants_follow_their_base(void **state)
{
    const double r[] = {0, 0}, jacobian[] = {1, 0, 0, 0, 0, 1, 0, 0};
    const double prior[] = {-3, -1, -1.5, 0.7}, sd[] = {1, 0.5, 0.5, 1};
    const double low[] = {-9, -9, -9, -9}, high[] = {9, 9, 9, 9};
    const double x[] = {-2, -0.6, -0.5, 0};
    const size_t base[] = {4, 0, 1, 4};
    double weight[] = {1e9, 0}, step[4];
    struct mw_fit_problem q = {2,     4,  r,   jacobian, weight, x,
                               prior, sd, low, high,     base};

    (void)state;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0, 0, 1e-8);
    mw_assert_near(x[1] + step[1], -0.75, 1e-8, 0);
    mw_assert_near(x[2] + step[2], -1.375, 1e-8, 0);
    mw_assert_near(step[3], 0.7, 1e-12, 0);
    weight[1] = 1e9;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0, 0, 1e-8);
    mw_assert_near(step[1], 0, 0, 1e-8);
    mw_assert_near(x[2] + step[2], -1.3, 1e-8, 0);
}

/*
 * Priors of 0 and sd of 1, the variant measured at 0.06 with weight 1. Alone,
 * or with a base, it has the prior that it has: it meets the datum half-way,
 * at 0.03, and takes the base along by half of that. The loss there is
 * 0.03^2 + 0.03^2, and the second derivatives of it are 2 / (1 - 1/4) for the
 * base and 2 more for the variant. With the base held at 0.01 the variant's
 * prior is 0.005 with a variance of 3/4: (4/3 x 0.005 + 0.06) / (7/3) = 0.2/7.
 */
static void test_base_and_variant_share(void **state)
{
    const double r[] = {-0.06}, jacobian[] = {0, 1}, weight[] = {1};
    const double zero[] = {0, 0}, sd[] = {1, 1};
    const double low[] = {-1, -1}, high[] = {1, 1}, narrow[] = {0.01, 1};
    const size_t base[] = {2, 0};
    struct mw_fit_problem q = {1,    2,  r,   jacobian, weight, zero,
                               zero, sd, low, high,     base};
    double step[2];

    (void)state;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0.015, 1e-12, 0);
    mw_assert_near(step[1], 0.03, 1e-12, 0);
    for (int way = -1; way <= 1; way++) {
        for (size_t k = 0; k < 2; k++) {
            double at[] = {0.015, 0.03}, bend = 4.0 / 3 + (k == 1 ? 1 : 0);

            at[k] += 0.005 * way;
            const double left[] = {at[1] - 0.06};

            mw_assert_near(mw_fit_loss_of(&q, left, at),
                           0.0018 + bend * 0.005 * 0.005 * way * way, 1e-12, 0);
        }
    }
    q.high = narrow;
    assert_true(mw_fit_step_within(&q, step));
    mw_assert_near(step[0], 0.01, 1e-12, 0);
    mw_assert_near(step[1], 0.2 / 7, 1e-12, 0);
}

/* Names of stacks: the nearest that is there, of the same figure; a gap is no
 * time of the host, a device no stack, and FIGURE alone no variant's base. */
static void test_bases_by_name(void **state)
{
    static const struct mw_fit_param param[] = {
        {"host_op_s", 1, 1, 1, 1},
        {"host_op_s.megatron-core", 1, 1, 1, 1},
        {"host_op_s.megatron-core-nemo-graphs", 1, 1, 1, 1},
        {"host_op_s.megatron-core-nemo", 1, 1, 1, 1},
        {"host_coll_s.megatron-core-serial", 1, 1, 1, 1},
        {"op_gap_s.megatron-2021", 1, 1, 1, 1},
        {"op_gap_s.megatron-2021-composed", 1, 1, 1, 1},
        {"sustained_clock.blackwell", 1, 1, 1, 1},
        {"sustained_clock.blackwell-ultra", 1, 1, 1, 1}};
    enum { P = sizeof param / sizeof param[0] };
    static const size_t want[P] = {P, P, 3, 1, P, P, P, P, P};

    (void)state;
    for (size_t k = 0; k < P; k++) {
        assert_int_equal(mw_fit_base_of(param, P, k), want[k]);
    }
    assert_true(mw_fit_reaches("host_op_s.megatron-core", "megatron-core"));
    assert_true(
        mw_fit_reaches("host_op_s.megatron-core", "megatron-core-nemo-graphs"));
    assert_true(mw_fit_reaches("host_op_s", "megatron-core-nemo"));
    assert_true(mw_fit_reaches("sustained_clock.hopper", "megatron-core"));
    assert_false(mw_fit_reaches("host_op_s.torchtitan", "torch-fsdp"));
    assert_false(
        mw_fit_reaches("host_op_s.megatron-core-nemo", "megatron-core"));
    assert_false(mw_fit_reaches("host_op_s.torchtitan", "torchtitanic"));
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
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_prior),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_singular),
        cmocka_unit_test(test_variants_follow_their_base),
        cmocka_unit_test(test_base_and_variant_share),
        cmocka_unit_test(test_bases_by_name)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
