/*
 * A step that learns adapters alone: states and messages are theirs, weights
 * are the model's (in 4 bits under QLoRA), nothing else has a weight gradient.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/ledger.h"
#include "step_fixture.h"

/* `more`: further keys of the workload, ", lora_rank: 16" */
static void open_world(struct step_world *w, const char *model, int nodes,
                       const char *more)
{
    step_scenario_of(&w->s,
                     "format: 1\nname: t\nmodel: %s\n"
                     "cluster: {system: dgx-h100, nodes: %d}\n"
                     "workload: {seq: 2048, global_batch: 64%s}\n",
                     model, nodes, more);
    step_world_price(w);
}

static struct mw_layout layout(int tp, int pp, int dp, int zero)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.pp = pp;
    l.dp = dp;
    l.zero = zero;
    return l;
}

static struct mw_step_result run(const char *model, const char *more,
                                 const struct mw_layout *l)
{
    struct mw_step_result r;
    struct step_world w;

    open_world(&w, model, 1, more);
    step_simulate(&r, &w.s, l, &w.ctx, NULL);
    step_world_close(&w);
    return r;
}

/* Llama 2 7B on one rank of 8, rank 64 everywhere: 159,907,840 learn, 6.738e9
 * are there. */
static void test_memory(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 0);
    struct mw_step_result full = run("llama2-7b", "", &l);
    struct mw_step_result lora = run("llama2-7b", ", lora_rank: 64", &l);
    struct mw_step_result nf4 =
        run("llama2-7b", ", lora_rank: 64, base_dtype: nf4", &l);
    double n = 159907840, all = 6738415616, ends = 2.0 * 32000 * 4096;
    double norms = (2 * 32 + 1) * 4096.0;

    (void)state;
    mw_assert_near(full.memory->weight_bytes, 2 * all, 1e-12, 0);
    mw_assert_near(lora.memory->weight_bytes, 2 * (all + n), 1e-12, 0);
    mw_assert_near(lora.memory->grad_bytes, 4 * n, 1e-12, 0);
    mw_assert_near(lora.memory->optimizer_bytes, 12 * n, 1e-12, 0);
    mw_assert_near(nf4.memory->weight_bytes,
                   2 * (n + ends + norms) + (all - ends - norms) * MW_NF4_BYTES,
                   1e-12, 0);
    assert_true(nf4.memory->grad_bytes == lora.memory->grad_bytes);
    /* one matrix at a time is spread: gate and up, 2 x 11008 x 4096 */
    assert_true(nf4.memory->temporary_bytes - lora.memory->temporary_bytes <=
                2.0 * 2 * 11008 * 4096);
    mw_step_result_release(&full);
    mw_step_result_release(&lora);
    mw_step_result_release(&nf4);
}

/* Under ZeRO-3 frozen weights are shared out too. */
static void test_zero_3(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 3);
    struct mw_step_result r =
        run("llama2-7b", ", lora_rank: 64, base_dtype: nf4", &l);
    struct mw_layout whole = layout(1, 1, 8, 0);
    struct mw_step_result w =
        run("llama2-7b", ", lora_rank: 64, base_dtype: nf4", &whole);

    (void)state;
    mw_assert_near(8 * r.memory->weight_bytes, w.memory->weight_bytes, 1e-12,
                   0);
    mw_step_result_release(&r);
    mw_step_result_release(&w);
}

/* A tied embedding is frozen on both stages that hold it: its bytes are there,
 * its gradient is not, nor is a reduction of it. */
static void test_tied(void **state)
{
    static const char model[] = "{preset: llama2-7b, tied: true}";
    struct mw_layout l = layout(1, 2, 4, 0);
    struct mw_step_result r = run(model, ", lora_rank: 64", &l);
    double table = 2.0 * 32000 * 4096, n = 159907840;

    (void)state;
    mw_assert_near(r.memory[0].weight_bytes - table,
                   r.memory[1].weight_bytes - table - 2 * 4096, 1e-12, 0);
    mw_assert_near(r.memory[0].grad_bytes, 4 * n / 2, 1e-12, 0);
    mw_assert_near(r.memory[1].grad_bytes, 4 * n / 2, 1e-12, 0);
    mw_step_result_release(&r);
}

