/*
 * The kernel launchers of shim.h: the host kernels, queued on the stream.
 * bfloat16 operands are converted around the host kernel, which computes in
 * float32 as the CUDA kernels do.
 */
#include "tests/shim/launch_int.h"

#include "base/mem.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

static bool run_call(void *args)
{
    const struct call *c = args;
    c->run(c);
    return true;
}

int shim_put(const struct call *c, void *stream)
{
    if (shim_enters()) {
        return (int)cudaErrorUnknown;
    }
    for (int i = 0; i < POINTERS; i++) {
        if (c->p[i] && !shim_is_device(c->p[i], 1)) {
            return (int)cudaErrorInvalidValue;
        }
    }
    shim_enqueue(stream, run_call, c, sizeof *c);
    return (int)cudaSuccess;
}

void *shim_mutable(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* ---- types
 * -------------------------------------------------------------------------- */
/* n elements as floats: p itself, or a copy that `give` returns. */
float *shim_take(const struct call *c, int at, size_t n)
{
    const char *p = c->p[at];
    if (!p || c->elem == MW_K_F32) {
        return c->p[at];
    }
    float *f = mw_calloc(n, sizeof *f);
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, p + 2 * i, 2);
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&f[i], &bits, 4);
    }
    return f;
}

void shim_drop(const struct call *c, float *f)
{
    if (c->elem != MW_K_F32) {
        mw_free(f);
    }
}

void shim_give(const struct call *c, int at, float *f, size_t n)
{
    char *p = c->p[at];
    for (size_t i = 0; c->elem != MW_K_F32 && p && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], 4);
        uint16_t half = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        memcpy(p + 2 * i, &half, 2);
    }
    shim_drop(c, f);
}

size_t shim_area(int rows, int cols)
{
    return (size_t)rows * (size_t)cols;
}

/* ---- norms: x gamma beta mean rstd | y, or dx residual dy, or dgamma dbeta
 * dy; rows width is_rms; eps
 * -------------------------------------------------- */
static void run_norm_fwd(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = shim_area(rows, width), w = (size_t)width;
    float *x = shim_take(c, 0, n), *gamma = shim_take(c, 1, w),
          *beta = shim_take(c, 2, w);
    float *y = shim_take(c, 5, n);
    if (c->i[2]) {
        mw_k_rmsnorm_fwd(y, c->p[4], x, gamma, rows, width, c->f[0]);
    } else {
        mw_k_layernorm_fwd(y, c->p[3], c->p[4], x, gamma, beta, rows, width,
                           c->f[0]);
    }
    shim_give(c, 5, y, n);
    shim_drop(c, x);
    shim_drop(c, gamma);
    shim_drop(c, beta);
}

static void run_norm_bwd_input(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = shim_area(rows, width);
    float *x = shim_take(c, 0, n), *gamma = shim_take(c, 1, (size_t)width);
    float *dx = shim_take(c, 5, n), *res = shim_take(c, 6, n),
          *dy = shim_take(c, 7, n);
    if (c->i[2]) {
        mw_k_rmsnorm_bwd_input(dx, res, dy, x, gamma, c->p[4], rows, width);
    } else {
        mw_k_layernorm_bwd_input(dx, res, dy, x, gamma, c->p[3], c->p[4], rows,
                                 width);
    }
    shim_give(c, 5, dx, n);
    shim_drop(c, x);
    shim_drop(c, gamma);
    shim_drop(c, res);
    shim_drop(c, dy);
}

static void run_norm_bwd_param(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = shim_area(rows, width);
    float *x = shim_take(c, 0, n), *dy = shim_take(c, 7, n);
    if (c->i[2]) {
        mw_k_rmsnorm_bwd_param(c->p[5], dy, x, c->p[4], rows, width);
    } else {
        mw_k_layernorm_bwd_param(c->p[5], c->p[6], dy, x, c->p[3], c->p[4],
                                 rows, width);
    }
    shim_drop(c, x);
    shim_drop(c, dy);
}

static struct call norm_call(const struct mw_k_norm *a)
{
    return (struct call){.elem = a->elem,
                         .p = {shim_mutable(a->x), shim_mutable(a->gamma),
                               shim_mutable(a->beta), a->mean, a->rstd},
                         .i = {a->rows, a->width, a->is_rms},
                         .f = {a->eps}};
}

