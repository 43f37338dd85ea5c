/*
 * What stacks hold beside the model's table and their states (rows
 * memory_*.STACK of the constants): sent hidden states, contexts, copies at the
 * optimizer's step, segments and places of the caching allocator, each in
 * closed form.
 */
#include "two_node_bench.h"

#include <math.h>

/* What the allocator only holds where there is room: 7 whole x of the rank's
 * tokens (2 x 512 of 1024 elements in bf16) and 4 bytes a parameter, up to the
 * device's memory and no further; the tensors do not change. */
static void test_reserved_where_there_is_room(void **state)
{
    struct bench plain = *(struct bench *)*state, b = plain;
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = 4;
    l.sp = true;
    l.dp = 4;
    l.micro_batch = 2;
    b.ctx.stack.memory.reserve_queued = 7;
    b.ctx.stack.memory.reserve_param_bytes = 4;
    struct mw_step_result a = memory_of(&plain, &l), c = memory_of(&b, &l);
    double more = 7.0 * 2 * 512 * 1024 * 2 + 4 * a.memory[0].weight_bytes / 2;

    mw_assert_near(c.reserved_bytes - a.reserved_bytes, more, 1e-9, 0);
    mw_assert_near(c.peak_bytes, a.peak_bytes, 0, 0);
    b.scenario.limits.memory_bytes =
        a.memory[0].overhead_bytes + a.reserved_bytes + more / 3;
    struct mw_step_result tight = memory_of(&b, &l);

    mw_assert_near(tight.reserved_bytes - a.reserved_bytes, more / 3, 1e-9, 0);
    b.scenario.limits.memory_bytes = a.reserved_bytes / 2;
    struct mw_step_result full = memory_of(&b, &l);

    mw_assert_near(full.reserved_bytes, a.reserved_bytes, 0, 0);
    mw_step_result_release(&a);
    mw_step_result_release(&c);
    mw_step_result_release(&tight);
    mw_step_result_release(&full);
}

/* 1F1B: stage d of 4 holds 4 - d micro-batches, so as many sent hidden states
 * (512 x 1024 in bf16) if they stay; the last stage sends none. Of what one
 * micro-batch keeps the allocator holds a part more, where others are in
 * flight. */
static void test_sent_states_and_their_places(void **state)
{
    struct bench plain = *(struct bench *)*state, sent = plain, held = plain;
    struct mw_layout l;

    mw_layout_default(&l);
    l.pp = 4;
    l.dp = 4;
    sent.ctx.stack.memory.pp_sent = 1;
    held.ctx.stack.memory.reserve_pass = 0.5;
    struct mw_step_result a = memory_of(&plain, &l), b = memory_of(&sent, &l),
                          c = memory_of(&held, &l);

    for (int d = 0; d < 4; d++) {
        int n = 4 - d;

        mw_assert_near(b.memory[d].activation_bytes -
                           a.memory[d].activation_bytes,
                       d < 3 ? n * 2.0 * 512 * 1024 : 0, 0, 0);
        mw_assert_near(c.memory[d].reserved_bytes - a.memory[d].reserved_bytes,
                       0.5 * a.memory[d].activation_bytes / n, 1e-9, 0);
        mw_assert_near(c.memory[d].total_bytes, a.memory[d].total_bytes, 0, 0);
    }
    l.pp = 1;
    struct mw_step_result one = memory_of(&plain, &l),
                          same = memory_of(&held, &l);

    mw_assert_near(same.reserved_bytes, one.reserved_bytes, 0, 0);
    mw_step_result_release(&a);
    mw_step_result_release(&b);
    mw_step_result_release(&c);
    mw_step_result_release(&one);
    mw_step_result_release(&same);
}

/* A stack's own context takes the place of the device's. What the optimizer's
 * step alone needs is of the rank's share: 6 bytes of each of the n / 4
 * parameters under ZeRO-1, of n without. */
static void test_context_and_shares_of_the_step(void **state)
{
    struct bench plain = *(struct bench *)*state, b = plain;
    double n = (double)mw_model_param_count(&plain.scenario.model);
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 4;
    b.ctx.stack.memory.context_bytes = 3 * plain.ctx.device_context_bytes;
    b.ctx.stack.memory.reserve_shard_bytes = 6;
    for (l.zero = 0; l.zero <= 1; l.zero++) {
        struct mw_step_result x = memory_of(&plain, &l), y = memory_of(&b, &l);

        mw_assert_near(y.memory[0].overhead_bytes - x.memory[0].overhead_bytes,
                       2 * plain.ctx.device_context_bytes, 1e-12, 0);
        mw_assert_near(y.memory[0].reserved_bytes - x.memory[0].reserved_bytes,
                       6 * n / (l.zero == 1 ? 4 : 1), 1e-9, 0);
        mw_step_result_release(&x);
        mw_step_result_release(&y);
    }
}

