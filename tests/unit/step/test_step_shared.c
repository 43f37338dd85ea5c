/*
 * Shared experts beside exchanges: what is hidden against a sum by hand over
 * the operators' names, and both forms.
 */
#include "mw_test.h"

#include "sim/coll/coll_library.h"
#include "step_units.h"

#include <math.h>

enum { LAYERS = 4, H = 2048, SEQ = 4096 };

static void open_world(struct step_world *w, int nodes, const char *stack,
                       int shared_ffn)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\n"
                     "model: {hidden: %d, layers: %d, heads: 16, ffn: 4096, "
                     "vocab: 32768, moe: {experts: 32, top_k: 4, ffn: 512, "
                     "shared: 1, shared_ffn: %d, shared_gate: true}}\n"
                     "cluster: {system: dgx-h100, nodes: %d}\n"
                     "workload: {seq: %d, global_batch: 64}\n",
                     H, LAYERS, shared_ffn, nodes, SEQ);
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

static struct mw_layout layout(int dp, int ep, bool is_beside)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = dp;
    l.ep = ep;
    l.dispatcher = MW_DISPATCH_ALLTOALL;
    l.overlap_shared_experts = is_beside;
    return l;
}

/* Seconds of the operators of a phase that are called one of two names. */
static double named_s(const struct mw_step_price *p, enum mw_phase phase,
                      const char *one, const char *other)
{
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    mw_step_unit_ops(p, MW_UNIT_MOE, phase, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        const struct mw_op *op = &ops.v[i];

        if (strcmp(op->name, one) == 0 || strcmp(op->name, other) == 0) {
            sum += op->kind == MW_OP_COLL
                       ? mw_step_coll_cost(p, op, NULL).time_s
                       : mw_cost_op(p->ctx, op, NULL).time_s;
        }
    }
    mw_array_release(&ops);
    return sum;
}

static double window_s(const struct mw_step_price *p, enum mw_phase phase,
                       bool is_second)
{
    return is_second ? named_s(p, phase, "shared_fc2", "shared_scale")
                     : named_s(p, phase, "shared_fc1", "shared_act") +
                           named_s(p, phase, "shared_gate", "");
}

/* Exposed exchanges of a phase, and what they would be. */
static double exposed_s(const struct mw_step_price *p, enum mw_phase phase)
{
    return p->cost[MW_UNIT_MOE].phase[phase].s[MW_LANE_EP];
}

/* On a stack that hides nothing itself. */
static void test_by_hand(void **state)
{
    static const int widths[] = {256, 2048, 8192};

    (void)state;
    for (int i = 0; i < 6; i++) {
        bool is_split = i >= 3;
        struct mw_layout l = layout(8, 8, true), alone;
        struct step_world w;

        l.pp = 2;
        l.schedule = is_split ? "zb-h1" : "1f1b";
        alone = l;
        alone.overlap_shared_experts = false;
        open_world(&w, 2, "megatron-core-serial", widths[i % 3]);
        struct mw_step_price a = step_priced(&w, &alone),
                             b = step_priced(&w, &l);
        double dispatch_s = named_s(&a, MW_PHASE_F, "dispatch", "");
        double combine_s = named_s(&a, MW_PHASE_F, "combine", "");
        double first_s = window_s(&a, MW_PHASE_F, false);
        double second_s = window_s(&a, MW_PHASE_F, true);

        mw_assert_near(exposed_s(&a, MW_PHASE_F) - exposed_s(&b, MW_PHASE_F),
                       fmin(dispatch_s, first_s) + fmin(combine_s, second_s),
                       1e-9, 0);
        first_s = window_s(&a, MW_PHASE_B, false) +
                  (is_split ? 0 : window_s(&a, MW_PHASE_W, false));
        second_s = window_s(&a, MW_PHASE_B, true) +
                   (is_split ? 0 : window_s(&a, MW_PHASE_W, true));
        mw_assert_near(
            exposed_s(&a, MW_PHASE_B) - exposed_s(&b, MW_PHASE_B),
            fmin(named_s(&a, MW_PHASE_B, "dispatch", ""), first_s) +
                fmin(named_s(&a, MW_PHASE_B, "combine", ""), second_s),
            1e-9, 0);
        for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
            mw_assert_near(b.cost[MW_UNIT_MOE].phase[phase].s[MW_LANE_COMPUTE],
                           a.cost[MW_UNIT_MOE].phase[phase].s[MW_LANE_COMPUTE],
                           0, 0);
        }
        step_world_close(&w);
    }
}

/* Never longer, on stacks that hide exchanges as well; recomputed layers hide
 * theirs once more; nothing without exchanges. */
static void test_steps(void **state)
{
    static const char *const stacks[] = {"megatron-core",
                                         "megatron-core-serial"};

    (void)state;
    for (int i = 0; i < 8; i++) {
        int nodes = 1 + i / 2 % 2, n = 8 * nodes;
        struct mw_layout l = layout(n, i < 6 ? n : 1, false);
        struct mw_step_result a, b;
        struct step_world w;

        l.micro_batch = 4; /* so that no pass waits for the host */
        l.recompute = i / 4 == 1 ? MW_RECOMPUTE_FULL : MW_RECOMPUTE_NONE;
        open_world(&w, nodes, stacks[i % 2], 2048);
        step_simulate(&a, &w.s, &l, &w.ctx, NULL);
        l.overlap_shared_experts = true;
        step_simulate(&b, &w.s, &l, &w.ctx, NULL);
        if (l.ep > 1) {
            assert_true(b.breakdown_s[MW_SPAN_EP] < a.breakdown_s[MW_SPAN_EP]);
        } else {
            assert_memory_equal(b.breakdown_s, a.breakdown_s,
                                sizeof a.breakdown_s);
        }
        assert_true(b.step_time_s <= a.step_time_s);
        assert_true(b.breakdown_s[MW_SPAN_EP] >= 0);
        step_forms_agree(&w, &l);
        mw_step_result_release(&a);
        mw_step_result_release(&b);
        step_world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
