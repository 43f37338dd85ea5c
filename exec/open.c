/*
 * Setting a rank up: sizes, communicators, flat buffers, chunks with pointers
 * into them.
 */
#include "exec/exec_int.h"

#include <stdio.h>

/* Does the schedule run W apart from B? */
static bool has_weight_passes(const struct mw_job *job)
{
    const struct mw_schedule *s = job->schedule;
    for (uint32_t i = 0; i < s->first[s->n_stages]; i++) {
        if (s->slot[i].pass == MW_PASS_W) {
            return true;
        }
    }
    return false;
}

static void set_dims(struct mw_exec *ex)
{
    const struct mw_model *m = ex->job->model;
    const struct mw_layout *l = &ex->job->layout;
    struct mw_dims *d = &ex->dims;
    d->seq = (int)ex->job->workload->seq;
    d->doc = (int)mw_work_span(d->seq, ex->job->workload->doc_tokens);
    d->n_seqs = l->micro_batch;
    d->n_cp = l->cp;
    d->n_parts = ex->job->schedule->n_parts;
    d->rows = d->seq / (d->n_cp * d->n_parts) * d->n_seqs;
    d->n_experts = m->moe.n_experts;
    d->top_k = m->moe.top_k;
    d->moe_ffn = m->moe.ffn / l->etp;
    d->n_sources = l->ep * l->etp;
    d->shared_ffn = m->moe.shared_ffn / l->tp;
    d->has_shared_gate = m->moe.shared_gate;
    d->n_local = d->n_experts / l->ep;
    d->is_sp = l->sp && l->tp > 1;
    d->own_rows = d->is_sp ? d->rows / l->tp : d->rows;
    d->moe_rows = d->own_rows * d->top_k * d->n_sources;
    d->recompute = l->recompute;
    d->keeps_layers = mw_layout_keeps_layers(l);
    d->lora_rank = ex->job->workload->lora_rank;
    d->adapts_mlp =
        d->lora_rank > 0 && ex->job->workload->lora_targets == MW_LORA_ALL;
    d->is_dealt = mw_context_ways(l) > 1;
    d->keeps_repeated =
        l->recompute == MW_RECOMPUTE_FULL && has_weight_passes(ex->job);
    d->hidden = m->hidden;
    d->ffn = m->ffn / l->tp;
    d->n_heads = m->n_heads / l->tp;
    d->n_kv_heads = m->n_kv_heads / l->tp;
    d->head_dim = m->head_dim;
    d->vocab = m->vocab / l->tp;
    d->first_token = d->vocab * ex->at.tp;
    d->q_width = d->n_heads * d->head_dim;
    d->kv_width = 2 * d->n_kv_heads * d->head_dim;
    d->is_fused_qkv = m->n_heads == m->n_kv_heads;
    d->is_gated = m->is_gated;
    d->has_rotary = m->position == MW_POS_ROTARY;
    d->has_position = m->position == MW_POS_LEARNED;
    d->norm = m->norm;
}

/* ---- communicators ------------------------------------------------------ */
/* Switch Transformer, section 2.2. */
static const double default_aux_weight = 0.01;

static int stage_of(const struct mw_job *job, int virtual_stage)
{
    return job->schedule->device[virtual_stage];
}

/* Ranks of a stage: etp in a row hold one expert, ep such rows all of them. */
static enum mw_status split_expert_groups(struct mw_exec *ex, int pair_stage,
                                          bool is_second, struct mw_err *err)
{
    const struct mw_layout *l = &ex->job->layout;
    struct mw_comm *w = ex->world;
    int etp = l->etp, all = l->ep * etp;
    int n_stage = l->dp * l->cp * l->tp;
    int n_set = mw_layout_shard_ways(l) * l->cp * l->tp;
    int at = (ex->at.dp * l->cp + ex->at.cp) * l->tp + ex->at.tp;
    int first = ex->at.pp * n_stage;
    MW_TRY(w->ops->split(w, first + at / etp, at % etp, &ex->etp, err));
    MW_TRY(w->ops->split(w, first + at / all * etp + at % etp, at / etp % l->ep,
                         &ex->ep, err));
    int copy = at % n_set / all + (is_second ? n_set / all : 0);
    int color = pair_stage * n_stage + at / n_set * n_set + at % all;
    return w->ops->split(w, color, copy, &ex->edp, err);
}

