/* Reading the one-line form of a cluster, and drawing it (text, Graphviz). */
#include "sim/net/topology.h"

#include "base/units.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PART_MAX = 96 };

/* Trims blanks; false if it does not fit. */
static bool trim(const char *p, const char *end, char out[PART_MAX])
{
    while (p < end && isspace((unsigned char)*p)) {
        p++;
    }
    while (end > p && isspace((unsigned char)end[-1])) {
        end--;
    }
    size_t n = (size_t)(end - p);
    if (n >= PART_MAX) {
        return false;
    }
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
}

/* "dgx-h100 x 4" or "dgx-h100". */
static enum mw_status parse_nodes(const struct mw_hwdb *db, char *text,
                                  struct mw_topology_spec *out,
                                  struct mw_err *err)
{
    int64_t count = 1;
    char *x = NULL;
    for (char *p = text; *p; p++) {
        if ((*p == 'x' || *p == 'X') && p > text &&
            isspace((unsigned char)p[-1]) &&
            (isspace((unsigned char)p[1]) || isdigit((unsigned char)p[1]))) {
            x = p;
        }
    }
    char name[PART_MAX], number[PART_MAX];
    const char *end = text + strlen(text);
    if (!trim(text, x ? x : end, name) || (x && !trim(x + 1, end, number)) ||
        (x && (mw_int_parse(number, &count, NULL) != MW_OK || count < 1 ||
               count > 200000))) {
        return mw_fail(err, MW_EINPUT,
                       "'%.60s' is not SYSTEM x N with N from 1 to 200000",
                       text);
    }
    if (out->n_kinds == MW_TOPOLOGY_KINDS_MAX) {
        return mw_fail(err, MW_EINPUT, "more than %d kinds of node",
                       MW_TOPOLOGY_KINDS_MAX);
    }
    enum mw_status s =
        mw_hwdb_system(db, name, &out->kind[out->n_kinds].system, err);
    if (s == MW_OK) {
        out->kind[out->n_kinds++].n_nodes = (int)count;
    }
    return s;
}

static enum mw_status parse_word(const char *text, struct mw_topology_spec *out,
                                 struct mw_err *err)
{
    static const struct {
        const char *name;
        int fabric, routing, pxn;
    } flags[] = {{"one-switch", MW_FABRIC_ONE_SWITCH, -1, 0},
                 {"rail", MW_FABRIC_RAIL, -1, 0},
                 {"fat-tree", MW_FABRIC_FAT_TREE, -1, 0},
                 {"dragonfly", MW_FABRIC_DRAGONFLY, -1, 0},
                 {"dmodk", -1, MW_ROUTE_DMODK, 0},
                 {"ecmp", -1, MW_ROUTE_ECMP, 0},
                 {"pxn", -1, -1, 1}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcasecmp(text, flags[i].name) == 0) {
            if (flags[i].fabric >= 0) {
                out->fabric = (enum mw_fabric_kind)flags[i].fabric;
            }
            if (flags[i].routing >= 0) {
                out->routing = (enum mw_routing)flags[i].routing;
            }
            out->pxn |= flags[i].pxn != 0;
            return MW_OK;
        }
    }
    const char *space = strchr(text, ' ');
    char number[PART_MAX];
    double v = 0;
    if (space && trim(space, text + strlen(text), number) &&
        mw_double_parse(number, &v, NULL) == MW_OK && v >= 1 && v <= 100000) {
        size_t n = (size_t)(space - text);
        bool whole = v == (double)(int)v;
        if (n == 4 && strncasecmp(text, "leaf", n) == 0 && whole) {
            out->leaf = (int)v;
            return MW_OK;
        }
        if (n == 6 && strncasecmp(text, "spines", n) == 0 && whole) {
            out->spines = (int)v;
            return MW_OK;
        }
        if (n == 5 && strncasecmp(text, "group", n) == 0 && whole) {
            out->group = (int)v;
            return MW_OK;
        }
        if (n == 7 && strncasecmp(text, "oversub", n) == 0) {
            out->oversub = v;
            return MW_OK;
        }
    }
    return mw_fail(err, MW_EINPUT,
                   "'%.60s' in the description of a cluster; known: one-switch "
                   "rail fat-tree dragonfly 'leaf N' 'spines N' 'group N' "
                   "'oversub F' dmodk ecmp pxn",
                   text);
}

enum mw_status mw_topology_parse(const struct mw_hwdb *db, const char *text,
                                 struct mw_topology_spec *out,
                                 struct mw_err *err)
{
    struct mw_topology_spec spec;
    enum mw_status s = MW_OK;
    memset(&spec, 0, sizeof spec);
    bool nodes = true;
    const char *p = text;
    while (s == MW_OK && *p) {
        const char *end = p + strcspn(p, nodes ? ",+" : ",");
        char part[PART_MAX];
        if (!trim(p, end, part) || part[0] == '\0') {
            return mw_fail(err, MW_EINPUT,
                           "an empty or overlong part in '%.60s'", text);
        }
        s = nodes ? parse_nodes(db, part, &spec, err)
                  : parse_word(part, &spec, err);
        nodes = nodes && *end == '+';
        p = *end ? end + 1 : end;
    }
    if (s == MW_OK && spec.n_kinds == 0) {
        s = mw_fail(err, MW_EINPUT,
                    "no cluster; for example: dgx-h100 x 4, rail, leaf 32, "
                    "oversub 2");
    }
    bool has_levels =
        spec.leaf > 0 || spec.spines > 0 || spec.group > 0 || spec.oversub > 0;
    if (s == MW_OK && has_levels && spec.fabric == MW_FABRIC_ONE_SWITCH) {
        s = mw_fail(err, MW_EINPUT,
                    "leaf, spines, group and oversub say nothing of one "
                    "switch; add rail, fat-tree or dragonfly");
    }
    if (s == MW_OK) {
        *out = spec;
    }
    return s;
}

