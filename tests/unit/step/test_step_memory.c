/*
 * Memory of a stage: parameter states by ZeRO stage against the model's
 * parameter count, activations against the layer's own figures, tied
 * embeddings, and the fast form against the walk over the list.
 */
#include "two_node_bench.h"

#include <math.h>

/* ZeRO figure 1: 2 + 4 + 12 bytes a parameter, shared by 16 ranks. */
static void test_states_by_zero_stage(void **state)
{
    struct bench *b = *state;
    double n = (double)mw_model_param_count(&b->scenario.model);
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    for (l.zero = 0; l.zero <= 3; l.zero++) {
        struct mw_step_result r = memory_of(b, &l);
        const struct mw_stage_memory *m = &r.memory[0];

        mw_assert_near(m->weight_bytes, 2 * n / (l.zero >= 3 ? 16 : 1), 1e-12,
                       0);
        mw_assert_near(m->grad_bytes, 4 * n / (l.zero >= 2 ? 16 : 1), 1e-12, 0);
        mw_assert_near(m->optimizer_bytes, 12 * n / (l.zero >= 1 ? 16 : 1),
                       1e-12, 0);
        mw_assert_near(m->total_bytes,
                       m->weight_bytes + m->grad_bytes + m->optimizer_bytes +
                           m->activation_bytes + m->temporary_bytes +
                           m->buffer_bytes + m->overhead_bytes,
                       1e-12, 0);
        assert_true(r.fits && r.peak_bytes <= r.usable_bytes);
        mw_assert_near(r.usable_bytes * (1 + b->ctx.stack.memory.error) *
                           b->ctx.stack.memory.reserve_factor,
                       r.capacity_bytes, 1e-12, 0);
        mw_step_result_release(&r);
    }
}

/* The last stage has a copy of the embedding to multiply with: vocab x hidden
 * = 32768 x 1024 parameters more than the model has. */
/* Both holders of a stage share its gradients, and with ZeRO its states. */
static void test_two_routes_share_with_their_twins(void **state)
{
    struct bench *b = *state;
    struct mw_layout l;
    struct mw_stage_memory plain[4];

    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 4;
    l.schedule = "dualpipe";
    for (l.zero = 0; l.zero <= 3; l.zero++) {
        struct mw_step_result r = memory_of(b, &l);
        const struct mw_stage_memory *m = &r.memory[1];

        plain[l.zero] = *m;
        mw_assert_near(m->weight_bytes,
                       plain[0].weight_bytes / (l.zero >= 3 ? 8 : 1), 1e-12, 0);
        mw_assert_near(m->grad_bytes,
                       plain[0].grad_bytes / (l.zero >= 2 ? 8 : 1), 1e-12, 0);
        mw_assert_near(m->optimizer_bytes,
                       plain[0].optimizer_bytes / (l.zero >= 1 ? 8 : 1), 1e-12,
                       0);
        mw_step_result_release(&r);
    }
}

static void test_tied_embedding_is_held_twice(void **state)
{
    struct bench *b = *state;
    double n = (double)mw_model_param_count(&b->scenario.model), sum = 0;
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 4;
    struct mw_step_result r = memory_of(b, &l);
    for (int d = 0; d < 4; d++) {
        sum += r.memory[d].weight_bytes;
    }
    mw_assert_near(sum, 2 * (n + 32768.0 * 1024), 1e-12, 0);
    mw_step_result_release(&r);
    /* split over tp, each rank holds its part of either */
    l.tp = 2;
    l.dp = 2;
    r = memory_of(b, &l);
    assert_true(r.memory[3].weight_bytes < sum / 2);
    mw_step_result_release(&r);
}

