/*
 * Finding things by name: devices and systems by slug, long name or alias,
 * constants by name, tables by name. Case is ignored (ASCII only, so that no
 * locale has a say); a miss names the nearest known name. Tables have some
 * hundred names, so a scan is enough.
 */
#include "hwdb/hwdb_int.h"

#include "base/yaml.h"

#include <stdio.h>
#include <string.h>

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

int mw_hw_casecmp(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return lower(*a) - lower(*b);
}

bool mw_hw_list_item(const char *list, size_t i, char *out, size_t out_size)
{
    const char *at = list;
    for (; i > 0; i--) {
        at = strchr(at, ';');
        if (at == NULL) {
            return false;
        }
        at++;
    }
    if (*list == '\0') {
        return false;
    }
    size_t n = strcspn(at, ";");
    while (n > 0 && *at == ' ') {
        at++;
        n--;
    }
    while (n > 0 && at[n - 1] == ' ') {
        n--;
    }
    n = n < out_size ? n : out_size - 1;
    memcpy(out, at, n);
    out[n] = '\0';
    return true;
}

bool mw_hw_list_has(const char *list, const char *text)
{
    char item[128];
    for (size_t i = 0; mw_hw_list_item(list, i, item, sizeof item); i++) {
        if (*item != '\0' && mw_hw_casecmp(item, text) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_named(const char *name, const char *aliases, const char *text)
{
    return mw_hw_casecmp(name, text) == 0 || mw_hw_list_has(aliases, text);
}

long mw_hw_find_gpu(const struct mw_hwdb *db, const char *name)
{
    const struct mw_hw_gpu_row *rows =
        MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row);
    size_t n = mw_hw_n_rows(db, MW_HW_GPUS);
    for (size_t i = 0; i < n; i++) {
        if (mw_hw_casecmp(rows[i].slug, name) == 0) {
            return (long)i;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (is_named(rows[i].name, rows[i].aliases, name)) {
            return (long)i;
        }
    }
    return -1;
}

long mw_hw_find_system(const struct mw_hwdb *db, const char *name)
{
    const struct mw_hw_system_row *rows =
        MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row);
    size_t n = mw_hw_n_rows(db, MW_HW_SYSTEMS);
    for (size_t i = 0; i < n; i++) {
        if (mw_hw_casecmp(rows[i].slug, name) == 0) {
            return (long)i;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (is_named(rows[i].name, rows[i].aliases, name)) {
            return (long)i;
        }
    }
    return -1;
}

const struct mw_constant *mw_hw_constant(const struct mw_hwdb *db,
                                         const char *name)
{
    const struct mw_constant *rows =
        MW_HW_ROWS(db, MW_HW_CONSTANTS, struct mw_constant);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_CONSTANTS); i++) {
        if (mw_hw_casecmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* Appends ".part" with spaces as '-'; false when it does not fit. */
static bool add_part(char *name, size_t size, const char *part)
{
    size_t n = strlen(name);
    if (n + strlen(part) + 2 > size) {
        return false;
    }
    name[n++] = '.';
    for (; *part != '\0'; part++) {
        name[n++] = (char)(*part == ' ' ? '-' : lower(*part));
    }
    name[n] = '\0';
    return true;
}

const struct mw_constant *mw_hw_constant_of(const struct mw_hwdb *db,
                                            const char *what, const char *a,
                                            const char *b)
{
    char name[192] = "";
    size_t n = strlen(what);
    MW_ASSERT(n < sizeof name, "'%s'", what);
    memcpy(name, what, n + 1);
    if (!add_part(name, sizeof name, a) ||
        (b != NULL && !add_part(name, sizeof name, b))) {
        return NULL;
    }
    return mw_hw_constant(db, name);
}

/* ---- nearest names ---------------------------------------------------------
 */

static size_t add_names(struct mw_hwdb *db, size_t n, const char *slug,
                        const char *name, const char *aliases)
{
    char item[128];
    db->names[n++] = slug;
    db->names[n++] = name;
    for (size_t i = 0; mw_hw_list_item(aliases, i, item, sizeof item); i++) {
        db->names[n++] = mw_arena_strdup(&db->arena, item);
    }
    return n;
}

static size_t count_names(const char *aliases)
{
    size_t n = 3;
    for (const char *s = aliases; *s != '\0'; s++) {
        n += *s == ';';
    }
    return n;
}

void mw_hw_names_build(struct mw_hwdb *db)
{
    const struct mw_hw_gpu_row *gpu =
        MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row);
    const struct mw_hw_system_row *sys =
        MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row);
    size_t n_gpus = mw_hw_n_rows(db, MW_HW_GPUS),
           n_sys = mw_hw_n_rows(db, MW_HW_SYSTEMS);
    size_t n = 0;
    for (size_t i = 0; i < n_gpus; i++) {
        n += count_names(gpu[i].aliases);
    }
    for (size_t i = 0; i < n_sys; i++) {
        n += count_names(sys[i].aliases);
    }
    db->names = mw_arena_alloc(&db->arena, n, sizeof *db->names);
    n = 0;
    for (size_t i = 0; i < n_sys; i++) {
        n = add_names(db, n, sys[i].slug, sys[i].name, sys[i].aliases);
    }
    for (size_t i = 0; i < n_gpus; i++) {
        n = add_names(db, n, gpu[i].slug, gpu[i].name, gpu[i].aliases);
    }
    db->n_names = n;
}

/* An alias that is near stands for its slug, the name to write. */
const char *mw_hwdb_nearest(const struct mw_hwdb *db, const char *name)
{
    const char *near = mw_nearest(name, db->names, db->n_names);
    if (near == NULL) {
        return NULL;
    }
    long i = mw_hw_find_system(db, near);
    if (i >= 0) {
        return MW_HW_ROWS(db, MW_HW_SYSTEMS, struct mw_hw_system_row)[i].slug;
    }
    i = mw_hw_find_gpu(db, near);
    return i < 0 ? near
                 : MW_HW_ROWS(db, MW_HW_GPUS, struct mw_hw_gpu_row)[i].slug;
}

/* ---- public ----------------------------------------------------------------
 */

static enum mw_status fail_unknown(const struct mw_hwdb *db, const char *what,
                                   const char *table, const char *name,
                                   struct mw_err *err)
{
    const char *near = mw_hwdb_nearest(db, name);
    return mw_fail(err, MW_EINPUT,
                   "no %s '%s' in the hardware database%s%s%s (all: "
                   "meshwright hw list %s)",
                   what, name, near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "", table);
}

enum mw_status mw_hwdb_gpu(const struct mw_hwdb *db, const char *name,
                           const struct mw_gpu **out, struct mw_err *err)
{
    long i = mw_hw_find_gpu(db, name);
    if (i < 0) {
        return fail_unknown(db, "device", "gpus", name, err);
    }
    *out = &db->gpus[i];
    return MW_OK;
}

enum mw_status mw_hwdb_system(const struct mw_hwdb *db, const char *name,
                              const struct mw_system **out, struct mw_err *err)
{
    long i = mw_hw_find_system(db, name);
    if (i < 0) {
        return fail_unknown(db, "system", "systems", name, err);
    }
    *out = &db->systems[i];
    return MW_OK;
}

size_t mw_hwdb_gpu_count(const struct mw_hwdb *db)
{
    return mw_hw_n_rows(db, MW_HW_GPUS);
}

const struct mw_gpu *mw_hwdb_gpu_at(const struct mw_hwdb *db, size_t i)
{
    MW_ASSERT(i < mw_hw_n_rows(db, MW_HW_GPUS), "gpu %zu", i);
    return &db->gpus[i];
}

size_t mw_hwdb_system_count(const struct mw_hwdb *db)
{
    return mw_hw_n_rows(db, MW_HW_SYSTEMS);
}

const struct mw_system *mw_hwdb_system_at(const struct mw_hwdb *db, size_t i)
{
    MW_ASSERT(i < mw_hw_n_rows(db, MW_HW_SYSTEMS), "system %zu", i);
    return &db->systems[i];
}

enum mw_status mw_hwdb_constant(const struct mw_hwdb *db, const char *name,
                                const struct mw_constant **out,
                                struct mw_err *err)
{
    const struct mw_constant *c = mw_hw_constant(db, name);
    if (c == NULL) {
        return mw_fail(err, MW_EINPUT,
                       "no constant '%s' in the hardware database (all: "
                       "meshwright hw list constants)",
                       name);
    }
    *out = c;
    return MW_OK;
}

bool mw_hwdb_price(const struct mw_hwdb *db, const char *gpu_slug,
                   const char *kind, double *out_low, double *out_high)
{
    const struct mw_hw_cost_row *rows =
        MW_HW_ROWS(db, MW_HW_COSTS, struct mw_hw_cost_row);
    bool is_found = false;

    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_COSTS); i++) {
        const struct mw_hw_cost_row *r = &rows[i];

        if (mw_hw_casecmp(r->gpu, gpu_slug) != 0 ||
            (kind != NULL && mw_hw_casecmp(r->kind, kind) != 0)) {
            continue;
        }
        if (!is_found || r->usd_per_gpu_hour_low < *out_low) {
            *out_low = r->usd_per_gpu_hour_low;
        }
        if (!is_found || r->usd_per_gpu_hour_high > *out_high) {
            *out_high = r->usd_per_gpu_hour_high;
        }
        is_found = true;
    }
    return is_found;
}

