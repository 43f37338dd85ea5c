/*
 * How the communicators of a layout lie on the machine: on nodes (or domains of
 * the scale-up links), and where leaf switches carry less than their NICs, on
 * leaves, which counts as more groups that share a node's NICs (leaf.h). On
 * leaves of several sizes a pass waits for the slowest group of any stage; what
 * is reduced after the last pass, and what one stage sends to another, are
 * those of their stages.
 */
#include "sim/cost/leaf.h"
#include "sim/step/fast.h"
#include "sim/step/step_int.h"

#include <math.h>

/* All communicators of a layout on units of so many ranks. */
struct places {
    struct mw_group dim[MW_DIM_COUNT], cp_inner, grad, expert, replica;
};

static struct places places_on(const struct mw_layout *l, int per_unit)
{
    struct places at = {.grad = mw_cost_shard_group(l, false, per_unit),
                        .expert = mw_cost_shard_group(l, true, per_unit),
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

/* As the stage's groups are, or the slowest stage's (-1). */
static void narrow_uneven(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                          int stage, struct mw_group *g)
{
    int pp = v->layout->pp;
    double *part = mw_calloc((size_t)pp, sizeof *part), least = 1;

    uneven_parts(v, kind, g, part);
    for (int k = 0; k < pp; k++) {
        least = stage < 0 || k == stage ? fmin(least, part[k]) : least;
    }
    g->nic_sharers = mw_leaf_sharers(g->nic_sharers, least);
    mw_free(part);
}

static void narrow_all_uneven(const struct mw_leaf_view *v, struct places *at)
{
    static const struct {
        enum mw_dim dim;
        enum mw_leaf_kind kind;
    } dims[] = {{MW_DIM_TP, MW_LEAF_TP},
                {MW_DIM_CP, MW_LEAF_CP},
                {MW_DIM_DP, MW_LEAF_DP},
                {MW_DIM_ETP, MW_LEAF_ETP},
                {MW_DIM_EP, MW_LEAF_EP}};

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        narrow_uneven(v, dims[i].kind, -1, &at->dim[dims[i].dim]);
    }
    narrow_uneven(v, MW_LEAF_CP_INNER, -1, &at->cp_inner);
    narrow_uneven(v, MW_LEAF_GRAD, -1, &at->grad);
    narrow_uneven(v, MW_LEAF_EXPERT, -1, &at->expert);
    narrow_uneven(v, MW_LEAF_REPLICA, -1, &at->replica);
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
    struct places at = places_on(layout, p->ctx->domain_gpus);

    if (mw_leaf_is_uneven(c, layout)) {
        struct mw_leaf_view v = view_of(p, layout);

        narrow_all_uneven(&v, &at);
    } else if (mw_leaf_matters(c)) {
        struct places leaf =
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
    for (int d = 0; d < MW_DIM_COUNT; d++) {
        p->group[d] = at.dim[d];
    }
    p->cp_inner_group = at.cp_inner;
    p->grad_group = at.grad;
    p->expert_group = at.expert;
    p->replica_group = at.replica;
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
/* Sharers of the slowest stage, or of each. */
static size_t mark(const struct mw_leaf_view *v, enum mw_leaf_kind kind,
                   const struct mw_group *g, bool by_stage, int *out)
{
    int pp = v->layout->pp;
    double *part = mw_calloc((size_t)pp, sizeof *part);

    uneven_parts(v, kind, g, part);
    out[0] = 0;
    for (int k = 0; k < pp; k++) {
        int sharers = mw_leaf_sharers(g->nic_sharers, part[k]);

        if (by_stage) {
            out[k] = sharers;
        } else {
            out[0] = sharers > out[0] ? sharers : out[0];
        }
    }
    mw_free(part);
    return by_stage ? (size_t)pp : 1;
}

size_t mw_fast_order_marks(const struct mw_scenario *scenario,
                           const struct mw_cost_ctx *ctx,
                           const struct mw_layout *layout, int *out)
{
    const struct mw_leaf_view v = {&scenario->cluster, layout,
                                   ctx->gpus_per_node, ctx->domain_gpus};
    const struct places at = places_on(layout, ctx->domain_gpus);
    int sharers = mw_cost_pp_sharers(layout, ctx->domain_gpus);
    size_t n = 0;

    n += mark(&v, MW_LEAF_TP, &at.dim[MW_DIM_TP], false, out + n);
    n += mark(&v, MW_LEAF_CP, &at.dim[MW_DIM_CP], false, out + n);
    n += mark(&v, MW_LEAF_CP_INNER, &at.cp_inner, false, out + n);
    n += mark(&v, MW_LEAF_EP, &at.dim[MW_DIM_EP], false, out + n);
    n += mark(&v, MW_LEAF_ETP, &at.dim[MW_DIM_ETP], false, out + n);
    n += mark(&v, MW_LEAF_REPLICA, &at.replica, false, out + n);
    n += mark(&v, MW_LEAF_GRAD, &at.grad, true, out + n);
    n += mark(&v, MW_LEAF_EXPERT, &at.expert, true, out + n);
    for (int k = 0; k < layout->pp && layout->pp > 1; k++) {
        double part = mw_leaf_uneven_stage_part(&v, k, (k + 1) % layout->pp);

        out[n++] = mw_leaf_sharers(sharers, part);
    }
    return n;
}
