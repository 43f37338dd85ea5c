/*
 * The reader behind xml.h: one pass over the text, a stack of open elements,
 * no recursion (depth is bounded by MW_XML_DEPTH_MAX all the same, because
 * the readers of the tree recurse).
 */
#include "sim/net/xml.h"

#include "base/file.h"
#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *file;
    const char *p, *end, *line_start;
    int line;
    struct mw_arena *arena;
    struct mw_err *err;
};

static enum mw_status fail(struct reader *r, const char *what)
{
    struct mw_pos pos = {.file = r->file,
                         .line = r->line,
                         .column = (int)(r->p - r->line_start) + 1,
                         .width = 1};
    return mw_fail_at(r->err, MW_EINPUT, &pos, "%s", what);
}

static void step(struct reader *r)
{
    if (*r->p == '\n') {
        r->line++;
        r->line_start = r->p + 1;
    }
    r->p++;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct reader *r)
{
    while (r->p < r->end && is_space(*r->p)) {
        step(r);
    }
}

static bool looking_at(const struct reader *r, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(r->end - r->p) >= n && memcmp(r->p, word, n) == 0;
}

/* Steps past the next occurrence of `word`. */
static enum mw_status skip_past(struct reader *r, const char *word)
{
    while (r->p < r->end && !looking_at(r, word)) {
        step(r);
    }
    if (r->p >= r->end) {
        return fail(r, "the XML ends inside a comment or declaration");
    }
    r->p += strlen(word);
    return MW_OK;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == ':';
}

static enum mw_status read_name(struct reader *r, const char **out)
{
    const char *begin = r->p;
    while (r->p < r->end && is_name_char(*r->p)) {
        r->p++;
    }
    size_t n = (size_t)(r->p - begin);
    if (n == 0) {
        return fail(r, "expected the name of an element or attribute");
    }
    char *s = mw_arena_alloc(r->arena, n + 1, 1);
    memcpy(s, begin, n);
    *out = s;
    return MW_OK;
}

