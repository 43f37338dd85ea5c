/* Plans that no other beats over numbers of nodes: see front.h. */
#include "planner/front.h"

#include "planner/node_counts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mw_status mw_front_parse(const char *text, unsigned *out_by,
                              struct mw_err *err)
{
    static const struct mw_enum words[] = {
        {"time", MW_FRONT_TIME},     {"memory", MW_FRONT_MEMORY},
        {"gpus", MW_FRONT_GPUS},     {"cost", MW_FRONT_COST},
        {"energy", MW_FRONT_ENERGY}, {NULL, 0}};
    unsigned by = 0;

    while (*text) {
        size_t n = strcspn(text, ",");
        const struct mw_enum *e = words;

        while (e->name && (strncmp(e->name, text, n) != 0 || e->name[n])) {
            e++;
        }
        if (!e->name) {
            return mw_fail(err, MW_EUSAGE,
                           "--pareto: '%.*s' is none of time, memory, gpus, "
                           "cost, energy",
                           (int)n, text);
        }
        by |= (unsigned)e->value;
        text += text[n] ? n + 1 : n;
    }
    *out_by = by;
    return (by & (by - 1)) != 0
               ? MW_OK
               : mw_fail(err, MW_EUSAGE,
                         "--pareto: at least two of time, memory, gpus, cost, "
                         "energy");
}

bool mw_front_needs_nodes(unsigned by)
{
    return (by & (MW_FRONT_GPUS | MW_FRONT_COST | MW_FRONT_ENERGY)) != 0;
}

/* ---- points ----------------------------------------------------------------
 */
static double value_of(const struct mw_front_point *p, unsigned bit)
{
    switch ((enum mw_front_by)bit) {
    case MW_FRONT_TIME:
        return p->plan.step_time_s;
    case MW_FRONT_MEMORY:
        return p->plan.peak_bytes;
    case MW_FRONT_GPUS:
        return (double)p->gpus;
    case MW_FRONT_COST:
        return p->usd_per_token;
    case MW_FRONT_ENERGY:
        return p->J_per_token;
    }
    return 0;
}

/* Is a no worse in anything and better in something? */
static bool beats(const struct mw_front_point *a,
                  const struct mw_front_point *b, unsigned by)
{
    bool is_better = false;

    for (unsigned bit = 1; bit <= MW_FRONT_ENERGY; bit <<= 1) {
        double x = value_of(a, bit), y = value_of(b, bit);

        if ((by & bit) == 0) {
            continue;
        }
        if (x > y * (1 + 1e-12)) {
            return false;
        }
        is_better = is_better || x < y * (1 - 1e-12);
    }
    return is_better;
}

static void add_point(struct mw_front *f, const struct mw_node_count *count,
                      const struct mw_scenario *scenario,
                      const struct mw_cost_ctx *ctx,
                      const struct mw_front_prices *prices,
                      const struct mw_candidate *plan)
{
    size_t n = (size_t)plan->layout.pp * (size_t)plan->layout.vpp;
    double tokens = (double)scenario->workload.global_batch *
                    (double)scenario->workload.seq;
    struct mw_front_point p = {.n_nodes = ctx->n_nodes,
                               .n_spares = count->n_paid - count->n_nodes,
                               .domain_nodes = count->domain_nodes,
                               .gpus =
                                   (int64_t)ctx->n_nodes * ctx->gpus_per_node,
                               .plan = *plan};

    p.plan.layout.schedule = mw_arena_strdup(&f->arena, plan->layout.schedule);
    p.plan.layout.order = mw_arena_strdup(&f->arena, plan->layout.order);
    p.plan.layers = mw_arena_alloc(&f->arena, n, sizeof *p.plan.layers);
    memcpy(p.plan.layers, plan->layers, n * sizeof *p.plan.layers);
    if (plan->layout.nodes.n > 0) {
        n = plan->layout.nodes.n;
        p.plan.nodes = mw_arena_alloc(&f->arena, n, sizeof *p.plan.nodes);
        memcpy(p.plan.nodes, plan->layout.nodes.v, n * sizeof *p.plan.nodes);
        p.plan.layout.nodes.v = p.plan.nodes;
    }
    p.usd_per_token = (double)count->n_paid * ctx->gpus_per_node *
                      prices->usd_per_gpu_hour / 3600 * plan->step_time_s /
                      tokens;
    p.J_per_token =
        ctx->n_nodes * prices->node_power_w * plan->step_time_s / tokens;
    mw_array_push(&f->points, p);
}

