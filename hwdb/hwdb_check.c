/*
 * The checks that every table shares (a source and a confidence per row, names
 * that mean one thing) and the order in which tables are checked: first the
 * ones that others are compared with, so that the first finding names the
 * cause and not a consequence.
 */
#include "hwdb/hwdb_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_MAX = 512 };

void mw_hw_bad(struct mw_hw_check *c, size_t row, const char *col,
               const char *fmt, ...)
{
    char why[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    struct mw_csv one = mw_hw_table_row(&c->db->tables[c->table], row);
    mw_csv_fail(&one, 0, col != NULL ? mw_csv_col(&one, col) : -1, c->err, "%s",
                why);
    c->n_bad++;
}

void mw_hw_expect(struct mw_hw_check *c, size_t row, const char *col,
                  double value, double right, double rtol, const char *fmt, ...)
{
    if (isnan(value) || isnan(right) || mw_near(value, right, rtol, 1e-12)) {
        return;
    }
    char why[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    mw_hw_bad(c, row, col, "is %.7g but %s gives %.7g", value, why, right);
}

void mw_hw_expect_max(struct mw_hw_check *c, size_t row, const char *col,
                      double value, double limit, const char *fmt, ...)
{
    if (isnan(value) || isnan(limit) || value <= limit * (1 + 1e-6)) {
        return;
    }
    char why[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    mw_hw_bad(c, row, col, "is %.7g, above the %.7g of %s", value, limit, why);
}

/* ---- origin -----------------------------------------------------------------
 */

static bool is_no_source(const char *text)
{
    static const char *const empty[] = {"same", "ditto", "as above", "tbd",
                                        "todo", "n/a",   "na",       "none",
                                        "?",    "-",     "unknown"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        if (mw_hw_casecmp(text, empty[i]) == 0) {
            return true;
        }
    }
    return text[strspn(text, " ")] == '\0';
}

static void check_origin(struct mw_hw_check *c)
{
    const struct mw_csv *csv = &c->db->tables[c->table].csv;
    int source = mw_csv_col(csv, "source");
    int confidence = mw_csv_col(csv, "confidence");
    for (size_t i = 0; i < csv->n_rows; i++) {
        if (source >= 0 && is_no_source(mw_csv_str(csv, i, source))) {
            mw_hw_bad(c, i, "source",
                      "'%s' is no source; name the page, paper or measurement",
                      mw_csv_str(csv, i, source));
        }
        if (confidence < 0) {
            continue;
        }
        const char *conf = mw_csv_str(csv, i, confidence);
        if (strlen(conf) != 1 || strchr("HML", *conf) == NULL) {
            mw_hw_bad(
                c, i, "confidence",
                "'%s' must be H (primary source or measured), M (secondary "
                "or fitted) or L (general knowledge)",
                conf);
        }
    }
}

/* ---- names ------------------------------------------------------------------
 */

/* A name of a device or system and where it is written. */
struct owned_name {
    const char *name;
    enum mw_hw_table_id table;
    size_t row;
};

static int owned_name_cmp(const void *a, const void *b)
{
    const struct owned_name *x = a, *y = b;
    int c = mw_hw_casecmp(x->name, y->name);
    if (c != 0) {
        return c;
    }
    if (x->table != y->table) {
        return x->table < y->table ? -1 : 1;
    }
    return x->row < y->row ? -1 : x->row > y->row;
}

struct name_list {
    MW_ARRAY(struct owned_name) names;
    struct mw_arena arena;
};

static void collect(struct name_list *l, enum mw_hw_table_id table, size_t row,
                    const char *slug, const char *name, const char *aliases)
{
    char item[128];
    mw_array_push(&l->names, ((struct owned_name){slug, table, row}));
    mw_array_push(&l->names, ((struct owned_name){name, table, row}));
    for (size_t i = 0; mw_hw_list_item(aliases, i, item, sizeof item); i++) {
        const char *copy = mw_arena_strdup(&l->arena, item);
        mw_array_push(&l->names, ((struct owned_name){copy, table, row}));
    }
}

static void check_slug(struct mw_hw_check *c, size_t row, const char *slug)
{
    static const char *const ok = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    if (slug[strspn(slug, ok)] != '\0') {
        mw_hw_bad(c, row, "slug",
                  "'%s' may have lower-case letters, digits, '-' "
                  "and '.' alone",
                  slug);
    }
}

static void check_one_owner(const struct mw_hwdb *db, struct mw_err *err,
                            const struct owned_name *first,
                            const struct owned_name *second, int *n_bad)
{
    if (mw_hw_casecmp(first->name, second->name) != 0 ||
        (first->table == second->table && first->row == second->row)) {
        return;
    }
    struct mw_hw_check c = {.db = db, .table = second->table, .err = err};
    const struct mw_hw_table *t = &db->tables[first->table];
    mw_hw_bad(&c, second->row, NULL, "the name '%s' belongs to %s:%d already",
              second->name, t->row_file[first->row], t->csv.line[first->row]);
    *n_bad += c.n_bad;
}

/* A slug, name or alias means one device or one system in the whole database:
 * `hw show NAME` takes both. */
static int check_names(const struct mw_hwdb *db, struct mw_err *err)
{
    const struct mw_hw_gpu_row *gpu =
        MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row);
    const struct mw_hw_system_row *sys =
        MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row);
    struct name_list l = {0};
    struct mw_hw_check c = {.db = db, .table = MW_HW_GPUS, .err = err};
    mw_arena_init(&l.arena);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_GPUS); i++) {
        check_slug(&c, i, gpu[i].slug);
        collect(&l, MW_HW_GPUS, i, gpu[i].slug, gpu[i].name, gpu[i].aliases);
    }
    c.table = MW_HW_SYSTEMS;
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_SYSTEMS); i++) {
        check_slug(&c, i, sys[i].slug);
        collect(&l, MW_HW_SYSTEMS, i, sys[i].slug, sys[i].name, sys[i].aliases);
    }
    qsort(l.names.v, l.names.n, sizeof *l.names.v, owned_name_cmp);
    for (size_t i = 1; i < l.names.n; i++) {
        check_one_owner(db, err, &l.names.v[i - 1], &l.names.v[i], &c.n_bad);
    }
    mw_array_release(&l.names);
    mw_arena_release(&l.arena);
    return c.n_bad;
}

