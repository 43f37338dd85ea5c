/*
 * Linear layers, norms and activations against double references, and their
 * gradients against difference quotients of those references.
 */
#include "k_reference.h"

#include "kernels/fast_math_int.h"
#include "kernels/kernels.h"

#include <math.h>

enum { R = 7, W = 21, N = R * W };

/* ---- linear ---------------------------------------------------------------
 */
/* m = 2 rows, n = 2 outputs, k = 3 inputs, by hand. */
static const float lx[6] = {1, 2, 3, 4, 5, 6};
static const float lw[6] = {1, 0, -1, 2, 1, 0};

static void linear_forward_by_hand(void **state)
{
    (void)state;
    const float bias[2] = {10, 20};
    float y[4];
    mw_k_linear_fwd(y, lx, lw, bias, 2, 2, 3);
    /* row 0: 1 - 3 + 10 = 8, 2 + 2 + 20 = 24; row 1: 4 - 6 + 10, 8 + 5 + 20 */
    const float want[4] = {8, 24, 8, 33};
    assert_memory_equal(y, want, sizeof y);
    mw_k_linear_fwd(y, lx, lw, NULL, 2, 2, 3);
    assert_true(y[0] == -2 && y[3] == 13);
}

static void linear_gradients_by_hand(void **state)
{
    (void)state;
    const float dy[4] = {1, 2, 3, 4};
    float dx[6], dw[6] = {100, 0, 0, 0, 0, 0}, db[2] = {1, 1};
    mw_k_linear_bwd_input(dx, dy, lw, 2, 2, 3);
    /* row 0: 1*(1,0,-1) + 2*(2,1,0) = (5,2,-1); row 1: (11,4,-3) */
    const float want_dx[6] = {5, 2, -1, 11, 4, -3};
    assert_memory_equal(dx, want_dx, sizeof dx);
    mw_k_linear_bwd_weight(dw, db, dy, lx, 2, 2, 3);
    /* dw row 0: 1*(1,2,3) + 3*(4,5,6) = (13,17,21), on top of 100 */
    const float want_dw[6] = {113, 17, 21, 18, 24, 30};
    const float want_db[2] = {1 + 4, 1 + 6};
    assert_memory_equal(dw, want_dw, sizeof dw);
    assert_memory_equal(db, want_db, sizeof db);
}

/* ---- norms ------------------------------------------------------------------
 */
struct norm_case {
    float x[N], gamma[W], beta[W], dy[N], y[N], mean[R], rstd[R];
    double dx[N], dgamma[W], dbeta[W]; /* the three as doubles */
    int is_rms;
};

static void norm_ref(struct norm_case *c, double *y, const double *x,
                     const double *gamma, const double *beta)
{
    if (c->is_rms) {
        ref_rmsnorm(y, x, gamma, R, W, 1e-5);
    } else {
        ref_layernorm(y, x, gamma, beta, R, W, 1e-5);
    }
}

static double norm_objective(struct norm_case *c, const double *x,
                             const double *gamma, const double *beta)
{
    double y[N], sum = 0.0;
    norm_ref(c, y, x, gamma, beta);
    for (int i = 0; i < N; i++) {
        sum += y[i] * (double)c->dy[i];
    }
    return sum;
}

static double norm_of_x(const double *x, void *arg)
{
    struct norm_case *c = arg;
    return norm_objective(c, x, c->dgamma, c->dbeta);
}

static double norm_of_gamma(const double *gamma, void *arg)
{
    struct norm_case *c = arg;
    return norm_objective(c, c->dx, gamma, c->dbeta);
}

static double norm_of_beta(const double *beta, void *arg)
{
    struct norm_case *c = arg;
    return norm_objective(c, c->dx, c->dgamma, beta);
}

static void widen(double *out, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = (double)x[i];
    }
}

static void norm_case_make(struct norm_case *c, int is_rms)
{
    c->is_rms = is_rms;
    ref_fill(c->x, N, 1);
    ref_fill(c->gamma, W, 2);
    ref_fill(c->beta, W, 3);
    ref_fill(c->dy, N, 4);
    widen(c->dx, c->x, N);
    widen(c->dgamma, c->gamma, W);
    widen(c->dbeta, c->beta, W);
}

static void check_forward(struct norm_case *c)
{
    double y[N];
    norm_ref(c, y, c->dx, c->dgamma, c->dbeta);
    ref_assert_close(c->y, y, N, 2e-6, "norm");
}

static void layernorm(void **state)
{
    (void)state;
    struct norm_case c;
    float dx[N], dg[W] = {0}, db[W] = {0};
    norm_case_make(&c, 0);
    mw_k_layernorm_fwd(c.y, c.mean, c.rstd, c.x, c.gamma, c.beta, R, W, 1e-5f);
    check_forward(&c);
    mw_k_layernorm_bwd_input(dx, NULL, c.dy, c.x, c.gamma, c.mean, c.rstd, R,
                             W);
    mw_k_layernorm_bwd_param(dg, db, c.dy, c.x, c.mean, c.rstd, R, W);
    ref_assert_gradient(norm_of_x, &c, c.x, N, dx, 2e-5, "dx");
    ref_assert_gradient(norm_of_gamma, &c, c.gamma, W, dg, 2e-5, "dgamma");
    ref_assert_gradient(norm_of_beta, &c, c.beta, W, db, 2e-5, "dbeta");
}

