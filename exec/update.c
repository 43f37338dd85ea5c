/*
 * The end of a step: gradients of a tied head, gradients over DP, AdamW, loss.
 *
 * ZeRO-1 (Rajbhandari et al., 2020, section 5.1): rank i of dp owns the i-th
 * part of the flat buffers. Gradients are reduce-scattered, each rank updates
 * its part (with moments of that part only), weights are gathered.
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

/* ---- tied embedding ----------------------------------------------------- */
static enum mw_status reduce_tied(struct mw_exec *ex)
{
    const struct mw_slice *head = mw_shards_find_tied(&ex->shards);
    const struct mw_slice *embed =
        mw_shards_find(&ex->shards, "embed.weight", -1);
    const struct mw_dev_ops *ops = ex->dev->ops;
    if (head && embed) {
        mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "tied gradient", -1, -1);
        ops->accumulate(ex->dev, ex->g + embed->offset, ex->g + head->offset,
                        head->n);
        ops->copy(ex->dev, ex->g + head->offset, ex->g + embed->offset,
                  head->n * sizeof(float));
        mw_rec_idle(ex->rec);
        return MW_OK;
    }
    if (!head && !embed) {
        return MW_OK;
    }
    const struct mw_slice *mine = head ? head : embed;
    const struct mw_rec_event e = collective(MW_SPAN_PP, "tied gradient",
                                             MW_DIM_PP, MW_ALL_REDUCE, mine->n);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ex->ends->ops->all_reduce(ex->ends, ex->g + mine->offset, mine->n,
                                  MW_ELEM_F32, MW_REDUCE_SUM, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* ---- norms under sequence parallelism ----------------------------------- */
static bool is_partial(const struct mw_slice *s)
{
    size_t n = strlen(s->param->name);
    const char *end = s->param->name + n;
    return (n > 11 && strcmp(end - 11, "norm.weight") == 0) ||
           (n > 9 && strcmp(end - 9, "norm.bias") == 0);
}

/* Each rank of the group saw its own rows in the norms: their gradients are
 * added, in one message. */
static enum mw_status reduce_norms(struct mw_exec *ex)
{
    const struct mw_dev_ops *ops = ex->dev->ops;
    size_t n = 0;
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        n += is_partial(&ex->shards.slices.v[i]) ? ex->shards.slices.v[i].n : 0;
    }
    float *all = ops->alloc(ex->dev, n * sizeof *all + 64);
    size_t at = 0;
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (is_partial(s)) {
            ops->copy(ex->dev, all + at, ex->g + s->offset, s->n * sizeof *all);
            at += s->n;
        }
    }
    enum mw_status st = ops->sync(ex->dev, ex->err);
    if (st == MW_OK) {
        st = mw_exec_tp_reduce(ex, "norms", all, n, MW_REDUCE_SUM);
    }
    for (size_t i = ex->shards.slices.n; i-- > 0 && st == MW_OK;) {
        const struct mw_slice *s = &ex->shards.slices.v[i];
        if (is_partial(s)) {
            at -= s->n;
            ops->copy(ex->dev, ex->g + s->offset, all + at, s->n * sizeof *all);
        }
    }
    ops->free(ex->dev, all, n * sizeof *all + 64);
    return st;
}

/* ---- gradients over DP -------------------------------------------------- */
static enum mw_status reduce_dp(struct mw_exec *ex)
{
    struct mw_comm *dp = ex->dp;
    size_t n = ex->shards.n_total;
    bool is_split = ex->job->layout.zero > 0;
    const struct mw_rec_event e =
        collective(MW_SPAN_DP, "gradients", MW_DIM_DP,
                   is_split ? MW_REDUCE_SCATTER : MW_ALL_REDUCE, n);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        is_split ? dp->ops->reduce_scatter(dp, ex->g, n / (size_t)dp->size,
                                           MW_ELEM_F32, ex->err)
                 : dp->ops->all_reduce(dp, ex->g, n, MW_ELEM_F32, MW_REDUCE_SUM,
                                       ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

enum mw_status mw_exec_reduce_gradients(struct mw_exec *ex)
{
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    if (ex->job->model->tied) {
        MW_TRY(reduce_tied(ex));
    }
    if (ex->dims.is_sp) {
        MW_TRY(reduce_norms(ex));
    }
    return ex->dp->size > 1 ? reduce_dp(ex) : MW_OK;
}

/* ---- optimizer ---------------------------------------------------------- */
void mw_exec_owned(const struct mw_exec *ex, size_t *out_first, size_t *out_n)
{
    size_t n = ex->shards.n_total;
    *out_first = 0;
    *out_n = n;
    if (ex->job->layout.zero > 0) {
        *out_n = n / (size_t)ex->dp->size;
        *out_first = *out_n * (size_t)ex->dp->rank;
    }
}

/* The part of a slice that this rank owns. */
static void update_slice(struct mw_exec *ex, const struct mw_slice *s,
                         size_t first, size_t n_owned)
{
    size_t begin = s->offset > first ? s->offset : first;
    size_t end = s->offset + s->n;
    end = end < first + n_owned ? end : first + n_owned;
    if (begin >= end) {
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
    ex->dev->ops->adamw(ex->dev, &h, ex->w + begin, ex->g + begin,
                        ex->m + (begin - first), ex->v + (begin - first),
                        end - begin);
}

static enum mw_status gather_weights(struct mw_exec *ex, size_t n_owned)
{
    const struct mw_rec_event e = collective(MW_SPAN_DP, "weights", MW_DIM_DP,
                                             MW_ALL_GATHER, ex->shards.n_total);
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        ex->dp->ops->all_gather(ex->dp, ex->w, n_owned, MW_ELEM_F32, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

enum mw_status mw_exec_update(struct mw_exec *ex)
{
    size_t first, n_owned;
    mw_exec_owned(ex, &first, &n_owned);
    mw_rec_work(ex->rec, MW_SPAN_OPTIMIZER, "adamw", -1, -1);
    for (size_t i = 0; i < ex->shards.slices.n; i++) {
        update_slice(ex, &ex->shards.slices.v[i], first, n_owned);
    }
    MW_TRY(ex->dev->ops->sync(ex->dev, ex->err));
    mw_rec_idle(ex->rec);
    ex->step++;
    if (ex->job->layout.zero > 0 && ex->dp->size > 1) {
        return gather_weights(ex, n_owned);
    }
    return MW_OK;
}

enum mw_status mw_exec_loss(struct mw_exec *ex, double *out)
{
    const struct mw_job *job = ex->job;
    bool is_last = false;
    for (int c = 0; c < ex->n_chunks; c++) {
        is_last = is_last || ex->chunks[c].has_head;
    }
    double sum = 0.0;
    for (int i = 0; is_last && ex->at.tp == 0 && i < job->n_microbatches; i++) {
        sum += ex->loss[i];
    }
    MW_TRY(ex->world->ops->all_reduce(ex->world, &sum, 1, MW_ELEM_F64,
                                      MW_REDUCE_SUM, ex->err));
    *out = sum / ((double)ex->dims.rows * job->n_microbatches * job->layout.dp);
    return MW_OK;
}
