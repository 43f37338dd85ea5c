/*
 * Fitting the ratios and scoring the models.
 *
 * A point is a measured row with NCCL's own time for it. A knot's ratio is the
 * median over units of the units' medians, so that a campaign with many
 * repeats does not outvote the others. Leave-one-out: the unit that is scored
 * takes no part in its ratios.
 */
#include "sim/coll/coll_fit.h"

#include "base/stats.h"
#include "sim/coll/coll_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- worlds ---- */

struct mw_coll_atlas {
    const struct mw_hwdb *db;
    struct mw_nccl_opts opts;
    MW_ARRAY(struct mw_coll_world *) world;
};

struct mw_coll_atlas *mw_coll_atlas_new(const struct mw_hwdb *db,
                                        const struct mw_nccl_opts *opts)
{
    struct mw_coll_atlas *a = mw_calloc(1, sizeof *a);
    a->db = db;
    mw_nccl_opts_default(&a->opts);
    if (opts) {
        a->opts = *opts;
    }
    return a;
}

void mw_coll_atlas_free(struct mw_coll_atlas *atlas)
{
    if (!atlas) {
        return;
    }
    for (size_t i = 0; i < atlas->world.n; i++) {
        mw_coll_world_free(atlas->world.v[i]);
    }
    mw_array_release(&atlas->world);
    mw_free(atlas);
}

enum mw_status mw_coll_atlas_world(struct mw_coll_atlas *atlas,
                                   const char *system,
                                   struct mw_coll_world **out,
                                   struct mw_err *err)
{
    for (size_t i = 0; i < atlas->world.n; i++) {
        if (strcmp(atlas->world.v[i]->system->slug, system) == 0) {
            *out = atlas->world.v[i];
            return MW_OK;
        }
    }
    struct mw_coll_world *w = NULL;
    enum mw_status s =
        mw_coll_world_new(atlas->db, system, &atlas->opts, &w, err);
    if (s == MW_OK) {
        mw_array_push(&atlas->world, w);
        *out = w;
    }
    return s;
}

void mw_coll_atlas_set_fit(struct mw_coll_atlas *atlas,
                           const struct mw_coll_fit *fit)
{
    for (size_t i = 0; i < atlas->world.n; i++) {
        mw_coll_world_set_fit(atlas->world.v[i], fit);
    }
}

/* The row's query with the row's fabric. */
static struct mw_coll_query query_of(const struct mw_coll_row *row)
{
    struct mw_coll_query q = row->query;
    q.fabric = row->fabric[0] ? row->fabric : NULL;
    return q;
}

/* ---- points ---- */

struct point {
    struct mw_coll_knot key; /* log2_bytes rounded to a knot */
    double log_ratio;
    const char *unit;
};
struct points {
    MW_ARRAY(struct point) v;
};

static int by_point(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    int d = strcmp(x->key.cls, y->key.cls);
    d = d ? d : strcmp(x->key.op, y->key.op);
    d = d ? d : strcmp(x->key.algo, y->key.algo);
    d = d ? d : (x->key.scale > y->key.scale) - (x->key.scale < y->key.scale);
    d = d ? d
          : (x->key.log2_bytes > y->key.log2_bytes) -
                (x->key.log2_bytes < y->key.log2_bytes);
    d = d ? d : strcmp(x->unit, y->unit);
    return d ? d
             : (x->log_ratio > y->log_ratio) - (x->log_ratio < y->log_ratio);
}

static void collect(struct mw_coll_atlas *atlas,
                    const struct mw_coll_rows *rows, struct points *out)
{
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_query q = query_of(row);
        if (row->why_not || row->no_fit ||
            mw_coll_atlas_world(atlas, row->system, &w, NULL) != MW_OK ||
            mw_coll_predict(w, MW_COLL_NCCL, &q, &a, NULL) != MW_OK ||
            a.time_s <= 0) {
            continue;
        }
        struct point p = {.log_ratio = log(row->time_s / a.time_s),
                          .unit = row->unit};
        mw_coll_keys(w, &q, &a, &p.key);
        p.key.log2_bytes = round(log2(q.bytes));
        mw_array_push(&out->v, p);
    }
    if (out->v.n > 0) {
        qsort(out->v.v, out->v.n, sizeof out->v.v[0], by_point);
    }
}

static bool same_knot(const struct mw_coll_knot *a,
                      const struct mw_coll_knot *b)
{
    return strcmp(a->cls, b->cls) == 0 && strcmp(a->op, b->op) == 0 &&
           strcmp(a->algo, b->algo) == 0 && a->scale == b->scale &&
           a->log2_bytes == b->log2_bytes;
}

