/*
 * Collectives: wire bytes and hops by hand, groups that span nodes, measured
 * curves, and how a context is made from the database.
 */
#include "mw_test.h"

#include "sim/cost/cost.h"
#include "unit/hwdb/hwdb_overlay.h"

#include <math.h>
#include <string.h>

/* 100 GB/s links, 80 GB/s of NICs a node, hops of 1 and 10 us. */
static const struct mw_system box = {.slug = "no-such-system",
                                     .gpus_per_node = 8,
                                     .intra_bw_Bps = 100e9,
                                     .node_net_bw_Bps = 80e9,
                                     .intra_alpha_s = 1e-6,
                                     .inter_alpha_s = 10e-6,
                                     .intra_efficiency = 1,
                                     .inter_efficiency = 1};

static struct mw_hwdb *load(void)
{
    struct mw_hwdb *db = NULL;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return db;
}

static int setup(void **state)
{
    *state = load();
    return 0;
}

static int teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

static struct mw_cost_ctx ctx_of(void **state)
{
    return (struct mw_cost_ctx){.db = *state,
                                .system = &box,
                                .n_nodes = 4,
                                .gpus_per_node = 8,
                                .domain_gpus = 8,
                                .domain_net_Bps = 80e9,
                                .insitu_factor = 1};
}

static double cost(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                   double bytes, struct mw_group g)
{
    return mw_cost_coll(ctx, op, bytes, &g, NULL).time_s;
}

static void test_inside_a_node(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(state);
    struct mw_group g = {8, 1, 8, 1};

    /* all-reduce: 2 x 7/8 x 800 MB at 100 GB/s = 14 ms, 14 hops of 1 us */
    mw_assert_near(cost(&ctx, MW_ALL_REDUCE, 800e6, g), 14e-3 + 14e-6, 1e-12,
                   0);
    mw_assert_near(cost(&ctx, MW_ALL_GATHER, 800e6, g), 7e-3 + 7e-6, 1e-12, 0);
    mw_assert_near(cost(&ctx, MW_REDUCE_SCATTER, 800e6, g), 7e-3 + 7e-6, 1e-12,
                   0);
    mw_assert_near(cost(&ctx, MW_ALL_TO_ALL, 800e6, g), 7e-3 + 7e-6, 1e-12, 0);
    /* broadcast: tree of depth 3 */
    mw_assert_near(cost(&ctx, MW_BROADCAST, 800e6, g), 7e-3 + 3e-6, 1e-12, 0);
    assert_true(cost(&ctx, MW_ALL_REDUCE, 800e6,
                     (struct mw_group){1, 1, 1, 1}) < 1e-300);
}

static void test_over_nodes(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(state);

    /* whole nodes: the ring of a node leaves it over all NICs, 80 GB/s;
     * 2 x 31/32 x 32 GB / 80 GB/s; tree of 2 x (7 inside + 2 between) is
     * shorter than the ring's 2 x (28 + 3) */
    mw_assert_near(
        cost(&ctx, MW_ALL_REDUCE, 32e9, (struct mw_group){32, 4, 8, 1}),
        62e9 / 80e9 + 14e-6 + 40e-6, 1e-12, 0);
    /* one rank a node, eight such groups: a NIC each, 10 GB/s; all-gather is a
     * ring of three hops between nodes */
    mw_assert_near(
        cost(&ctx, MW_ALL_GATHER, 4e9, (struct mw_group){4, 4, 1, 8}),
        3e9 / 10e9 + 30e-6, 1e-12, 0);
    /* all-to-all of two nodes of 8: half of the buffer leaves the node, and
     * eight ranks share 80 GB/s */
    mw_assert_near(
        cost(&ctx, MW_ALL_TO_ALL, 16e9, (struct mw_group){16, 2, 8, 1}),
        8e9 / 10e9 + 7e-6 + 10e-6, 1e-12, 0);
}

static void test_point_to_point(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(state);

    mw_assert_near(mw_cost_p2p(&ctx, 1e6, false, 8, NULL).time_s, 1e-5 + 1e-6,
                   1e-12, 0);
    /* between nodes eight senders share the NICs: 10 GB/s each */
    mw_assert_near(mw_cost_p2p(&ctx, 1e6, true, 8, NULL).time_s, 1e-4 + 1e-5,
                   1e-12, 0);
    mw_assert_near(mw_cost_p2p(&ctx, 1e6, true, 1, NULL).time_s,
                   1e6 / 80e9 + 1e-5, 1e-12, 0);
}

static void test_monotone(void **state)
{
    struct mw_cost_ctx slow = ctx_of(state), fast = slow;
    struct mw_system faster = box;

    faster.intra_bw_Bps *= 2;
    fast.system = &faster;
    fast.domain_net_Bps *= 2;
    for (int op = 0; op < MW_COLL_OP_COUNT; op++) {
        for (int nodes = 1; nodes <= 4; nodes++) {
            struct mw_group g = {8 * nodes, nodes, 8, 1};
            double before_s = 0;

            for (double bytes = 8; bytes < 1e10; bytes *= 10) {
                double s = cost(&slow, (enum mw_coll_op)op, bytes, g);

                assert_true(s > before_s);
                assert_true(cost(&fast, (enum mw_coll_op)op, bytes, g) <= s);
                before_s = s;
            }
        }
    }
}

