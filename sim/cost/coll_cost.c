/*
 * Collectives and point-to-point transfers, fast form: the measured curve of
 * the system, else the modelled one (sim/coll through coll_curve.h), else
 *
 *   t = latency + wire_bytes / bandwidth
 *
 * Wire bytes per rank of a buffer of S bytes over n ranks: 2 (n-1)/n S for
 * all-reduce, (n-1)/n S for the others, S for a transfer (Thakur, Rabenseifner
 * and Gropp, "Optimization of collective communication operations in MPICH",
 * IJHPCA 19(1), 2005, sections 4.1-4.5). Bandwidth is the scale-up link's, or
 * where the group spans nodes the slower of that and the group's share of a
 * node's NICs. A ring passes node borders once per node and round, so hops
 * split into inner and outer ones; all-reduce takes the shorter of ring and
 * tree, as NCCL's tuning model does (src/graph/tuning.cc, NCCL 2.28). An
 * all-to-all sends (n - r)/n of the buffer off the node, where r ranks share
 * the group's NICs.
 *
 * A machine with links a times and latencies l times as fast takes
 * t(S l / a) / l where this one takes t(S): exact for a sum of latency and
 * bytes over bandwidth, and how a what-if changes a modelled curve.
 *
 * A measured curve of the system with the same number of ranks goes first; it
 * is used for groups that fill whole nodes, as nccl-tests lays them.
 * Left out of the last form: protocols, chunk pipelining, in-switch sums; of
 * all: congestion between groups of different kinds.
 */
#include "sim/cost/cost.h"

#include "base/stats.h"

#include <math.h>

struct wire {
    double hops_in, hops_out; /* latency steps inside a node and between */
    double bytes;             /* on the slowest link, per rank */
    double bw_Bps;
};

static double log2_ceil(int n)
{
    double steps = 0;

    for (int reach = 1; reach < n; reach *= 2) {
        steps++;
    }
    return steps;
}

/* Bandwidth one rank of a ring gets: its own link, or the group's NICs. */
static double ring_bw(const struct mw_cost_ctx *ctx, const struct mw_group *g)
{
    const struct mw_system *sys = ctx->system;
    double inner = sys->intra_bw_Bps * sys->intra_efficiency;
    double outer = ctx->domain_net_Bps / g->nic_sharers * sys->inter_efficiency;

    return g->n_nodes > 1 ? fmin(inner, outer) : inner;
}

/* One pass around the ring: n - 1 hops of which n_nodes - 1 leave a node. */
static void ring_hops(const struct mw_group *g, double rounds, struct wire *w)
{
    w->hops_out = rounds * (g->n_nodes - 1);
    w->hops_in = rounds * (g->n_ranks - g->n_nodes);
}

static double latency_s(const struct mw_cost_ctx *ctx, const struct wire *w)
{
    return w->hops_in * ctx->system->intra_alpha_s +
           w->hops_out * ctx->system->inter_alpha_s;
}

/* Chain inside each node, binary tree between them, up and down. */
static void shorter_of_ring_and_tree(const struct mw_cost_ctx *ctx,
                                     const struct mw_group *g, struct wire *w)
{
    struct wire tree = *w;

    ring_hops(g, 2, w);
    tree.hops_in = 2 * (g->ranks_per_node - 1);
    tree.hops_out = 2 * log2_ceil(g->n_nodes);
    if (latency_s(ctx, &tree) < latency_s(ctx, w)) {
        *w = tree;
    }
}

static struct wire all_to_all_wire(const struct mw_cost_ctx *ctx, double bytes,
                                   const struct mw_group *g)
{
    double n = g->n_ranks, r = g->ranks_per_node;
    double inner = ctx->system->intra_bw_Bps * ctx->system->intra_efficiency;
    struct wire w = {.hops_in = r - 1,
                     .hops_out = g->n_nodes > 1 ? g->n_nodes - 1 : 0,
                     .bytes = (r - 1) / n * bytes,
                     .bw_Bps = inner};

    if (g->n_nodes > 1) {
        double outer = ring_bw(ctx, g) / r;

        if ((n - r) / n * bytes / outer > w.bytes / inner) {
            w.bytes = (n - r) / n * bytes;
            w.bw_Bps = outer;
        }
    }
    return w;
}

static struct wire wire_of(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                           double bytes, const struct mw_group *g)
{
    double n = g->n_ranks;
    struct wire w = {.bytes = (n - 1) / n * bytes, .bw_Bps = ring_bw(ctx, g)};

