/*
 * How the racks of a cluster are cut into scale-up domains: see domain.c. A
 * scenario lists the choices (cluster.domains), a plan names the one it takes
 * (layout.domain_nodes).
 */
#ifndef MW_SIM_COST_DOMAIN_H
#define MW_SIM_COST_DOMAIN_H

#include "sim/cost/cost.h"
#include "sim/model/scenario.h"

/*
 * Uses domain_nodes nodes for each domain (0: nothing changes): sets the
 * cluster's nodes that train, those that stand by and the domain, and the sizes
 * and rates of ctx, which is the cluster's and not yet cut. May be called again
 * with another ctx. MW_EINPUT at the key of the scenario: more nodes than a
 * rack has, no domain in the allocation, or one under two leaves (leaf.h).
 */
enum mw_status mw_cost_use_domains(struct mw_cost_ctx *ctx,
                                   struct mw_cluster *cluster, int domain_nodes,
                                   struct mw_err *err);
/* The same of prices alone, for other numbers of nodes. */
void mw_cost_set_domain(struct mw_cost_ctx *ctx, int domain_nodes);
/* Of n allocated nodes those in whole domains of d; 0: none is whole. */
int mw_cost_domain_nodes(const struct mw_cost_ctx *ctx, int n, int d);
/* So many of the allocation's nodes stand by, the others train: of cluster and
 * ctx, which may have been under another choice. */
void mw_cost_use_spares(struct mw_cost_ctx *ctx, struct mw_cluster *cluster,
                        int n_spares);
/* The scenario's first choice; 0: it has none. */
static inline int mw_cluster_first_domain(const struct mw_cluster *cluster)
{
    return cluster->domains.n > 0 ? (int)cluster->domains.v[0] : 0;
}

#endif
