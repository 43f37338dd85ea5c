/*
 * Token and position embeddings, forward and backward.
 *
 * The gradient of the table adds rows of dy that have the same token. Without
 * atomics: the block of row r works only if r is the first row of its token;
 * it then walks the later rows and adds those of the same token in ascending
 * order, so the bits are those of the host kernel. Work: rows^2 / 2 token
 * comparisons, 3.4e7 for 8,192 tokens, little beside the rows themselves.
 */
#include "kernels/cuda/cuda_int.cuh"

template <typename T>
__global__ void embedding_fwd(const struct mw_k_vocab a, T *y, const T *w)
{
    size_t width = static_cast<size_t>(a.width);
    int at = a.token[blockIdx.x] - a.first;
    bool is_local = at >= 0 && at < a.n_local;
    const T *from = w + static_cast<size_t>(is_local ? at : 0) * width;
    T *to = y + blockIdx.x * width;
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        mw_store(to + i, is_local ? mw_load(from + i) : 0.0f);
    }
}

/* Whether one of token[0 .. row - 1] is token[row]; the same in all threads. */
__device__ static bool is_repeat(const int32_t *token, int row)
{
    int found = 0;
    for (int i = threadIdx.x; i < row; i += MW_BLOCK) {
        found |= token[i] == token[row];
    }
    return __syncthreads_or(found) != 0;
}

template <typename T>
__global__ void embedding_bwd(const struct mw_k_vocab a, float *dw, const T *dy)
{
    __shared__ int is_same[MW_BLOCK];
    size_t width = static_cast<size_t>(a.width);
    int row = static_cast<int>(blockIdx.x), at = a.token[row] - a.first;
    if (at < 0 || at >= a.n_local || is_repeat(a.token, row)) {
        return;
    }
    float *to = dw + static_cast<size_t>(at) * width;
    for (int base = row; base < a.rows; base += MW_BLOCK) {
        int mine = base + static_cast<int>(threadIdx.x);
        int same = mine < a.rows && a.token[mine] == a.token[row];
        is_same[threadIdx.x] = same;
        if (__syncthreads_or(same)) {
            for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
                float sum = to[i];
                for (int j = 0; j < MW_BLOCK && base + j < a.rows; j++) {
                    if (is_same[j]) {
                        sum += mw_load(
                            dy + static_cast<size_t>(base + j) * width + i);
                    }
                }
                to[i] = sum;
            }
        }
        __syncthreads();
    }
}

template <typename T>
__global__ void position_fwd(T *y, const T *w, size_t n, size_t period)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        mw_store(y + i, mw_load(y + i) + mw_load(w + i % period));
    }
}

template <typename T>
__global__ void position_bwd(float *dw, const T *dy, size_t n, size_t period)
{
    for (size_t i = mw_thread_first(); i < period; i += mw_thread_step()) {
        float sum = dw[i];
        for (size_t at = i; at < n; at += period) {
            sum += mw_load(dy + at);
        }
        dw[i] = sum;
    }
}

/* ---- launchers -------------------------------------------------------- */
template <typename T>
static int run_embedding_fwd(const struct mw_k_vocab *a, void *y, const void *w,
                             void *stream)
{
    MW_LAUNCH(embedding_fwd<T>, static_cast<unsigned>(a->rows), MW_BLOCK,
              stream)
    (*a, static_cast<T *>(y), static_cast<const T *>(w));
    return cudaGetLastError();
}

template <typename T>
static int run_embedding_bwd(const struct mw_k_vocab *a, float *dw,
                             const void *dy, void *stream)
{
    MW_LAUNCH(embedding_bwd<T>, static_cast<unsigned>(a->rows), MW_BLOCK,
              stream)
    (*a, dw, static_cast<const T *>(dy));
    return cudaGetLastError();
}

template <typename T>
static int run_position_fwd(void *y, const void *w, int rows, int width,
                            int seq, void *stream)
{
    size_t n = static_cast<size_t>(rows) * static_cast<size_t>(width);
    size_t period = static_cast<size_t>(seq) * static_cast<size_t>(width);
    MW_LAUNCH(position_fwd<T>, mw_grid(n), MW_BLOCK, stream)
    (static_cast<T *>(y), static_cast<const T *>(w), n, period);
    return cudaGetLastError();
}

template <typename T>
static int run_position_bwd(float *dw, const void *dy, int rows, int width,
                            int seq, void *stream)
{
    size_t n = static_cast<size_t>(rows) * static_cast<size_t>(width);
    size_t period = static_cast<size_t>(seq) * static_cast<size_t>(width);
    period = period < n ? period : n;
    MW_LAUNCH(position_bwd<T>, mw_grid(period), MW_BLOCK, stream)
    (dw, static_cast<const T *>(dy), n, period);
    return cudaGetLastError();
}

int mw_k_embedding_fwd_cuda(const struct mw_k_vocab *a, void *y, const void *w,
                            void *stream)
{
    return MW_BY_ELEM(a->elem, run_embedding_fwd<float>(a, y, w, stream),
                      run_embedding_fwd<mw_bf16>(a, y, w, stream));
}

int mw_k_embedding_bwd_cuda(const struct mw_k_vocab *a, float *dw,
                            const void *dy, void *stream)
{
    return MW_BY_ELEM(a->elem, run_embedding_bwd<float>(a, dw, dy, stream),
                      run_embedding_bwd<mw_bf16>(a, dw, dy, stream));
}

int mw_k_position_fwd_cuda(enum mw_k_elem elem, void *y, const void *w,
                           int rows, int width, int seq, void *stream)
{
    return MW_BY_ELEM(
        elem, run_position_fwd<float>(y, w, rows, width, seq, stream),
        run_position_fwd<mw_bf16>(y, w, rows, width, seq, stream));
}

int mw_k_position_bwd_cuda(enum mw_k_elem elem, float *dw, const void *dy,
                           int rows, int width, int seq, void *stream)
{
    return MW_BY_ELEM(
        elem, run_position_bwd<float>(dw, dy, rows, width, seq, stream),
        run_position_bwd<mw_bf16>(dw, dy, rows, width, seq, stream));
}
