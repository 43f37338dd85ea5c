/*
 * Folding by symmetry: flows that look alike share one rate, so that a step of
 * a hundred thousand flows is solved as a handful of classes.
 *
 * The flow-link graph is coloured (links by capacity) and the colours refined
 * until every flow of a class crosses the same numbers of links of each class
 * and every link of a class carries the same numbers of flows of each class:
 * an equitable partition. Max-min rates depend on those numbers alone, so that
 * water-filling the classes gives the exact rates. (Colour refinement: Cardon
 * and Crochemore, "Partitioning a graph in O(|A| log |V|)", 1982; here with
 * 64-bit mixed sums instead of sorting, right except with probability about
 * classes^2 / 2^64.)
 */
#ifndef MW_SIM_NET_FOLD_H
#define MW_SIM_NET_FOLD_H

#include <stddef.h>
#include <stdint.h>

struct mw_fold {
    size_t n_flow_classes, n_link_classes;
    uint32_t *flow_class; /* of every flow */
    uint32_t *link_class; /* of every link */
    double *rate_Bps;     /* of every flow class */
    size_t *n_flows;      /* in every flow class */
    int rounds;
};

/* Flow i crosses links route[first[i]] .. route[first[i + 1] - 1], each at most
 * once. O(rounds x route length). Release with mw_fold_release. */
void mw_fold_make(size_t n_links, const double *capacity_Bps, size_t n_flows,
                  const uint32_t *first, const uint32_t *route,
                  struct mw_fold *out);
void mw_fold_release(struct mw_fold *fold);

#endif
