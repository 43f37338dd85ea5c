/*
 * Gradients in buckets (sim/step/buckets.c): how many there are, by layout and
 * by stack; what they take, against closed forms and a replay of the buckets
 * one by one; what the ledger counts.
 */
#include "mw_test.h"

#include "step_fixture.h"
#include "base/rand.h"
#include "hwdb/profile.h"
#include "sim/step/step_int.h"

#include <math.h>

static const int whole[MW_UNIT_COUNT] = {
    [MW_UNIT_EMBEDDING] = 1, [MW_UNIT_DENSE] = 16, [MW_UNIT_HEAD] = 1};

struct case_of {
    struct step_world w;
    struct mw_layout l;
    struct mw_step_price p;
    struct mw_system system;
};

/* 64 replicas on 8 nodes under ZeRO-1; nothing hides anything. */
static void begin(struct case_of *c)
{
    step_scenario(&c->w.s, "dgx-a100", 8, 1024, "bf16");
    step_world_price(&c->w);
    c->w.ctx.stack = (struct mw_stack){.name = "t",
                                       .elementwise = 1,
                                       .attention = 1,
                                       .attention_back = 1,
                                       .grouped = 1};
    mw_layout_default(&c->l);
    c->l.dp = 64;
    c->l.zero = 1;
}

static void end(struct case_of *c)
{
    step_world_close(&c->w);
}

static struct mw_tail tail_on(struct case_of *c, int device)
{
    struct mw_tail tail;

    mw_step_price_begin(&c->p, &c->w.s, &c->l, &c->w.ctx);
    mw_step_price_units(&c->p, NULL);
    mw_tail_of(&c->p, device, whole, false, &tail);
    return tail;
}

static double coll_s(const struct case_of *c, enum mw_coll_op op, double bytes)
{
    return mw_cost_coll(&c->w.ctx, op, bytes, &c->p.grad_group, NULL).time_s;
}

/* Gradients of a rank. */
static double params_of(struct case_of *c)
{
    return tail_on(c, 0).reduce_bytes / c->p.grad_bytes;
}

/* ---- closed forms ---------------------------------------------------------
 */
/* With nothing beside them n equal buckets take n times one. */
static void test_sum(void **state)
{
    static const int sizes[] = {1000000, 25000000, 100000000, 2000000000};
    struct case_of c;

    (void)state;
    begin(&c);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int zero = 0; zero < 2; zero++) {
            c.l.zero = zero;
            c.l.bucket_size = sizes[i];
            struct mw_tail t = tail_on(&c, 0);
            double params = t.reduce_bytes / c.p.grad_bytes;
            double n = ceil(params / sizes[i]);

            assert_true(params > 2e8 && params < 3e8);
            mw_assert_near(t.reduce_buckets, n, 0, 0);
            mw_assert_near(
                mw_time_to_s(t.reduce_ps),
                n * coll_s(&c, zero == 0 ? MW_ALL_REDUCE : MW_REDUCE_SCATTER,
                           t.reduce_bytes / n),
                1e-9, 1e-12);
            mw_assert_near(
                mw_time_to_s(t.gather_ps),
                zero == 0 ? 0
                          : n * coll_s(&c, MW_ALL_GATHER, t.gather_bytes / n),
                1e-9, 1e-12);
        }
    }
    end(&c);
}

/* All in one bucket: the pass hides nothing of it, however long it is. */
static void test_one_hides_nothing(void **state)
{
    struct case_of c;

    (void)state;
    begin(&c);
    c.w.ctx.stack.overlap_reduce = c.w.ctx.stack.overlap_gather = 1;
    c.l.micro_batch = 16;
    struct mw_tail t = tail_on(&c, 0);

    mw_assert_near(mw_time_to_s(t.reduce_ps),
                   coll_s(&c, MW_REDUCE_SCATTER, t.reduce_bytes), 1e-9, 1e-12);
    mw_assert_near(mw_time_to_s(t.gather_ps),
                   coll_s(&c, MW_ALL_GATHER, t.gather_bytes), 1e-9, 1e-12);
    assert_true(t.hidden_reduce_s == 0 && t.hidden_gather_s == 0);
    end(&c);
}

