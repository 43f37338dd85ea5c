/*
 * Rows split into folds by chance, for errors of rows that the fit has not
 * seen: each fold is left out in turn.
 */
#ifndef MW_HWDB_FIT_FIT_FOLDS_H
#define MW_HWDB_FIT_FIT_FOLDS_H

#include <stddef.h>
#include <stdint.h>

/* Rows with the same unit[i] (the index of the unit's first row) share a fold.
 * Folds have as many units each, or one more; the same seed gives the same
 * folds. out_fold[n] gets 0 .. folds - 1; folds >= 1. */
void mw_fit_folds(const size_t *unit, size_t n, size_t folds, uint64_t seed,
                  size_t *out_fold);

#endif
