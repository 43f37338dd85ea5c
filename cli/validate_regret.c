/*
 * How well `validate`'s predictions choose among layouts: one line a job, their
 * mean and largest regret, and the order of pairs.
 */
#include "cli/verb_validate_view.h"

#include "base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

static double part(double right, uint64_t n)
{
    return n > 0 ? right / (double)n : (double)NAN;
}

void mw_validate_regret_print(const struct mw_validate *v)
{
    static const char *const names[] = {"table",   "model",  "device, software",
                                        "layouts", "picked", "best measured",
                                        "regret"};
    struct mw_validate_regret r;
    struct mw_table *t;

    mw_validate_regret(v, &r);
    if (r.jobs.n > 0) {
        t = mw_table_new();
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            mw_table_col(t, names[i], i == 3 || i == 6);
        }
        for (size_t i = 0; i < r.jobs.n; i++) {
            const struct mw_validate_job *j = &r.jobs.v[i];

            mw_table_row(t);
            mw_table_cell(t, "%s", base_name(j->best->file));
            mw_table_cell(t, "%s", j->best->model);
            mw_table_cell(t, "%s", j->best->group);
            mw_table_cell(t, "%zu", j->n_layouts);
            mw_table_cell(t, "%s", j->picked->layout);
            mw_table_cell(t, "%s", j->best->layout);
            mw_table_cell(t, "%.1f %%", 100 * j->regret);
        }
        printf("\nJobs with at least three layouts:\n");
        mw_table_print(t, stdout);
        mw_table_free(t);
        printf("Regret: mean %.1f %%, largest %.1f %%\n", 100 * r.mean,
               100 * r.max);
    }
    if (r.n_pairs > 0) {
        printf("Order: %.1f %% of %" PRIu64 " pairs of one model, device and "
               "software whose rates differ by more than 3 %%; repeats allow "
               "%.1f %%\n",
               100 * part(r.pairs_right, r.n_pairs), r.n_pairs,
               100 * part(r.pairs_possible, r.n_pairs));
    }
    if (r.n_quiet > 0 && r.n_quiet < r.n_pairs) {
        printf("Without rows that scatter by themselves: %.1f %% of %" PRIu64
               "\n",
               100 * part(r.quiet_right, r.n_quiet), r.n_quiet);
    }
    if (r.n_other > 0 && r.n_other < r.n_pairs) {
        printf("Of rows whose jobs have fewer than three layouts: %.1f %% of "
               "%" PRIu64 "\n",
               100 * part(r.other_right, r.n_other), r.n_other);
    }
    mw_validate_regret_release(&r);
}

json_t *mw_validate_regret_json(const struct mw_validate *v)
{
    struct mw_validate_regret r;
    json_t *o = json_object(), *jobs = json_array();

    mw_validate_regret(v, &r);
    for (size_t i = 0; i < r.jobs.n; i++) {
        const struct mw_validate_job *j = &r.jobs.v[i];
        json_t *job = json_object();

        mw_json_set_str(job, "file", base_name(j->best->file));
        mw_json_set_str(job, "model", j->best->model);
        mw_json_set_str(job, "group", j->best->group);
        mw_json_set_int(job, "layouts", (long long)j->n_layouts);
        mw_json_set_str(job, "picked", j->picked->id);
        mw_json_set_str(job, "picked_layout", j->picked->layout);
        mw_json_set_str(job, "best", j->best->id);
        mw_json_set_str(job, "best_layout", j->best->layout);
        mw_json_set_real(job, "regret", j->regret);
        json_array_append_new(jobs, job);
    }
    mw_json_set(o, "jobs", jobs);
    mw_json_set_real(o, "mean", r.mean);
    mw_json_set_real(o, "max", r.jobs.n > 0 ? r.max : (double)NAN);
    mw_json_set_int(o, "pairs", (long long)r.n_pairs);
    mw_json_set_real(o, "order_rate", part(r.pairs_right, r.n_pairs));
    mw_json_set_real(o, "order_possible", part(r.pairs_possible, r.n_pairs));
    mw_json_set_int(o, "pairs_without_noisy", (long long)r.n_quiet);
    mw_json_set_real(o, "order_without_noisy", part(r.quiet_right, r.n_quiet));
    mw_json_set_int(o, "pairs_of_other_jobs", (long long)r.n_other);
    mw_json_set_real(o, "order_of_other_jobs", part(r.other_right, r.n_other));
    mw_validate_regret_release(&r);
    return o;
}
