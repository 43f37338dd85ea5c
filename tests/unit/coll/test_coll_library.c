/*
 * One answer for one collective: what sim/cost says of a group is what
 * sim/coll says of it, whatever the shape; and what the shapes are.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/cost/cost.h"
#include "unit/hwdb/hwdb_lent.h"
#include "unit/hwdb/hwdb_overlay.h"

#include <math.h>
#include <string.h>

static struct mw_cost_ctx ctx_of(const struct mw_hwdb *db, const char *system)
{
    struct mw_cost_ctx ctx;
    struct mw_err err = {0};

    if (mw_cost_ctx_init(&ctx, db, system, 4, 0, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return ctx;
}

/* What the verb `coll` prints for the group. */
static double coll_s(const struct mw_hwdb *db, const struct mw_system *system,
                     enum mw_coll_op op, double bytes, const struct mw_group *g)
{
    struct mw_coll_world *w = NULL;
    struct mw_coll_query q = mw_coll_query_of(system, op, bytes, g);
    struct mw_coll_answer a;
    struct mw_err err = {0};

    if (mw_coll_world_of(db, system, NULL, &w, &err) != MW_OK ||
        mw_coll_predict(w, MW_COLL_FIT, &q, &a, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_coll_world_free(w);
    return a.time_s;
}

static void test_one_answer(void **state)
{
    static const char *const systems[] = {"dgx-a100",    "dgx-h100",
                                          "dgx-1v",      "gb200-nvl72",
                                          "mi355x-node", "tpu-v5p-pod"};
    static const struct mw_group groups[] = {
        {8, 1, 8, 1}, {2, 1, 2, 1}, {4, 4, 1, 8}, {16, 4, 4, 2}, {32, 4, 8, 1}};

    for (size_t s = 0; s < sizeof systems / sizeof systems[0]; s++) {
        struct mw_cost_ctx ctx = ctx_of(*state, systems[s]);

        for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
            for (int op = 0; op < MW_COLL_OP_COUNT; op++) {
                double bytes = exp2(10 + 4 * op);
                struct mw_cost c = mw_cost_coll(&ctx, (enum mw_coll_op)op,
                                                bytes, &groups[i], NULL);

                assert_int_equal(c.rung, MW_RUNG_COLL_MODEL);
                mw_assert_near(c.time_s,
                               coll_s(*state, ctx.system, (enum mw_coll_op)op,
                                      bytes, &groups[i]),
                               1e-9, 0);
            }
        }
    }
}

/* Between two points of the curve: the same within 2 % where one algorithm
 * answers at both. */
static void test_between_the_points(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(*state, "dgx-h100");
    struct mw_group g = {32, 4, 8, 1};

    for (int k = 26; k < 34; k++) {
        double bytes = exp2(k + .27);

        mw_assert_near(
            mw_cost_coll(&ctx, MW_ALL_GATHER, bytes, &g, NULL).time_s,
            coll_s(*state, ctx.system, MW_ALL_GATHER, bytes, &g), 0.02, 0);
    }
}

static void test_who_answers(void **state)
{
    struct mw_group g = {4, 1, 4, 1};
    struct mw_cost_ctx cpu = ctx_of(*state, "this-machine");
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;

    assert_null(cpu.curves);
    assert_int_equal(mw_cost_coll(&cpu, MW_ALL_REDUCE, 1e6, &g, NULL).rung,
                     MW_RUNG_ALPHA_BETA);
    /* a machine's own measurements go before the model */
    assert_int_equal(overlay_load("curves.csv",
                                  "system,op,ranks,bytes,time_s,source\n"
                                  "dgx-a100,all_reduce,4,1000,1e-5,bench\n"
                                  "dgx-a100,all_reduce,4,100000,4e-5,bench\n",
                                  &db, &err),
                     MW_OK);
    mw_coll_library_lend(db);
    struct mw_cost_ctx own = ctx_of(db, "dgx-a100");
    struct mw_cost c = mw_cost_coll(&own, MW_ALL_REDUCE, 1e4, &g, NULL);

    assert_int_equal(c.rung, MW_RUNG_CURVE);
    mw_assert_near(c.time_s, 2e-5, 1e-9, 0);
    assert_int_equal(mw_cost_coll(&own, MW_ALL_GATHER, 1e4, &g, NULL).rung,
                     MW_RUNG_COLL_MODEL);
    mw_hwdb_free(db);
}

/* Eight groups of one GPU a node over four NICs get half of what they get over
 * eight, and as much as one group gets that has a NIC to itself. */
static void test_shared_nics(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(*state, "dgx-a100");
    struct mw_group alone = {4, 4, 1, 1}, all = {4, 4, 1, 8};
    struct mw_system few = *ctx.system;
    double bytes = exp2(32);

    few.n_nics = 4;
    few.node_net_bw_Bps = 4 * few.nic_bw_Bps;
    double eight_s = coll_s(*state, ctx.system, MW_ALL_REDUCE, bytes, &all);

    mw_assert_near(coll_s(*state, ctx.system, MW_ALL_REDUCE, bytes, &alone),
                   eight_s, 1e-9, 0);
    mw_assert_near(coll_s(*state, &few, MW_ALL_REDUCE, bytes, &all),
                   2 * eight_s, 0.02, 0);
    mw_assert_near(coll_s(*state, &few, MW_SEND_RECV, bytes, &all),
                   2 * coll_s(*state, ctx.system, MW_SEND_RECV, bytes, &all),
                   0.02, 0);
}

/* A changed copy of a system has curves of its own. */
static void test_changed_nics(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(*state, "dgx-h100"), slow = ctx;
    struct mw_system half = *ctx.system;
    struct mw_group g = {32, 4, 8, 1};

    half.nic_bw_Bps /= 2;
    half.node_net_bw_Bps /= 2;
    slow.system = &half;
    mw_cost_ctx_take_curves(&slow);
    assert_non_null(slow.curves);
    assert_true(slow.curves != ctx.curves);
    mw_assert_near(mw_cost_coll(&slow, MW_ALL_GATHER, 8e9, &g, NULL).time_s,
                   2 * mw_cost_coll(&ctx, MW_ALL_GATHER, 8e9, &g, NULL).time_s,
                   0.05, 0);
}

static void assert_place(const struct mw_hwdb *db, const char *system,
                         struct mw_group g, int nodes, int per_node, int trays)
{
    const struct mw_system *sys = NULL;

