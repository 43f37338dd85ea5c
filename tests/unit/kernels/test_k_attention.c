/*
 * Causal attention against a double reference, and its gradients against
 * difference quotients of that reference: one block of queries, several
 * blocks with a ragged last one, grouped queries, several sequences, and a
 * fused buffer. Rotary: rotation keeps lengths, backward undoes forward.
 */
#include "k_reference.h"

#include "base/mem.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

struct problem {
    struct mw_k_attention a;
    size_t n_q, n_kv, n_out;
    float *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv, *scratch;
    double *rq, *rk, *rv, *rout;
};

static float *random_floats(size_t n, uint64_t stream)
{
    float *x = mw_calloc(n, sizeof *x);
    ref_fill(x, n, stream);
    return x;
}

static double *doubles(const float *x, size_t n)
{
    double *d = mw_calloc(n, sizeof *d);
    for (size_t i = 0; i < n; i++) {
        d[i] = (double)x[i];
    }
    return d;
}

static void problem_make(struct problem *p, int n_seqs, int seq, int nh,
                         int nkv, int d)
{
    size_t rows = (size_t)n_seqs * (size_t)seq;
    p->a = (struct mw_k_attention){n_seqs, seq, nh, nkv, d, nh * d, nkv * d};
    p->n_q = p->n_out = rows * (size_t)(nh * d);
    p->n_kv = rows * (size_t)(nkv * d);
    p->q = random_floats(p->n_q, 1);
    p->k = random_floats(p->n_kv, 2);
    p->v = random_floats(p->n_kv, 3);
    p->dout = random_floats(p->n_out, 4);
    p->out = mw_calloc(p->n_out, sizeof(float));
    p->lse = mw_calloc(rows * (size_t)nh, sizeof(float));
    p->dq = random_floats(p->n_q, 5); /* must be overwritten */
    p->dk = random_floats(p->n_kv, 6);
    p->dv = random_floats(p->n_kv, 7);
    p->scratch = mw_calloc(mw_k_attention_scratch(&p->a), sizeof(float));
    p->rq = doubles(p->q, p->n_q);
    p->rk = doubles(p->k, p->n_kv);
    p->rv = doubles(p->v, p->n_kv);
    p->rout = mw_calloc(p->n_out, sizeof(double));
}

static void problem_free(struct problem *p)
{
    float *f[] = {p->q,    p->k,  p->v,  p->out, p->lse,
                  p->dout, p->dq, p->dk, p->dv,  p->scratch};
    double *d[] = {p->rq, p->rk, p->rv, p->rout};
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
        mw_free(f[i]);
    }
    for (size_t i = 0; i < sizeof d / sizeof *d; i++) {
        mw_free(d[i]);
    }
}

/* L = sum dout * attention, as a function of one of q, k, v. */
static double objective(struct problem *p, const double *q, const double *k,
                        const double *v)
{
    const struct mw_k_attention *a = &p->a;
    double sum = 0.0;
    ref_attention(p->rout, q, k, v, a->n_seqs, a->seq, a->n_heads,
                  a->n_kv_heads, a->head_dim);
    for (size_t i = 0; i < p->n_out; i++) {
        sum += p->rout[i] * (double)p->dout[i];
    }
    return sum;
}

static double of_q(const double *x, void *arg)
{
    struct problem *p = arg;
    return objective(p, x, p->rk, p->rv);
}

static double of_k(const double *x, void *arg)
{
    struct problem *p = arg;
    return objective(p, p->rq, x, p->rv);
}

static double of_v(const double *x, void *arg)
{
    struct problem *p = arg;
    return objective(p, p->rq, p->rk, x);
}

static void check(int n_seqs, int seq, int nh, int nkv, int d)
{
    struct problem p;
    problem_make(&p, n_seqs, seq, nh, nkv, d);
    struct mw_k_attention_io io = {p.q,    p.k,  p.v,  p.out, p.lse,
                                   p.dout, p.dq, p.dk, p.dv,  p.scratch};
    mw_k_attention_fwd(&p.a, &io);
    ref_attention(p.rout, p.rq, p.rk, p.rv, n_seqs, seq, nh, nkv, d);
    ref_assert_close(p.out, p.rout, p.n_out, 2e-6, "out");
    mw_k_attention_bwd(&p.a, &io);
    ref_assert_gradient(of_q, &p, p.q, p.n_q, p.dq, 2e-5, "dq");
    ref_assert_gradient(of_k, &p, p.k, p.n_kv, p.dk, 2e-5, "dk");
    ref_assert_gradient(of_v, &p, p.v, p.n_kv, p.dv, 2e-5, "dv");
    problem_free(&p);
}

