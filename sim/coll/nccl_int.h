/*
 * Private to the NCCL model: the node-level system graph with its paths.
 */
#ifndef MW_SIM_COLL_NCCL_INT_H
#define MW_SIM_COLL_NCCL_INT_H

#include "sim/coll/nccl.h"

#include <stdint.h>

enum nccl_node_type {
    NODE_GPU,
    NODE_PCI,
    NODE_NVS,
    NODE_CPU,
    NODE_NIC,
    NODE_NET,
    NODE_TYPES
};
/* Link classes; PATH and LINK values agree on purpose. */
enum nccl_link_type {
    LINK_LOC = MW_PATH_LOC,
    LINK_NVL = MW_PATH_NVL,
    LINK_C2C = MW_PATH_C2C,
    LINK_PCI = MW_PATH_PIX,
    LINK_SYS = MW_PATH_SYS,
    LINK_NET = MW_PATH_NET
};
enum nccl_cpu_kind {
    CPU_OTHER,
    CPU_INTEL,
    CPU_AMD,
    CPU_ZHAOXIN,
    CPU_ARM,
    CPU_POWER
};

#define NCCL_LOC_BW 5000.0f

enum { NCCL_HOPS_MAX = 20 };

struct nccl_link {
    int type; /* enum nccl_link_type */
    float bw; /* GB/s; the search subtracts from it and adds back */
    int rem;  /* index of the node at the other end */
};
struct nccl_path {
    int count; /* links of the way; 0: none, or the node itself */
    int type;  /* enum mw_nccl_path */
    float bw;
    /* link k of the way: position in the links of the node it leaves */
    int16_t node[NCCL_HOPS_MAX], link[NCCL_HOPS_MAX];
};
struct nccl_node {
    enum nccl_node_type type;
    int index;  /* among the nodes of its type */
    int64_t id; /* bus id or device number, with the host above bit 56 */
    int host;
    /* GPU */
    int dev, rank, sm, gdr;
    /* NET */
    uint64_t asic;
    int port, coll, local_gpu;
    float net_bw, net_latency_us;
    /* CPU */
    enum nccl_cpu_kind cpu;
    float cpu_link_bw; /* to another CPU of the host */
    MW_ARRAY(struct nccl_link) links;
    struct nccl_path *paths[NODE_TYPES]; /* to each GPU, CPU, NET, NVS */
    uint64_t used;                       /* search: bit per channel */
};

/* NICs in the order they are tried. */
struct nccl_nets {
    int n; /* 0: not asked for yet */
    int16_t net[MW_NCCL_NICS_MAX];
};

/* A working copy of the system for paths and search. */
struct nccl_system {
    struct mw_arena arena;
    struct nccl_node *node;
    int n_nodes;
    int *of[NODE_TYPES]; /* node indices of a type in order of creation */
    int count[NODE_TYPES];
    int n_hosts;
    float max_bw, total_bw;
    /* Of nccl_select_nets, for paths of up to nets_type: of each GPU, and last
     * of all. The search asks at every step, and paths do not change. */
    struct nccl_nets *nets; /* [count[NODE_GPU] + 1]; NULL: none yet */
    int nets_type;
};

struct mw_xml;
struct mw_nccl_machine {
    struct mw_arena arena;
    struct mw_xml *root;
    struct nccl_system *sys; /* with network and paths, for questions */
};

/* floor(log2 v); 0 for 0. */
static inline int nccl_log2(uint64_t v)
{
    int n = 0;
    while (v >>= 1) {
        n++;
    }
    return n;
}

/* Builds the graph (without NET nodes unless with_net) and all paths. */
enum mw_status nccl_system_build(const struct mw_nccl_machine *machine,
                                 bool with_net, const struct mw_nccl_opts *opts,
                                 struct nccl_system **out, struct mw_err *err);
void nccl_system_free(struct nccl_system *sys);

static inline struct nccl_node *nccl_at(const struct nccl_system *sys,
                                        enum nccl_node_type type, int i)
{
    return &sys->node[sys->of[type][i]];
}
static inline struct nccl_path *nccl_path_to(const struct nccl_system *sys,
                                             enum nccl_node_type t1, int i1,
                                             enum nccl_node_type t2, int i2)
{
    return &nccl_at(sys, t1, i1)->paths[t2][i2];
}

/* Nodes of type `want` with the best (bandwidth, then class) path from a
 * node; returns how many, writes their indices. */
int nccl_nearest(const struct nccl_system *sys, enum nccl_node_type type,
                 int index, enum nccl_node_type want, int *out,
                 int *out_path_type);
/* NIC that a GPU uses on a channel. */
int nccl_local_net(const struct nccl_system *sys, int gpu, int channel);
/* GPU that is served by a NIC first, or -1. */
int nccl_local_gpu(const struct nccl_system *sys, int net);

/* CPU of a GPU by least hops; -1: none. */
int nccl_local_cpu(const struct nccl_system *sys, int gpu);
void nccl_compute_paths(struct nccl_system *sys,
                        const struct mw_nccl_opts *opts);
/* NVLink bandwidth in GB/s of one link of a compute capability. */
float nccl_nvlink_bw(int sm);

/* One graph by search; graph->pattern, min/max_channels and collnet given. */
void nccl_search_graph(struct nccl_system *sys, const struct mw_nccl_opts *opts,
                       struct mw_nccl_graph *graph);
/* State of one recursion. */
struct nccl_walk {
    struct nccl_system *sys;
    struct mw_nccl_graph *graph, *best;
    int back_to_net,
        back_to_first; /* GPU step at which to go back; -1: never */
};
/* -1: none has that rank. */
int nccl_gpu_of_rank(const struct nccl_system *sys, int rank);
/* GPUs to go to from a GPU, best first; returns how many. sort_net: 1 nearest
 * to the NIC first, -1 farthest, 0 the NIC is no matter. */
int nccl_next_gpus(const struct nccl_walk *w, int gpu, int sort_net,
                   uint8_t *next);
/* NICs to start from (of one GPU: only >= 0; of all: -1), best first; until a
 * graph of another type_inter asks. */
const struct nccl_nets *nccl_select_nets(const struct nccl_walk *w, int only);
/* One recursion of the search from `graph` into `best` within *time steps. */
void nccl_search_try(struct nccl_system *sys, struct mw_nccl_graph *graph,
                     struct mw_nccl_graph *best, int *time);
/* Best and worst class of the paths from GPUs to GPUs or NICs. */
void nccl_path_range(const struct nccl_system *sys, enum nccl_node_type type,
                     int *out_min, int *out_max);

#endif
