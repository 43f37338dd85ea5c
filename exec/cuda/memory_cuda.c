/*
 * A GPU as a device (dev_cuda.c): opening and closing, memory, copies, clock.
 * What lies on the host for it (optimizer states that are offloaded) is pinned.
 */
#include "exec/cuda/cuda_int.h"
#include "exec/cuda/mw_cuda.h"

#include <string.h>

static const double timeout_default_s = 120.0;

static struct mw_cuda *self(struct mw_dev *dev)
{
    return (struct mw_cuda *)dev;
}

/* ---- opening
 * ---------------------------------------------------------------------- */
static enum mw_status missing(struct mw_err *err, const char *what,
                              cudaError_t e)
{
    return mw_fail(err, MW_EMISSING,
                   "the cuda backend is not available: %s: %s; --backend host "
                   "runs without a GPU",
                   what, cudaGetErrorString(e));
}

static enum mw_status choose_device(int local_rank, struct mw_err *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess && n == 0) {
        e = cudaErrorNoDevice;
    }
    if (e != cudaSuccess) {
        return missing(err, "cudaGetDeviceCount", e);
    }
    e = cudaSetDevice(local_rank % n);
    return e == cudaSuccess ? MW_OK : missing(err, "cudaSetDevice", e);
}

static enum mw_status make_parts(struct mw_cuda *c, struct mw_err *err)
{
    int status = 0;
    MW_CUDA_RUN(c, cudaStreamCreateWithFlags, &c->stream,
                cudaStreamNonBlocking);
    MW_CUDA_RUN(c, cudaEventCreate, &c->tick[0]);
    MW_CUDA_RUN(c, cudaEventCreate, &c->tick[1]);
    MW_CUDA_RUN(c, cudaEventCreate, &c->slow[0]);
    MW_CUDA_RUN(c, cudaEventCreate, &c->slow[1]);
    MW_CUDA_RUN(c, cudaMalloc, (void **)&c->loss, sizeof *c->loss);
    if (c->fault.status != MW_OK) {
        *err = c->fault;
        return err->status;
    }
    c->gemm = mw_gemm_lt_new(&status);
    if (!c->gemm) {
        return mw_fail(err, MW_EBACKEND, "cublasLtCreate: %s",
                       mw_gemm_lt_error(status));
    }
    return MW_OK;
}

void mw_cuda_close(struct mw_dev *dev)
{
    struct mw_cuda *c = self(dev);
    mw_gemm_lt_free(c->gemm);
    if (c->loss) {
        cudaFree(c->loss);
    }
    for (int i = 0; i < 2; i++) {
        if (c->tick[i]) {
            cudaEventDestroy(c->tick[i]);
        }
        if (c->slow[i]) {
            cudaEventDestroy(c->slow[i]);
        }
    }
    if (c->stream) {
        cudaStreamDestroy(c->stream);
    }
    mw_array_release(&c->nccl);
    mw_free(c);
}

static enum mw_status open_elem(int local_rank, enum mw_k_elem elem,
                                const struct mw_dev_ops *ops,
                                struct mw_dev **out, struct mw_err *err)
{
    struct mw_err own = {0};
    enum mw_status st = choose_device(local_rank, err);
    if (st != MW_OK) {
        return st;
    }
    struct mw_cuda *c = mw_calloc(1, sizeof *c);
    c->base.ops = ops;
    c->base.elem_bytes = elem == MW_K_F32 ? 4 : 2;
    c->elem = elem;
    c->last_tick = -1;
    c->timeout_s = timeout_default_s;
    c->small_group_flops = mw_cuda_small_group_flops;
    st = make_parts(c, err ? err : &own);
    if (st != MW_OK) {
        mw_cuda_close(&c->base);
        return st;
    }
    *out = &c->base;
    return MW_OK;
}

enum mw_status mw_cuda_open_f32(int local_rank, struct mw_dev **out,
                                struct mw_err *err)
{
    return open_elem(local_rank, MW_K_F32, &mw_dev_cuda, out, err);
}

enum mw_status mw_cuda_open_bf16(int local_rank, struct mw_dev **out,
                                 struct mw_err *err)
{
    return open_elem(local_rank, MW_K_BF16, &mw_dev_cuda_bf16, out, err);
}

void mw_cuda_set_timeout(struct mw_dev *dev, double timeout_s)
{
    self(dev)->timeout_s = timeout_s;
}

/* ---- memory
 * --------------------------------------------------------------------- */