const char *mw_hwdb_machine(const struct mw_hwdb *db, const char *key)
{
    const struct mw_hw_machine_row *rows =
        MW_HW_ROWS(db, MW_HW_MACHINE, struct mw_hw_machine_row);
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_MACHINE); i++) {
        if (mw_hw_casecmp(rows[i].key, key) == 0) {
            return rows[i].value;
        }
    }
    return NULL;
}

static const struct mw_model_error *error_of(const struct mw_hwdb *db,
                                             const char *group, int64_t least)
{
    const struct mw_model_error *rows =
        MW_HW_ROWS(db, MW_HW_MODEL_ERROR, struct mw_model_error);

    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_MODEL_ERROR); i++) {
        if (strcmp(rows[i].file, "stacks") == 0 &&
            strcmp(rows[i].group, group) == 0 && rows[i].rows >= least) {
            return &rows[i];
        }
    }
    return NULL;
}

const struct mw_model_error *mw_hwdb_model_error(const struct mw_hwdb *db,
                                                 const char *stack,
                                                 const char *gpu_slug)
{
    const struct mw_model_error *row = NULL;
    size_t n = strlen(stack);

    while (n > 0 && row == NULL) {
        char group[160];

        snprintf(group, sizeof group, "%.*s, %s", (int)n, stack, gpu_slug);
        row = error_of(db, group, MW_MODEL_ERROR_ROWS);
        if (row == NULL) {
            snprintf(group, sizeof group, "%.*s", (int)n, stack);
            row = error_of(db, group, MW_MODEL_ERROR_ROWS);
        }
        while (n > 0 && stack[n - 1] != '-') {
            n--;
        }
        n -= n > 0; /* the dash */
    }
    return row != NULL ? row : error_of(db, "all", 1);
}

