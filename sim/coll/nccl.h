/*
 * What NCCL 2.28.9 decides: rings, trees and NVLS heads found in a machine,
 * then algorithm, protocol, channels and threads for a collective of a size.
 *
 *   machine description (XML) -> mw_nccl_machine
 *     -> mw_nccl_search      one node's graphs (with or without network)
 *       -> mw_nccl_comm      latency and bandwidth of every candidate
 *         -> mw_nccl_choose  the cheapest
 *
 * Source of every constant and rule: NCCL 2.28.9, src/graph/{topo,paths,
 * search,tuning,connect}.cc and src/enqueue.cc, restated here in our own
 * structures. Single-precision arithmetic is kept where NCCL has it, because
 * ties and crossovers depend on it. Left out: NVLink to POWER CPUs through
 * bridges, BCM switch flattening, several data centres, tuner plugins.
 */
#ifndef MW_SIM_COLL_NCCL_H
#define MW_SIM_COLL_NCCL_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_nccl_algo {
    MW_NCCL_TREE,
    MW_NCCL_RING,
    MW_NCCL_COLLNET_DIRECT,
    MW_NCCL_COLLNET_CHAIN,
    MW_NCCL_NVLS,
    MW_NCCL_NVLS_TREE,
    MW_NCCL_PAT,
    MW_NCCL_ALGOS
};
enum mw_nccl_proto {
    MW_NCCL_LL,
    MW_NCCL_LL128,
    MW_NCCL_SIMPLE,
    MW_NCCL_PROTOS
};
/* NCCL's own order of the functions that have a cost model. */
enum mw_nccl_func {
    MW_NCCL_BROADCAST,
    MW_NCCL_REDUCE,
    MW_NCCL_ALL_GATHER,
    MW_NCCL_REDUCE_SCATTER,
    MW_NCCL_ALL_REDUCE,
    MW_NCCL_FUNCS
};
/* "ring" "tree" "nvls" "nvlstree" "collnetdirect" "collnetchain" "pat" */
const char *mw_nccl_algo_name(enum mw_nccl_algo algo);
/* "ll" "ll128" "simple" */
const char *mw_nccl_proto_name(enum mw_nccl_proto proto);
/* "AllReduce" and so on, as NCCL spells them. */
const char *mw_nccl_func_name(enum mw_nccl_func func);

/* Link and path classes, best first; the values order them. */
enum mw_nccl_path {
    MW_PATH_LOC,
    MW_PATH_NVL,
    MW_PATH_NVB,
    MW_PATH_C2C,
    MW_PATH_PIX,
    MW_PATH_PXB,
    MW_PATH_P2C,
    MW_PATH_PXN,
    MW_PATH_PHB,
    MW_PATH_SYS,
    MW_PATH_NET,
    MW_PATH_DIS
};
const char *mw_nccl_path_name(enum mw_nccl_path path); /* "NVL" */

enum mw_nccl_pattern {
    MW_PATTERN_BALANCED_TREE = 1,
    MW_PATTERN_SPLIT_TREE = 2,
    MW_PATTERN_TREE = 3,
    MW_PATTERN_RING = 4,
    MW_PATTERN_NVLS = 5,
    MW_PATTERN_COLLNET_DIRECT = 6
};
const char *mw_nccl_pattern_name(enum mw_nccl_pattern pattern);

enum {
    MW_NCCL_CHANNELS_MAX = 64,
    MW_NCCL_GPUS_MAX = 128, /* of one node or NVLink domain */
    MW_NCCL_NICS_MAX = 160  /* the same */
};

/* ---- settings (environment of the job) ---- */
/* Versions with their own deltas. Of an older one than 2.27 only that is known
 * that it has no class P2C: a NIC behind a CPU that the GPU reaches chip to
 * chip (Grace) is PHB, too far for LL128. Another unknown version takes 2.28.9.
 */
enum mw_nccl_version { MW_NCCL_2_28, MW_NCCL_2_30, MW_NCCL_2_26 };
struct mw_nccl_opts {
    enum mw_nccl_version version;
    bool collnet;     /* NCCL_COLLNET_ENABLE, needs NICs that offer it */
    bool no_nvls;     /* NCCL_NVLS_ENABLE=0 */
    bool p2p_disable; /* NCCL_P2P_DISABLE=1 */
    int cross_nic;    /* NCCL_CROSS_NIC; NCCL's default 2 */
    int min_channels; /* NCCL_MIN_NCHANNELS; 0: unset */
    int max_channels; /* NCCL_MAX_NCHANNELS; 0: unset */
    /* NCCL_ALGO and NCCL_PROTO: bit a (p) of [func]; 2 in NCCL's sense
     * (LL128 by its own test) is the default and is `ll128_auto`. */
    uint8_t algos[MW_NCCL_FUNCS], protos[MW_NCCL_FUNCS];
    bool ll128_auto[MW_NCCL_FUNCS];
    float plugin_latency_us; /* added to what the NICs report */
    bool is_socket;    /* NCCL_IB_DISABLE=1, NCCL_NET=Socket: the host's TCP */
    uint64_t nic_mask; /* NCCL_IB_HCA: bit k: NIC k of a node; 0: all */
    /* NCCL_NET_GDR_LEVEL: farthest NIC that reads and writes GPU memory. */
    enum mw_nccl_path gdr_level;
    /* FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD; FI_HMEM_CUDA_USE_GDRCOPY=0 makes it 0:
     * bytes up to which the host copies by loads and stores, where a plugin
     * copies at all (coll_pipe.c). Negative: the plugin's. */
    double copy_above_bytes;
};
void mw_nccl_opts_default(struct mw_nccl_opts *opts);
/* "2.28.9", "2.30.3+cuda13.0": the version whose deltas are known. False for
 * another, *out is then the nearest: 2.26 from 2.20 to 2.26, else the
 * default. */
