/*
 * Racks cut into scale-up domains under leaf switches: the order chosen equals
 * brute force over all permutations of whole domains (and of which nodes the
 * last, partial one has); alike leaves said by their number equal the same ones
 * listed; the search over ways to cut equals one search each; leaves that part
 * a domain are refused with the nodes and why.
 */
#include "planner_world.h"

#include "planner/domains.h"
#include "planner/node_order.h"
#include "sim/coll/coll_library.h"
#include "sim/cost/domain.h"
#include "sim/cost/leaf.h"
#include "sim/plan/plan.h"
#include "sim/step/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MAX = 64, UNITS_MAX = 8 };

/* One database for all tests: it remembers NCCL's graphs of a rack. */
static struct mw_hwdb *racks_db;

static int open_db(void **state)
{
    (void)state;
    if (mw_hwdb_load(NULL, &racks_db, NULL) != MW_OK) {
        return -1;
    }
    mw_coll_library_lend(racks_db);
    return 0;
}

static int close_db(void **state)
{
    (void)state;
    mw_hwdb_free(racks_db);
    return 0;
}

/* One GPU a node, so that brute force over racks stays small. */
static void open_racks(struct world *w, const char *model, int nodes,
                       const char *more, int batch)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: %s\n"
             "cluster: {system: gb200-nvl72, gpus_per_node: 1, nodes: %d%s}\n"
             "workload: {seq: 4096, global_batch: %d, dtype: bf16}\n",
             model, nodes, more, batch);
    struct mw_err err = {0};

    w->db = racks_db;
    if (mw_scenario_parse("test.yaml", text, strlen(text), &w->scenario,
                          &err) != MW_OK ||
        mw_cost_ctx_init(&w->ctx, w->db, w->scenario.cluster.system,
                         w->scenario.cluster.n_nodes, 1, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static void cut(struct world *w, int domain_nodes)
{
    struct mw_err err = {0};

    if (mw_cost_use_domains(&w->ctx, &w->scenario.cluster, domain_nodes,
                            &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

static struct mw_layout layout_of(int tp, int pp, int dp, int ep)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.sp = tp > 1;
    l.pp = pp;
    l.dp = dp;
    l.ep = ep;
    l.zero = 1;
    return l;
}

static double event_s(const struct world *w, const struct mw_layout *l)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    struct mw_plan plan;
    struct mw_err err = {0};

    if (mw_layout_check_nodes(l, &w->scenario.cluster, &err) != MW_OK ||
        mw_plan_make(&w->scenario, l, NULL, &plan, &err) != MW_OK ||
        mw_step_simulate(&w->scenario, &plan, &w->ctx, &opts, &step, &err) !=
            MW_OK) {
        fail_msg("%s", err.text);
    }
    double time_s = step.step_time_s;

    mw_step_result_release(&step);
    mw_plan_release(&plan);
    return time_s;
}

/* ---- brute force -----------------------------------------------------------
 */
struct unit {
    int first, n;
};
struct brute {
    const struct world *w;
    struct mw_layout l;
    struct unit unit[UNITS_MAX];
    bool used[UNITS_MAX];
    int64_t nodes[NODES_MAX];
    int n_units, unit_nodes, n;
    double best_s, worst_s;
    uint64_t count;
};

/* Whole domains one by one into their slots; the last takes what it needs. */
static void permute(struct brute *b, int filled)
{
    int need = b->n - filled < b->unit_nodes ? b->n - filled : b->unit_nodes;

    if (need == 0) {
        b->l.nodes = (struct mw_int_list){b->nodes, (size_t)b->n};
        double time_s = event_s(b->w, &b->l);

        b->best_s = fmin(b->best_s, time_s);
        b->worst_s = fmax(b->worst_s, time_s);
        b->count++;
        return;
    }
    for (int u = 0; u < b->n_units; u++) {
        if (b->used[u] || b->unit[u].n < need) {
            continue;
        }
        b->used[u] = true;
        for (int i = 0; i < need; i++) {
            b->nodes[filled + i] = b->unit[u].first + i;
        }
        permute(b, filled + need);
        b->used[u] = false;
    }
}

static void equals_brute(const struct world *w, const struct mw_layout *l,
                         const struct unit *units, int n_units,
                         bool must_matter)
{
    struct brute b = {.w = w,
                      .l = *l,
                      .n_units = n_units,
                      .unit_nodes = units[0].n,
                      .n = w->scenario.cluster.n_nodes,
                      .best_s = HUGE_VAL};
    int64_t nodes[NODES_MAX];
    struct mw_node_order found = {.nodes = nodes};
    struct mw_plan plan;
    struct mw_err err = {0};

    memcpy(b.unit, units, (size_t)n_units * sizeof *units);
    permute(&b, 0);
    if (mw_plan_make(&w->scenario, l, NULL, &plan, &err) != MW_OK ||
        mw_node_order_choose(&w->scenario, &w->ctx, &plan, &found, &err) !=
            MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(found.is_proved);
    assert_true(found.n_orders <= b.count);
    mw_assert_near(found.time_s, b.best_s, 1e-12, 0);
    mw_assert_near(event_s(w, &plan.layout), b.best_s, 1e-12, 0);
    assert_true(found.bound_s <= b.best_s * (1 + 1e-12));
    assert_true(!must_matter || b.worst_s > b.best_s * 1.001);
    mw_plan_release(&plan);
}

/* 2 x 9 of each rack: two domains under the first leaf, three under the other;
 * 16 of 18: the trays 16 and 17 of a rack stand by, its links up are there. */
static void test_domains_equal_brute(void **state)
{
    static const struct unit nines[] = {
        {0, 9}, {9, 9}, {18, 9}, {27, 9}, {36, 9}};
    static const struct unit sixteens[] = {{0, 16}, {18, 16}, {36, 16}};
    const char *leaves = ", leaves: [18, 27], oversubscription: 64";
    struct world w;

    (void)state;
    open_racks(&w, "llama3-8b", 45, leaves, 90);
    cut(&w, 9);
    struct mw_layout l = layout_of(1, 5, 9, 1);

    equals_brute(&w, &l, nines, 5, true);
    l = layout_of(1, 1, 45, 1);
    equals_brute(&w, &l, nines, 5, true);
    l.order = "tp-cp-ep-pp-dp";
    l.pp = 3;
    l.dp = 15;
    equals_brute(&w, &l, nines, 5, true);
    mw_scenario_release(&w.scenario);
    open_racks(&w, "mixtral-8x7b", 54,
               ", leaves: [18, 36], oversubscription: 8", 96);
    cut(&w, 16);
    assert_int_equal(w.scenario.cluster.n_nodes, 48);
    l = layout_of(1, 2, 24, 8);
    equals_brute(&w, &l, sixteens, 3, true);
    l = layout_of(1, 3, 16, 8);
    equals_brute(&w, &l, sixteens, 3, true);
    mw_scenario_release(&w.scenario);
}

/* Whole racks without a choice; a part of one goes last, with spare nodes
 * perhaps another rack's first nodes in its stead. */
static void test_part_of_a_rack(void **state)
{
    static const struct unit racks[] = {{0, 18}, {18, 18}, {36, 18}, {54, 2}};
    static const struct {
        const char *spares;
        int pp, dp;
    } cases[] = {{"", 1, 56},
                 {", spare_nodes: 18", 2, 19},
                 {", spare_nodes: 18", 1, 38}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        char more[128];

        snprintf(more, sizeof more, ", leaves: [36, 20], oversubscription: 8%s",
                 cases[i].spares);
        open_racks(&w, "llama3-8b", 56, more, cases[i].dp * 2);
        cut(&w, 0);
        struct mw_layout l = layout_of(1, cases[i].pp, cases[i].dp, 1);

        equals_brute(&w, &l, racks, 4, i < 2);
        mw_scenario_release(&w.scenario);
    }
}

/* ---- alike leaves ----------------------------------------------------------
 */
/* A number of nodes under each leaf, or the same listed: the same times. */
static void test_alike_leaves_listed(void **state)
{
    static const struct {
        int domain, leaf_nodes;
        const char *listed;
        int pp, dp, ep;
    } cases[] = {
        {16, 18, "[18, 18]", 1, 32, 8},    {16, 18, "[18, 18]", 4, 8, 8},
        {9, 18, "[18, 18]", 1, 36, 4},     {9, 18, "[18, 18]", 4, 9, 1},
        {6, 12, "[12, 12, 12]", 2, 18, 2}, {9, 9, "[9, 9, 9, 9]", 4, 9, 1},
        {8, 18, "[18, 18]", 1, 32, 8}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double time_s[2], free_s;

        for (int is_listed = 0; is_listed < 2; is_listed++) {
            struct world w;
            char more[128];

            if (is_listed) {
                snprintf(more, sizeof more, ", leaves: %s, oversubscription: 6",
                         cases[i].listed);
            } else {
                snprintf(more, sizeof more,
                         ", leaf_nodes: %d, oversubscription: 6",
                         cases[i].leaf_nodes);
            }
            open_racks(&w, "mixtral-8x7b", 36, more, cases[i].dp * 4);
            cut(&w, cases[i].domain);
            struct mw_layout l =
                layout_of(1, cases[i].pp, cases[i].dp, cases[i].ep);

            assert_true(mw_leaf_is_uneven(&w.scenario.cluster, &l) ==
                        (is_listed != 0));
            time_s[is_listed] = event_s(&w, &l);
            w.scenario.cluster.oversubscription = 1;
            free_s = event_s(&w, &l);
            mw_scenario_release(&w.scenario);
        }
        mw_assert_near(time_s[0], time_s[1], 1e-12, 0);
        assert_true(time_s[0] >= free_s);
        assert_true(i > 0 || time_s[0] > free_s * 1.01);
    }
}

/* By hand: 32 of 36 nodes train under two leaves of 18 at 9 times the NICs of
 * their links up: 16 train under each at 8 times. */
static void test_leaf_of_those_that_train(void **state)
{
    const struct mw_cluster c = {.n_nodes = 32,
                                 .spare_nodes = 4,
                                 .gpus_per_node = 1,
                                 .leaf_nodes = 18,
                                 .oversubscription = 9,
                                 .rack_nodes = 18,
                                 .domain_nodes = 16};

    (void)state;
    assert_int_equal(mw_leaf_even_of(&c).nodes, 16);
    mw_assert_near(mw_leaf_even_of(&c).oversubscription, 8, 1e-12, 0);
    assert_int_equal(mw_leaf_of_node(&c, mw_cluster_slot_node(&c, 15)), 0);
    assert_int_equal(mw_leaf_of_node(&c, mw_cluster_slot_node(&c, 16)), 1);
    assert_int_equal(mw_cluster_slot_node(&c, 31), 33);
}

/* ---- the search ------------------------------------------------------------
 */
static void small_space(struct mw_search_opts *o)
{
    mw_search_opts_default(o);
    o->is_quiet = true;
    o->tp = 1;
    o->zero = 1;
    o->vpp = 1;
    o->micro_batch = 1;
    o->recompute = MW_RECOMPUTE_FULL;
    o->schedule = "1f1b";
    o->order = "tp-cp-ep-dp-pp";
    o->top = 1;
}

/* Each choice by itself; the plan names domain and nodes and is read again. */
static void test_choice_with_leaves(void **state)
{
    static const int cuts[] = {18, 9};
    struct world w;
    struct mw_search_opts o;
    struct mw_domains d;
    struct mw_search_result r;
    struct mw_plan plan, read;
    struct mw_str text = {NULL, 0, 0};
    struct mw_err err = {0};
    double best = HUGE_VAL;

    (void)state;
    open_racks(&w, "llama3-8b", 54,
               ", leaves: [18, 36], oversubscription: 8, domain_nodes: [18, 9]",
               108);
    small_space(&o);
    assert_int_equal(mw_domains_search(&w.scenario, &w.ctx, &o, &d, &r, &err),
                     MW_OK);
    for (int i = 0; i < 2; i++) {
        struct mw_scenario s = w.scenario;
        struct mw_cost_ctx ctx = w.ctx;
        struct mw_search_result alone;

        assert_int_equal(mw_cost_use_domains(&ctx, &s.cluster, cuts[i], NULL),
                         MW_OK);
        assert_int_equal(mw_search(&s, &ctx, &o, &alone, NULL), MW_OK);
        mw_assert_near(d.choice[i].step_time_s, alone.plans[0].step_time_s,
                       1e-12, 0);
        best = fmin(best, alone.plans[0].step_time_s);
        mw_search_result_release(&alone);
    }
    mw_assert_near(r.plans[0].step_time_s, best, 1e-12, 0);
    assert_true(d.is_proved);
    assert_int_equal(r.plans[0].layout.nodes.n, 54);
    struct world at = {w.db, d.scenario, d.ctx};

    assert_true(r.plans[0].bare_s <= r.plans[0].step_time_s * (1 + 1e-12));
    assert_int_equal(mw_candidate_plan(&d.scenario, &r.plans[0], &plan, NULL),
                     MW_OK);
    mw_plan_text(&plan, "p.yaml", false, &text);
    w.scenario.cluster.domain_nodes = 0; /* as read from a file */
    w.scenario.cluster.n_nodes = 54;
    if (mw_plan_parse("p.yaml", text.s, text.n, &w.scenario, &read, &err) !=
        MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(read.layout.domain_nodes, d.choice[d.best].domain_nodes);
    assert_true(mw_plan_hash(&read) == mw_plan_hash(&plan));
    assert_int_equal(
        mw_layout_check_nodes(&read.layout, &at.scenario.cluster, &err), MW_OK);
    mw_plan_release(&read);
    mw_plan_release(&plan);
    mw_str_release(&text);
    mw_search_result_release(&r);
    mw_scenario_release(&w.scenario);
}

/* ---- what is refused -------------------------------------------------------
 */
static void refuse(const char *more, int nodes, int domain, const char *message)
{
    struct world w;
    struct mw_err err = {0};

    open_racks(&w, "llama3-8b", nodes, more, 108);
    assert_int_equal(
        mw_cost_use_domains(&w.ctx, &w.scenario.cluster, domain, &err),
        MW_EINPUT);
    if (strncmp(err.text, message, strlen(message)) != 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(err.section, "cluster");
    mw_scenario_release(&w.scenario);
}

static void test_refused(void **state)
{
    struct world w;
    struct mw_err err = {0};
    int64_t nodes[36];
    struct mw_layout l = layout_of(1, 1, 36, 1);

    (void)state;
    refuse(", leaves: [20, 16], oversubscription: 2", 36, 16,
           "nodes 18 and 20 share scale-up links but are under two leaf "
           "switches");
    refuse(", leaves: [10, 26], oversubscription: 2", 36, 0,
           "nodes 0 and 10 share scale-up links but are under two leaf "
           "switches");
    refuse(", leaf_nodes: 20, oversubscription: 2", 40, 9,
           "leaves of 20 nodes hold different parts of racks of 18 whose "
           "domains are 9");
    open_racks(&w, "llama3-8b", 36, ", leaves: [20, 16]", 36);
    cut(&w, 16); /* nothing is oversubscribed: leaves do not matter */
    mw_scenario_release(&w.scenario);
    open_racks(&w, "llama3-8b", 36, "", 36);
    cut(&w, 9);
    for (int i = 0; i < 36; i++) {
        nodes[i] = i;
    }
    nodes[8] = 18;
    nodes[18] = 8;
    l.nodes = (struct mw_int_list){nodes, 36};
    assert_int_equal(mw_layout_check_nodes(&l, &w.scenario.cluster, &err),
                     MW_EINPUT);
    assert_string_equal(err.text,
                        "nodes puts node 18 into the scale-up domain of node "
                        "0, which is of another rack of 18");
    mw_scenario_release(&w.scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_domains_equal_brute),
        cmocka_unit_test(test_part_of_a_rack),
        cmocka_unit_test(test_alike_leaves_listed),
        cmocka_unit_test(test_leaf_of_those_that_train),
        cmocka_unit_test(test_choice_with_leaves),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_db, close_db);
}
