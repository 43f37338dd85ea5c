/* Streams of collectives on links; the model is described in event.h. */
#include "sim/coll/event.h"

#include "sim/coll/coll_int.h"
#include "sim/net/flow.h"

#include <math.h>
#include <string.h>

struct stream {
    uint32_t link[MW_FLOW_HOPS];
    int n_links;
    double bytes;
    size_t job;
};
struct streams {
    MW_ARRAY(struct stream) v;
};

/* One job while its streams are made. */
struct maker {
    const struct mw_topology *topo;
    const struct mw_coll_job *job;
    const struct mw_nccl_graphs *graphs;
    const struct mw_nccl_comm *comm;
    struct coll_place place;
    int n;    /* ranks */
    int nics; /* of a tray */
    size_t index;
    struct streams *out;
};

/* GPU of a rank: ranks go over trays, then nodes in NCCL's sense. */
static int gpu_of(const struct maker *m, int node, int local)
{
    int tray = local / m->place.ppn, gpu = local % m->place.ppn;
    int at = m->job->first_node + node * m->place.trays + tray;
    return mw_topology_first_gpu(m->topo, at) + m->job->first_gpu +
           gpu * m->place.stride;
}

/* NIC number within its tray of a NIC of the machine. */
static int nic_of(const struct maker *m, int nic)
{
    return nic < 0 || m->nics == 0 ? 0 : nic % m->nics;
}

static void add(struct maker *m, const uint32_t *links, int n, double bytes)
{
    struct stream s = {.n_links = n, .bytes = bytes, .job = m->index};
    if (n == 0 || bytes <= 0) {
        return;
    }
    memcpy(s.link, links, (size_t)n * sizeof links[0]);
    mw_array_push(&m->out->v, s);
}

static void add_pair(struct maker *m, int from, int from_nic, int to,
                     int to_nic, double bytes)
{
    uint32_t links[MW_ROUTE_HOPS_MAX];
    int n = mw_topology_route_nics(m->topo, from, from_nic, to, to_nic,
                                   (uint64_t)from, links);
    add(m, links, n, bytes);
}

static void add_one(struct maker *m, uint32_t link, double bytes)
{
    add(m, &link, 1, bytes);
}

/* ---- rings ---- */

/* Channel of a node: odd nodes swap pairs when rings alternate over rails. */
static int channel_at(const struct mw_nccl_graph *g, int c, int node)
{
    return g->cross_nic == 2 && g->n_channels % 2 == 0 && node % 2 ? c ^ 1 : c;
}

static void ring_streams(struct maker *m, double per_edge)
{
    const struct mw_nccl_graph *g = &m->graphs->ring;
    int local = m->graphs->n_gpus, nodes = m->comm->n_nodes;
    double bytes = per_edge / g->n_channels;
    for (int c = 0; c < g->n_channels; c++) {
        for (int k = 0; k < nodes; k++) {
            int ck = channel_at(g, c, k);
            int next = (k + 1) % nodes, cn = channel_at(g, c, next);
            const uint8_t *order = g->intra + ck * local;
            for (int i = 0; i + 1 < local; i++) {
                add_pair(m, gpu_of(m, k, order[i]), 0,
                         gpu_of(m, k, order[i + 1]), 0, bytes);
            }
            int last = gpu_of(m, k, order[local - 1]);
            int first = gpu_of(m, next, g->intra[cn * local]);
            if (last != first) {
                add_pair(m, last, nic_of(m, g->inter[2 * ck + 1]), first,
                         nic_of(m, g->inter[2 * cn]), bytes);
            }
        }
    }
}

/* ---- trees and switches ---- */

