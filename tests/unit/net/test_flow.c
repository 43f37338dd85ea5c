/*
 * The fluid network: against plain water-filling on random graphs, hand
 * examples, conservation of bytes, determinism, order, quantum.
 */
#include "mw_test.h"

#include "base/mem.h"
#include "base/rand.h"
#include "sim/net/flow.h"

#include <math.h>
#include <string.h>

enum { FLOWS_MAX = 40, LINKS_MAX = 24 };

struct graph {
    size_t n_links, n_flows;
    double cap[LINKS_MAX];
    uint32_t first[FLOWS_MAX + 1];
    uint32_t route[FLOWS_MAX * MW_FLOW_HOPS];
};

static uint64_t draw(uint64_t seed, uint64_t *index, uint64_t below)
{
    return mw_rand_u64(seed, 7, (*index)++) % below;
}

/* Random links and routes; capacities from few values, so that ties occur. */
static void random_graph(uint64_t seed, struct graph *g)
{
    uint64_t i = 0;
    g->n_links = 1 + draw(seed, &i, LINKS_MAX);
    g->n_flows = 1 + draw(seed, &i, FLOWS_MAX);
    for (size_t l = 0; l < g->n_links; l++) {
        g->cap[l] = draw(seed, &i, 2)
                        ? 1e9 * (double)(1 + draw(seed, &i, 4))
                        : 1e6 * (double)(1 + draw(seed, &i, 9999));
    }
    uint32_t at = 0;
    for (size_t f = 0; f < g->n_flows; f++) {
        g->first[f] = at;
        size_t hops = 1 + draw(seed, &i, MW_FLOW_HOPS);
        for (size_t h = 0; h < hops; h++) {
            uint32_t l = (uint32_t)draw(seed, &i, g->n_links);
            bool twice = false;
            for (uint32_t k = g->first[f]; k < at; k++) {
                twice |= g->route[k] == l;
            }
            if (!twice) {
                g->route[at++] = l;
            }
        }
    }
    g->first[g->n_flows] = at;
}

struct counter {
    size_t n;
    uint64_t order[FLOWS_MAX];
    mw_time at[FLOWS_MAX];
};

static void count(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    struct counter *c = ctx;
    if (c->n < FLOWS_MAX) {
        c->order[c->n] = tag;
        c->at[c->n] = mw_fluid_now(net);
    }
    c->n++;
}

/* At the timer all flows are under way: compare their rates. */
struct snapshot {
    const struct graph *g;
    double rate[FLOWS_MAX];
    bool taken;
};

static void snap(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    struct snapshot *s = ctx;
    if (tag != UINT64_MAX) {
        return;
    }
    for (size_t f = 0; f < s->g->n_flows; f++) {
        s->rate[f] = mw_fluid_rate(net, f);
    }
    assert_null(mw_fluid_check(net));
    s->taken = true;
}

static void rates_are_max_min(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct graph g;
        random_graph(seed, &g);
        double want[FLOWS_MAX];
        mw_maxmin_rates(g.n_links, g.cap, g.n_flows, g.first, g.route, want);
        struct snapshot s = {.g = &g};
        struct mw_fluid_opts o = {.on_done = snap, .ctx = &s, .verify = true};
        struct mw_fluid *net = mw_fluid_new(g.n_links, g.cap, &o);
        for (size_t f = 0; f < g.n_flows; f++) {
            /* Arrive one after the other, so that every start is a repair. */
            mw_fluid_send(net, g.route + g.first[f],
                          (int)(g.first[f + 1] - g.first[f]), 1e12,
                          1e-9 * (double)f, f);
        }
        mw_fluid_timer(net, 1e-6, UINT64_MAX);
        mw_fluid_run(net);
        assert_true(s.taken);
        for (size_t f = 0; f < g.n_flows; f++) {
            mw_assert_near(s.rate[f], want[f], 1e-9, 0);
        }
        mw_fluid_free(net);
    }
}

/* Arrivals in the order and at the times of an engine that solves everything
 * anew at each arrival. */
