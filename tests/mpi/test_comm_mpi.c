/*
 * The communication table on MPI, with values that sum exactly in float32
 * (multiples of 1/8), so every result is compared with ==; and the virtual
 * clock on events worked out by hand.
 */
#include "mw_test.h"

#include "exec/replay_clock.h"

#include <mpi.h>
#include <string.h>

static struct mw_comm *world;

static float value(int rank, size_t i)
{
    return (float)(rank + 1) * 0.125f + (float)(i % 64);
}

static void all_reduce_sum_and_max(void **state)
{
    (void)state;
    enum { N = 1000 };
    float v[N], m[N];
    struct mw_err err = {0};
    int p = world->size;
    for (size_t i = 0; i < N; i++) {
        v[i] = m[i] = value(world->rank, i);
    }
    assert_int_equal(
        world->ops->all_reduce(world, v, N, MW_ELEM_F32, MW_REDUCE_SUM, &err),
        MW_OK);
    assert_int_equal(
        world->ops->all_reduce(world, m, N, MW_ELEM_F32, MW_REDUCE_MAX, &err),
        MW_OK);
    for (size_t i = 0; i < N; i++) {
        float sum = (float)(p * (p + 1)) / 16.0f + (float)p * (float)(i % 64);
        assert_true(v[i] == sum);
        assert_true(m[i] == value(p - 1, i));
    }
}

/* Reduce-scatter then all-gather in place is an all-reduce. */
static void scatter_and_gather_in_place(void **state)
{
    (void)state;
    enum { PART = 96, MAX = 8 };
    float v[PART * MAX];
    struct mw_err err = {0};
    int p = world->size;
    size_t n = PART * (size_t)p, mine = PART * (size_t)world->rank;
    assert_true(p <= MAX);
    for (size_t i = 0; i < n; i++) {
        v[i] = value(world->rank, i);
    }
    assert_int_equal(
        world->ops->reduce_scatter(world, v, PART, MW_ELEM_F32, &err), MW_OK);
    for (size_t i = mine; i < mine + PART; i++) {
        assert_true(v[i] ==
                    (float)(p * (p + 1)) / 16.0f + (float)p * (float)(i % 64));
    }
    assert_int_equal(world->ops->all_gather(world, v, PART, MW_ELEM_F32, &err),
                     MW_OK);
    for (size_t i = 0; i < n; i++) {
        assert_true(v[i] ==
                    (float)(p * (p + 1)) / 16.0f + (float)p * (float)(i % 64));
    }
}

/* Messages of one pair are told apart by tag, whatever their order; large
 * ones do not deadlock when both send first. */
static void tags_and_large_sends(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    float *out = mw_calloc(N, sizeof *out), *in = mw_calloc(N, sizeof *in);
    struct mw_send first = {0}, second = {0};
    struct mw_err err = {0};
    int to = (world->rank + 1) % world->size;
    int from = (world->rank + world->size - 1) % world->size;
    float late = (float)world->rank;
    out[N - 1] = 7.0f + (float)world->rank;
    const struct mw_comm_ops *ops = world->ops;
    assert_int_equal(ops->send(world, out, N, MW_ELEM_F32, to, 1, &first, &err),
                     MW_OK);
    assert_int_equal(
        ops->send(world, &late, 1, MW_ELEM_F32, to, 2, &second, &err), MW_OK);
    float got = -1.0f;
    assert_int_equal(ops->recv(world, &got, 1, MW_ELEM_F32, from, 2, &err),
                     MW_OK);
    assert_int_equal(ops->recv(world, in, N, MW_ELEM_F32, from, 1, &err),
                     MW_OK);
    assert_true(got == (float)from && in[N - 1] == 7.0f + (float)from);
    assert_int_equal(ops->wait(world, &first, &err), MW_OK);
    assert_int_equal(ops->wait(world, &second, &err), MW_OK);
    assert_null(first.handle);
    assert_int_equal(ops->wait(world, &first, &err), MW_OK); /* nothing */
    mw_free(out);
    mw_free(in);
}

static void splits_order_by_key(void **state)
{
    (void)state;
    struct mw_comm *half = NULL;
    struct mw_err err = {0};
    int color = world->rank % 2;
    assert_int_equal(world->ops->split(world, color, -world->rank, &half, &err),
                     MW_OK);
    assert_int_equal(half->size, (world->size + 1 - color) / 2);
    /* Keys descend with the rank, so the last of them comes first. */
    int later = (world->size - 1 - world->rank) / 2;
    assert_int_equal(half->rank, later);
    half->ops->free(half);
}

static void a_bad_peer_is_an_error(void **state)
{
    (void)state;
    struct mw_err err = {0};
    float v = 0;
    assert_int_equal(world->ops->recv(world, &v, 1, MW_ELEM_F32, 99, 0, &err),
                     MW_EBACKEND);
    assert_non_null(strstr(err.text, "MPI_Recv"));
}