/* Edges of the two trees over nodes between given GPUs and NICs. */
static void tree_edges(struct maker *m, int local, int nic, double bytes)
{
    int nodes = m->comm->n_nodes;
    for (int k = 0; k < nodes; k++) {
        struct mw_nccl_tree_node t[2];
        mw_nccl_double_tree(nodes, k, t);
        for (int d = 0; d < 2; d++) {
            if (t[d].up >= 0) {
                int a = gpu_of(m, k, local), b = gpu_of(m, t[d].up, local);
                add_pair(m, a, nic, b, nic, bytes / 2);
                add_pair(m, b, nic, a, nic, bytes / 2);
            }
        }
    }
}

static void tree_streams(struct maker *m, double bytes)
{
    const struct mw_nccl_graph *g = &m->graphs->tree;
    int local = m->graphs->n_gpus;
    double share = bytes / g->n_channels;
    for (int c = 0; c < g->n_channels; c++) {
        const uint8_t *order = g->intra + c * local;
        for (int k = 0; k < m->comm->n_nodes; k++) {
            for (int i = 0; i + 1 < local; i++) {
                int a = gpu_of(m, k, order[i]), b = gpu_of(m, k, order[i + 1]);
                add_pair(m, a, 0, b, 0, share);
                add_pair(m, b, 0, a, 0, share);
            }
        }
        tree_edges(m, order[0], nic_of(m, g->inter[2 * c]), share);
    }
}

/* Every GPU gives and takes its data once, the heads their share as well. */
static void switch_streams(struct maker *m, const struct mw_nccl_graph *g,
                           double out_bytes, double in_bytes, bool tree)
{
    int local = m->graphs->n_gpus,
        heads = g->n_channels > 0 ? g->n_channels : 1;
    for (int k = 0; k < m->comm->n_nodes; k++) {
        for (int i = 0; i < local; i++) {
            int gpu = gpu_of(m, k, i);
            add_one(m, mw_topology_gpu_link(m->topo, gpu, false), out_bytes);
            add_one(m, mw_topology_gpu_link(m->topo, gpu, true), in_bytes);
        }
    }
    for (int h = 0; h < g->n_channels && m->comm->n_nodes > 1; h++) {
        int head = g->intra[h * local], nic = nic_of(m, g->inter[2 * h]);
        double share = m->job->query.bytes / heads;
        if (tree) {
            tree_edges(m, head, nic, share);
            continue;
        }
        for (int k = 0; k < m->comm->n_nodes; k++) { /* the network adds up */
            int node = mw_topology_node_of(m->topo, gpu_of(m, k, head));
            add_one(m, mw_topology_nic_link(m->topo, node, nic, false), share);
            add_one(m, mw_topology_nic_link(m->topo, node, nic, true), share);
        }
    }
}

/* ---- everybody with everybody ---- */

enum { PAIRS_MAX = 512 };

static int rank_gpu(const struct maker *m, int rank)
{
    int ppn = m->place.ppn;
    return mw_topology_first_gpu(m->topo, m->job->first_node + rank / ppn) +
           m->job->first_gpu + rank % ppn * m->place.stride;
}

static int own_nic(const struct maker *m, int gpu)
{
    int node = mw_topology_node_of(m->topo, gpu);
    const struct mw_system *s = mw_topology_system(m->topo, node);
    int i = gpu - mw_topology_first_gpu(m->topo, node);
    return (int)((int64_t)i * s->n_nics / s->gpus_per_node);
}

static void all_to_all_streams(struct maker *m, double block)
{
    for (int a = 0; a < m->n; a++) {
        int ga = rank_gpu(m, a);
        if (m->n <= PAIRS_MAX) {
            for (int b = 0; b < m->n; b++) {
                int gb = rank_gpu(m, b);
                if (a != b) {
                    add_pair(m, ga, own_nic(m, ga), gb, own_nic(m, gb), block);
                }
            }
            continue;
        }
        double inside = (double)m->place.ppn * m->place.trays;
        double out = block * (m->n - inside);
        int node = mw_topology_node_of(m->topo, ga);
        for (int d = 0; d < 2; d++) {
            add_one(m, mw_topology_gpu_link(m->topo, ga, d),
                    block * (inside - 1));
            add_one(m, mw_topology_nic_link(m->topo, node, own_nic(m, ga), d),
                    out);
        }
    }
}

