/*
 * Which layouts there are, and which of them are legal.
 *
 * Every rank is used: tp cp pp dp equals the cluster, so the loops run over
 * divisors. What is free by default, and what --space full adds:
 *
 *   tp pp dp         divisors of the ranks; tp inside a node (limits: max_tp)
 *   cp               1 below CP_SEQ tokens, divisors from there on; full:
 * always ep, etp          divisors of the experts; etp 1; full: or tp
 *   micro-batch      divisors of the replica's share up to 64; full: all
 *   vpp              chunk counts that give another chunk size
 *   schedule         all kinds that train, are priced and are made by a rule,
 *                    with their chunks; a CPU: 1f1b; full: gpipe-lifo too
 *   order            Megatron's two; full: all of tp, cp, dp, pp
 *   sp               on where tp > 1; full: off as well (dense models)
 *   ZeRO, recompute  all; a CPU: ZeRO-0, none
 *
 * Spellings of the same thing are walked once: ZeRO needs a gradient group, sp
 * needs tp > 1, schedules need pp > 1, orders that differ in ways of size 1
 * are one.
 */
#include "planner/space_int.h"

#include <stdio.h>
#include <string.h>

enum { CP_SEQ = 16384 };

/* ---- the outer dimensions --------------------------------------------------
 */

/* Ways inside an expert: 1, or what is asked for; of a list those that the
 * ranks divide into. */
static void outer_etp(struct mw_space *s, struct mw_layout layout)
{
    const struct mw_int_list *listed = &s->scenario->limits.etp;
    bool has_experts = s->scenario->model.moe.n_experts > 0;
    int ranks = layout.tp * layout.cp * layout.dp;

    if (s->opts->etp > 0 || listed->n == 0 || !has_experts) {
        layout.etp = s->opts->etp > 0 ? s->opts->etp : 1;
        mw_array_push(&s->outer, layout);
        if (s->opts->etp == 0 && s->opts->is_full && has_experts &&
            layout.tp > 1) {
            layout.etp = layout.tp;
            mw_array_push(&s->outer, layout);
        }
        return;
    }
    for (size_t i = 0; i < listed->n && layout.ep <= ranks; i++) {
        const struct mw_int_list before = {listed->v, i};
        int etp = (int)listed->v[i];

        if (mw_int_list_holds(&before, etp) || etp > ranks / layout.ep ||
            ranks % (layout.ep * etp) != 0) {
            continue;
        }
        layout.etp = etp;
        mw_array_push(&s->outer, layout);
    }
}

static void outer_experts(struct mw_space *s, struct mw_layout layout)
{
    const struct mw_moe *moe = &s->scenario->model.moe;
    int ranks = layout.tp * layout.cp * layout.dp;
    int ep_max = s->opts->ep > 0 ? s->opts->ep : moe->n_experts;

    for (int ep = 1; ep <= (ep_max > 1 ? ep_max : 1); ep++) {
        bool is_free = ep == 1 || (moe->n_experts % ep == 0 && ranks % ep == 0);

        if (s->opts->ep > 0 ? ep != s->opts->ep : !is_free) {
            continue;
        }
        layout.ep = ep;
        outer_etp(s, layout);
    }
}

/* Free dimensions divide the ranks. What the caller fixes is tried even when
 * the product is wrong, so that the answer says why. */
static void outer_dp(struct mw_space *s, struct mw_layout layout)
{
    int model_ranks = layout.tp * layout.pp * layout.cp;
    bool is_asked = s->opts->tp || s->opts->pp || s->opts->cp;

    layout.dp = s->opts->dp;
    if (layout.dp == 0 && s->n_ranks % model_ranks == 0) {
        layout.dp = s->n_ranks / model_ranks;
    }
    if (layout.dp == 0 && is_asked) {
        layout.dp = 1;
    }
    if (layout.dp > 0) {
        outer_experts(s, layout);
    }
}

static bool is_cp_free(const struct mw_space *s)
{
    return !s->ctx->gpu->is_cpu &&
           (s->opts->is_full || s->scenario->workload.seq >= CP_SEQ ||
            s->scenario->limits.cp.n > 0);
}

static bool divides(int fixed, int value, int n)
{
    return fixed > 0 ? fixed == value : n % value == 0;
}

static void find_outer(struct mw_space *s)
{
    const struct mw_search_opts *o = s->opts;
    int n = s->n_ranks;
    struct mw_layout layout;

    mw_layout_default(&layout);
    for (int tp = 1; tp <= n || tp <= o->tp; tp++) {
        if (!divides(o->tp, tp, n)) {
            continue;
        }
        for (int pp = 1; pp <= n || pp <= o->pp; pp++) {
            if (!divides(o->pp, pp, n) || (o->pp == 0 && n / tp % pp != 0)) {
                continue;
            }
            for (int cp = 1; cp <= n || cp <= o->cp; cp++) {
                if (!divides(o->cp, cp, n) ||
                    (cp > 1 && o->cp == 0 &&
                     (!is_cp_free(s) || n / tp / pp % cp != 0))) {
                    continue;
                }
                if (o->cp == 0 && !is_cp_free(s) && cp > 1) {
                    break;
                }
                layout.tp = tp;
                layout.pp = pp;
                layout.cp = cp;
                outer_dp(s, layout);
            }
        }
    }
}

void mw_space_init(struct mw_space *space, const struct mw_scenario *scenario,
                   const struct mw_cost_ctx *ctx,
                   const struct mw_search_opts *opts)
{
    *space = (struct mw_space){.scenario = scenario,
                               .ctx = ctx,
                               .opts = opts,
                               .n_ranks = ctx->n_nodes * ctx->gpus_per_node};
    const struct mw_limits *l = &scenario->limits;

    space->has_lists =
        l->etp.n + l->zero.n + l->sp.n + l->schedule.n + l->recompute.n +
            l->recompute_layers.n + l->order.n + l->cp_form.n + l->dp_shard.n +
            l->reshard.n + l->offload_nvme.n + l->dtype.n + l->grad_dtype.n +
            l->grad_compression.n + l->recompute_modules.n + l->overlap_off.n +
            l->vpp_group.n + l->main_params.n + l->exp_avg.n + l->exp_avg_sq.n +
            l->bucket_size.n + l->cuda_graph.n + l->dispatcher.n +
            l->mtp_ahead.n + l->overlap_shared_experts.n + l->fsdp_unit.n +
            l->fsdp_prefetch.n + l->offload_optimizer.n + l->offload_weights.n +
            l->offload_activations.n >
        0;
    space->rules = mw_rule_set_new(scenario, ctx);
    mw_space_find_inner(space);
    find_outer(space);
}

void mw_space_release(struct mw_space *space)
{
    mw_rule_set_free(space->rules);
    mw_array_release(&space->outer);
}
