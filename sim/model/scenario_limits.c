/*
 * The keys of a scenario's limits. Those of dimensions that a plan chooses take
 * one value, a list or, where values have an order, a range (base/yaml.h,
 * is_choice); an empty list allows all. The others bound something by
 * themselves: a memory, a number of systems, the rules of one framework.
 */
#include "sim/model/scenario_int.h"

#include <limits.h>
#include <stddef.h>

#define L_AT(member) offsetof(struct mw_limits, member)
#define LIST_ROW(k, member, text)                                              \
    {                                                                          \
        .key = k, .type = MW_F_INT_LIST, .offset = L_AT(member), .min = 1,     \
        .max = MW_WAYS_MAX, .is_choice = true, .doc = text                     \
    }
#define COUNTS_ROW(k, member, most, text)                                      \
    {                                                                          \
        .key = k, .type = MW_F_INT_LIST, .offset = L_AT(member), .max = most,  \
        .is_choice = true, .doc = text                                         \
    }
#define WORDS_ROW(k, member, words, text)                                      \
    {                                                                          \
        .key = k, .type = MW_F_INT_LIST, .offset = L_AT(member),               \
        .enums = words, .is_choice = true, .doc = text                         \
    }
#define NAMES_ROW(k, member, text)                                             \
    {                                                                          \
        .key = k, .type = MW_F_STR_LIST, .offset = L_AT(member),               \
        .is_choice = true, .doc = text                                         \
    }
#define PARTS_ROW(k, member)                                                   \
    {                                                                          \
        .key = k, .type = MW_F_NUM_LIST, .offset = L_AT(member), .max = 1,     \
        .is_choice = true,                                                     \
        .doc = "parts in host memory to enumerate; 0 if absent"                \
    }
