/*
 * The CUDA kernels, run by the thread emulator, against the host kernels.
 *
 * Inputs of the bfloat16 variants are rounded first, so both sides see the
 * same numbers (tolerances: emulated.h). Norms run under three seeds of the
 * thread order, which must agree to the bit; attention has a file of its own.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "tests/shim/emulated.h"

#include <math.h>
#include <string.h>

/* ---- norms ------------------------------------------------------------- */
/* Inputs, twice: as floats and as the type; what the host makes of them. */
struct norm {
    enum mw_k_elem elem;
    int is_rms, rows, width;
    size_t n, w, r;
    float *x, *gamma, *beta, *dy, *res, *dg, *db;
    void *tx, *tg, *tb, *tdy, *tres;
    float *y, *dx, *mean, *rstd, *want_dg, *want_db;
};

static void norm_inputs(struct norm *c)
{
    c->n = (size_t)c->rows * (size_t)c->width;
    c->w = (size_t)c->width;
    c->r = (size_t)c->rows;
    c->x = randoms(c->n, 1);
    c->gamma = randoms(c->w, 2);
    c->beta = randoms(c->w, 3);
    c->dy = randoms(c->n, 4);
    c->res = randoms(c->n, 5);
    c->dg = randoms(c->w, 6);
    c->db = randoms(c->w, 7);
    c->tx = typed(c->x, c->n, c->elem);
    c->tg = typed(c->gamma, c->w, c->elem);
    c->tb = typed(c->beta, c->w, c->elem);
    c->tdy = typed(c->dy, c->n, c->elem);
    c->tres = typed(c->res, c->n, c->elem);
}

static void norm_host(struct norm *c)
{
    c->y = mw_calloc(c->n, 4);
    c->dx = mw_calloc(c->n, 4);
    c->mean = mw_calloc(c->r, 4);
    c->rstd = mw_calloc(c->r, 4);
    c->want_dg = typed(c->dg, c->w, MW_K_F32);
    c->want_db = typed(c->db, c->w, MW_K_F32);
    if (c->is_rms) {
        mw_k_rmsnorm_fwd(c->y, c->rstd, c->x, c->gamma, c->rows, c->width,
                         1e-5f);
        mw_k_rmsnorm_bwd_input(c->dx, c->res, c->dy, c->x, c->gamma, c->rstd,
                               c->rows, c->width);
        mw_k_rmsnorm_bwd_param(c->want_dg, c->dy, c->x, c->rstd, c->rows,
                               c->width);
        return;
    }
    mw_k_layernorm_fwd(c->y, c->mean, c->rstd, c->x, c->gamma, c->beta, c->rows,
                       c->width, 1e-5f);
    mw_k_layernorm_bwd_input(c->dx, c->res, c->dy, c->x, c->gamma, c->mean,
                             c->rstd, c->rows, c->width);
    mw_k_layernorm_bwd_param(c->want_dg, c->want_db, c->dy, c->x, c->mean,
                             c->rstd, c->rows, c->width);
}

static void norm_seed(const struct norm *c, int seed, void **first,
                      void **first_dg)
{
    float *mean = mw_calloc(c->r, 4), *rstd = mw_calloc(c->r, 4);
    void *y = mw_calloc(c->n, 4), *dx = mw_calloc(c->n, 4);
    float *dg = typed(c->dg, c->w, MW_K_F32);
    float *db = typed(c->db, c->w, MW_K_F32);
    const struct mw_k_norm a = {.elem = c->elem,
                                .is_rms = c->is_rms,
                                .x = c->tx,
                                .gamma = c->tg,
                                .beta = c->is_rms ? NULL : c->tb,
                                .mean = c->is_rms ? NULL : mean,
                                .rstd = rstd,
                                .rows = c->rows,
                                .width = c->width,
                                .eps = 1e-5f};
    mw_emulate_seed((uint64_t)seed);
    assert_int_equal(mw_k_norm_fwd_cuda(&a, y, NULL), 0);
    check("norm rstd", c->rstd, rstd, c->r, MW_K_F32);
    check("norm y", c->y, y, c->n, c->elem);
    memcpy(dx, c->tres, c->n * elem_bytes(c->elem)); /* residual is dx */
    assert_int_equal(mw_k_norm_bwd_input_cuda(&a, dx, dx, c->tdy, NULL), 0);
    check("norm dx", c->dx, dx, c->n, c->elem);
    assert_int_equal(
        mw_k_norm_bwd_param_cuda(&a, dg, c->is_rms ? NULL : db, c->tdy, NULL),
        0);
    check("norm dgamma", c->want_dg, dg, c->w, MW_K_F32);
    check("norm dbeta", c->is_rms ? c->db : c->want_db, db, c->w, MW_K_F32);
    check_same(first, dx, c->n * elem_bytes(c->elem), seed);
    check_same(first_dg, dg, c->w * 4, seed);
    free_all((void *[]){mean, rstd, y, dx, dg, db}, 6);
}

