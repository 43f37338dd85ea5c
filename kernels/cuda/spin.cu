/*
 * One thread that does nothing for some time: what makes an operator slower on
 * purpose (--slow). By the GPU's wall clock in nanoseconds (PTX ISA, special
 * register %globaltimer), which ticks once a microsecond on some devices.
 */
#include "kernels/cuda/cuda_int.cuh"

#ifdef MW_CUDA_EMULATE
#include <chrono>

static int64_t now_ns()
{
    auto t = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t).count();
}
#else
__device__ static int64_t now_ns()
{
    int64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
#endif

__global__ static void spin(int64_t ns)
{
    int64_t begin = now_ns();
    while (now_ns() - begin < ns) {
    }
}

int mw_k_spin_cuda(int64_t ns, void *stream)
{
    MW_LAUNCH(spin, 1, 1, stream)(ns);
    return cudaGetLastError();
}
