/*
 * ZeRO within groups of replicas (HSDP) and ZeRO-3 that keeps what it has
 * gathered: textbook counts (Zhao et al., "PyTorch FSDP", VLDB 2023, section
 * 3.2.2), memory, limits, both forms.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/ledger.h"
#include "step_fixture.h"

static void open_world(struct step_world *w)
{
    step_scenario(&w->s, "dgx-a100", 4, 128, "bf16");
    step_world_price(w);
}

/* 32 replicas, 2 micro-batches of 2. */
static struct mw_layout layout(int zero, int dp_shard)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 32;
    l.micro_batch = 2;
    l.zero = zero;
    l.dp_shard = dp_shard;
    return l;
}

/* Units: 16 layers, embedding, head (tied: norm alone); fp32 gradients, bf16
 * weights; 2 micro-batches. Shards of 8 on a node each, 4 replicas of them. */
static void test_counts(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    struct mw_layout l = layout(0, 0);
    double params =
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_REDUCE).message_bytes / 4;
    for (int zero = 1; zero <= 3; zero++) {
        double times = zero == 1 ? 1 : 2;

        l = layout(zero, 8);
        struct mw_ledger_row scatter =
            step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER);
        struct mw_ledger_row all =
            step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_REDUCE);
        struct mw_ledger_row gather =
            step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER);
        mw_assert_near(scatter.message_bytes, times * 4 * params, 1e-12, 0);
        mw_assert_near(scatter.wire_bytes, scatter.message_bytes * 7 / 8, 1e-12,
                       0);
        assert_int_equal(scatter.n_ranks, 8);
        assert_false(scatter.crosses_nodes);
        assert_int_equal(gather.n_ranks, 8);
        mw_assert_near(gather.message_bytes, (zero == 3 ? 4 : 1) * 2 * params,
                       1e-12, 0);
        /* the shares alone go between replicas: 2 (4-1)/4 of an eighth */
        mw_assert_near(all.count, zero == 1 ? 1 : 2 * 18, 0, 0);
        mw_assert_near(all.message_bytes, times * 4 * params / 8, 1e-12, 0);
        mw_assert_near(all.wire_bytes, all.message_bytes * 1.5, 1e-12, 0);
        assert_int_equal(all.n_ranks, 4);
        assert_true(all.crosses_nodes);
    }
    step_world_close(&w);
}

/* Kept: L gathers instead of 2 L per micro-batch. */
static void test_no_reshard_counts(void **state)
{
    struct mw_layout l = layout(3, 0);
    struct step_world w;

    (void)state;
    open_world(&w);
    mw_assert_near(step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER).count,
                   2.0 * 2 * 18, 0, 0);
    l.reshard = false;
    mw_assert_near(step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER).count,
                   2.0 * 18, 0, 0);
    mw_assert_near(step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER).count,
                   2.0 * 18, 0, 0);
    step_world_close(&w);
}

/* What the timeline says of a rank's ZeRO traffic is what the ledger counts:
 * shards and replicas, compressed or not. */
static void test_timeline_carries_the_ledger(void **state)
{
    static const struct {
        int zero, dp_shard;
        enum mw_grad_compression how;
    } cases[] = {{2, 0, MW_COMPRESS_NONE},   {2, 8, MW_COMPRESS_NONE},
                 {3, 0, MW_COMPRESS_NONE},   {3, 8, MW_COMPRESS_NONE},
                 {3, 0, MW_COMPRESS_ZEROPP}, {0, 0, MW_COMPRESS_NONE}};
    struct step_world w;

    (void)state;
    open_world(&w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mw_layout l = layout(cases[i].zero, cases[i].dp_shard);
        struct mw_ledger ledger = {NULL, 0, 0};
        struct mw_timeline t;
        struct mw_step_result r;
        struct mw_plan plan;
        double sent = 0, counted = 0;

        l.grad_compression = cases[i].how;
        mw_timeline_init(&t);
        step_simulate(&r, &w.s, &l, &w.ctx, &t);
        for (size_t k = 0; k < t.spans.n; k++) {
            sent += t.spans.v[k].kind == MW_SPAN_DP && t.spans.v[k].rank == 0
                        ? t.spans.v[k].bytes
                        : 0;
        }
        step_plan(&plan, &w.s, &l);
        mw_step_ledger(&w.s, &plan, &w.ctx, 0, &ledger);
        for (size_t k = 0; k < ledger.n; k++) {
            counted +=
                ledger.v[k].dim == MW_DIM_DP ? ledger.v[k].message_bytes : 0;
        }
        assert_true(counted > 0);
        mw_assert_near(sent, counted, 1e-9, 0);
        mw_array_release(&ledger);
        mw_plan_release(&plan);
        mw_step_result_release(&r);
        mw_timeline_release(&t);
    }
    step_world_close(&w);
}

