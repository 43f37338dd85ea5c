/*
 * Low-rank adapters: published counts of what learns, published sizes of 4-bit
 * models, operators of each pass, what is kept.
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

static int64_t count(const char *model, int rank, enum mw_lora_targets targets)
{
    struct mw_params base = {0}, adapters = {0};
    struct mw_model m;
    int64_t n = 0;

    assert_int_equal(mw_model_preset(model, &m, NULL), MW_OK);
    mw_model_params(&m, &base);
    mw_lora_params(&base, rank, targets, &adapters);
    for (size_t i = 0; i < adapters.n; i++) {
        n += mw_param_count(&adapters.v[i]);
    }
    mw_array_release(&base);
    mw_array_release(&adapters);
    return n;
}

/* Guanaco's adapters (QLoRA, rank 64 on all linear layers) as published with
 * the checkpoints of 7B and 13B; Hu et al., table 5: 18M of GPT-3 175B at rank
 * 2 on the four projections of attention. By hand: rank (in + out) each. */
static void test_published_counts(void **state)
{
    (void)state;
    assert_int_equal(count("llama2-7b", 64, MW_LORA_ALL), 159907840);
    assert_int_equal(count("llama2-13b", 64, MW_LORA_ALL), 250347520);
    assert_int_equal(count("gpt3-175b", 2, MW_LORA_ATTENTION), 18874368);
    /* Without the projection: 2 r h of each of 96 layers less. */
    assert_int_equal(count("gpt3-175b", 2, MW_LORA_QKV),
                     18874368 - 96 * 2 * 2 * 12288);
    /* k and v of 8 heads: 2 x 16 (8192 + 1024) of each layer's adapters */
    assert_int_equal(count("llama2-70b", 16, MW_LORA_ATTENTION),
                     80 * 16 * (2 * (8192 + 1024) + 2 * (8192 + 8192)));
}

/* Bytes of a model as QLoRA stores it. */
static double nf4_bytes(const char *model)
{
    struct mw_params base = {0};
    struct mw_model m;
    double bytes = 0;

    assert_int_equal(mw_model_preset(model, &m, NULL), MW_OK);
    mw_model_params(&m, &base);
    for (size_t i = 0; i < base.n; i++) {
        bytes += (double)mw_param_count(&base.v[i]) *
                 (mw_param_is_quantised(&base.v[i]) ? MW_NF4_BYTES : 2);
    }
    mw_array_release(&base);
    return bytes;
}

/* QLoRA, section 3: double quantisation takes 0.127 bits a weight beside its 4.
 * LitGPT's table of resources (tutorials/resource-tables.md at 4839345a97):
 * generating with Llama 2 in bnb.nf4-dq peaks at 37.21 GB for 70B, which is its
 * weights and little else; for 7B it saves 13.52 - 4.26 GB of bf16. */
static void test_published_sizes(void **state)
{
    (void)state;
    mw_assert_near(8 * MW_NF4_BYTES, 4.127, 0, 5e-4);
    mw_assert_near(nf4_bytes("llama2-70b"), 37.21e9, 0.03, 0);
    mw_assert_near(2 * 6.738e9 - nf4_bytes("llama2-7b"), 13.52e9 - 4.26e9, 0.05,
                   0);
}

/* ---- shards ----------------------------------------------------------------
 */
/* A follows the input axis, B the output axis; what neither splits is whole. */
static void test_shards(void **state)
{
    struct mw_params base = {0}, adapters = {0};
    struct mw_layout l;
    struct mw_model m;

    (void)state;
    assert_int_equal(mw_model_preset("mixtral-8x7b", &m, NULL), MW_OK);
    mw_layout_default(&l);
    l.tp = 4;
    l.ep = 4;
    mw_model_params(&m, &base);
    mw_lora_params(&base, 8, MW_LORA_ALL, &adapters);
    for (size_t i = 0; i < adapters.n; i++) {
        const struct mw_param *p = &adapters.v[i];
        bool is_a = strstr(p->name, "lora_a") != NULL;
        int64_t n = mw_param_shard_count(p, &l);

        if (p->shard == MW_SHARD_EXPERT) {
            assert_int_equal(p->n_copies, 8);
            assert_int_equal(n, mw_param_count(p) / 4);
        } else if (strstr(p->name, "proj") != NULL) {
            assert_int_equal(n, mw_param_count(p) / (is_a ? 4 : 1));
        } else {
            assert_int_equal(n, mw_param_count(p) / (is_a ? 1 : 4));
        }
    }
    assert_int_equal(adapters.n, 32 * 2 * 5); /* q kv proj fc1 fc2 */
    mw_array_release(&base);
    mw_array_release(&adapters);
}

/* ---- operators -------------------------------------------------------------
 */
struct fixture {
    struct mw_model m;
    struct mw_layout l;
    struct mw_work work;
    struct mw_ops ops;
};

