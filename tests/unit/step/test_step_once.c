/*
 * Passes over gradients that a step makes once: their bytes by hand, what they
 * add to a step, and the numbers that ranks exchange.
 */
#include "mw_test.h"

#include "sim/step/step_int.h"
#include "step_fixture.h"

#include <math.h>

static void open_world(struct step_world *w, const char *dtype,
                       const char *clip)
{
    step_scenario_of(
        &w->s,
        "format: 1\nname: t\n"
        "model: {hidden: 1024, layers: 16, heads: 16, ffn: 4096, "
        "vocab: 32768}\n"
        "cluster: {system: dgx-a100, nodes: 2}\n"
        "workload: {seq: 512, global_batch: 16, dtype: %s, clip_grad: %s}\n",
        dtype, clip);
    step_world_price(w);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, "plain", NULL), MW_OK);
}

static struct mw_layout sharded(int tp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.dp = 16 / tp;
    l.zero = 1;
    return l;
}

/* 1000 parameters on the rank of which it updates 100, fp32 gradients: zeroed
 * 4000 bytes, read for the norm 400, read and written to be clipped 800; in
 * fp16 as much again to be unscaled, and a flag beside the sum. */
static void test_bytes(void **state)
{
    static const char *const dtypes[] = {"bf16", "fp16"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct step_world w;
        struct mw_step_price p;
        struct mw_layout l = sharded(2);

        open_world(&w, dtypes[i], "stack");
        mw_step_price_begin(&p, &w.s, &l, &w.ctx);
        struct mw_step_once once = mw_step_once_of(&p, 1000, 100);

        mw_assert_near(once.bytes[MW_ONCE_ZERO], 4000, 0, 0);
        mw_assert_near(once.bytes[MW_ONCE_SCALE], 0, 0, 0);
        mw_assert_near(once.bytes[MW_ONCE_UNSCALE], i * 800, 0, 0);
        mw_assert_near(once.bytes[MW_ONCE_NORM], 400, 0, 0);
        mw_assert_near(once.bytes[MW_ONCE_CLIP], 800, 0, 0);
        mw_assert_near(mw_step_once_bytes(&once), 5200 + i * 800, 0, 0);
        assert_int_equal(once.n_reduces, 1 + i);
        assert_int_equal(once.group.n_ranks, 16);
        assert_int_equal(once.group.n_nodes, 2);
        w.ctx.stack.combines = true; /* in the pass that clips */
        once = mw_step_once_of(&p, 1000, 100);
        mw_assert_near(mw_step_once_bytes(&once), 5200, 0, 0);
        assert_int_equal(once.n_reduces, 1 + i);
        w.ctx.stack.combines = false;
        w.ctx.stack.clips_above = true; /* as long as it is not */
        once = mw_step_once_of(&p, 1000, 100);
        mw_assert_near(mw_step_once_bytes(&once), 4400 + i * 800, 0, 0);
        w.ctx.stack.prescales = true;
        once = mw_step_once_of(&p, 1000, 100);
        mw_assert_near(once.bytes[MW_ONCE_SCALE], 8000, 0, 0);
        l.zero = 0; /* replicas have the same gradients */
        assert_int_equal(mw_step_once_of(&p, 1000, 1000).group.n_ranks, 2);
        step_world_close(&w);
    }
}

static double step_s(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_step_result r;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    mw_step_result_release(&r);
    return r.step_time_s;
}

/* A step that does not clip is shorter by three passes over the rank's share
 * and one all-reduce; without a rank beside it, by the passes over all. */
static void test_a_step(void **state)
{
    struct mw_layout l = sharded(1);
    struct step_world w;
    struct mw_step_price p;
    struct mw_group all = {16, 2, 8, 1};

    (void)state;
    open_world(&w, "bf16", "norm");
    mw_step_price_begin(&p, &w.s, &l, &w.ctx);
    double params = 16 * p.size[MW_UNIT_DENSE].dense_params +
                    p.size[MW_UNIT_EMBEDDING].dense_params +
                    p.size[MW_UNIT_HEAD].dense_params;
    double rate_Bps = w.ctx.gpu->mem_bw_Bps * w.ctx.gpu->mem_efficiency /
                      w.ctx.stack.elementwise;
    double clipped_s = step_s(&w, &l);

    w.s.workload.clip = MW_CLIP_NONE;
    double number_s = mw_cost_coll(&w.ctx, MW_ALL_REDUCE, 4, &all, NULL).time_s;
    assert_true(number_s > 1e-6);
    mw_assert_near(clipped_s - step_s(&w, &l),
                   params / 16 * 12 / rate_Bps + number_s, 1e-6, 0);
    step_world_close(&w);
}

/* The ledger has the exchange, whole in the step, and none without clipping or
 * on a machine that runs our executor. */
static void test_ledger(void **state)
{
    struct mw_layout l = sharded(2);
    struct step_world w;

    (void)state;
    open_world(&w, "fp16", "stack");
    struct mw_ledger_row row =
        step_ledger_row(&w, &l, MW_DIM_COUNT, MW_ALL_REDUCE);
    mw_assert_near(row.count, 2, 0, 0);
    mw_assert_near(row.message_bytes, 8, 0, 0);
    assert_int_equal(row.n_ranks, 16);
    assert_true(row.crosses_nodes && row.time_s > 0);
    assert_string_equal(mw_dim_name(row.dim), "all");
    w.s.workload.clip = MW_CLIP_NONE;
    row = step_ledger_row(&w, &l, MW_DIM_COUNT, MW_ALL_REDUCE);
    assert_true(row.count <= 0);
    struct mw_gpu cpu = *w.ctx.gpu;
    cpu.is_cpu = true;
    w.ctx.gpu = &cpu;
    w.s.workload.clip = MW_CLIP_NORM;
    row = step_ledger_row(&w, &l, MW_DIM_COUNT, MW_ALL_REDUCE);
    assert_true(row.count <= 0);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_a_step),
        cmocka_unit_test(test_ledger),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
