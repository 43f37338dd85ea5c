/*
 * The NCCL table on the stand-in, on 2 and 4 ranks: collectives with values
 * that any order of summation gives exactly, messages in both directions and
 * in another order than they are asked for, splits, host buffers, and what
 * happens when a rank does not come or a call fails. Each case runs under many
 * seeds of the stream order.
 */
#include "mw_test.h"

#include "base/log.h"
#include "base/mem.h"
#include "exec/cuda/cuda_int.h"
#include "exec/cuda/mw_cuda.h"
#include "exec/exec_int.h"
#include "tests/shim/shim.h"

#include <math.h>
#include <mpi.h>
#include <string.h>

enum { N = 37, N_SEEDS = 12, RANKS_MAX = 8 };

struct side {
    struct mw_comm *host, *comm;
    struct mw_dev *dev;
    int rank, size;
    struct mw_err err;
};

static void open_side(struct side *s, uint64_t seed)
{
    int peers[RANKS_MAX], n = 0;
    *s = (struct side){0};
    assert_int_equal(mw_comm_mpi_world(&s->host, &s->err), MW_OK);
    s->rank = s->host->rank;
    s->size = s->host->size;
    shim_seed(seed * RANKS_MAX + (uint64_t)s->rank);
    for (int r = s->size - 1; r >= 0; r--) {
        if (r != s->rank) {
            peers[n++] = r;
        }
    }
    assert_int_equal(mw_dev_cuda.open(s->rank, &s->dev, &s->err), MW_OK);
    assert_int_equal(
        mw_comm_nccl_wrap(s->dev, s->host, peers, n, &s->comm, &s->err), MW_OK);
}

static void close_side(struct side *s)
{
    if (s->comm) {
        s->comm->ops->free(s->comm);
    }
    s->dev->ops->close(s->dev);
    s->host->ops->free(s->host);
    assert_int_equal(shim_live(), 0);
}

/* A device buffer of n floats: v[i] = base + i. */
static float *put(struct side *s, size_t n, float base)
{
    float *host = mw_calloc(n, sizeof *host);
    for (size_t i = 0; i < n; i++) {
        host[i] = base + (float)i;
    }
    float *d = s->dev->ops->alloc(s->dev, n * sizeof *d);
    s->dev->ops->to_device(s->dev, d, host, n * sizeof *d);
    mw_free(host);
    return d;
}

static void expect(struct side *s, const float *d, size_t n, float base,
                   float slope)
{
    float *host = mw_calloc(n + 1, sizeof *host);
    if (n > 0) {
        s->dev->ops->to_host(s->dev, host, d, n * sizeof *host);
    }
    for (size_t i = 0; i < n; i++) {
        mw_assert_near((double)host[i], (double)(base + slope * (float)i), 0.0,
                       0.0);
    }
    mw_free(host);
}

static void drop(struct side *s, float *d, size_t n)
{
    s->dev->ops->free(s->dev, d, n * sizeof *d);
}

#define OK(call) assert_int_equal((call), MW_OK)

/* ---- collectives ----------------------------------------------------------
 */
static void collectives(struct side *s, struct mw_comm *c)
{
    size_t all = (size_t)(N * c->size), at = (size_t)(N * c->rank);
    float size = (float)c->size, ranks = (float)(c->size * (c->size - 1) / 2);
    float *a = put(s, N, (float)c->rank), *b = put(s, N, (float)c->rank);
    float *g = put(s, all, 100.0f * (float)c->rank);
    OK(c->ops->all_reduce(c, a, N, MW_ELEM_F32, MW_REDUCE_SUM, &s->err));
    expect(s, a, N, ranks, size);
    OK(c->ops->all_reduce(c, b, N, MW_ELEM_F32, MW_REDUCE_MAX, &s->err));
    expect(s, b, N, size - 1.0f, 1.0f);
    /* sum over ranks of 100 r + i, at our block */
    OK(c->ops->reduce_scatter(c, g, N, MW_ELEM_F32, &s->err));
    expect(s, g + at, N, 100.0f * ranks + size * (float)at, size);
    OK(c->ops->all_gather(c, g, N, MW_ELEM_F32, &s->err));
    expect(s, g, all, 100.0f * ranks, size);
    drop(s, a, N);
    drop(s, b, N);
    drop(s, g, all);
}

