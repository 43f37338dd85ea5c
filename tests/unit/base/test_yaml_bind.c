/*
 * The binder: every type, every mistake, the words of the messages.
 */
#include "base/yaml.h"
#include "mw_test.h"

#include <math.h>
#include <string.h>

enum kind { KIND_RING = 1, KIND_TREE = 2 };

struct inner {
    double bw_Bps;
    int n;
};

struct outer {
    const char *name;
    bool flag, has_count;
    int64_t count;
    int small;
    double ratio;
    double lat_s;
    int kind;
    struct mw_int_list list, words;
    struct mw_num_list parts;
    struct inner inner;
    struct mw_node *node;
};

static const struct mw_enum kinds[] = {
    {"ring", KIND_RING}, {"tree", KIND_TREE}, {NULL, 0}};

static const struct mw_field inner_fields[] = {
    {.key = "bandwidth",
     .type = MW_F_QTY,
     .kind = MW_Q_BYTES_PER_S,
     .required = true,
     .max = 1e13,
     .offset = offsetof(struct inner, bw_Bps),
     .doc = "per direction"},
    {.key = "n", .type = MW_F_INT32, .offset = offsetof(struct inner, n)},
    MW_FIELD_END};

static const struct mw_field fields[] = {
    {.key = "name",
     .type = MW_F_STR,
     .required = true,
     .offset = offsetof(struct outer, name)},
    {.key = "flag", .type = MW_F_BOOL, .offset = offsetof(struct outer, flag)},
    {.key = "count",
     .type = MW_F_INT,
     .min = 1,
     .max = 1e6,
     .offset = offsetof(struct outer, count),
     .seen_offset = offsetof(struct outer, has_count) + 1},
    {.key = "small",
     .type = MW_F_INT32,
     .offset = offsetof(struct outer, small)},
    {.key = "ratio",
     .type = MW_F_NUM,
     .min = 0,
     .max = HUGE_VAL,
     .offset = offsetof(struct outer, ratio)},
    {.key = "latency",
     .type = MW_F_QTY,
     .kind = MW_Q_SECONDS,
     .min = -HUGE_VAL,
     .max = 1,
     .offset = offsetof(struct outer, lat_s)},
    {.key = "kind",
     .type = MW_F_ENUM,
     .enums = kinds,
     .offset = offsetof(struct outer, kind)},
    {.key = "list",
     .type = MW_F_INT_LIST,
     .min = 1,
     .max = 8,
     .offset = offsetof(struct outer, list)},
    {.key = "words",
     .type = MW_F_INT_LIST,
     .enums = kinds,
     .offset = offsetof(struct outer, words)},
    {.key = "parts",
     .type = MW_F_NUM_LIST,
     .max = 1,
     .offset = offsetof(struct outer, parts)},
    {.key = "inner",
     .type = MW_F_MAP,
     .sub = inner_fields,
     .offset = offsetof(struct outer, inner)},
    {.key = "node", .type = MW_F_NODE, .offset = offsetof(struct outer, node)},
    MW_FIELD_END};

/* Everything one binding needs. */
struct fixture {
    struct mw_yaml *doc;
    struct mw_arena arena;
    struct mw_err err;
    struct outer out;
};

static int setup(void **state)
{
    struct fixture *x = mw_calloc(1, sizeof *x);
    mw_arena_init(&x->arena);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    mw_yaml_free(x->doc);
    mw_arena_release(&x->arena);
    mw_free(x);
    return 0;
}

static enum mw_status bind(struct fixture *x, const char *text)
{
    mw_yaml_free(x->doc);
    x->doc = NULL;
    mw_err_clear(&x->err);
    if (mw_yaml_parse("t", text, strlen(text), &x->doc, &x->err) != MW_OK) {
        fail_msg("%s", x->err.text);
    }
    return mw_yaml_bind(mw_yaml_root(x->doc), fields, &x->out, &x->arena,
                        &x->err);
}

static void every_type_is_bound(void **state)
{
    struct fixture *x = *state;
    const char *text = "name: 'a b'\nflag: true\ncount: 1000000\nsmall: -5\n"
                       "ratio: 2.5e-1\nlatency: 1.5us\nkind: TREE\n"
                       "list: [1, 8, 2]\n"
                       "words: [tree, RING]\nparts: [0, 0.25]\n"
                       "inner: {bandwidth: \"400Gb/s\", n: 3}\n"
                       "node: [x]\n";
    assert_int_equal(bind(x, text), MW_OK);
    const struct outer *o = &x->out;
    assert_string_equal(o->name, "a b");
    assert_true(o->flag);
    assert_int_equal(o->count, 1000000);
    assert_true(o->has_count);
    assert_int_equal(o->small, -5);
    mw_assert_near(o->ratio, 0.25, 0, 0);
    mw_assert_near(o->lat_s, 1.5e-6, 1e-15, 0);
    assert_int_equal(o->kind, KIND_TREE);
    assert_int_equal(o->list.n, 3);
    assert_int_equal(o->list.v[1], 8);
    assert_int_equal(o->words.n, 2);
    assert_int_equal(o->words.v[0], KIND_TREE);
    assert_int_equal(o->words.v[1], KIND_RING);
    assert_int_equal(o->parts.n, 2);
    mw_assert_near(o->parts.v[1], 0.25, 0, 0);
    mw_assert_near(o->inner.bw_Bps, 50e9, 1e-15, 0);
    assert_int_equal(o->inner.n, 3);
    assert_string_equal(mw_node_text(mw_node_item(o->node, 0)), "x");
}

