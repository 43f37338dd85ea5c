/*
 * The host device's operators of a mixture of experts: the host kernels.
 */
#include "exec/dev.h"
#include "exec/dev_groups.h"

#include "kernels/kernels.h"

static void route_fwd(struct mw_dev *dev, float *p, int32_t *choice,
                      float *weight, int rows, int n, int k)
{
    (void)dev;
    mw_k_route_fwd(p, choice, weight, rows, n, k);
}

static void route_bwd(struct mw_dev *dev, void *dlogits, const float *dweight,
                      const float *p, const int32_t *choice,
                      const float *weight, const float *aux, int rows, int n,
                      int k)
{
    (void)dev;
    mw_k_route_bwd(dlogits, dweight, p, choice, weight, aux, rows, n, k);
}

static void sort(struct mw_dev *dev, const struct mw_k_sort *a)
{
    (void)dev;
    mw_k_route_sort(a);
}

static void order(struct mw_dev *dev, const struct mw_k_order *a)
{
    (void)dev;
    mw_k_route_order(a);
}

static void gather(struct mw_dev *dev, void *dst, const void *src,
                   const int32_t *from, int rows, int width)
{
    (void)dev;
    mw_k_rows_gather(dst, src, from, rows, width);
}

static void combine(struct mw_dev *dev, void *y, const void *x,
                    const int32_t *place, const float *weight,
                    const void *residual, int rows, int k, int width)
{
    (void)dev;
    mw_k_rows_combine(y, x, place, weight, residual, rows, k, width);
}

static void combine_bwd(struct mw_dev *dev, void *dx, float *dweight,
                        const void *dy, const void *x, const int32_t *place,
                        const float *weight, int rows, int k, int width)
{
    (void)dev;
    mw_k_rows_combine_bwd(dx, dweight, dy, x, place, weight, rows, k, width);
}

static void gate_fwd(struct mw_dev *dev, void *y, const void *x,
                     const float *logit, int rows, int width)
{
    (void)dev;
    mw_k_rows_gate(y, x, logit, rows, width);
}

static void gate_bwd(struct mw_dev *dev, void *dx, void *dlogit, const void *dy,
                     const void *x, const float *logit, int rows, int width)
{
    (void)dev;
    mw_k_rows_gate_bwd(dx, dlogit, dy, x, logit, rows, width);
}

const struct mw_dev_expert_ops mw_dev_host_experts = {
    .route_fwd = route_fwd,
    .route_bwd = route_bwd,
    .sort = sort,
    .order = order,
    .groups_fwd = mw_dev_groups_fwd,
    .groups_bwd_input = mw_dev_groups_bwd_input,
    .groups_bwd_weight = mw_dev_groups_bwd_weight,
    .gather = gather,
    .combine = combine,
    .combine_bwd = combine_bwd,
    .gate_fwd = gate_fwd,
    .gate_bwd = gate_bwd,
};
