/*
 * Communication between virtual ranks that share one GPU (threads of one
 * process, exec/comm_local.c): buffers of the device are read where they lie.
 *
 *   collective  wait for the own stream; tell all where the buffer is; each
 *               rank does its own part on its own stream and waits; meet again,
 *               after which buffers may be written
 *   message     through memory of the host, which the local communicator copies
 *
 * A reduction is split: rank r adds block r of all buffers, in the order of
 * ranks, into its own; for an all-reduce the others copy it from there. So sums
 * are the same to the bit whoever comes last. Buffers of the host go to the
 * local communicator. Left out: several GPUs.
 */
#include "exec/cuda/cuda_nccl_int.h"

#include <string.h>

struct comm_shared {
    struct mw_comm base;
    struct mw_cuda *dev;
    struct mw_comm *host;
    bool owns_host;
};

static const struct mw_comm_ops shared_ops;

static struct comm_shared *self(struct mw_comm *comm)
{
    return (struct comm_shared *)comm;
}

static enum mw_status check(struct comm_shared *c, bool is_ok,
                            struct mw_err *err)
{
    if (!is_ok && err) {
        *err = c->dev->fault;
    }
    return is_ok ? MW_OK : c->dev->fault.status;
}

static enum mw_status where(struct comm_shared *c, const void *p,
                            bool *out_is_on_device, struct mw_err *err)
{
    struct cudaPointerAttributes a;
    TRY(check(c, MW_CUDA_RUN(c->dev, cudaPointerGetAttributes, &a, p), err));
    *out_is_on_device = a.type == cudaMemoryTypeDevice;
    return MW_OK;
}

static char *at(const void *p, size_t n, enum mw_elem elem)
{
    return (char *)(uintptr_t)p + n * mw_elem_bytes(elem);
}

/* ---- meeting --------------------------------------------------------------
 */
/* All ranks' values, once everything that they had enqueued has ended. */
static enum mw_status tell(struct comm_shared *c, int64_t *all, size_t n,
                           struct mw_err *err)
{
    TRY(mw_cuda_wait(c->dev, c->dev->stream, NULL, err));
    return c->host->ops->all_gather(c->host, all, n, MW_ELEM_I64, err);
}

static enum mw_status tell_place(struct comm_shared *c, const void *buf,
                                 int64_t places[MW_K_REDUCE_MAX],
                                 struct mw_err *err)
{
    places[c->base.rank] = (int64_t)(intptr_t)buf;
    return tell(c, places, 1, err);
}

static enum mw_status meet(struct comm_shared *c, struct mw_err *err)
{
    TRY(mw_cuda_wait(c->dev, c->dev->stream, NULL, err));
    return c->host->ops->barrier(c->host, err);
}

static void *place_of(const int64_t *places, int rank)
{
    return (void *)(intptr_t)places[rank];
}

static enum mw_status copy(struct comm_shared *c, void *to, const void *from,
                           size_t n, enum mw_elem elem, struct mw_err *err)
{
    size_t bytes = n * mw_elem_bytes(elem);
    return bytes == 0 || to == from
               ? MW_OK
               : check(c,
                       MW_CUDA_RUN(c->dev, cudaMemcpyAsync, to, from, bytes,
                                   cudaMemcpyDeviceToDevice, c->dev->stream),
                       err);
}

/* ---- collectives ----------------------------------------------------------
 */
/* n elements of all buffers from `first` on, combined into the own one. */
static enum mw_status reduce(struct comm_shared *c, const int64_t *places,
                             size_t first, size_t n, enum mw_elem elem,
                             enum mw_reduce op, struct mw_err *err)
{
    const void *in[MW_K_REDUCE_MAX];
    for (int r = 0; r < c->base.size; r++) {
        in[r] = at(place_of(places, r), first, elem);
    }
    const struct mw_k_reduce a = {
        .elem = elem == MW_ELEM_BF16 ? MW_K_BF16 : MW_K_F32,
        .is_max = op == MW_REDUCE_MAX,
        .out = at(place_of(places, c->base.rank), first, elem),
        .in = in,
        .n_in = c->base.size,
        .n = n};
    return n == 0 ? MW_OK
                  : check(c,
                          MW_CUDA_RUN(c->dev, mw_k_reduce_cuda, &a,
                                      c->dev->stream),
                          err);
}

/* Begin of part r of n elements in as equal parts as there are ranks. */
static size_t part(const struct comm_shared *c, size_t n, int r)
{
    return n * (size_t)r / (size_t)c->base.size;
}

static enum mw_status all_reduce(struct comm_shared *c, void *buf, size_t n,
                                 enum mw_elem elem, enum mw_reduce op,
                                 struct mw_err *err)
{
    int64_t places[MW_K_REDUCE_MAX];
    size_t own = part(c, n, c->base.rank);
    TRY(tell_place(c, buf, places, err));
    TRY(reduce(c, places, own, part(c, n, c->base.rank + 1) - own, elem, op,
               err));
    TRY(meet(c, err));
    for (int r = 0; r < c->base.size; r++) {
        size_t first = part(c, n, r);
        TRY(copy(c, at(buf, first, elem), at(place_of(places, r), first, elem),
                 part(c, n, r + 1) - first, elem, err));
    }
    return meet(c, err);
}

