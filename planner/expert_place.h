/*
 * Placement of expert replicas against a load histogram: how many copies of
 * each expert, and which rank of the expert-parallel group holds which, so that
 * the busiest rank has the least to do. A copy of expert e takes load_e / r_e.
 *
 *   minimise T
 *   sum_k y_ek = 1                one count k of copies for each expert
 *   sum_r x_ekr = k y_ek          so many copies, at most one a rank
 *   sum_ek x_ekr <= slots         room on each rank
 *   sum_ek load_e / k x_ekr <= T
 *
 * Without a solver: copies go one by one to the expert with the largest share
 * (DeepSeek-AI, arXiv:2412.19437, section 3.4.1, places redundant experts so),
 * which minimises the largest share; shares are then packed longest first onto
 * the least loaded rank with room (Graham, SIAM J. Appl. Math. 17, 1969), and
 * pairs of copies change places as long as the busiest rank gains.
 *
 * Bound: no rank has less than the mean, and some rank holds a copy as large as
 * the largest share that the copies allow.
 */
#ifndef MW_PLANNER_EXPERT_PLACE_H
#define MW_PLANNER_EXPERT_PLACE_H

#include "base/err.h"

#include <stdbool.h>

struct mw_expert_problem {
    int n_experts;
    const double *load; /* [n_experts], in any unit, not negative */
    int n_ranks;
    int n_slots; /* experts that a rank holds; ranks x slots >= experts */
};
struct mw_expert_answer {
    double worst;   /* load of the busiest rank */
    double mean;    /* load of a rank, were all alike */
    double bound;   /* no placement has a busiest rank below */
    bool is_proved; /* worst is the least (to 1e-9) */
    double solve_s; /* of GLPK */
};
/*
 * out_slot[n_ranks * n_slots] gets the expert of each slot, rank by rank, -1
 * for an empty one. MW_EUSAGE when the experts have no room or nothing is
 * loaded.
 */
enum mw_status mw_experts_pack(const struct mw_expert_problem *problem,
                               int *out_slot, struct mw_expert_answer *out,
                               struct mw_err *err);
/*
 * The program above with GLPK, started from out_slot as mw_experts_pack leaves
 * it (out too), for at most time_limit_s (0: 5 s); keeps the better one and
 * raises the bound. lp_path (or NULL): the program in CPLEX LP form.
 * MW_EBACKEND when GLPK fails.
 */
enum mw_status mw_experts_solve(const struct mw_expert_problem *problem,
                                double time_limit_s, const char *lp_path,
                                int *out_slot, struct mw_expert_answer *out,
                                struct mw_err *err);
/* Load of the busiest rank of a placement by the definition; HUGE_VAL when an
 * expert has no slot, or two on one rank. */
double mw_experts_worst(const struct mw_expert_problem *problem,
                        const int *slot);

#endif