static void absent_keys_keep_their_default(void **state)
{
    struct fixture *x = *state;
    x->out = (struct outer){.count = 77, .kind = KIND_RING, .ratio = 3};
    assert_int_equal(bind(x, "name: 8\n"), MW_OK);
    assert_string_equal(x->out.name, "8");
    assert_int_equal(x->out.count, 77);
    assert_false(x->out.has_count);
    assert_int_equal(x->out.kind, KIND_RING);
    mw_assert_near(x->out.ratio, 3, 0, 0);
    assert_null(x->out.node);
}

static void text_outlives_the_document(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(bind(x, "name: kept\nlist: [3]\n"), MW_OK);
    mw_yaml_free(x->doc);
    x->doc = NULL;
    assert_string_equal(x->out.name, "kept");
    assert_int_equal(x->out.list.v[0], 3);
}

/* One line of YAML after "name: n", and the first line of the message. */
static void mistakes_are_named(void **state)
{
    struct fixture *x = *state;
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"count: two", "t:2:8: 'count' must be an integer, got 'two'"},
        {"count: 1.0", "t:2:8: 'count' must be an integer, got '1.0'"},
        {"count: '2'", "t:2:8: 'count' must be an integer, got the text '2'"},
        {"count: [1]", "t:2:8: 'count' must be an integer, got a list"},
        {"count: {a: 1}", "t:2:8: 'count' must be an integer, got a mapping"},
        {"count:", "t:2:1: 'count' must be an integer, got nothing"},
        {"count: ''", "t:2:8: 'count' must be an integer, got the text"},
        {"count: 99999999999999999999",
         "t:2:8: 'count' must be an integer, got '99999999999999999999'"},
        {"count: -3", "t:2:8: 'count' is -3; it must be between 1 and 1000000"},
        {"count: 0", "t:2:8: 'count' is 0; it must be between 1 and 1000000"},
        {"small: 2147483648", "t:2:8: 'small' is 2147483648; it must be "
                              "between -2147483648 and 2147483647"},
        {"ratio: nan", "t:2:8: 'ratio' must be a finite number without a unit, "
                       "got 'nan'"},
        {"ratio: .inf", "t:2:8: 'ratio' must be a finite number without a "
                        "unit, got '.inf'"},
        {"ratio: 5GB", "t:2:8: 'ratio' must be a finite number without a unit, "
                       "got '5GB'"},
        {"ratio: -0.5", "t:2:8: 'ratio' is -0.5; it must be at least 0"},
        {"latency: 2s", "t:2:10: 'latency' is 2s; it must be at most 1 s"},
        {"latency: 2", "t:2:10: 'latency': '2' needs a unit, for example "
                       "1.5us"},
        {"latency: [2s]",
         "t:2:10: 'latency' must be a quantity like 1.5us, got a list"},
        {"flag: yes", "t:2:7: 'flag' must be true or false, got 'yes'"},
        {"flag: True", "t:2:7: 'flag' must be true or false, got 'True'"},
        {"flag: 'true'",
         "t:2:7: 'flag' must be true or false, got the text 'true'"},
        {"kind: rign", "t:2:7: 'kind' is 'rign'; did you mean 'ring'? allowed: "
                       "ring, tree"},
        {"kind: mesh", "t:2:7: 'kind' is 'mesh'; allowed: ring, tree"},
        {"kind: [ring]", "t:2:7: 'kind' must be one of ring, tree, got a list"},
        {"list: 3",
         "t:2:7: 'list' must be a list of integers, [1, 2], got '3'"},
        {"list: [1, x]", "t:2:11: 'list' must be a list of integers, got 'x'"},
        {"words: [ring, rong]", "t:2:15: 'words' is 'rong'; did you mean "
                                "'ring'? allowed: ring, tree"},
        {"words: ring",
         "t:2:8: 'words' must be a list of words, [a, b], got 'ring'"},
        {"parts: [0, 2]", "t:2:12: 'parts' is 2; it must be between 0 and 1"},
        {"parts: 0.5",
         "t:2:8: 'parts' must be a list of numbers, [0, 0.5], got '0.5'"},
        {"list: [1, 9]", "t:2:11: 'list' is 9; it must be between 1 and 8"},
        {"inner: 5", "t:2:8: 'inner' must be a mapping of keys to values, got "
                     "'5'"},
        {"inner: {n: 1}", "t:2:8: required key 'bandwidth' is missing in inner "
                          "(per direction)"},
        {"inner: {bandwith: 1GB/s, bandwidth: 1GB/s}",
         "t:2:9: unknown key 'bandwith' in inner; did you mean 'bandwidth'? "
         "allowed: bandwidth, n"},
        {"inner: {bandwidth: 450Gb}",
         "t:2:20: 'bandwidth': '450Gb' is a size in bytes but a rate in bytes "
         "per second is meant, for example 450GB/s"},
        {"inner: {bandwidth: 20TB/s}",
         "t:2:20: 'bandwidth' is 20TB/s; it must be between 0 B/s and "
         "10000000000000 B/s"},
        {"zzz: 1",
         "t:2:1: unknown key 'zzz'; allowed: name, flag, count, "
         "small, ratio, latency, kind, list, words, parts, inner, node"},
        {"Name: 1",
         "t:2:1: unknown key 'Name'; did you mean 'name'? allowed: "
         "name, flag, count, small, ratio, latency, kind, list, words, parts, "
         "inner, node"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "name: n\n%s\n", rows[i].line);
        assert_int_equal(bind(x, text), MW_EINPUT);
        x->err.text[strcspn(x->err.text, "\n")] = '\0';
        assert_string_equal(x->err.text, rows[i].message);
    }
}

