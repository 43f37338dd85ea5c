/*
 * A pull reader of JSON text (RFC 8259) for timelines: values are read one by
 * one where the caller expects them, no tree is built, and every error has a
 * line and a column. Stricter than the RFC nowhere; nesting is limited.
 *
 *   struct mw_jp jp = {.file = name, .text = text, .len = len, .err = err};
 *   for (bool more = mw_jp_enter(&jp, '{'); more; more = mw_jp_more(&jp, '}'))
 * { if (!mw_jp_key(&jp, &key)) ...
 *
 * The first error sets `failed`; every later call does nothing and returns
 * false, so a caller checks once at the end.
 */
#ifndef MW_SIM_ENGINE_JSON_PULL_INT_H
#define MW_SIM_ENGINE_JSON_PULL_INT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>

enum { MW_JP_DEPTH_MAX = 64 };

struct mw_jp {
    const char *file;
    const char *text; /* NUL after len */
    size_t len, at;
    size_t token; /* where the value read last began */
    struct mw_err *err;
    bool failed;
};

/* A finding at a byte of the text; sets failed. Returns false. */
bool mw_jp_fail(struct mw_jp *jp, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* First character of the next value or closing bracket; 0 at the end. */
char mw_jp_peek(struct mw_jp *jp);
/* Enters '{' or '['; true when it is not empty. */
bool mw_jp_enter(struct mw_jp *jp, char open);
/* After a member: true when another follows; false at the closing bracket,
 * which is taken, and after an error. */
bool mw_jp_more(struct mw_jp *jp, char close);
/* A member's name and its colon. */
bool mw_jp_key(struct mw_jp *jp, struct mw_str *out);
/* Values. Strings replace what out held; out->s is never NULL after it. */
bool mw_jp_string(struct mw_jp *jp, struct mw_str *out);
bool mw_jp_number(struct mw_jp *jp, double *out);
bool mw_jp_int(struct mw_jp *jp, long long min, long long max, long long *out);
/* A number of units of 10^decimals picoseconds, exact: 6 for microseconds. */
bool mw_jp_time(struct mw_jp *jp, int decimals, mw_time *out_ps);
bool mw_jp_skip(struct mw_jp *jp);
/* Nothing but white space is left. */
bool mw_jp_end(struct mw_jp *jp);

/*
 * Decimal text of len bytes as picoseconds, in units of 10^decimals ps. Exact
 * up to that many decimals, nearest beyond. NULL when right, else what is
 * wrong. Not negative, at most the range of mw_time.
 */
const char *mw_ps_parse(const char *text, size_t len, int decimals,
                        mw_time *out_ps);

#endif
