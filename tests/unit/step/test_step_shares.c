/*
 * How stacks move the shares of ZeRO-1: in one collective, a tensor at a time,
 * an owner at a time; and what the interleaved schedule hides of it.
 */
#include "mw_test.h"

#include "step_fixture.h"
#include "sim/step/step_int.h"

#include <math.h>

static void begin(struct step_world *w, struct mw_layout *l, int nodes, int dp)
{
    step_scenario(&w->s, "dgx-a100", nodes, 1024, "bf16");
    step_world_price(w);
    w->ctx.stack = (struct mw_stack){.name = "t",
                                     .elementwise = 1,
                                     .attention = 1,
                                     .attention_back = 1,
                                     .grouped = 1};
    mw_layout_default(l);
    l->dp = dp;
    l->zero = 1;
}

static struct mw_tail tail_of(const struct step_world *w,
                              const struct mw_layout *l,
                              struct mw_step_price *p)
{
    static const int whole[MW_UNIT_COUNT] = {
        [MW_UNIT_EMBEDDING] = 1, [MW_UNIT_DENSE] = 16, [MW_UNIT_HEAD] = 1};
    struct mw_tail tail;

    mw_step_price_begin(p, &w->s, l, &w->ctx);
    mw_step_price_units(p, NULL);
    mw_tail_of(p, 0, whole, false, &tail);
    return tail;
}

static double coll_s(const struct mw_step_price *p, enum mw_coll_op op,
                     double bytes)
{
    return mw_cost_coll(p->ctx, op, bytes, &p->grad_group, NULL).time_s;
}

/* Four matrices and two norms a layer, two embeddings, the final norm; the head
 * is tied. The bytes stay those of one buffer. */
static void test_pieces(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct mw_step_price p;
    double n = 16 * 6 + 2 + 1;

    (void)state;
    begin(&w, &l, 8, 64);
    struct mw_tail flat = tail_of(&w, &l, &p);
    double bytes = flat.gather_bytes;

    assert_true(bytes > 2 * 16 * 12 * 1024.0 * 1024);
    mw_assert_near(mw_time_to_s(flat.gather_ps),
                   coll_s(&p, MW_ALL_GATHER, bytes), 1e-9, 1e-12);
    w.ctx.stack.share = MW_SHARE_BY_TENSOR;
    struct mw_tail tensors = tail_of(&w, &l, &p);

    mw_assert_near(mw_time_to_s(tensors.gather_ps),
                   n * coll_s(&p, MW_ALL_GATHER, bytes / n), 1e-9, 1e-12);
    mw_assert_near(mw_time_to_s(tensors.reduce_ps),
                   n * coll_s(&p, MW_REDUCE_SCATTER, tensors.reduce_bytes / n),
                   1e-9, 1e-12);
    w.ctx.stack.share = MW_SHARE_BY_OWNER;
    struct mw_tail owners = tail_of(&w, &l, &p);

    mw_assert_near(mw_time_to_s(owners.gather_ps),
                   64 * coll_s(&p, MW_BROADCAST, bytes / 64), 1e-9, 1e-12);
    mw_assert_near(mw_time_to_s(owners.reduce_ps),
                   coll_s(&p, MW_ALL_REDUCE, owners.reduce_bytes), 1e-9, 1e-12);
    assert_true(tensors.gather_ps > 2 * flat.gather_ps &&
                owners.gather_ps > flat.gather_ps);
    step_world_close(&w);
}

/* No ZeRO-1, no shares: what the stack does with them costs nothing. */
static void test_only_shares(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct mw_step_price p;

    (void)state;
    begin(&w, &l, 2, 16);
    for (int zero = 0; zero < 2; zero++) {
        l.zero = zero;
        w.ctx.stack.share = MW_SHARE_FLAT;
        struct mw_tail flat = tail_of(&w, &l, &p);

        w.ctx.stack.share = MW_SHARE_BY_TENSOR;
        struct mw_tail tensors = tail_of(&w, &l, &p);

        assert_int_equal(tensors.reduce_ps == flat.reduce_ps, zero == 0);
        assert_int_equal(tensors.gather_ps == flat.gather_ps, zero == 0);
        assert_true(zero == 1 || tensors.gather_ps == 0);
    }
    step_world_close(&w);
}

/* All that can be hidden is: then pp x (v - 1) / v micro-batches hide, where
 * one did, and what one hid is not exposed, but for one bucket. Fewer
 * micro-batches than stages hide no more than they are. */
static void test_interleaved_windows(void **state)
{
    struct step_world w;
    struct mw_layout l;
    struct mw_step_price p;
    int batch[] = {1024, 16 * 2};

    (void)state;
    begin(&w, &l, 8, 16);
    w.s.workload.seq = 16;
    l.pp = 4;
    w.ctx.stack.overlap_reduce = w.ctx.stack.overlap_gather = 1;
    w.ctx.stack.bucket = 2e6;
    for (int i = 0; i < 2; i++) {
        w.s.workload.global_batch = batch[i];
        l.vpp = 1;
        l.schedule = "1f1b";
        struct mw_tail once = tail_of(&w, &l, &p);
        double all_s = mw_time_to_s(once.gather_ps) + once.hidden_gather_s;
        double work_s = once.hidden_gather_s;

        assert_true(once.gather_ps > 0);
        l.vpp = 4;
        l.schedule = "interleaved-1f1b";
        struct mw_tail many = tail_of(&w, &l, &p);
        double n = fmin(4, batch[i] / 16.0) * 3 / 4;

        mw_assert_near(mw_time_to_s(many.gather_ps),
                       fmax(all_s / once.gather_buckets, all_s - n * work_s),
                       1e-9, 1e-12);
        assert_true(many.reduce_ps < once.reduce_ps);
    }
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_only_shares),
        cmocka_unit_test(test_interleaved_windows)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
