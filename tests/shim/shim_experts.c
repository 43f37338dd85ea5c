/*
 * Launchers of a mixture of experts, of sums of buffers, of the kernel that
 * waits (shim_launch.c): the host kernels, queued. Operands must lie on the
 * device as far as the sizes say.
 */
#include "tests/shim/launch_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static bool is_there(const void *p, size_t n, size_t size)
{
    return n == 0 || shim_is_device(p, n * size);
}

/* ---- router: p choice weight | dlogits dweight p choice weight aux; rows n k
 * ---------------------------------------------------------------------- */
static void run_route_fwd(const struct call *c)
{
    mw_k_route_fwd(c->p[0], c->p[1], c->p[2], c->i[0], c->i[1], c->i[2]);
}

int mw_k_route_fwd_cuda(float *p, int32_t *choice, float *weight, int rows,
                        int n, int k, void *stream)
{
    const struct call c = {
        .run = run_route_fwd, .p = {p, choice, weight}, .i = {rows, n, k}};
    if (!is_there(p, shim_area(rows, n), 4) ||
        !is_there(choice, shim_area(rows, k), 4) ||
        !is_there(weight, shim_area(rows, k), 4)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

static void run_route_bwd(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]);
    float *d = shim_take(c, 0, n);
    mw_k_route_bwd(d, c->p[1], c->p[2], c->p[3], c->p[4], c->p[5], c->i[0],
                   c->i[1], c->i[2]);
    shim_give(c, 0, d, n);
}

int mw_k_route_bwd_cuda(const struct mw_k_route_bwd *a, void *dlogits,
                        void *stream)
{
    const struct call c = {.run = run_route_bwd,
                           .elem = a->elem,
                           .p = {dlogits, shim_mutable(a->dweight),
                                 shim_mutable(a->p), shim_mutable(a->choice),
                                 shim_mutable(a->weight), shim_mutable(a->aux)},
                           .i = {a->rows, a->n, a->k}};
    return shim_put(&c, stream);
}

static void run_sort(const struct call *c)
{
    mw_k_route_sort(&c->sort);
}

