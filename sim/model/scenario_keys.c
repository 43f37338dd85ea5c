/*
 * The keys of a scenario's cluster and workload (docs/scenario.md; those of its
 * limits are in scenario_limits.c): binder tables, defaults, and the hash that
 * ties a plan to the scenario that it answers.
 *
 * The hash is FNV-1a 64 over "key value" of every row of the tables of model,
 * cluster, workload and limits, in table order, after defaults: comments,
 * spelling of units, the name, the objective and the layout do not change it.
 * Keys younger than the format count only where they differ from their default,
 * so that older plans keep answering their scenarios.
 */
#include "sim/model/scenario_int.h"

#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>
#include <string.h>

const struct mw_field mw_cluster_fields[] = {
    {.key = "system",
     .type = MW_F_STR,
     .offset = offsetof(struct mw_cluster, system),
     .required = true,
     .doc = "system of the hardware database, for example dgx-h100"},
    {.key = "nodes",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, n_nodes),
     .required = true,
     .min = 1,
     .max = 1 << 20,
     .doc = "number of nodes"},
    {.key = "gpus_per_node",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, gpus_per_node),
     .min = 1,
     .max = 1 << 10,
     .doc = "devices used on each node; the system's own number if absent"},
    {.key = "spare_nodes",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, spare_nodes),
     .max = 1 << 20,
     .doc = "nodes of these that stand by"},
    {.key = "leaf_nodes",
     .type = MW_F_INT32,
     .offset = offsetof(struct mw_cluster, leaf_nodes),
     .min = 1,
     .max = 1 << 20,
     .doc = "nodes under one leaf switch"},
    {.key = "oversubscription",
     .type = MW_F_NUM,
     .offset = offsetof(struct mw_cluster, oversubscription),
     .min = 1,
     .max = 1000,
     .doc = "NICs under a leaf over its links up"},
    {.key = "leaves",
     .type = MW_F_INT_LIST,
     .offset = offsetof(struct mw_cluster, leaves),
     .min = 1,
     .max = 1 << 20,
     .doc = "nodes of the allocation under each leaf switch, in their order"},
    {.key = "domain_nodes",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = offsetof(struct mw_cluster, domains),
     .min = 1,
     .max = 1 << 10,
     .doc = "choices of how many nodes of a rack are one scale-up domain"},
    MW_FIELD_END};

enum attention { ATTENTION_FLASH, ATTENTION_UNFUSED };
enum flops { FLOPS_FULL, FLOPS_CAUSAL };

static const struct mw_enum attention_enums[] = {
    {"flash", ATTENTION_FLASH}, {"unfused", ATTENTION_UNFUSED}, {NULL, 0}};
static const struct mw_enum flops_enums[] = {
    {"full", FLOPS_FULL}, {"causal", FLOPS_CAUSAL}, {NULL, 0}};
/* The types that moments are kept in (Megatron-LM, --exp-avg-dtype). */
const struct mw_enum mw_moment_enums[] = {{"fp32", MW_FP32},
                                          {"bf16", MW_BF16},
                                          {"fp16", MW_FP16},
                                          {"fp8", MW_FP8},
                                          {NULL, 0}};
const struct mw_enum mw_lora_targets_enums[] = {
    {"all", MW_LORA_ALL},
    {"attention", MW_LORA_ATTENTION},
    {"qkv", MW_LORA_QKV},
    {NULL, 0}};
const struct mw_enum mw_base_dtype_enums[] = {
    {"same", MW_BASE_SAME}, {"nf4", MW_BASE_NF4}, {NULL, 0}};
const struct mw_enum mw_scaling_enums[] = {{"tensor", MW_SCALE_TENSOR},
                                           {"row", MW_SCALE_ROW},
                                           {"block", MW_SCALE_BLOCK},
                                           {"mx", MW_SCALE_MX},
                                           {NULL, 0}};
const struct mw_enum mw_loss_enums[] = {{"stack", MW_LOSS_STACK},
                                        {"eager", MW_LOSS_EAGER},
                                        {"fused", MW_LOSS_FUSED},
                                        {NULL, 0}};
const struct mw_enum mw_clip_enums[] = {{"stack", MW_CLIP_STACK},
                                        {"norm", MW_CLIP_NORM},
                                        {"none", MW_CLIP_NONE},
                                        {NULL, 0}};
