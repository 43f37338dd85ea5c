/* Goals one after the other: see goals.h. */
#include "planner/goals.h"

#include "sim/cost/domain.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One number of nodes and what the goals so far leave of its plans. */
struct count {
    int n;
    bool is_out;
    double allowed_s; /* by the deadline; HUGE_VAL: any */
    double max_step_s, max_peak_bytes;
    double least_s, least_bytes; /* under these limits; 0: to be searched */
};

struct goals {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_search_opts *opts;
    const struct mw_goals_ask *ask;
    struct mw_goals_result *out;
    struct {
        struct count *v;
        size_t n, cap;
    } counts;
};

static double gpus_of(const struct goals *g, const struct count *c)
{
    return (double)c->n * g->ctx->gpus_per_node;
}

/* A goal's value per second of step, where it goes with the step. */
static double per_second(const struct goals *g, const struct count *c,
                         enum mw_goal goal)
{
    const struct mw_front_prices *prices = &g->ask->prices;
    double tokens = (double)g->scenario->workload.global_batch *
                    (double)g->scenario->workload.seq;

    switch (goal) {
    case MW_GOAL_STEP_TIME:
        return 1;
    case MW_GOAL_TOKENS_PER_GPU:
        return gpus_of(g, c) / tokens;
    case MW_GOAL_COST:
        return gpus_of(g, c) * prices->usd_per_gpu_hour / 3600 / tokens;
    case MW_GOAL_ENERGY:
        return c->n * prices->node_power_w / tokens;
    case MW_GOAL_GPUS:
    case MW_GOAL_MEMORY:
    case MW_GOAL_COUNT:
        break;
    }
    return 0;
}

/* ---- searches --------------------------------------------------------------
 */
/* The scenario and its prices on a number of nodes. */
static enum mw_status on_nodes(const struct goals *g, int n,
                               struct mw_scenario *scenario,
                               struct mw_cost_ctx *ctx, struct mw_err *err)
{
    *scenario = *g->scenario;
    *ctx = *g->ctx;
    if (n == g->ctx->n_nodes) {
        return MW_OK;
    }
    scenario->cluster.n_nodes = n;
    enum mw_status status = mw_cost_ctx_init(
        ctx, g->ctx->db, g->ctx->system->slug, n, g->ctx->gpus_per_node, err);

    if (status == MW_OK) {
        mw_cost_set_domain(ctx, scenario->cluster.domain_nodes);
        status = mw_cost_ctx_set_stack(ctx, g->ctx->stack.name, err);
    }
    return status;
}

static enum mw_status search_count(struct goals *g, const struct count *c,
                                   enum mw_rank_by by, int top,
                                   const struct mw_scenario *scenario,
                                   const struct mw_cost_ctx *ctx,
                                   struct mw_search_result *r,
                                   struct mw_err *err)
{
    struct mw_search_opts opts = *g->opts;

    opts.rank_by = by;
    opts.top = top;
    /* 0 would mean any step, where no step is short enough. */
    opts.max_step_s =
        c->max_step_s < HUGE_VAL ? fmax(c->max_step_s, DBL_MIN) : 0;
    opts.max_peak_bytes = c->max_peak_bytes < HUGE_VAL ? c->max_peak_bytes : 0;
    if (opts.order == g->opts->order_text) {
        opts.order = opts.order_text;
    }
    g->out->n_searches++;
    return mw_search(scenario, ctx, &opts, r, err);
}

/* What an interrupt leaves is the answer so far. */
static void keep(struct mw_goals_result *out, int n,
                 const struct mw_scenario *scenario,
                 const struct mw_cost_ctx *ctx, struct mw_search_result *r)
{
    mw_arena_release(&out->search.arena);
    out->search = *r;
    out->scenario = *scenario;
    out->ctx = *ctx;
    out->n_nodes = n;
    out->is_proved = false;
}

/* Finds the least time or memory of a count; is_out where there is no plan. */
static enum mw_status least_of(struct goals *g, struct count *c,
                               enum mw_rank_by by, struct mw_err *err)
{
    double *least = by == MW_RANK_MEMORY ? &c->least_bytes : &c->least_s;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_search_result r;
    struct mw_err why = {0};

