/*
 * NCCL behind the table of comm.h.
 *
 * A collective is enqueued on the device's stream, behind what computes its
 * input, and waited for, since the table's calls block. NCCL has no tags and
 * runs the operations of a communicator in order, a send ending only when the
 * receive is there; so every directed pair of peers has its own communicator
 * and stream, and each message is announced by a header (tag, elements) on the
 * host's communicator:
 *
 *   sender    event on the device's stream -> channel stream: ncclSend
 *             header, by the host, without waiting
 *   receiver  headers of this sender one after the other; a message with
 *             another tag is received into memory of its own and kept until
 *             it is asked for
 *
 * Hence a receive waits for nothing but its message's sender, and lists of
 * neighbours may differ in order, as with MPI. Communicators are made by
 * unique ids that travel over the host's communicator, non-blocking, so that
 * every wait is a poll with a time limit. Left out: overlap with computation,
 * registered buffers. Source: NCCL user guide 2.28, "Point-to-point
 * communication", "Fault tolerance", "Using multiple NCCL communicators
 * concurrently".
 */
#include "exec/cuda/mw_cuda.h"

#include "exec/cuda/cuda_int.h"

#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                              \
    do {                                                                       \
        enum mw_status try_ = (call);                                          \
        if (try_ != MW_OK) {                                                   \
            return try_;                                                       \
        }                                                                      \
    } while (0)

enum { HEADER_TAG = 0, ID_TAG = 1, ID_WORDS = NCCL_UNIQUE_ID_BYTES / 8 };

/* One direction between two ranks: the sender is rank 0 of its communicator. */
struct lane {
    ncclComm_t comm;
    cudaStream_t stream;
};

struct channel {
    int peer;
    struct lane out, in;
};

/* A message that came before it was asked for. */
struct early {
    int peer;
    int64_t tag;
    void *mem;
    size_t bytes;
};

struct comm_nccl {
    struct mw_comm base;
    struct mw_cuda *dev;
    struct mw_comm *host;    /* for buffers of the host */
    struct mw_comm *control; /* headers; NULL in what was split */
    bool owns_host;
    ncclComm_t nccl; /* NULL for one rank */
    cudaEvent_t ready;
    struct channel *channels;
    int n_channels;
    MW_ARRAY(struct early) early;
};

struct sending {
    struct mw_send header;
    int64_t words[2]; /* tag, elements */
    cudaEvent_t done;
};

static const struct mw_comm_ops nccl_ops;

static struct comm_nccl *self(struct mw_comm *comm)
{
    return (struct comm_nccl *)comm;
}

static ncclDataType_t type_of(enum mw_elem elem)
{
    switch (elem) {
    case MW_ELEM_F32:
        return ncclFloat32;
    case MW_ELEM_F64:
        return ncclFloat64;
    case MW_ELEM_I64:
        break;
    }
    return ncclInt64;
}

static size_t size_of(enum mw_elem elem)
{
    return elem == MW_ELEM_F32 ? 4 : 8;
}

static bool is_on_device(const void *p)
{
    struct cudaPointerAttributes a;
    return cudaPointerGetAttributes(&a, p) == cudaSuccess &&
           a.type == cudaMemoryTypeDevice;
}

/* A call of the runtime: the fault when it failed, or one did before. */
static enum mw_status check(struct comm_nccl *c, bool is_ok, struct mw_err *err)
{
    if (!is_ok && err) {
        *err = c->dev->fault;
    }
    return is_ok ? MW_OK : c->dev->fault.status;
}

/* The device must not have failed before NCCL is called. */
static enum mw_status check_alive(struct comm_nccl *c, struct mw_err *err)
{
    return check(c, c->dev->fault.status == MW_OK, err);
}

/* ---- making and ending communicators
 * --------------------------------------------- */
static enum mw_status join(struct mw_cuda *dev, const ncclUniqueId *id,
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
    return join(dev, &news.id, host->rank, host->size, out, err);
}

static void leave(struct mw_cuda *dev, ncclComm_t comm)
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
    c->base = (struct mw_comm){&nccl_ops, host->rank, host->size};
    c->dev = dev;
    c->host = host;
    return c;
}

static void free_lane(struct comm_nccl *c, struct lane *lane)
{
    leave(c->dev, lane->comm);
    if (lane->stream) {
        cudaStreamDestroy(lane->stream);
    }
}

