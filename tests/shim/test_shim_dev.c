/*
 * The CUDA device table on the stand-in, against the host's table: the same
 * calls on both, results equal to the bit (the stand-in's kernels are the
 * host's). Then every call of the libraries fails in turn.
 */
#include "mw_test.h"

#include "base/mem.h"
#include "base/rand.h"
#include "exec/cuda/cuda_int.h"
#include "exec/cuda/mw_cuda.h"
#include "tests/shim/shim.h"

#include <math.h>
#include <string.h>

/* A small layer: rows of two sequences, two heads, one of keys and values. */
enum {
    SEQ = 9,
    SEQS = 2,
    ROWS = SEQ * SEQS,
    HEADS = 2,
    DIM = 6,
    HIDDEN = HEADS * DIM,
    QKV = HIDDEN + 2 * DIM,
    FFN = 20,
    VOCAB = 31,
    FLAT = 4096
};

/* What the pass below leaves behind. */
struct outcome {
    double loss;
    float all[16 * ROWS * 64];
    size_t n;
    size_t peak_bytes;
};

struct pass {
    struct mw_dev *dev;
    float *flat[24];
    int n_flat;
    struct outcome *out;
};

/* A device buffer of n random floats. */
static float *make(struct pass *p, size_t n)
{
    float *host = mw_calloc(n, sizeof *host);
    for (size_t i = 0; i < n; i++) {
        host[i] = (float)(mw_rand_u64(5, (uint64_t)p->n_flat, i) >> 40) /
                      (float)(1 << 23) -
                  1.0f;
    }
    float *d = p->dev->ops->alloc(p->dev, FLAT * sizeof *d);
    assert_true(n <= FLAT && p->n_flat < 24);
    p->dev->ops->to_device(p->dev, d, host, n * sizeof *host);
    mw_free(host);
    p->flat[p->n_flat++] = d;
    return d;
}

static void keep(struct pass *p, const float *d, size_t n)
{
    struct outcome *o = p->out;
    assert_true(o->n + n <= sizeof o->all / sizeof *o->all);
    p->dev->ops->to_host(p->dev, o->all + o->n, d, n * sizeof *d);
    o->n += n;
}

static void run_attention(struct pass *p, float *qkv, float *dqkv)
{
    const struct mw_dev_ops *d = p->dev->ops;
    float *att = make(p, 1), *lse = make(p, 1), *dout = make(p, ROWS * HIDDEN);
    struct mw_dev_attention a = {.n_seqs = SEQS,
                                 .seq = SEQ,
                                 .n_heads = HEADS,
                                 .n_kv_heads = 1,
                                 .head_dim = DIM,
                                 .ld_q = QKV,
                                 .ld_kv = QKV,
                                 .q = qkv,
                                 .k = qkv + HIDDEN,
                                 .v = qkv + HIDDEN + DIM,
                                 .out = att,
                                 .lse = lse};
    size_t bytes = d->attention_scratch(&a);
    void *scratch = d->alloc(p->dev, bytes);
    a.scratch = scratch;
    d->rotary(p->dev, qkv, ROWS, QKV, SEQ, HEADS, DIM, 1);
    d->attention_fwd(p->dev, &a);
    a.dout = dout;
    a.dq = dqkv;
    a.dk = dqkv + HIDDEN;
    a.dv = dqkv + HIDDEN + DIM;
    d->attention_bwd(p->dev, &a);
    d->rotary(p->dev, dqkv, ROWS, QKV, SEQ, HEADS, DIM, -1);
    keep(p, att, ROWS * HIDDEN);
    keep(p, dqkv, ROWS * QKV);
    d->free(p->dev, scratch, bytes);
}

static void run_mlp(struct pass *p, float *x, float *y)
{
    const struct mw_dev_ops *d = p->dev->ops;
    float *gamma = make(p, HIDDEN), *beta = make(p, HIDDEN);
    float *w = make(p, FFN * HIDDEN), *dw = make(p, FFN * HIDDEN);
    float *stats = make(p, 1), *h = make(p, 1);
    const struct mw_dev_norm n = {.kind = MW_NORM_LAYER,
                                  .x = x,
                                  .gamma = gamma,
                                  .beta = beta,
                                  .mean = stats,
                                  .rstd = stats + ROWS,
                                  .rows = ROWS,
                                  .width = HIDDEN};
    d->norm_fwd(p->dev, &n, y);
    d->linear_fwd(p->dev, h, y, w + 3, w, ROWS, FFN - 1, HIDDEN);
    d->act_fwd(p->dev, false, h, h, ROWS, FFN - 1);
    d->act_bwd(p->dev, false, h, h, h, ROWS, FFN - 1);
    d->linear_bwd_weight(p->dev, dw, stats + 2 * ROWS, h, y, ROWS, FFN - 1,
                         HIDDEN);
    d->linear_bwd_input(p->dev, y, h, w + 3, ROWS, FFN - 1, HIDDEN);
    d->norm_bwd_param(p->dev, &n, gamma, beta, y);
    d->norm_bwd_input(p->dev, &n, h, y);
    d->add(p->dev, y, h, beta, x, ROWS, HIDDEN);
    keep(p, y, ROWS * HIDDEN);
    keep(p, dw, FFN * HIDDEN);
    keep(p, gamma, HIDDEN);
    keep(p, stats, 2 * ROWS + FFN - 1);
}

