/* Printing of searches, comparisons and changes, for people and as JSON;
 * shared by `plan` and `sweep`. */
#ifndef MW_CLI_PLAN_VIEW_H
#define MW_CLI_PLAN_VIEW_H

#include "base/json.h"
#include "planner/planner.h"
#include "planner/why.h"

void mw_plan_view_print(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_result *r, size_t top);
json_t *mw_plan_view_json(const struct mw_search_result *r);
/* Layout keys, layers and figures of one plan. */
json_t *mw_plan_view_candidate(const struct mw_candidate *c);

/* Term by term; `name` says what the other is. */
void mw_plan_view_why(const struct mw_comparison *c, const char *name);
json_t *mw_plan_view_why_json(const struct mw_comparison *c);

/* What would make it possible; says so when nothing was found. */
void mw_plan_view_changes(const struct mw_changes *changes, FILE *f);
json_t *mw_plan_view_changes_json(const struct mw_changes *changes);

#endif