static void name_must_be_text(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(bind(x, "name:\n"), MW_EINPUT);
    assert_string_equal(x->err.text, "t:1:1: 'name' must be a text, got "
                                     "nothing\n    name:\n    ^~~~");
    assert_int_equal(bind(x, "name: ''\n"), MW_OK);
    assert_string_equal(x->out.name, "");
}

static void the_file_must_be_a_mapping(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(bind(x, "[1, 2]\n"), MW_EINPUT);
    assert_non_null(strstr(x->err.text,
                           "t:1:1: 'the file' must be a mapping of "
                           "keys to values, got a list"));
}

/* In the order of the file; what is missing comes last, because a misspelt key
 * explains it. */
static void all_mistakes_are_collected(void **state)
{
    struct fixture *x = *state;
    assert_int_equal(bind(x, "count: 0\nflag: 1\nzzz: 2\ninner: {n: x}\n"),
                     MW_EINPUT);
    assert_int_equal(x->err.n_findings, 6);
    static const char *const parts[] = {"'count' is 0",
                                        "'flag' must be",
                                        "unknown key 'zzz'",
                                        "'n' must be an integer",
                                        "required key 'bandwidth'",
                                        "required key 'name'"};
    const char *at = x->err.text;
    for (size_t i = 0; i < 6; i++) {
        at = strstr(at, parts[i]);
        assert_non_null(at);
    }
}

/* A wrong value does not reach its target. */
static void targets_of_wrong_values_are_untouched(void **state)
{
    struct fixture *x = *state;
    x->out = (struct outer){.count = 5, .ratio = 6, .lat_s = 7, .small = 8};
    assert_int_equal(bind(x, "name: n\ncount: 0\nratio: -1\nlatency: 2s\n"
                             "small: 1e3\n"),
                     MW_EINPUT);
    assert_int_equal(x->out.count, 5);
    mw_assert_near(x->out.ratio, 6, 0, 0);
    mw_assert_near(x->out.lat_s, 7, 0, 0);
    assert_int_equal(x->out.small, 8);
}

static void long_input_words_are_cut(void **state)
{
    struct fixture *x = *state;
    struct mw_str text = {0};
    mw_str_add(&text, "name: n\n");
    for (int i = 0; i < 500; i++) {
        mw_str_add(&text, "kkkkkkkkkk");
    }
    mw_str_add(&text, ": 1\n");
    assert_int_equal(bind(x, text.s), MW_EINPUT);
    assert_true(x->err.len < 600);
    mw_str_release(&text);
}

/* Each place costs a walk over the file: only those shown are worked out, or
 * this would take hours. */
static void findings_beyond_those_shown_are_cheap(void **state)
{
    struct fixture *x = *state;
    struct mw_str text = {0};
    mw_str_add(&text, "name: n\nlist:\n");
    for (int i = 0; i < 100000; i++) {
        mw_str_add(&text, "- x\n");
    }
    for (int i = 0; i < 100000; i++) {
        mw_str_addf(&text, "key%d: 1\n", i);
    }
    assert_int_equal(bind(x, text.s), MW_EINPUT);
    assert_int_equal(x->err.n_findings, 200000);
    assert_non_null(strstr(x->err.text, "further errors are not shown"));
    mw_str_release(&text);
}

#define BIND_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BIND_TEST(every_type_is_bound),
        BIND_TEST(absent_keys_keep_their_default),
        BIND_TEST(text_outlives_the_document),
        BIND_TEST(mistakes_are_named),
        BIND_TEST(name_must_be_text),
        BIND_TEST(the_file_must_be_a_mapping),
        BIND_TEST(all_mistakes_are_collected),
        BIND_TEST(targets_of_wrong_values_are_untouched),
        BIND_TEST(long_input_words_are_cut),
        BIND_TEST(findings_beyond_those_shown_are_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
