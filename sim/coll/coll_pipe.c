/*
 * What NCCL's formula leaves out of a pipeline, from what NCCL and its network
 * plugin are known to do; no measurement is used.
 *
 * Filling a tree. A chunk is whole in one GPU before it goes on, so that the
 * first one takes its wire time on every hop of the way up and down, of which
 * S / A counts two:
 *
 *   2 (ppn - 1) C / b_local + 2 floor(log2 nodes) C / b_net - 2 C / min(b)
 *
 * C: the chunk (src/enqueue.cc, nccl_sched.c), at most a channel's part; b:
 * what one channel moves, inside a node NCCL's limit of a tree's channel,
 * outside its part of the NICs. NCCL's own tree corrections by size (.4 to 1 of
 * A), which stand for the same on a few nodes, are left away with it.
 *
 * NVLSTree the same with the heads of the switch: a chunk of every head goes to
 * it and back over NVLink, then over the NICs up and down; NCCL's cap of its
 * channels goes with it (nvls_tree_uncapped):
 *
 *   2 heads C / b_local + (2 floor(log2 nodes) - 1) C / b_net
 *
 * Latencies of a long ring. A chunk goes in two slices, of which one is on the
 * wire while the other is waited for: a step takes max(C / b, hop + C / 2 b)
 * where nothing varies. Of the latency there remain at most the first and the
 * last hop and
 *
 *   steps x hop x exp(-C / 2 b / hop)
 *
 * hop the slowest, that of the network; the exponential is the corner of the
 * maximum rounded off (it lies above). Only over a network; inside a node hops
 * are short.
 *
 * Copies by the host. A plugin that takes messages out of its own buffers
 * copies the lines of LL and LL128 through the CPU, by loads and stores up to a
 * size and by a call to the driver above (coll_plugins.csv). The proxy of a
 * rank does so for its channels one after another: once a hop in a tree, once a
 * step in a ring. Messages of Simple are long enough for the rendezvous
 * protocol, which needs no copy.
 *
 * Left out: two children that arrive at the same proxy, overlap of copies with
 * the wire.
 */
#include "sim/coll/coll_int.h"

#include <math.h>

/* One operation as its channels see it. */
struct pipe {
    const struct coll_group *g;
    enum mw_nccl_algo algo;
    enum mw_nccl_proto proto;
    int n_channels;
    double part_bytes;  /* of a channel */
    double chunk_bytes; /* of the pipeline; data, not lines */
    double levels;      /* of a tree over the nodes */
};

/* Lines of LL carry 8 bytes in 16, of LL128 120 in 128. */
static double line_factor(enum mw_nccl_proto proto)
{
    return proto == MW_NCCL_LL ? 2 : proto == MW_NCCL_LL128 ? 128.0 / 120 : 1;
}

static struct pipe pipe_of(const struct coll_group *g, enum mw_nccl_func func,
                           const struct mw_coll_answer *a, double bytes)
{
    struct mw_nccl_choice c = {.algo = a->algo, .proto = a->proto};
    uint64_t size = (uint64_t)(bytes + .5);
    mw_nccl_plan(&g->comm, c.algo, c.proto, size, &c.n_channels, &c.n_threads);
    struct pipe p = {.g = g,
                     .algo = a->algo,
                     .proto = a->proto,
                     .n_channels = c.n_channels,
                     .part_bytes = bytes / c.n_channels,
                     .levels = floor(log2(g->comm.n_nodes))};
    if (a->algo == MW_NCCL_RING) {
        p.part_bytes /= g->comm.n_ranks;
    }
    struct mw_nccl_cells cells = mw_nccl_partition(&g->comm, func, &c, size, 4);
    if (a->algo == MW_NCCL_NVLS_TREE) {
        p.part_bytes /= g->graphs->nvls.n_channels; /* of a head */
    }
    p.chunk_bytes = fmin((double)cells.chunk_bytes, p.part_bytes);
    return p;
}