static void test_memory(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int zero = 1; zero <= 3; zero++) {
        struct mw_layout l = layout(zero, 0);
        struct mw_step_result all, eight;

        step_simulate(&all, &w.s, &l, &w.ctx, NULL);
        l.dp_shard = 8;
        step_simulate(&eight, &w.s, &l, &w.ctx, NULL);
        const struct mw_stage_memory *a = all.memory, *e = eight.memory;
        mw_assert_near(e->optimizer_bytes, 4 * a->optimizer_bytes, 1e-12, 0);
        mw_assert_near(e->grad_bytes, (zero >= 2 ? 4 : 1) * a->grad_bytes,
                       1e-12, 0);
        mw_assert_near(e->weight_bytes, (zero == 3 ? 4 : 1) * a->weight_bytes,
                       1e-12, 0);
        assert_true(e->activation_bytes == a->activation_bytes);
        mw_step_result_release(&all);
        mw_step_result_release(&eight);
    }
    struct mw_layout l = layout(3, 0);
    struct mw_step_result freed, kept;
    step_simulate(&freed, &w.s, &l, &w.ctx, NULL);
    l.reshard = false;
    step_simulate(&kept, &w.s, &l, &w.ctx, NULL);
    /* its share, and all of it gathered */
    mw_assert_near(kept.memory->weight_bytes, 33 * freed.memory->weight_bytes,
                   1e-12, 0);
    assert_true(kept.memory->temporary_bytes < freed.memory->temporary_bytes);
    mw_step_result_release(&freed);
    mw_step_result_release(&kept);
    step_world_close(&w);
}

static double dp_s(const struct step_world *w, const struct mw_layout *l)
{
    struct mw_step_result r;
    double s;

    step_simulate(&r, &w->s, l, &w->ctx, NULL);
    s = r.breakdown_s[MW_SPAN_DP];
    mw_step_result_release(&r);
    return s;
}

/* One group of all replicas is plain ZeRO, groups of one leave the all-reduce
 * of plain data parallelism. Where the network alone counts, ZeRO-3 moves 2 x 2
 * + 4 bytes a parameter through a node's NICs, (n-1)/n of them; with a group in
 * each of 4 nodes, 8 ranks move 2 (4-1)/4 of 4 / 8 bytes each. */
static void test_limits(void **state)
{
    struct step_world w;

    (void)state;
    open_world(&w);
    for (int zero = 1; zero <= 3; zero++) {
        struct mw_layout whole = layout(zero, 0), same = layout(zero, 32);

        assert_true(dp_s(&w, &whole) == dp_s(&w, &same));
    }
    struct mw_layout plain = layout(0, 0), single = layout(1, 1);
    mw_assert_near(dp_s(&w, &single), dp_s(&w, &plain), 1e-12, 0);
    w.ctx.domain_net_Bps /= 1e4;
    struct mw_layout flat = layout(3, 0), hybrid = layout(3, 8);
    mw_assert_near(dp_s(&w, &hybrid) / dp_s(&w, &flat),
                   (8 * 1.5 * 4 / 8) / (8.0 * 31 / 32), 0.01, 0);
    struct mw_layout kept = flat;
    kept.reshard = false;
    assert_true(dp_s(&w, &kept) < dp_s(&w, &flat));
    step_world_close(&w);
}

static void test_forms_agree(void **state)
{
    struct step_world w;
    int n = 0;

    (void)state;
    open_world(&w);
    for (uint64_t i = 0; i < 300; i++) {
        struct mw_layout l;

        mw_layout_default(&l);
        l.tp = 1 << mw_rand_u64(6, 1, i) % 3;
        l.pp = 1 << mw_rand_u64(6, 2, i) % 3;
        l.dp = 32 / (l.tp * l.pp);
        l.zero = 1 + (int)(mw_rand_u64(6, 3, i) % 3);
        l.dp_shard = 1 << mw_rand_u64(6, 4, i) % 5;
        l.reshard = l.zero < 3 || mw_rand_u64(6, 5, i) % 2 == 0;
        if (mw_layout_check(&l, &w.s.model, &w.s.workload, 32, NULL, NULL) !=
            MW_OK) {
            continue;
        }
        step_forms_agree(&w, &l);
        n++;
    }
    assert_true(n > 100);
    step_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_no_reshard_counts),
        cmocka_unit_test(test_timeline_carries_the_ledger),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_forms_agree)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
