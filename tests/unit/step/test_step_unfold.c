/*
 * The step with every rank simulated: ranks that are alike give the folded
 * event form to the picosecond (any layout, stack, schedule, shared wires), and
 * slower ranks give what can be worked out by hand.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/coll/coll_library.h"
#include "sim/step/unfold.h"
#include "step_fixture.h"
#include "step_units.h"

#include <math.h>

enum { SEED = 23, TRIES = 20000, WANTED = 120 };

static int draw_int(uint64_t i, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(SEED, stream, i) % (uint64_t)n);
}

static bool draw(struct mw_layout *l, const struct mw_scenario *s, uint64_t i)
{
    static const char *const kinds[] = {"1f1b",  "interleaved-1f1b", "gpipe",
                                        "zb-h1", "dualpipe",         "zb-v"};

    mw_layout_default(l);
    l->tp = 1 << draw_int(i, 1, 4);
    l->cp = 1 << (draw_int(i, 2, 4) == 0);
    l->pp = 1 << draw_int(i, 3, 5);
    l->dp = 32 / (l->tp * l->cp * l->pp);
    l->micro_batch = 1 << draw_int(i, 4, 2);
    l->sp = draw_int(i, 5, 2) == 0 && l->tp > 1;
    l->zero = draw_int(i, 6, 4);
    l->recompute = (enum mw_recompute)draw_int(i, 7, 3);
    l->schedule = kinds[draw_int(i, 8, 6)];
    l->vpp = strcmp(l->schedule, "interleaved-1f1b") == 0 ||
                     strcmp(l->schedule, "zb-v") == 0
                 ? 2
                 : 1;
    if (s->model.moe.n_experts > 0) {
        l->sp = l->tp > 1;
        l->ep = 1 << draw_int(i, 9, 3);
    }
    return l->dp >= 1 &&
           mw_layout_check(l, &s->model, &s->workload, 32, NULL, NULL) == MW_OK;
}

static const char *stack_of(uint64_t i)
{
    size_t n = 0;

    while (mw_stack_name(n) != NULL) {
        n++;
    }
    return mw_stack_name(i % n);
}

static bool compare(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result folded;
    struct mw_unfold all;
    struct mw_plan plan;

    if (mw_plan_make(&w->s, l, NULL, &plan, NULL) != MW_OK) {
        return false;
    }
    assert_int_equal(
        mw_step_simulate(&w->s, &plan, &w->ctx, &opts, &folded, NULL), MW_OK);
    assert_int_equal(mw_step_unfold(&w->s, &plan, &w->ctx, NULL, &all, NULL),
                     MW_OK);
    if (all.step_time_s != folded.step_time_s) {
        fail_msg("tp%d cp%d pp%d dp%d ep%d zero%d %s %s: folded %.12g s, all "
                 "ranks %.12g s",
                 l->tp, l->cp, l->pp, l->dp, l->ep, l->zero, l->schedule,
                 w->ctx.stack.name, folded.step_time_s, all.step_time_s);
    }
    assert_int_equal(all.n_ranks, 32);
    mw_step_result_release(&folded);
    mw_plan_release(&plan);
    return true;
}

static void run(const char *model)
{
    int n = 0;

    for (uint64_t i = 0; n < WANTED && i < TRIES; i++) {
        struct step_world w;
        struct mw_layout l;

        step_scenario_of(
            &w.s,
            "format: 1\nname: t\nmodel: %s\n"
            "cluster: {system: dgx-h100, nodes: 4}\n"
            "workload: {seq: 512, global_batch: 64, dtype: bf16}\n",
            model);
        if (draw(&l, &w.s, i)) {
            step_world_price(&w);
            mw_coll_library_lend(w.db);
            mw_cost_ctx_take_curves(&w.ctx);
            assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, stack_of(i), NULL),
                             MW_OK);
            w.ctx.net_speed = i % 5 == 0 ? 1.0 / 8 : 1;
            n += compare(&w, &l);
            step_world_close(&w);
        } else {
            mw_scenario_release(&w.s);
        }
    }
    assert_int_equal(n, WANTED);
}

static void test_alike(void **state)
{
    (void)state;
    run("{hidden: 1024, layers: 16, heads: 16, ffn: 4096, vocab: 32768, "
        "max_seq: 512, gated: false, norm: layer, position: learned, "
        "tied: true}");
    run("{hidden: 1024, layers: 16, heads: 16, kv_heads: 8, ffn: 4096, vocab: "
        "32768, max_seq: 512, gated: true, norm: rms, position: rotary, tied: "
        "false, moe: {experts: 8, top_k: 2, ffn: 2048}}");
}

static double step_with(const struct step_world *w, const struct mw_layout *l,
                        int slow, double pace_of_it)
{
    double pace[32];
    struct mw_unfold all;
    struct mw_plan plan;

    for (int i = 0; i < 32; i++) {
        pace[i] = i == slow ? pace_of_it : 1;
    }
    step_plan(&plan, &w->s, l);
    assert_int_equal(mw_step_unfold(&w->s, &plan, &w->ctx, pace, &all, NULL),
                     MW_OK);
    mw_plan_release(&plan);
    return all.step_time_s;
}

/* Data parallel alone, on the plain stack: everyone waits for the slow rank at
 * the reduction. Its passes take half as long again, the rest is as it was; and
 * it does not matter which rank it is. Of a tensor parallel group all members
 * wait in each layer, and the others at the end: the same. */
