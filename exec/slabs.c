/*
 * Memory of passes: one slab holds all that F keeps of a micro-batch on a
 * chunk, another all that B keeps. Slabs of a chunk have one size; a pool
 * keeps those that are free, so after the first step nothing is allocated.
 *
 * One function per kind lays a slab out: run on a null base it only counts,
 * so size and layout cannot disagree. Pieces begin on cache lines.
 *
 * Two accounts are kept. The table's: inputs of norms and linear layers, q, k,
 * v, logits and so on, byte for byte what sim/model says that a layer keeps.
 * And all: statistics of norms, token numbers, the output that is being sent,
 * and the padding between pieces beside them.
 *
 * Recomputation: under `full` a block keeps its input; the rest stands in one
 * piece of memory for all blocks, or, when W is apart from B, in B's slab.
 * Under `selective` what the core of attention keeps stands in that piece.
 */
#include "exec/context_int.h"

struct carve {
    char *base; /* NULL: count only */
    size_t at;
    size_t table; /* bytes that the model's table counts */
};

static void *take(struct carve *c, size_t bytes)
{
    void *p = c->base ? c->base + c->at : NULL;
    c->at += (bytes + 63) / 64 * 64;
    return p;
}

static void *take_table(struct carve *c, size_t bytes)
{
    c->table += bytes;
    return take(c, bytes);
}

static void *take_rows(struct carve *c, const struct mw_exec *ex, int width)
{
    return take_table(c, (size_t)ex->dims.rows * (size_t)width *
                             ex->dev->elem_bytes);
}

/* Rows outside of the TP regions: with sp, this rank's. */
static void *take_own(struct carve *c, const struct mw_exec *ex)
{
    return take_table(c, (size_t)ex->dims.own_rows * (size_t)ex->dims.hidden *
                             ex->dev->elem_bytes);
}

static float *take_stats(struct carve *c, const struct mw_exec *ex)
{
    return take(c, (size_t)ex->dims.rows * sizeof(float));
}

/* ---- layouts ------------------------------------------------------------ */
/* What the core of attention keeps, and selective recomputation brings back:
 * statistics; where CP deals out heads, q, k, v and the output of the own ones.
 */
static void lay_core(struct carve *c, const struct mw_exec *ex,
                     struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    f->lse =
        take_table(c, (size_t)d->rows * (size_t)d->n_heads * sizeof(float));
    if (d->is_dealt) {
        f->head_q = take_rows(c, ex, d->q_width);
        f->head_k = take_rows(c, ex, d->kv_width / 2);
        f->head_v = take_rows(c, ex, d->kv_width / 2);
        f->head_out = take_rows(c, ex, d->q_width);
    }
}

static void borrow_core(const struct mw_exec *ex, struct mw_block_fwd *f)
{
    f->lse = ex->repeated.lse;
    f->head_q = ex->repeated.head_q;
    f->head_k = ex->repeated.head_k;
    f->head_v = ex->repeated.head_v;
    f->head_out = ex->repeated.head_out;
}

static void lay_qkv(struct carve *c, const struct mw_exec *ex,
                    struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    int q = d->is_fused_qkv ? d->q_width + d->kv_width : d->q_width;
    f->q = take_rows(c, ex, q);
    f->kv = d->is_fused_qkv ? NULL : take_rows(c, ex, d->kv_width);
}

/* The second half of a block; both where blocks of either kind share memory. */
enum { HALF_DENSE = 1, HALF_EXPERTS = 2 };

static int half_of(const struct mw_block *b)
{
    return b->is_moe ? HALF_EXPERTS : HALF_DENSE;
}

/* Inputs of frozen linear layers without adapters need not be kept. */
static bool keeps_mlp(const struct mw_dims *d)
{
    return d->lora_rank == 0 || d->adapts_mlp;
}

/* Experts get copies of these rows; router and shared expert read them. */
static bool keeps_n2(const struct mw_dims *d, int half)
{
    return d->lora_rank == 0 ||
           (d->adapts_mlp && ((half & HALF_DENSE) || d->shared_ffn > 0));
}

/* X A^T of each linear layer with adapters, or the gradients there: those of
 * experts are counted when rows have arrived. */
