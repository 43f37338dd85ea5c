/*
 * The attention kernels, run by the thread emulator, against the host's:
 * float32 on "CUDA cores", bfloat16 on "tensor cores", where probabilities and
 * their gradients are rounded once more before the second product.
 */
#include "tests/shim/emulated.h"

#include "base/mem.h"

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
        cmocka_unit_test(test_attention_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
