/*
 * The parameter table: every tensor of a model, once, in a fixed order.
 *
 *   embedding | layer 0 | ... | layer n-1 | final norm, head | MTP layers
 *
 * The planner sizes memory from it, the counts published for models are sums
 * over it, the executor allocates from it. Shapes follow the checkpoints of
 * Hugging Face; sharding follows Megatron-LM (arXiv:1909.08053, section 3):
 * the first linear of a pair by output rows, the second by input columns,
 * vocabulary by rows. Query, key and value form one tensor of equal thirds
 * when they have the same number of heads, otherwise q and kv are two tensors.
 * The latent projections of MLA (arXiv:2405.04434, section 2.1) are small and
 * replicated. Multi-token prediction: arXiv:2412.19437, section 2.2.
 */
#include "sim/model/model.h"

/* Where the next tensors go and how they are marked. */
struct table {
    struct mw_params *out;
    const struct mw_model *m;
    int layer;
    bool is_mtp;
};

static struct mw_param *add(struct table *t, const char *name, int64_t outer,
                            int64_t rows, int64_t cols, enum mw_shard shard)
{
    struct mw_param p = {.name = name,
                         .layer = t->layer,
                         .outer = outer,
                         .rows = rows,
                         .cols = cols,
                         .n_copies = 1,
                         .shard = shard,
                         .expert_shard = MW_SHARD_NONE,
                         .is_mtp = t->is_mtp};

    mw_array_push(t->out, p);
    return &t->out->v[t->out->n - 1];
}

static struct mw_param *add_vector(struct table *t, const char *name,
                                   int64_t outer, int64_t rows,
                                   enum mw_shard shard)
{
    struct mw_param *p = add(t, name, outer, rows, 1, shard);

    p->is_norm_or_bias = true;
    return p;
}

static void add_norm(struct table *t, const char *weight, const char *bias)
{
    add_vector(t, weight, 1, t->m->hidden, MW_SHARD_NONE);
    if (t->m->norm == MW_NORM_LAYER && t->m->bias_norm) {
        add_vector(t, bias, 1, t->m->hidden, MW_SHARD_NONE);
    }
}

static void add_qkv(struct table *t)
{
    const struct mw_model *m = t->m;
    int64_t q = (int64_t)m->n_heads * m->head_dim;
    int64_t kv = (int64_t)m->n_kv_heads * m->head_dim;

    if (q == kv) {
        add(t, "attn.qkv.weight", 3, q, m->hidden, MW_SHARD_ROWS);
        if (m->bias_qkv) {
            add_vector(t, "attn.qkv.bias", 3, q, MW_SHARD_ROWS);
        }
        return;
    }
    add(t, "attn.q.weight", 1, q, m->hidden, MW_SHARD_ROWS);
    add(t, "attn.kv.weight", 2, kv, m->hidden, MW_SHARD_ROWS)->max_ways =
        m->n_kv_heads;
    if (m->bias_qkv) {
        add_vector(t, "attn.q.bias", 1, q, MW_SHARD_ROWS);
        add_vector(t, "attn.kv.bias", 2, kv, MW_SHARD_ROWS)->max_ways =
            m->n_kv_heads;
    }
}

static void add_mla(struct table *t)
{
    const struct mw_model *m = t->m;
    const struct mw_mla *a = &m->mla;
    int64_t q = (int64_t)m->n_heads * mw_model_qk_dim(m);

    if (a->q_lora > 0) {
        add(t, "attn.q_down.weight", 1, a->q_lora, m->hidden, MW_SHARD_NONE);
        add_vector(t, "attn.q_norm.weight", 1, a->q_lora, MW_SHARD_NONE);
        add(t, "attn.q_up.weight", 1, q, a->q_lora, MW_SHARD_ROWS);
    } else {
        add(t, "attn.q.weight", 1, q, m->hidden, MW_SHARD_ROWS);
    }
    add(t, "attn.kv_down.weight", 1, a->kv_lora + a->rope_dim, m->hidden,
        MW_SHARD_NONE);
    add_vector(t, "attn.kv_norm.weight", 1, a->kv_lora, MW_SHARD_NONE);
    add(t, "attn.kv_up.weight", 1,
        (int64_t)m->n_heads * (a->nope_dim + a->v_dim), a->kv_lora,
        MW_SHARD_ROWS);
}

