/*
 * Router and rows of experts against numbers by hand, difference quotients in
 * double, and each other.
 */
#include "k_reference.h"
#include "mw_test.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { ROWS = 5, N = 6, K = 2 };

/* Logits ln 1, ln 2, ln 4, ln 1: p = 1/8 1/4 1/2 1/8; the two largest are 2
 * and 1, with weights 2/3 and 1/3. */
static void route_by_hand(void **state)
{
    (void)state;
    float p[4] = {0.0f, logf(2.0f), logf(4.0f), 0.0f}, weight[2];
    int32_t choice[2];
    mw_k_route_fwd(p, choice, weight, 1, 4, 2);
    mw_assert_near((double)p[0], 0.125, 1e-6, 0);
    mw_assert_near((double)p[2], 0.5, 1e-6, 0);
    assert_int_equal(choice[0], 2);
    assert_int_equal(choice[1], 1);
    mw_assert_near((double)weight[0], 2.0 / 3.0, 1e-6, 0);
    mw_assert_near((double)weight[1], 1.0 / 3.0, 1e-6, 0);
}

static void equals_go_to_the_lower_index(void **state)
{
    (void)state;
    float p[4] = {1.0f, 1.0f, 1.0f, 1.0f}, weight[2];
    int32_t choice[2];
    mw_k_route_fwd(p, choice, weight, 1, 4, 2);
    assert_int_equal(choice[0], 0);
    assert_int_equal(choice[1], 1);
}

struct route {
    int32_t choice[ROWS * K];
    float dweight[ROWS * K], aux[N];
};

/* sum dweight w + sum aux p, the choices held. */
static double route_objective(const double *logits, void *arg)
{
    const struct route *r = arg;
    double total = 0.0;
    for (int t = 0; t < ROWS; t++) {
        double e[N], sum = 0.0, chosen = 0.0;
        for (int i = 0; i < N; i++) {
            e[i] = exp(logits[t * N + i]);
            sum += e[i];
        }
        for (int j = 0; j < K; j++) {
            chosen += e[r->choice[t * K + j]];
        }
        for (int j = 0; j < K; j++) {
            total += (double)r->dweight[t * K + j] * e[r->choice[t * K + j]] /
                     chosen;
        }
        for (int i = 0; i < N; i++) {
            total += (double)r->aux[i] * e[i] / sum;
        }
    }
    return total;
}

static void route_gradient(void **state)
{
    (void)state;
    struct route r;
    float x[ROWS * N], p[ROWS * N], weight[ROWS * K], dlogits[ROWS * N];
    ref_fill(x, ROWS * N, 1);
    ref_fill(r.dweight, ROWS * K, 2);
    ref_fill(r.aux, N, 3);
    memcpy(p, x, sizeof x);
    mw_k_route_fwd(p, r.choice, weight, ROWS, N, K);
    mw_k_route_bwd(dlogits, r.dweight, p, r.choice, weight, r.aux, ROWS, N, K);
    ref_assert_gradient(route_objective, &r, x, ROWS * N, dlogits, 1e-4,
                        "router");
}

/* Rows 0 and 1 with two places each: y = residual + sum w x, and the gradients
 * of sum dy y. */
static void combine_by_hand(void **state)
{
    (void)state;
    const int32_t place[4] = {2, 0, 1, 3};
    const float x[4] = {10, 20, 30, 40}, w[4] = {0.5f, 0.25f, 1.0f, 2.0f};
    const float residual[2] = {1, 2}, dy[2] = {3, 5};
    float y[2], dx[4], dw[4];
    mw_k_rows_combine(y, x, place, w, residual, 2, 2, 1);
    assert_true(y[0] == 1 + 15 + 2.5f && y[1] == 2 + 20 + 80);
    mw_k_rows_combine(y, x, place, NULL, NULL, 2, 2, 1);
    assert_true(y[0] == 40 && y[1] == 60);
    mw_k_rows_combine_bwd(dx, dw, dy, x, place, w, 2, 2, 1);
    assert_true(dx[2] == 1.5f && dx[0] == 0.75f && dx[1] == 5 && dx[3] == 10);
    assert_true(dw[0] == 90 && dw[1] == 30 && dw[2] == 100 && dw[3] == 200);
}

