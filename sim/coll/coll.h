/*
 * How long a collective takes: three answers.
 *
 *   nccl   NCCL's own formula and choice (sim/coll/nccl.h)
 *   fit    the same choice and structure, each term corrected by ratios that
 *          were fitted on measurements (hwdb/data/coll_fit.csv), and a model
 *          of all-to-all and send/recv, which NCCL has none for
 *   event  flows over the topology (sim/coll/event.h)
 *
 *   struct mw_coll_world *w;
 *   mw_coll_world_new(db, "dgx-h100", NULL, &w, &err);
 *   struct mw_coll_query q = {.op = MW_ALL_REDUCE, .bytes = 1 << 30,
 *                             .n_nodes = 2, .ranks_per_node = 8};
 *   mw_coll_predict(w, MW_COLL_FIT, &q, &answer, &err);
 *
 * Sizes are those of nccl-tests: the whole buffer (all-gather, reduce-scatter
 * and all-to-all: n blocks), one rank's message for send_recv.
 */
#ifndef MW_SIM_COLL_COLL_H
#define MW_SIM_COLL_COLL_H

#include "hwdb/hwdb.h"
#include "sim/coll/nccl.h"
#include "sim/model/model.h"

enum mw_coll_model { MW_COLL_NCCL, MW_COLL_FIT, MW_COLL_EVENT, MW_COLL_MODELS };
const char *mw_coll_model_name(enum mw_coll_model model); /* "fit" */
/* MW_EUSAGE naming the three. */
enum mw_status mw_coll_model_parse(const char *text, enum mw_coll_model *out,
                                   struct mw_err *err);

struct mw_coll_query {
    enum mw_coll_op op;
    double bytes; /* > 0 */
    enum mw_nccl_type type;
    enum mw_nccl_redop redop;
    int n_nodes;        /* nodes (trays) that the group touches */
    int ranks_per_node; /* of the group, on each of them */
    int nic_sharers;    /* equal groups that use the NICs of the node (of the
                           whole NVLink domain) at the same time, 0: one; where
                           their NICs are the same each gets its part */
    int domain_trays;   /* nodes of one NVLink domain; 0: the system's */
    const char *fabric; /* class of the network instead of the system's
                           ("ib", "efa", "roce", ...); NULL: the system's */
};

struct mw_coll_answer {
    double time_s;
    double algbw_Bps, busbw_Bps; /* as nccl-tests defines them */
    bool has_choice;             /* the four below are NCCL's */
    enum mw_nccl_algo algo;
    enum mw_nccl_proto proto;
    int n_channels, n_threads;
    double ratio;       /* fit: correction of NCCL's time; 1 otherwise */
    const char *source; /* class of the ratios, or why there are none; valid
                           as long as the world */
};

struct mw_coll_world; /* a system, its machines and searches; caches */

/* opts NULL: NCCL's defaults. Unknown system: MW_EINPUT. The database must
 * outlive the world. Searches run when first needed (milliseconds to a
 * second) and are kept. */
enum mw_status mw_coll_world_new(const struct mw_hwdb *db, const char *system,
                                 const struct mw_nccl_opts *opts,
                                 struct mw_coll_world **out,
                                 struct mw_err *err);
/* The same for a changed copy of a system's row: other NICs. */
enum mw_status mw_coll_world_of(const struct mw_hwdb *db,
                                const struct mw_system *system,
                                const struct mw_nccl_opts *opts,
                                struct mw_coll_world **out, struct mw_err *err);
void mw_coll_world_free(struct mw_coll_world *world);
/* Does NCCL run on its device? */
bool mw_coll_world_has_nccl(const struct mw_coll_world *world);
const struct mw_system *mw_coll_world_system(const struct mw_coll_world *world);
/* Does the switch inside the scale-up domain add up and copy (NVLS: an NVSwitch
 * and GPUs from Hopper on)? */
bool mw_coll_world_has_nvls(const struct mw_coll_world *world);

/* One rank, or bytes 0: time 0. MW_EINPUT for a group that does not fit the
 * system. O(1) after the first call for a group shape. */
enum mw_status mw_coll_predict(struct mw_coll_world *world,
                               enum mw_coll_model model,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *out, struct mw_err *err);

/* Bus bandwidth / algorithm bandwidth of nccl-tests: 2 (n-1)/n for all-reduce,
 * (n-1)/n for all-gather, reduce-scatter and all-to-all, 1 for the others. */
double mw_coll_bus_factor(enum mw_coll_op op, int n_ranks);

/* The communicator and graphs behind a group (NULL and MW_EINPUT where there
 * is no NCCL for the device); owned by the world. Trays of one NVLink domain
 * count as one node. */
enum mw_status mw_coll_comm(struct mw_coll_world *world,
                            const struct mw_coll_query *query,
                            const struct mw_nccl_comm **out_comm,
                            const struct mw_nccl_graphs **out_graphs,
                            struct mw_err *err);

/* ---- ratios ---------------------------------------------------------------
 */
/* One knot of the correction: measured time / model's time. */
struct mw_coll_knot {
    char cls[48];  /* "hopper.nvswitch", "hopper.efa" */
    char op[16];   /* "all_reduce" */
    char algo[16]; /* "ring", "nvls", ...; "p2p" */
    int scale;     /* ranks inside a node, nodes across */
    double log2_bytes;
    double ratio;
    int n_points;
};
struct mw_coll_fit {
    MW_ARRAY(struct mw_coll_knot)
    knot; /* sorted by class, op, algo, scale,
             size */
};
void mw_coll_fit_release(struct mw_coll_fit *fit);
/* Reads coll_fit.csv of the data folder (MESHWRIGHT_DATA, source tree,
 * installed) and then of the overlay, if one is there. */
enum mw_status mw_coll_fit_load(const struct mw_hwdb *db,
                                struct mw_coll_fit *out, struct mw_err *err);
/* Uses other ratios than the file's from now on (copied); for fitting. */
void mw_coll_world_set_fit(struct mw_coll_world *world,
                           const struct mw_coll_fit *fit);
/* Keys of a query in the table: class, op, algorithm, scale. */
void mw_coll_keys(struct mw_coll_world *world,
                  const struct mw_coll_query *query,
                  const struct mw_coll_answer *nccl, struct mw_coll_knot *out);

#endif
