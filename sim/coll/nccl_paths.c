/*
 * Paths between the devices of one node: breadth first with few hops before
 * bandwidth, a detour through one GPU over NVLink at most, then the detours
 * that NCCL adds: through the CPU where peer-to-peer is not used, through an
 * NVLink neighbour to its NIC (PXN), through the CPU where GPU and NIC cannot
 * talk directly.
 * Source: NCCL 2.28.9, src/graph/paths.cc.
 */
#include "sim/coll/nccl_int.h"

#include <string.h>

float nccl_nvlink_bw(int sm)
{
    static const struct {
        int sm;
        float bw;
    } rows[] = {{100, 40.1f}, {90, 20.6f}, {87, 20.0f}, {86, 12.0f},
                {80, 20.0f},  {70, 20.0f}, {60, 18.0f}, {0, 20.0f}};
    size_t i = 0;
    while (sm < rows[i].sm) {
        i++;
    }
    return rows[i].bw;
}

static void alloc_paths(struct nccl_system *sys, int at,
                        enum nccl_node_type type)
{
    struct nccl_node *n = &sys->node[at];
    size_t count = (size_t)sys->count[type];
    n->paths[type] =
        mw_arena_alloc(&sys->arena, count + 1, sizeof *n->paths[0]);
    for (size_t i = 0; i < count; i++) {
        n->paths[type][i].type = MW_PATH_DIS;
    }
}

