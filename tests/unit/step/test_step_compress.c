/*
 * Compressed gradients: what 1-bit Adam and ZeRO++ send against what their
 * papers count, what they keep, when they pay, and the same in both forms.
 */
#include "mw_test.h"

#include "sim/step/ledger.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

enum { REPLICAS = 32, IN_NODE = 8, NODES = 4 };

static void open_world(struct step_world *w)
{
    step_scenario(&w->s, "dgx-a100", NODES, 128, "bf16");
    step_world_price(w);
}

/* 32 replicas, 2 micro-batches of 2. */
static struct mw_layout layout(int zero, enum mw_grad_compression how)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = REPLICAS;
    l.micro_batch = 2;
    l.zero = zero;
    l.grad_compression = how;
    return l;
}

static double params_of(const struct step_world *w)
{
    struct mw_layout l = layout(0, MW_COMPRESS_NONE);

    return step_ledger_row(w, &l, MW_DIM_DP, MW_ALL_REDUCE).message_bytes / 4;
}

/* P / 8 bytes twice, (n - 1) / n of them on the wire, against 2 (n - 1) / n of
 * 4 P: a 32nd; the paper's 16th is against 16-bit gradients. */
static void test_onebit_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout plain = layout(0, MW_COMPRESS_NONE);
    struct mw_layout l = layout(0, MW_COMPRESS_ONEBIT);
    struct mw_ledger_row all =
        step_ledger_row(&w, &plain, MW_DIM_DP, MW_ALL_REDUCE);
    struct mw_ledger_row turn =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_TO_ALL);
    struct mw_ledger_row gather =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
    double p = params_of(&w), scales = 2.0 * 4 * REPLICAS;

    assert_true(step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_REDUCE).count == 0);
    mw_assert_near(turn.count, 1, 0, 0);
    mw_assert_near(turn.message_bytes, p / 8, 1e-12, 0);
    mw_assert_near(turn.wire_bytes, p / 8 * (REPLICAS - 1) / REPLICAS, 1e-12,
                   0);
    mw_assert_near(gather.count, 3, 0, 0);
    mw_assert_near(gather.message_bytes, p / 8 + scales, 1e-12, 0);
    mw_assert_near((turn.wire_bytes + gather.wire_bytes) / all.wire_bytes,
                   1.0 / 32, 1e-5, 0);
    step_world_close(&w);
}

/* 2 micro-batches: 1 byte forward over all ranks, 2 bytes backward in the node,
 * half a byte in the node and an eighth of that between nodes. */
static void test_zeropp_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout l = layout(3, MW_COMPRESS_ZEROPP);
    double p = params_of(&w);
    struct mw_ledger_row gather =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
    struct mw_ledger_row turn =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_TO_ALL);

    assert_true(step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER).count ==
                0);
    mw_assert_near(gather.message_bytes, 2 * (1 + 2) * p, 1e-12, 0);
    mw_assert_near(
        gather.wire_bytes,
        2 * p *
            (1.0 * (REPLICAS - 1) / REPLICAS + 2.0 * (IN_NODE - 1) / IN_NODE),
        1e-12, 0);
    mw_assert_near(turn.message_bytes, 2 * (0.5 + 0.5 / IN_NODE) * p, 1e-12, 0);
    mw_assert_near(turn.wire_bytes,
                   2 * p *
                       (0.5 * (IN_NODE - 1) / IN_NODE +
                        0.5 / IN_NODE * (NODES - 1) / NODES),
                   1e-12, 0);
    step_world_close(&w);
}

/* Bytes that a node gets from others for one layer: each of its ranks its own
 * where one rank a node takes part, else the node all of it once. */
static double crossing_bytes(const struct step_world *w,
                             const struct mw_layout *l)
{
    struct mw_zero_colls colls;
    struct mw_step_price p;
    double sum = 0;

    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    const struct mw_group groups[] = {p.grad_group, p.expert_group};

    mw_zero_unit_colls(&p, MW_UNIT_DENSE, groups, &colls);
    for (int i = 0; i < colls.n; i++) {
        const struct mw_group *g = &colls.v[i].group;

        if (g->n_nodes > 1 && g->n_ranks > 1) {
            double ways = g->ranks_per_node == 1 ? IN_NODE : 1;

            sum += ways * colls.v[i].bytes * (g->n_nodes - 1) / g->n_nodes;
        }
    }
    return sum;
}

/* Table 1 of the ZeRO++ paper: 3 M with 16-bit gradients become 0.75 M. */
static void test_zeropp_crosses_a_quarter(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    w.s.workload.grad_dtype = MW_BF16;
    struct mw_layout plain = layout(3, MW_COMPRESS_NONE);
    struct mw_layout small = layout(3, MW_COMPRESS_ZEROPP);

    mw_assert_near(crossing_bytes(&w, &small) / crossing_bytes(&w, &plain),
                   0.25, 1e-12, 0);
    step_world_close(&w);
}

static struct mw_step_result run(struct step_world *w,
                                 const struct mw_layout *l)
{
    struct mw_step_result r;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    return r;
}

