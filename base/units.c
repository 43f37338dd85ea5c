/*
 * Reading quantities with units.
 *
 * A quantity is a decimal number, at most one space, and a unit. A unit is an
 * SI prefix (k M G T P E, small: p n u m; IEC 80000-13: Ki Mi Gi Ti Pi) and a
 * name: B, B/s, s, FLOP, FLOP/s, Hz, W. Bits (b, bit) are converted in rates
 * only; for sizes they are a mistake worth its own message. The number is
 * checked by its grammar before strtod(), which would take hexadecimal, "inf"
 * and "nan"; its decimal point is that of the C locale, which programs keep.
 */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_MAX = 64 };

struct unit_name {
    const char *name;
    enum mw_quantity kind;
    double factor;
    bool is_bits;
    bool has_prefix; /* whether k M G ... may stand before it */
};

static const struct unit_name unit_names[] = {
    {"B", MW_Q_BYTES, 1, false, true},
    {"byte", MW_Q_BYTES, 1, false, false},
    {"bytes", MW_Q_BYTES, 1, false, false},
    {"b", MW_Q_BYTES, 0.125, true, true},
    {"bit", MW_Q_BYTES, 0.125, true, true},
    {"bits", MW_Q_BYTES, 0.125, true, false},
    {"B/s", MW_Q_BYTES_PER_S, 1, false, true},
    {"b/s", MW_Q_BYTES_PER_S, 0.125, true, true},
    {"bit/s", MW_Q_BYTES_PER_S, 0.125, true, true},
    {"bps", MW_Q_BYTES_PER_S, 0.125, true, true},
    {"s", MW_Q_SECONDS, 1, false, false},
    {"ms", MW_Q_SECONDS, 1e-3, false, false},
    {"us", MW_Q_SECONDS, 1e-6, false, false},
    {"\xc2\xb5s", MW_Q_SECONDS, 1e-6, false, false}, /* micro sign */
    {"\xce\xbcs", MW_Q_SECONDS, 1e-6, false, false}, /* Greek mu */
    {"ns", MW_Q_SECONDS, 1e-9, false, false},
    {"ps", MW_Q_SECONDS, 1e-12, false, false},
    {"min", MW_Q_SECONDS, 60, false, false},
    {"h", MW_Q_SECONDS, 3600, false, false},
    {"FLOP", MW_Q_FLOPS, 1, false, true},
    {"FLOP/s", MW_Q_FLOPS_PER_S, 1, false, true},
    {"FLOPS", MW_Q_FLOPS_PER_S, 1, false, true},
    {"Hz", MW_Q_HERTZ, 1, false, true},
    {"W", MW_Q_WATT, 1, false, true},
    {"mW", MW_Q_WATT, 1e-3, false, false},
};

static const struct {
    const char *name;
    double factor;
    bool is_binary;
} prefixes[] = {
    {"", 1, false},       {"Ki", 0x1p10, true}, {"Mi", 0x1p20, true},
    {"Gi", 0x1p30, true}, {"Ti", 0x1p40, true}, {"Pi", 0x1p50, true},
    {"k", 1e3, false},    {"K", 1e3, false},    {"M", 1e6, false},
    {"G", 1e9, false},    {"T", 1e12, false},   {"P", 1e15, false},
    {"E", 1e18, false}};

enum {
    N_UNITS = sizeof unit_names / sizeof unit_names[0],
    N_PREFIXES = sizeof prefixes / sizeof prefixes[0]
};

/* What is meant, an example, and the unit of the bare SI value. */
static const struct {
    const char *what, *example, *si;
} kinds[] = {
    [MW_Q_NONE] = {"a pure number", "1.5", ""},
    [MW_Q_BYTES] = {"a size in bytes", "80GiB", "B"},
    [MW_Q_BYTES_PER_S] = {"a rate in bytes per second", "450GB/s", "B/s"},
    [MW_Q_SECONDS] = {"a time", "1.5us", "s"},
    [MW_Q_FLOPS] = {"a number of FLOPs", "3TFLOP", "FLOP"},
    [MW_Q_FLOPS_PER_S] = {"a rate in FLOP/s", "989TFLOP/s", "FLOP/s"},
    [MW_Q_HERTZ] = {"a frequency", "1.83GHz", "Hz"},
    [MW_Q_WATT] = {"a power", "700W", "W"},
};

const char *mw_quantity_example(enum mw_quantity kind)
{
    return kinds[kind].example;
}

const char *mw_quantity_si_unit(enum mw_quantity kind)
{
    return kinds[kind].si;
}

/* ---- numbers ------------------------------------------------------- */

static size_t digits_at(const char *s)
{
    size_t n = 0;
    while (s[n] >= '0' && s[n] <= '9') {
        n++;
    }
    return n;
}

/* Length of the decimal number at s: [+-] digits [. digits] [e [+-] digits],
 * with a digit before or after the point; 0 when there is none. */
