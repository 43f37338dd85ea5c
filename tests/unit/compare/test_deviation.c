/*
 * Where timelines part: worked out by hand on a pipeline of two ranks, and the
 * identity difference = own + passes before + waiting on random ones.
 *
 *   rank 0   F0 0-10  F1 10-20        BW0 40-60   BW1 60-80
 *   rank 1            F0 10-20  BW0 20-40 ...
 */
#include "mw_test.h"

#include "base/rand.h"
#include "exec/compare/deviation.h"

#include <string.h>

static void add(struct mw_timeline *t, int rank, enum mw_span_kind kind, int mb,
                mw_time start_ps, mw_time end_ps)
{
    int stream = kind == MW_SPAN_TP   ? MW_STREAM_TP
                 : kind == MW_SPAN_PP ? MW_STREAM_PP
                 : kind == MW_SPAN_DP ? MW_STREAM_DP
                                      : MW_STREAM_COMPUTE;
    const struct mw_span s = {.rank = rank,
                              .stage = mb < 0 ? -1 : rank,
                              .microbatch = mb,
                              .stream = (uint16_t)stream,
                              .kind = (uint16_t)kind,
                              .start_ps = start_ps,
                              .end_ps = end_ps,
                              .name = mw_timeline_name(t, "x")};

    mw_timeline_add(t, &s);
}

struct pair {
    struct mw_timeline simulated, measured;
};

static void fill(struct mw_timeline *t)
{
    mw_timeline_init(t);
    t->step_time_s = 100e-12;
    add(t, 0, MW_SPAN_F, 0, 0, 10);
    add(t, 0, MW_SPAN_F, 1, 10, 20);
    add(t, 1, MW_SPAN_F, 0, 10, 20);
    add(t, 1, MW_SPAN_B, 0, 20, 30);
    add(t, 1, MW_SPAN_W, 0, 30, 40);
    add(t, 0, MW_SPAN_B, 0, 40, 50);
    add(t, 0, MW_SPAN_W, 0, 50, 60);
    add(t, 0, MW_SPAN_OPTIMIZER, -1, 60, 70);
}

static int setup(void **state)
{
    struct pair *p = mw_calloc(1, sizeof *p);

    fill(&p->simulated);
    fill(&p->measured);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;

    mw_timeline_release(&p->simulated);
    mw_timeline_release(&p->measured);
    mw_free(p);
    return 0;
}

/* Moves and stretches the one span of this kind on a rank. */
static void move(struct mw_timeline *t, int rank, enum mw_span_kind kind,
                 int mb, mw_time start_ps, mw_time end_ps)
{
    for (size_t i = 0; i < t->spans.n; i++) {
        struct mw_span *s = &t->spans.v[i];

        if (s->rank == rank && s->kind == kind && s->microbatch == mb) {
            s->start_ps = start_ps;
            s->end_ps = end_ps;
            return;
        }
    }
    fail_msg("no such span");
}

static void test_equal_timelines(void **state)
{
    struct pair *p = *state;
    struct mw_deviation d;

    mw_deviation_find(&p->simulated, &p->measured, 0.02, &d);
    assert_int_equal(d.why, MW_DEVIATION_NONE);
    assert_int_equal(d.n_unpaired, 0);
}

/* B and W in a row are one pass, so is a layer-by-layer mixture of them. */
static void test_passes(void **state)
{
    struct pair *p = *state;
    struct mw_timeline_passes v = {.v = NULL};

    add(&p->measured, 0, MW_SPAN_RECOMPUTE, 0, 60, 62); /* moved below */
    move(&p->measured, 0, MW_SPAN_OPTIMIZER, -1, 70, 80);
    add(&p->measured, 0, MW_SPAN_B, 0, 62, 66);
    add(&p->measured, 0, MW_SPAN_TP, 0, 66, 68);
    mw_timeline_passes_of(&p->measured, 0, &v);
    assert_int_equal(v.n, 4); /* F0 F1 backward0 optimizer */
    assert_int_equal(v.v[2].kind, MW_SPAN_B);
    assert_int_equal(v.v[2].start_ps, 40);
    assert_int_equal(v.v[2].end_ps, 68);
    assert_int_equal(v.v[3].microbatch, -1);
    mw_array_release(&v);
}

/* The collective before F of the last micro-batch belongs to it. */
static void test_collective_goes_to_the_nearest_pass(void **state)
{
    struct pair *p = *state;
    struct mw_timeline_passes v = {.v = NULL};

    move(&p->measured, 0, MW_SPAN_F, 1, 14, 20);
    add(&p->measured, 0, MW_SPAN_TP, 1, 11, 14);
    add(&p->measured, 0, MW_SPAN_TP, 0, 36, 40);
    mw_timeline_passes_of(&p->measured, 0, &v);
    assert_int_equal(v.v[1].start_ps, 11);
    assert_int_equal(v.v[2].start_ps, 36); /* to B, not to F, of 0 */
    assert_int_equal(v.v[0].end_ps, 10);
    mw_array_release(&v);
}

/* F, its collectives, B at once: they are F's. */
static void test_collective_between_two_passes(void **state)
{
    struct pair *p = *state;
    struct mw_timeline_passes v = {.v = NULL};

    move(&p->measured, 0, MW_SPAN_F, 0, 0, 6);
    move(&p->measured, 0, MW_SPAN_F, 1, 22, 30);
    move(&p->measured, 0, MW_SPAN_B, 0, 10, 16);
    move(&p->measured, 0, MW_SPAN_W, 0, 16, 20);
    add(&p->measured, 0, MW_SPAN_TP, 0, 6, 10);
    mw_timeline_passes_of(&p->measured, 0, &v);
    assert_int_equal(v.v[0].end_ps, 10);
    assert_int_equal(v.v[1].start_ps, 10);
    mw_array_release(&v);
}

