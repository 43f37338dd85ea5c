/*
 * The CUDA kernels of a mixture of experts, run by the thread emulator: the
 * router, its sorts and moving rows against the host kernels, products of
 * groups against sums in double precision. Everything comes again to the bit
 * under three orders of the threads.
 */
#include "base/mem.h"
#include "base/rand.h"
#include "tests/shim/emulated.h"

#include <math.h>
#include <string.h>

/* ---- router ------------------------------------------------------------ */
static void check_choices(const int32_t *want, const int32_t *got, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(want[i], got[i]);
    }
}

/* Logits on a grid of 1/8, so that there are equals, of which the first one is
 * chosen. */
static void route_case(int rows, int n, int k, enum mw_k_elem e)
{
    size_t all = (size_t)rows * (size_t)n, chosen = (size_t)(rows * k);
    float *want = randoms(all, 1), *got = mw_calloc(all, 4);
    float *w = mw_calloc(chosen, 4), *w2 = mw_calloc(chosen, 4);
    float *dw = randoms(chosen, 2), *aux = randoms((size_t)n, 3);
    float *d = mw_calloc(all, 4);
    int32_t *c = mw_calloc(chosen, 4), *c2 = mw_calloc(chosen, 4);
    void *first = NULL, *td = mw_calloc(all, 4);
    for (size_t i = 0; i < all; i++) {
        want[i] = rintf(want[i] * 24.0f) / 8.0f;
    }
    float *logits = typed(want, all, MW_K_F32);
    mw_k_route_fwd(want, c, w, rows, n, k);
    mw_k_route_bwd(d, dw, want, c, w, aux, rows, n, k);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        mw_emulate_seed((uint64_t)seed);
        memcpy(got, logits, all * 4);
        assert_int_equal(mw_k_route_fwd_cuda(got, c2, w2, rows, n, k, NULL), 0);
        check("probabilities", want, got, all, MW_K_F32);
        check("weights", w, w2, chosen, MW_K_F32);
        check_choices(c, c2, chosen);
        const struct mw_k_route_bwd a = {.elem = e,
                                         .dweight = dw,
                                         .p = got,
                                         .weight = w2,
                                         .aux = aux,
                                         .choice = c2,
                                         .rows = rows,
                                         .n = n,
                                         .k = k};
        assert_int_equal(mw_k_route_bwd_cuda(&a, td, NULL), 0);
        check("dlogits", d, td, all, e);
        check_same(&first, td, all * elem_bytes(e), seed);
    }
    void *v[] = {want, got, w, w2, dw, aux, d, c, c2, td, logits};
    free_all(v, sizeof v / sizeof *v);
}

static void test_router(void **state)
{
    (void)state;
    route_case(11, 4, 2, MW_K_F32);
    route_case(8, 160, 6, MW_K_BF16);
    route_case(5, 33, 33, MW_K_F32);
    route_case(1, 1, 1, MW_K_BF16);
}

/* ---- sorts ----------------------------------------------------------------
 */
static void sort_case(int rows, int n, int k)
{
    size_t sent = (size_t)(rows * k), in = (size_t)n;
    int32_t *choice = mw_calloc(sent, 4);
    int32_t *v[4];
    int64_t *leaving[2] = {mw_calloc(in, 8), mw_calloc(in, 8)};
    for (int i = 0; i < 4; i++) {
        v[i] = mw_calloc(sent, 4);
    }
    for (size_t i = 0; i < sent; i++) { /* some experts get none */
        choice[i] = (int32_t)(mw_rand_u64(5, 1, i) % (uint64_t)n) / 2 * 2;
    }
    struct mw_k_sort a = {choice, (int)sent, n, k, v[0], v[1], leaving[0]};
    mw_k_route_sort(&a);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        mw_emulate_seed((uint64_t)seed);
        a.place = v[2];
        a.from = v[3];
        a.leaving = leaving[1];
        assert_int_equal(mw_k_route_sort_cuda(&a, NULL), 0);
        check_choices(v[0], v[2], sent);
        check_choices(v[1], v[3], sent);
        assert_memory_equal(leaving[0], leaving[1], in * 8);
    }
    void *all[] = {choice, v[0], v[1], v[2], v[3], leaving[0], leaving[1]};
    free_all(all, sizeof all / sizeof *all);
}