static void norm_case(enum mw_k_elem e, int is_rms, int rows, int width)
{
    struct norm c = {.elem = e, .is_rms = is_rms, .rows = rows, .width = width};
    void *first = NULL, *first_dg = NULL;
    norm_inputs(&c);
    norm_host(&c);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        norm_seed(&c, seed, &first, &first_dg);
    }
    free_all((void *[]){c.x, c.gamma, c.beta, c.dy, c.res, c.dg, c.db, c.tx,
                        c.tg, c.tb, c.tdy, c.tres, c.y, c.dx, c.mean, c.rstd,
                        c.want_dg, c.want_db},
             18);
}

static void test_norms(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        norm_case((enum mw_k_elem)e, 0, 5, 300);
        norm_case((enum mw_k_elem)e, 1, 3, 64);
        norm_case((enum mw_k_elem)e, 0, 17, 33);
        norm_case((enum mw_k_elem)e, 1, 2, 1);
    }
}

static void test_bias(void **state)
{
    (void)state;
    const int m = 19, n = 70;
    for (int e = 0; e < 2; e++) {
        float *dy = randoms((size_t)(m * n), 1), *db = randoms((size_t)n, 2);
        void *tdy = typed(dy, (size_t)(m * n), (enum mw_k_elem)e);
        float *got = mw_calloc((size_t)n, 4);
        memcpy(got, db, (size_t)n * 4);
        mw_k_bias_bwd(db, dy, m, n);
        assert_int_equal(
            mw_k_bias_bwd_cuda((enum mw_k_elem)e, got, tdy, m, n, NULL), 0);
        check("bias", db, got, (size_t)n, MW_K_F32);
        mw_free(dy);
        mw_free(db);
        mw_free(tdy);
        mw_free(got);
    }
}

/* ---- element-wise -------------------------------------------------------- */
static void activation_case(enum mw_k_elem e)
{
    const int rows = 7, f = 45;
    size_t n = (size_t)rows * (size_t)f;
    float *x = randoms(2 * n, 1), *dy = randoms(n, 2);
    for (size_t i = 0; i < 2 * n; i++) {
        x[i] *= 6.0f; /* into the flat parts of the curves */
    }
    void *tx = typed(x, 2 * n, e), *tdy = typed(dy, n, e);
    float *want = mw_calloc(2 * n, 4);
    void *got = mw_calloc(2 * n, 4);
    mw_k_gelu_fwd(want, x, n);
    assert_int_equal(mw_k_gelu_fwd_cuda(e, got, tx, n, NULL), 0);
    check("gelu", want, got, n, e);
    mw_k_gelu_bwd(want, dy, x, n);
    assert_int_equal(mw_k_gelu_bwd_cuda(e, got, tdy, tx, n, NULL), 0);
    check("gelu'", want, got, n, e);
    mw_k_swiglu_fwd(want, x, rows, f);
    assert_int_equal(mw_k_swiglu_fwd_cuda(e, got, tx, rows, f, NULL), 0);
    check("swiglu", want, got, n, e);
    mw_k_swiglu_bwd(want, dy, x, rows, f);
    assert_int_equal(mw_k_swiglu_bwd_cuda(e, got, tdy, tx, rows, f, NULL), 0);
    check("swiglu'", want, got, 2 * n, e);
    void *all[] = {x, dy, tx, tdy, want, got};
    free_all(all, sizeof all / sizeof *all);
}

static void test_activations(void **state)
{
    (void)state;
    activation_case(MW_K_F32);
    activation_case(MW_K_BF16);
}

