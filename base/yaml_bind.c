/*
 * Binding a YAML mapping to a struct by a table of fields.
 *
 * Every key of the mapping must be in the table, every required row of the
 * table in the mapping; all findings are collected before returning. A value
 * in quotes is a string and never a number or a boolean; a quantity may be in
 * quotes, because JSON has no other way to write one.
 */
#include "base/yaml.h"

#include "base/yaml_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct target {
    const struct mw_field *field;
    char *at; /* out + offset */
    struct mw_arena *arena;
    struct mw_err *err;
};

static const char *kind_name(const struct mw_node *node)
{
    switch (node->kind) {
    case MW_NODE_SEQ:
        return "a list";
    case MW_NODE_MAP:
        return "a mapping";
    case MW_NODE_SCALAR:
        break;
    }
    return node->is_null ? "nothing" : node->is_quoted ? "the text" : "";
}

/* "'tp' must be an integer, got 'two'" */
static enum mw_status fail_type(struct mw_node *node, const char *key,
                                const char *wanted, struct mw_err *err)
{
    const char *kind = kind_name(node), *text = mw_node_text(node);
    if (*text == '\0') {
        return mw_node_fail(node, err, "'%.64s' must be %s, got %s", key,
                            wanted, *kind != '\0' ? kind : "an empty text");
    }
    return mw_node_fail(node, err, "'%.64s' must be %s, got %s%s'%.64s'", key,
                        wanted, kind, *kind != '\0' ? " " : "", text);
}

/* ---- ranges -------------------------------------------------------- */

static void fmt_bound(double v, enum mw_quantity kind, char buf[64])
{
    const char *unit = mw_quantity_si_unit(kind);
    snprintf(buf, 64, "%.15g%s%s", v, *unit != '\0' ? " " : "", unit);
}

static enum mw_status fail_range(struct mw_node *node, const struct mw_field *f,
                                 double min, double max, struct mw_err *err)
{
    char lo[64], hi[64];
    enum mw_quantity kind = f->type == MW_F_QTY ? f->kind : MW_Q_NONE;
    fmt_bound(min, kind, lo);
    fmt_bound(max, kind, hi);
    const char *text = mw_node_text(node);
    if (isinf(max)) {
        return mw_node_fail(node, err, "'%s' is %.64s; it must be at least %s",
                            f->key, text, lo);
    }
    if (isinf(min)) {
        return mw_node_fail(node, err, "'%s' is %.64s; it must be at most %s",
                            f->key, text, hi);
    }
    return mw_node_fail(node, err,
                        "'%s' is %.64s; it must be between %s and %s", f->key,
                        text, lo, hi);
}

static enum mw_status check_range(struct mw_node *node,
                                  const struct mw_field *f, double v,
                                  struct mw_err *err)
{
    if ((f->min == 0 && f->max == 0) || (v >= f->min && v <= f->max)) {
        return MW_OK;
    }
    return fail_range(node, f, f->min, f->max, err);
}

/* ---- one function per type ----------------------------------------- */

static bool is_plain(const struct mw_node *node)
{
    return node->kind == MW_NODE_SCALAR && !node->is_quoted && !node->is_null;
}

static enum mw_status bind_str(struct target t, struct mw_node *node)
{
    if (node->kind != MW_NODE_SCALAR || node->is_null) {
        return fail_type(node, t.field->key, "a text", t.err);
    }
    const char *s = mw_arena_strdup(t.arena, node->u.text);
    memcpy(t.at, &s, sizeof s);
    return MW_OK;
}

static enum mw_status bind_bool(struct target t, struct mw_node *node)
{
    bool v = is_plain(node) && strcmp(node->u.text, "true") == 0;
    if (!v && !(is_plain(node) && strcmp(node->u.text, "false") == 0)) {
        return fail_type(node, t.field->key, "true or false", t.err);
    }
    memcpy(t.at, &v, sizeof v);
    return MW_OK;
}

static enum mw_status read_int(struct target t, struct mw_node *node,
                               const char *wanted, int64_t *out)
{
    if (!is_plain(node) || mw_int_parse(node->u.text, out, NULL) != MW_OK) {
        return fail_type(node, t.field->key, wanted, t.err);
    }
    return check_range(node, t.field, (double)*out, t.err);
}

static enum mw_status bind_int(struct target t, struct mw_node *node)
{
    int64_t v = 0;
    enum mw_status st = read_int(t, node, "an integer", &v);
    if (st == MW_OK) {
        memcpy(t.at, &v, sizeof v);
    }
    return st;
}

