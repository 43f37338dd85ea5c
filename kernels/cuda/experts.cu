/*
 * Mixture of experts: the router, counting sorts of its choices, and rows on
 * their way to experts and back. Formulas: k_experts.c.
 *
 * A warp takes a row of the router, a block an expert of a sort or a row that
 * moves. The next best expert is the best one behind the last choice in the
 * order (probability down, index up), so no list of those taken is kept. A sort
 * is stable without atomics: each thread of an expert's block has a run of
 * choices of its own; it counts them, adds the counts of the threads before it,
 * and walks its run again.
 */
#include "kernels/cuda/cuda_int.cuh"

enum { ROW_WARPS = MW_BLOCK / MW_WARP };

/* ---- router ------------------------------------------------------------ */
/* The row of this warp; rows or more: none. */
__device__ static size_t warp_row()
{
    return static_cast<size_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / MW_WARP;
}

__device__ static int lane()
{
    return static_cast<int>(threadIdx.x % MW_WARP);
}

__device__ static void softmax_row(float *p, int n)
{
    float max = p[0], sum = 0.0f;
    for (int i = lane(); i < n; i += MW_WARP) {
        max = fmaxf(max, p[i]);
    }
    max = mw_warp_max(max);
    for (int i = lane(); i < n; i += MW_WARP) {
        sum += expf(p[i] - max);
    }
    sum = mw_warp_sum(sum);
    for (int i = lane(); i < n; i += MW_WARP) {
        p[i] = expf(p[i] - max) / sum;
    }
}

struct pick {
    float p;
    int i; /* -1: none yet */
};

/* The best behind `last`: an equal one with a higher index, or a lesser one.
 * Each lane sees the elements that it wrote itself. */
__device__ static struct pick next_pick(const float *p, int n, struct pick last)
{
    float best = -1.0f, at = static_cast<float>(n);
    for (int i = lane(); i < n; i += MW_WARP) {
        bool is_behind =
            last.i < 0 || p[i] < last.p || (p[i] == last.p && i > last.i);
        if (is_behind && p[i] > best) {
            best = p[i];
            at = static_cast<float>(i);
        }
    }
    float max = mw_warp_max(best);
    float first = -mw_warp_max(best == max ? -at : -static_cast<float>(n));
    return {max, static_cast<int>(first)};
}

__global__ static void route_fwd(float *all, int32_t *choice, float *weight,
                                 int rows, int n, int k)
{
    size_t row = warp_row();
    if (row >= static_cast<size_t>(rows)) {
        return;
    }
    float *p = all + row * static_cast<size_t>(n), sum = 0.0f;
    int32_t *c = choice + row * static_cast<size_t>(k);
    float *w = weight + row * static_cast<size_t>(k);
    softmax_row(p, n);
    struct pick last = {0.0f, -1};
    for (int j = 0; j < k; j++) {
        last = next_pick(p, n, last);
        sum += last.p;
        if (lane() == 0) { /* no number is above another NaN: any expert */
            c[j] = last.i < n ? last.i : j;
            w[j] = last.p;
        }
    }
    for (int j = 0; lane() == 0 && j < k; j++) {
        w[j] /= sum;
    }
}

/* What a row's gradients have in common. */
struct route_row {
    const float *dweight, *p, *aux;
    const int32_t *choice;
    int k;
    float mean, sum; /* of dweight by weight; of the chosen probabilities */
};

__device__ static float dp_at(const struct route_row *r, int i)
{
    float dp = r->aux[i];
    for (int j = 0; j < r->k; j++) {
        if (r->choice[j] == i) {
            dp += (r->dweight[j] - r->mean) / r->sum;
        }
    }
    return dp;
}

