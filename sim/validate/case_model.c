/*
 * The model of a measured row: its architecture columns, or the preset of its
 * name when there are none. Two families: GPT of Megatron-LM (layer norm,
 * learned positions, biases, tied head) when the MLP is not gated, Llama (RMS
 * norm, rotary, no biases, own head) when it is.
 */
#include "sim/validate/validate_int.h"

#include <ctype.h>
#include <math.h>
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
    m->vocab = (int)cell_or(c, r->vocab, MW_FILL_VOCAB, 51200);
    m->max_seq = (int)r->seq;
    m->final_norm = true;
}

/* "llama3.1-70b" is written "llama3-70b" in places: tried as it stands and
 * without ".1". */
static bool from_preset(struct mw_case *c, struct mw_model *m)
{
    char name[64];
    const char *point = strstr(c->row->model, ".1-");

    mw_case_fill(c, MW_FILL_MODEL);
    if (mw_model_preset(c->row->model, m, NULL) == MW_OK) {
        return true;
    }
    if (point == NULL || strlen(c->row->model) >= sizeof name) {
        return false;
    }
    memcpy(name, c->row->model, (size_t)(point - c->row->model));
    memcpy(name + (point - c->row->model), point + 2, strlen(point + 2) + 1);
    return mw_model_preset(name, m, NULL) == MW_OK;
}

void mw_case_model(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    struct mw_model model = {0};
    struct mw_err why = {0};

    if (r->experts > 0) {
        mw_case_skip(c, "mixture of experts");
    } else if (!isnan(r->hidden) && !isnan(r->layers) && !isnan(r->heads) &&
               r->heads > 0) {
        from_columns(c, &model);
    } else if (!from_preset(c, &model)) {
        mw_case_skip(c, "architecture is not given and no preset has the name");
    }
    if (c->skipped == NULL && model.moe.n_experts > 0) {
        mw_case_skip(c, "mixture of experts");
    }
    if (c->skipped == NULL && mw_model_check(&model, &why) != MW_OK) {
        mw_case_skip(c, "%s", why.text);
    }
    c->scenario.model = model;
}
