/*
 * Communication beside computation, on numbers worked out by hand and against
 * a simulation in small steps of time: what shows of it, and how much longer
 * the work takes while it runs. Then that a step carries those seconds, once.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/coll/coll_library.h"
#include "step_fixture.h"
#include "sim/step/step_int.h"

#include <math.h>

/* 10 s of transfer, four fifths of which 100 s of work can hide; the work done
 * beside it takes 1.25 of its time: 8 s hidden, 6.4 s of work done meanwhile,
 * which took 1.6 s longer. Of 4 s of work that hide all they can, 5 s are
 * hidden; work and rest take what the transfer takes. */
static void test_by_hand(void **state)
{
    struct mw_overlapped at = mw_step_beside(10, 0.8, 100, 0.25);

    (void)state;
    mw_assert_near(at.shown_s, 2, 1e-12, 0);
    mw_assert_near(at.hidden_s, 8, 1e-12, 0);
    mw_assert_near(at.slowed_s, 1.6, 1e-12, 0);
    at = mw_step_beside(10, 1, 4, 0.25);
    mw_assert_near(at.hidden_s, 5, 1e-12, 0);
    mw_assert_near(4 + at.slowed_s + at.shown_s, 10, 1e-12, 0);
    at = mw_step_beside(10, 0, 4, 0.25);
    mw_assert_near(at.shown_s, 10, 0, 0);
    mw_assert_near(at.slowed_s, 0, 0, 0);
}

/* Steps of 1e-4 s: the transfer starts with the work, which runs at 1 / (1 + g)
 * meanwhile. */
static double stepped_s(double transfer_s, double work_s, double growth)
{
    const double dt = 1e-4;
    double beside = transfer_s, done = 0, t = 0;

    while (done < work_s || beside > 0) {
        bool is_beside = beside > 0;

        done += done < work_s ? dt / (is_beside ? 1 + growth : 1) : 0;
        beside -= dt;
        t += dt;
    }
    return t;
}

/* Never shorter than the longer of the two nor longer than both; and all that
 * can be hidden hidden, what a simulation says. */
static void test_against_steps(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        double t = 0.1 + mw_rand_unit(3, 1, i), w = 0.1 + mw_rand_unit(3, 2, i);
        double g = mw_rand_unit(3, 3, i), o = mw_rand_unit(3, 4, i);
        struct mw_overlapped some = mw_step_beside(t, o, w, g);
        struct mw_overlapped all = mw_step_beside(t, 1, w, g);
        double both = w + some.shown_s + some.slowed_s;

        assert_true(both > fmax(w, t) - 1e-12 && both < w + t + 1e-12);
        mw_assert_near(some.shown_s + some.hidden_s, t, 1e-12, 0);
        mw_assert_near(w + all.shown_s + all.slowed_s, stepped_s(t, w, g), 0,
                       2e-3);
    }
}

static void open_world(struct step_world *w, const char *system, int nodes)
{
    step_scenario_of(
        &w->s,
        "format: 1\nname: t\n"
        "model: {hidden: 4096, layers: 8, heads: 32, kv_heads: 8, ffn: 14336, "
        "vocab: 32768}\n"
        "cluster: {system: %s, nodes: %d}\n"
        "workload: {seq: 4096, global_batch: 64, dtype: bf16}\n",
        system, nodes);
    w->db = step_hwdb();
    mw_coll_library_lend(w->db);
    step_ctx(&w->ctx, w->db, &w->s);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, "plain", NULL), MW_OK);
}

/* 132 multiprocessors of which 33 are taken: a third more for products. Half of
 * the bandwidth gone, at most: as long again for what memory bounds. */
static void test_growth(void **state)
{
    struct step_world w;
    struct mw_step_price p = {.ctx = &w.ctx};

    (void)state;
    open_world(&w, "dgx-h100", 1);
    double bw_Bps = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency;
    struct mw_comm_load load = {1, bw_Bps / 5, 33 * bw_Bps / 5};
    struct mw_comm_load wide = {1, 9 * bw_Bps, 9 * 120 * bw_Bps};
    struct mw_comm_load none = {1, 0, 0};

    assert_int_equal(w.ctx.gpu->n_sms, 132);
    mw_assert_near(mw_step_growth(&p, &load, 1), 1.0 / 3, 1e-12, 0);
    mw_assert_near(mw_step_growth(&p, &load, 0), 0.25, 1e-12, 0);
    mw_assert_near(mw_step_growth(&p, &load, 0.5), (1.0 / 3 + 0.25) / 2, 1e-12,
                   0);
    mw_assert_near(mw_step_growth(&p, &wide, 0.3), 1, 1e-12, 0);
    /* Of 8 s of work 6 are slowed, 3 of them as products are. */
    mw_assert_near(mw_step_work_growth(&p, &load, 8, 6, 3),
                   (3 * (1.0 / 3) + 3 * 0.25) / 8, 1e-12, 0);
    mw_assert_near(mw_step_work_growth(&p, &load, 8, 0, 0), 0, 0, 0);
    mw_assert_near(mw_step_growth(&p, &none, 0.5), 0, 0, 0);
    step_world_close(&w);
}