static size_t number_length(const char *s)
{
    size_t n = s[0] == '+' || s[0] == '-';
    size_t whole = digits_at(s + n), fraction = 0;
    n += whole;
    if (s[n] == '.') {
        fraction = digits_at(s + n + 1);
        n += 1 + fraction;
    }
    if (whole + fraction == 0) {
        return 0;
    }
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '+' || s[n + 1] == '-';
        size_t exponent = digits_at(s + n + 1 + sign);
        n += exponent > 0 ? 1 + sign + exponent : 0;
    }
    return n;
}

/* Input words are quoted in messages; a long one is cut. */
static const char *quoted(const char *text, char buf[TOKEN_MAX])
{
    snprintf(buf, TOKEN_MAX, "%s", text);
    if (strlen(text) >= TOKEN_MAX) {
        size_t end = TOKEN_MAX - 4;
        while (end > 0 && ((unsigned char)buf[end] & 0xc0u) == 0x80u) {
            end--;
        }
        memcpy(buf + end, "...", 4);
    }
    return buf;
}

enum mw_status mw_int_parse(const char *text, int64_t *out, struct mw_err *err)
{
    char word[TOKEN_MAX];
    size_t n = text[0] == '+' || text[0] == '-';
    size_t digits = digits_at(text + n);
    if (digits == 0 || text[n + digits] != '\0') {
        return mw_fail(err, MW_EINPUT, "'%s' is not an integer",
                       quoted(text, word));
    }
    errno = 0;
    intmax_t v = strtoimax(text, NULL, 10);
    if (errno == ERANGE || v < INT64_MIN || v > INT64_MAX) {
        return mw_fail(err, MW_EINPUT, "'%s' does not fit in 64 bits",
                       quoted(text, word));
    }
    *out = (int64_t)v;
    return MW_OK;
}

enum mw_status mw_double_parse(const char *text, double *out,
                               struct mw_err *err)
{
    char word[TOKEN_MAX];
    size_t n = number_length(text);
    if (n == 0 || text[n] != '\0') {
        return mw_fail(err, MW_EINPUT, "'%s' is not a finite number",
                       quoted(text, word));
    }
    double v = strtod(text, NULL);
    if (!isfinite(v)) {
        return mw_fail(err, MW_EINPUT, "'%s' is too large a number",
                       quoted(text, word));
    }
    *out = v;
    return MW_OK;
}

/* ---- units --------------------------------------------------------- */

/* FLOP, FLOPs, flop: spelt in many ways. Writes the spelling of the table. */
static const char *canonical(const char *unit, char buf[TOKEN_MAX])
{
    snprintf(buf, TOKEN_MAX, "%s", unit);
    char *flop = strstr(buf, "flop");
    if (flop != NULL) {
        memcpy(flop, "FLOP", 4);
    }
    flop = strstr(buf, "FLOPs");
    if (flop != NULL) {
        memmove(flop + 4, flop + 5, strlen(flop + 5) + 1);
    }
    return buf;
}

static bool is_prefix_allowed(size_t prefix, const struct unit_name *u)
{
    bool is_of_bytes = u->kind == MW_Q_BYTES || u->kind == MW_Q_BYTES_PER_S;
    return prefix == 0 ||
           (u->has_prefix && (!prefixes[prefix].is_binary || is_of_bytes));
}

static bool match(const char *unit, const struct unit_name *u, double *factor)
{
    size_t len = strlen(unit), n = strlen(u->name);
    if (len < n || strcmp(unit + len - n, u->name) != 0) {
        return false;
    }
    size_t n_prefix = len - n;
    for (size_t i = 0; i < N_PREFIXES; i++) {
        if (is_prefix_allowed(i, u) && strlen(prefixes[i].name) == n_prefix &&
            memcmp(prefixes[i].name, unit, n_prefix) == 0) {
            *factor = prefixes[i].factor * u->factor;
            return true;
        }
    }
    return false;
}

static const struct unit_name *find_unit(const char *unit, double *factor)
{
    char name[TOKEN_MAX];
    canonical(unit, name);
    for (size_t i = 0; i < N_UNITS; i++) {
        if (match(name, &unit_names[i], factor)) {
            return &unit_names[i];
        }
    }
    return NULL;
}

/* '450Gb' where bytes are meant: says what it would be in bytes. */
static enum mw_status fail_bits(const char *text, double number,
                                const char *unit, struct mw_err *err)
{
    char word[TOKEN_MAX];
    size_t n = strlen(unit);
    n -= n >= 4 && strcmp(unit + n - 4, "bits") == 0  ? 4
         : n >= 3 && strcmp(unit + n - 3, "bit") == 0 ? 3
                                                      : 1;
    return mw_fail(err, MW_EINPUT,
                   "'%s' is in bits but bytes are meant; did you mean %g%.*sB "
                   "(%g%.*sB is %s)",
                   quoted(text, word), number, (int)n, unit, number / 8, (int)n,
                   unit, word);
}

