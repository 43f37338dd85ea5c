/*
 * Layout and workload of a measured row. What a source leaves out follows the
 * framework's practice at the time; the rules are in validate.h.
 */
#include "sim/validate/validate_int.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double global_batch_of(const struct mw_measured *r)
{
    return isnan(r->global_batch) ? r->microbatches * r->micro_batch * r->dp
                                  : r->global_batch;
}

static enum mw_dtype dtype_of(struct mw_case *c)
{
    const char *text = c->row->dtype;

    if (text[0] == '\0') {
        mw_case_fill(c, MW_FILL_DTYPE);
        return MW_BF16;
    }
    if (mw_text_has(text, "fp4")) {
        return MW_FP4;
    }
    if (mw_text_has(text, "fp8") || mw_text_has(text, "float8")) {
        return MW_FP8;
    }
    if (mw_text_has(text, "fp16")) {
        return MW_FP16;
    }
    return mw_text_has(text, "fp32") ? MW_FP32 : MW_BF16;
}

/* Memory does not depend on it once the pipeline is full. */
static double batch_for_memory(struct mw_case *c)
{
    if (mw_case_has_time(c->row)) {
        return (double)NAN;
    }
    mw_case_fill(c, MW_FILL_GLOBAL_BATCH);
    return (double)c->layout.micro_batch * c->layout.dp * c->layout.pp;
}

static void take_lora(struct mw_case *c)
{
    struct mw_workload *w = &c->scenario.workload;
    const struct mw_measured *r = c->row;
    bool is_litgpt = mw_text_has(r->framework, "LitGPT");
    bool is_torchtune = mw_text_has(r->framework, "torchtune");

    mw_case_fill(c,
                 is_litgpt || is_torchtune ? MW_FILL_FINETUNE : MW_FILL_LORA);
    w->lora_rank = is_litgpt ? 8 : 16;
    w->lora_targets = is_torchtune ? MW_LORA_ALL
                      : is_litgpt  ? MW_LORA_ATTENTION
                                   : MW_LORA_QKV;
    if (mw_text_has(r->quantisation, "nf4") ||
        mw_text_has(r->quantisation, "fp4") || mw_text_has(r->kind, "qlora")) {
        w->base_dtype = MW_BASE_NF4;
    }
}

static bool keeps_bf16_gradients(const struct mw_measured *r)
{
    static const char *const stacks[] = {"megatron-core", "megatron-core-nemo",
                                         "megatron-core-nemo-graphs",
                                         "internevo", "internevo-fsdp"};
    const char *stack = mw_case_stack_of(r);
    bool keeps = r->method[0] != '\0'; /* fine-tuning */

    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        keeps = keeps || strcmp(stack, stacks[i]) == 0;
    }
    return keeps;
}

/* "fp8-mx", "mxfp8", "float8 rowwise", "fp8-mx/blockwise": the first. */
static enum mw_scaling scaling_of(const char *dtype)
{
    return mw_text_has(dtype, "mx")      ? MW_SCALE_MX
           : mw_text_has(dtype, "row")   ? MW_SCALE_ROW
           : mw_text_has(dtype, "block") ? MW_SCALE_BLOCK
                                         : MW_SCALE_TENSOR;
}

/* A paragraph of 117 words (Rajpurkar et al., arXiv:1606.05250), a question and
 * an answer in sub-words. */
enum { squad_tokens = 200 };

/* Of NeMo's performance summaries ("NeMo 24.07"); the tables of Megatron-Bridge
 * and of the dgxc recipes do not say what they tune on. */
static bool is_packed(const struct mw_measured *r)
{
    static const char name[] = "NeMo ";

    return strncmp(r->framework, name, sizeof name - 1) == 0 &&
           (mw_text_has(r->kind, "lora") || mw_text_has(r->kind, "sft"));
}

