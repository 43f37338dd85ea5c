/*
 * Scoring models on measured rows: predictions, classes of rows, medians over
 * rows and over campaigns. The classes are those of the accuracy that
 * docs/collectives.md promises.
 */
#include "sim/coll/coll_fit.h"

#include "base/stats.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BIG_BYTES = 1 << 20, SMALL_ALL_TO_ALL_BYTES = 64 << 10 };

const char *mw_coll_class_name(enum mw_coll_class cls)
{
    static const char *const names[] = {"inside a node", "network seen",
                                        "network or scale unseen",
                                        "kernels of an engine"};
    return names[cls];
}

/* ---- predictions ---- */

static void row_group(const struct mw_coll_row *row, enum mw_coll_group by,
                      char *out)
{
    mw_coll_group_name(by, row->unit, row->system,
                       mw_coll_op_name(row->query.op),
                       row->query.n_nodes * row->query.ranks_per_node, out);
}

static double predict(struct mw_coll_atlas *atlas,
                      const struct mw_coll_row *row, enum mw_coll_model model)
{
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer a;
    struct mw_coll_query q = mw_coll_row_query(row);
    return row->why_not || mw_coll_atlas_world(atlas, row, &w, NULL) != MW_OK ||
                   mw_coll_predict(w, model, &q, &a, NULL) != MW_OK
               ? (double)NAN
               : a.time_s;
}

/* Names of the groups in the order of their first rows, one after another in
 * blocks of 160. */
static size_t list_groups(const struct mw_coll_rows *rows,
                          enum mw_coll_group by, char **out)
{
    size_t n = 0, cap = 0;
    char *names = NULL;
    for (size_t i = 0; i < rows->row.n; i++) {
        char name[160];
        size_t g = 0;
        row_group(&rows->row.v[i], by, name);
        while (g < n && strcmp(names + 160 * g, name) != 0) {
            g++;
        }
        if (g == n) {
            if (n == cap) {
                names = mw_array_grow(names, &cap, n + 1, 160);
            }
            memcpy(names + 160 * n++, name, sizeof name);
        }
    }
    *out = names;
    return n;
}

void mw_coll_predict_rows(struct mw_coll_atlas *atlas,
                          const struct mw_coll_rows *rows,
                          enum mw_coll_model model,
                          const struct mw_coll_learn *learn,
                          enum mw_coll_group by, double *out_time_s)
{
    char *groups = NULL;
    size_t n = learn ? list_groups(rows, by, &groups) : 1;
    for (size_t g = 0; g < n; g++) {
        if (learn) {
            struct mw_coll_fit fit;
            mw_coll_learn_table(learn, by, groups + 160 * g, &fit);
            mw_coll_atlas_set_fit(atlas, &fit);
            mw_coll_fit_release(&fit);
        }
        for (size_t i = 0; i < rows->row.n; i++) {
            char name[160];
            row_group(&rows->row.v[i], by, name);
            if (!learn || strcmp(name, groups + 160 * g) == 0) {
                out_time_s[i] = predict(atlas, &rows->row.v[i], model);
            }
        }
    }
    mw_free(groups);
}

/* ---- classes ---- */

static enum mw_coll_class class_of_row(struct mw_coll_atlas *atlas,
                                       const struct mw_coll_row *row,
                                       const struct coll_feature *knots,
                                       size_t n)
{
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer a;
    struct mw_coll_query q = mw_coll_row_query(row);
    struct mw_coll_knot key;
    struct coll_feature f;
    if (q.engine != MW_ENGINE_NONE) {
        return MW_COLL_ENGINE;
    }
    if (mw_coll_atlas_world(atlas, row, &w, NULL) != MW_OK ||
        mw_coll_predict(w, MW_COLL_FIT, &q, &a, NULL) != MW_OK) {
        return MW_COLL_NET_UNSEEN;
    }
    mw_coll_keys(w, &q, &a, &key);
    coll_feature_of(&key, &f);
    return !f.is_multi ? MW_COLL_INSIDE
           : coll_kinship_of(knots, n, &f) == COLL_KIN_SEEN
               ? MW_COLL_NET_SEEN
               : MW_COLL_NET_UNSEEN;
}

