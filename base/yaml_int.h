/*
 * The tree behind base/yaml.h, shared by its reader and its binder.
 *
 * Nodes live in the document's arena. Places are byte offsets into the text;
 * they become line and column only when a message needs them.
 */
#ifndef MW_BASE_YAML_INT_H
#define MW_BASE_YAML_INT_H

#include "base/yaml.h"

struct mw_yaml_pair {
    const char *key;
    uint32_t key_offset, key_width;
    struct mw_node *value;
};

struct mw_node {
    struct mw_yaml *doc;
    const char *name; /* key under which it stands; NULL for root and items */
    enum mw_node_kind kind;
    bool is_quoted; /* scalar in quotes or a block: never a number */
    bool is_null;   /* plain scalar: nothing, ~ or null */
    uint32_t offset, width;
    size_t n;
    union {
        const char *text;
        struct mw_node **items;
        struct mw_yaml_pair *pairs;
    } u;
};

struct mw_yaml {
    const char *file;
    char *text;
    size_t len;
    struct mw_node *root;
    struct mw_arena arena;
};

#define MW_YAML_TOO_DEEP                                                       \
    "nested deeper than 64 levels; no file that is meant needs that"
_Static_assert(MW_YAML_DEPTH_MAX == 64, "the text above says so");

/* Refuses text that would take libfyaml too long; see yaml_scan.c. */
enum mw_status mw_yaml_scan(struct mw_yaml *doc, struct mw_err *err);

/* ---- yaml_choice.c: values to choose among ---------------------------------
 */
enum { MW_RANGE_MAX = 4096 }; /* values of one range */
/* {from: a, to: b, by: c} as a list in the arena: a, a + c, ... up to b; c is 1
 * where it is left out, for numbers it is needed. MW_EINPUT for a mapping that
 * is none, has no value or more than MW_RANGE_MAX. */
enum mw_status mw_yaml_int_range(struct mw_node *map, struct mw_arena *arena,
                                 struct mw_int_list *out, struct mw_err *err);
enum mw_status mw_yaml_num_range(struct mw_node *map, struct mw_arena *arena,
                                 struct mw_num_list *out, struct mw_err *err);

/* A finding at bytes of the text. Returns MW_EINPUT. Beyond the findings that
 * are shown it only counts: a place costs time linear in the file. */
enum mw_status mw_yaml_fail(struct mw_yaml *doc, size_t offset, size_t width,
                            struct mw_err *err, const char *message);

/* Place of a byte; width in bytes becomes characters of the same line. */
struct mw_pos mw_yaml_pos(struct mw_yaml *doc, size_t offset, size_t width);

#endif
