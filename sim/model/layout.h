/*
 * The parallel layout of a training job: how many ways each dimension splits
 * the work. The same keys stand in a scenario's `layout:` and in a plan.
 *
 *   gpus = tp * cp * pp * dp            (dense part)
 *   gpus = etp * ep * pp * edp          (expert part, parallel folding)
 */
#ifndef MW_SIM_MODEL_LAYOUT_H
#define MW_SIM_MODEL_LAYOUT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* More ranks than any machine: keeps products of ways inside 64 bits. */
enum { MW_WAYS_MAX = 1 << 20 };

/* What is stored of a layer's activations (Korthikanti et al., 2022):
 * everything; all but the attention core; only the layer's input. */
enum mw_recompute {
    MW_RECOMPUTE_NONE,
    MW_RECOMPUTE_SELECTIVE,
    MW_RECOMPUTE_FULL
};

/* Parts of a layer that selective recomputation can repeat, by the names of
 * Megatron-Core's --recompute-modules (core/transformer/transformer_config.py);
 * bits. Of mlp, moe and shared_experts only the input is kept; of layernorm,
 * moe_act and mla_up_proj the output is dropped, which the product behind them
 * would keep as its input. */
enum mw_recompute_module {
    MW_MODULE_CORE_ATTN = 1,   /* softmax and its statistics, or all of it */
    MW_MODULE_MLA_UP_PROJ = 2, /* query, key and value from their latents */
    MW_MODULE_LAYERNORM = 4,   /* the norms before attention and MLP */
    MW_MODULE_MLP = 8,         /* the dense MLP */
    MW_MODULE_MOE = 16,        /* router, experts, shared experts */
    MW_MODULE_MOE_ACT = 32,    /* the activation between experts' products */
    MW_MODULE_SHARED_EXPERTS = 64
};

/* What is not sent beside other work, although the stack could: bits. */
enum mw_overlap {
    MW_OVERLAP_GRADS = 1,  /* reduction of gradients */
    MW_OVERLAP_PARAMS = 2, /* gathers of parameters */
    MW_OVERLAP_TP = 4,     /* collectives of tensor parallelism */
    MW_OVERLAP_EP = 8      /* exchanges of tokens with experts */
};

/* How the ranks of a context parallel group get each other's keys and values:
 * an all-gather of both before the attention core (Megatron-LM's and
 * torchtitan's `allgather`); a ring that passes blocks of both on while it
 * computes with the last one (Liu et al., "Ring Attention", 2023), or keeps
 * them and passes its queries (Yang et al., "Context Parallelism for Scalable
 * Million-Token Inference", 2024); an
 * all-to-all that turns a part of the sequence and all heads into the whole
 * sequence and a part of the heads (Jacobs et al., "DeepSpeed Ulysses",
 * 2023). */
enum mw_cp_form { MW_CP_GATHER, MW_CP_RING, MW_CP_A2A, MW_CP_PASSQ };

/* How gradients (and, with ZeRO-3, weights) are made smaller on their way: the
 * signs of the momentum (Tang et al., "1-bit Adam", ICML 2021); 4-bit gradients
 * and 8-bit weights, with a copy of the weights in each node (Wang et al.,
 * "ZeRO++", 2023). */
enum mw_grad_compression {
    MW_COMPRESS_NONE,
    MW_COMPRESS_ONEBIT,
    MW_COMPRESS_ZEROPP
};

/* What of the offloaded parts lies on the node's drives instead of in its
 * memory (Rajbhandari et al., "ZeRO-Infinity", SC 2021); bits. */
enum mw_offload_nvme {
    MW_NVME_NONE,
    MW_NVME_OPTIMIZER,
    MW_NVME_WEIGHTS,
    MW_NVME_ALL
};

/*
 * What is captured in CUDA graphs, which the host issues as one operator
 * (Megatron-LM, --cuda-graph-scope): what the stack does; nothing; the
 * attention part of each layer; each layer, of a layer of experts its attention
 * (routing sends counts back to the host); forward and backward passes whole.
 */
enum mw_cuda_graph {
    MW_GRAPH_STACK,
    MW_GRAPH_NONE,
    MW_GRAPH_ATTN,
    MW_GRAPH_LAYER,
    MW_GRAPH_ITERATION
};