    switch (op) {
    case MW_ALL_REDUCE:
        w.bytes *= 2;
        shorter_of_ring_and_tree(ctx, g, &w);
        break;
    case MW_ALL_GATHER:
    case MW_REDUCE_SCATTER:
        ring_hops(g, 1, &w);
        break;
    case MW_ALL_TO_ALL:
        w = all_to_all_wire(ctx, bytes, g);
        break;
    case MW_BROADCAST:
    case MW_REDUCE:
        w.hops_in = log2_ceil(g->ranks_per_node);
        w.hops_out = log2_ceil(g->n_nodes);
        break;
    case MW_SEND_RECV:
        w.bytes = bytes;
        w.hops_out = g->n_nodes > 1;
        w.hops_in = g->n_nodes == 1;
        break;
    case MW_COLL_OP_COUNT:
        break;
    }
    return w;
}

/* Time on the segment of the curve around `bytes`; end slopes continue. */
static double on_curve(const struct mw_curve_row *row, size_t n, double bytes)
{
    size_t i = row[0].bytes == 0 && n > 2; /* log-log has no place for 0 */

    while (i + 2 < n && (double)row[i + 1].bytes <= bytes) {
        i++;
    }
    const double x[2] = {(double)row[i].bytes, (double)row[i + 1].bytes};
    const double y[2] = {row[i].time_s, row[i + 1].time_s};

    return mw_loglog_interp(x, y, 2, bytes);
}

/* Does the group fill nodes as the benchmark that measured the curve did? */
static bool is_packed(const struct mw_cost_ctx *ctx, const struct mw_group *g)
{
    int per_node = ctx->domain_gpus;

    return g->n_nodes == (g->n_ranks + per_node - 1) / per_node;
}

static bool from_curve(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                       double bytes, const struct mw_group *g,
                       struct mw_cost *out, struct mw_explain *explain)
{
    const struct mw_curve_row *row;
    size_t n;

    if (!is_packed(ctx, g)) {
        return false;
    }
    n = mw_hwdb_curve(ctx->db, ctx->system->slug, mw_coll_op_name(op),
                      g->n_ranks, &row);
    if (n < 2 || (n == 2 && row[0].bytes == 0)) {
        return false;
    }
    bool is_inside =
        bytes >= (double)row[0].bytes && bytes <= (double)row[n - 1].bytes;

    *out = (struct mw_cost){on_curve(row, n, bytes),
                            is_inside ? MW_RUNG_CURVE : MW_RUNG_BEYOND};
    mw_explain_child(explain, mw_coll_op_name(op), out->time_s,
                     is_inside
                         ? "log-log interpolation in the measured curve"
                         : "the measured curve's last slope, beyond its sizes",
                     row[0].source);
    return true;
}

static void explain_model(struct mw_explain *parent,
                          const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                          double bytes, const struct mw_group *g, double time_s)
{
    struct mw_coll_point p = {.how = ""};

    if (parent == NULL || !mw_coll_curves_ask(ctx->curves, op, bytes, g, &p)) {
        return;
    }
    const char *where =
        g->n_nodes > 1
            ? mw_arena_printf(parent->arena, "on %d nodes, %d group%s at once",
                              g->n_nodes, g->nic_sharers,
                              g->nic_sharers == 1 ? "" : "s")
            : "of one domain";

    mw_explain_child(parent, mw_coll_op_name(op), time_s,
                     mw_arena_printf(parent->arena,
                                     "%.6g MB over %d ranks %s%s%s",
                                     bytes / 1e6, g->n_ranks, where,
                                     p.how[0] != '\0' ? "; NCCL: " : "", p.how),
                     p.source);
}

static bool from_model(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                       double bytes, const struct mw_group *g,
                       struct mw_cost *out, struct mw_explain *explain)
{
    double speed = g->n_nodes > 1 ? ctx->net_speed : ctx->link_speed;
    double time_s;

    if (ctx->curves == NULL ||
        !mw_coll_curves_time(ctx->curves, op,
                             bytes * ctx->latency_speed / speed, g, &time_s)) {
        return false;
    }
    *out = (struct mw_cost){time_s / ctx->latency_speed, MW_RUNG_COLL_MODEL};
    explain_model(explain, ctx, op, bytes, g, out->time_s);
    return true;
}