void mw_case_workload(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    double global_batch = global_batch_of(r);
    struct mw_workload *w = &c->scenario.workload;
    bool is_unfused = mw_case_is_before_flash(r);

    if (!(global_batch > 0)) {
        global_batch = batch_for_memory(c);
    }
    if (!(r->seq > 0) || !(global_batch > 0)) {
        mw_case_skip(c, "sequence length or global batch is not given");
        return;
    }
    mw_workload_default(w);
    w->seq = (int64_t)r->seq;
    w->global_batch = (int64_t)global_batch;
    w->dtype = dtype_of(c);
    w->scaling = scaling_of(c->row->dtype);
    w->grad_dtype = w->dtype == MW_FP16       ? MW_FP16
                    : keeps_bf16_gradients(r) ? MW_BF16
                                              : MW_FP32;
    mw_case_fill(c, MW_FILL_GRAD_DTYPE);
    w->is_flash = !is_unfused;
    w->has_dropout = is_unfused;
    mw_case_fill(c, MW_FILL_ATTENTION);
    if (mw_text_has(r->kind, "lora")) {
        take_lora(c);
    }
    if (mw_text_has(r->model, "kimi") &&
        mw_text_has(r->framework, "Megatron-Bridge")) {
        mw_case_fill(c, MW_FILL_MUON);
        w->optimizer.kind = MW_OPTIMIZER_MUON;
    }
    if (is_packed(r)) {
        mw_case_fill(c, MW_FILL_PACKED);
        w->doc_tokens = squad_tokens < w->seq ? squad_tokens : 0;
    }
    w->causal_flops = mw_text_has(r->flops_attention, "causal") ||
                      mw_text_has(r->tflops_def, "causal");
}

static int way_or(struct mw_case *c, double cell, enum mw_fill fill)
{
    if (isnan(cell)) {
        mw_case_fill(c, fill);
        return 1;
    }
    return (int)cell;
}

/* "zero1 over all dp", "distributed optimizer (zero-1)", "zero2", "fsdp-3",
 * "SHARD_GRAD_OP"; the first that is in the text, in any case. -1: none is. */
static int zero_said(const char *text)
{
    static const struct {
        const char *said;
        int zero;
    } words[] = {{"within", 1},        {"zero1", 1},      {"zero-1", 1},
                 {"zero2", 2},         {"zero-2", 2},     {"fsdp-2", 2},
                 {"shard_grad_op", 2}, {"no_shard", 0},   {"ddp", 0},
                 {"none", 0},          {"zero", 3},       {"fsdp", 3},
                 {"hsdp", 3},          {"full_shard", 3}, {"hybrid_shard", 3}};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (mw_text_has(text, words[i].said)) {
            return words[i].zero;
        }
    }
    return -1;
}

static int zero_of(struct mw_case *c)
{
    const char *text = c->row->zero;

    if (text[0] == '\0') {
        mw_case_fill(c, MW_FILL_ZERO);
        return mw_case_is_core(c->row);
    }
    if (text[1] == '\0' && text[0] >= '0' && text[0] <= '3') {
        return text[0] - '0';
    }
    int zero = zero_said(text);

    if (mw_text_has(text, "-like") || zero < 0) {
        mw_case_skip(c, "sharding '%s' is not modelled", text);
        return 0;
    }
    if (zero == 1 && mw_text_has(text, "fsdp") &&
        !mw_text_has(text, "within")) {
        mw_case_fill(c, MW_FILL_ZERO_GROUP);
        return 3;
    }
    return zero;
}

/* "zero1 within 8 GPUs"; "HSDP": a node's GPUs share. */
static int dp_shard_of(struct mw_case *c)
{
    const char *within = strstr(c->row->zero, "within ");
    long n = within ? strtol(within + strlen("within "), NULL, 10) : 0;

    if (n > 1 && c->layout.dp % n == 0) {
        return n < c->layout.dp ? (int)n : 0;
    }
    double ranks = c->row->gpus / c->row->nodes / c->layout.cp;

    if (!(mw_text_has(c->row->zero, "hsdp") ||
          mw_text_has(c->row->zero, "hybrid_shard")) ||
        !(ranks >= 1) || fmod(c->layout.dp, ranks) != 0) {
        return 0;
    }
    mw_case_fill(c, MW_FILL_HSDP);
    return (int)ranks;
}

