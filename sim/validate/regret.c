/*
 * How well the predictions choose: regret of each job, and the order of pairs.
 *
 *   regret   of the layout predicted fastest: how much longer it takes than the
 *            job's fastest measured one (a layout measured several times counts
 *            with its fastest)
 *   order    of all pairs of rows of one model, device, type and framework
 *            whose measured tokens/s/GPU differ by more than 3 %, the part
 *            that is predicted in the same order; equal predictions count
 *            half. The most that any prediction from job and layout could
 *            have right is less than all: repeats of one layout differ, and
 *            may lie on both sides of another. Rows that scatter by
 *            themselves (noise.c) count in all pairs and not in the quiet
 *            ones; pairs of rows whose jobs have no regret are counted by
 *            themselves. The same for layouts, each with its fastest run
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

/* Rows of one architecture together, then by layout: repeats stand in a row. */
static int compare_series(const void *a, const void *b)
{
    row_ptr x = *(const row_ptr *)a, y = *(const row_ptr *)b;
    int order = strcmp(x->series, y->series);

    order = order != 0 ? order : strcmp(x->layout, y->layout);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

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

struct tally {
    const struct mw_validate_row *first; /* of all rows */
    bool *is_listed;                     /* by row: has its job a regret? */
    struct mw_validate_regret *out;
};

/* rows of one job in order of layout, the fastest of each first */
static void one_job(const row_ptr *rows, size_t n, const struct tally *t)
{
    struct mw_validate_job job = {.picked = rows[0], .best = rows[0]};

    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(rows[i - 1]->layout, rows[i]->layout) == 0) {
            continue;
        }
        job.n_layouts++;
        if (rows[i]->predicted_s < job.picked->predicted_s) {
            job.picked = rows[i];
        }
        if (rows[i]->measured_s < job.best->measured_s) {
            job.best = rows[i];
        }
    }
    if (job.n_layouts < LAYOUTS_MIN) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        t->is_listed[rows[i] - t->first] = true;
    }
    job.regret = job.picked->measured_s / job.best->measured_s - 1;
    t->out->mean += job.regret;
    t->out->max = fmax(t->out->max, job.regret);
    mw_array_push(&t->out->jobs, job);
}

static bool is_same(row_ptr a, row_ptr b)
{
    return strcmp(a->series, b->series) == 0 &&
           strcmp(a->layout, b->layout) == 0;
}

static size_t end_of_layout(const row_ptr *rows, size_t n, size_t i)
{
    size_t end = i + 1;

    while (end < n && is_same(rows[i], rows[end])) {
        end++;
    }
    return end;
}

static double rate_ratio(row_ptr a, row_ptr b, double a_s, double b_s)
{
    return a->tokens_per_gpu / a_s / (b->tokens_per_gpu / b_s);
}

/* Do the two compare, and differ enough? *measured: a's rate over b's. */
static bool differs(row_ptr a, row_ptr b, double *measured)
{
    *measured = rate_ratio(a, b, a->measured_s, b->measured_s);
    return strcmp(a->peers, b->peers) == 0 &&
           fmax(*measured, 1 / *measured) > DIFFERS;
}

static void count(struct mw_pair_order *o, double right)
{
    o->n++;
    o->right += right;
}

/* Is the pair predicted in the order of its measured ratio: 1, 0 or 0.5? */
static double is_right(row_ptr a, row_ptr b, double measured)
{
    double predicted = rate_ratio(a, b, a->predicted_s, b->predicted_s);
    double sign = (measured - 1) * (predicted - 1);

    return sign > 0 ? 1 : sign < 0 ? 0 : 0.5;
}

static bool is_other(row_ptr a, row_ptr b, const struct tally *t)
{
    return !t->is_listed[a - t->first] && !t->is_listed[b - t->first];
}

/* Adds a pair of rows that differs enough to what is counted; returns which of
 * the two was measured faster: 1, -1, or 0 where they do not differ enough. */
