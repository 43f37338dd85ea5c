/*
 * Collectives as flows: alone they take the time of the fit; half the NIC
 * speed doubles a NIC-bound ring; two on the same rails take twice as long,
 * on disjoint ones they do not meet; oversubscription costs what it should.
 */
#include "mw_test.h"

#include "sim/coll/event.h"

#include <string.h>

static struct mw_hwdb *db;

static int setup(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    return mw_hwdb_load(NULL, &db, &err) == MW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mw_hwdb_free(db);
    return 0;
}

static struct mw_coll_world *world_of(const char *system, const char *env)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_nccl_opts o;
    struct mw_coll_world *w = NULL;
    mw_nccl_opts_default(&o);
    if (env) {
        assert_int_equal(mw_nccl_opts_env(&o, env, &err), MW_OK);
    }
    if (mw_coll_world_new(db, system, &o, &w, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return w;
}

static struct mw_topology *cluster(const char *text)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_topology_spec spec;
    struct mw_topology *t = NULL;
    assert_int_equal(mw_topology_parse(db, text, &spec, &err), MW_OK);
    assert_int_equal(mw_topology_new(&spec, &t, &err), MW_OK);
    assert_null(mw_topology_check(t));
    return t;
}

static double run(struct mw_coll_world *w, const struct mw_topology *t,
                  const struct mw_coll_job *jobs, size_t n, size_t which)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_job_time out[4];
    if (mw_coll_event_run(w, t, jobs, n, out, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return out[which].end_s;
}

static void alone_event_equals_fit(void **state)
{
    (void)state;
    static const enum mw_coll_op ops[] = {MW_ALL_REDUCE,     MW_ALL_GATHER,
                                          MW_REDUCE_SCATTER, MW_ALL_TO_ALL,
                                          MW_BROADCAST,      MW_SEND_RECV};
    static const char *const systems[] = {"dgx-h100",   "dgx-a100",
                                          "dgx-b200",   "gb200-nvl72",
                                          "alps-gh200", "mi355x-node"};
    for (size_t s = 0; s < 6; s++) {
        struct mw_coll_world *w = world_of(systems[s], NULL);
        int ppn = mw_coll_world_system(w)->gpus_per_node;
        for (size_t o = 0; o < 6; o++) {
            for (int nodes = 8 / ppn > 1 ? 8 / ppn : 1; nodes * ppn <= 128;
                 nodes *= 16) {
                struct mw_coll_query q = {
                    .op = ops[o], .n_nodes = nodes, .ranks_per_node = ppn};
                for (q.bytes = 1 << 24; q.bytes < 4e9; q.bytes *= 16) {
                    struct mw_err err = {.status = MW_OK};
                    struct mw_coll_answer fit, event;
                    assert_int_equal(
                        mw_coll_predict(w, MW_COLL_FIT, &q, &fit, &err), MW_OK);
                    assert_int_equal(
                        mw_coll_predict(w, MW_COLL_EVENT, &q, &event, &err),
                        MW_OK);
                    mw_assert_near(event.time_s, fit.time_s, .02, 0);
                }
            }
        }
        mw_coll_world_free(w);
    }
}

static void half_the_nic_speed_doubles_the_time(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("dgx-h100", "NCCL_ALGO=ring");
    struct mw_topology *t = cluster("dgx-h100 x 4");
    struct mw_coll_job job = {.query = {.op = MW_ALL_REDUCE,
                                        .bytes = 4294967296.0,
                                        .n_nodes = 4,
                                        .ranks_per_node = 8}};
    double full = run(w, t, &job, 1, 0);
    mw_topology_scale_nics(t, .5);
    double half = run(w, t, &job, 1, 0);
    mw_assert_near(half, 2 * full, .02, 0);
    mw_topology_free(t);
    mw_coll_world_free(w);
}

static void sharing_rails_costs_twice_disjoint_ones_nothing(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("dgx-h100", "NCCL_ALGO=ring");
    struct mw_topology *t = cluster("dgx-h100 x 8, rail");
    struct mw_coll_query q = {.op = MW_ALL_REDUCE,
                              .bytes = 4294967296.0,
                              .n_nodes = 4,
                              .ranks_per_node = 8};
    struct mw_coll_job same[2] = {{.query = q}, {.query = q}};
    struct mw_coll_job apart[2] = {{.query = q}, {.query = q, .first_node = 4}};
    double alone = run(w, t, same, 1, 0);
    mw_assert_near(run(w, t, same, 2, 0), 2 * alone, .02, 0);
    mw_assert_near(run(w, t, same, 2, 1), 2 * alone, .02, 0);
    mw_assert_near(run(w, t, apart, 2, 0), alone, 1e-9, 0);
    mw_assert_near(run(w, t, apart, 2, 1), alone, 1e-9, 0);
    mw_topology_free(t);
    mw_coll_world_free(w);
}

/* A ring over 64 nodes of two rail groups of 32 crosses between them once
 * each way: an oversubscription of 2 leaves it alone, but an all-to-all sends
 * half of its data across and takes longer. */
static void oversubscription_hits_what_crosses(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("dgx-h100", NULL);
    struct mw_topology *flat = cluster("dgx-h100 x 16, fat-tree, leaf 8");
    struct mw_topology *thin =
        cluster("dgx-h100 x 16, fat-tree, leaf 8, oversub 4");
    struct mw_coll_job ring = {.query = {.op = MW_ALL_GATHER,
                                         .bytes = 1073741824.0,
                                         .n_nodes = 16,
                                         .ranks_per_node = 8}};
    struct mw_coll_job a2a = ring;
    a2a.query.op = MW_ALL_TO_ALL;
    mw_assert_near(run(w, thin, &ring, 1, 0), run(w, flat, &ring, 1, 0), 1e-6,
                   0);
    assert_true(run(w, thin, &a2a, 1, 0) > 1.5 * run(w, flat, &a2a, 1, 0));
    mw_topology_free(flat);
    mw_topology_free(thin);
    mw_coll_world_free(w);
}

static void congestion_is_off_until_asked(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("gcp-a3-ultra", NULL);
    struct mw_topology *t = cluster("gcp-a3-ultra x 8, rail, leaf 4");
    struct mw_coll_job a2a = {.query = {.op = MW_ALL_TO_ALL,
                                        .bytes = 1073741824.0,
                                        .n_nodes = 8,
                                        .ranks_per_node = 8}};
    double plain = run(w, t, &a2a, 1, 0);
    struct mw_congestion c = {.incast = .02};
    mw_coll_world_set_congestion(w, &c);
    double incast = run(w, t, &a2a, 1, 0);
    assert_true(incast > plain);
    c = (struct mw_congestion){.alltoall_fabric = .5};
    mw_coll_world_set_congestion(w, &c);
    assert_true(run(w, t, &a2a, 1, 0) > plain);
    mw_topology_free(t);
    mw_coll_world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_event_equals_fit),
        cmocka_unit_test(half_the_nic_speed_doubles_the_time),
        cmocka_unit_test(sharing_rails_costs_twice_disjoint_ones_nothing),
        cmocka_unit_test(oversubscription_hits_what_crosses),
        cmocka_unit_test(congestion_is_off_until_asked)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
