/*
 * Numbering of the links of a cluster and routes over them; see topology.h.
 *
 * Links of node k begin at first_link[k]: GPU out 0..g-1, GPU in 0..g-1, NIC
 * out, NIC in, then, in meshes, one per ordered pair. Leaf links follow: up
 * and down of leaf l and spine s at leaf_base + (2 l + dir) spines + s, and in
 * a dragonfly+ one up and one down link of every group.
 */
#include "sim/net/topology.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct node {
    const struct mw_system *system;
    int first_gpu, n_gpus, n_nics;
    int domain;   /* NVLink domain */
    bool is_mesh; /* a link for every pair */
    uint32_t first_link;
};

struct mw_topology {
    struct mw_topology_spec spec;
    int n_nodes, n_gpus, n_rails, n_leaves, n_groups;
    struct node *node;
    int *node_of_gpu;
    double *cap;
    size_t n_links;
    uint32_t leaf_base, group_base;
};

static int leaf_groups(const struct mw_topology *t)
{
    return (t->n_nodes + t->spec.leaf - 1) / t->spec.leaf;
}

static bool is_full_mesh(const struct mw_system *s)
{
    return s->gpus_per_node > 1 && s->gpus_per_node <= 16 &&
           s->peer_bw_Bps > 0 && s->peer_bw_Bps < .9 * s->intra_bw_Bps &&
           !strstr(s->intra_fabric, "cube");
}

static enum mw_status check_spec(struct mw_topology_spec *s, struct mw_err *err)
{
    int64_t nodes = 0;
    s->leaf = s->leaf > 0 ? s->leaf : 32;
    s->spines = s->spines > 0 ? s->spines : 1;
    s->group = s->group > 0 ? s->group : 4;
    s->oversub = s->oversub > 0 ? s->oversub : 1;
    for (int k = 0; k < s->n_kinds; k++) {
        nodes += s->kind[k].n_nodes;
    }
    if (nodes < 1 || nodes > 200000) {
        return mw_fail(err, MW_EINPUT, "%lld nodes; 1 to 200000",
                       (long long)nodes);
    }
    if (!(s->oversub >= 1) || s->oversub > 1000 || s->spines > 4096) {
        return mw_fail(err, MW_EINPUT,
                       "oversub %g, spines %d; oversub 1 to 1000, spines at "
                       "most 4096",
                       s->oversub, s->spines);
    }
    for (int k = 0; k < s->n_kinds; k++) {
        const struct mw_system *sys = s->kind[k].system;
        if (!(sys->intra_bw_Bps > 0) || !isfinite(sys->intra_bw_Bps)) {
            return mw_fail(err, MW_EINPUT, "%s has no bandwidth inside a node",
                           sys->slug);
        }
        int trays =
            sys->gpus_per_node ? sys->scaleup_gpus / sys->gpus_per_node : 1;
        if (sys->n_nics == 0 && nodes > (trays > 1 ? trays : 1)) {
            return mw_fail(err, MW_EINPUT,
                           "%s has no NIC, so that its GPUs are isolated from "
                           "other nodes",
                           sys->slug);
        }
    }
    return MW_OK;
}

/* Nodes, their GPUs, domains and first links. */
static uint32_t place_nodes(struct mw_topology *t)
{
    uint32_t link = 0;
    int at = 0, domain = -1;
    for (int k = 0; k < t->spec.n_kinds; k++) {
        const struct mw_system *s = t->spec.kind[k].system;
        int trays = s->scaleup_gpus / (s->gpus_per_node ? s->gpus_per_node : 1);
        for (int i = 0; i < t->spec.kind[k].n_nodes; i++, at++) {
            struct node *n = &t->node[at];
            domain += i % (trays > 1 ? trays : 1) == 0;
            *n = (struct node){.system = s,
                               .first_gpu = t->n_gpus,
                               .n_gpus = s->gpus_per_node,
                               .n_nics = s->n_nics,
                               .domain = domain,
                               .is_mesh = is_full_mesh(s),
                               .first_link = link};
            t->n_gpus += n->n_gpus;
            t->n_rails = n->n_nics > t->n_rails ? n->n_nics : t->n_rails;
            link += 2 * (uint32_t)(n->n_gpus + n->n_nics);
            link += n->is_mesh ? (uint32_t)(n->n_gpus * n->n_gpus) : 0;
        }
    }
    return link;
}

