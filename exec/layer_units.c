/*
 * ZeRO (Rajbhandari et al., 2020, section 5): who stores what of the flat
 * buffers, and for stages 2 and 3 the traffic of single layers.
 *
 * A unit is what is reduced or gathered at once: everything with ZeRO-1, a
 * layer (or an end of the model) from ZeRO-2 on, fsdp_unit layers of a virtual
 * stage with ZeRO-3; tensors of experts, which other ranks share, are units of
 * their own. A unit's n elements fall into as
 * many equal parts as its group has ranks; rank r owns the r-th. A buffer that
 * is split stores the owned parts of all units one after another:
 *
 *   flat    |--- unit 0 ---|------ unit 1 ------|     element p of unit u
 *   stored  |0r|  1r |                                u.stored + p - first
 *                                                     owned of u
 *
 *   ZeRO    1  moments are split
 *           2  gradients too: W of a layer fills a buffer of its units, which
 *              are reduce-scattered; the own parts are added to the stored ones
 *           3  weights too: a layer's are gathered before F and before B into
 *              a buffer of its units, and forgotten afterwards; without
 *              `reshard` before F alone, into a buffer of all units. Of
 *              several layers the first one's F, the last one's B and W come
 *              first: they gather, and clear the gradients' buffer, which the
 *              first one's W sends
 *
 * With dp_shard a group is a set of that many replicas, and what was reduced is
 * added over the ranks that have the same share in the other sets (Zhao et al.,
 * "PyTorch FSDP", 2023, section 3.2.2).
 */
#include "exec/exec_int.h"

struct mw_comm *mw_unit_group(const struct mw_exec *ex, const struct mw_unit *u)
{
    return u->is_expert ? ex->edp : ex->dp;
}

static size_t ranks_of(const struct mw_exec *ex, const struct mw_unit *u)
{
    return (size_t)mw_unit_group(ex, u)->size;
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
    size_t n = u->n / ranks_of(ex, u);
    return (struct mw_range){u->offset + n * (size_t)mw_unit_group(ex, u)->rank,
                             n, u->stored};
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
    const struct mw_shards *s = &ex->shards;
    if (buffer == MW_BUFFER_WEIGHT) {
        return is_split(ex, (int)buffer) ? s->n_stored : s->n_total;
    }
    return is_split(ex, (int)buffer) ? s->n_learning_stored : s->n_learning;
}

size_t mw_units_largest(const struct mw_exec *ex)
{
    size_t n = 0;
    for (size_t i = 0; i < ex->shards.units.n; i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        n = u->place + u->n > n ? u->place + u->n : n;
    }
    return n;
}

