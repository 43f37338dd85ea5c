/*
 * NCCL's cost table: latency and bandwidth of every collective x algorithm x
 * protocol for n equal nodes, and which of them are enabled.
 *
 *   t = L k + S / (1000 A)     us, bytes, GB/s
 *
 * with A from the graph's channels and speed, capped per generation, and L
 * from per-hop latencies times hops. Constants and formulas: NCCL 2.28.9,
 * src/graph/tuning.cc; 2.30 deltas where mw_nccl_opts.version asks.
 * Single precision as there.
 */
#include "sim/coll/nccl_int.h"

#include <string.h>

enum { VOLTA, AMPERE, HOPPER, BLACKWELL, GENERATIONS };
enum { HW_NVLINK, HW_PCI, HW_NET, HW_CLASSES };

/* clang-format off */
/* us, added once: LL, LL128, Simple. */
static const float base_lat_us[MW_NCCL_ALGOS][MW_NCCL_PROTOS] = {
    [MW_NCCL_TREE] = {6.8f, 14.0f, 8.4f},
    [MW_NCCL_RING] = {6.6f, 14.0f, 8.4f},
    [MW_NCCL_PAT]  = {8.0f, 8.0f, 8.0f},
};
/* us per hop and link class. */
static const float hop_lat_us[HW_CLASSES][MW_NCCL_ALGOS][MW_NCCL_PROTOS] = {
    [HW_NVLINK] = {
        [MW_NCCL_TREE] = {.6f, 1.25f, 4.0f},
        [MW_NCCL_RING] = {.6f, 1.9f, 3.4f},
        [MW_NCCL_COLLNET_DIRECT] = {0, 0, 3.7f},
        [MW_NCCL_COLLNET_CHAIN] = {0, 0, 2.8f},
        [MW_NCCL_NVLS] = {0, 0, 25},
        [MW_NCCL_NVLS_TREE] = {0, 0, 25},
        [MW_NCCL_PAT] = {0, 0, 4.0f}},
    [HW_PCI] = {
        [MW_NCCL_TREE] = {1.0f, 1.9f, 4.0f},
        [MW_NCCL_RING] = {1.0f, 2.5f, 5.7f},
        [MW_NCCL_COLLNET_DIRECT] = {0, 0, 3.7f},
        [MW_NCCL_COLLNET_CHAIN] = {0, 0, 2.8f},
        [MW_NCCL_PAT] = {0, 0, 4.0f}},
    [HW_NET] = {
        [MW_NCCL_TREE] = {5.0f, 8.5f, 14},
        [MW_NCCL_RING] = {2.7f, 4.0f, 14.0f},
        [MW_NCCL_COLLNET_DIRECT] = {0, 0, 31},
        [MW_NCCL_COLLNET_CHAIN] = {0, 0, 30},
        [MW_NCCL_NVLS] = {0, 0, 18},
        [MW_NCCL_NVLS_TREE] = {0, 0, 20.9f},
        [MW_NCCL_PAT] = {0, 0, 14}},
};
/* GB/s; columns 1, 2, more nodes. */
static const double ll_max_bw[GENERATIONS][3] = {
    {39.0, 39.0, 20.4}, {87.7, 22.5, 19.0}, {141.0, 45.0, 35.0}, {282.0, 90.0, 70.0}};
