/*
 * A program on a topology: every send is a flow from the GPU of the rank to
 * that of the peer. Lanes run in order; a step waits for the step it depends
 * on, a receive for its message; the next send of a lane starts when the one
 * before has left. Reductions cost nothing beside the wire. A switch that adds
 * up is an end of flows like a GPU, without a link of its own.
 */
#include "sim/coll/prog_int.h"

#include "sim/net/flow.h"
#include "sim/net/topology.h"

#include <string.h>

struct lane_run {
    int at;
    int arrived, taken; /* messages to this lane */
    int to_rank, to_lane;
    bool is_sending;
    uint32_t own_link; /* the lane's own limit */
};
struct sim {
    const struct mw_prog *p;
    const struct mw_prog_run *run;
    struct mw_fluid *net;
    int *first; /* lane number of a rank's first lane */
    int *rank_of, *lane_of;
    struct lane_run *lane;
    double chunk_bytes;
    uint64_t n_messages;
    double *finish_s;
};

static bool has_recv(int k)
{
    return k == MW_STEP_RECV || k == MW_STEP_RECV_REDUCE ||
           k == MW_STEP_RECV_SEND || k == MW_STEP_RECV_REDUCE_SEND ||
           k == MW_STEP_RECV_REDUCE_COPY_SEND;
}

static bool has_send(int k)
{
    return k == MW_STEP_SEND || k == MW_STEP_RECV_SEND ||
           k == MW_STEP_RECV_REDUCE_SEND || k == MW_STEP_RECV_REDUCE_COPY_SEND;
}

static int gpu_of(const struct sim *s, int rank)
{
    return s->run->gpu_of_rank ? s->run->gpu_of_rank[rank] : rank;
}

static int gpu_route(const struct sim *s, int number, int from_rank,
                     int to_rank, uint32_t *links, double *latency_s)
{
    int from = gpu_of(s, from_rank), to = gpu_of(s, to_rank);
    bool far = s->run->net_latency_s > 0 &&
               !mw_topology_same_domain(s->run->topo, from, to);

    *latency_s = far ? s->run->net_latency_s : s->run->latency_s;
    return mw_topology_route(s->run->topo, from, to, -1, (uint64_t)number,
                             links);
}

/* To or from a switch: the rank's own link, and its rail's NIC on the way to
 * the network's. Half the latency of a message between two ranks. */
static int switch_route(const struct sim *s, int from_rank, int to_rank,
                        uint32_t *links, double *latency_s)
{
    const struct mw_topology *topo = s->run->topo;
    bool is_in = from_rank >= s->p->n_ranks;
    int sw = is_in ? from_rank : to_rank;
    int gpu = gpu_of(s, is_in ? to_rank : from_rank);
    int node = mw_topology_node_of(topo, gpu);
    int n_nics = mw_topology_system(topo, node)->n_nics, n = 0;

    *latency_s = s->run->latency_s / 2;
    links[n++] = mw_topology_gpu_link(topo, gpu, is_in);
    if (sw == s->p->net_switch && n_nics > 0) {
        int local = gpu - mw_topology_first_gpu(topo, node);
        double net_s = s->run->net_latency_s;

        links[n++] = mw_topology_nic_link(
            topo, node,
            (int)((int64_t)local * n_nics /
                  mw_topology_system(topo, node)->gpus_per_node),
            is_in);
        *latency_s = (net_s > 0 ? net_s : s->run->latency_s) / 2;
    }
    return n;
}

static void launch(struct sim *s, int number, int chunks)
{
    struct lane_run *l = &s->lane[number];
    int rank = s->rank_of[number];
    uint32_t links[MW_ROUTE_HOPS_MAX + 1];
    double latency_s = 0;
    int n = rank >= s->p->n_ranks || l->to_rank >= s->p->n_ranks
                ? switch_route(s, rank, l->to_rank, links, &latency_s)
                : gpu_route(s, number, rank, l->to_rank, links, &latency_s);
    if (s->run->channel_Bps > 0 && n < MW_FLOW_HOPS) {
        links[n++] = l->own_link;
    }
    l->is_sending = true;
    s->n_messages++;
    mw_fluid_send(s->net, links, n, chunks * s->chunk_bytes, latency_s,
                  (uint64_t)number);
}

