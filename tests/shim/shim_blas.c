/*
 * cublasLtMatmul of shim.h on OpenBLAS: column-major, op T or N, bias epilogue,
 * float32 or bfloat16 operands, float32 sums. The bias is laid down first and
 * the product added, as the host kernel does, so float32 results are the
 * host's to the bit.
 */
#include "tests/shim/shim.h"

#include "base/mem.h"

#include <cblas.h>
#include <cublasLt.h>
#include <string.h>

struct desc {
    int32_t op_a, op_b, epilogue;
    const void *bias;
};

struct layout {
    cudaDataType_t type;
    int rows, cols, ld;
};

struct preference {
    uint64_t workspace;
    uint32_t alignment;
};

#define ENTER()                                                                \
    do {                                                                       \
        if (shim_enters()) {                                                   \
            return CUBLAS_STATUS_INTERNAL_ERROR;                               \
        }                                                                      \
    } while (0)

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_INTERNAL_ERROR ? "made to fail (stand-in)"
                                                  : "refused (stand-in)";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    ENTER();
    *out = mw_calloc(1, 1);
    shim_count(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    bool is_failing = shim_enters();
    mw_free(handle);
    shim_count(-1);
    return is_failing ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    ENTER();
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    struct desc *d = mw_calloc(1, sizeof *d);
    d->op_a = CUBLAS_OP_N;
    d->op_b = CUBLAS_OP_N;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    shim_count(1);
    *out = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    bool is_failing = shim_enters();
    mw_free(desc);
    shim_count(-1);
    return is_failing ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                               cublasLtMatmulDescAttributes_t which,
                               const void *value, size_t bytes)
{
    ENTER();
    struct desc *d = (void *)desc;
    void *to = which == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&d->op_a
               : which == CUBLASLT_MATMUL_DESC_TRANSB   ? (void *)&d->op_b
               : which == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&d->epilogue
               : which == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? (void *)&d->bias
                                                            : NULL;
    size_t want =
        which == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof d->bias : 4;
    if (!to || bytes != want) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out,
                                          cudaDataType_t type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    ENTER();
    struct layout *l = mw_calloc(1, sizeof *l);
    *l = (struct layout){type, (int)rows, (int)cols, (int)ld};
    shim_count(1);
    *out = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    bool is_failing = shim_enters();
    mw_free(layout);
    shim_count(-1);
    return is_failing ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    ENTER();
    struct preference *p = mw_calloc(1, sizeof *p);
    p->alignment = 256; /* the library's default */
    shim_count(1);
    *out = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    bool is_failing = shim_enters();
    mw_free(pref);
    shim_count(-1);
    return is_failing ? CUBLAS_STATUS_INTERNAL_ERROR : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                     cublasLtMatmulPreferenceAttributes_t which,
                                     const void *value, size_t bytes)
{
    ENTER();
    struct preference *p = (void *)pref;
    bool is_size = which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (is_size ? sizeof p->workspace : sizeof p->alignment)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(is_size ? (void *)&p->workspace : (void *)&p->alignment, value,
           bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* The algorithm carries the alignment it was chosen for and its workspace. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t pref, int n_asked,
    cublasLtMatmulHeuristicResult_t results[], int *n_found)
{
    ENTER();
    (void)handle;
    (void)desc;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    const struct preference *p = (const void *)pref;
    memset(&results[0], 0, sizeof results[0]);
    results[0].algo.data[0] = p->alignment;
    results[0].workspaceSize = (size_t)p->workspace;
    *n_found = n_asked > 0 ? 1 : 0;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product
 * -------------------------------------------------------------------- */
struct matmul {
    struct desc desc;
    struct layout a, b, d;
    const void *a_at, *b_at;
    void *d_at;
    float alpha, beta;
    int m, n, k;
};

static size_t size_of(const struct layout *l)
{
    size_t bytes = l->type == CUDA_R_32F ? 4 : 2;
    return bytes * (size_t)l->ld * (size_t)l->cols;
}

static float *to_floats(const void *p, size_t n, cudaDataType_t type)
{
    float *f = mw_calloc(n, sizeof *f);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        if (type == CUDA_R_32F) {
            memcpy(&bits, (const char *)p + 4 * i, 4);
        } else {
            uint16_t half;
            memcpy(&half, (const char *)p + 2 * i, 2);
            bits = (uint32_t)half << 16;
        }
        memcpy(&f[i], &bits, 4);
    }
    return f;
}

static void from_floats(void *p, const float *f, size_t n, cudaDataType_t type)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], 4);
        if (type == CUDA_R_32F) {
            memcpy((char *)p + 4 * i, &bits, 4);
        } else {
            uint16_t half =
                (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
            memcpy((char *)p + 2 * i, &half, 2);
        }
    }
}

