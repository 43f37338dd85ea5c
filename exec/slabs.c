/*
 * Memory of passes: one slab holds all that F keeps of a micro-batch on a
 * chunk, another all that B keeps. Slabs of a chunk have one size; a pool
 * keeps those that are free, so after the first step nothing is allocated.
 *
 * One function per kind lays a slab out: run on a null base it only counts,
 * so size and layout cannot disagree. Pieces begin on cache lines.
 */
#include "exec/exec_int.h"

struct carve {
    char *base; /* NULL: count only */
    size_t at;
};

static void *take(struct carve *c, size_t bytes)
{
    void *p = c->base ? c->base + c->at : NULL;
    c->at += (bytes + 63) / 64 * 64;
    return p;
}

static void *take_rows(struct carve *c, const struct mw_exec *ex, int width)
{
    return take(c, (size_t)ex->dims.rows * (size_t)width * ex->dev->elem_bytes);
}

static float *take_stats(struct carve *c, const struct mw_exec *ex, int per_row)
{
    return take(c, (size_t)ex->dims.rows * (size_t)per_row * sizeof(float));
}

/* ---- layouts ------------------------------------------------------------ */
static void lay_block_fwd(struct carve *c, const struct mw_exec *ex,
                          struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    int q = d->is_fused_qkv ? d->q_width + d->kv_width : d->q_width;
    f->n1 = take_rows(c, ex, d->hidden);
    f->q = take_rows(c, ex, q);
    f->kv = d->is_fused_qkv ? NULL : take_rows(c, ex, d->kv_width);
    f->att = take_rows(c, ex, d->q_width);
    f->mid = take_rows(c, ex, d->hidden);
    f->n2 = take_rows(c, ex, d->hidden);
    f->h1 = take_rows(c, ex, d->is_gated ? 2 * d->ffn : d->ffn);
    f->g = take_rows(c, ex, d->ffn);
    f->mean1 = take_stats(c, ex, 1);
    f->rstd1 = take_stats(c, ex, 1);
    f->mean2 = take_stats(c, ex, 1);
    f->rstd2 = take_stats(c, ex, 1);
    f->lse = take_stats(c, ex, d->n_heads);
}

static void lay_head_fwd(struct carve *c, const struct mw_exec *ex,
                         struct mw_fwd *f)
{
    f->nf = take_rows(c, ex, ex->dims.hidden);
    f->logits = take_rows(c, ex, ex->dims.vocab);
    f->mean = take_stats(c, ex, 1);
    f->rstd = take_stats(c, ex, 1);
    f->max = take_stats(c, ex, 1);
    f->sum = take_stats(c, ex, 1);
    f->target = take_stats(c, ex, 1);
    f->label = take(c, (size_t)ex->dims.rows * sizeof(int32_t));
}

static size_t lay_fwd(const struct mw_exec *ex, const struct mw_chunk *chunk,
                      struct mw_fwd *f, void *base)
{
    struct carve c = {.base = base};
    for (int i = 0; i <= chunk->n_layers; i++) {
        f->x[i] = take_rows(&c, ex, ex->dims.hidden);
    }
    for (int i = 0; i < chunk->n_layers; i++) {
        lay_block_fwd(&c, ex, &f->blocks[i]);
        f->blocks[i].x = f->x[i];
    }
    if (chunk->has_embedding) {
        f->token = take(&c, (size_t)ex->dims.rows * sizeof(int32_t));
    }
    if (chunk->has_head) {
        lay_head_fwd(&c, ex, f);
    }
    return c.at;
}

static void lay_block_bwd(struct carve *c, const struct mw_exec *ex,
                          struct mw_block_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    int q = d->is_fused_qkv ? d->q_width + d->kv_width : d->q_width;
    b->dn1 = take_rows(c, ex, d->hidden);
    b->dq = take_rows(c, ex, q);
    b->dkv = d->is_fused_qkv ? NULL : take_rows(c, ex, d->kv_width);
    b->dmid = take_rows(c, ex, d->hidden);
    b->dn2 = take_rows(c, ex, d->hidden);
    b->dh1 = take_rows(c, ex, d->is_gated ? 2 * d->ffn : d->ffn);
}