void mw_coll_classify(struct mw_coll_atlas *atlas,
                      const struct mw_coll_rows *rows,
                      const struct mw_coll_fit *fit, enum mw_coll_group by,
                      enum mw_coll_class *out)
{
    char *groups = NULL;
    size_t n = list_groups(rows, by, &groups);
    struct coll_feature *knots = mw_calloc(fit->knot.n + 1, sizeof *knots);
    for (size_t g = 0; g < n; g++) {
        size_t m = 0;
        char name[160];
        for (size_t i = 0; i < fit->knot.n; i++) {
            const struct mw_coll_knot *k = &fit->knot.v[i];
            mw_coll_group_name(by, k->campaign, k->machine, k->op,
                               k->ranks * k->nodes, name);
            if (strcmp(name, groups + 160 * g) != 0) {
                coll_feature_of(k, &knots[m++]);
            }
        }
        for (size_t i = 0; i < rows->row.n; i++) {
            row_group(&rows->row.v[i], by, name);
            if (strcmp(name, groups + 160 * g) == 0) {
                out[i] = class_of_row(atlas, &rows->row.v[i], knots, m);
            }
        }
    }
    mw_free(knots);
    mw_free(groups);
}

/* ---- medians ---- */

static double error_of(const struct mw_coll_row *row, double time_s)
{
    return fabs(time_s - row->time_s) / row->time_s;
}

/* Rows of a unit (NULL: of all) and a class (negative: of all); small_too:
 * with all-to-all below 64 KiB. */
static struct mw_coll_error errors(const struct mw_coll_rows *rows,
                                   const enum mw_coll_class *cls,
                                   const double *time_s, const char *unit,
                                   int want, bool small_too)
{
    double *all = mw_calloc(rows->row.n + 1, sizeof *all);
    double *big = mw_calloc(rows->row.n + 1, sizeof *big);
    struct mw_coll_error e = {0, 0, 0, 0};
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        bool is_small = row->query.op == MW_ALL_TO_ALL &&
                        row->query.bytes < SMALL_ALL_TO_ALL_BYTES;
        if (isnan(time_s[i]) || (unit && strcmp(row->unit, unit) != 0) ||
            (want >= 0 && (int)cls[i] != want) || (is_small && !small_too)) {
            continue;
        }
        all[e.rows++] = error_of(row, time_s[i]);
        if (row->query.bytes >= BIG_BYTES) {
            big[e.big_rows++] = error_of(row, time_s[i]);
        }
    }
    e.median = mw_median(all, e.rows);
    e.big_median = mw_median(big, e.big_rows);
    mw_free(all);
    mw_free(big);
    return e;
}

static int by_unit(const void *a, const void *b)
{
    const struct mw_coll_score *x = a, *y = b;
    return strcmp(x->unit, y->unit);
}

size_t mw_coll_score_units(const struct mw_coll_rows *rows,
                           const enum mw_coll_class *cls, const double *time_s,
                           struct mw_coll_score **out)
{
    struct mw_coll_score *v = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        size_t u = 0;
        while (u < n && strcmp(v[u].unit, row->unit) != 0) {
            u++;
        }
        if (isnan(time_s[i])) {
            continue;
        }
        if (u == n) {
            if (n == cap) {
                v = mw_array_grow(v, &cap, n + 1, sizeof *v);
            }
            memset(&v[n], 0, sizeof v[n]);
            snprintf(v[n++].unit, sizeof v->unit, "%s", row->unit);
        }
        v[u].n_nodes = row->query.n_nodes > v[u].n_nodes ? row->query.n_nodes
                                                         : v[u].n_nodes;
        v[u].cls = cls[i] > v[u].cls ? cls[i] : v[u].cls;
    }
    for (size_t u = 0; u < n; u++) {
        v[u].error = errors(rows, cls, time_s, v[u].unit, -1, true);
    }
    if (n > 0) {
        qsort(v, n, sizeof *v, by_unit);
    }
    *out = v;
    return n;
}

void mw_coll_score_classes(const struct mw_coll_rows *rows,
                           const enum mw_coll_class *cls, const double *time_s,
                           struct mw_coll_class_score out[MW_COLL_CLASSES])
{
    struct mw_coll_score *units = NULL;
    size_t n = mw_coll_score_units(rows, cls, time_s, &units);
    double *all = mw_calloc(n + 1, sizeof *all);
    double *big = mw_calloc(n + 1, sizeof *big);
    for (int c = 0; c < MW_COLL_CLASSES; c++) {
        struct mw_coll_error u = {0, 0, 0, 0};
        out[c].rows = errors(rows, cls, time_s, NULL, c, false);
        for (size_t i = 0; i < n; i++) {
            struct mw_coll_error e =
                errors(rows, cls, time_s, units[i].unit, c, false);
            if (e.rows > 0) {
                all[u.rows++] = e.median;
            }
            if (e.big_rows > 0) {
                big[u.big_rows++] = e.big_median;
            }
        }
        u.median = mw_median(all, u.rows);
        u.big_median = mw_median(big, u.big_rows);
        out[c].units = u;
    }
    mw_free(all);
    mw_free(big);
    mw_free(units);
}