/* Every rank to the next one, as sendrecv_perf does. */
static void shift_streams(struct maker *m, double bytes)
{
    for (int a = 0; a < m->n; a++) {
        int from = rank_gpu(m, a), to = rank_gpu(m, (a + 1) % m->n);
        add_pair(m, from, own_nic(m, from), to, own_nic(m, to), bytes);
    }
}

/* A ring in rank order, for devices without NCCL. */
static void plain_ring_streams(struct maker *m, double per_edge)
{
    for (int a = 0; a < m->n; a++) {
        int from = rank_gpu(m, a), to = rank_gpu(m, (a + 1) % m->n);
        bool crosses = !mw_topology_same_domain(m->topo, from, to);
        int nics = crosses && m->nics > 0 ? m->nics : 1;
        for (int j = 0; j < nics; j++) {
            add_pair(m, from, j, to, j, per_edge / nics);
        }
    }
}

static void make_streams(struct maker *m, const struct mw_coll_answer *a)
{
    const struct mw_coll_query *q = &m->job->query;
    double n = m->n, bytes = q->bytes;
    if (q->op == MW_ALL_TO_ALL) {
        all_to_all_streams(m, bytes / n);
        return;
    }
    if (q->op == MW_SEND_RECV) {
        shift_streams(m, bytes);
        return;
    }
    double per_edge = bytes * mw_coll_bus_factor(q->op, m->n);
    if (!a->has_choice) {
        plain_ring_streams(m, per_edge);
        return;
    }
    bool reduce = q->op == MW_ALL_REDUCE;
    double heads =
        m->graphs->nvls.n_channels > 0 ? m->graphs->nvls.n_channels : 1;
    switch (a->algo) {
    case MW_NCCL_TREE:
        tree_streams(m, bytes);
        break;
    case MW_NCCL_NVLS:
    case MW_NCCL_NVLS_TREE:
        if (reduce) {
            switch_streams(m, &m->graphs->nvls, bytes * (1 + 1 / heads),
                           bytes * (1 + 1 / heads),
                           a->algo == MW_NCCL_NVLS_TREE);
        } else {
            switch_streams(m, &m->graphs->nvls,
                           q->op == MW_ALL_GATHER ? bytes / n : bytes,
                           q->op == MW_ALL_GATHER ? bytes : bytes / n, false);
        }
        break;
    case MW_NCCL_COLLNET_DIRECT:
    case MW_NCCL_COLLNET_CHAIN:
        switch_streams(m, &m->graphs->collnet_direct, bytes, bytes, false);
        break;
    case MW_NCCL_RING:
    case MW_NCCL_PAT:
    case MW_NCCL_ALGOS:
        ring_streams(m, per_edge);
        break;
    }
}

/* ---- running ---- */

struct watch {
    const struct streams *streams;
    mw_time *end; /* per job */
};

static void on_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    struct watch *w = ctx;
    mw_time now = mw_fluid_now(net);
    size_t job = w->streams->v.v[tag].job;
    w->end[job] = now > w->end[job] ? now : w->end[job];
}

/* Capacities of the topology, with the refinements that are on. */
static double *capacities(const struct mw_coll_world *w,
                          const struct mw_topology *topo,
                          const struct streams *s, bool has_a2a)
{
    size_t n = mw_topology_links(topo);
    double *cap = mw_calloc(n + 1, sizeof *cap);
    memcpy(cap, mw_topology_capacity(topo), n * sizeof *cap);
    double f = w->congestion.alltoall_fabric;
    int *senders = mw_calloc(n + 1, sizeof *senders);
    for (size_t i = 0; i < s->v.n; i++) {
        const struct stream *st = &s->v.v[i];
        senders[st->link[st->n_links - 1]]++;
        for (int h = 1; has_a2a && f > 0 && h + 1 < st->n_links; h++) {
            cap[st->link[h]] = mw_topology_capacity(topo)[st->link[h]] * f;
        }
    }
    for (size_t l = 0; l < n && w->congestion.incast > 0; l++) {
        char name[64];
        bool is_nic = strstr(mw_topology_link_name(topo, l, name), ".nic");
        if (is_nic && senders[l] > 1) {
            cap[l] /= 1 + w->congestion.incast * (senders[l] - 1);
        }
    }
    mw_free(senders);
    return cap;
}

