/*
 * A set of plans, predicted and measured: how large the errors are, and whether
 * the predictions order the plans as the measurements do.
 *
 *   error of a plan     predicted / measured - 1
 *   a pair counts       when both are plans of one scenario and the measured
 *                       times differ by more than 10 % of the smaller and by
 *                       more than three times the spread of their difference,
 *                       sqrt(s_a^2 + s_b^2), s the standard deviation of a
 *                       plan's measured steps
 *   ordered right       when the predicted times differ in the same direction
 *
 * Pairs of different scenarios are not counted: other work takes other time
 * whatever the layout, so they would flatter the rate.
 */
#ifndef MW_EXEC_COMPARE_SET_H
#define MW_EXEC_COMPARE_SET_H

#include "exec/compare/compare.h"

struct mw_set_plan {
    const char *name;     /* its file, without folder and ending */
    const char *scenario; /* name; pairs are made within it */
    const char *layout;   /* for people */
    int n_ranks;
    double predicted_s, measured_s;
    double spread_s; /* standard deviation of the measured steps */
    double wall_s;   /* measured step on the wall */
    struct mw_comparison comparison;
    struct mw_timeline simulated, measured;
};

struct mw_set_pair {
    int a, b; /* plans, the faster (measured) first */
    bool is_right;
};

/* Errors by kind of work, over all plans. */
struct mw_set_kind {
    double bias;  /* mean over plans of (simulated - measured) / step */
    double error; /* mean of its size */
    double share; /* mean of measured / step */
};

struct mw_set_score {
    int n_plans;
    double mean_error;   /* mean |error| */
    double median_error; /* of |error| */
    double bias;         /* mean error */
    int worst;           /* plan; -1: none */
    int n_past;          /* plans with |error| past MW_SET_PAST */
    int n_pairs, n_right;
    double order_rate; /* right / pairs; NaN without pairs */
    MW_ARRAY(struct mw_set_pair) wrong;
    struct mw_set_kind kind[MW_SPAN_KIND_COUNT];
};
/* What is asked of a set before its prediction counts as good. */
#define MW_SET_MEAN 0.08      /* mean |error| */
#define MW_SET_PAST 0.15      /* one plan in twenty may be past this */
#define MW_SET_PAST_RATE 0.05 /* that one */
#define MW_SET_ORDER 0.95     /* order rate */
#define MW_SET_APART 0.10     /* pairs differ by more than this to count */
#define MW_SET_SPREADS 3      /* and by so many spreads */

/* O(plans^2). Release with mw_set_score_release. */
void mw_set_score(const struct mw_set_plan *plans, int n,
                  struct mw_set_score *out);
void mw_set_score_release(struct mw_set_score *s);
double mw_set_plan_error(const struct mw_set_plan *p);
/* NULL when all that is asked holds, else what does not, into buf. */
enum { MW_SET_TEXT_MAX = 256 };
const char *mw_set_score_lacks(const struct mw_set_score *s,
                               char buf[MW_SET_TEXT_MAX]);

/* ---- results ---------------------------------------------------------------
 */
void mw_set_print(const struct mw_set_plan *plans, const struct mw_set_score *s,
                  FILE *f);
/*
 * plans[] of name, scenario, layout, ranks, predicted_s, measured_s, error,
 * spread_s, wall_s, by_kind{}, by_stage[], first_deviation; mean_error,
 * median_error, bias, worst, past, pairs, pairs_right, order_rate, wrong[] of
 * faster, slower; by_kind{KIND: {bias, error, share}}, clock. The caller's
 * reference.
 */
json_t *mw_set_json(const struct mw_set_plan *plans,
                    const struct mw_set_score *s);

#endif
