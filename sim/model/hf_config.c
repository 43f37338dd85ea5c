/*
 * A model from the config.json of Hugging Face transformers.
 *
 * One row per architecture says under which keys the sizes stand and which
 * properties the architecture implies; optional keys override. Field meanings
 * are those of transformers' configuration classes (configuration_llama.py
 * and so on, version 4.5x). Windows are read where `layer_types` (or what it is
 * made from) is a pattern of window.c: `sliding_window`, `use_sliding_window`,
 * `max_window_layers`, `sliding_window_pattern`, `attention_chunk_size`. Not
 * modelled: rope scaling (it changes no parameters), parallel residuals of
 * GPT-NeoX (the same operators in another order).
 */
#include "sim/model/model.h"

#include "base/json.h"
#include "base/log.h"

#include <string.h>

enum { HF_SIZE_MAX = 4 << 20, HF_INT_MAX = 1 << 24 };

/* Keys of the sizes; a family shares them. */
struct keys {
    const char *hidden, *layers, *heads, *kv_heads, *ffn, *max_seq;
};
static const struct keys llama_keys = {
    "hidden_size",         "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "intermediate_size", "max_position_embeddings"};
/* n_inner may be null: 4 n_embd. */
static const struct keys gpt2_keys = {"n_embd", "n_layer", "n_head",
                                      NULL,     "n_inner", "n_positions"};

enum family { PLAIN, MIXTRAL, QWEN_MOE, DEEPSEEK, GPT_OSS };

struct arch {
    const char *name, *model_type;
    const struct keys *keys;
    enum family family;
    struct mw_model implied;
};

#define LLAMA_IMPLIED                                                          \
    .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,          \
    .act = MW_ACT_SILU, .final_norm = true
#define GEMMA_IMPLIED                                                          \
    .is_gated = true, .norm = MW_NORM_RMS, .position = MW_POS_ROTARY,          \
    .act = MW_ACT_GELU, .tied = true, .final_norm = true,                      \
    .sandwich_norm = true
#define GPT_IMPLIED                                                            \
    .norm = MW_NORM_LAYER, .act = MW_ACT_GELU, .bias_qkv = true,               \
    .bias_proj = true, .bias_mlp = true, .bias_norm = true, .final_norm = true

/* The first row also reads unknown architectures that have all its fields. */
static const struct arch archs[] = {
    {"LlamaForCausalLM", "llama", &llama_keys, PLAIN, {LLAMA_IMPLIED}},
    {"MistralForCausalLM", "mistral", &llama_keys, PLAIN, {LLAMA_IMPLIED}},
    {"MixtralForCausalLM", "mixtral", &llama_keys, MIXTRAL, {LLAMA_IMPLIED}},
    {"Qwen2ForCausalLM",
     "qwen2",
     &llama_keys,
     PLAIN,
     {LLAMA_IMPLIED, .bias_qkv = true}},
    {"Qwen2MoeForCausalLM",
     "qwen2_moe",
     &llama_keys,
     QWEN_MOE,
     {LLAMA_IMPLIED, .bias_qkv = true, .moe.shared_gate = true}},
    {"Qwen3ForCausalLM",
     "qwen3",
     &llama_keys,
     PLAIN,
     {LLAMA_IMPLIED, .qk_norm = true}},
    {"Qwen3MoeForCausalLM",
     "qwen3_moe",
     &llama_keys,
     QWEN_MOE,
     {LLAMA_IMPLIED, .qk_norm = true}},
    {"DeepseekV2ForCausalLM",
     "deepseek_v2",
     &llama_keys,
     DEEPSEEK,
     {LLAMA_IMPLIED}},
    {"DeepseekV3ForCausalLM",
     "deepseek_v3",
     &llama_keys,
     DEEPSEEK,
     {LLAMA_IMPLIED}},
    {"GptOssForCausalLM",
     "gpt_oss",
     &llama_keys,
     GPT_OSS,
     {LLAMA_IMPLIED, .bias_qkv = true, .bias_proj = true, .sinks = true,
      .moe = {.router_bias = true, .bias = true, .clamp = true},
      .window = {.global_every = 2}}},
    {"Gemma2ForCausalLM",
     "gemma2",
     &llama_keys,
     PLAIN,
     {GEMMA_IMPLIED, .window = {.global_every = 2}}},
    {"Gemma3ForCausalLM",
     "gemma3_text",
     &llama_keys,
     PLAIN,
     {GEMMA_IMPLIED, .qk_norm = true, .window = {.global_every = 6}}},
    {"GPT2LMHeadModel",
     "gpt2",
     &gpt2_keys,
     PLAIN,
     {GPT_IMPLIED, .position = MW_POS_LEARNED, .tied = true}},
    {"GPTNeoXForCausalLM",
     "gpt_neox",
     &llama_keys,
     PLAIN,
     {GPT_IMPLIED, .position = MW_POS_ROTARY}},
};

/* A config being read. After the first failure the readers do nothing. */
struct reader {
    const char *path;
    const json_t *root;
    enum mw_status st;
    struct mw_err *err;
};

static bool is_absent(const struct reader *r, const char *key)
{
    const json_t *v = key == NULL ? NULL : json_object_get(r->root, key);

    return v == NULL || json_is_null(v);
}

/* A whole number in [min, HF_INT_MAX]; absent or null leaves *out alone. */
static void read_int(struct reader *r, const char *key, int min, int *out)
{
    const json_t *v;

    if (r->st != MW_OK || is_absent(r, key)) {
        return;
    }
    v = json_object_get(r->root, key);
    if (!json_is_integer(v) || json_integer_value(v) < min ||
        json_integer_value(v) > HF_INT_MAX) {
        r->st = mw_fail(r->err, MW_EINPUT,
                        "%s: '%s' must be a whole number from %d to %d",
                        r->path, key, min, (int)HF_INT_MAX);
        return;
    }
    *out = (int)json_integer_value(v);
}

static void need_int(struct reader *r, const char *key, int min, int *out)
{
    if (r->st == MW_OK && is_absent(r, key)) {
        r->st = mw_fail(r->err, MW_EINPUT, "%s: '%s' is missing", r->path, key);
        return;
    }
    read_int(r, key, min, out);
}

static void read_bool(struct reader *r, const char *key, bool *out)
{
    const json_t *v;

    if (r->st != MW_OK || is_absent(r, key)) {
        return;
    }
    v = json_object_get(r->root, key);
    if (!json_is_boolean(v)) {
        r->st = mw_fail(r->err, MW_EINPUT, "%s: '%s' must be true or false",
                        r->path, key);
        return;
    }
    *out = json_is_true(v);
}

/* ---- one family after the other ------------------------------------------ */
static void read_sizes(struct reader *r, const struct keys *k,
                       struct mw_model *m)
{
    need_int(r, k->hidden, 1, &m->hidden);
    need_int(r, k->layers, 1, &m->n_layers);
    need_int(r, k->heads, 1, &m->n_heads);
    need_int(r, "vocab_size", 1, &m->vocab);
    m->n_kv_heads = m->n_heads;
    read_int(r, k->kv_heads, 1, &m->n_kv_heads);
    if (k == &gpt2_keys) {
        m->ffn = m->hidden <= HF_INT_MAX / 4 ? 4 * m->hidden : m->hidden;
        read_int(r, k->ffn, 1, &m->ffn);
    } else {
        need_int(r, k->ffn, 1, &m->ffn);
    }
    read_int(r, k->max_seq, 1, &m->max_seq);
    read_int(r, "head_dim", 1, &m->head_dim);
    if (r->st == MW_OK && m->head_dim == 0) {
        if (m->hidden % m->n_heads != 0) {
            r->st = mw_fail(r->err, MW_EINPUT,
                            "%s: %d heads do not divide the hidden size %d and "
                            "'head_dim' is missing",
                            r->path, m->n_heads, m->hidden);
            return;
        }
        m->head_dim = m->hidden / m->n_heads;
    }
}

static void read_flags(struct reader *r, const struct arch *arch,
                       struct mw_model *m)
{
    read_bool(r, "tie_word_embeddings", &m->tied);
    if (arch->keys == &llama_keys && arch->implied.is_gated) {
        bool has_bias = m->bias_proj;

        /* Llama's flag gives all four projections a bias; DeepSeek and Qwen3
         * have the same key with the same meaning. */
        read_bool(r, "attention_bias", &has_bias);
        m->bias_qkv = m->bias_qkv || has_bias;
        m->bias_proj = has_bias;
        read_bool(r, "mlp_bias", &m->bias_mlp);
    }
}

static void read_activation(struct reader *r, struct mw_model *m)
{
    const char *key =
        is_absent(r, "hidden_act") ? "activation_function" : "hidden_act";
    const json_t *v = json_object_get(r->root, key);
    const char *name = json_is_string(v) ? json_string_value(v) : NULL;

    if (r->st != MW_OK || name == NULL) {
        return;
    }
    if (strstr(name, "gelu") != NULL) {
        m->act = MW_ACT_GELU;
    } else if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) {
        m->act = MW_ACT_SILU;
    } else if (strcmp(name, "relu") == 0) {
        m->act = MW_ACT_RELU;
    } else {
        r->st = mw_fail(r->err, MW_EINPUT,
                        "%s: activation '%s' is not known; gelu, silu and relu "
                        "are",
                        r->path, name);
    }
}

