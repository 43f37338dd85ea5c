/* Private to the program of columns: its state and its GLPK model. */
#ifndef MW_PLANNER_COLUMNS_INT_H
#define MW_PLANNER_COLUMNS_INT_H

#include "planner/columns.h"

#include <glpk.h>
#include <stdint.h>

struct mw_column_solver {
    const struct mw_column_problem *p;
    int *kept; /* indices of columns, by (stage, time) */
    int n_kept;
    double *threshold; /* distinct times, ascending */
    int n_thresholds;
    double *after; /* distinct after_s, ascending */
    int n_after;
    glp_prob *lp;
    double unit_s;
    double best;
    bool is_found;  /* a choice of that value, not only one to beat */
    int *best_kept; /* [n_stages] */
    bool is_out[MW_COLUMN_KINDS_MAX]; /* kinds that are not to be used */
    double least_open;                /* bound of what was left undecided */
    double limit_s;
    int64_t start_ns;
    struct mw_column_answer *out;
    enum mw_status status;
};

/* Are there places to keep, fewer kinds than given? */
bool mw_columns_have_places(const struct mw_column_problem *p);
bool mw_columns_have_uses(const struct mw_column_problem *p);
/* Makes s->lp of the kept columns, all of them allowed. */
void mw_columns_build(struct mw_column_solver *s);
/* The direct form, for another solver: T is a variable, in seconds. */
enum mw_status mw_columns_write_direct(const struct mw_column_solver *s,
                                       const char *path, struct mw_err *err);

#endif
