/*
 * Low-rank adapters (Hu et al., "LoRA", arXiv:2106.09685): the matrices of a
 * model are frozen, each chosen one W gets Y += X A^T B^T with A [r, in] and
 * B [out, r], which alone learn. One pair a projection: three for a fused QKV,
 * two for a fused gate and up (Hugging Face PEFT; Megatron-Bridge's canonical
 * form).
 *
 *   F   base product, then X A^T, (.) B^T, and the sum
 *   B   the same of the gradient: base product, dY B, (.) A, and the sum
 *   W   dA and dB; none of the frozen
 *
 * A frozen linear layer needs its input no more, an adapter does; norms and
 * activations keep what their input gradients need. In a tensor parallel group
 * A of a column-parallel layer and B of a row-parallel one are held whole by
 * every rank, and their gradients are sums over the ranks.
 *
 * QLoRA (Dettmers et al., arXiv:2305.14314): the frozen matrices of the layers
 * lie in memory in 4 bits and are spread to the compute type before each
 * product, forward and backward.
 *
 * Left out: dropout before the adapters, their scaling, the input gradient that
 * the first layer's first product could leave out.
 */
#include "sim/model/ops_int.h"

#include <string.h>

/* Which tensor carries adapters, and what they are called. */
static const struct {
    const char *base, *a, *b;
    enum mw_lora_targets since; /* the last choice that has it */
} tensors[] = {
    {"attn.qkv.weight", "attn.qkv.lora_a", "attn.qkv.lora_b", MW_LORA_QKV},
    {"attn.q.weight", "attn.q.lora_a", "attn.q.lora_b", MW_LORA_QKV},
    {"attn.kv.weight", "attn.kv.lora_a", "attn.kv.lora_b", MW_LORA_QKV},
    {"attn.q_down.weight", "attn.q_down.lora_a", "attn.q_down.lora_b",
     MW_LORA_QKV},
    {"attn.q_up.weight", "attn.q_up.lora_a", "attn.q_up.lora_b", MW_LORA_QKV},
    {"attn.kv_down.weight", "attn.kv_down.lora_a", "attn.kv_down.lora_b",
     MW_LORA_QKV},
    {"attn.kv_up.weight", "attn.kv_up.lora_a", "attn.kv_up.lora_b",
     MW_LORA_QKV},
    {"attn.proj.weight", "attn.proj.lora_a", "attn.proj.lora_b",
     MW_LORA_ATTENTION},
    {"mlp.gate_up.weight", "mlp.gate_up.lora_a", "mlp.gate_up.lora_b",
     MW_LORA_ALL},
    {"mlp.fc1.weight", "mlp.fc1.lora_a", "mlp.fc1.lora_b", MW_LORA_ALL},
    {"mlp.fc2.weight", "mlp.fc2.lora_a", "mlp.fc2.lora_b", MW_LORA_ALL},
    {"moe.fc1.weight", "moe.fc1.lora_a", "moe.fc1.lora_b", MW_LORA_ALL},
    {"moe.fc2.weight", "moe.fc2.lora_a", "moe.fc2.lora_b", MW_LORA_ALL},
    {"moe.shared.fc1.weight", "moe.shared.fc1.lora_a", "moe.shared.fc1.lora_b",
     MW_LORA_ALL},
    {"moe.shared.fc2.weight", "moe.shared.fc2.lora_a", "moe.shared.fc2.lora_b",
     MW_LORA_ALL}};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static bool is_chosen(enum mw_lora_targets since, enum mw_lora_targets targets)
{
    return targets <= since;
}

/* ---- parameters ------------------------------------------------------------
 */
/* A keeps the base's input axis, B its output axis. */
static enum mw_shard shard_of(enum mw_shard base, bool is_a)
{
    return base == (is_a ? MW_SHARD_COLS : MW_SHARD_ROWS) ? base
                                                          : MW_SHARD_NONE;
}

static void add_adapter(const struct mw_param *base, const char *name,
                        bool is_a, int rank, struct mw_params *out)
{
    struct mw_param p = *base;

    p.name = name;
    p.rows = is_a ? rank : base->rows;
    p.cols = is_a ? base->cols : rank;
    if (base->shard == MW_SHARD_EXPERT) {
        p.expert_shard = shard_of(base->expert_shard, is_a);
    } else {
        p.shard = shard_of(base->shard, is_a);
    }
    p.max_ways = is_a ? 0 : base->max_ways;
    mw_array_push(out, p);
}

void mw_lora_params(const struct mw_params *base, int rank,
                    enum mw_lora_targets targets, struct mw_params *out)
{
    for (size_t i = 0; i < base->n; i++) {
        for (size_t k = 0; k < N_TENSORS; k++) {
            if (is_chosen(tensors[k].since, targets) &&
                strcmp(tensors[k].base, base->v[i].name) == 0) {
                add_adapter(&base->v[i], tensors[k].a, true, rank, out);
                add_adapter(&base->v[i], tensors[k].b, false, rank, out);
            }
        }
    }
}

bool mw_param_is_quantised(const struct mw_param *p)
{
    return p->cols > 1 && !p->is_norm_or_bias &&
           (strncmp(p->name, "attn.", 5) == 0 ||
            strncmp(p->name, "mlp.", 4) == 0 ||
            strncmp(p->name, "moe.", 4) == 0);
}

