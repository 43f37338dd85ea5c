/*
 * Timelines: interned names, total order, the overlap check, and the exposed
 * breakdown against a hand example and against brute force per picosecond.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/engine/timeline.h"

#include <string.h>

static void add(struct mw_timeline *t, int rank, int stream, int kind,
                mw_time start_ps, mw_time end_ps)
{
    struct mw_span s = {.rank = rank,
                        .stream = (uint16_t)stream,
                        .kind = (uint16_t)kind,
                        .start_ps = start_ps,
                        .end_ps = end_ps,
                        .stage = -1,
                        .microbatch = -1,
                        .name = mw_timeline_name(t, "x")};
    mw_timeline_add(t, &s);
}

static void test_names(void **state)
{
    (void)state;
    struct mw_timeline t;
    mw_timeline_init(&t);
    char name[16];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "op %u", i);
            assert_int_equal(mw_timeline_name(&t, name), i);
        }
    }
    assert_int_equal(t.names.n, 1000);
    assert_string_equal(t.names.v[999], "op 999");
    mw_timeline_release(&t);
    assert_int_equal(mw_span_kind_find("RECOMPUTE"), MW_SPAN_RECOMPUTE);
    assert_int_equal(mw_span_kind_find("nope"), -1);
    assert_int_equal(mw_stream_find("offload"), MW_STREAM_OFFLOAD);
    assert_int_equal(mw_stream_find(""), -1);
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        const char *kind = mw_span_kind_name((enum mw_span_kind)k);
        assert_int_equal(mw_span_kind_find(kind), k);
    }
}

/* Equal (rank, stream, start) keep their insertion order: marked by flops. */
static void test_sort_is_stable(void **state)
{
    (void)state;
    enum { N = 500 };
    struct mw_timeline t;
    mw_timeline_init(&t);
    for (uint64_t i = 0; i < N; i++) {
        add(&t, (int)(mw_rand_u64(5, 0, i) % 3),
            (int)(mw_rand_u64(5, 1, i) % MW_STREAM_COUNT), MW_SPAN_F,
            (mw_time)(mw_rand_u64(5, 2, i) % 4), 10);
        t.spans.v[i].flops = (double)i;
    }
    mw_timeline_sort(&t);
    for (size_t i = 1; i < N; i++) {
        const struct mw_span *a = &t.spans.v[i - 1], *b = &t.spans.v[i];
        bool is_less = a->rank != b->rank           ? a->rank < b->rank
                       : a->stream != b->stream     ? a->stream < b->stream
                       : a->start_ps != b->start_ps ? a->start_ps < b->start_ps
                                                    : a->flops < b->flops;
        assert_true(is_less);
    }
    assert_int_equal(t.n_ranks, 3);
    mw_timeline_release(&t);
}

static void test_overlap(void **state)
{
    (void)state;
    char buf[200];
    struct mw_timeline t;
    mw_timeline_init(&t);
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 5, 9);
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_B, 0, 5); /* touches: fine */
    add(&t, 1, MW_STREAM_TP, MW_SPAN_TP, 2, 7);     /* another stream */
    add(&t, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 2, 7); /* another rank */
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_F, 5, 5); /* takes no time */
    assert_null(mw_timeline_check(&t, buf, sizeof buf));
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_W, 8, 12);
    const char *wrong = mw_timeline_check(&t, buf, sizeof buf);
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "rank 1, stream compute: 'x' starts at 8 ps, "
                                  "before 'x' ends at 9 ps"));
    mw_timeline_release(&t);
}

static void test_check_values(void **state)
{
    (void)state;
    char buf[200];
    struct mw_timeline t;
    mw_timeline_init(&t);
    add(&t, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 9);
    t.spans.v[0].end_ps = -1;
    assert_non_null(strstr(mw_timeline_check(&t, buf, sizeof buf), "ends"));
    t.spans.v[0].end_ps = 9;
    t.spans.v[0].kind = MW_SPAN_KIND_COUNT;
    assert_non_null(strstr(mw_timeline_check(&t, buf, sizeof buf), "unknown"));
    t.spans.v[0].kind = 0;
    t.n_ranks = 0;
    assert_non_null(strstr(mw_timeline_check(&t, buf, sizeof buf), "past"));
    mw_timeline_release(&t);
}

