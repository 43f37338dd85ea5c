/*
 * Parameter counts against the published ones.
 *
 * Counts of checkpoints are those that Hugging Face shows for the safetensors
 * files (metadata total_parameters), activated counts those of the papers,
 * which give one to three digits. Llama-3.1-8B by hand:
 *
 *   embedding, head    2 x 128256 x 4096                   1 050 673 152
 *   32 x q, proj       2 x 4096 x 4096                        33 554 432
 *        k, v          2 x 1024 x 4096                         8 388 608
 *        gate, up,down 3 x 14336 x 4096                      176 160 768
 *        norms         2 x 4096                                    8 192
 *   final norm                                                     4 096
 *   sum  1 050 673 152 + 32 x 218 112 000 + 4 096 =        8 030 261 248
 */
#include "mw_test.h"
#include "sim/model/model.h"

#include <stdio.h>
#include <string.h>

static void test_presets(void **state)
{
    static const struct {
        const char *name;
        int64_t count;
    } rows[] = {
        {"llama2-7b", 6738415616},         {"llama2-13b", 13015864320},
        {"llama2-70b", 68976648192},       {"llama3-8b", 8030261248},
        {"llama3.1-8b", 8030261248},       {"llama3.1-70b", 70553706496},
        {"llama3.1-405b", 405853388800},   {"llama3.2-1b", 1235814400},
        {"llama3.2-3b", 3212749824},       {"gpt2", 124439808},
        {"gpt2-medium", 354823168},        {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},           {"mistral-7b", 7241732096},
        {"mixtral-8x7b", 46702792704},     {"mixtral-8x22b", 140620634112},
        {"qwen2-7b", 7615616512},          {"qwen2-72b", 72706203648},
        {"qwen2.5-0.5b", 494032768},       {"qwen2.5-1.5b", 1543714304},
        {"qwen2.5-3b", 3085938688},        {"qwen2.5-14b", 14770033664},
        {"qwen2.5-32b", 32763876352},      {"qwen3-0.6b", 596049920},
        {"qwen3-4b", 4022468096},          {"qwen3-8b", 8190735360},
        {"qwen3-32b", 32762123264},        {"qwen3-30b-a3b", 30532122624},
        {"qwen3-235b-a22b", 235093634560}, {"deepseek-v2-lite", 15706484224},
        {"deepseek-v2", 235741434880},     {"deepseek-v3", 671026419200},
        {"codellama-7b", 6738546688},      {"codellama-13b", 13016028160},
        {"codellama-34b", 33743970304},    {"tinyllama-1.1b", 1100048384},
        {"mistral-7b-v0.1", 7241732096},   {"gpt-oss-20b", 20914757184},
        {"gpt-oss-120b", 116829156672},    {"gemma2-2b", 2614341888},
        {"gemma2-9b", 9241705984},         {"gemma2-27b", 27227128320},
        {"gemma3-1b", 999885952}};
    struct mw_model m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mw_model_preset(rows[i].name, &m, NULL), MW_OK);
        if (mw_model_param_count(&m) != rows[i].count) {
            fail_msg("%s has %lld parameters, published are %lld", rows[i].name,
                     (long long)mw_model_param_count(&m),
                     (long long)rows[i].count);
        }
    }
}

/* Billions as papers round them. Nemotron-4 15B: arXiv:2402.16819 (3.2B of
 * embeddings, 12.5B of others); 340B: arXiv:2406.11704 (9.4B and 331.6B);
 * Gemma 3: arXiv:2503.19786, table 1, embedding and the rest; Grok-1, Falcon
 * 180B, Kimi K2 and Llama 4 by their names. */