/* mlp_only_layers must be the leading layers 0, 1, ..., or none. */
static void read_dense_layers(struct reader *r, struct mw_moe *moe)
{
    const json_t *list = json_object_get(r->root, "mlp_only_layers");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) != (json_int_t)i) {
            r->st = mw_fail(r->err, MW_EINPUT,
                            "%s: 'mlp_only_layers' is read only when it counts "
                            "the leading layers 0, 1, ...",
                            r->path);
            return;
        }
    }
    moe->first_dense = (int)json_array_size(list);
}

static void read_qwen_moe(struct reader *r, struct mw_moe *moe)
{
    int shared = 0;

    need_int(r, "num_experts", 1, &moe->n_experts);
    need_int(r, "num_experts_per_tok", 1, &moe->top_k);
    need_int(r, "moe_intermediate_size", 1, &moe->ffn);
    read_int(r, "shared_expert_intermediate_size", 0, &shared);
    moe->shared_ffn = shared;
    moe->n_shared = shared > 0;
    moe->every = 1;
    read_int(r, "decoder_sparse_step", 1, &moe->every);
    if (r->st == MW_OK) {
        read_dense_layers(r, moe);
    }
}

static void read_deepseek_moe(struct reader *r, struct mw_moe *moe)
{
    const json_t *method = json_object_get(r->root, "topk_method");
    int freq = 1;

    need_int(r, "n_routed_experts", 1, &moe->n_experts);
    need_int(r, "num_experts_per_tok", 1, &moe->top_k);
    need_int(r, "moe_intermediate_size", 1, &moe->ffn);
    read_int(r, "n_shared_experts", 0, &moe->n_shared);
    read_int(r, "first_k_dense_replace", 0, &moe->first_dense);
    read_int(r, "moe_layer_freq", 1, &freq);
    if (r->st == MW_OK && freq != 1) {
        r->st = mw_fail(r->err, MW_EINPUT,
                        "%s: 'moe_layer_freq' is %d; only 1 is read", r->path,
                        freq);
    }
    if (r->st == MW_OK && moe->n_shared > HF_INT_MAX / moe->ffn) {
        r->st =
            mw_fail(r->err, MW_EINPUT, "%s: 'n_shared_experts' %d is too large",
                    r->path, moe->n_shared);
    }
    if (r->st == MW_OK) {
        moe->shared_ffn = moe->n_shared * moe->ffn;
        moe->router_bias = json_is_string(method) &&
                           strcmp(json_string_value(method), "noaux_tc") == 0;
    }
}

