/*
 * Leaf switches: parts of the NICs' rate against max-min fair flows over a fat
 * tree (rings of all groups at once, all-to-all, a pipeline's boundary); what a
 * step takes with and without.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/cost/leaf.h"
#include "sim/net/flow.h"
#include "sim/net/topology.h"
#include "sim/plan/plan.h"
#include "sim/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 16, LEAF = 4 };

struct net {
    struct mw_topology *topo;
    struct mw_fluid *fluid;
    uint64_t n;
};

static void open_net(struct net *net, const struct mw_hwdb *db, double oversub)
{
    struct mw_topology_spec spec;
    struct mw_err err = {0};
    char text[128];

    snprintf(text, sizeof text, "dgx-h100 x %d, fat-tree, leaf %d, oversub %g",
             NODES, LEAF, oversub);
    if (mw_topology_parse(db, text, &spec, &err) != MW_OK ||
        mw_topology_new(&spec, &net->topo, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    net->fluid = mw_fluid_new(mw_topology_links(net->topo),
                              mw_topology_capacity(net->topo), NULL);
    net->n = 0;
}

/* A flow between the same GPUs of two nodes. */
static void send(struct net *net, int from, int to, int gpu, double bytes)
{
    uint32_t links[MW_ROUTE_HOPS_MAX];
    int n = mw_topology_route(
        net->topo, mw_topology_first_gpu(net->topo, from) + gpu,
        mw_topology_first_gpu(net->topo, to) + gpu, -1, 0, links);

    mw_fluid_send(net->fluid, links, n, bytes, 0, ++net->n);
}

static double finish(struct net *net)
{
    double t = mw_time_to_s(mw_fluid_run(net->fluid));

    mw_fluid_free(net->fluid);
    mw_topology_free(net->topo);
    return t;
}

/* Rings of `members` nodes, `stride` apart, on every GPU of every node. */
static double ring_s(const struct mw_hwdb *db, double oversub, int members,
                     int stride)
{
    struct net net;

    open_net(&net, db, oversub);
    for (int node = 0; node < NODES; node++) {
        int block = node / (members * stride), at = node % (members * stride);
        int next =
            (at + stride) % (members * stride) + block * members * stride;

        for (int gpu = 0; gpu < 8; gpu++) {
            send(&net, node, next, gpu, 1e9);
        }
    }
    return finish(&net);
}

static double all_to_all_s(const struct mw_hwdb *db, double oversub)
{
    struct net net;

    open_net(&net, db, oversub);
    for (int a = 0; a < NODES; a++) {
        for (int b = 0; b < NODES; b++) {
            for (int gpu = 0; a != b && gpu < 8; gpu++) {
                send(&net, a, b, gpu, 1e8);
            }
        }
    }
    return finish(&net);
}

static const struct mw_cluster fat = {.n_nodes = NODES,
                                      .gpus_per_node = 8,
                                      .leaf_nodes = LEAF,
                                      .oversubscription = 2};

/* dp over nodes that lie `stride` apart: the rest is pp, inside or outside. */
static double part_of(const struct mw_cluster *c, int members, int stride)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = 8;
    l.dp = members;
    l.pp = NODES / members;
    l.order = stride > 1 ? "tp-cp-ep-pp-dp" : "tp-cp-ep-dp-pp";
    struct mw_group node = mw_cost_group(&l, MW_DIM_DP, 8);
    struct mw_group leaf = mw_cost_group(&l, MW_DIM_DP, 8 * LEAF);

    return mw_leaf_part(c, &node, &leaf, false);
}

static void test_rings(void **state)
{
    const struct mw_hwdb *db = *state;
    static const int members[] = {2, 4, 8, 16};

    for (double over = 2; over <= 4; over *= 2) {
        struct mw_cluster c = fat;

        c.oversubscription = over;
        for (int i = 0; i < 4; i++) {
            int n = members[i], stride = NODES / n;
            double wide =
                ring_s(db, 1, n, stride) / ring_s(db, over, n, stride);
            double near = ring_s(db, 1, n, 1) / ring_s(db, over, n, 1);

            mw_assert_near(part_of(&c, n, stride), wide, 1e-6, 0);
            mw_assert_near(part_of(&c, n, 1), near, 1e-6, 0);
        }
    }
}

/* One rank a node in the all-to-all, eight such groups at a time. */
static void test_all_to_all(void **state)
{
    const struct mw_hwdb *db = *state;

    for (double over = 2; over <= 4; over *= 2) {
        struct mw_cluster c = fat;
        const struct mw_group node = {NODES, NODES, 1, 8};
        const struct mw_group leaf = {NODES, NODES / LEAF, LEAF, 8};

        c.oversubscription = over;
        mw_assert_near(mw_leaf_part(&c, &node, &leaf, true),
                       all_to_all_s(db, 1) / all_to_all_s(db, over), 1e-6, 0);
    }
}