/* ---- traffic ------------------------------------------------------------ */
enum mw_status mw_unit_collective(struct mw_exec *ex, const char *name,
                                  const struct mw_unit *u, bool is_gather,
                                  const struct mw_piece *piece, void *buf)
{
    struct mw_comm *group = mw_unit_group(ex, u);
    enum mw_elem elem = is_gather ? ex->elem : MW_ELEM_F32;
    const struct mw_rec_event e = {
        .type = MW_REC_COLL,
        .span = MW_SPAN_DP,
        .name = name,
        .microbatch = ex->rec->label.microbatch,
        .stage = ex->rec->label.stage,
        .bytes = piece->part * (double)u->n_used * (double)mw_elem_bytes(elem),
        .dim = MW_DIM_DP,
        .is_expert = u->is_expert,
        .coll = is_gather ? MW_ALL_GATHER : MW_REDUCE_SCATTER};
    if (group->size == 1) {
        return MW_OK;
    }
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        is_gather
            ? group->ops->all_gather(group, buf, piece->n, elem, ex->err)
            : group->ops->reduce_scatter(group, buf, piece->n, elem, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* All of a unit. */
static struct mw_piece whole(const struct mw_exec *ex, const struct mw_unit *u)
{
    return (struct mw_piece){0, u->n / ranks_of(ex, u), 1};
}

enum mw_status mw_unit_add_copies(struct mw_exec *ex, const struct mw_unit *u,
                                  const struct mw_piece *piece, float *g)
{
    struct mw_comm *c = ex->copies;
    double ways = (double)ranks_of(ex, u);
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_DP,
                                   .name = "copies' gradients",
                                   .microbatch = ex->rec->label.microbatch,
                                   .stage = ex->rec->label.stage,
                                   .bytes = piece->part * (double)u->n_used *
                                            sizeof(float) / ways,
                                   .dim = MW_DIM_DP,
                                   .is_copy = true,
                                   .coll = MW_ALL_REDUCE};
    if (c->size == 1) {
        return MW_OK;
    }
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        c->ops->all_reduce(c, g, piece->n, MW_ELEM_F32, MW_REDUCE_SUM, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

/* Own part of a unit that begins at `place`. */
static size_t own_place(const struct mw_exec *ex, const struct mw_unit *u,
                        size_t place)
{
    return place + u->n / ranks_of(ex, u) * (size_t)mw_unit_group(ex, u)->rank;
}

size_t mw_unit_place(const struct mw_exec *ex, const struct mw_unit *u)
{
    return ex->job->layout.reshard ? u->place : u->offset;
}

static enum mw_status fetch_unit(struct mw_exec *ex, const struct mw_unit *u)
{
    const struct mw_piece all = whole(ex, u);
    size_t place = mw_unit_place(ex, u);
    ex->dev->ops->copy(
        ex->dev, mw_dev_at(ex->dev, ex->unit_w, own_place(ex, u, place)),
        mw_dev_at(ex->dev, ex->w, u->stored), all.n * ex->dev->elem_bytes);
    return mw_unit_collective(ex, "weights", u, true, &all,
                              mw_dev_at(ex->dev, ex->unit_w, place));
}

enum mw_status mw_layer_fetch(struct mw_exec *ex, int layer, enum mw_pass pass)
{
    bool is_there = pass != MW_PASS_F && !ex->job->layout.reshard;
    for (size_t i = 0; i < ex->shards.units.n && is_split(ex, 3) && !is_there;
         i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        if ((pass == MW_PASS_F ? u->layer : u->last) == layer) {
            MW_TRY(fetch_unit(ex, u));
        }
    }
    return MW_OK;
}

void mw_layer_begin_weight(struct mw_exec *ex, int layer)
{
    for (size_t i = 0; i < ex->shards.units.n && is_split(ex, 2); i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        if (!u->is_frozen && u->last == layer) {
            ex->dev->ops->zero(ex->dev, ex->unit_g + u->place,
                               u->n * sizeof(float));
        }
    }
}

enum mw_status mw_layer_end_weight(struct mw_exec *ex, int layer)
{
    for (size_t i = 0; i < ex->shards.units.n && is_split(ex, 2); i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        if (!u->is_frozen && u->layer == layer) {
            const struct mw_piece all = whole(ex, u);
            float *own = ex->unit_g + own_place(ex, u, u->place);
            MW_TRY(mw_unit_collective(ex, "gradients", u, false, &all,
                                      ex->unit_g + u->place));
            MW_TRY(mw_unit_add_copies(ex, u, &all, own));
            ex->dev->ops->accumulate(ex->dev, ex->g + u->stored, own, all.n);
        }
    }
    return MW_OK;
}

enum mw_status mw_units_gather(struct mw_exec *ex)
{
    for (size_t i = 0; i < ex->shards.units.n; i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        if (!u->is_frozen) {
            MW_TRY(mw_unit_gather(ex, u));
        }
    }
    return MW_OK;
}

enum mw_status mw_unit_all_reduce(struct mw_exec *ex, const char *name,
                                  const struct mw_unit *u,
                                  const struct mw_piece *piece)
{
    struct mw_comm *group = mw_unit_group(ex, u);
    const struct mw_rec_event e = {.type = MW_REC_COLL,
                                   .span = MW_SPAN_DP,
                                   .name = name,
                                   .microbatch = -1,
                                   .stage = -1,
                                   .bytes = piece->part * (double)u->n_used *
                                            sizeof(float),
                                   .dim = MW_DIM_DP,
                                   .is_expert = u->is_expert,
                                   .coll = MW_ALL_REDUCE};
    if (group->size == 1) {
        return MW_OK;
    }
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    enum mw_status st =
        group->ops->all_reduce(group, ex->g + u->offset + piece->first,
                               piece->n, MW_ELEM_F32, MW_REDUCE_SUM, ex->err);
    mw_rec_comm_end(ex->rec, begin_ns, &e);
    return st;
}

enum mw_status mw_units_reduce(struct mw_exec *ex)
{
    for (size_t i = 0; i < ex->shards.units.n; i++) {
        const struct mw_unit *u = &ex->shards.units.v[i];
        if (!u->is_frozen) {
            MW_TRY(mw_unit_reduce(ex, u));
        }
    }
    return MW_OK;
}
