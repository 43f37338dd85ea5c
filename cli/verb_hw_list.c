/*
 * `hw list`: an overview of systems, devices and tables, or every row of one
 * table. Systems and devices have a short form for people; JSON has all
 * columns of every table.
 */
#include "cli/cli.h"
#include "cli/verb_hw.h"

#include "base/csv.h"
#include "base/table.h"
#include "base/units.h"
#include "base/yaml.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A cell as JSON: a number, text, or null when it is not known. */
json_t *mw_hw_value_json(const char *text, bool is_number)
{
    double v = 0;
    if (*text == '\0') {
        return json_null();
    }
    if (!is_number || mw_double_parse(text, &v, NULL) != MW_OK) {
        return json_string(text);
    }
    bool is_integer = strcspn(text, ".eE") == strlen(text);
    return is_integer ? json_integer((json_int_t)v) : mw_json_real(v);
}

/* ---- list -------------------------------------------------------------------
 */

static void number_cell(struct mw_table *t, double value)
{
    if (isnan(value)) {
        mw_table_cell(t, "-");
    } else {
        mw_table_cell(t, "%.6g", value);
    }
}

static void print_systems(const struct mw_hwdb *db)
{
    static const char *const cols[] = {"system",    "GPUs",     "device",
                                       "domain",    "GB/s GPU", "NICs",
                                       "GB/s node", "conf",     "name"};
    struct mw_table *t = mw_table_new();
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        mw_table_col(t, cols[i], i == 1 || (i >= 3 && i <= 6));
    }
    for (size_t i = 0; i < mw_hwdb_system_count(db); i++) {
        const struct mw_system *s = mw_hwdb_system_at(db, i);
        mw_table_row(t);
        mw_table_cell(t, "%s", s->slug);
        mw_table_cell(t, "%d", s->gpus_per_node);
        mw_table_cell(t, "%s", s->gpu->slug);
        mw_table_cell(t, "%d", s->scaleup_gpus);
        number_cell(t, s->intra_bw_Bps / 1e9);
        mw_table_cell(t, "%d", s->n_nics);
        number_cell(t, s->node_net_bw_Bps / 1e9);
        mw_table_cell(t, "%s", s->confidence);
        mw_table_cell(t, "%s", s->name);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_gpus(const struct mw_hwdb *db)
{
    enum { FP32 = 0, BF16 = 2, FP8 = 4 };
    static const char *const cols[] = {
        "device",      "fp32 TFLOP/s", "bf16 TFLOP/s", "fp8 TFLOP/s", "GiB",
        "memory GB/s", "links GB/s",   "conf",         "name"};
    struct mw_table *t = mw_table_new();
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        mw_table_col(t, cols[i], i >= 1 && i <= 6);
    }
    for (size_t i = 0; i < mw_hwdb_gpu_count(db); i++) {
        const struct mw_gpu *g = mw_hwdb_gpu_at(db, i);
        mw_table_row(t);
        mw_table_cell(t, "%s", g->slug);
        number_cell(t, g->peak_flops[FP32] / 1e12);
        number_cell(t, g->peak_flops[BF16] / 1e12);
        number_cell(t, g->peak_flops[FP8] / 1e12);
        number_cell(t, g->mem_bytes / 1073741824.0);
        number_cell(t, g->mem_bw_Bps / 1e9);
        number_cell(t, g->scaleup_bw_Bps / 1e9);
        mw_table_cell(t, "%s", g->confidence);
        mw_table_cell(t, "%s", g->name);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static void print_tables(const struct mw_hwdb *db)
{
    struct mw_table *t = mw_table_new();
    mw_table_col(t, "table", false);
    mw_table_col(t, "rows", true);
    for (size_t i = 0; mw_hwdb_table_name(i) != NULL; i++) {
        mw_table_row(t);
        mw_table_cell(t, "%s", mw_hwdb_table_name(i));
        mw_table_cell(t, "%zu",
                      mw_hwdb_table(db, mw_hwdb_table_name(i))->n_rows);
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

/* Every row; source and note only in JSON, a terminal has no room for them. */
static void print_table(const char *name, const struct mw_csv *csv)
{
    struct mw_table *t = mw_table_new();
    int source = mw_csv_col(csv, "source"), note = mw_csv_col(csv, "note");
    for (size_t c = 0; c < csv->n_cols; c++) {
        if ((int)c != source && (int)c != note) {
            mw_table_col(t, csv->header[c],
                         mw_hwdb_is_number(name, csv->header[c]));
        }
    }
    for (size_t i = 0; i < csv->n_rows; i++) {
        mw_table_row(t);
        for (size_t c = 0; c < csv->n_cols; c++) {
            if ((int)c != source && (int)c != note) {
                mw_table_cell(t, "%s", mw_csv_str(csv, i, (int)c));
            }
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
}

static json_t *table_json(const char *name, const struct mw_csv *csv)
{
    json_t *o = json_object(), *rows = json_array();
    mw_json_set_str(o, "table", name);
    for (size_t i = 0; i < csv->n_rows; i++) {
        json_t *row = json_object();
        for (size_t c = 0; c < csv->n_cols; c++) {
            mw_json_set(
                row, csv->header[c],
                mw_hw_value_json(mw_csv_str(csv, i, (int)c),
                                 mw_hwdb_is_number(name, csv->header[c])));
        }
        json_array_append_new(rows, row);
    }
    mw_json_set(o, "rows", rows);
    return o;
}

static json_t *overview_json(const struct mw_hwdb *db)
{
    json_t *o = json_object(), *systems = json_array(), *gpus = json_array();
    json_t *tables = json_object();
    for (size_t i = 0; i < mw_hwdb_system_count(db); i++) {
        json_array_append_new(systems,
                              json_string(mw_hwdb_system_at(db, i)->slug));
    }
    for (size_t i = 0; i < mw_hwdb_gpu_count(db); i++) {
        json_array_append_new(gpus, json_string(mw_hwdb_gpu_at(db, i)->slug));
    }
    for (size_t i = 0; mw_hwdb_table_name(i) != NULL; i++) {
        const char *name = mw_hwdb_table_name(i);
        mw_json_set_int(tables, name,
                        (long long)mw_hwdb_table(db, name)->n_rows);
    }
    mw_json_set(o, "systems", systems);
    mw_json_set(o, "gpus", gpus);
    mw_json_set(o, "tables", tables);
    return o;
}

static int list_overview(const struct mw_hwdb *db, bool is_json)
{
    if (is_json) {
        return mw_cli_print_json(overview_json(db));
    }
    print_systems(db);
    printf("\n");
    print_gpus(db);
    printf("\n");
    print_tables(db);
    return 0;
}

static enum mw_status fail_no_table(const char *name, struct mw_err *err)
{
    MW_ARRAY(const char *) names = {0};
    for (size_t i = 0; mw_hwdb_table_name(i) != NULL; i++) {
        mw_array_push(&names, mw_hwdb_table_name(i));
    }
    const char *near = mw_nearest(name, names.v, names.n);
    mw_array_release(&names);
    return mw_fail(
        err, MW_EUSAGE, "no table '%s'%s%s%s (all: meshwright hw list)", name,
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int mw_hw_list(const struct mw_hwdb *db, const char *table, bool is_json)
{
    if (table == NULL) {
        return list_overview(db, is_json);
    }
    const struct mw_csv *csv = mw_hwdb_table(db, table);
    if (csv == NULL) {
        struct mw_err err = {0};
        fail_no_table(table, &err);
        return mw_cli_fail(&err);
    }
    if (is_json) {
        return mw_cli_print_json(table_json(table, csv));
    }
    if (csv == mw_hwdb_table(db, "systems")) {
        print_systems(db);
    } else if (csv == mw_hwdb_table(db, "gpus")) {
        print_gpus(db);
    } else {
        print_table(table, csv);
    }
    return 0;
}
