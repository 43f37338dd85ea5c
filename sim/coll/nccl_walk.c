/*
 * The recursive part of NCCL's graph search: walk from a NIC (or a GPU, on one
 * node) over all GPUs of the node and back, taking the channel's bandwidth
 * from every link on the way, then start the next channel with what is left.
 *
 *   ring  NIC > GPU > ... > GPU > NIC       (one node: back to the first GPU)
 *   tree  NIC > GPU > ... > GPU, the NIC also served by the first GPU
 *   balanced tree: the way back to the NIC is shared by the first two GPUs
 *   NVLS, CollNetDirect: NIC > head, all GPUs with the switch or the head
 *
 * The order in which candidates are tried and the step budget are part of the
 * result (the search is cut short), so both follow NCCL 2.28.9,
 * src/graph/search.cc. Links are restored on the way back, rounded to 1 MB/s.
 */
#include "sim/coll/nccl_int.h"

#include <math.h>
#include <stdlib.h>

enum order { ORDER_FREE, ORDER_PCI, ORDER_REPLAY };

static void walk_gpu(const struct nccl_walk *w, int gpu, int step,
                     int back_to_net, int back_to_first, enum order order,
                     int *time);

static float minus_rounded(float a, float b)
{
    return roundf((a - b) * 1000) / 1000;
}

/* Takes bw (negative: gives back) from the first max_steps links of a way.
 * Returns how many links could be taken. */
static int take(struct nccl_system *sys, const struct nccl_path *path,
                const struct nccl_node *start, int max_steps, float bw)
{
    float pci_bw = bw;
    bool is_far = path->type == MW_PATH_PHB && start->type == NODE_GPU;
    for (int i = 0; is_far && i < path->count; i++) {
        const struct nccl_link *l =
            &sys->node[path->node[i]].links.v[path->link[i]];
        const struct nccl_node *rem = &sys->node[l->rem];
        /* Intel root complexes cut peer-to-peer traffic into small packets. */
        if (rem->type == NODE_CPU && rem->cpu == CPU_INTEL) {
            pci_bw = bw * 6 / 5;
        }
    }
    for (int i = 0; i < max_steps; i++) {
        int from = path->node[i];
        struct nccl_link *l = &sys->node[from].links.v[path->link[i]];
        struct nccl_node *rem = &sys->node[l->rem];
        float fw = l->type == LINK_PCI ? pci_bw : bw;
        float rev = 0;
        if (rem->type == NODE_GPU && rem->sm < 80 && start->type != NODE_GPU) {
            rev += fw / 8; /* read requests of GPUs before Ampere */
        }
        if (rem->type == NODE_CPU && rem->cpu == CPU_POWER &&
            l->type == LINK_NVL) {
            rev += fw;
        }
        struct nccl_link *back = NULL;
        for (size_t k = 0; rev != 0 && k < rem->links.n && !back; k++) {
            if (rem->links.v[k].rem == from &&
                rem->links.v[k].type == l->type) {
                back = &rem->links.v[k];
            }
        }
        if (l->bw < fw || (back && back->bw < rev)) {
            return i;
        }
        l->bw = minus_rounded(l->bw, fw);
        if (back) {
            back->bw = minus_rounded(back->bw, rev);
        }
    }
    return max_steps;
}

static bool is_tree(enum mw_nccl_pattern p)
{
    return p == MW_PATTERN_BALANCED_TREE || p == MW_PATTERN_TREE ||
           p == MW_PATTERN_SPLIT_TREE;
}

/* Goes from one device to another, mult channels wide (negative: undo).
 * True when the way is allowed and has the bandwidth. */
static bool go(const struct nccl_walk *w, enum nccl_node_type t1, int i1,
               enum nccl_node_type t2, int i2, float mult)
{
    struct nccl_system *sys = w->sys;
    struct mw_nccl_graph *graph = w->graph;
    const struct nccl_path *path = nccl_path_to(sys, t1, i1, t2, i2);
    const struct nccl_path *rev = nccl_path_to(sys, t2, i2, t1, i1);
    bool intra = (t1 == NODE_GPU || t1 == NODE_NVS) &&
                 (t2 == NODE_GPU || t2 == NODE_NVS);
    float bw = intra ? graph->bw_intra : graph->bw_inter;
    int type = intra ? graph->type_intra : graph->type_inter;
    if (path->type >= MW_PATH_DIS || (mult == 1 && path->type > type) ||
        (mult == 1 && is_tree(graph->pattern) && rev->type > type)) {
        return false;
    }
    bw *= mult;
    const struct nccl_node *start = nccl_at(sys, t1, i1);
    int steps = take(sys, path, start, path->count, bw);
    if (steps < path->count) {
        take(sys, path, start, steps, -bw);
        return false;
    }
    graph->n_hops = (int)((float)graph->n_hops + mult * (float)path->count);
    return true;
}

