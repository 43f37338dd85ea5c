/*
 * Ranks under changed prices: a copy of the pricing context with another
 * bandwidth between nodes, spread between ranks, or time of the host. On a CPU
 * the last two have no effect.
 */
#include "planner/robust.h"

static const struct mw_robust_case cases[MW_ROBUST_CASES] = {
    {"network 10 % slower", 0.9, 0, 1},
    {"network 10 % faster", 1.1, 0, 1},
    {"ranks spread 2 % more", 1, 0.02, 1},
    {"host half as fast", 1, 0, 2}};

const struct mw_robust_case *mw_robust_case(int i)
{
    MW_ASSERT(i >= 0 && i < MW_ROBUST_CASES, "case %d", i);
    return &cases[i];
}

static enum mw_status simulate(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_candidate *c, double *out_s,
                               struct mw_err *err)
{
    struct mw_plan plan;
    struct mw_step_opts opts = {.no_breakdown = true};
    struct mw_step_result step;
    enum mw_status status =
        mw_plan_make(scenario, &c->layout, c->layers, &plan, err);

    if (status != MW_OK) {
        return status;
    }
    status = mw_step_simulate(scenario, &plan, ctx, &opts, &step, err);
    if (status == MW_OK) {
        *out_s = step.step_time_s;
        mw_step_result_release(&step);
    }
    mw_plan_release(&plan);
    return status;
}

/* Plans of equal time keep their order, so equals change no rank. */
static void rank_case(const struct mw_candidate *plans, size_t n, int k,
                      struct mw_robust_row *rows)
{
    for (size_t i = 0; i < n; i++) {
        int rank = 1, was = 1;

        for (size_t j = 0; j < n; j++) {
            double a = rows[j].step_time_s[k], b = rows[i].step_time_s[k];
            double x = plans[j].step_time_s, y = plans[i].step_time_s;

            rank += a < b || (a == b && j < i);
            was += x < y || (x == y && j < i);
        }
        rows[i].rank[k] = rank;
        rows[i].changes = rows[i].changes || rank != was;
    }
}

enum mw_status mw_robust(const struct mw_scenario *scenario,
                         const struct mw_cost_ctx *ctx,
                         const struct mw_candidate *plans, size_t n,
                         struct mw_robust_row *out, struct mw_err *err)
{
    enum mw_status status = MW_OK;

    n = n < MW_ROBUST_PLANS_MAX ? n : MW_ROBUST_PLANS_MAX;
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct mw_robust_row){.changes = false};
    }
    for (int k = 0; k < MW_ROBUST_CASES && status == MW_OK; k++) {
        struct mw_cost_ctx changed = *ctx;

        changed.domain_net_Bps *= cases[k].net;
        changed.net_speed *= cases[k].net;
        changed.stack.straggler += cases[k].spread;
        changed.stack.host_op_s *= cases[k].host;
        changed.stack.host_coll_s *= cases[k].host;
        changed.stack.host_moe_s *= cases[k].host;
        for (size_t i = 0; i < n && status == MW_OK; i++) {
            status = simulate(scenario, &changed, &plans[i],
                              &out[i].step_time_s[k], err);
        }
        rank_case(plans, n, k, out);
    }
    return status;
}
