/* The choice of `sweep --share`, as a table or JSON. */
#include "cli/sweep_share.h"

#include "base/table.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum mw_status mw_sweep_share_parse(const char *text,
                                    struct mw_sweep_share *out,
                                    struct mw_err *err)
{
    struct mw_cli_pair pairs[MW_CLI_PAIRS_MAX];
    int n = 0;
    enum mw_status status = mw_cli_pairs("--share", text, pairs, &n, err);

    out->n = 0;
    for (int i = 0; i < n && status == MW_OK; i++) {
        long long gpus = 0;

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

static void print_choice(const struct mw_share *share,
                         const struct mw_sweep_rows *rows, double tokens)
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
    printf("The last job ends after %.2f days; %s.\n",
           share->answer.slowest_s / 86400,
           share->answer.is_proved ? "proved least" : "not proved");
}

static json_t *choice_json(const struct mw_share *share,
                           const struct mw_sweep_rows *rows, double tokens)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_real(o, "longest_s", share->answer.slowest_s);
    mw_json_set_bool(o, "proved_optimal", share->answer.is_proved);
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

int mw_sweep_share_run(const struct mw_sweep_share *budget,
                       const struct mw_sweep_rows *rows, double tokens,
                       bool is_json)
{
    struct mw_err err = {0};
    struct mw_share share;

    if (mw_share_choose(rows, budget->budget, budget->n, tokens, &share,
                        &err) != MW_OK) {
        return mw_cli_fail(&err);
    }
    if (is_json) {
        return mw_cli_print_json(choice_json(&share, rows, tokens));
    }
    print_choice(&share, rows, tokens);
    return 0;
}
