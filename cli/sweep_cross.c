/*
 * Crossings of a sweep's curves. Both are piecewise straight over log x; where
 * their points differ (systems of other node sizes), each is read at the
 * other's: between two neighbours of all points both are straight, so there is
 * at most one crossing.
 *
 *   t = d0 / (d0 - d1),  log x = log x0 + t (log x1 - log x0)
 *
 * with d the difference of the two at a point.
 */
#include "cli/sweep_cross.h"

#include "base/csv.h"
#include "base/file.h"
#include "base/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A curve at x; NAN outside it. */
static double height_at(const struct mw_plot_series *s, double x)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->x[i] >= x) {
            bool is_point = s->x[i] <= x;

            if (is_point || i == 0) {
                return is_point ? s->y[i] : (double)NAN;
            }
            double t = log(x / s->x[i - 1]) / log(s->x[i] / s->x[i - 1]);

            return s->y[i - 1] + t * (s->y[i] - s->y[i - 1]);
        }
    }
    return (double)NAN;
}

/* The next point of either behind x; HUGE_VAL: none. */
static double next_x(const struct mw_plot_series *a,
                     const struct mw_plot_series *b, double x)
{
    double next = HUGE_VAL;

    for (size_t i = 0; i < a->n; i++) {
        next = a->x[i] > x ? fmin(next, a->x[i]) : next;
    }
    for (size_t i = 0; i < b->n; i++) {
        next = b->x[i] > x ? fmin(next, b->x[i]) : next;
    }
    return next;
}

/* From one point at which a and b differ to the next at which they do. */
static void cross_pair(const struct mw_sweep_curves *curves, size_t i, size_t k,
                       struct mw_sweep_crosses *out)
{
    const struct mw_plot_series *a = &curves->series[i];
    const struct mw_plot_series *b = &curves->series[k];
    double low = 0, before = 0, meet = 0;

    for (double x = next_x(a, b, 0); x < HUGE_VAL; x = next_x(a, b, x)) {
        double d = height_at(a, x) - height_at(b, x);

        if (isnan(d)) {
            continue;
        }
        if (!(d > 0) && !(d < 0)) { /* they meet here */
            meet = x;
            continue;
        }
        if ((before > 0 && d < 0) || (before < 0 && d > 0)) {
            double t = before / (before - d);
            struct mw_sweep_cross c = {.above = before > 0 ? i : k,
                                       .below = before > 0 ? k : i,
                                       .low = low,
                                       .high = x,
                                       .x = meet > low ? meet
                                                       : low * pow(x / low, t)};

            c.y = height_at(a, c.x);
            mw_array_push(out, c);
        }
        before = d;
        low = x;
    }
}

void mw_sweep_cross_find(const struct mw_sweep_curves *curves,
                         struct mw_sweep_crosses *out)
{
    for (size_t i = 0; i < curves->n; i++) {
        for (size_t k = i + 1; k < curves->n; k++) {
            cross_pair(curves, i, k, out);
        }
    }
}

/* ---- layouts ---------------------------------------------------------------
 */
static void add_number(struct mw_str *text, const char *name, int64_t a,
                       int64_t b)
{
    if (a != b) {
        mw_str_addf(text, "%s%s %lld to %lld", text->n > 0 ? ", " : "", name,
                    (long long)a, (long long)b);
    }
}

static void add_word(struct mw_str *text, const char *name, const char *a,
                     const char *b)
{
    if (strcmp(a, b) != 0) {
        mw_str_addf(text, "%s%s %s to %s", text->n > 0 ? ", " : "", name, a, b);
    }
}

/* What is another in b's best layout than in a's, but for the replicas, which
 * go with the GPUs. */
static void differ(const struct mw_sweep_row *a, const struct mw_sweep_row *b,
                   struct mw_str *text)
{
    add_number(text, "tp", a->tp, b->tp);
    add_number(text, "cp", a->cp, b->cp);
    add_number(text, "pp", a->pp, b->pp);
    add_number(text, "vpp", a->vpp, b->vpp);
    add_number(text, "ep", a->ep, b->ep);
    add_number(text, "etp", a->etp, b->etp);
    add_number(text, "zero", a->zero, b->zero);
    add_number(text, "micro_batch", a->micro_batch, b->micro_batch);
    add_word(text, "recompute", a->recompute, b->recompute);
    if (a->pp > 1 && b->pp > 1) {
        add_word(text, "schedule", a->schedule, b->schedule);
    }
}

/* ---- one list of both ------------------------------------------------------
 */
/* Row of the answer: a crossing (series: who is ahead behind it), or a change
 * of layout (x and y 0). */
struct turn {
    const char *kind, *series, *other;
    double low, high, x, y;
    struct mw_str text; /* of a change */
};
struct turns {
    struct turn *v;
    size_t n, cap;
    struct mw_sweep_curves *curves;
};

static void turns_make(const struct mw_sweep_rows *rows,
                       const struct mw_sweep_grid *grid,
                       const struct mw_sweep_money *money, struct turns *out)
{
    struct mw_sweep_crosses crosses = {NULL, 0, 0};
    struct mw_sweep_curves *c = mw_calloc(1, sizeof *c);

    *out = (struct turns){.curves = c};
    if (!mw_sweep_has_numbers(grid)) {
        return;
    }
    mw_sweep_curves_make(rows, grid, money, MW_CURVE_RATE, c);
    mw_sweep_cross_find(c, &crosses);
    for (size_t i = 0; i < crosses.n; i++) {
        const struct mw_sweep_cross *at = &crosses.v[i];
        struct turn t = {.kind = "crossing",
                         .series = c->label[at->below],
                         .other = c->label[at->above],
                         .low = at->low,
                         .high = at->high,
                         .x = at->x,
                         .y = at->y};

        mw_array_push(out, t);
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct mw_plot_series *s = &c->series[i];

        for (size_t k = 1; k < s->n; k++) {
            struct turn t = {.kind = "layout",
                             .series = c->label[i],
                             .other = "",
                             .low = s->x[k - 1],
                             .high = s->x[k]};

            differ(&rows->v[c->row[i][k - 1]], &rows->v[c->row[i][k]], &t.text);
            if (t.text.n > 0) {
                mw_array_push(out, t);
            }
        }
    }
    mw_array_release(&crosses);
}

