/*
 * Remembered loads of routers (router_load.c): a table by hash whose slots hold
 * the latest load that fell on them, so its size does not grow with a search.
 */
#include "sim/step/fast_int.h"

#include <assert.h>
#include <string.h>

enum { LOADS = 4096 };

static struct mw_fast_load_key key_of(const struct mw_fast *f,
                                      const struct mw_layout *l)
{
    return (struct mw_fast_load_key){
        .inside = l->tp * l->cp,
        .ep = l->ep,
        .etp = l->etp,
        .dp = l->dp,
        .micro_batch = l->micro_batch,
        .ranks_per_node =
            mw_cost_group(l, MW_DIM_EP, f->ctx->domain_gpus).ranks_per_node,
        .n_stages = l->pp * l->vpp,
        .learns = mw_router_learns_by_layer(l)};
}

struct mw_router_load mw_fast_router_load(struct mw_fast *f,
                                          const struct mw_layout *layout)
{
    static_assert(sizeof(struct mw_fast_load_key) % sizeof(uint64_t) == 0,
                  "whole words");
    struct mw_fast_load_key key;
    struct mw_fast_load *at;

    if (f->scenario->model.moe.n_experts == 0) {
        return mw_router_load_of(f->ctx, f->scenario, layout);
    }
    if (f->loads == NULL) {
        f->loads = mw_calloc(LOADS, sizeof *f->loads);
    }
    key = key_of(f, layout);
    at = &f->loads[mw_fast_hash(&key, sizeof key) % LOADS];
    if (memcmp(&at->key, &key, sizeof key) != 0) {
        at->load = mw_router_load_of(f->ctx, f->scenario, layout);
        at->key = key;
    }
    return at->load;
}
