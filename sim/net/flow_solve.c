/*
 * Max-min fair rates, repaired where their certificate broke.
 *
 * An allocation is max-min fair if and only if no link is overfull and every
 * flow has a link that is full and on which no flow is faster. S is the set of
 * links to fill again; flows whose bottleneck is in S (or that have none yet)
 * are free, all others that cross S keep their rate. After water-filling S,
 * links join it and the filling is repeated when
 *   (a) a link outside S is overfull, or is a bottleneck and no longer full;
 *   (b) a flow that kept its rate is faster than the level of a filled link;
 *   (c) a free flow is faster than the level of a bottleneck outside S.
 * When none is left all conditions hold everywhere. If the work approaches
 * that of all active links, S becomes all of them at once.
 */
#include "sim/net/flow_int.h"

#include <math.h>

void fluid_suspect(struct mw_fluid *f, uint32_t link)
{
    struct fluid_link *l = &f->link[link];
    if (l->in_set != f->epoch) {
        l->in_set = f->epoch;
        mw_array_push(&f->set, link);
    }
}

static bool in_set(const struct mw_fluid *f, uint32_t link)
{
    return f->link[link].in_set == f->epoch;
}

/* Alone on all its links: the narrowest decides. True if it was so. */
static bool solve_alone(struct mw_fluid *f, uint32_t id)
{
    struct flow *fl = &f->flow.v[id];
    uint32_t best = fl->link[0];
    for (uint32_t h = 0; h < fl->n; h++) {
        const struct fluid_link *l = &f->link[fl->link[h]];
        if (l->list.n != 1) {
            return false;
        }
        if (l->cap_Bps < f->link[best].cap_Bps) {
            best = fl->link[h];
        }
    }
    struct fluid_link *home = &f->link[best];
    for (uint32_t h = 0; h < fl->n; h++) {
        f->link[fl->link[h]].load_Bps = home->cap_Bps;
    }
    home->level_Bps = home->cap_Bps;
    home->clock = 0;
    home->clock_t = f->now;
    fl->home = best;
    f->rest.v[id].finish = f->rest.v[id].bytes;
    fluid_home_push(f, best, id);
    fluid_rekey(f, best);
    return true;
}

/* All links are in S: all flows are free. */
static void count_all(struct mw_fluid *f)
{
    for (size_t i = 0; i < f->set.n; i++) {
        struct fluid_link *l = &f->link[f->set.v[i]];
        l->n_free = (uint32_t)l->list.n;
        l->background_Bps = l->background_max_Bps = 0;
        l->new_level_Bps = -1;
    }
}

/* Free flows of every link of S, and what the others take. Returns the flows
 * seen. */
static size_t count_free(struct mw_fluid *f)
{
    size_t seen = 0;
    for (size_t i = 0; i < f->set.n; i++) {
        struct fluid_link *l = &f->link[f->set.v[i]];
        double sum = 0, max = 0;
        uint32_t n_free = 0;
        for (size_t k = 0; k < l->list.n; k++) {
            struct flow *fl = &f->flow.v[l->list.v[k] >> 3];
            if (fl->home == FLOW_NONE || in_set(f, fl->home)) {
                fl->stamp = 2 * f->epoch;
                n_free++;
            } else {
                double rate = f->link[fl->home].level_Bps;
                sum += rate;
                max = rate > max ? rate : max;
            }
        }
        seen += l->list.n;
        l->n_free = n_free;
        l->background_Bps = sum;
        l->background_max_Bps = max;
        l->new_level_Bps = -1;
    }
    return seen;
}

static double level_of(const struct fluid_link *l)
{
    double left = l->cap_Bps - l->background_Bps;
    return (left > 0 ? left : 0) / l->n_free;
}

