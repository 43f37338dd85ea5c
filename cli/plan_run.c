/*
 * `plan`'s usual answer: a search (or several, by the objective's goals, or the
 * parts of one), the plan written, the table, and what else was asked for.
 */
#include "cli/choose.h"
#include "cli/plan_say.h"
#include "cli/plan_view.h"
#include "cli/world.h"

#include <stdio.h>

static enum mw_status write_best(const struct mw_plan_args *a,
                                 const struct mw_scenario *scenario,
                                 const struct mw_search_result *r,
                                 struct mw_err *err)
{
    if (!a->out) {
        return MW_OK;
    }
    struct mw_plan plan;
    enum mw_status status =
        mw_candidate_plan(scenario, &r->plans[0], &plan, err);
    if (status == MW_OK) {
        status = mw_plan_save(&plan, a->out, a->is_explicit, err);
        mw_plan_release(&plan);
    }
    return status;
}

/* Prints what was found; with an interrupt or a limit, the best so far. */
static void show(const struct mw_plan_args *a,
                 const struct mw_scenario *scenario,
                 const struct mw_cost_ctx *ctx,
                 const struct mw_search_result *r)
{
    mw_cli_say_stack(scenario, a->stack, ctx, a->cli.quiet);
    mw_plan_view_print(scenario, ctx, r, (size_t)a->top);
    if (a->out) {
        printf("Plan written to %s\n", a->out);
    }
}

/* What the whole job takes with the best plan. */
static enum mw_status say_job(const struct mw_plan_args *a,
                              const struct mw_scenario *scenario,
                              const struct mw_cost_ctx *ctx,
                              const struct mw_search_result *r, json_t *json,
                              struct mw_err *err)
{
    const struct mw_scenario of = mw_sim_job_of(scenario, &r->plans[0].layout);
    struct mw_sim_job job;
    enum mw_status status =
        mw_sim_job_make(&a->job, &of, ctx, r->plans[0].step_time_s, &job, err);

    if (status == MW_OK && json) {
        mw_json_set(json, "job", mw_sim_job_json(&job));
    } else if (status == MW_OK) {
        mw_sim_job_print(&job);
    }
    return status;
}

/* What else than the layout a plan chooses. */
struct choices {
    struct mw_domains domains;
    struct mw_spares spares;
};

/* A search under each way to cut the racks, by itself, as a shard or joined;
 * without a choice one. */
static enum mw_status find_cut(const struct mw_plan_args *a,
                               const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               struct mw_domains *domains,
                               struct mw_goals_result *out, struct mw_err *err)
{
    enum mw_status status =
        a->n_merges > 0
            ? mw_plan_join(a, scenario, ctx, domains, &out->search, err)
        : a->part ? mw_plan_shard(a, scenario, ctx, domains, &out->search, err)
        : scenario->cluster.domains.n > 1
            ? mw_domains_search(scenario, ctx, &a->search, domains,
                                &out->search, err)
            : mw_search(scenario, ctx, &a->search, &out->search, err);

    if (domains->n > 0) {
        out->scenario = domains->scenario;
        out->ctx = domains->ctx;
    }
    return status;
}

/* One search, or one for each way to cut the racks or number of spare nodes, or
 * one after the other by the objective's goals, which may choose another number
 * of nodes. */
static enum mw_status find(const struct mw_plan_args *a,
                           const struct mw_scenario *scenario,
                           const struct mw_cost_ctx *ctx,
                           struct choices *choices, struct mw_goals_result *out,
                           struct mw_err *err)
{
    struct mw_spares *spares = &choices->spares;

    if (a->has_goals) {
        return mw_plan_goals(a, scenario, ctx, out, err);
    }
    *out = (struct mw_goals_result){.scenario = *scenario, .ctx = *ctx};
    if (scenario->limits.spare_nodes.n > 0) {
        enum mw_status status =
            mw_plan_spares(a, scenario, ctx, spares, &out->search, err);

        out->scenario = spares->scenario;
        out->ctx = spares->ctx;
        return status;
    }
    return find_cut(a, scenario, ctx, &choices->domains, out, err);
}

/* What was asked for beside the plans. */
static enum mw_status say_rest(const struct mw_plan_args *a,
                               const struct mw_goals_result *g, json_t *json,
                               struct mw_err *err)
{
    const struct mw_scenario *scenario = &g->scenario;
    const struct mw_search_result *r = &g->search;
    enum mw_status status = MW_OK;

    if (a->is_robust) {
        status = mw_plan_say_robust(a, scenario, &g->ctx, r, json, err);
    }
    if (status == MW_OK && a->is_staged) {
        status = mw_plan_say_stages(a, scenario, &g->ctx, r, json, err);
    }
    if (status == MW_OK && a->is_why) {
        status = mw_plan_say_why(a, scenario, &g->ctx, r, json, err);
    }
    if (status == MW_OK && a->job.tokens > 0) {
        status = say_job(a, scenario, &g->ctx, r, json, err);
    }
    return status;
}

static json_t *json_of(const struct mw_plan_args *a,
                       const struct mw_goals_result *g)
{
    json_t *json = mw_plan_view_json(&g->scenario, &g->ctx, &g->search);

    if (a->has_goals) {
        mw_json_set(json, "objective", mw_plan_goals_json(a, g));
    }
    return json;
}

int mw_plan_run(const struct mw_plan_args *a,
                const struct mw_scenario *scenario,
                const struct mw_cost_ctx *ctx)
{
    struct mw_err err = {0};
    struct mw_goals_result g;
    struct choices *choices = mw_calloc(1, sizeof *choices);
    enum mw_status found = find(a, scenario, ctx, choices, &g, &err);

    if (a->n_merges == 0) { /* parts say their own file */
        found = mw_cli_blame(scenario, found, &err);
    }
    enum mw_status status = found;
    bool has_plan = g.search.n_plans > 0;

    if (has_plan) {
        enum mw_status written = write_best(a, &g.scenario, &g.search, &err);

        status = status == MW_OK ? written : status;
    }
    json_t *json = a->cli.json ? json_of(a, &g) : NULL;

    if (has_plan && !json && (status == MW_OK || status == MW_EINTR)) {
        show(a, &g.scenario, &g.ctx, &g.search);
        if (a->has_goals) {
            mw_plan_goals_print(a, &g);
        }
    }
    mw_plan_view_domains(&choices->domains, json, has_plan);
    mw_plan_view_spares(&choices->spares, json, has_plan);
    if (status == MW_OK && has_plan) {
        status = say_rest(a, &g, json, &err);
    }
    int exit_status = status == MW_OK ? 0 : mw_cli_fail(&err);

    if (found == MW_ENO && !(a->within_s > 0) && !(a->cap_usd > 0) &&
        !a->part && a->n_merges == 0) {
        exit_status = mw_plan_say_changes(scenario, ctx, &a->search, json);
    }
    if (json && (has_plan || found == MW_ENO || found == MW_EINTR)) {
        mw_cli_print_json(json);
    } else {
        json_decref(json);
    }
    mw_search_result_release(&g.search);
    mw_free(choices);
    return exit_status;
}