static void test_sort(void **state)
{
    (void)state;
    sort_case(7, 4, 2);
    sort_case(333, 17, 3); /* runs of several choices a thread */
    sort_case(1, 1, 1);
}

static void test_order(void **state)
{
    (void)state;
    enum { SOURCES = 3, LOCAL = 4, ROWS = 600 };
    static const int64_t arrived[SOURCES * LOCAL] = {3,   0, 5, 1, 0, 0,
                                                     300, 2, 7, 0, 0, 258};
    int32_t v[4][ROWS], first[2][LOCAL + 1];
    struct mw_k_order a = {arrived, SOURCES, LOCAL, v[0], v[1], first[0]};
    memset(v, 0, sizeof v);
    mw_k_route_order(&a);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        mw_emulate_seed((uint64_t)seed);
        a = (struct mw_k_order){arrived, SOURCES, LOCAL, v[2], v[3], first[1]};
        assert_int_equal(mw_k_route_order_cuda(&a, NULL), 0);
        check_choices(v[0], v[2], ROWS);
        check_choices(v[1], v[3], ROWS);
        check_choices(first[0], first[1], LOCAL + 1);
    }
}

/* ---- rows ------------------------------------------------------------------
 */
struct rows {
    enum mw_k_elem e;
    int rows, k, width;
    size_t n, sent, area; /* elements of y; choices; elements of x */
    float *y, *x, *res, *weight;
    void *ty, *tx, *tres;
    int32_t *place, *from;
};

/* Places are a permutation. */
static void rows_open(struct rows *c)
{
    c->n = (size_t)c->rows * (size_t)c->width;
    c->sent = (size_t)(c->rows * c->k);
    c->area = c->sent * (size_t)c->width;
    c->y = mw_calloc(c->area, 4);
    c->x = randoms(c->area, 1);
    c->res = randoms(c->n, 2);
    c->weight = randoms(c->sent, 3);
    c->ty = mw_calloc(c->area, 4);
    c->tx = typed(c->x, c->area, c->e);
    c->tres = typed(c->res, c->n, c->e);
    c->place = mw_calloc(c->sent, 4);
    c->from = mw_calloc(c->sent, 4);
    for (size_t i = 0; i < c->sent; i++) {
        c->place[i] = (int32_t)((i * 5 + 3) % c->sent);
        c->from[c->place[i]] = (int32_t)(i / (size_t)c->k);
    }
}

static void rows_close(struct rows *c)
{
    void *all[] = {c->y,  c->x,    c->res,   c->weight, c->ty,
                   c->tx, c->tres, c->place, c->from};
    free_all(all, sizeof all / sizeof *all);
}

static void check_gather(struct rows *c)
{
    int sent = (int)c->sent;
    mw_k_rows_gather(c->y, c->res, c->from, sent, c->width);
    assert_int_equal(mw_k_rows_gather_cuda(c->e, c->ty, c->tres, c->from, sent,
                                           c->width, NULL),
                     0);
    check("gather", c->y, c->ty, c->area, c->e);
    assert_int_equal(
        mw_k_rows_gather_cuda(c->e, c->ty, c->tres, c->from, 0, c->width, NULL),
        0);
}

static void check_combine(struct rows *c, bool is_forward)
{
    const struct mw_k_combine a = {
        c->e, c->place, is_forward ? c->weight : NULL, c->rows, c->k, c->width};
    const float *res = is_forward ? c->res : NULL;
    mw_k_rows_combine(c->y, c->x, c->place, a.weight, res, c->rows, c->k,
                      c->width);
    memcpy(c->ty, c->tres, c->n * elem_bytes(c->e)); /* y is the residual */
    assert_int_equal(
        mw_k_rows_combine_cuda(&a, c->ty, c->tx, res ? c->ty : NULL, NULL), 0);
    check("combine", c->y, c->ty, c->n, c->e);
}

