/*
 * Units are dealt out like cards: in the order of a random number each, one to
 * every fold in turn. The numbers depend on the seed and on the unit's place
 * alone (base/rand.h), so that no row's fold depends on how others are split.
 */
#include "hwdb/fit/fit_folds.h"

#include "base/rand.h"

static uint64_t card(uint64_t seed, size_t unit)
{
    return mw_rand_u64(seed, 0, unit);
}

/* How many units come before that of row i. */
static size_t place_of(const size_t *unit, size_t n, uint64_t seed, size_t i)
{
    uint64_t own = card(seed, unit[i]);
    size_t place = 0;

    for (size_t j = 0; j < n; j++) {
        if (unit[j] == j) {
            uint64_t other = card(seed, j);

            place += other < own || (other == own && j < unit[i]);
        }
    }
    return place;
}

void mw_fit_folds(const size_t *unit, size_t n, size_t folds, uint64_t seed,
                  size_t *out_fold)
{
    for (size_t i = 0; i < n; i++) {
        out_fold[i] = place_of(unit, n, seed, i) % folds;
    }
}