/* Choices 2 0, 2 1, 0 2 of three rows, two each, among four experts. */
static void sort_by_hand(void **state)
{
    (void)state;
    const int32_t choice[6] = {2, 0, 2, 1, 0, 2};
    const int32_t want_place[6] = {3, 0, 4, 2, 1, 5};
    const int32_t want_from[6] = {0, 2, 1, 0, 1, 2};
    const int64_t want[4] = {2, 1, 3, 0};
    int32_t place[6], from[6];
    int64_t leaving[4];
    const struct mw_k_sort a = {choice, 6, 4, 2, place, from, leaving};
    mw_k_route_sort(&a);
    assert_memory_equal(place, want_place, sizeof place);
    assert_memory_equal(from, want_from, sizeof from);
    assert_memory_equal(leaving, want, sizeof leaving);
}

/* From rank 0 one row of expert 0 and two of expert 1, from rank 1 two and
 * one: expert 0 gets rows 0 3 4, expert 1 rows 1 2 5. */
static void order_by_hand(void **state)
{
    (void)state;
    const int64_t arrived[4] = {1, 2, 2, 1};
    const int32_t want_order[6] = {0, 3, 4, 1, 2, 5};
    const int32_t want_home[6] = {0, 3, 4, 1, 2, 5};
    int32_t order[6], home[6], first[3];
    const struct mw_k_order a = {arrived, 2, 2, order, home, first};
    mw_k_route_order(&a);
    assert_memory_equal(order, want_order, sizeof order);
    assert_memory_equal(home, want_home, sizeof home);
    assert_true(first[0] == 0 && first[1] == 3 && first[2] == 6);
}

/* Two layers of 1 x 2: the first has one row, the second two. */
static void groups_by_hand(void **state)
{
    (void)state;
    const int32_t first[3] = {0, 1, 3};
    const float x[6] = {1, 2, 3, 4, 5, 6}, w[4] = {10, 20, 1, -1};
    const float dy[3] = {1, 2, 3};
    float y[3], dx[6], dw[4] = {1, 1, 1, 1};
    const struct mw_k_groups a = {2, 1, 2, first};
    mw_k_groups_fwd(&a, y, x, w);
    mw_k_groups_bwd_input(&a, dx, dy, w);
    mw_k_groups_bwd_weight(&a, dw, dy, x);
    const float want_y[3] = {50, -1, -1}, want_dw[4] = {2, 3, 22, 27};
    const float want_dx[6] = {10, 20, 2, -2, 3, -3};
    assert_memory_equal(y, want_y, sizeof y);
    assert_memory_equal(dx, want_dx, sizeof dx);
    assert_memory_equal(dw, want_dw, sizeof dw);
}

static void gather_by_hand(void **state)
{
    (void)state;
    const float src[6] = {1, 2, 3, 4, 5, 6};
    const int32_t from[4] = {2, 0, 0, 1};
    float dst[8];
    mw_k_rows_gather(dst, src, from, 4, 2);
    const float want[8] = {5, 6, 1, 2, 1, 2, 3, 4};
    assert_memory_equal(dst, want, sizeof want);
}

/* Logits 0 and ln 3: sigmoids 1/2 and 3/4. */
static void gate_by_hand(void **state)
{
    (void)state;
    const float x[4] = {2, 4, 8, 12}, dy[4] = {1, 3, 2, 4};
    const float logit[2] = {0.0f, logf(3.0f)};
    float y[4] = {10, 20, 30, 40}, dx[4], dlogit[2];
    mw_k_rows_gate(y, x, logit, 2, 2);
    mw_k_rows_gate_bwd(dx, dlogit, dy, x, logit, 2, 2);
    const double want_y[4] = {11, 22, 36, 49}, want_dx[4] = {0.5, 1.5, 1.5, 3};
    for (int i = 0; i < 4; i++) {
        mw_assert_near((double)y[i], want_y[i], 1e-6, 0);
        mw_assert_near((double)dx[i], want_dx[i], 1e-6, 0);
    }
    mw_assert_near((double)dlogit[0], 0.25 * 14, 1e-6, 0);
    mw_assert_near((double)dlogit[1], 0.1875 * 64, 1e-6, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(route_by_hand),
        cmocka_unit_test(equals_go_to_the_lower_index),
        cmocka_unit_test(route_gradient),
        cmocka_unit_test(gate_by_hand),
        cmocka_unit_test(combine_by_hand),
        cmocka_unit_test(gather_by_hand),
        cmocka_unit_test(sort_by_hand),
        cmocka_unit_test(order_by_hand),
        cmocka_unit_test(groups_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