/* ---- steps ---- */

static bool is_better(const struct nccl_walk *w)
{
    const struct mw_nccl_graph *g = w->graph, *ref = w->best;
    if (g->n_channels < g->min_channels) {
        return false;
    }
    float n = (float)g->n_channels, m = (float)ref->n_channels;
    if (g->pattern == MW_PATTERN_NVLS) {
        return (g->n_channels > ref->n_channels &&
                g->n_channels <= w->sys->count[NODE_GPU]) ||
               n * g->bw_inter > m * ref->bw_inter;
    }
    if (n * g->bw_intra != m * ref->bw_intra) {
        return n * g->bw_intra > m * ref->bw_intra;
    }
    return g->pattern == ref->pattern && g->cross_nic == ref->cross_nic &&
           g->n_hops < ref->n_hops;
}

/* A whole channel was found. */
static void walk_done(const struct nccl_walk *w, int *time)
{
    w->graph->n_channels++;
    if (is_better(w)) {
        *w->best = *w->graph;
        if (w->graph->n_channels == w->graph->max_channels) {
            *time = -1;
        }
    }
    if (w->graph->n_channels < w->graph->max_channels) {
        nccl_search_try(w->sys, w->graph, w->best, time);
    }
    w->graph->n_channels--;
}

static void try_gpu(const struct nccl_walk *w, int step, int back_to_net,
                    int back_to_first, enum order order, int *time,
                    enum nccl_node_type type, int index, int gpu)
{
    uint64_t flag = UINT64_C(1) << w->graph->n_channels;
    bool is_start = type == NODE_TYPES; /* nothing before it */
    if (!is_start && !go(w, type, index, NODE_GPU, gpu, 1)) {
        return;
    }
    struct nccl_node *n = nccl_at(w->sys, NODE_GPU, gpu);
    n->used ^= flag;
    walk_gpu(w, gpu, step, back_to_net, back_to_first, order, time);
    n->used ^= flag;
    if (!is_start) {
        go(w, type, index, NODE_GPU, gpu, -1);
    }
}

static void back_to_nic(const struct nccl_walk *w, int gpu, int step,
                        int back_to_first, enum order order, int *time)
{
    struct mw_nccl_graph *graph = w->graph;
    const struct nccl_system *sys = w->sys;
    int c = graph->n_channels;
    const struct nccl_nets *chosen = nccl_select_nets(w, gpu);
    const int16_t *nets = chosen->net;
    int n_nets = chosen->n;
    const struct nccl_node *start = nccl_at(sys, NODE_NET, graph->inter[2 * c]);
    for (int i = 0; i < n_nets; i++) {
        const struct nccl_node *net = nccl_at(sys, NODE_NET, nets[i]);
        if (graph->pattern == MW_PATTERN_TREE && net != start) {
            continue; /* both ends of a plain tree use one NIC */
        }
        if (graph->pattern == MW_PATTERN_RING && graph->cross_nic == 2) {
            if (c % 2 == 1 && nets[i] != graph->inter[2 * (c - 1)]) {
                continue;
            }
        } else if (graph->cross_nic == 0 &&
                   (net->asic != start->asic || net->port != start->port)) {
            continue;
        }
        int next_back = -1;
        bool halves = graph->pattern == MW_PATTERN_BALANCED_TREE;
        float keep = graph->bw_inter;
        if (halves) {
            if (step == 0) {
                next_back = 1;
            } else if (nets[i] != graph->inter[2 * c + 1]) {
                continue;
            }
            graph->bw_inter /= 2;
        }
        bool ok = go(w, NODE_GPU, gpu, NODE_NET, nets[i], 1);
        graph->bw_inter = keep;
        if (!ok) {
            continue;
        }
        graph->inter[2 * c + 1] = (int16_t)nets[i];
        walk_gpu(w, gpu, step, next_back, back_to_first, order, time);
        if (halves) {
            graph->bw_inter /= 2;
        }
        go(w, NODE_GPU, gpu, NODE_NET, nets[i], -1);
        graph->bw_inter = keep;
    }
}

/* The switch must carry one share to and from every GPU, two for the head. */
static void try_nvls(const struct nccl_walk *w, int head, int *time)
{
    int n = w->sys->count[NODE_GPU];
    int down = 0, up = 0;
    while (down < n &&
           go(w, NODE_NVS, 0, NODE_GPU, down, down == head ? 2 : 1)) {
        down++;
    }
    if (down == n) {
        while (up < n && go(w, NODE_GPU, up, NODE_NVS, 0, up == head ? 2 : 1)) {
            up++;
        }
        if (up == n) {
            walk_gpu(w, -1, n, -1, -1, ORDER_FREE, time);
        }
        while (up > 0) {
            up--;
            go(w, NODE_GPU, up, NODE_NVS, 0, up == head ? -2 : -1);
        }
    }
    while (down > 0) {
        down--;
        go(w, NODE_NVS, 0, NODE_GPU, down, down == head ? -2 : -1);
    }
}

