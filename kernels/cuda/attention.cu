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
 * float32 runs on CUDA cores. bfloat16 runs on tensor cores, its tiles passing
 * through shared memory so that the thread's share of a tile is the same;
 * probabilities and their gradients are rounded to bfloat16 for the second
 * product, as FlashAttention does. Left out: asynchronous copies, warp groups.
 */
#include "kernels/cuda/cuda_int.cuh"
#include "kernels/cuda/mma_int.cuh"

enum { TILE = 64, SLICE = 32, SIDE = 16, PER = TILE / SIDE };

/* Shared memory of a block. float32, 33.5 KiB: one column more than needed, so
 * that a column of a tile lies in different banks. */
template <typename T> struct tiles {
    float a[TILE][SLICE + 1], b[TILE][SLICE + 1];
    float p[TILE][TILE + 1];
};

/* bfloat16, 36 KiB: `sum` is what tensor cores have added. */
template <> struct tiles<mw_bf16> {
    alignas(32) mw_bf16 a[TILE][SLICE + 8];
    alignas(32) mw_bf16 b[TILE][SLICE + 8];
    alignas(32) mw_bf16 p[TILE][TILE + 8];
    alignas(32) float sum[TILE][TILE + 4];
};

/* One head of one sequence: rows of a matrix, `ld` elements apart. */
template <typename T> struct rows_of {
    T *base;
    size_t ld;
};

template <typename T>
__device__ static rows_of<T> head_rows(T *base, int row, int ld, int head,
                                       int dim)
{
    size_t at = static_cast<size_t>(row) * static_cast<size_t>(ld) +
                static_cast<size_t>(head) * static_cast<size_t>(dim);
    return {base + at, static_cast<size_t>(ld)};
}

__device__ inline void copy_element(float *to, const float *from)
{
    *to = from ? *from : 0.0f;
}

__device__ inline void copy_element(mw_bf16 *to, const mw_bf16 *from)
{
    to->bits = from ? from->bits : static_cast<uint16_t>(0);
}

/* to = rows [row0, row0 + 64) x dims [d0, d0 + 32); zero outside. */
template <typename T, int LD>
__device__ static void load_slice(T (*to)[LD], rows_of<const T> m, int row0,
                                  int n_rows, int d0, int dim)
{
    int tid = threadIdx.y * SIDE + threadIdx.x;
    for (int i = tid; i < TILE * SLICE; i += SIDE * SIDE) {
        int r = i / SLICE, d = i % SLICE;
        bool is_inside = row0 + r < n_rows && d0 + d < dim;
        copy_element(&to[r][d],
                     is_inside ? m.base + static_cast<size_t>(row0 + r) * m.ld +
                                     d0 + d
                               : nullptr);
    }
}

/* s = A[a0 ..] B[b0 ..]^T over the head dimension. */
__device__ static void tile_product(float s[PER][PER], tiles<float> *t,
                                    rows_of<const float> a, int a0,
                                    rows_of<const float> b, int b0, int n_rows,
                                    int dim)
{
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < PER; j++) {
            s[i][j] = 0.0f;
        }
    }
    for (int d0 = 0; d0 < dim; d0 += SLICE) {
        __syncthreads();
        load_slice(t->a, a, a0, n_rows, d0, dim);
        load_slice(t->b, b, b0, n_rows, d0, dim);
        __syncthreads();
        for (int d = 0; d < SLICE; d++) {
            float x[PER], y[PER];
            for (int i = 0; i < PER; i++) {
                x[i] = t->a[PER * threadIdx.y + i][d];
                y[i] = t->b[threadIdx.x + SIDE * i][d];
            }
            for (int i = 0; i < PER; i++) {
                for (int j = 0; j < PER; j++) {
                    s[i][j] += x[i] * y[j];
                }
            }
        }
    }
}

__device__ static int warp_of_block()
{
    return (static_cast<int>(threadIdx.y) * SIDE +
            static_cast<int>(threadIdx.x)) /
           MW_WARP;
}