/* On wires without end a bucket is its latency. */
static void test_latency_is_left(void **state)
{
    struct case_of c;
    double params, once_s;

    (void)state;
    begin(&c);
    c.system = *c.w.ctx.system;
    c.system.intra_bw_Bps = 1e30;
    c.w.ctx.system = &c.system;
    c.w.ctx.domain_net_Bps = 1e30;
    c.w.ctx.curves = NULL;
    params = params_of(&c);
    once_s = mw_time_to_s(tail_on(&c, 0).reduce_ps);
    assert_true(once_s > 0);
    for (int n = 2; n <= 4096; n *= 2) {
        c.l.bucket_size = (int)ceil(params / n);
        mw_assert_near(mw_time_to_s(tail_on(&c, 0).reduce_ps), n * once_s, 1e-9,
                       1e-9);
    }
    end(&c);
}

/* ---- beside a pass --------------------------------------------------------
 */
/* n buckets of t seconds, the k-th ready at W k / n: what is left after W. */
static double replay_s(int n, double t_s, double work_s)
{
    double free_s = 0;

    for (int k = 1; k <= n; k++) {
        free_s = fmax(free_s, work_s * k / n) + t_s;
    }
    return free_s - work_s;
}

/* Seconds of one micro-batch's backward pass. */
static double backward_s(const struct case_of *c)
{
    struct mw_vstage v;

    memcpy(v.n_units, whole, sizeof whole);
    mw_vstage_sum(&c->p, &v);
    return mw_time_to_s(v.b_ps + v.w_ps);
}

static void test_replay(void **state)
{
    int n_bound = 0, n_hidden = 0;
    struct case_of c;

    (void)state;
    begin(&c);
    for (int i = 0; i < 200; i++) {
        c.l.zero = i % 2;
        c.l.micro_batch = 1 << mw_rand_u64(3, 1, (uint64_t)i) % 5;
        c.l.bucket_size = 1 << (18 + mw_rand_u64(3, 2, (uint64_t)i) % 11);
        c.w.ctx.stack.overlap_reduce = 0;
        struct mw_tail t = tail_on(&c, 0);
        double all_s = mw_time_to_s(t.reduce_ps), n = t.reduce_buckets;

        c.w.ctx.stack.overlap_reduce = 1;
        t = tail_on(&c, 0);
        double left_s = replay_s((int)n, all_s / n, backward_s(&c));

        mw_assert_near(mw_time_to_s(t.reduce_ps), left_s, 1e-9, 1e-11);
        mw_assert_near(t.hidden_reduce_s, all_s - left_s, 1e-9, 1e-11);
        n_bound += left_s > 1.001 * all_s / n;
        n_hidden += left_s < 0.2 * all_s;
    }
    assert_true(n_bound > 20 && n_hidden > 20);
    end(&c);
}

/* More buckets take longer in sum and leave a smaller one to wait for. The
 * sum is no rule of measured curves; of latency and bandwidth it is. */
static void test_pieces_are_monotone(void **state)
{
    double all_s = 0, last_s = HUGE_VAL;
    struct case_of c;

    (void)state;
    begin(&c);
    c.w.ctx.curves = NULL;
    for (int bits = 28; bits >= 12; bits--) {
        c.l.bucket_size = 1 << bits;
        struct mw_tail t = tail_on(&c, 0);
        double sum_s = mw_time_to_s(t.reduce_ps);

        assert_true(sum_s >= all_s);
        assert_true(sum_s / t.reduce_buckets <= last_s);
        all_s = sum_s;
        last_s = sum_s / t.reduce_buckets;
    }
    end(&c);
}

/* What of all buckets but one the stack cannot hide is left as well. */
static void test_share_of_the_stack(void **state)
{
    struct case_of c;

    (void)state;
    begin(&c);
    c.l.micro_batch = 16;
    c.l.bucket_size = 50000000;
    struct mw_tail t = tail_on(&c, 0);
    double all_s = mw_time_to_s(t.reduce_ps), n = t.reduce_buckets;

    for (double o = 0.1; o < 1; o += 0.2) {
        c.w.ctx.stack.overlap_reduce = o;
        mw_assert_near(mw_time_to_s(tail_on(&c, 0).reduce_ps),
                       all_s * (1 / n + (1 - o) * (1 - 1 / n)), 1e-9, 1e-11);
    }
    end(&c);
}

