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

static double part(const struct mw_pair_order *o)
{
    return o->n > 0 ? o->right / (double)o->n : (double)NAN;
}

/* The share of pairs in the right order, by what the pairs are of. */
static void print_order(const struct mw_validate_regret *r)
{
    const struct {
        const char *of;
        const struct mw_pair_order *order;
    } lines[] = {
        {"runs", &r->runs},
        {"runs that do not scatter by themselves", &r->quiet},
        {"runs of jobs with fewer than three layouts", &r->other},
        {"layouts, each with its fastest run", &r->layouts},
        {"layouts of jobs with fewer than three", &r->other_layouts},
    };
    struct mw_table *t = mw_table_new();

    printf("\nOrder of pairs of one model, device and software whose rates "
           "differ by more than 3 %%\n(repeats of one layout allow %.1f %% of "
           "the runs' pairs):\n",
           100 * r->runs_possible / (double)r->runs.n);
    mw_table_col(t, "pairs of", false);
    mw_table_col(t, "pairs", true);
    mw_table_col(t, "right", true);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        if (lines[i].order->n > 0) {
            mw_table_row(t);
            mw_table_cell(t, "%s", lines[i].of);
            mw_table_cell(t, "%" PRIu64, lines[i].order->n);
            mw_table_cell(t, "%.1f %%", 100 * part(lines[i].order));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
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
    if (r.runs.n > 0) {
        print_order(&r);
    }
    mw_validate_regret_release(&r);
}

static void set_order(json_t *o, const char *pairs, const char *right,
                      const struct mw_pair_order *order)
{
    mw_json_set_int(o, pairs, (long long)order->n);
    mw_json_set_real(o, right, part(order));
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
    mw_json_set_real(o, "order_possible",
                     r.runs.n > 0 ? r.runs_possible / (double)r.runs.n
                                  : (double)NAN);
    set_order(o, "pairs", "order_rate", &r.runs);
    set_order(o, "pairs_without_noisy", "order_without_noisy", &r.quiet);
    set_order(o, "pairs_of_other_jobs", "order_of_other_jobs", &r.other);
    set_order(o, "pairs_of_layouts", "order_of_layouts", &r.layouts);
    set_order(o, "pairs_of_other_layouts", "order_of_other_layouts",
              &r.other_layouts);
    mw_validate_regret_release(&r);
    return o;
}
