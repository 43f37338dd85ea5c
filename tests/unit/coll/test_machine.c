/*
 * Machines written from the database: the same graphs as the descriptions that
 * NCCL itself was run on, and what the builder must not get wrong.
 */
#include "mw_test.h"

#include "hwdb/hwdb.h"
#include "sim/coll/coll.h"
#include "sim/coll/machine.h"

#include <string.h>

static struct mw_hwdb *db;

static int setup(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    if (mw_hwdb_load(NULL, &db, &err) != MW_OK) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mw_hwdb_free(db);
    return 0;
}

static void same_graph(const struct mw_nccl_graph *a,
                       const struct mw_nccl_graph *b)
{
    assert_int_equal(a->pattern, b->pattern);
    assert_int_equal(a->n_channels, b->n_channels);
    assert_int_equal(a->cross_nic, b->cross_nic);
    mw_assert_near((double)a->bw_intra, (double)b->bw_intra, 0, 0);
    mw_assert_near((double)a->bw_inter, (double)b->bw_inter, 0, 0);
    assert_int_equal(a->type_intra, b->type_intra);
    assert_int_equal(a->type_inter, b->type_inter);
}

static void from_database(const char *slug, bool multi,
                          const struct mw_nccl_opts *opts,
                          struct mw_nccl_graphs *out)
{
    struct mw_err err = {.status = MW_OK};
    const struct mw_system *sys = NULL;
    struct mw_machine_shape shape;
    struct mw_str xml = {NULL, 0, 0};
    struct mw_nccl_machine *m = NULL;
    assert_int_equal(mw_hwdb_system(db, slug, &sys, &err), MW_OK);
    assert_int_equal(mw_machine_describe(db, sys, &shape, &err), MW_OK);
    mw_machine_xml(&shape, &(struct mw_machine_part){shape.n_gpus, 1, 1, false},
                   &xml);
    if (mw_nccl_machine_parse(slug, xml.s, xml.n, &m, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(mw_nccl_search(m, multi, opts, out, &err), MW_OK);
    mw_nccl_machine_free(m);
    mw_str_release(&xml);
}

static void graphs_equal_those_of_the_descriptions(void **state)
{
    (void)state;
    static const struct {
        const char *slug, *file;
    } pairs[] = {{"dgx-h100", "dgxh100"},       {"dgx-a100", "dgxa100"},
                 {"dgx-1v", "dgx1v"},           {"dgx-2", "dgx2"},
                 {"dgx-b200", "dgxb200"},       {"aws-p4d", "p4d"},
                 {"alps-gh200", "alps_gh200x4"}};
    struct mw_nccl_graphs *ours = mw_calloc(2, sizeof *ours);
    struct mw_nccl_graphs *theirs = ours + 1;
    struct mw_nccl_opts opts;
    mw_nccl_opts_default(&opts);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char path[512];
        struct mw_err err = {.status = MW_OK};
        struct mw_nccl_machine *m = NULL;
        snprintf(path, sizeof path, "%s/topologies/%s.xml", MW_NCCL_ORACLES,
                 pairs[i].file);
        assert_int_equal(mw_nccl_machine_load(path, &m, &err), MW_OK);
        for (int multi = 0; multi < 2; multi++) {
            assert_int_equal(mw_nccl_search(m, multi, &opts, theirs, &err),
                             MW_OK);
            from_database(pairs[i].slug, multi, &opts, ours);
            same_graph(&ours->ring, &theirs->ring);
            same_graph(&ours->tree, &theirs->tree);
            same_graph(&ours->nvls, &theirs->nvls);
        }
        mw_nccl_machine_free(m);
    }
    mw_free(ours);
}

/* A rack of 18 trays is one node of 72 GPUs to NCCL; 36 trays are two. */
static void racks_are_nodes(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    assert_int_equal(mw_coll_world_new(db, "gb200-nvl72", NULL, &w, &err),
                     MW_OK);
    struct mw_coll_query q = {.op = MW_ALL_REDUCE,
                              .bytes = 1 << 20,
                              .n_nodes = 2,
                              .ranks_per_node = 4};
    const struct mw_nccl_comm *comm = NULL;
    assert_int_equal(mw_coll_comm(w, &q, &comm, NULL, &err), MW_OK);
    assert_int_equal(comm->n_nodes, 1);
    assert_int_equal(comm->n_ranks, 8);
    q.domain_trays = 1;
    assert_int_equal(mw_coll_comm(w, &q, &comm, NULL, &err), MW_OK);
    assert_int_equal(comm->n_nodes, 2);
    mw_coll_world_free(w);
}

/*
 * Four nodes of four V100 on Omni-Path, without GPUDirect: NCCL 2.10.3 reached
 * 84.7 Gb/s (10.6 GB/s) bus bandwidth with 4 GB (BigScience,
 * experiments/bandwidth/all_reduce_bench-32gb-4n.txt). Groups of one GPU a node
 * share what the two uplinks leave: 12 GB/s / 2 each, less than four NICs have.
 */
static void messages_through_the_host_cross_uplinks_twice(void **state)
{
    (void)state;
    const double measured_Bps = 84.7e9 / 8, uplinks_Bps = 2 * 12e9 / 2;
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer all, one;
    struct mw_coll_query q = {
        .op = MW_ALL_REDUCE, .bytes = 4e9, .n_nodes = 4, .ranks_per_node = 4};

    assert_int_equal(mw_coll_world_new(db, "jean-zay-v100", NULL, &w, &err),
                     MW_OK);
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &all, &err), MW_OK);
    mw_assert_near(all.busbw_Bps, measured_Bps, 0.15, 0);
    q.ranks_per_node = 1;
    assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &one, &err), MW_OK);
    double alone_Bps = one.busbw_Bps;
    q.nic_sharers = 4;
    assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &one, &err), MW_OK);
    assert_true(one.busbw_Bps < 0.65 * alone_Bps);
    assert_true(4 * one.busbw_Bps < uplinks_Bps);
    mw_coll_world_free(w);
}

