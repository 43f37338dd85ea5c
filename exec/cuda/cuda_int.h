/*
 * Inside of the CUDA backend: one device, its stream, its first failure and
 * the NCCL communicators that live on it.
 *
 * Operators of the device table cannot fail, so the first failure is kept
 * (`fault`), everything after it is skipped, and sync reports it. Waiting is
 * polling: a stream is asked whether it is done, NCCL whether it has failed in
 * the background, and after timeout_s without an end all communicators are
 * aborted, so that a rank whose neighbour died stops with a message (the way
 * of nccl-tests, src/common.cu, testStreamSynchronize).
 */
#ifndef MW_EXEC_CUDA_INT_H
#define MW_EXEC_CUDA_INT_H

#include "base/err.h"
#include "base/mem.h"
#include "exec/cuda/gemm_lt.h"
#include "exec/dev.h"
#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

struct mw_cuda {
    struct mw_dev base;
    enum mw_k_elem elem;
    cudaStream_t stream; /* of all operators */
    struct mw_gemm_lt *gemm;
    double *loss;        /* one, on the device */
    cudaEvent_t tick[2]; /* of busy_ns, in turn */
    int last_tick;       /* -1: none yet */
    double busy_ns;
    cudaEvent_t slow[2];      /* around an operator that is slowed */
    double small_group_flops; /* of a group: below, one launch for all */
    double timeout_s;         /* of a wait; 0: none */
    struct mw_err fault;      /* the first failure; status MW_OK: none */
    MW_ARRAY(ncclComm_t) nccl;
    bool is_aborted; /* the communicators of nccl are gone */
};

/* Keeps the first failure; true when `error` (a cudaError_t) is none. */
bool mw_cuda_note(struct mw_cuda *c, int error, const char *call);

/* Calls fn unless something has failed before. */
#define MW_CUDA_RUN(c, fn, ...)                                                \
    ((c)->fault.status == MW_OK ? mw_cuda_note((c), (int)fn(__VA_ARGS__), #fn) \
                                : false)

/* The same for an operator of a kind that --slow may name (slow_cuda.c). */
void mw_cuda_slow_begin(struct mw_cuda *c, enum mw_op_kind kind);
void mw_cuda_slow_end(struct mw_cuda *c, enum mw_op_kind kind);
#define MW_CUDA_OP(c, kind, fn, ...)                                           \
    do {                                                                       \
        mw_cuda_slow_begin((c), (kind));                                       \
        MW_CUDA_RUN((c), fn, __VA_ARGS__);                                     \
        mw_cuda_slow_end((c), (kind));                                         \
    } while (0)

/* Waits until everything enqueued on `stream` has ended, or until `event` has
 * when it is not NULL. The fault, if there is one. */
enum mw_status mw_cuda_wait(struct mw_cuda *c, cudaStream_t stream,
                            cudaEvent_t event, struct mw_err *err);

/* Waits until a non-blocking NCCL call on comm has ended; `rc` is what the
 * call returned. */
enum mw_status mw_cuda_settle(struct mw_cuda *c, ncclComm_t comm,
                              ncclResult_t rc, const char *call,
                              struct mw_err *err);

/* The communicators that waits watch. */
void mw_cuda_watch(struct mw_cuda *c, ncclComm_t comm);
void mw_cuda_unwatch(struct mw_cuda *c, ncclComm_t comm);

/* Keeps a failure of NCCL as the fault, aborts all communicators, returns
 * MW_EBACKEND. */
enum mw_status mw_cuda_abort(struct mw_cuda *c, struct mw_err *err,
                             const char *what, const char *why);

/* ---- of the device's table (dev_cuda_experts.c) -------------------------- */
extern const struct mw_dev_expert_ops mw_dev_cuda_experts;
extern const double mw_cuda_small_group_flops; /* at first */

/* ---- of the device's table (comm_shared.c): NCCL, or what threads share ---
 */
enum mw_status mw_cuda_wrap_comm(struct mw_dev *dev, struct mw_comm *host,
                                 const int *peers, int n_peers,
                                 struct mw_comm **out, struct mw_err *err);

/* ---- of the device's table (memory_cuda.c) ------------------------------- */
enum mw_status mw_cuda_open_f32(int local_rank, struct mw_dev **out,
                                struct mw_err *err);
enum mw_status mw_cuda_open_bf16(int local_rank, struct mw_dev **out,
                                 struct mw_err *err);
void mw_cuda_close(struct mw_dev *dev);
void *mw_cuda_alloc(struct mw_dev *dev, size_t bytes);
void mw_cuda_release(struct mw_dev *dev, void *p, size_t bytes);
void *mw_cuda_alloc_host(struct mw_dev *dev, size_t bytes);
void mw_cuda_free_host(struct mw_dev *dev, void *p, size_t bytes);
size_t mw_cuda_driver_bytes(struct mw_dev *dev);
void mw_cuda_zero(struct mw_dev *dev, void *p, size_t bytes);
void mw_cuda_copy(struct mw_dev *dev, void *dst, const void *src, size_t bytes);
void mw_cuda_copy_rows(struct mw_dev *dev, struct mw_dev_rows dst,
                       struct mw_dev_rows src, int n, size_t bytes);
void mw_cuda_to_device(struct mw_dev *dev, void *dst, const void *src,
                       size_t bytes);
void mw_cuda_to_host(struct mw_dev *dev, void *dst, const void *src,
                     size_t bytes);
enum mw_status mw_cuda_sync(struct mw_dev *dev, struct mw_err *err);
int64_t mw_cuda_busy_ns(struct mw_dev *dev);

#endif
