/* `sweep --share`: several jobs on one budget of GPUs. */
#ifndef MW_CLI_SWEEP_SHARE_H
#define MW_CLI_SWEEP_SHARE_H

#include "cli/cli.h"
#include "planner/share.h"

/* "dgx-a100=128,dgx-h100=64" */
struct mw_sweep_share {
    struct mw_share_budget budget[MW_COLUMN_KINDS_MAX];
    int n;
};
enum mw_status mw_sweep_share_parse(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err);
/* Prints the choice for the rows' jobs; returns the exit status. */
int mw_sweep_share_run(const struct mw_sweep_share *share,
                       const struct mw_sweep_rows *rows, double tokens,
                       bool is_json);

#endif
