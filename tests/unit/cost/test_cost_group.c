/*
 * How communicators lie on nodes: hand-placed layouts, and brute force over
 * every rank for random ones.
 */
#include "mw_test.h"

#include "base/rand.h"
#include "sim/cost/cost.h"

#include <string.h>

static struct mw_layout layout_of(int tp, int cp, int dp, int pp,
                                  const char *order)
{
    struct mw_layout l;

    mw_layout_default(&l);
    l.tp = tp;
    l.cp = cp;
    l.dp = dp;
    l.pp = pp;
    l.order = order;
    return l;
}

static void check(struct mw_group g, int n, int nodes, int per_node,
                  int sharers)
{
    assert_int_equal(g.n_ranks, n);
    assert_int_equal(g.n_nodes, nodes);
    assert_int_equal(g.ranks_per_node, per_node);
    assert_int_equal(g.nic_sharers, sharers);
}

static void test_tp_fills_the_node(void **state)
{
    struct mw_layout l = layout_of(8, 1, 8, 8, "tp-cp-ep-dp-pp");

    (void)state;
    check(mw_cost_group(&l, MW_DIM_TP, 8), 8, 1, 8, 1);
    /* dp members are 8 ranks apart: one a node, eight groups on each node */
    check(mw_cost_group(&l, MW_DIM_DP, 8), 8, 8, 1, 8);
    check(mw_cost_group(&l, MW_DIM_PP, 8), 8, 8, 1, 8);
    assert_int_equal(mw_cost_pp_sharers(&l, 8), 8);
    assert_true(mw_cost_pp_crosses(&l, 0, 8));
    assert_false(mw_cost_pp_crosses(&l, 7, 8)); /* no stage after the last */
}

static void test_dp_shares_the_node_with_tp(void **state)
{
    struct mw_layout l = layout_of(2, 1, 8, 4, "tp-cp-ep-dp-pp");

    (void)state;
    /* ranks 0 2 4 6 | 8 10 12 14: four a node, two such groups on a node */
    check(mw_cost_group(&l, MW_DIM_DP, 8), 8, 2, 4, 2);
    check(mw_cost_group(&l, MW_DIM_TP, 8), 2, 1, 2, 1);
    check(mw_cost_group(&l, MW_DIM_CP, 8), 1, 1, 1, 1);
}

static void test_gradients_fold_cp(void **state)
{
    struct mw_layout l = layout_of(2, 2, 8, 1, "tp-cp-ep-dp-pp");

    (void)state;
    /* 16 ranks, every second of 32: four a node on four nodes */
    check(mw_cost_grad_group(&l, false, 8), 16, 4, 4, 2);
}

/* 32 ranks of one stage, tp 2. */
static void test_experts_fold_all_of_a_stage(void **state)
{
    struct mw_layout l = layout_of(2, 2, 8, 1, "tp-cp-ep-dp-pp");

    (void)state;
    l.ep = 4;
    /* ranks 0 to 3; the same experts on 0 4 8 ... */
    check(mw_cost_group(&l, MW_DIM_EP, 8), 4, 1, 4, 1);
    check(mw_cost_group(&l, MW_DIM_ETP, 8), 1, 1, 1, 1);
    check(mw_cost_grad_group(&l, true, 8), 8, 4, 2, 4);
    l.etp = 2;
    /* ranks 0 2 4 6 | 0 1 | 0 8 16 24 */
    check(mw_cost_group(&l, MW_DIM_EP, 8), 4, 1, 4, 1);
    check(mw_cost_group(&l, MW_DIM_ETP, 8), 2, 1, 2, 1);
    check(mw_cost_grad_group(&l, true, 8), 4, 4, 1, 8);
    l.ep = 16; /* beyond what dp and cp have */
    check(mw_cost_group(&l, MW_DIM_EP, 8), 16, 4, 4, 2);
    check(mw_cost_grad_group(&l, true, 8), 1, 1, 1, 1);
}

static void test_stages_inside_a_node(void **state)
{
    struct mw_layout l = layout_of(1, 1, 2, 4, "pp-tp-cp-dp");

    (void)state;
    assert_false(mw_cost_pp_crosses(&l, 0, 8));
    assert_int_equal(mw_cost_pp_sharers(&l, 8), 2);
    assert_true(mw_cost_stages_cross(&l, 0, 3, 2));
    assert_false(mw_cost_stages_cross(&l, 0, 1, 2));
}

