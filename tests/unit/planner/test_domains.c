/*
 * Racks cut into scale-up domains: 72 GPUs, 64 and two trays that stand by, 2 x
 * 36: sizes, nodes and groups by hand; the choice among them equals a search
 * for each; plans that name their choice are read again.
 */
#include "planner_world.h"

#include "planner/domains.h"
#include "sim/cost/domain.h"
#include "sim/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void open_racks(struct world *w, int nodes, const char *domains)
{
    char text[512];

    snprintf(text, sizeof text,
             "format: 1\nmodel: mixtral-8x7b\n"
             "cluster: {system: gb200-nvl72, nodes: %d, domain_nodes: %s}\n"
             "workload: {seq: 4096, global_batch: 1152, dtype: bf16}\n",
             nodes, domains);
    parse_world(w, text);
    w->scenario.cluster.gpus_per_node = w->ctx.gpus_per_node;
}

static void use(struct world *w, int d)
{
    struct mw_err err = {0};

    if (mw_cost_use_domains(&w->ctx, &w->scenario.cluster, d, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
}

/* Two racks of 18 trays: 16 of each train, trays 16, 17, 34, 35 stand by. */
static void test_64_and_8_spare(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l;

    open_racks(&w, 36, "[18, 16]");
    use(&w, 16);
    assert_int_equal(w.scenario.cluster.n_nodes, 32);
    assert_int_equal(w.scenario.cluster.spare_nodes, 4);
    assert_int_equal(w.ctx.domain_gpus, 64);
    mw_assert_near(w.ctx.domain_net_Bps, 16 * w.ctx.system->node_net_bw_Bps,
                   1e-12, 0);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 0), 0);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 15), 15);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 16), 18);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 31), 33);
    /* A group of 64 stays inside; of 72 in a rack the second one does not. */
    mw_layout_default(&l);
    l.dp = 64;
    l.pp = 2;
    assert_int_equal(mw_cost_group(&l, MW_DIM_DP, 64).n_nodes, 1);
    assert_true(mw_cost_stages_cross(&l, 0, 1, 64));
    assert_int_equal((64 + 63) / 72 - 64 / 72, 1);
    use(&w, 18);
    assert_int_equal(w.scenario.cluster.n_nodes, 36);
    assert_int_equal(w.scenario.cluster.spare_nodes, 0);
    assert_int_equal(w.ctx.domain_gpus, 72);
    close_world(&w);
}

/* Every rack is two domains of 36, none stands by: a group of 72 needs NICs. */
static void test_twice_36(void **state)
{
    (void)state;
    struct world w;
    struct mw_layout l;

    open_racks(&w, 36, "[9]");
    use(&w, 9);
    assert_int_equal(w.scenario.cluster.n_nodes, 36);
    assert_int_equal(w.scenario.cluster.spare_nodes, 0);
    assert_int_equal(w.ctx.domain_gpus, 36);
    for (int slot = 0; slot < 36; slot++) {
        assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, slot), slot);
    }
    mw_layout_default(&l);
    l.dp = 36;
    l.pp = 4;
    assert_int_equal(mw_cost_group(&l, MW_DIM_DP, 36).n_nodes, 1);
    l.dp = 72;
    l.pp = 2;
    assert_int_equal(mw_cost_group(&l, MW_DIM_DP, 36).n_nodes, 2);
    assert_int_equal(mw_cost_group(&l, MW_DIM_DP, 72).n_nodes, 1);
    /* 2 x 32 of each rack: two trays a rack stand by. */
    use(&w, 8);
    assert_int_equal(w.scenario.cluster.n_nodes, 32);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 8), 8);
    assert_int_equal(mw_cluster_slot_node(&w.scenario.cluster, 16), 18);
    close_world(&w);
}

static void test_part_of_a_rack(void **state)
{
    (void)state;
    struct world w;
    struct mw_err err = {0};

    open_racks(&w, 27, "[16]"); /* a rack and a half */
    use(&w, 16);
    assert_int_equal(w.scenario.cluster.n_nodes, 16);
    assert_int_equal(w.scenario.cluster.spare_nodes, 11);
    assert_int_equal(mw_cost_use_domains(&w.ctx, &w.scenario.cluster, 19, &err),
                     MW_EINPUT);
    assert_string_equal(err.text, "19 nodes in one scale-up domain but "
                                  "gb200-nvl72 joins 18; at most that");
    assert_string_equal(err.key, "domain_nodes");
    close_world(&w);
    open_racks(&w, 8, "[16]");
    err = (struct mw_err){0};
    assert_int_equal(mw_cost_use_domains(&w.ctx, &w.scenario.cluster, 16, &err),
                     MW_EINPUT);
    assert_string_equal(err.text, "8 nodes hold no scale-up domain of 16; more "
                                  "nodes or a smaller domain");
    close_world(&w);
}

