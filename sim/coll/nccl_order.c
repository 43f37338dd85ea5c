/*
 * The order in which the search tries GPUs and NICs: nearest first, by NCCL
 * 2.28.9, src/graph/search.cc.
 */
#include "sim/coll/nccl_int.h"

#include <stdlib.h>
#include <string.h>

int nccl_gpu_of_rank(const struct nccl_system *sys, int rank)
{
    for (int g = 0; g < sys->count[NODE_GPU]; g++) {
        if (nccl_at(sys, NODE_GPU, g)->rank == rank) {
            return g;
        }
    }
    return -1;
}

/* ---- which GPU next ---- */

struct score {
    int gpu;
    int start, intra_hops, intra_bw, inter_hops, inter_pci_bw, inter_bw;
};

static int by_score(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    int d = y->inter_bw - x->inter_bw;
    d = d ? d : y->inter_pci_bw - x->inter_pci_bw;
    d = d ? d : x->inter_hops - y->inter_hops;
    d = d ? d : y->intra_bw - x->intra_bw;
    d = d ? d : x->intra_hops - y->intra_hops;
    return d ? d : x->start - y->start;
}

static int pci_bw_of(const struct nccl_system *sys, int gpu)
{
    int at = sys->of[NODE_GPU][gpu];
    const struct nccl_node *n = &sys->node[at];
    for (size_t l = 0; l < n->links.n; l++) {
        if (n->links.v[l].type != LINK_PCI) {
            continue;
        }
        const struct nccl_node *up = &sys->node[n->links.v[l].rem];
        for (size_t k = 0; k < up->links.n; k++) {
            if (up->links.v[k].rem == at) {
                float bw = n->links.v[l].bw < up->links.v[k].bw
                               ? n->links.v[l].bw
                               : up->links.v[k].bw;
                return (int)bw;
            }
        }
    }
    return -1;
}

static bool all_alike(const struct score *s, int n)
{
    for (int i = 1; i < n; i++) {
        if (s[i].intra_bw != s[0].intra_bw ||
            s[i].intra_hops != s[0].intra_hops) {
            return false;
        }
    }
    return true;
}

/* Behind an NVSwitch only the neighbours in index are tried. */
static int keep_neighbours(const struct nccl_walk *w, int gpu, uint8_t *next,
                           int count)
{
    int n = w->sys->count[NODE_GPU];
    int prev = (gpu - 1 + n) % n, succ = (gpu + 1) % n;
    int first[2] = {succ, prev};
    int n_first = 1, n_kept = 0;
    if (w->graph->pattern == MW_PATTERN_RING) {
        n_first = 2;
    } else if (w->graph->pattern == MW_PATTERN_SPLIT_TREE ||
               w->graph->pattern == MW_PATTERN_BALANCED_TREE) {
        first[0] = prev;
        first[1] = succ;
        n_first = 2;
    }
    if (succ == prev) {
        n_first = 1;
    }
    for (int k = 0; k < n_first; k++) {
        int i = 0;
        while (i < count && next[i] != first[k]) {
            i++;
        }
        if (i < count) {
            for (; i > 0; i--) {
                next[i] = next[i - 1];
            }
            next[0] = (uint8_t)first[k];
            n_kept++;
        }
    }
    return n_kept;
}

static bool is_open(const struct nccl_system *sys,
                    const struct nccl_path *paths, int gpu, uint64_t flag)
{
    return paths[gpu].count > 0 &&
           (nccl_at(sys, NODE_GPU, gpu)->used & flag) == 0;
}

/* Whose order does not matter before the neighbours are picked. */
static int next_neighbours(const struct nccl_walk *w, int gpu, uint8_t *next)
{
    const struct nccl_system *sys = w->sys;
    const struct nccl_path *paths =
        nccl_at(sys, NODE_GPU, gpu)->paths[NODE_GPU];
    uint64_t flag = UINT64_C(1) << w->graph->n_channels;
    int n = sys->count[NODE_GPU], count = 0;
    for (int i = 1; i < n; i++) {
        int g = (gpu + i) % n;
        if (is_open(sys, paths, g, flag)) {
            next[count++] = (uint8_t)g;
        }
    }
    return keep_neighbours(w, gpu, next, count);
}

