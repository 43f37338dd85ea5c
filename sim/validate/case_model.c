/*
 * The model of a measured row: its architecture columns, or the preset of its
 * name when there are none. Two families: GPT of Megatron-LM (layer norm,
 * learned positions, biases, tied head) when the MLP is not gated, Llama (RMS
 * norm, rotary, no biases, own head) when it is.
 */
#include "sim/validate/validate_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void gpt_family(struct mw_model *m)
{
    m->norm = MW_NORM_LAYER;
    m->position = MW_POS_LEARNED;
    m->act = MW_ACT_GELU;
    m->tied = true;
    m->bias_qkv = m->bias_proj = m->bias_mlp = m->bias_norm = true;
}

static void llama_family(struct mw_model *m)
{
    m->norm = MW_NORM_RMS;
    m->position = MW_POS_ROTARY;
    m->act = MW_ACT_SILU;
    m->is_gated = true;
}

static double cell_or(struct mw_case *c, double cell, enum mw_fill fill,
                      double otherwise)
{
    if (!isnan(cell)) {
        return cell;
    }
    mw_case_fill(c, fill);
    return otherwise;
}

/* The composed table's program splits 50257 tokens and drops what is over. */
static int vocab_of(struct mw_case *c)
{
    if (mw_case_is_composed(c->row)) {
        mw_case_fill(c, MW_FILL_COMPOSED);
        return 50257 / c->layout.tp * c->layout.tp;
    }
    return (int)cell_or(c, c->row->vocab, MW_FILL_VOCAB, 51200);
}

static void from_columns(struct mw_case *c, struct mw_model *m)
{
    const struct mw_measured *r = c->row;
    bool is_gated = r->gated_mlp > 0;
    double ffn = is_gated ? ceil(8 * r->hidden / 3 / 256) * 256 : 4 * r->hidden;

    if (is_gated) {
        llama_family(m);
    } else {
        gpt_family(m);
    }
    m->name = r->model;
    m->hidden = (int)r->hidden;
    m->n_layers = (int)r->layers;
    m->n_heads = (int)r->heads;
    m->n_kv_heads = (int)cell_or(c, r->kv_heads, MW_FILL_KV_HEADS, m->n_heads);
    m->head_dim = m->hidden / m->n_heads;
    m->ffn = (int)cell_or(c, r->ffn, MW_FILL_FFN, ffn);
    m->vocab = vocab_of(c);
    m->max_seq = (int)r->seq;
    if (mw_text_has(r->framework, "nanotron") && m->ffn < 10000) {
        mw_case_fill(c, MW_FILL_TIED);
        m->tied = true;
    }
    m->final_norm = true;
    if (r->experts > 0) {
        m->moe =
            (struct mw_moe){.n_experts = (int)r->experts,
                            .top_k = isnan(r->topk) ? 1 : (int)r->topk,
                            .ffn = isnan(r->moe_ffn) ? m->ffn : (int)r->moe_ffn,
                            .every = 1};
    }
}

/* "deepseekv3" is written "deepseek-v3". */
static bool spelled_apart(const char *name, struct mw_model *m)
{
    char dashed[64];
    const char *v = strstr(name, "kv"), *end = name + strlen(name);

    if (mw_model_preset(name, m, NULL) == MW_OK) {
        return true;
    }
    if (v == NULL || end - name + 2 > (int)sizeof dashed) {
        return false;
    }
    snprintf(dashed, sizeof dashed, "%.*s-%s", (int)(v + 1 - name), name,
             v + 1);
    return mw_model_preset(dashed, m, NULL) == MW_OK;
}

/* The 671 of "deepseek-v3-671b", and where it begins; NaN where the name does
 * not end in a number of billions. */
static double billions_of(const char *name, size_t *out_at)
{
    const char *dash = strrchr(name, '-');
    char *end = NULL;
    double billions = dash != NULL && isdigit((unsigned char)dash[1])
                          ? strtod(dash + 1, &end)
                          : (double)NAN;

    if (end == NULL || tolower((unsigned char)*end) != 'b' || end[1] != '\0') {
        return (double)NAN;
    }
    *out_at = (size_t)(dash - name);
    return billions;
}

