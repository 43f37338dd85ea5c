/*
 * The model `fit` as curves for sim/cost, so that a step, a plan and the verb
 * `coll` give one answer for one collective.
 */
#ifndef MW_SIM_COLL_COLL_LIBRARY_H
#define MW_SIM_COLL_COLL_LIBRARY_H

#include "sim/coll/coll.h"
#include "sim/cost/coll_curve.h"

/*
 * Lends db the curves of its systems: from now on mw_cost_ctx_init takes
 * collectives from mw_coll_predict(..., MW_COLL_FIT, ...) with NCCL's default
 * settings, but not for CPUs, which are priced by their calibration. Costs
 * nothing until something is priced. Once a database.
 *
 *   mw_hwdb_load(NULL, &db, &err);
 *   mw_coll_library_lend(db);
 */
void mw_coll_library_lend(struct mw_hwdb *db);

/* The query of a group of a system: trays of its scale-up domain as NCCL sees
 * them. Groups that do not fill their nodes evenly count as if they did. */
struct mw_coll_query mw_coll_query_of(const struct mw_system *system,
                                      enum mw_coll_op op, double bytes,
                                      const struct mw_group *group);

#endif
