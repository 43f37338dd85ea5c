/*
 * MSCCL++ plans: every built-in program, written as a plan, is read again and
 * delivers the right data; a plan by hand; broken ones with the place named;
 * times on a star by hand.
 */
#include "mw_test.h"

#include "hwdb/hwdb.h"
#include "sim/coll/onesided.h"
#include "sim/net/topology.h"

#include <string.h>

static struct mw_oneside *plan_of(const struct mw_prog_spec *s)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_prog *p = NULL;
    struct mw_oneside *plan = NULL;
    struct mw_str text = {NULL, 0, 0};
    if (mw_prog_build(s, &p, &err) != MW_OK) {
        return NULL;
    }
    if (p->n_switches > 0) { /* MSCCL has no steps for them */
        mw_prog_free(p);
        return NULL;
    }
    mw_prog_write_json(p, &text);
    if (mw_oneside_parse("plan.json", text.s, text.n, &plan, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_str_release(&text);
    mw_prog_free(p);
    return plan;
}

static void programs_survive_as_plans(void **state)
{
    (void)state;
    int built = 0;
    for (int op = 0; op < MW_PROG_OPS; op++) {
        for (int algo = 0; algo < MW_ALGOS; algo++) {
            for (int n = 2; n <= 9; n++) {
                struct mw_prog_spec s = {.op = (enum mw_prog_op)op,
                                         .algo = (enum mw_prog_algo)algo,
                                         .n_ranks = n,
                                         .root = n / 2,
                                         .local = n % 2 == 0 ? 2 : 1};
                struct mw_oneside *plan = plan_of(&s);
                if (!plan) {
                    continue;
                }
                struct mw_err why = {.status = MW_OK};
                if (mw_oneside_check(plan, &why) != MW_OK) {
                    fail_msg("%s", why.text);
                }
                assert_int_equal(mw_oneside_ranks(plan), n);
                assert_int_equal(mw_oneside_op(plan), op);
                mw_oneside_free(plan);
                built++;
            }
        }
    }
    assert_true(built > 90);
}

/* Two ranks add the other's half by reading it and put the sum there. */
#define HEAD                                                                   \
    "{\"name\":\"pair\",\"collective\":\"allreduce\",\"protocol\":\"Simple\"," \
    "\"inplace\":true,\"gpus\":["
#define GPU(id, peer, ops)                                                     \
    "{\"id\":" id ",\"input_chunks\":2,\"output_chunks\":2,"                   \
    "\"scratch_chunks\":0,\"threadblocks\":[{\"id\":0,\"ops\":[" ops           \
    "],\"channels\":[{\"channel_type\":\"memory\",\"channel_ids\":[0]}],"      \
    "\"remote_buffer_refs\":[{\"access_channel_type\":\"memory\","             \
    "\"remote_buffer_ids\":[0]}]}],\"channels\":[{\"channel_type\":"           \
    "\"memory\",\"connected_to\":[" peer                                       \
    "]}],\"remote_buffers\":[{\"rank\":" peer                                  \
    ",\"type\":\"i\",\"access_channel_types\":[\"memory\"]}],"                 \
    "\"semaphores\":[]}"
#define SYNC(name)                                                             \
    "{\"name\":\"" name "\",\"channel_ids\":[0],\"channel_type\":\"memory\"}"
#define LOCAL(i) "{\"type\":\"i\",\"index\":" i ",\"size\":1}"
#define REMOTE(i) "{\"buffer_id\":0,\"index\":" i ",\"size\":1}"
#define RRES(i)                                                                \
    "{\"name\":\"rres\",\"src_buff\":[" LOCAL(i) "," REMOTE(                   \
        i) "],\"dst_buff\":[" LOCAL(i) "," REMOTE(i) "],"                      \
                                                     "\"channel_type\":"       \
                                                     "\"memory\"}"
#define BODY(i)                                                                \
    SYNC("signal")                                                             \
    "," SYNC("wait") "," RRES(i) "," SYNC("signal") "," SYNC("wait")

static enum mw_status check_text(const char *text, struct mw_err *err)
{
    struct mw_oneside *plan = NULL;
    enum mw_status s =
        mw_oneside_parse("t.json", text, strlen(text), &plan, err);
    if (s == MW_OK) {
        s = mw_oneside_check(plan, err);
        mw_oneside_free(plan);
    }
    return s;
}

static void a_plan_by_hand(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    if (check_text(
            HEAD GPU("0", "1", BODY("0")) "," GPU("1", "0", BODY("1")) "]}",
            &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static const struct {
    const char *text, *what;
} broken[] = {
    /* Nobody adds chunk 1. */
    {HEAD GPU("0", "1",
              BODY("0")) "," GPU("1", "0",
                                 SYNC("signal") "," SYNC("wait") "," SYNC(
                                     "signal") "," SYNC("wait")) "]}",
     "pair: rank 0, output chunk 1 lacks the part of rank 1"},
    /* Both add the same chunk. */
    {HEAD GPU("0", "1", BODY("0")) "," GPU("1", "0", BODY("0")) "]}",
     "rank 0, threadblock 0, step 2 (rres): adds a contribution twice"},
    /* Rank 1 does not signal. */
    {HEAD GPU("0", "1", BODY("0")) "," GPU("1", "0", RRES("1")) "]}",
     "rank 0, threadblock 0, step 1 (wait): waits for ever for a signal of "
     "rank 1"},
    {HEAD GPU("0", "1", BODY("2")) "," GPU("1", "0", BODY("1")) "]}",
     "t.json: gpus[0].threadblocks[0].ops[2]: src_buff and dst_buff"},
    {HEAD GPU("0", "1", SYNC("glres")) "," GPU("1", "0", BODY("1")) "]}",
     "gpus[0].threadblocks[0].ops[0]: not modelled: glres"},
    {HEAD GPU("0", "0", BODY("0")) "," GPU("1", "0", BODY("1")) "]}",
     "gpus[1].threadblocks[0].ops[0]: signals by a channel that the peer "
     "does not have"},
    {HEAD "]}", "not an MSCCL++ plan"},
    {"{\"name\":", "t.json:1:"}};

static void broken_plans_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        assert_int_equal(check_text(broken[i].text, &err), MW_EINPUT);
        if (!strstr(err.text, broken[i].what)) {
            fail_msg("'%s' lacks '%s'", err.text, broken[i].what);
        }
    }
}

/*
 * Ring all-reduce of 1 GiB over 8 GPUs behind an NVSwitch of 450 GB/s: 14
 * steps of a put (1/8 of the data and 1 us) and a signal (1 us).
 */
static void times_by_hand(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_topology *t = NULL;
    struct mw_topology_spec spec;
    double bytes = 1073741824;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_topology_parse(db, "dgx-h100 x 1", &spec, &err), MW_OK);
    assert_int_equal(mw_topology_new(&spec, &t, &err), MW_OK);
    struct mw_prog_spec ring = {
        .op = MW_PROG_ALL_REDUCE, .algo = MW_ALGO_RING, .n_ranks = 8};
    struct mw_oneside *plan = plan_of(&ring);
    struct mw_prog_run run = {.topo = t, .bytes = bytes, .latency_s = 1e-6};
    struct mw_prog_time out;
    if (mw_oneside_simulate(plan, &run, &out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_assert_near(out.time_s, 14 * (bytes / 8 / 450e9 + 2e-6), 1e-9, 0);
    assert_int_equal(out.n_messages, 14 * 8);
    mw_free(out.finish_s);
    mw_oneside_free(plan);
    mw_topology_free(t);
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_survive_as_plans),
        cmocka_unit_test(a_plan_by_hand),
        cmocka_unit_test(broken_plans_are_named),
        cmocka_unit_test(times_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