static enum mw_status bind_int32(struct target t, struct mw_node *node)
{
    int64_t v = 0;
    enum mw_status st = read_int(t, node, "an integer", &v);
    if (st == MW_OK && (v < INT32_MIN || v > INT32_MAX)) {
        return fail_range(node, t.field, INT32_MIN, INT32_MAX, t.err);
    }
    int v32 = (int)v;
    if (st == MW_OK) {
        memcpy(t.at, &v32, sizeof v32);
    }
    return st;
}

static enum mw_status bind_num(struct target t, struct mw_node *node)
{
    double v = 0;
    if (!is_plain(node) || mw_double_parse(node->u.text, &v, NULL) != MW_OK) {
        return fail_type(node, t.field->key, "a finite number without a unit",
                         t.err);
    }
    enum mw_status st = check_range(node, t.field, v, t.err);
    if (st == MW_OK) {
        memcpy(t.at, &v, sizeof v);
    }
    return st;
}

static enum mw_status bind_qty(struct target t, struct mw_node *node)
{
    if (node->kind != MW_NODE_SCALAR || node->is_null) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a quantity like %s",
                 mw_quantity_example(t.field->kind));
        return fail_type(node, t.field->key, wanted, t.err);
    }
    double v = 0;
    struct mw_err why = {0};
    if (mw_quantity_parse(node->u.text, t.field->kind, &v, &why) != MW_OK) {
        return mw_node_fail(node, t.err, "'%s': %s", t.field->key, why.text);
    }
    enum mw_status st = check_range(node, t.field, v, t.err);
    if (st == MW_OK) {
        memcpy(t.at, &v, sizeof v);
    }
    return st;
}

/* "'kind' is 'gpip'; did you mean 'gpipe'? allowed: gpipe, 1f1b" */
static enum mw_status fail_enum(struct target t, struct mw_node *node)
{
    struct mw_str wanted = {0}, all = {0}, hint = {0};
    MW_ARRAY(const char *) names = {0};
    for (const struct mw_enum *e = t.field->enums; e->name != NULL; e++) {
        mw_str_addf(&all, "%s%s", all.n > 0 ? ", " : "", e->name);
        mw_array_push(&names, e->name);
    }
    const char *text = mw_node_text(node), *list = all.s != NULL ? all.s : "";
    const char *near = mw_nearest(text, names.v, names.n);
    if (near != NULL) {
        mw_str_addf(&hint, " did you mean '%s'?", near);
    }
    if (node->kind != MW_NODE_SCALAR || node->is_null) {
        mw_str_addf(&wanted, "one of %s", list);
        fail_type(node, t.field->key, wanted.s, t.err);
    } else {
        mw_node_fail(node, t.err, "'%s' is '%.64s';%s allowed: %s",
                     t.field->key, text, hint.s != NULL ? hint.s : "", list);
    }
    mw_array_release(&names);
    mw_str_release(&wanted);
    mw_str_release(&all);
    mw_str_release(&hint);
    return MW_EINPUT;
}

static enum mw_status bind_enum(struct target t, struct mw_node *node)
{
    const char *text = mw_node_text(node);
    for (const struct mw_enum *e = t.field->enums; e->name != NULL; e++) {
        if (node->kind == MW_NODE_SCALAR && strcasecmp(e->name, text) == 0) {
            memcpy(t.at, &e->value, sizeof e->value);
            return MW_OK;
        }
    }
    return fail_enum(t, node);
}

static enum mw_status bind_flags(struct target t, struct mw_node *node)
{
    size_t n = node->kind == MW_NODE_SEQ ? node->n : 1;
    int all = 0;

    for (size_t i = 0; i < n; i++) {
        struct target one = t;
        int flag = 0;

        one.at = (char *)&flag;
        if (bind_enum(one, node->kind == MW_NODE_SEQ ? node->u.items[i]
                                                     : node) != MW_OK) {
            return MW_EINPUT;
        }
        all |= flag;
    }
    memcpy(t.at, &all, sizeof all);
    return MW_OK;
}

/* A field of one item of a list, bound to *at. */
static struct target item_of(struct target t, struct mw_field *field,
                             enum mw_field_type type, void *at)
{
    *field = *t.field;
    field->type = type;
    t.field = field;
    t.at = at;
    return t;
}

/* Items of a list; of one to choose from, a scalar is a list of itself. */
static bool has_items(const struct target *t, struct mw_node **node,
                      struct mw_node ***items, size_t *n)
{
    if ((*node)->kind == MW_NODE_SEQ) {
        *items = (*node)->u.items;
        *n = (*node)->n;
        return true;
    }
    *items = node;
    *n = 1;
    return t->field->is_choice && (*node)->kind == MW_NODE_SCALAR &&
           !(*node)->is_null;
}

/* Is it a range? Words have no order. */
static bool is_range(const struct target *t, const struct mw_node *node)
{
    return t->field->is_choice && t->field->enums == NULL &&
           node->kind == MW_NODE_MAP;
}

