/*
 * Messages by NCCL, which has no tags and runs the operations of a
 * communicator in order, a send ending only when its receive is there. So
 * every directed pair of peers has its own communicator and stream (a lane),
 * and each message is announced by a header (tag, elements) on a communicator
 * of the host:
 *
 *   sender    copy into a parcel; event on the device's stream -> lane's
 *             stream: ncclSend; header, by the host, without waiting
 *   receiver  headers of this sender one after the other; a message with
 *             another tag is received into memory of its own and kept until
 *             it is asked for
 *
 * Hence a receive waits for nothing but its message's sender, a send for
 * nobody, and lists of neighbours may differ in order. (Without the copy, two
 * ranks of an interleaved schedule wait for each other's receive before they
 * make their own.) Buffers of the host go by the
 * host. Source: NCCL user guide 2.28, "Point-to-point communication", "Using
 * multiple NCCL communicators concurrently".
 */
#include "exec/cuda/cuda_nccl_int.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_TAG = 0, ID_TAG = 1, ID_WORDS = NCCL_UNIQUE_ID_BYTES / 8 };

/* A send under way: what the host still holds of it. */
struct sending {
    struct mw_comm *by;
    struct mw_send header; /* or the whole message, from memory of the host */
    int64_t words[2];      /* tag, elements */
};

static void free_lane(struct comm_nccl *c, struct lane *lane)
{
    mw_nccl_leave(c->dev, lane->comm);
    if (lane->stream) {
        cudaStreamDestroy(lane->stream);
    }
}

static void free_parcels(struct comm_nccl *c)
{
    for (size_t i = 0; i < c->parcels.n; i++) {
        struct parcel *p = &c->parcels.v[i];
        if (p->mem) {
            cudaFree(p->mem);
        }
        if (p->done) {
            cudaEventDestroy(p->done);
        }
    }
    mw_array_release(&c->parcels);
}

