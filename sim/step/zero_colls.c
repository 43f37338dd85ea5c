/*
 * Collectives over parameters and gradients that a layout asks for, as price.c
 * times and ledger.c counts them: what ZeRO does per unit and micro-batch, what
 * reduces gradients once a step. With n ranks, P parameters of the rank:
 *
 *   ZeRO-2, -3   reduce-scatter of gradients; ZeRO-3 all-gathers weights for
 *                either pass (Rajbhandari et al., SC 2020, section 5)
 *   zeropp       ZeRO++ (Wang et al., arXiv:2306.10209, section 3; DeepSpeed
 *                deepspeed/runtime/comm/coalesced_collectives.py): weights are
 *                gathered as 8-bit integers forward (qwZ); backward in the
 *                compute type from a copy that each node holds once (hpZ);
 *                gradients as 4-bit integers by an all-to-all inside the node,
 *                summed there, and one of the sums between nodes (qgZ)
 *   onebit       1-bit Adam after its warm-up (Tang et al., ICML 2021, section
 *                3; DeepSpeed deepspeed/runtime/comm/nccl.py): the momentum's
 *                signs, P / 8 bytes, to whoever sums a part of them by an
 *                all-to-all, the signs of the sums by an all-gather, and twice
 *                one scale a rank. Both errors of the compression are kept, 4
 *                bytes a parameter and 4 / n
 *
 * DeepSpeed 0.3.17 sums sharded gradients by an all-reduce of which a rank
 * keeps its share (runtime/zero/stage3.py average_tensor; BigScience's logs of
 * 2021 say "reduce_scatter": false), and frees a weight after each pass through
 * its module unless it is used again before D parameters are (_keep_for_later;
 * stage3_max_reuse_distance, 1e9). Recomputation brings a layer of P parameters
 * back, forward and then backward: a weight that lies d parameters before its
 * end is used again 2 d later, so as many are gathered once more as lie further
 * than D / 2 from the end:
 *
 *   again = max(0, 1 - D / (2 P))          of a third gather of each layer
 *
 * Left out: scales of quantised blocks (4 bytes for thousands of elements),
 * tensors of one dimension, which qgZ reduces whole; the warm-up steps; that
 * DeepSpeed 0.3.17 sums its bucket whole however little is in it (stage3.py
 * reduce_ipg_grads), up to 1.9 times the gradients of BigScience's scripts.
 */
#include "sim/step/step_int.h"

static const double int8_bytes = 1, int4_bytes = 0.5, sign_bytes = 0.125;
static const double scale_bytes = 4;

static void add(struct mw_zero_colls *out, enum mw_zero_when when,
                enum mw_coll_op op, double bytes, const struct mw_group *group)
{
    MW_ASSERT(out->n < MW_ZERO_COLLS_MAX, "%d collectives", out->n);
    out->v[out->n++] = (struct mw_zero_coll){when, op, bytes, 1, *group};
}

static struct mw_group inside_node(const struct mw_group *g)
{
    return (struct mw_group){g->ranks_per_node, 1, g->ranks_per_node,
                             g->nic_sharers};
}

/* Ranks at the same place of every node. */
static struct mw_group over_nodes(const struct mw_group *g)
{
    return (struct mw_group){g->n_ranks / g->ranks_per_node, g->n_nodes, 1,
                             g->nic_sharers * g->ranks_per_node};
}

bool mw_zero_has_node_copy(const struct mw_step_price *p,
                           const struct mw_group *g)
{
    return p->layout->grad_compression == MW_COMPRESS_ZEROPP &&
           g->n_nodes > 1 && g->ranks_per_node > 1;
}

double mw_zero_again(const struct mw_step_price *p, enum mw_step_unit unit)
{
    const struct mw_stack *stack = &p->ctx->stack;
    const struct mw_unit_size *size = &p->size[unit];
    double params =
        size->dense_params + mw_step_copy_params(p, unit) + size->expert_params;
    double back = 2 * params;

    if (p->layout->zero != 3 || !p->layout->reshard ||
        p->layout->recompute != MW_RECOMPUTE_FULL || !mw_unit_is_layer(unit) ||
        mw_unit_is_kept(unit) || !(stack->reuse_params > 0) ||
        !(back > stack->reuse_params)) {
        return 0;
    }
    return 1 - stack->reuse_params / back;
}

/* params of one kind, dense or of experts, and their bytes as weights. */
static void add_compressed(const struct mw_step_price *p, double params,
                           double weight_bytes, const struct mw_group *g,
                           struct mw_zero_colls *out)
{
    struct mw_group inner = inside_node(g), outer = over_nodes(g);

