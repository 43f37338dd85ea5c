/*
 * The kernel launchers of shim.h: the host kernels, queued on the stream.
 * bfloat16 operands are converted around the host kernel, which computes in
 * float32 as the CUDA kernels do.
 */
#include "tests/shim/shim.h"

#include "base/mem.h"
#include "kernels/cuda/cuda_kernels.h"

#include <string.h>

enum { POINTERS = 10, INTS = 8 };

/* A launch: a function and what it needs, copied when it is queued. */
struct call {
    void (*run)(const struct call *c);
    enum mw_k_elem elem;
    void *p[POINTERS];
    int i[INTS];
    float f[2];
    size_t n;
    struct mw_k_attention attention;
    struct mw_k_adamw adamw;
};

static bool run_call(void *args)
{
    const struct call *c = args;
    c->run(c);
    return true;
}

static int put(const struct call *c, void *stream)
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

static void *m(const void *p)
{
    return (void *)(uintptr_t)p;
}

/* ---- types
 * -------------------------------------------------------------------------- */
/* n elements as floats: p itself, or a copy that `give` returns. */
static float *take(const struct call *c, int at, size_t n)
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

static void drop(const struct call *c, float *f)
{
    if (c->elem != MW_K_F32) {
        mw_free(f);
    }
}

static void give(const struct call *c, int at, float *f, size_t n)
{
    char *p = c->p[at];
    for (size_t i = 0; c->elem != MW_K_F32 && p && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], 4);
        uint16_t half = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        memcpy(p + 2 * i, &half, 2);
    }
    drop(c, f);
}

static size_t area(int rows, int cols)
{
    return (size_t)rows * (size_t)cols;
}

/* ---- norms: x gamma beta mean rstd | y, or dx residual dy, or dgamma dbeta
 * dy; rows width is_rms; eps
 * -------------------------------------------------- */
static void run_norm_fwd(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = area(rows, width), w = (size_t)width;
    float *x = take(c, 0, n), *gamma = take(c, 1, w), *beta = take(c, 2, w);
    float *y = take(c, 5, n);
    if (c->i[2]) {
        mw_k_rmsnorm_fwd(y, c->p[4], x, gamma, rows, width, c->f[0]);
    } else {
        mw_k_layernorm_fwd(y, c->p[3], c->p[4], x, gamma, beta, rows, width,
                           c->f[0]);
    }
    give(c, 5, y, n);
    drop(c, x);
    drop(c, gamma);
    drop(c, beta);
}

static void run_norm_bwd_input(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = area(rows, width);
    float *x = take(c, 0, n), *gamma = take(c, 1, (size_t)width);
    float *dx = take(c, 5, n), *res = take(c, 6, n), *dy = take(c, 7, n);
    if (c->i[2]) {
        mw_k_rmsnorm_bwd_input(dx, res, dy, x, gamma, c->p[4], rows, width);
    } else {
        mw_k_layernorm_bwd_input(dx, res, dy, x, gamma, c->p[3], c->p[4], rows,
                                 width);
    }
    give(c, 5, dx, n);
    drop(c, x);
    drop(c, gamma);
    drop(c, res);
    drop(c, dy);
}

static void run_norm_bwd_param(const struct call *c)
{
    int rows = c->i[0], width = c->i[1];
    size_t n = area(rows, width);
    float *x = take(c, 0, n), *dy = take(c, 7, n);
    if (c->i[2]) {
        mw_k_rmsnorm_bwd_param(c->p[5], dy, x, c->p[4], rows, width);
    } else {
        mw_k_layernorm_bwd_param(c->p[5], c->p[6], dy, x, c->p[3], c->p[4],
                                 rows, width);
    }
    drop(c, x);
    drop(c, dy);
}

static struct call norm_call(const struct mw_k_norm *a)
{
    return (struct call){
        .elem = a->elem,
        .p = {m(a->x), m(a->gamma), m(a->beta), a->mean, a->rstd},
        .i = {a->rows, a->width, a->is_rms},
        .f = {a->eps}};
}

int mw_k_norm_fwd_cuda(const struct mw_k_norm *a, void *y, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_fwd;
    c.p[5] = y;
    return put(&c, stream);
}

int mw_k_norm_bwd_input_cuda(const struct mw_k_norm *a, void *dx,
                             const void *residual, const void *dy, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_bwd_input;
    c.p[5] = dx;
    c.p[6] = m(residual);
    c.p[7] = m(dy);
    return put(&c, stream);
}

