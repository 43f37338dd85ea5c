/*
 * Training stacks: what a framework of a time adds to the hardware's cost, and
 * what it hides. Each figure is a row NAME.STACK of the constants (a variant
 * STACK-WORD takes what it has no row for from STACK), else NAME;
 * docs/accuracy.md tells how they were fitted.
 *
 *   host         an eager framework issues every kernel from Python; where the
 *                device is faster than that, the host is the bound. Ranks of
 *                tensor parallelism wait for the slowest of them: on vTrain's
 *                A100 node (arXiv:2312.12391) a layer takes longer with
 *                eight, on two sockets, than with one, two or four
 *   stragglers   a group that synchronises waits for the slowest of its ranks
 *   overlap      the part of a transfer that other work can hide
 *
 * What hidden communication takes from the work beside it is no figure of a
 * stack: sim/step/contend.c. Left out: jitter drawn per synchronisation.
 */
#include "sim/cost/cost_int.h"

#include "sim/model/scenario.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Habits that no figure says. */
enum {
    SCATTERS = 1,    /* a share each between stages, gathered there */
    SENDS_ONCE = 2,  /* a token goes to each node of its experts once */
    GRAPHS = 4,      /* whole iterations in CUDA graphs */
    FA2 = 8,         /* FlashAttention 2 whatever the device */
    BY_TENSOR = 16,  /* ZeRO-1's shares in a collective for every tensor */
    BY_OWNER = 32,   /* each rank broadcasts the tensors that it updates */
    SORTS = 64,      /* tokens that experts get from several ranks are sorted */
    PRESCALES = 128, /* gradients are divided by the replicas before the sum */
    LISTS = 256,     /* the optimizer takes all tensors in a few launches */
    SUMS = 512,      /* sharded gradients are all-reduced */
    IN_PLACE = 1024, /* a weight gradient's product adds to what is there */
    BINDS = 2048,    /* each process is bound to its device's socket: NVIDIA's
                        recipes start theirs by numactl (Megatron-Bridge,
                        scripts/performance/utils/executors.py) */
    CHUNKS = 4096,   /* of products beside TP collectives */
    NO_CLIP = 8192,  /* no norm of the gradients, no clipping */
    CLIPS_ABOVE = 16384, /* gradients are scaled where the norm is too large */
    COMBINES = 32768,    /* and unscaled in the same pass */
    SPLITS = 65536       /* biases and clamps of experts are kernels apart */
};