/* Gradients are summed over the replicas and, on two routes, over both holders
 * of the same virtual stages; with dp_shard over sets of replicas first. */
static enum mw_status split_data_groups(struct mw_exec *ex, int pair_stage,
                                        bool is_second, struct mw_err *err)
{
    struct mw_comm *w = ex->world;
    const struct mw_layout *l = &ex->job->layout;
    int ways = mw_layout_shard_ways(l), set = ex->at.dp / ways;
    int in_set = ex->at.dp % ways * l->cp + ex->at.cp;
    int color = (pair_stage * (l->dp / ways) + set) * l->tp + ex->at.tp;
    int place = (ex->at.pp * ways * l->cp + in_set) * l->tp + ex->at.tp;
    MW_TRY(w->ops->split(w, color, (is_second ? ways * l->cp : 0) + in_set,
                         &ex->dp, err));
    return w->ops->split(w, place, set, &ex->copies, err);
}

static enum mw_status split_groups(struct mw_exec *ex, struct mw_err *err)
{
    struct mw_comm *w = ex->world;
    const struct mw_layout *l = &ex->job->layout;
    int data = ex->at.dp * l->cp + ex->at.cp, n_data = l->dp * l->cp;
    int tp_color = ex->at.pp * n_data + data;
    int twin = mw_job_twin_stage(ex->job, ex->at.pp);
    bool is_second = ex->at.pp > twin;
    int pair_stage = is_second ? twin : ex->at.pp;
    MW_TRY(w->ops->split(w, tp_color, ex->at.tp, &ex->tp, err));
    MW_TRY(split_data_groups(ex, pair_stage, is_second, err));
    int cp_color = (ex->at.pp * l->dp + ex->at.dp) * l->tp + ex->at.tp;
    MW_TRY(w->ops->split(w, cp_color, ex->at.cp, &ex->cp, err));
    int ways = mw_context_ways(l), set = cp_color * l->cp + ex->at.cp / ways;
    MW_TRY(w->ops->split(w, set, ex->at.cp, &ex->cp_deal, err));
    MW_TRY(w->ops->split(w, cp_color * l->cp + ex->at.cp % ways, ex->at.cp,
                         &ex->cp_ring, err));
    MW_TRY(split_expert_groups(ex, pair_stage, is_second, err));
    if (!ex->job->model->tied || ex->job->schedule->n_routes == 2) {
        return MW_OK; /* on two routes each end is the other's as well */
    }
    /* First and last stage at one place; the others stay alone. */
    int first = stage_of(ex->job, 0);
    int last = stage_of(ex->job, ex->job->n_virtual - 1);
    bool is_end = ex->at.pp == first || ex->at.pp == last;
    int pair = data * l->tp + ex->at.tp;
    int color = is_end ? pair : l->tp * n_data + w->rank;
    return w->ops->split(w, color, ex->at.pp, &ex->ends, err);
}

/* ---- tensors ------------------------------------------------------------ */
static struct mw_tensor tensor_of(const struct mw_exec *ex,
                                  const struct mw_slice *s)
{
    if (!s) {
        return (struct mw_tensor){NULL, NULL};
    }
    /* In the buffers of all, or where its unit stands while it is needed. */
    const struct mw_unit *u = &ex->shards.units.v[s->unit];
    size_t in_unit = s->offset - u->offset;
    return (struct mw_tensor){
        ex->unit_w
            ? mw_dev_at(ex->dev, ex->unit_w, mw_unit_place(ex, u) + in_unit)
            : mw_dev_at(ex->dev, ex->w, s->offset),
        s->is_frozen ? NULL
        : ex->unit_g ? ex->unit_g + u->place + in_unit
                     : ex->g + s->offset};
}

