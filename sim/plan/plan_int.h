/* Private to sim/plan. */
#ifndef MW_SIM_PLAN_PLAN_INT_H
#define MW_SIM_PLAN_PLAN_INT_H

#include "sim/plan/plan.h"

enum { MW_PLAN_FORMAT = 1 };

/* The way from the folder of file `from` to file `to`, both relative to the
 * working folder or absolute; by text alone (links are not followed). In the
 * arena. */
const char *mw_plan_path_relative(struct mw_arena *arena, const char *from,
                                  const char *to);
/* `path`, written in file `from`, as seen from the working folder. */
const char *mw_plan_path_resolve(struct mw_arena *arena, const char *from,
                                 const char *path);

/* Copies a layout with its strings into the arena. */
/* Has each virtual stage the layers that stage_recompute_layers asks for? */
enum mw_status mw_plan_check_recomputed(const struct mw_plan *plan,
                                        struct mw_err *err);
struct mw_layout mw_plan_copy_layout(struct mw_arena *arena,
                                     const struct mw_layout *layout);
/* Makes plan->schedule by the name in plan->layout. */
enum mw_status mw_plan_make_schedule(struct mw_plan *plan, struct mw_err *err);

#endif