static void read_deepseek(struct reader *r, struct mw_model *m)
{
    m->mla.on = true;
    read_int(r, "q_lora_rank", 0, &m->mla.q_lora);
    need_int(r, "kv_lora_rank", 1, &m->mla.kv_lora);
    need_int(r, "qk_rope_head_dim", 1, &m->mla.rope_dim);
    need_int(r, "qk_nope_head_dim", 1, &m->mla.nope_dim);
    need_int(r, "v_head_dim", 1, &m->mla.v_dim);
    read_int(r, "num_nextn_predict_layers", 0, &m->n_mtp);
    m->head_dim = mw_model_qk_dim(m);
    m->n_kv_heads = m->n_heads;
    read_deepseek_moe(r, &m->moe);
}

static void read_family(struct reader *r, enum family family,
                        struct mw_model *m)
{
    switch (family) {
    case PLAIN:
        break;
    case MIXTRAL:
        need_int(r, "num_local_experts", 1, &m->moe.n_experts);
        need_int(r, "num_experts_per_tok", 1, &m->moe.top_k);
        m->moe.ffn = m->ffn;
        break;
    case QWEN_MOE:
        read_qwen_moe(r, &m->moe);
        break;
    case DEEPSEEK:
        read_deepseek(r, m);
        break;
    case GPT_OSS:
        need_int(r, "num_local_experts", 1, &m->moe.n_experts);
        m->moe.top_k = 4; /* the class's own */
        read_int(r, "experts_per_token", 1, &m->moe.top_k);
        read_int(r, "num_experts_per_tok", 1, &m->moe.top_k);
        m->moe.ffn = m->ffn;
        break;
    }
}

