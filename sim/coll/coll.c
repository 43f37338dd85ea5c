/*
 * Groups on systems: which NCCL communicator a group is, its time by NCCL's
 * formula and by the fitted ratios.
 *
 *   fit:  t = r t_nccl,   r = exp of log r interpolated in log bytes and log
 *         ranks between the knots of the class of machine
 *   all-to-all, send/recv (no formula in NCCL):
 *         t = base + hop + max(bytes on NVLink / its bandwidth,
 *                              bytes on the NICs / theirs)
 *
 * For devices without NCCL the base is the plain latency-bandwidth ring with
 * the constants of the database (Thakur, Rabenseifner, Gropp 2005).
 */
#include "sim/coll/coll.h"

#include "sim/coll/coll_int.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const char *const model_names[] = {"nccl", "fit", "event"};

const char *mw_coll_model_name(enum mw_coll_model model)
{
    return model_names[model];
}

enum mw_status mw_coll_model_parse(const char *text, enum mw_coll_model *out,
                                   struct mw_err *err)
{
    for (int i = 0; i < MW_COLL_MODELS; i++) {
        if (strcasecmp(text, model_names[i]) == 0) {
            *out = (enum mw_coll_model)i;
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EUSAGE, "unknown model '%.40s'; nccl, fit or event",
                   text);
}

enum mw_status mw_coll_world_new(const struct mw_hwdb *db, const char *system,
                                 const struct mw_nccl_opts *opts,
                                 struct mw_coll_world **out, struct mw_err *err)
{
    const struct mw_system *sys = NULL;
    enum mw_status s = mw_hwdb_system(db, system, &sys, err);
    return s == MW_OK ? mw_coll_world_of(db, sys, opts, out, err) : s;
}

enum mw_status mw_coll_world_of(const struct mw_hwdb *db,
                                const struct mw_system *system,
                                const struct mw_nccl_opts *opts,
                                struct mw_coll_world **out, struct mw_err *err)
{
    const struct mw_system *row = NULL;
    enum mw_status s = mw_hwdb_system(db, system->slug, &row, err);
    if (s != MW_OK) {
        return s;
    }
    struct mw_coll_world *w = mw_calloc(1, sizeof *w);
    w->db = db;
    w->own = *system;
    w->own.gpu = row->gpu;
    w->system = &w->own;
    mw_nccl_opts_default(&w->opts);
    if (opts) {
        w->opts = *opts;
    }
    w->has_nccl = mw_machine_has_nccl(db, w->system);
    if (w->has_nccl) {
        s = mw_machine_describe(db, w->system, &w->shape, err);
    }
    if (s == MW_OK) {
        s = mw_coll_fit_load(db, &w->fit, err);
    }
    if (s != MW_OK) {
        mw_coll_world_free(w);
        return s;
    }
    *out = w;
    return MW_OK;
}

void mw_coll_world_free(struct mw_coll_world *world)
{
    if (!world) {
        return;
    }
    for (size_t i = 0; i < world->group.n; i++) {
        mw_free(world->group.v[i]);
    }
    for (size_t i = 0; i < world->searched.n; i++) {
        mw_free(world->searched.v[i]);
    }
    mw_array_release(&world->group);
    mw_array_release(&world->searched);
    mw_coll_fit_release(&world->fit);
    mw_free(world);
}

bool mw_coll_world_has_nvls(const struct mw_coll_world *world)
{
    return world->has_nccl && world->shape.has_nvswitch &&
           world->shape.sm >= 90;
}

bool mw_coll_world_has_nccl(const struct mw_coll_world *world)
{
    return world->has_nccl;
}

const struct mw_system *mw_coll_world_system(const struct mw_coll_world *world)
{
    return world->system;
}

void mw_coll_world_set_fit(struct mw_coll_world *world,
                           const struct mw_coll_fit *fit)
{
    mw_array_clear(&world->fit.knot);
    mw_array_reserve(&world->fit.knot, fit->knot.n + 1);
    for (size_t i = 0; i < fit->knot.n; i++) {
        mw_array_push(&world->fit.knot, fit->knot.v[i]);
    }
}

double mw_coll_bus_factor(enum mw_coll_op op, int n_ranks)
{
    double n = n_ranks;
    switch (op) {
    case MW_ALL_REDUCE:
        return 2 * (n - 1) / n;
    case MW_ALL_GATHER:
    case MW_REDUCE_SCATTER:
    case MW_ALL_TO_ALL:
        return (n - 1) / n;
    case MW_BROADCAST:
    case MW_SEND_RECV:
    case MW_REDUCE:
    case MW_COLL_OP_COUNT:
        break;
    }
    return 1;
}

/* ---- which communicator ---- */

static int coll_domain_trays(const struct mw_coll_world *world)
{
    const struct mw_system *sys = world->system;
    int trays =
        sys->gpus_per_node > 0 ? sys->scaleup_gpus / sys->gpus_per_node : 1;
    return trays > 1 && world->has_nccl && world->shape.has_nvswitch ? trays
                                                                     : 1;
}

/* Trays of a node in NCCL's sense, and how many such nodes. */
struct coll_place coll_place_of(const struct mw_coll_world *world,
                                const struct mw_coll_query *q)
{
    int trays = coll_domain_trays(world);
    if (q->domain_trays > 0) {
        trays = q->domain_trays;
    }
    struct coll_place p = {.ppn = q->ranks_per_node};
    p.n_nodes = (q->n_nodes + trays - 1) / trays;
    p.trays = (q->n_nodes + p.n_nodes - 1) / p.n_nodes;
    p.own_nics = q->nic_sharers > 1;
    return p;
}

static enum mw_status search(struct mw_coll_world *w,
                             const struct coll_place *p,
                             const struct coll_search **out, struct mw_err *err)
{
    bool multi = p->n_nodes > 1;
    for (size_t i = 0; i < w->searched.n; i++) {
        struct coll_search *s = w->searched.v[i];
        if (s->ppn == p->ppn && s->trays == p->trays && s->multi == multi &&
            s->own_nics == p->own_nics) {
            *out = s;
            return MW_OK;
        }
    }
    struct mw_str xml = {NULL, 0, 0};
    mw_machine_xml(&w->shape, p->ppn, p->trays, p->own_nics, &xml);
    struct mw_nccl_machine *m = NULL;
    enum mw_status st =
        mw_nccl_machine_parse(w->system->slug, xml.s, xml.n, &m, err);
    mw_str_release(&xml);
    struct coll_search *s = mw_calloc(1, sizeof *s);
    if (st == MW_OK) {
        s->n_nics = mw_nccl_machine_nics(m) / p->trays;
        st = mw_nccl_search(m, multi, &w->opts, &s->graphs, err);
    }
    mw_nccl_machine_free(m);
    if (st != MW_OK) {
        mw_free(s);
        return st;
    }
    s->ppn = p->ppn;
    s->trays = p->trays;
    s->multi = multi;
    s->own_nics = p->own_nics;
    mw_array_push(&w->searched, s);
    *out = s;
    return MW_OK;
}

static enum mw_status group_of(struct mw_coll_world *world,
                               const struct mw_coll_query *query,
                               const struct coll_group **out,
                               struct mw_err *err)
{
    struct coll_place p = coll_place_of(world, query);
    struct coll_group *found = NULL;
    for (size_t i = 0; i < world->group.n && !found; i++) {
        struct coll_group *g = world->group.v[i];
        if (memcmp(&g->place, &p, sizeof p) == 0) {
            found = g;
        }
    }
    if (!found) {
        const struct coll_search *searched = NULL;
        enum mw_status s = search(world, &p, &searched, err);
        if (s != MW_OK) {
            return s;
        }
        found = mw_calloc(1, sizeof *found);
        found->place = p;
        found->graphs = &searched->graphs;
        found->n_nics = searched->n_nics;
        mw_nccl_comm_init(&found->comm, found->graphs, p.n_nodes, &world->opts);
        mw_array_push(&world->group, found);
    }
    *out = found;
    return MW_OK;
}

enum mw_status mw_coll_comm(struct mw_coll_world *world,
                            const struct mw_coll_query *query,
                            const struct mw_nccl_comm **out_comm,
                            const struct mw_nccl_graphs **out_graphs,
                            struct mw_err *err)
{
    const struct coll_group *group = NULL;
    if (!world->has_nccl) {
        return mw_fail(err, MW_EINPUT, "NCCL does not run on %s",
                       world->system->gpu->slug);
    }
    enum mw_status s = group_of(world, query, &group, err);
    if (s == MW_OK) {
        *out_comm = &group->comm;
        if (out_graphs) {
            *out_graphs = group->graphs;
        }
    }
    return s;
}

/* ---- base times ---- */

static bool func_of(enum mw_coll_op op, enum mw_nccl_func *out)
{
    switch (op) {
    case MW_ALL_REDUCE:
        *out = MW_NCCL_ALL_REDUCE;
        return true;
    case MW_ALL_GATHER:
        *out = MW_NCCL_ALL_GATHER;
        return true;
    case MW_REDUCE_SCATTER:
        *out = MW_NCCL_REDUCE_SCATTER;
        return true;
    case MW_BROADCAST:
        *out = MW_NCCL_BROADCAST;
        return true;
    case MW_REDUCE:
        *out = MW_NCCL_REDUCE;
        return true;
    case MW_ALL_TO_ALL:
    case MW_SEND_RECV:
    case MW_COLL_OP_COUNT:
        break;
    }
    return false;
}

enum mw_nccl_func coll_func_of(enum mw_coll_op op)
{
    enum mw_nccl_func func = MW_NCCL_ALL_REDUCE;
    MW_ASSERT(func_of(op, &func), "operation %d", (int)op);
    return func;
}

/* NICs of all that groups share: of the node, or of the NVLink domain's trays
 * where the group may lie on any of them. */
static double shared_net_Bps(const struct mw_coll_world *w,
                             const struct mw_coll_query *q)
{
    struct coll_place p = coll_place_of(w, q);
    int trays = q->nic_sharers > 1 ? coll_domain_trays(w) : p.trays;
    return w->system->node_net_bw_Bps * (trays > p.trays ? trays : p.trays);
}

/* Bandwidth of the group's share of them, per rank. */
static double nic_Bps_per_rank(const struct mw_coll_world *w,
                               const struct mw_coll_query *q)
{
    struct coll_place p = coll_place_of(w, q);
    int sharers = q->nic_sharers > 1 ? q->nic_sharers : 1;
    return shared_net_Bps(w, q) / sharers / (p.trays * p.ppn);
}

/* The same of sends, which go through the NICs beside the rank's GPU. */
static double send_Bps_per_rank(const struct mw_coll_world *w,
                                const struct mw_coll_query *q)
{
    const struct mw_system *s = w->system;
    double beside = fmax(s->nic_bw_Bps, s->node_net_bw_Bps / s->gpus_per_node);
    return fmin(beside, nic_Bps_per_rank(w, q));
}

/*
 * How far the NICs of a group and of the others on its nodes are promised
 * twice: two GPUs of a switch with one NIC, each in a group of its own.
 */
static double oversubscribed(const struct mw_coll_world *w,
                             const struct mw_coll_query *q,
                             const struct coll_group *g)
{
    double wanted_Bps =
        w->system->nic_bw_Bps * g->n_nics * g->place.trays * q->nic_sharers;
    return g->place.n_nodes > 1 && q->nic_sharers > 1
               ? fmax(1, wanted_Bps / shared_net_Bps(w, q))
               : 1;
}

/* All-to-all and send/recv. Latencies: NCCL's LL ring inside a node, Simple
 * over the network (tuning.cc), since that is what its p2p uses. */
static double p2p_time_s(const struct mw_coll_world *w,
                         const struct mw_coll_query *q)
{
    struct coll_place p = coll_place_of(w, q);
    double n = (double)q->n_nodes * q->ranks_per_node;
    double local = (double)p.trays * p.ppn;
    double intra = q->bytes, inter = 0;
    if (q->op == MW_ALL_TO_ALL) {
        intra = q->bytes * (local - 1) / n;
        inter = q->bytes * (n - local) / n;
    } else if (p.n_nodes > 1) {
        intra = 0;
        inter = q->bytes;
    }
    double base_s = 7.2e-6;
    double t = intra / w->system->intra_bw_Bps;
    if (p.n_nodes > 1) {
        base_s = 22.4e-6;
        double net = send_Bps_per_rank(w, q);
        t = net > 0 ? fmax(t, inter / net) : t;
    }
    return base_s + t;
}

/* Ring with the database's latencies and bandwidths. */
static double plain_ring_s(const struct mw_coll_world *w,
                           const struct mw_coll_query *q)
{
    const struct mw_system *s = w->system;
    int n = q->n_nodes * q->ranks_per_node;
    double rounds = q->op == MW_ALL_REDUCE ? 2 : 1;
    double bw = s->intra_bw_Bps * s->intra_efficiency;
    double hops_in = rounds * (n - q->n_nodes), hops_out = 0;
    if (q->n_nodes > 1) {
        double net =
            nic_Bps_per_rank(w, q) * q->ranks_per_node * s->inter_efficiency;
        bw = fmin(bw, net);
        hops_out = rounds * (q->n_nodes - 1);
    }
    double bus = mw_coll_bus_factor(q->op, n);
    return hops_in * s->intra_alpha_s + hops_out * s->inter_alpha_s +
           q->bytes * bus / bw;
}

static enum mw_status base_answer(struct mw_coll_world *w,
                                  const struct mw_coll_query *q,
                                  struct mw_coll_answer *out,
                                  struct mw_err *err)
{
    enum mw_nccl_func func;
    if (!func_of(q->op, &func)) {
        out->time_s = p2p_time_s(w, q);
        return MW_OK;
    }
    if (!w->has_nccl) {
        out->time_s = plain_ring_s(w, q);
        return MW_OK;
    }
    const struct coll_group *g = NULL;
    enum mw_status s = group_of(w, q, &g, err);
    if (s != MW_OK) {
        return s;
    }
    uint64_t bytes = (uint64_t)(q->bytes + .5);
    struct mw_nccl_choice c =
        mw_nccl_choose(&g->comm, func, q->type, q->redop, bytes);
    /* NCCL chooses as if alone. Half the bandwidth is twice the bytes. */
    double share = oversubscribed(w, q, g);
    out->time_s = 1e-6 * c.time_us;
    if (share > 1) {
        out->time_s = 1e-6 * mw_nccl_time_us(&g->comm, func, c.algo, c.proto,
                                             (uint64_t)(q->bytes * share), 1);
    }
    out->has_choice = true;
    out->algo = c.algo;
    out->proto = c.proto;
    out->n_channels = c.n_channels;
    out->n_threads = c.n_threads;
    return MW_OK;
}

/* ---- predict ---- */

static enum mw_status check_query(const struct mw_coll_world *w,
                                  const struct mw_coll_query *q,
                                  struct mw_err *err)
{
    if (!(q->bytes >= 0) || q->bytes > 1e15) {
        return mw_fail(err, MW_EINPUT, "%g bytes; 0 to 1e15", q->bytes);
    }
    if (q->n_nodes < 1 || q->n_nodes > 1000000 || q->ranks_per_node < 1 ||
        q->ranks_per_node > w->system->gpus_per_node) {
        return mw_fail(err, MW_EINPUT,
                       "%d ranks on each of %d nodes do not fit %s of %d GPUs "
                       "a node",
                       q->ranks_per_node, q->n_nodes, w->system->slug,
                       w->system->gpus_per_node);
    }
    if (q->n_nodes > 1 && w->system->n_nics == 0 &&
        coll_place_of(w, q).n_nodes > 1) {
        return mw_fail(err, MW_EINPUT, "%s has no NIC: one node only",
                       w->system->slug);
    }
    return MW_OK;
}

static void fill_bandwidth(const struct mw_coll_query *q, int n,
                           struct mw_coll_answer *a)
{
    a->algbw_Bps = a->time_s > 0 ? q->bytes / a->time_s : 0;
    a->busbw_Bps = a->algbw_Bps * mw_coll_bus_factor(q->op, n);
}

enum mw_status mw_coll_predict(struct mw_coll_world *world,
                               enum mw_coll_model model,
                               const struct mw_coll_query *query,
                               struct mw_coll_answer *out, struct mw_err *err)
{
    struct mw_coll_answer a = {.ratio = 1, .source = ""};
    enum mw_status s = check_query(world, query, err);
    int n = query->n_nodes * query->ranks_per_node;
    if (s != MW_OK) {
        return s;
    }
    if (n == 1 || query->bytes == 0) {
        a.source = "one rank, or nothing to send";
        *out = a;
        return MW_OK;
    }
    s = base_answer(world, query, &a, err);
    if (s != MW_OK) {
        return s;
    }
    if (model == MW_COLL_FIT) {
        struct mw_coll_knot key;
        mw_coll_keys(world, query, &a, &key);
        a.ratio =
            coll_fit_ratio(&world->fit, &key, log2(query->bytes), &a.source);
        a.time_s *= a.ratio;
    } else if (model == MW_COLL_EVENT) {
        s = coll_event_time(world, query, &a, err);
        if (s != MW_OK) {
            return s;
        }
    }
    fill_bandwidth(query, n, &a);
    *out = a;
    return MW_OK;
}
