/* Printing of searches, comparisons and changes, for people and as JSON;
 * shared by `plan` and `sweep`. */
#ifndef MW_CLI_PLAN_VIEW_H
#define MW_CLI_PLAN_VIEW_H

#include "base/json.h"
#include "planner/domains.h"
#include "planner/planner.h"
#include "planner/robust.h"
#include "planner/stage_options.h"
#include "planner/why.h"

/* The ways to cut the racks that were searched, as a table (is_shown) or as
 * `domains` of json (not NULL); nothing where there was no choice. */
void mw_plan_view_domains(const struct mw_domains *domains, json_t *json,
                          bool is_shown);
void mw_plan_view_print(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_result *r, size_t top);
json_t *mw_plan_view_json(const struct mw_scenario *scenario,
                          const struct mw_cost_ctx *ctx,
                          const struct mw_search_result *r);
/* Layout keys, layers and figures of one plan. */
json_t *mw_plan_view_candidate(const struct mw_candidate *c);

/* Term by term; `name` says what the other is. */
/* With a word on why the other is not the best, where it is faster: it does not
 * fit, or the search (is_proved) did not come to it. */
void mw_plan_view_why(const struct mw_comparison *c, const char *name,
                      double usable_bytes, bool is_proved);
json_t *mw_plan_view_why_json(const struct mw_comparison *c,
                              double usable_bytes);
json_t *mw_plan_view_reasons_json(const struct mw_search_result *r);

/* Times and ranks of the first n plans when network or compute differ, and
 * within the model's own error (plan_robust.c). */
void mw_plan_view_robust(const struct mw_cost_ctx *ctx,
                         const struct mw_robust_row *rows, size_t n);
json_t *mw_plan_view_robust_json(const struct mw_robust_row *rows, size_t n);
/* One line: how many of the plans cannot be told from the fastest. */
void mw_plan_view_tied(const struct mw_cost_ctx *ctx,
                       const struct mw_search_result *r);
/* Least step time of the result's plans. */
double mw_plan_view_fastest(const struct mw_search_result *r);
/* Null for NULL. */
json_t *mw_plan_view_error_json(const struct mw_model_error *error);

/* Layers and recomputation of each stage. */
void mw_plan_view_stages(const struct mw_stage_options *o);
json_t *mw_plan_view_stages_json(const struct mw_stage_options *o);

/* What would make it possible; says so when nothing was found. */
void mw_plan_view_changes(const struct mw_changes *changes, FILE *f);
json_t *mw_plan_view_changes_json(const struct mw_changes *changes);

#endif
