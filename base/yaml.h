/*
 * YAML (and JSON) input with a table-driven binder.
 *
 * A file is parsed once (libfyaml behind this header); a table of `mw_field`
 * says which keys a mapping may have, their type, range and target offset.
 * Every error carries file:line:column, the source line and a caret; unknown
 * keys get the nearest match; duplicate keys are refused; several findings
 * are collected. Files over MW_YAML_SIZE_MAX, directories, binary and empty
 * files are refused with one line. Not taken either: anchors, aliases, tags,
 * directives, further documents, keys that are not plain or quoted words,
 * nesting beyond MW_YAML_DEPTH_MAX, lines over 1 MiB.
 *
 *   static const struct mw_field cluster_fields[] = {
 *       {.key = "system", .type = MW_F_STR, .required = true,
 *        .offset = offsetof(struct cluster, system), .doc = "hwdb name"},
 *       {.key = "nodes", .type = MW_F_INT, .required = true, .min = 1,
 *        .max = 1e6, .offset = offsetof(struct cluster, n_nodes)},
 *       MW_FIELD_END};
 */
#ifndef MW_BASE_YAML_H
#define MW_BASE_YAML_H

#include "base/err.h"
#include "base/mem.h"
#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MW_YAML_SIZE_MAX = 16 << 20, MW_YAML_DEPTH_MAX = 64 };

struct mw_yaml; /* a parsed document; owns its text */
struct mw_node; /* a node of it; valid as long as the document */

/* Reads a file; *out only on success. Free with mw_yaml_free. */
enum mw_status mw_yaml_load(const char *path, struct mw_yaml **out,
                            struct mw_err *err);
/* The same from memory; name stands for the file in messages. */
enum mw_status mw_yaml_parse(const char *name, const char *text, size_t len,
                             struct mw_yaml **out, struct mw_err *err);
void mw_yaml_free(struct mw_yaml *doc);
struct mw_node *mw_yaml_root(struct mw_yaml *doc);
const char *mw_yaml_file(const struct mw_yaml *doc);

/* ---- walking nodes by hand ----------------------------------------- */
enum mw_node_kind { MW_NODE_SCALAR, MW_NODE_SEQ, MW_NODE_MAP };
enum mw_node_kind mw_node_kind(const struct mw_node *node);
size_t mw_node_count(const struct mw_node *node); /* items of a seq or map */
struct mw_node *mw_node_item(struct mw_node *seq, size_t i);
/* i-th pair of a mapping, in file order; *out_key owned by the document. */
struct mw_node *mw_node_pair(struct mw_node *map, size_t i,
                             const char **out_key);
struct mw_node *mw_node_get(struct mw_node *map, const char *key); /* or NULL */
const char *mw_node_text(struct mw_node *node); /* scalar; "" for null */
/* Whether a value was left out: nothing, ~ or null (not in quotes). */
bool mw_node_is_null(const struct mw_node *node);
/* Adds a finding at the node's place. Returns MW_EINPUT. */
enum mw_status mw_node_fail(struct mw_node *node, struct mw_err *err,
                            const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Position of a node, for a message made later. */
struct mw_pos mw_node_pos(struct mw_node *node);

/* ---- binder -------------------------------------------------------- */
struct mw_enum {
    const char *name;
    int value;
}; /* ends with {NULL, 0} */

enum mw_field_type {
    MW_F_STR,        /* const char *, copied to the arena */
    MW_F_BOOL,       /* bool: true or false */
    MW_F_INT,        /* int64_t; min <= v <= max */
    MW_F_INT32,      /* int; the same */
    MW_F_NUM,        /* double; pure number, finite */
    MW_F_QTY,        /* double; quantity of .kind, unit needed */
    MW_F_ENUM,       /* int; one of .enums, any case */
    MW_F_FLAGS,      /* int; a sequence of words of .enums, or one: their values
                        are bits, which are put together */
    MW_F_FLAGS_LIST, /* struct mw_int_list: a sequence of such sets, each a
                        sequence of words (none: []) or one word */
    MW_F_INT_LIST,   /* struct mw_int_list: a sequence of integers, or of words
                        of .enums */
    MW_F_NUM_LIST,   /* struct mw_num_list: a sequence of pure numbers */
    MW_F_STR_LIST,   /* struct mw_str_list: a sequence of texts, copied */
    MW_F_MAP,        /* nested struct at offset bound with .sub */
    MW_F_NODE        /* struct mw_node *: kept for the caller to read */
};

struct mw_int_list {
    const int64_t *v;
    size_t n;
};

struct mw_num_list {
    const double *v;
    size_t n;
};

struct mw_str_list {
    const char *const *v;
    size_t n;
};

struct mw_field {
    const char *key;
    enum mw_field_type type;
    size_t offset;
    bool required;
    double min, max; /* both 0: no range check. Inclusive; may be infinite. */
    enum mw_quantity kind;
    const struct mw_enum *enums;
    const struct mw_field *sub;
    const char *doc; /* one line for --help and messages */
    /* Lists: values to choose among, so also one of them without brackets, or
     * a range of ordered ones: {from: 1, to: 8}, {from: 0, to: 1, by: 0.5}. */
    bool is_choice;
    size_t seen_offset; /* offset + 1 of a bool set when present; 0: none */
};
#define MW_FIELD_END                                                           \
    {                                                                          \
        .key = NULL                                                            \
    }

/*
 * Binds a mapping to *out (zeroed or filled with defaults by the caller).
 * Keys that are absent leave their target as it is. Strings and lists go to
 * the arena. Returns MW_EINPUT after collecting all findings.
 */
enum mw_status mw_yaml_bind(struct mw_node *map, const struct mw_field *fields,
                            void *out, struct mw_arena *arena,
                            struct mw_err *err);

/* The candidate nearest to word (edit distance <= 1/3 of its length), or
 * NULL. `next` yields candidates: NULL ends. */
const char *mw_nearest(const char *word, const char *const *candidates,
                       size_t n_candidates);

#endif