static void turns_release(struct turns *t)
{
    for (size_t i = 0; i < t->n; i++) {
        mw_str_release(&t->v[i].text);
    }
    mw_array_release(t);
    mw_sweep_curves_release(t->curves);
    mw_free(t->curves);
}

static bool is_crossing(const struct turn *t)
{
    return t->text.n == 0;
}

static void print_kind(const struct turns *turns, const char *axis,
                       bool crossings)
{
    static const char *const names[2][5] = {
        {"series", "from", "to", "what changes", ""},
        {"at", "between", "tokens/s/GPU", "ahead behind it", "ahead before"}};
    struct mw_table *t = mw_table_new();
    int n_columns = crossings ? 5 : 4;

    for (int i = 0; i < n_columns; i++) {
        mw_table_col(t, names[crossings][i],
                     crossings ? i < 3 : i == 1 || i == 2);
    }
    for (size_t i = 0; i < turns->n; i++) {
        const struct turn *v = &turns->v[i];

        if (is_crossing(v) != crossings) {
            continue;
        }
        mw_table_row(t);
        if (crossings) {
            mw_table_cell(t, "%.4g", v->x);
            mw_table_cell(t, "%g and %g", v->low, v->high);
            mw_table_cell(t, "%.1f", v->y);
            mw_table_cell(t, "%s", v->series);
            mw_table_cell(t, "%s", v->other);
        } else {
            mw_table_cell(t, "%s", v->series);
            mw_table_cell(t, "%g", v->low);
            mw_table_cell(t, "%g", v->high);
            mw_table_cell(t, "%s", v->text.s);
        }
    }
    printf(crossings ? "\nCurves that cross, by %s:\n"
                     : "\nWhere the best layout changes, by %s:\n",
           axis);
    mw_table_print(t, stdout);
    mw_table_free(t);
}

void mw_sweep_cross_print(const struct mw_sweep_rows *rows,
                          const struct mw_sweep_grid *grid,
                          const struct mw_sweep_money *money)
{
    struct turns t;
    size_t n_crossings = 0;

    turns_make(rows, grid, money, &t);
    for (size_t i = 0; i < t.n; i++) {
        n_crossings += is_crossing(&t.v[i]);
    }
    if (n_crossings > 0) {
        print_kind(&t, mw_sweep_axis_label(grid), true);
    }
    if (n_crossings < t.n) {
        print_kind(&t, mw_sweep_axis_label(grid), false);
    }
    turns_release(&t);
}

void mw_sweep_cross_json(const struct mw_sweep_rows *rows,
                         const struct mw_sweep_grid *grid,
                         const struct mw_sweep_money *money, json_t *o)
{
    json_t *crossings = json_array(), *changes = json_array();
    struct turns t;

    turns_make(rows, grid, money, &t);
    for (size_t i = 0; i < t.n; i++) {
        const struct turn *v = &t.v[i];
        json_t *e = json_object();

        mw_json_set_str(e, "series", v->series);
        mw_json_set_real(e, "from", v->low);
        mw_json_set_real(e, "to", v->high);
        if (is_crossing(v)) {
            mw_json_set_str(e, "overtakes", v->other);
            mw_json_set_real(e, "at", v->x);
            mw_json_set_real(e, "tokens_per_s_per_gpu", v->y);
        } else {
            mw_json_set_str(e, "changes", v->text.s);
        }
        json_array_append_new(is_crossing(v) ? crossings : changes, e);
    }
    mw_json_set(o, "crossings", crossings);
    mw_json_set(o, "layout_changes", changes);
    turns_release(&t);
}

static void csv_number(struct mw_str *line, double v, bool is_last)
{
    char text[40];

    snprintf(text, sizeof text, "%.17g", v);
    mw_csv_add_cell(line, text, is_last);
}

enum mw_status mw_sweep_cross_csv(const struct mw_sweep_rows *rows,
                                  const struct mw_sweep_grid *grid,
                                  const struct mw_sweep_money *money,
                                  const char *path, struct mw_err *err)
{
    struct mw_outfile out;
    struct turns t;
    struct mw_str text = {0};
    enum mw_status status = mw_outfile_open(&out, path, err);

    if (status != MW_OK) {
        return status;
    }
    turns_make(rows, grid, money, &t);
    mw_str_add(&text, "# meshwright sweep, format 1: where curves cross, and "
                      "where the best layout changes\n"
                      "kind,series,overtakes,from,to,at,tokens_per_s_per_gpu,"
                      "changes\n");
    for (size_t i = 0; i < t.n; i++) {
        const struct turn *v = &t.v[i];

        mw_csv_add_cell(&text, v->kind, false);
        mw_csv_add_cell(&text, v->series, false);
        mw_csv_add_cell(&text, v->other, false);
        csv_number(&text, v->low, false);
        csv_number(&text, v->high, false);
        csv_number(&text, v->x, false);
        csv_number(&text, v->y, false);
        mw_csv_add_cell(&text, is_crossing(v) ? "" : v->text.s, true);
    }
    fputs(text.s, out.f);
    mw_str_release(&text);
    turns_release(&t);
    return mw_outfile_commit(&out, err);
}