    add(out, MW_ZERO_FORWARD, MW_ALL_GATHER, params * int8_bytes, g);
    if (!mw_zero_has_node_copy(p, g)) {
        add(out, MW_ZERO_BACKWARD, MW_ALL_GATHER, params * int8_bytes, g);
        add(out, MW_ZERO_SCATTER, MW_ALL_TO_ALL, params * int4_bytes, g);
        return;
    }
    add(out, MW_ZERO_BACKWARD, MW_ALL_GATHER, weight_bytes, &inner);
    add(out, MW_ZERO_SCATTER, MW_ALL_TO_ALL, params * int4_bytes, &inner);
    add(out, MW_ZERO_SCATTER, MW_ALL_TO_ALL,
        params * int4_bytes / g->ranks_per_node, &outer);
}

/* again_bytes: of the weights, gathered once more after recomputation. */
static void add_plain(const struct mw_step_price *p, double params,
                      double weight_bytes, double again_bytes,
                      const struct mw_group *g, struct mw_zero_colls *out)
{
    add(out, MW_ZERO_SCATTER,
        p->ctx->stack.sums_whole ? MW_ALL_REDUCE : MW_REDUCE_SCATTER,
        params * p->grad_bytes, g);
    if (p->layout->zero == 3) {
        add(out, MW_ZERO_FORWARD, MW_ALL_GATHER, weight_bytes, g);
    }
    if (p->layout->zero == 3 && p->layout->reshard) {
        add(out, MW_ZERO_BACKWARD, MW_ALL_GATHER, weight_bytes, g);
    }
    if (again_bytes > 0) {
        add(out, MW_ZERO_BACKWARD, MW_ALL_GATHER, again_bytes, g);
    }
}

void mw_zero_unit_colls(const struct mw_step_price *p, enum mw_step_unit unit,
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out)
{
    int one[MW_UNIT_COUNT] = {0};

    one[unit] = 1;
    mw_zero_many_colls(p, one, groups, out);
}

void mw_zero_many_colls(const struct mw_step_price *p,
                        const int n_units[MW_UNIT_COUNT],
                        const struct mw_group groups[2],
                        struct mw_zero_colls *out)
{
    double params[2] = {0, 0}, weights[2] = {0, 0}, again[2] = {0, 0};
    bool is_small = p->layout->grad_compression == MW_COMPRESS_ZEROPP;

    for (int unit = 0; unit < MW_UNIT_COUNT; unit++) {
        const struct mw_unit_size *size = &p->size[unit];
        enum mw_step_unit u = (enum mw_step_unit)unit;

        if (n_units[unit] > 0) {
            double dense_bytes =
                mw_unit_dense_bytes(p, size) + mw_step_copy_bytes(p, u);
            double expert_bytes = mw_unit_expert_bytes(p, size);
            double part = mw_zero_again(p, u);

            params[0] += n_units[unit] *
                         (size->dense_params + mw_step_copy_params(p, u));
            params[1] += n_units[unit] * size->expert_params;
            weights[0] += n_units[unit] * dense_bytes;
            weights[1] += n_units[unit] * expert_bytes;
            again[0] += n_units[unit] * part * dense_bytes;
            again[1] += n_units[unit] * part * expert_bytes;
        }
    }
    out->n = 0;
    for (int i = 0; i < 2 && p->layout->zero >= 2; i++) {
        if (is_small) {
            add_compressed(p, params[i], weights[i], &groups[i], out);
        } else {
            add_plain(p, params[i], weights[i], again[i], &groups[i], out);
        }
    }
}

void mw_zero_reduce_colls(const struct mw_step_price *p, const double params[2],
                          const double pieces[2],
                          const struct mw_group groups[2],
                          struct mw_zero_colls *out)
{
    out->n = 0;
    for (int i = 0; i < 2 && p->layout->zero < 2; i++) {
        const struct mw_group *g = &groups[i];

        if (p->layout->grad_compression != MW_COMPRESS_ONEBIT) {
            add(out, MW_ZERO_SCATTER,
                mw_step_reduces_whole(p) ? MW_ALL_REDUCE : MW_REDUCE_SCATTER,
                params[i] * p->grad_bytes, g);
            out->v[out->n - 1].pieces = pieces[i];
        } else if (params[i] > 0) {
            add(out, MW_ZERO_SCATTER, MW_ALL_TO_ALL, params[i] * sign_bytes, g);
            add(out, MW_ZERO_SCATTER, MW_ALL_GATHER, params[i] * sign_bytes, g);
            add(out, MW_ZERO_SCATTER, MW_ALL_GATHER, scale_bytes * g->n_ranks,
                g);
            add(out, MW_ZERO_SCATTER, MW_ALL_GATHER, scale_bytes * g->n_ranks,
                g);
        }
    }
}