static size_t lay_bwd(const struct mw_exec *ex, const struct mw_chunk *chunk,
                      struct mw_bwd *b, void *base)
{
    struct carve c = {.base = base};
    for (int i = 0; i <= chunk->n_layers; i++) {
        b->dx[i] = take_rows(&c, ex, ex->dims.hidden);
    }
    for (int i = 0; i < chunk->n_layers; i++) {
        lay_block_bwd(&c, ex, &b->blocks[i]);
    }
    if (chunk->has_head) {
        b->dnf = take_rows(&c, ex, ex->dims.hidden);
    }
    return c.at;
}

/* ---- pools -------------------------------------------------------------- */
static struct mw_fwd *fwd_new(struct mw_exec *ex, int chunk)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    struct mw_fwd *f = mw_arena_alloc(&ex->arena, 1, sizeof *f);
    size_t n = (size_t)c->n_layers;
    f->x = mw_arena_alloc(&ex->arena, n + 1, sizeof *f->x);
    f->blocks = mw_arena_alloc(&ex->arena, n + 1, sizeof *f->blocks);
    f->bytes = lay_fwd(ex, c, f, NULL);
    f->mem = ex->dev->ops->alloc(ex->dev, f->bytes);
    lay_fwd(ex, c, f, f->mem);
    f->chunk = chunk;
    f->microbatch = -1;
    f->next = ex->fwd[chunk];
    ex->fwd[chunk] = f;
    return f;
}

struct mw_fwd *mw_fwd_find(struct mw_exec *ex, int chunk, int microbatch)
{
    struct mw_fwd *f = ex->fwd[chunk];
    while (f && f->microbatch != microbatch) {
        f = f->next;
    }
    return f;
}

struct mw_fwd *mw_fwd_take(struct mw_exec *ex, int chunk, int microbatch)
{
    struct mw_fwd *f = mw_fwd_find(ex, chunk, -1);
    if (!f) {
        f = fwd_new(ex, chunk);
    }
    f->microbatch = microbatch;
    ex->act_bytes += f->bytes;
    if (ex->act_bytes > ex->act_peak_bytes) {
        ex->act_peak_bytes = ex->act_bytes;
    }
    return f;
}

enum mw_status mw_fwd_give(struct mw_exec *ex, struct mw_fwd *f)
{
    f->microbatch = -1;
    ex->act_bytes -= f->bytes;
    return ex->world->ops->wait(ex->world, &f->sent, ex->err);
}

static struct mw_bwd *bwd_new(struct mw_exec *ex, int chunk)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    struct mw_bwd *b = mw_arena_alloc(&ex->arena, 1, sizeof *b);
    size_t n = (size_t)c->n_layers;
    b->dx = mw_arena_alloc(&ex->arena, n + 1, sizeof *b->dx);
    b->blocks = mw_arena_alloc(&ex->arena, n + 1, sizeof *b->blocks);
    b->bytes = lay_bwd(ex, c, b, NULL);
    b->mem = ex->dev->ops->alloc(ex->dev, b->bytes);
    lay_bwd(ex, c, b, b->mem);
    b->chunk = chunk;
    b->microbatch = -1;
    b->next = ex->bwd[chunk];
    ex->bwd[chunk] = b;
    return b;
}

struct mw_bwd *mw_bwd_find(struct mw_exec *ex, int chunk, int microbatch)
{
    struct mw_bwd *b = ex->bwd[chunk];
    while (b && b->microbatch != microbatch) {
        b = b->next;
    }
    return b;
}

struct mw_bwd *mw_bwd_take(struct mw_exec *ex, int chunk, int microbatch)
{
    struct mw_bwd *b = mw_bwd_find(ex, chunk, -1);
    if (!b) {
        b = bwd_new(ex, chunk);
    }
    b->microbatch = microbatch;
    return b;
}

enum mw_status mw_bwd_give(struct mw_exec *ex, struct mw_bwd *b)
{
    b->microbatch = -1;
    return ex->world->ops->wait(ex->world, &b->sent, ex->err);
}

void mw_slabs_free(struct mw_exec *ex)
{
    for (int c = 0; c < ex->n_chunks; c++) {
        for (struct mw_fwd *f = ex->fwd[c]; f; f = f->next) {
            ex->dev->ops->free(ex->dev, f->mem, f->bytes);
        }
        for (struct mw_bwd *b = ex->bwd[c]; b; b = b->next) {
            ex->dev->ops->free(ex->dev, b->mem, b->bytes);
        }
    }
}
