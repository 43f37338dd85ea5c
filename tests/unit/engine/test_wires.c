/*
 * Wires that tasks share: by hand, against a simulation that works out every
 * pace anew at every moment, and nothing changed where there is room for all.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/engine/engine.h"

#include <math.h>
#include <string.h>

enum { TASKS_MAX = 64, WIRES_MAX = 6 };

struct run {
    mw_time start[TASKS_MAX], end[TASKS_MAX], last, alone;
};

static struct run run_graph(struct mw_graph *g)
{
    struct run r;
    struct mw_err err = {0};

    memset(&r, 0, sizeof r);
    assert_true(mw_graph_size(g) <= TASKS_MAX);
    if (mw_graph_run(g, r.start, r.end, &r.last, NULL, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    r.alone = mw_graph_alone_ps(g);
    return r;
}

/* A task of its own stream on a wire, after `delay_ps`. */
static mw_task_id flow(struct mw_graph *g, mw_wire_id wire, double part,
                       mw_time delay_ps, mw_time ps)
{
    mw_stream_id stream = mw_graph_stream(g);
    mw_task_id task;

    mw_graph_task(g, stream, delay_ps, 0);
    task = mw_graph_task(g, stream, ps, 0);
    mw_graph_use(g, task, wire, part);
    return task;
}

static void test_two_on_one_wire_take_twice_as_long(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g), other = mw_graph_wire(g);
    mw_task_id a = flow(g, nic, 1, 0, 1000), b = flow(g, nic, 1, 0, 1000);
    mw_task_id c = flow(g, other, 1, 0, 1000);
    struct run r = run_graph(g);

    (void)state;
    assert_int_equal(r.end[a], 2000);
    assert_int_equal(r.end[b], 2000);
    /* on another wire: unchanged */
    assert_int_equal(r.end[c], 1000);
    assert_int_equal(r.last, 2000);
    assert_int_equal(r.alone, 1000);
    mw_graph_free(g);
}

static void test_staggered(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g);
    /* a alone to 400, half pace to 1600; b half pace from 400, alone from 1600
     * with 400 left; one that comes after both is not touched */
    mw_task_id a = flow(g, nic, 1, 0, 1000), b = flow(g, nic, 1, 400, 1000);
    mw_task_id c = flow(g, nic, 1, 2000, 700);
    struct run r = run_graph(g);

    (void)state;
    assert_int_equal(r.end[a], 1600);
    assert_int_equal(r.end[b], 2000);
    assert_int_equal(r.start[c], 2000);
    assert_int_equal(r.end[c], 2700);
    mw_graph_free(g);
}

static void test_small_parts_are_served(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g);
    /* 0.3 and 0.2 are less than a third each; the rest is 0.5 of the wire */
    mw_task_id small = flow(g, nic, 0.3, 0, 1000);
    mw_task_id tiny = flow(g, nic, 0.2, 0, 1000);
    mw_task_id big = flow(g, nic, 1, 0, 1000);
    struct run r = run_graph(g);

    (void)state;
    assert_int_equal(r.end[small], 1000);
    assert_int_equal(r.end[tiny], 1000);
    /* 500 done by 1000, the other 500 alone */
    assert_int_equal(r.end[big], 1500);
    mw_graph_free(g);
}

static void test_slowest_of_two_wires(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id tx = mw_graph_wire(g), rx = mw_graph_wire(g);
    mw_task_id send = flow(g, tx, 1, 0, 900);
    mw_task_id a = flow(g, rx, 1, 0, 900), b = flow(g, rx, 1, 0, 900);
    struct run r;

    (void)state;
    mw_graph_use(g, send, rx, 1);
    r = run_graph(g);
    /* three into one receiver */
    assert_int_equal(r.end[send], 2700);
    assert_int_equal(r.end[a], 2700);
    assert_int_equal(r.end[b], 2700);
    mw_graph_free(g);
}

static void test_followers_move(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g);
    mw_stream_id compute = mw_graph_stream(g);
    mw_task_id a = flow(g, nic, 1, 0, 1000), b = flow(g, nic, 1, 0, 400);
    mw_task_id after_a = mw_graph_task(g, compute, 10, 0);
    mw_task_id after_b = mw_graph_task(g, mw_graph_stream(g), 10, 0);
    struct run r;

    (void)state;
    mw_graph_dep(g, a, after_a, 5);
    mw_graph_dep(g, b, after_b, 0);
    r = run_graph(g);
    assert_int_equal(r.end[b], 800);
    assert_int_equal(r.start[after_b], 800);
    assert_int_equal(r.end[a], 1400);
    assert_int_equal(r.start[after_a], 1405);
    assert_int_equal(r.last, 1415);
    assert_int_equal(r.alone, 1015);
    mw_graph_free(g);
}

/* ---- against brute force ----------------------------------------------------
 */
struct spec {
    int n, n_wires;
    mw_time ps[TASKS_MAX];
    int stream[TASKS_MAX], n_before[TASKS_MAX], before[TASKS_MAX][3];
    double part[TASKS_MAX][WIRES_MAX];
};

static uint64_t draw(uint64_t *index)
{
    return mw_rand_u64(7, 1, (*index)++);
}

static void make_spec(struct spec *s, uint64_t seed, bool is_wide)
{
    uint64_t at = seed * 100000;

    memset(s, 0, sizeof *s);
    s->n = 5 + (int)(draw(&at) % 40);
    s->n_wires = 1 + (int)(draw(&at) % WIRES_MAX);
    for (int t = 0; t < s->n; t++) {
        s->ps[t] = (mw_time)(draw(&at) % 1000) * 1000000;
        s->stream[t] = (int)(draw(&at) % 6);
        s->n_before[t] = t > 0 ? (int)(draw(&at) % 4) : 0;
        for (int k = 0; k < s->n_before[t]; k++) {
            s->before[t][k] = (int)(draw(&at) % (uint64_t)t);
        }
        for (int w = 0; w < s->n_wires; w++) {
            if (draw(&at) % 3 == 0) {
                double part = (double)(1 + draw(&at) % 10) / 10;

                s->part[t][w] = is_wide ? part / 64 : part;
            }
        }
    }
}

