/*
 * Memory in the result of `validate`: figures by row, errors by group and kind
 * of figure, and whether runs were predicted to fit, apart for those that ran
 * out of memory and those that did not.
 */
#include "cli/verb_validate_view.h"

#include "base/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void cell_percent(struct mw_table *t, double fraction)
{
    if (isnan(fraction)) {
        mw_table_cell(t, "-");
    } else {
        mw_table_cell(t, "%.1f %%", 100 * fraction);
    }
}

void mw_validate_memory_rows(const struct mw_validate *v)
{
    static const char *const names[] = {"id",       "layout",    "memory",
                                        "measured", "predicted", "error"};
    struct mw_table *t = mw_table_new();
    char text[MW_FMT_MAX];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i > 2);
    }
    for (size_t i = 0; i < v->rows.n; i++) {
        const struct mw_validate_row *r = &v->rows.v[i];

        for (int k = 0; r->skipped == NULL && k < r->n_memory; k++) {
            const struct mw_validate_memory *m = &r->memory[k];

            mw_table_row(t);
            mw_table_cell(t, "%s", r->id);
            mw_table_cell(t, "%s", r->layout);
            mw_table_cell(t, "%s", mw_memory_kind_name(m->kind));
            mw_table_cell(t, "%s", mw_fmt_bytes(m->measured_bytes, text));
            mw_table_cell(t, "%s", mw_fmt_bytes(m->predicted_bytes, text));
            mw_table_cell(t, "%+.1f %%",
                          100 * (m->predicted_bytes / m->measured_bytes - 1));
        }
    }
    mw_table_print(t, stdout);
    mw_table_free(t);
    printf("\n");
}

static void add_group(struct mw_table *t, const struct mw_memory_group *g,
                      const char *kind)
{
    mw_table_row(t);
    mw_table_cell(t, "%s", g->name);
    mw_table_cell(t, "%s", kind);
    mw_table_cell(t, "%" PRIu64, g->rows);
    cell_percent(t, g->mape);
    cell_percent(t, g->median_ape);
    cell_percent(t, g->p90_ape);
    cell_percent(t, g->bias);
}

/* What each kind of figure that was compared means. */
static void print_kinds(const struct mw_validate *v)
{
    for (int kind = 0; kind < MW_MEMORY_KIND_COUNT; kind++) {
        bool is_there = false;

        for (size_t i = 0; i < v->memory.n; i++) {
            is_there = is_there || (int)v->memory.v[i].kind == kind;
        }
        if (is_there) {
            printf("%s: %s\n", mw_memory_kind_name((enum mw_memory_kind)kind),
                   mw_memory_kind_text((enum mw_memory_kind)kind));
        }
    }
}

void mw_validate_memory_print(const struct mw_validate *v)
{
    static const char *const names[] = {"memory of", "kind", "figures", "MAPE",
                                        "median",    "p90",  "bias"};
    const struct mw_validate_group *g = &v->overall;
    struct mw_table *t = mw_table_new();

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mw_table_col(t, names[i], i > 1);
    }
    for (size_t i = 0; i < v->memory.n; i++) {
        add_group(t, &v->memory.v[i], mw_memory_kind_name(v->memory.v[i].kind));
    }
    if (v->memory_overall.rows > 0) {
        add_group(t, &v->memory_overall, "all");
        printf("\n");
        mw_table_print(t, stdout);
        print_kinds(v);
    }
    mw_table_free(t);
    printf("\nPredicted to fit: %" PRIu64 " of %" PRIu64 " that ran; not to "
           "fit: %" PRIu64 " of %" PRIu64 " that ran out of memory\n",
           g->ran_right, g->ran_rows, g->oom_right, g->oom_rows);
}

/* ---- JSON ------------------------------------------------------------------
 */
static json_t *group_json(const struct mw_memory_group *g)
{
    json_t *o = json_object();

    mw_json_set_int(o, "rows", (long long)g->rows);
    mw_json_set_real(o, "mape", g->mape);
    mw_json_set_real(o, "median", g->median_ape);
    mw_json_set_real(o, "p90", g->p90_ape);
    mw_json_set_real(o, "p99", g->p99_ape);
    mw_json_set_real(o, "bias", g->bias);
    return o;
}

json_t *mw_validate_memory_json(const struct mw_validate *v)
{
    json_t *o = group_json(&v->memory_overall), *groups = json_array();

    for (size_t i = 0; i < v->memory.n; i++) {
        json_t *group = group_json(&v->memory.v[i]);

        mw_json_set_str(group, "name", v->memory.v[i].name);
        mw_json_set_str(group, "kind",
                        mw_memory_kind_name(v->memory.v[i].kind));
        mw_json_set_str(group, "what",
                        mw_memory_kind_text(v->memory.v[i].kind));
        json_array_append_new(groups, group);
    }
    mw_json_set(o, "groups", groups);
    return o;
}

json_t *mw_validate_fits_json(const struct mw_validate_group *g)
{
    json_t *o = json_object();

    mw_json_set_int(o, "oom_rows", (long long)g->oom_rows);
    mw_json_set_int(o, "oom_predicted", (long long)g->oom_right);
    mw_json_set_int(o, "fit_rows", (long long)g->ran_rows);
    mw_json_set_int(o, "fit_predicted", (long long)g->ran_right);
    return o;
}

json_t *mw_validate_row_memory_json(const struct mw_validate_row *r)
{
    json_t *list = json_array();

    for (int k = 0; k < r->n_memory; k++) {
        json_t *o = json_object();

        mw_json_set_str(o, "kind", mw_memory_kind_name(r->memory[k].kind));
        mw_json_set_real(o, "measured_bytes", r->memory[k].measured_bytes);
        mw_json_set_real(o, "predicted_bytes", r->memory[k].predicted_bytes);
        json_array_append_new(list, o);
    }
    return list;
}
