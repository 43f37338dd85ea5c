/*
 * The order of nodes: which node of the allocation holds which ranks. A list
 * of as many different nodes as train; without one, node i holds the node's
 * worth of ranks i. The others stand by.
 */
#include "sim/model/scenario.h"

int mw_cluster_allocated(const struct mw_cluster *cluster)
{
    int64_t n = cluster->n_nodes + cluster->spare_nodes, sum = 0;

    for (size_t i = 0; i < cluster->leaves.n; i++) {
        sum += cluster->leaves.v[i];
    }
    return (int)(sum > n ? sum : n);
}

int mw_cluster_slot_node(const struct mw_cluster *c, int slot)
{
    int d = c->domain_nodes, of_rack = d > 0 ? c->rack_nodes / d : 0;

    if (of_rack < 1) {
        return slot;
    }
    return slot / d / of_rack * c->rack_nodes + slot / d % of_rack * d +
           slot % d;
}

/* Nodes that share scale-up links are of one rack. */
static enum mw_status check_racks(const struct mw_int_list *nodes,
                                  const struct mw_cluster *c,
                                  struct mw_err *err)
{
    int rack = c->rack_nodes;
    size_t d = (size_t)(c->domain_nodes > 0 ? c->domain_nodes : rack);

    for (size_t i = 0; rack > 1 && i < nodes->n; i++) {
        int64_t first = nodes->v[i / d * d];

        if (nodes->v[i] / rack != first / rack) {
            return mw_fail(err, MW_EINPUT,
                           "nodes puts node %lld into the scale-up domain of "
                           "node %lld, which is of another rack of %d",
                           (long long)nodes->v[i], (long long)first, rack);
        }
    }
    return MW_OK;
}

enum mw_status mw_layout_check_nodes(const struct mw_layout *layout,
                                     const struct mw_cluster *cluster,
                                     struct mw_err *err)
{
    const struct mw_int_list *nodes = &layout->nodes;
    int n_all = mw_cluster_allocated(cluster);
    enum mw_status status = MW_OK;

    if (nodes->n == 0) {
        return MW_OK;
    }
    /* Where the racks are not yet cut as the layout says, the count is open. */
    bool is_counted = cluster->domains.n == 0 ||
                      (cluster->domain_nodes > 0 &&
                       (layout->domain_nodes == 0 ||
                        layout->domain_nodes == cluster->domain_nodes));

    if (is_counted && nodes->n != (size_t)cluster->n_nodes) {
        return mw_fail(err, MW_EINPUT,
                       "nodes names %zu nodes but %d train; each once",
                       nodes->n, cluster->n_nodes);
    }
    bool *seen = mw_calloc((size_t)n_all, sizeof *seen);

    for (size_t i = 0; i < nodes->n && status == MW_OK; i++) {
        int64_t node = nodes->v[i];

        if (node < 0 || node >= n_all) {
            status = mw_fail(err, MW_EINPUT,
                             "nodes names node %lld but the allocation has "
                             "nodes 0 to %d",
                             (long long)node, n_all - 1);
        } else if (seen[node]) {
            status = mw_fail(err, MW_EINPUT,
                             "nodes names node %lld twice; each once",
                             (long long)node);
        } else {
            seen[node] = true;
        }
    }
    mw_free(seen);
    return status == MW_OK && is_counted ? check_racks(nodes, cluster, err)
                                         : status;
}

void mw_layout_nodes_add(struct mw_str *text, const struct mw_int_list *nodes,
                         const char *between)
{
    size_t end;

    for (size_t i = 0; i < nodes->n; i = end) {
        end = i + 1;
        while (end < nodes->n && nodes->v[end] == nodes->v[end - 1] + 1) {
            end++;
        }
        mw_str_addf(text, "%s%lld", i > 0 ? between : "",
                    (long long)nodes->v[i]);
        if (end > i + 1) {
            mw_str_addf(text, "-%lld", (long long)nodes->v[end - 1]);
        }
    }
}
