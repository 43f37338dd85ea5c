/*
 * What a framework's name says about its software: whether attention was fused
 * and which training stack (sim/cost/stack.c) prices its habits. By the name
 * alone, first match wins.
 */
#include "sim/validate/validate_int.h"

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

bool mw_case_is_before_flash(const char *framework)
{
    static const char *const words[] = {
        "Megatron-LM 2.",       "Megatron-LM (20",    "vTrain", "BigScience",
        "Megatron + Deepspeed", "Megatron-LM (SC21)", NULL};

    return has_any(framework, words) || strcmp(framework, "Megatron") == 0 ||
           strcmp(framework, "Megatron-LM") == 0;
}

bool mw_case_is_core(const char *framework)
{
    static const char *const words[] = {"Megatron-Core", "NeMo",
                                        "Megatron-Bridge", NULL};

    return has_any(framework, words);
}

const char *mw_case_stack_of(const char *framework)
{
    static const struct {
        const char *stack, *words[6];
    } rules[] = {
        {"megatron-core-serial", {"overlap OFF"}},
        {"jax", {"MaxText", "Paxml"}},
        {"megatron-core",
         {"Megatron-Core", "NeMo", "Megatron-Bridge", "dgxc", "MegaScale"}},
        {"nanotron", {"nanotron"}},
        {"internevo", {"InternEvo"}},
        {"torch-fsdp", {"FSDP", "torchtitan"}},
        {"megatron-deepspeed", {"DeepSpeed"}},
        {"megatron-2021", {"Megatron"}}};

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (has_any(framework, rules[i].words)) {
            return rules[i].stack;
        }
    }
    return "plain";
}