/* Rotated rows are wider than their heads; the rest stays as it was. */
static void test_rotary(void **state)
{
    (void)state;
    const struct mw_k_rotary shape = {.rows = 12,
                                      .ld = 50,
                                      .seq = 6,
                                      .n_heads = 3,
                                      .head_dim = 16,
                                      .theta = 10000.0f};
    for (int e = 0; e < 2; e++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            struct mw_k_rotary a = shape;
            a.elem = (enum mw_k_elem)e;
            a.sign = sign;
            float *x = randoms(12 * 50, 3);
            void *tx = typed(x, 12 * 50, a.elem);
            a.first = sign < 0 ? 5 : 0;
            for (int s = 0; s < 2; s++) {
                mw_k_rotary_at(x + 6 * 50 * s, a.seq, a.ld, a.first, a.n_heads,
                               a.head_dim, a.theta, sign);
            }
            assert_int_equal(mw_k_rotary_cuda(&a, tx, NULL), 0);
            check("rotary", x, tx, 12 * 50, a.elem);
            mw_free(x);
            mw_free(tx);
        }
    }
}

/* Columns of wide rows, and narrow rows beside each other. */
static void test_add_rows(void **state)
{
    (void)state;
    for (int c = 0; c < 2; c++) {
        enum mw_k_elem e = (enum mw_k_elem)c;
        float *y = randoms(7 * 30, 1), *x = randoms(7 * 11, 2);
        void *ty = typed(y, 7 * 30, e), *tx = typed(x, 7 * 11, e);
        for (size_t r = 0; r < 7; r++) {
            mw_k_accumulate(y + r * 30 + 8, x + r * 11, 11);
        }
        assert_int_equal(mw_k_add_rows_cuda(e, (char *)ty + 8 * elem_bytes(e),
                                            30, tx, 11, 7, 11, NULL),
                         0);
        check("add rows", y, ty, 7 * 30, e);
        void *all[] = {y, x, ty, tx};
        free_all(all, sizeof all / sizeof *all);
    }
}

static void test_add(void **state)
{
    (void)state;
    const int rows = 5, width = 37;
    size_t n = (size_t)rows * (size_t)width;
    for (int c = 0; c < 4; c++) {
        enum mw_k_elem e = c & 1 ? MW_K_BF16 : MW_K_F32;
        float *x = randoms(n, 1), *bias = randoms((size_t)width, 2);
        float *res = randoms(n, 3), *want = mw_calloc(n, 4);
        void *tx = typed(x, n, e), *tb = typed(bias, (size_t)width, e),
             *tr = typed(res, n, e);
        mw_k_add(want, x, c & 2 ? bias : NULL, res, rows, width);
        assert_int_equal(
            mw_k_add_cuda(e, tx, tx, c & 2 ? tb : NULL, tr, rows, width, NULL),
            0);
        check("add", want, tx, n, e);
        void *all[] = {x, bias, res, want, tx, tb, tr};
        free_all(all, sizeof all / sizeof *all);
    }
}

/* Sums in the order given: 1e8 + 1 - 1e8 is 0 in float32, 1e8 - 1e8 + 1 is 1.
 */
static void test_sum_order(void **state)
{
    (void)state;
    float a = 1e8f, b = 1.0f, c = -1e8f, out = 0.0f;
    const void *in[MW_K_REDUCE_MAX + 1] = {&a, &b, &c};
    struct mw_k_reduce r = {.out = &out, .in = in, .n_in = 3, .n = 1};
    assert_int_equal(mw_k_reduce_cuda(&r, NULL), 0);
    assert_true(out == 0.0f);
    in[1] = &c;
    in[2] = &b;
    assert_int_equal(mw_k_reduce_cuda(&r, NULL), 0);
    assert_true(out == 1.0f);
    r.n_in = MW_K_REDUCE_MAX + 1;
    assert_int_not_equal(mw_k_reduce_cuda(&r, NULL), 0);
    assert_int_equal(mw_k_accumulate_cuda(&out, &b, 1, NULL), 0);
    assert_true(out == 2.0f);
}

