/*
 * Ways to the experts (layout: dispatcher): which of them a stack's habit is,
 * what gathers of all tokens send, and both forms.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

enum { LAYERS = 3, EXPERTS = 32, TOP_K = 4, H = 1024, SEQ = 4096, BATCH = 64 };

static void open_world(struct step_world *w, const char *system, int nodes,
                       const char *stack)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: %d, layers: %d, heads: 16, ffn: 4096, "
                     "vocab: 32768, moe: {experts: %d, top_k: %d, ffn: 512, "
                     "shared: 1, shared_ffn: 1024}}\n"
                     "cluster: {system: %s, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: %d}\n",
                     H, LAYERS, EXPERTS, TOP_K, system, nodes, SEQ, BATCH);
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

static struct mw_layout layout(int dp, int ep, enum mw_dispatcher how)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = dp;
    l.ep = ep;
    l.dispatcher = how;
    return l;
}

/* ---- habits ----------------------------------------------------------------
 */
static void expect_alike(const struct step_world *w, const struct mw_layout *a,
                         const struct mw_layout *b, bool are_alike)
{
    struct mw_step_result x, y;

    step_simulate(&x, &w->s, a, &w->ctx, NULL);
    step_simulate(&y, &w->s, b, &w->ctx, NULL);
    assert_int_equal(
        memcmp(x.breakdown_s, y.breakdown_s, sizeof x.breakdown_s) == 0,
        are_alike);
    assert_memory_equal(&x.peak_bytes, &y.peak_bytes, sizeof x.peak_bytes);
    mw_step_result_release(&x);
    mw_step_result_release(&y);
}

/* What a stack does has a name. */
static void test_habits(void **state)
{
    static const struct {
        const char *system, *stack;
        int nodes, ranks;
        enum mw_dispatcher is, is_not;
    } cases[] = {{"dgx-h100", "megatron-core", 1, 8, MW_DISPATCH_DEEPEP,
                  MW_DISPATCH_ALLTOALL},
                 {"dgx-h100", "megatron-core", 2, 16, MW_DISPATCH_DEEPEP,
                  MW_DISPATCH_HYBRIDEP},
                 {"dgx-h100", "megatron-core-serial", 2, 16,
                  MW_DISPATCH_ALLTOALL, MW_DISPATCH_DEEPEP},
                 {"gb200-nvl72", "megatron-core", 4, 16, MW_DISPATCH_HYBRIDEP,
                  MW_DISPATCH_ALLTOALL}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int n = cases[i].ranks;
        struct mw_layout stack = layout(n, n, MW_DISPATCH_STACK);
        struct mw_layout is = layout(n, n, cases[i].is);
        struct mw_layout is_not = layout(n, n, cases[i].is_not);
        struct mw_layout alone = layout(n, 1, MW_DISPATCH_ALLTOALL);
        struct mw_layout plain = layout(n, 1, MW_DISPATCH_STACK);
        struct step_world w;

        open_world(&w, cases[i].system, cases[i].nodes, cases[i].stack);
        expect_alike(&w, &stack, &is, true);
        expect_alike(&w, &stack, &is_not, false);
        expect_alike(&w, &plain, &alone, true);
        step_world_close(&w);
    }
}

/* ---- gathers ---------------------------------------------------------------
 */
/* Forward all tokens are gathered and the results' sums scattered, backward
 * the gradients the other way round: of the tokens of all ep ranks (n - 1) / n
 * are sent, whatever the router says. */
static void test_gathers(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 2; nodes++) {
        int n = 8 * nodes;
        struct mw_layout l = layout(n, n, MW_DISPATCH_ALLGATHER);
        double bytes = 2.0 * SEQ * H * n, times = 2.0 * LAYERS * BATCH / n;
        struct step_world w;

        open_world(&w, "dgx-h100", nodes, "megatron-core");
        w.s.workload.expert_imbalance = 1.5;
        for (int i = 0; i < 2; i++) {
            enum mw_coll_op op = i == 0 ? MW_ALL_GATHER : MW_REDUCE_SCATTER;
            struct mw_ledger_row row = step_ledger_row(&w, &l, MW_DIM_EP, op);
            struct mw_group g = mw_cost_group(&l, MW_DIM_EP, w.ctx.domain_gpus);

            mw_assert_near(row.count, times, 0, 0);
            mw_assert_near(row.message_bytes, times * bytes, 1e-12, 0);
            mw_assert_near(row.wire_bytes, times * bytes * (n - 1) / n, 1e-12,
                           0);
            mw_assert_near(row.time_s,
                           times *
                               mw_cost_coll(&w.ctx, op, bytes, &g, NULL).time_s,
                           1e-12, 0);
        }
        mw_assert_near(step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL).count,
                       0, 0, 0);
        step_world_close(&w);
    }
}

