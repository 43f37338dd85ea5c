/*
 * Sweeps shown. Efficiency is tokens per second and GPU over that of the first
 * point that has the same values on all axes but the first (the smallest
 * cluster, as a rule).
 */
#include "cli/sweep_view.h"

#include "base/table.h"
#include "base/units.h"
#include "cli/sweep_cross.h"

#include <stdio.h>
#include <string.h>

const char *mw_sweep_value_text(const struct mw_sweep_row *row,
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
    case MW_SWEEP_NICS:
        snprintf(buf, 32, "%lld", (long long)row->nics);
        return buf;
    case MW_SWEEP_KEY_COUNT:
        break;
    }
    return "";
}

bool mw_sweep_same_series(const struct mw_sweep_grid *grid,
                          const struct mw_sweep_row *a,
                          const struct mw_sweep_row *b)
{
    char x[32], y[32];

    for (int i = 1; i < grid->n_axes; i++) {
        enum mw_sweep_key key = grid->axis[i]->key;

        if (strcmp(mw_sweep_value_text(a, key, x),
                   mw_sweep_value_text(b, key, y)) != 0) {
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
        if (rows->v[i].is_feasible &&
            mw_sweep_same_series(grid, &rows->v[i], row)) {
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

/* Points whose search was cut short. */
static void print_unproved(const struct mw_sweep_rows *rows)
{
    size_t n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        n += rows->v[i].is_feasible && !rows->v[i].is_proved;
    }
    if (n > 0) {
        printf("%zu of %zu points: the best found, not proved best (is_proved "
               "0 in the CSV; --again searches them anew).\n",
               n, rows->n);
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
            mw_table_cell(t, "%s",
                          mw_sweep_value_text(row, grid->axis[k]->key, buf));
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
    print_unproved(rows);
    mw_sweep_cross_print(rows, grid, money);
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
                {"nics", r->nics},
                {"domain_nodes", r->domain_nodes},
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
                           const struct mw_sweep_grid *grid,
                           const struct mw_sweep_money *money)
{
    json_t *o = json_object(), *list = json_array();

    mw_json_set_int(o, "points", (long long)rows->n);
    for (size_t i = 0; i < rows->n; i++) {
        json_array_append_new(list, row_json(&rows->v[i], money));
    }
    mw_json_set(o, "rows", list);
    mw_sweep_cross_json(rows, grid, money, o);
    if (money->within_s > 0) {
        const struct mw_sweep_row *r = in_time(rows, money);

        mw_json_set(o, "fewest_gpus_in_time",
                    r ? json_integer(r->gpus) : json_null());
    }
    return o;
}
