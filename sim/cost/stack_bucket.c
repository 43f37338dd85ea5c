/*
 * The buckets of a training stack: how many gradients it reduces at once when
 * a layout does not say, and how many units of ZeRO-3 it gathers ahead. The
 * figures are rows of the software profiles (hwdb/data/profiles.csv,
 * bucket_elements, bucket_elements_per_rank and fsdp_prefetch), each with its
 * source; here stands whose profile a stack has. A variant STACK-WORD
 * has that of STACK unless it stands here itself; the rest have what goes where
 * nothing is known.
 */
#include "sim/cost/cost_int.h"

#include "hwdb/profile.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *stack, *profile, *version; /* NULL: the newest */
} owners[] = {{"megatron-core-nemo", "megatron-bridge", NULL},
              {"megatron-core", "megatron-core", NULL},
              {"megatron-2021", "megatron-lm", "2021"},
              {"megatron-deepspeed", "megatron-deepspeed", NULL},
              {"deepspeed", "deepspeed", NULL},
              {"torchtitan", "torchtitan", NULL},
              {"torchtune", "torchtitan", NULL},
              {"torch-fsdp", "llm-foundry", NULL},
              {"galvatron", "llm-foundry", NULL},
              {"litgpt", "llm-foundry", NULL},
              {"nanotron", "nanotron", NULL},
              {"internevo-fsdp", "llm-foundry", NULL},
              {"internevo", "internevo", NULL},
              {"jax", "maxtext", NULL}};

static bool is_of(const char *stack, const char *owner)
{
    size_t n = strlen(owner);

    return strncmp(stack, owner, n) == 0 &&
           (stack[n] == '\0' || stack[n] == '-');
}

static double sms_of(const struct mw_profile *p, enum mw_profile_field field)
{
    double sms = mw_profile_number(p, field);

    return isnan(sms) ? MW_SMS_NCCL : sms;
}

enum mw_status mw_stack_bucket_read(const struct mw_hwdb *db,
                                    struct mw_stack *stack, struct mw_err *err)
{
    const char *profile = "any", *version = NULL;
    struct mw_profile p;

    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        if (is_of(stack->name, owners[i].stack)) {
            profile = owners[i].profile;
            version = owners[i].version;
            break;
        }
    }
    enum mw_status status =
        mw_hwdb_profile(db, profile, version, NULL, &p, err);

    if (status != MW_OK) {
        return status;
    }
    double elements = mw_profile_number(&p, MW_PROFILE_BUCKET);

    stack->bucket = mw_profile_is(&p, MW_PROFILE_BUCKET, "block")
                        ? MW_BUCKET_LAYER
                    : isnan(elements) ? 0
                                      : elements;
    stack->fsdp_prefetch = mw_profile_number(&p, MW_PROFILE_FSDP_PREFETCH);
    stack->comm_sms = sms_of(&p, MW_PROFILE_COMM_SMS);
    stack->tp_gather_sms = sms_of(&p, MW_PROFILE_COMM_SMS_TP_GATHER);
    stack->tp_reduce_sms = sms_of(&p, MW_PROFILE_COMM_SMS_TP_REDUCE);
    stack->ep_sms = sms_of(&p, MW_PROFILE_COMM_SMS_EP);
    stack->bucket_rank = mw_profile_number(&p, MW_PROFILE_BUCKET_PER_RANK);
    /* DeepSpeed, runtime/zero/stage_1_and_2.py; its BF16_Optimizer's is of a
     * fixed size. */
    stack->copies_bucket = strcmp(stack->name, "megatron-deepspeed") == 0;
    stack->buckets_first = is_of(stack->name, "megatron-core");
    return MW_OK;
}