/* Copies for top k experts against all tokens: k for ep; a node's copy alone
 * between nodes. */
static void test_bytes(void **state)
{
    const int n = 16;
    const double nodes = 2, x = 2.0 * SEQ * H;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 2, "plain");
    struct mw_layout l = layout(n, n, MW_DISPATCH_ALLTOALL);
    struct mw_ledger_row row =
        step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL);

    mw_assert_near(row.message_bytes / row.count, TOP_K * x, 1e-12, 0);
    l.dispatcher = MW_DISPATCH_HYBRIDEP;
    row = step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_TO_ALL);
    mw_assert_near(row.message_bytes / row.count,
                   nodes * (1 - pow(1 - 1 / nodes, TOP_K)) * x, 1e-12, 0);
    step_world_close(&w);
}

/* With a tensor parallel expert both groups gather, one after the other. */
static void test_expert_tensor(void **state)
{
    struct mw_layout l = layout(4, 4, MW_DISPATCH_ALLGATHER);
    struct step_world w;

    (void)state;
    l.tp = l.etp = 2;
    l.sp = true;
    open_world(&w, "dgx-h100", 1, "megatron-core");
    double x = 2.0 * SEQ / 2 * H;
    struct mw_ledger_row ep = step_ledger_row(&w, &l, MW_DIM_EP, MW_ALL_GATHER);
    struct mw_ledger_row etp =
        step_ledger_row(&w, &l, MW_DIM_ETP, MW_ALL_GATHER);

    mw_assert_near(ep.message_bytes / ep.count, 4 * x, 1e-12, 0);
    mw_assert_near(etp.message_bytes / etp.count, 8 * x, 1e-12, 0);
    step_world_close(&w);
}

/* What is kept for the backward pass is the experts' rows all the same; at its
 * worst moment there are gradients of all tokens. */
static void test_memory(void **state)
{
    struct mw_layout l = layout(16, 16, MW_DISPATCH_ALLTOALL);
    struct mw_step_result a, b;
    struct mw_step_price p, q;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 2, "plain");
    step_simulate(&a, &w.s, &l, &w.ctx, NULL);
    l.dispatcher = MW_DISPATCH_ALLGATHER;
    step_simulate(&b, &w.s, &l, &w.ctx, NULL);
    mw_assert_near(b.memory[0].activation_bytes, a.memory[0].activation_bytes,
                   1e-12, 0);
    assert_true(b.memory[0].temporary_bytes >= a.memory[0].temporary_bytes);
    mw_step_price_begin(&p, &w.s, &l, &w.ctx);
    assert_true(p.size[MW_UNIT_MOE].transient_bytes >= 2.0 * 16 * SEQ * H);
    l.dispatcher = MW_DISPATCH_ALLTOALL;
    mw_step_price_begin(&q, &w.s, &l, &w.ctx);
    assert_true(p.size[MW_UNIT_MOE].transient_bytes >
                q.size[MW_UNIT_MOE].transient_bytes);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
    step_world_close(&w);
}

static void test_forms(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        int nodes = 1 + i % 2, tp = 1 + (i + i / 2) % 2;
        struct mw_layout l =
            layout(8 * nodes / tp, 8, (enum mw_dispatcher)(1 + i / 2));
        struct step_world w;

        l.tp = tp;
        l.sp = tp > 1;
        open_world(&w, "dgx-h100", nodes, "megatron-core");
        step_forms_agree(&w, &l);
        step_world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_habits),        cmocka_unit_test(test_gathers),
        cmocka_unit_test(test_bytes),         cmocka_unit_test(test_forms),
        cmocka_unit_test(test_expert_tensor), cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