template <typename T>
__global__ void route_bwd(const struct mw_k_route_bwd a, T *dlogits)
{
    size_t row = warp_row(), n = static_cast<size_t>(a.n);
    if (row >= static_cast<size_t>(a.rows)) {
        return;
    }
    size_t at = row * static_cast<size_t>(a.k);
    struct route_row r = {
        a.dweight + at, a.p + row * n, a.aux, a.choice + at, a.k, 0.0f, 0.0f};
    float dot = 0.0f;
    for (int j = 0; j < a.k; j++) {
        r.sum += r.p[r.choice[j]];
        r.mean += r.dweight[j] * a.weight[at + static_cast<size_t>(j)];
    }
    for (int i = lane(); i < a.n; i += MW_WARP) {
        dot += dp_at(&r, i) * r.p[i];
    }
    dot = mw_warp_sum(dot);
    for (int i = lane(); i < a.n; i += MW_WARP) {
        mw_store(dlogits + row * n + i, r.p[i] * (dp_at(&r, i) - dot));
    }
}

/* ---- counting sorts ----------------------------------------------------- */
/* The sum of v over the threads before this one; over all, in *total. */
__device__ static int count_before(int v, int *total)
{
    __shared__ int part[MW_BLOCK];
    int before = 0, all = 0;
    __syncthreads(); /* an earlier count may still be read */
    part[threadIdx.x] = v;
    __syncthreads();
    for (int t = 0; t < MW_BLOCK; t++) {
        before += t < static_cast<int>(threadIdx.x) ? part[t] : 0;
        all += part[t];
    }
    *total = all;
    return before;
}

/* An expert a block. */
__global__ static void route_sort(const struct mw_k_sort a)
{
    int own = static_cast<int>(blockIdx.x), n_lower = 0, n_own = 0;
    int run = (a.n_sent + MW_BLOCK - 1) / MW_BLOCK, lower, total;
    int begin = static_cast<int>(threadIdx.x) * run;
    int end = begin + run < a.n_sent ? begin + run : a.n_sent;
    for (int i = begin; i < end; i++) {
        n_lower += a.choice[i] < own;
        n_own += a.choice[i] == own;
    }
    count_before(n_lower, &lower);
    int at = lower + count_before(n_own, &total);
    for (int i = begin; i < end; i++) {
        if (a.choice[i] == own) {
            a.place[i] = at;
            a.from[at++] = i / a.k;
        }
    }
    if (threadIdx.x == 0) {
        a.leaving[own] = total;
    }
}

/* Block number src * n_local + expert takes the rows of that expert that came
 * from that rank. */
__global__ static void route_order(const struct mw_k_order a)
{
    int block = static_cast<int>(blockIdx.x), n = a.n_sources * a.n_local;
    int own = block % a.n_local, n_before = 0, n_lower = 0, at, first;
    for (int i = threadIdx.x; i < n; i += MW_BLOCK) {
        int rows = static_cast<int>(a.arrived[i]), e = i % a.n_local;
        n_before += i < block ? rows : 0;
        n_lower += e < own || (e == own && i < block) ? rows : 0;
    }
    count_before(n_before, &at);
    count_before(n_lower, &first);
    int rows = static_cast<int>(a.arrived[block]);
    for (int r = threadIdx.x; r < rows; r += MW_BLOCK) {
        a.home[at + r] = first + r;
        a.order[first + r] = at + r;
    }
    if (threadIdx.x == 0 && block == own) { /* from the first rank */
        a.first[own] = first;
    }
    if (threadIdx.x == 0 && block == n - 1) {
        a.first[a.n_local] = first + rows;
    }
}

/* ---- rows -----------------------------------------------------------------
 */
struct alignas(16) vec16 {
    unsigned v[4];
};

/* Rows of n pieces of type V. */
template <typename V>
__global__ void rows_gather(V *dst, const V *src, const int32_t *from, int n)
{
    const V *s =
        src + static_cast<size_t>(from[blockIdx.x]) * static_cast<size_t>(n);
    V *d = dst + static_cast<size_t>(blockIdx.x) * static_cast<size_t>(n);
    for (int i = threadIdx.x; i < n; i += MW_BLOCK) {
        d[i] = s[i];
    }
}

/* y may be the residual: a thread reads an element before it writes it. */
template <typename T>
__global__ void rows_combine(const struct mw_k_combine a, T *y, const T *x,
                             const T *residual)
{
    size_t width = static_cast<size_t>(a.width), at = blockIdx.x * width;
    size_t first = blockIdx.x * static_cast<size_t>(a.k);
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float sum = residual ? mw_load(residual + at + i) : 0.0f;
        for (int j = 0; j < a.k; j++) {
            size_t row = static_cast<size_t>(a.place[first + j]);
            float v = mw_load(x + row * width + i);
            sum += (a.weight ? a.weight[first + j] : 1.0f) * v;
        }
        mw_store(y + at + i, sum);
    }
}

