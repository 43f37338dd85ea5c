/*
 * YAML documents: walking the tree and placing messages in the file.
 *
 * The tree is built by yaml_read.c; this file knows nothing of libfyaml.
 */
#include "base/yaml.h"

#include "base/text_int.h"
#include "base/yaml_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mw_yaml_free(struct mw_yaml *doc)
{
    if (doc != NULL) {
        mw_arena_release(&doc->arena);
        mw_free(doc->text);
        mw_free(doc);
    }
}

struct mw_node *mw_yaml_root(struct mw_yaml *doc)
{
    return doc->root;
}

const char *mw_yaml_file(const struct mw_yaml *doc)
{
    return doc->file;
}

enum mw_node_kind mw_node_kind(const struct mw_node *node)
{
    return node->kind;
}

size_t mw_node_count(const struct mw_node *node)
{
    return node->n;
}

struct mw_node *mw_node_item(struct mw_node *seq, size_t i)
{
    MW_ASSERT(seq->kind == MW_NODE_SEQ && i < seq->n, "item %zu of %zu", i,
              seq->n);
    return seq->u.items[i];
}

struct mw_node *mw_node_pair(struct mw_node *map, size_t i,
                             const char **out_key)
{
    MW_ASSERT(map->kind == MW_NODE_MAP && i < map->n, "pair %zu of %zu", i,
              map->n);
    if (out_key != NULL) {
        *out_key = map->u.pairs[i].key;
    }
    return map->u.pairs[i].value;
}

struct mw_node *mw_node_get(struct mw_node *map, const char *key)
{
    if (map->kind != MW_NODE_MAP) {
        return NULL;
    }
    for (size_t i = 0; i < map->n; i++) {
        if (strcmp(map->u.pairs[i].key, key) == 0) {
            return map->u.pairs[i].value;
        }
    }
    return NULL;
}

const char *mw_node_text(struct mw_node *node)
{
    return node->kind == MW_NODE_SCALAR && !node->is_null ? node->u.text : "";
}

bool mw_node_is_null(const struct mw_node *node)
{
    return node->is_null;
}

struct mw_pos mw_yaml_pos(struct mw_yaml *doc, size_t offset, size_t width)
{
    int chars = 0;
    for (size_t i = offset; i < offset + width && i < doc->len; i++) {
        if (doc->text[i] == '\n') {
            break;
        }
        chars += ((unsigned char)doc->text[i] & 0xc0u) != 0x80u;
    }
    return mw_text_pos(doc->file, doc->text, doc->len, offset,
                       chars > 0 ? chars : 1, &doc->arena);
}

struct mw_pos mw_node_pos(struct mw_node *node)
{
    return mw_yaml_pos(node->doc, node->offset, node->width);
}

enum mw_status mw_yaml_fail(struct mw_yaml *doc, size_t offset, size_t width,
                            struct mw_err *err, const char *message)
{
    if (err == NULL || err->n_findings > MW_ERR_LINES_MAX) {
        return mw_fail(err, MW_EINPUT, "%s", message);
    }
    struct mw_pos pos = mw_yaml_pos(doc, offset, width);
    return mw_fail_at(err, MW_EINPUT, &pos, "%s", message);
}

enum mw_status mw_node_fail(struct mw_node *node, struct mw_err *err,
                            const char *fmt, ...)
{
    char message[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return mw_yaml_fail(node->doc, node->offset, node->width, err, message);
}
