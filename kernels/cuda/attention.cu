/*
 * Causal attention in tiles with online softmax, forward and backward, grouped
 * queries included (Dao et al., FlashAttention, 2022, algorithms 1 and 4; Dao,
 * FlashAttention-2, 2023, for the loop order).
 *
 * A block of 16 x 16 threads holds a 64 x 64 tile of scores, 4 x 4 a thread:
 * thread (ty, tx) has rows 4 ty .. 4 ty + 3 and columns tx + 16 j. Operands
 * come through shared memory in slices of 32 head dimensions:
 *
 *        k0      k0+63         S  += A B^T    tile_product: scores, dP
 *   q0   [ 4x4 | ... ]         O  += P X      tile_apply:   O, dQ
 *   ..   [ ... | ... ]         dX += P^T Y    tile_apply transposed: dK, dV
 *
 * Forward: one block a (sequence, head, query tile), keys 0 .. diagonal.
 * Backward: P is recomputed from lse; delta = rowsum(dO O) first; one kernel
 * sums dK and dV over the queries (and the heads of the group, ascending), one
 * dQ over the keys. Nothing is added by two blocks: no atomics, fixed order.
 *
 * Queries and keys may be parts of one sequence (`span`): query i sees the
 * first min(first + i + 1, keys) keys; dK, dV and if wanted dQ are then added
 * to what is there.
 *
 * float32 runs on CUDA cores. bfloat16 runs on tensor cores, its tiles passing
 * through shared memory so that the thread's share of a tile is the same;
 * probabilities and their gradients are rounded to bfloat16 for the second
 * product, as FlashAttention does. Left out: asynchronous copies, warp groups.
 */
#include "kernels/cuda/attention_tiles_int.cuh"

/* Which rows meet: all of n_seqs sequences, or parts of one. */
struct span {
    int queries, keys, first, ld_lse;
    bool adds_dq, adds_dkv;
};

/* Over the 16 threads of a row: the halves of a warp are rows of threads. */
__device__ static float row_max(float v)
{
    for (int step = SIDE / 2; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    }
    return v;
}

__device__ static float row_sum(float v)
{
    for (int step = SIDE / 2; step > 0; step /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, step);
    }
    return v;
}

__device__ static bool is_seen(const span &s, int query, int key)
{
    return key <= s.first + query && key < s.keys && query < s.queries;
}

/* Keys that the tile of queries at q0 sees, up to a tile's end. */
__device__ static int keys_end(const span &s, int q0)
{
    int end = s.first + q0 + TILE;
    return end < s.keys ? end : s.keys;
}

/* The first tile of queries that sees the keys at k0. */
__device__ static int queries_begin(const span &s, int k0)
{
    return k0 > s.first ? (k0 - s.first) / TILE * TILE : 0;
}

/* Scores to exponentials over the running maximum; returns by how much what
 * was summed before shrinks. */
__device__ static float soften(float s[PER], float *max, float *sum)
{
    float top = *max;
    for (int j = 0; j < PER; j++) {
        top = fmaxf(top, s[j]);
    }
    top = row_max(top);
    float shrink = top == -INFINITY ? 1.0f : expf(*max - top), part = 0.0f;
    for (int j = 0; j < PER; j++) {
        s[j] = s[j] == -INFINITY ? 0.0f : expf(s[j] - top);
        part += s[j];
    }
    *sum = *sum * shrink + row_sum(part);
    *max = top;
    return shrink;
}

