/*
 * Automatic schedules against the zero-bubble authors' scheduler (their results
 * in tests/oracles/schedules/authors_*.csv, objective span, which is what they
 * minimise): never worse, and all 48 one-chunk profile rows proved optimal.
 */
#include "mw_test.h"

#include "base/csv.h"
#include "base/rand.h"
#include "sim/pipe/auto.h"
#include "sim/pipe/pipe_stats.h"

#include <math.h>
#include <string.h>

static bool takes_others;
static const char *oracle_dir = ".";
/* One V row in so many; the slow test has the others. */
#if defined(__SANITIZE_ADDRESS__)
static const size_t sample = 11;
#else
static const size_t sample = 4;
#endif

struct row {
    const char *kind;
    int64_t stages, microbatches, chunks;
    double f, b, w, comm, limit, w_share, bubble;
};
#define FIELD(name, type)                                                      \
    {                                                                          \
#name, type, offsetof(struct row, name), true, 0, 0, 0                 \
    }
static const struct mw_csv_field fields[] = {FIELD(kind, MW_C_STR),
                                             FIELD(stages, MW_C_INT),
                                             FIELD(microbatches, MW_C_INT),
                                             FIELD(chunks, MW_C_INT),
                                             FIELD(f, MW_C_NUM),
                                             FIELD(b, MW_C_NUM),
                                             FIELD(w, MW_C_NUM),
                                             FIELD(comm, MW_C_NUM),
                                             FIELD(limit, MW_C_NUM),
                                             FIELD(w_share, MW_C_NUM),
                                             FIELD(bubble, MW_C_NUM),
                                             {.name = NULL}};

/* Uniform times; the array stays the caller's. */
static struct mw_auto_problem uniform(int p, int m, int v, const double t[4],
                                      double limit, mw_time *times)
{
    size_t n = (size_t)p * (size_t)v, i;

    for (i = 0; i < n; i++) {
        times[i] = (mw_time)t[0];
        times[n + i] = (mw_time)t[1];
        times[2 * n + i] = (mw_time)t[2];
    }
    return (struct mw_auto_problem){.n_stages = p,
                                    .n_microbatches = m,
                                    .n_chunks = v,
                                    .f_ps = times,
                                    .b_ps = times + n,
                                    .w_ps = times + 2 * n,
                                    .comm_ps = (mw_time)t[3],
                                    .w_share = 1,
                                    .memory_limit = limit,
                                    .objective = MW_OBJECTIVE_SPAN};
}

static struct mw_auto_result solve(const struct mw_auto_problem *q)
{
    struct mw_auto_result r;
    struct mw_err err = {0};

    if (mw_schedule_auto(q, &r, &err) != MW_OK) {
        fail_msg("p %d m %d: %s", q->n_stages, q->n_microbatches, err.text);
    }
    return r;
}

