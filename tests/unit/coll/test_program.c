/*
 * Collective programs: every built-in one delivers exactly the right data;
 * broken ones are caught with the place named; times on a star by hand.
 */
#include "mw_test.h"

#include "hwdb/hwdb.h"
#include "sim/coll/program.h"
#include "sim/net/topology.h"

#include <string.h>

static void all_built_ins_are_correct(void **state)
{
    (void)state;
    int built = 0;
    for (int op = 0; op < MW_PROG_OPS; op++) {
        for (int algo = 0; algo < MW_ALGOS; algo++) {
            for (int n = 2; n <= 17; n++) {
                struct mw_prog_spec s = {.op = (enum mw_prog_op)op,
                                         .algo = (enum mw_prog_algo)algo,
                                         .n_ranks = n,
                                         .root = n / 2,
                                         .local = n % 4 == 0   ? 4
                                                  : n % 2 == 0 ? 2
                                                               : 1};
                struct mw_err err = {.status = MW_OK};
                struct mw_prog *p = NULL;
                if (mw_prog_build(&s, &p, &err) != MW_OK) {
                    continue;
                }
                struct mw_err why = {.status = MW_OK};
                if (mw_prog_check(p, &why) != MW_OK) {
                    fail_msg("%s", why.text);
                }
                built++;
                mw_prog_free(p);
            }
        }
    }
    assert_true(built > 270);
}

static void xml_and_back(void **state)
{
    (void)state;
    struct mw_prog_spec s = {.op = MW_PROG_ALL_REDUCE,
                             .algo = MW_ALGO_HALVING_DOUBLING,
                             .n_ranks = 8};
    struct mw_err err = {.status = MW_OK};
    struct mw_prog *p = NULL, *q = NULL;
    struct mw_str a = {NULL, 0, 0}, b = {NULL, 0, 0}, j = {NULL, 0, 0};
    assert_int_equal(mw_prog_build(&s, &p, &err), MW_OK);
    mw_prog_write_xml(p, &a);
    if (mw_prog_parse("x.xml", a.s, a.n, &q, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_prog_write_xml(q, &b);
    assert_string_equal(a.s, b.s);
    mw_prog_write_json(q, &j);
    assert_non_null(strstr(j.s, "\"allreduce\""));
    mw_str_release(&a);
    mw_str_release(&b);
    mw_str_release(&j);
    mw_prog_free(p);
    mw_prog_free(q);
}

/* Two ranks that exchange their halves: the smallest all-gather. */
#define GPU(id, body)                                                          \
    "<gpu id=\"" id "\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\">" body    \
    "</gpu>"
#define HEAD                                                                   \
    "<algo name=\"t\" ngpus=\"2\" coll=\"allgather\" nchannels=\"1\" "         \
    "inplace=\"1\">"

static const struct {
    const char *xml, *what;
} broken[] = {
    /* rank 1 never sends: rank 0 lacks the chunk. */
    {HEAD GPU("0", "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\"><step "
                   "s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" cnt=\"1\"/>"
                   "</tb>")
         GPU("1", "<tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\"><step "
                  "s=\"0\" type=\"r\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\"/>"
                  "</tb>") "</algo>",
     "rank 0 ends with nothing in output chunk 1"},
    /* both wait for the other. */
    {HEAD GPU("0", "<tb id=\"0\" send=\"1\" recv=\"1\" chan=\"0\"><step "
                   "s=\"0\" type=\"r\" dstbuf=\"o\" dstoff=\"1\" cnt=\"1\"/>"
                   "<step s=\"1\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" "
                   "cnt=\"1\"/></tb>")
         GPU("1", "<tb id=\"0\" send=\"0\" recv=\"0\" chan=\"0\"><step "
                  "s=\"0\" type=\"r\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\"/>"
                  "<step s=\"1\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" "
                  "cnt=\"1\"/></tb>") "</algo>",
     "deadlock: rank 0 tb 0 step 0 (r) waits for rank 1 tb 0 step 0 (r)"},
    /* sends what has not arrived. */
    {HEAD GPU("0", "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\"><step "
                   "s=\"0\" type=\"s\" srcbuf=\"o\" srcoff=\"1\" cnt=\"1\"/>"
                   "</tb>")
         GPU("1", "<tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\"><step "
                  "s=\"0\" type=\"r\" dstbuf=\"o\" dstoff=\"0\" cnt=\"1\"/>"
                  "</tb>") "</algo>",
     "rank 0, threadblock 0, step 0 (s): reads a chunk before"},
    /* two ends of different size. */
    {HEAD GPU("0", "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\"><step "
                   "s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" cnt=\"1\"/>"
                   "</tb>")
         GPU("1", "<tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\"><step "
                  "s=\"0\" type=\"r\" dstbuf=\"o\" dstoff=\"0\" cnt=\"2\"/>"
                  "</tb>") "</algo>",
     "rank 0 sends 1 chunks on channel 0 but rank 1, threadblock 0, step 0 "
     "receives 2"},
    /* adds the same contribution twice. */
    {"<algo name=\"t\" ngpus=\"1\" coll=\"allreduce\" inplace=\"1\"><gpu "
     "id=\"0\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\"><tb "
     "id=\"0\"><step "
     "s=\"0\" type=\"re\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" "
     "dstoff=\"0\" "
     "cnt=\"1\"/></tb></gpu></algo>",
     "adds a contribution twice"},
    {HEAD "</algo>", "0 <gpu> elements but ngpus is 2"},
    {"<algo ngpus=\"2\" coll=\"bcast\"/>", "coll is 'bcast'"}};

static void broken_programs_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        struct mw_prog *p = NULL;
        assert_int_equal(mw_prog_parse("t.xml", broken[i].xml,
                                       strlen(broken[i].xml), &p, &err),
                         MW_EINPUT);
        if (!strstr(err.text, broken[i].what)) {
            fail_msg("'%s' lacks '%s'", err.text, broken[i].what);
        }
    }
}

