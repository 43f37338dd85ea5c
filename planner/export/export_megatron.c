/*
 * Options of Megatron-LM's pretrain_gpt.py, one a line, for
 * `pretrain_gpt.py $(cat FILE)`. Names and values: Megatron-LM of August 2026,
 * megatron/training/arguments.py and the dataclasses of megatron/core.
 *
 *   layers   even ones by counts; others by --pipeline-model-parallel-layout
 *            (E embedding, t layer, m multi-token prediction, L head and loss,
 * | a cut), whose stages go round the pipeline ranks as our virtual stages do
 *   ZeRO-1   --use-distributed-optimizer; ZeRO-2 and -3 are Megatron-FSDP
 *   Muon     dist_muon, layer-wise, instead of a distributed optimizer
 *   HSDP     as many instances of the distributed optimizer as groups
 *
 * Data parallelism is never given: it is what the other ways leave.
 */
#include "planner/export/export_int.h"

#include <math.h>
#include <string.h>

struct writer {
    const struct mw_export_in *in;
    struct mw_export *out;
};

static void flag(struct writer *w, const char *name)
{
    mw_str_addf(&w->out->file, "--%s\n", name);
}

static void number(struct writer *w, const char *name, long long v)
{
    mw_str_addf(&w->out->file, "--%s %lld\n", name, v);
}

static void word(struct writer *w, const char *name, const char *v)
{
    mw_str_addf(&w->out->file, "--%s %s\n", name, v);
}

/* ---- grid ------------------------------------------------------------------
 */
static void put_layers(struct writer *w)
{
    const struct mw_plan *plan = w->in->plan;
    int last = plan->n_virtual - 1;

    if (mw_plan_is_even(plan)) {
        if (plan->layout.vpp > 1) {
            number(w, "num-virtual-stages-per-pipeline-rank", plan->layout.vpp);
        }
        return;
    }
    mw_str_add(&w->out->file, "--pipeline-model-parallel-layout ");
    for (int k = 0; k <= last; k++) {
        mw_str_addf(&w->out->file, "%s%s", k > 0 ? "|" : "", k == 0 ? "E" : "");
        if (plan->layers[k] > 0) {
            mw_str_addf(&w->out->file, "t*%d", plan->layers[k]);
        }
        bool is_mtp = k == last - plan->layout.mtp_ahead;

        for (int i = 0; is_mtp && i < w->in->scenario->model.n_mtp; i++) {
            mw_str_add(&w->out->file, "m");
        }
        mw_str_add(&w->out->file, k == last ? "L" : "");
    }
    mw_str_add(&w->out->file, "\n");
}

static void put_grid(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    static const char *const forms[] = {[MW_CP_GATHER] = "all_gather",
                                        [MW_CP_RING] = "p2p",
                                        [MW_CP_A2A] = "a2a",
                                        [MW_CP_PASSQ] = "none"};

    number(w, "tensor-model-parallel-size", l->tp);
    number(w, "pipeline-model-parallel-size", l->pp);
    put_layers(w);
    number(w, "context-parallel-size", l->cp);
    if (l->cp > 1) {
        word(w, "cp-comm-type",
             l->cp_inner > 1 ? "a2a+p2p" : forms[l->cp_form]);
    }
    if (l->cp_inner > 1) {
        mw_str_addf(&w->out->file,
                    "--hierarchical-context-parallel-sizes %d %d\n",
                    l->cp_inner, mw_layout_cp_outer(l));
    }
    if (l->sp) {
        flag(w, "sequence-parallel");
    }
    if (strcmp(l->order, "tp-cp-ep-pp-dp") == 0) {
        flag(w, "use-tp-pp-dp-mapping");
    }
}

/* ---- optimizer -------------------------------------------------------------
 */
static bool is_muon(const struct writer *w)
{
    return w->in->scenario->workload.optimizer.kind == MW_OPTIMIZER_MUON;
}

/* Replicas that share Muon's matrices out have an optimizer of another name.
 */
