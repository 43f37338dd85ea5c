/* One search for each number of nodes that stand by: see spares.h. */
#include "planner/spares.h"

#include "sim/cost/domain.h"

#include <math.h>

/* The whole job of the choice's fastest plan. */
static enum mw_status weigh(const struct mw_spares *at,
                            const struct mw_search_result *r,
                            mw_spares_job_fn job, const void *arg,
                            struct mw_spare_choice *out, struct mw_err *err)
{
    *out = (struct mw_spare_choice){
        .n_spares = at->scenario.cluster.spare_nodes,
        .n_nodes = at->scenario.cluster.n_nodes,
        .step_time_s = r->n_plans > 0 ? r->plans[0].step_time_s : 0,
        .layout = r->n_plans > 0 ? &r->plans[0].layout : NULL,
        .wall_s = HUGE_VAL,
        .is_proved = r->n_plans == 0 || r->proved_optimal};
    enum mw_status status = out->step_time_s > 0
                                ? job(arg, &at->scenario, &at->ctx, out, err)
                                : MW_OK;

    out->layout = NULL;
    return status;
}

/* Ends first; of two that never end, or end together, the one with a plan, and
 * then the first. */
static bool is_better(const struct mw_spare_choice *a,
                      const struct mw_spare_choice *b)
{
    return a->step_time_s > 0 &&
           (!(b->step_time_s > 0) || a->wall_s < b->wall_s);
}

/* Takes a choice's result in place of the best so far, or drops it. */
static void settle(struct mw_spares *out, const struct mw_spares *at,
                   struct mw_search_result *r, struct mw_search_result *result)
{
    bool is_first = out->n == 0;

    if (!is_first &&
        !is_better(&out->choice[out->n], &out->choice[out->best])) {
        mw_search_result_release(r);
        return;
    }
    if (!is_first) {
        mw_search_result_release(result);
    }
    *result = *r;
    out->best = out->n;
    out->scenario = at->scenario;
    out->ctx = at->ctx;
}

enum mw_status mw_spares_search(
    const struct mw_scenario *scenario, const struct mw_cost_ctx *ctx,
    const struct mw_search_opts *opts, mw_spares_job_fn job, const void *arg,
    struct mw_spares *out, struct mw_search_result *result, struct mw_err *err)
{
    const struct mw_int_list *list = &scenario->limits.spare_nodes;
    enum mw_status of_best = MW_OK, status = MW_OK;
    struct mw_err why_best = {0};

    MW_ASSERT(list->n >= 1 && list->n <= MW_SPARES_MAX, "%zu choices", list->n);
    *out = (struct mw_spares){.is_proved = true};
    for (size_t i = 0; i < list->n && status != MW_EINTR; i++) {
        struct mw_spares at = {.scenario = *scenario, .ctx = *ctx};
        struct mw_spare_choice *c = &out->choice[out->n];
        struct mw_search_result r;
        struct mw_err why = {0};
        int was_best = out->best;

        mw_cost_use_spares(&at.ctx, &at.scenario.cluster, (int)list->v[i]);
        status = mw_search(&at.scenario, &at.ctx, opts, &r, &why);
        enum mw_status weighed = weigh(&at, &r, job, arg, c, &why);

        status = weighed != MW_OK ? weighed : status;
        out->is_proved = out->is_proved && c->is_proved;
        settle(out, &at, &r, result);
        if (out->n == 0 || out->best != was_best) {
            of_best = status;
            why_best = why;
        }
        out->n++;
        if (weighed != MW_OK) { /* a job that nobody can reckon */
            of_best = weighed;
            why_best = why;
            break;
        }
    }
    if (err) {
        *err = why_best;
    }
    return of_best;
}
