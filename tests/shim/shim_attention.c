/*
 * Launchers of attention and rotary embedding (shim_launch.c): the host
 * kernels, queued.
 */
#include "tests/shim/launch_int.h"

#include "base/mem.h"

/* ---- attention: q k v out lse dout dq dk dv
 * ---------------------------------- */
static void run_attention(const struct call *c)
{
    const struct mw_k_attention *a = &c->attention;
    bool is_part = c->own.n > 0;
    int keys = a->n_seqs * a->seq, rows = is_part ? c->own.n : keys;
    /* The last row ends with its heads, not with its stride. */
    size_t nq =
        shim_area(rows - 1, a->ld_q) + shim_area(a->n_heads, a->head_dim);
    size_t nkv =
        shim_area(keys - 1, a->ld_kv) + shim_area(a->n_kv_heads, a->head_dim);
    size_t no = shim_area(rows, a->n_heads * a->head_dim);
    struct mw_k_attention_io io = {.q = shim_take(c, 0, nq),
                                   .k = shim_take(c, 1, nkv),
                                   .v = shim_take(c, 2, nkv),
                                   .out = shim_take(c, 3, no),
                                   .lse = c->p[4],
                                   .dout = shim_take(c, 5, no),
                                   .dq = shim_take(c, 6, nq),
                                   .dk = shim_take(c, 7, nkv),
                                   .dv = shim_take(c, 8, nkv)};
    struct mw_k_attention widest = *a;
    widest.seq = keys > rows ? keys : rows;
    io.scratch = mw_calloc(mw_k_attention_scratch(&widest), sizeof *io.scratch);
    if (is_part && io.dout) {
        mw_k_attention_part_bwd(a, &c->own, &io);
    } else if (is_part) {
        mw_k_attention_part_fwd(a, &c->own, &io);
    } else if (io.dout) {
        mw_k_attention_bwd(a, &io);
    } else {
        mw_k_attention_fwd(a, &io);
    }
    shim_give(c, 3, io.out, no);
    shim_give(c, 6, io.dq, nq);
    shim_give(c, 7, io.dk, nkv);
    shim_give(c, 8, io.dv, nkv);
    shim_drop(c, shim_mutable(io.q));
    shim_drop(c, shim_mutable(io.k));
    shim_drop(c, shim_mutable(io.v));
    shim_drop(c, shim_mutable(io.dout));
    mw_free(io.scratch);
}

size_t mw_k_attention_scratch_cuda(const struct mw_k_attention *a)
{
    return shim_area(a->n_heads, a->n_seqs * a->seq);
}

int mw_k_attention_fwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {shim_mutable(a->q), shim_mutable(a->k),
                                 shim_mutable(a->v), a->out, a->lse},
                           .attention = a->shape};
    return shim_put(&c, stream);
}

int mw_k_attention_bwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {shim_mutable(a->q), shim_mutable(a->k),
                                 shim_mutable(a->v), a->out, a->lse,
                                 shim_mutable(a->dout), a->dq, a->dk, a->dv,
                                 a->delta},
                           .attention = a->shape};
    size_t delta = mw_k_attention_scratch_cuda(&a->shape) * sizeof(float);
    if (!shim_is_device(a->delta, delta)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

int mw_k_attention_part_fwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {shim_mutable(a->q), shim_mutable(a->k),
                                 shim_mutable(a->v), a->out, a->lse},
                           .attention = a->shape,
                           .own = *own};
    return shim_put(&c, stream);
}

int mw_k_attention_part_bwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream)
{
    const struct call c = {.run = run_attention,
                           .elem = a->elem,
                           .p = {shim_mutable(a->q), shim_mutable(a->k),
                                 shim_mutable(a->v), a->out, a->lse,
                                 shim_mutable(a->dout), a->dq, a->dk, a->dv,
                                 a->delta},
                           .attention = a->shape,
                           .own = *own};
    size_t delta = shim_area(a->shape.n_heads, own->n) * sizeof(float);
    if (!shim_is_device(a->delta, delta)) {
        return (int)cudaErrorInvalidValue;
    }
    return shim_put(&c, stream);
}

static void run_merge(const struct call *c)
{
    size_t n = shim_area(c->merge.rows, c->merge.n_heads * c->merge.head_dim);
    float *out = shim_take(c, 0, n), *part = shim_take(c, 2, n);
    mw_k_attention_merge(&c->merge, out, c->p[1], part, c->p[3]);
    shim_give(c, 0, out, n);
    shim_drop(c, part);
}

int mw_k_attention_merge_cuda(enum mw_k_elem elem, const struct mw_k_merge *a,
                              void *out, float *lse, const void *part,
                              const float *part_lse, void *stream)
{
    const struct call c = {
        .run = run_merge,
        .elem = elem,
        .p = {out, lse, shim_mutable(part), shim_mutable(part_lse)},
        .merge = *a};
    return shim_put(&c, stream);
}

static void run_rotary(const struct call *c)
{
    size_t n = shim_area(c->i[0] - 1, c->i[1]) + shim_area(c->i[3], c->i[4]);
    float *x = shim_take(c, 0, n);
    int rows = c->i[0], ld = c->i[1], seq = c->i[2];
    for (int row = 0; row < rows; row += seq) {
        int left = rows - row < seq ? rows - row : seq;
        mw_k_rotary_at(x + shim_area(row, ld), left, ld, c->i[6], c->i[3],
                       c->i[4], c->f[0], c->i[5]);
    }
    shim_give(c, 0, x, n);
}

int mw_k_rotary_cuda(const struct mw_k_rotary *a, void *x, void *stream)
{
    const struct call c = {.run = run_rotary,
                           .elem = a->elem,
                           .p = {x},
                           .i = {a->rows, a->ld, a->seq, a->n_heads,
                                 a->head_dim, a->sign, a->first},
                           .f = {a->theta}};
    return shim_put(&c, stream);
}