#define W_AT(member) offsetof(struct mw_raw_workload, member)
/* The row from which on defaults stay out of the hash. */
#define FIRST_YOUNG_KEY "lora_rank"
const struct mw_field mw_workload_fields[] = {
    {.key = "seq",
     .type = MW_F_INT,
     .offset = W_AT(seq),
     .required = true,
     .min = 1,
     .max = 1 << 24,
     .doc = "tokens of a sequence"},
    {.key = "global_batch",
     .type = MW_F_INT,
     .offset = W_AT(global_batch),
     .required = true,
     .min = 1,
     .max = 1 << 24,
     .doc = "sequences of a step, over all replicas"},
    {.key = "dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(dtype),
     .enums = mw_dtype_enums,
     .doc = "type of compute and parameters"},
    {.key = "grad_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(grad_dtype),
     .enums = mw_dtype_enums,
     .doc = "type that gradients accumulate and are reduced in"},
    {.key = "attention",
     .type = MW_F_ENUM,
     .offset = W_AT(attention),
     .enums = attention_enums,
     .doc = "attention kernel"},
    {.key = "dropout",
     .type = MW_F_BOOL,
     .offset = W_AT(has_dropout),
     .doc = "dropout in use: its masks are kept"},
    {.key = "flops",
     .type = MW_F_ENUM,
     .offset = W_AT(flops),
     .enums = flops_enums,
     .doc = "how model FLOPs count attention"},
    {.key = "optimizer",
     .type = MW_F_ENUM,
     .offset = W_AT(optimizer),
     .enums = mw_optimizer_enums,
     .doc = "optimizer"},
    {.key = "seed",
     .type = MW_F_INT,
     .offset = W_AT(seed),
     .min = 0,
     .max = 9007199254740992.0, /* 2^53 */
     .doc = "seed of initial weights and data"},
    {.key = FIRST_YOUNG_KEY,
     .type = MW_F_INT32,
     .offset = W_AT(lora_rank),
     .min = 0,
     .max = 1 << 16,
     .doc = "rank of low-rank adapters, which alone learn; 0: none"},
    {.key = "lora_targets",
     .type = MW_F_ENUM,
     .offset = W_AT(lora_targets),
     .enums = mw_lora_targets_enums,
     .doc = "linear layers that carry adapters",
     .seen_offset = W_AT(has_lora_targets) + 1},
    {.key = "base_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(base_dtype),
     .enums = mw_base_dtype_enums,
     .doc = "storage of the frozen weights under adapters"},
    {.key = "doc_tokens",
     .type = MW_F_INT,
     .offset = W_AT(doc_tokens),
     .min = 0,
     .max = 1 << 24,
     .doc = "tokens of a document in packed sequences; 0: not packed"},
    {.key = "fp8_scaling",
     .type = MW_F_ENUM,
     .offset = W_AT(scaling),
     .enums = mw_scaling_enums,
     .doc = "what shares a scale of an FP8 operand"},
    {.key = "main_params_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(main_params),
     .enums = mw_main_params_enums,
     .doc = "copy that the optimizer keeps of low-precision weights"},
    {.key = "exp_avg_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(exp_avg),
     .enums = mw_moment_enums,
     .doc = "type of first moments"},
    {.key = "exp_avg_sq_dtype",
     .type = MW_F_ENUM,
     .offset = W_AT(exp_avg_sq),
     .enums = mw_moment_enums,
     .doc = "type of second moments"},
    {.key = "loss",
     .type = MW_F_ENUM,
     .offset = W_AT(loss),
     .enums = mw_loss_enums,
     .doc = "how the loss is worked out"},
    {.key = "loss_chunks",
     .type = MW_F_INT32,
     .offset = W_AT(loss_chunks),
     .min = 1,
     .max = 1 << 16,
     .doc = "parts of the tokens that head and loss take in turn"},
    {.key = "capacity_factor",
     .type = MW_F_NUM,
     .offset = W_AT(capacity_factor),
     .min = 0,
     .max = 1e6,
     .doc = "tokens that an expert takes at most, over the mean; 0: all"},
    {.key = "pad_to_capacity",
     .type = MW_F_BOOL,
     .offset = W_AT(pads_to_capacity),
     .doc = "experts compute their capacity, got or not"},
    {.key = "expert_imbalance",
     .type = MW_F_NUM,
     .offset = W_AT(expert_imbalance),
     .min = 1,
     .max = 1e6,
     .doc = "tokens of the busiest expert-parallel rank over the mean"},
    {.key = "router_counts",
     .type = MW_F_STR,
     .offset = W_AT(router_counts),
     .doc = "a CSV table of the tokens that each expert gets"},
    {.key = "clip_grad",
     .type = MW_F_ENUM,
     .offset = W_AT(clip),
     .enums = mw_clip_enums,
     .doc = "whether gradients are clipped by their norm"},
    MW_FIELD_END};

