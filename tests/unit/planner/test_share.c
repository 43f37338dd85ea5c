/* Jobs on one budget against brute force over all rows, and by hand. */
#include "mw_test.h"

#include "base/rand.h"
#include "planner/share.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"a", "b", "c"};
static const char *const systems[] = {"s0", "s1"};

static void add(struct mw_sweep_rows *rows, int job, int system, int gpus,
                double tokens_per_s)
{
    struct mw_sweep_row row = {.scenario = names[job],
                               .model = "m",
                               .system = systems[system],
                               .gpus = gpus,
                               .is_feasible = 1,
                               .tokens_per_s = tokens_per_s};

    mw_array_push(rows, row);
}

/* 12 GPUs for two jobs that scale alike: 8 + 4 lets the small job (half the
 * speed on 4) end when the large one does. */
static void test_by_hand(void **state)
{
    (void)state;
    struct mw_sweep_rows rows = {.n = 0};
    struct mw_share_budget budget = {"s0", 12};
    struct mw_share share;

    mw_arena_init(&rows.arena);
    add(&rows, 0, 0, 4, 10);
    add(&rows, 0, 0, 8, 20);
    add(&rows, 0, 0, 12, 30);
    add(&rows, 1, 0, 4, 20);
    add(&rows, 1, 0, 8, 40);
    assert_int_equal(mw_share_choose(&rows, &budget, 1, 100, &share, NULL),
                     MW_OK);
    assert_int_equal(share.n_jobs, 2);
    assert_int_equal(rows.v[share.row[0]].gpus, 8);
    assert_int_equal(rows.v[share.row[1]].gpus, 4);
    assert_true(share.answer.is_proved);
    mw_assert_near(share.answer.slowest_s, 5, 1e-12, 0);
    budget.n_gpus = 7;
    assert_int_equal(mw_share_choose(&rows, &budget, 1, 100, &share, NULL),
                     MW_ENO);
    mw_sweep_rows_release(&rows);
}

static double brute(const struct mw_sweep_rows *rows, int job, int left0,
                    int left1, double longest, double sum)
{
    double best = HUGE_VAL;

    if (left0 < 0 || left1 < 0) {
        return HUGE_VAL;
    }
    if (job == 3) {
        return 1000 * longest + sum;
    }
    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *r = &rows->v[i];
        bool is_first = strcmp(r->system, "s0") == 0;
        double t = 1000 / r->tokens_per_s;

        if (strcmp(r->scenario, names[job]) == 0) {
            best = fmin(best, brute(rows, job + 1,
                                    left0 - (is_first ? (int)r->gpus : 0),
                                    left1 - (is_first ? 0 : (int)r->gpus),
                                    fmax(longest, t), sum + t));
        }
    }
    return best;
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    int n_none = 0;

    for (uint64_t seed = 0; seed < 100; seed++) {
        struct mw_sweep_rows rows = {.n = 0};
        struct mw_share_budget budget[] = {{"s0", 24}, {"s1", 16}};
        struct mw_share share;

        budget[0].n_gpus -= (int)(mw_rand_u64(seed, 9, 0) % 21);
        mw_arena_init(&rows.arena);
        for (uint64_t i = 0; i < 15; i++) {
            int gpus = 4 << mw_rand_u64(seed, 1, i) % 3;

            add(&rows, (int)i % 3, (int)(mw_rand_u64(seed, 2, i) % 2), gpus,
                gpus * (5 + 5 * mw_rand_unit(seed, 3, i)));
        }
        double best = brute(&rows, 0, budget[0].n_gpus, budget[1].n_gpus, 0, 0);
        enum mw_status status =
            mw_share_choose(&rows, budget, 2, 1000, &share, NULL);

        assert_int_equal(status, isinf(best) ? MW_ENO : MW_OK);
        if (status == MW_OK) {
            mw_assert_near(share.answer.value_s, best, 1e-9, 0);
        }
        n_none += isinf(best);
        mw_sweep_rows_release(&rows);
    }
    assert_in_range(n_none, 1, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_equals_brute_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
