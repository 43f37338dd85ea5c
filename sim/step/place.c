/*
 * How the communicators of a layout lie on the machine: on nodes (or domains of
 * the scale-up links), and where leaf switches carry less than their NICs, on
 * leaves, which counts as more groups that share a node's NICs (leaf.h). On
 * leaves of several sizes the groups of each stage are its own: a pass waits
 * for the slowest of its stage, and so does what is reduced after the last
 * pass. Where two routes hold a stage on two devices, for the slowest of any
 * stage.
 */
#include "sim/cost/leaf.h"
#include "sim/step/fast.h"
#include "sim/step/step_int.h"

#include <math.h>

/* All communicators of a layout on units of so many ranks. */
static struct mw_step_groups places_on(const struct mw_layout *l, int per_unit)
{
    struct mw_step_groups at = {.grad = mw_cost_shard_group(l, false, per_unit),
                                .expert =
                                    mw_cost_shard_group(l, true, per_unit),
                                .replica = mw_cost_replica_group(l, per_unit)};

    for (int d = 0; d < MW_DIM_COUNT; d++) {
        at.dim[d] = mw_cost_group(l, (enum mw_dim)d, per_unit);
    }
    at.cp_inner = (struct mw_group){1, 1, 1, 1};
    if (l->cp_inner > 1) {
        at.cp_inner = mw_cost_cp_group(l, true, per_unit);
        at.dim[MW_DIM_CP] = mw_cost_cp_group(l, false, per_unit);
    }
    return at;
}

static void narrow(const struct mw_cluster *c, const struct mw_group *leaf,
                   bool is_all_to_all, struct mw_group *g)
{
    g->nic_sharers = mw_leaf_sharers(g->nic_sharers,
                                     mw_leaf_part(c, g, leaf, is_all_to_all));
}

static struct mw_leaf_view view_of(const struct mw_step_price *p,
                                   const struct mw_layout *layout)
{
    return (struct mw_leaf_view){&p->scenario->cluster, layout,
                                 p->ctx->gpus_per_node, p->ctx->domain_gpus};
}

static void uneven_parts(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                         const struct mw_group *g, double *out)
{
    bool is_all_to_all =
        kind == MW_LEAF_EP || kind == MW_LEAF_CP_INNER ||
        (kind == MW_LEAF_CP && v->layout->cp_form == MW_CP_A2A);

    mw_leaf_uneven_parts(v, kind, g, is_all_to_all, out);
}

/* As the stage's groups are. */
static void narrow_uneven(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                          int stage, struct mw_group *g)
{
    double *part = mw_calloc((size_t)v->layout->pp, sizeof *part);

    uneven_parts(v, kind, g, part);
    g->nic_sharers = mw_leaf_sharers(g->nic_sharers, part[stage]);
    mw_free(part);
}

/* ---- each stage's own groups -----------------------------------------------
 */
static struct mw_group *group_at(struct mw_step_groups *at,
                                 enum mw_leaf_kind kind)
{
    switch (kind) {
    case MW_LEAF_TP:
        return &at->dim[MW_DIM_TP];
    case MW_LEAF_CP:
        return &at->dim[MW_DIM_CP];
    case MW_LEAF_CP_INNER:
        return &at->cp_inner;
    case MW_LEAF_DP:
        return &at->dim[MW_DIM_DP];
    case MW_LEAF_GRAD:
        return &at->grad;
    case MW_LEAF_EXPERT:
        return &at->expert;
    case MW_LEAF_REPLICA:
        return &at->replica;
    case MW_LEAF_ETP:
        return &at->dim[MW_DIM_ETP];
    case MW_LEAF_EP:
    case MW_LEAF_KINDS:
        break;
    }
    return &at->dim[MW_DIM_EP];
}

void mw_step_stage_groups(const struct mw_step_price *p,
                          const struct mw_layout *layout,
                          struct mw_step_groups *out)
{
    struct mw_leaf_view v = view_of(p, layout);
    struct mw_step_groups at = places_on(layout, p->ctx->domain_gpus);
    double *part = mw_calloc((size_t)layout->pp, sizeof *part);

    for (int k = 0; k < layout->pp; k++) {
        out[k] = at;
    }
    for (int i = 0; i < MW_LEAF_KINDS; i++) {
        enum mw_leaf_kind kind = (enum mw_leaf_kind)i;
        const struct mw_group *whole = group_at(&at, kind);

        uneven_parts(&v, kind, whole, part);
        for (int k = 0; k < layout->pp; k++) {
            group_at(&out[k], kind)->nic_sharers =
                mw_leaf_sharers(whole->nic_sharers, part[k]);
        }
    }
    mw_free(part);
}

/* Of each kind the slowest of any stage. */
static struct mw_step_groups slowest_groups(const struct mw_step_price *p,
                                            const struct mw_layout *layout)
{
    size_t pp = (size_t)layout->pp;
    struct mw_step_groups *of = mw_calloc(pp, sizeof *of);

    mw_step_stage_groups(p, layout, of);
    struct mw_step_groups most = of[0];

    for (size_t k = 1; k < pp; k++) {
        for (int i = 0; i < MW_LEAF_KINDS; i++) {
            enum mw_leaf_kind kind = (enum mw_leaf_kind)i;
            struct mw_group *g = group_at(&most, kind);
            int sharers = group_at(&of[k], kind)->nic_sharers;

            g->nic_sharers =
                sharers > g->nic_sharers ? sharers : g->nic_sharers;
        }
    }
    mw_free(of);
    return most;
}

