/*
 * Building the tree of a YAML document from libfyaml's events.
 *
 * We build our own tree instead of using fy_document: places of keys and
 * values are then at hand, and depth, size, duplicate keys, anchors (a few
 * lines of which can expand to gigabytes), tags and further documents are
 * refused with our words at the event that brings them. libfyaml's messages
 * are collected, never printed. YAML 1.2; JSON is read as the YAML it is.
 */
#include "base/file.h"
#include "base/text_int.h"
#include "base/yaml_int.h"

#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1 << 22 };

/* A collection being filled; its parts move to the arena when it ends. */
struct frame {
    struct mw_node *node;
    size_t first;                /* its first entry in reader.entries */
    bool has_key;                /* map: a key waits for its value */
    struct mw_yaml_pair pending; /* that key */
};

struct reader {
    struct mw_yaml *doc;
    struct mw_err *err;
    struct fy_parser *parser;
    struct fy_diag *diag;
    struct fy_token_iter *iter;
    int n_documents, depth;
    size_t n_nodes;
    size_t last_offset; /* where a value without text stands */
    struct frame frames[MW_YAML_DEPTH_MAX];
    MW_ARRAY(struct mw_yaml_pair) entries; /* of all open collections */
    MW_ARRAY(char) text;                   /* of the quoted scalar being read */
};

static void discard(struct fy_diag *diag, void *user, const char *buf,
                    size_t len)
{
    (void)diag;
    (void)user;
    (void)buf;
    (void)len;
}

static enum mw_status fail_place(struct reader *r, size_t offset, size_t width,
                                 const char *message)
{
    struct mw_pos pos = mw_yaml_pos(r->doc, offset, width);
    return mw_fail_at(r->err, MW_EINPUT, &pos, "%s", message);
}

/* Start and byte width of a token; a token may lack a place. */
static void token_place(const struct reader *r, struct fy_token *token,
                        size_t *offset, size_t *width)
{
    const struct fy_mark *start = token ? fy_token_start_mark(token) : NULL;
    const struct fy_mark *end = token ? fy_token_end_mark(token) : NULL;
    *offset = start != NULL ? start->input_pos : r->last_offset;
    if (*offset > r->doc->len) {
        *offset = r->doc->len;
    }
    *width = 1;
    if (start != NULL && end != NULL && end->input_pos > start->input_pos) {
        *width = end->input_pos - start->input_pos;
    }
}

/* libfyaml places a quoted scalar between its quotes; they belong to it. */
static void widen_to_quotes(const struct mw_yaml *doc, size_t *offset,
                            size_t *width)
{
    char before = *offset > 0 ? doc->text[*offset - 1] : '\0';
    if (before == '"' || before == '\'') {
        *offset -= 1;
        *width += 2;
    }
}

static bool is_quoted_token(struct fy_token *token)
{
    return token != NULL && fy_token_scalar_style(token) != FYSS_PLAIN;
}

/* ---- nodes ----------------------------------------------------------------
 */

static struct mw_node *new_node(struct reader *r, struct fy_token *token,
                                enum mw_node_kind kind)
{
    size_t offset, width;
    token_place(r, token, &offset, &width);
    bool is_quoted = kind == MW_NODE_SCALAR && is_quoted_token(token);
    if (is_quoted) {
        widen_to_quotes(r->doc, &offset, &width);
    }
    struct mw_node *node = mw_arena_alloc(&r->doc->arena, 1, sizeof *node);
    node->doc = r->doc;
    node->kind = kind;
    node->is_quoted = is_quoted;
    node->offset = (uint32_t)offset;
    node->width = kind == MW_NODE_SCALAR ? (uint32_t)width : 1;
    return node;
}

/* Appends the text of a quoted token. fy_token_get_text() of libfyaml 0.7.12
 * loses its buffer for a scalar with many '' in it; its iterator does not. */
static void read_quoted(struct reader *r, struct fy_token *token)
{
    const struct fy_iter_chunk *chunk = NULL;
    fy_token_iter_start(token, r->iter);
    while ((chunk = fy_token_iter_chunk_next(r->iter, chunk, NULL)) != NULL) {
        mw_array_reserve(&r->text, chunk->len);
        memcpy(r->text.v + r->text.n, chunk->str, chunk->len);
        r->text.n += chunk->len;
    }
    fy_token_iter_finish(r->iter);
}

