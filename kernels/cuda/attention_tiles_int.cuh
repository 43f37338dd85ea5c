/*
 * Tiles of attention (attention.cu): 64 x 64 scores of a block of 16 x 16
 * threads, 4 x 4 a thread; operands come through shared memory in slices of 32
 * head dimensions. float32 on CUDA cores, bfloat16 on tensor cores.
 */
#ifndef MW_KERNELS_ATTENTION_TILES_INT_CUH
#define MW_KERNELS_ATTENTION_TILES_INT_CUH

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
                                    rows_of<const float> a, int a0, int n_a,
                                    rows_of<const float> b, int b0, int n_b,
                                    int dim)
{
    for (int i = 0; i < PER; i++) {
        for (int j = 0; j < PER; j++) {
            s[i][j] = 0.0f;
        }
    }
    for (int d0 = 0; d0 < dim; d0 += SLICE) {
        __syncthreads();
        load_slice(t->a, a, a0, n_a, d0, dim);
        load_slice(t->b, b, b0, n_b, d0, dim);
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
                                    rows_of<const mw_bf16> a, int a0, int n_a,
                                    rows_of<const mw_bf16> b, int b0, int n_b,
                                    int dim)
{
    int row = warp_of_block() / 2 * MW_MMA;
    int col = warp_of_block() % 2 * 2 * MW_MMA;
    mw_mma_sum sum[2];
    mw_mma_zero(&sum[0]);
    mw_mma_zero(&sum[1]);
    for (int d0 = 0; d0 < dim; d0 += SLICE) {
        __syncthreads();
        load_slice(t->a, a, a0, n_a, d0, dim);
        load_slice(t->b, b, b0, n_b, d0, dim);
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

/* Writes `scale[i]` times the accumulator of each row, or adds it. */
template <typename T, int DIM>
__device__ static void store_rows(rows_of<T> m, int row0, int n_rows, int dim,
                                  float acc[PER][DIM / SIDE],
                                  const float scale[PER], bool adds)
{
    for (int i = 0; i < PER; i++) {
        int row = row0 + PER * static_cast<int>(threadIdx.y) + i;
        for (int c = 0; c < DIM / SIDE && row < n_rows; c++) {
            int d = static_cast<int>(threadIdx.x) + SIDE * c;
            if (d < dim) {
                T *to = m.base + static_cast<size_t>(row) * m.ld + d;
                float old = adds ? mw_load(to) : 0.0f;
                mw_store(to, adds ? old + acc[i][c] * scale[i]
                                  : acc[i][c] * scale[i]);
            }
        }
    }
}

#endif