static struct mw_tensor tensor(const struct mw_exec *ex, const char *name,
                               int layer)
{
    return tensor_of(ex, mw_shards_find(&ex->shards, name, layer));
}

/* "attn.q" of a layer, by its weight's name: with its bias and adapters. */
static struct mw_linear linear(const struct mw_exec *ex, const char *name,
                               int layer)
{
    static const char *const parts[] = {"weight", "bias", "lora_a", "lora_b"};
    const struct mw_slice *found[4];
    for (int i = 0; i < 4; i++) {
        char full[64];
        snprintf(full, sizeof full, "%s.%s", name, parts[i]);
        found[i] = mw_shards_find(&ex->shards, full, layer);
    }
    return (struct mw_linear){.weight = tensor_of(ex, found[0]),
                              .bias = tensor_of(ex, found[1]),
                              .lora_a = tensor_of(ex, found[2]),
                              .lora_b = tensor_of(ex, found[3]),
                              .n_outer =
                                  found[0] ? (int)found[0]->param->outer : 0};
}

static struct mw_norm_tensors norm(const struct mw_exec *ex, const char *weight,
                                   const char *bias, int layer)
{
    return (struct mw_norm_tensors){tensor(ex, weight, layer),
                                    tensor(ex, bias, layer)};
}

static void bind_block(const struct mw_exec *ex, struct mw_block *b, int layer)
{
    b->norm1 = norm(ex, "attn.norm.weight", "attn.norm.bias", layer);
    b->norm2 = norm(ex, "mlp.norm.weight", "mlp.norm.bias", layer);
    if (ex->dims.is_fused_qkv) {
        b->q = linear(ex, "attn.qkv", layer);
    } else {
        b->q = linear(ex, "attn.q", layer);
        b->kv = linear(ex, "attn.kv", layer);
    }
    b->proj = linear(ex, "attn.proj", layer);
    b->is_moe = mw_model_layer_is_moe(ex->job->model, layer);
    b->router = tensor(ex, "moe.router.weight", layer);
    b->experts_1 = linear(ex, "moe.fc1", layer);
    b->experts_2 = linear(ex, "moe.fc2", layer);
    b->shared_1 = linear(ex, "moe.shared.fc1", layer);
    b->shared_2 = linear(ex, "moe.shared.fc2", layer);
    b->shared_gate = tensor(ex, "moe.shared.gate.weight", layer);
    b->fc1 = ex->dims.is_gated ? linear(ex, "mlp.gate_up", layer)
                               : linear(ex, "mlp.fc1", layer);
    b->fc2 = linear(ex, "mlp.fc2", layer);
    b->layer = layer;
    MW_ASSERT(b->q.weight.w && b->proj.weight.w &&
                  (b->is_moe ? b->experts_1.weight.w && b->experts_2.weight.w &&
                                   b->router.w
                             : b->fc1.weight.w && b->fc2.weight.w) &&
                  b->norm1.gamma.w && b->norm2.gamma.w,
              "layer %d lacks a tensor", layer);
}

static void bind_ends(const struct mw_exec *ex, struct mw_chunk *c)
{
    int head_layer = ex->job->model->n_layers;
    if (c->has_embedding) {
        c->embedding = tensor(ex, "embed.weight", -1);
        c->position = tensor(ex, "embed.position", -1);
        MW_ASSERT(c->embedding.w, "stage %d lacks the embedding", ex->at.pp);
    }
    if (c->has_head) {
        c->final_norm =
            norm(ex, "final_norm.weight", "final_norm.bias", head_layer);
        c->head = ex->job->model->tied
                      ? tensor_of(ex, mw_shards_find_tied(&ex->shards))
                      : tensor(ex, "head.weight", head_layer);
        MW_ASSERT(c->head.w && c->final_norm.gamma.w, "stage %d lacks the head",
                  ex->at.pp);
    }
}