bool mw_nccl_version_find(const char *text, enum mw_nccl_version *out);
const char *mw_nccl_version_name(enum mw_nccl_version version); /* "2.28.9" */
/*
 * One `NAME=VALUE` of the environment: NCCL_ALGO, NCCL_PROTO, NCCL_CROSS_NIC,
 * NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_NVLS_ENABLE,
 * NCCL_COLLNET_ENABLE, NCCL_P2P_DISABLE, NCCL_IB_HCA, NCCL_IB_DISABLE,
 * NCCL_NET, NCCL_NET_GDR_LEVEL, and of libfabric's
 * FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD and FI_HMEM_CUDA_USE_GDRCOPY. NCCL's list
 * syntax is read in full: "Ring;allreduce:^Tree". Anything else: MW_EUSAGE.
 */
enum mw_status mw_nccl_opts_env(struct mw_nccl_opts *opts, const char *pair,
                                struct mw_err *err);
/* Is the name of NAME=VALUE one that mw_nccl_opts_env takes? */
bool mw_nccl_env_known(const char *pair);

/* ---- machine --------------------------------------------------------------
 */
struct mw_nccl_machine; /* a parsed description; immutable */
/* Reads NCCL's topology XML; MW_EINPUT with FILE:LINE otherwise, for instance
 * for a GPU without any link, an unknown class or a link of no bandwidth. */
enum mw_status mw_nccl_machine_parse(const char *name, const char *text,
                                     size_t len, struct mw_nccl_machine **out,
                                     struct mw_err *err);
enum mw_status mw_nccl_machine_load(const char *path,
                                    struct mw_nccl_machine **out,
                                    struct mw_err *err);
void mw_nccl_machine_free(struct mw_nccl_machine *machine);
int mw_nccl_machine_gpus(const struct mw_nccl_machine *machine);
int mw_nccl_machine_nics(const struct mw_nccl_machine *machine);
int mw_nccl_machine_sm_min(const struct mw_nccl_machine *machine);
bool mw_nccl_machine_has_nvswitch(const struct mw_nccl_machine *machine);
bool mw_nccl_machine_is_intel(const struct mw_nccl_machine *machine);
bool mw_nccl_machine_is_amd(const struct mw_nccl_machine *machine);
/* Bandwidth in GB/s and class of the path between two GPUs of the machine. */
float mw_nccl_machine_gpu_bw(const struct mw_nccl_machine *machine, int a,
                             int b, enum mw_nccl_path *out_path);

/* ---- graphs -----------------------------------------------------------------
 */
/* What the search finds; bandwidths in GB/s per channel. */
struct mw_nccl_graph {
    enum mw_nccl_pattern pattern;
    int collnet;
    int min_channels, max_channels;
    int cross_nic, n_channels, same_channels, n_hops;
    float bw_intra, bw_inter, latency_inter_us;
    int type_intra, type_inter; /* enum mw_nccl_path */
    /* Ranks of the node in order, channel after channel: intra[c * n_gpus + i];
     * and indices of the NICs at both ends (-1: none): inter[2 c], [2 c + 1] */
    uint8_t intra[MW_NCCL_CHANNELS_MAX * MW_NCCL_GPUS_MAX];
    int16_t inter[2 * MW_NCCL_CHANNELS_MAX];
};
struct mw_nccl_graphs {
    int n_gpus, sm_min, sm_max;
    bool is_multi_node, has_nvswitch, has_nvls, has_collnet;
    bool is_all_nvlink;
    int cpu_kind;              /* private */
    int nvl_channels_per_peer; /* least over local pairs; 1 << 20: no peer */
    int n_nets_by_bw;          /* NICs that one GPU's link to the CPU fills */
    struct mw_nccl_graph ring, tree, collnet_chain, collnet_direct, nvls;
};
/* Runs NCCL's searches for one node, with the network if is_multi_node.
 * Deterministic; at most about 2^19 steps for each graph. */
enum mw_status mw_nccl_search(const struct mw_nccl_machine *machine,
                              bool is_multi_node,
                              const struct mw_nccl_opts *opts,
                              struct mw_nccl_graphs *out, struct mw_err *err);

/* ---- cost -------------------------------------------------------------------
 */
