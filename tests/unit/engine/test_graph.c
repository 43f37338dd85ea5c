/*
 * Task graphs: hand examples with their times in the comments, random graphs
 * against a longest-path recursion written from the definition, cycles.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/engine/engine.h"

#include <string.h>

static mw_time run(struct mw_graph *g, mw_time *start_ps, mw_time *end_ps)
{
    mw_time total_ps = -1;
    uint64_t events = 0;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(
        mw_graph_run(g, start_ps, end_ps, &total_ps, &events, &err), MW_OK);
    assert_int_equal(events, mw_graph_size(g));
    return total_ps;
}

static void test_empty(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    assert_int_equal(run(g, NULL, NULL), 0);
    mw_graph_free(g);
    mw_graph_free(NULL);
}

/* Two streams: a(100) then b(50) on one; c(30) on the other waits for a with a
 * lag of 7: c runs 107 to 137; d(10) behind c waits for b: 150 to 160. */
static void test_streams_and_lags(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    mw_stream_id s0 = mw_graph_stream(g), s1 = mw_graph_stream(g);
    mw_task_id a = mw_graph_task(g, s0, 100, 11);
    mw_task_id b = mw_graph_task(g, s0, 50, 12);
    mw_task_id c = mw_graph_task(g, s1, 30, 13);
    mw_task_id d = mw_graph_task(g, s1, 10, 14);
    mw_graph_dep(g, a, c, 7);
    mw_graph_dep(g, b, d, 0);
    mw_time start_ps[4], end_ps[4];
    assert_int_equal(run(g, start_ps, end_ps), 160);
    assert_int_equal(start_ps[b], 100);
    assert_int_equal(start_ps[c], 107);
    assert_int_equal(end_ps[c], 137);
    assert_int_equal(start_ps[d], 150);
    assert_int_equal(mw_graph_tag(g, d), 14);
    /* More may be added, and the run repeated. */
    mw_graph_task(g, s1, 1, 15);
    mw_time start2_ps[5], end2_ps[5];
    assert_int_equal(run(g, start2_ps, end2_ps), 161);
    mw_graph_free(g);
}

/*
 * A collective on three streams starts when all are free (at 40, 10, 25) and
 * holds them all: the next task of each begins at 45.
 */
static void test_task_on_several_streams(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    mw_stream_id s[3];
    const mw_time busy_ps[3] = {40, 10, 25};
    for (int i = 0; i < 3; i++) {
        s[i] = mw_graph_stream(g);
        mw_graph_task(g, s[i], busy_ps[i], 0);
    }
    mw_task_id coll = mw_graph_task(g, s[0], 5, 0);
    mw_graph_also_on(g, coll, s[1]);
    mw_graph_also_on(g, coll, s[2]);
    mw_graph_also_on(g, coll, s[2]); /* twice is once */
    for (int i = 0; i < 3; i++) {
        mw_graph_task(g, s[i], 1, 0);
    }
    mw_time start_ps[7], end_ps[7];
    assert_int_equal(run(g, start_ps, end_ps), 46);
    assert_int_equal(start_ps[coll], 40);
    for (int i = 4; i < 7; i++) {
        assert_int_equal(start_ps[i], 45);
    }
    mw_graph_free(g);
}

/* A negative lag overlaps, but never before 0 nor on one stream. */
static void test_negative_lag(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    mw_stream_id s0 = mw_graph_stream(g), s1 = mw_graph_stream(g);
    mw_task_id a = mw_graph_task(g, s0, 10, 0);
    mw_task_id b = mw_graph_task(g, s1, 10, 0);
    mw_task_id c = mw_graph_task(g, s1, 10, 0);
    mw_graph_dep(g, a, b, -4);
    mw_graph_dep(g, a, c, -100);
    mw_time start_ps[3], end_ps[3];
    assert_int_equal(run(g, start_ps, end_ps), 26);
    assert_int_equal(start_ps[b], 6);
    assert_int_equal(start_ps[c], 16);
    mw_graph_free(g);
}

/* ---- random graphs
 * ------------------------------------------------------------ */
enum { N_TASKS = 60, N_STREAMS = 5, N_DEPS = 90 };

/* What was built, kept apart from the graph: the oracle's own edge list. */
struct world {
    mw_time duration_ps[N_TASKS];
    int stream[N_TASKS], also[N_TASKS]; /* also -1: none */
    struct {
        int before, after;
        mw_time lag_ps;
    } dep[N_DEPS];
    mw_time start_ps[N_TASKS]; /* -1: not known yet */
};

static bool is_on(const struct world *w, int task, int stream)
{
    return w->stream[task] == stream || w->also[task] == stream;
}

/* Start by the definition: after every earlier task of its streams (not only
 * the last one) and after its dependencies. */
static mw_time oracle(struct world *w, int task)
{
    if (w->start_ps[task] >= 0) {
        return w->start_ps[task];
    }
    mw_time start_ps = 0;
    for (int p = 0; p < task; p++) {
        if (is_on(w, task, w->stream[p]) ||
            (w->also[p] >= 0 && is_on(w, task, w->also[p]))) {
            mw_time end_ps = oracle(w, p) + w->duration_ps[p];
            start_ps = end_ps > start_ps ? end_ps : start_ps;
        }
    }
    for (int i = 0; i < N_DEPS; i++) {
        if (w->dep[i].after == task) {
            int p = w->dep[i].before;
            mw_time at_ps = oracle(w, p) + w->duration_ps[p] + w->dep[i].lag_ps;
            start_ps = at_ps > start_ps ? at_ps : start_ps;
        }
    }
    w->start_ps[task] = start_ps;
    return start_ps;
}