/* 1F1B holds p - d micro-batches on device d, GPipe all 16. */
static void test_activations_in_flight(void **state)
{
    struct bench *b = *state;
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 4;
    struct mw_work work = {.model = &b->scenario.model,
                           .layout = &l,
                           .seq = 512,
                           .dtype = MW_BF16,
                           .grad_dtype = MW_FP32};
    double layer = mw_layer_activation_bytes(&work, 0);
    double embedding = mw_embedding_activation_bytes(&work);
    double head = mw_head_activation_bytes(&work);
    struct mw_step_result r = memory_of(b, &l);

    mw_assert_near(r.memory[0].activation_bytes, 4 * (4 * layer + embedding),
                   1e-12, 0);
    mw_assert_near(r.memory[1].activation_bytes, 3 * 4 * layer, 1e-12, 0);
    mw_assert_near(r.memory[3].activation_bytes, 4 * layer + head, 1e-12, 0);
    mw_step_result_release(&r);
    l.schedule = "gpipe";
    r = memory_of(b, &l);
    mw_assert_near(r.memory[1].activation_bytes, 16 * 4 * layer, 1e-12, 0);
    mw_step_result_release(&r);
    /* interleaved with 2 chunks: device 0 has 2 (p - 1) + p warm-up chunks of 2
     * layers and one more in hand */
    l.schedule = "interleaved-1f1b";
    l.vpp = 2;
    r = memory_of(b, &l);
    mw_assert_near(r.memory[1].activation_bytes, (2 * 2 + 4 + 1) * 2 * layer,
                   1e-12, 0);
    mw_step_result_release(&r);
}

static void test_recomputation_keeps_less(void **state)
{
    struct bench *b = *state;
    struct mw_layout l;
    double before = (double)INFINITY;

    mw_layout_default(&l);
    l.dp = 16;
    for (int kind = MW_RECOMPUTE_NONE; kind <= MW_RECOMPUTE_FULL; kind++) {
        l.recompute = (enum mw_recompute)kind;
        struct mw_step_result r = memory_of(b, &l);
        assert_true(r.memory[0].activation_bytes < before);
        before = r.memory[0].activation_bytes;
        mw_step_result_release(&r);
    }
}

/* Parts are named and add up; the moment of the last stage is the head's. */
static void test_parts_add_up(void **state)
{
    struct bench *b = *state;
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 4;
    struct mw_step_result r = memory_of(b, &l);
    for (int d = 0; d < r.n_stages; d++) {
        const struct mw_stage_memory *m = &r.memory[d];
        double sum = 0;

        assert_true(m->n_parts >= 6);
        for (int i = 0; i < m->n_parts; i++) {
            assert_true(m->parts[i].bytes > 0 && m->parts[i].name[0] != '\0');
            sum += m->parts[i].bytes;
        }
        mw_assert_near(sum, m->total_bytes, 1e-12, 0);
    }
    assert_string_equal(r.memory[3].moment, "loss");
    assert_string_equal(r.memory[0].parts[0].name, "weights");
    mw_step_result_release(&r);
}

/* Megatron-Core: a bf16 gradient of one weight of each shape and of the head
 * stays; the logits' gradient takes their place. FSDP: weights are the fp32
 * master, so that 16 bytes a parameter are left of 18. */
static void test_habits_of_stacks(void **state)
{
    struct bench *b = *state;
    double n = (double)mw_model_param_count(&b->scenario.model);
    double h = b->scenario.model.hidden, vocab = b->scenario.model.vocab;
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    struct mw_step_result plain = memory_of(b, &l);
    assert_int_equal(mw_cost_ctx_set_stack(&b->ctx, "megatron-core", NULL),
                     MW_OK);
    struct mw_step_result core = memory_of(b, &l);
    double dummies = 2 * (3 * h * h + h * h + 4 * h * h + 4 * h * h);
    mw_assert_near(core.memory[0].buffer_bytes - plain.memory[0].buffer_bytes,
                   dummies, 1e-12, 0);
    mw_assert_near(plain.memory[0].activation_bytes -
                       core.memory[0].activation_bytes,
                   2 * vocab * 512, 1e-12, 0);
    l.zero = 3;
    assert_int_equal(mw_cost_ctx_set_stack(&b->ctx, "torch-fsdp", NULL), MW_OK);
    struct mw_step_result fsdp = memory_of(b, &l);
    mw_assert_near(fsdp.memory[0].weight_bytes + fsdp.memory[0].grad_bytes +
                       fsdp.memory[0].optimizer_bytes,
                   16 * n / 16, 1e-12, 0);
    assert_int_equal(mw_cost_ctx_set_stack(&b->ctx, "plain", NULL), MW_OK);
    mw_step_result_release(&plain);
    mw_step_result_release(&core);
    mw_step_result_release(&fsdp);
}