double mw_lora_flops_per_token(const struct mw_model *model, int64_t seq,
                               bool is_causal_half, int rank,
                               enum mw_lora_targets targets)
{
    struct mw_params base = {0}, adapters = {0};
    double learns = 0;

    mw_model_params(model, &base);
    mw_lora_params(&base, rank, targets, &adapters);
    for (size_t i = 0; i < adapters.n; i++) {
        const struct mw_param *p = &adapters.v[i];
        double each = (double)p->outer * (double)p->rows * (double)p->cols;

        if (!p->is_mtp) {
            learns +=
                p->shard == MW_SHARD_EXPERT ? each * model->moe.top_k : each;
        }
    }
    mw_array_release(&base);
    mw_array_release(&adapters);
    return mw_model_flops_per_token(model, seq, is_causal_half) -
           2 * mw_model_matrix_weights(model) + 6 * learns;
}

/* ---- operators -------------------------------------------------------------
 */
/* Projections in a linear operator that carry adapters; 0: it has none. */
static int n_adapted(const struct mw_sizes *s, const char *name)
{
    static const struct {
        const char *name;
        int n; /* -1: gate and up, or up alone */
        enum mw_lora_targets since;
    } linears[] = {
        {"qkv", 3, MW_LORA_QKV},        {"q", 1, MW_LORA_QKV},
        {"q_down", 1, MW_LORA_QKV},     {"q_up", 1, MW_LORA_QKV},
        {"kv_down", 1, MW_LORA_QKV},    {"kv_up", 1, MW_LORA_QKV},
        {"proj", 1, MW_LORA_ATTENTION}, {"fc1", -1, MW_LORA_ALL},
        {"fc2", 1, MW_LORA_ALL},        {"shared_fc1", -1, MW_LORA_ALL},
        {"shared_fc2", 1, MW_LORA_ALL}, {"expert_fc1", -1, MW_LORA_ALL},
        {"expert_fc2", 1, MW_LORA_ALL}};

    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        if (strcmp(linears[i].name, name) == 0) {
            return !is_chosen(linears[i].since, s->work->lora_targets) ? 0
                   : linears[i].n > 0 ? linears[i].n
                                      : 1 + s->m->is_gated;
        }
    }
    return 0;
}

/* A product like `base` with another width and depth. */
static struct mw_fstep *add_product(const struct mw_sizes *s,
                                    const struct mw_fstep *base,
                                    const char *name, int64_t n, int64_t k,
                                    struct mw_fsteps *out)
{
    struct mw_fstep step = *base;
    double share =
        (double)n * (double)k / ((double)base->op.n * (double)base->op.k);

    step.op.name = name;
    step.op.dtype = s->act;
    step.op.n = n;
    step.op.k = k;
    step.op.flops *= share;
    step.op.model_flops *= share;
    step.op.bytes = mw_gemm_bytes(s, step.op.m, n, k, step.op.batch);
    mw_array_push(out, step);
    return &out->v[out->n - 1];
}

static void add_adapters(const struct mw_sizes *s, const struct mw_fstep *base,
                         int n_projections, struct mw_fsteps *out)
{
    int64_t rank = s->work->lora_rank, rows = base->op.m * base->op.batch;
    double row = s->el * (double)rows;
    struct mw_fstep *step;

    step =
        add_product(s, base, "lora_a", n_projections * rank, base->op.k, out);
    step->op.save_bytes *= s->el / s->gemm_el;
    step = add_product(s, base, "lora_b", base->op.n, rank, out);
    step->op.save_bytes = row * (double)(n_projections * rank);
    step->has_w_gather = false;
    step = mw_fstep_simple(out, s, MW_OP_ADD, "lora_add", rows, base->op.n,
                           3 * row * (double)base->op.n, 0);
    step->bytes_b = 3 * row * (double)base->op.k;
    step->is_frozen = true;
}

static void add_dequantisation(const struct mw_sizes *s,
                               const struct mw_fstep *base,
                               struct mw_fsteps *out)
{
    int64_t width = base->op.k * base->op.batch;
    double bytes = (MW_NF4_BYTES + s->el) * (double)base->op.n * (double)width;
    struct mw_fstep *step = mw_fstep_simple(out, s, MW_OP_ADD, "dequantise",
                                            base->op.n, width, bytes, 0);

    step->is_frozen = true;
}

/* The router's input is the shared experts' as well, and kept there. */
static bool keeps_for_shared(const struct mw_sizes *s, const char *name)
{
    return strcmp(name, "router") == 0 && s->m->moe.shared_ffn > 0 &&
           n_adapted(s, "shared_fc1") > 0;
}

void mw_steps_freeze(const struct mw_sizes *s, bool is_layer,
                     struct mw_fsteps *steps)
{
    struct mw_fsteps out = {0};

    for (size_t i = 0; i < steps->n; i++) {
        struct mw_fstep step = steps->v[i];
        int n = step.has_weight && is_layer ? n_adapted(s, step.op.name) : 0;

        if (step.has_weight && is_layer && s->work->base_dtype == MW_BASE_NF4) {
            add_dequantisation(s, &step, &out);
        }
        step.is_frozen = true;
        if (step.has_weight && !keeps_for_shared(s, step.op.name)) {
            step.op.save_bytes = 0;
        }
        mw_array_push(&out, step);
        if (n > 0) {
            add_adapters(s, &steps->v[i], n, &out);
        }
    }
    mw_array_release(steps);
    *steps = out;
}
