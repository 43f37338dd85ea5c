/*
 * The one place that knows how fast a device or a wire is.
 *
 *   operator x shape x dtype x device -> time, and which rung priced it:
 *   exact row -> interpolation in the measured table -> roofline.
 *
 * Rows of the measured kernel table (hwdb kernels) are keyed
 *   gemm          pass F (x W^T: NT), B (dY W: NN), W (dY^T x: TN); m, n, k
 *   attention     pass F, B;  m = tokens of a sequence, n = heads * sequences,
 *                 k = head_dim
 *   norm activation add rotary embedding cross_entropy  pass F, B (W for norm
 *                 and embedding: the parameter gradient); m = rows, n = width
 *   optimizer     pass F; m = parameters, n = 1
 * and curves are keyed by collective name ("all_reduce", ..., "send_recv").
 */
#ifndef MW_SIM_COST_COST_H
#define MW_SIM_COST_COST_H

#include "hwdb/hwdb.h"
#include "sim/cost/explain.h"
#include "sim/model/model.h"

enum mw_rung {
    MW_RUNG_EXACT,
    MW_RUNG_TABLE,    /* interpolated between measured shapes */
    MW_RUNG_ROOFLINE, /* peak rate x efficiency, or bandwidth */
    MW_RUNG_CURVE,    /* measured collective curve */
    MW_RUNG_ALPHA_BETA,
    MW_RUNG_COUNT
};
const char *mw_rung_name(enum mw_rung rung);

struct mw_cost {
    double time_s;
    enum mw_rung rung;
};

/* The ranks of one communicator as they lie on the machine. */
struct mw_group {
    int n_ranks;
    int n_nodes;        /* nodes the group touches */
    int ranks_per_node; /* of this group on one node (at most) */
    int nic_sharers;    /* groups of the same kind that use a node's NICs at
                           the same time: ranks of a node / ranks_per_node */
};

struct mw_cost_ctx {
    const struct mw_hwdb *db;
    const struct mw_system *system;
    const struct mw_gpu *gpu;
    int n_nodes, gpus_per_node;
    double insitu_factor; /* measured real step / hot loops; 1 when unknown */
    double kernel_launch_s; /* per operator on the device; 0 on a CPU */
};
/* Fills ctx from the database for a cluster; MW_EINPUT for unknown names. */
enum mw_status mw_cost_ctx_init(struct mw_cost_ctx *ctx,
                                const struct mw_hwdb *db, const char *system,
                                int n_nodes, int gpus_per_node,
                                struct mw_err *err);

/* One operator on the device (not MW_OP_COLL). explain may be NULL. */
struct mw_cost mw_cost_op(const struct mw_cost_ctx *ctx, const struct mw_op *op,
                          struct mw_explain *explain);
/*
 * A collective of `bytes` (nccl-tests size: the whole buffer) over a group:
 * measured curve if there is one for the system and group size, else
 *   t = steps * alpha + wire_bytes / bandwidth        (Thakur et al. 2005)
 * with wire bytes 2 (n-1)/n for all-reduce, (n-1)/n for the others and the
 * slower of the inner link and the group's share of the NICs. A one-rank
 * group costs nothing.
 */
struct mw_cost mw_cost_coll(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                            double bytes, const struct mw_group *group,
                            struct mw_explain *explain);
/* A transfer between two neighbouring pipeline stages; `crosses_node` uses
 * the NICs, shared by `sharers` such transfers of a node. */
struct mw_cost mw_cost_p2p(const struct mw_cost_ctx *ctx, double bytes,
                           bool crosses_node, int sharers,
                           struct mw_explain *explain);

/* How the group of one dimension lies on nodes of gpus_per_node ranks, ranks
 * placed in layout->order. */
struct mw_group mw_cost_group(const struct mw_layout *layout, enum mw_dim dim,
                              int gpus_per_node);
/* Does the boundary between pipeline stages s and s + 1 cross nodes? */
bool mw_cost_pp_crosses(const struct mw_layout *layout, int stage,
                        int gpus_per_node);

#endif
