/*
 * The clockwork of the fluid network: messages in their latency, arrivals,
 * and the heaps. The allocation is in flow_solve.c.
 *
 * A link serves the flows at home on it at one rate; its clock counts the
 * bytes served to each, a flow is done when the clock reaches its mark. One
 * key per link (the time of its next arrival) stands in a 4-ary heap.
 * Times are rounded up to a picosecond; arrivals at one instant are one batch.
 */
#include "sim/net/flow_int.h"

#include <math.h>
#include <string.h>

struct mw_fluid *mw_fluid_new(size_t n_links, const double *capacity_Bps,
                              const struct mw_fluid_opts *opts)
{
    MW_ASSERT(n_links < UINT32_MAX >> 3, "%zu links", n_links);
    struct mw_fluid *f = mw_calloc(1, sizeof *f);
    f->n_links = n_links;
    f->link = mw_calloc(n_links + 1, sizeof *f->link);
    for (size_t i = 0; i < n_links; i++) {
        MW_ASSERT(isfinite(capacity_Bps[i]) && capacity_Bps[i] > 0,
                  "capacity %g of link %zu", capacity_Bps[i], i);
        f->link[i].cap_Bps = capacity_Bps[i];
        f->link[i].key_at = FLOW_NONE;
    }
    if (opts) {
        f->opts = *opts;
    }
    f->quantum = mw_time_from_s(f->opts.quantum_s);
    f->solve_by = -1;
    f->epoch = 1;
    return f;
}

void mw_fluid_free(struct mw_fluid *fluid)
{
    if (!fluid) {
        return;
    }
    for (size_t i = 0; i < fluid->n_links; i++) {
        mw_array_release(&fluid->link[i].list);
        mw_array_release(&fluid->link[i].heap);
    }
    mw_free(fluid->link);
    mw_free(fluid->ring);
    mw_array_release(&fluid->flow);
    mw_array_release(&fluid->rest);
    mw_array_release(&fluid->fixed);
    mw_array_release(&fluid->unused);
    mw_array_release(&fluid->key);
    mw_array_release(&fluid->later);
    mw_array_release(&fluid->fresh);
    mw_array_release(&fluid->set);
    mw_array_release(&fluid->touched);
    mw_array_release(&fluid->level_heap);
    mw_array_release(&fluid->level_key);
    mw_array_release(&fluid->done);
    mw_free(fluid);
}

/* ---- heap of links ---- */

static void key_place(struct mw_fluid *f, uint32_t at, struct fluid_key k)
{
    f->key.v[at] = k;
    f->link[k.link].key_at = at;
}

static void key_up(struct mw_fluid *f, uint32_t at)
{
    struct fluid_key k = f->key.v[at];
    while (at > 0) {
        uint32_t up = (at - 1) / 4;
        if (f->key.v[up].t <= k.t) {
            break;
        }
        key_place(f, at, f->key.v[up]);
        at = up;
    }
    key_place(f, at, k);
}

static void key_down(struct mw_fluid *f, uint32_t at)
{
    struct fluid_key k = f->key.v[at];
    uint32_t n = (uint32_t)f->key.n;
    for (;;) {
        uint32_t first = 4 * at + 1, best = at;
        mw_time t = k.t;
        for (uint32_t c = first; c < first + 4 && c < n; c++) {
            if (f->key.v[c].t < t) {
                t = f->key.v[c].t;
                best = c;
            }
        }
        if (best == at) {
            break;
        }
        key_place(f, at, f->key.v[best]);
        at = best;
    }
    key_place(f, at, k);
}

static void key_drop(struct mw_fluid *f, uint32_t link)
{
    uint32_t at = f->link[link].key_at;
    if (at == FLOW_NONE) {
        return;
    }
    f->link[link].key_at = FLOW_NONE;
    struct fluid_key last = f->key.v[--f->key.n];
    if (at < f->key.n) {
        bool sooner = last.t < f->key.v[at].t;
        key_place(f, at, last);
        if (sooner) {
            key_up(f, at);
        } else {
            key_down(f, at);
        }
    }
}