static void lay_adapters(struct carve *c, const struct mw_exec *ex, int half,
                         void *ha[MW_LINEARS])
{
    const struct mw_dims *d = &ex->dims;
    int rank = d->lora_rank, n_in = d->is_gated ? 2 : 1;
    size_t arriving = (size_t)d->moe_rows * (size_t)rank * ex->dev->elem_bytes;
    if (rank == 0) {
        return;
    }
    ha[MW_LINEAR_Q] = take_rows(c, ex, d->is_fused_qkv ? 3 * rank : rank);
    ha[MW_LINEAR_KV] = d->is_fused_qkv ? NULL : take_rows(c, ex, 2 * rank);
    ha[MW_LINEAR_PROJ] = take_rows(c, ex, rank);
    if (d->adapts_mlp && ((half & HALF_DENSE) || d->shared_ffn > 0)) {
        ha[MW_LINEAR_FC1] = take_rows(c, ex, n_in * rank);
        ha[MW_LINEAR_FC2] = take_rows(c, ex, rank);
    }
    if (d->adapts_mlp && (half & HALF_EXPERTS)) {
        ha[MW_LINEAR_EXPERT_1] = take(c, (size_t)n_in * arriving);
        ha[MW_LINEAR_EXPERT_2] = take(c, arriving);
    }
}

/* As many rows as may arrive; those that did are counted when they have. */
static void lay_moe_fwd(struct carve *c, const struct mw_exec *ex,
                        struct mw_moe_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    size_t sent = (size_t)d->own_rows * (size_t)d->top_k;
    size_t n = (size_t)d->moe_rows, el = ex->dev->elem_bytes;
    size_t width = (size_t)(d->is_gated ? 2 * d->moe_ffn : d->moe_ffn);
    size_t experts = (size_t)d->n_experts;
    f->probs = take_table(c, (size_t)d->own_rows * experts * sizeof(float));
    f->out = take_table(c, sent * (size_t)d->hidden * el);
    f->h1 = take(c, n * width * el);
    if (keeps_mlp(d)) {
        f->in = take(c, n * (size_t)d->hidden * el);
        f->g = take(c, n * (size_t)d->moe_ffn * el);
    } else {
        f->in = ex->lent.moe.in;
        f->g = ex->lent.moe.g;
    }
    f->choice = take(c, sent * sizeof(int32_t));
    f->place = take(c, sent * sizeof(int32_t));
    f->from = take(c, sent * sizeof(int32_t));
    f->weight = take(c, sent * sizeof(float));
    f->leaving = take(c, experts * sizeof(int64_t));
    f->arrived =
        take(c, (size_t)d->n_sources * (size_t)d->n_local * sizeof(int64_t));
    f->order = take(c, n * sizeof(int32_t));
    f->home = take(c, n * sizeof(int32_t));
    f->first = take(c, ((size_t)d->n_local + 1) * sizeof(int32_t));
    f->aux = take(c, experts * sizeof(float));
    if (d->shared_ffn > 0) {
        int ffn = d->shared_ffn;
        f->shared_h1 = take_rows(c, ex, d->is_gated ? 2 * ffn : ffn);
        f->shared_g = keeps_mlp(d) ? take_rows(c, ex, ffn) : ex->lent.g;
        f->shared_out = d->has_shared_gate ? take_own(c, ex) : NULL;
        f->shared_logit = take_stats(c, ex);
    }
}

static void lay_moe_bwd(struct carve *c, const struct mw_exec *ex,
                        struct mw_moe_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    size_t sent = (size_t)d->own_rows * (size_t)d->top_k;
    size_t n = (size_t)d->moe_rows, el = ex->dev->elem_bytes;
    size_t width = (size_t)(d->is_gated ? 2 * d->moe_ffn : d->moe_ffn);
    b->dy = take(c, n * (size_t)d->hidden * el);
    b->dh1 = take(c, n * width * el);
    b->dweight = take(c, sent * sizeof(float));
    b->dlogits = take(c, (size_t)d->own_rows * (size_t)d->n_experts * el);
    if (d->shared_ffn > 0) {
        int ffn = d->shared_ffn;
        b->shared_dy = d->has_shared_gate ? take_own(c, ex) : NULL;
        b->shared_dy_full = d->is_sp ? take_rows(c, ex, d->hidden) : NULL;
        b->shared_dh1 = take_rows(c, ex, d->is_gated ? 2 * ffn : ffn);
        b->shared_dlogit = take(c, (size_t)d->rows * el);
    }
}

