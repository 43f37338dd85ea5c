/*
 * Enumerates tp x pp x dp x micro-batch x ZeRO x recomputation.
 *
 * Every rank is used: tp * pp * dp equals the cluster, so the loops run over
 * divisors. micro-batch runs over the divisors of the replica's share of the
 * global batch. A device that is a CPU is run by our own host executor, which
 * has neither sequence parallelism, recomputation nor ZeRO, so these
 * dimensions are not free there.
 */
#include "planner/space.h"

#include <stdio.h>
#include <string.h>

enum { MICRO_BATCH_MAX = 64 };

void mw_reason_add(struct mw_search_result *result, const char *rule,
                   double miss, const char *text)
{
    struct mw_reason *reason = NULL;
    for (int i = 0; i < result->n_reasons && !reason; i++) {
        if (strcmp(result->reasons[i].rule, rule) == 0) {
            reason = &result->reasons[i];
        }
    }
    if (!reason) {
        MW_ASSERT(result->n_reasons < MW_REASONS_MAX, "rule %s", rule);
        reason = &result->reasons[result->n_reasons++];
        reason->rule = rule;
    }
    bool is_nearer = miss > 0 && (reason->miss <= 0 || miss < reason->miss);
    if (reason->count == 0 || is_nearer) {
        reason->miss = miss;
        snprintf(reason->nearest, sizeof reason->nearest, "%s", text);
    }
    reason->count++;
}

const char *mw_layout_text(const struct mw_layout *layout,
                           char buf[MW_PLAN_TEXT_MAX])
{
    snprintf(buf, MW_PLAN_TEXT_MAX,
             "tp %d, pp %d, dp %d, micro-batch %d, zero %d, recompute %s",
             layout->tp, layout->pp, layout->dp, layout->micro_batch,
             layout->zero, mw_recompute_name(layout->recompute));
    return buf;
}

static bool list_allows(const struct mw_int_list *list, int value)
{
    bool is_allowed = list->n == 0;
    for (size_t i = 0; i < list->n; i++) {
        is_allowed = is_allowed || list->v[i] == value;
    }
    return is_allowed;
}

struct walk {
    const struct mw_scenario *scenario;
    const struct mw_cost_ctx *ctx;
    const struct mw_search_opts *opts;
    struct mw_search_result *result;
    struct mw_candidates *out;
    int n_ranks;
};

/* The scenario's own limits: rule name, or NULL when they allow it. */
static const char *limit_rule(const struct walk *w, const struct mw_layout *l,
                              char text[MW_PLAN_TEXT_MAX])
{
    const struct mw_limits *limits = &w->scenario->limits;
    int max_tp = limits->max_tp > 0 ? limits->max_tp : w->ctx->gpus_per_node;
    if (l->tp > max_tp) {
        snprintf(text, MW_PLAN_TEXT_MAX,
                 "tp %d crosses nodes of %d ranks; limits.max_tp allows it",
                 l->tp, max_tp);
        return "tp_node";
    }
    if (list_allows(&limits->tp, l->tp) && list_allows(&limits->pp, l->pp) &&
        list_allows(&limits->dp, l->dp) && list_allows(&limits->cp, l->cp) &&
        list_allows(&limits->ep, l->ep) && list_allows(&limits->vpp, l->vpp) &&
        list_allows(&limits->micro_batch, l->micro_batch)) {
        return NULL;
    }
    snprintf(text, MW_PLAN_TEXT_MAX, "excluded by limits in the scenario");
    return "limits";
}

static void try_layout(const struct walk *w, const struct mw_layout *layout)
{
    char text[MW_PLAN_TEXT_MAX] = "";
    struct mw_err err = {0};
    w->result->enumerated++;
    const char *rule = limit_rule(w, layout, text);
    if (!rule &&
        mw_layout_check(layout, &w->scenario->model, &w->scenario->workload,
                        w->n_ranks, &rule, &err) != MW_OK) {
        snprintf(text, sizeof text, "%.255s", err.text);
        rule = rule ? rule : "layout";
    } else if (!rule) {
        struct mw_candidate candidate = {.layout = *layout};
        mw_array_push(w->out, candidate);
        return;
    }
    mw_reason_add(w->result, rule, 0, text);
}

