/*
 * The model as options of Megatron-LM's pretrain_gpt.py (see
 * export_megatron.c): attention, experts and the way to them, positions, sizes.
 */
#include "planner/export/export_int.h"

/* Which layers are of a kind, as runs of a list; all: the default. */
static void put_layers_that(struct mw_args *w, const char *option,
                            bool (*are)(const struct mw_model *, int))
{
    const struct mw_model *m = &w->in->scenario->model;
    struct mw_str *f = &w->out->file;
    int n_runs = 0;

    for (int i = 0, n; i < m->n_layers; i += n) {
        bool is_so = are(m, i);

        for (n = 1; i + n < m->n_layers && are(m, i + n) == is_so;) {
            n++;
        }
        if (n == m->n_layers) {
            return;
        }
        if (n_runs++ == 0) {
            mw_str_addf(f, "--%s (", option);
        }
        mw_str_addf(f, "%s[%d]*%d", n_runs > 1 ? "+" : "", is_so, n);
    }
    mw_str_add(f, ")\n");
}

/* Keys before a query's own, in layers of a window. */
static void put_window(struct mw_args *w)
{
    const struct mw_model *m = &w->in->scenario->model;

    if (m->window.tokens > 0 && mw_model_local_layers(m, m->n_layers) > 0) {
        mw_str_addf(&w->out->file, "--window-size %d,0\n",
                    m->window.tokens - 1);
        put_layers_that(w, "window-attn-skip-freq", mw_model_layer_is_local);
    }
    if (m->sinks) {
        mw_args_word(w, "softmax-type", "learnable");
    }
}

static void put_attention(struct mw_args *w)
{
    const struct mw_model *m = &w->in->scenario->model;

    mw_args_number(w, "num-attention-heads", m->n_heads);
    if (m->mla.on) {
        mw_args_flag(w, "multi-latent-attention");
        if (m->mla.q_lora > 0) {
            mw_args_number(w, "q-lora-rank", m->mla.q_lora);
        }
        mw_args_number(w, "kv-lora-rank", m->mla.kv_lora);
        mw_args_number(w, "qk-head-dim", m->mla.nope_dim);
        mw_args_number(w, "qk-pos-emb-head-dim", m->mla.rope_dim);
        mw_args_number(w, "v-head-dim", m->mla.v_dim);
    } else {
        if (m->n_kv_heads != m->n_heads) {
            mw_args_flag(w, "group-query-attention");
            mw_args_number(w, "num-query-groups", m->n_kv_heads);
        }
        mw_args_number(w, "kv-channels", m->head_dim);
    }
    if (m->qk_norm) {
        mw_args_flag(w, "qk-layernorm");
    }
    put_window(w);
}

/* Kernels that send by themselves are an installation of their own: where a
 * layout does not name them, launch files do not ask for them. */
static void put_dispatcher(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    bool is_flex = l->dispatcher == MW_DISPATCH_DEEPEP ||
                   l->dispatcher == MW_DISPATCH_HYBRIDEP;

    if (l->dispatcher == MW_DISPATCH_ALLGATHER) {
        mw_args_word(w, "moe-token-dispatcher-type", "allgather");
        return;
    }
    mw_args_word(w, "moe-token-dispatcher-type", is_flex ? "flex" : "alltoall");
    if (is_flex) {
        mw_args_word(w, "moe-flex-dispatcher-backend",
                     mw_dispatcher_name(l->dispatcher));
        mw_export_note(w->out,
                       "--moe-flex-dispatcher-backend is in Megatron-Core from "
                       "0.15 on (before, --moe-enable-deepep is DeepEP's) and "
                       "needs the package deep_ep");
    } else if (l->dispatcher == MW_DISPATCH_STACK && l->ep > 1 &&
               w->in->ctx->stack.sends_once) {
        mw_export_note(w->out,
                       "the predicted step sends tokens by DeepEP's kernels; "
                       "layout: dispatcher: deepep (or hybridep) writes them, "
                       "alltoall prices what is written");
    }
}

/* What overlapped exchanges lack (core/transformer/transformer_config.py,
 * overlap_moe_expert_parallel_comm; full recomputation came after 0.14); NULL:
 * nothing. */
static const char *exchanges_lack(const struct mw_export_in *in)
{
    const struct mw_layout *l = &in->plan->layout;
    bool is_again = l->recompute == MW_RECOMPUTE_FULL ||
                    (l->recompute == MW_RECOMPUTE_SELECTIVE &&
                     (mw_layout_modules(l) & MW_MODULE_MOE) != 0);

    return l->pp > 1 && l->vpp == 1 ? "needs chunks (vpp) in a pipeline"
           : l->dispatcher == MW_DISPATCH_ALLGATHER ? "needs all-to-alls"
           : is_again ? "excludes recomputation of layers and of experts"
           : l->overlap_shared_experts ? "excludes --moe-shared-expert-overlap"
           : in->scenario->model.n_mtp > 1
               ? "takes one layer of multi-token prediction"
           : l->cuda_graph >= MW_GRAPH_LAYER ? "excludes captured MLPs"
           : l->zero >= 2                    ? "is none of Megatron-FSDP's"
                                             : NULL;
}

static bool hides_exchanges(const struct mw_export_in *in)
{
    const struct mw_layout *l = &in->plan->layout;

    return l->ep > 1 && in->ctx->stack.overlap_ep > 0 &&
           (l->overlap_off & MW_OVERLAP_EP) == 0;
}