/* Ends of the jobs in seconds; start and latency per job. */
static void run_streams(const struct mw_coll_world *w,
                        const struct mw_topology *topo, const struct streams *s,
                        const double *start_s, const double *scale,
                        size_t n_jobs, bool has_a2a, double *out_end_s)
{
    double *cap = capacities(w, topo, s, has_a2a);
    struct watch watch = {.streams = s,
                          .end = mw_calloc(n_jobs, sizeof(mw_time))};
    struct mw_fluid_opts o = {.on_done = on_done, .ctx = &watch};
    struct mw_fluid *net = mw_fluid_new(mw_topology_links(topo), cap, &o);
    for (size_t i = 0; i < s->v.n; i++) {
        const struct stream *st = &s->v.v[i];
        mw_fluid_send(net, st->link, st->n_links, st->bytes * scale[st->job],
                      start_s[st->job], i);
    }
    mw_fluid_run(net);
    for (size_t j = 0; j < n_jobs; j++) {
        out_end_s[j] = mw_time_to_s(watch.end[j]);
    }
    mw_fluid_free(net);
    mw_free(watch.end);
    mw_free(cap);
}

/* One switch over the nodes that the jobs need. */
static enum mw_status plain_topology(const struct mw_coll_world *w, int n_nodes,
                                     struct mw_topology **out,
                                     struct mw_err *err)
{
    struct mw_topology_spec spec = {.n_kinds = 1};
    spec.kind[0].system = w->system;
    spec.kind[0].n_nodes = n_nodes;
    return mw_topology_new(&spec, out, err);
}

static enum mw_status make_job(struct mw_coll_world *w,
                               const struct mw_topology *topo,
                               const struct mw_coll_job *job, size_t index,
                               struct streams *out, struct mw_coll_answer *fit,
                               double *latency_s, struct mw_err *err)
{
    struct maker m = {.topo = topo,
                      .job = job,
                      .place = coll_place_of(w, &job->query),
                      .n = job->query.n_nodes * job->query.ranks_per_node,
                      .nics = w->system->n_nics,
                      .index = index,
                      .out = out};
    enum mw_status s = mw_coll_predict(w, MW_COLL_FIT, &job->query, fit, err);
    if (s != MW_OK) {
        return s;
    }
    if (job->first_node < 0 ||
        job->first_node + job->query.n_nodes > mw_topology_nodes(topo) ||
        job->first_gpu < 0 ||
        job->first_gpu + job->query.ranks_per_node > w->system->gpus_per_node) {
        return mw_fail(err, MW_EINPUT,
                       "a group on nodes %d to %d, GPUs from %d, is not on the "
                       "cluster of %d nodes",
                       job->first_node,
                       job->first_node + job->query.n_nodes - 1, job->first_gpu,
                       mw_topology_nodes(topo));
    }
    *latency_s = .5 * fit->time_s;
    if (w->has_nccl) {
        const struct coll_group *group = NULL;
        s = coll_group_of(w, &job->query, true, &group, err);
        if (s != MW_OK) {
            return s;
        }
        m.comm = &group->comm;
        m.graphs = group->graphs;
    }
    if (fit->has_choice) {
        enum mw_nccl_func f = coll_func_of(job->query.op);
        double l = (double)m.comm->lat_us[f][fit->algo][fit->proto] * 1e-6;
        *latency_s = fmin(l, .5 * fit->time_s);
    } else {
        *latency_s = fmin(10e-6, .5 * fit->time_s);
    }
    make_streams(&m, fit);
    return MW_OK;
}

