/*
 * Statuses and error messages: the text of a `struct mw_err`.
 *
 * A finding is added whole or not at all, so the text never ends in the middle
 * of a line. Control characters of quoted input are replaced, because the text
 * goes to a terminal. A source line that is long is shown as a window around
 * the caret. Columns count characters (UTF-8 code points), not bytes; double
 * width characters are not known here, so a caret behind them is off.
 */
#include "base/err.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 3072, WINDOW = 100, WIDTH_MAX = 100 };

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0u) == 0x80u;
}

/* Newlines would break "one finding, one line"; the rest may be an attack on
 * the terminal. */
static void replace_controls(char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\n' || *s == '\t') {
            *s = ' ';
        } else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            *s = '?';
        }
    }
}

/* Ends an overlong message in "..." at a character boundary. */
static void mark_cut(char *buf, size_t size)
{
    size_t end = size - 4;
    while (end > 0 && is_continuation(buf[end])) {
        end--;
    }
    memcpy(buf + end, "...", 4);
}

static void format_message(char *buf, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
static void format_message(char *buf, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(buf, size, fmt, ap);
    if (n < 0) {
        snprintf(buf, size, "a message that cannot be formatted");
    } else if ((size_t)n >= size) {
        mark_cut(buf, size);
    }
    replace_controls(buf);
}

/* Adds a finding of one or more lines, if there is room for it and for the
 * last line that says something is left out. */
static void add_finding(struct mw_err *err, enum mw_status status,
                        const char *text)
{
    static const char more[] = "further errors are not shown";
    if (err->status == MW_OK) {
        err->status = status;
    }
    err->n_findings++;
    size_t len = strlen(text);
    size_t room = sizeof err->text - err->len - sizeof more - 2;
    if (err->n_findings > MW_ERR_LINES_MAX || len > room) {
        if (err->len >= sizeof more - 1 &&
            strcmp(err->text + err->len - (sizeof more - 1), more) == 0) {
            return;
        }
        text = more;
        len = sizeof more - 1;
    }
    if (err->len > 0) {
        err->text[err->len++] = '\n';
    }
    memcpy(err->text + err->len, text, len + 1);
    err->len += len;
}

enum mw_status mw_fail(struct mw_err *err, enum mw_status status,
                       const char *fmt, ...)
{
    if (err != NULL) {
        char message[MESSAGE_MAX];
        va_list ap;
        va_start(ap, fmt);
        format_message(message, sizeof message, fmt, ap);
        va_end(ap);
        add_finding(err, status, message);
    }
    return status;
}

enum mw_status mw_fail_text(struct mw_err *err, enum mw_status status,
                            const char *text)
{
    if (err != NULL) {
        add_finding(err, status, text);
    }
    return status;
}

void mw_err_set_key(struct mw_err *err, const char *section, const char *key)
{
    if (err != NULL) {
        snprintf(err->section, sizeof err->section, "%s", section);
        snprintf(err->key, sizeof err->key, "%s", key != NULL ? key : "");
    }
}

enum mw_status mw_fail_key(struct mw_err *err, enum mw_status status,
                           const char *section, const char *key,
                           const char *fmt, ...)
{
    if (err != NULL) {
        char message[MESSAGE_MAX];
        va_list ap;
        va_start(ap, fmt);
        format_message(message, sizeof message, fmt, ap);
        va_end(ap);
        add_finding(err, status, message);
    }
    mw_err_set_key(err, section, key);
    return status;
}

/* First byte of the n-th character of s (from 0), or the end. */
static const char *char_at(const char *s, int n)
{
    while (*s != '\0' && n > 0) {
        s++;
        n -= !is_continuation(*s);
    }
    return s;
}

static int char_count(const char *s)
{
    int n = 0;
    for (; *s != '\0'; s++) {
        n += !is_continuation(*s);
    }
    return n;
}

/*
 * The source line and the caret under it:
 *
 *     nodes: -3
 *            ^~
 * A long line is cut to WINDOW characters around the caret.
 */
static void add_excerpt(struct mw_str *out, const struct mw_pos *pos)
{
    int column = pos->column < 1 ? 1 : pos->column;
    int width = pos->width < 1 ? 1 : pos->width;
    int skip = column > WINDOW / 2 + 1 ? column - 1 - WINDOW / 2 : 0;
    const char *begin = char_at(pos->source_line, skip);
    const char *end = char_at(begin, WINDOW);
    const char *head = skip > 0 ? "..." : "";
    int left = char_count(char_at(begin, column - 1 - skip));
    if (width > left) {
        width = left > 0 ? left : 1;
    }
    if (width > WIDTH_MAX) {
        width = WIDTH_MAX;
    }
    struct mw_str line = {0};
    mw_str_addf(&line, "%s%.*s%s", head, (int)(end - begin), begin,
                *end != '\0' ? "..." : "");
    replace_controls(line.s);
    mw_str_addf(out, "\n    %s\n    %*s^", line.s,
                column - 1 - skip + (int)strlen(head), "");
    for (int i = 1; i < width; i++) {
        mw_str_add(out, "~");
    }
    mw_str_release(&line);
}

static void add_place(struct mw_str *out, const struct mw_pos *pos)
{
    mw_str_add(out, pos->file != NULL ? pos->file : "input");
    replace_controls(out->s);
    if (pos->line > 0) {
        mw_str_addf(out, ":%d", pos->line);
        if (pos->column > 0) {
            mw_str_addf(out, ":%d", pos->column);
        }
    }
    mw_str_add(out, ": ");
}

enum mw_status mw_fail_at(struct mw_err *err, enum mw_status status,
                          const struct mw_pos *pos, const char *fmt, ...)
{
    if (err == NULL) {
        return status;
    }
    char message[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    format_message(message, sizeof message, fmt, ap);
    va_end(ap);
    struct mw_str text = {0};
    add_place(&text, pos);
    mw_str_add(&text, message);
    if (pos->source_line != NULL && pos->line > 0 && pos->column > 0) {
        add_excerpt(&text, pos);
    }
    add_finding(err, status, text.s);
    mw_str_release(&text);
    return status;
}

void mw_err_prefix(struct mw_err *err, const char *fmt, ...)
{
    if (err == NULL || err->n_findings == 0) {
        return;
    }
    char prefix[512];
    va_list ap;
    va_start(ap, fmt);
    format_message(prefix, sizeof prefix - 2, fmt, ap);
    va_end(ap);
    size_t n = strlen(prefix);
    memcpy(prefix + n, ": ", 3);
    n += 2;
    if (err->len + n >= sizeof err->text) {
        return; /* the finding itself is worth more than its context */
    }
    memmove(err->text + n, err->text, err->len + 1);
    memcpy(err->text, prefix, n);
    err->len += n;
}

void mw_err_clear(struct mw_err *err)
{
    if (err != NULL) {
        err->section[0] = err->key[0] = '\0';
        err->status = MW_OK;
        err->n_findings = 0;
        err->len = 0;
        err->text[0] = '\0';
    }
}

const char *mw_status_name(enum mw_status status)
{
    switch (status) {
#define MW_STATUS_CASE(name, value, exit_status, meaning)                      \
    case MW_##name:                                                            \
        return #name;
        MW_STATUS_MAP(MW_STATUS_CASE)
#undef MW_STATUS_CASE
    }
    return "unknown status";
}

int mw_status_exit(enum mw_status status)
{
    switch (status) {
#define MW_STATUS_CASE(name, value, exit_status, meaning)                      \
    case MW_##name:                                                            \
        return exit_status;
        MW_STATUS_MAP(MW_STATUS_CASE)
#undef MW_STATUS_CASE
    }
    return 5;
}

_Noreturn void mw_assert_fail(const char *cond, const char *file, int line,
                              const char *fmt, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s:%d: broken invariant: %s: %s\n", file, line, cond,
            message);
    abort();
}