static double time_of(enum mw_prog_op op, enum mw_prog_algo algo, int n,
                      int pieces, const struct mw_topology *t, double bytes)
{
    struct mw_prog_spec s = {.op = op,
                             .algo = algo,
                             .n_ranks = n,
                             .pieces = pieces,
                             .local = n < 8 ? n : 8};
    struct mw_err err = {.status = MW_OK};
    struct mw_prog *p = NULL;
    assert_int_equal(mw_prog_build(&s, &p, &err), MW_OK);
    struct mw_prog_run run = {.topo = t, .bytes = bytes, .latency_s = 1e-6};
    struct mw_prog_time out;
    mw_prog_simulate(p, &run, &out);
    mw_free(out.finish_s);
    mw_prog_free(p);
    return out.time_s;
}

/*
 * 8 GPUs behind an NVSwitch of 450 GB/s a direction, 1 GiB. No store and
 * forward, no halving: a ring all-reduce takes 14 steps of 1/8 each,
 *   14 (134217728 / 450e9 + 1e-6) = 4.1898 ms;
 * halving-doubling 2 (1/2 + 1/4 + 1/8) of the data = 7/4, the same bytes in 6
 * steps; a pipelined pair of trees moves at most 2 S/2 through a link a
 * direction, and is not the sum over its depth.
 */
static void times_by_hand(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_topology *t = NULL;
    struct mw_topology_spec spec;
    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_topology_parse(db, "dgx-h100 x 1", &spec, &err), MW_OK);
    assert_int_equal(mw_topology_new(&spec, &t, &err), MW_OK);
    double bytes = 1073741824, bw = 450e9;
    double ring = time_of(MW_PROG_ALL_REDUCE, MW_ALGO_RING, 8, 0, t, bytes);
    mw_assert_near(ring, 14 * (bytes / 8 / bw + 1e-6), 1e-9, 0);
    /* Small messages cost their latency: 14 steps of 1 us for 1 KiB. */
    double small = time_of(MW_PROG_ALL_REDUCE, MW_ALGO_RING, 8, 0, t, 1024);
    mw_assert_near(small, 14e-6, 1e-3, 0);
    double hd =
        time_of(MW_PROG_ALL_REDUCE, MW_ALGO_HALVING_DOUBLING, 8, 0, t, bytes);
    mw_assert_near(hd, 7.0 / 4 * bytes / bw + 6e-6, 1e-9, 0);
    double trees = time_of(MW_PROG_ALL_REDUCE, MW_ALGO_DOUBLE_BINARY_TREE, 8,
                           64, t, bytes);
    assert_true(trees < 2.3 * bytes / bw);
    double slow =
        time_of(MW_PROG_ALL_REDUCE, MW_ALGO_DOUBLE_BINARY_TREE, 8, 1, t, bytes);
    assert_true(slow > 1.5 * trees);
    /* Bruck: 3 rounds; an all-to-all of latency only takes 3, not 7. */
    double bruck = time_of(MW_PROG_ALL_TO_ALL, MW_ALGO_BRUCK, 8, 0, t, 8.0);
    mw_assert_near(bruck, 3e-6, 1e-3, 0);
    double few = time_of(MW_PROG_REDUCE_SCATTER, MW_ALGO_BRUCK, 8, 0, t, bytes);
    /* In two rounds the blocks of some rank wrap: a message more each. */
    mw_assert_near(few, 7.0 / 8 * bytes / bw + 5e-6, 1e-9, 0);
    mw_topology_free(t);
    mw_hwdb_free(db);
}