const struct mw_enum mw_framework_enums[] = {
    {"any", MW_FRAMEWORK_ANY},
    {"megatron-core-0.14", MW_FRAMEWORK_MEGATRON_CORE},
    {"megatron-deepspeed", MW_FRAMEWORK_MEGATRON_DEEPSPEED},
    {"torchtitan-0.2", MW_FRAMEWORK_TORCHTITAN},
    {"nanotron-0.4", MW_FRAMEWORK_NANOTRON},
    {"meshwright-host", MW_FRAMEWORK_HOST},
    {NULL, 0}};

const char *mw_framework_name(int framework)
{
    const struct mw_enum *e = mw_framework_enums;

    while (e->name != NULL && e->value != framework) {
        e++;
    }
    return e->name != NULL ? e->name : "?";
}

/* ---- defaults and conversions ----------------------------------------------
 */
const struct mw_raw_workload mw_raw_workload_default = {
    .dtype = MW_BF16,
    .grad_dtype = MW_FP32,
    .attention = ATTENTION_FLASH,
    .flops = FLOPS_FULL,
    .optimizer = MW_OPTIMIZER_ADAMW,
    .loss_chunks = 1,
    .expert_imbalance = 1,
    .seed = 1234};

struct mw_workload mw_workload_of(const struct mw_raw_workload *raw)
{
    return (struct mw_workload){
        .seq = raw->seq,
        .global_batch = raw->global_batch,
        .dtype = (enum mw_dtype)raw->dtype,
        .grad_dtype = (enum mw_dtype)raw->grad_dtype,
        .is_flash = raw->attention == ATTENTION_FLASH,
        .has_dropout = raw->has_dropout,
        .causal_flops = raw->flops == FLOPS_CAUSAL,
        .optimizer = {(enum mw_optimizer_kind)raw->optimizer,
                      (enum mw_main_params)raw->main_params,
                      (enum mw_dtype)raw->exp_avg,
                      (enum mw_dtype)raw->exp_avg_sq},
        .seed = (uint64_t)raw->seed,
        .doc_tokens = raw->doc_tokens,
        .lora_rank = raw->lora_rank,
        .lora_targets = (enum mw_lora_targets)raw->lora_targets,
        .base_dtype = (enum mw_base_dtype)raw->base_dtype,
        .scaling = (enum mw_scaling)raw->scaling,
        .loss = (enum mw_loss)raw->loss,
        .loss_chunks = raw->loss_chunks,
        .clip = (enum mw_clip)raw->clip,
        .capacity_factor = raw->capacity_factor,
        .pads_to_capacity = raw->pads_to_capacity,
        .expert_imbalance = raw->expert_imbalance};
}

void mw_workload_default(struct mw_workload *workload)
{
    *workload = mw_workload_of(&mw_raw_workload_default);
}

/* ---- hash ------------------------------------------------------------------
 */
static uint64_t hash_text(uint64_t h, const char *text)
{
    for (; *text != '\0'; text++) {
        char c = (char)tolower((unsigned char)*text);

        h = mw_hash64(h, &c, 1);
    }
    return mw_hash64(h, "", 1);
}

static uint64_t hash_int(uint64_t h, int64_t v)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
    }
    return mw_hash64(h, bytes, sizeof bytes);
}

static uint64_t hash_num(uint64_t h, double v)
{
    int64_t bits;

    static_assert(sizeof bits == sizeof v, "a double has 64 bits");
    memcpy(&bits, &v, sizeof bits);
    return hash_int(h, bits);
}

static uint64_t hash_list(uint64_t h, const struct mw_int_list *list)
{
    h = hash_int(h, (int64_t)list->n);
    for (size_t i = 0; i < list->n; i++) {
        h = hash_int(h, list->v[i]);
    }
    return h;
}

static uint64_t hash_num_list(uint64_t h, const struct mw_num_list *list)
{
    h = hash_int(h, (int64_t)list->n);
    for (size_t i = 0; i < list->n; i++) {
        h = hash_num(h, list->v[i]);
    }
    return h;
}