static void plain_times(const struct graph *g, const double *bytes, double *out)
{
    double left[FLOWS_MAX], rate[FLOWS_MAX];
    bool open[FLOWS_MAX];
    size_t n_open = g->n_flows;
    double now = 0;
    for (size_t f = 0; f < g->n_flows; f++) {
        left[f] = bytes[f];
        open[f] = true;
    }
    while (n_open > 0) {
        struct graph sub = *g;
        size_t n = 0, who[FLOWS_MAX];
        uint32_t at = 0;
        for (size_t f = 0; f < g->n_flows; f++) {
            if (!open[f]) {
                continue;
            }
            sub.first[n] = at;
            for (uint32_t k = g->first[f]; k < g->first[f + 1]; k++) {
                sub.route[at++] = g->route[k];
            }
            who[n++] = f;
        }
        sub.first[n] = at;
        mw_maxmin_rates(g->n_links, g->cap, n, sub.first, sub.route, rate);
        double dt = HUGE_VAL;
        for (size_t i = 0; i < n; i++) {
            dt = fmin(dt, left[who[i]] / rate[i]);
        }
        now += dt;
        for (size_t i = 0; i < n; i++) {
            left[who[i]] -= rate[i] * dt;
            if (left[who[i]] <= 1e-6 * bytes[who[i]] * 1e-3) {
                out[who[i]] = now;
                open[who[i]] = false;
                n_open--;
            }
        }
    }
}

static void arrivals_are_those_of_a_plain_engine(void **state)
{
    (void)state;
    for (uint64_t seed = 10000; seed < 10600; seed++) {
        struct graph g;
        random_graph(seed, &g);
        double bytes[FLOWS_MAX], want[FLOWS_MAX], sum[LINKS_MAX] = {0};
        struct counter c = {.n = 0};
        struct mw_fluid_opts o = {.on_done = count, .ctx = &c, .verify = true};
        struct mw_fluid *net = mw_fluid_new(g.n_links, g.cap, &o);
        for (size_t f = 0; f < g.n_flows; f++) {
            bytes[f] = 1e6 + 1e9 * mw_rand_unit(seed, 9, f);
            for (uint32_t k = g.first[f]; k < g.first[f + 1]; k++) {
                sum[g.route[k]] += bytes[f];
            }
            mw_fluid_send(net, g.route + g.first[f],
                          (int)(g.first[f + 1] - g.first[f]), bytes[f], 0, f);
        }
        plain_times(&g, bytes, want);
        mw_fluid_run(net);
        assert_int_equal(c.n, g.n_flows);
        for (size_t i = 0; i < c.n; i++) {
            mw_assert_near(mw_time_to_s(c.at[i]), want[c.order[i]], 1e-8,
                           1e-11);
        }
        for (size_t l = 0; l < g.n_links; l++) { /* conservation */
            mw_assert_near(mw_fluid_link_bytes(net, (uint32_t)l), sum[l], 1e-12,
                           0);
        }
        mw_fluid_free(net);
    }
}

/* Two flows of 1 GB over a 1 GB/s link, one of them also over 0.25 GB/s:
 * 0.25 and 0.75 GB/s; the second ends after 4/3 s, the first after 4 s. */
static void hand_example(void **state)
{
    (void)state;
    const double cap[2] = {1e9, .25e9};
    struct counter c = {.n = 0};
    struct mw_fluid_opts o = {.on_done = count, .ctx = &c, .verify = true};
    struct mw_fluid *net = mw_fluid_new(2, cap, &o);
    const uint32_t both[2] = {0, 1};
    mw_fluid_send(net, both, 2, 1e9, 0, 1);
    mw_fluid_send(net, both, 1, 1e9, 0, 2);
    mw_time end = mw_fluid_run(net);
    assert_int_equal(c.order[0], 2);
    mw_assert_near(mw_time_to_s(c.at[0]), 4.0 / 3, 1e-9, 0);
    mw_assert_near(mw_time_to_s(end), 4, 1e-9, 0);
    mw_fluid_free(net);
}

/* A capacity that halves after 1 s of a 3 s transfer: 1 + 4 = 5 s. */
struct slow {
    int n;
};
static void slow_down(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    struct slow *s = ctx;
    s->n++;
    if (tag == 7) {
        mw_fluid_set_capacity(net, 0, .5e9);
    }
}

static void capacity_can_change(void **state)
{
    (void)state;
    const double cap = 1e9;
    struct slow s = {0};
    struct mw_fluid_opts o = {.on_done = slow_down, .ctx = &s, .verify = true};
    struct mw_fluid *net = mw_fluid_new(1, &cap, &o);
    const uint32_t link = 0;
    mw_fluid_send(net, &link, 1, 3e9, 0, 1);
    mw_fluid_timer(net, 1, 7);
    mw_assert_near(mw_time_to_s(mw_fluid_run(net)), 5, 1e-9, 0);
    assert_int_equal(s.n, 2);
    mw_fluid_free(net);
}

static void empty_messages_arrive(void **state)
{
    (void)state;
    const double cap = 1e9;
    struct counter c = {.n = 0};
    struct mw_fluid_opts o = {.on_done = count, .ctx = &c};
    struct mw_fluid *net = mw_fluid_new(1, &cap, &o);
    const uint32_t link = 0;
    mw_fluid_send(net, &link, 1, 0, 2e-6, 3);
    mw_fluid_send(net, NULL, 0, 1e9, 1e-6, 4);
    mw_assert_near(mw_time_to_s(mw_fluid_run(net)), 2e-6, 1e-9, 0);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.order[0], 4);
    mw_fluid_free(net);
}

