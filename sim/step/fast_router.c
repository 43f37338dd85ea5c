/*
 * Remembered loads of routers (router_load.c): a table by hash, some places
 * tried, the first one's load forgotten where they are full, so its size does
 * not grow with a search.
 */
#include "sim/step/fast_int.h"

#include <assert.h>
#include <string.h>

enum { LOADS = 4096, TRIES = 8 };

struct mw_fast_load {
    struct mw_router_group group; /* n_ranks 0: empty */
    struct mw_router_load load;
};

static bool is_of(const struct mw_fast_load *at,
                  const struct mw_router_group *g)
{
    return memcmp(&at->group, g, sizeof *g) == 0;
}

static struct mw_fast_load *place_of(struct mw_fast *f,
                                     const struct mw_router_group *g)
{
    size_t first = mw_fast_hash(g, sizeof *g);

    for (size_t i = 0; i < TRIES; i++) {
        struct mw_fast_load *at = &f->loads[(first + i) % LOADS];

        if (at->group.n_ranks == 0 || is_of(at, g)) {
            return at;
        }
    }
    return &f->loads[first % LOADS];
}

struct mw_router_load mw_fast_router_load(struct mw_fast *f,
                                          const struct mw_layout *layout)
{
    static_assert(sizeof(struct mw_router_group) % sizeof(uint64_t) == 0,
                  "whole words");
    const struct mw_workload *w = &f->scenario->workload;

    if (f->scenario->model.moe.n_experts == 0) {
        return mw_router_load_of(f->ctx, f->scenario, layout);
    }
    if (f->loads == NULL) {
        f->loads = mw_calloc(LOADS, sizeof *f->loads);
        mw_router_sums_init(&f->router, f->ctx, f->scenario);
    }
    struct mw_router_group g =
        mw_router_group_of(&f->router, f->ctx, f->scenario, layout);
    struct mw_fast_load *at = place_of(f, &g);

    if (!is_of(at, &g)) {
        at->load = mw_router_group_load(&f->router, w, &g);
        at->group = g;
    }
    return mw_router_load_under(&at->load, w, layout);
}

void mw_fast_loads_free(struct mw_fast *f)
{
    mw_router_sums_release(&f->router);
    mw_free(f->loads);
}
