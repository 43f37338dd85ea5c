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

#include "planner/rules.h"

#include <string.h>

/* ---- grid ------------------------------------------------------------------
 */
static void put_layers(struct mw_args *w)
{
    const struct mw_plan *plan = w->in->plan;
    int last = plan->n_virtual - 1;

    if (plan->layout.vpp_group > 0) {
        mw_args_number(w, "microbatch-group-size-per-virtual-pipeline-stage",
                       plan->layout.vpp_group);
    }
    if (mw_plan_is_even(plan)) {
        if (plan->layout.vpp > 1) {
            mw_args_number(w, "num-virtual-stages-per-pipeline-rank",
                           plan->layout.vpp);
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

static void put_grid(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    static const char *const forms[] = {[MW_CP_GATHER] = "all_gather",
                                        [MW_CP_RING] = "p2p",
                                        [MW_CP_A2A] = "a2a",
                                        [MW_CP_PASSQ] = "none"};

    mw_args_number(w, "tensor-model-parallel-size", l->tp);
    mw_args_number(w, "pipeline-model-parallel-size", l->pp);
    put_layers(w);
    mw_args_number(w, "context-parallel-size", l->cp);
    if (l->cp > 1) {
        mw_args_word(w, "cp-comm-type",
                     l->cp_inner > 1 ? "a2a+p2p" : forms[l->cp_form]);
    }
    if (l->cp_inner > 1) {
        mw_str_addf(&w->out->file,
                    "--hierarchical-context-parallel-sizes %d %d\n",
                    l->cp_inner, mw_layout_cp_outer(l));
    }
    if (l->sp) {
        mw_args_flag(w, "sequence-parallel");
    }
    if (strcmp(l->order, "tp-cp-ep-pp-dp") == 0) {
        mw_args_flag(w, "use-tp-pp-dp-mapping");
    }
}

/* ---- optimizer -------------------------------------------------------------
 */
static bool is_muon(const struct mw_args *w)
{
    return w->in->scenario->workload.optimizer.kind == MW_OPTIMIZER_MUON;
}

/* Replicas that share Muon's matrices out have an optimizer of another name.
 */
static void put_optimizer(struct mw_args *w)
{
    const struct mw_optimizer *o = &w->in->scenario->workload.optimizer;

    switch (o->kind) {
    case MW_OPTIMIZER_MUON:
        mw_args_word(w, "optimizer",
                     w->in->plan->layout.zero == 1 ? "dist_muon" : "muon");
        mw_export_note(w->out, "Muon is in Megatron-Core from 0.15 on and "
                               "needs the package emerging_optimizers; a "
                               "version that refuses --overlap-param-gather "
                               "beside it gathers after the step");
        break;
    case MW_OPTIMIZER_SGD:
        mw_args_word(w, "optimizer", "sgd");
        mw_args_word(w, "sgd-momentum", "0");
        break;
    case MW_OPTIMIZER_MOMENTUM:
        mw_args_word(w, "optimizer", "sgd");
        break;
    case MW_OPTIMIZER_ADAMW:
    case MW_OPTIMIZER_ADAM8BIT:
    case MW_OPTIMIZER_ADAFACTOR: /* refused before, the latter two */
        break;
    }
}

static void put_states(struct mw_args *w)
{
    const struct mw_optimizer *o = &w->in->scenario->workload.optimizer;

    if (o->main == MW_MAIN_FP32 && o->exp_avg == MW_FP32 &&
        o->exp_avg_sq == MW_FP32) {
        return;
    }
    mw_args_flag(w, "use-precision-aware-optimizer");
    mw_args_word(w, "main-params-dtype",
                 o->main == MW_MAIN_FP16 ? "fp16" : "fp32");
    mw_args_word(w, "exp-avg-dtype", mw_dtype_name(o->exp_avg));
    mw_args_word(w, "exp-avg-sq-dtype", mw_dtype_name(o->exp_avg_sq));
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
static void put_tp_overlap(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    int near = w->in->ctx->domain_gpus;

    if (!hides_tp(w->in)) {
        return;
    }
    if (l->sp && l->tp <= near) {
        mw_args_flag(w, "tp-comm-overlap");
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

static void put_zero(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    bool has_reduce = (l->overlap_off & MW_OVERLAP_GRADS) == 0;
    bool has_gather = (l->overlap_off & MW_OVERLAP_PARAMS) == 0;

    if (l->zero == 1 && !is_muon(w)) {
        mw_args_flag(w, "use-distributed-optimizer");
    } else if (l->zero >= 2) {
        mw_args_flag(w, "use-megatron-fsdp");
        mw_args_word(w, "data-parallel-sharding-strategy",
                     l->zero == 2 ? "optim_grads" : "optim_grads_params");
        mw_args_flag(w, "use-distributed-optimizer");
        /* it would ask for one replica of each expert
         * (core/distributed/fsdp/mcore_fsdp_adapter.py) */
        mw_args_flag(w, "no-gradient-accumulation-fusion");
    }
    if (has_reduce && (l->zero >= 1 || l->dp > 1)) {
        mw_args_flag(w, "overlap-grad-reduce");
    }
    if (has_gather && l->zero >= 1) {
        mw_args_flag(w, "overlap-param-gather");
    }
    if (l->bucket_size > 0) {
        mw_args_number(w, "ddp-bucket-size", l->bucket_size);
    }
    if (l->fsdp_prefetch > 0) { /* half of it is for gathers */
        mw_args_number(w, "suggested-communication-unit-size",
                       2 * l->fsdp_prefetch * largest_layer(w->in));
    }
    if (l->dp_shard > 0 && l->dp_shard < l->dp) {
        mw_args_number(w, "num-distributed-optimizer-instances",
                       l->dp / l->dp_shard);
    }
    mw_args_word(w, "ckpt-format",
                 l->zero >= 2 ? "fsdp_dtensor"
                 : is_muon(w) ? "torch"
                              : "torch_dist");
}

static void put_offload(struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    int layers = mw_offload_layers(l, &w->in->scenario->model);

    if (l->offload_optimizer > 0) {
        mw_args_flag(w, "optimizer-cpu-offload");
        mw_str_addf(&w->out->file, "--optimizer-offload-fraction %.6g\n",
                    l->offload_optimizer);
        mw_args_flag(w, "use-precision-aware-optimizer");
    }
    if (layers > 0) {
        mw_args_number(w, "cpu-offloading-num-layers", layers);
    }
}

/* Scope "mlp" is of dense layers; "moe" is allowed for padded experts behind
 * all-to-alls alone. */
static const char *layer_scope(const struct mw_export_in *in)
{
    const struct mw_model *m = &in->scenario->model;
    int n_moe = mw_model_moe_layers(m, m->n_layers);
    bool has_dense = n_moe < m->n_layers;
    bool has_moe = n_moe > 0 && in->scenario->workload.pads_to_capacity &&
                   in->plan->layout.dispatcher == MW_DISPATCH_ALLTOALL;

    return has_moe ? (has_dense ? "attn mlp moe" : "attn moe")
                   : (has_dense ? "attn mlp" : "attn");
}

static void put_graphs(struct mw_args *w)
{
    switch (w->in->plan->layout.cuda_graph) {
    case MW_GRAPH_STACK:
        if (w->in->ctx->stack.has_graphs) {
            mw_export_note(w->out,
                           "the predicted step is issued by CUDA graphs, which "
                           "this file does not ask for: layout: cuda_graph "
                           "writes them, or none prices what is written");
        }
        return;
    case MW_GRAPH_NONE:
        mw_args_word(w, "cuda-graph-impl", "none");
        return;
    case MW_GRAPH_ATTN:
        mw_args_word(w, "cuda-graph-impl", "transformer_engine");
        mw_args_word(w, "cuda-graph-scope", "attn");
        break;
    case MW_GRAPH_LAYER:
        mw_args_word(w, "cuda-graph-impl", "transformer_engine");
        mw_args_word(w, "cuda-graph-scope", layer_scope(w->in));
        break;
    case MW_GRAPH_ITERATION:
        mw_args_word(w, "cuda-graph-impl", "local");
        mw_args_word(w, "cuda-graph-scope", "full_iteration");
        mw_args_flag(w, "no-check-for-nan-in-loss-and-grad");
        break;
    }
    mw_args_flag(w, "te-rng-tracker");
    mw_export_note(w->out, "--cuda-graph-impl is in Megatron-Core from 0.15 "
                           "on, and several scopes from 0.16");
}

static void put_modules(struct mw_args *w)
{
    struct mw_str names = {NULL, 0, 0};

    mw_recompute_modules_add(&names, mw_layout_modules(&w->in->plan->layout),
                             " ");
    mw_args_word(w, "recompute-modules", names.s);
    mw_str_release(&names);
}

static void put_recompute(struct mw_args *w)
{
    int layers = w->in->plan->layout.recompute_layers;

    switch (w->in->plan->layout.recompute) {
    case MW_RECOMPUTE_NONE:
        break;
    case MW_RECOMPUTE_SELECTIVE:
        mw_args_word(w, "recompute-granularity", "selective");
        put_modules(w);
        break;
    case MW_RECOMPUTE_FULL:
        mw_args_word(w, "recompute-granularity", "full");
        mw_args_word(w, "recompute-method", layers > 0 ? "block" : "uniform");
        mw_args_number(w, "recompute-num-layers", layers > 0 ? layers : 1);
        break;
    }
}

/* ---- work ------------------------------------------------------------------
 */
/* With delayed scales an operand keeps its history, which recomputed norms and
 * activations of experts would enter twice (core/transformer/
 * transformer_config.py refuses that). */
static const char *fp8_recipe(const struct mw_args *w)
{
    const struct mw_layout *l = &w->in->plan->layout;
    int again =
        l->recompute == MW_RECOMPUTE_SELECTIVE ? mw_layout_modules(l) : 0;

    switch (w->in->scenario->workload.scaling) {
    case MW_SCALE_BLOCK:
        return "blockwise";
    case MW_SCALE_MX:
        return "mxfp8";
    case MW_SCALE_TENSOR:
    case MW_SCALE_ROW: /* refused before */
    case MW_SCALING_COUNT:
        break;
    }
    return (again & (MW_MODULE_LAYERNORM | MW_MODULE_MOE_ACT)) != 0
               ? "tensorwise"
               : "delayed";
}

/* FlashAttention 2 has no heads of two sizes and no sinks, cuDNN's kernel has.
 */
static const char *attention_backend(const struct mw_args *w)
{
    return !w->in->scenario->workload.is_flash ? "unfused"
           : w->in->scenario->model.mla.on || w->in->scenario->model.sinks
               ? "auto"
               : "flash";
}

static void put_work(struct mw_args *w)
{
    const struct mw_workload *k = &w->in->scenario->workload;
    double dropout = k->has_dropout ? 0.1 : 0;

    mw_args_number(w, "seq-length", k->seq);
    mw_args_number(w, "micro-batch-size", w->in->plan->layout.micro_batch);
    mw_args_number(w, "global-batch-size", k->global_batch);
    mw_str_addf(&w->out->file, "--attention-dropout %g\n--hidden-dropout %g\n",
                dropout, dropout);
    if (k->dtype != MW_FP32 && k->dtype != MW_TF32) {
        mw_args_flag(w, k->dtype == MW_FP16 ? "fp16" : "bf16");
    }
    if (k->dtype == MW_FP8) {
        mw_args_word(w, "fp8-format", "hybrid");
        mw_args_word(w, "fp8-recipe", fp8_recipe(w));
    } else if (k->dtype == MW_FP4) {
        mw_args_word(w, "fp4-format", "e2m1");
    }
    if (k->grad_dtype == MW_BF16) {
        mw_args_flag(w, "grad-reduce-in-bf16");
    } else if (k->grad_dtype == MW_FP32 && k->dtype == MW_FP16) {
        mw_args_flag(
            w, "accumulate-allreduce-grads-in-fp32"); /* bf16 does unasked */
    }
    mw_args_word(w, "transformer-impl", "transformer_engine");
    mw_args_word(w, "attention-backend", attention_backend(w));
}

static void put_placeholders(struct mw_args *w)
{
    mw_args_word(w, "tokenizer-type", "NullTokenizer");
    mw_args_flag(w, "mock-data");
    mw_args_number(w, "train-iters", 1000);
    mw_args_word(w, "lr", "1.5e-4");
    mw_args_number(w, "log-interval", 1);
    mw_args_number(w, "eval-iters", 0);
}

/* ---- all -------------------------------------------------------------------
 */
static enum mw_status check(const struct mw_export_in *in, struct mw_err *err)
{
    const struct mw_model *m = &in->scenario->model;

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
    if (m->bias_mlp || m->moe.bias ? !m->bias_qkv || !m->bias_proj
                                   : m->bias_proj) {
        return mw_export_refuse(err, "megatron_biases",
                                "biases are of all products, of none, or of "
                                "query, key and value alone");
    }
    if (m->sandwich_norm) {
        return mw_export_refuse(err, "megatron_norms",
                                "norms after attention and MLP have no option");
    }
    return MW_OK;
}

/* FSDP forbids what tensor and context parallelism demand before Blackwell, and
 * exchanges beside other work want many queues (megatron/training/
 * arguments.py, CUDA_DEVICE_MAX_CONNECTIONS). */
static void put_connections(const struct mw_export_in *in,
                            struct mw_export *out)
{
    const struct mw_layout *l = &in->plan->layout;
    bool has_many = mw_args_overlaps_experts(in) && l->tp * l->cp == 1;

    if (l->zero < 2) {
        mw_str_addf(&out->launch, "CUDA_DEVICE_MAX_CONNECTIONS=%d ",
                    has_many ? 32 : 1);
    }
}

enum mw_status mw_export_megatron(const struct mw_export_in *in,
                                  struct mw_export *out, struct mw_err *err)
{
    struct mw_args w = {in, out};
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
        mw_args_flag(&w, "cross-entropy-loss-fusion");
        mw_args_word(&w, "cross-entropy-fusion-impl", "te");
    }
    if (in->scenario->workload.clip == MW_CLIP_NONE) {
        mw_args_word(&w, "clip-grad", "0.0"); /* 1.0 by default */
    }
    put_zero(&w);
    put_offload(&w);
    put_recompute(&w);
    put_graphs(&w);
    mw_args_model(&w);
    put_work(&w);
    put_placeholders(&w);
    put_connections(in, out);
    mw_export_torchrun(in, out);
    mw_str_addf(&out->launch, "pretrain_gpt.py $(cat %s)\n", in->file);
    if (l->zero >= 2 && (l->tp > 1 || l->cp > 1)) {
        mw_export_note(out, "FSDP must not run under "
                            "CUDA_DEVICE_MAX_CONNECTIONS=1, tp and cp want it "
                            "before Blackwell: they will overlap less");
    }
    return MW_OK;
}
