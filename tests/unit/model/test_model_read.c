/* The `model:` node and config.json: what is read, what is refused. */
#include "mw_test.h"
#include "base/file.h"
#include "sim/model/model.h"

#include <string.h>

/* Reads a model node from text; the message goes to err. */
static enum mw_status read_text(const char *text, struct mw_arena *arena,
                                struct mw_model *out, struct mw_err *err)
{
    struct mw_yaml *doc;
    enum mw_status st = mw_yaml_parse("m.yaml", text, strlen(text), &doc, err);

    assert_int_equal(st, MW_OK);
    st = mw_model_read(mw_yaml_root(doc), ".", arena, out, err);
    mw_yaml_free(doc);
    return st;
}

static void test_forms(void **state)
{
    struct mw_arena arena;
    struct mw_model m;

    (void)state;
    mw_arena_init(&arena);
    assert_int_equal(read_text("Llama-3-8B\n", &arena, &m, NULL), MW_OK);
    assert_string_equal(m.name, "llama3-8b");
    assert_int_equal(
        read_text("{preset: gpt2, layers: 6, name: half}\n", &arena, &m, NULL),
        MW_OK);
    assert_string_equal(m.name, "half");
    assert_int_equal(m.n_layers, 6);
    assert_int_equal(m.hidden, 768);
    /* Sizes that follow from an overridden one follow. */
    assert_int_equal(read_text("{preset: gpt2, hidden: 1024, heads: 16}\n",
                               &arena, &m, NULL),
                     MW_OK);
    assert_int_equal(m.head_dim, 64);
    assert_int_equal(m.n_kv_heads, 16);
    assert_int_equal(
        read_text("{hidden: 64, layers: 2, heads: 4, ffn: 96, vocab: 100,\n"
                  " kv_heads: 2, norm: layer, bias_norm: true,\n"
                  " moe: {experts: 8, top_k: 2, ffn: 32},\n"
                  " mla: {kv_lora: 16, rope_dim: 4, nope_dim: 8, v_dim: 8}}\n",
                  &arena, &m, NULL),
        MW_OK);
    assert_int_equal(m.head_dim, 16);
    assert_int_equal(m.n_kv_heads, 2);
    assert_int_equal(m.norm, MW_NORM_LAYER);
    assert_int_equal(m.moe.n_experts, 8);
    assert_true(m.mla.on);
    assert_true(m.is_gated);
    mw_arena_release(&arena);
}

static void expect_error(const char *text, const char *expected)
{
    struct mw_arena arena;
    struct mw_model m = {.hidden = -7};
    struct mw_err err = {0};

    mw_arena_init(&arena);
    assert_int_equal(read_text(text, &arena, &m, &err), MW_EINPUT);
    if (strncmp(err.text, expected, strlen(expected)) != 0) {
        fail_msg("message is\n%s\nnot\n%s", err.text, expected);
    }
    assert_int_equal(m.hidden, -7); /* outputs only on success */
    mw_arena_release(&arena);
}

static void test_bad_nodes(void **state)
{
    (void)state;
    expect_error("lama3-8b\n", "m.yaml:1:1: unknown model preset 'lama3-8b'; "
                               "did you mean 'llama3-8b'?");
    expect_error("colossus\n", "m.yaml:1:1: unknown model preset 'colossus'; "
                               "presets are");
    expect_error("[a, b]\n", "m.yaml:1:1: model is a preset's name or");
    expect_error("{preset: gpt2, hf_config: x.json}\n",
                 "m.yaml:1:27: both 'preset' and 'hf_config'");
    expect_error("{hidden: 64, layers: 2}\n",
                 "m.yaml:1:1: model lacks 'heads', 'ffn', 'vocab'");
    expect_error("{preset: gpt2, layer: 2}\n", "m.yaml:1:16: unknown key");
    expect_error("{preset: gpt2, hidden: -4}\n", "m.yaml:1:24: 'hidden' is -4");
    expect_error("{preset: gpt2, kv_heads: 5}\n",
                 "m.yaml:1:1: kv_heads 5 does not divide heads 12");
    expect_error("{preset: mixtral-8x7b, moe: {top_k: 9}}\n",
                 "m.yaml:1:1: moe.top_k is 9; it must be 1 to the 8 experts");
    expect_error("{preset: gpt2, moe: {experts: 4, top_k: 1}}\n",
                 "m.yaml:1:1: moe.ffn is 0");
    expect_error(
        "{preset: gpt2, hidden: 16777216, layers: 10000}\n",
        "m.yaml:1:1: the model has 1.55e+15 parameters; at most 1e+15");
    expect_error("{preset: gpt2, heads: 16777216, head_dim: 16777216}\n",
                 "m.yaml:1:1: 16777216 heads of 16777216 elements");
    expect_error("{hf_config: nowhere.json}\n", "./nowhere.json: ");
    expect_error("{preset: [1]}\n", "m.yaml:1:10: a preset is a name");
    expect_error("{hidden: 8, layers: 1, heads: 2, ffn: 8, vocab: 8, position: "
                 "learned}\n",
                 "m.yaml:1:1: learned positions need max_seq");
}

