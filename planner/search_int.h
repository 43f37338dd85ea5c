/* State of one search, shared by search.c and stages.c. Private. */
#ifndef MW_PLANNER_SEARCH_INT_H
#define MW_PLANNER_SEARCH_INT_H

#include "planner/space.h"

struct search {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_search_opts *opts;
    struct mw_search_result *result;
    struct mw_candidates all;
    bool is_mixed; /* dense and MoE layers: layers differ in cost */
    double usable_bytes;
    double best_s; /* fastest simulated so far */
    int jobs;
    int64_t start_ns;
};

/* [pp * vpp] layers, the first stages one more; in the result's arena. */
int *mw_search_even_layers(struct search *s, const struct mw_layout *layout);

/*
 * Puts the integer program's partition into c->layers when the layers are
 * alike and stages are uneven. Returns whether c->layers changed.
 */
bool mw_search_partition(struct search *s, struct mw_candidate *c);

#endif
