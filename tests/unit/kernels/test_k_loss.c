/*
 * Embedding, cross-entropy (whole and split over a vocabulary), residual
 * addition and AdamW.
 */
#include "k_reference.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

enum { R = 5, V = 12, N = R * V };

static const int32_t label[R] = {0, 11, 5, 6, 3};

static double loss_of(const double *logits, void *arg)
{
    (void)arg;
    double loss = 0.0;
    for (int r = 0; r < R; r++) {
        double sum = 0.0;
        for (int j = 0; j < V; j++) {
            sum += exp(logits[r * V + j]);
        }
        loss += log(sum) - logits[r * V + label[r]];
    }
    return loss;
}

static void make_logits(float *logits)
{
    ref_fill(logits, N, 1);
    for (int i = 0; i < N; i++) {
        logits[i] *= 5.0f;
    }
}

static void cross_entropy(void **state)
{
    (void)state;
    float l[N], max[R], sum[R], target[R], d[N];
    double rl[N];
    make_logits(l);
    for (int i = 0; i < N; i++) {
        rl[i] = (double)l[i];
    }
    mw_k_xent_max(max, l, R, V);
    mw_k_xent_sum(sum, target, l, max, label, R, V, 0);
    mw_assert_near(mw_k_xent_loss(sum, target, R), loss_of(rl, NULL), 1e-6, 0);
    mw_k_xent_bwd(d, l, max, sum, label, R, V, 0, 1.0f);
    ref_assert_gradient(loss_of, NULL, l, N, d, 1e-5, "dlogits");
    mw_k_xent_bwd(l, l, max, sum, label, R, V, 0, 1.0f); /* in place */
    assert_memory_equal(l, d, sizeof d);
}

/* Uniform logits over V = 12: loss is log 12 a row, gradient 1/12 or -11/12. */
static void cross_entropy_by_hand(void **state)
{
    (void)state;
    float l[N] = {0}, max[R], sum[R], target[R], d[N];
    mw_k_xent_max(max, l, R, V);
    mw_k_xent_sum(sum, target, l, max, label, R, V, 0);
    mw_assert_near(mw_k_xent_loss(sum, target, R), R * 2.4849066497880004, 1e-7,
                   0);
    mw_k_xent_bwd(d, l, max, sum, label, R, V, 0, 0.5f);
    mw_assert_near((double)d[0], -11.0 / 24.0, 1e-6, 0);
    mw_assert_near((double)d[1], 1.0 / 24.0, 1e-6, 0);
}

/* Two halves of the vocabulary, reduced by hand, give the whole. */
static void split_vocabulary(void **state)
{
    (void)state;
    enum { H = V / 2 };
    float l[N], half[2][R * H], max[R], sum[R], target[R], d[N];
    float m[2][R], s[2][R], t[2][R], dh[R * H];
    make_logits(l);
    mw_k_xent_max(max, l, R, V);
    mw_k_xent_sum(sum, target, l, max, label, R, V, 0);
    mw_k_xent_bwd(d, l, max, sum, label, R, V, 0, 1.0f);
    for (int p = 0; p < 2; p++) {
        for (int r = 0; r < R; r++) {
            memcpy(half[p] + r * H, l + r * V + p * H, H * sizeof *l);
        }
        mw_k_xent_max(m[p], half[p], R, H);
    }
    for (int r = 0; r < R; r++) {
        m[0][r] = m[0][r] > m[1][r] ? m[0][r] : m[1][r];
        assert_true(m[0][r] == max[r]);
    }
    for (int p = 0; p < 2; p++) {
        mw_k_xent_sum(s[p], t[p], half[p], m[0], label, R, H, p * H);
    }
    for (int r = 0; r < R; r++) {
        s[0][r] += s[1][r];
        mw_assert_near((double)s[0][r], (double)sum[r], 1e-6, 0);
        assert_true(t[0][r] + t[1][r] == target[r]);
    }
    mw_k_xent_bwd(dh, half[1], m[0], s[0], label, R, H, H, 1.0f);
    for (int r = 0; r < R; r++) {
        for (int j = 0; j < H; j++) {
            mw_assert_near((double)dh[r * H + j], (double)d[r * V + H + j],
                           1e-5, 1e-7);
        }
    }
}

/* ---- embedding --------------------------------------------------------------
 */
static void embedding_shard(void **state)
{
    (void)state;
    const float w[4] = {1, 2, 3, 4}; /* tokens 2 and 3 of a table of 4 */
    const int32_t token[3] = {3, 0, 2};
    float y[6], dw[4] = {0};
    mw_k_embedding_fwd(y, w, token, 3, 2, 2, 2);
    const float want[6] = {3, 4, 0, 0, 1, 2};
    assert_memory_equal(y, want, sizeof y);
    const float dy[6] = {1, 1, 5, 5, 2, 3};
    mw_k_embedding_bwd(dw, dy, token, 3, 2, 2, 2);
    mw_k_embedding_bwd(dw, dy, token, 3, 2, 2, 2);
    const float want_dw[4] = {4, 6, 2, 2};
    assert_memory_equal(dw, want_dw, sizeof dw);
}

static void positions_repeat_per_sequence(void **state)
{
    (void)state;
    const float w[4] = {1, 2, 3, 4};
    float y[8] = {0}, dw[4] = {0};
    mw_k_position_fwd(y, w, 4, 2, 2); /* two sequences of length 2 */
    const float want[8] = {1, 2, 3, 4, 1, 2, 3, 4};
    assert_memory_equal(y, want, sizeof y);
    const float dy[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    mw_k_position_bwd(dw, dy, 4, 2, 2);
    const float want_dw[4] = {6, 8, 10, 12};
    assert_memory_equal(dw, want_dw, sizeof dw);
}

/* ---- vectors ------------------------------------------------------------ */
static void add_with_and_without_bias(void **state)
{
    (void)state;
    const float x[4] = {1, 2, 3, 4}, bias[2] = {10, 20};
    float y[4] = {100, 200, 300, 400};
    mw_k_add(y, x, bias, y, 2, 2);
    const float want[4] = {111, 222, 313, 424};
    assert_memory_equal(y, want, sizeof y);
    mw_k_add(y, y, NULL, x, 2, 2);
    assert_true(y[0] == 112 && y[3] == 428);
}

/*
 * One step from m = v = 0 with g = 2, w = 1, b1 = 0.9, b2 = 0.99, lr = 0.1,
 * decay = 0.5: m = 0.2, v = 0.04; corrected 2 and 4; step 2 / 2 = 1;
 * w = 1 - 0.1 (1 + 0.5) = 0.85.
 */
static void adamw_by_hand(void **state)
{
    (void)state;
    const struct mw_k_adamw h = {.lr = 0.1f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.99f,
                                 .eps = 1e-8f,
                                 .decay = 0.5f,
                                 .correct1 = 0.1f,
                                 .correct2 = 0.01f};
    float w = 1, m = 0, v = 0;
    const float g = 2;
    mw_k_adamw(&h, &w, &g, &m, &v, 1);
    mw_assert_near((double)w, 0.85, 1e-6, 0);
    mw_assert_near((double)m, 0.2, 1e-6, 0);
    mw_assert_near((double)v, 0.04, 1e-5, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(cross_entropy_by_hand),
        cmocka_unit_test(split_vocabulary),
        cmocka_unit_test(embedding_shard),
        cmocka_unit_test(positions_repeat_per_sequence),
        cmocka_unit_test(add_with_and_without_bias),
        cmocka_unit_test(adamw_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
