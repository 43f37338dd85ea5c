/* The partition program against hand results and against brute force over all
 * compositions of the layers. */
#include "mw_test.h"

#include "base/rand.h"
#include "planner/planner.h"

#include <math.h>
#include <string.h>

enum { MAX_STAGES = 8 };

static double slowest(const struct mw_partition_problem *p, const int *layers)
{
    double t = 0;
    for (int k = 0, i = 0; k < p->n_stages; k++) {
        double sum = p->layers_s == NULL ? layers[k] * p->layer_s : 0;
        for (int n = 0; p->layers_s != NULL && n < layers[k]; n++) {
            sum += p->layers_s[i++];
        }
        t = fmax(t, sum + p->extra_s[k]);
    }
    return t;
}

static bool is_within(const struct mw_partition_problem *p, const int *layers)
{
    for (int k = 0; k < p->n_stages; k++) {
        if (p->layer_bytes &&
            layers[k] * p->layer_bytes[k] + p->fixed_bytes[k] >
                p->limit_bytes * (1 + 1e-12)) {
            return false;
        }
    }
    return true;
}

/* Best min-max time over every composition; HUGE_VAL when none fits. */
static double brute(const struct mw_partition_problem *p, int *layers, int k,
                    int left)
{
    bool is_alone = p->is_head_alone;

    if (k == p->n_stages - 1) {
        layers[k] = left;
        return is_within(p, layers) && (!is_alone || left == 0)
                   ? slowest(p, layers)
                   : HUGE_VAL;
    }
    double best = HUGE_VAL;
    int least = is_alone && k == p->n_stages - 2 ? 0 : 1;
    int others = is_alone ? 0 : p->n_stages - 1 - k;
    for (int n = least; n <= left - others; n++) {
        layers[k] = n;
        best = fmin(best, brute(p, layers, k + 1, left - n));
    }
    return best;
}

static void test_even_when_stages_are_alike(void **state)
{
    (void)state;
    double extra[4] = {0, 0, 0, 0};
    struct mw_partition_problem p = {
        .n_stages = 4, .n_layers = 32, .layer_s = 0.01, .extra_s = extra};
    int layers[4];
    assert_int_equal(mw_partition_solve(&p, layers, NULL), MW_OK);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(layers[k], 8);
    }
}

/* A head worth 3 layers on 4 stages and 13 layers: total 16, so T = 4 layers:
 * 4 4 4 1 is the only partition with max 4. */
static void test_head_takes_layers_off_the_last_stage(void **state)
{
    (void)state;
    double extra[4] = {0, 0, 0, 0.03};
    struct mw_partition_problem p = {
        .n_stages = 4, .n_layers = 13, .layer_s = 0.01, .extra_s = extra};
    int layers[4], expected[4] = {4, 4, 4, 1};
    assert_int_equal(mw_partition_solve(&p, layers, NULL), MW_OK);
    assert_memory_equal(layers, expected, sizeof expected);
}

/* The first stage may hold only 2 layers of 10 on 3: 2 4 4. */
static void test_memory_caps_a_stage(void **state)
{
    (void)state;
    double extra[3] = {0, 0, 0}, slope[3] = {10, 10, 10}, fixed[3] = {75, 0, 0};
    struct mw_partition_problem p = {.n_stages = 3,
                                     .n_layers = 10,
                                     .layer_s = 1,
                                     .extra_s = extra,
                                     .layer_bytes = slope,
                                     .fixed_bytes = fixed,
                                     .limit_bytes = 100};
    int layers[3], expected[3] = {2, 4, 4};
    assert_int_equal(mw_partition_solve(&p, layers, NULL), MW_OK);
    assert_memory_equal(layers, expected, sizeof expected);
}

static void test_no_partition_fits(void **state)
{
    (void)state;
    double extra[2] = {0, 0}, slope[2] = {60, 60}, fixed[2] = {0, 0};
    struct mw_partition_problem p = {.n_stages = 2,
                                     .n_layers = 4,
                                     .layer_s = 1,
                                     .extra_s = extra,
                                     .layer_bytes = slope,
                                     .fixed_bytes = fixed,
                                     .limit_bytes = 100};
    int layers[2] = {-1, -1};
    struct mw_err err = {0};
    assert_int_equal(mw_partition_solve(&p, layers, &err), MW_ENO);
    assert_non_null(strstr(err.text, "4 layers over 2 stages"));
    assert_int_equal(layers[0], -1);
    p.n_layers = 1;
    assert_int_equal(mw_partition_solve(&p, layers, NULL), MW_ENO);
}