static void fill_node_caps(struct mw_topology *t)
{
    for (int k = 0; k < t->n_nodes; k++) {
        const struct node *n = &t->node[k];
        uint32_t l = n->first_link;
        for (int i = 0; i < 2 * n->n_gpus; i++) {
            t->cap[l++] = n->system->intra_bw_Bps;
        }
        for (int i = 0; i < 2 * n->n_nics; i++) {
            t->cap[l++] = n->system->nic_bw_Bps;
        }
        for (int i = 0; n->is_mesh && i < n->n_gpus * n->n_gpus; i++) {
            t->cap[l++] = n->system->peer_bw_Bps;
        }
    }
}

/* Leaf of a NIC. */
static int leaf_of(const struct mw_topology *t, int node, int nic)
{
    int group = node / t->spec.leaf;
    return t->spec.fabric == MW_FABRIC_RAIL ? group * t->n_rails + nic : group;
}

/* Sum of the NICs of every leaf, over the oversubscription. */
static void fill_leaf_caps(struct mw_topology *t)
{
    for (int k = 0; k < t->n_nodes; k++) {
        for (int j = 0; j < t->node[k].n_nics; j++) {
            int leaf = leaf_of(t, k, j);
            double share = t->node[k].system->nic_bw_Bps / t->spec.oversub /
                           t->spec.spines;
            for (int s = 0; s < 2 * t->spec.spines; s++) {
                t->cap[t->leaf_base +
                       (uint32_t)(2 * leaf * t->spec.spines + s)] += share;
            }
            if (t->n_groups > 0) {
                int g = k / (t->spec.leaf * t->spec.group);
                for (int d = 0; d < 2; d++) {
                    t->cap[t->group_base + (uint32_t)(2 * g + d)] +=
                        share * t->spec.spines / t->spec.oversub;
                }
            }
        }
    }
    for (size_t l = t->leaf_base; l < t->n_links; l++) {
        t->cap[l] = t->cap[l] > 0 ? t->cap[l] : 1; /* an empty leaf */
    }
}

enum mw_status mw_topology_new(const struct mw_topology_spec *spec,
                               struct mw_topology **out, struct mw_err *err)
{
    struct mw_topology_spec s = *spec;
    enum mw_status st = check_spec(&s, err);
    if (st != MW_OK) {
        return st;
    }
    struct mw_topology *t = mw_calloc(1, sizeof *t);
    t->spec = s;
    for (int k = 0; k < s.n_kinds; k++) {
        t->n_nodes += s.kind[k].n_nodes;
    }
    t->node = mw_calloc((size_t)t->n_nodes, sizeof *t->node);
    uint32_t links = place_nodes(t);
    t->leaf_base = links;
    if (s.fabric != MW_FABRIC_ONE_SWITCH) {
        t->n_leaves =
            leaf_groups(t) * (s.fabric == MW_FABRIC_RAIL ? t->n_rails : 1);
    }
    links += (uint32_t)(2 * t->n_leaves * s.spines);
    t->group_base = links;
    if (s.fabric == MW_FABRIC_DRAGONFLY) {
        t->n_groups = (leaf_groups(t) + s.group - 1) / s.group;
    }
    links += 2 * (uint32_t)t->n_groups;
    t->n_links = links;
    t->cap = mw_calloc(links, sizeof *t->cap);
    fill_node_caps(t);
    if (t->n_leaves > 0) {
        fill_leaf_caps(t);
    }
    t->node_of_gpu = mw_calloc((size_t)t->n_gpus, sizeof *t->node_of_gpu);
    for (int k = 0; k < t->n_nodes; k++) {
        for (int g = 0; g < t->node[k].n_gpus; g++) {
            t->node_of_gpu[t->node[k].first_gpu + g] = k;
        }
    }
    *out = t;
    return MW_OK;
}

void mw_topology_free(struct mw_topology *topo)
{
    if (topo) {
        mw_free(topo->node);
        mw_free(topo->node_of_gpu);
        mw_free(topo->cap);
        mw_free(topo);
    }
}

int mw_topology_nodes(const struct mw_topology *topo)
{
    return topo->n_nodes;
}

int mw_topology_gpus(const struct mw_topology *topo)
{
    return topo->n_gpus;
}

int mw_topology_first_gpu(const struct mw_topology *topo, int node)
{
    return node < topo->n_nodes ? topo->node[node].first_gpu : topo->n_gpus;
}

