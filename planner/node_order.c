/*
 * The order of nodes on leaves of several sizes: see node_order.h.
 *
 * An order is a list of leaves, one a slot. Orders are compared by their marks
 * (mw_fast_order_marks): one that another matches or beats in every mark cannot
 * be faster, so only those that no other beats are simulated (event form). Of
 * more orders than can be looked at, exchanges of stages, of replicas and of
 * single nodes lead from each order of whole leaves downhill in the fast form,
 * which remembers the prices of units.
 */
#include "planner/node_order.h"

#include "planner/planner.h"

#include <math.h>
#include <string.h>

enum { STARTS_MAX = 24, WORK_MAX = 4000000, SIMULATED_MAX = 64 };

struct order {
    int *leaf; /* [n_slots] */
    int *mark; /* [n_marks] */
    double fast_s;
};
struct choice {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    struct mw_plan *plan;
    struct mw_node_order *out;
    struct mw_arena arena;
    struct mw_fast *fast;
    int n_slots, n_leaves;
    int *size, *first; /* [n_leaves] nodes, and the first of them */
    int *left, *leaf;  /* of the order at hand: nodes left, leaves of slots */
    int *mark;
    size_t n_marks;
    MW_ARRAY(struct order) kept; /* none beats another */
};

/* ---- the cluster -----------------------------------------------------------
 */
/* Nodes of a leaf; of the last also those that a what-if adds. */
static int leaf_size(const struct mw_cluster *c, int leaf)
{
    int64_t before = 0;

    for (int i = 0; i < leaf; i++) {
        before += c->leaves.v[i];
    }
    return (size_t)leaf + 1 < c->leaves.n
               ? (int)c->leaves.v[leaf]
               : mw_cluster_allocated(c) - (int)before;
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

/* May a slot take this leaf? Of alike leaves that hold nothing yet the first
 * alone: the others give the same orders. */
static bool may_take(const int *size, const int *left, int leaf)
{
    if (left[leaf] == 0) {
        return false;
    }
    for (int other = 0; other < leaf && left[leaf] == size[leaf]; other++) {
        if (size[other] == size[leaf] && left[other] == size[other]) {
            return false;
        }
    }
    return true;
}

struct counter {
    const int *size;
    int *left;
    int n_leaves, n_slots;
    uint64_t n, limit;
};

static void count_from(struct counter *c, int slot)
{
    if (slot == c->n_slots) {
        c->n++;
        return;
    }
    for (int leaf = 0; leaf < c->n_leaves && c->n <= c->limit; leaf++) {
        if (may_take(c->size, c->left, leaf)) {
            c->left[leaf]--;
            count_from(c, slot + 1);
            c->left[leaf]++;
        }
    }
}

uint64_t mw_node_order_count(const struct mw_cluster *cluster, uint64_t limit)
{
    int n = (int)cluster->leaves.n;
    int *size = mw_calloc(2 * (size_t)n, sizeof *size);
    struct counter c = {.size = size,
                        .left = size + n,
                        .n_leaves = n,
                        .n_slots = cluster->n_nodes,
                        .limit = limit};

    for (int leaf = 0; leaf < n; leaf++) {
        size[leaf] = c.left[leaf] = leaf_size(cluster, leaf);
    }
    count_from(&c, 0);
    mw_free(size);
    return c.n;
}

/* ---- orders ----------------------------------------------------------------
 */
/* Nodes of a leaf in the allocation's order. */
static void set_nodes(const struct choice *c, const int *leaf, int64_t *nodes)
{
    int *next = mw_calloc((size_t)c->n_leaves, sizeof *next);

    for (int slot = 0; slot < c->n_slots; slot++) {
        nodes[slot] = c->first[leaf[slot]] + next[leaf[slot]]++;
    }
    mw_free(next);
}

static void take_order(struct choice *c, const int *leaf)
{
    set_nodes(c, leaf, c->out->nodes);
    c->plan->layout.nodes =
        (struct mw_int_list){c->out->nodes, (size_t)c->n_slots};
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
    take_order(c, c->leaf);
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
        .leaf = mw_arena_alloc(&c->arena, (size_t)c->n_slots, sizeof *o.leaf),
        .mark = mw_arena_alloc(&c->arena, c->n_marks, sizeof *o.mark)};

    memcpy(o.leaf, c->leaf, (size_t)c->n_slots * sizeof *o.leaf);
    memcpy(o.mark, c->mark, c->n_marks * sizeof *o.mark);
    mw_array_push(&c->kept, o);
}

static void look_at_all(struct choice *c, int slot)
{
    if (slot == c->n_slots) {
        look_at(c);
        return;
    }
    for (int leaf = 0; leaf < c->n_leaves; leaf++) {
        if (may_take(c->size, c->left, leaf)) {
            c->left[leaf]--;
            c->leaf[slot] = leaf;
            look_at_all(c, slot + 1);
            c->left[leaf]++;
        }
    }
}

