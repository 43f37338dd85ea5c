/*
 * Sums of operators against closed forms.
 *
 * SC21 (arXiv:2104.04473) equation 3, an iteration with full recomputation:
 *
 *   F = 96 B s l h^2 (1 + s / (6 h) + V / (16 l h))
 *
 * = 4 forwards (forward, recomputation, backward twice) of 24 B s h^2 + 4 B
 * s^2 h per layer, and 3 of 2 B s h V for the head, which is not recomputed.
 */
#include "mw_test.h"
#include "sim/model/model.h"

struct sums {
    double flops, model_flops;
};

static void add_sums(const struct mw_ops *ops, struct sums *sums)
{
    for (size_t i = 0; i < ops->n; i++) {
        sums->flops += ops->v[i].flops;
        sums->model_flops += ops->v[i].model_flops;
    }
}

/* A whole step of one micro-batch on one rank: all layers and the head. */
static struct sums step_sums(const struct mw_work *work)
{
    struct mw_ops ops = {0};
    struct sums sums = {0};

    for (int i = 0; i < work->model->n_layers; i++) {
        mw_array_clear(&ops);
        mw_layer_ops(work, i, MW_PASS_F, &ops);
        mw_layer_recompute_ops(work, i, &ops);
        mw_layer_ops(work, i, MW_PASS_BW, &ops);
        add_sums(&ops, &sums);
    }
    mw_array_clear(&ops);
    mw_embedding_ops(work, MW_PASS_F, &ops);
    mw_head_ops(work, MW_PASS_F, &ops);
    mw_head_ops(work, MW_PASS_B, &ops);
    mw_head_ops(work, MW_PASS_W, &ops);
    mw_embedding_ops(work, MW_PASS_BW, &ops);
    add_sums(&ops, &sums);
    mw_array_release(&ops);
    return sums;
}

static double sc21(const struct mw_model *m, double batch, double s)
{
    double h = m->hidden, l = m->n_layers;

    return 96 * batch * s * l * h * h *
           (1 + s / (6 * h) + m->vocab / (16 * l * h));
}

static void test_sc21_equation_3(void **state)
{
    static const char *const names[] = {"gpt-1.7b", "gpt3-175b", "gpt-1008b"};
    static const int tps[] = {1, 2, 4, 8};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 4; j++) {
            struct mw_model m;
            struct mw_layout l;
            struct mw_work work = {.model = &m,
                                   .layout = &l,
                                   .seq = 2048,
                                   .dtype = MW_FP16,
                                   .has_dropout = true};
            struct sums sums;

            assert_int_equal(mw_model_preset(names[i], &m, NULL), MW_OK);
            mw_layout_default(&l);
            l.tp = tps[j];
            l.sp = j % 2 == 1;
            l.micro_batch = 2;
            l.recompute = MW_RECOMPUTE_FULL;
            sums = step_sums(&work);
            mw_assert_near(sums.flops * l.tp, sc21(&m, 2, 2048), 1e-12, 0);
            /* Without recomputation three forwards of four are useful. */
            mw_assert_near(sums.model_flops * l.tp,
                           2 * 2048 * mw_model_flops_per_token(&m, 2048, false),
                           1e-12, 0);
        }
    }
}

/* GPT-3 175B by hand: 24 s h^2 = 24 x 2048 x 12288^2 = 7.421703487488e12 and
 * 4 s^2 h = 4 x 2048^2 x 12288 = 2.06158430208e11 for one layer's forward. */
static void test_layer_by_hand(void **state)
{
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work = {
        .model = &m, .layout = &l, .seq = 2048, .dtype = MW_BF16};
    struct mw_ops ops = {0};
    struct sums f = {0}, b = {0}, w = {0};

    (void)state;
    assert_int_equal(mw_model_preset("gpt3-175b", &m, NULL), MW_OK);
    mw_layout_default(&l);
    mw_layer_ops(&work, 7, MW_PASS_F, &ops);
    add_sums(&ops, &f);
    mw_assert_near(f.flops, 7.421703487488e12 + 2.06158430208e11, 1e-15, 0);
    mw_array_clear(&ops);
    mw_layer_ops(&work, 7, MW_PASS_B, &ops);
    add_sums(&ops, &b);
    mw_array_clear(&ops);
    mw_layer_ops(&work, 7, MW_PASS_W, &ops);
    add_sums(&ops, &w);
    mw_array_release(&ops);
    /* Linear layers once in B and once in W, the core twice in B. */
    mw_assert_near(w.flops, 7.421703487488e12, 1e-15, 0);
    mw_assert_near(b.flops, 7.421703487488e12 + 2 * 2.06158430208e11, 1e-15, 0);
}

