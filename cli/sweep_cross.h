/*
 * Where a sweep turns: points at which two series change places, and pairs of
 * neighbouring points between which the best layout of a series is another.
 */
#ifndef MW_CLI_SWEEP_CROSS_H
#define MW_CLI_SWEEP_CROSS_H

#include "cli/sweep_curves.h"

/* Two curves cross at (x, y), on the straight lines of the picture (log x,
 * linear y), between the points low and high of either. */
struct mw_sweep_cross {
    size_t above, below; /* series: the upper one before x, the lower one */
    double low, high, x, y;
};
struct mw_sweep_crosses {
    struct mw_sweep_cross *v;
    size_t n, cap;
};
/* Pairs of series in order, by increasing x. Curves that touch do not cross. */
void mw_sweep_cross_find(const struct mw_sweep_curves *curves,
                         struct mw_sweep_crosses *out);

/* Both in tokens per second and GPU: tables on stdout; "crossings" and
 * "layout_changes" of o; a CSV file, a row each. Nothing where the first axis
 * has no numbers. */
void mw_sweep_cross_print(const struct mw_sweep_rows *rows,
                          const struct mw_sweep_grid *grid,
                          const struct mw_sweep_money *money);
void mw_sweep_cross_json(const struct mw_sweep_rows *rows,
                         const struct mw_sweep_grid *grid,
                         const struct mw_sweep_money *money, json_t *o);
enum mw_status mw_sweep_cross_csv(const struct mw_sweep_rows *rows,
                                  const struct mw_sweep_grid *grid,
                                  const struct mw_sweep_money *money,
                                  const char *path, struct mw_err *err);

#endif