int mw_topology_node_of(const struct mw_topology *topo, int gpu)
{
    return topo->node_of_gpu[gpu];
}

const struct mw_system *mw_topology_system(const struct mw_topology *topo,
                                           int node)
{
    return topo->node[node].system;
}

size_t mw_topology_links(const struct mw_topology *topo)
{
    return topo->n_links;
}

const double *mw_topology_capacity(const struct mw_topology *topo)
{
    return topo->cap;
}

void mw_topology_scale_nics(struct mw_topology *topo, double factor)
{
    for (int k = 0; k < topo->n_nodes; k++) {
        const struct node *n = &topo->node[k];
        for (int i = 0; i < 2 * n->n_nics; i++) {
            topo->cap[n->first_link + (uint32_t)(2 * n->n_gpus + i)] *= factor;
        }
    }
}

/* ---- routes ---- */

static uint32_t gpu_link(const struct node *n, int gpu, int dir)
{
    return n->first_link + (uint32_t)(dir * n->n_gpus + gpu);
}

static uint32_t nic_link(const struct node *n, int nic, int dir)
{
    return n->first_link + (uint32_t)(2 * n->n_gpus + dir * n->n_nics + nic);
}

/* NIC beside a GPU, and GPU beside a NIC. */
static int nic_of_gpu(const struct node *n, int gpu)
{
    return (int)((int64_t)gpu * n->n_nics / n->n_gpus);
}

static int gpu_of_nic(const struct node *n, int nic)
{
    return (int)((int64_t)nic * n->n_gpus / n->n_nics);
}

static int route_inside(const struct node *a, int i, const struct node *b,
                        int j, uint32_t *out)
{
    int n = 0;
    out[n++] = gpu_link(a, i, 0);
    if (a == b && a->is_mesh) {
        out[n++] = a->first_link +
                   (uint32_t)(2 * (a->n_gpus + a->n_nics) + i * a->n_gpus + j);
    }
    out[n++] = gpu_link(b, j, 1);
    return n;
}

static int spine_of(const struct mw_topology *t, int to_node, int to_nic,
                    uint64_t flow)
{
    uint64_t key = (uint64_t)to_node * (uint64_t)t->n_rails + (uint64_t)to_nic;
    if (t->spec.routing == MW_ROUTE_ECMP) {
        key = (flow * 0x9e3779b97f4a7c15u) ^ (key * 0xbf58476d1ce4e5b9u);
        key ^= key >> 29;
        key *= 0x94d049bb133111ebu;
        key ^= key >> 32;
    }
    return (int)(key % (uint64_t)t->spec.spines);
}

static int route_fabric(const struct mw_topology *t, int a, int a_nic, int b,
                        int b_nic, uint64_t flow, uint32_t *out)
{
    int n = 0;
    if (t->n_leaves == 0) {
        return 0;
    }
    int from = leaf_of(t, a, a_nic), to = leaf_of(t, b, b_nic);
    if (from == to) {
        return 0;
    }
    int s = spine_of(t, b, b_nic, flow), spines = t->spec.spines;
    int ga = a / (t->spec.leaf * t->spec.group);
    int gb = b / (t->spec.leaf * t->spec.group);
    out[n++] = t->leaf_base + (uint32_t)(2 * from * spines + s);
    if (t->n_groups > 0 && ga != gb) {
        out[n++] = t->group_base + (uint32_t)(2 * ga);
        out[n++] = t->group_base + (uint32_t)(2 * gb + 1);
    }
    out[n++] = t->leaf_base + (uint32_t)((2 * to + 1) * spines + s);
    return n;
}