/* Block r of rank q, 1000 q + N r + i, is block q of rank r. */
static void all_to_all(struct side *s, struct mw_comm *c)
{
    size_t all = (size_t)(N * c->size);
    float *from = put(s, all, 1000.0f * (float)c->rank);
    float *to = put(s, all, 0.0f);
    OK(c->ops->all_to_all(c, from, to, N, MW_ELEM_F32, &s->err));
    for (int q = 0; q < c->size; q++) {
        expect(s, to + q * N, N, (float)(1000 * q + N * c->rank), 1.0f);
    }
    drop(s, from, all);
    drop(s, to, all);
}

/* Elements from rank p to rank q; some none, rank 0 to itself as well. */
static size_t length(int p, int q)
{
    return (size_t)((p + 2 * q) % 3 * 2);
}

static void all_to_all_v(struct side *s, struct mw_comm *c)
{
    size_t n_from[RANKS_MAX], n_to[RANKS_MAX], all = 4 * RANKS_MAX, at = 0;
    float *from = put(s, all, 1000.0f * (float)c->rank);
    float *to = put(s, all, -1.0f);
    for (int q = 0; q < c->size; q++) {
        n_from[q] = length(c->rank, q);
        n_to[q] = length(q, c->rank);
    }
    OK(c->ops->all_to_all_v(c, from, n_from, to, n_to, MW_ELEM_F32, &s->err));
    for (int q = 0; q < c->size; q++) { /* where block c->rank begins there */
        size_t first = 0;
        for (int r = 0; r < c->rank; r++) {
            first += length(q, r);
        }
        expect(s, to + at, n_to[q], 1000.0f * (float)q + (float)first, 1.0f);
        at += n_to[q];
    }
    expect(s, to + at, 1, (float)at - 1.0f, 1.0f); /* as it was */
    drop(s, from, all);
    drop(s, to, all);
}

/* Blocks of 1, 0, 3, 0 ... elements. */
static void blocks(struct side *s, struct mw_comm *c)
{
    size_t n[RANKS_MAX], all = 0, at = 0;
    float size = (float)c->size, ranks = (float)(c->size * (c->size - 1) / 2);
    for (int r = 0; r < c->size; r++) {
        n[r] = r % 2 ? 0 : (size_t)r + 1;
        at += r < c->rank ? n[r] : 0;
        all += n[r];
    }
    float *g = put(s, all, 100.0f * (float)c->rank);
    OK(c->ops->reduce_scatter_v(c, g, n, MW_ELEM_F32, &s->err));
    expect(s, g + at, n[c->rank], 100.0f * ranks + size * (float)at, size);
    OK(c->ops->all_gather_v(c, g, n, MW_ELEM_F32, &s->err));
    expect(s, g, all, 100.0f * ranks, size);
    drop(s, g, all);
}

/* Small whole numbers are exact in bfloat16: v[i] = rank + i, summed. */
static void halves(struct side *s, struct mw_comm *c)
{
    uint16_t v[N], *d = s->dev->ops->alloc(s->dev, sizeof v);
    for (int i = 0; i < N; i++) {
        v[i] = mw_bf16_of((float)(c->rank + i));
    }
    s->dev->ops->to_device(s->dev, d, v, sizeof v);
    OK(c->ops->all_reduce(c, d, N, MW_ELEM_BF16, MW_REDUCE_SUM, &s->err));
    s->dev->ops->to_host(s->dev, v, d, sizeof v);
    for (int i = 0; i < N; i++) {
        int sum = c->size * i + c->size * (c->size - 1) / 2;
        assert_int_equal(v[i], mw_bf16_of((float)sum));
    }
    s->dev->ops->free(s->dev, d, sizeof v);
}

