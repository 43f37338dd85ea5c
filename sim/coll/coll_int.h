/* Private to sim/coll: what a world keeps. */
#ifndef MW_SIM_COLL_COLL_INT_H
#define MW_SIM_COLL_COLL_INT_H

#include "sim/coll/coll.h"
#include "sim/coll/event.h"
#include "sim/coll/machine.h"

/* Where a group lies: n_nodes nodes in NCCL's sense of `trays` trays of ppn
 * ranks, `stride` GPUs apart. All ints, so that two can be compared bytewise.
 */
struct coll_place {
    int n_nodes, trays, ppn, stride, own_nics;
};
struct coll_search {
    int ppn, trays, stride, own_nics;
    bool multi;
    int n_nics; /* of the described machine, per tray */
    struct mw_nccl_graphs graphs;
};
struct coll_group {
    struct coll_place place;
    bool has_plugin; /* with the settings of the network's plugin */
    const struct mw_nccl_graphs *graphs;
    int n_nics; /* that the group uses on each tray */
    struct mw_nccl_comm comm;
};

/* What NCCL's network plugin brings (coll_plugins.csv). */
struct coll_plugin {
    bool is_any;
    bool no_gdr;     /* the host carries what NICs send and receive */
    double ring_Bps; /* of a ring over whole nodes; 0: what NCCL takes it for */
    float latency_us;
    uint8_t protos; /* bit per protocol it leaves on */
    /* Copies of LL and LL128 by the host, 0: none: loads and stores up to so
     * many bytes, a call of the driver above. */
    double copy_above_bytes, copy_call_s, copy_Bps;
};
enum mw_status coll_plugin_find(const struct mw_hwdb *db,
                                const struct mw_system *system, bool is_socket,
                                struct coll_plugin *out, struct mw_err *err);

/* ---- likeness (coll_kernel.c) ---- */
/* What a correction depends on, ready to be compared. */
struct coll_feature {
    uint32_t arch, kind, machine, campaign; /* hashes of names */
    uint8_t family, op, algo, proto;
    bool is_multi, is_odd, is_plain;
    double log2_ranks, log2_nodes, log2_bytes;
    double net;         /* share of the network between nodes */
    double share, knee; /* latency / time; log2(latency / wire), cut */
};
void coll_feature_of(const struct mw_coll_knot *knot, struct coll_feature *out);
/* Covariance of the log corrections of two points. */
double coll_kernel(const struct coll_feature *a, const struct coll_feature *b);
/* What points of one campaign share beyond that, and the noise of a point. */
double coll_kernel_campaign(const struct coll_feature *a,
                            const struct coll_feature *b);
double coll_kernel_noise(const struct coll_feature *a);
/* How near the nearest knots are: same class and about as many nodes, same
 * class, same GPUs, nothing. */
enum coll_kinship {
    COLL_KIN_NONE,
    COLL_KIN_GPU,
    COLL_KIN_CLASS,
    COLL_KIN_SEEN
};
enum coll_kinship coll_kinship_of(const struct coll_feature *knots, size_t n,
                                  const struct coll_feature *at);

/* Remembered sums: a correction at a power of two. */
struct coll_memo_key {
    int octave, n_nodes, ppn, domain_trays, sharers;
    uint32_t fabric;
    uint8_t op, algo, proto, pad;
};
struct coll_memo {
    struct coll_memo_key key;
    bool is_set;
    enum coll_kinship kinship;
    double log_ratio;
};
enum { COLL_MEMOS = 4096 };

struct mw_coll_world {
    const struct mw_hwdb *db;
    struct mw_system own; /* what system points to */
    const struct mw_system *system;
    struct mw_nccl_opts opts;        /* the user's */
    struct mw_nccl_opts plugin_opts; /* and the plugin's, for the fit */
    struct coll_plugin plugin;
    bool has_nccl;
    struct mw_machine_shape shape;
    MW_ARRAY(struct coll_search *) searched;
    MW_ARRAY(struct coll_group *) group;
    struct mw_coll_fit fit;
    struct coll_feature *features; /* of fit.knot */
    struct coll_memo *memo;        /* COLL_MEMOS */
    struct mw_congestion congestion;
};

struct coll_place coll_place_of(const struct mw_coll_world *world,
                                const struct mw_coll_query *query);

/* NCCL's function of an operation that has one (asserted). */
enum mw_nccl_func coll_func_of(enum mw_coll_op op);

/* Trays of an NVLink domain of the system. */
int coll_domain_trays(const struct mw_coll_world *world);

/* The communicator of a group, with or without the plugin's settings. */
enum mw_status coll_group_of(struct mw_coll_world *world,
                             const struct mw_coll_query *query, bool has_plugin,
                             const struct coll_group **out, struct mw_err *err);

/* Filling of a tree's pipeline and copies by the host (coll_pipe.c). */
double coll_pipe_s(const struct mw_coll_world *world,
                   const struct coll_group *group, enum mw_nccl_func func,
                   const struct mw_coll_answer *answer, double bytes);

/* Part of NCCL's latency that a ring of several chunks hides. */
double coll_pipe_hidden(const struct coll_group *group, enum mw_nccl_func func,
                        const struct mw_coll_answer *answer, double bytes);

/* The model without correction: time and choice. */
enum mw_status coll_base_answer(struct mw_coll_world *world,
                                const struct mw_coll_query *query,
                                bool has_plugin, struct mw_coll_answer *out,
                                struct mw_err *err);

/* Corrects an answer of coll_base_answer: ratio, overhead, source. */
void coll_fit_apply(struct mw_coll_world *world,
                    const struct mw_coll_query *query,
                    struct mw_coll_answer *a);
/* The same of an engine's all-reduce: `a` is NCCL's, corrected. */
void coll_engine_apply(struct mw_coll_world *world,
                       const struct mw_coll_query *query,
                       struct mw_coll_answer *a);
void coll_fit_copy(const struct mw_coll_fit *from, struct mw_coll_fit *to);
/* After fit.knot changed: features, memory. */
void coll_fit_prepare(struct mw_coll_world *world);

/* Longest path of a table. */
enum { MW_COLL_PATH_MAX = 1024 };

/* Replaces a->time_s by that of the event form. */
enum mw_status coll_event_time(struct mw_coll_world *world,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *a, struct mw_err *err);

#endif
