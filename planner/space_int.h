/* Private to the walk of the space: its state, and the levels of space_rare.c.
 */
#ifndef MW_PLANNER_SPACE_INT_H
#define MW_PLANNER_SPACE_INT_H

#include "planner/space.h"

struct mw_space_walker {
    const struct mw_space *s;
    struct mw_tally *tally;
    mw_leaf_fn leaf;
    void *arg;
    uint64_t at;
    enum mw_walk how;
    int order[MW_SPACE_ORDERS_MAX], n_orders;
    int shard[MW_SPACE_SHARDS_MAX], n_shards; /* values of dp_shard */
};

/* space_inner.c: the values of the inner dimensions. */
void mw_space_find_inner(struct mw_space *space);

/* Tallies n layouts that a rule forbids, `layout` the one it was asked of. */
void mw_walk_drop(struct mw_space_walker *w, const char *rule,
                  const struct mw_layout *layout, uint64_t n);
/* Walks all that is open where everything down to ZeRO is set, or only counts
 * it; how many layouts there are. */
uint64_t mw_walk_rare(struct mw_space_walker *w, struct mw_layout layout,
                      bool only_count);

#endif
