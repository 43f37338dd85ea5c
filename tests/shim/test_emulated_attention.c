/*
 * The attention kernels, run by the thread emulator, against the host's:
 * float32 on "CUDA cores", bfloat16 on "tensor cores", where probabilities and
 * their gradients are rounded once more before the second product.
 */
#include "tests/shim/emulated.h"

#include "base/mem.h"

#include <string.h>

/* ---- attention
 * ----------------------------------------------------------------- */
static void attention_case(enum mw_k_elem e, struct mw_k_attention h, int seeds)
{
    size_t rows = (size_t)(h.n_seqs * h.seq);
    size_t nq = rows * (size_t)h.ld_q, nkv = rows * (size_t)h.ld_kv;
    size_t no = rows * (size_t)(h.n_heads * h.head_dim);
    size_t nl = rows * (size_t)h.n_heads;
    float *q = randoms(nq, 1), *k = randoms(nkv, 2), *v = randoms(nkv, 3);
    float *dout = randoms(no, 4), *out = mw_calloc(no, 4);
    for (size_t i = 0; i < nq; i++) {
        q[i] *= 3.0f; /* scores apart, so that the running maximum moves */
    }
    float *lse = mw_calloc(nl, 4), *dq = mw_calloc(nq, 4);
    float *dk = mw_calloc(nkv, 4), *dv = mw_calloc(nkv, 4);
    float *scratch = mw_calloc(mw_k_attention_scratch(&h), 4);
    void *tq = typed(q, nq, e), *tk = typed(k, nkv, e), *tv = typed(v, nkv, e),
         *tdout = typed(dout, no, e);
    struct mw_k_attention_io io = {q,    k,    v,    out,  lse,
                                   NULL, NULL, NULL, NULL, scratch};
    mw_k_attention_fwd(&h, &io);
    io.dout = dout;
    io.dq = dq;
    io.dk = dk;
    io.dv = dv;
    mw_k_attention_bwd(&h, &io);
    void *first = NULL;
    for (int seed = 0; seed < seeds; seed++) {
        void *to = mw_calloc(no, 4), *tdq = mw_calloc(nq, 4),
             *tdk = mw_calloc(nkv, 4), *tdv = mw_calloc(nkv, 4);
        float *l = mw_calloc(nl, 4);
        float *delta = mw_calloc(mw_k_attention_scratch_cuda(&h), 4);
        const struct mw_k_attention_cuda a = {e, h,     tq,  tk,  tv,  to,
                                              l, tdout, tdq, tdk, tdv, delta};
        mw_emulate_seed((uint64_t)seed);
        assert_int_equal(mw_k_attention_fwd_cuda(&a, NULL), 0);
        check_steps("attention out", out, to, no, e, 2);
        check("attention lse", lse, l, nl, MW_K_F32);
        assert_int_equal(mw_k_attention_bwd_cuda(&a, NULL), 0);
        check_steps("attention dv", dv, tdv, nkv, e, 2);
        check_steps("attention dk", dk, tdk, nkv, e, 2);
        check_steps("attention dq", dq, tdq, nq, e, 2);
        if (seeds > 1) {
            check_same(&first, tdk, nkv * elem_bytes(e), seed);
        }
        void *all[] = {to, tdq, tdk, tdv, l, delta};
        free_all(all, sizeof all / sizeof *all);
    }
    void *all[] = {q,  k,  v,       dout, out, lse, dq,
                   dk, dv, scratch, tq,   tk,  tv,  tdout};
    free_all(all, sizeof all / sizeof *all);
}

/* Shapes: several tiles with a ragged last one; grouped queries; a head
 * dimension that is no multiple of a slice; rows wider than the heads. */
static void test_attention(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum mw_k_elem e = (enum mw_k_elem)i;
        attention_case(e, (struct mw_k_attention){1, 150, 2, 2, 16, 32, 32},
                       N_SEEDS);
        attention_case(e, (struct mw_k_attention){2, 65, 4, 2, 40, 170, 90}, 1);
    }
    attention_case(MW_K_F32,
                   (struct mw_k_attention){1, 64, 1, 1, 128, 128, 128}, 1);
    attention_case(MW_K_BF16,
                   (struct mw_k_attention){1, 70, 2, 1, 256, 512, 256}, 1);
    attention_case(MW_K_F32, (struct mw_k_attention){3, 1, 1, 1, 8, 8, 8}, 1);
}

/* ---- parts ----------------------------------------------------------------
 */
/* Queries and keys of one sequence, as context parallelism has them. */
struct meeting {
    int queries, keys, first;
};

/* A part's output and gradients against the host's, gradients added to what is
 * there. */