/* Median of [i, n) points of one knot: of the units' medians. */
static double knot_median(const struct point *p, size_t n, const char *without,
                          int *out_points)
{
    double *units = mw_calloc(n, sizeof *units),
           *own = mw_calloc(n, sizeof *own);
    size_t n_units = 0;
    *out_points = 0;
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        while (i + k < n && strcmp(p[i].unit, p[i + k].unit) == 0) {
            own[k] = p[i + k].log_ratio;
            k++;
        }
        if (!without || strcmp(p[i].unit, without) != 0) {
            units[n_units++] = mw_median(own, k);
            *out_points += (int)k;
        }
        i += k;
    }
    double m = n_units ? mw_median(units, n_units) : 0;
    mw_free(units);
    mw_free(own);
    return m;
}

/* ---- gaps between scales ---- */

/* log ratio of a cell at exactly this scale and size; false: not there. */
static bool at_knot(const struct mw_coll_fit *fit, const char *cls,
                    const char *op, int scale, double size, double *out)
{
    for (size_t i = 0; i < fit->knot.n; i++) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        if (k->scale == scale && k->log2_bytes == size && k->n_points > 0 &&
            strcmp(k->algo, "ring") == 0 && strcmp(k->cls, cls) == 0 &&
            strcmp(k->op, op) == 0) {
            *out = log(k->ratio);
            return true;
        }
    }
    return false;
}