/* Messages on their way arrive first; after a failure nothing is waited for. */
void mw_nccl_close_channels(struct comm_nccl *c)
{
    for (size_t i = 0; i < c->parcels.n; i++) {
        mw_cuda_wait(c->dev, NULL, c->parcels.v[i].done, NULL);
    }
    if (c->dev->fault.status != MW_OK && !c->dev->is_aborted) {
        mw_cuda_abort(c->dev, NULL, "ending communicators", "after a failure");
    }
    for (int i = 0; i < c->n_channels; i++) {
        bool is_lower = c->base.rank < c->channels[i].peer;
        struct lane *out = &c->channels[i].out, *in = &c->channels[i].in;
        free_lane(c, is_lower ? out : in);
        free_lane(c, is_lower ? in : out);
    }
    for (size_t i = 0; i < c->early.n; i++) {
        cudaFree(c->early.v[i].mem);
    }
    free_parcels(c);
    mw_array_release(&c->early);
    mw_free(c->channels);
    c->channels = NULL;
    c->n_channels = 0;
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
    TRY(mw_nccl_check(c,
                      MW_CUDA_RUN(c->dev, cudaStreamCreateWithFlags,
                                  &lane->stream, cudaStreamNonBlocking),
                      err));
    TRY(exchange_id(c, peer, &id, err));
    return mw_nccl_join(c->dev, &id, is_out ? 0 : 1, 2, &lane->comm, err);
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
enum mw_status mw_nccl_open_channels(struct comm_nccl *c, const int *peers,
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

/* ---- messages
 * -------------------------------------------------------------------- */
static enum mw_status find_channel(struct comm_nccl *c, int peer,
                                   struct channel **out, struct mw_err *err)
{
    for (int i = 0; i < c->n_channels; i++) {
        if (c->channels[i].peer == peer) {
            *out = &c->channels[i];
            return MW_OK;
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

/* A parcel of that many bytes that no send reads any more. */
static enum mw_status take_parcel(struct comm_nccl *c, size_t bytes,
                                  struct parcel **out, struct mw_err *err)
{
    for (size_t i = 0; i < c->parcels.n; i++) {
        struct parcel *p = &c->parcels.v[i];
        if (p->bytes == bytes && cudaEventQuery(p->done) == cudaSuccess) {
            *out = p;
            return MW_OK;
        }
    }
    mw_array_push(&c->parcels, (struct parcel){.bytes = bytes});
    struct parcel *p = *out = &c->parcels.v[c->parcels.n - 1];
    return mw_nccl_check(c,
                         MW_CUDA_RUN(c->dev, cudaMalloc, &p->mem, bytes) &&
                             MW_CUDA_RUN(c->dev, cudaEventCreateWithFlags,
                                         &p->done, cudaEventDisableTiming),
                         err);
}

static enum mw_status start_send(struct comm_nccl *c, const struct lane *lane,
                                 const void *buf, size_t n, enum mw_elem elem,
                                 struct mw_err *err)
{
    struct parcel *p = NULL;
    size_t bytes = n * mw_elem_bytes(elem);
    TRY(take_parcel(c, bytes, &p, err));
    TRY(mw_nccl_check(c,
                      MW_CUDA_RUN(c->dev, cudaMemcpyAsync, p->mem, buf, bytes,
                                  cudaMemcpyDeviceToDevice, c->dev->stream) &&
                          follow(c, lane),
                      err));
    TRY(mw_cuda_settle(
        c->dev, lane->comm,
        ncclSend(p->mem, n, mw_nccl_type_of(elem), 1, lane->comm, lane->stream),
        "ncclSend", err));
    return mw_nccl_check(
        c, MW_CUDA_RUN(c->dev, cudaEventRecord, p->done, lane->stream), err);
}

static enum mw_status send_host(struct comm_nccl *c, const void *buf, size_t n,
                                enum mw_elem elem, int peer, int tag,
                                struct mw_send *out, struct mw_err *err)
{
    struct sending *s = mw_calloc(1, sizeof *s);
    s->by = c->host;
    enum mw_status st =
        c->host->ops->send(c->host, buf, n, elem, peer, tag, &s->header, err);
    if (st != MW_OK) {
        mw_free(s);
        return st;
    }
    out->handle = s;
    return MW_OK;
}

enum mw_status mw_nccl_send(struct mw_comm *comm, const void *buf, size_t n,
                            enum mw_elem elem, int peer, int tag,
                            struct mw_send *out, struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    struct channel *ch = NULL;
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return send_host(c, buf, n, elem, peer, tag, out, err);
    }
    TRY(find_channel(c, peer, &ch, err));
    struct sending *s = mw_calloc(1, sizeof *s);
    *s = (struct sending){.by = c->control, .words = {tag, (int64_t)n}};
    enum mw_status st = start_send(c, &ch->out, buf, n, elem, err);
    if (st == MW_OK) {
        st = s->by->ops->send(s->by, s->words, 2, MW_ELEM_I64, peer, HEADER_TAG,
                              &s->header, err);
    }
    if (st != MW_OK) {
        mw_free(s);
        return st;
    }
    out->handle = s;
    return MW_OK;
}

/* The parcel is the message's; what is waited for is the header. */
enum mw_status mw_nccl_wait(struct mw_comm *comm, struct mw_send *send,
                            struct mw_err *err)
{
    (void)comm;
    struct sending *s = send->handle;
    if (!s) {
        return MW_OK;
    }
    enum mw_status st = s->by->ops->wait(s->by, &s->header, err);
    mw_free(s);
    send->handle = NULL;
    return st;
}

static enum mw_status receive_into(struct comm_nccl *c, const struct lane *lane,
                                   void *buf, size_t n, enum mw_elem elem,
                                   struct mw_err *err)
{
    TRY(mw_nccl_check(c, follow(c, lane), err));
    TRY(mw_cuda_settle(
        c->dev, lane->comm,
        ncclRecv(buf, n, mw_nccl_type_of(elem), 0, lane->comm, lane->stream),
        "ncclRecv", err));
    return mw_cuda_wait(c->dev, lane->stream, NULL, err);
}

static enum mw_status keep_early(struct comm_nccl *c, const struct channel *ch,
                                 const int64_t words[2], enum mw_elem elem,
                                 struct mw_err *err)
{
    struct early e = {.peer = ch->peer,
                      .tag = words[0],
                      .bytes = (size_t)words[1] * mw_elem_bytes(elem)};
    TRY(mw_nccl_check(c, MW_CUDA_RUN(c->dev, cudaMalloc, &e.mem, e.bytes),
                      err));
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

enum mw_status mw_nccl_recv(struct mw_comm *comm, void *buf, size_t n,
                            enum mw_elem elem, int peer, int tag,
                            struct mw_err *err)
{
    struct comm_nccl *c = mw_nccl_self(comm);
    struct channel *ch = NULL;
    bool is_on_device;
    TRY(mw_nccl_where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return c->host->ops->recv(c->host, buf, n, elem, peer, tag, err);
    }
    TRY(find_channel(c, peer, &ch, err));
    if (take_early(c, buf, n * mw_elem_bytes(elem), peer, tag)) {
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
