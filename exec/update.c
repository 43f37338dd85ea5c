/*
 * The end of a step: gradients of a tied head, gradients over DP and the two
 * holders of a virtual stage (bidirectional schedules), AdamW, loss.
 *
 * With ZeRO (layer_units.c) each rank updates what it owns, with moments of
 * that only. ZeRO-1 reduce-scatters gradients here; ZeRO-2 and 3 did so after
 * every W. ZeRO-1 and 2 gather weights at the end.
 */
#include "exec/exec_int.h"

#include <string.h>

/* The rate rises linearly over the first WARMUP steps, as usual: Adam's first
 * steps move every weight by the full rate, whatever its gradient. */
enum { WARMUP = 10 };
static const struct mw_dev_adamw adamw = {
    .lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .decay = 0.01f};

static struct mw_rec_event collective(enum mw_span_kind span, const char *name,
                                      enum mw_dim dim, enum mw_coll_op coll,
                                      size_t n)
{
    return (struct mw_rec_event){.type = MW_REC_COLL,
                                 .span = span,
                                 .name = name,
                                 .microbatch = -1,
                                 .stage = -1,
                                 .bytes = (double)n * sizeof(float),
                                 .dim = dim,
                                 .coll = coll};
}

/* ---- two routes on one device ------------------------------------------- */
/* Adds the second route's sums to the first's, in the order of two devices:
 * there an end has the embedding of one route and the head of the other, and
 * adds these two before the devices add up. */
static void add_twin(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    const struct mw_slice *head = mw_shards_find_tied(&ex->shards);
    const struct mw_slice *embed =
        mw_shards_find(&ex->shards, "embed.weight", -1);
    bool is_tied = head && embed && !head->is_frozen;
    mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "twin gradient", -1, -1);
    if (is_tied) {
        ops->accumulate(ex->dev, ex->g + embed->offset,
                        ex->g_twin + head->offset, head->n);
        ops->accumulate(ex->dev, ex->g_twin + embed->offset,
                        ex->g + head->offset, head->n);
    }
    ops->accumulate(ex->dev, ex->g, ex->g_twin, ex->shards.n_learning);
    if (is_tied) {
        ops->copy(ex->dev, ex->g + head->offset, ex->g + embed->offset,
                  head->n * sizeof(float));
    }
    mw_rec_idle(ex->rec);
}

/* What g has of a slice before the data group's reduction: all, or from
 * ZeRO-2 on the owned part. */
static struct mw_range gradient_of(const struct mw_exec *ex,
                                   const struct mw_slice *s)
{
    return ex->unit_g ? mw_slice_owned(ex, s)
                      : (struct mw_range){s->offset, s->n, s->offset};
}

/* ---- tied embedding ----------------------------------------------------- */
/* Both copies fall into shares alike. */
static void add_tied(struct mw_exec *ex, const struct mw_range *embed,
                     const struct mw_range *head)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    float *e = ex->g + embed->stored, *h = ex->g + head->stored;
    MW_ASSERT(embed->n == head->n, "shares of %zu and %zu elements", embed->n,
              head->n);
    mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "tied gradient", -1, -1);
    ops->accumulate(ex->dev, e, h, head->n);
    ops->copy(ex->dev, h, e, head->n * sizeof(float));
    mw_rec_idle(ex->rec);
}

