/* Private to the sweep: rows as CSV. */
#ifndef MW_PLANNER_SWEEP_INT_H
#define MW_PLANNER_SWEEP_INT_H

#include "planner/sweep.h"

/* A copy whose texts live in the arena. */
void mw_sweep_copy(struct mw_arena *arena, const struct mw_sweep_row *from,
                   struct mw_sweep_row *out);

#endif
