/*
 * How long a collective takes: three answers.
 *
 *   nccl   NCCL's own formula and choice (sim/coll/nccl.h)
 *   fit    the same structure with what is known of the network's plugin
 *          (hwdb/data/coll_plugins.csv), corrected by what measurements of
 *          like machines show (coll_fit.csv), and a model of all-to-all and
 *          send/recv, which NCCL has none for
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
#include "sim/coll/coll_engine.h"
#include "sim/coll/nccl.h"
#include "sim/model/model.h"

enum mw_coll_model { MW_COLL_NCCL, MW_COLL_FIT, MW_COLL_EVENT, MW_COLL_MODELS };
const char *mw_coll_model_name(enum mw_coll_model model); /* "fit" */
/* MW_EUSAGE naming the three. */
enum mw_status mw_coll_model_parse(const char *text, enum mw_coll_model *out,
                                   struct mw_err *err);

/* What runs the collective and reads the clock. Kernel launches of one process
 * for many GPUs, or of Python, come on top of the collective; a profiler sees
 * a kernel wait for the slowest rank. Overheads: hwdb coll_harness.csv. */
enum mw_coll_harness {
    MW_HARNESS_TESTS,       /* nccl-tests, a process for every GPU */
    MW_HARNESS_ONE_PROCESS, /* nccl-tests -g N: one for all GPUs of a node */
    MW_HARNESS_TORCH,       /* calls of torch.distributed between barriers */
    MW_HARNESS_PROFILER,    /* kernel times of a profiler on one rank */
    MW_HARNESSES
};
const char *mw_coll_harness_name(enum mw_coll_harness harness); /* "torch" */
/* False for a name that is none of them; *out is then the first. */
bool mw_coll_harness_find(const char *name, enum mw_coll_harness *out);

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
    enum mw_coll_harness harness; /* fit and event only */
    enum mw_coll_engine engine;   /* fit: all-reduce of an inference engine on
                                     one node instead of NCCL's */
    bool is_eager;                /* of the engine: not captured in a graph */
};

struct mw_coll_answer {
    double time_s;
    double algbw_Bps, busbw_Bps; /* as nccl-tests defines them */
    bool has_choice;             /* the four below are NCCL's */
    enum mw_nccl_algo algo;
    enum mw_nccl_proto proto;
    int n_channels, n_threads;
    const char *kernel; /* "one_shot", "two_shot" of an engine; NULL: NCCL's */
    double ratio;       /* fit: correction of NCCL's time; 1 otherwise */
    double overhead_s;  /* fit: of the harness, contained in time_s */
    const char *source; /* what the correction rests on, or why there is none;
                           valid as long as the world */
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

/* ---- corrections ----------------------------------------------------------
 */
/* One measured ratio and the weight that the fit gave it: the correction of
 * any question is exp of the sum of weight x likeness (coll_kernel.c). */
struct mw_coll_knot {
    char campaign[64]; /* file; of collections also machine and version */
    char machine[32];  /* slug */
    char cls[48];      /* architecture.inside or architecture.network:
                          "hopper.nvswitch", "hopper.efa" */
    char op[16];       /* "all_reduce" */
    char algo[16];     /* "ring", "nvls", ...; "p2p"; "plain" without NCCL */
    char proto[8];     /* "ll", ...; "-" */
    int ranks, nodes;  /* of a node, and nodes, in NCCL's sense */
    double log2_bytes; /* a whole number in the table */
    double share;      /* latency / time of the model */
    double net;        /* what the network between nodes takes / time */
    double ratio;      /* measured (less the harness) / model's time */
    int n_points;
    double weight;
};
/* What a harness was seen to add in one campaign. */
struct mw_coll_overhead {
    enum mw_coll_harness harness;
    char campaign[64];
    double seconds;
};
struct mw_coll_fit {
    MW_ARRAY(struct mw_coll_knot) knot;
    MW_ARRAY(struct mw_coll_overhead) overhead;
    MW_ARRAY(struct mw_engine_row) engine;
};
void mw_coll_fit_release(struct mw_coll_fit *fit);
/* Reads coll_fit.csv, coll_harness.csv and coll_kernels.csv of the data folder
 * (MESHWRIGHT_DATA, source tree, installed) and then of the overlay, if they
 * are there. */
enum mw_status mw_coll_fit_load(const struct mw_hwdb *db,
                                struct mw_coll_fit *out, struct mw_err *err);
/* Median over the campaigns; 0: none. */
double mw_coll_fit_overhead_s(const struct mw_coll_fit *fit,
                              enum mw_coll_harness harness);
/* Uses other corrections than the tables' from now on (copied); for fitting. */
void mw_coll_world_set_fit(struct mw_coll_world *world,
                           const struct mw_coll_fit *fit);
/* What the correction of a query depends on: the fields machine to share of a
 * knot. `answer`: of MW_COLL_FIT (its choice). */
void mw_coll_keys(struct mw_coll_world *world,
                  const struct mw_coll_query *query,
                  const struct mw_coll_answer *answer,
                  struct mw_coll_knot *out);
/* The model that the correction multiplies, for the choice of `answer`, at
 * another size; net_s: of the time, what the network between nodes takes. */
struct mw_coll_time {
    double latency_s, time_s, net_s;
};
struct mw_coll_time mw_coll_base(struct mw_coll_world *world,
                                 const struct mw_coll_query *query,
                                 const struct mw_coll_answer *answer,
                                 double bytes);

#endif
