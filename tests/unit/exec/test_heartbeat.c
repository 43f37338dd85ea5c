/*
 * The watch over ranks: when it says that they hang, and which it names.
 */
#include "mw_test.h"

#include "exec/heartbeat.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = 3 };
static const int64_t second = 1000000000;

static struct mw_beat *three(const char *path)
{
    struct mw_beat *b = NULL;
    struct mw_err err = {0};
    assert_int_equal(mw_beats_make(path, N, &b, &err), MW_OK);
    for (int i = 0; i < N; i++) {
        b[i].pid = (int32_t)getpid(); /* alive */
        mw_beat_note(&b[i], "B", i, i + 1, i != 1);
    }
    return b;
}

static void names_the_rank_that_does_not_wait(void **state)
{
    (void)state;
    char why[256] = "";
    struct mw_beat *b = three("beats-1");
    struct mw_watch w;
    mw_watch_init(&w, b, N, 5.0);
    assert_true(mw_watch_tick(&w, second, why, sizeof why));
    assert_true(mw_watch_tick(&w, 5 * second, why, sizeof why));
    mw_beat_tick(&b[2]); /* somebody moves: the count begins again */
    assert_true(mw_watch_tick(&w, 7 * second, why, sizeof why));
    assert_true(mw_watch_tick(&w, 11 * second, why, sizeof why));
    assert_string_equal(why, "");
    assert_false(mw_watch_tick(&w, 12 * second, why, sizeof why));
    assert_string_equal(why, "rank 1 hangs in B of micro-batch 1, stage 2: no "
                             "rank moved for 5 s; all were stopped");
    mw_beats_close(b, N);
    unlink("beats-1");
}

/* All wait for each other: the one that got least far. */
static void names_the_slowest_when_all_wait(void **state)
{
    (void)state;
    char why[256] = "";
    struct mw_beat *b = three("beats-2");
    struct mw_watch w;
    b[1].is_waiting = true;
    mw_beat_tick(&b[0]);
    mw_beat_tick(&b[1]);
    mw_beat_note(&b[2], "the end of a step", -1, -1, true);
    b[2].count = 1;
    mw_watch_init(&w, b, N, 2.0);
    assert_true(mw_watch_tick(&w, second, why, sizeof why));
    assert_false(mw_watch_tick(&w, 4 * second, why, sizeof why));
    assert_string_equal(why, "rank 2 waits forever in the end of a step: no "
                             "rank moved for 2 s; all were stopped");
    mw_beats_close(b, N);
    unlink("beats-2");
}

/* Before all have begun, and once one is done, nothing is said. */
static void begins_and_ends_with_the_steps(void **state)
{
    (void)state;
    char why[256] = "";
    struct mw_beat *b = three("beats-3");
    struct mw_watch w;
    b[0].count = 0;
    mw_watch_init(&w, b, N, 1.0);
    assert_true(mw_watch_tick(&w, second, why, sizeof why));
    assert_true(mw_watch_tick(&w, 90 * second, why, sizeof why));
    mw_beat_tick(&b[0]);
    b[2].is_done = true;
    assert_true(mw_watch_tick(&w, 91 * second, why, sizeof why));
    assert_true(mw_watch_tick(&w, 190 * second, why, sizeof why));
    mw_beats_close(b, N);
    unlink("beats-3");
}

static void another_size_is_not_opened(void **state)
{
    (void)state;
    struct mw_beat *b = three("beats-4"), *same = mw_beats_open("beats-4", N);
    assert_non_null(same);
    assert_int_equal((int)same[2].microbatch, 2);
    assert_null(mw_beats_open("beats-4", N + 1));
    assert_null(mw_beats_open("no-such-beats", N));
    mw_beats_close(same, N);
    mw_beats_close(b, N);
    unlink("beats-4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_rank_that_does_not_wait),
        cmocka_unit_test(names_the_slowest_when_all_wait),
        cmocka_unit_test(begins_and_ends_with_the_steps),
        cmocka_unit_test(another_size_is_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
