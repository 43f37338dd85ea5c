/*
 * Communication by MPI on host buffers. Errors are returned
 * (MPI_ERRORS_RETURN), not fatal; a rank that dies takes the job with it
 * through mpirun. Counts beyond int are sent in pieces.
 */
#include "exec/comm.h"

#include "base/mem.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

struct comm_mpi {
    struct mw_comm base;
    MPI_Comm comm;
};

/* Elements of one call at most: well below INT_MAX, a multiple of 16. */
enum { PIECE = 1 << 28 };

static MPI_Comm handle(const struct mw_comm *comm)
{
    return ((const struct comm_mpi *)comm)->comm;
}

static enum mw_status check(int rc, const char *call, struct mw_err *err)
{
    if (rc == MPI_SUCCESS) {
        return MW_OK;
    }
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    MPI_Error_string(rc, text, &len);
    return mw_fail(err, MW_EBACKEND, "%s: %s", call, text);
}

static MPI_Datatype type_of(enum mw_elem elem)
{
    switch (elem) {
    case MW_ELEM_F32:
        return MPI_FLOAT;
    case MW_ELEM_F64:
        return MPI_DOUBLE;
    case MW_ELEM_I64:
        return MPI_INT64_T;
    case MW_ELEM_BF16:
        break; /* lives on devices */
    }
    return MPI_DATATYPE_NULL;
}

static int count_of(size_t n)
{
    MW_ASSERT(n <= INT_MAX, "%zu elements in one message", n);
    return (int)n;
}

static enum mw_status wrap(MPI_Comm comm, struct mw_comm **out,
                           struct mw_err *err);

static enum mw_status mpi_split(struct mw_comm *parent, int color, int key,
                                struct mw_comm **out, struct mw_err *err)
{
    MPI_Comm made;
    enum mw_status st = check(MPI_Comm_split(handle(parent), color, key, &made),
                              "MPI_Comm_split", err);
    return st == MW_OK ? wrap(made, out, err) : st;
}

static void mpi_free(struct mw_comm *comm)
{
    if (comm) {
        struct comm_mpi *c = (struct comm_mpi *)comm;
        MPI_Comm_free(&c->comm);
        mw_free(c);
    }
}

static enum mw_status mpi_all_reduce(struct mw_comm *comm, void *buf, size_t n,
                                     enum mw_elem elem, enum mw_reduce op,
                                     struct mw_err *err)
{
    MPI_Op mpi_op = op == MW_REDUCE_SUM ? MPI_SUM : MPI_MAX;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t part = n - at < PIECE ? n - at : PIECE;
        char *p = (char *)buf + at * mw_elem_bytes(elem);
        enum mw_status st =
            check(MPI_Allreduce(MPI_IN_PLACE, p, (int)part, type_of(elem),
                                mpi_op, handle(comm)),
                  "MPI_Allreduce", err);
        if (st != MW_OK) {
            return st;
        }
    }
    return MW_OK;
}

static enum mw_status mpi_all_gather(struct mw_comm *comm, void *buf, size_t n,
                                     enum mw_elem elem, struct mw_err *err)
{
    return check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf,
                               count_of(n), type_of(elem), handle(comm)),
                 "MPI_Allgather", err);
}

/*
 * In-place MPI_Reduce_scatter_block leaves the result in block 0 (MPI 3.1,
 * 5.10.1), the table wants it in ours: out of place into our own block is an
 * alias of the send buffer, so the result is moved.
 */
static enum mw_status mpi_reduce_scatter(struct mw_comm *comm, void *buf,
                                         size_t n, enum mw_elem elem,
                                         struct mw_err *err)
{
    enum mw_status st =
        check(MPI_Reduce_scatter_block(MPI_IN_PLACE, buf, count_of(n),
                                       type_of(elem), MPI_SUM, handle(comm)),
              "MPI_Reduce_scatter_block", err);
    if (st == MW_OK && comm->rank > 0) {
        size_t bytes = n * mw_elem_bytes(elem);
        memmove((char *)buf + (size_t)comm->rank * bytes, buf, bytes);
    }
    return st;
}

