/*
 * Rows of a sweep as curves over its first axis, and their picture, in which
 * points where two of them cross are marked.
 */
#include "cli/sweep_curves.h"

#include "cli/sweep_cross.h"

#include <stdio.h>

static double number_at(const struct mw_sweep_row *row, enum mw_sweep_key key)
{
    return key == MW_SWEEP_NODES      ? (double)row->gpus
           : key == MW_SWEEP_PER_NODE ? (double)(row->gpus / row->nodes)
           : key == MW_SWEEP_SEQ      ? (double)row->seq
           : key == MW_SWEEP_BATCH    ? (double)row->global_batch
           : key == MW_SWEEP_NICS     ? (double)row->nics
                                      : row->net;
}

const struct mw_enum mw_sweep_curve_enums[] = {
    {"rate", MW_CURVE_RATE},
    {"efficiency", MW_CURVE_EFFICIENCY},
    {"days", MW_CURVE_DAYS},
    {"cost", MW_CURVE_COST},
    {NULL, 0}};

static double height_of(const struct mw_sweep_row *row,
                        const struct mw_sweep_money *money,
                        enum mw_sweep_curve curve)
{
    double train_s = money->tokens / row->tokens_per_s;

    switch (curve) {
    case MW_CURVE_RATE:
    case MW_CURVE_EFFICIENCY:
        return row->tokens_per_s_per_gpu;
    case MW_CURVE_DAYS:
        return train_s / 86400;
    case MW_CURVE_COST:
        return train_s / 3600 * (double)row->gpus * money->usd_per_gpu_hour;
    }
    return 0;
}

bool mw_sweep_has_numbers(const struct mw_sweep_grid *grid)
{
    return grid->n_axes > 0 && grid->axis[0]->key != MW_SWEEP_SYSTEM &&
           grid->axis[0]->key != MW_SWEEP_MODEL;
}

const char *mw_sweep_axis_label(const struct mw_sweep_grid *grid)
{
    static const char *const labels[MW_SWEEP_KEY_COUNT] = {
        [MW_SWEEP_NODES] = "GPUs",
        [MW_SWEEP_SYSTEM] = "",
        [MW_SWEEP_MODEL] = "",
        [MW_SWEEP_SEQ] = "sequence length",
        [MW_SWEEP_BATCH] = "global batch",
        [MW_SWEEP_NET] = "factor on the network",
        [MW_SWEEP_PER_NODE] = "GPUs of a node",
        [MW_SWEEP_NICS] = "NICs of a node"};

    return labels[grid->axis[0]->key];
}

/* "dgx-h100, 0.5": values of the axes behind the first. */
static void name_series(const struct mw_sweep_grid *grid,
                        const struct mw_sweep_row *row, char out[128])
{
    size_t n = 0;
    char buf[32];

    snprintf(out, 128, "best plan");
    for (int i = 1; i < grid->n_axes && n < 120; i++) {
        int len = snprintf(out + n, 128 - n, "%s%.40s", i > 1 ? ", " : "",
                           mw_sweep_value_text(row, grid->axis[i]->key, buf));

        n += len > 0 ? (size_t)len : 0;
    }
}

/* Puts a point where it belongs by x. */
static void insert(double *x, double *y, size_t *rows, size_t n, size_t row,
                   const double at[2])
{
    size_t k = n;

    for (; k > 0 && x[k - 1] > at[0]; k--) {
        x[k] = x[k - 1];
        y[k] = y[k - 1];
        rows[k] = rows[k - 1];
    }
    x[k] = at[0];
    y[k] = at[1];
    rows[k] = row;
}

static bool is_first_of_series(const struct mw_sweep_rows *rows,
                               const struct mw_sweep_grid *grid, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (mw_sweep_same_series(grid, &rows->v[k], &rows->v[i])) {
            return false;
        }
    }
    return true;
}

void mw_sweep_curves_make(const struct mw_sweep_rows *rows,
                          const struct mw_sweep_grid *grid,
                          const struct mw_sweep_money *money,
                          enum mw_sweep_curve curve,
                          struct mw_sweep_curves *out)
{
    size_t room = (size_t)MW_SWEEP_SERIES_MAX * (rows->n + 1);

