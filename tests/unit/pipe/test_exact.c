/*
 * Exact programs against brute force, and the bounds and heuristics against the
 * exact optimum on tiny random instances.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "planner/auto/exact.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
enum { TINY = 40, BRUTE = 6 };
#else
enum { TINY = 170, BRUTE = 30 };
#endif

/* ---- brute force --------------------------------------------------------- */
/*
 * All orders of a stage: sequences of m F, m B, m W in which every prefix has
 * F >= B >= W (42 for m = 3); all combinations over the stages, by longest
 * path.
 */
enum { OPS_MAX = 9, ORDERS_MAX = 64, STAGES_MAX = 3 };
struct orders {
    int n, len;
    char op[ORDERS_MAX][OPS_MAX];
};
struct brute {
    const struct mw_auto_problem *q;
    const struct orders *o;
    int chosen[STAGES_MAX];
    mw_time best;
};

static void enumerate(struct orders *o, char *now, int at, const int left[3])
{
    int t;

    if (at == o->len) {
        assert_true(o->n < ORDERS_MAX);
        memcpy(o->op[o->n++], now, (size_t)at);
        return;
    }
    for (t = 0; t < 3; t++) {
        int next[3] = {left[0], left[1], left[2]};

        if (left[t] == 0 || (t > 0 && left[t] <= left[t - 1])) {
            continue;
        }
        next[t]--;
        now[at] = (char)t;
        enumerate(o, now, at + 1, next);
    }
}

static bool fits(const struct mw_auto_problem *q, const char *op, int len)
{
    double held = 0;
    int i;

    for (i = 0; i < len; i++) {
        held += op[i] == 0 ? 1 : op[i] == 1 ? q->w_share - 1 : -q->w_share;
        if (op[i] == 0 && held > q->memory_limit + 1e-9) {
            return false;
        }
    }
    return true;
}

/* Objective of the chosen orders, -1: deadlock. */
static mw_time longest_path(const struct brute *x)
{
    const struct mw_auto_problem *q = x->q;
    const mw_time *d[3] = {q->f_ps, q->b_ps, q->w_ps};
    mw_time end[STAGES_MAX][3][4], t[STAGES_MAX] = {0}, first[STAGES_MAX];
    int at[STAGES_MAX] = {0}, n[STAGES_MAX][3] = {{0}}, i;
    mw_time span = 0, last = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (i = 0; i < q->n_stages; i++) {
            int type, k;
            mw_time r = 0;

            if (at[i] == x->o->len) {
                continue;
            }
            type = x->o->op[x->chosen[i]][at[i]];
            k = n[i][type];
            if (type == 0 && i > 0) {
                if (n[i - 1][0] <= k) {
                    continue;
                }
                r = end[i - 1][0][k] + q->comm_ps;
            } else if (type == 1 && i + 1 < q->n_stages) {
                if (n[i + 1][1] <= k) {
                    continue;
                }
                r = end[i + 1][1][k] + q->comm_ps;
            }
            r = r > t[i] ? r : t[i];
            if (at[i] == 0) {
                first[i] = r;
            }
            end[i][type][k] = t[i] = r + d[type][i];
            n[i][type]++;
            at[i]++;
            moved = true;
        }
    }
    for (i = 0; i < q->n_stages; i++) {
        if (at[i] < x->o->len) {
            return -1;
        }
        span = t[i] - first[i] > span ? t[i] - first[i] : span;
        last = t[i] > last ? t[i] : last;
    }
    return q->objective == MW_OBJECTIVE_SPAN ? span : last;
}

static void try_all(struct brute *x, int stage)
{
    int k;

    if (stage == x->q->n_stages) {
        mw_time v = longest_path(x);

        if (v >= 0 && v < x->best) {
            x->best = v;
        }
        return;
    }
    for (k = 0; k < x->o->n; k++) {
        if (fits(x->q, x->o->op[k], x->o->len)) {
            x->chosen[stage] = k;
            try_all(x, stage + 1);
        }
    }
}

