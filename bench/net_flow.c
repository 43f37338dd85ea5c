/*
 * The fluid network on the problems of a published comparison with SimGrid:
 * ring all-reduce and windowed all-to-all on a star or a fat tree.
 *
 *   net_flow_bench --op ring|a2a --hosts N [--topo star|fattree] [--bytes B]
 *                  [--lanes C] [--window W] [--jitter F] [--quantum US]
 *
 * Without arguments it runs the list of problems that docs/network.md quotes.
 * ring: 2(N-1) steps of B/N bytes, split over C lanes, each lane in order.
 * a2a: B/N bytes to each peer r+1, r+2, ..., W sends open (0: all).
 * jitter: sizes times U[1-F, 1+F] by a fixed hash of (rank, lane, step).
 * Prints one JSON object a run: simulated time, CPU seconds, messages per
 * CPU second, peak resident set.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sim/net/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct problem {
    const char *op, *topo;
    int hosts, lanes, window, leaf, over;
    double bytes, nic_Bps, lat_s, jitter, quantum_s;
};

struct state {
    struct problem p;
    struct mw_fluid *net;
    int *sent, *arrived; /* ring: steps of (rank, lane) */
    int *next;           /* a2a: next peer offset of a rank */
    uint64_t n_messages;
};

/* The hash of the comparison, so that every engine sees the same sizes. */
static double jitter_unit(uint64_t r, uint64_t c, uint64_t s)
{
    uint64_t z = (((r * 0x100000001b3u) ^ c) * 0x100000001b3u) ^ s;
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

static double message_bytes(const struct problem *p, double bytes, int r, int c,
                            int s)
{
    if (p->jitter > 0) {
        double u = jitter_unit((uint64_t)r, (uint64_t)c, (uint64_t)s);
        bytes *= 1 - p->jitter + 2 * p->jitter * u;
    }
    return bytes < 1 ? 1 : (double)(uint64_t)(bytes + .5);
}

/* Star: up and down link of a host. Fat tree: also leaf-spine, D-mod-k. */
static int route(const struct problem *p, int from, int to, uint32_t out[4])
{
    uint32_t n = (uint32_t)p->hosts;
    if (strcmp(p->topo, "star") == 0 || from / p->leaf == to / p->leaf) {
        out[0] = (uint32_t)from;
        out[1] = n + (uint32_t)to;
        return 2;
    }
    int up = p->leaf / p->over;
    uint32_t spine = (uint32_t)(to % up);
    uint32_t leaves = (uint32_t)((p->hosts + p->leaf - 1) / p->leaf);
    out[0] = (uint32_t)from;
    out[1] = 2 * n + (uint32_t)(from / p->leaf * up) + spine;
    out[2] =
        2 * n + leaves * (uint32_t)up + (uint32_t)(to / p->leaf * up) + spine;
    out[3] = n + (uint32_t)to;
    return 4;
}

static void send(struct state *st, int from, int to, double bytes, int c, int s)
{
    uint32_t links[4];
    int n = route(&st->p, from, to, links);
    st->n_messages++;
    mw_fluid_send(st->net, links, n, message_bytes(&st->p, bytes, from, c, s),
                  st->p.lat_s,
                  (uint64_t)from * (uint64_t)st->p.lanes + (uint64_t)c);
}

static void ring_try(struct state *st, int r, int c)
{
    int n = st->p.hosts, i = r * st->p.lanes + c, s = st->sent[i];
    if (s < 2 * (n - 1) && st->arrived[i] >= s) {
        send(st, r, r + 1 == n ? 0 : r + 1, st->p.bytes / n / st->p.lanes, c,
             s);
    }
}

static void ring_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    (void)net;
    struct state *st = ctx;
    int c = (int)(tag % (uint64_t)st->p.lanes);
    int r = (int)(tag / (uint64_t)st->p.lanes);
    int q = r + 1 == st->p.hosts ? 0 : r + 1;
    int step = ++st->sent[r * st->p.lanes + c];
    st->arrived[q * st->p.lanes + c] = step;
    ring_try(st, r, c);
    if (st->sent[q * st->p.lanes + c] == step) {
        ring_try(st, q, c);
    }
}

static void a2a_next(struct state *st, int r)
{
    int k = st->next[r];
    if (k < st->p.hosts) {
        st->next[r] = k + 1;
        send(st, r, (r + k) % st->p.hosts, st->p.bytes / st->p.hosts, 0, k);
    }
}

static void a2a_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    (void)net;
    a2a_next(ctx, (int)tag);
}

static void begin(struct state *st)
{
    int n = st->p.hosts, w = st->p.window ? st->p.window : n - 1;
    if (strcmp(st->p.op, "ring") == 0) {
        for (int c = 0; c < st->p.lanes; c++) {
            for (int r = 0; r < n; r++) {
                ring_try(st, r, c);
            }
        }
        return;
    }
    for (int i = 0; i < w; i++) {
        for (int r = 0; r < n; r++) {
            a2a_next(st, r);
        }
    }
}

