/*
 * Sweeps shown. Efficiency is tokens per second and GPU over that of the first
 * point that has the same values on all axes but the first (the smallest
 * cluster, as a rule).
 */
#include "cli/sweep_view.h"

#include "base/table.h"
#include "base/units.h"
#include "plots/plot.h"

#include <stdio.h>
#include <string.h>

static const char *value_text(const struct mw_sweep_row *row,
                              enum mw_sweep_key key, char buf[32])
{
    switch (key) {
    case MW_SWEEP_SYSTEM:
        return row->system;
    case MW_SWEEP_MODEL:
        return row->model;
    case MW_SWEEP_NET:
        snprintf(buf, 32, "%g", row->net);
        return buf;
    case MW_SWEEP_NODES:
        snprintf(buf, 32, "%lld", (long long)row->nodes);
        return buf;
    case MW_SWEEP_SEQ:
        snprintf(buf, 32, "%lld", (long long)row->seq);
        return buf;
    case MW_SWEEP_BATCH:
        snprintf(buf, 32, "%lld", (long long)row->global_batch);
        return buf;
    case MW_SWEEP_PER_NODE:
        snprintf(buf, 32, "%lld", (long long)(row->gpus / row->nodes));
        return buf;
    case MW_SWEEP_KEY_COUNT:
        break;
    }
    return "";
}

/* Same values on every axis but the first. */
static bool is_same_series(const struct mw_sweep_grid *grid,
                           const struct mw_sweep_row *a,
                           const struct mw_sweep_row *b)
{
    char x[32], y[32];

    for (int i = 1; i < grid->n_axes; i++) {
        enum mw_sweep_key key = grid->axis[i]->key;

        if (strcmp(value_text(a, key, x), value_text(b, key, y)) != 0) {
            return false;
        }
    }
    return true;
}

static double efficiency(const struct mw_sweep_rows *rows,
                         const struct mw_sweep_grid *grid,
                         const struct mw_sweep_row *row)
{
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->v[i].is_feasible && is_same_series(grid, &rows->v[i], row)) {
            return row->tokens_per_s_per_gpu / rows->v[i].tokens_per_s_per_gpu;
        }
    }
    return 1;
}

static double train_s(const struct mw_sweep_row *row,
                      const struct mw_sweep_money *money)
{
    return money->tokens / row->tokens_per_s;
}

static double usd(const struct mw_sweep_row *row,
                  const struct mw_sweep_money *money)
{
    double tokens = money->tokens > 0 ? money->tokens : 1e12;

    return row->gpu_hours_per_ttoken * tokens / 1e12 * money->usd_per_gpu_hour;
}

static void head(struct mw_table *t, const struct mw_sweep_grid *grid,
                 const struct mw_sweep_money *money)
{
    static const char *const names[] = {
        "GPUs", "step time", "tokens/s/GPU", "efficiency", "MFU", "peak",
        "tp",   "cp",        "pp",           "vpp",        "dp",  "ep",
        "mbs",  "zero",      "recompute",    "schedule"};

    for (int i = 0; i < grid->n_axes; i++) {
        mw_table_col(t, mw_sweep_key_enums[grid->axis[i]->key].name, true);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i < 14);
    }
    if (money->tokens > 0) {
        mw_table_col(t, "days", true);
    }
    if (money->usd_per_gpu_hour > 0) {
        mw_table_col(t, money->tokens > 0 ? "USD" : "USD per 10^12 tokens",
                     true);
    }
}

static void plan_cells(struct mw_table *t, const struct mw_sweep_rows *rows,
                       const struct mw_sweep_grid *grid,
                       const struct mw_sweep_row *row)
{
    char time[MW_FMT_MAX], peak[MW_FMT_MAX];
    const int64_t ints[] = {row->tp, row->cp, row->pp,          row->vpp,
                            row->dp, row->ep, row->micro_batch, row->zero};

    mw_table_cell(t, "%s", mw_fmt_seconds(row->step_time_s, time));
    mw_table_cell(t, "%.1f", row->tokens_per_s_per_gpu);
    mw_table_cell(t, "%.1f %%", 100 * efficiency(rows, grid, row));
    mw_table_cell(t, "%.1f %%", 100 * row->mfu);
    mw_table_cell(t, "%s", mw_fmt_bytes(row->peak_bytes, peak));
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        mw_table_cell(t, "%lld", (long long)ints[i]);
    }
    mw_table_cell(t, "%s", row->recompute);
    mw_table_cell(t, "%s", row->pp > 1 ? row->schedule : "-");
}

