/*
 * How sure a ranking is, shown: times and ranks when the world differs from
 * the tables (`plan --robust`), and which plans the model's own error does not
 * tell apart.
 */
#include "cli/plan_view.h"

#include "base/table.h"

#include <math.h>
#include <stdio.h>

double mw_plan_view_fastest(const struct mw_search_result *r)
{
    double least = HUGE_VAL;

    for (size_t i = 0; i < r->n_plans; i++) {
        least = fmin(least, r->plans[i].step_time_s);
    }
    return least;
}

void mw_plan_view_tied(const struct mw_cost_ctx *ctx,
                       const struct mw_search_result *r)
{
    const struct mw_model_error *error = mw_robust_error(ctx);
    double best_s = mw_plan_view_fastest(r);
    size_t n = 0;

    if (error == NULL || r->n_plans < 2) {
        return;
    }
    for (size_t i = 0; i < r->n_plans; i++) {
        n += mw_robust_is_tied(error, r->plans[i].step_time_s, best_s);
    }
    printf(
        "Of the %zu plans found, %zu %s within %.1f %% of the fastest: p90 of "
        "our error (%s, %lld rows), so measurements may rank them "
        "otherwise.\n",
        r->n_plans, n, n == 1 ? "is" : "are", 100 * error->p90, error->group,
        (long long)error->rows);
}

json_t *mw_plan_view_error_json(const struct mw_model_error *error)
{
    if (error == NULL) {
        return json_null();
    }
    json_t *o = json_object();

    mw_json_set_str(o, "group", error->group);
    mw_json_set_int(o, "rows", error->rows);
    mw_json_set_real(o, "p50", error->p50);
    mw_json_set_real(o, "p90", error->p90);
    mw_json_set_real(o, "p99", error->p99);
    return o;
}

static void add_row(struct mw_table *t, const struct mw_robust_row *row,
                    size_t i, bool has_error)
{
    mw_table_row(t);
    mw_table_cell(t, "%zu", i + 1);
    for (int k = 0; k < MW_ROBUST_CASES; k++) {
        char time[MW_FMT_MAX];

        mw_table_cell(t, "%s (%d)", mw_fmt_seconds(row->step_time_s[k], time),
                      row->rank[k]);
    }
    if (has_error && row->first_rank < row->last_rank) {
        mw_table_cell(t, "%d to %d%s", row->first_rank, row->last_rank,
                      row->is_tied ? " ~" : "");
    } else if (has_error) {
        mw_table_cell(t, "%d%s", row->first_rank, row->is_tied ? " ~" : "");
    }
    mw_table_cell(t, "%s", row->changes ? "*" : "");
}

void mw_plan_view_robust(const struct mw_cost_ctx *ctx,
                         const struct mw_robust_row *rows, size_t n)
{
    const struct mw_model_error *error = mw_robust_error(ctx);
    struct mw_table *t = mw_table_new();

    printf("\nStep time and rank when the world differs (* the rank "
           "changes):\n");
    mw_table_col(t, "#", true);
    for (int k = 0; k < MW_ROBUST_CASES; k++) {
        mw_table_col(t, mw_robust_case(k)->name, true);
    }
    if (error != NULL) {
        mw_table_col(t, "rank within our error", true);
    }
    mw_table_col(t, "", false);
    for (size_t i = 0; i < n; i++) {
        add_row(t, &rows[i], i, error != NULL);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    if (error != NULL) {
        printf("Our error: p90 %.1f %% over %lld measured rows (%s); ~ cannot "
               "be told from the fastest.\n",
               100 * error->p90, (long long)error->rows, error->group);
    }
}

static json_t *cases_json(const struct mw_robust_row *row)
{
    json_t *cases = json_array();

    for (int k = 0; k < MW_ROBUST_CASES; k++) {
        json_t *c = json_object();

        mw_json_set_str(c, "case", mw_robust_case(k)->name);
        mw_json_set_real(c, "step_time_s", row->step_time_s[k]);
        mw_json_set_int(c, "rank", row->rank[k]);
        json_array_append_new(cases, c);
    }
    return cases;
}

json_t *mw_plan_view_robust_json(const struct mw_robust_row *rows, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object();

        mw_json_set_bool(o, "rank_changes", rows[i].changes);
        mw_json_set_bool(o, "within_model_error", rows[i].is_tied);
        mw_json_set_int(o, "first_rank", rows[i].first_rank);
        mw_json_set_int(o, "last_rank", rows[i].last_rank);
        mw_json_set(o, "cases", cases_json(&rows[i]));
        json_array_append_new(list, o);
    }
    return list;
}
