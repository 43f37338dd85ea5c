/*
 * Explanation nodes: every figure can say how it came about (as UCX's
 * protocol choice prints itself). A tree in an arena.
 */
#ifndef MW_SIM_COST_EXPLAIN_H
#define MW_SIM_COST_EXPLAIN_H

#include "base/mem.h"

#include <stdio.h>

struct mw_explain {
    const char *name;
    const char *formula; /* "2 m n k / (peak * efficiency)" */
    const char *source;  /* which table row or paper */
    const char *bound;   /* what limits it: compute, memory, links, network,
                            latency, host; NULL: not one thing */
    double value_s;      /* seconds */
    double count;        /* times the value is taken; 1 by default */
    struct mw_explain *first_child, *last_child, *next;
    struct mw_arena *arena;
};
/* A child of parent; NULL parent: nothing is recorded and NULL returned, so
 * cost functions pass explanations through without asking. */
struct mw_explain *mw_explain_child(struct mw_explain *parent, const char *name,
                                    double value_s, const char *formula,
                                    const char *source);
void mw_explain_print(const struct mw_explain *root, int max_depth, FILE *f);

#endif