static void walk_recompute(const struct walk *w, struct mw_layout layout)
{
    int fixed = w->opts->recompute;
    for (int r = MW_RECOMPUTE_NONE; r <= MW_RECOMPUTE_FULL; r++) {
        bool is_free = fixed < 0 && (r == 0 || !w->ctx->gpu->is_cpu);
        if (is_free || fixed == r) {
            layout.recompute = (enum mw_recompute)r;
            try_layout(w, &layout);
        }
    }
}

static void walk_zero(const struct walk *w, struct mw_layout layout)
{
    int fixed = w->opts->zero;
    bool can_shard = layout.dp > 1 && !w->ctx->gpu->is_cpu;
    for (int zero = 0; zero <= 3; zero++) {
        bool is_free = fixed < 0 && (zero == 0 || (zero == 1 && can_shard));
        if (is_free || fixed == zero) {
            layout.zero = zero;
            walk_recompute(w, layout);
        }
    }
}

static void walk_micro_batch(const struct walk *w, struct mw_layout layout)
{
    int64_t share = w->scenario->workload.global_batch / layout.dp;
    int fixed = w->opts->micro_batch;
    for (int b = 1; b <= MICRO_BATCH_MAX || b == fixed; b++) {
        bool is_free = fixed == 0 && b <= share && share % b == 0;
        if (is_free || fixed == b) {
            layout.micro_batch = b;
            walk_zero(w, layout);
        }
        if (b >= MICRO_BATCH_MAX && b >= fixed) {
            break;
        }
    }
}

static bool is_open(int fixed, int value)
{
    return fixed == 0 || fixed == value;
}

/* Did the caller ask for something that cannot divide the ranks? Then it is
 * counted, so that the answer says why; free dimensions are just not tried. */
static bool is_asked(const struct walk *w, const struct mw_layout *layout)
{
    const struct mw_search_opts *o = w->opts;
    return (o->tp && w->n_ranks % layout->tp != 0) ||
           (o->pp && w->n_ranks % layout->pp != 0) || (o->tp && o->pp);
}

static void walk_dp(const struct walk *w, struct mw_layout layout)
{
    int model_ranks = layout.tp * layout.pp;
    layout.dp = w->opts->dp;
    if (layout.dp == 0 && w->n_ranks % model_ranks == 0) {
        layout.dp = w->n_ranks / model_ranks;
    }
    if (layout.dp > 0) {
        walk_micro_batch(w, layout);
    } else if (is_asked(w, &layout)) {
        char text[MW_PLAN_TEXT_MAX];
        snprintf(text, sizeof text, "tp %d x pp %d does not divide %d ranks",
                 layout.tp, layout.pp, w->n_ranks);
        w->result->enumerated++;
        mw_reason_add(w->result, "ranks", 0, text);
    }
}

void mw_space_enumerate(const struct mw_scenario *scenario,
                        const struct mw_cost_ctx *ctx,
                        const struct mw_search_opts *opts,
                        struct mw_search_result *result,
                        struct mw_candidates *out)
{
    struct walk w = {scenario, ctx, opts,
                     result,   out, ctx->n_nodes * ctx->gpus_per_node};
    for (int tp = 1; tp <= w.n_ranks || tp <= opts->tp; tp++) {
        if (!is_open(opts->tp, tp) || (w.n_ranks % tp != 0 && opts->tp == 0)) {
            continue;
        }
        for (int pp = 1; pp <= w.n_ranks / tp || pp <= opts->pp; pp++) {
            if (!is_open(opts->pp, pp)) {
                continue;
            }
            struct mw_layout layout;
            mw_layout_default(&layout);
            layout.tp = tp;
            layout.pp = pp;
            layout.vpp = opts->vpp > 0 ? opts->vpp : 1;
            layout.schedule = opts->schedule ? opts->schedule : "1f1b";
            layout.sp =
                opts->sp < 0 ? tp > 1 && !ctx->gpu->is_cpu : opts->sp > 0;
            walk_dp(&w, layout);
        }
    }
}