/* Members of rank 0's group of the dimensions in `mask`, by looking at every
 * rank: those that agree with rank 0 in all other coordinates, with a dp
 * coordinate below dp_end that is a multiple of dp_step. */
static struct mw_group brute_dp(const struct mw_layout *l, unsigned mask,
                                int per_node, int dp_end, int dp_step)
{
    struct mw_group g = {0};
    int ranks = mw_layout_ranks(l), node = -1, on_node = 0;

    for (int rank = 0; rank < ranks; rank++) {
        struct mw_coord at = mw_layout_coord(l, rank);

        if ((at.tp != 0 && !(mask & 1)) || (at.cp != 0 && !(mask & 2)) ||
            (at.dp != 0 && !(mask & 4)) || (at.pp != 0 && !(mask & 8)) ||
            at.dp >= dp_end || at.dp % dp_step != 0) {
            continue;
        }
        g.n_ranks++;
        if (rank / per_node != node) {
            node = rank / per_node;
            g.n_nodes++;
            on_node = 0;
        }
        on_node++;
        g.ranks_per_node =
            on_node > g.ranks_per_node ? on_node : g.ranks_per_node;
    }
    return g;
}

static struct mw_group brute(const struct mw_layout *l, unsigned mask,
                             int per_node)
{
    return brute_dp(l, mask, per_node, l->dp, 1);
}

static void same(struct mw_group got, struct mw_group want)
{
    assert_int_equal(got.n_ranks, want.n_ranks);
    assert_int_equal(got.n_nodes, want.n_nodes);
    assert_int_equal(got.ranks_per_node, want.ranks_per_node);
}

/* HSDP: dp_shard neighbours with their cp ranks share, those at the same place
 * of other groups repeat. */
static void test_shards_and_replicas(void **state)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-dp-cp-pp",
                                         "pp-dp-cp-tp", "cp-tp-pp-dp"};
    struct mw_layout l = layout_of(1, 1, 16, 1, "tp-cp-ep-dp-pp");

    (void)state;
    l.zero = 3;
    check(mw_cost_replica_group(&l, 8), 1, 1, 1, 1);
    l.dp_shard = 8; /* a node each: 2 replicas on two nodes, 8 at a time */
    check(mw_cost_shard_group(&l, false, 8), 8, 1, 8, 1);
    check(mw_cost_replica_group(&l, 8), 2, 2, 1, 8);
    for (uint64_t i = 0; i < 400; i++) {
        int per_node = 1 << mw_rand_u64(8, 9, i) % 4;
        int shard = 1 + (int)(mw_rand_u64(8, 1, i) % 4);
        int n = 1 + (int)(mw_rand_u64(8, 2, i) % 4);

        l = layout_of(1 + (int)(mw_rand_u64(8, 3, i) % 4),
                      1 + (int)(mw_rand_u64(8, 4, i) % 4), shard * n,
                      1 + (int)(mw_rand_u64(8, 5, i) % 3),
                      orders[mw_rand_u64(8, 8, i) % 4]);
        l.dp_shard = shard;
        same(mw_cost_shard_group(&l, false, per_node),
             brute_dp(&l, 2 | 4, per_node, shard, 1));
        same(mw_cost_replica_group(&l, per_node),
             brute_dp(&l, 4, per_node, l.dp, shard));
        l.dp_shard = 0;
        same(mw_cost_shard_group(&l, false, per_node),
             mw_cost_grad_group(&l, false, per_node));
    }
}