static enum mw_status shared_all_reduce(struct mw_comm *comm, void *buf,
                                        size_t n, enum mw_elem elem,
                                        enum mw_reduce op, struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    return is_on_device
               ? all_reduce(c, buf, n, elem, op, err)
               : c->host->ops->all_reduce(c->host, buf, n, elem, op, err);
}

/* Sum of the counts before member r; n each where there are none. */
static size_t before(const size_t *counts, size_t n, int r)
{
    size_t sum = 0;
    for (int i = 0; i < r; i++) {
        sum += counts ? counts[i] : n;
    }
    return sum;
}

static enum mw_status gather_blocks(struct comm_shared *c, void *buf,
                                    const size_t *counts, size_t n,
                                    enum mw_elem elem, struct mw_err *err)
{
    int64_t places[MW_K_REDUCE_MAX];
    TRY(tell_place(c, buf, places, err));
    for (int r = 0; r < c->base.size; r++) {
        size_t first = before(counts, n, r);
        TRY(copy(c, at(buf, first, elem), at(place_of(places, r), first, elem),
                 counts ? counts[r] : n, elem, err));
    }
    return meet(c, err);
}

static enum mw_status scatter_blocks(struct comm_shared *c, void *buf,
                                     const size_t *counts, size_t n,
                                     enum mw_elem elem, struct mw_err *err)
{
    int64_t places[MW_K_REDUCE_MAX];
    TRY(tell_place(c, buf, places, err));
    TRY(reduce(c, places, before(counts, n, c->base.rank),
               counts ? counts[c->base.rank] : n, elem, MW_REDUCE_SUM, err));
    return meet(c, err);
}

static enum mw_status shared_all_gather(struct mw_comm *comm, void *buf,
                                        size_t n, enum mw_elem elem,
                                        struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    return is_on_device ? gather_blocks(c, buf, NULL, n, elem, err)
                        : c->host->ops->all_gather(c->host, buf, n, elem, err);
}

static enum mw_status shared_all_gather_v(struct mw_comm *comm, void *buf,
                                          const size_t *n, enum mw_elem elem,
                                          struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    return is_on_device
               ? gather_blocks(c, buf, n, 0, elem, err)
               : c->host->ops->all_gather_v(c->host, buf, n, elem, err);
}

static enum mw_status shared_reduce_scatter(struct mw_comm *comm, void *buf,
                                            size_t n, enum mw_elem elem,
                                            struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    return is_on_device
               ? scatter_blocks(c, buf, NULL, n, elem, err)
               : c->host->ops->reduce_scatter(c->host, buf, n, elem, err);
}

static enum mw_status shared_reduce_scatter_v(struct mw_comm *comm, void *buf,
                                              const size_t *n,
                                              enum mw_elem elem,
                                              struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    return is_on_device
               ? scatter_blocks(c, buf, n, 0, elem, err)
               : c->host->ops->reduce_scatter_v(c->host, buf, n, elem, err);
}

/* Each rank tells where its blocks begin: `from` and the counts before. */
static enum mw_status exchange(struct comm_shared *c, const void *from,
                               const size_t *n_from, void *to,
                               const size_t *n_to, size_t n, enum mw_elem elem,
                               struct mw_err *err)
{
    size_t size = (size_t)c->base.size;
    int64_t *places = mw_calloc(size * size, sizeof *places);
    int64_t *own = places + (size_t)c->base.rank * size;
    for (int r = 0; r < c->base.size; r++) {
        own[r] = (int64_t)(intptr_t)at(from, before(n_from, n, r), elem);
    }
    enum mw_status st = tell(c, places, size, err);
    for (int r = 0; r < c->base.size && st == MW_OK; r++) {
        st = copy(c, at(to, before(n_to, n, r), elem),
                  place_of(places + (size_t)r * size, c->base.rank),
                  n_to ? n_to[r] : n, elem, err);
    }
    mw_free(places);
    return st == MW_OK ? meet(c, err) : st;
}

static enum mw_status shared_all_to_all(struct mw_comm *comm, const void *from,
                                        void *to, size_t n, enum mw_elem elem,
                                        struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, from, &is_on_device, err));
    return is_on_device
               ? exchange(c, from, NULL, to, NULL, n, elem, err)
               : c->host->ops->all_to_all(c->host, from, to, n, elem, err);
}

static enum mw_status shared_all_to_all_v(struct mw_comm *comm,
                                          const void *from,
                                          const size_t *n_from, void *to,
                                          const size_t *n_to, enum mw_elem elem,
                                          struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    bool is_on_device;
    TRY(where(c, from, &is_on_device, err));
    return is_on_device ? exchange(c, from, n_from, to, n_to, 0, elem, err)
                        : c->host->ops->all_to_all_v(c->host, from, n_from, to,
                                                     n_to, elem, err);
}