/* Gives every flow still open on a link its level. */
static void fix_link(struct mw_fluid *f, uint32_t link, double level,
                     bool is_all)
{
    struct fluid_link *l = &f->link[link];
    uint32_t fixed = 2 * f->epoch + 1;
    l->new_level_Bps = level;
    for (size_t k = 0; k < l->list.n && l->n_free > 0; k++) {
        uint32_t id = l->list.v[k] >> 3;
        struct flow *fl = &f->flow.v[id];
        if (fl->stamp == fixed || (!is_all && fl->stamp != fixed - 1)) {
            continue;
        }
        fl->stamp = fixed;
        fl->bn = link;
        f->fixed.v[f->fixed.n++] = id;
        for (uint32_t h = 0; h < fl->n; h++) {
            struct fluid_link *o = &f->link[fl->link[h]];
            if (is_all || o->in_set == f->epoch) {
                o->n_free--;
                o->background_Bps += level;
            }
        }
    }
}

static void fill_by_scan(struct mw_fluid *f, bool is_all)
{
    for (;;) {
        uint32_t best = FLOW_NONE;
        double level = 0;
        for (size_t i = 0; i < f->set.n; i++) {
            const struct fluid_link *l = &f->link[f->set.v[i]];
            if (l->n_free == 0) {
                continue;
            }
            double v = level_of(l);
            if (best == FLOW_NONE || v < level) {
                best = f->set.v[i];
                level = v;
            }
        }
        if (best == FLOW_NONE) {
            return;
        }
        fix_link(f, best, level, is_all);
    }
}

/* Binary heap of (level, link); levels only grow, so a stale key is renewed
 * when it comes to the top. */
static void level_down(struct mw_fluid *f, size_t at, double key, uint32_t link)
{
    size_t n = f->level_key.n;
    for (;;) {
        size_t c = 2 * at + 1;
        if (c >= n) {
            break;
        }
        if (c + 1 < n && f->level_key.v[c + 1] < f->level_key.v[c]) {
            c++;
        }
        if (f->level_key.v[c] >= key) {
            break;
        }
        f->level_key.v[at] = f->level_key.v[c];
        f->level_heap.v[at] = f->level_heap.v[c];
        at = c;
    }
    f->level_key.v[at] = key;
    f->level_heap.v[at].link = link;
}

static void level_pop(struct mw_fluid *f)
{
    size_t n = --f->level_key.n;
    f->level_heap.n--;
    if (n > 0) {
        level_down(f, 0, f->level_key.v[n], f->level_heap.v[n].link);
    }
}

static void fill_by_heap(struct mw_fluid *f, bool is_all)
{
    mw_array_clear(&f->level_key);
    mw_array_clear(&f->level_heap);
    for (size_t i = 0; i < f->set.n; i++) {
        const struct fluid_link *l = &f->link[f->set.v[i]];
        if (l->n_free > 0) {
            struct fluid_key k = {.link = f->set.v[i]};
            mw_array_push(&f->level_key, level_of(l));
            mw_array_push(&f->level_heap, k);
        }
    }
    for (size_t i = f->level_key.n / 2; i-- > 0;) {
        level_down(f, i, f->level_key.v[i], f->level_heap.v[i].link);
    }
    while (f->level_key.n > 0) {
        uint32_t link = f->level_heap.v[0].link;
        const struct fluid_link *l = &f->link[link];
        if (l->n_free == 0) {
            level_pop(f);
            continue;
        }
        double v = level_of(l);
        if (v > f->level_key.v[0]) {
            level_down(f, 0, v, link);
            continue;
        }
        fix_link(f, link, v, is_all);
        level_pop(f);
    }
}

/* (c), and the change of load of every link outside S that a flow crosses. */
static void check_free(struct mw_fluid *f, const struct flow *fl)
{
    double rate = f->link[fl->bn].new_level_Bps;
    double was = fl->home == FLOW_NONE ? 0 : f->link[fl->home].level_Bps;
    for (uint32_t h = 0; h < fl->n; h++) {
        struct fluid_link *o = &f->link[fl->link[h]];
        if (o->in_set == f->epoch) {
            continue;
        }
        if (o->touched != f->epoch) {
            o->touched = f->epoch;
            o->delta_Bps = 0;
            mw_array_push(&f->touched, fl->link[h]);
        }
        o->delta_Bps += rate - was;
        if (o->heap.n > 0 && rate > o->level_Bps * (1 + FLOW_EPS)) {
            fluid_suspect(f, fl->link[h]);
        }
    }
}