template <typename T, int DIM>
__global__ void attention_fwd(const struct mw_k_attention_cuda a, const span sp)
{
    __shared__ tiles<T> t;
    const struct mw_k_attention h = a.shape;
    int q0 = static_cast<int>(blockIdx.x) * TILE;
    int head = static_cast<int>(blockIdx.y), first = blockIdx.z * sp.queries;
    int key = blockIdx.z * sp.keys;
    int kv = head / (h.n_heads / h.n_kv_heads), dim = h.head_dim;
    auto q = head_rows(static_cast<const T *>(a.q), first, h.ld_q, head, dim);
    auto k = head_rows(static_cast<const T *>(a.k), key, h.ld_kv, kv, dim);
    auto v = head_rows(static_cast<const T *>(a.v), key, h.ld_kv, kv, dim);
    auto out =
        head_rows(static_cast<T *>(a.out), first, h.n_heads * dim, head, dim);
    float scale = 1.0f / sqrtf(static_cast<float>(dim));
    float acc[PER][DIM / SIDE] = {}, max[PER], sum[PER] = {}, s[PER][PER];
    for (int i = 0; i < PER; i++) {
        max[i] = -INFINITY;
    }
    for (int k0 = 0; k0 < keys_end(sp, q0); k0 += TILE) {
        tile_product(s, &t, q, q0, sp.queries, k, k0, sp.keys, dim);
        for (int i = 0; i < PER; i++) {
            int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
            for (int j = 0; j < PER; j++) {
                int col = k0 + static_cast<int>(threadIdx.x) + SIDE * j;
                s[i][j] = is_seen(sp, row, col) ? s[i][j] * scale : -INFINITY;
            }
            float shrink = soften(s[i], &max[i], &sum[i]);
            for (int c = 0; c < DIM / SIDE; c++) {
                acc[i][c] *= shrink;
            }
        }
        put_tile(&t, s);
        tile_apply<T, DIM, false>(acc, &t, v, k0, sp.keys, dim);
    }
    float inv[PER];
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        inv[i] = 1.0f / sum[i];
        if (threadIdx.x == 0 && row < sp.queries) {
            a.lse[static_cast<size_t>(head) * static_cast<size_t>(sp.ld_lse) +
                  static_cast<size_t>(first + row)] = max[i] + logf(sum[i]);
        }
    }
    store_rows<T, DIM>(out, q0, sp.queries, dim, acc, inv, false);
}

/* delta[head][row] = dO . O, a warp a (row, head). */
template <typename T>
__global__ void attention_delta(const struct mw_k_attention_cuda a, int n_rows)
{
    int dim = a.shape.head_dim, n_heads = a.shape.n_heads;
    int at = static_cast<int>(blockIdx.x) * (MW_BLOCK / MW_WARP) +
             static_cast<int>(threadIdx.x) / MW_WARP;
    bool is_inside = at < n_rows * n_heads;
    int row = is_inside ? at / n_heads : 0, head = is_inside ? at % n_heads : 0;
    size_t from = (static_cast<size_t>(row) * static_cast<size_t>(n_heads) +
                   static_cast<size_t>(head)) *
                  static_cast<size_t>(dim);
    const T *out = static_cast<const T *>(a.out) + from;
    const T *dout = static_cast<const T *>(a.dout) + from;
    float sum = 0.0f;
    for (int d = threadIdx.x % MW_WARP; d < dim; d += MW_WARP) {
        sum += mw_load(out + d) * mw_load(dout + d);
    }
    sum = mw_warp_sum(sum);
    if (is_inside && threadIdx.x % MW_WARP == 0) {
        a.delta[static_cast<size_t>(head) * static_cast<size_t>(n_rows) +
                static_cast<size_t>(row)] = sum;
    }
}

/* One head and what both backward kernels need of it. */
template <typename T> struct head_view {
    rows_of<const T> q, k, v, dout;
    const float *lse, *delta;
    float scale;
    int dim;
};

template <typename T>
__device__ static head_view<T> view_head(const struct mw_k_attention_cuda &a,
                                         const span &sp, int sequence, int head)
{
    const struct mw_k_attention h = a.shape;
    int first = sequence * sp.queries, key = sequence * sp.keys;
    int kv = head / (h.n_heads / h.n_kv_heads), dim = h.head_dim;
    size_t row = static_cast<size_t>(first), at = static_cast<size_t>(head);
    size_t rows =
        static_cast<size_t>(h.n_seqs) * static_cast<size_t>(sp.queries);
    return {head_rows(static_cast<const T *>(a.q), first, h.ld_q, head, dim),
            head_rows(static_cast<const T *>(a.k), key, h.ld_kv, kv, dim),
            head_rows(static_cast<const T *>(a.v), key, h.ld_kv, kv, dim),
            head_rows(static_cast<const T *>(a.dout), first, h.n_heads * dim,
                      head, dim),
            a.lse + at * static_cast<size_t>(sp.ld_lse) + row,
            a.delta + at * rows + row,
            1.0f / sqrtf(static_cast<float>(dim)),
            dim};
}

/* p = exp(S - lse) of the tile (q0, k0); zero where not seen. */
template <typename T>
__device__ static void probabilities(float p[PER][PER], tiles<T> *t,
                                     const head_view<T> &h, const span &sp,
                                     int q0, int k0)
{
    tile_product(p, t, h.q, q0, sp.queries, h.k, k0, sp.keys, h.dim);
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        float lse = row < sp.queries ? h.lse[row] : 0.0f;
        for (int j = 0; j < PER; j++) {
            int key = k0 + static_cast<int>(threadIdx.x) + SIDE * j;
            p[i][j] =
                is_seen(sp, row, key) ? expf(p[i][j] * h.scale - lse) : 0.0f;
        }
    }
}

