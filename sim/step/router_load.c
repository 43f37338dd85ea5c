/*
 * The busiest rank of an expert-parallel group, by counts; see router_load.h.
 *
 *   x(t, m, l, r)  rows that micro-batch m of step t brings to rank r in layer
 *                  l: sums of the table over the group's sequences and the
 *                  rank's experts (router_sums.c), of each replica and expert
 *                  no more than the capacity
 *   synced         mean over t of max over groups of mean over m, l of
 *                  max_r x / mean_r x, the mean of what was routed
 *   apart          the same with max_r over the sum of a stage's layers
 *   nodes          as synced, of the ranks of a node together
 *   held           median and 0.9 quantile over t, groups, m and stages of
 *                  max_r over the sum of a stage's layers: what is in memory
 *
 * A group is ep x etp ranks in a row, tp and cp inside: whole replicas, whose
 * sequences of one micro-batch come together, or a part of one, which is taken
 * to have a part of each sequence like the others. Left out: layers of unequal
 * stages, and what the routers learn later.
 */
#include "sim/step/router_load.h"

#include "base/stats.h"
#include "sim/pipe/schedule.h"

#include <math.h>
#include <string.h>

/* Ranks that sums are made for at a time. */
enum { EP_MAX = 1024 };

/* ---- one group -------------------------------------------------------------
 */
struct mw_router_group mw_router_group_of(const struct mw_router_sums *sums,
                                          const struct mw_cost_ctx *ctx,
                                          const struct mw_scenario *scenario,
                                          const struct mw_layout *l)
{
    const struct mw_workload *w = &scenario->workload;
    int inside = l->tp * l->cp, all = l->ep * l->etp;
    int n = all > inside ? all / inside : 1, n_stages = l->pp * l->vpp;
    struct mw_router_group g = {.n_ranks = l->ep, .per_node = 1};
    bool is_counted = sums->below != NULL && !(w->expert_imbalance > 1) &&
                      (l->ep > 1 || w->capacity_factor > 0) &&
                      l->ep <= EP_MAX && l->dp >= n &&
                      sums->batch >= l->dp * l->micro_batch;

    if (l->ep > 1 && (is_counted || w->expert_imbalance > 1)) {
        g.per_node =
            mw_cost_group(l, MW_DIM_EP, ctx->domain_gpus).ranks_per_node;
    }
    if (is_counted) {
        g.n_replicas = n;
        g.n_groups = l->dp / n;
        g.n_microbatches = sums->batch / (l->dp * l->micro_batch);
        g.n_seqs = l->micro_batch;
        g.depth = (sums->n_layers + n_stages - 1) / n_stages;
    }
    return g;
}

/* What comes to each rank, and how much was routed before the capacity. */
struct brought {
    double routed, kept;
    double x[EP_MAX];
};

/* All but x are of a structure's first bytes: x has room for more ranks than
 * most groups have. */
static void forget(struct brought *b, int n_ranks)
{
    memset(b, 0,
           offsetof(struct brought, x) + (size_t)n_ranks * sizeof b->x[0]);
}

struct counting {
    const struct mw_router_sums *sums;
    const struct mw_router_group *g;
    double capacity; /* of a replica's rows to an expert, over the mean; 0: all
                      */
    int first_q;     /* of the step */
    struct brought layer, stage;
    MW_ARRAY(double) held; /* one for each group, micro-batch and stage */
    double routed, kept;
};

/* Of a replica's micro-batch, between two rows of sums. */
static void add_all(struct counting *c, const int64_t *lo, const int64_t *hi)
{
    int each = c->sums->n_experts / c->g->n_ranks;
    int64_t before = 0;

    for (int r = 0; r < c->g->n_ranks; r++) {
        int e = (r + 1) * each;
        int64_t n = hi[e] - lo[e];

        c->layer.x[r] += (double)(n - before);
        before = n;
    }
    c->layer.routed += (double)before;
    c->layer.kept += (double)before;
}

static void add_capped(struct counting *c, const int64_t *lo, const int64_t *hi)
{
    int n_experts = c->sums->n_experts, each = n_experts / c->g->n_ranks;
    double routed = (double)(hi[n_experts] - lo[n_experts]);
    double limit = c->capacity * routed / n_experts;

    for (int e = 0; e < n_experts; e++) {
        double n = (double)(hi[e + 1] - lo[e + 1] - (hi[e] - lo[e]));

        n = n < limit ? n : limit;
        c->layer.x[e / each] += n;
        c->layer.kept += n;
    }
    c->layer.routed += routed;
}

static void add_microbatch(struct counting *c, int l, int group, int m)
{
    const struct mw_router_group *g = c->g;
    size_t row = (size_t)c->sums->n_experts + 1;
    const int64_t *of_layer =
        c->sums->below + (size_t)l * ((size_t)c->sums->n_seqs + 1) * row;

    forget(&c->layer, g->n_ranks);
    for (int i = 0; i < g->n_replicas; i++) {
        int replica = group * g->n_replicas + i;
        int q = c->first_q + (replica * g->n_microbatches + m) * g->n_seqs;
        const int64_t *lo = of_layer + (size_t)q * row;
        const int64_t *hi = lo + (size_t)g->n_seqs * row;

        (c->capacity > 0 ? add_capped : add_all)(c, lo, hi);
    }
    c->routed += c->layer.routed;
    c->kept += c->layer.kept;
    c->stage.routed += c->layer.routed;
    for (int r = 0; r < g->n_ranks; r++) {
        c->stage.x[r] += c->layer.x[r];
    }
}