static int compare_points(const void *a, const void *b)
{
    const struct mw_front_point *x = a, *y = b;

    if (x->gpus != y->gpus) {
        return x->gpus < y->gpus ? -1 : 1;
    }
    if (x->plan.step_time_s < y->plan.step_time_s ||
        x->plan.step_time_s > y->plan.step_time_s) {
        return x->plan.step_time_s < y->plan.step_time_s ? -1 : 1;
    }
    return (x->plan.id > y->plan.id) - (x->plan.id < y->plan.id);
}

static void keep_front(struct mw_front *f, unsigned by)
{
    size_t n = 0;
    bool *out = mw_calloc(f->points.n + 1, sizeof *out);

    for (size_t i = 0; i < f->points.n; i++) {
        for (size_t k = 0; k < f->points.n && !out[i]; k++) {
            out[i] = beats(&f->points.v[k], &f->points.v[i], by);
        }
    }
    for (size_t i = 0; i < f->points.n; i++) {
        if (!out[i]) {
            f->points.v[n++] = f->points.v[i];
        }
    }
    f->points.n = n;
    mw_free(out);
    if (n > 0) { /* v is NULL where there never was a point */
        qsort(f->points.v, n, sizeof *f->points.v, compare_points);
    }
}

/* ---- searches --------------------------------------------------------------
 */
static enum mw_status search_nodes(const struct mw_node_count *count,
                                   const struct mw_scenario *scenario,
                                   const struct mw_cost_ctx *ctx,
                                   const struct mw_search_opts *given,
                                   unsigned by,
                                   const struct mw_front_prices *prices,
                                   struct mw_front *f, struct mw_err *err)
{
    struct mw_search_opts opts = *given;
    struct mw_search_result r;
    struct mw_err why = {0};
    bool keeps_all = (by & MW_FRONT_MEMORY) != 0;

    opts.rank_by = keeps_all ? MW_RANK_PARETO : MW_RANK_TIME;
    opts.top = 1;
    if (opts.order == given->order_text) {
        opts.order = opts.order_text;
    }
    enum mw_status status = mw_search(scenario, ctx, &opts, &r, &why);

    f->n_searches++;
    f->n_infeasible += status == MW_ENO;
    if (status == MW_OK || status == MW_EINTR) {
        f->is_proved = f->is_proved && r.proved_optimal;
        for (size_t i = 0; i < r.n_plans && (keeps_all || i == 0); i++) {
            add_point(f, count, scenario, ctx, prices, &r.plans[i]);
        }
    }
    if (status != MW_OK && status != MW_ENO && err) {
        *err = why;
    }
    mw_search_result_release(&r);
    return status == MW_ENO ? MW_OK : status;
}

enum mw_status mw_front_find(const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             const struct mw_search_opts *opts, unsigned by,
                             const struct mw_front_prices *prices,
                             struct mw_front *out, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    *out = (struct mw_front){.is_proved = true};
    mw_arena_init(&out->arena);
    if ((by & MW_FRONT_COST) != 0 && isnan(prices->usd_per_gpu_hour)) {
        return mw_fail(err, MW_EUSAGE,
                       "--pareto: the database has no price of %s; --price "
                       "says it",
                       ctx->gpu->slug);
    }
    struct mw_node_counts counts = {NULL, 0, 0};

    mw_node_counts_find(scenario, ctx, mw_front_needs_nodes(by), &counts);
    for (size_t i = 0; i < counts.n && status == MW_OK; i++) {
        struct mw_scenario part;
        struct mw_cost_ctx prices_of_n;

        status = mw_node_count_take(&counts.v[i], scenario, ctx, &part,
                                    &prices_of_n, err);
        if (status == MW_OK) {
            status = search_nodes(&counts.v[i], &part, &prices_of_n, opts, by,
                                  prices, out, err);
        }
    }
    mw_array_release(&counts);
    keep_front(out, by);
    if (status == MW_EINTR && out->points.n > 0 && err) {
        mw_err_clear(err);
        mw_fail(err, MW_EINTR, "interrupted; the front so far stands");
    }
    return status != MW_OK || out->points.n > 0
               ? status
               : mw_fail(err, MW_ENO, "no plan is feasible on up to %d nodes",
                         ctx->n_nodes);
}

void mw_front_release(struct mw_front *f)
{
    mw_array_release(&f->points);
    mw_arena_release(&f->arena);
}
