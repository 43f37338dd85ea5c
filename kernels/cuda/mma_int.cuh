/*
 * 16 x 16 x 16 products of a warp on tensor cores (CUDA C++ Programming Guide,
 * "Warp matrix functions"): bfloat16 operands in shared memory, float32 sums.
 * Operands begin on 32 bytes; leading dimensions are multiples of 8 elements
 * (4 for the sums). Needs sm_80. In the thread emulator a lane computes its
 * own part of the product.
 */
#ifndef MW_KERNELS_MMA_INT_CUH
#define MW_KERNELS_MMA_INT_CUH

#include "kernels/cuda/cuda_int.cuh"

enum { MW_MMA = 16 };

#ifdef MW_CUDA_EMULATE

/* Lane l has row l / 2, columns 8 (l mod 2) and the seven after. */
struct mw_mma_sum {
    float v[MW_MMA / 2];
};

inline void mw_mma_zero(mw_mma_sum *s)
{
    *s = mw_mma_sum();
}

/* A is row-major or, with A_COL, column-major; B likewise. */
template <bool A_COL, bool B_COL>
void mw_mma(mw_mma_sum *s, const mw_bf16 *a, int lda, const mw_bf16 *b, int ldb)
{
    int i = mw_emulate_lane() / 2, j0 = mw_emulate_lane() % 2 * (MW_MMA / 2);
    mw_emulate_aligned(a, 32, lda, 8);
    mw_emulate_aligned(b, 32, ldb, 8);
    for (int j = j0; j < j0 + MW_MMA / 2; j++) {
        for (int k = 0; k < MW_MMA; k++) {
            s->v[j - j0] += mw_load(a + (A_COL ? k * lda + i : i * lda + k)) *
                            mw_load(b + (B_COL ? j * ldb + k : k * ldb + j));
        }
    }
}

inline void mw_mma_store(float *to, const mw_mma_sum *s, int ld)
{
    int i = mw_emulate_lane() / 2, j0 = mw_emulate_lane() % 2 * (MW_MMA / 2);
    mw_emulate_aligned(to, 32, ld, 4);
    for (int j = 0; j < MW_MMA / 2; j++) {
        to[i * ld + j0 + j] = s->v[j];
    }
}

#else

#include <cuda_bf16.h>
#include <mma.h>

struct mw_mma_sum {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, MW_MMA, MW_MMA, MW_MMA,
                           float>
        v;
};

__device__ inline void mw_mma_zero(mw_mma_sum *s)
{
    nvcuda::wmma::fill_fragment(s->v, 0.0f);
}

template <bool IS_COL> struct mw_mma_order {
    using type = nvcuda::wmma::row_major;
};

template <> struct mw_mma_order<true> {
    using type = nvcuda::wmma::col_major;
};

template <bool A_COL, bool B_COL>
__device__ inline void mw_mma(mw_mma_sum *s, const mw_bf16 *a, int lda,
                              const mw_bf16 *b, int ldb)
{
    using namespace nvcuda::wmma;
    fragment<matrix_a, MW_MMA, MW_MMA, MW_MMA, __nv_bfloat16,
             typename mw_mma_order<A_COL>::type>
        fa;
    fragment<matrix_b, MW_MMA, MW_MMA, MW_MMA, __nv_bfloat16,
             typename mw_mma_order<B_COL>::type>
        fb;
    load_matrix_sync(fa, reinterpret_cast<const __nv_bfloat16 *>(a),
                     static_cast<unsigned>(lda));
    load_matrix_sync(fb, reinterpret_cast<const __nv_bfloat16 *>(b),
                     static_cast<unsigned>(ldb));
    mma_sync(s->v, fa, fb, s->v);
}

__device__ inline void mw_mma_store(float *to, const mw_mma_sum *s, int ld)
{
    nvcuda::wmma::store_matrix_sync(to, s->v, static_cast<unsigned>(ld),
                                    nvcuda::wmma::mem_row_major);
}

#endif

#endif
