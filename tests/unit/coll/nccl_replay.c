/*
 * The comparisons behind nccl_replay.h. Numbers are compared as the tables
 * print them: format ours with the same digits and compare the text.
 */
#include "nccl_replay.h"

#include "base/csv.h"
#include "sim/coll/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRONG_SHOWN = 12 };

/* One communicator, with the search of its machine kept between rows. */
struct keeper {
    const char *dir;
    char machine[64];
    int multi;
    bool collnet;
    struct mw_nccl_machine *m;
    struct mw_nccl_graphs *graphs;
    struct mw_nccl_opts opts;
    struct mw_nccl_comm comm;
    int n_nodes;
};

static void keeper_release(struct keeper *k)
{
    mw_nccl_machine_free(k->m);
    mw_free(k->graphs);
}

static enum mw_status keeper_get(struct keeper *k, const char *topology,
                                 int n_nodes, struct mw_err *err)
{
    int multi = n_nodes > 1;
    enum mw_status s = MW_OK;
    if (strcmp(k->machine, topology) != 0) {
        char path[512];
        const char *plus = strchr(topology, '+');
        int len = plus ? (int)(plus - topology) : (int)strlen(topology);
        snprintf(path, sizeof path, "%s/topologies/%.*s.xml", k->dir, len,
                 topology);
        mw_nccl_machine_free(k->m);
        k->m = NULL;
        s = mw_nccl_machine_load(path, &k->m, err);
        snprintf(k->machine, sizeof k->machine, "%s", topology);
        mw_nccl_opts_default(&k->opts);
        k->opts.collnet = plus != NULL;
        k->multi = -1;
    }
    if (s == MW_OK && k->multi != multi) {
        if (!k->graphs) {
            k->graphs = mw_calloc(1, sizeof *k->graphs);
        }
        s = mw_nccl_search(k->m, multi == 1, &k->opts, k->graphs, err);
        k->multi = multi;
        k->n_nodes = 0;
    }
    if (s == MW_OK && k->n_nodes != n_nodes) {
        mw_nccl_comm_init(&k->comm, k->graphs, n_nodes, &k->opts);
        k->n_nodes = n_nodes;
    }
    return s;
}

struct table {
    struct mw_arena arena;
    struct mw_csv csv;
};

static enum mw_status open_table(const char *dir, const char *name,
                                 struct table *t, struct mw_err *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mw_arena_init(&t->arena);
    enum mw_status s = mw_csv_load(path, &t->arena, &t->csv, err);
    if (s != MW_OK) {
        mw_arena_release(&t->arena);
    }
    return s;
}

static const char *cell(const struct table *t, size_t row, const char *col)
{
    int c = mw_csv_col(&t->csv, col);
    MW_ASSERT(c >= 0, "no column %s in %s", col, t->csv.file);
    return mw_csv_str(&t->csv, row, c);
}

static int num(const struct table *t, size_t row, const char *col)
{
    return (int)strtol(cell(t, row, col), NULL, 10);
}

static int lookup(const char *const *names, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    MW_ASSERT(false, "unknown name %s", text);
    return 0;
}

static enum mw_nccl_algo algo_of(const char *text)
{
    static const char *const names[] = {
        "TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
        "NVLS_TREE", "PAT"};
    return (enum mw_nccl_algo)lookup(names, MW_NCCL_ALGOS, text);
}

static enum mw_nccl_proto proto_of(const char *text)
{
    static const char *const names[] = {"LL", "LL128", "SIMPLE"};
    return (enum mw_nccl_proto)lookup(names, MW_NCCL_PROTOS, text);
}

static enum mw_nccl_func func_of(const char *text)
{
    static const char *const names[] = {"Broadcast", "Reduce", "AllGather",
                                        "ReduceScatter", "AllReduce"};
    return (enum mw_nccl_func)lookup(names, MW_NCCL_FUNCS, text);
}