/* Megatron-LM of 2023, which MegaScale is compared with. */
static bool is_megascale(const struct mw_measured *r)
{
    return mw_text_has(r->source, "MegaScale") &&
           mw_text_has(r->framework, "Megatron-LM");
}

static bool sp_of(struct mw_case *c)
{
    const char *text = c->row->seq_parallel;

    if (is_megascale(c->row)) {
        return true;
    }
    if (c->layout.tp <= 1) {
        return false;
    }
    if (text[0] == '\0') {
        mw_case_fill(c, MW_FILL_SP);
        return mw_case_is_core(c->row) ||
               mw_text_has(c->row->framework, "nanotron");
    }
    return text[0] == '1';
}

static enum mw_recompute recompute_of(struct mw_case *c)
{
    const char *text = c->row->recompute;

    if (is_megascale(c->row)) {
        mw_case_fill(c, MW_FILL_MEGASCALE);
        return MW_RECOMPUTE_SELECTIVE;
    }
    if (mw_case_is_composed(c->row)) {
        mw_case_fill(c, MW_FILL_COMPOSED);
        return MW_RECOMPUTE_NONE;
    }
    if (text[0] == '\0') {
        mw_case_fill(c, MW_FILL_RECOMPUTE);
        return MW_RECOMPUTE_NONE;
    }
    if (mw_text_has(text, "full")) {
        return MW_RECOMPUTE_FULL;
    }
    return mw_text_has(text, "selective") ? MW_RECOMPUTE_SELECTIVE
                                          : MW_RECOMPUTE_NONE;
}

static bool is_twin(const struct mw_measured *a, const struct mw_measured *b)
{
    return !isnan(b->micro_batch) && strcmp(a->model, b->model) == 0 &&
           a->tp == b->tp && a->pp == b->pp && a->dp == b->dp;
}

static int micro_batch_of(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    double from_steps = global_batch_of(r) / (c->layout.dp * r->grad_accum);

    if (!isnan(r->micro_batch)) {
        return (int)r->micro_batch;
    }
    if (from_steps >= 1 && from_steps <= INT32_MAX) {
        mw_case_fill(c, MW_FILL_MICRO_BATCH_STEPS);
        return (int)from_steps;
    }
    for (size_t i = 0; i < c->n_all; i++) {
        if (is_twin(r, &c->all[i])) {
            mw_case_fill(c, MW_FILL_MICRO_BATCH_TWIN);
            return (int)c->all[i].micro_batch;
        }
    }
    if (mw_text_has(r->framework, "Megatron-LM (2020") ||
        (mw_text_has(r->framework, "Megatron-Core r0") && c->layout.pp == 1)) {
        mw_case_fill(c, MW_FILL_MICRO_BATCH_WHOLE);
        return (int)r->global_batch / c->layout.dp;
    }
    mw_case_fill(c, MW_FILL_MICRO_BATCH);
    return 1;
}

/* Chunks of two layers, or of one where that does not divide. */
static int chunks_of(double layers, int pp)
{
    double each = layers / pp;

    return (int)(fmod(each, 2) == 0 ? each / 2 : each);
}

