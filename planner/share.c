/* Jobs as stages, rows as columns: each job is one unit of work, so that the
 * row of layers becomes "every job has a row". */
#include "planner/share.h"

#include <string.h>

/* The longest job weighs as much as this many others. */
enum { WEIGHT_OF_LONGEST = 1000 };

static int job_of(const struct mw_sweep_rows *rows, size_t i, size_t *first,
                  int *n_jobs)
{
    for (int k = 0; k < *n_jobs; k++) {
        const struct mw_sweep_row *a = &rows->v[first[k]], *b = &rows->v[i];

        if (strcmp(a->scenario, b->scenario) == 0 &&
            strcmp(a->model, b->model) == 0) {
            return k;
        }
    }
    if (*n_jobs == MW_SHARE_JOBS_MAX) {
        return -1;
    }
    first[*n_jobs] = i;
    return (*n_jobs)++;
}

static int kind_of(const struct mw_share_budget *budget, int n,
                   const char *system)
{
    for (int k = 0; k < n; k++) {
        if (strcmp(budget[k].system, system) == 0) {
            return k;
        }
    }
    return -1;
}

static enum mw_status fill_columns(const struct mw_sweep_rows *rows,
                                   const struct mw_share_budget *budget,
                                   int n_budgets, double tokens,
                                   struct mw_column *column,
                                   struct mw_column_problem *p,
                                   struct mw_err *err)
{
    size_t first[MW_SHARE_JOBS_MAX];

    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *r = &rows->v[i];
        int job = job_of(rows, i, first, &p->n_stages);
        int kind = kind_of(budget, n_budgets, r->system);

        if (job < 0) {
            return mw_fail(err, MW_EUSAGE, "more than %d jobs",
                           MW_SHARE_JOBS_MAX);
        }
        if (kind < 0 || !r->is_feasible) {
            continue;
        }
        column[p->n_columns++] =
            (struct mw_column){.stage = job,
                               .time_s = tokens / r->tokens_per_s,
                               .n_layers = 1,
                               .kind = kind,
                               .n_devices = (int)r->gpus,
                               .tag = (int)i};
    }
    return MW_OK;
}

enum mw_status mw_share_choose(const struct mw_sweep_rows *rows,
                               const struct mw_share_budget *budget,
                               int n_budgets, double tokens,
                               struct mw_share *out, struct mw_err *err)
{
    struct mw_column *column = mw_calloc(rows->n + 1, sizeof *column);
    struct mw_column_problem p = {.n_kinds = n_budgets,
                                  .n_microbatches = 1 + WEIGHT_OF_LONGEST,
                                  .column = column};
    int chosen[MW_SHARE_JOBS_MAX];
    enum mw_status status = MW_OK;

    if (n_budgets < 1 || n_budgets > MW_COLUMN_KINDS_MAX) {
        status = mw_fail(err, MW_EUSAGE,
                         "1 to %d systems have a budget, not "
                         "%d",
                         MW_COLUMN_KINDS_MAX, n_budgets);
    }
    for (int k = 0; k < n_budgets && status == MW_OK; k++) {
        p.devices[k] = budget[k].n_gpus;
    }
    if (status == MW_OK) {
        status = fill_columns(rows, budget, n_budgets, tokens, column, &p, err);
    }
    p.n_layers = p.n_stages;
    if (status == MW_OK && p.n_columns == 0) {
        status = mw_fail(err, MW_ENO, "no row has a plan on these systems");
    }
    if (status == MW_OK) {
        struct mw_err why = {0};

        status = mw_columns_choose(&p, 0, NULL, chosen, &out->answer, &why);
        if (status == MW_ENO) {
            mw_fail(err, MW_ENO, "the GPUs are too few for all %d jobs at once",
                    p.n_stages);
        } else if (status != MW_OK && err) {
            *err = why;
        }
    }
    out->n_jobs = p.n_stages;
    for (int i = 0; i < p.n_stages && status == MW_OK; i++) {
        out->row[i] = (size_t)column[chosen[i]].tag;
    }
    mw_free(column);
    return status;
}