/* (b): the homes of flows that are too fast for a filled link. */
static void check_background(struct mw_fluid *f, const struct fluid_link *l)
{
    double limit = l->new_level_Bps * (1 + FLOW_EPS);
    if (l->new_level_Bps < 0 || l->background_max_Bps <= limit) {
        return;
    }
    for (size_t k = 0; k < l->list.n; k++) {
        const struct flow *fl = &f->flow.v[l->list.v[k] >> 3];
        if (fl->stamp >> 1 != f->epoch && f->link[fl->home].level_Bps > limit) {
            fluid_suspect(f, fl->home);
        }
    }
}

/* True if links joined S. */
static bool grow(struct mw_fluid *f)
{
    size_t before = f->set.n;
    mw_array_clear(&f->touched);
    for (size_t i = 0; i < f->fixed.n; i++) {
        check_free(f, &f->flow.v[f->fixed.v[i]]);
    }
    for (size_t i = 0; i < before; i++) {
        check_background(f, &f->link[f->set.v[i]]);
    }
    for (size_t i = 0; i < f->touched.n; i++) {
        struct fluid_link *o = &f->link[f->touched.v[i]];
        double load = o->load_Bps + o->delta_Bps;
        bool over = load > o->cap_Bps * (1 + FLOW_EPS);
        bool slack = o->heap.n > 0 && load < o->cap_Bps * (1 - FLOW_EPS);
        if (over || slack) {
            fluid_suspect(f, f->touched.v[i]);
        }
        o->touched = 0; /* the next round counts anew */
    }
    return f->set.n > before;
}

/* Flows whose bottleneck is another one now move there. */
static void move_homes(struct mw_fluid *f)
{
    for (size_t i = 0; i < f->fixed.n; i++) {
        uint32_t id = f->fixed.v[i];
        struct flow *fl = &f->flow.v[id];
        if (fl->home == fl->bn) {
            continue;
        }
        struct flow_rest *rest = &f->rest.v[id];
        double left = rest->bytes;
        if (fl->home != FLOW_NONE) {
            left = rest->finish - f->link[fl->home].clock;
            fluid_home_remove(f, fl->home, id);
        }
        fl->home = fl->bn;
        rest->finish = f->link[fl->home].clock + (left > 0 ? left : 0);
        fluid_home_push(f, fl->home, id);
    }
}

/* New rates take effect: clocks, homes, loads, keys. */
static void commit(struct mw_fluid *f)
{
    for (size_t i = 0; i < f->set.n; i++) {
        fluid_advance(f, &f->link[f->set.v[i]]);
    }
    move_homes(f);
    for (size_t i = 0; i < f->touched.n; i++) {
        struct fluid_link *o = &f->link[f->touched.v[i]];
        o->load_Bps += o->delta_Bps;
    }
    for (size_t i = 0; i < f->set.n; i++) {
        uint32_t link = f->set.v[i];
        struct fluid_link *l = &f->link[link];
        l->load_Bps = l->background_Bps;
        l->level_Bps = l->new_level_Bps;
        fluid_rekey(f, link);
    }
}

/* S becomes every link with traffic; a new epoch frees what was fixed. Links
 * of S that lost all their traffic stay in it. */
static void take_all(struct mw_fluid *f)
{
    f->epoch++;
    for (size_t i = 0; i < f->set.n; i++) {
        f->link[f->set.v[i]].in_set = f->epoch;
    }
    for (size_t l = 0; l < f->n_links; l++) {
        if (f->link[l].list.n > 0) {
            fluid_suspect(f, (uint32_t)l);
        }
    }
    f->stats.n_full_solves++;
}