int mw_k_route_sort_cuda(const struct mw_k_sort *a, void *stream)
{
    const struct call c = {
        .run = run_sort,
        .p = {shim_mutable(a->choice), a->place, a->from, a->leaving},
        .sort = *a};
    size_t n = (size_t)a->n_sent;
    if (!is_there(a->choice, n, 4) || !is_there(a->place, n, 4) ||
        !is_there(a->from, n, 4) || !is_there(a->leaving, (size_t)a->n, 8)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

static void run_order(const struct call *c)
{
    mw_k_route_order(&c->order);
}

int mw_k_route_order_cuda(const struct mw_k_order *a, void *stream)
{
    const struct call c = {
        .run = run_order,
        .p = {shim_mutable(a->arrived), a->order, a->home, a->first},
        .order = *a};
    if (!is_there(a->arrived, shim_area(a->n_sources, a->n_local), 8) ||
        !is_there(a->first, (size_t)a->n_local + 1, 4)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

/* ---- rows: dst src from | y x place weight residual | dx dweight dy x place
 * weight; rows width k -------------------------------------------------------
 */
/* Rows of x that an index names at most, and one. */
static size_t rows_named(const int32_t *index, size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)index[i] + 1;
        end = at > end ? at : end;
    }
    return end;
}

static void run_gather(const struct call *c)
{
    size_t width = (size_t)c->i[1], n = (size_t)c->i[0] * width;
    size_t in = rows_named(c->p[2], (size_t)c->i[0]) * width;
    MW_ASSERT(shim_is_device(c->p[1], in * (c->elem == MW_K_F32 ? 4 : 2)),
              "rows from outside of an allocation");
    float *dst = shim_take(c, 0, n), *src = shim_take(c, 1, in);
    mw_k_rows_gather(dst, src, c->p[2], c->i[0], c->i[1]);
    shim_give(c, 0, dst, n);
    shim_drop(c, src);
}

int mw_k_rows_gather_cuda(enum mw_k_elem elem, void *dst, const void *src,
                          const int32_t *from, int rows, int width,
                          void *stream)
{
    const struct call c = {.run = run_gather,
                           .elem = elem,
                           .p = {dst, shim_mutable(src), shim_mutable(from)},
                           .i = {rows, width}};
    if (!is_there(dst, shim_area(rows, width), elem == MW_K_F32 ? 4 : 2) ||
        !is_there(from, (size_t)rows, 4)) {
        return (int)cudaErrorInvalidValue;
    }
    return rows > 0 ? shim_put(&c, stream) : (int)cudaSuccess;
}

static void run_combine(const struct call *c)
{
    size_t width = (size_t)c->i[1], n = (size_t)c->i[0] * width;
    size_t in = rows_named(c->p[2], shim_area(c->i[0], c->i[2])) * width;
    float *y = shim_take(c, 0, n), *x = shim_take(c, 1, in),
          *res = shim_take(c, 4, n);
    mw_k_rows_combine(y, x, c->p[2], c->p[3], res, c->i[0], c->i[2], c->i[1]);
    shim_give(c, 0, y, n);
    shim_drop(c, x);
    shim_drop(c, res);
}

int mw_k_rows_combine_cuda(const struct mw_k_combine *a, void *y, const void *x,
                           const void *residual, void *stream)
{
    const struct call c = {.run = run_combine,
                           .elem = a->elem,
                           .p = {y, shim_mutable(x), shim_mutable(a->place),
                                 shim_mutable(a->weight),
                                 shim_mutable(residual)},
                           .i = {a->rows, a->width, a->k}};
    return shim_put(&c, stream);
}

static void run_combine_bwd(const struct call *c)
{
    size_t width = (size_t)c->i[1], n = (size_t)c->i[0] * width;
    size_t in = rows_named(c->p[4], shim_area(c->i[0], c->i[2])) * width;
    float *dx = shim_take(c, 0, in), *dy = shim_take(c, 2, n),
          *x = shim_take(c, 3, in);
    mw_k_rows_combine_bwd(dx, c->p[1], dy, x, c->p[4], c->p[5], c->i[0],
                          c->i[2], c->i[1]);
    shim_give(c, 0, dx, in);
    shim_drop(c, dy);
    shim_drop(c, x);
}

int mw_k_rows_combine_bwd_cuda(const struct mw_k_combine *a, void *dx,
                               float *dweight, const void *dy, const void *x,
                               void *stream)
{
    const struct call c = {.run = run_combine_bwd,
                           .elem = a->elem,
                           .p = {dx, dweight, shim_mutable(dy), shim_mutable(x),
                                 shim_mutable(a->place),
                                 shim_mutable(a->weight)},
                           .i = {a->rows, a->width, a->k}};
    return shim_put(&c, stream);
}

/* ---- gates: y x logit | dx dlogit dy x logit; rows width ------------------
 */
static void run_gate(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]);
    float *y = shim_take(c, 0, n), *x = shim_take(c, 1, n);
    mw_k_rows_gate(y, x, c->p[2], c->i[0], c->i[1]);
    shim_give(c, 0, y, n);
    shim_drop(c, x);
}

int mw_k_rows_gate_cuda(enum mw_k_elem elem, void *y, const void *x,
                        const float *logit, int rows, int width, void *stream)
{
    const struct call c = {.run = run_gate,
                           .elem = elem,
                           .p = {y, shim_mutable(x), shim_mutable(logit)},
                           .i = {rows, width}};
    return shim_put(&c, stream);
}

static void run_gate_bwd(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]), rows = (size_t)c->i[0];
    float *dx = shim_take(c, 0, n), *dlogit = shim_take(c, 1, rows),
          *dy = shim_take(c, 2, n), *x = shim_take(c, 3, n);
    mw_k_rows_gate_bwd(dx, dlogit, dy, x, c->p[4], c->i[0], c->i[1]);
    shim_give(c, 0, dx, n);
    shim_give(c, 1, dlogit, rows);
    shim_drop(c, dy);
    shim_drop(c, x);
}

int mw_k_rows_gate_bwd_cuda(const struct mw_k_gate_bwd *a, void *stream)
{
    const struct call c = {.run = run_gate_bwd,
                           .elem = a->elem,
                           .p = {a->dx, a->dlogit, shim_mutable(a->dy),
                                 shim_mutable(a->x), shim_mutable(a->logit)},
                           .i = {a->rows, a->width}};
    return shim_put(&c, stream);
}

/* ---- products of groups: first y x w; pass --------------------------------
 */
enum { FORWARD, INPUT, WEIGHT };

