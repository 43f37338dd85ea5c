/*
 * Private to sim/step: a step priced but not yet laid out in time.
 *
 *   step_price_int.h   one unit: time of its phases and lanes, sizes
 *   step_zero_int.h    collectives over parameters and gradients
 *   step_stage_int.h   virtual stages, sums of units; tails; memory
 *   step_frame_int.h   all of these of a plan
 *
 * The event form lays passes on streams, the fast form adds them up; both read
 * the same picoseconds, so they can only differ in the waiting.
 */
#ifndef MW_SIM_STEP_STEP_INT_H
#define MW_SIM_STEP_STEP_INT_H

#include "sim/step/step_frame_int.h"
#include "sim/step/step_price_int.h"
#include "sim/step/step_stage_int.h"
#include "sim/step/step_zero_int.h"

#endif
