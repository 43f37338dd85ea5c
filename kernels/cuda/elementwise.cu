/*
 * Element-wise work: GELU, SwiGLU, rotary, residual additions, sums of
 * buffers, AdamW, conversion. Formulas are those of the host kernels
 * (k_activation.c, k_rotary.c, k_vector.c). All are bound by memory: a thread
 * takes elements at a stride, neighbours take neighbours.
 */
#include "kernels/cuda/cuda_int.cuh"

__device__ static const float gelu_c = 0.797884561f; /* sqrt(2 / pi) */
__device__ static const float gelu_a = 0.044715f;

template <typename T> __global__ void gelu_fwd(T *y, const T *x, size_t n)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        float v = mw_load(x + i);
        float t = tanhf(gelu_c * (v + gelu_a * v * v * v));
        mw_store(y + i, 0.5f * v * (1.0f + t));
    }
}

template <typename T>
__global__ void gelu_bwd(T *dx, const T *dy, const T *x, size_t n)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        float v = mw_load(x + i);
        float t = tanhf(gelu_c * (v + gelu_a * v * v * v));
        float slope = 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * gelu_c *
                                              (1.0f + 3.0f * gelu_a * v * v);
        mw_store(dx + i, mw_load(dy + i) * slope);
    }
}

__device__ static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

template <typename T>
__global__ void swiglu_fwd(T *y, const T *x, size_t n, size_t f)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        const T *gate = x + i / f * 2 * f + i % f;
        float g = mw_load(gate);
        mw_store(y + i, g * sigmoid(g) * mw_load(gate + f));
    }
}

template <typename T>
__global__ void swiglu_bwd(T *dx, const T *dy, const T *x, size_t n, size_t f)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        size_t at = i / f * 2 * f + i % f;
        float g = mw_load(x + at), up = mw_load(x + at + f);
        float d = mw_load(dy + i), s = sigmoid(g);
        mw_store(dx + at, d * up * (s * (1.0f + g * (1.0f - s))));
        mw_store(dx + at + f, d * g * s);
    }
}

/* One pair (i, i + head_dim/2) of one head a thread. */
template <typename T>
__global__ void rotary(const struct mw_k_rotary a, T *x, size_t n)
{
    size_t half = static_cast<size_t>(a.head_dim / 2);
    size_t per_row = half * static_cast<size_t>(a.n_heads);
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        size_t row = i / per_row, head = i % per_row / half, pair = i % half;
        float position = static_cast<float>(static_cast<size_t>(a.first) +
                                            row % static_cast<size_t>(a.seq));
        float exponent =
            -2.0f * static_cast<float>(pair) / static_cast<float>(a.head_dim);
        float angle = position * powf(a.theta, exponent);
        float c = cosf(angle), s = static_cast<float>(a.sign) * sinf(angle);
        T *p = x + row * static_cast<size_t>(a.ld) + head * 2 * half + pair;
        float u = mw_load(p), v = mw_load(p + half);
        mw_store(p, u * c - v * s);
        mw_store(p + half, u * s + v * c);
    }
}

/* y, x and residual may be the same memory: each element is read and written
 * by one thread. */
template <typename T>
__global__ void add(T *y, const T *x, const T *bias, const T *residual,
                    size_t n, size_t width)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        float v = mw_load(x + i);
        if (bias) {
            v += mw_load(bias + i % width);
        }
        mw_store(y + i, v + mw_load(residual + i));
    }
}

template <typename T>
__global__ void add_rows(T *y, size_t ld_y, const T *x, size_t ld_x, size_t n,
                         size_t width)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        size_t row = i / width, col = i % width;
        T *to = y + row * ld_y + col;
        mw_store(to, mw_load(to) + mw_load(x + row * ld_x + col));
    }
}

__global__ static void accumulate(float *y, const float *x, size_t n)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        y[i] += x[i];
    }
}

template <typename T> struct reduce_inputs {
    const T *v[MW_K_REDUCE_MAX];
};

