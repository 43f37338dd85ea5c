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
    c->is_proved = r->n_plans == 0 || r->proved_optimal;
}

static bool is_faster(const struct mw_domain_choice *a,
                      const struct mw_domain_choice *b)
{
    return a->step_time_s > 0 &&
           (!(b->step_time_s > 0) || a->step_time_s < b->step_time_s);
}

enum mw_status mw_domains_search(const struct mw_scenario *scenario,
                                 const struct mw_cost_ctx *ctx,
                                 const struct mw_search_opts *opts,
                                 struct mw_domains *out,
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
            if (out->n > 0) {
                mw_search_result_release(result);
            }
            memset(result, 0, sizeof *result);
            mw_arena_init(&result->arena);
            if (err) {
                *err = why;
            }
            return status;
        }
        status = mw_search(&at.scenario, &at.ctx, opts, &r, &why);
        note(&out->choice[out->n], &at, &r);
        out->is_proved = out->is_proved && out->choice[out->n].is_proved;
        bool is_best = out->n == 0 ||
                       is_faster(&out->choice[out->n], &out->choice[out->best]);

        if (is_best) {
            if (out->n > 0) {
                mw_search_result_release(result);
            }
            *result = r;
            out->best = out->n;
            out->scenario = at.scenario;
            out->ctx = at.ctx;
            of_best = status;
            why_best = why;
        } else {
            mw_search_result_release(&r);
        }
        out->n++;
    }
    if (err) {
        *err = why_best;
    }
    return of_best;
}