/* ---- whose buckets --------------------------------------------------------
 */
/* Stacks take the row of their software profile. */
static void test_stacks(void **state)
{
    static const struct {
        const char *stack, *profile, *version;
    } cases[] = {{"megatron-core", "megatron-core", NULL},
                 {"megatron-core-nemo-graphs", "megatron-bridge", NULL},
                 {"megatron-2021-async", "megatron-lm", "2021"},
                 {"megatron-deepspeed-zero3", "megatron-deepspeed", NULL},
                 {"nanotron", "nanotron", NULL},
                 {"internevo", "internevo", NULL},
                 {"zero-bubble", "any", NULL}};
    struct case_of c;

    (void)state;
    begin(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_profile p;

        assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, cases[i].stack, NULL),
                         MW_OK);
        assert_int_equal(mw_hwdb_profile(c.w.db, cases[i].profile,
                                         cases[i].version, NULL, &p, NULL),
                         MW_OK);
        double rows = mw_profile_number(&p, MW_PROFILE_BUCKET);

        mw_assert_near(c.w.ctx.stack.bucket, isnan(rows) ? 0 : rows, 0, 0);
        mw_assert_near(c.w.ctx.stack.bucket_rank,
                       mw_profile_number(&p, MW_PROFILE_BUCKET_PER_RANK), 0, 0);
    }
    assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, "torchtitan", NULL),
                     MW_OK);
    mw_assert_near(c.w.ctx.stack.bucket, MW_BUCKET_LAYER, 0, 0);
    end(&c);
}

/* A layer at a time: the largest layer's share of all that is reduced. */
static void test_layer_by_layer(void **state)
{
    struct case_of c;

    (void)state;
    begin(&c);
    c.w.ctx.stack.bucket = MW_BUCKET_LAYER;
    c.l.zero = 0;
    struct mw_tail t = tail_on(&c, 0);
    double layer = c.p.size[MW_UNIT_DENSE].dense_params;

    mw_assert_near(t.reduce_buckets,
                   ceil(t.reduce_bytes / c.p.grad_bytes / layer), 0, 0);
    assert_true(t.reduce_buckets > 16 && t.reduce_buckets < 24);
    end(&c);
}

/* Megatron-Core: at least a million elements for each replica; one bucket where
 * nothing hides it, on later stages, and for each later chunk. */
static void test_megatron(void **state)
{
    struct case_of c;

    (void)state;
    begin(&c);
    assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, "megatron-core", NULL),
                     MW_OK);
    double params = params_of(&c);

    mw_assert_near(tail_on(&c, 0).reduce_buckets, ceil(params / 64e6), 0, 0);
    c.l.dp = 8;
    mw_assert_near(tail_on(&c, 0).reduce_buckets, ceil(params / 40e6), 0, 0);
    c.l.bucket_size = 1000000;
    mw_assert_near(tail_on(&c, 0).reduce_buckets, ceil(params / 1e6), 0, 0);
    mw_assert_near(tail_on(&c, 3).reduce_buckets, 1, 0, 0);
    assert_true(tail_on(&c, 3).hidden_reduce_s == 0);
    c.l.vpp = 4;
    mw_assert_near(tail_on(&c, 0).reduce_buckets, 3 + ceil(params / 4e6), 0, 0);
    mw_assert_near(tail_on(&c, 3).reduce_buckets, 4, 0, 0);
    c.l.overlap_off = MW_OVERLAP_GRADS;
    mw_assert_near(tail_on(&c, 0).reduce_buckets, 4, 0, 0);
    end(&c);
}