template <typename T>
__global__ void reduce_buffers(T *out, const reduce_inputs<T> in, int n_in,
                               bool is_max, size_t n)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        float sum = mw_load(in.v[0] + i);
        for (int j = 1; j < n_in; j++) {
            float v = mw_load(in.v[j] + i);
            sum = is_max ? fmaxf(sum, v) : sum + v;
        }
        mw_store(out + i, sum);
    }
}

__global__ static void adamw(const struct mw_k_adamw h, float *w, mw_bf16 *w16,
                             const float *g, float *m, float *v, size_t n)
{
    float inv1 = 1.0f / h.correct1, inv2 = 1.0f / h.correct2;
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        float mi = h.beta1 * m[i] + (1.0f - h.beta1) * g[i];
        float vi = h.beta2 * v[i] + (1.0f - h.beta2) * g[i] * g[i];
        float step = mi * inv1 / (sqrtf(vi * inv2) + h.eps);
        float wi = w[i] - h.lr * (step + h.decay * w[i]);
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
        if (w16) {
            mw_store(w16 + i, wi);
        }
    }
}

__global__ static void to_bf16(mw_bf16 *y, const float *x, size_t n)
{
    for (size_t i = mw_thread_first(); i < n; i += mw_thread_step()) {
        mw_store(y + i, x[i]);
    }
}

/* ---- launchers -------------------------------------------------------- */
template <typename T>
static int run_gelu(void *y, const void *dy, const void *x, size_t n,
                    void *stream)
{
    if (dy) {
        MW_LAUNCH(gelu_bwd<T>, mw_grid(n), MW_BLOCK, stream)
        (static_cast<T *>(y), static_cast<const T *>(dy),
         static_cast<const T *>(x), n);
    } else {
        MW_LAUNCH(gelu_fwd<T>, mw_grid(n), MW_BLOCK, stream)
        (static_cast<T *>(y), static_cast<const T *>(x), n);
    }
    return cudaGetLastError();
}

template <typename T>
static int run_swiglu(void *y, const void *dy, const void *x, int rows, int f,
                      void *stream)
{
    size_t w = static_cast<size_t>(f), n = static_cast<size_t>(rows) * w;
    if (dy) {
        MW_LAUNCH(swiglu_bwd<T>, mw_grid(n), MW_BLOCK, stream)
        (static_cast<T *>(y), static_cast<const T *>(dy),
         static_cast<const T *>(x), n, w);
    } else {
        MW_LAUNCH(swiglu_fwd<T>, mw_grid(n), MW_BLOCK, stream)
        (static_cast<T *>(y), static_cast<const T *>(x), n, w);
    }
    return cudaGetLastError();
}

template <typename T>
static int run_rotary(const struct mw_k_rotary *a, void *x, void *stream)
{
    size_t n = static_cast<size_t>(a->rows) * static_cast<size_t>(a->n_heads) *
               static_cast<size_t>(a->head_dim / 2);
    MW_LAUNCH(rotary<T>, mw_grid(n), MW_BLOCK, stream)
    (*a, static_cast<T *>(x), n);
    return cudaGetLastError();
}

template <typename T>
static int run_add(void *y, const void *x, const void *bias,
                   const void *residual, int rows, int width, void *stream)
{
    size_t w = static_cast<size_t>(width), n = static_cast<size_t>(rows) * w;
    MW_LAUNCH(add<T>, mw_grid(n), MW_BLOCK, stream)
    (static_cast<T *>(y), static_cast<const T *>(x),
     static_cast<const T *>(bias), static_cast<const T *>(residual), n, w);
    return cudaGetLastError();
}

int mw_k_gelu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, size_t n,
                       void *stream)
{
    return MW_BY_ELEM(elem, run_gelu<float>(y, nullptr, x, n, stream),
                      run_gelu<mw_bf16>(y, nullptr, x, n, stream));
}

int mw_k_gelu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                       const void *x, size_t n, void *stream)
{
    return MW_BY_ELEM(elem, run_gelu<float>(dx, dy, x, n, stream),
                      run_gelu<mw_bf16>(dx, dy, x, n, stream));
}

