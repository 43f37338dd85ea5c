/*
 * The worst moment of a layer's backward pass, worked out by hand.
 *
 * b micro-batch of s tokens, x = 2 b s h bytes, f = 2 b s ffn. The gradient of
 * the layer's output is that of the residual stream: one x throughout.
 *
 *   SwiGLU, fused attention: at the activation. Alive: x, the gradient of fc2's
 *   input (f) and of the activation's input (2 f); gone: fc2's input (f)
 *       = x + 2 f
 *   ... tp with sequence parallelism: x / t + 2 f / t at the activation. At
 *   fc1 the gradient of its input is whole and so is the input, gathered for
 *   the weight's gradient: x / t + 2 f / t + 2 x, and 3 f / t are gone.
 *   GELU (ffn 4 h, input kept as f): at the activation x + f + f - f = x + f;
 *   attention with its square kept: at softmax (below).
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
};

static void set_up(struct fixture *f, const char *name, int64_t seq)
{
    assert_int_equal(mw_model_preset(name, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = seq,
                               .dtype = MW_BF16,
                               .is_flash = true};
}

static void test_swiglu(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;

    (void)state;
    set_up(&f, "llama3-70b", 4096);
    mw_layer_backward_peak(&f.work, 0, &peak);
    mw_assert_near(peak.bytes, 2.0 * 4096 * (8192 + 2 * 28672), 1e-15, 0);
    assert_string_equal(peak.at, "act");
}

/* t = 2: x / 2 + f, for f = 3.5 x more than x / 2 + 2 x - f / 2; t = 8: the
 * latter. */
static void test_sequence_parallel(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;
    const double x = 2.0 * 4096 * 8192, ffn = 2.0 * 4096 * 28672;

    (void)state;
    set_up(&f, "llama3-70b", 4096);
    f.l.sp = true;
    f.l.tp = 2;
    mw_layer_backward_peak(&f.work, 0, &peak);
    mw_assert_near(peak.bytes, x / 2 + ffn, 1e-15, 0);
    f.l.tp = 8;
    mw_layer_backward_peak(&f.work, 0, &peak);
    mw_assert_near(peak.bytes, x / 8 + 2 * x - ffn / 8, 1e-15, 0);
    assert_string_equal(peak.at, "fc1");
}

/* 2 experts of 8 a token, R = 2 x: at unpermute x + R, and the kept R is then
 * gone; the experts' activation comes at x + 3 f' - (R + f') with f' of 2
 * tokens: Mixtral's 14336 of 4096: x + 2 f' - 2 x < x + R? No: 2 f' = 14 x. */
static void test_experts(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;
    const double x = 2.0 * 1024 * 4096, routed = 2 * x;
    const double ffn = 2.0 * 2 * 1024 * 14336;

    (void)state;
    set_up(&f, "mixtral-8x7b", 1024);
    mw_layer_backward_peak(&f.work, 0, &peak);
    assert_string_equal(peak.at, "expert_act");
    mw_assert_near(peak.bytes, x + 3 * ffn - routed - ffn, 1e-15, 0);
}

/* Unfused attention of a s^2 = 4 h s would: square S = 2 a s^2 bytes. Before
 * the core the whole MLP block and proj's input are gone; at softmax the
 * gradients of its output and input are there. */
static void test_unfused(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;
    const int64_t seq = 32768;

    (void)state;
    set_up(&f, "gpt3-175b", seq);
    f.work.is_flash = false;
    mw_layer_backward_peak(&f.work, 0, &peak);
    assert_string_equal(peak.at, "softmax");
    const double x = 2.0 * (double)seq * f.m.hidden;
    const double square = 2.0 * f.m.n_heads * (double)seq * (double)seq;
    /* residual x; context's values x; square twice; gone: norm2 x, fc1 x, act
     * 4 x, fc2 4 x, proj x, context's values x; the probabilities are kept
     * still, but those that the context product read are the same tensor */
    mw_assert_near(peak.bytes, x + x + 2 * square - 12 * x, 1e-12, 0);
}

/* The core comes back under selective recomputation; under full all does, and
 * is not in this figure. */
static void test_recomputation(void **state)
{
    struct fixture f;
    struct mw_layer_peak none, selective, full;

    (void)state;
    set_up(&f, "gpt3-175b", 32768);
    f.work.is_flash = false;
    mw_layer_backward_peak(&f.work, 0, &none);
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    mw_layer_backward_peak(&f.work, 0, &selective);
    f.l.recompute = MW_RECOMPUTE_FULL;
    mw_layer_backward_peak(&f.work, 0, &full);
    mw_assert_near(full.bytes, none.bytes, 0, 0);
    mw_assert_near(selective.bytes - none.bytes,
                   2.0 * f.m.n_heads * 32768.0 * 32768.0, 1e-12, 0);
}

/* Every preset: at least the residual's gradient, and no more than twice what
 * the layer keeps. */
static void test_bounds(void **state)
{
    struct fixture f;
    struct mw_layer_peak peak;

    (void)state;
    for (size_t i = 0; mw_model_preset_name(i) != NULL; i++) {
        set_up(&f, mw_model_preset_name(i), 512);
        mw_layer_backward_peak(&f.work, f.m.n_layers - 1, &peak);
        assert_true(peak.bytes >= 2.0 * 512 * f.m.hidden);
        assert_true(peak.bytes <=
                    2 * mw_layer_activation_bytes(&f.work, f.m.n_layers - 1));
        assert_non_null(peak.at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_unfused),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_recomputation),
        cmocka_unit_test(test_sequence_parallel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