static struct nccl_path *way_of(struct nccl_system *sys, int at,
                                const struct nccl_node *to)
{
    return &sys->node[at].paths[to->type][to->index];
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

static float min_float(float a, float b)
{
    return a < b ? a : b;
}

/* Class of a way that goes on over `link` from `node` to `rem`. */
static int step_type(const struct nccl_node *node, const struct nccl_node *rem,
                     const struct nccl_link *link, const struct nccl_path *path)
{
    int type = link->type == LINK_NET ? LINK_LOC : link->type;
    if (node->type == NODE_PCI && rem->type == NODE_PCI) {
        type = MW_PATH_PXB;
    }
    if (link->type == LINK_PCI &&
        (node->type == NODE_CPU || rem->type == NODE_CPU)) {
        type = MW_PATH_PHB;
    }
    if (node->type == NODE_GPU && path->type == MW_PATH_NVL &&
        type == MW_PATH_NVL && path->count >= 1) {
        type = MW_PATH_NVB;
    }
    return max_int(path->type, type);
}

/* Tries to extend the way `node -> base` to the neighbour behind a link;
 * true if that gave the neighbour a better way. */
static bool extend(struct nccl_system *sys, int at, size_t l, int base_at)
{
    struct nccl_node *node = &sys->node[at];
    const struct nccl_node *base = &sys->node[base_at];
    const struct nccl_link *link = &node->links.v[l];
    struct nccl_node *rem = &sys->node[link->rem];
    const struct nccl_path *path = way_of(sys, at, base);
    struct nccl_path *far = way_of(sys, link->rem, base);
    if (at != base_at && node->type == NODE_GPU &&
        (link->type != LINK_NVL || rem->type != NODE_GPU || path->count > 1)) {
        return false;
    }
    float bw = min_float(path->bw, link->bw);
    if (!((far->bw == 0 || far->count > path->count) && far->bw < bw) ||
        path->count + 1 >= NCCL_HOPS_MAX) {
        return false;
    }
    size_t back = 0;
    while (back < rem->links.n && (rem->links.v[back].rem != at ||
                                   rem->links.v[back].type != link->type)) {
        back++;
    }
    if (back == rem->links.n) {
        return false; /* a link of one direction only */
    }
    far->node[0] = (int16_t)link->rem;
    far->link[0] = (int16_t)back;
    for (int i = 0; i < path->count; i++) {
        far->node[i + 1] = path->node[i];
        far->link[i + 1] = path->link[i];
    }
    far->count = path->count + 1;
    far->bw = bw;
    far->type = step_type(node, rem, link, path);
    return true;
}

/* Breadth-first from one device: the way of every other one to it. */
static void paths_from(struct nccl_system *sys, int base_at, int *now,
                       int *next)
{
    const struct nccl_node *base = &sys->node[base_at];
    struct nccl_path *own = way_of(sys, base_at, base);
    own->count = 0;
    own->bw = NCCL_LOC_BW;
    own->type = MW_PATH_LOC;
    int n_now = 1;
    now[0] = base_at;
    while (n_now > 0) {
        int n_next = 0;
        for (int i = 0; i < n_now; i++) {
            for (size_t l = 0; l < sys->node[now[i]].links.n; l++) {
                if (!extend(sys, now[i], l, base_at)) {
                    continue;
                }
                int rem = sys->node[now[i]].links.v[l].rem;
                int k = 0;
                while (k < n_next && next[k] != rem) {
                    k++;
                }
                if (k == n_next) {
                    next[n_next++] = rem;
                }
            }
        }
        int *swap = now;
        now = next;
        next = swap;
        n_now = n_next;
    }
}

int nccl_local_cpu(const struct nccl_system *sys, int gpu)
{
    int best = -1, hops = 0;
    for (int c = 0; c < sys->count[NODE_CPU]; c++) {
        const struct nccl_path *p =
            nccl_path_to(sys, NODE_GPU, gpu, NODE_CPU, c);
        if (p->count > 0 && (best < 0 || p->count < hops)) {
            best = c;
            hops = p->count;
        }
    }
    return best;
}

static int merge_type(int a, int b)
{
    int hi = max_int(a, b), lo = a + b - hi;
    return hi == MW_PATH_PHB && lo == MW_PATH_C2C ? MW_PATH_P2C : hi;
}

/* Replaces the way of (t1, i1) to (t2, i2) by one through (tx, ix). */
static void detour(struct nccl_system *sys, enum nccl_node_type tx, int ix,
                   enum nccl_node_type t1, int i1, enum nccl_node_type t2,
                   int i2)
{
    const struct nccl_path *first = nccl_path_to(sys, t1, i1, tx, ix);
    const struct nccl_path *second = nccl_path_to(sys, tx, ix, t2, i2);
    struct nccl_path *way = nccl_path_to(sys, t1, i1, t2, i2);
    if (first->count + second->count > NCCL_HOPS_MAX) {
        return;
    }
    struct nccl_path whole = {.count = first->count + second->count};
    for (int i = 0; i < whole.count; i++) {
        const struct nccl_path *from = i < first->count ? first : second;
        int k = i < first->count ? i : i - first->count;
        whole.node[i] = from->node[k];
        whole.link[i] = from->link[k];
    }
    whole.type =
        tx == NODE_GPU ? MW_PATH_PXN : merge_type(first->type, second->type);
    whole.bw = min_float(first->bw, second->bw);
    *way = whole;
}

static bool uses_p2p(const struct nccl_system *sys, int from, int to,
                     const struct mw_nccl_opts *opts)
{
    int level = MW_PATH_PXB;
    if (nccl_at(sys, NODE_CPU, 0)->cpu == CPU_AMD &&
        sys->count[NODE_GPU] <= 2) {
        level = MW_PATH_SYS;
    }
    if (opts->p2p_disable) {
        level = MW_PATH_LOC;
    }
    return nccl_path_to(sys, NODE_GPU, from, NODE_GPU, to)->type <= level;
}

static void divert_without_p2p(struct nccl_system *sys,
                               const struct mw_nccl_opts *opts)
{
    for (int g = 0; g < sys->count[NODE_GPU]; g++) {
        int cpu = nccl_local_cpu(sys, g);
        for (int p = 0; p < sys->count[NODE_GPU] && cpu >= 0; p++) {
            if (!uses_p2p(sys, p, g, opts)) {
                detour(sys, NODE_CPU, cpu, NODE_GPU, p, NODE_GPU, g);
            }
        }
    }
}

/* NIC behind the CPU that the GPU reaches chip to chip: class P2C, which
 * versions before 2.27 do not have. */
static void mark_p2c(struct nccl_system *sys, int net, int gpu)
{
    int cpu = nccl_local_cpu(sys, gpu);
    if (cpu < 0) {
        return;
    }
    const struct nccl_path *a = nccl_path_to(sys, NODE_GPU, gpu, NODE_CPU, cpu);
    const struct nccl_path *b = nccl_path_to(sys, NODE_NET, net, NODE_CPU, cpu);
    if (merge_type(a->type, b->type) != MW_PATH_P2C) {
        return;
    }
    struct nccl_path *to = nccl_path_to(sys, NODE_GPU, gpu, NODE_NET, net);
    struct nccl_path *from = nccl_path_to(sys, NODE_NET, net, NODE_GPU, gpu);
    to->type = to->type < MW_PATH_P2C ? to->type : MW_PATH_P2C;
    from->type = from->type < MW_PATH_P2C ? from->type : MW_PATH_P2C;
}

static void maybe_pxn(struct nccl_system *sys, int net, int gpu)
{
    int peer = nccl_local_gpu(sys, net);
    if (peer == gpu || peer < 0) {
        return;
    }
    const struct nccl_path *near =
        nccl_path_to(sys, NODE_GPU, peer, NODE_NET, net);
    const struct nccl_path *hop =
        nccl_path_to(sys, NODE_GPU, peer, NODE_GPU, gpu);
    const struct nccl_path *own =
        nccl_path_to(sys, NODE_GPU, gpu, NODE_NET, net);
    if (near->type <= MW_PATH_P2C && hop->type <= MW_PATH_NVL &&
        nccl_at(sys, NODE_GPU, peer)->host ==
            nccl_at(sys, NODE_GPU, gpu)->host &&
        (near->bw > own->bw || own->type > MW_PATH_PXN)) {
        detour(sys, NODE_GPU, peer, NODE_GPU, gpu, NODE_NET, net);
    }
}

/* GPUDirect RDMA needs support of both ends and a NIC within the level (at PHB
 * and beyond the way is through the CPU as it is). */
static void maybe_no_gdr(struct nccl_system *sys, int net, int gpu,
                         const struct mw_nccl_opts *opts)
{
    const struct nccl_path *way =
        nccl_path_to(sys, NODE_GPU, gpu, NODE_NET, net);
    int distance = way->type;
    bool is_far = distance >= MW_PATH_PHB;
    int level =
        opts->gdr_level < MW_PATH_PXB ? (int)opts->gdr_level : (int)MW_PATH_PXN;
    bool has_gdr = nccl_at(sys, NODE_NET, net)->gdr &&
                   nccl_at(sys, NODE_GPU, gpu)->gdr && distance <= level &&
                   !opts->is_socket;
    int cpu = nccl_local_cpu(sys, gpu);
    if (is_far || has_gdr || cpu < 0) {
        return;
    }
    detour(sys, NODE_CPU, cpu, NODE_NET, net, NODE_GPU, gpu);
    detour(sys, NODE_CPU, cpu, NODE_GPU, gpu, NODE_NET, net);
}

void nccl_compute_paths(struct nccl_system *sys,
                        const struct mw_nccl_opts *opts)
{
    static const enum nccl_node_type order[] = {NODE_CPU, NODE_GPU, NODE_NET,
                                                NODE_NVS};
    for (int i = 0; i < sys->n_nodes; i++) {
        for (size_t t = 0; t < sizeof order / sizeof order[0]; t++) {
            alloc_paths(sys, i, order[t]); /* class DIS until reached */
        }
    }
    int *now = mw_calloc((size_t)sys->n_nodes, sizeof *now);
    int *next = mw_calloc((size_t)sys->n_nodes, sizeof *next);
    for (size_t t = 0; t < sizeof order / sizeof order[0]; t++) {
        for (int i = 0; i < sys->count[order[t]]; i++) {
            paths_from(sys, sys->of[order[t]][i], now, next);
        }
    }
    mw_free(now);
    mw_free(next);
    divert_without_p2p(sys, opts);
    bool has_p2c = opts->version != MW_NCCL_2_26;
    for (int n = 0; n < sys->count[NODE_NET] && has_p2c; n++) {
        for (int g = 0; g < sys->count[NODE_GPU]; g++) {
            mark_p2c(sys, n, g);
        }
    }
    for (int n = 0; n < sys->count[NODE_NET]; n++) {
        for (int g = 0; g < sys->count[NODE_GPU]; g++) {
            maybe_pxn(sys, n, g);
            maybe_no_gdr(sys, n, g, opts);
        }
    }
    for (int n = 0; n < sys->count[NODE_NET]; n++) {
        nccl_at(sys, NODE_NET, n)->local_gpu = nccl_local_gpu(sys, n);
    }
}

int nccl_nearest(const struct nccl_system *sys, enum nccl_node_type type,
                 int index, enum nccl_node_type want, int *out,
                 int *out_path_type)
{
    const struct nccl_path *paths = nccl_at(sys, type, index)->paths[want];
    int n = 0, best = MW_PATH_DIS;
    float bw = 0;
    for (int i = 0; i < sys->count[want]; i++) {
        if (paths[i].bw > bw || (paths[i].bw == bw && paths[i].type < best)) {
            bw = paths[i].bw;
            best = paths[i].type;
            n = 0;
        }
        if (paths[i].bw == bw && paths[i].type == best) {
            out[n++] = i;
        }
    }
    if (out_path_type) {
        *out_path_type = best;
    }
    return n;
}

static int mirror_bits(int v, int pow2)
{
    int out = 0;
    for (int b = 1, m = pow2 >> 1; b < pow2; b <<= 1, m >>= 1) {
        out |= v & b ? m : 0;
    }
    return out;
}

int nccl_local_net(const struct nccl_system *sys, int gpu, int channel)
{
    int nets[MW_NCCL_NICS_MAX], gpus[MW_NCCL_GPUS_MAX];
    int n_nets = nccl_nearest(sys, NODE_GPU, gpu, NODE_NET, nets, NULL);
    if (n_nets == 0) {
        return -1;
    }
    int n_gpus = nccl_nearest(sys, NODE_NET, nets[0], NODE_GPU, gpus, NULL);
    int at = nccl_at(sys, NODE_GPU, gpu)->dev;
    if ((n_nets & (n_nets - 1)) == 0) {
        at = mirror_bits(at, n_nets);
    }
    int spread = n_gpus > 0 ? (n_nets + n_gpus - 1) / n_gpus : 1;
    return nets[(at + channel % spread) % n_nets];
}

int nccl_local_gpu(const struct nccl_system *sys, int net)
{
    int gpus[MW_NCCL_GPUS_MAX];
    int n = nccl_nearest(sys, NODE_NET, net, NODE_GPU, gpus, NULL);
    for (int c = 0; c < MW_NCCL_CHANNELS_MAX; c++) {
        for (int i = 0; i < n; i++) {
            if (nccl_local_net(sys, gpus[i], c) == net) {
                return gpus[i];
            }
        }
    }
    return -1;
}

void nccl_path_range(const struct nccl_system *sys, enum nccl_node_type type,
                     int *out_min, int *out_max)
{
    *out_min = MW_PATH_SYS;
    *out_max = MW_PATH_LOC;
    for (int i = 0; i < sys->count[NODE_GPU]; i++) {
        for (int j = 0; j < sys->count[type]; j++) {
            if (type == NODE_GPU && i == j) {
                continue;
            }
            int t = nccl_path_to(sys, NODE_GPU, i, type, j)->type;
            *out_min = t < *out_min ? t : *out_min;
            *out_max = t > *out_max ? t : *out_max;
        }
    }
}