/* The head must reach every other GPU, each with its share, both ways. */
static void try_collnet_direct(const struct nccl_walk *w, int head, int *time)
{
    int n = w->sys->count[NODE_GPU];
    float share = (float)(1.0 / (double)(float)(n - 1));
    int out = 0, in = 0;
    while (out < n && go(w, NODE_GPU, head, NODE_GPU, out, share)) {
        out++;
    }
    if (out == n) {
        while (in < n && go(w, NODE_GPU, in, NODE_GPU, head, share)) {
            in++;
        }
        if (in == n) {
            int step = 1;
            for (int g = 0; g < n; g++) {
                if (g != head) {
                    w->graph->intra[w->graph->n_channels * n + step++] =
                        (uint8_t)nccl_at(w->sys, NODE_GPU, g)->rank;
                }
            }
            walk_gpu(w, -1, n, -1, -1, ORDER_FREE, time);
        }
        while (in > 0) {
            in--;
            go(w, NODE_GPU, in, NODE_GPU, head, -share);
        }
    }
    while (out > 0) {
        out--;
        go(w, NODE_GPU, head, NODE_GPU, out, -share);
    }
}

/* GPU at a step of the channel before. */
static int replayed(const struct nccl_walk *w, int step)
{
    int n = w->sys->count[NODE_GPU];
    return nccl_gpu_of_rank(
        w->sys, w->graph->intra[(w->graph->n_channels - 1) * n + step]);
}

static void to_next_gpu(const struct nccl_walk *w, int gpu, int step,
                        int back_to_net, int back_to_first, enum order order,
                        int *time)
{
    uint8_t next[MW_NCCL_GPUS_MAX];
    int count = 1;
    if (order == ORDER_PCI) {
        next[0] = (uint8_t)(step + 1);
    } else if (order == ORDER_REPLAY) {
        next[0] = (uint8_t)replayed(w, step + 1);
    } else {
        int sort = back_to_net == -1 ? 0 : back_to_net == step + 1 ? 1 : -1;
        count = nccl_next_gpus(w, gpu, sort, next);
    }
    for (int i = 0; i < count; i++) {
        try_gpu(w, step + 1, back_to_net, back_to_first, order, time, NODE_GPU,
                gpu, next[i]);
    }
}

static void walk_gpu(const struct nccl_walk *w, int gpu, int step,
                     int back_to_net, int back_to_first, enum order order,
                     int *time)
{
    if (*time <= 0) {
        return;
    }
    (*time)--;
    struct mw_nccl_graph *graph = w->graph;
    int n = w->sys->count[NODE_GPU];
    if (step == n) {
        walk_done(w, time);
        return;
    }
    graph->intra[graph->n_channels * n + step] =
        (uint8_t)nccl_at(w->sys, NODE_GPU, gpu)->rank;
    if (step == back_to_net) {
        if (w->sys->count[NODE_NET] > 0) {
            back_to_nic(w, gpu, step, back_to_first, order, time);
        }
    } else if (graph->pattern == MW_PATTERN_NVLS) {
        try_nvls(w, gpu, time);
    } else if (graph->pattern == MW_PATTERN_COLLNET_DIRECT) {
        try_collnet_direct(w, gpu, time);
    } else if (step < n - 1) {
        to_next_gpu(w, gpu, step, back_to_net, back_to_first, order, time);
    } else if (step == back_to_first) {
        int first =
            nccl_gpu_of_rank(w->sys, graph->intra[graph->n_channels * n]);
        if (go(w, NODE_GPU, gpu, NODE_GPU, first, 1)) {
            walk_gpu(w, first, step + 1, back_to_net, -1, order, time);
            go(w, NODE_GPU, gpu, NODE_GPU, first, -1);
        }
    } else {
        walk_gpu(w, gpu, n, -1, -1, order, time);
    }
}

/* ---- starts ---- */

static void charge_port(const struct nccl_system *sys,
                        const struct nccl_node *net, int bw)
{
    for (int i = 0; i < sys->count[NODE_NET]; i++) {
        struct nccl_node *other = nccl_at(sys, NODE_NET, i);
        if (other->asic == net->asic && other->port == net->port) {
            other->net_bw -= (float)bw;
        }
    }
}

/* NVLS and CollNetDirect: the NIC's own GPU becomes a head, once. True when
 * it was tried. */