/*
 * 16 nodes of four V100 under NCCL 2.7.8, whose rings enter and leave a node
 * beside one uplink more than the other: 54.4 Gb/s (6.8 GB/s) with 4 GB
 * (BigScience, experiments/bandwidth/n16_32gb_all_reduce_bench.txt). Two groups
 * of two of a node's GPUs, on either side, get out what both uplinks leave.
 */
static void uneven_rings_are_slower(void **state)
{
    (void)state;
    const double measured_Bps = 54.4e9 / 8;
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer all, two;
    struct mw_coll_query q = {
        .op = MW_ALL_REDUCE, .bytes = 4e9, .n_nodes = 16, .ranks_per_node = 4};

    assert_int_equal(
        mw_coll_world_new(db, "jean-zay-v100-2021", NULL, &w, &err), MW_OK);
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &all, &err), MW_OK);
    mw_assert_near(all.busbw_Bps, measured_Bps, 0.05, 0);
    q.ranks_per_node = q.nic_sharers = 2;
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &two, &err), MW_OK);
    assert_true(2 * two.busbw_Bps > 1.5 * all.busbw_Bps);
    mw_coll_world_free(w);
}

/* Groups that share their nodes take turns: both of two that have two GPUs on
 * each node have one beside each uplink, and together they get out of a node
 * what four groups of one GPU get (all-gather: (n - 1) / n of the buffer). */
static void groups_take_turns(void **state)
{
    (void)state;
    const double bytes = 1e9;
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer one, two;
    struct mw_coll_query q = {.op = MW_ALL_GATHER,
                              .bytes = bytes,
                              .n_nodes = 16,
                              .ranks_per_node = 1,
                              .nic_sharers = 4};

    assert_int_equal(mw_coll_world_new(db, "jean-zay-v100", NULL, &w, &err),
                     MW_OK);
    assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &one, &err), MW_OK);
    q.bytes = 2 * bytes;
    q.ranks_per_node = q.nic_sharers = 2;
    assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &two, &err), MW_OK);
    mw_assert_near(two.time_s / one.time_s, 31.0 / 32 / (15.0 / 16), 0.01, 0);
    mw_coll_world_free(w);
}

/* Every second GPU of a DGX A100, each with its own NICs: devices 0, 2, 4, 6,
 * NICs 0, 2, 4, 6 of the pairs that a switch has. */
static void part_of_a_machine(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    const struct mw_system *sys = NULL;
    struct mw_machine_shape shape;
    struct mw_str xml = {NULL, 0, 0};
    assert_int_equal(mw_hwdb_system(db, "dgx-a100", &sys, &err), MW_OK);
    assert_int_equal(mw_machine_describe(db, sys, &shape, &err), MW_OK);
    mw_machine_xml(&shape, &(struct mw_machine_part){4, 2, 1, true}, &xml);
    for (int i = 0; i < 8; i++) {
        char gpu[32], nic[32];
        snprintf(gpu, sizeof gpu, "<gpu dev=\"%d\"", i);
        snprintf(nic, sizeof nic, "name=\"nic%d\"", i);
        assert_int_equal(strstr(xml.s, gpu) != NULL, i % 2 == 0);
        assert_int_equal(strstr(xml.s, nic) != NULL, i % 2 == 0);
    }
    assert_non_null(strstr(xml.s, "rank=\"3\""));
    assert_null(strstr(xml.s, "rank=\"4\""));
    mw_str_release(&xml);
}

