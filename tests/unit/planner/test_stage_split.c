/*
 * Layers and recomputation per stage: the dynamic program against brute force
 * over every cut and every choice of options (12 layers, 4 stages), against
 * the integer program, and a case by hand; the size of Llama-3 405B.
 */
#include "cbc.h"
#include "mw_test.h"

#include "base/rand.h"
#include "planner/stage_split.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STAGES = 16 };

/* ---- brute force -----------------------------------------------------------
 */
struct brute {
    const struct mw_split_problem *p;
    double best;
    struct mw_split_stage stage[STAGES];
};

static int run_at(const struct mw_split_problem *p, int layer)
{
    int run = 0;

    while (layer >= p->run[run].n_layers) {
        layer -= p->run[run++].n_layers;
    }
    return run;
}

static void choose(struct brute *b, int layer, int n_layers, int stage)
{
    const struct mw_split_problem *p = b->p;
    struct mw_split_stage *s = &b->stage[stage];

    if (s->bytes > p->limit_bytes * (1 + 1e-12)) {
        return;
    }
    if (layer == n_layers) {
        int last = p->n_stages - 1;

        if (stage == last - 1 && p->may_end_bare) {
            b->stage[last] =
                (struct mw_split_stage){.time_s = p->extra_s[last]};
        }
        if (stage == last || (stage == last - 1 && p->may_end_bare &&
                              p->fixed_bytes[last] <= p->limit_bytes)) {
            b->best = fmin(b->best, mw_stage_split_value(p, b->stage));
        }
        return;
    }
    const struct mw_split_run *run = &p->run[run_at(p, layer)];

    for (int move = 0; move <= 1; move++) {
        bool is_first = s->n[0][0] < 0;

        if ((move == 1 && is_first) || (move == 0 && stage < 0) ||
            stage + move >= p->n_stages) {
            continue;
        }
        struct mw_split_stage saved = b->stage[stage + move];

        if (move == 1) {
            b->stage[stage + 1] =
                (struct mw_split_stage){.time_s = p->extra_s[stage + 1],
                                        .bytes = p->fixed_bytes[stage + 1]};
            b->stage[stage + 1].n[0][0] = -1; /* nothing yet */
        }
        struct mw_split_stage *to = &b->stage[stage + move], before = *to;

        for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
            *to = before;
            to->n[0][0] = 0;
            to->time_s += run->time_s[r];
            to->bytes += run->layer_bytes +
                         p->in_flight[stage + move] * run->held_bytes[r];
            choose(b, layer + 1, n_layers, stage + move);
        }
        *to = before;
        b->stage[stage + move] = saved;
    }
}

static double brute_force(const struct mw_split_problem *p)
{
    struct brute b = {.p = p, .best = HUGE_VAL};
    int n_layers = 0;

    for (int s = 0; s < p->n_runs; s++) {
        n_layers += p->run[s].n_layers;
    }
    b.stage[0].time_s = p->extra_s[0];
    b.stage[0].bytes = p->fixed_bytes[0];
    b.stage[0].n[0][0] = -1;
    choose(&b, 0, n_layers, 0);
    return b.best;
}

/* ---- problems --------------------------------------------------------------
 */
struct store {
    double extra_s[STAGES], fixed_bytes[STAGES], in_flight[STAGES];
};

static void random_problem(uint64_t seed, struct mw_split_problem *p,
                           struct store *s)
{
    *p = (struct mw_split_problem){
        .n_runs = 1 + (int)(mw_rand_u64(seed, 0, 0) % 2),
        .n_stages = 2 + (int)(mw_rand_u64(seed, 0, 1) % 3),
        .extra_s = s->extra_s,
        .fixed_bytes = s->fixed_bytes,
        .in_flight = s->in_flight,
        .limit_bytes = 60e9,
        .n_microbatches = seed % 3 == 0 ? 8 : 0,
        .transfer_s = 1e-3};
    for (int i = 0; i < p->n_runs; i++) {
        uint64_t k = (uint64_t)i;
        struct mw_split_run *run = &p->run[i];
        double t = 0.01 * (1 + mw_rand_unit(seed, 1, k));

        run->n_layers = 2 + (int)(mw_rand_u64(seed, 2, k) % 4);
        run->time_s[0] = t;
        run->time_s[1] = t * (1.02 + 0.1 * mw_rand_unit(seed, 3, k));
        run->time_s[2] = t * (1.25 + 0.1 * mw_rand_unit(seed, 4, k));
        run->held_bytes[0] = 4e9 * (0.5 + mw_rand_unit(seed, 5, k));
        run->held_bytes[1] = run->held_bytes[0] * 0.5;
        run->held_bytes[2] = run->held_bytes[0] * 0.1;
        run->layer_bytes = 5e9 * mw_rand_unit(seed, 6, k);
    }
    for (int i = 0; i < p->n_stages; i++) {
        uint64_t k = (uint64_t)i;

        s->extra_s[i] = i == 0 || i == p->n_stages - 1
                            ? 0.01 * mw_rand_unit(seed, 7, k)
                            : 0;
        s->fixed_bytes[i] = 10e9 * mw_rand_unit(seed, 8, k);
        s->in_flight[i] = p->n_stages - i;
    }
}

