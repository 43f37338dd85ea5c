/*
 * From NCCL's machine description to the graph that the search works on.
 *
 * Links (GB/s, one direction): NVLink links x rate of the generation; PCIe
 * lanes x rate / 80 with the rate in 100 Mb/s a lane (15 30 60 120 240 480 for
 * generations 1 to 6); network port Mb/s / 8000; between CPUs by maker.
 * After building, links of a node stand in the order NVLink, PCIe down, PCIe
 * up, others, because the first link found to a neighbour is the one used.
 * Source: NCCL 2.28.9, src/graph/topo.cc and topo.h. PCIe switches of
 * Broadcom that show as two levels are not flattened.
 */
#include "sim/coll/nccl_int.h"

#include "base/units.h"
#include "sim/net/xml.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct builder {
    struct nccl_system *sys;
    int cap;
    bool with_net;
    uint64_t host_hash[MW_NCCL_GPUS_MAX];
    struct mw_err *err;
};

/* Hosts stand above the 56 bits of a bus number. */
#define LOCAL_MASK INT64_C(0x00ffffffffffffff)

static int64_t with_host(int host, int64_t local)
{
    return ((int64_t)host << 56) + (local & LOCAL_MASK);
}

/* "0000:1a:00.0" as a number, punctuation left out. */
static int64_t bus_number(const char *text)
{
    uint64_t v = 0;
    for (; *text; text++) {
        char c = (char)tolower((unsigned char)*text);
        if (c >= '0' && c <= '9') {
            v = (v << 4) | (uint64_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            v = (v << 4) | (uint64_t)(c - 'a' + 10);
        }
    }
    return (int64_t)v & LOCAL_MASK;
}

static int count_elements(const struct mw_xml *node)
{
    int n = 1;
    for (const struct mw_xml *c = node->first_child; c; c = c->next) {
        n += count_elements(c);
    }
    return n;
}

static int find_node(const struct nccl_system *sys, enum nccl_node_type type,
                     int64_t id)
{
    for (int i = 0; i < sys->count[type]; i++) {
        if (sys->node[sys->of[type][i]].id == id) {
            return sys->of[type][i];
        }
    }
    return -1;
}

static int add_node(struct builder *b, enum nccl_node_type type, int64_t id,
                    int host)
{
    struct nccl_system *sys = b->sys;
    MW_ASSERT(sys->n_nodes < b->cap, "%d nodes", sys->n_nodes);
    int at = sys->n_nodes++;
    struct nccl_node *n = &sys->node[at];
    n->type = type;
    n->id = id;
    n->host = host;
    n->index = sys->count[type];
    n->local_gpu = -1;
    sys->of[type][sys->count[type]++] = at;
    return at;
}

/* Adds bandwidth to the link of that class, keeping links sorted by it. */
static void connect_one_way(struct nccl_system *sys, int from, int to, int type,
                            float bw)
{
    struct nccl_node *n = &sys->node[from];
    size_t at = 0;
    while (at < n->links.n &&
           (n->links.v[at].rem != to || n->links.v[at].type != type)) {
        at++;
    }
    if (at == n->links.n) {
        struct nccl_link fresh = {.type = type, .bw = 0, .rem = to};
        mw_array_push(&n->links, fresh);
    }
    n->links.v[at].bw += bw;
    struct nccl_link keep = n->links.v[at];
    for (; at > 0 && n->links.v[at - 1].bw < keep.bw; at--) {
        n->links.v[at] = n->links.v[at - 1];
    }
    n->links.v[at] = keep;
}

static void connect_both(struct nccl_system *sys, int a, int b, int type,
                         float bw)
{
    connect_one_way(sys, a, b, type, bw);
    connect_one_way(sys, b, a, type, bw);
}

/* ---- elements --------------------------------------------------------------
 */

static enum mw_status add_net(struct builder *b, const struct mw_xml *net,
                              int nic, int host)
{
    int64_t dev = 0, mbps = 0, port = 0, gdr = 0, coll = 0;
    enum mw_status s = mw_xml_int(net, "dev", 0, 4095, false, 0, &dev, b->err);
    if (s == MW_OK) {
        s = mw_xml_int(net, "speed", -1, 100000000, true, 10000, &mbps, b->err);
    }
    if (s == MW_OK) {
        s = mw_xml_int(net, "port", 0, 255, true, 0, &port, b->err);
    }
    if (s == MW_OK) {
        s = mw_xml_int(net, "gdr", 0, 1, true, 0, &gdr, b->err);
    }
    if (s == MW_OK) {
        s = mw_xml_int(net, "coll", 0, 1, true, 0, &coll, b->err);
    }
    if (s != MW_OK) {
        return s;
    }
    if (mbps == 0) {
        return mw_xml_fail(net, b->err, "network port %lld has speed 0",
                           (long long)dev);
    }
    if (b->sys->count[NODE_NET] == MW_NCCL_NICS_MAX) {
        return mw_xml_fail(net, b->err, "more than %d NICs in one machine",
                           MW_NCCL_NICS_MAX);
    }
    int at = add_node(b, NODE_NET, with_host(host, dev), host);
    struct nccl_node *n = &b->sys->node[at];
    n->dev = (int)dev;
    n->net_bw = (float)((double)(mbps < 0 ? 10000 : mbps) / 8000.0);
    n->port = (int)port;
    n->gdr = (int)gdr;
    n->coll = (int)coll;
    const char *guid = mw_xml_attr(net, "guid");
    n->asic = guid && strncmp(guid, "0x", 2) == 0 ? strtoull(guid + 2, NULL, 16)
                                                  : (uint64_t)dev;
    const char *lat = mw_xml_attr(net, "latency");
    double lat_us = 0;
    if (lat && (mw_double_parse(lat, &lat_us, NULL) != MW_OK || lat_us < 0)) {
        return mw_xml_fail(net, b->err, "latency '%.40s' is not a number", lat);
    }
    n->net_latency_us = (float)lat_us;
    connect_both(b->sys, nic, at, LINK_NET, n->net_bw);
    return MW_OK;
}

static enum mw_status add_nets(struct builder *b, const struct mw_xml *nic_xml,
                               int nic, int host)
{
    for (const struct mw_xml *c = nic_xml->first_child; c; c = c->next) {
        if (strcmp(c->name, "net") != 0 || !mw_xml_attr(c, "dev") ||
            !b->with_net) {
            continue;
        }
        enum mw_status s = add_net(b, c, nic, host);
        if (s != MW_OK) {
            return s;
        }
    }
    return MW_OK;
}

static enum mw_status pci_bandwidth(struct builder *b, const struct mw_xml *pci,
                                    float *out)
{
    static const struct {
        const char *text;
        int rate;
    } rates[] = {{"2.5 GT/s", 15},   {"5 GT/s", 30},   {"5.0 GT/s", 30},
                 {"8 GT/s", 60},     {"8.0 GT/s", 60}, {"16 GT/s", 120},
                 {"16.0 GT/s", 120}, {"32 GT/s", 240}, {"32.0 GT/s", 240},
                 {"64.0 GT/s", 480}, {"64 GT/s", 480}};
    const char *speed = mw_xml_attr(pci, "link_speed");
    int64_t width = 0;
    enum mw_status s =
        mw_xml_int(pci, "link_width", 0, 64, true, 16, &width, b->err);
    if (s != MW_OK) {
        return s;
    }
    int rate = 60; /* NCCL's fallback for a speed it does not know */
    for (size_t i = 0; speed && i < sizeof rates / sizeof rates[0]; i++) {
        size_t n = strlen(rates[i].text);
        if (strncmp(speed, rates[i].text, n) == 0 &&
            (speed[n] == '\0' || strcmp(speed + n, " PCIe") == 0)) {
            rate = rates[i].rate;
        }
    }
    *out = (float)((double)((width == 0 ? 16 : width) * rate) / 80.0);
    return MW_OK;
}

static enum mw_status add_gpu(struct builder *b, const struct mw_xml *gpu,
                              int at)
{
    int64_t sm = 0, rank = 0, dev = 0, gdr = 0;
    enum mw_status s = mw_xml_int(gpu, "sm", 30, 999, false, 0, &sm, b->err);
    if (s == MW_OK) {
        s = mw_xml_int(gpu, "rank", 0, 100000, false, 0, &rank, b->err);
    }
    if (s == MW_OK) {
        s = mw_xml_int(gpu, "dev", 0, 1023, false, 0, &dev, b->err);
    }
    if (s == MW_OK) {
        s = mw_xml_int(gpu, "gdr", 0, 1, true, 0, &gdr, b->err);
    }
    struct nccl_node *n = &b->sys->node[at];
    n->sm = (int)sm;
    n->rank = (int)rank;
    n->dev = (int)dev;
    n->gdr = (int)gdr;
    return s;
}

static enum mw_status add_pci(struct builder *b, const struct mw_xml *pci,
                              int parent, int host)
{
    if (strcmp(pci->name, "pci") != 0) {
        return MW_OK;
    }
    const char *bus = mw_xml_attr(pci, "busid");
    if (!bus) {
        return mw_xml_fail(pci, b->err, "<pci> lacks the attribute 'busid'");
    }
    const struct mw_xml *gpu = mw_xml_child(pci, "gpu");
    const struct mw_xml *nic = mw_xml_child(pci, "nic");
    int64_t id = with_host(host, bus_number(bus));
    enum mw_status s = MW_OK;
    int at = -1;
    bool is_new = true;
    if (gpu) {
        if (!mw_xml_attr(gpu, "rank")) {
            return MW_OK; /* a GPU outside the communicator */
        }
        if (b->sys->count[NODE_GPU] == MW_NCCL_GPUS_MAX) {
            return mw_xml_fail(gpu, b->err, "more than %d GPUs in one machine",
                               MW_NCCL_GPUS_MAX);
        }
        at = add_node(b, NODE_GPU, id, host);
        s = add_gpu(b, gpu, at);
    } else if (nic) {
        at = find_node(b->sys, NODE_NIC, id);
        is_new = at < 0;
        if (is_new) {
            at = add_node(b, NODE_NIC, id, host);
        }
        s = add_nets(b, nic, at, host);
    } else {
        at = add_node(b, NODE_PCI, id, host);
        for (const struct mw_xml *c = pci->first_child; c && s == MW_OK;
             c = c->next) {
            s = add_pci(b, c, at, host);
        }
    }
    float bw = 0;
    if (s == MW_OK) {
        s = pci_bandwidth(b, pci, &bw);
    }
    if (s == MW_OK && is_new) {
        connect_both(b->sys, at, parent, LINK_PCI, bw);
    }
    return s;
}

/* ---- CPUs ---- */

static int host_of(struct builder *b, const struct mw_xml *cpu)
{
    const char *text = mw_xml_attr(cpu, "host_hash");
    uint64_t hash = text ? strtoull(text, NULL, 16) : 0;
    int h = 0;
    while (h < b->sys->n_hosts && b->host_hash[h] != hash) {
        h++;
    }
    if (h == b->sys->n_hosts && h < MW_NCCL_GPUS_MAX) {
        b->host_hash[b->sys->n_hosts++] = hash;
    }
    return h;
}

/* Bandwidth between CPUs (GB/s): topo.h of NCCL 2.28.9. */
static enum mw_status cpu_kind(struct builder *b, const struct mw_xml *cpu,
                               struct nccl_node *n)
{
    const char *arch = mw_xml_attr(cpu, "arch");
    const char *vendor = mw_xml_attr(cpu, "vendor");
    int64_t family = 0, model = 0;
    enum mw_status s =
        mw_xml_int(cpu, "familyid", 0, 255, true, 0, &family, b->err);
    if (s == MW_OK) {
        s = mw_xml_int(cpu, "modelid", 0, 65535, true, 0, &model, b->err);
    }
    if (s != MW_OK) {
        return s;
    }
    n->cpu = CPU_OTHER;
    n->cpu_link_bw = NCCL_LOC_BW;
    if (arch && strcmp(arch, "arm64") == 0) {
        n->cpu = CPU_ARM;
        n->cpu_link_bw = 6.0f;
    } else if (arch && strcmp(arch, "ppc64") == 0) {
        n->cpu = CPU_POWER;
        n->cpu_link_bw = 32.0f;
    } else if (vendor && strcmp(vendor, "AuthenticAMD") == 0) {
        n->cpu = CPU_AMD;
        n->cpu_link_bw = 16.0f;
    } else if (vendor && strcmp(vendor, "GenuineIntel") == 0) {
        n->cpu = CPU_INTEL;
        n->cpu_link_bw = family != 6     ? 6.0f
                         : model >= 0xcf ? 40.0f
                         : model >= 0x8f ? 22.0f
                         : model >= 0x55 ? 10.0f
                                         : 6.0f;
    } else if (vendor && (strcmp(vendor, "CentaurHauls") == 0 ||
                          strcmp(vendor, "  Shanghai  ") == 0)) {
        n->cpu = CPU_ZHAOXIN;
        n->cpu_link_bw = family == 7 && model == 0x5b ? 9.0f : 6.0f;
    }
    return MW_OK;
}

static enum mw_status add_cpu(struct builder *b, const struct mw_xml *cpu)
{
    int64_t numa = 0;
    enum mw_status s =
        mw_xml_int(cpu, "numaid", -1, 4095, false, 0, &numa, b->err);
    if (s != MW_OK) {
        return s;
    }
    int host = host_of(b, cpu);
    int at = add_node(b, NODE_CPU, with_host(host, numa), host);
    s = cpu_kind(b, cpu, &b->sys->node[at]);
    for (const struct mw_xml *c = cpu->first_child; c && s == MW_OK;
         c = c->next) {
        if (strcmp(c->name, "nic") == 0) {
            int64_t id = with_host(host, numa << 40);
            int nic = find_node(b->sys, NODE_NIC, id);
            if (nic < 0) {
                nic = add_node(b, NODE_NIC, id, host);
                connect_both(b->sys, at, nic, LINK_PCI, NCCL_LOC_BW);
            }
            s = add_nets(b, c, nic, host);
        } else {
            s = add_pci(b, c, at, host);
        }
    }
    return s;
}

/* ---- NVLink and chip-to-chip ---- */

/* The CPU above a device, up through PCIe switches only. */
static int cpu_above(const struct nccl_system *sys, int at, int from)
{
    const struct nccl_node *n = &sys->node[at];
    if (n->type == NODE_CPU) {
        return at;
    }
    for (size_t l = 0; l < n->links.n; l++) {
        const struct nccl_link *k = &n->links.v[l];
        enum nccl_node_type t = sys->node[k->rem].type;
        if (k->type == LINK_PCI && k->rem != from &&
            (t == NODE_PCI || t == NODE_CPU)) {
            int cpu = cpu_above(sys, k->rem, at);
            if (cpu >= 0) {
                return cpu;
            }
        }
    }
    return -1;
}

static enum mw_status add_nvlink(struct builder *b, const struct mw_xml *x,
                                 int gpu, int host)
{
    int64_t count = 0;
    enum mw_status s =
        mw_xml_int(x, "count", 1, 1024, false, 0, &count, b->err);
    const char *cls = mw_xml_attr(x, "tclass");
    if (s != MW_OK) {
        return s;
    }
    if (!cls) {
        return mw_xml_fail(x, b->err, "<nvlink> lacks the attribute 'tclass'");
    }
    struct nccl_system *sys = b->sys;
    int remote = -1;
    bool is_gpu = strncmp(cls, "0x03", 4) == 0;
    if (is_gpu) {
        const char *target = mw_xml_attr(x, "target");
        remote = target ? find_node(sys, NODE_GPU,
                                    with_host(host, bus_number(target)))
                        : -1;
    } else if (strcmp(cls, "0x068001") == 0) {
        remote = cpu_above(sys, gpu, -1);
    } else if (sys->count[NODE_NVS] > 0) {
        remote = sys->of[NODE_NVS][0];
    } else {
        remote = add_node(b, NODE_NVS, 0, 0);
    }
    if (remote < 0) {
        return MW_OK; /* the other end is not part of the communicator */
    }
    float bw = (float)count * nccl_nvlink_bw(sys->node[gpu].sm);
    connect_one_way(sys, gpu, remote, LINK_NVL, bw);
    if (!is_gpu) {
        connect_one_way(sys, remote, gpu, LINK_NVL, bw);
    }
    return MW_OK;
}

static enum mw_status add_c2c(struct builder *b, const struct mw_xml *x,
                              int gpu)
{
    int64_t count = 0, bw = 0;
    enum mw_status s =
        mw_xml_int(x, "count", 0, 1024, false, 0, &count, b->err);
    if (s == MW_OK) {
        s = mw_xml_int(x, "bw", 0, 10000000, false, 0, &bw, b->err);
    }
    int cpu = cpu_above(b->sys, gpu, -1);
    if (s == MW_OK && cpu >= 0) {
        connect_both(b->sys, gpu, cpu, LINK_C2C,
                     (float)((double)(bw * count) / 1000.0));
    }
    return s;
}

/* Second pass over the description; `want` is "nvlink" or "c2c". */
static enum mw_status add_fast_links(struct builder *b, const struct mw_xml *x,
                                     const char *want, const char *bus,
                                     int host)
{
    if (strcmp(x->name, want) == 0) {
        int gpu =
            bus ? find_node(b->sys, NODE_GPU, with_host(host, bus_number(bus)))
                : -1;
        if (gpu < 0) {
            return mw_xml_fail(x, b->err, "<%s> is not inside a GPU", want);
        }
        return strcmp(want, "c2c") == 0 ? add_c2c(b, x, gpu)
                                        : add_nvlink(b, x, gpu, host);
    }
    if (strcmp(x->name, "cpu") == 0) {
        host = host_of(b, x);
    }
    const char *own = mw_xml_attr(x, "busid");
    if (strcmp(x->name, "gpu") == 0 && !mw_xml_attr(x, "rank")) {
        return MW_OK;
    }
    for (const struct mw_xml *c = x->first_child; c; c = c->next) {
        enum mw_status s = add_fast_links(b, c, want, own ? own : bus, host);
        if (s != MW_OK) {
            return s;
        }
    }
    return MW_OK;
}

/* ---- the whole ---- */

static void connect_cpus(struct nccl_system *sys)
{
    for (int i = 0; i < sys->count[NODE_CPU]; i++) {
        for (int j = 0; j < sys->count[NODE_CPU]; j++) {
            int a = sys->of[NODE_CPU][i], b = sys->of[NODE_CPU][j];
            if (i != j && sys->node[a].host == sys->node[b].host) {
                connect_one_way(sys, a, b, LINK_SYS, sys->node[a].cpu_link_bw);
            }
        }
    }
}

/* Moves the link to the parent behind the others, down the PCIe tree. */
static void order_links(struct nccl_system *sys, int at, int up)
{
    struct nccl_node *n = &sys->node[at];
    if (up >= 0) {
        size_t l = 0;
        while (n->links.v[l].rem != up) {
            l++;
        }
        struct nccl_link keep = n->links.v[l];
        for (; l + 1 < n->links.n; l++) {
            n->links.v[l] = n->links.v[l + 1];
        }
        n->links.v[l] = keep;
    }
    for (size_t l = 0; l < n->links.n; l++) {
        if (n->links.v[l].type == LINK_PCI && n->links.v[l].rem != up) {
            order_links(sys, n->links.v[l].rem, at);
        }
    }
}

/* Ranks of a node that is not the first become 0 1 2 ... in their order. */
static enum mw_status number_ranks(struct builder *b, const struct mw_xml *root)
{
    int n = b->sys->count[NODE_GPU], place[MW_NCCL_GPUS_MAX];
    for (int g = 0; g < n; g++) {
        int rank = nccl_at(b->sys, NODE_GPU, g)->rank;
        place[g] = 0;
        for (int k = 0; k < n; k++) {
            int other = nccl_at(b->sys, NODE_GPU, k)->rank;
            if (k != g && other == rank) {
                return mw_xml_fail(root, b->err, "two GPUs have rank %d", rank);
            }
            place[g] += other < rank;
        }
    }
    for (int g = 0; g < n; g++) {
        nccl_at(b->sys, NODE_GPU, g)->rank = place[g];
    }
    return MW_OK;
}

static enum mw_status build(struct builder *b, const struct mw_xml *root)
{
    enum mw_status s = MW_OK;
    for (const struct mw_xml *c = root->first_child; c && s == MW_OK;
         c = c->next) {
        if (strcmp(c->name, "cpu") == 0) {
            s = add_cpu(b, c);
        }
    }
    if (s == MW_OK) {
        s = add_fast_links(b, root, "nvlink", NULL, 0);
    }
    if (s == MW_OK) {
        s = add_fast_links(b, root, "c2c", NULL, 0);
    }
    if (s != MW_OK) {
        return s;
    }
    if (b->sys->count[NODE_CPU] == 0 || b->sys->count[NODE_GPU] == 0) {
        return mw_xml_fail(root, b->err,
                           "the machine needs at least a <cpu> and a <gpu> "
                           "with a rank");
    }
    connect_cpus(b->sys);
    for (int i = 0; i < b->sys->count[NODE_CPU]; i++) {
        order_links(b->sys, b->sys->of[NODE_CPU][i], -1);
    }
    return number_ranks(b, root);
}

enum mw_status nccl_system_build(const struct mw_nccl_machine *machine,
                                 bool with_net, const struct mw_nccl_opts *opts,
                                 struct nccl_system **out, struct mw_err *err)
{
    struct nccl_system *sys = mw_calloc(1, sizeof *sys);
    mw_arena_init(&sys->arena);
    struct builder b = {.sys = sys, .with_net = with_net, .err = err};
    b.cap = count_elements(machine->root) + 2;
    sys->node = mw_arena_alloc(&sys->arena, (size_t)b.cap, sizeof *sys->node);
    for (int t = 0; t < NODE_TYPES; t++) {
        sys->of[t] = mw_arena_alloc(&sys->arena, (size_t)b.cap, sizeof(int));
    }
    enum mw_status s = build(&b, machine->root);
    if (s != MW_OK) {
        nccl_system_free(sys);
        return s;
    }
    nccl_compute_paths(sys, opts);
    *out = sys;
    return MW_OK;
}

void nccl_system_free(struct nccl_system *sys)
{
    if (!sys) {
        return;
    }
    for (int i = 0; i < sys->n_nodes; i++) {
        mw_array_release(&sys->node[i].links);
    }
    mw_arena_release(&sys->arena);
    mw_free(sys);
}
