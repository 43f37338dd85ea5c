/*
 * Uneven routers: with experts spread over ranks, a layer waits for the rank
 * whose experts got the most tokens. How many go where is not a matter of cost
 * but of weights and text, so it is counted, not fitted: router.csv of an
 * overlay has the rows that each expert gets of each sequence of some steps
 * when training begins (`calibrate` writes it), for the scenario whose hash
 * machine.csv has as router_scenario.
 */
#ifndef MW_STEP_ROUTER_LOAD_H
#define MW_STEP_ROUTER_LOAD_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

/* Rows of the busiest rank of an expert-parallel group over the mean: where its
 * ranks meet in every layer (F, B; W when a layer is recomputed, run backwards
 * and learned at once), and where each runs through its layers alone (W). Both
 * 1 without counts for this scenario, and with ep 1. */
struct mw_router_load {
    double synced, apart;
};
struct mw_router_load mw_router_load_of(const struct mw_cost_ctx *ctx,
                                        const struct mw_scenario *scenario,
                                        const struct mw_layout *layout);

/* Are the counts those of the scenario's layers, sequences and experts, in this
 * order? Else MW_EINPUT naming the file and the row. MW_OK without counts. */
enum mw_status mw_router_check(const struct mw_cost_ctx *ctx,
                               const struct mw_scenario *scenario,
                               struct mw_err *err);

#endif
