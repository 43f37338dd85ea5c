/*
 * How well the predictions choose: regret of each job, and the order of pairs.
 *
 *   regret   of the layout predicted fastest: how much longer it takes than the
 *            job's fastest measured one (a layout measured several times counts
 *            with its fastest)
 *   order    of all pairs of rows of one model, device, type and framework
 * whose measured tokens/s/GPU differ by more than 3 %, the part that is
 *            predicted in the same order; equal predictions count half
 *
 * Left out of the regret: jobs with fewer than three layouts.
 */
#include "sim/validate/validate_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const struct mw_validate_row *row_ptr;

static const double DIFFERS = 1.03;
enum { LAYOUTS_MIN = 3 };

/* Jobs in the order of files and lines, rows of one job together, then by
 * layout, the fastest of each first. */
static int compare(const void *a, const void *b)
{
    row_ptr x = *(const row_ptr *)a, y = *(const row_ptr *)b;
    int order = strcmp(x->job, y->job);

    order = order != 0 ? order : strcmp(x->layout, y->layout);
    if (order == 0) {
        order =
            (x->measured_s > y->measured_s) - (x->measured_s < y->measured_s);
    }
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static size_t distinct_layouts(row_ptr *rows, size_t n)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        if (m == 0 || strcmp(rows[m - 1]->layout, rows[i]->layout) != 0) {
            rows[m++] = rows[i];
        }
    }
    return m;
}

static void one_job(row_ptr *rows, size_t n, struct mw_validate_regret *out)
{
    struct mw_validate_job job = {.n_layouts = distinct_layouts(rows, n)};

    if (job.n_layouts < LAYOUTS_MIN) {
        return;
    }
    job.picked = job.best = rows[0];
    for (size_t i = 1; i < job.n_layouts; i++) {
        if (rows[i]->predicted_s < job.picked->predicted_s) {
            job.picked = rows[i];
        }
        if (rows[i]->measured_s < job.best->measured_s) {
            job.best = rows[i];
        }
    }
    job.regret = job.picked->measured_s / job.best->measured_s - 1;
    out->mean += job.regret;
    out->max = fmax(out->max, job.regret);
    mw_array_push(&out->jobs, job);
}

static void count_pairs(const row_ptr *rows, size_t n,
                        struct mw_validate_regret *out)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            const struct mw_validate_row *a = rows[i], *b = rows[j];
            double measured = a->tokens_per_gpu / a->measured_s /
                              (b->tokens_per_gpu / b->measured_s);
            double predicted = a->tokens_per_gpu / a->predicted_s /
                               (b->tokens_per_gpu / b->predicted_s);

            if (strcmp(a->peers, b->peers) != 0 ||
                fmax(measured, 1 / measured) <= DIFFERS) {
                continue;
            }
            out->n_pairs++;
            out->pairs_right += (measured - 1) * (predicted - 1) > 0   ? 1
                                : (measured - 1) * (predicted - 1) < 0 ? 0
                                                                       : 0.5;
        }
    }
}

void mw_validate_regret(const struct mw_validate *v,
                        struct mw_validate_regret *out)
{
    row_ptr *rows = mw_calloc(v->rows.n + 1, sizeof *rows);
    size_t n = 0;

    *out = (struct mw_validate_regret){.mean = 0};
    for (size_t i = 0; i < v->rows.n; i++) {
        if (mw_validate_is_timed(&v->rows.v[i])) {
            rows[n++] = &v->rows.v[i];
        }
    }
    count_pairs(rows, n, out);
    qsort(rows, n, sizeof *rows, compare);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(rows[i]->job, rows[end]->job) == 0;
             end++) {
        }
        one_job(rows + i, end - i, out);
    }
    out->mean = out->jobs.n > 0 ? out->mean / (double)out->jobs.n : (double)NAN;
    mw_free(rows);
}

void mw_validate_regret_release(struct mw_validate_regret *r)
{
    mw_array_release(&r->jobs);
}
