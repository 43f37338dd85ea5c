/* The frameworks' rules said again, without planner/rules.h. */
#ifndef MW_TESTS_RULES_AGAIN_H
#define MW_TESTS_RULES_AGAIN_H

#include "planner_world.h"

/* May the framework of the scenario's limits run a layout that is legal
 * everywhere? */
bool may_framework_run(const struct world *w, const struct mw_layout *l);

#endif
