/*
 * The `model:` node of a scenario: a preset's name, a mapping with `preset` or
 * `hf_config` and overrides, or all sizes spelt out (docs/scenario.md).
 * A model spelt out starts from Llama's properties: RMSNorm, rotary positions,
 * SwiGLU, no biases, untied head.
 */
#include "sim/model/model.h"

#include <stddef.h>
#include <string.h>

#define AT(member) offsetof(struct mw_model, member)
#define SIZE_ROW(k, member, low, high, text)                                   \
    {                                                                          \
        .key = k, .type = MW_F_INT32, .offset = AT(member), .min = (low),      \
        .max = (high), .doc = text                                             \
    }
#define BOOL_ROW(k, member, text)                                              \
    {                                                                          \
        .key = k, .type = MW_F_BOOL, .offset = AT(member), .doc = text         \
    }
#define ENUM_ROW(k, member, table, text)                                       \
    {                                                                          \
        .key = k, .type = MW_F_ENUM, .offset = AT(member), .enums = table,     \
        .doc = text                                                            \
    }

/* Offsets in these two start at the nested struct. */
#define MOE_ROW(k, member, low, text)                                          \
    {                                                                          \
        .key = k, .type = MW_F_INT32,                                          \
        .offset = offsetof(struct mw_moe, member), .min = (low),               \
        .max = 1 << 24, .doc = text                                            \
    }
static const struct mw_field moe_fields[] = {
    MOE_ROW("experts", n_experts, 0, "routed experts of a layer; 0: none"),
    MOE_ROW("top_k", top_k, 0, "routed experts per token"),
    MOE_ROW("ffn", ffn, 0, "intermediate size of one routed expert"),
    MOE_ROW("shared", n_shared, 0, "shared experts"),
    MOE_ROW("shared_ffn", shared_ffn, 0,
            "intermediate size of the shared experts together"),
    MOE_ROW("first_dense", first_dense, 0, "leading layers with a dense MLP"),
    MOE_ROW("every", every, 0, "an MoE layer each so many layers"),
    {.key = "shared_gate",
     .type = MW_F_BOOL,
     .offset = offsetof(struct mw_moe, shared_gate),
     .doc = "sigmoid gate on the shared experts"},
    {.key = "router_bias",
     .type = MW_F_BOOL,
     .offset = offsetof(struct mw_moe, router_bias),
     .doc = "bias of each expert in the router"},
    {.key = "bias",
     .type = MW_F_BOOL,
     .offset = offsetof(struct mw_moe, bias),
     .doc = "biases of the routed experts' products"},
    {.key = "clamp",
     .type = MW_F_BOOL,
     .offset = offsetof(struct mw_moe, clamp),
     .doc = "gates and ups of experts are clamped"},
    MOE_ROW("node_limit", node_limit, 0,
            "a token's experts lie on so many nodes at most; 0: any"),
    {.key = "fp8_dispatch",
     .type = MW_F_BOOL,
     .offset = offsetof(struct mw_moe, fp8_dispatch),
     .doc = "tokens go to the experts in FP8"},
    MW_FIELD_END};

#define MLA_ROW(k, member, low, need, text)                                    \
    {                                                                          \
        .key = k, .type = MW_F_INT32,                                          \
        .offset = offsetof(struct mw_mla, member), .min = (low),               \
        .max = 1 << 24, .required = need, .doc = text                          \
    }
static const struct mw_field mla_fields[] = {
    MLA_ROW("q_lora", q_lora, 0, false, "query latent; 0: none"),
    MLA_ROW("kv_lora", kv_lora, 1, true, "key-value latent"),
    MLA_ROW("rope_dim", rope_dim, 1, true, "rotary elements of a head"),
    MLA_ROW("nope_dim", nope_dim, 1, true, "other elements of a query head"),
    MLA_ROW("v_dim", v_dim, 1, true, "elements of a value head"),
    MW_FIELD_END};

