/*
 * Thinning: a row goes when the rows that stay say its time within a
 * tolerance, with the look-up that programs use (mw_kernel_ratio).
 *
 * Rows are tried from the most redundant on (the one that all others predict
 * best). One goes when its own error and the errors of all rows that went
 * before stay below the tolerance, so that every source row is within the
 * tolerance of the thinned table by construction. Small shapes, which no
 * training step has, may err by SMALL_SHARE times as much.
 */
#include "hwdb/import/import_int.h"

#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Products of fewer rows, attention of fewer tokens. */
enum { SMALL_ROWS = 256, SMALL_TOKENS = 512 };
static const double SMALL_SHARE = 3;
/* Errors of whole sets are stated for shapes of at least this size. */
enum { STATED_ROWS = 512, STATED_TOKENS = 1024 };

static int int_cmp(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* The order of the shipped files; source and time last, so that sorting is
 * deterministic. */
static int sample_cmp(const void *a, const void *b)
{
    const struct mw_sample *x = a, *y = b;
    int c = strcmp(x->gpu->slug, y->gpu->slug);
    c = c != 0 ? c : strcmp(x->op, y->op);
    c = c != 0 ? c : strcmp(x->dtype, y->dtype);
    c = c != 0 ? c : int_cmp(x->k, y->k);
    c = c != 0 ? c : int_cmp(x->n, y->n);
    c = c != 0 ? c : int_cmp(x->m, y->m);
    c = c != 0 ? c : int_cmp(x->batch, y->batch);
    c = c != 0 ? c : int_cmp(x->source, y->source);
    return c != 0 ? c : (x->time_s > y->time_s) - (x->time_s < y->time_s);
}

static bool is_same_shape(const struct mw_sample *a, const struct mw_sample *b)
{
    return a->gpu == b->gpu && strcmp(a->op, b->op) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && a->k == b->k && a->n == b->n &&
           a->m == b->m && a->batch == b->batch;
}

/* Of [first, end), one shape: the row of the first source with their median
 * time. */
static struct mw_sample merge(const struct mw_sample *v, size_t n)
{
    struct mw_sample out = v[0];
    double *times = mw_calloc(n, sizeof *times);
    for (size_t i = 0; i < n; i++) {
        times[i] = v[i].time_s;
    }
    out.time_s = mw_median(times, n);
    mw_free(times);
    return out;
}

size_t mw_import_sort(struct mw_import *in)
{
    struct mw_samples *s = &in->samples;
    size_t n = 0, n_before = s->n;
    if (s->n > 0) {
        qsort(s->v, s->n, sizeof *s->v, sample_cmp);
    }
    for (size_t i = 0, end; i < s->n; i = end) {
        end = i + 1;
        while (end < s->n && is_same_shape(&s->v[i], &s->v[end])) {
            end++;
        }
        s->v[n++] = merge(&s->v[i], end - i);
    }
    s->n = n;
    return n_before - n;
}

bool mw_import_is_same_set(const struct mw_sample *a, const struct mw_sample *b)
{
    return a->gpu == b->gpu && strcmp(a->op, b->op) == 0 &&
           strcmp(a->dtype, b->dtype) == 0;
}

size_t mw_import_cut_sets(struct mw_import *in, struct mw_import_set **out)
{
    struct mw_samples *s = &in->samples;
    size_t n = 0;
    *out = mw_arena_alloc(in->arena, s->n + 1, sizeof **out);
    for (size_t i = 0; i < s->n; i++) {
        if (i == 0 || !mw_import_is_same_set(&s->v[i - 1], &s->v[i])) {
            (*out)[n++] = (struct mw_import_set){.first = i};
        }
        (*out)[n - 1].n++;
    }
    for (size_t i = 0; i < n; i++) {
        (*out)[i].is_kept =
            mw_arena_alloc(in->arena, (*out)[i].n, sizeof *(*out)[i].is_kept);
    }
    return n;
}

/* ---- a set as the look-up sees it -------------------------------------------
 */

static struct mw_kernel_shape shape_of(const struct mw_sample *s)
{
    return (struct mw_kernel_shape){(double)s->m, (double)s->n, (double)s->k,
                                    (double)s->batch};
}

static struct mw_kernel_point point_of(const struct mw_sample *s,
                                       const struct mw_kernel_rates *rates)
{
    struct mw_kernel_shape shape = shape_of(s);
    double base_s = mw_kernel_base_s(rates, &shape, mw_kernel_flops(s->op, &shape),
                                     mw_kernel_bytes(s->op, s->dtype, &shape));
    struct mw_kernel_point p = {.log_ratio = log(s->time_s / base_s),
                                .shape = shape,
                                .time_s = s->time_s};
    mw_kernel_place(mw_kernel_form_of(s->op), &shape, p.x);
    return p;
}

static bool is_below(const struct mw_sample *s, int rows, int tokens)
{
    switch (mw_kernel_form_of(s->op)) {
    case MW_KERNEL_PRODUCT:
        return s->m * s->batch < rows;
    case MW_KERNEL_ATTENTION:
        return s->n < tokens;
    case MW_KERNEL_STREAM:
        break;
    }
    return false;
}

/* Everything that thinning one set needs. */
struct work {
    const struct mw_sample *sample;
    size_t n;
    struct mw_kernel_point *point; /* of every sample */
    struct mw_kernel_point *rest;  /* scratch: those that stay */
    bool *is_kept;
};

/* The error of sample i by the rows kept, without i and, with is_new_width,
 * without any row of its (n, k). NaN when none is left. */
static double error_of(const struct work *w, size_t i, bool is_new_width)
{
    struct mw_kernel_table set = {.point = w->rest};
    const struct mw_sample *s = &w->sample[i];
    for (size_t j = 0; j < w->n; j++) {
        bool is_width = w->sample[j].n == s->n && w->sample[j].k == s->k;
        if (w->is_kept[j] && j != i && !(is_new_width && is_width)) {
            w->rest[set.n++] = w->point[j];
        }
    }
    if (set.n == 0) {
        return (double)NAN;
    }
    return fabs(mw_kernel_ratio(&set, w->point[i].x, NULL) /
                    exp(w->point[i].log_ratio) -
                1);
}

static double tolerance_of(const struct mw_sample *s, double tolerance)
{
    return is_below(s, SMALL_ROWS, SMALL_TOKENS) ? SMALL_SHARE * tolerance
                                                 : tolerance;
}

/* Are all rows that went within the tolerance? */
static bool is_good(const struct work *w, double tolerance)
{
    for (size_t i = 0; i < w->n; i++) {
        if (!w->is_kept[i] && !(error_of(w, i, false) <=
                                tolerance_of(&w->sample[i], tolerance))) {
            return false;
        }
    }
    return true;
}

struct candidate {
    double error;
    size_t i;
};

static int candidate_cmp(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->error < y->error || x->error > y->error) {
        return x->error < y->error ? -1 : 1;
    }
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Errors over the samples of stated size (all when there are few of them). */
static struct mw_import_error errors(const struct work *w, bool is_all,
                                     bool is_new_width, bool is_thinned)
{
    double *e = mw_calloc(w->n + 1, sizeof *e);
    struct mw_import_error out = {0};
    for (size_t i = 0; i < w->n; i++) {
        if (!is_all && is_below(&w->sample[i], STATED_ROWS, STATED_TOKENS)) {
            continue;
        }
        double error =
            is_thinned && w->is_kept[i] ? 0 : error_of(w, i, is_new_width);
        if (!isnan(error)) {
            e[out.n++] = error;
        }
    }
    out.median = mw_quantile(e, out.n, 0.5);
    out.p90 = mw_quantile(e, out.n, 0.9);
    out.max = mw_quantile(e, out.n, 1);
    mw_free(e);
    return out;
}

static void thin(struct work *w, double tolerance)
{
    struct candidate *order = mw_calloc(w->n, sizeof *order);
    for (size_t i = 0; i < w->n; i++) {
        order[i] = (struct candidate){error_of(w, i, false), i};
    }
    qsort(order, w->n, sizeof *order, candidate_cmp);
    for (size_t c = 0; c < w->n; c++) {
        size_t i = order[c].i;
        w->is_kept[i] = false;
        if (!is_good(w, tolerance)) {
            w->is_kept[i] = true;
        }
    }
    mw_free(order);
}

enum mw_status mw_import_thin(const struct mw_import *in,
                              struct mw_import_set *set, double tolerance,
                              struct mw_err *err)
{
    const struct mw_sample *first = &in->samples.v[set->first];
    struct mw_kernel_rates rates;
    enum mw_status status = mw_hwdb_kernel_rates(
        in->db, first->gpu, first->op, "F", first->dtype, &rates, err);
    if (status != MW_OK) {
        return status;
    }
    struct work w = {.sample = first,
                     .n = set->n,
                     .point = mw_calloc(set->n, sizeof *w.point),
                     .rest = mw_calloc(set->n, sizeof *w.rest),
                     .is_kept = set->is_kept};
    for (size_t i = 0; i < set->n; i++) {
        w.point[i] = point_of(&first[i], &rates);
        w.is_kept[i] = true;
    }
    set->left_out = errors(&w, false, false, false);
    set->new_width = errors(&w, false, true, false);
    thin(&w, tolerance);
    set->thinned = errors(&w, true, false, true);
    for (size_t i = 0; i < set->n; i++) {
        set->n_kept += set->is_kept[i];
    }
    mw_free(w.point);
    mw_free(w.rest);
    return MW_OK;
}