/* Text of a token in the arena; NULL if it has a NUL ("\0" in quotes). */
static const char *token_text(struct reader *r, struct fy_token *token)
{
    size_t n = 0;
    const char *s = NULL;
    if (is_quoted_token(token)) {
        mw_array_clear(&r->text);
        read_quoted(r, token);
        s = r->text.v;
        n = r->text.n;
    } else if (token != NULL) {
        s = fy_token_get_text(token, &n);
    }
    if (s == NULL || n == 0) {
        return "";
    }
    if (memchr(s, '\0', n) != NULL) {
        return NULL;
    }
    char *copy = mw_arena_alloc(&r->doc->arena, n + 1, 1);
    memcpy(copy, s, n);
    return copy;
}

static bool is_null_word(const char *s)
{
    return *s == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0 ||
           strcmp(s, "Null") == 0 || strcmp(s, "NULL") == 0;
}

static const char second_document[] =
    "a second document begins here; only one is allowed";

static enum mw_status add_node(struct reader *r, struct mw_node *node)
{
    if (++r->n_nodes > NODES_MAX) {
        return fail_place(r, node->offset, 1,
                          "the file has more than 4 million values");
    }
    if (r->depth == 0 && r->doc->root != NULL) {
        return fail_place(r, node->offset, 1, second_document);
    }
    if (r->depth == 0) {
        r->doc->root = node;
        return MW_OK;
    }
    struct frame *top = &r->frames[r->depth - 1];
    struct mw_yaml_pair entry = {.value = node};
    if (top->node->kind == MW_NODE_MAP) {
        entry = top->pending;
        if (node->is_null && node->offset == entry.key_offset) {
            node->width = entry.key_width; /* nothing there: show the key */
        }
        entry.value = node;
        node->name = entry.key;
        top->has_key = false;
    }
    mw_array_push(&r->entries, entry);
    return MW_OK;
}

static bool wants_key(const struct reader *r)
{
    return r->depth > 0 && !r->frames[r->depth - 1].has_key &&
           r->frames[r->depth - 1].node->kind == MW_NODE_MAP;
}

static enum mw_status on_scalar(struct reader *r, struct fy_token *value)
{
    struct mw_node *node = new_node(r, value, MW_NODE_SCALAR);
    node->u.text = token_text(r, value);
    if (node->u.text == NULL) {
        return fail_place(r, node->offset, node->width,
                          "a NUL character is not allowed");
    }
    node->is_null = !node->is_quoted && is_null_word(node->u.text);
    r->last_offset = node->offset;
    if (!wants_key(r)) {
        return add_node(r, node);
    }
    struct frame *top = &r->frames[r->depth - 1];
    top->has_key = true;
    top->pending = (struct mw_yaml_pair){.key = node->u.text,
                                         .key_offset = node->offset,
                                         .key_width = node->width};
    return MW_OK;
}

static enum mw_status on_start(struct reader *r, struct fy_token *token,
                               enum mw_node_kind kind)
{
    struct mw_node *node = new_node(r, token, kind);
    if (wants_key(r)) {
        return fail_place(r, node->offset, 1,
                          "a key must be a word, not a list or a mapping");
    }
    if (r->depth == MW_YAML_DEPTH_MAX) {
        return fail_place(r, node->offset, 1, MW_YAML_TOO_DEEP);
    }
    enum mw_status st = add_node(r, node);
    if (st == MW_OK) {
        r->frames[r->depth++] =
            (struct frame){.node = node, .first = r->entries.n};
    }
    return st;
}

/* ---- ends of collections --------------------------------------------------
 */

static int compare_keys(const void *a, const void *b)
{
    const struct mw_yaml_pair *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    return c != 0 ? c
                  : (x->key_offset > y->key_offset) -
                        (x->key_offset < y->key_offset);
}

