/*
 * Growing the tree of a YAML document. Refuses what a tree of ours cannot be:
 * deeper than MW_YAML_DEPTH_MAX, more than four million nodes (about 64 bytes
 * each), two roots, keys that are not scalars, a key twice.
 */
#include "base/yaml_tree.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1 << 22 };

static enum mw_status refuse(struct mw_yaml_tree *t, const struct mw_node *node,
                             const char *message)
{
    return mw_yaml_fail(t->doc, node->offset, node->width, t->err, message);
}

static struct mw_node *new_node(struct mw_yaml_tree *t,
                                struct mw_yaml_span span,
                                enum mw_node_kind kind)
{
    struct mw_node *node = mw_arena_alloc(&t->doc->arena, 1, sizeof *node);
    node->doc = t->doc;
    node->kind = kind;
    node->offset = (uint32_t)span.offset;
    node->width = (uint32_t)span.width;
    return node;
}

static bool is_null_word(const char *s)
{
    return *s == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0 ||
           strcmp(s, "Null") == 0 || strcmp(s, "NULL") == 0;
}

/* The innermost open collection, or NULL. */
static struct mw_yaml_frame *top_frame(struct mw_yaml_tree *t)
{
    return t->depth > 0 ? &t->frames[t->depth - 1] : NULL;
}

static bool wants_key(struct mw_yaml_tree *t)
{
    const struct mw_yaml_frame *top = top_frame(t);
    return top != NULL && top->node->kind == MW_NODE_MAP && !top->has_key;
}

static enum mw_status add_root(struct mw_yaml_tree *t, struct mw_node *node)
{
    if (t->doc->root != NULL) {
        return refuse(t, node, MW_YAML_SECOND_DOCUMENT);
    }
    t->doc->root = node;
    return MW_OK;
}

static enum mw_status add_node(struct mw_yaml_tree *t, struct mw_node *node)
{
    struct mw_yaml_frame *top = top_frame(t);
    if (++t->n_nodes > NODES_MAX) {
        return refuse(t, node, "the file has more than 4 million values");
    }
    if (top == NULL) {
        return add_root(t, node);
    }
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
    mw_array_push(&t->entries, entry);
    return MW_OK;
}

enum mw_status mw_yaml_tree_scalar(struct mw_yaml_tree *tree,
                                   struct mw_yaml_span span, const char *text,
                                   size_t len, bool is_quoted)
{
    struct mw_node *node = new_node(tree, span, MW_NODE_SCALAR);
    char *copy = mw_arena_alloc(&tree->doc->arena, len + 1, 1);
    if (len > 0) {
        memcpy(copy, text, len);
    }
    if (strlen(copy) != len) {
        return refuse(tree, node, "a NUL character is not allowed");
    }
    node->u.text = copy;
    node->is_quoted = is_quoted;
    node->is_null = !is_quoted && is_null_word(copy);
    if (!wants_key(tree)) {
        return add_node(tree, node);
    }
    struct mw_yaml_frame *top = top_frame(tree);
    top->has_key = true;
    top->pending = (struct mw_yaml_pair){
        .key = copy, .key_offset = node->offset, .key_width = node->width};
    return MW_OK;
}

enum mw_status mw_yaml_tree_begin(struct mw_yaml_tree *tree, size_t offset,
                                  enum mw_node_kind kind)
{
    struct mw_node *node =
        new_node(tree, (struct mw_yaml_span){offset, 1}, kind);
    if (wants_key(tree)) {
        return refuse(tree, node,
                      "a key must be a word, not a list or a mapping");
    }
    if (tree->depth == MW_YAML_DEPTH_MAX) {
        return refuse(tree, node, MW_YAML_TOO_DEEP);
    }
    enum mw_status st = add_node(tree, node);
    if (st == MW_OK) {
        tree->frames[tree->depth++] =
            (struct mw_yaml_frame){.node = node, .first = tree->entries.n};
    }
    return st;
}

static int compare_keys(const void *a, const void *b)
{
    const struct mw_yaml_pair *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    int by_place =
        (x->key_offset > y->key_offset) - (x->key_offset < y->key_offset);
    return c != 0 ? c : by_place;
}

static enum mw_status fail_duplicate(struct mw_yaml_tree *t,
                                     const struct mw_yaml_pair *first,
                                     const struct mw_yaml_pair *again)
{
    int line = mw_yaml_pos(t->doc, first->key_offset, 1).line;
    struct mw_pos pos =
        mw_yaml_pos(t->doc, again->key_offset, again->key_width);
    return mw_fail_at(t->err, MW_EINPUT, &pos,
                      "key '%.64s' is given twice; the first is on line %d",
                      again->key, line);
}

/* In a sorted copy: n log n also for a mapping of a million keys. */
static enum mw_status check_duplicates(struct mw_yaml_tree *t,
                                       const struct mw_node *map)
{
    struct mw_yaml_pair *sorted = mw_calloc(map->n, sizeof *sorted);
    memcpy(sorted, map->u.pairs, map->n * sizeof *sorted);
    qsort(sorted, map->n, sizeof *sorted, compare_keys);
    enum mw_status st = MW_OK;
    for (size_t i = 1; i < map->n && st == MW_OK; i++) {
        if (strcmp(sorted[i - 1].key, sorted[i].key) == 0) {
            st = fail_duplicate(t, &sorted[i - 1], &sorted[i]);
        }
    }
    mw_free(sorted);
    return st;
}

enum mw_status mw_yaml_tree_end(struct mw_yaml_tree *tree)
{
    MW_ASSERT(tree->depth > 0, "a collection ends that never began");
    struct mw_yaml_frame *top = &tree->frames[--tree->depth];
    struct mw_node *node = top->node;
    struct mw_arena *arena = &tree->doc->arena;
    node->n = tree->entries.n - top->first;
    const struct mw_yaml_pair *from =
        node->n > 0 ? tree->entries.v + top->first : NULL;
    tree->entries.n = top->first;
    if (node->kind == MW_NODE_MAP) {
        node->u.pairs = mw_arena_alloc(arena, node->n, sizeof *node->u.pairs);
        for (size_t i = 0; i < node->n; i++) {
            node->u.pairs[i] = from[i];
        }
        return check_duplicates(tree, node);
    }
    node->u.items = mw_arena_alloc(arena, node->n, sizeof *node->u.items);
    for (size_t i = 0; i < node->n; i++) {
        node->u.items[i] = from[i].value;
    }
    return MW_OK;
}

void mw_yaml_tree_release(struct mw_yaml_tree *tree)
{
    mw_array_release(&tree->entries);
}