static double rss_MB(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

static void run(const struct problem *p)
{
    struct state st = {.p = *p};
    size_t n = (size_t)p->hosts, lanes = (size_t)p->lanes;
    size_t leaves = (n + (size_t)p->leaf - 1) / (size_t)p->leaf;
    size_t n_links = 2 * n + 2 * leaves * (size_t)(p->leaf / p->over);
    double *cap = mw_calloc(n_links, sizeof *cap);
    for (size_t i = 0; i < n_links; i++) {
        cap[i] = p->nic_Bps;
    }
    st.sent = mw_calloc(n * lanes, sizeof *st.sent);
    st.arrived = mw_calloc(n * lanes, sizeof *st.arrived);
    st.next = mw_calloc(n, sizeof *st.next);
    for (size_t i = 0; i < n; i++) {
        st.next[i] = 1;
    }
    bool is_ring = strcmp(p->op, "ring") == 0;
    struct mw_fluid_opts o = {.on_done = is_ring ? ring_done : a2a_done,
                              .ctx = &st,
                              .quantum_s = p->quantum_s};
    int64_t t0 = mw_clock_thread_cpu_ns();
    st.net = mw_fluid_new(n_links, cap, &o);
    begin(&st);
    mw_time end = mw_fluid_run(st.net);
    double cpu_s = (double)(mw_clock_thread_cpu_ns() - t0) * 1e-9;
    struct mw_fluid_stats s;
    mw_fluid_stats(st.net, &s);
    printf(
        "{\"tool\":\"meshwright\",\"op\":\"%s\",\"topo\":\"%s\",\"hosts\":%d,"
        "\"bytes\":%.0f,\"lanes\":%d,\"window\":%d,\"jitter\":%g,"
        "\"quantum_us\":%g,\"msgs\":%llu,\"peak_live\":%zu,\"sim_us\":%.3f,"
        "\"cpu_s\":%.4f,\"msgs_per_cpu_s\":%.0f,\"solves\":%llu,"
        "\"links_per_solve\":%.1f,\"rounds_per_solve\":%.2f,\"full\":%llu,"
        "\"peak_rss_mb\":%.1f}\n",
        p->op, p->topo, p->hosts, p->bytes, p->lanes, p->window, p->jitter,
        p->quantum_s * 1e6, (unsigned long long)st.n_messages, s.peak_flows,
        mw_time_to_s(end) * 1e6, cpu_s, (double)st.n_messages / cpu_s,
        (unsigned long long)s.n_solves,
        s.n_solves ? (double)s.n_solved_links / (double)s.n_solves : 0,
        s.n_solves ? (double)s.n_rounds / (double)s.n_solves : 0,
        (unsigned long long)s.n_full_solves, rss_MB());
    fflush(stdout);
    mw_fluid_free(st.net);
    mw_free(st.sent);
    mw_free(st.arrived);
    mw_free(st.next);
    mw_free(cap);
}

static struct problem standard(const char *op, int hosts)
{
    struct problem p = {.op = op,
                        .topo = "star",
                        .hosts = hosts,
                        .lanes = 1,
                        .leaf = 32,
                        .over = 1,
                        .bytes = 1073741824.0,
                        .nic_Bps = 50e9,
                        .lat_s = 1e-6};
    return p;
}

static void run_list(void)
{
    static const struct {
        const char *op;
        int hosts, lanes, window;
        double jitter, quantum_s;
    } list[] = {{"ring", 64, 1, 0, 0, 0},     {"ring", 1024, 1, 0, 0, 0},
                {"ring", 1024, 1, 0, .1, 0},  {"ring", 256, 8, 0, .3, 0},
                {"a2a", 256, 1, 8, 0, 0},     {"a2a", 64, 1, 8, .1, 0},
                {"a2a", 128, 1, 8, .1, 0},    {"a2a", 256, 1, 8, .1, 0},
                {"a2a", 512, 1, 8, .1, 0},    {"a2a", 128, 1, 0, 0, 0},
                {"a2a", 64, 1, 0, .1, 0},     {"a2a", 128, 1, 0, .1, 0},
                {"a2a", 128, 1, 0, .1, 5e-6}, {"a2a", 512, 1, 0, 0, 0}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct problem p = standard(list[i].op, list[i].hosts);
        p.lanes = list[i].lanes;
        p.window = list[i].window;
        p.jitter = list[i].jitter;
        p.quantum_s = list[i].quantum_s;
        run(&p);
    }
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        run_list();
        return 0;
    }
    struct problem p = standard("ring", 64);
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *k = argv[i], *v = argv[i + 1];
        double x = strtod(v, NULL);
        if (strcmp(k, "--op") == 0) {
            p.op = v;
        } else if (strcmp(k, "--topo") == 0) {
            p.topo = v;
        } else if (strcmp(k, "--hosts") == 0) {
            p.hosts = (int)x;
        } else if (strcmp(k, "--lanes") == 0) {
            p.lanes = (int)x;
        } else if (strcmp(k, "--window") == 0) {
            p.window = (int)x;
        } else if (strcmp(k, "--leaf") == 0) {
            p.leaf = (int)x;
        } else if (strcmp(k, "--over") == 0) {
            p.over = (int)x;
        } else if (strcmp(k, "--bytes") == 0) {
            p.bytes = x;
        } else if (strcmp(k, "--nic") == 0) {
            p.nic_Bps = x * 1e9;
        } else if (strcmp(k, "--lat") == 0) {
            p.lat_s = x * 1e-6;
        } else if (strcmp(k, "--jitter") == 0) {
            p.jitter = x;
        } else if (strcmp(k, "--quantum") == 0) {
            p.quantum_s = x * 1e-6;
        } else {
            fprintf(stderr, "unknown option %s\n", k);
            return 2;
        }
    }
    if (p.hosts < 2 || p.lanes < 1 || p.leaf < 1 || p.over < 1) {
        fprintf(stderr, "at least 2 hosts, 1 lane, leaf and over of 1\n");
        return 2;
    }
    run(&p);
    return 0;
}
