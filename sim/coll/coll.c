/*
 * Groups on systems: which NCCL communicator a group is, and the three
 * answers for it. The models behind them: coll_base.c, coll_fit.c, event.c.
 */
#include "sim/coll/coll.h"

#include "sim/coll/coll_int.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const char *const harness_names[MW_HARNESSES] = {
    "nccl-tests", "one-process", "torch", "profiler"};

const char *mw_coll_harness_name(enum mw_coll_harness harness)
{
    return harness_names[harness];
}

bool mw_coll_harness_find(const char *name, enum mw_coll_harness *out)
{
    *out = MW_HARNESS_TESTS;
    for (int i = 0; i < MW_HARNESSES; i++) {
        if (strcasecmp(name, harness_names[i]) == 0) {
            *out = (enum mw_coll_harness)i;
            return true;
        }
    }
    return false;
}

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

/* The user's choice of protocols stands above the plugin's. */
static struct mw_nccl_opts plugin_opts(const struct mw_nccl_opts *user,
                                       const struct coll_plugin *plugin)
{
    struct mw_nccl_opts o = *user, usual;
    mw_nccl_opts_default(&usual);
    if (plugin->is_any) {
        o.plugin_latency_us += plugin->latency_us;
    }
    for (int f = 0; f < MW_NCCL_FUNCS && plugin->is_any; f++) {
        if (o.protos[f] == usual.protos[f]) {
            o.protos[f] &= plugin->protos;
        }
    }
    return o;
}

/* NICs behind the host's cores: what they were seen to reach is their rate. */
static void host_carries(struct mw_system *s)
{
    s->nic_bw_Bps *= s->inter_efficiency;
    s->node_net_bw_Bps *= s->inter_efficiency;
    s->inter_efficiency = 1;
}

/* Without GPUDirect RDMA a message goes from the GPU up to the host's memory
 * and down to the NIC of the same switch: half of the uplink is left for each
 * direction. NCCL's own figure of PCIe: 0.75 GB/s a lane of generation 3
 * (graph/topo.cc). */
static void uplinks_carry_twice(const struct mw_machine_shape *shape,
                                struct mw_system *s)
{
    double uplink_Bps = 16 * 0.75e9 * exp2(shape->pcie_gen - 3);

    if (shape->gpus_per_switch > 0 && shape->nics_per_switch > 0) {
        int n_switches = shape->n_gpus / shape->gpus_per_switch;

        s->node_net_bw_Bps =
            fmin(s->node_net_bw_Bps, n_switches * uplink_Bps / 2);
    }
}

/*
 * What the environment changes of the network: which NICs NCCL's own InfiniBand
 * transport may use (a plugin has its own ways), TCP instead of it, the
 * threshold of a plugin's copies.
 */
