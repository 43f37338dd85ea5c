/*
 * The order of nodes on leaves of several sizes: see node_order.h.
 *
 * An order is a list of pools, one a slot: a leaf's units (nodes, or scale-up
 * domains), or the rack that the allocation has a part of. Orders are compared
 * by their marks (mw_fast_order_marks): one that another matches or beats in
 * every mark cannot be faster, so only those that no other beats are simulated
 * (event form). Of more orders than can be looked at, exchanges of stages, of
 * replicas and of single nodes lead from each order of whole leaves downhill in
 * the fast form, which remembers the prices of units.
 */
#include "planner/node_order.h"

#include "planner/planner.h"
#include "sim/cost/leaf.h"

#include <math.h>
#include <string.h>

enum { STARTS_MAX = 24, WORK_MAX = 4000000, SIMULATED_MAX = 64 };

struct order {
    int *pool; /* [n_slots] */
    int *mark; /* [n_marks] */
    double fast_s;
};
/* Units of one leaf that are whole; or the last rack, of fewer nodes. */
struct pool {
    int n;      /* units */
    int n_leaf; /* nodes under the leaf: with n alike, leaves are */
    int *start; /* [n] first node of each */
    bool is_part;
};
struct pools {
    struct pool *v;
    int n, n_whole; /* pools; units in all, but for a part of a rack */
    int unit_nodes, n_slots;
    int n_last; /* nodes of a last slot that is no whole unit; 0: it is one */
    bool takes_part; /* there is a part of a rack with as many */
};
struct choice {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    struct mw_plan *plan;
    struct mw_node_order *out;
    struct mw_arena arena;
    struct mw_fast *fast;
    struct pools pools;
    int n_slots;
    int *left, *pool; /* of the order at hand: units left, pools of slots */
    int *mark;
    size_t n_marks;
    MW_ARRAY(struct order) kept; /* none beats another */
};

/* ---- the cluster -----------------------------------------------------------
 */
/* Domains of the allocation that are whole. */
static int whole_units(const struct mw_cluster *c, int unit_nodes)
{
    int n_all = mw_cluster_allocated(c);
    int rack = c->domain_nodes > 0 ? c->rack_nodes : unit_nodes;

    return n_all / rack * (rack / unit_nodes) + n_all % rack / unit_nodes;
}

static void pools_init(struct pools *p, const struct mw_cluster *c,
                       int unit_nodes, struct mw_arena *arena)
{
    int n_all = mw_cluster_allocated(c), n_leaves = (int)c->leaves.n;
    int n_part = c->domain_nodes > 0 ? 0 : n_all % unit_nodes;

    *p = (struct pools){.unit_nodes = unit_nodes,
                        .n_last = c->n_nodes % unit_nodes,
                        .n_whole = whole_units(c, unit_nodes)};
    p->n_slots = c->n_nodes / unit_nodes + (p->n_last > 0);
    p->takes_part = p->n_last > 0 && n_part >= p->n_last;
    p->n = n_leaves + p->takes_part;
    p->v = mw_arena_alloc(arena, (size_t)p->n, sizeof *p->v);
    for (int i = 0; i < p->n; i++) {
        p->v[i] = (struct pool){.n = 0};
        p->v[i].start =
            mw_arena_alloc(arena, (size_t)p->n_whole + 1, sizeof(int));
    }
    for (int node = 0; node < n_all; node++) {
        p->v[mw_leaf_of_node(c, node)].n_leaf++;
    }
    for (int u = 0; u < p->n_whole; u++) {
        int first = mw_cluster_slot_node(c, u * unit_nodes);
        struct pool *of = &p->v[mw_leaf_of_node(c, first)];

        of->start[of->n++] = first;
    }
    if (p->takes_part) {
        p->v[n_leaves].is_part = true;
        p->v[n_leaves].start[p->v[n_leaves].n++] = n_all - n_part;
    }
}

bool mw_node_order_is_open(const struct mw_scenario *scenario)
{
    const struct mw_cluster *c = &scenario->cluster;

    return c->leaves.n > 1 && c->oversubscription > 1;
}

struct mw_scenario mw_node_order_bare(const struct mw_scenario *scenario)
{
    struct mw_scenario bare = *scenario;

