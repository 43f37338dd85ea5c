/* Sweeps shown: a table, JSON, curves. */
#ifndef MW_CLI_SWEEP_VIEW_H
#define MW_CLI_SWEEP_VIEW_H

#include "base/json.h"
#include "planner/sweep.h"

/* What a sweep's curves show. */
enum mw_sweep_curve {
    MW_CURVE_RATE,       /* tokens per second and GPU */
    MW_CURVE_EFFICIENCY, /* the same over that of the series' fewest GPUs */
    MW_CURVE_DAYS,       /* to train on the tokens */
    MW_CURVE_COST        /* of that, dollars */
};
/* "rate", "efficiency", "days", "cost". */
extern const struct mw_enum mw_sweep_curve_enums[];

/* What a training run would take; 0: not asked. */
struct mw_sweep_money {
    double tokens;
    double usd_per_gpu_hour;
    double within_s; /* the run must end by then */
};

/* A row's value on an axis: a text of the row's, or buf. */
const char *mw_sweep_value_text(const struct mw_sweep_row *row,
                                enum mw_sweep_key key, char buf[32]);
/* Have two rows the same values on every axis but the first? */
bool mw_sweep_same_series(const struct mw_sweep_grid *grid,
                          const struct mw_sweep_row *a,
                          const struct mw_sweep_row *b);

void mw_sweep_view_print(const struct mw_sweep_rows *rows,
                         const struct mw_sweep_grid *grid,
                         const struct mw_sweep_money *money);
/* Also the fewest GPUs that end in time, with money->within_s. */
json_t *mw_sweep_view_json(const struct mw_sweep_rows *rows,
                           const struct mw_sweep_grid *grid,
                           const struct mw_sweep_money *money);
/* The curve over the first axis that has numbers; one series for each value of
 * the others. MW_EUSAGE without such an axis. Days need money's tokens, cost
 * its price too. */
enum mw_status mw_sweep_view_plot(const struct mw_sweep_rows *rows,
                                  const struct mw_sweep_grid *grid,
                                  const struct mw_sweep_money *money,
                                  enum mw_sweep_curve curve, const char *title,
                                  const char *path, struct mw_err *err);

#endif
