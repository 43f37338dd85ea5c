/*
 * A scenario: which model, on which cluster, doing what work, within which
 * limits. YAML; keys `format name model cluster workload limits objective
 * layout` (docs/scenario.md). Read once; owns an arena.
 */
#ifndef MW_SIM_MODEL_SCENARIO_H
#define MW_SIM_MODEL_SCENARIO_H

#include "base/err.h"
#include "base/mem.h"
#include "base/yaml.h"
#include "sim/model/layout.h"
#include "sim/model/model.h"
#include "sim/model/objective.h"
#include "sim/model/optimizer.h"

struct mw_cluster {
    const char *system; /* slug or alias of hwdb systems */
    int n_nodes;        /* that train: the key's less the spare ones */
    int spare_nodes;    /* stand by beside them */
    int gpus_per_node;  /* 0: the system's */
    int leaf_nodes;     /* under one leaf switch; 0: leaves do not matter */
    double oversubscription; /* NICs of a leaf over its links up; 0: 1 */
    /* Of the allocation's nodes, in their order, so many under each leaf
     * switch; empty: leaf_nodes under each. */
    struct mw_int_list leaves;
    /* Choices of how many nodes of a rack are one scale-up domain; empty: all
     * of them. Until one is taken (sim/cost/domain.h) all nodes train. */
    struct mw_int_list domains;
    int domain_nodes; /* the one taken; 0: none is */
    int rack_nodes;   /* that scale-up links join; 0: not known yet, or one */
};
/* Node of the allocation that holds a node's worth of ranks where no order of
 * nodes is said: the next, past what the racks' domains leave. */
int mw_cluster_slot_node(const struct mw_cluster *cluster, int slot);
/* Nodes of the allocation: those that train and those that stand by; or as many
 * as its leaves hold, where that is more (what-if with fewer nodes). */
int mw_cluster_allocated(const struct mw_cluster *cluster);

extern const struct mw_enum mw_lora_targets_enums[];
extern const struct mw_enum mw_base_dtype_enums[];
extern const struct mw_enum mw_scaling_enums[];
extern const struct mw_enum mw_loss_enums[];
extern const struct mw_enum mw_clip_enums[];
extern const struct mw_enum mw_moment_enums[]; /* types of moments */
/* Are gradients clipped by the norm of all of them? As the stack does. */
enum mw_clip { MW_CLIP_STACK, MW_CLIP_NORM, MW_CLIP_NONE };
struct mw_workload {
    int64_t seq;
    int64_t global_batch;     /* sequences per step */
    enum mw_dtype dtype;      /* compute and parameters */
    enum mw_dtype grad_dtype; /* gradient accumulation and reduction */
    bool is_flash;            /* attention: flash | unfused */
    bool has_dropout;
    bool causal_flops; /* model FLOPs counted causal (half) or full */
    struct mw_optimizer optimizer;
    uint64_t seed;
    int lora_rank; /* of the adapters, which alone learn; 0: all weights do */
    enum mw_lora_targets lora_targets;
    enum mw_base_dtype base_dtype;
    int64_t doc_tokens; /* packed sequences: tokens of a document, weighted by
                           tokens; 0: a sequence is one document */
    enum mw_scaling scaling; /* of FP8 operands */
    enum mw_loss loss;
    int loss_chunks; /* head and loss in so many parts; 1: whole */
    enum mw_clip clip;
    double capacity_factor;  /* an expert takes at most so many times the mean
                                of what is routed; 0: all, nothing is dropped */
    bool pads_to_capacity;   /* and computes as many, got or not */
    double expert_imbalance; /* rows of the busiest rank of an expert-parallel
                                group over the mean; up to 1: even */
};

/* Rows that each layer's router sends to each expert, of each sequence of whole
 * steps: [MoE layer][sequence][expert]. */
struct mw_router_counts {
    const char *file;    /* NULL: none */
    const int64_t *rows; /* in the scenario's arena */
    int n_seqs;
};

/* Whose features a plan may use (planner/legality.c knows their rules). */
enum mw_framework {
    MW_FRAMEWORK_ANY, /* all that the simulator prices */
    MW_FRAMEWORK_MEGATRON_CORE,
    MW_FRAMEWORK_MEGATRON_DEEPSPEED,
    MW_FRAMEWORK_TORCHTITAN,
    MW_FRAMEWORK_NANOTRON,
    MW_FRAMEWORK_HOST /* our own executor on CPUs */
};
extern const struct mw_enum mw_framework_enums[];
const char *mw_framework_name(int framework); /* "megatron-core-0.14" */