/* Multi-token prediction: a last run of one layer, dearer than others, that
 * may lie ahead of a head that is alone. */
static void add_mtp(uint64_t seed, struct mw_split_problem *p, struct store *s)
{
    struct mw_split_run *run = &p->run[p->n_runs];

    *run = p->run[p->n_runs - 1];
    run->n_layers = 1;
    for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
        run->time_s[r] *= 1 + mw_rand_unit(seed, 9, 0);
    }
    p->n_runs++;
    p->may_end_bare = true;
    s->extra_s[p->n_stages - 1] *= 1 + 3 * mw_rand_unit(seed, 10, 0);
}

static void check_stages(const struct mw_split_problem *p,
                         const struct mw_split_stage *stages)
{
    int taken[MW_SPLIT_RUNS_MAX] = {0};

    for (int i = 0; i < p->n_stages; i++) {
        double t = p->extra_s[i], bytes = p->fixed_bytes[i];
        int n = 0;

        for (int s = 0; s < p->n_runs; s++) {
            for (int r = 0; r < MW_SPLIT_OPTIONS; r++) {
                int count = stages[i].n[s][r];

                assert_true(count >= 0);
                /* Contiguous: a run begins when the one before is done. */
                assert_true(count == 0 || s == 0 ||
                            taken[s - 1] == p->run[s - 1].n_layers);
                taken[s] += count;
                n += count;
                t += count * p->run[s].time_s[r];
                bytes += count * (p->run[s].layer_bytes +
                                  p->in_flight[i] * p->run[s].held_bytes[r]);
            }
        }
        assert_true(n >= (i + 1 < p->n_stages || !p->may_end_bare));
        assert_true(bytes <= p->limit_bytes * (1 + 1e-9));
        mw_assert_near(t, stages[i].time_s, 1e-9, 0);
        mw_assert_near(bytes, stages[i].bytes, 1e-9, 0);
    }
    for (int s = 0; s < p->n_runs; s++) {
        assert_int_equal(taken[s], p->run[s].n_layers);
    }
}

static void test_equals_brute_force(void **state)
{
    (void)state;
    int n_none = 0, n_mixed = 0, n_ahead = 0, n_with = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct store store;
        struct mw_split_problem p;
        struct mw_split_stage stages[STAGES];
        struct mw_split_answer a;

        random_problem(seed, &p, &store);
        if (seed % 4 == 1) {
            add_mtp(seed, &p, &store);
        }
        double best = brute_force(&p);
        enum mw_status status = mw_stage_split_dp(&p, stages, &a, NULL);

        assert_int_equal(status, isinf(best) ? MW_ENO : MW_OK);
        if (isinf(best)) {
            n_none++;
            continue;
        }
        check_stages(&p, stages);
        mw_assert_near(a.value_s, best, 1e-9, 0);
        mw_assert_near(mw_stage_split_value(&p, stages), best, 1e-9, 0);
        if (p.may_end_bare) {
            const int *mtp = stages[p.n_stages - 1].n[p.n_runs - 1];

            n_with += mtp[0] + mtp[1] + mtp[2] == 1;
            n_ahead += mtp[0] + mtp[1] + mtp[2] == 0;
        }
        n_mixed += (stages[0].n[0][0] > 0) + (stages[0].n[0][1] > 0) +
                       (stages[0].n[0][2] > 0) >
                   1;
    }
    assert_in_range(n_none, 3, 150);
    assert_true(n_ahead > 3 && n_with > 3); /* it moves */
    assert_true(n_mixed > 5); /* options really differ within a stage */
}

/* The written program's value is in seconds. */
static void check_cbc(const char *lp, double value_s)
{
    double cbc = cbc_value(lp);

    if (!isnan(cbc)) {
        mw_assert_near(cbc, value_s, 1e-5, 0);
    }
}