static void put_optimizer(struct writer *w)
{
    const struct mw_optimizer *o = &w->in->scenario->workload.optimizer;

    switch (o->kind) {
    case MW_OPTIMIZER_MUON:
        word(w, "optimizer",
             w->in->plan->layout.zero == 1 ? "dist_muon" : "muon");
        mw_export_note(w->out, "Muon is in Megatron-Core from 0.15 on and "
                               "needs the package emerging_optimizers");
        break;
    case MW_OPTIMIZER_SGD:
        word(w, "optimizer", "sgd");
        word(w, "sgd-momentum", "0");
        break;
    case MW_OPTIMIZER_MOMENTUM:
        word(w, "optimizer", "sgd");
        break;
    case MW_OPTIMIZER_ADAMW:
    case MW_OPTIMIZER_ADAM8BIT:
    case MW_OPTIMIZER_ADAFACTOR: /* refused before, the latter two */
        break;
    }
}

static void put_states(struct writer *w)
{
    const struct mw_optimizer *o = &w->in->scenario->workload.optimizer;

    if (o->main == MW_MAIN_FP32 && o->exp_avg == MW_FP32 &&
        o->exp_avg_sq == MW_FP32) {
        return;
    }
    if (!(w->in->plan->layout.offload_optimizer > 0)) { /* else it is there */
        flag(w, "use-precision-aware-optimizer");
    }
    word(w, "main-params-dtype", o->main == MW_MAIN_FP16 ? "fp16" : "fp32");
    word(w, "exp-avg-dtype", mw_dtype_name(o->exp_avg));
    word(w, "exp-avg-sq-dtype", mw_dtype_name(o->exp_avg_sq));
}

/* Does the price hide collectives of tensor parallelism behind products? */
static bool hides_tp(const struct mw_export_in *in)
{
    const struct mw_layout *l = &in->plan->layout;

    return l->tp > 1 && in->ctx->stack.overlap_tp > 0 &&
           (l->overlap_off & MW_OVERLAP_TP) == 0;
}

/* Transformer Engine's userbuffers do it: gathers and scatters of sequence
 * parallelism alone (megatron/training/arguments.py asserts it), among GPUs
 * that reach each other's memory (transformer_engine/pytorch/module/base.py,
 * initialize_ub). */
static void put_tp_overlap(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    int near = w->in->ctx->domain_gpus;

    if (!hides_tp(w->in)) {
        return;
    }
    if (l->sp && l->tp <= near) {
        flag(w, "tp-comm-overlap");
        return;
    }
    mw_export_note(w->out,
                   "the predicted step hides tensor parallelism behind "
                   "products, but --tp-comm-overlap %s: left out, and the step "
                   "may be longer (layout: overlap_off: [tp] prices that)",
                   l->sp ? "works inside a node or NVLink domain alone"
                         : "needs sequence parallelism (sp)");
}

/* ---- data parallel state ---------------------------------------------------
 */
/* Elements of a rank's largest layer. */
static int64_t largest_layer(const struct mw_export_in *in)
{
    struct mw_params params = {0};
    int64_t most = 0, sum = 0;

    mw_model_params(&in->scenario->model, &params);
    for (size_t i = 0; i < params.n; i++) {
        bool is_next = i > 0 && params.v[i].layer != params.v[i - 1].layer;
        bool is_layer = params.v[i].layer >= 0 &&
                        params.v[i].layer < in->scenario->model.n_layers;

        sum = (is_next ? 0 : sum) +
              (is_layer ? mw_param_shard_count(&params.v[i], &in->plan->layout)
                        : 0);
        most = sum > most ? sum : most;
    }
    mw_array_release(&params);
    return most;
}

