/*
 * Does the ranking hold when the world is not quite as the tables say? The
 * finalists are simulated again with a slower or faster network, with ranks
 * that differ more in speed (one slow node), with a slower host; a plan whose
 * rank changes is marked.
 */
#ifndef MW_PLANNER_ROBUST_H
#define MW_PLANNER_ROBUST_H

#include "planner/planner.h"

enum { MW_ROBUST_CASES = 4, MW_ROBUST_PLANS_MAX = 64 };

struct mw_robust_case {
    const char *name; /* "network 10 % slower" */
    double net;       /* factor on the bandwidth between nodes */
    double spread;    /* added to the spread between ranks (cost.h) */
    double host;      /* factor on the host's time to issue work */
};
/* i-th case, i < MW_ROBUST_CASES. */
const struct mw_robust_case *mw_robust_case(int i);

struct mw_robust_row {
    double step_time_s[MW_ROBUST_CASES];
    int rank[MW_ROBUST_CASES]; /* from 1, among the plans compared */
    bool changes;              /* its rank, in any case */
};
/* Fills one row for each of the first n plans (at most MW_ROBUST_PLANS_MAX).
 * One step is simulated for each plan and case. */
enum mw_status mw_robust(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_candidate *plans, size_t n,
                         struct mw_robust_row *out, struct mw_err *err);

#endif
