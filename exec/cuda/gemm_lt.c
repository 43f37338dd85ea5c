/*
 * The products of gemm_lt.h. A plan (descriptors, layouts, algorithm) is kept
 * for each pass, type, shape and alignment; a training step has a dozen of
 * them, so a list is searched. Experts get other numbers of rows each time, so
 * the list has an end, behind which the oldest plan makes room. Products
 * accumulate in float32 (CUBLAS_COMPUTE_32F; no TF32, which keeps 10 bits of a
 * float32's mantissa).
 */
#include "exec/cuda/gemm_lt.h"

#include "base/mem.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

/* What NVIDIA advises for Hopper (cuBLAS documentation, cublasSetWorkspace). */
static const size_t workspace_bytes = (size_t)32 << 20;

/* Pointers cannot be aligned better than cudaMalloc does. */
enum { ALIGNMENT_MAX = 256, PLANS_MAX = 256 };

struct plan {
    enum mw_gemm_pass pass;
    enum mw_k_elem elem;
    int m, n, k;
    bool has_bias, is_wide;
    uint32_t alignment;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

struct mw_gemm_lt {
    cublasLtHandle_t handle;
    void *workspace;
    MW_ARRAY(struct plan) plans;
    size_t oldest; /* once the list is full */
};

struct mw_gemm_lt *mw_gemm_lt_new(int *out_status)
{
    struct mw_gemm_lt *g = mw_calloc(1, sizeof *g);
    cublasStatus_t st = cublasLtCreate(&g->handle);
    if (st == CUBLAS_STATUS_SUCCESS &&
        cudaMalloc(&g->workspace, workspace_bytes) != cudaSuccess) {
        st = CUBLAS_STATUS_ALLOC_FAILED;
    }
    *out_status = (int)st;
    if (st != CUBLAS_STATUS_SUCCESS) {
        mw_gemm_lt_free(g);
        return NULL;
    }
    return g;
}

static void plan_release(struct plan *p)
{
    if (p->a) {
        cublasLtMatrixLayoutDestroy(p->a);
    }
    if (p->b) {
        cublasLtMatrixLayoutDestroy(p->b);
    }
    if (p->d) {
        cublasLtMatrixLayoutDestroy(p->d);
    }
    if (p->desc) {
        cublasLtMatmulDescDestroy(p->desc);
    }
}

void mw_gemm_lt_free(struct mw_gemm_lt *g)
{
    if (!g) {
        return;
    }
    for (size_t i = 0; i < g->plans.n; i++) {
        plan_release(&g->plans.v[i]);
    }
    mw_array_release(&g->plans);
    if (g->workspace) {
        cudaFree(g->workspace);
    }
    if (g->handle) {
        cublasLtDestroy(g->handle);
    }
    mw_free(g);
}

const char *mw_gemm_lt_error(int status)
{
    return cublasLtGetStatusString((cublasStatus_t)status);
}

/* ---- plans
 * ----------------------------------------------------------------------- */
/* The largest power of two, up to ALIGNMENT_MAX, that divides all addresses:
 * the heuristic assumes 256, a weight inside a flat buffer has less. */
static uint32_t alignment_of(const struct mw_gemm *call)
{
    uintptr_t bits = (uintptr_t)call->a | (uintptr_t)call->b |
                     (uintptr_t)call->d | ALIGNMENT_MAX;
    return (uint32_t)(bits & (~bits + 1));
}

static bool is_plan_of(const struct plan *p, const struct mw_gemm *call,
                       uint32_t alignment)
{
    return p->pass == call->pass && p->elem == call->elem && p->m == call->m &&
           p->n == call->n && p->k == call->k &&
           p->has_bias == (call->bias != NULL) && p->is_wide == call->is_wide &&
           p->alignment == alignment;
}

static cudaDataType_t type_of(enum mw_k_elem elem)
{
    return elem == MW_K_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

static cublasStatus_t set_op(cublasLtMatmulDesc_t desc,
                             cublasLtMatmulDescAttributes_t which,
                             cublasOperation_t op)
{
    int32_t value = (int32_t)op;
    return cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof value);
}

static cublasStatus_t make_desc(struct plan *p)
{
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t st =
        cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (st == CUBLAS_STATUS_SUCCESS && p->pass == MW_GEMM_FORWARD) {
        st = set_op(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    }
    if (st == CUBLAS_STATUS_SUCCESS && p->pass == MW_GEMM_WEIGHT) {
        st = set_op(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
    }
    if (st == CUBLAS_STATUS_SUCCESS && p->has_bias) {
        st = cublasLtMatmulDescSetAttribute(
            p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    }
    return st;
}

/* rows x cols, column-major and dense. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *out,
                                  cudaDataType_t type, int rows, int cols)
{
    return cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)cols,
                                      (int64_t)rows);
}

static cublasStatus_t make_layouts(struct plan *p)
{
    int m = p->m, n = p->n, k = p->k;
    cudaDataType_t type = type_of(p->elem);
    cudaDataType_t type_d =
        p->pass == MW_GEMM_WEIGHT || p->is_wide ? CUDA_R_32F : type;
    int b_rows = p->pass == MW_GEMM_FORWARD ? k : n;
    int a_cols = p->pass == MW_GEMM_WEIGHT ? m : n;
    int d_rows = p->pass == MW_GEMM_FORWARD ? n : k;
    int d_cols = p->pass == MW_GEMM_WEIGHT ? n : m;
    cublasStatus_t st = make_layout(&p->a, type, k, a_cols);
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = make_layout(&p->b, type, b_rows, m);
    }
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = make_layout(&p->d, type_d, d_rows, d_cols);
    }
    return st;
}

static cublasStatus_t set_limits(cublasLtMatmulPreference_t pref,
                                 uint32_t alignment)
{
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasStatus_t st = cublasLtMatmulPreferenceSetAttribute(
        pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
        sizeof workspace_bytes);
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        if (st == CUBLAS_STATUS_SUCCESS) {
            st = cublasLtMatmulPreferenceSetAttribute(
                pref, which[i], &alignment, sizeof alignment);
        }
    }
    return st;
}

static cublasStatus_t choose(struct mw_gemm_lt *g, struct plan *p)
{
    cublasLtMatmulPreference_t pref = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n_found = 0;
    cublasStatus_t st = cublasLtMatmulPreferenceCreate(&pref);
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = set_limits(pref, p->alignment);
    }
    if (st == CUBLAS_STATUS_SUCCESS) {
        st =
            cublasLtMatmulAlgoGetHeuristic(g->handle, p->desc, p->a, p->b, p->d,
                                           p->d, pref, 1, &found, &n_found);
    }
    if (pref) {
        cublasLtMatmulPreferenceDestroy(pref);
    }
    if (st == CUBLAS_STATUS_SUCCESS && n_found == 0) {
        st = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (st == CUBLAS_STATUS_SUCCESS) {
        p->algo = found.algo;
    }
    return st;
}

static struct plan *keep(struct mw_gemm_lt *g, const struct plan *p)
{
    size_t at = g->oldest;
    if (g->plans.n < PLANS_MAX) {
        mw_array_push(&g->plans, *p);
        return &g->plans.v[g->plans.n - 1];
    }
    plan_release(&g->plans.v[at]);
    g->plans.v[at] = *p;
    g->oldest = (at + 1) % PLANS_MAX;
    return &g->plans.v[at];
}

static struct plan *find_plan(struct mw_gemm_lt *g, const struct mw_gemm *call,
                              cublasStatus_t *out_status)
{
    uint32_t alignment = alignment_of(call);
    *out_status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < g->plans.n; i++) {
        if (is_plan_of(&g->plans.v[i], call, alignment)) {
            return &g->plans.v[i];
        }
    }
    struct plan p = {.pass = call->pass,
                     .elem = call->elem,
                     .m = call->m,
                     .n = call->n,
                     .k = call->k,
                     .has_bias = call->bias != NULL,
                     .is_wide = call->is_wide,
                     .alignment = alignment};
    cublasStatus_t st = make_desc(&p);
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = make_layouts(&p);
    }
    if (st == CUBLAS_STATUS_SUCCESS) {
        st = choose(g, &p);
    }
    if (st != CUBLAS_STATUS_SUCCESS) {
        plan_release(&p);
        *out_status = st;
        return NULL;
    }
    return keep(g, &p);
}

int mw_gemm_lt_run(struct mw_gemm_lt *g, const struct mw_gemm *call,
                   cudaStream_t stream)
{
    cublasStatus_t st;
    struct plan *p = find_plan(g, call, &st);
    if (p && p->has_bias) {
        st = cublasLtMatmulDescSetAttribute(p->desc,
                                            CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                            &call->bias, sizeof call->bias);
    }
    if (!p || st != CUBLAS_STATUS_SUCCESS) {
        return (int)st;
    }
    const float one = 1.0f, beta = call->pass == MW_GEMM_WEIGHT ? 1.0f : 0.0f;
    return (int)cublasLtMatmul(g->handle, p->desc, &one, call->a, p->a, call->b,
                               p->b, &beta, call->d, p->d, call->d, p->d,
                               &p->algo, g->workspace, workspace_bytes, stream);
}