void fluid_rekey(struct mw_fluid *f, uint32_t link)
{
    struct fluid_link *l = &f->link[link];
    if (l->heap.n == 0) {
        key_drop(f, link);
        l->level_Bps = 0;
        l->clock = 0; /* keeps the marks small and exact */
        return;
    }
    double left = f->rest.v[l->heap.v[0]].finish - l->clock;
    double ps = left > 0 ? ceil(left / l->level_Bps * 1e12) : 0;
    MW_ASSERT(ps < 9e18, "a message of %g bytes at %g B/s does not end", left,
              l->level_Bps);
    struct fluid_key k = {.t = l->clock_t + (mw_time)ps, .link = link};
    if (l->key_at == FLOW_NONE) {
        mw_array_push(&f->key, k);
        l->key_at = (uint32_t)(f->key.n - 1);
        key_up(f, l->key_at);
        return;
    }
    mw_time was = f->key.v[l->key_at].t;
    f->key.v[l->key_at] = k;
    if (k.t < was) {
        key_up(f, l->key_at);
    } else if (k.t > was) {
        key_down(f, l->key_at);
    }
}

/* ---- heap of the flows at home on a link ---- */

static void home_place(struct mw_fluid *f, struct fluid_link *l, uint32_t at,
                       uint32_t flow)
{
    l->heap.v[at] = flow;
    f->rest.v[flow].heap_at = at;
}

static void home_up(struct mw_fluid *f, struct fluid_link *l, uint32_t at)
{
    uint32_t flow = l->heap.v[at];
    double mark = f->rest.v[flow].finish;
    while (at > 0) {
        uint32_t up = (at - 1) / 2;
        if (f->rest.v[l->heap.v[up]].finish <= mark) {
            break;
        }
        home_place(f, l, at, l->heap.v[up]);
        at = up;
    }
    home_place(f, l, at, flow);
}

static void home_down(struct mw_fluid *f, struct fluid_link *l, uint32_t at)
{
    uint32_t flow = l->heap.v[at], n = (uint32_t)l->heap.n;
    double mark = f->rest.v[flow].finish;
    for (;;) {
        uint32_t c = 2 * at + 1;
        if (c >= n) {
            break;
        }
        if (c + 1 < n && f->rest.v[l->heap.v[c + 1]].finish <
                             f->rest.v[l->heap.v[c]].finish) {
            c++;
        }
        if (f->rest.v[l->heap.v[c]].finish >= mark) {
            break;
        }
        home_place(f, l, at, l->heap.v[c]);
        at = c;
    }
    home_place(f, l, at, flow);
}

void fluid_home_push(struct mw_fluid *f, uint32_t link, uint32_t flow)
{
    struct fluid_link *l = &f->link[link];
    mw_array_push(&l->heap, flow);
    home_up(f, l, (uint32_t)(l->heap.n - 1));
}

void fluid_home_remove(struct mw_fluid *f, uint32_t link, uint32_t flow)
{
    struct fluid_link *l = &f->link[link];
    uint32_t at = f->rest.v[flow].heap_at;
    uint32_t last = l->heap.v[--l->heap.n];
    if (at < l->heap.n) {
        bool sooner = f->rest.v[last].finish < f->rest.v[flow].finish;
        home_place(f, l, at, last);
        if (sooner) {
            home_up(f, l, at);
        } else {
            home_down(f, l, at);
        }
    }
}

void fluid_advance(struct mw_fluid *f, struct fluid_link *l)
{
    if (l->clock_t != f->now) {
        double s = (double)(f->now - l->clock_t) * 1e-12;
        l->clock += l->level_Bps * s;
        l->busy_s += l->heap.n > 0 ? s : 0;
        l->clock_t = f->now;
    }
}

/* ---- flows ---- */

static void start_flow(struct mw_fluid *f, const struct pending *p)
{
    uint32_t id;
    if (f->unused.n > 0) {
        id = f->unused.v[--f->unused.n];
    } else {
        id = (uint32_t)f->flow.n;
        MW_ASSERT(id < UINT32_MAX >> 3, "%u flows under way", id);
        mw_array_reserve(&f->flow, 1);
        mw_array_reserve(&f->rest, 1);
        f->flow.n++;
        f->rest.n++;
    }
    struct flow *fl = &f->flow.v[id];
    struct flow_rest *rest = &f->rest.v[id];
    rest->bytes = p->bytes;
    rest->tag = p->tag;
    fl->home = FLOW_NONE;
    fl->stamp = 0;
    fl->n = p->n;
    for (uint32_t h = 0; h < p->n; h++) {
        struct fluid_link *l = &f->link[p->link[h]];
        fl->link[h] = p->link[h];
        rest->at[h] = (uint32_t)l->list.n;
        mw_array_push(&l->list, id << 3 | h);
    }
    mw_array_push(&f->fresh, id);
    if (++f->n_active > f->stats.peak_flows) {
        f->stats.peak_flows = f->n_active;
    }
}