    assert_int_equal(mw_hwdb_system(db, system, &sys, NULL), MW_OK);
    struct mw_coll_query q = mw_coll_query_of(sys, MW_ALL_REDUCE, 1, &g);

    assert_int_equal(q.n_nodes, nodes);
    assert_int_equal(q.ranks_per_node, per_node);
    assert_int_equal(q.domain_trays, trays);
    assert_int_equal(q.nic_sharers, g.nic_sharers);
}

static void test_places(void **state)
{
    const struct mw_hwdb *db = *state;

    assert_place(db, "dgx-h100", (struct mw_group){8, 1, 8, 1}, 1, 8, 1);
    assert_place(db, "dgx-h100", (struct mw_group){16, 4, 4, 2}, 4, 4, 1);
    /* 64 of the 72 GPUs of a rack: 16 trays of 4 */
    assert_place(db, "gb200-nvl72", (struct mw_group){64, 1, 64, 1}, 16, 4, 16);
    /* 6 is not a multiple of 4: three on two trays */
    assert_place(db, "gb200-nvl72", (struct mw_group){6, 1, 6, 1}, 2, 3, 2);
    assert_place(db, "gb200-nvl72", (struct mw_group){7, 1, 7, 1}, 7, 1, 7);
    /* two racks of 9 and 7 ranks count as 8 and 8 */
    assert_place(db, "gb200-nvl72", (struct mw_group){16, 2, 9, 8}, 4, 4, 2);
}

/* Groups of a rack share all its NICs: 72 groups of one GPU have one each, and
 * an all-gather over 4 racks brings 3/4 of its bytes through it. */
static void test_rack_nics(void **state)
{
    struct mw_cost_ctx ctx = ctx_of(*state, "gb200-nvl72");
    struct mw_group all = {4, 4, 1, 72};
    double wire_s = 3e9 / ctx.system->nic_bw_Bps;
    double fit_s = coll_s(*state, ctx.system, MW_ALL_GATHER, 4e9, &all);

    /* rings over networks were measured 5 to 16 % above their wire */
    assert_true(fit_s > wire_s && fit_s < 1.16 * wire_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_between_the_points),
        cmocka_unit_test(test_who_answers),
        cmocka_unit_test(test_shared_nics),
        cmocka_unit_test(test_changed_nics),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_rack_nics)};

    return cmocka_run_group_tests(tests, hwdb_lent_setup, hwdb_lent_teardown);
}