/* The preset of the name, or of the name without a size that is the preset's
 * own ("gpt2-13b" is no "gpt2"). */
static bool preset_of(const char *name, struct mw_model *m)
{
    char short_name[64];
    size_t at = 0;

    if (spelled_apart(name, m)) {
        return true;
    }
    double billions = billions_of(name, &at);

    if (isnan(billions) || at >= sizeof short_name) {
        return false;
    }
    memcpy(short_name, name, at);
    short_name[at] = '\0';
    return spelled_apart(short_name, m) &&
           fabs((double)mw_model_param_count(m) / (billions * 1e9) - 1) < 0.02;
}

/* A mixture of experts has more to it than columns say (latent attention,
 * shared experts): its preset, cut to the row's layers. */
static bool from_moe_preset(struct mw_case *c, struct mw_model *m)
{
    const struct mw_measured *r = c->row;

    if (!(r->experts > 0) || !spelled_apart(r->model, m) ||
        m->moe.n_experts != (int)r->experts) {
        return false;
    }
    mw_case_fill(c, MW_FILL_MOE);
    if (!isnan(r->layers) && (int)r->layers < m->n_layers) {
        m->n_layers = (int)r->layers;
        m->moe.first_dense = m->moe.first_dense > 1 ? 1 : m->moe.first_dense;
        m->n_mtp = 0;
    }
    return true;
}

static bool is_or_unsaid(double cell, int value)
{
    return isnan(cell) || (int)cell == value;
}

/* A dense model whose sizes are those of its name's preset has the preset's
 * norms, biases and positions too; the layers are the row's. */
static bool from_dense_preset(struct mw_case *c, struct mw_model *m)
{
    const struct mw_measured *r = c->row;

    if (r->experts > 0 || isnan(r->layers) || !spelled_apart(r->model, m) ||
        m->moe.n_experts > 0 || (int)r->hidden != m->hidden ||
        (int)r->heads != m->n_heads ||
        !is_or_unsaid(r->kv_heads, m->n_kv_heads) ||
        !is_or_unsaid(r->ffn, m->ffn) || !is_or_unsaid(r->vocab, m->vocab)) {
        return false;
    }
    mw_case_fill(c, MW_FILL_FAMILY);
    m->n_layers = (int)r->layers;
    return true;
}

/* `from` in a name written as `to`; is there a preset of that name? */
static bool preset_written(const char *name, const char *from, const char *to,
                           struct mw_model *m)
{
    char other[64];
    const char *at = strstr(name, from);

    if (at == NULL) {
        return false;
    }
    int n = snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name,
                     to, at + strlen(from));

    return n < (int)sizeof other && preset_of(other, m);
}

/* "llama3.1-70b" is written "llama3-70b" in places, "llama3.1-405b"
 * "llama3-405b": tried as it stands, without ".1" and with it; and a model
 * that is like another is the other. */
static bool from_preset(struct mw_case *c, struct mw_model *m)
{
    const char *name = c->row->model;

    mw_case_fill(c, MW_FILL_MODEL);
    return preset_of(name, m) || preset_written(name, ".1-", "-", m) ||
           preset_written(name, "llama3-", "llama3.1-", m) ||
           preset_written(name, "-like", "", m);
}

void mw_case_model(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    struct mw_model model = {0};
    struct mw_err why = {0};

    if (from_moe_preset(c, &model) || from_dense_preset(c, &model)) {
        c->scenario.model = model;
    } else if (!isnan(r->hidden) && !isnan(r->layers) && !isnan(r->heads) &&
               r->heads > 0) {
        from_columns(c, &model);
    } else if (!from_preset(c, &model)) {
        mw_case_skip(c, "architecture is not given and no preset has the name");
    }
    if (c->skipped == NULL && mw_model_check(&model, &why) != MW_OK) {
        mw_case_skip(c, "%s", why.text);
    }
    c->scenario.model = model;
}
