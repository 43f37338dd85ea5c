/*
 * What the fit adds to NCCL's formula before any measurement: filling a tree,
 * hiding latencies in a long ring, copies of a plugin. Figures worked by hand
 * from the constants named beside them; corrections are switched off.
 */
#include "mw_test.h"

#include "sim/coll/coll_fit.h"
#include "sim/coll/coll_int.h"

#include <math.h>

static struct mw_hwdb *db;

/* A world without corrections under a setting ("": none). */
static struct mw_coll_world *world_of(const char *system, const char *env,
                                      enum mw_nccl_version version)
{
    struct mw_coll_fit none = {.knot = {NULL, 0, 0}};
    struct mw_coll_world *w = NULL;
    struct mw_err err = {.status = MW_OK};
    struct mw_nccl_opts o;
    mw_nccl_opts_default(&o);
    o.version = version;
    if ((*env && mw_nccl_opts_env(&o, env, &err) != MW_OK) ||
        mw_coll_world_new(db, system, &o, &w, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_coll_world_set_fit(w, &none);
    return w;
}

static struct mw_coll_answer ask(struct mw_coll_world *w,
                                 enum mw_coll_model model, double bytes,
                                 int nodes, int ranks)
{
    struct mw_coll_query q = {.op = MW_ALL_REDUCE,
                              .bytes = bytes,
                              .type = MW_NCCL_FLOAT32,
                              .n_nodes = nodes,
                              .ranks_per_node = ranks};
    struct mw_coll_answer a;
    struct mw_err err = {.status = MW_OK};
    if (mw_coll_predict(w, model, &q, &a, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return a;
}

/* Latency and bandwidth term of NCCL, without its tree corrections. */
static double plain_s(struct mw_coll_world *w, const struct mw_coll_answer *a,
                      double bytes, int nodes, int ranks, double *out_latency_s)
{
    struct mw_coll_query q = {
        .op = MW_ALL_REDUCE, .n_nodes = nodes, .ranks_per_node = ranks};
    const struct mw_nccl_comm *c = NULL;
    assert_int_equal(mw_coll_comm(w, &q, &c, NULL, NULL), MW_OK);
    *out_latency_s = 1e-6 * mw_nccl_latency_us(c, MW_NCCL_ALL_REDUCE, a->algo,
                                               a->proto, (uint64_t)bytes);
    return bytes /
           (1e9 * (double)c->bw_GBps[MW_NCCL_ALL_REDUCE][a->algo][a->proto]);
}

/* Two DGX H100, tree, Simple, 1 GiB: 16 channels of 64 MiB, chunks of 512 KiB;
 * 14 hops inside at 38.7 GB/s a channel; the two over NICs (24 GB/s) are those
 * that the bandwidth term has. */
static void a_tree_is_filled(void **state)
{
    (void)state;
    struct mw_coll_world *w =
        world_of("dgx-h100", "NCCL_ALGO=tree", MW_NCCL_2_28);
    double bytes = 1 << 30, latency_s;
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, bytes, 2, 8);
    assert_int_equal(a.proto, MW_NCCL_SIMPLE);
    double wire_s = plain_s(w, &a, bytes, 2, 8, &latency_s);
    mw_assert_near(a.time_s - latency_s - wire_s, 14 * 524288 / 38.7e9, 1e-6,
                   0);
    /* A message of one chunk is that much shorter. */
    bytes = 16 * 1024;
    a = ask(w, MW_COLL_FIT, bytes, 2, 8);
    assert_true(a.time_s < latency_s + 5e-6);
    mw_coll_world_free(w);
}

/* Rings and NVLS inside a node keep NCCL's own time (single precision). */
static void inside_a_node_nothing_changes(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("dgx-h100", "", MW_NCCL_2_28);
    for (double bytes = 8; bytes < 1e10; bytes *= 3) {
        mw_assert_near(ask(w, MW_COLL_FIT, floor(bytes), 1, 8).time_s,
                       ask(w, MW_COLL_NCCL, floor(bytes), 1, 8).time_s, 1e-6,
                       0);
    }
    mw_coll_world_free(w);
}

/*
 * Two DGX H100, NVLSTree, 1 GiB: 16 channels, 8 heads, chunks of 128 KiB. Over
 * NVLink 8 heads x 40 GB/s (search), a channel's sixteenth: 1 MiB takes 52.4
 * us, twice; over a NIC 48 GB/s / 16: 43.7 us. Without the cap of 57.7 GB/s a
 * channel moves 40 x .85 x 7/8 x 2 = 59.5.
 */
static void an_nvls_tree_is_filled(void **state)
{
    (void)state;
    struct mw_coll_world *w =
        world_of("dgx-h100", "NCCL_ALGO=nvlstree", MW_NCCL_2_28);
    double bytes = 1 << 30, latency_s;
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, bytes, 2, 8);
    assert_int_equal(a.n_channels, 16);
    double wire_s = plain_s(w, &a, bytes, 2, 8, &latency_s) * 57.7 / 59.5;
    mw_assert_near(a.time_s - latency_s - wire_s,
                   2 * 1048576 / 20e9 + 131072 / 3e9, 1e-4, 0);
    mw_coll_world_free(w);
}

/*
 * 8 GiB on 96 GPUs and 16 channels: whole chunks of 2 MiB, a slice of which is
 * longer on the wire (1 MiB at 24 GB/s: 43.7 us) than a hop (14): two hops
 * remain and exp(-43.7 / 14) of 190. Short messages keep NCCL's latency.
 */
static void a_long_ring_hides_latencies(void **state)
{
    (void)state;
    struct mw_coll_world *w =
        world_of("dgx-h100", "NCCL_ALGO=ring", MW_NCCL_2_28);
    double bytes = 8589934592.0, latency_s;
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, bytes, 12, 8);
    assert_int_equal(a.proto, MW_NCCL_SIMPLE);
    double wire_s = plain_s(w, &a, bytes, 12, 8, &latency_s);
    assert_true(latency_s > 1e-3);
    mw_assert_near(a.time_s - wire_s,
                   14e-6 * (2 + 190 * exp(-1048576 / 24e3 / 14)), 1e-3, 0);
    mw_coll_world_free(w);
    w = world_of("dgx-h100", "NCCL_PROTO=simple", MW_NCCL_2_28);
    bytes = 1 << 22;
    struct mw_coll_query q = {
        .op = MW_ALL_GATHER, .bytes = bytes, .n_nodes = 2, .ranks_per_node = 8};
    struct mw_coll_answer b;
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &a, NULL), MW_OK);
    assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &b, NULL), MW_OK);
    mw_assert_near(a.time_s, b.time_s, 1e-6, 0);
    mw_coll_world_free(w);
}