static void add_attention(struct table *t)
{
    const struct mw_model *m = t->m;

    add_norm(t, "attn.norm.weight", "attn.norm.bias");
    if (m->mla.on) {
        add_mla(t);
    } else {
        add_qkv(t);
        if (m->qk_norm) {
            add_vector(t, "attn.q_norm.weight", 1, m->head_dim, MW_SHARD_NONE);
            add_vector(t, "attn.k_norm.weight", 1, m->head_dim, MW_SHARD_NONE);
        }
    }
    if (m->sinks) {
        add_vector(t, "attn.sinks", 1, m->n_heads, MW_SHARD_ROWS);
    }
    add(t, "attn.proj.weight", 1, m->hidden,
        (int64_t)m->n_heads * mw_model_v_dim(m), MW_SHARD_COLS);
    if (m->bias_proj) {
        add_vector(t, "attn.proj.bias", 1, m->hidden, MW_SHARD_NONE);
    }
    if (m->sandwich_norm) {
        add_norm(t, "attn.post_norm.weight", "attn.post_norm.bias");
    }
}

static void add_dense_mlp(struct table *t)
{
    const struct mw_model *m = t->m;
    int n = m->is_gated ? 2 : 1;

    add(t, m->is_gated ? "mlp.gate_up.weight" : "mlp.fc1.weight", n, m->ffn,
        m->hidden, MW_SHARD_ROWS);
    if (m->bias_mlp) {
        add_vector(t, m->is_gated ? "mlp.gate_up.bias" : "mlp.fc1.bias", n,
                   m->ffn, MW_SHARD_ROWS);
    }
    add(t, "mlp.fc2.weight", 1, m->hidden, m->ffn, MW_SHARD_COLS);
    if (m->bias_mlp) {
        add_vector(t, "mlp.fc2.bias", 1, m->hidden, MW_SHARD_NONE);
    }
}

static struct mw_param *add_expert(struct table *t, const char *name,
                                   int64_t outer, int64_t rows, int64_t cols,
                                   enum mw_shard expert_shard)
{
    struct mw_param *p = add(t, name, outer, rows, cols, MW_SHARD_EXPERT);

    p->n_copies = t->m->moe.n_experts;
    p->expert_shard = expert_shard;
    return p;
}

static void add_moe(struct table *t)
{
    const struct mw_model *m = t->m;
    int n = m->is_gated ? 2 : 1;

    add(t, "moe.router.weight", 1, m->moe.n_experts, m->hidden, MW_SHARD_NONE);
    if (m->moe.router_bias) {
        add_vector(t, "moe.router.bias", 1, m->moe.n_experts, MW_SHARD_NONE);
    }
    add_expert(t, "moe.fc1.weight", n, m->moe.ffn, m->hidden, MW_SHARD_ROWS);
    if (m->moe.bias) {
        add_expert(t, "moe.fc1.bias", n, m->moe.ffn, 1, MW_SHARD_ROWS)
            ->is_norm_or_bias = true;
    }
    add_expert(t, "moe.fc2.weight", 1, m->hidden, m->moe.ffn, MW_SHARD_COLS);
    if (m->moe.bias) {
        add_expert(t, "moe.fc2.bias", 1, m->hidden, 1, MW_SHARD_NONE)
            ->is_norm_or_bias = true;
    }
    if (m->moe.shared_ffn > 0) {
        add(t, "moe.shared.fc1.weight", n, m->moe.shared_ffn, m->hidden,
            MW_SHARD_ROWS);
        add(t, "moe.shared.fc2.weight", 1, m->hidden, m->moe.shared_ffn,
            MW_SHARD_COLS);
        if (m->moe.shared_gate) {
            add(t, "moe.shared.gate.weight", 1, 1, m->hidden, MW_SHARD_NONE);
        }
    }
}

static void add_layer(struct table *t, bool is_moe)
{
    add_attention(t);
    add_norm(t, "mlp.norm.weight", "mlp.norm.bias");
    if (is_moe) {
        add_moe(t);
    } else {
        add_dense_mlp(t);
    }
    if (t->m->sandwich_norm) {
        add_norm(t, "mlp.post_norm.weight", "mlp.post_norm.bias");
    }
}