/* What says which layers have a window needs one, and leaves it a layer; a
 * window of 0 tokens takes a preset's away. */
static void test_windows(void **state)
{
    struct mw_arena arena;
    struct mw_model m;

    (void)state;
    mw_arena_init(&arena);
    expect_error("{preset: llama3-8b, global_every: 2}\n",
                 "m.yaml:1:1: global_every, first_global and window_form say "
                 "which layers have a window and of which form; give "
                 "attention_window");
    expect_error(
        "{preset: llama3-8b, attention_window: 128, global_every: 1}\n",
        "m.yaml:1:1: global_every 1 and first_global 0 leave none of "
        "the 32 layers a window of 128 tokens");
    expect_error("{preset: llama3-8b, attention_window: 128, first_global: "
                 "32}\n",
                 "m.yaml:1:1: global_every 0 and first_global 32 leave none");
    expect_error("{preset: llama3-8b, attention_window: -1}\n",
                 "m.yaml:1:39: 'attention_window' is -1");
    expect_error(
        "{preset: llama3-8b, attention_window: 8, window_form: ring}\n",
        "m.yaml:1:55: 'window_form' is 'ring'; allowed: sliding, chunked");
    expect_error("{preset: gpt-oss-20b, attention_window: 0, global_every: "
                 "2}\n",
                 "m.yaml:1:1: global_every, first_global and window_form");
    assert_int_equal(read_text("{preset: gpt-oss-20b, attention_window: 0}\n",
                               &arena, &m, NULL),
                     MW_OK);
    assert_int_equal(m.window.global_every, 0);
    assert_true(m.sinks);
    assert_int_equal(
        read_text("{preset: llama3-8b, attention_window: 8192, global_every: "
                  "4, window_form: chunked, attention_sinks: true}\n",
                  &arena, &m, NULL),
        MW_OK);
    assert_int_equal(m.window.form, MW_WINDOW_CHUNKED);
    assert_int_equal(mw_model_local_layers(&m, 32), 24);
    mw_arena_release(&arena);
}

/* ---- config.json ------------------------------------------------------------
 */
static void read_config(const char *text, enum mw_status expected,
                        const char *message, struct mw_model *m)
{
    static const char path[] = "test_model_read.json";
    struct mw_arena arena;
    struct mw_err err = {0};
    struct mw_outfile o;

    assert_int_equal(mw_outfile_open(&o, path, NULL), MW_OK);
    fputs(text, o.f);
    assert_int_equal(mw_outfile_commit(&o, NULL), MW_OK);
    mw_arena_init(&arena);
    assert_int_equal(mw_model_hf_config(path, &arena, m, &err), expected);
    mw_arena_release(&arena);
    remove(path);
    if (strstr(err.text, message) == NULL) {
        fail_msg("message is\n%s\nwithout\n%s", err.text, message);
    }
}

#define SIZES                                                                  \
    "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": " \
    "4, \"intermediate_size\": 96, \"vocab_size\": 100"

