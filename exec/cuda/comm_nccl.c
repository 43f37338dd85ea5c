/*
 * NCCL behind the table of comm.h: making and ending communicators,
 * collectives of equal blocks; others are in comm_nccl_v.c, messages in
 * lanes_nccl.c.
 *
 * A collective is enqueued on the device's stream, behind what computes its
 * input, and waited for, since the table's calls block. Communicators are made
 * by unique ids that travel over the host's communicator, non-blocking, so
 * that every wait is a poll with a time limit. Left out: overlap with
 * computation, registered buffers. Source: NCCL user guide 2.28, "Fault
 * tolerance", "In-place operations".
 */
#include "exec/cuda/cuda_nccl_int.h"

#include <string.h>

static const struct mw_comm_ops nccl_ops;

ncclDataType_t mw_nccl_type_of(enum mw_elem elem)
{
    switch (elem) {
    case MW_ELEM_F32:
        return ncclFloat32;
    case MW_ELEM_F64:
        return ncclFloat64;
    case MW_ELEM_BF16:
        return ncclBfloat16;
    case MW_ELEM_I64:
        break;
    }
    return ncclInt64;
}

enum mw_status mw_nccl_check(struct comm_nccl *c, bool is_ok,
                             struct mw_err *err)
{
    if (!is_ok && err) {
        *err = c->dev->fault;
    }
    return is_ok ? MW_OK : c->dev->fault.status;
}

enum mw_status mw_nccl_where(struct comm_nccl *c, const void *p,
                             bool *out_is_on_device, struct mw_err *err)
{
    struct cudaPointerAttributes a;
    TRY(mw_nccl_check(c, MW_CUDA_RUN(c->dev, cudaPointerGetAttributes, &a, p),
                      err));
    *out_is_on_device = a.type == cudaMemoryTypeDevice;
    return MW_OK;
}

/* ---- making and ending communicators
 * --------------------------------------------- */
enum mw_status mw_nccl_join(struct mw_cuda *dev, const ncclUniqueId *id,
                            int rank, int size, ncclComm_t *out,
                            struct mw_err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t rc = ncclCommInitRankConfig(out, size, *id, rank, &config);
    if (*out) {
        mw_cuda_watch(dev, *out);
    }
    return mw_cuda_settle(dev, *out, rc, "ncclCommInitRankConfig", err);
}

/* A communicator of all ranks of host; rank 0 makes the id and tells, with the
 * id or without it, how that went. */
static enum mw_status join_all(struct mw_cuda *dev, struct mw_comm *host,
                               ncclComm_t *out, struct mw_err *err)
{
    struct {
        ncclUniqueId id;
        int rc;
    } news;
    memset(&news, 0, sizeof news);
    if (host->size == 1) {
        return MW_OK;
    }
    if (host->rank == 0) {
        news.rc = (int)ncclGetUniqueId(&news.id);
    }
    TRY(host->ops->broadcast(host, &news, sizeof news, 0, err));
    if (news.rc != (int)ncclSuccess) {
        return mw_cuda_abort(dev, err, "ncclGetUniqueId",
                             ncclGetErrorString((ncclResult_t)news.rc));
    }
    return mw_nccl_join(dev, &news.id, host->rank, host->size, out, err);
}

void mw_nccl_leave(struct mw_cuda *dev, ncclComm_t comm)
{
    if (!comm || dev->is_aborted) {
        return;
    }
    enum mw_status st = mw_cuda_settle(dev, comm, ncclCommFinalize(comm),
                                       "ncclCommFinalize", NULL);
    if (st == MW_OK) {
        mw_cuda_unwatch(dev, comm);
        mw_cuda_settle(dev, comm, ncclCommDestroy(comm), "ncclCommDestroy",
                       NULL);
    }
}

static struct comm_nccl *new_comm(struct mw_cuda *dev, struct mw_comm *host)
{
    struct comm_nccl *c = mw_calloc(1, sizeof *c);
    c->base = (struct mw_comm){
        .ops = &nccl_ops, .rank = host->rank, .size = host->size};
    c->dev = dev;
    c->host = host;
    return c;
}

static void nccl_free(struct mw_comm *comm)
{
    if (!comm) {
        return;
    }
    struct comm_nccl *c = mw_nccl_self(comm);
    mw_nccl_close_channels(c);
    mw_nccl_leave(c->dev, c->nccl);
    if (c->ready) {
        cudaEventDestroy(c->ready);
    }
    if (c->control) {
        c->control->ops->free(c->control);
    }
    if (c->owns_host) {
        c->host->ops->free(c->host);
    }
    mw_free(c);
}

static enum mw_status open_wrap(struct comm_nccl *c, const int *peers,
                                int n_peers, struct mw_err *err)
{
    struct mw_comm *host = c->host;
    TRY(host->ops->split(host, 0, host->rank, &c->control, err));
    TRY(mw_nccl_check(c,
                      MW_CUDA_RUN(c->dev, cudaEventCreateWithFlags, &c->ready,
                                  cudaEventDisableTiming),
                      err));
    TRY(join_all(c->dev, host, &c->nccl, err));
    return mw_nccl_open_channels(c, peers, n_peers, err);
}

