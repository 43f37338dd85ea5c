/*
 * The mechanisms beside pure work, on numbers worked out by hand: a host that
 * is slower than the device, transfers that other work hides, stragglers, and
 * what a step costs once. Each is switched on alone.
 */
#include "mw_test.h"

#include "step_fixture.h"
#include "step_units.h"

#include <math.h>

static void quiet(struct mw_cost_ctx *ctx)
{
    ctx->stack = (struct mw_stack){.name = "t",
                                   .elementwise = 1,
                                   .attention = 1,
                                   .attention_back = 1,
                                   .grouped = 1};
}

/* Host 1, 2, 3, 4 s for F, R, B, W; device 2, 1, 1, 1: F is device-bound, the
 * backward pass waits 9 - 3 = 6 s, shared as 2 : 3 : 4. */
static void test_host_wait(void **state)
{
    const double host_s[MW_PHASE_COUNT] = {1, 2, 3, 4};
    const double device_s[MW_PHASE_COUNT] = {2, 1, 1, 1};
    const double none[MW_PHASE_COUNT] = {0};
    double out[MW_PHASE_COUNT];

    (void)state;
    mw_host_wait(host_s, device_s, out);
    mw_assert_near(out[MW_PHASE_F], 0, 0, 0);
    mw_assert_near(out[MW_PHASE_R], 6 * 2 / 9.0, 1e-12, 0);
    mw_assert_near(out[MW_PHASE_B], 6 * 3 / 9.0, 1e-12, 0);
    mw_assert_near(out[MW_PHASE_W], 6 * 4 / 9.0, 1e-12, 0);
    mw_host_wait(none, device_s, out);
    mw_assert_near(out[MW_PHASE_W], 0, 0, 0);
}

/* 10 s of transfer: nothing hidden; 80 % behind enough work; 80 % of 5 s. */
static void test_exposed(void **state)
{
    (void)state;
    mw_assert_near(mw_step_exposed_s(10, 0, 100), 10, 0, 0);
    mw_assert_near(mw_step_exposed_s(10, 0.8, 100), 2, 1e-12, 0);
    mw_assert_near(mw_step_exposed_s(10, 0.8, 5), 6, 1e-12, 0);
}

struct world {
    struct mw_hwdb *db;
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
    struct mw_layout l;
};

static void begin(struct world *w, int dp)
{
    w->db = step_hwdb();
    step_scenario(&w->s, "dgx-a100", 1, 8, "bf16");
    step_ctx(&w->ctx, w->db, &w->s);
    quiet(&w->ctx);
    mw_layout_default(&w->l);
    w->l.dp = dp;
}

static void end(struct world *w)
{
    mw_scenario_release(&w->s);
    mw_hwdb_free(w->db);
}

static double step_s(const struct world *w, double *out_host_s)
{
    struct mw_step_result r;
    double time_s;

    step_simulate(&r, &w->s, &w->l, &w->ctx, NULL);
    time_s = r.step_time_s;
    if (out_host_s != NULL) {
        *out_host_s = r.breakdown_s[MW_SPAN_HOST];
    }
    mw_step_result_release(&r);
    return time_s;
}

/* With a host of 1 ms an operator, a step of m micro-batches takes the host's
 * time: operators of all passes x 1 ms x m, plus the tail. */
static void test_host_is_the_floor(void **state)
{
    struct world w;
    double host_s = 0;

    (void)state;
    begin(&w, 1);
    double device = step_s(&w, &host_s);
    mw_assert_near(host_s, 0, 0, 0);
    w.ctx.stack.host_op_s = 1e-3;
    double slow = step_s(&w, &host_s);
    w.ctx.stack.host_op_s = 2e-3;
    double slower = step_s(&w, NULL);
    struct mw_step_price p;
    double n_ops = 0;

    mw_step_price_begin(&p, &w.s, &w.l, &w.ctx);
    mw_step_price_units(&p, NULL);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        n_ops += (16 * p.cost[MW_UNIT_DENSE].phase[phase].host_s +
                  p.cost[MW_UNIT_EMBEDDING].phase[phase].host_s +
                  p.cost[MW_UNIT_HEAD].phase[phase].host_s) /
                 2e-3;
    }
    assert_true(n_ops > 16 * 20); /* at least 20 a layer */
    mw_assert_near(slower - slow, 8 * n_ops * 1e-3, 1e-9, 0);
    assert_true(host_s > 0.5 * slow && slow > 10 * device);
    end(&w);
}

/* The host's time, of operators and collectives alike, times the factor where
 * eight ranks are on two sockets; four are on one. */