int mw_k_norm_bwd_param_cuda(const struct mw_k_norm *a, float *dgamma,
                             float *dbeta, const void *dy, void *stream)
{
    struct call c = norm_call(a);
    c.run = run_norm_bwd_param;
    c.p[5] = dgamma;
    c.p[6] = dbeta;
    c.p[7] = m(dy);
    return put(&c, stream);
}

static void run_bias(const struct call *c)
{
    float *dy = take(c, 1, area(c->i[0], c->i[1]));
    mw_k_bias_bwd(c->p[0], dy, c->i[0], c->i[1]);
    drop(c, dy);
}

int mw_k_bias_bwd_cuda(enum mw_k_elem elem, float *db, const void *dy, int rows,
                       int n, void *stream)
{
    const struct call c = {
        .run = run_bias, .elem = elem, .p = {db, m(dy)}, .i = {rows, n}};
    return put(&c, stream);
}

/* ---- activations: out dy x; rows f, or n
 * ----------------------------------- */
static void run_gelu(const struct call *c)
{
    float *out = take(c, 0, c->n), *dy = take(c, 1, c->n),
          *x = take(c, 2, c->n);
    if (dy) {
        mw_k_gelu_bwd(out, dy, x, c->n);
    } else {
        mw_k_gelu_fwd(out, x, c->n);
    }
    give(c, 0, out, c->n);
    drop(c, dy);
    drop(c, x);
}

static void run_swiglu(const struct call *c)
{
    size_t n = area(c->i[0], c->i[1]), n_out = c->p[1] ? 2 * n : n;
    float *out = take(c, 0, n_out), *dy = take(c, 1, n), *x = take(c, 2, 2 * n);
    if (dy) {
        mw_k_swiglu_bwd(out, dy, x, c->i[0], c->i[1]);
    } else {
        mw_k_swiglu_fwd(out, x, c->i[0], c->i[1]);
    }
    give(c, 0, out, n_out);
    drop(c, dy);
    drop(c, x);
}

int mw_k_gelu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, size_t n,
                       void *stream)
{
    const struct call c = {
        .run = run_gelu, .elem = elem, .p = {y, NULL, m(x)}, .n = n};
    return put(&c, stream);
}

int mw_k_gelu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                       const void *x, size_t n, void *stream)
{
    const struct call c = {
        .run = run_gelu, .elem = elem, .p = {dx, m(dy), m(x)}, .n = n};
    return put(&c, stream);
}

int mw_k_swiglu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, int rows,
                         int f, void *stream)
{
    const struct call c = {
        .run = run_swiglu, .elem = elem, .p = {y, NULL, m(x)}, .i = {rows, f}};
    return put(&c, stream);
}

int mw_k_swiglu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                         const void *x, int rows, int f, void *stream)
{
    const struct call c = {.run = run_swiglu,
                           .elem = elem,
                           .p = {dx, m(dy), m(x)},
                           .i = {rows, f}};
    return put(&c, stream);
}

/* ---- attention: q k v out lse dout dq dk dv
 * ---------------------------------- */
static void run_attention(const struct call *c)
{
    const struct mw_k_attention *a = &c->attention;
    int rows = a->n_seqs * a->seq;
    /* The last row ends with its heads, not with its stride. */
    size_t nq = area(rows - 1, a->ld_q) + area(a->n_heads, a->head_dim);
    size_t nkv = area(rows - 1, a->ld_kv) + area(a->n_kv_heads, a->head_dim);
    size_t no = area(rows, a->n_heads * a->head_dim);
    struct mw_k_attention_io io = {.q = take(c, 0, nq),
                                   .k = take(c, 1, nkv),
                                   .v = take(c, 2, nkv),
                                   .out = take(c, 3, no),
                                   .lse = c->p[4],
                                   .dout = take(c, 5, no),
                                   .dq = take(c, 6, nq),
                                   .dk = take(c, 7, nkv),
                                   .dv = take(c, 8, nkv)};
    io.scratch = mw_calloc(mw_k_attention_scratch(a), sizeof *io.scratch);
    if (io.dout) {
        mw_k_attention_bwd(a, &io);
    } else {
        mw_k_attention_fwd(a, &io);
    }
    give(c, 3, io.out, no);
    give(c, 6, io.dq, nq);
    give(c, 7, io.dk, nkv);
    give(c, 8, io.dv, nkv);
    drop(c, m(io.q));
    drop(c, m(io.k));
    drop(c, m(io.v));
    drop(c, m(io.dout));
    mw_free(io.scratch);
}

