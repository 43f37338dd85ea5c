/*
 * How a stack moves the shares of ZeRO-1 (docs/step.md, Training stacks). Most
 * keep gradients and parameters in flat buffers and need one collective of
 * each, or of each bucket (buckets.c); two do not:
 *
 *   a tensor at a time   a reduce-scatter and an all-gather for every tensor
 *                        (nanotron, src/nanotron/optim/zero.py,
 *                        _all_gather_params; gradient_accumulator.py)
 *   an owner at a time   a tensor belongs to one rank as a whole, gradients are
 *                        all-reduced, and each owner broadcasts what it updated
 *                        (InternEvo, internlm/solver/optimizer/
 *                        hybrid_zero_optim.py, broadcast_params)
 *
 *   t = pieces x T(bytes / pieces), and by tensors or owners never below one
 *   collective
 *
 * The bytes are what a flat buffer has; with many ranks it is the latency of
 * the pieces that costs. Pieces are taken as equal.
 *
 * Left out: owners with more than others (an embedding is the largest tensor,
 * whole), which update for longer.
 */
#include "sim/step/step_int.h"

#include <math.h>

static void add(struct mw_pieces *sum, const struct mw_step_price *p,
                enum mw_coll_op op, double bytes, double pieces,
                const struct mw_group *g)
{
    double piece_s =
        bytes > 0 ? mw_cost_coll(p->ctx, op, bytes / pieces, g, NULL).time_s
                  : 0;

    sum->all_s += pieces * piece_s;
    sum->last_s += piece_s;
}

/* The pieces, or one collective where that takes longer. */
static void add_longer(struct mw_pieces *sum, const struct mw_step_price *p,
                       enum mw_coll_op flat, enum mw_coll_op op, double bytes,
                       double pieces, const struct mw_group *g)
{
    struct mw_pieces whole = {0, 0}, split = {0, 0};

    add(&whole, p, flat, bytes, 1, g);
    add(&split, p, op, bytes, pieces, g);
    sum->all_s += fmax(whole.all_s, split.all_s);
    sum->last_s += fmax(whole.all_s, split.all_s) / pieces;
}

enum mw_coll_op mw_share_gather_op(const struct mw_step_price *p)
{
    return p->ctx->stack.share == MW_SHARE_BY_OWNER ? MW_BROADCAST
                                                    : MW_ALL_GATHER;
}

double mw_share_gathers(const struct mw_step_price *p,
                        const struct mw_share *share, int i)
{
    return p->ctx->stack.share == MW_SHARE_BY_OWNER
               ? fmax(1, fmin(share->tensors[i], share->groups[i].n_ranks))
               : share->buckets[i];
}

struct mw_pieces mw_share_gather(const struct mw_step_price *p,
                                 const struct mw_share *share)
{
    bool is_flat = p->ctx->stack.share == MW_SHARE_FLAT;
    struct mw_pieces sum = {0, 0};

    for (int i = 0; i < 2; i++) {
        double bytes = share->params[i] * p->weight_bytes;
        double pieces = mw_share_gathers(p, share, i);

        if (is_flat) {
            add(&sum, p, MW_ALL_GATHER, bytes, pieces, &share->groups[i]);
        } else {
            add_longer(&sum, p, MW_ALL_GATHER, mw_share_gather_op(p), bytes,
                       pieces, &share->groups[i]);
        }
    }
    return sum;
}

struct mw_pieces mw_share_reduce(const struct mw_step_price *p,
                                 const struct mw_share *share)
{
    bool is_owned = p->ctx->stack.share == MW_SHARE_BY_OWNER;
    struct mw_pieces sum = {0, 0};

    for (int i = 0; i < 2; i++) {
        double bytes = share->params[i] * p->grad_bytes;

        if (is_owned) {
            add(&sum, p, MW_ALL_REDUCE, bytes, share->buckets[i],
                &share->groups[i]);
        } else {
            add_longer(&sum, p, MW_REDUCE_SCATTER, MW_REDUCE_SCATTER, bytes,
                       share->buckets[i], &share->groups[i]);
        }
    }
    return sum;
}