static void test_host_on_two_sockets(void **state)
{
    struct world w;

    (void)state;
    for (int tp = 4; tp <= 8; tp *= 2) {
        double s[3];

        begin(&w, 8 / tp);
        w.l.tp = tp;
        w.ctx.stack.host_op_s = w.ctx.stack.host_coll_s = 1e-3;
        for (int i = 0; i < 3; i++) {
            w.ctx.stack.host_sockets = 1 + i;
            s[i] = step_s(&w, NULL);
        }
        if (tp == 4) {
            mw_assert_near(s[2], s[0], 0, 0);
        } else {
            assert_true(s[1] - s[0] > 0.9 * s[0]); /* nearly all is host */
            mw_assert_near(s[2] - s[1], s[1] - s[0], 1e-9, 0);
        }
        w.ctx.stack.binds = true;
        mw_assert_near(step_s(&w, NULL), s[0], 0, 0);
        end(&w);
    }
}

/* Tensor parallelism of 8. What the weight gradient hides of the backward
 * all-reduces is no more than it takes; a share of 0.8 of all collectives is
 * hidden by the rest of the pass, as far as that lasts. */
static void test_tensor_parallel_hides(void **state)
{
    struct world w;
    struct mw_step_price open, async, all;

    (void)state;
    begin(&w, 1);
    w.l.tp = 8;
    mw_step_price_begin(&open, &w.s, &w.l, &w.ctx);
    mw_step_price_units(&open, NULL);
    w.ctx.stack.overlap_tp_back = 1;
    mw_step_price_begin(&async, &w.s, &w.l, &w.ctx);
    mw_step_price_units(&async, NULL);
    w.ctx.stack.overlap_tp_back = 0;
    w.ctx.stack.overlap_tp = 0.8;
    mw_step_price_begin(&all, &w.s, &w.l, &w.ctx);
    mw_step_price_units(&all, NULL);
    for (int i = 0; i < MW_PHASE_COUNT; i++) {
        const struct mw_phase_cost *c = &open.cost[MW_UNIT_DENSE].phase[i];
        double tp_s = c->s[MW_LANE_TP], work_s = c->s[MW_LANE_COMPUTE];
        double weight_s =
            open.cost[MW_UNIT_DENSE].phase[MW_PHASE_W].s[MW_LANE_COMPUTE];

        mw_assert_near(async.cost[MW_UNIT_DENSE].phase[i].s[MW_LANE_TP],
                       i == MW_PHASE_B ? fmax(0, tp_s - weight_s) : tp_s, 1e-12,
                       1e-15);
        mw_assert_near(all.cost[MW_UNIT_DENSE].phase[i].s[MW_LANE_TP],
                       fmax(0.2 * tp_s, tp_s - 0.8 * work_s), 1e-12, 1e-15);
        assert_true(i == MW_PHASE_R || i == MW_PHASE_W || tp_s > 0);
    }
    end(&w);
}

/* Gradients of dp 8: exposed all, or a fifth where backward work is enough. */
static void test_reduction_hides(void **state)
{
    struct world w;

    (void)state;
    begin(&w, 8);
    double open = step_s(&w, NULL);
    w.ctx.stack.overlap_reduce = 1;
    mw_assert_near(step_s(&w, NULL), open, 0, 0); /* all in one bucket */
    w.ctx.stack.bucket = 1e6;
    w.ctx.stack.overlap_reduce = 0;
    open = step_s(&w, NULL);
    w.ctx.stack.overlap_reduce = 1;
    double least = step_s(&w, NULL);
    w.ctx.stack.overlap_reduce = 0.5;
    double half = step_s(&w, NULL);
    assert_true(least < open);
    assert_true(half < open && half > least);
    w.l.dp = 1; /* nothing to reduce */
    w.s.workload.global_batch = 1;
    w.ctx.stack.overlap_reduce = 0;
    double alone = step_s(&w, NULL);
    w.ctx.stack.overlap_reduce = 1;
    mw_assert_near(step_s(&w, NULL), alone, 0, 0);
    end(&w);
}

/* A layout that switches an overlap off takes as long as under a stack that
 * hides nothing of the kind, and longer than with it. */
