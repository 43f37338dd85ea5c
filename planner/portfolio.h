/*
 * Several training jobs on one budget of GPUs: which point of its own sweep
 * each takes; and where asked for under conditions that couple them: a cap on
 * the money of all, at most so many kinds of system, an end in time. One
 * integer program over priced columns: a row of a job's sweep is a column, the
 * best layout of that system and number of nodes, proved by its own search
 * (within a column no other layout could serve a condition better: all of them
 * ask for time, GPUs and money, and these go with the layout's time alone).
 *
 *   sum_c x_jc = 1                   one column for each job
 *   sum gpus x <= G_k y_k            GPUs of a system, if it is used at all
 *   sum y_k <= kinds                 sum usd x <= cap
 *   t x = 0 where t > T              the threshold
 *
 * Minimised is the end of the last job, then the sum of the jobs' times: the
 * least T under which there is a choice is found by halving the sorted times of
 * the columns (a larger T only allows more), then the sum under it. Or the
 * money of all, with T the time allowed.
 */
#ifndef MW_PLANNER_PORTFOLIO_H
#define MW_PLANNER_PORTFOLIO_H

#include "planner/columns.h"
#include "planner/sweep.h"

enum { MW_PORTFOLIO_JOBS_MAX = 64 };
/* GPUs of a system for all jobs together. */
struct mw_portfolio_budget {
    char system[MW_SWEEP_TEXT_MAX];
    int n_gpus;
};

struct mw_portfolio_problem {
    const struct mw_sweep_rows *rows; /* of one scenario each: a job */
    double tokens;                    /* that each job trains on */
    const struct mw_portfolio_budget *budget;
    const double *usd_per_gpu_hour; /* [n_budgets]; NaN, or NULL: no price */
    int n_budgets;
    double cap_usd;    /* of all jobs together; 0: none */
    double deadline_s; /* 0: none */
    int max_kinds;     /* 0: any */
    bool by_cost;      /* minimise the money, not the end */
};
struct mw_portfolio {
    int n_jobs;
    size_t row[MW_PORTFOLIO_JOBS_MAX]; /* chosen, index into the rows */
    double longest_s, sum_s, usd;      /* usd NaN: no price */
    int n_kinds, n_ilps;
    bool is_proved;
};
/*
 * Rows of one scenario are one job (jobs in the order in which they first
 * appear). Rows of systems without a budget and rows without a plan are left
 * aside. MW_ENO when no choice meets the conditions, MW_EUSAGE for more jobs or
 * systems than fit or money without prices, MW_EBACKEND when GLPK fails.
 * lp_path (or NULL): the program with T a variable (its value is the end of the
 * last job in seconds, or the money) in CPLEX LP form.
 */
enum mw_status mw_portfolio_choose(const struct mw_portfolio_problem *problem,
                                   const char *lp_path,
                                   struct mw_portfolio *out,
                                   struct mw_err *err);

#endif