/* ---- replay ------------------------------------------------------------- */
/*
 * Seconds.          rank 0                      rank 1 (and further ones)
 *   compute         0 .. 3                      0 .. 1
 *   send 0 -> 1     at 3                        receive: 3 + 0.5 = 3.5
 *   compute         3 .. 4                      3.5 .. 5.5
 *   all-reduce      max(4, 5.5) = 5.5 .. 5.75 on both
 * The step ends at 5.75. On rank 1 the transfer is shown from 3 to 3.5.
 */
static struct mw_rec_event event(enum mw_rec_type type, int peer)
{
    return (struct mw_rec_event){.type = type,
                                 .span = MW_SPAN_F,
                                 .name = "x",
                                 .dim = MW_DIM_DP,
                                 .peer = peer,
                                 .tag = 5};
}

static void virtual_clock_by_hand(void **state)
{
    (void)state;
    struct mw_rec rec = {0};
    struct mw_exec ex = {.rec = &rec, .world = world, .dp = world};
    struct mw_err err = {0};
    bool is_first = world->rank == 0, is_second = world->rank == 1;
    double busy[5] = {is_first ? 3 : 1, 0, is_first ? 1 : 2, 0, 0};
    double cost[5] = {0, is_second ? 0.5 : 0, 0, 0.25, 0};
    struct mw_moment at[5];
    double end;
    struct mw_rec_event list[4] = {
        event(MW_REC_COMPUTE, 0),
        is_first ? event(MW_REC_SEND, 1) : event(MW_REC_RECV, 0),
        event(MW_REC_COMPUTE, 0), event(MW_REC_COLL, 0)};
    for (int i = 0; i < 4; i++) {
        if (i != 1 || world->rank < 2) {
            mw_array_push(&rec.events, list[i]);
        }
    }
    if (world->rank >= 2) { /* no message: compute twice */
        busy[1] = 2;
        cost[2] = 0.25;
    }
    assert_int_equal(mw_replay(&ex, busy, cost, at, &end, &err), MW_OK);
    mw_assert_near(end, 5.75, 0, 1e-12);
    if (is_first) {
        mw_assert_near(at[1].start_s, 3, 0, 0);
        mw_assert_near(at[2].end_s, 4, 0, 0);
        mw_assert_near(at[3].start_s, 5.5, 0, 1e-12);
    } else if (is_second) {
        mw_assert_near(at[1].start_s, 3, 0, 0);
        mw_assert_near(at[1].end_s, 3.5, 0, 0);
        mw_assert_near(at[2].start_s, 3.5, 0, 0);
        mw_assert_near(at[3].end_s, 5.75, 0, 1e-12);
    }
    mw_rec_release(&rec);
}

/* Rank i has i + 1 elements; every block of an exchange says from and to. */
static void uneven_blocks(void **state)
{
    (void)state;
    enum { MAX = 8 };
    float v[MAX * MAX], from[MAX], to[MAX];
    size_t n[MAX], first = 0, all = 0;
    struct mw_err err = {0};
    int p = world->size, me = world->rank;
    for (int i = 0; i < p; i++) {
        n[i] = (size_t)i + 1;
        first += i < me ? n[i] : 0;
        all += n[i];
        from[i] = (float)(10 * me + i);
    }
    for (size_t k = 0; k < n[me]; k++) {
        v[first + k] = (float)me;
    }
    assert_int_equal(world->ops->all_gather_v(world, v, n, MW_ELEM_F32, &err),
                     MW_OK);
    assert_true(v[0] == 0.0f && v[all - 1] == (float)(p - 1));
    assert_int_equal(
        world->ops->reduce_scatter_v(world, v, n, MW_ELEM_F32, &err), MW_OK);
    for (size_t k = 0; k < n[me]; k++) {
        assert_true(v[first + k] == (float)(me * p));
    }
    assert_int_equal(
        world->ops->all_to_all(world, from, to, 1, MW_ELEM_F32, &err), MW_OK);
    for (int i = 0; i < p; i++) {
        assert_true(to[i] == (float)(10 * i + me));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_sum_and_max),
        cmocka_unit_test(scatter_and_gather_in_place),
        cmocka_unit_test(uneven_blocks),
        cmocka_unit_test(tags_and_large_sends),
        cmocka_unit_test(splits_order_by_key),
        cmocka_unit_test(a_bad_peer_is_an_error),
        cmocka_unit_test(virtual_clock_by_hand),
    };
    struct mw_err err = {0};
    MPI_Init(NULL, NULL);
    if (mw_comm_mpi_world(&world, &err) != MW_OK) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    world->ops->free(world);
    MPI_Finalize();
    return failed;
}
