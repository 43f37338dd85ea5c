/*
 * How the communicators of a layout lie on the machine: on nodes (or domains of
 * the scale-up links), and where leaf switches carry less than their NICs, on
 * leaves, which counts as more groups that share a node's NICs (leaf.h).
 */
#include "sim/cost/leaf.h"
#include "sim/step/step_int.h"

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

void mw_step_place_groups(struct mw_step_price *p,
                          const struct mw_layout *layout)
{
    const struct mw_cluster *c = &p->scenario->cluster;
    struct places at = places_on(layout, p->ctx->domain_gpus);

    if (mw_leaf_matters(c)) {
        struct places leaf =
            places_on(layout, c->leaf_nodes * p->ctx->gpus_per_node);

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
}

const struct mw_group *mw_step_op_group(const struct mw_step_price *p,
                                        const struct mw_op *op)
{
    return op->is_inner ? &p->cp_inner_group : &p->group[op->dim];
}

static int stage_sharers(const struct mw_step_price *p, int from, int to)
{
    int per_node = p->ctx->domain_gpus;
    double part = mw_leaf_stage_part(&p->scenario->cluster, p->layout, from, to,
                                     p->ctx->gpus_per_node);

    return mw_leaf_sharers(mw_cost_pp_sharers(p->layout, per_node), part);
}

struct mw_group mw_step_pair(const struct mw_step_price *p, int from, int to)
{
    return mw_cost_stages_cross(p->layout, from, to, p->ctx->domain_gpus)
               ? (struct mw_group){2, 2, 1, stage_sharers(p, from, to)}
               : (struct mw_group){2, 1, 2, 1};
}
