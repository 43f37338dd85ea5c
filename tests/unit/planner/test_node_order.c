/*
 * Which nodes hold which ranks on leaves of several sizes: the order chosen
 * equals brute force over all permutations of the nodes, spare ones included,
 * in the event form; the search's best equals brute force over layouts and
 * permutations together; what it writes is read again.
 */
#include "planner_world.h"

#include "base/rand.h"
#include "planner/node_order.h"
#include "planner/planner.h"
#include "sim/plan/plan.h"
#include "sim/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 40 };

static void open_cluster(struct world *w, const char *model, int nodes,
                         const char *leaves, const char *more, int batch)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: %s\n"
             "cluster: {system: dgx-h100, nodes: %d, leaves: %s, "
             "oversubscription: 4%s}\n"
             "workload: {seq: 4096, global_batch: %d, dtype: bf16}\n",
             model, nodes, leaves, more, batch);
    parse_world(w, text);
    w->scenario.cluster.gpus_per_node = 8;
}

static double event_s(const struct world *w, const struct mw_scenario *s,
                      const struct mw_layout *l)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_plan plan;
    struct mw_err err = {0};
    double time_s;

    if (mw_plan_make(s, l, NULL, &plan, &err) != MW_OK ||
        mw_step_simulate(s, &plan, &w->ctx, &opts, &step, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    time_s = step.step_time_s;
    mw_step_result_release(&step);
    mw_plan_release(&plan);
    return time_s;
}

/* ---- brute force -----------------------------------------------------------
 */
struct brute {
    const struct world *w;
    struct mw_layout l;
    int64_t nodes[NODES_MAX];
    bool used[NODES_MAX];
    int n, n_all;
    double best_s, worst_s;
    uint64_t count;
};

/* Every way to give n of n_all nodes to the slots, one by one. */
static void permute(struct brute *b, int slot)
{
    if (slot == b->n) {
        b->l.nodes = (struct mw_int_list){b->nodes, (size_t)b->n};
        double time_s = event_s(b->w, &b->w->scenario, &b->l);

        b->best_s = fmin(b->best_s, time_s);
        b->worst_s = fmax(b->worst_s, time_s);
        b->count++;
        return;
    }
    for (int node = 0; node < b->n_all; node++) {
        if (!b->used[node]) {
            b->used[node] = true;
            b->nodes[slot] = node;
            permute(b, slot + 1);
            b->used[node] = false;
        }
    }
}

static struct brute brute_of(const struct world *w, const struct mw_layout *l)
{
    struct brute b = {.w = w,
                      .l = *l,
                      .n = w->scenario.cluster.n_nodes,
                      .n_all = mw_cluster_allocated(&w->scenario.cluster),
                      .best_s = HUGE_VAL};

    permute(&b, 0);
    return b;
}

static void choose(const struct world *w, const struct mw_layout *l,
                   struct mw_node_order *out, int64_t nodes[NODES_MAX])
{
    struct mw_plan plan;
    struct mw_err err = {0};

    *out = (struct mw_node_order){.nodes = nodes};
    if (mw_plan_make(&w->scenario, l, NULL, &plan, &err) != MW_OK ||
        mw_node_order_choose(&w->scenario, &w->ctx, &plan, out, &err) !=
            MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(
        mw_layout_check_nodes(&plan.layout, &w->scenario.cluster, NULL), MW_OK);
    mw_assert_near(event_s(w, &w->scenario, &plan.layout), out->time_s, 1e-12,
                   0);
    mw_plan_release(&plan);
}

static struct mw_layout layout_of(int tp, int cp, int pp, int dp, int ep,
                                  const char *order)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.sp = tp > 1;
    l.cp = cp;
    l.pp = pp;
    l.dp = dp;
    l.ep = ep;
    l.zero = 1;
    l.order = order;
    return l;
}

static void equals_brute(const struct world *w, const struct mw_layout *l,
                         bool must_matter)
{
    struct mw_node_order found;
    int64_t nodes[NODES_MAX];
    struct brute b = brute_of(w, l);

    choose(w, l, &found, nodes);
    assert_true(found.is_proved);
    assert_true(found.n_orders <= b.count);
    mw_assert_near(found.time_s, b.best_s, 1e-12, 0);
    assert_true(found.bound_s <= b.best_s * (1 + 1e-12));
    assert_true(found.time_s <= found.allocated_s * (1 + 1e-12));
    assert_true(!must_matter || b.worst_s > b.best_s * 1.001);
}

static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"};

static void test_dense_equals_brute(void **state)
{
    (void)state;
    struct world w;

    open_cluster(&w, "llama3-8b", 5, "[3, 2]", "", 40);
    for (int i = 0; i < 2; i++) {
        struct mw_layout l = layout_of(8, 1, 1, 5, 1, orders[i]);

        equals_brute(&w, &l, true);
        l = layout_of(4, 1, 2, 5, 1, orders[i]);
        equals_brute(&w, &l, true);
    }
    close_world(&w);
    open_cluster(&w, "llama3-8b", 6, "[1, 4, 1]", "", 48);
    for (int i = 0; i < 2; i++) {
        struct mw_layout l = layout_of(8, 1, 3, 2, 1, orders[i]);

        equals_brute(&w, &l, true);
        l = layout_of(8, 1, 2, 3, 1, orders[i]);
        equals_brute(&w, &l, true);
        l.zero = 3; /* gathers that the passes hide, in any order */
        equals_brute(&w, &l, false);
        l = layout_of(4, 2, 2, 3, 1, orders[i]);
        equals_brute(&w, &l, true);
    }
    close_world(&w);
}

/* Experts of a stage on two nodes, exchanged in every pass. */
static void test_experts_equal_brute(void **state)
{
    (void)state;
    struct world w;

    open_cluster(&w, "mixtral-8x7b", 6, "[1, 4, 1]", "", 48);
    struct mw_layout l = layout_of(2, 1, 3, 8, 8, orders[0]);

    equals_brute(&w, &l, true);
    struct mw_node_order found;
    int64_t nodes[NODES_MAX];

    choose(&w, &l, &found, nodes);
    /* The allocation's order splits two stages, the best one: */
    assert_true(found.time_s < found.allocated_s * 0.99);
    close_world(&w);
}

/* Which nodes stand by is a choice as well. */
static void test_spare_nodes(void **state)
{
    (void)state;
    struct world w;

    open_cluster(&w, "llama3-8b", 6, "[1, 3, 2]", ", spare_nodes: 1", 40);
    assert_int_equal(w.scenario.cluster.n_nodes, 5);
    struct mw_layout l = layout_of(8, 1, 1, 5, 1, orders[0]);

    equals_brute(&w, &l, true);
    close_world(&w);
    open_cluster(&w, "llama3-8b", 6, "[1, 3, 2]", ", spare_nodes: 2", 32);
    l = layout_of(8, 1, 2, 2, 1, orders[0]);
    equals_brute(&w, &l, true);
    close_world(&w);
}

static void test_count(void **state)
{
    static const int64_t two[] = {10, 6}, alike[] = {2, 2}, three[] = {1, 3, 2};
    struct mw_cluster c = {.n_nodes = 16, .leaves = {two, 2}};

    (void)state;
    assert_int_equal(mw_node_order_count(&c, 1, 100000), 8008);
    assert_int_equal(mw_node_order_count(&c, 1, 100), 101);
    c = (struct mw_cluster){.n_nodes = 4, .leaves = {alike, 2}};
    assert_int_equal(mw_node_order_count(&c, 1, 100),
                     3); /* of 6, leaves alike */
    c = (struct mw_cluster){
        .n_nodes = 5, .spare_nodes = 1, .leaves = {three, 3}};
    /* one of the kinds stands by: 5!/(3! 2!) + 5!/(2! 2!) + 5!/3! */
    assert_int_equal(mw_node_order_count(&c, 1, 100), 10 + 30 + 20);
}

/* More orders than can be looked at: between the bound and the allocation's. */
static void test_many_nodes(void **state)
{
    (void)state;
    struct world w;
    struct mw_node_order found;
    int64_t nodes[NODES_MAX];

    open_cluster(&w, "mixtral-8x7b", 30, "[3, 12, 12, 3]", "", 480);
    struct mw_layout l = layout_of(2, 1, 5, 24, 8, orders[0]);

    choose(&w, &l, &found, nodes);
    assert_true(mw_node_order_count(&w.scenario.cluster, 1, MW_ORDERS_MAX) >
                MW_ORDERS_MAX);
    assert_true(found.time_s >= found.bound_s * (1 - 1e-12));
    assert_true(found.time_s < found.allocated_s * 0.99);
    close_world(&w);
}

/* ---- the search ------------------------------------------------------------
 */
static void test_search_equals_brute(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts o;
    struct mw_search_result r;
    double best = HUGE_VAL;

    open_cluster(&w, "llama3-8b", 4, "[1, 2, 1]", "", 32);
    mw_search_opts_default(&o);
    o.is_quiet = true;
    o.tp = 8;
    o.sp = 1;
    o.cp = 1;
    o.zero = 1;
    o.vpp = 1;
    o.micro_batch = 1;
    o.recompute = MW_RECOMPUTE_NONE;
    o.schedule = "1f1b";
    o.top = 1;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &o, &r, NULL), MW_OK);
    assert_true(r.proved_optimal);
    assert_int_equal(r.plans[0].layout.nodes.n, 4);
    for (int pp = 1; pp <= 4; pp *= 2) {
        for (int i = 0; i < 2; i++) {
            struct mw_layout l = layout_of(8, 1, pp, 4 / pp, 1, orders[i]);

            if (pp == 4) {
                l.zero = 0;
            }
            struct brute b = brute_of(&w, &l);

            /* layers of the search may be uneven, which is no slower */
            best = fmin(best, b.best_s);
        }
    }
    assert_true(r.plans[0].step_time_s <= best * (1 + 1e-12));
    assert_true(r.plans[0].bare_s <= r.plans[0].step_time_s * (1 + 1e-12));
    mw_search_result_release(&r);
    close_world(&w);
}