enum mw_status mw_comm_nccl_wrap(struct mw_dev *dev, struct mw_comm *host,
                                 const int *peers, int n_peers,
                                 struct mw_comm **out, struct mw_err *err)
{
    struct comm_nccl *c = new_comm((struct mw_cuda *)dev, host);
    enum mw_status st = open_wrap(c, peers, n_peers, err);
    if (st != MW_OK) {
        nccl_free(&c->base);
        return st;
    }
    *out = &c->base;
    return MW_OK;
}

static enum mw_status nccl_split(struct mw_comm *parent, int color, int key,
                                 struct mw_comm **out, struct mw_err *err)
{
    struct comm_nccl *p = mw_nccl_self(parent);
    struct mw_comm *host = NULL;
    TRY(p->host->ops->split(p->host, color, key, &host, err));
    struct comm_nccl *c = new_comm(p->dev, host);
    c->owns_host = true;
    enum mw_status st = join_all(p->dev, host, &c->nccl, err);
    if (st != MW_OK) {
        nccl_free(&c->base);
        return st;
    }
    *out = &c->base;
    return MW_OK;
}

/* ---- collectives
 * ----------------------------------------------------------------- */
enum mw_status mw_nccl_finish(struct comm_nccl *c, ncclResult_t rc,
                              const char *call, struct mw_err *err)
{
    TRY(mw_cuda_settle(c->dev, c->nccl, rc, call, err));
    return mw_cuda_wait(c->dev, c->dev->stream, NULL, err);
}

static enum mw_status nccl_all_reduce(struct mw_comm *comm, void *buf, size_t n,
                                      enum mw_elem elem, enum mw_reduce op,
                                      struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->all_reduce(c->host, buf, n, elem, op, err);
    }
    if (!c->nccl) {
        return MW_OK;
    }
    return mw_nccl_finish(c,
                          ncclAllReduce(buf, buf, n, mw_nccl_type_of(elem),
                                        op == MW_REDUCE_SUM ? ncclSum : ncclMax,
                                        c->nccl, c->dev->stream),
                          "ncclAllReduce", err);
}

/* In place is buf + rank * n for ours, buf for all (NCCL user guide, "In-place
 * operations"); the same holds for reduce-scatter, the other way round. */
static void *own_block(const struct comm_nccl *c, void *buf, size_t n,
                       enum mw_elem elem)
{
    return (char *)buf + (size_t)c->base.rank * n * mw_elem_bytes(elem);
}

static enum mw_status nccl_all_gather(struct mw_comm *comm, void *buf, size_t n,
                                      enum mw_elem elem, struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->all_gather(c->host, buf, n, elem, err);
    }
    if (!c->nccl) {
        return MW_OK;
    }
    return mw_nccl_finish(c,
                          ncclAllGather(own_block(c, buf, n, elem), buf, n,
                                        mw_nccl_type_of(elem), c->nccl,
                                        c->dev->stream),
                          "ncclAllGather", err);
}

static enum mw_status nccl_reduce_scatter(struct mw_comm *comm, void *buf,
                                          size_t n, enum mw_elem elem,
                                          struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->reduce_scatter(c->host, buf, n, elem, err);
    }
    if (!c->nccl) {
        return MW_OK;
    }
    return mw_nccl_finish(c,
                          ncclReduceScatter(buf, own_block(c, buf, n, elem), n,
                                            mw_nccl_type_of(elem), ncclSum,
                                            c->nccl, c->dev->stream),
                          "ncclReduceScatter", err);
}

/* ---- by the host
 * ---------------------------------------------------------------- */
static enum mw_status nccl_barrier(struct mw_comm *comm, struct mw_err *err)
{
    struct mw_comm *host = mw_nccl_self(comm)->host;
    return host->ops->barrier(host, err);
}

static enum mw_status nccl_broadcast(struct mw_comm *comm, void *buf,
                                     size_t bytes, int root, struct mw_err *err)
{
    struct mw_comm *host = mw_nccl_self(comm)->host;
    return host->ops->broadcast(host, buf, bytes, root, err);
}

static enum mw_status nccl_gather(struct mw_comm *comm, const void *buf,
                                  size_t bytes, void *out, int root,
                                  struct mw_err *err)
{
    struct mw_comm *host = mw_nccl_self(comm)->host;
    return host->ops->gather(host, buf, bytes, out, root, err);
}

static const struct mw_comm_ops nccl_ops = {
    .name = "nccl",
    .split = nccl_split,
    .free = nccl_free,
    .all_reduce = nccl_all_reduce,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .all_to_all = mw_nccl_all_to_all,
    .all_to_all_v = mw_nccl_all_to_all_v,
    .all_gather_v = mw_nccl_all_gather_v,
    .reduce_scatter_v = mw_nccl_reduce_scatter_v,
    .send = mw_nccl_send,
    .recv = mw_nccl_recv,
    .wait = mw_nccl_wait,
    .barrier = nccl_barrier,
    .broadcast = nccl_broadcast,
    .gather = nccl_gather,
};
