/*
 * Closed forms of makespan, span and peak, for p <= 16 and m <= 64, in unit and
 * other times; every schedule passes its check. t is the time of F + B + W of a
 * chunk. Formulas: GPipe, 1F1B, eager, interleaved, looped: (m v + p-1) t;
 * ZB-H1 (F = B = W): m t + (p-1)(F+B-W); ZB-H2 span, m >= 2p-1: m t; ZB-V span,
 * m >= 2p-1: 2 m t; DualPipe (F = B = W): m t + (p/2-1)(2F + 2B - W ...) = m t
 * + (p/2-1) 2F; Seq1F1B: (q m + p-1) t.
 */
#include "mw_test.h"

#include "sim/pipe/pipe_stats.h"
#include "sim/pipe/replay_int.h"

#include <math.h>

struct got {
    mw_time makespan, span;
    double peak; /* chunk activations of the fullest device */
};

static bool try_make(const char *kind, int p, int m, int v, int q,
                     struct mw_schedule *s)
{
    struct mw_sched_args a = {
        .n_stages = p, .n_microbatches = m, .n_chunks = v, .n_parts = q};
    struct mw_err err = {0};

    if (mw_schedule_make(kind, &a, s, NULL) != MW_OK) {
        return false;
    }
    if (mw_schedule_check(s, &err) != MW_OK) {
        fail_msg("%s p %d m %d: %s", kind, p, m, err.text);
    }
    return true;
}

static bool get(const char *kind, int p, int m, int v, int q,
                const mw_time t[4], struct got *out)
{
    struct mw_schedule s;
    struct mw_pipe_run r;
    int d;

    if (!try_make(kind, p, m, v, q, &s)) {
        return false;
    }
    size_t n = (size_t)p * (size_t)s.n_chunks, i;
    mw_time *each = mw_calloc(3 * n, sizeof *each);
    struct mw_pipe_times times = {
        .f_ps = each, .b_ps = each + n, .w_ps = each + 2 * n, .comm_ps = t[3]};

    for (i = 0; i < n; i++) {
        each[i] = t[0];
        each[n + i] = t[1];
        each[2 * n + i] = t[2];
    }
    assert_int_equal(mw_pipe_replay(&s, &times, &r, NULL), MW_OK);
    out->makespan = r.makespan_ps;
    out->span = r.longest_span_ps;
    out->peak = 0;
    for (d = 0; d < p; d++) {
        double x = mw_pipe_peak(&s, d, 1) * s.n_parts;

        out->peak = x > out->peak ? x : out->peak;
    }
    mw_pipe_run_release(&r);
    mw_schedule_release(&s);
    mw_free(each);
    return true;
}