/* ---- windows --------------------------------------------------------------
 */
/* Is a layer's type a window's? Fails on types that are no attention. */
static bool is_local_type(struct reader *r, const json_t *type, bool *out_chunk)
{
    const char *name = json_string_value(type);

    *out_chunk = name != NULL && strcmp(name, "chunked_attention") == 0;
    if (name != NULL &&
        (*out_chunk || strcmp(name, "sliding_attention") == 0)) {
        return true;
    }
    if (name == NULL || strcmp(name, "full_attention") != 0) {
        r->st = mw_fail(r->err, MW_EINPUT,
                        "%s: 'layer_types' has '%s'; full_attention, "
                        "sliding_attention and chunked_attention are read",
                        r->path, name != NULL ? name : "a value of no name");
    }
    return false;
}

/* The pattern that gives the same layers: leading ones without a window, then
 * one without in every k, those whose number divides by k. */
static void fit_pattern(struct reader *r, const json_t *types,
                        struct mw_model *m)
{
    struct mw_window *w = &m->window;
    bool chunk, is_any = false;
    int n = (int)json_array_size(types), first = -1;

    w->first_global = w->global_every = 0;
    for (int i = 0; i < n && r->st == MW_OK; i++) {
        bool local = is_local_type(r, json_array_get(types, (size_t)i), &chunk);

        w->form = chunk ? MW_WINDOW_CHUNKED : w->form;
        first = local && first < 0 ? i : first;
        if (!local && first >= 0 && w->global_every == 0) {
            w->global_every = i + 1;
        }
        is_any = is_any || local;
    }
    if (r->st != MW_OK || !is_any) {
        w->tokens = 0;
        w->global_every = 0;
        return;
    }
    w->first_global = first;
    for (int i = 0; i < n && r->st == MW_OK; i++) {
        if (is_local_type(r, json_array_get(types, (size_t)i), &chunk) !=
            mw_model_layer_is_local(m, i)) {
            r->st = mw_fail(r->err, MW_EINPUT,
                            "%s: 'layer_types' is read where layers without a "
                            "window lead, or are each k-th one; layer %d is "
                            "neither",
                            r->path, i);
        }
    }
}

/* What a config does not say is what its class takes (implied). */
static void read_window(struct reader *r, struct mw_model *m)
{
    const json_t *types = json_object_get(r->root, "layer_types");
    struct mw_window *w = &m->window;
    bool is_used = true;

    read_bool(r, "use_sliding_window", &is_used);
    if (is_used) {
        read_int(r, "sliding_window", 1, &w->tokens);
        if (json_is_array(types)) { /* else not known which layers */
            read_int(r, "attention_chunk_size", 1, &w->tokens);
        }
        read_int(r, "sliding_window_pattern", 1, &w->global_every);
        if (!is_absent(r, "use_sliding_window")) {
            read_int(r, "max_window_layers", 0, &w->first_global);
        }
    }
    if (r->st == MW_OK && w->tokens > 0 && json_is_array(types)) {
        fit_pattern(r, types, m);
    }
    if (r->st == MW_OK &&
        (w->tokens == 0 || mw_model_local_layers(m, m->n_layers) == 0)) {
        *w = (struct mw_window){.tokens = 0};
    }
}

