/*
 * Reading YAML with libfyaml: its events become calls of yaml_tree.h.
 *
 * We do not use fy_document: with a tree of our own, places of keys and values
 * are at hand, and depth, size, duplicate keys, anchors (a few lines of which
 * can expand to gigabytes), tags and further documents are refused with our
 * words at the event that brings them. libfyaml's messages are collected,
 * never printed. YAML 1.2; JSON is read as the YAML it is.
 */
#include "base/file.h"
#include "base/text_int.h"
#include "base/yaml_tree.h"

#include <libfyaml.h>
#include <string.h>

struct reader {
    struct mw_yaml *doc;
    struct mw_err *err;
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_token_iter *iter;
    int n_documents;
    size_t last_offset;  /* where a value without text stands */
    MW_ARRAY(char) text; /* of the quoted scalar being read */
    struct mw_yaml_tree tree;
};

static void discard(struct fy_diag *diag, void *user, const char *buf,
                    size_t len)
{
    (void)diag;
    (void)user;
    (void)buf;
    (void)len;
}

/* ---- tokens -------------------------------------------------------- */

static bool is_quoted_token(struct fy_token *token)
{
    return token != NULL && fy_token_scalar_style(token) != FYSS_PLAIN;
}

/* A token that stands for nothing has no place of its own. */
static struct mw_yaml_span token_span(const struct reader *r,
                                      struct fy_token *token)
{
    const struct fy_mark *start = token ? fy_token_start_mark(token) : NULL;
    const struct fy_mark *end = token ? fy_token_end_mark(token) : NULL;
    struct mw_yaml_span span = {r->last_offset, 1};
    if (start != NULL) {
        span.offset = start->input_pos;
    }
    if (start != NULL && end != NULL && end->input_pos > start->input_pos) {
        span.width = end->input_pos - start->input_pos;
    }
    if (span.offset > r->doc->len) {
        span.offset = r->doc->len;
    }
    return span;
}

/* libfyaml places a quoted scalar between its quotes; they belong to it. */
static void widen_to_quotes(const struct mw_yaml *doc,
                            struct mw_yaml_span *span)
{
    char before = span->offset > 0 ? doc->text[span->offset - 1] : '\0';
    if (before == '"' || before == '\'') {
        span->offset -= 1;
        span->width += 2;
    }
}

/* Reads the text of a quoted token. fy_token_get_text() of libfyaml 0.7.12
 * loses its buffer for a scalar with many '' in it; its iterator does not. */
static const char *quoted_text(struct reader *r, struct fy_token *token,
                               size_t *len)
{
    const struct fy_iter_chunk *chunk = NULL;
    mw_array_clear(&r->text);
    fy_token_iter_start(token, r->iter);
    while ((chunk = fy_token_iter_chunk_next(r->iter, chunk, NULL)) != NULL) {
        mw_array_reserve(&r->text, chunk->len);
        memcpy(r->text.v + r->text.n, chunk->str, chunk->len);
        r->text.n += chunk->len;
    }
    fy_token_iter_finish(r->iter);
    *len = r->text.n;
    return r->text.v;
}

/* ---- events -------------------------------------------------------- */

static enum mw_status on_scalar(struct reader *r, struct fy_token *value)
{
    struct mw_yaml_span span = token_span(r, value);
    const char *text = NULL;
    size_t len = 0;
    bool is_quoted = is_quoted_token(value);
    if (is_quoted) {
        widen_to_quotes(r->doc, &span);
        text = quoted_text(r, value, &len);
    } else if (value != NULL) {
        text = fy_token_get_text(value, &len);
    }
    r->last_offset = span.offset;
    return mw_yaml_tree_scalar(&r->tree, span, text, text != NULL ? len : 0,
                               is_quoted);
}

static enum mw_status on_start(struct reader *r, struct fy_token *token,
                               enum mw_node_kind kind)
{
    return mw_yaml_tree_begin(&r->tree, token_span(r, token).offset, kind);
}

static enum mw_status check_properties(struct reader *r,
                                       struct fy_token *anchor,
                                       struct fy_token *tag)
{
    struct fy_token *token = anchor != NULL ? anchor : tag;
    if (token == NULL) {
        return MW_OK;
    }
    struct mw_yaml_span span = token_span(r, token);
    return mw_yaml_fail(r->doc, span.offset, span.width, r->err,
                        anchor != NULL
                            ? "anchors and aliases (&name, *name) are not "
                              "allowed; write the value out"
                            : "tags (!name) are not allowed; remove it");
}

/* A document without "---" is refused at its first node, which has a place. */
static enum mw_status on_document(struct reader *r, struct fy_token *start)
{
    if (++r->n_documents == 1 || start == NULL) {
        return MW_OK;
    }
    struct mw_yaml_span span = token_span(r, start);
    return mw_yaml_fail(r->doc, span.offset, span.width, r->err,
                        MW_YAML_SECOND_DOCUMENT);
}

static enum mw_status on_event(struct reader *r, const struct fy_event *e)
{
    enum mw_status st;
    switch (e->type) {
    case FYET_DOCUMENT_START:
        return on_document(r, e->document_start.document_start);
    case FYET_SCALAR:
        st = check_properties(r, e->scalar.anchor, e->scalar.tag);
        return st != MW_OK ? st : on_scalar(r, e->scalar.value);
    case FYET_SEQUENCE_START:
        st = check_properties(r, e->sequence_start.anchor,
                              e->sequence_start.tag);
        return st != MW_OK
                   ? st
                   : on_start(r, e->sequence_start.sequence_start, MW_NODE_SEQ);
    case FYET_MAPPING_START:
        st = check_properties(r, e->mapping_start.anchor, e->mapping_start.tag);
        return st != MW_OK
                   ? st
                   : on_start(r, e->mapping_start.mapping_start, MW_NODE_MAP);
    case FYET_SEQUENCE_END:
    case FYET_MAPPING_END:
        return mw_yaml_tree_end(&r->tree);
    case FYET_ALIAS:
        return check_properties(r, e->alias.anchor, NULL);
    case FYET_NONE:
    case FYET_STREAM_START:
    case FYET_STREAM_END:
    case FYET_DOCUMENT_END:
        break;
    }
    return MW_OK;
}