/* Of a step whose chunks are alike, t: F, B, W and a transfer. */
static mw_time time_of(const struct mw_schedule *s, const mw_time t[4])
{
    size_t n = (size_t)s->n_stages * (size_t)s->n_chunks;
    mw_time *each = mw_calloc(3 * n, sizeof *each);
    struct mw_pipe_times times = {
        .f_ps = each, .b_ps = each + n, .w_ps = each + 2 * n, .comm_ps = t[3]};
    struct mw_pipe_run r;

    for (size_t i = 0; i < 3 * n; i++) {
        each[i] = t[i / n];
    }
    assert_int_equal(mw_pipe_replay(s, &times, &r, NULL), MW_OK);
    mw_time makespan = r.makespan_ps;

    mw_pipe_run_release(&r);
    mw_free(each);
    return makespan;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

#define EXPECT(what, want)                                                     \
    do {                                                                       \
        if ((double)(what) != (double)(want)) {                                \
            fail_msg("%s p %d m %d: %s is %g, not %g", kind, p, m, #what,      \
                     (double)(what), (double)(want));                          \
        }                                                                      \
    } while (0)

static const mw_time odd_times[4] = {7, 5, 3, 0}, unit_times[4] = {1, 1, 1, 0};

/* Fused schedules: any times. */
static void expect_fused(const char *kind, int p, int m, int v, int q,
                         int want_peak)
{
    int work = m * (v > 0 ? v : 1) * (q > 0 ? q : 1);
    struct got g;

    if (!get(kind, p, m, v, q, odd_times, &g)) {
        return;
    }
    EXPECT(g.makespan, (work + p - 1) * 15);
    EXPECT(g.peak, want_peak);
}

static void test_fused(void **state)
{
    int p, m;

    (void)state;
    for (p = 1; p <= 16; p++) {
        for (m = 1; m <= 64; m += m < 8 ? 1 : 7) {
            expect_fused("gpipe", p, m, 1, 0, m);
            expect_fused("gpipe-lifo", p, m, 1, 0, m);
            expect_fused("1f1b", p, m, 1, 0, min_int(m, p));
            expect_fused("eager-1f1b", p, m, 1, 0, min_int(m, 2 * p - 1));
            expect_fused("seq1f1b", p, m, 0, 4, min_int(4 * m, p + 3));
        }
        for (m = p; m <= 64; m += p) {
            expect_fused("interleaved-1f1b", p, m, 2, 0,
                         min_int(2 * m, 3 * p - 1));
            expect_fused("interleaved-1f1b", p, m, 4, 0,
                         min_int(4 * m, 5 * p - 1));
            expect_fused("looped-bfs", p, m, 3, 0, 3 * m);
        }
    }
}

/* PyTorch's groups: as short as for multiples whatever the count allows. */
static void test_interleaved_remainders(void **state)
{
    const char *kind = "interleaved-1f1b";
    int p, m;

    (void)state;
    for (p = 2; p <= 16; p++) {
        for (m = p; m <= 64; m++) {
            struct got g;

            if (get(kind, p, m, 2, 0, odd_times, &g)) {
                EXPECT(g.makespan, (2 * m + p - 1) * 15);
            } else {
                assert_true(m % (m / p) != 0);
            }
        }
    }
}

/* Groups of N: as short as those of p, 2 (p-1) + (v-1) N + 1 chunks held; of
 * transfers, which groups of p wait for at each change of chunk, N - p more
 * hide as many passes. */
static void test_groups(void **state)
{
    (void)state;
    const int v = 2;

    for (int p = 2; p <= 8; p++) {
        for (int m = p; m <= 40; m += 3) {
            for (int n = 1; n <= m + 1; n++) {
                bool is_legal = n >= p && n <= m && (m % n == 0 || m % n >= p);
                struct mw_sched_args a = {.n_stages = p,
                                          .n_microbatches = m,
                                          .n_chunks = v,
                                          .group = n};
                struct mw_schedule s;
                struct mw_err err = {0};

                assert_int_equal(
                    mw_schedule_make("interleaved-1f1b", &a, &s, NULL) == MW_OK,
                    is_legal);
                if (!is_legal) {
                    continue;
                }
                if (mw_schedule_check(&s, &err) != MW_OK) {
                    fail_msg("p %d m %d group %d: %s", p, m, n, err.text);
                }
                assert_int_equal(time_of(&s, unit_times), 3 * (v * m + p - 1));
                assert_int_equal(lround(mw_pipe_peak(&s, 0, 1)),
                                 min_int(v * m, 2 * (p - 1) + (v - 1) * n + 1));
                mw_schedule_release(&s);
                assert_int_equal(
                    mw_schedule_make("interleaved-zb", &a, &s, NULL), MW_OK);
                assert_int_equal(mw_schedule_check(&s, &err), MW_OK);
                mw_schedule_release(&s);
            }
        }
    }
}

static mw_time grouped(int p, int m, int v, int n, mw_time comm)
{
    const mw_time t[4] = {10, 10, 10, comm};
    struct mw_sched_args a = {
        .n_stages = p, .n_microbatches = m, .n_chunks = v, .group = n};
    struct mw_schedule s;

    assert_int_equal(mw_schedule_make("interleaved-1f1b", &a, &s, NULL), MW_OK);
    mw_time makespan = time_of(&s, t);

    mw_schedule_release(&s);
    return makespan;
}

/* What larger groups are for: after a group of p the next chunk waits for its
 * first micro-batch to come round, p transfers late. */
static void test_groups_hide_transfers(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++) {
        mw_time tight = grouped(p, 8 * p, 4, p, 4);

        assert_int_equal(grouped(p, 8 * p, 4, 0, 4), tight);
        assert_true(grouped(p, 8 * p, 4, 2 * p, 4) < tight);
        assert_true(grouped(p, 8 * p, 4, 2 * p, 4) >
                    grouped(p, 8 * p, 4, p, 0));
    }
}

