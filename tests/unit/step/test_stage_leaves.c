/*
 * Pipeline stages on leaves of several sizes: each is priced by its own groups.
 * Against shares worked out by hand, the closed form of 1F1B over two unequal
 * stages, and one another: fast form, remembered prices, event form, bound.
 */
#include "mw_test.h"

#include "step_fixture.h"

#include "base/rand.h"
#include "sim/step/fast.h"
#include "sim/step/step_int.h"

#include <math.h>

static void open_leaves(struct step_world *w, int nodes, const char *leaves,
                        int batch)
{
    step_scenario_of(&w->s,
                     "format: 1\nmodel: {preset: mixtral-8x7b, layers: 8}\n"
                     "cluster: {system: dgx-h100, nodes: %d, leaves: %s, "
                     "oversubscription: 4}\n"
                     "workload: {seq: 4096, global_batch: %d, dtype: bf16}\n",
                     nodes, leaves, batch);
    step_world_price(w);
}

/* Stages of two nodes, experts of a stage over both: neighbours halve them. */
static struct mw_layout layout_of(int pp)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = 2;
    l.sp = true;
    l.pp = pp;
    l.dp = 8;
    l.ep = 8;
    l.etp = 2;
    l.zero = 1;
    return l;
}

static void frame_of(struct mw_step_frame *f, const struct step_world *w,
                     const struct mw_layout *l, const struct mw_plan *plan)
{
    mw_step_frame_init(f, &w->s, l, plan->layers, &plan->schedule, &w->ctx,
                       true, NULL);
}

/* ---- by hand ---------------------------------------------------------------
 */
/*
 * Leaves of 3 and 3 nodes at 4 times their links up: stage 1 is on nodes 2 and
 * 3, under both. Two groups of experts, 4 of 8 ranks on either node, fill its
 * NICs, and so send one NIC's worth up of each leaf, which has 3 / 4: three
 * sharers where stages 0 and 2 have two.
 */
static void test_shares_by_hand(void **state)
{
    struct step_world w;
    struct mw_layout l = layout_of(3);
    struct mw_step_groups of[3];
    struct mw_step_price p;

    (void)state;
    open_leaves(&w, 6, "[3, 3]", 96);
    mw_step_price_begin(&p, &w.s, &l, &w.ctx);
    mw_step_stage_groups(&p, &l, of);
    assert_int_equal(of[0].dim[MW_DIM_EP].nic_sharers, 2);
    assert_int_equal(of[1].dim[MW_DIM_EP].nic_sharers, 3);
    assert_int_equal(of[2].dim[MW_DIM_EP].nic_sharers, 2);
    assert_int_equal(p.group[MW_DIM_EP].nic_sharers, 3); /* the slowest */
    assert_int_equal(of[1].dim[MW_DIM_EP].n_nodes, 2);
    step_world_close(&w);
}

/* Stages under one leaf are as without leaves, the one under two is as under
 * leaves that give all stages its share. */
static void test_stages_are_their_own(void **state)
{
    struct step_world w;
    struct mw_layout l = layout_of(3);
    struct mw_plan plan;
    struct mw_step_frame own, bare;
    struct mw_step_groups of[3];
    struct mw_vstage v;

    (void)state;
    open_leaves(&w, 6, "[3, 3]", 96);
    step_plan(&plan, &w.s, &l);
    frame_of(&own, &w, &l, &plan);
    mw_step_stage_groups(&own.price, &l, of);
    struct mw_step_price slow = own.price;

    slow.wires = NULL;
    memset(slow.cost, 0, sizeof slow.cost);
    mw_step_use_groups(&slow, &of[1]);
    mw_step_price_units(&slow, NULL);
    v = own.vstage[1];
    mw_vstage_sum(&slow, &v);
    w.s.cluster.oversubscription = 1;
    frame_of(&bare, &w, &l, &plan);
    for (int k = 0; k < 3; k += 2) {
        assert_true(own.vstage[k].f_ps == bare.vstage[k].f_ps);
        assert_true(own.vstage[k].b_ps == bare.vstage[k].b_ps);
        assert_true(own.vstage[k].w_ps == bare.vstage[k].w_ps);
    }
    assert_true(own.vstage[1].f_ps == v.f_ps && own.vstage[1].b_ps == v.b_ps);
    assert_true(own.vstage[1].ps[MW_PHASE_F][MW_LANE_EP] >
                bare.vstage[1].ps[MW_PHASE_F][MW_LANE_EP]);
    assert_true(own.vstage[1].ps[MW_PHASE_F][MW_LANE_COMPUTE] ==
                bare.vstage[1].ps[MW_PHASE_F][MW_LANE_COMPUTE]);
    mw_step_frame_release(&own);
    mw_step_frame_release(&bare);
    mw_plan_release(&plan);
    step_world_close(&w);
}

