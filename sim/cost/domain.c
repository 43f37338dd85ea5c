/*
 * Racks whose nodes share scale-up links, cut into domains of so many nodes
 * (cluster: domain_nodes): of NVL72's 18 trays of 4 GPUs all, 16 (64 GPUs, so
 * that groups of powers of two stay inside, and 2 trays stand by), or 9 twice
 * (2 x 36; partitions of the rack, or racks of 36). Ranks fill one domain after
 * the other; what is left of a rack stands by.
 */
#include "sim/cost/domain.h"

#include "sim/cost/leaf.h"

static int rack_nodes(const struct mw_system *s)
{
    return s->gpus_per_node > 0 && s->scaleup_gpus > s->gpus_per_node
               ? s->scaleup_gpus / s->gpus_per_node
               : 1;
}

void mw_cost_set_domain(struct mw_cost_ctx *ctx, int domain_nodes)
{
    if (domain_nodes > 0) {
        ctx->domain_net_Bps *=
            (double)domain_nodes * ctx->gpus_per_node / ctx->domain_gpus;
        ctx->domain_gpus = domain_nodes * ctx->gpus_per_node;
    }
}

int mw_cost_domain_nodes(const struct mw_cost_ctx *ctx, int n, int d)
{
    int rack = rack_nodes(ctx->system);

    return d > 0 && d <= rack ? (n / rack * (rack / d) + n % rack / d) * d : 0;
}

enum mw_status mw_cost_use_domains(struct mw_cost_ctx *ctx,
                                   struct mw_cluster *cluster, int domain_nodes,
                                   struct mw_err *err)
{
    int rack = rack_nodes(ctx->system), n_all = mw_cluster_allocated(cluster);
    int d = domain_nodes;

    cluster->rack_nodes = rack;
    if (d == 0) {
        return rack > 1 ? mw_leaf_check_units(cluster, rack, err) : MW_OK;
    }
    if (d > rack) {
        return mw_fail_key(err, MW_EINPUT, "cluster", "domain_nodes",
                           "%d nodes in one scale-up domain but %s joins %d; "
                           "at most that",
                           d, ctx->system->slug, rack);
    }
    int n = mw_cost_domain_nodes(ctx, n_all, d);

    if (n == 0) {
        return mw_fail_key(err, MW_EINPUT, "cluster", "domain_nodes",
                           "%d nodes hold no scale-up domain of %d; more "
                           "nodes or a smaller domain",
                           n_all, d);
    }
    cluster->domain_nodes = d;
    cluster->n_nodes = n;
    cluster->spare_nodes = n_all - n;
    ctx->n_nodes = n;
    mw_cost_set_domain(ctx, d);
    return mw_leaf_check_units(cluster, d, err);
}

void mw_cost_use_spares(struct mw_cost_ctx *ctx, struct mw_cluster *cluster,
                        int n_spares)
{
    cluster->n_nodes += cluster->spare_nodes - n_spares;
    cluster->spare_nodes = n_spares;
    ctx->n_nodes = cluster->n_nodes;
}