static void to_upper(char *s)
{
    for (; *s != '\0'; s++) {
        *s = (char)toupper((unsigned char)*s);
    }
}

/* A unit that only differs in case from a known one: '80gib'. */
static bool is_case_mistake(const char *unit, enum mw_quantity kind)
{
    char wanted[TOKEN_MAX], candidate[TOKEN_MAX];
    snprintf(wanted, sizeof wanted, "%s", unit);
    to_upper(wanted);
    for (size_t u = 0; u < N_UNITS; u++) {
        for (size_t p = 0; p < N_PREFIXES; p++) {
            snprintf(candidate, sizeof candidate, "%s%s", prefixes[p].name,
                     unit_names[u].name);
            to_upper(candidate);
            if (unit_names[u].kind == kind &&
                is_prefix_allowed(p, &unit_names[u]) &&
                strcmp(candidate, wanted) == 0) {
                return true;
            }
        }
    }
    return false;
}

static enum mw_status fail_unit(const char *text, double number,
                                const char *unit, enum mw_quantity kind,
                                struct mw_err *err)
{
    char word[TOKEN_MAX], unit_word[TOKEN_MAX];
    quoted(text, word);
    quoted(unit, unit_word);
    double factor;
    const struct unit_name *u = find_unit(unit, &factor);
    if (kind == MW_Q_NONE) {
        return mw_fail(err, MW_EINPUT,
                       "'%s' has a unit but a pure number is meant, for "
                       "example %g",
                       word, number);
    }
    if (u == NULL && is_case_mistake(unit, kind)) {
        return mw_fail(err, MW_EINPUT,
                       "'%s' has the unit '%s', where upper and lower case "
                       "differ; write it like %s",
                       word, unit_word, kinds[kind].example);
    }
    if (u == NULL) {
        return mw_fail(err, MW_EINPUT,
                       "'%s' has the unknown unit '%s'; %s is meant, for "
                       "example %s",
                       word, unit_word, kinds[kind].what, kinds[kind].example);
    }
    return mw_fail(err, MW_EINPUT, "'%s' is %s but %s is meant, for example %s",
                   word, kinds[u->kind].what, kinds[kind].what,
                   kinds[kind].example);
}

static enum mw_status check_value(const char *text, double value,
                                  enum mw_quantity kind, struct mw_err *err)
{
    char word[TOKEN_MAX];
    if (!isfinite(value)) {
        return mw_fail(err, MW_EINPUT, "'%s' is too large a number",
                       quoted(text, word));
    }
    if (kind != MW_Q_NONE && value < 0) {
        return mw_fail(err, MW_EINPUT, "'%s' is negative; %s is 0 or more",
                       quoted(text, word), kinds[kind].what);
    }
    return MW_OK;
}

/* Number and unit of the text; a number without a unit has unit "". */
static enum mw_status split(const char *text, enum mw_quantity kind,
                            double *out_number, const char **out_unit,
                            struct mw_err *err)
{
    char word[TOKEN_MAX], number[TOKEN_MAX];
    size_t n = number_length(text);
    if (n == 0 || n >= sizeof number) {
        return mw_fail(err, MW_EINPUT, "'%s' is not %s; write for example %s",
                       quoted(text, word), kinds[kind].what,
                       kinds[kind].example);
    }
    memcpy(number, text, n);
    number[n] = '\0';
    const char *unit = text + n;
    if (unit[0] == ' ' && unit[1] != ' ' && unit[1] != '\0') {
        unit++;
    }
    *out_unit = unit;
    return mw_double_parse(number, out_number, err);
}

enum mw_status mw_quantity_parse(const char *text, enum mw_quantity kind,
                                 double *out, struct mw_err *err)
{
    char word[TOKEN_MAX];
    const char *unit = NULL;
    double number = 0, factor = 1;
    enum mw_status st = split(text, kind, &number, &unit, err);
    if (st != MW_OK) {
        return st;
    }
    if (*unit == '\0' && kind != MW_Q_NONE) {
        return mw_fail(err, MW_EINPUT, "'%s' needs a unit, for example %s",
                       quoted(text, word), kinds[kind].example);
    }
    if (*unit != '\0') {
        const struct unit_name *u = find_unit(unit, &factor);
        if (u != NULL && u->is_bits && kind == MW_Q_BYTES &&
            u->kind == MW_Q_BYTES) {
            return fail_bits(text, number, unit, err);
        }
        if (u == NULL || u->kind != kind) {
            return fail_unit(text, number, unit, kind, err);
        }
    }
    st = check_value(text, number * factor, kind, err);
    if (st == MW_OK) {
        *out = number * factor;
    }
    return st;
}
