/* Colour refinement and water-filling of classes; see fold.h. */
#include "sim/net/fold.h"

#include "base/mem.h"

#include <string.h>

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Numbers colours 0, 1, ... in order of appearance. */
struct numbering {
    uint64_t *key;
    uint32_t *value;
    size_t cap, n;
};

static void numbering_grow(struct numbering *t)
{
    size_t cap = t->cap ? 4 * t->cap : 64;
    uint64_t *key = mw_calloc(cap, sizeof *key);
    uint32_t *value = mw_calloc(cap, sizeof *value);
    for (size_t i = 0; i < t->cap; i++) {
        if (t->value[i]) {
            size_t at = t->key[i] & (cap - 1);
            while (value[at]) {
                at = (at + 1) & (cap - 1);
            }
            key[at] = t->key[i];
            value[at] = t->value[i];
        }
    }
    mw_free(t->key);
    mw_free(t->value);
    t->key = key;
    t->value = value;
    t->cap = cap;
}

static uint32_t number_of(struct numbering *t, uint64_t colour)
{
    if (2 * (t->n + 1) > t->cap) {
        numbering_grow(t);
    }
    size_t at = colour & (t->cap - 1);
    while (t->value[at] && t->key[at] != colour) {
        at = (at + 1) & (t->cap - 1);
    }
    if (!t->value[at]) {
        t->key[at] = colour;
        t->value[at] = (uint32_t)++t->n;
    }
    return t->value[at] - 1;
}

static size_t number_all(const uint64_t *colour, size_t n, uint32_t *out)
{
    struct numbering t = {NULL, NULL, 0, 0};
    for (size_t i = 0; i < n; i++) {
        out[i] = number_of(&t, colour[i]);
    }
    mw_free(t.key);
    mw_free(t.value);
    return t.n;
}

static uint64_t bits_of(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* One round: flows take in the colours of their links, links those of their
 * flows. */
static void refine(size_t n_links, size_t n_flows, const uint32_t *first,
                   const uint32_t *route, uint64_t *link, uint64_t *flow,
                   uint64_t *sum)
{
    memset(sum, 0, n_links * sizeof *sum);
    for (size_t i = 0; i < n_flows; i++) {
        uint64_t s = 0;
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            s += mix(link[route[k]]);
        }
        flow[i] = mix(flow[i] ^ s);
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            sum[route[k]] += mix(flow[i]);
        }
    }
    for (size_t l = 0; l < n_links; l++) {
        link[l] = mix(link[l] ^ sum[l]);
    }
}

/* Class of flows i crosses `count` links of class j each. */
struct crossing {
    uint32_t flow, link;
    double per_link; /* flows of the class on one link of the class */
};

static void fill(struct mw_fold *f, const double *class_cap,
                 const struct crossing *x, size_t n_x)
{
    double *left = mw_calloc(f->n_link_classes + 1, sizeof *left);
    double *open = mw_calloc(f->n_link_classes + 1, sizeof *open);
    for (size_t i = 0; i < f->n_flow_classes; i++) {
        f->rate_Bps[i] = -1;
    }
    memcpy(left, class_cap, f->n_link_classes * sizeof *left);
    for (size_t k = 0; k < n_x; k++) {
        open[x[k].link] += x[k].per_link;
    }
    for (;;) {
        size_t best = f->n_link_classes;
        for (size_t l = 0; l < f->n_link_classes; l++) {
            if (open[l] > .5 && (best == f->n_link_classes ||
                                 left[l] / open[l] < left[best] / open[best])) {
                best = l;
            }
        }
        if (best == f->n_link_classes) {
            break;
        }
        double level = left[best] / open[best];
        for (size_t k = 0; k < n_x; k++) {
            if (x[k].link == best && f->rate_Bps[x[k].flow] < 0) {
                f->rate_Bps[x[k].flow] = level;
                for (size_t j = 0; j < n_x; j++) {
                    if (x[j].flow == x[k].flow) {
                        left[x[j].link] -= level * x[j].per_link;
                        open[x[j].link] -= x[j].per_link;
                    }
                }
            }
        }
    }
    mw_free(left);
    mw_free(open);
}

static void solve(struct mw_fold *f, size_t n_links, const double *cap,
                  size_t n_flows, const uint32_t *first, const uint32_t *route)
{
    size_t *links = mw_calloc(f->n_link_classes + 1, sizeof *links);
    size_t *seen = mw_calloc(f->n_flow_classes + 1, sizeof *seen);
    double *class_cap = mw_calloc(f->n_link_classes + 1, sizeof *class_cap);
    MW_ARRAY(struct crossing) x = {NULL, 0, 0};
    for (size_t l = 0; l < n_links; l++) {
        links[f->link_class[l]]++;
        class_cap[f->link_class[l]] = cap[l];
    }
    for (size_t i = 0; i < n_flows; i++) {
        f->n_flows[f->flow_class[i]]++;
    }
    for (size_t i = 0; i < n_flows; i++) {
        uint32_t c = f->flow_class[i];
        if (seen[c]++) {
            continue; /* one flow stands for its class */
        }
        size_t from = x.n;
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            uint32_t lc = f->link_class[route[k]];
            double share = (double)f->n_flows[c] / (double)links[lc];
            size_t at = from;
            while (at < x.n && x.v[at].link != lc) {
                at++;
            }
            if (at == x.n) {
                struct crossing fresh = {.flow = c, .link = lc, .per_link = 0};
                mw_array_push(&x, fresh);
            }
            x.v[at].per_link += share;
        }
    }
    fill(f, class_cap, x.v, x.n);
    mw_array_release(&x);
    mw_free(links);
    mw_free(seen);
    mw_free(class_cap);
}

void mw_fold_make(size_t n_links, const double *capacity_Bps, size_t n_flows,
                  const uint32_t *first, const uint32_t *route,
                  struct mw_fold *out)
{
    struct mw_fold f = {.rounds = 0};
    uint64_t *link = mw_calloc(n_links + 1, sizeof *link);
    uint64_t *flow = mw_calloc(n_flows + 1, sizeof *flow);
    uint64_t *sum = mw_calloc(n_links + 1, sizeof *sum);
    f.flow_class = mw_calloc(n_flows + 1, sizeof *f.flow_class);
    f.link_class = mw_calloc(n_links + 1, sizeof *f.link_class);
    for (size_t l = 0; l < n_links; l++) {
        link[l] = mix(bits_of(capacity_Bps[l]));
    }
    for (size_t i = 0; i < n_flows; i++) {
        flow[i] = mix(first[i + 1] - first[i]);
    }
    size_t before = 0, now = 1;
    while (now > before) { /* classes only ever split */
        before = now;
        refine(n_links, n_flows, first, route, link, flow, sum);
        f.n_flow_classes = number_all(flow, n_flows, f.flow_class);
        f.n_link_classes = number_all(link, n_links, f.link_class);
        now = f.n_flow_classes + f.n_link_classes;
        f.rounds++;
    }
    f.rate_Bps = mw_calloc(f.n_flow_classes + 1, sizeof *f.rate_Bps);
    f.n_flows = mw_calloc(f.n_flow_classes + 1, sizeof *f.n_flows);
    solve(&f, n_links, capacity_Bps, n_flows, first, route);
    mw_free(link);
    mw_free(flow);
    mw_free(sum);
    *out = f;
}

void mw_fold_release(struct mw_fold *fold)
{
    mw_free(fold->flow_class);
    mw_free(fold->link_class);
    mw_free(fold->rate_Bps);
    mw_free(fold->n_flows);
    memset(fold, 0, sizeof *fold);
}
