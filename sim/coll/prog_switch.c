/*
 * Programs in which switches add up and copy.
 *
 *   NVLS           every rank is head of a shard: the NVSwitch reads the shard
 *                  from all ranks and gives the head the sum (multimem
 *                  load-reduce); the head's result goes back through it to all
 *                  (multimem store). All-gather is the second half alone,
 *                  reduce-scatter the first. Over nodes, heads of one shard
 *                  meet in the network's switch (SHARP) between the halves
 *   NVLSTree       the same, but the heads meet along two binary trees
 *   CollNetDirect  ranks send shards to their heads, who add up and meet in
 *                  the network's switch
 *   CollNetChain   shards go along a chain through the node to their head
 *
 * A switch is a rank without data of its own: it receives a chunk from its
 * first port, adds the others' in port order, and sends. Each shard is cut
 * into pieces that follow each other.
 *
 * Sources: NCCL 2.28.9 (src/device/all_reduce.h, all_gather.h,
 * reduce_scatter.h; graph/connect.cc); Graham et al., "Scalable Hierarchical
 * Aggregation Protocol (SHARP)", COMHPC 2016. Left out: copies of unregistered
 * buffers inside a GPU, SHARP's own tree of switches.
 */
#include "sim/coll/prog_int.h"

#include "sim/coll/nccl.h"

/* One shard: chunks [first, first + count), its head in every node. */
struct shard {
    int head; /* local rank */
    int first, count;
    int in, out; /* channels on the way to the head and back */
};
/* Ranks node * local ... are node `node`'s; its NVSwitch. */
struct node {
    int first_rank, local, nvswitch;
};

static struct prog_after stream(struct prog_draft *d, const struct shard *s,
                                int rank, int send, int recv, int channel,
                                enum mw_prog_kind kind, struct prog_after after)
{
    return prog_stream(d, rank, send, recv, channel, kind, s->first, s->count,
                       after);
}

/* What a member sends is added up by a switch, member after member. */
static struct prog_after add_port(struct prog_draft *d, const struct shard *s,
                                  int member, int sw, int channel,
                                  bool is_first, struct prog_after ready,
                                  struct prog_after at_switch)
{
    stream(d, s, member, sw, -1, channel, MW_STEP_SEND, ready);
    return stream(d, s, sw, -1, member, channel,
                  is_first ? MW_STEP_RECV : MW_STEP_RECV_REDUCE, at_switch);
}

/* From a switch to one rank; when that has it. */
static struct prog_after from_switch(struct prog_draft *d,
                                     const struct shard *s, int sw, int member,
                                     int channel, struct prog_after at_switch)
{
    stream(d, s, sw, member, -1, channel, MW_STEP_SEND, at_switch);
    return stream(d, s, member, -1, sw, channel, MW_STEP_RECV, PROG_NOTHING);
}

/* The NVSwitch's sum of a node's shard, at the head. */
static struct prog_after nvls_reduce(struct prog_draft *d,
                                     const struct node *node,
                                     const struct shard *s)
{
    struct prog_after sum = PROG_NOTHING;

    for (int i = 0; i < node->local; i++) {
        sum = add_port(d, s, node->first_rank + i, node->nvswitch, s->in,
                       i == 0, PROG_NOTHING, sum);
    }
    return from_switch(d, s, node->nvswitch, node->first_rank + s->head, s->in,
                       sum);
}

/* The head's shard to all of the node. */
static void nvls_broadcast(struct prog_draft *d, const struct node *node,
                           const struct shard *s, struct prog_after ready)
{
    struct prog_after at =
        add_port(d, s, node->first_rank + s->head, node->nvswitch, s->out, true,
                 ready, PROG_NOTHING);

    for (int i = 0; i < node->local; i++) {
        from_switch(d, s, node->nvswitch, node->first_rank + i, s->out, at);
    }
}

/* CollNetDirect: everybody's shard to the head, added to its own. */
static struct prog_after direct_reduce(struct prog_draft *d,
                                       const struct node *node,
                                       const struct shard *s)
{
    int head = node->first_rank + s->head;
    struct prog_after sum = PROG_NOTHING;

    for (int k = 1; k < node->local; k++) {
        int from = node->first_rank + prog_mod(s->head + k, node->local);

        stream(d, s, from, head, -1, s->in, MW_STEP_SEND, PROG_NOTHING);
        sum = stream(d, s, head, -1, from, s->in, MW_STEP_RECV_REDUCE, sum);
    }
    return sum;
}

static void direct_broadcast(struct prog_draft *d, const struct node *node,
                             const struct shard *s, struct prog_after ready)
{
    int head = node->first_rank + s->head;

    for (int k = 1; k < node->local; k++) {
        int to = node->first_rank + prog_mod(s->head + k, node->local);

        stream(d, s, head, to, -1, s->out, MW_STEP_SEND, ready);
        stream(d, s, to, -1, head, s->out, MW_STEP_RECV, PROG_NOTHING);
    }
}

/* CollNetChain: place 0 is the head; sums come from the far end. */
static struct prog_after chain_reduce(struct prog_draft *d,
                                      const struct node *node,
                                      const struct shard *s)
{
    struct prog_after sum = PROG_NOTHING;

    for (int place = node->local - 1; place > 0; place--) {
        int from = node->first_rank + prog_mod(s->head + place, node->local);
        int to = node->first_rank + prog_mod(s->head + place - 1, node->local);

        stream(d, s, from, to, -1, s->in, MW_STEP_SEND, sum);
        sum = stream(d, s, to, -1, from, s->in, MW_STEP_RECV_REDUCE,
                     PROG_NOTHING);
    }
    return sum;
}