size_t mw_k_attention_scratch_cuda(const struct mw_k_attention *a)
{
    return area(a->n_heads, a->n_seqs * a->seq);
}

int mw_k_attention_fwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {m(a->q), m(a->k), m(a->v), a->out, a->lse},
                           .attention = a->shape};
    return put(&c, stream);
}

int mw_k_attention_bwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {m(a->q), m(a->k), m(a->v), a->out, a->lse,
                                 m(a->dout), a->dq, a->dk, a->dv, a->delta},
                           .attention = a->shape};
    size_t delta = mw_k_attention_scratch_cuda(&a->shape) * sizeof(float);
    if (!shim_is_device(a->delta, delta)) {
        return (int)cudaErrorInvalidValue;
    }
    return put(&c, stream);
}

static void run_rotary(const struct call *c)
{
    size_t n = area(c->i[0] - 1, c->i[1]) + area(c->i[3], c->i[4]);
    float *x = take(c, 0, n);
    mw_k_rotary(x, c->i[0], c->i[1], c->i[2], c->i[3], c->i[4], c->f[0],
                c->i[5]);
    give(c, 0, x, n);
}

int mw_k_rotary_cuda(const struct mw_k_rotary *a, void *x, void *stream)
{
    const struct call c = {
        .run = run_rotary,
        .elem = a->elem,
        .p = {x},
        .i = {a->rows, a->ld, a->seq, a->n_heads, a->head_dim, a->sign},
        .f = {a->theta}};
    return put(&c, stream);
}

/* ---- embedding: table token rows-of-y; rows width first n_local, or seq
 * -------- */
static void run_embedding_fwd(const struct call *c)
{
    size_t n = area(c->i[0], c->i[1]), table = area(c->i[3], c->i[1]);
    float *w = take(c, 0, table), *y = take(c, 2, n);
    mw_k_embedding_fwd(y, w, c->p[1], c->i[0], c->i[1], c->i[2], c->i[3]);
    give(c, 2, y, n);
    drop(c, w);
}

static void run_embedding_bwd(const struct call *c)
{
    float *dy = take(c, 2, area(c->i[0], c->i[1]));
    mw_k_embedding_bwd(c->p[0], dy, c->p[1], c->i[0], c->i[1], c->i[2],
                       c->i[3]);
    drop(c, dy);
}

static struct call vocab_call(const struct mw_k_vocab *a,
                              void (*run)(const struct call *), void *table,
                              void *rows)
{
    return (struct call){.run = run,
                         .elem = a->elem,
                         .p = {table, m(a->token), rows},
                         .i = {a->rows, a->width, a->first, a->n_local}};
}

int mw_k_embedding_fwd_cuda(const struct mw_k_vocab *a, void *y, const void *w,
                            void *stream)
{
    const struct call c = vocab_call(a, run_embedding_fwd, m(w), y);
    return put(&c, stream);
}

int mw_k_embedding_bwd_cuda(const struct mw_k_vocab *a, float *dw,
                            const void *dy, void *stream)
{
    const struct call c = vocab_call(a, run_embedding_bwd, dw, m(dy));
    return put(&c, stream);
}

static void run_position_fwd(const struct call *c)
{
    size_t n = area(c->i[0], c->i[1]);
    float *y = take(c, 0, n), *w = take(c, 1, area(c->i[2], c->i[1]));
    mw_k_position_fwd(y, w, c->i[0], c->i[1], c->i[2]);
    give(c, 0, y, n);
    drop(c, w);
}

static void run_position_bwd(const struct call *c)
{
    float *dy = take(c, 1, area(c->i[0], c->i[1]));
    mw_k_position_bwd(c->p[0], dy, c->i[0], c->i[1], c->i[2]);
    drop(c, dy);
}

int mw_k_position_fwd_cuda(enum mw_k_elem elem, void *y, const void *w,
                           int rows, int width, int seq, void *stream)
{
    const struct call c = {.run = run_position_fwd,
                           .elem = elem,
                           .p = {y, m(w)},
                           .i = {rows, width, seq}};
    return put(&c, stream);
}

int mw_k_position_bwd_cuda(enum mw_k_elem elem, float *dw, const void *dy,
                           int rows, int width, int seq, void *stream)
{
    const struct call c = {.run = run_position_bwd,
                           .elem = elem,
                           .p = {dw, m(dy)},
                           .i = {rows, width, seq}};
    return put(&c, stream);
}