static mw_time brute_force(const struct mw_auto_problem *q)
{
    const int left[3] = {q->n_microbatches, q->n_microbatches,
                         q->n_microbatches};
    struct orders *o = mw_calloc(1, sizeof *o);
    struct brute x = {.q = q, .o = o, .best = INT64_MAX};
    char now[OPS_MAX];

    o->len = 3 * q->n_microbatches;
    enumerate(o, now, 0, left);
    try_all(&x, 0);
    mw_free(o);
    return x.best;
}

/* ---- instances ----------------------------------------------------------- */
struct tiny {
    struct mw_auto_problem q;
    mw_time t[9];
};

static void make_tiny(struct tiny *x, uint64_t k, int p_max, int m_max)
{
    static const double share[] = {0.25, 0.5, 1};
    int p = 2 + (int)((p_max - 1) * mw_rand_unit(5, k, 0));
    int m = 1 + (int)((p == 2 ? m_max : 3) * mw_rand_unit(5, k, 1)), i;

    for (i = 0; i < 3 * p; i++) {
        x->t[i] = 1 + (mw_time)(9 * mw_rand_unit(5, k, 10 + (uint64_t)i));
    }
    x->q = (struct mw_auto_problem){
        .n_stages = p,
        .n_microbatches = m,
        .n_chunks = 1,
        .f_ps = x->t,
        .b_ps = x->t + p,
        .w_ps = x->t + 2 * p,
        .comm_ps = (mw_time)(3 * mw_rand_unit(5, k, 2)),
        .w_share = share[(int)(3 * mw_rand_unit(5, k, 3))],
        .memory_limit = 1 + (int)(2 * p * mw_rand_unit(5, k, 4)),
        .objective = k % 2 != 0 ? MW_OBJECTIVE_SPAN : MW_OBJECTIVE_MAKESPAN,
        .effort = 0.1};
}

static struct mw_auto_result solve(const struct mw_auto_problem *q)
{
    struct mw_auto_result r;
    struct mw_err err = {0};