/* Stages of 2, 4 and 8 nodes send to the next: 2 nodes of a leaf of 4 have
 * enough links up at an oversubscription of 2, 4 have half. */
static void test_stages(void **state)
{
    (void)state;
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = 8;
    for (int nodes = 2; nodes <= 8; nodes *= 2) {
        l.dp = nodes;
        l.pp = NODES / nodes;
        int crossing = nodes >= LEAF ? 0 : LEAF / nodes - 1;

        mw_assert_near(
            mw_leaf_stage_part(&fat, &l, crossing, crossing + 1, 8, 8),
            nodes >= LEAF ? 0.5 : 1, 1e-12, 0);
        if (crossing > 0) {
            mw_assert_near(mw_leaf_stage_part(&fat, &l, 0, 1, 8, 8), 1, 0, 0);
        }
    }
    assert_int_equal(mw_leaf_sharers(8, 0.5), 16);
    assert_int_equal(mw_leaf_sharers(1, 0.4), 3);
    assert_int_equal(mw_leaf_sharers(3, 1), 3);
}

/* ---- leaves of several sizes ------------------------------------------------
 */
static void shuffle(int64_t *nodes, uint64_t seed)
{
    for (int i = 0; i < NODES; i++) {
        nodes[i] = i;
    }
    for (int i = NODES - 1; i > 0; i--) {
        int k = (int)(mw_rand_unit(seed, 1, (uint64_t)i) * (i + 1));
        int64_t held = nodes[i];

        nodes[i] = nodes[k];
        nodes[k] = held;
    }
}

/* Rings of `members` slots `stride` apart, the nodes in another order. */
static double shuffled_ring_s(const struct mw_hwdb *db, double oversub,
                              int members, int stride, const int64_t *nodes)
{
    struct net net;

    open_net(&net, db, oversub);
    for (int slot = 0; slot < NODES; slot++) {
        int block = slot / (members * stride), at = slot % (members * stride);
        int next =
            (at + stride) % (members * stride) + block * members * stride;

        for (int gpu = 0; gpu < 8; gpu++) {
            send(&net, (int)nodes[slot], (int)nodes[next], gpu, 1e9);
        }
    }
    return finish(&net);
}

static const int64_t four_leaves[] = {LEAF, LEAF, LEAF, LEAF};

static double least_uneven(const struct mw_cluster *c,
                           const struct mw_layout *l, enum mw_leaf_kind kind,
                           const struct mw_group *g, bool is_all_to_all)
{
    const struct mw_leaf_view v = {c, l, 8, 8};
    double part[NODES], least = 1;

    mw_leaf_uneven_parts(&v, kind, g, is_all_to_all, part);
    for (int k = 0; k < l->pp; k++) {
        least = fmin(least, part[k]);
    }
    return least;
}

/* Max-min fair flows over the fat tree, nodes in any order. */
static void test_shuffled_rings(void **state)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct mw_cluster c = fat;
        int64_t nodes[NODES];
        struct mw_layout l;
        int members = 2 << seed % 4; /* 2, 4, 8, 16 */
        bool is_outer = seed / 4 % 2 == 1;

        c.leaf_nodes = 0;
        c.leaves = (struct mw_int_list){four_leaves, 4};
        c.oversubscription = 2 + (double)(seed % 3);
        shuffle(nodes, seed);
        mw_layout_default(&l);
        l.tp = 8;
        l.dp = members;
        l.pp = NODES / members;
        l.order = is_outer ? "tp-cp-ep-pp-dp" : "tp-cp-ep-dp-pp";
        l.nodes = (struct mw_int_list){nodes, NODES};
        struct mw_group g = mw_cost_group(&l, MW_DIM_DP, 8);
        double plain = shuffled_ring_s(*state, 1, members,
                                       is_outer ? NODES / members : 1, nodes);
        double fair = shuffled_ring_s(*state, c.oversubscription, members,
                                      is_outer ? NODES / members : 1, nodes);

        mw_assert_near(least_uneven(&c, &l, MW_LEAF_DP, &g, false),
                       plain / fair, 1e-9, 0);
    }
}

