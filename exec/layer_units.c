/*
 * ZeRO (Rajbhandari et al., 2020, section 5): who stores what of the flat
 * buffers, and for stages 2 and 3 the traffic of single layers.
 *
 * A unit is what is reduced or gathered at once: everything with ZeRO-1, a
 * layer (or an end of the model) from ZeRO-2 on. Its n elements fall into as
 * many equal parts as the data group has ranks; rank r owns the r-th. A
 * buffer that is split stores the owned parts of all units one after another:
 *
 *   flat    |--- unit 0 ---|------ unit 1 ------|     element p of unit u
 *   stored  |0r|  1r |                                u.offset / ranks + p -
 *                                                     first owned of u
 *
 *   ZeRO    1  moments are split
 *           2  gradients too: W of a layer fills a buffer of one unit, which
 *              is reduce-scattered; the own part is added to the stored one
 *           3  weights too: a layer's are gathered before F and before B into
 *              a buffer of one unit, and forgotten afterwards
 */
#include "exec/exec_int.h"

static size_t ranks_of(const struct mw_exec *ex)
{
    return (size_t)ex->dp->size;
}

static bool is_split(const struct mw_exec *ex, int from_stage)
{
    return ex->job->layout.zero >= from_stage;
}

struct mw_range mw_unit_owned(const struct mw_exec *ex, int unit)
{
    const struct mw_unit *u = &ex->shards.units.v[unit];
    struct mw_range all = {u->offset, u->n, u->offset};
    if (!is_split(ex, 1)) {
        return all;
    }
    size_t n = u->n / ranks_of(ex);
    return (struct mw_range){u->offset + n * (size_t)ex->dp->rank, n,
                             u->offset / ranks_of(ex)};
}

struct mw_range mw_slice_owned(const struct mw_exec *ex,
                               const struct mw_slice *s)
{
    struct mw_range r = mw_unit_owned(ex, s->unit);
    size_t begin = s->offset > r.first ? s->offset : r.first;
    size_t end = s->offset + s->n;
    end = end < r.first + r.n ? end : r.first + r.n;
    return (struct mw_range){begin, begin < end ? end - begin : 0,
                             r.stored + (begin - r.first)};
}

size_t mw_stored_at(const struct mw_exec *ex, enum mw_buffer buffer,
                    const struct mw_range *r)
{
    return is_split(ex, (int)buffer) ? r->stored : r->first;
}

size_t mw_buffer_size(const struct mw_exec *ex, enum mw_buffer buffer)
{
    size_t n = ex->shards.n_total;
    return is_split(ex, (int)buffer) ? n / ranks_of(ex) : n;
}

size_t mw_unit_largest(const struct mw_exec *ex)
{
    size_t n = 0;
    for (size_t u = 0; u < ex->shards.units.n; u++) {
        n = ex->shards.units.v[u].n > n ? ex->shards.units.v[u].n : n;
    }
    return n;
}

/* ---- traffic ------------------------------------------------------------ */
static enum mw_status unit_collective(struct mw_exec *ex, const char *name,
                                      enum mw_coll_op coll, float *buf,
                                      size_t n)
{
    struct mw_comm *dp = ex->dp;
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_DP,
                                   .name = name,
                                   .microbatch = ex->rec->label.microbatch,
                                   .stage = ex->rec->label.stage,
                                   .bytes = (double)n * sizeof(float),
                                   .dim = MW_DIM_DP,
                                   .coll = coll};
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st = coll == MW_ALL_GATHER
                            ? dp->ops->all_gather(dp, buf, n / ranks_of(ex),
                                                  MW_ELEM_F32, ex->err)
                            : dp->ops->reduce_scatter(dp, buf, n / ranks_of(ex),
                                                      MW_ELEM_F32, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

enum mw_status mw_unit_fetch(struct mw_exec *ex, int unit)
{
    if (!is_split(ex, 3)) {
        return MW_OK;
    }
    const struct mw_unit *u = &ex->shards.units.v[unit];
    struct mw_range r = mw_unit_owned(ex, unit);
    ex->dev->ops->copy(ex->dev, ex->unit_w + (r.first - u->offset),
                       ex->w + r.stored, r.n * sizeof(float));
    return unit_collective(ex, "weights", MW_ALL_GATHER, ex->unit_w, u->n);
}

void mw_unit_begin_weight(struct mw_exec *ex, int unit)
{
    if (is_split(ex, 2)) {
        ex->dev->ops->zero(ex->dev, ex->unit_g,
                           ex->shards.units.v[unit].n * sizeof(float));
    }
}

enum mw_status mw_unit_end_weight(struct mw_exec *ex, int unit)
{
    if (!is_split(ex, 2)) {
        return MW_OK;
    }
    const struct mw_unit *u = &ex->shards.units.v[unit];
    struct mw_range r = mw_unit_owned(ex, unit);
    MW_TRY(
        unit_collective(ex, "gradients", MW_REDUCE_SCATTER, ex->unit_g, u->n));
    ex->dev->ops->accumulate(ex->dev, ex->g + r.stored,
                             ex->unit_g + (r.first - u->offset), r.n);
    return MW_OK;
}

enum mw_status mw_units_gather(struct mw_exec *ex)
{
    for (size_t i = 0; i < ex->shards.units.n; i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        MW_TRY(unit_collective(ex, "weights", MW_ALL_GATHER, ex->w + u->offset,
                               u->n));
    }
    return MW_OK;
}