#define MODEL_FIELD_ROWS                                                       \
    SIZE_ROW("hidden", hidden, 1, 1 << 24, "width of the residual stream"),    \
        SIZE_ROW("layers", n_layers, 1, 10000, "decoder layers"),              \
        SIZE_ROW("heads", n_heads, 1, 1 << 24, "query heads"),                 \
        SIZE_ROW("kv_heads", n_kv_heads, 1, 1 << 24, "key and value heads"),   \
        SIZE_ROW("head_dim", head_dim, 1, 1 << 24, "elements of a head"),      \
        SIZE_ROW("ffn", ffn, 1, 1 << 24, "intermediate size of the MLP"),      \
        SIZE_ROW("vocab", vocab, 1, 1 << 24, "vocabulary, padding included"),  \
        SIZE_ROW("max_seq", max_seq, 0, 1 << 24,                               \
                 "length of a learned position table"),                        \
        BOOL_ROW("gated", is_gated, "gate and up projections (SwiGLU)"),       \
        ENUM_ROW("norm", norm, mw_norm_enums, "kind of norm"),                 \
        ENUM_ROW("position", position, mw_position_enums, "positions"),        \
        ENUM_ROW("activation", act, mw_activation_enums, "MLP activation"),    \
        BOOL_ROW("tied", tied, "head and embedding share their matrix"),       \
        BOOL_ROW("bias_qkv", bias_qkv, "bias of query, key and value"),        \
        BOOL_ROW("bias_proj", bias_proj, "bias of the attention output"),      \
        BOOL_ROW("bias_mlp", bias_mlp, "biases of the MLP"),                   \
        BOOL_ROW("bias_norm", bias_norm, "biases of layer norms"),             \
        BOOL_ROW("bias_head", bias_head, "bias of the head"),                  \
        BOOL_ROW("qk_norm", qk_norm, "norm of each query and key head"),       \
        BOOL_ROW("final_norm", final_norm, "norm before the head"),            \
        BOOL_ROW("sandwich_norm", sandwich_norm,                               \
                 "norms after attention and MLP as well"),                     \
        SIZE_ROW("attention_window", window.tokens, 0, 1 << 24,                \
                 "tokens that a query meets at most; 0: all before it"),       \
        SIZE_ROW("global_every", window.global_every, 0, 10000,                \
                 "of so many layers the last meets all tokens; 0: none"),      \
        SIZE_ROW("first_global", window.first_global, 0, 10000,                \
                 "leading layers that meet all tokens"),                       \
        ENUM_ROW("window_form", window.form, mw_window_form_enums,             \
                 "the last tokens, or those of a chunk"),                      \
        BOOL_ROW("attention_sinks", sinks, "a learned logit per head"),        \
        {.key = "moe",                                                         \
         .type = MW_F_MAP,                                                     \
         .offset = AT(moe),                                                    \
         .sub = moe_fields,                                                    \
         .doc = "mixture of experts"},                                         \
        {.key = "mla",                                                         \
         .type = MW_F_MAP,                                                     \
         .offset = AT(mla),                                                    \
         .sub = mla_fields,                                                    \
         .seen_offset = AT(mla.on) + 1,                                        \
         .doc = "multi-head latent attention"},                                \
        SIZE_ROW("mtp", n_mtp, 0, 16, "multi-token-prediction layers")

const struct mw_field mw_model_fields[] = {MODEL_FIELD_ROWS, MW_FIELD_END};

/* The mapping as written: the model first, so that its offsets hold. */
struct raw_model {
    struct mw_model model;
    const char *name, *preset, *hf_config;
};

static const struct mw_field raw_fields[] = {
    MODEL_FIELD_ROWS,
    {.key = "name",
     .type = MW_F_STR,
     .offset = offsetof(struct raw_model, name),
     .doc = "name to print"},
    {.key = "preset",
     .type = MW_F_STR,
     .offset = offsetof(struct raw_model, preset),
     .doc = "a named model to start from"},
    {.key = "hf_config",
     .type = MW_F_STR,
     .offset = offsetof(struct raw_model, hf_config),
     .doc = "a Hugging Face config.json to start from"},
    MW_FIELD_END};

/* Fails at a node with the message of a finding that has no position. */
static enum mw_status fail_from(struct mw_node *node, const struct mw_err *why,
                                struct mw_err *err)
{
    return mw_node_fail(node, err, "%s", why->text);
}

static enum mw_status read_preset(struct mw_node *node, struct mw_model *out,
                                  struct mw_err *err)
{
    struct mw_err why = {0};

    if (mw_node_kind(node) != MW_NODE_SCALAR) {
        return mw_node_fail(node, err, "a preset is a name");
    }
    if (mw_model_preset(mw_node_text(node), out, &why) != MW_OK) {
        return fail_from(node, &why, err);
    }
    return MW_OK;
}

static enum mw_status read_hf(struct mw_node *node, const char *base_dir,
                              struct mw_arena *arena, struct mw_model *out,
                              struct mw_err *err)
{
    const char *path = mw_node_text(node);

    if (mw_node_kind(node) != MW_NODE_SCALAR || *path == '\0') {
        return mw_node_fail(node, err,
                            "hf_config is the path of a config.json");
    }
    if (path[0] != '/' && base_dir != NULL && *base_dir != '\0') {
        path = mw_arena_printf(arena, "%s/%s", base_dir, path);
    }
    return mw_model_hf_config(path, arena, out, err);
}