static int count_pair(row_ptr a, row_ptr b, const struct tally *t)
{
    double measured, right;

    if (!differs(a, b, &measured)) {
        return 0;
    }
    right = is_right(a, b, measured);
    count(&t->out->runs, right);
    if (!a->is_noisy && !b->is_noisy) {
        count(&t->out->quiet, right);
    }
    if (is_other(a, b, t)) {
        count(&t->out->other, right);
    }
    return measured > 1 ? 1 : -1;
}

/* All pairs of rows of [i, i_end) and [j, j_end), each range one layout of one
 * architecture and job: whoever predicts them by their layouts has one order
 * for all of them. */
static void count_block(const row_ptr *rows, const size_t i[2],
                        const size_t j[2], const struct tally *t)
{
    uint64_t votes[2] = {0, 0};

    for (size_t a = i[0]; a < i[1]; a++) {
        for (size_t b = i[0] == j[0] ? a + 1 : j[0]; b < j[1]; b++) {
            int faster = count_pair(rows[a], rows[b], t);

            votes[0] += faster > 0;
            votes[1] += faster < 0;
        }
    }
    t->out->runs_possible += i[0] == j[0] ? 0.5 * (double)(votes[0] + votes[1])
                             : votes[0] > votes[1] ? (double)votes[0]
                                                   : (double)votes[1];
}

/* The fastest run of a layout, rows[i[0]] to rows[i[1] - 1]. */
static row_ptr fastest(const row_ptr *rows, const size_t i[2])
{
    row_ptr best = rows[i[0]];

    for (size_t k = i[0] + 1; k < i[1]; k++) {
        best = rows[k]->measured_s < best->measured_s ? rows[k] : best;
    }
    return best;
}

static void count_layouts(row_ptr a, row_ptr b, const struct tally *t)
{
    double measured;

    if (differs(a, b, &measured)) {
        double right = is_right(a, b, measured);

        count(&t->out->layouts, right);
        if (is_other(a, b, t)) {
            count(&t->out->other_layouts, right);
        }
    }
}

/* rows in order of series and layout */
static void count_pairs(const row_ptr *rows, size_t n, const struct tally *t)
{
    for (size_t i[2] = {0, 0}; i[0] < n; i[0] = i[1]) {
        i[1] = end_of_layout(rows, n, i[0]);
        count_block(rows, i, i, t);
        for (size_t j[2] = {i[1], 0}; j[0] < n; j[0] = j[1]) {
            j[1] = end_of_layout(rows, n, j[0]);
            count_block(rows, i, j, t);
            count_layouts(fastest(rows, i), fastest(rows, j), t);
        }
    }
}

static void count_jobs(const row_ptr *rows, size_t n, const struct tally *t)
{
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(rows[i]->job, rows[end]->job) == 0;
             end++) {
        }
        one_job(rows + i, end - i, t);
    }
}

void mw_validate_regret(const struct mw_validate *v,
                        struct mw_validate_regret *out)
{
    row_ptr *rows = mw_calloc(v->rows.n + 1, sizeof *rows);
    struct tally t = {.first = v->rows.v, .out = out};
    size_t n = 0;

    *out = (struct mw_validate_regret){.mean = 0};
    t.is_listed = mw_calloc(v->rows.n + 1, sizeof *t.is_listed);
    for (size_t i = 0; i < v->rows.n; i++) {
        if (mw_validate_is_timed(&v->rows.v[i])) {
            rows[n++] = &v->rows.v[i];
        }
    }
    qsort(rows, n, sizeof *rows, compare);
    count_jobs(rows, n, &t);
    qsort(rows, n, sizeof *rows, compare_series);
    count_pairs(rows, n, &t);
    out->mean = out->jobs.n > 0 ? out->mean / (double)out->jobs.n : (double)NAN;
    mw_free(t.is_listed);
    mw_free(rows);
}

void mw_validate_regret_release(struct mw_validate_regret *r)
{
    mw_array_release(&r->jobs);
}