static void test_random_layouts_against_brute_force(void **state)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp",
                                         "pp-dp-cp-tp", "dp-tp-pp-cp"};
    static const struct {
        enum mw_dim dim;
        unsigned mask;
    } dims[] = {{MW_DIM_TP, 1}, {MW_DIM_CP, 2}, {MW_DIM_DP, 4}, {MW_DIM_PP, 8}};

    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        int ways[4], per_node = 1 << mw_rand_u64(7, 9, i) % 4;

        for (uint64_t k = 0; k < 4; k++) {
            ways[k] = 1 + (int)(mw_rand_u64(7, k, i) % 6);
        }
        struct mw_layout l = layout_of(ways[0], ways[1], ways[2], ways[3],
                                       orders[mw_rand_u64(7, 8, i) % 4]);

        for (size_t d = 0; d < 4; d++) {
            struct mw_group got = mw_cost_group(&l, dims[d].dim, per_node);
            struct mw_group want = brute(&l, dims[d].mask, per_node);

            assert_int_equal(got.n_ranks, want.n_ranks);
            assert_int_equal(got.n_nodes, want.n_nodes);
            assert_int_equal(got.ranks_per_node, want.ranks_per_node);
        }
        struct mw_group got = mw_cost_grad_group(&l, false, per_node);
        struct mw_group want = brute(&l, 2 | 4, per_node);

        assert_int_equal(got.n_ranks, want.n_ranks);
        assert_int_equal(got.n_nodes, want.n_nodes);
        assert_int_equal(got.ranks_per_node, want.ranks_per_node);
    }
}

/* Place of a rank in its stage, tp fastest, then cp, then dp. */
static int place_in_stage(const struct mw_layout *l, int rank)
{
    struct mw_coord at = mw_layout_coord(l, rank);

    return at.pp > 0 ? -1 : (at.dp * l->cp + at.cp) * l->tp + at.tp;
}

/* Stage places `step` apart, fewer than `n`, by looking at every rank. */
static struct mw_group brute_experts(const struct mw_layout *l, int n, int step,
                                     int per_node)
{
    struct mw_group g = {0};
    int ranks = mw_layout_ranks(l), node = -1, on_node = 0;

    for (int rank = 0; rank < ranks; rank++) {
        int at = place_in_stage(l, rank);

        if (at < 0 || at % step != 0 || at / step >= n) {
            continue;
        }
        g.n_ranks++;
        on_node = rank / per_node == node ? on_node + 1 : 1;
        g.n_nodes += on_node == 1;
        node = rank / per_node;
        g.ranks_per_node =
            on_node > g.ranks_per_node ? on_node : g.ranks_per_node;
    }
    return g;
}

static void check_experts(struct mw_group got, const struct mw_layout *l, int n,
                          int step, int per_node)
{
    struct mw_group want = brute_experts(l, n, step, per_node);

    assert_int_equal(got.n_ranks, want.n_ranks);
    assert_int_equal(got.n_nodes, want.n_nodes);
    assert_int_equal(got.ranks_per_node, want.ranks_per_node);
}

static void test_random_experts_against_brute_force(void **state)
{
    static const char *const orders[] = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp",
                                         "pp-dp-cp-tp", "dp-tp-pp-cp"};

    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        int ways[4], per_node = 1 << mw_rand_u64(11, 9, i) % 4;

        for (uint64_t k = 0; k < 4; k++) {
            ways[k] = 1 << mw_rand_u64(11, k, i) % 3;
        }
        struct mw_layout l = layout_of(ways[0], ways[1], ways[2], ways[3],
                                       orders[mw_rand_u64(11, 8, i) % 4]);
        int stage = l.tp * l.cp * l.dp;
        int log = __builtin_ctz((unsigned)stage) + 1;

        l.etp = 1 << mw_rand_u64(11, 5, i) % (uint64_t)log;
        log -= __builtin_ctz((unsigned)l.etp);
        l.ep = 1 << mw_rand_u64(11, 6, i) % (uint64_t)log;
        check_experts(mw_cost_group(&l, MW_DIM_ETP, per_node), &l, l.etp, 1,
                      per_node);
        check_experts(mw_cost_group(&l, MW_DIM_EP, per_node), &l, l.ep, l.etp,
                      per_node);
        check_experts(mw_cost_grad_group(&l, true, per_node), &l,
                      stage / (l.ep * l.etp), l.ep * l.etp, per_node);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tp_fills_the_node),
        cmocka_unit_test(test_dp_shares_the_node_with_tp),
        cmocka_unit_test(test_gradients_fold_cp),
        cmocka_unit_test(test_experts_fold_all_of_a_stage),
        cmocka_unit_test(test_stages_inside_a_node),
        cmocka_unit_test(test_random_layouts_against_brute_force),
        cmocka_unit_test(test_random_experts_against_brute_force),
        cmocka_unit_test(test_shards_and_replicas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
