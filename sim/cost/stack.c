/*
 * Training stacks: what a framework of a time adds to the hardware's cost, and
 * what it hides. Each figure is a row NAME.STACK of the constants (a variant
 * STACK-WORD takes what it has no row for from STACK), else NAME;
 * docs/accuracy.md tells how they were fitted.
 *
 *   host         an eager framework issues every kernel from Python; where the
 *                device is faster than that, the host is the bound
 *   stragglers   a group that synchronises waits for the slowest of its ranks
 *   overlap      the part of a transfer that other work can hide
 *
 * Left out: jitter drawn per synchronisation; SMs taken by communication are
 * part of the overlap figures.
 */
#include "sim/cost/cost_int.h"

#include "sim/model/scenario.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *text;
    bool scatters_boundary, sends_once;
} stacks[] = {
    {"plain", "nothing overlaps but gathers of sharded layers; a lean host",
     false, false},
    {"megatron-core",
     "Megatron-Core, NeMo and Megatron-Bridge since 2024 with "
     "overlapped gradients, parameters and tensor parallelism",
     true, true},
    {"megatron-core-nemo",
     "NeMo and Megatron-Bridge: masters are kept as remainders of weights",
     true, true},
    {"megatron-core-serial", "Megatron-Core with every overlap off", true,
     false},
    {"megatron-2021", "Megatron-LM before flash attention (2019 to 2022)", true,
     false},
    {"megatron-2021-composed",
     "the same put together from timings of kernels, without the once-per-step "
     "work of the host (vTrain's single-node table)",
     true, false},
    {"megatron-deepspeed", "Megatron-DeepSpeed of 2021 to 2023", true, false},
    {"megatron-deepspeed-bf16", "the same with DeepSpeed's BF16_Optimizer",
     true, false},
    {"torch-fsdp", "PyTorch FSDP in eager mode: llm-foundry, fms-fsdp", false,
     false},
    {"torchtitan", "torchtitan: FSDP2 with torch.compile", false, false},
    {"torchtitan-async", "torchtitan with asynchronous tensor parallelism",
     false, false},
    {"torchtitan-eager", "torchtitan without torch.compile", false, false},
    {"megatron-deepspeed-zero3", "the same with ZeRO-3", true, false},
    {"deepspeed",
     "Hugging Face Transformers under DeepSpeed's ZeRO-3, loss "
     "fused with the head",
     false, false},
    {"torchtitan-2024", "torchtitan of 2024: the loss is not compiled", false,
     false},
    {"torchtitan-async-2024", "the same with asynchronous tensor parallelism",
     false, false},
    {"galvatron", "Hetu-Galvatron: Megatron's layers under PyTorch FSDP", false,
     false},
    {"litgpt", "LitGPT: PyTorch in eager mode, one GPU or FSDP", false, false},
    {"torchtune", "torchtune: PyTorch in eager mode, one GPU or FSDP2", false,
     false},
    {"zero-bubble", "the zero-bubble fork of Megatron-LM (2023)", false, false},
    {"nanotron", "nanotron", false, false},
    {"internevo", "InternEvo", false, false},
    {"internevo-fsdp", "InternEvo with PyTorch's FSDP", false, false},
    {"jax", "MaxText: compiled by XLA", false, false},
    {"jax-paxml", "Paxml: compiled by XLA", false, false}};

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
                   {"op_gap_s", &s.op_gap_s},
                   {"coll_gap_s", &s.coll_gap_s},
                   {"straggler_spread", &s.straggler},
                   {"straggler_persistent", &s.persistent},
                   {"elementwise_efficiency", &s.elementwise},
                   {"step_param_bytes", &s.step_param_bytes},
                   {"attention_share", &s.attention},
                   {"grouped_share", &s.grouped},
                   {"exposed_reduce", &s.overlap_reduce},
                   {"exposed_gather", &s.overlap_gather},
                   {"exposed_fsdp", &s.overlap_fsdp},
                   {"exposed_tp", &s.overlap_tp},
                   {"exposed_cp", &s.overlap_cp},
                   {"exposed_ep", &s.overlap_ep}};

    const size_t n_figures = sizeof figures / sizeof figures[0];
    const size_t first_exposed = 12;

    for (size_t i = 0; i < n_figures; i++) {
        enum mw_status status =
            read_figure(db, figures[i].name, name, figures[i].out, err);

        if (status != MW_OK) {
            return status;
        }
    }
    /* Rows give what is left over; zero is no value of a row. */
    s.elementwise = 1 / s.elementwise;
    for (size_t i = first_exposed; i < n_figures; i++) {
        *figures[i].out = 1 - *figures[i].out;
    }
    *out = s;
    return MW_OK;
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

        ctx->stack.scatters_boundary = stacks[i].scatters_boundary;
        ctx->stack.sends_once = stacks[i].sends_once;
        mw_stack_memory_read(ctx->db, stacks[i].name, &ctx->stack.memory);
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
