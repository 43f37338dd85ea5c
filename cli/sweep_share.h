/* `sweep --share`: several jobs on one budget of GPUs. */
#ifndef MW_CLI_SWEEP_SHARE_H
#define MW_CLI_SWEEP_SHARE_H

#include "cli/cli.h"
#include "planner/portfolio.h"

/* "dgx-a100=128,dgx-h100=64" */
struct mw_sweep_share {
    struct mw_portfolio_budget budget[MW_COLUMN_KINDS_MAX];
    int n;
    /* Conditions of planner/portfolio.h. */
    double cap_usd;
    int max_kinds;
    bool by_cost;
    const char *lp;
};
enum mw_status mw_sweep_share_parse(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err);
/* --cap, --kinds, --minimise, --write-lp. */
enum mw_status mw_sweep_share_cap(const char *text, struct mw_sweep_share *out,
                                  struct mw_err *err);
enum mw_status mw_sweep_share_kinds(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err);
enum mw_status mw_sweep_share_minimise(const char *text,
                                       struct mw_sweep_share *out,
                                       struct mw_err *err);
/* Prints the choice for the rows' jobs; returns the exit status. hwdb is the
 * overlay or NULL, usd_per_gpu_hour 0: the database's lowest on-demand price of
 * each system, deadline_s 0: none. */
int mw_sweep_share_run(const struct mw_sweep_share *share,
                       const struct mw_sweep_rows *rows, double tokens,
                       double usd_per_gpu_hour, double deadline_s,
                       const char *hwdb, bool is_json);

#endif