    if (mw_schedule_auto(q, &r, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return r;
}

/* p <= 3, m <= 3: nothing beats the exact value, the bound is not above it. */
static void test_brute_force_agrees(void **state)
{
    uint64_t k;

    (void)state;
    for (k = 0; k < BRUTE; k++) {
        struct tiny x;
        struct mw_auto_result r;
        struct mw_exact e;
        mw_time best;

        make_tiny(&x, 1000 + k, 3, 3);
        best = brute_force(&x.q);
        r = solve(&x.q);
        assert_true(r.bound_ps <= best);
        assert_true(r.value_ps >= best);
        assert_int_equal(mw_exact_solve(&x.q, &r.schedule, 20, &e, NULL),
                         MW_OK);
        assert_true(e.is_proved);
        assert_int_equal(e.value_ps, best);
        mw_exact_release(&e);
        mw_schedule_release(&r.schedule);
    }
}

/* The program without the bound's help: its optimum is never below the bound,
 * and the heuristic finds it (it did on all of these). */
static void test_bounds_on_tiny_instances(void **state)
{
    int decided = 0, met = 0;
    uint64_t k;

    (void)state;
    for (k = 0; k < TINY; k++) {
        struct mw_exact_opts opts = {
            .is_lazy = true, .use_hints = true, .time_limit_s = 2};
        struct tiny x;
        struct mw_auto_result r;
        struct mw_exact e = {.bound_ps = 1};

        make_tiny(&x, k, 3, 4);
        r = solve(&x.q);
        e.value_ps = r.value_ps;
        assert_int_equal(
            mw_exact_disjunctive(&x.q, &r.schedule, &opts, &e, NULL), MW_OK);
        if (e.is_proved) {
            decided++;
            assert_true(r.bound_ps <= e.value_ps);
            assert_int_equal(r.value_ps, e.value_ps);
            met += r.bound_ps == e.value_ps;
        }
        mw_exact_release(&e);
        mw_schedule_release(&r.schedule);
    }
    assert_true(decided >= TINY - TINY / 10);
    assert_true(met >= decided / 2);
}

/* 27 is optimal for p = 4, m = 8 in unit times: 26 is refuted, 27 is not. */
static void test_time_indexed(void **state)
{
    mw_time t[] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct mw_auto_problem q = {.n_stages = 4,
                                .n_microbatches = 8,
                                .n_chunks = 1,
                                .f_ps = t,
                                .b_ps = t,
                                .w_ps = t,
                                .w_share = 1,
                                .memory_limit = 4};

    (void)state;
    assert_int_equal(mw_exact_refute(&q, 26, 10), MW_EXACT_NO);
    assert_int_equal(mw_exact_refute(&q, 27, 10), MW_EXACT_UNDECIDED);
    q.n_stages = 8;
    q.n_microbatches = 16;
    q.memory_limit = 8;
    assert_int_equal(mw_exact_refute(&q, 54, 60), MW_EXACT_NO);
}

/* p = 4, m = 8 in profiled times: with bound and incumbent at once, without
 * them nothing. */
static void test_hints_decide(void **state)
{
    mw_time f[4], b[4], w[4];
    struct mw_auto_problem q = {.n_stages = 4,
                                .n_microbatches = 8,
                                .n_chunks = 1,
                                .f_ps = f,
                                .b_ps = b,
                                .w_ps = w,
                                .comm_ps = 601,
                                .w_share = 1,
                                .memory_limit = 4,
                                .objective = MW_OBJECTIVE_SPAN};
    struct mw_exact_opts opts = {.use_hints = true, .time_limit_s = 20};
    struct mw_auto_result r;
    struct mw_exact e = {0};
    int i;

    (void)state;
    for (i = 0; i < 4; i++) {
        f[i] = 18522;
        b[i] = 18086;
        w[i] = 9337;
    }
    r = solve(&q);
    e.value_ps = r.value_ps;
    e.bound_ps = r.bound_ps;
    assert_int_equal(mw_exact_disjunctive(&q, &r.schedule, &opts, &e, NULL),
                     MW_OK);
    assert_true(e.is_proved);
    assert_int_equal(e.integers, 4 * 3 * 8 * 7 / 2);
    opts.use_hints = false;
    opts.time_limit_s = 0.3;
    e.bound_ps = 0;
    e.is_proved = false;
    assert_int_equal(mw_exact_disjunctive(&q, &r.schedule, &opts, &e, NULL),
                     MW_OK);
    assert_false(e.is_proved);
    mw_exact_release(&e);
    mw_schedule_release(&r.schedule);
}

/* ZB-H1's order of F and B with all W at the end (memory for it): insertion
 * finds 27 again. */
static void test_weight_insertion(void **state)
{
    mw_time t[] = {1, 1, 1, 1};
    struct mw_auto_problem q = {.n_stages = 4,
                                .n_microbatches = 8,
                                .n_chunks = 1,
                                .f_ps = t,
                                .b_ps = t,
                                .w_ps = t,
                                .w_share = 1,
                                .memory_limit = 8};
    const char *list[] = {
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7 W0 W1 W2 W3 W4 W5 W6 "
        "W7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7 W0 W1 W2 W3 W4 W5 W6 "
        "W7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7 W0 W1 W2 W3 W4 W5 W6 "
        "W7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 W0 W1 W2 W3 W4 W5 W6 "
        "W7"};
    struct mw_schedule s;
    struct mw_exact e = {.bound_ps = 24};

    (void)state;
    assert_int_equal(mw_schedule_parse(list, 4, 8, 1, "loop", &s, NULL), MW_OK);
    e.value_ps = 35; /* 16 + 6 + 5 waiting + 8 */
    assert_int_equal(mw_exact_weight(&q, &s, 10, &e, NULL), MW_OK);
    assert_true(e.has_schedule);
    assert_int_equal(e.value_ps, 27);
    assert_int_equal(mw_schedule_check(&e.schedule, NULL), MW_OK);
    mw_exact_release(&e);
    mw_schedule_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force_agrees),
        cmocka_unit_test(test_bounds_on_tiny_instances),
        cmocka_unit_test(test_time_indexed),
        cmocka_unit_test(test_hints_decide),
        cmocka_unit_test(test_weight_insertion),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
