/*
 * The event queue against a sort: same events, same order, equal times in the
 * order of insertion; the heap property after every step.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/engine/engine.h"

#include <stdlib.h>

static void test_equal_times_in_order(void **state)
{
    (void)state;
    struct mw_evq q;
    mw_evq_init(&q);
    for (uint32_t i = 0; i < 100; i++) {
        mw_evq_push(&q, 7, 1, i);
    }
    mw_evq_push(&q, 3, 2, 0);
    struct mw_event e;
    assert_true(mw_evq_pop(&q, &e));
    assert_int_equal(e.t_ps, 3);
    assert_int_equal(e.kind, 2);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(mw_evq_pop(&q, &e));
        assert_int_equal(e.arg, i);
    }
    assert_false(mw_evq_pop(&q, &e));
    mw_evq_release(&q);
}

static int by_time_then_seq(const void *pa, const void *pb)
{
    const struct mw_event *a = pa, *b = pb;
    if (a->t_ps != b->t_ps) {
        return a->t_ps < b->t_ps ? -1 : 1;
    }
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* Few distinct times, so that most events have equals. */
static void test_against_sort(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct mw_event *want = mw_calloc(N, sizeof *want);
    struct mw_evq q;
    mw_evq_init(&q);
    for (uint32_t i = 0; i < N; i++) {
        mw_time t_ps = (mw_time)(mw_rand_u64(1, 0, i) % 97);
        want[i] = (struct mw_event){.t_ps = t_ps, .seq = i, .arg = i};
        mw_evq_push(&q, t_ps, 0, i);
        assert_true(mw_evq_check(&q));
    }
    qsort(want, N, sizeof *want, by_time_then_seq);
    for (size_t i = 0; i < N; i++) {
        struct mw_event e;
        assert_true(mw_evq_pop(&q, &e));
        assert_true(mw_evq_check(&q));
        assert_int_equal(e.t_ps, want[i].t_ps);
        assert_int_equal(e.arg, want[i].arg);
    }
    mw_evq_release(&q);
    mw_free(want);
}

/*
 * Pushes between pops, as a simulation does: a plain list searched for its
 * least element is the oracle.
 */
static void test_mixed(void **state)
{
    (void)state;
    enum { STEPS = 4000 };
    struct mw_event *list = mw_calloc(STEPS, sizeof *list);
    size_t n = 0;
    uint64_t seq = 0;
    struct mw_evq q;
    mw_evq_init(&q);
    for (uint64_t i = 0; i < STEPS; i++) {
        if (mw_rand_u64(2, 0, i) % 5 < 3) {
            mw_time t_ps = (mw_time)(mw_rand_u64(2, 1, i) % 50) - 10;
            list[n++] = (struct mw_event){.t_ps = t_ps, .seq = seq++, .arg = 5};
            mw_evq_push(&q, t_ps, 0, 5);
            continue;
        }
        struct mw_event e;
        bool has_one = mw_evq_pop(&q, &e);
        assert_int_equal(has_one, n > 0);
        if (!has_one) {
            continue;
        }
        size_t least = 0;
        for (size_t k = 1; k < n; k++) {
            if (by_time_then_seq(&list[k], &list[least]) < 0) {
                least = k;
            }
        }
        assert_int_equal(e.t_ps, list[least].t_ps);
        assert_int_equal(e.seq, list[least].seq);
        list[least] = list[--n];
    }
    mw_evq_release(&q);
    mw_free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_times_in_order),
        cmocka_unit_test(test_against_sort),
        cmocka_unit_test(test_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
