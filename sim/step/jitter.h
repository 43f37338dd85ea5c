/*
 * A step drawn many times: ranks differ by chance, and who synchronises waits
 * for the slowest. The mean over draws is what sim/step means by the factor
 * 1 + spread sqrt(2 ln ranks); the quantiles are what that factor cannot say.
 */
#ifndef MW_SIM_STEP_JITTER_H
#define MW_SIM_STEP_JITTER_H

#include "sim/step/step.h"

enum { MW_JITTER_DRAWS_MAX = 100000 };

struct mw_jitter {
    int n_draws;
    uint64_t seed;
    double mean_s, p10_s, p90_s, least_s, most_s; /* step time over the draws */
    double even_s;      /* the step of ranks that are all alike */
    double expected_s;  /* the step that mw_step_simulate predicts */
    uint64_t n_graphs;  /* task graphs that were run for it */
    double wall_time_s; /* that all draws took */
};

/* Draws n_draws (1 to MW_JITTER_DRAWS_MAX) steps, each on other devices. With a
 * spread of zero each is mw_step_simulate's step, to the picosecond. As
 * mw_step_simulate it fails for want of rates. */
enum mw_status mw_step_jitter(const struct mw_scenario *scenario,
                              const struct mw_plan *plan,
                              const struct mw_cost_ctx *ctx, int n_draws,
                              uint64_t seed, struct mw_jitter *out,
                              struct mw_err *err);

/* Expected greatest of n standard normal numbers. */
double mw_jitter_normal_max(int n);

#endif