/* A reduce-scatter of S bytes over 8 ranks reads and writes 3 x 7/8 S, with
 * NCCL's channels or the stack's own; on a stack that does not contend, or
 * alone, nothing. */
static void test_loads(void **state)
{
    struct step_world w;
    struct mw_step_price p = {.ctx = &w.ctx};
    struct mw_group eight = {8, 1, 8, 1}, one = {1, 1, 1, 1};
    struct mw_comm_load load = {0};

    (void)state;
    open_world(&w, "dgx-h100", 1);
    double channels = mw_cost_coll_sms(&w.ctx, MW_REDUCE_SCATTER, &eight);
    assert_true(channels >= 8 && channels <= 32);
    mw_step_load_add(&p, MW_REDUCE_SCATTER, MW_DIM_DP, 800, &eight, &load);
    mw_assert_near(load.bytes, 2100, 1e-12, 0);
    mw_assert_near(load.sm_bytes, 2100 * channels, 1e-12, 0);
    w.ctx.stack.tp_reduce_sms = 4;
    mw_step_load_add(&p, MW_REDUCE_SCATTER, MW_DIM_TP, 800, &eight, &load);
    mw_assert_near(load.bytes, 4200, 1e-12, 0);
    mw_assert_near(load.sm_bytes, 2100 * (channels + 4), 1e-12, 0);
    mw_step_load_add(&p, MW_ALL_REDUCE, MW_DIM_DP, 800, &one, &load);
    w.ctx.stack.contends = false;
    mw_step_load_add(&p, MW_ALL_REDUCE, MW_DIM_DP, 800, &eight, &load);
    mw_assert_near(load.bytes, 4200, 1e-12, 0);
    step_world_close(&w);
}

static double time_s(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_step_result r;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    mw_step_result_release(&r);
    return r.step_time_s;
}

/* Of a sharded layer a part o of t is hidden by work that is long enough; o t
 * is slowed by what the gather's channels and bytes take. */
static void test_sharded_layer(void **state)
{
    struct mw_step_price with, without;
    struct mw_layout l;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    mw_layout_default(&l);
    l.dp = 8;
    l.zero = 3;
    w.ctx.stack.overlap_fsdp = 0.8;
    mw_step_price_begin(&with, &w.s, &l, &w.ctx);
    mw_step_price_units(&with, NULL);
    w.ctx.stack.contends = false;
    mw_step_price_begin(&without, &w.s, &l, &w.ctx);
    mw_step_price_units(&without, NULL);
    const struct mw_phase_cost *a = &with.cost[MW_UNIT_DENSE].phase[MW_PHASE_F];
    const struct mw_phase_cost *b =
        &without.cost[MW_UNIT_DENSE].phase[MW_PHASE_F];
    double gather_s = b->s[MW_LANE_DP] / 0.2, hidden_s = 0.8 * gather_s;
    double weights = a->bytes[MW_LANE_DP];
    struct mw_comm_load load = {.time_s = gather_s};

    w.ctx.stack.contends = true;
    mw_step_load_add(&with, MW_ALL_GATHER, MW_DIM_DP, weights, &with.grad_group,
                     &load);
    double g =
        mw_step_growth(&with, &load, b->matrix_s / b->s[MW_LANE_COMPUTE]);
    assert_true(g > 0.05 && g < 0.5);
    mw_assert_near(a->s[MW_LANE_DP], b->s[MW_LANE_DP], 1e-12, 0);
    mw_assert_near(a->s[MW_LANE_COMPUTE] - b->s[MW_LANE_COMPUTE],
                   hidden_s * g / (1 + g), 1e-9, 0);
    step_world_close(&w);
}

/* Both forms slow down alike, whatever is hidden; nothing hidden, nothing
 * slower. */