/* Of five buffers, into the third. */
static void reduce_case(enum mw_k_elem e, bool is_max)
{
    enum { BUFFERS = 5, N = 700 };
    float *x[BUFFERS], want[N];
    void *v[BUFFERS];
    for (int b = 0; b < BUFFERS; b++) {
        x[b] = randoms(N, (uint64_t)b);
        v[b] = typed(x[b], N, e);
    }
    for (int i = 0; i < N; i++) {
        double sum = (double)x[0][i];
        for (int b = 1; b < BUFFERS; b++) {
            double other = (double)x[b][i];
            sum = is_max ? fmax(sum, other) : sum + other;
        }
        want[i] = (float)sum;
    }
    const void *in[BUFFERS] = {v[0], v[1], v[2], v[3], v[4]};
    const struct mw_k_reduce r = {.elem = e,
                                  .is_max = is_max,
                                  .out = v[2],
                                  .in = in,
                                  .n_in = BUFFERS,
                                  .n = N};
    assert_int_equal(mw_k_reduce_cuda(&r, NULL), 0);
    check("reduce", want, v[2], N, e);
    free_all((void **)x, BUFFERS);
    free_all(v, BUFFERS);
}

static void test_reduce(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        reduce_case((enum mw_k_elem)(i / 2), i % 2 == 1);
    }
}

/* It takes as long as it is told to. */
static void test_spin(void **state)
{
    (void)state;
    int64_t begin_ns = mw_clock_wall_ns();
    assert_int_equal(mw_k_spin_cuda(3000000, NULL), 0);
    assert_true(mw_clock_wall_ns() - begin_ns >= 3000000);
}

static void test_adamw(void **state)
{
    (void)state;
    const size_t n = 333;
    const struct mw_k_adamw h = {1e-2f, 0.9f,   0.95f, 1e-8f,
                                 0.1f,  0.271f, 0.14f};
    float *w = randoms(n, 1), *g = randoms(n, 2), *m = randoms(n, 3),
          *v = randoms(n, 4);
    for (size_t i = 0; i < n; i++) {
        v[i] = v[i] * v[i];
    }
    void *w2 = typed(w, n, MW_K_F32), *m2 = typed(m, n, MW_K_F32),
         *v2 = typed(v, n, MW_K_F32);
    uint16_t *w16 = mw_calloc(n, sizeof *w16);
    mw_k_adamw(&h, w, g, m, v, n);
    assert_int_equal(mw_k_adamw_cuda(&h, w2, w16, g, m2, v2, n, NULL), 0);
    check("adamw w", w, w2, n, MW_K_F32);
    check("adamw m", m, m2, n, MW_K_F32);
    check("adamw v", v, v2, n, MW_K_F32);
    check("adamw w16", w, w16, n, MW_K_BF16);
    for (size_t i = 0; i < n; i++) {
        float f = ((float *)w2)[i];
        assert_int_equal(w16[i], to_bf16(f));
    }
    void *all[] = {w, g, m, v, w2, m2, v2, w16};
    free_all(all, sizeof all / sizeof *all);
}

/* Halfway cases go to the even neighbour; infinities and NaN stay. */
static void test_bf16_rounding(void **state)
{
    (void)state;
    const float x[] = {from_bits(0x3f808000u),
                       from_bits(0x3f818000u),
                       from_bits(0x3f808001u),
                       from_bits(0x7f7fffffu),
                       INFINITY,
                       from_bits(0x7f800001u)};
    const uint16_t want[] = {0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x7f80, 0x7fc0};
    uint16_t got[6] = {0};
    assert_int_equal(mw_k_to_bf16_cuda(got, x, 6, NULL), 0);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(got[i], want[i]);
    }
}

/* ---- embedding -------------------------------------------------------------
 */
