/*
 * Exchanges with experts inside a step: what `coll --experts` says of DeepEP's
 * measured kernels where the stack has them, all-to-alls elsewhere.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/coll/moe.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

enum { LAYERS = 4, EXPERTS = 32, TOP_K = 8, H = 1024, SEQ = 4096 };

static void open_world(struct step_world *w, const char *system, int nodes,
                       bool is_fp8)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: %d, layers: %d, heads: 16, ffn: 4096, "
                     "vocab: 32768, moe: {experts: %d, top_k: %d, ffn: 512, "
                     "fp8_dispatch: %s}}\n"
                     "cluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: 64}\n",
                     H, LAYERS, EXPERTS, TOP_K, is_fp8 ? "true" : "false",
                     system, nodes, SEQ);
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, "megatron-core", NULL),
                     MW_OK);
}

static struct mw_layout layout(int ep)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = ep;
    l.ep = ep;
    return l;
}

/* What the verb `coll` prices. */
static struct mw_moe_time asked(const struct step_world *w, int ranks,
                                double dispatch_bytes)
{
    struct mw_moe_table *table;
    struct mw_moe_time t;
    const struct mw_moe_traffic traffic = {.n_experts = EXPERTS,
                                           .top_k = TOP_K,
                                           .n_ranks = ranks,
                                           .ranks_per_node = 8};
    const struct mw_moe_query query = {.kernel = MW_MOE_NORMAL,
                                       .tokens_per_rank = SEQ,
                                       .hidden = H,
                                       .dispatch_bytes = dispatch_bytes,
                                       .combine_bytes = 2,
                                       .sms = 20};

    assert_int_equal(mw_moe_table_load(w->db, &table, NULL), MW_OK);
    assert_int_equal(
        mw_moe_predict(table, w->ctx.system, &traffic, &query, &t, NULL),
        MW_OK);
    mw_moe_table_free(table);
    return t;
}

/* 64 / ep micro-batches of one sequence, 4 layers: forward tokens go and
 * results come back, backward their gradients go and those of tokens come back;
 * what goes is FP8 with its scales where the model says so. */
static void test_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        int nodes = 1 << (i / 2), ranks = 8 * nodes;
        bool is_fp8 = i % 2 == 1;
        struct step_world w;
        struct mw_layout l = layout(ranks);

        open_world(&w, "dgx-h100", nodes, is_fp8);
        struct mw_moe_time t = asked(&w, ranks, is_fp8 ? MW_MOE_FP8_BYTES : 2);
        struct mw_ledger_row row =
            step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL);
        double n = 2 * 64.0 / ranks * LAYERS;

        mw_assert_near(row.count, 2 * n, 0, 0);
        mw_assert_near(row.time_s,
                       n * (t.balanced_dispatch_s + t.balanced_combine_s),
                       1e-12, 0);
        step_world_close(&w);
    }
}

/* An all-to-all of the bytes that the ledger has: on racks (other kernels), on
 * devices without rows, under narrow leaves, on a stack without them. */
static void test_elsewhere(void **state)
{
    static const struct {
        const char *system, *stack;
        int nodes, leaf;
        bool is_measured;
    } cases[] = {{"dgx-h100", "megatron-core", 4, 0, true},
                 {"dgx-h100", "megatron-core", 4, 2, false},
                 {"dgx-h100", "megatron-core-serial", 4, 0, false},
                 {"dgx-a100", "megatron-core", 4, 0, false},
                 {"dgx-b200", "megatron-core", 4, 0, false},
                 {"dgx-b200", "megatron-core", 1, 0, true},
                 {"gb200-nvl72", "megatron-core", 8, 0, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step_world w;
        struct mw_step_price p;
        struct mw_ops ops = {NULL, 0, 0};
        int n = 0;

        open_world(&w, cases[i].system, cases[i].nodes, false);
        assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, cases[i].stack, NULL),
                         MW_OK);
        w.s.cluster.leaf_nodes = cases[i].leaf;
        w.s.cluster.oversubscription = 4;
        struct mw_layout l = layout(cases[i].nodes * w.ctx.gpus_per_node);

        mw_step_price_begin(&p, &w.s, &l, &w.ctx);
        mw_step_unit_ops(&p, MW_UNIT_MOE, MW_PHASE_F, &ops);
        for (size_t k = 0; k < ops.n; k++) {
            if (ops.v[k].kind != MW_OP_COLL || ops.v[k].dim != MW_DIM_EP) {
                continue;
            }
            struct mw_cost cost = mw_step_coll_cost(&p, &ops.v[k], NULL);
            struct mw_cost plain = mw_cost_coll(
                &w.ctx, MW_ALL_TO_ALL, mw_step_coll_bytes(&p, &ops.v[k]),
                &p.group[MW_DIM_EP], NULL);

            assert_int_equal(ops.v[k].is_return, n);
            assert_int_equal(cost.rung == MW_RUNG_CURVE, cases[i].is_measured);
            if (!cases[i].is_measured) {
                mw_assert_near(cost.time_s, plain.time_s, 0, 0);
            }
            n++;
        }
        assert_int_equal(n, 2);
        mw_array_release(&ops);
        step_world_close(&w);
    }
}

/* Links twice as fast take half the bytes' time and all of the latency, both
 * forms of a step agree. */
static void test_speeds_and_forms(void **state)
{
    struct step_world w;
    struct mw_layout l = layout(32);

    (void)state;
    open_world(&w, "dgx-h100", 4, false);
    double once = step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL).time_s;

    w.ctx.net_speed = 2;
    double twice = step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL).time_s;

    w.ctx.net_speed = 4;
    double fast = step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL).time_s;

    mw_assert_near(once - twice, 2 * (twice - fast), 1e-9, 0);
    assert_true(2 * twice > once);
    w.ctx.net_speed = 1;
    step_forms_agree(&w, &l);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels),
                                       cmocka_unit_test(test_elsewhere),
                                       cmocka_unit_test(test_speeds_and_forms)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