static const struct {
    const char *name, *text;
    unsigned habits;
} stacks[] = {
    {"plain", "nothing overlaps but gathers of sharded layers; a lean host", 0},
    {"megatron-core",
     "Megatron-Core, NeMo and Megatron-Bridge since 2024 with "
     "overlapped gradients, parameters and tensor parallelism",
     SCATTERS | SENDS_ONCE | CHUNKS | CLIPS_ABOVE | BINDS | SPLITS},
    {"megatron-core-nemo",
     "NeMo and Megatron-Bridge: masters are kept as remainders of weights",
     SCATTERS | SENDS_ONCE | CHUNKS | CLIPS_ABOVE | BINDS | SPLITS},
    {"megatron-core-nemo-graphs",
     "the same with whole iterations in CUDA graphs and fused grouped "
     "products (Megatron-Bridge 0.5.1 of 2026-07, NeMo 26.06, on Blackwell)",
     SCATTERS | SENDS_ONCE | CHUNKS | GRAPHS | CLIPS_ABOVE | BINDS},
    {"megatron-core-lm",
     "Megatron-LM's own script on Megatron-Core of 2024 (r0.8), whose "
     "arguments "
     "default to dropout in attention and behind it",
     SCATTERS | SENDS_ONCE | CHUNKS | CLIPS_ABOVE | SPLITS},
    {"megatron-core-serial",
     "Megatron-Core with every overlap off and all-to-alls of NCCL",
     SCATTERS | SORTS | PRESCALES | LISTS | CLIPS_ABOVE | SPLITS},
    {"megatron-2021", "Megatron-LM before flash attention (2019 to 2021)",
     SCATTERS | CLIPS_ABOVE},
    {"megatron-2021-whole",
     "the same until January 2021: each rank of tensor parallelism sends the "
     "whole tensor to the next stage (arXiv:2104.04473, section 4.1)",
     CLIPS_ABOVE},
    {"megatron-2021-async",
     "the same of 2022 and 2023: weight gradients hide the all-reduce of "
     "tensor parallelism and are added to by their products "
     "(--no-gradient-accumulation-fusion takes it back)",
     SCATTERS | IN_PLACE | CLIPS_ABOVE},
    {"megatron-2021-composed",
     "the same put together from timings of kernels, without the once-per-step "
     "work of the host (vTrain's single-node table)",
     SCATTERS | NO_CLIP},
    {"megatron-deepspeed", "Megatron-DeepSpeed of 2021 to 2023",
     SCATTERS | COMBINES},
    {"megatron-deepspeed-bf16", "the same with DeepSpeed's BF16_Optimizer",
     SCATTERS | COMBINES},
    {"megatron-deepspeed-zero0", "the same without ZeRO: its FP16_Optimizer",
     SCATTERS | COMBINES},
    {"torch-fsdp", "PyTorch FSDP in eager mode: llm-foundry, fms-fsdp", FA2},
    {"torchtitan", "torchtitan: FSDP2 with torch.compile", FA2},
    {"torchtitan-async", "torchtitan with asynchronous tensor parallelism",
     FA2 | CHUNKS},
    {"torchtitan-eager", "torchtitan without torch.compile", FA2},
    {"megatron-deepspeed-zero3",
     "the same with ZeRO-3 of 2021 (DeepSpeed 0.3.17)",
     SCATTERS | SUMS | COMBINES},
    {"megatron-deepspeed-zero3-sync",
     "the same, waiting for the device after each layer "
     "(--synchronize-each-layer)",
     SCATTERS | SUMS | COMBINES},
    {"deepspeed",
     "Hugging Face Transformers under DeepSpeed's ZeRO-3, loss "
     "fused with the head",
     COMBINES},
    {"torchtitan-2024", "torchtitan of 2024: the loss is not compiled", FA2},
    {"torchtitan-async-2024", "the same with asynchronous tensor parallelism",
     FA2 | CHUNKS},
    {"galvatron", "Hetu-Galvatron: Megatron's layers under PyTorch FSDP", FA2},
    {"litgpt", "LitGPT: PyTorch in eager mode, one GPU or FSDP", FA2},
    {"torchtune", "torchtune: PyTorch in eager mode, one GPU or FSDP2", FA2},
    {"plain-fa2",
     "the same with FlashAttention 2, the best there was before mid-2024", FA2},
    {"zero-bubble", "the zero-bubble fork of Megatron-LM (2023)", CLIPS_ABOVE},
    {"nanotron", "nanotron", FA2 | BY_TENSOR},
    {"internevo", "InternEvo", BY_OWNER | COMBINES},
    {"internevo-fsdp", "InternEvo with PyTorch's FSDP", 0},
    {"jax", "MaxText: compiled by XLA", 0},
    {"jax-paxml", "Paxml: compiled by XLA", 0}};

enum { N_STACKS = sizeof stacks / sizeof stacks[0] };

const char *mw_stack_name(size_t i)
{
    return i < N_STACKS ? stacks[i].name : NULL;
}

const char *mw_stack_text(size_t i)
{
    return i < N_STACKS ? stacks[i].text : NULL;
}

/* NAME.STACK, then without the last word of the stack's name as long as there
 * is one ("torchtitan-async", "torchtitan"), then NAME. */
static enum mw_status read_figure(const struct mw_hwdb *db, const char *name,
                                  const char *stack, double *out,
                                  struct mw_err *err)
{
    const struct mw_constant *row;
    size_t n = strlen(stack);

    for (;;) {
        char key[96];

        snprintf(key, sizeof key, "%s.%.*s", name, (int)n, stack);
        if (mw_hwdb_constant(db, key, &row, NULL) == MW_OK) {
            break;
        }
        while (n > 0 && stack[n - 1] != '-') {
            n--;
        }
        if (n == 0) {
            enum mw_status status = mw_hwdb_constant(db, name, &row, err);

            if (status != MW_OK) {
                return status;
            }
            break;
        }
        n--; /* the dash */
    }
    *out = row->value;
    return MW_OK;
}