/* Takes a flow that has arrived off its links. */
static void end_flow(struct mw_fluid *f, uint32_t id)
{
    const struct flow *fl = &f->flow.v[id];
    const struct flow_rest *rest = &f->rest.v[id];
    double rate_Bps = f->link[fl->home].level_Bps;
    for (uint32_t h = 0; h < fl->n; h++) {
        struct fluid_link *l = &f->link[fl->link[h]];
        uint32_t last = l->list.v[--l->list.n];
        if (rest->at[h] < l->list.n) {
            l->list.v[rest->at[h]] = last;
            f->rest.v[last >> 3].at[last & 7] = rest->at[h];
        }
        l->load_Bps -= rate_Bps;
        l->bytes += rest->bytes;
        if (l->list.n == 0) {
            l->load_Bps = 0; /* drop the rounding of the sums */
        } else if (l->heap.n > 0) {
            fluid_suspect(f, fl->link[h]);
        }
    }
    mw_array_push(&f->done, rest->tag);
    mw_array_push(&f->unused, id);
    f->n_active--;
}

/* ---- messages in their latency ---- */

static bool sooner(const struct pending *a, const struct pending *b)
{
    return a->t != b->t ? a->t < b->t : a->seq < b->seq;
}

static void ring_push(struct mw_fluid *f, const struct pending *p)
{
    if (f->ring_n == f->ring_cap) {
        size_t cap = f->ring_cap ? 2 * f->ring_cap : 64;
        struct pending *bigger = mw_calloc(cap, sizeof *bigger);
        for (size_t i = 0; i < f->ring_n; i++) {
            bigger[i] = f->ring[(f->ring_head + i) & (f->ring_cap - 1)];
        }
        mw_free(f->ring);
        f->ring = bigger;
        f->ring_cap = cap;
        f->ring_head = 0;
    }
    f->ring[(f->ring_head + f->ring_n++) & (f->ring_cap - 1)] = *p;
}

