/*
 * While the host program waits in MPI, queued work must go on, as it does on a
 * device; so the blocking MPI calls that it uses are wrapped here (profiling
 * interface) into polls that also run queued work (shim.h).
 */
#include "tests/shim/shim.h"

#include <mpi.h>
#include <sched.h>

static int poll(int rc, MPI_Request *request, MPI_Status *status)
{
    int is_done = 0;
    while (rc == MPI_SUCCESS && !is_done) {
        rc = PMPI_Test(request, &is_done, status);
        shim_progress();
        sched_yield();
    }
    return rc;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return poll(MPI_SUCCESS, request, status);
}

int MPI_Recv(void *buf, int n, MPI_Datatype type, int source, int tag,
             MPI_Comm comm, MPI_Status *status)
{
    MPI_Request r;
    int rc = PMPI_Irecv(buf, n, type, source, tag, comm, &r);
    return poll(rc, &r, status);
}

int MPI_Barrier(MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Ibarrier(comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Bcast(void *buf, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Ibcast(buf, n, type, root, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type,
                  MPI_Op op, MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Iallreduce(in, out, n, type, op, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Allgather(const void *in, int n_in, MPI_Datatype type_in, void *out,
                  int n_out, MPI_Datatype type_out, MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Iallgather(in, n_in, type_in, out, n_out, type_out, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Allgatherv(const void *in, int n_in, MPI_Datatype type_in, void *out,
                   const int n_out[], const int at_out[], MPI_Datatype type_out,
                   MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Iallgatherv(in, n_in, type_in, out, n_out, at_out, type_out,
                              comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Alltoall(const void *in, int n_in, MPI_Datatype type_in, void *out,
                 int n_out, MPI_Datatype type_out, MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Ialltoall(in, n_in, type_in, out, n_out, type_out, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Alltoallv(const void *in, const int n_in[], const int at_in[],
                  MPI_Datatype type_in, void *out, const int n_out[],
                  const int at_out[], MPI_Datatype type_out, MPI_Comm comm)
{
    MPI_Request r;
    int rc = PMPI_Ialltoallv(in, n_in, at_in, type_in, out, n_out, at_out,
                             type_out, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}

int MPI_Gather(const void *in, int n_in, MPI_Datatype type_in, void *out,
               int n_out, MPI_Datatype type_out, int root, MPI_Comm comm)
{
    MPI_Request r;
    int rc =
        PMPI_Igather(in, n_in, type_in, out, n_out, type_out, root, comm, &r);
    return poll(rc, &r, MPI_STATUS_IGNORE);
}