/* Nothing where no row of this stack says otherwise. */
static void take_if_said(const struct mw_hwdb *db, const char *name,
                         const char *stack, double *out)
{
    if (read_figure(db, name, stack, out, NULL) != MW_OK) {
        *out = 0;
    }
}

static enum mw_status read_stack(const struct mw_hwdb *db, const char *name,
                                 struct mw_stack *out, struct mw_err *err)
{
    struct mw_stack s = {.name = name};
    const struct {
        const char *name;
        double *out;
    } figures[] = {{"host_op_s", &s.host_op_s},
                   {"host_coll_s", &s.host_coll_s},
                   {"host_step_s", &s.host_step_s},
                   {"host_moe_s", &s.host_moe_s},
                   {"host_socket_factor", &s.host_sockets},
                   {"op_gap_s", &s.op_gap_s},
                   {"moe_gap_s", &s.moe_gap_s},
                   {"coll_gap_s", &s.coll_gap_s},
                   {"straggler_spread", &s.straggler},
                   {"straggler_persistent", &s.persistent},
                   {"elementwise_efficiency", &s.elementwise},
                   {"step_param_bytes", &s.step_param_bytes},
                   {"attention_share", &s.attention},
                   {"attention_back_share", &s.attention_back},
                   {"grouped_share", &s.grouped},
                   {"exposed_reduce", &s.overlap_reduce},
                   {"exposed_gather", &s.overlap_gather},
                   {"exposed_fsdp", &s.overlap_fsdp},
                   {"exposed_tp", &s.overlap_tp},
                   {"exposed_tp_back", &s.overlap_tp_back},
                   {"exposed_cp", &s.overlap_cp},
                   {"exposed_ep", &s.overlap_ep}};

    const size_t n_figures = sizeof figures / sizeof figures[0];

    for (size_t i = 0; i < n_figures; i++) {
        enum mw_status status =
            read_figure(db, figures[i].name, name, figures[i].out, err);

        if (status != MW_OK) {
            return status;
        }
    }
    take_if_said(db, "host_pass_bytes", name, &s.host_pass_bytes);
    take_if_said(db, "reuse_params", name, &s.reuse_params);
    /* Rows give what is left over; zero is no value of a row. */
    s.elementwise = 1 / s.elementwise;
    for (size_t i = 0; i < n_figures; i++) {
        if (strncmp(figures[i].name, "exposed_", 8) == 0) {
            *figures[i].out = 1 - *figures[i].out;
        }
    }
    *out = s;
    return MW_OK;
}

/* FlashAttention 2 uses none of what an architecture after Ampere brought, so
 * it falls behind the kernels that do: fa2_share.ARCH of their rate. */
static void take_fa2(struct mw_cost_ctx *ctx)
{
    const struct mw_constant *row;
    char key[64];
    int n = snprintf(key, sizeof key, "fa2_share.%s",
                     ctx->gpu->arch != NULL ? ctx->gpu->arch : "");

    for (int i = 0; i < n && i < (int)sizeof key; i++) {
        key[i] = key[i] == ' ' ? '-' : (char)tolower((unsigned char)key[i]);
    }
    if (mw_hwdb_constant(ctx->db, key, &row, NULL) == MW_OK) {
        ctx->stack.attention *= row->value;
        ctx->stack.attention_back *= row->value;
    }
}

