/* The choice of `sweep --share`, as a table or JSON. */
#include "cli/sweep_share.h"

#include "base/table.h"
#include "base/units.h"
#include "hwdb/hwdb.h"
#include "planner/portfolio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_system(const struct mw_sweep_share *s, const char *system)
{
    for (int k = 0; k < s->n; k++) {
        if (strcmp(s->budget[k].system, system) == 0) {
            return true;
        }
    }
    return false;
}

enum mw_status mw_sweep_share_parse(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status =
        mw_cli_pairs_like("--share", "dgx-h100=512", text, pairs, &n, err);

    out->n = 0;
    for (int i = 0; i < n && status == MW_OK; i++) {
        long long gpus = 0;

        if (has_system(out, pairs[i].key)) {
            return mw_fail(err, MW_EUSAGE, "--share: %s is given twice",
                           pairs[i].key);
        }
        if (out->n == MW_COLUMN_KINDS_MAX) {
            return mw_fail(err, MW_EUSAGE, "--share: more than %d systems",
                           MW_COLUMN_KINDS_MAX);
        }
        status = mw_cli_int("--share", pairs[i].value, 0, 1 << 24, &gpus, err);
        snprintf(out->budget[out->n].system, MW_SWEEP_TEXT_MAX, "%s",
                 pairs[i].key);
        out->budget[out->n++].n_gpus = (int)gpus;
    }
    return status;
}

enum mw_status mw_sweep_share_cap(const char *text, struct mw_sweep_share *out,
                                  struct mw_err *err)
{
    if (mw_double_parse(text, &out->cap_usd, NULL) == MW_OK &&
        out->cap_usd > 0) {
        return MW_OK;
    }
    return mw_fail(err, MW_EUSAGE, "--cap: '%s' is no sum of dollars", text);
}

enum mw_status mw_sweep_share_kinds(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err)
{
    long long kinds = 0;
    enum mw_status status =
        mw_cli_int("--kinds", text, 1, MW_COLUMN_KINDS_MAX, &kinds, err);

    out->max_kinds = (int)kinds;
    return status;
}

enum mw_status mw_sweep_share_minimise(const char *text,
                                       struct mw_sweep_share *out,
                                       struct mw_err *err)
{
    out->by_cost = strcmp(text, "cost") == 0;
    return out->by_cost || strcmp(text, "time") == 0
               ? MW_OK
               : mw_fail(err, MW_EUSAGE,
                         "--minimise: '%s' is neither time nor cost", text);
}

static void print_choice(const struct mw_portfolio *share,
                         const struct mw_sweep_rows *rows, double tokens,
                         bool is_by_end)
{
    struct mw_table *t = mw_table_new();
    static const char *const names[] = {"job",  "model",     "system",
                                        "GPUs", "step time", "days"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i == 0 || i > 2);
    }
    for (int i = 0; i < share->n_jobs; i++) {
        const struct mw_sweep_row *r = &rows->v[share->row[i]];
        char time[MW_FMT_MAX];

        mw_table_row(t);
        mw_table_cell(t, "%d", i + 1);
        mw_table_cell(t, "%s", r->model);
        mw_table_cell(t, "%s", r->system);
        mw_table_cell(t, "%lld", (long long)r->gpus);
        mw_table_cell(t, "%s", mw_fmt_seconds(r->step_time_s, time));
        mw_table_cell(t, "%.2f", tokens / r->tokens_per_s / 86400);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("The last job ends after %.2f days%s%s.\n", share->longest_s / 86400,
           is_by_end ? "; " : "",
           !is_by_end         ? ""
           : share->is_proved ? "proved least"
                              : "not proved");
}

static json_t *choice_json(const struct mw_portfolio *share,
                           const struct mw_sweep_rows *rows, double tokens)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_real(o, "longest_s", share->longest_s);
    mw_json_set_bool(o, "proved_optimal", share->is_proved);
    for (int i = 0; i < share->n_jobs; i++) {
        const struct mw_sweep_row *r = &rows->v[share->row[i]];
        json_t *job = json_object();

        mw_json_set_str(job, "model", r->model);
        mw_json_set_str(job, "system", r->system);
        mw_json_set_int(job, "gpus", r->gpus);
        mw_json_set_real(job, "step_time_s", r->step_time_s);
        mw_json_set_real(job, "train_s", tokens / r->tokens_per_s);
        json_array_append_new(list, job);
    }
    mw_json_set(o, "jobs", list);
    return o;
}

/* The lowest on-demand price of each system's device; NaN: none. */
static enum mw_status find_prices(const struct mw_sweep_share *s,
                                  double given_usd, const char *hwdb,
                                  double *out, struct mw_err *err)
{
    struct mw_hwdb *db = NULL;
    enum mw_status status = mw_hwdb_load(hwdb, &db, err);

    for (int k = 0; k < s->n && status == MW_OK; k++) {
        const struct mw_system *system;
        double high;

        out[k] = given_usd > 0 ? given_usd : (double)NAN;
        if (!(given_usd > 0) &&
            mw_hwdb_system(db, s->budget[k].system, &system, NULL) == MW_OK &&
            !mw_hwdb_price(db, system->gpu->slug, "on-demand", &out[k],
                           &high)) {
            out[k] = (double)NAN;
        }
    }
    mw_hwdb_free(db);
    return status;
}

static void add_money(json_t *o, const struct mw_portfolio *found)
{
    if (isnan(found->usd)) {
        mw_json_set(o, "usd", json_null());
    } else {
        mw_json_set_real(o, "usd", found->usd);
    }
    mw_json_set_int(o, "kinds", found->n_kinds);
    mw_json_set_int(o, "ilps", found->n_ilps);
}

int mw_sweep_share_run(const struct mw_sweep_share *s,
                       const struct mw_sweep_rows *rows, double tokens,
                       double usd_per_gpu_hour, double deadline_s,
                       const char *hwdb, bool is_json)
{
    double prices[MW_COLUMN_KINDS_MAX];
    struct mw_err err = {0};
    struct mw_portfolio found;
    const struct mw_portfolio_problem p = {.rows = rows,
                                           .tokens = tokens,
                                           .budget = s->budget,
                                           .usd_per_gpu_hour = prices,
                                           .n_budgets = s->n,
                                           .cap_usd = s->cap_usd,
                                           .deadline_s = deadline_s,
                                           .max_kinds = s->max_kinds,
                                           .by_cost = s->by_cost};
    enum mw_status status =
        find_prices(s, usd_per_gpu_hour, hwdb, prices, &err);

    if (status == MW_OK) {
        status = mw_portfolio_choose(&p, s->lp, &found, &err);
    }
    if (status != MW_OK) {
        return mw_cli_fail(&err);
    }
    if (is_json) {
        json_t *o = choice_json(&found, rows, tokens);

        add_money(o, &found);
        return mw_cli_print_json(o);
    }
    print_choice(&found, rows, tokens, !s->by_cost);
    if (!isnan(found.usd)) {
        printf("All jobs together cost %.4g US dollars%s.\n", found.usd,
               s->by_cost ? ", proved least" : "");
    }
    return 0;
}