/* The operators' useful FLOPs over the ranks of a replica are those of the
 * parameter table, for every preset and a layout that splits it. */
static void test_presets_agree(void **state)
{
    (void)state;
    for (size_t i = 0; mw_model_preset_name(i) != NULL; i++) {
        struct mw_model m;
        struct mw_layout l;
        struct mw_work work = {.model = &m,
                               .layout = &l,
                               .seq = 1024,
                               .dtype = MW_BF16,
                               .is_flash = true};
        double whole;

        assert_int_equal(mw_model_preset(mw_model_preset_name(i), &m, NULL),
                         MW_OK);
        whole = 1024 * mw_model_flops_per_token(&m, 1024, false);
        mw_layout_default(&l);
        mw_assert_near(step_sums(&work).model_flops, whole, 1e-12, 0);
        /* One key head for two ranks is worked out by both. */
        if (m.n_heads % 2 == 0 && m.vocab % 2 == 0 && m.n_kv_heads > 1) {
            l.tp = 2;
            l.sp = true;
            l.cp = 4;
            l.ep = m.moe.n_experts > 0 ? 4 : 1;
            l.etp = m.moe.n_experts > 0 ? 2 : 1;
            mw_assert_near(step_sums(&work).model_flops * 8, whole, 1e-12, 0);
        }
    }
}

/* A causal flash kernel does s (s + 1) / 2 of s^2 pairs, its backward pass 5
 * products for 2. For s = 4, h = 2 heads of 3: 2 x 4 x 4 x 2 x (3 + 3) = 384
 * FLOPs for the square; 10 of 16 pairs are 240; backward 600. */
static void test_flash_by_hand(void **state)
{
    struct mw_model m = {.name = "tiny",
                         .hidden = 6,
                         .n_layers = 1,
                         .n_heads = 2,
                         .n_kv_heads = 2,
                         .head_dim = 3,
                         .ffn = 8,
                         .vocab = 10};
    struct mw_layout l;
    struct mw_work work = {.model = &m,
                           .layout = &l,
                           .seq = 4,
                           .dtype = MW_FP32,
                           .is_flash = true};
    struct mw_ops ops = {0};
    int n_found = 0;

    (void)state;
    mw_layout_default(&l);
    mw_layer_ops(&work, 0, MW_PASS_F, &ops);
    mw_layer_ops(&work, 0, MW_PASS_B, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        if (op->kind != MW_OP_ATTENTION) {
            continue;
        }
        n_found++;
        mw_assert_near(op->flops, op->pass == MW_PASS_F ? 240 : 600, 0, 0);
        mw_assert_near(op->model_flops, op->pass == MW_PASS_F ? 384 : 768, 0,
                       0);
        mw_assert_near(op->work_fraction, 0.625, 0, 0);
        assert_int_equal(op->m, 4);
        assert_int_equal(op->batch, 2);
        assert_int_equal(op->k, 3);
    }
    assert_int_equal(n_found, 2);
    mw_array_release(&ops);
}

/* Llama-3-8B at 8192 tokens, causal half: 6 x (8 030 261 248 parameters less
 * embedding 525 336 576 and 65 norms of 4096) + 3 x 0.5 x 4 x 8192 x 4096 x
 * 32 layers = 6 x 7 504 658 432 + 6 442 450 944 = 51 470 401 536 a token. */
static void test_llama_by_hand(void **state)
{
    struct mw_model m;

    (void)state;
    assert_int_equal(mw_model_preset("llama3-8b", &m, NULL), MW_OK);
    mw_assert_near(mw_model_flops_per_token(&m, 8192, true), 51470401536.0, 0,
                   0);
    mw_assert_near(mw_model_flops_per_token(&m, 8192, false),
                   51470401536.0 + 6442450944.0, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sc21_equation_3),
        cmocka_unit_test(test_layer_by_hand),
        cmocka_unit_test(test_presets_agree),
        cmocka_unit_test(test_flash_by_hand),
        cmocka_unit_test(test_llama_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