static void run_ends(struct pass *p, float *x)
{
    const struct mw_dev_ops *d = p->dev->ops;
    int32_t ids[ROWS];
    float *table = make(p, VOCAB * HIDDEN), *stats = make(p, 1);
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (int32_t)(i * 7 % VOCAB);
    }
    int32_t *token = d->alloc(p->dev, sizeof ids);
    d->to_device(p->dev, token, ids, sizeof ids);
    const struct mw_dev_vocab v = {token, ROWS, HIDDEN, 2, VOCAB - 5};
    const struct mw_dev_xent e = {
        x, stats, stats + ROWS, stats + 2 * ROWS, token, ROWS, 0, HIDDEN};
    const struct mw_dev_adamw h = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 3};
    d->embedding_fwd(p->dev, &v, x, table);
    d->position_fwd(p->dev, x, table, ROWS, HIDDEN, SEQ);
    d->xent_max(p->dev, &e);
    d->xent_sum(p->dev, &e);
    p->out->loss = d->xent_loss(p->dev, &e);
    d->xent_bwd(p->dev, &e, x, 0.5f);
    d->embedding_bwd(p->dev, &v, table, x);
    d->position_bwd(p->dev, table, x, ROWS, HIDDEN, SEQ);
    d->bias_bwd(p->dev, stats, x, ROWS, HIDDEN);
    d->accumulate(p->dev, table + 5, table + 200, 100);
    d->zero(p->dev, stats + 4 * ROWS, 64 * sizeof(float));
    d->adamw(p->dev, &h, table, NULL, x, stats + 4 * ROWS, stats + 5 * ROWS,
             ROWS);
    d->copy(p->dev, x + ROWS, table, 8 * sizeof(float));
    keep(p, table, VOCAB * HIDDEN);
    keep(p, x, ROWS * HIDDEN);
    d->free(p->dev, token, sizeof ids);
}

/* Four experts, of which the third gets nothing; sums of both halves, and what
 * moves rows. */
static void run_experts(struct pass *p)
{
    enum { N = 4, K = 2, SENT = ROWS * K, WIDE = 16, OUT = 24 };
    const struct mw_dev_expert_ops *e = p->dev->ops->experts;
    const struct mw_dev_ops *d = p->dev->ops;
    float *probs = make(p, ROWS * N), *x = make(p, ROWS * WIDE);
    float *w = make(p, N * OUT * WIDE), *more = make(p, FLAT);
    float *sent = make(p, SENT * WIDE), *y = make(p, SENT * OUT);
    int32_t *ints = d->alloc(p->dev, 4 * 64 * sizeof *ints);
    int32_t *choice = ints, *place = ints + 64, *from = ints + 128;
    int32_t *first = ints + 192, host_first[N + 1] = {0};
    int64_t leaving[N], *counts = d->alloc(p->dev, N * sizeof *counts);
    const struct mw_k_sort sort = {choice, SENT, N, K, place, from, counts};
    /* One source: order and home are not looked at. */
    const struct mw_k_order order = {counts, 1, N, place + 36, from, first};
    e->route_fwd(p->dev, probs, choice, more, ROWS, N, K);
    e->sort(p->dev, &sort);
    d->to_host(p->dev, leaving, counts, sizeof leaving);
    e->gather(p->dev, sent, x, from, SENT, WIDE);
    e->order(p->dev, &order);
    for (int i = 0; i < N; i++) {
        int64_t n = leaving[i];
        bool is_right = n >= 0 && host_first[i] + n <= SENT;
        host_first[i + 1] = host_first[i] + (int32_t)(is_right ? n : 0);
    }
    const struct mw_dev_groups g = {N, OUT, WIDE, first, host_first};
    e->groups_fwd(p->dev, &g, y, sent, w);
    e->groups_bwd_weight(p->dev, &g, w, y, sent);
    e->groups_bwd_input(p->dev, &g, sent, y, w);
    e->combine(p->dev, x, sent, place, more, x, ROWS, K, WIDE);
    keep(p, x, ROWS * WIDE);
    e->combine_bwd(p->dev, sent, more + 64, x, sent + 8, place, more, ROWS, K,
                   WIDE);
    e->route_bwd(p->dev, y, more + 64, probs, choice, more, more + 200, ROWS, N,
                 K);
    e->gate_bwd(p->dev, sent, more + 300, x, y, more + 400, ROWS, WIDE);
    e->gate_fwd(p->dev, x, sent, more + 400, ROWS, WIDE);
    keep(p, x, ROWS * WIDE);
    keep(p, w, N * OUT * WIDE);
    keep(p, y, ROWS * N);
    keep(p, more + 300, ROWS);
    d->free(p->dev, ints, 4 * 64 * sizeof *ints);
    d->free(p->dev, counts, N * sizeof *counts);
}

