/*
 * Timeline files: the round trip through both forms is exact, foreign tools
 * may reorder keys, and wrong files are refused with file, line and column.
 */
#include "mw_test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rand.h"
#include "sim/engine/timeline.h"

#include <string.h>
#include <unistd.h>

static void make(struct mw_timeline *t, uint64_t seed)
{
    static const char *const names[] = {"F0.1", "all-reduce \"dW\", part\\2",
                                        "tab\there", "h\xc3\xa9"};
    mw_timeline_init(t);
    t->is_measured = true;
    snprintf(t->clock, sizeof t->clock, "virtual");
    snprintf(t->plan_hash, sizeof t->plan_hash, "0123456789abcdef");
    t->step_time_s = 0.1 + 0.2; /* no short decimal form */
    mw_time at_ps = 0;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t x = mw_rand_u64(seed, 0, i);
        at_ps += (mw_time)(x % 1000003);
        struct mw_span s = {.rank = (int32_t)(x / 7 % 5),
                            .stream = (uint16_t)(x / 11 % MW_STREAM_COUNT),
                            .kind = (uint16_t)(x / 13 % MW_SPAN_KIND_COUNT),
                            .start_ps = at_ps,
                            .end_ps = at_ps + (mw_time)(x / 17 % 999983),
                            .microbatch = (int32_t)(i % 9) - 1,
                            .stage = (int32_t)(i % 5) - 1,
                            .bytes = mw_rand_unit(seed, 1, i) * 1e9,
                            .flops = mw_rand_unit(seed, 2, i) * 1e15,
                            .name = mw_timeline_name(t, names[i % 4])};
        at_ps = s.end_ps;
        mw_timeline_add(t, &s);
    }
    t->n_ranks = 8;
    mw_timeline_sort(t);
}

static void assert_same(const struct mw_timeline *a,
                        const struct mw_timeline *b)
{
    assert_int_equal(a->spans.n, b->spans.n);
    assert_int_equal(a->n_ranks, b->n_ranks);
    assert_int_equal(a->is_measured, b->is_measured);
    assert_string_equal(a->clock, b->clock);
    assert_string_equal(a->plan_hash, b->plan_hash);
    mw_assert_near(a->step_time_s, b->step_time_s, 0, 0);
    for (size_t i = 0; i < a->spans.n; i++) {
        const struct mw_span *x = &a->spans.v[i], *y = &b->spans.v[i];
        assert_int_equal(x->start_ps, y->start_ps);
        assert_int_equal(x->end_ps, y->end_ps);
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->stream, y->stream);
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->microbatch, y->microbatch);
        assert_int_equal(x->stage, y->stage);
        mw_assert_near(x->bytes, y->bytes, 0, 0);
        mw_assert_near(x->flops, y->flops, 0, 0);
        assert_string_equal(a->names.v[x->name], b->names.v[y->name]);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct mw_timeline t, back;
        make(&t, seed);
        assert_int_equal(mw_timeline_write_chrome(&t, "t.json", &err), MW_OK);
        assert_int_equal(mw_timeline_load("t.json", &back, &err), MW_OK);
        assert_same(&t, &back);
        mw_timeline_release(&back);
        assert_int_equal(mw_timeline_write_csv(&t, "t.csv", &err), MW_OK);
        if (mw_timeline_load("t.csv", &back, &err) != MW_OK) {
            fail_msg("%s", err.text);
        }
        assert_same(&t, &back);
        mw_timeline_release(&back);
        mw_timeline_release(&t);
    }
    unlink("t.json");
    unlink("t.csv");
}

/* Any JSON reader takes the file; the metadata names ranks and streams. */
static void test_valid_json(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t;
    make(&t, 3);
    assert_int_equal(mw_timeline_write_chrome(&t, "v.json", &err), MW_OK);
    json_t *root = NULL;
    assert_int_equal(mw_json_load("v.json", 1 << 20, &root, &err), MW_OK);
    json_t *events = json_object_get(root, "traceEvents");
    size_t n_spans = 0, n_process = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        json_t *e = json_array_get(events, i);
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *name = json_string_value(json_object_get(e, "name"));
        n_spans += strcmp(ph, "X") == 0;
        n_process += strcmp(name, "process_name") == 0;
    }
    assert_int_equal(n_spans, 200);
    assert_int_equal(n_process, 5);
    json_t *first = json_object_get(json_array_get(events, 0), "args");
    assert_string_equal(json_string_value(json_object_get(first, "name")),
                        "rank 0 (stage 0)");
    json_t *other = json_object_get(root, "otherData");
    assert_int_equal(json_integer_value(json_object_get(other, "format")), 1);
    json_decref(root);
    mw_timeline_release(&t);
    unlink("v.json");
}

static void test_empty_timeline(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t, back;
    mw_timeline_init(&t);
    assert_int_equal(mw_timeline_write_chrome(&t, "e.json", &err), MW_OK);
    assert_int_equal(mw_timeline_load("e.json", &back, &err), MW_OK);
    assert_same(&t, &back);
    mw_timeline_release(&back);
    assert_int_equal(mw_timeline_write_csv(&t, "e.csv", &err), MW_OK);
    assert_int_equal(mw_timeline_load("e.csv", &back, &err), MW_OK);
    assert_same(&t, &back);
    mw_timeline_release(&back);
    mw_timeline_release(&t);
    unlink("e.json");
    unlink("e.csv");
}

