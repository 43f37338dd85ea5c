/*
 * How much of a step goes with each resource: the step is simulated again with
 * the resource one per cent better. The elasticity -d ln T / d ln r of a bound
 * is its share of the critical path (Amdahl's law read backwards), so shares of
 * exclusive bounds add up to about one.
 */
#include "sim/step/ledger.h"

#include <math.h>

#define BETTER 1.01

const char *mw_resource_name(enum mw_resource resource)
{
    static const char *const names[MW_RESOURCE_COUNT] = {
        "compute", "memory", "scale-up", "network", "latency", "host"};

    return (unsigned)resource < MW_RESOURCE_COUNT ? names[resource] : "?";
}

/* Everything of a machine that a resource may change. */
struct machine {
    struct mw_cost_ctx ctx;
    struct mw_system system;
    struct mw_gpu gpu;
};

static void improve_rates(struct machine *m, double flops, double bytes)
{
    for (int dtype = 0; dtype < MW_DTYPE_COUNT; dtype++) {
        m->ctx.sustained[dtype] *= flops;
        m->ctx.power_limit[dtype] *= flops;
        for (int op = 0; op < MW_MEASURED_OP_COUNT; op++) {
            for (int pass = 0; pass < MW_PASS_BW; pass++) {
                struct mw_kernel_rates *r =
                    &m->ctx.measured[op][dtype].rates[pass];

                r->flops_per_s *= flops;
                r->bytes_per_s *= bytes;
            }
        }
    }
    m->gpu.mem_bw_Bps *= bytes;
}

static void improve(struct machine *m, enum mw_resource resource)
{
    switch (resource) {
    case MW_RESOURCE_COMPUTE:
        improve_rates(m, BETTER, 1);
        break;
    case MW_RESOURCE_MEMORY:
        improve_rates(m, 1, BETTER);
        break;
    case MW_RESOURCE_SCALE_UP:
        m->system.intra_bw_Bps *= BETTER;
        m->ctx.link_speed *= BETTER;
        break;
    case MW_RESOURCE_NETWORK:
        m->ctx.domain_net_Bps *= BETTER;
        m->ctx.net_speed *= BETTER;
        break;
    case MW_RESOURCE_LATENCY:
        m->system.intra_alpha_s /= BETTER;
        m->system.inter_alpha_s /= BETTER;
        m->ctx.latency_speed *= BETTER;
        break;
    case MW_RESOURCE_HOST:
        m->ctx.stack.host_op_s /= BETTER;
        m->ctx.stack.host_coll_s /= BETTER;
        m->ctx.stack.host_moe_s /= BETTER;
        m->ctx.stack.host_step_s /= BETTER;
        m->ctx.kernel_launch_s /= BETTER;
        break;
    case MW_RESOURCE_COUNT:
        break;
    }
}

static enum mw_status time_with(const struct mw_scenario *scenario,
                                const struct mw_plan *plan,
                                const struct mw_cost_ctx *ctx,
                                enum mw_resource resource, double *out_s,
                                struct mw_err *err)
{
    struct machine m = {.ctx = *ctx, .system = *ctx->system, .gpu = *ctx->gpu};
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result r;

    m.ctx.system = &m.system;
    m.ctx.gpu = &m.gpu;
    improve(&m, resource);
    enum mw_status status =
        mw_step_simulate(scenario, plan, &m.ctx, &opts, &r, err);

    if (status == MW_OK) {
        *out_s = r.step_time_s;
        mw_step_result_release(&r);
    }
    return status;
}

enum mw_status mw_step_sensitivity(const struct mw_scenario *scenario,
                                   const struct mw_plan *plan,
                                   const struct mw_cost_ctx *ctx,
                                   double share[MW_RESOURCE_COUNT],
                                   struct mw_err *err)
{
    double base_s = 0;
    enum mw_status status =
        time_with(scenario, plan, ctx, MW_RESOURCE_COUNT, &base_s, err);

    for (int r = 0; status == MW_OK && r < MW_RESOURCE_COUNT; r++) {
        double time_s = 0;

        status =
            time_with(scenario, plan, ctx, (enum mw_resource)r, &time_s, err);
        if (status == MW_OK) {
            share[r] = log(base_s / time_s) / log(BETTER);
        }
    }
    return status;
}