static void rmsnorm(void **state)
{
    (void)state;
    struct norm_case c;
    float dx[N], dg[W] = {0};
    norm_case_make(&c, 1);
    mw_k_rmsnorm_fwd(c.y, c.rstd, c.x, c.gamma, R, W, 1e-5f);
    check_forward(&c);
    mw_k_rmsnorm_bwd_input(dx, NULL, c.dy, c.x, c.gamma, c.rstd, R, W);
    mw_k_rmsnorm_bwd_param(dg, c.dy, c.x, c.rstd, R, W);
    ref_assert_gradient(norm_of_x, &c, c.x, N, dx, 2e-5, "dx");
    ref_assert_gradient(norm_of_gamma, &c, c.gamma, W, dg, 2e-5, "dgamma");
}

/* The residual is added, also in place; parameter gradients accumulate. */
static void norm_adds_residual(void **state)
{
    (void)state;
    struct norm_case c;
    float dx[N], with[N], twice[W] = {0}, once[W] = {0};
    norm_case_make(&c, 0);
    mw_k_layernorm_fwd(c.y, c.mean, c.rstd, c.x, c.gamma, NULL, R, W, 1e-5f);
    mw_k_layernorm_bwd_input(dx, NULL, c.dy, c.x, c.gamma, c.mean, c.rstd, R,
                             W);
    ref_fill(with, N, 9);
    mw_k_layernorm_bwd_input(with, with, c.dy, c.x, c.gamma, c.mean, c.rstd, R,
                             W);
    float residual[N];
    ref_fill(residual, N, 9);
    for (int i = 0; i < N; i++) {
        assert_true(with[i] == residual[i] + dx[i]);
    }
    mw_k_layernorm_bwd_param(once, NULL, c.dy, c.x, c.mean, c.rstd, R, W);
    mw_k_layernorm_bwd_param(twice, NULL, c.dy, c.x, c.mean, c.rstd, R, W);
    mw_k_layernorm_bwd_param(twice, NULL, c.dy, c.x, c.mean, c.rstd, R, W);
    for (int i = 0; i < W; i++) {
        mw_assert_near((double)twice[i], 2.0 * (double)once[i], 1e-5, 1e-6);
    }
}

/* ---- activations -------------------------------------------------------- */
static void fast_exp_and_tanh(void **state)
{
    (void)state;
    for (int i = -8700; i <= 8800; i++) {
        float x = (float)i / 100.0f;
        mw_assert_near((double)mw_fast_exp(x), exp((double)x), 4e-7, 0);
    }
    for (int i = -2000; i <= 2000; i++) {
        float x = (float)i / 100.0f;
        mw_assert_near((double)mw_fast_tanh(x), tanh((double)x), 0, 3e-7);
    }
    assert_true(isfinite(mw_fast_exp(1e30f)) && mw_fast_exp(-1e30f) > 0.0f);
}

static double sum_gelu(const double *x, void *arg)
{
    const float *dy = arg;
    double sum = 0.0;
    for (int i = 0; i < N; i++) {
        sum += (double)dy[i] * ref_gelu(x[i]);
    }
    return sum;
}

static void gelu(void **state)
{
    (void)state;
    float x[N], y[N], dy[N], dx[N];
    double ry[N];
    ref_fill(x, N, 1);
    ref_fill(dy, N, 2);
    for (int i = 0; i < N; i++) {
        x[i] *= 4.0f;
        ry[i] = ref_gelu((double)x[i]);
    }
    mw_k_gelu_fwd(y, x, N);
    ref_assert_close(y, ry, N, 1e-6, "gelu");
    mw_k_gelu_bwd(dx, dy, x, N);
    ref_assert_gradient(sum_gelu, dy, x, N, dx, 1e-5, "gelu'");
    mw_k_gelu_bwd(dy, dy, x, N); /* in place */
    assert_memory_equal(dy, dx, sizeof dx);
}

static double sum_swiglu(const double *x, void *arg)
{
    const float *dy = arg;
    double sum = 0.0;
    for (int r = 0; r < R; r++) {
        for (int i = 0; i < W; i++) {
            sum += (double)dy[r * W + i] * ref_silu(x[2 * r * W + i]) *
                   x[2 * r * W + W + i];
        }
    }
    return sum;
}

static void swiglu(void **state)
{
    (void)state;
    float x[2 * N], y[N], dy[N], dx[2 * N];
    double ry[N];
    ref_fill(x, 2 * N, 1);
    ref_fill(dy, N, 2);
    for (int r = 0; r < R; r++) {
        for (int i = 0; i < W; i++) {
            ry[r * W + i] = ref_silu((double)x[2 * r * W + i]) *
                            (double)x[2 * r * W + W + i];
        }
    }
    mw_k_swiglu_fwd(y, x, R, W);
    ref_assert_close(y, ry, N, 1e-6, "swiglu");
    mw_k_swiglu_bwd(dx, dy, x, R, W);
    ref_assert_gradient(sum_swiglu, dy, x, 2 * N, dx, 1e-5, "swiglu'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_forward_by_hand),
        cmocka_unit_test(linear_gradients_by_hand),
        cmocka_unit_test(layernorm),
        cmocka_unit_test(rmsnorm),
        cmocka_unit_test(norm_adds_residual),
        cmocka_unit_test(fast_exp_and_tanh),
        cmocka_unit_test(gelu),
        cmocka_unit_test(swiglu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