static enum mw_status run_pass(struct mw_dev *dev, struct outcome *out,
                               struct mw_err *err)
{
    struct pass p = {.dev = dev, .out = out};
    out->n = 0;
    float *x = make(&p, ROWS * HIDDEN), *y = make(&p, 1);
    float *qkv = make(&p, ROWS * QKV), *dqkv = make(&p, 1);
    run_attention(&p, qkv, dqkv);
    run_mlp(&p, x, y);
    run_ends(&p, x);
    run_experts(&p);
    enum mw_status st = dev->ops->sync(dev, err);
    out->peak_bytes = dev->peak_bytes;
    for (int i = 0; i < p.n_flat; i++) {
        dev->ops->free(dev, p.flat[i], FLAT * sizeof(float));
    }
    return st;
}

static enum mw_status run_on(const struct mw_dev_ops *ops, struct outcome *out,
                             struct mw_err *err)
{
    struct mw_dev *dev = NULL;
    enum mw_status st = ops->open(0, &dev, err);
    if (st == MW_OK) {
        st = run_pass(dev, out, err);
        assert_int_equal(st == MW_OK ? dev->used_bytes : 0, 0);
        ops->close(dev);
    }
    return st;
}

static void test_equals_host(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct outcome *host = mw_calloc(2, sizeof *host), *cuda = host + 1;
    assert_int_equal(run_on(&mw_dev_host, host, &err), MW_OK);
    for (uint64_t seed = 0; seed < 20; seed++) {
        shim_seed(seed);
        assert_int_equal(run_on(&mw_dev_cuda, cuda, &err), MW_OK);
        assert_int_equal(cuda->n, host->n);
        assert_memory_equal(cuda->all, host->all, host->n * sizeof(float));
        mw_assert_near(cuda->loss, host->loss, 0.0, 0.0);
        assert_int_equal(shim_live(), 0);
    }
    assert_true(isfinite(host->loss) && host->n > 1000);
    mw_free(host);
}

/* Products of experts one by one, through the library. */
static void test_large_groups(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_dev *dev = NULL;
    struct outcome *host = mw_calloc(2, sizeof *host), *cuda = host + 1;
    assert_int_equal(run_on(&mw_dev_host, host, &err), MW_OK);
    assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_OK);
    ((struct mw_cuda *)dev)->small_group_flops = 0.0;
    assert_int_equal(run_pass(dev, cuda, &err), MW_OK);
    assert_memory_equal(cuda->all, host->all, host->n * sizeof(float));
    dev->ops->close(dev);
    mw_free(host);
}

/* Every number of rows is another shape to the library: what is kept of them
 * has an end, and those that come again are made again. */
static void test_many_shapes(void **state)
{
    (void)state;
    enum { SHAPES = 600, KEPT_MAX = 256 * 4 + 32 };
    struct mw_err err = {0};
    struct mw_dev *dev = NULL;
    float *one = mw_calloc(SHAPES, sizeof *one);
    assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_OK);
    float *x = dev->ops->alloc(dev, SHAPES * sizeof *x);
    float *y = dev->ops->alloc(dev, SHAPES * sizeof *y);
    for (int i = 0; i < SHAPES; i++) {
        one[i] = (float)(i + 1);
    }
    dev->ops->to_device(dev, x, one, SHAPES * sizeof *x);
    for (int round = 0; round < 2; round++) {
        for (int m = 1; m <= SHAPES; m++) {
            dev->ops->linear_fwd(dev, y, x, x + 1, NULL, m, 1, 1);
        }
        assert_int_equal(dev->ops->sync(dev, &err), MW_OK);
        assert_true(shim_live() < KEPT_MAX);
    }
    dev->ops->to_host(dev, one, y, SHAPES * sizeof *y);
    assert_true(one[0] == 2.0f && one[SHAPES - 1] == 2.0f * SHAPES);
    dev->ops->free(dev, x, SHAPES * sizeof *x);
    dev->ops->free(dev, y, SHAPES * sizeof *y);
    dev->ops->close(dev);
    assert_int_equal(shim_live(), 0);
    mw_free(one);
}

