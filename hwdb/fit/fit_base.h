/*
 * Which constant a constant's prior goes with. A stack STACK-WORD is a variant
 * of STACK, whose figures it has where it has none of its own
 * (sim/cost/stack.c), and whose Python its processes run. So before its own
 * rows are seen, its host's times (host_FIGURE.STACK-WORD) are expected off
 * their priors to the side that host_FIGURE.STACK is (fit_solve.h).
 *
 * Left out: gaps, efficiencies and overlaps, which go by the kernels in which
 * variants differ (pooled, they made the pick of a layout in vTrain's 39.1B
 * worse); a shift of a figure that all stacks have in common (tried for the
 * host's times, it made Grok on GB200 and Megatron-Core r0.8 worse).
 */
#ifndef MW_HWDB_FIT_FIT_BASE_H
#define MW_HWDB_FIT_FIT_BASE_H

#include "hwdb/fit/fit_param.h"

/* The parameter of the same figure that the nearest stack has which k's stack
 * is a variant of; p when there is none, or k is no time of the host. */
size_t mw_fit_base_of(const struct mw_fit_param *param, size_t p, size_t k);
/* Can this constant change what a row of the stack takes? Not when it is
 * another stack's. */
bool mw_fit_reaches(const char *name, const char *stack);

#endif
