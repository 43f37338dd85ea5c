/*
 * Automatic zero-bubble schedules: given times (stages may differ) and a memory
 * limit, an order of F, B and W passes, a lower bound for every order, and
 * whether the two meet. One chunk a device, or two in a V.
 *
 * How it works: docs/schedules.md. Everything is counted in passes, not in
 * wall-clock time, so the same input gives the same order on every machine.
 *
 * Source of the problem and of the objective `span`: Qi et al., Zero Bubble
 * Pipeline Parallelism, ICLR 2024, and their auto_schedule.py.
 */
#ifndef MW_SIM_PIPE_AUTO_H
#define MW_SIM_PIPE_AUTO_H

#include "sim/pipe/schedule.h"

enum mw_pipe_objective {
    MW_OBJECTIVE_MAKESPAN, /* first start to last end */
    MW_OBJECTIVE_SPAN      /* longest of first start to last end per stage: what
                              counts when the optimizer step is staggered and
                              validated afterwards */
};

struct mw_auto_problem {
    int n_stages, n_microbatches;
    int n_chunks; /* 1, or 2 (up to 8, even): V placement */
    /* [n_stages * n_chunks], not negative; F and B positive. */
    const mw_time *f_ps, *b_ps, *w_ps;
    mw_time comm_ps; /* between different devices */
    /* Part of an activation that only W frees; B frees the rest. 1: all at W.
     */
    double w_share;
    /* Activations of one micro-batch on one stage (all its chunks together)
     * that a device can hold; 0: no limit. stage_limit [n_stages] overrides. */
    double memory_limit;
    const double *stage_limit;
    enum mw_pipe_objective objective;
    bool is_fused; /* no split: B and W run as one pass */
    /* Local search: passes evaluated, in millions; 0: the default (60). -1: no
     * local search. None either where fewer than 4000 orders could be tried. */
    double effort;
};

struct mw_auto_result {
    struct mw_schedule schedule;
    mw_time value_ps;     /* of the objective */
    mw_time bound_ps;     /* no order does better */
    bool is_proved;       /* value == bound */
    const char *bound_by; /* which bound: "tail-head" "pair" "head-chain" ... */
    const char *found_by; /* "greedy" "list" "insertion" "local search" */
    double effort;        /* passes evaluated, in millions */
};

/*
 * MW_EUSAGE: a precondition fails; the memory limit is below the minimum (the
 * message says the minimum). Release result->schedule.
 */
enum mw_status mw_schedule_auto(const struct mw_auto_problem *problem,
                                struct mw_auto_result *out, struct mw_err *err);

/* The bound alone, in O(p^2 + p m): ps. */
enum mw_status mw_schedule_bound(const struct mw_auto_problem *problem,
                                 mw_time *out_ps, const char **out_by,
                                 struct mw_err *err);

/* The authors' ratio W / (B + W) of activation memory for a GPT layer without
 * fused attention: 32 h / (34 h + 5 a s), here at head size 128, s = 1024. */
#define MW_W_SHARE_PAPER (32.0 / 74.0)

#endif