static void set_up(struct fixture *f, const char *model, int rank)
{
    *f = (struct fixture){0};
    assert_int_equal(mw_model_preset(model, &f->m, NULL), MW_OK);
    mw_layout_default(&f->l);
    f->work = (struct mw_work){.model = &f->m,
                               .layout = &f->l,
                               .seq = 2048,
                               .dtype = MW_BF16,
                               .is_flash = true,
                               .grad_dtype = MW_FP32,
                               .lora_rank = rank};
}

static void expect_names(struct fixture *f, enum mw_pass pass, const char *want)
{
    struct mw_str names = {0};

    mw_array_clear(&f->ops);
    mw_layer_ops(&f->work, 0, pass, &f->ops);
    for (size_t i = 0; i < f->ops.n; i++) {
        mw_str_addf(&names, "%s%s", i > 0 ? " " : "", f->ops.v[i].name);
    }
    assert_string_equal(names.n > 0 ? names.s : "", want);
    mw_str_release(&names);
}

static void test_operators_of_passes(void **state)
{
    struct fixture f;

    (void)state;
    set_up(&f, "llama2-7b", 16);
    f.work.lora_targets = MW_LORA_ATTENTION;
    expect_names(&f, MW_PASS_F,
                 "norm1 qkv lora_a lora_b lora_add rotary attn proj lora_a "
                 "lora_b lora_add add1 norm2 fc1 act fc2 add2");
    expect_names(&f, MW_PASS_B,
                 "add2 fc2 act fc1 norm2 add1 lora_add lora_b lora_a proj attn "
                 "rotary lora_add lora_b lora_a qkv norm1");
    expect_names(&f, MW_PASS_W, "lora_b lora_a lora_b lora_a");
    f.work.base_dtype = MW_BASE_NF4;
    expect_names(&f, MW_PASS_B,
                 "add2 fc2 dequantise act fc1 dequantise norm2 add1 lora_add "
                 "lora_b lora_a proj dequantise attn rotary lora_add lora_b "
                 "lora_a qkv dequantise norm1");
    expect_names(&f, MW_PASS_W, "lora_b lora_a lora_b lora_a");
    /* the frozen ends: nothing learns, the head's input is not kept */
    mw_array_clear(&f.ops);
    mw_head_ops(&f.work, MW_PASS_W, &f.ops);
    mw_embedding_ops(&f.work, MW_PASS_BW, &f.ops);
    assert_int_equal(f.ops.n, 0);
    mw_array_release(&f.ops);
}

/* FLOPs of a whole step by the operators, and by the formula. */
static double step_flops(const struct mw_work *work)
{
    struct mw_ops ops = {0};
    double sum = 0;

    for (int i = 0; i < work->model->n_layers; i++) {
        mw_layer_ops(work, i, MW_PASS_F, &ops);
        mw_layer_ops(work, i, MW_PASS_BW, &ops);
    }
    mw_head_ops(work, MW_PASS_F, &ops);
    mw_head_ops(work, MW_PASS_BW, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        sum += ops.v[i].model_flops;
    }
    mw_array_release(&ops);
    return sum;
}

static void test_flops(void **state)
{
    static const char *const names[] = {
        "gpt3-175b", "llama2-70b", "mixtral-8x7b", "deepseek-v2", "qwen3-8b"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int t = MW_LORA_ALL; t <= MW_LORA_QKV; t++) {
            struct fixture f;

            set_up(&f, names[i], 24);
            f.m.n_layers = 6;
            f.m.n_mtp = 0;
            f.work.lora_targets = (enum mw_lora_targets)t;
            mw_assert_near(step_flops(&f.work),
                           2048 *
                               mw_lora_flops_per_token(&f.m, 2048, false, 24,
                                                       (enum mw_lora_targets)t),
                           1e-9, 0);
        }
    }
}

/* A dense Llama layer keeps, beside its norms' inputs, q, k, v and the gate and
 * up: with adapters everywhere the inputs of all four linear layers (the same
 * as without) and their low-rank products; with none on the MLP not the inputs
 * of fc1 and fc2. */
static void test_kept(void **state)
{
    struct fixture f;
    double tokens = 2048, h = 4096, ffn = 11008;

    (void)state;
    set_up(&f, "llama2-7b", 0);
    double full = mw_layer_activation_bytes(&f.work, 0);
    f.work.lora_rank = 16;
    double all = mw_layer_activation_bytes(&f.work, 0);
    mw_assert_near(all - full, 2 * tokens * 16 * (3 + 1 + 2 + 1), 1e-12, 0);
    f.work.lora_targets = MW_LORA_ATTENTION;
    mw_assert_near(full - mw_layer_activation_bytes(&f.work, 0),
                   2 * tokens * (h + ffn) - 2 * tokens * 16 * (3 + 1), 1e-12,
                   0);
    f.l.recompute = MW_RECOMPUTE_FULL;
    mw_assert_near(mw_layer_activation_bytes(&f.work, 0), 2 * tokens * h, 0, 0);
    mw_array_release(&f.ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_counts),
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_operators_of_passes),
        cmocka_unit_test(test_flops),
        cmocka_unit_test(test_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