/* A warp has two of the 16 squares of a tile: one row of squares, two columns
 * of them. */
__device__ static void tile_product(float s[PER][PER], tiles<mw_bf16> *t,
                                    rows_of<const mw_bf16> a, int a0,
                                    rows_of<const mw_bf16> b, int b0,
                                    int n_rows, int dim)
{
    int row = warp_of_block() / 2 * MW_MMA;
    int col = warp_of_block() % 2 * 2 * MW_MMA;
    mw_mma_sum sum[2];
    mw_mma_zero(&sum[0]);
    mw_mma_zero(&sum[1]);
    for (int d0 = 0; d0 < dim; d0 += SLICE) {
        __syncthreads();
        load_slice(t->a, a, a0, n_rows, d0, dim);
        load_slice(t->b, b, b0, n_rows, d0, dim);
        __syncthreads();
        for (int d = 0; d < SLICE; d += MW_MMA) {
            for (int i = 0; i < 2; i++) {
                mw_mma<false, true>(&sum[i], &t->a[row][d], SLICE + 8,
                                    &t->b[col + i * MW_MMA][d], SLICE + 8);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        mw_mma_store(&t->sum[row][col + i * MW_MMA], &sum[i], TILE + 4);
    }
    __syncthreads();
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < PER; j++) {
            s[i][j] = t->sum[PER * threadIdx.y + i][threadIdx.x + SIDE * j];
        }
    }
}

/* Between two calls lies a tile_product, whose barriers end the reads of the
 * tile before; tile_apply's first barrier ends the writes. */
template <typename T>
__device__ static void put_tile(tiles<T> *t, const float s[PER][PER])
{
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < PER; j++) {
            mw_store(&t->p[PER * threadIdx.y + i][threadIdx.x + SIDE * j],
                     s[i][j]);
        }
    }
}

/* acc[64][32] of a slice += P X, or P^T X: X is in t->b; a thread has rows
 * 4 ty + i and dims tx, tx + 16. */
template <bool IS_TRANSPOSED>
__device__ static void apply_slice(float acc[PER][2], tiles<float> *t)
{
    for (int k = 0; k < TILE; k++) {
        float u = t->b[k][threadIdx.x], v = t->b[k][threadIdx.x + SIDE];
        for (int i = 0; i < PER; i++) {
            int row = PER * threadIdx.y + i;
            float p = IS_TRANSPOSED ? t->p[k][row] : t->p[row][k];
            acc[i][0] += p * u;
            acc[i][1] += p * v;
        }
    }
}

/* A warp has one of the 4 x 2 squares. */
template <bool IS_TRANSPOSED>
__device__ static void apply_slice(float acc[PER][2], tiles<mw_bf16> *t)
{
    int row = warp_of_block() / 2 * MW_MMA, col = warp_of_block() % 2 * MW_MMA;
    mw_mma_sum sum;
    mw_mma_zero(&sum);
    for (int k = 0; k < TILE; k += MW_MMA) {
        mw_mma<IS_TRANSPOSED, false>(
            &sum, IS_TRANSPOSED ? &t->p[k][row] : &t->p[row][k], TILE + 8,
            &t->b[k][col], SLICE + 8);
    }
    mw_mma_store(&t->sum[row][col], &sum, TILE + 4);
    __syncthreads();
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < 2; j++) {
            acc[i][j] += t->sum[PER * threadIdx.y + i][threadIdx.x + SIDE * j];
        }
    }
}

/* acc[64][DIM] += P X, or P^T X: rows of X are [x0, x0 + 64); a thread has
 * dims tx + 16 c. */
