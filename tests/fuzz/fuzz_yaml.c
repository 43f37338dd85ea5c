/*
 * Any bytes as a YAML file: refused with a message that begins with the file's
 * name, or a tree whose every node has a place, and a binder that fails or
 * succeeds. The table has every type of field.
 */
#include "base/yaml.h"
#include "fuzz/fuzz.h"

#include <math.h>
#include <string.h>

struct target {
    const char *name;
    bool flag;
    int64_t count;
    int small, kind;
    double ratio, bw_Bps, lat_s;
    struct mw_int_list list;
    struct mw_node *node;
    struct {
        double size_bytes;
    } inner;
};

static const struct mw_enum kinds[] = {{"ring", 1}, {"tree", 2}, {NULL, 0}};

static const struct mw_field inner_fields[] = {
    {.key = "size", .type = MW_F_QTY, .kind = MW_Q_BYTES, .required = true},
    MW_FIELD_END};

#define AT(member) .offset = offsetof(struct target, member)
static const struct mw_field fields[] = {
    {.key = "name", .type = MW_F_STR, AT(name), .required = true},
    {.key = "flag", .type = MW_F_BOOL, AT(flag)},
    {.key = "count", .type = MW_F_INT, AT(count), .min = 1, .max = 1e6},
    {.key = "small", .type = MW_F_INT32, AT(small)},
    {.key = "kind", .type = MW_F_ENUM, AT(kind), .enums = kinds},
    {.key = "ratio", .type = MW_F_NUM, AT(ratio)},
    {.key = "bw", .type = MW_F_QTY, AT(bw_Bps), .kind = MW_Q_BYTES_PER_S},
    {.key = "lat", .type = MW_F_QTY, AT(lat_s), .kind = MW_Q_SECONDS},
    {.key = "list", .type = MW_F_INT_LIST, AT(list)},
    {.key = "inner", .type = MW_F_MAP, AT(inner), .sub = inner_fields},
    {.key = "node", .type = MW_F_NODE, AT(node)},
    MW_FIELD_END};

/* Places of huge trees would take quadratic time: the first nodes are enough.
 */
static void check_node(struct mw_node *node, int depth, int *budget)
{
    MW_ASSERT(depth <= MW_YAML_DEPTH_MAX, "depth %d", depth);
    if (--*budget < 0) {
        return;
    }
    struct mw_pos pos = mw_node_pos(node);
    MW_ASSERT(pos.line >= 1 && pos.column >= 1 && pos.width >= 1,
              "place %d:%d width %d", pos.line, pos.column, pos.width);
    MW_ASSERT(mw_node_text(node) != NULL, "a node without text");
    if (mw_node_kind(node) == MW_NODE_SCALAR) {
        return;
    }
    for (size_t i = 0; i < mw_node_count(node); i++) {
        const char *key = "";
        struct mw_node *part = mw_node_kind(node) == MW_NODE_MAP
                                   ? mw_node_pair(node, i, &key)
                                   : mw_node_item(node, i);
        MW_ASSERT(key != NULL && part != NULL, "an empty entry");
        check_node(part, depth + 1, budget);
    }
}

static void check_bind(struct mw_node *root)
{
    struct mw_arena arena;
    struct mw_err err = {0};
    struct target out = {.count = 1};
    mw_arena_init(&arena);
    enum mw_status st = mw_yaml_bind(root, fields, &out, &arena, &err);
    MW_ASSERT((st == MW_OK) == (err.n_findings == 0), "%d findings, status %d",
              err.n_findings, (int)st);
    if (st == MW_OK) {
        MW_ASSERT(out.name != NULL && out.count >= 1 && out.count <= 1000000 &&
                      isfinite(out.ratio) && out.bw_Bps >= 0 &&
                      out.inner.size_bytes >= 0,
                  "bound out of range");
    }
    mw_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    const char *text = data != NULL ? (const char *)data : "";
    enum mw_status st = mw_yaml_parse("fuzz", text, size, &doc, &err);
    if (st != MW_OK) {
        MW_ASSERT(st == MW_EINPUT && strncmp(err.text, "fuzz:", 5) == 0,
                  "status %d: %s", (int)st, err.text);
        MW_ASSERT(err.len == strlen(err.text), "length %zu", err.len);
        return 0;
    }
    int budget = 1000;
    check_node(mw_yaml_root(doc), 0, &budget);
    check_bind(mw_yaml_root(doc));
    mw_yaml_free(doc);
    return 0;
}
