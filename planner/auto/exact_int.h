/* What the three programs share: the problem in ticks, GLPK rows, and turning a
 * solution into a schedule. */
#ifndef MW_PLANNER_AUTO_EXACT_INT_H
#define MW_PLANNER_AUTO_EXACT_INT_H

#include "planner/auto/exact.h"

#include <glpk.h>

enum { X_F, X_B, X_W, X_TYPES };

/* Durations as multiples of their greatest common divisor, memory in
 * activations. */
struct exact_problem {
    const struct mw_auto_problem *q;
    int p, m;
    mw_time tick_ps;
    double *d[X_TYPES]; /* [p] ticks */
    double comm;
    double *limit; /* [p] activations */
    double w_share;
    bool is_span;
};
void exact_problem_init(struct exact_problem *x,
                        const struct mw_auto_problem *q);
void exact_problem_release(struct exact_problem *x);
/* Earliest start of the first forward of a stage, in ticks. */
double exact_head(const struct exact_problem *x, int stage);
/* Most activations that stage i may hold. */
int exact_in_flight(const struct exact_problem *x, int stage);

/* A row: terms collected, then added with its bound. */
struct exact_row {
    int n;
    int *index;
    double *value;
};
void exact_row_init(struct exact_row *r, int cap);
void exact_row_release(struct exact_row *r);
void exact_row_add(struct exact_row *r, int column, double value);
/* sum >= low, or <= high; clears the row. */
void exact_row_low(glp_prob *lp, struct exact_row *r, double low);
void exact_row_high(glp_prob *lp, struct exact_row *r, double high);

/* Wall-clock seconds, for time limits. */
double exact_now(void);

/* End of every pass of the incumbent in ticks: end[(stage * m + j) * 3 + type].
 * False when it is not a schedule of the problem. */
bool exact_ends(const struct exact_problem *x, const struct mw_schedule *s,
                double *end);
/* The schedule that runs the passes of every stage by end time. */
enum mw_status exact_schedule(const struct exact_problem *x, const double *end,
                              struct mw_schedule *out, struct mw_err *err);
/* Objective of a schedule, or -1 when it is wrong or holds too much. */
mw_time exact_value(const struct exact_problem *x, const struct mw_schedule *s);
/* Adopts the passes' ends as schedule when it beats out->value_ps. */
void exact_adopt(const struct exact_problem *x, const double *end,
                 const char *by, struct mw_exact *out);

#endif