/* ---- closed form -----------------------------------------------------------
 */
static double tail_s(const struct mw_tail *t)
{
    return mw_time_to_s(t->embedding_ps + t->reduce_ps + t->shared_ps +
                        t->optimizer_ps + t->offload_ps + t->gather_ps);
}

static double pass_s(const struct mw_vstage *v)
{
    return mw_time_to_s(v->f_ps + v->b_ps + v->w_ps);
}

/*
 * Two stages, the last the slower by more than both transfers: it is fed in
 * time and does all its m micro-batches without a gap, the first one's forward
 * pass and transfer before, its gradient's way back and the first stage's
 * backward pass after:
 *
 *   T = f_0 + c + m t_1 + max(tail_1, c + b_0 + w_0 + tail_0)
 *
 * With the nodes of the two stages exchanged the slow leaves are the first
 * stage's, whose gradient reduction they slow as well.
 */
static void test_two_stages(void **state)
{
    struct step_world w;
    struct mw_layout l = layout_of(2);
    const struct mw_step_opts opts = {.no_breakdown = true, .no_sharing = true};
    const int m = 12;
    struct mw_step_frame f;
    struct mw_step_result r;
    struct mw_plan plan;

    (void)state;
    open_leaves(&w, 4, "[3, 1]", 8 * 12);
    step_plan(&plan, &w.s, &l);
    frame_of(&f, &w, &l, &plan);
    double c = mw_time_to_s(mw_step_transfer_ps(&f.price, 0, 1, 1));
    double back = mw_time_to_s(mw_step_transfer_ps(&f.price, 1, 0, 1));
    double first = pass_s(&f.vstage[0]), last = pass_s(&f.vstage[1]);

    assert_true(first + c + back < last);
    assert_true(tail_s(&f.tail[1]) > tail_s(&f.tail[0]));
    double closed_s =
        mw_time_to_s(f.vstage[0].f_ps) + c + m * last +
        fmax(tail_s(&f.tail[1]),
             back + mw_time_to_s(f.vstage[0].b_ps + f.vstage[0].w_ps) +
                 tail_s(&f.tail[0]));

    assert_int_equal(mw_step_simulate(&w.s, &plan, &w.ctx, &opts, &r, NULL),
                     MW_OK);
    mw_assert_near(r.step_time_s, closed_s, 1e-9, 0);
    mw_step_result_release(&r);
    mw_step_frame_release(&f);
    mw_plan_release(&plan);
    step_world_close(&w);
}

/* ---- the forms -------------------------------------------------------------
 */
static int pick(uint64_t seed, uint64_t stream, int n)
{
    return (int)(mw_rand_u64(seed, stream, 41) % (uint64_t)n);
}

/* The allocation's order but for one exchange. */
static void shuffle(uint64_t seed, int64_t *nodes, int n)
{
    int a = pick(seed, 100, n), b = pick(seed, 101, n);

    for (int i = 0; i < n; i++) {
        nodes[i] = i;
    }
    nodes[a] = b;
    nodes[b] = a;
}

static struct mw_layout draw(uint64_t seed)
{
    struct mw_layout l = layout_of(2 + pick(seed, 1, 2));