/* Sizes that follow from others when a model is spelt out or overridden. */
static void derive_sizes(struct mw_node *map, const struct mw_model *base,
                         struct mw_model *m)
{
    bool is_new = base->hidden == 0;
    bool was_even =
        is_new || (int64_t)base->n_heads * base->head_dim == base->hidden;

    if (mw_node_get(map, "head_dim") == NULL && was_even && m->n_heads > 0 &&
        m->hidden % m->n_heads == 0 && m->hidden >= m->n_heads) {
        m->head_dim = m->hidden / m->n_heads;
    }
    if (mw_node_get(map, "kv_heads") == NULL &&
        (is_new || base->n_kv_heads == base->n_heads)) {
        m->n_kv_heads = m->n_heads;
    }
}

/* A window of 0 tokens takes away the base's, with what is said of it there. */
static void drop_window(struct mw_node *map, const struct mw_model *base,
                        struct mw_model *m)
{
    struct mw_window *w = &m->window;

    if (w->tokens > 0 || base->window.tokens == 0) {
        return;
    }
    w->global_every =
        mw_node_get(map, "global_every") != NULL ? w->global_every : 0;
    w->first_global =
        mw_node_get(map, "first_global") != NULL ? w->first_global : 0;
    w->form =
        mw_node_get(map, "window_form") != NULL ? w->form : MW_WINDOW_SLIDING;
}

static enum mw_status check_spelt_out(struct mw_node *map, struct mw_err *err)
{
    static const char *const needed[] = {"hidden", "layers", "heads", "ffn",
                                         "vocab"};
    struct mw_str missing = {0};
    enum mw_status st = MW_OK;

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        if (mw_node_get(map, needed[i]) == NULL) {
            mw_str_addf(&missing, "%s'%s'", missing.n > 0 ? ", " : "",
                        needed[i]);
        }
    }
    if (missing.n > 0) {
        st = mw_node_fail(map, err,
                          "model lacks %s; give them, or a 'preset', or an "
                          "'hf_config'",
                          missing.s);
    }
    mw_str_release(&missing);
    return st;
}

static enum mw_status read_base(struct mw_node *map, const char *base_dir,
                                struct mw_arena *arena, struct mw_model *out,
                                struct mw_err *err)
{
    struct mw_node *preset = mw_node_get(map, "preset");
    struct mw_node *hf = mw_node_get(map, "hf_config");

    if (preset != NULL && hf != NULL) {
        return mw_node_fail(hf, err,
                            "both 'preset' and 'hf_config' are given; keep "
                            "one");
    }
    if (preset != NULL) {
        return read_preset(preset, out, err);
    }
    if (hf != NULL) {
        return read_hf(hf, base_dir, arena, out, err);
    }
    *out = (struct mw_model){.name = "custom",
                             .is_gated = true,
                             .norm = MW_NORM_RMS,
                             .position = MW_POS_ROTARY,
                             .act = MW_ACT_SILU,
                             .final_norm = true};
    return MW_OK;
}

static enum mw_status read_map(struct mw_node *map, const char *base_dir,
                               struct mw_arena *arena, struct mw_model *out,
                               struct mw_err *err)
{
    struct raw_model raw = {0};
    struct mw_model base;
    struct mw_err why = {0};
    enum mw_status st = read_base(map, base_dir, arena, &base, err);

    if (st != MW_OK) {
        return st;
    }
    raw.model = base;
    st = mw_yaml_bind(map, raw_fields, &raw, arena, err);
    if (st == MW_OK && base.hidden == 0) {
        st = check_spelt_out(map, err);
    }
    if (st != MW_OK) {
        return st;
    }
    derive_sizes(map, &base, &raw.model);
    drop_window(map, &base, &raw.model);
    if (raw.name != NULL) {
        raw.model.name = raw.name;
    }
    if (mw_model_check(&raw.model, &why) != MW_OK) {
        return fail_from(map, &why, err);
    }
    *out = raw.model;
    return MW_OK;
}

enum mw_status mw_model_read(struct mw_node *node, const char *base_dir,
                             struct mw_arena *arena, struct mw_model *out,
                             struct mw_err *err)
{
    switch (mw_node_kind(node)) {
    case MW_NODE_SCALAR:
        return read_preset(node, out, err);
    case MW_NODE_MAP:
        return read_map(node, base_dir, arena, out, err);
    case MW_NODE_SEQ:
        break;
    }
    return mw_node_fail(node, err,
                        "model is a preset's name or a mapping of its sizes");
}
