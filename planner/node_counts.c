/* Numbers of nodes, and ways to cut their racks: see node_counts.h. */
#include "planner/node_counts.h"

#include "base/mem.h"
#include "sim/cost/domain.h"

static void add(struct mw_node_counts *out, int n_paid, int n_nodes,
                int domain_nodes)
{
    struct mw_node_count c = {n_paid, n_nodes, domain_nodes};

    mw_array_push(out, c);
}

void mw_node_counts_find(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx, bool is_any,
                         struct mw_node_counts *out)
{
    const struct mw_cluster *c = &scenario->cluster;
    int n_all = c->domains.n > 0 ? mw_cluster_allocated(c) : ctx->n_nodes;

    for (size_t i = 0; i < c->domains.n; i++) {
        int d = (int)c->domains.v[i];

        for (int n = is_any ? 1 : n_all; n <= n_all; n++) {
            int trains = mw_cost_domain_nodes(ctx, n, d);

            /* What the whole allocation cannot hold is an error to be said. */
            if (n_all % n == 0 && (trains > 0 || n == n_all)) {
                add(out, n, trains, d);
            }
        }
    }
    for (int n = is_any ? 1 : n_all; c->domains.n == 0 && n <= n_all; n++) {
        if (n_all % n == 0) {
            add(out, n + c->spare_nodes, n, 0);
        }
    }
}

enum mw_status mw_node_count_take(const struct mw_node_count *count,
                                  const struct mw_scenario *scenario,
                                  const struct mw_cost_ctx *ctx,
                                  struct mw_scenario *out_scenario,
                                  struct mw_cost_ctx *out_ctx,
                                  struct mw_err *err)
{
    struct mw_cluster *c = &out_scenario->cluster;
    enum mw_status status;

    *out_scenario = *scenario;
    *out_ctx = *ctx;
    status = mw_cost_use_domains(out_ctx, c, count->domain_nodes, err);
    if (status != MW_OK || count->n_nodes == out_ctx->n_nodes) {
        return status;
    }
    c->n_nodes = count->n_nodes;
    c->spare_nodes = count->n_paid - count->n_nodes;
    status = mw_cost_ctx_init(out_ctx, ctx->db, ctx->system->slug, c->n_nodes,
                              ctx->gpus_per_node, err);
    if (status == MW_OK) {
        mw_cost_set_domain(out_ctx, c->domain_nodes);
        status = mw_cost_ctx_set_stack(out_ctx, ctx->stack.name, err);
    }
    return status;
}