/* Runs a lane as far as it goes; true if it moved. */
static bool advance(struct sim *s, int number)
{
    int rank = s->rank_of[number], lane = s->lane_of[number];
    const struct mw_prog_lane *pl = &s->p->rank[rank].lane[lane];
    struct lane_run *l = &s->lane[number];
    bool moved = false;
    while (l->at < pl->n_steps && !l->is_sending) {
        const struct mw_prog_step *st = &pl->step[l->at];
        if (st->dep_lane >= 0 &&
            s->lane[s->first[rank] + st->dep_lane].at <= st->dep_step) {
            break;
        }
        if (has_recv(st->kind)) {
            if (l->taken == l->arrived) {
                break;
            }
            l->taken++;
        }
        if (has_send(st->kind)) {
            launch(s, number, st->count);
            break; /* done when it has left */
        }
        l->at++;
        moved = true;
    }
    return moved;
}

/* All lanes of a rank until none moves: they may wait for each other. */
static void advance_rank(struct sim *s, int rank)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (int l = 0; l < s->p->rank[rank].n_lanes; l++) {
            moved |= advance(s, s->first[rank] + l);
        }
    }
    s->finish_s[rank] = mw_time_to_s(mw_fluid_now(s->net));
}

static void on_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    (void)net;
    struct sim *s = ctx;
    struct lane_run *l = &s->lane[tag];
    l->is_sending = false;
    l->at++;
    int to = s->first[l->to_rank] + l->to_lane;
    s->lane[to].arrived++;
    advance_rank(s, s->rank_of[tag]);
    advance_rank(s, l->to_rank);
}

static void connect_lanes(struct sim *s, int n_lanes, size_t n_links)
{
    for (int i = 0; i < n_lanes; i++) {
        const struct mw_prog_lane *a =
            &s->p->rank[s->rank_of[i]].lane[s->lane_of[i]];
        s->lane[i].to_rank = a->send;
        s->lane[i].own_link = (uint32_t)(n_links + (size_t)i);
        for (int k = 0; a->send >= 0 && k < s->p->rank[a->send].n_lanes; k++) {
            const struct mw_prog_lane *b = &s->p->rank[a->send].lane[k];
            if (b->recv == s->rank_of[i] && b->channel == a->channel) {
                s->lane[i].to_lane = k;
            }
        }
    }
}

int prog_chunks_of_message(const struct mw_prog *prog)
{
    int in = prog->rank[0].n_chunks[MW_BUF_INPUT];
    int most = prog->rank[0].n_chunks[MW_BUF_OUTPUT];
    most = in > most ? in : most;
    if (prog->op == MW_PROG_GATHER || prog->op == MW_PROG_SCATTER) {
        most = prog->n_ranks;
    }
    return most;
}

void mw_prog_simulate(const struct mw_prog *prog, const struct mw_prog_run *run,
                      struct mw_prog_time *out)
{
    struct sim s = {.p = prog, .run = run};
    int n_lanes = 0;
    size_t n = (size_t)prog_all(prog), n_links = mw_topology_links(run->topo);
    s.first = mw_calloc(n, sizeof *s.first);
    s.finish_s = mw_calloc(n, sizeof *s.finish_s);
    for (int r = 0; r < prog_all(prog); r++) {
        s.first[r] = n_lanes;
        n_lanes += prog->rank[r].n_lanes;
    }
    s.rank_of = mw_calloc((size_t)n_lanes, sizeof *s.rank_of);
    s.lane_of = mw_calloc((size_t)n_lanes, sizeof *s.lane_of);
    s.lane = mw_calloc((size_t)n_lanes, sizeof *s.lane);
    for (int r = 0; r < prog_all(prog); r++) {
        for (int l = 0; l < prog->rank[r].n_lanes; l++) {
            s.rank_of[s.first[r] + l] = r;
            s.lane_of[s.first[r] + l] = l;
        }
    }
    connect_lanes(&s, n_lanes, n_links);
    size_t total = n_links + (run->channel_Bps > 0 ? (size_t)n_lanes : 0);
    double *cap = mw_calloc(total, sizeof *cap);
    memcpy(cap, mw_topology_capacity(run->topo), n_links * sizeof *cap);
    for (size_t i = n_links; i < total; i++) {
        cap[i] = run->channel_Bps;
    }
    s.chunk_bytes = run->bytes / prog_chunks_of_message(prog);
    struct mw_fluid_opts o = {.on_done = on_done, .ctx = &s};
    s.net = mw_fluid_new(total, cap, &o);
    for (int r = 0; r < prog_all(prog); r++) {
        advance_rank(&s, r);
    }
    out->time_s = mw_time_to_s(mw_fluid_run(s.net));
    out->n_messages = s.n_messages;
    out->finish_s = s.finish_s;
    mw_fluid_free(s.net);
    mw_free(cap);
    mw_free(s.first);
    mw_free(s.rank_of);
    mw_free(s.lane_of);
    mw_free(s.lane);
}