    bare.cluster.leaves = (struct mw_int_list){NULL, 0};
    bare.cluster.leaf_nodes = 0;
    bare.cluster.oversubscription = 1;
    return bare;
}

/* May a slot take this pool? Of alike leaves that hold nothing yet the first
 * alone: the others give the same orders. */
static bool may_take(const struct pools *p, const int *left, int i, int slot)
{
    const struct pool *pool = &p->v[i];

    if (left[i] == 0 ||
        (pool->is_part && (p->n_last == 0 || slot + 1 < p->n_slots))) {
        return false;
    }
    for (int k = 0; k < i && left[i] == pool->n && !pool->is_part; k++) {
        if (p->v[k].n == pool->n && p->v[k].n_leaf == pool->n_leaf &&
            left[k] == p->v[k].n) {
            return false;
        }
    }
    return true;
}

struct counter {
    const struct pools *pools;
    int *left;
    uint64_t n, limit;
};

static void count_from(struct counter *c, int slot)
{
    if (slot == c->pools->n_slots) {
        c->n++;
        return;
    }
    for (int i = 0; i < c->pools->n && c->n <= c->limit; i++) {
        if (may_take(c->pools, c->left, i, slot)) {
            c->left[i]--;
            count_from(c, slot + 1);
            c->left[i]++;
        }
    }
}

static int *left_of(const struct pools *p, struct mw_arena *arena)
{
    int *left = mw_arena_alloc(arena, (size_t)p->n, sizeof *left);

    for (int i = 0; i < p->n; i++) {
        left[i] = p->v[i].n;
    }
    return left;
}

uint64_t mw_node_order_count(const struct mw_cluster *cluster, int unit_nodes,
                             uint64_t limit)
{
    struct mw_arena arena;
    struct pools pools;
    struct counter c = {.pools = &pools, .limit = limit};

    mw_arena_init(&arena);
    pools_init(&pools, cluster, unit_nodes, &arena);
    c.left = left_of(&pools, &arena);
    count_from(&c, 0);
    mw_arena_release(&arena);
    return c.n;
}

/* ---- orders ----------------------------------------------------------------
 */
/* Units of a pool in the allocation's order. */
static void set_nodes(const struct choice *c, const int *pool, int64_t *nodes)
{
    const struct pools *p = &c->pools;
    int *next = mw_calloc((size_t)p->n, sizeof *next);
    int n = c->scenario->cluster.n_nodes;

    for (int slot = 0; slot < p->n_slots; slot++) {
        int first = p->v[pool[slot]].start[next[pool[slot]]++];

        for (int i = 0; i < p->unit_nodes && slot * p->unit_nodes + i < n;
             i++) {
            nodes[slot * p->unit_nodes + i] = first + i;
        }
    }
    mw_free(next);
}

static void take_order(struct choice *c, const int *pool)
{
    set_nodes(c, pool, c->out->nodes);
    c->plan->layout.nodes = (struct mw_int_list){
        c->out->nodes, (size_t)c->scenario->cluster.n_nodes};
}

static bool is_beaten(const struct choice *c, const int *mark, const int *by)
{
    for (size_t i = 0; i < c->n_marks; i++) {
        if (by[i] > mark[i]) {
            return false;
        }
    }
    return true;
}

/* Keeps the order at hand unless one that is kept matches or beats it. */
static void look_at(struct choice *c)
{
    size_t n = 0;

    c->out->n_orders++;
    take_order(c, c->pool);
    mw_fast_order_marks(c->scenario, c->ctx, &c->plan->layout, c->mark);
    for (size_t i = 0; i < c->kept.n; i++) {
        if (is_beaten(c, c->mark, c->kept.v[i].mark)) {
            return;
        }
    }
    for (size_t i = 0; i < c->kept.n; i++) {
        if (!is_beaten(c, c->kept.v[i].mark, c->mark)) {
            c->kept.v[n++] = c->kept.v[i];
        }
    }
    c->kept.n = n;
    struct order o = {
        .pool = mw_arena_alloc(&c->arena, (size_t)c->n_slots, sizeof *o.pool),
        .mark = mw_arena_alloc(&c->arena, c->n_marks, sizeof *o.mark)};

    memcpy(o.pool, c->pool, (size_t)c->n_slots * sizeof *o.pool);
    memcpy(o.mark, c->mark, c->n_marks * sizeof *o.mark);
    mw_array_push(&c->kept, o);
}