size_t mw_hwdb_router(const struct mw_hwdb *db,
                      const struct mw_router_row **out)
{
    *out = MW_HW_ROWS(db, MW_HW_ROUTER, struct mw_router_row);
    return mw_hw_n_rows(db, MW_HW_ROUTER);
}

const char *mw_hwdb_data_dir(const struct mw_hwdb *db)
{
    return db->data_dir;
}

const char *mw_hwdb_overlay_dir(const struct mw_hwdb *db)
{
    return db->overlay_dir;
}

uint64_t mw_hwdb_overlay_hash(const struct mw_hwdb *db)
{
    return db->overlay_hash;
}

const char *mw_hwdb_table_name(size_t i)
{
    return i < MW_HW_N_TABLES ? mw_hw_descs[i].name : NULL;
}

static long table_id(const char *name)
{
    for (size_t i = 0; i < MW_HW_N_TABLES; i++) {
        if (mw_hw_casecmp(mw_hw_descs[i].name, name) == 0) {
            return (long)i;
        }
    }
    return -1;
}

const struct mw_csv *mw_hwdb_table(const struct mw_hwdb *db, const char *name)
{
    long id = table_id(name);
    return id < 0 ? NULL : &db->tables[id].csv;
}

const char *mw_hwdb_row_file(const struct mw_hwdb *db, const char *table,
                             size_t i)
{
    long id = table_id(table);
    MW_ASSERT(id >= 0, "table '%s'", table);
    MW_ASSERT(i < db->tables[id].csv.n_rows, "row %zu of %s", i, table);
    return db->tables[id].row_file[i];
}

bool mw_hwdb_is_number(const char *table, const char *column)
{
    long id = table_id(table);
    MW_ASSERT(id >= 0, "table '%s'", table);
    const struct mw_csv_field *f = mw_hw_descs[id].fields;
    for (; f->name != NULL; f++) {
        if (strcmp(f->name, column) == 0) {
            return f->type != MW_C_STR;
        }
    }
    return false;
}
