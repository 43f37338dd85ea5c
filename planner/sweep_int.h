/* Private to the sweep: axes, points, rows as CSV. */
#ifndef MW_PLANNER_SWEEP_INT_H
#define MW_PLANNER_SWEEP_INT_H

#include "planner/sweep.h"

/* A copy whose texts live in the arena. */
void mw_sweep_copy(struct mw_arena *arena, const struct mw_sweep_row *from,
                   struct mw_sweep_row *out);

struct mw_sweep_point {
    struct mw_scenario scenario; /* shares the arena of the original */
    double net;
    int gpus_per_node; /* varied; 0: the scenario's or the system's */
    int nics;          /* the same */
    struct mw_cost_ctx ctx;
};
/* Point `index` of the grid, the last axis fastest. The scenario's arena is not
 * copied. stack: of --stack, NULL: the framework's. MW_EINPUT names the key
 * that is to blame. */
enum mw_status mw_sweep_point_make(const struct mw_scenario *from,
                                   const struct mw_hwdb *db, const char *stack,
                                   const struct mw_sweep_grid *grid,
                                   size_t index, struct mw_sweep_point *p,
                                   struct mw_err *err);

/* The key's name in --vary; is its value a whole number? */
const char *mw_sweep_key_name(enum mw_sweep_key key);
bool mw_sweep_key_is_number(enum mw_sweep_key key);

#endif