static void test_rounded(void **state)
{
    static const struct {
        const char *name;
        double billions, tolerance;
    } rows[] = {{"nemotron4-15b", 15.7, 0.1},
                {"nemotron4-340b", 341, 0.1},
                {"nemotron-8b", 8.5, 0.1},
                {"nemotron-22b", 22, 1},
                {"grok1", 314, 3},
                {"falcon-180b", 180, 2},
                {"kimi-k2", 1030, 20},
                {"llama4-maverick", 400, 2},
                {"llama4-scout", 108, 1},
                {"gemma3-4b", 3.884, 0.01},
                {"gemma3-12b", 11.771, 0.01},
                {"gemma3-27b", 27.016, 0.01},
                {"gpt3-20b", 20, 0.5}};
    struct mw_model m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mw_model_preset(rows[i].name, &m, NULL), MW_OK);
        mw_assert_near((double)mw_model_param_count(&m) / 1e9, rows[i].billions,
                       0, rows[i].tolerance);
    }
}

/* Billions per token as the papers round them. Mixtral: arXiv:2401.04088
 * (13B); DeepSeek-V2: arXiv:2405.04434 (21B); -V3: arXiv:2412.19437 (37B);
 * Qwen3: arXiv:2505.09388 (3.3B and 22B). A dense model activates all. */
static void test_active(void **state)
{
    static const struct {
        const char *name;
        double billions, tolerance;
    } rows[] = {{"mixtral-8x7b", 13, 0.5},
                {"mixtral-8x22b", 39, 0.5},
                {"qwen3-30b-a3b", 3.3, 0.06},
                {"qwen3-235b-a22b", 22, 0.5},
                {"deepseek-v2-lite", 2.4, 0.3},
                {"deepseek-v2", 21, 0.5},
                {"llama4-maverick", 17, 0.5},
                {"llama4-scout", 17, 0.5},
                {"kimi-k2", 32, 1},
                {"deepseek-v3", 37, 0.6},
                {"llama3-8b", 8.030261248, 0}};
    struct mw_model m;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(mw_model_preset(rows[i].name, &m, NULL), MW_OK);
        mw_assert_near((double)mw_model_active_param_count(&m) / 1e9,
                       rows[i].billions, 0, rows[i].tolerance);
    }
}

static int64_t count_named(const struct mw_params *params, const char *prefix)
{
    int64_t sum = 0;

    for (size_t i = 0; i < params->n; i++) {
        if (strncmp(params->v[i].name, prefix, strlen(prefix)) == 0) {
            sum += mw_param_count(&params->v[i]);
        }
    }
    return sum;
}

/*
 * SC21 (arXiv:2104.04473) equation 2: P = 12 l h^2 (1 + 13 / (12 h) +
 * (V + s) / (12 l h)) = 12 l h^2 + 13 l h + (V + s) h. It leaves out the final
 * layer norm, 2 h. For GPT-3: 12 x 96 x 12288^2 = 173 946 175 488, 13 x 96 x
 * 12288 = 15 335 424, 53248 x 12288 = 654 311 424; sum 174 615 822 336.
 */
static void test_megatron_formula(void **state)
{
    static const char *const names[] = {
        "gpt3-175b", "gpt-1.7b",  "gpt-3.6b",   "gpt-7.5b",   "gpt-18.4b",
        "gpt-39.1b", "gpt-76.1b", "gpt-145.6b", "gpt-310.1b", "gpt-529.6b",
        "gpt-1008b", "gpt2-124m", "gpt-22b",    "gpt2-25b",   "gpt2-52b",
        "gpt2-97b",  "gpt2-206b"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mw_params params = {0};
        struct mw_model m;
        int64_t h, l, formula;

        assert_int_equal(mw_model_preset(names[i], &m, NULL), MW_OK);
        h = m.hidden;
        l = m.n_layers;
        formula = 12 * l * h * h + 13 * l * h + (m.vocab + m.max_seq) * h;
        mw_model_params(&m, &params);
        assert_int_equal(count_named(&params, "final_norm"), 2 * h);
        assert_int_equal(mw_model_param_count(&m) - 2 * h, formula);
        mw_array_release(&params);
    }
    assert_int_equal(INT64_C(173946175488) + 15335424 + 654311424,
                     INT64_C(174615822336));
}