/* ---- drawing ---- */

static void node_text(const struct mw_topology *t, int node, struct mw_str *out)
{
    const struct mw_system *s = mw_topology_system(t, node);
    char a[MW_FMT_MAX], b[MW_FMT_MAX];
    mw_str_addf(out, "%s (%s)\n", s->name, s->slug);
    mw_str_addf(out, "  %d x %s over %s, %s per GPU and direction\n",
                s->gpus_per_node, s->gpu->slug, s->intra_fabric,
                mw_fmt_rate(s->intra_bw_Bps, a));
    if (s->scaleup_gpus > s->gpus_per_node) {
        mw_str_addf(out, "  %d GPUs of %d nodes in one scale-up domain\n",
                    s->scaleup_gpus, s->scaleup_gpus / s->gpus_per_node);
    }
    if (s->n_nics == 0) {
        mw_str_add(out, "  no NIC\n");
        return;
    }
    mw_str_addf(out, "  %d NICs of %s (%s), %s per node and direction\n",
                s->n_nics, mw_fmt_rate(s->nic_bw_Bps, a), s->inter_class,
                mw_fmt_rate(s->node_net_bw_Bps, b));
    for (int g = 0; g < s->gpus_per_node; g++) {
        int nic = (int)((int64_t)g * s->n_nics / s->gpus_per_node);
        mw_str_addf(out, "  gpu%-2d -- nic%d\n", g, nic);
    }
}

void mw_topology_text(const struct mw_topology *topo, struct mw_str *out)
{
    int n = mw_topology_nodes(topo);
    char name[64], rate[MW_FMT_MAX];
    mw_str_addf(out, "%d nodes, %d GPUs, %zu links\n\n", n,
                mw_topology_gpus(topo), mw_topology_links(topo));
    const struct mw_system *last = NULL;
    for (int k = 0; k < n; k++) {
        const struct mw_system *s = mw_topology_system(topo, k);
        if (s != last) {
            int count = 0;
            for (int i = k; i < n && mw_topology_system(topo, i) == s; i++) {
                count++;
            }
            mw_str_addf(out, "nodes %d to %d: ", k, k + count - 1);
            node_text(topo, k, out);
            last = s;
        }
    }
    /* Two GPUs as far apart as can be: what a message crosses. */
    int to = mw_topology_gpus(topo) - 1;
    uint32_t r[MW_ROUTE_HOPS_MAX];
    int hops = mw_topology_route(topo, 0, to, -1, 0, r);
    mw_str_addf(out, "\nfrom gpu 0 to gpu %d:\n", to);
    for (int i = 0; i < hops; i++) {
        mw_str_addf(out, "  %-20s %s\n",
                    mw_topology_link_name(topo, r[i], name),
                    mw_fmt_rate(mw_topology_capacity(topo)[r[i]], rate));
    }
}

void mw_topology_dot(const struct mw_topology *topo, int max_nodes,
                     struct mw_str *out)
{
    int n = mw_topology_nodes(topo);
    int drawn = n < max_nodes ? n : max_nodes;
    char rate[MW_FMT_MAX];
    mw_str_add(out, "graph cluster {\n  rankdir=BT;\n  node [shape=box];\n");
    for (int k = 0; k < drawn; k++) {
        const struct mw_system *s = mw_topology_system(topo, k);
        mw_str_addf(out,
                    "  subgraph cluster_n%d {\n    label=\"node %d: %s\";\n", k,
                    k, s->slug);
        mw_str_addf(out, "    n%d_sw [label=\"%s\",shape=ellipse];\n", k,
                    s->intra_class);
        for (int g = 0; g < s->gpus_per_node; g++) {
            mw_str_addf(out,
                        "    n%d_g%d [label=\"gpu%d\"]; n%d_g%d -- n%d_sw "
                        "[label=\"%s\"];\n",
                        k, g, g, k, g, k, mw_fmt_rate(s->intra_bw_Bps, rate));
        }
        for (int j = 0; j < s->n_nics; j++) {
            int g = (int)((int64_t)j * s->gpus_per_node / s->n_nics);
            mw_str_addf(out,
                        "    n%d_c%d [label=\"nic%d\"]; n%d_g%d -- "
                        "n%d_c%d;\n",
                        k, j, j, k, g, k, j);
        }
        mw_str_add(out, "  }\n");
    }
    /* NICs to the first switch of their way to the next node. */
    for (int k = 0; k < drawn && n > 1; k++) {
        const struct mw_system *s = mw_topology_system(topo, k);
        for (int j = 0; j < s->n_nics; j++) {
            mw_str_addf(out, "  n%d_c%d -- fabric%s [label=\"%s\"];\n", k, j,
                        "", mw_fmt_rate(s->nic_bw_Bps, rate));
        }
    }
    if (drawn < n) {
        mw_str_addf(out, "  more [label=\"%d more nodes\",shape=plain];\n",
                    n - drawn);
    }
    mw_str_add(out, "}\n");
}