/* A choice a block. */
template <typename T>
__global__ void rows_combine_bwd(const struct mw_k_combine a, T *dx,
                                 float *dweight, const T *dy, const T *x)
{
    size_t width = static_cast<size_t>(a.width);
    size_t g = blockIdx.x / static_cast<unsigned>(a.k) * width;
    size_t at = static_cast<size_t>(a.place[blockIdx.x]) * width;
    float dot = 0.0f, w = a.weight[blockIdx.x];
    for (int i = threadIdx.x; i < a.width; i += MW_BLOCK) {
        float d = mw_load(dy + g + i);
        dot += d * mw_load(x + at + i);
        mw_store(dx + at + i, w * d);
    }
    dot = mw_block_sum(dot);
    if (threadIdx.x == 0) {
        dweight[blockIdx.x] = dot;
    }
}

__device__ static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

template <typename T>
__global__ void rows_gate(T *y, const T *x, const float *logit, int width)
{
    size_t at = blockIdx.x * static_cast<size_t>(width);
    float p = sigmoid(logit[blockIdx.x]);
    for (int i = threadIdx.x; i < width; i += MW_BLOCK) {
        mw_store(y + at + i, mw_load(y + at + i) + p * mw_load(x + at + i));
    }
}

template <typename T>
__global__ void rows_gate_bwd(T *dx, T *dlogit, const T *dy, const T *x,
                              const float *logit, int width)
{
    size_t at = blockIdx.x * static_cast<size_t>(width);
    float p = sigmoid(logit[blockIdx.x]), dot = 0.0f;
    for (int i = threadIdx.x; i < width; i += MW_BLOCK) {
        float d = mw_load(dy + at + i);
        dot += d * mw_load(x + at + i);
        mw_store(dx + at + i, p * d);
    }
    dot = mw_block_sum(dot);
    if (threadIdx.x == 0) {
        mw_store(dlogit + blockIdx.x, p * (1.0f - p) * dot);
    }
}

/* ---- launchers -------------------------------------------------------- */
static unsigned warp_blocks(int rows)
{
    return static_cast<unsigned>((rows + ROW_WARPS - 1) / ROW_WARPS);
}

int mw_k_route_fwd_cuda(float *p, int32_t *choice, float *weight, int rows,
                        int n, int k, void *stream)
{
    MW_LAUNCH(route_fwd, warp_blocks(rows), MW_BLOCK, stream)
    (p, choice, weight, rows, n, k);
    return cudaGetLastError();
}

template <typename T>
static int run_route_bwd(const struct mw_k_route_bwd *a, void *dlogits,
                         void *stream)
{
    MW_LAUNCH(route_bwd<T>, warp_blocks(a->rows), MW_BLOCK, stream)
    (*a, static_cast<T *>(dlogits));
    return cudaGetLastError();
}

int mw_k_route_bwd_cuda(const struct mw_k_route_bwd *a, void *dlogits,
                        void *stream)
{
    return MW_BY_ELEM(a->elem, run_route_bwd<float>(a, dlogits, stream),
                      run_route_bwd<mw_bf16>(a, dlogits, stream));
}

int mw_k_route_sort_cuda(const struct mw_k_sort *a, void *stream)
{
    MW_LAUNCH(route_sort, static_cast<unsigned>(a->n), MW_BLOCK, stream)(*a);
    return cudaGetLastError();
}

int mw_k_route_order_cuda(const struct mw_k_order *a, void *stream)
{
    unsigned blocks = static_cast<unsigned>(a->n_sources * a->n_local);
    MW_LAUNCH(route_order, blocks, MW_BLOCK, stream)(*a);
    return cudaGetLastError();
}