template <typename T, int DIM, bool IS_TRANSPOSED>
__device__ static void tile_apply(float acc[PER][DIM / SIDE], tiles<T> *t,
                                  rows_of<const T> x, int x0, int n_rows,
                                  int dim)
{
#pragma unroll
    for (int slice = 0; slice < DIM / SLICE; slice++) {
        if (slice * SLICE >= dim) {
            break;
        }
        __syncthreads();
        load_slice(t->b, x, x0, n_rows, slice * SLICE, dim);
        __syncthreads();
        float part[PER][2];
        for (int i = 0; i < PER; i++) {
            part[i][0] = acc[i][2 * slice];
            part[i][1] = acc[i][2 * slice + 1];
        }
        apply_slice<IS_TRANSPOSED>(part, t);
        for (int i = 0; i < PER; i++) {
            acc[i][2 * slice] = part[i][0];
            acc[i][2 * slice + 1] = part[i][1];
        }
    }
}

/* Writes `scale[i]` times the accumulator of each row. */
template <typename T, int DIM>
__device__ static void store_rows(rows_of<T> m, int row0, int n_rows, int dim,
                                  float acc[PER][DIM / SIDE],
                                  const float scale[PER])
{
    for (int i = 0; i < PER; i++) {
        int row = row0 + PER * static_cast<int>(threadIdx.y) + i;
        for (int c = 0; c < DIM / SIDE && row < n_rows; c++) {
            int d = static_cast<int>(threadIdx.x) + SIDE * c;
            if (d < dim) {
                mw_store(m.base + static_cast<size_t>(row) * m.ld + d,
                         acc[i][c] * scale[i]);
            }
        }
    }
}

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

__device__ static bool is_seen(int query, int key, int seq)
{
    return key <= query && query < seq;
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
__global__ void attention_fwd(const struct mw_k_attention_cuda a)
{
    __shared__ tiles<T> t;
    const struct mw_k_attention h = a.shape;
    int q0 = static_cast<int>(blockIdx.x) * TILE;
    int head = static_cast<int>(blockIdx.y), first = blockIdx.z * h.seq;
    int kv = head / (h.n_heads / h.n_kv_heads), dim = h.head_dim;
    auto q = head_rows(static_cast<const T *>(a.q), first, h.ld_q, head, dim);
    auto k = head_rows(static_cast<const T *>(a.k), first, h.ld_kv, kv, dim);
    auto v = head_rows(static_cast<const T *>(a.v), first, h.ld_kv, kv, dim);
    auto out =
        head_rows(static_cast<T *>(a.out), first, h.n_heads * dim, head, dim);
    float scale = 1.0f / sqrtf(static_cast<float>(dim));
    float acc[PER][DIM / SIDE] = {}, max[PER], sum[PER] = {}, s[PER][PER];
    for (int i = 0; i < PER; i++) {
        max[i] = -INFINITY;
    }
    for (int k0 = 0; k0 <= q0; k0 += TILE) {
        tile_product(s, &t, q, q0, k, k0, h.seq, dim);
        for (int i = 0; i < PER; i++) {
            int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
            for (int j = 0; j < PER; j++) {
                int key = k0 + static_cast<int>(threadIdx.x) + SIDE * j;
                s[i][j] =
                    is_seen(row, key, h.seq) ? s[i][j] * scale : -INFINITY;
            }
            float shrink = soften(s[i], &max[i], &sum[i]);
            for (int c = 0; c < DIM / SIDE; c++) {
                acc[i][c] *= shrink;
            }
        }
        put_tile(&t, s);
        tile_apply<T, DIM, false>(acc, &t, v, k0, h.seq, dim);
    }
    size_t n_rows = static_cast<size_t>(h.n_seqs) * static_cast<size_t>(h.seq);
    float inv[PER];
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        inv[i] = 1.0f / sum[i];
        if (threadIdx.x == 0 && row < h.seq) {
            a.lse[static_cast<size_t>(head) * n_rows +
                  static_cast<size_t>(first + row)] = max[i] + logf(sum[i]);
        }
    }
    store_rows<T, DIM>(out, q0, h.seq, dim, acc, inv);
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
    int seq, dim;
};