static void make_chunk(struct mw_exec *ex, struct mw_chunk *c, int k)
{
    const struct mw_job *job = ex->job;
    int first = mw_job_first_layer(job, k);
    c->virtual_stage = k;
    c->n_layers = job->layers[k];
    c->has_embedding = k == 0;
    c->has_head = k == job->n_virtual - 1;
    c->blocks =
        mw_arena_alloc(&ex->arena, (size_t)c->n_layers + 1, sizeof *c->blocks);
    for (int i = 0; i < c->n_layers; i++) {
        bind_block(ex, &c->blocks[i], first + i);
    }
    bind_ends(ex, c);
}

static void make_chunks(struct mw_exec *ex)
{
    const struct mw_schedule *s = ex->job->schedule;
    size_t n = (size_t)s->n_chunks;
    ex->n_chunks = s->n_chunks;
    ex->chunks = mw_arena_alloc(&ex->arena, n, sizeof *ex->chunks);
    ex->fwd = mw_arena_alloc(&ex->arena, n, sizeof *ex->fwd);
    ex->bwd = mw_arena_alloc(&ex->arena, n, sizeof *ex->bwd);
    for (int c = 0; c < s->n_chunks; c++) {
        int at = ex->at.pp * s->n_chunks + c;
        float *g = ex->g;
        /* Both routes share weights here, but each has its own sums. */
        ex->g = ex->g_twin && s->route[at] == 1 ? ex->g_twin : g;
        make_chunk(ex, &ex->chunks[c], s->virtual_stage[at]);
        ex->g = g;
    }
}

