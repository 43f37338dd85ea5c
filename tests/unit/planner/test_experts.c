/*
 * Placement of expert replicas: the integer program equals brute force over all
 * placements of small cases, CBC agrees, the answer without a solver is within
 * its bound, and large cases are near it.
 */
#include "cbc.h"
#include "mw_test.h"

#include "base/rand.h"
#include "planner/expert_place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MAX = 512 };

static void draw(uint64_t seed, int n, double skew, double *load)
{
    for (int e = 0; e < n; e++) {
        load[e] = floor(100 * pow(mw_rand_unit(seed, (uint64_t)e, 0), skew));
    }
    load[0] += 1;
}

static double brute(const struct mw_expert_problem *p)
{
    int slot[SLOTS_MAX], n = p->n_ranks * p->n_slots;
    double best = HUGE_VAL;

    for (int i = 0; i < n; i++) {
        slot[i] = -1;
    }
    for (;;) {
        int i = 0;

        best = fmin(best, mw_experts_worst(p, slot));
        while (i < n && ++slot[i] == p->n_experts) {
            slot[i++] = -1;
        }
        if (i == n) {
            return best;
        }
    }
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    int n_better = 0;

    for (uint64_t seed = 0; seed < 40; seed++) {
        double load[8];
        struct mw_expert_problem p = {.n_experts = 2 + (int)seed % 3,
                                      .load = load,
                                      .n_ranks = 2 + (int)(seed / 3) % 2,
                                      .n_slots = 2};
        struct mw_expert_answer a;
        int slot[SLOTS_MAX];

        draw(seed, p.n_experts, 1 + (double)(seed % 4), load);
        assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_OK);
        double packed = a.worst, least = brute(&p);

        assert_true(a.bound <= least * (1 + 1e-9));
        assert_true(a.worst >= least * (1 - 1e-9));
        assert_int_equal(mw_experts_solve(&p, 20, NULL, slot, &a, NULL), MW_OK);
        assert_true(a.is_proved);
        mw_assert_near(a.worst, least, 1e-9, 0);
        mw_assert_near(mw_experts_worst(&p, slot), least, 1e-9, 0);
        n_better += least < packed * (1 - 1e-9);
    }
    assert_true(n_better < 20); /* the heuristic is mostly right */
}

/* 256 experts and 32 more copies on 64 ranks (DeepSeek-V3's numbers), loads of
 * a long tail: within 3 % of the bound, no expert twice on a rank. */
static void test_large(void **state)
{
    (void)state;
    double load[256];
    struct mw_expert_problem p = {256, load, 32, 9};
    struct mw_expert_answer a;
    int slot[SLOTS_MAX], n_twice = 0;

    for (uint64_t seed = 0; seed < 20; seed++) {
        draw(seed, 256, 3, load);
        assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_OK);
        assert_true(a.worst <= 1.03 * a.bound);
        for (int r = 0; r < p.n_ranks; r++) {
            for (int s = 0; s < p.n_slots; s++) {
                for (int t = 0; t < s; t++) {
                    n_twice += slot[9 * r + s] == slot[9 * r + t];
                }
            }
        }
    }
    assert_int_equal(n_twice, 0);
}

static void test_program_and_cbc(void **state)
{
    (void)state;
    double load[] = {60, 25, 10, 30, 5};
    struct mw_expert_problem p = {5, load, 3, 2};
    struct mw_expert_answer a;
    int slot[SLOTS_MAX];
    char path[] = "experts-test.lp";

    assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_OK);
    assert_int_equal(mw_experts_solve(&p, 20, path, slot, &a, NULL), MW_OK);
    assert_true(a.is_proved);
    mw_assert_near(a.worst, brute(&p), 1e-9, 0);
    double cbc = cbc_value(path);

    if (!isnan(cbc)) {
        mw_assert_near(cbc * a.mean, a.worst, 1e-6, 0);
    }
    remove(path);
}

static void test_wrong(void **state)
{
    (void)state;
    double load[] = {1, 2, 0}, none[] = {0, 0, 0}, bad[] = {1, -1, 0};
    struct mw_expert_problem p = {3, load, 1, 2};
    struct mw_expert_answer a;
    int slot[8];

    assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_EUSAGE);
    p.n_slots = 3;
    assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_OK);
    mw_assert_near(a.worst, 3, 0, 0);
    p.load = none;
    assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_EUSAGE);
    p.load = bad;
    assert_int_equal(mw_experts_pack(&p, slot, &a, NULL), MW_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_program_and_cbc),
        cmocka_unit_test(test_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