static enum mw_status reduce_tied(struct mw_exec *ex)
{
    const struct mw_slice *head = mw_shards_find_tied(&ex->shards);
    const struct mw_slice *embed =
        mw_shards_find(&ex->shards, "embed.weight", -1);
    if (!head && !embed) {
        return MW_OK;
    }
    if (head && embed) {
        struct mw_range e = gradient_of(ex, embed), h = gradient_of(ex, head);
        add_tied(ex, &e, &h);
        return MW_OK;
    }
    const struct mw_range mine = gradient_of(ex, head ? head : embed);
    if (mine.n == 0) {
        return MW_OK; /* the last shares may be padding alone, here and there */
    }
    const struct mw_rec_event e = collective(MW_SPAN_PP, "tied gradient",
                                             MW_DIM_PP, MW_ALL_REDUCE, mine.n);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ex->ends->ops->all_reduce(ex->ends, ex->g + mine.stored, mine.n,
                                  MW_ELEM_F32, MW_REDUCE_SUM, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* ---- partial sums over the TP group ------------------------------------- */
/*
 * With sp each rank saw its own rows in norms, routers, gates and the biases of
 * row-parallel layers: in all that it holds whole but positions, whose gradient
 * is made of gathered rows. Of adapters the half that all ranks hold whole met
 * a part of the columns on each.
 */
static bool is_partial(const struct mw_slice *s)
{
    return !s->is_frozen && s->param->shard == MW_SHARD_NONE &&
           strcmp(s->param->name, "embed.position") != 0;
}

/* Of each such tensor a rank of the group has a part of the gradient: they are
 * added, in one message. */
static enum mw_status reduce_shared(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    size_t n = 0;
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        n += is_partial(s) ? gradient_of(ex, s).n : 0;
    }
    float *all = ops->alloc(ex->dev, n * sizeof *all + 64);
    size_t at = 0;
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (is_partial(s)) {
            struct mw_range r = gradient_of(ex, s);
            ops->copy(ex->dev, all + at, ex->g + r.stored, r.n * sizeof *all);
            at += r.n;
        }
    }
    enum mw_status st = ops->sync(ex->dev, ex->err);
    if (st == MW_OK) {
        st = mw_exec_tp_reduce(ex, "shared gradients", all, n, MW_REDUCE_SUM);
    }
    for (size_t i = ex->shards.slices.n; i-- > 0 && st == MW_OK;) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (is_partial(s)) {
            struct mw_range r = gradient_of(ex, s);
            at -= r.n;
            ops->copy(ex->dev, ex->g + r.stored, all + at, r.n * sizeof *all);
        }
    }
    ops->free(ex->dev, all, n * sizeof *all + 64);
    return st;
}

/* ---- gradients over DP -------------------------------------------------- */
enum mw_status mw_exec_reduce_gradients(struct mw_exec *ex)
{
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    if (ex->g_twin) {
        add_twin(ex);
    } else if (ex->job->model->tied && ex->dims.lora_rank == 0) {
        MW_TRY(reduce_tied(ex));
    }
    if (ex->tp->size > 1 && (ex->dims.is_sp || ex->dims.lora_rank > 0)) {
        MW_TRY(reduce_shared(ex));
    }
    return ex->unit_g ? MW_OK : mw_units_reduce(ex);
}

/* ---- optimizer ---------------------------------------------------------- */
/* The part of a slice that this rank owns. */
static void update_slice(struct mw_exec *ex, const struct mw_slice *s)
{
    struct mw_range r = mw_slice_owned(ex, s);
    if (r.n == 0) {
        return;
    }
    struct mw_dev_adamw h = adamw;
    h.step = ex->step + 1;
    if (h.step < WARMUP) {
        h.lr *= (float)h.step / (float)WARMUP;
    }
    if (s->param->is_norm_or_bias) {
        h.decay = 0.0f;
    }
    mw_states_update(
        ex, &h, mw_stored_at(ex, MW_BUFFER_STATE, &r),
        mw_dev_at(ex->dev, ex->w, mw_stored_at(ex, MW_BUFFER_WEIGHT, &r)),
        ex->g + mw_stored_at(ex, MW_BUFFER_GRAD, &r), r.n);
}

enum mw_status mw_exec_update(struct mw_exec *ex)
{
    int zero = ex->job->layout.zero;
    mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "adamw", -1, -1);
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        if (!ex->shards.slices.v[i].is_frozen) {
            update_slice(ex, &ex->shards.slices.v[i]);
        }
    }
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    mw_rec_idle(ex->rec);
    ex->step++;
    return zero == 1 || zero == 2 ? mw_units_gather(ex) : MW_OK;
}

enum mw_status mw_exec_loss(struct mw_exec *ex, double *out)
{
    const struct mw_job *job = ex->job;
    bool is_last = false;
    for (int c = 0; c < ex->n_chunks; c++) {
        is_last = is_last || ex->chunks[c].has_head;
    }
    /* Each route by itself: its sum is one rank's. */
    double route_sum[2] = {0.0, 0.0};
    int n = mw_schedule_items(job->schedule);
    for (int i = 0; is_last && ex->at.tp == 0 && i < n; i++) {
        route_sum[mw_schedule_route_of(job->schedule, i)] += ex->loss[i];
    }
    double sum = route_sum[0] + route_sum[1];
    MW_TRY(ex->world->ops->all_reduce(ex->world, &sum, 1, MW_ELEM_F64,
                                      MW_REDUCE_SUM, ex->err));
    *out = sum / ((double)ex->dims.n_seqs * (double)ex->dims.seq *
                  job->n_microbatches * job->layout.dp);
    return MW_OK;
}
