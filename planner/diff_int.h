/* Inside of diff: parts in files of their own. */
#ifndef MW_PLANNER_DIFF_INT_H
#define MW_PLANNER_DIFF_INT_H

#include "planner/diff.h"

/* (b - a) / ln(b / a) of positive numbers; a when they are equal. */
double mw_log_mean(double a, double b);

/* Fills out->setting with every key whose two values differ. */
void mw_diff_settings(const struct mw_diff_side *a,
                      const struct mw_diff_side *b, struct mw_diff *out);

#endif
