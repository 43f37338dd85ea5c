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

void hw_bad(struct hw_check *c, size_t row, const char *col, const char *fmt,
            ...)
{
    char why[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    struct mw_csv one = hw_table_row(&c->db->tables[c->table], row);
    mw_csv_fail(&one, 0, col != NULL ? mw_csv_col(&one, col) : -1, c->err, "%s",
                why);
    c->n_bad++;
}

void hw_expect(struct hw_check *c, size_t row, const char *col, double value,
               double right, double rtol, const char *fmt, ...)
{
    if (isnan(value) || isnan(right) || mw_near(value, right, rtol, 1e-12)) {
        return;
    }
    char why[WHY_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    hw_bad(c, row, col, "is %.7g but %s gives %.7g", value, why, right);
}

void hw_expect_max(struct hw_check *c, size_t row, const char *col,
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
    hw_bad(c, row, col, "is %.7g, above the %.7g of %s", value, limit, why);
}

/* ---- origin -----------------------------------------------------------------
 */

static bool is_no_source(const char *text)
{
    static const char *const empty[] = {"same", "ditto", "as above", "tbd",
                                        "todo", "n/a",   "na",       "none",
                                        "?",    "-",     "unknown"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        if (hw_casecmp(text, empty[i]) == 0) {
            return true;
        }
    }
    return text[strspn(text, " ")] == '\0';
}

static void check_origin(struct hw_check *c)
{
    const struct mw_csv *csv = &c->db->tables[c->table].csv;
    int source = mw_csv_col(csv, "source");
    int confidence = mw_csv_col(csv, "confidence");
    for (size_t i = 0; i < csv->n_rows; i++) {
        if (source >= 0 && is_no_source(mw_csv_str(csv, i, source))) {
            hw_bad(c, i, "source",
                   "'%s' is no source; name the page, paper or measurement",
                   mw_csv_str(csv, i, source));
        }
        if (confidence < 0) {
            continue;
        }
        const char *conf = mw_csv_str(csv, i, confidence);
        if (strlen(conf) != 1 || strchr("HML", *conf) == NULL) {
            hw_bad(c, i, "confidence",
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
    enum hw_table_id table;
    size_t row;
};

static int owned_name_cmp(const void *a, const void *b)
{
    const struct owned_name *x = a, *y = b;
    int c = hw_casecmp(x->name, y->name);
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

static void collect(struct name_list *l, enum hw_table_id table, size_t row,
                    const char *slug, const char *name, const char *aliases)
{
    char item[128];
    mw_array_push(&l->names, ((struct owned_name){slug, table, row}));
    mw_array_push(&l->names, ((struct owned_name){name, table, row}));
    for (size_t i = 0; hw_list_item(aliases, i, item, sizeof item); i++) {
        const char *copy = mw_arena_strdup(&l->arena, item);
        mw_array_push(&l->names, ((struct owned_name){copy, table, row}));
    }
}

static void check_slug(struct hw_check *c, size_t row, const char *slug)
{
    static const char *const ok = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    if (slug[strspn(slug, ok)] != '\0') {
        hw_bad(c, row, "slug",
               "'%s' may have lower-case letters, digits, '-' "
               "and '.' alone",
               slug);
    }
}

static void check_one_owner(const struct mw_hwdb *db, struct mw_err *err,
                            const struct owned_name *first,
                            const struct owned_name *second, int *n_bad)
{
    if (hw_casecmp(first->name, second->name) != 0 ||
        (first->table == second->table && first->row == second->row)) {
        return;
    }
    struct hw_check c = {.db = db, .table = second->table, .err = err};
    const struct hw_table *t = &db->tables[first->table];
    hw_bad(&c, second->row, NULL, "the name '%s' belongs to %s:%d already",
           second->name, t->row_file[first->row], t->csv.line[first->row]);
    *n_bad += c.n_bad;
}

/* A slug, name or alias means one device or one system in the whole database:
 * `hw show NAME` takes both. */
static int check_names(const struct mw_hwdb *db, struct mw_err *err)
{
    const struct hw_gpu_row *gpu = HW_ROWS(db, HW_GPUS, struct hw_gpu_row);
    const struct hw_system_row *sys =
        HW_ROWS(db, HW_SYSTEMS, struct hw_system_row);
    struct name_list l = {0};
    struct hw_check c = {.db = db, .table = HW_GPUS, .err = err};
    mw_arena_init(&l.arena);
    for (size_t i = 0; i < hw_n_rows(db, HW_GPUS); i++) {
        check_slug(&c, i, gpu[i].slug);
        collect(&l, HW_GPUS, i, gpu[i].slug, gpu[i].name, gpu[i].aliases);
    }
    c.table = HW_SYSTEMS;
    for (size_t i = 0; i < hw_n_rows(db, HW_SYSTEMS); i++) {
        check_slug(&c, i, sys[i].slug);
        collect(&l, HW_SYSTEMS, i, sys[i].slug, sys[i].name, sys[i].aliases);
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
        enum hw_table_id table;
        void (*check)(struct hw_check *);
    } checks[] = {
        {HW_CONSTANTS, hw_check_constants},   {HW_NVLINK, hw_check_nvlink},
        {HW_NVSWITCH, hw_check_nvswitch},     {HW_PCIE, hw_check_pcie},
        {HW_INFINIBAND, hw_check_infiniband}, {HW_ETHERNET, hw_check_ethernet},
        {HW_LATENCY, hw_check_latency},       {HW_GPUS, hw_check_gpus},
        {HW_SYSTEMS, hw_check_systems},       {HW_COSTS, hw_check_costs},
        {HW_ALPHA_BETA, hw_check_alpha_beta}, {HW_ACHIEVED, hw_check_achieved},
        {HW_KERNELS, hw_check_kernels},       {HW_CURVES, hw_check_curves}};
    int n_bad = check_names(db, err);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        struct hw_check c = {.db = db, .table = checks[i].table, .err = err};
        check_origin(&c);
        checks[i].check(&c);
        n_bad += c.n_bad;
    }
    return n_bad == 0 ? MW_OK : MW_EINPUT;
}