void fluid_solve(struct mw_fluid *f)
{
    /* After a solve that took in all links the next ones do so at once. */
    enum { SCAN_MAX = 24, FULL_RUN = 15 };
    for (size_t i = 0; i < f->fresh.n; i++) {
        if (solve_alone(f, f->fresh.v[i])) {
            continue;
        }
        const struct flow *fl = &f->flow.v[f->fresh.v[i]];
        for (uint32_t h = 0; h < fl->n; h++) {
            fluid_suspect(f, fl->link[h]);
        }
    }
    mw_array_clear(&f->fresh);
    if (f->set.n == 0) {
        return;
    }
    f->stats.n_solves++;
    mw_array_reserve(&f->fixed, f->n_active);
    size_t work = 0;
    bool is_all = f->n_full_left > 0;
    if (is_all) {
        f->n_full_left--;
        take_all(f);
    }
    do {
        mw_array_clear(&f->fixed);
        if (is_all) {
            count_all(f);
        } else {
            work += count_free(f);
        }
        if (f->set.n <= SCAN_MAX) {
            fill_by_scan(f, is_all);
        } else {
            fill_by_heap(f, is_all);
        }
        f->stats.n_rounds++;
        if (is_all) {
            mw_array_clear(&f->touched);
            break;
        }
        if (!grow(f)) {
            break;
        }
        if (work > f->n_active / 2 && f->n_active > 64) {
            is_all = true;
            f->n_full_left = FULL_RUN;
            take_all(f);
        }
    } while (true);
    f->stats.n_solved_links += f->set.n;
    commit(f);
    mw_array_clear(&f->set);
    f->epoch++;
    if (f->opts.verify) {
        const char *wrong = mw_fluid_check(f);
        MW_ASSERT(wrong == NULL, "%s", wrong);
    }
}

const char *mw_fluid_check(const struct mw_fluid *fluid)
{
    const struct mw_fluid *f = fluid;
    for (size_t i = 0; i < f->n_links; i++) {
        const struct fluid_link *l = &f->link[i];
        double load = 0, fastest = 0;
        for (size_t k = 0; k < l->list.n; k++) {
            double r = f->link[f->flow.v[l->list.v[k] >> 3].home].level_Bps;
            load += r;
            fastest = r > fastest ? r : fastest;
        }
        if (load > l->cap_Bps * (1 + 1e-8)) {
            return "a link is overfull";
        }
        if (fabs(load - l->load_Bps) > 1e-8 * l->cap_Bps) {
            return "the load of a link is not the sum of its flows";
        }
        if (l->heap.n > 0 && load < l->cap_Bps * (1 - 1e-8)) {
            return "a bottleneck is not full";
        }
        if (l->heap.n > 0 && fastest > l->level_Bps * (1 + 1e-8)) {
            return "a flow is faster than the level of a bottleneck it crosses";
        }
        for (size_t k = 0; k < l->heap.n; k++) {
            uint32_t id = l->heap.v[k];
            if (f->flow.v[id].home != i || f->rest.v[id].heap_at != k) {
                return "a flow is not at home where it says";
            }
        }
    }
    return NULL;
}

void mw_maxmin_rates(size_t n_links, const double *capacity_Bps, size_t n_flows,
                     const uint32_t *first, const uint32_t *route,
                     double *out_rate_Bps)
{
    double *left = mw_calloc(n_links + 1, sizeof *left);
    size_t *open = mw_calloc(n_links + 1, sizeof *open);
    for (size_t l = 0; l < n_links; l++) {
        left[l] = capacity_Bps[l];
    }
    size_t n_open = 0;
    for (size_t i = 0; i < n_flows; i++) {
        out_rate_Bps[i] = -1;
        n_open += first[i + 1] > first[i];
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            open[route[k]]++;
        }
    }
    while (n_open > 0) {
        size_t best = n_links;
        for (size_t l = 0; l < n_links; l++) {
            if (open[l] > 0 &&
                (best == n_links ||
                 left[l] / (double)open[l] < left[best] / (double)open[best])) {
                best = l;
            }
        }
        double level = left[best] / (double)open[best];
        for (size_t i = 0; i < n_flows; i++) {
            bool crosses = false;
            for (uint32_t k = first[i]; k < first[i + 1]; k++) {
                crosses |= route[k] == best;
            }
            if (!crosses || out_rate_Bps[i] >= 0) {
                continue;
            }
            out_rate_Bps[i] = level;
            n_open--;
            for (uint32_t k = first[i]; k < first[i + 1]; k++) {
                left[route[k]] -= level;
                open[route[k]]--;
            }
        }
    }
    mw_free(left);
    mw_free(open);
}
