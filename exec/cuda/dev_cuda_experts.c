/*
 * A GPU's operators of a mixture of experts: kernels/cuda/experts.cu, and
 * products of experts. Small ones go in one launch (groups.cu); large ones one
 * after the other through cuBLASLt, which is faster once a product takes longer
 * than its launch. The limit is an estimate: a product of 2^29 operations takes
 * about as long as a launch, 5 us at 100 TFLOP/s; gpu_check.sh measures both.
 */
#include "exec/cuda/cuda_int.h"
#include "exec/dev_groups.h"

const double mw_cuda_small_group_flops = 536870912.0;

static struct mw_cuda *self(struct mw_dev *dev)
{
    return (struct mw_cuda *)dev;
}

/* ---- router ------------------------------------------------------------- */
static void route_fwd(struct mw_dev *dev, float *p, int32_t *choice,
                      float *weight, int rows, int n, int k)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, mw_k_route_fwd_cuda, p, choice, weight, rows, n, k,
                c->stream);
}

static void route_bwd(struct mw_dev *dev, void *dlogits, const float *dweight,
                      const float *p, const int32_t *choice,
                      const float *weight, const float *aux, int rows, int n,
                      int k)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_route_bwd a = {.elem = c->elem,
                                     .dweight = dweight,
                                     .p = p,
                                     .weight = weight,
                                     .aux = aux,
                                     .choice = choice,
                                     .rows = rows,
                                     .n = n,
                                     .k = k};
    MW_CUDA_RUN(c, mw_k_route_bwd_cuda, &a, dlogits, c->stream);
}

static void sort(struct mw_dev *dev, const struct mw_k_sort *a)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, mw_k_route_sort_cuda, a, c->stream);
}

static void order(struct mw_dev *dev, const struct mw_k_order *a)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, mw_k_route_order_cuda, a, c->stream);
}

/* ---- products ----------------------------------------------------------- */
static struct mw_k_groups_cuda groups_arg(const struct mw_cuda *c,
                                          const struct mw_dev_groups *g)
{
    return (struct mw_k_groups_cuda){
        .elem = c->elem,
        .shape = {g->n_groups, g->n, g->k, g->first},
        .rows = g->host_first[g->n_groups]};
}

static bool is_small(const struct mw_cuda *c, const struct mw_dev_groups *g)
{
    double flops =
        2.0 * g->host_first[g->n_groups] * (double)g->n * (double)g->k;
    return flops < c->small_group_flops * g->n_groups;
}

static void groups_fwd(struct mw_dev *dev, const struct mw_dev_groups *g,
                       void *y, const void *x, const void *w)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_groups_cuda a = groups_arg(c, g);
    if (is_small(c, g)) {
        MW_CUDA_OP(c, MW_OP_GEMM, mw_k_groups_fwd_cuda, &a, y, x, w, c->stream);
        return;
    }
    mw_dev_groups_fwd(dev, g, y, x, w);
}

static void groups_bwd_input(struct mw_dev *dev, const struct mw_dev_groups *g,
                             void *dx, const void *dy, const void *w)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_groups_cuda a = groups_arg(c, g);
    if (is_small(c, g)) {
        MW_CUDA_OP(c, MW_OP_GEMM, mw_k_groups_bwd_input_cuda, &a, dx, dy, w,
                   c->stream);
        return;
    }
    mw_dev_groups_bwd_input(dev, g, dx, dy, w);
}

static void groups_bwd_weight(struct mw_dev *dev, const struct mw_dev_groups *g,
                              float *dw, const void *dy, const void *x)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_groups_cuda a = groups_arg(c, g);
    if (is_small(c, g)) {
        MW_CUDA_OP(c, MW_OP_GEMM, mw_k_groups_bwd_weight_cuda, &a, dw, dy, x,
                   c->stream);
        return;
    }
    mw_dev_groups_bwd_weight(dev, g, dw, dy, x);
}

/* ---- rows -----------------------------------------------------------------
 */
static void gather(struct mw_dev *dev, void *dst, const void *src,
                   const int32_t *from, int rows, int width)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, mw_k_rows_gather_cuda, c->elem, dst, src, from, rows, width,
                c->stream);
}

static void combine(struct mw_dev *dev, void *y, const void *x,
                    const int32_t *place, const float *weight,
                    const void *residual, int rows, int k, int width)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_combine a = {c->elem, place, weight, rows, k, width};
    MW_CUDA_RUN(c, mw_k_rows_combine_cuda, &a, y, x, residual, c->stream);
}

static void combine_bwd(struct mw_dev *dev, void *dx, float *dweight,
                        const void *dy, const void *x, const int32_t *place,
                        const float *weight, int rows, int k, int width)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_combine a = {c->elem, place, weight, rows, k, width};
    MW_CUDA_RUN(c, mw_k_rows_combine_bwd_cuda, &a, dx, dweight, dy, x,
                c->stream);
}

static void gate_fwd(struct mw_dev *dev, void *y, const void *x,
                     const float *logit, int rows, int width)
{
    struct mw_cuda *c = self(dev);
    MW_CUDA_RUN(c, mw_k_rows_gate_cuda, c->elem, y, x, logit, rows, width,
                c->stream);
}

static void gate_bwd(struct mw_dev *dev, void *dx, void *dlogit, const void *dy,
                     const void *x, const float *logit, int rows, int width)
{
    struct mw_cuda *c = self(dev);
    const struct mw_k_gate_bwd a = {.elem = c->elem,
                                    .dx = dx,
                                    .dlogit = dlogit,
                                    .dy = dy,
                                    .x = x,
                                    .logit = logit,
                                    .rows = rows,
                                    .width = width};
    MW_CUDA_RUN(c, mw_k_rows_gate_bwd_cuda, &a, c->stream);
}

const struct mw_dev_expert_ops mw_dev_cuda_experts = {
    .route_fwd = route_fwd,
    .route_bwd = route_bwd,
    .sort = sort,
    .order = order,
    .groups_fwd = groups_fwd,
    .groups_bwd_input = groups_bwd_input,
    .groups_bwd_weight = groups_bwd_weight,
    .gather = gather,
    .combine = combine,
    .combine_bwd = combine_bwd,
    .gate_fwd = gate_fwd,
    .gate_bwd = gate_bwd,
};
