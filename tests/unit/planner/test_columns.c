/*
 * Choosing columns on a mixed cluster: against brute force over all choices
 * (up to 20 columns), by hand, and at the size of the published measurement
 * (474 columns a stage, 16 stages, 96 + 32 devices).
 */
#include "cbc.h"
#include "mw_test.h"

#include "base/mem.h"
#include "base/rand.h"
#include "planner/columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 10000 };

static double brute(const struct mw_column_problem *p, int chosen[32],
                    int stage)
{
    double best = HUGE_VAL;

    if (stage >= p->n_stages) {
        return mw_columns_value(p, chosen);
    }
    for (size_t i = 0; i < p->n_columns; i++) {
        if (p->column[i].stage == stage) {
            chosen[stage] = (int)i;
            best = fmin(best, brute(p, chosen, stage + 1));
        }
    }
    return best;
}

static int pick(uint64_t seed, uint64_t stream, uint64_t index, int n)
{
    return (int)(mw_rand_u64(seed, stream, index) % (uint64_t)n);
}

static void random_problem(uint64_t seed, struct mw_column_problem *p,
                           struct mw_column *column)
{
    *p = (struct mw_column_problem){.n_stages = 2 + pick(seed, 1, 0, 3),
                                    .n_kinds = 1 + pick(seed, 2, 0, 3),
                                    .n_microbatches = 1 + pick(seed, 3, 0, 16),
                                    .change_s = seed % 2 ? 0.02 : 0,
                                    .column = column,
                                    .n_columns = 20};
    p->n_layers = 3 * p->n_stages;
    for (int k = 0; k < p->n_kinds; k++) {
        p->devices[k] = 2 + pick(seed, 4, (uint64_t)k, 7);
    }
    p->max_kinds = pick(seed, 9, 0, 3); /* 0: any */
    p->n_places = pick(seed, 10, 0, 4);
    for (uint64_t i = 0; i < p->n_columns; i++) {
        struct mw_column *c = &column[i];

        *c = (struct mw_column){.stage = (int)i % p->n_stages,
                                .n_layers = 2 + pick(seed, 5, i, 3),
                                .kind = pick(seed, 6, i, p->n_kinds),
                                .n_devices = 1 << pick(seed, 7, i, 3)};
        c->after_s = seed % 3 == 0 && i % 2 ? mw_rand_unit(seed, 13, i) : 0;
        if (p->n_places > 1) {
            c->begins = c->stage > 0 ? pick(seed, 11, i, p->n_places) : 0;
            c->ends = pick(seed, 12, i, p->n_places);
        }
        c->time_s = c->n_layers * (0.5 + mw_rand_unit(seed, 8, i)) /
                    (c->n_devices * (1 + c->kind));
    }
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    int n_none = 0, n_bound = 0, n_placed = 0;

    for (uint64_t seed = 0; seed < 300; seed++) {
        struct mw_column column[20];
        struct mw_column_problem p;
        struct mw_column_answer a;
        int chosen[32], scratch[32];

        random_problem(seed, &p, column);
        double best = brute(&p, scratch, 0);
        enum mw_status status =
            mw_columns_choose(&p, 0, NULL, chosen, &a, NULL);

        assert_int_equal(status, isinf(best) ? MW_ENO : MW_OK);
        if (isinf(best)) {
            n_none++;
            continue;
        }
        assert_true(a.is_proved);
        mw_assert_near(a.value_s, best, 1e-9, 0);
        mw_assert_near(mw_columns_value(&p, chosen), best, 1e-9, 0);
        p.max_kinds = 0;
        n_placed += p.n_places > 1;
        n_bound += brute(&p, scratch, 0) < best * (1 - 1e-9);
    }
    assert_in_range(n_none, 10, 250);
    assert_true(n_placed > 20);
    assert_true(n_bound > 20); /* fewer kinds cost something */
}

/* Two stages, 4 layers, two fast devices (1 s a layer) and two slow ones (2 s
 * a layer), one a stage. m = 5. 2 + 2: slowest 4, sum 6: 22. Fast 3, slow 1:
 * slowest 3, sum 5: 17, the best; with a change at 2 c = 1 s: 18. */
