/*
 * ZeRO-3 as DeepSpeed 0.3.17 did it: gradients summed by an all-reduce, and
 * weights that are freed between recomputation and the backward pass where too
 * many others are used in between (stage3.py, _keep_for_later).
 */
#include "mw_test.h"

#include "sim/step/ledger.h"
#include "sim/step/step_int.h"
#include "step_fixture.h"

enum { LAYERS = 16, REPLICAS = 32, PASSES = 2, SLICES = 20000 };

static const char *const stack = "megatron-deepspeed-zero3";

static void open_world(struct step_world *w)
{
    step_scenario(&w->s, "dgx-a100", 4, 128, "bf16");
    step_world_price(w);
    assert_int_equal(mw_cost_ctx_set_stack(&w->ctx, stack, NULL), MW_OK);
}

/* 2 micro-batches of 2. */
static struct mw_layout layout(enum mw_recompute recompute)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = REPLICAS;
    l.micro_batch = 2;
    l.zero = 3;
    l.recompute = recompute;
    return l;
}

static double again(const struct step_world *w, const struct mw_layout *l,
                    enum mw_step_unit unit, double *params)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    *params = p.size[unit].dense_params;
    return mw_zero_again(&p, unit);
}

/* A layer's parameters in slices, brought back in order and used again in
 * reverse: between the end of a slice's forward use and its backward use lie
 * all later ones twice. */
static double brute_force(double params, double reuse)
{
    double slice = params / SLICES, freed = 0;

    for (int i = 0; i < SLICES; i++) {
        double between = 2 * slice * (SLICES - 1 - i);

        freed += between >= reuse ? slice : 0;
    }
    return freed / params;
}

static void test_what_is_freed_is_gathered_again(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout full = layout(MW_RECOMPUTE_FULL);
    double params, any;

    (void)again(&w, &full, MW_UNIT_DENSE, &params);
    for (double part = 0.125; part < 3; part *= 2) {
        w.ctx.stack.reuse_params = part * params;
        mw_assert_near(again(&w, &full, MW_UNIT_DENSE, &any),
                       brute_force(params, part * params), 0, 2.0 / SLICES);
    }
    w.ctx.stack.reuse_params = 0; /* no limit: all is kept */
    assert_true(again(&w, &full, MW_UNIT_DENSE, &any) == 0);
    step_world_close(&w);
}

/* Nothing comes back without recomputation, and nothing is freed that the
 * layout keeps; embeddings are in no checkpoint. */
static void test_who_gathers_twice_alone(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout kept = layout(MW_RECOMPUTE_FULL),
                     none = layout(MW_RECOMPUTE_NONE),
                     full = layout(MW_RECOMPUTE_FULL);
    double any;

    kept.reshard = false;
    w.ctx.stack.reuse_params = 1;
    assert_true(again(&w, &full, MW_UNIT_DENSE, &any) > 0.999);
    assert_true(again(&w, &full, MW_UNIT_EMBEDDING, &any) == 0);
    assert_true(again(&w, &kept, MW_UNIT_DENSE, &any) == 0);
    assert_true(again(&w, &none, MW_UNIT_DENSE, &any) == 0);
    step_world_close(&w);
}

/* Per micro-batch: all weights in both passes and a quarter of those of the
 * layers once more; all gradients in one all-reduce, where others scatter. */
static void test_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout full = layout(MW_RECOMPUTE_FULL);
    double layer, weights = 2;

    (void)again(&w, &full, MW_UNIT_DENSE, &layer);
    w.ctx.stack.reuse_params = 0;
    struct mw_ledger_row twice =
        step_ledger_row(&w, &full, MW_DIM_DP, MW_ALL_GATHER);
    struct mw_ledger_row sum =
        step_ledger_row(&w, &full, MW_DIM_DP, MW_ALL_REDUCE);

    w.ctx.stack.reuse_params = 0.75 * 2 * layer;
    struct mw_ledger_row more =
        step_ledger_row(&w, &full, MW_DIM_DP, MW_ALL_GATHER);

    mw_assert_near(more.message_bytes - twice.message_bytes,
                   PASSES * LAYERS * 0.25 * weights * layer, 1e-12, 0);
    assert_true(
        step_ledger_row(&w, &full, MW_DIM_DP, MW_REDUCE_SCATTER).count == 0);
    w.ctx.stack.sums_whole = false;
    struct mw_ledger_row scatter =
        step_ledger_row(&w, &full, MW_DIM_DP, MW_REDUCE_SCATTER);

    mw_assert_near(sum.message_bytes, scatter.message_bytes, 1e-12, 0);
    mw_assert_near(sum.wire_bytes, 2 * scatter.wire_bytes, 1e-12, 0);
    step_world_close(&w);
}

/* Both forms know them, and each costs time where nothing hides it. */
static void test_times(void **state)
{
    struct step_world w;
    double last_s = 0;

    (void)state;
    open_world(&w);
    struct mw_layout full = layout(MW_RECOMPUTE_FULL);

    w.ctx.stack.overlap_fsdp = 0;
    for (int k = 0; k < 3; k++) {
        w.ctx.stack.reuse_params = k > 0 ? 1 : 0;
        w.ctx.stack.sums_whole = k > 1;
        double step_s = step_forms_agree(&w, &full);

        assert_true(step_s > 1.02 * last_s);
        last_s = step_s;
    }
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_freed_is_gathered_again),
        cmocka_unit_test(test_who_gathers_twice_alone),
        cmocka_unit_test(test_counts), cmocka_unit_test(test_times)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
