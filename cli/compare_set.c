/* `meshwright compare --set DIR`: see compare_set.h. */
#include "cli/compare_set.h"

#include <stdio.h>

static enum mw_status judge(const struct mw_compare_set_args *a,
                            const struct mw_set_score *score,
                            struct mw_err *err)
{
    char lacks[MW_SET_TEXT_MAX];
    if (a->max_error >= 0 && !(score->mean_error <= a->max_error)) {
        return mw_fail(err, MW_ENO, "the mean error of %.1f %% is past %.1f %%",
                       100 * score->mean_error, 100 * a->max_error);
    }
    if (a->is_checked && mw_set_score_lacks(score, lacks) != NULL) {
        return mw_fail(err, MW_ENO, "%s", lacks);
    }
    return MW_OK;
}

static enum mw_status show(const struct mw_compare_set_args *a,
                           const struct mw_cli *cli, struct mw_set *set,
                           const struct mw_set_score *score, struct mw_err *err)
{
    enum mw_status status = MW_OK;
    if (!cli->json) {
        mw_set_print(set->plans, score, stdout);
    } else if (mw_cli_print_json(mw_set_json(set->plans, score)) != 0) {
        status = mw_fail(err, MW_EFAILED, "cannot write to stdout");
    }
    if (status == MW_OK && a->html != NULL) {
        status = mw_set_page(set, score, a->html, err);
    }
    return status == MW_OK ? judge(a, score, err) : status;
}

enum mw_status mw_compare_set_run(const struct mw_compare_set_args *a,
                                  const struct mw_cli *cli, struct mw_err *err)
{
    struct mw_set_opts opts = a->opts;
    struct mw_set set;
    opts.hwdb = cli->hwdb;
    opts.is_quiet = cli->quiet;
    enum mw_status status = mw_set_run(&opts, &set, err);
    if (status == MW_OK) {
        struct mw_set_score score;
        mw_set_score(set.plans, set.n, &score);
        status = show(a, cli, &set, &score, err);
        mw_set_score_release(&score);
        mw_set_release(&set);
    }
    return status;
}
