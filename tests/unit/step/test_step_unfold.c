/*
 * The step with every rank simulated: ranks that are alike give the folded
 * event form to the picosecond (any layout, stack, schedule, shared wires), and
 * slower ranks give what can be worked out by hand.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/coll/coll_library.h"
#include "sim/step/step_int.h"
#include "sim/step/unfold.h"
#include "step_fixture.h"

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
    l->dp_shard =
        l->zero > 0 && draw_int(i, 10, 2) == 0 ? 1 << draw_int(i, 11, 4) : 0;
    l->recompute = (enum mw_recompute)draw_int(i, 7, 3);
    if (l->zero < 2 && draw_int(i, 20, 2) == 0) {
        l->bucket_size = 1 << (14 + draw_int(i, 21, 14));
    }
    if (l->zero == 3 && draw_int(i, 22, 2) == 0) {
        l->fsdp_unit = draw_int(i, 23, 6);
        l->fsdp_prefetch = draw_int(i, 24, 4) - 1;
    }
    l->schedule = kinds[draw_int(i, 8, 6)];
    l->vpp = strcmp(l->schedule, "interleaved-1f1b") == 0 ||
                     strcmp(l->schedule, "zb-v") == 0
                 ? 2
                 : 1;
    if (s->model.moe.n_experts > 0) {
        l->sp = l->tp > 1;
        l->ep = 1 << draw_int(i, 9, 3);
    }
    l->mtp_ahead =
        s->model.n_mtp > 0 && l->pp * l->vpp > 2 && draw_int(i, 22, 2) == 0;
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

/* One stage slower: the folded step with a pace of its stages is the unfolded
 * one with that pace of all their ranks. */
static void compare_slow(const struct step_world *w, const struct mw_plan *plan)
{
    const struct mw_layout *l = &plan->layout;
    double stage_pace[32], pace[32];
    struct mw_step_opts opts = {.no_breakdown = true, .stage_pace = stage_pace};
    struct mw_step_result folded;
    struct mw_unfold all;

    for (int d = 0; d < l->pp; d++) {
        stage_pace[d] = d == l->pp / 2 ? 1.25 : 1;
    }
    for (int rank = 0; rank < 32; rank++) {
        pace[rank] = stage_pace[mw_layout_coord(l, rank).pp];
    }
    assert_int_equal(
        mw_step_simulate(&w->s, plan, &w->ctx, &opts, &folded, NULL), MW_OK);
    assert_int_equal(mw_step_unfold(&w->s, plan, &w->ctx, pace, &all, NULL),
                     MW_OK);
    assert_true(all.step_time_s == folded.step_time_s);
    mw_step_result_release(&folded);
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
    compare_slow(w, &plan);
    mw_step_result_release(&folded);
    mw_plan_release(&plan);
    return true;
}

/* One database for all draws: its curves are priced once. */
static void run(const char *model)
{
    struct step_world w;
    int n = 0;

    step_scenario_of(&w.s,
                     "format: 1\nname: t\nmodel: %s\n"
                     "cluster: {system: dgx-h100, nodes: 4}\n"
                     "workload: {seq: 512, global_batch: 64, dtype: bf16}\n",
                     model);
    step_world_price(&w);
    mw_coll_library_lend(w.db);
    mw_cost_ctx_take_curves(&w.ctx);
    for (uint64_t i = 0; n < WANTED && i < TRIES; i++) {
        struct mw_layout l;

        if (draw(&l, &w.s, i)) {
            assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, stack_of(i), NULL),
                             MW_OK);
            w.ctx.net_speed = i % 5 == 0 ? 1.0 / 8 : 1;
            n += compare(&w, &l);
        }
    }
    step_world_close(&w);
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
        "false, attention_window: 128, global_every: 3, moe: {experts: 8, "
        "top_k: 2, ffn: 2048}, mtp: 1}");
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