static void differ(struct replay_count *c, const struct table *t, size_t row,
                   const char *ours)
{
    if (c->wrong++ < WRONG_SHOWN) {
        fprintf(stderr, "%s:%d: ours is %s\n", t->csv.file, t->csv.line[row],
                ours);
    }
}

/* The same number as `text` prints it with up to `digits` digits? */
static bool same_digits(double ours, const char *text, int digits)
{
    char buf[40];
    snprintf(buf, sizeof buf, "%.*g", digits, ours);
    return strtod(buf, NULL) == strtod(text, NULL);
}

/* Times were printed by a second implementation in mixed precision: one unit
 * of the sixth digit apart at most. */
static bool same_time(double ours, const char *text)
{
    double theirs = strtod(text, NULL);
    double d = ours > theirs ? ours - theirs : theirs - ours;
    return d <= 1.0e-5 * theirs;
}

/* ---- graphs ----------------------------------------------------------------
 */

static const struct mw_nccl_graph *graph_named(const struct mw_nccl_graphs *g,
                                               const char *name)
{
    return strcmp(name, "RING") == 0   ? &g->ring
           : strcmp(name, "TREE") == 0 ? &g->tree
           : strcmp(name, "NVLS") == 0 ? &g->nvls
           : strcmp(name, "CC") == 0   ? &g->collnet_chain
                                       : &g->collnet_direct;
}

