/*
 * Matrix products of linear layers by cuBLASLt. Weights are [n][k] row-major
 * (DESIGN of kernels/kernels.h), which cuBLASLt, column-major, sees as their
 * transposes; so every product is computed transposed:
 *
 *   forward   y^T [n][m]  = w   x^T     A = w, op T    B = x,  op N
 *   input     dx^T [k][m] = w^T dy^T    A = w, op N    B = dy, op N
 *   weight    dw^T [k][n] = x^T dy      A = x, op N    B = dy, op T, beta 1
 *
 * The bias of the forward product is an epilogue. Descriptors and the
 * algorithm (the heuristic's first) are made once a shape.
 */
#ifndef MW_EXEC_GEMM_LT_H
#define MW_EXEC_GEMM_LT_H

#include "kernels/cuda/cuda_kernels.h"

#include <cublasLt.h>
#include <stdbool.h>

struct mw_gemm_lt;

enum mw_gemm_pass { MW_GEMM_FORWARD, MW_GEMM_INPUT, MW_GEMM_WEIGHT };

/* m rows, n outputs, k inputs of the layer in all passes. */
struct mw_gemm {
    enum mw_gemm_pass pass;
    enum mw_k_elem elem; /* of all operands; dw is float32 and accumulates */
    int m, n, k;
    const void *a, *b; /* as in the table above */
    const void *bias;  /* forward; NULL: none */
    bool is_wide;      /* forward: d is float32; without bias */
    void *d;
};

/* NULL when cuBLASLt or its workspace cannot be had; *out_status says why. */
struct mw_gemm_lt *mw_gemm_lt_new(int *out_status);
void mw_gemm_lt_free(struct mw_gemm_lt *g);
/* Enqueues; a cublasStatus_t. */
int mw_gemm_lt_run(struct mw_gemm_lt *g, const struct mw_gemm *call,
                   cudaStream_t stream);
/* In words. */
const char *mw_gemm_lt_error(int status);

#endif