struct mw_nccl_comm {
    int n_nodes, n_ranks, ppn;
    int sm_min;
    bool has_nvls, has_collnet;
    int coll_channels, nvls_channels, p2p_channels, p2p_per_peer;
    float
        nvls_tree_uncapped;  /* bandwidth of NVLSTree's links / NCCL's figure */
    float tree_channel_GBps; /* most that a channel of a tree moves in a node */
    int n_heads;             /* CollNetDirect */
    int n_nvls_heads;        /* NVLS */
    bool is_all_nvlink;
    /* us and GB/s (algorithm bandwidth); bandwidth 0: not available */
    float lat_us[MW_NCCL_FUNCS][MW_NCCL_ALGOS][MW_NCCL_PROTOS];
    float net_us[MW_NCCL_FUNCS][MW_NCCL_ALGOS][MW_NCCL_PROTOS]; /* of it: hops
                                                        between nodes */
    float bw_GBps[MW_NCCL_FUNCS][MW_NCCL_ALGOS][MW_NCCL_PROTOS];
    int max_threads[MW_NCCL_ALGOS][MW_NCCL_PROTOS];
    int threshold[MW_NCCL_ALGOS][MW_NCCL_PROTOS]; /* bytes per thread */
    enum mw_nccl_pattern tree_pattern;
    /* Which entries the formulas fill at all (before enablement). */
    bool exists[MW_NCCL_FUNCS][MW_NCCL_ALGOS][MW_NCCL_PROTOS];
};
/* NCCL's latency and bandwidth table for n_nodes equal nodes. */
void mw_nccl_comm_init(struct mw_nccl_comm *comm,
                       const struct mw_nccl_graphs *graphs, int n_nodes,
                       const struct mw_nccl_opts *opts);

/* Time in us of one candidate for `bytes` (whole buffer; nccl-tests size) and
 * `n_ops` aggregated operations; negative when not available. */
double mw_nccl_time_us(const struct mw_nccl_comm *comm, enum mw_nccl_func func,
                       enum mw_nccl_algo algo, enum mw_nccl_proto proto,
                       uint64_t bytes, int n_ops);

/* The part of it that does not grow with the bytes. */
double mw_nccl_latency_us(const struct mw_nccl_comm *comm,
                          enum mw_nccl_func func, enum mw_nccl_algo algo,
                          enum mw_nccl_proto proto, uint64_t bytes);

/* What matters of an element type for the choice. */
enum mw_nccl_type {
    MW_NCCL_FLOAT16, /* fp16 and bf16 */
    MW_NCCL_FLOAT32,
    MW_NCCL_FLOAT64,
    MW_NCCL_INT32, /* and 64-bit integers */
    MW_NCCL_INT8,  /* and other 8-bit types but fp8 */
    MW_NCCL_FLOAT8
};
enum mw_nccl_redop { MW_NCCL_SUM, MW_NCCL_MINMAX, MW_NCCL_PROD, MW_NCCL_AVG };

struct mw_nccl_choice {
    enum mw_nccl_algo algo;
    enum mw_nccl_proto proto;
    int n_channels, n_threads;
    double time_us;
};
/* The cheapest candidate; one rank costs nothing. */
struct mw_nccl_choice mw_nccl_choose(const struct mw_nccl_comm *comm,
                                     enum mw_nccl_func func,
                                     enum mw_nccl_type type,
                                     enum mw_nccl_redop redop, uint64_t bytes);
/* Channels and threads of a given candidate. */
void mw_nccl_plan(const struct mw_nccl_comm *comm, enum mw_nccl_algo algo,
                  enum mw_nccl_proto proto, uint64_t bytes, int *out_n_channels,
                  int *out_n_threads);

/* ---- what a kernel then does ---- */
/* How one operation is divided over channels: bytes of the first, the middle
 * and the last channel (0: not used), and the chunk of the pipeline. */
struct mw_nccl_cells {
    int n_channels;
    uint64_t lo_bytes, mid_bytes, hi_bytes;
    uint64_t chunk_bytes;
};
struct mw_nccl_cells mw_nccl_partition(const struct mw_nccl_comm *comm,
                                       enum mw_nccl_func func,
                                       const struct mw_nccl_choice *choice,
                                       uint64_t bytes, int elem_bytes);

/* Double binary tree over n nodes: parent and children of `node` in both
 * trees, -1 for none. */
struct mw_nccl_tree_node {
    int up, down0, down1;
    int child_type; /* 0: first child of its parent, 1: second */
};
void mw_nccl_double_tree(int n_nodes, int node,
                         struct mw_nccl_tree_node out[2]);

/* Peers of `rank` in a round of send/recv for equal nodes of ppn ranks;
 * rounds 0 .. n_nodes * ppn - 1. */
void mw_nccl_p2p_round(int n_nodes, int ppn, int rank, int round, int *out_send,
                       int *out_recv);

/* How NCCL sends `bytes` to one peer in a grouped send/recv. */
struct mw_nccl_p2p {
    enum mw_nccl_proto proto;
    int n_channels;
    uint64_t part_bytes, chunk_bytes;
};
struct mw_nccl_p2p mw_nccl_p2p_plan(const struct mw_nccl_comm *comm,
                                    bool is_network, uint64_t bytes);

#endif
