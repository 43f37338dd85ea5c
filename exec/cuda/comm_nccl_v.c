/*
 * All-to-alls, and collectives of blocks of different lengths, which NCCL has
 * not: groups of its operations on one communicator, which then go on together
 * (NCCL user guide 2.28, "Point-to-point communication", "Group calls").
 *
 *   all-to-all        a send and a receive for each rank, oneself included
 *   all-gather        a broadcast in place from each rank
 *   reduce-scatter    a reduction in place to each rank
 *
 * Empty blocks are left out; their lengths are known on both sides. Each rank
 * adds in NCCL's order, in the type of the elements.
 */
#include "exec/cuda/cuda_nccl_int.h"

static char *block(const void *p, size_t n, enum mw_elem elem)
{
    return (char *)(uintptr_t)p + n * mw_elem_bytes(elem);
}

/* Calls on a non-blocking communicator may say that it is not done yet. */
static bool goes_on(ncclResult_t rc)
{
    return rc == ncclSuccess || rc == ncclInProgress;
}

/* ---- all-to-all --------------------------------------------------------- */
/* Lengths of blocks to and from rank r. */
struct lengths {
    const size_t *from, *to; /* NULL: n each */
    size_t n;
};

static ncclResult_t exchange(struct comm_nccl *c, const void *from, void *to,
                             const struct lengths *len, enum mw_elem elem)
{
    ncclDataType_t type = mw_nccl_type_of(elem);
    size_t at_from = 0, at_to = 0;
    ncclResult_t rc = ncclGroupStart();
    for (int r = 0; r < c->base.size && goes_on(rc); r++) {
        size_t n_from = len->from ? len->from[r] : len->n;
        size_t n_to = len->to ? len->to[r] : len->n;
        if (n_from > 0) {
            rc = ncclSend(block(from, at_from, elem), n_from, type, r, c->nccl,
                          c->dev->stream);
        }
        if (n_to > 0 && goes_on(rc)) {
            rc = ncclRecv(block(to, at_to, elem), n_to, type, r, c->nccl,
                          c->dev->stream);
        }
        at_from += n_from;
        at_to += n_to;
    }
    ncclResult_t end = ncclGroupEnd();
    return goes_on(rc) ? end : rc;
}

static enum mw_status exchange_on_device(struct comm_nccl *c, const void *from,
                                         void *to, const struct lengths *len,
                                         enum mw_elem elem, struct mw_err *err)
{
    struct mw_dev *dev = &c->dev->base;
    if (c->nccl) {
        return mw_nccl_finish(c, exchange(c, from, to, len, elem), "all-to-all",
                              err);
    }
    size_t n = len->from ? len->from[0] : len->n;
    if (n > 0) {
        dev->ops->copy(dev, to, from, n * mw_elem_bytes(elem));
    }
    return MW_OK;
}

enum mw_status mw_nccl_all_to_all(struct mw_comm *comm, const void *from,
                                  void *to, size_t n, enum mw_elem elem,
                                  struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    const struct lengths len = {NULL, NULL, n};
    bool is_on_device;
    TRY(mw_nccl_where(c, from, &is_on_device, err));
    return is_on_device
               ? exchange_on_device(c, from, to, &len, elem, err)
               : c->host->ops->all_to_all(c->host, from, to, n, elem, err);
}

enum mw_status mw_nccl_all_to_all_v(struct mw_comm *comm, const void *from,
                                    const size_t *n_from, void *to,
                                    const size_t *n_to, enum mw_elem elem,
                                    struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    const struct lengths len = {n_from, n_to, 0};
    bool is_on_device;
    TRY(mw_nccl_where(c, from, &is_on_device, err));
    return is_on_device ? exchange_on_device(c, from, to, &len, elem, err)
                        : c->host->ops->all_to_all_v(c->host, from, n_from, to,
                                                     n_to, elem, err);
}

/* ---- one operation a block ---------------------------------------------- */
static ncclResult_t each_block(struct comm_nccl *c, void *buf, const size_t *n,
                               enum mw_elem elem, bool is_sum)
{
    ncclDataType_t type = mw_nccl_type_of(elem);
    size_t at = 0;
    ncclResult_t rc = ncclGroupStart();
    for (int r = 0; r < c->base.size && goes_on(rc); r++) {
        void *p = block(buf, at, elem);
        if (n[r] > 0) {
            rc = is_sum ? ncclReduce(p, p, n[r], type, ncclSum, r, c->nccl,
                                     c->dev->stream)
                        : ncclBroadcast(p, p, n[r], type, r, c->nccl,
                                        c->dev->stream);
        }
        at += n[r];
    }
    ncclResult_t end = ncclGroupEnd();
    return goes_on(rc) ? end : rc;
}

enum mw_status mw_nccl_all_gather_v(struct mw_comm *comm, void *buf,
                                    const size_t *n, enum mw_elem elem,
                                    struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->all_gather_v(c->host, buf, n, elem, err);
    }
    return c->nccl ? mw_nccl_finish(c, each_block(c, buf, n, elem, false),
                                    "all-gather of blocks", err)
                   : MW_OK;
}

enum mw_status mw_nccl_reduce_scatter_v(struct mw_comm *comm, void *buf,
                                        const size_t *n, enum mw_elem elem,
                                        struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->reduce_scatter_v(c->host, buf, n, elem, err);
    }
    return c->nccl ? mw_nccl_finish(c, each_block(c, buf, n, elem, true),
                                    "reduce-scatter of blocks", err)
                   : MW_OK;
}