/* Errors: 4 bytes a parameter and 4 / n. The node's copy: 2 bytes / 8. */
static void test_memory(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout l = layout(0, MW_COMPRESS_NONE);
    double p = params_of(&w);
    struct mw_step_result plain = run(&w, &l);
    l = layout(0, MW_COMPRESS_ONEBIT);
    struct mw_step_result onebit = run(&w, &l);

    mw_assert_near(onebit.memory[0].optimizer_bytes -
                       plain.memory[0].optimizer_bytes,
                   4 * p * (1 + 1.0 / REPLICAS), 1e-9, 0);
    mw_assert_near(onebit.peak_bytes - plain.peak_bytes,
                   4 * p * (1 + 1.0 / REPLICAS), 1e-9, 0);
    mw_step_result_release(&plain);
    mw_step_result_release(&onebit);
    l = layout(3, MW_COMPRESS_NONE);
    plain = run(&w, &l);
    l = layout(3, MW_COMPRESS_ZEROPP);
    struct mw_step_result zeropp = run(&w, &l);

    mw_assert_near(zeropp.memory[0].weight_bytes - plain.memory[0].weight_bytes,
                   2 * p / IN_NODE, 1e-9, 0);
    mw_step_result_release(&plain);
    mw_step_result_release(&zeropp);
    step_world_close(&w);
}

/* Within one node nothing is held twice and gathers are small both ways. */
static void test_zeropp_in_one_node(void **state)
{
    struct step_world w;

    (void)state;
    w.db = step_hwdb();
    step_scenario(&w.s, "dgx-a100", 1, 32, "bf16");
    step_ctx(&w.ctx, w.db, &w.s);
    struct mw_layout l = layout(3, MW_COMPRESS_ZEROPP);
    struct mw_layout plain = layout(3, MW_COMPRESS_NONE);

    l.dp = plain.dp = IN_NODE;
    struct mw_ledger_row gather =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
    struct mw_ledger_row whole =
        step_ledger_row(&w, &plain, MW_DIM_DP, MW_ALL_GATHER);
    struct mw_step_result a = run(&w, &l), b = run(&w, &plain);

    mw_assert_near(gather.message_bytes, whole.message_bytes / 2, 1e-12, 0);
    mw_assert_near(a.memory[0].weight_bytes, b.memory[0].weight_bytes, 0, 0);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
    step_world_close(&w);
}

/* On a slow network both pay; where links are wide and work hides the
 * reduction, packing costs more than is saved (1-bit Adam on one NVLink node).
 */
static void test_pays_on_slow_networks(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    w.ctx.domain_net_Bps /= 16;
    w.ctx.net_speed /= 16;
    for (int zero = 0; zero <= 3; zero += 3) {
        struct mw_layout l = layout(zero, MW_COMPRESS_NONE);
        struct mw_step_result plain = run(&w, &l);

        l.grad_compression =
            zero == 0 ? MW_COMPRESS_ONEBIT : MW_COMPRESS_ZEROPP;
        struct mw_step_result small = run(&w, &l);

        assert_true(small.step_time_s < 0.7 * plain.step_time_s);
        mw_step_result_release(&plain);
        mw_step_result_release(&small);
    }
    step_world_close(&w);
    w.db = step_hwdb();
    step_scenario(&w.s, "dgx-a100", 1, 32, "bf16");
    step_ctx(&w.ctx, w.db, &w.s);
    w.ctx.stack.bucket = 1e6;
    w.ctx.stack.overlap_reduce = 0.9; /* of which 1-bit Adam has nothing */
    struct mw_layout l = layout(0, MW_COMPRESS_NONE);

    l.dp = IN_NODE;
    struct mw_step_result plain = run(&w, &l);

    l.grad_compression = MW_COMPRESS_ONEBIT;
    struct mw_step_result small = run(&w, &l);

    assert_true(small.step_time_s > plain.step_time_s);
    mw_step_result_release(&plain);
    mw_step_result_release(&small);
    step_world_close(&w);
}

static void test_forms_agree(void **state)
{
    static const int ways[][3] = {
        {1, 1, 0}, {2, 4, 0}, {4, 1, 3}, {1, 1, 3}, {2, 2, 3}};
    struct step_world w;

    (void)state;
    open_world(&w);
    for (size_t i = 0; i < 5; i++) {
        struct mw_layout l = layout(ways[i][2], MW_COMPRESS_ONEBIT);

        l.tp = ways[i][0];
        l.pp = ways[i][1];
        l.dp = REPLICAS / (l.tp * l.pp);
        l.grad_compression =
            l.zero == 3 ? MW_COMPRESS_ZEROPP : MW_COMPRESS_ONEBIT;
        step_forms_agree(&w, &l);
    }
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onebit_counts),
        cmocka_unit_test(test_zeropp_counts),
        cmocka_unit_test(test_zeropp_crosses_a_quarter),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_zeropp_in_one_node),
        cmocka_unit_test(test_pays_on_slow_networks),
        cmocka_unit_test(test_forms_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