void *mw_cuda_alloc(struct mw_dev *dev, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    void *p = NULL;
    size_t size = bytes ? bytes : 1;
    if (!MW_CUDA_RUN(c, cudaMalloc, &p, size)) {
        return NULL;
    }
    MW_CUDA_RUN(c, cudaMemsetAsync, p, 0, size, c->stream);
    dev->used_bytes += bytes;
    if (dev->used_bytes > dev->peak_bytes) {
        dev->peak_bytes = dev->used_bytes;
    }
    return p;
}

/* cudaFree waits for the device, so nothing enqueued still uses the memory;
 * after a failure an operation that waits for another rank must be aborted
 * first, or this would wait for ever. */
void mw_cuda_release(struct mw_dev *dev, void *p, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    if (!p) {
        return;
    }
    if (c->fault.status != MW_OK && !c->is_aborted) {
        mw_cuda_abort(c, NULL, "freeing memory", "after a failure");
    }
    dev->used_bytes -= bytes;
    mw_cuda_note(c, (int)cudaFree(p), "cudaFree");
}

size_t mw_cuda_driver_bytes(struct mw_dev *dev)
{
    size_t unused = 0, total = 0;
    MW_CUDA_RUN(self(dev), cudaMemGetInfo, &unused, &total);
    return total - unused;
}

void mw_cuda_zero(struct mw_dev *dev, void *p, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    if (bytes > 0) {
        MW_CUDA_RUN(c, cudaMemsetAsync, p, 0, bytes, c->stream);
    }
}

void mw_cuda_copy(struct mw_dev *dev, void *dst, const void *src, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    if (bytes > 0) { /* none: dst or src may be the end of an allocation */
        MW_CUDA_RUN(c, cudaMemcpyAsync, dst, src, bytes,
                    cudaMemcpyDeviceToDevice, c->stream);
    }
}

void *mw_cuda_alloc_host(struct mw_dev *dev, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    void *p = NULL;
    size_t size = bytes ? bytes : 1;
    if (!MW_CUDA_RUN(c, cudaMallocHost, &p, size)) {
        return NULL;
    }
    memset(p, 0, size);
    dev->host_bytes += bytes;
    if (dev->host_bytes > dev->host_peak_bytes) {
        dev->host_peak_bytes = dev->host_bytes;
    }
    return p;
}

void mw_cuda_free_host(struct mw_dev *dev, void *p, size_t bytes)
{
    if (p) {
        dev->host_bytes -= bytes;
        mw_cuda_note(self(dev), (int)cudaFreeHost(p), "cudaFreeHost");
    }
}

void mw_cuda_copy_rows(struct mw_dev *dev, struct mw_dev_rows dst,
                       struct mw_dev_rows src, int n, size_t bytes)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, cudaMemcpy2DAsync, dst.p, dst.ld, src.p, src.ld, bytes,
                (size_t)n, cudaMemcpyDeviceToDevice, c->stream);
}

/* The caller may reuse its memory at once, so a copy with the host has ended
 * when this returns, even when waiting failed. */
static void copy_and_wait(struct mw_cuda *c, void *dst, const void *src,
                          size_t bytes, enum cudaMemcpyKind kind)
{
    if (bytes > 0 &&
        MW_CUDA_RUN(c, cudaMemcpyAsync, dst, src, bytes, kind, c->stream) &&
        mw_cuda_wait(c, c->stream, NULL, NULL) != MW_OK) {
        cudaStreamSynchronize(c->stream);
    }
}

void mw_cuda_to_device(struct mw_dev *dev, void *dst, const void *src,
                       size_t bytes)
{
    copy_and_wait(self(dev), dst, src, bytes, cudaMemcpyHostToDevice);
}

void mw_cuda_to_host(struct mw_dev *dev, void *dst, const void *src,
                     size_t bytes)
{
    copy_and_wait(self(dev), dst, src, bytes, cudaMemcpyDeviceToHost);
}

enum mw_status mw_cuda_sync(struct mw_dev *dev, struct mw_err *err)
{
    struct mw_cuda *c = self(dev);
    return mw_cuda_wait(c, c->stream, NULL, err);
}

int64_t mw_cuda_busy_ns(struct mw_dev *dev)
{
    struct mw_cuda *c = self(dev);
    int now = c->last_tick == 0 ? 1 : 0;
    float ms = 0.0f;
    MW_CUDA_RUN(c, cudaEventRecord, c->tick[now], c->stream);
    mw_cuda_wait(c, c->stream, NULL, NULL);
    if (c->last_tick >= 0 && MW_CUDA_RUN(c, cudaEventElapsedTime, &ms,
                                         c->tick[c->last_tick], c->tick[now])) {
        c->busy_ns += 1e6 * (double)ms;
    }
    c->last_tick = now;
    return (int64_t)c->busy_ns;
}