int mw_k_norm_fwd_cuda(const struct mw_k_norm *a, void *y, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_fwd;
    c.p[5] = y;
    return shim_put(&c, stream);
}

int mw_k_norm_bwd_input_cuda(const struct mw_k_norm *a, void *dx,
                             const void *residual, const void *dy, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_bwd_input;
    c.p[5] = dx;
    c.p[6] = shim_mutable(residual);
    c.p[7] = shim_mutable(dy);
    return shim_put(&c, stream);
}

int mw_k_norm_bwd_param_cuda(const struct mw_k_norm *a, float *dgamma,
                             float *dbeta, const void *dy, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_bwd_param;
    c.p[5] = dgamma;
    c.p[6] = dbeta;
    c.p[7] = shim_mutable(dy);
    return shim_put(&c, stream);
}

static void run_bias(const struct call *c)
{
    float *dy = shim_take(c, 1, shim_area(c->i[0], c->i[1]));
    mw_k_bias_bwd(c->p[0], dy, c->i[0], c->i[1]);
    shim_drop(c, dy);
}

int mw_k_bias_bwd_cuda(enum mw_k_elem elem, float *db, const void *dy, int rows,
                       int n, void *stream)
{
    const struct call c = {.run = run_bias,
                           .elem = elem,
                           .p = {db, shim_mutable(dy)},
                           .i = {rows, n}};
    return shim_put(&c, stream);
}

/* ---- activations: out dy x; rows f, or n
 * ----------------------------------- */
static void run_gelu(const struct call *c)
{
    float *out = shim_take(c, 0, c->n), *dy = shim_take(c, 1, c->n),
          *x = shim_take(c, 2, c->n);
    if (dy) {
        mw_k_gelu_bwd(out, dy, x, c->n);
    } else {
        mw_k_gelu_fwd(out, x, c->n);
    }
    shim_give(c, 0, out, c->n);
    shim_drop(c, dy);
    shim_drop(c, x);
}

static void run_swiglu(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]), n_out = c->p[1] ? 2 * n : n;
    float *out = shim_take(c, 0, n_out), *dy = shim_take(c, 1, n),
          *x = shim_take(c, 2, 2 * n);
    if (dy) {
        mw_k_swiglu_bwd(out, dy, x, c->i[0], c->i[1]);
    } else {
        mw_k_swiglu_fwd(out, x, c->i[0], c->i[1]);
    }
    shim_give(c, 0, out, n_out);
    shim_drop(c, dy);
    shim_drop(c, x);
}

int mw_k_gelu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, size_t n,
                       void *stream)
{
    const struct call c = {
        .run = run_gelu, .elem = elem, .p = {y, NULL, shim_mutable(x)}, .n = n};
    return shim_put(&c, stream);
}

int mw_k_gelu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                       const void *x, size_t n, void *stream)
{
    const struct call c = {.run = run_gelu,
                           .elem = elem,
                           .p = {dx, shim_mutable(dy), shim_mutable(x)},
                           .n = n};
    return shim_put(&c, stream);
}

int mw_k_swiglu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, int rows,
                         int f, void *stream)
{
    const struct call c = {.run = run_swiglu,
                           .elem = elem,
                           .p = {y, NULL, shim_mutable(x)},
                           .i = {rows, f}};
    return shim_put(&c, stream);
}

int mw_k_swiglu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                         const void *x, int rows, int f, void *stream)
{
    const struct call c = {.run = run_swiglu,
                           .elem = elem,
                           .p = {dx, shim_mutable(dy), shim_mutable(x)},
                           .i = {rows, f}};
    return shim_put(&c, stream);
}

/* ---- embedding: table token rows-of-y; rows width first n_local, or seq
 * -------- */
static void run_embedding_fwd(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]), table = shim_area(c->i[3], c->i[1]);
    float *w = shim_take(c, 0, table), *y = shim_take(c, 2, n);
    mw_k_embedding_fwd(y, w, c->p[1], c->i[0], c->i[1], c->i[2], c->i[3]);
    shim_give(c, 2, y, n);
    shim_drop(c, w);
}

static void run_embedding_bwd(const struct call *c)
{
    float *dy = shim_take(c, 2, shim_area(c->i[0], c->i[1]));
    mw_k_embedding_bwd(c->p[0], dy, c->p[1], c->i[0], c->i[1], c->i[2],
                       c->i[3]);
    shim_drop(c, dy);
}