/* ---- which architecture ---------------------------------------------------
 */
/* architectures[0], or model_type where there is none; NULL when neither. */
static const char *arch_name(const json_t *root)
{
    const json_t *first =
        json_array_get(json_object_get(root, "architectures"), 0);
    const char *name = json_string_value(first);

    return name != NULL
               ? name
               : json_string_value(json_object_get(root, "model_type"));
}

/* Fields of a Llama that a config lacks, joined by ", "; empty: none. */
static void list_lacking(const struct reader *r, struct mw_str *out)
{
    const char *const needed[] = {llama_keys.hidden, llama_keys.layers,
                                  llama_keys.heads, llama_keys.ffn,
                                  "vocab_size"};

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (is_absent(r, needed[i])) {
            mw_str_addf(out, "%s%s", out->n > 0 ? ", " : "", needed[i]);
        }
    }
}

static const struct arch *unknown_arch(struct reader *r, const char *name)
{
    struct mw_str lacking = {0};
    const struct arch *found = NULL;

    list_lacking(r, &lacking);
    if (lacking.n > 0) {
        r->st = mw_fail(r->err, MW_EINPUT,
                        "%s: unknown architecture %s: not read; it lacks "
                        "fields: %s",
                        r->path, name, lacking.s);
    } else {
        mw_log(MW_LOG_WARN, "model",
               "%s: unknown architecture %s has the fields of a Llama and is "
               "read as one",
               r->path, name);
        found = &archs[0];
    }
    mw_str_release(&lacking);
    return found;
}

static const struct arch *find_arch(struct reader *r)
{
    const char *name = arch_name(r->root);

    for (size_t i = 0; name != NULL && i < sizeof archs / sizeof *archs; i++) {
        if (strcmp(name, archs[i].name) == 0 ||
            strcmp(name, archs[i].model_type) == 0) {
            return &archs[i];
        }
    }
    return unknown_arch(r, name != NULL ? name : "(none given)");
}

/* "DIR/llama/config.json" is called "llama", "DIR/llama.json" as well. */
static const char *name_of(const char *path, struct mw_arena *arena)
{
    const char *slash = strrchr(path, '/');
    const char *start = slash != NULL ? slash + 1 : path;
    const char *end = strrchr(start, '.');

    if (end == NULL || end == start) {
        end = start + strlen(start);
    }
    if (slash != NULL && slash > path && strcmp(start, "config.json") == 0) {
        end = slash;
        start = slash;
        while (start > path && start[-1] != '/') {
            start--;
        }
    }
    return mw_arena_printf(arena, "%.*s", (int)(end - start), start);
}

static enum mw_status read_model(struct reader *r, struct mw_model *out)
{
    const struct arch *arch = find_arch(r);
    struct mw_err why = {0};
    struct mw_model m;

    if (arch == NULL) {
        return r->st;
    }
    m = arch->implied;
    read_sizes(r, arch->keys, &m);
    read_flags(r, arch, &m);
    read_activation(r, &m);
    read_family(r, arch->family, &m);
    read_window(r, &m);
    if (r->st == MW_OK && mw_model_check(&m, &why) != MW_OK) {
        r->st = mw_fail(r->err, MW_EINPUT, "%s: %s", r->path, why.text);
    }
    if (r->st == MW_OK) {
        *out = m;
    }
    return r->st;
}

enum mw_status mw_model_hf_config(const char *path, struct mw_arena *arena,
                                  struct mw_model *out, struct mw_err *err)
{
    struct reader r = {.path = path, .st = MW_OK, .err = err};
    json_t *root = NULL;
    enum mw_status st = mw_json_load(path, HF_SIZE_MAX, &root, err);

    if (st != MW_OK) {
        return st;
    }
    r.root = root;
    if (!json_is_object(root)) {
        st = mw_fail(err, MW_EINPUT, "%s: not a JSON object", path);
    } else {
        st = read_model(&r, out);
        if (st == MW_OK) {
            out->name = name_of(path, arena);
        }
    }
    json_decref(root);
    return st;
}
