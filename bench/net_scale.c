/*
 * Large collectives: folded by symmetry, and message by message.
 *
 *   ring all-reduce, 1 GiB, 1024 hosts, folded: one step solved, times 2 (n-1)
 *   hierarchical all-reduce on nodes of 8 GPUs (450 GB/s inside, one 50 GB/s
 *   NIC a GPU): ring reduce-scatter inside, halving-doubling between nodes of
 *   equal rail, ring all-gather inside. 16,384 GPUs message by message,
 *   100,000 GPUs folded (there with rings between the nodes).
 *
 * Prints one JSON object a run with CPU seconds and the simulated time.
 */
#include "base/log.h"
#include "base/mem.h"
#include "sim/net/flow.h"
#include "sim/net/fold.h"

#include <stdio.h>
#include <sys/resource.h>

enum { LOCAL = 8 };
static const double INSIDE_BPS = 450e9, NIC_BPS = 50e9, LAT_S = 1e-6;

static void report(const char *what, int gpus, double sim_s, int64_t t0,
                   uint64_t messages)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf("{\"what\":\"%s\",\"gpus\":%d,\"sim_us\":%.3f,\"cpu_s\":%.5f,"
           "\"msgs\":%llu,\"peak_rss_mb\":%.1f}\n",
           what, gpus, sim_s * 1e6,
           (double)(mw_clock_thread_cpu_ns() - t0) * 1e-9,
           (unsigned long long)messages, (double)u.ru_maxrss / 1024);
}

/* Time of one step in which GPU i sends to next(i), by classes. */
static double folded_step(size_t n_links, const double *cap, size_t n,
                          const uint32_t *first, const uint32_t *route,
                          double bytes)
{
    struct mw_fold f;
    mw_fold_make(n_links, cap, n, first, route, &f);
    double slowest = f.rate_Bps[0];
    for (size_t c = 1; c < f.n_flow_classes; c++) {
        slowest = f.rate_Bps[c] < slowest ? f.rate_Bps[c] : slowest;
    }
    mw_fold_release(&f);
    return LAT_S + bytes / slowest;
}

static void ring_folded(size_t n)
{
    int64_t t0 = mw_clock_thread_cpu_ns();
    double *cap = mw_calloc(2 * n, sizeof *cap);
    uint32_t *first = mw_calloc(n + 1, sizeof *first);
    uint32_t *route = mw_calloc(2 * n, sizeof *route);
    for (size_t i = 0; i < n; i++) {
        cap[i] = cap[n + i] = NIC_BPS;
        first[i + 1] = (uint32_t)(2 * i + 2);
        route[2 * i] = (uint32_t)i;
        route[2 * i + 1] = (uint32_t)(n + (i + 1) % n);
    }
    double step =
        folded_step(2 * n, cap, n, first, route, 1073741824.0 / (double)n);
    report("ring all-reduce folded", (int)n, step * 2 * (double)(n - 1), t0, 0);
    mw_free(cap);
    mw_free(first);
    mw_free(route);
}

static void hierarchical_folded(size_t n)
{
    int64_t t0 = mw_clock_thread_cpu_ns();
    double *cap = mw_calloc(4 * n, sizeof *cap);
    uint32_t *first = mw_calloc(n + 1, sizeof *first);
    uint32_t *route = mw_calloc(2 * n, sizeof *route);
    double bytes = 1073741824.0, nodes = (double)n / LOCAL;
    for (size_t i = 0; i < n; i++) {
        cap[i] = cap[n + i] = INSIDE_BPS;
        cap[2 * n + i] = cap[3 * n + i] = NIC_BPS;
        size_t node = i / LOCAL, next = node * LOCAL + (i + 1) % LOCAL;
        first[i + 1] = (uint32_t)(2 * i + 2);
        route[2 * i] = (uint32_t)i;
        route[2 * i + 1] = (uint32_t)(n + next);
    }
    double inner = folded_step(4 * n, cap, n, first, route, bytes / LOCAL);
    for (size_t i = 0; i < n; i++) {
        route[2 * i] = (uint32_t)(2 * n + i);
        route[2 * i + 1] = (uint32_t)(3 * n + (i + LOCAL) % n);
    }
    double outer =
        folded_step(4 * n, cap, n, first, route, bytes / LOCAL / nodes);
    report("hierarchical all-reduce folded", (int)n,
           inner * 2 * (LOCAL - 1) + outer * 2 * (nodes - 1), t0, 0);
    mw_free(cap);
    mw_free(first);
    mw_free(route);
}