static struct run run_spec(const struct spec *s, bool with_wires)
{
    struct mw_graph *g = mw_graph_new();
    struct run r;

    for (int i = 0; i < 6; i++) {
        mw_graph_stream(g);
    }
    for (int w = 0; w < s->n_wires; w++) {
        mw_graph_wire(g);
    }
    for (int t = 0; t < s->n; t++) {
        mw_graph_task(g, (mw_stream_id)s->stream[t], s->ps[t], 0);
        for (int k = 0; k < s->n_before[t]; k++) {
            mw_graph_dep(g, (mw_task_id)s->before[t][k], (mw_task_id)t, 0);
        }
        for (int w = 0; with_wires && w < s->n_wires; w++) {
            mw_graph_use(g, (mw_task_id)t, (mw_wire_id)w, s->part[t][w]);
        }
    }
    r = run_graph(g);
    mw_graph_free(g);
    return r;
}

/* The share L of wire w with sum of min(part, L) = 1, by bisection. */
static double level(const struct spec *s, int w, const bool *active)
{
    double low = 0, high = 2, sum = 0;

    for (int t = 0; t < s->n; t++) {
        sum += active[t] ? s->part[t][w] : 0;
    }
    for (int i = 0; i < 100 && sum > 1 + 1e-9; i++) {
        double mid = (low + high) / 2;

        sum = 0;
        for (int t = 0; t < s->n; t++) {
            sum += active[t] ? fmin(s->part[t][w], mid) : 0;
        }
        *(sum > 1 ? &high : &low) = mid;
        sum = 2;
    }
    return high;
}

static void brute(const struct spec *s, double *end)
{
    double left[TASKS_MAX], now = 0;
    bool active[TASKS_MAX], is_done[TASKS_MAX] = {false};

    for (int t = 0; t < s->n; t++) {
        left[t] = (double)s->ps[t];
    }
    for (int n_done = 0; n_done < s->n;) {
        double pace[TASKS_MAX], step = 1e18;

        for (int t = 0; t < s->n; t++) {
            active[t] = !is_done[t];
            for (int k = 0; k < s->n_before[t]; k++) {
                active[t] &= is_done[s->before[t][k]];
            }
            for (int u = 0; u < t; u++) {
                active[t] &= s->stream[u] != s->stream[t] || is_done[u];
            }
        }
        for (int t = 0; t < s->n; t++) {
            pace[t] = 1;
            for (int w = 0; w < s->n_wires; w++) {
                if (s->part[t][w] > 0) {
                    pace[t] =
                        fmin(pace[t], level(s, w, active) / s->part[t][w]);
                }
            }
            step = active[t] ? fmin(step, left[t] / pace[t]) : step;
        }
        now += step;
        for (int t = 0; t < s->n; t++) {
            if (active[t] && (left[t] -= step * pace[t]) <= 1e-3) {
                is_done[t] = true;
                end[t] = now;
                n_done++;
            }
        }
    }
}

static void test_brute_force(void **state)
{
    struct spec s;
    int n_slower = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        double end[TASKS_MAX] = {0};

        make_spec(&s, seed, false);
        struct run r = run_spec(&s, true);

        brute(&s, end);
        for (int t = 0; t < s.n; t++) {
            /* ends are rounded up to a picosecond, task after task */
            mw_assert_near((double)r.end[t], end[t], 1e-9, 200);
        }
        n_slower += r.last > r.alone;
        assert_true(r.last >= r.alone);
    }
    assert_true(n_slower > 200);
}

static void test_room_for_all_changes_nothing(void **state)
{
    struct spec s;

    (void)state;
    for (uint64_t seed = 1000; seed < 1200; seed++) {
        make_spec(&s, seed, true);
        struct run with = run_spec(&s, true), without = run_spec(&s, false);

        assert_memory_equal(with.start, without.start, sizeof with.start);
        assert_memory_equal(with.end, without.end, sizeof with.end);
        assert_int_equal(with.last, with.alone);
    }
}

/* With one wire and parts of one, as much is served as the wire is busy. */
static void test_nothing_is_lost(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g);
    mw_time sum = 0;

    (void)state;
    for (int i = 1; i <= 20; i++) {
        flow(g, nic, 1, 10 * i, 1000 * i);
        sum += 1000 * i;
    }
    struct run r = run_graph(g);

    mw_assert_near((double)r.last, 10 + (double)sum, 0, 20);
    mw_graph_free(g);
}

static void test_too_long(void **state)
{
    struct mw_graph *g = mw_graph_new();
    mw_wire_id nic = mw_graph_wire(g);
    mw_time start[4], end[4], last = 0;
    struct mw_err err = {0};

    (void)state;
    flow(g, nic, 1, 0, INT64_MAX / 3 * 2);
    flow(g, nic, 1, 0, INT64_MAX / 3 * 2);
    assert_int_equal(mw_graph_run(g, start, end, &last, NULL, &err),
                     MW_EFAILED);
    assert_non_null(strstr(err.text, "106 days"));
    mw_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_on_one_wire_take_twice_as_long),
        cmocka_unit_test(test_staggered),
        cmocka_unit_test(test_small_parts_are_served),
        cmocka_unit_test(test_slowest_of_two_wires),
        cmocka_unit_test(test_followers_move),
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_room_for_all_changes_nothing),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_too_long)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
