/*
 * NCCL of shim.h on MPI: an operation is queued on its stream and becomes a
 * non-blocking MPI call when the stream comes to it and the operations of its
 * communicator before it have ended. Members of a communicator find each other
 * through the rank that made the unique id, on MPI_COMM_WORLD with tags of
 * their own.
 */
#include "tests/shim/shim.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <mpi.h>
#include <nccl.h>
#include <string.h>

enum { JOIN_TAG = 1 << 20, LATE_POLLS = 3 };

struct ncclComm {
    MPI_Comm mpi; /* MPI_COMM_NULL: one rank */
    int rank, size;
    uint64_t n_issued, n_done;
    int late; /* how often "in progress" is still answered */
    int pending;
    bool is_aborted, is_destroyed;
};

static uint64_t n_ids;
static bool is_network_broken;

void shim_break_network(bool is_broken)
{
    is_network_broken = is_broken;
}

#define ENTER()                                                                \
    do {                                                                       \
        if (shim_enters()) {                                                   \
            return ncclInternalError;                                          \
        }                                                                      \
    } while (0)

const char *ncclGetErrorString(ncclResult_t rc)
{
    return rc == ncclInternalError ? "made to fail (stand-in)"
           : rc == ncclRemoteError ? "another rank has failed (stand-in)"
                                   : "an error (stand-in)";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the stand-in's last error";
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* ---- communicators
 * ----------------------------------------------------------------- */
/* What an id holds. */
struct meeting {
    char magic[8];
    int world_rank;
    uint64_t number;
};

static bool is_mpi_on(void)
{
    int is_on = 0;
    PMPI_Initialized(&is_on);
    return is_on != 0;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER();
    struct meeting m = {.magic = "shim-id", .number = ++n_ids};
    if (is_mpi_on()) {
        PMPI_Comm_rank(MPI_COMM_WORLD, &m.world_rank);
    }
    memset(id, 0, sizeof *id);
    memcpy(id, &m, sizeof m);
    return ncclSuccess;
}

/* World ranks of all members by their rank, known to each of them. */
static void meet(const struct meeting *m, int rank, int size, int *world)
{
    int tag = JOIN_TAG + (int)(m->number % 4096) * 2, me[2] = {rank, 0};
    PMPI_Comm_rank(MPI_COMM_WORLD, &me[1]);
    if (me[1] != m->world_rank) {
        PMPI_Send(me, 2, MPI_INT, m->world_rank, tag, MPI_COMM_WORLD);
        PMPI_Recv(world, size, MPI_INT, m->world_rank, tag + 1, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
        return;
    }
    world[rank] = me[1];
    for (int i = 1; i < size; i++) {
        int other[2];
        PMPI_Recv(other, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD,
                  MPI_STATUS_IGNORE);
        world[other[0]] = other[1];
    }
    for (int i = 0; i < size; i++) {
        if (i != rank) {
            PMPI_Send(world, size, MPI_INT, world[i], tag + 1, MPI_COMM_WORLD);
        }
    }
}

static MPI_Comm make_mpi(const struct meeting *m, int rank, int size)
{
    MPI_Group all, some;
    MPI_Comm made;
    int *world = mw_calloc((size_t)size, sizeof *world);
    meet(m, rank, size, world);
    PMPI_Comm_group(MPI_COMM_WORLD, &all);
    PMPI_Group_incl(all, size, world, &some);
    PMPI_Comm_create_group(MPI_COMM_WORLD, some,
                           JOIN_TAG + (int)(m->number % 4096) * 2, &made);
    PMPI_Group_free(&some);
    PMPI_Group_free(&all);
    mw_free(world);
    return made;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config)
{
    ENTER();
    struct meeting m;
    memcpy(&m, &id, sizeof m);
    if (strcmp(m.magic, "shim-id") != 0 || rank < 0 || rank >= size) {
        return ncclInvalidArgument;
    }
    struct ncclComm *c = mw_calloc(1, sizeof *c);
    c->rank = rank;
    c->size = size;
    c->mpi = size > 1 ? make_mpi(&m, rank, size) : MPI_COMM_NULL;
    c->late = config->blocking == 0 ? (int)shim_draw(LATE_POLLS) : 0;
    shim_count(1);
    *out = c;
    return c->late > 0 ? ncclInProgress : ncclSuccess;
}

static void release(struct ncclComm *c)
{
    if (!c->is_destroyed || c->pending > 0) {
        return;
    }
    int is_over = 0;
    PMPI_Finalized(&is_over);
    if (c->mpi != MPI_COMM_NULL && !c->is_aborted && !is_over) {
        PMPI_Comm_free(&c->mpi);
    }
    mw_free(c);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    ENTER();
    *out = comm->late-- > 0 ? ncclInProgress : ncclSuccess;
    comm->late = comm->late < 0 ? 0 : comm->late;
    if (is_network_broken && comm->pending > 0) {
        *out = ncclRemoteError;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ENTER();
    while (comm->pending > 0) {
        shim_progress();
    }
    comm->late = (int)shim_draw(LATE_POLLS);
    return comm->late > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    bool is_failing = shim_enters();
    comm->is_destroyed = true;
    shim_count(-1);
    release(comm);
    return is_failing ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->is_aborted = true;
    return ncclCommDestroy(comm);
}

/* ---- operations
 * ------------------------------------------------------------------- */
enum kind {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    REDUCE,
    BROADCAST,
    SEND,
    RECV
};

struct nccl_op {
    struct ncclComm *comm;
    enum kind kind;
    uint64_t number; /* within the communicator */
    const void *in;
    void *out;
    void *in_copy, *out_copy; /* what MPI reads and writes */
    size_t in_bytes, out_bytes;
    int n, peer;
    MPI_Datatype type;
    MPI_Op reduce;
    size_t bytes; /* of n elements */
    bool is_started;
    MPI_Request request;
};

/*
 * MPI works on copies: an aborted operation may still be written to by ranks
 * that have not aborted, when its buffers are long gone. Such copies are kept.
 */
static MW_ARRAY(void *) orphans;

static void start(struct nccl_op *o)
{
    struct ncclComm *c = o->comm;
    o->in_copy = mw_calloc(o->in_bytes + 1, 1);
    o->out_copy = mw_calloc(o->out_bytes + 1, 1);
    if (o->in) {
        memcpy(o->in_copy, o->in, o->in_bytes);
    }
    switch (o->kind) {
    case ALL_REDUCE:
        PMPI_Iallreduce(o->in_copy, o->out_copy, o->n, o->type, o->reduce,
                        c->mpi, &o->request);
        break;
    case ALL_GATHER:
        PMPI_Iallgather(o->in_copy, o->n, o->type, o->out_copy, o->n, o->type,
                        c->mpi, &o->request);
        break;
    case REDUCE_SCATTER:
        PMPI_Ireduce_scatter_block(o->in_copy, o->out_copy, o->n, o->type,
                                   o->reduce, c->mpi, &o->request);
        break;
    case REDUCE:
        PMPI_Ireduce(o->in_copy, o->out ? o->out_copy : NULL, o->n, o->type,
                     o->reduce, o->peer, c->mpi, &o->request);
        break;
    case BROADCAST: /* MPI has one buffer */
        memcpy(o->out_copy, o->in_copy, o->in_bytes);
        PMPI_Ibcast(o->out_copy, o->n, o->type, o->peer, c->mpi, &o->request);
        break;
    case SEND:
        PMPI_Issend(o->in_copy, o->n, o->type, o->peer, 0, c->mpi, &o->request);
        break;
    case RECV:
        PMPI_Irecv(o->out_copy, o->n, o->type, o->peer, 0, c->mpi, &o->request);
        break;
    }
    o->is_started = true;
}

/* The results into place; nobody may have written the input meanwhile. */
static void deliver(const struct nccl_op *o)
{
    if (o->in) {
        MW_ASSERT(memcmp(o->in, o->in_copy, o->in_bytes) == 0,
                  "the input of operation %d was written before its end",
                  (int)o->kind);
    }
    if (o->kind == REDUCE_SCATTER &&
        (const char *)o->out >= (const char *)o->in &&
        (const char *)o->out < (const char *)o->in + o->in_bytes) {
        memset((void *)(uintptr_t)o->in, 0xff, o->in_bytes); /* undefined */
    }
    if (o->out) {
        memcpy(o->out, o->out_copy, o->out_bytes);
    }
}

static void release_copies(struct nccl_op *o)
{
    if (o->request == MPI_REQUEST_NULL) {
        mw_free(o->in_copy);
        mw_free(o->out_copy);
    } else {
        mw_array_push(&orphans, o->in_copy);
        mw_array_push(&orphans, o->out_copy);
    }
}

static void end(struct ncclComm *c)
{
    c->n_done++;
    c->pending--;
    release(c);
}

static bool run_op(void *args)
{
    struct nccl_op *o = args;
    int is_done = 0;
    if (o->comm->is_aborted) {
        release_copies(o);
        end(o->comm);
        return true;
    }
    if (o->comm->n_done != o->number) {
        return false;
    }
    if (!o->is_started) {
        start(o);
    }
    PMPI_Test(&o->request, &is_done, MPI_STATUS_IGNORE);
    if (is_done) {
        deliver(o);
        release_copies(o);
        end(o->comm);
    }
    return is_done != 0;
}

/* ---- groups: operations that go on together -------------------------------
 */
struct group_op {
    struct ncclComm *comm;
    uint64_t number;
    struct nccl_op *parts;
    size_t n;
};

/* The group that is being called. */
static struct {
    int depth;
    cudaStream_t stream;
    MW_ARRAY(struct nccl_op) parts;
} group;

static void end_group(struct group_op *g)
{
    for (size_t i = 0; i < g->n; i++) {
        release_copies(&g->parts[i]);
    }
    mw_free(g->parts);
    end(g->comm);
}

static bool run_group(void *args)
{
    struct group_op *g = args;
    bool is_done = true;
    if (g->comm->is_aborted) {
        end_group(g);
        return true;
    }
    if (g->comm->n_done != g->number) {
        return false;
    }
    for (size_t i = 0; i < g->n; i++) {
        int has_ended = 0;
        if (!g->parts[i].is_started) {
            start(&g->parts[i]);
        }
        PMPI_Test(&g->parts[i].request, &has_ended, MPI_STATUS_IGNORE);
        is_done = is_done && has_ended;
    }
    for (size_t i = 0; is_done && i < g->n; i++) {
        deliver(&g->parts[i]);
    }
    if (is_done) {
        end_group(g);
    }
    return is_done;
}

static ncclResult_t issue(struct ncclComm *comm, cudaStream_t stream,
                          bool (*run)(void *args), void *op, size_t size)
{
    comm->n_issued++;
    comm->pending++;
    shim_enqueue(stream, run, op, size);
    comm->late = (int)shim_draw(LATE_POLLS);
    return comm->late > 0 ? ncclInProgress : ncclSuccess;
}

/* The header's declarations leave the arguments open. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ENTER();
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    bool is_failing = shim_enters();
    struct group_op g = {.parts = group.parts.v, .n = group.parts.n};
    if (group.depth == 0 || --group.depth > 0 || g.n == 0) {
        return is_failing ? ncclInternalError : ncclSuccess;
    }
    memset(&group.parts, 0, sizeof group.parts);
    if (is_failing) {
        mw_free(g.parts);
        return ncclInternalError;
    }
    g.comm = g.parts[0].comm;
    g.number = g.comm->n_issued;
    return issue(g.comm, group.stream, run_group, &g, sizeof g);
}

/* ---- calls
 * ------------------------------------------------------------------------ */
/* Sums and maxima of bfloat16, rounded each time as on a ring. */
static float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t narrow(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static void sum_halves(void *in, void *out, int *n, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = out;
    (void)type;
    for (int i = 0; i < *n; i++) {
        y[i] = narrow(widen(x[i]) + widen(y[i]));
    }
}

static void max_halves(void *in, void *out, int *n, MPI_Datatype *type)
{
    const uint16_t *x = in;
    uint16_t *y = out;
    (void)type;
    for (int i = 0; i < *n; i++) {
        y[i] = narrow(fmaxf(widen(x[i]), widen(y[i])));
    }
}

static MPI_Op op_of_halves(bool is_max)
{
    static MPI_Op made[2] = {MPI_OP_NULL, MPI_OP_NULL};
    if (made[is_max] == MPI_OP_NULL) {
        PMPI_Op_create(is_max ? max_halves : sum_halves, 1, &made[is_max]);
    }
    return made[is_max];
}

static bool set_type(struct nccl_op *o, ncclDataType_t type)
{
    switch ((int)type) {
    case ncclFloat32:
        o->type = MPI_FLOAT;
        o->bytes = 4 * (size_t)o->n;
        return true;
    case ncclFloat64:
        o->type = MPI_DOUBLE;
        o->bytes = 8 * (size_t)o->n;
        return true;
    case ncclBfloat16:
        o->type = MPI_UINT16_T;
        o->bytes = 2 * (size_t)o->n;
        o->reduce = op_of_halves(o->reduce == MPI_MAX);
        return true;
    case ncclInt64:
        o->type = MPI_INT64_T;
        o->bytes = 8 * (size_t)o->n;
        return true;
    default:
        return false;
    }
}

static ncclResult_t enqueue(struct nccl_op *o, ncclComm_t comm, size_t count,
                            ncclDataType_t type, ncclRedOp_t op,
                            cudaStream_t stream)
{
    o->comm = comm;
    o->n = (int)count;
    o->reduce = op == ncclMax ? MPI_MAX : MPI_SUM;
    o->request = MPI_REQUEST_NULL;
    size_t n_in = o->kind == REDUCE_SCATTER ? (size_t)comm->size : 1;
    size_t n_out = o->kind == ALL_GATHER ? (size_t)comm->size : 1;
    if (comm->late > 0 || comm->mpi == MPI_COMM_NULL || !set_type(o, type) ||
        (o->kind != RECV && !shim_is_device(o->in, n_in * o->bytes)) ||
        (o->kind != SEND && !shim_is_device(o->out, n_out * o->bytes))) {
        return ncclInvalidUsage;
    }
    if (o->kind == REDUCE && o->peer != comm->rank) {
        o->out = NULL; /* the root's alone */
    }
    o->in_bytes = o->in ? n_in * o->bytes : 0;
    o->out_bytes = o->out ? n_out * o->bytes : 0;
    if (group.depth > 0) {
        bool is_first = group.parts.n == 0;
        if (o->kind < REDUCE || (!is_first && (group.parts.v[0].comm != comm ||
                                               group.stream != stream))) {
            return ncclInvalidUsage;
        }
        group.stream = stream;
        mw_array_push(&group.parts, *o);
        return ncclSuccess;
    }
    o->number = comm->n_issued;
    return issue(comm, stream, run_op, o, sizeof *o);
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = ALL_REDUCE, .in = in, .out = out};
    return enqueue(&o, comm, count, type, op, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = ALL_GATHER, .in = in, .out = out};
    return enqueue(&o, comm, count, type, ncclSum, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = REDUCE_SCATTER, .in = in, .out = out};
    return enqueue(&o, comm, count, type, op, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = REDUCE, .in = in, .out = out, .peer = root};
    return enqueue(&o, comm, count, type, op, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = BROADCAST, .in = in, .out = out, .peer = root};
    return enqueue(&o, comm, count, type, ncclSum, stream);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = SEND, .in = in, .peer = peer};
    return enqueue(&o, comm, count, type, ncclSum, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    ENTER();
    struct nccl_op o = {.kind = RECV, .out = out, .peer = peer};
    return enqueue(&o, comm, count, type, ncclSum, stream);
}