static void look_at_all(struct choice *c, int slot)
{
    if (slot == c->n_slots) {
        look_at(c);
        return;
    }
    for (int i = 0; i < c->pools.n; i++) {
        if (may_take(&c->pools, c->left, i, slot)) {
            c->left[i]--;
            c->pool[slot] = i;
            look_at_all(c, slot + 1);
            c->left[i]++;
        }
    }
}

/* ---- downhill --------------------------------------------------------------
 */
static double fast_s(struct choice *c)
{
    double time_s = HUGE_VAL;

    c->out->n_orders++;
    take_order(c, c->pool);
    return mw_fast_estimate(c->fast, &c->plan->layout, c->plan->layers, &time_s,
                            NULL, NULL) == MW_OK
               ? time_s
               : HUGE_VAL;
}

static void exchange(int *pool, int a, int b, int len)
{
    for (int i = 0; i < len; i++) {
        int held = pool[a + i];

        pool[a + i] = pool[b + i];
        pool[b + i] = held;
    }
}

/* Slots that hold a whole unit; those that stand by follow all that are held.
 */
static int whole_slots(const struct pools *p)
{
    return p->n_slots - (p->n_last > 0);
}

/* Exchanges pieces of `len` slots while one helps. Units that stand by are the
 * last piece of the list: they are exchanged one by one. */
static void walk_down(struct choice *c, int len, uint64_t budget)
{
    int n_held = whole_slots(&c->pools);
    int n_all = len > 1 ? n_held : c->pools.n_whole + c->pools.takes_part;
    double best_s = fast_s(c);
    bool is_better = true;

    while (is_better) {
        is_better = false;
        for (int a = 0; a + len <= n_held; a += len) {
            for (int b = a + len; b + len <= n_all; b += len) {
                bool is_last = b >= n_held && b < c->n_slots;

                if (c->out->n_orders > budget) {
                    return;
                }
                if (is_last || memcmp(c->pool + a, c->pool + b,
                                      (size_t)len * sizeof *c->pool) == 0) {
                    continue;
                }
                exchange(c->pool, a, b, len);
                double time_s = fast_s(c);

                if (time_s < best_s * (1 - 1e-12)) {
                    best_s = time_s;
                    is_better = true;
                } else {
                    exchange(c->pool, a, b, len);
                }
            }
        }
    }
}

/* Whole leaves one after the other: the first `turn` leaves go behind, and
 * small ones first, large ones first, or as they come. A last slot that is no
 * whole unit takes the part of a rack where there is one. */