static void test_collectives(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        struct side s;
        open_side(&s, seed);
        collectives(&s, s.comm);
        all_to_all(&s, s.comm);
        all_to_all_v(&s, s.comm);
        blocks(&s, s.comm);
        halves(&s, s.comm);
        close_side(&s);
    }
}

/* Pairs (0 1) (2 3) in reversed order, then each rank alone. */
static void test_split(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        struct side s;
        struct mw_comm *pair = NULL, *alone = NULL;
        open_side(&s, seed);
        OK(s.comm->ops->split(s.comm, s.rank / 2, -s.rank, &pair, &s.err));
        assert_int_equal(pair->size, 2);
        assert_int_equal(pair->rank, 1 - s.rank % 2);
        OK(pair->ops->split(pair, s.rank, 0, &alone, &s.err));
        assert_int_equal(alone->size, 1);
        collectives(&s, pair);
        collectives(&s, alone);
        all_to_all(&s, pair);
        all_to_all(&s, alone);
        all_to_all_v(&s, pair);
        all_to_all_v(&s, alone);
        blocks(&s, pair);
        blocks(&s, alone);
        collectives(&s, s.comm);
        alone->ops->free(alone);
        pair->ops->free(pair);
        close_side(&s);
    }
}

/* The same table takes host memory: scalars of the interpreter. */
static void test_host_buffers(void **state)
{
    (void)state;
    struct side s;
    open_side(&s, 1);
    double v = s.rank;
    int root = s.rank == 0 ? 7 : 0, all[RANKS_MAX] = {0};
    OK(s.comm->ops->all_reduce(s.comm, &v, 1, MW_ELEM_F64, MW_REDUCE_SUM,
                               &s.err));
    mw_assert_near(v, s.size * (s.size - 1) / 2.0, 0.0, 0.0);
    OK(s.comm->ops->broadcast(s.comm, &root, sizeof root, 0, &s.err));
    assert_int_equal(root, 7);
    OK(s.comm->ops->gather(s.comm, &s.rank, sizeof s.rank, all, 0, &s.err));
    assert_int_equal(all[s.size - 1], s.rank == 0 ? s.size - 1 : 0);
    OK(s.comm->ops->barrier(s.comm, &s.err));
    close_side(&s);
}

/* ---- messages ---------------------------------------------------------------
 */
/* Everybody sends to both neighbours before anybody receives. */
static void test_ring(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        struct side s;
        struct mw_send to_right = {NULL}, to_left = {NULL};
        open_side(&s, seed);
        int right = (s.rank + 1) % s.size,
            left = (s.rank + s.size - 1) % s.size;
        float *out = put(&s, N, 1000.0f * (float)s.rank),
              *in = put(&s, N, 0.0f);
        const struct mw_comm_ops *ops = s.comm->ops;
        OK(ops->send(s.comm, out, N, MW_ELEM_F32, right, 5, &to_right, &s.err));
        OK(ops->send(s.comm, out, N, MW_ELEM_F32, left, 6, &to_left, &s.err));
        OK(ops->recv(s.comm, in, N, MW_ELEM_F32, right, 6, &s.err));
        expect(&s, in, N, 1000.0f * (float)right, 1.0f);
        OK(ops->recv(s.comm, in, N, MW_ELEM_F32, left, 5, &s.err));
        expect(&s, in, N, 1000.0f * (float)left, 1.0f);
        OK(ops->wait(s.comm, &to_right, &s.err));
        OK(ops->wait(s.comm, &to_left, &s.err));
        assert_null(to_left.handle);
        OK(ops->wait(s.comm, &to_left, &s.err)); /* nothing to wait for */
        drop(&s, out, N);
        drop(&s, in, N);
        close_side(&s);
    }
}

/*
 * Rank 0 sends tags 0 1 2 3, enqueued behind work that makes the values; rank
 * 1 asks for 3 1 0 2. The buffer of a send is untouched until its wait, and
 * may be written right after.
 */
