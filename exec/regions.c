/*
 * Into and out of the tensor-parallel regions of a block (Megatron-LM's f and
 * g), with and without sequence parallelism:
 *
 *             enter                            leave
 *   tp        nothing: every rank has all      all-reduce of partial sums
 *             rows
 *   tp, sp    all-gather of the ranks' rows    reduce-scatter: each rank keeps
 *                                              the sums of its own rows
 *
 * With sp a rank owns rows / tp consecutive rows outside of the regions
 * (Korthikanti et al., 2022, section 4.2.2); block t of a gathered buffer is
 * rank t's.
 */
#include "exec/exec_int.h"

static enum mw_status tp_collective(struct mw_exec *ex, const char *name,
                                    enum mw_coll_op coll, void *buf, size_t n,
                                    enum mw_elem elem, enum mw_reduce op)
{
    const struct mw_rec_event event = {.type = MW_REC_COLL,
                                       .span = MW_SPAN_TP,
                                       .name = name,
                                       .microbatch = ex->rec->label.microbatch,
                                       .stage = ex->rec->label.stage,
                                       .bytes = (double)n *
                                                (double)mw_elem_bytes(elem),
                                       .dim = MW_DIM_TP,
                                       .coll = coll};
    struct mw_comm *tp = ex->tp;
    size_t part = n / (size_t)tp->size;
    enum mw_status st;
    int64_t begin_ns = mw_rec_comm_begin(ex->rec);
    if (coll == MW_ALL_GATHER) {
        st = tp->ops->all_gather(tp, buf, part, elem, ex->err);
    } else if (coll == MW_REDUCE_SCATTER) {
        st = tp->ops->reduce_scatter(tp, buf, part, elem, ex->err);
    } else {
        st = tp->ops->all_reduce(tp, buf, n, elem, op, ex->err);
    }
    mw_rec_comm_end(ex->rec, begin_ns, &event);
    return st;
}

enum mw_status mw_exec_tp_reduce(struct mw_exec *ex, const char *name,
                                 void *buf, size_t n, enum mw_reduce op)
{
    return ex->tp->size == 1 ? MW_OK
                             : tp_collective(ex, name, MW_ALL_REDUCE, buf, n,
                                             MW_ELEM_F32, op);
}

static void *own_rows(const struct mw_exec *ex, void *full)
{
    size_t n = (size_t)ex->dims.own_rows * (size_t)ex->dims.hidden;
    return mw_dev_at(ex->dev, full, (size_t)ex->tp->rank * n);
}

enum mw_status mw_region_enter(struct mw_exec *ex, const char *name,
                               const void *own, void *full, const void **out)
{
    size_t n = (size_t)ex->dims.own_rows * (size_t)ex->dims.hidden;
    *out = own;
    if (!ex->dims.is_sp) {
        return MW_OK;
    }
    *out = full;
    ex->dev->ops->copy(ex->dev, own_rows(ex, full), own,
                       n * ex->dev->elem_bytes);
    return tp_collective(ex, name, MW_ALL_GATHER, full,
                         n * (size_t)ex->tp->size, ex->elem, MW_REDUCE_SUM);
}

enum mw_status mw_region_leave(struct mw_exec *ex, const char *name, void *full,
                               void **out)
{
    size_t n = (size_t)ex->dims.rows * (size_t)ex->dims.hidden;
    *out = ex->dims.is_sp ? own_rows(ex, full) : full;
    if (ex->tp->size == 1) {
        return MW_OK;
    }
    return tp_collective(ex, name,
                         ex->dims.is_sp ? MW_REDUCE_SCATTER : MW_ALL_REDUCE,
                         full, n, ex->elem, MW_REDUCE_SUM);
}

enum mw_status mw_region_sum_gradient(struct mw_exec *ex, const char *name,
                                      void *dn)
{
    void *sum;
    MW_TRY(mw_region_leave(ex, name, ex->dims.is_sp ? ex->full : dn, &sum));
    if (ex->dims.is_sp) {
        ex->dev->ops->copy(ex->dev, dn, sum,
                           (size_t)ex->dims.own_rows * (size_t)ex->dims.hidden *
                               ex->dev->elem_bytes);
    }
    return MW_OK;
}
