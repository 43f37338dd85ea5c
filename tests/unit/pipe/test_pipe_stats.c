/* Statistics of a replay by hand, sends that block, memory limits. */
#include "mw_test.h"

#include "sim/pipe/pipe_stats.h"

#include <string.h>

static struct mw_schedule make(const char *kind, int p, int m)
{
    struct mw_sched_args a = {.n_stages = p, .n_microbatches = m};
    struct mw_schedule s = {0};
    struct mw_err err = {0};

    if (mw_schedule_make(kind, &a, &s, &err) != MW_OK) {
        fail_msg("%s: %s", kind, err.text);
    }
    return s;
}

/*
 * 1F1B, p = 2, m = 2, F 2, B 1, W 2, c 1, optimizer 4 (test_schedule.c has the
 * starts): stage 0 runs 0..17 with 10 of work, so it waits 7: F1 ends 4, BW0
 * arrives 9 of which 1 is transfer (produced at 8); BW0 ends 12, BW1 arrives
 * 14, produced at 13: 1 of transfer. Stage 1: F0 3-5 BW0 5-8 F1 8-10 BW1 10-13,
 * F1 had arrived at 5: nothing exposed after its first pass.
 */
static void test_stats_by_hand(void **state)
{
    mw_time f[] = {2, 2}, b[] = {1, 1}, w[] = {2, 2}, opt[] = {4, 4};
    double bytes[] = {100, 60};
    struct mw_pipe_times times = {
        .f_ps = f, .b_ps = b, .w_ps = w, .comm_ps = 1, .opt_ps = opt};
    struct mw_pipe_stats_opts opts = {
        .w_share = 1, .activation_bytes = bytes, .boundary_bytes = 8};
    struct mw_schedule s = make("1f1b", 2, 2);
    struct mw_pipe_run run;
    struct mw_pipe_stats x;

    (void)state;
    assert_int_equal(mw_pipe_replay(&s, &times, &run, NULL), MW_OK);
    mw_pipe_stats(&s, &times, &run, &opts, &x);
    assert_int_equal(run.makespan_ps, 21);
    assert_int_equal(x.stage[0].busy_ps, 14);
    assert_int_equal(x.stage[0].span_ps, 21);
    assert_int_equal(x.stage[1].span_ps, 14);
    mw_assert_near(x.bubble_makespan, 1 - 14.0 / 21, 1e-15, 0);
    mw_assert_near(x.bubble_span, 1 - 14.0 / 21, 1e-15, 0);
    assert_int_equal(x.stage[0].exposed_ps, 2);
    assert_int_equal(x.stage[1].exposed_ps, 0);
    assert_int_equal(x.exposed_ps, 2);
    assert_int_equal(x.n_sends, 4);
    mw_assert_near(x.sent_bytes, 32, 0, 0);
    mw_assert_near(x.stage[0].peak_bytes, 200, 0, 0);
    mw_assert_near(x.stage[1].peak_bytes, 60, 0, 0);
    mw_pipe_stats_release(&x);
    mw_pipe_run_release(&run);
    mw_schedule_release(&s);
}

/* "The same order can peak at 2p or 4p": what B frees decides. ZB-H2 on stage
 * p-1 runs 2p-1 backwards before its first W. */
static void test_memory_model(void **state)
{
    mw_time t[4] = {1, 1, 1, 1};
    struct mw_pipe_times times = {.f_ps = t, .b_ps = t, .w_ps = t};
    struct mw_pipe_stats_opts all = {.w_share = 1}, half = {.w_share = 0.5};
    struct mw_schedule s = make("zb-h2", 4, 16);
    struct mw_pipe_run run;
    struct mw_pipe_stats x, y;

    (void)state;
    assert_int_equal(mw_pipe_replay(&s, &times, &run, NULL), MW_OK);
    mw_pipe_stats(&s, &times, &run, &all, &x);
    mw_pipe_stats(&s, &times, &run, &half, &y);
    mw_assert_near(x.stage[3].peak, 7, 0, 0);
    mw_assert_near(y.stage[3].peak, 4, 0, 0);
    mw_assert_near(x.stage[0].peak, 7, 0, 0);
    mw_assert_near(y.stage[0].peak, 7, 0, 0);
    mw_pipe_stats_release(&x);
    mw_pipe_stats_release(&y);
    mw_pipe_run_release(&run);
    mw_schedule_release(&s);
}

static void expect_buffers(const char *kind, int p, int m, int want)
{
    struct mw_schedule s = make(kind, p, m);

    assert_int_equal(mw_schedule_send_buffers(&s), want);
    assert_int_equal(mw_schedule_check_sends(&s, -1, NULL), MW_OK);
    mw_schedule_release(&s);
}

/* GPipe never has a forward and a backward meet; 1F1B does at once. */
static void test_blocking_sends(void **state)
{
    struct mw_schedule s = make("1f1b", 2, 4);
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_schedule_check_sends(&s, 0, &err), MW_EINPUT);
    assert_string_equal(err.text,
                        "deadlock with blocking sends: stage 0 waits to send "
                        "the result of F1 to stage 1, which is not ready to "
                        "receive it");
    mw_schedule_release(&s);
    expect_buffers("gpipe", 4, 8, 0);
    expect_buffers("forward-only", 4, 8, 0);
    expect_buffers("1f1b", 4, 8, 1);
    expect_buffers("1f1b", 1, 4, 0);
    expect_buffers("zb-h1", 4, 8, 1);
    expect_buffers("eager-1f1b", 4, 16, 1);
}

static void test_memory_limit(void **state)
{
    struct mw_schedule s = make("zb-v", 4, 8);
    struct mw_err err = {0};

    (void)state;
    assert_int_equal(mw_schedule_check_memory(&s, 4, 1, NULL), MW_OK);
    assert_int_equal(mw_schedule_check_memory(&s, 0, 1, NULL), MW_OK);
    assert_int_equal(mw_schedule_check_memory(&s, 3.5, 1, &err), MW_EINPUT);
    assert_string_equal(
        err.text,
        "stage 0: F0.1 makes it hold 4 activations; the limit is 3.5");
    mw_schedule_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats_by_hand),
        cmocka_unit_test(test_memory_model),
        cmocka_unit_test(test_blocking_sends),
        cmocka_unit_test(test_memory_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
