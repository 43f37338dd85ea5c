/*
 * Does the ranking hold when the world is not quite as the tables say? The
 * finalists are simulated again with a slower or faster network, with ranks
 * that differ more in speed, with one slow node, with a slower host; a plan
 * whose rank changes is marked. And the error of the model itself: which
 * finalists are so near to the best that measurements could rank them the other
 * way.
 */
#ifndef MW_PLANNER_ROBUST_H
#define MW_PLANNER_ROBUST_H

#include "planner/planner.h"

enum { MW_ROBUST_CASES = 5, MW_ROBUST_PLANS_MAX = 64 };

struct mw_robust_case {
    const char *name; /* "network 10 % slower" */
    double net;       /* factor on the bandwidth between nodes */
    double spread;    /* added to the spread between ranks (cost.h) */
    double host;      /* factor on the host's time to issue work */
    double node;      /* factor on the passes of one node, the one that costs
                         most */
};
/* i-th case, i < MW_ROBUST_CASES. */
const struct mw_robust_case *mw_robust_case(int i);

struct mw_robust_row {
    double step_time_s[MW_ROBUST_CASES];
    int rank[MW_ROBUST_CASES]; /* from 1, among the plans compared */
    bool changes;              /* its rank, in any case */
    /* The best and worst of its ranks among the plans compared when each time
     * is off by as much as the model's p90 error, either way; without a known
     * error both are the rank by time, the last among equals. */
    int first_rank, last_rank;
    bool is_tied; /* with the fastest: see mw_robust_is_tied */
};
/* The error that plans priced by ctx must be allowed: the database's, of stack
 * and device. NULL on a CPU (our executor has its own comparison) and where the
 * table knows none. */
const struct mw_model_error *mw_robust_error(const struct mw_cost_ctx *ctx);
/* Is the time within the p90 error of the best, step / best - 1 <= p90? Such
 * plans cannot be told apart by prediction. false where error is NULL. */
bool mw_robust_is_tied(const struct mw_model_error *error, double step_time_s,
                       double best_s);
/* Fills first_rank, last_rank and is_tied of n rows; error may be NULL. */
void mw_robust_rank(const struct mw_model_error *error,
                    const struct mw_candidate *plans, size_t n,
                    struct mw_robust_row *rows);
/* Fills one row for each of the first n plans (at most MW_ROBUST_PLANS_MAX).
 * One step is simulated for each plan and case. */
enum mw_status mw_robust(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_candidate *plans, size_t n,
                         struct mw_robust_row *out, struct mw_err *err);

#endif