static void test_unknown_architecture(void **state)
{
    struct mw_model m;

    (void)state;
    read_config("{\"architectures\": [\"BloomForCausalLM\"], \"hidden_size\": "
                "1024, \"n_head\": 16, \"vocab_size\": 250880}",
                MW_EINPUT,
                "test_model_read.json: unknown architecture BloomForCausalLM: "
                "not read; it lacks fields: num_hidden_layers, "
                "num_attention_heads, intermediate_size",
                &m);
    read_config("{}", MW_EINPUT, "unknown architecture (none given): not read",
                &m);
    /* With every field of a Llama it is read as one (and a warning logged). */
    read_config("{\"architectures\": [\"YiForCausalLM\"], " SIZES "}", MW_OK,
                "", &m);
    assert_int_equal(m.norm, MW_NORM_RMS);
    assert_int_equal(m.head_dim, 16);
}

#define LAYERED(type, n)                                                       \
    "{\"model_type\": \"" type "\", \"hidden_size\": 64, "                     \
    "\"num_hidden_layers\": " n ", \"num_attention_heads\": 4, "               \
    "\"intermediate_size\": 96, \"vocab_size\": 100, "
#define S "\"sliding_attention\""
#define C "\"chunked_attention\""
#define F "\"full_attention\""

/* Windows as transformers' classes have them: of all layers (Mistral), of those
 * from max_window_layers on where use_sliding_window is true (Qwen2), of a
 * pattern (gpt_oss, gemma3_text), or as layer_types says. */
static void test_window_configs(void **state)
{
    static const struct {
        const char *text;
        struct mw_window window;
    } rows[] = {
        {LAYERED("mistral", "4") "\"sliding_window\": 16}", {16, 0, 0, 0}},
        {LAYERED("mistral", "4") "\"sliding_window\": null}", {0, 0, 0, 0}},
        {LAYERED("qwen2", "4") "\"sliding_window\": 16, "
                               "\"use_sliding_window\": false, "
                               "\"max_window_layers\": 2}",
         {0, 0, 0, 0}},
        {LAYERED("qwen2", "4") "\"sliding_window\": 16, "
                               "\"use_sliding_window\": true, "
                               "\"max_window_layers\": 2}",
         {16, 0, 2, 0}},
        {LAYERED("qwen2", "4") "\"sliding_window\": 16, "
                               "\"use_sliding_window\": true, "
                               "\"max_window_layers\": 4}",
         {0, 0, 0, 0}},
        {LAYERED("gemma2", "4") "\"sliding_window\": 16}", {16, 2, 0, 0}},
        {LAYERED("gemma3_text", "12") "\"sliding_window\": 16}", {16, 6, 0, 0}},
        {LAYERED("gemma3_text", "12") "\"sliding_window\": 16, "
                                      "\"sliding_window_pattern\": 4}",
         {16, 4, 0, 0}},
        {LAYERED("gpt_oss", "4") "\"sliding_window\": 16, "
                                 "\"num_local_experts\": 8, "
                                 "\"num_experts_per_tok\": 2, "
                                 "\"attention_bias\": true, "
                                 "\"layer_types\": [" S "," F "," S "," F "]}",
         {16, 2, 0, 0}},
        {LAYERED("llama", "5") "\"attention_chunk_size\": 16, "
                               "\"layer_types\": [" C "," C "," C "," F "," C
                               "]}",
         {16, 4, 0, MW_WINDOW_CHUNKED}},
        {LAYERED("llama", "4") "\"sliding_window\": 16, "
                               "\"layer_types\": [" F "," F "," S "," S "]}",
         {16, 0, 2, 0}},
        {LAYERED("llama", "2") "\"sliding_window\": 16, "
                               "\"layer_types\": [" F "," F "]}",
         {0, 0, 0, 0}}};
    struct mw_model m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        read_config(rows[i].text, MW_OK, "", &m);
        assert_int_equal(m.window.tokens, rows[i].window.tokens);
        assert_int_equal(m.window.global_every, rows[i].window.global_every);
        assert_int_equal(m.window.first_global, rows[i].window.first_global);
        assert_int_equal(m.window.form, rows[i].window.form);
    }
    read_config(rows[8].text, MW_OK, "", &m);
    assert_true(m.sinks && m.moe.bias && m.moe.router_bias && m.bias_proj);
    assert_int_equal(m.moe.top_k, 2);
    read_config(LAYERED("llama", "4") "\"sliding_window\": 16, "
                                      "\"layer_types\": [" S "," F "," F "," S
                                      "]}",
                MW_EINPUT, "layer 2 is neither", &m);
    read_config(LAYERED("llama", "2") "\"sliding_window\": 16, "
                                      "\"layer_types\": [" S
                                      ", \"linear_attention\"]}",
                MW_EINPUT, "'layer_types' has 'linear_attention'", &m);
    read_config(LAYERED("llama", "2") "\"sliding_window\": 0}", MW_EINPUT,
                "'sliding_window' must be a whole number from 1", &m);
}