static void test_own_duration(void **state)
{
    struct pair *p = *state;
    struct mw_deviation d;
    char text[MW_DEVIATION_TEXT_MAX];

    move(&p->measured, 1, MW_SPAN_W, 0, 30, 47);
    move(&p->measured, 0, MW_SPAN_B, 0, 47, 57);
    move(&p->measured, 0, MW_SPAN_W, 0, 57, 67);
    move(&p->measured, 0, MW_SPAN_OPTIMIZER, -1, 67, 77);
    mw_deviation_find(&p->simulated, &p->measured, 0.05, &d);
    assert_int_equal(d.why, MW_DEVIATION_OWN);
    assert_int_equal(d.simulated.rank, 1);
    assert_int_equal(d.simulated.kind, MW_SPAN_B);
    mw_assert_near(d.difference_s, -7e-12, 1e-12, 0);
    mw_assert_near(d.own_s, -7e-12, 1e-12, 0);
    mw_deviation_text(&d, text);
    assert_non_null(strstr(text, "B of micro-batch 0, stage 1 on rank 1"));
    assert_non_null(strstr(text, "later than predicted: it took"));
}

static void test_many_small_ones(void **state)
{
    struct pair *p = *state;
    struct mw_deviation d;
    char text[MW_DEVIATION_TEXT_MAX];

    /* F 3 ps shorter each; their sum passes 5 ps at F1. */
    move(&p->measured, 0, MW_SPAN_F, 0, 0, 7);
    move(&p->measured, 0, MW_SPAN_F, 1, 7, 14);
    mw_deviation_find(&p->simulated, &p->measured, 0.05, &d);
    assert_int_equal(d.simulated.microbatch, 1);
    assert_true(d.why == MW_DEVIATION_SUM || d.why == MW_DEVIATION_OWN);
    mw_assert_near(d.difference_s, 6e-12, 1e-12, 0);
    mw_assert_near(d.by_kind_s[MW_SPAN_F], 3e-12, 1e-12, 0);
    /* A limit that both together reach only in what follows. */
    move(&p->measured, 1, MW_SPAN_F, 0, 7, 14);
    move(&p->measured, 1, MW_SPAN_B, 0, 14, 24);
    mw_deviation_find(&p->simulated, &p->measured, 0.055, &d);
    assert_int_equal(d.simulated.microbatch, 1);
    mw_deviation_text(&d, text);
    assert_non_null(strstr(text, "earlier than predicted"));
}

static void test_waiting_names_the_other_pass(void **state)
{
    struct pair *p = *state;
    struct mw_deviation d;
    char text[MW_DEVIATION_TEXT_MAX];

    /* The message takes 8 ps that were not predicted. */
    move(&p->measured, 1, MW_SPAN_F, 0, 18, 28);
    mw_deviation_find(&p->simulated, &p->measured, 0.05, &d);
    assert_int_equal(d.why, MW_DEVIATION_WAIT);
    mw_assert_near(d.waiting_s, -8e-12, 1e-12, 0);
    assert_true(d.has_peer);
    assert_int_equal(d.peer.rank, 0);
    assert_int_equal(d.peer.kind, MW_SPAN_F);
    mw_assert_near(d.peer_difference_s, 0, 0, 1e-15);
    mw_deviation_text(&d, text);
    assert_non_null(strstr(text, "it waits for F of micro-batch 0, stage 0"));
}

static void test_other_order_is_counted(void **state)
{
    struct pair *p = *state;
    struct mw_deviation d;

    add(&p->simulated, 0, MW_SPAN_F, 7, 80, 81);
    mw_deviation_find(&p->simulated, &p->measured, 0.02, &d);
    assert_int_equal(d.n_unpaired, 1);
}

/* Random durations and gaps on one rank. */
static void random_rank(struct mw_timeline *t, uint64_t seed)
{
    mw_time at_ps = 0;

    mw_timeline_init(t);
    for (int mb = 0; mb < 20; mb++) {
        enum mw_span_kind kind = mb % 3 == 0 ? MW_SPAN_B : MW_SPAN_F;
        mw_time gap = (mw_time)(mw_rand_u64(seed, 1, (uint64_t)mb) % 5);
        mw_time len = 10 + (mw_time)(mw_rand_u64(seed, 2, (uint64_t)mb) % 9);

        add(t, 0, kind, mb, at_ps + gap, at_ps + gap + len);
        at_ps += gap + len;
    }
    t->step_time_s = mw_time_to_s(at_ps);
}

static void test_identity(void **state)
{
    (void)state;
    int n_found = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct mw_timeline a, b;
        struct mw_deviation d;
        double sum = 0;

        random_rank(&a, 2 * seed);
        random_rank(&b, 2 * seed + 1);
        mw_deviation_find(&a, &b, 0.03, &d);
        for (int k = 0; k < MW_SPAN_KIND_COUNT; k++) {
            sum += d.by_kind_s[k];
        }
        mw_assert_near(d.difference_s, sum + d.own_s + d.waiting_s, 0, 1e-21);
        n_found += d.why != MW_DEVIATION_NONE;
        mw_timeline_release(&a);
        mw_timeline_release(&b);
    }
    assert_true(n_found > 100);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_equal_timelines),
        CASE(test_passes),
        CASE(test_collective_goes_to_the_nearest_pass),
        CASE(test_collective_between_two_passes),
        CASE(test_own_duration),
        CASE(test_many_small_ones),
        CASE(test_waiting_names_the_other_pass),
        CASE(test_other_order_is_counted),
        cmocka_unit_test(test_identity)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