static void lay_bias(float *d, const struct matmul *m)
{
    float *bias = to_floats(m->desc.bias, (size_t)m->m, m->d.type);
    for (size_t j = 0; j < (size_t)m->n; j++) {
        memcpy(d + j * (size_t)m->d.ld, bias, (size_t)m->m * sizeof *bias);
    }
    mw_free(bias);
}

static bool run_matmul(void *args)
{
    const struct matmul *m = args;
    size_t na = (size_t)m->a.ld * (size_t)m->a.cols;
    size_t nb = (size_t)m->b.ld * (size_t)m->b.cols;
    size_t nd = (size_t)m->d.ld * (size_t)m->d.cols;
    float *a = to_floats(m->a_at, na, m->a.type);
    float *b = to_floats(m->b_at, nb, m->b.type);
    float *d = to_floats(m->d_at, nd, m->d.type);
    bool has_bias = m->desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (has_bias) {
        lay_bias(d, m);
    }
    cblas_sgemm(CblasColMajor,
                m->desc.op_a == CUBLAS_OP_T ? CblasTrans : CblasNoTrans,
                m->desc.op_b == CUBLAS_OP_T ? CblasTrans : CblasNoTrans, m->m,
                m->n, m->k, m->alpha, a, m->a.ld, b, m->b.ld,
                has_bias ? 1.0f : m->beta, d, m->d.ld);
    from_floats(m->d_at, d, nd, m->d.type);
    mw_free(a);
    mw_free(b);
    mw_free(d);
    return true;
}

static bool is_consistent(struct matmul *m)
{
    bool is_t_a = m->desc.op_a == CUBLAS_OP_T;
    bool is_t_b = m->desc.op_b == CUBLAS_OP_T;
    m->m = is_t_a ? m->a.cols : m->a.rows;
    m->k = is_t_a ? m->a.rows : m->a.cols;
    m->n = is_t_b ? m->b.rows : m->b.cols;
    int k_b = is_t_b ? m->b.cols : m->b.rows;
    return k_b == m->k && m->d.rows == m->m && m->d.cols == m->n &&
           m->a.type == m->b.type && shim_is_device(m->a_at, size_of(&m->a)) &&
           shim_is_device(m->b_at, size_of(&m->b)) &&
           shim_is_device(m->d_at, size_of(&m->d));
}

static bool is_aligned(const struct matmul *m, uint64_t alignment)
{
    uintptr_t all =
        (uintptr_t)m->a_at | (uintptr_t)m->b_at | (uintptr_t)m->d_at;
    return alignment > 0 && all % alignment == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                              cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    ENTER();
    struct matmul m = {.desc = *(const struct desc *)(const void *)desc,
                       .a = *(const struct layout *)(const void *)a_layout,
                       .b = *(const struct layout *)(const void *)b_layout,
                       .d = *(const struct layout *)(const void *)d_layout,
                       .a_at = a,
                       .b_at = b,
                       .d_at = d,
                       .alpha = *(const float *)alpha,
                       .beta = *(const float *)beta};
    size_t bias_bytes = m.d.type == CUDA_R_32F ? 4 : 2;
    if (!handle || c != d || c_layout != d_layout || !is_consistent(&m) ||
        !is_aligned(&m, algo->data[0]) ||
        !shim_is_device(workspace, workspace_bytes)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (m.desc.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        !shim_is_device(m.desc.bias, bias_bytes * (size_t)m.m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    shim_enqueue(stream, run_matmul, &m, sizeof m);
    return CUBLAS_STATUS_SUCCESS;
}
