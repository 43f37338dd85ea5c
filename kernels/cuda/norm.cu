/*
 * LayerNorm and RMSNorm: forward and both halves of backward.
 *
 * A block takes a row. With xhat = (x - mean) rstd and g = dy gamma:
 *   LayerNorm  dx = rstd (g - mean(g) - xhat mean(g xhat))
 *   RMSNorm    dx = rstd (g - xhat mean(g xhat)),  xhat = x rstd
 * Parameter gradients are sums over rows: a block takes 32 columns, 8 threads
 * a column share the rows (r mod 8) and are added in ascending order. Memory
 * bound: forward reads x twice (the second time from cache) and writes y.
 */
#include "kernels/cuda/cuda_int.cuh"

enum { COLS = 32, ROW_LANES = 8 };

template <typename T> __global__ void norm_fwd(const struct mw_k_norm a, T *y)
{
    size_t at = static_cast<size_t>(blockIdx.x) * static_cast<size_t>(a.width);
    const T *x = static_cast<const T *>(a.x) + at;
    const T *gamma = static_cast<const T *>(a.gamma);
    const T *beta = static_cast<const T *>(a.beta);
    float inv = 1.0f / static_cast<float>(a.width), mean = 0.0f, sum = 0.0f;
    if (!a.is_rms) {
        for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
            sum += mw_load(x + i);
        }
        mean = mw_block_sum(sum) * inv;
    }
    sum = 0.0f;
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float d = mw_load(x + i) - mean;
        sum += d * d;
    }
    float rstd = 1.0f / sqrtf(mw_block_sum(sum) * inv + a.eps);
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float v = (mw_load(x + i) - mean) * rstd * mw_load(gamma + i);
        mw_store(y + at + i, beta ? v + mw_load(beta + i) : v);
    }
    if (threadIdx.x == 0) {
        a.rstd[blockIdx.x] = rstd;
        if (!a.is_rms) {
            a.mean[blockIdx.x] = mean;
        }
    }
}

template <typename T>
__global__ void norm_bwd_input(const struct mw_k_norm a, T *dx,
                               const T *residual, const T *dy)
{
    size_t at = static_cast<size_t>(blockIdx.x) * static_cast<size_t>(a.width);
    const T *x = static_cast<const T *>(a.x) + at;
    const T *gamma = static_cast<const T *>(a.gamma);
    float mean = a.is_rms ? 0.0f : a.mean[blockIdx.x];
    float rstd = a.rstd[blockIdx.x], g_sum = 0.0f, gx_sum = 0.0f;
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float g = mw_load(dy + at + i) * mw_load(gamma + i);
        g_sum += g;
        gx_sum += g * ((mw_load(x + i) - mean) * rstd);
    }
    float inv = 1.0f / static_cast<float>(a.width);
    float g_mean = a.is_rms ? 0.0f : mw_block_sum(g_sum) * inv;
    float gx_mean = mw_block_sum(gx_sum) * inv;
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float xhat = (mw_load(x + i) - mean) * rstd;
        float g = mw_load(dy + at + i) * mw_load(gamma + i);
        float d = rstd * (g - g_mean - xhat * gx_mean);
        mw_store(dx + at + i, residual ? mw_load(residual + at + i) + d : d);
    }
}

/* Adds lanes of a column in ascending order and puts the sum on top of *out. */
__device__ static void add_lanes(float (*lane)[COLS], float v, float *out,
                                 bool is_inside)
{
    __syncthreads();
    lane[threadIdx.y][threadIdx.x] = v;
    __syncthreads();
    if (threadIdx.y == 0 && is_inside) {
        float sum = 0.0f;
        for (int j = 0; j < ROW_LANES; j++) {
            sum += lane[j][threadIdx.x];
        }
        *out += sum;
    }
}

