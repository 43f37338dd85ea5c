/* A sweep as curves: a series for each value of the axes behind the first. */
#ifndef MW_CLI_SWEEP_CURVES_H
#define MW_CLI_SWEEP_CURVES_H

#include "cli/sweep_view.h"
#include "plots/plot.h"

enum { MW_SWEEP_SERIES_MAX = 32 };

struct mw_sweep_curves {
    struct mw_plot_series series[MW_SWEEP_SERIES_MAX];
    char label[MW_SWEEP_SERIES_MAX][128];
    size_t *row[MW_SWEEP_SERIES_MAX]; /* of each point */
    size_t n;                         /* series */
    double *numbers;                  /* what they point to */
    size_t *rows;
};
/* Has the first axis numbers? */
bool mw_sweep_has_numbers(const struct mw_sweep_grid *grid);
/* "GPUs", "sequence length": what the first axis counts. */
const char *mw_sweep_axis_label(const struct mw_sweep_grid *grid);
/* Points with a plan, by increasing x. Release with mw_sweep_curves_release. */
void mw_sweep_curves_make(const struct mw_sweep_rows *rows,
                          const struct mw_sweep_grid *grid,
                          const struct mw_sweep_money *money,
                          enum mw_sweep_curve curve,
                          struct mw_sweep_curves *out);
void mw_sweep_curves_release(struct mw_sweep_curves *curves);

#endif
