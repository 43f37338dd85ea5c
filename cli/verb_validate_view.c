/*
 * The result of `validate`: rows (all when there are few), groups, what was
 * filled and skipped. JSON keys are those of the design document; ratios are
 * fractions, and null where a figure does not exist (no alternatives).
 */
#include "cli/verb_validate_view.h"

#include "base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_SHOWN = 60 };

/* ---- people ----------------------------------------------------------------
 */
static void cell_percent(struct mw_table *t, double fraction)
{
    if (isnan(fraction)) {
        mw_table_cell(t, "-");
    } else {
        mw_table_cell(t, "%.1f %%", 100 * fraction);
    }
}

static void print_rows(const struct mw_validate *v)
{
    static const char *const names[] = {"id", "layout", "measured", "predicted",
                                        "error"};
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i > 1);
    }
    for (size_t i = 0; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        if (mw_validate_is_timed(r)) {
            mw_table_row(t);
            mw_table_cell(t, "%s", r->id);
            mw_table_cell(t, "%s", r->layout);
            mw_table_cell(t, "%s", mw_fmt_seconds(r->measured_s, text));
            mw_table_cell(t, "%s", mw_fmt_seconds(r->predicted_s, text));
            mw_table_cell(t, "%+.1f %%",
                          100 * (r->predicted_s / r->measured_s - 1));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\n");
}

static void add_group(struct mw_table *t, const struct mw_validate_group *g)
{
    mw_table_row(t);
    mw_table_cell(t, "%s", g->name);
    mw_table_cell(t, "%" PRIu64, g->rows);
    cell_percent(t, g->mape);
    cell_percent(t, g->median_ape);
    cell_percent(t, g->p90_ape);
    cell_percent(t, g->bias);
    cell_percent(t, g->order_rate);
    cell_percent(t, g->regret_median);
}

static void print_groups(const struct mw_validate *v)
{
    static const char *const names[] = {"group", "rows", "MAPE",  "median",
                                        "p90",   "bias", "order", "regret"};
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i > 0);
    }
    for (size_t g = 0; g < v->groups.n; g++) {
        if (v->groups.v[g].rows > 0) {
            add_group(t, &v->groups.v[g]);
        }
    }
    add_group(t, &v->overall);
    if (v->quiet.rows < v->overall.rows) {
        add_group(t, &v->quiet);
    }
    if (v->specified.rows > 0 && v->filled.rows > 0) {
        add_group(t, &v->specified);
        add_group(t, &v->filled);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static uint64_t count_fill(const struct mw_validate *v, int fill)
{
    uint64_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        n += v->rows.v[i].skipped == NULL &&
             (v->rows.v[i].fills >> fill & 1) != 0;
    }
    return n;
}

static bool is_first_reason(const struct mw_validate *v, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (v->rows.v[j].skipped != NULL &&
            strcmp(v->rows.v[j].skipped, v->rows.v[i].skipped) == 0) {
            return false;
        }
    }
    return true;
}

static uint64_t count_reason(const struct mw_validate *v, const char *reason)
{
    uint64_t n = 0;

    for (size_t i = 0; i < v->rows.n; i++) {
        n += v->rows.v[i].skipped != NULL &&
             strcmp(v->rows.v[i].skipped, reason) == 0;
    }
    return n;
}

static void print_notes(const struct mw_validate *v)
{
    printf("\nFilled, by rule (rows; *: in place of an empty cell):\n");
    for (int fill = 0; fill < MW_FILL_COUNT; fill++) {
        if (count_fill(v, fill) > 0) {
            printf("  %5" PRIu64 " %c%s: %s\n", count_fill(v, fill),
                   mw_fill_is_guess((enum mw_fill)fill) ? '*' : ' ',
                   mw_fill_name((enum mw_fill)fill),
                   mw_fill_text((enum mw_fill)fill));
        }
    }
    if (mw_validate_predicted(v) < v->rows.n) {
        printf("\nSkipped, by reason (rows):\n");
    }
    for (size_t i = 0; i < v->rows.n; i++) {
        const char *reason = v->rows.v[i].skipped;

        if (reason != NULL && is_first_reason(v, i)) {
            printf("  %5" PRIu64 "  %s\n", count_reason(v, reason), reason);
        }
    }
}

static void print_people(const struct mw_validate *v, bool all_rows)
{
    if (v->overall.rows > 0 && (all_rows || v->overall.rows <= ROWS_SHOWN)) {
        print_rows(v);
    }
    if (v->memory_overall.rows > 0 &&
        (all_rows || v->memory_overall.rows <= ROWS_SHOWN)) {
        mw_validate_memory_rows(v);
    }
    printf("%" PRIu64 " of %zu rows predicted\n", mw_validate_predicted(v),
           v->rows.n);
    if (v->overall.rows > 0) {
        print_groups(v);
    }
    mw_validate_worst_print(v);
    mw_validate_regret_print(v);
    mw_validate_releases_print(v);
    mw_validate_memory_print(v);
    print_notes(v);
}

