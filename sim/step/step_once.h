/*
 * Private to sim/step: passes over gradients that a step makes once, and the
 * numbers that its ranks exchange for them (step_once.c).
 */
#ifndef MW_SIM_STEP_STEP_ONCE_H
#define MW_SIM_STEP_STEP_ONCE_H

#include "sim/cost/cost.h"

struct mw_step_price;

enum mw_once {
    MW_ONCE_ZERO,
    MW_ONCE_SCALE,
    MW_ONCE_UNSCALE,
    MW_ONCE_NORM,
    MW_ONCE_CLIP,
    MW_ONCE_COUNT
};
enum { MW_ONCE_NUMBER_BYTES = 4 };
struct mw_step_once {
    double bytes[MW_ONCE_COUNT]; /* read and written on the device */
    double reduce_s;             /* numbers that ranks exchange */
    int n_reduces;
    struct mw_group group; /* that exchanges them */
};
/* Does the step clip gradients, as the workload has it or else the stack? */
bool mw_step_clips(const struct mw_step_price *p);
/* Times of one number exchanged, which depend on where ranks lie alone; called
 * by mw_step_place_groups. */
void mw_step_place_numbers(struct mw_step_price *p,
                           const struct mw_layout *layout);
/* Of a rank with so many parameters, of which it updates some. */
struct mw_step_once mw_step_once_of(const struct mw_step_price *p, double whole,
                                    double updated);
double mw_step_once_bytes(const struct mw_step_once *once);

#endif