static enum mw_status mpi_all_to_all(struct mw_comm *comm, const void *from,
                                     void *to, size_t n, enum mw_elem elem,
                                     struct mw_err *err)
{
    return check(MPI_Alltoall(from, count_of(n), type_of(elem), to, count_of(n),
                              type_of(elem), handle(comm)),
                 "MPI_Alltoall", err);
}

/* Counts and places of blocks that follow each other. */
static void lay_blocks(const size_t *n, int size, int *counts, int *places)
{
    int at = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = count_of(n[i]);
        places[i] = at;
        at = count_of((size_t)at + n[i]);
    }
}

static enum mw_status mpi_all_to_all_v(struct mw_comm *comm, const void *from,
                                       const size_t *n_from, void *to,
                                       const size_t *n_to, enum mw_elem elem,
                                       struct mw_err *err)
{
    size_t n = (size_t)comm->size;
    int *v = mw_calloc(4 * n, sizeof *v);
    lay_blocks(n_from, comm->size, v, v + n);
    lay_blocks(n_to, comm->size, v + 2 * n, v + 3 * n);
    enum mw_status st =
        check(MPI_Alltoallv(from, v, v + n, type_of(elem), to, v + 2 * n,
                            v + 3 * n, type_of(elem), handle(comm)),
              "MPI_Alltoallv", err);
    mw_free(v);
    return st;
}

static enum mw_status mpi_all_gather_v(struct mw_comm *comm, void *buf,
                                       const size_t *n, enum mw_elem elem,
                                       struct mw_err *err)
{
    size_t size = (size_t)comm->size;
    int *v = mw_calloc(2 * size, sizeof *v);
    lay_blocks(n, comm->size, v, v + size);
    enum mw_status st =
        check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf, v,
                             v + size, type_of(elem), handle(comm)),
              "MPI_Allgatherv", err);
    mw_free(v);
    return st;
}

/* In place, the result comes at the beginning, as above. */
static enum mw_status mpi_reduce_scatter_v(struct mw_comm *comm, void *buf,
                                           const size_t *n, enum mw_elem elem,
                                           struct mw_err *err)
{
    size_t size = (size_t)comm->size;
    int *v = mw_calloc(2 * size, sizeof *v);
    lay_blocks(n, comm->size, v, v + size);
    enum mw_status st =
        check(MPI_Reduce_scatter(MPI_IN_PLACE, buf, v, type_of(elem), MPI_SUM,
                                 handle(comm)),
              "MPI_Reduce_scatter", err);
    if (st == MW_OK && comm->rank > 0) {
        size_t at = (size_t)v[size + (size_t)comm->rank] * mw_elem_bytes(elem);
        memmove((char *)buf + at, buf, n[comm->rank] * mw_elem_bytes(elem));
    }
    mw_free(v);
    return st;
}

static enum mw_status mpi_send(struct mw_comm *comm, const void *buf, size_t n,
                               enum mw_elem elem, int peer, int tag,
                               struct mw_send *out, struct mw_err *err)
{
    MPI_Request *request = mw_calloc(1, sizeof *request);
    enum mw_status st = check(MPI_Isend(buf, count_of(n), type_of(elem), peer,
                                        tag, handle(comm), request),
                              "MPI_Isend", err);
    if (st != MW_OK) {
        mw_free(request);
        return st;
    }
    out->handle = request;
    return MW_OK;
}

static enum mw_status mpi_recv(struct mw_comm *comm, void *buf, size_t n,
                               enum mw_elem elem, int peer, int tag,
                               struct mw_err *err)
{
    return check(MPI_Recv(buf, count_of(n), type_of(elem), peer, tag,
                          handle(comm), MPI_STATUS_IGNORE),
                 "MPI_Recv", err);
}