static void make_world(struct world *w, uint64_t seed)
{
    for (int t = 0; t < N_TASKS; t++) {
        uint64_t i = (uint64_t)t;
        w->duration_ps[t] = (mw_time)(mw_rand_u64(seed, 0, i) % 20);
        w->stream[t] = (int)(mw_rand_u64(seed, 1, i) % N_STREAMS);
        int also = (int)(mw_rand_u64(seed, 2, i) % (3 * N_STREAMS));
        w->also[t] = also < N_STREAMS && also != w->stream[t] ? also : -1;
        w->start_ps[t] = -1;
    }
    for (int d = 0; d < N_DEPS; d++) {
        uint64_t i = (uint64_t)d;
        int a = (int)(mw_rand_u64(seed, 3, i) % N_TASKS);
        int b = (int)(mw_rand_u64(seed, 4, i) % N_TASKS);
        if (a == b) {
            b = (a + 1) % N_TASKS;
        }
        w->dep[d].before = a < b ? a : b;
        w->dep[d].after = a < b ? b : a;
        w->dep[d].lag_ps = (mw_time)(mw_rand_u64(seed, 5, i) % 9);
    }
}

static void build(struct mw_graph *g, const struct world *w)
{
    for (int s = 0; s < N_STREAMS; s++) {
        mw_graph_stream(g);
    }
    for (int t = 0; t < N_TASKS; t++) {
        mw_task_id id = mw_graph_task(g, (mw_stream_id)w->stream[t],
                                      w->duration_ps[t], (uint64_t)t);
        if (w->also[t] >= 0) {
            mw_graph_also_on(g, id, (mw_stream_id)w->also[t]);
        }
    }
    for (int d = 0; d < N_DEPS; d++) {
        mw_graph_dep(g, (mw_task_id)w->dep[d].before,
                     (mw_task_id)w->dep[d].after, w->dep[d].lag_ps);
    }
}

static void test_against_longest_path(void **state)
{
    (void)state;
    struct world *w = mw_calloc(1, sizeof *w);
    struct mw_graph *g = mw_graph_new();
    for (uint64_t seed = 0; seed < 200; seed++) {
        make_world(w, seed);
        mw_graph_clear(g);
        build(g, w);
        mw_time start_ps[N_TASKS], end_ps[N_TASKS];
        mw_time total_ps = run(g, start_ps, end_ps), last_ps = 0;
        for (int t = 0; t < N_TASKS; t++) {
            mw_time want_ps = oracle(w, t);
            assert_int_equal(start_ps[t], want_ps);
            assert_int_equal(end_ps[t], want_ps + w->duration_ps[t]);
            last_ps = end_ps[t] > last_ps ? end_ps[t] : last_ps;
        }
        assert_int_equal(total_ps, last_ps);
    }
    mw_graph_free(g);
    mw_free(w);
}

/* ---- what cannot end
 * ----------------------------------------------------------- */
static void expect_failure(struct mw_graph *g, const char *needle)
{
    mw_time start_ps[8], end_ps[8], total_ps = 77;
    struct mw_err err = {.status = MW_OK};
    assert_int_equal(mw_graph_run(g, start_ps, end_ps, &total_ps, NULL, &err),
                     MW_EFAILED);
    assert_int_equal(total_ps, 77); /* outputs only on success */
    if (!strstr(err.text, needle)) {
        fail_msg("'%s' lacks '%s'", err.text, needle);
    }
}

/*
 * Tasks 0 to 4 on one stream each; 0 -> 1 -> 2 -> 3 -> 1 and 3 -> 4. Task 4
 * waits but is not on the cycle of 3 tasks; the smallest one on it is 1.
 */
static void test_cycle_named(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    for (uint64_t t = 0; t < 5; t++) {
        mw_graph_task(g, mw_graph_stream(g), 1, 100 + t);
    }
    mw_graph_dep(g, 0, 1, 0);
    mw_graph_dep(g, 1, 2, 0);
    mw_graph_dep(g, 2, 3, 0);
    mw_graph_dep(g, 3, 1, 0);
    mw_graph_dep(g, 3, 4, 0);
    expect_failure(g, "task 1 (tag 101) waits for task 3 (tag 103), which "
                      "waits for it, on a cycle of 3 tasks");
    mw_graph_free(g);
}

/* Order on a stream against a dependency: task 0 first, but it needs task 1. */
static void test_cycle_through_a_stream(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    mw_stream_id s = mw_graph_stream(g);
    mw_graph_task(g, s, 1, 0);
    mw_graph_task(g, s, 1, 1);
    mw_graph_dep(g, 1, 0, 0);
    expect_failure(g, "on a cycle of 2 tasks");
    mw_graph_clear(g);
    mw_graph_task(g, mw_graph_stream(g), 1, 0);
    mw_graph_dep(g, 0, 0, 0);
    expect_failure(g, "on a cycle of 1 tasks");
    mw_graph_free(g);
}

static void test_overflow(void **state)
{
    (void)state;
    struct mw_graph *g = mw_graph_new();
    mw_stream_id s = mw_graph_stream(g);
    mw_graph_task(g, s, INT64_MAX - 5, 0);
    mw_graph_task(g, s, 6, 1);
    expect_failure(g, "passes 106 days at task 1");
    mw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_streams_and_lags),
        cmocka_unit_test(test_task_on_several_streams),
        cmocka_unit_test(test_negative_lag),
        cmocka_unit_test(test_against_longest_path),
        cmocka_unit_test(test_cycle_named),
        cmocka_unit_test(test_cycle_through_a_stream),
        cmocka_unit_test(test_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
