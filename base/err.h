/*
 * Statuses and error messages.
 *
 * A function that can fail returns `enum mw_status` (0 or negative) and takes
 * `struct mw_err *err` last (may be NULL). The function that first knows the
 * cause writes the message; callers only pass the status on. Messages are
 * lower case without a full stop and name the object, the value and what
 * would be right. A message about an input file begins FILE:LINE:COLUMN.
 * Several findings of one read are collected (at most MW_ERR_LINES_MAX).
 */
#ifndef MW_BASE_ERR_H
#define MW_BASE_ERR_H

#include <stddef.h>

/* X(name, value, exit status of the programs, meaning) */
#define MW_STATUS_MAP(X)                                                       \
    X(OK, 0, 0, "done")                                                        \
    X(ENO, -1, 1, "the answer is no: no feasible plan, out of tolerance")      \
    X(EUSAGE, -2, 2, "wrong use of the command line")                          \
    X(EINPUT, -3, 3, "an input file is wrong")                                 \
    X(EMISSING, -4, 4, "something is missing at run time")                     \
    X(EFAILED, -5, 5, "a run failed or an internal error")                     \
    X(EBACKEND, -6, 5, "a library (MPI, CUDA, GLPK) reported an error")        \
    X(EINTR, -7, 130, "interrupted")

enum mw_status {
#define MW_STATUS_ENUM(name, value, exit_status, meaning) MW_##name = value,
    MW_STATUS_MAP(MW_STATUS_ENUM)
#undef MW_STATUS_ENUM
};

enum { MW_ERR_TEXT_MAX = 8192, MW_ERR_LINES_MAX = 20 };

/*
 * Accumulates up to MW_ERR_LINES_MAX findings, each one line, a finding with a
 * position followed by the source line and a caret. Zero-initialise it. It
 * holds no pointers: ranks send it to each other.
 */
struct mw_err {
    enum mw_status status; /* of the first finding; MW_OK when there is none */
    int n_findings;
    size_t len;
    char text[MW_ERR_TEXT_MAX]; /* findings separated by '\n', no last one */
    /* What asked for the impossible: a section and a key of it (or "") of a
     * file that only the caller can name. section "": not known. */
    char section[16], key[32];
};

/* A place in an input file. line and column count from 1; 0 is unknown. */
struct mw_pos {
    const char *file;
    int line;
    int column;
    int width;               /* characters to underline, at least 1 */
    const char *source_line; /* without the newline; NULL when unknown */
};

/* Adds a finding to err (if not NULL) and returns status. */
enum mw_status mw_fail(struct mw_err *err, enum mw_status status,
                       const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes over the text of another process's err, its lines as they are. */
enum mw_status mw_fail_text(struct mw_err *err, enum mw_status status,
                            const char *text);

/* As mw_fail, with the position before the message and the caret after it. */
enum mw_status mw_fail_at(struct mw_err *err, enum mw_status status,
                          const struct mw_pos *pos, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts context in front of the first finding of a failed err: "ctx: msg". */
void mw_err_prefix(struct mw_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Says which key of the input a failure is about (key may be NULL); whoever
 * knows the file turns it into a place (mw_scenario_blame). */
void mw_err_set_key(struct mw_err *err, const char *section, const char *key);
/* mw_fail and mw_err_set_key. */
enum mw_status mw_fail_key(struct mw_err *err, enum mw_status status,
                           const char *section, const char *key,
                           const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

void mw_err_clear(struct mw_err *err);

/* "EINPUT" and so on; "unknown status" for a value outside the map. */
const char *mw_status_name(enum mw_status status);

/* Exit status of the programs for a status (DESIGN: 0, 1, 2, 3, 4, 5, 130). */
int mw_status_exit(enum mw_status status);

/* Prints values and aborts: for broken invariants, always compiled in. */
#define MW_ASSERT(cond, ...)                                                   \
    ((cond) ? (void)0 : mw_assert_fail(#cond, __FILE__, __LINE__, __VA_ARGS__))
_Noreturn void mw_assert_fail(const char *cond, const char *file, int line,
                              const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