template <typename T>
__device__ static head_view<T> view_head(const struct mw_k_attention_cuda &a,
                                         int sequence, int head)
{
    const struct mw_k_attention h = a.shape;
    int first = sequence * h.seq, kv = head / (h.n_heads / h.n_kv_heads);
    int dim = h.head_dim;
    size_t at = static_cast<size_t>(head) * static_cast<size_t>(h.n_seqs) *
                    static_cast<size_t>(h.seq) +
                static_cast<size_t>(first);
    return {head_rows(static_cast<const T *>(a.q), first, h.ld_q, head, dim),
            head_rows(static_cast<const T *>(a.k), first, h.ld_kv, kv, dim),
            head_rows(static_cast<const T *>(a.v), first, h.ld_kv, kv, dim),
            head_rows(static_cast<const T *>(a.dout), first, h.n_heads * dim,
                      head, dim),
            a.lse + at,
            a.delta + at,
            1.0f / sqrtf(static_cast<float>(dim)),
            h.seq,
            dim};
}

/* p = exp(S - lse) of the tile (q0, k0); zero where not seen. */
template <typename T>
__device__ static void probabilities(float p[PER][PER], tiles<T> *t,
                                     const head_view<T> &h, int q0, int k0)
{
    tile_product(p, t, h.q, q0, h.k, k0, h.seq, h.dim);
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        float lse = row < h.seq ? h.lse[row] : 0.0f;
        for (int j = 0; j < PER; j++) {
            int key = k0 + static_cast<int>(threadIdx.x) + SIDE * j;
            p[i][j] =
                is_seen(row, key, h.seq) ? expf(p[i][j] * h.scale - lse) : 0.0f;
        }
    }
}

/* ds = P (dO V^T - delta) scale of the tile. */
template <typename T>
__device__ static void score_gradient(float ds[PER][PER],
                                      const float p[PER][PER], tiles<T> *t,
                                      const head_view<T> &h, int q0, int k0)
{
    tile_product(ds, t, h.dout, q0, h.v, k0, h.seq, h.dim);
    for (int i = 0; i < PER; i++) {
        int row = q0 + PER * static_cast<int>(threadIdx.y) + i;
        float delta = row < h.seq ? h.delta[row] : 0.0f;
        for (int j = 0; j < PER; j++) {
            ds[i][j] = p[i][j] * (ds[i][j] - delta) * h.scale;
        }
    }
}

template <typename T, int DIM>
__global__ void attention_dkv(const struct mw_k_attention_cuda a)
{
    __shared__ tiles<T> t;
    int k0 = static_cast<int>(blockIdx.x) * TILE;
    int kv = static_cast<int>(blockIdx.y);
    int group = a.shape.n_heads / a.shape.n_kv_heads;
    float dk[PER][DIM / SIDE] = {}, dv[PER][DIM / SIDE] = {};
    float p[PER][PER], ds[PER][PER];
    for (int head = kv * group; head < (kv + 1) * group; head++) {
        head_view<T> h = view_head<T>(a, static_cast<int>(blockIdx.z), head);
        for (int q0 = k0; q0 < h.seq; q0 += TILE) {
            probabilities(p, &t, h, q0, k0);
            put_tile(&t, p);
            tile_apply<T, DIM, true>(dv, &t, h.dout, q0, h.seq, h.dim);
            score_gradient(ds, p, &t, h, q0, k0);
            put_tile(&t, ds);
            tile_apply<T, DIM, true>(dk, &t, h.q, q0, h.seq, h.dim);
        }
    }
    const float ones[PER] = {1.0f, 1.0f, 1.0f, 1.0f};
    int seq = a.shape.seq, dim = a.shape.head_dim;
    int first = static_cast<int>(blockIdx.z) * seq;
    store_rows<T, DIM>(
        head_rows(static_cast<T *>(a.dk), first, a.shape.ld_kv, kv, dim), k0,
        seq, dim, dk, ones);
    store_rows<T, DIM>(
        head_rows(static_cast<T *>(a.dv), first, a.shape.ld_kv, kv, dim), k0,
        seq, dim, dv, ones);
}

