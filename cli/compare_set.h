/* `compare --set`: a whole set of plans, run and compared. */
#ifndef MW_CLI_COMPARE_SET_H
#define MW_CLI_COMPARE_SET_H

#include "cli/cli.h"
#include "exec/compare/set_run.h"

struct mw_compare_set_args {
    struct mw_set_opts opts; /* dir NULL: two timelines are compared instead */
    const char *html;
    bool is_checked;
    double max_error; /* of the mean; negative: none */
};

enum mw_status mw_compare_set_run(const struct mw_compare_set_args *a,
                                  const struct mw_cli *cli, struct mw_err *err);

#endif