/* ---- JSON ------------------------------------------------------------------
 */
static json_t *group_json(const struct mw_validate_group *g)
{
    json_t *o = json_object();

    mw_json_set_str(o, "name", g->name);
    mw_json_set_int(o, "rows", (long long)g->rows);
    mw_json_set_real(o, "mape", g->mape);
    mw_json_set_real(o, "median_ape", g->median_ape);
    mw_json_set_real(o, "p90_ape", g->p90_ape);
    mw_json_set_real(o, "bias", g->bias);
    mw_json_set_real(o, "order_rate", g->order_rate);
    mw_json_set_real(o, "regret_median", g->regret_median);
    mw_json_set_int(o, "memory_rows", (long long)g->memory_rows);
    mw_json_set_real(o, "memory_mape", g->memory_mape);
    mw_json_set_real(o, "memory_bias", g->memory_bias);
    mw_json_set_int(o, "oom_rows", (long long)g->oom_rows);
    mw_json_set_int(o, "oom_right", (long long)g->oom_right);
    mw_json_set_int(o, "ran_rows", (long long)g->ran_rows);
    mw_json_set_int(o, "ran_right", (long long)g->ran_right);
    return o;
}

static json_t *row_json(const struct mw_validate_row *r)
{
    json_t *o = json_object();

    mw_json_set_str(o, "id", r->id);
    mw_json_set_str(o, "group", r->group);
    if (r->skipped != NULL) {
        mw_json_set_str(o, "skipped", r->skipped);
        return o;
    }
    mw_json_set_str(o, "layout", r->layout);
    if (r->measured_s > 0) {
        mw_json_set_real(o, "measured_s", r->measured_s);
        mw_json_set_real(o, "predicted_s", r->predicted_s);
        mw_json_set(o, "breakdown", mw_validate_breakdown_json(r));
    }
    mw_json_set_real(o, "peak_bytes", r->peak_bytes);
    mw_json_set_bool(o, "fits", r->fits);
    mw_json_set_bool(o, "oom", r->is_oom);
    mw_json_set_bool(o, "noisy", r->is_noisy);
    if (r->n_memory > 0) {
        mw_json_set_real(o, "measured_bytes", r->memory[0].measured_bytes);
        mw_json_set_real(o, "predicted_bytes", r->memory[0].predicted_bytes);
        mw_json_set(o, "memory", mw_validate_row_memory_json(r));
    }
    return o;
}

static json_t *view_json(const struct mw_validate *v)
{
    json_t *o = json_object(), *skipped = json_object(),
           *filled = json_object(), *groups = json_array(),
           *rows = json_array();

    for (size_t i = 0; i < v->rows.n; i++) {
        const char *reason = v->rows.v[i].skipped;

        json_array_append_new(rows, row_json(&v->rows.v[i]));
        if (reason != NULL && is_first_reason(v, i)) {
            mw_json_set_int(skipped, reason,
                            (long long)count_reason(v, reason));
        }
    }
    for (int fill = 0; fill < MW_FILL_COUNT; fill++) {
        if (count_fill(v, fill) > 0) {
            mw_json_set_int(filled, mw_fill_name((enum mw_fill)fill),
                            (long long)count_fill(v, fill));
        }
    }
    for (size_t g = 0; g < v->groups.n; g++) {
        json_array_append_new(groups, group_json(&v->groups.v[g]));
    }
    mw_json_set_int(o, "rows", (long long)v->rows.n);
    mw_json_set_int(o, "predicted", (long long)mw_validate_predicted(v));
    mw_json_set(o, "skipped", skipped);
    mw_json_set(o, "filled", filled);
    mw_json_set(o, "overall", group_json(&v->overall));
    mw_json_set(o, "without_noisy", group_json(&v->quiet));
    mw_json_set(o, "fully_specified", group_json(&v->specified));
    mw_json_set(o, "filled_by_rule", group_json(&v->filled));
    mw_json_set(o, "groups", groups);
    mw_json_set(o, "worst", mw_validate_worst_json(v));
    mw_json_set(o, "releases", mw_validate_releases_json(v));
    mw_json_set(o, "regret", mw_validate_regret_json(v));
    mw_json_set(o, "memory", mw_validate_memory_json(v));
    mw_json_set(o, "fits", mw_validate_fits_json(&v->overall));
    mw_json_set(o, "per_row", rows);
    return o;
}

void mw_validate_view_print(const struct mw_validate *v, bool as_json,
                            bool all_rows)
{
    if (as_json) {
        mw_cli_print_json(view_json(v));
    } else {
        print_people(v, all_rows);
    }
}
