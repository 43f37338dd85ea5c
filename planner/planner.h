/*
 * Choosing a layout: enumerate, drop what breaks a rule or does not fit,
 * bound, simulate, rank; and say why the rest fell out.
 *
 *   space (space.c)      every combination of the free dimensions, each either
 *                        legal or dropped for a named rule
 *   filter (search.c)    memory of the fullest rank against the limit
 *   partition            layers per stage as an integer program (GLPK)
 *   bound                m x busiest stage + the way to it <= simulated time,
 *                        so a candidate whose bound exceeds the best simulated
 *                        time cannot be the best
 *   simulation           the event form, best estimate first, until every
 *                        candidate left is bounded away
 *
 * Results do not depend on the number of threads: candidates are simulated in
 * rounds of fixed size and ordered by (time, id).
 */
#ifndef MW_PLANNER_PLANNER_H
#define MW_PLANNER_PLANNER_H

#include "base/err.h"
#include "base/mem.h"
#include "sim/plan/plan.h"
#include "sim/step/step.h"

#include <stdbool.h>
#include <stdint.h>

enum { MW_PLAN_TEXT_MAX = 256, MW_REASONS_MAX = 48 };

/* What the caller fixes (0, NULL or -1: free) and how long it may take. */
struct mw_search_opts {
    int tp, pp, dp, micro_batch;
    int zero;             /* -1: 0 and 1 */
    int sp;               /* -1: with tp > 1 where the device is a GPU */
    int recompute;        /* enum mw_recompute, -1: all three */
    const char *schedule; /* NULL: 1f1b */
    int vpp;              /* 0: 1 */
    int jobs;             /* threads; 0: one per core */
    double time_limit_s;  /* 0: none */
    bool is_quiet;        /* no progress */
};
void mw_search_opts_default(struct mw_search_opts *opts);
/* Sets one option from --fix KEY=VALUE; MW_EUSAGE names the keys allowed. */
enum mw_status mw_search_fix(struct mw_search_opts *opts, const char *key,
                             const char *value, struct mw_err *err);

struct mw_candidate {
    struct mw_layout layout;
    int *layers;        /* [pp * vpp], in the result's arena */
    double estimate_s;  /* fast form */
    double bound_s;     /* no simulation of it can be faster */
    double step_time_s; /* event form, when is_simulated */
    double peak_bytes;
    double mfu;
    bool is_simulated;
    uint64_t id; /* place in the enumeration: breaks ties */
};

/* Why candidates fell out: one entry per rule, with the nearest miss. */
struct mw_reason {
    const char *rule; /* stable id: "tp_heads", "memory", "bound", ... */
    uint64_t count;
    double miss; /* how far the nearest was: needed / allowed; 0 unknown */
    char nearest[MW_PLAN_TEXT_MAX]; /* one sentence about it */
};

struct mw_search_result {
    struct mw_arena arena;
    uint64_t enumerated, evaluated, simulated;
    struct mw_reason reasons[MW_REASONS_MAX];
    int n_reasons;
    bool proved_optimal; /* best of all enumerated, under the event form */
    double wall_time_s;
    struct mw_candidate *plans; /* simulated ones, fastest first */
    size_t n_plans;
};

/*
 * Searches. MW_ENO (err gets the counts and the nearest miss) when nothing is
 * feasible; *out is filled all the same and must be released in either case.
 */
enum mw_status mw_search(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_search_opts *opts,
                         struct mw_search_result *out, struct mw_err *err);
void mw_search_result_release(struct mw_search_result *r);

/* The plan of a candidate with its predicted figures. Release with
 * mw_plan_release. */
enum mw_status mw_candidate_plan(const struct mw_scenario *scenario,
                                 const struct mw_candidate *candidate,
                                 struct mw_plan *out, struct mw_err *err);

/* ---- layers per stage -----------------------------------------------------
 */
/*
 * Integer program: n_k layers of stage k >= 1, sum n_k = n_layers,
 *   minimise max_k (n_k layer_s + extra_s[k])
 *   subject to n_k layer_bytes[k] + fixed_bytes[k] <= limit_bytes
 * (extra: embedding on the first, head and loss on the last stage). For
 * identical layers the 1F1B step is sum t + (m - 1) max t, and the sum is
 * constant, so the min-max partition is the fastest. Ties go to the partition
 * whose larger stages come first. Solved with GLPK; MW_ENO when memory allows
 * none, MW_EBACKEND when GLPK fails.
 */
struct mw_partition_problem {
    int n_stages, n_layers;
    double layer_s;
    const double *extra_s;     /* [n_stages] */
    const double *layer_bytes; /* [n_stages], NULL: no memory rows */
    const double *fixed_bytes; /* [n_stages] */
    double limit_bytes;
};
enum mw_status mw_partition_solve(const struct mw_partition_problem *problem,
                                  int *out_layers, struct mw_err *err);

#endif
