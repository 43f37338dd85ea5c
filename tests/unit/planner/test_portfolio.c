/* Several jobs under coupling conditions: against brute force over all choices
 * of rows, and CBC on the written program. */
#include "cbc.h"
#include "mw_test.h"

#include "base/rand.h"
#include "planner/portfolio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { JOBS = 3, ROWS = 7 };
static const char *const names[JOBS] = {"a", "b", "c"};
static const char *const systems[] = {"s0", "s1", "s2"};

static void draw(uint64_t seed, struct mw_sweep_rows *rows)
{
    mw_arena_init(&rows->arena);
    for (uint64_t i = 0; i < JOBS * ROWS; i++) {
        int gpus = 8 << mw_rand_u64(seed, i, 0) % 4;
        int kind = (int)(mw_rand_u64(seed, i, 1) % 3);
        struct mw_sweep_row row = {.scenario = names[i / ROWS],
                                   .model = "m",
                                   .system = systems[kind],
                                   .gpus = gpus,
                                   .is_feasible = i % 11 != 5};

        row.tokens_per_s =
            gpus * (1 + kind) * (0.7 + 0.3 * mw_rand_unit(seed, i, 2));
        mw_array_push(rows, row);
    }
}

struct best {
    double longest, sum, usd;
};

/* Lexicographic for the end, or the money. */
static void consider(const struct mw_portfolio_problem *p, const size_t *row,
                     struct best *best)
{
    struct best at = {0, 0, 0};
    int gpus[3] = {0, 0, 0}, n_kinds = 0;

    for (int j = 0; j < JOBS; j++) {
        const struct mw_sweep_row *r = &p->rows->v[row[j]];
        int k = r->system[1] - '0';
        double t = p->tokens / r->tokens_per_s;

        if (!r->is_feasible) {
            return;
        }
        gpus[k] += (int)r->gpus;
        at.longest = fmax(at.longest, t);
        at.sum += t;
        at.usd += (double)r->gpus * t / 3600 * p->usd_per_gpu_hour[k];
    }
    for (int k = 0; k < 3; k++) {
        n_kinds += gpus[k] > 0;
        if (gpus[k] > p->budget[k].n_gpus) {
            return;
        }
    }
    if ((p->cap_usd > 0 && at.usd > p->cap_usd) ||
        (p->deadline_s > 0 && at.longest > p->deadline_s) ||
        (p->max_kinds > 0 && n_kinds > p->max_kinds)) {
        return;
    }
    bool is_better =
        p->by_cost ? at.usd < best->usd
                   : at.longest < best->longest ||
                         (at.longest <= best->longest && at.sum < best->sum);

    if (is_better) {
        *best = at;
    }
}

static struct best brute(const struct mw_portfolio_problem *p)
{
    struct best best = {HUGE_VAL, HUGE_VAL, HUGE_VAL};
    size_t row[JOBS];

    for (row[0] = 0; row[0] < ROWS; row[0]++) {
        for (row[1] = ROWS; row[1] < 2 * ROWS; row[1]++) {
            for (row[2] = 2 * ROWS; row[2] < 3 * ROWS; row[2]++) {
                consider(p, row, &best);
            }
        }
    }
    return best;
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    static const double prices[3] = {1, 2.5, 4};
    int n_none = 0, n_cbc = 0;

    for (uint64_t seed = 0; seed < 120; seed++) {
        struct mw_sweep_rows rows = {.n = 0};
        struct mw_portfolio_budget budget[3] = {
            {"s0", 64}, {"s1", 32}, {"s2", 24}};
        struct mw_portfolio_problem p = {.rows = &rows,
                                         .tokens = 1e6,
                                         .budget = budget,
                                         .usd_per_gpu_hour = prices,
                                         .n_budgets = 3};
        struct mw_portfolio a;

        draw(seed, &rows);
        p.by_cost = seed % 3 == 2;
        p.max_kinds = seed % 4 == 0 ? 1 + (int)(seed / 4) % 2 : 0;
        p.cap_usd = seed % 5 == 0 ? 900 + 40 * (double)(seed % 7) : 0;
        p.deadline_s = seed % 2 ? 40000 + 3000 * (double)(seed % 9) : 0;
        struct best best = brute(&p);
        const char *lp = seed % 10 == 1 ? "portfolio.lp" : NULL;
        enum mw_status status = mw_portfolio_choose(&p, lp, &a, NULL);

        assert_int_equal(status, isinf(best.sum) ? MW_ENO : MW_OK);
        n_none += status == MW_ENO;
        if (status == MW_OK) {
            assert_true(a.is_proved && a.n_jobs == JOBS);
            mw_assert_near(p.by_cost ? a.usd : a.longest_s,
                           p.by_cost ? best.usd : best.longest, 1e-9, 0);
            mw_assert_near(p.by_cost ? a.usd : a.sum_s,
                           p.by_cost ? best.usd : best.sum, 1e-9, 0);
        }
        if (status == MW_OK && lp) {
            double cbc = cbc_value(lp);

            n_cbc += !isnan(cbc);
            if (!isnan(cbc)) {
                mw_assert_near(cbc, p.by_cost ? a.usd : a.longest_s, 1e-6, 0);
            }
        }
        mw_sweep_rows_release(&rows);
    }
    remove("portfolio.lp");
    assert_in_range(n_none, 3, 80);
    assert_true(n_cbc == 0 || n_cbc > 3);
}