/* ds = P (dO V^T - delta) scale of the tile. */
template <typename T>
__device__ static void
score_gradient(float ds[PER][PER], const float p[PER][PER], tiles<T> *t,
               const head_view<T> &h, const span &sp, int q0, int k0)
{
    tile_product(ds, t, h.dout, q0, sp.queries, h.v, k0, sp.keys, h.dim);
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        float delta = row < sp.queries ? h.delta[row] : 0.0f;
        for (int j = 0; j < PER; j++) {
            ds[i][j] = p[i][j] * (ds[i][j] - delta) * h.scale;
        }
    }
}

template <typename T, int DIM>
__global__ void attention_dkv(const struct mw_k_attention_cuda a, const span sp)
{
    __shared__ tiles<T> t;
    int k0 = static_cast<int>(blockIdx.x) * TILE;
    int kv = static_cast<int>(blockIdx.y);
    int group = a.shape.n_heads / a.shape.n_kv_heads;
    float dk[PER][DIM / SIDE] = {}, dv[PER][DIM / SIDE] = {};
    float p[PER][PER], ds[PER][PER];
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        head_view<T> h =
            view_head<T>(a, sp, static_cast<int>(blockIdx.z), head);
        for (int q0 = queries_begin(sp, k0); q0 < sp.queries; q0 += TILE) {
            probabilities(p, &t, h, sp, q0, k0);
            put_tile(&t, p);
            tile_apply<T, DIM, true>(dv, &t, h.dout, q0, sp.queries, h.dim);
            score_gradient(ds, p, &t, h, sp, q0, k0);
            put_tile(&t, ds);
            tile_apply<T, DIM, true>(dk, &t, h.q, q0, sp.queries, h.dim);
        }
    }
    const float ones[PER] = {1.0f, 1.0f, 1.0f, 1.0f};
    int dim = a.shape.head_dim;
    int first = static_cast<int>(blockIdx.z) * sp.keys;
    store_rows<T, DIM>(
        head_rows(static_cast<T *>(a.dk), first, a.shape.ld_kv, kv, dim), k0,
        sp.keys, dim, dk, ones, sp.adds_dkv);
    store_rows<T, DIM>(
        head_rows(static_cast<T *>(a.dv), first, a.shape.ld_kv, kv, dim), k0,
        sp.keys, dim, dv, ones, sp.adds_dkv);
}

template <typename T, int DIM>
__global__ void attention_dq(const struct mw_k_attention_cuda a, const span sp)
{
    __shared__ tiles<T> t;
    int q0 = static_cast<int>(blockIdx.x) * TILE;
    int head = static_cast<int>(blockIdx.y);
    head_view<T> h = view_head<T>(a, sp, static_cast<int>(blockIdx.z), head);
    float dq[PER][DIM / SIDE] = {}, p[PER][PER], ds[PER][PER];
    for (int k0 = 0; k0 < keys_end(sp, q0); k0 += TILE) {
        probabilities(p, &t, h, sp, q0, k0);
        score_gradient(ds, p, &t, h, sp, q0, k0);
        put_tile(&t, ds);
        tile_apply<T, DIM, false>(dq, &t, h.k, k0, sp.keys, h.dim);
    }
    const float ones[PER] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_rows<T, DIM>(head_rows(static_cast<T *>(a.dq),
                                 static_cast<int>(blockIdx.z) * sp.queries,
                                 a.shape.ld_q, head, h.dim),
                       q0, sp.queries, h.dim, dq, ones, sp.adds_dq);
}

/* A block a (row, head): both parts' weights are read before the sum replaces
 * the first. */
template <typename T>
__global__ void attention_merge(const struct mw_k_merge m, T *out, float *lse,
                                const T *part, const float *part_lse)
{
    size_t row = blockIdx.x, head = blockIdx.y;
    size_t dim = static_cast<size_t>(m.head_dim);
    size_t at = head * static_cast<size_t>(m.ld_lse) + row;
    float a = lse[at], b = part_lse[at], top = fmaxf(a, b);
    float sum = top + logf(expf(a - top) + expf(b - top));
    float keep = expf(a - sum), add = expf(b - sum);
    size_t first = (row * static_cast<size_t>(m.n_heads) + head) * dim;
    for (size_t i = first + threadIdx.x; i < first + dim; i += blockDim.x) {
        mw_store(out + i, keep * mw_load(out + i) + add * mw_load(part + i));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        lse[at] = sum;
    }
}

/* ---- launchers -------------------------------------------------------- */
static span whole(const struct mw_k_attention_cuda *a)
{
    const struct mw_k_attention *h = &a->shape;
    return {h->seq, h->seq, 0, h->n_seqs * h->seq, false, false};
}