/* All but its input. */
static void lay_block_fwd(struct carve *c, const struct mw_exec *ex, int half,
                          bool is_selective, struct mw_block_fwd *f)
{
    const struct mw_dims *d = &ex->dims;
    f->n1 = take_own(c, ex);
    if (d->is_dealt && !is_selective) {
        mw_context_lend_tokens(ex, f);
    } else {
        lay_qkv(c, ex, f);
    }
    f->att = take_rows(c, ex, d->q_width);
    f->mid = take_own(c, ex);
    f->n2 = keeps_n2(d, half) ? take_own(c, ex) : ex->lent.n2;
    if (half & HALF_DENSE) {
        f->h1 = take_rows(c, ex, d->is_gated ? 2 * d->ffn : d->ffn);
        f->g = keeps_mlp(d) ? take_rows(c, ex, d->ffn) : ex->lent.g;
    }
    lay_adapters(c, ex, half, f->ha);
    if (half & HALF_EXPERTS) {
        lay_moe_fwd(c, ex, &f->moe);
    }
    f->mean1 = take_stats(c, ex);
    f->rstd1 = take_stats(c, ex);
    f->mean2 = take_stats(c, ex);
    f->rstd2 = take_stats(c, ex);
    if (is_selective) {
        borrow_core(ex, f);
    } else {
        lay_core(c, ex, f);
    }
}

static void lay_head_fwd(struct carve *c, const struct mw_exec *ex,
                         struct mw_fwd *f)
{
    f->nf = ex->dims.lora_rank > 0 ? ex->lent_nf : take_own(c, ex);
    f->logits = take_table(c, (size_t)ex->dims.rows * (size_t)ex->dims.vocab *
                                  sizeof(float));
    f->mean = take_stats(c, ex);
    f->rstd = take_stats(c, ex);
    f->max = take_stats(c, ex);
    f->sum = take_stats(c, ex);
    f->target = take_stats(c, ex);
    f->label = take(c, (size_t)ex->dims.rows * sizeof(int32_t));
}

/* x[n_layers] is the input of the final norm, or on its way to a neighbour. */
static void lay_inputs(struct carve *c, const struct mw_exec *ex,
                       const struct mw_chunk *chunk, struct mw_fwd *f)
{
    size_t table;
    for (int i = 0; i < chunk->n_layers; i++) {
        f->x[i] = take_own(c, ex);
    }
    table = c->table;
    f->x[chunk->n_layers] = take_own(c, ex);
    c->table = chunk->has_head ? c->table : table;
}

static size_t lay_fwd(const struct mw_exec *ex, const struct mw_chunk *chunk,
                      struct mw_fwd *f, void *base)
{
    struct carve c = {.base = base};
    lay_inputs(&c, ex, chunk, f);
    for (int i = 0; i < chunk->n_layers; i++) {
        enum mw_recompute again = mw_recompute_of(ex, chunk, i);
        if (again == MW_RECOMPUTE_FULL) {
            f->blocks[i] = ex->repeated;
        } else {
            lay_block_fwd(&c, ex, half_of(&chunk->blocks[i]),
                          again == MW_RECOMPUTE_SELECTIVE, &f->blocks[i]);
        }
        f->blocks[i].x = f->x[i];
    }
    if (chunk->has_embedding) {
        f->token = take(&c, (size_t)ex->dims.rows * sizeof(int32_t));
    }
    if (chunk->has_head) {
        lay_head_fwd(&c, ex, f);
    }
    f->table_bytes = c.table;
    return c.at;
}

/* What one layer's backward pass gets back under recomputation. */
static size_t lay_repeated(struct mw_exec *ex, void *base)
{
    struct carve c = {.base = base};
    if (ex->dims.recompute == MW_RECOMPUTE_FULL) {
        int both = HALF_DENSE | (ex->dims.n_experts > 0 ? HALF_EXPERTS : 0);
        lay_block_fwd(&c, ex, both, false, &ex->repeated);
    } else if (ex->dims.recompute == MW_RECOMPUTE_SELECTIVE) {
        lay_core(&c, ex, &ex->repeated);
    }
    return c.at;
}

