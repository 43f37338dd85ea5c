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