static void one_block(void **state)
{
    (void)state;
    check(1, 5, 1, 1, 4);
}

static void ragged_blocks_of_two_sequences(void **state)
{
    (void)state;
    check(2, 70, 2, 2, 8);
}

static void grouped_queries(void **state)
{
    (void)state;
    check(2, 9, 6, 2, 4);
}

/* The first row of a causal attention is its own value. */
static void first_row_is_its_value(void **state)
{
    (void)state;
    struct problem p;
    problem_make(&p, 1, 3, 1, 1, 4);
    struct mw_k_attention_io io = {.q = p.q,
                                   .k = p.k,
                                   .v = p.v,
                                   .out = p.out,
                                   .lse = p.lse,
                                   .scratch = p.scratch};
    mw_k_attention_fwd(&p.a, &io);
    for (int i = 0; i < 4; i++) {
        assert_true(p.out[i] == p.v[i]);
    }
    problem_free(&p);
}

/* Fused [q | k | v] rows give the bits that separate buffers give. */
static void fused_buffer_is_the_same(void **state)
{
    (void)state;
    struct problem p;
    problem_make(&p, 1, 66, 2, 2, 4);
    struct mw_k_attention_io io = {p.q,    p.k,  p.v,  p.out, p.lse,
                                   p.dout, p.dq, p.dk, p.dv,  p.scratch};
    mw_k_attention_fwd(&p.a, &io);
    mw_k_attention_bwd(&p.a, &io);
    size_t rows = 66, w = 8;
    float *qkv = mw_calloc(rows * 3 * w, sizeof *qkv);
    float *dqkv = mw_calloc(rows * 3 * w, sizeof *dqkv);
    float *out = mw_calloc(p.n_out, sizeof *out);
    for (size_t r = 0; r < rows; r++) {
        memcpy(qkv + r * 3 * w, p.q + r * w, w * sizeof *qkv);
        memcpy(qkv + r * 3 * w + w, p.k + r * w, w * sizeof *qkv);
        memcpy(qkv + r * 3 * w + 2 * w, p.v + r * w, w * sizeof *qkv);
    }
    struct mw_k_attention fused = p.a;
    fused.ld_q = fused.ld_kv = 24;
    struct mw_k_attention_io fio = {
        qkv,    qkv + w, qkv + 2 * w, out,          p.lse,
        p.dout, dqkv,    dqkv + w,    dqkv + 2 * w, p.scratch};
    mw_k_attention_fwd(&fused, &fio);
    mw_k_attention_bwd(&fused, &fio);
    assert_memory_equal(out, p.out, p.n_out * sizeof *out);
    for (size_t r = 0; r < rows; r++) {
        assert_memory_equal(dqkv + r * 3 * w, p.dq + r * w, w * sizeof(float));
        assert_memory_equal(dqkv + r * 3 * w + w, p.dk + r * w,
                            w * sizeof(float));
    }
    mw_free(qkv);
    mw_free(dqkv);
    mw_free(out);
    problem_free(&p);
}

static void assert_same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mw_assert_near((double)a[i], (double)b[i], 1e-5, 1e-5);
    }
}

/* 70 queries as 0..29 and 30..69, each against the keys of the whole: outputs
 * and dq in their places, dk and dv summed. */