static void chain_broadcast(struct prog_draft *d, const struct node *node,
                            const struct shard *s, struct prog_after ready)
{
    for (int place = 0; place + 1 < node->local; place++) {
        int from = node->first_rank + prog_mod(s->head + place, node->local);
        int to = node->first_rank + prog_mod(s->head + place + 1, node->local);

        stream(d, s, from, to, -1, s->out, MW_STEP_SEND, ready);
        ready = stream(d, s, to, -1, from, s->out, MW_STEP_RECV, PROG_NOTHING);
    }
}

/* ---- between nodes: `at` of every node's head, before and after ---- */

static void meet_in_network(struct prog_draft *d, const struct node *node,
                            int n_nodes, const struct shard *s,
                            struct prog_after *at)
{
    int sw = d->prog->net_switch;
    struct prog_after sum = PROG_NOTHING;

    for (int g = 0; g < n_nodes; g++) {
        sum = add_port(d, s, node[g].first_rank + s->head, sw, s->in, g == 0,
                       at[g], sum);
    }
    for (int g = 0; g < n_nodes; g++) {
        at[g] = from_switch(d, s, sw, node[g].first_rank + s->head, s->in, sum);
    }
}

/* Half of the pieces along each of two trees: at, half_at. */
static void meet_in_trees(struct prog_draft *d, const struct node *node,
                          int n_nodes, const struct shard *s,
                          struct prog_after *at, struct prog_after *half_at)
{
    size_t n = (size_t)d->n;
    int *parent = mw_calloc(n, sizeof *parent);
    struct prog_after *ready = mw_calloc(n, sizeof *ready);
    struct prog_after *done = mw_calloc(n, sizeof *done);

    for (int t = 0; t < 2; t++) {
        int half = s->count / 2;
        struct prog_tree tree = {.parent = parent,
                                 .first = s->first + t * half,
                                 .count = t ? s->count - half : half,
                                 .channel = 2 * s->in + t,
                                 .up = true,
                                 .down = true,
                                 .ready = ready,
                                 .done = done};

        for (int r = 0; r < d->n; r++) {
            parent[r] = -2;
        }
        for (int g = 0; g < n_nodes; g++) {
            struct mw_nccl_tree_node two[2];
            int head = node[g].first_rank + s->head;

            mw_nccl_double_tree(n_nodes, g, two);
            parent[head] =
                two[t].up < 0 ? -1 : node[two[t].up].first_rank + s->head;
            ready[head] = (t ? half_at : at)[g];
            ready[head].step += t * half;
        }
        prog_add_tree(d, &tree);
        for (int g = 0; g < n_nodes; g++) {
            (t ? half_at : at)[g] = done[node[g].first_rank + s->head];
        }
    }
    mw_free(parent);
    mw_free(ready);
    mw_free(done);
}

/* ---- the programs ---- */

static void tree_shard(struct prog_draft *d, const struct node *node,
                       int n_nodes, const struct shard *s,
                       struct prog_after *at, struct prog_after *half_at)
{
    for (int g = 0; g < n_nodes; g++) {
        at[g] = half_at[g] = nvls_reduce(d, &node[g], s);
    }
    meet_in_trees(d, node, n_nodes, s, at, half_at);
    for (int g = 0; g < n_nodes; g++) {
        /* The trees end in lanes of their own: a way back for each half. */
        struct shard half = *s;

        half.count = s->count / 2;
        nvls_broadcast(d, &node[g], &half, at[g]);
        half.first += half.count;
        half.count = s->count - half.count;
        half.out = s->out + 1;
        nvls_broadcast(d, &node[g], &half, half_at[g]);
    }
}

static void reduce_shard(struct prog_draft *d, const struct node *node,
                         int n_nodes, const struct shard *s,
                         struct prog_after *at)
{
    enum mw_prog_algo algo = d->spec->algo;

    for (int g = 0; g < n_nodes; g++) {
        at[g] = d->spec->op == MW_PROG_ALL_GATHER ? PROG_NOTHING
                : algo == MW_ALGO_NVLS            ? nvls_reduce(d, &node[g], s)
                : algo == MW_ALGO_COLLNET_DIRECT ? direct_reduce(d, &node[g], s)
                                                 : chain_reduce(d, &node[g], s);
    }
    if (n_nodes > 1) {
        meet_in_network(d, node, n_nodes, s, at);
    }
    for (int g = 0; g < n_nodes && d->spec->op != MW_PROG_REDUCE_SCATTER; g++) {
        if (algo == MW_ALGO_NVLS) {
            nvls_broadcast(d, &node[g], s, at[g]);
        } else if (algo == MW_ALGO_COLLNET_DIRECT) {
            direct_broadcast(d, &node[g], s, at[g]);
        } else {
            chain_broadcast(d, &node[g], s, at[g]);
        }
    }
}

void prog_build_switched(struct prog_draft *d)
{
    int local = d->spec->local, n_nodes = d->n / local;
    int pieces = d->chunks / local;
    size_t n = (size_t)n_nodes;
    struct node *node = mw_calloc(n, sizeof *node);
    struct prog_after *at = mw_calloc(n, sizeof *at);
    struct prog_after *half_at = mw_calloc(n, sizeof *half_at);

    for (int g = 0; g < n_nodes; g++) {
        node[g] = (struct node){g * local, local, d->n + g};
    }
    for (int h = 0; h < local; h++) {
        struct shard s = {.head = h,
                          .first = h * pieces,
                          .count = pieces,
                          .in = 3 * h,
                          .out = 3 * h + 1};

        if (d->spec->algo == MW_ALGO_NVLS_TREE) {
            tree_shard(d, node, n_nodes, &s, at, half_at);
        } else {
            reduce_shard(d, node, n_nodes, &s, at);
        }
    }
    mw_free(node);
    mw_free(at);
    mw_free(half_at);
}
