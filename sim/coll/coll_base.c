/*
 * The models that need no measurement: NCCL's formula with the choice it
 * makes, a bound for all-to-all and send/recv, a plain ring for devices
 * without NCCL.
 *
 *   all-to-all, send/recv (no formula in NCCL):
 *         t = base + max(bytes on NVLink / its bandwidth,
 *                        bytes on the NICs / theirs)
 *   plain ring (Thakur, Rabenseifner, Gropp 2005), constants of the database:
 *         t = hops inside x alpha + hops outside x alpha' + bytes / bandwidth
 *
 * Each is latency + the rest: the corrections depend on the latency's share.
 */
#include "sim/coll/coll_int.h"
#include "sim/coll/nccl_int.h"

#include <math.h>

static bool func_of(enum mw_coll_op op, enum mw_nccl_func *out)
{
    switch (op) {
    case MW_ALL_REDUCE:
        *out = MW_NCCL_ALL_REDUCE;
        return true;
    case MW_ALL_GATHER:
        *out = MW_NCCL_ALL_GATHER;
        return true;
    case MW_REDUCE_SCATTER:
        *out = MW_NCCL_REDUCE_SCATTER;
        return true;
    case MW_BROADCAST:
        *out = MW_NCCL_BROADCAST;
        return true;
    case MW_REDUCE:
        *out = MW_NCCL_REDUCE;
        return true;
    case MW_ALL_TO_ALL:
    case MW_SEND_RECV:
    case MW_COLL_OP_COUNT:
        break;
    }
    return false;
}

enum mw_nccl_func coll_func_of(enum mw_coll_op op)
{
    enum mw_nccl_func func = MW_NCCL_ALL_REDUCE;
    MW_ASSERT(func_of(op, &func), "operation %d", (int)op);
    return func;
}

/* net_s: of the latency, what hops between nodes take. */
struct parts {
    double latency_s, wire_s, net_s;
};

/* NICs of all that groups share: of the node, or of the NVLink domain's trays
 * where the group may lie on any of them. */
static double shared_net_Bps(const struct mw_coll_world *w,
                             const struct mw_coll_query *q)
{
    struct coll_place p = coll_place_of(w, q);
    int trays = q->nic_sharers > 1 ? coll_domain_trays(w) : p.trays;
    return w->system->node_net_bw_Bps * (trays > p.trays ? trays : p.trays);
}

/* Bandwidth of the group's share of them, per rank. */
static double nic_Bps_per_rank(const struct mw_coll_world *w,
                               const struct mw_coll_query *q)
{
    struct coll_place p = coll_place_of(w, q);
    int sharers = q->nic_sharers > 1 ? q->nic_sharers : 1;
    return shared_net_Bps(w, q) / sharers / (p.trays * p.ppn);
}

/* The same of sends, which go through the NICs beside the rank's GPU. */
static double send_Bps_per_rank(const struct mw_coll_world *w,
                                const struct mw_coll_query *q)
{
    const struct mw_system *s = w->system;
    double beside = fmax(s->nic_bw_Bps, s->node_net_bw_Bps / s->gpus_per_node);
    return fmin(beside, nic_Bps_per_rank(w, q));
}

/*
 * How far the NICs of a group and of the others on its nodes are promised
 * twice: two GPUs of a switch with one NIC, each in a group of its own.
 */
static double promised(const struct mw_coll_world *w,
                       const struct mw_coll_query *q,
                       const struct coll_group *g)
{
    double device_Bps = w->shape.nic_Mbps * 125e3;
    double wanted_Bps =
        device_Bps * g->n_nics * g->place.trays * q->nic_sharers;
    return g->place.n_nodes > 1 && q->nic_sharers > 1
               ? fmax(1, wanted_Bps / shared_net_Bps(w, q))
               : 1;
}

/* How far NCCL overrates a ring over all of a node's GPUs. */
static double overrated(const struct mw_coll_world *w,
                        const struct coll_group *g)
{
    const struct mw_nccl_graph *ring = &g->graphs->ring;
    double ring_Bps = 1e9 * ring->n_channels * (double)ring->bw_inter;

    return w->plugin.ring_Bps > 0 && g->place.n_nodes > 1 &&
                   g->place.ppn == w->shape.n_gpus
               ? fmax(1, ring_Bps / w->plugin.ring_Bps)
               : 1;
}