/* ---- messages --------------------------------------------------------------
 */
static void test_messages(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 0);
    struct step_world w;

    (void)state;
    open_world(&w, "llama2-7b", 1, ", lora_rank: 64");
    mw_assert_near(
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_REDUCE).message_bytes,
        4 * 159907840.0, 1e-12, 0);
    l.zero = 3; /* 8 micro-batches, gathered twice each */
    mw_assert_near(
        step_ledger_row(&w, &l, MW_DIM_DP, MW_ALL_GATHER).message_bytes,
        8 * 2 * 2 * (159907840.0 + 6738415616.0), 1e-12, 0);
    mw_assert_near(
        step_ledger_row(&w, &l, MW_DIM_DP, MW_REDUCE_SCATTER).message_bytes,
        8 * 4 * 159907840.0, 1e-12, 0);
    step_world_close(&w);
}

/* ---- time ------------------------------------------------------------------
 */
/* No weight gradients of the model: about a third of its work. Four bits cost
 * two passes over the matrices per micro-batch, three with recomputation. */
static void test_time(void **state)
{
    struct mw_layout l = layout(1, 1, 8, 0);
    struct mw_step_result full = run("llama2-7b", "", &l);
    struct mw_step_result lora = run("llama2-7b", ", lora_rank: 16", &l);
    struct mw_step_result nf4 =
        run("llama2-7b", ", lora_rank: 16, base_dtype: nf4", &l);

    (void)state;
    assert_true(lora.breakdown_s[MW_SPAN_W] <
                0.1 * full.breakdown_s[MW_SPAN_W]);
    assert_true(lora.step_time_s < 0.85 * full.step_time_s);
    assert_true(lora.model_flops < 0.71 * full.model_flops);
    double f = nf4.breakdown_s[MW_SPAN_F] - lora.breakdown_s[MW_SPAN_F];
    double b = nf4.breakdown_s[MW_SPAN_B] - lora.breakdown_s[MW_SPAN_B];
    mw_assert_near(f, b, 1e-6, 0);
    /* 8 micro-batches over 6.476e9 weights of 2.52 bytes at 3.35 TB/s at best
     */
    assert_true(f > 8 * 6.476e9 * 2.5 / 3.35e12);
    assert_true(f < 2 * 8 * 6.476e9 * 2.52 / 3.35e12);
    mw_step_result_release(&full);
    mw_step_result_release(&lora);
    mw_step_result_release(&nf4);
}

static void test_forms_agree(void **state)
{
    static const char *const more[] = {
        ", lora_rank: 16", ", lora_rank: 64, lora_targets: attention",
        ", lora_rank: 8, base_dtype: nf4"};
    static const char *const models[] = {
        "{preset: llama2-7b, tied: true, layers: 16}",
        "{preset: mixtral-8x7b, layers: 8}"};
    int n = 0;

    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        struct mw_layout l;
        struct step_world w;

        open_world(&w, models[i % 2], 4, more[mw_rand_u64(9, 6, i) % 3]);
        mw_layout_default(&l);
        l.tp = 1 << mw_rand_u64(9, 1, i) % 3;
        l.sp = l.tp > 1;
        l.pp = 1 << mw_rand_u64(9, 2, i) % 3;
        l.dp = 32 / (l.tp * l.pp);
        l.ep = i % 2 == 1 ? 1 << mw_rand_u64(9, 3, i) % 3 : 1;
        l.zero = (int)(mw_rand_u64(9, 4, i) % 4);
        l.recompute = (enum mw_recompute)(mw_rand_u64(9, 5, i) % 3);
        if (mw_layout_check(&l, &w.s.model, &w.s.workload, 32, NULL, NULL) ==
            MW_OK) {
            step_forms_agree(&w, &l);
            n++;
        }
        step_world_close(&w);
        if (n >= 60) {
            break;
        }
    }
    assert_int_equal(n, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_zero_3),
        cmocka_unit_test(test_tied),   cmocka_unit_test(test_messages),
        cmocka_unit_test(test_time),   cmocka_unit_test(test_forms_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