/* As shipped, of n parameters at one rank: DeepSpeed without ZeRO makes 8 bytes
 * of copies a parameter at the optimizer's step where ZeRO-1 makes 6, InternEvo
 * 18, with FSDP 12 (docs/step.md). */
static void test_copies_of_shipped_stacks(void **state)
{
    static const struct {
        const char *stack;
        double bytes;
    } rows[] = {{"megatron-deepspeed", 6},
                {"megatron-deepspeed-zero0", 8},
                {"internevo", 18},
                {"internevo-fsdp", 12}};
    struct bench b = *(struct bench *)*state;
    double n = (double)mw_model_param_count(&b.scenario.model);
    struct mw_layout l;

    mw_layout_default(&l);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mw_cost_ctx_set_stack(&b.ctx, rows[i].stack, NULL),
                         MW_OK);
        b.ctx.stack.memory.update_bytes = 0;
        struct mw_step_result with = memory_of(&b, &l);
        b.ctx.stack.memory.reserve_shard_bytes = 0;
        struct mw_step_result without = memory_of(&b, &l);

        mw_assert_near(with.reserved_bytes - without.reserved_bytes,
                       rows[i].bytes * n, 1e-9, 0);
        mw_step_result_release(&with);
        mw_step_result_release(&without);
    }
}

/* At the optimizer's step a pass's tensors are gone: 100 bytes of each of n / 4
 * parameters are more than they are, 1e-3 bytes are not; offloaded they are not
 * there. What is alive the allocator holds, room or not. */
static void test_update_is_a_moment(void **state)
{
    struct bench b = *(struct bench *)*state;
    double n = (double)mw_model_param_count(&b.scenario.model);
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 4;
    l.zero = 1;
    struct mw_step_result plain = memory_of(&b, &l);
    b.ctx.stack.memory.update_bytes = 1e-3;
    struct mw_step_result little = memory_of(&b, &l);
    b.ctx.stack.memory.update_bytes = 100;
    struct mw_step_result much = memory_of(&b, &l);
    const struct mw_stage_memory *m = &much.memory[0];

    mw_assert_near(little.peak_bytes, plain.peak_bytes, 0, 0);
    mw_assert_near(m->activation_bytes + m->temporary_bytes, 100 * n / 4, 1e-12,
                   0);
    assert_string_equal(m->moment, "optimizer's step");
    assert_true(much.reserved_bytes >= much.allocated_bytes);
    b.scenario.limits.memory_bytes = much.peak_bytes / 2;
    struct mw_step_result tight = memory_of(&b, &l);

    assert_true(tight.reserved_bytes >= tight.allocated_bytes && !tight.fits);
    b.scenario.limits.memory_bytes = 0;
    l.offload_optimizer = 1;
    struct mw_step_result host = memory_of(&b, &l);

    assert_true(host.peak_bytes < plain.peak_bytes);
    mw_step_result_release(&plain);
    mw_step_result_release(&little);
    mw_step_result_release(&much);
    mw_step_result_release(&tight);
    mw_step_result_release(&host);
}

/* A vocabulary's gradient that has a segment of its own counts once in what is
 * reserved, also when its moment is the fullest. */
static void test_gradient_of_embedding_counts_once(void **state)
{
    struct bench b = *(struct bench *)*state;
    double vocab =
        (double)b.scenario.model.vocab * (double)b.scenario.model.hidden;
    struct mw_stack_memory *habit = &b.ctx.stack.memory;
    struct mw_layout l;

    mw_layout_default(&l);
    l.dp = 16;
    habit->embed_grad_bytes = 0;
    struct mw_step_result none = memory_of(&b, &l);
    habit->reserve_vocab_bytes = 100;
    struct mw_step_result other = memory_of(&b, &l);
    habit->embed_grad_bytes = 100;
    struct mw_step_result fullest = memory_of(&b, &l);

    mw_assert_near(other.reserved_bytes - none.reserved_bytes, 100 * vocab,
                   1e-9, 0);
    assert_string_equal(fullest.memory[0].moment, "embedding");
    assert_true(fullest.peak_bytes > other.peak_bytes);
    mw_assert_near(fullest.reserved_bytes, other.reserved_bytes, 1e-12, 0);
    mw_step_result_release(&none);
    mw_step_result_release(&other);
    mw_step_result_release(&fullest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved_where_there_is_room),
        cmocka_unit_test(test_sent_states_and_their_places),
        cmocka_unit_test(test_context_and_shares_of_the_step),
        cmocka_unit_test(test_copies_of_shipped_stacks),
        cmocka_unit_test(test_update_is_a_moment),
        cmocka_unit_test(test_gradient_of_embedding_counts_once),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