static void test_a_step(void **state)
{
    static const int zeros[] = {0, 1, 2, 3};
    struct mw_layout l;
    struct step_world w;

    (void)state;
    open_world(&w, "dgx-h100", 2);
    mw_layout_default(&l);
    l.tp = 2;
    l.sp = true;
    l.dp = 8;
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++) {
        l.zero = zeros[i];
        w.ctx.stack.overlap_fsdp = w.ctx.stack.overlap_tp = 0.7;
        w.ctx.stack.overlap_reduce = w.ctx.stack.overlap_gather = 0.7;
        w.ctx.stack.bucket = 1e7;
        w.ctx.stack.contends = true;
        double slow = step_forms_agree(&w, &l);
        w.ctx.stack.contends = false;
        double quick = step_forms_agree(&w, &l);

        assert_true(slow > quick && slow < 1.2 * quick);
        w.ctx.stack.overlap_fsdp = w.ctx.stack.overlap_tp = 0;
        w.ctx.stack.overlap_reduce = w.ctx.stack.overlap_gather = 0;
        double open = time_s(&w, &l);
        assert_true(open > slow);
        w.ctx.stack.contends = true;
        mw_assert_near(time_s(&w, &l), open, 0, 0);
    }
    step_world_close(&w);
}

/* Units of several layers: what their gathers and scatters hide is slowed alike
 * where the wire is the shorter side. */
static void test_wrapped_layers(void **state)
{
    struct mw_layout l;
    struct step_world w;
    double added_s[2];

    (void)state;
    open_world(&w, "dgx-h100", 1);
    mw_layout_default(&l);
    l.dp = 8;
    l.zero = 3;
    w.ctx.stack.overlap_fsdp = 0.8;
    for (int i = 0; i < 2; i++) {
        if (i == 1) { /* otherwise as the stack does */
            l.fsdp_unit = 1;
            l.fsdp_prefetch = 1;
            l.reshard = true;
        }
        w.ctx.stack.contends = true;
        added_s[i] = step_forms_agree(&w, &l);
        w.ctx.stack.contends = false;
        added_s[i] -= step_forms_agree(&w, &l);
        assert_true(added_s[i] > 0);
    }
    mw_assert_near(added_s[1], added_s[0], 0.3, 0);
    step_world_close(&w);
}

/* Products of a layer beside collectives of tp, in 4 parts of a quarter of the
 * rows each; a quarter of the collectives has nothing beside it. */
static void test_parts(void **state)
{
    struct mw_step_price cut, whole;
    struct mw_layout l;
    struct step_world w;
    struct mw_ops ops = {NULL, 0, 0};
    double more_s = 0;

    (void)state;
    open_world(&w, "dgx-h100", 1);
    w.ctx.stack.contends = false;
    mw_layout_default(&l);
    l.tp = 4;
    l.dp = 2;
    l.sp = true;
    w.ctx.stack.overlap_tp = 0.8;
    mw_step_price_begin(&whole, &w.s, &l, &w.ctx);
    mw_step_price_units(&whole, NULL);
    w.ctx.stack.chunks_tp = true;
    mw_step_price_begin(&cut, &w.s, &l, &w.ctx);
    mw_step_price_units(&cut, NULL);
    mw_step_unit_ops(&cut, MW_UNIT_DENSE, MW_PHASE_F, &ops);
    for (size_t i = 0; i < ops.n; i++) {
        struct mw_op op = ops.v[i];

        if (op.kind == MW_OP_GEMM) { /* all four have a collective */
            double all_s = mw_cost_op(&w.ctx, &op, NULL).time_s;

            op.bytes -=
                0.75 * 2 * (double)op.m * (double)(op.n + op.k); /* bf16 */
            op.m /= 4;
            op.flops /= 4;
            more_s += fmax(0, 4 * mw_cost_op(&w.ctx, &op, NULL).time_s - all_s);
        }
    }
    mw_array_release(&ops);
    const struct mw_phase_cost *a = &cut.cost[MW_UNIT_DENSE].phase[MW_PHASE_F];
    const struct mw_phase_cost *b =
        &whole.cost[MW_UNIT_DENSE].phase[MW_PHASE_F];

    assert_true(more_s > 0);
    mw_assert_near(a->s[MW_LANE_COMPUTE] - b->s[MW_LANE_COMPUTE], more_s, 1e-9,
                   0);
    mw_assert_near(a->s[MW_LANE_TP] / b->s[MW_LANE_TP], (1 - 0.8 * 0.75) / 0.2,
                   1e-9, 0);
    /* Reductions of input gradients are not cut. */
    mw_assert_near(
        cut.cost[MW_UNIT_DENSE].phase[MW_PHASE_W].s[MW_LANE_COMPUTE],
        whole.cost[MW_UNIT_DENSE].phase[MW_PHASE_W].s[MW_LANE_COMPUTE], 0, 0);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_against_steps),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_sharded_layer),
        cmocka_unit_test(test_a_step),
        cmocka_unit_test(test_wrapped_layers),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