static bool start_head(const struct nccl_walk *w, int n_nets, int net,
                       int *time)
{
    struct mw_nccl_graph *graph = w->graph;
    int n = w->sys->count[NODE_GPU];
    int gpu = nccl_at(w->sys, NODE_NET, net)->local_gpu;
    if (graph->n_channels >= n_nets || gpu < 0) {
        return false;
    }
    int rank = nccl_at(w->sys, NODE_GPU, gpu)->rank;
    for (int c = 0; c < graph->n_channels; c++) {
        if (graph->intra[c * n] == rank) {
            return false;
        }
    }
    try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_FREE, time, NODE_NET,
            net, gpu);
    return true;
}

static void start_chain(const struct nccl_walk *w, int net, int *time)
{
    const struct mw_nccl_graph *graph = w->graph;
    if (graph->n_channels > 0 && graph->same_channels == 1) {
        try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_REPLAY, time,
                NODE_NET, net, replayed(w, 0));
        return;
    }
    if (graph->n_channels == 0 && w->sys->count[NODE_NVS] == 0) {
        int own_time = 1 << 10; /* a reference, outside the budget */
        try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_PCI, &own_time,
                NODE_NET, net, 0);
        if (own_time == -1) {
            *time = -1;
        }
    }
    int local = nccl_at(w->sys, NODE_NET, net)->local_gpu;
    if (local != -1) {
        try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_FREE, time,
                NODE_NET, net, local);
    }
    int gpus[MW_NCCL_GPUS_MAX];
    int n = nccl_nearest(w->sys, NODE_NET, net, NODE_GPU, gpus, NULL);
    for (int i = 0; i < n; i++) {
        if (gpus[i] != local) {
            try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_FREE, time,
                    NODE_NET, net, gpus[i]);
        }
    }
}

static void start_from_nic(const struct nccl_walk *w, int *time)
{
    struct mw_nccl_graph *graph = w->graph;
    const struct nccl_system *sys = w->sys;
    const int bw = (int)graph->bw_inter; /* NCCL counts whole GB/s here */
    const struct nccl_nets *chosen = nccl_select_nets(w, -1);
    const int16_t *nets = chosen->net;
    int n_nets = chosen->n;
    bool heads = graph->pattern == MW_PATTERN_NVLS ||
                 graph->pattern == MW_PATTERN_COLLNET_DIRECT;
    bool found = false;
    int c = graph->n_channels;
    for (int i = 0; i < n_nets && !(heads && found); i++) {
        int at = nets[(c + i) % n_nets];
        struct nccl_node *net = nccl_at(sys, NODE_NET, at);
        if ((graph->collnet && !net->coll) || net->net_bw < (float)bw ||
            (graph->pattern == MW_PATTERN_RING && graph->cross_nic == 2 &&
             c % 2 == 1 && at != graph->inter[2 * (c - 1) + 1])) {
            continue;
        }
        graph->inter[2 * c] = (int16_t)at;
        graph->latency_inter_us = net->net_latency_us;
        charge_port(sys, net, bw);
        if (heads) {
            found |= start_head(w, n_nets, at, time);
        } else {
            start_chain(w, at, time);
        }
        charge_port(sys, net, -bw);
    }
}

static void start_inside(const struct nccl_walk *w, int *time)
{
    const struct mw_nccl_graph *graph = w->graph;
    if (graph->pattern == MW_PATTERN_NVLS) {
        try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_FREE, time,
                NODE_TYPES, -1, graph->n_channels);
        return;
    }
    bool is_first = graph->n_channels == 0;
    try_gpu(w, 0, w->back_to_net, w->back_to_first,
            is_first ? ORDER_PCI : ORDER_REPLAY, time, NODE_TYPES, -1,
            is_first ? 0 : replayed(w, 0));
    if (graph->same_channels == 0 || is_first) {
        for (int g = 0; g < w->sys->count[NODE_GPU]; g++) {
            try_gpu(w, 0, w->back_to_net, w->back_to_first, ORDER_FREE, time,
                    NODE_TYPES, -1, g);
        }
    }
}

void nccl_search_try(struct nccl_system *sys, struct mw_nccl_graph *graph,
                     struct mw_nccl_graph *best, int *time)
{
    struct nccl_walk w = {.sys = sys,
                          .graph = graph,
                          .best = best,
                          .back_to_net = -1,
                          .back_to_first = -1};
    int last = sys->count[NODE_GPU] - 1;
    bool is_ring = graph->pattern == MW_PATTERN_RING;
    if (sys->count[NODE_NET] > 0) {
        w.back_to_net = is_ring                                   ? last
                        : graph->pattern == MW_PATTERN_SPLIT_TREE ? 1
                                                                  : 0;
        start_from_nic(&w, time);
    } else {
        w.back_to_first = is_ring ? last : -1;
        start_inside(&w, time);
    }
}