static void nccl_free(struct mw_comm *comm)
{
    if (!comm) {
        return;
    }
    struct comm_nccl *c = self(comm);
    for (int i = 0; i < c->n_channels; i++) {
        bool is_lower = c->base.rank < c->channels[i].peer;
        struct lane *out = &c->channels[i].out, *in = &c->channels[i].in;
        free_lane(c, is_lower ? out : in);
        free_lane(c, is_lower ? in : out);
    }
    for (size_t i = 0; i < c->early.n; i++) {
        cudaFree(c->early.v[i].mem);
    }
    leave(c->dev, c->nccl);
    if (c->ready) {
        cudaEventDestroy(c->ready);
    }
    if (c->control) {
        c->control->ops->free(c->control);
    }
    if (c->owns_host) {
        c->host->ops->free(c->host);
    }
    mw_array_release(&c->early);
    mw_free(c->channels);
    mw_free(c);
}

/* ---- channels
 * -------------------------------------------------------------------- */
/* The lower rank of a pair makes the id; a failure is sent as zeros. */
static enum mw_status exchange_id(struct comm_nccl *c, int peer,
                                  ncclUniqueId *id, struct mw_err *err)
{
    int64_t words[ID_WORDS] = {0}, sum = 0;
    struct mw_send send = {NULL};
    struct mw_comm *ctl = c->control;
    if (c->base.rank < peer) {
        ncclResult_t rc = ncclGetUniqueId(id);
        if (rc == ncclSuccess) {
            memcpy(words, id, sizeof words);
        }
        TRY(ctl->ops->send(ctl, words, ID_WORDS, MW_ELEM_I64, peer, ID_TAG,
                           &send, err));
        TRY(ctl->ops->wait(ctl, &send, err));
    } else {
        TRY(ctl->ops->recv(ctl, words, ID_WORDS, MW_ELEM_I64, peer, ID_TAG,
                           err));
        memcpy(id, words, sizeof words);
    }
    for (int i = 0; i < ID_WORDS; i++) {
        sum |= words[i];
    }
    return sum ? MW_OK
               : mw_cuda_abort(c->dev, err, "ncclGetUniqueId",
                               "no id for a pair of ranks");
}

static enum mw_status open_lane(struct comm_nccl *c, int peer, bool is_out,
                                struct lane *lane, struct mw_err *err)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    TRY(check(c,
              MW_CUDA_RUN(c->dev, cudaStreamCreateWithFlags, &lane->stream,
                          cudaStreamNonBlocking),
              err));
    TRY(exchange_id(c, peer, &id, err));
    return join(c->dev, &id, is_out ? 0 : 1, 2, &lane->comm, err);
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/*
 * Peers in ascending order: pairs are then made in the order of (lower,
 * higher) on every rank, and the first unfinished pair is always the next one
 * of both its ranks, so no rank waits in a circle. Of a pair, the lane from
 * the lower to the higher rank comes first.
 */
static enum mw_status open_channels(struct comm_nccl *c, const int *peers,
                                    int n_peers, struct mw_err *err)
{
    int *sorted = mw_calloc((size_t)n_peers + 1, sizeof *sorted);
    for (int i = 0; i < n_peers; i++) {
        sorted[i] = peers[i];
    }
    qsort(sorted, (size_t)n_peers, sizeof *sorted, by_number);
    c->channels = mw_calloc((size_t)n_peers + 1, sizeof *c->channels);
    enum mw_status st = MW_OK;
    for (int i = 0; i < n_peers && st == MW_OK; i++) {
        struct channel *ch = &c->channels[c->n_channels++];
        bool is_lower = c->base.rank < sorted[i];
        ch->peer = sorted[i];
        st = open_lane(c, ch->peer, is_lower, is_lower ? &ch->out : &ch->in,
                       err);
        if (st == MW_OK) {
            st = open_lane(c, ch->peer, !is_lower,
                           is_lower ? &ch->in : &ch->out, err);
        }
    }
    mw_free(sorted);
    return st;
}