static double oversubscribed(const struct mw_coll_world *w,
                             const struct mw_coll_query *q,
                             const struct coll_group *g)
{
    return fmax(promised(w, q, g), overrated(w, g));
}

/*
 * Bytes of an operation of send/recv over NVLink per second: what NCCL counts
 * of the links (graph/topo.h: 20.6 of 25 GB/s on Hopper), half of it where a
 * peer's part goes in lines of LL (mw_nccl_p2p_plan).
 */
static double p2p_local_Bps(struct mw_coll_world *w,
                            const struct mw_coll_query *q, double per_peer)
{
    const struct coll_group *g = NULL;
    if (!w->has_nccl || w->shape.n_links == 0 || w->shape.mesh_links > 0 ||
        coll_group_of(w, q, true, &g, NULL) != MW_OK) {
        return w->system->intra_bw_Bps;
    }
    struct mw_nccl_p2p plan =
        mw_nccl_p2p_plan(&g->comm, false, (uint64_t)(per_peer + .5));
    double links_Bps =
        1e9 * w->shape.n_links * (double)nccl_nvlink_bw(w->shape.sm);
    return links_Bps * (plan.proto == MW_NCCL_LL ? .5 : 1);
}

/* All-to-all and send/recv. Latencies: NCCL's LL ring inside a node, Simple
 * over the network (tuning.cc), since that is what its p2p uses; over a plugin
 * twice its latency, as for every Simple hop. */
static struct parts p2p_parts(struct mw_coll_world *w,
                              const struct mw_coll_query *q, bool has_plugin,
                              double bytes)
{
    struct coll_place p = coll_place_of(w, q);
    double n = (double)q->n_nodes * q->ranks_per_node;
    double local = (double)p.trays * p.ppn;
    double intra = bytes, inter = 0;
    if (q->op == MW_ALL_TO_ALL) {
        intra = bytes * (local - 1) / n;
        inter = bytes * (n - local) / n;
    } else if (p.n_nodes > 1) {
        intra = 0;
        inter = bytes;
    }
    double per_peer = q->op == MW_ALL_TO_ALL ? bytes / n : bytes;
    struct parts t = {7.2e-6, intra / p2p_local_Bps(w, q, per_peer), 0};
    if (p.n_nodes > 1) {
        t.latency_s = 22.4e-6;
        if (has_plugin && w->plugin.is_any) {
            t.latency_s += 2e-6 * (double)w->plugin.latency_us;
        }
        t.net_s = t.latency_s - 7.2e-6;
        double net = send_Bps_per_rank(w, q);
        t.wire_s = net > 0 ? fmax(t.wire_s, inter / net) : t.wire_s;
    }
    return t;
}

static double log2_ceil(int n)
{
    double steps = 0;
    for (int reach = 1; reach < n; reach *= 2) {
        steps++;
    }
    return steps;
}

/* Hops inside a domain and between; an all-reduce takes the ring or the tree
 * (a chain inside each domain), whichever is shorter, as sim/cost does. */
static struct parts plain_latency(const struct mw_system *s,
                                  const struct mw_coll_query *q, int n_nodes,
                                  int ranks)
{
    double rounds = q->op == MW_ALL_REDUCE ? 2 : 1;
    double ring_net_s = rounds * (n_nodes - 1) * s->inter_alpha_s;
    double tree_net_s = rounds * log2_ceil(n_nodes) * s->inter_alpha_s;
    double ring_s =
        rounds * (n_nodes * ranks - n_nodes) * s->intra_alpha_s + ring_net_s;
    double tree_s = rounds * (ranks - 1) * s->intra_alpha_s + tree_net_s;
    bool is_tree = q->op == MW_ALL_REDUCE && tree_s < ring_s;
    return is_tree ? (struct parts){tree_s, 0, tree_net_s}
                   : (struct parts){ring_s, 0, ring_net_s};
}