/* ---- cross-entropy: logits max sum target label dlogits; rows n first
 * --------- */
static void run_xent_max(const struct call *c)
{
    float *l = take(c, 0, area(c->i[0], c->i[1]));
    mw_k_xent_max(c->p[1], l, c->i[0], c->i[1]);
    drop(c, l);
}

static void run_xent_sum(const struct call *c)
{
    float *l = take(c, 0, area(c->i[0], c->i[1]));
    mw_k_xent_sum(c->p[2], c->p[3], l, c->p[1], c->p[4], c->i[0], c->i[1],
                  c->i[2]);
    drop(c, l);
}

static void run_xent_bwd(const struct call *c)
{
    size_t n = area(c->i[0], c->i[1]);
    float *l = take(c, 0, n), *d = take(c, 5, n);
    mw_k_xent_bwd(d, l, c->p[1], c->p[2], c->p[4], c->i[0], c->i[1], c->i[2],
                  c->f[0]);
    give(c, 5, d, n);
    drop(c, l);
}

static void run_xent_loss(const struct call *c)
{
    double loss = mw_k_xent_loss(c->p[1], c->p[2], c->i[0]);
    memcpy(c->p[0], &loss, sizeof loss);
}

static int put_xent(const struct mw_k_xent *a, void (*run)(const struct call *),
                    void *dlogits, float scale, void *stream)
{
    const struct call c = {
        .run = run,
        .elem = a->elem,
        .p = {m(a->logits), a->max, a->sum, a->target, m(a->label), dlogits},
        .i = {a->rows, a->n, a->first},
        .f = {scale}};
    return put(&c, stream);
}

int mw_k_xent_max_cuda(const struct mw_k_xent *a, void *stream)
{
    return put_xent(a, run_xent_max, NULL, 0.0f, stream);
}

int mw_k_xent_sum_cuda(const struct mw_k_xent *a, void *stream)
{
    return put_xent(a, run_xent_sum, NULL, 0.0f, stream);
}

int mw_k_xent_bwd_cuda(const struct mw_k_xent *a, void *dlogits, float scale,
                       void *stream)
{
    return put_xent(a, run_xent_bwd, dlogits, scale, stream);
}

int mw_k_xent_loss_cuda(double *out, const float *sum, const float *target,
                        int rows, void *stream)
{
    const struct call c = {
        .run = run_xent_loss, .p = {out, m(sum), m(target)}, .i = {rows}};
    return put(&c, stream);
}

/* ---- vectors
 * ------------------------------------------------------------------ */
static void run_add(const struct call *c)
{
    size_t n = area(c->i[0], c->i[1]);
    float *y = take(c, 0, n), *x = take(c, 1, n),
          *bias = take(c, 2, (size_t)c->i[1]), *res = take(c, 3, n);
    mw_k_add(y, x, bias, res, c->i[0], c->i[1]);
    give(c, 0, y, n);
    drop(c, x);
    drop(c, bias);
    drop(c, res);
}

int mw_k_add_cuda(enum mw_k_elem elem, void *y, const void *x, const void *bias,
                  const void *residual, int rows, int width, void *stream)
{
    const struct call c = {.run = run_add,
                           .elem = elem,
                           .p = {y, m(x), m(bias), m(residual)},
                           .i = {rows, width}};
    return put(&c, stream);
}

static void run_accumulate(const struct call *c)
{
    mw_k_accumulate(c->p[0], c->p[1], c->n);
}

int mw_k_accumulate_cuda(float *y, const float *x, size_t n, void *stream)
{
    const struct call c = {.run = run_accumulate, .p = {y, m(x)}, .n = n};
    return put(&c, stream);
}

static void run_to_bf16(const struct call *c)
{
    struct call typed = *c;
    float *copy = mw_calloc(c->n, sizeof *copy);
    typed.elem = MW_K_BF16;
    memcpy(copy, c->p[1], c->n * sizeof *copy);
    give(&typed, 0, copy, c->n);
}

int mw_k_to_bf16_cuda(void *y, const float *x, size_t n, void *stream)
{
    const struct call c = {.run = run_to_bf16, .p = {y, m(x)}, .n = n};
    return put(&c, stream);
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
    const struct call c = {
        .run = run_adamw, .p = {w, w16, m(g), mean, v}, .n = n, .adamw = *h};
    return put(&c, stream);
}
