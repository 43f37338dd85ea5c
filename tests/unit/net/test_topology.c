/* Clusters: the one-line form, links and routes by hand, errors, drawing. */
#include "mw_test.h"

#include "sim/net/topology.h"

#include <string.h>

static struct mw_hwdb *db;

static int setup(void **state)
{
    (void)state;
    return mw_hwdb_load(NULL, &db, NULL) == MW_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mw_hwdb_free(db);
    return 0;
}

static struct mw_topology *make(const char *text)
{
    struct mw_err err = {.status = MW_OK};
    struct mw_topology_spec spec;
    struct mw_topology *t = NULL;
    if (mw_topology_parse(db, text, &spec, &err) != MW_OK ||
        mw_topology_new(&spec, &t, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_null(mw_topology_check(t));
    return t;
}

static void route_is(const struct mw_topology *t, int from, int to,
                     const char *want)
{
    uint32_t r[MW_ROUTE_HOPS_MAX];
    char text[256] = "";
    int n = mw_topology_route(t, from, to, -1, 0, r);
    for (int i = 0; i < n; i++) {
        char name[64];
        strcat(text, i ? " " : "");
        strcat(text, mw_topology_link_name(t, r[i], name));
    }
    assert_string_equal(text, want);
}

static void routes_by_hand(void **state)
{
    (void)state;
    struct mw_topology *t = make("dgx-h100 x 4, rail, leaf 2, spines 4");
    route_is(t, 0, 0, "");
    route_is(t, 0, 5, "n0.gpu0.out n0.gpu5.in");
    /* same rail, same group of nodes: the leaf alone */
    route_is(t, 3, 11, "n0.nic3.out n1.nic3.in");
    /* same rail, other group: over the spine of the destination */
    route_is(t, 3, 19, "n0.nic3.out leaf3.up3 leaf11.down3 n2.nic3.in");
    mw_topology_free(t);
    /* PXN: inside the node to the GPU of the receiver's rail */
    t = make("dgx-h100 x 2, rail, pxn");
    route_is(t, 0, 13, "n0.gpu0.out n0.gpu5.in n0.nic5.out n1.nic5.in");
    mw_topology_free(t);
    /* A mesh has a link for the pair; a rack needs no NIC. */
    t = make("alps-gh200 x 1");
    route_is(t, 1, 2, "n0.gpu1.out n0.gpu1-gpu2 n0.gpu2.in");
    mw_topology_free(t);
    t = make("gb200-nvl72 x 20");
    route_is(t, 0, 7, "n0.gpu0.out n1.gpu3.in");
    route_is(t, 0, 72, "n0.nic0.out n18.nic0.in");
    mw_topology_free(t);
}

/* Leaf of 4 nodes of 8 x 50 GB/s, 2 to 1, 4 spines: 4 x 8 x 50 / 2 / 4. */
static void oversubscription_by_hand(void **state)
{
    (void)state;
    struct mw_topology *t =
        make("dgx-h100 x 8, fat-tree, leaf 4, oversub 2, spines 4");
    size_t n = mw_topology_links(t);
    mw_assert_near(mw_topology_capacity(t)[n - 1], 4 * 8 * 50e9 / 2 / 4, 1e-12,
                   0);
    mw_topology_free(t);
    t = make("dgx-h100 x 2 + dgx-a100 x 1, dragonfly, leaf 1, group 2");
    assert_int_equal(mw_topology_gpus(t), 24);
    route_is(t, 0, 16,
             "n0.nic0.out leaf0.up0 group0.up group1.down leaf2.down0 "
             "n2.nic0.in");
    mw_topology_free(t);
}

static void ecmp_spreads_and_repeats(void **state)
{
    (void)state;
    struct mw_topology *t = make("dgx-h100 x 4, rail, leaf 1, spines 8, ecmp");
    int used[8] = {0};
    for (uint64_t flow = 0; flow < 64; flow++) {
        uint32_t a[MW_ROUTE_HOPS_MAX], b[MW_ROUTE_HOPS_MAX];
        int n = mw_topology_route(t, 0, 8, -1, flow, a);
        assert_int_equal(n, mw_topology_route(t, 0, 8, -1, flow, b));
        assert_memory_equal(a, b, (size_t)n * sizeof a[0]);
        char name[64];
        mw_topology_link_name(t, a[1], name);
        used[name[strlen(name) - 1] - '0']++;
    }
    for (int s = 0; s < 8; s++) {
        assert_true(used[s] > 0);
    }
    mw_topology_free(t);
}

static void wrong_descriptions(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
    } cases[] = {{"", "no cluster"},
                 {"dgx-h100 x 0", "1 to 200000"},
                 {"dgx-h10 x 2", "dgx-h10"},
                 {"dgx-h100 x 2, railed", "'railed'"},
                 {"dgx-h100 x 2, oversub 0.5", "'oversub 0.5'"},
                 {"dgx-h100 x 4, leaf 2, oversub 2", "add rail, fat-tree"},
                 {"dgx-h100 x 2, leaf 1.5", "'leaf 1.5'"},
                 {"dgx-h100 x 2,,rail", "empty"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mw_err err = {.status = MW_OK};
        struct mw_topology_spec spec;
        assert_int_equal(mw_topology_parse(db, cases[i].text, &spec, &err),
                         MW_EINPUT);
        if (!strstr(err.text, cases[i].what)) {
            fail_msg("'%s' lacks '%s'", err.text, cases[i].what);
        }
    }
    struct mw_err err = {.status = MW_OK};
    struct mw_topology_spec spec;
    struct mw_topology *t = NULL;
    assert_int_equal(mw_topology_parse(db, "pcie-4x-a100 x 2", &spec, &err),
                     MW_OK);
    assert_int_equal(mw_topology_new(&spec, &t, &err), MW_EINPUT);
    assert_non_null(strstr(err.text, "isolated"));
}

static void drawings(void **state)
{
    (void)state;
    struct mw_topology *t = make("dgx-h100 x 2");
    struct mw_str text = {NULL, 0, 0}, dot = {NULL, 0, 0};
    mw_topology_text(t, &text);
    mw_topology_dot(t, 1, &dot);
    assert_non_null(strstr(text.s, "2 nodes, 16 GPUs"));
    assert_non_null(strstr(dot.s, "graph cluster {"));
    assert_non_null(strstr(dot.s, "1 more nodes"));
    mw_str_release(&text);
    mw_str_release(&dot);
    mw_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_by_hand),
        cmocka_unit_test(oversubscription_by_hand),
        cmocka_unit_test(ecmp_spreads_and_repeats),
        cmocka_unit_test(wrong_descriptions), cmocka_unit_test(drawings)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