static void test_any_order(void **state)
{
    (void)state;
    static const int asked[] = {3, 1, 0, 2};
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        struct side s;
        struct mw_send sent[4] = {{NULL}};
        open_side(&s, seed);
        float *buf[4];
        for (int i = 0; i < 4; i++) {
            buf[i] = put(&s, N, 0.0f);
        }
        float *src = put(&s, N, 40.0f);
        for (int i = 0; s.rank == 0 && i < 4; i++) {
            s.dev->ops->copy(s.dev, buf[i], src, N * sizeof(float));
            s.dev->ops->accumulate(s.dev, src, src, N);
            OK(s.comm->ops->send(s.comm, buf[i], N, MW_ELEM_F32, 1, i, &sent[i],
                                 &s.err));
        }
        for (int i = 0; s.rank == 0 && i < 4; i++) {
            OK(s.comm->ops->wait(s.comm, &sent[i], &s.err));
            s.dev->ops->zero(s.dev, buf[i], N * sizeof(float));
        }
        for (int i = 0; s.rank == 1 && i < 4; i++) {
            float factor = (float)(1 << asked[i]);
            OK(s.comm->ops->recv(s.comm, buf[i], N, MW_ELEM_F32, 0, asked[i],
                                 &s.err));
            expect(&s, buf[i], N, 40.0f * factor, factor);
        }
        for (int i = 0; i < 4; i++) {
            drop(&s, buf[i], N);
        }
        drop(&s, src, N);
        OK(s.comm->ops->barrier(s.comm, &s.err));
        close_side(&s);
    }
}

static void test_no_channel(void **state)
{
    (void)state;
    struct side s;
    struct mw_comm *pair = NULL;
    struct mw_send sent = {NULL};
    open_side(&s, 1);
    OK(s.comm->ops->split(s.comm, s.rank / 2, s.rank, &pair, &s.err));
    float *buf = put(&s, N, 0.0f);
    assert_int_equal(pair->ops->send(pair, buf, N, MW_ELEM_F32, 1 - pair->rank,
                                     0, &sent, &s.err),
                     MW_EFAILED);
    assert_non_null(strstr(s.err.text, "no channel"));
    drop(&s, buf, N);
    pair->ops->free(pair);
    close_side(&s);
}

/* ---- failures
 * ---------------------------------------------------------------- */
/* A rank whose call fails says so, and its later calls do at once; the others,
 * which wait for it, give up after the time limit. */
static void test_failing_call(void **state)
{
    (void)state;
    struct side s;
    open_side(&s, 2);
    mw_cuda_set_timeout(s.dev, 0.5);
    float *buf = put(&s, N, 1.0f);
    if (s.rank == 0) {
        shim_fail_at(2); /* after cudaPointerGetAttributes: ncclAllReduce */
    }
    for (int i = 0; i < 2; i++) {
        mw_err_clear(&s.err);
        assert_int_equal(s.comm->ops->all_reduce(s.comm, buf, N, MW_ELEM_F32,
                                                 MW_REDUCE_SUM, &s.err),
                         MW_EBACKEND);
        assert_non_null(strstr(s.err.text, s.rank == 0
                                               ? "ncclAllReduce: made to fail"
                                               : "another rank has stopped"));
    }
    shim_fail_at(0);
    assert_int_equal(s.dev->ops->sync(s.dev, &s.err), MW_EBACKEND);
    drop(&s, buf, N);
    close_side(&s);
}

/* A rank that never comes: the others stop within the limit. */
static void test_missing_rank(void **state)
{
    (void)state;
    struct side s;
    open_side(&s, 3);
    mw_cuda_set_timeout(s.dev, 0.5);
    float *buf = put(&s, N, 1.0f);
    if (s.rank != 0) {
        int64_t begin_ns = mw_clock_wall_ns();
        assert_int_equal(s.comm->ops->all_reduce(s.comm, buf, N, MW_ELEM_F32,
                                                 MW_REDUCE_SUM, &s.err),
                         MW_EBACKEND);
        assert_true(mw_clock_wall_ns() - begin_ns >= 500000000);
        assert_non_null(strstr(s.err.text, "time limit"));
    }
    OK(s.host->ops->barrier(s.host, &s.err));
    drop(&s, buf, N);
    close_side(&s);
}