/* A plan with nodes is read as it was written; its hash knows them. */
static void test_plan_file(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l = layout_of(8, 1, 1, 5, 1, orders[0]);
    static const int64_t nodes[] = {4, 3, 0, 2, 1};
    struct mw_plan plan, read;
    struct mw_str text = {NULL, 0, 0}, again = {NULL, 0, 0};
    struct mw_err err = {0};

    open_cluster(&w, "llama3-8b", 5, "[3, 2]", "", 40);
    assert_int_equal(mw_plan_make(&w.scenario, &l, NULL, &plan, NULL), MW_OK);
    uint64_t plain = mw_plan_hash(&plan);

    mw_plan_release(&plan);
    l.nodes = (struct mw_int_list){nodes, 5};
    assert_int_equal(mw_plan_make(&w.scenario, &l, NULL, &plan, NULL), MW_OK);
    assert_true(mw_plan_hash(&plan) != plain);
    mw_plan_text(&plan, "p.yaml", false, &text);
    assert_non_null(strstr(text.s, "  nodes: [4, 3, 0, 2, 1]\n"));
    assert_int_equal(
        mw_plan_parse("p.yaml", text.s, text.n, &w.scenario, &read, &err),
        MW_OK);
    assert_true(mw_plan_hash(&plan) == mw_plan_hash(&read));
    mw_plan_text(&read, "p.yaml", false, &again);
    assert_string_equal(text.s, again.s);
    mw_plan_release(&read);
    mw_plan_release(&plan);
    mw_str_release(&again);
    mw_str_release(&text);
    close_world(&w);
}

static void test_bad_nodes(void **state)
{
    static const int64_t leaves[] = {2, 2}, twice[] = {0, 2, 2},
                         far[] = {0, 1, 4}, few[] = {0, 1};
    const struct mw_cluster c = {
        .n_nodes = 3, .spare_nodes = 1, .leaves = {leaves, 2}};
    static const struct {
        struct mw_int_list nodes;
        const char *text;
    } bad[] = {
        {{twice, 3}, "nodes names node 2 twice; each once"},
        {{far, 3}, "nodes names node 4 but the allocation has nodes 0 to 3"},
        {{few, 2}, "nodes names 2 nodes but 3 train; each once"}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mw_layout l;
        struct mw_err err = {0};

        mw_layout_default(&l);
        l.nodes = bad[i].nodes;
        assert_int_equal(mw_layout_check_nodes(&l, &c, &err), MW_EINPUT);
        assert_string_equal(err.text, bad[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_equals_brute),
        cmocka_unit_test(test_experts_equal_brute),
        cmocka_unit_test(test_spare_nodes),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_many_nodes),
        cmocka_unit_test(test_search_equals_brute),
        cmocka_unit_test(test_plan_file),
        cmocka_unit_test(test_bad_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
