/*
 * How communicators lie on the machine. Rank r is on node r / gpus_per_node;
 * along one dimension of the layout consecutive members are `stride` ranks
 * apart, so a group is an arithmetic progression, or two nested ones where
 * dimensions are folded (gradients are reduced over dp and cp together;
 * experts fold into dp). Counts are those of the group of rank 0; groups of
 * one dimension are congruent when strides divide the node, which every
 * layout on whole nodes meets.
 */
#include "sim/cost/cost.h"

#include "base/err.h"

/* Members i = first, first + step, ...: an inner and an outer progression. */
struct members {
    int n, step;
    int inner_n, inner_stride, outer_stride;
};

static int dim_stride(const struct mw_layout *layout, enum mw_dim dim)
{
    struct mw_coord at = {0, 0, 0, 0};

    switch (dim) {
    case MW_DIM_TP:
    case MW_DIM_ETP:
        at.tp = layout->tp > 1;
        break;
    case MW_DIM_CP:
        at.cp = layout->cp > 1;
        break;
    case MW_DIM_PP:
        at.pp = layout->pp > 1;
        break;
    case MW_DIM_EP:
    case MW_DIM_DP:
        at.dp = layout->dp > 1;
        break;
    case MW_DIM_COUNT:
        break;
    }
    return mw_layout_rank(layout, at);
}

static int dim_size(const struct mw_layout *layout, enum mw_dim dim)
{
    switch (dim) {
    case MW_DIM_TP:
        return layout->tp;
    case MW_DIM_ETP:
        return layout->etp;
    case MW_DIM_CP:
        return layout->cp;
    case MW_DIM_PP:
        return layout->pp;
    case MW_DIM_EP:
        return layout->ep;
    case MW_DIM_DP:
        return layout->dp;
    case MW_DIM_COUNT:
        break;
    }
    return 1;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* Walks the members in ascending rank order and counts nodes. */
static void count_nodes(const struct members *g, int gpus_per_node,
                        struct mw_group *out)
{
    int node = -1, on_node = 0;

    for (int i = 0; i < g->n; i++) {
        int index = i * g->step;
        int rank = index % g->inner_n * g->inner_stride +
                   index / g->inner_n * g->outer_stride;

        if (rank / gpus_per_node != node) {
            node = rank / gpus_per_node;
            out->n_nodes++;
            on_node = 0;
        }
        if (++on_node > out->ranks_per_node) {
            out->ranks_per_node = on_node;
        }
    }
}

static struct mw_group place(const struct members *g, int n_ranks,
                             int gpus_per_node)
{
    struct mw_group out = {.n_ranks = g->n};
    int stride = g->step * g->inner_stride;
    bool is_plain = g->n * g->step <= g->inner_n;

    if (g->n <= 1) {
        return (struct mw_group){1, 1, 1, 1};
    }
    if (is_plain && gpus_per_node % stride == 0) {
        int per_node = min_int(gpus_per_node / stride, g->n);

        out.n_nodes = (g->n + per_node - 1) / per_node;
        out.ranks_per_node = per_node;
    } else if (is_plain && stride >= gpus_per_node) {
        out.n_nodes = g->n;
        out.ranks_per_node = 1;
    } else {
        count_nodes(g, gpus_per_node, &out);
    }
    out.nic_sharers = out.n_nodes > 1
                          ? min_int(gpus_per_node, n_ranks) / out.ranks_per_node
                          : 1;
    if (out.nic_sharers < 1) {
        out.nic_sharers = 1;
    }
    return out;
}

/* The first n_dp of dp, and cp, as one ascending list of n members, `step`
 * apart. */
static struct members folded(const struct mw_layout *layout, int n_dp, int n,
                             int step)
{
    int cp = dim_stride(layout, MW_DIM_CP), dp = dim_stride(layout, MW_DIM_DP);
    struct members g = {.n = n, .step = step};

    if (layout->cp == 1 || (layout->dp > 1 && dp < cp)) {
        g.inner_n = n_dp;
        g.inner_stride = dp;
        g.outer_stride = cp;
    } else {
        g.inner_n = layout->cp;
        g.inner_stride = cp;
        g.outer_stride = dp;
    }
    if (g.inner_stride * g.inner_n == g.outer_stride) {
        g.inner_n *= layout->cp == 1 || dp < cp ? layout->cp : n_dp;
    }
    return g;
}

struct mw_group mw_cost_group(const struct mw_layout *layout, enum mw_dim dim,
                              int gpus_per_node)
{
    int n = dim_size(layout, dim);
    struct members g = {.n = n,
                        .step = 1,
                        .inner_n = n,
                        .inner_stride = dim_stride(layout, dim)};

    if (dim == MW_DIM_EP) {
        g = folded(layout, layout->dp, min_int(n, layout->cp * layout->dp), 1);
    }
    return place(&g, mw_layout_ranks(layout), gpus_per_node);
}

static struct mw_group same_shard(const struct mw_layout *layout, int n_dp,
                                  bool is_expert, int gpus_per_node)
{
    int n = layout->cp * n_dp;
    int step = is_expert ? min_int(layout->ep, n) : 1;
    struct members g = folded(layout, n_dp, n / step, step);

    return place(&g, mw_layout_ranks(layout), gpus_per_node);
}

struct mw_group mw_cost_grad_group(const struct mw_layout *layout,
                                   bool is_expert, int gpus_per_node)
{
    return same_shard(layout, layout->dp, is_expert, gpus_per_node);
}

struct mw_group mw_cost_shard_group(const struct mw_layout *layout,
                                    bool is_expert, int gpus_per_node)
{
    return same_shard(layout, mw_layout_shard_ways(layout), is_expert,
                      gpus_per_node);
}

struct mw_group mw_cost_replica_group(const struct mw_layout *layout,
                                      int gpus_per_node)
{
    int shard = mw_layout_shard_ways(layout), n = layout->dp / shard;
    struct members g = {.n = n,
                        .step = 1,
                        .inner_n = n,
                        .inner_stride = dim_stride(layout, MW_DIM_DP) * shard};

    return place(&g, mw_layout_ranks(layout), gpus_per_node);
}

bool mw_cost_stages_cross(const struct mw_layout *layout, int stage, int other,
                          int gpus_per_node)
{
    struct mw_coord first = {0, 0, 0, stage};
    struct mw_coord last = {layout->tp - 1, layout->cp - 1, layout->dp - 1,
                            stage};

    for (int i = 0; i < 2; i++) {
        struct mw_coord here = i == 0 ? first : last, there = here;

        there.pp = other;
        if (mw_layout_rank(layout, here) / gpus_per_node !=
            mw_layout_rank(layout, there) / gpus_per_node) {
            return true;
        }
    }
    return false;
}

bool mw_cost_pp_crosses(const struct mw_layout *layout, int stage,
                        int gpus_per_node)
{
    return stage + 1 < layout->pp &&
           mw_cost_stages_cross(layout, stage, stage + 1, gpus_per_node);
}

int mw_cost_pp_sharers(const struct mw_layout *layout, int gpus_per_node)
{
    int stride = dim_stride(layout, MW_DIM_PP), n = 0;
    int n_ranks = min_int(gpus_per_node, mw_layout_ranks(layout));

    if (layout->pp == 1) {
        return n_ranks;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        n += rank / stride % layout->pp == 0;
    }
    return n;
}