static struct parts ring_parts(const struct mw_coll_world *w,
                               const struct mw_coll_query *q, double bytes)
{
    const struct mw_system *s = w->system;
    struct coll_place p = coll_place_of(w, q);
    int ranks = p.trays * p.ppn;
    double bw = s->intra_bw_Bps * s->intra_efficiency;
    if (p.n_nodes > 1) {
        bw = fmin(bw, nic_Bps_per_rank(w, q) * ranks * s->inter_efficiency);
    }
    double bus = mw_coll_bus_factor(q->op, p.n_nodes * ranks);
    struct parts t = plain_latency(s, q, p.n_nodes, ranks);
    t.wire_s = bytes * bus / bw;
    return t;
}

static struct parts nccl_parts(const struct mw_coll_world *w,
                               const struct coll_group *g,
                               enum mw_nccl_func func,
                               const struct mw_coll_answer *a, double bytes)
{
    const struct mw_nccl_comm *c = &g->comm;
    double size = fmax(1, floor(bytes + .5));
    double GBps = (double)c->bw_GBps[func][a->algo][a->proto];
    MW_ASSERT(GBps > 0, "%s without bandwidth", mw_nccl_algo_name(a->algo));
    if (a->algo == MW_NCCL_NVLS_TREE) {
        GBps *= (double)c->nvls_tree_uncapped;
    }
    double latency_s =
        1e-6 * mw_nccl_latency_us(c, func, a->algo, a->proto, (uint64_t)size);
    double hidden = coll_pipe_hidden(g, func, a, size);
    return (struct parts){
        .latency_s = (1 - hidden) * latency_s,
        .wire_s = size / (1e9 * GBps) + coll_pipe_s(w, g, func, a, size),
        .net_s =
            (1 - hidden) * 1e-6 * (double)c->net_us[func][a->algo][a->proto]};
}

enum mw_status coll_base_answer(struct mw_coll_world *w,
                                const struct mw_coll_query *q, bool has_plugin,
                                struct mw_coll_answer *out, struct mw_err *err)
{
    enum mw_nccl_func func;
    if (!func_of(q->op, &func) || !w->has_nccl) {
        struct parts t = func_of(q->op, &func)
                             ? ring_parts(w, q, q->bytes)
                             : p2p_parts(w, q, has_plugin, q->bytes);
        out->time_s = t.latency_s + t.wire_s;
        return MW_OK;
    }
    const struct coll_group *g = NULL;
    enum mw_status s = coll_group_of(w, q, has_plugin, &g, err);
    if (s != MW_OK) {
        return s;
    }
    struct mw_nccl_choice c = mw_nccl_choose(&g->comm, func, q->type, q->redop,
                                             (uint64_t)(q->bytes + .5));
    /* NCCL chooses as if alone. Half the bandwidth is twice the bytes. */
    double share = oversubscribed(w, q, g);
    out->time_s = 1e-6 * c.time_us;
    if (share > 1) {
        out->time_s = 1e-6 * mw_nccl_time_us(&g->comm, func, c.algo, c.proto,
                                             (uint64_t)(q->bytes * share), 1);
    }
    out->has_choice = true;
    out->algo = c.algo;
    out->proto = c.proto;
    out->n_channels = c.n_channels;
    out->n_threads = c.n_threads;
    if (has_plugin) {
        struct mw_coll_time t = mw_coll_base(w, q, out, q->bytes);
        out->time_s = t.time_s;
    }
    return MW_OK;
}

struct mw_coll_time mw_coll_base(struct mw_coll_world *world,
                                 const struct mw_coll_query *query,
                                 const struct mw_coll_answer *answer,
                                 double bytes)
{
    const struct coll_group *g = NULL;
    enum mw_nccl_func func = MW_NCCL_ALL_REDUCE;
    struct parts t = {0, 0, 0};
    if (!func_of(query->op, &func)) {
        t = p2p_parts(world, query, true, bytes);
    } else if (!answer->has_choice ||
               coll_group_of(world, query, true, &g, NULL) != MW_OK) {
        t = ring_parts(world, query, bytes);
    } else {
        t = nccl_parts(world, g, func, answer,
                       bytes * oversubscribed(world, query, g));
    }
    bool is_multi = coll_place_of(world, query).n_nodes > 1;
    return (struct mw_coll_time){.latency_s = t.latency_s,
                                 .time_s = t.latency_s + t.wire_s,
                                 .net_s = is_multi ? t.net_s + t.wire_s : 0};
}