bool mw_args_overlaps_experts(const struct mw_export_in *in)
{
    return hides_exchanges(in) && exchanges_lack(in) == NULL;
}

static void put_exchanges(struct mw_args *w)
{
    if (mw_args_overlaps_experts(w->in)) {
        mw_args_flag(w, "overlap-moe-expert-parallel-comm");
    } else if (hides_exchanges(w->in)) {
        mw_export_note(w->out,
                       "the predicted step hides exchanges with experts, but "
                       "--overlap-moe-expert-parallel-comm %s: left out, and "
                       "the step may be longer (layout: overlap_off: [ep] "
                       "prices that)",
                       exchanges_lack(w->in));
    }
}

/* Scores by softmax unless experts have biases (DeepSeek-V3); experts of a
 * token on few nodes by groups, one a node of the expert-parallel group. */
static void put_router(struct mw_args *w)
{
    const struct mw_moe *e = &w->in->scenario->model.moe;
    const struct mw_layout *l = &w->in->plan->layout;
    int groups = l->ep * l->etp / w->in->ctx->gpus_per_node;

    mw_args_number(w, "moe-router-topk", e->top_k);
    if (e->router_bias) {
        mw_args_word(w, "moe-router-score-function", "sigmoid");
        mw_args_flag(w, "moe-router-enable-expert-bias");
    } else if (e->top_k == 1) { /* a softmax of one score has no gradient */
        mw_args_flag(w, "moe-router-pre-softmax");
    }
    if (e->node_limit > 0 && groups > e->node_limit &&
        e->n_experts % groups == 0 && e->top_k >= e->node_limit) {
        mw_args_number(w, "moe-router-num-groups", groups);
        mw_args_number(w, "moe-router-group-topk", e->node_limit);
    }
}

static void put_experts(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    const struct mw_moe *e = &w->in->scenario->model.moe;
    const struct mw_workload *k = &w->in->scenario->workload;

    if (e->n_experts == 0) {
        return;
    }
    mw_args_number(w, "num-experts", e->n_experts);
    if (e->clamp) {
        mw_export_note(w->out,
                       "experts' gates and ups are clamped: in the place of "
                       "--swiglu name the model's own activation (gpt-oss: "
                       "--quick-geglu --glu-linear-offset 1.0 "
                       "--activation-func-clamp-value 7.0)");
    }
    mw_args_number(w, "moe-ffn-hidden-size", e->ffn);
    put_router(w);
    put_layers_that(w, "moe-layer-freq", mw_model_layer_is_moe);
    if (e->shared_ffn > 0) {
        mw_args_number(w, "moe-shared-expert-intermediate-size", e->shared_ffn);
    }
    if (e->shared_ffn > 0 && e->shared_gate) {
        mw_args_flag(w, "moe-shared-expert-gate");
    }
    if (k->capacity_factor > 0) {
        mw_str_addf(&w->out->file, "--moe-expert-capacity-factor %.6g\n",
                    k->capacity_factor);
    }
    if (k->pads_to_capacity) {
        mw_args_flag(w, "moe-pad-expert-input-to-capacity");
    }
    if (l->overlap_shared_experts) {
        mw_args_flag(w, "moe-shared-expert-overlap");
    }
    mw_args_flag(w, "moe-grouped-gemm");
    put_dispatcher(w);
    put_exchanges(w);
    mw_args_number(w, "expert-model-parallel-size", l->ep);
    mw_args_number(w, "expert-tensor-parallel-size", l->etp);
}

static void put_position(struct mw_args *w)
{
    const struct mw_model *m = &w->in->scenario->model;
    long long seq = w->in->scenario->workload.seq;

    switch (m->position) {
    case MW_POS_ROTARY:
        mw_args_word(w, "position-embedding-type", "rope");
        break;
    case MW_POS_LEARNED:
        mw_args_word(w, "position-embedding-type", "learned_absolute");
        break;
    case MW_POS_NONE:
        mw_args_word(w, "position-embedding-type", "none");
        break;
    case MW_POS_ALIBI:
        break; /* refused before */
    }
    mw_args_number(w, "max-position-embeddings",
                   m->max_seq > seq ? m->max_seq : seq);
}

void mw_args_model(struct mw_args *w)
{
    const struct mw_model *m = &w->in->scenario->model;

    mw_args_number(w, "num-layers", m->n_layers);
    mw_args_number(w, "hidden-size", m->hidden);
    mw_args_number(w, "ffn-hidden-size", m->ffn);
    put_attention(w);
    put_position(w);
    mw_args_word(w, "normalization",
                 m->norm == MW_NORM_RMS ? "RMSNorm" : "LayerNorm");
    if (m->is_gated) {
        mw_args_flag(w, "swiglu");
    }
    if (!m->bias_mlp && !m->moe.bias) {
        mw_args_flag(w, "disable-bias-linear");
        if (m->bias_qkv) {
            mw_args_flag(w, "add-qkv-bias");
        }
    }
    if (!m->tied) {
        mw_args_flag(w, "untie-embeddings-and-output-weights");
    }
    if (m->n_mtp > 0) {
        mw_args_number(w, "mtp-num-layers", m->n_mtp);
    }
    put_experts(w);
    mw_args_number(w, "vocab-size", m->vocab - 1); /* NullTokenizer adds one */
    mw_args_number(w, "make-vocab-size-divisible-by", 1);
}