static double tree_fill_s(const struct pipe *p)
{
    const struct mw_nccl_comm *c = &p->g->comm;
    const struct mw_nccl_graph *tree = &p->g->graphs->tree;
    double local_Bps = 1e9 * (double)c->tree_channel_GBps;
    double net_Bps =
        1e9 * (double)tree->bw_inter * tree->n_channels / c->coll_channels;
    double lines = p->chunk_bytes * line_factor(p->proto);
    double local_s = lines / local_Bps;
    double net_s = c->n_nodes > 1 ? lines / net_Bps : 0;
    double way_s = 2 * (c->ppn - 1) * local_s + 2 * p->levels * net_s;
    return fmax(0, way_s - 2 * fmax(local_s, net_s));
}

/* Of NVLSTree: bytes of all heads pass the switch on the way to them and back,
 * a head's go over its NIC. */
static double nvls_fill_s(const struct pipe *p)
{
    const struct mw_nccl_graph *nvls = &p->g->graphs->nvls;
    double heads = nvls->n_channels, share = 1e9 * heads / p->n_channels;
    double local_s = heads * p->chunk_bytes / (share * (double)nvls->bw_intra);
    double net_s = p->chunk_bytes / (share / heads * (double)nvls->bw_inter);
    return 2 * local_s + (2 * p->levels - 1) * net_s;
}

/* Lines of one message through the host of the receiver. */
static double copy_s(const struct coll_plugin *plugin, double bytes)
{
    double call_s = bytes > plugin->copy_above_bytes ? plugin->copy_call_s : 0;
    return call_s + bytes / plugin->copy_Bps;
}

static double copies_s(const struct coll_plugin *plugin, const struct pipe *p,
                       enum mw_nccl_func func)
{
    const struct mw_nccl_comm *c = &p->g->comm;
    bool is_tree = p->algo == MW_NCCL_TREE;
    bool is_ring = p->algo == MW_NCCL_RING;
    if (plugin->copy_Bps <= 0 || c->n_nodes == 1 ||
        p->proto == MW_NCCL_SIMPLE || (!is_tree && !is_ring)) {
        return 0;
    }
    double turns = ceil((double)p->n_channels / c->ppn);
    double chunks = ceil(p->part_bytes / p->chunk_bytes);
    double steps =
        func == MW_NCCL_ALL_REDUCE ? 2 * (c->n_ranks - 1) : c->n_ranks - 1;
    double messages = is_tree ? 2 * p->levels + chunks - 1 : steps * chunks;
    return messages * turns *
           copy_s(plugin, p->chunk_bytes * line_factor(p->proto));
}

double coll_pipe_hidden(const struct coll_group *group, enum mw_nccl_func func,
                        const struct mw_coll_answer *answer, double bytes)
{
    const struct mw_nccl_comm *c = &group->comm;
    const struct mw_nccl_graph *ring = &group->graphs->ring;
    if (answer->algo != MW_NCCL_RING || answer->proto != MW_NCCL_SIMPLE ||
        c->n_nodes == 1) {
        return 0;
    }
    struct pipe p = pipe_of(group, func, answer, bytes);
    double rounds = func == MW_NCCL_ALL_REDUCE ? 2 : 1;
    double hop_us = (double)c->net_us[func][answer->algo][answer->proto] /
                    (rounds * (c->n_nodes - 1));
    double net_Bps =
        1e9 * (double)ring->bw_inter * ring->n_channels / c->coll_channels;
    double slice_us = 1e6 * p.chunk_bytes / 2 / net_Bps;
    double left_us =
        hop_us * (2 + rounds * (c->n_ranks - 1) * exp(-slice_us / hop_us));
    return 1 - fmin(1, left_us / mw_nccl_latency_us(c, func, answer->algo,
                                                    answer->proto,
                                                    (uint64_t)(bytes + .5)));
}

double coll_pipe_s(const struct mw_coll_world *world,
                   const struct coll_group *group, enum mw_nccl_func func,
                   const struct mw_coll_answer *answer, double bytes)
{
    struct pipe p = pipe_of(group, func, answer, bytes);
    double fill_s = p.algo == MW_NCCL_TREE        ? tree_fill_s(&p)
                    : p.algo == MW_NCCL_NVLS_TREE ? nvls_fill_s(&p)
                                                  : 0;
    return fill_s + copies_s(&world->plugin, &p, func);
}