static enum mw_status open_wrap(struct comm_nccl *c, const int *peers,
                                int n_peers, struct mw_err *err)
{
    struct mw_comm *host = c->host;
    TRY(host->ops->split(host, 0, host->rank, &c->control, err));
    TRY(check(c,
              MW_CUDA_RUN(c->dev, cudaEventCreateWithFlags, &c->ready,
                          cudaEventDisableTiming),
              err));
    TRY(join_all(c->dev, host, &c->nccl, err));
    return open_channels(c, peers, n_peers, err);
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
    struct comm_nccl *p = self(parent);
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
static enum mw_status finish(struct comm_nccl *c, ncclResult_t rc,
                             const char *call, struct mw_err *err)
{
    TRY(mw_cuda_settle(c->dev, c->nccl, rc, call, err));
    return mw_cuda_wait(c->dev, c->dev->stream, NULL, err);
}

static enum mw_status nccl_all_reduce(struct mw_comm *comm, void *buf, size_t n,
                                      enum mw_elem elem, enum mw_reduce op,
                                      struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    if (!is_on_device(buf)) {
        return c->host->ops->all_reduce(c->host, buf, n, elem, op, err);
    }
    TRY(check_alive(c, err));
    if (!c->nccl) {
        return MW_OK;
    }
    return finish(c,
                  ncclAllReduce(buf, buf, n, type_of(elem),
                                op == MW_REDUCE_SUM ? ncclSum : ncclMax,
                                c->nccl, c->dev->stream),
                  "ncclAllReduce", err);
}

/* In place is buf + rank * n for ours, buf for all (NCCL user guide, "In-place
 * operations"); the same holds for reduce-scatter, the other way round. */
static void *own_block(const struct comm_nccl *c, void *buf, size_t n,
                       enum mw_elem elem)
{
    return (char *)buf + (size_t)c->base.rank * n * size_of(elem);
}

static enum mw_status nccl_all_gather(struct mw_comm *comm, void *buf, size_t n,
                                      enum mw_elem elem, struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    if (!is_on_device(buf)) {
        return c->host->ops->all_gather(c->host, buf, n, elem, err);
    }
    TRY(check_alive(c, err));
    if (!c->nccl) {
        return MW_OK;
    }
    return finish(c,
                  ncclAllGather(own_block(c, buf, n, elem), buf, n,
                                type_of(elem), c->nccl, c->dev->stream),
                  "ncclAllGather", err);
}

static enum mw_status nccl_reduce_scatter(struct mw_comm *comm, void *buf,
                                          size_t n, enum mw_elem elem,
                                          struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    if (!is_on_device(buf)) {
        return c->host->ops->reduce_scatter(c->host, buf, n, elem, err);
    }
    TRY(check_alive(c, err));
    if (!c->nccl) {
        return MW_OK;
    }
    return finish(c,
                  ncclReduceScatter(buf, own_block(c, buf, n, elem), n,
                                    type_of(elem), ncclSum, c->nccl,
                                    c->dev->stream),
                  "ncclReduceScatter", err);
}

/* ---- messages
 * -------------------------------------------------------------------- */
static enum mw_status find_channel(struct comm_nccl *c, int peer,
                                   struct channel **out, struct mw_err *err)
{
    for (int i = 0; i < c->n_channels; i++) {
        if (c->channels[i].peer == peer) {
            *out = &c->channels[i];
            return check_alive(c, err);
        }
    }
    return mw_fail(err, MW_EFAILED,
                   "rank %d of an NCCL communicator has no channel to rank %d",
                   c->base.rank, peer);
}

/* The lane's stream goes on when the device's stream has come to this point. */
static bool follow(struct comm_nccl *c, const struct lane *lane)
{
    return MW_CUDA_RUN(c->dev, cudaEventRecord, c->ready, c->dev->stream) &&
           MW_CUDA_RUN(c->dev, cudaStreamWaitEvent, lane->stream, c->ready, 0);
}

static enum mw_status start_send(struct comm_nccl *c, const struct lane *lane,
                                 const void *buf, size_t n, enum mw_elem elem,
                                 struct sending *s, struct mw_err *err)
{
    TRY(check(c,
              MW_CUDA_RUN(c->dev, cudaEventCreateWithFlags, &s->done,
                          cudaEventDisableTiming) &&
                  follow(c, lane),
              err));
    TRY(mw_cuda_settle(
        c->dev, lane->comm,
        ncclSend(buf, n, type_of(elem), 1, lane->comm, lane->stream),
        "ncclSend", err));
    return check(c, MW_CUDA_RUN(c->dev, cudaEventRecord, s->done, lane->stream),
                 err);
}

static void free_sending(struct sending *s)
{
    if (s->done) {
        cudaEventDestroy(s->done);
    }
    mw_free(s);
}

static enum mw_status nccl_send(struct mw_comm *comm, const void *buf, size_t n,
                                enum mw_elem elem, int peer, int tag,
                                struct mw_send *out, struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    struct channel *ch = NULL;
    MW_ASSERT(is_on_device(buf), "a send of host memory to rank %d", peer);
    TRY(find_channel(c, peer, &ch, err));
    struct sending *s = mw_calloc(1, sizeof *s);
    s->words[0] = tag;
    s->words[1] = (int64_t)n;
    enum mw_status st = start_send(c, &ch->out, buf, n, elem, s, err);
    if (st == MW_OK) {
        st = c->control->ops->send(c->control, s->words, 2, MW_ELEM_I64, peer,
                                   HEADER_TAG, &s->header, err);
    }
    if (st != MW_OK) {
        free_sending(s);
        return st;
    }
    out->handle = s;
    return MW_OK;
}

static enum mw_status nccl_wait(struct mw_comm *comm, struct mw_send *send,
                                struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    struct sending *s = send->handle;
    if (!s) {
        return MW_OK;
    }
    enum mw_status st = mw_cuda_wait(c->dev, NULL, s->done, err);
    if (st == MW_OK) {
        st = c->control->ops->wait(c->control, &s->header, err);
    }
    free_sending(s);
    send->handle = NULL;
    return st;
}

static enum mw_status receive_into(struct comm_nccl *c, const struct lane *lane,
                                   void *buf, size_t n, enum mw_elem elem,
                                   struct mw_err *err)
{
    TRY(check(c, follow(c, lane), err));
    TRY(mw_cuda_settle(
        c->dev, lane->comm,
        ncclRecv(buf, n, type_of(elem), 0, lane->comm, lane->stream),
        "ncclRecv", err));
    return mw_cuda_wait(c->dev, lane->stream, NULL, err);
}

static enum mw_status keep_early(struct comm_nccl *c, const struct channel *ch,
                                 const int64_t words[2], enum mw_elem elem,
                                 struct mw_err *err)
{
    struct early e = {.peer = ch->peer,
                      .tag = words[0],
                      .bytes = (size_t)words[1] * size_of(elem)};
    TRY(check(c, MW_CUDA_RUN(c->dev, cudaMalloc, &e.mem, e.bytes), err));
    mw_array_push(&c->early, e);
    return receive_into(c, &ch->in, e.mem, (size_t)words[1], elem, err);
}

/* Moves a message that came before into buf; false when there is none. */
static bool take_early(struct comm_nccl *c, void *buf, size_t bytes, int peer,
                       int tag)
{
    for (size_t i = 0; i < c->early.n; i++) {
        struct early *e = &c->early.v[i];
        if (e->peer != peer || e->tag != tag) {
            continue;
        }
        MW_ASSERT(e->bytes == bytes,
                  "%zu bytes of tag %d from rank %d, not %zu", e->bytes, tag,
                  peer, bytes);
        c->dev->base.ops->copy(&c->dev->base, buf, e->mem, bytes);
        cudaFree(e->mem);
        memmove(e, e + 1, (c->early.n - i - 1) * sizeof *e);
        c->early.n--;
        return true;
    }
    return false;
}

static enum mw_status nccl_recv(struct mw_comm *comm, void *buf, size_t n,
                                enum mw_elem elem, int peer, int tag,
                                struct mw_err *err)
{
    struct comm_nccl *c = self(comm);
    struct channel *ch = NULL;
    MW_ASSERT(is_on_device(buf), "a receive into host memory from rank %d",
              peer);
    TRY(find_channel(c, peer, &ch, err));
    if (take_early(c, buf, n * size_of(elem), peer, tag)) {
        return mw_cuda_wait(c->dev, c->dev->stream, NULL, err);
    }
    for (;;) {
        int64_t words[2];
        TRY(c->control->ops->recv(c->control, words, 2, MW_ELEM_I64, peer,
                                  HEADER_TAG, err));
        if (words[0] == tag) {
            MW_ASSERT(words[1] == (int64_t)n,
                      "%lld elements of tag %d, not %zu", (long long)words[1],
                      tag, n);
            return receive_into(c, &ch->in, buf, n, elem, err);
        }
        TRY(keep_early(c, ch, words, elem, err));
    }
}

/* ---- by the host
 * ---------------------------------------------------------------- */
static enum mw_status nccl_barrier(struct mw_comm *comm, struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->barrier(host, err);
}

static enum mw_status nccl_broadcast(struct mw_comm *comm, void *buf,
                                     size_t bytes, int root, struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->broadcast(host, buf, bytes, root, err);
}

static enum mw_status nccl_gather(struct mw_comm *comm, const void *buf,
                                  size_t bytes, void *out, int root,
                                  struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->gather(host, buf, bytes, out, root, err);
}

static const struct mw_comm_ops nccl_ops = {
    .name = "nccl",
    .split = nccl_split,
    .free = nccl_free,
    .all_reduce = nccl_all_reduce,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .send = nccl_send,
    .recv = nccl_recv,
    .wait = nccl_wait,
    .barrier = nccl_barrier,
    .broadcast = nccl_broadcast,
    .gather = nccl_gather,
};