/* Of so many neighbours together. */
static double over_mean(const struct brought *b, int n_ranks, int together)
{
    double most = 0;

    for (int r = 0; r < n_ranks;) {
        int end = n_ranks - r < together ? n_ranks : r + together;
        double sum = 0;

        while (r < end) {
            sum += b->x[r++];
        }
        most = sum > most ? sum : most;
    }
    return b->routed > 0 ? most * n_ranks / together / b->routed : 1;
}

/* ---- sums over a step ------------------------------------------------------
 */
static void add_stage(struct counting *c, double *apart)
{
    double load = over_mean(&c->stage, c->g->n_ranks, 1);

    mw_array_push(&c->held, load);
    *apart += load;
    forget(&c->stage, c->g->n_ranks);
}

/* Mean over micro-batches and layers, stages of `depth` layers each. */
static struct mw_router_load group_load(struct counting *c, int group)
{
    const struct mw_router_group *g = c->g;
    int n_layers = c->sums->n_layers, n_stages = 0;
    struct mw_router_load sum = {0};

    forget(&c->stage, g->n_ranks);
    for (int m = 0; m < g->n_microbatches; m++) {
        for (int l = 0; l < n_layers; l++) {
            add_microbatch(c, l, group, m);
            sum.synced += over_mean(&c->layer, g->n_ranks, 1);
            sum.nodes += over_mean(&c->layer, g->n_ranks, g->per_node);
            if ((l + 1) % g->depth == 0 || l + 1 == n_layers) {
                add_stage(c, &sum.apart);
                n_stages++;
            }
        }
    }
    sum.synced /= g->n_microbatches * n_layers;
    sum.nodes /= g->n_microbatches * n_layers;
    sum.apart /= n_stages;
    return sum;
}

/* The busiest of all groups. */
static struct mw_router_load step_load(struct counting *c)
{
    struct mw_router_load most = {0};

    for (int i = 0; i < c->g->n_groups; i++) {
        struct mw_router_load one = group_load(c, i);

        most.synced = fmax(most.synced, one.synced);
        most.apart = fmax(most.apart, one.apart);
        most.nodes = fmax(most.nodes, one.nodes);
    }
    return most;
}

static struct mw_router_load counted(const struct mw_router_sums *sums,
                                     const struct mw_router_group *g,
                                     double capacity)
{
    struct mw_router_load load = {0};
    struct counting c = {.sums = sums, .g = g, .capacity = capacity};
    int n_steps = sums->n_seqs / sums->batch;

    for (int i = 0; i < n_steps; i++) {
        c.first_q = i * sums->batch;
        struct mw_router_load one = step_load(&c);

        load.synced += one.synced / n_steps;
        load.apart += one.apart / n_steps;
        load.nodes += one.nodes / n_steps;
    }
    load.held = mw_quantile(c.held.v, c.held.n, 0.5);
    load.held_p90 = mw_quantile_sorted(c.held.v, c.held.n, 0.9);
    load.dropped = c.routed > 0 ? (c.routed - c.kept) / c.routed : 0;
    mw_array_release(&c.held);
    return load;
}

/* ---- all of them -----------------------------------------------------------
 */
struct mw_router_load mw_router_group_load(const struct mw_router_sums *sums,
                                           const struct mw_workload *w,
                                           const struct mw_router_group *g)
{
    return g->n_groups > 0
               ? counted(sums, g, w->capacity_factor)
               : mw_router_load_skewed(w->expert_imbalance, w->capacity_factor,
                                       g->n_ranks, g->per_node);
}

bool mw_router_learns_by_layer(const struct mw_layout *l)
{
    const struct mw_sched_kind *kind =
        l->pp > 1 ? mw_schedule_kind_find(l->schedule) : NULL;

    return l->recompute == MW_RECOMPUTE_FULL &&
           !(kind != NULL && kind->is_split);
}

struct mw_router_load mw_router_load_under(const struct mw_router_load *load,
                                           const struct mw_workload *w,
                                           const struct mw_layout *layout)
{
    struct mw_router_load under = *load;

    if (mw_router_learns_by_layer(layout)) {
        under.apart = under.synced;
    }
    return w->pads_to_capacity
               ? mw_router_load_padded(&under, w->capacity_factor)
               : under;
}

struct mw_router_load mw_router_load_of(const struct mw_cost_ctx *ctx,
                                        const struct mw_scenario *scenario,
                                        const struct mw_layout *layout)
{
    const struct mw_workload *w = &scenario->workload;
    struct mw_router_sums sums;

    if (scenario->model.moe.n_experts == 0) {
        return mw_router_load_skewed(1, 0, 1, 1);
    }
    mw_router_sums_init(&sums, ctx, scenario);
    struct mw_router_group g = mw_router_group_of(&sums, ctx, scenario, layout);
    struct mw_router_load load = mw_router_group_load(&sums, w, &g);

    mw_router_sums_release(&sums);
    return mw_router_load_under(&load, w, layout);
}
