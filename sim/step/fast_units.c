/*
 * Units that remembered prices share. A search of 10^5 prices has as many
 * different layers, but few embeddings and heads: kept by content they take a
 * third of what a copy in every price would.
 */
#include "sim/step/fast_int.h"

#include "base/file.h"

#include <assert.h>
#include <string.h>

enum { FIRST_SLOTS = 64 };

size_t mw_fast_hash(const void *data, size_t n_bytes)
{
    const char *at = data;
    uint64_t h = MW_HASH_INIT;

    for (size_t i = 0; i < n_bytes; i += sizeof h) {
        uint64_t word;

        memcpy(&word, at + i, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return (size_t)h;
}

static struct mw_fast_unit **find(const struct mw_unit_store *store,
                                  const struct mw_fast_unit *unit)
{
    static_assert(sizeof *unit % sizeof(uint64_t) == 0, "whole words");
    size_t i = mw_fast_hash(unit, sizeof *unit);

    for (;; i++) {
        struct mw_fast_unit **slot = &store->slot[i & (store->n_slots - 1)];

        if (*slot == NULL || memcmp(*slot, unit, sizeof *unit) == 0) {
            return slot;
        }
    }
}

static void grow(struct mw_unit_store *store)
{
    struct mw_unit_store larger = {
        .n_slots = store->n_slots > 0 ? 2 * store->n_slots : FIRST_SLOTS,
        .n = store->n};

    larger.slot = mw_calloc(larger.n_slots, sizeof *larger.slot);
    for (size_t i = 0; i < store->n_slots; i++) {
        if (store->slot[i] != NULL) {
            *find(&larger, store->slot[i]) = store->slot[i];
        }
    }
    mw_free(store->slot);
    *store = larger;
}

const struct mw_fast_unit *mw_unit_keep(struct mw_unit_store *store,
                                        const struct mw_fast_unit *unit)
{
    struct mw_fast_unit **slot;

    if (2 * (store->n + 1) > store->n_slots) {
        grow(store);
    }
    slot = find(store, unit);
    if (*slot == NULL) {
        *slot = mw_calloc(1, sizeof **slot);
        memcpy(*slot, unit, sizeof *unit);
        store->n++;
    }
    return *slot;
}

void mw_unit_store_release(struct mw_unit_store *store)
{
    for (size_t i = 0; i < store->n_slots; i++) {
        mw_free(store->slot[i]);
    }
    mw_free(store->slot);
}
