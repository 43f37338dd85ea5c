/*
 * What both benchmarks share: the pool of operands.
 */
#include "exec/bench.h"

#include "base/mem.h"
#include "base/rand.h"

void mw_pool_init(struct mw_pool *pool, size_t n, uint64_t stream)
{
    *pool = (struct mw_pool){.v = mw_calloc(n, sizeof(float)), .n = n};
    for (size_t i = 0; i < n; i++) {
        pool->v[i] = (float)(2.0 * mw_rand_unit(1, stream, i) - 1.0);
    }
}

void mw_pool_release(struct mw_pool *pool)
{
    mw_free(pool->v);
    *pool = (struct mw_pool){0};
}

float *mw_pool_next(struct mw_pool *pool, size_t n)
{
    size_t room = (n + 15) / 16 * 16; /* cache lines */
    MW_ASSERT(room <= pool->n, "%zu of a pool of %zu", n, pool->n);
    if (pool->at + room > pool->n) {
        pool->at = 0;
    }
    float *p = pool->v + pool->at;
    pool->at += room;
    return p;
}