/*
 * Two ranks, step of 100 ps.
 *
 *   rank 0 compute  F 0-30            B 50-80
 *          tp             20-40                   30-40 exposed: tp 10
 *          pp                  35-55              40-50 exposed: pp 10
 *          dp                               70-95 80-95 exposed: dp 15
 *                                           95-100        bubble  5
 *   rank 1 compute  nothing until W 60-100 (runs past: 60-130 cut at 100)
 *          host     10-20                          host 10, bubble 50
 *
 * Averages: F 15, B 15, W 20, tp 5, pp 5, dp 7.5, host 5, bubble 27.5 = 100.
 */
static void test_breakdown_by_hand(void **state)
{
    (void)state;
    struct mw_timeline t;
    mw_timeline_init(&t);
    t.step_time_s = 100e-12;
    add(&t, 0, MW_STREAM_DP, MW_SPAN_DP, 70, 95);
    add(&t, 0, MW_STREAM_COMPUTE, MW_SPAN_F, 0, 30);
    add(&t, 0, MW_STREAM_COMPUTE, MW_SPAN_B, 50, 80);
    add(&t, 0, MW_STREAM_TP, MW_SPAN_TP, 20, 40);
    add(&t, 0, MW_STREAM_PP, MW_SPAN_PP, 35, 55);
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_BUBBLE, 0, 60);
    add(&t, 1, MW_STREAM_COMPUTE, MW_SPAN_W, 60, 130);
    add(&t, 1, MW_STREAM_HOST, MW_SPAN_HOST, 10, 20);
    double out[MW_SPAN_KIND_COUNT], sum = 0;
    mw_timeline_breakdown(&t, out);
    const double want[MW_SPAN_KIND_COUNT] = {
        [MW_SPAN_F] = 15,   [MW_SPAN_B] = 15,       [MW_SPAN_W] = 20,
        [MW_SPAN_TP] = 5,   [MW_SPAN_PP] = 5,       [MW_SPAN_DP] = 7.5,
        [MW_SPAN_HOST] = 5, [MW_SPAN_BUBBLE] = 27.5};
    for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
        mw_assert_near(out[k], want[k] * 1e-12, 1e-12, 1e-30);
        sum += out[k];
    }
    mw_assert_near(sum, t.step_time_s, 1e-12, 0);
    mw_timeline_breakdown_rank(&t, 1, out);
    mw_assert_near(out[MW_SPAN_W], 40e-12, 1e-12, 0);
    mw_assert_near(out[MW_SPAN_BUBBLE], 50e-12, 1e-12, 0);
    mw_timeline_breakdown_rank(&t, 9, out); /* no such rank: all bubble */
    mw_assert_near(out[MW_SPAN_BUBBLE], 100e-12, 1e-12, 0);
    mw_timeline_release(&t);
}

/* Pipeline positions: smallest virtual stage. Ranks 0, 2 hold 1 (and 3), rank
 * 1 holds 0; rank 5 has no stage. */
static void test_stages(void **state)
{
    (void)state;
    struct mw_timeline t;
    mw_timeline_init(&t);
    t.step_time_s = 10e-12;
    const int rank[] = {0, 2, 1, 0, 5}, stage[] = {3, 1, 0, 1, -1};
    for (int i = 0; i < 5; i++) {
        add(&t, rank[i], MW_STREAM_COMPUTE, MW_SPAN_F, 2 * i, 2 * i + 1);
        t.spans.v[i].stage = stage[i];
    }
    struct mw_rank_stages r = {.v = NULL};
    mw_timeline_stages(&t, &r);
    assert_int_equal(r.n, 4);
    const int want_rank[] = {0, 1, 2, 5}, want_stage[] = {1, 0, 1, -1};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r.v[i].rank, want_rank[i]);
        assert_int_equal(r.v[i].stage, want_stage[i]);
    }
    assert_int_equal(r.v[0].n, 2);
    mw_array_release(&r);
    /* Stage 1 is ranks 0 (2 ps of F) and 2 (1 ps). */
    double out[MW_SPAN_KIND_COUNT];
    mw_timeline_breakdown_stage(&t, 1, out);
    mw_assert_near(out[MW_SPAN_F], 1.5e-12, 1e-12, 0);
    mw_assert_near(out[MW_SPAN_BUBBLE], 8.5e-12, 1e-12, 0);
    mw_timeline_breakdown_stage(&t, 7, out);
    mw_assert_near(out[MW_SPAN_BUBBLE], 0, 0, 0);
    mw_timeline_release(&t);
}