static void test_by_hand(void **state)
{
    (void)state;
    struct mw_column column[12];
    struct mw_column_problem p = {.n_stages = 2,
                                  .n_layers = 4,
                                  .n_kinds = 2,
                                  .n_microbatches = 5,
                                  .devices = {1, 1},
                                  .change_s = 0.5,
                                  .column = column};
    struct mw_column_answer a;
    int chosen[2];

    for (int stage = 0; stage < 2; stage++) {
        for (int n = 1; n <= 3; n++) {
            for (int kind = 0; kind < 2; kind++) {
                column[p.n_columns++] = (struct mw_column){
                    stage, n * (kind + 1), n, kind, 1, 0, 0, 0, 0};
            }
        }
    }
    assert_int_equal(mw_columns_choose(&p, 0, NULL, chosen, &a, NULL), MW_OK);
    mw_assert_near(a.value_s, 18, 1e-12, 0);
    mw_assert_near(a.slowest_s, 3, 1e-12, 0);
    assert_true(a.is_proved);
    p.devices[1] = 0;
    assert_int_equal(mw_columns_choose(&p, 0, NULL, chosen, &a, NULL), MW_ENO);
}

/* Columns as a mixed A100 and H100 cluster has them: layers x tp x
 * recomputation x kind; each stage may hold less, the earlier it is. */
static size_t large_columns(struct mw_column *column, int n_stages)
{
    static const double slow[3] = {1, 1.04, 1.3};
    size_t n = 0;

    for (int i = 0; i < n_stages; i++) {
        for (int kind = 0; kind < 2; kind++) {
            for (int tp = 1; tp <= 8; tp *= 2) {
                for (int r = 0; r < 3; r++) {
                    int most = 16 + 4 * r + i / 4 + (tp == 8);

                    for (int layers = 1; layers <= most; layers++) {
                        double rate = (kind ? 2.6 : 1) * tp *
                                      (1 - 0.03 * tp - 0.01 * (kind * tp));

                        column[n++] = (struct mw_column){
                            .stage = i,
                            .time_s = 0.1 * layers * slow[r] / rate +
                                      (i == n_stages - 1) * 0.06 / rate,
                            .n_layers = layers,
                            .kind = kind,
                            .n_devices = tp,
                            .tag = r};
                    }
                }
            }
        }
    }
    return n;
}

/* The written program is the whole problem: CBC finds the same value. */
static void test_cbc_agrees(void **state)
{
    (void)state;
    int n_agreed = 0;

    for (uint64_t seed = 0; seed < 40 && n_agreed < 6; seed++) {
        struct mw_column column[20];
        struct mw_column_problem p;
        struct mw_column_answer a;
        int chosen[32];

        random_problem(seed, &p, column);
        if (mw_columns_choose(&p, 0, "columns-cbc.lp", chosen, &a, NULL) !=
            MW_OK) {
            continue;
        }
        double cbc = cbc_value("columns-cbc.lp");

        if (isnan(cbc)) {
            break;
        }
        mw_assert_near(cbc, a.value_s, 1e-5, 0);
        n_agreed++;
    }
    remove("columns-cbc.lp");
}

static void test_published_size(void **state)
{
    (void)state;
    struct mw_column *column = mw_calloc(COLUMNS, sizeof *column);
    struct mw_column_problem p = {.n_stages = 16,
                                  .n_layers = 128,
                                  .n_kinds = 2,
                                  .n_microbatches = 64,
                                  .devices = {96, 32},
                                  .change_s = 0.002,
                                  .column = column};
    struct mw_column_answer a;
    int chosen[16];

    p.n_columns = large_columns(column, 16);
    assert_in_range(p.n_columns, 7000, COLUMNS);
    assert_int_equal(mw_columns_choose(&p, 0, "columns.lp", chosen, &a, NULL),
                     MW_OK);
    remove("columns.lp");
    assert_true(a.is_proved);
    mw_assert_near(mw_columns_value(&p, chosen), a.value_s, 1e-12, 0);
    /* No better than all devices working all the time at their best rate. */
    double rates = 96 * (1 - 0.03) + 32 * 2.6 * (1 - 0.04);
    assert_true(a.value_s > 64 * 0.1 * 128 / rates * (1 - 1e-9));
    /* Under an impossible limit: an answer with its gap, or none at all. */
    enum mw_status status = mw_columns_choose(&p, 1e-6, NULL, chosen, &a, NULL);

    assert_true(status == MW_ENO || (status == MW_OK && !a.is_proved));
    mw_free(column);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_cbc_agrees),
        cmocka_unit_test(test_published_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