/* What blocks write and nobody reads again once F has gone on. */
static size_t lay_lent(struct mw_exec *ex, void *base)
{
    const struct mw_dims *d = &ex->dims;
    struct carve c = {.base = base};
    size_t el = ex->dev->elem_bytes, n = (size_t)d->moe_rows;
    ex->lent.n2 = take_own(&c, ex);
    ex->lent.g =
        take_rows(&c, ex, d->ffn > d->shared_ffn ? d->ffn : d->shared_ffn);
    ex->lent_nf = take_own(&c, ex);
    ex->lent.moe.in = take(&c, n * (size_t)d->hidden * el);
    ex->lent.moe.g = take(&c, n * (size_t)d->moe_ffn * el);
    return c.at;
}

void mw_slabs_open(struct mw_exec *ex)
{
    if (ex->dims.lora_rank > 0) {
        ex->lent_bytes = lay_lent(ex, NULL);
        ex->lent_mem = ex->dev->ops->alloc(ex->dev, ex->lent_bytes);
        lay_lent(ex, ex->lent_mem);
    }
    ex->repeated_bytes = lay_repeated(ex, NULL);
    if (ex->repeated_bytes > 0) {
        ex->repeated_mem = ex->dev->ops->alloc(ex->dev, ex->repeated_bytes);
        lay_repeated(ex, ex->repeated_mem);
    }
    if (ex->dims.recompute == MW_RECOMPUTE_FULL && ex->dims.n_experts > 0) {
        mw_experts_lay_host(ex, &ex->repeated.moe);
    }
}

static void lay_block_bwd(struct carve *c, const struct mw_exec *ex, int half,
                          struct mw_block_bwd *b)
{
    const struct mw_dims *d = &ex->dims;
    int q = d->is_fused_qkv ? d->q_width + d->kv_width : d->q_width;
    b->dn1 = take_own(c, ex);
    b->dq = take_rows(c, ex, q);
    b->dkv = d->is_fused_qkv ? NULL : take_rows(c, ex, d->kv_width);
    b->dmid = take_own(c, ex);
    b->dn2 = take_own(c, ex);
    if (half & HALF_DENSE) {
        b->dh1 = take_rows(c, ex, d->is_gated ? 2 * d->ffn : d->ffn);
    } else {
        lay_moe_bwd(c, ex, &b->moe);
    }
    lay_adapters(c, ex, half, b->dha);
    b->dy_full = d->is_sp ? take_rows(c, ex, d->hidden) : NULL;
    b->dmid_full = d->is_sp ? take_rows(c, ex, d->hidden) : NULL;
}

static size_t lay_bwd(const struct mw_exec *ex, const struct mw_chunk *chunk,
                      struct mw_bwd *b, void *base)
{
    struct carve c = {.base = base};
    for (int i = 0; i <= chunk->n_layers; i++) {
        b->dx[i] = take_own(&c, ex);
    }
    for (int i = 0; i < chunk->n_layers; i++) {
        lay_block_bwd(&c, ex, half_of(&chunk->blocks[i]), &b->blocks[i]);
        if (ex->dims.keeps_repeated &&
            mw_recompute_of(ex, chunk, i) == MW_RECOMPUTE_FULL) {
            lay_block_fwd(&c, ex, half_of(&chunk->blocks[i]), false,
                          &b->repeated[i]);
        }
    }
    if (chunk->has_head) {
        b->dnf = take_own(&c, ex);
        b->dlogits =
            ex->elem == MW_ELEM_F32 ? NULL : take_rows(&c, ex, ex->dims.vocab);
    }
    return c.at;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- pools --------------------------------------------------------------
 * A slab is given back while its message may still be under way: waiting for
 * it there would hang interleaved lists, whose neighbours each send before
 * they receive. It is taken again only when the message has ended.
 */
static bool has_ended(struct mw_exec *ex, struct mw_send *sent)
{
    const struct mw_comm_ops *ops = ex->world->ops;
    if (!sent->handle) {
        return true;
    }
    return ops->test ? ops->test(ex->world, sent)
                     : ops->wait(ex->world, sent, ex->err) == MW_OK;
}

/* What the host keeps of mixtures of experts; layers that are repeated have the
 * repeated one's. */
static void lay_host(struct mw_exec *ex, const struct mw_chunk *c,
                     struct mw_block_fwd *blocks)
{
    for (int i = 0; i < c->n_layers; i++) {
        if (c->blocks[i].is_moe && !blocks[i].moe.host_first) {
            mw_experts_lay_host(ex, &blocks[i].moe);
        }
    }
}

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
    lay_host(ex, c, f->blocks);
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
    struct mw_fwd *f = ex->fwd[chunk];
    while (f && (f->microbatch >= 0 || !has_ended(ex, &f->sent))) {
        f = f->next;
    }
    if (!f) {
        f = fwd_new(ex, chunk);
    }
    f->microbatch = microbatch;
    ex->act_bytes += f->table_bytes;
    ex->kept_bytes += f->bytes;
    ex->act_peak_bytes = max_size(ex->act_peak_bytes, ex->act_bytes);
    ex->kept_peak_bytes = max_size(ex->kept_peak_bytes, ex->kept_bytes);
    return f;
}