template <typename V>
static int run_gather(void *dst, const void *src, const int32_t *from, int rows,
                      size_t bytes, void *stream)
{
    if (rows > 0) {
        MW_LAUNCH(rows_gather<V>, static_cast<unsigned>(rows), MW_BLOCK, stream)
        (static_cast<V *>(dst), static_cast<const V *>(src), from,
         static_cast<int>(bytes / sizeof(V)));
    }
    return cudaGetLastError();
}

/* A copy, by the widest piece that rows and addresses are multiples of. */
int mw_k_rows_gather_cuda(enum mw_k_elem elem, void *dst, const void *src,
                          const int32_t *from, int rows, int width,
                          void *stream)
{
    size_t bytes = static_cast<size_t>(width) * (elem == MW_K_F32 ? 4 : 2);
    uintptr_t all = reinterpret_cast<uintptr_t>(dst) |
                    reinterpret_cast<uintptr_t>(src) | bytes;
    if (all % sizeof(vec16) == 0) {
        return run_gather<vec16>(dst, src, from, rows, bytes, stream);
    }
    return MW_BY_ELEM(elem,
                      run_gather<float>(dst, src, from, rows, bytes, stream),
                      run_gather<mw_bf16>(dst, src, from, rows, bytes, stream));
}

template <typename T>
static int run_combine(const struct mw_k_combine *a, void *y, const void *x,
                       const void *residual, void *stream)
{
    MW_LAUNCH(rows_combine<T>, static_cast<unsigned>(a->rows), MW_BLOCK, stream)
    (*a, static_cast<T *>(y), static_cast<const T *>(x),
     static_cast<const T *>(residual));
    return cudaGetLastError();
}

int mw_k_rows_combine_cuda(const struct mw_k_combine *a, void *y, const void *x,
                           const void *residual, void *stream)
{
    return MW_BY_ELEM(a->elem, run_combine<float>(a, y, x, residual, stream),
                      run_combine<mw_bf16>(a, y, x, residual, stream));
}

template <typename T>
static int run_combine_bwd(const struct mw_k_combine *a, void *dx,
                           float *dweight, const void *dy, const void *x,
                           void *stream)
{
    MW_LAUNCH(rows_combine_bwd<T>, static_cast<unsigned>(a->rows * a->k),
              MW_BLOCK, stream)
    (*a, static_cast<T *>(dx), dweight, static_cast<const T *>(dy),
     static_cast<const T *>(x));
    return cudaGetLastError();
}

int mw_k_rows_combine_bwd_cuda(const struct mw_k_combine *a, void *dx,
                               float *dweight, const void *dy, const void *x,
                               void *stream)
{
    return MW_BY_ELEM(a->elem,
                      run_combine_bwd<float>(a, dx, dweight, dy, x, stream),
                      run_combine_bwd<mw_bf16>(a, dx, dweight, dy, x, stream));
}

template <typename T>
static int run_gate(void *y, const void *x, const float *logit, int rows,
                    int width, void *stream)
{
    MW_LAUNCH(rows_gate<T>, static_cast<unsigned>(rows), MW_BLOCK, stream)
    (static_cast<T *>(y), static_cast<const T *>(x), logit, width);
    return cudaGetLastError();
}

int mw_k_rows_gate_cuda(enum mw_k_elem elem, void *y, const void *x,
                        const float *logit, int rows, int width, void *stream)
{
    return MW_BY_ELEM(elem, run_gate<float>(y, x, logit, rows, width, stream),
                      run_gate<mw_bf16>(y, x, logit, rows, width, stream));
}

template <typename T>
static int run_gate_bwd(const struct mw_k_gate_bwd *a, void *stream)
{
    MW_LAUNCH(rows_gate_bwd<T>, static_cast<unsigned>(a->rows), MW_BLOCK,
              stream)
    (static_cast<T *>(a->dx), static_cast<T *>(a->dlogit),
     static_cast<const T *>(a->dy), static_cast<const T *>(a->x), a->logit,
     a->width);
    return cudaGetLastError();
}

int mw_k_rows_gate_bwd_cuda(const struct mw_k_gate_bwd *a, void *stream)
{
    return MW_BY_ELEM(a->elem, run_gate_bwd<float>(a, stream),
                      run_gate_bwd<mw_bf16>(a, stream));
}