static enum mw_status set_network(struct mw_coll_world *w, struct mw_err *err)
{
    int kept = 0;
    if (w->opts.is_socket) {
        w->own.inter_class = "tcp";
    }
    if (w->opts.copy_above_bytes >= 0) {
        w->plugin.copy_above_bytes = w->opts.copy_above_bytes;
    }
    if (w->opts.nic_mask == 0 || w->plugin.is_any || !w->has_nccl) {
        return MW_OK;
    }
    for (int k = 0; k < w->own.n_nics && k < 64; k++) {
        kept += (int)(w->opts.nic_mask >> k & 1);
    }
    if (kept == 0) {
        return mw_fail(err, MW_EINPUT,
                       "NCCL_IB_HCA leaves none of the %d NICs of %s",
                       w->own.n_nics, w->system->slug);
    }
    w->shape.nic_mask = w->opts.nic_mask;
    w->own.node_net_bw_Bps *= (double)kept / w->own.n_nics;
    w->own.n_nics = kept;
    return MW_OK;
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
    w->memo = mw_calloc(COLL_MEMOS, sizeof *w->memo);
    w->has_nccl = mw_machine_has_nccl(db, w->system);
    s = coll_plugin_find(db, w->system, w->opts.is_socket, &w->plugin, err);
    if (s == MW_OK && w->plugin.no_gdr) {
        host_carries(&w->own);
    }
    if (s == MW_OK && w->has_nccl) {
        s = mw_machine_describe(db, w->system, &w->shape, err);
    }
    if (s == MW_OK && w->plugin.no_gdr) {
        w->shape.no_gdr = true;
        uplinks_carry_twice(&w->shape, &w->own);
    }
    if (s == MW_OK) {
        s = set_network(w, err);
    }
    if (s == MW_OK) {
        w->plugin_opts = plugin_opts(&w->opts, &w->plugin);
        s = mw_coll_fit_load(db, &w->fit, err);
    }
    if (s == MW_OK) {
        coll_fit_prepare(w);
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
    mw_free(world->features);
    mw_free(world->memo);
    mw_free(world);
}

bool mw_coll_world_has_nvls(const struct mw_coll_world *world)
{
    return world->has_nccl && world->shape.has_nvswitch &&
           world->shape.sm >= 90;
}

const struct mw_system *mw_coll_world_system(const struct mw_coll_world *world)
{
    return world->system;
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

int coll_domain_trays(const struct mw_coll_world *world)
{
    const struct mw_system *sys = world->system;
    int trays =
        sys->gpus_per_node > 0 ? sys->scaleup_gpus / sys->gpus_per_node : 1;
    bool is_one = !world->has_nccl || world->shape.has_nvswitch;
    return trays > 1 && is_one ? trays : 1;
}

/* Ranks of groups that share their nodes take turns: with tp of 2 each replica
 * of a tensor shard has every second GPU. That counts where messages go through
 * the host: adjacent GPUs have one uplink, these have several. Elsewhere a
 * group is searched as if its GPUs were adjacent, as nccl-tests has them. */
static int stride_of(const struct mw_coll_world *world,
                     const struct mw_coll_query *q, int trays)
{
    int gpus = world->system->gpus_per_node;
    return world->shape.no_gdr && trays == 1 && q->nic_sharers > 1 &&
                   q->ranks_per_node > 1 &&
                   q->nic_sharers * q->ranks_per_node <= gpus
               ? q->nic_sharers
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
    p.stride = stride_of(world, q, p.trays);
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
            s->stride == p->stride && s->own_nics == p->own_nics) {
            *out = s;
            return MW_OK;
        }
    }
    struct mw_str xml = {NULL, 0, 0};
    mw_machine_xml(&w->shape,
                   &(struct mw_machine_part){p->ppn, p->stride, p->trays,
                                             p->own_nics != 0},
                   &xml);
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
    s->stride = p->stride;
    s->multi = multi;
    s->own_nics = p->own_nics;
    mw_array_push(&w->searched, s);
    *out = s;
    return MW_OK;
}

enum mw_status coll_group_of(struct mw_coll_world *world,
                             const struct mw_coll_query *query, bool has_plugin,
                             const struct coll_group **out, struct mw_err *err)
{
    if (!world->has_nccl) {
        return mw_fail(err, MW_EINPUT, "NCCL does not run on %s",
                       world->system->gpu->slug);
    }
    struct coll_place p = coll_place_of(world, query);
    bool own = has_plugin && world->plugin.is_any && p.n_nodes > 1;
    struct coll_group *found = NULL;
    for (size_t i = 0; i < world->group.n && !found; i++) {
        struct coll_group *g = world->group.v[i];
        if (memcmp(&g->place, &p, sizeof p) == 0 && g->has_plugin == own) {
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
        found->has_plugin = own;
        found->graphs = &searched->graphs;
        found->n_nics = searched->n_nics;
        mw_nccl_comm_init(&found->comm, found->graphs, p.n_nodes,
                          own ? &world->plugin_opts : &world->opts);
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
    enum mw_status s = coll_group_of(world, query, false, &group, err);
    if (s == MW_OK) {
        *out_comm = &group->comm;
        if (out_graphs) {
            *out_graphs = group->graphs;
        }
    }
    return s;
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
    s = coll_base_answer(world, query, model != MW_COLL_NCCL, &a, err);
    if (s != MW_OK) {
        return s;
    }
    if (model == MW_COLL_FIT) {
        coll_fit_apply(world, query, &a);
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