static span part(const struct mw_k_attention_cuda *a,
                 const struct mw_k_queries *own)
{
    return {own->n, a->shape.seq, own->first, own->ld_lse, own->adds_dq, true};
}

static dim3 tiles_grid(const struct mw_k_attention *h, int rows, int n_heads)
{
    return dim3(static_cast<unsigned>((rows + TILE - 1) / TILE),
                static_cast<unsigned>(n_heads),
                static_cast<unsigned>(h->n_seqs));
}

template <typename T, int DIM>
static int run_fwd(const struct mw_k_attention_cuda *a, const span &sp,
                   void *stream)
{
    MW_LAUNCH((attention_fwd<T, DIM>),
              tiles_grid(&a->shape, sp.queries, a->shape.n_heads),
              dim3(SIDE, SIDE), stream)
    (*a, sp);
    return cudaGetLastError();
}

template <typename T, int DIM>
static int run_bwd(const struct mw_k_attention_cuda *a, const span &sp,
                   void *stream)
{
    int n_rows = a->shape.n_seqs * sp.queries, warps = MW_BLOCK / MW_WARP;
    int blocks = (n_rows * a->shape.n_heads + warps - 1) / warps;
    MW_LAUNCH(attention_delta<T>, static_cast<unsigned>(blocks), MW_BLOCK,
              stream)
    (*a, n_rows);
    MW_LAUNCH((attention_dkv<T, DIM>),
              tiles_grid(&a->shape, sp.keys, a->shape.n_kv_heads),
              dim3(SIDE, SIDE), stream)
    (*a, sp);
    MW_LAUNCH((attention_dq<T, DIM>),
              tiles_grid(&a->shape, sp.queries, a->shape.n_heads),
              dim3(SIDE, SIDE), stream)
    (*a, sp);
    return cudaGetLastError();
}

template <typename T, int DIM>
static int run_dim(const struct mw_k_attention_cuda *a, const span &sp,
                   bool is_fwd, void *stream)
{
    return is_fwd ? run_fwd<T, DIM>(a, sp, stream)
                  : run_bwd<T, DIM>(a, sp, stream);
}

template <typename T>
static int run(const struct mw_k_attention_cuda *a, const span &sp, bool is_fwd,
               void *stream)
{
    int dim = a->shape.head_dim;
    if (dim <= 64) {
        return run_dim<T, 64>(a, sp, is_fwd, stream);
    }
    if (dim <= 128) {
        return run_dim<T, 128>(a, sp, is_fwd, stream);
    }
    if (dim <= MW_K_HEAD_DIM_MAX) {
        return run_dim<T, 256>(a, sp, is_fwd, stream);
    }
    return cudaErrorInvalidValue;
}

static int run_elem(const struct mw_k_attention_cuda *a, const span &sp,
                    bool is_fwd, void *stream)
{
    return MW_BY_ELEM(a->elem, run<float>(a, sp, is_fwd, stream),
                      run<mw_bf16>(a, sp, is_fwd, stream));
}

size_t mw_k_attention_scratch_cuda(const struct mw_k_attention *shape)
{
    return static_cast<size_t>(shape->n_heads) *
           static_cast<size_t>(shape->n_seqs) * static_cast<size_t>(shape->seq);
}

int mw_k_attention_fwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    return run_elem(a, whole(a), true, stream);
}

int mw_k_attention_bwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    return run_elem(a, whole(a), false, stream);
}

int mw_k_attention_part_fwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream)
{
    return run_elem(a, part(a, own), true, stream);
}

int mw_k_attention_part_bwd_cuda(const struct mw_k_attention_cuda *a,
                                 const struct mw_k_queries *own, void *stream)
{
    return run_elem(a, part(a, own), false, stream);
}

template <typename T>
static int run_merge(const struct mw_k_merge *m, void *out, float *lse,
                     const void *part, const float *part_lse, void *stream)
{
    MW_LAUNCH(
        attention_merge<T>,
        dim3(static_cast<unsigned>(m->rows), static_cast<unsigned>(m->n_heads)),
        dim3(MW_WARP), stream)
    (*m, static_cast<T *>(out), lse, static_cast<const T *>(part), part_lse);
    return cudaGetLastError();
}

int mw_k_attention_merge_cuda(enum mw_k_elem elem, const struct mw_k_merge *m,
                              void *out, float *lse, const void *part,
                              const float *part_lse, void *stream)
{
    return MW_BY_ELEM(elem,
                      run_merge<float>(m, out, lse, part, part_lse, stream),
                      run_merge<mw_bf16>(m, out, lse, part, part_lse, stream));
}