enum { MW_SPARES_MAX = 64 }; /* choices of a list of the limits */
enum { MW_PARTS_MAX = 8 };   /* of one thing, in a list of the limits */
struct mw_limits {
    double memory_bytes;      /* per rank; 0: the device's capacity */
    double memory_fraction;   /* usable part of it, where it is given */
    bool has_memory_fraction; /* else what mw_step_usable_bytes says */
    struct mw_int_list tp, pp, dp, micro_batch; /* allowed values; empty: any */
    struct mw_int_list cp, ep, vpp, cp_inner;
    /* The same; what is listed is enumerated, also what is not by default. Of
     * enums mw_recompute, mw_cp_form and mw_offload_nvme; 0 and 1. */
    struct mw_int_list etp, zero, sp, recompute, recompute_layers, cp_form;
    struct mw_int_list dp_shard, reshard, offload_nvme;
    struct mw_str_list schedule, order; /* names, the same */
    /* Sets, as in mw_layout; what is listed is enumerated. */
    struct mw_int_list recompute_modules, overlap_off;
    struct mw_int_list bucket_size; /* what is listed is enumerated */
    struct mw_int_list fsdp_unit, fsdp_prefetch; /* the same */
    struct mw_int_list vpp_group;                /* the same */
    /* Of enums mw_main_params and mw_dtype, the same. */
    struct mw_int_list main_params, exp_avg, exp_avg_sq;
    struct mw_int_list mtp_ahead; /* the same */
    /* Of enum mw_dtype and mw_grad_compression; what is listed is enumerated.
     */
    struct mw_int_list dtype, grad_dtype, grad_compression, cuda_graph;
    struct mw_int_list dispatcher; /* of enum mw_dispatcher, the same */
    struct mw_int_list overlap_shared_experts;
    struct mw_num_list offload_optimizer, offload_weights, offload_activations;
    /* Nodes that stand by, to choose among by the whole job's time; the first
     * until one is chosen. Empty: cluster's spare_nodes. */
    struct mw_int_list spare_nodes;
    int max_tp;     /* 0: GPUs of a node */
    int node_kinds; /* systems that a mixed cluster's plan uses; 0: any */
    int framework;  /* enum mw_framework */
};

struct mw_scenario {
    struct mw_arena arena;
    const char *file; /* as given */
    const char *name;
    uint64_t hash; /* of what matters: model, cluster, workload, limits */
    struct mw_model model;
    struct mw_cluster cluster;
    struct mw_workload workload;
    struct mw_router_counts router;
    struct mw_limits limits;
    struct mw_objective objective;
    bool has_layout;
    struct mw_layout layout;
    /* Uneven layers per virtual stage of `layout`; empty: even. */
    struct mw_int_list layout_layers;
};

/* Reads and checks everything that needs no hardware database. On failure
 * nothing is left to release. */
enum mw_status mw_scenario_load(const char *path, struct mw_scenario *out,
                                struct mw_err *err);
/* The same from memory; name stands for the file in messages, and its folder
 * is where relative paths start. */
enum mw_status mw_scenario_parse(const char *name, const char *text, size_t len,
                                 struct mw_scenario *out, struct mw_err *err);
void mw_scenario_release(struct mw_scenario *scenario);

/*
 * Puts the scenario's file in front of the message of err, and the place of the
 * key that it is about (mw_err_set_key), for which the file is read again. Not
 * in the file: the place of the section; no such section: the file alone.
 */
void mw_scenario_blame(const struct mw_scenario *scenario, struct mw_err *err);
/* The same of any file of ours with sections, a plan. */
void mw_file_blame(const char *file, struct mw_err *err);

/*
 * Rules that every layout must meet: products equal the ranks, tp divides
 * heads and kv heads (or is a multiple of kv heads), ffn and vocab; batch
 * divides by dp * micro_batch; layers are enough for pp * vpp. The first
 * broken rule is the message; rule_id (may be NULL) gets a short stable name
 * ("tp_heads") for counting reasons. Returns MW_ENO without touching err when
 * err is NULL. n_ranks 0: do not compare with a cluster.
 */
enum mw_status mw_layout_check(const struct mw_layout *layout,
                               const struct mw_model *model,
                               const struct mw_workload *workload, int n_ranks,
                               const char **rule_id, struct mw_err *err);

/*
 * Of a list of layers of virtual stages, the first stage that would hold
 * nothing: no layers, and neither the embedding (stage 0) nor the head (the
 * last of several) nor multi-token prediction (mtp_ahead). -1: none.
 */
int mw_layers_idle_stage(const struct mw_int_list *layers,
                         const struct mw_layout *layout);
/* Do layers stand behind those of multi-token prediction (mtp_ahead)? */
bool mw_layers_pass_mtp(const struct mw_int_list *layers,
                        const struct mw_layout *layout);

/*
 * Does layout->nodes, where it is given, name as many different nodes of the
 * allocation as train? MW_EINPUT with what is wrong.
 */
enum mw_status mw_layout_check_nodes(const struct mw_layout *layout,
                                     const struct mw_cluster *cluster,
                                     struct mw_err *err);

/* The layout key that a rule speaks of, for pointing at it: "tp_heads" ->
 * "tp". NULL for an unknown rule. */
const char *mw_layout_rule_key(const char *rule_id);
/* i-th rule id in the order they are checked, NULL past the end. */
const char *mw_layout_rule_name(size_t i);

/* Binder tables (docs/scenario.md), for other readers of the same keys;
 * offset 0 is the start of mw_cluster and mw_limits. */
extern const struct mw_field mw_cluster_fields[], mw_limits_fields[];
/* What a scenario starts from before its keys are read: bf16, fp32 gradients,
 * flash attention, no dropout, full-square FLOPs, adamw, seed 1234. */
void mw_workload_default(struct mw_workload *workload);
void mw_limits_default(struct mw_limits *limits);

/* What a layout computes in, and what it sums gradients in: its own choice,
 * else the workload's. */
enum mw_dtype mw_work_dtype(const struct mw_layout *layout,
                            const struct mw_workload *workload);
struct mw_optimizer mw_work_optimizer(const struct mw_layout *layout,
                                      const struct mw_workload *workload);
enum mw_dtype mw_work_grad_dtype(const struct mw_layout *layout,
                                 const struct mw_workload *workload);

/* Micro-batches per step and replica: global_batch / (dp * micro_batch). */
int mw_microbatches(const struct mw_layout *layout,
                    const struct mw_workload *workload);

#endif