/* ---- messages -------------------------------------------------------------
 */
static enum mw_status shared_send(struct mw_comm *comm, const void *buf,
                                  size_t n, enum mw_elem elem, int peer,
                                  int tag, struct mw_send *out,
                                  struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    struct mw_comm *host = c->host;
    size_t bytes = n * mw_elem_bytes(elem);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return host->ops->send(host, buf, n, elem, peer, tag, out, err);
    }
    void *letter = mw_calloc(bytes, 1);
    mw_cuda_to_host(&c->dev->base, letter, buf, bytes);
    enum mw_status st = check(c, c->dev->fault.status == MW_OK, err);
    if (st == MW_OK) { /* copies; its sends have nothing to wait for */
        st = host->ops->send(host, letter, n, elem, peer, tag, out, err);
    }
    mw_free(letter);
    return st;
}

static enum mw_status shared_recv(struct mw_comm *comm, void *buf, size_t n,
                                  enum mw_elem elem, int peer, int tag,
                                  struct mw_err *err)
{
    struct comm_shared *c = self(comm);
    struct mw_comm *host = c->host;
    size_t bytes = n * mw_elem_bytes(elem);
    bool is_on_device;
    TRY(where(c, buf, &is_on_device, err));
    if (!is_on_device) {
        return host->ops->recv(host, buf, n, elem, peer, tag, err);
    }
    void *letter = mw_calloc(bytes, 1);
    enum mw_status st = host->ops->recv(host, letter, n, elem, peer, tag, err);
    if (st == MW_OK) {
        mw_cuda_to_device(&c->dev->base, buf, letter, bytes);
        st = check(c, c->dev->fault.status == MW_OK, err);
    }
    mw_free(letter);
    return st;
}

static enum mw_status shared_wait(struct mw_comm *comm, struct mw_send *send,
                                  struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->wait(host, send, err);
}

/* ---- by the host, making, ending ------------------------------------------
 */
static enum mw_status shared_barrier(struct mw_comm *comm, struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->barrier(host, err);
}

static enum mw_status shared_broadcast(struct mw_comm *comm, void *buf,
                                       size_t bytes, int root,
                                       struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->broadcast(host, buf, bytes, root, err);
}

static enum mw_status shared_gather(struct mw_comm *comm, const void *buf,
                                    size_t bytes, void *out, int root,
                                    struct mw_err *err)
{
    struct mw_comm *host = self(comm)->host;
    return host->ops->gather(host, buf, bytes, out, root, err);
}

static struct mw_comm *new_comm(struct mw_cuda *dev, struct mw_comm *host)
{
    struct comm_shared *c = mw_calloc(1, sizeof *c);
    c->base = (struct mw_comm){
        .ops = &shared_ops, .rank = host->rank, .size = host->size};
    c->dev = dev;
    c->host = host;
    return &c->base;
}

static enum mw_status shared_split(struct mw_comm *parent, int color, int key,
                                   struct mw_comm **out, struct mw_err *err)
{
    struct comm_shared *p = self(parent);
    struct mw_comm *host = NULL;
    TRY(p->host->ops->split(p->host, color, key, &host, err));
    *out = new_comm(p->dev, host);
    self(*out)->owns_host = true;
    return MW_OK;
}

static void shared_free(struct mw_comm *comm)
{
    if (!comm) {
        return;
    }
    struct comm_shared *c = self(comm);
    if (c->owns_host) {
        c->host->ops->free(c->host);
    }
    mw_free(c);
}

static const struct mw_comm_ops shared_ops = {
    .name = "shared",
    .split = shared_split,
    .free = shared_free,
    .all_reduce = shared_all_reduce,
    .all_gather = shared_all_gather,
    .reduce_scatter = shared_reduce_scatter,
    .all_to_all = shared_all_to_all,
    .all_to_all_v = shared_all_to_all_v,
    .all_gather_v = shared_all_gather_v,
    .reduce_scatter_v = shared_reduce_scatter_v,
    .send = shared_send,
    .recv = shared_recv,
    .wait = shared_wait,
    .barrier = shared_barrier,
    .broadcast = shared_broadcast,
    .gather = shared_gather,
};

enum mw_status mw_comm_shared_wrap(struct mw_cuda *dev, struct mw_comm *host,
                                   struct mw_comm **out, struct mw_err *err)
{
    if (host->size > MW_K_REDUCE_MAX) {
        return mw_fail(err, MW_EUSAGE,
                       "%d virtual ranks on one GPU; at most %d", host->size,
                       (int)MW_K_REDUCE_MAX);
    }
    *out = new_comm(dev, host);
    return MW_OK;
}

enum mw_status mw_cuda_wrap_comm(struct mw_dev *dev, struct mw_comm *host,
                                 const int *peers, int n_peers,
                                 struct mw_comm **out, struct mw_err *err)
{
    return strcmp(host->ops->name, "local") == 0
               ? mw_comm_shared_wrap((struct mw_cuda *)dev, host, out, err)
               : mw_comm_nccl_wrap(dev, host, peers, n_peers, out, err);
}