/* Transformer Engine keeps attention's output beside what the projection keeps
 * of it: a habit, but where heads are dealt out it is in the table. */
static void test_outputs_kept_under_cp(void **state)
{
    struct bench *b = *state;
    const struct mw_model *m = &b->scenario.model;

    const enum mw_cp_form forms[] = {MW_CP_GATHER, MW_CP_A2A};

    for (size_t i = 0; i < 2; i++) {
        struct mw_layout l;
        double kept[2];

        mw_layout_default(&l);
        l.cp = 2;
        l.dp = 8;
        l.cp_form = forms[i];
        for (int again = 0; again < 2; again++) {
            b->ctx.stack.memory.cp_kept = again;
            struct mw_step_result r = memory_of(b, &l);

            kept[again] = r.memory[0].activation_bytes;
            mw_step_result_release(&r);
        }
        b->ctx.stack.memory.cp_kept = 0;
        /* 2 bytes of half of the tokens */
        int64_t outputs = b->scenario.workload.seq * m->hidden * m->n_layers;

        mw_assert_near(kept[1] - kept[0],
                       forms[i] == MW_CP_A2A ? 0 : (double)outputs, 1e-12, 1);
    }
}

/* Whole weights are there while they are loaded, if nothing later is larger. */
static void test_loading_whole_weights(void **state)
{
    struct bench *b = *state;
    double n = (double)mw_model_param_count(&b->scenario.model);
    struct mw_stack_memory *habit = &b->ctx.stack.memory;
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    l.zero = 3;
    l.recompute = MW_RECOMPUTE_FULL;
    struct mw_step_result plain = memory_of(b, &l);
    habit->load_whole = 1;
    struct mw_step_result whole = memory_of(b, &l);
    habit->load_whole = 100;
    struct mw_step_result more = memory_of(b, &l);
    habit->load_whole = 0;
    assert_true(whole.peak_bytes >= plain.peak_bytes);
    const struct mw_stage_memory *m = &more.memory[0];
    mw_assert_near(m->total_bytes - m->overhead_bytes - m->buffer_bytes -
                       m->weight_bytes,
                   100 * 2 * n, 1e-12, 0);
    assert_string_equal(more.memory[0].moment, "loading");
    mw_step_result_release(&plain);
    mw_step_result_release(&whole);
    mw_step_result_release(&more);
}

/* Remainders: 2 of 12 bytes of an optimizer's parameter are in its weight.
 * Recomputed by XLA: the input, query, key and value of each of 16 layers, and
 * the projection's output. */
static void test_remainders_and_remat(void **state)
{
    struct bench *b = *state;
    double n = (double)mw_model_param_count(&b->scenario.model);
    double x = 2 * 512 * (double)b->scenario.model.hidden;
    struct mw_stack_memory *habit = &b->ctx.stack.memory;
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    struct mw_step_result plain = memory_of(b, &l);
    habit->remainders = 1;
    habit->remat_keeps = 1;
    struct mw_step_result qkv = memory_of(b, &l);
    habit->remat_keeps = 2;
    struct mw_step_result proj = memory_of(b, &l);
    habit->remainders = habit->remat_keeps = 0;
    mw_assert_near(plain.memory[0].optimizer_bytes -
                       qkv.memory[0].optimizer_bytes,
                   2 * n, 1e-12, 0);
    mw_assert_near(proj.memory[0].activation_bytes -
                       qkv.memory[0].activation_bytes,
                   16 * x, 1e-12, 0);
    assert_true(qkv.memory[0].activation_bytes <
                plain.memory[0].activation_bytes);
    l.recompute = MW_RECOMPUTE_FULL;
    struct mw_step_result full = memory_of(b, &l);
    mw_assert_near(qkv.memory[0].activation_bytes -
                       full.memory[0].activation_bytes,
                   3 * 16 * x, 1e-12, 0);
    mw_step_result_release(&plain);
    mw_step_result_release(&qkv);
    mw_step_result_release(&proj);
    mw_step_result_release(&full);
}

