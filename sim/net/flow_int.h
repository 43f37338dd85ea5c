/* Private to the fluid network: flows, links, heaps. */
#ifndef MW_SIM_NET_FLOW_INT_H
#define MW_SIM_NET_FLOW_INT_H

#include "base/mem.h"
#include "sim/net/flow.h"

#include <assert.h>

#define FLOW_NONE UINT32_MAX
/* Relative slack of the certificate: rounding of sums of a few thousand. */
#define FLOW_EPS 1e-10

/* What the solver touches of a flow. Its rate is the level of its home. */
struct flow {
    uint32_t home;  /* committed bottleneck link; FLOW_NONE: not yet solved */
    uint32_t bn;    /* bottleneck in the solve under way */
    uint32_t stamp; /* 2 epoch: free in this solve; 2 epoch + 1: fixed */
    uint32_t n;
    uint32_t link[MW_FLOW_HOPS];
};
static_assert(sizeof(struct flow) <= 64, "one cache line");

/* The rest of it. */
struct flow_rest {
    double finish; /* clock of `home` at which the last byte arrives */
    double bytes;
    uint64_t tag;
    uint32_t heap_at;          /* place in the heap of home */
    uint32_t at[MW_FLOW_HOPS]; /* place in the list of each link */
};

struct fluid_link {
    double cap_Bps, load_Bps;
    double level_Bps; /* rate of the flows that are at home here */
    double clock;     /* bytes served to each of them */
    mw_time clock_t;
    MW_ARRAY(uint32_t) list;  /* flow << 3 | hop, all flows that cross */
    MW_ARRAY(uint32_t) heap;  /* flows at home here, by finish */
    uint32_t key_at;          /* place among the keys; FLOW_NONE: none */
    uint32_t in_set, touched; /* epochs */
    double background_Bps, background_max_Bps, delta_Bps, new_level_Bps;
    uint32_t n_free;
    double bytes, busy_s;
};

struct fluid_key {
    mw_time t;
    uint32_t link;
};

struct pending {
    mw_time t;
    uint64_t seq, tag;
    double bytes;
    uint32_t n; /* links; FLOW_NONE: a timer */
    uint32_t link[MW_FLOW_HOPS];
};

struct mw_fluid {
    struct mw_fluid_opts opts;
    mw_time now, quantum, solve_by; /* solve_by: when a put-off solve is due */
    struct fluid_link *link;
    size_t n_links;
    MW_ARRAY(struct flow) flow;
    MW_ARRAY(struct flow_rest) rest; /* by the same number */
    MW_ARRAY(uint32_t) unused;       /* free slots of flow */
    MW_ARRAY(struct fluid_key) key;  /* 4-ary heap of links by next arrival */
    /* Messages in their latency: those with times in order in a ring, others
     * in a binary heap. */
    struct pending *ring;
    size_t ring_cap, ring_head, ring_n;
    MW_ARRAY(struct pending) later;
    uint64_t seq;
    MW_ARRAY(uint32_t) fresh; /* flows without a rate */
    MW_ARRAY(uint32_t) set;   /* links to solve */
    MW_ARRAY(uint32_t) touched;
    MW_ARRAY(uint32_t) fixed; /* flows in the order in which they were fixed */
    int n_full_left;          /* solves to start with all links */
    MW_ARRAY(struct fluid_key) level_heap; /* indices into set, by level */
    MW_ARRAY(double) level_key;
    MW_ARRAY(uint64_t) done;
    uint32_t epoch;
    size_t n_active;
    struct mw_fluid_stats stats;
};

void fluid_solve(struct mw_fluid *f);
/* Puts a link whose certificate may be broken on the list for the next solve.
 */
void fluid_suspect(struct mw_fluid *f, uint32_t link);
/* Serves the flows at home on a link until now. */
void fluid_advance(struct mw_fluid *f, struct fluid_link *l);
/* Inserts, moves or removes the key of a link after its heap or level changed.
 */
void fluid_rekey(struct mw_fluid *f, uint32_t link);
void fluid_home_push(struct mw_fluid *f, uint32_t link, uint32_t flow);
void fluid_home_remove(struct mw_fluid *f, uint32_t link, uint32_t flow);

#endif