/*
 * Slingshot's provider: a message above 4,096 bytes costs a call of 7 us, all
 * cross the CPU at 9.5 GB/s. 64 KiB on two nodes of four: ring, LL, 2 channels,
 * 4 KiB of data in 8 KiB of lines, 2 (8 - 1) messages one after another. 2 KiB:
 * tree, up and down once, 4 KiB of lines by loads and stores.
 */
static void a_plugin_copies(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("alps-gh200", "", MW_NCCL_2_26);
    struct mw_coll_world *none = world_of("alps-gh200", "", MW_NCCL_2_26);
    none->plugin.copy_Bps = 0;
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, 65536, 2, 4);
    struct mw_coll_answer b = ask(none, MW_COLL_FIT, 65536, 2, 4);
    assert_int_equal(a.algo, MW_NCCL_RING);
    assert_int_equal(a.n_channels, 2);
    mw_assert_near(a.time_s - b.time_s, 14 * (7e-6 + 8192 / 9.5e9), 1e-9, 0);
    a = ask(w, MW_COLL_FIT, 2048, 2, 4);
    b = ask(none, MW_COLL_FIT, 2048, 2, 4);
    assert_int_equal(a.algo, MW_NCCL_TREE);
    mw_assert_near(a.time_s - b.time_s, 2 * 4096 / 9.5e9, 1e-9, 0);
    mw_coll_world_free(w);
    mw_coll_world_free(none);
    /* The provider's own settings move the threshold. */
    w = world_of("alps-gh200", "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=16777216",
                 MW_NCCL_2_26);
    none = world_of("alps-gh200", "FI_HMEM_CUDA_USE_GDRCOPY=0", MW_NCCL_2_26);
    mw_assert_near(ask(none, MW_COLL_FIT, 2048, 2, 4).time_s -
                       ask(w, MW_COLL_FIT, 2048, 2, 4).time_s,
                   2 * 7e-6, 1e-9, 0);
    mw_coll_world_free(w);
    mw_coll_world_free(none);
}

