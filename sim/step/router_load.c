/*
 * The busiest rank of an expert-parallel group, by counts; see router_load.h.
 *
 *   x(t, m, l, r)  rows that micro-batch m of step t brings to rank r in layer
 *                  l: sums of the table over the group's sequences and the
 *                  rank's experts, of each replica and expert no more than the
 *                  capacity
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
#include "hwdb/hwdb.h"
#include "sim/pipe/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Experts that a rank's sums are made for at a time. */
enum { EP_MAX = 1024 };

struct counts {
    const int64_t *rows;             /* [layer][sequence][expert] */
    size_t stride;                   /* from one to the next */
    int n_layers, n_seqs, n_experts; /* of the table; layers of experts */
    int batch;                       /* sequences of a step */
};

static void take_sizes(const struct mw_scenario *s, struct counts *out)
{
    out->n_layers = mw_model_moe_layers(&s->model, s->model.n_layers);
    out->n_experts = s->model.moe.n_experts;
    out->batch = (int)s->workload.global_batch;
}

/* Those of an overlay, if they are of this scenario, as many as its sizes ask
 * for. */
static bool find_overlay(const struct mw_cost_ctx *ctx,
                         const struct mw_scenario *s, struct counts *out)
{
    const char *of = mw_hwdb_machine(ctx->db, "router_scenario");
    const struct mw_router_row *row;
    size_t n = mw_hwdb_router(ctx->db, &row);
    char hash[24];

    snprintf(hash, sizeof hash, "%016" PRIx64, s->hash);
    take_sizes(s, out);
    if (of == NULL || n == 0 || out->n_layers == 0 || strcmp(of, hash) != 0) {
        return false;
    }
    size_t each = (size_t)out->n_layers * (size_t)out->n_experts;

    out->rows = &row->rows;
    out->stride = sizeof *row / sizeof row->rows;
    out->n_seqs = (int)(n / each);
    return n % each == 0 && out->n_seqs >= out->batch &&
           out->n_seqs % out->batch == 0;
}

/* The scenario's own, which reading it has checked, or an overlay's. */
static bool find_counts(const struct mw_cost_ctx *ctx,
                        const struct mw_scenario *s, struct counts *out)
{
    if (s->router.rows == NULL) {
        return find_overlay(ctx, s, out);
    }
    take_sizes(s, out);
    out->rows = s->router.rows;
    out->stride = 1;
    out->n_seqs = s->router.n_seqs;
    return out->n_layers > 0;
}

/* ---- one group -------------------------------------------------------------
 */
/* Sequences of a micro-batch that come together. */
struct group {
    int n_replicas, n_groups; /* replicas of a group; groups of a stage */
    int n_microbatches, n_seqs;
    int n_ranks, per_rank; /* ep; experts of each */
    int per_node;          /* ranks */
    double capacity;       /* of a replica's rows to an expert, over the mean;
                              0: all */
};

static struct group group_of(const struct mw_cost_ctx *ctx,
                             const struct mw_layout *l, const struct counts *c,
                             double capacity)
{
    int inside = l->tp * l->cp, all = l->ep * l->etp;
    int n = all > inside ? all / inside : 1;
    struct mw_group ep = mw_cost_group(l, MW_DIM_EP, ctx->domain_gpus);

    return (struct group){.n_replicas = n,
                          .n_groups = l->dp / n,
                          .n_microbatches = c->batch / (l->dp * l->micro_batch),
                          .n_seqs = l->micro_batch,
                          .n_ranks = l->ep,
                          .per_rank = c->n_experts / l->ep,
                          .per_node = ep.ranks_per_node,
                          .capacity = capacity};
}

/* What comes to each rank, and how much was routed before the capacity. */
struct brought {
    double x[EP_MAX], routed, kept;
};

static double rows_of(const struct counts *c, int layer, int q, int e)
{
    size_t at =
        ((size_t)layer * (size_t)c->n_seqs + (size_t)q) * (size_t)c->n_experts +
        (size_t)e;

    return (double)c->rows[at * c->stride];
}

/* Of the sequences q, q + 1 ... of a replica's micro-batch. */
static double expert_rows(const struct counts *c, const struct group *g,
                          int layer, int q, int e)
{
    double n = 0;

    for (int s = 0; s < g->n_seqs; s++) {
        n += rows_of(c, layer, q + s, e);
    }
    return n;
}