static struct call vocab_call(const struct mw_k_vocab *a,
                              void (*run)(const struct call *), void *table,
                              void *rows)
{
    return (struct call){.run = run,
                         .elem = a->elem,
                         .p = {table, shim_mutable(a->token), rows},
                         .i = {a->rows, a->width, a->first, a->n_local}};
}

int mw_k_embedding_fwd_cuda(const struct mw_k_vocab *a, void *y, const void *w,
                            void *stream)
{
    const struct call c = vocab_call(a, run_embedding_fwd, shim_mutable(w), y);
    return shim_put(&c, stream);
}

int mw_k_embedding_bwd_cuda(const struct mw_k_vocab *a, float *dw,
                            const void *dy, void *stream)
{
    const struct call c =
        vocab_call(a, run_embedding_bwd, dw, shim_mutable(dy));
    return shim_put(&c, stream);
}

static void run_position_fwd(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]);
    float *y = shim_take(c, 0, n),
          *w = shim_take(c, 1, shim_area(c->i[2], c->i[1]));
    mw_k_position_fwd(y, w, c->i[0], c->i[1], c->i[2]);
    shim_give(c, 0, y, n);
    shim_drop(c, w);
}

static void run_position_bwd(const struct call *c)
{
    float *dy = shim_take(c, 1, shim_area(c->i[0], c->i[1]));
    mw_k_position_bwd(c->p[0], dy, c->i[0], c->i[1], c->i[2]);
    shim_drop(c, dy);
}

int mw_k_position_fwd_cuda(enum mw_k_elem elem, void *y, const void *w,
                           int rows, int width, int seq, void *stream)
{
    const struct call c = {.run = run_position_fwd,
                           .elem = elem,
                           .p = {y, shim_mutable(w)},
                           .i = {rows, width, seq}};
    return shim_put(&c, stream);
}

int mw_k_position_bwd_cuda(enum mw_k_elem elem, float *dw, const void *dy,
                           int rows, int width, int seq, void *stream)
{
    const struct call c = {.run = run_position_bwd,
                           .elem = elem,
                           .p = {dw, shim_mutable(dy)},
                           .i = {rows, width, seq}};
    return shim_put(&c, stream);
}

/* ---- cross-entropy: logits max sum target label dlogits; rows n first
 * --------- */
static void run_xent_max(const struct call *c)
{
    float *l = shim_take(c, 0, shim_area(c->i[0], c->i[1]));
    mw_k_xent_max(c->p[1], l, c->i[0], c->i[1]);
    shim_drop(c, l);
}

static void run_xent_sum(const struct call *c)
{
    float *l = shim_take(c, 0, shim_area(c->i[0], c->i[1]));
    mw_k_xent_sum(c->p[2], c->p[3], l, c->p[1], c->p[4], c->i[0], c->i[1],
                  c->i[2]);
    shim_drop(c, l);
}

static void run_xent_bwd(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]);
    struct call out = *c;
    out.elem = (enum mw_k_elem)c->i[3];
    float *l = shim_take(c, 0, n), *d = shim_take(&out, 5, n);
    mw_k_xent_bwd(d, l, c->p[1], c->p[2], c->p[4], c->i[0], c->i[1], c->i[2],
                  c->f[0]);
    shim_give(&out, 5, d, n);
    shim_drop(c, l);
}

static void run_xent_loss(const struct call *c)
{
    double loss = mw_k_xent_loss(c->p[1], c->p[2], c->i[0]);
    memcpy(c->p[0], &loss, sizeof loss);
}

static int put_xent(const struct mw_k_xent *a, void (*run)(const struct call *),
                    enum mw_k_elem out, void *dlogits, float scale,
                    void *stream)
{
    const struct call c = {.run = run,
                           .elem = a->elem,
                           .p = {shim_mutable(a->logits), a->max, a->sum,
                                 a->target, shim_mutable(a->label), dlogits},
                           .i = {a->rows, a->n, a->first, (int)out},
                           .f = {scale}};
    return shim_put(&c, stream);
}

int mw_k_xent_max_cuda(const struct mw_k_xent *a, void *stream)
{
    return put_xent(a, run_xent_max, a->elem, NULL, 0.0f, stream);
}