static void test_overlap_is_switched_off(void **state)
{
    static const struct {
        int off, tp, zero;
    } cases[] = {{MW_OVERLAP_GRADS, 1, 0},  {MW_OVERLAP_PARAMS, 1, 1},
                 {MW_OVERLAP_TP, 2, 0},     {MW_OVERLAP_GRADS, 1, 3},
                 {MW_OVERLAP_PARAMS, 1, 3}, {7, 2, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        int off = cases[i].off;
        bool grads = (off & MW_OVERLAP_GRADS) != 0,
             params = (off & MW_OVERLAP_PARAMS) != 0;

        begin(&w, 8 / cases[i].tp);
        w.l.tp = cases[i].tp;
        w.l.zero = cases[i].zero;
        w.ctx.stack.bucket = 1e6;
        w.ctx.stack.overlap_reduce = w.ctx.stack.overlap_gather = 0.9;
        w.ctx.stack.overlap_tp = w.ctx.stack.overlap_tp_back = 0.5;
        w.ctx.stack.overlap_fsdp = 0.8;
        double beside = step_s(&w, NULL);
        w.l.overlap_off = off;
        double alone = step_s(&w, NULL);
        assert_true(alone > beside);
        w.l.overlap_off = 0;
        if ((off & MW_OVERLAP_TP) != 0) {
            w.ctx.stack.overlap_tp = w.ctx.stack.overlap_tp_back = 0;
        }
        w.ctx.stack.overlap_reduce = grads ? 0 : 0.9;
        w.ctx.stack.overlap_gather = params ? 0 : 0.9;
        if (grads && params) {
            w.ctx.stack.overlap_fsdp = 0;
        }
        double serial = step_s(&w, NULL);
        if (cases[i].zero < 2 || (grads && params)) {
            mw_assert_near(alone, serial, 0, 0);
        }
        end(&w);
    }
}

/* The same of exchanges with experts. */
static void test_exchanges_are_switched_off(void **state)
{
    struct world w;

    (void)state;
    begin(&w, 8);
    w.s.model.moe = (struct mw_moe){.n_experts = 16, .top_k = 2, .ffn = 1024};
    w.l.ep = 8;
    w.ctx.stack.overlap_ep = 0.7;
    double beside = step_s(&w, NULL);
    w.l.overlap_off = MW_OVERLAP_EP;
    double alone = step_s(&w, NULL);
    assert_true(alone > beside);
    w.l.overlap_off = 0;
    w.ctx.stack.overlap_ep = 0;
    mw_assert_near(step_s(&w, NULL), alone, 0, 0);
    end(&w);
}

/* A spread of 1 % over 8 ranks: all compute takes 2.0393 % longer. */
static void test_stragglers_slow_the_work(void **state)
{
    struct world w;
    struct mw_step_result r[2];

    (void)state;
    begin(&w, 8);
    step_simulate(&r[0], &w.s, &w.l, &w.ctx, NULL);
    w.ctx.stack.straggler = 0.01;
    step_simulate(&r[1], &w.s, &w.l, &w.ctx, NULL);
    mw_assert_near(r[1].breakdown_s[MW_SPAN_F] / r[0].breakdown_s[MW_SPAN_F],
                   1.020393, 1e-6, 0);
    mw_assert_near(r[1].breakdown_s[MW_SPAN_DP], r[0].breakdown_s[MW_SPAN_DP],
                   1e-9, 0);
    mw_step_result_release(&r[0]);
    mw_step_result_release(&r[1]);
    end(&w);
}

/* Seconds of a module's projection, as an operator alone. */
static double projection_s(const struct world *w, enum mw_pass pass)
{
    struct mw_step_price p;
    struct mw_ops ops = {NULL, 0, 0};
    double sum = 0;

    mw_step_price_begin(&p, &w->s, &w->l, &w->ctx);
    mw_mtp_ops(&p.work, pass, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        sum += mw_cost_op(&w->ctx, &ops.v[i], NULL).time_s;
    }
    mw_array_release(&ops);
    return sum;
}

/* A prediction module is a look-up, a projection, a layer and the head once
 * more, where the head is. */
static void test_prediction_modules(void **state)
{
    struct world w;
    struct step_unit_s layer, plain, more, look_up;

    (void)state;
    begin(&w, 1);
    look_up = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_EMBEDDING);
    layer = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_DENSE);
    plain = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_HEAD);
    w.s.model.n_mtp = 1;
    more = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_HEAD);
    mw_assert_near(more.f_s,
                   2 * plain.f_s + layer.f_s + look_up.f_s +
                       projection_s(&w, MW_PASS_F),
                   1e-12, 0);
    mw_assert_near(more.b_s,
                   2 * plain.b_s + layer.b_s + look_up.b_s +
                       projection_s(&w, MW_PASS_B),
                   1e-12, 0);
    mw_assert_near(more.w_s,
                   2 * plain.w_s + layer.w_s + look_up.w_s +
                       projection_s(&w, MW_PASS_W),
                   1e-12, 0);
    end(&w);
}

