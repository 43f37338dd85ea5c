/*
 * GLPK as certifier of automatic schedules with one chunk per device: proves
 * that no order is better, or finds one, where the instance is small. The
 * combinatorial bound is a row of every program and the heuristic's schedule
 * its incumbent; without them the same programs find nothing in a minute.
 *
 *   time-indexed  starts per tick; refutes "objective <= T" by its LP alone
 *                 (makespan; times must be small multiples of one tick)
 *   weight        where the W passes go, F and B in a given order: no big-M
 *   disjunctive   order of every pair of passes of a stage, big-M; lazily: only
 *                 the pairs that a solution gets wrong
 *
 * Formulation of the disjunctive program: Qi et al., Zero Bubble Pipeline
 * Parallelism, ICLR 2024, appendix G.
 */
#ifndef MW_PLANNER_AUTO_EXACT_H
#define MW_PLANNER_AUTO_EXACT_H

#include "sim/pipe/auto.h"

/* Larger instances are not tried: stages x micro-batches. */
enum { MW_EXACT_CELLS_MAX = 64, MW_EXACT_WEIGHT_CELLS_MAX = 256 };

enum mw_exact_answer {
    MW_EXACT_UNDECIDED, /* too large, or out of time: says nothing */
    MW_EXACT_NO,        /* no such order exists: proved */
    MW_EXACT_YES        /* there is one */
};

struct mw_exact {
    mw_time value_ps;  /* of the best order known */
    mw_time bound_ps;  /* no order is below */
    bool is_proved;    /* the two meet */
    const char *by;    /* program that decided: "time-indexed" "weight" "lazy"
                          "disjunctive"; "bound": nothing was left to decide */
    bool has_schedule; /* a better order than the incumbent was found */
    struct mw_schedule schedule;
    int rounds;                  /* of adding pairs */
    int rows, columns, integers; /* of the last program */
};

/*
 * Tries to close the gap between the incumbent (a complete schedule of the
 * problem, for example mw_schedule_auto's) and its bound within time_limit_s.
 * MW_EUSAGE: not one chunk per device. Release with mw_exact_release.
 */
enum mw_status mw_exact_solve(const struct mw_auto_problem *problem,
                              const struct mw_schedule *incumbent,
                              double time_limit_s, struct mw_exact *out,
                              struct mw_err *err);
void mw_exact_release(struct mw_exact *exact);

/*
 * Is there an order with makespan <= target? By the time-indexed relaxation:
 * NO is a proof, YES is never answered (the relaxation may be fractional).
 */
enum mw_exact_answer mw_exact_refute(const struct mw_auto_problem *problem,
                                     mw_time target_ps, double time_limit_s);

/*
 * The disjunctive program. With is_lazy pairs are added as needed; use_hints
 * puts the combinatorial bound and the incumbent in. bound_ps and value_ps of
 * *out are the incumbent's on entry.
 */
struct mw_exact_opts {
    bool is_lazy, use_hints;
    double time_limit_s;
    const char *lp_file; /* write the full program in CPLEX LP form instead of
                            solving it; NULL: solve */
};
enum mw_status mw_exact_disjunctive(const struct mw_auto_problem *problem,
                                    const struct mw_schedule *incumbent,
                                    const struct mw_exact_opts *opts,
                                    struct mw_exact *out, struct mw_err *err);

/* W insertion into the incumbent's order of F and B. */
enum mw_status mw_exact_weight(const struct mw_auto_problem *problem,
                               const struct mw_schedule *incumbent,
                               double time_limit_s, struct mw_exact *out,
                               struct mw_err *err);

#endif
