/*
 * All-to-alls inside a ring (cp_inner): the same work as either form alone, who
 * sends what to whom, where the two groups lie, both forms of the step.
 */
#include "mw_test.h"

#include "sim/step/ledger.h"
#include "step_fixture.h"

/* 8 layers, 32 query and 8 key-value heads of 64 elements, 16384 tokens. */
enum { LAYERS = 8, Q_HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64, SEQ = 16384 };

static void open_world(struct step_world *w, int nodes)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: 2048, layers: 8, heads: 32, kv_heads: 8, "
                     "ffn: 8192, vocab: 32768}\n"
                     "cluster: {system: dgx-h100, nodes: %d}\n"
                     "workload: {seq: 16384, global_batch: 16, dtype: bf16}\n",
                     nodes);
    step_world_price(w);
}

static struct mw_layout layout(enum mw_cp_form form, int cp, int inner, int dp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.cp = cp;
    l.cp_inner = inner;
    l.dp = dp;
    l.cp_form = form;
    return l;
}

static double core_flops(const struct step_world *w, const struct mw_layout *l,
                         enum mw_pass pass)
{
    struct mw_work work = {.model = &w->s.model,
                           .layout = l,
                           .seq = SEQ,
                           .dtype = MW_BF16,
                           .is_flash = true,
                           .grad_dtype = MW_FP32};
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    mw_layer_ops(&work, 0, pass, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        if (ops.v[i].kind == MW_OP_ATTENTION) {
            sum += mw_op_times(&ops.v[i]) * ops.v[i].flops;
        }
    }
    mw_array_release(&ops);
    return sum;
}

static void test_same_work(void **state)
{
    static const enum mw_pass passes[] = {MW_PASS_F, MW_PASS_B};
    struct step_world w;

    (void)state;
    open_world(&w, 1);
    for (int inner = 2; inner <= 4; inner *= 2) {
        for (int i = 0; i < 2; i++) {
            struct mw_layout a2a = layout(MW_CP_A2A, 8, 1, 1);
            struct mw_layout ring = layout(MW_CP_RING, 8, inner, 1);
            struct mw_layout gather = layout(MW_CP_GATHER, 8, inner, 1);
            double flops = core_flops(&w, &a2a, passes[i]);

            assert_true(flops > 0);
            mw_assert_near(core_flops(&w, &ring, passes[i]), flops, 1e-12, 0);
            mw_assert_near(core_flops(&w, &gather, passes[i]), flops, 1e-12, 0);
        }
    }
    step_world_close(&w);
}

/* q, k, v and o of the rank's own tokens and their gradients, of which
 * (a - 1) / a leave it; n / a - 1 exchanges of a block's K and V forward, as
 * many and one more of their gradients backward: a times the tokens, an a-th of
 * the heads. */
static void test_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, 2);
    for (int inner = 2; inner <= 8; inner *= 2) {
        struct mw_layout l = layout(MW_CP_RING, 16, inner, 1);
        double own = 2.0 * SEQ / 16 * HEAD_DIM, times = 16 * LAYERS;
        struct mw_ledger_row turn =
            step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_TO_ALL);
        struct mw_ledger_row ring =
            step_ledger_row(&w, &l, MW_DIM_CP, MW_SEND_RECV);
        int outer = 16 / inner;

        mw_assert_near(turn.message_bytes,
                       times * 2 * own * 2 * (Q_HEADS + KV_HEADS), 1e-12, 0);
        mw_assert_near(turn.wire_bytes,
                       turn.message_bytes * (inner - 1) / inner, 1e-12, 0);
        mw_assert_near(ring.count, times * (2 * (outer - 1) + outer), 0, 0);
        mw_assert_near(ring.message_bytes, ring.count * own * KV_HEADS * 2,
                       1e-12, 0);
        assert_int_equal(turn.n_ranks, inner);
        assert_int_equal(ring.n_ranks, outer);
        assert_false(turn.crosses_nodes);
        assert_true(ring.crosses_nodes);
    }
    step_world_close(&w);
}

/* A gather of a sequence of an a-th of the heads by n / a ranks. */
static void test_gather_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, 2);
    struct mw_layout l = layout(MW_CP_GATHER, 16, 8, 1);
    struct mw_ledger_row row =
        step_ledger_row(&w, &l, MW_DIM_CP, MW_ALL_GATHER);
    double kv = 2.0 * SEQ * KV_HEADS / 8 * HEAD_DIM * 2;

    mw_assert_near(row.message_bytes, 16 * LAYERS * 2 * kv, 1e-12, 0);
    assert_int_equal(row.n_ranks, 2);
    step_world_close(&w);
}

static void test_groups(void **state)
{
    struct mw_layout l = layout(MW_CP_RING, 8, 4, 2);

    (void)state;
    l.tp = 2;
    struct mw_group inner = mw_cost_cp_group(&l, true, 8);
    struct mw_group outer = mw_cost_cp_group(&l, false, 8);

    /* tp 2 x 4 fill a node of 8; two such nodes make cp */
    assert_int_equal(inner.n_ranks, 4);
    assert_int_equal(inner.n_nodes, 1);
    assert_int_equal(outer.n_ranks, 2);
    assert_int_equal(outer.n_nodes, 2);
    assert_int_equal(outer.ranks_per_node, 1);
    assert_int_equal(outer.nic_sharers, 8);
}

/* Over two nodes of a slow network all-to-alls that stay inside them beat those
 * over all ranks. */
static void test_stays_in_the_node(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w, 2);
    w.ctx.domain_net_Bps /= 8;
    w.ctx.net_speed /= 8;
    /* 8 heads of keys and values go to 8 ranks at most */
    struct mw_layout a2a = layout(MW_CP_A2A, 8, 1, 2);
    a2a.order = "tp-dp-cp-pp"; /* cp over both nodes */
    struct mw_layout both = layout(MW_CP_RING, 8, 4, 2);
    both.order = a2a.order;

    assert_true(step_forms_agree(&w, &both) < step_forms_agree(&w, &a2a));
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_work),         cmocka_unit_test(test_counts),
        cmocka_unit_test(test_gather_counts),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_stays_in_the_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