static void test_measured_curve_goes_first(void **state)
{
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct mw_cost_ctx ctx;

    (void)state;
    if (overlay_load("curves.csv",
                     "system,op,ranks,bytes,time_s,source\n"
                     "dgx-a100,all_reduce,8,1000,1e-5,bench\n"
                     "dgx-a100,all_reduce,8,100000,4e-5,bench\n"
                     "dgx-a100,all_reduce,8,10000000,1e-3,bench\n",
                     &db, &err) != MW_OK ||
        mw_cost_ctx_init(&ctx, db, "dgx-a100", 2, 0, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    struct mw_group node = {8, 1, 8, 1}, spread = {8, 2, 4, 2};
    struct mw_cost c = mw_cost_coll(&ctx, MW_ALL_REDUCE, 1e4, &node, NULL);

    /* log-halfway between 10 and 40 us */
    mw_assert_near(c.time_s, 2e-5, 1e-9, 0);
    assert_int_equal(c.rung, MW_RUNG_CURVE);
    mw_assert_near(mw_cost_coll(&ctx, MW_ALL_REDUCE, 1e7, &node, NULL).time_s,
                   1e-3, 1e-9, 0);
    /* past either end its last slope goes on, and that is said */
    c = mw_cost_coll(&ctx, MW_ALL_REDUCE, 1e9, &node, NULL);
    mw_assert_near(c.time_s, 1e-3 * pow(25, 1), 1e-9, 0);
    assert_int_equal(c.rung, MW_RUNG_BEYOND);
    assert_int_equal(mw_cost_coll(&ctx, MW_ALL_REDUCE, 500, &node, NULL).rung,
                     MW_RUNG_BEYOND);
    assert_int_equal(mw_cost_coll(&ctx, MW_ALL_REDUCE, 1e3, &node, NULL).rung,
                     MW_RUNG_CURVE);
    /* measured on one node: says nothing about a group over two */
    assert_int_equal(mw_cost_coll(&ctx, MW_ALL_REDUCE, 1e4, &spread, NULL).rung,
                     MW_RUNG_ALPHA_BETA);
    mw_hwdb_free(db);
}

static void test_context_from_the_database(void **state)
{
    struct mw_cost_ctx ctx;
    struct mw_err err = {0};

    assert_int_equal(mw_cost_ctx_init(&ctx, *state, "dgx-a100", 8, 0, &err),
                     MW_OK);
    assert_int_equal(ctx.gpus_per_node, 8);
    assert_int_equal(ctx.domain_gpus, 8);
    assert_true(ctx.kernel_launch_s > 0 && ctx.gemm_tile_m > 0);
    mw_assert_near(ctx.insitu_factor, 1, 0, 0);
    /* the racks' 72 GPUs are one domain of 18 trays with all their NICs */
    assert_int_equal(mw_cost_ctx_init(&ctx, *state, "gb200-nvl72", 18, 0, &err),
                     MW_OK);
    assert_int_equal(ctx.domain_gpus, 72);
    mw_assert_near(ctx.domain_net_Bps, 18 * ctx.system->node_net_bw_Bps, 1e-12,
                   0);
    assert_int_equal(mw_cost_ctx_init(&ctx, *state, "dgx-b100", 8, 0, &err),
                     MW_EINPUT);
    mw_err_clear(&err);
    assert_int_equal(mw_cost_ctx_init(&ctx, *state, "dgx-a100", 8, 9, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "8 GPUs"));
}

static void test_insitu_factor_of_the_overlay(void **state)
{
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    struct mw_cost_ctx ctx;

    (void)state;
    assert_int_equal(overlay_load("machine.csv",
                                  "key,value\ninsitu_factor,1.3\n", &db, &err),
                     MW_OK);
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "this-machine", 1, 8, &err),
                     MW_OK);
    mw_assert_near(ctx.insitu_factor, 1.3, 0, 0);
    /* a factor of this machine says nothing about a GPU */
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "dgx-a100", 1, 8, &err), MW_OK);
    mw_assert_near(ctx.insitu_factor, 1, 0, 0);
    mw_hwdb_free(db);
    assert_int_equal(overlay_load("machine.csv",
                                  "key,value\ninsitu_factor,fast\n", &db, &err),
                     MW_OK);
    assert_int_equal(mw_cost_ctx_init(&ctx, db, "this-machine", 1, 8, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "insitu_factor is 'fast'"));
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inside_a_node),
        cmocka_unit_test(test_over_nodes),
        cmocka_unit_test(test_point_to_point),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_measured_curve_goes_first),
        cmocka_unit_test(test_context_from_the_database),
        cmocka_unit_test(test_insitu_factor_of_the_overlay),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