static int vpp_of(struct mw_case *c)
{
    const struct mw_measured *r = c->row;

    if (isnan(r->vpp) && mw_text_has(r->framework, "Megatron-Core r0") &&
        fmod(r->layers, r->pp) == 0) {
        mw_case_fill(c, MW_FILL_VPP_OVERLAP);
        return chunks_of(r->layers, (int)r->pp);
    }
    if (!isnan(r->vpp) || !mw_case_is_core(r)) {
        return isnan(r->vpp) ? 1 : (int)r->vpp;
    }
    for (size_t i = 0; i < c->n_all; i++) {
        const struct mw_measured *o = &c->all[i];

        if (!isnan(o->vpp) && strcmp(o->model, r->model) == 0 &&
            strcmp(o->gpu, r->gpu) == 0 && o->tp == r->tp && o->pp == r->pp) {
            mw_case_fill(c, MW_FILL_VPP_TWIN);
            return (int)o->vpp;
        }
    }
    return 1;
}

/* Megatron-LM's strong scaling of GPT-3 on H100 (README of r0.8): GPUs / 48
 * replicas of tp 8 and pp 6, interleaved in chunks of two layers. */
static bool is_strong_scaling(const struct mw_measured *r)
{
    return mw_text_has(r->framework, "Megatron-Core r0.8") && isnan(r->tp) &&
           isnan(r->pp) && isnan(r->dp) && fmod(r->gpus, 48) == 0 &&
           fmod(r->layers, 12) == 0;
}

static void take_strong_scaling(struct mw_case *c)
{
    struct mw_layout *l = &c->layout;

    mw_case_fill(c, MW_FILL_STRONG_SCALING);
    l->tp = 8;
    l->pp = 6;
    l->vpp = chunks_of(c->row->layers, l->pp);
    l->dp = (int)c->row->gpus / (l->tp * l->pp);
}

static void take_ways(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    struct mw_layout *l = &c->layout;

    if (is_strong_scaling(r)) {
        take_strong_scaling(c);
        return;
    }

    l->tp = way_or(c, r->tp, MW_FILL_TP);
    l->pp = way_or(c, r->pp, MW_FILL_PP);
    l->cp = isnan(r->cp) ? 1 : (int)r->cp;
    l->vpp = l->pp == 1 ? 1 : vpp_of(c);
    l->ep = isnan(r->ep) ? 1 : (int)r->ep;
    if (l->ep > 1 && l->tp > 1 && !mw_text_has(r->framework, "Bridge")) {
        mw_case_fill(c, MW_FILL_ETP);
        l->etp = l->tp;
    }
    if (l->tp < 1 || l->pp < 1 || l->cp < 1 || l->vpp < 1 || l->ep < 1) {
        mw_case_skip(c, "ways below 1");
        return;
    }
    if (isnan(r->dp)) {
        mw_case_fill(c, MW_FILL_DP);
        l->dp = (int)r->gpus / (l->tp * l->pp * l->cp);
    } else {
        l->dp = (int)r->dp;
    }
    if (l->dp < 1 || (double)l->tp * l->pp * l->cp * l->dp != r->gpus) {
        mw_case_skip(c, "tp x pp x cp x dp is not the number of GPUs");
    }
}

static void refuse(struct mw_case *c)
{
    const struct mw_measured *r = c->row;

    if (isnan(r->tp) && isnan(r->pp) && isnan(r->dp) && !is_strong_scaling(r)) {
        mw_case_skip(c, "layout is not given");
    } else if (mw_text_has(r->framework, "MegaScale (parallel")) {
        mw_case_skip(c, "changed model block (parallel, sliding window)");
    } else if (!(r->gpus >= 1)) {
        mw_case_skip(c, "number of GPUs is not given");
    }
}

/* "optimizer to CPU"; "Full Offload", unless the note says "Opt Offl=N; Par
 * Offl=N". The runs of Megatron with ZeRO (BigScience, experiments/gpt2.md)
 * kept their checkpoints in the host's memory unless the note says "PA_CPU=N",
 * and a section of them is "With full cpu offload". */
