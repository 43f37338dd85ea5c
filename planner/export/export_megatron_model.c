/*
 * The model as options of Megatron-LM's pretrain_gpt.py (see
 * export_megatron.c): attention, experts and the way to them, positions, sizes.
 */
#include "planner/export/export_int.h"

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

static void put_experts(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    const struct mw_moe *e = &w->in->scenario->model.moe;
    const struct mw_workload *k = &w->in->scenario->workload;

    if (e->n_experts == 0) {
        return;
    }
    mw_args_number(w, "num-experts", e->n_experts);
    mw_args_number(w, "moe-router-topk", e->top_k);
    mw_args_number(w, "moe-ffn-hidden-size", e->ffn);
    if (e->first_dense > 0) {
        mw_str_addf(&w->out->file, "--moe-layer-freq ([0]*%d+[1]*%d)\n",
                    e->first_dense,
                    w->in->scenario->model.n_layers - e->first_dense);
    } else if (e->every > 1) {
        mw_args_number(w, "moe-layer-freq", e->every);
    }
    if (e->shared_ffn > 0) {
        mw_args_number(w, "moe-shared-expert-intermediate-size", e->shared_ffn);
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
    if (e->top_k == 1) { /* a softmax of one score has no gradient */
        mw_args_flag(w, "moe-router-pre-softmax");
    }
    mw_args_flag(w, "moe-grouped-gemm");
    put_dispatcher(w);
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
    if (!m->bias_mlp) {
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
