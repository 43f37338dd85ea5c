/*
 * Cost of one unit for one micro-batch, blocking collectives and waiting for
 * the host included: the weights of the partition program. Recomputation
 * belongs to b.
 */
#include "sim/step/step_int.h"

static void unit_cost(struct mw_step_price *p, enum mw_step_unit unit,
                      struct mw_layer_cost *out)
{
    double host_s[MW_PHASE_COUNT], device_s[MW_PHASE_COUNT] = {0};
    double s[MW_PHASE_COUNT];

    mw_step_price_unit(p, unit, NULL);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        const struct mw_phase_cost *cost = &p->cost[unit].phase[phase];

        for (int lane = 0; lane < MW_LANE_HOST; lane++) {
            device_s[phase] += cost->s[lane];
        }
        host_s[phase] = cost->host_s;
    }
    mw_host_wait(host_s, device_s, s);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        s[phase] += device_s[phase];
    }
    out->f_s = s[MW_PHASE_F];
    out->b_s = s[MW_PHASE_R] + s[MW_PHASE_B];
    out->w_s = s[MW_PHASE_W];
}

void mw_step_layer_cost(const struct mw_scenario *scenario,
                        const struct mw_layout *layout,
                        const struct mw_cost_ctx *ctx, int layer,
                        struct mw_layer_cost *out)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, scenario, layout, ctx);
    unit_cost(&p,
              mw_model_layer_is_moe(&scenario->model, layer) ? MW_UNIT_MOE
                                                             : MW_UNIT_DENSE,
              out);
}

void mw_step_embedding_cost(const struct mw_scenario *scenario,
                            const struct mw_layout *layout,
                            const struct mw_cost_ctx *ctx,
                            struct mw_layer_cost *out)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, scenario, layout, ctx);
    unit_cost(&p, MW_UNIT_EMBEDDING, out);
}

void mw_step_head_cost(const struct mw_scenario *scenario,
                       const struct mw_layout *layout,
                       const struct mw_cost_ctx *ctx, struct mw_layer_cost *out)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, scenario, layout, ctx);
    unit_cost(&p, MW_UNIT_HEAD, out);
}
