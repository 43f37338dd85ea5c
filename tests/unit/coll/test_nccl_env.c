/*
 * Settings of the network: NICs by name, the host's TCP, distance of GPUDirect
 * RDMA; what they change of a group's bandwidth, and wrong values.
 */
#include "mw_test.h"

#include "sim/coll/coll_fit.h"
#include "sim/coll/coll_int.h"

#include <string.h>

static struct mw_hwdb *db;

static struct mw_coll_world *world_of(const char *system, const char *env)
{
    struct mw_coll_world *w = NULL;
    struct mw_err err = {.status = MW_OK};
    struct mw_nccl_opts o;
    mw_nccl_opts_default(&o);
    if ((*env && mw_nccl_opts_env(&o, env, &err) != MW_OK) ||
        mw_coll_world_new(db, system, &o, &w, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    return w;
}

static double time_of(const char *env, enum mw_coll_model model,
                      enum mw_coll_op op)
{
    struct mw_coll_world *w = world_of("dgx-h100", env);
    struct mw_coll_query q = {
        .op = op, .bytes = 1 << 30, .n_nodes = 4, .ranks_per_node = 8};
    struct mw_coll_answer a;
    struct mw_err err = {.status = MW_OK};
    if (mw_coll_predict(w, model, &q, &a, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    mw_coll_world_free(w);
    return a.time_s;
}

static void nics_are_named(void **state)
{
    static const struct {
        const char *env;
        uint64_t mask;
    } cases[] = {{"NCCL_IB_HCA=mlx5", 0},
                 {"NCCL_IB_HCA==mlx5_1,mlx5_3:1", 10},
                 {"NCCL_IB_HCA=^=mlx5_0", ~(uint64_t)1},
                 {"NCCL_IB_HCA=ib2", 4 | (uint64_t)0x3ff << 20},
                 {"NCCL_IB_HCA=mlx5_2:1", 4 | (uint64_t)0x3ff << 20}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        struct mw_nccl_opts o;
        mw_nccl_opts_default(&o);
        assert_int_equal(mw_nccl_opts_env(&o, cases[i].env, &err), MW_OK);
        assert_true(o.nic_mask == cases[i].mask);
    }
}

static void wrong_values_are_named(void **state)
{
    static const char *const wrong[][2] = {
        {"NCCL_IB_HCA=", "leaves no NIC"},
        {"NCCL_IB_HCA=^mlx5", "leaves no NIC"},
        {"NCCL_NET=EFA", "IB or Socket"},
        {"NCCL_NET_GDR_LEVEL=NVL", "LOC, PIX"},
        {"NCCL_IB_DISABLE=yes", "NCCL_IB_DISABLE must be an integer"},
        {"FI_HMEM_CUDA_USE_GDRCOPY=2", "from 0 to 1"},
        {"NCCL_IB_QPS=2", "known: NCCL_ALGO"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        struct mw_nccl_opts o;
        mw_nccl_opts_default(&o);
        assert_int_equal(mw_nccl_opts_env(&o, wrong[i][0], &err), MW_EUSAGE);
        if (!strstr(err.text, wrong[i][1])) {
            fail_msg("'%s' lacks '%s'", err.text, wrong[i][1]);
        }
    }
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    struct mw_nccl_opts o;
    mw_nccl_opts_default(&o);
    assert_int_equal(mw_nccl_opts_env(&o, "NCCL_IB_HCA==mlx5_40", &err), MW_OK);
    assert_int_equal(mw_coll_world_new(db, "dgx-h100", &o, &w, &err),
                     MW_EINPUT);
    assert_non_null(strstr(err.text, "none of the 8 NICs"));
}

/* All eight are all of them; with four of eight, large messages between nodes
 * take twice as long, whoever computes them, and one node is as before. */
static void half_the_nics_halve_the_bandwidth(void **state)
{
    static const enum mw_coll_model models[] = {MW_COLL_NCCL, MW_COLL_EVENT};
    const char *half = "NCCL_IB_HCA==mlx5_0,mlx5_2,mlx5_4,mlx5_6";
    (void)state;
    for (int i = 0; i < 2; i++) {
        double all_s = time_of("", models[i], MW_ALL_REDUCE);
        double half_s = time_of(half, models[i], MW_ALL_REDUCE);
        assert_true(time_of("NCCL_IB_HCA=mlx5", models[i], MW_ALL_REDUCE) ==
                    all_s);
        if (half_s < 1.6 * all_s || half_s > 2.4 * all_s) {
            fail_msg("%g s with half the NICs, %g with all", half_s, all_s);
        }
    }
    double all_s = time_of("", MW_COLL_NCCL, MW_ALL_TO_ALL);
    mw_assert_near(time_of(half, MW_COLL_NCCL, MW_ALL_TO_ALL), 2 * all_s, .02,
                   0);
}

/* TCP is another class of network, with another latency and no GPUDirect. */
static void tcp_takes_the_place_of_ib(void **state)
{
    (void)state;
    struct mw_coll_world *w = world_of("dgx-h100", "NCCL_IB_DISABLE=1");
    assert_string_equal(w->system->inter_class, "tcp");
    assert_true((double)w->plugin.latency_us > 0);
    mw_coll_world_free(w);
    double ib_s = time_of("", MW_COLL_FIT, MW_ALL_REDUCE);
    assert_true(time_of("NCCL_NET=Socket", MW_COLL_FIT, MW_ALL_REDUCE) >
                2 * ib_s);
    mw_assert_near(time_of("NCCL_NET=IB", MW_COLL_FIT, MW_ALL_REDUCE), ib_s,
                   1e-12, 0);
}

/* A NIC beside its GPU (PIX) that may not read its memory: through the CPU,
 * and the switch's uplink carries everything twice. */
static void without_gpudirect_the_host_is_in_the_way(void **state)
{
    (void)state;
    double near_s = time_of("", MW_COLL_NCCL, MW_ALL_REDUCE);
    double far_s =
        time_of("NCCL_NET_GDR_LEVEL=LOC", MW_COLL_NCCL, MW_ALL_REDUCE);
    assert_true(far_s > 1.2 * near_s);
    mw_assert_near(
        time_of("NCCL_NET_GDR_LEVEL=SYS", MW_COLL_NCCL, MW_ALL_REDUCE), near_s,
        1e-12, 0);
}

int main(void)
{
    struct mw_err err = {.status = MW_OK};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nics_are_named),
        cmocka_unit_test(wrong_values_are_named),
        cmocka_unit_test(half_the_nics_halve_the_bandwidth),
        cmocka_unit_test(tcp_takes_the_place_of_ib),
        cmocka_unit_test(without_gpudirect_the_host_is_in_the_way)};
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    mw_hwdb_free(db);
    return rc;
}