void mw_step_use_groups(struct mw_step_price *p,
                        const struct mw_step_groups *groups)
{
    for (int d = 0; d < MW_DIM_COUNT; d++) {
        p->group[d] = groups->dim[d];
    }
    p->cp_inner_group = groups->cp_inner;
    p->grad_group = groups->grad;
    p->expert_group = groups->expert;
    p->replica_group = groups->replica;
}

struct mw_step_groups mw_step_groups_of(const struct mw_step_price *p)
{
    struct mw_step_groups g = {.cp_inner = p->cp_inner_group,
                               .grad = p->grad_group,
                               .expert = p->expert_group,
                               .replica = p->replica_group};

    for (int d = 0; d < MW_DIM_COUNT; d++) {
        g.dim[d] = p->group[d];
    }
    return g;
}

bool mw_step_is_uneven(const struct mw_step_price *p)
{
    return mw_leaf_is_uneven(&p->scenario->cluster, p->layout);
}

struct mw_group mw_step_grad_group(const struct mw_step_price *p,
                                   bool is_expert, int device)
{
    struct mw_group g = is_expert ? p->expert_group : p->grad_group;

    if (mw_step_is_uneven(p)) {
        struct mw_leaf_view v = view_of(p, p->layout);

        g = mw_cost_shard_group(p->layout, is_expert, p->ctx->domain_gpus);
        narrow_uneven(&v, is_expert ? MW_LEAF_EXPERT : MW_LEAF_GRAD, device,
                      &g);
    }
    return g;
}

void mw_step_place_groups(struct mw_step_price *p,
                          const struct mw_layout *layout)
{
    const struct mw_cluster *c = &p->scenario->cluster;
    struct mw_step_groups at = places_on(layout, p->ctx->domain_gpus);

    if (mw_leaf_is_uneven(c, layout)) {
        at = slowest_groups(p, layout);
    } else if (mw_leaf_matters(c)) {
        struct mw_step_groups leaf =
            places_on(layout, mw_leaf_even_of(c).nodes * p->ctx->gpus_per_node);

        for (int d = 0; d < MW_DIM_COUNT; d++) {
            narrow(c, &leaf.dim[d],
                   d == MW_DIM_EP ||
                       (d == MW_DIM_CP && layout->cp_form == MW_CP_A2A),
                   &at.dim[d]);
        }
        narrow(c, &leaf.cp_inner, true, &at.cp_inner);
        narrow(c, &leaf.grad, false, &at.grad);
        narrow(c, &leaf.expert, false, &at.expert);
        narrow(c, &leaf.replica, false, &at.replica);
    }
    mw_step_use_groups(p, &at);
    mw_step_place_numbers(p, layout);
}

const struct mw_group *mw_step_op_group(const struct mw_step_price *p,
                                        const struct mw_op *op)
{
    return op->is_inner ? &p->cp_inner_group : &p->group[op->dim];
}

static int stage_sharers(const struct mw_step_price *p, int from, int to)
{
    int per_node = p->ctx->domain_gpus;
    struct mw_leaf_view v = view_of(p, p->layout);
    double part =
        mw_step_is_uneven(p)
            ? mw_leaf_uneven_stage_part(&v, from, to)
            : mw_leaf_stage_part(&p->scenario->cluster, p->layout, from, to,
                                 p->ctx->gpus_per_node, per_node);

    return mw_leaf_sharers(mw_cost_pp_sharers(p->layout, per_node), part);
}

struct mw_group mw_step_pair(const struct mw_step_price *p, int from, int to)
{
    return mw_cost_stages_cross(p->layout, from, to, p->ctx->domain_gpus)
               ? (struct mw_group){2, 2, 1, stage_sharers(p, from, to)}
               : (struct mw_group){2, 1, 2, 1};
}

/* ---- what an order of nodes decides ----------------------------------------
 */
/* Sharers of each stage's groups. */
static size_t mark(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                   const struct mw_group *g, int *out)
{
    int pp = v->layout->pp;
    double *part = mw_calloc((size_t)pp, sizeof *part);

    uneven_parts(v, kind, g, part);
    for (int k = 0; k < pp; k++) {
        out[k] = mw_leaf_sharers(g->nic_sharers, part[k]);
    }
    mw_free(part);
    return (size_t)pp;
}

size_t mw_fast_order_marks(const struct mw_scenario *scenario,
                           const struct mw_cost_ctx *ctx,
                           const struct mw_layout *layout, int *out)
{
    const struct mw_leaf_view v = {&scenario->cluster, layout,
                                   ctx->gpus_per_node, ctx->domain_gpus};
    const struct mw_step_groups at = places_on(layout, ctx->domain_gpus);
    int sharers = mw_cost_pp_sharers(layout, ctx->domain_gpus);
    size_t n = 0;

    n += mark(&v, MW_LEAF_TP, &at.dim[MW_DIM_TP], out + n);
    n += mark(&v, MW_LEAF_CP, &at.dim[MW_DIM_CP], out + n);
    n += mark(&v, MW_LEAF_CP_INNER, &at.cp_inner, out + n);
    n += mark(&v, MW_LEAF_EP, &at.dim[MW_DIM_EP], out + n);
    n += mark(&v, MW_LEAF_ETP, &at.dim[MW_DIM_ETP], out + n);
    n += mark(&v, MW_LEAF_REPLICA, &at.replica, out + n);
    n += mark(&v, MW_LEAF_GRAD, &at.grad, out + n);
    n += mark(&v, MW_LEAF_EXPERT, &at.expert, out + n);
    for (int k = 0; k < layout->pp && layout->pp > 1; k++) {
        double part = mw_leaf_uneven_stage_part(&v, k, (k + 1) % layout->pp);

        out[n++] = mw_leaf_sharers(sharers, part);
    }
    return n;
}
