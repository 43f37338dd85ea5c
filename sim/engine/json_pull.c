/*
 * JSON text, value by value: see json_pull_int.h. Numbers follow RFC 8259's
 * grammar (so NaN, Infinity, hex and leading zeros are errors); strings may
 * hold any characters above 0x1f, escapes become UTF-8, a lone surrogate
 * becomes U+FFFD. Times are read from their digits, never through a double, as
 * long as they have no exponent.
 */
#include "sim/engine/json_pull_int.h"

#include "base/text_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors
 * ------------------------------------------------------------------ */
bool mw_jp_fail(struct mw_jp *jp, size_t at, const char *fmt, ...)
{
    if (jp->failed) {
        return false;
    }
    jp->failed = true;
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    struct mw_arena arena;
    mw_arena_init(&arena);
    struct mw_pos pos = mw_text_pos(jp->file, jp->text, jp->len, at, 1, &arena);
    mw_fail_at(jp->err, MW_EINPUT, &pos, "%s", what);
    mw_arena_release(&arena);
    return false;
}

static bool fail_found(struct mw_jp *jp, const char *wanted)
{
    if (jp->at >= jp->len) {
        return mw_jp_fail(jp, jp->at, "the file ends where %s should be",
                          wanted);
    }
    unsigned char c = (unsigned char)jp->text[jp->at];
    if (c < 0x20 || c >= 0x7f) {
        return mw_jp_fail(jp, jp->at, "byte 0x%02x where %s should be", c,
                          wanted);
    }
    return mw_jp_fail(jp, jp->at, "'%c' where %s should be", c, wanted);
}

/* ---- structure
 * ----------------------------------------------------------------- */
char mw_jp_peek(struct mw_jp *jp)
{
    for (; jp->at < jp->len; jp->at++) {
        char c = jp->text[jp->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            return c;
        }
    }
    return '\0';
}

static bool take(struct mw_jp *jp, char c, const char *wanted)
{
    if (jp->failed) {
        return false;
    }
    if (mw_jp_peek(jp) != c || jp->at >= jp->len) {
        return fail_found(jp, wanted);
    }
    jp->token = jp->at++;
    return true;
}

bool mw_jp_enter(struct mw_jp *jp, char open)
{
    char close = open == '{' ? '}' : ']';
    if (!take(jp, open, open == '{' ? "'{'" : "'['")) {
        return false;
    }
    if (mw_jp_peek(jp) == close) {
        jp->at++;
        return false;
    }
    return true;
}

bool mw_jp_more(struct mw_jp *jp, char close)
{
    if (jp->failed) {
        return false;
    }
    char c = mw_jp_peek(jp);
    if (c == ',') {
        jp->at++;
        return true;
    }
    return take(jp, close, close == '}' ? "',' or '}'" : "',' or ']'") && false;
}

bool mw_jp_key(struct mw_jp *jp, struct mw_str *out)
{
    if (!mw_jp_string(jp, out)) {
        return false;
    }
    size_t token = jp->token;
    bool ok = take(jp, ':', "':'");
    jp->token = token;
    return ok;
}

bool mw_jp_end(struct mw_jp *jp)
{
    if (!jp->failed && (mw_jp_peek(jp) != '\0' || jp->at < jp->len)) {
        return fail_found(jp, "the end of the file");
    }
    return !jp->failed;
}

/* ---- strings
 * -------------------------------------------------------------------- */
/* Appends bytes and keeps the NUL behind them. */
static void put_bytes(struct mw_str *out, const char *bytes, size_t n)
{
    if (out->n + n + 1 > out->cap) {
        out->s = mw_array_grow(out->s, &out->cap, out->n + n + 1, 1);
    }
    memcpy(out->s + out->n, bytes, n);
    out->n += n;
    out->s[out->n] = '\0';
}

static void put_byte(struct mw_str *out, unsigned byte)
{
    char c = (char)(unsigned char)byte;
    put_bytes(out, &c, 1);
}

