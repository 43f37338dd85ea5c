/*
 * Failures and waiting; see cuda_int.h.
 */
#include "exec/cuda/cuda_int.h"

#include "base/log.h"

#include <sched.h>
#include <string.h>

bool mw_cuda_note(struct mw_cuda *c, int error, const char *call)
{
    if (error == (int)cudaSuccess) {
        return true;
    }
    if (c->fault.status == MW_OK) {
        mw_fail(&c->fault, MW_EBACKEND, "%s: %s", call,
                cudaGetErrorString((cudaError_t)error));
    }
    return false;
}

static enum mw_status report(const struct mw_cuda *c, struct mw_err *err)
{
    if (c->fault.status != MW_OK && err) {
        *err = c->fault;
    }
    return c->fault.status;
}

void mw_cuda_watch(struct mw_cuda *c, ncclComm_t comm)
{
    mw_array_push(&c->nccl, comm);
}

void mw_cuda_unwatch(struct mw_cuda *c, ncclComm_t comm)
{
    for (size_t i = 0; i < c->nccl.n; i++) {
        if (c->nccl.v[i] == comm) {
            c->nccl.v[i] = c->nccl.v[--c->nccl.n];
            return;
        }
    }
}

enum mw_status mw_cuda_abort(struct mw_cuda *c, struct mw_err *err,
                             const char *what, const char *why)
{
    if (c->fault.status == MW_OK) {
        mw_fail(&c->fault, MW_EBACKEND, "%s: %s", what, why);
    }
    for (size_t i = 0; i < c->nccl.n; i++) {
        ncclCommAbort(c->nccl.v[i]);
    }
    mw_array_clear(&c->nccl);
    c->is_aborted = true;
    return report(c, err);
}

static bool is_late(const struct mw_cuda *c, int64_t begin_ns)
{
    double waited_s = 1e-9 * (double)(mw_clock_wall_ns() - begin_ns);
    return c->timeout_s > 0.0 && waited_s > c->timeout_s;
}

/* The first communicator that failed in the background. */
static ncclResult_t background(const struct mw_cuda *c, ncclComm_t *out)
{
    for (size_t i = 0; i < c->nccl.n; i++) {
        ncclResult_t state = ncclSuccess;
        ncclResult_t rc = ncclCommGetAsyncError(c->nccl.v[i], &state);
        *out = c->nccl.v[i];
        if (rc != ncclSuccess) {
            return rc;
        }
        if (state != ncclSuccess && state != ncclInProgress) {
            return state;
        }
    }
    return ncclSuccess;
}

/* Other threads, NCCL's among them, want the processor too, but not after each
 * look: on a machine with more to run, giving it away costs milliseconds. */
static void rest(unsigned *n_polls)
{
    enum { POLLS = 16 };
    if (++*n_polls % POLLS == 0) {
        sched_yield();
    }
}

enum mw_status mw_cuda_wait(struct mw_cuda *c, cudaStream_t stream,
                            cudaEvent_t event, struct mw_err *err)
{
    int64_t begin_ns = mw_clock_wall_ns();
    unsigned n_polls = 0;
    while (c->fault.status == MW_OK) {
        cudaError_t e = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (e == cudaSuccess) {
            return MW_OK;
        }
        if (e != cudaErrorNotReady) {
            mw_cuda_note(c, (int)e, "waiting for the device");
            break;
        }
        ncclComm_t comm = NULL;
        ncclResult_t rc = background(c, &comm);
        if (rc != ncclSuccess) {
            return mw_cuda_abort(c, err, ncclGetErrorString(rc),
                                 ncclGetLastError(comm));
        }
        if (is_late(c, begin_ns)) {
            return mw_cuda_abort(c, err, "waiting for the device",
                                 "no end within the time limit; another rank "
                                 "has stopped or hangs");
        }
        rest(&n_polls);
    }
    return report(c, err);
}

enum mw_status mw_cuda_settle(struct mw_cuda *c, ncclComm_t comm,
                              ncclResult_t rc, const char *call,
                              struct mw_err *err)
{
    int64_t begin_ns = mw_clock_wall_ns();
    unsigned n_polls = 0;
    while (rc == ncclInProgress) {
        ncclResult_t asked = ncclCommGetAsyncError(comm, &rc);
        rc = asked == ncclSuccess ? rc : asked;
        if (rc == ncclInProgress && is_late(c, begin_ns)) {
            return mw_cuda_abort(c, err, call,
                                 "no end within the time limit; another rank "
                                 "has stopped or hangs");
        }
        rest(&n_polls);
    }
    if (rc != ncclSuccess) {
        return mw_cuda_abort(c, err, call, ncclGetErrorString(rc));
    }
    return MW_OK;
}
