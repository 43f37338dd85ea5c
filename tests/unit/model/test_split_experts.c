/*
 * Kernels that a stack has for each line of code of a routed expert: its clamp
 * and its bias, by hand.
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
    struct mw_ops ops;
};

static void set_up(struct fixture *f, const char *name)
{
    *f = (struct fixture){0};
    assert_int_equal(mw_model_preset(name, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = 2048,
                               .dtype = MW_BF16,
                               .is_flash = true};
}

static void layer(struct fixture *f, int i, enum mw_pass pass)
{
    mw_array_clear(&f->ops);
    mw_layer_ops(&f->work, i, pass, &f->ops);
}

/* 0: there is no such operator. */
static double bytes_of(const struct mw_ops *ops, const char *name)
{
    double sum = 0;

    for (size_t i = 0; i < ops->n; i++) {
        sum += strcmp(ops->v[i].name, name) == 0 ? ops->v[i].bytes : 0;
    }
    return sum;
}

/* Biases and clamps of experts where a stack has a kernel for each line of
 * code: of 2048 tokens with 2 of 8 experts each, products of 14336 and 4096. */
static void test_split_experts(void **state)
{
    const double wide = 2.0 * 2048 * 2 * 2 * 14336, x = 2.0 * 2048 * 2 * 4096;
    struct fixture f;
    double plain, kept;

    (void)state;
    set_up(&f, "mixtral-8x7b");
    f.m.moe.bias = f.m.moe.clamp = true;
    layer(&f, 0, MW_PASS_F);
    assert_true(bytes_of(&f.ops, "expert_clamp") <= 0);
    assert_true(bytes_of(&f.ops, "expert_bias") <= 0);
    plain = mw_layer_activation_bytes(&f.work, 0);
    f.work.splits_experts = true;
    layer(&f, 0, MW_PASS_F);
    /* each half read and written, then both; 12 bytes an element of rows */
    mw_assert_near(bytes_of(&f.ops, "expert_clamp"), 4 * wide, 0, 0);
    mw_assert_near(bytes_of(&f.ops, "expert_bias"), 6 * x, 0, 0);
    layer(&f, 0, MW_PASS_B);
    mw_assert_near(bytes_of(&f.ops, "expert_clamp"), 5 * wide, 0, 0);
    mw_assert_near(bytes_of(&f.ops, "expert_bias"), 8 * x, 0, 0);
    /* The clamped copy is kept; with moe_act it is made again. */
    mw_assert_near(mw_layer_activation_bytes(&f.work, 0), plain + wide, 0, 0);
    f.l.recompute = MW_RECOMPUTE_SELECTIVE;
    f.l.recompute_modules = MW_MODULE_MOE_ACT;
    kept = mw_layer_activation_bytes(&f.work, 0);
    mw_array_clear(&f.ops);
    mw_layer_recompute_ops(&f.work, 0, &f.ops);
    assert_true(bytes_of(&f.ops, "expert_clamp") > 0);
    assert_true(bytes_of(&f.ops, "expert_bias") <= 0);
    f.work.splits_experts = false;
    mw_assert_near(kept, mw_layer_activation_bytes(&f.work, 0), 0, 0);
    /* fp32 probabilities: 28 and 40 bytes an element */
    f.work.splits_experts = f.work.wide_probs = true;
    layer(&f, 0, MW_PASS_F);
    mw_assert_near(bytes_of(&f.ops, "expert_bias"), 14 * x, 0, 0);
    layer(&f, 0, MW_PASS_B);
    mw_assert_near(bytes_of(&f.ops, "expert_bias"), 20 * x, 0, 0);
    mw_array_release(&f.ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split_experts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