static void parts_make_the_whole(void **state)
{
    (void)state;
    struct problem whole, part;
    const int first[] = {30, 0}, n[] = {40, 30};
    problem_make(&whole, 1, 70, 4, 2, 8);
    problem_make(&part, 1, 70, 4, 2, 8);
    struct mw_k_attention_io io = {whole.q,   whole.k,      whole.v,  whole.out,
                                   whole.lse, whole.dout,   whole.dq, whole.dk,
                                   whole.dv,  whole.scratch};
    mw_k_attention_fwd(&whole.a, &io);
    mw_k_attention_bwd(&whole.a, &io);
    memset(part.dk, 0, part.n_kv * sizeof(float));
    memset(part.dv, 0, part.n_kv * sizeof(float));
    for (int i = 0; i < 2; i++) {
        size_t at = (size_t)first[i] * 32;
        const struct mw_k_queries own = {
            .first = first[i], .n = n[i], .ld_lse = 70};
        struct mw_k_attention_io pio = {part.q + at,
                                        part.k,
                                        part.v,
                                        part.out + at,
                                        part.lse + first[i],
                                        part.dout + at,
                                        part.dq + at,
                                        part.dk,
                                        part.dv,
                                        part.scratch};
        mw_k_attention_part_fwd(&part.a, &own, &pio);
        mw_k_attention_part_bwd(&part.a, &own, &pio);
    }
    assert_same(part.out, whole.out, whole.n_out);
    assert_same(part.lse, whole.lse, 70 * 4);
    assert_same(part.dq, whole.dq, whole.n_q);
    assert_same(part.dk, whole.dk, whole.n_kv);
    assert_same(part.dv, whole.dv, whole.n_kv);
    problem_free(&whole);
    problem_free(&part);
}

/* What is made of out may be brought instead: to the bit, without out. */
static void dots_stand_for_the_output(void **state)
{
    (void)state;
    struct problem with, without;
    float dots[70 * 4];
    struct mw_k_queries own = {.first = 0, .n = 70, .ld_lse = 70};
    problem_make(&with, 1, 70, 4, 2, 8);
    problem_make(&without, 1, 70, 4, 2, 8);
    struct problem *each[] = {&with, &without};
    for (int i = 0; i < 2; i++) {
        struct problem *p = each[i];
        struct mw_k_attention_io io = {p->q,   p->k,      p->v,  p->out,
                                       p->lse, p->dout,   p->dq, p->dk,
                                       p->dv,  p->scratch};
        mw_k_attention_part_fwd(&p->a, &own, &io);
        if (i == 1) {
            mw_k_attention_dots(&p->a, &own, &io, dots);
            own.dots = dots;
            io.out = NULL;
        }
        mw_k_attention_part_bwd(&p->a, &own, &io);
    }
    assert_memory_equal(with.dq, without.dq, with.n_q * sizeof(float));
    assert_memory_equal(with.dk, without.dk, with.n_kv * sizeof(float));
    assert_memory_equal(with.dv, without.dv, with.n_kv * sizeof(float));
    problem_free(&with);
    problem_free(&without);
}

/* Queries from `row` on over the keys from `key` on, with strides of the whole
 * problem. */
static struct mw_k_attention_io block_of(const struct problem *p, int row,
                                         int key)
{
    size_t at = (size_t)row * (size_t)p->a.ld_q;
    size_t at_kv = (size_t)key * (size_t)p->a.ld_kv;
    return (struct mw_k_attention_io){.q = p->q + at,
                                      .k = p->k + at_kv,
                                      .v = p->v + at_kv,
                                      .out = p->out + at,
                                      .lse = p->lse + row,
                                      .dout = p->dout + at,
                                      .dq = p->dq + at,
                                      .dk = p->dk + at_kv,
                                      .dv = p->dv + at_kv,
                                      .scratch = p->scratch};
}

/* Keys 0..29 and 30..69 one after the other: queries 0..29 meet the first part
 * alone, queries 30..69 all of the first and those of the second that are not
 * later. Outputs are merged, gradients added up. */
static void keys_in_parts_make_the_whole(void **state)
{
    (void)state;
    struct problem whole, part;
    problem_make(&whole, 1, 70, 4, 2, 8);
    problem_make(&part, 1, 70, 4, 2, 8);
    const struct mw_k_attention_io io = block_of(&whole, 0, 0);
    mw_k_attention_fwd(&whole.a, &io);
    mw_k_attention_bwd(&whole.a, &io);
    struct mw_k_attention first = part.a, second = part.a;
    first.seq = 30;
    second.seq = 40;
    const struct mw_k_queries all = {.first = 0, .n = 70, .ld_lse = 70};
    const struct mw_k_queries late = {
        .first = 0, .n = 40, .ld_lse = 70, .adds_dq = true};
    const struct mw_k_attention_io on_first = block_of(&part, 0, 0);
    const struct mw_k_attention_io on_second = block_of(&part, 30, 30);
    struct mw_k_attention_io added = on_second;
    added.out = mw_calloc(part.n_out, sizeof(float));
    added.lse = mw_calloc(4 * 70, sizeof(float));
    mw_k_attention_part_fwd(&first, &all, &on_first);
    mw_k_attention_part_fwd(&second, &late, &added);
    const struct mw_k_merge m = {
        .rows = 40, .n_heads = 4, .head_dim = 8, .ld_lse = 70};
    mw_k_attention_merge(&m, on_second.out, on_second.lse, added.out,
                         added.lse);
    assert_same(part.out, whole.out, whole.n_out);
    assert_same(part.lse, whole.lse, 70 * 4);
    memset(part.dk, 0, part.n_kv * sizeof(float));
    memset(part.dv, 0, part.n_kv * sizeof(float));
    mw_k_attention_part_bwd(&first, &all, &on_first);
    mw_k_attention_part_bwd(&second, &late, &on_second);
    assert_same(part.dq, whole.dq, whole.n_q);
    assert_same(part.dk, whole.dk, whole.n_kv);
    assert_same(part.dv, whole.dv, whole.n_kv);
    mw_free(added.out);
    mw_free(added.lse);
    problem_free(&whole);
    problem_free(&part);
}