/* ---- brute force
 * ------------------------------------------------------------------ */
enum { WINDOW = 300, RANKS = 3 };

/* State of a rank in the picosecond [at, at + 1), by looking at every span. */
static int state_at(const struct mw_timeline *t, int rank, mw_time at_ps)
{
    int best_stream = MW_STREAM_COUNT, kind = MW_SPAN_BUBBLE;
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct mw_span *s = &t->spans.v[i];
        if (s->rank == rank && s->start_ps <= at_ps && at_ps < s->end_ps &&
            s->stream < best_stream) {
            best_stream = s->stream;
            kind = s->kind;
        }
    }
    return kind;
}

static void make_random(struct mw_timeline *t, uint64_t seed)
{
    for (int r = 0; r < RANKS; r++) {
        for (int s = 0; s < MW_STREAM_COUNT; s++) {
            mw_time at_ps = 0;
            for (uint64_t i = 0; i < 8; i++) {
                uint64_t stream = (uint64_t)(r * MW_STREAM_COUNT + s);
                uint64_t x = mw_rand_u64(seed, stream, i);
                mw_time gap_ps = (mw_time)(x % 60),
                        len_ps = (mw_time)(x / 64 % 25);
                int kind = s == 0 ? (int)(x / 4096 % 4) : MW_SPAN_TP + s - 1;
                kind = kind >= MW_SPAN_OPTIMIZER ? MW_SPAN_OFFLOAD : kind;
                add(t, r, s, kind, at_ps + gap_ps, at_ps + gap_ps + len_ps);
                at_ps += gap_ps + len_ps;
            }
        }
    }
}

static void test_breakdown_brute_force(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct mw_timeline t;
        mw_timeline_init(&t);
        t.step_time_s = WINDOW * 1e-12;
        make_random(&t, seed);
        char buf[200];
        assert_null(mw_timeline_check(&t, buf, sizeof buf));
        double want[MW_SPAN_KIND_COUNT] = {0}, got[MW_SPAN_KIND_COUNT], sum = 0;
        for (int r = 0; r < RANKS; r++) {
            for (mw_time at_ps = 0; at_ps < WINDOW; at_ps++) {
                want[state_at(&t, r, at_ps)] += 1e-12 / RANKS;
            }
        }
        mw_timeline_breakdown(&t, got);
        for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
            mw_assert_near(got[k], want[k], 1e-12, 1e-26);
            sum += got[k];
        }
        mw_assert_near(sum, t.step_time_s, 1e-12, 0);
        mw_timeline_release(&t);
    }
}

/* Without a step time the window ends with the last span; without spans it is
 * all bubble. */
static void test_window(void **state)
{
    (void)state;
    double out[MW_SPAN_KIND_COUNT];
    struct mw_timeline t;
    mw_timeline_init(&t);
    t.step_time_s = 0.25;
    mw_timeline_breakdown(&t, out);
    mw_assert_near(out[MW_SPAN_BUBBLE], 0.25, 1e-15, 0);
    t.step_time_s = 0;
    assert_int_equal(mw_timeline_window_ps(&t), 0);
    add(&t, 0, MW_STREAM_PP, MW_SPAN_PP, 10, 70);
    assert_int_equal(mw_timeline_window_ps(&t), 70);
    mw_timeline_breakdown(&t, out);
    mw_assert_near(out[MW_SPAN_PP], 60e-12, 1e-12, 0);
    mw_assert_near(out[MW_SPAN_BUBBLE], 10e-12, 1e-12, 0);
    mw_timeline_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_sort_is_stable),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_check_values),
        cmocka_unit_test(test_breakdown_by_hand),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_breakdown_brute_force),
        cmocka_unit_test(test_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