static void put_zero(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    bool has_reduce = (l->overlap_off & MW_OVERLAP_GRADS) == 0;
    bool has_gather = (l->overlap_off & MW_OVERLAP_PARAMS) == 0;

    if (l->zero == 1 && !is_muon(w)) {
        flag(w, "use-distributed-optimizer");
    } else if (l->zero >= 2) {
        flag(w, "use-megatron-fsdp");
        word(w, "data-parallel-sharding-strategy",
             l->zero == 2 ? "optim_grads" : "optim_grads_params");
        flag(w, "use-distributed-optimizer");
    }
    if (has_reduce && (l->zero >= 1 || l->dp > 1)) {
        flag(w, "overlap-grad-reduce");
    }
    if (has_gather && l->zero >= 1) {
        flag(w, "overlap-param-gather");
    }
    if (l->bucket_size > 0) {
        number(w, "ddp-bucket-size", l->bucket_size);
    }
    if (l->fsdp_prefetch > 0) { /* half of it is for gathers */
        number(w, "suggested-communication-unit-size",
               2 * l->fsdp_prefetch * largest_layer(w->in));
    }
    if (l->dp_shard > 0 && l->dp_shard < l->dp) {
        number(w, "num-distributed-optimizer-instances", l->dp / l->dp_shard);
    }
    word(w, "ckpt-format", l->zero >= 2 ? "fsdp_dtensor" : "torch_dist");
}

static void put_offload(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    int layers =
        (int)lround(l->offload_activations * w->in->scenario->model.n_layers);

    if (l->offload_optimizer > 0) {
        flag(w, "optimizer-cpu-offload");
        mw_str_addf(&w->out->file, "--optimizer-offload-fraction %.6g\n",
                    l->offload_optimizer);
        flag(w, "use-precision-aware-optimizer");
    }
    if (layers > 0) {
        number(w, "cpu-offloading-num-layers", layers);
    }
}

/* Of layers with experts the attention alone; scope "mlp" is of dense ones. */
static void put_graphs(struct writer *w)
{
    bool has_dense = mw_model_moe_layers(&w->in->scenario->model,
                                         w->in->scenario->model.n_layers) <
                     w->in->scenario->model.n_layers;

    switch (w->in->plan->layout.cuda_graph) {
    case MW_GRAPH_STACK:
        return;
    case MW_GRAPH_NONE:
        word(w, "cuda-graph-impl", "none");
        return;
    case MW_GRAPH_ATTN:
        word(w, "cuda-graph-impl", "transformer_engine");
        word(w, "cuda-graph-scope", "attn");
        break;
    case MW_GRAPH_LAYER:
        word(w, "cuda-graph-impl", "transformer_engine");
        word(w, "cuda-graph-scope", has_dense ? "attn mlp" : "attn");
        break;
    case MW_GRAPH_ITERATION:
        word(w, "cuda-graph-impl", "local");
        word(w, "cuda-graph-scope", "full_iteration");
        flag(w, "no-check-for-nan-in-loss-and-grad");
        break;
    }
    flag(w, "te-rng-tracker");
}

static void put_modules(struct writer *w)
{
    struct mw_str names = {NULL, 0, 0};

    mw_recompute_modules_add(&names, mw_layout_modules(&w->in->plan->layout),
                             " ");
    word(w, "recompute-modules", names.s);
    mw_str_release(&names);
}

static void put_recompute(struct writer *w)
{
    int layers = w->in->plan->layout.recompute_layers;

    switch (w->in->plan->layout.recompute) {
    case MW_RECOMPUTE_NONE:
        break;
    case MW_RECOMPUTE_SELECTIVE:
        word(w, "recompute-granularity", "selective");
        put_modules(w);
        break;
    case MW_RECOMPUTE_FULL:
        word(w, "recompute-granularity", "full");
        word(w, "recompute-method", layers > 0 ? "block" : "uniform");
        number(w, "recompute-num-layers", layers > 0 ? layers : 1);
        break;
    }
}

/* ---- model -----------------------------------------------------------------
 */
static void put_attention(struct writer *w)
{
    const struct mw_model *m = &w->in->scenario->model;

    number(w, "num-attention-heads", m->n_heads);
    if (m->mla.on) {
        flag(w, "multi-latent-attention");
        if (m->mla.q_lora > 0) {
            number(w, "q-lora-rank", m->mla.q_lora);
        }
        number(w, "kv-lora-rank", m->mla.kv_lora);
        number(w, "qk-head-dim", m->mla.nope_dim);
        number(w, "qk-pos-emb-head-dim", m->mla.rope_dim);
        number(w, "v-head-dim", m->mla.v_dim);
    } else {
        if (m->n_kv_heads != m->n_heads) {
            flag(w, "group-query-attention");
            number(w, "num-query-groups", m->n_kv_heads);
        }
        number(w, "kv-channels", m->head_dim);
    }
    if (m->qk_norm) {
        flag(w, "qk-layernorm");
    }
}