/* The row of the fewest GPUs that end in time, or NULL; ties: the faster. */
static const struct mw_sweep_row *in_time(const struct mw_sweep_rows *rows,
                                          const struct mw_sweep_money *money)
{
    const struct mw_sweep_row *best = NULL;

    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *r = &rows->v[i];

        if (!r->is_feasible || train_s(r, money) > money->within_s) {
            continue;
        }
        if (!best || r->gpus < best->gpus ||
            (r->gpus == best->gpus && r->tokens_per_s > best->tokens_per_s)) {
            best = r;
        }
    }
    return best;
}

static void print_in_time(const struct mw_sweep_rows *rows,
                          const struct mw_sweep_money *money)
{
    const struct mw_sweep_row *r = in_time(rows, money);

    if (!(money->within_s > 0)) {
        return;
    }
    if (!r) {
        printf("No point ends within %.4g days.\n", money->within_s / 86400);
        return;
    }
    printf("Fewest GPUs that end within %.4g days: %lld (%s, %lld nodes), %.4g "
           "days.\n",
           money->within_s / 86400, (long long)r->gpus, r->system,
           (long long)r->nodes, train_s(r, money) / 86400);
}

/* Row of a series at the same place on the first axis. */
static const struct mw_sweep_row *row_at(const struct mw_sweep_rows *rows,
                                         const struct mw_sweep_grid *grid,
                                         const struct mw_sweep_row *series,
                                         const struct mw_sweep_row *at)
{
    char x[32], y[32];

    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *r = &rows->v[i];

        if (r->is_feasible && is_same_series(grid, r, series) &&
            strcmp(value_text(r, grid->axis[0]->key, x),
                   value_text(at, grid->axis[0]->key, y)) == 0) {
            return r;
        }
    }
    return NULL;
}

/* Where two series of the second axis change places in tokens/s/GPU. */
static void print_crossings(const struct mw_sweep_rows *rows,
                            const struct mw_sweep_grid *grid)
{
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t k = i + 1; k < rows->n; k++) {
            const struct mw_sweep_row *a = &rows->v[i], *b = &rows->v[k];
            const struct mw_sweep_row *a0 = NULL, *b0 = NULL;
            char x[32], y[32], from[32], to[32];

            /* a and b: the same place, different series */
            if (is_same_series(grid, a, b) || row_at(rows, grid, a, b) != a ||
                !b->is_feasible) {
                continue;
            }
            for (size_t j = 0; j < i; j++) { /* the place before */
                if (rows->v[j].is_feasible &&
                    is_same_series(grid, &rows->v[j], a) &&
                    row_at(rows, grid, b, &rows->v[j])) {
                    a0 = &rows->v[j];
                    b0 = row_at(rows, grid, b, a0);
                }
            }
            if (!a0 ||
                (a->tokens_per_s_per_gpu > b->tokens_per_s_per_gpu) ==
                    (a0->tokens_per_s_per_gpu > b0->tokens_per_s_per_gpu)) {
                continue;
            }
            enum mw_sweep_key key = grid->axis[1]->key;
            const struct mw_sweep_row *winner =
                a->tokens_per_s_per_gpu > b->tokens_per_s_per_gpu ? a : b;

            printf("%s overtakes %s between %s %s and %s in tokens/s/GPU.\n",
                   value_text(winner, key, x),
                   value_text(winner == a ? b : a, key, y),
                   mw_sweep_key_enums[grid->axis[0]->key].name,
                   value_text(a0, grid->axis[0]->key, from),
                   value_text(a, grid->axis[0]->key, to));
        }
    }
}

