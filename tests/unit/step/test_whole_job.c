/*
 * Whole jobs against published rates and closed forms: mean times between
 * failures of two clusters (Kokolis et al., HPCA 2025) and of Llama 3; Young's
 * and Daly's intervals; the simulation against Daly's expected time.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/step/whole_job.h"

#include <math.h>

/* 2048 nodes, a million steps of 1 s, a checkpoint of 10 s. */
static struct mw_job_spec big_job(void)
{
    return (struct mw_job_spec){.tokens = 1e12,
                                .tokens_per_step = 1e6,
                                .step_time_s = 1,
                                .n_nodes = 2048,
                                .checkpoint_bytes = 1e13,
                                .storage_Bps = 1e12,
                                .node_failures_per_day = 3.79e-3,
                                .restart_s = 600,
                                .repair_s = 86400,
                                .seed = 1234};
}

static double mtbf_hours(int nodes, double rate)
{
    struct mw_job_spec s = big_job();
    struct mw_job j;

    s.n_nodes = nodes;
    s.node_failures_per_day = rate;
    mw_job_predict(&s, &j);
    return j.mtbf_s / 3600;
}

static void failures_of_known_clusters(void **state)
{
    (void)state;
    mw_assert_near(mtbf_hours(2048, 6.50e-3), 1.80, .01, 0);
    mw_assert_near(mtbf_hours(16384, 6.50e-3), .225, .01, 0);
    mw_assert_near(mtbf_hours(2048, 3.79e-3), 3.09, .01, 0);
}

/* M = 3.09 h: intervals of 472, 817, 1156 and 1635 s for checkpoints of 10, 30,
 * 60 and 120 s, and 4.2, 7.3, 10.4, 14.7 % lost before restarts (sqrt(2 d / M)
 * to first order). */
static void intervals(void **state)
{
    (void)state;
    const double block_s[] = {10, 30, 60, 120};
    const double young_s[] = {472, 817, 1156, 1635};
    const double lost[] = {.042, .073, .104, .147};
    double m = 3.09 * 3600;

    for (int i = 0; i < 4; i++) {
        struct mw_job_spec s = big_job();
        struct mw_job j;

        mw_assert_near(mw_job_young_s(block_s[i], m), young_s[i], 2e-3, 0);
        s.checkpoint_bytes = block_s[i] * s.storage_Bps;
        s.restart_s = 0;
        mw_job_predict(&s, &j);
        mw_assert_near(block_s[i] / j.young_s + j.young_s / (2 * m), lost[i],
                       .01, 0);
        /* the next order adds a little to what is lost over what is done */
        assert_true(1 / j.goodput - 1 > lost[i]);
        mw_assert_near(1 / j.goodput - 1, lost[i], .1, 0);
        assert_true(j.daly_s < j.young_s);
    }
    assert_true(mw_job_daly_s(10, 5) == 5);
}

/* Daly's interval is the best one: no other has a shorter expected time. */
static void daly_is_best(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job best, other;

    mw_job_predict(&s, &best);
    for (double f = .25; f <= 4; f *= 1.19) {
        s.interval_s = best.daly_s * f;
        mw_job_predict(&s, &other);
        assert_true(other.wall_s >= best.wall_s * (1 - 1e-5));
    }
}

static void simulation_meets_the_formula(void **state)
{
    (void)state;
    const double block_s[] = {2, 30, 300};
    const double restart_s[] = {0, 600, 3600};

    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            struct mw_job_spec s = big_job();
            struct mw_job j;

            s.checkpoint_bytes = block_s[i] * s.storage_Bps;
            s.restart_s = restart_s[k];
            mw_job_predict(&s, &j);
            mw_assert_near(j.simulated_goodput, j.goodput, .01, 0);
            mw_assert_near(j.productive_s + j.saving_s + j.lost_s + j.restart_s,
                           j.wall_s, 1e-9, 0);
            assert_true(j.wall_p10_s < j.wall_s && j.wall_s < j.wall_p90_s);
        }
    }
}

/* What is expected, and nothing that only a simulation says. */
static void expected_alone(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job whole, alone;

    mw_job_predict(&s, &whole);
    s.expected_only = true;
    mw_job_predict(&s, &alone);
    mw_assert_near(alone.wall_s, whole.wall_s, 0, 0);
    mw_assert_near(alone.goodput, whole.goodput, 0, 0);
    assert_int_equal(alone.spares, whole.spares);
    assert_true(whole.simulated_goodput > 0 && whole.wall_p90_s > 0);
    assert_true(alone.simulated_goodput == 0 && alone.wall_p90_s == 0);
}

static void without_failures(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job j;

    s.node_failures_per_day = 0;
    mw_job_predict(&s, &j);
    mw_assert_near(j.wall_s, 1e6 + 10, 1e-12, 0);
    assert_int_equal(j.spares, 0);
    assert_true(isinf(j.mtbf_s));
    s.interval_s = 1000;
    mw_job_predict(&s, &j);
    mw_assert_near(j.wall_s, 1e6 + 1000 * 10, 1e-12, 0);
}