int mw_k_swiglu_fwd_cuda(enum mw_k_elem elem, void *y, const void *x, int rows,
                         int f, void *stream)
{
    return MW_BY_ELEM(elem, run_swiglu<float>(y, nullptr, x, rows, f, stream),
                      run_swiglu<mw_bf16>(y, nullptr, x, rows, f, stream));
}

int mw_k_swiglu_bwd_cuda(enum mw_k_elem elem, void *dx, const void *dy,
                         const void *x, int rows, int f, void *stream)
{
    return MW_BY_ELEM(elem, run_swiglu<float>(dx, dy, x, rows, f, stream),
                      run_swiglu<mw_bf16>(dx, dy, x, rows, f, stream));
}

int mw_k_rotary_cuda(const struct mw_k_rotary *a, void *x, void *stream)
{
    return MW_BY_ELEM(a->elem, run_rotary<float>(a, x, stream),
                      run_rotary<mw_bf16>(a, x, stream));
}

int mw_k_add_cuda(enum mw_k_elem elem, void *y, const void *x, const void *bias,
                  const void *residual, int rows, int width, void *stream)
{
    return MW_BY_ELEM(
        elem, run_add<float>(y, x, bias, residual, rows, width, stream),
        run_add<mw_bf16>(y, x, bias, residual, rows, width, stream));
}

template <typename T>
static int run_add_rows(void *y, size_t ld_y, const void *x, size_t ld_x,
                        int rows, int width, void *stream)
{
    size_t n = static_cast<size_t>(rows) * static_cast<size_t>(width);
    MW_LAUNCH(add_rows<T>, mw_grid(n), MW_BLOCK, stream)
    (static_cast<T *>(y), ld_y, static_cast<const T *>(x), ld_x, n,
     static_cast<size_t>(width));
    return cudaGetLastError();
}

int mw_k_add_rows_cuda(enum mw_k_elem elem, void *y, size_t ld_y, const void *x,
                       size_t ld_x, int rows, int width, void *stream)
{
    return MW_BY_ELEM(
        elem, run_add_rows<float>(y, ld_y, x, ld_x, rows, width, stream),
        run_add_rows<mw_bf16>(y, ld_y, x, ld_x, rows, width, stream));
}

int mw_k_accumulate_cuda(float *y, const float *x, size_t n, void *stream)
{
    MW_LAUNCH(accumulate, mw_grid(n), MW_BLOCK, stream)(y, x, n);
    return cudaGetLastError();
}

template <typename T>
static int run_reduce(const struct mw_k_reduce *a, void *stream)
{
    reduce_inputs<T> inputs = {};
    for (int i = 0; i < a->n_in; i++) {
        inputs.v[i] = static_cast<const T *>(a->in[i]);
    }
    MW_LAUNCH(reduce_buffers<T>, mw_grid(a->n), MW_BLOCK, stream)
    (static_cast<T *>(a->out), inputs, a->n_in, a->is_max, a->n);
    return cudaGetLastError();
}

int mw_k_reduce_cuda(const struct mw_k_reduce *a, void *stream)
{
    if (a->n_in < 1 || a->n_in > MW_K_REDUCE_MAX) {
        return cudaErrorInvalidValue;
    }
    return MW_BY_ELEM(a->elem, run_reduce<float>(a, stream),
                      run_reduce<mw_bf16>(a, stream));
}

int mw_k_adamw_cuda(const struct mw_k_adamw *h, float *w, void *w16,
                    const float *g, float *m, float *v, size_t n, void *stream)
{
    MW_LAUNCH(adamw, mw_grid(n), MW_BLOCK, stream)
    (*h, w, static_cast<mw_bf16 *>(w16), g, m, v, n);
    return cudaGetLastError();
}

int mw_k_to_bf16_cuda(void *y, const float *x, size_t n, void *stream)
{
    MW_LAUNCH(to_bf16, mw_grid(n), MW_BLOCK, stream)
    (static_cast<mw_bf16 *>(y), x, n);
    return cudaGetLastError();
}
