/*
 * What shared experts compute while tokens travel to the routed experts and
 * back (shared_experts.c).
 */
#ifndef MW_STEP_SHARED_EXPERTS_H
#define MW_STEP_SHARED_EXPERTS_H

#include "sim/step/step_int.h"

/* Of one phase, by exchange: to the experts, and back; what each takes and what
 * shared experts compute beside it. */
struct mw_beside_s {
    double exchange_s[2], work_s[2];
};
/* Adds an operator that takes so long. */
void mw_step_note_beside(const struct mw_op *op, double time_s,
                         struct mw_beside_s *out);
/* Are input and weight gradients passes of their own? */
bool mw_step_splits_backward(const struct mw_layout *layout);
/* Takes off a phase's exchanges what shared experts hide; returns it. */
double mw_step_hide_beside(struct mw_step_price *p, enum mw_step_unit unit,
                           enum mw_phase phase,
                           const struct mw_beside_s beside[MW_PHASE_COUNT]);
void mw_step_explain_beside(const struct mw_step_price *p, enum mw_phase phase,
                            const struct mw_beside_s beside[MW_PHASE_COUNT],
                            struct mw_explain *explain);
/* A lane's collectives of which `hidden_s` run beside the compute of a phase,
 * and so on the wires. */
void mw_step_move_behind(struct mw_step_price *p, enum mw_step_unit unit,
                         enum mw_phase phase, enum mw_lane lane,
                         enum mw_phase beside, double hidden_s);

#endif