/* Kernels that send by themselves are an installation of their own: where a
 * layout does not name them, launch files do not ask for them. */
static void put_dispatcher(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    bool is_flex = l->dispatcher == MW_DISPATCH_DEEPEP ||
                   l->dispatcher == MW_DISPATCH_HYBRIDEP;

    if (l->dispatcher == MW_DISPATCH_ALLGATHER) {
        word(w, "moe-token-dispatcher-type", "allgather");
        return;
    }
    word(w, "moe-token-dispatcher-type", is_flex ? "flex" : "alltoall");
    if (is_flex) {
        word(w, "moe-flex-dispatcher-backend",
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

static void put_experts(struct writer *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    const struct mw_moe *e = &w->in->scenario->model.moe;
    const struct mw_workload *k = &w->in->scenario->workload;

    if (e->n_experts == 0) {
        return;
    }
    number(w, "num-experts", e->n_experts);
    number(w, "moe-router-topk", e->top_k);
    number(w, "moe-ffn-hidden-size", e->ffn);
    if (e->first_dense > 0) {
        mw_str_addf(&w->out->file, "--moe-layer-freq ([0]*%d+[1]*%d)\n",
                    e->first_dense,
                    w->in->scenario->model.n_layers - e->first_dense);
    } else if (e->every > 1) {
        number(w, "moe-layer-freq", e->every);
    }
    if (e->shared_ffn > 0) {
        number(w, "moe-shared-expert-intermediate-size", e->shared_ffn);
    }
    if (k->capacity_factor > 0) {
        mw_str_addf(&w->out->file, "--moe-expert-capacity-factor %.6g\n",
                    k->capacity_factor);
    }
    if (k->pads_to_capacity) {
        flag(w, "moe-pad-expert-input-to-capacity");
    }
    if (l->overlap_shared_experts) {
        flag(w, "moe-shared-expert-overlap");
    }
    flag(w, "moe-grouped-gemm");
    put_dispatcher(w);
    number(w, "expert-model-parallel-size", l->ep);
    number(w, "expert-tensor-parallel-size", l->etp);
}

static void put_position(struct writer *w)
{
    const struct mw_model *m = &w->in->scenario->model;
    long long seq = w->in->scenario->workload.seq;

    switch (m->position) {
    case MW_POS_ROTARY:
        word(w, "position-embedding-type", "rope");
        break;
    case MW_POS_LEARNED:
        word(w, "position-embedding-type", "learned_absolute");
        break;
    case MW_POS_NONE:
        word(w, "position-embedding-type", "none");
        break;
    case MW_POS_ALIBI:
        break; /* refused before */
    }
    number(w, "max-position-embeddings", m->max_seq > seq ? m->max_seq : seq);
}

static void put_model(struct writer *w)
{
    const struct mw_model *m = &w->in->scenario->model;

    number(w, "num-layers", m->n_layers);
    number(w, "hidden-size", m->hidden);
    number(w, "ffn-hidden-size", m->ffn);
    put_attention(w);
    put_position(w);
    word(w, "normalization", m->norm == MW_NORM_RMS ? "RMSNorm" : "LayerNorm");
    if (m->is_gated) {
        flag(w, "swiglu");
    }
    if (!m->bias_mlp) {
        flag(w, "disable-bias-linear");
        if (m->bias_qkv) {
            flag(w, "add-qkv-bias");
        }
    }
    if (!m->tied) {
        flag(w, "untie-embeddings-and-output-weights");
    }
    if (m->n_mtp > 0) {
        number(w, "mtp-num-layers", m->n_mtp);
    }
    put_experts(w);
    number(w, "vocab-size", m->vocab);
    number(w, "make-vocab-size-divisible-by", 1);
}

static void put_work(struct writer *w)
{
    const struct mw_workload *k = &w->in->scenario->workload;
    double dropout = k->has_dropout ? 0.1 : 0;

    number(w, "seq-length", k->seq);
    number(w, "micro-batch-size", w->in->plan->layout.micro_batch);
    number(w, "global-batch-size", k->global_batch);
    mw_str_addf(&w->out->file, "--attention-dropout %g\n--hidden-dropout %g\n",
                dropout, dropout);
    if (k->dtype != MW_FP32 && k->dtype != MW_TF32) {
        flag(w, k->dtype == MW_FP16 ? "fp16" : "bf16");
    }
    if (k->dtype == MW_FP8) {
        word(w, "fp8-format", "hybrid");
    } else if (k->dtype == MW_FP4) {
        word(w, "fp4-format", "e2m1");
    }
    if (k->grad_dtype == MW_BF16) {
        flag(w, "grad-reduce-in-bf16");
    }
    word(w, "transformer-impl", "transformer_engine");
    word(w, "attention-backend", k->is_flash ? "flash" : "unfused");
}

static void put_placeholders(struct writer *w)
{
    word(w, "tokenizer-type", "NullTokenizer");
    flag(w, "mock-data");
    number(w, "train-iters", 1000);
    word(w, "lr", "1.5e-4");
    number(w, "log-interval", 1);
    number(w, "eval-iters", 0);
}

/* ---- all -------------------------------------------------------------------
 */
static enum mw_status check(const struct mw_export_in *in, struct mw_err *err)
{
    const struct mw_model *m = &in->scenario->model;
    const struct mw_layout *l = &in->plan->layout;

    if (m->position == MW_POS_ALIBI) {
        return mw_export_refuse(err, "megatron_positions",
                                "ALiBi positions are not among rope, "
                                "learned_absolute, none");
    }
    if (m->act == MW_ACT_RELU || (m->act == MW_ACT_SILU && !m->is_gated) ||
        (m->act == MW_ACT_GELU && m->is_gated)) {
        return mw_export_refuse(err, "megatron_activation",
                                "the MLP's activation is neither GELU nor "
                                "SwiGLU");
    }
    if (m->sandwich_norm) {
        return mw_export_refuse(err, "megatron_norms",
                                "norms after attention and MLP have no option");
    }
    if (m->moe.n_experts > 0 && l->tp > 1 && !l->sp) {
        return mw_export_refuse(err, "megatron_experts_sp",
                                "experts with tp %d need sequence parallelism "
                                "(megatron/core/transformer/moe/moe_layer.py)",
                                l->tp);
    }
    if (l->pp == 1 && l->vpp > 1) {
        return mw_export_refuse(err, "megatron_chunks",
                                "chunks (vpp %d) need pp of at least 2",
                                l->vpp);
    }
    return MW_OK;
}

enum mw_status mw_export_megatron(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err)
{
    struct writer w = {in, out};
    const struct mw_layout *l = &in->plan->layout;
    enum mw_status status = check(in, err);

    if (status != MW_OK) {
        return status;
    }
    put_grid(&w);
    put_tp_overlap(&w);
    put_optimizer(&w);
    put_states(&w);
    if (in->scenario->workload.loss == MW_LOSS_FUSED) {
        flag(&w, "cross-entropy-loss-fusion");
        word(&w, "cross-entropy-fusion-impl", "te");
    }
    if (in->scenario->workload.clip == MW_CLIP_NONE) {
        word(&w, "clip-grad", "0.0"); /* 1.0 by default */
    }
    put_zero(&w);
    put_offload(&w);
    put_recompute(&w);
    put_graphs(&w);
    put_model(&w);
    put_work(&w);
    put_placeholders(&w);
    /* FSDP forbids what tensor and context parallelism demand before
     * Blackwell (arguments.py:1048 and 1454). */
    if (l->zero < 2) {
        mw_str_add(&out->launch, "CUDA_DEVICE_MAX_CONNECTIONS=1 ");
    }
    mw_export_torchrun(in, out);
    mw_str_addf(&out->launch, "pretrain_gpt.py $(cat %s)\n", in->file);
    if (l->zero >= 2 && (l->tp > 1 || l->cp > 1)) {
        mw_export_note(out, "FSDP must not run under "
                            "CUDA_DEVICE_MAX_CONNECTIONS=1, tp and cp want it "
                            "before Blackwell: they will overlap less");
    }
    return MW_OK;
}
