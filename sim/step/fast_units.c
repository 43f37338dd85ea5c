/*
 * What remembered prices share: units, their sizes, sets of groups. A search of
 * 10^5 prices has as many different layers, but few embeddings and heads, and
 * few places for its groups: kept by content they take a third of what a copy
 * in every price would.
 */
#include "sim/step/fast_int.h"

#include "base/file.h"

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

static void **find(const struct mw_store *store, const void *thing,
                   size_t n_bytes)
{
    size_t i = mw_fast_hash(thing, n_bytes);

    for (;; i++) {
        void **slot = &store->slot[i & (store->n_slots - 1)];

        if (*slot == NULL || memcmp(*slot, thing, n_bytes) == 0) {
            return slot;
        }
    }
}

static void grow(struct mw_store *store, size_t n_bytes)
{
    struct mw_store larger = {.n_slots = store->n_slots > 0 ? 2 * store->n_slots
                                                            : FIRST_SLOTS,
                              .n = store->n};

    larger.slot = mw_calloc(larger.n_slots, sizeof *larger.slot);
    for (size_t i = 0; i < store->n_slots; i++) {
        if (store->slot[i] != NULL) {
            *find(&larger, store->slot[i], n_bytes) = store->slot[i];
        }
    }
    mw_free(store->slot);
    *store = larger;
}

const void *mw_store_keep(struct mw_store *store, const void *thing,
                          size_t n_bytes)
{
    void **slot;

    MW_ASSERT(n_bytes % sizeof(uint64_t) == 0, "%zu bytes", n_bytes);
    if (2 * (store->n + 1) > store->n_slots) {
        grow(store, n_bytes);
    }
    slot = find(store, thing, n_bytes);
    if (*slot == NULL) {
        *slot = mw_calloc(1, n_bytes);
        memcpy(*slot, thing, n_bytes);
        store->n++;
    }
    return *slot;
}

void mw_store_release(struct mw_store *store)
{
    for (size_t i = 0; i < store->n_slots; i++) {
        mw_free(store->slot[i]);
    }
    mw_free(store->slot);
}