void mw_fwd_count_experts(struct mw_exec *ex, struct mw_fwd *f, int i)
{
    size_t bytes = mw_experts_kept_bytes(ex, &f->blocks[i].moe);
    f->expert_bytes += bytes;
    ex->act_bytes += bytes;
    ex->act_peak_bytes = max_size(ex->act_peak_bytes, ex->act_bytes);
}

void mw_fwd_give(struct mw_exec *ex, struct mw_fwd *f)
{
    f->microbatch = -1;
    ex->act_bytes -= f->table_bytes + f->expert_bytes;
    f->expert_bytes = 0;
    ex->kept_bytes -= f->bytes;
}

static struct mw_bwd *bwd_new(struct mw_exec *ex, int chunk)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    struct mw_bwd *b = mw_arena_alloc(&ex->arena, 1, sizeof *b);
    size_t n = (size_t)c->n_layers;
    b->dx = mw_arena_alloc(&ex->arena, n + 1, sizeof *b->dx);
    b->blocks = mw_arena_alloc(&ex->arena, n + 1, sizeof *b->blocks);
    b->repeated = mw_arena_alloc(&ex->arena, n + 1, sizeof *b->repeated);
    b->bytes = lay_bwd(ex, c, b, NULL);
    b->mem = ex->dev->ops->alloc(ex->dev, b->bytes);
    lay_bwd(ex, c, b, b->mem);
    if (ex->dims.keeps_repeated) {
        lay_host(ex, c, b->repeated);
    }
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
    struct mw_bwd *b = ex->bwd[chunk];
    while (b && (b->microbatch >= 0 || !has_ended(ex, &b->sent))) {
        b = b->next;
    }
    if (!b) {
        b = bwd_new(ex, chunk);
    }
    b->microbatch = microbatch;
    return b;
}

void mw_bwd_give(struct mw_bwd *b)
{
    b->microbatch = -1;
}

enum mw_status mw_slabs_settle(struct mw_exec *ex)
{
    for (int c = 0; c < ex->n_chunks; c++) {
        for (struct mw_fwd *f = ex->fwd[c]; f; f = f->next) {
            MW_TRY(ex->world->ops->wait(ex->world, &f->sent, ex->err));
        }
        for (struct mw_bwd *b = ex->bwd[c]; b; b = b->next) {
            MW_TRY(ex->world->ops->wait(ex->world, &b->sent, ex->err));
        }
    }
    return MW_OK;
}

void mw_slabs_free(struct mw_exec *ex)
{
    if (ex->lent_mem) {
        ex->dev->ops->free(ex->dev, ex->lent_mem, ex->lent_bytes);
    }
    if (ex->repeated_mem) {
        ex->dev->ops->free(ex->dev, ex->repeated_mem, ex->repeated_bytes);
    }
    for (int c = 0; c < ex->n_chunks; c++) {
        for (struct mw_fwd *f = ex->fwd[c]; f; f = f->next) {
            ex->dev->ops->free(ex->dev, f->mem, f->bytes);
        }
        for (struct mw_bwd *b = ex->bwd[c]; b; b = b->next) {
            ex->dev->ops->free(ex->dev, b->mem, b->bytes);
        }
    }
}
