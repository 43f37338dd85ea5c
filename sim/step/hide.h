/*
 * Private to sim/step: what a unit's passes hide of its collectives (hide.c,
 * zero_unit.c).
 */
#ifndef MW_SIM_STEP_HIDE_H
#define MW_SIM_STEP_HIDE_H

#include "sim/step/shared_experts.h"
#include "sim/step/step_int.h"

/*
 * Collectives of tensor parallelism that a layer's backward products hide from
 * each other (Megatron-LM, core/tensor_parallel/layers.py): while the weight
 * gradient is computed, the input gradient is reduced; with sequence
 * parallelism the saved input is gathered while the input gradient is computed.
 */
bool mw_step_is_async(const struct mw_op *op);
/* Seconds that the products of a phase take longer because the stack cuts them
 * together with collectives of tensor parallelism. */
double mw_step_chunks_s(const struct mw_step_price *p, enum mw_step_unit unit,
                        const struct mw_ops *ops);
/* Takes off the unit's priced phases what is hidden, and adds what that slows.
 */
void mw_step_hide(struct mw_step_price *p, enum mw_step_unit unit,
                  const struct mw_beside_s beside[MW_PHASE_COUNT]);
/* Adds gathers and scatters of a unit under ZeRO-2 and -3; its work must be
 * priced. Nothing without them. */
void mw_step_add_zero(struct mw_step_price *p, enum mw_step_unit unit,
                      struct mw_explain *explain);
/* Seconds of a phase on the device, collectives that block it among them. */
double mw_step_blocking_s(const struct mw_phase_cost *c);

#endif