void mw_sweep_view_print(const struct mw_sweep_rows *rows,
                         const struct mw_sweep_grid *grid,
                         const struct mw_sweep_money *money)
{
    struct mw_table *t = mw_table_new();
    char buf[32];

    head(t, grid, money);
    for (size_t i = 0; i < rows->n; i++) {
        const struct mw_sweep_row *row = &rows->v[i];

        mw_table_row(t);
        for (int k = 0; k < grid->n_axes; k++) {
            mw_table_cell(t, "%s", value_text(row, grid->axis[k]->key, buf));
        }
        mw_table_cell(t, "%lld", (long long)row->gpus);
        if (!row->is_feasible) {
            for (int k = 0; k < 14; k++) {
                mw_table_cell(t, "-");
            }
            mw_table_cell(t, "none feasible");
        } else {
            plan_cells(t, rows, grid, row);
        }
        if (money->tokens > 0) {
            mw_table_cell(t, row->is_feasible ? "%.2f" : "-",
                          row->is_feasible ? train_s(row, money) / 86400 : 0);
        }
        if (money->usd_per_gpu_hour > 0) {
            mw_table_cell(t, row->is_feasible ? "%.0f" : "-",
                          row->is_feasible ? usd(row, money) : 0);
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    for (size_t i = 0; i < rows->n; i++) {
        if (!rows->v[i].is_feasible) {
            printf("%lld GPUs: none feasible; nearest: %s\n",
                   (long long)rows->v[i].gpus, rows->v[i].reason);
        }
    }
    if (grid->n_axes > 1) {
        print_crossings(rows, grid);
    }
    print_in_time(rows, money);
}

static json_t *row_json(const struct mw_sweep_row *r,
                        const struct mw_sweep_money *money)
{
    json_t *o = json_object();
    const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"nodes", r->nodes},
                {"gpus", r->gpus},
                {"seq", r->seq},
                {"global_batch", r->global_batch},
                {"tp", r->tp},
                {"cp", r->cp},
                {"pp", r->pp},
                {"vpp", r->vpp},
                {"dp", r->dp},
                {"ep", r->ep},
                {"etp", r->etp},
                {"zero", r->zero},
                {"micro_batch", r->micro_batch}};

    mw_json_set_str(o, "model", r->model);
    mw_json_set_str(o, "system", r->system);
    mw_json_set_str(o, "stack", r->stack);
    mw_json_set_real(o, "net", r->net);
    mw_json_set_bool(o, "feasible", r->is_feasible != 0);
    mw_json_set_bool(o, "proved_optimal", r->is_proved != 0);
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        mw_json_set_int(o, ints[i].key, ints[i].value);
    }
    mw_json_set_bool(o, "sp", r->sp != 0);
    mw_json_set_str(o, "recompute", r->recompute);
    mw_json_set_str(o, "schedule", r->schedule);
    mw_json_set_str(o, "order", r->order);
    mw_json_set_real(o, "step_time_s", r->step_time_s);
    mw_json_set_real(o, "tokens_per_s", r->tokens_per_s);
    mw_json_set_real(o, "tokens_per_s_per_gpu", r->tokens_per_s_per_gpu);
    mw_json_set_real(o, "mfu", r->mfu);
    mw_json_set_real(o, "peak_bytes", r->peak_bytes);
    mw_json_set_real(o, "gpu_hours_per_ttoken", r->gpu_hours_per_ttoken);
    if (money->tokens > 0 && r->is_feasible) {
        mw_json_set_real(o, "train_s", train_s(r, money));
    }
    if (money->usd_per_gpu_hour > 0 && r->is_feasible) {
        mw_json_set_real(o, "usd", usd(r, money));
    }
    mw_json_set_str(o, "reason", r->reason);
    return o;
}

json_t *mw_sweep_view_json(const struct mw_sweep_rows *rows,
                           const struct mw_sweep_money *money)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_int(o, "points", (long long)rows->n);
    for (size_t i = 0; i < rows->n; i++) {
        json_array_append_new(list, row_json(&rows->v[i], money));
    }
    mw_json_set(o, "rows", list);
    if (money->within_s > 0) {
        const struct mw_sweep_row *r = in_time(rows, money);

        mw_json_set(o, "fewest_gpus_in_time",
                    r ? json_integer(r->gpus) : json_null());
    }
    return o;
}

/* ---- curves ----------------------------------------------------------------
 */
enum { SERIES_MAX = 32 };