static void test_fast_form_has_the_same_peak(void **state)
{
    static const char *const kinds[] = {"1f1b", "gpipe", "zb-h1",
                                        "interleaved-1f1b"};
    struct bench *b = *state;
    struct mw_layout l;
    struct mw_err err = {0};

    mw_layout_default(&l);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (l.pp = 2; l.pp <= 8; l.pp *= 2) {
            double peak = 0;

            l.schedule = kinds[i];
            l.vpp = strcmp(kinds[i], "interleaved-1f1b") == 0 ? 2 : 1;
            l.dp = 16 / l.pp;
            struct mw_step_result r = memory_of(b, &l);
            assert_int_equal(mw_step_estimate(&b->scenario, &l, NULL, &b->ctx,
                                              NULL, &peak, &err),
                             MW_OK);
            assert_true(memcmp(&peak, &r.peak_bytes, sizeof peak) == 0);
            mw_step_result_release(&r);
        }
    }
}

/* The first r of each stage's 8 layers are recomputed: activations and repeated
 * work lie on the line between none and all, both forms agree. */
static void test_some_layers_recomputed(void **state)
{
    struct mw_hwdb *db = step_hwdb();
    struct mw_scenario s;
    struct mw_cost_ctx ctx;
    struct mw_step_result r[3];

    (void)state;
    step_scenario(&s, "dgx-a100", 1, 64, "bf16");
    step_ctx(&ctx, db, &s);
    for (int kind = MW_RECOMPUTE_SELECTIVE; kind <= MW_RECOMPUTE_FULL; kind++) {
        for (int n = 0; n <= 9; n++) {
            struct mw_layout l;
            double time_s, bytes, part = n == 0 ? 1 : n / 8.0;

            mw_layout_default(&l);
            l.pp = 2;
            l.dp = 4;
            for (int i = 0; i < 3; i++) {
                l.recompute =
                    i == 0 ? MW_RECOMPUTE_NONE : (enum mw_recompute)kind;
                l.recompute_layers = i == 2 ? n : 0;
                step_simulate(&r[i], &s, &l, &ctx, NULL);
            }
            part = part > 1 ? 1 : part;
            for (int d = 0; d < 2; d++) {
                mw_assert_near(r[2].memory[d].activation_bytes,
                               (1 - part) * r[0].memory[d].activation_bytes +
                                   part * r[1].memory[d].activation_bytes,
                               1e-9, 0);
            }
            mw_assert_near(r[2].breakdown_s[MW_SPAN_RECOMPUTE],
                           part * r[1].breakdown_s[MW_SPAN_RECOMPUTE], 1e-6, 0);
            mw_assert_near(r[2].hardware_flops - r[2].model_flops,
                           part * (r[1].hardware_flops - r[1].model_flops),
                           1e-9, 0);
            assert_int_equal(
                mw_step_estimate(&s, &l, NULL, &ctx, &time_s, &bytes, NULL),
                MW_OK);
            mw_assert_near(time_s, r[2].step_time_s, 0.03, 0);
            assert_memory_equal(&bytes, &r[2].peak_bytes, sizeof bytes);
            for (int i = 0; i < 3; i++) {
                mw_step_result_release(&r[i]);
            }
        }
    }
    mw_scenario_release(&s);
    mw_hwdb_free(db);
}

/* ---- counts by stage -------------------------------------------------------
 */
static void expect_same_step(const struct mw_scenario *s,
                             const struct mw_cost_ctx *ctx,
                             const struct mw_layout *a,
                             const struct mw_layout *b)
{
    const struct mw_layout *l[2] = {a, b};
    struct mw_step_result r[2];
    double fast[2][2];

    for (int i = 0; i < 2; i++) {
        step_simulate(&r[i], s, l[i], ctx, NULL);
        assert_int_equal(mw_step_estimate(s, l[i], NULL, ctx, &fast[i][0],
                                          &fast[i][1], NULL),
                         MW_OK);
    }
    assert_memory_equal(fast[0], fast[1], sizeof fast[0]);
    assert_memory_equal(&r[0].step_time_s, &r[1].step_time_s, sizeof(double));
    assert_memory_equal(&r[0].peak_bytes, &r[1].peak_bytes, sizeof(double));
    assert_memory_equal(r[0].breakdown_s, r[1].breakdown_s,
                        sizeof r[0].breakdown_s);
    for (int d = 0; d < a->pp; d++) {
        assert_memory_equal(&r[0].memory[d].total_bytes,
                            &r[1].memory[d].total_bytes, sizeof(double));
    }
    mw_step_result_release(&r[0]);
    mw_step_result_release(&r[1]);
}

