/*
 * Growing the tree of a document, whoever parses it: nodes are announced in
 * the order of the file, collections with a beginning and an end.
 *
 * Entries of all open collections lie on one stack; when a collection ends,
 * its own move to the document's arena:
 *
 *     frames   [ map, first 0 ][ seq, first 2 ]
 *     entries  | a: 1 | b: 2 | - x | - y |  <- top
 */
#ifndef MW_BASE_YAML_TREE_H
#define MW_BASE_YAML_TREE_H

#include "base/yaml_int.h"

#define MW_YAML_SECOND_DOCUMENT                                                \
    "a second document begins here; only one is allowed"

/* A collection being filled. */
struct mw_yaml_frame {
    struct mw_node *node;
    size_t first;                /* its first entry on the stack */
    bool has_key;                /* map: a key waits for its value */
    struct mw_yaml_pair pending; /* that key */
};

/* Zero-initialise it, with doc and err. */
struct mw_yaml_tree {
    struct mw_yaml *doc;
    struct mw_err *err;
    int depth;
    size_t n_nodes;
    struct mw_yaml_frame frames[MW_YAML_DEPTH_MAX];
    MW_ARRAY(struct mw_yaml_pair) entries;
};

/* Bytes of the document's text. */
struct mw_yaml_span {
    size_t offset, width;
};

/* A scalar: a key where a mapping waits for one, else a value. The text is
 * copied; it may not hold a NUL. */
enum mw_status mw_yaml_tree_scalar(struct mw_yaml_tree *tree,
                                   struct mw_yaml_span span, const char *text,
                                   size_t len, bool is_quoted);
enum mw_status mw_yaml_tree_begin(struct mw_yaml_tree *tree, size_t offset,
                                  enum mw_node_kind kind);
/* Ends the innermost collection; refuses a mapping with a key twice. */
enum mw_status mw_yaml_tree_end(struct mw_yaml_tree *tree);
/* Frees the stack, not the document. */
void mw_yaml_tree_release(struct mw_yaml_tree *tree);

#endif
