/*
 * The loss as a choice: bytes of logits of each kind, head and loss in parts
 * (the same products, weights read once a part, a part's logits at a time), and
 * both forms.
 */
#include "mw_test.h"

#include "step_fixture.h"
#include "step_units.h"

#include <math.h>

/* Llama 3 8B on one sequence of 8192 tokens: vocabulary 128256, hidden 4096. */
#define TOKENS 8192.0
#define VOCAB 128256.0
#define HIDDEN 4096.0

static void open_world(struct step_world *w, const char *loss)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\nmodel: llama3-8b\n"
                     "cluster: {system: dgx-h100, nodes: 2}\n"
                     "workload: {seq: 8192, global_batch: 64%s}\n",
                     loss);
    step_world_price(w);
}

static struct mw_step_price price_of(const struct step_world *w,
                                     const struct mw_layout *l)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    mw_step_price_unit(&p, MW_UNIT_HEAD, NULL);
    return p;
}

static struct mw_layout replicas(void)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    return l;
}

/* What the head keeps beside the input of its norm and of its product, and what
 * the loss has beside that, in bytes of a logit. */
static void expect_logits(const char *loss, double kept, double peak)
{
    struct step_world w;
    struct mw_layout l = replicas();

    open_world(&w, loss);
    struct mw_step_price p = price_of(&w, &l);
    const struct mw_unit_size *size = &p.size[MW_UNIT_HEAD];

    mw_assert_near(size->activation_bytes - 2 * 2 * TOKENS * HIDDEN,
                   kept * TOKENS * VOCAB, 1e-9, 1);
    mw_assert_near(size->loss_bytes, (peak - kept) * TOKENS * VOCAB, 1e-9, 1);
    step_world_close(&w);
}

static void test_bytes_of_logits(void **state)
{
    (void)state;
    expect_logits(", loss: eager", 4, 6);
    expect_logits(", loss: fused", 2, 2);
    expect_logits(", loss: fused, loss_chunks: 8", 0, 2 / 8.0);
    expect_logits(", loss: eager, loss_chunks: 8", 0, 6 / 8.0);
}

static double sum(const struct mw_step_price *p, enum mw_phase phase, int what)
{
    const struct mw_phase_cost *c = &p->cost[MW_UNIT_HEAD].phase[phase];

    return what == 0   ? c->flops
           : what == 1 ? c->bytes[MW_LANE_COMPUTE]
                       : c->host_s / p->ctx->stack.host_op_s;
}

/* The same FLOPs; forward and backward read the weights once a part, and the
 * weight gradient reads and writes fp32 sums; three operators of the forward
 * pass (norm, product, loss) become one and two in each part. */
static void test_parts(void **state)
{
    struct step_world w;
    struct mw_layout l = replicas();
    const int n = 8;

    (void)state;
    open_world(&w, "");
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "megatron-core", NULL),
                     MW_OK);
    struct mw_step_price whole = price_of(&w, &l);

    w.s.workload.loss_chunks = n;
    struct mw_step_price parts = price_of(&w, &l);
    const double weights = VOCAB * HIDDEN;
    const double more[] = {2 * weights, 0, 2 * weights, 8 * weights};

    for (int phase = MW_PHASE_F; phase < MW_PHASE_COUNT; phase++) {
        enum mw_phase at = (enum mw_phase)phase;

        mw_assert_near(sum(&parts, at, 0), sum(&whole, at, 0), 1e-12, 0);
        mw_assert_near(sum(&parts, at, 1) - sum(&whole, at, 1),
                       (n - 1) * more[phase], 1e-9, 1);
    }
    mw_assert_near(sum(&whole, MW_PHASE_F, 2), 3, 1e-12, 0);
    mw_assert_near(sum(&parts, MW_PHASE_F, 2), 1 + 2 * n, 1e-12, 0);
    step_world_close(&w);
}

/* A kernel for each line moves 9 and 3 fp32 values more where a fused one moves
 * 1 and 1. */
static void test_eager_traffic(void **state)
{
    struct step_world w;
    struct mw_layout l = replicas();

    (void)state;
    open_world(&w, ", loss: fused");
    struct mw_step_price fused = price_of(&w, &l);

    w.s.workload.loss = MW_LOSS_EAGER;
    struct mw_step_price eager = price_of(&w, &l);

    mw_assert_near(sum(&eager, MW_PHASE_F, 1) - sum(&fused, MW_PHASE_F, 1),
                   8 * 4 * TOKENS * VOCAB, 1e-9, 0);
    mw_assert_near(sum(&eager, MW_PHASE_B, 1) - sum(&fused, MW_PHASE_B, 1),
                   2 * 4 * TOKENS * VOCAB, 1e-9, 0);
    step_world_close(&w);
}

/* Parts leave the stage's peak to its layers, and both forms say so. */
static void test_peak_and_forms(void **state)
{
    struct step_world w;
    struct mw_layout l = replicas();
    double fast_s, whole_bytes, parts_bytes;

    (void)state;
    open_world(&w, "");
    l.recompute = MW_RECOMPUTE_FULL;
    l.zero = 3;
    assert_int_equal(
        mw_step_estimate(&w.s, &l, NULL, &w.ctx, &fast_s, &whole_bytes, NULL),
        MW_OK);
    w.s.workload.loss_chunks = 16;
    step_forms_agree(&w, &l);
    assert_int_equal(
        mw_step_estimate(&w.s, &l, NULL, &w.ctx, &fast_s, &parts_bytes, NULL),
        MW_OK);
    assert_true(parts_bytes < whole_bytes - 2 * TOKENS * VOCAB);
    l.zero = 1;
    l.tp = 2;
    l.sp = true;
    l.pp = 2;
    l.dp = 4;
    step_forms_agree(&w, &l);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_logits),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_eager_traffic),
        cmocka_unit_test(test_peak_and_forms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