/* Both ends of a range that was read. */
static enum mw_status check_ends(struct target t, struct mw_node *range,
                                 double first, double last)
{
    enum mw_status st =
        check_range(mw_node_get(range, "from"), t.field, first, t.err);

    return st == MW_OK
               ? check_range(mw_node_get(range, "to"), t.field, last, t.err)
               : st;
}

static enum mw_status bind_int_range(struct target t, struct mw_node *node)
{
    struct mw_int_list list;
    enum mw_status st = mw_yaml_int_range(node, t.arena, &list, t.err);

    st = st == MW_OK ? check_ends(t, node, (double)list.v[0],
                                  (double)list.v[list.n - 1])
                     : st;
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static enum mw_status bind_num_range(struct target t, struct mw_node *node)
{
    struct mw_num_list list;
    enum mw_status st = mw_yaml_num_range(node, t.arena, &list, t.err);

    st = st == MW_OK ? check_ends(t, node, list.v[0], list.v[list.n - 1]) : st;
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static const char *int_list_words(const struct mw_field *f)
{
    if (f->enums != NULL) {
        return f->is_choice ? "a word or a list of words, [a, b]"
                            : "a list of words, [a, b]";
    }
    return f->is_choice
               ? "an integer, a list, [1, 2], or a range, {from: 1, to: 4}"
               : "a list of integers, [1, 2]";
}

static enum mw_status bind_int_list(struct target t, struct mw_node *node)
{
    bool is_words = t.field->enums != NULL;
    const char *wanted = int_list_words(t.field);
    struct mw_node **items;
    size_t n;

    if (is_range(&t, node)) {
        return bind_int_range(t, node);
    }
    if (!has_items(&t, &node, &items, &n)) {
        return fail_type(node, t.field->key, wanted, t.err);
    }
    enum mw_status st = MW_OK;
    int64_t *v = mw_arena_alloc(t.arena, n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        struct mw_field field;
        int word = 0;
        enum mw_status of_item =
            is_words ? bind_enum(item_of(t, &field, MW_F_ENUM, &word), items[i])
                     : read_int(t, items[i], "a list of integers", &v[i]);

        if (is_words) {
            v[i] = word;
        }
        if (of_item != MW_OK) {
            st = MW_EINPUT;
        }
    }
    struct mw_int_list list = {.v = v, .n = n};
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static enum mw_status bind_str_list(struct target t, struct mw_node *node)
{
    struct mw_node **items;
    size_t n;

    if (!has_items(&t, &node, &items, &n)) {
        return fail_type(node, t.field->key,
                         t.field->is_choice
                             ? "a word or a list of words, [a, b]"
                             : "a list of words, [a, b]",
                         t.err);
    }
    enum mw_status st = MW_OK;
    const char **v = mw_arena_alloc(t.arena, n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        struct mw_field field;

        if (bind_str(item_of(t, &field, MW_F_STR, &v[i]), items[i]) != MW_OK) {
            st = MW_EINPUT;
        }
    }
    struct mw_str_list list = {.v = v, .n = n};
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static enum mw_status bind_flags_list(struct target t, struct mw_node *node)
{
    struct mw_node **items;
    size_t n;

    if (!has_items(&t, &node, &items, &n)) {
        return fail_type(node, t.field->key,
                         "a list of sets of words, [[a], [a, b]]", t.err);
    }
    enum mw_status st = MW_OK;
    int64_t *v = mw_arena_alloc(t.arena, n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        struct mw_field field;
        int set = 0;

        if (bind_flags(item_of(t, &field, MW_F_FLAGS, &set), items[i]) !=
            MW_OK) {
            st = MW_EINPUT;
        }
        v[i] = set;
    }
    struct mw_int_list list = {.v = v, .n = n};
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static enum mw_status bind_num_list(struct target t, struct mw_node *node)
{
    struct mw_node **items;
    size_t n;

    if (is_range(&t, node)) {
        return bind_num_range(t, node);
    }
    if (!has_items(&t, &node, &items, &n)) {
        return fail_type(node, t.field->key,
                         t.field->is_choice
                             ? "a number, a list, [0, 0.5], or a range, {from: "
                               "0, to: 1, by: 0.5}"
                             : "a list of numbers, [0, 0.5]",
                         t.err);
    }
    enum mw_status st = MW_OK;
    double *v = mw_arena_alloc(t.arena, n, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        struct mw_field field;

        if (bind_num(item_of(t, &field, MW_F_NUM, &v[i]), items[i]) != MW_OK) {
            st = MW_EINPUT;
        }
    }
    struct mw_num_list list = {.v = v, .n = n};
    if (st == MW_OK) {
        memcpy(t.at, &list, sizeof list);
    }
    return st;
}

static enum mw_status bind_value(struct target t, struct mw_node *node)
{
    switch (t.field->type) {
    case MW_F_STR:
        return bind_str(t, node);
    case MW_F_BOOL:
        return bind_bool(t, node);
    case MW_F_INT:
        return bind_int(t, node);
    case MW_F_INT32:
        return bind_int32(t, node);
    case MW_F_NUM:
        return bind_num(t, node);
    case MW_F_QTY:
        return bind_qty(t, node);
    case MW_F_ENUM:
        return bind_enum(t, node);
    case MW_F_FLAGS:
        return bind_flags(t, node);
    case MW_F_FLAGS_LIST:
        return bind_flags_list(t, node);
    case MW_F_INT_LIST:
        return bind_int_list(t, node);
    case MW_F_NUM_LIST:
        return bind_num_list(t, node);
    case MW_F_STR_LIST:
        return bind_str_list(t, node);
    case MW_F_MAP:
        return mw_yaml_bind(node, t.field->sub, t.at, t.arena, t.err);
    case MW_F_NODE:
        memcpy(t.at, &node, sizeof node);
        return MW_OK;
    }
    return MW_OK;
}

/* ---- keys ---------------------------------------------------------- */

static const struct mw_field *find_field(const struct mw_field *fields,
                                         const char *key)
{
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        if (strcmp(f->key, key) == 0) {
            return f;
        }
    }
    return NULL;
}

/* "unknown key 'bandwith' in cluster; did you mean 'bandwidth'? allowed: a" */
static enum mw_status fail_unknown(const struct mw_node *map,
                                   const struct mw_yaml_pair *pair,
                                   const struct mw_field *fields,
                                   struct mw_err *err)
{
    MW_ARRAY(const char *) names = {0};
    struct mw_str text = {0}, all = {0};
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        mw_array_push(&names, f->key);
        mw_str_addf(&all, "%s%s", all.n > 0 ? ", " : "", f->key);
    }
    mw_str_addf(&text, "unknown key '%.64s'", pair->key);
    if (map->name != NULL) {
        mw_str_addf(&text, " in %.64s", map->name);
    }
    const char *near = mw_nearest(pair->key, names.v, names.n);
    if (near != NULL) {
        mw_str_addf(&text, "; did you mean '%s'? allowed: ", near);
    } else {
        mw_str_add(&text, "; allowed: ");
    }
    mw_str_add(&text, all.s != NULL ? all.s : "none");
    mw_yaml_fail(map->doc, pair->key_offset, pair->key_width, err, text.s);
    mw_array_release(&names);
    mw_str_release(&text);
    mw_str_release(&all);
    return MW_EINPUT;
}

static enum mw_status check_required(struct mw_node *map,
                                     const struct mw_field *fields,
                                     struct mw_err *err)
{
    enum mw_status st = MW_OK;
    for (const struct mw_field *f = fields; f->key != NULL; f++) {
        if (f->required && mw_node_get(map, f->key) == NULL) {
            st = mw_node_fail(
                map, err, "required key '%s' is missing%s%s%s%s%s", f->key,
                map->name != NULL ? " in " : "",
                map->name != NULL ? map->name : "", f->doc != NULL ? " (" : "",
                f->doc != NULL ? f->doc : "", f->doc != NULL ? ")" : "");
        }
    }
    return st;
}

static void mark_seen(const struct mw_field *f, char *out)
{
    if (f->seen_offset > 0) {
        bool is_seen = true;
        memcpy(out + f->seen_offset - 1, &is_seen, sizeof is_seen);
    }
}

enum mw_status mw_yaml_bind(struct mw_node *map, const struct mw_field *fields,
                            void *out, struct mw_arena *arena,
                            struct mw_err *err)
{
    if (map->kind != MW_NODE_MAP) {
        return fail_type(map, map->name != NULL ? map->name : "the file",
                         "a mapping of keys to values", err);
    }
    enum mw_status st = MW_OK;
    for (size_t i = 0; i < map->n; i++) {
        const struct mw_yaml_pair *pair = &map->u.pairs[i];
        const struct mw_field *f = find_field(fields, pair->key);
        if (f == NULL) {
            st = fail_unknown(map, pair, fields, err);
            continue;
        }
        struct target t = {f, (char *)out + f->offset, arena, err};
        if (bind_value(t, pair->value) != MW_OK) {
            st = MW_EINPUT;
        }
        mark_seen(f, out);
    }
    /* Last, so that a misspelt key is the first finding, not its absence. */
    if (check_required(map, fields, err) != MW_OK) {
        st = MW_EINPUT;
    }
    return st;
}
