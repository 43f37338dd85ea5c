/*
 * What a framework's name says about its software: whether attention was fused
 * and which training stack (sim/cost/stack.c) prices its habits. By the name
 * alone, first match wins; but Megatron-LM on a Hopper or newer GPU is of 2023
 * or later, with fused attention and Megatron-Core inside.
 */
#include "sim/validate/validate_int.h"

#include "hwdb/profile.h"

#include <string.h>

static bool has_any(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (mw_text_has(text, *words)) {
            return true;
        }
    }
    return false;
}

/* No later than Ampere. */
static bool is_old_gpu(const struct mw_measured *r)
{
    static const char *const words[] = {"V100", "A100", "A800", "A40", NULL};

    return has_any(r->gpu, words);
}

bool mw_case_is_before_flash(const struct mw_measured *r)
{
    static const char *const words[] = {"Megatron-LM 2.",
                                        "Megatron-LM (20",
                                        "vTrain",
                                        "BigScience",
                                        "Megatron + Deepspeed",
                                        "Megatron-LM (SC21)",
                                        "HF + Deepspeed",
                                        NULL};

    /* Tables with micro-batches and no framework: the zero-bubble fork. */
    return is_old_gpu(r) &&
           (has_any(r->framework, words) || r->microbatches > 0 ||
            strcmp(r->framework, "Megatron") == 0 ||
            strcmp(r->framework, "Megatron-LM") == 0);
}

bool mw_case_is_core(const struct mw_measured *r)
{
    static const char *const words[] = {
        "Megatron-Core", "NeMo", "Megatron-Bridge", "dgxc recipes", NULL};

    return has_any(r->framework, words) ||
           (!is_old_gpu(r) && mw_text_has(r->framework, "Megatron"));
}

/* torchtitan's rows say in their notes what is switched on. */
static const char *torchtitan_of(const struct mw_measured *r)
{
    bool is_2024 = mw_text_has(r->framework, "2024");

    if (mw_text_has(r->note, "async")) {
        return is_2024 ? "torchtitan-async-2024" : "torchtitan-async";
    }
    if (strcmp(r->note, "FSDP") == 0) {
        return "torchtitan-eager";
    }
    return is_2024 ? "torchtitan-2024" : "torchtitan";
}

/* BigScience's notes say where Megatron ran without DeepSpeed. Its scripts for
 * ZeRO-3 (experiments/gpt2-meg-ds-zero) wait after each layer; the numbered
 * experiments do not (gpt2.md: "removed: --synchronize-each-layer"; their
 * checkpoints of two "layers" are of one, which --split-transformers halves).
 */
static const char *deepspeed_of(const struct mw_measured *r)
{
    if (mw_text_has(r->note, "DS=N")) {
        return "megatron-2021";
    }
    if (mw_text_has(r->framework, "Megatron + Deepspeed ZeRO") &&
        !mw_text_has(r->note, "ID=")) {
        return "megatron-deepspeed-zero3-sync";
    }
    if (r->zero != NULL && strchr(r->zero, '3') != NULL) {
        return mw_text_has(r->framework, "Megatron") ||
                       mw_text_has(r->framework, "HF +")
                   ? "megatron-deepspeed-zero3"
                   : "deepspeed";
    }
    return mw_text_has(r->dtype, "bf16") ? "megatron-deepspeed-bf16"
           : r->zero != NULL && strcmp(r->zero, "0") == 0
               ? "megatron-deepspeed-zero0"
               : "megatron-deepspeed";
}

static const char *internevo_of(const struct mw_measured *r)
{
    return r->zero && mw_text_has(r->zero, "fsdp") ? "internevo-fsdp"
                                                   : "internevo";
}

/* Whole iterations in CUDA graphs and fused grouped products came with NeMo
 * 26.06 for Blackwell (release notes of Megatron-Bridge 0.5.1). */
static bool has_graphs(const struct mw_measured *r)
{
    static const char name[] = "Megatron-Bridge ";
    const char *at = strstr(r->framework, name);

    return at != NULL &&
           mw_profile_version_cmp(at + sizeof name - 1, "26.06") >= 0 &&
           (mw_text_has(r->gpu, "B200") || mw_text_has(r->gpu, "B300"));
}

/* NVIDIA's own since 2022, with the asynchronous all-reduce that its forks
 * switch off (deepspeedai/Megatron-DeepSpeed issue 447). The example of GPT-3
 * in its README is of April 2021. */
static bool has_async_reduction(const struct mw_measured *r)
{
    static const char *const words[] = {"Megatron-LM (2022",
                                        "Megatron-LM (2023", NULL};

    return is_old_gpu(r) && (has_any(r->framework, words) ||
                             (strcmp(r->framework, "Megatron-LM") == 0 &&
                              (r->source == NULL ||
                               !mw_text_has(r->source, "pretrain_gpt3_175B"))));
}

bool mw_case_is_composed(const struct mw_measured *r)
{
    return mw_text_has(r->framework, "vTrain") && r->nodes == 1;
}

const char *mw_case_stack_of(const struct mw_measured *r)
{
    static const struct {
        const char *stack, *words[6];
    } rules[] = {
        {"megatron-core-serial", {"overlap OFF"}},
        {"jax-paxml", {"Paxml"}},
        {"jax", {"MaxText"}},
        {"torchtitan", {"torchtitan"}},
        {"megatron-core-nemo", {"NeMo", "Megatron-Bridge", "dgxc"}},
        {"megatron-core-lm", {"Megatron-Core r0"}},
        {"megatron-core", {"Megatron-Core", "MegaScale"}},
        {"nanotron", {"nanotron"}},
        {"megatron-2021-whole",
         {"Megatron-LM (2021-01", "Megatron-LM (2020", "Megatron-LM (2019"}},
        {"galvatron", {"Galvatron"}},
        {"litgpt", {"LitGPT"}},
        {"torchtune", {"torchtune"}},
        {"internevo", {"InternEvo"}},
        {"torch-fsdp", {"FSDP"}},
        {"megatron-2021", {"vTrain"}},
        {"megatron-deepspeed", {"DeepSpeed"}},
        {"megatron-2021", {"Megatron"}}};

    if (has_graphs(r)) {
        return "megatron-core-nemo-graphs";
    }
    if (has_async_reduction(r)) {
        return "megatron-2021-async";
    }
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (has_any(r->framework, rules[i].words)) {
            bool is_core = strcmp(rules[i].stack, "megatron-2021") == 0 &&
                           mw_case_is_core(r);

            if (mw_case_is_composed(r)) {
                return "megatron-2021-composed";
            }
            return is_core ? "megatron-core"
                   : strcmp(rules[i].stack, "torchtitan") == 0
                       ? torchtitan_of(r)
                   : strcmp(rules[i].stack, "internevo") == 0 ? internevo_of(r)
                   : strcmp(rules[i].stack, "megatron-deepspeed") == 0
                       ? deepspeed_of(r)
                       : rules[i].stack;
        }
    }
    /* The zero-bubble tables name no framework: a fork of Megatron-LM. */
    return r->microbatches > 0 ? "zero-bubble" : "plain";
}