/* ---- message by message ---- */

struct state {
    struct mw_fluid *net;
    int n, nodes, levels;
    double bytes;
    int *sent, *arrived;
    uint64_t messages;
};

static int steps_of(const struct state *s)
{
    return 2 * (LOCAL - 1) + 2 * s->levels;
}

/* Peer, links and bytes of a rank's step: inner ring, exchange, inner ring. */
static void try_step(struct state *s, int r)
{
    int k = s->sent[r], inner = LOCAL - 1;
    if (k >= steps_of(s) || s->arrived[r] < k) {
        return;
    }
    int node = r / LOCAL, i = r % LOCAL, peer;
    uint32_t links[2];
    double bytes;
    if (k < inner || k >= inner + 2 * s->levels) {
        peer = node * LOCAL + (i + 1) % LOCAL;
        bytes = s->bytes / LOCAL;
        links[0] = (uint32_t)r;
        links[1] = (uint32_t)(s->n + peer);
    } else {
        int e = k - inner;
        int level = e < s->levels ? e : 2 * s->levels - 1 - e;
        peer = (node ^ (1 << (s->levels - 1 - level))) * LOCAL + i;
        bytes = s->bytes / LOCAL / (double)(2 << level);
        links[0] = (uint32_t)(2 * s->n + r);
        links[1] = (uint32_t)(3 * s->n + peer);
    }
    s->messages++;
    mw_fluid_send(s->net, links, 2, bytes, LAT_S,
                  (uint64_t)r << 32 | (uint64_t)peer);
}

static void on_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    (void)net;
    struct state *s = ctx;
    int r = (int)(tag >> 32), peer = (int)(tag & 0xffffffff);
    int step = ++s->sent[r];
    s->arrived[peer]++;
    try_step(s, r);
    if (s->sent[peer] == step || peer == r) {
        if (s->arrived[peer] == s->sent[peer]) {
            try_step(s, peer);
        }
    }
}

static void hierarchical_explicit(int levels)
{
    int64_t t0 = mw_clock_thread_cpu_ns();
    struct state s = {
        .levels = levels, .nodes = 1 << levels, .bytes = 1073741824.0};
    s.n = s.nodes * LOCAL;
    size_t n = (size_t)s.n;
    double *cap = mw_calloc(4 * n, sizeof *cap);
    for (size_t i = 0; i < 2 * n; i++) {
        cap[i] = INSIDE_BPS;
        cap[2 * n + i] = NIC_BPS;
    }
    s.sent = mw_calloc(n, sizeof *s.sent);
    s.arrived = mw_calloc(n, sizeof *s.arrived);
    struct mw_fluid_opts o = {.on_done = on_done, .ctx = &s};
    s.net = mw_fluid_new(4 * n, cap, &o);
    for (int r = 0; r < s.n; r++) {
        try_step(&s, r);
    }
    mw_time end = mw_fluid_run(s.net);
    MW_ASSERT(s.messages == n * (uint64_t)steps_of(&s), "%llu messages",
              (unsigned long long)s.messages);
    report("hierarchical all-reduce", s.n, mw_time_to_s(end), t0, s.messages);
    mw_fluid_free(s.net);
    mw_free(s.sent);
    mw_free(s.arrived);
    mw_free(cap);
}

int main(void)
{
    ring_folded(1024);
    ring_folded(65536);
    hierarchical_explicit(11);
    hierarchical_folded(100000);
    return 0;
}