/* As many nodes under each leaf, in their order: the closed forms. */
static void test_even_leaves_listed(void **state)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp",
                                         "tp-dp-cp-pp"};
    int n_checked = 0;

    (void)state;
    for (int i = 0; i < 3 * 4 * 3; i++) {
        struct mw_cluster even = fat, listed = fat;
        struct mw_layout l;

        even.oversubscription = listed.oversubscription = 2 + i % 3;
        listed.leaf_nodes = 0;
        listed.leaves = (struct mw_int_list){four_leaves, 4};
        mw_layout_default(&l);
        l.tp = 4;
        l.dp = 2 << i / 3 % 4;
        l.pp = 32 / l.dp;
        l.ep = l.dp;
        l.order = orders[i / 12];
        struct mw_group dp = mw_cost_group(&l, MW_DIM_DP, 8);
        struct mw_group dp_leaf = mw_cost_group(&l, MW_DIM_DP, 8 * LEAF);
        struct mw_group ep = mw_cost_group(&l, MW_DIM_EP, 8);
        struct mw_group ep_leaf = mw_cost_group(&l, MW_DIM_EP, 8 * LEAF);

        mw_assert_near(least_uneven(&listed, &l, MW_LEAF_DP, &dp, false),
                       mw_leaf_part(&even, &dp, &dp_leaf, false), 1e-12, 0);
        mw_assert_near(least_uneven(&listed, &l, MW_LEAF_EP, &ep, true),
                       mw_leaf_part(&even, &ep, &ep_leaf, true), 1e-12, 0);
        n_checked += dp_leaf.n_nodes > 1 && dp.n_nodes > 1;
    }
    assert_true(n_checked > 5);
}

/* By hand: leaves of 3 and 1 nodes at twice the NICs, rings over two nodes.
 * Nodes 0, 1 meet under leaf 0, nodes 2, 3 over both: leaf 0 has 3 / 2 NICs of
 * links up for one that leaves, leaf 1 has 1 / 2. */
static void test_uneven_by_hand(void **state)
{
    static const int64_t sizes[] = {3, 1};
    const struct mw_cluster c = {.n_nodes = 4,
                                 .gpus_per_node = 8,
                                 .oversubscription = 2,
                                 .leaves = {sizes, 2}};
    struct mw_layout l;
    double part[2];

    (void)state;
    mw_layout_default(&l);
    l.tp = 8;
    l.dp = 2;
    l.pp = 2;
    struct mw_group g = mw_cost_group(&l, MW_DIM_DP, 8);
    const struct mw_leaf_view v = {&c, &l, 8, 8};

    assert_true(mw_leaf_is_uneven(&c, &l));
    mw_leaf_uneven_parts(&v, MW_LEAF_DP, &g, false, part);
    mw_assert_near(part[0], 1, 0, 0);
    mw_assert_near(part[1], 0.5, 1e-12, 0);
    /* Stage 0 on nodes 0, 1 sends to stage 1 on 2, 3: one over leaf 1's. */
    mw_assert_near(mw_leaf_uneven_stage_part(&v, 0, 1), 0.5, 1e-12, 0);
}

static double step_s(const struct mw_hwdb *db, const char *order,
                     const char *leafs)
{
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result r;
    struct mw_err err = {0};
    char text[640];
    int n = snprintf(text, sizeof text,
                     "format: 1\nmodel: llama3-8b\n"
                     "cluster: {system: dgx-h100, nodes: 16%s}\n"
                     "workload: {seq: 8192, global_batch: 128}\n"
                     "layout: {tp: 4, sp: true, pp: 4, dp: 8, zero: 1, "
                     "order: %s}\n",
                     leafs, order);

    if (mw_scenario_parse("leaf.yaml", text, (size_t)n, &s, &err) != MW_OK ||
        mw_cost_ctx_init(&ctx, db, "dgx-h100", 16, 0, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    s.cluster.gpus_per_node = 8;
    assert_int_equal(mw_plan_make(&s, &s.layout, NULL, &plan, &err), MW_OK);
    assert_int_equal(mw_step_simulate(&s, &plan, &ctx, &opts, &r, &err), MW_OK);
    double t = r.step_time_s;

    mw_step_result_release(&r);
    mw_plan_release(&plan);
    mw_scenario_release(&s);
    return t;
}

/* Replicas within a leaf do not mind; one in each leaf does. */
static void test_step(void **state)
{
    const struct mw_hwdb *db = *state;
    const char *leafs = ", leaf_nodes: 4, oversubscription: 8";
    double plain = step_s(db, "tp-cp-ep-pp-dp", "");

    mw_assert_near(step_s(db, "tp-cp-ep-pp-dp", ", leaf_nodes: 4"), plain,
                   1e-12, 0);
    assert_true(step_s(db, "tp-cp-ep-pp-dp", leafs) > plain * 1.001);
    assert_true(step_s(db, "tp-cp-ep-pp-dp",
                       ", leaf_nodes: 16, "
                       "oversubscription: 8") <= plain * (1 + 1e-12));
}

static int setup(void **state)
{
    struct mw_hwdb *db;
    struct mw_err err = {0};

    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    *state = db;
    return 0;
}

static int teardown(void **state)
{
    mw_hwdb_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffled_rings),
        cmocka_unit_test(test_even_leaves_listed),
        cmocka_unit_test(test_uneven_by_hand),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_all_to_all),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
