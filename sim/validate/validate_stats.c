/*
 * Error statistics of predicted rows: magnitude, bias, order and regret.
 * Quadratic in the rows of one job only.
 */
#include "sim/validate/validate_int.h"

#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef const struct mw_validate_row *row_ptr;

static int compare_job(const void *a, const void *b)
{
    row_ptr x = *(const row_ptr *)a, y = *(const row_ptr *)b;
    int order = strcmp(x->job, y->job);

    if (order != 0) {
        return order;
    }
    order = strcmp(x->file, y->file);
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

struct pairs {
    double right, all;
};

/* Pairs of one job; equal predictions count half, equal measurements not. */
static void count_pairs(const row_ptr *rows, size_t n, struct pairs *out)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            double measured = rows[i]->measured_s - rows[j]->measured_s;
            double predicted = rows[i]->predicted_s - rows[j]->predicted_s;

            if (measured < 0 || measured > 0) {
                out->all++;
                out->right += measured * predicted > 0   ? 1
                              : measured * predicted < 0 ? 0
                                                         : 0.5;
            }
        }
    }
}

static double regret(const row_ptr *rows, size_t n)
{
    size_t picked = 0, best = 0;

    for (size_t i = 1; i < n; i++) {
        if (rows[i]->predicted_s < rows[picked]->predicted_s) {
            picked = i;
        }
        if (rows[i]->measured_s < rows[best]->measured_s) {
            best = i;
        }
    }
    return rows[picked]->measured_s / rows[best]->measured_s - 1;
}

static void by_job(row_ptr *rows, size_t n, struct mw_validate_group *out)
{
    struct pairs pairs = {0, 0};
    double *regrets = mw_calloc(n + 1, sizeof *regrets);
    size_t n_jobs = 0;

    qsort(rows, n, sizeof *rows, compare_job);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(rows[i]->job, rows[end]->job) == 0;
             end++) {
        }
        if (end - i > 1) {
            count_pairs(rows + i, end - i, &pairs);
            regrets[n_jobs++] = regret(rows + i, end - i);
        }
    }
    out->order_rate = pairs.all > 0 ? pairs.right / pairs.all : (double)NAN;
    out->regret_median = mw_median(regrets, n_jobs);
    mw_free(regrets);
}

static void memory_stats(const struct mw_validate_row *const *rows, size_t n,
                         struct mw_validate_group *out)
{
    double ape = 0, bias = 0;

    out->memory_rows = out->oom_rows = out->oom_right = 0;
    out->ran_rows = out->ran_right = 0;
    for (size_t i = 0; i < n; i++) {
        const struct mw_validate_row *r = rows[i];

        if (r->skipped != NULL) {
            continue;
        }
        if (r->is_oom) {
            out->oom_rows++;
            out->oom_right += !r->fits;
            continue;
        }
        out->ran_rows++;
        out->ran_right += r->fits;
        if (r->n_memory > 0) {
            double error =
                r->memory[0].predicted_bytes / r->memory[0].measured_bytes - 1;

            out->memory_rows++;
            ape += fabs(error);
            bias += error;
        }
    }
    out->memory_mape = ape / (double)out->memory_rows; /* NaN: none */
    out->memory_bias = bias / (double)out->memory_rows;
}

void mw_validate_stats(const struct mw_validate_row *const *rows, size_t n,
                       struct mw_validate_group *out)
{
    row_ptr *kept = mw_calloc(n + 1, sizeof *kept);
    double *ape = mw_calloc(n + 1, sizeof *ape);
    double bias = 0;
    size_t m = 0;

    for (size_t i = 0; i < n; i++) {
        if (mw_validate_is_timed(rows[i])) {
            double error = rows[i]->predicted_s / rows[i]->measured_s - 1;

            ape[m] = fabs(error);
            bias += error;
            kept[m++] = rows[i];
        }
    }
    out->rows = m;
    out->mape = mw_mean(ape, m);
    out->bias = m > 0 ? bias / (double)m : (double)NAN;
    out->median_ape = mw_median(ape, m);
    out->p90_ape = mw_quantile(ape, m, 0.9);
    by_job(kept, m, out);
    memory_stats(rows, n, out);
    mw_free(kept);
    mw_free(ape);
}

static bool is_first_of_group(const struct mw_validate *v, size_t i)
{
    for (size_t g = 0; g < v->groups.n; g++) {
        if (strcmp(v->groups.v[g].name, v->rows.v[i].group) == 0) {
            return false;
        }
    }
    return true;
}

uint64_t mw_validate_predicted(const struct mw_validate *v)
{
    uint64_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        n += v->rows.v[i].skipped == NULL;
    }
    return n;
}

static bool always(const struct mw_validate_row *r)
{
    return r != NULL;
}

static bool is_quiet(const struct mw_validate_row *r)
{
    return !r->is_noisy;
}

bool mw_validate_is_filled(const struct mw_validate_row *r)
{
    for (int fill = 0; fill < MW_FILL_COUNT; fill++) {
        if ((r->fills >> fill & 1) != 0 &&
            mw_fill_is_guess((enum mw_fill)fill)) {
            return true;
        }
    }
    return false;
}

static bool is_specified(const struct mw_validate_row *r)
{
    return !mw_validate_is_filled(r);
}

/* Statistics of the rows that `takes` does; rows is room for all. */
static void stats_of_all(const struct mw_validate *v, row_ptr *rows,
                         bool (*takes)(const struct mw_validate_row *),
                         const char *name, struct mw_validate_group *out)
{
    size_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        if (takes(&v->rows.v[i])) {
            rows[n++] = &v->rows.v[i];
        }
    }
    out->name = name;
    mw_validate_stats(rows, n, out);
}

void mw_validate_finish(struct mw_validate *v)
{
    row_ptr *rows = mw_calloc(v->rows.n + 1, sizeof *rows);

    mw_array_clear(&v->groups);
    for (size_t i = 0; i < v->rows.n; i++) {
        struct mw_validate_group group = {.name = v->rows.v[i].group};
        size_t n = 0;

        if (!is_first_of_group(v, i)) {
            continue;
        }
        for (size_t j = i; j < v->rows.n; j++) {
            if (strcmp(v->rows.v[j].group, group.name) == 0) {
                rows[n++] = &v->rows.v[j];
            }
        }
        mw_validate_stats(rows, n, &group);
        mw_array_push(&v->groups, group);
    }
    stats_of_all(v, rows, always, "overall", &v->overall);
    stats_of_all(v, rows, is_quiet, "without noisy rows", &v->quiet);
    stats_of_all(v, rows, is_specified, "fully specified", &v->specified);
    stats_of_all(v, rows, mw_validate_is_filled, "filled by a rule",
                 &v->filled);
    mw_validate_finish_memory(v);
    mw_free(rows);
}
