/*
 * NCCL 2.28.9's decisions, thinned tables (tests/oracles/nccl): every row of
 * every table must agree.
 */
#include "mw_test.h"
#include "nccl_replay.h"

typedef enum mw_status (*replay_fn)(const char *, struct replay_count *,
                                    struct mw_err *);

static void run(replay_fn fn, long rows_min)
{
    struct replay_count c = {0, 0};
    struct mw_err err = {.status = MW_OK};
    if (fn(MW_NCCL_ORACLES, &c, &err) != MW_OK) {
        fail_msg("%s", err.text);
    }
    assert_true(c.rows >= rows_min);
    assert_int_equal(c.wrong, 0);
}

static void graphs(void **state)
{
    (void)state;
    run(replay_graphs, 200);
}

static void orders(void **state)
{
    (void)state;
    run(replay_orders, 100);
}

static void latency_and_bandwidth(void **state)
{
    (void)state;
    run(replay_latbw, 700);
}

static void choice(void **state)
{
    (void)state;
    run(replay_choice, 1000);
}

static void trees(void **state)
{
    (void)state;
    run(replay_trees, 100);
}

static void p2p_rounds(void **state)
{
    (void)state;
    run(replay_p2p_schedule, 400);
}

static void cells(void **state)
{
    (void)state;
    run(replay_cells, 300);
}

static void alltoall(void **state)
{
    (void)state;
    run(replay_alltoall, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs),
                                       cmocka_unit_test(orders),
                                       cmocka_unit_test(latency_and_bandwidth),
                                       cmocka_unit_test(choice),
                                       cmocka_unit_test(trees),
                                       cmocka_unit_test(p2p_rounds),
                                       cmocka_unit_test(cells),
                                       cmocka_unit_test(alltoall)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
