/*
 * Software profiles: choosing the rows that apply, comparing versions, and
 * the rules of the table (profile.h says what a profile is).
 */
#include "hwdb/profile.h"

#include "hwdb/hwdb_int.h"

#include "base/yaml.h"

#include <math.h>
#include <string.h>

static const char any_framework[] = "any";

static const struct {
    const char *name, *values;
} fields[MW_PROFILE_FIELDS] = {
#define MW_PROFILE_ROW(name, text, values) [MW_PROFILE_##name] = {text, values},
    MW_PROFILE_MAP(MW_PROFILE_ROW)
#undef MW_PROFILE_ROW
};

const char *mw_profile_field_name(enum mw_profile_field field)
{
    return (unsigned)field < MW_PROFILE_FIELDS ? fields[field].name : "?";
}

static int field_of(const char *name)
{
    for (int f = 0; f < MW_PROFILE_FIELDS; f++) {
        if (mw_hw_casecmp(fields[f].name, name) == 0) {
            return f;
        }
    }
    return -1;
}

/* ---- versions ---------------------------------------------------------------
 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The next number of a version; 0 past its end. */
static long next_number(const char **at)
{
    long n = 0;
    while (**at != '\0' && !is_digit(**at)) {
        (*at)++;
    }
    for (; is_digit(**at); (*at)++) {
        n = n < 100000000 ? 10 * n + (**at - '0') : n;
    }
    return n;
}

int mw_profile_version_cmp(const char *a, const char *b)
{
    while (*a != '\0' || *b != '\0') {
        long x = next_number(&a), y = next_number(&b);
        if (x != y) {
            return x < y ? -1 : 1;
        }
    }
    return 0;
}

/* Is version in [from, to)? An empty end is open; no version is the newest. */
static bool is_in_range(const struct mw_hw_profile_row *r, const char *version)
{
    if (version == NULL || *version == '\0') {
        return *r->to_version == '\0';
    }
    return (*r->from_version == '\0' ||
            mw_profile_version_cmp(version, r->from_version) >= 0) &&
           (*r->to_version == '\0' ||
            mw_profile_version_cmp(version, r->to_version) < 0);
}

/* ---- look-up ----------------------------------------------------------------
 */

/* How special a row is for what is asked; 0: it does not apply. */
static int rank_of(const struct mw_hw_profile_row *r, const char *framework,
                   const char *version, const char *family)
{
    bool is_own = mw_hw_casecmp(r->framework, framework) == 0;
    bool is_any = mw_hw_casecmp(r->framework, any_framework) == 0;
    bool is_family = *r->family != '\0';
    if (is_family &&
        (family == NULL || mw_hw_casecmp(r->family, family) != 0)) {
        return 0;
    }
    if (is_own && is_in_range(r, version)) {
        return 3 + is_family;
    }
    return is_any ? 1 + is_family : 0;
}

static enum mw_status fail_unknown(const struct mw_hwdb *db, const char *name,
                                   struct mw_err *err)
{
    MW_ARRAY(const char *) names = {0};
    for (size_t i = 0; mw_hwdb_profile_framework(db, i) != NULL; i++) {
        mw_array_push(&names, mw_hwdb_profile_framework(db, i));
    }
    const char *near = mw_nearest(name, names.v, names.n);
    mw_array_release(&names);
    return mw_fail(err, MW_EINPUT,
                   "no framework '%s' in the software profiles%s%s%s (all: "
                   "meshwright hw list profiles)",
                   name, near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "");
}

enum mw_status mw_hwdb_profile(const struct mw_hwdb *db, const char *framework,
                               const char *version, const char *family,
                               struct mw_profile *out, struct mw_err *err)
{
    const struct mw_hw_profile_row *rows =
        MW_HW_ROWS(db, MW_HW_PROFILES, struct mw_hw_profile_row);
    struct mw_profile p = {0};
    int rank[MW_PROFILE_FIELDS] = {0};
    bool is_known = false;
    for (size_t i = 0; i < mw_hw_n_rows(db, MW_HW_PROFILES); i++) {
        int f = field_of(rows[i].field);
        int r = rank_of(&rows[i], framework, version, family);
        is_known |= mw_hw_casecmp(rows[i].framework, framework) == 0;
        if (f >= 0 && r > rank[f]) {
            rank[f] = r;
            p.cell[f] =
                (struct mw_profile_cell){rows[i].value, rows[i].source,
                                         rows[i].confidence, rows[i].framework};
        }
    }
    if (!is_known) {
        return fail_unknown(db, framework, err);
    }
    *out = p;
    return MW_OK;
}

