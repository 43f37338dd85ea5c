/*
 * The figures of one device or system: the cells of its own row, then what
 * other tables say about it (efficiencies with the row behind each, latency
 * and efficiency classes, published fits, prices). Derived figures come from
 * the structs that the cost model reads, so that what is shown is what is used.
 */
#include "cli/verb_hw.h"

#include "base/csv.h"

#include <math.h>
#include <string.h>

static void add(struct mw_hw_view *v, bool is_number, const char *name,
                const char *value, const char *confidence, const char *source)
{
    struct mw_hw_figure f = {name, value, confidence, source, is_number};
    mw_array_push(&v->figures, f);
}

static void add_number(struct mw_hw_view *v, const char *name, double value,
                       const char *confidence, const char *source)
{
    add(v, true, name, mw_arena_printf(&v->arena, "%.6g", value), confidence,
        source);
}

static const char *cell(const struct mw_csv *t, size_t row, const char *col)
{
    return mw_csv_str(t, row, mw_csv_col(t, col));
}

/* Cells of the row but its names and origin, in the order of the table. */
static void add_row(struct mw_hw_view *v, const struct mw_hwdb *db,
                    const char *table, size_t row)
{
    static const char *const not_figures[] = {"slug",       "name",   "aliases",
                                              "confidence", "source", "note"};
    const struct mw_csv *t = mw_hwdb_table(db, table);
    for (size_t c = 0; c < t->n_cols; c++) {
        bool is_figure = !mw_csv_empty(t, row, (int)c);
        for (size_t k = 0; k < sizeof not_figures / sizeof *not_figures; k++) {
            is_figure &= strcmp(t->header[c], not_figures[k]) != 0;
        }
        if (is_figure) {
            add(v, mw_hwdb_is_number(table, t->header[c]), t->header[c],
                mw_csv_str(t, row, (int)c), cell(t, row, "confidence"),
                cell(t, row, "source"));
        }
    }
    v->note = cell(t, row, "note");
}

static size_t row_of(const struct mw_csv *t, const char *slug)
{
    size_t row = 0;
    while (row < t->n_rows && strcmp(cell(t, row, "slug"), slug) != 0) {
        row++;
    }
    MW_ASSERT(row < t->n_rows, "no row '%s'", slug);
    return row;
}

/* ---- devices ----------------------------------------------------------------
 */

static void add_efficiencies(struct mw_hw_view *v, const struct mw_gpu *g)
{
    static const char *const names[MW_HW_DTYPES] = {
        "gemm_efficiency.fp32", "gemm_efficiency.tf32", "gemm_efficiency.bf16",
        "gemm_efficiency.fp16", "gemm_efficiency.fp8",  "gemm_efficiency.fp4"};
    for (int d = 0; d < MW_HW_DTYPES; d++) {
        if (!isnan(g->peak_flops[d])) {
            add_number(v, names[d], g->gemm_efficiency[d],
                       g->gemm_efficiency_confidence[d],
                       g->gemm_efficiency_source[d]);
        }
    }
    add_number(v, "mem_efficiency", g->mem_efficiency,
               g->mem_efficiency_confidence, g->mem_efficiency_source);
}

static void add_prices(struct mw_hw_view *v, const struct mw_hwdb *db,
                       const struct mw_gpu *g)
{
    const struct mw_csv *t = mw_hwdb_table(db, "costs");
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct mw_gpu *of = NULL;
        if (mw_hwdb_gpu(db, cell(t, i, "gpu"), &of, NULL) != MW_OK || of != g) {
            continue;
        }
        const char *low = cell(t, i, "usd_per_gpu_hour_low");
        const char *high = cell(t, i, "usd_per_gpu_hour_high");
        bool is_range = strcmp(low, high) != 0;
        add(v, !is_range,
            mw_arena_printf(&v->arena, "usd_per_gpu_hour (%s, %s, %s)",
                            cell(t, i, "provider_or_tier"), cell(t, i, "kind"),
                            cell(t, i, "as_of")),
            mw_arena_printf(&v->arena, "%s%s%s", low, is_range ? " to " : "",
                            is_range ? high : ""),
            cell(t, i, "confidence"), cell(t, i, "source"));
    }
}

static void view_gpu(struct mw_hw_view *v, const struct mw_hwdb *db,
                     const struct mw_gpu *g)
{
    v->kind = "gpu";
    v->slug = g->slug;
    v->name = g->name;
    v->aliases = g->aliases;
    add_row(v, db, "gpus", row_of(mw_hwdb_table(db, "gpus"), g->slug));
    add_efficiencies(v, g);
    add_prices(v, db, g);
}

/* ---- systems ----------------------------------------------------------------
 */

static void add_constant(struct mw_hw_view *v, const char *name,
                         const struct mw_constant *c)
{
    if (c != NULL) {
        add_number(v, name, c->value, c->confidence, c->source);
    }
}

static void add_fits(struct mw_hw_view *v, const struct mw_hwdb *db,
                     const struct mw_system *s)
{
    static const char *const cols[] = {"alpha_us", "beta_us_per_MB"};
    const struct mw_csv *t = mw_hwdb_table(db, "alpha_beta");
    for (size_t i = 0; i < t->n_rows; i++) {
        const struct mw_system *of = NULL;
        if (mw_hwdb_system(db, cell(t, i, "system"), &of, NULL) != MW_OK ||
            of != s) {
            continue;
        }
        for (size_t k = 0; k < sizeof cols / sizeof *cols; k++) {
            add(v, true,
                mw_arena_printf(&v->arena, "fit %s (%s, %s)", cols[k],
                                cell(t, i, "scope"), cell(t, i, "path")),
                cell(t, i, cols[k]), cell(t, i, "confidence"),
                cell(t, i, "source"));
        }
    }
}

static void view_system(struct mw_hw_view *v, const struct mw_hwdb *db,
                        const struct mw_system *s)
{
    v->kind = "system";
    v->slug = s->slug;
    v->name = s->name;
    v->aliases = s->aliases;
    add_row(v, db, "systems", row_of(mw_hwdb_table(db, "systems"), s->slug));
    add_constant(v, "intra_alpha_s", s->intra_alpha);
    add_constant(v, "intra_efficiency", s->intra_eff);
    add_constant(v, "inter_alpha_s", s->inter_alpha);
    add_constant(v, "inter_efficiency", s->inter_eff);
    add_fits(v, db, s);
}

enum mw_status mw_hw_view_make(const struct mw_hwdb *db, const char *name,
                               struct mw_hw_view *out, struct mw_err *err)
{
    const struct mw_system *s = NULL;
    const struct mw_gpu *g = NULL;
    bool is_system = mw_hwdb_system(db, name, &s, NULL) == MW_OK;
    if (!is_system) {
        const char *near = mw_hwdb_nearest(db, name);
        if (mw_hwdb_gpu(db, name, &g, NULL) != MW_OK) {
            return mw_fail(err, MW_EINPUT,
                           "no system or device '%s' in the hardware "
                           "database%s%s%s (all: meshwright hw list)",
                           name, near ? "; did you mean '" : "",
                           near ? near : "", near ? "'?" : "");
        }
    }
    *out = (struct mw_hw_view){.note = ""};
    mw_arena_init(&out->arena);
    if (is_system) {
        view_system(out, db, s);
    } else {
        view_gpu(out, db, g);
    }
    return MW_OK;
}

void mw_hw_view_release(struct mw_hw_view *view)
{
    mw_array_release(&view->figures);
    mw_arena_release(&view->arena);
}