/* Byte offset of a line and column that libfyaml counts from 1. */
static size_t offset_of(const struct mw_yaml *doc, int line, int column)
{
    size_t at = 0;
    for (int i = 1; i < line && at < doc->len; at++) {
        i += doc->text[at] == '\n';
    }
    for (int i = 1; i < column && at < doc->len && doc->text[at] != '\n';) {
        at++;
        i += ((unsigned char)doc->text[at] & 0xc0u) != 0x80u;
    }
    if (at == doc->len && at > 0 && doc->text[at - 1] == '\n') {
        at--; /* the end of the last line says more than an empty line */
    }
    return at;
}

static enum mw_status fail_syntax(struct reader *r)
{
    void *iter = NULL;
    const struct fy_diag_error *e = fy_diag_errors_iterate(r->diag, &iter);
    if (e == NULL) {
        return mw_fail(r->err, MW_EINPUT, "%s: is not valid YAML",
                       r->doc->file);
    }
    struct mw_pos pos =
        mw_yaml_pos(r->doc, offset_of(r->doc, e->line, e->column), 1);
    return mw_fail_at(r->err, MW_EINPUT, &pos, "YAML syntax: %s", e->msg);
}

static enum mw_status read_events(struct reader *r)
{
    enum mw_status st = MW_OK;
    struct fy_event *e;
    while (st == MW_OK && (e = fy_parser_parse(r->parser)) != NULL) {
        st = on_event(r, e);
        fy_parser_event_free(r->parser, e);
    }
    if (st == MW_OK && (fy_parser_get_stream_error(r->parser) ||
                        fy_diag_got_error(r->diag) || r->tree.depth > 0)) {
        st = fail_syntax(r);
    }
    if (st == MW_OK && (r->doc->root == NULL || r->doc->root->is_null)) {
        st = mw_fail(r->err, MW_EINPUT, "%s: is empty", r->doc->file);
    }
    return st;
}

/* ---- documents ----------------------------------------------------- */

static struct fy_diag *new_diag(void)
{
    struct fy_diag_cfg cfg;
    fy_diag_cfg_default(&cfg);
    cfg.fp = NULL;
    cfg.output_fn = discard;
    cfg.colorize = false;
    struct fy_diag *diag = fy_diag_create(&cfg);
    MW_ASSERT(diag != NULL, "fy_diag_create failed");
    fy_diag_set_collect_errors(diag, true);
    return diag;
}

static enum mw_status read_text(struct mw_yaml *doc, struct mw_err *err)
{
    struct reader *r = mw_calloc(1, sizeof *r);
    *r = (struct reader){.doc = doc, .err = err, .diag = new_diag()};
    r->tree = (struct mw_yaml_tree){.doc = doc, .err = err};
    struct fy_parse_cfg cfg = {.search_path = "",
                               .flags = FYPCF_DEFAULT_VERSION_1_2 |
                                        FYPCF_JSON_NONE | FYPCF_COLLECT_DIAG,
                               .diag = r->diag};
    r->parser = fy_parser_create(&cfg);
    r->iter = fy_token_iter_create(NULL);
    MW_ASSERT(r->parser != NULL && r->iter != NULL, "fy_parser_create failed");
    int rc = fy_parser_set_string(r->parser, doc->text, doc->len);
    MW_ASSERT(rc == 0, "fy_parser_set_string: %d", rc);
    enum mw_status st = read_events(r);
    fy_token_iter_destroy(r->iter);
    fy_parser_destroy(r->parser);
    fy_diag_destroy(r->diag);
    mw_yaml_tree_release(&r->tree);
    mw_array_release(&r->text);
    mw_free(r);
    return st;
}

/* Takes the text. */
static enum mw_status read_document(const char *name, char *text, size_t len,
                                    struct mw_yaml **out, struct mw_err *err)
{
    struct mw_yaml *doc = mw_calloc(1, sizeof *doc);
    mw_arena_init(&doc->arena);
    doc->file = mw_arena_strdup(&doc->arena, name);
    doc->text = text;
    doc->len = len;
    enum mw_status st = mw_text_check(name, text, len, err);
    if (st == MW_OK) {
        st = mw_yaml_scan(doc, err);
    }
    if (st == MW_OK) {
        st = read_text(doc, err);
    }
    if (st == MW_OK) {
        *out = doc;
    } else {
        mw_yaml_free(doc);
    }
    return st;
}

enum mw_status mw_yaml_parse(const char *name, const char *text, size_t len,
                             struct mw_yaml **out, struct mw_err *err)
{
    if (len > MW_YAML_SIZE_MAX) {
        return mw_fail(err, MW_EINPUT,
                       "%s: has %zu bytes; YAML text may have at most 16 MiB",
                       name, len);
    }
    char *copy = mw_calloc(len + 1, 1);
    memcpy(copy, text, len);
    return read_document(name, copy, len, out, err);
}

enum mw_status mw_yaml_load(const char *path, struct mw_yaml **out,
                            struct mw_err *err)
{
    char *text = NULL;
    size_t len = 0;
    enum mw_status st =
        mw_file_read_as(path, "YAML file", MW_YAML_SIZE_MAX, &text, &len, err);
    return st == MW_OK ? read_document(path, text, len, out, err) : st;
}