static void test_bad_configs(void **state)
{
    struct mw_model m;

    (void)state;
    read_config("[1, 2]", MW_EINPUT, "not a JSON object", &m);
    read_config("{\"architectures\": ", MW_EINPUT, "test_model_read.json:", &m);
    read_config("{\"model_type\": \"llama\", \"hidden_size\": 64}", MW_EINPUT,
                "'num_hidden_layers' is missing", &m);
    read_config("{\"model_type\": \"llama\", \"hidden_size\": \"64\"}",
                MW_EINPUT, "'hidden_size' must be a whole number", &m);
    read_config("{\"model_type\": \"llama\", \"hidden_size\": 1e3}", MW_EINPUT,
                "'hidden_size' must be a whole number", &m);
    read_config("{\"model_type\": \"llama\", \"hidden_size\": "
                "99999999999999999}",
                MW_EINPUT, "'hidden_size' must be a whole number", &m);
    read_config("{\"model_type\": \"llama\", " SIZES
                ", \"tie_word_embeddings\": 1}",
                MW_EINPUT, "'tie_word_embeddings' must be true or false", &m);
    read_config("{\"model_type\": \"llama\", " SIZES
                ", \"num_key_value_heads\": 3}",
                MW_EINPUT, "kv_heads 3 does not divide heads 4", &m);
    read_config("{\"model_type\": \"llama\", " SIZES
                ", \"hidden_act\": \"tanh\"}",
                MW_EINPUT, "activation 'tanh' is not known", &m);
    read_config("{\"model_type\": \"mixtral\", " SIZES "}", MW_EINPUT,
                "'num_local_experts' is missing", &m);
    read_config("{\"model_type\": \"qwen3_moe\", " SIZES
                ", \"num_experts\": 8, \"num_experts_per_tok\": 2, "
                "\"moe_intermediate_size\": 32, \"mlp_only_layers\": [1]}",
                MW_EINPUT, "'mlp_only_layers' is read only when", &m);
    read_config("{\"model_type\": \"deepseek_v3\", " SIZES
                ", \"kv_lora_rank\": 16, \"qk_rope_head_dim\": 4, "
                "\"qk_nope_head_dim\": 8, \"v_head_dim\": 8, "
                "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
                "\"moe_intermediate_size\": 8, \"moe_layer_freq\": 2}",
                MW_EINPUT, "'moe_layer_freq' is 2; only 1 is read", &m);
}

static void test_flags_of_a_config(void **state)
{
    struct mw_model m;

    (void)state;
    read_config("{\"model_type\": \"llama\", " SIZES
                ", \"attention_bias\": true, \"mlp_bias\": true, "
                "\"tie_word_embeddings\": true, \"head_dim\": 32}",
                MW_OK, "", &m);
    assert_true(m.bias_qkv && m.bias_proj && m.bias_mlp && m.tied);
    assert_int_equal(m.head_dim, 32);
    read_config("{\"model_type\": \"qwen2\", " SIZES ", \"head_dim\": null}",
                MW_OK, "", &m);
    assert_true(m.bias_qkv && !m.bias_proj && !m.tied);
    assert_int_equal(m.head_dim, 16);
    read_config("{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 2, "
                "\"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 32}",
                MW_OK, "", &m);
    assert_true(m.tied && m.bias_mlp);
    assert_int_equal(m.ffn, 32);
    assert_int_equal(m.max_seq, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_bad_nodes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_window_configs),
        cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_bad_configs),
        cmocka_unit_test(test_flags_of_a_config),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