static bool has_scale(const struct mw_coll_fit *fit, const char *cls,
                      const char *op, int scale)
{
    for (size_t i = 0; i < fit->knot.n; i++) {
        const struct mw_coll_knot *k = &fit->knot.v[i];
        if (k->scale == scale && strcmp(k->cls, cls) == 0 &&
            strcmp(k->op, op) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * An operation that was not measured with `scale` ranks: its ratios at the
 * nearest scale, moved as the sibling's move between the two scales.
 */
static void carry_over(struct mw_coll_fit *fit, const char *cls, const char *op,
                       const char *kin, int scale)
{
    static const int near[3][2] = {{4, 8}, {8, 2}, {4, 2}};
    int from = 0;
    for (int i = 0; i < 2 && !from; i++) {
        int s = near[scale == 2 ? 0 : scale == 4 ? 1 : 2][i];
        from =
            has_scale(fit, cls, op, s) && has_scale(fit, cls, kin, s) ? s : 0;
    }
    if (!from || has_scale(fit, cls, op, scale) ||
        !has_scale(fit, cls, kin, scale)) {
        return;
    }
    for (double size = 0; size < 40; size++) {
        double base = 0, a = 0, b = 0;
        if (at_knot(fit, cls, op, from, size, &base) &&
            at_knot(fit, cls, kin, from, size, &a) &&
            at_knot(fit, cls, kin, scale, size, &b)) {
            struct mw_coll_knot k = {
                .scale = scale, .log2_bytes = size, .ratio = exp(base + b - a)};
            snprintf(k.cls, sizeof k.cls, "%s", cls);
            snprintf(k.op, sizeof k.op, "%s", op);
            snprintf(k.algo, sizeof k.algo, "ring");
            mw_array_push(&fit->knot, k);
        }
    }
}

static void fill_gaps(struct mw_coll_fit *fit)
{
    static const char *const ops[][2] = {{"all_gather", "reduce_scatter"},
                                         {"reduce_scatter", "all_gather"},
                                         {"all_reduce", "reduce_scatter"},
                                         {"all_reduce", "all_gather"}};
    size_t n = fit->knot.n;
    char last[48] = "";
    for (size_t i = 0; i < n; i++) {
        char cls[48];
        memcpy(cls, fit->knot.v[i].cls, sizeof cls);
        if (strcmp(cls, last) == 0) {
            continue;
        }
        memcpy(last, cls, sizeof last);
        for (size_t o = 0; o < 4; o++) {
            for (int scale = 2; scale <= 8; scale *= 2) {
                carry_over(fit, cls, ops[o][0], ops[o][1], scale);
            }
        }
    }
    coll_fit_sort(fit);
}

static void make(const struct points *pts, const char *without,
                 struct mw_coll_fit *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < pts->v.n;) {
        const struct point *p = &pts->v.v[i];
        size_t n = 1;
        while (i + n < pts->v.n && same_knot(&p->key, &p[n].key)) {
            n++;
        }
        struct mw_coll_knot k = p->key;
        k.ratio = exp(knot_median(p, n, without, &k.n_points));
        if (k.n_points > 0) {
            mw_array_push(&out->knot, k);
        }
        i += n;
    }
    coll_fit_sort(out);
    fill_gaps(out);
}

void mw_coll_fit_make(struct mw_coll_atlas *atlas,
                      const struct mw_coll_rows *rows, const char *without,
                      struct mw_coll_fit *out)
{
    struct points pts = {{NULL, 0, 0}};
    collect(atlas, rows, &pts);
    make(&pts, without, out);
    mw_array_release(&pts.v);
}

/* ---- scores ---- */

static void score_unit(struct mw_coll_atlas *atlas,
                       const struct mw_coll_rows *rows, const char *unit,
                       enum mw_coll_model model, struct mw_coll_score *out)
{
    double *all = mw_calloc(rows->row.n + 1, sizeof *all);
    double *big = mw_calloc(rows->row.n + 1, sizeof *big);
    memset(out, 0, sizeof *out);
    snprintf(out->unit, sizeof out->unit, "%s", unit);
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_query q = query_of(row);
        if (row->why_not || strcmp(row->unit, unit) != 0 ||
            mw_coll_atlas_world(atlas, row->system, &w, NULL) != MW_OK ||
            mw_coll_predict(w, model, &q, &a, NULL) != MW_OK) {
            continue;
        }
        double e = fabs(a.time_s - row->time_s) / row->time_s;
        all[out->rows++] = e;
        if (q.bytes >= 1048576) {
            big[out->big_rows++] = e;
        }
        out->n_nodes = q.n_nodes > out->n_nodes ? q.n_nodes : out->n_nodes;
    }
    out->median_ape = mw_median(all, out->rows);
    out->big_median_ape = mw_median(big, out->big_rows);
    mw_free(all);
    mw_free(big);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

size_t mw_coll_score_units(struct mw_coll_atlas *atlas,
                           const struct mw_coll_rows *rows,
                           enum mw_coll_model model, bool leave_one_out,
                           struct mw_coll_score **out)
{
    const char **unit = mw_calloc(rows->row.n + 1, sizeof *unit);
    for (size_t i = 0; i < rows->row.n; i++) {
        unit[i] = rows->row.v[i].unit;
    }
    if (rows->row.n > 0) {
        qsort(unit, rows->row.n, sizeof *unit, by_text);
    }
    struct points pts = {{NULL, 0, 0}};
    if (leave_one_out) {
        collect(atlas, rows, &pts);
    }
    struct mw_coll_score *scores = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        if (i > 0 && strcmp(unit[i], unit[i - 1]) == 0) {
            continue;
        }
        if (leave_one_out) {
            struct mw_coll_fit fit;
            make(&pts, unit[i], &fit);
            mw_coll_atlas_set_fit(atlas, &fit);
            mw_coll_fit_release(&fit);
        }
        if (n == cap) {
            scores = mw_array_grow(scores, &cap, n + 1, sizeof *scores);
        }
        score_unit(atlas, rows, unit[i], model, &scores[n]);
        n += scores[n].rows > 0;
    }
    mw_array_release(&pts.v);
    mw_free(unit);
    *out = scores;
    return n;
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

static void summarise(struct mw_coll_atlas *atlas,
                      const struct mw_coll_rows *rows, enum mw_coll_model model,
                      struct mw_coll_validation *v)
{
    double *ape = mw_calloc(rows->row.n + 1, sizeof *ape);
    double bias = 0;
    for (size_t i = 0; i < rows->row.n; i++) {
        const struct mw_coll_row *row = &rows->row.v[i];
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        struct mw_coll_query q = query_of(row);
        v->rows++;
        if (row->why_not) {
            count_reason(v, row->why_not);
        } else if (mw_coll_atlas_world(atlas, row->system, &w, NULL) != MW_OK ||
                   mw_coll_predict(w, model, &q, &a, NULL) != MW_OK) {
            count_reason(v, "the model has no answer for this group");
        } else {
            double e = (a.time_s - row->time_s) / row->time_s;
            bias += e;
            ape[v->predicted++] = fabs(e);
        }
    }
    double n = (double)v->predicted;
    v->mape = mw_mean(ape, v->predicted);
    v->median_ape = mw_median(ape, v->predicted);
    v->p90_ape = mw_quantile(ape, v->predicted, .9);
    v->bias = v->predicted ? bias / n : 0;
    mw_free(ape);
}

enum mw_status mw_coll_validate(const struct mw_hwdb *db,
                                const char *const *paths, size_t n_paths,
                                enum mw_coll_model model,
                                struct mw_coll_validation *out,
                                struct mw_err *err)
{
    struct mw_coll_rows rows = {{NULL, 0, 0}};
    enum mw_status s = MW_OK;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n_paths && s == MW_OK; i++) {
        s = mw_coll_rows_load(paths[i], &rows, err);
    }
    if (s == MW_OK) {
        struct mw_coll_atlas *atlas = mw_coll_atlas_new(db, NULL);
        summarise(atlas, &rows, model, out);
        out->n_units =
            mw_coll_score_units(atlas, &rows, model, false, &out->units);
        mw_coll_atlas_free(atlas);
    }
    mw_coll_rows_release(&rows);
    return s;
}