/* ---- downhill --------------------------------------------------------------
 */
static double fast_s(struct choice *c)
{
    double time_s = HUGE_VAL;

    c->out->n_orders++;
    take_order(c, c->leaf);
    return mw_fast_estimate(c->fast, &c->plan->layout, c->plan->layers, &time_s,
                            NULL, NULL) == MW_OK
               ? time_s
               : HUGE_VAL;
}

static void exchange(int *leaf, int a, int b, int len)
{
    for (int i = 0; i < len; i++) {
        int held = leaf[a + i];

        leaf[a + i] = leaf[b + i];
        leaf[b + i] = held;
    }
}

/* Exchanges pieces of `len` slots while one helps. Nodes that stand by are the
 * last piece of the list: they are exchanged one by one. */
static void walk_down(struct choice *c, int len, uint64_t budget)
{
    int n_all =
        len == 1 ? mw_cluster_allocated(&c->scenario->cluster) : c->n_slots;
    double best_s = fast_s(c);
    bool is_better = true;

    while (is_better) {
        is_better = false;
        for (int a = 0; a + len <= c->n_slots; a += len) {
            for (int b = a + len; b + len <= n_all; b += len) {
                if (c->out->n_orders > budget) {
                    return;
                }
                if (memcmp(c->leaf + a, c->leaf + b,
                           (size_t)len * sizeof *c->leaf) == 0) {
                    continue;
                }
                exchange(c->leaf, a, b, len);
                double time_s = fast_s(c);

                if (time_s < best_s * (1 - 1e-12)) {
                    best_s = time_s;
                    is_better = true;
                } else {
                    exchange(c->leaf, a, b, len);
                }
            }
        }
    }
}

/* Whole leaves one after the other: the first `turn` leaves go behind, and
 * small ones first, large ones first, or as they come. */
static void start_order(struct choice *c, int turn)
{
    int n = c->n_leaves, slot = 0;
    int *by = mw_calloc((size_t)n, sizeof *by);

    for (int i = 0; i < n; i++) {
        by[i] = (i + turn / 3) % n;
    }
    for (int i = 1; turn % 3 > 0 && i < n; i++) {
        for (int k = i; k > 0; k--) {
            int d = c->size[by[k]] - c->size[by[k - 1]];

            if (turn % 3 == 1 ? d < 0 : d > 0) {
                exchange(by, k, k - 1, 1);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < c->size[by[i]]; k++) {
            c->leaf[slot++] = by[i];
        }
    }
    mw_free(by);
}

static void look_at_some(struct choice *c)
{
    const struct mw_layout *l = &c->plan->layout;
    const int lens[] = {c->n_slots / l->pp, c->n_slots / l->dp, 1};
    int n_starts = 3 * c->n_leaves < STARTS_MAX ? 3 * c->n_leaves : STARTS_MAX;
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

        take_order(c, c->kept.v[i].leaf);
        status = simulate(c, c->scenario, &time_s, err);
        if (time_s < out->time_s) {
            out->time_s = time_s;
            best = i;
        }
        if (time_s <= out->bound_s * (1 + 1e-12)) {
            break;
        }
    }
    take_order(c, c->kept.v[best].leaf);
    return status;
}

static void choice_init(struct choice *c, const struct mw_scenario *scenario)
{
    const struct mw_cluster *cluster = &scenario->cluster;
    int n = (int)cluster->leaves.n;
    size_t n_all = (size_t)mw_cluster_allocated(cluster);
    size_t pp = (size_t)c->plan->layout.pp;

    mw_arena_init(&c->arena);
    c->n_leaves = n;
    c->n_slots = cluster->n_nodes;
    c->n_marks = MW_ORDER_MARKS + 3 * pp;
    c->size = mw_arena_alloc(&c->arena, (size_t)n, sizeof *c->size);
    c->first = mw_arena_alloc(&c->arena, (size_t)n, sizeof *c->first);
    c->left = mw_arena_alloc(&c->arena, (size_t)n, sizeof *c->left);
    c->leaf = mw_arena_alloc(&c->arena, n_all, sizeof *c->leaf);
    c->mark = mw_arena_alloc(&c->arena, c->n_marks, sizeof *c->mark);
    for (int i = 0; i < n; i++) {
        c->size[i] = c->left[i] = leaf_size(cluster, i);
        c->first[i] = i > 0 ? c->first[i - 1] + c->size[i - 1] : 0;
    }
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
    bool is_all =
        mw_node_order_count(&scenario->cluster, MW_ORDERS_MAX) <= MW_ORDERS_MAX;

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