/*
 * How tokens reach the ranks of their experts and results come back
 * (Megatron-LM, --moe-token-dispatcher-type, --moe-flex-dispatcher-backend): as
 * the stack does; an all-to-all of copies; all tokens to all ranks and a
 * reduce-scatter of results; kernels that send a token once to each node of its
 * experts, DeepSeek's DeepEP and NVIDIA's HybridEP.
 */
enum mw_dispatcher {
    MW_DISPATCH_STACK,
    MW_DISPATCH_ALLTOALL,
    MW_DISPATCH_ALLGATHER,
    MW_DISPATCH_DEEPEP,
    MW_DISPATCH_HYBRIDEP
};

enum mw_dtype {
    MW_FP32,
    MW_TF32,
    MW_BF16,
    MW_FP16,
    MW_FP8,
    MW_FP4,
    MW_DTYPE_COUNT
};
/* A type that a layout may choose for itself: 0 the workload's, else 1 + enum
 * mw_dtype. */
enum { MW_DTYPE_OF_WORKLOAD = 0 };
/* Bytes of one element (FP4 is 0.5). */
double mw_dtype_bytes(enum mw_dtype dtype);
const char *mw_dtype_name(enum mw_dtype dtype); /* "bf16" */
extern const struct mw_enum mw_dtype_enums[];
extern const struct mw_enum mw_dtype_choice_enums[]; /* "workload", "fp32" */
extern const struct mw_enum mw_main_params_choice_enums[],
    mw_moment_choice_enums[];
const char *mw_main_params_choice_name(int choice); /* "none" */
const char *mw_dtype_choice_name(int choice);
extern const struct mw_enum mw_recompute_enums[], mw_recompute_module_enums[],
    mw_cp_form_enums[], mw_grad_compression_enums[], mw_offload_nvme_enums[],
    mw_cuda_graph_enums[], mw_dispatcher_enums[], mw_bool_enums[];
const char *mw_recompute_name(enum mw_recompute recompute);
const char *mw_cp_form_name(enum mw_cp_form form); /* "ring" */
const char *mw_grad_compression_name(enum mw_grad_compression compression);
const char *mw_cuda_graph_name(enum mw_cuda_graph graph);    /* "layer" */
const char *mw_dispatcher_name(enum mw_dispatcher how);      /* "deepep" */
const char *mw_offload_nvme_name(enum mw_offload_nvme nvme); /* "all" */

enum { MW_FSDP_PREFETCH_MAX = 16 };

struct mw_layout {
    int tp;               /* tensor parallel ways */
    bool sp;              /* sequence parallel within the TP group */
    int cp;               /* context parallel ways */
    int pp;               /* pipeline stages (devices) */
    int vpp;              /* chunks (virtual stages) per device */
    int dp;               /* data parallel ways */
    int zero;             /* 0..3 */
    int ep;               /* expert parallel ways */
    int etp;              /* tensor parallel ways inside an expert */
    int micro_batch;      /* sequences per micro-batch and replica */
    const char *schedule; /* a generator's name: "1f1b", "gpipe", ... */
    enum mw_recompute recompute;
    const char *order;    /* rank order, fastest first: "tp-cp-ep-dp-pp" */
    int recompute_layers; /* the first so many of each virtual stage are
                             recomputed (Megatron-LM's method `block`); 0: all
                           */
    enum mw_cp_form cp_form;
    int cp_inner; /* neighbours of a cp group that deal out heads to each other
                     by all-to-alls, while cp_form goes between such sets; 1:
                     none (Fang and Zhao, "USP", 2024) */
    int dp_shard; /* ZeRO shards within groups of so many replicas and repeats
                     itself over the groups (HSDP); 0: all dp of them */
    bool reshard; /* ZeRO-3: parameters are freed after a layer's forward pass
                     and gathered again for its backward pass */
    /* ZeRO-3: layers that are gathered and scattered at once (FSDP's wrapped
     * module; the ends of the model by themselves), 0: all of a virtual stage
     * and its ends; and how many such units are gathered ahead of the one that
     * computes, -1: as the stack does. */
    int fsdp_unit, fsdp_prefetch;
    /* Parts, 0 to 1, that lie in the host's memory between uses. */
    double offload_optimizer, offload_weights, offload_activations;
    enum mw_grad_compression grad_compression;
    enum mw_offload_nvme offload_nvme;
    int recompute_modules; /* what selective recomputation repeats, bits of
                              mw_recompute_module; 0: core_attn */
    /* Types of products and of summed gradients, where they are not the
     * workload's (MW_DTYPE_OF_WORKLOAD); mw_work_dtype resolves them. */
    int dtype, grad_dtype;
    /* The same of the optimizer's states: 0 the workload's, else 1 + enum
     * mw_main_params, 1 + enum mw_dtype; mw_work_optimizer resolves them. */
    int main_params, exp_avg, exp_avg_sq;
    int overlap_off; /* bits of mw_overlap; 0: what the stack hides is hidden */
    int bucket_size; /* gradients, by elements, of one reduction over dp, and
                        under ZeRO-1 weights of one gather; 0: the stack's */
    enum mw_cuda_graph cuda_graph;
    enum mw_dispatcher dispatcher;
    bool overlap_shared_experts; /* they compute while tokens travel to the
                                    routed experts and back */
    int vpp_group; /* interleaved schedules: micro-batches that go through a
                      chunk before the next chunk has its turn (Megatron-Core's
                      microbatch_group_size_per_vp_stage); 0: pp */
    int mtp_ahead; /* 1: the multi-token-prediction layers lie one virtual stage
                      before the head, which its stage then holds alone; 0:
                      with the head */
    /* Node of the allocation, counted from 0, on which the node's worth of
     * ranks i lies; empty: node i. What is not named stands by. */
    struct mw_int_list nodes;
    int domain_nodes; /* of the cluster's choices (mw_cluster.domains) the one
                         taken; 0: the first */
    /* Of each virtual stage, in the order of the model, how many of its layers
     * are recomputed, the first ones; empty: recompute_layers says it for all
     * of them. */
    struct mw_int_list stage_recompute_layers;
};