static void explain_wire(struct mw_explain *parent,
                         const struct mw_cost_ctx *ctx, const char *name,
                         const struct wire *w, double time_s)
{
    if (parent == NULL) {
        return;
    }
    mw_explain_child(
        parent, name, time_s,
        mw_arena_printf(parent->arena,
                        "%.6g hops x %.4g us + %.6g hops x %.4g us + %.6g MB "
                        "/ %.6g GB/s",
                        w->hops_in, 1e6 * ctx->system->intra_alpha_s,
                        w->hops_out, 1e6 * ctx->system->inter_alpha_s,
                        w->bytes / 1e6, w->bw_Bps / 1e9),
        "Thakur et al. 2005");
}

static struct mw_cost price(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                            double bytes, const struct mw_group *group,
                            struct mw_explain *explain)
{
    struct mw_cost cost = {0, MW_RUNG_ALPHA_BETA};

    if (group->n_ranks <= 1 || !(bytes > 0)) {
        return cost;
    }
    if (from_curve(ctx, op, bytes, group, &cost, explain)) {
        return cost;
    }
    if (from_model(ctx, op, bytes, group, &cost, explain)) {
        return cost;
    }
    struct wire w = wire_of(ctx, op, bytes, group);

    cost.time_s = latency_s(ctx, &w) + w.bytes / w.bw_Bps;
    explain_wire(explain, ctx, mw_coll_op_name(op), &w, cost.time_s);
    return cost;
}

struct mw_cost mw_cost_coll(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                            double bytes, const struct mw_group *group,
                            struct mw_explain *explain)
{
    struct mw_explain *before = explain != NULL ? explain->last_child : NULL;
    struct mw_cost cost = price(ctx, op, bytes, group, explain);

    if (explain != NULL && explain->last_child != before) {
        explain->last_child->bound =
            mw_cost_coll_wire_part(ctx, op, bytes, group) < 0.5 ? "latency"
            : group->n_nodes > 1                                ? "network"
                                                                : "links";
    }
    return cost;
}

bool mw_cost_experts(const struct mw_cost_ctx *ctx,
                     const struct mw_expert_exchange *exchange,
                     struct mw_cost *out, struct mw_explain *explain)
{
    const struct mw_group *g = &exchange->group;
    double speed = g->n_nodes > 1 ? ctx->net_speed : ctx->link_speed;
    struct mw_expert_exchange scaled = *exchange;
    const char *source = NULL;
    double time_s;

    scaled.token_bytes *= ctx->latency_speed / speed;
    if (ctx->library == NULL || ctx->library->experts_s == NULL ||
        !ctx->library->experts_s(ctx->library, ctx->system, &scaled, &time_s,
                                 &source)) {
        return false;
    }
    *out = (struct mw_cost){time_s / ctx->latency_speed, MW_RUNG_CURVE};
    if (explain != NULL) {
        mw_explain_child(
            explain, exchange->is_return ? "combine" : "dispatch", out->time_s,
            mw_arena_printf(explain->arena,
                            "latency + copies of %.6g MB of tokens to %d of %d "
                            "experts on %d ranks, %d nodes / bandwidth",
                            exchange->token_bytes / 1e6, exchange->top_k,
                            exchange->n_experts, g->n_ranks, g->n_nodes),
            source)
            ->bound = g->n_nodes > 1 ? "network" : "links";
    }
    return true;
}

double mw_cost_coll_sms(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                        const struct mw_group *group)
{
    bool is_p2p = op == MW_SEND_RECV || op == MW_ALL_TO_ALL;

    return ctx->curves != NULL && group->n_ranks > 1
               ? mw_coll_curves_channels(ctx->curves,
                                         is_p2p ? MW_ALL_GATHER : op, group)
               : 0;
}

double mw_cost_coll_wire_part(const struct mw_cost_ctx *ctx, enum mw_coll_op op,
                              double bytes, const struct mw_group *group)
{
    const double more = 1.25; /* within a step of a curve, or about one */
    double t = mw_cost_coll(ctx, op, bytes, group, NULL).time_s;
    double up = mw_cost_coll(ctx, op, bytes * more, group, NULL).time_s;

    return t > 0 ? fmin(fmax(log(up / t) / log(more), 0), 1) : 0;
}

struct mw_cost mw_cost_p2p(const struct mw_cost_ctx *ctx, double bytes,
                           bool crosses_node, int sharers,
                           struct mw_explain *explain)
{
    struct mw_group pair = {.n_ranks = 2,
                            .n_nodes = crosses_node ? 2 : 1,
                            .ranks_per_node = crosses_node ? 1 : 2,
                            .nic_sharers = sharers > 0 ? sharers : 1};

    return mw_cost_coll(ctx, MW_SEND_RECV, bytes, &pair, explain);
}