static uint64_t hash_str_list(uint64_t h, const struct mw_str_list *list)
{
    h = hash_int(h, (int64_t)list->n);
    for (size_t i = 0; i < list->n; i++) {
        h = hash_text(h, list->v[i]);
    }
    return h;
}

static uint64_t hash_fields(uint64_t h, const struct mw_field *fields,
                            const void *base);

/* One row of a binder table out of a bound struct. */
static uint64_t hash_field(uint64_t h, const struct mw_field *f,
                           const void *base)
{
    const void *at = (const char *)base + f->offset;

    h = hash_text(h, f->key);
    switch (f->type) {
    case MW_F_STR:
        return hash_text(h, *(const char *const *)at != NULL
                                ? *(const char *const *)at
                                : "");
    case MW_F_BOOL:
        return hash_int(h, *(const bool *)at);
    case MW_F_INT:
        return hash_int(h, *(const int64_t *)at);
    case MW_F_INT32:
    case MW_F_ENUM:
    case MW_F_FLAGS:
        return hash_int(h, *(const int *)at);
    case MW_F_NUM:
    case MW_F_QTY:
        return hash_num(h, *(const double *)at);
    case MW_F_FLAGS_LIST:
    case MW_F_INT_LIST:
        return hash_list(h, at);
    case MW_F_NUM_LIST:
        return hash_num_list(h, at);
    case MW_F_STR_LIST:
        return hash_str_list(h, at);
    case MW_F_MAP:
        return hash_fields(h, f->sub, at);
    case MW_F_NODE:
        break;
    }
    return h;
}

/* Keys of model, cluster and limits younger than the format; their default is
 * 0. */
static bool is_young_default(const struct mw_field *f, const void *base)
{
    static const char *const young[] = {"node_limit",
                                        "attention_window",
                                        "global_every",
                                        "first_global",
                                        "window_form",
                                        "attention_sinks",
                                        "bias",
                                        "clamp",
                                        "fp8_dispatch",
                                        "spare_nodes",
                                        "leaf_nodes",
                                        "oversubscription",
                                        "cp_inner",
                                        "bucket_size",
                                        "fsdp_unit",
                                        "fsdp_prefetch",
                                        "dtype",
                                        "grad_dtype",
                                        "grad_compression",
                                        "offload_optimizer",
                                        "offload_weights",
                                        "offload_activations",
                                        "cuda_graph",
                                        "dispatcher",
                                        "overlap_shared_experts",
                                        "mtp_ahead",
                                        "node_kinds",
                                        "leaves",
                                        "domain_nodes",
                                        "recompute_modules",
                                        "overlap_off",
                                        "etp",
                                        "vpp_group",
                                        "main_params_dtype",
                                        "exp_avg_dtype",
                                        "exp_avg_sq_dtype",
                                        "zero",
                                        "sp",
                                        "schedule",
                                        "recompute",
                                        "recompute_layers",
                                        "order",
                                        "cp_form",
                                        "dp_shard",
                                        "reshard",
                                        "offload_nvme",
                                        NULL};
    static const struct mw_raw_scenario zero;
    const char *const *key = young;

    while (*key != NULL && strcmp(*key, f->key) != 0) {
        key++;
    }
    return *key != NULL && hash_field(0, f, base) == hash_field(0, f, &zero);
}

static uint64_t hash_fields(uint64_t h, const struct mw_field *fields,
                            const void *base)
{
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        h = is_young_default(f, base) ? h : hash_field(h, f, base);
    }
    return h;
}

static uint64_t hash_workload(uint64_t h, const struct mw_raw_workload *raw)
{
    bool is_young = false;

    for (const struct mw_field *f = mw_workload_fields; f->key != NULL; f++) {
        is_young = is_young || strcmp(f->key, FIRST_YOUNG_KEY) == 0;
        if (!is_young || hash_field(0, f, raw) !=
                             hash_field(0, f, &mw_raw_workload_default)) {
            h = hash_field(h, f, raw);
        }
    }
    return h;
}

uint64_t mw_scenario_hash(const struct mw_raw_scenario *raw,
                          const struct mw_model *model)
{
    uint64_t h = MW_HASH_INIT;

    h = hash_fields(h, mw_model_fields, model);
    h = hash_fields(h, mw_cluster_fields, &raw->cluster);
    h = hash_workload(h, &raw->workload);
    return hash_fields(h, mw_limits_fields, &raw->limits);
}