static void put_utf8(struct mw_str *out, unsigned c)
{
    if (c < 0x80) {
        put_byte(out, c);
    } else if (c < 0x800) {
        put_byte(out, 0xc0 | c >> 6);
        put_byte(out, 0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        put_byte(out, 0xe0 | c >> 12);
        put_byte(out, 0x80 | (c >> 6 & 0x3f));
        put_byte(out, 0x80 | (c & 0x3f));
    } else {
        put_byte(out, 0xf0 | c >> 18);
        put_byte(out, 0x80 | (c >> 12 & 0x3f));
        put_byte(out, 0x80 | (c >> 6 & 0x3f));
        put_byte(out, 0x80 | (c & 0x3f));
    }
}

/* Four hex digits at jp->at; -1 when they are not. */
static int hex4(struct mw_jp *jp)
{
    int v = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = jp->at + i < jp->len ? jp->text[jp->at + i] : '\0';
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            return -1;
        }
        v = 16 * v + d;
    }
    jp->at += 4;
    return v;
}

/* After "\u": the character, of two escapes when it is a surrogate pair. NUL
 * becomes U+FFFD, as strings end there. */
static bool unicode_escape(struct mw_jp *jp, struct mw_str *out)
{
    int hi = hex4(jp);
    if (hi < 0) {
        return mw_jp_fail(jp, jp->at, "\\u needs four hex digits");
    }
    unsigned c = (unsigned)hi;
    if (c >= 0xd800 && c < 0xdc00 && jp->text[jp->at] == '\\' &&
        jp->text[jp->at + 1] == 'u') {
        size_t back = jp->at;
        jp->at += 2;
        int lo = hex4(jp);
        if (lo >= 0xdc00 && lo < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + ((unsigned)lo - 0xdc00);
        } else {
            jp->at = back;
        }
    }
    if (c == 0 || (c >= 0xd800 && c < 0xe000)) {
        c = 0xfffd;
    }
    put_utf8(out, c);
    return true;
}

static bool escape(struct mw_jp *jp, struct mw_str *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = jp->at < jp->len ? jp->text[jp->at] : '\0';
    const char *at = c ? strchr(from, c) : NULL;
    if (c == 'u') {
        jp->at++;
        return unicode_escape(jp, out);
    }
    if (!at) {
        return fail_found(jp, "an escape (one of \"\\/bfnrtu)");
    }
    jp->at++;
    put_byte(out, (unsigned char)to[at - from]);
    return true;
}

/* Bytes at s that stand for themselves in a string. */
static size_t plain_length(const char *s)
{
    size_t n = 0;
    while ((unsigned char)s[n] >= 0x20 && s[n] != '"' && s[n] != '\\') {
        n++;
    }
    return n;
}

bool mw_jp_string(struct mw_jp *jp, struct mw_str *out)
{
    out->n = 0;
    put_bytes(out, "", 0); /* an empty string is a string */
    if (!take(jp, '"', "a string")) {
        return false;
    }
    size_t token = jp->token;
    for (;;) {
        size_t n = plain_length(jp->text + jp->at);
        put_bytes(out, jp->text + jp->at, n);
        jp->at += n;
        char c = jp->text[jp->at];
        if (c != '"' && c != '\\') {
            return fail_found(jp, "the end of a string");
        }
        jp->at++;
        if (c == '"') {
            break;
        }
        if (!escape(jp, out)) {
            return false;
        }
    }
    jp->token = token;
    return true;
}

/* ---- numbers
 * ---------------------------------------------------------------------- */
static size_t digits(const char *s)
{
    return strspn(s, "0123456789");
}

/* Length of the number at s by RFC 8259, 0 when there is none. */
static size_t number_length(const char *s)
{
    size_t n = s[0] == '-';
    size_t whole = digits(s + n);
    if (whole == 0 || (whole > 1 && s[n] == '0')) {
        return 0;
    }
    n += whole;
    if (s[n] == '.') {
        size_t fraction = digits(s + n + 1);
        if (fraction == 0) {
            return 0;
        }
        n += 1 + fraction;
    }
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '+' || s[n + 1] == '-';
        size_t exponent = digits(s + n + 1 + sign);
        if (exponent == 0) {
            return 0;
        }
        n += 1 + sign + exponent;
    }
    return n;
}

/* Takes a number token; false with a finding when there is none. */
static bool number_token(struct mw_jp *jp, const char **out, size_t *out_len)
{
    if (jp->failed) {
        return false;
    }
    mw_jp_peek(jp);
    size_t n = number_length(jp->text + jp->at);
    if (n == 0) {
        return fail_found(jp, "a number");
    }
    jp->token = jp->at;
    *out = jp->text + jp->at;
    *out_len = n;
    jp->at += n;
    return true;
}

bool mw_jp_number(struct mw_jp *jp, double *out)
{
    const char *s = "";
    size_t n = 0;
    if (!number_token(jp, &s, &n)) {
        return false;
    }
    double v = strtod(s, NULL);
    if (!isfinite(v)) {
        return mw_jp_fail(jp, jp->token, "number is too large");
    }
    *out = v;
    return true;
}