/* 7.76 nodes in repair on average: P(X <= 14) = 0.9864, P(X <= 15) = 0.9937
 * for a Poisson number of that mean. */
static void spares(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job j;

    mw_job_predict(&s, &j);
    assert_int_equal(j.spares, 15);
}

/* B(1) = a / (1 + a), B(2) = a^2 / (2 + 2 a + a^2); 20 lines at a load of 15
 * are all busy 4.6 % of the time (tables of Erlang's B). */
static void erlang(void **state)
{
    (void)state;
    mw_assert_near(mw_erlang_b(0, 3), 1, 0, 0);
    mw_assert_near(mw_erlang_b(1, 3), 3. / 4, 1e-15, 0);
    mw_assert_near(mw_erlang_b(2, 3), 9. / 17, 1e-15, 0);
    mw_assert_near(mw_erlang_b(20, 15), .0456, 0, 5e-5);
}

/* Nodes in repair, failure by failure: out[0] is the time that the job runs,
 * out[1] the time that it waits for one of more than s to come back. */
static void repair_by_hand(int s, double load, bool is_fixed, double out[2])
{
    double back[64]; /* when the nodes in repair are, in repairs */
    double now = 0;
    int n = 0;

    out[0] = out[1] = 0;
    for (uint64_t i = 0; i < 60000; i++) {
        double up = -log(1 - mw_rand_unit(5, 1, i)) / load;
        double end = now + up;

        out[0] += up;
        for (int k = 0; k < n;) {
            if (back[k] > end) {
                k++;
            } else {
                back[k] = back[--n];
            }
        }
        now = end;
        back[n++] = now + (is_fixed ? 1 : -log(1 - mw_rand_unit(5, 2, i)));
        if (n > s) {
            int first = 0;

            for (int k = 1; k < n; k++) {
                first = back[k] < back[first] ? k : first;
            }
            out[1] += back[first] - now;
            now = back[first];
            back[first] = back[--n];
        }
    }
}

/* The share of waiting is Erlang's, whatever repairs are distributed like, and
 * the job is that much longer; with nodes enough it is as it was. */
static void waits_for_nodes(void **state)
{
    (void)state;
    struct mw_job_spec spec = big_job();
    struct mw_job bare, j;
    double load = 2048 * 3.79e-3; /* repairs take a day */

    mw_job_predict(&spec, &bare);
    spec.counts_spares = true;
    for (spec.n_spares = 0; spec.n_spares <= 12; spec.n_spares += 4) {
        mw_job_predict(&spec, &j);
        for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
            double t[2];

            repair_by_hand(spec.n_spares, load, is_fixed > 0, t);
            mw_assert_near(j.waiting_s / j.wall_s, t[1] / (t[0] + t[1]), .03,
                           .002);
        }
        mw_assert_near(j.wall_s - j.waiting_s, bare.wall_s, 1e-12, 0);
        mw_assert_near(j.goodput, j.productive_s / j.wall_s, 1e-12, 0);
        mw_assert_near(j.failures, bare.failures, 0, 0);
    }
    spec.n_spares = 60;
    mw_job_predict(&spec, &j);
    mw_assert_near(j.wall_s, bare.wall_s, 1e-12, 0);
}

/* 2048 nodes of 7.752 kW, 60 % of a million seconds, without failures. */
static void least_energy(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job j;

    s.node_failures_per_day = 0;
    mw_job_predict(&s, &j);
    mw_assert_near(mw_job_least_energy_J(&s, &j, 7752, 0.6),
                   2048 * 7752e6 * 0.6, 1e-12, 0);
    s.node_failures_per_day = 3.79e-3;
    mw_job_predict(&s, &j);
    assert_true(j.lost_s > 0);
    mw_assert_near(mw_job_least_energy_J(&s, &j, 1, 1),
                   2048 * (j.wall_s - j.saving_s - j.restart_s), 1e-9, 0);
}

static void hopeless(void **state)
{
    (void)state;
    struct mw_job_spec s = big_job();
    struct mw_job j;

    s.node_failures_per_day = 10;
    mw_job_predict(&s, &j);
    assert_true(isinf(j.wall_s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_of_known_clusters),
        cmocka_unit_test(intervals),
        cmocka_unit_test(erlang),
        cmocka_unit_test(waits_for_nodes),
        cmocka_unit_test(daly_is_best),
        cmocka_unit_test(simulation_meets_the_formula),
        cmocka_unit_test(expected_alone),
        cmocka_unit_test(without_failures),
        cmocka_unit_test(spares),
        cmocka_unit_test(least_energy),
        cmocka_unit_test(hopeless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