static void add_replica(const struct counts *c, const struct group *g,
                        int layer, int q, struct brought *b)
{
    double routed = 0, limit = (double)INFINITY;

    for (int e = 0; e < c->n_experts; e++) {
        routed += expert_rows(c, g, layer, q, e);
    }
    if (g->capacity > 0) {
        limit = g->capacity * routed / c->n_experts;
    }
    for (int e = 0; e < c->n_experts; e++) {
        double n = fmin(expert_rows(c, g, layer, q, e), limit);

        b->x[e / g->per_rank] += n;
        b->kept += n;
    }
    b->routed += routed;
}

static void add_microbatch(const struct counts *c, const struct group *g,
                           int layer, int first_q, int group, int m,
                           struct brought *b)
{
    for (int i = 0; i < g->n_replicas; i++) {
        int replica = group * g->n_replicas + i;

        add_replica(c, g, layer,
                    first_q + (replica * g->n_microbatches + m) * g->n_seqs, b);
    }
}

/* Of so many neighbours together. */
static double over_mean(const struct brought *b, int n_ranks, int together)
{
    double most = 0, sum = 0;

    for (int r = 0; r < n_ranks; r++) {
        sum += b->x[r];
        if ((r + 1) % together == 0 || r + 1 == n_ranks) {
            most = fmax(most, sum);
            sum = 0;
        }
    }
    return b->routed > 0 ? most * n_ranks / together / b->routed : 1;
}

/* ---- sums over a step ------------------------------------------------------
 */
struct tally {
    MW_ARRAY(double) held; /* one for each group, micro-batch and stage */
    double routed, kept;
};

static void add_stage(struct tally *t, struct brought *stage, int n_ranks,
                      double *apart)
{
    double load = over_mean(stage, n_ranks, 1);

    mw_array_push(&t->held, load);
    *apart += load;
    *stage = (struct brought){.routed = 0};
}

/* Mean over micro-batches and layers, stages of `depth` layers each. */
static struct mw_router_load group_load(const struct counts *c,
                                        const struct group *g, int first_q,
                                        int group, int depth, struct tally *t)
{
    struct mw_router_load sum = {0};
    int n_stages = 0;

    for (int m = 0; m < g->n_microbatches; m++) {
        struct brought stage = {.routed = 0};

        for (int l = 0; l < c->n_layers; l++) {
            struct brought layer = {.routed = 0};

            add_microbatch(c, g, l, first_q, group, m, &layer);
            sum.synced += over_mean(&layer, g->n_ranks, 1);
            sum.nodes += over_mean(&layer, g->n_ranks, g->per_node);
            t->routed += layer.routed;
            t->kept += layer.kept;
            stage.routed += layer.routed;
            for (int r = 0; r < g->n_ranks; r++) {
                stage.x[r] += layer.x[r];
            }
            if ((l + 1) % depth == 0 || l + 1 == c->n_layers) {
                add_stage(t, &stage, g->n_ranks, &sum.apart);
                n_stages++;
            }
        }
    }
    sum.synced /= g->n_microbatches * c->n_layers;
    sum.nodes /= g->n_microbatches * c->n_layers;
    sum.apart /= n_stages;
    return sum;
}

/* The busiest of all groups. */
static struct mw_router_load step_load(const struct counts *c,
                                       const struct group *g, int first_q,
                                       int depth, struct tally *t)
{
    struct mw_router_load most = {0};

    for (int i = 0; i < g->n_groups; i++) {
        struct mw_router_load one = group_load(c, g, first_q, i, depth, t);

        most.synced = fmax(most.synced, one.synced);
        most.apart = fmax(most.apart, one.apart);
        most.nodes = fmax(most.nodes, one.nodes);
    }
    return most;
}

/* ---- all of them -----------------------------------------------------------
 */
bool mw_router_learns_by_layer(const struct mw_layout *l)
{
    const struct mw_sched_kind *kind =
        l->pp > 1 ? mw_schedule_kind_find(l->schedule) : NULL;

    return l->recompute == MW_RECOMPUTE_FULL &&
           !(kind != NULL && kind->is_split);
}