static void test_ilp_agrees(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct store store;
        struct mw_split_problem p;
        struct mw_split_stage stages[STAGES];
        struct mw_split_answer dp, ilp;

        random_problem(seed, &p, &store);
        if (seed % 4 == 1) {
            add_mtp(seed, &p, &store);
        }
        enum mw_status status = mw_stage_split_dp(&p, stages, &dp, NULL);

        const char *lp = seed < 8 ? "split-cbc.lp" : NULL;

        assert_int_equal(mw_stage_split_ilp(&p, 0, lp, stages, &ilp, NULL),
                         status);
        if (status == MW_OK && lp) {
            check_cbc(lp, ilp.value_s);
        }
        if (status == MW_OK) {
            check_stages(&p, stages);
            assert_true(ilp.is_proved);
            mw_assert_near(ilp.value_s, dp.value_s, 1e-7, 0);
        }
    }
    remove("split-cbc.lp");
}

/* Two stages, four layers of 1 s (1.5 s recomputed) and 10 bytes held (1 when
 * recomputed); the first stage holds two micro-batches, 25 bytes at most.
 * 2 + 2 layers: the first stage has 40 bytes plain, 22 with one recomputed
 * (20 + 2): 2.5 s. 1 + 3: the second has 30 bytes plain, 21 with one
 * recomputed: 3.5 s. So 2 + 2, 2.5 s. */
static void test_by_hand(void **state)
{
    (void)state;
    const double zero[2] = {0, 0}, held[2] = {2, 1};
    struct mw_split_problem p = {.n_runs = 1,
                                 .run = {{4, {1, 1.5, 1.5}, {10, 1, 1}, 0}},
                                 .n_stages = 2,
                                 .extra_s = zero,
                                 .fixed_bytes = zero,
                                 .in_flight = held,
                                 .limit_bytes = 25};
    struct mw_split_stage stages[2];
    struct mw_split_answer a;

    assert_int_equal(mw_stage_split_dp(&p, stages, &a, NULL), MW_OK);
    mw_assert_near(a.value_s, 2.5, 1e-12, 0);
    assert_int_equal(stages[0].n[0][0], 1);
    assert_int_equal(stages[0].n[0][1] + stages[0].n[0][2], 1);
    assert_int_equal(stages[1].n[0][0], 2);
    p.limit_bytes = 2.5; /* 1 + 3 layers, all recomputed, need 3 */
    assert_int_equal(mw_stage_split_dp(&p, stages, &a, NULL), MW_ENO);
}

/* 126 layers, 16 stages, 3 options: the answer is legal, within a layer of
 * the bound total / stages, and what the program writes can be read. */
static void test_llama_405b_size(void **state)
{
    (void)state;
    struct store s;
    struct mw_split_problem p = {
        .n_runs = 1,
        .run = {{126, {1, 1.05, 1.3}, {1.6e9, 0.9e9, 0.1e9}, 2e9}},
        .n_stages = 16,
        .extra_s = s.extra_s,
        .fixed_bytes = s.fixed_bytes,
        .in_flight = s.in_flight,
        .limit_bytes = 74e9};
    struct mw_split_stage stages[16];
    struct mw_split_answer a, ilp;
    double total = 0;

    for (int i = 0; i < 16; i++) {
        s.extra_s[i] = i == 15 ? 1.5 : i == 0 ? 0.2 : 0;
        s.fixed_bytes[i] = 2e9;
        s.in_flight[i] = 16 - i;
    }
    for (p.n_microbatches = 0; p.n_microbatches <= 64; p.n_microbatches += 64) {
        assert_int_equal(mw_stage_split_dp(&p, stages, &a, NULL), MW_OK);
        check_stages(&p, stages);
        mw_assert_near(mw_stage_split_value(&p, stages), a.value_s, 1e-9, 0);
    }
    p.n_microbatches = 0;
    mw_stage_split_dp(&p, stages, &a, NULL);
    for (int i = 0; i < 16; i++) {
        total += stages[i].time_s;
    }
    assert_true(a.value_s >= total / 16 && a.value_s <= total / 16 + 1.3);
    /* A time limit: bound and gap come with the answer, or a clear failure. */
    struct mw_err err = {0};
    enum mw_status status =
        mw_stage_split_ilp(&p, 0.5, "split.lp", stages, &ilp, &err);

    if (status == MW_OK) {
        assert_true(ilp.bound_s <= a.value_s * (1 + 1e-9));
        assert_true(ilp.value_s >= a.value_s * (1 - 1e-9));
        mw_assert_near(ilp.gap, ilp.value_s / ilp.bound_s - 1, 1e-12, 1e-12);
    } else {
        assert_int_equal(status, MW_EBACKEND);
        assert_non_null(strstr(err.text, "the bound is"));
    }
    FILE *f = fopen("split.lp", "r");

    assert_non_null(f);
    fclose(f);
    remove("split.lp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_equals_brute_force),
        cmocka_unit_test(test_ilp_agrees),
        cmocka_unit_test(test_llama_405b_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