enum mw_status replay_graphs(const char *dir, struct replay_count *out,
                             struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "graphs_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        const struct mw_nccl_graph *g =
            graph_named(k.graphs, cell(&t, r, "graph"));
        const struct mw_nccl_comm *c = &k.comm;
        char ours[512], theirs[512];
        snprintf(ours, sizeof ours,
                 "%s xnic %d ch %d bw %.6g %.6g %s %s same %d coll %d nvls %d "
                 "p2p %d %d nvlink %d %s",
                 mw_nccl_pattern_name(g->pattern), g->cross_nic, g->n_channels,
                 (double)g->bw_intra, (double)g->bw_inter,
                 mw_nccl_path_name((enum mw_nccl_path)g->type_intra),
                 mw_nccl_path_name((enum mw_nccl_path)g->type_inter),
                 g->same_channels, c->coll_channels, c->nvls_channels,
                 c->p2p_channels, c->p2p_per_peer, k.graphs->is_all_nvlink,
                 mw_nccl_pattern_name(c->tree_pattern));
        snprintf(theirs, sizeof theirs,
                 "%s xnic %s ch %s bw %.6g %.6g %s %s same %s coll %s nvls %s "
                 "p2p %s %s nvlink %s %s",
                 cell(&t, r, "pattern"), cell(&t, r, "cross_nic"),
                 cell(&t, r, "n_channels"),
                 (double)strtof(cell(&t, r, "bw_intra_GBps"), NULL),
                 (double)strtof(cell(&t, r, "bw_inter_GBps"), NULL),
                 cell(&t, r, "type_intra"), cell(&t, r, "type_inter"),
                 cell(&t, r, "same_channels"), cell(&t, r, "coll_channels"),
                 cell(&t, r, "nvls_channels"), cell(&t, r, "p2p_channels"),
                 cell(&t, r, "p2p_channels_per_peer"),
                 cell(&t, r, "all_nvlink"), cell(&t, r, "max_tree_pattern"));
        out->rows++;
        if (strcmp(ours, theirs) != 0) {
            differ(out, &t, r, ours);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}

static void order_text(const struct mw_nccl_graphs *g,
                       const struct mw_nccl_graph *graph, int c, char *out,
                       size_t size)
{
    size_t n = 0;
    int count = graph->pattern == MW_PATTERN_NVLS ? 1 : g->n_gpus;
    for (int i = 0; i < count; i++) {
        int w = snprintf(out + n, size - n, "%s%d", i ? " " : "",
                         graph->intra[c * g->n_gpus + i]);
        n += w > 0 ? (size_t)w : 0;
    }
}

static int net_number(const char *text) /* "NET3" */
{
    return (int)strtol(text + (strncmp(text, "NET", 3) == 0 ? 3 : 0), NULL, 10);
}

enum mw_status replay_orders(const char *dir, struct replay_count *out,
                             struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "channel_order_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        const struct mw_nccl_graph *g =
            graph_named(k.graphs, cell(&t, r, "graph"));
        int c = num(&t, r, "search_channel");
        char ours[1024], text[1200];
        order_text(k.graphs, g, c, ours, sizeof ours);
        bool ok = strcmp(ours, cell(&t, r, "gpu_order")) == 0;
        const char *in = cell(&t, r, "net_in"),
                   *way_out = cell(&t, r, "net_out");
        ok &= !*in || net_number(in) == g->inter[2 * c];
        ok &= !*way_out || net_number(way_out) == g->inter[2 * c + 1];
        out->rows++;
        if (!ok) {
            snprintf(text, sizeof text, "%d > %s > %d", g->inter[2 * c], ours,
                     g->inter[2 * c + 1]);
            differ(out, &t, r, text);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}

/* ---- cost and choice ---- */

enum mw_status replay_latbw(const char *dir, struct replay_count *out,
                            struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "latbw_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        enum mw_nccl_func f = func_of(cell(&t, r, "collective"));
        enum mw_nccl_algo a = algo_of(cell(&t, r, "algorithm"));
        enum mw_nccl_proto p = proto_of(cell(&t, r, "protocol"));
        float lat = k.comm.lat_us[f][a][p], bw = k.comm.bw_GBps[f][a][p];
        out->rows++;
        if (!same_digits((double)lat, cell(&t, r, "latency_us"), 6) ||
            !same_digits((double)bw, cell(&t, r, "alg_bw_GBps"), 6)) {
            char text[96];
            snprintf(text, sizeof text, "%.6g us %.6g GB/s", (double)lat,
                     (double)bw);
            differ(out, &t, r, text);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}

enum mw_status replay_choice(const char *dir, struct replay_count *out,
                             struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "choice_all_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        enum mw_nccl_func f = func_of(cell(&t, r, "collective"));
        uint64_t bytes = strtoull(cell(&t, r, "size_bytes"), NULL, 10);
        struct mw_nccl_choice c =
            mw_nccl_choose(&k.comm, f, MW_NCCL_FLOAT16, MW_NCCL_SUM, bytes);
        out->rows++;
        bool ok = c.algo == algo_of(cell(&t, r, "algorithm")) &&
                  c.proto == proto_of(cell(&t, r, "protocol")) &&
                  c.n_channels == num(&t, r, "n_channels_max") &&
                  c.n_threads == num(&t, r, "n_threads") &&
                  same_time(c.time_us, cell(&t, r, "time_us"));
        if (!ok) {
            char text[128];
            snprintf(text, sizeof text,
                     "%s/%s %.6g us, %d channels, %d threads",
                     mw_nccl_algo_name(c.algo), mw_nccl_proto_name(c.proto),
                     c.time_us, c.n_channels, c.n_threads);
            differ(out, &t, r, text);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}

/* ---- schedules ---- */

enum mw_status replay_trees(const char *dir, struct replay_count *out,
                            struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "double_tree.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    for (size_t r = 0; r < t.csv.n_rows; r++) {
        struct mw_nccl_tree_node n[2];
        mw_nccl_double_tree(num(&t, r, "n_nodes"), num(&t, r, "node"), n);
        out->rows++;
        if (n[0].up != num(&t, r, "t0_up") ||
            n[0].down0 != num(&t, r, "t0_child0") ||
            n[0].down1 != num(&t, r, "t0_child1") ||
            n[1].up != num(&t, r, "t1_up") ||
            n[1].down0 != num(&t, r, "t1_child0") ||
            n[1].down1 != num(&t, r, "t1_child1")) {
            char text[96];
            snprintf(text, sizeof text, "%d %d %d / %d %d %d", n[0].up,
                     n[0].down0, n[0].down1, n[1].up, n[1].down0, n[1].down1);
            differ(out, &t, r, text);
        }
    }
    mw_arena_release(&t.arena);
    return MW_OK;
}

enum mw_status replay_p2p_schedule(const char *dir, struct replay_count *out,
                                   struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "p2p_schedule.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    for (size_t r = 0; r < t.csv.n_rows; r++) {
        int send = -1, recv = -1;
        mw_nccl_p2p_round(num(&t, r, "nodes"), num(&t, r, "local_ranks"),
                          num(&t, r, "rank"), num(&t, r, "round"), &send,
                          &recv);
        out->rows++;
        if (send != num(&t, r, "send_peer") ||
            recv != num(&t, r, "recv_peer")) {
            char text[64];
            snprintf(text, sizeof text, "send %d, receive %d", send, recv);
            differ(out, &t, r, text);
        }
    }
    mw_arena_release(&t.arena);
    return MW_OK;
}

enum mw_status replay_cells(const char *dir, struct replay_count *out,
                            struct mw_err *err)
{
    struct table t;
    enum mw_status s =
        open_table(dir, "single_op_schedule_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        enum mw_nccl_func f = func_of(cell(&t, r, "collective"));
        uint64_t bytes = strtoull(cell(&t, r, "size_bytes"), NULL, 10);
        struct mw_nccl_choice c =
            mw_nccl_choose(&k.comm, f, MW_NCCL_FLOAT16, MW_NCCL_SUM, bytes);
        struct mw_nccl_cells p = mw_nccl_partition(&k.comm, f, &c, bytes, 2);
        char ours[160], theirs[160];
        snprintf(
            ours, sizeof ours, "%d %llu %llu %llu %llu", p.n_channels,
            (unsigned long long)p.lo_bytes, (unsigned long long)p.mid_bytes,
            (unsigned long long)p.hi_bytes, (unsigned long long)p.chunk_bytes);
        snprintf(theirs, sizeof theirs, "%s %s %s %s %s",
                 cell(&t, r, "channels_used"), cell(&t, r, "bytes_lo"),
                 cell(&t, r, "bytes_mid"), cell(&t, r, "bytes_hi"),
                 cell(&t, r, "chunk_bytes_lo"));
        out->rows++;
        if (strcmp(ours, theirs) != 0) {
            differ(out, &t, r, ours);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}

enum mw_status replay_alltoall(const char *dir, struct replay_count *out,
                               struct mw_err *err)
{
    struct table t;
    enum mw_status s = open_table(dir, "alltoall_2.28.9.csv", &t, err);
    if (s != MW_OK) {
        return s;
    }
    struct keeper k = {.dir = dir};
    for (size_t r = 0; r < t.csv.n_rows && s == MW_OK; r++) {
        s = keeper_get(&k, cell(&t, r, "topology"), num(&t, r, "nodes"), err);
        if (s != MW_OK) {
            break;
        }
        struct mw_nccl_p2p p =
            mw_nccl_p2p_plan(&k.comm, strcmp(cell(&t, r, "path"), "inter") == 0,
                             strtoull(cell(&t, r, "bytes_per_peer"), NULL, 10));
        char ours[160], theirs[160];
        snprintf(ours, sizeof ours, "%d %llu %llu %d", p.n_channels,
                 (unsigned long long)p.part_bytes,
                 (unsigned long long)p.chunk_bytes, k.comm.p2p_channels);
        snprintf(theirs, sizeof theirs, "%s %s %s %s",
                 cell(&t, r, "channels_per_pair"), cell(&t, r, "part_bytes"),
                 cell(&t, r, "chunk_data_bytes"), cell(&t, r, "p2p_channels"));
        out->rows++;
        if (p.proto != proto_of(cell(&t, r, "protocol")) ||
            strcmp(ours, theirs) != 0) {
            differ(out, &t, r, ours);
        }
    }
    keeper_release(&k);
    mw_arena_release(&t.arena);
    return s;
}
