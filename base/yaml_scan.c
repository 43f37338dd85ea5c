/*
 * A look over YAML text before libfyaml sees it.
 *
 * libfyaml 0.7.12 reads tokens far ahead while a '[' or '{' may still turn out
 * to be a key, about 100 bytes a token, and takes quadratic time for a few
 * kinds of nonsense. This pass takes linear time and no memory, and refuses:
 * flow collections nested deeper than MW_YAML_DEPTH_MAX, lines of more than
 * 1 MiB, more than 256 blank lines in a row, %DIRECTIVES, and explicit or
 * empty keys ("? key", ": value"), after which its cleanup can crash.
 *
 * It knows as much of YAML as that needs: comments, quotes, block scalars, and
 * where a '[' opens a list rather than standing inside a word. What it gets
 * wrong in odd documents it lets pass; the reader checks depth again.
 */
#include "base/yaml_int.h"

#include <string.h>

enum { LINE_MAX_BYTES = 1 << 20, BLANK_LINES_MAX = 256 };

struct scan {
    struct mw_yaml *doc;
    struct mw_err *err;
    size_t at, end;     /* next character, end of the line */
    size_t line_indent; /* spaces before the line */
    int depth, n_blank_lines;
    char quote;        /* of the open quoted scalar, or 0 */
    bool is_block;     /* in a block scalar ... */
    size_t max_indent; /* ... which ends at a line indented no more than this */
    bool is_start;     /* a value or key may begin here */
};

static enum mw_status refuse(struct scan *s, size_t offset, const char *what)
{
    return mw_yaml_fail(s->doc, offset, 1, s->err, what);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_space_next(const struct scan *s)
{
    return s->at + 1 >= s->end || is_space(s->doc->text[s->at + 1]);
}

/* Inside quotes: '' is a quote in single ones, \ escapes in double ones. */
static void scan_quoted(struct scan *s, char c)
{
    const char *text = s->doc->text;
    if (s->quote == '"' && c == '\\') {
        s->at++;
    } else if (c == s->quote) {
        if (c == '\'' && s->at + 1 < s->end && text[s->at + 1] == '\'') {
            s->at++;
        } else {
            s->quote = '\0';
        }
    }
}

static void skip_word(struct scan *s)
{
    while (s->at + 1 < s->end && !is_space(s->doc->text[s->at + 1])) {
        s->at++;
    }
}

/* A character at which a key or value may begin. */
static enum mw_status scan_start(struct scan *s, char c)
{
    s->is_start = false;
    if (c == '?' && is_space_next(s)) {
        return refuse(
            s, s->at,
            "explicit keys (? key) are not allowed; write key: value");
    }
    if (c == ':' && is_space_next(s)) {
        return refuse(s, s->at, "a key is missing before ':'");
    }
    if (c == '"' || c == '\'') {
        s->quote = c;
    } else if (c == '&' || c == '!') {
        skip_word(s); /* what it belongs to follows */
        s->is_start = true;
    } else if (s->depth == 0 && (c == '|' || c == '>')) {
        s->is_block = true;
        s->max_indent = s->line_indent;
        s->at = s->end;
    } else if (c == '-') {
        s->is_start = is_space_next(s);
    }
    return MW_OK;
}

static enum mw_status scan_char(struct scan *s, char c)
{
    bool is_flow = s->depth > 0;
    if ((c == '[' || c == '{') && (is_flow || s->is_start)) {
        if (++s->depth > MW_YAML_DEPTH_MAX) {
            return refuse(s, s->at, MW_YAML_TOO_DEEP);
        }
        s->is_start = true;
    } else if (is_flow && (c == ']' || c == '}')) {
        s->depth--;
        s->is_start = false;
    } else if (c == ',' && is_flow) {
        s->is_start = true;
    } else if (s->is_start) {
        return scan_start(s, c);
    } else {
        s->is_start = c == ':' && (is_flow || is_space_next(s));
    }
    return MW_OK;
}

static enum mw_status scan_line(struct scan *s)
{
    const char *text = s->doc->text;
    size_t begin = s->at;
    bool is_after_space = true;
    s->is_start = true;
    for (; s->at < s->end; s->at++) {
        char c = text[s->at];
        if (s->quote != '\0') {
            scan_quoted(s, c);
        } else if (c == '#' && is_after_space) {
            break;
        } else if (c == '%' && s->at == begin && s->depth == 0) {
            return refuse(s, s->at,
                          "directives (%YAML, %TAG) are not allowed; remove "
                          "the line");
        } else if (!is_space(c)) {
            enum mw_status st = scan_char(s, c);
            if (st != MW_OK) {
                return st;
            }
        }
        is_after_space = is_space(c);
    }
    return MW_OK;
}

/* Spaces at the beginning of the line; the line's length if it is blank. */
static size_t indent_of(const char *line, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(line[i])) {
        i++;
    }
    return i;
}

static enum mw_status begin_line(struct scan *s)
{
    size_t n = s->end - s->at;
    if (n > LINE_MAX_BYTES) {
        return refuse(s, s->at, "the line is longer than 1 MiB; break it");
    }
    s->line_indent = indent_of(s->doc->text + s->at, n);
    bool is_blank = s->line_indent == n;
    s->n_blank_lines = is_blank ? s->n_blank_lines + 1 : 0;
    if (s->n_blank_lines > BLANK_LINES_MAX) {
        return refuse(s, s->at, "more than 256 blank lines in a row");
    }
    s->is_block = s->is_block && (is_blank || s->line_indent > s->max_indent);
    return MW_OK;
}

enum mw_status mw_yaml_scan(struct mw_yaml *doc, struct mw_err *err)
{
    struct scan s = {.doc = doc, .err = err};
    enum mw_status st = MW_OK;
    while (s.at < doc->len && st == MW_OK) {
        const char *lf = memchr(doc->text + s.at, '\n', doc->len - s.at);
        size_t end = lf != NULL ? (size_t)(lf - doc->text) : doc->len;
        s.end = end;
        st = begin_line(&s);
        if (st == MW_OK && !s.is_block) {
            st = scan_line(&s);
        }
        s.at = end + 1;
    }
    return st;
}