static void run_groups(const struct call *c)
{
    const struct mw_k_groups *g = &c->groups;
    size_t rows = (size_t)g->first[g->n_groups], n = (size_t)g->n,
           k = (size_t)g->k;
    float *y = shim_take(c, 1, rows * n), *x = shim_take(c, 2, rows * k);
    float *w = NULL;
    MW_ASSERT((int)rows <= c->i[1], "%zu rows of %d", rows, c->i[1]);
    switch (c->i[0]) {
    case FORWARD:
        w = shim_take(c, 3, (size_t)g->n_groups * n * k);
        mw_k_groups_fwd(g, y, x, w);
        shim_give(c, 1, y, rows * n);
        shim_drop(c, x);
        break;
    case INPUT:
        w = shim_take(c, 3, (size_t)g->n_groups * n * k);
        mw_k_groups_bwd_input(g, x, y, w);
        shim_give(c, 2, x, rows * k);
        shim_drop(c, y);
        break;
    default: /* float32 */
        mw_k_groups_bwd_weight(g, c->p[3], y, x);
        shim_drop(c, x);
        shim_drop(c, y);
    }
    shim_drop(c, w);
}

static int put_groups(const struct mw_k_groups_cuda *a, int pass, const void *y,
                      const void *x, const void *w, void *stream)
{
    const struct call c = {.run = run_groups,
                           .elem = a->elem,
                           .p = {shim_mutable(a->shape.first), shim_mutable(y),
                                 shim_mutable(x), shim_mutable(w)},
                           .i = {pass, a->rows},
                           .groups = a->shape};
    size_t el = a->elem == MW_K_F32 ? 4 : 2;
    size_t weights = shim_area(a->shape.n, a->shape.k);
    if (!is_there(y, shim_area(a->rows, a->shape.n), el) ||
        !is_there(x, shim_area(a->rows, a->shape.k), el) ||
        !is_there(w, weights * (size_t)a->shape.n_groups,
                  pass == WEIGHT ? 4 : el)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

int mw_k_groups_fwd_cuda(const struct mw_k_groups_cuda *a, void *y,
                         const void *x, const void *w, void *stream)
{
    return put_groups(a, FORWARD, y, x, w, stream);
}

int mw_k_groups_bwd_input_cuda(const struct mw_k_groups_cuda *a, void *dx,
                               const void *dy, const void *w, void *stream)
{
    return put_groups(a, INPUT, dy, dx, w, stream);
}

int mw_k_groups_bwd_weight_cuda(const struct mw_k_groups_cuda *a, float *dw,
                                const void *dy, const void *x, void *stream)
{
    return put_groups(a, WEIGHT, dy, x, dw, stream);
}

/* ---- sums of buffers: out; max, inputs in the list -------------------------
 */
static void run_reduce(const struct call *c)
{
    float *out = mw_calloc(c->n, sizeof *out);
    struct call at = *c;
    for (int r = 0; r < c->i[1]; r++) {
        at.p[0] = c->in[r];
        float *x = shim_take(&at, 0, c->n);
        for (size_t i = 0; i < c->n; i++) {
            out[i] = r == 0          ? x[i]
                     : !c->i[0]      ? out[i] + x[i]
                     : x[i] > out[i] ? x[i]
                                     : out[i];
        }
        shim_drop(&at, x);
    }
    if (c->elem == MW_K_F32) {
        memcpy(c->p[0], out, c->n * sizeof *out);
        mw_free(out);
    } else {
        shim_give(c, 0, out, c->n);
    }
}

int mw_k_reduce_cuda(const struct mw_k_reduce *a, void *stream)
{
    struct call c = {.run = run_reduce,
                     .elem = a->elem,
                     .p = {a->out},
                     .i = {a->is_max, a->n_in},
                     .n = a->n};
    size_t el = a->elem == MW_K_F32 ? 4 : 2;
    if (a->n_in < 1 || a->n_in > MW_K_REDUCE_MAX ||
        !is_there(a->out, a->n, el)) {
        return (int)cudaErrorInvalidValue;
    }
    for (int r = 0; r < a->n_in; r++) {
        c.in[r] = shim_mutable(a->in[r]);
        if (!is_there(a->in[r], a->n, el)) {
            return (int)cudaErrorInvalidValue;
        }
    }
    return shim_put(&c, stream);
}

/* ---- waiting ---------------------------------------------------------------
 */
static void run_spin(const struct call *c)
{
    int64_t begin_ns = mw_clock_wall_ns();
    while (mw_clock_wall_ns() - begin_ns < (int64_t)c->n) {
    }
}

int mw_k_spin_cuda(int64_t ns, void *stream)
{
    const struct call c = {.run = run_spin, .n = (size_t)ns};
    return shim_put(&c, stream);
}