void mw_coll_small_all_to_all(const struct mw_coll_rows *rows,
                              const double *time_s, size_t *out_rows,
                              size_t *out_within)
{
    *out_rows = *out_within = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        if (!isnan(time_s[i]) && row->query.op == MW_ALL_TO_ALL &&
            row->query.bytes < SMALL_ALL_TO_ALL_BYTES) {
            double x = time_s[i] / row->time_s;
            ++*out_rows;
            *out_within += x >= .5 && x <= 2;
        }
    }
}

/* ---- validate ---- */

static void count_reason(struct mw_coll_validation *v, const char *why)
{
    size_t i = 0;
    while (i < v->n_reasons && strcmp(v->reasons[i].why, why) != 0) {
        i++;
    }
    if (i == sizeof v->reasons / sizeof v->reasons[0]) {
        i--;
    } else if (i == v->n_reasons) {
        v->n_reasons++;
        v->reasons[i].why = why;
    }
    v->reasons[i].rows++;
    v->skipped++;
}

static void summarise(const struct mw_coll_rows *rows, const double *time_s,
                      struct mw_coll_validation *v)
{
    double *ape = mw_calloc(rows->row.n + 1, sizeof *ape);
    double bias = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        v->rows++;
        if (isnan(time_s[i])) {
            count_reason(v, row->why_not
                                ? row->why_not
                                : "the model has no answer for this group");
        } else {
            double e = (time_s[i] - row->time_s) / row->time_s;
            bias += e;
            ape[v->predicted++] = fabs(e);
        }
    }
    v->mape = mw_mean(ape, v->predicted);
    v->median_ape = mw_median(ape, v->predicted);
    v->p90_ape = mw_quantile(ape, v->predicted, .9);
    v->bias = v->predicted ? bias / (double)v->predicted : 0;
    mw_free(ape);
}

void mw_coll_validation_fill(const struct mw_coll_rows *rows,
                             const enum mw_coll_class *cls,
                             const double *time_s, const double *left_out_s,
                             struct mw_coll_validation *out)
{
    summarise(rows, time_s, out);
    out->n_units = mw_coll_score_units(rows, cls, time_s, &out->units);
    mw_coll_score_classes(rows, cls, time_s, out->cls);
    mw_coll_small_all_to_all(rows, time_s, &out->small_rows,
                             &out->small_within);
    if (left_out_s) {
        mw_coll_score_units(rows, cls, left_out_s, &out->left_out);
        mw_coll_score_classes(rows, cls, left_out_s, out->left_out_cls);
    }
}

static void score(const struct mw_hwdb *db, const struct mw_coll_rows *rows,
                  const struct mw_coll_fit *fit, enum mw_coll_model model,
                  bool is_left_out, struct mw_coll_validation *out)
{
    struct mw_coll_atlas *atlas = mw_coll_atlas_new(db, NULL);
    double *t = mw_calloc(rows->row.n + 1, sizeof *t);
    enum mw_coll_class *cls = mw_calloc(rows->row.n + 1, sizeof *cls);
    double *left = mw_calloc(rows->row.n + 1, sizeof *left);
    mw_coll_predict_rows(atlas, rows, model, NULL, MW_COLL_BY_UNIT, t);
    mw_coll_classify(atlas, rows, fit, MW_COLL_BY_UNIT, cls);
    if (is_left_out) {
        struct mw_coll_learn *learn = mw_coll_learn_fit(fit);
        mw_coll_predict_rows(atlas, rows, model, learn, MW_COLL_BY_UNIT, left);
        mw_coll_learn_free(learn);
    }
    mw_coll_validation_fill(rows, cls, t, is_left_out ? left : NULL, out);
    mw_free(t);
    mw_free(left);
    mw_free(cls);
    mw_coll_atlas_free(atlas);
}

enum mw_status mw_coll_validate(const struct mw_hwdb *db,
                                const char *const *paths, size_t n_paths,
                                enum mw_coll_model model, bool is_left_out,
                                struct mw_coll_validation *out,
                                struct mw_err *err)
{
    struct mw_coll_rows rows = {{NULL, 0, 0}, {NULL, 0, 0}};
    struct mw_coll_fit fit = {.knot = {NULL, 0, 0}};
    enum mw_status s = mw_coll_fit_load(db, &fit, err);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n_paths && s == MW_OK; i++) {
        s = mw_coll_rows_load(paths[i], &rows, err);
    }
    if (s == MW_OK) {
        score(db, &rows, &fit, model, is_left_out && model == MW_COLL_FIT, out);
        out->notices = rows.notice.v;
        out->n_notices = rows.notice.n;
        rows.notice.v = NULL;
        rows.notice.n = rows.notice.cap = 0;
    }
    mw_coll_rows_release(&rows);
    mw_coll_fit_release(&fit);
    return s;
}

void mw_coll_validation_release(struct mw_coll_validation *v)
{
    mw_free(v->units);
    mw_free(v->left_out);
    mw_free(v->notices);
}