static const double ring_ll128_channel_bw[GENERATIONS][3] = {
    {20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
static const double tree_ll128_channel_bw[GENERATIONS][3] = {
    {20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}};
static const double tree_channel_bw[GENERATIONS][3] = {
    {26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}};
static const double nvls_tree_channel_bw[GENERATIONS][3] = {
    {26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, 43.8}};
static const float nvls_efficiency[GENERATIONS] = {0, 0, .85f, .74f};
/* clang-format on */

static double min_d(double a, double b)
{
    return a < b ? a : b;
}

static float min_f(float a, float b)
{
    return a < b ? a : b;
}

/* What one table needs besides the graphs. */
struct tuning {
    const struct mw_nccl_graphs *graphs;
    const struct mw_nccl_opts *opts;
    struct mw_nccl_comm *comm;
    int gen, col;
    float ppn;
};

static const struct mw_nccl_graph *graph_of(const struct mw_nccl_graphs *g,
                                            int algo)
{
    switch ((enum mw_nccl_algo)algo) {
    case MW_NCCL_RING:
        return &g->ring;
    case MW_NCCL_COLLNET_DIRECT:
        return &g->collnet_direct;
    case MW_NCCL_COLLNET_CHAIN:
        return &g->collnet_chain;
    case MW_NCCL_NVLS:
    case MW_NCCL_NVLS_TREE:
        return &g->nvls;
    case MW_NCCL_TREE:
    case MW_NCCL_PAT:
    case MW_NCCL_ALGOS:
        break;
    }
    return &g->tree;
}

static bool is_gather(int func)
{
    return func == MW_NCCL_ALL_GATHER || func == MW_NCCL_REDUCE_SCATTER;
}

static bool pat_enabled(const struct tuning *t)
{
    return t->comm->sm_min >= 60 && t->comm->n_nodes == t->comm->n_ranks;
}

/* Does NCCL compute this entry at all? */
static bool is_modelled(const struct tuning *t, int func, int algo, int proto)
{
    bool simple = proto == MW_NCCL_SIMPLE;
    if (func == MW_NCCL_BROADCAST || func == MW_NCCL_REDUCE) {
        return algo == MW_NCCL_RING;
    }
    if (algo == MW_NCCL_NVLS || algo == MW_NCCL_NVLS_TREE) {
        bool known = func == MW_NCCL_ALL_REDUCE || algo == MW_NCCL_NVLS;
        return known && simple && t->graphs->nvls.n_channels >= 2;
    }
    if (is_gather(func)) {
        return algo == MW_NCCL_RING || algo == MW_NCCL_COLLNET_DIRECT ||
               (algo == MW_NCCL_PAT && simple && pat_enabled(t));
    }
    return algo != MW_NCCL_PAT;
}

/* GB/s of one channel of NVLS, without the cap of NVLSTree: two operations
 * overlap in an all-reduce. */
static float nvls_link_bw(const struct tuning *t, int func, int algo)
{
    const struct mw_nccl_graph *g = &t->graphs->nvls;
    float c = (float)g->n_channels;
    float intra = g->bw_intra * nvls_efficiency[t->gen] * (c - 1) / c;
    if (func == MW_NCCL_ALL_REDUCE) {
        intra *= 2.0f;
    } else {
        intra *= (t->ppn - 1) / t->ppn;
    }
    bool is_tree = algo == MW_NCCL_NVLS_TREE;
    float inter = g->bw_inter;
    if (is_tree && t->comm->n_nodes <= 2) {
        inter *= 2.0f;
    }
    return min_f(intra, inter);
}

static float nvls_channel_bw(const struct tuning *t, int func, int algo)
{
    float bw = nvls_link_bw(t, func, algo);
    if (algo == MW_NCCL_NVLS_TREE) {
        double cap = nvls_tree_channel_bw[t->gen][t->col];
        if (t->opts->version == MW_NCCL_2_30 && t->gen == BLACKWELL &&
            t->col == 2) {
            cap = 80;
        }
        bw = min_f(bw, (float)cap);
    }
    return bw;
}

static float collnet_direct_bw(const struct tuning *t, int func, float bus)
{
    const struct mw_nccl_graph *g = &t->graphs->collnet_direct;
    if (is_gather(func)) {
        return t->ppn * min_f(g->bw_intra, g->bw_inter * .9f);
    }
    /* Full speed needs a NIC for every GPU. */
    float factor = (float)((double)t->ppn / (1.0 * g->n_channels));
    factor -= (factor - 1) / 2;
    bus /= factor;
    return t->comm->sm_min >= 90 ? (float)((double)bus * .85) : bus;
}

static float tree_bus_bw(const struct tuning *t, int func, int proto, float bus)
{
    float n = (float)t->graphs->tree.n_channels;
    if (func == MW_NCCL_ALL_REDUCE) {
        bus = (float)min_d((double)bus * .92,
                           (double)n * tree_channel_bw[t->gen][t->col]);
    }
    if (proto == MW_NCCL_LL) {
        int cpu = t->graphs->cpu_kind == CPU_AMD;
        int row = t->comm->n_nodes == 1 ? t->gen : cpu;
        bus = (float)min_d((double)bus * 1.0 / 3.8, ll_max_bw[row][t->col]);
    }
    if (proto == MW_NCCL_LL128) {
        double f = t->comm->n_nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0;
        bus = (float)min_d((double)bus * f,
                           (double)n * tree_ll128_channel_bw[t->gen][t->col]);
    }
    if (t->comm->tree_pattern == MW_PATTERN_TREE) {
        bus = (float)((double)bus * .85);
    }
    return bus;
}

static float ring_bus_bw(const struct tuning *t, int proto, float bus)
{
    if (proto == MW_NCCL_LL) {
        int row =
            t->comm->n_nodes == 1 ? t->gen : t->graphs->cpu_kind == CPU_AMD;
        return (float)min_d(ll_max_bw[row][t->col], (double)bus * .5);
    }
    if (proto == MW_NCCL_LL128) {
        double cap = ring_ll128_channel_bw[t->gen][t->col];
        if (t->opts->version == MW_NCCL_2_30 && t->gen == BLACKWELL) {
            cap = 40;
        }
        return (float)min_d((double)bus * .92,
                            (double)t->graphs->ring.n_channels * cap);
    }
    return bus;
}

static int steps_of(const struct tuning *t, int func)
{
    int n = t->comm->n_ranks;
    return func == MW_NCCL_ALL_REDUCE ? 2 * (n - 1)
           : is_gather(func)          ? n - 1
                                      : n;
}

/* Algorithm bandwidth in GB/s. */
static float bandwidth(const struct tuning *t, int func, int algo, int proto)
{
    const struct mw_nccl_graph *g = graph_of(t->graphs, algo);
    bool collnet =
        algo == MW_NCCL_COLLNET_DIRECT || algo == MW_NCCL_COLLNET_CHAIN;
    bool nvls = algo == MW_NCCL_NVLS || algo == MW_NCCL_NVLS_TREE;
    float bw = t->comm->n_nodes <= 2 || collnet ? g->bw_intra : g->bw_inter;
    if (nvls) {
        bw = nvls_channel_bw(t, func, algo);
    }
    float bus = (float)g->n_channels * bw;
    if (algo == MW_NCCL_RING) {
        bus = ring_bus_bw(t, proto, bus);
    } else if (algo == MW_NCCL_TREE) {
        bus = tree_bus_bw(t, func, proto, bus);
    } else if (algo == MW_NCCL_PAT) {
        bus = (float)((double)bus * .75);
    } else if (collnet && proto != MW_NCCL_SIMPLE) {
        bus = 0;
    } else if (algo == MW_NCCL_COLLNET_DIRECT) {
        bus = collnet_direct_bw(t, func, bus);
    }
    /* No plugin that we know offers gather verbs in the network. */
    if ((algo == MW_NCCL_NVLS || algo == MW_NCCL_COLLNET_DIRECT) &&
        is_gather(func) && t->comm->n_nodes > 1) {
        bus = 0;
    }
    if (is_gather(func) && algo != MW_NCCL_RING) {
        return bus;
    }
    float ratio = .5f;
    if (algo == MW_NCCL_RING || nvls) {
        ratio = (float)((1.0 * t->comm->n_ranks) / steps_of(t, func));
    }
    return bus * ratio;
}

static float net_overhead_us(const struct tuning *t)
{
    return t->graphs->cpu_kind == CPU_AMD ? 2.0f : 1.0f;
}

static float ring_latency(const struct tuning *t, int func, int proto,
                          int intra_hw, float intra, float inter)
{
    int n_nodes = t->comm->n_nodes;
    float lat = base_lat_us[MW_NCCL_RING][proto];
    int steps = steps_of(t, func);
    if (func == MW_NCCL_REDUCE || func == MW_NCCL_BROADCAST) {
        int hw = n_nodes == 1 ? intra_hw : HW_NET;
        float hop = hop_lat_us[hw][MW_NCCL_RING][proto];
        if (t->graphs->ring.same_channels) {
            return lat + hop;
        }
        if (proto == MW_NCCL_SIMPLE) {
            hop = hop_lat_us[hw][MW_NCCL_TREE][proto];
        }
        return lat + (float)steps * hop;
    }
    float overhead = 0;
    if (n_nodes > 1) {
        overhead = net_overhead_us(t) * (proto == MW_NCCL_SIMPLE ? 3 : 1);
    }
    intra = intra > overhead ? intra : overhead;
    int n_inter = n_nodes == 1                 ? 0
                  : func == MW_NCCL_ALL_REDUCE ? 2 * (n_nodes - 1)
                                               : n_nodes - 1;
    return lat + ((float)(steps - n_inter) * intra + (float)n_inter * inter);
}

/* without_net: the hops between nodes cost nothing. */
static float latency(const struct tuning *t, int func, int algo, int proto,
                     bool without_net)
{
    const struct mw_nccl_graph *g = graph_of(t->graphs, algo);
    int hw = g->type_intra == LINK_NVL ? HW_NVLINK : HW_PCI;
    float intra = hop_lat_us[hw][algo][proto];
    if (t->graphs->cpu_kind == CPU_POWER && hw == HW_PCI &&
        algo == MW_NCCL_TREE && proto == MW_NCCL_SIMPLE) {
        intra = hop_lat_us[HW_PCI][MW_NCCL_RING][MW_NCCL_SIMPLE];
    }
    float inter = hop_lat_us[HW_NET][t->ppn == 1 ? MW_NCCL_TREE : algo][proto];
    float plugin = g->latency_inter_us + t->opts->plugin_latency_us;
    inter += plugin;
    if (proto == MW_NCCL_SIMPLE) {
        inter += plugin; /* the flush */
    }
    inter = without_net ? 0 : inter;
    float base = base_lat_us[algo][proto];
    int hops = t->comm->n_ranks / t->comm->n_nodes - 1;
    float levels = (float)nccl_log2((uint64_t)t->comm->n_nodes);
    switch ((enum mw_nccl_algo)algo) {
    case MW_NCCL_RING:
        return ring_latency(t, func, proto, hw, intra, inter);
    case MW_NCCL_TREE:
        return base + 2 * ((float)hops * intra + levels * inter);
    case MW_NCCL_COLLNET_DIRECT:
        return (float)((double)base +
                       (2 * ((double)((float)(hops > 0 ? 1 : 0) * intra) +
                             hops * 0.4) +
                        (double)inter));
    case MW_NCCL_COLLNET_CHAIN:
        return base + (2 * (float)hops * intra + inter);
    case MW_NCCL_NVLS:
        return t->comm->n_nodes > 1 ? intra + inter : intra;
    case MW_NCCL_NVLS_TREE:
        return base + (intra + 2 * levels * inter);
    case MW_NCCL_PAT:
        return (float)(8 + (double)levels * ((double)inter / 3.5) +
                       t->comm->n_ranks * 2.8);
    case MW_NCCL_ALGOS:
        break;
    }
    return base;
}

/* LL128 needs stores of 128 bytes kept whole on every link of the way. */
static bool ll128_works(const struct tuning *t, int algo)
{
    const struct mw_nccl_graph *g = graph_of(t->graphs, algo);
    bool one_kind =
        t->graphs->sm_min == t->graphs->sm_max ||
        (t->opts->version == MW_NCCL_2_30 && t->graphs->sm_min >= 90);
    int worst = t->comm->sm_min >= 90 ? MW_PATH_PXN : MW_PATH_PXB;
    return g->type_inter <= worst && g->type_intra <= MW_PATH_NVB && one_kind &&
           t->comm->sm_min >= 70;
}

static bool is_enabled(const struct tuning *t, int func, int algo, int proto)
{
    const struct mw_nccl_comm *c = t->comm;
    if (!(t->opts->algos[func] >> algo & 1) ||
        !(t->opts->protos[func] >> proto & 1)) {
        return false;
    }
    if (c->n_nodes == 1 && algo == MW_NCCL_NVLS_TREE) {
        return false;
    }
    bool needs_collnet = algo == MW_NCCL_COLLNET_DIRECT ||
                         algo == MW_NCCL_COLLNET_CHAIN ||
                         (algo == MW_NCCL_NVLS && c->n_nodes > 1);
    if (needs_collnet && !c->has_collnet) {
        return false;
    }
    if (algo == MW_NCCL_COLLNET_DIRECT && !t->graphs->has_nvswitch) {
        return false;
    }
    if ((algo == MW_NCCL_NVLS || algo == MW_NCCL_NVLS_TREE) && !c->has_nvls) {
        return false;
    }
    return proto != MW_NCCL_LL128 || !t->opts->ll128_auto[func] ||
           ll128_works(t, algo);
}

static int generation(int sm)
{
    return sm >= 100  ? BLACKWELL
           : sm >= 90 ? HOPPER
           : sm >= 80 ? AMPERE
                      : VOLTA;
}

static void set_threads(struct mw_nccl_comm *comm,
                        const struct mw_nccl_graphs *graphs)
{
    const struct mw_nccl_graph *ring = &graphs->ring;
    for (int a = 0; a < MW_NCCL_ALGOS; a++) {
        comm->threshold[a][MW_NCCL_LL] = 8;
        comm->threshold[a][MW_NCCL_LL128] = 8;
        comm->threshold[a][MW_NCCL_SIMPLE] = 64;
        comm->max_threads[a][MW_NCCL_SIMPLE] = a == MW_NCCL_PAT ? 0 : 640;
    }
    for (int a = MW_NCCL_TREE; a <= MW_NCCL_RING; a++) {
        comm->max_threads[a][MW_NCCL_LL] = 512;
        comm->max_threads[a][MW_NCCL_LL128] = 640;
        comm->max_threads[a][MW_NCCL_SIMPLE] = 512;
    }
    if (ring->bw_intra * (float)ring->n_channels <= 12.0f) {
        comm->max_threads[MW_NCCL_RING][MW_NCCL_SIMPLE] = 256;
    }
    comm->threshold[MW_NCCL_RING][MW_NCCL_LL] *= comm->n_ranks;
    comm->threshold[MW_NCCL_COLLNET_DIRECT][MW_NCCL_SIMPLE] = 512;
    comm->threshold[MW_NCCL_COLLNET_CHAIN][MW_NCCL_SIMPLE] = 512;
}

static int pow2_up(int v)
{
    int p = 1;
    while (p < v) {
        p *= 2;
    }
    return p;
}

static void set_channels(struct tuning *t)
{
    struct mw_nccl_comm *c = t->comm;
    const struct mw_nccl_graphs *g = t->graphs;
    int n = g->ring.n_channels < g->tree.n_channels ? g->ring.n_channels
                                                    : g->tree.n_channels;
    n = 2 * n < MW_NCCL_CHANNELS_MAX ? 2 * n : MW_NCCL_CHANNELS_MAX;
    if (c->has_collnet &&
        g->collnet_chain.bw_intra > g->collnet_chain.bw_inter &&
        c->n_ranks > c->n_nodes) {
        n += n / 2;
    }
    if (c->sm_min >= 90 && c->n_nodes > 1 && g->ring.bw_intra > 45.0f &&
        n < 16) {
        n *= 2;
    }
    n = n < MW_NCCL_CHANNELS_MAX ? n : MW_NCCL_CHANNELS_MAX;
    if (t->opts->max_channels > 0 && n > t->opts->max_channels) {
        n = t->opts->max_channels;
    }
    if (t->opts->min_channels > n) {
        n = t->opts->min_channels;
    }
    c->coll_channels = n;
    c->nvls_channels = !c->has_nvls      ? 0
                       : c->sm_min < 100 ? 16
                       : c->n_nodes == 1 ? 24
                                         : 32;
    int per_peer = n;
    if (g->n_gpus > 1 && g->nvl_channels_per_peer < per_peer) {
        per_peer = g->nvl_channels_per_peer;
    }
    if (c->n_nodes > 1) {
        int remote = 2;
        while (remote * c->n_ranks > n * 4 && remote > 1) {
            remote /= 2;
        }
        remote = g->n_nets_by_bw > remote ? g->n_nets_by_bw : remote;
        per_peer = remote < per_peer ? remote : per_peer;
    }
    c->p2p_channels = pow2_up(n);
    c->p2p_per_peer = pow2_up(per_peer);
    if (c->p2p_per_peer > c->p2p_channels) {
        c->p2p_per_peer = c->p2p_channels;
    }
}

void mw_nccl_comm_init(struct mw_nccl_comm *comm,
                       const struct mw_nccl_graphs *graphs, int n_nodes,
                       const struct mw_nccl_opts *opts)
{
    MW_ASSERT(n_nodes >= 1 && (n_nodes == 1) == !graphs->is_multi_node,
              "%d nodes", n_nodes);
    memset(comm, 0, sizeof *comm);
    comm->n_nodes = n_nodes;
    comm->ppn = graphs->n_gpus;
    comm->n_ranks = n_nodes * graphs->n_gpus;
    comm->sm_min = graphs->sm_min;
    comm->has_nvls = graphs->has_nvls;
    comm->has_collnet = graphs->has_collnet && n_nodes >= 2 &&
                        graphs->collnet_chain.n_channels > 0;
    comm->n_heads = graphs->collnet_direct.n_channels;
    comm->n_nvls_heads = graphs->nvls.n_channels;
    comm->is_all_nvlink = graphs->is_all_nvlink;
    comm->tree_pattern = graphs->tree.pattern;
    struct tuning t = {.graphs = graphs,
                       .opts = opts,
                       .comm = comm,
                       .gen = generation(graphs->sm_min),
                       .col = n_nodes <= 2 ? n_nodes - 1 : 2,
                       .ppn = (float)comm->n_ranks / (float)n_nodes};
    comm->tree_channel_GBps = (float)tree_channel_bw[t.gen][0];
    comm->nvls_tree_uncapped = 1;
    set_threads(comm, graphs);
    set_channels(&t);
    if (comm->n_ranks <= 1) {
        return;
    }
    if (comm->has_nvls && graphs->nvls.n_channels >= 2) {
        comm->nvls_tree_uncapped =
            nvls_link_bw(&t, MW_NCCL_ALL_REDUCE, MW_NCCL_NVLS_TREE) /
            nvls_channel_bw(&t, MW_NCCL_ALL_REDUCE, MW_NCCL_NVLS_TREE);
    }
    for (int f = 0; f < MW_NCCL_FUNCS; f++) {
        for (int a = 0; a < MW_NCCL_ALGOS; a++) {
            for (int p = 0; p < MW_NCCL_PROTOS; p++) {
                comm->exists[f][a][p] = is_modelled(&t, f, a, p);
                if (comm->exists[f][a][p]) {
                    comm->lat_us[f][a][p] = latency(&t, f, a, p, false);
                    comm->net_us[f][a][p] =
                        comm->lat_us[f][a][p] - latency(&t, f, a, p, true);
                    comm->bw_GBps[f][a][p] =
                        is_enabled(&t, f, a, p) ? bandwidth(&t, f, a, p) : 0;
                }
            }
        }
    }
}