/* Keys in another order, unknown keys, spaces, a shorter number: as a tool
 * that reads and writes JSON would leave it. */
static void test_reordered(void **state)
{
    (void)state;
    static const char text[] =
        "\xef\xbb\xbf {\"otherData\": {\"ranks\": 2, \"extra\": [1, {}], "
        "\"format\": 1,\n"
        "  \"clock\": \"wall\", \"source\": \"measured\",\n"
        "  \"step_time_s\": 1e-3, \"plan_hash\": \"ab\"},\n"
        " \"new\": null, \"traceEvents\": [\n"
        "  {\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\"},\n"
        "  {\"args\": {\"kind\": \"B\", \"mb\": 3, \"z\": \"?\"}, \"dur\": 2,\n"
        "   \"ts\": 1.5, \"tid\": 0, \"pid\": 1, \"ph\": \"X\",\n"
        "   \"name\": \"B3\", \"cname\": \"x\"}]}\n";
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t;
    if (mw_timeline_parse("f", text, strlen(text), &t, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(t.spans.n, 1);
    assert_int_equal(t.n_ranks, 2);
    const struct mw_span *s = &t.spans.v[0];
    assert_int_equal(s->start_ps, 1500000);
    assert_int_equal(s->end_ps, 3500000);
    assert_int_equal(s->kind, MW_SPAN_B);
    assert_int_equal(s->microbatch, 3);
    assert_int_equal(s->stage, -1);
    mw_timeline_release(&t);
}

/* ---- wrong files
 * --------------------------------------------------------------- */
#define OTHER "\"otherData\":{\"format\":1}"
#define ARGS "\"args\":{\"kind\":\"F\"}"
#define EVENT(pid, tid, ts, dur, args)                                         \
    "{\"name\":\"a\",\"ph\":\"X\",\"pid\":" pid ",\"tid\":" tid ",\"ts\":" ts  \
    ",\"dur\":" dur "," args "}"
#define FILE_OF(event) "{\"traceEvents\":[\n" event "\n]," OTHER "}"
#define CSV_HEAD                                                               \
    "# format: 1\nrank,stream,kind,name,microbatch,stage,start_s,end_s\n"

struct bad_case {
    const char *text, *needle;
};
static const struct bad_case bad_cases[] = {
    {"", "f: is empty"},
    {" \n\t", "f: is empty"},
    {"{\"traceEvents\":[", "f:1:17: the file ends where"},
    {"[]", "f:1:1: '[' where '{' should be"},
    {"{}", "f:1:1: not a meshwright timeline: otherData.format"},
    {"{" OTHER "}", "f:1:1: not a meshwright timeline: no traceEvents"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":2}}",
     "f:1:41: format 2 is newer than this program reads (1)"},
    {"{\"traceEvents\":7," OTHER "}", "f:1:16: '7' where '[' should be"},
    {"{\"traceEvents\":[]," OTHER "} x", "'x' where the end of the file"},
    {"{\"traceEvents\":[{\"ph\":\"B\"}],\"otherData\":{\"format\":7}}",
     "format 7 is newer"}, /* its events are not even looked at */
    {FILE_OF("{\"ph\":\"B\"}"), "f:2:7: event phase 'B'"},
    {FILE_OF("{}"), "f:2:1: event without 'name'"},
    {FILE_OF("{\"name\":\"a\",\"ph\":\"X\"}"), "f:2:1: event without 'pid'"},
    {FILE_OF(EVENT("0", "0", "0", "1", "\"args\":{}")), "'args.kind'"},
    {FILE_OF(EVENT("0", "0", "0", "1", "\"args\":{\"kind\":\"Q\"}")),
     "f:2:68: unknown kind of work 'Q'"},
    {FILE_OF(EVENT("0", "0", "NaN", "1", ARGS)), "f:2:43: 'N' where a value"},
    {FILE_OF(EVENT("0", "0", "\"1\"", "1", ARGS)), "'\"' where a number"},
    {FILE_OF(EVENT("0", "0", "-1", "1", ARGS)), "f:2:43: a time before 0"},
    {FILE_OF(EVENT("0", "0", "0", "-1", ARGS)), "a time before 0"},
    {FILE_OF(EVENT("0", "0", "1e30", "1", ARGS)), "a time past 106 days"},
    {FILE_OF(EVENT("0", "0", "9e12", "9e12", ARGS)), "event ends past"},
    {FILE_OF(EVENT("-1", "0", "0", "1", ARGS)), "f:2:28: -1 should be"},
    {FILE_OF(EVENT("0.5", "0", "0", "1", ARGS)), "0.5 should be an integer"},
    {FILE_OF(EVENT("1e9", "0", "0", "1", ARGS)), "integer from 0 to 4194303"},
    {FILE_OF(EVENT("0", "8", "0", "1", ARGS)), "8 should be an integer from"},
    {FILE_OF("{\"ph\":\"X\",\"ph\":\"X\"}"), "f:2:11: key 'ph' stands twice"},
    {FILE_OF(
         EVENT("0", "0", "0", "5", ARGS) ",\n" EVENT("0", "0", "4", "5", ARGS)),
     "f: rank 0, stream compute: 'a' starts at 4000000 ps, before"},
    {FILE_OF(EVENT("0", "0", "0", "5", ARGS) ","),
     "f:3:1: ']' where a value should be"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":1,\"plan_hash\":"
     "\"0123456789abcdef0\"}}",
     "text of 17 bytes; at most 16"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":1,\"plan_hash\":\"x\"}}",
     "f:1:55: plan_hash should be hexadecimal digits, not 'x'"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":1,\"clock\":\"sun\"}}",
     "f:1:51: clock should be simulated, wall or virtual, not 'sun'"},
    {"# format: 1\n# clock: \n", "f:2: clock should be simulated"},
    {"# format: 1\n# plan_hash: g\n", "f:2: plan_hash should be"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":1,\"source\":\"x\"}}",
     "source 'x' should be"},
    {"{\"traceEvents\":[],\"otherData\":{\"format\":1,\"step_time_s\":-1}}",
     "step time -1 s"},
    {"{\"a\xff\"", "f: is not text (line 1 is not valid UTF-8)"},
    {"\x7f"
     "ELF\x02\x01",
     "f:1: not a meshwright timeline: neither"},
    {"a,b\n1,2\n", "neither Chrome trace JSON nor CSV"},
    {"# format: 2\n", "f:1: format is newer than this program reads"},
    {"# format: x\n", "f:1: format should be 1, not 'x'"},
    {"# format: 1\n# step_time_s: nan\n", "f:2: step_time_s should be"},
    {"# format: 1\n# source: guess\n", "f:2: source should be"},
    {"# format: 1\n# ranks: -3\n", "f:2: ranks should be"},
    {"# format: 1\nrank,stream\n0,tp\n", "no column 'kind'"},
    {CSV_HEAD "0,compute,F,a,0,0,0,1\n0,compute,F,a,0,0\n", "f:4"},
    {CSV_HEAD "0,gpu,F,a,0,0,0,1\n", "f:3: column 'stream': unknown stream"},
    {CSV_HEAD "0,compute,F,a,0,0,0,NaN\n", "column 'end_s': 'NaN'"},
    {CSV_HEAD "0,compute,F,a,0,0,2,1\n", "column 'end_s': ends before"},
    {CSV_HEAD "x,compute,F,a,0,0,0,1\n", "column 'rank'"},
    {CSV_HEAD "0,compute,F,a,0,0,,1\n", "column 'start_s': '': a time"},
};

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_cases / sizeof *bad_cases; i++) {
        const struct bad_case *c = &bad_cases[i];
        struct mw_err err = {.status = MW_OK};
        struct mw_timeline t = {.n_ranks = -7};
        enum mw_status status =
            mw_timeline_parse("f", c->text, strlen(c->text), &t, &err);
        if (status != MW_EINPUT || !strstr(err.text, c->needle)) {
            fail_msg("case %zu: status %d, '%s' lacks '%s'", i, (int)status,
                     err.text, c->needle);
        }
        assert_int_equal(t.n_ranks, -7); /* untouched */
    }
}