/* Naming the stack's own size is naming none. */
static void test_default_is_a_size(void **state)
{
    static const struct {
        const char *stack;
        int size;
    } cases[] = {{"megatron-core", 64000000},
                 {"megatron-core-nemo", 134217728},
                 {"megatron-deepspeed", 500000000},
                 {"internevo", 536870912}};
    struct case_of c;

    (void)state;
    begin(&c);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_step_result r[2];

        assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, cases[i].stack, NULL),
                         MW_OK);
        c.l.bucket_size = 0;
        step_simulate(&r[0], &c.w.s, &c.l, &c.w.ctx, NULL);
        c.l.bucket_size = cases[i].size;
        step_simulate(&r[1], &c.w.s, &c.l, &c.w.ctx, NULL);
        mw_assert_near(r[0].step_time_s, r[1].step_time_s, 0, 0);
        mw_step_result_release(&r[0]);
        mw_step_result_release(&r[1]);
    }
    end(&c);
}

/* Small buckets take their latency often, large ones leave much to wait for. */
static void test_neither_small_nor_large(void **state)
{
    static const int sizes[] = {100000, 20000000, 2000000000};
    double s[3];
    struct case_of c;

    (void)state;
    begin(&c);
    assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, "megatron-core", NULL),
                     MW_OK);
    for (int i = 0; i < 3; i++) {
        struct mw_step_result r;

        c.l.bucket_size = sizes[i];
        step_simulate(&r, &c.w.s, &c.l, &c.w.ctx, NULL);
        s[i] = r.step_time_s;
        mw_step_result_release(&r);
    }
    assert_true(s[0] > 1.02 * s[1] && s[2] > 1.002 * s[1]);
    end(&c);
}

/* DeepSpeed's bucket is made whole, in 2 bytes an element. */
static void test_memory(void **state)
{
    static const char *const stacks[] = {"megatron-deepspeed", "megatron-core"};
    struct case_of c;

    (void)state;
    begin(&c);
    for (int i = 0; i < 2; i++) {
        struct mw_step_result r[2];

        assert_int_equal(mw_cost_ctx_set_stack(&c.w.ctx, stacks[i], NULL),
                         MW_OK);
        c.l.bucket_size = 500000000;
        step_simulate(&r[0], &c.w.s, &c.l, &c.w.ctx, NULL);
        c.l.bucket_size = 50000000;
        step_simulate(&r[1], &c.w.s, &c.l, &c.w.ctx, NULL);
        mw_assert_near(r[0].allocated_bytes - r[1].allocated_bytes,
                       i == 0 ? 2 * 450e6 : 0, 1e-9, 1);
        mw_step_result_release(&r[0]);
        mw_step_result_release(&r[1]);
    }
    end(&c);
}

/* ---- ledger ---------------------------------------------------------------
 */
/* Buckets are counted, their bytes are the same in any number, and their time
 * alone is what the tail has. */
static void test_ledger(void **state)
{
    struct case_of c;
    double bytes[2];

    (void)state;
    begin(&c);
    bytes[0] =
        step_ledger_row(&c.w, &c.l, MW_DIM_DP, MW_REDUCE_SCATTER).message_bytes;
    bytes[1] =
        step_ledger_row(&c.w, &c.l, MW_DIM_DP, MW_ALL_GATHER).message_bytes;
    for (int bits = 20; bits < 30; bits++) {
        static const enum mw_coll_op ops[] = {MW_REDUCE_SCATTER, MW_ALL_GATHER};

        c.l.bucket_size = 1 << bits;
        struct mw_tail t = tail_on(&c, 0);
        const double alone_s[] = {mw_time_to_s(t.reduce_ps),
                                  mw_time_to_s(t.gather_ps)};

        for (int i = 0; i < 2; i++) {
            struct mw_ledger_row row =
                step_ledger_row(&c.w, &c.l, MW_DIM_DP, ops[i]);

            mw_assert_near(row.count, t.reduce_buckets, 0, 0);
            mw_assert_near(row.message_bytes, bytes[i], 1e-12, 0);
            mw_assert_near(row.time_s, alone_s[i], 1e-9, 1e-11);
        }
    }
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_one_hides_nothing),
        cmocka_unit_test(test_latency_is_left),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_pieces_are_monotone),
        cmocka_unit_test(test_share_of_the_stack),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_layer_by_layer),
        cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_default_is_a_size),
        cmocka_unit_test(test_neither_small_nor_large),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_ledger)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
