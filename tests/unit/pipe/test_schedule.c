/* Making, checking, reading and replaying schedules: small cases by hand. */
#include "mw_test.h"

#include "sim/pipe/schedule.h"

#include <math.h>
#include <string.h>

static struct mw_schedule make(const char *kind, int p, int m, int v)
{
    struct mw_sched_args a = {
        .n_stages = p, .n_microbatches = m, .n_chunks = v};
    struct mw_schedule s = {0};
    struct mw_err err = {0};

    if (mw_schedule_make(kind, &a, &s, &err) != MW_OK) {
        fail_msg("%s: %s", kind, err.text);
    }
    return s;
}

/* Replays with F, B, W ps on every stage. */
static struct mw_pipe_run run(const struct mw_schedule *s, mw_time f, mw_time b,
                              mw_time w, mw_time comm)
{
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks, i;
    mw_time *t = mw_calloc(3 * n, sizeof *t);
    struct mw_pipe_times times = {
        .f_ps = t, .b_ps = t + n, .w_ps = t + 2 * n, .comm_ps = comm};
    struct mw_pipe_run out = {0};
    struct mw_err err = {0};

    for (i = 0; i < n; i++) {
        t[i] = f;
        t[n + i] = b;
        t[2 * n + i] = w;
    }
    if (mw_pipe_replay(s, &times, &out, &err) != MW_OK) {
        fail_msg("%s: %s", s->name, err.text);
    }
    mw_free(t);
    return out;
}

static void expect_list(const struct mw_schedule *s, int device,
                        const char *want)
{
    struct mw_str text = {0};

    mw_schedule_format(s, device, &text);
    assert_string_equal(text.s, want);
    mw_str_release(&text);
}

static void test_orders_of_two_stages(void **state)
{
    struct mw_schedule s = make("GPipe", 2, 3, 0);

    (void)state;
    expect_list(&s, 1, "F0 F1 F2 BW0 BW1 BW2");
    mw_schedule_release(&s);
    s = make("1f1b", 2, 3, 1);
    expect_list(&s, 0, "F0 F1 BW0 F2 BW1 BW2");
    expect_list(&s, 1, "F0 BW0 F1 BW1 F2 BW2");
    mw_schedule_release(&s);
    s = make("interleaved-1f1b", 2, 2, 2);
    /* warm-up 2(p-1-i) + (v-1)p: 4 of 4 forwards first, then 2. */
    expect_list(&s, 0, "F0.0 F1.0 F0.1 F1.1 BW0.1 BW1.1 BW0.0 BW1.0");
    expect_list(&s, 1, "F0.0 F1.0 F0.1 BW0.1 F1.1 BW1.1 BW0.0 BW1.0");
    mw_schedule_release(&s);
    s = make("zb-h1", 2, 3, 1);
    expect_list(&s, 0, "F0 F1 B0 W0 F2 B1 W1 B2 W2");
    expect_list(&s, 1, "F0 B0 F1 B1 W0 F2 B2 W1 W2");
    mw_schedule_release(&s);
}

/*
 * 1F1B, p = 2, m = 2, F = 2, BW = 3, comm 1, by hand:
 *   stage 0: F0 0-2, F1 2-4, BW0 9-12 (B of stage 1 ends 8, +1), BW1 14-17
 *   stage 1: F0 3-5, BW0 5-8, F1 8-10, BW1 10-13
 */
static void test_replay_by_hand(void **state)
{
    static const mw_time start[] = {0, 2, 9, 14, 3, 5, 8, 10};
    struct mw_schedule s = make("1f1b", 2, 2, 1);
    struct mw_pipe_run r = run(&s, 2, 1, 2, 1);
    size_t i;

    (void)state;
    for (i = 0; i < 8; i++) {
        assert_int_equal(r.start_ps[i], start[i]);
    }
    assert_int_equal(r.makespan_ps, 17);
    assert_int_equal(r.longest_span_ps, 17);
    mw_assert_near(r.peak_activations[0], 2, 0, 0);
    mw_assert_near(r.peak_activations[1], 1, 0, 0);
    mw_pipe_run_release(&r);
    mw_schedule_release(&s);
}

/* The same with sends that block: stage 0 also waits 1 after each F (F1 3-5),
 * stage 1 after each BW: F0 3-5, BW0 5-8, F1 9-11, BW1 11-14; stage 0: BW0 9-12
 * BW1 15-18. */
static void test_blocking_replay_by_hand(void **state)
{
    static const mw_time start[] = {0, 3, 9, 15, 3, 5, 9, 11};
    mw_time f[] = {2, 2}, b[] = {1, 1}, w[] = {2, 2};
    struct mw_pipe_times times = {
        .f_ps = f, .b_ps = b, .w_ps = w, .comm_ps = 1, .is_blocking = true};
    struct mw_schedule s = make("1f1b", 2, 2, 1);
    struct mw_pipe_run r;
    size_t i;

    (void)state;
    assert_int_equal(mw_pipe_replay(&s, &times, &r, NULL), MW_OK);
    for (i = 0; i < 8; i++) {
        assert_int_equal(r.start_ps[i], start[i]);
    }
    mw_pipe_run_release(&r);
    mw_schedule_release(&s);
}