static void wrong_groups_are_refused(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_coll_world *w = NULL;
    struct mw_coll_answer a;
    assert_int_equal(mw_coll_world_new(db, "dgx-h100", NULL, &w, &err), MW_OK);
    struct mw_coll_query q = {
        .op = MW_ALL_REDUCE, .bytes = 1024, .n_nodes = 1, .ranks_per_node = 9};
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &a, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "9 ranks"));
    q.ranks_per_node = 1; /* one rank needs no time */
    assert_int_equal(mw_coll_predict(w, MW_COLL_FIT, &q, &a, &err), MW_OK);
    mw_assert_near(a.time_s, 0, 0, 0);
    mw_coll_world_free(w);
}

/* A bare machine: errors that a user can make. */
static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *xml, *what;
    } cases[] = {
        {"<system/>", "needs at least"},
        {"<graph></graph>", "not <system>"},
        {"<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"><gpu dev=\"0\" "
         "sm=\"90\" rank=\"0\"/></pci></cpu><cpu numaid=\"0\" "
         "host_hash=\"0x1\"><pci busid=\"0:1:0.0\"><gpu dev=\"1\" sm=\"90\" "
         "rank=\"1\"/></pci></cpu></system>",
         "no way from GPU of rank 0"},
        {"<system><cpu numaid=\"0\"><pci><gpu/></pci></cpu></system>", "busid"},
        {"<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"><gpu dev=\"0\" "
         "sm=\"90\" rank=\"0\"><nvlink count=\"0\" tclass=\"0x068000\"/>"
         "</gpu></pci></cpu></system>",
         "count=\"0\""},
        {"<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\"><nic><net dev=\"0\" "
         "speed=\"0\"/></nic></pci></cpu></system>",
         "speed 0"},
        {"<system><cpu", "ends inside"},
        {"<system></cpu></system>", "does not match"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        struct mw_nccl_machine *m = NULL;
        assert_int_equal(mw_nccl_machine_parse("m.xml", cases[i].xml,
                                               strlen(cases[i].xml), &m, &err),
                         MW_EINPUT);
        if (!strstr(err.text, cases[i].what)) {
            fail_msg("'%s' lacks '%s'", err.text, cases[i].what);
        }
    }
}

static void environment_lists_are_read(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_nccl_opts o;
    mw_nccl_opts_default(&o);
    assert_int_equal(
        mw_nccl_opts_env(&o, "NCCL_ALGO=ring;allreduce:^tree,pat", &err),
        MW_OK);
    assert_int_equal(o.algos[MW_NCCL_BROADCAST], 1 << MW_NCCL_RING);
    assert_int_equal(o.algos[MW_NCCL_ALL_REDUCE] >> MW_NCCL_TREE & 1, 0);
    assert_int_equal(o.algos[MW_NCCL_ALL_REDUCE] >> MW_NCCL_NVLS & 1, 1);
    assert_int_equal(mw_nccl_opts_env(&o, "NCCL_PROTO=LL128", &err), MW_OK);
    assert_false(o.ll128_auto[MW_NCCL_ALL_REDUCE]);
    assert_int_equal(mw_nccl_opts_env(&o, "NCCL_ALGO=rings", &err), MW_EUSAGE);
    assert_int_equal(mw_nccl_opts_env(&o, "NCCL_DEBUG=1", &err), MW_EUSAGE);
    assert_int_equal(mw_nccl_opts_env(&o, "NCCL_MAX_NCHANNELS=x", &err),
                     MW_EUSAGE);
}

/* 8 H100 without NVLS: the choice falls to ring, as NCCL_NVLS_ENABLE=0 does. */
static void environment_changes_the_choice(void **state)
{
    (void)state;
    struct mw_err err = {.status = MW_OK};
    struct mw_nccl_opts o;
    mw_nccl_opts_default(&o);
    struct mw_coll_query q = {.op = MW_ALL_REDUCE,
                              .bytes = 1 << 28,
                              .n_nodes = 1,
                              .ranks_per_node = 8};
    enum mw_nccl_algo want[2] = {MW_NCCL_NVLS, MW_NCCL_RING};
    for (int i = 0; i < 2; i++) {
        struct mw_coll_world *w = NULL;
        struct mw_coll_answer a;
        assert_int_equal(mw_coll_world_new(db, "dgx-h100", &o, &w, &err),
                         MW_OK);
        assert_int_equal(mw_coll_predict(w, MW_COLL_NCCL, &q, &a, &err), MW_OK);
        assert_int_equal(a.algo, want[i]);
        mw_coll_world_free(w);
        assert_int_equal(mw_nccl_opts_env(&o, "NCCL_NVLS_ENABLE=0", &err),
                         MW_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_equal_those_of_the_descriptions),
        cmocka_unit_test(racks_are_nodes),
        cmocka_unit_test(messages_through_the_host_cross_uplinks_twice),
        cmocka_unit_test(uneven_rings_are_slower),
        cmocka_unit_test(groups_take_turns),
        cmocka_unit_test(part_of_a_machine),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(environment_lists_are_read),
        cmocka_unit_test(environment_changes_the_choice)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