template <typename T>
__global__ void norm_bwd_param(const struct mw_k_norm a, float *dgamma,
                               float *dbeta, const T *dy)
{
    __shared__ float lane[ROW_LANES][COLS];
    int col = static_cast<int>(blockIdx.x) * COLS + threadIdx.x;
    bool is_inside = col < a.width;
    const T *x = static_cast<const T *>(a.x);
    float g = 0.0f, b = 0.0f;
    for (int r = threadIdx.y; is_inside && r < a.rows; r += ROW_LANES) {
        size_t at = static_cast<size_t>(r) * static_cast<size_t>(a.width) +
                    static_cast<size_t>(col);
        float mean = a.is_rms ? 0.0f : a.mean[r], d = mw_load(dy + at);
        g += d * ((mw_load(x + at) - mean) * a.rstd[r]);
        b += d;
    }
    add_lanes(lane, g, dgamma + col, is_inside);
    if (dbeta) {
        add_lanes(lane, b, dbeta + col, is_inside);
    }
}

template <typename T>
__global__ void bias_bwd(float *db, const T *dy, int m, int n)
{
    __shared__ float lane[ROW_LANES][COLS];
    int col = static_cast<int>(blockIdx.x) * COLS + threadIdx.x;
    bool is_inside = col < n;
    float b = 0.0f;
    for (int r = threadIdx.y; is_inside && r < m; r += ROW_LANES) {
        b += mw_load(dy + static_cast<size_t>(r) * static_cast<size_t>(n) +
                     static_cast<size_t>(col));
    }
    add_lanes(lane, b, db + col, is_inside);
}

/* ---- launchers -------------------------------------------------------- */
template <typename T>
static int run_fwd(const struct mw_k_norm *a, void *y, void *stream)
{
    MW_LAUNCH(norm_fwd<T>, static_cast<unsigned>(a->rows), MW_BLOCK, stream)
    (*a, static_cast<T *>(y));
    return cudaGetLastError();
}

template <typename T>
static int run_bwd_input(const struct mw_k_norm *a, void *dx,
                         const void *residual, const void *dy, void *stream)
{
    MW_LAUNCH(norm_bwd_input<T>, static_cast<unsigned>(a->rows), MW_BLOCK,
              stream)
    (*a, static_cast<T *>(dx), static_cast<const T *>(residual),
     static_cast<const T *>(dy));
    return cudaGetLastError();
}

static unsigned column_blocks(int n)
{
    return static_cast<unsigned>((n + COLS - 1) / COLS);
}

template <typename T>
static int run_bwd_param(const struct mw_k_norm *a, float *dgamma, float *dbeta,
                         const void *dy, void *stream)
{
    MW_LAUNCH(norm_bwd_param<T>, column_blocks(a->width), dim3(COLS, ROW_LANES),
              stream)
    (*a, dgamma, dbeta, static_cast<const T *>(dy));
    return cudaGetLastError();
}

template <typename T>
static int run_bias(float *db, const void *dy, int m, int n, void *stream)
{
    MW_LAUNCH(bias_bwd<T>, column_blocks(n), dim3(COLS, ROW_LANES), stream)
    (db, static_cast<const T *>(dy), m, n);
    return cudaGetLastError();
}

int mw_k_norm_fwd_cuda(const struct mw_k_norm *a, void *y, void *stream)
{
    return MW_BY_ELEM(a->elem, run_fwd<float>(a, y, stream),
                      run_fwd<mw_bf16>(a, y, stream));
}

int mw_k_norm_bwd_input_cuda(const struct mw_k_norm *a, void *dx,
                             const void *residual, const void *dy, void *stream)
{
    return MW_BY_ELEM(a->elem,
                      run_bwd_input<float>(a, dx, residual, dy, stream),
                      run_bwd_input<mw_bf16>(a, dx, residual, dy, stream));
}

int mw_k_norm_bwd_param_cuda(const struct mw_k_norm *a, float *dgamma,
                             float *dbeta, const void *dy, void *stream)
{
    return MW_BY_ELEM(a->elem,
                      run_bwd_param<float>(a, dgamma, dbeta, dy, stream),
                      run_bwd_param<mw_bf16>(a, dgamma, dbeta, dy, stream));
}

int mw_k_bias_bwd_cuda(enum mw_k_elem elem, float *db, const void *dy, int m,
                       int n, void *stream)
{
    return MW_BY_ELEM(elem, run_bias<float>(db, dy, m, n, stream),
                      run_bias<mw_bf16>(db, dy, m, n, stream));
}