/*
 * 1F1B over four stages of as many layers, m micro-batches; f, b forward and
 * backward pass of a stage (stage 0 with the embedding, 3 with the head), c a
 * transfer. The head's stage is the longest: the others wait for it,
 *
 *   T = f0 + f1 + f2 + 3 c + m (f3 + b3) + 3 c + b2 + b1 + b0
 *
 * With a rank of stage 1 at twice its time its pipeline works at that stage's
 * pace, once its first backward pass can begin: three passes forward are its
 * warm-up, the way to the last stage and back may take longer than the other
 * two of them.
 *
 *   T' = f0 + c + 2 f1 + max(4 f1, f2 + f3 + b3 + b2 + 4 c)
 *        + 2 (m (f1 + b1) - 3 f1) + c + b0
 *
 * The other replicas wait at the reduction; the rest of the step is the same.
 */
static void test_slow_stage(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct mw_step_frame frame;
    const int layers[] = {4, 4, 4, 4}, m = 8;
    double f[4], b[4];

    (void)state;
    step_scenario(&w.s, "dgx-h100", 4, 64, "bf16");
    step_world_price(&w);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 8;
    mw_step_frame_init(&frame, &w.s, &l, layers, NULL, &w.ctx, true, NULL);
    for (int k = 0; k < 4; k++) {
        f[k] = mw_time_to_s(frame.vstage[k].f_ps);
        b[k] = mw_time_to_s(frame.vstage[k].b_ps + frame.vstage[k].w_ps);
    }
    double c = mw_time_to_s(mw_step_transfer_ps(&frame.price, 1, 2, 1));
    double back = f[2] + f[3] + b[3] + b[2] + 4 * c;
    double even = f[0] + f[1] + f[2] + 6 * c + m * (f[3] + b[3]) + b[2] + b[1];
    double slow = f[0] + 2 * c + 2 * f[1] + fmax(4 * f[1], back) +
                  2 * (m * (f[1] + b[1]) - 3 * f[1]);

    mw_assert_near(step_with(&w, &l, 8, 2) - step_with(&w, &l, -1, 1),
                   slow - even, 1e-6, 0);
    mw_step_frame_release(&frame);
    step_world_close(&w);
}

/*
 * ZeRO-3 within sets of four of eight replicas (HSDP), GPipe over two stages, a
 * slow rank in each of them; stage 1, with the head, is the longer. In one set:
 * its forward passes go at twice their time through both, 2 f0 + 2 m f1. In two
 * sets, which do not meet before gradients are added: the later of them has the
 * slow rank in stage 1, f0 + 2 m f1. Backward all meet in every pass, so that
 * the difference is the first stage's forward compute; over one set of eight
 * there is none.
 */
static void test_sets_of_shards(void **state)
{
    struct step_world w;
    struct mw_layout l;

    (void)state;
    step_scenario(&w.s, "dgx-h100", 2, 64, "bf16");
    step_world_price(&w);
    assert_int_equal(mw_cost_ctx_set_stack(&w.ctx, "plain", NULL), MW_OK);
    for (int shard = 4; shard <= 8; shard += 4) {
        double pace[16], step_s[2];
        struct mw_step_frame frame;
        struct mw_plan plan;
        struct mw_unfold all;

        mw_layout_default(&l);
        l.pp = 2;
        l.dp = 8;
        l.zero = 3;
        l.dp_shard = shard;
        l.schedule = "gpipe";
        step_plan(&plan, &w.s, &l);
        for (int apart = 0; apart < 2; apart++) {
            for (int i = 0; i < 16; i++) {
                pace[i] = i == 0 || i == (apart ? 12 : 8) ? 2 : 1;
            }
            assert_int_equal(
                mw_step_unfold(&w.s, &plan, &w.ctx, pace, &all, NULL), MW_OK);
            step_s[apart] = all.step_time_s;
        }
        mw_step_frame_init(&frame, &w.s, &l, plan.layers, &plan.schedule,
                           &w.ctx, true, NULL);
        const struct mw_vstage *v = frame.vstage;
        const mw_time *f = v[0].ps[MW_PHASE_F];
        double own_s = mw_time_to_s(f[MW_LANE_COMPUTE] + f[MW_LANE_HOST]);

        assert_true(v[1].f_ps > v[0].f_ps);

        mw_assert_near(step_s[0] - step_s[1], shard == 4 ? own_s : 0, 1e-6,
                       1e-12);
        mw_step_frame_release(&frame);
        mw_plan_release(&plan);
    }
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
        cmocka_unit_test(test_slow_stage),
        cmocka_unit_test(test_sets_of_shards), cmocka_unit_test(test_too_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