/* tp = cp = ... = 1, micro_batch 1, schedule "1f1b", order "tp-cp-ep-dp-pp",
 * cp_form gather, reshard true, a layer gathered at once and as far ahead as
 * the stack does, nothing offloaded or compressed. */
void mw_layout_default(struct mw_layout *layout);
/* Steps of a ring, parts of a gather: cp over the sets of cp_inner ranks. */
int mw_layout_cp_outer(const struct mw_layout *layout);
/* Replicas that share one copy of what ZeRO shards: dp_shard, or dp. */
int mw_layout_shard_ways(const struct mw_layout *layout);
/* Does the layout say in which units ZeRO-3 gathers, or how far ahead? */
bool mw_layout_wraps(const struct mw_layout *layout);
/* Are layers that are not recomputed apart from others that are? */
bool mw_layout_keeps_layers(const struct mw_layout *layout);
/* Of the n_layers of a virtual stage, those that `recompute` is about; all
 * unless the layout counts them. Inline: a search asks for every stage. */
static inline int mw_layout_recomputed(const struct mw_layout *layout,
                                       int virtual_stage, int n_layers)
{
    const struct mw_int_list *list = &layout->stage_recompute_layers;
    int64_t n = (size_t)virtual_stage < list->n ? list->v[virtual_stage]
                : layout->recompute_layers > 0  ? layout->recompute_layers
                                                : n_layers;

    return n < n_layers ? (int)n : n_layers;
}
/* Modules that are repeated one by one: 0 unless recompute is selective. */
int mw_layout_modules(const struct mw_layout *layout);
/* Appends the names of modules, `between` between them. */
extern const struct mw_enum mw_overlap_enums[];
void mw_overlap_off_add(struct mw_str *text, int bits, const char *between);
void mw_recompute_modules_add(struct mw_str *text, int modules,
                              const char *between);
/* "0-9 12 10 11": runs of neighbours joined. */
void mw_layout_nodes_add(struct mw_str *text, const struct mw_int_list *nodes,
                         const char *between);
/* Is any part of the step's state kept in the host's memory? */
bool mw_layout_offloads(const struct mw_layout *layout);
/* Do groups of micro-batches go through chunks in turn (vpp_group)? */
bool mw_layout_is_grouped(const struct mw_layout *layout);
/* Ranks the layout occupies: tp * cp * pp * dp; aborts past INT_MAX (the
 * binder's ranges and mw_layout_check keep input below it). */
int mw_layout_ranks(const struct mw_layout *layout);
/* Binder table of the keys above. `offset` 0 is the start of mw_layout. */
extern const struct mw_field mw_layout_fields[];

/* The rows of that table for a struct that holds a mw_layout `at` bytes from
 * its start, for files that know more keys beside them (`layers`). */
