/*
 * The part of CUDA C++ that the kernels use, on one CPU thread: each thread of
 * a block is a fiber, blocks run one after the other.
 *
 * At a barrier or shuffle a fiber stops; which one runs next is drawn from a
 * seed, and so is the order of the blocks, so a missing barrier or a
 * dependence between blocks shows as a wrong or changing result. A barrier
 * that only some threads of a block reach ends the program with a message.
 * Under AddressSanitizer every access of a kernel is checked.
 *
 * Left out: weak memory order between barriers (fibers are sequentially
 * consistent), races inside a warp between barriers, speed.
 */
#ifndef MW_TESTS_CUDA_EMULATE_H
#define MW_TESTS_CUDA_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __shared__ static

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { cudaSuccess = 0, cudaErrorInvalidValue = 1 };

inline int cudaGetLastError()
{
    return cudaSuccess;
}

void __syncthreads();
int __syncthreads_or(int vote);
float __shfl_xor_sync(unsigned mask, float v, int lane_mask);

inline unsigned __float_as_uint(float f)
{
    unsigned u;
    std::memcpy(&u, &f, sizeof u);
    return u;
}

inline float __uint_as_float(unsigned u)
{
    float f;
    std::memcpy(&f, &u, sizeof f);
    return f;
}

/* Of the running thread, in its warp. */
int mw_emulate_lane();

/* Ends the program when p is not on `bytes` or ld no multiple of `step`. */
void mw_emulate_aligned(const void *p, unsigned bytes, int ld, int step);

/* Runs body once a thread, in blocks. */
void mw_emulate_grid(dim3 grid, dim3 block, const std::function<void()> &body);

template <typename... P> struct mw_emulate_call {
    void (*kernel)(P...);
    dim3 grid, block;
    void operator()(P... args) const
    {
        mw_emulate_grid(grid, block, [&] { kernel(args...); });
    }
};

template <typename... P>
mw_emulate_call<P...> mw_emulate_launch(void (*kernel)(P...), dim3 grid,
                                        dim3 block)
{
    return {kernel, grid, block};
}

#define MW_LAUNCH(kernel, grid, block, stream)                                 \
    (static_cast<void>(stream), mw_emulate_launch(kernel, grid, block))

#endif