static void test_slow_rank(void **state)
{
    struct step_world w;
    struct mw_layout l;

    (void)state;
    step_scenario(&w.s, "dgx-h100", 4, 64, "bf16");
    step_world_price(&w);
    for (int tp = 1; tp <= 4; tp *= 4) {
        mw_layout_default(&l);
        l.tp = tp;
        l.dp = 32 / tp;
        double even = step_with(&w, &l, -1, 1);
        double half = step_with(&w, &l, 5, 1.5),
               twice = step_with(&w, &l, 5, 2);

        assert_true(half > even);
        mw_assert_near(twice - even, 2 * (half - even), 1e-9, 0);
        mw_assert_near(step_with(&w, &l, 26, 1.5), half, 0, 0);
        mw_assert_near(step_with(&w, &l, 26, 0.5), even, 0, 0);
    }
    step_world_close(&w);
}

/* A pipeline hides a slow rank of one stage no more than its share: with stages
 * alike, m passes take so much longer, and the other replicas wait. */
static void test_slow_stage(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct step_unit_s layer;

    (void)state;
    step_scenario(&w.s, "dgx-h100", 4, 64, "bf16");
    step_world_price(&w);
    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 8;
    layer = step_unit_cost(&w.s, &l, &w.ctx, MW_UNIT_DENSE);
    double even = step_with(&w, &l, -1, 1);
    double more = step_with(&w, &l, 8, 2) - even; /* stage 1, replica 0 */
    double pass = 4 * (layer.f_s + layer.b_s + layer.w_s);

    assert_true(more > 0.5 * 8 * pass && more < 1.1 * 8 * pass);
    step_world_close(&w);
}

static void test_too_many(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct mw_unfold all;
    struct mw_err err = {0};
    struct mw_plan plan;

    (void)state;
    step_scenario(&w.s, "dgx-h100", 4096, 4194304, "bf16");
    step_world_price(&w);
    mw_layout_default(&l);
    l.tp = 8;
    l.dp = 4096;
    step_plan(&plan, &w.s, &l);
    assert_int_equal(mw_step_unfold(&w.s, &plan, &w.ctx, NULL, &all, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "every rank simulated takes about"));
    mw_plan_release(&plan);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alike), cmocka_unit_test(test_slow_rank),
        cmocka_unit_test(test_slow_stage), cmocka_unit_test(test_too_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
