/*
 * The outer part of NCCL's graph search: which speed, which class of path,
 * which pattern to ask the walk for, and when to stop.
 *
 * Pass 1 lowers its demands until a solution is good enough; then channels of
 * 25 GB/s and more are doubled; pass 2 raises the speed again with the number
 * of channels fixed. Source: NCCL 2.28.9, src/graph/search.cc, and the call
 * order of src/init.cc.
 */
#include "sim/coll/nccl_int.h"

#include <string.h>

enum {
    BUDGET_ALL = 1 << 19,
    BUDGET_TRY = 1 << 14,
    BUDGET_SAME_CHANNELS = 1 << 8,
    NVLS_ARITY = 32,
    DIRECT_ARITY = 7
};

struct speeds {
    const float *v;
    int n;
};

static struct speeds speeds_of(int sm, bool with_net, enum mw_nccl_version ver)
{
    static const float intra[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
    static const float inter[] = {48, 30, 28, 24, 20, 18,   15,   12,   10,  9,
                                  7,  6,  5,  4,  3,  2.4f, 1.2f, .24f, .12f};
    static const float intra90[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
    static const float inter90[] = {48, 45,   42,    40,   30,  24,
                                    22, 20,   17.5f, 15,   12,  6,
                                    3,  2.4f, 1.2f,  .24f, .12f};
    static const float intra100[] = {90, 80, 70, 60, 50, 40,
                                     30, 24, 20, 19, 18};
    static const float inter100[] = {96, 48, 45.1f, 42,    40,   30,
                                     24, 22, 20,    17.5f, 15,   12,
                                     6,  3,  2.4f,  1.2f,  .24f, .12f};
    /* 2.30: 45 added inside, 86 and 80 added outside. */
    static const float intra100b[] = {90, 80, 70, 60, 50, 45,
                                      40, 30, 24, 20, 19, 18};
    static const float inter100b[] = {96, 86, 80,   48,   45.1f, 42,  40,
                                      30, 24, 22,   20,   17.5f, 15,  12,
                                      6,  3,  2.4f, 1.2f, .24f,  .12f};
#define SPEEDS(a) ((struct speeds){a, (int)(sizeof a / sizeof a[0])})
    if (sm >= 100 && ver == MW_NCCL_2_30) {
        return with_net ? SPEEDS(inter100b) : SPEEDS(intra100b);
    }
    if (sm >= 100) {
        return with_net ? SPEEDS(inter100) : SPEEDS(intra100);
    }
    if (sm >= 90) {
        return with_net ? SPEEDS(inter90) : SPEEDS(intra90);
    }
    return with_net ? SPEEDS(inter) : SPEEDS(intra);
#undef SPEEDS
}

static int sm_min_of(const struct nccl_system *sys)
{
    int sm = nccl_at(sys, NODE_GPU, 0)->sm;
    for (int g = 1; g < sys->count[NODE_GPU]; g++) {
        int s = nccl_at(sys, NODE_GPU, g)->sm;
        sm = s < sm ? s : sm;
    }
    return sm;
}

/* Largest path to a GPU (or NIC), and largest sum of links, over GPUs. */
static void measure(struct nccl_system *sys)
{
    bool inter = sys->count[NODE_NET] > 0;
    enum nccl_node_type type = inter ? NODE_NET : NODE_GPU;
    sys->max_bw = sys->total_bw = 0;
    if (!inter && sys->count[NODE_GPU] == 1) {
        sys->max_bw = sys->total_bw = NCCL_LOC_BW;
        return;
    }
    for (int g = 0; g < sys->count[NODE_GPU]; g++) {
        const struct nccl_node *n = nccl_at(sys, NODE_GPU, g);
        for (int i = 0; i < sys->count[type]; i++) {
            const struct nccl_path *p = &n->paths[type][i];
            if (p->count > 0 && p->bw > sys->max_bw) {
                sys->max_bw = p->bw;
            }
        }
        float nvl = 0, pci = 0;
        for (size_t l = 0; l < n->links.n; l++) {
            nvl += n->links.v[l].type == LINK_NVL ? n->links.v[l].bw : 0;
            pci = n->links.v[l].type == LINK_PCI ? n->links.v[l].bw : pci;
        }
        float sum = nvl > pci ? nvl : pci;
        sys->total_bw = sum > sys->total_bw ? sum : sys->total_bw;
    }
}

/* Two groups of NVLink-connected GPUs without NVLink between them? */
static bool is_split_nvlink(const struct nccl_system *sys)
{
    int n = sys->count[NODE_GPU];
    int domain[MW_NCCL_GPUS_MAX], size[MW_NCCL_GPUS_MAX] = {0};
    for (int g = 0; g < n; g++) {
        domain[g] = g;
    }
    for (int g = 0; g < n; g++) {
        for (int p = g + 1; p < n; p++) {
            if (nccl_path_to(sys, NODE_GPU, g, NODE_GPU, p)->type ==
                MW_PATH_NVL) {
                domain[p] = domain[g];
            }
        }
    }
    int n_domains = 0;
    for (int g = 0; g < n; g++) {
        size[domain[g]]++;
    }
    for (int g = 0; g < n; g++) {
        n_domains += size[g] > 1 ? 1 : 0;
    }
    return n_domains == 2;
}

static void double_channels(struct mw_nccl_graph *graph, int sm, int n_gpus)
{
    if (graph->n_channels == 0 || graph->pattern == MW_PATTERN_NVLS ||
        graph->bw_intra < 25 ||
        (sm > 80 && graph->bw_intra < 50 && graph->n_channels > 4)) {
        return;
    }
    int was = graph->n_channels;
    int now = 2 * was < graph->max_channels ? 2 * was : graph->max_channels;
    memcpy(graph->intra + was * n_gpus, graph->intra,
           (size_t)((now - was) * n_gpus) * sizeof graph->intra[0]);
    memcpy(graph->inter + 2 * was, graph->inter,
           (size_t)(2 * (now - was)) * sizeof graph->inter[0]);
    float ratio = (float)((now + was - 1) / was);
    graph->bw_intra /= ratio;
    graph->bw_inter /= ratio;
    graph->n_channels = now;
}

/* State of one search. */
struct hunt {
    struct nccl_system *sys;
    struct mw_nccl_graph *graph; /* the best so far */
    struct mw_nccl_graph try;    /* what is asked for next */
    struct speeds speeds;
    int i_speed;
    int sm;
    int cross_nic; /* allowed: 0, 1, 2 */
    int min_intra, max_intra, min_inter, max_inter;
    int try_same;
    int64_t budget;
};

static void limits(struct hunt *h)
{
    struct mw_nccl_graph *g = h->graph;
    int n = h->sys->count[NODE_GPU];
    if (g->pattern == MW_PATTERN_NVLS) {
        g->max_channels = n < NVLS_ARITY ? n : NVLS_ARITY;
    }
    if (g->pattern == MW_PATTERN_COLLNET_DIRECT) {
        g->max_channels = n < DIRECT_ARITY + 1 ? n : DIRECT_ARITY + 1;
    }
    if (n == 1 && g->pattern != MW_PATTERN_RING) {
        g->pattern = MW_PATTERN_TREE;
    }
    if (h->sys->count[NODE_NET] == 0 && g->pattern == MW_PATTERN_NVLS) {
        g->min_channels = g->max_channels; /* every GPU a head */
    }
    if (g->pattern == MW_PATTERN_RING && is_split_nvlink(h->sys) &&
        g->max_channels >= 2 && g->min_channels == 1) {
        g->min_channels = 2; /* trees will need two */
    }
}

static void path_limits(struct hunt *h)
{
    h->min_intra = MW_PATH_LOC;
    h->min_inter = MW_PATH_PIX;
    h->max_intra = h->max_inter = MW_PATH_SYS;
    if (h->sys->count[NODE_GPU] > 1) {
        nccl_path_range(h->sys, NODE_GPU, &h->min_intra, &h->max_intra);
    }
    if (h->sys->count[NODE_NET] > 0) {
        nccl_path_range(h->sys, NODE_NET, &h->min_inter, &h->max_inter);
        h->max_intra = h->max_inter;
    }
}

static void set_speed(struct hunt *h)
{
    h->try.bw_intra = h->try.bw_inter = h->speeds.v[h->i_speed];
}

static void first_speed(struct hunt *h)
{
    float total = h->sys->total_bw;
    int n = h->sys->count[NODE_GPU];
    if (n > 1 && h->graph->pattern != MW_PATTERN_RING) {
        total = (float)((double)total * (n * 1.0 / (n - 1)));
    }
    h->i_speed = 0;
    while (h->i_speed < h->speeds.n - 1 &&
           (h->speeds.v[h->i_speed] > h->sys->max_bw ||
            h->speeds.v[h->i_speed] * (float)h->graph->min_channels > total)) {
        h->i_speed++;
    }
    set_speed(h);
}

/* Runs the walk once; returns the time left (-1: perfect). */
static int run(struct hunt *h)
{
    int time = h->try.same_channels ? BUDGET_SAME_CHANNELS : BUDGET_TRY;
    h->try.n_channels = 0;
    h->budget -= time;
    nccl_search_try(h->sys, &h->try, h->graph, &time);
    return time;
}

static bool is_enough(const struct hunt *h, int time)
{
    return time == -1 ||
           (float)h->graph->n_channels * h->graph->bw_inter >= h->sys->total_bw;
}

/* Lowers one demand, in NCCL's order; false when pass 1 is over. */
static bool relax(struct hunt *h, int time)
{
    struct mw_nccl_graph *t = &h->try;
    const struct mw_nccl_graph *g = h->graph;
    bool is_amd = nccl_at(h->sys, NODE_CPU, 0)->cpu == CPU_AMD;
    bool with_net = h->sys->count[NODE_NET] > 0;
    if (t->same_channels == 1 && !(is_amd && t->type_intra == MW_PATH_SYS)) {
        t->same_channels = 0;
        return true;
    }
    t->same_channels = h->try_same;
    h->budget = time != -1 ? h->budget + time : BUDGET_ALL;
    if (h->budget < 0 && g->n_channels > 0) {
        return false;
    }
    if (h->sm >= 90 && t->pattern == MW_PATTERN_BALANCED_TREE) {
        t->pattern = MW_PATTERN_TREE;
        return true;
    }
    t->pattern = g->pattern;
    int worst = with_net ? t->type_inter : h->max_intra;
    if (t->type_intra < worst &&
        (g->n_channels == 0 || t->type_intra < g->type_intra)) {
        t->type_intra++;
        return true;
    }
    t->type_intra = h->min_intra;
    if (with_net && t->type_inter < h->max_inter &&
        (g->n_channels == 0 || t->type_inter < g->type_inter ||
         t->type_inter < MW_PATH_PXN)) {
        t->type_inter++;
        return true;
    }
    t->type_inter = h->min_inter;
    if (h->cross_nic == 2 && t->cross_nic == 0 &&
        (g->pattern == MW_PATTERN_RING ||
         g->pattern == MW_PATTERN_BALANCED_TREE)) {
        t->cross_nic = 2;
        return true;
    }
    t->cross_nic = h->cross_nic == 1 ? 1 : 0;
    if (h->i_speed < h->speeds.n - 1 &&
        (g->n_channels == 0 ||
         (double)(h->speeds.v[h->i_speed + 1] / g->bw_inter) > .49)) {
        h->i_speed++;
        set_speed(h);
        return true;
    }
    return false;
}

static void pass1(struct hunt *h)
{
    int time = 0;
    do {
        time = run(h);
    } while (!is_enough(h, time) && relax(h, time));
}

/* Raises the speed with the channels fixed; false when there is no more. */
static bool raise(struct hunt *h)
{
    struct mw_nccl_graph *t = &h->try;
    const struct mw_nccl_graph *g = h->graph;
    if (h->i_speed == 0) {
        return false;
    }
    if (g->pattern == MW_PATTERN_RING) {
        h->i_speed--;
        set_speed(h);
        return true;
    }
    if (g->pattern == MW_PATTERN_NVLS && t->bw_inter == g->bw_inter &&
        t->bw_inter < t->bw_intra * 2) {
        t->min_channels = t->max_channels = g->n_channels;
        t->bw_inter = h->speeds.v[--h->i_speed];
        return true;
    }
    if (t->bw_intra == g->bw_intra && t->bw_intra < t->bw_inter * 2) {
        t->bw_intra = h->speeds.v[--h->i_speed];
        return true;
    }
    return false;
}

static void pass2(struct hunt *h)
{
    double_channels(h->graph, h->sm, h->sys->count[NODE_GPU]);
    h->try = *h->graph;
    h->i_speed = 0;
    while (h->speeds.v[h->i_speed] > h->graph->bw_inter &&
           h->i_speed < h->speeds.n - 1) {
        h->i_speed++;
    }
    set_speed(h);
    h->try.min_channels = h->graph->n_channels;
    int time = -1;
    while (time != 0 && raise(h)) {
        time = run(h);
    }
}

/* Ranks in order at a nominal speed, so that something works. */
static void fall_back(struct hunt *h)
{
    struct mw_nccl_graph *g = h->graph;
    for (int i = 0; i < h->sys->count[NODE_GPU]; i++) {
        g->intra[i] = (uint8_t)nccl_at(h->sys, NODE_GPU, i)->rank;
    }
    g->inter[0] = g->inter[1] = 0;
    g->bw_intra = g->bw_inter = .1f;
    g->type_intra = g->type_inter = MW_PATH_SYS;
    g->n_channels = 1;
}

void nccl_search_graph(struct nccl_system *sys, const struct mw_nccl_opts *opts,
                       struct mw_nccl_graph *graph)
{
    struct hunt h = {.sys = sys, .graph = graph, .sm = sm_min_of(sys)};
    bool may_cross = graph->pattern == MW_PATTERN_RING ||
                     graph->pattern == MW_PATTERN_BALANCED_TREE ||
                     graph->pattern == MW_PATTERN_SPLIT_TREE;
    h.cross_nic = sys->count[NODE_NET] > 1 && may_cross ? opts->cross_nic : 0;
    graph->cross_nic = h.cross_nic == 1 ? 1 : 0;
    path_limits(&h);
    if (opts->version == MW_NCCL_2_30 && h.sm < 90) {
        h.max_inter = MW_PATH_SYS; /* mends A100 machines with one NIC a GPU */
    }
    graph->type_intra = h.min_intra;
    graph->type_inter = h.min_inter;
    h.try_same = graph->pattern == MW_PATTERN_NVLS ? 0 : 1;
    graph->same_channels = h.try_same;
    if (graph->pattern == MW_PATTERN_NVLS &&
        (sys->count[NODE_NVS] == 0 || h.sm < 90)) {
        return;
    }
    limits(&h);
    h.try = *graph;
    h.speeds = speeds_of(h.sm, sys->count[NODE_NET] > 0, opts->version);
    h.budget = BUDGET_ALL;
    first_speed(&h);
    pass1(&h);
    pass2(&h);
    if (graph->n_channels == 0 && !graph->collnet &&
        graph->pattern != MW_PATTERN_NVLS) {
        fall_back(&h);
    }
}

/* ---- all graphs of a node ---- */

static void ask(struct mw_nccl_graph *g, enum mw_nccl_pattern pattern,
                int collnet, int min, int max)
{
    memset(g, 0, sizeof *g);
    g->pattern = pattern;
    g->collnet = collnet;
    g->min_channels = min;
    g->max_channels = max;
}

static void local_facts(const struct nccl_system *sys,
                        struct mw_nccl_graphs *out)
{
    int lo = MW_PATH_LOC, hi = MW_PATH_LOC;
    nccl_path_range(sys, NODE_GPU, &lo, &hi);
    out->is_all_nvlink = hi < MW_PATH_PIX;
    out->nvl_channels_per_peer = 1 << 20;
    out->n_nets_by_bw = 1 << 20;
    for (int g = 0; g < sys->count[NODE_GPU]; g++) {
        const struct nccl_node *n = nccl_at(sys, NODE_GPU, g);
        for (int p = 0; p < sys->count[NODE_GPU]; p++) {
            const struct nccl_path *path =
                nccl_path_to(sys, NODE_GPU, p, NODE_GPU, g);
            int links = (int)(path->bw / nccl_nvlink_bw(n->sm));
            int ch =
                path->type == MW_PATH_NVL ? 2 * (links > 1 ? links : 1) : 2;
            if (p != g && ch < out->nvl_channels_per_peer) {
                out->nvl_channels_per_peer = ch;
            }
        }
        float gpu_bw = 0, sum = 0;
        for (size_t l = 0; l < n->links.n; l++) {
            if (sys->node[n->links.v[l].rem].type == NODE_CPU) {
                gpu_bw = n->links.v[l].bw;
            }
        }
        int nets[MW_NCCL_NICS_MAX], count = 0;
        int n_nets = sys->count[NODE_NET] > 0
                         ? nccl_nearest(sys, NODE_GPU, g, NODE_NET, nets, NULL)
                         : 0;
        for (; count < n_nets && sum < gpu_bw; count++) {
            sum += nccl_path_to(sys, NODE_GPU, g, NODE_NET, nets[count])->bw;
        }
        out->n_nets_by_bw =
            count < out->n_nets_by_bw ? count : out->n_nets_by_bw;
    }
}

enum mw_status mw_nccl_search(const struct mw_nccl_machine *machine,
                              bool is_multi_node,
                              const struct mw_nccl_opts *opts,
                              struct mw_nccl_graphs *out, struct mw_err *err)
{
    struct nccl_system *sys = NULL;
    enum mw_status s =
        nccl_system_build(machine, is_multi_node, opts, &sys, err);
    if (s != MW_OK) {
        return s;
    }
    if (is_multi_node && sys->count[NODE_NET] == 0) {
        nccl_system_free(sys);
        return mw_fail(err, MW_EINPUT,
                       "the machine has no network port, so that several "
                       "nodes cannot talk");
    }
    memset(out, 0, sizeof *out);
    out->is_multi_node = is_multi_node;
    out->n_gpus = sys->count[NODE_GPU];
    out->sm_min = sm_min_of(sys);
    for (int g = 0; g < out->n_gpus; g++) {
        int sm = nccl_at(sys, NODE_GPU, g)->sm;
        out->sm_max = sm > out->sm_max ? sm : out->sm_max;
    }
    out->has_nvswitch = sys->count[NODE_NVS] > 0;
    out->has_nvls = out->has_nvswitch && out->sm_min >= 90 && !opts->no_nvls &&
                    out->n_gpus >= 2;
    out->cpu_kind = (int)nccl_at(sys, NODE_CPU, 0)->cpu;
    bool has_coll = false;
    for (int n = 0; n < sys->count[NODE_NET]; n++) {
        has_coll |= nccl_at(sys, NODE_NET, n)->coll != 0;
    }
    out->has_collnet = opts->collnet && has_coll && is_multi_node;
    local_facts(sys, out);
    measure(sys);
    ask(&out->ring, MW_PATTERN_RING, 0, 1, MW_NCCL_CHANNELS_MAX / 2);
    nccl_search_graph(sys, opts, &out->ring);
    int n = out->ring.n_channels;
    ask(&out->tree, MW_PATTERN_BALANCED_TREE, 0, n, n);
    nccl_search_graph(sys, opts, &out->tree);
    ask(&out->collnet_chain, MW_PATTERN_TREE, 1, n, n);
    ask(&out->collnet_direct, MW_PATTERN_COLLNET_DIRECT, 1, 1,
        MW_NCCL_CHANNELS_MAX);
    if (out->has_collnet) {
        nccl_search_graph(sys, opts, &out->collnet_chain);
        nccl_search_graph(sys, opts, &out->collnet_direct);
    }
    ask(&out->nvls, MW_PATTERN_NVLS, 0, 1, MW_NCCL_CHANNELS_MAX);
    if (out->has_nvls) {
        nccl_search_graph(sys, opts, &out->nvls);
    }
    /* Rings and trees run on the same channels. */
    n = out->tree.n_channels < n ? out->tree.n_channels : n;
    out->ring.n_channels = out->tree.n_channels = n;
    nccl_system_free(sys);
    return MW_OK;
}