const struct mw_field mw_limits_fields[] = {
    {.key = "memory",
     .type = MW_F_QTY,
     .kind = MW_Q_BYTES,
     .offset = L_AT(memory_bytes),
     .min = 1,
     .max = 1e18,
     .doc = "memory of a rank; the device's if absent"},
    {.key = "memory_fraction",
     .type = MW_F_NUM,
     .offset = L_AT(memory_fraction),
     .seen_offset = L_AT(has_memory_fraction) + 1,
     .min = 0.01,
     .max = 1,
     .doc = "part of it that a plan may use; if absent, what our memory "
            "error leaves"},
    LIST_ROW("tp", tp, "tensor parallel ways to consider"),
    LIST_ROW("pp", pp, "pipeline stages to consider"),
    LIST_ROW("dp", dp, "data parallel ways to consider"),
    LIST_ROW("micro_batch", micro_batch, "micro-batch sizes to consider"),
    LIST_ROW("cp", cp, "context parallel ways to consider"),
    LIST_ROW("ep", ep, "expert parallel ways to consider"),
    LIST_ROW("vpp", vpp, "chunks per stage to consider"),
    LIST_ROW("etp", etp, "tensor parallel ways inside an expert to enumerate"),
    COUNTS_ROW("vpp_group", vpp_group, MW_WAYS_MAX,
               "micro-batches a chunk takes in turn to enumerate; pp (0) if "
               "absent"),
    WORDS_ROW("main_params_dtype", main_params, mw_main_params_enums,
              "copies of low-precision weights to enumerate; the workload's if "
              "absent"),
    WORDS_ROW("exp_avg_dtype", exp_avg, mw_moment_enums,
              "types of first moments to enumerate; the workload's if absent"),
    WORDS_ROW("exp_avg_sq_dtype", exp_avg_sq, mw_moment_enums,
              "types of second moments to enumerate; the workload's if absent"),
    COUNTS_ROW("zero", zero, 3, "ZeRO stages to enumerate"),
    WORDS_ROW("sp", sp, mw_bool_enums, "sequence parallelism, where tp > 1"),
    NAMES_ROW("schedule", schedule, "pipeline schedules to enumerate"),
    WORDS_ROW("recompute", recompute, mw_recompute_enums,
              "recomputation to enumerate"),
    COUNTS_ROW("recompute_layers", recompute_layers, MW_WAYS_MAX,
               "recomputed layers of each virtual stage to enumerate; 0: all"),
    NAMES_ROW("order", order, "orders of ranks to enumerate"),
    WORDS_ROW("cp_form", cp_form, mw_cp_form_enums,
              "forms of context parallelism to enumerate; gather if absent"),
    COUNTS_ROW(
        "dp_shard", dp_shard, MW_WAYS_MAX,
        "replicas that ZeRO shards over to enumerate; all (0) if absent"),
    WORDS_ROW("reshard", reshard, mw_bool_enums,
              "whether ZeRO-3 frees what it gathered; true if absent"),
    WORDS_ROW("offload_nvme", offload_nvme, mw_offload_nvme_enums,
              "what of the offloaded parts may lie on drives; none if absent"),
    LIST_ROW("cp_inner", cp_inner, "cp ranks that deal out heads to enumerate"),
    {.key = "recompute_modules",
     .type = MW_F_FLAGS_LIST,
     .is_choice = true,
     .offset = L_AT(recompute_modules),
     .enums = mw_recompute_module_enums,
     .doc = "sets of what selective recomputation repeats, to enumerate"},
    {.key = "overlap_off",
     .type = MW_F_FLAGS_LIST,
     .is_choice = true,
     .offset = L_AT(overlap_off),
     .enums = mw_overlap_enums,
     .doc = "sets of transfers that nothing hides, to enumerate; none: []"},
    {.key = "bucket_size",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(bucket_size),
     .max = INT_MAX,
     .doc = "gradients of a bucket to enumerate; the stack's if absent"},
    {.key = "fsdp_unit",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(fsdp_unit),
     .max = MW_WAYS_MAX,
     .doc = "layers of ZeRO-3's units to enumerate; 1 if absent"},
    {.key = "fsdp_prefetch",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(fsdp_prefetch),
     .min = -1,
     .max = MW_FSDP_PREFETCH_MAX,
     .doc = "units gathered ahead to enumerate; the stack's if absent"},
    {.key = "node_kinds",
     .type = MW_F_INT32,
     .offset = L_AT(node_kinds),
     .min = 1,
     .max = 64,
     .doc = "systems that a plan over several (--mixed) uses at most"},
    {.key = "spare_nodes",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(spare_nodes),
     .max = 1e6,
     .doc =
         "numbers of nodes that stand by to choose among, by the time of the "
         "whole job"},
    {.key = "mtp_ahead",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(mtp_ahead),
     .max = 1,
     .doc = "places of multi-token prediction to enumerate; with the head (0) "
            "if absent"},
    {.key = "dtype",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(dtype),
     .enums = mw_dtype_enums,
     .doc = "types of products to enumerate; the workload's if absent"},
    {.key = "grad_dtype",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(grad_dtype),
     .enums = mw_dtype_enums,
     .doc = "types of summed gradients to enumerate; the workload's if absent"},
    {.key = "grad_compression",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(grad_compression),
     .enums = mw_grad_compression_enums,
     .doc = "compressions of gradients to enumerate; none if absent"},
    {.key = "cuda_graph",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(cuda_graph),
     .enums = mw_cuda_graph_enums,
     .doc = "scopes of CUDA graphs to enumerate; the stack's if absent"},
    {.key = "dispatcher",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(dispatcher),
     .enums = mw_dispatcher_enums,
     .doc = "ways to the experts to enumerate; the stack's if absent"},
    {.key = "overlap_shared_experts",
     .type = MW_F_INT_LIST,
     .is_choice = true,
     .offset = L_AT(overlap_shared_experts),
     .enums = mw_bool_enums,
     .doc = "whether shared experts compute while tokens travel"},
    PARTS_ROW("offload_optimizer", offload_optimizer),
    PARTS_ROW("offload_weights", offload_weights),
    PARTS_ROW("offload_activations", offload_activations),
    {.key = "max_tp",
     .type = MW_F_INT32,
     .offset = L_AT(max_tp),
     .min = 1,
     .max = MW_WAYS_MAX,
     .doc = "largest tp; the GPUs of a node if absent"},
    {.key = "framework",
     .type = MW_F_ENUM,
     .offset = L_AT(framework),
     .enums = mw_framework_enums,
     .doc = "framework whose rules a plan must meet; any if absent"},
    MW_FIELD_END};

void mw_limits_default(struct mw_limits *limits)
{
    *limits = (struct mw_limits){.memory_fraction = 0.92};
}