/* What is returned is complete, keeps to the limit, takes what it says. */
static void check_result(const struct mw_auto_problem *q,
                         const struct mw_auto_result *r)
{
    struct mw_pipe_times times = {.f_ps = q->f_ps,
                                  .b_ps = q->b_ps,
                                  .w_ps = q->w_ps,
                                  .comm_ps = q->comm_ps};
    struct mw_pipe_run run;
    struct mw_err err = {0};

    if (mw_schedule_check(&r->schedule, &err) != MW_OK ||
        mw_schedule_check_memory(&r->schedule, q->memory_limit, q->w_share,
                                 &err) != MW_OK ||
        mw_pipe_replay(&r->schedule, &times, &run, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(q->objective == MW_OBJECTIVE_SPAN ? run.longest_span_ps
                                                       : run.makespan_ps,
                     r->value_ps);
    assert_true(r->bound_ps <= r->value_ps);
    assert_int_equal(r->is_proved, r->bound_ps == r->value_ps);
    mw_pipe_run_release(&run);
}

static bool check_row(const struct row *x)
{
    const double t[4] = {x->f, x->b, x->w, x->comm};
    mw_time times[3 * 64];
    struct mw_auto_problem q = uniform((int)x->stages, (int)x->microbatches,
                                       (int)x->chunks, t, x->limit, times);
    double work = (double)(x->microbatches * x->chunks) * (x->f + x->b + x->w);
    struct mw_auto_result r;
    bool is_proved;

    q.w_share = x->w_share;
    q.effort = 20;
    r = solve(&q);
    check_result(&q, &r);
    if (1 - work / (double)r.value_ps > x->bubble + 5e-5) {
        fail_msg("%s p %d m %d limit %g: bubble %.5f, theirs %.4f", x->kind,
                 (int)x->stages, (int)x->microbatches, x->limit,
                 1 - work / (double)r.value_ps, x->bubble);
    }
    is_proved = r.is_proved;
    mw_schedule_release(&r.schedule);
    return is_proved;
}

static const struct row *load(struct mw_arena *arena, const char *name,
                              size_t *out_n)
{
    struct mw_csv csv;
    struct mw_err err = {0};
    void *rows = NULL;
    char *path = mw_arena_printf(arena, "%s/%s", oracle_dir, name);

    if (mw_csv_load(path, arena, &csv, &err) != MW_OK ||
        mw_csv_bind(&csv, fields, sizeof(struct row), false, arena, &rows,
                    &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    *out_n = csv.n_rows;
    return rows;
}

static void test_profile_rows_are_proved(void **state)
{
    struct mw_arena arena;
    const struct row *x;
    size_t n, i;

    (void)state;
    mw_arena_init(&arena);
    x = load(&arena, "authors_zb.csv", &n);
    assert_int_equal(n, 48);
    for (i = 0; i < n; i++) {
        if (!check_row(&x[i])) {
            fail_msg("row %zu is not proved optimal", i);
        }
    }
    mw_arena_release(&arena);
}

static void test_v_rows(void **state)
{
    struct mw_arena arena;
    const struct row *x;
    size_t n, i;

    (void)state;
    mw_arena_init(&arena);
    x = load(&arena, "authors_v.csv", &n);
    assert_int_equal(n, 44);
    for (i = 0; i < n; i++) {
        if ((i % sample == 0) != takes_others) {
            check_row(&x[i]);
        }
    }
    mw_arena_release(&arena);
}

/* Targets beyond the authors': the figures are bubble rates of the span. */
static void test_v_targets(void **state)
{
    static const struct {
        int p, m;
        double limit, t[4], most;
    } x[] = {{32, 256, 32, {9447, 9644, 7193, 887}, 0.0225},
             {8, 24, 5, {4959, 5217, 3519, 213}, 0.1429},
             {8, 16, 4, {1, 1, 1, 0}, 0.1933},
             {8, 32, 4, {1, 1, 1, 0}, 0.1070}};
    mw_time times[3 * 64];
    size_t i;

    (void)state;
    for (i = 0; i < sizeof x / sizeof x[0]; i++) {
        struct mw_auto_problem q =
            uniform(x[i].p, x[i].m, 2, x[i].t, x[i].limit, times);
        struct mw_auto_result r = solve(&q);
        double work = 2.0 * x[i].m * (x[i].t[0] + x[i].t[1] + x[i].t[2]);

        check_result(&q, &r);
        /* Within half a unit of the fourth digit. */
        assert_true(1 - work / (double)r.value_ps <= x[i].most + 5e-5);
        mw_schedule_release(&r.schedule);
    }
}

/*
 * More memory, less bubble (1.5B, p = 8, m = 32; proved minima): bubble of the
 * makespan and of the span at K/p = 1, 1.5, 2.
 */
static void test_memory_frontier(void **state)
{
    static const double t[4] = {18513, 18086, 9331, 626},
                        factor[] = {1, 1.5, 2},
                        makespan[] = {.1242, .0835, .0835},
                        span[] = {.1242, .0400, .0017};
    mw_time times[3 * 8];
    size_t i;
    int k;

    (void)state;
    for (i = 0; i < 3; i++) {
        for (k = 0; k < 2; k++) {
            struct mw_auto_problem q =
                uniform(8, 32, 1, t, 8 * factor[i], times);
            struct mw_auto_result r;

            q.w_share = 73728.0 / 201216; /* 32 h / (34 h + 5 a s) */
            q.objective = k == 0 ? MW_OBJECTIVE_MAKESPAN : MW_OBJECTIVE_SPAN;
            r = solve(&q);
            mw_assert_near(1 - 32 * (t[0] + t[1] + t[2]) / (double)r.value_ps,
                           k == 0 ? makespan[i] : span[i], 0, 2e-4);
            mw_schedule_release(&r.schedule);
        }
    }
}

static void test_large_instance_is_proved(void **state)
{
    static const double t[4] = {10408, 10204, 7703, 408};
    mw_time times[3 * 64];
    struct mw_auto_problem q = uniform(64, 512, 1, t, 64, times);
    struct mw_auto_result r = solve(&q);

    (void)state;
    assert_true(r.is_proved);
    check_result(&q, &r);
    mw_schedule_release(&r.schedule);
}

/* Uneven stages, random limits and shares: right, and never below the bound. */
static void test_random_instances(void **state)
{
    mw_time t[3 * 16];
    uint64_t k;
    int i;

    (void)state;
    for (k = 0; k < 60; k++) {
        int v = 1 + (k % 3 == 2), p = 2 + (int)(7 * mw_rand_unit(3, k, 0));
        struct mw_auto_problem q = {
            .n_stages = p,
            .n_microbatches = 1 + (int)(4 * p * mw_rand_unit(3, k, 1)),
            .n_chunks = v,
            .f_ps = t,
            .b_ps = t + p * v,
            .w_ps = t + 2 * p * v,
            .comm_ps = (mw_time)(200 * mw_rand_unit(3, k, 2)),
            .w_share = mw_rand_unit(3, k, 3),
            .memory_limit = 1 + (int)(2 * p * mw_rand_unit(3, k, 4)),
            .objective = k % 2 != 0 ? MW_OBJECTIVE_SPAN : MW_OBJECTIVE_MAKESPAN,
            .effort = 0.2};
        struct mw_auto_result r, again;

        if (p * v > 16) {
            continue;
        }
        for (i = 0; i < 3 * p * v; i++) {
            t[i] = 500 + (mw_time)(1000 * mw_rand_unit(3, k, 10 + (uint64_t)i));
        }
        r = solve(&q);
        check_result(&q, &r);
        again = solve(&q);
        assert_int_equal(again.value_ps, r.value_ps);
        assert_memory_equal(again.schedule.slot, r.schedule.slot,
                            r.schedule.first[p] * sizeof *r.schedule.slot);
        mw_schedule_release(&r.schedule);
        mw_schedule_release(&again.schedule);
    }
}

/* Without a limit the order does not hold more than it needs. */
static void test_no_limit_is_thrifty(void **state)
{
    static const double t[4] = {10, 10, 10, 0};
    mw_time times[3 * 8];
    struct mw_auto_problem q = uniform(8, 32, 1, t, 0, times);
    struct mw_auto_result r;

    (void)state;
    q.objective = MW_OBJECTIVE_MAKESPAN;
    r = solve(&q);
    assert_true(r.is_proved);
    assert_int_equal(mw_schedule_check_memory(&r.schedule, 8, 1, NULL), MW_OK);
    mw_schedule_release(&r.schedule);
}

static void expect_refused(const struct mw_auto_problem *q, const char *want)
{
    struct mw_auto_result r;
    struct mw_err err = {0};

    assert_int_equal(mw_schedule_auto(q, &r, &err), MW_EUSAGE);
    if (strstr(err.text, want) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, want);
    }
}

static void test_refusals(void **state)
{
    static const double t[4] = {10, 10, 10, 0}, none[4] = {10, 0, 10, 0};
    mw_time times[3 * 16];
    struct mw_auto_problem q = uniform(4, 8, 1, t, 0.5, times);

    (void)state;
    expect_refused(&q, "below the minimum of 1");
    q.memory_limit = 4;
    q.w_share = (double)NAN;
    expect_refused(&q, "must be from 0 to 1");
    q = uniform(4, 8, 3, t, 4, times);
    expect_refused(&q, "1 chunk per stage or an even number");
    q = uniform(4, 8, 1, none, 4, times);
    expect_refused(&q, "must be positive");
    q = uniform(4, 8, 1, t, 4, times);
    q.n_microbatches = 0;
    expect_refused(&q, "not 4 and 0");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profile_rows_are_proved),
        cmocka_unit_test(test_v_rows),
        cmocka_unit_test(test_v_targets),
        cmocka_unit_test(test_memory_frontier),
        cmocka_unit_test(test_large_instance_is_proved),
        cmocka_unit_test(test_random_instances),
        cmocka_unit_test(test_no_limit_is_thrifty),
        cmocka_unit_test(test_refusals),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_v_rows),
    };

    if (argc > 1) {
        oracle_dir = argv[1];
    }
    takes_others = argc > 2;
    return takes_others ? cmocka_run_group_tests(others, NULL, NULL)
                        : cmocka_run_group_tests(tests, NULL, NULL);
}