static void embedding_case(enum mw_k_elem e)
{
    enum { ROWS = 600, WIDTH = 9, VOCAB = 40, FIRST = 5, SEQ = 150 };
    size_t n = (size_t)ROWS * WIDTH, table = (size_t)VOCAB * WIDTH;
    int32_t token[ROWS];
    for (int i = 0; i < ROWS; i++) {
        token[i] =
            (int32_t)(mw_rand_u64(3, 9, (uint64_t)i) % 60); /* some out */
    }
    float *w = randoms(table, 1), *dw = randoms(table, 2), *dy = randoms(n, 3);
    float *y = mw_calloc(n, 4), *pos = randoms(SEQ * WIDTH, 4);
    float *dpos = randoms(SEQ * WIDTH, 5);
    void *tw = typed(w, table, e), *tdy = typed(dy, n, e),
         *tpos = typed(pos, SEQ * WIDTH, e), *ty = mw_calloc(n, 4);
    float *got = mw_calloc(table, 4), *got_pos = mw_calloc(SEQ * WIDTH, 4);
    const struct mw_k_vocab a = {e, token, ROWS, WIDTH, FIRST, VOCAB};
    memcpy(got, dw, table * 4);
    memcpy(got_pos, dpos, (size_t)SEQ * WIDTH * 4);
    mw_k_embedding_fwd(y, w, token, ROWS, WIDTH, FIRST, VOCAB);
    assert_int_equal(mw_k_embedding_fwd_cuda(&a, ty, tw, NULL), 0);
    check("embedding", y, ty, n, e);
    mw_k_position_fwd(y, pos, ROWS, WIDTH, SEQ);
    assert_int_equal(
        mw_k_position_fwd_cuda(e, ty, tpos, ROWS, WIDTH, SEQ, NULL), 0);
    check("position", y, ty, n, e);
    /* Ascending order, like the host: equal to the bit. */
    mw_k_embedding_bwd(dw, dy, token, ROWS, WIDTH, FIRST, VOCAB);
    assert_int_equal(mw_k_embedding_bwd_cuda(&a, got, tdy, NULL), 0);
    assert_memory_equal(dw, got, table * 4);
    mw_k_position_bwd(dpos, dy, ROWS, WIDTH, SEQ);
    assert_int_equal(
        mw_k_position_bwd_cuda(e, got_pos, tdy, ROWS, WIDTH, SEQ, NULL), 0);
    assert_memory_equal(dpos, got_pos, (size_t)SEQ * WIDTH * 4);
    void *all[] = {w, dw, dy, y, pos, dpos, tw, tdy, tpos, ty, got, got_pos};
    free_all(all, sizeof all / sizeof *all);
}

static void test_embedding(void **state)
{
    (void)state;
    embedding_case(MW_K_F32);
    embedding_case(MW_K_BF16);
}

/* ---- cross-entropy
 * ------------------------------------------------------------ */
/* Logits of one type, their gradient of another. */
static void xent_case(enum mw_k_elem e, enum mw_k_elem e_out)
{
    enum { ROWS = 11, N = 700, FIRST = 100 };
    size_t n = (size_t)ROWS * N;
    int32_t label[ROWS];
    float *l = randoms(n, 1), *d = mw_calloc(n, 4);
    float max[ROWS], sum[ROWS], target[ROWS];
    float got_max[ROWS], got_sum[ROWS], got_target[ROWS];
    for (int i = 0; i < ROWS; i++) {
        label[i] = (int32_t)(mw_rand_u64(3, 8, (uint64_t)i) % 900);
    }
    for (size_t i = 0; i < n; i++) {
        l[i] *= 20.0f;
    }
    void *tl = typed(l, n, e);
    const struct mw_k_xent a = {e,     tl,   got_max, got_sum, got_target,
                                label, ROWS, N,       FIRST};
    double loss = 0.0, want;
    mw_k_xent_max(max, l, ROWS, N);
    mw_k_xent_sum(sum, target, l, max, label, ROWS, N, FIRST);
    want = mw_k_xent_loss(sum, target, ROWS);
    mw_k_xent_bwd(d, l, max, sum, label, ROWS, N, FIRST, 0.125f);
    assert_int_equal(mw_k_xent_max_cuda(&a, NULL), 0);
    assert_memory_equal(max, got_max, sizeof max);
    assert_int_equal(mw_k_xent_sum_cuda(&a, NULL), 0);
    check("xent sum", sum, got_sum, ROWS, MW_K_F32);
    assert_memory_equal(target, got_target, sizeof target);
    assert_int_equal(
        mw_k_xent_loss_cuda(&loss, got_sum, got_target, ROWS, NULL), 0);
    mw_assert_near(loss, want, 1e-6, 0.0);
    void *td = e == e_out ? tl : mw_calloc(n, 4);
    assert_int_equal(mw_k_xent_bwd_cuda(&a, e_out, td, 0.125f, NULL), 0);
    check("xent gradient", d, td, n, e_out);
    if (td != tl) {
        mw_free(td);
    }
    mw_free(l);
    mw_free(d);
    mw_free(tl);
}

static void test_xent(void **state)
{
    (void)state;
    xent_case(MW_K_F32, MW_K_F32);
    xent_case(MW_K_BF16, MW_K_BF16);
    xent_case(MW_K_F32, MW_K_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norms),         cmocka_unit_test(test_bias),
        cmocka_unit_test(test_activations),   cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_add),           cmocka_unit_test(test_add_rows),
        cmocka_unit_test(test_sum_order),     cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_spin),          cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_bf16_rounding), cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_xent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