/* Money counts only with prices. */
static void test_no_price(void **state)
{
    (void)state;
    struct mw_sweep_rows rows = {.n = 0};
    struct mw_portfolio_budget budget[3] = {
        {"s0", 640}, {"s1", 320}, {"s2", 240}};
    const double none[3] = {(double)NAN, (double)NAN, (double)NAN};
    struct mw_portfolio_problem p = {.rows = &rows,
                                     .tokens = 1e6,
                                     .budget = budget,
                                     .usd_per_gpu_hour = none,
                                     .n_budgets = 3};
    struct mw_portfolio a;

    draw(1, &rows);
    assert_int_equal(mw_portfolio_choose(&p, NULL, &a, NULL), MW_OK);
    assert_true(isnan(a.usd));
    p.by_cost = true;
    assert_int_equal(mw_portfolio_choose(&p, NULL, &a, NULL), MW_EUSAGE);
    p.n_budgets = 0;
    assert_int_equal(mw_portfolio_choose(&p, NULL, &a, NULL), MW_EUSAGE);
    mw_sweep_rows_release(&rows);
}

/* ---- the GPUs alone --------------------------------------------------------
 */
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
static void test_plain_by_hand(void **state)
{
    (void)state;
    struct mw_sweep_rows rows = {.n = 0};
    struct mw_portfolio_budget budget = {"s0", 12};
    const struct mw_portfolio_problem p = {
        .rows = &rows, .tokens = 100, .budget = &budget, .n_budgets = 1};
    struct mw_portfolio found;
    struct mw_err err = {0};

    mw_arena_init(&rows.arena);
    add(&rows, 0, 0, 4, 10);
    add(&rows, 0, 0, 8, 20);
    add(&rows, 0, 0, 12, 30);
    add(&rows, 1, 0, 4, 20);
    add(&rows, 1, 0, 8, 40);
    assert_int_equal(mw_portfolio_choose(&p, NULL, &found, NULL), MW_OK);
    assert_int_equal(found.n_jobs, 2);
    assert_int_equal(rows.v[found.row[0]].gpus, 8);
    assert_int_equal(rows.v[found.row[1]].gpus, 4);
    assert_true(found.is_proved);
    assert_true(isnan(found.usd)); /* nobody said what a GPU costs */
    mw_assert_near(found.longest_s, 5, 1e-12, 0);
    budget.n_gpus = 7;
    assert_int_equal(mw_portfolio_choose(&p, NULL, &found, &err), MW_ENO);
    assert_string_equal(err.text,
                        "the GPUs are too few for all 2 jobs at once");
    memcpy(budget.system, "s2", 3);
    err = (struct mw_err){0};
    assert_int_equal(mw_portfolio_choose(&p, NULL, &found, &err), MW_ENO);
    assert_string_equal(err.text, "no row has a plan on these systems");
    mw_sweep_rows_release(&rows);
}

static void brute_plain(const struct mw_sweep_rows *rows, int job,
                        const int left[2], struct best at, struct best *best)
{
    if (job == JOBS) {
        if (at.longest < best->longest ||
            (at.longest <= best->longest && at.sum < best->sum)) {
            *best = at;
        }
        return;
    }
    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *r = &rows->v[i];
        int k = r->system[1] - '0', after[] = {left[0], left[1]};
        double t = 1000 / r->tokens_per_s;
        struct best next = {fmax(at.longest, t), at.sum + t, 0};

        after[k] -= (int)r->gpus;
        if (strcmp(r->scenario, names[job]) == 0 && after[k] >= 0) {
            brute_plain(rows, job + 1, after, next, best);
        }
    }
}

/* The least end, and the least sum under it; equal columns of other runs are
 * no other answer. */
static void test_plain_equals_brute(void **state)
{
    (void)state;
    int n_none = 0;

    for (uint64_t seed = 0; seed < 100; seed++) {
        struct mw_sweep_rows rows = {.n = 0};
        struct mw_portfolio_budget budget[] = {{"s0", 24}, {"s1", 16}};
        const struct mw_portfolio_problem p = {
            .rows = &rows, .tokens = 1000, .budget = budget, .n_budgets = 2};
        struct mw_portfolio found;
        struct best best = {HUGE_VAL, HUGE_VAL, 0};

        budget[0].n_gpus -= (int)(mw_rand_u64(seed, 9, 0) % 21);
        mw_arena_init(&rows.arena);
        for (uint64_t i = 0; i < 15; i++) {
            int gpus = 4 << mw_rand_u64(seed, 1, i) % 3;

            add(&rows, (int)i % 3, (int)(mw_rand_u64(seed, 2, i) % 2), gpus,
                gpus * (5 + 5 * mw_rand_unit(seed, 3, i)));
        }
        const int left[] = {budget[0].n_gpus, budget[1].n_gpus};

        brute_plain(&rows, 0, left, (struct best){0, 0, 0}, &best);
        enum mw_status status = mw_portfolio_choose(&p, NULL, &found, NULL);

        assert_int_equal(status, isinf(best.sum) ? MW_ENO : MW_OK);
        if (status == MW_OK) {
            mw_assert_near(found.longest_s, best.longest, 1e-12, 0);
            mw_assert_near(found.sum_s, best.sum, 1e-9, 0);
        }
        n_none += isinf(best.sum);
        mw_sweep_rows_release(&rows);
    }
    assert_in_range(n_none, 1, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_by_hand),
        cmocka_unit_test(test_plain_equals_brute),
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_no_price),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
