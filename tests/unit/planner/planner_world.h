/* A scenario of scenarios/ with its database and pricing, for the planner's
 * tests; random layouts of it. */
#ifndef MW_TESTS_PLANNER_WORLD_H
#define MW_TESTS_PLANNER_WORLD_H

#include "mw_test.h"

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

struct world {
    struct mw_hwdb *db;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
};

/* n_nodes 0: the scenario's. */
void open_world(struct world *w, const char *file, int n_nodes);
/* A scenario given as text. */
void parse_world(struct world *w, const char *text);
/* Another scenario on the same database. */
void reparse_world(struct world *w, const char *text);
void close_world(struct world *w);

/* Draws until a layout is legal; schedules are drawn among kinds that can be
 * made for it. false after too many tries. */
bool draw_layout(const struct world *w, uint64_t seed, struct mw_layout *out);

#endif
