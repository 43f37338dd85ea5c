/* Goals one after the other: see goals.h. */
#include "planner/goals.h"

#include "planner/node_counts.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* One number of nodes (and way to cut its racks) and what the goals so far
 * leave of its plans. */
struct count {
    struct mw_node_count at;
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
    double kept; /* value, by the goal at hand, of the answer so far */
};

static double gpus_of(const struct goals *g, const struct count *c)
{
    return (double)c->at.n_nodes * g->ctx->gpus_per_node;
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
        return (double)c->at.n_paid * g->ctx->gpus_per_node *
               prices->usd_per_gpu_hour / 3600 / tokens;
    case MW_GOAL_ENERGY:
        return c->at.n_nodes * prices->node_power_w / tokens;
    case MW_GOAL_GPUS:
    case MW_GOAL_MEMORY:
    case MW_GOAL_COUNT:
        break;
    }
    return 0;
}

/* ---- searches --------------------------------------------------------------
 */
static enum mw_status on_nodes(const struct goals *g, const struct count *c,
                               struct mw_scenario *scenario,
                               struct mw_cost_ctx *ctx, struct mw_err *err)
{
    return mw_node_count_take(&c->at, g->scenario, g->ctx, scenario, ctx, err);
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

/* The answer so far, which stands where an interrupt ends the search. */
static void keep(struct mw_goals_result *out,
                 const struct mw_scenario *scenario,
                 const struct mw_cost_ctx *ctx, struct mw_search_result *r)
{
    mw_arena_release(&out->search.arena);
    out->search = *r;
    out->scenario = *scenario;
    out->ctx = *ctx;
    out->n_nodes = ctx->n_nodes;
}

/* The value by a goal of a step on a count, or of a peak. */
static double value_of(const struct goals *g, const struct count *c,
                       enum mw_goal goal, const struct mw_candidate *plan)
{
    return goal == MW_GOAL_MEMORY ? plan->peak_bytes
           : goal == MW_GOAL_GPUS ? gpus_of(g, c)
                                  : per_second(g, c, goal) * plan->step_time_s;
}

/* Finds the least time or memory of a count; is_out where there is no plan. */
static enum mw_status least_of(struct goals *g, struct count *c,
                               enum mw_goal goal, struct mw_err *err)
{
    enum mw_rank_by by = goal == MW_GOAL_MEMORY ? MW_RANK_MEMORY : MW_RANK_TIME;
    double *least = by == MW_RANK_MEMORY ? &c->least_bytes : &c->least_s;
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_search_result r;
    struct mw_err why = {0};

    if (*least > 0) {
        return MW_OK;
    }
    enum mw_status status = on_nodes(g, c, &scenario, &ctx, err);

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
    if (r.n_plans > 0 && value_of(g, c, goal, &r.plans[0]) < g->kept) {
        g->kept = value_of(g, c, goal, &r.plans[0]);
        keep(g->out, &scenario, &ctx, &r);
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

    *out = g->kept = HUGE_VAL;
    for (size_t i = 0; i < g->counts.n && status == MW_OK; i++) {
        struct count *c = &g->counts.v[i];
        bool is_memory = goal == MW_GOAL_MEMORY;

        if (c->is_out) {
            continue;
        }
        status = least_of(g, c, goal, err);
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

/* The longest step that ends in time and within the money. */
static enum mw_status allow(const struct goals *g, struct count *c,
                            struct mw_err *err)
{
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    enum mw_status status = MW_OK;

    if (g->ask->max_step_s) {
        status = on_nodes(g, c, &scenario, &ctx, err);
        c->allowed_s = status == MW_OK ? g->ask->max_step_s(g->ask->deadline,
                                                            &scenario, &ctx)
                                       : 0;
    }
    c->max_step_s = c->allowed_s;
    c->is_out = !(c->max_step_s > 0);
    return status;
}

static enum mw_status add_counts(struct goals *g, struct mw_err *err)
{
    bool needs_nodes =
        g->ask->is_any_nodes || mw_objective_needs_nodes(&g->ask->objective);
    struct mw_node_counts found = {NULL, 0, 0};
    enum mw_status status = MW_OK;

    mw_node_counts_find(g->scenario, g->ctx, needs_nodes, &found);
    for (size_t i = 0; i < found.n && status == MW_OK; i++) {
        struct count c = {.at = found.v[i],
                          .allowed_s = HUGE_VAL,
                          .max_peak_bytes = HUGE_VAL};

        status = allow(g, &c, err);
        mw_array_push(&g->counts, c);
    }
    mw_array_release(&found);
    g->out->n_counts = (int)g->counts.n;
    return status;
}

/* The scenario's own number of nodes, racks cut by the first choice. */
static struct count *own_count(struct goals *g)
{
    struct count *own = &g->counts.v[0];

    for (size_t i = 1; i < g->counts.n; i++) {
        if (g->counts.v[i].at.domain_nodes == own->at.domain_nodes) {
            own = &g->counts.v[i];
        }
    }
    return own;
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
    g->kept = HUGE_VAL;
    for (size_t i = 0; i < g->counts.n && status == MW_OK; i++) {
        struct count *c = &g->counts.v[i];

        if (c->is_out) {
            continue;
        }
        status = least_of(g, c, MW_GOAL_STEP_TIME, err);
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
        .at = c->at, .max_step_s = HUGE_VAL, .max_peak_bytes = HUGE_VAL};
    bool by_memory = o->v[o->n - 1].goal == MW_GOAL_MEMORY;

    wide.max_step_s = c->allowed_s;
    for (int k = 0; k + 1 < out->n; k++) {
        narrow(g, &wide, out->v[k].goal, out->v[k].limit);
    }
    struct mw_scenario scenario;
    struct mw_cost_ctx ctx;
    struct mw_search_result r;
    enum mw_status status = on_nodes(g, c, &scenario, &ctx, err);

    if (status != MW_OK) {
        return status;
    }
    status = search_count(g, &wide, by_memory ? MW_RANK_MEMORY : MW_RANK_TIME,
                          g->opts->top, &scenario, &ctx, &r, err);
    if (status == MW_EINTR && out->search.n_plans > 0) {
        mw_search_result_release(&r); /* the goals' own answer stands */
    } else {
        out->is_proved = out->is_proved && r.proved_optimal;
        keep(out, &scenario, &ctx, &r);
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
        status = add_counts(&g, err);
    }
    if (status == MW_OK) {
        status = settle(&g, err);
    }
    if (status == MW_OK) {
        status = winner(&g, &best, err);
    }
    if (status == MW_OK && best == NULL) {
        best = own_count(&g); /* for its reasons */
        out->n = 0;
    }
    if (status == MW_OK) {
        status = rank(&g, best, err);
    }
    if (status == MW_EINTR) {
        out->is_proved = false;
    }
    if (status == MW_EINTR && out->search.n_plans > 0 && err) {
        mw_err_clear(err);
        mw_fail(err, MW_EINTR, "interrupted; the best so far stands");
    }
    mw_array_release(&g.counts);
    return status;
}

void mw_goals_release(struct mw_goals_result *r)
{
    mw_search_result_release(&r->search);
}
