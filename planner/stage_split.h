/*
 * Layers and recomputation per pipeline stage.
 *
 * A model is runs of alike layers (3 dense, 58 MoE, ...). Stage i takes the
 * next layers, at least one, and for each of them an option r of
 * recomputation: time t[r], activations a[r] of one micro-batch; i holds
 * in_flight[i] micro-batches of them. Multi-token prediction is a run of one
 * layer at the end: it then lies with the head (which is extra_s of the last
 * stage), or, where the last stage may be without layers, ahead of it.
 *
 *   t_i = extra_s[i] + sum over its layers of t[r]
 *   fixed_bytes[i] + sum (layer_bytes + in_flight[i] a[r]) <= limit_bytes
 *
 * Objective: the slowest stage, or the bound of 1F1B with m micro-batches
 *
 *   max_i ( sum_{k<i} (t_k + 2 c) + m t_i )
 *
 * whose optimum gives early stages more (they have no predecessors' time).
 *
 *   mw_stage_split_dp    exact: dynamic program over cuts
 *   mw_stage_split_ilp   GLPK, the same objective; counts of layers by stage,
 *                        run and option; written in seconds. Carries side
 * constraints that the program over cuts cannot; slow from about 40 layers on
 */
#ifndef MW_PLANNER_STAGE_SPLIT_H
#define MW_PLANNER_STAGE_SPLIT_H

#include "base/err.h"

#include <stdbool.h>

enum { MW_SPLIT_OPTIONS = 3, MW_SPLIT_RUNS_MAX = 4 };

struct mw_split_run {
    int n_layers;
    double time_s[MW_SPLIT_OPTIONS]; /* one micro-batch, all passes */
    double held_bytes[MW_SPLIT_OPTIONS];
    double layer_bytes; /* weights and states */
};
struct mw_split_problem {
    int n_runs;
    struct mw_split_run run[MW_SPLIT_RUNS_MAX];
    int n_stages;
    const double *extra_s;     /* [n_stages] embedding, head */
    const double *fixed_bytes; /* [n_stages] */
    const double *in_flight;   /* [n_stages] micro-batches held */
    double limit_bytes;
    bool may_end_bare;  /* the last stage may have no layers, the head alone */
    int n_microbatches; /* 0: minimise the slowest stage alone */
    double transfer_s;  /* c; with n_microbatches */
};
/* What one stage takes. */
struct mw_split_stage {
    int n[MW_SPLIT_RUNS_MAX][MW_SPLIT_OPTIONS];
    double time_s, bytes;
};
struct mw_split_answer {
    double value_s;
    double bound_s; /* nothing is better */
    bool is_proved; /* value equals bound */
    double gap;     /* value / bound - 1 */
    double solve_s; /* wall time */
};

/* out_stages has n_stages entries. MW_ENO when nothing fits. */
enum mw_status mw_stage_split_dp(const struct mw_split_problem *problem,
                                 struct mw_split_stage *out_stages,
                                 struct mw_split_answer *out,
                                 struct mw_err *err);
/*
 * time_limit_s 0: none. With a limit the best found so far comes with its
 * bound; MW_EBACKEND when there is none. lp_path (or NULL): the model is also
 * written there in CPLEX LP form.
 */
enum mw_status mw_stage_split_ilp(const struct mw_split_problem *problem,
                                  double time_limit_s, const char *lp_path,
                                  struct mw_split_stage *out_stages,
                                  struct mw_split_answer *out,
                                  struct mw_err *err);
/* Objective of given stages, by the definition above: for tests. */
double mw_stage_split_value(const struct mw_split_problem *problem,
                            const struct mw_split_stage *stages);

#endif
