/*
 * The busiest rank of an expert-parallel group; see router_load.h.
 *
 *   x(t, m, l, r)  rows that micro-batch m of step t brings to rank r in layer
 *                  l: sums of the table over the group's sequences and the
 *                  rank's experts
 *   synced         mean over t of max over groups of mean over m, l of
 *                  max_r x / mean_r x
 *   apart          the same with max_r over the sum of a stage's layers
 *
 * A group is ep x etp ranks in a row, tp and cp inside: whole replicas, whose
 * sequences of one micro-batch come together, or a part of one, which is taken
 * to have a part of each sequence like the others. Left out: layers of unequal
 * stages, and what the routers learn later.
 */
#include "sim/step/router_load.h"

#include "hwdb/hwdb.h"
#include "sim/pipe/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Experts that a rank's sums are made for at a time. */
enum { EP_MAX = 1024 };

struct counts {
    const struct mw_router_row *row; /* [layer][sequence][expert] */
    int n_layers, n_seqs, n_experts; /* of the table; layers of experts */
    int batch;                       /* sequences of a step */
};

/* Are there counts for the scenario, as many as its sizes ask for? */
static bool find_counts(const struct mw_cost_ctx *ctx,
                        const struct mw_scenario *s, struct counts *out)
{
    const char *of = mw_hwdb_machine(ctx->db, "router_scenario");
    size_t n = mw_hwdb_router(ctx->db, &out->row);
    char hash[24];

    snprintf(hash, sizeof hash, "%016" PRIx64, s->hash);
    out->n_layers = mw_model_moe_layers(&s->model, s->model.n_layers);
    out->n_experts = s->model.moe.n_experts;
    out->batch = (int)s->workload.global_batch;
    if (of == NULL || n == 0 || out->n_layers == 0 || strcmp(of, hash) != 0) {
        return false;
    }
    size_t each = (size_t)out->n_layers * (size_t)out->n_experts;

    out->n_seqs = (int)(n / each);
    return n % each == 0 && out->n_seqs >= out->batch &&
           out->n_seqs % out->batch == 0;
}

/* ---- one group -------------------------------------------------------------
 */
/* Sequences of a micro-batch that come together. */
struct group {
    int n_replicas, n_groups; /* replicas of a group; groups of a stage */
    int n_microbatches, n_seqs;
    int n_ranks, per_rank; /* ep; experts of each */
};

static struct group group_of(const struct mw_layout *l, const struct counts *c)
{
    int inside = l->tp * l->cp, all = l->ep * l->etp;
    int n = all > inside ? all / inside : 1;

    return (struct group){.n_replicas = n,
                          .n_groups = l->dp / n,
                          .n_microbatches = c->batch / (l->dp * l->micro_batch),
                          .n_seqs = l->micro_batch,
                          .n_ranks = l->ep,
                          .per_rank = c->n_experts / l->ep};
}

/* Adds what sequence q brings to each rank in a layer. */
static void add_sequence(const struct counts *c, const struct group *g,
                         int layer, int q, double *x)
{
    const struct mw_router_row *row =
        c->row +
        ((size_t)layer * (size_t)c->n_seqs + (size_t)q) * (size_t)c->n_experts;

    for (int e = 0; e < c->n_experts; e++) {
        x[e / g->per_rank] += (double)row[e].rows;
    }
}

static void add_microbatch(const struct counts *c, const struct group *g,
                           int layer, int first_q, int group, int m, double *x)
{
    for (int i = 0; i < g->n_replicas; i++) {
        int replica = group * g->n_replicas + i;
        int q = first_q + (replica * g->n_microbatches + m) * g->n_seqs;

        for (int s = 0; s < g->n_seqs; s++) {
            add_sequence(c, g, layer, q + s, x);
        }
    }
}

static double over_mean(const double *x, int n)
{
    double most = 0, sum = 0;

    for (int r = 0; r < n; r++) {
        most = fmax(most, x[r]);
        sum += x[r];
    }
    return sum > 0 ? most * n / sum : 1;
}

/* Mean over micro-batches and layers, stages of `depth` layers each. */
static struct mw_router_load group_load(const struct counts *c,
                                        const struct group *g, int first_q,
                                        int group, int depth)
{
    struct mw_router_load sum = {0, 0};
    int n_stages = 0;

    for (int m = 0; m < g->n_microbatches; m++) {
        double stage[EP_MAX] = {0};

        for (int l = 0; l < c->n_layers; l++) {
            double layer[EP_MAX] = {0};

            add_microbatch(c, g, l, first_q, group, m, layer);
            sum.synced += over_mean(layer, g->n_ranks);
            for (int r = 0; r < g->n_ranks; r++) {
                stage[r] += layer[r];
            }
            if ((l + 1) % depth == 0 || l + 1 == c->n_layers) {
                sum.apart += over_mean(stage, g->n_ranks);
                memset(stage, 0, sizeof stage);
                n_stages++;
            }
        }
    }
    sum.synced /= g->n_microbatches * c->n_layers;
    sum.apart /= n_stages;
    return sum;
}

static struct mw_router_load
step_load(const struct counts *c, const struct group *g, int first_q, int depth)
{
    struct mw_router_load most = {1, 1};

    for (int i = 0; i < g->n_groups; i++) {
        struct mw_router_load one = group_load(c, g, first_q, i, depth);

        most.synced = fmax(most.synced, one.synced);
        most.apart = fmax(most.apart, one.apart);
    }
    return most;
}

/* ---- all of them -----------------------------------------------------------
 */
/* Does a layer learn before the next one runs backwards? */
static bool learns_layer_by_layer(const struct mw_layout *l)
{
    const struct mw_sched_kind *kind =
        l->pp > 1 ? mw_schedule_kind_find(l->schedule) : NULL;

    return l->recompute == MW_RECOMPUTE_FULL &&
           !(kind != NULL && kind->is_split);
}

struct mw_router_load mw_router_load_of(const struct mw_cost_ctx *ctx,
                                        const struct mw_scenario *scenario,
                                        const struct mw_layout *layout)
{
    struct mw_router_load load = {1, 1};
    struct counts c;

    if (layout->ep <= 1 || layout->ep > EP_MAX ||
        !find_counts(ctx, scenario, &c)) {
        return load;
    }
    struct group g = group_of(layout, &c);
    int n_stages = layout->pp * layout->vpp, n_steps = c.n_seqs / c.batch;
    int depth = (c.n_layers + n_stages - 1) / n_stages;

    if (g.n_groups < 1 || g.n_microbatches < 1) {
        return load;
    }
    load = (struct mw_router_load){0, 0};
    for (int t = 0; t < n_steps; t++) {
        struct mw_router_load one = step_load(&c, &g, t * c.batch, depth);

        load.synced += one.synced / n_steps;
        load.apart += one.apart / n_steps;
    }
    if (learns_layer_by_layer(layout)) {
        load.apart = load.synced;
    }
    return load;
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
    struct counts c;
    size_t n = mw_hwdb_router(ctx->db, &c.row);
    char hash[24];
    size_t i = 0;

    snprintf(hash, sizeof hash, "%016" PRIx64, scenario->hash);
    if (of == NULL || n == 0 || strcmp(of, hash) != 0) {
        return MW_OK;
    }
    if (!find_counts(ctx, scenario, &c)) {
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
                if (!is_at(&c.row[i++], layer, q, e)) {
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
