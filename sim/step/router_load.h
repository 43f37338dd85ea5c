/*
 * Uneven routers: with experts spread over ranks, a layer waits for the rank
 * whose experts got the most tokens, its exchanges for the rank that takes the
 * most, and the memory of that rank has to hold them. How many go where is not
 * a matter of cost but of weights and text, so it is given, not fitted:
 *
 *   workload: router_counts      rows of each expert, counted (a CSV table)
 *   workload: expert_imbalance   f, the busiest rank's rows over the mean
 *   router.csv of an overlay     counted by `calibrate` when training begins,
 *                                for the scenario whose hash machine.csv has
 *                                as router_scenario
 *
 * and without any of them even. A capacity factor C drops what an expert gets
 * beyond C times the mean (Fedus et al., "Switch Transformers", JMLR 2022,
 * section 2.2; Megatron-LM, --moe-expert-capacity-factor); padded to it, every
 * expert computes C times the mean whatever it got
 * (--moe-pad-expert-input-to-capacity).
 */
#ifndef MW_STEP_ROUTER_LOAD_H
#define MW_STEP_ROUTER_LOAD_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

/* Rows of the busiest rank of an expert-parallel group over the mean of what is
 * routed, after the capacity; all 1 without counts for this scenario, and with
 * ep 1. */
struct mw_router_load {
    double synced; /* where its ranks meet in every layer: F, B, exchanges; W
                      when a layer is recomputed, run backwards and learned at
                      once */
    double apart;  /* where each runs through its layers alone: W */
    double nodes;  /* as synced, of a node's ranks together */
    double held;   /* of a stage's layers and one micro-batch: what is kept for
                      its backward pass, in one of two */
    double held_p90; /* and at most in nine of ten */
    double dropped;  /* part of what is routed, 0 to 1 */
};

/* router_sums.c. The counts of a scenario's routers, summed. */
struct mw_router_sums {
    int n_layers; /* of experts */
    int n_seqs;   /* of the table: whole steps of `batch` each */
    int n_experts;
    int batch;
    int64_t *below; /* [n_layers][n_seqs + 1][n_experts + 1]: rows of earlier
                       sequences to earlier experts; NULL: no counts */
};
/* False without counts (released all the same). 8 bytes a count. */
bool mw_router_sums_init(struct mw_router_sums *out,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_scenario *scenario);
void mw_router_sums_release(struct mw_router_sums *sums);

/* What the load depends on of a layout, but for mw_router_load_under: layouts
 * that have the same share a load. Sequences of a micro-batch that come
 * together; without counts all 0 but the ranks. */
struct mw_router_group {
    int n_replicas, n_groups; /* replicas of a group; groups of a stage */
    int n_microbatches, n_seqs;
    int n_ranks, per_node; /* ep; of them on a node */
    int depth;             /* layers of experts on a stage */
    int reserved;          /* 0 */
};
struct mw_router_group mw_router_group_of(const struct mw_router_sums *sums,
                                          const struct mw_cost_ctx *ctx,
                                          const struct mw_scenario *scenario,
                                          const struct mw_layout *layout);
/* O(n_layers x micro-batches x replicas x ranks), with a capacity x experts. */
struct mw_router_load mw_router_group_load(const struct mw_router_sums *sums,
                                           const struct mw_workload *workload,
                                           const struct mw_router_group *group);
/* Under the layout's recomputation and the workload's padding. */
struct mw_router_load mw_router_load_under(const struct mw_router_load *load,
                                           const struct mw_workload *workload,
                                           const struct mw_layout *layout);
/* The three in one. */
struct mw_router_load mw_router_load_of(const struct mw_cost_ctx *ctx,
                                        const struct mw_scenario *scenario,
                                        const struct mw_layout *layout);
/* Does a layer learn before the next one runs backwards? */
bool mw_router_learns_by_layer(const struct mw_layout *layout);
/*
 * router_skew.c. Of one number: ranks whose shares of the rows are as
 * (r + 1)^-a, a such that the first has `imbalance` times the mean (at most ep
 * times: all); the experts of a rank alike; the same ranks in every layer.
 * capacity 0: nothing is dropped.
 *
 *   synced = min(imbalance, C),  dropped = sum over r of max(0, p_r - C / ep)
 */
struct mw_router_load mw_router_load_skewed(double imbalance, double capacity,
                                            int ep, int ranks_per_node);
/* The same router where experts compute their capacity, got or not. */
struct mw_router_load mw_router_load_padded(const struct mw_router_load *load,
                                            double capacity);

/* Are the counts those of the scenario's layers, sequences and experts, in this
 * order? Else MW_EINPUT naming the file and the row. MW_OK without counts. */
enum mw_status mw_router_check(const struct mw_cost_ctx *ctx,
                               const struct mw_scenario *scenario,
                               struct mw_err *err);

#endif