    *out = (struct mw_sweep_curves){
        .numbers = mw_calloc(2 * room, sizeof *out->numbers),
        .rows = mw_calloc(room, sizeof *out->rows)};
    for (size_t i = 0; i < rows->n && out->n < MW_SWEEP_SERIES_MAX; i++) {
        struct mw_plot_series *s = &out->series[out->n];
        double *x = out->numbers + 2 * out->n * (rows->n + 1);
        double *y = x + rows->n + 1;

        if (!is_first_of_series(rows, grid, i)) {
            continue;
        }
        out->row[out->n] = out->rows + out->n * (rows->n + 1);
        name_series(grid, &rows->v[i], out->label[out->n]);
        *s = (struct mw_plot_series){
            .label = out->label[out->n], .x = x, .y = y};
        for (size_t k = i; k < rows->n; k++) {
            const struct mw_sweep_row *r = &rows->v[k];

            if (r->is_feasible && mw_sweep_same_series(grid, r, &rows->v[i])) {
                const double at[2] = {number_at(r, grid->axis[0]->key),
                                      height_of(r, money, curve)};

                insert(x, y, out->row[out->n], s->n++, k, at);
            }
        }
        double base = curve == MW_CURVE_EFFICIENCY && s->n > 0 ? y[0] : 1;

        for (size_t k = 0; k < s->n; k++) {
            y[k] /= base;
        }
        out->n++;
    }
}

void mw_sweep_curves_release(struct mw_sweep_curves *curves)
{
    mw_free(curves->numbers);
    mw_free(curves->rows);
}

/* "US dollars to train on 1e+12 tokens at 2 USD per GPU hour". */
static const char *label_y(const struct mw_sweep_money *money,
                           enum mw_sweep_curve curve, char out[128])
{
    switch (curve) {
    case MW_CURVE_RATE:
        return "tokens/s/GPU";
    case MW_CURVE_EFFICIENCY:
        return "scaling efficiency";
    case MW_CURVE_DAYS:
        snprintf(out, 128, "days to train on %g tokens", money->tokens);
        break;
    case MW_CURVE_COST:
        snprintf(out, 128,
                 "US dollars to train on %g tokens at %g USD per GPU hour",
                 money->tokens, money->usd_per_gpu_hour);
        break;
    }
    return out;
}

enum mw_status mw_sweep_view_plot(const struct mw_sweep_rows *rows,
                                  const struct mw_sweep_grid *grid,
                                  const struct mw_sweep_money *money,
                                  enum mw_sweep_curve curve, const char *title,
                                  const char *path, struct mw_err *err)
{
    char label[128];
    struct mw_sweep_curves *curves;

    if (!mw_sweep_has_numbers(grid)) {
        return mw_fail(err, MW_EUSAGE,
                       "--plot: the first --vary must be nodes, seq, "
                       "global_batch, net, gpus_per_node or nics");
    }
    curves = mw_calloc(1, sizeof *curves);
    mw_sweep_curves_make(rows, grid, money, curve, curves);
    struct mw_plot_series series[MW_SWEEP_SERIES_MAX + 1];
    struct mw_sweep_crosses crosses = {NULL, 0, 0};
    size_t n = curves->n;

    mw_sweep_cross_find(curves, &crosses);
    double *at = mw_calloc(2 * crosses.n + 1, sizeof *at);

    for (size_t i = 0; i < n; i++) {
        series[i] = curves->series[i];
    }
    for (size_t i = 0; i < crosses.n; i++) {
        at[i] = crosses.v[i].x;
        at[crosses.n + i] = crosses.v[i].y;
    }
    if (crosses.n > 0) {
        series[n++] = (struct mw_plot_series){.label = "change places",
                                              .x = at,
                                              .y = at + crosses.n,
                                              .n = crosses.n,
                                              .is_marked = true};
    }
    struct mw_plot_axes axes = {
        .title = title,
        .x = {mw_sweep_axis_label(grid), MW_PLOT_NUMBER, true, true},
        .y = {label_y(money, curve, label), MW_PLOT_NUMBER, false, false}};
    enum mw_status status = mw_plot_curves(&axes, series, n, path, err);

    mw_free(at);
    mw_array_release(&crosses);
    mw_sweep_curves_release(curves);
    mw_free(curves);
    return status;
}