static void part_case(enum mw_k_elem e, struct meeting m, int dim, int seeds)
{
    const struct mw_k_attention h = {1, m.keys, 4, 2, dim, 4 * dim, 2 * dim};
    const struct mw_k_queries own = {.first = m.first,
                                     .n = m.queries,
                                     .ld_lse = m.queries + 3,
                                     .adds_dq = true};
    size_t nq = (size_t)(m.queries * h.ld_q), nkv = (size_t)(m.keys * h.ld_kv);
    size_t nl = (size_t)(h.n_heads * own.ld_lse);
    float *q = randoms(nq, 1), *k = randoms(nkv, 2), *v = randoms(nkv, 3);
    float *dout = randoms(nq, 4), *dq = randoms(nq, 5), *dk = randoms(nkv, 6);
    float *dv = randoms(nkv, 7), *out = mw_calloc(nq, 4);
    float *lse = mw_calloc(nl, 4), *scratch = mw_calloc(1 << 16, 4);
    void *in[] = {typed(q, nq, e),    typed(k, nkv, e), typed(v, nkv, e),
                  typed(dout, nq, e), typed(dq, nq, e), typed(dk, nkv, e),
                  typed(dv, nkv, e)};
    struct mw_k_attention_io io = {q,    k,  v,  out, lse,
                                   dout, dq, dk, dv,  scratch};
    void *first = NULL;
    mw_k_attention_part_fwd(&h, &own, &io);
    mw_k_attention_part_bwd(&h, &own, &io);
    for (int seed = 0; seed < seeds; seed++) {
        void *to = mw_calloc(nq, 4), *g[3];
        float *l = mw_calloc(nl, 4), *delta = mw_calloc(nl, 4);
        for (int i = 0; i < 3; i++) {
            size_t n = i == 0 ? nq : nkv;
            g[i] = mw_calloc(n, 4);
            memcpy(g[i], in[4 + i], n * elem_bytes(e));
        }
        const struct mw_k_attention_cuda a = {
            e, h, in[0], in[1], in[2], to, l, in[3], g[0], g[1], g[2], delta};
        mw_emulate_seed((uint64_t)seed);
        assert_int_equal(mw_k_attention_part_fwd_cuda(&a, &own, NULL), 0);
        check_steps("part out", out, to, nq, e, 2);
        check("part lse", lse, l, nl, MW_K_F32);
        assert_int_equal(mw_k_attention_part_bwd_cuda(&a, &own, NULL), 0);
        check_steps("part dq", dq, g[0], nq, e, 2);
        check_steps("part dk", dk, g[1], nkv, e, 2);
        check_steps("part dv", dv, g[2], nkv, e, 2);
        check_same(&first, g[1], nkv * elem_bytes(e), seed);
        void *all[] = {to, l, delta, g[0], g[1], g[2]};
        free_all(all, sizeof all / sizeof *all);
    }
    mw_free(first); /* fewer seeds than check_same waits for */
    void *all[] = {q,       k,     v,     dout,  dq,    dk,    dv,    out,  lse,
                   scratch, in[0], in[1], in[2], in[3], in[4], in[5], in[6]};
    free_all(all, sizeof all / sizeof *all);
}

/* The end of a sequence; a part that sees all keys; late keys that no query of
 * the first tile sees; fewer queries than keys and more. */
static void test_parts(void **state)
{
    (void)state;
    static const struct meeting cases[] = {
        {70, 150, 80}, {130, 65, 65}, {40, 200, 200}, {150, 90, 0}, {3, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        part_case(MW_K_F32, cases[i], 16, i == 0 ? N_SEEDS : 1);
        part_case(MW_K_BF16, cases[i], 40, i == 1 ? N_SEEDS : 1);
    }
}

static void merge_case(enum mw_k_elem e)
{
    const struct mw_k_merge m = {
        .rows = 9, .n_heads = 3, .head_dim = 40, .ld_lse = 12};
    size_t n = 9 * 3 * 40, nl = 3 * 12;
    float *out = randoms(n, 1), *part = randoms(n, 2), *lse = randoms(nl, 3),
          *part_lse = randoms(nl, 4), *l = mw_calloc(nl, 4);
    void *to = typed(out, n, e), *tp = typed(part, n, e);
    memcpy(l, lse, nl * 4);
    mw_k_attention_merge(&m, out, lse, part, part_lse);
    assert_int_equal(
        mw_k_attention_merge_cuda(e, &m, to, l, tp, part_lse, NULL), 0);
    check("merged out", out, to, n, e);
    check("merged lse", lse, l, nl, MW_K_F32);
    void *all[] = {out, part, lse, part_lse, l, to, tp};
    free_all(all, sizeof all / sizeof *all);
}

static void test_merge(void **state)
{
    (void)state;
    merge_case(MW_K_F32);
    merge_case(MW_K_BF16);
}

static void test_attention_refuses(void **state)
{
    (void)state;
    const struct mw_k_attention_cuda a = {
        .shape = {1, 1, 1, 1, MW_K_HEAD_DIM_MAX + 1, 1, 1}};
    assert_int_not_equal(mw_k_attention_fwd_cuda(&a, NULL), 0);
    assert_int_not_equal(mw_k_attention_bwd_cuda(&a, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_attention_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