static struct mw_router_load counted(const struct counts *c,
                                     const struct group *g, int n_stages)
{
    struct mw_router_load load = {0};
    struct tally t = {.routed = 0};
    int depth = (c->n_layers + n_stages - 1) / n_stages;
    int n_steps = c->n_seqs / c->batch;

    for (int i = 0; i < n_steps; i++) {
        struct mw_router_load one = step_load(c, g, i * c->batch, depth, &t);

        load.synced += one.synced / n_steps;
        load.apart += one.apart / n_steps;
        load.nodes += one.nodes / n_steps;
    }
    load.held = mw_quantile(t.held.v, t.held.n, 0.5);
    load.held_p90 = mw_quantile(t.held.v, t.held.n, 0.9);
    load.dropped = t.routed > 0 ? (t.routed - t.kept) / t.routed : 0;
    mw_array_release(&t.held);
    return load;
}

/* By one number, or even. */
static struct mw_router_load given(const struct mw_cost_ctx *ctx,
                                   const struct mw_workload *w,
                                   const struct mw_layout *l)
{
    int per_node = 1;

    if (l->ep > 1 && w->expert_imbalance > 1) {
        per_node = mw_cost_group(l, MW_DIM_EP, ctx->domain_gpus).ranks_per_node;
    }
    return mw_router_load_skewed(w->expert_imbalance, w->capacity_factor, l->ep,
                                 per_node);
}

struct mw_router_load mw_router_load_of(const struct mw_cost_ctx *ctx,
                                        const struct mw_scenario *scenario,
                                        const struct mw_layout *layout)
{
    const struct mw_workload *w = &scenario->workload;
    struct mw_router_load load;
    struct counts c;

    if (scenario->model.moe.n_experts == 0) {
        return mw_router_load_skewed(1, 0, 1, 1);
    }
    load = given(ctx, w, layout);
    if (!(w->expert_imbalance > 1) &&
        (layout->ep > 1 || w->capacity_factor > 0) && layout->ep <= EP_MAX &&
        find_counts(ctx, scenario, &c)) {
        struct group g = group_of(ctx, layout, &c, w->capacity_factor);

        if (g.n_groups >= 1 && g.n_microbatches >= 1) {
            load = counted(&c, &g, layout->pp * layout->vpp);
        }
    }
    if (mw_router_learns_by_layer(layout)) {
        load.apart = load.synced;
    }
    return w->pads_to_capacity
               ? mw_router_load_padded(&load, w->capacity_factor)
               : load;
}

/* ---- the table -------------------------------------------------------------
 */
static bool is_at(const struct mw_router_row *row, int layer, int q, int e)
{
    return row->layer == layer && row->sequence == q && row->expert == e;
}

enum mw_status mw_router_check(const struct mw_cost_ctx *ctx,
                               const struct mw_scenario *scenario,
                               struct mw_err *err)
{
    const char *of = mw_hwdb_machine(ctx->db, "router_scenario");
    const char *dir = mw_hwdb_overlay_dir(ctx->db);
    const struct mw_model *model = &scenario->model;
    const struct mw_router_row *row;
    struct counts c;
    size_t n = mw_hwdb_router(ctx->db, &row);
    char hash[24];
    size_t i = 0;

    snprintf(hash, sizeof hash, "%016" PRIx64, scenario->hash);
    if (of == NULL || n == 0 || strcmp(of, hash) != 0) {
        return MW_OK;
    }
    if (!find_overlay(ctx, scenario, &c)) {
        return mw_fail(err, MW_EINPUT,
                       "%s/router.csv: %zu rows are not those of %d layers of "
                       "%d experts and whole steps of %lld sequences; "
                       "calibrate again",
                       dir, n, mw_model_moe_layers(model, model->n_layers),
                       model->moe.n_experts,
                       (long long)scenario->workload.global_batch);
    }
    for (int layer = 0; layer < model->n_layers; layer++) {
        if (!mw_model_layer_is_moe(model, layer)) {
            continue;
        }
        for (int q = 0; q < c.n_seqs; q++) {
            for (int e = 0; e < c.n_experts; e++) {
                if (!is_at(&row[i++], layer, q, e)) {
                    return mw_fail(err, MW_EINPUT,
                                   "%s/router.csv: row %zu is not of layer "
                                   "%d, sequence %d, expert %d; calibrate "
                                   "again",
                                   dir, i, layer, q, e);
                }
            }
        }
    }
    return MW_OK;
}