/* Names of SC21's table 1 are its counts in billions. */
static void test_megatron_names(void **state)
{
    struct mw_model m;

    (void)state;
    for (size_t i = 0; mw_model_preset_name(i) != NULL; i++) {
        const char *name = mw_model_preset_name(i);
        double billions;

        if (sscanf(name, "gpt-%lfb", &billions) != 1) {
            continue;
        }
        assert_int_equal(mw_model_preset(name, &m, NULL), MW_OK);
        mw_assert_near((double)mw_model_param_count(&m) / 1e9, billions, 0.004,
                       0.051);
    }
}

/* DeepSeek-V3's README_WEIGHTS: the multi-token-prediction module has 11.5B
 * parameters of its own; they are not in the published 671B. */
static void test_mtp_is_apart(void **state)
{
    struct mw_params params = {0};
    struct mw_model m;
    int64_t mtp = 0;

    (void)state;
    assert_int_equal(mw_model_preset("deepseek-v3", &m, NULL), MW_OK);
    mw_model_params(&m, &params);
    for (size_t i = 0; i < params.n; i++) {
        if (params.v[i].is_mtp) {
            assert_int_equal(params.v[i].layer, 62);
            mtp += mw_param_count(&params.v[i]);
        }
    }
    mw_array_release(&params);
    mw_assert_near((double)mtp / 1e9, 11.5, 0, 0.2);
}

/* The same counts straight from a config.json. Pythia-1B: 1 011 781 632
 * (arXiv:2304.01373, table 1); Qwen1.5-MoE-A2.7B: 14.3B, 2.7B activated (its
 * model card). */
static void test_hf_configs(void **state)
{
    static const struct {
        const char *file;
        int64_t count;
        const char *preset; /* must agree in every size, or NULL */
    } rows[] = {{"llama-3.1-8b", 8030261248, "llama3.1-8b"},
                {"llama-3.2-1b", 1235814400, "llama3.2-1b"},
                {"mistral-7b-v0.1", 7241732096, "mistral-7b"},
                {"mixtral-8x7b-v0.1", 46702792704, "mixtral-8x7b"},
                {"gpt2", 124439808, "gpt2"},
                {"qwen2-7b", 7615616512, "qwen2-7b"},
                {"qwen1.5-moe-a2.7b", 14315784192, NULL},
                {"qwen3-8b", 8190735360, "qwen3-8b"},
                {"qwen3-30b-a3b", 30532122624, "qwen3-30b-a3b"},
                {"deepseek-v2-lite", 15706484224, "deepseek-v2-lite"},
                {"deepseek-v3", 671026419200, "deepseek-v3"},
                {"pythia-1b", 1011781632, NULL}};
    struct mw_arena arena;

    (void)state;
    mw_arena_init(&arena);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[512];
        struct mw_model m, preset;
        struct mw_err err = {0};

        snprintf(path, sizeof path, "%s/%s.json", MW_TEST_DATA, rows[i].file);
        if (mw_model_hf_config(path, &arena, &m, &err) != MW_OK) {
            fail_msg("%s", err.text);
        }
        assert_string_equal(m.name, rows[i].file);
        assert_int_equal(mw_model_param_count(&m), rows[i].count);
        if (rows[i].preset != NULL) {
            assert_int_equal(mw_model_preset(rows[i].preset, &preset, NULL),
                             MW_OK);
            assert_int_equal(mw_model_active_param_count(&m),
                             mw_model_active_param_count(&preset));
            mw_assert_near(mw_model_flops_per_token(&m, 4096, false),
                           mw_model_flops_per_token(&preset, 4096, false), 0,
                           0);
        }
    }
    mw_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_rounded),
        cmocka_unit_test(test_active),
        cmocka_unit_test(test_megatron_formula),
        cmocka_unit_test(test_megatron_names),
        cmocka_unit_test(test_mtp_is_apart),
        cmocka_unit_test(test_hf_configs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
