/*
 * The cluster as links that flows share: GPUs, NICs, leaf and spine switches.
 *
 *   node    every GPU has a link out and a link in at the rate of its scale-up
 *           fabric; fully meshed nodes have a link per ordered pair as well;
 *           every NIC has a link out and a link in
 *   domain  trays of one NVLink domain reach each other without a NIC
 *   fabric  one switch; rail-optimised (NIC r of every node of a group on leaf
 *           r); fat tree (all NICs of a group on one leaf); dragonfly+ (a fat
 *           tree whose groups meet over a second, thinner level)
 *
 * A leaf has `spines` links up and as many down; their sum is the leaf's NICs
 * over the oversubscription. The spine is chosen by destination (D-mod-k) or
 * by a hash of the flow (ECMP). Traffic to a GPU of another rail goes to the
 * NIC of that rail by way of the GPU beside it (PXN) when asked.
 *
 * Sources: NVIDIA DGX SuperPOD reference architecture RA-11333 (rails, leaves
 * of 32 nodes); Zahavi, "D-Mod-K routing providing non-blocking traffic for
 * shift permutations on real life fat trees", 2010; Shpiner et al.,
 * "Dragonfly+", HiPINEB 2017. Left out: PCIe trees (sim/coll/nccl.h has them),
 * adaptive routing, cables of different length.
 */
#ifndef MW_SIM_NET_TOPOLOGY_H
#define MW_SIM_NET_TOPOLOGY_H

#include "base/err.h"
#include "base/mem.h"
#include "hwdb/hwdb.h"

#include <stdbool.h>
#include <stdint.h>

enum mw_fabric_kind {
    MW_FABRIC_ONE_SWITCH,
    MW_FABRIC_RAIL,
    MW_FABRIC_FAT_TREE,
    MW_FABRIC_DRAGONFLY
};
enum mw_routing { MW_ROUTE_DMODK, MW_ROUTE_ECMP };

enum { MW_TOPOLOGY_KINDS_MAX = 8, MW_ROUTE_HOPS_MAX = 8 };

/* What to build: nodes of one or several systems in order, and the fabric. */
struct mw_topology_spec {
    int n_kinds;
    struct {
        const struct mw_system *system;
        int n_nodes;
    } kind[MW_TOPOLOGY_KINDS_MAX];
    enum mw_fabric_kind fabric;
    int leaf;       /* nodes of a group; 0: 32 */
    int spines;     /* of a leaf; 0: one trunk */
    double oversub; /* >= 1; 0: 1 */
    int group;      /* dragonfly+: leaf groups of a group; 0: 4 */
    enum mw_routing routing;
    bool pxn; /* rails: go to the rail of the receiver inside the node */
};

/*
 * "dgx-h100 x 4", "dgx-h100 x 2 + dgx-a100 x 2, rail, leaf 32, oversub 2,
 * spines 16, ecmp, pxn"; words: one-switch (default), rail, fat-tree,
 * dragonfly, leaf N, spines N, group N, oversub F, dmodk, ecmp, pxn.
 * MW_EINPUT naming the word.
 */
enum mw_status mw_topology_parse(const struct mw_hwdb *db, const char *text,
                                 struct mw_topology_spec *out,
                                 struct mw_err *err);

struct mw_topology;
/* MW_EINPUT for impossible sizes, or a system without NIC in several nodes. */
enum mw_status mw_topology_new(const struct mw_topology_spec *spec,
                               struct mw_topology **out, struct mw_err *err);
void mw_topology_free(struct mw_topology *topo);

int mw_topology_nodes(const struct mw_topology *topo);
int mw_topology_gpus(const struct mw_topology *topo); /* all nodes */
/* First GPU of a node; of n_nodes: the number of GPUs. */
int mw_topology_first_gpu(const struct mw_topology *topo, int node);
int mw_topology_node_of(const struct mw_topology *topo, int gpu);
const struct mw_system *mw_topology_system(const struct mw_topology *topo,
                                           int node);
size_t mw_topology_links(const struct mw_topology *topo);
const double *mw_topology_capacity(const struct mw_topology *topo);
/* "n3.gpu2.out", "n0.nic1.in", "leaf4.up0" into buf of at least 64. */
const char *mw_topology_link_name(const struct mw_topology *topo, size_t link,
                                  char buf[64]);
/* Multiplies the capacity of all links of NICs (0.5: half speed). */
void mw_topology_scale_nics(struct mw_topology *topo, double factor);

/*
 * Links from one GPU to another, in order; returns how many (0: the same GPU).
 * nic < 0: the NIC of the rail of the sender (with pxn: of the receiver).
 * flow: for ECMP. The bottleneck is what matters, so switches have no links of
 * their own.
 */
int mw_topology_route(const struct mw_topology *topo, int from, int to, int nic,
                      uint64_t flow, uint32_t out[MW_ROUTE_HOPS_MAX]);

/*
 * The same through a given NIC of each node (numbers within the node), and the
 * parts of such a way on their own: for traffic that a switch adds up or that
 * is not told apart by pairs.
 */
int mw_topology_route_nics(const struct mw_topology *topo, int from,
                           int from_nic, int to, int to_nic, uint64_t flow,
                           uint32_t out[MW_ROUTE_HOPS_MAX]);
uint32_t mw_topology_gpu_link(const struct mw_topology *topo, int gpu,
                              bool is_in);
uint32_t mw_topology_nic_link(const struct mw_topology *topo, int node, int nic,
                              bool is_in);
/* Do two GPUs reach each other without a NIC? */
bool mw_topology_same_domain(const struct mw_topology *topo, int a, int b);

/* NULL, or what is wrong: every pair of GPUs of a sample of nodes must reach
 * each other both ways over links of positive, finite capacity. */
const char *mw_topology_check(const struct mw_topology *topo);

struct mw_str;
/* For people: nodes, links and counts; and Graphviz. At most `max_nodes` nodes
 * are drawn, the rest is counted. */
void mw_topology_text(const struct mw_topology *topo, struct mw_str *out);
void mw_topology_dot(const struct mw_topology *topo, int max_nodes,
                     struct mw_str *out);

#endif