static void expect_round_trip(const char *kind, int v)
{
    struct mw_schedule s = make(kind, 4, 8, v), back = {0};
    struct mw_str text[4] = {{0}};
    const char *list[4];
    struct mw_err err = {0};
    int d;

    for (d = 0; d < 4; d++) {
        mw_schedule_format(&s, d, &text[d]);
        list[d] = text[d].s;
    }
    if (mw_schedule_parse_parts(list, 4, 8, s.n_chunks, s.n_parts,
                                mw_placement_name(s.placement), &back,
                                &err) != MW_OK ||
        mw_schedule_check(&back, &err) != MW_OK) {
        fail_msg("%s: %s", kind, err.text);
    }
    assert_int_equal(back.first[4], s.first[4]);
    assert_memory_equal(back.slot, s.slot, s.first[4] * sizeof *s.slot);
    assert_int_equal(back.is_forward_only, s.is_forward_only);
    for (d = 0; d < 4; d++) {
        mw_str_release(&text[d]);
    }
    mw_schedule_release(&back);
    mw_schedule_release(&s);
}

/* Loop, V, both ways with overlapped pairs, parts, no backward. */
static void test_text_round_trip(void **state)
{
    (void)state;
    expect_round_trip("interleaved-zb", 2);
    expect_round_trip("zb-v", 2);
    expect_round_trip("dualpipe", 0);
    expect_round_trip("dualpipev", 2);
    expect_round_trip("seq1f1b", 0);
    expect_round_trip("forward-only", 1);
}

static void expect_bad(const char *l0, const char *l1, const char *want)
{
    const char *list[] = {l0, l1};
    struct mw_schedule s = {0};
    struct mw_err err = {0};
    enum mw_status st = mw_schedule_parse(list, 2, 2, 1, "loop", &s, &err);

    if (st == MW_OK) {
        st = mw_schedule_check(&s, &err);
        mw_schedule_release(&s);
    }
    assert_int_equal(st, MW_EINPUT);
    assert_int_equal(err.n_findings, 1);
    if (strstr(err.text, want) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, want);
    }
}

static void test_wrong_orders_are_named(void **state)
{
    const char *good = "F0 F1 BW0 BW1";

    (void)state;
    expect_bad(good, "F0 B1 F1 B0 W0 W1", "stage 1: B1 comes before F1");
    expect_bad(good, "F0 F1 B0 W1 B1 W0", "stage 1: W1 comes before B1");
    expect_bad(good, "F0 F1 B0 B1 W0", "stage 1: W1 is missing");
    expect_bad(good, "F0 BW0", "stage 1: F1 is missing");
    expect_bad("F0 F1 F1 BW0 BW1", good, "stage 0: F1 runs twice");
    expect_bad(good, "F0 F1 BW0 BW1 W1", "stage 1: W1 runs twice");
    expect_bad("F0 BW0 F1 BW1", "F0 F1 BW1 BW0",
               "deadlock: stage 0 waits before BW0 for B0 of stage 1");
    expect_bad("F0 F1 X0", good, "stage 0: 'X0' is not a pass");
    expect_bad("F0 F2", good, "'F2' is of micro-batch 2 or more");
    expect_bad("F0.1", good, "'F0.1' needs a chunk from 0 to 0");
    expect_bad("F", good, "'F' needs a micro-batch number");
    expect_bad("F0;F1", good, "'F0;F1' goes on after the pass");
}

static void expect_usage(const char *kind, int p, int m, int v, double f,
                         const char *want)
{
    struct mw_sched_args a = {
        .n_stages = p, .n_microbatches = m, .n_chunks = v, .f_s = f};
    struct mw_schedule s = {0};
    struct mw_err err = {0};

    assert_int_equal(mw_schedule_make(kind, &a, &s, &err), MW_EUSAGE);
    if (strstr(err.text, want) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, want);
    }
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    expect_usage("1f1b", 0, 4, 1, 0, "1f1b needs 1 to 4096 stages, not 0");
    expect_usage("1f1b", 4, 0, 1, 0, "needs 1 to 1048576 micro-batches");
    expect_usage("1f1b", 4, 4, 2, 0, "needs exactly 1 chunk per stage, not 2");
    expect_usage("interleaved-1f1b", 4, 9, 2, 0, "not 9 but 8 or 10");
    expect_usage("1f1b", 4, 4, 1, -1, "the forward time is -1");
    expect_usage("1f1b", 4, 4, 1, (double)NAN, "the forward time is nan");
    expect_usage("zb-h3", 4, 4, 1, 0, "did you mean zb-h1?");
    expect_usage("gpipe", 4096, 1 << 20, 1, 0, "are more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_of_two_stages),
        cmocka_unit_test(test_replay_by_hand),
        cmocka_unit_test(test_blocking_replay_by_hand),
        cmocka_unit_test(test_text_round_trip),
        cmocka_unit_test(test_wrong_orders_are_named),
        cmocka_unit_test(test_wrong_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