/* Sorted copy: n log n also for a mapping of a million keys. */
static enum mw_status check_duplicates(struct reader *r,
                                       const struct mw_node *map)
{
    if (map->n < 2) {
        return MW_OK;
    }
    struct mw_yaml_pair *sorted = mw_calloc(map->n, sizeof *sorted);
    memcpy(sorted, map->u.pairs, map->n * sizeof *sorted);
    qsort(sorted, map->n, sizeof *sorted, compare_keys);
    enum mw_status st = MW_OK;
    for (size_t i = 1; i < map->n && st == MW_OK; i++) {
        const struct mw_yaml_pair *a = &sorted[i - 1], *b = &sorted[i];
        if (strcmp(a->key, b->key) == 0) {
            int first = mw_yaml_pos(r->doc, a->key_offset, 1).line;
            struct mw_pos pos =
                mw_yaml_pos(r->doc, b->key_offset, b->key_width);
            st = mw_fail_at(r->err, MW_EINPUT, &pos,
                            "key '%.64s' is given twice; the first is on line "
                            "%d",
                            b->key, first);
        }
    }
    mw_free(sorted);
    return st;
}

static enum mw_status on_end(struct reader *r)
{
    struct frame *top = &r->frames[--r->depth];
    struct mw_node *node = top->node;
    struct mw_arena *arena = &r->doc->arena;
    node->n = r->entries.n - top->first;
    const struct mw_yaml_pair *from =
        node->n > 0 ? r->entries.v + top->first : NULL;
    r->entries.n = top->first;
    if (node->kind == MW_NODE_MAP) {
        node->u.pairs = mw_arena_alloc(arena, node->n, sizeof *node->u.pairs);
        for (size_t i = 0; i < node->n; i++) {
            node->u.pairs[i] = from[i];
        }
        return check_duplicates(r, node);
    }
    node->u.items = mw_arena_alloc(arena, node->n, sizeof *node->u.items);
    for (size_t i = 0; i < node->n; i++) {
        node->u.items[i] = from[i].value;
    }
    return MW_OK;
}

/* ---- events ---------------------------------------------------------------
 */

static enum mw_status check_properties(struct reader *r,
                                       struct fy_token *anchor,
                                       struct fy_token *tag)
{
    struct fy_token *token = anchor != NULL ? anchor : tag;
    if (token == NULL) {
        return MW_OK;
    }
    size_t offset, width;
    token_place(r, token, &offset, &width);
    return fail_place(r, offset, width,
                      anchor != NULL
                          ? "anchors and aliases (&name, *name) are not "
                            "allowed; write the value out"
                          : "tags (!name) are not allowed; remove it");
}

/* A document without "---" is refused at its first node, which has a place. */
static enum mw_status on_document(struct reader *r, struct fy_token *start)
{
    size_t offset, width;
    if (++r->n_documents == 1 || start == NULL) {
        return MW_OK;
    }
    token_place(r, start, &offset, &width);
    return fail_place(r, offset, width, second_document);
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
        return on_end(r);
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
    struct fy_diag_error *e = fy_diag_errors_iterate(r->diag, &iter);
    if (e == NULL) {
        return mw_fail(r->err, MW_EINPUT, "%s: is not valid YAML",
                       r->doc->file);
    }
    size_t offset = offset_of(r->doc, e->line, e->column);
    struct mw_pos pos = mw_yaml_pos(r->doc, offset, 1);
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
                        fy_diag_got_error(r->diag) || r->depth > 0)) {
        st = fail_syntax(r);
    }
    if (st == MW_OK && (r->doc->root == NULL || r->doc->root->is_null)) {
        st = mw_fail(r->err, MW_EINPUT, "%s: is empty", r->doc->file);
    }
    return st;
}

static enum mw_status read_text(struct mw_yaml *doc, struct mw_err *err)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.output_fn = discard;
    diag_cfg.colorize = false;
    struct reader *r = mw_calloc(1, sizeof *r);
    r->doc = doc;
    r->err = err;
    r->diag = fy_diag_create(&diag_cfg);
    MW_ASSERT(r->diag != NULL, "fy_diag_create failed");
    fy_diag_set_collect_errors(r->diag, true);
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
    mw_array_release(&r->entries);
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
