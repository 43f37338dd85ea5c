/* Ranks and coordinates: a bijection in every order, Megatron's by default. */
#include "mw_test.h"
#include "sim/model/layout.h"

#include <string.h>

static void test_default_order_by_hand(void **state)
{
    struct mw_layout l;
    struct mw_coord at;

    (void)state;
    mw_layout_default(&l);
    l.tp = 4;
    l.cp = 2;
    l.dp = 3;
    l.pp = 5;
    assert_int_equal(mw_layout_ranks(&l), 120);
    /* 103 = 3 + 4 (1 + 2 (0 + 3 x 4)): tp 3, cp 1, dp 0, pp 4. */
    at = mw_layout_coord(&l, 103);
    assert_int_equal(at.tp, 3);
    assert_int_equal(at.cp, 1);
    assert_int_equal(at.dp, 0);
    assert_int_equal(at.pp, 4);
    /* Neighbours in tp are neighbours in rank; a stage is 24 ranks. */
    assert_int_equal(mw_layout_rank(&l, (struct mw_coord){.tp = 1}), 1);
    assert_int_equal(mw_layout_rank(&l, (struct mw_coord){.cp = 1}), 4);
    assert_int_equal(mw_layout_rank(&l, (struct mw_coord){.dp = 1}), 8);
    assert_int_equal(mw_layout_rank(&l, (struct mw_coord){.pp = 1}), 24);
}

static void test_round_trip_in_every_order(void **state)
{
    static const char *const axes[] = {"tp", "cp", "dp", "pp"};
    struct mw_layout l;

    (void)state;
    mw_layout_default(&l);
    l.tp = 2;
    l.cp = 3;
    l.dp = 4;
    l.pp = 5;
    for (int p = 0; p < 256; p++) {
        int a[4] = {p & 3, p >> 2 & 3, p >> 4 & 3, p >> 6 & 3};
        char order[16];
        bool is_permutation =
            (1 << a[0] | 1 << a[1] | 1 << a[2] | 1 << a[3]) == 15;

        snprintf(order, sizeof order, "%s-%s-%s-%s", axes[a[0]], axes[a[1]],
                 axes[a[2]], axes[a[3]]);
        assert_int_equal(mw_layout_order_valid(order), is_permutation);
        if (!is_permutation) {
            continue;
        }
        l.order = order;
        for (int rank = 0; rank < 120; rank++) {
            struct mw_coord at = mw_layout_coord(&l, rank);

            assert_in_range(at.tp, 0, 1);
            assert_in_range(at.cp, 0, 2);
            assert_in_range(at.dp, 0, 3);
            assert_in_range(at.pp, 0, 4);
            assert_int_equal(mw_layout_rank(&l, at), rank);
        }
    }
}

static void test_order_spelling(void **state)
{
    static const char *const bad[] = {"",
                                      "tp",
                                      "tp-cp-dp",
                                      "tp-cp-dp-pp-",
                                      "tp-cp-dp-pp-xx",
                                      "tp_cp_dp_pp",
                                      "TP-CP-DP-PP",
                                      "tp-cp-dp-pp-pp",
                                      "tp-cp-dp-pp-ep-ep",
                                      "t"};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(mw_layout_order_valid(bad[i]));
    }
    assert_false(mw_layout_order_valid(NULL));
    assert_true(mw_layout_order_valid("tp-cp-ep-dp-pp"));
    assert_true(mw_layout_order_valid("ep-pp-dp-cp-tp"));
    assert_true(mw_layout_order_valid("tp-cp-dp-pp"));
}

static void test_names_and_bytes(void **state)
{
    static const double bytes[MW_DTYPE_COUNT] = {4, 4, 2, 2, 1, 0.5};

    (void)state;
    for (int d = 0; d < MW_DTYPE_COUNT; d++) {
        mw_assert_near(mw_dtype_bytes((enum mw_dtype)d), bytes[d], 0, 0);
        assert_string_equal(mw_dtype_name((enum mw_dtype)d),
                            mw_dtype_enums[d].name);
    }
    assert_string_equal(mw_dtype_name(MW_BF16), "bf16");
    assert_string_equal(mw_recompute_name(MW_RECOMPUTE_SELECTIVE), "selective");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_order_by_hand),
        cmocka_unit_test(test_round_trip_in_every_order),
        cmocka_unit_test(test_order_spelling),
        cmocka_unit_test(test_names_and_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