/* Before 2.27 a NIC behind Grace is too far for LL128 (PHB); since then it is
 * of class P2C. A DGX has the same tables in both. */
static void old_versions_have_no_ll128_over_c2c(void **state)
{
    (void)state;
    struct mw_coll_world *now = world_of("alps-gh200", "", MW_NCCL_2_28);
    struct mw_coll_world *then = world_of("alps-gh200", "", MW_NCCL_2_26);
    double bytes = 1 << 22;
    assert_int_equal(ask(now, MW_COLL_NCCL, bytes, 8, 4).proto, MW_NCCL_LL128);
    assert_int_equal(ask(then, MW_COLL_NCCL, bytes, 8, 4).proto,
                     MW_NCCL_SIMPLE);
    mw_coll_world_free(now);
    mw_coll_world_free(then);
    now = world_of("dgx-h100", "", MW_NCCL_2_28);
    then = world_of("dgx-h100", "", MW_NCCL_2_26);
    for (bytes = 1024; bytes < 1e9; bytes *= 8) {
        assert_true(ask(now, MW_COLL_NCCL, bytes, 4, 8).time_s ==
                    ask(then, MW_COLL_NCCL, bytes, 4, 8).time_s);
    }
    mw_coll_world_free(now);
    mw_coll_world_free(then);
}

/* Where the time goes: nothing over the network inside a node, nearly all of
 * a large message between nodes; the latency's part by hops. */
static void the_network_has_its_part(void **state)
{
    (void)state;
    struct mw_coll_world *w =
        world_of("dgx-h100", "NCCL_ALGO=tree", MW_NCCL_2_28);
    struct mw_coll_query q = {
        .op = MW_ALL_REDUCE, .bytes = 8, .n_nodes = 1, .ranks_per_node = 8};
    struct mw_coll_answer a = ask(w, MW_COLL_FIT, 8, 1, 8);
    assert_true(mw_coll_base(w, &q, &a, 8).net_s == 0);
    q.n_nodes = 2;
    a = ask(w, MW_COLL_FIT, 8, 2, 8); /* LL: 6.8 + 2 (7 x .6 + 5) us */
    struct mw_coll_time t = mw_coll_base(w, &q, &a, 8);
    mw_assert_near(t.latency_s, 25.2e-6, 1e-6, 0);
    mw_assert_near(t.net_s, 10e-6, 1e-3, 0);
    q.bytes = 1e10;
    a = ask(w, MW_COLL_FIT, q.bytes, 2, 8);
    t = mw_coll_base(w, &q, &a, q.bytes);
    assert_true(t.net_s > .99 * t.time_s);
    mw_coll_world_free(w);
}

int main(void)
{
    struct mw_err err = {.status = MW_OK};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_is_filled),
        cmocka_unit_test(an_nvls_tree_is_filled),
        cmocka_unit_test(inside_a_node_nothing_changes),
        cmocka_unit_test(a_long_ring_hides_latencies),
        cmocka_unit_test(a_plugin_copies),
        cmocka_unit_test(old_versions_have_no_ll128_over_c2c),
        cmocka_unit_test(the_network_has_its_part)};
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    mw_hwdb_free(db);
    return rc;
}