    l.dp = 48 / (2 * l.pp);
    if (l.pp == 2) {
        l.ep = 4;
        l.etp = 1;
    }
    l.zero = pick(seed, 3, 4);
    l.recompute = (enum mw_recompute)pick(seed, 4, 3);
    l.order = pick(seed, 5, 4) ? "tp-cp-ep-dp-pp" : "tp-cp-ep-pp-dp";
    if (pick(seed, 6, 3) == 0) {
        l.vpp = 2;
        l.schedule = "interleaved-1f1b";
    } else {
        l.schedule = pick(seed, 7, 2) ? "1f1b" : "gpipe";
    }
    return l;
}

/* Remembered prices give the fast form to the bit, that the event form's time
 * without shared wires, and the bound is below. */
static void test_forms_agree(void **state)
{
    struct step_world w;
    int n_staged = 0;

    (void)state;
    open_leaves(&w, 6, "[1, 3, 2]", 288);
    struct mw_fast *fast = mw_fast_new(&w.s, &w.ctx);

    for (uint64_t seed = 0; seed < 24; seed++) {
        struct mw_layout l = draw(seed);
        int64_t nodes[6];
        double fast_s = 0, again_s = 1, event_s;
        struct mw_fast_bound bound;
        struct mw_err err = {0};

        shuffle(seed, nodes, 6);
        l.nodes = (struct mw_int_list){nodes, 6};
        event_s = step_forms_agree(&w, &l);
        if (mw_step_estimate(&w.s, &l, NULL, &w.ctx, &fast_s, NULL, &err) !=
                MW_OK ||
            mw_fast_estimate(fast, &l, NULL, &again_s, NULL, &err) != MW_OK ||
            mw_fast_bound(fast, &l, NULL, &bound, &err) != MW_OK) {
            fail_msg("%s", err.text);
        }
        mw_assert_near(again_s, fast_s, 1e-15, 0);
        assert_true(bound.time_s <= event_s * (1 + 1e-9));
        struct mw_step_frame f;
        struct mw_plan plan;

        step_plan(&plan, &w.s, &l);
        frame_of(&f, &w, &l, &plan);
        for (int d = 1; d < l.pp; d++) {
            if (mw_step_frame_price(&f, d) != mw_step_frame_price(&f, 0)) {
                n_staged++;
                break;
            }
        }
        mw_step_frame_release(&f);
        mw_plan_release(&plan);
    }
    assert_true(n_staged > 8);
    mw_fast_free(fast);
    step_world_close(&w);
}

/* Parts of every stage sum to the step, its own units among them. */
static void test_explained(void **state)
{
    struct step_world w;
    struct mw_layout l = layout_of(3);
    struct mw_plan plan;
    struct mw_step_result r;
    struct mw_arena arena;
    int n = 0;

    (void)state;
    mw_arena_init(&arena);
    open_leaves(&w, 6, "[3, 3]", 96);
    step_plan(&plan, &w.s, &l);
    struct mw_explain root = {.name = "step", .arena = &arena, .count = 1};
    const struct mw_step_opts opts = {.explain = &root, .no_breakdown = true};

    assert_int_equal(mw_step_simulate(&w.s, &plan, &w.ctx, &opts, &r, NULL),
                     MW_OK);
    for (const struct mw_explain *s = root.first_child; s; s = s->next) {
        double sum = 0;

        for (const struct mw_explain *c = s->first_child; c; c = c->next) {
            sum += c->value_s * c->count;
        }
        mw_assert_near(sum, r.step_time_s, 1e-9, 0);
        n++;
    }
    assert_int_equal(n, 3);
    mw_step_result_release(&r);
    mw_plan_release(&plan);
    mw_arena_release(&arena);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_by_hand),
        cmocka_unit_test(test_stages_are_their_own),
        cmocka_unit_test(test_two_stages),
        cmocka_unit_test(test_forms_agree),
        cmocka_unit_test(test_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
