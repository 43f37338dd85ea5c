/*
 * Fluid network: flows share links max-min fairly; time in picoseconds.
 *
 * A flow crosses up to MW_FLOW_HOPS links; its rate is such that no flow can
 * get more without one of equal or smaller rate getting less (Bertsekas and
 * Gallager, "Data Networks", 2nd ed., 6.5.2). Every flow has a bottleneck: a
 * full link on which no other flow is faster. Flows with the same bottleneck
 * have the same rate, so a link keeps one virtual clock for all of them and a
 * change of its level costs nothing per flow.
 *
 * When flows come or go only the links whose certificate breaks are solved
 * again: the set grows until every link outside it is neither overfull nor a
 * bottleneck that is no longer full, and no flow exceeds the level of a full
 * link that it crosses. The result is the exact max-min allocation.
 *
 *   struct mw_fluid *f = mw_fluid_new(n_links, capacity_Bps, NULL);
 *   mw_fluid_send(f, links, 2, 1e6, 1e-6, tag);
 *   mw_fluid_run(f);
 *
 * All calls with the same arguments give the same results, whatever the
 * machine. Not thread-safe; no shared state.
 */
#ifndef MW_SIM_NET_FLOW_H
#define MW_SIM_NET_FLOW_H

#include "base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MW_FLOW_HOPS = 8 };

struct mw_fluid;

/* A message has arrived. Called in the order of arrival; it may send. */
typedef void (*mw_fluid_fn)(void *ctx, struct mw_fluid *fluid, uint64_t tag);

struct mw_fluid_opts {
    mw_fluid_fn on_done;
    void *ctx;
    /* Completions within this time of an unsolved one share its solve. Rates
     * stay feasible, links are left idle by what completed: a link on which m
     * messages end is at most quantum * (1 + 1/2 + ... + 1/m) later. 0: exact.
     */
    double quantum_s;
    bool verify; /* check the certificate of every solve, abort if broken */
};

struct mw_fluid_stats {
    uint64_t n_messages; /* arrived */
    uint64_t n_solves, n_solved_links, n_rounds;
    uint64_t n_full_solves; /* solves that took in every active link */
    size_t peak_flows;
};

/* Capacities must be positive and finite (asserted; topologies are checked
 * when they are read). */
struct mw_fluid *mw_fluid_new(size_t n_links, const double *capacity_Bps,
                              const struct mw_fluid_opts *opts);
void mw_fluid_free(struct mw_fluid *fluid);

/*
 * Sends bytes >= 0 over the links after latency_s; on_done is called with the
 * tag when the last byte arrives. No links: arrives after the latency.
 */
void mw_fluid_send(struct mw_fluid *fluid, const uint32_t *links, int n_links,
                   double bytes, double latency_s, uint64_t tag);
/* Calls on_done after a delay: for computation between messages. */
void mw_fluid_timer(struct mw_fluid *fluid, double delay_s, uint64_t tag);
/* Runs until nothing is under way. Returns the time of the last arrival. */
mw_time mw_fluid_run(struct mw_fluid *fluid);
mw_time mw_fluid_now(const struct mw_fluid *fluid);
/* Changes a capacity from now on (a failed or slowed link). */
void mw_fluid_set_capacity(struct mw_fluid *fluid, uint32_t link,
                           double capacity_Bps);

/* Rate now of the flow with this tag (0: none): for tests. O(flows). */
double mw_fluid_rate(const struct mw_fluid *fluid, uint64_t tag);
/* Bytes that have crossed a link completely, of arrived messages. */
double mw_fluid_link_bytes(const struct mw_fluid *fluid, uint32_t link);
/* Seconds during which a link was a bottleneck with traffic. */
double mw_fluid_link_busy_s(const struct mw_fluid *fluid, uint32_t link);
void mw_fluid_stats(const struct mw_fluid *fluid, struct mw_fluid_stats *out);
/* NULL, or what is wrong with the allocation (static text). */
const char *mw_fluid_check(const struct mw_fluid *fluid);

/*
 * The same allocation by plain water-filling, for tests and small problems:
 * flow i crosses links route[first[i]] .. route[first[i + 1] - 1].
 */
void mw_maxmin_rates(size_t n_links, const double *capacity_Bps, size_t n_flows,
                     const uint32_t *first, const uint32_t *route,
                     double *out_rate_Bps);

#endif