static bool decode_entity(struct reader *r, char *out)
{
    static const struct {
        const char *text;
        char c;
    } known[] = {{"&amp;", '&'},
                 {"&lt;", '<'},
                 {"&gt;", '>'},
                 {"&quot;", '"'},
                 {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (looking_at(r, known[i].text)) {
            r->p += strlen(known[i].text);
            *out = known[i].c;
            return true;
        }
    }
    return false;
}

static enum mw_status read_value(struct reader *r, const char **out)
{
    char quote = *r->p;
    step(r);
    const char *close = memchr(r->p, quote, (size_t)(r->end - r->p));
    if (!close) {
        return fail(r, "the value of an attribute has no closing quote");
    }
    char *s = mw_arena_alloc(r->arena, (size_t)(close - r->p) + 1, 1);
    size_t n = 0;
    while (r->p < close) {
        if (*r->p == '&') {
            if (!decode_entity(r, &s[n])) {
                return fail(r, "unknown entity; &amp; &lt; &gt; &quot; and "
                               "&apos; are read");
            }
        } else {
            s[n] = *r->p;
            step(r);
        }
        n++;
    }
    r->p = close + 1;
    *out = s;
    return MW_OK;
}

static enum mw_status read_attrs(struct reader *r, struct mw_xml *node)
{
    struct mw_xml_attr **tail = &node->attrs;
    for (;;) {
        skip_space(r);
        if (r->p >= r->end) {
            return fail(r, "the XML ends inside an element");
        }
        if (*r->p == '>' || *r->p == '/') {
            return MW_OK;
        }
        struct mw_xml_attr *a = mw_arena_alloc(r->arena, 1, sizeof *a);
        enum mw_status s = read_name(r, &a->key);
        if (s != MW_OK) {
            return s;
        }
        if (mw_xml_attr(node, a->key)) {
            return fail(r, "an attribute is given twice");
        }
        skip_space(r);
        if (r->p >= r->end || *r->p != '=') {
            return fail(r, "expected '=' after the name of an attribute");
        }
        step(r);
        skip_space(r);
        if (r->p >= r->end || (*r->p != '"' && *r->p != '\'')) {
            return fail(r, "expected a quoted value after '='");
        }
        s = read_value(r, &a->value);
        if (s != MW_OK) {
            return s;
        }
        *tail = a;
        tail = &a->next;
    }
}

struct stack {
    struct mw_xml *open[MW_XML_DEPTH_MAX];
    struct mw_xml **tail[MW_XML_DEPTH_MAX]; /* where the next child hangs */
    int depth;
    struct mw_xml *root;
};

static enum mw_status read_close(struct reader *r, struct stack *st)
{
    r->p += 2;
    const char *name = NULL;
    enum mw_status s = read_name(r, &name);
    if (s != MW_OK) {
        return s;
    }
    skip_space(r);
    if (r->p >= r->end || *r->p != '>') {
        return fail(r, "expected '>' at the end of a closing tag");
    }
    if (st->depth == 0 || strcmp(st->open[st->depth - 1]->name, name) != 0) {
        return fail(r, "a closing tag does not match the open element");
    }
    r->p++;
    st->depth--;
    return MW_OK;
}

static enum mw_status attach(struct reader *r, struct stack *st,
                             struct mw_xml *node)
{
    if (st->depth > 0) {
        *st->tail[st->depth - 1] = node;
        st->tail[st->depth - 1] = &node->next;
    } else if (st->root) {
        return fail(r, "a second root element");
    } else {
        st->root = node;
    }
    return MW_OK;
}

static enum mw_status read_open(struct reader *r, struct stack *st)
{
    struct mw_xml *node = mw_arena_alloc(r->arena, 1, sizeof *node);
    node->file = r->file;
    node->line = r->line;
    r->p++;
    enum mw_status s = read_name(r, &node->name);
    if (s == MW_OK) {
        s = attach(r, st, node);
    }
    if (s == MW_OK) {
        s = read_attrs(r, node);
    }
    if (s != MW_OK) {
        return s;
    }
    bool is_empty = *r->p == '/';
    r->p += is_empty ? 1 : 0;
    if (r->p >= r->end || *r->p != '>') {
        return fail(r, "expected '>' at the end of a tag");
    }
    r->p++;
    if (is_empty) {
        return MW_OK;
    }
    if (st->depth == MW_XML_DEPTH_MAX) {
        return fail(r, "elements are nested deeper than 64");
    }
    st->tail[st->depth] = &node->first_child;
    st->open[st->depth++] = node;
    return MW_OK;
}

static enum mw_status read_markup(struct reader *r, struct stack *st)
{
    if (looking_at(r, "<!--")) {
        return skip_past(r, "-->");
    }
    if (looking_at(r, "<?")) {
        return skip_past(r, "?>");
    }
    if (looking_at(r, "<!")) {
        return fail(r, "DOCTYPE and CDATA are not read");
    }
    return looking_at(r, "</") ? read_close(r, st) : read_open(r, st);
}

enum mw_status mw_xml_parse(const char *name, const char *text, size_t len,
                            struct mw_arena *arena, struct mw_xml **out,
                            struct mw_err *err)
{
    struct reader r = {.file = mw_arena_strdup(arena, name),
                       .p = text,
                       .end = text + len,
                       .line_start = text,
                       .line = 1,
                       .arena = arena,
                       .err = err};
    struct stack st = {.depth = 0};
    if (len > MW_XML_SIZE_MAX) {
        return fail(&r, "larger than 64 MiB");
    }
    if (memchr(text, '\0', len)) {
        return fail(&r, "not a text file");
    }
    while (r.p < r.end) {
        if (*r.p != '<') {
            if (st.depth == 0 && !is_space(*r.p)) {
                return fail(&r, "expected an XML element");
            }
            step(&r);
            continue;
        }
        enum mw_status s = read_markup(&r, &st);
        if (s != MW_OK) {
            return s;
        }
    }
    if (st.depth > 0 || !st.root) {
        return fail(&r, st.root ? "the XML ends with an element still open"
                                : "no XML element in it");
    }
    *out = st.root;
    return MW_OK;
}

enum mw_status mw_xml_load(const char *path, struct mw_arena *arena,
                           struct mw_xml **out, struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status s = mw_file_read(path, MW_XML_SIZE_MAX, &text, &len, err);
    if (s != MW_OK) {
        return s;
    }
    s = mw_xml_parse(path, text, len, arena, out, err);
    mw_free(text);
    return s;
}

const char *mw_xml_attr(const struct mw_xml *node, const char *key)
{
    for (const struct mw_xml_attr *a = node->attrs; a; a = a->next) {
        if (strcmp(a->key, key) == 0) {
            return a->value;
        }
    }
    return NULL;
}

const struct mw_xml *mw_xml_child(const struct mw_xml *node, const char *name)
{
    for (const struct mw_xml *c = node->first_child; c; c = c->next) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

enum mw_status mw_xml_fail(const struct mw_xml *node, struct mw_err *err,
                           const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return mw_fail(err, MW_EINPUT, "%s:%d: %s", node->file, node->line, text);
}

enum mw_status mw_xml_int(const struct mw_xml *node, const char *key,
                          int64_t min, int64_t max, bool has_absent,
                          int64_t absent, int64_t *out, struct mw_err *err)
{
    const char *text = mw_xml_attr(node, key);
    if (!text) {
        if (!has_absent) {
            return mw_xml_fail(node, err, "<%s> lacks the attribute '%s'",
                               node->name, key);
        }
        *out = absent;
        return MW_OK;
    }
    int64_t v = 0;
    bool ok = false;
    if (strncmp(text, "0x", 2) == 0 && text[2] != '\0' && strlen(text) <= 17) {
        char *end = NULL;
        v = (int64_t)strtoull(text + 2, &end, 16);
        ok = *end == '\0';
    } else {
        ok = mw_int_parse(text, &v, NULL) == MW_OK;
    }
    if (!ok || v < min || v > max) {
        return mw_xml_fail(node, err,
                           "<%s %s=\"%.60s\">: must be an integer from %lld "
                           "to %lld",
                           node->name, key, text, (long long)min,
                           (long long)max);
    }
    *out = v;
    return MW_OK;
}