struct mw_pieces mw_zero_colls_pieces(const struct mw_step_price *p,
                                      const struct mw_zero_colls *colls,
                                      enum mw_zero_when when)
{
    struct mw_pieces sum = {0, 0};

    for (int i = 0; i < colls->n; i++) {
        const struct mw_zero_coll *c = &colls->v[i];

        if (c->when == when) {
            double piece_s = mw_cost_coll(p->ctx, c->op, c->bytes / c->pieces,
                                          &c->group, NULL)
                                 .time_s;

            sum.all_s += c->pieces * piece_s;
            sum.last_s += piece_s;
        }
    }
    return sum;
}

double mw_zero_colls_s(const struct mw_step_price *p,
                       const struct mw_zero_colls *colls,
                       enum mw_zero_when when)
{
    return mw_zero_colls_pieces(p, colls, when).all_s;
}

double mw_zero_colls_bytes(const struct mw_zero_colls *colls,
                           enum mw_zero_when when)
{
    double sum = 0;

    for (int i = 0; i < colls->n; i++) {
        const struct mw_zero_coll *c = &colls->v[i];

        sum += c->when == when && c->group.n_ranks > 1 ? c->bytes : 0;
    }
    return sum;
}

void mw_zero_colls_load(const struct mw_step_price *p,
                        const struct mw_zero_colls *colls,
                        enum mw_zero_when when, struct mw_comm_load *load)
{
    for (int i = 0; i < colls->n; i++) {
        const struct mw_zero_coll *c = &colls->v[i];

        if (c->when == when) {
            mw_step_load_add(p, c->op, MW_DIM_DP, c->bytes, &c->group, load);
        }
    }
}

/* ---- what compressing costs the device -------------------------------------
 */
static double stream_s(const struct mw_step_price *p, double bytes)
{
    struct mw_op op = {.kind = MW_OP_OPTIMIZER,
                       .pass = MW_PASS_F,
                       .name = "compression",
                       .m = (int64_t)bytes,
                       .n = 1,
                       .batch = 1,
                       .dtype = p->work.dtype,
                       .bytes = bytes};

    return bytes > 0 ? mw_cost_op(p->ctx, &op, NULL).time_s : 0;
}

double mw_zero_spread_s(const struct mw_step_price *p, enum mw_step_unit unit)
{
    const struct mw_unit_size *size = &p->size[unit];
    double params = size->dense_params + size->expert_params;

    return p->layout->grad_compression == MW_COMPRESS_ZEROPP
               ? stream_s(p, params * (int8_bytes + p->weight_bytes))
               : 0;
}

double mw_zero_pack_s(const struct mw_step_price *p, enum mw_step_unit unit)
{
    const struct mw_unit_size *size = &p->size[unit];
    double params = size->dense_params + size->expert_params;

    /* Written as 4 bits, read again where they are summed. */
    return p->layout->grad_compression == MW_COMPRESS_ZEROPP
               ? stream_s(p, params * (p->grad_bytes + 2 * int4_bytes))
               : 0;
}

double mw_onebit_pack_s(const struct mw_step_price *p, double params,
                        double share)
{
    const double corrected = 12, norm = 4, error = 8, signs = 4 + sign_bytes;

    if (p->layout->grad_compression != MW_COMPRESS_ONEBIT ||
        p->grad_group.n_ranks <= 1) {
        return 0;
    }
    /* The rank's own and, of its share, the sum of everybody's. */
    return stream_s(p, params * (corrected + norm + error + 2 * signs) +
                           params * sign_bytes +
                           share * (corrected + norm + error + signs));
}

double mw_onebit_error_bytes(const struct mw_step_price *p, double params,
                             double share)
{
    return p->layout->grad_compression == MW_COMPRESS_ONEBIT
               ? 4 * (params + share)
               : 0;
}

double mw_zero_node_copy_bytes(const struct mw_step_price *p, double dense,
                               double expert)
{
    double sum = 0;

    if (mw_zero_has_node_copy(p, &p->grad_group)) {
        sum += dense / p->grad_group.ranks_per_node;
    }
    if (mw_zero_has_node_copy(p, &p->expert_group)) {
        sum += expert / p->expert_group.ranks_per_node;
    }
    return sum;
}