enum mw_status mw_cost_ctx_set_stack(struct mw_cost_ctx *ctx, const char *name,
                                     struct mw_err *err)
{
    for (size_t i = 0; i < N_STACKS; i++) {
        if (strcasecmp(stacks[i].name, name) != 0) {
            continue;
        }
        if (ctx->gpu->is_cpu) {
            ctx->stack = (struct mw_stack){.name = stacks[i].name,
                                           .elementwise = 1,
                                           .attention = 1,
                                           .attention_back = 1,
                                           .grouped = 1,
                                           .memory = {.logit_kept_bytes = 4,
                                                      .logit_peak_bytes = 6,
                                                      .grads_factor = 1,
                                                      .kept_factor = 1,
                                                      .moe_kept = 2,
                                                      .fsdp_units = 2,
                                                      .reserve_factor = 1,
                                                      .reserve_spread = 1}};
            return MW_OK;
        }
        enum mw_status status =
            read_stack(ctx->db, stacks[i].name, &ctx->stack, err);

        ctx->stack.scatters_boundary = (stacks[i].habits & SCATTERS) != 0;
        ctx->stack.share =
            (stacks[i].habits & BY_TENSOR) != 0  ? MW_SHARE_BY_TENSOR
            : (stacks[i].habits & BY_OWNER) != 0 ? MW_SHARE_BY_OWNER
                                                 : MW_SHARE_FLAT;
        ctx->stack.sends_once = (stacks[i].habits & SENDS_ONCE) != 0;
        ctx->stack.sorts = (stacks[i].habits & SORTS) != 0;
        ctx->stack.tensor_lists = (stacks[i].habits & LISTS) != 0;
        ctx->stack.sums_in_place = (stacks[i].habits & IN_PLACE) != 0;
        ctx->stack.splits_experts = (stacks[i].habits & SPLITS) != 0;
        ctx->stack.binds = (stacks[i].habits & BINDS) != 0;
        ctx->stack.contends = true;
        ctx->stack.clips_above = (stacks[i].habits & CLIPS_ABOVE) != 0;
        ctx->stack.combines = (stacks[i].habits & COMBINES) != 0;
        ctx->stack.clips = (stacks[i].habits & NO_CLIP) == 0;
        ctx->stack.chunks_tp = (stacks[i].habits & CHUNKS) != 0;
        ctx->stack.prescales = (stacks[i].habits & PRESCALES) != 0;
        ctx->stack.sums_whole = (stacks[i].habits & SUMS) != 0;
        mw_stack_memory_read(ctx->db, stacks[i].name, &ctx->stack.memory);
        if (status == MW_OK) {
            status = mw_stack_bucket_read(ctx->db, &ctx->stack, err);
        }
        ctx->stack.has_graphs = (stacks[i].habits & GRAPHS) != 0;
        if ((stacks[i].habits & FA2) != 0) {
            take_fa2(ctx);
        }
        return status;
    }
    return mw_fail(err, MW_EINPUT,
                   "no training stack is called '%s'; for example %s", name,
                   stacks[1].name);
}

const char *mw_stack_of_framework(const struct mw_gpu *gpu, int framework)
{
    if (gpu->is_cpu) {
        return "plain";
    }
    switch ((enum mw_framework)framework) {
    case MW_FRAMEWORK_ANY:
        return strcasecmp(gpu->arch, "tpu") == 0 ? "jax" : "megatron-core";
    case MW_FRAMEWORK_MEGATRON_CORE:
        return "megatron-core";
    case MW_FRAMEWORK_MEGATRON_DEEPSPEED:
        return "megatron-deepspeed";
    case MW_FRAMEWORK_TORCHTITAN:
        return "torchtitan";
    case MW_FRAMEWORK_NANOTRON:
        return "nanotron";
    case MW_FRAMEWORK_HOST:
        return "plain";
    }
    return "plain";
}

enum mw_status mw_cost_ctx_choose_stack(struct mw_cost_ctx *ctx,
                                        const char *name, int framework,
                                        struct mw_err *err)
{
    return mw_cost_ctx_set_stack(
        ctx, name ? name : mw_stack_of_framework(ctx->gpu, framework), err);
}

double mw_cost_straggler_factor(const struct mw_cost_ctx *ctx, int n_ranks)
{
    return n_ranks > 1
               ? 1 + ctx->stack.straggler * sqrt(2 * log((double)n_ranks))
               : 1;
}

double mw_cost_host_factor(const struct mw_cost_ctx *ctx, int tp)
{
    int n_sockets = ctx->system->n_sockets;

    return !ctx->stack.binds && n_sockets > 1 &&
                   tp > ctx->system->gpus_per_node / n_sockets
               ? ctx->stack.host_sockets
               : 1;
}