static void check_combine_bwd(struct rows *c, int seed, void **first)
{
    const struct mw_k_combine a = {c->e,    c->place, c->weight,
                                   c->rows, c->k,     c->width};
    float *dw = mw_calloc(c->sent, 4), *got = mw_calloc(c->sent, 4);
    mw_k_rows_combine_bwd(c->y, dw, c->res, c->x, c->place, c->weight, c->rows,
                          c->k, c->width);
    assert_int_equal(
        mw_k_rows_combine_bwd_cuda(&a, c->ty, got, c->tres, c->tx, NULL), 0);
    check("combine'", c->y, c->ty, c->area, c->e);
    check("dweight", dw, got, c->sent, MW_K_F32);
    check_same(first, got, c->sent * 4, seed);
    mw_free(dw);
    mw_free(got);
}

static void check_gates(struct rows *c)
{
    float *dl = mw_calloc((size_t)c->rows, 4);
    void *tdl = mw_calloc((size_t)c->rows, 4);
    const struct mw_k_gate_bwd b = {.elem = c->e,
                                    .dx = c->ty,
                                    .dlogit = tdl,
                                    .dy = c->tres,
                                    .x = c->tx,
                                    .logit = c->weight,
                                    .rows = c->rows,
                                    .width = c->width};
    mw_k_rows_gate_bwd(c->y, dl, c->res, c->x, c->weight, c->rows, c->width);
    assert_int_equal(mw_k_rows_gate_bwd_cuda(&b, NULL), 0);
    check("gate'", c->y, c->ty, c->n, c->e);
    check("dlogit", dl, tdl, (size_t)c->rows, c->e);
    memcpy(c->ty, c->tres, c->n * elem_bytes(c->e));
    memcpy(c->y, c->res, c->n * 4);
    mw_k_rows_gate(c->y, c->x, c->weight, c->rows, c->width);
    assert_int_equal(mw_k_rows_gate_cuda(c->e, c->ty, c->tx, c->weight, c->rows,
                                         c->width, NULL),
                     0);
    check("gate", c->y, c->ty, c->n, c->e);
    mw_free(dl);
    mw_free(tdl);
}

static void rows_case(enum mw_k_elem e, int rows, int k, int width)
{
    struct rows c = {.e = e, .rows = rows, .k = k, .width = width};
    void *first = NULL;
    rows_open(&c);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        mw_emulate_seed((uint64_t)seed);
        check_gather(&c);
        check_combine(&c, true);
        check_combine(&c, false);
        check_combine_bwd(&c, seed, &first);
        check_gates(&c);
    }
    rows_close(&c);
}

static void test_rows(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        rows_case((enum mw_k_elem)e, 6, 2, 32); /* rows of 16 bytes */
        rows_case((enum mw_k_elem)e, 7, 3, 301);
        rows_case((enum mw_k_elem)e, 1, 1, 1);
    }
}

/* ---- products of groups -----------------------------------------------------
 */
struct groups {
    struct mw_k_groups_cuda a;
    int rows;
    size_t nx, ny, nw;
    float *x, *y, *w; /* w: the gradient's start as well */
    void *tx, *ty, *tw;
    float *want;
    void *got;
};

/* C[i][j] = start + sum of A[i][l] B[l][j], strides in elements. */
struct strided {
    const float *p;
    size_t row, col;
};

static double dot(struct strided a, struct strided b, size_t i, size_t j, int n)
{
    double sum = 0.0;
    for (size_t l = 0; l < (size_t)n; l++) {
        sum += (double)a.p[i * a.row + l * a.col] *
               (double)b.p[l * b.row + j * b.col];
    }
    return sum;
}