int mw_topology_route(const struct mw_topology *topo, int from, int to, int nic,
                      uint64_t flow, uint32_t out[MW_ROUTE_HOPS_MAX])
{
    if (from == to) {
        return 0;
    }
    int a = topo->node_of_gpu[from], b = topo->node_of_gpu[to];
    const struct node *na = &topo->node[a], *nb = &topo->node[b];
    int i = from - na->first_gpu, j = to - nb->first_gpu;
    if (na->domain == nb->domain) {
        return route_inside(na, i, nb, j, out);
    }
    int out_nic = nic >= 0 ? nic % na->n_nics : nic_of_gpu(na, i);
    int in_nic = nic >= 0 ? nic % nb->n_nics : nic_of_gpu(nb, j);
    bool to_rail = nic < 0 && topo->spec.pxn &&
                   topo->spec.fabric == MW_FABRIC_RAIL && in_nic < na->n_nics;
    int n = 0;
    if (to_rail) {
        out_nic = in_nic;
    }
    if (to_rail && gpu_of_nic(na, out_nic) != i) {
        out[n++] = gpu_link(na, i, 0); /* over NVLink to the rail's GPU */
        out[n++] = gpu_link(na, gpu_of_nic(na, out_nic), 1);
    }
    out[n++] = nic_link(na, out_nic, 0);
    n += route_fabric(topo, a, out_nic, b, in_nic, flow, out + n);
    out[n++] = nic_link(nb, in_nic, 1);
    return n;
}

int mw_topology_route_nics(const struct mw_topology *topo, int from,
                           int from_nic, int to, int to_nic, uint64_t flow,
                           uint32_t out[MW_ROUTE_HOPS_MAX])
{
    int a = topo->node_of_gpu[from], b = topo->node_of_gpu[to];
    const struct node *na = &topo->node[a], *nb = &topo->node[b];
    if (na->domain == nb->domain) {
        return mw_topology_route(topo, from, to, -1, flow, out);
    }
    int i = from_nic % na->n_nics, j = to_nic % nb->n_nics, n = 0;
    out[n++] = nic_link(na, i, 0);
    n += route_fabric(topo, a, i, b, j, flow, out + n);
    out[n++] = nic_link(nb, j, 1);
    return n;
}

uint32_t mw_topology_gpu_link(const struct mw_topology *topo, int gpu,
                              bool is_in)
{
    const struct node *n = &topo->node[topo->node_of_gpu[gpu]];
    return gpu_link(n, gpu - n->first_gpu, is_in);
}

uint32_t mw_topology_nic_link(const struct mw_topology *topo, int node, int nic,
                              bool is_in)
{
    const struct node *n = &topo->node[node];
    return nic_link(n, nic % n->n_nics, is_in);
}

bool mw_topology_same_domain(const struct mw_topology *topo, int a, int b)
{
    return topo->node[topo->node_of_gpu[a]].domain ==
           topo->node[topo->node_of_gpu[b]].domain;
}

const char *mw_topology_check(const struct mw_topology *topo)
{
    for (size_t l = 0; l < topo->n_links; l++) {
        if (!(topo->cap[l] > 0) || !isfinite(topo->cap[l])) {
            return "a link has no, a negative or an infinite bandwidth";
        }
    }
    int step = topo->n_gpus / 64 + 1;
    for (int a = 0; a < topo->n_gpus; a += step) {
        for (int b = 0; b < topo->n_gpus; b += step) {
            uint32_t r[MW_ROUTE_HOPS_MAX];
            if (a != b && mw_topology_route(topo, a, b, -1, 0, r) < 1) {
                return "two GPUs do not reach each other";
            }
        }
    }
    return NULL;
}

const char *mw_topology_link_name(const struct mw_topology *topo, size_t link,
                                  char buf[64])
{
    if (link >= topo->group_base) {
        size_t k = link - topo->group_base;
        snprintf(buf, 64, "group%zu.%s", k / 2, k % 2 ? "down" : "up");
    } else if (link >= topo->leaf_base) {
        size_t k = link - topo->leaf_base, s = (size_t)topo->spec.spines;
        snprintf(buf, 64, "leaf%zu.%s%zu", k / (2 * s),
                 k / s % 2 ? "down" : "up", k % s);
    } else {
        int n = topo->n_nodes - 1;
        while (topo->node[n].first_link > link) {
            n--;
        }
        const struct node *nd = &topo->node[n];
        int k = (int)(link - nd->first_link);
        int g = nd->n_gpus, c = nd->n_nics;
        if (k < 2 * g) {
            snprintf(buf, 64, "n%d.gpu%d.%s", n, k % g, k / g ? "in" : "out");
        } else if (k < 2 * (g + c)) {
            k -= 2 * g;
            snprintf(buf, 64, "n%d.nic%d.%s", n, k % c, k / c ? "in" : "out");
        } else {
            k -= 2 * (g + c);
            snprintf(buf, 64, "n%d.gpu%d-gpu%d", n, k / g, k % g);
        }
    }
    return buf;
}
