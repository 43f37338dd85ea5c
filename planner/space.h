/*
 * The space of layouts: enumeration and the first, cheap reasons against a
 * candidate. Private to planner/.
 */
#ifndef MW_PLANNER_SPACE_H
#define MW_PLANNER_SPACE_H

#include "planner/planner.h"

struct mw_candidates {
    struct mw_candidate *v;
    size_t n, cap;
};

/*
 * Appends every legal layout to out (in a fixed order) and counts the others
 * by rule in result. result->enumerated is their sum.
 */
void mw_space_enumerate(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_opts *opts,
                        struct mw_search_result *result,
                        struct mw_candidates *out);

/*
 * Counts one candidate under a rule. miss is needed / allowed (0: unknown);
 * the text of the smallest miss, or else of the first candidate, is kept.
 */
void mw_reason_add(struct mw_search_result *result, const char *rule,
                   double miss, const char *text);

/* "tp 8, pp 4, dp 2, micro-batch 1": for messages; buf is returned. */
const char *mw_layout_text(const struct mw_layout *layout,
                           char buf[MW_PLAN_TEXT_MAX]);

#endif
