/* A user's histogram of expert loads, as `coll --routing FILE` and
 * `plan --experts FILE` read it. */
#ifndef MW_CLI_EXPERT_LOADS_H
#define MW_CLI_EXPERT_LOADS_H

#include "base/err.h"
#include "base/mem.h"

/*
 * A CSV with the column `load` and a row for every expert, in their order; any
 * unit, since only shares count. out[n_experts] lies in the arena. MW_EINPUT
 * with the place: another number of rows, a load below 0, none above 0.
 */
enum mw_status mw_cli_expert_loads(const char *path, int n_experts,
                                   struct mw_arena *arena, const double **out,
                                   struct mw_err *err);

#endif
