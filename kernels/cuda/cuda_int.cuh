/*
 * What the kernels share: storage types, sums over a block, launching.
 *
 * bfloat16 is the upper half of a float32 (Google, "bfloat16: the secret to
 * high performance on Cloud TPUs", 2019); conversion rounds to nearest, ties
 * to even, and keeps NaN. The type is our own so that no header but the
 * runtime's is needed, and so that the same sources compile for the thread
 * emulator of the tests (MW_CUDA_EMULATE), which runs them without a GPU.
 *
 * A sum over a block: each thread sums its elements at stride blockDim.x, a
 * warp adds by butterfly shuffles, warps are added in ascending order. The
 * order depends on width and block size only.
 */
#ifndef MW_KERNELS_CUDA_INT_CUH
#define MW_KERNELS_CUDA_INT_CUH

#include "kernels/cuda/cuda_kernels.h"

#ifdef MW_CUDA_EMULATE
#include "tests/shim/cuda_emulate.h"
#else
#include <cuda_runtime.h>
#define MW_LAUNCH(kernel, grid, block, stream)                                 \
    kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>
#endif

enum { MW_BLOCK = 256, MW_WARP = 32, MW_GRID_MAX = 4096 };

struct mw_bf16 {
    uint16_t bits;
};

__device__ inline float mw_load(const float *p)
{
    return *p;
}

__device__ inline float mw_load(const mw_bf16 *p)
{
    return __uint_as_float(static_cast<unsigned>(p->bits) << 16);
}

__device__ inline void mw_store(float *p, float v)
{
    *p = v;
}

__device__ inline void mw_store(mw_bf16 *p, float v)
{
    unsigned u = __float_as_uint(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        u |= 0x400000u; /* a NaN stays one when its low half is cut off */
    } else {
        u += 0x7fffu + ((u >> 16) & 1u);
    }
    p->bits = static_cast<uint16_t>(u >> 16);
}

__device__ inline float mw_warp_sum(float v)
{
    for (int step = MW_WARP / 2; step > 0; step /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, step);
    }
    return v;
}

__device__ inline float mw_warp_max(float v)
{
    for (int step = MW_WARP / 2; step > 0; step /= 2) {
        v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    }
    return v;
}

/* The sum of v over a block of MW_BLOCK threads, in every thread. */
__device__ inline float mw_block_sum(float v)
{
    __shared__ float part[MW_BLOCK / MW_WARP];
    v = mw_warp_sum(v);
    __syncthreads(); /* an earlier sum may still be read */
    if (threadIdx.x % MW_WARP == 0) {
        part[threadIdx.x / MW_WARP] = v;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int w = 0; w < MW_BLOCK / MW_WARP; w++) {
        sum += part[w];
    }
    return sum;
}

__device__ inline float mw_block_max(float v)
{
    __shared__ float part[MW_BLOCK / MW_WARP];
    v = mw_warp_max(v);
    __syncthreads();
    if (threadIdx.x % MW_WARP == 0) {
        part[threadIdx.x / MW_WARP] = v;
    }
    __syncthreads();
    float max = part[0];
    for (int w = 1; w < MW_BLOCK / MW_WARP; w++) {
        max = fmaxf(max, part[w]);
    }
    return max;
}

/* Blocks for n elements, one a thread, at most MW_GRID_MAX (kernels stride). */
inline unsigned mw_grid(size_t n)
{
    size_t blocks = (n + MW_BLOCK - 1) / MW_BLOCK;
    return static_cast<unsigned>(blocks < MW_GRID_MAX
                                     ? (blocks ? blocks : 1)
                                     : static_cast<size_t>(MW_GRID_MAX));
}

__device__ inline size_t mw_thread_first()
{
    return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ inline size_t mw_thread_step()
{
    return static_cast<size_t>(gridDim.x) * blockDim.x;
}

/* Calls a launcher template with the storage type that `elem` names. */
#define MW_BY_ELEM(elem, call_f32, call_bf16)                                  \
    ((elem) == MW_K_F32 ? (call_f32) : (call_bf16))

#endif
