/* Private to sim/coll: what a world keeps. */
#ifndef MW_SIM_COLL_COLL_INT_H
#define MW_SIM_COLL_COLL_INT_H

#include "sim/coll/coll.h"
#include "sim/coll/event.h"
#include "sim/coll/machine.h"

/* Where a group lies: n_nodes nodes in NCCL's sense of `trays` trays of ppn
 * ranks. All ints, so that two can be compared bytewise. */
struct coll_place {
    int n_nodes, trays, ppn, own_nics;
};
struct coll_search {
    int ppn, trays, own_nics;
    bool multi;
    int n_nics; /* of the described machine, per tray */
    struct mw_nccl_graphs graphs;
};
struct coll_group {
    struct coll_place place;
    const struct mw_nccl_graphs *graphs;
    int n_nics; /* that the group uses on each tray */
    struct mw_nccl_comm comm;
};
struct mw_coll_world {
    const struct mw_hwdb *db;
    struct mw_system own; /* what system points to */
    const struct mw_system *system;
    struct mw_nccl_opts opts;
    bool has_nccl;
    struct mw_machine_shape shape;
    MW_ARRAY(struct coll_search *) searched;
    MW_ARRAY(struct coll_group *) group;
    struct mw_coll_fit fit;
    struct mw_congestion congestion;
};

struct coll_place coll_place_of(const struct mw_coll_world *world,
                                const struct mw_coll_query *query);

/* NCCL's function of an operation that has one (asserted). */
enum mw_nccl_func coll_func_of(enum mw_coll_op op);

/* Ratio for a key at a size; 1 and a reason when there is no knot. */
double coll_fit_ratio(const struct mw_coll_fit *fit,
                      const struct mw_coll_knot *key, double log2_bytes,
                      const char **out_source);

/* Longest path of a table. */
enum { MW_COLL_PATH_MAX = 1024 };

/* Into the order that look-ups need. */
void coll_fit_sort(struct mw_coll_fit *fit);

/* Replaces a->time_s by that of the event form. */
enum mw_status coll_event_time(struct mw_coll_world *world,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *a, struct mw_err *err);

#endif