/* Every prefix of a good file is refused, without a crash. */
static void test_truncated(void **state)
{
    (void)state;
    static const char good[] =
        "{\"traceEvents\":[{\"name\":\"\\u00e9\",\"cat\":\"F\",\"ph\":\"X\","
        "\"pid\":0,\"tid\":0,\"ts\":1.25,\"dur\":3e0,\"args\":{\"mb\":0,"
        "\"stage\":1,\"kind\":\"F\",\"bytes\":0,\"flops\":1.5}}],"
        "\"otherData\":{\"format\":1,\"clock\":\"wall\"}}";
    struct mw_timeline t;
    for (size_t n = 0; n <= strlen(good); n++) {
        char *text = mw_calloc(n + 1, 1); /* exact size: reads past it show */
        memcpy(text, good, n);
        struct mw_err err = {.status = MW_OK};
        enum mw_status status = mw_timeline_parse("f", text, n, &t, &err);
        assert_int_equal(status, n == strlen(good) ? MW_OK : MW_EINPUT);
        mw_free(text);
    }
    mw_timeline_release(&t);
}

static void test_cannot_write(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_timeline t;
    mw_timeline_init(&t);
    assert_int_equal(mw_timeline_write_chrome(&t, "no/such/dir/t.json", &err),
                     MW_EINPUT);
    assert_int_equal(mw_timeline_write_csv(&t, "no/such/dir/t.csv", NULL),
                     MW_EINPUT);
    assert_int_equal(mw_timeline_load("no/such/file", &t, NULL), MW_EINPUT);
    assert_int_equal(mw_timeline_load(".", &t, NULL), MW_EINPUT);
    mw_timeline_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_valid_json),
        cmocka_unit_test(test_empty_timeline),
        cmocka_unit_test(test_reordered),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_cannot_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
