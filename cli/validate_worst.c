/*
 * What `validate` says beside its groups: the worst rows with where their
 * predicted time goes, what the same runs differ by between releases, and the
 * picture of predicted against measured times.
 */
#include "cli/verb_validate_view.h"

#include "base/table.h"
#include "plots/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORST = 8, SERIES_MAX = 32 };

static const double SHOWN = 0.01; /* least part of a breakdown that is named */

static double error_of(const struct mw_validate_row *r)
{
    return r->predicted_s / r->measured_s - 1;
}

/* Indices of the worst timed rows, the worst first; how many there are. */
static size_t worst_rows(const struct mw_validate *v, size_t out[WORST])
{
    size_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        if (!mw_validate_is_timed(&v->rows.v[i])) {
            continue;
        }
        size_t at = n < WORST ? n++ : WORST;

        for (; at > 0 && fabs(error_of(&v->rows.v[i])) >
                             fabs(error_of(&v->rows.v[out[at - 1]]));
             at--) {
            if (at < WORST) {
                out[at] = out[at - 1];
            }
        }
        if (at < WORST) {
            out[at] = i;
        }
    }
    return n;
}

/* "compute 71 %, bubble 9 %" */
static void put_breakdown(struct mw_table *t, const struct mw_validate_row *r)
{
    char text[256] = "";
    size_t n = 0;

    for (int k = 0; k < MW_SPAN_KIND_COUNT && n < sizeof text; k++) {
        double part = r->breakdown_s[k] / r->predicted_s;

        if (part > SHOWN) {
            n += (size_t)snprintf(
                text + n, sizeof text - n, "%s%s %.0f %%", n > 0 ? ", " : "",
                mw_span_kind_name((enum mw_span_kind)k), 100 * part);
        }
    }
    mw_table_cell(t, "%s", text);
}

void mw_validate_worst_print(const struct mw_validate *v)
{
    static const char *const names[] = {"worst rows", "line", "error",
                                        "where the predicted time goes"};
    size_t worst[WORST], n = worst_rows(v, worst);

    if (n < 2) {
        return;
    }
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i == 1 || i == 2);
    }
    for (size_t i = 0; i < n; i++) {
        const struct mw_validate_row *r = &v->rows.v[worst[i]];

        mw_table_row(t);
        mw_table_cell(t, "%s%s", r->id, r->is_noisy ? " (noisy)" : "");
        mw_table_cell(t, "%d", r->line);
        mw_table_cell(t, "%+.1f %%", 100 * error_of(r));
        put_breakdown(t, r);
    }
    printf("\n");
    mw_table_print(t, stdout);
    mw_table_free(t);
}

json_t *mw_validate_breakdown_json(const struct mw_validate_row *r)
{
    json_t *o = json_object();

    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        mw_json_set_real(o, mw_span_kind_name((enum mw_span_kind)k),
                         r->breakdown_s[k]);
    }
    return o;
}

json_t *mw_validate_worst_json(const struct mw_validate *v)
{
    size_t worst[WORST], n = worst_rows(v, worst);
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_string(v->rows.v[worst[i]].id));
    }
    return list;
}

/* ---- releases --------------------------------------------------------------
 */
static void print_floor(const char *what, const struct mw_release_floor *f)
{
    if (f->runs > 0) {
        printf("  %s: %" PRIu64
               " runs, median %.1f %%, p90 %.1f %%, %.0f %% of "
               "them by more than 5 %%\n",
               what, f->runs, 100 * f->median, 100 * f->p90, 100 * f->far);
    }
}

void mw_validate_releases_print(const struct mw_validate *v)
{
    struct mw_release_floor all, same;

    mw_release_floor(v, NULL, false, &all);
    mw_release_floor(v, NULL, true, &same);
    if (all.runs > 0) {
        printf("\nThe same run in an older release differs from the newest "
               "(which is scored) by\n");
        print_floor("any layout", &all);
        print_floor("one layout and precision", &same);
    }
}

static json_t *floor_json(const struct mw_validate *v, bool one_layout)
{
    struct mw_release_floor f;
    json_t *o = json_object();

    mw_release_floor(v, NULL, one_layout, &f);
    mw_json_set_int(o, "runs", (long long)f.runs);
    mw_json_set_real(o, "median", f.median);
    mw_json_set_real(o, "p90", f.p90);
    mw_json_set_real(o, "above_5_percent", f.far);
    return o;
}

json_t *mw_validate_releases_json(const struct mw_validate *v)
{
    json_t *o = floor_json(v, false);

    mw_json_set(o, "one_layout", floor_json(v, true));
    return o;
}

/* ---- picture --------------------------------------------------------------
 */
/* The points of one group, from row `first` on, into x and y. */
static size_t points_of(const struct mw_validate *v, const char *group,
                        double *x, double *y)
{
    size_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        if (mw_validate_is_timed(r) &&
            (group == NULL || strcmp(r->group, group) == 0)) {
            x[n] = r->measured_s;
            y[n++] = r->predicted_s;
        }
    }
    return n;
}

enum mw_status mw_validate_plot(const struct mw_validate *v, const char *path,
                                struct mw_err *err)
{
    const struct mw_plot_axes axes = {
        .title = "Step time, predicted against measured",
        .x = {.label = "measured (s)", .is_log = true},
        .y = {.label = "predicted (s)", .is_log = true},
        .band = 0.1};
    struct mw_plot_series series[SERIES_MAX];
    double *x = mw_calloc(v->rows.n + 1, sizeof *x);
    double *y = mw_calloc(v->rows.n + 1, sizeof *y);
    bool by_group = v->groups.n <= SERIES_MAX;
    size_t n = 0, at = 0;

    for (size_t g = 0; g < (by_group ? v->groups.n : 1); g++) {
        const char *group = by_group ? v->groups.v[g].name : NULL;
        size_t m = points_of(v, group, x + at, y + at);

        if (m > 0) {
            series[n++] = (struct mw_plot_series){by_group ? group : "all rows",
                                                  x + at, y + at, m, false};
            at += m;
        }
    }
    enum mw_status status = mw_plot_scatter(&axes, series, n, path, err);

    mw_free(x);
    mw_free(y);
    return status;
}