template <typename T, int DIM>
__global__ void attention_dq(const struct mw_k_attention_cuda a)
{
    __shared__ tiles<T> t;
    int q0 = static_cast<int>(blockIdx.x) * TILE;
    int head = static_cast<int>(blockIdx.y);
    head_view<T> h = view_head<T>(a, static_cast<int>(blockIdx.z), head);
    float dq[PER][DIM / SIDE] = {}, p[PER][PER], ds[PER][PER];
    for (int k0 = 0; k0 <= q0; k0 += TILE) {
        probabilities(p, &t, h, q0, k0);
        score_gradient(ds, p, &t, h, q0, k0);
        put_tile(&t, ds);
        tile_apply<T, DIM, false>(dq, &t, h.k, k0, h.seq, h.dim);
    }
    const float ones[PER] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_rows<T, DIM>(head_rows(static_cast<T *>(a.dq),
                                 static_cast<int>(blockIdx.z) * h.seq,
                                 a.shape.ld_q, head, h.dim),
                       q0, h.seq, h.dim, dq, ones);
}

/* ---- launchers -------------------------------------------------------- */
static dim3 tiles_grid(const struct mw_k_attention *h, int n_heads)
{
    return dim3(static_cast<unsigned>((h->seq + TILE - 1) / TILE),
                static_cast<unsigned>(n_heads),
                static_cast<unsigned>(h->n_seqs));
}

template <typename T, int DIM>
static int run_fwd(const struct mw_k_attention_cuda *a, void *stream)
{
    MW_LAUNCH((attention_fwd<T, DIM>), tiles_grid(&a->shape, a->shape.n_heads),
              dim3(SIDE, SIDE), stream)
    (*a);
    return cudaGetLastError();
}

template <typename T, int DIM>
static int run_bwd(const struct mw_k_attention_cuda *a, void *stream)
{
    int n_rows = a->shape.n_seqs * a->shape.seq, warps = MW_BLOCK / MW_WARP;
    int blocks = (n_rows * a->shape.n_heads + warps - 1) / warps;
    MW_LAUNCH(attention_delta<T>, static_cast<unsigned>(blocks), MW_BLOCK,
              stream)
    (*a, n_rows);
    MW_LAUNCH((attention_dkv<T, DIM>),
              tiles_grid(&a->shape, a->shape.n_kv_heads), dim3(SIDE, SIDE),
              stream)
    (*a);
    MW_LAUNCH((attention_dq<T, DIM>), tiles_grid(&a->shape, a->shape.n_heads),
              dim3(SIDE, SIDE), stream)
    (*a);
    return cudaGetLastError();
}

template <typename T>
static int run(const struct mw_k_attention_cuda *a, bool is_fwd, void *stream)
{
    int dim = a->shape.head_dim;
    if (dim <= 64) {
        return is_fwd ? run_fwd<T, 64>(a, stream) : run_bwd<T, 64>(a, stream);
    }
    if (dim <= 128) {
        return is_fwd ? run_fwd<T, 128>(a, stream) : run_bwd<T, 128>(a, stream);
    }
    if (dim <= MW_K_HEAD_DIM_MAX) {
        return is_fwd ? run_fwd<T, 256>(a, stream) : run_bwd<T, 256>(a, stream);
    }
    return cudaErrorInvalidValue;
}

size_t mw_k_attention_scratch_cuda(const struct mw_k_attention *shape)
{
    return static_cast<size_t>(shape->n_heads) *
           static_cast<size_t>(shape->n_seqs) * static_cast<size_t>(shape->seq);
}

int mw_k_attention_fwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    return MW_BY_ELEM(a->elem, run<float>(a, true, stream),
                      run<mw_bf16>(a, true, stream));
}

int mw_k_attention_bwd_cuda(const struct mw_k_attention_cuda *a, void *stream)
{
    return MW_BY_ELEM(a->elem, run<float>(a, false, stream),
                      run<mw_bf16>(a, false, stream));
}