/* The same count for every stage is recompute_layers, to the bit. */
static void test_equal_counts_are_one_count(void **state)
{
    static const char *const kinds[] = {"1f1b", "interleaved-1f1b", "zb-v",
                                        "gpipe"};
    struct mw_hwdb *db = step_hwdb();
    struct mw_scenario s;
    struct mw_cost_ctx ctx;

    (void)state;
    step_scenario(&s, "dgx-a100", 1, 64, "bf16");
    step_ctx(&ctx, db, &s);
    for (int i = 0; i < 4 * 2 * 4; i++) {
        struct mw_layout one, each;
        int n = 1 + i % 4;
        int64_t counts[4] = {n, n, n, n};

        mw_layout_default(&one);
        one.schedule = kinds[i / 8];
        one.vpp = i / 8 == 1 || i / 8 == 2 ? 2 : 1;
        one.pp = 2;
        one.dp = 4;
        one.recompute = (enum mw_recompute)(1 + i / 4 % 2);
        each = one;
        one.recompute_layers = n;
        each.stage_recompute_layers =
            (struct mw_int_list){counts, (size_t)(one.pp * one.vpp)};
        expect_same_step(&s, &ctx, &one, &each);
    }
    mw_scenario_release(&s);
    mw_hwdb_free(db);
}

/* Each stage's activations are what as many layers of it keep under one count
 * for all, and repeated work is the sum over stages. */
static void test_counts_are_of_their_stages(void **state)
{
    struct mw_hwdb *db = step_hwdb();
    struct mw_scenario s;
    struct mw_cost_ctx ctx;

    (void)state;
    step_scenario(&s, "dgx-a100", 1, 64, "bf16");
    step_ctx(&ctx, db, &s);
    for (int i = 0; i < 5 * 5; i++) {
        int64_t counts[2] = {2 * (i % 5), 2 * (i / 5)};
        double again_flops = 0;
        struct mw_step_result all, r;
        struct mw_layout l;

        mw_layout_default(&l);
        l.pp = 2;
        l.dp = 4;
        l.recompute = MW_RECOMPUTE_FULL;
        l.stage_recompute_layers = (struct mw_int_list){counts, 2};
        step_simulate(&r, &s, &l, &ctx, NULL);
        for (int d = 0; d < 2; d++) {
            l.stage_recompute_layers.n = 0;
            l.recompute_layers = (int)counts[d];
            l.recompute = counts[d] > 0 ? MW_RECOMPUTE_FULL : MW_RECOMPUTE_NONE;
            step_simulate(&all, &s, &l, &ctx, NULL);
            assert_memory_equal(&all.memory[d].activation_bytes,
                                &r.memory[d].activation_bytes, sizeof(double));
            again_flops += (all.hardware_flops - all.model_flops) / 2;
            mw_step_result_release(&all);
        }
        mw_assert_near(r.hardware_flops - r.model_flops, again_flops, 1e-9, 0);
        mw_step_result_release(&r);
    }
    mw_scenario_release(&s);
    mw_hwdb_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_by_zero_stage),
        cmocka_unit_test(test_two_routes_share_with_their_twins),
        cmocka_unit_test(test_tied_embedding_is_held_twice),
        cmocka_unit_test(test_activations_in_flight),
        cmocka_unit_test(test_recomputation_keeps_less),
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_habits_of_stacks),
        cmocka_unit_test(test_outputs_kept_under_cp),
        cmocka_unit_test(test_loading_whole_weights),
        cmocka_unit_test(test_remainders_and_remat),
        cmocka_unit_test(test_some_layers_recomputed),
        cmocka_unit_test(test_equal_counts_are_one_count),
        cmocka_unit_test(test_counts_are_of_their_stages),
        cmocka_unit_test(test_fast_form_has_the_same_peak),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