static void test_zero_bubble(void **state)
{
    const char *kind;
    struct got g;
    int p, m;

    (void)state;
    for (p = 1; p <= 16; p++) {
        for (m = 1; m <= 64; m += m < 40 ? 1 : 5) {
            kind = "zb-h1";
            assert_true(get(kind, p, m, 1, 0, unit_times, &g));
            if (m >= p) {
                EXPECT(g.makespan, 3 * m + p - 1);
                EXPECT(g.span, 3 * m + p - 1);
            }
            EXPECT(g.peak, min_int(m, p));
            kind = "zb-h2";
            assert_true(get(kind, p, m, 1, 0, unit_times, &g));
            if (m >= 2 * p - 1) {
                EXPECT(g.span, 3 * m);
                EXPECT(g.makespan, 3 * m + p - 1);
            }
            EXPECT(g.peak, min_int(m, 2 * p - 1));
            kind = "zb-v";
            assert_true(get(kind, p, m, 2, 0, unit_times, &g));
            if (m >= 2 * p - 1) {
                EXPECT(g.span, 6 * m);
                EXPECT(g.makespan, 6 * m + p - 1);
            }
            assert_true(g.peak <= 2 * p);
        }
    }
}

static void test_dual(void **state)
{
    const char *kind;
    struct got g;
    int p, m;

    (void)state;
    for (p = 2; p <= 16; p++) {
        for (m = 2 * p; m <= 64; m += 2) {
            kind = "dualpipev";
            assert_true(get(kind, p, m, 2, 0, unit_times, &g));
            EXPECT(g.makespan, 6 * m + 2 * (p - 1));
            EXPECT(g.peak, 2 * p + 1);
            if (p % 2 == 0) {
                kind = "dualpipe";
                assert_true(get(kind, p, m, 0, 0, unit_times, &g));
                EXPECT(g.makespan, 3 * m + p - 2);
                EXPECT(g.peak, p + 1);
            }
        }
        /* Chimera with BW = 2F: 3 m F + (p-2)(m/p + 1) F. */
        for (m = p; p % 2 == 0 && m <= 64; m += p) {
            kind = "chimera";
            assert_true(get(kind, p, m, 0, 0, unit_times, &g));
            EXPECT(g.makespan, 3 * m + (p - 2) * (m / p + 1));
            EXPECT(g.peak, p);
        }
    }
}

/* Extra time for a latency c that nothing hides, p | m, m >= 2p. */
static void test_latency(void **state)
{
    static const int stages[] = {2, 3, 4, 8};
    const char *kind;
    size_t i;
    int k;

    (void)state;
    for (i = 0; i < 4; i++) {
        for (k = 2; k <= 4; k++) {
            static const mw_time t[4] = {100, 100, 100, 10};
            int p = stages[i], m = k * p;
            struct got g;

            kind = "1f1b";
            assert_true(get(kind, p, m, 1, 0, t, &g));
            EXPECT(g.makespan, (m + p - 1) * 300 +
                                   10 * (2 * (p - 1) * m / p + 2 * (p - 2)));
            kind = "eager-1f1b";
            assert_true(get(kind, p, m, 1, 0, t, &g));
            EXPECT(g.makespan, (m + p - 1) * 300 + 20 * (p - 1));
            kind = "zb-h1";
            assert_true(get(kind, p, m, 1, 0, t, &g));
            EXPECT(g.makespan, m * 300 + (p - 1) * 100 + 40 * (p - 1));
        }
    }
}

/* Every kind, many shapes: either refused with a message or right. */
static void test_all_kinds_check(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; mw_schedule_kind(i) != NULL; i++) {
        const struct mw_sched_kind *k = mw_schedule_kind(i);
        int p, m, made = 0;

        for (p = 1; p <= 4; p += p) {
            for (m = 1; m <= 8; m += m) {
                struct mw_schedule s;

                if (try_make(k->name, p, m, 0, 0, &s)) {
                    assert_string_equal(s.name, k->name);
                    made++;
                    mw_schedule_release(&s);
                }
            }
        }
        assert_true(made >= 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_interleaved_remainders),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_hide_transfers),
        cmocka_unit_test(test_zero_bubble),
        cmocka_unit_test(test_dual),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_all_kinds_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
