/* `meshwright validate` on tables of measured collectives: totals, a row per
 * unit (a file, or machine and version inside a collection), what was skipped
 * and why. */
#include "cli/verb_validate_view.h"

#include "base/table.h"
#include "sim/coll/coll_fit.h"

#include <math.h>
#include <stdio.h>

static void print_people(const struct mw_coll_validation *v,
                         enum mw_coll_model model)
{
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "unit", false);
    mw_table_col(t, "nodes", true);
    mw_table_col(t, "rows", true);
    mw_table_col(t, "median", true);
    mw_table_col(t, "rows >= 1 MiB", true);
    mw_table_col(t, "median >= 1 MiB", true);
    for (size_t i = 0; i < v->n_units; i++) {
        const struct mw_coll_score *u = &v->units[i];
        mw_table_row(t);
        mw_table_cell(t, "%s", u->unit);
        mw_table_cell(t, "%d", u->n_nodes);
        mw_table_cell(t, "%zu", u->rows);
        mw_table_cell(t, "%.1f %%", 100 * u->median_ape);
        mw_table_cell(t, "%zu", u->big_rows);
        mw_table_cell(t, u->big_rows > 0 ? "%.1f %%" : "-",
                      100 * u->big_median_ape);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\nmodel %s: %zu of %zu rows predicted; MAPE %.1f %%, median %.1f "
           "%%, p90 %.1f %%, bias %+.1f %%\n",
           mw_coll_model_name(model), v->predicted, v->rows, 100 * v->mape,
           100 * v->median_ape, 100 * v->p90_ape, 100 * v->bias);
    if (model == MW_COLL_FIT) {
        printf("The ratios of fit were fitted on published tables: a table "
               "that was among them is scored on itself here. Errors with "
               "each left out: docs/collectives.md.\n");
    }
    for (size_t i = 0; i < v->n_reasons; i++) {
        printf("%7zu skipped: %s\n", v->reasons[i].rows, v->reasons[i].why);
    }
}

static json_t *group_json(const char *name, size_t rows, double median_ape)
{
    json_t *o = json_object();
    mw_json_set_str(o, "name", name);
    mw_json_set_int(o, "rows", (long long)rows);
    mw_json_set_real(o, "median_ape", median_ape);
    return o;
}

static json_t *units_json(const struct mw_coll_validation *v)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < v->n_units; i++) {
        const struct mw_coll_score *u = &v->units[i];
        json_t *o = group_json(u->unit, u->rows, u->median_ape);
        mw_json_set_int(o, "nodes", u->n_nodes);
        mw_json_set_int(o, "big_rows", (long long)u->big_rows);
        mw_json_set_real(o, "big_median_ape",
                         u->big_rows > 0 ? u->big_median_ape : (double)NAN);
        json_array_append_new(groups, o);
    }
    return groups;
}

static int print_json(const struct mw_coll_validation *v,
                      enum mw_coll_model model)
{
    json_t *o = json_object(), *skipped = json_object();
    mw_json_set_str(o, "model", mw_coll_model_name(model));
    mw_json_set_int(o, "rows", (long long)v->rows);
    mw_json_set_int(o, "predicted", (long long)v->predicted);
    for (size_t i = 0; i < v->n_reasons; i++) {
        mw_json_set_int(skipped, v->reasons[i].why,
                        (long long)v->reasons[i].rows);
    }
    mw_json_set(o, "skipped", skipped);
    mw_json_set(o, "filled", json_object());
    json_t *overall = group_json("overall", v->predicted, v->median_ape);
    mw_json_set_real(overall, "mape", v->mape);
    mw_json_set_real(overall, "p90_ape", v->p90_ape);
    mw_json_set_real(overall, "bias", v->bias);
    mw_json_set(o, "overall", overall);
    mw_json_set(o, "groups", units_json(v));
    return mw_cli_print_json(o);
}

enum mw_status mw_validate_coll(const struct mw_hwdb *db,
                                const char *const *files, int n_files,
                                const char *model_name, bool is_json,
                                struct mw_validate_gate *out_gate,
                                struct mw_err *err)
{
    enum mw_coll_model model = MW_COLL_FIT;
    struct mw_coll_validation v = {0};
    enum mw_status status = MW_OK;
    if (model_name != NULL) {
        status = mw_coll_model_parse(model_name, &model, err);
    }
    if (status == MW_OK) {
        status = mw_coll_validate(db, files, (size_t)n_files, model, &v, err);
    }
    if (status == MW_OK) {
        if (is_json) {
            print_json(&v, model);
        } else {
            print_people(&v, model);
        }
        *out_gate = (struct mw_validate_gate){v.rows, v.predicted, v.mape};
    }
    mw_free(v.units);
    return status;
}
