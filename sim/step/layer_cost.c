/*
 * Cost of one unit for one micro-batch, blocking collectives included: the
 * weights of the partition program. Recomputation belongs to b.
 */
#include "sim/step/step_int.h"

static double phase_s(const struct mw_step_price *p, enum mw_step_unit unit,
                      enum mw_phase phase)
{
    double sum = 0;

    for (int lane = 0; lane < MW_LANE_COUNT; lane++) {
        sum += p->cost[unit].phase[phase].s[lane];
    }
    return sum;
}

static void unit_cost(struct mw_step_price *p, enum mw_step_unit unit,
                      struct mw_layer_cost *out)
{
    mw_step_price_unit(p, unit, NULL);
    out->f_s = phase_s(p, unit, MW_PHASE_F);
    out->b_s = phase_s(p, unit, MW_PHASE_R) + phase_s(p, unit, MW_PHASE_B);
    out->w_s = phase_s(p, unit, MW_PHASE_W);
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