static void take_offload(struct mw_case *c)
{
    const struct mw_measured *r = c->row;
    bool is_zero_branch = mw_text_has(r->framework, "Deepspeed ZeRO");
    bool is_full =
        mw_text_has(r->framework, "full offload") ||
        (is_zero_branch && mw_text_has(r->source, "full cpu offload"));
    bool optimizer = mw_text_has(r->offload, "optimizer") ||
                     (is_full && !mw_text_has(r->note, "Opt Offl=N"));

    if (is_zero_branch || mw_text_has(r->framework, "full offload")) {
        mw_case_fill(c, MW_FILL_OFFLOAD);
    }
    c->layout.offload_activations =
        is_zero_branch && !mw_text_has(r->note, "PA_CPU=N");
    c->layout.offload_optimizer = optimizer;
    c->layout.offload_weights = is_full && !mw_text_has(r->note, "Par Offl=N");
}

/* Schedules by the names of their tables: Qi et al., ICLR 2024 and
 * arXiv:2405.15362 (on a V), and those that everybody has. */
static const struct {
    const char *said, *kind;
    int vpp;
} schedules[] = {{"ZB-V", "zb-v", 2},   {"V-Half", "v-half", 2},
                 {"V-Min", "v-min", 2}, {"ZB-1p", "zb-h1", 1},
                 {"ZB-2p", "zb-h2", 1}, {"gpipe", "gpipe", 1}};

static bool is_interleaved(const char *said)
{
    return mw_text_has(said, "interleaved") || mw_text_has(said, "1F1B-I");
}

/* One layer a chunk, of zero bubble's tables; two chunks a stage where a row
 * says no more than that it interleaves. */
static int chunks_unsaid(struct mw_case *c)
{
    if (c->row->microbatches > 0) {
        return (int)ceil(c->row->layers / c->row->pp);
    }
    mw_case_fill(c, MW_FILL_VPP_INTERLEAVED);
    return 2;
}

static void take_schedule(struct mw_case *c)
{
    struct mw_layout *l = &c->layout;
    const char *said = c->row->schedule;
    bool is_known = said[0] == '\0' || mw_text_has(said, "1f1b") ||
                    mw_text_has(said, "none") || is_interleaved(said);

    if (is_interleaved(said) && isnan(c->row->vpp) && l->vpp == 1 &&
        l->pp > 1) {
        l->vpp = chunks_unsaid(c);
    }
    l->schedule = l->vpp > 1 ? "interleaved-1f1b" : "1f1b";
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        if (mw_text_has(said, schedules[i].said)) {
            if (c->row->microbatches > 0) {
                mw_case_fill(c, MW_FILL_ZERO_BUBBLE);
            }
            l->schedule = schedules[i].kind;
            l->vpp = schedules[i].vpp;
            return;
        }
    }
    if (!is_known) {
        mw_case_skip(c, "schedule '%s' is not known", said);
    }
}

void mw_case_layout(struct mw_case *c)
{
    struct mw_layout *l = &c->layout;

    mw_layout_default(l);
    refuse(c);
    if (c->skipped == NULL) {
        take_ways(c);
    }
    if (c->skipped != NULL) {
        return;
    }
    l->zero = l->dp * l->cp > 1 ? zero_of(c) : 0;
    l->dp_shard = l->zero > 0 ? dp_shard_of(c) : 0;
    take_offload(c);
    l->sp = sp_of(c);
    if (mw_text_has(c->row->framework, "ulysses")) {
        l->cp_form = MW_CP_A2A;
    } else if (l->cp > 1 && mw_text_has(c->row->framework, "overlap OFF")) {
        mw_case_fill(c, MW_FILL_CP_FORM);
        l->cp_form = MW_CP_A2A;
    }
    l->recompute = recompute_of(c);
    l->micro_batch = micro_batch_of(c);
    if (c->row->schedule[0] == '\0' && l->pp > 1) {
        mw_case_fill(c, MW_FILL_SCHEDULE);
    }
    take_schedule(c);
    if (strcmp(c->row->offload, "all") == 0) {
        l->offload_weights = l->offload_optimizer = 1;
    }
}
