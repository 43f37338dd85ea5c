/*
 * How a stack moves the shares of ZeRO-1 (docs/step.md, Training stacks). Most
 * keep gradients and parameters in flat buffers and need one collective of
 * each; two do not:
 *
 *   a tensor at a time   a reduce-scatter and an all-gather for every tensor
 *                        (nanotron, src/nanotron/optim/zero.py,
 *                        _all_gather_params; gradient_accumulator.py)
 *   an owner at a time   a tensor belongs to one rank as a whole, gradients are
 *                        all-reduced, and each owner broadcasts what it updated
 *                        (InternEvo, internlm/solver/optimizer/
 *                        hybrid_zero_optim.py, broadcast_params)
 *
 *   t = pieces x T(bytes / pieces), and never below one collective
 *
 * The bytes are what a flat buffer has; with many ranks it is the latency of
 * the pieces that costs. Pieces are taken as equal.
 *
 * Left out: owners with more than others (an embedding is the largest tensor,
 * whole), which update for longer.
 */
#include "sim/step/step_int.h"

#include <math.h>

static double coll_s(const struct mw_step_price *p, enum mw_coll_op op,
                     double bytes, double pieces, const struct mw_group *g)
{
    if (!(bytes > 0)) {
        return 0;
    }
    return pieces * mw_cost_coll(p->ctx, op, bytes / pieces, g, NULL).time_s;
}

/* One collective, or the pieces where they take longer. */
static double in_pieces_s(const struct mw_step_price *p, enum mw_coll_op flat,
                          enum mw_coll_op op, double bytes, double pieces,
                          const struct mw_group *g)
{
    double flat_s = coll_s(p, flat, bytes, 1, g);

    return pieces > 1 ? fmax(flat_s, coll_s(p, op, bytes, pieces, g)) : flat_s;
}

double mw_share_gather_s(const struct mw_step_price *p, const double params[2],
                         const double tensors[2],
                         const struct mw_group groups[2])
{
    enum mw_share_habit habit = p->ctx->stack.share;
    bool is_owned = habit == MW_SHARE_BY_OWNER;
    double sum = 0;

    for (int i = 0; i < 2; i++) {
        double pieces = habit == MW_SHARE_FLAT ? 1
                        : is_owned ? fmin(tensors[i], groups[i].n_ranks)
                                   : tensors[i];

        sum += in_pieces_s(p, MW_ALL_GATHER,
                           is_owned ? MW_BROADCAST : MW_ALL_GATHER,
                           params[i] * p->weight_bytes, pieces, &groups[i]);
    }
    return sum;
}

double mw_share_reduce_s(const struct mw_step_price *p, const double params[2],
                         const double tensors[2],
                         const struct mw_group groups[2])
{
    bool is_owned = p->ctx->stack.share == MW_SHARE_BY_OWNER;
    enum mw_coll_op op = is_owned ? MW_ALL_REDUCE : MW_REDUCE_SCATTER;
    double sum = 0;

    for (int i = 0; i < 2; i++) {
        sum += in_pieces_s(p, op, op, params[i] * p->grad_bytes,
                           is_owned ? 1 : tensors[i], &groups[i]);
    }
    return sum;
}
