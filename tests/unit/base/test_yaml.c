/*
 * YAML documents: the tree, places, and everything that is refused.
 */
#include "base/yaml.h"
#include "mw_test.h"

#include <string.h>

static struct mw_yaml *parse_ok(const char *text)
{
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    if (mw_yaml_parse("t.yaml", text, strlen(text), &doc, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return doc;
}

static void assert_refused(const char *text, const char *message)
{
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    assert_int_equal(mw_yaml_parse("t.yaml", text, strlen(text), &doc, &err),
                     MW_EINPUT);
    assert_null(doc);
    assert_string_equal(err.text, message);
}

static void assert_place(struct mw_node *node, int line, int column, int width)
{
    struct mw_pos pos = mw_node_pos(node);
    assert_int_equal(pos.line, line);
    assert_int_equal(pos.column, column);
    assert_int_equal(pos.width, width);
}

static void tree_of_a_document(void **state)
{
    (void)state;
    struct mw_yaml *doc = parse_ok("a: 1\nb:\n  - x\n  - {c: [1, 2], d: ''}\n"
                                   "e: |\n  two\n  lines\n");
    struct mw_node *root = mw_yaml_root(doc);
    const char *key;
    assert_string_equal(mw_yaml_file(doc), "t.yaml");
    assert_int_equal(mw_node_kind(root), MW_NODE_MAP);
    assert_int_equal(mw_node_count(root), 3);
    assert_string_equal(mw_node_text(mw_node_pair(root, 0, &key)), "1");
    assert_string_equal(key, "a");
    struct mw_node *b = mw_node_pair(root, 1, &key);
    assert_string_equal(key, "b");
    assert_int_equal(mw_node_kind(b), MW_NODE_SEQ);
    assert_int_equal(mw_node_count(b), 2);
    assert_string_equal(mw_node_text(mw_node_item(b, 0)), "x");
    struct mw_node *c = mw_node_get(mw_node_item(b, 1), "c");
    assert_int_equal(mw_node_count(c), 2);
    assert_string_equal(mw_node_text(mw_node_item(c, 1)), "2");
    assert_string_equal(mw_node_text(mw_node_get(root, "e")), "two\nlines\n");
    assert_null(mw_node_get(root, "none"));
    assert_null(mw_node_get(b, "a")); /* not a mapping */
    assert_string_equal(mw_node_text(b), "");
    mw_yaml_free(doc);
}

static void json_is_read(void **state)
{
    (void)state;
    struct mw_yaml *doc =
        parse_ok("{\n\t\"a\": 1e-5,\n\t\"b\": {\"c\": [1,2], \"d\": null},"
                 "\"e\":\"x\\u00e9\\/\\n\", \"f\":true}\n");
    struct mw_node *root = mw_yaml_root(doc);
    assert_string_equal(mw_node_text(mw_node_get(root, "a")), "1e-5");
    assert_string_equal(mw_node_text(mw_node_get(root, "e")), "x\xc3\xa9/\n");
    struct mw_node *b = mw_node_get(root, "b");
    assert_true(mw_node_is_null(mw_node_get(b, "d")));
    assert_int_equal(mw_node_count(mw_node_get(b, "c")), 2);
    mw_yaml_free(doc);
}

static void nothing_tilde_and_null_are_null(void **state)
{
    (void)state;
    struct mw_yaml *doc =
        parse_ok("a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: nul\n");
    struct mw_node *root = mw_yaml_root(doc);
    static const bool is_null[] = {true, true, true, false, false, false};
    for (size_t i = 0; i < 6; i++) {
        struct mw_node *n = mw_node_pair(root, i, NULL);
        assert_int_equal(mw_node_is_null(n), is_null[i]);
        if (is_null[i]) {
            assert_string_equal(mw_node_text(n), "");
        }
    }
    assert_string_equal(mw_node_text(mw_node_get(root, "e")), "null");
    mw_yaml_free(doc);
}

static void places_of_values(void **state)
{
    (void)state;
    struct mw_yaml *doc = parse_ok("# c\nname: h\xc3\xa4llo w\xc3\xb6rld\n"
                                   "ma\xc3\x9f: {x: 12, y: [3, \"four\"]}\n"
                                   "empty:\nlast: 1\n");
    struct mw_node *root = mw_yaml_root(doc);
    assert_place(root, 2, 1, 1);
    assert_place(mw_node_get(root, "name"), 2, 7, 11);
    struct mw_node *m = mw_node_pair(root, 1, NULL);
    assert_place(m, 3, 6, 1);
    assert_place(mw_node_get(m, "x"), 3, 10, 2);
    assert_place(mw_node_item(mw_node_get(m, "y"), 1), 3, 21, 6);
    /* nothing there: its key */
    assert_place(mw_node_get(root, "empty"), 4, 1, 5);
    assert_string_equal(mw_node_pos(m).source_line,
                        "ma\xc3\x9f: {x: 12, y: [3, \"four\"]}");
    assert_string_equal(mw_node_pos(m).file, "t.yaml");
    mw_yaml_free(doc);
}

static void places_behind_a_byte_order_mark_and_crlf(void **state)
{
    (void)state;
    struct mw_yaml *doc = parse_ok("\xef\xbb\xbf"
                                   "a: 1\r\nb:\r\n  c: 2\r\n");
    struct mw_node *root = mw_yaml_root(doc);
    assert_place(mw_node_get(root, "a"), 1, 4, 1);
    assert_string_equal(mw_node_pos(root).source_line, "a: 1");
    assert_place(mw_node_get(mw_node_get(root, "b"), "c"), 3, 6, 1);
    assert_string_equal(mw_node_text(mw_node_get(root, "a")), "1");
    mw_yaml_free(doc);
}

static void message_at_a_node(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_yaml *doc = parse_ok("a:\n  b: two\n");
    struct mw_node *b = mw_node_get(mw_node_get(mw_yaml_root(doc), "a"), "b");
    assert_int_equal(mw_node_fail(b, &err, "not %d", 2), MW_EINPUT);
    assert_string_equal(err.text, "t.yaml:2:6: not 2\n"
                                  "      b: two\n"
                                  "         ^~~");
    mw_yaml_free(doc);
}

static void syntax_errors_have_a_place(void **state)
{
    (void)state;
    assert_refused("\xc3\xa4: {b: [1, 2}\n",
                   "t.yaml:1:13: YAML syntax: mismatched flow mapping end\n"
                   "    \xc3\xa4: {b: [1, 2}\n"
                   "                ^");
    assert_refused("a: 1\nb: {\n",
                   "t.yaml:2:5: YAML syntax: did not find expected node "
                   "content\n"
                   "    b: {\n"
                   "        ^");
    assert_refused("x: 1\na: b: c\n",
                   "t.yaml:2:5: YAML syntax: invalid nested block mapping on "
                   "the same line\n"
                   "    a: b: c\n"
                   "        ^");
    assert_refused("a: @x\n",
                   "t.yaml:1:4: YAML syntax: plain scalar cannot start with "
                   "'@'\n"
                   "    a: @x\n"
                   "       ^");
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    assert_refused("a: 1\nb: {tp: 2, 'tp': 4}\n",
                   "t.yaml:2:12: key 'tp' is given twice; the first is on line "
                   "2\n"
                   "    b: {tp: 2, 'tp': 4}\n"
                   "               ^~~~");
    assert_refused("a: 1\nb: 2\na: 3\n",
                   "t.yaml:3:1: key 'a' is given twice; the first is on line "
                   "1\n"
                   "    a: 3\n"
                   "    ^");
}

static void features_not_wanted_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *first_line;
    } rows[] = {
        {"a: &x 1\nb: *x\n", "t.yaml:1:5: anchors and aliases"},
        {"b: *x\n", "t.yaml:1:5: anchors and aliases"},
        {"a: &x [1]\n", "t.yaml:1:5: anchors and aliases"},
        {"a: &x {b: 1}\n", "t.yaml:1:5: anchors and aliases"},
        {"b: !!int 5\n", "t.yaml:1:4: tags (!name) are not allowed"},
        {"b: !x [5]\n", "t.yaml:1:4: tags (!name) are not allowed"},
        {"b: !x {c: 5}\n", "t.yaml:1:4: tags (!name) are not allowed"},
        {"---\na: 1\n---\nb: 2\n", "t.yaml:3:1: a second document"},
        {"a: 1\n...\nb: 2\n", "t.yaml:3:1: a second document"},
        {"[a, b]: 1\n", "t.yaml:1:1: a key must be a word"},
        {"? {a: b}\n: 1\n", "t.yaml:1:1: explicit keys"},
        {"a: [? b : 1]\n", "t.yaml:1:5: explicit keys"},
        {"? <:\t:", "t.yaml:1:1: explicit keys"}, /* crashes libfyaml 0.7.12 */
        {"a: 1\n: 2\n", "t.yaml:2:1: a key is missing before ':'"},
        {"{a: {b: 1}: 2}\n", "t.yaml:1:"},
        {"%YAML 1.2\n---\na: 1\n", "t.yaml:1:1: directives"},
        {"a: \"x\\0y\"\n", "t.yaml:1:4: a NUL character is not allowed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mw_yaml *doc = NULL;
        struct mw_err err = {0};
        assert_int_equal(mw_yaml_parse("t.yaml", rows[i].text,
                                       strlen(rows[i].text), &doc, &err),
                         MW_EINPUT);
        if (strncmp(err.text, rows[i].first_line, strlen(rows[i].first_line)) !=
            0) {
            fail_msg("'%s' gave '%s'", rows[i].text, err.text);
        }
    }
}

static void a_document_may_be_marked(void **state)
{
    (void)state;
    mw_yaml_free(parse_ok("# c\n---\na: 1\n...\n"));
    mw_yaml_free(parse_ok("a: 1 # end"));
    mw_yaml_free(parse_ok("word"));
    mw_yaml_free(parse_ok("[]"));
    mw_yaml_free(parse_ok("{}"));
}

static void empty_and_binary_are_refused(void **state)
{
    (void)state;
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    assert_refused("", "t.yaml: is empty");
    assert_refused("\n\n", "t.yaml: is empty");
    assert_refused("# only a comment\n", "t.yaml: is empty");
    assert_refused("---\n", "t.yaml: is empty");
    assert_refused("null\n", "t.yaml: is empty");
    assert_refused("\xef\xbb\xbf", "t.yaml: is empty");
    assert_refused("a: 1\nb: \xff\n",
                   "t.yaml: is not text (line 2 is not valid UTF-8)");
    assert_int_equal(mw_yaml_parse("t.yaml", "a: 1\0", 5, &doc, &err),
                     MW_EINPUT);
    assert_string_equal(err.text, "t.yaml: is not text (it has NUL bytes)");
    mw_err_clear(&err);
    assert_int_equal(mw_yaml_load("/", &doc, &err), MW_EINPUT);
    assert_string_equal(err.text, "/: is a directory; a YAML file is needed");
}

/* ---- sizes --------------------------------------------------------- */

static char *repeated(const char *s, size_t n)
{
    size_t len = strlen(s);
    char *text = mw_calloc(n * len + 1, 1);
    for (size_t i = 0; i < n; i++) {
        memcpy(text + i * len, s, len);
    }
    return text;
}

static void assert_repeated_refused(const char *s, size_t n, const char *part)
{
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    char *text = repeated(s, n);
    enum mw_status st = mw_yaml_parse("t", text, strlen(text), &doc, &err);
    mw_free(text);
    if (st != MW_EINPUT || strstr(err.text, part) == NULL) {
        fail_msg("%zu times '%s': %s", n, s, err.text);
    }
}

/* libfyaml alone needs minutes and gigabytes for some of these; the time limit
 * of the test is the check. */
static void hostile_sizes_are_refused(void **state)
{
    (void)state;
    assert_repeated_refused("[", 1000, "1:65: nested deeper than 64");
    assert_repeated_refused("{a: ", 1000, "1:257: nested deeper than 64");
    assert_repeated_refused("- ", 1000, "1:129: nested deeper than 64");
    assert_repeated_refused("[\n", 8 << 20, "65:1: nested deeper than 64");
    assert_repeated_refused("[", 16 << 20, "longer than 1 MiB");
    assert_repeated_refused("[", (16 << 20) + 1, "at most 16 MiB");
    assert_repeated_refused("%", 1 << 19, "directives");
    assert_repeated_refused("!", 1 << 19, "tags");
    assert_repeated_refused("a: |\n", 1 << 10, "t:");
    assert_repeated_refused("\n", 300, "more than 256 blank lines");
    assert_repeated_refused("- - \n", 3 << 20, "more than 4 million values");
}

static void blank_lines_of_a_block_scalar_are_bounded(void **state)
{
    (void)state;
    struct mw_str text = {0};
    struct mw_yaml *doc = NULL;
    struct mw_err err = {0};
    char *blanks = repeated("  \n", 1 << 16);
    mw_str_addf(&text, "a: |\n%sb: 1\n", blanks);
    assert_int_equal(mw_yaml_parse("t", text.s, text.n, &doc, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "t:258:1: more than 256 blank lines"));
    mw_free(blanks);
    mw_str_release(&text);
}

/* n opening and n closing strings around a word. */
static enum mw_status parse_nested(const char *open, const char *shut, size_t n)
{
    struct mw_yaml *doc = NULL;
    struct mw_str text = {0};
    char *opens = repeated(open, n), *shuts = repeated(shut, n);
    mw_str_addf(&text, "%sx%s\n", opens, shuts);
    enum mw_status st = mw_yaml_parse("t", text.s, text.n, &doc, NULL);
    if (st == MW_OK) {
        mw_yaml_free(doc);
    }
    mw_free(opens);
    mw_free(shuts);
    mw_str_release(&text);
    return st;
}

/* 64 levels are read, one more is refused, in flow and in block style. */
static void depth_limit_is_exact(void **state)
{
    (void)state;
    assert_int_equal(parse_nested("[", "]", 64), MW_OK);
    assert_int_equal(parse_nested("[", "]", 65), MW_EINPUT);
    assert_int_equal(parse_nested("{a: ", "}", 64), MW_OK);
    assert_int_equal(parse_nested("{a: ", "}", 65), MW_EINPUT);
    assert_int_equal(parse_nested("- ", "", 64), MW_OK);
    assert_int_equal(parse_nested("- ", "", 65), MW_EINPUT);
    assert_int_equal(parse_nested("- [", "]", 1), MW_OK);
}

/* What looks like nesting but is not: quotes, comments, plain words, blocks. */
static void brackets_inside_text_do_not_count(void **state)
{
    (void)state;
    struct mw_str text = {0};
    for (int i = 0; i < 200; i++) {
        mw_str_addf(&text,
                    "a%d: x [ y  # half open [0, 10)\n"
                    "b%d: \"[ \\\" [\"\n"
                    "c%d: 'it''s [ {'\n"
                    "d%d: {x: '[', y: \"{\", z: [a'b, \"#\"]} # [[\n"
                    "e%d: |\n  [ [ {\n  '\n"
                    "f%d: don't [\n",
                    i, i, i, i, i, i);
    }
    struct mw_yaml *doc = parse_ok(text.s);
    assert_int_equal(mw_node_count(mw_yaml_root(doc)), 1200);
    assert_string_equal(mw_node_text(mw_node_get(mw_yaml_root(doc), "c7")),
                        "it's [ {");
    mw_yaml_free(doc);
    mw_str_release(&text);
}

static void a_large_mapping_is_read_in_order(void **state)
{
    (void)state;
    struct mw_str text = {0};
    for (int i = 0; i < 20000; i++) {
        mw_str_addf(&text, "k%d: %d\n", i, i);
    }
    struct mw_yaml *doc = parse_ok(text.s);
    const char *key;
    struct mw_node *v = mw_node_pair(mw_yaml_root(doc), 19999, &key);
    assert_string_equal(key, "k19999");
    assert_place(v, 20000, 9, 5);
    mw_yaml_free(doc);
    mw_str_add(&text, "k77: 1\n");
    struct mw_err err = {0};
    assert_int_equal(mw_yaml_parse("t", text.s, text.n, &doc, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "t:20001:1: key 'k77' is given twice; the "
                                     "first is on line 78"));
    mw_str_release(&text);
}

/* ---- nearest word -------------------------------------------------- */

static void nearest_words(void **state)
{
    (void)state;
    static const char *const words[] = {"bandwidth", "nodes", "tp", "pp",
                                        "system"};
    assert_string_equal(mw_nearest("bandwith", words, 5), "bandwidth");
    assert_string_equal(mw_nearest("badnwidth", words, 5), "bandwidth");
    assert_string_equal(mw_nearest("Nodes", words, 5), "nodes");
    assert_string_equal(mw_nearest("node", words, 5), "nodes");
    assert_string_equal(mw_nearest("systme", words, 5), "system");
    assert_string_equal(mw_nearest("tpp", words, 5), "tp");
    assert_null(mw_nearest("tx", words, 5)); /* 2 / 3 = 0 edits allowed */
    assert_null(mw_nearest("pipeline", words, 5));
    assert_null(mw_nearest("", words, 5));
    assert_null(mw_nearest("nodes", NULL, 0));
    char *word = repeated("n", 100000);
    assert_null(mw_nearest(word, words, 5));
    mw_free(word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_of_a_document),
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(nothing_tilde_and_null_are_null),
        cmocka_unit_test(places_of_values),
        cmocka_unit_test(places_behind_a_byte_order_mark_and_crlf),
        cmocka_unit_test(message_at_a_node),
        cmocka_unit_test(syntax_errors_have_a_place),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(features_not_wanted_are_refused),
        cmocka_unit_test(a_document_may_be_marked),
        cmocka_unit_test(empty_and_binary_are_refused),
        cmocka_unit_test(hostile_sizes_are_refused),
        cmocka_unit_test(blank_lines_of_a_block_scalar_are_bounded),
        cmocka_unit_test(depth_limit_is_exact),
        cmocka_unit_test(brackets_inside_text_do_not_count),
        cmocka_unit_test(a_large_mapping_is_read_in_order),
        cmocka_unit_test(nearest_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