static void want_rows(struct groups *c, bool is_forward)
{
    const struct mw_k_groups *g = &c->a.shape;
    size_t n = (size_t)g->n, k = (size_t)g->k;
    size_t in = is_forward ? k : n, out = is_forward ? n : k;
    for (size_t e = 0; e < (size_t)g->n_groups; e++) {
        const float *w = c->w + e * n * k;
        const struct strided a = {is_forward ? c->x : c->y, in, 1};
        const struct strided b = {w, is_forward ? 1 : k, is_forward ? k : 1};
        for (size_t r = (size_t)g->first[e]; r < (size_t)g->first[e + 1]; r++) {
            for (size_t j = 0; j < out; j++) {
                c->want[r * out + j] = (float)dot(a, b, r, j, (int)in);
            }
        }
    }
}

static void want_weight(struct groups *c)
{
    const struct mw_k_groups *g = &c->a.shape;
    size_t n = (size_t)g->n, k = (size_t)g->k;
    for (size_t e = 0; e < (size_t)g->n_groups; e++) {
        size_t r = (size_t)g->first[e];
        const struct strided a = {c->y + r * n, 1, n}, b = {c->x + r * k, k, 1};
        for (size_t i = 0; i < n * k; i++) {
            size_t at = e * n * k + i;
            c->want[at] =
                (float)((double)c->w[at] +
                        dot(a, b, i / k, i % k, g->first[e + 1] - g->first[e]));
        }
    }
}

static void groups_seed(struct groups *c, int seed, void **first)
{
    mw_emulate_seed((uint64_t)seed);
    want_rows(c, true);
    assert_int_equal(mw_k_groups_fwd_cuda(&c->a, c->got, c->tx, c->tw, NULL),
                     0);
    check("groups y", c->want, c->got, c->ny, c->a.elem);
    want_rows(c, false);
    assert_int_equal(
        mw_k_groups_bwd_input_cuda(&c->a, c->got, c->ty, c->tw, NULL), 0);
    check("groups dx", c->want, c->got, c->nx, c->a.elem);
    check_same(&first[0], c->got, c->nx * elem_bytes(c->a.elem), seed);
    want_weight(c);
    memcpy(c->got, c->w, c->nw * 4);
    assert_int_equal(
        mw_k_groups_bwd_weight_cuda(&c->a, c->got, c->ty, c->tx, NULL), 0);
    check("groups dw", c->want, c->got, c->nw, MW_K_F32);
    check_same(&first[1], c->got, c->nw * 4, seed);
}

static void groups_case(enum mw_k_elem e, const int32_t *first, int n_groups,
                        int n, int k)
{
    int rows = first[n_groups];
    struct groups c = {.a = {e, {n_groups, n, k, first}, rows}, .rows = rows};
    void *seen[2] = {NULL, NULL};
    c.nx = (size_t)rows * (size_t)k;
    c.ny = (size_t)rows * (size_t)n;
    c.nw = (size_t)n_groups * (size_t)n * (size_t)k;
    c.x = randoms(c.nx, 1);
    c.y = randoms(c.ny, 2);
    c.w = randoms(c.nw, 3);
    c.tx = typed(c.x, c.nx, e);
    c.ty = typed(c.y, c.ny, e);
    c.tw = typed(c.w, c.nw, e);
    c.want = mw_calloc(c.nx + c.ny + c.nw, 4);
    c.got = mw_calloc(c.nx + c.ny + c.nw, 4);
    for (int seed = 0; seed < N_SEEDS; seed++) {
        groups_seed(&c, seed, seen);
    }
    void *all[] = {c.x, c.y, c.w, c.tx, c.ty, c.tw, c.want, c.got};
    free_all(all, sizeof all / sizeof *all);
}

/* Groups without rows, of less than a tile, of a tile, of more. */
static void test_groups(void **state)
{
    (void)state;
    static const int32_t some[] = {0, 0, 5, 69, 69, 70}, many[] = {0, 64, 193};
    for (int e = 0; e < 2; e++) {
        groups_case((enum mw_k_elem)e, some, 5, 70, 33);
        groups_case((enum mw_k_elem)e, many, 2, 24, 96);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router), cmocka_unit_test(test_sort),
        cmocka_unit_test(test_order),  cmocka_unit_test(test_rows),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