/* One MTP module: two norms, the projection of [h; emb] to h, a layer and its
 * own final norm; embedding and head are the main model's. */
static void add_mtp(struct table *t)
{
    const struct mw_model *m = t->m;

    add_norm(t, "mtp.embed_norm.weight", "mtp.embed_norm.bias");
    add_norm(t, "mtp.hidden_norm.weight", "mtp.hidden_norm.bias");
    add(t, "mtp.proj.weight", 1, m->hidden, (int64_t)2 * m->hidden,
        MW_SHARD_ROWS);
    add_layer(t, mw_model_layer_is_moe(m, m->n_layers - 1));
    add_norm(t, "mtp.final_norm.weight", "mtp.final_norm.bias");
}

void mw_model_params(const struct mw_model *model, struct mw_params *out)
{
    struct table t = {.out = out, .m = model, .layer = -1};

    add(&t, "embed.weight", 1, model->vocab, model->hidden, MW_SHARD_ROWS);
    if (model->position == MW_POS_LEARNED) {
        add(&t, "embed.position", 1, model->max_seq, model->hidden,
            MW_SHARD_NONE);
    }
    for (t.layer = 0; t.layer < model->n_layers; t.layer++) {
        add_layer(&t, mw_model_layer_is_moe(model, t.layer));
    }
    if (model->final_norm) {
        add_norm(&t, "final_norm.weight", "final_norm.bias");
    }
    if (!model->tied) {
        add(&t, "head.weight", 1, model->vocab, model->hidden, MW_SHARD_ROWS);
    }
    if (model->bias_head) {
        add_vector(&t, "head.bias", 1, model->vocab, MW_SHARD_ROWS);
    }
    t.is_mtp = true;
    for (int i = 0; i < model->n_mtp; i++) {
        t.layer = model->n_layers + 1 + i;
        add_mtp(&t);
    }
}

/* ---- counts ----------------------------------------------------------------
 */
int64_t mw_param_count(const struct mw_param *p)
{
    return p->n_copies * p->outer * p->rows * p->cols;
}

/* A part of n, rounded up: the largest rank's share. */
static int64_t share(int64_t n, int64_t ways)
{
    return (n + ways - 1) / ways;
}

/* What a rank holds of a tensor. */
struct part {
    int64_t n_copies, rows, cols;
};

static inline struct part part_of(const struct mw_param *p,
                                  const struct mw_layout *layout)
{
    bool is_expert = p->shard == MW_SHARD_EXPERT;
    enum mw_shard axis = is_expert ? p->expert_shard : p->shard;
    int64_t ways = is_expert ? layout->etp : layout->tp;

    if (p->max_ways > 0 && ways > p->max_ways) {
        ways = p->max_ways;
    }
    return (struct part){
        is_expert ? share(p->n_copies, layout->ep) : p->n_copies,
        axis == MW_SHARD_ROWS ? share(p->rows, ways) : p->rows,
        axis == MW_SHARD_COLS ? share(p->cols, ways) : p->cols};
}

struct mw_param mw_param_shard_of(const struct mw_param *p,
                                  const struct mw_layout *layout)
{
    struct part part = part_of(p, layout);
    struct mw_param shard = *p;

    shard.n_copies = part.n_copies;
    shard.rows = part.rows;
    shard.cols = part.cols;
    return shard;
}

int64_t mw_param_shard_count(const struct mw_param *p,
                             const struct mw_layout *layout)
{
    struct part part = part_of(p, layout);

    return part.n_copies * p->outer * part.rows * part.cols;
}

static int64_t count(const struct mw_model *model, bool only_active)
{
    struct mw_params params = {0};
    int64_t total = 0;

    mw_model_params(model, &params);
    for (size_t i = 0; i < params.n; i++) {
        const struct mw_param *p = &params.v[i];
        int64_t n = mw_param_count(p);

        if (p->is_mtp) {
            continue;
        }
        if (only_active && p->shard == MW_SHARD_EXPERT) {
            n = n / p->n_copies * model->moe.top_k;
        }
        total += n;
    }
    mw_array_release(&params);
    return total;
}

int64_t mw_model_param_count(const struct mw_model *model)
{
    return count(model, false);
}

int64_t mw_model_active_param_count(const struct mw_model *model)
{
    return count(model, true);
}