static void random_problem(uint64_t seed, struct mw_partition_problem *p,
                           double *extra, double *slope, double *fixed)
{
    *p = (struct mw_partition_problem){0};
    p->n_stages = 2 + (int)(mw_rand_u64(seed, 0, 0) % 4);
    p->n_layers = p->n_stages + (int)(mw_rand_u64(seed, 0, 1) % 12);
    p->layer_s = 1e-3 * (0.2 + mw_rand_unit(seed, 1, 0));
    p->limit_bytes = 50e9;
    for (int k = 0; k < p->n_stages; k++) {
        uint64_t i = (uint64_t)k;
        extra[k] = mw_rand_unit(seed, 2, i) < 0.5
                       ? 0
                       : p->layer_s * 3 * mw_rand_unit(seed, 3, i);
        slope[k] = 5e9 + 15e9 * mw_rand_unit(seed, 4, i);
        fixed[k] = 10e9 * mw_rand_unit(seed, 5, i);
    }
    p->extra_s = extra;
    p->is_head_alone = seed % 3 == 0 && p->n_stages > 2;
    p->layer_bytes = seed % 2 ? slope : NULL;
    p->fixed_bytes = fixed;
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    double extra[MAX_STAGES], slope[MAX_STAGES], fixed[MAX_STAGES];
    int n_infeasible = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct mw_partition_problem p;
        random_problem(seed, &p, extra, slope, fixed);
        int layers[MAX_STAGES], scratch[MAX_STAGES], sum = 0;
        double best = brute(&p, scratch, 0, p.n_layers);
        enum mw_status status = mw_partition_solve(&p, layers, NULL);
        if (isinf(best)) {
            assert_int_equal(status, MW_ENO);
            n_infeasible++;
            continue;
        }
        assert_int_equal(status, MW_OK);
        for (int k = 0; k < p.n_stages; k++) {
            sum += layers[k];
        }
        assert_int_equal(sum, p.n_layers);
        assert_true(is_within(&p, layers));
        mw_assert_near(slowest(&p, layers), best, 1e-9, 0);
    }
    /* The generator must exercise both answers. */
    assert_in_range(n_infeasible, 10, 200);
}

/* Layers of two times, every second, sixth or any: brute force over all cuts;
 * where all take the same, the answer is that of layers that are alike. */
static void test_unlike_layers(void **state)
{
    (void)state;
    double extra[MAX_STAGES], slope[MAX_STAGES], fixed[MAX_STAGES];
    double times[MAX_STAGES + 12];
    int n_infeasible = 0, n_other = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct mw_partition_problem p = {0};
        random_problem(seed, &p, extra, slope, fixed);
        int every = seed % 4 == 0 ? 0 : seed % 4 == 1 ? 2 : 6;
        int layers[MAX_STAGES], plain[MAX_STAGES], scratch[MAX_STAGES], sum = 0;
        enum mw_status status = mw_partition_layers(&p, plain, NULL);
        bool is_alike = seed % 5 == 0;
        double local_s =
            p.layer_s * (is_alike ? 1 : 0.3 + 0.6 * mw_rand_unit(seed, 6, 0));
        for (int i = 0; i < p.n_layers; i++) {
            bool is_local = every > 0
                                ? (i + 1) % every != 0
                                : mw_rand_unit(seed, 7, (uint64_t)i) < 0.5;
            times[i] = is_local ? local_s : p.layer_s;
        }
        double alike = status == MW_OK ? slowest(&p, plain) : HUGE_VAL;
        p.layers_s = times;
        double best = brute(&p, scratch, 0, p.n_layers);
        status = mw_partition_layers(&p, layers, NULL);
        if (isinf(best)) {
            assert_int_equal(status, MW_ENO);
            n_infeasible++;
            continue;
        }
        assert_int_equal(status, MW_OK);
        for (int k = 0; k < p.n_stages; k++) {
            sum += layers[k];
        }
        assert_int_equal(sum, p.n_layers);
        assert_true(is_within(&p, layers));
        mw_assert_near(slowest(&p, layers), best, 2e-9, 0);
        mw_assert_near(mw_partition_slowest(&p, layers), slowest(&p, layers), 0,
                       0);
        if (is_alike) {
            mw_assert_near(best, alike, 2e-9, 0);
        }
        n_other += slowest(&p, plain) > best * 1.001;
    }
    assert_in_range(n_infeasible, 10, 200);
    assert_true(n_other > 50); /* what the times of two kinds change */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even_when_stages_are_alike),
        cmocka_unit_test(test_head_takes_layers_off_the_last_stage),
        cmocka_unit_test(test_memory_caps_a_stage),
        cmocka_unit_test(test_no_partition_fits),
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_unlike_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
