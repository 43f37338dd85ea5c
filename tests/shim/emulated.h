/*
 * What the tests of the emulated kernels share: operands in both storage
 * types, comparison with what the host computes.
 */
#ifndef MW_TESTS_EMULATED_H
#define MW_TESTS_EMULATED_H

#include "mw_test.h"

#include "kernels/cuda/cuda_kernels.h"

/* The seed of the order of threads and blocks (cuda_emulate.cpp). */
void mw_emulate_seed(uint64_t seed);

enum { N_SEEDS = 3 };

size_t elem_bytes(enum mw_k_elem e);
/* To nearest, ties to even. */
uint16_t to_bf16(float f);
float from_bits(uint32_t u);

/* n numbers in [-1, 1). */
float *randoms(size_t n, uint64_t stream);
/* A typed copy of x; x itself is rounded to the type. */
void *typed(float *x, size_t n, enum mw_k_elem e);
void free_all(void **p, size_t n);

/*
 * Fails when got is off by more than 2e-5 of the largest value, and `n_steps`
 * times 2^-8 of it where it is stored in bfloat16: one for the storage, more
 * where a kernel rounds on its way.
 */
void check_steps(const char *what, const float *want, const void *got, size_t n,
                 enum mw_k_elem e, int n_steps);
void check(const char *what, const float *want, const void *got, size_t n,
           enum mw_k_elem e);
/* Results of the first seed must come again under the others, to the bit. */
void check_same(void **first, const void *now, size_t bytes, int seed);

#endif
