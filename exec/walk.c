/*
 * The interpreter: walks this stage's list of the plan's schedule, the very
 * list that the simulator replays.
 *
 *   F   receive x (or copy it from the chunk before, on the same device),
 *       blocks, loss on the last stage, send y
 *   B   receive dy (or find it, put there by the chunk behind), blocks
 *       backwards, send dx at once
 *   W   weight gradients; activations of the micro-batch are given back
 *   BW  B, then W: the neighbour gets its gradient before W runs; under full
 *       recomputation each layer runs R, B and W before the next
 *
 * Sends are non-blocking and end before their slab is taken again; receives
 * block. A message's tag names direction, receiving virtual stage and
 * micro-batch, so lists of neighbours may differ in order. Where a micro-batch
 * runs in parts, what is called so below is one of its parts, an item.
 */
#include "exec/exec_int.h"

#include <string.h>

enum { DIR_FORWARD, DIR_BACKWARD };

/* Where virtual stage k is on the route of a micro-batch. */
static int place_of(const struct mw_exec *ex, int k, int microbatch)
{
    const struct mw_schedule *s = ex->job->schedule;
    return mw_schedule_route_of(s, microbatch) * s->route_len + k;
}

static int device_of(const struct mw_exec *ex, int k, int microbatch)
{
    return ex->job->schedule->device[place_of(ex, k, microbatch)];
}

static int chunk_of(const struct mw_exec *ex, int k, int microbatch)
{
    return ex->job->schedule->chunk[place_of(ex, k, microbatch)];
}

static int peer_of(const struct mw_exec *ex, int k, int microbatch)
{
    struct mw_coord at = ex->at;
    at.pp = device_of(ex, k, microbatch);
    return mw_layout_rank(&ex->job->layout, at);
}

static bool is_here(const struct mw_exec *ex, int k, int microbatch)
{
    return device_of(ex, k, microbatch) == ex->at.pp;
}

static int head_layer(const struct mw_exec *ex)
{
    return ex->job->model->n_layers;
}

static size_t boundary_elems(const struct mw_exec *ex)
{
    return (size_t)ex->dims.own_rows * (size_t)ex->dims.hidden;
}

/* Micro-batch of an item, which may be a part of it. */
static int whole_of(const struct mw_exec *ex, int item)
{
    return item / ex->dims.n_parts;
}

static struct mw_rec_event message(const struct mw_exec *ex, int direction,
                                   enum mw_rec_type type, int from_or_to,
                                   int receiver, int microbatch)
{
    const struct mw_job *job = ex->job;
    return (struct mw_rec_event){
        .type = type,
        .span = MW_SPAN_PP,
        .name = direction == DIR_FORWARD ? "activation" : "gradient",
        .microbatch = whole_of(ex, microbatch),
        .stage = receiver,
        .bytes = (double)boundary_elems(ex) * (double)ex->dev->elem_bytes,
        .dim = MW_DIM_PP,
        .coll = MW_SEND_RECV,
        .peer = peer_of(ex, from_or_to, microbatch),
        .tag = (direction * job->n_virtual + receiver) *
                   mw_schedule_items(job->schedule) +
               microbatch};
}

