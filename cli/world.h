/*
 * What a verb on a scenario works with: the database, the scenario, and the
 * prices of its cluster; opened and closed together.
 */
#ifndef MW_CLI_WORLD_H
#define MW_CLI_WORLD_H

#include "base/err.h"
#include "sim/cost/cost.h"
#include "sim/model/scenario.h"
#include "sim/plan/plan.h"

struct mw_cli_world {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
};

/* The database with the prices of its collectives (sim/coll/coll_library.h):
 * every verb that prices a step opens it here. */
enum mw_status mw_cli_hwdb(const char *overlay, struct mw_hwdb **out,
                           struct mw_err *err);
/* Loads both, or nothing. hwdb is the overlay folder or NULL. */
enum mw_status mw_cli_open(struct mw_cli_world *world, const char *hwdb,
                           const char *scenario, struct mw_err *err);
void mw_cli_close(struct mw_cli_world *world);

/*
 * Prices of the scenario's cluster under a training stack (NULL: that of
 * limits.framework, mw_stack_of_framework). An
 * unknown system is the scenario's mistake (MW_EINPUT, its file in front), an
 * unknown stack the caller's (MW_EUSAGE).
 */
enum mw_status mw_cli_prices(struct mw_cli_world *world, const char *stack,
                             struct mw_cost_ctx *out, struct mw_err *err);
/*
 * Cuts the racks as the plan says (NULL, or it says nothing: the scenario's
 * first choice; mw_cli_prices has done that), and looks whether the plan has as
 * many ranks as are left. No matter where the scenario has no choices.
 */
enum mw_status mw_cli_use_domains(struct mw_scenario *scenario,
                                  const struct mw_plan *plan,
                                  struct mw_cost_ctx *ctx, struct mw_err *err);

/* Sets the training stack of an option; an unknown name is MW_EUSAGE. */
enum mw_status mw_cli_set_stack(struct mw_cost_ctx *ctx, const char *stack,
                                struct mw_err *err);
/* Is there a stack of this name? MW_EUSAGE if not. */
enum mw_status mw_cli_check_stack(const char *name, struct mw_err *err);
/* Says on stderr which stack prices, where nobody asked for one. */
void mw_cli_say_stack(const struct mw_scenario *scenario, const char *asked,
                      const struct mw_cost_ctx *ctx, bool is_quiet);

#endif
