/* The parameter table: order, shapes, shards. */
#include "mw_test.h"
#include "sim/model/model.h"

#include <string.h>

static void test_order_of_a_gpt(void **state)
{
    static const char *const expected[] = {
        "embed.weight",     "embed.position",  "attn.norm.weight",
        "attn.norm.bias",   "attn.qkv.weight", "attn.qkv.bias",
        "attn.proj.weight", "attn.proj.bias",  "mlp.norm.weight",
        "mlp.norm.bias",    "mlp.fc1.weight",  "mlp.fc1.bias",
        "mlp.fc2.weight",   "mlp.fc2.bias"};
    struct mw_params params = {0};
    struct mw_model m;

    (void)state;
    assert_int_equal(mw_model_preset("gpt-small", &m, NULL), MW_OK);
    mw_model_params(&m, &params);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_string_equal(params.v[i].name, expected[i]);
        assert_int_equal(params.v[i].layer, i < 2 ? -1 : 0);
    }
    assert_int_equal(params.n, 2 + 8 * 12 + 3);
    assert_string_equal(params.v[params.n - 1].name, "head.weight");
    assert_int_equal(params.v[params.n - 1].layer, 8);
    assert_int_equal(params.v[4].outer, 3);
    assert_int_equal(params.v[4].rows, 256);
    mw_array_release(&params);
}

/* Norms, biases, sinks and other vectors take no weight decay. */
static void test_vectors_are_marked(void **state)
{
    (void)state;
    for (size_t i = 0; mw_model_preset_name(i) != NULL; i++) {
        struct mw_params params = {0};
        struct mw_model m;

        assert_int_equal(mw_model_preset(mw_model_preset_name(i), &m, NULL),
                         MW_OK);
        mw_model_params(&m, &params);
        for (size_t j = 0; j < params.n; j++) {
            bool is_vector = strstr(params.v[j].name, "norm") != NULL ||
                             strstr(params.v[j].name, ".bias") != NULL ||
                             strstr(params.v[j].name, ".sinks") != NULL;

            assert_int_equal(params.v[j].is_norm_or_bias, is_vector);
        }
        mw_array_release(&params);
    }
}

/* Shards of the ranks add up to the whole tensor, replicas apart. */
static void test_shards_add_up(void **state)
{
    static const char *const names[] = {"gpt3-175b", "llama3-8b",
                                        "mixtral-8x7b", "deepseek-v3"};
    struct mw_layout l;

    (void)state;
    mw_layout_default(&l);
    l.tp = 8;
    l.ep = 4;
    l.etp = 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mw_params params = {0};
        struct mw_model m;

        assert_int_equal(mw_model_preset(names[i], &m, NULL), MW_OK);
        mw_model_params(&m, &params);
        for (size_t j = 0; j < params.n; j++) {
            const struct mw_param *p = &params.v[j];
            int64_t parts = p->shard == MW_SHARD_EXPERT ? l.ep * l.etp
                            : p->shard == MW_SHARD_NONE ? 1
                                                        : l.tp;

            assert_int_equal(mw_param_shard_count(p, &l) * parts,
                             mw_param_count(p));
        }
        mw_array_release(&params);
    }
}

/* tp 32 on 8 key-value heads: a rank holds one head of k and v, 128 x 4096
 * twice, not a 32nd of them. */
static void test_kv_copies(void **state)
{
    struct mw_params params = {0};
    struct mw_model m;
    struct mw_layout l;
    bool found = false;

    (void)state;
    assert_int_equal(mw_model_preset("llama3-8b", &m, NULL), MW_OK);
    mw_layout_default(&l);
    l.tp = 32;
    mw_model_params(&m, &params);
    for (size_t i = 0; i < params.n && !found; i++) {
        if (strcmp(params.v[i].name, "attn.kv.weight") == 0) {
            assert_int_equal(mw_param_shard_count(&params.v[i], &l),
                             2 * 128 * 4096);
            found = true;
        }
    }
    assert_true(found);
    mw_array_release(&params);
}

/* Every key of the model's flags changes the count by what it adds. */
static void test_flags_by_hand(void **state)
{
    struct mw_model base = {.name = "base",
                            .hidden = 8,
                            .n_layers = 2,
                            .n_heads = 4,
                            .n_kv_heads = 2,
                            .head_dim = 2,
                            .ffn = 16,
                            .vocab = 10,
                            .max_seq = 6,
                            .norm = MW_NORM_RMS,
                            .position = MW_POS_ROTARY};
    struct mw_model m;
    int64_t n = mw_model_param_count(&base);

    (void)state;
    /* 2 x 10 x 8 + 2 (8 x 8 + 2 x 4 x 8 + 8 x 8 + 2 x 16 x 8 + 2 x 8) */
    assert_int_equal(n, 160 + 2 * (64 + 64 + 64 + 256 + 16));
    m = base, m.tied = true;
    assert_int_equal(mw_model_param_count(&m), n - 80);
    m = base, m.final_norm = true;
    assert_int_equal(mw_model_param_count(&m), n + 8);
    m = base, m.bias_qkv = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * (8 + 2 * 4));
    m = base, m.bias_proj = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * 8);
    m = base, m.bias_mlp = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * (16 + 8));
    m = base, m.bias_head = true;
    assert_int_equal(mw_model_param_count(&m), n + 10);
    m = base, m.is_gated = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * 128);
    m = base, m.qk_norm = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * (2 + 2));
    m = base, m.sandwich_norm = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * 2 * 8);
    m = base, m.position = MW_POS_LEARNED;
    assert_int_equal(mw_model_param_count(&m), n + 48);
    m = base, m.norm = MW_NORM_LAYER, m.bias_norm = true;
    assert_int_equal(mw_model_param_count(&m), n + 2 * 2 * 8);
    m = base, m.moe.n_experts = 4, m.moe.top_k = 1, m.moe.ffn = 4,
    m.moe.every = 2;
    /* Layer 1 alone: 4 experts of 2 x 4 x 8 and a router of 4 x 8. */
    assert_int_equal(mw_model_param_count(&m), n - 256 + 256 + 32);
    assert_int_equal(mw_model_active_param_count(&m), n - 256 + 64 + 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_a_gpt),
        cmocka_unit_test(test_vectors_are_marked),
        cmocka_unit_test(test_shards_add_up),
        cmocka_unit_test(test_kv_copies),
        cmocka_unit_test(test_flags_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
