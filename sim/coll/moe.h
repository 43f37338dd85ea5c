/*
 * Expert all-to-all-v: who sends how many tokens to whom, and how long
 * dispatch and combine take.
 *
 * Routing is a probability per expert (uniform, Zipf, power law, histogram);
 * loads are expectations, so that there is no noise in a prediction. Experts
 * lie in order on the ranks, E / n on each.
 *
 *   share of rank j   p_j = sum of its experts' probabilities
 *   copies            a token goes once to each rank (or node) that holds one
 *                     of its k experts: expected 1 - C(E - E_j, k) / C(E, k)
 *                     for uniform routing, 1 - (1 - p_j)^k otherwise
 *   node-limited      a token visits at most L nodes (DeepSeek-V3: 4)
 *   time of a phase   alpha + busiest rank's bytes / bandwidth, inside the node
 *                     and over the network, whichever is longer
 *
 * alpha and bandwidth of DeepEP's kernels are fitted rows (hwdb
 * coll_moe.csv). Sources: DeepSeek-V3 report (arXiv 2412.19437) sections 2.1
 * and 3.2; DeepEP README; power law by inverse CDF as published with
 * aiconfigurator (x = ((b^(1-a) - c^(1-a)) u + c^(1-a))^(1/(1-a))).
 */
#ifndef MW_SIM_COLL_MOE_H
#define MW_SIM_COLL_MOE_H

#include "base/err.h"
#include "base/mem.h"
#include "hwdb/hwdb.h"

enum mw_moe_routing {
    MW_MOE_UNIFORM,
    MW_MOE_ZIPF,      /* expert i: weight 1 / (i + 1)^a */
    MW_MOE_POWER_LAW, /* weights at equal steps of the inverse CDF */
    MW_MOE_HISTOGRAM
};
struct mw_moe_traffic {
    int n_experts, top_k;
    int n_ranks, ranks_per_node; /* expert parallel group */
    int n_nodes_max;             /* per token; 0: no limit */
    enum mw_moe_routing routing;
    double exponent;         /* Zipf, power law */
    double low, high;        /* power law: range of a weight */
    const double *histogram; /* n_experts weights */
    bool shuffle;            /* experts laid out in a fixed random order */
    uint64_t seed;
};
struct mw_moe_load {
    double *p;            /* per expert: tokens routed to it / (tokens k) */
    double *rank_share;   /* per rank: copies received / (all tokens), dedup. */
    double *node_share;   /* per node: the same for nodes */
    double max_over_mean; /* of the experts' tokens on a rank */
    double copies_per_token, nodes_per_token; /* expected */
    int n_ranks, n_nodes;
};
/* MW_EINPUT for impossible numbers. Release with mw_moe_load_release. */
enum mw_status mw_moe_load(const struct mw_moe_traffic *traffic,
                           struct mw_moe_load *out, struct mw_err *err);
void mw_moe_load_release(struct mw_moe_load *load);

/* Of an element of fp8 with a 4-byte scale for every 128 (DeepEP). */
#define MW_MOE_FP8_BYTES 1.03125

enum mw_moe_kernel {
    MW_MOE_NORMAL,      /* DeepEP; over a network once to each node */
    MW_MOE_LOW_LATENCY, /* DeepEP; k copies, without sharing */
    MW_MOE_TWO_SIDED,   /* TensorRT-LLM inside an NVLink domain */
    MW_MOE_ONE_SIDED,
    MW_MOE_KERNELS
};
const char *mw_moe_kernel_name(enum mw_moe_kernel kernel); /* "low_latency" */
bool mw_moe_kernel_find(const char *name, enum mw_moe_kernel *out);
struct mw_moe_query {
    enum mw_moe_kernel kernel;
    double tokens_per_rank;
    int hidden;
    double dispatch_bytes; /* per element: 1 fp8 (with scales), 2 bf16 */
    double combine_bytes;
    int sms; /* normal kernels; 0: 24 */
};
struct mw_moe_time {
    double dispatch_s, combine_s;
    double balanced_dispatch_s, balanced_combine_s; /* even experts */
    double imbalance_s; /* lost to imbalance in both */
    const char *source; /* which rows priced it */
};
struct mw_moe_table; /* rows of coll_moe.csv */
enum mw_status mw_moe_table_load(const struct mw_hwdb *db,
                                 struct mw_moe_table **out, struct mw_err *err);
void mw_moe_table_free(struct mw_moe_table *table);
/* Were the kernels measured on the system's class, inside a node or, with
 * nodes > 1, over a network? */
bool mw_moe_is_measured(const struct mw_moe_table *table,
                        const struct mw_system *system,
                        enum mw_moe_kernel kernel, int nodes);
/* Bytes of the elements that bound a phase: what the busiest rank takes (over
 * a network, for normal kernels, the busiest node), per byte of an element. */
double mw_moe_elements(const struct mw_moe_load *load,
                       const struct mw_moe_traffic *traffic,
                       const struct mw_moe_query *query, bool is_balanced);
/*
 * Time of both phases on a system. Classes without rows are priced with the
 * links of the system at 0.85 of their bandwidth and say so. A row of another
 * number of nodes or SMs answers where it is the nearest.
 */
enum mw_status mw_moe_predict(const struct mw_moe_table *table,
                              const struct mw_system *system,
                              const struct mw_moe_traffic *traffic,
                              const struct mw_moe_query *query,
                              struct mw_moe_time *out, struct mw_err *err);

#endif