static enum mw_status send(struct mw_exec *ex, int direction, const void *buf,
                           int to, int microbatch, struct mw_send *out)
{
    const struct mw_rec_event e =
        message(ex, direction, MW_REC_SEND, to, to, microbatch);
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ex->world->ops->send(ex->world, buf, boundary_elems(ex), ex->elem,
                             e.peer, e.tag, out, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

static enum mw_status receive(struct mw_exec *ex, int direction, void *buf,
                              int from, int here, int microbatch)
{
    const struct mw_rec_event e =
        message(ex, direction, MW_REC_RECV, from, here, microbatch);
    mw_rec_idle(ex->rec);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st = ex->world->ops->recv(ex->world, buf, boundary_elems(ex),
                                             ex->elem, e.peer, e.tag, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

static void copy_boundary(struct mw_exec *ex, void *dst, const void *src)
{
    ex->dev->ops->copy(ex->dev, dst, src,
                       boundary_elems(ex) * ex->dev->elem_bytes);
}

/* ---- F ------------------------------------------------------------------ */
static void fill_batch(struct mw_exec *ex, const struct mw_chunk *c,
                       struct mw_fwd *f)
{
    size_t rows = (size_t)ex->dims.rows, bytes = rows * sizeof(int32_t);
    if (!c->has_embedding && !c->has_head) {
        return;
    }
    int32_t *token = mw_calloc(2 * rows, sizeof *token), *label = token + rows;
    mw_batch_fill(ex, whole_of(ex, f->microbatch), token, label);
    if (c->has_embedding) {
        ex->dev->ops->to_device(ex->dev, f->token, token, bytes);
    }
    if (c->has_head) {
        ex->dev->ops->to_device(ex->dev, f->label, label, bytes);
    }
    mw_free(token);
}

static enum mw_status forward_input(struct mw_exec *ex,
                                    const struct mw_chunk *c, struct mw_fwd *f)
{
    int k = c->virtual_stage;
    if (c->has_embedding) {
        MW_TRY(mw_layer_fetch(ex, -1, MW_PASS_F));
        return mw_embedding_forward(ex, c, f);
    }
    if (is_here(ex, k - 1, f->microbatch)) {
        int chunk = chunk_of(ex, k - 1, f->microbatch);
        const struct mw_fwd *before = mw_fwd_find(ex, chunk, f->microbatch);
        MW_ASSERT(before, "no forward of micro-batch %d", f->microbatch);
        copy_boundary(ex, f->x[0], before->x[ex->chunks[chunk].n_layers]);
    }
    return MW_OK;
}

/* What F writes is not kept under full recomputation. A slab that has been used
 * still points to what B brought back for the micro-batch before, which may
 * belong to another by now. */
static void forget_repeated(struct mw_exec *ex, const struct mw_chunk *c,
                            struct mw_fwd *f)
{
    for (int i = 0; i < c->n_layers && ex->dims.keeps_repeated; i++) {
        if (mw_recompute_of(ex, c, i) == MW_RECOMPUTE_FULL) {
            f->blocks[i] = ex->repeated;
            f->blocks[i].x = f->x[i];
        }
    }
}

/* What the router of block i has decided. */
static void note_routing(struct mw_exec *ex, const struct mw_chunk *c,
                         const struct mw_fwd *f, int i)
{
    size_t experts = (size_t)ex->dims.n_experts;
    size_t layer =
        (size_t)mw_model_moe_layers(ex->job->model, c->blocks[i].layer);
    size_t items = (size_t)mw_schedule_items(ex->job->schedule);
    int64_t *row =
        ex->routed + (layer * items + (size_t)f->microbatch) * experts;
    memcpy(row, f->blocks[i].moe.host_leaving, experts * sizeof *row);
}

static enum mw_status walk_forward(struct mw_exec *ex, int chunk,
                                   int microbatch)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    int k = c->virtual_stage;
    struct mw_fwd *f = mw_fwd_take(ex, chunk, microbatch);
    fill_batch(ex, c, f);
    forget_repeated(ex, c, f);
    if (k > 0 && !is_here(ex, k - 1, microbatch)) {
        MW_TRY(receive(ex, DIR_FORWARD, f->x[0], k - 1, k, microbatch));
    }
    mw_rec_work(ex->rec, MW_SPAN_F, "F", whole_of(ex, microbatch), k);
    MW_TRY(forward_input(ex, c, f));
    for (int i = 0; i < c->n_layers; i++) {
        MW_TRY(mw_layer_fetch(ex, c->blocks[i].layer, MW_PASS_F));
        mw_part_layer(ex, c, i);
        MW_TRY(mw_block_forward(ex, &c->blocks[i], &f->blocks[i], f->x[i + 1]));
        if (c->blocks[i].is_moe && ex->routed) {
            note_routing(ex, c, f, i);
        }
        if (c->blocks[i].is_moe &&
            mw_recompute_of(ex, c, i) != MW_RECOMPUTE_FULL) {
            mw_fwd_count_experts(ex, f, i);
        }
    }
    if (c->has_head) {
        MW_TRY(mw_layer_fetch(ex, head_layer(ex), MW_PASS_F));
        MW_TRY(mw_head_forward(ex, c, f));
    }
    mw_rec_idle(ex->rec);
    if (!c->has_head && !is_here(ex, k + 1, microbatch)) {
        MW_TRY(send(ex, DIR_FORWARD, f->x[c->n_layers], k + 1, microbatch,
                    &f->sent));
    }
    return MW_OK;
}

/* Full recomputation brings one layer back at a time, so B and W of a fused
 * pass go layer by layer, layers that are kept as well. */
static bool weights_follow_layer(const struct mw_exec *ex)
{
    return ex->dims.recompute == MW_RECOMPUTE_FULL && !ex->dims.keeps_repeated;
}

/* ---- B ------------------------------------------------------------------ */
/* Leaves dx for the chunk before, when that is on this device. */
static void hand_back(struct mw_exec *ex, const struct mw_chunk *c,
                      const struct mw_bwd *b)
{
    int chunk = chunk_of(ex, c->virtual_stage - 1, b->microbatch);
    struct mw_bwd *before = mw_bwd_take(ex, chunk, b->microbatch);
    copy_boundary(ex, before->dx[ex->chunks[chunk].n_layers], b->dx[0]);
}

/* Forward of a layer once more, from its input; its output is not needed. */
static enum mw_status repeat_forward(struct mw_exec *ex,
                                     const struct mw_chunk *c, struct mw_fwd *f,
                                     const struct mw_bwd *b, int i)
{
    if (mw_recompute_of(ex, c, i) != MW_RECOMPUTE_FULL) {
        return MW_OK;
    }
    f->blocks[i] = ex->dims.keeps_repeated ? b->repeated[i] : ex->repeated;
    f->blocks[i].x = f->x[i];
    mw_exec_relabel(ex, MW_SPAN_RECOMPUTE, "R");
    MW_TRY(mw_block_forward(ex, &c->blocks[i], &f->blocks[i], ex->full));
    mw_exec_relabel(ex, MW_SPAN_B, "B");
    return MW_OK;
}

static enum mw_status weight_layer(struct mw_exec *ex, const struct mw_chunk *c,
                                   const struct mw_fwd *f,
                                   const struct mw_bwd *b, int i)
{
    mw_layer_begin_weight(ex, c->blocks[i].layer);
    MW_TRY(mw_block_weight(ex, &c->blocks[i], &f->blocks[i], &b->blocks[i],
                           b->dx[i + 1]));
    return mw_layer_end_weight(ex, c->blocks[i].layer);
}

/* B of layer i; and its W at once where recomputed activations do not last. */
static enum mw_status backward_layer(struct mw_exec *ex,
                                     const struct mw_chunk *c, struct mw_fwd *f,
                                     const struct mw_bwd *b, int i)
{
    MW_TRY(mw_layer_fetch(ex, c->blocks[i].layer, MW_PASS_B));
    mw_part_layer(ex, c, i);
    MW_TRY(repeat_forward(ex, c, f, b, i));
    MW_TRY(mw_block_backward(ex, &c->blocks[i], &f->blocks[i], &b->blocks[i],
                             b->dx[i + 1], b->dx[i]));
    if (!weights_follow_layer(ex)) {
        return MW_OK;
    }
    mw_exec_relabel(ex, MW_SPAN_W, "W");
    MW_TRY(weight_layer(ex, c, f, b, i));
    mw_exec_relabel(ex, MW_SPAN_B, "B");
    return MW_OK;
}

static enum mw_status walk_backward(struct mw_exec *ex, int chunk,
                                    int microbatch)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    int k = c->virtual_stage;
    struct mw_fwd *f = mw_fwd_find(ex, chunk, microbatch);
    struct mw_bwd *b = mw_bwd_find(ex, chunk, microbatch);
    MW_ASSERT(f, "no forward of micro-batch %d", microbatch);
    if (!b) {
        b = mw_bwd_take(ex, chunk, microbatch);
    }
    if (!c->has_head && !is_here(ex, k + 1, microbatch)) {
        MW_TRY(receive(ex, DIR_BACKWARD, b->dx[c->n_layers], k + 1, k,
                       microbatch));
    }
    mw_rec_work(ex->rec, MW_SPAN_B, "B", whole_of(ex, microbatch), k);
    if (c->has_head) {
        MW_TRY(mw_layer_fetch(ex, head_layer(ex), MW_PASS_B));
        MW_TRY(mw_head_backward(ex, c, f, b));
    }
    for (int i = c->n_layers - 1; i >= 0; i--) {
        MW_TRY(backward_layer(ex, c, f, b, i));
    }
    if (k > 0 && is_here(ex, k - 1, microbatch)) {
        hand_back(ex, c, b);
    }
    mw_rec_idle(ex->rec);
    if (k > 0 && !is_here(ex, k - 1, microbatch)) {
        MW_TRY(send(ex, DIR_BACKWARD, b->dx[0], k - 1, microbatch, &b->sent));
    }
    return MW_OK;
}

/* ---- W ------------------------------------------------------------------ */
static enum mw_status walk_weight(struct mw_exec *ex, int chunk, int microbatch)
{
    const struct mw_chunk *c = &ex->chunks[chunk];
    struct mw_fwd *f = mw_fwd_find(ex, chunk, microbatch);
    struct mw_bwd *b = mw_bwd_find(ex, chunk, microbatch);
    MW_ASSERT(f && b, "no backward of micro-batch %d", microbatch);
    mw_rec_work(ex->rec, MW_SPAN_W, "W", whole_of(ex, microbatch),
                c->virtual_stage);
    if (c->has_head) {
        mw_layer_begin_weight(ex, head_layer(ex));
        MW_TRY(mw_head_weight(ex, c, f, b));
        MW_TRY(mw_layer_end_weight(ex, head_layer(ex)));
    }
    for (int i = c->n_layers - 1; i >= 0 && !weights_follow_layer(ex); i--) {
        MW_TRY(weight_layer(ex, c, f, b, i));
    }
    if (c->has_embedding) {
        mw_layer_begin_weight(ex, -1);
        MW_TRY(mw_embedding_weight(ex, c, f, b));
        MW_TRY(mw_layer_end_weight(ex, -1));
    }
    mw_rec_idle(ex->rec);
    mw_fwd_give(ex, f);
    mw_bwd_give(b);
    return MW_OK;
}

static enum mw_status walk_slot(struct mw_exec *ex, const struct mw_slot *slot)
{
    switch ((enum mw_pass)slot->pass) {
    case MW_PASS_F:
        return walk_forward(ex, slot->chunk, slot->microbatch);
    case MW_PASS_B:
        return walk_backward(ex, slot->chunk, slot->microbatch);
    case MW_PASS_W:
        return walk_weight(ex, slot->chunk, slot->microbatch);
    case MW_PASS_BW:
        MW_TRY(walk_backward(ex, slot->chunk, slot->microbatch));
        return walk_weight(ex, slot->chunk, slot->microbatch);
    case MW_PASS_COUNT:
        break;
    }
    return MW_OK;
}

enum mw_status mw_exec_walk(struct mw_exec *ex)
{
    const struct mw_schedule *s = ex->job->schedule;
    mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "zero gradients", -1, -1);
    ex->dev->ops->zero(ex->dev, ex->g,
                       mw_buffer_size(ex, MW_BUFFER_GRAD) * sizeof(float));
    if (ex->g_twin) {
        ex->dev->ops->zero(ex->dev, ex->g_twin,
                           ex->shards.n_learning * sizeof(float));
    }
    mw_rec_idle(ex->rec);
    for (uint32_t i = s->first[ex->at.pp]; i < s->first[ex->at.pp + 1]; i++) {
        mw_part_begin(ex, &s->slot[i]);
        MW_TRY(walk_slot(ex, &s->slot[i]));
        mw_part_end(ex, &s->slot[i]);
    }
    return mw_slabs_settle(ex);
}
