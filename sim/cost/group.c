/*
 * How communicators lie on the machine. Rank r is on node r / gpus_per_node;
 * along one dimension of the layout consecutive members are `stride` ranks
 * apart, so a group is an arithmetic progression, or two nested ones where
 * dimensions are folded (gradients are reduced over dp and cp together).
 * Counts are those of the group of rank 0; groups of one dimension are
 * congruent when strides divide the node, which every layout on whole nodes
 * meets.
 *
 * Experts fold into all ranks of a stage (Liu et al., "MoE Parallel Folding",
 * arXiv:2504.14960, section 3): in the order tp, cp, dp, fastest first, etp
 * ranks in a row share an expert, ep such rows hold all experts, and what
 * stands etp ep apart has the same ones.
 */
#include "sim/cost/cost.h"

#include "base/err.h"
#include "base/mem.h"

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
        at.tp = layout->tp > 1;
        break;
    case MW_DIM_CP:
        at.cp = layout->cp > 1;
        break;
    case MW_DIM_PP:
        at.pp = layout->pp > 1;
        break;
    case MW_DIM_DP:
        at.dp = layout->dp > 1;
        break;
    case MW_DIM_EP:
    case MW_DIM_ETP:
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

/* Such groups on a node, which share its NICs. */
static void set_sharers(struct mw_group *g, int n_ranks, int gpus_per_node)
{
    g->nic_sharers = 1;
    if (g->n_nodes > 1 && min_int(gpus_per_node, n_ranks) > g->ranks_per_node) {
        g->nic_sharers = min_int(gpus_per_node, n_ranks) / g->ranks_per_node;
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
    set_sharers(&out, n_ranks, gpus_per_node);
    return out;
}

/* The first n_dp of dp, and cp, as one ascending list. */
static struct members folded(const struct mw_layout *layout, int n_dp)
{
    int cp = dim_stride(layout, MW_DIM_CP), dp = dim_stride(layout, MW_DIM_DP);
    struct members g = {.n = layout->cp * n_dp, .step = 1};

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

/* ---- experts ------------------------------------------------------------ */
/* A stage's ranks as nested progressions, those that follow on joined. */
struct nest {
    int n[3], stride[3], depth;
};

static struct nest stage_ranks(const struct mw_layout *layout)
{
    static const enum mw_dim dims[] = {MW_DIM_TP, MW_DIM_CP, MW_DIM_DP};
    struct nest s = {.depth = 0};

    for (int i = 0; i < 3; i++) {
        int n = dim_size(layout, dims[i]), last = s.depth - 1;
        int stride = dim_stride(layout, dims[i]);

        if (n == 1) {
            continue;
        }
        if (last >= 0 && stride == s.n[last] * s.stride[last]) {
            s.n[last] *= n;
            continue;
        }
        s.n[s.depth] = n;
        s.stride[s.depth] = stride;
        s.depth++;
    }
    return s;
}

static int nest_rank(const struct nest *s, int index)
{
    int rank = 0;

    for (int i = 0; i < s->depth; i++) {
        rank += index % s->n[i] * s->stride[i];
        index /= s->n[i];
    }
    return rank;
}

/* Ranks in no ascending order: counts them node by node. */
static void mark_nodes(const struct nest *s, int n, int step, int n_ranks,
                       int gpus_per_node, struct mw_group *out)
{
    int *on_node =
        mw_calloc((size_t)(n_ranks / gpus_per_node) + 1, sizeof *on_node);

    for (int i = 0; i < n; i++) {
        int *here = &on_node[nest_rank(s, i * step) / gpus_per_node];

        out->n_nodes += *here == 0;
        ++*here;
        if (*here > out->ranks_per_node) {
            out->ranks_per_node = *here;
        }
    }
    mw_free(on_node);
}

/* n ranks of a stage, `step` apart. */
static struct mw_group place_experts(const struct mw_layout *layout, int n,
                                     int step, int gpus_per_node)
{
    struct nest s = stage_ranks(layout);
    int n_ranks = mw_layout_ranks(layout);

    if (n <= 1 || s.depth <= 1) {
        struct members g = {.n = n,
                            .step = step,
                            .inner_n = n * step,
                            .inner_stride = s.depth == 1 ? s.stride[0] : 1};

        return place(&g, n_ranks, gpus_per_node);
    }
    struct mw_group out = {.n_ranks = n};

    mark_nodes(&s, n, step, n_ranks, gpus_per_node, &out);
    set_sharers(&out, n_ranks, gpus_per_node);
    return out;
}

struct mw_group mw_cost_group(const struct mw_layout *layout, enum mw_dim dim,
                              int gpus_per_node)
{
    int n = dim_size(layout, dim);

    if (dim == MW_DIM_EP || dim == MW_DIM_ETP) {
        return place_experts(layout, n, dim == MW_DIM_EP ? layout->etp : 1,
                             gpus_per_node);
    }
    struct members g = {.n = n,
                        .step = 1,
                        .inner_n = n,
                        .inner_stride = dim_stride(layout, dim)};

    return place(&g, mw_layout_ranks(layout), gpus_per_node);
}

struct mw_group mw_cost_cp_group(const struct mw_layout *layout, bool is_inner,
                                 int gpus_per_node)
{
    int inner = layout->cp_inner > 1 ? layout->cp_inner : 1;
    struct members g = {.n = is_inner ? inner : mw_layout_cp_outer(layout),
                        .step = is_inner ? 1 : inner,
                        .inner_n = layout->cp,
                        .inner_stride = dim_stride(layout, MW_DIM_CP)};

    return place(&g, mw_layout_ranks(layout), gpus_per_node);
}

static struct mw_group same_shard(const struct mw_layout *layout, int n_dp,
                                  bool is_expert, int gpus_per_node)
{
    int step = layout->ep * layout->etp;
    int n_expert = layout->tp * layout->cp * n_dp / step;

    if (is_expert) {
        return place_experts(layout, n_expert > 1 ? n_expert : 1, step,
                             gpus_per_node);
    }
    struct members g = folded(layout, n_dp);

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