static void later_push(struct mw_fluid *f, const struct pending *p)
{
    mw_array_push(&f->later, *p);
    size_t at = f->later.n - 1;
    while (at > 0 && sooner(p, &f->later.v[(at - 1) / 2])) {
        f->later.v[at] = f->later.v[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    f->later.v[at] = *p;
}

static void later_pop(struct mw_fluid *f)
{
    struct pending last = f->later.v[--f->later.n];
    size_t n = f->later.n, at = 0;
    for (;;) {
        size_t c = 2 * at + 1;
        if (c >= n) {
            break;
        }
        if (c + 1 < n && sooner(&f->later.v[c + 1], &f->later.v[c])) {
            c++;
        }
        if (!sooner(&f->later.v[c], &last)) {
            break;
        }
        f->later.v[at] = f->later.v[c];
        at = c;
    }
    if (n > 0) {
        f->later.v[at] = last;
    }
}

static void put_off(struct mw_fluid *f, struct pending *p, double delay_s)
{
    p->t = f->now + (delay_s > 0 ? mw_time_from_s(delay_s) : 0);
    p->seq = f->seq++;
    const struct pending *tail =
        f->ring_n ? &f->ring[(f->ring_head + f->ring_n - 1) & (f->ring_cap - 1)]
                  : NULL;
    if (!tail || p->t >= tail->t) {
        ring_push(f, p);
    } else {
        later_push(f, p);
    }
}

void mw_fluid_send(struct mw_fluid *fluid, const uint32_t *links, int n_links,
                   double bytes, double latency_s, uint64_t tag)
{
    MW_ASSERT(n_links >= 0 && n_links <= MW_FLOW_HOPS, "%d hops", n_links);
    MW_ASSERT(isfinite(bytes) && bytes >= 0, "%g bytes", bytes);
    struct pending p = {.tag = tag, .bytes = bytes, .n = (uint32_t)n_links};
    for (int i = 0; i < n_links; i++) {
        MW_ASSERT(links[i] < fluid->n_links, "link %u", links[i]);
        p.link[i] = links[i];
    }
    if (bytes == 0 || n_links == 0) {
        p.n = FLOW_NONE;
    }
    put_off(fluid, &p, latency_s);
}

void mw_fluid_timer(struct mw_fluid *fluid, double delay_s, uint64_t tag)
{
    struct pending p = {.tag = tag, .n = FLOW_NONE};
    put_off(fluid, &p, delay_s);
}

/* ---- running ---- */

/* The earlier of ring and heap, or NULL. */
static const struct pending *next_pending(const struct mw_fluid *f)
{
    const struct pending *a = f->ring_n ? &f->ring[f->ring_head] : NULL;
    const struct pending *b = f->later.n ? &f->later.v[0] : NULL;
    if (!a || !b) {
        return a ? a : b;
    }
    return sooner(a, b) ? a : b;
}

static void drop_pending(struct mw_fluid *f, const struct pending *p)
{
    if (f->ring_n && p == &f->ring[f->ring_head]) {
        f->ring_head = (f->ring_head + 1) & (f->ring_cap - 1);
        f->ring_n--;
    } else {
        later_pop(f);
    }
}

static void report(struct mw_fluid *f, uint64_t tag)
{
    f->stats.n_messages++;
    if (f->opts.on_done) {
        f->opts.on_done(f->opts.ctx, f, tag);
    }
}

/* All flows of a link that arrive now. */
static void arrive(struct mw_fluid *f, uint32_t link)
{
    struct fluid_link *l = &f->link[link];
    fluid_advance(f, l);
    double until = l->clock + l->level_Bps * 1e-12;
    do {
        uint32_t id = l->heap.v[0];
        if (f->rest.v[id].finish > until) {
            until = f->rest.v[id].finish; /* the rounded time has come */
        }
        fluid_home_remove(f, link, id);
        end_flow(f, id);
    } while (l->heap.n > 0 && f->rest.v[l->heap.v[0]].finish <= until);
    fluid_rekey(f, link);
}

static void arrivals(struct mw_fluid *f)
{
    while (f->key.n > 0 && f->key.v[0].t <= f->now) {
        arrive(f, f->key.v[0].link);
    }
    for (size_t i = 0; i < f->done.n; i++) {
        report(f, f->done.v[i]);
    }
    mw_array_clear(&f->done);
}

static void starts(struct mw_fluid *f)
{
    const struct pending *p;
    while ((p = next_pending(f)) != NULL && p->t <= f->now) {
        struct pending copy = *p;
        drop_pending(f, p);
        if (copy.n == FLOW_NONE) {
            report(f, copy.tag);
        } else {
            start_flow(f, &copy);
        }
    }
}

/* Solves now, unless only completions wait and the quantum lets them. */
static void maybe_solve(struct mw_fluid *f)
{
    if (f->fresh.n == 0 && f->set.n == 0) {
        return;
    }
    if (f->fresh.n == 0 && f->quantum > 0) {
        if (f->solve_by < 0) {
            f->solve_by = f->now + f->quantum;
        }
        if (f->now < f->solve_by) {
            return;
        }
    }
    f->solve_by = -1;
    fluid_solve(f);
}

mw_time mw_fluid_run(struct mw_fluid *fluid)
{
    struct mw_fluid *f = fluid;
    mw_time last = f->now;
    starts(f);
    maybe_solve(f);
    for (;;) {
        const struct pending *p = next_pending(f);
        mw_time t = p ? p->t : INT64_MAX;
        if (f->key.n > 0 && f->key.v[0].t < t) {
            t = f->key.v[0].t;
        }
        if (t == INT64_MAX) {
            break;
        }
        if (f->solve_by >= 0 && f->solve_by < t) {
            t = f->solve_by;
        }
        f->now = t;
        arrivals(f);
        starts(f);
        maybe_solve(f);
        last = f->now;
    }
    MW_ASSERT(f->n_active == 0, "%zu flows never arrive", f->n_active);
    return last;
}

mw_time mw_fluid_now(const struct mw_fluid *fluid)
{
    return fluid->now;
}

void mw_fluid_set_capacity(struct mw_fluid *fluid, uint32_t link,
                           double capacity_Bps)
{
    MW_ASSERT(link < fluid->n_links && isfinite(capacity_Bps) &&
                  capacity_Bps > 0,
              "capacity %g of link %u", capacity_Bps, link);
    fluid->link[link].cap_Bps = capacity_Bps;
    if (fluid->link[link].list.n > 0) {
        fluid_suspect(fluid, link);
    }
}

double mw_fluid_rate(const struct mw_fluid *fluid, uint64_t tag)
{
    for (size_t l = 0; l < fluid->n_links; l++) {
        for (size_t i = 0; i < fluid->link[l].list.n; i++) {
            uint32_t id = fluid->link[l].list.v[i] >> 3;
            uint32_t home = fluid->flow.v[id].home;
            if (fluid->rest.v[id].tag == tag) {
                return home == FLOW_NONE ? 0 : fluid->link[home].level_Bps;
            }
        }
    }
    return 0;
}

double mw_fluid_link_bytes(const struct mw_fluid *fluid, uint32_t link)
{
    return fluid->link[link].bytes;
}

double mw_fluid_link_busy_s(const struct mw_fluid *fluid, uint32_t link)
{
    return fluid->link[link].busy_s;
}

void mw_fluid_stats(const struct mw_fluid *fluid, struct mw_fluid_stats *out)
{
    *out = fluid->stats;
}