/* Two keys, seen one at a time: out = (e^a v1 + e^b v2) / (e^a + e^b). */
static void merge_by_hand(void **state)
{
    (void)state;
    float out[2] = {1, 2}, lse[1] = {0.0f};
    const float part[2] = {5, 6}, part_lse[1] = {logf(3.0f)};
    const struct mw_k_merge m = {
        .rows = 1, .n_heads = 1, .head_dim = 2, .ld_lse = 1};
    mw_k_attention_merge(&m, out, lse, part, part_lse);
    mw_assert_near((double)out[0], 4.0, 1e-6, 0);
    mw_assert_near((double)out[1], 5.0, 1e-6, 0);
    mw_assert_near((double)lse[0], log(4.0), 1e-6, 0);
}

static void rotary_from_a_position_on(void **state)
{
    (void)state;
    float x[7 * 24], y[7 * 24];
    ref_fill(x, 7 * 24, 1);
    memcpy(y, x, sizeof x);
    mw_k_rotary(x, 7, 24, 7, 3, 8, 10000.0f, 1);
    mw_k_rotary_at(y, 3, 24, 0, 3, 8, 10000.0f, 1);
    mw_k_rotary_at(y + 3 * 24, 4, 24, 3, 3, 8, 10000.0f, 1);
    assert_memory_equal(x, y, sizeof x);
}

/* theta = 10000, d = 4, position 1: pair (0,2) turns by 1 rad, (1,3) by
 * 10000^(-1/2) = 0.01 rad. */
static void rotary_by_hand(void **state)
{
    (void)state;
    float x[8] = {9, 9, 9, 9, 1.0f, 0.0f, 0.0f, 2.0f}; /* rows 0 and 1 */
    mw_k_rotary(x, 2, 4, 2, 1, 4, 10000.0f, 1);
    assert_true(x[0] == 9 && x[3] == 9); /* position 0 does not turn */
    mw_assert_near((double)x[4], 0.5403023, 1e-6, 0);
    mw_assert_near((double)x[6], 0.8414710, 1e-6, 0);
    mw_assert_near((double)x[5], -2.0 * 0.0099998333, 1e-5, 0);
    mw_assert_near((double)x[7], 2.0 * 0.9999500, 1e-6, 0);
}

static void rotary_backward_undoes_forward(void **state)
{
    (void)state;
    float x[7 * 24], y[7 * 24];
    ref_fill(x, 7 * 24, 1);
    memcpy(y, x, sizeof x);
    mw_k_rotary(y, 7, 24, 7, 3, 8, 10000.0f, 1);
    mw_k_rotary(y, 7, 24, 7, 3, 8, 10000.0f, -1);
    for (int i = 0; i < 7 * 24; i++) {
        mw_assert_near((double)x[i], (double)y[i], 0, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_block),
        cmocka_unit_test(ragged_blocks_of_two_sequences),
        cmocka_unit_test(grouped_queries),
        cmocka_unit_test(first_row_is_its_value),
        cmocka_unit_test(fused_buffer_is_the_same),
        cmocka_unit_test(parts_make_the_whole),
        cmocka_unit_test(dots_stand_for_the_output),
        cmocka_unit_test(keys_in_parts_make_the_whole),
        cmocka_unit_test(merge_by_hand),
        cmocka_unit_test(rotary_by_hand),
        cmocka_unit_test(rotary_from_a_position_on),
        cmocka_unit_test(rotary_backward_undoes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