bool mw_jp_int(struct mw_jp *jp, long long min, long long max, long long *out)
{
    double v;
    if (!mw_jp_number(jp, &v)) {
        return false;
    }
    if (v != floor(v) || v < (double)min || v > (double)max) {
        return mw_jp_fail(jp, jp->token,
                          "%.17g should be an integer from %lld to %lld", v,
                          min, max);
    }
    *out = (long long)v;
    return true;
}

/* Adds a digit: false when v * 10 + d passes the range. */
static bool add_digit(mw_time *v, char d)
{
    return !__builtin_mul_overflow(*v, (mw_time)10, v) &&
           !__builtin_add_overflow(*v, (mw_time)(d - '0'), v);
}

const char *mw_ps_parse(const char *text, size_t len, int decimals,
                        mw_time *out_ps)
{
    static const char too_large[] = "a time past 106 days";
    if (len == 0 || number_length(text) != len) {
        return "a time is a decimal number";
    }
    if (text[0] == '-' && strtod(text, NULL) < 0) {
        return "a time before 0";
    }
    size_t sign = text[0] == '-';
    text += sign;
    len -= sign;
    if (memchr(text, 'e', len) || memchr(text, 'E', len)) {
        double ps = strtod(text, NULL) * pow(10, decimals);
        if (!(ps < 9.2e18)) {
            return too_large;
        }
        *out_ps = (mw_time)llround(ps);
        return NULL;
    }
    mw_time v = 0;
    size_t whole = digits(text);
    for (size_t i = 0; i < whole; i++) {
        if (!add_digit(&v, text[i])) {
            return too_large;
        }
    }
    for (size_t i = 0; i < (size_t)decimals; i++) {
        size_t at = whole + 1 + i;
        if (!add_digit(&v, at < len ? text[at] : '0')) {
            return too_large;
        }
    }
    size_t beyond = whole + 1 + (size_t)decimals;
    if (beyond < len && text[beyond] >= '5' &&
        __builtin_add_overflow(v, (mw_time)1, &v)) {
        return too_large;
    }
    *out_ps = v;
    return NULL;
}

bool mw_jp_time(struct mw_jp *jp, int decimals, mw_time *out_ps)
{
    const char *s = "";
    size_t n = 0;
    if (!number_token(jp, &s, &n)) {
        return false;
    }
    const char *wrong = mw_ps_parse(s, n, decimals, out_ps);
    return !wrong || mw_jp_fail(jp, jp->token, "%s", wrong);
}

/* ---- values nobody wants
 * -------------------------------------------------------- */
static bool skip_word(struct mw_jp *jp)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(jp->text + jp->at, words[i], n) == 0) {
            jp->token = jp->at;
            jp->at += n;
            return true;
        }
    }
    return false;
}

/* A string, number or word; text of strings goes to scratch. */
static bool skip_scalar(struct mw_jp *jp, struct mw_str *scratch)
{
    const char *s = "";
    size_t n = 0;
    char c = mw_jp_peek(jp);
    if (c == '"') {
        return mw_jp_string(jp, scratch);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return number_token(jp, &s, &n);
    }
    return skip_word(jp) || fail_found(jp, "a value");
}

static bool skip_nested(struct mw_jp *jp, struct mw_str *scratch, int depth)
{
    char open = mw_jp_peek(jp);
    if (open != '{' && open != '[') {
        return skip_scalar(jp, scratch);
    }
    if (depth >= MW_JP_DEPTH_MAX) {
        return mw_jp_fail(jp, jp->at, "nested deeper than %d levels",
                          MW_JP_DEPTH_MAX);
    }
    char close = open == '{' ? '}' : ']';
    for (bool more = mw_jp_enter(jp, open); more;
         more = mw_jp_more(jp, close)) {
        if (open == '{' && !mw_jp_key(jp, scratch)) {
            return false;
        }
        if (!skip_nested(jp, scratch, depth + 1)) {
            return false;
        }
    }
    return !jp->failed;
}

bool mw_jp_skip(struct mw_jp *jp)
{
    struct mw_str scratch = {.s = NULL};
    size_t token = jp->at;
    bool ok = !jp->failed && skip_nested(jp, &scratch, 0);
    jp->token = token;
    mw_str_release(&scratch);
    return ok;
}