int mw_k_xent_sum_cuda(const struct mw_k_xent *a, void *stream)
{
    return put_xent(a, run_xent_sum, a->elem, NULL, 0.0f, stream);
}

int mw_k_xent_bwd_cuda(const struct mw_k_xent *a, enum mw_k_elem out,
                       void *dlogits, float scale, void *stream)
{
    return put_xent(a, run_xent_bwd, out, dlogits, scale, stream);
}

int mw_k_xent_loss_cuda(double *out, const float *sum, const float *target,
                        int rows, void *stream)
{
    const struct call c = {.run = run_xent_loss,
                           .p = {out, shim_mutable(sum), shim_mutable(target)},
                           .i = {rows}};
    return shim_put(&c, stream);
}

/* ---- vectors
 * ------------------------------------------------------------------ */
static void run_add(const struct call *c)
{
    size_t n = shim_area(c->i[0], c->i[1]);
    float *y = shim_take(c, 0, n), *x = shim_take(c, 1, n),
          *bias = shim_take(c, 2, (size_t)c->i[1]), *res = shim_take(c, 3, n);
    mw_k_add(y, x, bias, res, c->i[0], c->i[1]);
    shim_give(c, 0, y, n);
    shim_drop(c, x);
    shim_drop(c, bias);
    shim_drop(c, res);
}

int mw_k_add_cuda(enum mw_k_elem elem, void *y, const void *x, const void *bias,
                  const void *residual, int rows, int width, void *stream)
{
    const struct call c = {
        .run = run_add,
        .elem = elem,
        .p = {y, shim_mutable(x), shim_mutable(bias), shim_mutable(residual)},
        .i = {rows, width}};
    return shim_put(&c, stream);
}

/* y x; rows width; strides in n and i[2] */
static void run_add_rows(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t ld_y = c->n, ld_x = (size_t)c->i[2], w = (size_t)width;
    size_t n_y = (size_t)(rows - 1) * ld_y + w;
    float *y = shim_take(c, 0, n_y),
          *x = shim_take(c, 1, (size_t)(rows - 1) * ld_x + w);
    for (size_t r = 0; r < (size_t)rows; r++) {
        mw_k_accumulate(y + r * ld_y, x + r * ld_x, w);
    }
    shim_give(c, 0, y, n_y);
    shim_drop(c, x);
}

int mw_k_add_rows_cuda(enum mw_k_elem elem, void *y, size_t ld_y, const void *x,
                       size_t ld_x, int rows, int width, void *stream)
{
    const struct call c = {.run = run_add_rows,
                           .elem = elem,
                           .p = {y, shim_mutable(x)},
                           .i = {rows, width, (int)ld_x},
                           .n = ld_y};
    return shim_put(&c, stream);
}

static void run_accumulate(const struct call *c)
{
    mw_k_accumulate(c->p[0], c->p[1], c->n);
}

int mw_k_accumulate_cuda(float *y, const float *x, size_t n, void *stream)
{
    const struct call c = {
        .run = run_accumulate, .p = {y, shim_mutable(x)}, .n = n};
    return shim_put(&c, stream);
}

static void run_to_bf16(const struct call *c)
{
    struct call typed = *c;
    float *copy = mw_calloc(c->n, sizeof *copy);
    typed.elem = MW_K_BF16;
    memcpy(copy, c->p[1], c->n * sizeof *copy);
    shim_give(&typed, 0, copy, c->n);
}

int mw_k_to_bf16_cuda(void *y, const float *x, size_t n, void *stream)
{
    const struct call c = {
        .run = run_to_bf16, .p = {y, shim_mutable(x)}, .n = n};
    return shim_put(&c, stream);
}

static void run_adamw(const struct call *c)
{
    mw_k_adamw(&c->adamw, c->p[0], c->p[2], c->p[3], c->p[4], c->n);
    if (c->p[1]) {
        struct call copy = *c;
        copy.p[0] = c->p[1];
        copy.p[1] = c->p[0];
        run_to_bf16(&copy);
    }
}

int mw_k_adamw_cuda(const struct mw_k_adamw *h, float *w, void *w16,
                    const float *g, float *mean, float *v, size_t n,
                    void *stream)
{
    const struct call c = {.run = run_adamw,
                           .p = {w, w16, shim_mutable(g), mean, v},
                           .n = n,
                           .adamw = *h};
    return shim_put(&c, stream);
}
