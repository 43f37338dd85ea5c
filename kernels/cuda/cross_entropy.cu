/*
 * Softmax cross-entropy over a (shard of a) vocabulary, a block a row; the
 * steps and formulas of k_cross_entropy.c. The loss is one block's work: each
 * thread sums rows at a stride in float64, threads are added in ascending
 * order.
 */
#include "kernels/cuda/cuda_int.cuh"

template <typename T> __global__ void xent_max(const struct mw_k_xent a)
{
    const T *l = static_cast<const T *>(a.logits) +
                 static_cast<size_t>(blockIdx.x) * static_cast<size_t>(a.n);
    float max = mw_load(l);
    for (int i = threadIdx.x; i < a.n; i += MW_BLOCK) {
        max = fmaxf(max, mw_load(l + i));
    }
    max = mw_block_max(max);
    if (threadIdx.x == 0) {
        a.max[blockIdx.x] = max;
    }
}

template <typename T> __global__ void xent_sum(const struct mw_k_xent a)
{
    const T *l = static_cast<const T *>(a.logits) +
                 static_cast<size_t>(blockIdx.x) * static_cast<size_t>(a.n);
    float max = a.max[blockIdx.x], sum = 0.0f;
    for (int i = threadIdx.x; i < a.n; i += MW_BLOCK) {
        sum += expf(mw_load(l + i) - max);
    }
    sum = mw_block_sum(sum);
    if (threadIdx.x == 0) {
        int at = a.label[blockIdx.x] - a.first;
        a.sum[blockIdx.x] = sum;
        a.target[blockIdx.x] =
            at >= 0 && at < a.n ? mw_load(l + at) - max : 0.0f;
    }
}

__global__ static void xent_loss(double *out, const float *sum,
                                 const float *target, int rows)
{
    __shared__ double part[MW_BLOCK];
    double loss = 0.0;
    for (int r = threadIdx.x; r < rows; r += MW_BLOCK) {
        loss +=
            log(static_cast<double>(sum[r])) - static_cast<double>(target[r]);
    }
    part[threadIdx.x] = loss;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < MW_BLOCK; i++) {
            loss += part[i];
        }
        *out = loss;
    }
}

template <typename T, typename D>
__global__ void xent_bwd(const struct mw_k_xent a, D *dlogits, float scale)
{
    size_t at = static_cast<size_t>(blockIdx.x) * static_cast<size_t>(a.n);
    const T *l = static_cast<const T *>(a.logits) + at;
    float max = a.max[blockIdx.x], inv = scale / a.sum[blockIdx.x];
    int target = a.label[blockIdx.x] - a.first;
    for (int i = threadIdx.x; i < a.n; i += MW_BLOCK) {
        float d = expf(mw_load(l + i) - max) * inv;
        mw_store(dlogits + at + i, i == target ? d - scale : d);
    }
}

/* ---- launchers -------------------------------------------------------- */
template <typename T>
static int run_max(const struct mw_k_xent *a, void *stream)
{
    MW_LAUNCH(xent_max<T>, static_cast<unsigned>(a->rows), MW_BLOCK, stream)
    (*a);
    return cudaGetLastError();
}

template <typename T>
static int run_sum(const struct mw_k_xent *a, void *stream)
{
    MW_LAUNCH(xent_sum<T>, static_cast<unsigned>(a->rows), MW_BLOCK, stream)
    (*a);
    return cudaGetLastError();
}

template <typename T, typename D>
static int run_bwd(const struct mw_k_xent *a, void *dlogits, float scale,
                   void *stream)
{
    MW_LAUNCH((xent_bwd<T, D>), static_cast<unsigned>(a->rows), MW_BLOCK,
              stream)
    (*a, static_cast<D *>(dlogits), scale);
    return cudaGetLastError();
}

int mw_k_xent_max_cuda(const struct mw_k_xent *a, void *stream)
{
    return MW_BY_ELEM(a->elem, run_max<float>(a, stream),
                      run_max<mw_bf16>(a, stream));
}

int mw_k_xent_sum_cuda(const struct mw_k_xent *a, void *stream)
{
    return MW_BY_ELEM(a->elem, run_sum<float>(a, stream),
                      run_sum<mw_bf16>(a, stream));
}

int mw_k_xent_loss_cuda(double *out, const float *sum, const float *target,
                        int rows, void *stream)
{
    MW_LAUNCH(xent_loss, 1u, MW_BLOCK, stream)(out, sum, target, rows);
    return cudaGetLastError();
}

int mw_k_xent_bwd_cuda(const struct mw_k_xent *a, enum mw_k_elem out,
                       void *dlogits, float scale, void *stream)
{
    if (a->elem == MW_K_F32) {
        return MW_BY_ELEM(out,
                          (run_bwd<float, float>(a, dlogits, scale, stream)),
                          (run_bwd<float, mw_bf16>(a, dlogits, scale, stream)));
    }
    return MW_BY_ELEM(out, (run_bwd<mw_bf16, float>(a, dlogits, scale, stream)),
                      (run_bwd<mw_bf16, mw_bf16>(a, dlogits, scale, stream)));
}
