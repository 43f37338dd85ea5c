/*
 * Several training jobs on one budget of GPUs: which point of its own sweep
 * each job takes.
 *
 * A row of a sweep is a priced column: so many GPUs of a system, so long for
 * the job's tokens. One row a job, no more GPUs of a system than there are;
 * what is minimised is 1001 x the longest job + the sum of the others,
 * in the threshold form of columns.h, so the answer is proved.
 */
#ifndef MW_PLANNER_SHARE_H
#define MW_PLANNER_SHARE_H

#include "planner/columns.h"
#include "planner/sweep.h"

struct mw_share_budget {
    char system[MW_SWEEP_TEXT_MAX];
    int n_gpus;
};
enum { MW_SHARE_JOBS_MAX = 64 };
struct mw_share {
    int n_jobs;
    size_t row[MW_SHARE_JOBS_MAX]; /* chosen, index into the rows */
    struct mw_column_answer answer;
};
/*
 * Rows of one scenario are one job (jobs in the order in which they first
 * appear); tokens is what each trains on. Rows of systems without a budget and
 * rows without a plan are left aside. MW_ENO when the budget is too small;
 * MW_EUSAGE for more jobs or systems than fit.
 */
enum mw_status mw_share_choose(const struct mw_sweep_rows *rows,
                               const struct mw_share_budget *budget,
                               int n_budgets, double tokens,
                               struct mw_share *out, struct mw_err *err);

#endif