/* NCCL fails in the background: told at once and in its words, long before the
 * time limit; all communicators of the rank are gone. */
static void test_background_failure(void **state)
{
    (void)state;
    struct side s;
    open_side(&s, 4);
    float *buf = put(&s, N, 1.0f);
    shim_break_network(true);
    if (s.rank != 0) { /* rank 0 never comes, so none can end before */
        assert_int_equal(s.comm->ops->all_reduce(s.comm, buf, N, MW_ELEM_F32,
                                                 MW_REDUCE_SUM, &s.err),
                         MW_EBACKEND);
        assert_non_null(strstr(s.err.text, "another rank has failed"));
        assert_null(strstr(s.err.text, "time limit"));
        assert_true(((struct mw_cuda *)s.dev)->is_aborted);
    }
    OK(s.host->ops->barrier(s.host, &s.err));
    shim_break_network(false);
    drop(&s, buf, N);
    close_side(&s);
}

/* Everything between opening and closing, on a rank whose call k fails: a
 * status and a message, or the result. */
static enum mw_status short_run(struct side *s, float *buf)
{
    const struct mw_comm_ops *ops = s->comm->ops;
    struct mw_send sent = {NULL};
    int peer = 1 - s->rank;
    enum mw_status st =
        ops->all_reduce(s->comm, buf, N, MW_ELEM_F32, MW_REDUCE_SUM, &s->err);
    if (st == MW_OK) { /* of one element to each */
        st =
            ops->all_to_all(s->comm, buf, buf + N / 2, 1, MW_ELEM_F32, &s->err);
    }
    if (st == MW_OK) { /* 1 of rank 0, 2 of rank 1 */
        const size_t n[RANKS_MAX] = {1, 2};
        st = ops->all_gather_v(s->comm, buf, n, MW_ELEM_F32, &s->err);
        st = st == MW_OK
                 ? ops->reduce_scatter_v(s->comm, buf, n, MW_ELEM_F32, &s->err)
                 : st;
    }
    if (st == MW_OK) {
        st = ops->send(s->comm, buf, N, MW_ELEM_F32, peer, 1, &sent, &s->err);
    }
    if (st == MW_OK) {
        st = ops->wait(s->comm, &sent, &s->err);
    }
    return st;
}

/* Call k of rank 0 fails, k = 1, 2, ...; rank 1 goes on or gives up in time;
 * both close and nothing is left. (Only without receives: a rank that waits
 * for the host's header of a message waits in MPI, which mpirun ends.) */
static void test_each_call_fails(void **state)
{
    (void)state;
    int is_more = 1;
    for (int k = 1; is_more; k++) {
        struct side s;
        open_side(&s, (uint64_t)k);
        mw_cuda_set_timeout(s.dev, 0.2);
        float *buf = put(&s, N, 1.0f);
        if (s.size != 2) {
            is_more = 0;
        } else {
            shim_fail_at(s.rank == 0 ? k : 0);
            enum mw_status st = short_run(&s, buf);
            is_more = s.rank == 0 && shim_has_failed();
            shim_fail_at(0);
            assert_true(st == MW_OK || st == MW_EBACKEND);
            assert_true(st == MW_OK || s.err.len > 0);
        }
        OK(s.host->ops->broadcast(s.host, &is_more, sizeof is_more, 0, &s.err));
        /* Ends, or after the time limit aborts, sends that nobody receives;
         * cudaFree would wait for them. */
        s.comm->ops->free(s.comm);
        s.comm = NULL;
        drop(&s, buf, N);
        close_side(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_host_buffers),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_no_channel),
        cmocka_unit_test(test_failing_call),
        cmocka_unit_test(test_missing_rank),
        cmocka_unit_test(test_background_failure),
        cmocka_unit_test(test_each_call_fails),
    };
    MPI_Init(&argc, &argv);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
