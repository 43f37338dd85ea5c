/*
 * Modelled curves of collectives: seconds over bytes, one curve for each
 * operation and shape of group of a system.
 *
 * The points come from a model of a folder above (sim/coll), asked when first
 * needed and kept; between them the time is a line in the logs of both. Half
 * an octave lies between two points, so a sum of latency and bytes over
 * bandwidth is off by 0.4 % at most. A point is a function of its key alone:
 * which thread asks first does not matter, and readers take no lock.
 */
#ifndef MW_SIM_COST_COLL_CURVE_H
#define MW_SIM_COST_COLL_CURVE_H

#include "hwdb/hwdb.h"
#include "sim/model/model.h"

#include <stdbool.h>

/* The ranks of one communicator as they lie on the machine. */
struct mw_group {
    int n_ranks;
    int n_nodes;        /* nodes the group touches */
    int ranks_per_node; /* of this group on one node (at most) */
    int nic_sharers;    /* groups of the same kind that use a node's NICs at
                           the same time: ranks of a node / ranks_per_node */
};

/* One answer of the model. */
struct mw_coll_point {
    double time_s;
    const char *source; /* of the figure; valid as long as the owner */
    char how[64];       /* "ring ll128, 24 channels"; may be empty */
    int n_channels;     /* blocks of its kernel, one a multiprocessor; 0: the
                           model does not say */
};
/* Answers for one operation, size and group; false when it cannot (whatever
 * the size, then). Never called twice at a time for the same owner. */
typedef bool (*mw_coll_point_fn)(void *owner, enum mw_coll_op op, double bytes,
                                 const struct mw_group *group,
                                 struct mw_coll_point *out);

struct mw_coll_curves;
struct mw_coll_curves *mw_coll_curves_new(mw_coll_point_fn point, void *owner);
void mw_coll_curves_free(struct mw_coll_curves *curves);
/* Seconds of a collective; bytes > 0. False when the model cannot say. O(1)
 * and without a lock once both points around the size are known. */
bool mw_coll_curves_time(struct mw_coll_curves *curves, enum mw_coll_op op,
                         double bytes, const struct mw_group *group,
                         double *out_s);
/* Channels of a large one, 64 MiB; 0 where the model cannot say. O(1). */
int mw_coll_curves_channels(struct mw_coll_curves *curves, enum mw_coll_op op,
                            const struct mw_group *group);
/* The model's own answer at this size, to explain the figure. */
bool mw_coll_curves_ask(struct mw_coll_curves *curves, enum mw_coll_op op,
                        double bytes, const struct mw_group *group,
                        struct mw_coll_point *out);

/* Tokens on their way to the ranks of their experts, or results back, by
 * kernels that were measured as such (DeepEP). */
struct mw_expert_exchange {
    int n_experts, top_k;
    int node_limit;     /* nodes that a token goes to at most; 0: any */
    double token_bytes; /* of a rank's tokens, each once */
    bool is_return;
    struct mw_group group;
};

/* The curves of every system of a database, lent to it (mw_hwdb_lend).
 * curves_of returns those of a system, which may be a changed copy of a row
 * (other NICs), NULL when there is no model for it; the library owns them. Any
 * thread may call it. */
struct mw_coll_library {
    struct mw_hwdb_loan loan;
    struct mw_coll_curves *(*curves_of)(struct mw_coll_library *library,
                                        const struct mw_system *system);
    /* Seconds of one exchange, and their source; false where the system's class
     * was not measured over so many nodes. NULL: nothing was. */
    bool (*experts_s)(struct mw_coll_library *library,
                      const struct mw_system *system,
                      const struct mw_expert_exchange *exchange, double *out_s,
                      const char **out_source);
};

#endif