/*
 * Switches that add up, 8 GPUs of 450 GB/s, 1 GiB: S all-reduced by NVLS goes
 * once up from every rank and once more from the head, an eighth each: the sum
 * down to the head and the result down to all are S (1 + 1/8); pieces overlap.
 * Latency: to the switch, to the head, to the switch, to all: 4 halves.
 * All-gather: S/8 up and S down. Over two nodes with a NIC of 50 GB/s per GPU
 * SHARP carries S/8 out of and into every NIC, and so do two trees over two
 * nodes; the one ring of a program has 2 * 15/16 of S in one NIC.
 */
static void switches_add_up(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_hwdb *db = NULL;
    struct mw_topology *one = NULL, *two = NULL;
    struct mw_topology_spec spec;
    enum mw_prog_op ar = MW_PROG_ALL_REDUCE;
    double bytes = 1073741824, bw = 450e9, nic = 50e9;

    assert_int_equal(mw_hwdb_load(NULL, &db, &err), MW_OK);
    assert_int_equal(mw_topology_parse(db, "dgx-h100 x 1", &spec, &err), MW_OK);
    assert_int_equal(mw_topology_new(&spec, &one, &err), MW_OK);
    assert_int_equal(mw_topology_parse(db, "dgx-h100 x 2", &spec, &err), MW_OK);
    assert_int_equal(mw_topology_new(&spec, &two, &err), MW_OK);
    mw_assert_near(time_of(ar, MW_ALGO_NVLS, 8, 1, one, 8), 2e-6, 1e-3, 0);
    double nvls = time_of(ar, MW_ALGO_NVLS, 8, 32, one, bytes);
    assert_true(nvls >= 9.0 / 8 * bytes / bw && nvls < 1.25 * bytes / bw);
    double ag = time_of(MW_PROG_ALL_GATHER, MW_ALGO_NVLS, 8, 32, one, bytes);
    assert_true(ag >= bytes / bw && ag < 1.1 * bytes / bw);
    double ring = time_of(ar, MW_ALGO_RING, 16, 0, two, bytes);
    double sharp[] = {time_of(ar, MW_ALGO_NVLS_TREE, 16, 32, two, bytes),
                      time_of(ar, MW_ALGO_NVLS, 16, 32, two, bytes),
                      time_of(ar, MW_ALGO_COLLNET_DIRECT, 16, 32, two, bytes),
                      time_of(ar, MW_ALGO_COLLNET_CHAIN, 16, 32, two, bytes)};
    for (int i = 0; i < 4; i++) {
        assert_true(sharp[i] >= bytes / 8 / nic);
        assert_true(sharp[i] < 2 * bytes / 8 / nic);
    }
    assert_true(ring > 1.8 * bytes / nic * 15 / 16);
    /* PAT: log2 16 rounds; far messages first and small. */
    double pat = time_of(MW_PROG_ALL_GATHER, MW_ALGO_PAT, 16, 0, two, 16);
    mw_assert_near(pat, 4e-6, 1e-2, 0);
    mw_topology_free(one);
    mw_topology_free(two);
    mw_hwdb_free(db);
}

/* A switch that leaves one rank out is found. */
static void a_switch_that_forgets_is_found(void **state)
{
    (void)state;
    struct mw_prog_spec s = {.op = MW_PROG_ALL_REDUCE,
                             .algo = MW_ALGO_NVLS,
                             .n_ranks = 4,
                             .local = 4,
                             .pieces = 2};
    struct mw_err err = {.status = MW_OK};
    struct mw_prog *p = NULL;

    assert_int_equal(mw_prog_build(&s, &p, &err), MW_OK);
    assert_int_equal(p->n_switches, 2);
    struct mw_prog_lane *port = &p->rank[4].lane[1]; /* of rank 1, shard 0 */
    assert_int_equal(port->recv, 1);
    assert_int_equal(port->step[0].kind, MW_STEP_RECV_REDUCE);
    port->step[0].kind = MW_STEP_RECV; /* overwrites rank 0's part */
    assert_int_equal(mw_prog_check(p, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "lacks the part of rank 0"));
    mw_prog_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_built_ins_are_correct),
        cmocka_unit_test(xml_and_back),
        cmocka_unit_test(broken_programs_are_named),
        cmocka_unit_test(times_by_hand),
        cmocka_unit_test(switches_add_up),
        cmocka_unit_test(a_switch_that_forgets_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
