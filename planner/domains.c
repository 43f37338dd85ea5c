/* One search for each way to cut the racks: see domains.h. */
#include "planner/domains.h"

#include "sim/cost/domain.h"

#include <string.h>

/* The scenario and its prices under one choice. */
static enum mw_status cut(const struct mw_scenario *scenario,
                          const struct mw_cost_ctx *ctx, int domain_nodes,
                          struct mw_domains *out, struct mw_err *err)
{
    out->scenario = *scenario;
    out->ctx = *ctx;
    return mw_cost_use_domains(&out->ctx, &out->scenario.cluster, domain_nodes,
                               err);
}

static void note(struct mw_domain_choice *c, const struct mw_domains *at,
                 const struct mw_search_result *r)
{
    const struct mw_cluster *cluster = &at->scenario.cluster;

    c->domain_nodes = cluster->domain_nodes;
    c->n_gpus = cluster->n_nodes * at->ctx.gpus_per_node;
    c->spare_nodes = cluster->spare_nodes;
    c->step_time_s = r->n_plans > 0 ? r->plans[0].step_time_s : 0;
    c->peak_bytes = r->n_plans > 0 ? r->plans[0].peak_bytes : 0;
    c->is_proved = r->n_plans > 0 ? r->proved_optimal : r->is_complete;
}

/* By time, or by memory and then time; a choice without a plan comes last. */
static bool is_better(const struct mw_domain_choice *a,
                      const struct mw_domain_choice *b, enum mw_rank_by by)
{
    if (!(a->step_time_s > 0) || !(b->step_time_s > 0)) {
        return a->step_time_s > 0;
    }
    if (by == MW_RANK_MEMORY &&
        (a->peak_bytes < b->peak_bytes || a->peak_bytes > b->peak_bytes)) {
        return a->peak_bytes < b->peak_bytes;
    }
    return a->step_time_s < b->step_time_s;
}

/* Takes a choice's result in place of the best so far, or drops it. */
static bool settle(struct mw_domains *out, const struct mw_domains *at,
                   enum mw_rank_by by, struct mw_search_result *r,
                   struct mw_search_result *result)
{
    bool is_first = out->n == 0;

    if (!is_first &&
        !is_better(&out->choice[out->n], &out->choice[out->best], by)) {
        mw_search_result_release(r);
        return false;
    }
    if (!is_first) {
        mw_search_result_release(result);
    }
    *result = *r;
    out->best = out->n;
    out->scenario = at->scenario;
    out->ctx = at->ctx;
    return true;
}

/* Nothing is the answer. */
static enum mw_status give_up(struct mw_domains *out, enum mw_status status,
                              const struct mw_err *why,
                              struct mw_search_result *result,
                              struct mw_err *err)
{
    if (out->n > 0) {
        mw_search_result_release(result);
    }
    memset(result, 0, sizeof *result);
    mw_arena_init(&result->arena);
    if (err) {
        *err = *why;
    }
    return status;
}

enum mw_status mw_domains_find(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               enum mw_rank_by by, mw_domains_find_fn find,
                               void *arg, struct mw_domains *out,
                               struct mw_search_result *result,
                               struct mw_err *err)
{
    const struct mw_int_list *list = &scenario->cluster.domains;
    enum mw_status status = MW_OK, of_best = MW_OK;
    struct mw_err why_best = {0};

    MW_ASSERT(list->n >= 1 && list->n <= MW_DOMAINS_MAX, "%zu choices",
              list->n);
    *out = (struct mw_domains){.is_proved = true};
    for (size_t i = 0; i < list->n && status != MW_EINTR; i++) {
        struct mw_domains at;
        struct mw_search_result r;
        struct mw_err why = {0};

        status = cut(scenario, ctx, (int)list->v[i], &at, &why);
        if (status != MW_OK) {
            return give_up(out, status, &why, result, err);
        }
        status = find(arg, &at.scenario, &at.ctx, &r, &why);
        if (status != MW_OK && status != MW_ENO && status != MW_EINTR) {
            mw_search_result_release(&r);
            return give_up(out, status, &why, result, err);
        }
        note(&out->choice[out->n], &at, &r);
        out->is_proved = out->is_proved && out->choice[out->n].is_proved;
        if (settle(out, &at, by, &r, result)) {
            of_best = status;
            why_best = why;
        }
        out->n++;
    }
    out->is_proved = out->is_proved && status != MW_EINTR;
    if (status == MW_EINTR && of_best == MW_OK) {
        of_best =
            mw_fail(&why_best, MW_EINTR, "interrupted; the best so far stands");
    }
    if (err) {
        *err = why_best;
    }
    return of_best;
}

static enum mw_status search(void *opts, const struct mw_scenario *scenario,
                             const struct mw_cost_ctx *ctx,
                             struct mw_search_result *out, struct mw_err *err)
{
    return mw_search(scenario, ctx, opts, out, err);
}

enum mw_status mw_domains_search(const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 const struct mw_search_opts *opts,
                                 struct mw_domains *out,
                                 struct mw_search_result *result,
                                 struct mw_err *err)
{
    struct mw_search_opts same = *opts;

    if (same.order == opts->order_text) {
        same.order = same.order_text;
    }
    return mw_domains_find(scenario, ctx, opts->rank_by, search, &same, out,
                           result, err);
}