/* ---- memory ------------------------------------------------------------- */
static float *flat(struct mw_exec *ex, size_t n)
{
    return ex->dev->ops->alloc(ex->dev, n * sizeof(float));
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void make_buffers(struct mw_exec *ex)
{
    const struct mw_dims *d = &ex->dims;
    int zero = ex->job->layout.zero;
    ex->w = ex->dev->ops->alloc(ex->dev, mw_buffer_size(ex, MW_BUFFER_WEIGHT) *
                                             ex->dev->elem_bytes);
    ex->g = flat(ex, mw_buffer_size(ex, MW_BUFFER_GRAD));
    if (mw_job_is_own_twin(ex->job, ex->at.pp)) {
        ex->g_twin = flat(ex, ex->shards.n_learning);
    }
    mw_states_open(ex);
    ex->n_unit = mw_units_largest(ex);
    ex->unit_g = zero >= 2 ? flat(ex, ex->n_unit) : NULL;
    ex->n_unit_w = ex->job->layout.reshard ? ex->n_unit : ex->shards.n_total;
    ex->unit_w =
        zero >= 3
            ? ex->dev->ops->alloc(ex->dev, ex->n_unit_w * ex->dev->elem_bytes)
            : NULL;
    size_t width = max_size((size_t)d->hidden, (size_t)d->ffn);
    width = max_size(width, (size_t)d->q_width);
    width = max_size(width, (size_t)d->shared_ffn);
    ex->tmp_bytes = (size_t)d->rows * width * ex->dev->elem_bytes;
    ex->tmp = ex->dev->ops->alloc(ex->dev, ex->tmp_bytes);
    ex->full_bytes = (size_t)d->rows * (size_t)d->hidden * ex->dev->elem_bytes;
    ex->full = ex->dev->ops->alloc(ex->dev, ex->full_bytes);
    const struct mw_dev_attention a = {.n_seqs = d->n_seqs,
                                       .seq = d->seq,
                                       .n_heads = d->n_heads,
                                       .n_kv_heads = d->n_kv_heads,
                                       .head_dim = d->head_dim};
    ex->scratch_bytes = ex->dev->ops->attention_scratch(&a);
    ex->scratch = ex->dev->ops->alloc(ex->dev, ex->scratch_bytes);
}

/* All of a unit, or with ZeRO-3 the owned part; of the owned part the master.
 */
static void fill_unit(struct mw_exec *ex, int unit, const float *host)
{
    const struct mw_unit *u = &ex->shards.units.v[unit];
    struct mw_range owned = mw_unit_owned(ex, unit), r = owned;
    if (!ex->unit_w) {
        r = (struct mw_range){u->offset, u->n, 0};
    }
    size_t at = mw_stored_at(ex, MW_BUFFER_WEIGHT, &r);
    mw_weights_up(ex, mw_dev_at(ex->dev, ex->w, at), host + r.first, r.n);
    if (ex->elem != MW_ELEM_F32 && !u->is_frozen) {
        mw_states_write(ex, MW_STATE_MASTER,
                        mw_stored_at(ex, MW_BUFFER_STATE, &owned),
                        host + owned.first, owned.n);
    }
}

static void fill_weights(struct mw_exec *ex)
{
    size_t n = ex->shards.n_total;
    float *host = mw_calloc(n, sizeof *host);
    mw_shards_fill(&ex->shards, ex->job->model, ex->job->workload->seed, host);
    for (size_t u = 0; u < ex->shards.units.n; u++) {
        fill_unit(ex, (int)u, host);
    }
    mw_free(host);
}

enum mw_status mw_exec_open(struct mw_exec *ex, const struct mw_job *job,
                            struct mw_comm *world, struct mw_dev *dev,
                            struct mw_rec *rec, struct mw_err *err)
{
    *ex = (struct mw_exec){
        .job = job,
        .at = mw_layout_coord(&job->layout, world->rank),
        .world = world,
        .dev = dev,
        .elem = dev->elem_bytes == sizeof(float) ? MW_ELEM_F32 : MW_ELEM_BF16,
        .rec = rec,
        .err = err};
    mw_arena_init(&ex->arena);
    set_dims(ex);
    enum mw_status st = split_groups(ex, err);
    if (st != MW_OK) {
        mw_exec_close(ex);
        return st;
    }
    mw_shards_make(&ex->shards, job, ex->at);
    make_buffers(ex);
    mw_context_open(ex);
    mw_linear_open(ex);
    mw_slabs_open(ex);
    mw_experts_open(ex);
    fill_weights(ex);
    make_chunks(ex);
    mw_parts_open(ex);
    ex->loss = mw_arena_alloc(
        &ex->arena, (size_t)mw_schedule_items(job->schedule), sizeof *ex->loss);
    double tokens = (double)ex->dims.n_seqs * (double)ex->dims.seq *
                    job->n_microbatches * (double)job->layout.dp;
    ex->aux_weight = default_aux_weight;
    ex->loss_scale = (float)(1.0 / tokens);
    return MW_OK;
}

static void free_flat(struct mw_exec *ex, float *p, size_t n)
{
    if (p) {
        ex->dev->ops->free(ex->dev, p, n * sizeof *p);
    }
}

void mw_exec_close(struct mw_exec *ex)
{
    mw_slabs_free(ex);
    mw_context_close(ex);
    mw_linear_close(ex);
    mw_experts_close(ex);
    mw_parts_close(ex);
    if (ex->w) {
        ex->dev->ops->free(ex->dev, ex->w,
                           mw_buffer_size(ex, MW_BUFFER_WEIGHT) *
                               ex->dev->elem_bytes);
        free_flat(ex, ex->g, mw_buffer_size(ex, MW_BUFFER_GRAD));
        free_flat(ex, ex->g_twin, ex->shards.n_learning);
        mw_states_close(ex);
        free_flat(ex, ex->unit_g, ex->n_unit);
    }
    if (ex->unit_w) {
        ex->dev->ops->free(ex->dev, ex->unit_w,
                           ex->n_unit_w * ex->dev->elem_bytes);
    }
    if (ex->tmp) {
        ex->dev->ops->free(ex->dev, ex->tmp, ex->tmp_bytes);
        ex->dev->ops->free(ex->dev, ex->full, ex->full_bytes);
        ex->dev->ops->free(ex->dev, ex->scratch, ex->scratch_bytes);
    }
    mw_shards_release(&ex->shards);
    struct mw_comm *groups[] = {ex->tp,  ex->cp,     ex->cp_deal, ex->cp_ring,
                                ex->dp,  ex->copies, ex->ep,      ex->etp,
                                ex->edp, ex->ends};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        if (groups[i]) {
            groups[i]->ops->free(groups[i]);
        }
    }
    mw_arena_release(&ex->arena);
}