#define MW_LAYOUT_INT_ROW(at, name, low, high, text)                           \
    {                                                                          \
        .key = #name, .type = MW_F_INT32,                                      \
        .offset = (at) + offsetof(struct mw_layout, name), .min = (low),       \
        .max = (high), .doc = (text)                                           \
    }
#define MW_LAYOUT_PART_ROW(at, name, text)                                     \
    {                                                                          \
        .key = #name, .type = MW_F_NUM,                                        \
        .offset = (at) + offsetof(struct mw_layout, name), .max = 1,           \
        .doc = (text)                                                          \
    }
#define MW_LAYOUT_FIELD_ROWS(at)                                               \
    MW_LAYOUT_INT_ROW(at, tp, 1, MW_WAYS_MAX, "tensor parallel ways"),         \
        {.key = "sp",                                                          \
         .type = MW_F_BOOL,                                                    \
         .offset = (at) + offsetof(struct mw_layout, sp),                      \
         .doc = "sequence parallelism within the tensor parallel group"},      \
        MW_LAYOUT_INT_ROW(at, cp, 1, MW_WAYS_MAX, "context parallel ways"),    \
        MW_LAYOUT_INT_ROW(at, pp, 1, MW_WAYS_MAX, "pipeline stages"),          \
        MW_LAYOUT_INT_ROW(at, vpp, 1, 4096, "chunks of layers per stage"),     \
        MW_LAYOUT_INT_ROW(at, dp, 1, MW_WAYS_MAX, "data parallel ways"),       \
        MW_LAYOUT_INT_ROW(at, zero, 0, 3, "ZeRO stage"),                       \
        MW_LAYOUT_INT_ROW(at, ep, 1, MW_WAYS_MAX, "expert parallel ways"),     \
        MW_LAYOUT_INT_ROW(at, etp, 1, MW_WAYS_MAX,                             \
                          "tensor parallel ways inside an expert"),            \
        MW_LAYOUT_INT_ROW(at, micro_batch, 1, 1e6,                             \
                          "sequences per micro-batch and replica"),            \
        {.key = "schedule",                                                    \
         .type = MW_F_STR,                                                     \
         .offset = (at) + offsetof(struct mw_layout, schedule),                \
         .doc = "pipeline schedule by name"},                                  \
        {.key = "recompute",                                                   \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, recompute),               \
         .enums = mw_recompute_enums,                                          \
         .doc = "what the backward pass computes again"},                      \
        {.key = "order",                                                       \
         .type = MW_F_STR,                                                     \
         .offset = (at) + offsetof(struct mw_layout, order),                   \
         .doc = "order of ranks, fastest first"},                              \
        MW_LAYOUT_INT_ROW(at, recompute_layers, 0, MW_WAYS_MAX,                \
                          "recomputed layers of each virtual stage; 0: all"),  \
        {.key = "stage_recompute_layers",                                      \
         .type = MW_F_INT_LIST,                                                \
         .offset = (at) + offsetof(struct mw_layout, stage_recompute_layers),  \
         .max = MW_WAYS_MAX,                                                   \
         .doc = "recomputed layers of each virtual stage, one by one"},        \
        {.key = "recompute_modules",                                           \
         .type = MW_F_FLAGS,                                                   \
         .offset = (at) + offsetof(struct mw_layout, recompute_modules),       \
         .enums = mw_recompute_module_enums,                                   \
         .doc = "what selective recomputation repeats"},                       \
        {.key = "overlap_off",                                                 \
         .type = MW_F_FLAGS,                                                   \
         .offset = (at) + offsetof(struct mw_layout, overlap_off),             \
         .enums = mw_overlap_enums,                                            \
         .doc = "transfers that nothing hides"},                               \
        {.key = "nodes",                                                       \
         .type = MW_F_INT_LIST,                                                \
         .offset = (at) + offsetof(struct mw_layout, nodes),                   \
         .max = MW_WAYS_MAX,                                                   \
         .doc = "nodes of the allocation in the order of the ranks"},          \
        MW_LAYOUT_INT_ROW(at, domain_nodes, 0, 1 << 10,                        \
                          "nodes of a rack that are one scale-up domain"),     \
        {.key = "cp_form",                                                     \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, cp_form),                 \
         .enums = mw_cp_form_enums,                                            \
         .doc = "how keys and values travel in the cp group"},                 \
        MW_LAYOUT_INT_ROW(at, cp_inner, 1, MW_WAYS_MAX,                        \
                          "cp ranks that deal out heads inside a ring"),       \
        MW_LAYOUT_INT_ROW(at, bucket_size, 0, INT_MAX,                         \
                          "gradients reduced at once; 0: the stack's"),        \
        {.key = "cuda_graph",                                                  \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, cuda_graph),              \
         .enums = mw_cuda_graph_enums,                                         \
         .doc = "what is captured in CUDA graphs"},                            \
        {.key = "dispatcher",                                                  \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, dispatcher),              \
         .enums = mw_dispatcher_enums,                                         \
         .doc = "how tokens reach their experts' ranks"},                      \
        {.key = "overlap_shared_experts",                                      \
         .type = MW_F_BOOL,                                                    \
         .offset = (at) + offsetof(struct mw_layout, overlap_shared_experts),  \
         .doc = "shared experts compute while tokens travel"},                 \
        MW_LAYOUT_INT_ROW(at, vpp_group, 0, MW_WAYS_MAX,                       \
                          "micro-batches a chunk takes in turn; 0: pp"),       \
        MW_LAYOUT_INT_ROW(at, mtp_ahead, 0, 1,                                 \
                          "stages from multi-token prediction to the head"),   \
        MW_LAYOUT_INT_ROW(at, dp_shard, 0, MW_WAYS_MAX,                        \
                          "replicas that ZeRO shards over; 0: all dp"),        \
        {.key = "reshard",                                                     \
         .type = MW_F_BOOL,                                                    \
         .offset = (at) + offsetof(struct mw_layout, reshard),                 \
         .doc = "ZeRO-3 frees gathered parameters after forward"},             \
        MW_LAYOUT_INT_ROW(at, fsdp_unit, 0, MW_WAYS_MAX,                       \
                          "layers gathered at once; 0: a whole stage"),        \
        MW_LAYOUT_INT_ROW(at, fsdp_prefetch, -1, MW_FSDP_PREFETCH_MAX,         \
                          "units gathered ahead; -1: as the stack does"),      \
        {.key = "grad_compression",                                            \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, grad_compression),        \
         .enums = mw_grad_compression_enums,                                   \
         .doc = "how gradients are made smaller on their way"},                \
        {.key = "offload_nvme",                                                \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, offload_nvme),            \
         .enums = mw_offload_nvme_enums,                                       \
         .doc = "what of it lies on drives instead"},                          \
        {.key = "dtype",                                                       \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, dtype),                   \
         .enums = mw_dtype_choice_enums,                                       \
         .doc = "type of products; the workload's if absent"},                 \
        {.key = "grad_dtype",                                                  \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, grad_dtype),              \
         .enums = mw_dtype_choice_enums,                                       \
         .doc = "type of summed gradients; the workload's if absent"},         \
        {.key = "main_params_dtype",                                           \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, main_params),             \
         .enums = mw_main_params_choice_enums,                                 \
         .doc = "copy of low-precision weights; the workload's if absent"},    \
        {.key = "exp_avg_dtype",                                               \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, exp_avg),                 \
         .enums = mw_moment_choice_enums,                                      \
         .doc = "type of first moments; the workload's if absent"},            \
        {.key = "exp_avg_sq_dtype",                                            \
         .type = MW_F_ENUM,                                                    \
         .offset = (at) + offsetof(struct mw_layout, exp_avg_sq),              \
         .enums = mw_moment_choice_enums,                                      \
         .doc = "type of second moments; the workload's if absent"},           \
        MW_LAYOUT_PART_ROW(at, offload_optimizer,                              \
                           "part of the optimizer's state in host memory"),    \
        MW_LAYOUT_PART_ROW(at, offload_weights,                                \
                           "part of the weights in host memory"),              \
        MW_LAYOUT_PART_ROW(at, offload_activations,                            \
                           "part of the activations in host memory")

/* Coordinates of a rank in the (tp, cp, dp, pp) grid under layout->order
 * ("ep" in the order folds into dp and takes no place of its own). */
struct mw_coord {
    int tp, cp, dp, pp;
};
/* Names each of tp, cp, dp, pp once (ep at most once), joined by '-'. */
bool mw_layout_order_valid(const char *order);
/* Both abort when the order is not valid or the rank is outside the grid. */
struct mw_coord mw_layout_coord(const struct mw_layout *layout, int rank);
int mw_layout_rank(const struct mw_layout *layout, struct mw_coord at);

#endif