static void start_order(struct choice *c, int turn)
{
    const struct pools *p = &c->pools;
    int n = p->n - p->takes_part, slot = 0;
    int *by = mw_calloc((size_t)n, sizeof *by);

    for (int i = 0; i < n; i++) {
        by[i] = (i + turn / 3) % n;
    }
    for (int i = 1; turn % 3 > 0 && i < n; i++) {
        for (int k = i; k > 0; k--) {
            int d = p->v[by[k]].n - p->v[by[k - 1]].n;

            if (turn % 3 == 1 ? d < 0 : d > 0) {
                exchange(by, k, k - 1, 1);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < p->v[by[i]].n; k++) {
            if (p->takes_part && slot == whole_slots(p)) {
                c->pool[slot++] = n;
            }
            c->pool[slot++] = by[i];
        }
    }
    if (p->takes_part && slot == whole_slots(p)) {
        c->pool[slot] = n;
    }
    mw_free(by);
}

static void look_at_some(struct choice *c)
{
    const struct mw_layout *l = &c->plan->layout;
    const int lens[] = {c->n_slots / l->pp, c->n_slots / l->dp, 1};
    int n_leaves = (int)c->scenario->cluster.leaves.n;
    int n_starts = 3 * n_leaves < STARTS_MAX ? 3 * n_leaves : STARTS_MAX;
    uint64_t budget = WORK_MAX / (uint64_t)mw_layout_ranks(l);

    c->fast = mw_fast_new(c->scenario, c->ctx);
    for (int turn = 0; turn < n_starts; turn++) {
        start_order(c, turn);
        look_at(c);
        for (int i = 0; i < 3; i++) {
            if (lens[i] > 0) {
                walk_down(c, lens[i],
                          budget * (uint64_t)(turn + 1) / (uint64_t)n_starts);
            }
        }
        look_at(c);
    }
    mw_fast_free(c->fast);
}

/* ---- simulations -----------------------------------------------------------
 */
static enum mw_status simulate(const struct choice *c,
                               const struct mw_scenario *scenario,
                               double *out_s, struct mw_err *err)
{
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    enum mw_status status =
        mw_step_simulate(scenario, c->plan, c->ctx, &opts, &step, err);

    if (status == MW_OK) {
        c->out->n_priced++;
        *out_s = step.step_time_s;
        mw_step_result_release(&step);
    }
    return status;
}

static enum mw_status simulate_ends(struct choice *c, struct mw_err *err)
{
    const struct mw_scenario bare = mw_node_order_bare(c->scenario);
    enum mw_status status;

    c->plan->layout.nodes = (struct mw_int_list){NULL, 0};
    status = simulate(c, &bare, &c->out->bound_s, err);
    return status == MW_OK ? simulate(c, c->scenario, &c->out->allocated_s, err)
                           : status;
}

/* Of the orders that none beats, the fastest. */
static enum mw_status simulate_kept(struct choice *c, struct mw_err *err)
{
    struct mw_node_order *out = c->out;
    size_t best = 0, n = c->kept.n < SIMULATED_MAX ? c->kept.n : SIMULATED_MAX;
    enum mw_status status = MW_OK;

    out->time_s = HUGE_VAL;
    for (size_t i = 0; i < n && status == MW_OK; i++) {
        double time_s = HUGE_VAL;

        take_order(c, c->kept.v[i].pool);
        status = simulate(c, c->scenario, &time_s, err);
        if (time_s < out->time_s) {
            out->time_s = time_s;
            best = i;
        }
        if (time_s <= out->bound_s * (1 + 1e-12)) {
            break;
        }
    }
    take_order(c, c->kept.v[best].pool);
    return status;
}

static int unit_nodes(const struct mw_cost_ctx *ctx)
{
    return ctx->domain_gpus / ctx->gpus_per_node;
}

static void choice_init(struct choice *c, const struct mw_scenario *scenario)
{
    size_t pp = (size_t)c->plan->layout.pp;

    mw_arena_init(&c->arena);
    pools_init(&c->pools, &scenario->cluster, unit_nodes(c->ctx), &c->arena);
    c->n_slots = c->pools.n_slots;
    c->n_marks = MW_ORDER_MARKS * pp;
    c->left = left_of(&c->pools, &c->arena);
    c->pool = mw_arena_alloc(&c->arena, (size_t)c->pools.n_whole + 2,
                             sizeof *c->pool);
    c->mark = mw_arena_alloc(&c->arena, c->n_marks, sizeof *c->mark);
    c->n_marks =
        mw_fast_order_marks(scenario, c->ctx, &c->plan->layout, c->mark);
}

enum mw_status mw_node_order_choose(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx,
                                    struct mw_plan *plan,
                                    struct mw_node_order *out,
                                    struct mw_err *err)
{
    struct choice c = {
        .scenario = scenario, .ctx = ctx, .plan = plan, .out = out};
    int64_t *nodes = out->nodes;
    enum mw_status status;

    *out = (struct mw_node_order){.nodes = nodes};
    choice_init(&c, scenario);
    bool is_all = mw_node_order_count(&scenario->cluster, unit_nodes(ctx),
                                      MW_ORDERS_MAX) <= MW_ORDERS_MAX;

    status = simulate_ends(&c, err);
    if (status == MW_OK && is_all) {
        look_at_all(&c, 0);
    } else if (status == MW_OK) {
        look_at_some(&c);
    }
    if (status == MW_OK) {
        is_all = is_all && c.kept.n <= SIMULATED_MAX;
        status = simulate_kept(&c, err);
        out->is_proved = is_all || out->time_s <= out->bound_s * (1 + 1e-12);
    }
    mw_array_release(&c.kept);
    mw_arena_release(&c.arena);
    return status;
}
