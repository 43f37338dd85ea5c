/*
 * Allocation, arrays, arenas and strings.
 */
#include "base/mem.h"
#include "mw_test.h"

#include <stdbool.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void calloc_zeroes_and_takes_nothing(void **state)
{
    (void)state;
    unsigned char *p = mw_calloc(100, 3);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(p[i], 0);
    }
    mw_free(p);
    p = mw_calloc(0, 8);
    assert_non_null(p);
    mw_free(p);
    mw_free(NULL);
}

static void do_overflow(int which)
{
    switch (which) {
    case 0:
        mw_calloc(SIZE_MAX / 2, 3);
        break;
    case 1:
        mw_mul_u64(UINT64_C(1) << 33, UINT64_C(1) << 31);
        break;
    default: {
        struct mw_arena arena;
        mw_arena_init(&arena);
        mw_arena_alloc(&arena, SIZE_MAX - 3, 1);
    }
    }
}

/* A product that does not fit must abort, not allocate too little. */
static void overflowing_sizes_abort(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            if (freopen("/dev/null", "w", stderr) == NULL) {
                _exit(1);
            }
            do_overflow(which);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

static void products(void **state)
{
    (void)state;
    assert_true(mw_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 31) == UINT64_C(1)
                                                                        << 63);
    assert_true(mw_mul_u64(0, UINT64_MAX) == 0);
    assert_true(mw_mul_u64(UINT64_MAX, 1) == UINT64_MAX);
}

static void array_keeps_what_was_pushed(void **state)
{
    (void)state;
    MW_ARRAY(int) a = {0};
    for (int i = 0; i < 10000; i++) {
        mw_array_push(&a, i * 3);
        assert_true(a.n <= a.cap);
    }
    assert_int_equal(a.n, 10000);
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(a.v[i], i * 3);
    }
    size_t cap = a.cap;
    mw_array_clear(&a);
    mw_array_reserve(&a, cap);
    assert_int_equal(a.cap, cap); /* nothing grows without need */
    mw_array_release(&a);
    assert_null(a.v);
    assert_int_equal(a.cap, 0);
}

/* Doubling: a million pushes may move the array at most 20 times. */
static void array_grows_by_doubling(void **state)
{
    (void)state;
    MW_ARRAY(char) a = {0};
    int n_moves = 0;
    size_t cap = 0;
    for (int i = 0; i < 1000000; i++) {
        mw_array_push(&a, 'x');
        n_moves += a.cap != cap;
        cap = a.cap;
    }
    assert_true(n_moves <= 20);
    mw_array_release(&a);
}

static void arena_is_zeroed_aligned_and_disjoint(void **state)
{
    (void)state;
    enum { N = 500 };
    struct mw_arena arena;
    mw_arena_init(&arena);
    unsigned char *p[N];
    size_t total = 0;
    for (size_t i = 0; i < N; i++) {
        size_t size = (i * 37) % 5000 + 1;
        p[i] = mw_arena_alloc(&arena, size, 1);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t j = 0; j < size; j++) {
            assert_int_equal(p[i][j], 0);
        }
        memset(p[i], (int)(i % 251) + 1, size);
        total += size;
    }
    for (size_t i = 0; i < N; i++) {
        size_t size = (i * 37) % 5000 + 1;
        assert_int_equal(p[i][0], i % 251 + 1);
        assert_int_equal(p[i][size - 1], i % 251 + 1);
    }
    assert_true(arena.used_bytes >= total);
    assert_true(arena.used_bytes < total + N * 16);
    mw_arena_release(&arena);
    assert_int_equal(arena.used_bytes, 0);
}

static void arena_takes_large_and_empty_requests(void **state)
{
    (void)state;
    struct mw_arena arena;
    mw_arena_init(&arena);
    char *big = mw_arena_alloc(&arena, 10, 1 << 20);
    big[(10 << 20) - 1] = 'x';
    assert_non_null(mw_arena_alloc(&arena, 0, 8));
    char *small = mw_arena_strdup(&arena, "after");
    assert_string_equal(small, "after");
    char *made = mw_arena_printf(&arena, "%d-%s", 42, "x");
    assert_string_equal(made, "42-x");
    mw_arena_release(&arena);
}

static void strings_grow(void **state)
{
    (void)state;
    struct mw_str s = {0};
    assert_null(s.s);
    mw_str_add(&s, "");
    assert_string_equal(s.s, "");
    for (int i = 0; i < 1000; i++) {
        mw_str_addf(&s, "%d,", i % 10);
    }
    assert_int_equal(s.n, 2000);
    assert_int_equal(strlen(s.s), 2000);
    assert_memory_equal(s.s + 1990, "5,6,7,8,9,", 11);
    mw_str_add(&s, "end");
    assert_string_equal(s.s + 2000, "end");
    mw_str_release(&s);
    assert_null(s.s);
}

/* Text that exactly fills the buffer still gets its NUL. */
static void strings_end_at_every_length(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70; n++) {
        struct mw_str s = {0};
        char text[80] = "";
        memset(text, 'a', n);
        mw_str_add(&s, text);
        mw_str_addf(&s, "%s", text);
        assert_int_equal(strlen(s.s), 2 * n);
        assert_int_equal(s.n, 2 * n);
        mw_str_release(&s);
    }
}

static void strdup_copies(void **state)
{
    (void)state;
    char *copy = mw_strdup("text");
    assert_string_equal(copy, "text");
    copy = mw_realloc(copy, 100, 1);
    assert_string_equal(copy, "text");
    mw_free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calloc_zeroes_and_takes_nothing),
        cmocka_unit_test(overflowing_sizes_abort),
        cmocka_unit_test(products),
        cmocka_unit_test(array_keeps_what_was_pushed),
        cmocka_unit_test(array_grows_by_doubling),
        cmocka_unit_test(arena_is_zeroed_aligned_and_disjoint),
        cmocka_unit_test(arena_takes_large_and_empty_requests),
        cmocka_unit_test(strings_grow),
        cmocka_unit_test(strings_end_at_every_length),
        cmocka_unit_test(strdup_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