    if (*least > 0) {
        return MW_OK;
    }
    enum mw_status status = on_nodes(g, c->n, &scenario, &ctx, err);

    if (status != MW_OK) {
        return status;
    }
    status = search_count(g, c, by, 1, &scenario, &ctx, &r, &why);
    if (status == MW_OK) {
        *least = by == MW_RANK_MEMORY ? r.plans[0].peak_bytes
                                      : r.plans[0].step_time_s;
        g->out->is_proved = g->out->is_proved && r.proved_optimal;
    }
    c->is_out = status == MW_ENO;
    if (status == MW_ENO && g->opts->time_limit_s > 0) {
        g->out->is_proved = false; /* there may not have been the time */
    }
    if (status == MW_EINTR && r.n_plans > 0) {
        keep(g->out, c->n, &scenario, &ctx, &r);
    } else {
        mw_search_result_release(&r);
    }
    if (status != MW_OK && status != MW_ENO && err) {
        *err = why;
    }
    return status == MW_ENO ? MW_OK : status;
}

/* ---- goals -----------------------------------------------------------------
 */
/* The least value of a goal over all counts that are left; HUGE_VAL: none. */
static enum mw_status least_value(struct goals *g, enum mw_goal goal,
                                  double *out, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    *out = HUGE_VAL;
    for (size_t i = 0; i < g->counts.n && status == MW_OK; i++) {
        struct count *c = &g->counts.v[i];
        bool is_memory = goal == MW_GOAL_MEMORY;

        if (c->is_out) {
            continue;
        }
        status = least_of(g, c, is_memory ? MW_RANK_MEMORY : MW_RANK_TIME, err);
        if (status == MW_OK && !c->is_out) {
            double value = is_memory ? c->least_bytes
                           : goal == MW_GOAL_GPUS
                               ? gpus_of(g, c)
                               : per_second(g, c, goal) * c->least_s;

            *out = fmin(*out, value);
        }
    }
    return status;
}

/* Narrows a count to values of the goal up to the limit. */
static void narrow(const struct goals *g, struct count *c, enum mw_goal goal,
                   double limit)
{
    double most = limit * (1 + 1e-12); /* the winner itself stays */

    if (goal == MW_GOAL_GPUS) {
        c->is_out = c->is_out || gpus_of(g, c) > most;
    } else if (goal == MW_GOAL_MEMORY) {
        c->is_out = c->is_out || (c->least_bytes > 0 && c->least_bytes > most);
        c->least_s = most < c->max_peak_bytes ? 0 : c->least_s;
        c->max_peak_bytes = fmin(c->max_peak_bytes, most);
    } else {
        most /= per_second(g, c, goal);
        c->is_out = c->is_out || (c->least_s > 0 && c->least_s > most);
        c->least_bytes = most < c->max_step_s ? 0 : c->least_bytes;
        c->max_step_s = fmin(c->max_step_s, most);
    }
}

static void add_counts(struct goals *g)
{
    bool needs_nodes =
        g->ask->is_any_nodes || mw_objective_needs_nodes(&g->ask->objective);
    int nodes = g->ctx->n_nodes;

    for (int n = needs_nodes ? 1 : nodes; n <= nodes; n++) {
        struct count c = {
            .n = n, .max_step_s = HUGE_VAL, .max_peak_bytes = HUGE_VAL};

        if (nodes % n != 0) {
            continue;
        }
        c.allowed_s = g->ask->max_step_s
                          ? g->ask->max_step_s(g->ask->deadline, n)
                          : HUGE_VAL;
        c.max_step_s = c.allowed_s;
        c.is_out = !(c.max_step_s > 0);
        mw_array_push(&g->counts, c);
    }
    g->out->n_counts = (int)g->counts.n;
}

static enum mw_status settle(struct goals *g, struct mw_err *err)
{
    const struct mw_objective *o = &g->ask->objective;
    enum mw_status status = MW_OK;

    for (int k = 0; k < o->n && status == MW_OK; k++) {
        struct mw_goal_value v = {.goal = o->v[k].goal,
                                  .within = o->v[k].within};

        status = least_value(g, v.goal, &v.value, err);
        if (status != MW_OK || !(v.value < HUGE_VAL)) {
            break;
        }
        bool is_last = k + 1 == o->n;

        v.limit = v.value * (1 + (is_last ? 0 : v.within));
        v.is_proved = g->out->is_proved;
        for (size_t i = 0; i < g->counts.n; i++) {
            narrow(g, &g->counts.v[i], v.goal, v.limit);
        }
        g->out->v[g->out->n++] = v;
    }
    return status;
}

