/* Prices of units, of which the tests of a step make sums. */
#ifndef MW_TESTS_UNIT_STEP_UNITS_H
#define MW_TESTS_UNIT_STEP_UNITS_H

#include "sim/step/step_int.h"
#include "step_fixture.h"

static inline struct mw_step_price step_priced(const struct step_world *w,
                                               const struct mw_layout *l)
{
    struct mw_step_price p;

    mw_step_price_begin(&p, &w->s, l, &w->ctx);
    mw_step_price_units(&p, NULL);
    return p;
}

/* What one micro-batch of one unit takes on its own: blocking collectives and
 * waiting for the host included, recomputation in b. */
struct step_unit_s {
    double f_s, b_s, w_s;
};

static inline struct step_unit_s step_unit_cost(const struct mw_scenario *s,
                                                const struct mw_layout *l,
                                                const struct mw_cost_ctx *ctx,
                                                enum mw_step_unit unit)
{
    double host_s[MW_PHASE_COUNT], device_s[MW_PHASE_COUNT] = {0};
    double all_s[MW_PHASE_COUNT];
    struct mw_step_price p;

    mw_step_price_begin(&p, s, l, ctx);
    mw_step_price_unit(&p, unit, NULL);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        const struct mw_phase_cost *cost = &p.cost[unit].phase[phase];

        for (int lane = 0; lane < MW_LANE_HOST; lane++) {
            device_s[phase] += cost->s[lane];
        }
        host_s[phase] = cost->host_s;
    }
    mw_host_wait(host_s, device_s, all_s);
    for (int phase = 0; phase < MW_PHASE_COUNT; phase++) {
        all_s[phase] += device_s[phase];
    }
    return (struct step_unit_s){all_s[MW_PHASE_F],
                                all_s[MW_PHASE_R] + all_s[MW_PHASE_B],
                                all_s[MW_PHASE_W]};
}

#endif