/* sort_net: 1 nearest to the NIC first, -1 farthest, 0 the NIC is no matter. */
int nccl_next_gpus(const struct nccl_walk *w, int gpu, int sort_net,
                   uint8_t *next)
{
    const struct nccl_system *sys = w->sys;
    if (sys->count[NODE_NVS] > 0) {
        return next_neighbours(w, gpu, next);
    }
    uint64_t flag = UINT64_C(1) << w->graph->n_channels;
    int n = sys->count[NODE_GPU], count = 0;
    struct score score[MW_NCCL_GPUS_MAX];
    const struct nccl_path *nets =
        sort_net
            ? nccl_at(sys, NODE_NET, w->graph->inter[2 * w->graph->n_channels])
                  ->paths[NODE_GPU]
            : NULL;
    const struct nccl_path *paths =
        nccl_at(sys, NODE_GPU, gpu)->paths[NODE_GPU];
    for (int i = 1; i < n; i++) {
        int g = (gpu + i) % n;
        if (!is_open(sys, paths, g, flag)) {
            continue;
        }
        struct score s = {.gpu = g,
                          .start = i,
                          .intra_hops = paths[g].count,
                          .intra_bw = (int)paths[g].bw};
        if (nets) {
            s.inter_hops = nets[g].count;
            s.inter_pci_bw = pci_bw_of(sys, g);
            s.inter_bw = (int)nets[g].bw;
        }
        score[count++] = s;
    }
    qsort(score, (size_t)count, sizeof score[0], by_score);
    bool reverse = sort_net == -1 && all_alike(score, count);
    for (int i = 0; i < count; i++) {
        next[i] = (uint8_t)score[reverse ? count - 1 - i : i].gpu;
    }
    return count;
}

/* ---- NICs in the order they are tried ---- */

static void add_once(int16_t *list, int *n, int value)
{
    for (int i = 0; i < *n; i++) {
        if (list[i] == value) {
            return;
        }
    }
    list[(*n)++] = (int16_t)value;
}

/* GPU by GPU, all channels of it. */
static void preferred_by_gpu(const struct nccl_system *sys, int only,
                             int16_t *nets, int *n)
{
    for (int g = 0; g < sys->count[NODE_GPU]; g++) {
        if (only >= 0 && only != g) {
            continue;
        }
        int first = -1;
        for (int c = 0; c < MW_NCCL_CHANNELS_MAX; c++) {
            int net = nccl_local_net(sys, g, c);
            if (net < 0 || (c > 0 && net == first)) {
                break;
            }
            first = c == 0 ? net : first;
            add_once(nets, n, net);
        }
    }
}

/* Channel by channel over the GPUs: NVLink domains of several hosts. */
static void preferred_by_channel(const struct nccl_system *sys, int only,
                                 int16_t *nets, int *n)
{
    int first[MW_NCCL_GPUS_MAX];
    bool is_done[MW_NCCL_GPUS_MAX] = {false};
    for (int c = 0; c < MW_NCCL_CHANNELS_MAX; c++) {
        for (int g = 0; g < sys->count[NODE_GPU]; g++) {
            if ((only >= 0 && only != g) || is_done[g]) {
                continue;
            }
            int net = nccl_local_net(sys, g, c);
            if (net < 0 || (c > 0 && net == first[g])) {
                is_done[g] = true;
                continue;
            }
            first[g] = c == 0 ? net : first[g];
            add_once(nets, n, net);
        }
    }
}

static void select_nets(const struct nccl_system *sys, int only, int type_inter,
                        struct nccl_nets *out)
{
    if (sys->n_hosts > 1) {
        preferred_by_channel(sys, only, out->net, &out->n);
    } else {
        preferred_by_gpu(sys, only, out->net, &out->n);
    }
    for (int t = 0; t <= type_inter; t++) {
        for (int g = 0; g < sys->count[NODE_GPU]; g++) {
            if (only >= 0 && only != g) {
                continue;
            }
            for (int k = 0;
                 k < sys->count[NODE_NET] && k < MW_NCCL_CHANNELS_MAX; k++) {
                if (nccl_path_to(sys, NODE_GPU, g, NODE_NET, k)->type == t) {
                    add_once(out->net, &out->n, k);
                }
            }
        }
    }
}

const struct nccl_nets *nccl_select_nets(const struct nccl_walk *w, int only)
{
    struct nccl_system *sys = w->sys;
    int n_gpus = sys->count[NODE_GPU], type = w->graph->type_inter;
    size_t n = (size_t)n_gpus + 1;

    if (sys->nets == NULL) {
        sys->nets = mw_arena_alloc(&sys->arena, n, sizeof *sys->nets);
        sys->nets_type = type;
    }
    if (sys->nets_type != type) {
        memset(sys->nets, 0, n * sizeof *sys->nets);
        sys->nets_type = type;
    }
    struct nccl_nets *at = &sys->nets[only < 0 ? n_gpus : only];

    if (at->n == 0) {
        select_nets(sys, only, type, at);
    }
    return at;
}
