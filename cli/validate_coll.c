/* `meshwright validate` on tables of measured collectives: totals, classes, a
 * row per unit (a file, or machine and version inside a collection), what was
 * not known and taken as the default, what was skipped and why. */
#include "cli/verb_validate_view.h"

#include "base/log.h"
#include "base/table.h"
#include "sim/coll/coll_fit.h"
#include "sim/coll/moe_fit.h"

#include <math.h>
#include <stdio.h>

static void error_cells(struct mw_table *t, const struct mw_coll_error *e)
{
    mw_table_cell(t, "%.1f %%", 100 * e->median);
    mw_table_cell(t, e->big_rows > 0 ? "%.1f %%" : "-", 100 * e->big_median);
}

static void error_columns(struct mw_table *t, bool is_left_out)
{
    mw_table_col(t, "median", true);
    mw_table_col(t, ">= 1 MiB", true);
    if (is_left_out) {
        mw_table_col(t, "left out", true);
        mw_table_col(t, ">= 1 MiB", true);
    }
}

static void print_units(const struct mw_coll_validation *v)
{
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "unit", false);
    mw_table_col(t, "class", false);
    mw_table_col(t, "nodes", true);
    mw_table_col(t, "rows", true);
    error_columns(t, v->left_out != NULL);
    for (size_t i = 0; i < v->n_units; i++) {
        const struct mw_coll_score *u = &v->units[i];
        mw_table_row(t);
        mw_table_cell(t, "%s", u->unit);
        mw_table_cell(t, "%s", mw_coll_class_name(u->cls));
        mw_table_cell(t, "%d", u->n_nodes);
        mw_table_cell(t, "%zu", u->error.rows);
        error_cells(t, &u->error);
        if (v->left_out) {
            error_cells(t, &v->left_out[i].error);
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_classes(const struct mw_coll_validation *v)
{
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "class", false);
    mw_table_col(t, "median over", false);
    mw_table_col(t, "number", true);
    error_columns(t, v->left_out != NULL);
    for (int c = 0; c < MW_COLL_CLASSES; c++) {
        for (int over = 0; over < 2 && v->cls[c].rows.rows > 0; over++) {
            const struct mw_coll_class_score *s = &v->cls[c];
            const struct mw_coll_class_score *l = &v->left_out_cls[c];
            mw_table_row(t);
            mw_table_cell(t, "%s", mw_coll_class_name((enum mw_coll_class)c));
            mw_table_cell(t, over ? "rows" : "units");
            mw_table_cell(t, "%zu", over ? s->rows.rows : s->units.rows);
            error_cells(t, over ? &s->rows : &s->units);
            if (v->left_out) {
                error_cells(t, over ? &l->rows : &l->units);
            }
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    if (v->small_rows > 0) {
        printf("all-to-all below 64 KiB (not in the classes): %zu of %zu rows "
               "within a factor of 2\n",
               v->small_within, v->small_rows);
    }
}

static void print_people(const struct mw_coll_validation *v,
                         enum mw_coll_model model)
{
    print_units(v);
    printf("\n");
    print_classes(v);
    printf("\nmodel %s: %zu of %zu rows predicted; MAPE %.1f %%, median %.1f "
           "%%, p90 %.1f %%, bias %+.1f %%\n",
           mw_coll_model_name(model), v->predicted, v->rows, 100 * v->mape,
           100 * v->median_ape, 100 * v->p90_ape, 100 * v->bias);
    if (model == MW_COLL_FIT && !v->left_out) {
        printf("The corrections of fit were fitted on published tables: one "
               "that was among them is scored on itself here; --left-out "
               "fits without it.\n");
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

static void set_big(json_t *o, const char *key, const struct mw_coll_error *e)
{
    mw_json_set_real(o, key, e->big_rows > 0 ? e->big_median : (double)NAN);
}

static json_t *units_json(const struct mw_coll_validation *v)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < v->n_units; i++) {
        const struct mw_coll_score *u = &v->units[i];
        json_t *o = group_json(u->unit, u->error.rows, u->error.median);
        mw_json_set_str(o, "class", mw_coll_class_name(u->cls));
        mw_json_set_int(o, "nodes", u->n_nodes);
        mw_json_set_int(o, "big_rows", (long long)u->error.big_rows);
        set_big(o, "big_median_ape", &u->error);
        if (v->left_out) {
            const struct mw_coll_error *e = &v->left_out[i].error;
            mw_json_set_real(o, "left_out_median_ape", e->median);
            set_big(o, "left_out_big_median_ape", e);
        }
        json_array_append_new(groups, o);
    }
    return groups;
}

static void set_class(json_t *o, const char *prefix,
                      const struct mw_coll_class_score *s)
{
    char key[64];
    snprintf(key, sizeof key, "%smedian_ape", prefix);
    mw_json_set_real(o, key, s->rows.median);
    snprintf(key, sizeof key, "%sbig_median_ape", prefix);
    set_big(o, key, &s->rows);
    snprintf(key, sizeof key, "%sunits_median_ape", prefix);
    mw_json_set_real(o, key, s->units.median);
    snprintf(key, sizeof key, "%sunits_big_median_ape", prefix);
    set_big(o, key, &s->units);
}

static json_t *classes_json(const struct mw_coll_validation *v)
{
    json_t *list = json_array();
    for (int c = 0; c < MW_COLL_CLASSES; c++) {
        const struct mw_coll_class_score *s = &v->cls[c];
        if (s->rows.rows > 0) {
            json_t *o = json_object();
            mw_json_set_str(o, "name",
                            mw_coll_class_name((enum mw_coll_class)c));
            mw_json_set_int(o, "rows", (long long)s->rows.rows);
            mw_json_set_int(o, "units", (long long)s->units.rows);
            set_class(o, "", s);
            if (v->left_out) {
                set_class(o, "left_out_", &v->left_out_cls[c]);
            }
            json_array_append_new(list, o);
        }
    }
    return list;
}

static json_t *notices_json(const struct mw_coll_validation *v)
{
    json_t *list = json_array();
    for (size_t i = 0; i < v->n_notices; i++) {
        json_t *o = json_object();
        mw_json_set_str(o, "text", v->notices[i].text);
        mw_json_set_int(o, "rows", (long long)v->notices[i].rows);
        json_array_append_new(list, o);
    }
    return list;
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
    mw_json_set(o, "notices", notices_json(v));
    json_t *overall = group_json("overall", v->predicted, v->median_ape);
    mw_json_set_real(overall, "mape", v->mape);
    mw_json_set_real(overall, "p90_ape", v->p90_ape);
    mw_json_set_real(overall, "bias", v->bias);
    mw_json_set(o, "overall", overall);
    mw_json_set(o, "classes", classes_json(v));
    json_t *small = json_object();
    mw_json_set_int(small, "rows", (long long)v->small_rows);
    mw_json_set_int(small, "within_factor_2", (long long)v->small_within);
    mw_json_set(o, "all_to_all_below_64KiB", small);
    mw_json_set(o, "groups", units_json(v));
    return mw_cli_print_json(o);
}

/* What was not known goes to stderr even when stdout is JSON. */
static void print_notices(const struct mw_coll_validation *v)
{
    for (size_t i = 0; i < v->n_notices; i++) {
        mw_log(MW_LOG_WARN, "validate", "%s (%zu rows)", v->notices[i].text,
               v->notices[i].rows);
    }
}

/* Scores the files: dispatch and combine of experts, or collectives. */
static enum mw_status score(const struct mw_hwdb *db,
                            const struct mw_validate_coll_opts *opts,
                            enum mw_coll_model model,
                            struct mw_coll_validation *v, struct mw_err *err)
{
    size_t n = (size_t)opts->n_files, n_moe = 0;
    for (size_t i = 0; i < n; i++) {
        n_moe += mw_moe_is_table(opts->files[i]);
    }
    if (n_moe == 0) {
        return mw_coll_validate(db, opts->files, n, model, opts->is_left_out, v,
                                err);
    }
    if (n_moe != n) {
        return mw_fail(err, MW_EUSAGE,
                       "expert dispatch and combine are validated apart from "
                       "NCCL's collectives; %zu of %zu files are of experts",
                       n_moe, n);
    }
    if (model != MW_COLL_FIT) {
        return mw_fail(err, MW_EUSAGE,
                       "expert dispatch and combine have no model %s, only fit",
                       mw_coll_model_name(model));
    }
    return mw_moe_validate(db, opts->files, n, opts->is_left_out, v, err);
}

enum mw_status mw_validate_coll(const struct mw_hwdb *db,
                                const struct mw_validate_coll_opts *opts,
                                struct mw_validate_gate *out_gate,
                                struct mw_err *err)
{
    enum mw_coll_model model = MW_COLL_FIT;
    struct mw_coll_validation v = {0};
    enum mw_status status = MW_OK;
    if (opts->model_name != NULL) {
        status = mw_coll_model_parse(opts->model_name, &model, err);
    }
    if (status == MW_OK) {
        status = score(db, opts, model, &v, err);
    }
    if (status == MW_OK) {
        print_notices(&v);
        if (opts->is_json) {
            print_json(&v, model);
        } else {
            print_people(&v, model);
        }
        *out_gate = (struct mw_validate_gate){v.rows, v.predicted, v.mape};
    }
    mw_coll_validation_release(&v);
    return status;
}
