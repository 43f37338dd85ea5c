/*
 * Curves of collectives: how close they are to a model that is known in closed
 * form, what happens at their ends, and from several threads.
 */
#include "mw_test.h"

#include "sim/cost/cost.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* latency + bytes / bandwidth, both by the shape; counts its calls. */
struct model {
    int calls;
};
static const double LATENCY_S = 20e-6, BW_BPS = 50e9;

static double exact_s(double bytes, const struct mw_group *g)
{
    return g->n_nodes * LATENCY_S + bytes * g->nic_sharers / BW_BPS;
}

static bool ask(void *owner, enum mw_coll_op op, double bytes,
                const struct mw_group *group, struct mw_coll_point *out)
{
    struct model *m = owner;

    m->calls++;
    if (op == MW_BROADCAST) {
        return false;
    }
    *out = (struct mw_coll_point){exact_s(bytes, group), "a test", "by hand",
                                  bytes < 64 << 20 ? 2 : 16};
    return true;
}

static void test_close_to_the_model(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct mw_group g = {16, 2, 8, 3};
    double worst = 0;

    (void)state;
    for (double bytes = 1; bytes < 1e13; bytes *= 1.07) {
        double s = 0;

        assert_true(mw_coll_curves_time(c, MW_ALL_REDUCE, bytes, &g, &s));
        worst = fmax(worst, fabs(s / exact_s(bytes, &g) - 1));
    }
    /* between 2^k and 2^(k+1/2) the chord of the log-log curve is at most
     * 0.4 % above it: (1 + 2^(1/4))^2 / ((1 + 1) (1 + 2^(1/2))) */
    double chord = (1 + pow(2, .25)) * (1 + pow(2, .25)) / 2 / (1 + sqrt(2));

    assert_true(worst < 1 / chord - 1 + 1e-9);
    assert_true(worst > 1e-4);
    /* each point was asked for once: 44 octaves, and once to try the shape */
    assert_true(m.calls <= 2 * 44 + 2);
    /* those of a large message; none where the model cannot say */
    assert_int_equal(mw_coll_curves_channels(c, MW_ALL_REDUCE, &g), 16);
    assert_int_equal(mw_coll_curves_channels(c, MW_BROADCAST, &g), 0);
    mw_coll_curves_free(c);
}

static void test_points_are_the_model(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct mw_group a = {16, 2, 8, 3}, b = {16, 4, 4, 3};

    (void)state;
    for (int k = 0; k < 47; k++) {
        double s = 0;

        mw_coll_curves_time(c, MW_ALL_GATHER, exp2(k), &a, &s);
        mw_assert_near(s, exact_s(exp2(k), &a), 1e-12, 0);
        mw_coll_curves_time(c, MW_ALL_GATHER, exp2(k), &b, &s);
        mw_assert_near(s, exact_s(exp2(k), &b), 1e-12, 0);
    }
    mw_coll_curves_free(c);
}

static void test_ends(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct mw_group g = {8, 1, 8, 1};
    double s = 0, twice_s = 0;

    (void)state;
    /* half a byte costs the latency; beyond the last point bandwidth rules */
    assert_true(mw_coll_curves_time(c, MW_REDUCE, .5, &g, &s));
    mw_assert_near(s, LATENCY_S, 1e-3, 0);
    mw_coll_curves_time(c, MW_REDUCE, exp2(50), &g, &s);
    mw_coll_curves_time(c, MW_REDUCE, exp2(51), &g, &twice_s);
    mw_assert_near(twice_s, 2 * s, 1e-6, 0);
    /* what the model does not know stays unknown, and is asked once */
    int before = m.calls;

    assert_false(mw_coll_curves_time(c, MW_BROADCAST, 1e6, &g, &s));
    assert_false(mw_coll_curves_time(c, MW_BROADCAST, 1e9, &g, &s));
    assert_int_equal(m.calls, before + 1);
    mw_coll_curves_free(c);
}

struct job {
    struct mw_coll_curves *curves;
    double sum_s;
};

static void *sum_up(void *arg)
{
    struct job *job = arg;

    for (int n = 2; n <= 64; n++) {
        for (double bytes = 10; bytes < 1e10; bytes *= 3) {
            struct mw_group g = {n, 1 + n % 5, n, 1 + n % 3};
            double s = 0;

            mw_coll_curves_time(job->curves, MW_ALL_TO_ALL, bytes, &g, &s);
            job->sum_s += s;
        }
    }
    return NULL;
}

static void test_threads_agree(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct job job[4];
    pthread_t thread[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        job[i] = (struct job){c, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, sum_up, &job[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    for (int i = 1; i < 4; i++) {
        mw_assert_near(job[i].sum_s, job[0].sum_s, 0, 0);
    }
    mw_coll_curves_free(c);
}

/* A what-if of links and latencies equals the model with them. */
static void test_what_if(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct mw_system box = {.slug = "no-such-system"};
    struct mw_hwdb *db = NULL;
    struct mw_group inside = {8, 1, 8, 1}, across = {16, 2, 8, 1};

    (void)state;
    assert_int_equal(mw_hwdb_load(NULL, &db, NULL), MW_OK);
    struct mw_cost_ctx ctx = {.db = db,
                              .system = &box,
                              .domain_gpus = 8,
                              .curves = c,
                              .link_speed = 2,
                              .net_speed = 4,
                              .latency_speed = 5};

    for (double bytes = 1e3; bytes < 1e10; bytes *= 10) {
        struct mw_cost cost =
            mw_cost_coll(&ctx, MW_ALL_REDUCE, bytes, &inside, NULL);

        assert_int_equal(cost.rung, MW_RUNG_COLL_MODEL);
        mw_assert_near(cost.time_s, LATENCY_S / 5 + bytes / BW_BPS / 2, 4e-3,
                       0);
        cost = mw_cost_coll(&ctx, MW_ALL_REDUCE, bytes, &across, NULL);
        mw_assert_near(cost.time_s, 2 * LATENCY_S / 5 + bytes / BW_BPS / 4,
                       4e-3, 0);
    }
    mw_coll_curves_free(c);
    mw_hwdb_free(db);
}

static void test_explained(void **state)
{
    struct model m = {0};
    struct mw_coll_curves *c = mw_coll_curves_new(ask, &m);
    struct mw_group g = {8, 1, 8, 1};
    struct mw_coll_point p = {.how = ""};

    (void)state;
    assert_true(mw_coll_curves_ask(c, MW_ALL_REDUCE, 3e6, &g, &p));
    mw_assert_near(p.time_s, exact_s(3e6, &g), 0, 0);
    assert_string_equal(p.how, "by hand");
    assert_false(mw_coll_curves_ask(c, MW_BROADCAST, 3e6, &g, &p));
    mw_coll_curves_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_to_the_model),
        cmocka_unit_test(test_points_are_the_model),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_what_if),
        cmocka_unit_test(test_explained)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