/* ---- all --------------------------------------------------------------------
 */

enum mw_status mw_hwdb_check(const struct mw_hwdb *db, struct mw_err *err)
{
    static const struct {
        enum mw_hw_table_id table;
        void (*check)(struct mw_hw_check *);
    } checks[] = {{MW_HW_CONSTANTS, mw_hw_check_constants},
                  {MW_HW_NVLINK, mw_hw_check_nvlink},
                  {MW_HW_NVSWITCH, mw_hw_check_nvswitch},
                  {MW_HW_PCIE, mw_hw_check_pcie},
                  {MW_HW_INFINIBAND, mw_hw_check_infiniband},
                  {MW_HW_ETHERNET, mw_hw_check_ethernet},
                  {MW_HW_LATENCY, mw_hw_check_latency},
                  {MW_HW_GPUS, mw_hw_check_gpus},
                  {MW_HW_SYSTEMS, mw_hw_check_systems},
                  {MW_HW_COSTS, mw_hw_check_costs},
                  {MW_HW_ALPHA_BETA, mw_hw_check_alpha_beta},
                  {MW_HW_ACHIEVED, mw_hw_check_achieved},
                  {MW_HW_PROFILES, mw_hw_check_profiles},
                  {MW_HW_RECIPES, mw_hw_check_recipes},
                  {MW_HW_KERNELS, mw_hw_check_kernels},
                  {MW_HW_CURVES, mw_hw_check_curves}};
    int n_bad = check_names(db, err);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct mw_hw_check c = {.db = db, .table = checks[i].table, .err = err};
        check_origin(&c);
        checks[i].check(&c);
        n_bad += c.n_bad;
    }
    return n_bad == 0 ? MW_OK : MW_EINPUT;
}
