/*
 * Inside of scenario reading: what a file says, word for word, before it is
 * turned into a mw_scenario. scenario_keys.c knows the keys and the hash over
 * them, scenario.c reads files.
 */
#ifndef MW_SIM_MODEL_SCENARIO_INT_H
#define MW_SIM_MODEL_SCENARIO_INT_H

#include "sim/model/scenario.h"

/* The workload as written: words stand as numbers of their enumerations. */
struct mw_raw_workload {
    int64_t seq, global_batch, seed, doc_tokens;
    int dtype, grad_dtype, attention, flops, optimizer;
    bool has_dropout;
    int lora_rank, lora_targets, base_dtype, scaling;
    int main_params, exp_avg, exp_avg_sq, loss, loss_chunks, clip;
    double capacity_factor, expert_imbalance;
    bool pads_to_capacity;
    const char *router_counts;
    bool has_lora_targets;
};

extern const struct mw_raw_workload mw_raw_workload_default;
extern const struct mw_field mw_workload_fields[]; /* of mw_raw_workload */
struct mw_workload mw_workload_of(const struct mw_raw_workload *raw);

/* The file as written. */
struct mw_raw_scenario {
    int64_t format;
    const char *name;
    struct mw_node *model, *layout, *objective;
    struct mw_cluster cluster;
    struct mw_raw_workload workload;
    struct mw_limits limits;
};

/*
 * router_counts.c: a table of the rows that experts get, columns expert and
 * rows, and layer and sequence where those differ; path relative to `folder`.
 * Every layer of experts, sequence and expert once, of whole steps. MW_EINPUT
 * says where it is not so.
 */
enum mw_status mw_router_counts_read(const char *path, const char *folder,
                                     const struct mw_model *model,
                                     int64_t global_batch,
                                     struct mw_arena *arena,
                                     struct mw_router_counts *out,
                                     struct mw_err *err);

/* Continues a hash over them. */
uint64_t mw_router_counts_hash(uint64_t h,
                               const struct mw_router_counts *counts,
                               const struct mw_model *model);

/* The node of a key of a section, or the section itself. */
static inline struct mw_node *mw_scenario_key_node(struct mw_node *section,
                                                   const char *key)
{
    struct mw_node *node = key != NULL ? mw_node_get(section, key) : NULL;

    return node != NULL ? node : section;
}

/* scenario_cluster.c: *out, which is raw->cluster, without the nodes that stand
 * by. MW_EINPUT where leaves, domains and spare nodes do not go together. */
enum mw_status mw_cluster_take(struct mw_node *root,
                               const struct mw_raw_scenario *raw,
                               struct mw_cluster *out, struct mw_err *err);

/* Over model, cluster, workload and limits, after defaults. */
uint64_t mw_scenario_hash(const struct mw_raw_scenario *raw,
                          const struct mw_model *model);

#endif