const char *mw_hwdb_profile_framework(const struct mw_hwdb *db, size_t i)
{
    const struct mw_hw_profile_row *rows =
        MW_HW_ROWS(db, MW_HW_PROFILES, struct mw_hw_profile_row);
    for (size_t r = 0; r < mw_hw_n_rows(db, MW_HW_PROFILES); r++) {
        bool is_first = true;
        for (size_t s = 0; s < r && is_first; s++) {
            is_first = mw_hw_casecmp(rows[s].framework, rows[r].framework) != 0;
        }
        if (is_first && i-- == 0) {
            return rows[r].framework;
        }
    }
    return NULL;
}

bool mw_profile_is(const struct mw_profile *profile,
                   enum mw_profile_field field, const char *value)
{
    return mw_hw_casecmp(profile->cell[field].value, value) == 0;
}

bool mw_profile_has(const struct mw_profile *profile,
                    enum mw_profile_field field, const char *item)
{
    return mw_hw_list_has(profile->cell[field].value, item);
}

double mw_profile_number(const struct mw_profile *profile,
                         enum mw_profile_field field)
{
    double v;
    return mw_double_parse(profile->cell[field].value, &v, NULL) == MW_OK
               ? v
               : (double)NAN;
}

/* ---- rules ------------------------------------------------------------------
 */

static bool is_allowed(const char *values, const char *item)
{
    double v;
    return mw_hw_list_has(values, item) ||
           (mw_hw_list_has(values, "#") &&
            mw_double_parse(item, &v, NULL) == MW_OK && v >= 0);
}

static void check_value(struct mw_hw_check *c, size_t i,
                        const struct mw_hw_profile_row *r, int field)
{
    char item[128];
    for (size_t k = 0; mw_hw_list_item(r->value, k, item, sizeof item); k++) {
        if ((k > 0 && field != MW_PROFILE_FUSIONS) ||
            !is_allowed(fields[field].values, item)) {
            mw_hw_bad(c, i, "value", "'%s' is not one of %s%s for %s", r->value,
                      fields[field].values,
                      strchr(fields[field].values, '#') ? " (# a number)" : "",
                      r->field);
            return;
        }
    }
}

/* Do two rows of one framework, family and field share a version? */
static bool do_overlap(const struct mw_hw_profile_row *a,
                       const struct mw_hw_profile_row *b)
{
    bool is_same = mw_hw_casecmp(a->framework, b->framework) == 0 &&
                   mw_hw_casecmp(a->family, b->family) == 0 &&
                   mw_hw_casecmp(a->field, b->field) == 0;
    bool is_before =
        *a->to_version != '\0' &&
        mw_profile_version_cmp(a->to_version, b->from_version) <= 0 &&
        *b->from_version != '\0';
    bool is_after =
        *b->to_version != '\0' &&
        mw_profile_version_cmp(b->to_version, a->from_version) <= 0 &&
        *a->from_version != '\0';
    return is_same && !is_before && !is_after;
}

static void check_ranges(struct mw_hw_check *c,
                         const struct mw_hw_profile_row *rows, size_t i)
{
    const struct mw_hw_profile_row *r = &rows[i];
    if (*r->from_version != '\0' && *r->to_version != '\0' &&
        mw_profile_version_cmp(r->from_version, r->to_version) >= 0) {
        mw_hw_bad(c, i, "to_version", "'%s' is not after '%s'", r->to_version,
                  r->from_version);
    }
    for (size_t j = 0; j < i; j++) {
        if (do_overlap(&rows[j], r)) {
            mw_hw_bad(c, i, "from_version",
                      "some version has %s of %s in line %d already", r->field,
                      r->framework, c->db->tables[c->table].csv.line[j]);
        }
    }
}

void mw_hw_check_profiles(struct mw_hw_check *c)
{
    const struct mw_hw_profile_row *rows =
        MW_HW_ROWS(c->db, MW_HW_PROFILES, struct mw_hw_profile_row);
    bool has_any[MW_PROFILE_FIELDS] = {false};
    for (size_t i = 0; i < mw_hw_n_rows(c->db, MW_HW_PROFILES); i++) {
        int f = field_of(rows[i].field);
        if (f < 0) {
            mw_hw_bad(c, i, "field", "no field '%s' of a profile",
                      rows[i].field);
            continue;
        }
        check_value(c, i, &rows[i], f);
        check_ranges(c, rows, i);
        has_any[f] |= mw_hw_casecmp(rows[i].framework, any_framework) == 0 &&
                      *rows[i].family == '\0';
    }
    for (int f = 0; f < MW_PROFILE_FIELDS; f++) {
        if (!has_any[f]) {
            mw_fail(c->err, MW_EINPUT, "%s: no %s of the framework 'any'",
                    c->db->tables[c->table].csv.file, fields[f].name);
            c->n_bad++;
        }
    }
}