/* Scale of the bytes: alone on one switch the job takes the time of the fit. */
static enum mw_status calibrate(struct mw_coll_world *w,
                                const struct mw_coll_job *job,
                                double *out_scale, double *out_latency_s,
                                double *out_alone_s, struct mw_err *err)
{
    struct mw_topology *topo = NULL;
    struct streams s = {{NULL, 0, 0}};
    struct mw_coll_job here = *job;
    struct mw_coll_answer fit;
    here.first_node = 0;
    here.start_s = 0;
    enum mw_status st = plain_topology(w, job->query.n_nodes, &topo, err);
    if (st == MW_OK) {
        st = make_job(w, topo, &here, 0, &s, &fit, out_latency_s, err);
    }
    if (st == MW_OK) {
        const double zero = 0, one = 1;
        double wire = 0;
        struct mw_coll_world plain = *w;
        plain.congestion = (struct mw_congestion){0, 0};
        run_streams(&plain, topo, &s, &zero, &one, 1, false, &wire);
        *out_scale = wire > 0 ? (fit.time_s - *out_latency_s) / wire : 1;
        *out_alone_s = fit.time_s;
    }
    mw_array_release(&s.v);
    mw_topology_free(topo);
    return st;
}

enum mw_status mw_coll_event_run(struct mw_coll_world *world,
                                 const struct mw_topology *topo,
                                 const struct mw_coll_job *jobs, size_t n_jobs,
                                 struct mw_coll_job_time *out,
                                 struct mw_err *err)
{
    struct mw_topology *own = NULL;
    enum mw_status s = MW_OK;
    int nodes = 1;
    for (size_t j = 0; j < n_jobs; j++) {
        int last = jobs[j].first_node + jobs[j].query.n_nodes;
        nodes = last > nodes ? last : nodes;
    }
    if (!topo) {
        s = plain_topology(world, nodes, &own, err);
        topo = own;
    }
    struct streams streams = {{NULL, 0, 0}};
    double *start = mw_calloc(n_jobs, sizeof *start);
    double *scale = mw_calloc(n_jobs, sizeof *scale);
    double *end = mw_calloc(n_jobs, sizeof *end);
    bool has_a2a = false;
    for (size_t j = 0; j < n_jobs && s == MW_OK; j++) {
        struct mw_coll_answer fit;
        double latency = 0;
        size_t before = streams.v.n;
        s = calibrate(world, &jobs[j], &scale[j], &latency, &out[j].alone_s,
                      err);
        if (s == MW_OK) {
            s = make_job(world, topo, &jobs[j], j, &streams, &fit, &latency,
                         err);
        }
        start[j] = jobs[j].start_s + latency;
        out[j].n_streams = streams.v.n - before;
        has_a2a |= jobs[j].query.op == MW_ALL_TO_ALL;
    }
    if (s == MW_OK) {
        run_streams(world, topo, &streams, start, scale, n_jobs, has_a2a, end);
        for (size_t j = 0; j < n_jobs; j++) {
            out[j].end_s = end[j];
        }
    }
    mw_free(start);
    mw_free(scale);
    mw_free(end);
    mw_array_release(&streams.v);
    mw_topology_free(own);
    return s;
}

void mw_coll_world_set_congestion(struct mw_coll_world *world,
                                  const struct mw_congestion *congestion)
{
    world->congestion = *congestion;
}

enum mw_status coll_event_time(struct mw_coll_world *world,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *a, struct mw_err *err)
{
    struct mw_coll_job job = {.query = *query};
    struct mw_coll_job_time t;
    enum mw_status s = mw_coll_event_run(world, NULL, &job, 1, &t, err);
    if (s == MW_OK) {
        a->time_s = t.end_s;
        a->source = "streams on one switch, alone";
    }
    return s;
}