static enum mw_status mpi_wait(struct mw_comm *comm, struct mw_send *send,
                               struct mw_err *err)
{
    (void)comm;
    if (!send->handle) {
        return MW_OK;
    }
    MPI_Request *request = send->handle;
    enum mw_status st =
        check(MPI_Wait(request, MPI_STATUS_IGNORE), "MPI_Wait", err);
    mw_free(request);
    send->handle = NULL;
    return st;
}

static bool mpi_test(struct mw_comm *comm, struct mw_send *send)
{
    (void)comm;
    int is_done = 1;
    if (send->handle &&
        MPI_Test(send->handle, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        return false; /* wait says why */
    }
    if (is_done) {
        mw_free(send->handle);
        send->handle = NULL;
    }
    return is_done;
}

static enum mw_status mpi_barrier(struct mw_comm *comm, struct mw_err *err)
{
    return check(MPI_Barrier(handle(comm)), "MPI_Barrier", err);
}

static enum mw_status mpi_broadcast(struct mw_comm *comm, void *buf,
                                    size_t bytes, int root, struct mw_err *err)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t part = bytes - at < PIECE ? bytes - at : PIECE;
        enum mw_status st = check(MPI_Bcast((char *)buf + at, (int)part,
                                            MPI_BYTE, root, handle(comm)),
                                  "MPI_Bcast", err);
        if (st != MW_OK) {
            return st;
        }
    }
    return MW_OK;
}

static enum mw_status mpi_gather(struct mw_comm *comm, const void *buf,
                                 size_t bytes, void *out, int root,
                                 struct mw_err *err)
{
    return check(MPI_Gather(buf, count_of(bytes), MPI_BYTE, out,
                            count_of(bytes), MPI_BYTE, root, handle(comm)),
                 "MPI_Gather", err);
}

static const struct mw_comm_ops mpi_ops = {
    .name = "mpi",
    .split = mpi_split,
    .free = mpi_free,
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_to_all = mpi_all_to_all,
    .all_to_all_v = mpi_all_to_all_v,
    .all_gather_v = mpi_all_gather_v,
    .reduce_scatter_v = mpi_reduce_scatter_v,
    .send = mpi_send,
    .recv = mpi_recv,
    .wait = mpi_wait,
    .test = mpi_test,
    .barrier = mpi_barrier,
    .broadcast = mpi_broadcast,
    .gather = mpi_gather,
};

static enum mw_status wrap(MPI_Comm comm, struct mw_comm **out,
                           struct mw_err *err)
{
    enum mw_status st = check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN),
                              "MPI_Comm_set_errhandler", err);
    if (st != MW_OK) {
        return st;
    }
    struct comm_mpi *c = mw_calloc(1, sizeof *c);
    c->base.ops = &mpi_ops;
    c->comm = comm;
    MPI_Comm_rank(comm, &c->base.rank);
    MPI_Comm_size(comm, &c->base.size);
    *out = &c->base;
    return MW_OK;
}

static enum mw_status duplicate(MPI_Comm comm, struct mw_comm **out,
                                struct mw_err *err)
{
    MPI_Comm made;
    enum mw_status st = check(MPI_Comm_dup(comm, &made), "MPI_Comm_dup", err);
    return st == MW_OK ? wrap(made, out, err) : st;
}

/* The rank among those that share memory with this one. */
static enum mw_status find_device(MPI_Comm comm, int *out, struct mw_err *err)
{
    MPI_Comm here;
    enum mw_status st = check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0,
                                                  MPI_INFO_NULL, &here),
                              "MPI_Comm_split_type", err);
    if (st == MW_OK) {
        MPI_Comm_rank(here, out);
        MPI_Comm_free(&here);
    }
    return st;
}

enum mw_status mw_comm_mpi_world(struct mw_comm **out, struct mw_err *err)
{
    int device = 0;
    enum mw_status st = find_device(MPI_COMM_WORLD, &device, err);
    if (st == MW_OK) {
        st = duplicate(MPI_COMM_WORLD, out, err);
    }
    if (st == MW_OK) {
        (*out)->device = device;
    }
    return st;
}