/* Call k fails for k = 1, 2, ...: a message and nothing left behind. */
static void test_every_call_fails(void **state)
{
    (void)state;
    struct outcome *out = mw_calloc(1, sizeof *out);
    int64_t k = 0;
    int n_failed = 0;
    shim_seed(3);
    do {
        struct mw_err err = {0};
        shim_fail_at(++k);
        enum mw_status st = run_on(&mw_dev_cuda, out, &err);
        assert_true(st == MW_OK || st == MW_EBACKEND || st == MW_EMISSING);
        assert_true(st == MW_OK || err.len > 0);
        assert_int_equal(shim_live(), 0);
        n_failed += st != MW_OK;
    } while (shim_has_failed());
    shim_fail_at(0);
    assert_true(k > 150);
    assert_true(n_failed > k * 3 / 4); /* the rest gives something back */
    mw_free(out);
}

static void test_without_driver(void **state)
{
    (void)state;
    for (int n = -1; n <= 0; n++) {
        struct mw_err err = {0};
        struct mw_dev *dev = NULL;
        shim_set_devices(n);
        assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_EMISSING);
        assert_non_null(strstr(err.text, "--backend host"));
        assert_null(dev);
        assert_int_equal(shim_live(), 0);
    }
    shim_set_devices(1);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_dev *dev = NULL;
    assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_OK);
    assert_null(dev->ops->alloc(dev, (size_t)1 << 40));
    assert_int_equal(dev->used_bytes, 0);
    dev->ops->zero(dev, NULL, 16); /* skipped */
    assert_int_equal(dev->ops->sync(dev, &err), MW_EBACKEND);
    assert_non_null(strstr(err.text, "cudaMalloc: out of memory"));
    dev->ops->close(dev);
    assert_int_equal(shim_live(), 0);
}

/* Copies outside of what was allocated are refused, and reported at sync. */
static void test_strict_copies(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_dev *dev = NULL;
    char host[64] = {0};
    assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_OK);
    char *p = dev->ops->alloc(dev, 64);
    dev->ops->to_device(dev, p + 1, host, 64);
    assert_int_equal(dev->ops->sync(dev, &err), MW_EBACKEND);
    assert_non_null(strstr(err.text, "cudaMemcpyAsync"));
    dev->ops->free(dev, p, 64);
    dev->ops->close(dev);
}

/* Fresh memory of the stand-in is NaN; the table's is zero. */
static void test_fresh_memory(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_dev *dev = NULL;
    float host[8];
    void *raw = NULL;
    assert_int_equal(mw_dev_cuda.open(0, &dev, &err), MW_OK);
    assert_int_equal(cudaMalloc(&raw, sizeof host), cudaSuccess);
    dev->ops->to_host(dev, host, raw, sizeof host);
    assert_true(isnan(host[0]) && isnan(host[7]));
    float *p = dev->ops->alloc(dev, sizeof host);
    dev->ops->to_host(dev, host, p, sizeof host);
    assert_true(host[0] == 0.0f && host[7] == 0.0f);
    dev->ops->free(dev, p, sizeof host);
    cudaFree(raw);
    int64_t before = dev->ops->busy_ns(dev);
    assert_true(dev->ops->busy_ns(dev) >= before);
    dev->ops->close(dev);
}

/*
 * The stand-in finds a missing wait: a copy on a second stream that does not
 * wait for the first reads too early under some seed, and never with an event.
 */
static void test_finds_missing_wait(void **state)
{
    (void)state;
    int n_wrong[2] = {0, 0};
    for (int has_wait = 0; has_wait < 2; has_wait++) {
        for (uint64_t seed = 0; seed < 40; seed++) {
            cudaStream_t a, b;
            cudaEvent_t e;
            void *p = NULL;
            unsigned char host[4] = {0};
            shim_seed(seed);
            cudaStreamCreateWithFlags(&a, 0);
            cudaStreamCreateWithFlags(&b, 0);
            cudaEventCreate(&e);
            cudaMalloc(&p, 4);
            cudaMemsetAsync(p, 5, 4, a);
            cudaEventRecord(e, a);
            if (has_wait) {
                cudaStreamWaitEvent(b, e, 0);
            }
            cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, b);
            cudaStreamSynchronize(b);
            n_wrong[has_wait] += host[0] != 5;
            cudaFree(p);
            cudaEventDestroy(e);
            cudaStreamDestroy(a);
            cudaStreamDestroy(b);
        }
    }
    assert_true(n_wrong[0] > 5);
    assert_int_equal(n_wrong[1], 0);
    assert_int_equal(shim_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_host),
        cmocka_unit_test(test_large_groups),
        cmocka_unit_test(test_many_shapes),
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_without_driver),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_strict_copies),
        cmocka_unit_test(test_fresh_memory),
        cmocka_unit_test(test_finds_missing_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