/* Of the counts left the one with the shortest step: ties of the last goal. */
static enum mw_status winner(struct goals *g, struct count **out,
                             struct mw_err *err)
{
    enum mw_status status = MW_OK;

    *out = NULL;
    for (size_t i = 0; i < g->counts.n && status == MW_OK; i++) {
        struct count *c = &g->counts.v[i];

        if (c->is_out) {
            continue;
        }
        status = least_of(g, c, MW_RANK_TIME, err);
        if (status == MW_OK && !c->is_out &&
            (*out == NULL || c->least_s < (*out)->least_s)) {
            *out = c;
        }
    }
    return status;
}

/* The ranking by the last goal under the limits of those before it. Plans that
 * tie with the least memory are never bounded away (memory is exact, bounds
 * keep 1e-9 off), so the fastest of them comes first; all others go with time.
 */
static enum mw_status rank(struct goals *g, struct count *c, struct mw_err *err)
{
    const struct mw_objective *o = &g->ask->objective;
    struct mw_goals_result *out = g->out;
    struct count wide = {
        .n = c->n, .max_step_s = HUGE_VAL, .max_peak_bytes = HUGE_VAL};
    bool by_memory = o->v[o->n - 1].goal == MW_GOAL_MEMORY;

    wide.max_step_s = c->allowed_s;
    for (int k = 0; k + 1 < out->n; k++) {
        narrow(g, &wide, out->v[k].goal, out->v[k].limit);
    }
    out->n_nodes = c->n;
    enum mw_status status = on_nodes(g, c->n, &out->scenario, &out->ctx, err);

    if (status == MW_OK) {
        status = search_count(
            g, &wide, by_memory ? MW_RANK_MEMORY : MW_RANK_TIME, g->opts->top,
            &out->scenario, &out->ctx, &out->search, err);
        out->is_proved = out->is_proved && out->search.proved_optimal;
    }
    return status;
}

static enum mw_status check_prices(const struct goals *g, struct mw_err *err)
{
    const struct mw_objective *o = &g->ask->objective;

    for (int k = 0; k < o->n; k++) {
        if (o->v[k].goal == MW_GOAL_COST &&
            !(g->ask->prices.usd_per_gpu_hour > 0)) {
            return mw_fail(err, MW_EUSAGE,
                           "objective cost_per_token: the database has no "
                           "price of %s; --price says it",
                           g->ctx->gpu->slug);
        }
        if (o->v[k].goal == MW_GOAL_ENERGY &&
            !(g->ask->prices.node_power_w > 0)) {
            return mw_fail(err, MW_EUSAGE,
                           "objective energy_per_token: the database has no "
                           "power of %s",
                           g->ctx->gpu->slug);
        }
    }
    return MW_OK;
}

enum mw_status mw_goals_search(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_search_opts *opts,
                               const struct mw_goals_ask *ask,
                               struct mw_goals_result *out, struct mw_err *err)
{
    struct goals g = {
        .scenario = scenario, .ctx = ctx, .opts = opts, .ask = ask, .out = out};
    struct count *best = NULL;

    *out = (struct mw_goals_result){.scenario = *scenario,
                                    .ctx = *ctx,
                                    .n_nodes = ctx->n_nodes,
                                    .is_proved = true};
    mw_arena_init(&out->search.arena);
    enum mw_status status = check_prices(&g, err);

    if (status == MW_OK) {
        add_counts(&g);
        status = settle(&g, err);
    }
    if (status == MW_OK) {
        status = winner(&g, &best, err);
    }
    if (status == MW_OK && best == NULL) {
        best = &g.counts.v[g.counts.n - 1]; /* for its reasons */
        out->n = 0;
    }
    if (status == MW_OK) {
        mw_arena_release(&out->search.arena);
        status = rank(&g, best, err);
    }
    mw_array_release(&g.counts);
    return status;
}

void mw_goals_release(struct mw_goals_result *r)
{
    mw_search_result_release(&r->search);
}