/* Once per step: 5 ms, and 10 bytes per parameter at the stream rate. */
static void test_fixed_cost(void **state)
{
    struct world w;
    struct mw_step_price p;
    double params;

    (void)state;
    begin(&w, 1);
    double bare = step_s(&w, NULL);
    w.ctx.stack.host_step_s = 5e-3;
    mw_assert_near(step_s(&w, NULL) - bare, 5e-3, 1e-9, 0);
    w.ctx.stack.host_step_s = 0;
    w.ctx.stack.step_param_bytes = 10;
    mw_step_price_begin(&p, &w.s, &w.l, &w.ctx);
    params = 16 * p.size[MW_UNIT_DENSE].dense_params +
             p.size[MW_UNIT_EMBEDDING].dense_params +
             p.size[MW_UNIT_HEAD].dense_params;
    mw_assert_near(step_s(&w, NULL) - bare,
                   10 * params /
                       (w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency),
                   1e-6, 0);
    end(&w);
}

/* Routing takes the device half of its time forward and half backward, and none
 * for weights. A sorted copy of what experts get is two passes over the routed
 * tokens in front of them and behind, in both directions; there is none where a
 * rank has one expert. */
static void test_routing(void **state)
{
    struct world w;

    (void)state;
    begin(&w, 8);
    w.s.model.moe = (struct mw_moe){.n_experts = 16, .top_k = 2, .ffn = 1024};
    w.l.ep = 8;
    struct step_unit_s bare = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_MOE);
    double routed = 2.0 * 2 * (double)w.s.workload.seq *
                    (double)w.s.model.hidden * w.l.micro_batch;
    double sort_s =
        2 * 2 * routed / (w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency);

    w.ctx.stack.moe_gap_s = 2e-3;
    struct step_unit_s gap = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_MOE);
    mw_assert_near(gap.f_s - bare.f_s, 1e-3, 1e-9, 0);
    mw_assert_near(gap.b_s - bare.b_s, 1e-3, 1e-9, 0);
    mw_assert_near(gap.w_s, bare.w_s, 0, 0);
    w.ctx.stack.moe_gap_s = 0;
    w.ctx.stack.sorts = true;
    struct step_unit_s sorted = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_MOE);
    mw_assert_near(sorted.f_s - bare.f_s, sort_s, 1e-6, 0);
    mw_assert_near(sorted.b_s - bare.b_s, sort_s, 1e-6, 0);
    mw_assert_near(sorted.w_s, bare.w_s, 0, 0);
    w.s.model.moe.n_experts = 8;
    sorted = step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_MOE);
    w.ctx.stack.sorts = false;
    mw_assert_near(sorted.f_s,
                   step_unit_cost(&w.s, &w.l, &w.ctx, MW_UNIT_MOE).f_s, 0, 0);
    end(&w);
}

/* Dividing gradients by the replicas reads and writes all that the rank holds
 * (none without replicas); an optimizer of tensor lists does not care how slow
 * the stack's element-wise kernels are. */
static void test_tail_of_megatron(void **state)
{
    struct world w;
    struct mw_step_price p;

    (void)state;
    begin(&w, 4);
    w.l.zero = 1;
    double bare = step_s(&w, NULL);
    mw_step_price_begin(&p, &w.s, &w.l, &w.ctx);
    double params = 16 * p.size[MW_UNIT_DENSE].dense_params +
                    p.size[MW_UNIT_EMBEDDING].dense_params +
                    p.size[MW_UNIT_HEAD].dense_params;
    double rate = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency;

    w.ctx.stack.prescales = true;
    mw_assert_near(step_s(&w, NULL) - bare, 2 * p.grad_bytes * params / rate,
                   1e-6, 0);
    w.ctx.stack.prescales = false;
    w.ctx.stack.elementwise = 2;
    double slow = step_s(&w, NULL);
    w.ctx.stack.tensor_lists = true;
    double update_s = (params / 4 * (p.grad_bytes + 24 + p.weight_bytes) +
                       params * p.grad_bytes) /
                      rate;
    mw_assert_near(slow - step_s(&w, NULL), update_s, 1e-3, 0);
    w.l.dp = 1;
    w.l.zero = 0;
    double alone = step_s(&w, NULL);
    w.ctx.stack.prescales = true;
    mw_assert_near(step_s(&w, NULL), alone, 0, 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_wait),
        cmocka_unit_test(test_exposed),
        cmocka_unit_test(test_host_is_the_floor),
        cmocka_unit_test(test_tensor_parallel_hides),
        cmocka_unit_test(test_reduction_hides),
        cmocka_unit_test(test_overlap_is_switched_off),
        cmocka_unit_test(test_exchanges_are_switched_off),
        cmocka_unit_test(test_host_on_two_sockets),
        cmocka_unit_test(test_stragglers_slow_the_work),
        cmocka_unit_test(test_prediction_modules),
        cmocka_unit_test(test_fixed_cost),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_tail_of_megatron)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