/* Ring of n hosts, each lane in order; sizes vary by a hash. */
struct ring {
    int n, lanes;
    double scale;
    int sent[64 * 4], arrived[64 * 4];
};

static void ring_try(struct ring *r, struct mw_fluid *net, int host, int lane)
{
    int i = host * r->lanes + lane, s = r->sent[i];
    if (s < 2 * (r->n - 1) && r->arrived[i] >= s) {
        double u = mw_rand_unit(3, (uint64_t)i, (uint64_t)s);
        uint32_t links[2] = {(uint32_t)host,
                             (uint32_t)(r->n + (host + 1) % r->n)};
        mw_fluid_send(net, links, 2, 1e6 * (.9 + .2 * u), 1e-6, (uint64_t)i);
    }
}

static void ring_done(void *ctx, struct mw_fluid *net, uint64_t tag)
{
    struct ring *r = ctx;
    int lane = (int)tag % r->lanes, host = (int)tag / r->lanes;
    int next = (host + 1) % r->n;
    int step = ++r->sent[host * r->lanes + lane];
    r->arrived[next * r->lanes + lane] = step;
    ring_try(r, net, host, lane);
    if (r->sent[next * r->lanes + lane] == step) {
        ring_try(r, net, next, lane);
    }
}

static double ring_time(int n, int lanes, double first_cap_scale)
{
    struct ring *r = mw_calloc(1, sizeof *r);
    r->n = n;
    r->lanes = lanes;
    double cap[128];
    for (int i = 0; i < 2 * n; i++) {
        cap[i] = i == 0 ? 50e9 * first_cap_scale : 50e9;
    }
    struct mw_fluid_opts o = {.on_done = ring_done, .ctx = r};
    struct mw_fluid *net = mw_fluid_new((size_t)(2 * n), cap, &o);
    for (int h = 0; h < n; h++) {
        for (int l = 0; l < lanes; l++) {
            ring_try(r, net, h, l);
        }
    }
    double t = mw_time_to_s(mw_fluid_run(net));
    mw_fluid_free(net);
    mw_free(r);
    return t;
}

/* Lanes in order: a change of 2e-12 of one bandwidth may not be amplified. */
static void jittered_ring_is_not_chaotic(void **state)
{
    (void)state;
    double a = ring_time(48, 4, 1), b = ring_time(48, 4, 1 + 2e-12);
    assert_true(fabs(a - b) <= 1e-9 * a);
}

static void same_input_same_result(void **state)
{
    (void)state;
    double a = ring_time(32, 3, 1), b = ring_time(32, 3, 1);
    assert_memory_equal(&a, &b, sizeof a);
}

/* 63 flows of 10 % different sizes on one link: the quantum may delay the end
 * by at most q (1 + 1/2 + ... + 1/63) and never brings it forward. */
static void quantum_keeps_its_bound(void **state)
{
    (void)state;
    const double q = 20e-6;
    double t[2], harmonic = 0;
    for (int i = 1; i <= 63; i++) {
        harmonic += 1.0 / i;
    }
    for (int k = 0; k < 2; k++) {
        const double cap = 1e9;
        struct mw_fluid_opts o = {.quantum_s = k ? q : 0};
        struct mw_fluid *net = mw_fluid_new(1, &cap, &o);
        const uint32_t link = 0;
        for (uint64_t f = 0; f < 63; f++) {
            double bytes = 1e5 * (.9 + .2 * mw_rand_unit(1, 2, f));
            mw_fluid_send(net, &link, 1, bytes, 0, f);
        }
        t[k] = mw_time_to_s(mw_fluid_run(net));
        struct mw_fluid_stats s;
        mw_fluid_stats(net, &s);
        assert_int_equal(s.n_messages, 63);
        assert_true(k == 0 || s.n_solves < 63);
        mw_fluid_free(net);
    }
    assert_true(t[1] >= t[0] - 1e-12);
    assert_true(t[1] <= t[0] + q * harmonic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_max_min),
        cmocka_unit_test(arrivals_are_those_of_a_plain_engine),
        cmocka_unit_test(hand_example),
        cmocka_unit_test(capacity_can_change),
        cmocka_unit_test(empty_messages_arrive),
        cmocka_unit_test(jittered_ring_is_not_chaotic),
        cmocka_unit_test(same_input_same_result),
        cmocka_unit_test(quantum_keeps_its_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
