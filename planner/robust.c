/*
 * Ranks under changed prices: a copy of the pricing context with another
 * bandwidth between nodes, spread between ranks, or time of the host. On a CPU
 * the last two have no effect. A slow node: the step of the pipeline that it is
 * in, its stages' passes taking longer; of all nodes the one that costs most.
 *
 * The model's own error: with p the 90th percentile of |predicted / measured -
 * 1| of the stack and device, a predicted t was measured from t / (1 + p) to
 * t / (1 - p) in nine rows of ten. Errors of two plans of one job are not
 * independent (what is off for one is off for its neighbour), so ranks drawn
 * from these ranges say what the model cannot exclude, not what is likely.
 */
#include "planner/robust.h"

#include <math.h>

static const struct mw_robust_case cases[MW_ROBUST_CASES] = {
    {"network 10 % slower", 0.9, 0, 1, 1},
    {"network 10 % faster", 1.1, 0, 1, 1},
    {"one node 10 % slower", 1, 0, 1, 1.1},
    {"ranks spread 2 % more", 1, 0.02, 1, 1},
    {"host half as fast", 1, 0, 2, 1}};

const struct mw_robust_case *mw_robust_case(int i)
{
    MW_ASSERT(i >= 0 && i < MW_ROBUST_CASES, "case %d", i);
    return &cases[i];
}

static enum mw_status simulate(const struct mw_scenario *scenario,
                               const struct mw_cost_ctx *ctx,
                               const struct mw_plan *plan, const double *pace,
                               double *out_s, struct mw_err *err)
{
    struct mw_step_opts opts = {.no_breakdown = true, .stage_pace = pace};
    struct mw_step_result step;
    enum mw_status status =
        mw_step_simulate(scenario, plan, ctx, &opts, &step, err);

    if (status == MW_OK) {
        *out_s = step.step_time_s;
        mw_step_result_release(&step);
    }
    return status;
}

/* Pace of the stages that have ranks on a node; false where an earlier node has
 * ranks of the same ones. */
static bool node_pace(const struct mw_layout *l, int node, int gpus_per_node,
                      double slow, double *pace, bool *seen)
{
    bool is_new = false;

    for (int d = 0; d < l->pp; d++) {
        pace[d] = 1;
    }
    for (int i = 0; i < gpus_per_node; i++) {
        int rank = node * gpus_per_node + i;

        if (rank < mw_layout_ranks(l)) {
            pace[mw_layout_coord(l, rank).pp] = slow;
        }
    }
    for (int d = 0; d < l->pp; d++) { /* one of several: their sets are alike */
        is_new = is_new || (pace[d] != 1 && !seen[d]);
        seen[d] = seen[d] || pace[d] != 1;
    }
    return is_new;
}

/* The slowest step over the nodes that may be the slow one. */
static enum mw_status simulate_slow_node(const struct mw_scenario *scenario,
                                         const struct mw_cost_ctx *ctx,
                                         const struct mw_plan *plan,
                                         double slow, double *out_s,
                                         struct mw_err *err)
{
    int pp = plan->layout.pp;
    double *pace = mw_calloc((size_t)pp, sizeof *pace);
    bool *seen = mw_calloc((size_t)pp, sizeof *seen);
    enum mw_status status = MW_OK;

    *out_s = 0;
    for (int node = 0; node < ctx->n_nodes && status == MW_OK; node++) {
        double step_s = 0;

        if (node_pace(&plan->layout, node, ctx->gpus_per_node, slow, pace,
                      seen)) {
            status = simulate(scenario, ctx, plan, pace, &step_s, err);
            *out_s = fmax(*out_s, step_s);
        }
    }
    mw_free(pace);
    mw_free(seen);
    return status;
}

static enum mw_status simulate_case(const struct mw_scenario *scenario,
                                    const struct mw_cost_ctx *ctx,
                                    const struct mw_candidate *c, double slow,
                                    double *out_s, struct mw_err *err)
{
    struct mw_plan plan;
    enum mw_status status =
        mw_plan_make(scenario, &c->layout, c->layers, &plan, err);

    if (status != MW_OK) {
        return status;
    }
    status = slow > 1
                 ? simulate_slow_node(scenario, ctx, &plan, slow, out_s, err)
                 : simulate(scenario, ctx, &plan, NULL, out_s, err);
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

const struct mw_model_error *mw_robust_error(const struct mw_cost_ctx *ctx)
{
    const struct mw_model_error *e =
        ctx->gpu->is_cpu
            ? NULL
            : mw_hwdb_model_error(ctx->db, ctx->stack.name, ctx->gpu->slug);

    return e != NULL && e->p90 > 0 && e->p90 < 1 ? e : NULL;
}

bool mw_robust_is_tied(const struct mw_model_error *error, double step_time_s,
                       double best_s)
{
    return error != NULL && step_time_s <= best_s * (1 + error->p90);
}

void mw_robust_rank(const struct mw_model_error *error,
                    const struct mw_candidate *plans, size_t n,
                    struct mw_robust_row *rows)
{
    double p = error != NULL ? error->p90 : 0, best = HUGE_VAL;

    for (size_t i = 0; i < n; i++) {
        best = fmin(best, plans[i].step_time_s);
    }
    for (size_t i = 0; i < n; i++) {
        double low = plans[i].step_time_s / (1 + p);
        double high = plans[i].step_time_s / (1 - p);
        int first = 1, last = 1;

        for (size_t j = 0; j < n; j++) {
            double t = plans[j].step_time_s;

            first += j != i && t / (1 - p) < low;
            last += j != i && t / (1 + p) <= high;
        }
        rows[i].first_rank = first;
        rows[i].last_rank = last;
        rows[i].is_tied = mw_robust_is_tied(error, plans[i].step_time_s, best);
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
            status = simulate_case(scenario, &changed, &plans[i], cases[k].node,
                                   &out[i].step_time_s[k], err);
        }
        rank_case(plans, n, k, out);
    }
    mw_robust_rank(mw_robust_error(ctx), plans, n, out);
    return status;
}