static double number_at(const struct mw_sweep_row *row, enum mw_sweep_key key)
{
    return key == MW_SWEEP_NODES      ? (double)row->gpus
           : key == MW_SWEEP_PER_NODE ? (double)(row->gpus / row->nodes)
           : key == MW_SWEEP_SEQ      ? (double)row->seq
           : key == MW_SWEEP_BATCH    ? (double)row->global_batch
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

/* Over the value at the smallest x: scaling efficiency. */
static void normalise(struct mw_plot_series *series, double *y)
{
    size_t least = 0;

    for (size_t k = 1; k < series->n; k++) {
        least = series->x[k] < series->x[least] ? k : least;
    }
    double base = series->n > 0 ? y[least] : 1;

    for (size_t k = 0; k < series->n; k++) {
        y[k] /= base;
    }
}

static size_t collect(const struct mw_sweep_rows *rows,
                      const struct mw_sweep_grid *grid,
                      const struct mw_sweep_money *money,
                      enum mw_sweep_curve curve, struct mw_plot_series *series,
                      double *numbers, char (*labels)[128])
{
    size_t n = 0, at = 0;

    for (size_t i = 0; i < rows->n && n < SERIES_MAX; i++) {
        bool is_new = true;
        struct mw_plot_series *s = &series[n];
        char buf[32];

        for (size_t k = 0; k < i && is_new; k++) {
            is_new = !is_same_series(grid, &rows->v[k], &rows->v[i]);
        }
        if (!is_new) {
            continue;
        }
        *s = (struct mw_plot_series){
            .label = labels[n], .x = numbers + at, .y = numbers + at + rows->n};
        snprintf(labels[n], 128, grid->n_axes > 1 ? "%.40s" : "best plan",
                 grid->n_axes > 1
                     ? value_text(&rows->v[i], grid->axis[1]->key, buf)
                     : "");
        for (size_t k = i; k < rows->n; k++) {
            if (rows->v[k].is_feasible &&
                is_same_series(grid, &rows->v[k], &rows->v[i])) {
                numbers[at + s->n] = number_at(&rows->v[k], grid->axis[0]->key);
                numbers[at + rows->n + s->n] =
                    height_of(&rows->v[k], money, curve);
                s->n++;
            }
        }
        if (curve == MW_CURVE_EFFICIENCY) {
            normalise(s, numbers + at + rows->n);
        }
        at += 2 * rows->n;
        n++;
    }
    return n;
}

enum mw_status mw_sweep_view_plot(const struct mw_sweep_rows *rows,
                                  const struct mw_sweep_grid *grid,
                                  const struct mw_sweep_money *money,
                                  enum mw_sweep_curve curve, const char *title,
                                  const char *path, struct mw_err *err)
{
    static const char *const labels_y[] = {
        [MW_CURVE_RATE] = "tokens/s/GPU",
        [MW_CURVE_EFFICIENCY] = "scaling efficiency",
        [MW_CURVE_DAYS] = "days to train",
        [MW_CURVE_COST] = "US dollars to train"};
    static const char *const labels_x[] = {"GPUs",
                                           "",
                                           "",
                                           "sequence length",
                                           "global batch",
                                           "factor on the network",
                                           "GPUs of a node"};
    struct mw_plot_series series[SERIES_MAX];
    char labels[SERIES_MAX][128];

    if (grid->n_axes == 0 || grid->axis[0]->key == MW_SWEEP_SYSTEM ||
        grid->axis[0]->key == MW_SWEEP_MODEL) {
        return mw_fail(err, MW_EUSAGE,
                       "--plot: the first --vary must be nodes, seq, "
                       "global_batch, net or gpus_per_node");
    }
    double *numbers =
        mw_calloc(2 * SERIES_MAX * (rows->n + 1), sizeof *numbers);
    size_t n = collect(rows, grid, money, curve, series, numbers, labels);
    struct mw_plot_axes axes = {
        .title = title,
        .x = {labels_x[grid->axis[0]->key], MW_PLOT_NUMBER, true},
        .y = {labels_y[curve], MW_PLOT_NUMBER, false}};
    enum mw_status status = mw_plot_curves(&axes, series, n, path, err);

    mw_free(numbers);
    return status;
}
