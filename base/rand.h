/*
 * Counter-based random numbers: value = f(seed, stream, index). No state, so
 * any shard draws its own slice and every machine draws the same.
 * The mixer is SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014,
 * figure 16) applied to the three words in turn.
 */
#ifndef MW_BASE_RAND_H
#define MW_BASE_RAND_H

#include <stdint.h>

uint64_t mw_rand_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, 1), 53 bits. */
double mw_rand_unit(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal by Box-Muller from indices 2 i and 2 i + 1. */
double mw_rand_normal(uint64_t seed, uint64_t stream, uint64_t index);

#endif