/* The choice is the best of a search for each, and says so. */
static void test_choice_equals_searches(void **state)
{
    static const int cuts[] = {18, 16, 9};

    (void)state;
    struct world w;
    struct mw_search_opts o;
    struct mw_domains d;
    struct mw_search_result r;
    double best = HUGE_VAL;
    int best_cut = 0;

    open_racks(&w, 18, "[18, 16, 9]");
    mw_search_opts_default(&o);
    o.is_quiet = true;
    o.micro_batch = 1;
    o.schedule = "1f1b";
    o.vpp = 1;
    o.top = 1;
    assert_int_equal(mw_domains_search(&w.scenario, &w.ctx, &o, &d, &r, NULL),
                     MW_OK);
    assert_int_equal(d.n, 3);
    for (int i = 0; i < 3; i++) {
        struct mw_search_result alone;
        struct mw_scenario s = w.scenario;
        struct mw_cost_ctx ctx = w.ctx;

        assert_int_equal(mw_cost_use_domains(&ctx, &s.cluster, cuts[i], NULL),
                         MW_OK);
        enum mw_status status = mw_search(&s, &ctx, &o, &alone, NULL);
        double step_s = status == MW_OK ? alone.plans[0].step_time_s : 0;

        assert_int_equal(d.choice[i].domain_nodes, cuts[i]);
        mw_assert_near(d.choice[i].step_time_s, step_s, 1e-12, 0);
        assert_int_equal(d.choice[i].n_gpus, i == 1 ? 64 : 72);
        if (step_s > 0 && step_s < best) {
            best = step_s;
            best_cut = cuts[i];
        }
        mw_search_result_release(&alone);
    }
    mw_assert_near(r.plans[0].step_time_s, best, 1e-12, 0);
    assert_int_equal(d.choice[d.best].domain_nodes, best_cut);
    assert_int_equal(r.plans[0].layout.domain_nodes, best_cut);
    assert_true(d.is_proved);
    mw_search_result_release(&r);
    close_world(&w);
}

/* A plan of 64 of 72 names its nodes and its domain, and is read again. */
static void test_plan_file(void **state)
{
    (void)state;
    struct world w;
    struct mw_search_opts o;
    struct mw_search_result r;
    struct mw_plan plan, read;
    struct mw_str text = {NULL, 0, 0};
    struct mw_err err = {0};

    open_racks(&w, 18, "[18, 16]");
    struct mw_scenario given = w.scenario; /* as read from a file */

    given.cluster.gpus_per_node = 0;
    use(&w, 16);
    mw_search_opts_default(&o);
    o.is_quiet = true;
    o.tp = 1;
    o.pp = 1;
    o.ep = 8;
    o.micro_batch = 1;
    o.top = 1;
    assert_int_equal(mw_search(&w.scenario, &w.ctx, &o, &r, NULL), MW_OK);
    assert_int_equal(mw_candidate_plan(&w.scenario, &r.plans[0], &plan, NULL),
                     MW_OK);
    mw_plan_text(&plan, "p.yaml", false, &text);
    assert_non_null(strstr(text.s, "  domain_nodes: 16\n"));
    assert_non_null(strstr(text.s, "  nodes: [0, 1, 2, "));
    assert_null(strstr(text.s, ", 16"));
    assert_int_equal(
        mw_plan_parse("p.yaml", text.s, text.n, &given, &read, &err), MW_OK);
    assert_int_equal(read.layout.domain_nodes, 16);
    assert_true(mw_plan_hash(&read) == mw_plan_hash(&plan));
    mw_plan_release(&read);
    /* A choice that the scenario does not have. */
    memcpy(strstr(text.s, "domain_nodes: 16"), "domain_nodes: 17", 16);
    assert_int_equal(
        mw_plan_parse("p.yaml", text.s, text.n, &given, &read, &err),
        MW_EINPUT);
    assert_non_null(strstr(err.text, "17 nodes in a domain is none of the "
                                     "scenario's choices"));
    mw_plan_release(&plan);
    mw_str_release(&text);
    mw_search_result_release(&r);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_64_and_8_spare),
        cmocka_unit_test(test_twice_36),
        cmocka_unit_test(test_part_of_a_rack),
        cmocka_unit_test(test_choice_equals_searches),
        cmocka_unit_test(test_plan_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
